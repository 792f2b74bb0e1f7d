//! What has to be said before any number: the log's own losses and doubts, a sentence each.

use crate::build::Trace;
use rustc_hash::FxHashMap;

/// The warnings about a trace, in a fixed order; empty for a log that is whole.
pub fn warnings(trace: &Trace) -> Vec<String> {
    let mut out = Vec::new();
    anchors(trace, &mut out);
    let counts = trace.counts();
    if counts.damaged_anchors > 0 {
        out.push(format!(
            "warning: {} [CLOCK_ANCHOR] record(s) are damaged; the wall time of their processes is unknown or \
             that of another anchor",
            counts.damaged_anchors
        ));
    }
    let incomplete = counts.torn + counts.malformed;
    if incomplete > 0 {
        out.push(format!(
            "warning: {incomplete} of {} [STRACE] records are incomplete and are excluded from the timing below",
            counts.heads
        ));
    }
    if counts.unknown_version > 0 {
        out.push(format!(
            "warning: {} [STRACE] record(s) of a version other than 1 are excluded from the timing below",
            counts.unknown_version
        ));
    }
    if counts.duplicates > 0 {
        out.push(format!(
            "warning: {} [STRACE] record(s) repeat an earlier one and count once",
            counts.duplicates
        ));
    }
    if counts.impossible_times > 0 {
        out.push(format!(
            "warning: {} [STRACE] record(s) claim times that lie after the record itself",
            counts.impossible_times
        ));
    }
    if counts.unreadable > 0 {
        out.push(format!(
            "warning: {} source(s) could not be read to their end; the timing below is computed from an \
             incomplete log",
            counts.unreadable
        ));
    }
    hosts(trace, &mut out);
    drops(trace, &mut out);
    if counts.damaged_drop_reports > 0 {
        out.push(format!(
            "warning: {} [HOSTLOG_DROPS] record(s) are damaged; more host-log records may be lost than is said \
             here",
            counts.damaged_drop_reports
        ));
    }
    let lost = trace.missing_roots();
    if lost > 0 {
        out.push(format!(
            "warning: {lost} of {} invocation(s) have no root record; their whole duration is missing below",
            trace.invocations().len()
        ));
    }
    out
}

fn anchors(trace: &Trace, out: &mut Vec<String>) {
    let mut by_pid: FxHashMap<(u64, Option<u64>), Vec<i128>> = FxHashMap::default();
    let mut pids = Vec::new();
    for life in trace.lives() {
        let Some(anchor) = life.anchor else { continue };
        let offsets = by_pid.entry((life.pid, life.host)).or_default();
        if offsets.is_empty() {
            pids.push((life.pid, life.host));
        }
        offsets.push(i128::from(anchor.wall_ns) - i128::from(anchor.mono_ns));
    }
    pids.sort_unstable();
    for (pid, host) in pids {
        let offsets = &by_pid[&(pid, host)];
        if let (Some(low), Some(high), true) = (offsets.iter().min(), offsets.iter().max(), offsets.len() > 1)
        {
            out.push(format!(
                "warning: multiple [CLOCK_ANCHOR] records found for pid {pid} ({} records); using each from \
                 where it stands (their wall clocks disagree by {:.6} s)",
                offsets.len(),
                (high - low) as f64 / 1e9
            ));
        }
    }
    let without = trace.pids_without_anchor();
    if !without.is_empty() {
        let list: Vec<String> = without.iter().map(u64::to_string).collect();
        out.push(format!(
            "warning: no [CLOCK_ANCHOR] record for pid(s) {} that emitted spans; their wall time is unknown, \
             check that every input is complete",
            list.join(", ")
        ));
    }
}

/// How far the monotonic clocks of two hosts may be apart, by their wall clocks, before they are taken for two clocks:
/// wall clocks that are kept in step differ by less.
const ONE_CLOCK_NS: i128 = 1_000_000_000;

fn hosts(trace: &Trace, out: &mut Vec<String>) {
    let damaged = trace.counts().damaged_host_identities;
    if damaged > 0 {
        out.push(format!(
            "warning: {damaged} [HOST_IDENTITY] record(s) are damaged; processes of different hosts may be taken for one"
        ));
    }
    let offset = |host: u64| {
        let life = trace.lives().iter().find(|life| life.host == Some(host) && life.anchor.is_some())?;
        let anchor = life.anchor?;
        Some(i128::from(anchor.wall_ns) - i128::from(anchor.mono_ns))
    };
    let offsets: Vec<i128> = trace.hosts().iter().filter_map(|host| offset(host.id)).collect();
    if let (Some(low), Some(high)) = (offsets.iter().min(), offsets.iter().max())
        && high - low > ONE_CLOCK_NS
    {
        out.push(format!(
            "warning: the log holds {} hosts whose monotonic clocks are up to {:.6} s apart; durations are right, but \
             pictures show each host on its own clock",
            trace.hosts().len(),
            (high - low) as f64 / 1e9
        ));
    }
}

fn drops(trace: &Trace, out: &mut Vec<String>) {
    let mut lossy: Vec<_> = trace.lives().iter().filter_map(|life| Some((life.pid, life.drops?))).collect();
    lossy.sort_by_key(|&(pid, _)| pid);
    for (pid, drops) in lossy {
        let [queue_full, claim_exhausted, output_failed, not_admitted] = drops.by_reason;
        if drops.total > 0 {
            out.push(format!(
                "warning: pid {pid} dropped {} host-log record(s) before they reached the destination \
                 (queue_full={queue_full} claim_exhausted={claim_exhausted} output_failed={output_failed} \
                 not_admitted={not_admitted}); the timing below is computed from an incomplete log",
                drops.total
            ));
        }
        if !drops.consistent() {
            out.push(format!(
                "warning: pid {pid}'s drop reasons do not add up to its total of {}",
                drops.total
            ));
        }
    }
}
