//! Single calls, one by one: each is timed between two clock reads, and what two reads with nothing between them
//! cost is taken off.
//!
//! A histogram of three digits keeps every call at any length, so that the tail is counted and not sampled.

use std::time::Instant;

use hdrhistogram::Histogram;

/// The longest call that is told from longer ones.
const LONGEST_NS: u64 = 10_000_000_000;
/// Empty intervals that tell what a pair of clock reads costs just now.
const EMPTY_INTERVALS: usize = 255;

/// The lengths of single calls in ns.
#[derive(Clone, Debug)]
pub struct Latency {
    lengths: Histogram<u64>,
}

/// What is published of a distribution, in ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Percentiles {
    /// Half of the calls were at most this long.
    pub p50: f64,
    /// 99 % were.
    pub p99: f64,
    /// 99.9 % were.
    pub p999: f64,
    /// The longest call.
    pub max: f64,
}

impl Default for Latency {
    fn default() -> Self {
        let lengths = Histogram::new_with_bounds(1, LONGEST_NS, 3);
        Self { lengths: lengths.expect("bounds and digits are such as the histogram takes") }
    }
}

impl Latency {
    /// Times `calls` calls, each alone.
    pub fn time(&mut self, calls: usize, mut call: impl FnMut(usize)) {
        let empty_ns = empty_interval_ns();
        for number in 0..calls {
            let start = Instant::now();
            call(number);
            let end = Instant::now();
            self.record((end - start).as_nanos() as u64, empty_ns);
        }
    }

    /// Adds one interval, of which `empty_ns` belong to the clock.
    fn record(&mut self, interval_ns: u64, empty_ns: u64) {
        self.lengths.saturating_record(interval_ns.saturating_sub(empty_ns));
    }

    /// How many calls were timed.
    pub fn calls(&self) -> u64 {
        self.lengths.len()
    }

    /// The distribution so far; zeros of none.
    pub fn percentiles(&self) -> Percentiles {
        let at = |share| self.lengths.value_at_quantile(share) as f64;
        Percentiles { p50: at(0.5), p99: at(0.99), p999: at(0.999), max: self.lengths.max() as f64 }
    }
}

/// The usual length of an interval with nothing in it.
fn empty_interval_ns() -> u64 {
    let mut intervals = [0; EMPTY_INTERVALS];
    for interval in &mut intervals {
        let start = Instant::now();
        *interval = start.elapsed().as_nanos() as u64;
    }
    intervals.sort_unstable();
    intervals[EMPTY_INTERVALS / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_what_was_recorded_less_the_clock() {
        let mut latency = Latency::default();
        for length_ns in 1..=1000 {
            latency.record(length_ns + 30, 30);
        }
        assert_eq!(latency.percentiles(), Percentiles { p50: 500.0, p99: 990.0, p999: 999.0, max: 1000.0 });
    }

    #[test]
    fn a_call_of_seconds_is_told_within_three_digits() {
        let mut latency = Latency::default();
        latency.record(3_000_000_000, 0);
        latency.record(7, 0);
        let Percentiles { p50, max, .. } = latency.percentiles();
        assert_eq!(p50, 7.0);
        assert!((max - 3e9).abs() <= 3e6, "{max}");
    }

    #[test]
    fn an_interval_shorter_than_the_clock_is_nothing_rather_than_negative() {
        let mut latency = Latency::default();
        latency.record(20, 30);
        assert_eq!(latency.percentiles(), Percentiles { p50: 0.0, p99: 0.0, p999: 0.0, max: 0.0 });
        assert_eq!(latency.calls(), 1);
    }

    #[test]
    fn every_call_is_counted_and_none_has_no_percentiles() {
        let mut latency = Latency::default();
        assert_eq!(latency.percentiles().max, 0.0);
        let mut calls = 0;
        latency.time(100, |_| calls += 1);
        assert_eq!((calls, latency.calls()), (100, 100));
    }
}
