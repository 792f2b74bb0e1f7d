//! Foreign producers: whose spans there are, what they sum up to, how they nest, and that they touch nothing else.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod log;

use log::{Line, run, span, trace};
use simpler_trace_model::{Node, Producer, Trace};

/// The leaves below each other, as `leaf n median`, indented.
fn outline(nodes: &[Node]) -> String {
    fn below(nodes: &[Node], depth: usize, out: &mut String) {
        for node in nodes {
            let dots = ".".repeat(depth);
            out.push_str(&format!("{dots}{} n={} {}\n", node.leaf, node.n, node.median_ns));
            below(&node.children, depth + 1, out);
        }
    }
    let mut out = String::new();
    below(nodes, 0, &mut out);
    out
}

fn the_one(trace: &Trace) -> Producer {
    let mut producers = trace.producers();
    assert_eq!(producers.len(), 1);
    producers.remove(0)
}

#[test]
fn each_producer_has_its_names_by_the_time_that_they_took() {
    let lines = [
        span(0, 0, "ext.app.load", 100, 10),
        span(0, 0, "ext.app.load", 200, 20),
        span(0, 0, "ext.app.serve", 300, 500),
        span(0, 0, "ext.lib.x.y", 900, 1),
        span(0, 0, "ext.", 950, 1),
        span(0, 0, "ext..z", 960, 1),
    ];
    let trace = trace(&lines);
    let producers = trace.producers();
    let heads: Vec<_> = producers.iter().map(|one| (one.name.as_deref(), one.spans)).collect();
    assert_eq!(heads, [(Some("app"), 3), (Some("lib"), 1), (None, 2)]);
    let app: Vec<_> = producers[0]
        .names
        .iter()
        .map(|one| (&*one.name, one.stats.n, one.stats.mean_ns, one.total_ns))
        .collect();
    assert_eq!(app, [("ext.app.serve", 1, 500, 500), ("ext.app.load", 2, 15, 30)]);
    assert!(trace.callables().is_empty());
}

#[test]
fn they_nest_by_time_and_depth_on_their_thread() {
    let request = |at: i64| {
        vec![
            span(0, 1, "ext.app.parse", at + 10, 100),
            span(0, 2, "ext.app.copy", at + 210, 50),
            span(0, 1, "ext.app.work", at + 200, 700),
            span(0, 0, "ext.app.request", at, 1000),
        ]
    };
    let mut lines = [request(0), request(5000)].concat();
    // Within the request's time, but of another thread; and on its thread, but not within its nesting.
    lines.push(Line { tid: 42, ..span(0, 1, "ext.app.elsewhere", 300, 10) });
    lines.push(span(0, 0, "ext.app.other", 5400, 10));
    // It ends after what it began in.
    lines.push(span(0, 1, "ext.app.late", 5950, 200));
    assert_eq!(
        outline(&the_one(&trace(&lines)).roots),
        "request n=2 1000\n\
         .parse n=2 100\n\
         .work n=2 700\n\
         ..copy n=2 50\n\
         other n=1 10\n\
         late n=1 200\n\
         elsewhere n=1 10\n"
    );
}

#[test]
fn a_long_row_of_spans_nests_to_its_end() {
    let lines: Vec<Line> = (0..1000)
        .flat_map(|n| [span(0, 1, "ext.app.work", 10 * n + 1, 5), span(0, 0, "ext.app.request", 10 * n, 9)])
        .collect();
    assert_eq!(outline(&the_one(&trace(&lines)).roots), "request n=1000 9\n.work n=1000 5\n");
}

#[test]
fn a_foreign_producer_below_another_keeps_its_word() {
    let lines = [span(0, 1, "ext.lib.read", 10, 5), span(0, 0, "ext.app.request", 0, 100)];
    let trace = trace(&lines);
    let producers = trace.producers();
    let app = producers.iter().find(|one| one.name.as_deref() == Some("app")).unwrap();
    assert_eq!(outline(&app.roots), "request n=1 100\n.lib.read n=1 5\n");
    let lib = producers.iter().find(|one| one.name.as_deref() == Some("lib")).unwrap();
    assert_eq!((lib.spans, lib.roots.len()), (1, 0));
}

#[test]
fn those_of_a_run_stay_out_of_it_whatever_they_carry() {
    let plain = run(1, 1_000);
    let foreign = [
        // With the run's number, within its time, at the place of a stage and of a root.
        span(1, 1, "ext.app.load", 1_010, 50),
        span(1, 0, "ext.app.whole", 1_000, 1_000),
        span(1, 7, "ext.app.deep", 1_020, 5),
    ];
    let with: Vec<Line> = foreign.iter().chain(&plain).copied().collect();
    let (without, with) = (trace(&plain), trace(&with));
    assert_eq!(with.orphans(), 0);
    assert!(!with.is_lossy());
    let trees = |trace: &Trace| trace.callables().iter().map(|one| trace.call_tree(one)).collect::<Vec<_>>();
    assert_eq!(trees(&with), trees(&without));
    assert_eq!(with.invocations().len(), 1);
    assert_eq!(outline(&the_one(&with).roots), "whole n=1 1000\n.load n=1 50\n..deep n=1 5\n");
    assert!(without.producers().is_empty());
}

#[test]
fn damage_neither_overflows_nor_recurses_without_end() {
    let mut lines: Vec<Line> =
        (0..2000).map(|at| span(0, at as u32, "ext.app.nested", at, 10_000 - 2 * at)).collect();
    lines.extend((0..3).map(|at| span(0, 0, "ext.app.endless", i64::MAX - 10 + at, i64::MAX)));
    let producer = the_one(&trace(&lines));
    assert_eq!(producer.spans, 2003);
    assert_eq!(producer.names[0].total_ns, i64::MAX);
    fn levels(nodes: &[Node]) -> usize {
        nodes.iter().map(|node| 1 + levels(&node.children)).max().unwrap_or(0)
    }
    fn spans(nodes: &[Node]) -> usize {
        nodes.iter().map(|node| node.n + spans(&node.children)).sum()
    }
    assert_eq!(levels(&producer.roots), 64);
    assert_eq!(spans(&producer.roots), 2003);
}
