//! `simpler diff`: whether a stage takes longer than it did.

use crate::log::{complain, read, refuse, unusable};
use crate::selection::Runs;
use crate::{Console, Exit};
use simpler_trace_export::diff;
use simpler_trace_ingest::Keep;
use simpler_trace_model::{StageVerdict, diff as compare};
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

/// Compares what each stage takes with what it took
///
/// Exits 0 if no stage takes longer by more than is allowed, 1 if one does, 2 if the logs cannot be compared: one is
/// empty or has lost records, or they have no callable in common.
#[derive(clap::Args)]
pub(crate) struct Diff {
    /// The logs to compare with: files, directories that hold host.*.log, or - for standard input
    #[arg(value_name = "BASE", required = true)]
    base: Vec<PathBuf>,
    /// The logs to compare
    #[arg(long, value_name = "NEW", required = true, num_args = 1..)]
    against: Vec<PathBuf>,
    /// By how much a stage may take longer: it may if the interval of its change ends below this
    #[arg(long, value_name = "PERCENT", default_value = "5%", value_parser = share)]
    max_regression: f64,
    #[command(flatten)]
    runs: Runs,
    /// Print the figures as one JSON object on one line
    #[arg(long)]
    json: bool,
}

impl Diff {
    pub(crate) fn run(&self, console: &mut Console<'_>) -> anyhow::Result<Exit> {
        let mut readings = Vec::new();
        for logs in [&self.base, &self.against] {
            let reading = match read(logs, Keep::Durations, console) {
                Ok(reading) => reading,
                Err(sentence) => return refuse(console, self.json, &sentence),
            };
            complain(&reading, &mut console.err);
            if let Some(sentence) = unusable(logs, &reading) {
                return refuse(console, self.json, &sentence);
            }
            match self.runs.apply(reading, &mut console.err) {
                Ok(reading) => readings.push(reading),
                Err(sentence) => return refuse(console, self.json, &sentence),
            }
        }
        let [base, new] = readings.as_slice() else { return Ok(Exit::Unusable) };
        self.runs.unknown(&[&base.trace, &new.trace]).iter().for_each(|note| console.err.say(note));
        let found = match compare(&base.trace, &new.trace, self.max_regression) {
            Ok(found) => found,
            Err(why) => return refuse(console, self.json, &why.to_string()),
        };
        let mut out = BufWriter::new(&mut console.out);
        let printed = if self.json { diff::json(&mut out, &found) } else { diff::text(&mut out, &found) };
        // A reader that went away does not want the figures; the verdict is the exit code all the same.
        match printed.and_then(|()| out.flush()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(error.into()),
            _ => {}
        }
        Ok(if found.verdict == StageVerdict::Regression { Exit::No } else { Exit::Fine })
    }
}

/// `5%`, or `5`, as a share.
fn share(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim();
    match number.parse::<f64>() {
        Ok(percent) if percent.is_finite() && percent >= 0.0 => Ok(percent / 100.0),
        _ => Err(format!("{text} is no percentage of 0 or more, such as 5%")),
    }
}
