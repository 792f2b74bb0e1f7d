//! The artifact, to the byte, and that it is JSON.

#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use std::fmt::Write as _;

use simpler_kernel_abi::CoreKind;
use simpler_swimlane::{
    AicoreTask, AicpuTask, Capacities, ClockAnchor, Collected, HostOrchestration, HostSubmit, HostUpload,
    Level, Metadata, NamedScope, OrchPhase, PhaseNames, SchedKind, SchedPhase, SwimlaneLayout, fnv1a,
    write_artifact,
};
use support::{Device, ShutGate};

const GOLDEN: &str = include_str!("data/chip_swimlane_records.json");

const CORES: [CoreKind; 3] = [CoreKind::Aic, CoreKind::Aiv, CoreKind::Aiv];

fn text(metadata: &Metadata<'_>, collected: &Collected, names: &PhaseNames) -> String {
    let mut bytes = Vec::new();
    write_artifact(&mut bytes, metadata, collected, names).unwrap();
    String::from_utf8(bytes).unwrap()
}

/// A run with a record of everything, and one that is lost.
fn run() -> (SwimlaneLayout, Collected) {
    let device = Device::new(Level::OrchestratorPhases, 2, 3, Capacities::uniform(3, 1, 1));
    let drain = device.drain();
    let gate = ShutGate::default();
    let aicore = device.core_writer(0, 2, &gate);
    let aicpu = device.core_writer(0, 2, &gate);
    for task in 0..2 {
        let (start, reg_task_id) = (1000 + 100 * u64::from(task), 7 + task);
        let token = u64::MAX - u64::from(task);
        aicore.append(AicoreTask { start, end: start + 50, token, reg_task_id, receive_to_start: 4 });
        let (dispatch, finish) = (start - 10, start + 60);
        aicpu.append(AicpuTask { dispatch, finish, reg_task_id, reserved: [0; 3] });
    }
    let sched = device.thread_writer(0, &gate);
    let phase = |kind: SchedKind, detail| SchedPhase {
        start: 900,
        end: 990,
        loop_iter: 3,
        kind: kind as u32,
        tasks: 2,
        detail,
        depths_at_start: [1, -1, 0],
        depths_at_end: [0, 2, i16::MAX],
        ..SchedPhase::default()
    };
    sched.append(phase(SchedKind::Dispatch, SchedPhase::pops(5, 6)));
    sched.append(phase(SchedKind::DummyTask, SchedPhase::task(1 << 40)));
    sched.append(SchedPhase { kind: 3, ..phase(SchedKind::Complete, [9, 9]) });
    sched.append(phase(SchedKind::Complete, [0, 0]));
    let orch = device.thread_writer(1, &gate);
    orch.append(OrchPhase { start: 800, end: 850, task_id: 1 << 40, submit_idx: 0, reserved: 0 });
    let scopes = device.thread_writer(1, &gate);
    scopes.append(NamedScope { start: 810, end: 820, name_hash: 0xabc, depth: 1, reserved: 0 });
    scopes.append(NamedScope { start: 800, end: 850, name_hash: fnv1a(r#"a "b" \"#), depth: 0, reserved: 0 });
    (device.layout, drain.finish())
}

fn names() -> PhaseNames {
    // The name that the run uses, in the section of this program.
    drop(simpler_swimlane::phase_scope!(None, r#"a "b" \"#));
    PhaseNames::from_elf(&std::fs::read(std::env::current_exe().unwrap()).unwrap()).unwrap()
}

#[test]
fn the_artifact_is_the_golden_file() {
    let (layout, collected) = run();
    let metadata = Metadata {
        pid: 4711,
        inv: 12,
        core_to_thread: &[Some(0), None, Some(0)],
        clock_anchors: &[
            ClockAnchor { device_cycles: 700, host_monotonic_ns: 14_000, half_ns: 25 },
            ClockAnchor { device_cycles: 1700, host_monotonic_ns: 34_000, half_ns: 30 },
        ],
        host_clock_domain_id: Some("a boot"),
        host: Some(&HostOrchestration {
            submits: vec![
                HostSubmit { task_id: 1 << 32, start_ns: 10, end_ns: 30 },
                HostSubmit { task_id: 5, start_ns: 31, end_ns: 32 },
            ],
            uploads: vec![HostUpload { bytes: 4096, start_ns: 40, end_ns: 45 }],
            tasks: 2,
        }),
        ..Metadata::new(&layout, 50_000_000, &CORES)
    };
    let found = text(&metadata, &collected, &names());
    assert_eq!(found, text(&metadata, &collected, &names()), "equal runs give equal files");
    if found != GOLDEN {
        let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("chip_swimlane_records.json");
        std::fs::write(&path, &found).unwrap();
        panic!("not tests/data/chip_swimlane_records.json; what was written is in {}", path.display());
    }
}

#[test]
fn the_artifact_is_json_with_the_specified_keys() {
    let (layout, collected) = run();
    let metadata = Metadata::new(&layout, 50_000_000, &CORES);
    for collected in [collected, Collected::default()] {
        let parsed: serde_json::Value =
            serde_json::from_str(&text(&metadata, &collected, &PhaseNames::new())).unwrap();
        for key in ["clock_freq_hz", "num_cores", "core_types", "clock_anchors", "core_to_thread", "records"]
        {
            assert!(!parsed["metadata"][key].is_null(), "{key}");
        }
        for key in [
            "aicore_tasks",
            "aicpu_tasks",
            "aicpu_scheduler_phases",
            "aicpu_orchestrator_phases",
            "named_scopes",
        ] {
            assert!(parsed[key].is_array(), "{key}");
        }
        assert_eq!(parsed["level"], 4);
    }
}

#[test]
fn what_the_host_did_is_there_where_it_was_recorded_and_says_if_it_is_all() {
    let (layout, collected) = run();
    let parsed = |host: Option<&HostOrchestration>| -> serde_json::Value {
        let metadata = Metadata { host, ..Metadata::new(&layout, 1, &CORES) };
        serde_json::from_str(&text(&metadata, &collected, &PhaseNames::new())).unwrap()
    };
    let none = parsed(None);
    assert!(none["host_orchestrator_phases"].is_null() && none["metadata"]["orchestrator_source"].is_null());
    let submits = vec![HostSubmit { task_id: 7, start_ns: 10, end_ns: 30 }];
    for (tasks, status, error) in
        [(1, "complete", serde_json::Value::Null), (2, "incomplete", "record_count_mismatch".into())]
    {
        let host = HostOrchestration { submits: submits.clone(), uploads: vec![], tasks };
        let parsed = parsed(Some(&host));
        let metadata = &parsed["metadata"];
        assert_eq!(
            (&metadata["orchestrator_source"], &metadata["host_orchestration_origin_ns"]),
            (&"host".into(), &10.into())
        );
        assert_eq!(
            metadata["host_capture"],
            serde_json::json!({
                "status": status, "expected_records": tasks, "recorded_records": 1, "dropped_records": 0,
                "error": error,
            })
        );
        assert_eq!(parsed["host_device_uploads"], serde_json::json!([]));
    }
}

#[test]
fn the_metadata_says_what_was_lost() {
    let (layout, collected) = run();
    let written = text(&Metadata::new(&layout, 1, &CORES), &collected, &PhaseNames::new());
    let parsed: serde_json::Value = serde_json::from_str(&written).unwrap();
    let records = &parsed["metadata"]["records"];
    let mut lines = String::new();
    for kind in simpler_swimlane::RecordKind::ALL.map(simpler_swimlane::RecordKind::name) {
        let of = &records[kind];
        writeln!(lines, "{kind} {} {} {}", of["collected"], of["dropped"], of["total"]).unwrap();
    }
    assert_eq!(
        lines,
        "aicpu_tasks 2 0 2\naicore_tasks 2 0 2\naicpu_scheduler_phases 3 1 4\n\
         aicpu_orchestrator_phases 1 0 1\nnamed_scopes 2 0 2\n"
    );
    assert_eq!(records["is_exact"], true);
}

#[test]
fn a_writer_that_fails_is_an_error() {
    struct Full;
    impl std::io::Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let (layout, collected) = run();
    let metadata = Metadata::new(&layout, 1, &CORES);
    let failed = write_artifact(Full, &metadata, &collected, &PhaseNames::new()).unwrap_err();
    assert_eq!(failed.kind(), std::io::ErrorKind::StorageFull);
}
