//! Chrome trace JSON, the format of Perfetto and `chrome://tracing`.
//!
//! With [`Lanes::Thread`] a process is a process and a track is a thread. A viewer nests what it finds on one
//! track by time, so spans that overlap without nesting (two runs of a pipeline, driven by one thread) are
//! spread over lanes of their thread. Device spans have tracks of their own. Where the log relates the two clocks
//! ([`Trace::alignment`]) they lie where they happened, and the track's name and each event (`error_ns`) say how far
//! that may be wrong. Elsewhere they are drawn, on another track, from the start of the host's blocking wait on, with
//! the room (`slack_ns`) by which their place may be wrong. Those whose wait is not in the log either stand in
//! `unalignedDeviceSpans`, off the time axis.
//!
//! [`Lanes::Invocation`] is the older layout: one process an invocation, a host and a device track in each.
//!
//! Times are microseconds written as decimal text, with all three digits of their nanoseconds.

use crate::event;
use crate::lanes::Nesting;
use crate::merge::{self, Merge};
use crate::writer::Json;
use rustc_hash::{FxHashMap, FxHashSet};
use simpler_trace_model::{Span, Stage, Trace};
use std::cmp::Reverse;
use std::io::{self, Write};
use std::ops::Range;

/// How the timeline is laid out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lanes {
    /// A process by its real pid, a track a thread.
    #[default]
    Thread,
    /// A process an invocation.
    Invocation,
}

/// Writes the whole document and returns how many spans it holds.
///
/// # Errors
/// As `out`.
pub fn write(out: &mut impl Write, trace: &Trace, lanes: Lanes) -> io::Result<usize> {
    write_merged(out, trace, lanes, &[])
}

/// As [`write`], with the events of other traces behind ours.
///
/// # Errors
/// As `out`, or if one of the others cannot be read any more.
pub fn write_merged(
    out: &mut impl Write,
    trace: &Trace,
    lanes: Lanes,
    merges: &[Merge],
) -> io::Result<usize> {
    let mut json = Json::new(&mut *out);
    let mut spans = 0;
    json.object(|json| {
        json.key("traceEvents")?;
        let mut unaligned = Vec::new();
        match lanes {
            Lanes::Thread => {
                let items = arrange(trace, &mut unaligned);
                json.array(|json| {
                    by_thread(json, trace, &items, &merge::tids(merges))?;
                    merge::write(json, merges)
                })?;
                spans = items.len() + unaligned.len();
            }
            Lanes::Invocation => json.array(|json| {
                spans = by_invocation(json, trace, &merge::pids(merges))?;
                merge::write(json, merges)
            })?,
        }
        json.key("displayTimeUnit")?;
        json.word("ms")?;
        event::clock_anchors(json, trace)?;
        if unaligned.is_empty() {
            return Ok(());
        }
        json.key("unalignedDeviceSpans")?;
        json.array(|json| {
            unaligned
                .iter()
                .try_for_each(|&index| unaligned_span(json, trace, &trace.spans()[index as usize]))
        })
    })?;
    json.end_line()?;
    Ok(spans)
}

/// Which clock gave a span its place.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Side {
    Host,
    /// The device's, related to the host's by anchors.
    Aligned,
    /// The device's, counted from the start of the host's wait.
    Apart,
}

/// A span with its place on the host's time axis.
struct Item {
    pid: u64,
    side: Side,
    /// The thread; device spans of a process share their tracks.
    tid: u64,
    start: i64,
    end: i64,
    invocation: Option<u32>,
    /// For a device span, by how much its place may be wrong, ns: either way if aligned, else later.
    doubt_ns: i64,
    index: u32,
}

/// All spans that have a place, track by track and in time order on each, the enclosing span first.
fn arrange(trace: &Trace, unaligned: &mut Vec<u32>) -> Vec<Item> {
    let mut items = Vec::with_capacity(trace.spans().len());
    let host = |index: u32, invocation| {
        let span = &trace.spans()[index as usize];
        let (pid, tid) = (event::pid(trace, span), trace.tid(span));
        Item { pid, side: Side::Host, tid, start: span.ts, end: span.end(), invocation, doubt_ns: 0, index }
    };
    for (number, invocation) in trace.invocations().iter().enumerate() {
        let number = Some(number as u32);
        let wait = invocation.stage(trace, Stage::RunnerRun);
        let wall = invocation.stage(trace, Stage::DeviceWall);
        let origin = wait.or(invocation.root_span(trace)).filter(|span| !trace.is_device(span));
        let slack = origin.zip(wall).map(|(host, device)| host.dur.saturating_sub(device.dur));
        let alignment = trace.alignment(invocation);
        for &index in trace.span_indices(invocation) {
            let span = &trace.spans()[index as usize];
            if !trace.is_device(span) {
                items.push(host(index, number));
                continue;
            }
            let (side, start, end, doubt_ns) = match (&alignment, origin) {
                (Some(alignment), _) => {
                    let placed = alignment.place(trace, span);
                    (Side::Aligned, placed.start_ns, placed.end_ns, placed.error_ns)
                }
                (None, Some(origin)) => {
                    let start = origin.ts.saturating_add(span.ts);
                    (Side::Apart, start, start.saturating_add(span.dur), slack.unwrap_or(origin.dur))
                }
                (None, None) => {
                    unaligned.push(index);
                    continue;
                }
            };
            let pid = event::pid(trace, span);
            items.push(Item { pid, side, tid: 0, start, end, invocation: number, doubt_ns, index });
        }
    }
    for (index, span) in trace.spans().iter().enumerate().filter(|(_, span)| !trace.is_grouped(span)) {
        match trace.is_device(span) {
            false => items.push(host(index as u32, None)),
            true => unaligned.push(index as u32),
        }
    }
    let depth = |item: &Item| trace.depth(&trace.spans()[item.index as usize]);
    items.sort_by_key(|item| {
        (item.pid, item.side, item.tid, item.start, Reverse(item.end), depth(item), item.index)
    });
    items
}

/// `taken` are thread ids that no lane is given.
fn by_thread<W: Write>(
    json: &mut Json<W>,
    trace: &Trace,
    items: &[Item],
    taken: &FxHashSet<u64>,
) -> io::Result<()> {
    for process in items.chunk_by(|a, b| a.pid == b.pid) {
        let pid = process[0].pid;
        let names = process.iter().map(|item| trace.name(&trace.spans()[item.index as usize]));
        let life = trace.life(&trace.spans()[process[0].index as usize]);
        event::name(json, "process_name", pid, 0, &event::process_name(trace, life, names))?;
        let mut synthetic = process.iter().map(|item| item.tid).max().unwrap_or(0);
        for track in process.chunk_by(|a, b| (a.side, a.tid) == (b.side, b.tid)) {
            let (side, tid) = (track[0].side, track[0].tid);
            let name = match side {
                Side::Host => format!("tid {tid}"),
                Side::Aligned => {
                    let error_ns = track.iter().map(|item| item.doubt_ns).max().unwrap_or(0);
                    format!("device (clk=dev), placed to ±{error_ns} ns")
                }
                Side::Apart => "device (clk=dev), not aligned".to_owned(),
            };
            let mut lanes = Nesting::default();
            let mut tids: Vec<u64> = Vec::new();
            for item in track {
                let lane = lanes.place(item.start, item.end, item.invocation);
                if lane == tids.len() {
                    let own = lane == 0 && side == Side::Host;
                    synthetic = if own { synthetic } else { synthetic.saturating_add(1) };
                    while !own && taken.contains(&synthetic) {
                        synthetic = synthetic.wrapping_add(1);
                    }
                    tids.push(if own { tid } else { synthetic });
                    let lane_name = if lane == 0 { name.clone() } else { format!("{name}, lane {lane}") };
                    event::name(json, "thread_name", pid, tids[lane], &lane_name)?;
                }
                thread_event(json, trace, item, tids[lane])?;
            }
        }
    }
    Ok(())
}

fn thread_event<W: Write>(json: &mut Json<W>, trace: &Trace, item: &Item, tid: u64) -> io::Result<()> {
    let span = &trace.spans()[item.index as usize];
    complete(json, trace, span, item.start..item.end, item.pid, tid, |json| {
        match item.side {
            Side::Host if tid == item.tid => return Ok(()),
            Side::Host => {
                json.key("os_tid")?;
                return json.integer(item.tid);
            }
            Side::Aligned | Side::Apart => {
                json.key("dev_ts_ns")?;
                json.integer(span.ts)?;
            }
        }
        json.key(if item.side == Side::Aligned { "error_ns" } else { "slack_ns" })?;
        json.integer(item.doubt_ns)
    })
}

/// One complete (`X`) event.
fn complete<W: Write>(
    json: &mut Json<W>,
    trace: &Trace,
    span: &Span,
    place: Range<i64>,
    pid: u64,
    tid: u64,
    more: impl FnOnce(&mut Json<W>) -> io::Result<()>,
) -> io::Result<()> {
    json.object(|json| {
        json.key("ph")?;
        json.word("X")?;
        json.key("name")?;
        json.text(&trace.name(span).text)?;
        json.key("cat")?;
        json.text(if trace.is_device(span) { "device" } else { "host" })?;
        json.key("ts")?;
        json.us(place.start)?;
        json.key("dur")?;
        json.us(place.end.saturating_sub(place.start))?;
        json.key("pid")?;
        json.integer(pid)?;
        json.key("tid")?;
        json.integer(tid)?;
        json.key("args")?;
        json.object(|json| {
            event::identity(json, trace, span)?;
            more(json)?;
            if trace.is_device(span) { Ok(()) } else { event::wall(json, trace, span, span.ts) }
        })
    })
}

fn unaligned_span<W: Write>(json: &mut Json<W>, trace: &Trace, span: &Span) -> io::Result<()> {
    json.object(|json| {
        json.key("name")?;
        json.text(&trace.name(span).text)?;
        json.key("ts_ns")?;
        json.integer(span.ts)?;
        json.key("dur_ns")?;
        json.integer(span.dur)?;
        json.key("pid")?;
        json.integer(event::pid(trace, span))?;
        json.key("tid")?;
        json.integer(trace.tid(span))?;
        event::identity(json, trace, span)
    })
}

/// `taken` are process ids that no invocation is given.
fn by_invocation<W: Write>(json: &mut Json<W>, trace: &Trace, taken: &FxHashSet<u64>) -> io::Result<usize> {
    let mut labels: FxHashMap<u32, String> = FxHashMap::default();
    for (label, invocations) in trace.labels() {
        labels.extend(invocations.into_iter().map(|index| (index, label.clone())));
    }
    let mut spans = 0;
    let lanes = (1_u64..).filter(|lane| !taken.contains(lane));
    for ((number, invocation), lane) in trace.invocations().iter().enumerate().zip(lanes) {
        let label = labels.get(&(number as u32)).map_or("", String::as_str);
        let process = event::process(trace, trace.life_of(invocation));
        let name = format!("{label} inv={} ({process})", invocation.inv);
        event::name(json, "process_name", lane, 0, &name)?;
        event::name(json, "thread_name", lane, 0, "host")?;
        event::name(json, "thread_name", lane, 1, "device (clk=dev)")?;
        for span in trace.spans_of(invocation) {
            let tid = u64::from(trace.is_device(span));
            complete(json, trace, span, span.ts..span.end(), lane, tid, |_| Ok(()))?;
            spans += 1;
        }
    }
    Ok(spans)
}
