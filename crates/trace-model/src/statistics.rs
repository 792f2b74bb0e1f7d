//! Means, medians and extremes of durations in whole nanoseconds.

/// What a set of durations amounts to; there is none for an empty set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stats {
    /// How many values.
    pub n: usize,
    /// The mean, truncated to whole ns.
    pub mean_ns: i64,
    /// The median: of an even count the mean of the middle two, hence possibly a half.
    pub median_ns: f64,
    /// The smallest.
    pub min_ns: i64,
    /// The largest.
    pub max_ns: i64,
}

impl Stats {
    /// The statistics of `values`, which it puts in another order; `None` if there are none.
    pub fn of(values: &mut [i64]) -> Option<Stats> {
        let mean_ns = mean_ns(values)?;
        let min_ns = values.iter().copied().min()?;
        let max_ns = values.iter().copied().max()?;
        let median_ns = median_ns(values)?;
        Some(Stats { n: values.len(), mean_ns, median_ns, min_ns, max_ns })
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
        assert_eq!(stats.median_ns, 2.5);
    }

    #[test]
    fn a_sum_beyond_the_clock_does_not_wrap() {
        assert_eq!(mean_ns(&[i64::MAX, i64::MAX]), Some(i64::MAX));
        assert_eq!(median_ns(&mut [i64::MAX, i64::MAX]), Some(i64::MAX as f64));
    }
}
