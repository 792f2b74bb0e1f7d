//! Which invocations a command looks at, and what callables are called: arguments, and what is said of them.

use crate::Stream;
use simpler_trace_ingest::{Reading, profile_window};
use simpler_trace_model as model;
use simpler_trace_model::{Criterion, NothingLeft, Selected, Trace, TraceBuilder, WallTime, utc};
use std::path::PathBuf;

/// How many callables a sentence names.
pub(crate) const HIDS_SHOWN: usize = 10;

#[derive(clap::Args)]
pub(crate) struct Selection {
    #[command(flatten)]
    runs: Runs,
    /// Only invocations that start at this time or later: 2026-09-21T14:13:20.5Z, with an offset such as +02:00 instead
    /// of the Z, or Unix seconds
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    since: Option<WallTime>,
    /// Only invocations that start before this time
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    until: Option<WallTime>,
    /// Only invocations of this callable; may be given several times
    #[arg(long, value_name = "HID", value_parser = hid)]
    hid: Vec<u64>,
    /// Only invocations that overlap a serving profile: a Chrome trace, plain, gz or zst, in us of CLOCK_MONOTONIC
    #[arg(long, value_name = "TRACE.json")]
    only_overlapping: Option<PathBuf>,
}

/// What makes sense of any number of logs.
#[derive(clap::Args)]
pub(crate) struct Runs {
    /// Leave out the first N runs of each callable in each process, by time: those that warm up
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    skip_first: u64,
    /// Call a callable by a name; may be given several times
    #[arg(long, value_name = "HID=NAME", value_parser = label)]
    label: Vec<(u64, String)>,
}

/// A selection that can be asked of any number of logs: what it needs besides them was read.
pub(crate) struct Asked<'a> {
    arguments: &'a Selection,
    selection: model::Selection,
}

impl Selection {
    /// Looks at the options before any log is read. The error is a sentence.
    pub(crate) fn ask(&self) -> Result<Asked<'_>, String> {
        if let (Some(since), Some(until)) = (self.since, self.until)
            && until <= since
        {
            return Err("--until is not after --since, so nothing lies between them".to_owned());
        }
        let window = self.only_overlapping.as_ref().map(|path| profile_window(path)).transpose();
        let selection = model::Selection {
            hids: self.hid.clone(),
            since: self.since,
            until: self.until,
            overlapping: window.map_err(|error| error.to_string())?,
            skip_first: self.runs.skip_first,
        };
        Ok(Asked { arguments: self, selection })
    }

    fn nothing_left(&self, selection: &model::Selection, nothing: &NothingLeft) -> String {
        let option = option(selection, nothing.criterion);
        let why = match nothing.criterion {
            Criterion::WallTime => "no process has a clock anchor from before what is left".to_owned(),
            Criterion::Since | Criterion::Until => match nothing.starts_wall_ns {
                Some((first, last)) => {
                    format!("what the log holds starts from {} to {}", utc(first), utc(last))
                }
                None => "what the log holds has no wall time".to_owned(),
            },
            Criterion::Overlapping => {
                let us = |window: &Option<_>| match window {
                    Some(std::ops::Range { start, end }) => format!("from {} to {} us", us(*start), us(*end)),
                    None => "at no time".to_owned(),
                };
                let path = self.only_overlapping.as_deref().unwrap_or(std::path::Path::new("it"));
                format!(
                    "the events of {} lie {} of CLOCK_MONOTONIC, what the log holds {}",
                    path.display(),
                    us(&selection.overlapping),
                    us(&nothing.monotonic_ns)
                )
            }
            Criterion::Hid | Criterion::SkipFirst => return self.runs.nothing_left(),
        };
        format!("{option} leaves nothing: {why}")
    }
}

impl Asked<'_> {
    /// What is asked for of a log, and notes of what was left out or has to be known. The error is a sentence.
    pub(crate) fn apply(&self, mut reading: Reading) -> Result<(Reading, Vec<String>), String> {
        let Asked { arguments, selection } = self;
        arguments.runs.name(&mut reading.trace);
        let mut notes = arguments.runs.unknown(&[&reading.trace]);
        let has = reading.trace.hids();
        if let Some(hid) = selection.hids.iter().find(|hid| !has.contains(hid)) {
            return Err(format!("--hid {hid:x}: the log has no such callable; it has {}", list(&has)));
        }
        let hosts = reading.trace.hosts().len();
        if selection.overlapping.is_some() && hosts > 1 {
            notes.push(format!(
                "warning: the log is of {hosts} hosts, whose clocks differ; --only-overlapping takes the profile's for that \
                 of each"
            ));
        }
        notes.extend(select(&mut reading, selection, |nothing| arguments.nothing_left(selection, nothing))?);
        Ok((reading, notes))
    }
}

impl Runs {
    /// As [`Asked::apply`], to one of several logs.
    pub(crate) fn apply(&self, mut reading: Reading, err: &mut Stream<'_>) -> Result<Reading, String> {
        self.name(&mut reading.trace);
        let selection = model::Selection { skip_first: self.skip_first, ..model::Selection::default() };
        let notes = select(&mut reading, &selection, |_| self.nothing_left())?;
        notes.iter().for_each(|note| err.say(note));
        Ok(reading)
    }

    fn name(&self, trace: &mut Trace) {
        self.label.iter().for_each(|(hid, label)| trace.name_callable(*hid, label.as_str()));
    }

    /// Which names are for callables that no log has.
    pub(crate) fn unknown(&self, traces: &[&Trace]) -> Vec<String> {
        let has: Vec<u64> = match self.label.is_empty() {
            true => return Vec::new(),
            false => traces.iter().flat_map(|trace| trace.hids()).collect(),
        };
        let unknown = self.label.iter().filter(|(hid, _)| !has.contains(hid));
        unknown
            .map(|(hid, label)| format!("note: --label {hid:x}={label}: there is no such callable"))
            .collect()
    }

    fn nothing_left(&self) -> String {
        format!(
            "--skip-first {} leaves nothing: none of the callables looked at has more runs in one process",
            self.skip_first
        )
    }
}

/// Selects; how many invocations each option has left out.
fn select(
    reading: &mut Reading,
    selection: &model::Selection,
    nothing_left: impl FnOnce(&NothingLeft) -> String,
) -> Result<Vec<String>, String> {
    let whole = std::mem::replace(&mut reading.trace, TraceBuilder::new().finish());
    let Selected { trace, left_out } = whole.select(selection).map_err(|nothing| nothing_left(&nothing))?;
    reading.trace = trace;
    let note = |(criterion, n)| {
        let option = option(selection, criterion);
        let why = match criterion {
            Criterion::WallTime => " whose process has no clock anchor from before them",
            _ => "",
        };
        format!("note: {option} leaves out {n} invocation(s){why}")
    };
    Ok(left_out.into_iter().map(note).collect())
}

/// The option that asks for it.
fn option(selection: &model::Selection, criterion: Criterion) -> String {
    match criterion {
        Criterion::Hid => "--hid".to_owned(),
        Criterion::Since => "--since".to_owned(),
        Criterion::WallTime if selection.since.is_some() => "--since".to_owned(),
        Criterion::Until | Criterion::WallTime => "--until".to_owned(),
        Criterion::Overlapping => "--only-overlapping".to_owned(),
        Criterion::SkipFirst => format!("--skip-first {}", selection.skip_first),
    }
}

/// The first of them, and how many more there are.
pub(crate) fn list(hids: &[u64]) -> String {
    if hids.is_empty() {
        return "none".to_owned();
    }
    let shown: Vec<String> = hids.iter().take(HIDS_SHOWN).map(|hid| format!("hid={hid:x}")).collect();
    match hids.len().saturating_sub(HIDS_SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// ns as us, every digit kept.
fn us(ns: i64) -> String {
    let (sign, ns) = (if ns < 0 { "-" } else { "" }, ns.unsigned_abs());
    format!("{sign}{}.{:03}", ns / 1000, ns % 1000)
}

/// Hexadecimal as the log has it, or with 0x.
fn hid(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix("0x").or(text.strip_prefix("0X")).unwrap_or(text);
    let number = u64::from_str_radix(digits, 16).ok().filter(|_| !digits.starts_with('+'));
    number.ok_or_else(|| format!("{text} is no hid: one is at most 16 hexadecimal digits, as in the log"))
}

/// `HID=NAME`.
fn label(text: &str) -> Result<(u64, String), String> {
    match text.split_once('=') {
        Some((digits, name)) if !name.is_empty() => Ok((hid(digits)?, name.to_owned())),
        _ => Err(format!("{text} gives no name: it is written as HID=NAME, such as b7e2=decode")),
    }
}
