//! What observing costs the device: how often its threads read the counter.

#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use simpler_kernel_abi::{ArgUse, CoreKind};
use simpler_platform::{
    Aicpu, AicpuProgram, DeviceAddr, Launched, LoadedObject, Platform, PlatformError, Profile, Registers,
};
use simpler_relax::EventCount;
use simpler_runtime::{ChipRuntime, GraphRuntime, RunArgs, RuntimeConfig};
use support::*;

/// A chip whose AICPU threads' readings of the counter are counted.
struct Counting {
    chip: Arc<dyn Platform>,
    readings: Arc<AtomicUsize>,
}

struct CountingProgram {
    program: Arc<dyn AicpuProgram>,
    readings: Arc<AtomicUsize>,
}

struct CountingAicpu<'a> {
    aicpu: &'a dyn Aicpu,
    readings: &'a AtomicUsize,
}

impl AicpuProgram for CountingProgram {
    fn execute(&self, aicpu: &dyn Aicpu) -> i32 {
        self.program.execute(&CountingAicpu { aicpu, readings: &self.readings })
    }
}

impl Aicpu for CountingAicpu<'_> {
    fn cycles(&self) -> u64 {
        self.readings.fetch_add(1, Ordering::Relaxed);
        self.aicpu.cycles()
    }
    fn cycles_after_reads(&self) -> u64 {
        self.readings.fetch_add(1, Ordering::Relaxed);
        self.aicpu.cycles_after_reads()
    }
    fn invalidate(&self, addr: DeviceAddr, bytes: usize) {
        self.aicpu.invalidate(addr, bytes);
    }
    fn registers(&self) -> &dyn Registers {
        self.aicpu.registers()
    }
    fn event(&self, thread_index: usize) -> &EventCount {
        self.aicpu.event(thread_index)
    }
    fn load_object(&self, image: &[u8], name: &str) -> Result<Box<dyn LoadedObject>, PlatformError> {
        self.aicpu.load_object(image, name)
    }
}

impl Platform for Counting {
    fn profile(&self) -> &Profile {
        self.chip.profile()
    }
    fn allocate(&self, bytes: usize) -> Result<DeviceAddr, PlatformError> {
        self.chip.allocate(bytes)
    }
    fn release(&self, addr: DeviceAddr) -> Result<(), PlatformError> {
        self.chip.release(addr)
    }
    fn copy_to_device(&self, dst: DeviceAddr, src: &[u8]) -> Result<(), PlatformError> {
        self.chip.copy_to_device(dst, src)
    }
    fn copy_to_host(&self, dst: &mut [u8], src: DeviceAddr) -> Result<(), PlatformError> {
        self.chip.copy_to_host(dst, src)
    }
    fn load_kernel(&self, image: &[u8], name: &str) -> Result<u64, PlatformError> {
        self.chip.load_kernel(image, name)
    }
    fn counter(&self) -> Option<u64> {
        self.chip.counter()
    }
    fn launch(&self, program: Arc<dyn AicpuProgram>) -> Result<Box<dyn Launched>, PlatformError> {
        self.chip.launch(Arc::new(CountingProgram { program, readings: self.readings.clone() }))
    }
}

/// `scalars[0]` tasks of which the first `scalars[1]` are timed.
const TIMED: &str = r#"
#include "submit.h"
int aicpu_orchestration_entry(const SimplerOrchestrationApi *api, SimplerRun *run, const SimplerChipArgs *args) {
    for (uint64_t i = 0; i < args->scalars[0]; i++) {
        SimplerTensor y = view(&args->tensors[0], i % 64, 1);
        SimplerTaskArg a[] = {{&y, SIMPLER_INPUT}, {&y, SIMPLER_INPUT}, {&y, SIMPLER_INOUT}};
        SimplerTask task = task_of(a, 3);
        task.aiv0 = 0;
        if (i < args->scalars[1]) simpler_task_set_timing_slot(&task, (int32_t)(i % 16));
        if (api->submit_task(run, &task) < 0) return 1;
    }
    return 0;
}
"#;

#[test]
fn an_untagged_task_reads_no_counter_and_a_tagged_one_reads_it_twice() {
    let image = image("timed", TIMED, &[("add", CoreKind::Aiv, ADD_KERNEL)]);
    for graph_runtime in [GraphRuntime::TensorMapAndRingBuffer, GraphRuntime::HostBuildGraph] {
        let readings = Arc::new(AtomicUsize::new(0));
        let platform = Arc::new(Counting { chip: npu(), readings: readings.clone() });
        let config = RuntimeConfig { graph_runtime, limits: small(), ..RuntimeConfig::default() };
        let chip = ChipRuntime::new(platform, config).unwrap();
        let id = chip.register(&image).unwrap();
        let go = |tasks: u64, timed: u64| {
            let mut y = vec![1.0; 64];
            let tensors = vec![host(&mut y, ArgUse::InOut)];
            readings.store(0, Ordering::Relaxed);
            run(&chip, id, &RunArgs { tensors, scalars: vec![tasks, timed], ..RunArgs::default() }).unwrap();
            readings.load(Ordering::Relaxed)
        };
        go(1, 0);
        let none = go(0, 0);
        assert_eq!(go(300, 0), none, "{graph_runtime:?}: tasks without a tag read no counter");
        for timed in [1, 16, 300] {
            let expected = none + 2 * timed as usize;
            assert_eq!(go(300, timed), expected, "{graph_runtime:?}: {timed} timed tasks");
        }
    }
}
