//! The log arguments that the reading commands share, and what is said about a log before any number.

use crate::progress::with_bar;
use crate::{Console, Exit, Stream};
use simpler_trace_export::json;
use simpler_trace_ingest::{Follower, Keep, Options, Reading, Source, read_with};
use simpler_trace_model::warnings;
use std::io::{self, Write};
use std::path::PathBuf;

/// How many complaints are printed; all are counted.
const COMPLAINTS_SHOWN: usize = 10;

#[derive(clap::Args)]
pub(crate) struct Logs {
    /// Files, directories that hold host.*.log, or - for standard input; gz and zst are unpacked
    #[arg(value_name = "LOG", required = true)]
    logs: Vec<PathBuf>,
}

impl Logs {
    /// As [`read`].
    pub(crate) fn read(&self, keep: Keep, console: &Console<'_>) -> Result<Reading, String> {
        read(&self.logs, keep, console)
    }

    /// Follows all of them as one log. The error is a sentence.
    pub(crate) fn follow(&self, keep: Keep) -> Result<Follower, String> {
        Follower::new(&sources(&self.logs), keep).map_err(|error| error.to_string())
    }

    /// As [`unusable`].
    pub(crate) fn unusable(&self, reading: &Reading) -> Option<String> {
        unusable(&self.logs, reading)
    }
}

/// Reads all of them as one log, with what the answer needs of their attributes. The error is a sentence.
pub(crate) fn read(logs: &[PathBuf], keep: Keep, console: &Console<'_>) -> Result<Reading, String> {
    let interrupted = console.interrupted;
    let read =
        |progress| read_with(&sources(logs), Options { keep, progress, interrupted, ..Options::default() });
    with_bar(console.err.terminal(), read).map_err(|error| error.to_string())
}

fn sources(logs: &[PathBuf]) -> Vec<Source> {
    logs.iter().map(Source::argument).collect()
}

/// Says that there is no answer, and why. Somebody who does not read it is told by the exit code.
pub(crate) fn refuse(console: &mut Console<'_>, json: bool, sentence: &str) -> anyhow::Result<Exit> {
    if json {
        let out = &mut console.out;
        match json::unusable(out, sentence).and_then(|()| out.flush()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(error.into()),
            _ => {}
        }
    }
    console.err.say(sentence);
    console.refusal = Some(sentence.to_owned());
    Ok(Exit::Unusable)
}

/// Why there is nothing to compute from, as a sentence; `None` if there is something.
pub(crate) fn unusable(logs: &[PathBuf], reading: &Reading) -> Option<String> {
    if !reading.trace.spans().is_empty() {
        return None;
    }
    let names: Vec<String> = logs.iter().map(|log| log.display().to_string()).collect();
    let names = names.join(", ");
    let heads = reading.trace.counts().heads;
    Some(if reading.bytes == 0 && reading.trace.counts().unreadable > 0 {
        format!("no [STRACE] markers found: {names} cannot be unpacked or read")
    } else if reading.bytes == 0 {
        format!("no [STRACE] markers found: {names} is empty")
    } else if heads > 0 {
        format!("no complete [STRACE] record found in {names}, only {heads} damaged")
    } else {
        format!(
            "no [STRACE] markers found in {names}; spans are logged at level TIMING, so the log's threshold must be \
             timing, info or debug"
        )
    })
}

/// Says what is wrong with a log.
pub(crate) fn complain(reading: &Reading, err: &mut Stream<'_>) {
    complaints(reading).iter().for_each(|line| err.say(line));
}

/// What is wrong with a log, line by line.
pub(crate) fn complaints(reading: &Reading) -> Vec<String> {
    let mut lines: Vec<String> = warnings(&reading.trace).iter().map(ToString::to_string).collect();
    let complaints = &reading.complaints;
    lines.extend(complaints.first().iter().take(COMPLAINTS_SHOWN).map(ToString::to_string));
    let more = complaints.total().saturating_sub(COMPLAINTS_SHOWN as u64);
    if more > 0 {
        lines.push(format!("and {more} more complaints"));
    }
    lines
}
