//! Single calls, one by one: each is timed between two clock reads, and what two reads with nothing between them
//! cost is taken off.
//!
//! A histogram of three digits keeps every call at any length, so that the tail is counted and not sampled. A time
//! stamp counter may advance in steps (10 ns on some processors), so that the interval in the middle tells only
//! which step a call fell into. The middle is therefore taken as the mean of the half of the calls around it, and
//! the clock's own cost as a mean, too: the steps average out.

use std::time::Instant;

use hdrhistogram::Histogram;

use crate::median;

/// The longest call that is told from longer ones.
const LONGEST_NS: u64 = 10_000_000_000;
/// Empty intervals that tell what a pair of clock reads costs just now.
const EMPTY_INTERVALS: usize = 256;
/// Which share of them, the shortest, is taken for undisturbed.
const UNDISTURBED: f64 = 0.9;

/// The lengths of single calls in ns.
#[derive(Clone, Debug)]
pub struct Latency {
    /// With the clock's own cost in it.
    intervals: Histogram<u64>,
    /// That cost, once per round of calls.
    empty_ns: Vec<f64>,
}

/// What is published of a distribution, in ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Percentiles {
    /// The middle: the mean of the calls between the first and the third quartile.
    pub p50: f64,
    /// 99 % of the calls were at most this long.
    pub p99: f64,
    /// 99.9 % were.
    pub p999: f64,
    /// The longest call.
    pub max: f64,
}

impl Default for Latency {
    fn default() -> Self {
        let intervals = Histogram::new_with_bounds(1, LONGEST_NS, 3);
        let intervals = intervals.expect("bounds and digits are such as the histogram takes");
        Self { intervals, empty_ns: Vec::new() }
    }
}

impl Latency {
    /// Times `calls` calls, each alone.
    pub fn time(&mut self, calls: usize, mut call: impl FnMut(usize)) {
        self.empty_ns.push(empty_interval_ns());
        for number in 0..calls {
            let start = Instant::now();
            call(number);
            let end = Instant::now();
            self.intervals.saturating_record((end - start).as_nanos() as u64);
        }
    }

    /// How many calls were timed.
    pub fn calls(&self) -> u64 {
        self.intervals.len()
    }

    /// The distribution so far; zeros of none.
    pub fn percentiles(&self) -> Percentiles {
        let empty_ns = median(&mut self.empty_ns.clone());
        let beyond_the_clock = |interval_ns: f64| (interval_ns - empty_ns).max(0.0);
        let at = |share| beyond_the_clock(self.intervals.value_at_quantile(share) as f64);
        Percentiles {
            p50: beyond_the_clock(self.middle_ns()),
            p99: at(0.99),
            p999: at(0.999),
            max: beyond_the_clock(self.intervals.max() as f64),
        }
    }

    /// The mean of the intervals between the quartiles.
    fn middle_ns(&self) -> f64 {
        let calls = self.intervals.len() as f64;
        let (from, to) = (calls / 4.0, calls * 3.0 / 4.0);
        let (mut below, mut sum) = (0.0, 0.0);
        for step in self.intervals.iter_recorded() {
            let count = step.count_since_last_iteration() as f64;
            // How many of these lie between the quartiles.
            let within = ((below + count).min(to) - below.max(from)).max(0.0);
            sum += within * step.value_iterated_to() as f64;
            below += count;
        }
        if calls == 0.0 { 0.0 } else { sum / (to - from) }
    }
}

/// The usual length of an interval with nothing in it.
fn empty_interval_ns() -> f64 {
    let mut intervals = [0.0; EMPTY_INTERVALS];
    for interval in &mut intervals {
        let start = Instant::now();
        *interval = start.elapsed().as_nanos() as f64;
    }
    intervals.sort_by(f64::total_cmp);
    let undisturbed = &intervals[..(EMPTY_INTERVALS as f64 * UNDISTURBED) as usize];
    undisturbed.iter().sum::<f64>() / undisturbed.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn latency(intervals_ns: impl IntoIterator<Item = u64>, empty_ns: f64) -> Latency {
        let mut latency = Latency { empty_ns: vec![empty_ns], ..Latency::default() };
        intervals_ns.into_iter().for_each(|interval_ns| latency.intervals.saturating_record(interval_ns));
        latency
    }

    #[test]
    fn percentiles_are_those_of_what_was_recorded_less_the_clock() {
        let Percentiles { p50, p99, p999, max } = latency(31..=1030, 30.0).percentiles();
        assert!((p50 - 500.5).abs() <= 1.0, "{p50}");
        assert_eq!((p99, p999, max), (990.0, 999.0, 1000.0));
    }

    #[test]
    fn a_clock_that_advances_in_steps_does_not_decide_the_middle() {
        // Calls of 46 ns seen through a clock of 10 ns steps.
        let stepped = |tenth: u64| if tenth < 4 { 70 } else { 80 };
        let Percentiles { p50, .. } = latency((0..1000).map(|call| stepped(call % 10)), 30.0).percentiles();
        assert!((p50 - 46.0).abs() <= 1.5, "{p50}");
    }

    #[test]
    fn a_long_tail_does_not_move_the_middle() {
        let lengths = (0..1000).map(|call| if call % 5 == 0 { 1_000_000 } else { 80 });
        assert_eq!(latency(lengths, 30.0).percentiles().p50, 50.0);
    }

    #[test]
    fn a_call_of_seconds_is_told_within_three_digits() {
        let Percentiles { max, .. } = latency([3_000_000_000, 7], 0.0).percentiles();
        assert!((max - 3e9).abs() <= 3e6, "{max}");
    }

    #[test]
    fn an_interval_shorter_than_the_clock_is_nothing_rather_than_negative() {
        let Percentiles { p50, p99, p999, max } = latency([20], 30.0).percentiles();
        assert_eq!((p50, p99, p999, max), (0.0, 0.0, 0.0, 0.0));
    }

    #[test]
    fn every_call_is_counted_and_none_has_no_percentiles() {
        let mut latency = Latency::default();
        assert_eq!(latency.percentiles().max, 0.0);
        assert_eq!(latency.percentiles().p50, 0.0);
        let mut calls = 0;
        latency.time(100, |_| calls += 1);
        assert_eq!((calls, latency.calls()), (100, 100));
    }
}
