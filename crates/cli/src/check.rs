//! `simpler check`: whether a log is whole, and what it holds.

use crate::log::{Logs, complain, refuse};
use crate::{Console, Exit};
use simpler_trace_export::{json, text};
use simpler_trace_ingest::Keep;
use std::io::{self, BufWriter, Write};

/// Prints whether a log is whole, and what it holds
///
/// Exits 2 if the log holds no span at all.
#[derive(clap::Args)]
pub(crate) struct Check {
    #[command(flatten)]
    logs: Logs,
    /// Exit 1 if any record is known to be lost, damaged or cut
    #[arg(long)]
    strict: bool,
    /// Print all facts as one JSON object on one line
    #[arg(long)]
    json: bool,
}

impl Check {
    pub(crate) fn run(&self, console: &mut Console<'_>) -> anyhow::Result<Exit> {
        let reading = match self.logs.read(Keep::All, console) {
            Ok(reading) => reading,
            Err(sentence) => return refuse(console, self.json, &sentence),
        };
        complain(&reading, &mut console.err);
        let facts = reading.trace.facts();
        let unusable = self.logs.unusable(&reading);
        let mut out = BufWriter::new(&mut console.out);
        let print = |out: &mut BufWriter<_>| {
            if self.json {
                json::check(out, &reading, &facts, unusable.as_deref())?;
            } else if unusable.is_none() {
                text::facts(out, &reading, &facts)?;
            }
            out.flush()
        };
        // A reader that went away does not want the facts; the verdict is the exit code all the same.
        match print(&mut out) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(error.into()),
            _ => {}
        }
        if let Some(sentence) = unusable {
            console.err.say(sentence);
            return Ok(Exit::Unusable);
        }
        Ok(if self.strict && facts.lossy { Exit::No } else { Exit::Fine })
    }
}
