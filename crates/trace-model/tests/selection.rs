//! A part of a log: which invocations are in it, and what it still says of the whole.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod log;

use log::{Line, add, anchor, device, run, span, trace};
use proptest::prelude::*;
use simpler_trace_model::{
    Criterion, Label, NothingLeft, Selected, Selection, Trace, TraceBuilder, WallTime, decode_tie,
};

fn wall(text: &str) -> Option<WallTime> {
    Some(text.parse().unwrap())
}

/// The invs that are left, by pid.
fn invs(trace: &Trace) -> Vec<(u64, u64)> {
    let of = |invocation| trace.life_of(invocation).pid;
    trace.invocations().iter().map(|invocation| (of(invocation), invocation.inv)).collect()
}

fn of(pid: u64, hid: u64, lines: Vec<Line>) -> Vec<Line> {
    lines.into_iter().map(|line| Line { pid, tid: pid, hid, ..line }).collect()
}

fn anchored(anchors: &[(u64, i64, i64)], lines: &[Line]) -> Trace {
    let mut builder = TraceBuilder::new();
    for &(pid, mono_ns, wall_ns) in anchors {
        builder.anchor(anchor(pid, mono_ns, wall_ns));
    }
    for line in lines {
        add(&mut builder, line);
    }
    builder.finish()
}

fn select(trace: Trace, selection: &Selection) -> Selected {
    trace.select(selection).map_err(|nothing| format!("{nothing:?}")).unwrap()
}

#[test]
fn the_first_runs_of_each_callable_in_each_process_are_skipped_by_their_start() {
    // Number 3 ran before number 1.
    let lines = [
        of(41, 0xa, [run(1, 9_000), run(2, 12_000), run(3, 5_000)].concat()),
        of(42, 0xa, [run(1, 1_000), run(2, 3_000)].concat()),
        of(41, 0xb, [run(4, 20_000), run(5, 22_000)].concat()),
        vec![span(9, 0, "chip.prewarm.build", 0, 900)],
    ]
    .concat();
    let selected = select(trace(&lines), &Selection { skip_first: 1, ..Selection::default() });
    assert_eq!(invs(&selected.trace), [(41, 1), (41, 2), (41, 5), (41, 9), (42, 2)]);
    assert_eq!(selected.left_out, [(Criterion::SkipFirst, 3)]);
    let callables = selected.trace.callables();
    let a =
        callables.iter().find(|callable| callable.hid == 0xa && callable.label != Label::Prewarm).unwrap();
    assert_eq!((a.roots[0].stats.n, a.stage("bind").unwrap().stats.n), (3, 3));
}

#[test]
fn a_run_that_lost_its_root_is_placed_by_its_earliest_host_span() {
    let rootless: Vec<Line> = run(1, 1_000).into_iter().filter(|line| line.depth > 0).collect();
    let lines = [rootless, run(2, 3_000)].concat();
    let skipped = select(trace(&lines), &Selection { skip_first: 1, ..Selection::default() });
    assert_eq!(invs(&skipped.trace), [(41, 2)]);
    // It starts at 1010: the anchor makes that 1.00000000 s.
    let at = |since| Selection { since: wall(since), ..Selection::default() };
    let log = || anchored(&[(41, 10, 999_999_000)], &lines);
    assert_eq!(invs(&select(log(), &at("1")).trace), [(41, 1), (41, 2)]);
    assert_eq!(invs(&select(log(), &at("1.000000001")).trace), [(41, 2)]);
}

#[test]
fn a_time_window_holds_its_start_and_not_its_end() {
    let lines = [run(1, 1_000), run(2, 3_000), run(3, 5_000)].concat();
    let log = || anchored(&[(41, 0, 1_790_000_000_000_000_000)], &lines);
    let between = |since: &str, until: &str| {
        let selection = Selection { since: wall(since), until: wall(until), ..Selection::default() };
        invs(&select(log(), &selection).trace)
    };
    assert_eq!(between("1790000000.000003", "1790000000.000005"), [(41, 2)]);
    assert_eq!(between("1790000000.000003", "1790000000.000005001"), [(41, 2), (41, 3)]);
    assert_eq!(between("2026-09-21T14:13:20.000003001Z", "9999-01-01T00:00:00Z"), [(41, 3)]);
    assert_eq!(between("0000-01-01T00:00:00Z", "2026-09-21T16:13:20.000003+02:00"), [(41, 1)]);
}

#[test]
fn what_has_no_wall_time_is_left_out_and_counted() {
    // 42 has no anchor; 41 took its own after the first run.
    let lines = [run(1, 1_000), run(2, 3_000), of(42, 0xa, run(1, 3_000))].concat();
    let selection = Selection { since: wall("0"), ..Selection::default() };
    let selected = select(anchored(&[(41, 2_000, 5_000)], &lines), &selection);
    assert_eq!(invs(&selected.trace), [(41, 2)]);
    assert_eq!(selected.left_out, [(Criterion::WallTime, 2)]);
    let nothing = trace(&lines).select(&selection).err().unwrap();
    assert_eq!((nothing.criterion, nothing.starts_wall_ns), (Criterion::WallTime, None));
}

#[test]
fn overlapping_is_more_than_a_touching_end() {
    // 1000..2000, 3000..4000, 5000..6000
    let lines = [run(1, 1_000), run(2, 3_000), run(3, 5_000)].concat();
    let overlapping = |window| {
        let selection = Selection { overlapping: Some(window), ..Selection::default() };
        trace(&lines).select(&selection).map(|selected| invs(&selected.trace))
    };
    assert_eq!(overlapping(2_000..3_001).unwrap(), [(41, 2)]);
    assert_eq!(overlapping(1_999..5_000).unwrap(), [(41, 1), (41, 2)]);
    assert_eq!(overlapping(3_500..3_500).unwrap(), [(41, 2)], "an instant within");
    assert_eq!(
        overlapping(2_000..3_000).unwrap_err(),
        NothingLeft {
            criterion: Criterion::Overlapping,
            monotonic_ns: Some(1_000..6_000),
            starts_wall_ns: None
        }
    );
}

#[test]
fn what_runs_beside_the_invocations_is_asked_for_its_time_alone() {
    let lines = [
        run(1, 1_000),
        run(2, 3_000),
        vec![
            span(0, 0, "node.submit", 1_100, 10),
            span(0, 0, "ext.app.load", 3_100, 10),
            device(0, 0, "ext.app.kernel", 3_100, 10, 3_100),
        ],
    ]
    .concat();
    let outside = |selection: &Selection| {
        let trace = select(anchored(&[(41, 0, 0)], &lines), selection).trace;
        let spans = trace.spans().iter().filter(|span| !trace.is_grouped(span));
        spans.map(|span| trace.name(span).text.to_string()).collect::<Vec<String>>()
    };
    let all = Selection::default();
    assert_eq!(outside(&Selection { skip_first: 1, ..all.clone() }).len(), 3);
    assert_eq!(outside(&Selection { since: wall("0.000003"), ..all.clone() }), ["ext.app.load"]);
    assert_eq!(outside(&Selection { until: wall("0.000003"), ..all.clone() }), ["node.submit"]);
    assert_eq!(outside(&Selection { overlapping: Some(1_000..2_000), ..all }), ["node.submit"]);
}

#[test]
fn a_log_without_invocations_is_selected_by_its_other_spans() {
    let lines = [span(0, 0, "ext.app.load", 1_000, 10), span(0, 0, "ext.app.load", 2_000, 10)];
    let log = || anchored(&[(41, 0, 0)], &lines);
    let from = |since| Selection { since: wall(since), ..Selection::default() };
    assert_eq!(select(log(), &from("0.000001001")).trace.producers()[0].spans, 1);
    let nothing = log().select(&from("1")).err().unwrap();
    assert_eq!((nothing.criterion, nothing.starts_wall_ns), (Criterion::Since, Some((1_000, 2_000))));
    assert_eq!(select(log(), &Selection { skip_first: 7, ..Selection::default() }).trace.spans().len(), 2);
}

#[test]
fn the_criterion_that_left_nothing_is_told() {
    let log =
        || anchored(&[(41, 0, 0)], &[run(1, 1_000), run(2, 3_000), of(41, 0xb, run(3, 5_000))].concat());
    let all = Selection::default();
    let nothing = |selection: Selection| log().select(&selection).err().unwrap().criterion;
    assert_eq!(nothing(Selection { since: wall("1"), skip_first: 9, ..all.clone() }), Criterion::Since);
    assert_eq!(
        nothing(Selection { since: wall("0.000002"), until: wall("0.000003"), ..all.clone() }),
        Criterion::Until
    );
    assert_eq!(nothing(Selection { hids: vec![0xb], skip_first: 1, ..all.clone() }), Criterion::SkipFirst);
    assert_eq!(nothing(Selection { hids: vec![0xc], ..all }), Criterion::Hid);
}

#[test]
fn parts_ties_and_losses_are_those_of_the_whole_log() {
    // Prefill runs once in each of two processes, decode three times in one.
    let rootless: Vec<Line> = run(9, 90_000).into_iter().filter(|line| line.depth > 0).collect();
    let prefill = [of(41, 0xa, run(1, 1_000)), of(42, 0xa, run(1, 1_000))].concat();
    let decode = of(41, 0xb, [run(2, 3_000), run(3, 5_000), run(4, 7_000)].concat());
    let lines = [prefill, decode, of(43, 0xc, rootless)].concat();
    assert!(trace(&lines).is_lossy());
    let spans = trace(&lines).spans().len();
    let only = |hid| select(trace(&lines), &Selection { hids: vec![hid], ..Selection::default() }).trace;
    let callables = only(0xa).callables();
    assert_eq!(
        (callables.len(), callables[0].label),
        (1, Label::Prefill),
        "though it is the most invoked here"
    );
    let b = only(0xb);
    assert_eq!(b.callables()[0].label, Label::Decode);
    assert!(b.is_lossy() && b.is_selected());
    assert_eq!((b.invocations_in_log(), b.invocations().len()), (6, 3));
    assert_eq!((b.spans_in_log(), b.spans().len()), (spans, 18));
    assert!(b.is_left_out(42, 1) && !b.is_left_out(41, 2) && !b.is_left_out(41, 77));

    // Two callables share the place of the most invoked, and still do where one has lost its first.
    let tied = [
        of(41, 0xa, [run(1, 1_000), run(2, 3_000)].concat()),
        of(41, 0xb, [run(3, 5_000), run(4, 7_000)].concat()),
    ];
    let selection = Selection { overlapping: Some(2_500..9_000), ..Selection::default() };
    let part = select(trace(&tied.concat()), &selection).trace;
    let callables = part.callables();
    assert_eq!(callables.iter().map(|one| one.invocations.len()).collect::<Vec<_>>(), [2, 1]);
    assert_eq!(decode_tie(&callables).len(), 2);
    assert!(callables.iter().all(|one| one.label == Label::None));
}

#[test]
fn a_part_of_a_part_knows_the_whole() {
    let lines = [run(1, 1_000), run(2, 3_000), run(3, 5_000)].concat();
    let one = Selection { skip_first: 1, ..Selection::default() };
    let part = select(select(trace(&lines), &one).trace, &one).trace;
    assert_eq!(invs(&part), [(41, 3)]);
    assert_eq!(part.invocations_in_log(), 3);
    assert!(part.is_left_out(41, 1) && part.is_left_out(41, 2));
}

#[test]
fn a_given_name_goes_before_the_part_that_a_callable_plays() {
    let mut trace =
        trace(&[vec![span(0, 0, "chip.prewarm.build", 0, 900)], run(1, 1_000), run(2, 3_000)].concat());
    trace.name_callable(0xa, "ffn");
    trace.name_callable(0xa, "attention");
    let labels: Vec<String> = trace.callables().iter().map(|callable| callable.display_label()).collect();
    assert_eq!(labels, ["attention", "prewarm"]);
    assert_eq!(trace.callables()[0].label, Label::Decode);
}

#[test]
fn a_tie_that_names_have_settled_is_none() {
    let lines = [
        of(41, 0xa, [run(1, 1_000), run(2, 3_000)].concat()),
        of(41, 0xb, [run(3, 5_000), run(4, 7_000)].concat()),
    ];
    let mut trace = trace(&lines.concat());
    trace.name_callable(0xa, "decode");
    assert!(decode_tie(&trace.callables()).is_empty());
}

fn any_line() -> impl Strategy<Value = Line> {
    let name = prop::sample::select(vec![
        "simpler_run",
        "simpler_run.bind",
        "simpler_run.runner_run.device_wall.orch",
        "node.submit",
        "ext.app.load",
        "chip.prewarm.build",
        "mystery",
    ]);
    let attrs = prop::sample::select(vec!["", "clk=dev", "run_id=1"]);
    // Far from a span's end, the time of its record is held elsewhere.
    let mono_ns = prop_oneof![Just(None), (0..200i64).prop_map(Some), Just(Some(i64::MAX))];
    let time = prop_oneof![0..100i64, Just(i64::MAX)];
    (40..43u64, 0..4u64, 0xa..0xdu64, 0..3u32, name, attrs, time.clone(), time, mono_ns).prop_map(
        |(pid, inv, hid, depth, name, attrs, ts, dur, mono_ns)| Line {
            pid,
            tid: pid,
            hid,
            attrs,
            mono_ns,
            ..span(inv, depth, name, ts, dur)
        },
    )
}

/// All that can be told of an invocation, wherever its spans are.
fn told(trace: &Trace) -> Vec<String> {
    let invocations = trace.invocations().iter();
    invocations
        .map(|invocation| {
            let spans: Vec<_> = trace
                .span_indices(invocation)
                .iter()
                .map(|&index| {
                    let span = &trace.spans()[index as usize];
                    (span.ts, span.dur, &trace.name(span).text, trace.mono_ns(index), trace.thread(span))
                })
                .collect();
            let root = invocation.root_span(trace).map(|root| (root.ts, root.dur, trace.name_id(root)));
            format!("{} {} {:x} {root:?} {spans:?}", invocation.life, invocation.inv, invocation.hid)
        })
        .collect()
}

proptest! {
    #[test]
    fn everything_selected_is_the_whole_log(lines in prop::collection::vec(any_line(), 1..60)) {
        let (whole, log) = (trace(&lines), trace(&lines));
        let hids = log.hids();
        for selection in [
            Selection::default(),
            Selection { hids, ..Selection::default() },
            Selection { overlapping: Some(i64::MIN..i64::MAX), ..Selection::default() },
        ] {
            let times = selection.overlapping.is_some();
            let Ok(selected) = trace(&lines).select(&selection) else {
                // Only what has no host time at all can be left out.
                prop_assert!(times);
                continue;
            };
            if !times || selected.trace.spans().len() == whole.spans().len() {
                prop_assert_eq!(told(&selected.trace), told(&whole));
                prop_assert_eq!(
                    format!("{:?}", selected.trace.callables()),
                    format!("{:?}", whole.callables())
                );
                prop_assert!(selected.left_out.is_empty());
            }
        }
    }

    #[test]
    fn skipping_the_first_leaves_the_others_as_they_were(
        lines in prop::collection::vec(any_line(), 1..60),
        skip_first in 1..3u64,
    ) {
        let whole = trace(&lines);
        let mut runs: std::collections::BTreeMap<(u32, u64), u64> = Default::default();
        let mut setup = 0;
        for invocation in whole.invocations() {
            match invocation.kind {
                simpler_trace_model::Kind::Prewarm => setup += 1,
                _ => *runs.entry((invocation.life, invocation.hid)).or_default() += 1,
            }
        }
        let want = setup + runs.values().map(|n| n.saturating_sub(skip_first)).sum::<u64>();
        match trace(&lines).select(&Selection { skip_first, ..Selection::default() }) {
            Ok(Selected { trace: part, left_out }) => {
                prop_assert_eq!(part.invocations().len() as u64, want);
                let counted: usize = left_out.iter().map(|(_, n)| n).sum();
                prop_assert_eq!(part.invocations().len() + counted, whole.invocations().len());
                let all = told(&whole);
                prop_assert!(told(&part).iter().all(|one| all.contains(one)));
                let outside = |trace: &Trace| trace.spans().iter().filter(|span| !trace.is_grouped(span)).count();
                prop_assert_eq!(outside(&part), outside(&whole));
                prop_assert_eq!(part.is_lossy(), whole.is_lossy());
            }
            Err(nothing) => {
                prop_assert_eq!(want, 0);
                prop_assert_eq!(nothing.criterion, Criterion::SkipFirst);
            }
        }
    }
}
