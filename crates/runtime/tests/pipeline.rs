//! Runs in phases: two at a time from one thread, what is refused, and that a root span closes on every path.

#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

#[path = "support/log.rs"]
mod log;
mod support;

use std::collections::BTreeMap;

use simpler_kernel_abi::{ArgUse, CoreKind};
use simpler_runtime::{
    CallableId, CallableImage, ChipRuntime, GraphRuntime, Prepared, RunArgs, RunError, RunIdentity,
    RuntimeConfig,
};
use simpler_sim_npu::{Profile, SimNpu, SimOptions};
use support::*;

/// Adds scalars[0] to every number after some ms, or fails when it is 13.
const SLOW_ADD: &str = r#"
#include "submit.h"
int aicpu_orchestration_entry(const SimplerOrchestrationApi *api, SimplerRun *run, const SimplerChipArgs *args) {
    SimplerTensor x = args->tensors[0];
    SimplerTaskArg a[] = {{&x, SIMPLER_INOUT}};
    SimplerTask task = simpler_task(a, 1);
    if (args->scalars[0] == 13) {
        api->report_fatal(run, "bad luck");
        return 1;
    }
    task.aiv0 = 0;
    task.scalars = args->scalars;
    task.scalar_count = 1;
    return api->submit_task(run, &task) < 0;
}
"#;

const SLOW_ADD_KERNEL: &str = r#"
#include <simpler/kernel.h>
#include <time.h>
void kernel_entry(const SimplerKernelArgs *args) {
    struct timespec t = {0, 20000000};
    float *x = simpler_tensor_data(args->tensors[0]);
    while (nanosleep(&t, &t)) { }
    for (uint32_t i = 0; i < args->tensors[0]->shapes[0]; i++) x[i] += (float)args->scalars[0];
}
"#;

fn slow_add() -> CallableImage {
    image("slow_add", SLOW_ADD, &[("slow_add_kernel", CoreKind::Aiv, SLOW_ADD_KERNEL)])
}

fn deep_chip(graph_runtime: GraphRuntime, pipeline_depth: usize) -> Result<ChipRuntime, RunError> {
    let npu = SimNpu::new(Profile::a2a3sim(), SimOptions::default()).unwrap();
    ChipRuntime::new(
        npu,
        RuntimeConfig { graph_runtime, pipeline_depth, limits: small(), ..RuntimeConfig::default() },
    )
}

fn args(x: &mut [f32], scalar: u64) -> RunArgs {
    RunArgs { tensors: vec![host(x, ArgUse::InOut)], scalars: vec![scalar], ..RunArgs::default() }
}

fn prepare<'r>(
    chip: &'r ChipRuntime,
    id: CallableId,
    args: &RunArgs,
    dispatch_id: u64,
) -> Result<Prepared<'r>, RunError> {
    // SAFETY: vectors of these tests that live on and are not touched until the run has ended.
    unsafe { chip.prepare(id, args, RunIdentity { run_id: 7, dispatch_id }) }
}

/// The spans of each invocation in the order of the log.
fn invocations(directory: &std::path::Path) -> Vec<Vec<log::Span>> {
    let mut runs: BTreeMap<u64, Vec<log::Span>> = BTreeMap::new();
    for span in log::spans(directory) {
        runs.entry(span.inv).or_default().push(span);
    }
    runs.into_values().collect()
}

fn find<'s>(run: &'s [log::Span], leaf: &str) -> &'s log::Span {
    let name = format!("simpler_run{leaf}");
    run.iter().find(|span| span.name == name).unwrap_or_else(|| panic!("{name} in {run:?}"))
}

fn attribute(span: &log::Span, key: &str) -> u64 {
    let mut pairs = span.attrs.split(' ').filter_map(|pair| pair.split_once('='));
    pairs.find(|(of, _)| *of == key).unwrap_or_else(|| panic!("{key} in {span:?}")).1.parse().unwrap()
}

#[test]
fn the_next_run_is_bound_while_one_is_on_the_device() {
    const RUNS: usize = 6;
    let directory = tempfile::tempdir().unwrap();
    log::start(directory.path());
    let runtimes = [GraphRuntime::TensorMapAndRingBuffer, GraphRuntime::HostBuildGraph];
    for graph_runtime in runtimes {
        let chip = deep_chip(graph_runtime, 2).unwrap();
        let id = chip.register(&slow_add()).unwrap();
        let mut buffers = vec![vec![1.0; 256]; RUNS];
        let args: Vec<_> = buffers.iter_mut().zip(1..).map(|(x, scalar)| args(x, scalar)).collect();
        let outside = simpler_host_log::context();
        let mut next = Some(prepare(&chip, id, &args[0], 1).unwrap());
        for number in 0..RUNS {
            let launched = next.take().unwrap().launch().unwrap();
            if number + 1 < RUNS {
                next = Some(prepare(&chip, id, &args[number + 1], number as u64 + 2).unwrap());
            }
            assert!(!launched.is_done(), "the kernel takes 20 ms");
            let done = launched.wait();
            assert_eq!(simpler_host_log::context(), outside, "between phases the thread is in no run");
            done.finalize().unwrap();
        }
        for (x, scalar) in buffers.iter().zip(1..) {
            assert_eq!(*x, vec![1.0 + scalar as f32; 256]);
        }
    }
    let runs = invocations(directory.path());
    assert_eq!(runs.len(), runtimes.len() * RUNS);
    for runs in runs.chunks(RUNS) {
        for (number, run) in runs.iter().enumerate() {
            let root = find(run, "");
            assert_eq!(run.last(), Some(root), "the root comes last");
            assert_eq!((root.depth, attribute(root, "run_id")), (0, 7));
            assert_eq!(attribute(root, "dispatch_id"), number as u64 + 1);
            assert_eq!(attribute(root, "run_epoch"), number as u64 + 1);
            // Two slots in turn, each used again.
            assert_eq!(attribute(root, "slot_id"), (number as u64 + 1) % 2);
            assert_eq!(attribute(root, "generation"), number as u64 / 2 + 1);
            for (leaf, depth) in
                [(".bind", 1), (".bind.args", 2), (".runner_run", 1), (".claim_release", 1), (".validate", 1)]
            {
                let span = find(run, leaf);
                assert_eq!(span.depth, depth, "{span:?}");
                assert!(
                    root.ts <= span.ts && span.ts + span.dur <= root.ts + root.dur,
                    "{span:?} in {root:?}"
                );
            }
            let wall = find(run, ".runner_run.device_wall");
            assert!(wall.dur >= 20_000_000, "{wall:?}");
            let runner_run = find(run, ".runner_run");
            assert!(find(run, ".claim_release").ts >= runner_run.ts + runner_run.dur);
            if let Some(next) = runs.get(number + 1) {
                let bind = find(next, ".bind");
                assert!(
                    runner_run.ts <= bind.ts && bind.ts + bind.dur <= runner_run.ts + runner_run.dur,
                    "hidden"
                );
                assert!(find(next, ".runner_run").ts >= find(run, ".claim_release").ts);
            }
        }
    }
}

#[test]
fn a_run_that_is_given_up_closes_its_root_at_whichever_phase() {
    let directory = tempfile::tempdir().unwrap();
    log::start(directory.path());
    let chip = deep_chip(GraphRuntime::TensorMapAndRingBuffer, 2).unwrap();
    let id = chip.register(&slow_add()).unwrap();
    let mut x = vec![1.0; 4];
    let added = args(&mut x, 1);
    drop(prepare(&chip, id, &added, 1).unwrap());
    drop(prepare(&chip, id, &added, 2).unwrap().launch().unwrap());
    drop(prepare(&chip, id, &added, 3).unwrap().launch().unwrap().wait());
    let failing = args(&mut x, 13);
    let error = prepare(&chip, id, &failing, 4).unwrap().launch().unwrap().wait().finalize().unwrap_err();
    assert_eq!(error, RunError { code: -9, text: "bad luck".into() });
    // The slots and the device are free again.
    let added = args(&mut x, 5);
    run(&chip, id, &added).unwrap();
    assert_eq!(x, [8.0; 4], "the second and the third run have added 1");

    let runs = invocations(directory.path());
    let leaves = |run: &[log::Span]| -> Vec<String> {
        let host = run.iter().filter(|span| !span.attrs.contains("clk=dev"));
        host.filter(|span| span.depth < 2).map(|span| span.name["simpler_run".len()..].to_owned()).collect()
    };
    let all = [".bind", ".runner_run", ".claim_release", ".validate", ""];
    assert_eq!(leaves(&runs[0]), [".bind", ".validate", ""]);
    for run in &runs[1..4] {
        assert_eq!(leaves(run), all);
    }
    // A plain run has no identity, and tells nobody that it has released the device.
    assert_eq!(leaves(&runs[4]), [".bind", ".runner_run", ".validate", ""]);
    assert_eq!(find(&runs[4], "").attrs, "");
    let text = log::text(directory.path());
    let errors: Vec<_> = text.lines().filter(|line| line.contains("[ERROR]")).collect();
    assert_eq!(errors.len(), 2, "{errors:?}");
    assert!(errors[0].contains("it was not launched") && errors[1].contains("bad luck"), "{errors:?}");
}

#[test]
fn what_a_run_has_is_refused_to_others() {
    let chip = deep_chip(GraphRuntime::TensorMapAndRingBuffer, 2).unwrap();
    let id = chip.register(&slow_add()).unwrap();
    let memory = chip.malloc(16).unwrap();
    let refused = |result: Result<(), RunError>, words: &str| {
        let error = result.unwrap_err();
        assert!(error.code == -1 && error.text.contains(words), "{error}");
    };
    let (mut x, mut y, mut z) = (vec![1.0; 4], vec![1.0; 4], vec![1.0; 4]);
    let first = prepare(&chip, id, &args(&mut x, 1), 1).unwrap();
    let second = prepare(&chip, id, &args(&mut y, 2), 2).unwrap();
    refused(prepare(&chip, id, &args(&mut z, 3), 3).map(drop), "pipeline slot");
    // What waits for others would wait for ever for itself.
    refused(run(&chip, id, &args(&mut z, 3)), "a run of this thread");
    chip.copy_to(memory, &[1; 16]).unwrap();
    let launched = first.launch().unwrap();
    refused(chip.copy_to(memory, &[1; 16]), "the device is in use by a run of this thread");
    refused(chip.free(memory), "the device is in use by a run of this thread");
    refused(second.launch().map(drop), "the device is in use");
    std::thread::scope(|scope| {
        let other = scope.spawn(|| prepare(&chip, id, &args(&mut z, 3), 3).unwrap().launch().map(drop));
        refused(other.join().unwrap(), "a run of another thread");
    });
    launched.wait().finalize().unwrap();
    chip.free(memory).unwrap();
    assert_eq!((x, y, z), (vec![2.0; 4], vec![1.0; 4], vec![1.0; 4]));

    for depth in [0, 3] {
        let error = deep_chip(GraphRuntime::TensorMapAndRingBuffer, depth).map(drop).unwrap_err();
        assert!(error.code == -5 && error.text.contains("pipeline"), "{error}");
    }
}

#[test]
fn threads_share_the_slots_of_a_pipeline() {
    let chip = deep_chip(GraphRuntime::TensorMapAndRingBuffer, 2).unwrap();
    let id = chip.register(&slow_add()).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut x = vec![0.0; 64];
                for _ in 0..5 {
                    run(&chip, id, &args(&mut x, 2)).unwrap();
                }
                assert_eq!(x, [10.0; 64]);
            });
        }
    });
}

#[test]
fn who_has_the_device_does_not_wait_for_a_slot() {
    let directory = tempfile::tempdir().unwrap();
    log::start(directory.path());
    let chip = deep_chip(GraphRuntime::TensorMapAndRingBuffer, 2).unwrap();
    let id = chip.register(&slow_add()).unwrap();
    let (mut x, mut y, mut z) = (vec![1.0; 4], vec![1.0; 4], vec![1.0; 4]);
    let launched = prepare(&chip, id, &args(&mut x, 1), 1).unwrap().launch().unwrap();
    std::thread::scope(|scope| {
        // Has the other slot, and waits for the device.
        let other = scope.spawn(|| run(&chip, id, &args(&mut y, 2)));
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while log::text(directory.path()).matches(" name=simpler_run.bind ").count() < 2 {
            assert!(std::time::Instant::now() < deadline, "the other thread did not come");
        }
        let error = run(&chip, id, &args(&mut z, 3)).unwrap_err();
        assert!(error.code == -1 && error.text.contains("pipeline slot"), "{error}");
        launched.wait().finalize().unwrap();
        other.join().unwrap().unwrap();
    });
    assert_eq!((x, y, z), (vec![2.0; 4], vec![3.0; 4], vec![1.0; 4]));
}
