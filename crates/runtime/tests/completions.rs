//! Kernels that leave work to others: the copy engine, words that somebody else stores; and how that fails.

#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use std::sync::atomic::Ordering;
use std::time::Duration;

use simpler_kernel_abi::{ArgUse, CoreKind, SimplerCopyEngine};
use simpler_kernel_compiler::{CallableSource, Compiler, KernelSource, SourceFile};
use simpler_runtime::{
    CallableImage, ChipRuntime, GraphRuntime, Limits, RingLimits, RunArgs, RunError, RuntimeConfig,
};
use simpler_sim_npu::{Profile, SimNpu, SimOptions};
use support::*;

/// A chip of an arm that has a copy engine.
fn with_engine((profile, graph_runtime): (Profile, GraphRuntime)) -> ChipRuntime {
    let npu = SimNpu::new(profile, SimOptions::default()).unwrap();
    let config = RuntimeConfig {
        graph_runtime,
        limits: small(),
        sdma: true,
        scheduler_timeout: Duration::from_millis(300),
        ..RuntimeConfig::default()
    };
    ChipRuntime::new(npu, config).unwrap()
}

/// Copies that kernels have left to the chip's engine so far.
fn copies_of(chip: &ChipRuntime) -> u32 {
    let workspace: *const SimplerCopyEngine =
        std::ptr::with_exposed_provenance(chip.platform().copy_engine().unwrap().0 as usize);
    // SAFETY: the simulated chip's memory is this process's; the count is an atomic.
    unsafe { &(*workspace).submitted }.load(Ordering::Relaxed)
}

/// Copies pieces of tensor 0 to tensor 1 on the engine, and what it has no room for by itself.
const COPY_KERNEL: &str = r#"
#include <simpler/kernel.h>
void kernel_entry(const SimplerKernelArgs *args) {
    const float *from = simpler_tensor_data(args->tensors[0]);
    float *to = simpler_tensor_data(args->tensors[1]);
    uint32_t count = args->tensors[1]->shapes[0] / args->block_count;
    from += count * args->block_index;
    to += count * args->block_index;
    for (uint32_t piece = 0; piece < 4; piece++) {
        uint32_t first = count / 4 * piece;
        if (!simpler_copy_async(args, to + first, from + first, count / 4 * 4))
            for (uint32_t i = 0; i < count / 4; i++) to[first + i] = from[first + i];
    }
}
"#;

/// A chain of copies, each of as many blocks as scalar 0 says, then a sum that reads the last.
const COPIES: &str = r#"
#include "submit.h"
int aicpu_orchestration_entry(const SimplerOrchestrationApi *api, SimplerRun *run, const SimplerChipArgs *args) {
    SimplerTensor at = args->tensors[0];
    uint64_t count = at.extent / 4;
    for (int hop = 0; hop < 8; hop++) {
        SimplerTensor next = fresh(count);
        SimplerTaskArg a[] = {{&at, SIMPLER_INPUT}, {&next, SIMPLER_OUTPUT}};
        SimplerTask task = task_of(a, 2);
        task.aiv0 = 0;
        task.block_count = (uint32_t)args->scalars[0];
        if (api->submit_task(run, &task) < 0) return 1;
        at = next;
    }
    SimplerTensor out = args->tensors[1], zero = at;
    SimplerTaskArg a[] = {{&at, SIMPLER_INPUT}, {&zero, SIMPLER_INPUT}, {&out, SIMPLER_OUTPUT_EXISTING}};
    SimplerTask task = task_of(a, 3);
    task.aiv0 = 1;
    return api->submit_task(run, &task) < 0;
}
"#;

#[test]
fn what_depends_on_a_copy_sees_all_of_it_on_every_platform() {
    const COUNT: usize = 1 << 12;
    let image =
        image("copies", COPIES, &[("copy", CoreKind::Aiv, COPY_KERNEL), ("add", CoreKind::Aiv, ADD_KERNEL)]);
    for arm in arms() {
        // More blocks than the engine has room for; and without an engine the kernel copies itself.
        for (chip, blocks) in
            [(with_engine(arm.clone()), 1), (with_engine(arm.clone()), 32), (chip_of(arm), 4)]
        {
            let mut from: Vec<f32> = (0..COUNT).map(|i| i as f32).collect();
            let mut out = vec![0.0; COUNT];
            for _ in 0..10 {
                out.fill(0.0);
                let tensors = vec![host(&mut from, ArgUse::Input), host(&mut out, ArgUse::OutputExisting)];
                run_once(&chip, &image, tensors, vec![blocks]).unwrap();
                assert!(out.iter().enumerate().all(|(i, value)| *value == 2.0 * i as f32), "{blocks} blocks");
            }
            match blocks {
                1 => assert_eq!(copies_of(&chip), 10 * 8 * 4),
                32 => assert!(copies_of(&chip) > 64),
                _ => {}
            }
        }
    }
}

/// [`COPY_KERNEL`] in Rust.
const COPY_KERNEL_IN_RUST: &str = r#"
use simpler_kernel_abi::*;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn kernel_entry(args: *const SimplerKernelArgs) {
    let args = unsafe { &*args };
    let tensors = unsafe { core::slice::from_raw_parts(args.tensors, 2) };
    let (from, to) = unsafe { ((*tensors[0]).data::<u8>(), (*tensors[1]).data::<u8>()) };
    let piece = unsafe { (*tensors[1]).shapes[0] } as usize / args.block_count as usize;
    for index in 0..4 {
        let first = args.block_index as usize * piece * 4 + index * piece;
        let (from, to) = unsafe { (from.add(first), to.add(first)) };
        if !unsafe { args.copy_async(to, from, piece as u64) } {
            unsafe { to.copy_from_nonoverlapping(from, piece) };
        }
    }
}
"#;

#[test]
fn a_kernel_in_rust_leaves_copies_to_the_engine_too() {
    let source = CallableSource {
        name: "copies_in_rust".to_owned(),
        orchestration: SourceFile::new("copies.c", COPIES),
        kernels: vec![
            KernelSource { file: SourceFile::new("copy.rs", COPY_KERNEL_IN_RUST), kind: CoreKind::Aiv },
            KernelSource { file: SourceFile::new("add.c", ADD_KERNEL), kind: CoreKind::Aiv },
        ],
        headers: vec![SourceFile::new("submit.h", SUBMIT_HEADER)],
    };
    let objects = Compiler::new(cache()).unwrap().compile(&source).unwrap_or_else(|why| panic!("{why}"));
    let chip = with_engine((Profile::a2a3sim(), GraphRuntime::default()));
    let mut from: Vec<f32> = (0..1 << 12).map(|i| i as f32).collect();
    let mut out = vec![0.0; 1 << 12];
    let tensors = vec![host(&mut from, ArgUse::Input), host(&mut out, ArgUse::OutputExisting)];
    run_once(&chip, &CallableImage::load(&objects).unwrap(), tensors, vec![4]).unwrap();
    assert!(out.iter().enumerate().all(|(i, value)| *value == 2.0 * i as f32), "{:?}", &out[..4]);
    // Eight hops of four blocks, four pieces each.
    assert!((1..=128).contains(&copies_of(&chip)));
}

/// Scalar 0 says what the kernel wants; tensor 0 is a word that it may wait for. The store comes late.
const WAITING_KERNEL: &str = r#"
#include <simpler/kernel.h>
#include <time.h>
void kernel_entry(const SimplerKernelArgs *args) {
    uint32_t *word = simpler_tensor_data(args->tensors[0]);
    switch (args->scalars[0]) {
    case 0: simpler_complete_at(args, word, 1); return;
    case 1: {
        struct timespec t = {0, 3000000};
        while (nanosleep(&t, &t)) { }
        __atomic_fetch_add(word, 1, __ATOMIC_RELEASE);
        return;
    }
    case 2: simpler_complete_at(args, (uint32_t *)((char *)word + 1), 1); return;
    case 3: simpler_complete_at(args, 0, 1); return;
    case 4: for (int i = 0; i < 5; i++) simpler_complete_at(args, word, 0); return;
    case 5: simpler_copy_async(args, word, (void *)8, 4); return;
    case 6: simpler_copy_async(args, word, word, 4); return;
    case 7: simpler_complete_at(args, word, 1); args->completions->entries[0].kind = 9; return;
    case 8: simpler_complete_at(args, word, 1); args->completions->entries[0].kind = SIMPLER_COMPLETION_COPY; return;
    case 9: for (int i = 0; i < 4; i++) simpler_complete_at(args, word, 0); return;
    }
}
"#;

/// Submits scalar 1 tasks that do what scalar 0 says, and then, where scalar 2 says so, one that stores the word. None
/// waits for another: the word is NO_DEP.
const WAITS: &str = r#"
#include "submit.h"
int aicpu_orchestration_entry(const SimplerOrchestrationApi *api, SimplerRun *run, const SimplerChipArgs *args) {
    SimplerTensor word = args->tensors[0], out = args->tensors[1];
    int64_t last = -1;
    for (uint64_t i = 0; i <= args->scalars[1]; i++) {
        int stores = i == args->scalars[1];
        if (stores && !args->scalars[2]) return 0;
        uint64_t what = stores ? 1 : args->scalars[0];
        SimplerTaskArg a[] = {{&word, SIMPLER_NO_DEP}};
        SimplerTask task = task_of(a, 1);
        task.aiv0 = 0;
        task.scalars = &what;
        task.scalar_count = 1;
        int64_t got = api->submit_task(run, &task);
        if (got < 0) return 1;
        if (!stores) last = got;
    }
    /* After the last that waits: copies the word. */
    SimplerTaskArg a[] = {{&word, SIMPLER_NO_DEP}, {&out, SIMPLER_OUTPUT_EXISTING}};
    SimplerTask task = task_of(a, 2);
    task.aiv0 = 1;
    task.deps = &last;
    task.dep_count = 1;
    return api->submit_task(run, &task) < 0;
}
"#;

const COPY_WORD: &str = r#"
#include <simpler/kernel.h>
void kernel_entry(const SimplerKernelArgs *args) {
    *(uint32_t *)simpler_tensor_data(args->tensors[1]) = *(uint32_t *)simpler_tensor_data(args->tensors[0]);
}
"#;

fn waits_image() -> CallableImage {
    image("waits", WAITS, &[("wait", CoreKind::Aiv, WAITING_KERNEL), ("copy_word", CoreKind::Aiv, COPY_WORD)])
}

/// Runs it: how often `what`, and whether somebody stores the word.
fn waits(chip: &ChipRuntime, what: u64, times: u64, stores: bool) -> Result<u32, RunError> {
    let id = chip.register(&waits_image())?;
    let (mut word, mut out) = ([0.0_f32], [0.0_f32]);
    let tensors = vec![host(&mut word, ArgUse::InOut), host(&mut out, ArgUse::OutputExisting)];
    run(chip, id, &RunArgs { tensors, scalars: vec![what, times, stores.into()], ..RunArgs::default() })?;
    Ok(out[0].to_bits())
}

#[test]
fn a_task_completes_when_a_word_that_another_stores_has_its_value() {
    for chip in small_chips() {
        // Many more than there are cores: those that wait do not keep theirs.
        for times in [1, 100] {
            assert_eq!(waits(&chip, 0, times, true).unwrap(), 1);
        }
        // Everything that a kernel can say at a time, and nothing to wait for any more.
        waits(&chip, 9, 5, true).unwrap();
    }
}

#[test]
fn a_completion_that_cannot_come_is_code_101() {
    for arm in arms() {
        let chip = with_engine(arm);
        for (what, words) in [
            (2, "waits for a counter at"),
            (3, "waits for a counter at 0x0, where none can be"),
            (5, "the copy engine refused 4 bytes from 0x8"),
            (6, "they overlap"),
            (7, "a completion of kind 9"),
            (8, "which is none of the engine's"),
        ] {
            let error = waits(&chip, what, 1, false).unwrap_err();
            assert_eq!(error.code, -101, "{error}");
            assert!(error.text.contains(words) && error.text.contains("(wait)"), "{error}");
            // The chip is usable afterwards.
            assert_eq!(waits(&chip, 0, 3, true).unwrap(), 1);
        }
    }
}

#[test]
fn more_waiting_kernels_than_the_schedulers_keep_are_code_102() {
    for arm in arms() {
        // More than five schedulers keep together.
        let limits = Limits::each(RingLimits { window: 2048, ..small().rings[0] });
        let npu = SimNpu::new(arm.0, SimOptions::default()).unwrap();
        let config = RuntimeConfig { graph_runtime: arm.1, limits, ..RuntimeConfig::default() };
        let chip = ChipRuntime::new(npu, config).unwrap();
        let error = waits(&chip, 0, 1500, false).unwrap_err();
        assert_eq!(error.code, -102, "{error}");
        assert!(error.text.contains("256 kernels"), "{error}");
        assert_eq!(waits(&chip, 0, 3, true).unwrap(), 1);
    }
}

#[test]
fn a_kernel_that_waits_for_more_than_it_can_say_is_code_103() {
    for chip in small_chips() {
        let error = waits(&chip, 4, 1, false).unwrap_err();
        assert_eq!(error.code, -103, "{error}");
        assert!(error.text.contains("5 completions, at most 4"), "{error}");
        assert_eq!(waits(&chip, 0, 3, true).unwrap(), 1);
    }
}

#[test]
fn a_word_that_nobody_stores_is_a_stall_of_a_running_task() {
    for arm in arms() {
        let chip = with_engine(arm);
        let error = waits(&chip, 0, 2, false).unwrap_err();
        assert_eq!(error.code, -100, "{error}");
        assert!(error.text.contains("sub-class 1"), "{error}");
        assert!(error.text.contains("(wait) waits for what its kernels have left to others"), "{error}");
    }
}

/// A task that lets others be staged and waits for a word; one that is staged on as many cores as it finds; and, last, one
/// that stores the word.
const STAGED_MEANWHILE: &str = r#"
#include "submit.h"
int aicpu_orchestration_entry(const SimplerOrchestrationApi *api, SimplerRun *run, const SimplerChipArgs *args) {
    SimplerTensor word = args->tensors[0], out = args->tensors[1];
    SimplerTaskArg first[] = {{&word, SIMPLER_NO_DEP}, {&out, SIMPLER_OUTPUT_EXISTING}};
    SimplerTaskArg second[] = {{&word, SIMPLER_NO_DEP}, {&out, SIMPLER_INOUT}};
    SimplerTaskArg last[] = {{&word, SIMPLER_NO_DEP}};
    uint64_t waits = 0, nothing = 10, stores = 1;
    SimplerTask task = task_of(first, 2);
    task.aic = 2;
    task.attrs = SIMPLER_TASK_EARLY_RESOLVE;
    task.scalars = &waits;
    task.scalar_count = 1;
    if (api->submit_task(run, &task) < 0) return 1;
    task = task_of(second, 2);
    task.aiv0 = 0;
    task.block_count = 16;
    task.scalars = &nothing;
    task.scalar_count = 1;
    if (api->submit_task(run, &task) < 0) return 1;
    /* So that it is staged. */
    struct timespec t = {0, 2000000};
    while (nanosleep(&t, &t)) { }
    task = task_of(last, 1);
    task.aiv0 = 0;
    task.scalars = &stores;
    task.scalar_count = 1;
    return api->submit_task(run, &task) < 0;
}
"#;

#[test]
fn staged_tasks_leave_cores_to_who_stores_what_their_predecessor_waits_for() {
    let source = format!("#include <time.h>\n{STAGED_MEANWHILE}");
    let kernels = [
        ("wait", CoreKind::Aiv, WAITING_KERNEL),
        ("copy_word", CoreKind::Aiv, COPY_WORD),
        ("wait_cube", CoreKind::Aic, WAITING_KERNEL),
    ];
    let image = image("staged_meanwhile", &source, &kernels);
    for arm in arms() {
        let chip = with_engine(arm);
        for _ in 0..5 {
            let (mut word, mut out) = ([0.0_f32], [0.0_f32]);
            let tensors = vec![host(&mut word, ArgUse::InOut), host(&mut out, ArgUse::OutputExisting)];
            run_once(&chip, &image, tensors, vec![]).unwrap();
            assert_eq!(word[0].to_bits(), 1);
        }
    }
}
