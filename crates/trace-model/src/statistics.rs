//! Means, medians, percentiles and extremes of durations in whole nanoseconds.
//!
//! A percentile is by nearest rank: the p-th of n values is the ⌈p·n/100⌉-th smallest, so it is always one that was
//! measured. The 50th of an even count is therefore the lower of the middle two, where the median is their mean.

/// What a set of durations amounts to; there is none for an empty set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stats {
    /// How many values.
    pub n: usize,
    /// The mean, truncated to whole ns.
    pub mean_ns: i64,
    /// The smallest.
    pub min_ns: i64,
    /// The largest.
    pub max_ns: i64,
    /// What takes all values at once, where it was asked for.
    pub ranks: Option<Ranks>,
}

/// The values at certain places in the order of a set of durations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ranks {
    /// The median: of an even count the mean of the middle two, hence possibly a half.
    pub median_ns: f64,
    /// Half of the values are at most this, ns.
    pub p50_ns: i64,
    /// Nine of ten are, ns.
    pub p90_ns: i64,
    /// All but one of a hundred are, ns.
    pub p99_ns: i64,
}

impl Ranks {
    /// The ranks of `values`, which it puts in another order; `None` if there are none.
    pub fn of(values: &mut [i64]) -> Option<Ranks> {
        let median_ns = median_ns(values)?;
        let n = values.len();
        // Each is looked for among those up to the one above it.
        let mut up_to = values;
        let [p99_ns, p90_ns, p50_ns] = [99, 90, 50].map(|percent| {
            let rank = (n as u128 * percent).div_ceil(100) as usize;
            let at = rank.checked_sub(1)?;
            let held = std::mem::take(&mut up_to);
            let value = *held.select_nth_unstable(at).1;
            up_to = &mut held[..rank];
            Some(value)
        });
        Some(Ranks { median_ns, p50_ns: p50_ns?, p90_ns: p90_ns?, p99_ns: p99_ns? })
    }
}

/// The statistics that need no value twice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tally {
    n: usize,
    sum: i128,
    min: i64,
    max: i64,
}

impl Default for Tally {
    fn default() -> Tally {
        Tally { n: 0, sum: 0, min: i64::MAX, max: i64::MIN }
    }
}

impl Tally {
    #[inline]
    pub(crate) fn add(&mut self, value: i64) {
        self.n += 1;
        self.sum += i128::from(value);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    /// As if all that `other` was given had been added here.
    pub(crate) fn absorb(&mut self, other: Tally) {
        self.n += other.n;
        self.sum += other.sum;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// What they amount to, without the ranks; `None` if there were none.
    pub(crate) fn stats(self) -> Option<Stats> {
        let n = i128::try_from(self.n).ok().filter(|&n| n > 0)?;
        let mean_ns = i64::try_from(self.sum / n).ok()?;
        Some(Stats { n: self.n, mean_ns, min_ns: self.min, max_ns: self.max, ranks: None })
    }
}

impl Stats {
    /// The statistics of `values`, which it puts in another order; `None` if there are none.
    pub fn of(values: &mut [i64]) -> Option<Stats> {
        let mut tally = Tally::default();
        values.iter().for_each(|&value| tally.add(value));
        Some(Stats { ranks: Ranks::of(values), ..tally.stats()? })
    }
}

/// The mean truncated to whole ns, or `None` of nothing.
pub fn mean_ns(values: &[i64]) -> Option<i64> {
    let n = i128::try_from(values.len()).ok().filter(|&n| n > 0)?;
    let sum: i128 = values.iter().map(|&value| i128::from(value)).sum();
    i64::try_from(sum / n).ok()
}

/// The median of `values`, which it puts in another order, or `None` of nothing.
pub fn median_ns(values: &mut [i64]) -> Option<f64> {
    let (n, middle) = (values.len(), values.len() / 2);
    if n == 0 {
        return None;
    }
    let (below, upper, _) = values.select_nth_unstable(middle);
    let upper = *upper;
    if n % 2 == 1 {
        return Some(upper as f64);
    }
    let lower = below.iter().copied().max()?;
    Some((i128::from(lower) + i128::from(upper)) as f64 / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_has_no_statistics() {
        assert_eq!(Stats::of(&mut []), None);
    }

    #[test]
    fn the_mean_is_truncated_and_the_median_of_an_even_count_lies_between() {
        let stats = Stats::of(&mut [5, 1, 2, 3]).unwrap();
        assert_eq!((stats.n, stats.mean_ns, stats.min_ns, stats.max_ns), (4, 2, 1, 5));
        assert_eq!(stats.ranks.unwrap().median_ns, 2.5);
    }

    #[test]
    fn a_percentile_is_the_value_at_the_nearest_rank() {
        let of = |values: &mut [i64]| Ranks::of(values).map(|all| [all.p50_ns, all.p90_ns, all.p99_ns]);
        assert_eq!(of(&mut []), None);
        assert_eq!(of(&mut [7]), Some([7, 7, 7]));
        assert_eq!(of(&mut [4, 1, 3, 2]), Some([2, 4, 4]), "the lower of the middle two");
        let mut hundred: Vec<i64> = (1..=100).rev().collect();
        assert_eq!(of(&mut hundred), Some([50, 90, 99]));
        let mut more: Vec<i64> = (1..=101).collect();
        assert_eq!(of(&mut more), Some([51, 91, 100]));
        assert_eq!(of(&mut [i64::MIN, i64::MAX]), Some([i64::MIN, i64::MAX, i64::MAX]));
        let ranks = Stats::of(&mut [5, 1, 2, 3]).unwrap().ranks.unwrap();
        assert_eq!((ranks.median_ns, ranks.p50_ns), (2.5, 2));
    }

    #[test]
    fn a_sum_beyond_the_clock_does_not_wrap() {
        assert_eq!(mean_ns(&[i64::MAX, i64::MAX]), Some(i64::MAX));
        assert_eq!(median_ns(&mut [i64::MAX, i64::MAX]), Some(i64::MAX as f64));
    }
}
