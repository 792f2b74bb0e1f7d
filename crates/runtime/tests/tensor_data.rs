//! Orchestrations that read and write tensors: they wait for the tasks that use them.

#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use std::time::{Duration, Instant};

use simpler_kernel_abi::{ArgUse, CoreKind};
use simpler_runtime::{CallableImage, ChipArg, GraphRuntime, RunArgs, RunIdentity, RuntimeConfig};
use support::*;

/// Halves a number until it is 1, asking after each task, as only the orchestration can: tensors[0] is the number,
/// tensors[1] gets the steps. scalars[0] is what else is to be tried.
const COUNT_DOWN: &str = r#"
#include "submit.h"
int aicpu_orchestration_entry(const SimplerOrchestrationApi *api, SimplerRun *run, const SimplerChipArgs *args) {
    SimplerTensor x = args->tensors[0], steps = args->tensors[1], own = fresh(1), *both[] = {&own};
    float value = 0, count = 0;
    if (api->alloc_tensors(run, both, 1) < 0) return 1;
    /* What the host has put there, and what nobody has written yet. */
    if (api->get_tensor_data(run, &x, &value, 4)) return 2;
    if (api->set_tensor_data(run, &own, &value, 4)) return 3;
    switch (args->scalars[0]) {
    case 1: return api->get_tensor_data(run, 0, &value, 4);
    case 2: return api->get_tensor_data(run, &x, 0, 4);
    case 3: return api->get_tensor_data(run, &x, &value, 8);
    case 4: own.contiguous = 0; return api->set_tensor_data(run, &own, &value, 4);
    case 5: own.addr = 0; return api->get_tensor_data(run, &own, &value, 4);
    case 6: own.start_offset = UINT64_MAX; return api->get_tensor_data(run, &own, &value, 4);
    case 7: /* the host's number straight to the result, without a task */
        return api->get_tensor_data(run, &own, &value, 0) || api->set_tensor_data(run, &steps, &value, 4);
    }
    while (value != 1) {
        SimplerTaskArg a[] = {{&own, SIMPLER_INOUT}};
        SimplerTask task = simpler_task(a, 1);
        task.aiv0 = 0;
        if (api->submit_task(run, &task) < 0) return 4;
        if (api->get_tensor_data(run, &own, &value, 4)) return 5;
        count++;
    }
    return api->set_tensor_data(run, &steps, &count, 4);
}
"#;

const HALVE: &str = r#"
#include <simpler/kernel.h>
void kernel_entry(const SimplerKernelArgs *args) { *(float *)simpler_tensor_data(args->tensors[0]) /= 2; }
"#;

const HANG: &str = r#"
#include <simpler/kernel.h>
#include <time.h>
void kernel_entry(const SimplerKernelArgs *args) {
    struct timespec t = {0, 900000000};
    (void)args;
    while (nanosleep(&t, &t)) { }
}
"#;

const ONE_TASK: &str = r#"
#include "submit.h"
int aicpu_orchestration_entry(const SimplerOrchestrationApi *api, SimplerRun *run, const SimplerChipArgs *args) {
    SimplerTask task = simpler_task(0, 0);
    (void)args;
    task.aiv0 = 0;
    return api->submit_task(run, &task) < 0;
}
"#;

fn count_down(kernel: &str) -> CallableImage {
    image("count_down", COUNT_DOWN, &[("halve", CoreKind::Aiv, kernel)])
}

fn tensors(x: &mut [f32], steps: &mut [f32]) -> Vec<ChipArg> {
    vec![host(x, ArgUse::Input), host(steps, ArgUse::Output)]
}

#[test]
fn an_orchestration_decides_by_what_its_tasks_have_computed() {
    let chip = small_chip();
    let id = chip.register(&count_down(HALVE)).unwrap();
    for exponent in [0_u8, 10, 100] {
        let (mut x, mut steps) = (vec![2.0_f32.powi(exponent.into())], vec![-1.0]);
        run(
            &chip,
            id,
            &RunArgs { tensors: tensors(&mut x, &mut steps), scalars: vec![0], ..RunArgs::default() },
        )
        .unwrap();
        assert_eq!(steps, [f32::from(exponent)]);
    }
}

#[test]
fn who_waits_for_a_tensor_is_rung() {
    // Longer than anybody yields: left to its park slice the orchestrator would take one a step.
    const STEPS: u32 = 50;
    let slow = HALVE
        .replace("{ *(float", "{ struct timespec t = {0, 1000000}; while (nanosleep(&t, &t)) { } *(float");
    let chip = small_chip();
    let id = chip.register(&count_down(&format!("#include <time.h>\n{slow}"))).unwrap();
    let (mut x, mut steps) = (vec![2.0_f32.powi(STEPS as i32)], vec![-1.0]);
    let start = Instant::now();
    run(&chip, id, &RunArgs { tensors: tensors(&mut x, &mut steps), scalars: vec![0], ..RunArgs::default() })
        .unwrap();
    let took = start.elapsed();
    assert_eq!(steps, [STEPS as f32]);
    assert!(took < simpler_relax::PARK_SLICE / 2 * STEPS, "{STEPS} steps took {took:?}");
}

/// x[1] := 10 x[1] + x[0] by a task that takes a while, then x[0] is overwritten, then the task once more.
const OVERWRITE: &str = r#"
#include "submit.h"
int aicpu_orchestration_entry(const SimplerOrchestrationApi *api, SimplerRun *run, const SimplerChipArgs *args) {
    SimplerTensor from = view(&args->tensors[0], 0, 1), to = view(&args->tensors[0], 1, 1);
    SimplerTaskArg a[] = {{&from, SIMPLER_INPUT}, {&to, SIMPLER_OUTPUT_EXISTING}};
    SimplerTask task = simpler_task(a, 2);
    float nine = 9;
    task.aiv0 = 0;
    if (api->submit_task(run, &task) < 0) return 1;
    if (api->set_tensor_data(run, &from, &nine, 4)) return 2;
    return api->submit_task(run, &task) < 0;
}
"#;

const SLOW_COPY: &str = r#"
#include <simpler/kernel.h>
#include <time.h>
void kernel_entry(const SimplerKernelArgs *args) {
    struct timespec t = {0, 20000000};
    float *to = simpler_tensor_data(args->tensors[1]), before = to[0];
    while (nanosleep(&t, &t)) { }
    *to = before * 10 + *(float *)simpler_tensor_data(args->tensors[0]);
}
"#;

#[test]
fn who_overwrites_a_tensor_waits_for_its_readers_too() {
    let chip = small_chip();
    let image = image("overwrite", OVERWRITE, &[("slow_copy", CoreKind::Aiv, SLOW_COPY)]);
    let mut x = vec![4.0, 0.0];
    run_once(&chip, &image, vec![host(&mut x, ArgUse::InOut)], vec![]).unwrap();
    // The first task has seen the 4: with the 9 it would be 99.
    assert_eq!(x, [9.0, 49.0]);
}

#[test]
fn a_graph_that_the_host_builds_has_no_results_to_decide_by() {
    for chip in small_chips() {
        let id = chip.register(&count_down(HALVE)).unwrap();
        let (mut x, mut steps) = (vec![7.0], vec![-1.0]);
        // What no task uses can be read and written everywhere.
        run(
            &chip,
            id,
            &RunArgs { tensors: tensors(&mut x, &mut steps), scalars: vec![7], ..RunArgs::default() },
        )
        .unwrap();
        assert_eq!(steps, [7.0]);
    }
    let graph_runtime = GraphRuntime::HostBuildGraph;
    let chip = chip(RuntimeConfig { graph_runtime, limits: small(), ..RuntimeConfig::default() });
    let (mut x, mut steps) = (vec![8.0], vec![-1.0]);
    let error = run_once(&chip, &count_down(HALVE), tensors(&mut x, &mut steps), vec![0]).unwrap_err();
    assert_eq!(error.code, -5, "{error}");
    assert!(error.text.contains("task 1 uses the tensor, and host_build_graph starts no task"), "{error}");
}

#[test]
fn what_cannot_be_copied_is_code_5() {
    for chip in small_chips() {
        let id = chip.register(&count_down(HALVE)).unwrap();
        for (number, words) in [
            (1, "the tensor is null"),
            (2, "null address"),
            (3, "8 bytes of a contiguous view of 4 bytes"),
            (4, "a strided view"),
            (5, "null address"),
            (6, "view of 4 bytes at 18446744073709551615"),
        ] {
            let (mut x, mut steps) = (vec![8.0], vec![-1.0]);
            let args =
                RunArgs { tensors: tensors(&mut x, &mut steps), scalars: vec![number], ..RunArgs::default() };
            let error = run(&chip, id, &args).unwrap_err();
            assert!(error.code == -5 && error.text.contains(words), "{number}: {error}");
        }
    }
}

#[test]
fn a_tensor_that_is_not_done_in_time_is_code_8_and_names_the_task() {
    let scheduler_timeout = Duration::from_millis(400);
    let chip = chip(RuntimeConfig { limits: small(), scheduler_timeout, ..RuntimeConfig::default() });
    let (mut x, mut steps) = (vec![8.0], vec![-1.0]);
    let error = run_once(&chip, &count_down(HANG), tensors(&mut x, &mut steps), vec![0]).unwrap_err();
    assert_eq!(error.code, -8, "{error}");
    assert!(error.text.contains("a tensor that task 1 uses: 300 ms"), "{error}");
    // And the chip is usable afterwards.
    run_once(&chip, &count_down(HALVE), tensors(&mut x, &mut steps), vec![0]).unwrap();
    assert_eq!(steps, [3.0]);
}

#[test]
fn a_wait_without_end_is_a_wait() {
    let scheduler_timeout = Duration::MAX;
    let chip = chip(RuntimeConfig { limits: small(), scheduler_timeout, ..RuntimeConfig::default() });
    let (mut x, mut steps) = (vec![8.0], vec![-1.0]);
    run_once(&chip, &count_down(HALVE), tensors(&mut x, &mut steps), vec![0]).unwrap();
    assert_eq!(steps, [3.0]);
}

#[test]
fn a_graph_that_is_built_while_this_threads_run_is_on_the_device_does_not_look_at_its_memory() {
    let graph_runtime = GraphRuntime::HostBuildGraph;
    let config =
        RuntimeConfig { graph_runtime, limits: small(), pipeline_depth: 2, ..RuntimeConfig::default() };
    let chip = chip(config);
    let hang = chip.register(&image("hang", ONE_TASK, &[("hang", CoreKind::Aiv, HANG)])).unwrap();
    let looks = chip.register(&count_down(HALVE)).unwrap();
    let (mut x, mut steps) = (vec![7.0], vec![-1.0]);
    let identity = RunIdentity { run_id: 1, dispatch_id: 0 };
    // SAFETY: no arguments; the objects are those of the tests.
    let prepared = unsafe { chip.prepare(hang, &RunArgs::default(), identity) }.unwrap();
    let launched = prepared.launch().unwrap();
    let args = RunArgs { tensors: tensors(&mut x, &mut steps), scalars: vec![7], ..RunArgs::default() };
    // SAFETY: the vectors live on and are not touched until the run has ended.
    let error = unsafe { chip.prepare(looks, &args, identity) }.map(drop).unwrap_err();
    assert!(error.code == -5 && error.text.contains("in use by a run of this thread"), "{error}");
    launched.wait().finalize().unwrap();
    run(&chip, looks, &args).unwrap();
    assert_eq!(steps, [7.0]);
}
