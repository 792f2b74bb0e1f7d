//! Task shapes: MIX, blocks, blocks that start together, predicates, tasks without kernels; in each runtime, on each
//! platform.

#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use simpler_kernel_abi::{ArgUse, CoreKind};
use simpler_runtime::{CallableImage, RunArgs};
use support::*;

/// Runs `image` once on a chip of each arm; `check` sees what became of the words.
fn on_each_arm(image: &CallableImage, words: usize, scalars: &[u64], check: impl Fn(&[u32])) {
    for chip in small_chips() {
        let id = chip.register(image).unwrap();
        for _ in 0..5 {
            let mut values = vec![0.0; words];
            let args = RunArgs {
                tensors: vec![host(&mut values, ArgUse::InOut)],
                scalars: scalars.to_vec(),
                ..RunArgs::default()
            };
            run(&chip, id, &args).unwrap();
            check(&values.iter().map(|value| value.to_bits()).collect::<Vec<_>>());
        }
    }
}

/// Words of the one tensor: [0] how many have arrived; then one a part. Each part says in its word that it came, and
/// leaves only when as many as scalars[0] have arrived: it returns only if all of them run at the same time.
fn meeting(role: u32) -> String {
    format!(
        r#"
#include <simpler/kernel.h>
#include <sched.h>
void kernel_entry(const SimplerKernelArgs *args) {{
    uint32_t *words = simpler_tensor_data(args->tensors[0]);
    uint32_t parties = (uint32_t)args->scalars[0], part = args->block_index * 3 + {role};
    __atomic_fetch_add(&words[1 + part], 1 + (args->block_count << 8), __ATOMIC_RELAXED);
    __atomic_fetch_add(&words[0], 1, __ATOMIC_ACQ_REL);
    while (__atomic_load_n(&words[0], __ATOMIC_ACQUIRE) < parties) sched_yield();
}}
"#
    )
}

/// scalars: the places to use by bit, the blocks, the parties, the attributes, ordinary tasks before and after.
const MEET: &str = r#"
#include "submit.h"
int aicpu_orchestration_entry(const SimplerOrchestrationApi *api, SimplerRun *run, const SimplerChipArgs *args) {
    const uint64_t *s = args->scalars;
    SimplerTensor words = args->tensors[0];
    for (uint64_t i = 0; i < 2 * s[4] + 1; i++) {
        SimplerTensor out = fresh(4);
        SimplerTaskArg meets[] = {{&words, SIMPLER_INOUT}}, other[] = {{&out, SIMPLER_OUTPUT}};
        SimplerTask task = simpler_task(i == s[4] ? meets : other, 1);
        if (i == s[4]) {
            if (s[0] & 1) task.aic = 0;
            if (s[0] & 2) task.aiv0 = 1;
            if (s[0] & 4) task.aiv1 = 2;
            task.block_count = (uint32_t)s[1];
            task.attrs = (uint8_t)s[3];
            task.scalars = &s[2];
            task.scalar_count = 1;
        } else if (i % 3) {
            task.aiv0 = 3;
        } else {
            task.aic = 4;
        }
        if (api->submit_task(run, &task) < 0) return 1;
    }
    return 0;
}
"#;

/// Takes a moment.
const BUSY: &str = r#"
#include <simpler/kernel.h>
void kernel_entry(const SimplerKernelArgs *args) {
    volatile float *out = simpler_tensor_data(args->tensors[0]);
    for (int i = 0; i < 20000; i++) out[0] = (float)i;
}
"#;

fn meet() -> CallableImage {
    let kernels = [
        ("meet_cube", CoreKind::Aic, &*meeting(0)),
        ("meet_first", CoreKind::Aiv, &*meeting(1)),
        ("meet_second", CoreKind::Aiv, &*meeting(2)),
        ("busy", CoreKind::Aiv, BUSY),
        ("busy_cube", CoreKind::Aic, BUSY),
    ];
    image("meet", MEET, &kernels)
}

const SYNC_START: u64 = simpler_kernel_abi::TASK_SYNC_START as u64;

#[test]
fn the_kernels_of_a_mix_task_run_at_the_same_time() {
    let image = meet();
    for (places, roles) in
        [(0b111, vec![0, 1, 2]), (0b011, vec![0, 1]), (0b101, vec![0, 2]), (0b110, vec![1, 2])]
    {
        // Alone, and in the middle of tasks that keep every core busy.
        for others in [0, 60] {
            on_each_arm(&image, 4, &[places, 1, roles.len() as u64, 0, others], |words| {
                assert_eq!(words[0], roles.len() as u32);
                for role in 0..3 {
                    let came = u32::from(roles.contains(&role));
                    assert_eq!(words[1 + role as usize], came * 257, "role {role} of {places:#b}");
                }
            });
        }
    }
}

#[test]
fn every_block_runs_once_on_whatever_core_is_free() {
    let image = meet();
    for blocks in [2, 8, 100, 1000] {
        for (places, roles) in [(0b001, vec![0]), (0b010, vec![1]), (0b100, vec![2]), (0b111, vec![0, 1, 2])]
        {
            // Only the parts of one block wait for each other: one party less than there are is always there.
            let parties = if roles.len() == 1 { 0 } else { 3 };
            on_each_arm(&image, 1 + 3 * blocks as usize, &[places, blocks, parties, 0, 10], |words| {
                assert_eq!(words[0], roles.len() as u32 * blocks as u32);
                for (part, word) in words[1..].iter().enumerate() {
                    let expected = if roles.contains(&(part % 3)) { 1 + ((blocks as u32) << 8) } else { 0 };
                    assert_eq!(*word, expected, "part {part} of {blocks} blocks of {places:#b}");
                }
            });
        }
    }
}

#[test]
fn blocks_that_start_together_may_wait_for_each_other() {
    let image = meet();
    // All cores of a kind, all clusters, one less, one.
    for (places, blocks, roles) in
        [(0b001, 8, 1), (0b010, 16, 1), (0b111, 8, 3), (0b010, 15, 1), (0b101, 3, 2), (0b001, 1, 1)]
    {
        for others in [0, 60] {
            let parties = blocks * roles;
            on_each_arm(&image, 1 + 3 * 16, &[places, blocks, parties, SYNC_START, others], |words| {
                assert_eq!(u64::from(words[0]), parties, "{blocks} blocks of {places:#b}");
                assert_eq!(words[1..].iter().filter(|word| **word != 0).count() as u64, parties);
            });
        }
    }
}

/// Many tasks of every shape whose blocks start together, none of which waits for another one.
const MANY_MEETINGS: &str = r#"
#include "submit.h"
int aicpu_orchestration_entry(const SimplerOrchestrationApi *api, SimplerRun *run, const SimplerChipArgs *args) {
    for (uint64_t i = 0; i < 24; i++) {
        SimplerTensor words = view(&args->tensors[0], i * 64, 64);
        SimplerTaskArg meets[] = {{&words, SIMPLER_INOUT}};
        SimplerTask task = simpler_task(meets, 1);
        uint64_t parties = 8;
        task.attrs = SIMPLER_TASK_SYNC_START;
        task.block_count = 8;
        task.scalars = &parties;
        task.scalar_count = 1;
        if (i % 3 != 0) task.aiv0 = 1;
        if (i % 3 != 1) task.aic = 0;
        if (i % 3 == 2) parties = 16;
        if (api->submit_task(run, &task) < 0) return 1;
    }
    return 0;
}
"#;

#[test]
fn meetings_take_turns() {
    let kernels = [("meet_cube", CoreKind::Aic, &*meeting(0)), ("meet_first", CoreKind::Aiv, &*meeting(1))];
    on_each_arm(&image("many_meetings", MANY_MEETINGS, &kernels), 24 * 64, &[], |words| {
        for (meeting, words) in words.chunks(64).enumerate() {
            assert_eq!(words[0], if meeting % 3 == 2 { 16 } else { 8 }, "meeting {meeting}");
        }
    });
}

/// A meeting of all AIVs, in front of which some are busy, and then the end of the run.
const CALLED_OFF: &str = r#"
#include "submit.h"
int aicpu_orchestration_entry(const SimplerOrchestrationApi *api, SimplerRun *run, const SimplerChipArgs *args) {
    SimplerTensor words = args->tensors[0];
    uint64_t parties = 16;
    for (uint64_t i = 0; i < args->scalars[0] + 1; i++) {
        SimplerTensor out = fresh(4);
        SimplerTaskArg meets[] = {{&words, SIMPLER_INOUT}}, other[] = {{&out, SIMPLER_OUTPUT}};
        int last = i == args->scalars[0];
        SimplerTask task = simpler_task(last ? meets : other, 1);
        task.aiv0 = last ? 0 : 1;
        task.scalars = &parties;
        task.scalar_count = 1;
        if (last) {
            task.block_count = 16;
            task.attrs = SIMPLER_TASK_SYNC_START;
        }
        if (api->submit_task(run, &task) < 0) return 1;
    }
    for (volatile uint64_t i = 0; i < args->scalars[1]; i++) { }
    api->report_fatal(run, "called off");
    return 0;
}
"#;

#[test]
fn a_run_that_fails_while_a_task_gathers_leaves_no_kernel_waiting() {
    let kernels = [("meet_first", CoreKind::Aiv, &*meeting(1)), ("busy", CoreKind::Aiv, BUSY)];
    let image = image("called_off", CALLED_OFF, &kernels);
    let chip = small_chip();
    let id = chip.register(&image).unwrap();
    // At all moments: while cores are missing, when the last is claimed, when all have started.
    for round in 0..60 {
        let mut words = vec![0.0; 64];
        let tensors = vec![host(&mut words, ArgUse::InOut)];
        let scalars = vec![round % 20, (round * round) % 61 * 2_000];
        let error = run(&chip, id, &RunArgs { tensors, scalars, ..RunArgs::default() }).unwrap_err();
        assert_eq!((error.code, error.text.as_str()), (-9, "called off"));
    }
}

/// words[0] := scalars[0]; then a task with it as its predicate sets words[1] to 7 (in two blocks: each adds), one
/// without sets words[2] after both; the one with the predicate is tagged.
const DECIDE: &str = r#"
#include "submit.h"
int aicpu_orchestration_entry(const SimplerOrchestrationApi *api, SimplerRun *run, const SimplerChipArgs *args) {
    SimplerTensor which = view(&args->tensors[0], 0, 1), maybe = view(&args->tensors[0], 1, 1),
                  always = view(&args->tensors[0], 2, 1);
    SimplerTaskArg decides[] = {{&which, SIMPLER_OUTPUT_EXISTING}};
    SimplerTaskArg may[] = {{&maybe, SIMPLER_INOUT}, {&which, SIMPLER_INPUT}};
    SimplerTaskArg does[] = {{&always, SIMPLER_OUTPUT_EXISTING}, {&maybe, SIMPLER_INPUT}};
    SimplerTask first = simpler_task(decides, 1), second = simpler_task(may, 2), third = simpler_task(does, 2);
    uint64_t seven = 7;
    first.aiv0 = second.aiv0 = third.aic = 0;
    third.aic = 1;
    first.scalars = args->scalars;
    second.scalars = third.scalars = &seven;
    first.scalar_count = second.scalar_count = third.scalar_count = 1;
    simpler_task_set_predicate(&second, 1);
    second.block_count = 2;
    if (args->scalars[1]) second.attrs |= SIMPLER_TASK_SYNC_START;
    if (api->submit_task(run, &first) < 0 || api->submit_task(run, &second) < 0) return 1;
    return api->submit_task(run, &third) < 0;
}
"#;

const ADD_WORD: &str = r#"
#include <simpler/kernel.h>
void kernel_entry(const SimplerKernelArgs *args) {
    uint32_t *word = simpler_tensor_data(args->tensors[0]);
    __atomic_fetch_add(word, (uint32_t)args->scalars[0], __ATOMIC_RELAXED);
}
"#;

#[test]
fn a_predicate_decides_when_the_task_is_ready() {
    let image =
        image("decide", DECIDE, &[("add", CoreKind::Aiv, ADD_WORD), ("add_cube", CoreKind::Aic, ADD_WORD)]);
    for together in [0, 1] {
        on_each_arm(&image, 3, &[0, together], |words| assert_eq!(words, [0, 0, 7]));
        on_each_arm(&image, 3, &[9, together], |words| assert_eq!(words, [9, 14, 7]));
        // Any of the 32 bits counts.
        on_each_arm(&image, 3, &[1 << 31, together], |words| assert_eq!(words, [1 << 31, 14, 7]));
    }
}

/// Layers of adders of one word each, a chain of tasks without kernels between each two layers, and nothing else that
/// orders them: every adder of a layer is before every adder of the next. The words are of a tensor that was allocated.
const JOINED: &str = r#"
#include "submit.h"
int aicpu_orchestration_entry(const SimplerOrchestrationApi *api, SimplerRun *run, const SimplerChipArgs *args) {
    uint64_t layers = args->scalars[0], width = args->scalars[1], chain = args->scalars[2];
    SimplerTensor seen = args->tensors[0], own = fresh(4), empty = fresh(0), *both[] = {&own, &empty};
    int64_t allocated = api->alloc_tensors(run, both, 2);
    if (allocated != 0 || own.addr == 0 || own.addr % 1024 || own.owner_task != 0 || empty.addr != 0) return 2;
    SimplerTaskArg none[] = {{&own, SIMPLER_NO_DEP}};
    int64_t join = allocated;
    for (uint64_t layer = 0; layer < layers; layer++) {
        int64_t ids[32];
        for (uint64_t i = 0; i < width; i++) {
            SimplerTensor word = view(&seen, 0, 1);
            word.manual_dep = 1;
            SimplerTaskArg list[] = {{&word, SIMPLER_INOUT}, {&own, SIMPLER_NO_DEP}};
            SimplerTask task = simpler_task(list, 2);
            uint64_t scalars[] = {layer, width};
            if (i % 2) task.aic = 1; else task.aiv0 = 0;
            task.scalars = scalars;
            task.scalar_count = 2;
            task.deps = &join;
            task.dep_count = 1;
            ids[i] = api->submit_task(run, &task);
            if (ids[i] < 0) return 3;
        }
        SimplerTask dummy = simpler_task(none, 1);
        dummy.deps = ids;
        dummy.dep_count = (uint32_t)width;
        /* What means nothing for it is not looked at. */
        dummy.block_count = 0;
        dummy.attrs = SIMPLER_TASK_PREDICATE | SIMPLER_TASK_EARLY_RESOLVE;
        simpler_task_set_timing_slot(&dummy, 3);
        for (uint64_t i = 0; i < chain; i++) {
            join = api->submit_dummy_task(run, &dummy);
            if (join < 0) return 4;
            dummy.deps = &join;
            dummy.dep_count = 1;
        }
    }
    return 0;
}
"#;

/// Counts itself in the word, if all of the layers before have been counted; else spoils it.
const COUNT_LAYER: &str = r#"
#include <simpler/kernel.h>
void kernel_entry(const SimplerKernelArgs *args) {
    uint32_t *seen = simpler_tensor_data(args->tensors[0]), layer = (uint32_t)args->scalars[0];
    uint32_t width = (uint32_t)args->scalars[1], before = __atomic_load_n(seen, __ATOMIC_ACQUIRE);
    *(float *)simpler_tensor_data(args->tensors[1]) = 1.0f;
    __atomic_fetch_add(seen, before / width == layer ? 1 : 1u << 20, __ATOMIC_ACQ_REL);
}
"#;

#[test]
fn tasks_without_kernels_join_and_allocate() {
    let kernels = [("count", CoreKind::Aiv, COUNT_LAYER), ("count_cube", CoreKind::Aic, COUNT_LAYER)];
    let image = image("joined", JOINED, &kernels);
    for (layers, width, chain) in [(1, 1, 1), (10, 7, 1), (5, 32, 3), (20, 2, 20)] {
        on_each_arm(&image, 1, &[layers, width, chain], |words| {
            assert_eq!(u64::from(words[0]), layers * width, "{layers} layers of {width}, {chain} joins");
        });
    }
}
