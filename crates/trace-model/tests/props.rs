//! Grouping, whatever the spans say and in whatever order they come.

mod log;

use log::{Line, span, trace};
use proptest::prelude::*;
use simpler_trace_model::Stats;

fn any_span() -> impl Strategy<Value = Line> {
    let name = prop::sample::select(vec![
        "simpler_run",
        "simpler_run.bind",
        "simpler_run.runner_run.device_wall.orch",
        "chip.run",
        "node.submit",
        "node.dispatch",
        "node.complete",
        "ext.app.load",
        "chip.prewarm.build",
        "mystery",
        "",
    ]);
    let attrs = prop::sample::select(vec![
        "",
        "clk=dev",
        "run_id=1",
        "run_id=2 slot_id=0",
        "run_id=1 dispatch_id=1",
        "clk=dev~",
    ]);
    let time = prop_oneof![0..100i64, Just(i64::MAX)];
    (40..43u64, 0..3u64, 0..4u32, name, attrs, time.clone(), time, prop::option::of(0..200i64)).prop_map(
        |(pid, inv, depth, name, attrs, ts, dur, mono_ns)| Line {
            pid,
            tid: pid,
            attrs,
            mono_ns,
            ..span(inv, depth, name, ts, dur)
        },
    )
}

proptest! {
    #[test]
    fn every_span_is_in_one_invocation_or_in_none_by_its_family(lines in prop::collection::vec(any_span(), 0..60)) {
        let trace = trace(&lines);
        let mut seen: Vec<u32> =
            trace.invocations().iter().flat_map(|invocation| trace.span_indices(invocation)).copied().collect();
        seen.sort_unstable();
        let want: Vec<u32> = (0..trace.spans().len() as u32)
            .filter(|&index| trace.is_grouped(&trace.spans()[index as usize]))
            .collect();
        prop_assert_eq!(seen, want);
        for invocation in trace.invocations() {
            let life = trace.life_of(invocation);
            for span in trace.spans_of(invocation) {
                prop_assert_eq!((trace.life(span).pid, trace.inv(span)), (life.pid, invocation.inv));
            }
        }
    }

    #[test]
    fn every_question_has_an_answer(lines in prop::collection::vec(any_span(), 0..60)) {
        let trace = trace(&lines);
        let facts = trace.facts();
        prop_assert_eq!(facts.spans + trace.counts().duplicates as usize, lines.len());
        let callables = trace.callables();
        let invocations: usize = callables.iter().map(|callable| callable.invocations.len()).sum();
        prop_assert_eq!(invocations, facts.invocations);
        for callable in &callables {
            let roots: usize = callable.roots.iter().map(|root| root.stats.n).sum();
            prop_assert_eq!(roots + callable.missing_roots, callable.invocations.len());
            trace.call_tree(callable);
            if let Some(times) = trace.self_times(callable) {
                prop_assert_eq!(times.n, roots);
                prop_assert!(times.lines.iter().all(|line| line.self_ns >= 0));
            }
        }
        for steps in trace.steps(&callables) {
            let runs: usize = steps.steps.iter().map(|step| step.runs.len()).sum();
            prop_assert!(runs + steps.runs_apart <= invocations);
            prop_assert!(steps.steps.iter().all(|step| step.runs.len() <= steps.ranks.len()));
        }
        trace.dispatches();
        trace.rounds(&callables);
        simpler_trace_model::warnings(&trace);
    }

    #[test]
    fn statistics_agree_with_the_plain_definitions(mut values in prop::collection::vec(0..1_000_000i64, 1..50)) {
        let stats = Stats::of(&mut values.clone()).expect("there are values");
        values.sort_unstable();
        let n = values.len();
        prop_assert_eq!(stats.mean_ns, values.iter().sum::<i64>() / n as i64);
        prop_assert_eq!(stats.ranks.expect("of all values").median_ns, (values[(n - 1) / 2] + values[n / 2]) as f64 / 2.0);
        prop_assert_eq!((stats.min_ns, stats.max_ns, stats.n), (values[0], values[n - 1], n));
    }
}
