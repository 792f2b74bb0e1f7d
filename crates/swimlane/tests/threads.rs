//! The collector on its thread, and device threads beside it: nothing is lost, whoever is slow, and nobody is
//! left waiting. ThreadSanitizer runs these, too.

#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use simpler_swimlane::{
    AicoreTask, AicpuTask, BACKSTOP, Capacities, Collector, CollectorGate, Gate, Level, NamedScope,
    OrchPhase, RecordKind, SchedPhase, Totals,
};
use support::{Device, PATIENCE, TOTAL, phase, phases, poll_until, value};

/// Joins each by its handle: the end of a scope waits for them by means that ThreadSanitizer cannot see, since they
/// are in a standard library that was not built for it.
fn join(threads: Vec<thread::ScopedJoinHandle<'_, ()>>) {
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

fn start(device: &Device) -> Collector {
    // SAFETY: the tests finish the collector before the device goes, and after their writers have ended.
    unsafe { Collector::start(device.base(), device.layout) }.unwrap()
}

#[test]
fn threads_and_cores_that_record_at_once_lose_nothing() {
    const THREADS: usize = 3;
    const CORES: usize = 6;
    const ROUNDS: u64 = 2000;
    // As tight as it gets, and less so: a gate at nearly every record, or hardly one.
    for capacities in
        [Capacities::uniform(1, 1, 1), Capacities::uniform(3, 2, 2), Capacities::uniform(64, 4, 64)]
    {
        let device = Device::new(Level::OrchestratorPhases, THREADS, CORES, capacities);
        let collector = start(&device);
        thread::scope(|s| {
            let spawn = |thread| {
                let gate = collector.gate(thread, PATIENCE);
                let device = &device;
                s.spawn(move || {
                    let own = |core: &usize| core % THREADS == thread;
                    let tasks: Vec<_> = (0..CORES)
                        .filter(own)
                        .map(|core| {
                            let aicpu = device.core_writer::<AicpuTask>(thread, core, &gate);
                            (aicpu, device.core_writer::<AicoreTask>(thread, core, &gate))
                        })
                        .collect();
                    let sched = device.thread_writer::<SchedPhase>(thread, &gate);
                    let orch = device.thread_writer::<OrchPhase>(thread, &gate);
                    let scopes = device.thread_writer::<NamedScope>(thread, &gate);
                    for number in 0..ROUNDS {
                        for (aicpu, aicore) in &tasks {
                            assert!(aicpu.append(AicpuTask { dispatch: number, ..Default::default() }));
                            assert!(aicore.append(AicoreTask { start: number, ..Default::default() }));
                        }
                        assert!(sched.append(SchedPhase { start: number, ..Default::default() }));
                        assert!(orch.append(OrchPhase { start: number, ..Default::default() }));
                        assert!(scopes.append(NamedScope { start: number, ..Default::default() }));
                    }
                })
            };
            join((0..THREADS).map(spawn).collect());
        });
        let collected = collector.finish();
        let records = &collected.records;
        for core in 0..CORES {
            assert!(records.aicpu_tasks[core].iter().map(|task| task.dispatch).eq(0..ROUNDS));
            assert!(records.aicore_tasks[core].iter().map(|task| task.start).eq(0..ROUNDS));
        }
        for thread in 0..THREADS {
            assert!(records.sched_phases[thread].iter().map(|phase| phase.start).eq(0..ROUNDS));
            assert!(records.orch_phases[thread].iter().map(|phase| phase.start).eq(0..ROUNDS));
            assert!(records.named_scopes[thread].iter().map(|scope| scope.start).eq(0..ROUNDS));
        }
        let total = ROUNDS * (2 * CORES + 3 * THREADS) as u64;
        assert_eq!(collected.reconciliation.sum(), Totals { collected: total, dropped: 0, total });
        assert!(collected.reconciliation.is_exact());
    }
}

/// The registers of a core, as far as a record is concerned: where it goes, and the last task that finished.
#[derive(Default)]
struct Core {
    record: AtomicU64,
    dispatched: AtomicU64,
    finished: AtomicU64,
}

#[test]
fn cores_fill_the_records_that_their_scheduler_reserved() {
    const CORES: usize = 3;
    const TASKS: u64 = 1500;
    let device = Device::new(Level::AicoreTasks, 1, CORES, Capacities::uniform(2, 2, 2));
    let collector = start(&device);
    let cores: [Core; CORES] = Default::default();
    thread::scope(|s| {
        let spawn = |core| {
            s.spawn(move || {
                let core: &Core = core;
                for task in 1..=TASKS {
                    poll_until("a dispatch", || core.dispatched.load(Ordering::Acquire) == task);
                    let record = core.record.load(Ordering::Relaxed) as usize as *mut AicoreTask;
                    // SAFETY: reserved for this task by the scheduler, which commits it after FIN.
                    let record = unsafe { &mut *record };
                    record.start = 2 * task;
                    record.end = 2 * task + 1;
                    core.finished.store(task, Ordering::Release);
                }
            })
        };
        let running = cores.iter().map(spawn).collect();
        let gate = collector.gate(0, PATIENCE);
        let writers: Vec<_> = (0..CORES).map(|core| device.core_writer(0, core, &gate)).collect();
        for task in 1..=TASKS {
            for (core, writer) in cores.iter().zip(&writers) {
                let initial = AicoreTask { token: !task, reg_task_id: task as u32, ..Default::default() };
                let record = writer.reserve(initial).unwrap();
                core.record.store(record as usize as u64, Ordering::Relaxed);
                core.dispatched.store(task, Ordering::Release);
            }
            for (core, writer) in cores.iter().zip(&writers) {
                poll_until("a FIN", || core.finished.load(Ordering::Acquire) == task);
                writer.commit();
            }
        }
        join(running);
    });
    let collected = collector.finish();
    let expected: Vec<_> = (1..=TASKS)
        .map(|task| AicoreTask {
            start: 2 * task,
            end: 2 * task + 1,
            token: !task,
            reg_task_id: task as u32,
            receive_to_start: 0,
        })
        .collect();
    assert_eq!(collected.records.aicore_tasks, [expected.clone(), expected.clone(), expected]);
    assert!(collected.reconciliation.is_exact());
}

/// Says when somebody waits in it, and waits on.
struct WatchedGate<'a> {
    waiting: &'a AtomicBool,
    refilled: &'a AtomicBool,
}

impl Gate for WatchedGate<'_> {
    fn handed_over(&self) {}

    fn wait(&self, open: &mut dyn FnMut() -> bool) -> bool {
        self.waiting.store(true, Ordering::Release);
        poll_until("the refill", || self.refilled.load(Ordering::Acquire));
        open()
    }
}

#[test]
fn a_device_thread_stands_at_the_gate_until_the_refill() {
    let device = Device::small(2, 1, 8);
    let mut drain = device.drain();
    let (waiting, refilled) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|s| {
        let worker = s.spawn(|| {
            let gate = WatchedGate { waiting: &waiting, refilled: &refilled };
            let writer = device.thread_writer::<OrchPhase>(0, &gate);
            (0..3).all(|number| writer.append(phase(number)))
        });
        poll_until("the device waits", || waiting.load(Ordering::Acquire));
        assert_eq!(value(device.head_word(RecordKind::OrchPhase, 0, TOTAL)), 3, "at the third record");
        assert!(!worker.is_finished());
        assert_eq!(drain.step(|_| ()), 1);
        refilled.store(true, Ordering::Release);
        assert!(worker.join().unwrap(), "and nothing was lost");
    });
    assert_eq!(drain.finish().records.orch_phases[0], phases(0..3));
}

#[test]
fn the_gate_gives_up_at_its_deadline_and_not_before() {
    let device = Device::small(1, 1, 1);
    let collector = start(&device);
    let limit = Duration::from_millis(40);
    let gate = collector.gate(0, limit);
    let started = Instant::now();
    let looks = Cell::new(0);
    let opened = gate.wait(&mut || {
        looks.set(looks.get() + 1);
        false
    });
    assert!(!opened);
    assert!(started.elapsed() >= limit, "{:?}", started.elapsed());
    assert!(looks.get() > 1);
    // A gate that is open is open, deadline or not.
    assert!(collector.gate(0, Duration::ZERO).wait(&mut || true));
    assert!(collector.finish().reconciliation.is_exact());
    assert_eq!(BACKSTOP, Duration::from_secs(30));
}

fn fails_at_once(gate: &CollectorGate) {
    let started = Instant::now();
    assert!(!gate.wait(&mut || false));
    assert!(started.elapsed() < PATIENCE / 2);
}

#[test]
fn nobody_waits_for_a_collector_that_has_ended() {
    let device = Device::small(1, 1, 1);
    // Waiting already when it ends, and coming after.
    let collector = start(&device);
    let gate = collector.gate(1, PATIENCE);
    let is_waiting = AtomicBool::new(false);
    thread::scope(|s| {
        let waiter = s.spawn(|| {
            let started = Instant::now();
            let opened = gate.wait(&mut || {
                is_waiting.store(true, Ordering::Release);
                false
            });
            (opened, started.elapsed())
        });
        poll_until("somebody waits", || is_waiting.load(Ordering::Acquire));
        drop(collector);
        let (opened, took) = waiter.join().unwrap();
        assert!(!opened && took < PATIENCE / 2);
    });
    fails_at_once(&gate);
}

#[test]
fn runs_follow_each_other_in_the_same_memory() {
    let device = Device::small(3, 2, 2);
    for run in 0..20_u32 {
        let collector = start(&device);
        thread::scope(|s| {
            let gate = collector.gate(1, PATIENCE);
            let device = &device;
            join(vec![s.spawn(move || {
                let writer = device.thread_writer::<OrchPhase>(1, &gate);
                (0..run * 7).for_each(|number| assert!(writer.append(phase(number))));
            })]);
        });
        let collected = collector.finish();
        assert_eq!(collected.records.orch_phases, [vec![], phases(0..run * 7)], "run {run}");
        assert!(collected.reconciliation.is_exact());
    }
}
