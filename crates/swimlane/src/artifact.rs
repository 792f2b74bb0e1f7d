//! `chip_swimlane_records.json`: a run's records as one JSON object (RUNTIME 6.2).
//!
//! Keys and rows come in a fixed order, a row on a line of its own, so that equal runs give equal files. Times
//! are readings of the device counter, those of the host's own work ns of CLOCK_MONOTONIC. What is this crate's own addition: `pid`, `inv` and `records` in the
//! metadata, and `named_scopes`; hashes are strings, since JSON readers lose integers beyond 2^53.

use std::format;
use std::io::{self, Write};
use std::vec::Vec;

use simpler_kernel_abi::CoreKind;

use crate::drain::Collected;
use crate::layout::SwimlaneLayout;
use crate::level::Level;
use crate::names::PhaseNames;
use crate::record::{RecordKind, SchedDetail, SchedKind, SchedPhase};

/// The file's name in the output folder.
pub const ARTIFACT_FILE: &str = "chip_swimlane_records.json";

/// One moment on both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockAnchor {
    /// The device counter, in cycles.
    pub device_cycles: u64,
    /// CLOCK_MONOTONIC, in ns.
    pub host_monotonic_ns: u64,
    /// By how much the latter may be wrong, in ns.
    pub half_ns: u64,
}

/// What the host did of a graph that it has built, on CLOCK_MONOTONIC.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostOrchestration {
    /// In the order of the submits.
    pub submits: Vec<HostSubmit>,
    /// In the order of the copies.
    pub uploads: Vec<HostUpload>,
    /// Tasks of the graph: as many submits are to be there.
    pub tasks: u64,
}

/// The orchestration's submit of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostSubmit {
    /// The task.
    pub task_id: u64,
    /// Start, in ns.
    pub start_ns: u64,
    /// End, in ns.
    pub end_ns: u64,
}

/// A copy of a part of the graph to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostUpload {
    /// How much.
    pub bytes: u64,
    /// Start, in ns.
    pub start_ns: u64,
    /// End, in ns.
    pub end_ns: u64,
}

/// What the records do not say themselves.
#[derive(Clone, Copy, Debug)]
pub struct Metadata<'a> {
    /// What was recorded.
    pub level: Level,
    /// The process.
    pub pid: u32,
    /// The invocation, as in the log.
    pub inv: u64,
    /// Frequency of the device counter in Hz.
    pub clock_freq_hz: u64,
    /// The kind of each core.
    pub core_types: &'a [CoreKind],
    /// The AICPU thread that dispatched to each core; None for a core that no thread attached.
    pub core_to_thread: &'a [Option<u32>],
    /// In the order in which they were read; two or more show how far the clocks drift.
    pub clock_anchors: &'a [ClockAnchor],
    /// Whose CLOCK_MONOTONIC the host's times are: the same for all processes of a boot, if it is known.
    pub host_clock_domain_id: Option<&'a str>,
    /// What the host did, where it builds the graph and that was recorded.
    pub host: Option<&'a HostOrchestration>,
}

/// Writes the artifact.
///
/// # Errors
///
/// Those of `out`.
pub fn write_artifact(
    out: impl Write,
    metadata: &Metadata<'_>,
    collected: &Collected,
    names: &PhaseNames,
) -> io::Result<()> {
    let mut out = io::BufWriter::new(out);
    let records = &collected.records;
    write!(out, "{{\n\"level\": {},\n\"metadata\": ", metadata.level as u32)?;
    write_metadata(&mut out, metadata, collected)?;

    let tasks = in_order(&records.aicore_tasks);
    write_key(&mut out, RecordKind::AicoreTask)?;
    write_rows(&mut out, tasks, |out, (core, task)| {
        let (token, reg, wait) = (task.token, task.reg_task_id, task.receive_to_start);
        write!(out, "[{core}, {token}, {reg}, {}, {}, {wait}]", task.start, task.end)
    })?;
    let tasks = in_order(&records.aicpu_tasks);
    write_key(&mut out, RecordKind::AicpuTask)?;
    write_rows(&mut out, tasks, |out, (core, task)| {
        write!(out, "[{core}, {}, {}, {}]", task.reg_task_id, task.dispatch, task.finish)
    })?;

    write_key(&mut out, RecordKind::SchedPhase)?;
    write_rows(&mut out, &records.sched_phases, |out, phases| write_rows(out, phases, write_sched_phase))?;
    write_key(&mut out, RecordKind::OrchPhase)?;
    write_rows(&mut out, &records.orch_phases, |out, phases| {
        write_rows(out, phases, |out, phase| {
            write!(out, "{{\"submit_idx\": {}, \"task_id\": {}, ", phase.submit_idx, phase.task_id)?;
            write!(out, "\"start_cycles\": {}, \"end_cycles\": {}}}", phase.start, phase.end)
        })
    })?;
    write_key(&mut out, RecordKind::NamedScope)?;
    write_rows(&mut out, &records.named_scopes, |out, scopes| {
        write_rows(out, scopes, |out, scope| {
            out.write_all(b"{\"name\": ")?;
            write_text(out, &format!("{}", names.label(scope.name_hash)))?;
            write!(out, ", \"hash\": \"{:016x}\", ", scope.name_hash)?;
            write!(out, "\"start_cycles\": {}, \"end_cycles\": {}, ", scope.start, scope.end)?;
            write!(out, "\"depth\": {}}}", scope.depth)
        })
    })?;
    if let Some(host) = metadata.host {
        // One lane: one thread orchestrates.
        out.write_all(b",\n\"host_orchestrator_phases\": ")?;
        write_rows(&mut out, [&host.submits], |out, submits| {
            write_rows(out, submits.iter().enumerate(), |out, (index, submit)| {
                let HostSubmit { task_id, start_ns, end_ns } = submit;
                write!(out, "{{\"submit_idx\": {index}, \"task_id\": {task_id}, ")?;
                write!(out, "\"start_host_ns\": {start_ns}, \"end_host_ns\": {end_ns}}}")
            })
        })?;
        out.write_all(b",\n\"host_device_uploads\": ")?;
        write_rows(&mut out, &host.uploads, |out, HostUpload { bytes, start_ns, end_ns }| {
            write!(out, "{{\"phase\": \"graph_upload\", \"start_host_ns\": {start_ns}, ")?;
            write!(out, "\"end_host_ns\": {end_ns}, \"detail\": {bytes}}}")
        })?;
    }
    out.write_all(b"\n}\n")?;
    out.flush()
}

impl<'a> Metadata<'a> {
    /// The metadata of a run with this layout, without anchors and owners.
    pub const fn new(layout: &SwimlaneLayout, clock_freq_hz: u64, core_types: &'a [CoreKind]) -> Self {
        Self {
            level: layout.level(),
            pid: 0,
            inv: 0,
            clock_freq_hz,
            core_types,
            core_to_thread: &[],
            clock_anchors: &[],
            host_clock_domain_id: None,
            host: None,
        }
    }
}

fn write_metadata(out: &mut impl Write, metadata: &Metadata<'_>, collected: &Collected) -> io::Result<()> {
    let Metadata { pid, inv, clock_freq_hz, core_types, .. } = metadata;
    write!(out, "{{\n\"pid\": {pid},\n\"inv\": {inv},\n\"clock_freq_hz\": {clock_freq_hz},\n")?;
    write!(out, "\"num_cores\": {},\n\"core_types\": ", core_types.len())?;
    write_list(out, *core_types, |out, kind| {
        out.write_all(match kind {
            CoreKind::Aic => b"\"aic\"",
            CoreKind::Aiv => b"\"aiv\"",
        })
    })?;
    out.write_all(b",\n\"core_to_thread\": ")?;
    write_list(out, metadata.core_to_thread, |out, thread| match thread {
        Some(thread) => write!(out, "{thread}"),
        None => out.write_all(b"null"),
    })?;
    out.write_all(b",\n\"clock_anchors\": ")?;
    write_list(out, metadata.clock_anchors, |out, anchor| {
        let ClockAnchor { device_cycles, host_monotonic_ns, half_ns } = anchor;
        write!(out, "{{\"device_cycles\": {device_cycles}, \"host_monotonic_ns\": {host_monotonic_ns}, ")?;
        write!(out, "\"half_ns\": {half_ns}}}")
    })?;
    if let Some(id) = metadata.host_clock_domain_id {
        out.write_all(b",\n\"host_clock_domain_id\": ")?;
        write_text(out, id)?;
    }
    if let Some(host) = metadata.host {
        write_host_capture(out, host)?;
    }
    let reconciliation = &collected.reconciliation;
    write!(out, ",\n\"records\": {{\n\"is_exact\": {}", reconciliation.is_exact())?;
    for kind in RecordKind::ALL {
        let totals = reconciliation.kind(kind);
        write!(out, ",\n\"{}\": {{\"collected\": {}, ", kind.name(), totals.collected)?;
        write!(out, "\"dropped\": {}, \"total\": {}}}", totals.dropped, totals.total)?;
    }
    out.write_all(b"\n}\n}")
}

/// Whose clock the submits are on, where they begin, and whether all of them are there.
fn write_host_capture(out: &mut impl Write, host: &HostOrchestration) -> io::Result<()> {
    let recorded = host.submits.len() as u64;
    let (status, error) = match recorded == host.tasks {
        true => ("complete", "null"),
        false => ("incomplete", "\"record_count_mismatch\""),
    };
    out.write_all(
        b",\n\"orchestrator_source\": \"host\",\n\"orchestrator_clock_domain\": \"host_monotonic_ns\"",
    )?;
    if let Some(first) = host.submits.first() {
        write!(out, ",\n\"host_orchestration_origin_ns\": {}", first.start_ns)?;
    }
    write!(out, ",\n\"host_capture\": {{\"status\": \"{status}\", \"expected_records\": {}, ", host.tasks)?;
    write!(out, "\"recorded_records\": {recorded}, \"dropped_records\": 0, \"error\": {error}}}")
}

fn write_sched_phase(out: &mut impl Write, phase: &SchedPhase) -> io::Result<()> {
    let kind = SchedKind::from_number(phase.kind);
    match kind {
        Some(kind) => write!(out, "{{\"kind\": \"{}\", ", kind.name())?,
        None => write!(out, "{{\"kind\": \"kind_{}\", ", phase.kind)?,
    }
    write!(out, "\"start_cycles\": {}, \"end_cycles\": {}, ", phase.start, phase.end)?;
    write!(out, "\"loop_iter\": {}, \"tasks_processed\": {}, ", phase.loop_iter, phase.tasks)?;
    match kind.map_or(SchedDetail::None, SchedKind::detail) {
        SchedDetail::None => {}
        SchedDetail::Pops => {
            let [hit, miss] = phase.detail;
            write!(out, "\"pop_hit\": {hit}, \"pop_miss\": {miss}, ")?;
        }
        SchedDetail::Task => write!(out, "\"task_id\": {}, ", phase.task_id())?,
    }
    let ([a, b, c], [d, e, f]) = (phase.depths_at_start, phase.depths_at_end);
    write!(out, "\"shared_at_start\": [{a}, {b}, {c}], \"shared_at_end\": [{d}, {e}, {f}]}}")
}

/// The records of all pools, each with its pool's index.
fn in_order<R>(pools: &[std::vec::Vec<R>]) -> impl Iterator<Item = (usize, &R)> {
    pools.iter().enumerate().flat_map(|(index, pool)| pool.iter().map(move |record| (index, record)))
}

fn write_key(out: &mut impl Write, kind: RecordKind) -> io::Result<()> {
    write!(out, ",\n\"{}\": ", kind.name())
}

fn write_text(out: &mut impl Write, text: &str) -> io::Result<()> {
    Ok(serde_json::to_writer(out, text)?)
}

/// A list, an item a line.
fn write_rows<W: Write, T>(
    out: &mut W,
    items: impl IntoIterator<Item = T>,
    write_item: impl FnMut(&mut W, T) -> io::Result<()>,
) -> io::Result<()> {
    write_between(out, items, (b"[\n", b",\n", b"\n]"), write_item)
}

/// A list on one line.
fn write_list<W: Write, T>(
    out: &mut W,
    items: impl IntoIterator<Item = T>,
    write_item: impl FnMut(&mut W, T) -> io::Result<()>,
) -> io::Result<()> {
    write_between(out, items, (b"[", b", ", b"]"), write_item)
}

fn write_between<W: Write, T>(
    out: &mut W,
    items: impl IntoIterator<Item = T>,
    (first, between, last): (&[u8], &[u8], &[u8]),
    mut write_item: impl FnMut(&mut W, T) -> io::Result<()>,
) -> io::Result<()> {
    let mut items = items.into_iter().peekable();
    if items.peek().is_none() {
        return out.write_all(b"[]");
    }
    out.write_all(first)?;
    while let Some(item) = items.next() {
        write_item(out, item)?;
        out.write_all(if items.peek().is_some() { between } else { last })?;
    }
    Ok(())
}
