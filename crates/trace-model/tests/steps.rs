//! Steps over several ranks, from logs of which the answers are known.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod log;

use log::{Line, add, device, span, trace};
use simpler_record_format::{DeviceClockAnchor, RawHostIdentity};
use simpler_trace_model::{AlignedBy, DeviceGap, Excess, LateBy, StepRun, Steps, Trace, TraceBuilder};

/// A run on a rank: 100 ns of the host, the device, 200 ns of the host and what it takes besides.
struct Run {
    pid: u64,
    inv: u64,
    ts: i64,
    device: i64,
    more: i64,
    attrs: &'static str,
}

impl Run {
    fn of(pid: u64, inv: u64, ts: i64) -> Run {
        Run { pid, inv, ts, device: 700, more: 0, attrs: "" }
    }

    fn lines(&self) -> Vec<Line> {
        let Run { pid, inv, ts, device: wall, more, attrs } = *self;
        let dur = 100 + wall + 200 + more;
        let lines = [
            span(inv, 1, "simpler_run.runner_run", ts + 100, wall + 100),
            device(inv, 2, "simpler_run.runner_run.device_wall", 0, wall, ts + dur),
            Line { attrs, ..span(inv, 0, "simpler_run", ts, dur) },
        ];
        lines.map(|line| Line { pid, tid: pid, ..line }).to_vec()
    }
}

fn run_id(id: u64) -> &'static str {
    format!("run_id={id}").leak()
}

fn lines(runs: &[Run]) -> Vec<Line> {
    runs.iter().flat_map(Run::lines).collect()
}

fn steps(trace: &Trace) -> Steps {
    let mut all = trace.steps(&trace.callables());
    assert_eq!(all.len(), 1);
    all.remove(0)
}

/// Three ranks and four steps: 43's device is slow twice, then 42's host, then 41 begins late.
fn late_in_three_ways() -> Vec<Line> {
    let mut runs = Vec::new();
    for step in 0..4 {
        for pid in 41..44 {
            let mut run = Run::of(pid, step + 1, step as i64 * 10_000 + pid as i64);
            run.attrs = run_id(step + 1);
            match (pid, step) {
                (43, 0 | 1) => run.device += 100,
                (42, 2) => run.more = 60,
                (41, 3) => run.ts += 500,
                _ => {}
            }
            runs.push(run);
        }
    }
    lines(&runs)
}

#[test]
fn the_critical_rank_is_told_with_the_side_that_makes_it_late() {
    let trace = trace(&late_in_three_ways());
    let steps = steps(&trace);
    assert_eq!((steps.aligned_by, steps.steps.len(), steps.ranks.len()), (AlignedBy::RunId, 4, 3));
    let critical: Vec<_> = steps
        .steps
        .iter()
        .map(|step| (step.critical_run().unwrap().rank, step.excess.late_by(), step.skew_ns.unwrap()))
        .collect();
    assert_eq!(
        critical,
        [
            (2, Some(LateBy::Device), 100),
            (2, Some(LateBy::Device), 100),
            (1, Some(LateBy::Host), 60),
            (0, Some(LateBy::Start), 0)
        ]
    );
    let first = &steps.steps[0];
    assert_eq!(
        (first.excess.device_ns, first.excess.host_ns, first.excess.start_ns),
        (Some(100), Some(0), Some(1))
    );
    assert_eq!(steps.steps[3].excess.start_ns, Some(498));
    let starts: Vec<_> = steps.steps.iter().map(|step| step.start_ns.unwrap()).collect();
    // Of the last step the earliest is 42's.
    assert_eq!(starts, [0, 10_000, 20_000, 30_001]);
    let late: Vec<_> =
        steps.ranks.iter().map(|rank| (rank.critical, rank.excess_mean_ns, rank.late_by)).collect();
    assert_eq!(
        late,
        [(1, Some(0), [1, 0, 0]), (1, Some(60), [0, 1, 0]), (2, Some(100), [0, 0, 2])],
        "start, host, device"
    );
    assert_eq!(steps.mean(|step| step.skew_ns), Some((65, 4)));
}

#[test]
fn the_parts_of_a_run_add_up_to_it() {
    let steps = steps(&trace(&late_in_three_ways()));
    for run in steps.steps.iter().flat_map(|step| &step.runs) {
        let StepRun { host_before_ns, device_ns, host_tail_ns, dur_ns, .. } = *run;
        assert_eq!(host_before_ns.unwrap() + device_ns.unwrap() + host_tail_ns.unwrap(), dur_ns.unwrap());
    }
    assert_eq!(steps.steps[2].runs[1].host_tail_ns, Some(260));
}

#[test]
fn ranks_without_an_identity_are_aligned_by_order_and_what_lacks_a_rank_is_in_no_mean() {
    let mut runs: Vec<Run> = (1..4).map(|n| Run::of(41, n, n as i64 * 10_000)).collect();
    runs.extend((1..3).map(|n| Run { more: 40, ..Run::of(42, n, n as i64 * 10_000) }));
    runs[2].more = 9_000;
    // Whatever the order of the records.
    runs.reverse();
    let steps = steps(&trace(&lines(&runs)));
    assert_eq!(steps.aligned_by, AlignedBy::Order);
    let complete: Vec<_> = steps.steps.iter().map(|step| step.complete).collect();
    assert_eq!(complete, [true, true, false]);
    assert_eq!(steps.mean(|step| step.critical_run()?.dur_ns), Some((1040, 2)));
    assert_eq!((steps.steps[2].skew_ns, steps.steps[2].excess.late_by()), (None, None));
    assert_eq!((steps.ranks[1].critical, steps.ranks[0].critical), (2, 0));
}

#[test]
fn numbers_that_no_two_ranks_share_are_no_steps() {
    let runs: Vec<Run> = (1..7)
        .map(|n| Run {
            attrs: run_id(n),
            ..Run::of(41 + n % 2, n.div_ceil(2), n.div_ceil(2) as i64 * 10_000)
        })
        .collect();
    let trace = trace(&lines(&runs));
    let steps = steps(&trace);
    assert_eq!((steps.aligned_by, steps.steps.len()), (AlignedBy::Order, 3));
    assert!(steps.steps.iter().all(|step| step.complete));
    let facts = trace.facts();
    assert_eq!((facts.rounds, facts.incomplete_rounds, facts.lossy), (6, 0, false));
}

#[test]
fn a_callable_that_a_rank_has_twice_under_one_run_id_makes_two_steps() {
    let runs: Vec<Run> = (41..43)
        .flat_map(|pid| {
            (1..5_u64)
                .map(move |n| Run { attrs: run_id(n.div_ceil(2)), ..Run::of(pid, n, n as i64 * 10_000) })
        })
        .collect();
    let trace = trace(&lines(&runs));
    let steps = steps(&trace);
    let ids: Vec<_> = steps.steps.iter().map(|step| (step.run_id, step.runs.len())).collect();
    assert_eq!(ids, [(Some(1), 2), (Some(1), 2), (Some(2), 2), (Some(2), 2)]);
    assert_eq!(trace.facts().rounds, 4);
}

#[test]
fn a_run_that_lost_its_root_keeps_its_place_or_is_apart() {
    let without_root = |lines: Vec<Line>| -> Vec<Line> {
        lines.into_iter().filter(|line| (line.pid, line.inv, line.depth) != (42, 2, 0)).collect()
    };
    let runs: Vec<Run> =
        (41..43).flat_map(|pid| (1..4).map(move |n| Run::of(pid, n, n as i64 * 10_000))).collect();
    let steps_of = |lines: Vec<Line>| steps(&trace(&without_root(lines)));
    let by_order = steps_of(lines(&runs));
    let complete: Vec<_> = by_order.steps.iter().map(|step| step.complete).collect();
    assert_eq!(complete, [true, false, true]);
    let lost = &by_order.steps[1].runs[1];
    assert_eq!((lost.dur_ns, lost.host_tail_ns, lost.device_ns), (None, None, Some(700)));
    assert_eq!(by_order.runs_apart, 0);
    let runs: Vec<Run> = runs.into_iter().map(|run| Run { attrs: run_id(run.inv), ..run }).collect();
    let by_run_id = steps_of(lines(&runs));
    assert_eq!((by_run_id.runs_apart, by_run_id.steps.len(), by_run_id.complete().count()), (1, 3, 2));
}

#[test]
fn without_the_devices_time_no_side_is_blamed_and_nothing_is_0() {
    let lines: Vec<Line> = late_in_three_ways().into_iter().filter(|line| line.depth != 2).collect();
    let steps = steps(&trace(&lines));
    for step in &steps.steps {
        assert_eq!(step.excess.late_by(), None);
        let run = step.critical_run().unwrap();
        assert_eq!((run.device_ns, run.host_tail_ns, run.host_before_ns), (None, None, Some(100)));
        assert_eq!(run.device_gap, None);
    }
    assert_eq!(steps.mean(|step| step.critical_run()?.device_ns), None);
}

#[test]
fn clocks_of_two_hosts_are_not_compared() {
    let hosts_of = |identified: &[(u64, u64)]| {
        let mut builder = TraceBuilder::new();
        for &(pid, host) in identified {
            builder.host_identity(&RawHostIdentity { pid, host, name: b"h" });
        }
        builder
    };
    // Nor is that of a rank which does not say where it is, where there are several hosts.
    for identified in [[(41, 1), (42, 2)], [(41, 1), (7, 2)], [(9, 1), (7, 2)]] {
        clocks_are_not_compared(hosts_of(&identified));
    }
}

fn clocks_are_not_compared(mut builder: TraceBuilder) {
    // 42's clock is far ahead, but 41 takes longer.
    for line in lines(&[
        Run { device: 900, ..Run::of(41, 1, 1_000) },
        Run::of(42, 1, 900_000),
        Run { device: 900, ..Run::of(41, 2, 3_000) },
        Run::of(42, 2, 950_000),
    ]) {
        add(&mut builder, &line);
    }
    let steps = steps(&builder.finish());
    for step in &steps.steps {
        assert_eq!(step.critical_run().unwrap().rank, 0);
        assert_eq!((step.excess.start_ns, step.excess.late_by()), (None, Some(LateBy::Device)));
    }
    assert_eq!(steps.steps[1].start_ns, Some(2_000), "on the clock of the first rank's host");
}

#[test]
fn the_gap_on_the_device_is_known_only_where_both_windows_have_a_place() {
    let mut builder = TraceBuilder::new();
    let mut all = lines(&[
        Run::of(41, 1, 10_000),
        Run::of(41, 2, 20_000),
        Run::of(41, 3, 30_000),
        Run::of(41, 4, 40_000),
    ]);
    for line in &mut all {
        if line.depth == 2 {
            // The windows begin 150 ns after the roots; a cycle is a ns. The third run's has no place.
            let cycle =
                if line.inv == 3 { String::new() } else { format!(" org_cyc={}", line.inv * 10_000 + 150) };
            line.attrs = format!("clk=dev{cycle}").leak();
        }
        add(&mut builder, line);
    }
    for inv in 1..5_u64 {
        for at in [10, 990] {
            let cycle = inv * 10_000 + at;
            builder.device_anchor(DeviceClockAnchor {
                pid: 41,
                inv,
                host_ns: cycle as i64,
                dev_cyc: cycle,
                dev_freq: 1_000_000_000,
                half_ns: 3,
            });
        }
    }
    let steps = steps(&builder.finish());
    let gaps: Vec<_> = steps.steps.iter().map(|step| step.runs[0].device_gap).collect();
    // From 10,850 to 20,150; each end to half a bracket and a tick.
    assert_eq!(gaps, [None, Some(DeviceGap { ns: 9_300, error_ns: 8 }), None, None]);
    assert_eq!(steps.mean(|step| Some(step.critical_run()?.device_gap?.ns)), Some((9_300, 1)));
    assert_eq!(
        (steps.steps[0].skew_ns, steps.ranks[0].critical),
        (None, 0),
        "one rank is late against nobody"
    );
    assert_eq!(steps.steps[0].excess, Excess::default());
}

#[test]
fn what_ran_once_on_each_rank_has_no_steps() {
    let trace = trace(&lines(&[Run::of(41, 1, 0), Run::of(42, 1, 0)]));
    assert!(trace.steps(&trace.callables()).is_empty());
}

#[test]
fn ranks_that_did_not_run_at_the_same_time_are_said_to_be_of_several_sessions() {
    let ranks = |second: i64| {
        let runs: Vec<Run> = [(41, 0), (42, 5), (43, second), (44, second + 5)]
            .into_iter()
            .flat_map(|(pid, from)| (1..4).map(move |n| Run::of(pid, n, from + n as i64 * 10_000)))
            .collect();
        steps(&trace(&lines(&runs))).sessions
    };
    assert_eq!((ranks(10), ranks(20_000), ranks(90_000)), (1, 1, 2));
}
