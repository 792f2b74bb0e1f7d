//! Code on the simulated AICPU logs through the device's boundary, and its records are the host logger's: same
//! envelope, same threshold while it changes, same file. One test: the log belongs to the process.

#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

#[path = "support/log.rs"]
mod log;
mod support;

use simpler_host_log::Threshold;
use simpler_kernel_abi::{ArgUse, CoreKind};
use simpler_runtime::RunArgs;
use support::*;

/// Speaks on every level, through the functions with a va_list and through the macros.
const SPEAKS: &str = r#"
#include "submit.h"
#include <simpler/device_log.h>
#define SAY(level)                                                        \
    static void say_##level(const char *fmt, ...) {                       \
        va_list arguments;                                                \
        va_start(arguments, fmt);                                         \
        dev_vlog_##level("aicpu_code", fmt, arguments);                   \
        va_end(arguments);                                                \
    }
SAY(error)
SAY(warn)
SAY(timing)
SAY(info)
SAY(debug)
int aicpu_orchestration_entry(const SimplerOrchestrationApi *api, SimplerRun *run, const SimplerChipArgs *args) {
    (void)api; (void)run;
    unsigned turn = (unsigned)args->scalars[0];
    say_error("turn %u by function %d", turn, 40);
    say_warn("turn %u by function %d", turn, 30);
    say_timing("turn %u by function %d", turn, 25);
    say_info("turn %u by function %d", turn, 20);
    say_debug("turn %u by function %d", turn, 10);
    LOG_ERROR("turn %u by macro", turn);
    LOG_INFO("turn %u by macro", turn);
    return 0;
}
"#;

#[test]
fn device_records_are_the_host_loggers_at_its_threshold_of_the_moment() {
    let directory = tempfile::tempdir().unwrap();
    log::start(directory.path());
    let kernels = [("add", CoreKind::Aiv, ADD_KERNEL)];
    let image = image("speaks", SPEAKS, &kernels);
    let thresholds = [Threshold::DEBUG, Threshold::WARN, Threshold::TIMING, Threshold::INFO, Threshold::NUL];
    for (arm, (profile, graph_runtime)) in arms().into_iter().enumerate() {
        let chip = chip_of((profile, graph_runtime));
        let id = chip.register(&image).unwrap();
        for (turn, threshold) in thresholds.into_iter().enumerate() {
            simpler_host_log::set_threshold(threshold);
            let mut x = vec![0.0; 4];
            let number = arm * 10 + turn;
            let args = RunArgs {
                tensors: vec![host(&mut x, ArgUse::InOut)],
                scalars: vec![number as u64],
                ..RunArgs::default()
            };
            run(&chip, id, &args).unwrap();
        }
    }
    let text = log::text(directory.path());
    for arm in 0..arms().len() {
        for (turn, threshold) in thresholds.into_iter().enumerate() {
            let number = arm * 10 + turn;
            let heard = |level: i32| threshold != Threshold::NUL && level >= threshold.get();
            for (level, word) in [(40, "ERROR"), (30, "WARN"), (25, "TIMING"), (20, "INFO"), (10, "DEBUG")] {
                let line = format!("][{word}] aicpu_code: turn {number} by function {level}");
                let count = text.lines().filter(|said| said.ends_with(&line)).count();
                assert_eq!(count, usize::from(heard(level)), "{line} at {threshold:?}");
            }
            let by_macro = format!("turn {number} by macro");
            let count = text.lines().filter(|said| said.ends_with(&by_macro)).count();
            assert_eq!(count, usize::from(heard(40)) + usize::from(heard(20)), "{by_macro} at {threshold:?}");
        }
    }
    // Whole records of the host's: the monotonic clock in front, the thread that spoke.
    let spoken = text.lines().filter(|line| line.contains("] aicpu_code: "));
    assert!(spoken.clone().count() > 0 && spoken.clone().all(|line| line.starts_with("[mono_ns=")), "{text}");
}
