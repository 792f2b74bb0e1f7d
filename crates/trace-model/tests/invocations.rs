//! What is one invocation, what is one process life, and what is one record twice.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod log;

use log::{Line, add, anchor, device, run, span, trace};
use simpler_trace_model::{Admission, Kind, Stage, TraceBuilder};

fn in_pid(lines: Vec<Line>, pid: u64) -> Vec<Line> {
    lines.into_iter().map(|line| Line { pid, tid: pid, ..line }).collect()
}

#[test]
fn one_number_used_again_is_another_invocation() {
    let lines = [run(1, 1_000), run(1, 10_000), run(1, 20_000)].concat();
    let trace = trace(&lines);
    assert_eq!(trace.invocations().len(), 3);
    for (invocation, start) in trace.invocations().iter().zip([1_000, 10_000, 20_000]) {
        assert_eq!(trace.spans_of(invocation).count(), 6);
        assert_eq!(invocation.root_span(&trace).unwrap().ts, start);
        assert_eq!(invocation.effective_ns(&trace), Some(550));
    }
}

#[test]
fn numbers_that_come_in_any_order_and_in_turns_are_each_one_invocation() {
    // 9 to 12 ascend with a gap; 4 and 2 come late, and all of them again.
    let order = [9, 10, 12, 4, 2, 9, 2, 12, 4, 10];
    let lines: Vec<Line> = order
        .iter()
        .zip(0..)
        .map(|(&inv, at)| {
            if at < 5 {
                span(inv, 1, "simpler_run.bind", at * 100 + 10, 20)
            } else {
                span(
                    inv,
                    0,
                    "simpler_run",
                    (order[..5].iter().position(|&one| one == inv).unwrap() * 100) as i64,
                    90,
                )
            }
        })
        .collect();
    let trace = trace(&lines);
    let found: Vec<(u64, usize, bool)> = trace
        .invocations()
        .iter()
        .map(|one| (one.inv, trace.spans_of(one).count(), one.root_span(&trace).is_some()))
        .collect();
    assert_eq!(found, [2, 4, 9, 10, 12].map(|inv| (inv, 2, true)));
}

#[test]
fn scheduler_spans_under_the_number_of_a_run_are_no_part_of_it() {
    let mut lines = run(1, 1_000);
    lines.insert(3, span(1, 0, "node.submit", 1_100, 50));
    lines.push(span(1, 1, "ext.app.load", 1_200, 50));
    let trace = trace(&lines);
    assert_eq!(trace.invocations().len(), 1);
    let invocation = &trace.invocations()[0];
    assert_eq!(invocation.root_span(&trace).unwrap().ts, 1_000);
    let indices: Vec<u32> = trace.span_indices(invocation).to_vec();
    assert_eq!(indices, [0, 1, 2, 4, 5, 6]);
}

#[test]
fn touching_roots_are_two_and_overlapping_ones_are_one() {
    let roots = |second| trace(&[span(1, 0, "simpler_run", 0, 100), span(1, 0, "simpler_run", second, 100)]);
    assert_eq!(roots(100).invocations().len(), 2);
    assert_eq!(roots(99).invocations().len(), 1);
}

#[test]
fn device_spans_follow_their_records_where_the_number_is_used_again() {
    // The second run's device spans stand before its root, with no envelope to tell their time.
    let mut lines = [run(1, 1_000), run(1, 10_000)].concat();
    for line in lines.iter_mut().filter(|line| line.attrs == "clk=dev") {
        line.mono_ns = None;
    }
    let trace = trace(&lines);
    for invocation in trace.invocations() {
        assert_eq!(trace.spans_of(invocation).filter(|span| trace.is_device(span)).count(), 3);
    }
}

#[test]
fn a_lost_root_between_two_others_leaves_an_invocation_without_one() {
    let mut middle = run(1, 10_000);
    middle.pop();
    let lines = [run(1, 1_000), middle, run(1, 20_000)].concat();
    let trace = trace(&lines);
    let roots: Vec<bool> =
        trace.invocations().iter().map(|invocation| invocation.root_span(&trace).is_some()).collect();
    assert_eq!(roots, [true, false, true]);
    assert!(trace.invocations().iter().all(|invocation| trace.spans_of(invocation).count() >= 5));
    assert!(trace.is_lossy());
}

#[test]
fn children_outside_a_lone_root_stay_with_it() {
    let trace = trace(&[span(1, 0, "simpler_run", 0, 10), span(1, 1, "simpler_run.bind", 50, 10)]);
    assert_eq!(trace.invocations().len(), 1);
}

#[test]
fn the_order_of_the_records_does_not_matter() {
    let mut lines = [run(1, 1_000), run(2, 2_000), in_pid(run(1, 1_000), 42)].concat();
    let want = trace(&lines).facts();
    lines.reverse();
    let mut got = trace(&lines).facts();
    got.names.reverse();
    assert_eq!(got, want);
}

#[test]
fn scheduler_and_external_spans_make_no_invocation() {
    let trace = trace(&[
        span(0, 0, "node.submit", 0, 1),
        span(0, 0, "network2.submit", 0, 1),
        span(0, 0, "ext.app.load", 0, 1),
        span(0, 0, "mystery.word", 0, 1),
        span(0, 0, "chip.prewarm.build", 5, 1),
    ]);
    let kinds: Vec<Kind> = trace.invocations().iter().map(|invocation| invocation.kind).collect();
    assert_eq!(kinds, [Kind::Other, Kind::Prewarm]);
}

#[test]
fn another_anchor_is_another_life_and_the_same_one_is_not() {
    let mut builder = TraceBuilder::new();
    let feed = |builder: &mut TraceBuilder, lines: &[Line]| {
        lines.iter().map(|line| add(builder, line)).collect::<Vec<Admission>>()
    };
    builder.anchor(anchor(41, 500, 1_000_000));
    feed(&mut builder, &run(1, 1_000));
    builder.anchor(anchor(41, 500, 1_000_000));
    feed(&mut builder, &run(2, 3_000));
    builder.anchor(anchor(41, 700, 9_000_000));
    // The new process repeats the old one's numbers, and by chance its device times.
    let second = feed(&mut builder, &run(1, 1_000));
    assert!(second.iter().all(|&admission| admission == Admission::Kept));
    let trace = builder.finish();
    assert_eq!(trace.lives().len(), 2);
    assert_eq!(trace.invocations().len(), 3);
    assert_eq!(trace.facts().wall_ns, [1_000_500, 1_002_500, 9_000_300]);
}

#[test]
fn spans_before_the_first_anchor_belong_to_its_life() {
    let mut builder = TraceBuilder::new();
    add(&mut builder, &span(1, 0, "simpler_run", 1_000, 10));
    builder.anchor(anchor(41, 500, 1_000_000));
    add(&mut builder, &span(2, 0, "simpler_run", 2_000, 10));
    let trace = builder.finish();
    assert_eq!(trace.lives().len(), 1);
    assert!(trace.pids_without_anchor().is_empty());
}

#[test]
fn a_log_with_two_lives_read_twice_has_two_lives_and_each_record_once() {
    let mut builder = TraceBuilder::new();
    for _ in 0..2 {
        builder.anchor(anchor(41, 500, 1_000_000));
        for line in &run(1, 1_000) {
            add(&mut builder, line);
        }
        builder.anchor(anchor(41, 700, 9_000_000));
        for line in &run(1, 1_000) {
            add(&mut builder, line);
        }
    }
    let trace = builder.finish();
    assert_eq!((trace.lives().len(), trace.spans().len(), trace.counts().duplicates), (2, 12, 12));
}

#[test]
fn a_record_that_differs_in_one_field_is_no_duplicate() {
    let base = span(1, 1, "simpler_run.bind", 1_000, 10);
    let others = [
        Line { pid: 42, ..base },
        Line { tid: 42, ..base },
        Line { inv: 2, ..base },
        Line { depth: 2, ..base },
        Line { name: "simpler_run.bind.args", ..base },
        Line { ts: 1_001, ..base },
        Line { dur: 11, ..base },
        Line { mono_ns: Some(2_000), ..base },
        Line { mono_ns: None, ..base },
    ];
    let mut builder = TraceBuilder::new();
    assert_eq!(add(&mut builder, &base), Admission::Kept);
    for other in &others {
        assert_eq!(add(&mut builder, other), Admission::Kept, "{other:?}");
    }
    assert_eq!(add(&mut builder, &Line { attrs: "x=1", hid: 0xb, ..base }), Admission::Duplicate);
}

#[test]
fn device_spans_without_an_envelope_are_never_duplicates() {
    let line = Line { mono_ns: None, ..device(1, 2, "simpler_run.runner_run.device_wall", 0, 700, 0) };
    let mut builder = TraceBuilder::new();
    assert_eq!(add(&mut builder, &line), Admission::Kept);
    assert_eq!(add(&mut builder, &line), Admission::Kept);
}

#[test]
fn times_after_the_record_itself_are_flagged() {
    let mut builder = TraceBuilder::new();
    let overflow = Line { ts: i64::MAX, dur: 1, mono_ns: Some(5), ..span(1, 0, "simpler_run", 0, 0) };
    let future = Line { ts: 120_000_000_000, dur: 1, mono_ns: Some(5), ..span(2, 0, "simpler_run", 0, 0) };
    assert_eq!(add(&mut builder, &overflow), Admission::Impossible);
    assert_eq!(add(&mut builder, &future), Admission::Impossible);
    let trace = builder.finish();
    assert_eq!(trace.spans()[0].end(), i64::MAX);
}

#[test]
fn the_root_of_a_run_goes_before_other_spans_of_depth_0() {
    let trace = trace(&[span(1, 0, "mystery", 0, 5), span(1, 0, "simpler_run", 2, 100)]);
    let root = trace.invocations()[0].root_span(&trace).unwrap();
    assert_eq!(trace.name(root).stage, Some(Stage::Root));
}
