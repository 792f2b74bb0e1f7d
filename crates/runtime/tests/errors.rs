//! Runs that fail: the code, the sentence, and that the chip is usable afterwards.

#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use std::time::{Duration, Instant};

use simpler_kernel_abi::{ArgUse, CoreKind, SimplerTensor};
use simpler_runtime::{
    CallableImage, ChipArg, ChipRuntime, Limits, RingLimits, RunArgs, RunError, RuntimeConfig,
};
use simpler_sim_npu::{Profile, SimNpu, SimOptions};
use support::*;

/// One orchestration with a fault per number in `scalars[0]`; `scalars[1]` is how often, or how long.
const FAULTS: &str = r#"
#include "submit.h"
#include <time.h>
int aicpu_orchestration_config(SimplerOrchestrationConfig *config) {
    if (config->struct_size != sizeof *config) return 1;
    config->tensors_min = 1;
    config->scalars_min = 2;
    return 0;
}
static void wait_ms(uint64_t ms) {
    struct timespec t = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};
    while (nanosleep(&t, &t)) { }
}
int aicpu_orchestration_entry(const SimplerOrchestrationApi *api, SimplerRun *run, const SimplerChipArgs *args) {
    uint64_t fault = args->scalars[0], count = args->scalars[1];
    SimplerTensor x = args->tensors[0], other = x;
    uint64_t ms = count;
    SimplerTensor *tensors[33] = {&other, 0};
    SimplerTaskArg a[40];
    for (int i = 0; i < 40; i++) a[i] = (SimplerTaskArg){&x, SIMPLER_INPUT};
    a[2].use = SIMPLER_INOUT;
    a[2].tensor = &other;
    SimplerTask task = task_of(a, 3);
    task.aiv0 = 0;
    int64_t got = 0;
    switch (fault) {
    case 0: return api->submit_task(run, &task) < 0;
    case 1: got = api->submit_task(run, 0); break;
    case 2: task.struct_size -= 4; got = api->submit_task(run, &task); break;
    case 3: task.aiv0 = SIMPLER_NO_KERNEL; got = api->submit_task(run, &task); break;
    case 4: task.aiv0 = 7; got = api->submit_task(run, &task); break;
    case 5: task.aic = 0; task.aiv0 = SIMPLER_NO_KERNEL; got = api->submit_task(run, &task); break;
    case 6: task.block_count = 0; got = api->submit_task(run, &task); break;
    case 17: task.block_count = 65536; got = api->submit_task(run, &task); break;
    case 19: /* a predicate that the task writes only */
        a[2].use = SIMPLER_OUTPUT_EXISTING;
        simpler_task_set_predicate(&task, 2);
        got = api->submit_task(run, &task);
        break;
    case 46: simpler_task_set_predicate(&task, 3); got = api->submit_task(run, &task); break;
    case 47: simpler_task_set_predicate(&task, 32); got = api->submit_task(run, &task); break;
    case 48: x.extent = 3; simpler_task_set_predicate(&task, 0); got = api->submit_task(run, &task); break;
    case 49: /* more blocks than cores, or clusters, that start together */
        task.attrs = SIMPLER_TASK_SYNC_START;
        task.block_count = (uint32_t)count;
        if (count == 9) task.aic = 3;
        got = api->submit_task(run, &task);
        break;
    case 50: got = api->submit_dummy_task(run, &task); break;
    case 51: got = api->alloc_tensors(run, tensors, 0); break;
    case 52: got = api->alloc_tensors(run, tensors, 33); break;
    case 53: got = api->alloc_tensors(run, tensors, 2); break;
    case 54: got = api->submit_dummy_task(run, 0); break;
    case 7: task.arg_count = 33; got = api->submit_task(run, &task); break;
    case 8: task.args = 0; got = api->submit_task(run, &task); break;
    case 9: task.scalar_count = 17; task.scalars = args->scalars; got = api->submit_task(run, &task); break;
    case 10: task.scalar_count = 1; got = api->submit_task(run, &task); break;
    case 11: a[1].tensor = 0; got = api->submit_task(run, &task); break;
    case 12: a[1].use = 5; got = api->submit_task(run, &task); break;
    case 13: x.extent = x.bytes + 1; got = api->submit_task(run, &task); break;
    case 14: x.start_offset = UINT64_MAX; got = api->submit_task(run, &task); break;
    case 15: x.addr = 0; got = api->submit_task(run, &task); break;
    case 16: task.aiv0 = -2; got = api->submit_task(run, &task); break;
    case 20: for (uint64_t i = 0; i < count && got >= 0; i++) got = api->submit_task(run, &task); break;
    case 21:
        for (uint64_t i = 0; i < count && got >= 0; i++) {
            SimplerTensor out = fresh(1024);
            SimplerTaskArg b[] = {{&x, SIMPLER_INPUT}, {&x, SIMPLER_INPUT}, {&out, SIMPLER_OUTPUT}};
            task.args = b;
            got = api->submit_task(run, &task);
        }
        break;
    case 22: /* everything waits for a slow task */
        task.aiv0 = 1;
        task.scalars = &ms;
        task.scalar_count = 1;
        got = api->submit_task(run, &task);
        task.aiv0 = 2;
        task.scalar_count = 0;
        for (uint64_t i = 0; i < 40 && got >= 0; i++) got = api->submit_task(run, &task);
        break;
    case 23: { /* so many buffers, which nobody touches */
        SimplerTensor many[32];
        SimplerTaskArg b[32];
        for (uint64_t i = 0; i < count && got >= 0; i += 32) {
            for (uint64_t k = 0; k < 32; k++) {
                many[k] = x;
                many[k].addr = 4096 * (i + k + 1);
                b[k].tensor = &many[k];
                b[k].use = SIMPLER_INPUT;
            }
            SimplerTask none = task_of(b, 32);
            got = api->submit_dummy_task(run, &none);
        }
        break;
    }
    case 30: api->report_fatal(run, "the pages are gone"); return api->is_fatal(run) ? 0 : 1;
    case 31: return 42;
    case 32: api->report_fatal(run, 0); api->report_fatal(run, "second"); return 3;
    case 33: {
        char text[400];
        for (int i = 0; i < 399; i++) text[i] = 'a' + i % 26;
        text[399] = 0;
        api->report_fatal(run, text);
        return 0;
    }
    case 40: /* a kernel that takes longer than the timeout, and one that waits for it */
        task.aiv0 = 1;
        task.scalars = &ms;
        task.scalar_count = 1;
        got = api->submit_task(run, &task);
        task.aiv0 = 0;
        task.scalar_count = 0;
        if (got >= 0) got = api->submit_task(run, &task);
        break;
    case 41: wait_ms(ms); return 0;
    case 43: /* a stalled kernel, and an orchestration that leaves when it sees that the run has failed */
        task.aiv0 = 1;
        task.scalars = &ms;
        task.scalar_count = 1;
        got = api->submit_task(run, &task);
        while (!api->is_fatal(run)) wait_ms(1);
        return 1;
    case 44: x.extent = 0; got = api->submit_task(run, &task); break;
    case 45: x.extent = 0; /* passed on, and an empty buffer: no task depends on either */
        other.bytes = other.extent = 0;
        a[0].use = a[1].use = SIMPLER_NO_DEP;
        task.aiv0 = 2;
        return api->submit_task(run, &task) < 0;
    case 42: /* submits once the run has failed */
        api->report_fatal(run, "first");
        got = api->submit_task(run, &task);
        break;
    }
    return got < 0 ? (int)-got : 0;
}
"#;

const NOTHING: &str =
    "#include <simpler/kernel.h>\nvoid kernel_entry(const SimplerKernelArgs *args) { (void)args; }\n";

fn faults() -> CallableImage {
    image(
        "faults",
        FAULTS,
        &[
            ("add", CoreKind::Aiv, ADD_KERNEL),
            ("slow", CoreKind::Aiv, SLEEP_KERNEL),
            ("nothing", CoreKind::Aiv, NOTHING),
            ("nothing_cube", CoreKind::Aic, NOTHING),
        ],
    )
}

/// Runs a fault, then checks that the chip still computes.
fn fault(chip: &ChipRuntime, fault: u64, count: u64) -> RunError {
    let id = chip.register(&faults()).unwrap();
    let mut x = vec![1.0; 1024];
    let before = x.clone();
    let args = RunArgs {
        tensors: vec![host(&mut x, ArgUse::InOut)],
        scalars: vec![fault, count],
        ..RunArgs::default()
    };
    let error = run(chip, id, &args).expect_err("the run must fail");
    assert_eq!(x, before, "results of a failed run are not copied back");
    let args =
        RunArgs { tensors: vec![host(&mut x, ArgUse::InOut)], scalars: vec![0, 0], ..RunArgs::default() };
    run(chip, id, &args).unwrap_or_else(|again| panic!("fault {fault}, then {again}"));
    assert_eq!(x, vec![2.0; 1024], "after fault {fault}");
    error
}

#[test]
fn invalid_tasks_are_code_5_and_say_what_is_wrong() {
    for chip in small_chips() {
        for (number, words) in [
            (1, "null"),
            (2, "struct_size"),
            (3, "names no kernel"),
            (4, "no kernel 7"),
            (5, "kernel 0 is for Aiv"),
            (6, "0 blocks"),
            (17, "65536 blocks"),
            (19, "its predicate, tensor 2"),
            (46, "its predicate, tensor 3"),
            (47, "a predicate was set"),
            (48, "its predicate, tensor 0"),
            (50, "names a kernel"),
            (51, "0 tensors"),
            (52, "33 tensors"),
            (53, "tensor 1 is null"),
            (54, "null"),
            (7, "33 tensors"),
            (8, "null"),
            (9, "17 scalars"),
            (10, "null"),
            (11, "tensor 1 is null"),
            (12, "tensor 1 has use 5"),
            (13, "leaves its buffer"),
            (14, "leaves its buffer"),
            (15, "no address"),
            (16, "no kernel -2"),
            (44, "is its extent set?"),
        ] {
            let error = fault(&chip, number, 0);
            assert_eq!(error.code, -5, "fault {number}: {error}");
            assert!(error.text.contains(words), "fault {number}: {error}");
        }
    }
}

#[test]
fn blocks_that_cannot_start_together_are_code_7() {
    for chip in small_chips() {
        for (blocks, words) in [
            (17, "17 blocks cannot start together on 16 AIVs"),
            (9, "9 blocks cannot start together on 8 clusters"),
        ] {
            let error = fault(&chip, 49, blocks);
            assert_eq!(error.code, -7, "{error}");
            assert!(error.text.contains(words), "{error}");
        }
    }
}

#[test]
fn too_few_arguments_are_code_5() {
    for chip in small_chips() {
        let id = chip.register(&faults()).unwrap();
        let mut x = vec![1.0; 4];
        for args in [
            RunArgs { tensors: vec![], scalars: vec![0, 0], ..RunArgs::default() },
            RunArgs { tensors: vec![host(&mut x, ArgUse::InOut)], scalars: vec![0], ..RunArgs::default() },
        ] {
            let error = run(&chip, id, &args).unwrap_err();
            assert_eq!(error.code, -5, "{error}");
            assert!(error.text.contains("at least 1 and 2 are expected"), "{error}");
        }
    }
}

#[test]
fn arguments_that_bind_cannot_stage_are_code_5() {
    let chip = small_chip();
    let id = chip.register(&faults()).unwrap();
    let mut x = vec![1.0; 4];
    let good = host(&mut x, ArgUse::InOut);
    let null = ChipArg { tensor: SimplerTensor { addr: 0, ..good.tensor }, ..good };
    let elsewhere = ChipArg { tensor: SimplerTensor { address_space: 2, ..good.tensor }, ..good };
    let endless = ChipArg { tensor: SimplerTensor { bytes: u64::MAX, ..good.tensor }, ..good };
    // One byte more than a slice may have, and two that have as many together.
    let half = 1_u64 << 62;
    let huge = ChipArg { tensor: SimplerTensor { bytes: 2 * half, ..good.tensor }, ..good };
    let halves = ChipArg { tensor: SimplerTensor { bytes: half, ..good.tensor }, ..good };
    let refused = [
        vec![null],
        vec![elsewhere],
        vec![endless],
        vec![huge],
        vec![halves; 2],
        vec![halves; 3],
        vec![good; 257],
    ];
    for tensors in refused {
        let error =
            run(&chip, id, &RunArgs { tensors, scalars: vec![0, 0], ..RunArgs::default() }).unwrap_err();
        assert_eq!(error.code, -5, "{error}");
    }
    let scalars = vec![0; 129];
    assert_eq!(
        run(&chip, id, &RunArgs { tensors: vec![good], scalars, ..RunArgs::default() }).unwrap_err().code,
        -5
    );
    run(&chip, id, &RunArgs { tensors: vec![good], scalars: vec![0, 0], ..RunArgs::default() }).unwrap();
    assert_eq!(x, [2.0; 4]);
}

#[test]
fn a_limit_that_is_hit_is_named() {
    let limits = RingLimits { window: 64, heap_bytes: 64 << 10, argument_bytes: 1 << 20, edges: 1 << 10 };
    let with = |limits| chip(RuntimeConfig { limits: Limits::each(limits), ..RuntimeConfig::default() });
    let full = [
        (with(limits), 20, 65, -1, "ring 0: the task window is full: it has 64 tasks"),
        (with(limits), 21, 17, -2, "of 65536 are in use"),
        (with(RingLimits { argument_bytes: 4096, ..limits }), 20, 64, -1, "4096 bytes"),
        (with(RingLimits { edges: 32, ..limits }), 22, 300, -4, "it has 32 dependencies"),
        (
            with(RingLimits { window: 4096, argument_bytes: 16 << 20, ..limits }),
            23,
            65_537,
            -11,
            "holds at most 65536 regions",
        ),
    ];
    for (chip, number, count, code, words) in full {
        let error = fault(&chip, number, count);
        assert_eq!(error.code, code, "fault {number}: {error}");
        assert!(error.text.contains(words), "fault {number}: {error}");
    }
}

#[test]
fn the_orchestration_can_fail_the_run_with_code_9() {
    for chip in small_chips() {
        let error = fault(&chip, 30, 0);
        assert_eq!(error, RunError { code: -9, text: "the pages are gone".into() });
        let error = fault(&chip, 31, 0);
        assert_eq!(error.code, -9);
        assert!(error.text.contains("returned 42"), "{error}");
        assert_eq!(
            fault(&chip, 32, 0),
            RunError { code: -9, text: String::new() },
            "the first report counts"
        );
        assert_eq!(fault(&chip, 33, 0).text.len(), 255, "the text is cut where the header says");
        assert_eq!(fault(&chip, 42, 0), RunError { code: -9, text: "first".into() });
    }
}

fn impatient(ms: u64) -> ChipRuntime {
    let scheduler_timeout = Duration::from_millis(ms);
    chip(RuntimeConfig { limits: small(), scheduler_timeout, ..RuntimeConfig::default() })
}

#[test]
fn a_stalled_task_times_out_and_is_named() {
    let chip = impatient(100);
    let start = Instant::now();
    let error = fault(&chip, 40, 900);
    assert_eq!(error.code, -100, "{error}");
    assert!(error.text.contains("sub-class 1"), "{error}");
    assert!(error.text.contains("task 0 (slow)"), "{error}");
    assert!(start.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_timeout_is_reported_as_such_when_the_orchestration_leaves_because_of_it() {
    let error = fault(&impatient(100), 43, 700);
    assert_eq!(error.code, -100, "{error}");
    assert!(error.text.contains("task 0 (slow)"), "{error}");
}

#[test]
fn a_view_of_nothing_may_be_passed_on() {
    let chip = small_chip();
    let id = chip.register(&faults()).unwrap();
    let mut x = vec![1.0; 4];
    let args =
        RunArgs { tensors: vec![host(&mut x, ArgUse::InOut)], scalars: vec![45, 0], ..RunArgs::default() };
    run(&chip, id, &args).unwrap();
}

#[test]
fn an_orchestration_that_neither_submits_nor_ends_times_out() {
    let error = fault(&impatient(100), 41, 900);
    assert_eq!(error.code, -100, "{error}");
    assert!(error.text.contains("sub-class 5"), "{error}");
}

#[test]
fn an_orchestration_that_is_not_ready_in_time_times_out() {
    const LATE: &str = r#"
#include "submit.h"
#include <time.h>
int aicpu_orchestration_config(SimplerOrchestrationConfig *config) {
    struct timespec t = {0, 700000000};
    while (nanosleep(&t, &t)) { }
    config->tensors_min = 0;
    return 0;
}
int aicpu_orchestration_entry(const SimplerOrchestrationApi *api, SimplerRun *run, const SimplerChipArgs *args) {
    (void)api; (void)run; (void)args;
    return 0;
}
"#;
    let chip = impatient(100);
    let id = chip.register(&image("late", LATE, &[])).unwrap();
    let error = run(&chip, id, &RunArgs::default()).unwrap_err();
    assert_eq!(error.code, -100, "{error}");
    assert!(error.text.contains("sub-class 5"), "{error}");
    fault(&chip, 30, 0);
}

#[test]
fn progress_puts_the_timeout_off() {
    // Eight tasks of 60 ms in a row are longer than the timeout, but none alone is.
    const ROW: &str = r#"
#include "submit.h"
int aicpu_orchestration_entry(const SimplerOrchestrationApi *api, SimplerRun *run, const SimplerChipArgs *args) {
    SimplerTensor x = args->tensors[0];
    SimplerTaskArg a[] = {{&x, SIMPLER_INOUT}};
    uint64_t ms = 60;
    SimplerTask task = task_of(a, 1);
    task.aiv0 = 0;
    task.scalars = &ms;
    task.scalar_count = 1;
    for (int i = 0; i < 8; i++) if (api->submit_task(run, &task) < 0) return 1;
    return 0;
}
"#;
    let chip = impatient(300);
    let image = image("row", ROW, &[("slow", CoreKind::Aiv, SLEEP_KERNEL)]);
    let mut x = vec![0.0; 4];
    let start = Instant::now();
    run_once(&chip, &image, vec![host(&mut x, ArgUse::InOut)], vec![]).unwrap();
    assert!(start.elapsed() >= Duration::from_millis(480));
}

#[test]
fn an_orchestration_object_without_an_entry_is_refused_at_its_first_run() {
    let chip = small_chip();
    let image = image("no_entry", "#include \"submit.h\"\nint other_word;\n", &[]);
    let id = chip.register(&image).unwrap();
    for _ in 0..2 {
        let error = run(&chip, id, &RunArgs::default()).unwrap_err();
        assert_eq!(error.code, -5, "{error}");
        assert!(error.text.contains("aicpu_orchestration_entry"), "{error}");
    }
    fault(&chip, 30, 0);
}

#[test]
fn a_chip_without_a_scheduler_or_with_too_many_is_refused() {
    for (threads, refused) in [(1, true), (2, false), (33, false), (34, true)] {
        let profile = Profile { aicpu_logical: threads, aicpu_launched: threads, ..Profile::a2a3sim() };
        let npu = SimNpu::new(profile, SimOptions::default()).unwrap();
        let made = ChipRuntime::new(npu, RuntimeConfig { limits: small(), ..RuntimeConfig::default() });
        match made {
            Err(error) => {
                assert!(refused && error.code == -5, "{threads}: {error}");
                assert!(error.text.contains(&format!("{threads} AICPU threads")), "{error}");
            }
            Ok(chip) => {
                assert!(!refused, "{threads}");
                fault(&chip, 30, 0);
            }
        }
    }
}

#[test]
fn an_unregistered_callable_is_refused() {
    let (one, two) = (small_chip(), small_chip());
    let id = one.register(&faults()).unwrap();
    assert_eq!(run(&two, id, &RunArgs::default()).unwrap_err().code, -1);
}
