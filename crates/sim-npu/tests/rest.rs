//! A chip with nothing to do sleeps. Alone in its process: its threads are told by their names.

#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

use std::time::Duration;

use simpler_platform::Platform;
use simpler_relax::{Deadline, EventCount, Relax};

mod support;

use support::{LIMIT, program};

/// The AICPU threads of the chip; it has at least one for the cores besides.
const AICPU_THREADS: u64 = 6;

/// How often the chip's threads have gone to sleep so far, and how many they are.
fn sleeps() -> (u64, u64) {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let status = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("status")).ok());
    let field = |status: &str, key: &str| {
        status.lines().find_map(|line| Some(line.strip_prefix(key)?.trim().to_owned()))
    };
    status.filter(|status| field(status, "Name:").is_some_and(|name| name.starts_with("ai"))).fold(
        (0, 0),
        |(sleeps, threads), status| {
            let switches = field(&status, "voluntary_ctxt_switches:").unwrap();
            (sleeps + switches.parse::<u64>().unwrap(), threads + 1)
        },
    )
}

fn wait(time: Duration) {
    let (nobody, deadline, mut relax) = (EventCount::new(), Deadline::after(time), Relax::new());
    while !deadline.passed() {
        relax.wait(&nobody, nobody.epoch());
    }
}

#[test]
fn a_chip_with_nothing_to_do_sleeps() {
    let chip = support::chip();
    for launches in [0, 1] {
        for _ in 0..launches {
            assert_eq!(chip.launch(program(|_, _| 0)).unwrap().wait(), 0);
        }
        let deadline = Deadline::after(LIMIT);
        loop {
            let (before, threads) = sleeps();
            wait(Duration::from_millis(300));
            let woken = sleeps().0 - before;
            // Each may look once; at ten milliseconds a look it would be thirty times. One that was just started may not
            // have its name yet.
            if threads > AICPU_THREADS && woken <= threads {
                break;
            }
            assert!(!deadline.passed(), "{threads} threads slept {woken} times in 300 ms");
        }
    }
}
