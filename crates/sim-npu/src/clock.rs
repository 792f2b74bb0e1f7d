//! The host's monotonic clock, and the device counter that is derived from it.

/// Nanoseconds in a second.
const NS_PER_S: u128 = 1_000_000_000;

/// `CLOCK_MONOTONIC` in nanoseconds.
pub fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock exists on every Linux and the timespec is ours.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    // Monotonic time is not negative.
    now.tv_sec as u64 * NS_PER_S as u64 + now.tv_nsec as u64
}

/// What a counter at `hz` shows at `ns`. By 128-bit integers on every architecture, cut off, so that the
/// counter never runs backwards; it wraps where a 64-bit counter does.
pub(crate) const fn cycles_at(ns: u64, hz: u64) -> u64 {
    (ns as u128 * hz as u128 / NS_PER_S) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_is_the_clock_rescaled() {
        assert_eq!(cycles_at(0, 50_000_000), 0);
        assert_eq!(cycles_at(19, 50_000_000), 0);
        assert_eq!(cycles_at(20, 50_000_000), 1);
        assert_eq!(cycles_at(1_000_000_000, 50_000_000), 50_000_000);
        assert_eq!(cycles_at(u64::MAX, 1_000_000_000), u64::MAX);
        // Beyond 2^53, where doubles would round.
        assert_eq!(cycles_at((1 << 60) + 40, 50_000_000), ((1 << 60) + 40) / 20);
    }

    #[test]
    fn the_clock_does_not_run_backwards() {
        let mut last = monotonic_ns();
        for _ in 0..10_000 {
            let now = monotonic_ns();
            assert!(now >= last);
            last = now;
        }
    }
}
