//! Models of the lock-free parts: every interleaving of a few threads, within two preemptions, over the very
//! code of `queue`, `admission`, `wake` and `anchor`.
//!
//! `RUSTFLAGS='--cfg loom' CARGO_TARGET_DIR=target/loom cargo test -p simpler-host-log --test loom --release`

#![cfg(loom)]

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use loom::thread;

use simpler_host_log::admission::Gate;
use simpler_host_log::anchor::AnchorClaim;
use simpler_host_log::directory::DirectoryClaim;
use simpler_host_log::queue::{Ring, Run};
use simpler_host_log::wake::Doorbell;
use simpler_log_abi::{DropReason, PRODUCERS_CLOSED};

fn model(body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    // The long form of the tests asks for more by LOOM_MAX_PREEMPTIONS.
    builder.preemption_bound = builder.preemption_bound.or(Some(2));
    builder.max_branches = 20_000;
    builder.check(body);
}

/// What the log's middle is made of, with a ring small enough to be full.
struct Sink<const SLOTS: usize> {
    gate: AtomicU64,
    ring: Ring<SLOTS>,
    doorbell: Doorbell,
}

impl<const SLOTS: usize> Sink<SLOTS> {
    fn new() -> Arc<Self> {
        Arc::new(Sink { gate: AtomicU64::new(0), ring: Ring::new(), doorbell: Doorbell::new() })
    }

    fn gate(&self) -> Gate<'_> {
        Gate::new(&self.gate)
    }

    /// What the owner's producers do.
    fn submit(&self, run: &mut Run, record: &[u8]) -> Result<(), DropReason> {
        let claim = self.ring.claim(run)?;
        self.ring.publish(claim, record, 0, |_| ());
        self.doorbell.ring_if_asleep();
        Ok(())
    }

    /// What another module's producers and the owner's callback do.
    fn submit_by_callback(&self, record: &[u8]) -> Result<(), DropReason> {
        let is_open = self.gate().enter();
        let outcome =
            if is_open { self.submit(&mut Run::new(), record) } else { Err(DropReason::NotAdmitted) };
        self.gate().leave();
        outcome
    }

    /// The writer's loop, without rendering and lingering. Gives the records in their order.
    fn write(&self) -> Vec<Vec<u8>> {
        // SAFETY: each model has one writer at a time.
        let mut consumer = unsafe { self.ring.consumer() };
        let mut records = Vec::new();
        let is_at_end = || self.doorbell.is_stopped() && self.ring.unfinished() == 0;
        loop {
            while consumer.revoke() {}
            consumer.release();
            if let Some(record) = consumer.read(|record, _| Some(record.to_vec())) {
                records.push(record);
                consumer.release();
            } else if is_at_end() {
                return records;
            } else {
                let position = consumer.position();
                self.doorbell.sleep(|| consumer.has_next() || consumer.is_reserved(position) || is_at_end());
            }
        }
    }

    /// What `prepare_to_fork` does.
    fn quiesce(&self) {
        self.gate().close();
        self.ring.close();
        while self.gate().producers() != 0 || self.ring.unfinished() != 0 {
            thread::yield_now();
        }
        self.doorbell.stop();
    }

    /// What `start_writer` does.
    fn restart(&self) {
        self.doorbell.allow();
        self.ring.open();
        self.gate().open();
    }
}

/// A record long enough to use the slot's tail.
fn record(producer: u8, number: u8) -> Vec<u8> {
    let mut record = vec![producer; 120];
    record[0] = number;
    record[119] = number;
    record
}

#[test]
fn what_is_claimed_is_read_once_whole_and_in_each_producers_order() {
    model(|| {
        let sink = Sink::<2>::new();
        let producers: Vec<_> = (0..2)
            .map(|producer| {
                let sink = sink.clone();
                thread::spawn(move || {
                    let mut run = Run::new();
                    (0..2)
                        .map(|number| sink.submit(&mut run, &record(producer, number)).is_ok())
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        // SAFETY: the only consumer.
        let mut consumer = unsafe { sink.ring.consumer() };
        let mut read = Vec::new();
        let mut read_some = |read: &mut Vec<Vec<u8>>| {
            while let Some(record) = consumer.read(|record, _| Some(record.to_vec())) {
                read.push(record);
                consumer.release();
            }
        };
        read_some(&mut read);
        let accepted: Vec<Vec<bool>> =
            producers.into_iter().map(|producer| producer.join().unwrap()).collect();
        read_some(&mut read);
        for (producer, accepted) in accepted.iter().enumerate() {
            let expected: Vec<Vec<u8>> = (0..2)
                .filter(|&number| accepted[number as usize])
                .map(|number| record(producer as u8, number))
                .collect();
            let found: Vec<Vec<u8>> =
                read.iter().filter(|record| record[1] == producer as u8).cloned().collect();
            assert_eq!(found, expected);
        }
        assert_eq!(sink.ring.pending(), 0);
    });
}

#[test]
fn a_slot_is_used_again_only_after_it_was_read() {
    model(|| {
        let sink = Sink::<2>::new();
        let producer = {
            let sink = sink.clone();
            thread::spawn(move || {
                let mut run = Run::new();
                for number in 0..3 {
                    while sink.submit(&mut run, &record(0, number)) == Err(DropReason::QueueFull) {
                        thread::yield_now();
                    }
                }
            })
        };
        // SAFETY: the only consumer.
        let mut consumer = unsafe { sink.ring.consumer() };
        for number in 0..3 {
            let read = loop {
                match consumer.read(|record, _| Some(record.to_vec())) {
                    Some(record) => break record,
                    None => thread::yield_now(),
                }
            };
            assert_eq!(read, record(0, number));
            consumer.release();
        }
        producer.join().unwrap();
    });
}

#[test]
fn a_closed_gate_leaves_the_sink_to_who_closed_it() {
    model(|| {
        let sink_word = Arc::new((AtomicU64::new(0), UnsafeCell::new(0_u32)));
        let producers: Vec<_> = (0..2)
            .map(|_| {
                let shared = sink_word.clone();
                thread::spawn(move || {
                    let gate = Gate::new(&shared.0);
                    if gate.enter() {
                        // SAFETY: inside the gate the sink is only read; loom checks that it is.
                        let seen = shared.1.with(|sink| unsafe { *sink });
                        assert!(seen <= 1);
                    }
                    gate.leave();
                })
            })
            .collect();
        let gate = Gate::new(&sink_word.0);
        gate.close();
        while gate.producers() != 0 {
            thread::yield_now();
        }
        // SAFETY: nobody is inside; loom checks that nobody is.
        sink_word.1.with_mut(|sink| unsafe { *sink = 1 });
        gate.open();
        for producer in producers {
            producer.join().unwrap();
        }
        assert_eq!(sink_word.0.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn a_sleeping_writer_is_always_woken() {
    model(|| {
        let sink = Sink::<4>::new();
        let producers: Vec<_> = (0..2)
            .map(|producer| {
                let sink = sink.clone();
                thread::spawn(move || sink.submit(&mut Run::new(), &[producer]).unwrap())
            })
            .collect();
        // SAFETY: the only consumer.
        let mut consumer = unsafe { sink.ring.consumer() };
        let mut read = 0;
        // A lost wake is a deadlock, which loom reports.
        while read < 2 {
            match consumer.read(|_, _| Some(())) {
                Some(()) => {
                    read += 1;
                    consumer.release();
                }
                None => sink.doorbell.sleep(|| consumer.has_next()),
            }
        }
        for producer in producers {
            producer.join().unwrap();
        }
        let (sleeps, wakes) = sink.doorbell.sleeps_and_wakes();
        assert!(wakes <= sleeps);
    });
}

#[test]
fn a_quiesce_ends_the_writer_with_every_accepted_record_and_a_restart_takes_over() {
    model(|| {
        let sink = Sink::<4>::new();
        let writer = {
            let sink = sink.clone();
            thread::spawn(move || sink.write())
        };
        let producer = {
            let sink = sink.clone();
            thread::spawn(move || sink.submit(&mut Run::new(), b"a").is_ok())
        };
        sink.quiesce();
        let mut written = writer.join().unwrap();
        // The next life of the writer.
        sink.restart();
        let accepted = producer.join().unwrap();
        sink.gate().close();
        sink.ring.close();
        sink.doorbell.stop();
        written.extend(sink.write());
        assert_eq!(written.len(), usize::from(accepted));
        assert_eq!(sink.gate.load(Ordering::Relaxed), PRODUCERS_CLOSED);
    });
}

#[test]
fn a_quiesce_waits_for_another_modules_producer() {
    model(|| {
        let sink = Sink::<4>::new();
        let writer = {
            let sink = sink.clone();
            thread::spawn(move || sink.write())
        };
        let producer = {
            let sink = sink.clone();
            thread::spawn(move || sink.submit_by_callback(b"a"))
        };
        sink.quiesce();
        let written = writer.join().unwrap();
        match producer.join().unwrap() {
            Ok(()) => assert_eq!(written, [b"a".to_vec()]),
            Err(reason) => assert_eq!((reason, written.len()), (DropReason::NotAdmitted, 0)),
        }
    });
}

#[test]
fn a_run_is_used_by_its_owner_or_revoked_and_never_both() {
    model(|| {
        let sink = Sink::<4>::new();
        let mut run = Run::wanting_more();
        // Takes two positions; the second is reserved.
        sink.submit(&mut run, &record(0, 0)).unwrap();
        let owner = {
            let sink = sink.clone();
            thread::spawn(move || sink.submit(&mut run, &record(0, 1)).unwrap())
        };
        // SAFETY: the only consumer.
        let mut consumer = unsafe { sink.ring.consumer() };
        let mut read = Vec::new();
        let mut drain = |read: &mut Vec<Vec<u8>>| {
            loop {
                let revoked = consumer.revoke();
                let record = consumer.read(|record, _| Some(record.to_vec()));
                consumer.release();
                match record {
                    Some(record) => read.push(record),
                    None if !revoked => break,
                    None => {}
                }
            }
        };
        drain(&mut read);
        owner.join().unwrap();
        drain(&mut read);
        assert_eq!(read, [record(0, 0), record(0, 1)]);
        assert_eq!(sink.ring.unfinished(), 0);
    });
}

#[test]
fn a_revoked_slot_serves_another_producer_while_its_former_owner_comes_late() {
    model(|| {
        let sink = Sink::<4>::new();
        let mut run = Run::wanting_more();
        // Positions 0 and 1; the second is reserved.
        sink.submit(&mut run, &record(0, 0)).unwrap();
        let late = {
            let sink = sink.clone();
            thread::spawn(move || sink.submit(&mut run, &record(0, 1)).is_ok())
        };
        // SAFETY: the only consumer.
        let mut consumer = unsafe { sink.ring.consumer() };
        let mut read = Vec::new();
        let mut submitted = 1;
        // A whole lap: the slot that the late owner may still want gets another position and another record.
        for number in 0..4 {
            submitted += usize::from(sink.submit(&mut Run::new(), &record(1, number)).is_ok());
            while consumer.revoke() {}
            if let Some(record) = consumer.read(|record, _| Some(record.to_vec())) {
                read.push(record);
            }
            consumer.release();
        }
        submitted += usize::from(late.join().unwrap());
        loop {
            let revoked = consumer.revoke();
            match consumer.read(|record, _| Some(record.to_vec())) {
                Some(record) => read.push(record),
                None if revoked => {}
                None => break,
            }
            consumer.release();
        }
        assert_eq!(read.len(), submitted);
        for whole in &read {
            assert_eq!(*whole, record(whole[1], whole[0]));
        }
    });
}

#[test]
fn a_sleeping_writer_does_not_leave_a_reserved_position_behind() {
    model(|| {
        let sink = Sink::<4>::new();
        let writer = {
            let sink = sink.clone();
            thread::spawn(move || sink.write())
        };
        let mut run = Run::wanting_more();
        sink.submit(&mut run, b"a").unwrap();
        // Not used: the owner goes away with a position reserved. Another record must still be written.
        sink.submit(&mut Run::new(), b"b").unwrap();
        sink.quiesce();
        assert_eq!(writer.join().unwrap(), [b"a".to_vec(), b"b".to_vec()]);
    });
}

#[test]
fn one_thread_claims_the_anchor_and_a_lost_one_can_be_claimed_again() {
    const PID: i32 = 7;
    model(|| {
        // What the parent left.
        let word = Arc::new(AtomicI32::new(3));
        let emitted = Arc::new(AtomicU64::new(0));
        let threads: Vec<_> = (0..2)
            .map(|number| {
                let (word, emitted) = (word.clone(), emitted.clone());
                thread::spawn(move || {
                    let claim = AnchorClaim::new(&word);
                    // The first thread's submission fails.
                    if !claim.is_done(PID) && claim.claim(PID) {
                        if number == 0 {
                            claim.undo(PID);
                        } else {
                            emitted.fetch_add(1, Ordering::Relaxed);
                            claim.finish(PID);
                        }
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        let emitted = emitted.load(Ordering::Relaxed);
        assert_eq!(word.load(Ordering::Relaxed), if emitted == 1 { PID } else { 0 });
        assert!(emitted <= 1);
    });
}

#[test]
fn an_anchor_lost_by_the_writer_is_not_taken_for_done() {
    const PID: i32 = 7;
    model(|| {
        let word = Arc::new(AtomicI32::new(0));
        let queued = Arc::new(AtomicU64::new(0));
        let (lost, accepted) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        // Two threads queue anchors: done first, then submitted, as in `queue_anchor`.
        let producers: Vec<_> = (0..2)
            .map(|_| {
                let (word, queued, accepted) = (word.clone(), queued.clone(), accepted.clone());
                thread::spawn(move || {
                    let claim = AnchorClaim::new(&word);
                    if !claim.is_done(PID) && claim.claim(PID) {
                        claim.finish(PID);
                        accepted.fetch_add(1, Ordering::Relaxed);
                        queued.fetch_add(1, Ordering::Release);
                    }
                })
            })
            .collect();
        // The writer loses the first one that it finds.
        if queued.load(Ordering::Acquire) != 0 {
            AnchorClaim::new(&word).undo(PID);
            lost.fetch_add(1, Ordering::Relaxed);
        }
        for producer in producers {
            producer.join().unwrap();
        }
        let standing = accepted.load(Ordering::Relaxed) - lost.load(Ordering::Relaxed);
        assert_eq!(word.load(Ordering::Relaxed), if standing == 1 { PID } else { 0 });
        assert!(standing <= 1);
    });
}

#[test]
fn the_first_directory_wins_and_nobody_sees_half_a_path() {
    model(|| {
        let shared = Arc::new((AtomicI32::new(0), UnsafeCell::new([0_u8; 2])));
        let binders: Vec<_> = [b'a', b'b']
            .map(|name| {
                let shared = shared.clone();
                thread::spawn(move || {
                    DirectoryClaim::new(&shared.0).bind(|| {
                        // SAFETY: one claim at a time; loom checks that it is.
                        shared.1.with_mut(|path| unsafe { *path = [name; 2] });
                    })
                })
            })
            .into();
        if DirectoryClaim::new(&shared.0).is_bound() {
            // SAFETY: once it is bound nobody writes; loom checks that nobody does.
            let path = shared.1.with(|path| unsafe { *path });
            assert!(path == *b"aa" || path == *b"bb");
        }
        let won: Vec<bool> = binders.into_iter().map(|binder| binder.join().unwrap()).collect();
        assert_eq!(won.iter().filter(|won| **won).count(), 1);
        // SAFETY: nobody else is left.
        let path = shared.1.with(|path| unsafe { *path });
        assert_eq!(path, if won[0] { *b"aa" } else { *b"bb" });
    });
}
