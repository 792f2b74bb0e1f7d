//! Runs on the simulated chip: results, arguments, reuse.

#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use simpler_kernel_abi::{ArgUse, CoreKind};
use simpler_runtime::{CallableImage, RunArgs};
use support::*;

/// y = x + x + 1, then y = y + x + 2, … `scalars[0]` tasks long, alternating between the two core kinds.
const CHAIN: &str = r#"
#include "submit.h"
int aicpu_orchestration_config(SimplerOrchestrationConfig *config) {
    config->tensors_min = 2;
    config->scalars_min = 1;
    return 0;
}
int aicpu_orchestration_entry(const SimplerOrchestrationApi *api, SimplerRun *run, const SimplerChipArgs *args) {
    SimplerTensor x = args->tensors[0], y = args->tensors[1], last = x;
    for (uint64_t i = 0; i < args->scalars[0]; i++) {
        int final = i + 1 == args->scalars[0];
        SimplerTensor out = final ? y : fresh(x.shapes[0]);
        SimplerTaskArg a[] = {{&last, SIMPLER_INPUT}, {&x, SIMPLER_INPUT},
                              {&out, final ? SIMPLER_OUTPUT_EXISTING : SIMPLER_OUTPUT}};
        uint64_t extra = i + 1;
        SimplerTask task = task_of(a, 3);
        if (i % 2) task.aic = 1; else task.aiv0 = 0;
        task.scalars = &extra;
        task.scalar_count = 1;
        if (api->submit_task(run, &task) < 0) return 1;
        last = out;
    }
    return 0;
}
"#;

fn chain() -> CallableImage {
    image("chain", CHAIN, &[("add", CoreKind::Aiv, ADD_KERNEL), ("add_cube", CoreKind::Aic, ADD_KERNEL)])
}

fn chain_result(x: f32, tasks: u64) -> f32 {
    (1..=tasks).fold(x, |last, extra| last + x + extra as f32)
}

#[test]
fn a_chain_of_tasks_computes_in_order() {
    let chip = small_chip();
    let id = chip.register(&chain()).unwrap();
    for tasks in [1, 2, 7, 100, 500] {
        let mut x: Vec<f32> = (0..64).map(|i| i as f32).collect();
        let mut y = vec![0.0; 64];
        let args = RunArgs {
            tensors: vec![host(&mut x, ArgUse::Input), host(&mut y, ArgUse::Output)],
            scalars: vec![tasks],
        };
        chip.run(id, &args).unwrap_or_else(|error| panic!("{tasks} tasks: {error}"));
        for (x, y) in x.iter().zip(&y) {
            assert_eq!(*y, chain_result(*x, tasks), "{tasks} tasks");
        }
    }
}
