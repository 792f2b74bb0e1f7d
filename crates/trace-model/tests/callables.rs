//! Callables and their labels, stages, rounds, trees, warnings.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod log;

use log::{Line, add, anchor, device, run, span, trace};
use simpler_record_format::DropReport;
use simpler_trace_model::{Label, Node, Stats, Trace, TraceBuilder, decode_tie, parents, warnings};

fn of_callable(lines: Vec<Line>, hid: u64, pid: u64) -> Vec<Line> {
    lines.into_iter().map(|line| Line { hid, pid, tid: pid, ..line }).collect()
}

fn labels(trace: &Trace) -> Vec<(u64, Label)> {
    trace.callables().iter().map(|callable| (callable.hid, callable.label)).collect()
}

#[test]
fn the_most_invoked_is_decode_and_once_on_each_chip_is_prefill() {
    let mut lines = Vec::new();
    for pid in [41, 42] {
        lines.extend(of_callable(run(1, 1_000), 0xa, pid));
        for inv in 2..5 {
            lines.extend(of_callable(run(inv, 10_000 * inv as i64), 0xb, pid));
        }
    }
    let trace = trace(&lines);
    assert_eq!(labels(&trace), [(0xb, Label::Decode), (0xa, Label::Prefill)]);
    assert!(decode_tie(&trace.callables()).is_empty());
}

#[test]
fn a_tie_makes_no_decode_and_is_said() {
    let mut lines = Vec::new();
    for inv in 1..5 {
        lines.extend(of_callable(run(inv, 10_000 * inv as i64), 0xa + inv % 2, 41));
    }
    let trace = trace(&lines);
    assert!(labels(&trace).iter().all(|&(_, label)| label == Label::None));
    let callables = trace.callables();
    let hids: Vec<u64> = decode_tie(&callables).iter().map(|callable| callable.hid).collect();
    assert_eq!(hids, [0xb, 0xa]);
    assert_eq!(callables[0].display_label(), "b");
}

#[test]
fn setup_is_no_run_of_the_callable_whose_hid_it_carries() {
    let lines = [vec![span(0, 0, "chip.prewarm.build", 0, 900)], run(1, 1_000), run(2, 3_000)].concat();
    let trace = trace(&lines);
    assert_eq!(labels(&trace), [(0xa, Label::Decode), (0xa, Label::Prewarm)]);
    assert_eq!(trace.callables()[0].roots[0].stats.mean_ns, 1000);
    assert_eq!(trace.facts().root.unwrap().n, 2);
}

#[test]
fn stages_are_counted_once_an_invocation_and_the_earliest_counts() {
    let lines = [run(1, 1_000), vec![span(1, 1, "simpler_run.bind", 1_500, 7)]].concat();
    let callables = trace(&lines).callables_with_ranks();
    let bind = callables[0].stage("bind").unwrap();
    assert_eq!(bind.stats, Stats::of(&mut [90]).unwrap());
    assert!(callables[0].stage("runner_run.device_wall").unwrap().device);
}

#[test]
fn a_callable_that_lost_all_its_roots_says_so() {
    let lines: Vec<Line> = run(1, 1_000).into_iter().filter(|line| line.depth > 0).collect();
    let callables = trace(&lines).callables();
    assert!(callables[0].roots.is_empty());
    assert_eq!((callables[0].missing_roots, &*callables[0].root_name), (1, "simpler_run"));
    assert_eq!(callables[0].effective_mean_ns, Some(550));
}

#[test]
fn the_parent_is_the_longest_dotted_prefix_one_level_up_and_not_the_last_span_there() {
    let trace = trace(&run(1, 1_000));
    let spans: Vec<_> = trace.spans().iter().collect();
    // bind, runner_run, device_wall, orch, sched, root
    assert_eq!(parents(&trace, &spans), [Some(5), Some(5), Some(1), Some(2), Some(2), None]);
}

#[test]
fn a_name_that_tells_nothing_goes_to_the_last_span_one_level_up() {
    let trace = trace(&[
        span(1, 1, "alpha", 0, 1),
        span(1, 1, "beta", 2, 1),
        span(1, 2, "gamma", 2, 1),
        span(1, 3, "delta", 2, 1),
        span(1, 5, "lost", 2, 1),
        span(1, 0, "top", 0, 10),
    ]);
    let spans: Vec<_> = trace.spans().iter().collect();
    assert_eq!(parents(&trace, &spans), [Some(5), Some(5), Some(1), Some(2), None, None]);
    assert_eq!(trace.facts().orphans, 1);
}

#[test]
fn a_name_that_occurs_twice_is_matched_in_emission_order() {
    let trace = trace(&[
        span(1, 2, "top.step.load", 0, 1),
        span(1, 1, "top.step", 0, 2),
        span(1, 2, "top.step.load", 3, 1),
        span(1, 1, "top.step", 3, 2),
        span(1, 0, "top", 0, 10),
    ]);
    let spans: Vec<_> = trace.spans().iter().collect();
    assert_eq!(parents(&trace, &spans), [Some(1), Some(4), Some(3), Some(4), None]);
}

#[test]
fn the_tree_has_medians_and_orders_siblings_by_start() {
    let slow = [span(2, 0, "simpler_run", 5_000, 3_000), span(2, 1, "simpler_run.validate", 5_001, 4)];
    let trace = trace(&[run(1, 1_000), slow.to_vec()].concat());
    let tree = trace.call_tree(&trace.callables()[0]);
    let [root] = &tree.roots[..] else { panic!("{tree:?}") };
    assert_eq!((root.median_ns, root.n), (2000.0, 2));
    let leaves = |node: &Node| node.children.iter().map(|child| child.leaf.to_string()).collect::<Vec<_>>();
    assert_eq!(leaves(root), ["validate", "bind", "runner_run"]);
    assert_eq!(leaves(&root.children[2].children[0]), ["orch", "sched"]);
}

#[test]
fn a_tree_of_any_claimed_depth_is_drawn_whole() {
    let names: Vec<&'static str> =
        (0..3000).map(|n| &*Box::leak(format!("level{n}").into_boxed_str())).collect();
    let lines: Vec<Line> =
        names.iter().enumerate().map(|(n, name)| span(1, n as u32, name, n as i64, 1)).collect();
    let trace = trace(&lines);
    let tree = trace.call_tree(&trace.callables()[0]);
    fn count(nodes: &[Node]) -> usize {
        nodes.iter().map(|node| 1 + count(&node.children)).sum()
    }
    fn levels(nodes: &[Node]) -> usize {
        nodes.iter().map(|node| 1 + levels(&node.children)).max().unwrap_or(0)
    }
    assert_eq!(count(&tree.roots), 3000);
    assert_eq!(levels(&tree.roots), 64, "it is drawn by recursion, so the depth has a bound");
}

#[test]
fn parents_that_two_invocations_disagree_about_lose_no_name() {
    let trace = trace(&[
        span(1, 0, "one", 0, 10),
        span(1, 1, "two", 1, 5),
        span(2, 0, "two", 20, 10),
        span(2, 1, "one", 21, 5),
    ]);
    let tree = trace.call_tree(&trace.callables()[0]);
    let names: usize = tree.roots.iter().map(|root| 1 + root.children.len()).sum();
    assert_eq!(names, 2);
}

#[test]
fn orchestrator_and_schedulers_make_one_window_even_apart() {
    let wall = "simpler_run.runner_run.device_wall";
    let trace = trace(&[
        span(1, 0, "simpler_run", 0, 100),
        device(1, 2, wall, 0, 90, 95),
        device(1, 3, "simpler_run.runner_run.device_wall.orch", 0, 10, 95),
        device(1, 3, "simpler_run.runner_run.device_wall.sched", 20, 10, 95),
    ]);
    assert_eq!(trace.invocations()[0].effective_ns(&trace), Some(30));
}

#[test]
fn trimmed_means_need_more_than_twenty_rounds() {
    let rounds = |n: u64| {
        let lines: Vec<Line> =
            (0..n).map(|inv| span(inv, 0, "simpler_run", 1_000 * inv as i64, 1 + inv as i64)).collect();
        let trace = trace(&lines);
        trace.rounds(&trace.callables()).unwrap()
    };
    assert_eq!(rounds(20).trimmed(|round| round.host_ns), None);
    let trimmed = rounds(21).trimmed(|round| round.host_ns).unwrap();
    assert_eq!((trimmed.mean_ns, trimmed.used, trimmed.dropped_each), (11.0, 1, 10));
    assert_eq!(rounds(21).trimmed(|round| round.device_ns), None);
}

#[test]
fn warnings_come_in_the_words_that_scripts_look_for() {
    let mut builder = TraceBuilder::new();
    builder.anchor(anchor(70, 1, 1_000));
    builder.anchor(anchor(70, 10, 3_000_001_009));
    for pid in [72, 71, 70] {
        add(&mut builder, &Line { pid, ..span(1, 0, "simpler_run", 100, 1) });
    }
    let report = |pid, total, by_reason| DropReport { pid, new: 1, total, by_reason };
    builder.drop_report(&report(71, 7, [6, 0, 1, 0]));
    builder.drop_report(&report(71, 5, [5, 0, 0, 0]));
    builder.drop_report(&report(72, 0, [3, 0, 0, 0]));
    builder.counts_mut().damaged_anchors = 1;
    builder.counts_mut().damaged_drop_reports = 2;
    builder.counts_mut().heads = 5;
    builder.counts_mut().torn = 2;
    let warnings = warnings(&builder.finish());
    let wanted = [
        "warning: multiple [CLOCK_ANCHOR] records found for pid 70 (2 records); ",
        "warning: no [CLOCK_ANCHOR] record for pid(s) 71, 72 that emitted spans;",
        "warning: 1 [CLOCK_ANCHOR] record(s) are damaged;",
        "warning: 2 of 5 [STRACE] records are incomplete and are excluded from the timing below",
        "warning: pid 71 dropped 7 host-log record(s) before they reached the destination (queue_full=6 \
         claim_exhausted=0 output_failed=1 not_admitted=0); the timing below is computed from an incomplete log",
        "warning: pid 72's drop reasons do not add up to its total of 0",
        "warning: 2 [HOSTLOG_DROPS] record(s) are damaged;",
    ];
    assert_eq!(warnings.len(), wanted.len(), "{warnings:#?}");
    for (warning, start) in warnings.iter().zip(wanted) {
        assert!(warning.starts_with(start), "{warning}");
    }
    assert!(warnings[0].contains("disagree by 3.000000 s"));
    assert!(warnings[1].contains("check that every input is complete"));
}

/// Each count, and each thing that a log cannot hold unless it lost something.
#[test]
fn whatever_was_lost_damaged_or_cut_makes_a_log_lossy() {
    let lossy = |damage: &dyn Fn(&mut TraceBuilder)| {
        let mut builder = TraceBuilder::new();
        for line in &run(1, 1_000) {
            add(&mut builder, line);
        }
        damage(&mut builder);
        let trace = builder.finish();
        assert_eq!(trace.facts().lossy, trace.is_lossy());
        trace.is_lossy()
    };
    assert!(!lossy(&|_| {}));
    assert!(!lossy(&|builder| builder.counts_mut().duplicates = 1));
    assert!(!lossy(&|builder| builder.counts_mut().quoted = 1));
    assert!(lossy(&|builder| builder.counts_mut().torn = 1));
    assert!(lossy(&|builder| builder.counts_mut().malformed = 1));
    assert!(lossy(&|builder| builder.counts_mut().unknown_version = 1));
    assert!(lossy(&|builder| builder.counts_mut().truncated_records = 1));
    assert!(lossy(&|builder| builder.counts_mut().truncated_fields = 1));
    assert!(lossy(&|builder| builder.counts_mut().damaged_anchors = 1));
    assert!(lossy(&|builder| builder.counts_mut().damaged_drop_reports = 1));
    assert!(lossy(&|builder| builder.counts_mut().unreadable = 1));
    let report = |total, by_reason| DropReport { pid: 41, new: 0, total, by_reason };
    assert!(!lossy(&|builder| builder.drop_report(&report(0, [0; 4]))));
    assert!(lossy(&|builder| builder.drop_report(&report(1, [0, 1, 0, 0]))));
    assert!(lossy(&|builder| builder.drop_report(&report(0, [0, 1, 0, 0]))), "it contradicts itself");
    assert!(lossy(&|builder| {
        add(builder, &span(2, 1, "simpler_run.bind", 3_000, 1));
    }));
    assert!(
        lossy(&|builder| {
            add(builder, &span(1, 3, "simpler_run.bind.pack.copy", 1_020, 1));
            add(builder, &span(1, 5, "simpler_run.bind.pack.copy.row.cell", 1_020, 1));
        }),
        "a parent is missing"
    );
}

#[test]
fn a_whole_log_has_no_warning() {
    let mut builder = TraceBuilder::new();
    builder.anchor(anchor(41, 1, 1_000));
    for line in &run(1, 1_000) {
        add(&mut builder, line);
    }
    let trace = builder.finish();
    assert_eq!(warnings(&trace), [""; 0]);
    assert!(!trace.is_lossy());
}

/// So many that they are looked at in pieces, by several threads where there are processors for them.
#[test]
fn the_figures_of_a_large_log_are_those_of_its_spans() {
    const INVOCATIONS: i64 = 6_000;
    let mut lines = Vec::new();
    for inv in 1..=INVOCATIONS {
        for pid in [41, 42, 43] {
            let mut one = run(inv as u64, 10_000 * inv);
            one[0].dur = inv;
            one[3].dur = 200 + inv % 7;
            if inv % 1_000 == 0 {
                one.pop();
            }
            lines.extend(of_callable(one, 0xa, pid));
        }
        lines.extend(of_callable(run(inv as u64, 10_000 * inv), 0xb, 44));
    }
    let trace = trace(&lines);
    assert_eq!(trace.invocations().len(), 4 * INVOCATIONS as usize);
    assert!(trace.invocations().iter().all(|one| trace.spans_of(one).count() >= 5));
    let [large, small] = &trace.callables_with_ranks()[..] else { panic!("two callables") };
    let thrice =
        |value: fn(i64) -> i64| (1..=INVOCATIONS).flat_map(|inv| [value(inv); 3]).collect::<Vec<i64>>();
    assert_eq!((large.hid, large.missing_roots), (0xa, 18));
    assert_eq!(large.roots[0].stats, Stats::of(&mut [1000; 3 * 5_994]).unwrap());
    assert_eq!(large.stage("bind").unwrap().stats, Stats::of(&mut thrice(|inv| inv)).unwrap());
    let orch = large.stage("runner_run.device_wall.orch").unwrap();
    assert!(orch.device);
    assert_eq!(orch.stats, Stats::of(&mut thrice(|inv| 200 + inv % 7)).unwrap());
    assert_eq!((large.effective_mean_ns, small.effective_mean_ns), (Some(550), Some(550)));
    assert_eq!((small.hid, small.missing_roots, small.roots[0].stats.n), (0xb, 0, 6_000));
    let invs: Vec<u64> = large.invocations.iter().map(|&at| trace.invocations()[at as usize].inv).collect();
    assert!(invs.is_sorted());
}
