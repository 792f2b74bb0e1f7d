//! Two logs against each other: whether a stage takes longer than it did, by how much, and how sure that is.
//!
//! Compared are medians over invocations, stage by stage. How far chance alone moves them is found by the bootstrap: each
//! side is drawn anew from itself many times, and the change between the two medians is taken each time; what most draws
//! agree on is the interval. The median of such a draw need not be drawn value by value: it is the value at a place
//! whose share of the sorted side has a beta distribution, so a draw costs the same for two hundred invocations as for
//! a million. The draws come from a fixed seed: the same logs have the same verdict.
//!
//! Many stages are looked at, and one of many is easily off by chance. So the intervals are as wide as their number asks
//! for (Bonferroni): that any stage at all is called slower without reason has the chance that is stated.
//!
//! The interval knows of the noise within each log only. What differs between two runs as a whole (another machine, a
//! warmer one) is a change like any other; that is what `max_regression` is for.

use crate::build::Trace;
use crate::callable::{Callable, Figures, Label};
use crate::statistics::median_ns;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::VecDeque;
use std::fmt;

/// How often each side is drawn anew: enough that some draws lie outside an interval where dozens are asked for.
const DRAWS: usize = 4_000;

/// The chance that any stage of two logs that do not differ is said to.
const ERROR_CHANCE: f64 = 0.05;

/// Fewer invocations of a stage say nothing of its noise.
const INVOCATIONS_MIN: usize = 8;

/// From the median deviation to the standard deviation of a normal distribution.
const DEVIATION_SCALE: f64 = 1.4826;

/// What is said of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StageVerdict {
    /// It takes longer, and perhaps by more than was allowed.
    Regression,
    /// It takes longer, but by no more than was allowed.
    Tolerated,
    /// It takes less time.
    Improvement,
    /// No change that could not be chance.
    Same,
    /// Too few invocations to tell.
    TooFew,
}

impl StageVerdict {
    /// The stable word for it.
    pub fn word(self) -> &'static str {
        match self {
            StageVerdict::Regression => "regression",
            StageVerdict::Tolerated => "tolerated",
            StageVerdict::Improvement => "improvement",
            StageVerdict::Same => "same",
            StageVerdict::TooFew => "too_few",
        }
    }
}

/// One side of a stage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Side {
    /// Invocations that have it.
    pub n: usize,
    /// The median, ns.
    pub median_ns: f64,
    /// How far single invocations are from it: the standard deviation, as the median deviation tells it, by the median.
    /// `None` if that is 0.
    pub noise: Option<f64>,
}

/// A change by its share of the base's median: 0.05 is 5 % longer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// Between the two medians.
    pub estimate: f64,
    /// The lower end of the interval.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

/// A stage in both logs.
#[derive(Clone, Debug, PartialEq)]
pub struct StageChange {
    /// The span's name in the base.
    pub name: Box<str>,
    /// Whether it is on the device's clock.
    pub device: bool,
    /// As it was.
    pub base: Side,
    /// As it is.
    pub new: Side,
    /// `None` if there are too few invocations, or the base's median is 0.
    pub change: Option<Change>,
    /// What that amounts to.
    pub verdict: StageVerdict,
}

/// How two callables were found to be the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Matched {
    /// They have one `hid`.
    Hid,
    /// They play one part: a callable whose code has changed has another `hid`.
    Label,
}

/// A callable in both logs.
#[derive(Clone, Debug)]
pub struct CallableChange {
    /// Its identity in the base.
    pub base_hid: u64,
    /// Its identity now.
    pub new_hid: u64,
    /// What it was given for a name, else what part it plays in the base.
    pub label: String,
    /// How it was recognised.
    pub matched: Matched,
    /// The root, then the stages, as the base's table has them.
    pub stages: Vec<StageChange>,
    /// Stages that only the base has.
    pub only_base: Vec<Box<str>>,
    /// Stages that only the new log has.
    pub only_new: Vec<Box<str>>,
}

/// What two logs amount to.
#[derive(Clone, Debug)]
pub struct Diff {
    /// The callables that both have, those with more invocations in the base first.
    pub callables: Vec<CallableChange>,
    /// Callables that only the base has.
    pub only_base: Vec<u64>,
    /// Callables that only the new log has.
    pub only_new: Vec<u64>,
    /// How many stages have an interval.
    pub compared: usize,
    /// The confidence of each interval, such that all hold together with 95 %.
    pub confidence: f64,
    /// The regression that is allowed.
    pub max_regression: f64,
    /// The worst verdict of all stages.
    pub verdict: StageVerdict,
}

/// Why two logs cannot be compared, as a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incomparable(String);

impl fmt::Display for Incomparable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Incomparable {}

/// The durations of a stage.
struct Samples {
    name: Box<str>,
    device: bool,
    sorted: Vec<i64>,
}

/// Compares `new` with `base`. A stage that takes longer is tolerated if the interval of its change ends below
/// `max_regression`, a share of the base's median.
///
/// # Errors
/// If a log holds no run, has lost records, or the two have no callable in common with enough invocations.
pub fn diff(base: &Trace, new: &Trace, max_regression: f64) -> Result<Diff, Incomparable> {
    let callables = [usable(base, "the base")?, usable(new, "the new log")?];
    let pairs = pair(&callables[0], &callables[1]);
    let [mut of_base, mut of_new] = [base, new].map(Figures::with_values);
    let mut changes: Vec<CallableChange> = Vec::new();
    let mut samples: Vec<Vec<[Samples; 2]>> = Vec::new();
    for &(old, now, matched) in &pairs {
        let (before, now) = (&callables[0][old], &callables[1][now]);
        // A name can be a root's and a stage's; the first of each goes with the first of the other.
        let mut new_stages: Vec<Option<Samples>> = stages(&mut of_new, now).into_iter().map(Some).collect();
        let mut places: FxHashMap<Box<str>, VecDeque<usize>> = FxHashMap::default();
        for (at, stage) in new_stages.iter().flatten().enumerate() {
            places.entry(stage.name.clone()).or_default().push_back(at);
        }
        let mut both = Vec::new();
        let mut only_base = Vec::new();
        for stage in stages(&mut of_base, before) {
            let same = places.get_mut(&stage.name).and_then(VecDeque::pop_front);
            match same.and_then(|at| new_stages[at].take()) {
                Some(other) => both.push([stage, other]),
                None => only_base.push(stage.name),
            }
        }
        samples.push(both);
        changes.push(CallableChange {
            base_hid: before.hid,
            new_hid: now.hid,
            // A name given to the new one says more than the part that the old one plays.
            label: match now.given_label.is_some() && before.given_label.is_none() {
                true => now.display_label(),
                false => before.display_label(),
            },
            matched,
            stages: Vec::new(),
            only_base,
            only_new: new_stages.into_iter().flatten().map(|stage| stage.name).collect(),
        });
    }
    let enough = |pair: &[Samples; 2]| pair.iter().all(|side| side.sorted.len() >= INVOCATIONS_MIN);
    let compared = samples.iter().flatten().filter(|pair| enough(pair)).count();
    if compared == 0 {
        return Err(Incomparable(format!(
            "the logs cannot be compared: no stage of a callable has {INVOCATIONS_MIN} or more invocations in both"
        )));
    }
    let outside = ERROR_CHANCE / compared as f64;
    let mut draws = Draws::new();
    for (change, stages) in changes.iter_mut().zip(&samples) {
        change.stages = stages
            .iter()
            .map(|pair| compare(pair, enough(pair), outside, max_regression, &mut draws))
            .collect();
    }
    let verdicts = || changes.iter().flat_map(|change| &change.stages).map(|stage| stage.verdict);
    let order = [StageVerdict::Regression, StageVerdict::Tolerated, StageVerdict::Improvement];
    let verdict = order.into_iter().find(|&worst| verdicts().any(|verdict| verdict == worst));
    let unpaired = |side: usize, paired: FxHashSet<usize>| {
        let all = callables[side].iter().enumerate();
        all.filter(|(at, _)| !paired.contains(at)).map(|(_, callable)| callable.hid).collect()
    };
    Ok(Diff {
        only_base: unpaired(0, pairs.iter().map(|pair| pair.0).collect()),
        only_new: unpaired(1, pairs.iter().map(|pair| pair.1).collect()),
        verdict: verdict.unwrap_or(StageVerdict::Same),
        callables: changes,
        compared,
        confidence: 1.0 - outside,
        max_regression,
    })
}

/// The callables of a log that can be trusted.
fn usable(trace: &Trace, which: &str) -> Result<Vec<Callable>, Incomparable> {
    let callables = trace.callables();
    if callables.iter().all(|callable| callable.label == Label::Prewarm || callable.roots.is_empty()) {
        return Err(Incomparable(format!("the logs cannot be compared: {which} holds no run")));
    }
    if trace.is_lossy() {
        return Err(Incomparable(format!(
            "the logs cannot be compared: {which} has lost records (see simpler check), which bends medians"
        )));
    }
    Ok(callables)
}

/// Which callables are the same one: by hid, and, of those left, by the part that one alone plays on either side.
fn pair(base: &[Callable], new: &[Callable]) -> Vec<(usize, usize, Matched)> {
    let identity = |callable: &Callable| (callable.hid, callable.label == Label::Prewarm);
    let mut free: FxHashMap<(u64, bool), usize> =
        new.iter().enumerate().map(|(now, callable)| (identity(callable), now)).collect();
    let mut pairs = Vec::new();
    let mut left = Vec::new();
    for (old, callable) in base.iter().enumerate() {
        match free.remove(&identity(callable)) {
            Some(now) => pairs.push((old, now, Matched::Hid)),
            None => left.push(old),
        }
    }
    for label in [Label::Decode, Label::Prefill] {
        let old: Vec<usize> = left.iter().copied().filter(|&old| base[old].label == label).collect();
        let now: Vec<usize> = free.values().copied().filter(|&now| new[now].label == label).collect();
        if let ([old], [now]) = (old.as_slice(), now.as_slice()) {
            pairs.push((*old, *now, Matched::Label));
        }
    }
    pairs.sort_by_key(|&(old, ..)| old);
    pairs
}

/// The root and the stages of a callable, each with its durations in ascending order.
fn stages(figures: &mut Figures, callable: &Callable) -> Vec<Samples> {
    let [roots, stages] = figures.durations(callable);
    let named = roots.into_iter().chain(stages);
    named
        .map(|(name, device, mut sorted)| {
            sorted.sort_unstable();
            Samples { name, device, sorted }
        })
        .collect()
}

fn side(sorted: &[i64]) -> Side {
    let median = middle(sorted);
    let mut deviations: Vec<i64> =
        sorted.iter().map(|&ns| (ns as f64 - median).abs().round() as i64).collect();
    let deviation = median_ns(&mut deviations).unwrap_or(0.0);
    let noise = (median > 0.0).then(|| DEVIATION_SCALE * deviation / median);
    Side { n: sorted.len(), median_ns: median, noise }
}

fn compare(
    [base, new]: &[Samples; 2],
    enough: bool,
    outside: f64,
    max_regression: f64,
    draws: &mut Draws,
) -> StageChange {
    let sides = [side(&base.sorted), side(&new.sorted)];
    let mut change = None;
    let mut verdict = StageVerdict::TooFew;
    if enough {
        let (low, high) = draws.interval(&base.sorted, &new.sorted, outside);
        let [was, is] = sides.map(|side| side.median_ns);
        verdict = match (low > 0.0, high < 0.0) {
            // Of nothing, any more is more than any share.
            (true, _) if was == 0.0 || high / was > max_regression => StageVerdict::Regression,
            (true, _) => StageVerdict::Tolerated,
            (_, true) => StageVerdict::Improvement,
            _ => StageVerdict::Same,
        };
        change = (was > 0.0).then(|| Change { estimate: (is - was) / was, low: low / was, high: high / was });
    }
    let [of_base, of_new] = sides;
    StageChange { name: base.name.clone(), device: base.device, base: of_base, new: of_new, change, verdict }
}

fn middle(sorted: &[i64]) -> f64 {
    let at = sorted.len() / 2;
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[at] as f64,
        _ => (sorted[at - 1] as f64 + sorted[at] as f64) / 2.0,
    }
}

/// Draws, the same ones for the same logs.
struct Draws {
    state: u64,
    differences: Vec<f64>,
}

impl Draws {
    fn new() -> Draws {
        Draws { state: 0x5eed, differences: Vec::with_capacity(DRAWS) }
    }

    /// Between what the difference of the medians lies in all draws but a share of `outside`, half of it at each end.
    fn interval(&mut self, base: &[i64], new: &[i64], outside: f64) -> (f64, f64) {
        let mut differences = std::mem::take(&mut self.differences);
        differences.clear();
        differences.extend((0..DRAWS).map(|_| self.median(new) - self.median(base)));
        differences.sort_unstable_by(f64::total_cmp);
        let cut = ((DRAWS as f64 * outside / 2.0) as usize).min(DRAWS / 2 - 1);
        let ends = (differences[cut], differences[DRAWS - 1 - cut]);
        self.differences = differences;
        ends
    }

    /// The median of as many values as `sorted` has, each drawn from it.
    fn median(&mut self, sorted: &[i64]) -> f64 {
        let n = sorted.len();
        let at = |share: f64| sorted[((share * n as f64) as usize).min(n - 1)] as f64;
        // The k-th smallest of n even draws from 0 to 1.
        let k = n.div_ceil(2);
        let (below, above) = (self.gamma(k as f64), self.gamma((n - k + 1) as f64));
        let share = below / (below + above);
        if n % 2 == 1 {
            return at(share);
        }
        // The next one is the smallest of those n - k that lie above it.
        let next = share + (1.0 - share) * (1.0 - self.uniform().powf(1.0 / (n - k) as f64));
        (at(share) + at(next)) / 2.0
    }

    /// A gamma variate of a shape of at least 1, by the method of Marsaglia and Tsang.
    fn gamma(&mut self, shape: f64) -> f64 {
        let d = shape - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let x = self.normal();
            let v = (1.0 + c * x).powi(3);
            if v > 0.0 && self.uniform().ln() < 0.5 * x * x + d - d * v + d * v.ln() {
                return d * v;
            }
        }
    }

    /// By the method of Box and Muller.
    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.uniform().ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// Above 0, at most 1: SplitMix64.
    fn uniform(&mut self) -> f64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11).wrapping_add(1) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same by drawing value by value.
    fn drawn_median(draws: &mut Draws, sorted: &[i64]) -> f64 {
        let n = sorted.len();
        let mut drawn: Vec<i64> =
            (0..n).map(|_| sorted[((draws.uniform() * n as f64) as usize).min(n - 1)]).collect();
        median_ns(&mut drawn).unwrap_or_default()
    }

    #[test]
    fn the_median_of_a_draw_is_distributed_as_if_it_were_drawn_value_by_value() {
        for n in [8_i64, 9, 50, 201] {
            let sorted: Vec<i64> = (0..n).map(|at| at * at).collect();
            let mut draws = Draws::new();
            let quantiles = |mut values: Vec<f64>| {
                values.sort_unstable_by(f64::total_cmp);
                [5, 25, 50, 75, 95].map(|percent| values[values.len() * percent / 100])
            };
            let quick = quantiles((0..20_000).map(|_| draws.median(&sorted)).collect());
            let slow = quantiles((0..20_000).map(|_| drawn_median(&mut draws, &sorted)).collect());
            let most = (n * n) as f64;
            for (a, b) in quick.iter().zip(slow) {
                assert!((a - b).abs() <= 0.03 * most, "{n}: {quick:?} {slow:?}");
            }
        }
    }
}
