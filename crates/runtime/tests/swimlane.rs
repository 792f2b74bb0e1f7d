//! Variable phases of real runs: what each level records, what the log says of it, and the artifact.

#![cfg(feature = "dfx")]
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

#[path = "support/log.rs"]
mod log;
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::Value;
use simpler_kernel_abi::{ArgUse, CoreKind};
use simpler_platform::Profile;
use simpler_runtime::{CallConfig, GraphRuntime, RunArgs};
use simpler_swimlane::Level;
use support::*;

/// `scalars[0]` tasks on both kinds of cores, in named scopes.
const SCOPED: &str = r#"
#include "submit.h"
#include <simpler/swimlane.h>
int aicpu_orchestration_entry(const SimplerOrchestrationApi *api, SimplerRun *run, const SimplerChipArgs *args) {
    struct SimplerPhaseRecorder *recorder = api->phase_recorder(run);
    SIMPLER_PHASE_SCOPE(recorder, "whole_entry");
    for (uint64_t i = 0; i < args->scalars[0]; i++) {
        SIMPLER_PHASE_SCOPE(recorder, "one_task");
        SimplerTensor y = view(&args->tensors[0], i % 64, 1);
        SimplerTaskArg a[] = {{&y, SIMPLER_INPUT}, {&y, SIMPLER_INPUT}, {&y, SIMPLER_INOUT}};
        SimplerTask task = task_of(a, 3);
        if (i % 3) task.aiv0 = 0; else task.aic = 1;
        if (api->submit_task(run, &task) < 0) return 1;
    }
    return 0;
}
"#;

const TASKS: u64 = 500;

fn artifacts(folder: &Path) -> BTreeMap<u64, PathBuf> {
    let of_process = folder.join(std::process::id().to_string());
    let Ok(entries) = std::fs::read_dir(of_process) else { return BTreeMap::new() };
    entries
        .map(|entry| {
            let entry = entry.unwrap();
            let inv = entry.file_name().to_str().unwrap().parse().unwrap();
            (inv, entry.path().join("chip_swimlane_records.json"))
        })
        .collect()
}

fn rows<'a>(object: &'a Value, key: &str) -> &'a Vec<Value> {
    object[key].as_array().unwrap_or_else(|| panic!("{key} in {object}"))
}

fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_else(|| panic!("{key} in {value}"))
}

#[test]
fn each_level_records_what_it_says_and_every_record_is_accounted_for() {
    let directory = tempfile::tempdir().unwrap();
    let output = directory.path().join("records");
    log::start(directory.path());
    let image = image(
        "scoped",
        SCOPED,
        &[("add", CoreKind::Aiv, ADD_KERNEL), ("add_cube", CoreKind::Aic, ADD_KERNEL)],
    );
    let mut expected = Vec::new();
    for (profile, graph_runtime) in arms() {
        let chip = chip_of((profile.clone(), graph_runtime));
        let id = chip.register(&image).unwrap();
        for level in 0..=4_i64 {
            let level = Level::try_from(level).unwrap();
            let config = recorded(level, &output);
            let mut y = vec![1.0; 64];
            let tensors = vec![host(&mut y, ArgUse::InOut)];
            run(&chip, id, &RunArgs { tensors, scalars: vec![TASKS], config }).unwrap();
            expected.push((profile.clone(), graph_runtime, level));
        }
    }
    let text = log::text(directory.path());
    let artifacts = artifacts(&output);
    assert_eq!(artifacts.len(), 4 * 4, "one artifact a run, none at level 0");
    for (inv, (profile, graph_runtime, level)) in (1_u64..).zip(expected) {
        let said: Vec<&str> =
            text.lines().filter(|line| line.contains(&format!(" inv={inv} swimlane: "))).collect();
        if level == Level::Off {
            assert_eq!(said, [""; 0], "nothing is recorded at level 0");
            continue;
        }
        assert_eq!(said.len(), 1);
        assert!(said[0].contains("][TIMING] ") && said[0].contains(" + 0 dropped = "), "{}", said[0]);
        let object: Value = serde_json::from_slice(&std::fs::read(&artifacts[&inv]).unwrap()).unwrap();
        let on_device = graph_runtime == GraphRuntime::TensorMapAndRingBuffer;
        check(&object, profile.counter_hz, profile.clusters, on_device, level);
    }
}

fn recorded(swimlane: Level, output: &Path) -> CallConfig {
    CallConfig { swimlane, output_prefix: Some(output.to_owned()), ..CallConfig::default() }
}

fn check(object: &Value, counter_hz: u64, clusters: usize, on_device: bool, level: Level) {
    let metadata = &object["metadata"];
    assert_eq!(number(object, "level"), level as u64);
    assert_eq!(number(metadata, "clock_freq_hz"), counter_hz);
    assert_eq!(metadata["records"]["is_exact"], true, "{metadata}");
    assert!(rows(metadata, "clock_anchors").len() >= 2, "{metadata}");
    let anchors: Vec<u64> =
        rows(metadata, "clock_anchors").iter().map(|anchor| number(anchor, "device_cycles")).collect();
    let within = |cycles: u64| (anchors[0]..=*anchors.last().unwrap()).contains(&cycles);

    // Every task once on a core, in order on each.
    let tasks = rows(object, "aicore_tasks");
    assert_eq!(tasks.len() as u64, TASKS);
    let cell = |row: &Value, at: usize| row[at].as_u64().unwrap();
    let tokens: BTreeSet<u64> = tasks.iter().map(|row| cell(row, 1)).collect();
    assert_eq!(tokens, (0..TASKS).collect());
    let mut ends: BTreeMap<u64, u64> = BTreeMap::new();
    let mut of_cores: BTreeMap<(u64, u64), (u64, u64)> = BTreeMap::new();
    for row in tasks {
        let (core, token, reg, start, end) =
            (cell(row, 0), cell(row, 1), cell(row, 2), cell(row, 3), cell(row, 4));
        assert!(start <= end && within(start) && within(end), "{row}");
        assert_eq!(core < clusters as u64, token % 3 == 0, "an AIC runs each third task: {row}");
        let before = ends.insert(core, end).unwrap_or(0);
        assert!(before <= start, "one task at a time on core {core}");
        assert_eq!(of_cores.insert((core, reg), (start, end)), None);
    }
    // What the schedulers saw lies around it.
    let seen = rows(object, "aicpu_tasks");
    assert_eq!(seen.len() as u64, if level >= Level::AicpuTasks { TASKS } else { 0 });
    for row in seen {
        let (dispatch, finish) = (cell(row, 2), cell(row, 3));
        let (start, end) = of_cores[&(cell(row, 0), cell(row, 1))];
        assert!(dispatch <= start && end <= finish, "{row} around {start}..{end}");
    }
    let phases: Vec<&Value> =
        rows(object, "aicpu_scheduler_phases").iter().flat_map(|of| of.as_array().unwrap()).collect();
    let dealt_with = |kind: &str| -> u64 {
        phases
            .iter()
            .filter(|phase| phase["kind"] == kind)
            .map(|phase| number(phase, "tasks_processed"))
            .sum()
    };
    let all = if level >= Level::SchedulerPhases { TASKS } else { 0 };
    assert_eq!((dealt_with("dispatch"), dealt_with("complete")), (all, all));
    // The orchestrator's, where it is on the device.
    let flat = |key: &str| -> Vec<Value> {
        rows(object, key).iter().flat_map(|of| of.as_array().unwrap().clone()).collect()
    };
    // The host's, where it is there.
    let on_host = level >= Level::OrchestratorPhases && !on_device;
    assert_eq!(object.get("host_orchestrator_phases").is_some(), on_host);
    if on_host {
        let (submits, uploads) = (flat("host_orchestrator_phases"), rows(object, "host_device_uploads"));
        let order: Vec<u64> = submits.iter().map(|submit| number(submit, "task_id")).collect();
        assert_eq!(order, (0..TASKS).collect::<Vec<_>>());
        assert!(
            !uploads.is_empty() && uploads.iter().all(|upload| number(upload, "detail") != 0),
            "{uploads:?}"
        );
        // One after the other, before the first reading of both clocks.
        let first = number(&rows(metadata, "clock_anchors")[0], "host_monotonic_ns");
        let times = |phase: &Value| [number(phase, "start_host_ns"), number(phase, "end_host_ns")];
        let of_host: Vec<u64> = submits.iter().chain(uploads).flat_map(times).chain([first]).collect();
        assert!(of_host.is_sorted(), "{of_host:?}");
        assert_eq!(number(metadata, "host_orchestration_origin_ns"), of_host[0]);
        assert_eq!(metadata["host_capture"]["status"], "complete", "{metadata}");
        assert_eq!(number(&metadata["host_capture"], "expected_records"), TASKS);
    }
    let (submits, scopes) = (flat("aicpu_orchestrator_phases"), flat("named_scopes"));
    if level < Level::OrchestratorPhases || !on_device {
        assert_eq!((submits.len(), scopes.len()), (0, 0));
        return;
    }
    let order: Vec<u64> = submits.iter().map(|submit| number(submit, "task_id")).collect();
    assert_eq!(order, (0..TASKS).collect::<Vec<_>>());
    let named = |name: &str| scopes.iter().filter(|scope| scope["name"] == name).collect::<Vec<_>>();
    let (entries, inner) = (named("whole_entry"), named("one_task"));
    assert_eq!(entries.len(), 1, "{scopes:?}");
    let whole = entries[0];
    assert_eq!((inner.len() as u64, number(whole, "depth")), (TASKS, 0));
    for scope in inner {
        assert_eq!(number(scope, "depth"), 1);
        assert!(number(whole, "start_cycles") <= number(scope, "start_cycles"));
        assert!(number(scope, "end_cycles") <= number(whole, "end_cycles"));
    }
}

#[test]
fn a_failed_run_leaves_no_artifact_and_the_next_one_starts_afresh() {
    let directory = tempfile::tempdir().unwrap();
    let output = directory.path().join("records");
    log::start(directory.path());
    let fails = r#"
#include "submit.h"
int aicpu_orchestration_entry(const SimplerOrchestrationApi *api, SimplerRun *run, const SimplerChipArgs *args) {
    for (int i = 0; i < 20; i++) {
        SimplerTensor y = view(&args->tensors[0], (uint64_t)i, 1);
        SimplerTaskArg a[] = {{&y, SIMPLER_INPUT}, {&y, SIMPLER_INPUT}, {&y, SIMPLER_INOUT}};
        SimplerTask task = task_of(a, 3);
        task.aiv0 = 0;
        if (api->submit_task(run, &task) < 0) return 1;
    }
    if (args->scalars[0]) api->report_fatal(run, "as told");
    return 0;
}
"#;
    let chip = small_chip();
    let id = chip.register(&image("fails", fails, &[("add", CoreKind::Aiv, ADD_KERNEL)])).unwrap();
    let level = Level::OrchestratorPhases;
    let go = |fail: u64| {
        let mut y = vec![1.0; 64];
        let (tensors, config) = (vec![host(&mut y, ArgUse::InOut)], recorded(level, &output));
        run(&chip, id, &RunArgs { tensors, scalars: vec![fail], config })
    };
    go(1).unwrap_err();
    assert!(artifacts(&output).is_empty());
    go(0).unwrap();
    let artifacts = artifacts(&output);
    let object: Value =
        serde_json::from_slice(&std::fs::read(artifacts.values().next().unwrap()).unwrap()).unwrap();
    assert_eq!((artifacts.len(), rows(&object, "aicore_tasks").len()), (1, 20));
    assert_eq!(object["metadata"]["records"]["is_exact"], true);
}

#[test]
fn an_output_that_cannot_be_written_is_said_and_the_run_succeeds() {
    let directory = tempfile::tempdir().unwrap();
    log::start(directory.path());
    let blocked = directory.path().join("blocked");
    std::fs::write(&blocked, "a file").unwrap();
    let chip = small_chip();
    let id = chip.register(&image("empty", EMPTY, &[])).unwrap();
    let config = recorded(Level::AicoreTasks, &blocked);
    run(&chip, id, &RunArgs { config, ..RunArgs::default() }).unwrap();
    let text = log::text(directory.path());
    assert!(text.lines().any(|line| line.contains("[ERROR]") && line.contains("cannot write ")), "{text}");
}

#[test]
fn one_run_of_many_is_recorded() {
    let directory = tempfile::tempdir().unwrap();
    log::start(directory.path());
    let kernels = [("add", CoreKind::Aiv, ADD_KERNEL), ("add_cube", CoreKind::Aic, ADD_KERNEL)];
    let image = image("scoped", SCOPED, &kernels);
    for (arm, graph_runtime) in
        [GraphRuntime::TensorMapAndRingBuffer, GraphRuntime::HostBuildGraph].into_iter().enumerate()
    {
        let prefix = directory.path().join(arm.to_string());
        let chip = chip_of((Profile::a2a3sim(), graph_runtime));
        let id = chip.register(&image).unwrap();
        for round in 0..5 {
            let config = CallConfig {
                aicpu_threads: Some(3),
                swimlane: if round == 2 { Level::SchedulerPhases } else { Level::Off },
                output_prefix: Some(prefix.clone()),
                ..CallConfig::default()
            };
            let mut y = vec![1.0; 64];
            let tensors = vec![host(&mut y, ArgUse::InOut)];
            run(&chip, id, &RunArgs { tensors, scalars: vec![12], config }).unwrap();
        }
        let artifacts = artifacts(&prefix);
        assert_eq!(artifacts.len(), 1, "{artifacts:?}");
        let file = artifacts.values().next().unwrap();
        let object: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        assert_eq!(object["aicore_tasks"].as_array().unwrap().len(), 12);
        // Who schedules which core follows from the run's own threads.
        let schedulers = if graph_runtime == GraphRuntime::HostBuildGraph { 3 } else { 2 };
        let owners = object["metadata"]["core_to_thread"].as_array().unwrap();
        let most = owners.iter().map(|owner| owner.as_u64().unwrap()).max().unwrap();
        assert_eq!(most + 1, schedulers);
    }
}

#[test]
fn a_log_without_a_directory_goes_where_the_first_run_that_names_one_puts_its_artifacts() {
    let folder = tempfile::tempdir().unwrap();
    simpler_host_log::init(&simpler_host_log::Config::default()).unwrap();
    let chip = small_chip();
    let id = chip.register(&image("empty", EMPTY, &[])).unwrap();
    for prefix in [None, Some("first"), Some("second"), None] {
        let output_prefix = prefix.map(|prefix| folder.path().join(prefix));
        let config = CallConfig { output_prefix, ..CallConfig::default() };
        run(&chip, id, &RunArgs { config, ..RunArgs::default() }).unwrap();
        // What the first run said goes to stderr.
        simpler_host_log::flush(std::time::Duration::from_secs(5)).unwrap();
    }
    let spans = log::spans(&folder.path().join("first"));
    assert_eq!(spans.iter().filter(|span| span.name == "simpler_run").count(), 3, "{spans:?}");
    assert!(log::text(&folder.path().join("first")).contains("[CLOCK_ANCHOR]"));
    assert!(!folder.path().join("second").exists());
}

#[test]
fn an_output_prefix_that_is_no_path_for_the_log_is_refused() {
    let chip = small_chip();
    let id = chip.register(&image("empty", EMPTY, &[])).unwrap();
    let config = CallConfig { output_prefix: Some("x".repeat(2000).into()), ..CallConfig::default() };
    let error = run(&chip, id, &RunArgs { config, ..RunArgs::default() }).unwrap_err();
    assert!(error.code == -5 && error.text.contains("output prefix xxx"), "{error}");
}
