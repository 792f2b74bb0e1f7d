//! Every schedule of a pool's buffers between a device thread, a core and the host.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p simpler-swimlane --release --test loom`
//!
//! The records are plain memory here: a buffer that two sides use at a time is a race, which loom reports.
#![cfg(loom)]

// The rotation is the crate's own business; the model compiles the same file, not a copy.
#[allow(dead_code, unreachable_pub, reason = "the model uses a part of it, in a crate of its own")]
#[path = "../src/rotation.rs"]
mod rotation;
#[allow(unused_imports, reason = "the crate uses more of it")]
#[path = "../src/sync.rs"]
mod sync;

use std::cell::Cell;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use loom::thread;
use rotation::{FullBuffer, Gate, Place, Pool, ReadyEnds, ReadyPlace, ReadyQueue, Rotation};

/// Without `LOOM_MAX_PREEMPTIONS` as with 3: three threads that wait for each other have schedules without end.
fn model(body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(3);
    builder.check(body);
}

/// A pool, a ready queue, and buffers whose addresses are 1, 2, …
struct Shared {
    pool: Pool,
    ends: ReadyEnds,
    places: Vec<ReadyPlace>,
    buffers: Vec<Vec<UnsafeCell<u32>>>,
    capacity: u32,
}

/// Waits for ever: the model has no deadline, so that a refill that is not seen is an endless run.
struct Patient;

impl Gate for Patient {
    fn handed_over(&self) {}

    fn wait(&self, open: &mut dyn FnMut() -> bool) -> bool {
        while !open() {
            thread::yield_now();
        }
        true
    }
}

/// Gives up at once.
struct Impatient;

impl Gate for Impatient {
    fn handed_over(&self) {}

    fn wait(&self, open: &mut dyn FnMut() -> bool) -> bool {
        open()
    }
}

impl Shared {
    fn new(capacity: u32, buffers: u64, places: usize) -> Arc<Self> {
        let shared = Self {
            pool: Pool::default(),
            ends: ReadyEnds::default(),
            places: (0..places).map(|_| ReadyPlace::default()).collect(),
            buffers: (0..buffers).map(|_| (0..capacity).map(|_| UnsafeCell::new(0)).collect()).collect(),
            capacity,
        };
        (1..=buffers).for_each(|buffer| assert!(shared.pool.free.push(buffer)));
        Arc::new(shared)
    }

    fn ready(&self) -> ReadyQueue<'_> {
        ReadyQueue { ends: &self.ends, places: &self.places }
    }

    fn rotation<'a>(&'a self, gate: &'a dyn Gate) -> Rotation<'a> {
        Rotation {
            head: &self.pool.head,
            free: &self.pool.free,
            ready: self.ready(),
            gate,
            index: 7,
            kind: 3,
            capacity: self.capacity,
            gave_up: Cell::new(false),
        }
    }

    fn cell(&self, place: Place) -> &UnsafeCell<u32> {
        &self.buffers[place.buffer as usize - 1][place.slot as usize]
    }

    fn write(&self, place: Place, record: u32) {
        // SAFETY: what is being tested: the device owns the buffer.
        self.cell(place).with_mut(|cell| unsafe { *cell = record });
    }

    fn copy(&self, buffer: u64, count: u32, into: &mut Vec<u32>) {
        for slot in 0..count {
            // SAFETY: what is being tested: the host owns the buffer.
            into.push(self.cell(Place { buffer, slot }).with(|cell| unsafe { *cell }));
        }
    }

    /// What the host does with its next full buffer.
    fn take(&self, seq: &mut u32, into: &mut Vec<u32>) -> bool {
        let Some(FullBuffer { index, kind, buffer, seq: found, count }) = self.ready().pop() else {
            return false;
        };
        assert_eq!((index, kind, found, count), (7, 3, *seq, self.capacity));
        *seq += 1;
        self.copy(buffer, count, into);
        assert!(self.pool.free.push(buffer), "a pool has no more buffers than places");
        true
    }

    /// What is left when the device has been joined.
    fn finish(&self, seq: &mut u32, into: &mut Vec<u32>) -> (u32, u32) {
        while self.take(seq, into) {}
        let head = &self.pool.head;
        let buffer = head.buffer.load(Ordering::Relaxed);
        if buffer != 0 {
            assert_eq!(head.seq.load(Ordering::Relaxed), *seq);
            self.copy(buffer, head.committed.load(Ordering::Relaxed), into);
        }
        (head.total.load(Ordering::Relaxed), head.dropped.load(Ordering::Relaxed))
    }
}

fn append(shared: &Shared, rotation: &Rotation<'_>, record: u32) -> bool {
    let Some(place) = rotation.reserve() else { return false };
    shared.write(place, record);
    rotation.commit();
    true
}

/// A device that appends `records`, and a host that takes buffers meanwhile.
fn nothing_is_lost(records: u32, capacity: u32, buffers: u64, places: usize) {
    model(move || {
        let shared = Shared::new(capacity, buffers, places);
        let device = thread::spawn({
            let shared = shared.clone();
            move || {
                let rotation = shared.rotation(&Patient);
                (1..=records).for_each(|record| assert!(append(&shared, &rotation, record)));
            }
        });
        let (mut seq, mut found) = (0, Vec::new());
        // The buffers that the device must hand over before it can end.
        while seq < (records - 1) / capacity {
            if !shared.take(&mut seq, &mut found) {
                thread::yield_now();
            }
        }
        device.join().unwrap();
        assert_eq!(shared.finish(&mut seq, &mut found), (records, 0));
        assert_eq!(found, (1..=records).collect::<Vec<_>>());
    });
}

#[test]
fn one_buffer_goes_to_and_fro() {
    nothing_is_lost(4, 1, 1, 1);
}

#[test]
fn two_buffers_take_turns_through_one_place() {
    nothing_is_lost(4, 1, 2, 1);
}

#[test]
fn buffers_of_several_records_arrive_whole() {
    nothing_is_lost(5, 2, 1, 2);
}

#[test]
fn what_is_lost_is_counted_whenever_the_host_comes() {
    model(|| {
        let shared = Shared::new(1, 1, 1);
        let device = thread::spawn({
            let shared = shared.clone();
            move || {
                let rotation = shared.rotation(&Impatient);
                (1..=4).filter(|record| append(&shared, &rotation, *record)).collect::<Vec<_>>()
            }
        });
        let (mut seq, mut found) = (0, Vec::new());
        for _ in 0..2 {
            shared.take(&mut seq, &mut found);
            thread::yield_now();
        }
        let kept = device.join().unwrap();
        let (total, dropped) = shared.finish(&mut seq, &mut found);
        assert_eq!(found, kept);
        assert_eq!((total, dropped), (4, 4 - kept.len() as u32));
    });
}

/// A core as a scheduler sees it: where the record goes, and the two registers.
#[derive(Default)]
struct Core {
    place: AtomicU64,
    dispatch: AtomicU32,
    fin: AtomicU32,
}

#[test]
fn a_core_has_filled_its_record_before_the_host_reads_it() {
    model(|| {
        let shared = Shared::new(1, 1, 1);
        let core = Arc::new(Core::default());
        let running = thread::spawn({
            let (shared, core) = (shared.clone(), core.clone());
            move || {
                for task in 1..=2 {
                    while core.dispatch.load(Ordering::Acquire) != task {
                        thread::yield_now();
                    }
                    let buffer = core.place.load(Ordering::Relaxed);
                    shared.write(Place { buffer, slot: 0 }, task * 10);
                    core.fin.store(task, Ordering::Release);
                }
            }
        });
        let scheduler = thread::spawn({
            let (shared, core) = (shared.clone(), core.clone());
            move || {
                let rotation = shared.rotation(&Patient);
                for task in 1..=2 {
                    let place = rotation.reserve().unwrap();
                    core.place.store(place.buffer, Ordering::Relaxed);
                    core.dispatch.store(task, Ordering::Release);
                    while core.fin.load(Ordering::Acquire) != task {
                        thread::yield_now();
                    }
                    rotation.commit();
                }
            }
        });
        let (mut seq, mut found) = (0, Vec::new());
        while !shared.take(&mut seq, &mut found) {
            thread::yield_now();
        }
        running.join().unwrap();
        scheduler.join().unwrap();
        assert_eq!(shared.finish(&mut seq, &mut found), (2, 0));
        assert_eq!(found, [10, 20]);
    });
}
