//! With `SIMPLER_DEVICE_STRACE_ENABLE=0` a run keeps its host spans and has none of the device's. One test: the
//! environment and the log belong to the process.

#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

#[path = "support/log.rs"]
mod log;
mod support;

use simpler_runtime::RunArgs;
use support::*;

#[test]
fn the_gate_turns_every_device_span_off_and_nothing_else() {
    // SAFETY: this is the only test of its process, and no other thread runs yet.
    unsafe { std::env::set_var("SIMPLER_DEVICE_STRACE_ENABLE", "0") };
    let directory = tempfile::tempdir().unwrap();
    log::start(directory.path());
    let gated = small_chip();
    let image = image("empty", EMPTY, &[]);
    let id = gated.register(&image).unwrap();
    run(&gated, id, &RunArgs::default()).unwrap();
    let names = |from: usize| -> Vec<String> {
        log::spans(directory.path()).into_iter().skip(from).map(|span| span.name).collect()
    };
    let host = [
        "simpler_run.bind.args",
        "simpler_run.bind.prebuilt",
        "simpler_run.bind",
        "simpler_run.runner_run",
        "simpler_run.validate",
        "simpler_run",
    ];
    assert_eq!(names(0), host);

    // Read once, for all of the process: a later value is for nobody.
    // SAFETY: the chip's threads do not read the environment.
    unsafe { std::env::set_var("SIMPLER_DEVICE_STRACE_ENABLE", "1") };
    let later = small_chip();
    let id = later.register(&image).unwrap();
    run(&later, id, &RunArgs::default()).unwrap();
    assert_eq!(names(host.len()), host);
}
