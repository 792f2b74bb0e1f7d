//! Tasks that are on their cores before what they wait for is done: that they are, and that they start no earlier. One
//! test a process: the log belongs to it.

#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

#[path = "support/log.rs"]
mod log;
mod support;

use simpler_kernel_abi::{ArgUse, CoreKind};
use simpler_runtime::{
    CallConfig, CallableImage, ChipRuntime, GraphRuntime, RunArgs, RunError, RuntimeConfig,
};
use simpler_swimlane::Level;
use support::*;

/// A chain of three tasks in slots 1 to 3, each y = y + 1. In slot 0 there is
/// another one, which takes 2 ms and which the second waits for, too.
///
/// Scalars: which tasks of slots 0 to 2 resolve early, by bit; how long the orchestration waits between submits, in ms;
/// the shape of the second; how long the first takes, in ms.
const CHAIN: &str = r#"
#include "submit.h"
#include <time.h>
int aicpu_orchestration_entry(const SimplerOrchestrationApi *api, SimplerRun *run, const SimplerChipArgs *args) {
    SimplerTensor y = args->tensors[0], z = args->tensors[1];
    SimplerTaskArg in_y[] = {{&y, SIMPLER_INOUT}, {&z, SIMPLER_NO_DEP}};
    SimplerTaskArg in_z[] = {{&z, SIMPLER_INOUT}, {&y, SIMPLER_NO_DEP}};
    SimplerTaskArg in_both[] = {{&y, SIMPLER_INOUT}, {&z, SIMPLER_INPUT}};
    for (int slot = 0; slot < 4; slot++) {
        SimplerTask task = simpler_task(slot == 0 ? in_z : slot == 2 ? in_both : in_y, 2);
        uint64_t ms = slot == 0 ? 2 : slot == 1 ? args->scalars[3] : 0;
        task.scalars = &ms;
        task.scalar_count = 1;
        if (slot == 0) task.aic = 1; else task.aiv0 = 0;
        if ((args->scalars[0] >> slot) & 1) task.attrs = SIMPLER_TASK_EARLY_RESOLVE;
        if (slot == 2) switch (args->scalars[2]) {
        case 1: task.block_count = 4; break;
        case 2: task.aic = 1; task.aiv1 = 0; break;
        case 3: task.block_count = 4; task.attrs |= SIMPLER_TASK_SYNC_START; break;
        case 4: task.aiv0 = SIMPLER_NO_KERNEL; break;
        }
        simpler_task_set_timing_slot(&task, slot);
        if ((slot && task.aiv0 < 0 ? api->submit_dummy_task(run, &task) : api->submit_task(run, &task)) < 0) return 1;
        struct timespec t = {0, (long)args->scalars[1] * 1000000};
        while (nanosleep(&t, &t)) { }
    }
    return 0;
}
"#;

/// Sleeps as long as its scalar says, then adds 1 to a word of its own: by its block and by how many kernels did before.
const ADD_ONE: &str = r#"
#include <simpler/kernel.h>
#include <time.h>
void kernel_entry(const SimplerKernelArgs *args) {
    struct timespec t = {0, (long)args->scalars[0] * 1000000};
    while (nanosleep(&t, &t)) { }
    __atomic_fetch_add((uint32_t *)simpler_tensor_data(args->tensors[0]), 1, __ATOMIC_RELAXED);
}
"#;

/// Runs the chain; the words.
fn chain(
    chip: &ChipRuntime,
    image: &CallableImage,
    scalars: [u64; 4],
    config: CallConfig,
) -> Result<[u32; 2], RunError> {
    let (mut y, mut z) = ([0.0_f32], [0.0_f32]);
    let id = chip.register(image)?;
    let tensors = vec![host(&mut y, ArgUse::InOut), host(&mut z, ArgUse::InOut)];
    run(chip, id, &RunArgs { tensors, scalars: scalars.to_vec(), config })?;
    Ok([y[0].to_bits(), z[0].to_bits()])
}

fn chain_image() -> CallableImage {
    image("chain", CHAIN, &[("add_one", CoreKind::Aiv, ADD_ONE), ("add_one_cube", CoreKind::Aic, ADD_ONE)])
}

/// The windows of the last run's slots: dispatch and finish.
fn last_slots(directory: &std::path::Path) -> [Option<(i64, i64)>; 4] {
    let spans = log::spans(directory);
    let last = spans.last().unwrap().inv;
    [0, 1, 2, 3].map(|slot| {
        let leaf = format!(".task_slot_{slot}");
        let span = spans.iter().find(|span| span.inv == last && span.name.ends_with(&leaf))?;
        Some((span.ts, span.ts + span.dur))
    })
}

#[test]
fn a_task_is_on_its_cores_before_what_it_waits_for_is_done_where_that_allows_it() {
    let directory = tempfile::tempdir().unwrap();
    log::start(directory.path());
    let image = chain_image();
    for arm in arms() {
        let chip = chip_of(arm.clone());
        for (resolve, between_ms, shape) in [
            // Nobody allows it; the first alone, with the one in slot 0 done in time; the first two; all.
            (0b000, 0, 0),
            (0b010, 0, 0),
            (0b110, 0, 0),
            (0b111, 0, 0),
            // The one in slot 0 allows it, the one that takes long does not.
            (0b101, 0, 0),
            // Submitted when what they wait for runs already.
            (0b110, 4, 0),
            // Of several blocks, and of several kernels.
            (0b110, 0, 1),
            (0b110, 0, 2),
            // What gathers its cores, and what has no kernels, is not put there, nor what waits for that.
            (0b110, 0, 3),
            (0b110, 0, 4),
        ] {
            let scalars = [resolve, between_ms, shape, 20];
            let words = chain(&chip, &image, scalars, CallConfig::default()).unwrap();
            let second = [1, 4, 3, 4, 0][shape as usize];
            let what = format!("{resolve:#05b} {between_ms} ms, shape {shape} on {arm:?}");
            assert_eq!(words, [2 + second, 1], "{what}");
            let slots = last_slots(directory.path());
            let (_, first_ends) = slots[1].unwrap();
            let before = |slot: usize| slots[slot].map(|(dispatched, _)| dispatched < first_ends);
            let (second, third) = match (resolve, shape) {
                (0b010 | 0b111, 0) => (Some(true), Some(resolve == 0b111)),
                (0b110, 0..=2) => (Some(true), Some(true)),
                (0b110, 4) => (None, Some(false)),
                _ => (Some(false), Some(false)),
            };
            // A scheduler with one cluster has none for several kernels while a task before is on it; and, as after several
            // blocks, it may have no core left for the third.
            let has_one = chip.platform().profile().arch == "a5" && arm.1 == GraphRuntime::HostBuildGraph;
            if !(has_one && shape == 2) {
                assert_eq!(before(2), second, "{what}: {slots:?}");
            }
            if !(has_one || shape == 1) || third == Some(false) {
                assert_eq!(before(3), third, "{what}: {slots:?}");
            }
            // It starts no earlier for that.
            for slot in [2, 3] {
                assert!(slots[slot].is_none_or(|(_, ends)| ends > first_ends), "{what}: {slots:?}");
            }
        }
    }
}

#[test]
fn a_run_that_fails_with_tasks_staged_names_what_runs_and_the_next_one_is_right() {
    let directory = tempfile::tempdir().unwrap();
    log::start(directory.path());
    let image = chain_image();
    for (profile, graph_runtime) in arms() {
        let npu = simpler_sim_npu::SimNpu::new(profile, Default::default()).unwrap();
        let scheduler_timeout = std::time::Duration::from_millis(200);
        let config =
            RuntimeConfig { graph_runtime, limits: small(), scheduler_timeout, ..RuntimeConfig::default() };
        let chip = ChipRuntime::new(npu, config).unwrap();
        for _ in 0..2 {
            let error = chain(&chip, &image, [0b110, 0, 1, 600], CallConfig::default()).unwrap_err();
            assert_eq!(error.code, -100, "{error}");
            assert!(error.text.contains("sub-class 1") && error.text.contains("task 1 (add_one)"), "{error}");
            // Those that are staged wait, and do not run.
            assert!(!error.text.contains("task 2") && !error.text.contains("task 3"), "{error}");
            let words = chain(&chip, &image, [0b110, 0, 1, 20], CallConfig::default()).unwrap();
            assert_eq!(words, [6, 1]);
        }
    }
    // Nor does anybody wait for them to return.
    let text = log::text(directory.path());
    let still: Vec<_> = text.lines().filter(|line| line.contains("still running")).collect();
    assert!(!still.is_empty());
    for line in still {
        assert!(
            line.contains("task 1 (") && !line.contains("task 2 (") && !line.contains("task 3 ("),
            "{line}"
        );
    }
}

#[cfg(feature = "dfx")]
#[test]
fn the_staging_of_a_task_is_a_phase_of_its_scheduler() {
    let folder = tempfile::tempdir().unwrap();
    log::start(folder.path());
    let (image, chip) = (chain_image(), small_chip());
    let config = CallConfig {
        swimlane: Level::SchedulerPhases,
        output_prefix: Some(folder.path().join("records")),
        ..CallConfig::default()
    };
    assert_eq!(chain(&chip, &image, [0b110, 0, 1, 20], config).unwrap(), [6, 1]);
    // Seven parts, none lost though those that are staged are reserved long before they run.
    let text = log::text(folder.path());
    let line = text.lines().find(|line| line.contains(" collected + ")).unwrap_or_else(|| panic!("{text}"));
    assert!(line.contains("collected + 0 dropped"), "{line}");
    let artifacts: Vec<_> = walk(&folder.path().join("records"));
    let [artifact] = &artifacts[..] else { panic!("{artifacts:?}") };
    let artifact = std::fs::read_to_string(artifact).unwrap();
    assert!(artifact.contains("early_dispatch"), "{artifact}");
}

/// The files below a folder.
#[cfg(feature = "dfx")]
fn walk(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
}
