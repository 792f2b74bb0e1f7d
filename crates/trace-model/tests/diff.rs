//! Two logs against each other.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod log;

use log::{Line, device, span, trace};
use simpler_trace_model::{Matched, StageVerdict, Trace, diff};

/// Numbers that look like noise, the same in every run of the test.
struct Random(u64);

impl Random {
    /// SplitMix64, as a share of 1.
    fn share(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11).wrapping_add(1) as f64 / (1_u64 << 53) as f64
    }

    /// About `ns`, with a standard deviation of 3 %.
    fn about(&mut self, ns: f64) -> i64 {
        let normal = (-2.0 * self.share().ln()).sqrt() * (std::f64::consts::TAU * self.share()).cos();
        (ns * (1.0 + 0.03 * normal)).round() as i64
    }
}

/// Runs of a callable, of which one stage takes `shift` as long as it should.
fn runs(random: &mut Random, n: usize, hid: u64, shift: f64) -> Vec<Line> {
    let mut lines = Vec::new();
    for inv in 1..=n as u64 {
        let ts = inv as i64 * 10_000_000;
        let bind = random.about(100_000.0);
        let runner = random.about(2_000_000.0 * shift);
        let wall = random.about(1_500_000.0);
        let end = ts + bind + runner + 10;
        lines.extend([
            span(inv, 1, "simpler_run.bind", ts + 1, bind),
            span(inv, 1, "simpler_run.runner_run", ts + bind + 2, runner),
            device(inv, 2, "simpler_run.runner_run.device_wall", 0, wall, end),
            span(inv, 0, "simpler_run", ts, end - ts),
        ]);
    }
    lines.iter().map(|line| Line { hid, ..*line }).collect()
}

fn log_of(random: &mut Random, n: usize, shift: f64) -> Trace {
    trace(&runs(random, n, 0xa, shift))
}

fn stage(base: &Trace, new: &Trace, max_regression: f64, name: &str) -> StageVerdict {
    let diff = diff(base, new, max_regression).unwrap();
    diff.callables[0].stages.iter().find(|stage| &*stage.name == name).unwrap().verdict
}

const RUNNER: &str = "simpler_run.runner_run";

#[test]
fn a_shift_of_five_percent_is_found_and_none_is_not() {
    const TRIALS: usize = 500;
    let mut random = Random(7);
    let (mut found, mut false_alarms, mut elsewhere) = (0, 0, 0);
    for _ in 0..TRIALS {
        let base = log_of(&mut random, 200, 1.0);
        let slower = diff(&base, &log_of(&mut random, 200, 1.05), 0.05).unwrap();
        let of = |name: &str| {
            slower.callables[0].stages.iter().find(|stage| &*stage.name == name).unwrap().verdict
        };
        found +=
            usize::from(slower.verdict == StageVerdict::Regression && of(RUNNER) == StageVerdict::Regression);
        elsewhere += usize::from(of("simpler_run.bind") != StageVerdict::Same);
        let same = diff(&base, &log_of(&mut random, 200, 1.0), 0.0).unwrap();
        false_alarms += usize::from(same.verdict == StageVerdict::Regression);
    }
    assert!(found * 100 >= 95 * TRIALS, "{found} of {TRIALS} found");
    assert!(false_alarms * 100 <= 5 * TRIALS, "{false_alarms} of {TRIALS} false alarms");
    assert!(elsewhere * 100 <= 5 * TRIALS, "{elsewhere} of {TRIALS} blamed a stage that has not changed");
}

#[test]
fn what_is_surely_less_than_allowed_is_tolerated() {
    let mut random = Random(1);
    let base = log_of(&mut random, 400, 1.0);
    let new = log_of(&mut random, 400, 1.05);
    assert_eq!(stage(&base, &new, 0.20, RUNNER), StageVerdict::Tolerated);
    assert_eq!(stage(&base, &new, 0.02, RUNNER), StageVerdict::Regression);
    assert_eq!(stage(&new, &base, 0.02, RUNNER), StageVerdict::Improvement);
    let verdict = diff(&base, &new, 0.20).unwrap().verdict;
    assert_eq!(verdict, StageVerdict::Tolerated);
}

#[test]
fn medians_noise_and_interval_are_those_of_the_invocations() {
    let mut random = Random(3);
    let (base, new) = (log_of(&mut random, 1_000, 1.0), log_of(&mut random, 1_000, 1.10));
    let diff = diff(&base, &new, 0.05).unwrap();
    let runner = diff.callables[0].stages.iter().find(|stage| &*stage.name == RUNNER).unwrap();
    assert_eq!((runner.base.n, runner.new.n), (1_000, 1_000));
    assert!((runner.base.median_ns / 2_000_000.0 - 1.0).abs() < 0.01, "{runner:?}");
    assert!((runner.base.noise.unwrap() - 0.03).abs() < 0.005, "{runner:?}");
    let change = runner.change.unwrap();
    assert!((change.estimate - 0.10).abs() < 0.01, "{change:?}");
    assert!(change.low < change.estimate && change.estimate < change.high, "{change:?}");
    assert!(change.high - change.low < 0.03, "{change:?}");
    assert_eq!(diff.compared, 4);
    assert!((diff.confidence - 0.9875).abs() < 1e-9);
}

#[test]
fn the_same_logs_have_the_same_verdict_and_no_change() {
    let base = log_of(&mut Random(5), 50, 1.0);
    let twice: Vec<String> = (0..2).map(|_| format!("{:?}", diff(&base, &base, 0.05).unwrap())).collect();
    assert_eq!(twice[0], twice[1]);
    assert_eq!(diff(&base, &base, 0.0).unwrap().verdict, StageVerdict::Same);
}

#[test]
fn a_callable_whose_code_has_changed_is_known_by_its_part() {
    let mut random = Random(11);
    let base = trace(&runs(&mut random, 20, 0xa, 1.0));
    let new = trace(&runs(&mut random, 20, 0xb, 1.0));
    let diff = diff(&base, &new, 0.05).unwrap();
    let callable = &diff.callables[0];
    assert_eq!((callable.base_hid, callable.new_hid, callable.matched), (0xa, 0xb, Matched::Label));
    assert!(diff.only_base.is_empty() && diff.only_new.is_empty());
}

#[test]
fn logs_that_cannot_be_compared_are_refused() {
    let mut random = Random(13);
    let base = log_of(&mut random, 20, 1.0);
    let refused = |new: &Trace| diff(&base, new, 0.05).unwrap_err().to_string();
    assert!(refused(&trace(&[])).contains("holds no run"));
    assert!(refused(&log_of(&mut random, 7, 1.0)).contains("8 or more invocations"));
    let mut rootless = runs(&mut random, 20, 0xa, 1.0);
    rootless.pop();
    assert!(refused(&trace(&rootless)).contains("has lost records"));
    let mut prefill = runs(&mut random, 1, 0xc, 1.0);
    prefill.extend(runs(&mut random, 1, 0xd, 1.0).into_iter().map(|line| Line {
        inv: 2,
        ts: line.ts + 5_000_000,
        ..line
    }));
    assert!(refused(&trace(&prefill)).contains("cannot be compared"));
}

#[test]
fn stages_and_callables_that_one_side_lacks_are_said() {
    let mut random = Random(17);
    let mut lines = runs(&mut random, 20, 0xa, 1.0);
    let base = trace(&lines);
    lines.retain(|line| line.name != "simpler_run.bind");
    lines.extend((1..=20).map(|inv| span(inv, 1, "simpler_run.new", inv as i64 * 10_000_000 + 5, 100)));
    let mut others = runs(&mut random, 9, 0xb, 1.0);
    others.iter_mut().for_each(|line| (line.inv, line.ts) = (line.inv + 100, line.ts + 1_000_000_000));
    lines.extend(others);
    let diff = diff(&base, &trace(&lines), 0.05).unwrap();
    assert_eq!(diff.callables[0].only_base, ["simpler_run.bind".into()]);
    assert_eq!(diff.callables[0].only_new, ["simpler_run.new".into()]);
    assert_eq!(diff.only_new, [0xb]);
}
