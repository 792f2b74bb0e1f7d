//! Waiting for processes to come and go.

#![allow(dead_code, reason = "shared by test programs that each use a part")]

use std::time::Duration;

use simpler_relax::{Deadline, EventCount, Relax};

/// Longer than anything in these tests takes on a loaded machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// Waits until something that has a name is so.
pub(crate) fn until(what: &str, condition: impl FnMut() -> bool) {
    wait_until(LIMIT, &format!("{what} did not happen within {LIMIT:?}"), condition);
}

/// Waits until something is so, or fails with `otherwise`.
pub(crate) fn wait_until(limit: Duration, otherwise: &str, mut is_so: impl FnMut() -> bool) {
    let (deadline, never_rung) = (Deadline::after(limit), EventCount::new());
    let mut relax = Relax::new();
    while !is_so() {
        assert!(!deadline.passed(), "{otherwise}");
        relax.wait(&never_rung, never_rung.epoch());
    }
}

/// Whether a process lives.
pub(crate) fn is_alive(pid: i32) -> bool {
    // A zombie of another parent still has a folder, so what it says counts.
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit_once(')').is_some_and(|(_, rest)| rest.starts_with(" Z")))
}

/// The processes that a process has forked and not collected.
pub(crate) fn children_of(pid: i32) -> Vec<i32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    text.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}
