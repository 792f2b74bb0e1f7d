//! What the lines of a log add up to: which records landed, and what the log says it lost.
#![allow(dead_code, reason = "each test file uses its own part")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail where it stands")]

use simpler_host_log::{Counts, DropReason};
use simpler_record_format::{ClockAnchor, DropReport, parse_clock_anchor, parse_drop_report};

/// The numbers behind ` id=` in `lines`, in their order, each there once.
pub(crate) fn ids(lines: &[String]) -> Vec<u64> {
    let ids: Vec<u64> = lines.iter().filter_map(|line| id(line)).collect();
    let mut sorted = ids.clone();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(sorted.len(), ids.len(), "none is written twice");
    ids
}

/// The number behind ` id=` at the end of a line.
pub(crate) fn id(line: &str) -> Option<u64> {
    line.rsplit_once(" id=").map(|(_, id)| id.parse().unwrap())
}

/// The drop reports among `lines`, in their order.
pub(crate) fn drop_reports(lines: &[String]) -> Vec<DropReport> {
    let body = |line: &String| line.find("[HOSTLOG_DROPS]").map(|at| format!("{}\n", &line[at..]));
    lines.iter().filter_map(body).map(|body| parse_drop_report(body.as_bytes()).unwrap()).collect()
}

/// The clock anchors among `lines`, in their order.
pub(crate) fn anchors(lines: &[String]) -> Vec<ClockAnchor> {
    lines.iter().filter_map(|line| parse_clock_anchor(format!("{line}\n").as_bytes())).collect()
}

/// The losses by reason, which must sum to the total.
pub(crate) fn losses(counts: &Counts) -> [u64; 4] {
    assert_eq!(counts.dropped, counts.by_reason.iter().sum(), "{counts:?}");
    counts.by_reason
}

/// How many records were lost for `reason`, and none for another.
pub(crate) fn only(reason: DropReason, counts: &Counts) -> u64 {
    let losses = losses(counts);
    assert_eq!(losses[reason as usize], counts.dropped, "{counts:?}");
    counts.dropped
}
