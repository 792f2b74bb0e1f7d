//! All threads on one CPU: a wait gives the CPU away, so nothing livelocks. The process pins itself.
#![cfg(not(loom))]

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use simpler_relax::{Deadline, EventCount, Relax};

/// Twenty thousand hand-overs at a few µs each are well below a second; a wait that spins out its time slice
/// takes a minute.
const LIMIT: Duration = Duration::from_secs(20);

fn pin_to_first_allowed_cpu() {
    // SAFETY: a cpu_set_t is plain bits, all zero is the empty set.
    let mut allowed: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    let size = size_of::<libc::cpu_set_t>();
    // SAFETY: the set is ours and `size` is its size.
    assert_eq!(unsafe { libc::sched_getaffinity(0, size, &raw mut allowed) }, 0);
    let first = (0..libc::CPU_SETSIZE as usize)
        // SAFETY: the index is below CPU_SETSIZE.
        .find(|&cpu| unsafe { libc::CPU_ISSET(cpu, &allowed) })
        .expect("some CPU is allowed");
    // SAFETY: as above.
    let mut one: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the index is below CPU_SETSIZE.
    unsafe { libc::CPU_SET(first, &mut one) };
    // SAFETY: as above; threads started later inherit the mask.
    assert_eq!(unsafe { libc::sched_setaffinity(0, size, &raw const one) }, 0);
}

#[test]
fn a_ring_of_six_threads_on_one_cpu_keeps_turning() {
    const THREADS: u64 = 6;
    const TURNS: u64 = 20_000;
    pin_to_first_allowed_cpu();
    let turn = AtomicU64::new(0);
    let events: Vec<EventCount> = (0..THREADS).map(|_| EventCount::new()).collect();
    thread::scope(|s| {
        let ring = |me: u64| {
            let (turn, events) = (&turn, &events);
            s.spawn(move || {
                let deadline = Deadline::after(LIMIT);
                let mut relax = Relax::new();
                loop {
                    let seen = events[me as usize].epoch();
                    let now = turn.load(Ordering::Acquire);
                    if now >= TURNS {
                        return;
                    }
                    if now % THREADS == me {
                        turn.store(now + 1, Ordering::Release);
                        if now + 1 == TURNS {
                            events.iter().for_each(EventCount::notify_all);
                        } else {
                            events[((me + 1) % THREADS) as usize].notify_one();
                        }
                        relax.reset();
                        continue;
                    }
                    assert!(!deadline.passed(), "livelock at turn {now}");
                    relax.wait(&events[me as usize], seen);
                }
            })
        };
        // Joined by hand: ThreadSanitizer does not see how a scope waits for what it was not asked to join.
        let threads: Vec<_> = (0..THREADS).map(ring).collect();
        threads.into_iter().for_each(|thread| thread.join().expect("the ring turned"));
    });
}
