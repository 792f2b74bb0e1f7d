//! What other threads ask of a chip's memory while a run is under way.

#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use simpler_kernel_abi::{ArgUse, CoreKind};
use simpler_platform::DeviceAddr;
use simpler_runtime::{ChipRuntime, RunArgs, RunError};
use support::*;

const ONE: &str = r#"
#include "submit.h"
int aicpu_orchestration_entry(const SimplerOrchestrationApi *api, SimplerRun *run, const SimplerChipArgs *args) {
    SimplerTensor x = args->tensors[0];
    SimplerTaskArg a[] = {{&x, SIMPLER_INOUT}};
    SimplerTask task = task_of(a, 1);
    task.aiv0 = 0;
    return api->submit_task(run, &task) < 0;
}
"#;

/// Says 1 when it begins and 2 when it ends.
const SLOW: &str = r#"
#include <simpler/kernel.h>
#include <time.h>
void kernel_entry(const SimplerKernelArgs *args) {
    uint32_t *word = simpler_tensor_data(args->tensors[0]);
    struct timespec t = {0, 300000000};
    __atomic_store_n(word, 1, __ATOMIC_RELEASE);
    while (nanosleep(&t, &t)) { }
    __atomic_store_n(word, 2, __ATOMIC_RELEASE);
}
"#;

#[test]
fn device_memory_is_freed_and_copied_between_runs() {
    let chip = small_chip();
    let id = chip.register(&image("slow_one", ONE, &[("says", CoreKind::Aiv, SLOW)])).unwrap();
    let (said, other) = (chip.malloc(4).unwrap(), chip.malloc(4).unwrap());
    // SAFETY: an aligned word of the simulated chip's memory, which is this process's and lives as long as the chip.
    let word = unsafe { &*(said.0 as *const AtomicU32) };
    let args =
        RunArgs { tensors: vec![device(said, 4, ArgUse::InOut)], scalars: vec![], ..RunArgs::default() };
    type Operation = fn(&ChipRuntime, DeviceAddr) -> Result<(), RunError>;
    let operations: [Operation; 3] =
        [|chip, at| chip.copy_to(at, &[0; 4]), |chip, at| chip.copy_from(&mut [0; 4], at), ChipRuntime::free];
    for operation in operations {
        word.store(0, Ordering::Release);
        std::thread::scope(|scope| {
            scope.spawn(|| run(&chip, id, &args).unwrap());
            let deadline = Instant::now() + Duration::from_secs(10);
            while word.load(Ordering::Acquire) == 0 {
                assert!(Instant::now() < deadline, "the kernel did not begin");
                std::thread::yield_now();
            }
            operation(&chip, other).unwrap();
            assert_eq!(word.load(Ordering::Acquire), 2, "the run was still under way");
        });
    }
}
