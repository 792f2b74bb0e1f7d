//! Task slots from the orchestration to the log, with each graph runtime on each platform.

#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

#[path = "support/log.rs"]
mod log;
mod support;

use std::collections::BTreeMap;

use simpler_device_phase::Phase;
use simpler_kernel_abi::{ArgUse, CoreKind};
use simpler_kernel_compiler::SourceFile;
use simpler_runtime::{CallableImage, GraphRuntime, RunArgs};
use support::*;

/// One task a scalar, each reading what the one before wrote; the scalar is the slot, 99 for none. A last scalar of
/// 1000 and more is set after the slot before it, to be refused.
const TAGGED: &str = r#"
#include "submit.h"
int aicpu_orchestration_entry(const SimplerOrchestrationApi *api, SimplerRun *run, const SimplerChipArgs *args) {
    SimplerTensor y = args->tensors[0];
    for (uint32_t i = 0; i < args->scalar_count; i++) {
        SimplerTaskArg a[] = {{&y, SIMPLER_INPUT}, {&y, SIMPLER_INPUT}, {&y, SIMPLER_INOUT}};
        SimplerTask task = task_of(a, 3);
        if (i % 2) task.aic = 1; else task.aiv0 = 0;
        if (args->scalars[i] < 1000 && args->scalars[i] != 99) simpler_task_set_timing_slot(&task, (int32_t)args->scalars[i]);
        if (args->scalars[i] >= 1000) {
            simpler_task_set_timing_slot(&task, 4);
            simpler_task_set_timing_slot(&task, (int32_t)(args->scalars[i] - 2000));
            if (simpler_task_timing_slot(&task) != 4) return 77;
        }
        if (api->submit_task(run, &task) < 0) return 1;
    }
    return 0;
}
"#;

/// The same in C++: the first task with a slot of its own, the second after it by what it is told alone.
const TAGGED_CPP: &str = r#"
#include <simpler/orchestration.hpp>
extern "C" int aicpu_orchestration_entry(const SimplerOrchestrationApi *api, SimplerRun *run,
                                         const SimplerChipArgs *args) {
    SimplerTensor y = args->tensors[0];
    simpler::MixedKernels aiv;
    aiv.aiv0 = 0;
    simpler::L0TaskArgs first;
    first.add_input(y);
    first.add_input(y);
    first.add_inout(y);
    first.set_task_timing_slot(2);
    int64_t id = first.submit(api, run, aiv);
    if (id < 0) return 1;
    SimplerTensor hidden = y;
    hidden.manual_dep = 1;
    simpler::L0TaskArgsWithDeps<> second;
    second.add_input(hidden);
    second.add_input(hidden);
    second.add_inout(hidden);
    second.set_task_timing_slot(args->scalars[0] ? 16 : 5);
    simpler::L0TaskArgs join;
    join.add_no_dep(hidden);
    join.set_task_timing_slot(9);
    simpler::L0TaskArgsWithDeps<1> joined;
    if (!joined.add_dep(id)) return 4;
    const int64_t after = joined.submit_dummy(api, run);
    if (join.submit_dummy(api, run) < 0 || after < 0 || !second.add_dep(after)) return 2;
    second.set_block_count(1);
    second.set_sync_start(true);
    return second.submit(api, run, aiv) < 0 ? 3 : 0;
}
"#;

/// A MIX task in slot 1, one of eight blocks in slot 2, one without kernels that asks for slot 3, one that its
/// predicate skips in slot 4; the last kernel of each takes 20 ms, or the last block.
const SHAPES: &str = r#"
#include "submit.h"
int aicpu_orchestration_entry(const SimplerOrchestrationApi *api, SimplerRun *run, const SimplerChipArgs *args) {
    SimplerTensor y = args->tensors[0];
    SimplerTaskArg list[] = {{&y, SIMPLER_INOUT}};
    SimplerTask mix = simpler_task(list, 1), blocks = mix, dummy = mix, skipped = mix;
    mix.aic = 1;
    mix.aiv0 = 0;
    mix.aiv1 = 2;
    blocks.aiv0 = skipped.aiv0 = 2;
    blocks.block_count = 8;
    simpler_task_set_predicate(&skipped, 0);
    simpler_task_set_timing_slot(&mix, 1);
    simpler_task_set_timing_slot(&blocks, 2);
    simpler_task_set_timing_slot(&dummy, 3);
    simpler_task_set_timing_slot(&skipped, 4);
    return api->submit_task(run, &mix) < 0 || api->submit_task(run, &blocks) < 0 ||
           api->submit_dummy_task(run, &dummy) < 0 || api->submit_task(run, &skipped) < 0;
}
"#;

/// Nothing, and the same for 20 ms in the last block.
const NOTHING: &str =
    "#include <simpler/kernel.h>\nvoid kernel_entry(const SimplerKernelArgs *args) { (void)args; }\n";
const LAST_IS_LONG: &str = r#"
#include <simpler/kernel.h>
#include <time.h>
void kernel_entry(const SimplerKernelArgs *args) {
    struct timespec t = {0, 20000000};
    if (args->block_index + 1 == args->block_count) while (nanosleep(&t, &t)) { }
}
"#;

/// Slot to (ts, dur).
type Slots = BTreeMap<usize, (i64, i64)>;

/// The slots of each run so far, and whether its other device spans are those of its runtime.
fn slots(directory: &std::path::Path) -> Vec<(Slots, Vec<String>)> {
    let mut runs: BTreeMap<u64, (Slots, Vec<String>)> = BTreeMap::new();
    for span in log::spans(directory) {
        let (slots, others) = runs.entry(span.inv).or_default();
        let Some(leaf) = span.name.strip_prefix("simpler_run.runner_run.device_wall") else { continue };
        match leaf.strip_prefix(".task_slot_") {
            Some(slot) => {
                assert_eq!((span.depth, span.attrs.as_str()), (3, "clk=dev"), "{span:?}");
                let before = slots.insert(slot.parse().unwrap(), (span.ts, span.dur));
                assert_eq!(before, None, "slot {slot} once a run");
            }
            None => others.push(leaf.to_owned()),
        }
    }
    runs.into_values().collect()
}

#[test]
fn a_tagged_task_leaves_one_window_in_every_runtime() {
    let directory = tempfile::tempdir().unwrap();
    log::start(directory.path());
    let kernels = [("add", CoreKind::Aiv, ADD_KERNEL), ("add_cube", CoreKind::Aic, ADD_KERNEL)];
    let image = image("tagged", TAGGED, &kernels);
    let arms = arms();
    for arm in arms.clone() {
        let chip = chip_of(arm);
        let id = chip.register(&image).unwrap();
        let mut y = vec![1.0; 4096];
        let mut go = |scalars: &[u64]| {
            let tensors = vec![host(&mut y, ArgUse::InOut)];
            run(&chip, id, &RunArgs { tensors, scalars: scalars.to_vec(), ..RunArgs::default() })
        };
        // Distinct slots, the ends of the range; one slot for two tasks; none.
        go(&[0, 99, 15]).unwrap();
        go(&[7, 99, 7]).unwrap();
        go(&[99, 99]).unwrap();
        // Refused: error 5, and the slot that was set before stays in the task.
        for bad in [2000 + 16, 2000 + 100, 2000 - 1] {
            let error = go(&[3, bad]).unwrap_err();
            assert_eq!(error.code, -5, "{error}");
            assert!(error.text.contains("task-timing slot") && error.text.contains("0 to 15"), "{error}");
        }
    }
    let runs = slots(directory.path());
    assert_eq!(runs.len(), arms.len() * 6);
    for ((_, graph_runtime), runs) in arms.iter().zip(runs.chunks(6)) {
        let [distinct, shared, untagged, refused @ ..] = runs else { panic!("six runs") };
        let (distinct, others) = distinct;
        assert_eq!(distinct.keys().copied().collect::<Vec<_>>(), [0, 15]);
        assert!(distinct.values().all(|(ts, dur)| *ts >= 0 && *dur > 0), "{distinct:?}");
        // The second depends on the first: its dispatch is no earlier than the first one's finish.
        let ((first, first_dur), (second, _)) = (distinct[&0], distinct[&15]);
        assert!(second >= first + first_dur, "{distinct:?}");
        assert_eq!(shared.0.keys().copied().collect::<Vec<_>>(), [7], "one merged window");
        assert_eq!(untagged.0, Slots::new());
        assert!(refused.iter().all(|(slots, others)| slots.is_empty() && others.is_empty()), "{refused:?}");
        match graph_runtime {
            GraphRuntime::TensorMapAndRingBuffer => {
                assert!(others.contains(&".orch".to_owned()) && others.contains(&".sched".to_owned()));
            }
            GraphRuntime::HostBuildGraph => {
                // The wall alone, and times from the first dispatch on.
                assert_eq!(others, &[String::new()], "{:?}", Phase::RunWall);
                assert_eq!(first, 0);
            }
        }
    }
}

#[test]
fn all_parts_of_a_task_are_one_window_and_a_task_that_does_not_run_has_none() {
    let directory = tempfile::tempdir().unwrap();
    log::start(directory.path());
    let kernels = [
        ("nothing", CoreKind::Aiv, NOTHING),
        ("nothing_cube", CoreKind::Aic, NOTHING),
        ("last_is_long", CoreKind::Aiv, LAST_IS_LONG),
    ];
    let image = image("shapes", SHAPES, &kernels);
    for arm in arms() {
        let chip = chip_of(arm);
        // Zeros: the predicate says no.
        let mut y = vec![0.0; 4];
        run_once(&chip, &image, vec![host(&mut y, ArgUse::InOut)], vec![]).unwrap();
    }
    let runs = slots(directory.path());
    assert_eq!(runs.len(), arms().len());
    for (slots, _) in runs {
        assert_eq!(slots.keys().copied().collect::<Vec<_>>(), [1, 2], "{slots:?}");
        assert!(slots.values().all(|(_, dur)| *dur >= 20_000_000), "{slots:?}");
        assert!(slots[&2].0 >= slots[&1].0 + slots[&1].1, "{slots:?}");
    }
}

#[test]
fn an_orchestration_in_cpp_tags_and_orders_its_tasks() {
    let directory = tempfile::tempdir().unwrap();
    log::start(directory.path());
    let source = SourceFile::new("tagged_cpp.cpp", TAGGED_CPP);
    let objects = compile_source("tagged_cpp", source, &[("add", CoreKind::Aiv, ADD_KERNEL)]);
    let image = CallableImage::load(&objects).unwrap();
    for arm in arms() {
        let chip = chip_of(arm);
        let id = chip.register(&image).unwrap();
        let mut y = vec![1.0; 4096];
        let args = |y: &mut [f32], bad| RunArgs {
            tensors: vec![host(y, ArgUse::InOut)],
            scalars: vec![bad],
            ..RunArgs::default()
        };
        run(&chip, id, &args(&mut y, 0)).unwrap();
        assert_eq!(y, [4.0; 4096]);
        let error = run(&chip, id, &args(&mut y, 1)).unwrap_err();
        assert!(error.code == -5 && error.text.contains("task-timing slot"), "{error}");
    }
    for runs in slots(directory.path()).chunks(2) {
        let slots = &runs[0].0;
        assert_eq!(slots.keys().copied().collect::<Vec<_>>(), [2, 5]);
        assert!(slots[&5].0 >= slots[&2].0 + slots[&2].1, "{slots:?}");
        assert!(runs[1].0.is_empty());
    }
}
