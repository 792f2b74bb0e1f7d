//! Every schedule of the event count: a notification is never lost, and its effects are seen.
#![cfg(loom)]

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use simpler_relax::{EventCount, Relax};

struct Shared {
    event: EventCount,
    ready: AtomicUsize,
}

fn shared() -> Arc<Shared> {
    Arc::new(Shared { event: EventCount::new(), ready: AtomicUsize::new(0) })
}

fn wait_for(shared: &Shared, target: usize) {
    let mut relax = Relax::new();
    loop {
        let seen = shared.event.epoch();
        // Relaxed on purpose: the event alone must make the store before the bell visible, or the waiter
        // sleeps on a condition that is true.
        if shared.ready.load(Ordering::Relaxed) >= target {
            return;
        }
        relax.wait(&shared.event, seen);
    }
}

#[test]
fn a_single_notification_reaches_the_waiter() {
    loom::model(|| {
        let shared = shared();
        let waiter = thread::spawn({
            let shared = shared.clone();
            move || wait_for(&shared, 1)
        });
        shared.ready.store(1, Ordering::Relaxed);
        shared.event.notify_one();
        waiter.join().unwrap();
    });
}

#[test]
fn two_notifiers_reach_one_waiter() {
    loom::model(|| {
        let shared = shared();
        let notifiers: Vec<_> = (0..2)
            .map(|_| {
                let shared = shared.clone();
                thread::spawn(move || {
                    shared.ready.fetch_add(1, Ordering::Relaxed);
                    shared.event.notify_one();
                })
            })
            .collect();
        wait_for(&shared, 2);
        for notifier in notifiers {
            notifier.join().unwrap();
        }
    });
}

#[test]
fn notify_all_reaches_both_waiters() {
    loom::model(|| {
        let shared = shared();
        let waiters: Vec<_> = (0..2)
            .map(|_| {
                let shared = shared.clone();
                thread::spawn(move || wait_for(&shared, 1))
            })
            .collect();
        shared.ready.store(1, Ordering::Relaxed);
        shared.event.notify_all();
        for waiter in waiters {
            waiter.join().unwrap();
        }
    });
}

#[test]
fn what_was_written_before_the_bell_is_seen_after_it() {
    loom::model(|| {
        let shared = Arc::new((EventCount::new(), UnsafeCell::new(0_u32)));
        let notifier = thread::spawn({
            let shared = shared.clone();
            move || {
                // SAFETY: the reader looks only after it has seen the epoch move.
                shared.1.with_mut(|p| unsafe { *p = 7 });
                shared.0.notify_one();
            }
        });
        let first = simpler_relax::EventCount::new().epoch();
        let mut relax = Relax::new();
        loop {
            let seen = shared.0.epoch();
            if seen != first {
                break;
            }
            relax.wait(&shared.0, seen);
        }
        // SAFETY: the writer has rung, and rings once.
        assert_eq!(shared.1.with(|p| unsafe { *p }), 7);
        notifier.join().unwrap();
    });
}
