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

use crate::writer::Json;
use rustc_hash::FxHashMap;
use simpler_trace_model::{Anchor, Family, Span, Stage, Trace};
use std::cmp::Reverse;
use std::io::{self, Write};
use std::ops::Range;

/// Into how many lanes a thread is split at most. A pipeline has two or three; what overlaps more than this
/// is damage, and looking for ever more lanes would take ever longer.
const LANES_MAX: usize = 64;

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
    let mut json = Json::new(&mut *out);
    let mut spans = 0;
    json.object(|json| {
        json.key("traceEvents")?;
        let mut unaligned = Vec::new();
        match lanes {
            Lanes::Thread => {
                let items = arrange(trace, &mut unaligned);
                json.array(|json| by_thread(json, trace, &items))?;
                spans = items.len() + unaligned.len();
            }
            Lanes::Invocation => json.array(|json| {
                spans = by_invocation(json, trace)?;
                Ok(())
            })?,
        }
        json.key("displayTimeUnit")?;
        json.text("ms")?;
        clock_anchors(json, trace)?;
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
    writeln!(out)?;
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
        let (pid, tid) = (trace.life(span).pid, trace.tid(span));
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
            let pid = trace.life(span).pid;
            items.push(Item { pid, side, tid: 0, start, end, invocation: number, doubt_ns, index });
        }
    }
    for (index, span) in trace.spans().iter().enumerate().filter(|(_, span)| !trace.is_grouped(span)) {
        match trace.is_device(span) {
            false => items.push(host(index as u32, None)),
            true => unaligned.push(index as u32),
        }
    }
    let depth = |item: &Item| trace.spans()[item.index as usize].depth;
    items.sort_by_key(|item| {
        (item.pid, item.side, item.tid, item.start, Reverse(item.end), depth(item), item.index)
    });
    items
}

fn by_thread<W: Write>(json: &mut Json<W>, trace: &Trace, items: &[Item]) -> io::Result<()> {
    for process in items.chunk_by(|a, b| a.pid == b.pid) {
        let pid = process[0].pid;
        metadata(json, "process_name", pid, 0, &process_name(trace, pid, process))?;
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
                let lane = lanes.place(item);
                if lane == tids.len() {
                    let own = lane == 0 && side == Side::Host;
                    synthetic = if own { synthetic } else { synthetic.saturating_add(1) };
                    tids.push(if own { tid } else { synthetic });
                    let lane_name = if lane == 0 { name.clone() } else { format!("{name}, lane {lane}") };
                    metadata(json, "thread_name", pid, tids[lane], &lane_name)?;
                }
                thread_event(json, trace, item, tids[lane])?;
            }
        }
    }
    Ok(())
}

/// Which lane of a track each span goes on, so that on one lane spans nest or keep apart.
#[derive(Default)]
struct Nesting {
    /// For each lane the ends of its open spans, the innermost last.
    lanes: Vec<Vec<i64>>,
    /// Where the spans of an invocation are.
    home: FxHashMap<u32, usize>,
}

impl Nesting {
    /// The lane of the next span by start; at most one more than there are.
    fn place(&mut self, item: &Item) -> usize {
        let home = item.invocation.and_then(|invocation| self.home.get(&invocation).copied());
        let lane = home
            .into_iter()
            .chain(0..self.lanes.len())
            .find(|&lane| self.fits(lane, item))
            .unwrap_or(if self.lanes.len() < LANES_MAX { self.lanes.len() } else { 0 });
        if lane == self.lanes.len() {
            self.lanes.push(Vec::new());
        }
        self.lanes[lane].push(item.end);
        if let Some(invocation) = item.invocation {
            self.home.entry(invocation).or_insert(lane);
        }
        lane
    }

    fn fits(&mut self, lane: usize, item: &Item) -> bool {
        let open = &mut self.lanes[lane];
        while open.last().is_some_and(|&end| end <= item.start) {
            open.pop();
        }
        open.last().is_none_or(|&end| item.end <= end)
    }
}

fn process_name(trace: &Trace, pid: u64, items: &[Item]) -> String {
    let family = |item: &Item| trace.name(&trace.spans()[item.index as usize]).family;
    if items.iter().any(|item| family(item) == Family::Scheduler) {
        format!("simpler node (pid={pid})")
    } else if items.iter().all(|item| family(item) == Family::External) {
        let mut producers: Vec<&str> = items
            .iter()
            .filter_map(|item| trace.name(&trace.spans()[item.index as usize]).producer())
            .collect();
        producers.sort_unstable();
        producers.dedup();
        match producers.as_slice() {
            [] => format!("external producer unattributed (pid={pid})"),
            named => format!("external producer {} (pid={pid})", named.join("/")),
        }
    } else {
        format!("simpler chip child (pid={pid})")
    }
}

fn metadata<W: Write>(json: &mut Json<W>, what: &str, pid: u64, tid: u64, name: &str) -> io::Result<()> {
    json.object(|json| {
        json.key("ph")?;
        json.text("M")?;
        json.key("name")?;
        json.text(what)?;
        json.key("pid")?;
        json.integer(pid)?;
        json.key("tid")?;
        json.integer(tid)?;
        json.key("args")?;
        json.object(|json| {
            json.key("name")?;
            json.text(name)
        })
    })
}

fn thread_event<W: Write>(json: &mut Json<W>, trace: &Trace, item: &Item, tid: u64) -> io::Result<()> {
    let span = &trace.spans()[item.index as usize];
    event(json, trace, span, item.start..item.end, item.pid, tid, |json| {
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
fn event<W: Write>(
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
        json.text("X")?;
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
            identity(json, trace, span)?;
            more(json)?;
            match trace.life(span).anchor {
                Some(anchor) if !trace.is_device(span) => wall(json, anchor, span.ts),
                _ => Ok(()),
            }
        })
    })
}

fn identity<W: Write>(json: &mut Json<W>, trace: &Trace, span: &Span) -> io::Result<()> {
    json.key("inv")?;
    json.integer(span.inv)?;
    json.key("hid")?;
    json.text(&format!("{:x}", span.hid))?;
    json.key("depth")?;
    json.integer(span.depth)?;
    json.key("attrs")?;
    json.bytes(trace.attributes(span).raw())
}

fn wall<W: Write>(json: &mut Json<W>, anchor: Anchor, ts: i64) -> io::Result<()> {
    let Some(ns) = anchor.wall_of(ts) else { return Ok(()) };
    json.key("wall_ts_ns")?;
    json.text(&ns.to_string())?;
    json.key("wall_time")?;
    json.text(&utc(ns))
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
        json.integer(trace.life(span).pid)?;
        json.key("tid")?;
        json.integer(trace.tid(span))?;
        identity(json, trace, span)
    })
}

fn by_invocation<W: Write>(json: &mut Json<W>, trace: &Trace) -> io::Result<usize> {
    let mut labels: FxHashMap<u32, String> = FxHashMap::default();
    for callable in trace.callables() {
        let label = callable.display_label();
        labels.extend(callable.invocations.iter().map(|&index| (index, label.clone())));
    }
    let mut spans = 0;
    for (number, invocation) in trace.invocations().iter().enumerate() {
        let lane = number as u64 + 1;
        let label = labels.get(&(number as u32)).map_or("", String::as_str);
        let name = format!("{label} inv={} (pid={})", invocation.inv, trace.life_of(invocation).pid);
        metadata(json, "process_name", lane, 0, &name)?;
        metadata(json, "thread_name", lane, 0, "host")?;
        metadata(json, "thread_name", lane, 1, "device (clk=dev)")?;
        for span in trace.spans_of(invocation) {
            let tid = u64::from(trace.is_device(span));
            event(json, trace, span, span.ts..span.end(), lane, tid, |_| Ok(()))?;
            spans += 1;
        }
    }
    Ok(spans)
}

fn clock_anchors<W: Write>(json: &mut Json<W>, trace: &Trace) -> io::Result<()> {
    let mut anchors: Vec<(u64, Anchor)> =
        trace.lives().iter().filter_map(|life| Some((life.pid, life.anchor?))).collect();
    if anchors.is_empty() {
        return Ok(());
    }
    anchors.sort_by_key(|&(pid, _)| pid);
    json.key("clockAnchors")?;
    json.array(|json| {
        anchors.iter().try_for_each(|(pid, anchor)| {
            json.object(|json| {
                json.key("pid")?;
                json.integer(*pid)?;
                json.key("mono_ns")?;
                json.text(&anchor.mono_ns.to_string())?;
                json.key("wall_ns")?;
                json.text(&anchor.wall_ns.to_string())
            })
        })
    })
}

/// Unix nanoseconds as `YYYY-MM-DDThh:mm:ss.nnnnnnnnnZ`.
fn utc(ns: i64) -> String {
    let seconds = ns.div_euclid(1_000_000_000);
    let fraction = ns.rem_euclid(1_000_000_000);
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{fraction:09}Z")
}

/// The Gregorian date of a day counted from 1970-01-01. Years are taken to begin in March, so that the leap
/// day is the last one; 400 of them have 146,097 days.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unix_time_becomes_a_date() {
        for (seconds, want) in [
            (0, "1970-01-01T00:00:00.000000000Z"),
            (951_782_400, "2000-02-29T00:00:00.000000000Z"),
            (1_790_000_000, "2026-09-21T14:13:20.000000000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000000000Z"),
            (-1, "1969-12-31T23:59:59.000000000Z"),
        ] {
            assert_eq!(utc(seconds * 1_000_000_000), want);
        }
        assert_eq!(utc(1), "1970-01-01T00:00:00.000000001Z");
    }
}
