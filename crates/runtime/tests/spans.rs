//! What a run writes into the log: names, order, nesting, attributes. One test: the log belongs to the process.

#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

#[path = "support/log.rs"]
mod log;
mod support;

use simpler_kernel_abi::{ArgUse, CoreKind};
use simpler_runtime::RunArgs;
use support::*;

const ONE_TASK: &str = r#"
#include "submit.h"
int aicpu_orchestration_entry(const SimplerOrchestrationApi *api, SimplerRun *run, const SimplerChipArgs *args) {
    SimplerTensor x = args->tensors[0], y = args->tensors[1];
    if (args->scalar_count) { api->report_fatal(run, "as told"); return 1; }
    api->log(run, 25, "one_task", "hello from C");
    SimplerTaskArg a[] = {{&x, SIMPLER_INPUT}, {&x, SIMPLER_INPUT}, {&y, SIMPLER_OUTPUT_EXISTING}};
    SimplerTask task = task_of(a, 3);
    task.aiv0 = 0;
    for (int i = 0; i < 50; i++) if (api->submit_task(run, &task) < 0) return 1;
    return 0;
}
"#;

const HOST_ORDER: [(&str, i32); 5] = [
    ("simpler_run.bind.args", 2),
    ("simpler_run.bind.prebuilt", 2),
    ("simpler_run.bind", 1),
    ("simpler_run.runner_run", 1),
    ("simpler_run.validate", 1),
];
const WALL: &str = "simpler_run.runner_run.device_wall";
/// The phases in emission order.
const PHASES: [&str; 9] = [
    "preamble",
    "so_load",
    "graph_build",
    "config_validate",
    "arena_wire",
    "sm_reset",
    "post_orch",
    "orch",
    "sched",
];

#[test]
fn a_run_explains_itself_in_the_log() {
    let directory = tempfile::tempdir().unwrap();
    log::start(directory.path());
    let chip = small_chip();
    let image = image("one_task", ONE_TASK, &[("add", CoreKind::Aiv, ADD_KERNEL)]);
    let id = chip.register(&image).unwrap();
    let mut x = vec![1.0; 8];
    let mut y = vec![0.0; 8];
    let mut args = RunArgs {
        tensors: vec![host(&mut x, ArgUse::Input), host(&mut y, ArgUse::Output)],
        scalars: vec![],
        ..RunArgs::default()
    };
    const RUNS: usize = 20;
    for _ in 0..RUNS {
        run(&chip, id, &args).unwrap();
    }
    args.scalars.push(1);
    run(&chip, id, &args).unwrap_err();

    let spans = log::spans(directory.path());
    let mut runs = Vec::new();
    let mut run = Vec::new();
    for span in spans {
        let is_root = span.name == "simpler_run";
        run.push(span);
        if is_root {
            runs.push(std::mem::take(&mut run));
        }
    }
    assert!(run.is_empty(), "the root comes last: {run:?}");
    assert_eq!(runs.len(), RUNS + 1);
    for (number, run) in runs.iter().enumerate() {
        let hid = format!("{:x}", image.hid());
        assert!(run.iter().all(|span| span.inv == run[0].inv && span.hid == hid), "{run:?}");
        let order: Vec<_> = run[..5].iter().map(|span| (span.name.as_str(), span.depth)).collect();
        assert_eq!(order, HOST_ORDER);
        assert_eq!(run[0].attrs, "ntensor=2");
        let root = run.last().unwrap();
        assert_eq!((root.name.as_str(), root.depth, root.attrs.as_str()), ("simpler_run", 0, ""));
        for (child, parent) in [(0, 2), (1, 2), (2, run.len() - 1), (3, run.len() - 1), (4, run.len() - 1)] {
            let (child, parent) = (&run[child], &run[parent]);
            assert!(parent.ts <= child.ts && child.ts + child.dur <= parent.ts + parent.dur, "{child:?}");
        }
        let device = &run[5..run.len() - 1];
        if number == RUNS {
            assert_eq!(device, [], "a failed run has no device spans");
            continue;
        }
        let [wall, phases @ ..] = device else { panic!("no device_wall") };
        assert!(device.iter().all(|span| span.ts >= 0 && span.dur > 0), "{device:?}");
        assert!(phases.iter().all(|span| span.attrs == "clk=dev"), "{device:?}");
        // The wall begins with the first phase, so one cycle is said for both.
        let origin = wall.attrs.strip_prefix("clk=dev org_cyc=").unwrap();
        assert!(origin.parse::<u64>().is_ok(), "{origin}");
        assert_eq!((wall.name.as_str(), wall.depth, wall.ts), (WALL, 2, 0));
        assert!(wall.dur <= run[3].dur, "device_wall is within runner_run");
        let leaves: Vec<_> = phases
            .iter()
            .map(|span| {
                assert_eq!(span.depth, 3);
                assert!(span.dur <= wall.dur, "{span:?} in {wall:?}");
                span.name.strip_prefix(WALL).unwrap().strip_prefix('.').unwrap()
            })
            .collect();
        let mut expected = PHASES.to_vec();
        expected.retain(|leaf| leaves.contains(leaf));
        assert_eq!(leaves, expected, "emission order, each once");
        assert_eq!(leaves.contains(&"so_load"), number == 0, "the object is loaded in the first run only");
        for leaf in ["preamble", "graph_build", "orch", "sched"] {
            assert!(leaves.contains(&leaf), "{leaf} in run {number}: {leaves:?}");
        }
        let window = |leaf: &str| {
            let span = &phases[leaves.iter().position(|other| *other == leaf).unwrap()];
            (span.ts, span.ts + span.dur)
        };
        let (orch, sched, build) = (window("orch"), window("sched"), window("graph_build"));
        assert!(orch.0 < sched.1 && sched.0 < orch.1, "orch {orch:?} and sched {sched:?} overlap");
        assert!(build.0 <= orch.0 && sched.1 <= build.1, "{build:?} holds both windows");
        if leaves.contains(&"post_orch") {
            // The teardown is the last finisher's: after the last scheduler's window.
            assert!(window("post_orch").0 >= sched.1, "{phases:?}");
        }
    }
    let invocations: Vec<_> = runs.iter().map(|run| run[0].inv).collect();
    assert!(invocations.is_sorted_by(|a, b| a < b), "{invocations:?}");

    let text = log::text(directory.path());
    // The deep dive is compiled in on demand only.
    assert!(!text.contains("orch_start=") && !text.contains("sched_start="), "{text}");
    let hello: Vec<_> = text.lines().filter(|line| line.contains("hello from C")).collect();
    assert_eq!(hello.len(), RUNS);
    assert!(hello[0].contains("[TIMING] one_task: hello from C"), "{}", hello[0]);
    let failures: Vec<_> = text.lines().filter(|line| line.contains("[ERROR]")).collect();
    assert_eq!(failures.len(), 1, "one line a failure: {failures:?}");
    assert!(failures[0].contains("code -9") && failures[0].contains("as told"), "{}", failures[0]);
}
