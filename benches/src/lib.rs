//! Measuring side by side: medians of many repetitions, floors measured in the same process as what they floor.

mod latency;

use std::time::{Duration, Instant};

pub use latency::{Latency, Percentiles};

/// The middle of the values; the mean of the two middle ones where their number is even. 0 of none.
pub fn median(values: &mut [f64]) -> f64 {
    quantile(values, 0.5)
}

/// The value below which a share of the values lies, interpolated. 0 of none.
pub fn quantile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let Some(last) = values.len().checked_sub(1) else { return 0.0 };
    let place = share.clamp(0.0, 1.0) * last as f64;
    let below = place.floor() as usize;
    let above = (below + 1).min(last);
    values[below] + (values[above] - values[below]) * (place - below as f64)
}

/// The middle of what each repetition gives for `value / floor`. Each is divided by its own floor, which was
/// measured beside it, so that a machine that changes its speed half-way changes no ratio.
pub fn median_ratio(values: &[f64], floors: &[f64]) -> f64 {
    let ratios = values.iter().zip(floors).filter(|(_, floor)| **floor > 0.0);
    median(&mut ratios.map(|(value, floor)| value / floor).collect::<Vec<f64>>())
}

/// Which share of the time that two intervals span together both were under way; 0 where they do not meet.
pub fn overlap(one: (Instant, Instant), other: (Instant, Instant)) -> f64 {
    let both = one.1.min(other.1).saturating_duration_since(one.0.max(other.0));
    let any = one.1.max(other.1).saturating_duration_since(one.0.min(other.0));
    if any.is_zero() { 0.0 } else { both.as_secs_f64() / any.as_secs_f64() }
}

/// ns of one call out of `calls` timed together.
pub fn each_ns(calls: usize, mut call: impl FnMut(usize)) -> f64 {
    let start = Instant::now();
    for number in 0..calls {
        call(number);
    }
    start.elapsed().as_nanos() as f64 / calls as f64
}

/// How often the kernel took the CPU from the calling thread so far.
pub fn preemptions() -> i64 {
    // SAFETY: usage is plain numbers, of which zero is one.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is there for the call to fill.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    usage.ru_nivcsw
}

/// CPU time of the calling thread or of the whole process.
pub fn cpu_time(of: CpuTime) -> Duration {
    let clock = match of {
        CpuTime::Thread => libc::CLOCK_THREAD_CPUTIME_ID,
        CpuTime::Process => libc::CLOCK_PROCESS_CPUTIME_ID,
    };
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec for the call to fill, and both clocks exist on Linux.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Whose CPU time.
#[derive(Clone, Copy, Debug)]
pub enum CpuTime {
    /// The calling thread's.
    Thread,
    /// All threads' of this process.
    Process,
}

/// Keeps the calling thread on the CPU that is the `index`-th of those it may use; where that fails it floats.
pub fn pin_to_cpu(index: usize) {
    // SAFETY: a CPU set is plain bits, of which zero is the empty set.
    let mut allowed: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `allowed` is a CPU set of the size given, for the call to fill.
    if unsafe { libc::sched_getaffinity(0, size_of_val(&allowed), &raw mut allowed) } != 0 {
        return;
    }
    let is_allowed = |cpu: &usize| {
        // SAFETY: the number is below CPU_SETSIZE, the bits of the set.
        unsafe { libc::CPU_ISSET(*cpu, &allowed) }
    };
    let Some(cpu) = (0..libc::CPU_SETSIZE as usize).filter(is_allowed).nth(index) else { return };
    // SAFETY: as above.
    let mut one: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the number is below CPU_SETSIZE.
    unsafe { libc::CPU_SET(cpu, &mut one) };
    // SAFETY: `one` is a CPU set of the size given.
    unsafe { libc::sched_setaffinity(0, size_of_val(&one), &raw const one) };
}

/// How many CPUs this process may run on.
pub fn online_cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The bandwidth at which all CPUs together read memory that no cache holds, in GB/s (1e9 bytes): the best of a
/// few passes, since everything that disturbs it makes it smaller.
pub fn read_bandwidth_gb_per_s() -> f64 {
    // Well beyond the last-level cache of the machines that this is run on.
    const BYTES_PER_CPU: usize = 256 << 20;
    const PASSES: usize = 5;
    let cpus = online_cpus();
    let blocks: Vec<Vec<u64>> = (0..cpus).map(|cpu| vec![cpu as u64 + 1; BYTES_PER_CPU / 8]).collect();
    let mut best = 0.0_f64;
    for _ in 0..PASSES {
        let start = Instant::now();
        std::thread::scope(|scope| {
            for block in &blocks {
                scope.spawn(move || std::hint::black_box(sum(block)));
            }
        });
        best = best.max((cpus * BYTES_PER_CPU) as f64 / start.elapsed().as_nanos() as f64);
    }
    best
}

/// Eight independent sums, so that loads and not additions are what is waited for.
fn sum(block: &[u64]) -> u64 {
    let mut sums = [0_u64; 8];
    for chunk in block.chunks_exact(8) {
        for (sum, value) in sums.iter_mut().zip(chunk) {
            *sum = sum.wrapping_add(*value);
        }
    }
    sums.iter().fold(0, |total, sum| total.wrapping_add(*sum))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_interpolate_and_nothing_has_none() {
        assert_eq!(median(&mut []), 0.0);
        assert_eq!(median(&mut [3.0, 1.0]), 2.0);
        assert_eq!(median(&mut [5.0, 1.0, 3.0]), 3.0);
        assert_eq!(quantile(&mut [0.0, 10.0], 0.9), 9.0);
    }

    #[test]
    fn each_repetition_is_divided_by_its_own_floor() {
        // The machine halves its speed for the last two: the ratio stays, that of the medians would not.
        assert_eq!(median_ratio(&[10.0, 30.0, 20.0, 20.0], &[20.0, 20.0, 40.0, 40.0]), 0.5);
        assert_eq!(median_ratio(&[1.0, 9.0], &[0.0, 3.0]), 3.0);
        assert_eq!(median_ratio(&[], &[]), 0.0);
    }

    #[test]
    fn overlap_is_the_share_in_which_both_run() {
        let start = Instant::now();
        let at = |ns| start + Duration::from_nanos(ns);
        assert_eq!(overlap((at(0), at(10)), (at(0), at(10))), 1.0);
        assert_eq!(overlap((at(0), at(10)), (at(6), at(16))), 0.25);
        assert_eq!(overlap((at(6), at(16)), (at(0), at(10))), 0.25);
        assert_eq!(overlap((at(0), at(10)), (at(20), at(30))), 0.0);
        assert_eq!(overlap((at(0), at(0)), (at(0), at(0))), 0.0);
    }

    #[test]
    fn calls_timed_together_are_all_made_and_share_the_time() {
        let mut calls = 0;
        let ns = each_ns(10, |number| {
            assert_eq!(number, calls);
            calls += 1;
        });
        assert_eq!(calls, 10);
        assert!(ns >= 0.0);
    }
}
