//! `simpler recover`: what killed processes had accepted and not yet written, put into their logs.

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use serde_json::json;
use simpler_host_log::{Recovered, Recovery, recover, recover_stderr};

use crate::{Console, Exit};

/// Puts what killed processes had not yet written into their logs
///
/// A process logs into a ring in shared memory that outlives it. For every dead process of this user whose log
/// lies in DIR, the records that it had accepted and not written are appended to its log, each exactly once, a
/// torn last line is cut off, losses are told, and the ring is removed. Living processes are left alone. It may
/// be interrupted and run again.
///
/// Exits 0 if nothing is left to do, 1 if a ring had to be left (a sentence says why), 2 if DIR cannot be used.
#[derive(clap::Args)]
pub(crate) struct Recover {
    /// The folder of the logs, which holds host.*.log
    #[arg(value_name = "DIR", required_unless_present = "stderr")]
    directory: Option<PathBuf>,
    /// Print the records of killed processes that wrote to stderr or a pipe: each at least once, since nobody can
    /// tell what had arrived
    #[arg(long)]
    stderr: bool,
    /// Print what was done as one JSON object on one line, with --stderr on stderr
    #[arg(long)]
    json: bool,
}

impl Recover {
    pub(crate) fn run(&self, console: &mut Console<'_>) -> anyhow::Result<Exit> {
        let mut done = Recovery::default();
        if let Some(directory) = &self.directory {
            match recover(directory) {
                Ok(recovery) => add(&mut done, recovery),
                Err(error) => {
                    console.err.say(format_args!("simpler: {}: {error}", directory.display()));
                    return Ok(Exit::Unusable);
                }
            }
        }
        if self.stderr {
            let mut out = BufWriter::new(&mut console.out);
            add(&mut done, recover_stderr(&mut out)?);
        }
        // Where records are printed the rest goes elsewhere.
        let rest = if self.stderr { &mut console.err } else { &mut console.out };
        self.print(&done, rest)?;
        rest.flush()?;
        for refused in &done.refused {
            console.err.say(refused);
        }
        Ok(if done.refused.is_empty() { Exit::Fine } else { Exit::No })
    }

    fn print(&self, done: &Recovery, out: &mut dyn Write) -> io::Result<()> {
        if self.json {
            let recovered = done.recovered.iter().map(|process| {
                json!({
                    "pid": process.pid,
                    "log": process.log.as_ref().map(|log| log.to_string_lossy()),
                    "records": process.records,
                    "lost": process.lost,
                    "cut_bytes": process.cut_bytes,
                })
            });
            let refused = done
                .refused
                .iter()
                .map(|ring| json!({"pid": ring.pid, "ring": ring.ring.to_string_lossy(), "why": ring.why}));
            let object = json!({
                "recovered": recovered.collect::<Vec<_>>(),
                "refused": refused.collect::<Vec<_>>(),
                "living": done.living,
            });
            return writeln!(out, "{object}");
        }
        for process in &done.recovered {
            writeln!(out, "{}", sentence(process))?;
        }
        for pid in &done.living {
            writeln!(out, "process {pid} lives; its ring is its own")?;
        }
        if done.recovered.is_empty() && done.refused.is_empty() {
            writeln!(out, "nothing to recover")?;
        }
        Ok(())
    }
}

fn add(done: &mut Recovery, more: Recovery) {
    done.recovered.extend(more.recovered);
    done.refused.extend(more.refused);
    done.living.extend(more.living);
}

fn sentence(process: &Recovered) -> String {
    let Recovered { pid, records, lost, cut_bytes, log } = process;
    let plural = if *records == 1 { "" } else { "s" };
    let mut sentence = match log {
        Some(_) => format!("process {pid}: {records} record{plural} recovered"),
        None => format!("process {pid}: {records} record{plural} printed, each at least once"),
    };
    if *lost > 0 {
        sentence += &format!(", {lost} lost before it was killed");
    }
    if *cut_bytes > 0 {
        sentence += &format!(", {cut_bytes} bytes of a torn line cut off");
    }
    if let Some(log) = log {
        sentence += &format!(" ({})", log.display());
    }
    sentence
}
