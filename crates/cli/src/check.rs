//! `simpler check`: whether a log is whole, and what it holds.

use crate::log::{Logs, complain};
use crate::{NO, UNUSABLE, say};
use simpler_trace_export::{json, text};
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

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
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        let mut out = BufWriter::new(io::stdout().lock());
        let reading = match self.logs.read() {
            Ok(reading) => reading,
            Err(sentence) => {
                if self.json {
                    json::unusable(&mut out, &sentence)?;
                    out.flush()?;
                }
                say(sentence);
                return Ok(UNUSABLE.into());
            }
        };
        complain(&reading);
        let facts = reading.trace.facts();
        let unusable = self.logs.unusable(&reading);
        if self.json {
            json::check(&mut out, &reading, &facts, unusable.as_deref())?;
        } else if unusable.is_none() {
            text::facts(&mut out, &reading, &facts)?;
        }
        out.flush()?;
        if let Some(sentence) = unusable {
            say(sentence);
            return Ok(UNUSABLE.into());
        }
        Ok(if self.strict && facts.lossy { NO.into() } else { ExitCode::SUCCESS })
    }
}
