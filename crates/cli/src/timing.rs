//! `simpler timing`: where each callable's time goes.

use crate::follow::{Form, When, follow};
use crate::log::{Logs, complain, complaints, refuse};
use crate::selection::{self, Asked, Selection};
use crate::{Console, Exit, Stream};
use anyhow::Context;
use simpler_trace_export::chip_records::{self, ChipRecords};
use simpler_trace_export::host_phase_records::HostPhaseFile;
use simpler_trace_export::merge::Merge;
use simpler_trace_export::{chrome, dispatches, json, self_time, steps, swimlane, text};
use simpler_trace_ingest::{Keep, Reading};
use simpler_trace_model::{HostPass, HostPhases, Trace, decode_tie};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Prints where each callable's time goes, stage by stage
///
/// One view is printed: the proof of overlap, else the rounds table, else the steps, else the dispatches, else the task
/// slots, else the self times, else the call tree, else the percentiles, else the callable table. Warnings speak of the
/// whole log, whatever part of it is selected. A log that holds no invocation, only spans of foreign producers (ext.), is
/// shown by those.
#[derive(clap::Args)]
pub(crate) struct Timing {
    #[command(flatten)]
    logs: Logs,
    #[command(flatten)]
    selection: Selection,
    /// Prove that of each two neighbouring runs the second was bound while the first was on the device; exit 2 if not
    #[arg(long)]
    assert_native_overlap: bool,
    /// With --assert-native-overlap: and that the whole binding was hidden
    #[arg(long, requires = "assert_native_overlap")]
    require_hidden_prepare: bool,
    /// Print the busiest callable's runs one by one
    #[arg(long)]
    rounds_table: bool,
    /// Print the busiest callable's steps over all ranks: which rank is late, by how much, on the host or on the device
    #[arg(long)]
    steps: bool,
    /// Print how long each worker's hand-over takes, from the parent's dispatch to the child's run, and the return
    #[arg(long)]
    dispatches: bool,
    /// Print each callable's call tree with self times, which add up to the root: means over its invocations
    #[arg(long = "self")]
    self_times: bool,
    /// Print each callable's call tree, values the medians over its invocations
    #[arg(long)]
    tree: bool,
    /// Print the task slots: when each was dispatched, how long it took, and the interval between any two
    #[arg(long)]
    slots: bool,
    /// Print the callable table with the percentiles of each stage: p50, p90, p99 by nearest rank, and max
    #[arg(long)]
    percentiles: bool,
    /// Print the spans of foreign producers (ext.) as well, in their own table or tree
    #[arg(long)]
    external: bool,
    /// Write a Chrome trace for Perfetto or chrome://tracing
    #[arg(long, value_name = "FILE")]
    trace_out: Option<PathBuf>,
    /// How the Chrome trace is laid out: a track a thread, or a process an invocation
    #[arg(long, value_name = "LAYOUT", value_enum, default_value = "thread")]
    trace_lanes: TraceLanes,
    /// Write a Chrome trace with a lane for all that runs side by side: threads, pipeline slots, device phases
    #[arg(long, value_name = "FILE")]
    swimlane: Option<PathBuf>,
    /// Draw a chip's cores, schedulers and orchestrators into the swimlane: a chip_swimlane_records.json, or a
    /// directory that holds some, at any depth; may be given several times
    #[arg(long, value_name = "PATH")]
    chip_swimlane_records: Vec<PathBuf>,
    /// Draw what the host did while it bound each run into the swimlane: a host_phase_records.jsonl; may be given
    /// several times
    #[arg(long, value_name = "FILE")]
    host_phase_records: Vec<PathBuf>,
    /// Copy the events of another Chrome trace on the same clock (CLOCK_MONOTONIC) into the pictures, as they are: JSON,
    /// plain, gz or zst; may be given several times
    #[arg(long, value_name = "TRACE.json")]
    merge: Vec<PathBuf>,
    /// Go on reading: what files gain, new host.*.log in directories, standard input to its end
    ///
    /// The view is printed anew whenever it has changed: in place on a terminal, as blocks below a line with the wall
    /// time in a pipe, as one object a line with --json. SIGINT and SIGTERM end it, and so does the end of all input if
    /// that is standard input alone; pictures are written then. Packed files are read once. Exits 0, or 2 if there was no
    /// span.
    #[arg(long, conflicts_with = "assert_native_overlap")]
    follow: bool,
    /// Print the figures as one JSON object on one line
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum TraceLanes {
    Thread,
    Invocation,
}

/// What goes into the pictures besides the log.
struct Additions {
    chip_records: Vec<ChipRecords>,
    host_phases: HostPhases,
    merges: Vec<Merge>,
}

impl Timing {
    pub(crate) fn run(&self, console: &mut Console<'_>) -> anyhow::Result<Exit> {
        for (option, given) in [
            ("--chip-swimlane-records", &self.chip_swimlane_records),
            ("--host-phase-records", &self.host_phase_records),
        ] {
            anyhow::ensure!(
                self.swimlane.is_some() || given.is_empty(),
                "{option} only adds to a picture, so it needs --swimlane"
            );
        }
        anyhow::ensure!(
            self.trace_out.is_some() || self.swimlane.is_some() || self.merge.is_empty(),
            "--merge only adds to a picture, so it needs --trace-out or --swimlane"
        );
        let asked = match self.selection.ask() {
            Ok(asked) => asked,
            Err(sentence) => return refuse(console, self.json, &sentence),
        };
        if self.follow {
            return self.follow(&asked, console);
        }
        let reading = match self.logs.read(self.keep(), console) {
            Ok(reading) => reading,
            Err(sentence) => return refuse(console, self.json, &sentence),
        };
        complain(&reading, &mut console.err);
        if let Some(sentence) = self.logs.unusable(&reading) {
            return refuse(console, self.json, &sentence);
        }
        let (reading, notes) = match asked.apply(reading) {
            Ok(selected) => selected,
            Err(sentence) => return refuse(console, self.json, &sentence),
        };
        notes.iter().for_each(|note| console.err.say(note));
        let mut overlapped_pairs = None;
        if self.assert_native_overlap {
            match reading.trace.native_overlap(self.require_hidden_prepare) {
                Ok(pairs) => overlapped_pairs = Some(pairs.len()),
                Err(why) => {
                    return refuse(console, self.json, &format!("native overlap assertion failed: {why}"));
                }
            }
        }
        let additions = match self.additions(&reading.trace, &mut console.err) {
            Ok(additions) => additions,
            Err(sentence) => return refuse(console, self.json, &sentence),
        };
        let mut out = BufWriter::new(&mut console.out);
        let mut remarks = Vec::new();
        let shown = self.show(&mut out, &reading, overlapped_pairs, &mut remarks);
        remarks.iter().for_each(|remark| console.err.say(remark));
        // A reader that went away does not want the figures; the pictures are written all the same.
        match shown.and_then(|()| out.flush()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(error.into()),
            _ => {}
        }
        drop(out);
        self.write_pictures(console, &reading.trace, &additions)?;
        Ok(Exit::Fine)
    }

    /// Shows a log that grows, and draws it once it has been followed to its end.
    fn follow(&self, asked: &Asked<'_>, console: &mut Console<'_>) -> anyhow::Result<Exit> {
        let follower = match self.logs.follow(self.keep()) {
            Ok(follower) => follower,
            Err(sentence) => return refuse(console, self.json, &sentence),
        };
        let show = |out: &mut Vec<u8>, reading: Reading, remarks: &mut Vec<String>, when: When| {
            remarks.extend(complaints(&reading));
            let (reading, notes) = match asked.apply(reading) {
                Ok(selected) => selected,
                Err(sentence) => return Ok(Err(sentence)),
            };
            // How many are left out may change with every view.
            remarks.extend(notes.into_iter().filter(|_| when == When::Last));
            self.show(out, &reading, None, remarks).map(|()| Ok(reading))
        };
        let form = if self.json { Form::Lines } else { Form::Blocks };
        let reading = match follow(follower, form, console, show)? {
            Ok(reading) => reading,
            Err(sentence) => return refuse(console, self.json, &sentence),
        };
        if let Some(sentence) = self.logs.unusable(&reading) {
            complain(&reading, &mut console.err);
            return refuse(console, self.json, &sentence);
        }
        match self.additions(&reading.trace, &mut console.err) {
            Ok(additions) => self.write_pictures(console, &reading.trace, &additions)?,
            Err(sentence) => return refuse(console, self.json, &sentence),
        }
        Ok(Exit::Fine)
    }

    /// Prints the view that was asked for. What is to be said beside it is added to `remarks`.
    fn show(
        &self,
        out: &mut impl Write,
        reading: &Reading,
        overlapped_pairs: Option<usize>,
        remarks: &mut Vec<String>,
    ) -> io::Result<()> {
        let mut remark = |text: &str| remarks.push(format!("note: {text}"));
        let trace = &reading.trace;
        let callables = match self.percentiles || self.json {
            true => trace.callables_with_ranks(),
            false => trace.callables(),
        };
        if callables.is_empty() {
            remark("only scheduler and external spans, no invocations");
        }
        let rounds = if self.rounds_table && !self.json { trace.rounds(&callables) } else { None };
        let tie: Vec<u64> = decode_tie(&callables).iter().map(|callable| callable.hid).collect();
        if !tie.is_empty() && overlapped_pairs.is_none() {
            let shown = match &rounds {
                Some(rounds) => format!("; the rounds are those of hid={:x}", rounds.hid),
                None => String::new(),
            };
            let hids = selection::list(&tie);
            remark(&format!("{hids} are invoked equally often; none of them is called decode{shown}"));
        }
        if self.json {
            let Timing { steps, dispatches, self_times, .. } = *self;
            json::timing(out, reading, &callables, json::Wanted { steps, dispatches, self_times })?;
        } else if let Some(pairs) = overlapped_pairs {
            writeln!(out, "Native overlap verified for {pairs} adjacent dispatch pair(s).")?;
        } else if self.rounds_table {
            match &rounds {
                Some(rounds) => text::rounds(out, rounds)?,
                None => remark("no runs, so there are no rounds"),
            }
        } else if self.steps {
            match trace.steps(&callables).first() {
                Some(busiest) => steps::text(out, trace, busiest)?,
                None => remark("no callable ran more than once on a rank, so there are no steps"),
            }
        } else if self.dispatches {
            dispatches::text(out, trace, &trace.dispatches())?;
        } else if self.slots {
            if !text::task_slots(out, trace, &callables)? {
                remark("no task slots: an orchestration tags a task with set_task_timing_slot");
            }
        } else if self.self_times {
            self_time::text(out, trace, &callables)?;
        } else if self.tree {
            text::tree(out, trace, &callables)?;
        } else if self.percentiles {
            text::percentiles(out, &callables)?;
        } else {
            text::table(out, &callables)?;
        }
        let is_about_callables =
            overlapped_pairs.is_none() && !(self.rounds_table || self.steps || self.dispatches || self.slots);
        if !self.json && is_about_callables && (self.external || callables.is_empty()) {
            let producers = trace.producers();
            if self.tree {
                text::external_tree(out, &producers)?;
            } else {
                text::external_table(out, &producers)?;
            }
        }
        Ok(())
    }

    /// Reads what else goes into the pictures, and says what is wrong with it. The error is a sentence.
    fn additions(&self, trace: &Trace, err: &mut Stream<'_>) -> Result<Additions, String> {
        let chip_records = read_chip_records(&self.chip_swimlane_records, err)?;
        let merges = self.merge.iter().map(Merge::open).collect::<Result<Vec<Merge>, String>>()?;
        let passes = read_host_phase_records(&self.host_phase_records, err)?;
        let host_phases = self.swimlane.as_ref().map(|_| trace.host_phases(&passes)).unwrap_or_default();
        let warnings = swimlane::warnings(trace, &chip_records).into_iter().chain(host_phases.warnings());
        let warnings = warnings.chain(merges.iter().filter_map(|merge| merge.warning(trace)));
        warnings.for_each(|warning| err.say(warning));
        Ok(Additions { chip_records, host_phases, merges })
    }

    fn write_pictures(
        &self,
        console: &mut Console<'_>,
        trace: &Trace,
        Additions { chip_records, host_phases, merges }: &Additions,
    ) -> anyhow::Result<()> {
        let mut messages = Vec::new();
        if let Some(path) = &self.trace_out {
            let lanes = match self.trace_lanes {
                TraceLanes::Thread => chrome::Lanes::Thread,
                TraceLanes::Invocation => chrome::Lanes::Invocation,
            };
            let spans = write_file(path, |out| chrome::write_merged(out, trace, lanes, merges))?;
            messages.push(format!("Wrote Chrome trace: {} ({spans} spans)", path.display()));
        }
        if let Some(path) = &self.swimlane {
            let write = |out: &mut _| swimlane::write_merged(out, trace, chip_records, host_phases, merges);
            let written = write_file(path, write)?;
            let swimlane::Written { host_spans, device_spans_unaligned, .. } = written;
            let more: String = [
                (written.bind_phases, "bind phases"),
                (written.host_phase_records, "host phase records"),
                (written.chip_records, "chip swimlane records"),
            ]
            .into_iter()
            .filter(|&(count, _)| count > 0)
            .map(|(count, of)| format!(", {count} {of}"))
            .collect();
            messages.push(format!(
                "Wrote host swimlane: {} ({host_spans} host spans, {device_spans_unaligned} unaligned device \
                 spans{more})",
                path.display()
            ));
        }
        for merge in merges {
            messages.push(format!("Merged {} events of {}", merge.events(), merge.path().display()));
        }
        for message in messages {
            // Standard output holds one JSON object and nothing else.
            if self.json { console.err.say(message) } else { writeln!(console.out, "{message}")? }
        }
        console.out.flush()?;
        Ok(())
    }
}

impl Timing {
    /// The tables are about durations alone; the pictures, the proof, the steps and the dispatches need what the spans say
    /// of themselves.
    fn keep(&self) -> Keep {
        let attributes = self.assert_native_overlap
            || self.steps
            || self.dispatches
            || self.trace_out.is_some()
            || self.swimlane.is_some();
        if attributes { Keep::All } else { Keep::Durations }
    }
}

pub(crate) fn write_file<T>(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<T>,
) -> anyhow::Result<T> {
    let failed = || format!("cannot write {}", path.display());
    let mut out = BufWriter::new(File::create(path).with_context(failed)?);
    let written = write(&mut out).with_context(failed)?;
    out.flush().with_context(failed)?;
    Ok(written)
}

/// Reads all chip swimlane records that paths stand for. A file that holds something else is said and left out; the
/// error is a sentence.
pub(crate) fn read_chip_records(paths: &[PathBuf], err: &mut Stream<'_>) -> Result<Vec<ChipRecords>, String> {
    let mut records = Vec::new();
    for path in paths {
        let mut files = Vec::new();
        let failed = |error: io::Error| format!("{} cannot be read: {error}", path.display());
        find_chip_records(path, &mut files).map_err(failed)?;
        if files.is_empty() {
            return Err(format!(
                "{} is a directory but holds no {}",
                path.display(),
                chip_records::FILE_NAME
            ));
        }
        files.sort();
        for file in files {
            let bytes =
                fs::read(&file).map_err(|error| format!("{} cannot be read: {error}", file.display()))?;
            match ChipRecords::parse(file.display().to_string(), &bytes) {
                Ok(file) => records.push(file),
                Err(error) => err
                    .say(format_args!("warning: {} {error}; it is left out of the picture", file.display())),
            }
        }
    }
    Ok(records)
}

/// Reads the passes of all files. What is no pass or no record is said; the error is a sentence.
fn read_host_phase_records(paths: &[PathBuf], err: &mut Stream<'_>) -> Result<Vec<HostPass>, String> {
    let mut passes = Vec::new();
    for path in paths {
        let bytes = fs::read(path).map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
        let file = HostPhaseFile::parse(&bytes);
        file.warning(&path.display().to_string()).into_iter().for_each(|warning| err.say(warning));
        passes.extend(file.passes);
    }
    Ok(passes)
}

/// A path itself unless it is a directory, else what it holds, at any depth. Links to directories are not followed.
fn find_chip_records(path: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    if !fs::metadata(path)?.is_dir() {
        files.push(path.to_owned());
        return Ok(());
    }
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            find_chip_records(&entry.path(), files)?;
        } else if entry.file_name() == chip_records::FILE_NAME {
            files.push(entry.path());
        }
    }
    Ok(())
}
