//! The stable interface for programs: one object on one line. Keys are snake_case and end in their unit;
//! they are only ever added to. A value that the log does not hold has no key.

use crate::writer::Json;
use crate::{dispatches, self_time, steps};
use simpler_trace_ingest::Reading;
use simpler_trace_model::{Callable, Facts, Named, Producer, Ranks, Stats, TaskSlots, Trace, decode_tie};
use std::io::{self, Write};

/// How many complaints are listed; all are counted.
pub const COMPLAINTS_MAX: usize = 10;

/// Which figures are wanted besides those that are always there.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted {
    /// `steps`, of all callables that have any.
    pub steps: bool,
    /// `dispatches`.
    pub dispatches: bool,
    /// `self_times` of each callable.
    pub self_times: bool,
}

/// What `simpler timing --json` prints. The callables should have their ranks.
///
/// # Errors
/// As `out`.
pub fn timing(
    out: &mut (impl Write + ?Sized),
    reading: &Reading,
    callables: &[Callable],
    wanted: Wanted,
) -> io::Result<()> {
    let mut json = Json::new(&mut *out);
    json.object(|json| {
        json.key("callables")?;
        json.array(|json| {
            callables.iter().try_for_each(|one| callable(json, &reading.trace, one, wanted.self_times))
        })?;
        let tie = decode_tie(callables);
        if !tie.is_empty() {
            json.key("decode_tie")?;
            json.array(|json| tie.iter().try_for_each(|one| hid(json, one.hid)))?;
        }
        let producers = reading.trace.producers();
        if !producers.is_empty() {
            json.key("external")?;
            json.array(|json| producers.iter().try_for_each(|one| producer(json, one)))?;
        }
        if wanted.steps {
            json.key("steps")?;
            steps::json(json, &reading.trace, &reading.trace.steps(callables))?;
        }
        if wanted.dispatches {
            json.key("dispatches")?;
            dispatches::json(json, &reading.trace, &reading.trace.dispatches())?;
        }
        if reading.trace.is_selected() {
            json.key("selected_invocations")?;
            json.integer(reading.trace.invocations().len())?;
        }
        json.key("integrity")?;
        json.object(|json| integrity(json, reading, reading.trace.is_lossy()))
    })?;
    json.end_line()
}

/// What `simpler check --json` prints; `error` is the sentence if the input is unusable.
///
/// # Errors
/// As `out`.
pub fn check(
    out: &mut (impl Write + ?Sized),
    reading: &Reading,
    facts: &Facts,
    error: Option<&str>,
) -> io::Result<()> {
    let mut json = Json::new(&mut *out);
    json.object(|json| {
        integrity(json, reading, facts.lossy)?;
        for (key, value) in [
            ("missing_root", facts.missing_root),
            ("orphans", facts.orphans),
            ("callables", facts.callables),
            ("device_spans", facts.device_spans),
            ("external", facts.external),
            ("scheduler", facts.scheduler),
            ("prewarm", facts.prewarm),
            ("rounds", facts.rounds),
            ("incomplete_rounds", facts.incomplete_rounds),
            ("device_n", facts.device_n),
            ("warm_runs", facts.warm_runs),
            ("lanes", facts.lanes),
        ] {
            json.key(key)?;
            json.integer(value)?;
        }
        json.key("root_n")?;
        json.integer(facts.root.map_or(0, |root| root.n))?;
        if let Some(root) = facts.root {
            statistics(json, "root_", &root)?;
        }
        for (key, value) in [
            ("effective_us", facts.effective_us),
            ("slot_interval_us", facts.slot_interval_us),
            ("device_slack_us", facts.device_slack_us),
            ("skew_us", facts.skew_us),
            ("min_sum_us", facts.min_sum_us),
        ] {
            if let Some(value) = value {
                json.key(key)?;
                json.float(value)?;
            }
        }
        if !facts.effective_us_by_inv.is_empty() {
            json.key("effective_us_by_inv")?;
            json.object(|json| {
                facts.effective_us_by_inv.iter().try_for_each(|(inv, us)| {
                    json.key_text(&inv.to_string())?;
                    json.float(*us)
                })
            })?;
        }
        if let Some(pid) = facts.straggler_pid {
            json.key("straggler_pid")?;
            json.integer(pid)?;
        }
        if let Some(ts) = facts.host_min_ts {
            json.key("host_min_ts")?;
            json.integer(ts)?;
        }
        json.key("wall_ns")?;
        json.array(|json| facts.wall_ns.iter().try_for_each(|ns| json.integer(*ns)))?;
        json.key("names")?;
        json.array(|json| facts.names.iter().try_for_each(|name| json.text(name)))?;
        if facts.names.len() < facts.spans {
            json.key("names_cut")?;
            json.boolean(true)?;
        }
        complaints(json, reading)?;
        if let Some(error) = error {
            json.key("error")?;
            json.text(error)?;
        }
        Ok(())
    })?;
    json.end_line()
}

/// What can be said where there is nothing to read at all.
///
/// # Errors
/// As `out`.
pub fn unusable(out: &mut (impl Write + ?Sized), error: &str) -> io::Result<()> {
    let mut json = Json::new(&mut *out);
    json.object(|json| {
        json.key("error")?;
        json.text(error)
    })?;
    json.end_line()
}

/// How far the whole log can be trusted, whatever part of it was selected.
fn integrity<W: Write>(json: &mut Json<W>, reading: &Reading, lossy: bool) -> io::Result<()> {
    let trace = &reading.trace;
    let counts = trace.counts();
    let anchors = trace.lives().iter().filter(|life| life.anchor.is_some()).count();
    for (key, value) in [
        ("bytes", reading.bytes),
        ("heads", counts.heads),
        ("spans", trace.spans_in_log() as u64),
        ("torn", counts.torn),
        ("malformed", counts.malformed),
        ("unknown_version", counts.unknown_version),
        ("joined_lines", counts.joined_lines),
        ("duplicates", counts.duplicates),
        ("truncated_records", counts.truncated_records),
        ("truncated_fields", counts.truncated_fields),
        ("quoted", counts.quoted),
        ("impossible_times", counts.impossible_times),
        ("damaged_anchors", counts.damaged_anchors),
        ("damaged_host_identities", counts.damaged_host_identities),
        ("damaged_drop_reports", counts.damaged_drop_reports),
        ("unreadable", counts.unreadable),
        ("dropped", trace.dropped()),
        ("anchors", anchors as u64),
        ("process_lives", trace.lives().len() as u64),
        ("invocations", trace.invocations_in_log() as u64),
    ] {
        json.key(key)?;
        json.integer(value)?;
    }
    json.key("pids_without_anchor")?;
    json.array(|json| trace.pids_without_anchor().iter().try_for_each(|pid| json.integer(*pid)))?;
    json.key("hosts")?;
    json.array(|json| {
        trace.hosts().iter().try_for_each(|host| {
            json.object(|json| {
                json.key("id")?;
                // As the log writes it: 64 bits do not fit the numbers of every JSON reader.
                json.text(&format!("{:016x}", host.id))?;
                json.key("name")?;
                json.text(&host.name)
            })
        })
    })?;
    json.key("lossy")?;
    json.boolean(lossy)
}

fn complaints<W: Write>(json: &mut Json<W>, reading: &Reading) -> io::Result<()> {
    json.key("complaint_counts")?;
    json.object(|json| {
        reading.complaints.counts().try_for_each(|(kind, count)| {
            json.key(kind)?;
            json.integer(count)
        })
    })?;
    json.key("complaints")?;
    json.array(|json| {
        reading.complaints.first().iter().take(COMPLAINTS_MAX).try_for_each(|complaint| {
            json.object(|json| {
                json.key("source")?;
                json.text(&complaint.source)?;
                json.key("offset")?;
                json.integer(complaint.offset)?;
                json.key("kind")?;
                json.text(complaint.reason.kind())?;
                json.key("reason")?;
                json.text(&complaint.reason.to_string())
            })
        })
    })
}

fn callable<W: Write>(
    json: &mut Json<W>,
    trace: &Trace,
    callable: &Callable,
    with_self_times: bool,
) -> io::Result<()> {
    json.object(|json| {
        json.key("hid")?;
        hid(json, callable.hid)?;
        json.key("label")?;
        json.text(&callable.display_label())?;
        json.key("invocations")?;
        json.integer(callable.invocations.len())?;
        json.key("missing_root")?;
        json.integer(callable.missing_roots)?;
        json.key("root_name")?;
        json.text(&callable.root_name)?;
        if let Some(root) = callable.roots.first() {
            json.key("root_n")?;
            json.integer(root.stats.n)?;
            statistics(json, "root_", &root.stats)?;
        }
        json.key("stages")?;
        json.array(|json| callable.stages.iter().try_for_each(|one| stage(json, one)))?;
        if let Some(ns) = callable.effective_mean_ns {
            json.key("effective_mean_ns")?;
            json.integer(ns)?;
        }
        if let Some(slots) = trace.task_slots(callable) {
            task_slots(json, &slots)?;
        }
        if let Some(times) = with_self_times.then(|| trace.self_times(callable)).flatten() {
            json.key("self_times")?;
            self_time::json(json, &times)?;
        }
        Ok(())
    })
}

fn task_slots<W: Write>(json: &mut Json<W>, of: &TaskSlots) -> io::Result<()> {
    json.key("task_slots")?;
    json.array(|json| {
        of.slots.iter().try_for_each(|slot| {
            json.object(|json| {
                json.key("slot")?;
                json.integer(slot.slot)?;
                json.key("n")?;
                json.integer(slot.n)?;
                json.key("dispatch_median_ns")?;
                json.float(slot.dispatch_ns)?;
                json.key("dur_median_ns")?;
                json.float(slot.dur_ns)
            })
        })
    })?;
    json.key("slot_intervals")?;
    json.array(|json| {
        of.intervals.iter().try_for_each(|interval| {
            json.object(|json| {
                json.key("from")?;
                json.integer(interval.from)?;
                json.key("to")?;
                json.integer(interval.to)?;
                json.key("n")?;
                json.integer(interval.n)?;
                json.key("median_ns")?;
                json.float(interval.ns)
            })
        })
    })
}

fn producer<W: Write>(json: &mut Json<W>, producer: &Producer) -> io::Result<()> {
    json.object(|json| {
        if let Some(name) = &producer.name {
            json.key("producer")?;
            json.text(name)?;
        }
        json.key("spans")?;
        json.integer(producer.spans)?;
        json.key("names")?;
        json.array(|json| {
            producer.names.iter().try_for_each(|one| {
                json.object(|json| {
                    json.key("name")?;
                    json.text(&one.name)?;
                    json.key("n")?;
                    json.integer(one.stats.n)?;
                    json.key("total_ns")?;
                    json.integer(one.total_ns)?;
                    statistics(json, "", &one.stats)
                })
            })
        })
    })
}

fn stage<W: Write>(json: &mut Json<W>, stage: &Named) -> io::Result<()> {
    json.object(|json| {
        json.key("name")?;
        json.text(&stage.name)?;
        json.key("device")?;
        json.boolean(stage.device)?;
        json.key("n")?;
        json.integer(stage.stats.n)?;
        statistics(json, "", &stage.stats)
    })
}

/// `<prefix>mean_ns` and the rest, in whole ns but for a median between two values. Ranks where they were asked for.
pub(crate) fn statistics<W: Write>(json: &mut Json<W>, prefix: &str, stats: &Stats) -> io::Result<()> {
    let integer = |json: &mut Json<W>, name: &str, value: i64| {
        json.key_text(&format!("{prefix}{name}"))?;
        json.integer(value)
    };
    for (name, value) in [("mean_ns", stats.mean_ns), ("min_ns", stats.min_ns), ("max_ns", stats.max_ns)] {
        integer(json, name, value)?;
    }
    let Some(Ranks { median_ns, p50_ns, p90_ns, p99_ns }) = stats.ranks else { return Ok(()) };
    if median_ns.fract() == 0.0 {
        integer(json, "median_ns", median_ns as i64)?;
    } else {
        json.key_text(&format!("{prefix}median_ns"))?;
        json.float(median_ns)?;
    }
    for (name, value) in [("p50_ns", p50_ns), ("p90_ns", p90_ns), ("p99_ns", p99_ns)] {
        integer(json, name, value)?;
    }
    Ok(())
}

/// A `hid` as the log writes it: 64 bits do not fit the numbers of every JSON reader.
fn hid<W: Write>(json: &mut Json<W>, hid: u64) -> io::Result<()> {
    json.hex(hid)
}
