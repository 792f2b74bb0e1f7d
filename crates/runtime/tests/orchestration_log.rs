//! An orchestration of C that logs through the headers: its records are in the process's log, and its spans hang
//! where they belong. One test binary, one log.

#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

#[path = "support/log.rs"]
mod log;
mod support;

use simpler_host_log::Threshold;
use simpler_platform::Profile;
use simpler_runtime::RunArgs;
use simpler_runtime::recording::HostCallable;
use support::*;

/// Says where it is; with a scalar it fails the run.
const TALKATIVE: &str = r#"
#include "submit.h"
#include <simpler/strace.h>
int aicpu_orchestration_entry(const SimplerOrchestrationApi *api, SimplerRun *run, const SimplerChipArgs *args) {
    (void)api; (void)run;
    SIMPLER_SPAN_ATTRS(SIMPLER_EXT("talkative", "entry"), "nscalar=%u", args->scalar_count);
    LOG_INFO("%u scalars", args->scalar_count);
    LOG_DEBUG("never asked for");
    return (int)args->scalar_count;
}
"#;

/// Exports a binder of its own that refuses.
const REFUSING: &str = r#"
#include "submit.h"
__attribute__((visibility("default"))) int simpler_host_log_bind_state(void *state);
int simpler_host_log_bind_state(void *state) { (void)state; return 2; }
int aicpu_orchestration_entry(const SimplerOrchestrationApi *api, SimplerRun *run, const SimplerChipArgs *args) {
    (void)api; (void)run; (void)args;
    return 0;
}
"#;

#[test]
fn an_orchestration_logs_into_the_processs_log() {
    let directory = tempfile::tempdir().unwrap();
    log::start(directory.path());
    simpler_host_log::set_threshold(Threshold::INFO);
    let objects = compile("talkative", TALKATIVE, &[]);
    let image = simpler_runtime::CallableImage::load(&objects).unwrap();
    let chip = small_chip();
    let id = chip.register(&image).unwrap();
    run(&chip, id, &RunArgs::default()).unwrap();
    run(&chip, id, &RunArgs { tensors: vec![], scalars: vec![7], ..RunArgs::default() }).unwrap_err();

    let text = log::text(directory.path());
    let said: Vec<&str> = text.lines().filter(|line| line.contains("aicpu_orchestration_entry")).collect();
    assert_eq!(said.len(), 2, "{text}");
    for (scalars, line) in said.iter().enumerate() {
        let expected = format!("][INFO] aicpu_orchestration_entry: [talkative.c:7] {scalars} scalars");
        assert!(line.ends_with(&expected), "{line}");
    }
    let spans = log::spans(directory.path());
    let entries: Vec<_> = spans.iter().filter(|span| span.name == "ext.talkative.entry").collect();
    let attrs: Vec<&str> = entries.iter().map(|span| span.attrs.as_str()).collect();
    assert_eq!(attrs, ["nscalar=0", "nscalar=1"]);

    // The recorder of the plain loop loads the same object, and hands it the same log.
    // SAFETY: the objects were compiled from the source above.
    let callable = unsafe { HostCallable::open(&objects) }.unwrap();
    // SAFETY: it expects nothing.
    unsafe { callable.record(&Profile::a2a3sim(), small(), &[], &[]) }.unwrap();
    assert_eq!(log::text(directory.path()).matches("0 scalars").count(), 2);
}

/// Submits one task.
const ONE: &str = r#"
#include "submit.h"
int aicpu_orchestration_entry(const SimplerOrchestrationApi *api, SimplerRun *run, const SimplerChipArgs *args) {
    (void)args;
    SimplerTask task = simpler_task(0, 0);
    task.aiv0 = 0;
    return api->submit_task(run, &task) < 0;
}
"#;

const TALKATIVE_KERNEL: &str = r#"
#include <simpler/kernel.h>
#include <simpler/unified_log.h>
void kernel_entry(const SimplerKernelArgs *args) {
    LOG_INFO("block %u", args->block_index);
}
"#;

const REFUSING_KERNEL: &str = r#"
#include <simpler/kernel.h>
__attribute__((visibility("default"))) int simpler_host_log_bind_state(void *state);
int simpler_host_log_bind_state(void *state) { (void)state; return 1; }
void kernel_entry(const SimplerKernelArgs *args) { (void)args; }
"#;

#[test]
fn a_kernel_on_a_simulated_chip_logs_into_the_processs_log_or_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    log::start(directory.path());
    simpler_host_log::set_threshold(Threshold::INFO);
    let chip = small_chip();
    let talkative = image("one", ONE, &[("talkative", simpler_kernel_abi::CoreKind::Aiv, TALKATIVE_KERNEL)]);
    run_once(&chip, &talkative, vec![], vec![]).unwrap();
    let text = log::text(directory.path());
    assert_eq!(text.matches("][INFO] kernel_entry: [talkative.c:5] block 0").count(), 1, "{text}");

    let refusing = image("two", ONE, &[("refusing", simpler_kernel_abi::CoreKind::Aiv, REFUSING_KERNEL)]);
    let error = chip.register(&refusing).unwrap_err();
    let sentence =
        "refusing: simpler_host_log_bind_state refused the process's log: it says that the state is null";
    assert!(error.code == -1 && error.text.contains(sentence), "{error}");
}

#[test]
fn an_orchestration_that_refuses_the_log_is_refused_with_a_sentence() {
    let directory = tempfile::tempdir().unwrap();
    log::start(directory.path());
    let objects = compile("refusing", REFUSING, &[]);
    let chip = small_chip();
    let id = chip.register(&simpler_runtime::CallableImage::load(&objects).unwrap()).unwrap();
    let error = run(&chip, id, &RunArgs::default()).unwrap_err();
    let sentence = "simpler_host_log_bind_state refused the process's log: it says that the threshold is no value of the level ladder";
    assert!(error.to_string().contains(sentence), "{error}");
    // SAFETY: the objects were compiled from the source above.
    let error = unsafe { HostCallable::open(&objects) }.unwrap_err();
    assert!(error.to_string().contains(sentence), "{error}");
}
