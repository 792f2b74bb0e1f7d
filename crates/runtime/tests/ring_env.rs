//! Ring sizes from the environment. One test: it belongs to the process.

#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use simpler_runtime::{CallConfig, ChipRuntime, RINGS, RingSizes, RunArgs, RuntimeConfig};
use support::*;

/// As many tasks as the first scalar says, outside any scope.
const DUMMIES: &str = r#"
#include "submit.h"
int aicpu_orchestration_entry(const SimplerOrchestrationApi *api, SimplerRun *run, const SimplerChipArgs *args) {
    SimplerTask task = simpler_task(0, 0);
    for (uint64_t i = 0; i < args->scalars[0]; i++) if (api->submit_dummy_task(run, &task) < 0) return 1;
    return 0;
}
"#;

#[test]
fn the_environment_chooses_before_the_program_and_a_run_before_the_environment() {
    let set = |value: &str| {
        // SAFETY: nothing else in this process touches the environment.
        unsafe { std::env::set_var("PTO2_RING_TASK_WINDOW", value) };
    };
    set("8,64");
    let error = ChipRuntime::new(npu(), RuntimeConfig::default()).map(drop).unwrap_err();
    assert!(error.code == -5 && error.text.contains("PTO2_RING_TASK_WINDOW=8,64"), "{error}");
    set("8");
    let chip = chip(RuntimeConfig { limits: small(), ..RuntimeConfig::default() });
    let id = chip.register(&image("dummies", DUMMIES, &[])).unwrap();
    let tasks = |count, rings| {
        let config = CallConfig { rings, ..CallConfig::default() };
        run(&chip, id, &RunArgs { tensors: vec![], scalars: vec![count], config })
    };
    let as_it_is = [RingSizes::default(); RINGS];
    tasks(8, as_it_is).unwrap();
    let error = tasks(9, as_it_is).unwrap_err();
    assert!(error.code == -1 && error.text.contains("it has 8 tasks (PTO2_RING_TASK_WINDOW)"), "{error}");
    tasks(9, [RingSizes { window: Some(16), ..RingSizes::default() }; RINGS]).unwrap();
}
