//! What a run moves and allocates: the arena once, the phase buffer only while somebody listens, nothing per task.
//! One test: the counting allocator and the log's threshold belong to the process.

#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

#[path = "support/log.rs"]
mod log;
mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use simpler_device_phase::PhaseBufferLayout;
use simpler_host_log::Threshold;
use simpler_kernel_abi::{ArgUse, CoreKind};
use simpler_platform::{AicpuProgram, DeviceAddr, Launched, Platform, PlatformError, Profile};
use simpler_runtime::{CallConfig, ChipRuntime, RunArgs, RuntimeConfig};
use support::*;

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's obligation.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's obligation.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A chip that counts what passes the seam.
struct Meter {
    chip: Arc<dyn Platform>,
    allocations: AtomicUsize,
    counter_readings: AtomicUsize,
    to_device: [AtomicUsize; 5],
    to_host: [AtomicUsize; 5],
}

/// Transfers by size: of a phase buffer, of its phases alone, of its slots alone, smaller than all, any other.
fn class(bytes: usize, profile: &Profile) -> usize {
    let layout = PhaseBufferLayout::new(profile.aicpu_launched);
    let sizes = [layout.bytes(), layout.tail_offset(), layout.bytes() - layout.tail_offset()];
    let other = if bytes < layout.tail_offset() { 3 } else { 4 };
    sizes.iter().position(|size| *size == bytes).unwrap_or(other)
}

impl Meter {
    /// Allocations; transfers to the device and to the host by class; all since the last call.
    fn take(&self) -> (usize, [usize; 5], [usize; 5]) {
        let take = |count: &AtomicUsize| count.swap(0, Ordering::Relaxed);
        (take(&self.allocations), self.to_device.each_ref().map(take), self.to_host.each_ref().map(take))
    }
}

impl Platform for Meter {
    fn profile(&self) -> &Profile {
        self.chip.profile()
    }
    fn allocate(&self, bytes: usize) -> Result<DeviceAddr, PlatformError> {
        self.allocations.fetch_add(1, Ordering::Relaxed);
        self.chip.allocate(bytes)
    }
    fn release(&self, addr: DeviceAddr) -> Result<(), PlatformError> {
        self.chip.release(addr)
    }
    fn copy_to_device(&self, dst: DeviceAddr, src: &[u8]) -> Result<(), PlatformError> {
        self.to_device[class(src.len(), self.profile())].fetch_add(1, Ordering::Relaxed);
        self.chip.copy_to_device(dst, src)
    }
    fn copy_to_host(&self, dst: &mut [u8], src: DeviceAddr) -> Result<(), PlatformError> {
        self.to_host[class(dst.len(), self.profile())].fetch_add(1, Ordering::Relaxed);
        self.chip.copy_to_host(dst, src)
    }
    fn load_kernel(&self, image: &[u8], name: &str) -> Result<u64, PlatformError> {
        self.chip.load_kernel(image, name)
    }
    fn counter(&self) -> Option<u64> {
        self.counter_readings.fetch_add(1, Ordering::Relaxed);
        self.chip.counter()
    }
    fn launch(&self, program: Arc<dyn AicpuProgram>) -> Result<Box<dyn Launched>, PlatformError> {
        self.chip.launch(program)
    }
}

/// `scalars[0]` tasks that each read what the one before wrote.
const ROW: &str = r#"
#include "submit.h"
int aicpu_orchestration_entry(const SimplerOrchestrationApi *api, SimplerRun *run, const SimplerChipArgs *args) {
    SimplerTensor x = args->tensors[0], y = args->tensors[1];
    for (uint64_t i = 0; i < args->scalars[0]; i++) {
        SimplerTensor out = fresh(4);
        SimplerTaskArg a[] = {{&x, SIMPLER_INPUT}, {&x, SIMPLER_INPUT}, {&y, SIMPLER_INOUT}, {&out, SIMPLER_OUTPUT}};
        SimplerTask task = task_of(a, 4);
        task.aiv0 = 0;
        if (api->submit_task(run, &task) < 0) return 1;
    }
    return 0;
}
"#;

#[test]
fn a_warm_run_moves_its_arguments_and_allocates_nothing_per_task() {
    let directory = tempfile::tempdir().unwrap();
    log::start(directory.path());
    let meter = Arc::new(Meter {
        chip: npu(),
        allocations: AtomicUsize::new(0),
        counter_readings: AtomicUsize::new(0),
        to_device: Default::default(),
        to_host: Default::default(),
    });
    let chip = ChipRuntime::new(meter.clone(), RuntimeConfig { limits: small(), ..RuntimeConfig::default() })
        .unwrap();
    let id = chip.register(&image("row", ROW, &[("add", CoreKind::Aiv, ADD_KERNEL)])).unwrap();
    let (mut x, mut y) = (vec![1.0; 4], vec![0.0; 4]);
    let mut run = |tasks: u64| {
        let tensors = vec![host(&mut x, ArgUse::Input), host(&mut y, ArgUse::InOut)];
        let args = RunArgs { tensors, scalars: vec![tasks], ..RunArgs::default() };
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        run(&chip, id, &args).unwrap();
        ALLOCATIONS.load(Ordering::Relaxed) - before
    };

    // Cold: staging, arena, phase buffer; the arena's image is the one large transfer.
    run(500);
    assert_eq!(meter.take(), (3, [1, 0, 0, 2, 1], [0, 1, 0, 1, 0]));
    // Warm: two arguments there, one back, the phase buffer reset and read.
    for _ in 0..3 {
        run(500);
        assert_eq!(meter.take(), (0, [1, 0, 0, 2, 0], [0, 1, 0, 1, 0]));
    }
    // Muted: no reset, no readback, no anchor.
    assert!(meter.counter_readings.swap(0, Ordering::Relaxed) >= 8);
    simpler_host_log::set_threshold(Threshold::WARN);
    run(500);
    assert_eq!(meter.take(), (0, [0, 0, 0, 2, 0], [0, 0, 0, 1, 0]));
    assert_eq!(meter.counter_readings.load(Ordering::Relaxed), 0);

    // What a chip has made ahead its first run does not.
    simpler_host_log::set_threshold(Threshold::TIMING);
    let config = RuntimeConfig { limits: small(), pipeline_depth: 2, ..RuntimeConfig::default() };
    let prewarmed = ChipRuntime::new(meter.clone(), config).unwrap();
    let id = prewarmed.register(&image("row", ROW, &[("add", CoreKind::Aiv, ADD_KERNEL)])).unwrap();
    meter.take();
    prewarmed.prewarm(&CallConfig::default()).unwrap();
    assert_eq!(meter.take(), (4, [0, 0, 0, 0, 2], [0; 5]));
    let (mut z, mut w) = (vec![1.0; 4], vec![0.0; 4]);
    let tensors = vec![host(&mut z, ArgUse::Input), host(&mut w, ArgUse::InOut)];
    support::run(&prewarmed, id, &RunArgs { tensors, scalars: vec![10], ..RunArgs::default() }).unwrap();
    assert_eq!(meter.take(), (1, [1, 0, 0, 2, 0], [0, 1, 0, 1, 0]));
    let mut spans = log::spans(directory.path());
    spans.retain(|span| span.name == "simpler_prewarm.build");
    assert!(matches!(&spans[..], [span] if span.depth == 0 && span.hid == "0"), "{spans:?}");

    let few: usize = (0..5).map(|_| run(10)).max().unwrap();
    let many: usize = (0..5).map(|_| run(500)).min().unwrap();
    assert!(many <= few, "{few} allocations for 10 tasks, {many} for 500");
}
