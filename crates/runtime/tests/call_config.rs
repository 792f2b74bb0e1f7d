//! What a run chooses for itself: how many AICPU threads. What is recorded of it is in `swimlane.rs`.

#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use simpler_kernel_abi::{ArgUse, CoreKind};
use simpler_runtime::{CallConfig, RunArgs};
use support::*;

/// scalars[0] sums in a row of layers as wide as the chip.
const SUMS: &str = r#"
#include "submit.h"
int aicpu_orchestration_entry(const SimplerOrchestrationApi *api, SimplerRun *run, const SimplerChipArgs *args) {
    for (uint64_t i = 0; i < args->scalars[0]; i++) {
        SimplerTensor y = view(&args->tensors[0], i % 40, 1);
        SimplerTaskArg a[] = {{&y, SIMPLER_INPUT}, {&y, SIMPLER_INPUT}, {&y, SIMPLER_INOUT}};
        SimplerTask task = task_of(a, 3);
        if (i % 3) task.aiv0 = 0; else task.aic = 1;
        if (api->submit_task(run, &task) < 0) return 1;
    }
    return 0;
}
"#;

#[test]
fn a_run_works_with_as_many_threads_as_it_asks_for() {
    let kernels = [("add", CoreKind::Aiv, ADD_KERNEL), ("add_cube", CoreKind::Aic, ADD_KERNEL)];
    let image = image("sums", SUMS, &kernels);
    for arm in arms() {
        let threads = arm.0.aicpu_logical;
        let chip = chip_of(arm);
        let id = chip.register(&image).unwrap();
        for round in 0..20 {
            // From call to call as it likes.
            let aicpu_threads = [None, Some(2), Some(threads), Some(3)][round % 4];
            let config = CallConfig { aicpu_threads, ..CallConfig::default() };
            let mut y = vec![1.0; 40];
            let tensors = vec![host(&mut y, ArgUse::InOut)];
            run(&chip, id, &RunArgs { tensors, scalars: vec![120], config }).unwrap();
            assert_eq!(y, [8.0; 40], "{aicpu_threads:?}");
        }
        for wrong in [0, 1, threads + 1] {
            let config = CallConfig { aicpu_threads: Some(wrong), ..CallConfig::default() };
            let error = run(&chip, id, &RunArgs { config, ..RunArgs::default() }).unwrap_err();
            assert_eq!(error.code, -5, "{error}");
            assert!(error.text.contains(&format!("a run on this platform has 2 to {threads}")), "{error}");
        }
    }
}
