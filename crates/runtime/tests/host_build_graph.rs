//! host_build_graph in the log: what the host does in bind, what is left for the device.

#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

#[path = "support/log.rs"]
mod log;
mod support;

use simpler_kernel_abi::{ArgUse, CoreKind};
use simpler_runtime::{GraphRuntime, RunArgs};
use support::*;

/// Says from where it runs: its thread's name. Three tasks, the last of which depends on nothing but `deps`.
const SAYS: &str = r#"
#define _GNU_SOURCE
#include "submit.h"
#include <pthread.h>
int aicpu_orchestration_entry(const SimplerOrchestrationApi *api, SimplerRun *run, const SimplerChipArgs *args) {
    char name[16] = "";
    pthread_getname_np(pthread_self(), name, sizeof name);
    api->log(run, 25, "runs_on", name);
    SimplerTensor x = args->tensors[0], y = args->tensors[1];
    SimplerTensor half = view(&x, 0, 4);
    SimplerTaskArg a[] = {{&y, SIMPLER_INPUT}, {&half, SIMPLER_INPUT}, {&x, SIMPLER_INOUT}};
    SimplerTask task = task_of(a, 3);
    task.aiv0 = 0;
    int64_t first = api->submit_task(run, &task);
    if (first < 0) return 1;
    /* y is not known to depend on x: only what is said orders it. */
    SimplerTensor hidden = x;
    hidden.manual_dep = 1;
    SimplerTaskArg b[] = {{&hidden, SIMPLER_INPUT}, {&hidden, SIMPLER_INPUT}, {&y, SIMPLER_INOUT}};
    SimplerTask after = task_of(b, 3);
    after.aiv0 = 0;
    after.deps = &first;
    after.dep_count = 1;
    if (args->scalar_count) first = (int64_t)args->scalars[0];
    return api->submit_task(run, &after) < 0 ? 2 : 0;
}
"#;

#[test]
fn the_orchestration_runs_where_its_runtime_says_and_dependencies_hold() {
    let directory = tempfile::tempdir().unwrap();
    log::start(directory.path());
    let image = image("says", SAYS, &[("add", CoreKind::Aiv, ADD_KERNEL)]);
    let arms = arms();
    for arm in arms.clone() {
        let chip = chip_of(arm);
        let id = chip.register(&image).unwrap();
        for _ in 0..20 {
            let (mut x, mut y) = (vec![1.0; 4], vec![10.0; 4]);
            let tensors = vec![host(&mut x, ArgUse::InOut), host(&mut y, ArgUse::InOut)];
            run(&chip, id, &RunArgs { tensors, scalars: vec![], ..RunArgs::default() }).unwrap();
            assert_eq!((x, y), (vec![11.0; 4], vec![22.0; 4]));
        }
        for bad in [1_i64, 2, -1, i64::MAX] {
            let (mut x, mut y) = (vec![1.0; 4], vec![10.0; 4]);
            let tensors = vec![host(&mut x, ArgUse::InOut), host(&mut y, ArgUse::InOut)];
            let error = run(&chip, id, &RunArgs { tensors, scalars: vec![bad as u64], ..RunArgs::default() })
                .unwrap_err();
            assert_eq!(error.code, -5, "{error}");
            assert!(error.text.contains(&format!("cannot wait for task {bad}")), "{error}");
        }
    }
    let text = log::text(directory.path());
    let runs_on: Vec<&str> =
        text.lines().filter_map(|line| line.split_once("] runs_on: ").map(|(_, name)| name)).collect();
    let spans = log::spans(directory.path());
    assert_eq!(runs_on.len(), arms.len() * 24);
    for ((_, graph_runtime), names) in arms.iter().zip(runs_on.chunks(24)) {
        let on_device = names.iter().filter(|name| name.starts_with("aicpu-")).count();
        let expected = if *graph_runtime == GraphRuntime::HostBuildGraph { 0 } else { 24 };
        assert_eq!(on_device, expected, "{graph_runtime:?}: {names:?}");
    }
    let bind: Vec<&str> = spans
        .iter()
        .filter(|span| span.depth == 2 && span.name.starts_with("simpler_run.bind."))
        .map(|span| span.name.strip_prefix("simpler_run.bind.").unwrap())
        .collect();
    let count = |leaf| bind.iter().filter(|name| **name == leaf).count();
    // The host orchestrates in half of the arms; what fails there is not uploaded.
    assert_eq!((count("host_orch"), count("graph_upload")), (2 * 24, 2 * 20));
    assert_eq!(count("prebuilt"), 4 * 24);
}
