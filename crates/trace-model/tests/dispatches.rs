//! Which dispatch is which run, and what cannot be told.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod log;

use log::{Line, add, span, trace};
use simpler_record_format::RawHostIdentity;
use simpler_trace_model::{Dispatches, TraceBuilder};

const CALLABLE: u64 = 0xa;

/// What a parent says of a hand-over at `ts` that takes 20 ns, and of the return; a run of 1000 ns in between.
fn dispatch(parent: u64, worker: u64, run_id: u64, number: u64, ts: i64) -> [Line; 2] {
    let attrs: &'static str =
        format!("run_id={run_id} task_slot=1 worker_id={worker} dispatch_id={number} role=worker").leak();
    let line = |name, ts, dur| Line { pid: parent, tid: parent, attrs, ..span(run_id, 0, name, ts, dur) };
    [line("node.dispatch", ts, 20), line("node.complete", ts + 1_100, 5)]
}

/// The child's run of it, which begins 30 ns after the dispatch.
fn root(child: u64, inv: u64, run_id: u64, number: u64, dispatched: i64) -> Line {
    let attrs: &'static str =
        format!("run_id={run_id} dispatch_id={number} slot_id=0 generation={inv} run_epoch={inv}").leak();
    Line { pid: child, tid: child, attrs, ..span(inv, 0, "simpler_run", dispatched + 30, 1_000) }
}

fn dispatches(lines: &[Line]) -> Dispatches {
    trace(lines).dispatches()
}

/// Joined, unmatched and ambiguous dispatches, then roots of the last two.
fn counts(of: &Dispatches) -> (usize, [usize; 2], [usize; 2]) {
    (
        of.joined.len(),
        [of.unmatched_dispatches, of.ambiguous_dispatches],
        [of.unmatched_roots, of.ambiguous_roots],
    )
}

#[test]
fn a_dispatch_and_a_root_of_the_same_identity_are_one() {
    let mut lines = Vec::new();
    for (number, worker) in [(1, 0), (2, 1), (3, 0)] {
        let ts = number as i64 * 10_000;
        lines.extend(dispatch(40, worker, number, number, ts));
        lines.push(root(41 + worker, number, number, number, ts));
    }
    // Whatever the order of the records.
    lines.reverse();
    let found = dispatches(&lines);
    assert_eq!(counts(&found), (3, [0, 0], [0, 0]));
    let first = &found.joined[0];
    assert_eq!(
        (first.start_ns, first.hand_over_ns, first.root_ns, first.return_ns),
        (10_000, 30, 1_000, Some(70))
    );
    assert_eq!((first.worker_id, first.task_slot, first.inv, first.hid), (Some(0), Some(1), 1, CALLABLE));
    let links: Vec<_> = found.links.iter().map(|link| (link.worker_id, link.hand_over.n)).collect();
    assert_eq!(links, [(Some(0), 2), (Some(1), 1)]);
    assert_eq!(found.links[0].returned.as_ref().unwrap().mean_ns, 70);
}

#[test]
fn what_has_no_counterpart_is_counted() {
    let mut lines: Vec<Line> = dispatch(40, 0, 1, 1, 10_000).to_vec();
    lines.push(root(41, 2, 2, 2, 20_000));
    // No identity: none at all, a part of one, no dispatch's.
    lines.push(span(3, 0, "simpler_run", 30_000, 10));
    lines.push(Line { attrs: "run_id=3", ..span(4, 0, "simpler_run", 40_000, 10) });
    lines.push(Line { attrs: "run_id=3 dispatch_id=0", ..span(5, 0, "simpler_run", 50_000, 10) });
    lines.push(Line { attrs: "run_id=3", ..span(3, 0, "node.dispatch", 30_000, 10) });
    let found = dispatches(&lines);
    assert_eq!(counts(&found), (0, [1, 0], [1, 0]));
    assert_eq!((found.roots_without_identity, found.dispatches_without_identity), (3, 1));
}

#[test]
fn dispatches_of_the_same_identity_at_the_same_time_are_not_guessed() {
    // Two parents that count from 1, of the same callable.
    let mut lines = Vec::new();
    for parent in [40, 50] {
        lines.extend(dispatch(parent, 0, 1, 1, 10_000 + parent as i64));
        lines.push(root(parent + 1, 1, 1, 1, 10_000 + parent as i64));
    }
    assert_eq!(counts(&dispatches(&lines)), (0, [0, 2], [0, 2]));
    // Their callables tell them apart.
    for line in &mut lines {
        line.hid = if line.pid < 50 { 0xa } else { 0xb };
    }
    assert_eq!(counts(&dispatches(&lines)), (2, [0, 0], [0, 0]));
    // One dispatch, and two that say that they are of it.
    let mut lines: Vec<Line> = dispatch(40, 0, 1, 1, 10_000).to_vec();
    lines.extend([root(41, 1, 1, 1, 10_000), root(42, 1, 1, 1, 10_000)]);
    assert_eq!(counts(&dispatches(&lines)), (0, [0, 1], [0, 2]));
}

#[test]
fn a_number_that_is_used_again_later_is_another_dispatch() {
    let mut lines = Vec::new();
    for (parent, ts) in [(40, 10_000), (50, 20_000)] {
        lines.extend(dispatch(parent, 0, 1, 1, ts));
        lines.push(root(parent + 1, 1, 1, 1, ts));
    }
    let found = dispatches(&lines);
    assert_eq!(counts(&found), (2, [0, 0], [0, 0]));
    assert!(found.joined.iter().all(|one| (one.hand_over_ns, one.return_ns) == (30, Some(70))));
    // Without its end the first may reach into the second.
    let lines: Vec<Line> =
        lines.into_iter().filter(|line| (line.pid, line.name) != (40, "node.complete")).collect();
    assert_eq!(counts(&dispatches(&lines)), (0, [0, 2], [0, 2]));
}

#[test]
fn a_root_before_its_dispatch_is_not_of_it() {
    let mut lines: Vec<Line> = dispatch(40, 0, 1, 1, 10_000).to_vec();
    lines.push(root(41, 1, 1, 1, 9_000));
    assert_eq!(counts(&dispatches(&lines)), (0, [1, 0], [1, 0]));
}

#[test]
fn two_sides_that_number_callables_differently_are_joined_without() {
    let mut lines: Vec<Line> = dispatch(40, 0, 1, 1, 10_000).to_vec();
    lines.push(Line { hid: 0, ..root(41, 1, 1, 1, 10_000) });
    assert_eq!(counts(&dispatches(&lines)), (1, [0, 0], [0, 0]));
}

#[test]
fn the_frame_and_the_activation_are_parts_of_the_hand_over() {
    let [whole, complete] = dispatch(40, 0, 1, 1, 10_000);
    let frame = Line { name: "node.frame_submit", ts: 10_005, dur: 10, ..whole };
    let activate = Line { name: "node.activate", ts: 10_400, dur: 10, ..whole };
    let run = root(41, 1, 1, 1, 10_000);
    let found = dispatches(&[whole, frame, activate, complete, run]);
    assert_eq!((counts(&found), found.joined[0].activate_ns), ((1, [0, 0], [0, 0]), Some(400)));
    assert_eq!((found.joined[0].hand_over_ns, found.joined[0].return_ns), (30, Some(70)));
    // The frame alone, where the dispatch is lost; and nothing, where only the return is left.
    let found = dispatches(&[frame, complete, run]);
    assert_eq!((counts(&found), found.joined[0].hand_over_ns), ((1, [0, 0], [0, 0]), 25));
    assert_eq!(counts(&dispatches(&[complete, run])), (0, [0, 0], [1, 0]));
}

#[test]
fn hosts_have_clocks_of_their_own() {
    // On two; nobody says on which, where there are two; on one.
    for (identified, joined) in [([(40, 1), (41, 2)], 0), ([(7, 1), (9, 2)], 0), ([(40, 1), (41, 1)], 1)] {
        let mut builder = TraceBuilder::new();
        for (pid, host) in identified {
            builder.host_identity(&RawHostIdentity { pid, host, name: b"h" });
        }
        for line in dispatch(40, 0, 1, 1, 10_000).iter().chain([&root(41, 1, 1, 1, 10_000)]) {
            add(&mut builder, line);
        }
        let apart = 1 - joined;
        assert_eq!(counts(&builder.finish().dispatches()), (joined, [apart, 0], [apart, 0]));
    }
}

#[test]
fn levels_above_the_node_dispatch_to_no_chip() {
    let mut lines: Vec<Line> = dispatch(40, 0, 1, 1, 10_000).to_vec();
    lines.extend(dispatch(39, 0, 1, 1, 10_000).map(|line| Line { name: "network1.dispatch", ..line }));
    lines.push(root(41, 1, 1, 1, 10_000));
    assert_eq!(counts(&dispatches(&lines)), (1, [0, 0], [0, 0]));
}
