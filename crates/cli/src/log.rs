//! The log arguments that the reading commands share, and what is said about a log before any number.

use crate::say;
use simpler_trace_ingest::{Keep, Options, Reading, Source, read_with};
use simpler_trace_model::warnings;
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
    pub(crate) fn read(&self, keep: Keep) -> Result<Reading, String> {
        read(&self.logs, keep)
    }

    /// As [`unusable`].
    pub(crate) fn unusable(&self, reading: &Reading) -> Option<String> {
        unusable(&self.logs, reading)
    }
}

/// Reads all of them as one log, with what the answer needs of their attributes. The error is a sentence.
pub(crate) fn read(logs: &[PathBuf], keep: Keep) -> Result<Reading, String> {
    let sources: Vec<Source> = logs.iter().map(Source::argument).collect();
    read_with(&sources, Options { keep, ..Options::default() }).map_err(|error| error.to_string())
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

/// Says on stderr what is wrong with a log.
pub(crate) fn complain(reading: &Reading) {
    for warning in warnings(&reading.trace) {
        say(warning);
    }
    let complaints = &reading.complaints;
    for complaint in complaints.first().iter().take(COMPLAINTS_SHOWN) {
        say(complaint);
    }
    let more = complaints.total().saturating_sub(COMPLAINTS_SHOWN as u64);
    if more > 0 {
        say(format_args!("and {more} more complaints"));
    }
}
