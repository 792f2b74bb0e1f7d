//! The device counter: a clock of its own, so that nothing can take it for the host's.
//!
//! It is made from the processor's counter (the TSC where it is invariant, the virtual counter on aarch64, else
//! `CLOCK_MONOTONIC_RAW`), rescaled to the profile's frequency, begun at an offset that says nothing, and run a few
//! ten parts per million off its nominal rate, as oscillators do. Host and device times are therefore related by
//! nothing but what somebody has measured (`clock.anchor`).

use std::sync::OnceLock;
use std::time::Duration;

/// Nanoseconds in a second.
const NS_PER_S: u64 = 1_000_000_000;
/// Parts in a million parts.
const PPM: i64 = 1_000_000;
/// How far from its nominal rate a counter may be asked to run: ten times what a crystal does.
pub(crate) const RATE_ERROR_PPM_MAX: i32 = 1000;
/// The rate error of a chip that is not told one; its sign differs from process to process.
const RATE_ERROR_PPM: i32 = 50;
/// Begun below this, a counter of 1 GHz does not wrap for a century.
const OFFSET_LIMIT: u64 = 1 << 61;
/// A multiplier's fraction: at 50 MHz from 3 GHz, one part in 10^8.
const FRACTION_BITS: u32 = 32;
/// How long the source's rate is measured, and how often each end is read; 50 ns of noise are then 5 ppm.
const MEASURED_FOR: Duration = Duration::from_millis(10);
const READINGS: usize = 16;

/// Where ticks come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// The processor's own counter, at this many ticks a second.
    Processor { hz: u64 },
    /// `CLOCK_MONOTONIC_RAW`, which nobody disciplines.
    Raw,
}

impl Source {
    /// The source of this machine; measured once.
    fn of_this_machine() -> Self {
        // FORK: a child has the same processor.
        static SOURCE: OnceLock<Source> = OnceLock::new();
        *SOURCE.get_or_init(|| match processor_hz() {
            Some(hz) if hz != 0 => Self::Processor { hz },
            _ => Self::Raw,
        })
    }

    const fn hz(self) -> u64 {
        match self {
            Self::Processor { hz } => hz,
            Self::Raw => NS_PER_S,
        }
    }

    #[inline]
    fn ticks(self) -> u64 {
        match self {
            Self::Processor { .. } => processor_ticks(),
            Self::Raw => clock_ns(libc::CLOCK_MONOTONIC_RAW),
        }
    }
}

/// The counter of one chip. Any thread may read it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counter {
    source: Source,
    /// The source's ticks when the counter began.
    began: u64,
    /// Cycles at that moment.
    offset: u64,
    /// Cycles a tick, with [`FRACTION_BITS`].
    multiplier: u64,
}

impl Counter {
    /// A counter that begins now at `offset` cycles (None: anywhere) and runs at `hz` but for `rate_error_ppm`
    /// (None: some).
    pub(crate) fn new(hz: u64, offset: Option<u64>, rate_error_ppm: Option<i32>) -> Self {
        let source = Source::of_this_machine();
        let pid = std::process::id();
        let anywhere = || {
            let mixed =
                (clock_ns(libc::CLOCK_MONOTONIC) ^ u64::from(pid) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            mixed % OFFSET_LIMIT
        };
        let some = if pid.is_multiple_of(2) { RATE_ERROR_PPM } else { -RATE_ERROR_PPM };
        let error = rate_error_ppm.unwrap_or(some).clamp(-RATE_ERROR_PPM_MAX, RATE_ERROR_PPM_MAX);
        let scaled = u128::from(hz) * (PPM + i64::from(error)) as u128;
        let multiplier = (scaled << FRACTION_BITS) / (PPM as u128 * u128::from(source.hz()));
        Self {
            source,
            began: source.ticks(),
            offset: offset.unwrap_or_else(anywhere),
            multiplier: u64::try_from(multiplier).unwrap_or(u64::MAX),
        }
    }

    /// The counter's value when all loads of this thread before are done.
    #[inline]
    pub(crate) fn cycles_after_reads(&self) -> u64 {
        match self.source {
            Source::Processor { .. } => self.cycles_at(processor_ticks_after_reads()),
            Source::Raw => self.cycles(),
        }
    }

    /// The counter's value. A processor that is some ticks behind the one that made the counter sees its start.
    #[inline]
    pub(crate) fn cycles(&self) -> u64 {
        self.cycles_at(self.source.ticks())
    }

    #[inline]
    const fn cycles_at(&self, ticks: u64) -> u64 {
        let since = ticks.saturating_sub(self.began) as u128;
        self.offset.wrapping_add(((since * self.multiplier as u128) >> FRACTION_BITS) as u64)
    }
}

/// A clock of the kernel in nanoseconds.
fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: both clocks that are asked for exist on every Linux, and the timespec is ours.
    unsafe { libc::clock_gettime(clock, &raw mut now) };
    // These clocks are not negative.
    now.tv_sec as u64 * NS_PER_S + now.tv_nsec as u64
}

/// The processor's counter, read when all loads before it are done: a FIN that was seen is stamped after it was seen
/// (the read barrier of RUNTIME §4.5).
#[inline]
fn processor_ticks_after_reads() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        let mut processor = 0;
        // SAFETY: `processor_hz` has found that there is such an instruction, and the number is there to be written.
        unsafe { core::arch::x86_64::__rdtscp(&raw mut processor) }
    }
    #[cfg(target_arch = "aarch64")]
    {
        // SAFETY: a barrier of this thread alone.
        unsafe { core::arch::asm!("isb", options(nostack, preserves_flags)) };
        processor_ticks()
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        processor_ticks()
    }
}

/// The processor's counter. Nothing keeps the processor from reading it a little early.
#[inline]
fn processor_ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: every x86-64 has the instruction; whether its value is a clock is asked by `processor_hz`.
        unsafe { core::arch::x86_64::_rdtsc() }
    }
    #[cfg(target_arch = "aarch64")]
    {
        let ticks: u64;
        // SAFETY: Linux lets programs read the virtual counter; it touches nothing else.
        unsafe {
            core::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack, preserves_flags));
        }
        ticks
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        0
    }
}

/// The rate of the processor's counter in Hz; None where it is no clock.
#[cfg(target_arch = "x86_64")]
fn processor_hz() -> Option<u64> {
    use core::arch::x86_64::__cpuid;
    /// The leaf that says how the TSC runs, and its bit for "at one rate in every state".
    const POWER_LEAF: u32 = 0x8000_0007;
    const INVARIANT_TSC: u32 = 1 << 8;
    /// The leaf that says whether it can be read in order, and its bit.
    const FEATURE_LEAF: u32 = 0x8000_0001;
    const RDTSCP: u32 = 1 << 27;
    let leaves = __cpuid(0x8000_0000).eax;
    if leaves < POWER_LEAF || __cpuid(POWER_LEAF).edx & INVARIANT_TSC == 0 {
        return None;
    }
    if __cpuid(FEATURE_LEAF).edx & RDTSCP == 0 {
        return None;
    }
    // The narrowest of some readings, ticks between two of the kernel's clock.
    let reading = || {
        let one = |_| {
            let before = clock_ns(libc::CLOCK_MONOTONIC);
            let ticks = processor_ticks();
            (clock_ns(libc::CLOCK_MONOTONIC) - before, before, ticks)
        };
        let (width, before, ticks) = (0..READINGS).map(one).min().unwrap_or_default();
        (before + width / 2, ticks)
    };
    let (start_ns, start) = reading();
    std::thread::sleep(MEASURED_FOR);
    let (end_ns, end) = reading();
    let ticks = u128::from(end.checked_sub(start)?) * u128::from(NS_PER_S);
    u64::try_from(ticks.checked_div(u128::from(end_ns - start_ns))?).ok()
}

/// The rate of the virtual counter in Hz, which the architecture says.
#[cfg(target_arch = "aarch64")]
fn processor_hz() -> Option<u64> {
    let hz: u64;
    // SAFETY: Linux lets programs read the register; it touches nothing else.
    unsafe {
        core::arch::asm!("mrs {}, cntfrq_el0", out(reg) hz, options(nomem, nostack, preserves_flags));
    }
    Some(hz)
}

/// Other processors have no counter that is known to be a clock.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn processor_hz() -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counter(hz: u64, source_hz: u64, ppm: i32) -> Counter {
        let made = Counter::new(hz, Some(700), Some(ppm));
        let scale = u128::from(made.multiplier) * u128::from(made.source.hz()) / u128::from(source_hz);
        Counter {
            source: Source::Processor { hz: source_hz },
            began: 1_000,
            multiplier: scale as u64,
            ..made
        }
    }

    #[test]
    fn a_counter_begins_at_its_offset_and_runs_at_its_rate() {
        for (hz, ppm, expected) in
            [(50_000_000, 0, 50_000_000), (1_000_000_000, 50, 1_000_050_000), (50_000_000, -50, 49_997_500)]
        {
            let counter = counter(hz, 2_000_000_000, ppm);
            assert_eq!(counter.cycles_at(1_000), 700);
            let cycles = counter.cycles_at(1_000 + 2_000_000_000) - 700;
            assert!(cycles.abs_diff(expected) <= expected >> 25, "{cycles}, not {expected}");
            // Beyond 2^53, where doubles would round: a month.
            let month = 30 * 86_400;
            let cycles = counter.cycles_at(1_000 + 2_000_000_000 * month) - 700;
            assert!(cycles.abs_diff(expected * month) <= (expected * month) >> 25);
        }
    }

    #[test]
    fn a_processor_that_is_behind_sees_the_start() {
        assert_eq!(counter(50_000_000, 2_000_000_000, 0).cycles_at(10), 700);
    }

    #[test]
    fn the_counter_does_not_run_backwards() {
        let counter = Counter::new(1_000_000_000, None, None);
        let mut last = counter.cycles();
        for _ in 0..10_000 {
            let now = counter.cycles();
            assert!(now >= last);
            last = now;
        }
    }

    #[test]
    fn the_rate_error_is_bounded() {
        let fast = Counter::new(50_000_000, None, Some(i32::MAX));
        let most = Counter::new(50_000_000, None, Some(RATE_ERROR_PPM_MAX));
        assert_eq!(fast.multiplier, most.multiplier);
    }
}
