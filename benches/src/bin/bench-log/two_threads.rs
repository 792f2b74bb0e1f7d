//! Two threads that emit at once, each on its own CPU.
//!
//! What counts is CPU time: the writer has to run on one of the two CPUs, and a thread that waits for it pays
//! nothing. Bursts that hardly met, because one thread lost its CPU, do not count.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Barrier, mpsc};
use std::time::Instant;

use simpler_benches::{CpuTime, cpu_time, median, median_ratio, online_cpus, overlap, pin_to_cpu};
use simpler_host_log as log;

use crate::own::{CALLABLE, HostLog, span_burst};
use crate::subject::{Tally, lossless};
use crate::{BURST, Failure, REPETITIONS, floor, pinned_to};

/// Two producers count as such when both were at it for at least this share of the time.
const OVERLAP_MIN: f64 = 0.8;
/// Attempts until the benchmark goes on with what it has.
const ATTEMPTS: usize = 10 * REPETITIONS;

/// What a span costs while another thread emits, too.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TwoThreads {
    /// CPU time of a span, the mean of both threads.
    pub(crate) cpu_ns: f64,
    /// The same in F.
    pub(crate) ratio: f64,
    /// Attempts in which the two were not at it together long enough.
    pub(crate) apart: usize,
}

/// What one thread did in its burst.
struct Side {
    cpu_ns: f64,
    interval: (Instant, Instant),
}

/// Measures two producers; `None` where there is only one CPU.
pub(crate) fn measure(host_log: &mut HostLog, tally: &mut Tally) -> Result<Option<TwoThreads>, Failure> {
    if online_cpus() < 2 {
        return Ok(None);
    }
    let (round, start_line, is_over) = (Barrier::new(2), StartLine::new(), AtomicBool::new(false));
    let (to_first, from_second) = mpsc::channel();
    let mut measured = None;
    std::thread::scope(|scope| {
        let second = || {
            let to_first = to_first;
            pin_to_cpu(1);
            loop {
                round.wait();
                if is_over.load(Ordering::Relaxed) || to_first.send(side_by_side(&start_line)).is_err() {
                    return;
                }
            }
        };
        scope.spawn(second);
        pinned_to(0, || {
            let from_second = from_second;
            let both = || {
                round.wait();
                (side_by_side(&start_line), from_second.recv())
            };
            let result = repeat(host_log, tally, both);
            is_over.store(true, Ordering::Relaxed);
            round.wait();
            measured = Some(result?);
            Ok(())
        })
    })?;
    Ok(measured)
}

fn repeat(
    host_log: &mut HostLog,
    tally: &mut Tally,
    both: impl Fn() -> (Side, Result<Side, mpsc::RecvError>),
) -> Result<TwoThreads, Failure> {
    let (mut costs, mut floors) = (Vec::new(), Vec::new());
    let mut attempts = 0;
    while costs.len() < REPETITIONS && attempts < ATTEMPTS {
        attempts += 1;
        let before_ns = floor::burst_ns(BURST);
        let (one, other) = lossless(host_log, tally, |_| both())?;
        let after_ns = floor::burst_ns(BURST);
        let other = other.map_err(|_| "the second producer is gone")?;
        if overlap(one.interval, other.interval) >= OVERLAP_MIN {
            costs.push(f64::midpoint(one.cpu_ns, other.cpu_ns));
            floors.push(f64::midpoint(before_ns, after_ns));
        }
    }
    if costs.is_empty() {
        return Err("two producers never ran at the same time".into());
    }
    let (ratio, apart) = (median_ratio(&costs, &floors), attempts - costs.len());
    Ok(TwoThreads { cpu_ns: median(&mut costs), ratio, apart })
}

/// A burst that starts when the other thread is there, too.
fn side_by_side(start_line: &StartLine) -> Side {
    let _run = log::Invocation::begin("simpler_run", CALLABLE);
    start_line.wait();
    let (cpu, start) = (cpu_time(CpuTime::Thread), Instant::now());
    span_burst(BURST);
    let (end, cpu) = (Instant::now(), cpu_time(CpuTime::Thread) - cpu);
    Side { cpu_ns: cpu.as_nanos() as f64 / BURST as f64, interval: (start, end) }
}

/// Where two threads wait spinning, so that both leave within a fraction of a span.
struct StartLine {
    arrived: AtomicUsize,
}

impl StartLine {
    fn new() -> StartLine {
        StartLine { arrived: AtomicUsize::new(0) }
    }

    fn wait(&self) {
        let ticket = self.arrived.fetch_add(1, Ordering::AcqRel);
        let both = ticket - ticket % 2 + 2;
        while self.arrived.load(Ordering::Acquire) < both {
            std::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_leaves_the_start_line_before_both_are_there() {
        let (line, arrived) = (StartLine::new(), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for round in 1..=100 {
                        arrived.fetch_add(1, Ordering::AcqRel);
                        line.wait();
                        assert!(arrived.load(Ordering::Acquire) >= 2 * round);
                    }
                });
            }
        });
    }
}
