//! Levels, sizes, and that no part of the memory is two things.

mod support;

use simpler_swimlane::{
    AicoreTask, AicpuTask, Capacities, Level, NamedScope, OrchPhase, RecordKind, SchedDetail, SchedKind,
    SchedPhase, SwimlaneLayout,
};
use support::{Device, DrainingGate, ShutGate, phase};

const KIB: usize = 1024;

#[test]
fn records_and_buffers_are_as_large_as_specified() {
    assert_eq!(RecordKind::ALL.map(RecordKind::record_bytes), [32, 32, 64, 32, 32]);
    let sizes = [
        size_of::<AicpuTask>(),
        size_of::<AicoreTask>(),
        size_of::<SchedPhase>(),
        size_of::<OrchPhase>(),
        size_of::<NamedScope>(),
    ];
    assert_eq!(sizes, [32, 32, 64, 32, 32]);
    let layout = SwimlaneLayout::new(Level::OrchestratorPhases, 4, 24, Capacities::DEFAULT);
    assert_eq!(
        RecordKind::ALL.map(|kind| layout.records_per_buffer(kind)),
        [1000, 1024, 16384, 16384, 16384]
    );
    // Four buffers each: 24 × (31.25 + 32) KiB and 4 × (1024 + 512 + 512) KiB; pools; four ready queues.
    let buffers = 4 * (24 * (32_000 + 32 * KIB) + 4 * 2048 * KIB);
    let pools = (2 * 24 + 3 * 4) * 192;
    assert_eq!(layout.bytes(), buffers + pools + 4 * (128 + 1024 * 24));
}

#[test]
fn a_level_records_what_the_one_below_does_and_more() {
    let kinds = |level: i64| {
        let level = Level::try_from(level).unwrap();
        RecordKind::ALL.into_iter().filter(|kind| level.includes(*kind)).collect::<Vec<_>>()
    };
    use RecordKind::*;
    assert_eq!(kinds(0), []);
    assert_eq!(kinds(1), [AicoreTask]);
    assert_eq!(kinds(2), [AicpuTask, AicoreTask]);
    assert_eq!(kinds(3), [AicpuTask, AicoreTask, SchedPhase]);
    assert_eq!(kinds(4), RecordKind::ALL);
    for wrong in [-1, 5, i64::MIN, i64::MAX, 1 << 32] {
        let refused = Level::try_from(wrong).unwrap_err();
        assert_eq!(refused.to_string(), format!("{wrong} is no swimlane level, which are 0 to 4"));
    }
    assert_eq!(Level::default(), Level::Off);
}

#[test]
fn level_0_has_no_memory_and_no_writers() {
    let layout = SwimlaneLayout::new(Level::Off, 4, 24, Capacities::DEFAULT);
    assert_eq!((layout.bytes(), layout.threads()), (0, 0));
    let device = Device::new(Level::Off, 4, 24, Capacities::DEFAULT);
    let gate = ShutGate::default();
    // SAFETY: there are no pools.
    assert!(unsafe { device.track(0, &gate).thread_writer::<OrchPhase>() }.is_none());
    // SAFETY: there are no pools.
    assert!(unsafe { device.track(0, &gate).core_writer::<AicoreTask>(0) }.is_none());
    assert!(device.drain().finish().reconciliation.is_exact());
}

#[test]
fn there_is_a_writer_exactly_for_what_the_layout_has() {
    let device = Device::new(Level::AicpuTasks, 2, 3, Capacities::uniform(2, 2, 2));
    let gate = ShutGate::default();
    for thread in 0..4 {
        for core in 0..5 {
            let track = device.track(thread, &gate);
            // SAFETY: nothing is recorded.
            let aicore = unsafe { track.core_writer::<AicoreTask>(core) };
            // SAFETY: nothing is recorded.
            let aicpu = unsafe { track.core_writer::<AicpuTask>(core) };
            assert_eq!(aicore.is_some(), thread < 2 && core < 3, "thread {thread} core {core}");
            assert_eq!(aicpu.is_some(), aicore.is_some());
        }
        // SAFETY: nothing is recorded.
        assert!(unsafe { device.track(thread, &gate).thread_writer::<SchedPhase>() }.is_none());
    }
}

#[test]
fn capacities_beyond_their_bounds_are_taken_as_the_bound() {
    for capacities in [Capacities::uniform(0, 0, 0), Capacities::uniform(0, 5, 3)] {
        let device = Device::new(Level::OrchestratorPhases, 1, 1, capacities);
        assert_eq!(device.layout.records_per_buffer(RecordKind::OrchPhase), 1);
        let gate = DrainingGate::new(device.drain());
        let writer = device.thread_writer::<OrchPhase>(0, &gate);
        (0..20).for_each(|number| assert!(writer.append(phase(number))));
        assert!(gate.drain.take().unwrap().finish().reconciliation.is_exact());
    }
    let huge = Capacities::uniform(u32::MAX, 4, u32::MAX);
    let layout = SwimlaneLayout::new(Level::OrchestratorPhases, usize::MAX, usize::MAX, huge);
    assert!(layout.bytes() >= usize::MAX / 2, "no allocation grants that");
}

#[test]
fn every_buffer_is_filled_without_touching_anything_else() {
    // Every pool is filled to its last record before anything is drained, and then read back whole.
    let device = Device::small(3, 4, 32);
    let drain = device.drain();
    let gate = ShutGate::default();
    let mark = |index: usize, number: u64| (index as u64) << 32 | number;
    for number in 0..12 {
        for core in 0..3 {
            let at = mark(core, number);
            let task = AicpuTask { dispatch: at, finish: !at, ..Default::default() };
            assert!(device.core_writer(0, core, &gate).append(task));
            let task = AicoreTask { start: at, end: !at, ..Default::default() };
            assert!(device.core_writer(0, core, &gate).append(task));
        }
        for thread in 0..2 {
            let at = mark(thread, number);
            assert!(device.thread_writer(thread, &gate).append(SchedPhase {
                start: at,
                end: !at,
                reserved: [u32::MAX; 4],
                ..Default::default()
            }));
            assert!(device.thread_writer(thread, &gate).append(OrchPhase {
                start: at,
                end: !at,
                ..Default::default()
            }));
            assert!(device.thread_writer(thread, &gate).append(NamedScope {
                start: at,
                end: !at,
                ..Default::default()
            }));
        }
    }
    assert_eq!(gate.waits.get(), 0);
    let collected = drain.finish();
    assert!(collected.reconciliation.is_exact());
    let expected = |index: usize| (0..12).map(move |number| (mark(index, number), !mark(index, number)));
    for core in 0..3 {
        let found = collected.records.aicpu_tasks[core].iter().map(|task| (task.dispatch, task.finish));
        assert!(found.eq(expected(core)));
        let found = collected.records.aicore_tasks[core].iter().map(|task| (task.start, task.end));
        assert!(found.eq(expected(core)));
    }
    for thread in 0..2 {
        let found = collected.records.sched_phases[thread].iter().map(|phase| (phase.start, phase.end));
        assert!(found.eq(expected(thread)));
        let found = collected.records.orch_phases[thread].iter().map(|phase| (phase.start, phase.end));
        assert!(found.eq(expected(thread)));
        let found = collected.records.named_scopes[thread].iter().map(|scope| (scope.start, scope.end));
        assert!(found.eq(expected(thread)));
    }
}

#[test]
fn scheduler_kinds_have_the_specified_numbers_and_names_of_their_own() {
    let numbers: Vec<u32> = SchedKind::ALL.map(|kind| kind as u32).into();
    assert_eq!(numbers, [0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]);
    assert_eq!(SchedKind::from_number(3), None, "retired");
    assert_eq!(SchedKind::from_number(14), None);
    let mut names: Vec<&str> = SchedKind::ALL.map(SchedKind::name).into();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 13);
    for kind in SchedKind::ALL {
        assert_eq!(SchedKind::from_number(kind as u32), Some(kind));
    }
    assert_eq!(SchedKind::Dispatch.detail(), SchedDetail::Pops);
    assert_eq!(SchedKind::DummyTask.detail(), SchedDetail::Task);
}

#[test]
fn a_task_id_survives_its_two_halves() {
    for id in [0, 1, u64::from(u32::MAX), 1 << 32, u64::MAX, 0x0123_4567_89ab_cdef] {
        assert_eq!(SchedPhase { detail: SchedPhase::task(id), ..Default::default() }.task_id(), id);
    }
    assert_eq!(SchedPhase::pops(3, 4), [3, 4]);
}
