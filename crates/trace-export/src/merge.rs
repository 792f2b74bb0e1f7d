//! Another program's Chrome trace, copied into a picture.
//!
//! A serving layer that traces itself on the same clock (`CLOCK_MONOTONIC`, µs) is drawn beside the runtime. Its events
//! are copied as they are, byte for byte: what a number says beyond 53 bits stays, and so do keys that nobody here knows.
//! A pid means the same process in both, so the tracks of a program that embeds the runtime lie in its own process. Only
//! what a picture of ours makes up, lanes and the processes of chips, takes ids that the other trace does not have.
//!
//! The file is read once to look at it and once for each picture, an event at a time.

use crate::text::printable;
use crate::writer::Json;
use rustc_hash::FxHashSet;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use simpler_trace_ingest::unpack;
use simpler_trace_model::Trace;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufReader, Write};
use std::path::{Path, PathBuf};

/// A Chrome trace that was looked at: an object with `traceEvents` or an array of events, plain, gz or zst.
#[derive(Debug)]
pub struct Merge {
    path: PathBuf,
    events: u64,
    /// The first start and the last end, ns.
    window: Option<(i64, i64)>,
    pids: FxHashSet<u64>,
    tids: FxHashSet<u64>,
}

impl Merge {
    /// Looks at all of a file.
    ///
    /// # Errors
    /// A sentence: it cannot be read, is no such JSON, or one of its events is no object.
    pub fn open(path: impl Into<PathBuf>) -> Result<Merge, String> {
        let path = path.into();
        let (pids, tids) = (FxHashSet::default(), FxHashSet::default());
        let mut merge = Merge { path: path.clone(), events: 0, window: None, pids, tids };
        match each_event(&path, &mut |event| merge.look_at(event)) {
            Ok(()) => Ok(merge),
            Err(error) => Err(format!("{} cannot be merged: {error}", path.display())),
        }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How many events it holds.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// What to say if none of it lies in the time of the log: it may have another clock.
    pub fn warning(&self, trace: &Trace) -> Option<String> {
        let (theirs, ours) = (self.window?, trace.host_window()?);
        if theirs.0 <= ours.1 && ours.0 <= theirs.1 {
            return None;
        }
        let seconds = |(from, to): (i64, i64)| {
            let s = |ns: i64| ns as f64 / 1e9;
            format!("from {:.6} s to {:.6} s", s(from), s(to))
        };
        Some(format!(
            "warning: {} has no moment in common with the log: it reaches {}, the log {} of CLOCK_MONOTONIC",
            printable(&self.path.to_string_lossy()),
            seconds(theirs),
            seconds(ours)
        ))
    }

    fn look_at(&mut self, event: &str) -> io::Result<()> {
        let Looked { pid, tid, ts, dur, is_metadata } = serde_json::from_str(event)?;
        self.events += 1;
        self.pids.extend(pid.and_then(id));
        self.tids.extend(tid.and_then(id));
        // Names of processes have no time, whatever stands there.
        if let Some(start) = ts.and_then(ns).filter(|_| !is_metadata) {
            let end = start.saturating_add(dur.and_then(ns).unwrap_or(0));
            let (first, last) = self.window.unwrap_or((start, end));
            self.window = Some((first.min(start), last.max(end)));
        }
        Ok(())
    }
}

/// The pids that others have.
pub(crate) fn pids(merges: &[Merge]) -> FxHashSet<u64> {
    merges.iter().flat_map(|merge| &merge.pids).copied().collect()
}

/// The thread ids that others have, in whichever process.
pub(crate) fn tids(merges: &[Merge]) -> FxHashSet<u64> {
    merges.iter().flat_map(|merge| &merge.tids).copied().collect()
}

/// Copies all events of all others.
pub(crate) fn write<W: Write>(json: &mut Json<W>, merges: &[Merge]) -> io::Result<()> {
    merges.iter().try_for_each(|merge| each_event(&merge.path, &mut |event| json.verbatim(event)))
}

/// Gives each event of a file, as it stands there.
fn each_event(path: &Path, take: &mut dyn FnMut(&str) -> io::Result<()>) -> io::Result<()> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is no file, and it has to be read more than once"));
    }
    let bytes = BufReader::new(unpack(Box::new(File::open(path)?))?);
    let mut json = serde_json::Deserializer::from_reader(bytes);
    let mut failed = None;
    let mut events = Events { take, failed: &mut failed, count: 0 };
    let read = Document(&mut events).deserialize(&mut json).and_then(|()| json.end());
    match failed {
        Some(error) => Err(error),
        None => Ok(read?),
    }
}

/// The whole of a trace.
struct Document<'a, 'b>(&'a mut Events<'b>);

/// Its events.
struct Events<'a> {
    take: &'a mut dyn FnMut(&str) -> io::Result<()>,
    /// Why one could not be taken.
    failed: &'a mut Option<io::Error>,
    count: u64,
}

impl<'de> DeserializeSeed<'de> for Document<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Document<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with traceEvents, or an array of events")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, events: A) -> Result<(), A::Error> {
        self.0.visit_seq(events)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut found = false;
        while let Some(key) = map.next_key::<String>()? {
            if key == "traceEvents" {
                found = true;
                map.next_value_seed(&mut *self.0)?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        if found { Ok(()) } else { Err(A::Error::custom("it has no traceEvents")) }
    }
}

impl<'de> DeserializeSeed<'de> for &mut Events<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for &mut Events<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of events")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut events: A) -> Result<(), A::Error> {
        while let Some(event) = events.next_element::<Box<RawValue>>()? {
            self.count += 1;
            if !event.get().starts_with('{') {
                return Err(A::Error::custom(format_args!("event {} is no object", self.count)));
            }
            if let Err(error) = (self.take)(event.get()) {
                *self.failed = Some(error);
                return Err(A::Error::custom("an event could not be taken"));
            }
        }
        Ok(())
    }
}

/// What is looked at in an event. Of a key that stands twice the last one counts.
#[derive(Default)]
struct Looked<'a> {
    pid: Option<&'a RawValue>,
    tid: Option<&'a RawValue>,
    ts: Option<&'a RawValue>,
    dur: Option<&'a RawValue>,
    is_metadata: bool,
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "lowercase")]
enum Key {
    Ph,
    Pid,
    Tid,
    Ts,
    Dur,
    #[serde(other)]
    Other,
}

impl<'de: 'a, 'a> Deserialize<'de> for Looked<'a> {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Looked<'a>, D::Error> {
        json.deserialize_map(LookedVisitor)
    }
}

struct LookedVisitor;

impl<'de> Visitor<'de> for LookedVisitor {
    type Value = Looked<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an event")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Looked<'de>, A::Error> {
        let mut looked = Looked::default();
        while let Some(key) = map.next_key::<Key>()? {
            let value = map.next_value::<&RawValue>()?;
            match key {
                Key::Ph => looked.is_metadata = value.get() == "\"M\"",
                Key::Pid => looked.pid = Some(value),
                Key::Tid => looked.tid = Some(value),
                Key::Ts => looked.ts = Some(value),
                Key::Dur => looked.dur = Some(value),
                Key::Other => {}
            }
        }
        Ok(looked)
    }
}

/// The id that a number is; text is none of ours in any case.
fn id(value: &RawValue) -> Option<u64> {
    let text = value.get();
    text.parse().ok().or_else(|| {
        let number: f64 = text.parse().ok()?;
        (number >= 0.0 && number.fract() == 0.0).then_some(number as u64)
    })
}

/// A number of µs in ns, good enough to tell times apart that have nothing in common.
fn ns(value: &RawValue) -> Option<i64> {
    let us: f64 = value.get().parse().ok()?;
    us.is_finite().then_some((us * 1e3) as i64)
}
