//! The deep dive, in a build that has it: a line of the orchestrator, two of each scheduler.

#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

#[path = "support/log.rs"]
mod log;
mod support;

use simpler_kernel_abi::{ArgUse, CoreKind};
use simpler_runtime::{GraphRuntime, RunArgs};
use support::*;

/// `scalars[0]` tasks of one element each.
const MANY: &str = r#"
#include "submit.h"
int aicpu_orchestration_entry(const SimplerOrchestrationApi *api, SimplerRun *run, const SimplerChipArgs *args) {
    for (uint64_t i = 0; i < args->scalars[0]; i++) {
        SimplerTensor y = view(&args->tensors[0], i % 64, 1);
        SimplerTaskArg a[] = {{&y, SIMPLER_INPUT}, {&y, SIMPLER_INPUT}, {&y, SIMPLER_INOUT}};
        SimplerTask task = task_of(a, 3);
        task.aiv0 = 0;
        if (api->submit_task(run, &task) < 0) return 1;
    }
    return 0;
}
"#;

/// The number behind `key=`.
fn number(line: &str, key: &str) -> u64 {
    let (_, rest) = line.split_once(&format!("{key}=")).unwrap_or_else(|| panic!("{key} in {line}"));
    rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap()
}

#[test]
fn each_thread_says_its_window_and_what_it_did_in_it() {
    const TASKS: u64 = 200;
    let directory = tempfile::tempdir().unwrap();
    log::start(directory.path());
    let mut read = 0;
    for (profile, graph_runtime) in arms() {
        let threads = profile.aicpu_logical;
        let chip = chip_of((profile, graph_runtime));
        let id = chip.register(&image("many", MANY, &[("add", CoreKind::Aiv, ADD_KERNEL)])).unwrap();
        let mut y = vec![1.0; 64];
        run(
            &chip,
            id,
            &RunArgs {
                tensors: vec![host(&mut y, ArgUse::InOut)],
                scalars: vec![TASKS],
                ..RunArgs::default()
            },
        )
        .unwrap();
        let whole = log::text(directory.path());
        let text = &whole[read..];
        read = whole.len();
        let of = |words: &str| text.lines().filter(|line| line.contains(words)).collect::<Vec<_>>();
        let (orch, sched, summary) = (of("orch_start="), of("sched_start="), of("Scheduler summary: loops="));
        let on_device = graph_runtime == GraphRuntime::TensorMapAndRingBuffer;
        assert_eq!(orch.len(), usize::from(on_device));
        assert_eq!((sched.len(), summary.len()), (threads - orch.len(), threads - orch.len()));
        for line in &orch {
            assert_eq!(number(line, "tasks_submitted"), TASKS);
            assert!(number(line, "orch_start") <= number(line, "orch_end"));
            assert!(line.contains(&format!("Thread {}: ", threads - 1)), "{line}");
        }
        let scheduled: u64 = summary.iter().map(|line| number(line, "tasks_scheduled")).sum();
        assert_eq!(scheduled, TASKS, "{summary:?}");
        assert!(
            sched.iter().all(|line| number(line, "sched_start") <= number(line, "sched_end")),
            "{sched:?}"
        );
        assert!(summary.iter().any(|line| number(line, "loops") > 0), "{summary:?}");
    }
}
