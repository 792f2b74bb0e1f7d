//! Scopes: what they give back, in which ring their tasks are, and what happens when there is no room.

#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use std::time::Duration;

use simpler_kernel_abi::{ArgUse, CoreKind};
use simpler_kernel_compiler::SourceFile;
use simpler_runtime::{
    CallConfig, CallableId, CallableImage, ChipRuntime, GraphRuntime, Limits, RINGS, RingLimits, RingSizes,
    RunArgs, RunError, RuntimeConfig,
};
use simpler_sim_npu::{Profile, SimNpu, SimOptions};
use support::*;

/// The orchestrations of these tests, by the first scalar; the second is how often. x is 256 floats, ids four words.
const SCOPES: &str = r#"
#include "submit.h"
static const SimplerOrchestrationApi *api;
static SimplerRun *run;

/* x = x + x0 by way of a fresh tensor of 1024 bytes. */
static int64_t step(SimplerTensor *x) {
    SimplerTensor sum = fresh(256);
    SimplerTaskArg a[] = {{x, SIMPLER_INPUT}, {x, SIMPLER_INPUT}, {&sum, SIMPLER_OUTPUT}};
    SimplerTask task = task_of(a, 3);
    task.aiv0 = 0;
    if (api->submit_task(run, &task) < 0) return -1;
    SimplerTaskArg b[] = {{&sum, SIMPLER_INPUT}, {x, SIMPLER_INOUT}};
    task = task_of(b, 2);
    task.aiv0 = 1;
    return api->submit_task(run, &task);
}

int aicpu_orchestration_entry(const SimplerOrchestrationApi *a, SimplerRun *r, const SimplerChipArgs *args) {
    api = a;
    run = r;
    SimplerTensor x = args->tensors[0], ids = args->tensors[1];
    uint64_t count = args->scalars[1];
    switch (args->scalars[0]) {
    case 0: /* A scope after the other, two tasks and a tensor each. */
        for (uint64_t i = 0; i < count; i++) {
            if (api->scope_begin(run) != 0 || step(&x) < 0 || api->scope_end(run) != 0) return 1;
        }
        return 0;
    case 1: { /* A task at each depth from 0 to 5, and what their ids are. */
        int64_t id[6];
        for (int depth = 0; depth < 6; depth++) {
            if (depth && api->scope_begin(run) != 0) return 1;
            SimplerTaskArg b[] = {{&x, SIMPLER_INOUT}};
            SimplerTask task = task_of(b, 1);
            id[depth] = api->submit_dummy_task(run, &task);
        }
        for (int depth = 1; depth < 6; depth++) api->scope_end(run);
        return api->set_tensor_data(run, &ids, id, sizeof id);
    }
    case 2: /* All in one scope. */
        api->scope_begin(run);
        for (uint64_t i = 0; i < count; i++) if (step(&x) < 0) return 1;
        return api->scope_end(run);
    case 3: /* So many scopes inside one another. */
        for (uint64_t i = 0; i < count; i++) if (api->scope_begin(run) != 0) return 1;
        for (uint64_t i = 0; i < count; i++) api->scope_end(run);
        return 0;
    case 4: api->scope_begin(run); return 0;
    case 5: return api->scope_end(run);
    case 6: { /* An output outside its scope. */
        api->scope_begin(run);
        SimplerTensor y = fresh(256);
        SimplerTaskArg b[] = {{&x, SIMPLER_INPUT}, {&x, SIMPLER_INPUT}, {&y, SIMPLER_OUTPUT}};
        SimplerTask task = task_of(b, 3);
        task.aiv0 = 0;
        api->submit_task(run, &task);
        api->scope_end(run);
        SimplerTaskArg c[] = {{&y, SIMPLER_INPUT}, {&x, SIMPLER_INOUT}};
        task = task_of(c, 2);
        task.aiv0 = 1;
        return api->submit_task(run, &task) < 0;
    }
    case 7: /* A scope that holds more scopes than there are records, empty ones and ones with a task. */
        api->scope_begin(run);
        for (uint64_t i = 0; i < count; i++) {
            if (api->scope_begin(run) != 0 || api->scope_begin(run) != 0) return 1;
            if (i % 3 == 0 && step(&x) < 0) return 2;
            if (api->scope_end(run) != 0 || api->scope_end(run) != 0) return 3;
        }
        return api->scope_end(run);
    case 8: { /* A dependency on a task that has come back, and on one that was never there. */
        int64_t first = -1;
        for (uint64_t i = 0; i < 40; i++) {
            api->scope_begin(run);
            int64_t id = step(&x);
            if (first < 0) first = id;
            api->scope_end(run);
        }
        SimplerTaskArg b[] = {{&x, SIMPLER_INOUT}};
        SimplerTask task = task_of(b, 1);
        int64_t deps[] = {first, (int64_t)1 << 32 | (int64_t)count};
        task.deps = deps;
        task.dep_count = 2;
        return api->submit_dummy_task(run, &task) < 0;
    }
    case 10: /* Independent scopes: an output of 1 KiB each, which is read late, into a part of y of its own. */
        for (uint64_t i = 0; i < count; i++) {
            api->scope_begin(run);
            SimplerTensor sum = fresh(256), y = view(&args->tensors[2], i * 256, 256);
            SimplerTaskArg b[] = {{&x, SIMPLER_INPUT}, {&x, SIMPLER_INPUT}, {&sum, SIMPLER_OUTPUT}};
            SimplerTask task = task_of(b, 3);
            task.aiv0 = 0;
            task.scalars = &i;
            task.scalar_count = 1;
            if (api->submit_task(run, &task) < 0) return 1;
            SimplerTaskArg c[] = {{&sum, SIMPLER_INPUT}, {&y, SIMPLER_OUTPUT_EXISTING}};
            task = task_of(c, 2);
            task.aiv0 = 3;
            if (api->submit_task(run, &task) < 0) return 2;
            api->scope_end(run);
        }
        return 0;
    case 11: { /* Two outputs of 4 KiB behind one of 2 KiB in a heap of 8. */
        api->scope_begin(run);
        SimplerTensor first = fresh(512);
        SimplerTaskArg b[] = {{&first, SIMPLER_OUTPUT}};
        SimplerTask task = task_of(b, 1);
        if (api->submit_dummy_task(run, &task) < 0) return 1;
        api->scope_end(run);
        api->scope_begin(run);
        SimplerTensor one = fresh(1024), two = fresh(1024);
        SimplerTaskArg c[] = {{&one, SIMPLER_OUTPUT}, {&two, SIMPLER_OUTPUT}};
        task = task_of(c, 2);
        if (api->submit_dummy_task(run, &task) < 0) return 2;
        if (two.addr != one.addr + 4096) return 3;
        return api->scope_end(run);
    }
    case 12: /* Scopes with more accesses than the region map holds, each behind a task that takes a while. */
        for (uint64_t i = 0; i < count; i++) {
            uint64_t ms = 5;
            api->scope_begin(run);
            SimplerTaskArg b[] = {{&x, SIMPLER_INOUT}};
            SimplerTask task = task_of(b, 1);
            task.aiv0 = 2;
            task.scalars = &ms;
            task.scalar_count = 1;
            if (api->submit_task(run, &task) < 0) return 1;
            for (uint64_t j = 0; j < 100; j++) {
                SimplerTensor many[32];
                SimplerTaskArg c[32];
                for (uint64_t k = 0; k < 32; k++) {
                    many[k] = x;
                    if (k) many[k].addr = 4096 * ((i * 100 + j) * 32 + k);
                    c[k].tensor = &many[k];
                    c[k].use = SIMPLER_INPUT;
                }
                task = task_of(c, 32);
                if (api->submit_dummy_task(run, &task) < 0) return 2;
            }
            api->scope_end(run);
        }
        return 0;
    case 14: { /* A task, so many empty scopes, and one that needs the place of the task. */
        SimplerTask none = task_of(0, 0);
        api->scope_begin(run);
        if (api->submit_dummy_task(run, &none) < 0) return 1;
        api->scope_end(run);
        for (uint64_t i = 0; i < count; i++) if (api->scope_begin(run) != 0 || api->scope_end(run) != 0) return 2;
        api->scope_begin(run);
        for (int i = 0; i < 8; i++) if (api->submit_dummy_task(run, &none) < 0) return 3;
        return api->scope_end(run);
    }
    case 13: { /* An output is looked at outside its scope. */
        api->scope_begin(run);
        SimplerTensor y = fresh(256);
        SimplerTaskArg b[] = {{&y, SIMPLER_OUTPUT}};
        SimplerTask task = task_of(b, 1);
        api->submit_dummy_task(run, &task);
        api->scope_end(run);
        float value;
        return api->get_tensor_data(run, &y, &value, sizeof value) < 0;
    }
    case 9: { /* A slow task in a scope that has ended, and a second scope that needs its place. */
        for (int i = 0; i < 2; i++) {
            api->scope_begin(run);
            SimplerTaskArg b[] = {{&x, SIMPLER_INOUT}};
            SimplerTask task = task_of(b, 1);
            task.aiv0 = 2;
            task.scalars = &count;
            task.scalar_count = 1;
            for (int j = 0; j < 4; j++) if (api->submit_task(run, &task) < 0) return 1;
            api->scope_end(run);
        }
        return 0;
    }
    }
    return 9;
}
"#;

const COPY: &str = r#"
#include <simpler/kernel.h>
void kernel_entry(const SimplerKernelArgs *args) {
    const float *from = simpler_tensor_data(args->tensors[0]);
    float *to = simpler_tensor_data(args->tensors[1]);
    for (uint32_t i = 0; i < args->tensors[1]->shapes[0]; i++) to[i] = from[i] * 0.5f + 1.0f;
}
"#;

const LATE_COPY: &str = r#"
#include <simpler/kernel.h>
#include <time.h>
void kernel_entry(const SimplerKernelArgs *args) {
    struct timespec t = {0, 200000};
    while (nanosleep(&t, &t)) { }
    const float *from = simpler_tensor_data(args->tensors[0]);
    float *to = simpler_tensor_data(args->tensors[1]);
    for (uint32_t i = 0; i < args->tensors[1]->shapes[0]; i++) to[i] = from[i];
}
"#;

/// Rings with room for eight tasks and eight tensors.
const TIGHT: RingLimits = RingLimits { window: 8, heap_bytes: 8 << 10, argument_bytes: 4 << 10, edges: 32 };

fn scopes() -> CallableImage {
    let aiv = CoreKind::Aiv;
    let kernels = [("add", ADD_KERNEL), ("copy", COPY), ("sleep", SLEEP_KERNEL), ("late_copy", LATE_COPY)];
    image("scopes", SCOPES, &kernels.map(|(name, text)| (name, aiv, text)))
}

fn chip_with(profile: Profile, config: RuntimeConfig) -> (ChipRuntime, CallableId) {
    let chip = ChipRuntime::new(SimNpu::new(profile, SimOptions::default()).unwrap(), config).unwrap();
    let id = chip.register(&scopes()).unwrap();
    (chip, id)
}

fn tight(limits: RingLimits) -> (ChipRuntime, CallableId) {
    let limits = Limits::each(limits);
    chip_with(Profile::a2a3sim(), RuntimeConfig { limits, ..RuntimeConfig::default() })
}

/// Runs one of them; what became of x, which starts as 0, 1, 2 and so on, and the ids.
fn call(
    (chip, id): &(ChipRuntime, CallableId),
    which: u64,
    count: u64,
) -> Result<(Vec<f32>, Vec<i64>), RunError> {
    let mut x: Vec<f32> = (0..256).map(|i| i as f32).collect();
    let mut ids = vec![0.0; 12];
    let tensors = vec![host(&mut x, ArgUse::InOut), host(&mut ids, ArgUse::InOut)];
    run(chip, *id, &RunArgs { tensors, scalars: vec![which, count], ..RunArgs::default() })?;
    let ids = ids.chunks(2).map(|half| u64::from(half[1].to_bits()) << 32 | u64::from(half[0].to_bits()));
    Ok((x, ids.map(u64::cast_signed).collect()))
}

/// x = (x + x) / 2 + 1 so many times.
fn stepped(count: u64) -> Vec<f32> {
    (0..256).map(|i| (i as u64 + count) as f32).collect()
}

#[test]
fn what_a_scope_held_is_used_again_once_all_in_it_is_done() {
    for profile in [Profile::a2a3sim(), Profile::a5sim()] {
        let config = RuntimeConfig { limits: Limits::each(TIGHT), ..RuntimeConfig::default() };
        let chip = chip_with(profile, config);
        // Two hundred times as many tasks, tensors and arguments as there is room for.
        for _ in 0..3 {
            assert_eq!(call(&chip, 0, 800).unwrap().0, stepped(800));
        }
    }
}

#[test]
fn an_output_is_another_ones_only_after_its_last_reader() {
    // Three tensors at a time, and any number of tasks.
    let heap = RingLimits { window: 256, heap_bytes: 3 << 10, argument_bytes: 256 << 10, edges: 1024 };
    let (chip, id) = tight(heap);
    let mut x: Vec<f32> = (0..256).map(|i| i as f32).collect();
    let mut ids = vec![0.0; 12];
    let mut y = vec![0.0; 100 * 256];
    let tensors = vec![
        host(&mut x, ArgUse::Input),
        host(&mut ids, ArgUse::Input),
        host(&mut y, ArgUse::OutputExisting),
    ];
    run(&chip, id, &RunArgs { tensors, scalars: vec![10, 100], ..RunArgs::default() }).unwrap();
    for (scope, part) in y.chunks(256).enumerate() {
        let expected: Vec<_> = x.iter().map(|x| 2.0 * x + scope as f32).collect();
        assert_eq!(part, expected, "scope {scope}");
    }
}

#[test]
fn a_tasks_outputs_have_room_wherever_the_heap_stands() {
    call(&tight(TIGHT), 11, 0).unwrap();
}

#[test]
fn a_full_region_map_waits_for_scopes_that_have_ended() {
    // 96,000 accesses in 3,000 tasks, all of which a ring could hold.
    let wide = RingLimits { window: 4096, argument_bytes: 32 << 20, edges: 1 << 16, ..TIGHT };
    assert_eq!(call(&tight(wide), 12, 30).unwrap().0, stepped(0));
}

#[test]
fn a_scope_at_depth_d_has_ring_d_and_all_deep_ones_the_last() {
    let ids = [0, 1 << 32, 2 << 32, 3 << 32, 3 << 32 | 1, 3 << 32 | 2];
    for (profile, graph_runtime) in arms() {
        let chip =
            chip_with(profile, RuntimeConfig { graph_runtime, limits: small(), ..RuntimeConfig::default() });
        assert_eq!(call(&chip, 1, 0).unwrap().1, ids, "{graph_runtime:?}");
    }
}

#[test]
fn a_scope_that_needs_more_than_its_ring_has_fails_at_once_and_says_what() {
    let large = RingLimits { window: 64, heap_bytes: 64 << 10, argument_bytes: 64 << 10, edges: 512 };
    for (limits, code, words) in [
        (RingLimits { window: 8, ..large }, -1, "ring 1: the task window is full: it has 8 tasks"),
        (RingLimits { argument_bytes: 4 << 10, ..large }, -1, "ring 1: the argument memory is full"),
        (RingLimits { heap_bytes: 8 << 10, ..large }, -2, "asks for 1024 bytes, 8192 of 8192 are in use"),
        (RingLimits { edges: 8, ..large }, -4, "the dependency pool is full: it has 8 dependencies"),
    ] {
        let chip = tight(limits);
        let error = call(&chip, 2, 30).unwrap_err();
        assert_eq!(error.code, code, "{error}");
        assert!(error.text.contains(words), "{error}");
        assert!(error.text.contains("belongs to a scope that is still open"), "{error}");
        // The runner is as usable as before.
        assert_eq!(call(&chip, 0, 20).unwrap().0, stepped(20));
    }
}

#[test]
fn a_ring_whose_ended_scope_does_not_finish_in_time_is_a_flow_control_deadlock() {
    let limits = Limits::each(RingLimits { window: 4, ..TIGHT });
    let scheduler_timeout = Duration::from_millis(200);
    let config = RuntimeConfig { limits, scheduler_timeout, ..RuntimeConfig::default() };
    let chip = chip_with(Profile::a2a3sim(), config);
    assert_eq!(call(&chip, 9, 1).unwrap().0, stepped(0));
    // Four times 100 ms: longer than the limit, but something finishes all the while.
    assert_eq!(call(&chip, 9, 100).unwrap().0, stepped(0));
    let error = call(&chip, 9, 400).unwrap_err();
    assert_eq!(error.code, -3, "{error}");
    assert!(
        error.text.contains("a scope which has ended holds (task 0 of ring 1 (sleep) on core "),
        "{error}"
    );
    assert!(error.text.contains("150 ms"), "{error}");
}

#[test]
fn scopes_that_do_not_pair_fail_the_run() {
    let deep = RingLimits { window: 256, ..TIGHT };
    for (which, count, code, words) in [
        (3, 65, -10, "more than 64 scopes inside one another"),
        (4, 0, -5, "the orchestration left 1 scopes open"),
        (5, 0, -5, "scope_end without a scope_begin"),
        (6, 0, -5, "the output of task 0 of ring 1, whose scope has ended"),
        (13, 0, -5, "the output of task 0 of ring 1, whose scope has ended"),
        (8, 1000, -5, "cannot wait for task 4294968296"),
    ] {
        let error = call(&tight(deep), which, count).unwrap_err();
        assert_eq!(error.code, code, "{which}: {error}");
        assert!(error.text.contains(words), "{which}: {error}");
    }
    call(&tight(deep), 3, 64).unwrap();
    // Where nothing comes back, too.
    let graph_runtime = GraphRuntime::HostBuildGraph;
    let config = RuntimeConfig { graph_runtime, limits: Limits::each(deep), ..RuntimeConfig::default() };
    let chip = chip_with(Profile::a2a3sim(), config);
    for which in [4, 5, 6, 13] {
        assert_eq!(call(&chip, which, 0).unwrap_err().code, -5, "{which}");
    }
}

#[test]
fn a_task_that_has_come_back_is_done() {
    // 80 tasks in a ring of 8: the first is long gone.
    assert_eq!(call(&tight(TIGHT), 8, 79).unwrap().0, stepped(40));
}

#[test]
fn there_may_be_more_scopes_than_records_if_they_end() {
    assert_eq!(call(&tight(TIGHT), 7, 6000).unwrap().0, stepped(2000));
}

#[test]
fn a_scope_that_has_an_earlier_ones_record_does_not_hold_that_ones_tasks() {
    // All 4096 records are used once and handed out again from the last to the first, which the last scope gets.
    call(&tight(TIGHT), 14, 2 * 4095).unwrap();
}

#[test]
fn a_graph_that_is_built_ahead_gets_nothing_back_and_says_so() {
    let graph_runtime = GraphRuntime::HostBuildGraph;
    let config = RuntimeConfig { graph_runtime, limits: Limits::each(TIGHT), ..RuntimeConfig::default() };
    let chip = chip_with(Profile::a2a3sim(), config);
    assert_eq!(call(&chip, 0, 4).unwrap().0, stepped(4));
    let error = call(&chip, 0, 5).unwrap_err();
    assert_eq!(error.code, -1, "{error}");
    assert!(error.text.contains("nothing comes back before the graph runs"), "{error}");
    assert_eq!(call(&chip, 0, 3).unwrap().0, stepped(3));
}

#[test]
fn a_run_may_choose_how_large_its_rings_are() {
    for (profile, graph_runtime) in arms() {
        let config = RuntimeConfig { graph_runtime, limits: Limits::each(TIGHT), ..RuntimeConfig::default() };
        let (chip, id) = chip_with(profile, config);
        let with = |sizes: RingSizes| {
            let mut x: Vec<f32> = (0..256).map(|i| i as f32).collect();
            let mut ids = vec![0.0; 12];
            let tensors = vec![host(&mut x, ArgUse::InOut), host(&mut ids, ArgUse::InOut)];
            let config = CallConfig { rings: [sizes; RINGS], ..CallConfig::default() };
            run(&chip, id, &RunArgs { tensors, scalars: vec![2, 20], config }).map(|()| x)
        };
        // Forty tasks and twenty tensors of 1 KiB, in one scope.
        let enough = RingSizes { window: Some(64), heap_bytes: Some(20 << 10), edges: Some(128) };
        let none = RingSizes::default();
        for _ in 0..2 {
            assert_eq!(with(none).unwrap_err().code, -1);
            assert_eq!(with(enough).unwrap(), stepped(20));
            assert_eq!(with(RingSizes { heap_bytes: Some(19 << 10), ..enough }).unwrap_err().code, -2);
            assert_eq!(with(RingSizes { edges: Some(16), ..enough }).unwrap_err().code, -4);
        }
        let error = with(RingSizes { window: Some(12), ..enough }).unwrap_err();
        assert_eq!(error.code, -5);
        assert!(error.text.contains("ring 0: a task window of 12 is not a power of two"), "{error}");
    }
}

/// The C++ scope, inside a scope.
const CPP: &str = r#"
#include "submit.h"
#include <simpler/orchestration.hpp>
extern "C" int aicpu_orchestration_entry(const SimplerOrchestrationApi *api, SimplerRun *run,
                                         const SimplerChipArgs *args) {
    SimplerTensor x = args->tensors[0];
    for (int i = 0; i < 100; i++) {
        simpler::TaskScope outer(api, run);
        if (outer.status() != 0) return 1;
        SimplerTensor sum = fresh(256);
        simpler::L0TaskArgs add;
        add.add_input(x);
        add.add_input(x);
        add.add_output(sum);
        if (add.submit(api, run, {SIMPLER_NO_KERNEL, 0}) < 0) return 2;
        simpler::TaskScope inner(api, run);
        simpler::L0TaskArgs copy;
        copy.add_input(sum);
        copy.add_inout(x);
        if (copy.submit(api, run, {SIMPLER_NO_KERNEL, 1}) < 0) return 3;
    }
    return 0;
}
"#;

#[test]
fn a_scope_of_cpp_ends_with_its_block() {
    let kernels = [("add", CoreKind::Aiv, ADD_KERNEL), ("copy", CoreKind::Aiv, COPY)];
    let objects = compile_source("scopes_cpp", SourceFile::new("scopes_cpp.cpp", CPP.to_owned()), &kernels);
    let (chip, _) = tight(TIGHT);
    let id = chip.register(&CallableImage::load(&objects).unwrap()).unwrap();
    let mut x: Vec<f32> = (0..256).map(|i| i as f32).collect();
    run(&chip, id, &RunArgs { tensors: vec![host(&mut x, ArgUse::InOut)], ..RunArgs::default() }).unwrap();
    assert_eq!(x, stepped(100));
}
