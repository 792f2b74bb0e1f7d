//! Dispatches and the runs that came of them, as text and as JSON.

use crate::json::statistics;
use crate::steps::{optional, process};
use crate::text::{MISSING, process_names, us_of};
use crate::writer::Json;
use simpler_trace_model::{Dispatch, Dispatches, Link, Stats, Trace};
use std::io::{self, Write};

/// By who handed over to whom, how long that took and how long the return did; then what could not be joined.
///
/// # Errors
/// As `out`.
pub fn text(out: &mut (impl Write + ?Sized), trace: &Trace, of: &Dispatches) -> io::Result<()> {
    let names = process_names(trace);
    let name = |life: u32| &*names[life as usize];
    writeln!(out, "dispatches — {} joined to the run that came of them", of.joined.len())?;
    if !of.links.is_empty() {
        let width = |life: fn(&Link) -> u32| {
            of.links.iter().map(|link| name(life(link)).chars().count()).max().unwrap_or(0).max(8)
        };
        let (parents, children) = (width(|link| link.parent), width(|link| link.child));
        write!(out, "  {:<parents$}  {:>6}  {:<children$}", "Parent", "Worker", "Child")?;
        for what in ["Hand-over", "Return"] {
            write!(out, "  {:>6}  {:>15}  {:>10}  {:>10}", "n", format!("{what} (us)"), "p50", "max")?;
        }
        writeln!(out)?;
        for link in &of.links {
            let worker = link.worker_id.map_or(MISSING.to_owned(), |worker| worker.to_string());
            write!(out, "  {:<parents$}  {worker:>6}  {:<children$}", name(link.parent), name(link.child))?;
            for stats in [Some(&link.hand_over), link.returned.as_ref()] {
                latencies(out, stats)?;
            }
            writeln!(out)?;
        }
    }
    for (n, what) in [
        (of.unmatched_dispatches, "dispatch(es) that no run came of"),
        (of.unmatched_roots, "run(s) that no dispatch belongs to"),
        (of.ambiguous_dispatches, "dispatch(es) that cannot be told from others"),
        (of.ambiguous_roots, "run(s) that several dispatches may belong to"),
        (of.dispatches_without_identity, "dispatch(es) without run_id and dispatch_id"),
        (of.roots_without_identity, "run(s) without run_id and dispatch_id"),
    ] {
        if n > 0 {
            writeln!(out, "  {n} {what}")?;
        }
    }
    writeln!(out)
}

fn latencies(out: &mut (impl Write + ?Sized), stats: Option<&Stats>) -> io::Result<()> {
    let n = stats.map_or(0, |stats| stats.n);
    let [mean, median, max] = match stats {
        Some(stats) => {
            let median = stats
                .ranks
                .map_or_else(|| MISSING.to_owned(), |ranks| format!("{:.1}", ranks.median_ns / 1000.0));
            [us_of(stats.mean_ns), median, us_of(stats.max_ns)]
        }
        None => [MISSING; 3].map(str::to_owned),
    };
    write!(out, "  {n:>6}  {mean:>15}  {median:>10}  {max:>10}")
}

/// The value of `dispatches` in the figures.
pub(crate) fn json<W: Write>(json: &mut Json<W>, trace: &Trace, of: &Dispatches) -> io::Result<()> {
    json.object(|json| {
        for (key, value) in [
            ("joined", of.joined.len()),
            ("unmatched_dispatches", of.unmatched_dispatches),
            ("unmatched_roots", of.unmatched_roots),
            ("ambiguous_dispatches", of.ambiguous_dispatches),
            ("ambiguous_roots", of.ambiguous_roots),
            ("dispatches_without_identity", of.dispatches_without_identity),
            ("roots_without_identity", of.roots_without_identity),
        ] {
            json.key(key)?;
            json.integer(value)?;
        }
        json.key("workers")?;
        json.array(|json| of.links.iter().try_for_each(|one| link(json, trace, one)))?;
        json.key("dispatches")?;
        json.array(|json| of.joined.iter().try_for_each(|one| dispatch(json, trace, one)))
    })
}

fn link<W: Write>(json: &mut Json<W>, trace: &Trace, link: &Link) -> io::Result<()> {
    json.object(|json| {
        process(json, trace, "parent_", link.parent)?;
        optional(json, "worker_id", link.worker_id)?;
        process(json, trace, "child_", link.child)?;
        for (prefix, stats) in [("hand_over_", Some(&link.hand_over)), ("return_", link.returned.as_ref())] {
            let Some(stats) = stats else { continue };
            json.key_text(&format!("{prefix}n"))?;
            json.integer(stats.n)?;
            statistics(json, prefix, stats)?;
        }
        Ok(())
    })
}

fn dispatch<W: Write>(json: &mut Json<W>, trace: &Trace, of: &Dispatch) -> io::Result<()> {
    json.object(|json| {
        process(json, trace, "parent_", of.parent)?;
        process(json, trace, "child_", of.child)?;
        json.key("run_id")?;
        json.integer(of.run_id)?;
        json.key("dispatch_id")?;
        json.integer(of.dispatch_id)?;
        json.key("inv")?;
        json.integer(of.inv)?;
        json.key("hid")?;
        json.hex(of.hid)?;
        for (key, value) in [
            ("worker_id", of.worker_id),
            ("task_slot", of.task_slot),
            ("ts_ns", Some(of.start_ns)),
            ("hand_over_ns", Some(of.hand_over_ns)),
            ("activate_ns", of.activate_ns),
            ("root_ns", Some(of.root_ns)),
            ("return_ns", of.return_ns),
        ] {
            optional(json, key, value)?;
        }
        Ok(())
    })
}
