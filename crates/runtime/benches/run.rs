//! What the runtime adds to kernels: runs of empty tasks, as chains and as layers, on the simulated chip.
//!
//! `cargo bench -p simpler-runtime` prints a line per graph: microseconds per run (median of the repetitions), and of
//! the same kernels in a plain loop: the tasks of a stage split over as many threads as there are CPUs, a spinning
//! barrier between stages. The log is muted, so this is the runtime alone.

#![allow(clippy::unwrap_used, reason = "a benchmark that cannot run says why and stops")]

#[path = "../tests/support/mod.rs"]
mod support;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use simpler_kernel_abi::{ArgUse, CoreKind};
use simpler_platform::Profile;
use simpler_runtime::recording::{HostCallable, Recording};
use simpler_runtime::{CallableImage, ChipRuntime, Limits, RunArgs, RuntimeConfig};

/// `scalars[0]` layers of `scalars[1]` tasks: each task of a layer reads all of the layer before and writes its own
/// slice; `scalars[2]` is the work of a kernel in steps.
const LAYERS: &str = r#"
#include "submit.h"
int aicpu_orchestration_entry(const SimplerOrchestrationApi *api, SimplerRun *run, const SimplerChipArgs *args) {
    uint64_t layers = args->scalars[0], width = args->scalars[1];
    SimplerTensor from = args->tensors[0], to = args->tensors[1];
    for (uint64_t layer = 0; layer < layers; layer++) {
        for (uint64_t i = 0; i < width; i++) {
            SimplerTensor in = view(&from, 0, width * 16), out = view(&to, i * 16, 16);
            SimplerTaskArg a[] = {{&in, SIMPLER_INPUT}, {&out, SIMPLER_OUTPUT_EXISTING}};
            SimplerTask task = task_of(a, 2);
            task.aiv0 = 0;
            task.scalars = &args->scalars[2];
            task.scalar_count = 1;
            if (api->submit_task(run, &task) < 0) return 1;
        }
        SimplerTensor swap = from; from = to; to = swap;
    }
    return 0;
}
"#;

const SPIN: &str = r#"
#include <simpler/kernel.h>
void kernel_entry(const SimplerKernelArgs *args) {
    volatile float x = 0;
    for (uint64_t i = 0; i < args->scalars[0]; i++) x += 1.0f;
}
"#;

/// Runs of which the median is taken, each next to a plain loop.
const REPETITIONS: usize = 101;

/// Some 100 µs: longer than two equal tasks differ.
const SPINS_BEFORE_YIELD: u32 = 4096;

fn measure(chip: &ChipRuntime, layers: u64, width: u64, work: u64) {
    let objects = support::compile("layers", LAYERS, &[("spin", CoreKind::Aiv, SPIN)]);
    let id = chip.register(&CallableImage::load(&objects).unwrap()).unwrap();
    let buffers = [chip.malloc(1 << 16).unwrap(), chip.malloc(1 << 16).unwrap()];
    let tensors = buffers.map(|addr| support::device(addr, 1 << 16, ArgUse::InOut)).to_vec();
    let args = RunArgs { tensors, scalars: vec![layers, width, work], ..RunArgs::default() };

    // SAFETY: the objects were compiled from the sources above.
    let callable = unsafe { HostCallable::open(&objects) }.unwrap();
    let views: Vec<_> = args.tensors.iter().map(|argument| argument.tensor).collect();
    // SAFETY: the orchestration is given what it expects, and the simulated chip's memory is this process's.
    let recording =
        unsafe { callable.record(&Profile::a2a3sim(), Limits::default(), &views, &args.scalars) }.unwrap();

    let (mut runs, mut plain) = (Vec::new(), Vec::new());
    for _ in 0..REPETITIONS {
        let start = Instant::now();
        support::run(chip, id, &args).unwrap();
        runs.push(start.elapsed().as_nanos() as u64);
        plain.push(plain_loop(&callable, &recording));
    }
    runs.sort_unstable();
    plain.sort_unstable();
    let us = |times: &[u64], part: f64| times[(REPETITIONS as f64 * part) as usize] as f64 / 1000.0;
    println!(
        "{layers:4} layers of {width:2}, {work:6} steps: {:8.1} us a run (min {:8.1}), plain {:8.1} (min {:8.1}), {:6.0} ns a task",
        us(&runs, 0.5),
        us(&runs, 0.0),
        us(&plain, 0.5),
        us(&plain, 0.0),
        us(&runs, 0.5) * 1000.0 / (layers * width) as f64,
    );
}

fn plain_loop(callable: &HostCallable, recording: &Recording) -> u64 {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let arrived = AtomicUsize::new(0);
    let wait = |stage: usize| {
        // ORDERING: AcqRel: pairs with the Acquire below: who leaves the barrier sees the stage's outputs.
        arrived.fetch_add(1, Ordering::AcqRel);
        let mut spins = 0;
        // ORDERING: Acquire: as above.
        while arrived.load(Ordering::Acquire) < stage * threads {
            spins += 1;
            // On a busy machine the thread that is waited for may have lost its CPU.
            if spins % SPINS_BEFORE_YIELD == 0 {
                std::thread::yield_now();
            }
            std::hint::spin_loop();
        }
    };
    let (wait, took) = (&wait, AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let took = &took;
            scope.spawn(move || {
                wait(1);
                let start = Instant::now();
                for (stage, tasks) in recording.stages.iter().enumerate() {
                    for task in tasks.iter().skip(thread).step_by(threads) {
                        // SAFETY: the barrier ends each stage before the next, and nothing else runs.
                        unsafe { callable.call(recording, *task) };
                    }
                    wait(stage + 2);
                }
                took.fetch_max(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
            });
        }
    });
    took.into_inner()
}

fn main() {
    let chip = support::chip(RuntimeConfig::default());
    for (layers, width, work) in [
        (1, 1, 0),
        (400, 1, 0),
        (200, 2, 0),
        (100, 4, 0),
        (64, 6, 0),
        (25, 16, 0),
        (10, 48, 0),
        (200, 2, 20_000),
        (200, 4, 10_000),
    ] {
        measure(&chip, layers, width, work);
    }
}
