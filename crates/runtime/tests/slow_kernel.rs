//! A kernel that does not return for long after its run has failed: said in the log, and no more than that. One test: the
//! log belongs to the process.

#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

#[path = "support/log.rs"]
mod log;
mod support;

use std::time::Duration;

use simpler_kernel_abi::{ArgUse, CoreKind};
use simpler_runtime::{RunArgs, RuntimeConfig};
use support::*;

/// One task for as many milliseconds as the first scalar says.
const ONE: &str = r#"
#include "submit.h"
int aicpu_orchestration_entry(const SimplerOrchestrationApi *api, SimplerRun *run, const SimplerChipArgs *args) {
    SimplerTensor x = args->tensors[0];
    SimplerTaskArg a[] = {{&x, SIMPLER_INOUT}};
    SimplerTask task = task_of(a, 1);
    task.aiv0 = 0;
    task.scalars = args->scalars;
    task.scalar_count = 1;
    return api->submit_task(run, &task) < 0;
}
"#;

#[test]
fn a_kernel_that_outstays_its_run_is_named_in_the_log_and_the_chip_goes_on_when_it_returns() {
    let directory = tempfile::tempdir().unwrap();
    log::start(directory.path());
    let scheduler_timeout = Duration::from_millis(60);
    let chip = chip(RuntimeConfig { limits: small(), scheduler_timeout, ..RuntimeConfig::default() });
    let id = chip.register(&image("one", ONE, &[("slow", CoreKind::Aiv, SLEEP_KERNEL)])).unwrap();
    let mut x = vec![0.0; 4];
    let args = |ms, x: &mut [f32]| RunArgs {
        tensors: vec![host(x, ArgUse::InOut)],
        scalars: vec![ms],
        ..RunArgs::default()
    };
    let error = run(&chip, id, &args(900, &mut x)).unwrap_err();
    assert_eq!(error.code, -100, "{error}");
    let text = log::text(directory.path());
    let said: Vec<&str> = text.lines().filter(|line| line.contains("still running 60 ms")).collect();
    assert_eq!(said.len(), 1, "{text}");
    assert!(said[0].contains("task 0 (slow) on core "), "{}", said[0]);
    run(&chip, id, &args(0, &mut x)).unwrap();
}
