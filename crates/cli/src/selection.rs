//! Which invocations a command looks at, and what callables are called: arguments, and what is said of them.

use crate::Stream;
use simpler_trace_ingest::{Reading, profile_window};
use simpler_trace_model as model;
use simpler_trace_model::{Criterion, NothingLeft, Selected, Trace, WallTime, utc};
use std::path::PathBuf;

/// How many callables a sentence names.
pub(crate) const HIDS_SHOWN: usize = 10;

/// The options by their names. A log that grows is shown whole.
pub(crate) const OPTIONS: [&str; 6] = ["skip_first", "label", "since", "until", "hid", "only_overlapping"];

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

impl Selection {
    /// What is asked for of a log. Says what was left out; the error is a sentence.
    pub(crate) fn apply(&self, mut reading: Reading, err: &mut Stream<'_>) -> Result<Reading, String> {
        self.runs.name(&mut reading.trace);
        self.runs.say_unknown(&[&reading.trace], err);
        let has = reading.trace.hids();
        if let Some(hid) = self.hid.iter().find(|hid| !has.contains(hid)) {
            return Err(format!("--hid {hid:x}: the log has no such callable; it has {}", list(&has)));
        }
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
        select(reading, &selection, err, |nothing| self.nothing_left(&selection, nothing))
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

impl Runs {
    /// As [`Selection::apply`], to one of several logs.
    pub(crate) fn apply(&self, mut reading: Reading, err: &mut Stream<'_>) -> Result<Reading, String> {
        self.name(&mut reading.trace);
        let selection = model::Selection { skip_first: self.skip_first, ..model::Selection::default() };
        select(reading, &selection, err, |_| self.nothing_left())
    }

    fn name(&self, trace: &mut Trace) {
        self.label.iter().for_each(|(hid, label)| trace.name_callable(*hid, label.as_str()));
    }

    /// Says which names are for callables that no log has.
    pub(crate) fn say_unknown(&self, traces: &[&Trace], err: &mut Stream<'_>) {
        let has: Vec<u64> = match self.label.is_empty() {
            true => return,
            false => traces.iter().flat_map(|trace| trace.hids()).collect(),
        };
        for (hid, label) in self.label.iter().filter(|(hid, _)| !has.contains(hid)) {
            err.say(format_args!("note: --label {hid:x}={label}: there is no such callable"));
        }
    }

    fn nothing_left(&self) -> String {
        format!(
            "--skip-first {} leaves nothing: none of the callables looked at has more runs in one process",
            self.skip_first
        )
    }
}

/// Selects, and says how many invocations each option has left out.
fn select(
    mut reading: Reading,
    selection: &model::Selection,
    err: &mut Stream<'_>,
    nothing_left: impl FnOnce(&NothingLeft) -> String,
) -> Result<Reading, String> {
    let Selected { trace, left_out } =
        reading.trace.select(selection).map_err(|nothing| nothing_left(&nothing))?;
    reading.trace = trace;
    for (criterion, n) in left_out {
        let option = option(selection, criterion);
        let why = match criterion {
            Criterion::WallTime => " whose process has no clock anchor from before them",
            _ => "",
        };
        err.say(format_args!("note: {option} leaves out {n} invocation(s){why}"));
    }
    Ok(reading)
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
