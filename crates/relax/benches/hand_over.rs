//! Hand-over latency: how long after a store and a bell another thread acts on it.
//!
//! `cargo bench -p simpler-relax`. Rings of 2 and 4 threads, each passing a turn to the next; then the same
//! with work between the turns, which is what a stage of a decode step looks like. One JSON object per line.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use simpler_relax::{EventCount, Relax};

#[repr(align(128))]
struct Padded<T>(T);

fn work(for_ns: u64) {
    if for_ns == 0 {
        return;
    }
    let started = Instant::now();
    while started.elapsed() < Duration::from_nanos(for_ns) {
        std::hint::spin_loop();
    }
}

/// Nanoseconds per turn beyond the work itself, sorted.
fn ring(threads: u64, turns: u64, work_ns: u64) -> Vec<u64> {
    let turn = Padded(AtomicU64::new(0));
    let events: Vec<_> = (0..threads).map(|_| Padded(EventCount::new())).collect();
    let origin = Instant::now();
    let stamps: Vec<_> = (0..turns).map(|_| AtomicU64::new(0)).collect();
    thread::scope(|s| {
        for me in 0..threads {
            let (turn, events, stamps) = (&turn.0, &events, &stamps);
            s.spawn(move || {
                let mut relax = Relax::new();
                loop {
                    let event = &events[me as usize].0;
                    let seen = event.epoch();
                    let now = turn.load(Ordering::Acquire);
                    if now >= turns {
                        return;
                    }
                    if now % threads != me {
                        relax.wait(event, seen);
                        continue;
                    }
                    relax.reset();
                    stamps[now as usize].store(origin.elapsed().as_nanos() as u64, Ordering::Relaxed);
                    work(work_ns);
                    turn.store(now + 1, Ordering::Release);
                    if now + 1 == turns {
                        events.iter().for_each(|e| e.0.notify_all());
                    } else {
                        events[((me + 1) % threads) as usize].0.notify_one();
                    }
                }
            });
        }
    });
    let mut gaps: Vec<u64> = stamps
        .windows(2)
        .map(|w| (w[1].load(Ordering::Relaxed) - w[0].load(Ordering::Relaxed)).saturating_sub(work_ns))
        .collect();
    gaps.sort_unstable();
    gaps
}

fn main() {
    for (threads, work_ns) in [(2, 0), (4, 0), (6, 0), (2, 50_000), (4, 50_000), (6, 50_000)] {
        let turns = if work_ns == 0 { 100_000 } else { 10_000 };
        let gaps = ring(threads, turns, work_ns);
        let at = |q: f64| gaps[((gaps.len() - 1) as f64 * q) as usize];
        let mean = gaps.iter().sum::<u64>() / gaps.len() as u64;
        println!(
            "{{\"threads\":{threads},\"work_ns\":{work_ns},\"hand_over_ns_p50\":{},\"p90\":{},\"p99\":{},\"mean\":{mean}}}",
            at(0.5),
            at(0.9),
            at(0.99)
        );
    }
}
