//! Device spans follow `SIMPLER_DEVICE_STRACE_ENABLE`, of which only exactly "0" means off, and the log's threshold. One
//! test: the environment and the log belong to the process.

#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

#[path = "support/log.rs"]
mod log;
mod support;

use simpler_runtime::RunArgs;
use support::*;

#[test]
fn a_muted_threshold_turns_device_spans_off_and_a_gate_of_two_zeros_does_not() {
    // SAFETY: this is the only test of its process, and no other thread runs yet.
    unsafe { std::env::set_var("SIMPLER_DEVICE_STRACE_ENABLE", "00") };
    let directory = tempfile::tempdir().unwrap();
    log::start(directory.path());
    let chip = small_chip();
    let id = chip.register(&image("empty", EMPTY, &[])).unwrap();
    run(&chip, id, &RunArgs::default()).unwrap();
    let spans = log::spans(directory.path());
    assert!(spans.iter().any(|span| span.name.ends_with(".device_wall")), "{spans:?}");

    simpler_host_log::set_threshold(simpler_host_log::Threshold::WARN);
    run(&chip, id, &RunArgs::default()).unwrap();
    assert_eq!(log::spans(directory.path()), spans);
}
