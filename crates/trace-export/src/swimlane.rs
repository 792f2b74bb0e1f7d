//! The swimlane picture: every process and thread of the log, and below each chip its device, on one time axis.
//!
//! The document is Chrome trace JSON, for Perfetto and `chrome://tracing`. Host spans lie on their real process and
//! thread (`threads`), and so do the phases of their bindings; an arrow leads from a task's submit to each of its dispatches (`flows`). Device spans whose
//! invocation relates the two clocks lie on device tracks of their process, the others in `unalignedDeviceSpans`. The
//! records of a chip, where there are any, have processes of their own with a track per core, per scheduler and per
//! orchestrator (`chip`).
//!
//! Whatever was placed from the device's clock says how far it may be wrong: its track or process by name, and each
//! event in `error_ns`.

mod chip;
mod flows;
mod threads;

use crate::chip_records::ChipRecords;
use crate::event;
use crate::lanes::Nesting;
use crate::merge::{self, Merge};
use crate::writer::Json;
use rustc_hash::{FxHashMap, FxHashSet};
use simpler_record_format::percent_decode;
use simpler_trace_model::{Attributes, HostPhase, HostPhases, Life, Name, NameId, PhaseSource, Span, Trace};
use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{self, Write};

pub use chip::warnings;

/// What went into a picture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Host spans.
    pub host_spans: usize,
    /// Segments of bindings from plain lines of the log.
    pub bind_phases: usize,
    /// Phases of bindings from records beside the log.
    pub host_phase_records: usize,
    /// Device spans on the host's axis.
    pub device_spans_placed: usize,
    /// Device spans that cannot be placed there.
    pub device_spans_unaligned: usize,
    /// Records of chips.
    pub chip_records: usize,
}

/// Writes the whole document: the trace, the records of its chips, and the phases of its bindings.
///
/// # Errors
/// As `out`.
pub fn write(
    out: &mut impl Write,
    trace: &Trace,
    records: &[ChipRecords],
    phases: &HostPhases,
) -> io::Result<Written> {
    write_merged(out, trace, records, phases, &[])
}

/// As [`write`], with the events of other traces behind ours.
///
/// # Errors
/// As `out`, or if one of the others cannot be read any more.
pub fn write_merged(
    out: &mut impl Write,
    trace: &Trace,
    records: &[ChipRecords],
    phases: &HostPhases,
    merges: &[Merge],
) -> io::Result<Written> {
    let mut picture = Picture::new(trace, phases, merges);
    threads::place(trace, phases, &mut picture);
    let on_threads = picture.events.len();
    let host_spans = on_threads - phases.phases.len();
    let bind_phases = phases.phases.iter().filter(|phase| phase.source == PhaseSource::Line).count();
    let unaligned = place_device_spans(trace, &mut picture);
    let device_spans_placed = picture.events.len() - on_threads;
    let files = chip::place(trace, records, &mut picture);
    let written = Written {
        host_spans,
        bind_phases,
        host_phase_records: phases.phases.len() - bind_phases,
        device_spans_placed,
        device_spans_unaligned: unaligned.len(),
        chip_records: picture.events.len() - on_threads - device_spans_placed,
    };
    picture.tracks.sort_by_key(|track| (track.pid, track.tid));

    let mut json = Json::new(&mut *out);
    json.object(|json| {
        json.key("traceEvents")?;
        json.array(|json| {
            picture.write_names(json, !records.is_empty())?;
            let events = picture.in_order(trace);
            events.iter().try_for_each(|event| write_event(json, trace, event))?;
            flows::write(json, trace, &events)?;
            merge::write(json, merges)
        })?;
        json.key("displayTimeUnit")?;
        json.word("ms")?;
        event::clock_anchors(json, trace)?;
        json.key("unalignedDeviceSpans")?;
        json.array(|json| unaligned.iter().try_for_each(|span| write_unaligned(json, trace, span)))?;
        chip::write_files(json, &files)
    })?;
    json.end_line()?;
    Ok(written)
}

/// What is to be drawn.
struct Picture<'a> {
    /// By id, with what each is called.
    processes: Vec<Process>,
    tracks: Vec<Track>,
    events: Vec<Event<'a>>,
    /// For processes and threads that the log does not have.
    pids: Fresh,
    tids: Fresh,
}

struct Process {
    pid: u64,
    name: String,
    /// Beside which real process it stands.
    beside: Option<u64>,
}

struct Track {
    pid: u64,
    tid: u64,
    name: String,
}

/// A complete (`X`) event on its track.
struct Event<'a> {
    pid: u64,
    tid: u64,
    start: i64,
    end: i64,
    what: What<'a>,
}

enum What<'a> {
    Host(&'a Span),
    /// With the bind span that it belongs to.
    Phase(&'a HostPhase, &'a Span),
    Device {
        span: &'a Span,
        error_ns: i64,
    },
    Record {
        record: chip::Record<'a>,
        file: &'a ChipRecords,
        /// `None` if the anchors do not say.
        error_ns: Option<i64>,
    },
}

/// Something to go on one of a track's lanes.
struct Item<'a> {
    start: i64,
    end: i64,
    /// Items that belong together.
    home: Option<u32>,
    what: What<'a>,
}

impl<'a> Picture<'a> {
    fn new(trace: &'a Trace, phases: &'a HostPhases, merges: &[Merge]) -> Picture<'a> {
        let mut tids = merge::tids(merges);
        tids.extend(phases.phases.iter().map(|phase| phase.tid));
        let mut names: BTreeMap<u64, (&Life, FxHashMap<NameId, &Name>)> = BTreeMap::new();
        for span in trace.spans() {
            tids.insert(trace.tid(span));
            let (_, names) = names
                .entry(event::pid(trace, span))
                .or_insert_with(|| (trace.life(span), FxHashMap::default()));
            names.insert(trace.name_id(span), trace.name(span));
        }
        let processes = names.iter().map(|(&pid, (life, names))| Process {
            pid,
            name: event::process_name(trace, life, names.values().copied()),
            beside: None,
        });
        Picture {
            processes: processes.collect(),
            tracks: Vec::new(),
            events: Vec::new(),
            pids: Fresh::beyond(names.keys().copied().chain(merge::pids(merges)).collect()),
            tids: Fresh::beyond(tids),
        }
    }

    /// Draws items on a track, on more lanes of it where they overlap without nesting. They come in the order of
    /// their starts, of two with one start the longer one first. The first lane has the id `tid`, or a new one.
    fn draw(&mut self, pid: u64, tid: Option<u64>, name: &str, items: impl IntoIterator<Item = Item<'a>>) {
        let mut nesting = Nesting::default();
        let mut lanes: Vec<u64> = Vec::new();
        for Item { start, end, home, what } in items {
            let lane = nesting.place(start, end, home);
            if lane == lanes.len() {
                let tid = tid.filter(|_| lane == 0).unwrap_or_else(|| self.tids.next());
                lanes.push(tid);
                let name = if lane == 0 { name.to_owned() } else { format!("{name}, lane {lane}") };
                self.tracks.push(Track { pid, tid, name });
            }
            self.events.push(Event { pid, tid: lanes[lane], start, end, what });
        }
    }

    /// The events by start, process, thread and name.
    fn in_order(&self, trace: &Trace) -> Vec<&Event<'a>> {
        // Nearly all starts differ, and a start and a place are quicker to move than an event.
        let mut order: Vec<(i64, usize)> = self.events.iter().map(|event| event.start).zip(0..).collect();
        order.sort_unstable();
        for same in order.chunk_by_mut(|a, b| a.0 == b.0) {
            same.sort_by(|&(_, a), &(_, b)| {
                let (a, b) = (&self.events[a], &self.events[b]);
                (a.pid, a.tid).cmp(&(b.pid, b.tid)).then_with(|| {
                    (a.what.name(trace), Reverse(a.end)).cmp(&(b.what.name(trace), Reverse(b.end)))
                })
            });
        }
        order.into_iter().map(|(_, at)| &self.events[at]).collect()
    }

    /// `ordered` if a viewer should not go by the ids of processes.
    fn write_names<W: Write>(&mut self, json: &mut Json<W>, ordered: bool) -> io::Result<()> {
        self.processes.sort_by_key(|process| (process.beside.unwrap_or(process.pid), process.pid));
        for (at, Process { pid, name, .. }) in self.processes.iter().enumerate() {
            event::name(json, "process_name", *pid, 0, name)?;
            if ordered {
                event::sort_index(json, *pid, at)?;
            }
        }
        self.tracks
            .iter()
            .try_for_each(|Track { pid, tid, name }| event::name(json, "thread_name", *pid, *tid, name))
    }
}

/// Ids that nothing in the log or in another trace has.
struct Fresh {
    next: u64,
    taken: FxHashSet<u64>,
}

impl Fresh {
    fn beyond(taken: FxHashSet<u64>) -> Fresh {
        let most = taken.iter().copied().max().unwrap_or(0);
        Fresh { next: most.wrapping_add(1), taken }
    }

    fn next(&mut self) -> u64 {
        loop {
            let id = self.next;
            self.next = id.wrapping_add(1);
            // 0 stands for no thread at all.
            if id != 0 && !self.taken.contains(&id) {
                return id;
            }
        }
    }
}

/// Draws the device spans that have a place, and returns the others.
fn place_device_spans<'a>(trace: &'a Trace, picture: &mut Picture<'a>) -> Vec<&'a Span> {
    let mut placed: BTreeMap<u64, Vec<Item<'a>>> = BTreeMap::new();
    let mut unaligned: Vec<&Span> = Vec::new();
    for (number, invocation) in trace.invocations().iter().enumerate() {
        let spans = trace.spans_of(invocation).filter(|span| trace.is_device(span));
        let Some(alignment) = trace.alignment(invocation) else {
            unaligned.extend(spans);
            continue;
        };
        placed.entry(trace.track_pid(invocation.life)).or_default().extend(spans.map(|span| {
            let place = alignment.place(trace, span);
            let what = What::Device { span, error_ns: place.error_ns };
            Item { start: place.start_ns, end: place.end_ns, home: Some(number as u32), what }
        }));
    }
    unaligned.extend(trace.spans().iter().filter(|span| trace.is_device(span) && !trace.is_grouped(span)));
    unaligned.sort_by(|a, b| {
        let key = |span: &Span| (event::pid(trace, span), trace.inv(span), span.ts, trace.tid(span));
        key(a).cmp(&key(b)).then_with(|| trace.name(a).text.cmp(&trace.name(b).text))
    });

    for (pid, mut items) in placed {
        items.sort_by_key(|item| (item.start, Reverse(item.end), item.what.depth(trace)));
        let error_ns = items.iter().filter_map(|item| item.what.error_ns()).max().unwrap_or(0);
        picture.draw(pid, None, &format!("device phases, placed to ±{error_ns} ns"), items);
    }
    unaligned
}

impl What<'_> {
    fn name<'b>(&'b self, trace: &'b Trace) -> Cow<'b, str> {
        match self {
            What::Host(span) | What::Device { span, .. } => Cow::Borrowed(&trace.name(span).text),
            What::Phase(phase, _) => Cow::Borrowed(&phase.name),
            What::Record { record, .. } => record.name(),
        }
    }

    fn error_ns(&self) -> Option<i64> {
        match self {
            What::Host(_) | What::Phase(..) => None,
            What::Device { error_ns, .. } => Some(*error_ns),
            What::Record { error_ns, .. } => *error_ns,
        }
    }

    /// Of items that cover the same time, the outer one has less.
    fn depth(&self, trace: &Trace) -> u64 {
        match self {
            What::Host(span) | What::Device { span, .. } => trace.depth(span).into(),
            What::Phase(phase, _) => phase.depth.into(),
            What::Record { record, .. } => record.depth(),
        }
    }
}

fn write_event<W: Write>(json: &mut Json<W>, trace: &Trace, event: &Event<'_>) -> io::Result<()> {
    json.object(|json| {
        json.key("ph")?;
        json.word("X")?;
        json.key("name")?;
        json.text(&event.what.name(trace))?;
        json.key("cat")?;
        json.text(match event.what {
            What::Host(_) | What::Phase(..) => "host",
            What::Device { .. } => "device",
            What::Record { .. } => "chip",
        })?;
        json.key("ts")?;
        json.us(event.start)?;
        json.key("dur")?;
        json.us(event.end.saturating_sub(event.start))?;
        json.key("pid")?;
        json.integer(event.pid)?;
        json.key("tid")?;
        json.integer(event.tid)?;
        json.key("args")?;
        json.object(|json| {
            match event.what {
                What::Host(span) => {
                    write_span(json, trace, span)?;
                    event::wall(json, trace, span, span.ts)?;
                }
                What::Phase(phase, bind) => {
                    let attributes = Attributes::new(&phase.attrs);
                    event::identity_of_part(json, trace, bind, phase.depth, attributes)?;
                    json.key("os_tid")?;
                    json.integer(phase.tid)?;
                    write_parsed(json, attributes, &OURS)?;
                    event::wall(json, trace, bind, phase.start_ns)?;
                }
                What::Device { span, .. } => {
                    write_span(json, trace, span)?;
                    json.key("dev_ts_ns")?;
                    json.integer(span.ts)?;
                }
                What::Record { record, file, .. } => record.write(json, file)?,
            }
            let Some(error_ns) = event.what.error_ns() else { return Ok(()) };
            json.key("error_ns")?;
            json.integer(error_ns)
        })
    })
}

/// What an attribute cannot replace.
const OURS: [&str; 10] = [
    "inv",
    "hid",
    "depth",
    "attrs",
    "os_tid",
    "wall_ts_ns",
    "wall_time",
    "dev_ts_ns",
    "error_ns",
    // Last: it is ours only where it was given.
    "label",
];

fn write_span<W: Write>(json: &mut Json<W>, trace: &Trace, span: &Span) -> io::Result<()> {
    let ours = if event::given_label(trace, span).is_some() { &OURS[..] } else { &OURS[..OURS.len() - 1] };
    event::identity(json, trace, span)?;
    json.key("os_tid")?;
    json.integer(trace.tid(span))?;
    write_parsed(json, trace.attributes(span), ours)
}

/// Each attribute as a key of its own, an integer where it is one.
fn write_parsed<W: Write>(
    json: &mut Json<W>,
    attributes: Attributes<'_>,
    reserved: &[&str],
) -> io::Result<()> {
    if attributes.raw().is_empty() {
        return Ok(());
    }
    let mut pairs: Vec<(Cow<'_, str>, &[u8])> =
        attributes.pairs().map(|(key, value)| (String::from_utf8_lossy(key), value)).collect();
    pairs.sort_by(|a, b| a.0.cmp(&b.0));
    for (at, (key, value)) in pairs.iter().enumerate() {
        // The last value of a key counts.
        let repeated = pairs.get(at + 1).is_some_and(|(next, _)| next == key);
        if repeated || reserved.contains(&&**key) {
            continue;
        }
        json.key_text(key)?;
        match integer(value) {
            Some(value) => json.integer(value)?,
            None => json.bytes(&percent_decode(value).collect::<Vec<u8>>())?,
        }
    }
    Ok(())
}

/// The value of `-?[0-9]+`, if it fits.
fn integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    digits.iter().all(u8::is_ascii_digit).then(|| std::str::from_utf8(text).ok()?.parse().ok()).flatten()
}

fn write_unaligned<W: Write>(json: &mut Json<W>, trace: &Trace, span: &Span) -> io::Result<()> {
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
        json.key("inv")?;
        json.integer(trace.inv(span))?;
        json.key("hid")?;
        json.hex(trace.hid(span))?;
        if let Some(label) = event::given_label(trace, span) {
            json.key("label")?;
            json.text(label)?;
        }
        json.key("depth")?;
        json.integer(trace.depth(span))?;
        json.key("attrs")?;
        let attributes = trace.attributes(span);
        json.object(|json| {
            json.key("raw")?;
            json.bytes(attributes.raw())?;
            write_parsed(json, attributes, &["raw"])
        })
    })
}
