//! The event count and the wait between threads of one process.
#![cfg(not(loom))]

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use simpler_relax::{Deadline, EventCount, PARK_SLICE, Relax};

/// Far beyond any correct run, below the harness's patience.
const LIMIT: Duration = Duration::from_secs(60);

fn wait_for(word: &AtomicU64, event: &EventCount, reached: impl Fn(u64) -> bool) -> u64 {
    let deadline = Deadline::after(LIMIT);
    let mut relax = Relax::new();
    loop {
        let seen = event.epoch();
        let value = word.load(Ordering::Acquire);
        if reached(value) {
            return value;
        }
        assert!(!deadline.passed(), "no progress past {value}");
        relax.wait(event, seen);
    }
}

#[test]
fn ping_pong_never_misses_a_turn() {
    const TURNS: u64 = 100_000;
    let (turn, ping, pong) = (AtomicU64::new(0), EventCount::new(), EventCount::new());
    thread::scope(|s| {
        s.spawn(|| {
            for i in 0..TURNS {
                wait_for(&turn, &ping, |t| t > 2 * i);
                turn.store(2 * i + 2, Ordering::Release);
                pong.notify_one();
            }
        });
        for i in 0..TURNS {
            turn.store(2 * i + 1, Ordering::Release);
            ping.notify_one();
            wait_for(&turn, &pong, |t| t >= 2 * i + 2);
        }
    });
}

/// A waiter that was left asleep would be saved by the end of its park slice: so what is tested is that the
/// waiter is up well before that.
#[test]
fn a_parked_waiter_is_woken_by_the_bell_and_not_by_its_timeout() {
    const ROUNDS: u64 = 50;
    let (word, event, acknowledged) = (AtomicU64::new(0), EventCount::new(), AtomicU64::new(0));
    let answers = EventCount::new();
    thread::scope(|s| {
        s.spawn(|| {
            for i in 0..ROUNDS {
                wait_for(&word, &event, |w| w > i);
                acknowledged.store(i + 1, Ordering::Release);
                answers.notify_one();
            }
        });
        let mut woken_late = 0;
        for i in 0..ROUNDS {
            // Until the waiter has certainly parked, and at a phase of its slice that drifts.
            let park = Deadline::after(Duration::from_micros(2_000 + 137 * i));
            while !park.passed() {
                thread::yield_now();
            }
            let rung = Instant::now();
            word.store(i + 1, Ordering::Release);
            event.notify_one();
            wait_for(&acknowledged, &answers, |a| a > i);
            woken_late += u64::from(rung.elapsed() > PARK_SLICE / 4);
        }
        // Without wakes, three of four answers take longer than a quarter of a slice.
        assert!(woken_late < ROUNDS / 4, "{woken_late} of {ROUNDS} wakes took over a quarter of a slice");
    });
}

#[test]
fn several_producers_and_consumers_pass_every_token() {
    const TOKENS_EACH: u64 = 50_000;
    let (available, consumed) = (AtomicU64::new(0), AtomicU64::new(0));
    let event = EventCount::new();
    thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| {
                for _ in 0..TOKENS_EACH {
                    available.fetch_add(1, Ordering::Release);
                    event.notify_one();
                }
            });
        }
        for _ in 0..3 {
            s.spawn(|| {
                let deadline = Deadline::after(LIMIT);
                let mut relax = Relax::new();
                loop {
                    let seen = event.epoch();
                    let took = available
                        .fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| n.checked_sub(1))
                        .is_ok();
                    if took {
                        relax.reset();
                        if consumed.fetch_add(1, Ordering::AcqRel) + 1 == 2 * TOKENS_EACH {
                            event.notify_all();
                        }
                        continue;
                    }
                    if consumed.load(Ordering::Acquire) == 2 * TOKENS_EACH {
                        return;
                    }
                    assert!(!deadline.passed(), "consumers are stuck");
                    relax.wait(&event, seen);
                }
            });
        }
    });
    assert_eq!(consumed.load(Ordering::Acquire), 2 * TOKENS_EACH);
}

#[test]
fn an_unrung_wait_returns_within_its_slice_so_that_deadlines_are_seen() {
    let event = EventCount::new();
    let deadline = Deadline::after(Duration::from_millis(30));
    let started = Instant::now();
    let mut relax = Relax::new();
    while !deadline.passed() {
        relax.wait(&event, event.epoch());
    }
    assert!(started.elapsed() >= Duration::from_millis(30));
    // One slice, and all the scheduling noise of a loaded machine.
    assert!(started.elapsed() < Duration::from_secs(2));
}

#[test]
fn a_wait_with_an_old_epoch_does_not_park() {
    let event = EventCount::new();
    let old = event.epoch();
    event.notify_one();
    let mut relax = Relax::new();
    let started = Instant::now();
    // 1000 parks would take 10 s.
    let until = Deadline::after(Duration::from_millis(5));
    let mut waits = 0;
    while !until.passed() || waits < 1000 {
        relax.wait(&event, old);
        waits += 1;
    }
    assert!(started.elapsed() < Duration::from_secs(5));
}

#[test]
fn deadlines_pass_once_and_stay_passed() {
    let soon = Deadline::after(Duration::ZERO);
    assert!(soon.passed());
    assert_eq!(soon.remaining(), Duration::ZERO);
    let far = Deadline::after(Duration::MAX);
    assert!(!far.passed());
    assert!(far.remaining() > Duration::from_secs(3600));
    let later = Deadline::after(Duration::from_secs(100));
    assert!(!later.passed());
    assert!(later.remaining() <= Duration::from_secs(100));
}
