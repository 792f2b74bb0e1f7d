//! The proof that runs were pipelined, from the identity of their roots and the times of their stages.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod log;

use log::{Line, span, trace};
use simpler_trace_model::Stage;

/// A run of 1000 ns on the device from `ts` on, bound in the 300 ns before `bound`, with these attributes.
fn run(inv: u64, ts: i64, bound: i64, attrs: String) -> Vec<Line> {
    vec![
        span(inv, 1, "chip.run.bind", bound - 300, 300),
        span(inv, 1, "chip.run.runner_run", ts, 1_000),
        span(inv, 1, "chip.run.claim_release", ts + 1_000, 10),
        Line { attrs: attrs.leak(), ..span(inv, 0, "chip.run", bound - 310, ts + 1_020 - bound + 310) },
    ]
}

fn identity(dispatch: i64, epoch: i64) -> String {
    let slot = epoch % 2;
    format!("run_id=1 dispatch_id={dispatch} run_epoch={epoch} slot_id={slot} generation={epoch}")
}

/// Three runs, each bound while the one before is on the device.
fn pipelined() -> Vec<Line> {
    (1..=3).flat_map(|n| run(n as u64, n * 1_100, n * 1_100 - 200, identity(n, n))).collect()
}

fn refused(lines: &[Line], hidden: bool, words: &str) {
    let why = trace(lines).native_overlap(hidden).unwrap_err().to_string();
    assert!(why.contains(words), "{why}");
}

#[test]
fn runs_that_are_bound_while_another_runs_are_pipelined() {
    let mut lines = pipelined();
    assert_eq!(trace(&lines).native_overlap(true).unwrap().len(), 2);
    // Whatever the order of the records, and whoever else has no identity.
    lines.reverse();
    lines.extend(run(9, 90_000, 80_000, String::new()));
    lines.extend(run(10, 95_000, 94_000, "run_id=1 dispatch_id=0 run_epoch=0 slot_id=0 generation=0".into()));
    assert_eq!(trace(&lines).native_overlap(true).unwrap().len(), 2);
    // Another process has pairs of its own.
    lines.extend(pipelined().into_iter().map(|line| Line { pid: 7, ..line }));
    assert_eq!(trace(&lines).native_overlap(true).unwrap().len(), 4);
}

#[test]
fn the_epoch_orders_runs_that_nobody_numbers() {
    let lines: Vec<_> =
        (1..=3).flat_map(|n| run(n as u64, n * 1_100, n * 1_100 - 200, identity(0, n))).collect();
    let pairs = trace(&lines).native_overlap(false).unwrap();
    let sequences: Vec<_> =
        pairs.iter().map(|pair| pair.map(|run| (run.sequence(), run.dispatch_id))).collect();
    assert_eq!(sequences, [[(1, 0), (2, 0)], [(2, 0), (3, 0)]]);
    let backwards: Vec<_> =
        (1..=3).flat_map(|n| run(n as u64, n * 1_100, n * 1_100 - 200, identity(0, 9 - n))).collect();
    refused(&backwards, false, "launch order is not monotonic");
}

#[test]
fn what_is_no_pipeline_is_told_apart() {
    // The second is bound after the first has ended; then exactly when it ends, which is not during it.
    for bound in [2_500, 2_400] {
        let mut lines = run(1, 1_100, 900, identity(1, 1));
        lines.extend(run(2, 3_000, bound, identity(2, 2)));
        refused(&lines, false, "did not overlap");
    }
    // Its binding outlasts the first run: overlap, but not hidden.
    let mut lines = run(1, 1_100, 900, identity(1, 1));
    lines.extend(run(2, 3_000, 2_200, identity(2, 2)));
    assert_eq!(trace(&lines).native_overlap(false).unwrap().len(), 1);
    refused(&lines, true, "was not fully hidden");
    // On the device before the first has given it back.
    let mut lines = run(1, 1_100, 900, identity(1, 1));
    lines.extend(run(2, 2_050, 1_900, identity(2, 2)));
    refused(&lines, false, "reordered before the claim release");
    // Sent in another order than they ran in.
    let mut lines = run(1, 1_100, 900, identity(2, 1));
    lines.extend(run(2, 2_200, 2_000, identity(1, 2)));
    refused(&lines, false, "launch order is not monotonic");
}

#[test]
fn runs_that_cannot_be_told_apart_or_are_incomplete_prove_nothing() {
    refused(&[], false, "need at least two complete native runs");
    refused(&run(1, 1_100, 900, identity(1, 1)), false, "need at least two complete native runs");
    let with = |attrs: &str| {
        let mut lines = pipelined();
        lines.extend(run(4, 4_400, 4_200, attrs.to_owned()));
        lines
    };
    refused(
        &with("run_id=1 dispatch_id=4"),
        false,
        "missing identity field(s) run_epoch, slot_id, generation",
    );
    let wrong = "run_id=1 dispatch_id=four run_epoch=4 slot_id=0 generation=4";
    refused(&with(wrong), false, "non-integer identity dispatch_id=four");
    refused(&with(&identity(3, 3)), false, "duplicate identity");
    for leaf in ["bind", "runner_run", "claim_release"] {
        let lines: Vec<_> = pipelined()
            .into_iter()
            .filter(|line| line.inv != 2 || line.name != format!("chip.run.{leaf}"))
            .collect();
        refused(&lines, false, &format!("is missing span(s) {leaf}"));
    }
}

#[test]
fn the_claim_release_is_a_child_of_the_run_and_takes_nothing_from_it() {
    let trace = trace(&pipelined());
    for invocation in trace.invocations() {
        let release = invocation.stage(&trace, Stage::ClaimRelease).unwrap();
        assert_eq!(trace.depth(release), 1);
        assert_eq!(invocation.root_span(&trace).unwrap().dur, 1_530);
    }
    let callables = trace.callables();
    assert_eq!(callables[0].roots[0].stats.mean_ns, 1_530);
    assert_eq!(callables[0].stage("claim_release").unwrap().stats.n, 3);
    let tree = trace.call_tree(&callables[0]);
    let [root] = &tree.roots[..] else { panic!("one root") };
    assert!(root.children.iter().any(|child| &*child.leaf == "claim_release"));
}
