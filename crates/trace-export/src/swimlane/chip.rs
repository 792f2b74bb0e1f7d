//! The records of chips: a process each for the cores, the schedulers and the orchestrators of a chip's process.
//!
//! What the host did of a graph that it has built stands beside them, in ns of the host's clock.
//!
//! Any other record holds cycles. The log relates them to the host's clock by the anchors of the same invocation, else the
//! file does by its own; a file without either is left out. So is, unsaid, that of a run that was not selected.

use super::{Item, Picture, Process, What};
use crate::chip_records::{ChipRecords, HostPhase, Kernel, Kind, SchedulerPhase, Scope, Submit, Window};
use crate::writer::Json;
use rustc_hash::FxHashMap;
use simpler_trace_model::{DeviceClock, Trace};
use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// One record of a file.
#[derive(Clone, Copy)]
pub(super) enum Record<'a> {
    Kernel(&'a Kernel),
    /// With the kernel that ran in it, if its record is there.
    Window(&'a Window, Option<&'a Kernel>),
    Phase(&'a SchedulerPhase),
    Submit(&'a Submit),
    Scope(&'a Scope),
    Host(&'a HostPhase),
}

/// When a record starts and ends, on the clock that it holds.
#[derive(Clone, Copy)]
enum Times {
    Cycles(u64, u64),
    /// Of the host.
    Ns(i64, i64),
}

/// Which processes a chip has, in the order in which they stand.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Unit {
    Host,
    Orchestrator,
    Scheduler,
    Core,
}

/// Whose anchors placed a file's records.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Clock {
    Log,
    File,
}

/// What became of a file.
pub(super) struct Placed<'a> {
    file: &'a ChipRecords,
    clock: Option<Clock>,
    drawn: usize,
    error_ns: Option<i64>,
}

/// What has to be said before the picture: records that were lost, or cannot be drawn.
pub fn warnings(trace: &Trace, records: &[ChipRecords]) -> Vec<String> {
    let mut out = Vec::new();
    if records.is_empty() {
        return out;
    }
    let clocks = Clocks::new(trace);
    let mut without: Vec<&ChipRecords> = Vec::new();
    for file in records {
        let ChipRecords { source, .. } = file;
        if is_left_out(trace, file) {
            continue;
        }
        if let Some(dropped) = file.dropped().filter(|&dropped| dropped > 0) {
            out.push(format!(
                "warning: {source}: {dropped} chip swimlane record(s) were dropped on the device; the picture lacks \
                 them"
            ));
        }
        if file.adds_up() == Some(false) {
            let kinds: Vec<String> = file
                .totals()
                .filter(|(_, totals)| !totals.add_up())
                .map(|(kind, totals)| {
                    format!(" {kind} {} + {} of {}", totals.collected, totals.dropped, totals.total)
                })
                .collect();
            out.push(format!(
                "warning: {source}: collected and dropped chip swimlane records do not add up to those made:{}",
                if kinds.is_empty() { " the file says so".to_owned() } else { kinds.join(",") }
            ));
        }
        let backwards = entries(file).iter().filter(|entry| entry.record.times().is_none()).count();
        if backwards > 0 {
            out.push(format!(
                "warning: {source}: {backwards} chip swimlane record(s) end before they start and are left out of \
                 the picture"
            ));
        }
        if clocks.of(file).is_none() {
            without.push(file);
        }
    }
    if let [first, ..] = without.as_slice() {
        out.push(format!(
            "warning: {} chip swimlane records file(s) are left out of the picture: neither the log nor the file \
             relates the device's clock to the host's, first in {}",
            without.len(),
            first.source
        ));
    }
    out
}

/// The tracks of one process, by number.
type Tracks<'a> = BTreeMap<u64, (String, Vec<Item<'a>>)>;

/// Draws the records of all files that have a clock.
pub(super) fn place<'a>(
    trace: &'a Trace,
    records: &'a [ChipRecords],
    picture: &mut Picture<'a>,
) -> Vec<Placed<'a>> {
    let clocks = Clocks::new(trace);
    let mut processes: BTreeMap<(Option<u64>, Unit), Tracks<'a>> = BTreeMap::new();
    let mut files = Vec::new();
    let mut homes = 0_u32;
    for file in records {
        let mut placed = Placed { file, clock: None, drawn: 0, error_ns: None };
        if let Some((whose, clock)) = clocks.of(file) {
            placed.clock = Some(whose);
            let known = whose == Clock::Log || file.brackets_known();
            for Entry { unit, number, window, record } in entries(file) {
                let Some(times) = record.times() else { continue };
                let (start, end, error_ns) = match times {
                    Times::Cycles(start, end) => {
                        let (start, end) = (clock.moment(start), clock.moment(end));
                        (start.host_ns, end.host_ns, known.then_some(start.error_ns.max(end.error_ns)))
                    }
                    Times::Ns(start, end) => (start, end, Some(0)),
                };
                let item = Item {
                    start,
                    end: end.max(start),
                    home: window.map(|window| homes.wrapping_add(window)),
                    what: What::Record { record, file, error_ns },
                };
                let tracks = processes.entry((file.file.metadata.pid, unit)).or_default();
                let track = tracks.entry(number);
                track.or_insert_with(|| (track_name(file, unit, number), Vec::new())).1.push(item);
                placed.drawn += 1;
                placed.error_ns = placed.error_ns.max(error_ns);
            }
            homes = homes.wrapping_add(file.file.aicpu_tasks.len() as u32);
        }
        files.push(placed);
    }
    for ((chip, unit), tracks) in processes {
        let pid = picture.pids.next();
        let errors: Option<Vec<i64>> =
            tracks.values().flat_map(|(_, items)| items).map(|item| item.what.error_ns()).collect();
        let bound = match errors {
            Some(errors) => format!("±{} ns", errors.into_iter().max().unwrap_or(0)),
            None => "an unknown bound".to_owned(),
        };
        let units = match unit {
            Unit::Host => "host_build_graph",
            Unit::Orchestrator => "AICPU orchestrators",
            Unit::Scheduler => "AICPU schedulers",
            Unit::Core => "AICore",
        };
        let of = chip.map_or_else(String::new, |pid| format!(" (pid={pid})"));
        let name = format!("{units}{of}, placed to {bound}");
        picture.processes.push(Process { pid, name, beside: chip });
        for (name, mut items) in tracks.into_values() {
            items.sort_by_key(|item| (item.start, Reverse(item.end), item.what.depth(trace)));
            picture.draw(pid, None, &name, items);
        }
    }
    files
}

/// Says of each file what became of it.
pub(super) fn write_files<W: Write>(json: &mut Json<W>, files: &[Placed<'_>]) -> io::Result<()> {
    if files.is_empty() {
        return Ok(());
    }
    json.key("chipSwimlaneRecords")?;
    json.array(|json| {
        files.iter().try_for_each(|Placed { file, clock, drawn, error_ns }| {
            json.object(|json| {
                json.key("source")?;
                json.text(&file.source)?;
                integer(json, "pid", file.file.metadata.pid)?;
                integer(json, "inv", file.file.metadata.inv)?;
                integer(json, "level", file.file.level)?;
                integer(json, "records", Some(file.count()))?;
                integer(json, "drawn", Some(*drawn))?;
                integer(json, "dropped", file.dropped())?;
                if let Some(adds_up) = file.adds_up() {
                    json.key("adds_up")?;
                    json.boolean(adds_up)?;
                }
                if let Some(clock) = clock {
                    json.key("clock")?;
                    json.text(match clock {
                        Clock::Log => "log",
                        Clock::File => "file",
                    })?;
                }
                integer(json, "error_ns", *error_ns)
            })
        })
    })
}

/// The clocks that the log has for runs.
struct Clocks<'a> {
    trace: &'a Trace,
    /// Invocations by pid and inv.
    invocations: FxHashMap<(u64, u64), Vec<usize>>,
}

impl<'a> Clocks<'a> {
    fn new(trace: &'a Trace) -> Clocks<'a> {
        let mut invocations: FxHashMap<(u64, u64), Vec<usize>> = FxHashMap::default();
        for (number, invocation) in trace.invocations().iter().enumerate() {
            invocations.entry((trace.life_of(invocation).pid, invocation.inv)).or_default().push(number);
        }
        Clocks { trace, invocations }
    }

    fn of(&self, file: &'a ChipRecords) -> Option<(Clock, DeviceClock<'a>)> {
        if is_left_out(self.trace, file) {
            return None;
        }
        let key = file.file.metadata.pid.zip(file.file.metadata.inv);
        let runs = key.and_then(|key| self.invocations.get(&key)).map_or(&[][..], Vec::as_slice);
        let mut clocks: Vec<DeviceClock<'a>> =
            runs.iter().filter_map(|&run| self.trace.device_clock(&self.trace.invocations()[run])).collect();
        if clocks.len() > 1 {
            // A process or a number that was used again: the run is the one whose anchors are around the records.
            let first = entries(file).iter().find_map(|entry| match entry.record.times()? {
                Times::Cycles(start, _) => Some(start),
                Times::Ns(..) => None,
            });
            let first = first.unwrap_or(0);
            clocks.sort_by_key(|clock| clock.moment(first).error_ns);
        }
        let log = clocks.into_iter().next().map(|clock| (Clock::Log, clock));
        log.or_else(|| Some((Clock::File, DeviceClock::new(&file.anchors)?)))
    }
}

/// Whether a file is of a run that was not selected.
fn is_left_out(trace: &Trace, file: &ChipRecords) -> bool {
    let run = file.file.metadata.pid.zip(file.file.metadata.inv);
    run.is_some_and(|(pid, inv)| trace.is_left_out(pid, inv))
}

/// A record and the track that it belongs on.
struct Entry<'a> {
    unit: Unit,
    /// Of the core or of the AICPU thread.
    number: u64,
    /// Which window of its file a window is, or a kernel lies in: the two stay together.
    window: Option<u32>,
    record: Record<'a>,
}

/// All records of a file.
fn entries(file: &ChipRecords) -> Vec<Entry<'_>> {
    let mut entries = Vec::with_capacity(file.count());
    let file = &file.file;
    let core = |number, window, record| Entry { unit: Unit::Core, number, window, record };
    let mut windows: Vec<&Window> = file.aicpu_tasks.iter().collect();
    windows.sort_by_key(|window| (window.core, window.reg, window.dispatch));
    let mut kernels: Vec<&Kernel> = file.aicore_tasks.iter().collect();
    kernels.sort_by_key(|kernel| (kernel.core, kernel.reg, kernel.start));
    let mut kernels = kernels.into_iter().peekable();
    for (at, window) in windows.into_iter().enumerate() {
        let at = Some(at as u32);
        let mut inside = None;
        let up_to = (window.core, window.reg, window.finish);
        while let Some(kernel) = kernels.next_if(|kernel| (kernel.core, kernel.reg, kernel.start) <= up_to) {
            let joins =
                (kernel.core, kernel.reg) == (window.core, window.reg) && kernel.start >= window.dispatch;
            entries.push(core(kernel.core, at.filter(|_| joins), Record::Kernel(kernel)));
            if joins {
                inside = Some(kernel);
                break;
            }
        }
        entries.push(core(window.core, at, Record::Window(window, inside)));
    }
    entries.extend(kernels.map(|kernel| core(kernel.core, None, Record::Kernel(kernel))));
    let of_thread = |unit, number: usize, record| Entry { unit, number: number as u64, window: None, record };
    for (number, phases) in file.aicpu_scheduler_phases.iter().enumerate() {
        entries.extend(phases.iter().map(|phase| of_thread(Unit::Scheduler, number, Record::Phase(phase))));
    }
    for (number, submits) in file.aicpu_orchestrator_phases.iter().enumerate() {
        entries.extend(
            submits.iter().map(|submit| of_thread(Unit::Orchestrator, number, Record::Submit(submit))),
        );
    }
    for (number, scopes) in file.named_scopes.iter().enumerate() {
        entries
            .extend(scopes.iter().map(|scope| of_thread(Unit::Orchestrator, number, Record::Scope(scope))));
    }
    let of_host = std::iter::once(&file.host_device_uploads).chain(&file.host_orchestrator_phases);
    for (number, phases) in of_host.enumerate() {
        entries.extend(phases.iter().map(|phase| of_thread(Unit::Host, number, Record::Host(phase))));
    }
    entries
}

fn track_name(file: &ChipRecords, unit: Unit, number: u64) -> String {
    match unit {
        Unit::Host if number == 0 => "uploads".to_owned(),
        Unit::Host => format!("orchestration {}", number - 1),
        Unit::Orchestrator => format!("orchestrator {number}"),
        Unit::Scheduler => format!("scheduler {number}"),
        Unit::Core => {
            format!("{} {number}", file.file.metadata.core_type(number).as_deref().unwrap_or("core"))
        }
    }
}

impl<'a> Record<'a> {
    pub(super) fn name(self) -> Cow<'a, str> {
        match self {
            Record::Kernel(kernel) => format!("task {}", kernel.token).into(),
            Record::Window(_, Some(kernel)) => format!("task {}: dispatch to finish", kernel.token).into(),
            Record::Window(window, None) => format!("reg {}: dispatch to finish", window.reg).into(),
            Record::Phase(SchedulerPhase { kind: Kind::Name(name), .. }) => Cow::Borrowed(name),
            Record::Phase(SchedulerPhase { kind: Kind::Number(kind), .. }) => format!("kind_{kind}").into(),
            Record::Submit(Submit { task_id: Some(task), .. }) => format!("submit task {task}").into(),
            Record::Submit(_) => "submit".into(),
            Record::Host(HostPhase { task_id: Some(task), .. }) => format!("submit task {task}").into(),
            Record::Host(phase) => Cow::Borrowed(phase.phase.as_deref().unwrap_or("host")),
            Record::Scope(scope) => Cow::Borrowed(&scope.name),
        }
    }

    /// From when to when; `None` if it ends before it starts, as one that never ended does.
    fn times(self) -> Option<Times> {
        let (start, end) = match self {
            Record::Host(phase) => {
                let HostPhase { start_host_ns: start, end_host_ns: end, .. } = *phase;
                return (start <= end).then_some(Times::Ns(start, end));
            }
            Record::Kernel(kernel) => (kernel.start, kernel.end),
            Record::Window(window, _) => (window.dispatch, window.finish),
            Record::Phase(phase) => (phase.start_cycles, phase.end_cycles),
            Record::Submit(submit) => (submit.start_cycles, submit.end_cycles),
            Record::Scope(scope) => (scope.start_cycles, scope.end_cycles),
        };
        (start <= end).then_some(Times::Cycles(start, end))
    }

    /// Of records of a track that cover the same time, the outer one has less.
    pub(super) fn depth(self) -> u64 {
        match self {
            Record::Window(..) | Record::Phase(_) => 0,
            Record::Kernel(_) => 1,
            Record::Scope(scope) => scope.depth.unwrap_or(0),
            Record::Submit(_) | Record::Host(_) => u64::MAX,
        }
    }

    /// Its fields.
    pub(super) fn write<W: Write>(self, json: &mut Json<W>, file: &ChipRecords) -> io::Result<()> {
        integer(json, "inv", file.file.metadata.inv)?;
        let (start, end) = match self {
            Record::Kernel(kernel) => {
                integer(json, "task", Some(kernel.token))?;
                integer(json, "reg", Some(kernel.reg))?;
                integer(json, "receive_to_start_cycles", Some(kernel.receive_to_start))?;
                (kernel.start, kernel.end)
            }
            Record::Window(window, kernel) => {
                integer(json, "task", kernel.map(|kernel| kernel.token))?;
                integer(json, "reg", Some(window.reg))?;
                integer(json, "scheduler", file.file.metadata.thread_of(window.core))?;
                (window.dispatch, window.finish)
            }
            Record::Phase(phase) => {
                integer(json, "loop_iter", phase.loop_iter)?;
                integer(json, "tasks_processed", phase.tasks_processed)?;
                integer(json, "pop_hit", phase.pop_hit)?;
                integer(json, "pop_miss", phase.pop_miss)?;
                integer(json, "task", phase.task_id)?;
                integers(json, "shared_at_start", phase.shared_at_start.as_deref())?;
                integers(json, "shared_at_end", phase.shared_at_end.as_deref())?;
                (phase.start_cycles, phase.end_cycles)
            }
            Record::Submit(submit) => {
                integer(json, "submit_idx", submit.submit_idx)?;
                integer(json, "task", submit.task_id)?;
                (submit.start_cycles, submit.end_cycles)
            }
            Record::Host(phase) => {
                integer(json, "submit_idx", phase.submit_idx)?;
                integer(json, "task", phase.task_id)?;
                return integer(json, "bytes", phase.detail);
            }
            Record::Scope(scope) => {
                if let Some(hash) = &scope.hash {
                    json.key("hash")?;
                    json.text(hash)?;
                }
                integer(json, "depth", scope.depth)?;
                (scope.start_cycles, scope.end_cycles)
            }
        };
        integer(json, "start_cycles", Some(start))?;
        integer(json, "end_cycles", Some(end))
    }
}

/// A key with its number, if there is one.
fn integer<W: Write>(
    json: &mut Json<W>,
    key: &'static str,
    value: Option<impl itoa::Integer>,
) -> io::Result<()> {
    let Some(value) = value else { return Ok(()) };
    json.key(key)?;
    json.integer(value)
}

fn integers<W: Write>(json: &mut Json<W>, key: &'static str, values: Option<&[i64]>) -> io::Result<()> {
    let Some(values) = values else { return Ok(()) };
    json.key(key)?;
    json.array(|json| values.iter().try_for_each(|&value| json.integer(value)))
}
