//! Self times: every instant of a call is one span's.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod log;

use log::{Line, device, run, span, trace};
use proptest::prelude::*;
use simpler_trace_model::{SelfTime, SelfTimes};

fn times(lines: &[Line]) -> SelfTimes {
    let trace = trace(lines);
    let callables = trace.callables();
    assert_eq!(callables.len(), 1);
    trace.self_times(&callables[0]).unwrap()
}

/// The line of a name's last word.
fn line<'a>(times: &'a SelfTimes, leaf: &str) -> &'a SelfTime {
    let is = |line: &&SelfTime| match &line.name {
        Some(name) => name.rsplit('.').next() == Some(leaf),
        None => leaf == "Effective",
    };
    times.lines.iter().find(is).unwrap()
}

fn sum(times: &SelfTimes) -> i64 {
    times.lines.iter().map(|line| line.self_ns).sum()
}

#[test]
fn the_self_times_of_a_run_add_up_to_it() {
    let times = times(&run(1, 5_000));
    let own: Vec<_> = times.lines.iter().map(|line| (line.level, line.total_ns, line.self_ns)).collect();
    // Root, bind, runner_run, device_wall, and the window of orchestrator and schedulers.
    assert_eq!(own, [(0, 1000, 110), (1, 90, 90), (1, 800, 100), (2, 700, 150), (3, 550, 550)]);
    let effective = line(&times, "Effective");
    assert_eq!((effective.concurrent_ns, effective.device), (Some((200, 500)), true));
    assert_eq!((times.root_ns, sum(&times), times.unattributed_ns), (1000, 1000, 360));
    assert_eq!(
        (line(&times, "bind").unattributed_ns, line(&times, "runner_run").unattributed_ns),
        (None, Some(100))
    );
    let shares: f64 = times.lines.iter().map(|line| line.share_pct.unwrap()).sum();
    assert!((shares - 100.0).abs() < 1e-9, "{shares}");
}

#[test]
fn means_are_over_all_calls_with_a_root_so_that_they_add_up() {
    let mut lines = run(1, 0);
    lines.extend(run(2, 10_000).into_iter().filter(|line| line.name != "simpler_run.bind"));
    lines.extend(run(3, 20_000).into_iter().filter(|line| line.depth > 0));
    let times = times(&lines);
    assert_eq!((times.n, times.root_ns, sum(&times)), (2, 1000, 1000));
    let bind = line(&times, "bind");
    assert_eq!((bind.n, bind.total_ns, bind.self_ns), (1, 45, 45));
    assert_eq!(line(&times, "simpler_run").self_ns, 155);
}

#[test]
fn a_device_window_longer_than_its_hosts_wait_is_cut_and_said() {
    let wall = "simpler_run.runner_run.device_wall";
    let times = times(&[
        span(1, 1, "simpler_run.runner_run", 100, 800),
        device(1, 2, wall, 0, 830, 950),
        device(1, 3, "simpler_run.runner_run.device_wall.post_orch", 790, 40, 951),
        span(1, 0, "simpler_run", 0, 1000),
    ]);
    let runner = line(&times, "runner_run");
    assert_eq!((runner.self_ns, runner.overhang_ns), (0, 0));
    assert_eq!((line(&times, "device_wall").self_ns, line(&times, "device_wall").overhang_ns), (790, 30));
    assert_eq!((line(&times, "post_orch").self_ns, line(&times, "post_orch").overhang_ns), (10, 30));
    assert_eq!(sum(&times), 1000);
}

#[test]
fn siblings_that_share_time_count_it_once_for_the_one_that_began_last() {
    let times = times(&[
        span(1, 1, "simpler_run.a", 100, 300),
        span(1, 1, "simpler_run.b", 300, 200),
        span(1, 1, "simpler_run.c", 950, 100),
        span(1, 0, "simpler_run", 0, 1000),
    ]);
    let of = |leaf| {
        let line = line(&times, leaf);
        (line.self_ns, line.shared_ns, line.overhang_ns)
    };
    assert_eq!((of("a"), of("b"), of("c")), ((200, 100, 0), (200, 0, 0), (50, 0, 50)));
    assert_eq!((of("simpler_run").0, sum(&times)), (550, 1000));
}

#[test]
fn a_sibling_inside_another_has_its_own_time_and_leaves_the_other_the_rest() {
    let mut lines = run(1, 0);
    lines.push(device(1, 3, "simpler_run.runner_run.device_wall.graph_build", 50, 625, 949));
    lines.push(device(1, 3, "simpler_run.runner_run.device_wall.task_slot_3", 300, 100, 953));
    let times = times(&lines);
    let of = |leaf| (line(&times, leaf).self_ns, line(&times, leaf).shared_ns);
    assert_eq!((of("graph_build"), of("Effective"), of("task_slot_3")), ((75, 550), (450, 100), (100, 0)));
    assert_eq!((of("device_wall"), sum(&times)), ((75, 0), 1000));
}

#[test]
fn spans_deeper_than_a_tree_is_drawn_stand_beside_each_other() {
    let mut name = "simpler_run".to_owned();
    let mut lines = vec![span(1, 0, "simpler_run", 0, 1_000)];
    for depth in 1..200_u32 {
        name.push_str(".x");
        lines.push(span(1, depth, name.clone().leak(), i64::from(depth), 1_000 - 2 * i64::from(depth)));
    }
    let times = times(&lines);
    assert_eq!((times.lines.len(), sum(&times)), (200, 1_000));
    assert_eq!(times.lines.iter().map(|line| line.level).max(), Some(63));
    assert!(times.lines.iter().all(|line| line.overhang_ns == 0));
}

#[test]
fn what_runs_below_orchestrator_or_schedulers_is_below_their_window() {
    let mut lines = run(1, 0);
    lines.push(device(1, 4, "simpler_run.runner_run.device_wall.orch.submit", 100, 50, 953));
    lines.push(device(1, 4, "simpler_run.runner_run.device_wall.sched.first", 200, 150, 954));
    let times = times(&lines);
    let levels: Vec<_> = times.lines.iter().map(|line| (line.level, line.self_ns)).skip(4).collect();
    assert_eq!(levels, [(3, 350), (4, 50), (4, 150)]);
    assert_eq!(sum(&times), 1000);
}

#[test]
fn an_orphan_is_below_its_nearest_ancestor() {
    let lines: Vec<Line> = run(1, 0).into_iter().filter(|line| !line.name.ends_with("device_wall")).collect();
    let times = times(&lines);
    assert_eq!((line(&times, "runner_run").self_ns, line(&times, "Effective").self_ns), (250, 550));
    assert_eq!(sum(&times), 1000);
}

#[test]
fn an_orphan_without_any_is_below_the_root() {
    let times = times(&[
        span(1, 1, "simpler_run.bind", 100, 100),
        span(1, 3, "mystery", 400, 50),
        span(1, 0, "simpler_run", 0, 1000),
    ]);
    let mystery = line(&times, "mystery");
    assert_eq!((mystery.level, mystery.self_ns, line(&times, "simpler_run").self_ns), (1, 50, 850));
    assert_eq!((times.root_ns, sum(&times)), (1000, 1000));
}

/// A tree: for each span its parent among those before it, and where it begins and how long it is, as parts of what
/// the parent leaves it; times at most 256 ns. Those that `stick_out` may begin before their parent or end after it.
fn tree(stick_out: bool) -> impl Strategy<Value = Vec<(Line, Option<usize>)>> {
    prop::collection::vec((any::<prop::sample::Index>(), 0..=255i64, 0..=255i64), 0..20).prop_map(
        move |spans| {
            let mut tree: Vec<(Line, Option<usize>)> = vec![(span(1, 0, "simpler_run", 1_000, 256), None)];
            for (number, (parent, from, len)) in spans.into_iter().enumerate() {
                let at = parent.index(tree.len());
                let above = tree[at].0;
                let name: &'static str = format!("{}.n{number}", above.name).leak();
                let out = if stick_out { 40 } else { 0 };
                let room = above.dur + 2 * out;
                let skip = from * room / 256;
                let ts = above.ts - out + skip;
                let dur = len * (room - skip) / 255;
                tree.push((span(1, above.depth + 1, name, ts, dur), Some(at)));
            }
            tree
        },
    )
}

/// Instant by instant, from the root down: the child that covers it and began last of those that do; of equals the
/// shorter, then the last. Gives how many instants each span has.
fn instants(tree: &[(Line, Option<usize>)]) -> Vec<i64> {
    let mut own = vec![0; tree.len()];
    let root = &tree[0].0;
    for t in root.ts..root.ts + root.dur {
        let mut at = 0;
        let covers = |of: usize| tree[of].0.ts <= t && t < tree[of].0.ts + tree[of].0.dur;
        while let Some(child) = (0..tree.len())
            .filter(|&child| tree[child].1 == Some(at) && covers(child))
            .max_by_key(|&child| (tree[child].0.ts, -tree[child].0.dur, child))
        {
            at = child;
        }
        own[at] += 1;
    }
    own
}

proptest! {
    #[test]
    fn nested_spans_have_the_instants_that_are_nobodys_below_them(tree in tree(false), reversed: bool) {
        let mut lines: Vec<Line> = tree.iter().map(|(line, _)| *line).collect();
        // Records stand in any order; the ties of equal siblings are by the log's, so only one without is reversed.
        let ties = tree.iter().enumerate().any(|(at, (line, parent))| {
            tree[..at].iter().any(|(other, of)| parent == of && (line.ts, line.dur) == (other.ts, other.dur))
        });
        if reversed && !ties {
            lines.reverse();
        }
        let times = times(&lines);
        prop_assert_eq!(times.root_ns, 256);
        prop_assert_eq!(sum(&times), 256);
        for ((line, _), want) in tree.iter().zip(instants(&tree)) {
            let got = times.lines.iter().find(|got| got.name.as_deref() == Some(line.name)).unwrap();
            prop_assert_eq!((got.self_ns, got.total_ns, got.overhang_ns), (want, line.dur, 0), "{}", line.name);
        }
    }

    #[test]
    fn spans_that_stick_out_are_cut_and_the_rest_still_adds_up(tree in tree(true)) {
        let lines: Vec<Line> = tree.iter().map(|(line, _)| *line).collect();
        let times = times(&lines);
        prop_assert_eq!(sum(&times), 256);
        for (at, ((line, parent), want)) in tree.iter().zip(instants(&tree)).enumerate() {
            let got = times.lines.iter().find(|got| got.name.as_deref() == Some(line.name)).unwrap();
            prop_assert_eq!(got.self_ns, want, "{}", line.name);
            if *parent == Some(0) {
                let inside = (line.ts + line.dur).min(1_256) - line.ts.max(1_000);
                prop_assert_eq!(got.overhang_ns, line.dur - inside.max(0), "{} {}", at, line.name);
            }
        }
    }
}
