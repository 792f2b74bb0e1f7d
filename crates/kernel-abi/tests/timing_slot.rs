//! The tag that an orchestration puts on a task: the same byte from C, C++ and Rust, and what is out of range.

#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

use std::path::Path;
use std::process::Command;

use simpler_kernel_abi::{SimplerTask, TASK_PREDICATE, TASK_TIMING_SLOT_NONE};

/// Slots that are set in turn: good ones, bad ones in between, the ends.
const SET: [i32; 11] = [0, 15, 7, -1, 16, 100, 3, i32::MIN, i32::MAX, 15, 0];

/// What a task says of itself after each setting: slot, attributes, argument error.
fn in_rust() -> Vec<String> {
    let mut task = SimplerTask { attrs: TASK_PREDICATE, ..SimplerTask::new() };
    let mut said = vec![format!("{} {} {}", task.task_timing_slot(), task.attrs, task.argument_error)];
    for id in SET {
        task.set_task_timing_slot(id);
        said.push(format!("{} {} {}", task.task_timing_slot(), task.attrs, task.argument_error));
    }
    said
}

fn run(compiler: &str, language: &str, standard: &str, text: &str) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("slots.txt"), folder.path().join("slots"));
    std::fs::write(&source, text).unwrap();
    let output = Command::new(compiler)
        .args(["-x", language, standard, "-Wall", "-Wextra", "-pedantic", "-Werror", "-I"])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("include"))
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .output()
        .unwrap_or_else(|error| panic!("{compiler}: {error}"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let output = Command::new(&program).output().unwrap();
    assert!(output.status.success(), "the program says {}", output.status);
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

fn numbers() -> String {
    // The smallest number has no literal of its own in C.
    SET.map(|id| if id == i32::MIN { "INT32_MIN".to_owned() } else { id.to_string() }).join(", ")
}

#[test]
fn a_slot_is_one_byte_beside_the_other_attributes_and_a_bad_one_leaves_it_alone() {
    let said = in_rust();
    assert_eq!(said[0], format!("{TASK_TIMING_SLOT_NONE} 4 0"));
    assert_eq!(said[1..4], ["0 12 0", "15 252 0", "7 124 0"]);
    assert_eq!(said[4..7], ["7 124 1", "7 124 1", "7 124 1"], "refused: the old slot stays");
    assert_eq!(said[7], "3 60 1", "and the error stays as well");
}

#[test]
fn c_sets_the_same_bytes() {
    let text = r#"
#include <simpler/orchestration.h>
#include <stddef.h>
#include <stdio.h>
static void say(const SimplerTask *task) {
    printf("%d %d %d\n", (int)simpler_task_timing_slot(task), task->attrs, task->argument_error);
}
int main(void) {
    const int32_t ids[] = {IDS};
    SimplerTask task = {0};
    size_t i;
    task.attrs = SIMPLER_TASK_PREDICATE;
    say(&task);
    for (i = 0; i < sizeof ids / sizeof *ids; i++) {
        simpler_task_set_timing_slot(&task, ids[i]);
        say(&task);
    }
    return 0;
}
"#
    .replace("IDS", &numbers());
    assert_eq!(run("gcc", "c", "-std=c11", &text), in_rust());
}

#[test]
fn the_classes_of_cpp_submit_what_was_set() {
    let text = r#"
#include <simpler/orchestration.hpp>
#include <cstdio>
struct SimplerRun { int64_t deps[3]; };
static int64_t submit_dummy_task(SimplerRun *, const SimplerTask *task) {
    return task->aic == SIMPLER_NO_KERNEL && task->dep_count == 2 && task->block_count == 7 ? 11 : -2;
}
static int64_t submit_task(SimplerRun *run, const SimplerTask *task) {
    if (task->block_count != 1 || task->predicate != 0) return -3;
    for (uint32_t i = 0; i < task->dep_count; i++) run->deps[i] = task->deps[i];
    if (task->struct_size != sizeof(SimplerTask) || task->aic != 5 || task->aiv0 != SIMPLER_NO_KERNEL) return -2;
    std::printf("%d %d %d %u %u %u %llu %llu\n", (int)simpler_task_timing_slot(task), task->attrs,
                task->argument_error, task->arg_count, task->scalar_count, task->dep_count,
                (unsigned long long)task->args[1].use, (unsigned long long)task->scalars[0]);
    return task->argument_error ? -5 : 9;
}
template <class Args> static int use(Args &args, SimplerRun *run, int deps) {
    SimplerOrchestrationApi api = {};
    api.submit_task = submit_task;
    SimplerTensor x = {}, y = {};
    const int32_t ids[] = {IDS};
    if (args.task_timing_slot() != SIMPLER_TASK_TIMING_SLOT_NONE || args.has_error()) return 1;
    args.add_input(x);
    args.add_output(y);
    args.add_scalar(77);
    simpler::MixedKernels kernels;
    kernels.aic = 5;
    if (args.submit(&api, run, kernels) != 9) return 2;
    for (int32_t id : ids) args.set_task_timing_slot(id);
    if (!args.has_error() || args.submit(&api, run, kernels) != -5) return 3;
    args.clear();
    args.set_task_timing_slot(15);
    args.add_input(x);
    args.add_inout(y);
    args.add_scalar(78);
    if (args.has_error() || args.submit(&api, run, kernels) != 9) return 4;
    return deps;
}
int main() {
    SimplerRun run = {};
    simpler::L0TaskArgs plain;
    if (int bad = use(plain, &run, 0)) return bad;
    simpler::L0TaskArgsWithDeps<2> after;
    if (!after.add_dep(4) || !after.add_dep(6) || after.add_dep(8)) return 20;
    if (int bad = use(after, &run, 0)) return 30 + bad;
    SimplerOrchestrationApi api = {};
    api.submit_dummy_task = submit_dummy_task;
    after.clear();
    after.set_block_count(7);
    if (!after.add_dep(1) || !after.add_dep(2) || after.submit_dummy(&api, &run) != 11) return 50;
    after.set_predicate(SIMPLER_TASK_TENSORS_MAX);
    if (!after.has_error()) return 51;
    return run.deps[0] == 4 && run.deps[1] == 6 && run.deps[2] == 0 ? 0 : 40;
}
"#
    .replace("IDS", &numbers());
    let said = run("g++", "c++", "-std=c++17", &text);
    let of = |deps: u32| {
        [
            format!("-1 0 0 2 1 {deps} 1 77"),
            format!("0 8 1 2 1 {deps} 1 77"),
            // Cleared, with the tasks to wait for.
            "15 248 0 2 1 0 2 78".to_owned(),
        ]
    };
    assert_eq!(said, [of(0), of(2)].concat());
}
