//! How buffers go round, one step after the other on one thread: what is kept, what waits, what is lost.

mod support;

use simpler_swimlane::{AicoreTask, AicpuTask, Gate, NamedScope, OrchPhase, RecordKind, SchedPhase, Totals};
use std::sync::atomic::{AtomicU32, Ordering};
use support::{DROPPED, Device, DrainingGate, SEQ, ShutGate, TOTAL, phase, phases, value};

const KIND: RecordKind = RecordKind::OrchPhase;

#[test]
fn order_is_kept_within_and_across_buffers() {
    for records in [0, 1, 2, 3, 4, 11, 12, 13, 100] {
        let device = Device::small(3, 4, 8);
        let gate = DrainingGate::new(device.drain());
        let writer = device.thread_writer::<OrchPhase>(1, &gate);
        for number in 0..records {
            assert!(writer.append(phase(number)));
        }
        let collected = gate.drain.take().unwrap().finish();
        assert_eq!(collected.records.orch_phases, [vec![], phases(0..records)], "{records} records");
        assert!(collected.reconciliation.is_exact());
        let totals = Totals { collected: records.into(), dropped: 0, total: records.into() };
        assert_eq!(collected.reconciliation.kind(KIND), totals);
        assert_eq!(
            collected.reconciliation.to_string(),
            format!("swimlane: {records} collected + 0 dropped = {records} recorded")
        );
    }
}

#[test]
fn records_of_every_kind_come_from_the_pool_they_went_to() {
    let device = Device::small(2, 2, 8);
    let gate = DrainingGate::new(device.drain());
    for round in 0..7_u32 {
        let number = u64::from(round);
        for core in 0..3 {
            let mark = number * 10 + core as u64;
            let thread = core % 2;
            let aicpu = AicpuTask { dispatch: mark, finish: mark + 1, reg_task_id: round, reserved: [0; 3] };
            let aicore = AicoreTask { start: mark, token: number, reg_task_id: round, ..Default::default() };
            assert!(device.core_writer(thread, core, &gate).append(aicpu));
            assert!(device.core_writer(thread, core, &gate).append(aicore));
        }
        for thread in 0..2 {
            let mark = number * 10 + thread as u64;
            let sched = SchedPhase { start: mark, loop_iter: round, ..Default::default() };
            let scope = NamedScope { start: mark, name_hash: !mark, ..Default::default() };
            assert!(device.thread_writer(thread, &gate).append(sched));
            assert!(device.thread_writer(thread, &gate).append(scope));
            assert!(device.thread_writer(thread, &gate).append(OrchPhase { start: mark, ..phase(round) }));
        }
    }
    let collected = gate.drain.take().unwrap().finish();
    let records = &collected.records;
    let starts = |index: usize| (0..7).map(|round| round * 10 + index as u64).collect::<Vec<_>>();
    for core in 0..3 {
        let found: Vec<_> = records.aicpu_tasks[core].iter().map(|task| task.dispatch).collect();
        assert_eq!(found, starts(core));
        let found: Vec<_> = records.aicore_tasks[core].iter().map(|task| task.start).collect();
        assert_eq!(found, starts(core));
    }
    for thread in 0..2 {
        let found: Vec<_> = records.sched_phases[thread].iter().map(|phase| phase.start).collect();
        assert_eq!(found, starts(thread));
        let found: Vec<_> = records.orch_phases[thread].iter().map(|phase| phase.start).collect();
        assert_eq!(found, starts(thread));
        let found: Vec<_> = records.named_scopes[thread].iter().map(|scope| scope.name_hash).collect();
        assert_eq!(found, starts(thread).into_iter().map(|start| !start).collect::<Vec<_>>());
    }
    assert_eq!(collected.reconciliation.sum(), Totals { collected: 84, dropped: 0, total: 84 });
    assert!(collected.reconciliation.is_exact());
}

#[test]
fn without_a_free_buffer_the_device_waits_and_goes_on_when_one_comes() {
    let device = Device::small(2, 1, 8);
    let gate = DrainingGate::new(device.drain());
    let writer = device.thread_writer::<OrchPhase>(0, &gate);
    for number in 0..7 {
        assert!(writer.append(phase(number)));
    }
    assert_eq!(gate.waits.get(), 3, "at each full buffer, since there is but one");
    let collected = gate.drain.take().unwrap().finish();
    assert_eq!(collected.records.orch_phases[0], phases(0..7));
    assert!(collected.reconciliation.is_exact());
}

#[test]
fn without_a_place_in_the_ready_queue_the_device_waits_and_goes_on_when_one_comes() {
    // Buffers enough, but one place: the second full buffer has to wait for the first to be taken.
    let device = Device::small(2, 4, 1);
    let gate = DrainingGate::new(device.drain());
    let writer = device.thread_writer::<OrchPhase>(0, &gate);
    for number in 0..5 {
        assert!(writer.append(phase(number)));
    }
    assert_eq!(gate.waits.get(), 1);
    let collected = gate.drain.take().unwrap().finish();
    assert_eq!(collected.records.orch_phases[0], phases(0..5));
    assert!(collected.reconciliation.is_exact());
}

#[test]
fn a_full_buffer_that_finds_no_place_stays_the_heads_and_is_collected() {
    // Acknowledge after delivery: released before, its records would be in no account.
    let device = Device::small(2, 4, 1);
    let drain = device.drain();
    let gate = ShutGate::default();
    let writer = device.thread_writer::<OrchPhase>(0, &gate);
    let kept: Vec<bool> = (0..6).map(|number| writer.append(phase(number))).collect();
    assert_eq!(kept, [true, true, true, true, false, false]);
    assert_eq!(gate.handed_over.get(), 1);
    let collected = drain.finish();
    assert_eq!(collected.records.orch_phases[0], phases(0..4));
    assert_eq!(collected.reconciliation.kind(KIND), Totals { collected: 4, dropped: 2, total: 6 });
    assert!(collected.reconciliation.is_exact());
}

#[test]
fn after_the_deadline_each_lost_record_is_counted_and_none_waits_again() {
    let device = Device::small(2, 1, 8);
    let mut drain = device.drain();
    let gate = ShutGate::default();
    let writer = device.thread_writer::<OrchPhase>(0, &gate);
    for number in 0..12 {
        assert_eq!(writer.append(phase(number)), number < 2);
    }
    assert_eq!(gate.waits.get(), 1, "one deadline, not one per record");
    assert_eq!(value(device.head_word(KIND, 0, TOTAL)), 12);
    assert_eq!(value(device.head_word(KIND, 0, DROPPED)), 10);

    // A buffer comes: records are kept again, and the next stop waits again.
    assert_eq!(drain.step(|thread| assert_eq!(thread, 0)), 1);
    assert!(writer.append(phase(12)));
    assert!(writer.append(phase(13)));
    assert!(!writer.append(phase(14)));
    assert_eq!(gate.waits.get(), 2);
    let collected = drain.finish();
    assert_eq!(collected.records.orch_phases[0], [phases(0..2), phases(12..14)].concat());
    assert_eq!(
        collected.reconciliation.to_string(),
        "swimlane: 4 collected + 11 dropped = 15 recorded",
        "lost, but accounted for"
    );
}

#[test]
fn a_gate_that_says_open_and_is_not_costs_the_record_and_no_other() {
    struct Liar;
    impl Gate for Liar {
        fn handed_over(&self) {}
        fn wait(&self, open: &mut dyn FnMut() -> bool) -> bool {
            assert!(!open());
            true
        }
    }
    // Without a place in the queue, and without a buffer.
    for (buffers, places) in [(4, 1), (1, 4)] {
        let device = Device::small(1, buffers, places);
        let mut drain = device.drain();
        let writer = device.thread_writer::<OrchPhase>(0, &Liar);
        let kept: Vec<u32> = (0..9).filter(|number| writer.append(phase(*number))).collect();
        drain.step(|_| ());
        assert!(writer.append(phase(9)));
        let collected = drain.finish();
        let expected: Vec<_> = kept.into_iter().chain([9]).map(phase).collect();
        assert_eq!(collected.records.orch_phases[0], expected);
        assert!(collected.reconciliation.is_exact());
    }
}

#[test]
fn a_buffer_with_an_uncommitted_record_is_not_handed_over() {
    let device = Device::small(2, 4, 8);
    let mut drain = device.drain();
    let gate = ShutGate::default();
    let writer = device.core_writer::<AicoreTask>(0, 2, &gate);
    assert!(writer.append(AicoreTask { token: 1, ..Default::default() }));
    let late = writer.reserve(AicoreTask { token: 2, ..Default::default() }).unwrap();
    // The buffer is full, and a core has not finished: its record may still be written.
    assert_eq!(writer.reserve(AicoreTask::default()), None);
    assert_eq!((gate.handed_over.get(), gate.waits.get(), drain.step(|_| ())), (0, 0, 0));
    // SAFETY: reserved, and not committed.
    unsafe { (*late).end = 77 };
    writer.commit();
    // Full and committed: still the head's until the next reserve.
    assert_eq!(drain.step(|_| ()), 0);
    let next = writer.reserve(AicoreTask { token: 3, ..Default::default() }).unwrap();
    assert_eq!(drain.step(|_| ()), 1);
    // SAFETY: as above; it lies in another buffer than the one that was handed over.
    unsafe { (*next).end = 88 };
    writer.commit();
    let collected = drain.finish();
    let found: Vec<_> = collected.records.aicore_tasks[2].iter().map(|task| (task.token, task.end)).collect();
    assert_eq!(found, [(1, 0), (2, 77), (3, 88)]);
    let totals = Totals { collected: 3, dropped: 1, total: 4 };
    assert_eq!(collected.reconciliation.kind(RecordKind::AicoreTask), totals);
}

#[test]
fn a_commit_too_many_does_not_pass_for_the_next_record() {
    let device = Device::small(1, 4, 8);
    let drain = device.drain();
    let gate = ShutGate::default();
    let writer = device.core_writer::<AicoreTask>(0, 0, &gate);
    writer.commit();
    writer.commit();
    assert!(writer.reserve(AicoreTask::default()).is_some());
    assert_eq!(writer.reserve(AicoreTask::default()), None, "the first is uncommitted");
    writer.commit();
    writer.commit();
    assert!(writer.reserve(AicoreTask::default()).is_some());
    assert_eq!(writer.reserve(AicoreTask::default()), None, "the third is uncommitted");
    drop(drain);
}

#[test]
fn a_reserved_record_that_never_finished_is_a_mismatch() {
    let device = Device::small(4, 2, 8);
    let drain = device.drain();
    let gate = ShutGate::default();
    let writer = device.core_writer::<AicoreTask>(0, 1, &gate);
    assert!(writer.append(AicoreTask::default()));
    assert!(writer.reserve(AicoreTask::default()).is_some());
    let reconciliation = drain.finish().reconciliation;
    assert!(!reconciliation.is_exact());
    assert_eq!(
        reconciliation.to_string(),
        "swimlane: 1 collected + 0 dropped do not account for 2 recorded: aicore_tasks of core 1: 1 + 0, not 2"
    );
}

#[test]
fn a_reserved_record_holds_nothing_of_the_buffers_last_turn() {
    let device = Device::small(1, 1, 8);
    let gate = DrainingGate::new(device.drain());
    let writer = device.core_writer::<AicoreTask>(0, 0, &gate);
    assert!(writer.append(AicoreTask { start: 5, end: 6, ..Default::default() }));
    let second = writer.reserve(AicoreTask { token: 9, ..Default::default() }).unwrap();
    // SAFETY: reserved, and not committed.
    assert_eq!(unsafe { second.read() }, AicoreTask { token: 9, ..Default::default() });
}

#[test]
fn buffers_that_are_not_full_are_collected_at_the_end() {
    let device = Device::small(100, 4, 8);
    let drain = device.drain();
    let gate = ShutGate::default();
    for thread in 0..2 {
        let writer = device.thread_writer::<OrchPhase>(thread, &gate);
        for number in 0..=thread as u32 {
            assert!(writer.append(phase(number)));
        }
    }
    let collected = drain.finish();
    assert_eq!(collected.records.orch_phases, [phases(0..1), phases(0..2)]);
    assert_eq!(gate.handed_over.get(), 0);
}

#[test]
fn a_wrong_count_is_reported_with_its_pool() {
    let with_wrong = |change: &dyn Fn(&Device)| {
        let device = Device::small(2, 4, 8);
        let drain = device.drain();
        let gate = ShutGate::default();
        for thread in 0..2 {
            let writer = device.thread_writer::<OrchPhase>(thread, &gate);
            (0..3).for_each(|number| assert!(writer.append(phase(number))));
        }
        change(&device);
        drain.finish().reconciliation
    };
    assert!(with_wrong(&|_| ()).is_exact());
    let add = |device: &Device, thread, word, count| {
        device.head_word(KIND, thread, word).fetch_add(count, Ordering::Relaxed);
    };

    let wrong = with_wrong(&|device| add(device, 1, TOTAL, 1));
    assert!(!wrong.is_exact());
    assert_eq!((wrong.mismatches.len(), wrong.mismatches[0].kind, wrong.mismatches[0].index), (1, KIND, 1));
    assert_eq!(
        wrong.to_string(),
        "swimlane: 6 collected + 0 dropped do not account for 7 recorded: \
         aicpu_orchestrator_phases of thread 1: 3 + 0, not 4"
    );
    assert!(!with_wrong(&|device| add(device, 0, DROPPED, 1)).is_exact());

    // Two errors whose sum is none are two errors.
    let two = with_wrong(&|device| {
        add(device, 0, TOTAL, 1);
        add(device, 1, TOTAL, u32::MAX);
    });
    assert_eq!((two.sum().is_exact(), two.is_exact(), two.mismatches.len()), (true, false, 2));
    assert!(two.to_string().ends_with("3 + 0, not 4 (and 1 pools more)"), "{two}");
}

#[test]
fn an_active_buffer_of_the_wrong_turn_is_not_taken() {
    let device = Device::small(2, 4, 8);
    let drain = device.drain();
    let gate = ShutGate::default();
    let writer = device.thread_writer::<OrchPhase>(0, &gate);
    (0..3).for_each(|number| assert!(writer.append(phase(number))));
    device.head_word(KIND, 0, SEQ).store(5, Ordering::Relaxed);
    let collected = drain.finish();
    assert_eq!(collected.records.orch_phases[0], phases(0..2), "what came in turn");
    assert_eq!(collected.reconciliation.unusable_entries, 1);
    assert!(collected.reconciliation.to_string().ends_with("2 + 0, not 3; 1 unusable ready entries"));
}

#[test]
fn an_entry_that_names_nothing_of_the_layout_is_counted_and_not_followed() {
    // The queue of thread 0 is at offset 0, its places behind 128 bytes of ends: index, kind, buffer, seq, count.
    let place = 128;
    for (word, wrong) in [(0, 2), (4, 5), (8, 32), (12, 1), (16, 1), (20, 4)] {
        let device = Device::small(2, 4, 8);
        let mut drain = device.drain();
        let gate = ShutGate::default();
        let writer = device.thread_writer::<OrchPhase>(0, &gate);
        (0..3).for_each(|number| assert!(writer.append(phase(number))));
        let at = device.base().wrapping_add(place + word).cast();
        // SAFETY: inside the ready queue and aligned; everybody accesses it as an atomic.
        let word_of_place = unsafe { AtomicU32::from_ptr(at) };
        word_of_place.fetch_xor(wrong, Ordering::Relaxed);
        assert_eq!(drain.step(|_| ()), 1);
        let collected = drain.finish();
        assert!(!collected.reconciliation.is_exact(), "word {word}");
        assert_ne!(collected.reconciliation.unusable_entries, 0, "word {word}");
    }
}

#[test]
fn a_reset_leaves_nothing_of_the_last_run() {
    let device = Device::small(2, 2, 4);
    for run in 0..3 {
        let mut drain = device.drain();
        let gate = ShutGate::default();
        let writer = device.thread_writer::<OrchPhase>(0, &gate);
        // Ends with buffers in every place: in the queue, active, and records lost.
        let records = 5 + run;
        for number in 0..records {
            assert_eq!(writer.append(phase(100 * run + number)), number < 4);
        }
        if run == 1 {
            drain.step(|_| ());
        }
        let collected = drain.finish();
        assert_eq!(collected.records.orch_phases, [phases(100 * run..100 * run + 4), vec![]], "run {run}");
        let totals = Totals { collected: 4, dropped: (records - 4).into(), total: records.into() };
        assert_eq!(collected.reconciliation.sum(), totals);
        assert!(collected.reconciliation.is_exact());
    }
}
