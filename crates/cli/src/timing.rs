//! `simpler timing`: where each callable's time goes.

use crate::log::{Logs, complain};
use crate::{UNUSABLE, say};
use anyhow::Context;
use simpler_trace_export::{chrome, json, text};
use simpler_trace_model::{Trace, decode_tie};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Prints where each callable's time goes, stage by stage
///
/// One view is printed: the rounds table, else the task slots, else the call tree, else the callable table. A log that holds no
/// invocation, only spans of foreign producers (ext.), is shown by those.
#[derive(clap::Args)]
pub(crate) struct Timing {
    #[command(flatten)]
    logs: Logs,
    /// Print the busiest callable's runs one by one
    #[arg(long)]
    rounds_table: bool,
    /// Print each callable's call tree, values the medians over its invocations
    #[arg(long)]
    tree: bool,
    /// Print the task slots: when each was dispatched, how long it took, and the interval between any two
    #[arg(long)]
    slots: bool,
    /// Print the spans of foreign producers (ext.) as well, in their own table or tree
    #[arg(long)]
    external: bool,
    /// Write a Chrome trace for Perfetto or chrome://tracing
    #[arg(long, value_name = "FILE")]
    trace_out: Option<PathBuf>,
    /// How the Chrome trace is laid out: a track a thread, or a process an invocation
    #[arg(long, value_name = "LAYOUT", value_enum, default_value = "thread")]
    trace_lanes: TraceLanes,
    /// Print the figures as one JSON object on one line
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum TraceLanes {
    Thread,
    Invocation,
}

impl Timing {
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        let mut out = BufWriter::new(io::stdout().lock());
        let unusable = |out: &mut dyn Write, sentence: &str| {
            if self.json {
                json::unusable(&mut *out, sentence)?;
                out.flush()?;
            }
            say(sentence);
            Ok(ExitCode::from(UNUSABLE))
        };
        let reading = match self.logs.read() {
            Ok(reading) => reading,
            Err(sentence) => return unusable(&mut out, &sentence),
        };
        complain(&reading);
        if let Some(sentence) = self.logs.unusable(&reading) {
            return unusable(&mut out, &sentence);
        }

        let trace = &reading.trace;
        let callables = trace.callables();
        if callables.is_empty() {
            say("note: only scheduler and external spans, no invocations");
        }
        if self.json {
            json::timing(&mut out, &reading, &callables)?;
        } else if self.rounds_table {
            match trace.rounds(&callables) {
                Some(rounds) => text::rounds(&mut out, &rounds)?,
                None => say("note: no runs, so there are no rounds"),
            }
        } else if self.slots {
            if !text::task_slots(&mut out, trace, &callables)? {
                say("note: no task slots: an orchestration tags a task with set_task_timing_slot");
            }
        } else if self.tree {
            let tie = decode_tie(&callables);
            if !tie.is_empty() {
                let hids: Vec<String> =
                    tie.iter().map(|callable| format!("hid={:x}", callable.hid)).collect();
                let hids = hids.join(", ");
                say(format_args!("note: {hids} are invoked equally often; none of them is called decode"));
            }
            text::tree(&mut out, trace, &callables)?;
        } else {
            text::table(&mut out, &callables)?;
        }
        if !self.json && !self.rounds_table && !self.slots && (self.external || callables.is_empty()) {
            let producers = trace.producers();
            if self.tree {
                text::external_tree(&mut out, &producers)?;
            } else {
                text::external_table(&mut out, &producers)?;
            }
        }
        out.flush()?;

        if let Some(path) = &self.trace_out {
            let spans = write_trace(path, trace, self.trace_lanes)?;
            let message = format!("Wrote Chrome trace: {} ({spans} spans)", path.display());
            // Standard output holds one JSON object and nothing else.
            if self.json { say(message) } else { writeln!(out, "{message}")? }
        }
        out.flush()?;
        Ok(ExitCode::SUCCESS)
    }
}

fn write_trace(path: &Path, trace: &Trace, lanes: TraceLanes) -> anyhow::Result<usize> {
    let lanes = match lanes {
        TraceLanes::Thread => chrome::Lanes::Thread,
        TraceLanes::Invocation => chrome::Lanes::Invocation,
    };
    let failed = || format!("cannot write {}", path.display());
    let mut out = BufWriter::new(File::create(path).with_context(failed)?);
    let spans = chrome::write(&mut out, trace, lanes).with_context(failed)?;
    out.flush().with_context(failed)?;
    Ok(spans)
}
