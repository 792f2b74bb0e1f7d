//! Which bind span each phase of a binding belongs to, and what it is then called.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod log;

use log::{Line, anchor, span, trace};
use simpler_record_format::RawBindPhase;
use simpler_trace_model::{
    BindPhaseLine, HostPass, HostPhase, HostPhaseRecord, PhaseSource, Trace, TraceBuilder,
};

fn record(phase: &str, start_ns: i64, end_ns: i64) -> HostPhaseRecord {
    HostPhaseRecord { phase: phase.into(), start_ns, end_ns, tid: None, detail: None }
}

fn pass(pid: u64, inv: u64, records: Vec<HostPhaseRecord>) -> HostPass {
    HostPass { pid: Some(pid), inv: Some(inv), records }
}

/// A run of pid 41 whose binding takes the first half of it.
fn bound(inv: u64, start: i64) -> Vec<Line> {
    vec![span(inv, 1, "chip.run.bind", start, 500), span(inv, 0, "chip.run", start, 1000)]
}

/// The start of the bind span of a phase, and the phase's name.
fn placed<'a>(trace: &Trace, phases: &'a [HostPhase]) -> Vec<(i64, &'a str)> {
    phases.iter().map(|phase| (trace.spans()[phase.bind].ts, phase.name.as_str())).collect()
}

fn line(phase: &[u8], start_ns: i64, dur_ns: i64, mono_ns: i64) -> BindPhaseLine {
    BindPhaseLine::from(&RawBindPhase { mono_ns, phase, start_ns, dur_ns, attrs: b"" })
}

fn with_lines(lines: &[Line], phases: &[BindPhaseLine]) -> Trace {
    let mut builder = TraceBuilder::new();
    for line in lines {
        log::add(&mut builder, line);
    }
    phases.iter().for_each(|phase| builder.bind_phase(phase));
    builder.finish()
}

#[test]
fn segments_lie_below_the_binding_and_steps_of_the_orchestration_below_that() {
    let trace = trace(&bound(3, 1_000));
    let of = |tid, detail, record: HostPhaseRecord| HostPhaseRecord { tid, detail, ..record };
    let records = vec![
        of(Some(77), Some(7), record("args", 1_000, 1_010)),
        record("host_orch", 1_010, 1_400),
        of(Some(77), None, record("record_in_graph_task", 1_020, 1_030)),
        of(Some(77), None, record("record_node", 1_030, 1_040)),
        of(Some(77), None, record("build_definition", 1_040, 1_050)),
        of(Some(41), None, record("build_definition", 1_050, 1_060)),
        of(Some(0), None, record("record_node", 1_060, 1_070)),
        record("record_node", 1_070, 1_080),
        record("graph_submit", 1_080, 1_090),
        of(Some(77), Some(-1), record("fanin", 1_090, 1_100)),
    ];
    let all = trace.host_phases(&[pass(41, 3, records)]);
    assert_eq!((all.passes_unmatched, all.warnings()), (0, vec![]));
    let got: Vec<(&str, u32, u64, &str)> = all
        .phases
        .iter()
        .map(|phase| {
            let name = phase.name.strip_prefix("chip.run.bind.").unwrap();
            (name, phase.depth, phase.tid, std::str::from_utf8(&phase.attrs).unwrap())
        })
        .collect();
    let main = "src=host_phase_records host_phase_thread=host_main";
    let recorder = "src=host_phase_records host_phase_thread=graph_record_worker";
    assert_eq!(
        got,
        [
            // A segment is the main thread's, whatever it says.
            ("args", 2, 41, "detail=7 src=host_phase_records host_phase_thread=host_main"),
            ("host_orch", 2, 41, main),
            ("host_orch.record_in_graph_task", 3, 77, recorder),
            ("host_orch.record_node", 3, 77, recorder),
            ("host_orch.build_definition", 3, 77, recorder),
            ("host_orch.build_definition", 3, 41, main),
            ("host_orch.record_node", 3, 41, main),
            ("host_orch.record_node", 3, 41, main),
            ("host_orch.graph_submit", 3, 41, "src=host_phase_records host_phase_thread=graph_submit_main"),
            ("host_orch.fanin", 3, 77, "detail=-1 src=host_phase_records host_phase_thread=host_main"),
        ]
    );
    assert!(all.phases.iter().all(|phase| phase.source == PhaseSource::Record));
}

#[test]
fn a_pass_without_its_bind_span_is_left_out_and_counted() {
    let mut lines = bound(3, 1_000);
    lines.push(span(4, 0, "chip.run", 5_000, 10));
    lines.push(Line { attrs: "clk=dev", ..span(5, 1, "chip.run.bind", 0, 10) });
    let trace = trace(&lines);
    let records = || vec![record("args", 1_000, 1_010)];
    let passes = [
        pass(41, 3, records()),
        pass(42, 3, records()),
        pass(41, 4, records()),
        pass(41, 5, records()),
        HostPass { pid: None, ..pass(41, 3, records()) },
        HostPass { inv: None, ..pass(41, 3, records()) },
    ];
    let all = trace.host_phases(&passes);
    assert_eq!((all.phases.len(), all.passes_unmatched), (1, 5));
    let [warning] = &all.warnings()[..] else { panic!() };
    assert!(
        warning.starts_with("warning: 5 phase-record pass(es) had no matching chip.run.bind span "),
        "{warning}"
    );
}

#[test]
fn passes_of_one_number_go_to_the_life_in_whose_binding_they_begin() {
    let mut builder = TraceBuilder::new();
    // The second life uses it twice.
    for (anchored_at, start) in [(1, 1_000), (9_000, 10_000), (9_000, 20_000)] {
        builder.anchor(anchor(41, anchored_at, 0));
        for line in bound(1, start) {
            log::add(&mut builder, &line);
        }
    }
    let trace = builder.finish();
    assert_eq!(trace.lives().len(), 2);
    let passes: Vec<HostPass> = [20_100, 1_100, 10_500, 10_501, 900]
        .into_iter()
        .map(|start| {
            pass(41, 1, vec![record("x", start + 50, start + 60), record("args", start, start + 10)])
        })
        .collect();
    let all = trace.host_phases(&passes);
    assert_eq!(all.passes_unmatched, 2);
    let (x, args) = ("chip.run.bind.host_orch.x", "chip.run.bind.args");
    assert_eq!(
        placed(&trace, &all.phases),
        [(1_000, x), (1_000, args), (10_000, x), (10_000, args), (20_000, x), (20_000, args)]
    );
}

#[test]
fn lines_fill_in_the_bindings_of_which_no_pass_has_a_segment() {
    let lines = [bound(1, 1_000), bound(2, 10_000), bound(3, 20_000)].concat();
    let phases = [1_010, 10_010, 20_010, 5_000].map(|start| line(b"graph_upload", start, 40, start + 100));
    // One is there twice, as where a log is read twice.
    let trace = with_lines(&lines, &[&phases[..], &phases[..1]].concat());
    let passes = [
        pass(41, 1, vec![record("args", 1_000, 1_010)]),
        // Steps of the orchestration alone are no segments.
        pass(41, 2, vec![record("fanin", 10_000, 10_010)]),
    ];
    let all = trace.host_phases(&passes);
    let upload = "chip.run.bind.graph_upload";
    assert_eq!(
        placed(&trace, &all.phases),
        [
            (1_000, "chip.run.bind.args"),
            (10_000, "chip.run.bind.host_orch.fanin"),
            (10_000, upload),
            (20_000, upload)
        ]
    );
    assert_eq!(all.lines_unmatched, 1);
    let last = all.phases.last().unwrap();
    assert_eq!((last.depth, last.tid, last.start_ns, last.end_ns), (2, 41, 20_010, 20_050));
    assert_eq!(last.attrs, b"src=bind_phase host_phase_thread=host_main");
    assert!(all.warnings()[0].starts_with("warning: 1 bind phase line(s) lie in no chip.run.bind span"));
}

#[test]
fn a_line_within_several_bindings_belongs_to_the_first_that_ends_behind_it() {
    let of = |pid, start, dur| Line { pid, tid: pid, ..span(1, 1, "simpler_run.bind", start, dur) };
    // Two chips bind at the same time, and another's binding ended before the line was made.
    let lines = [of(41, 0, 1_000), of(42, 0, 1_100), of(43, 0, 990)];
    let trace = with_lines(
        &lines,
        &[
            line(b"args", 10, 5, 995),
            line(b"relocate", 10, 5, 1_050),
            line(b"arena_h2d", 10, 5, 5_000),
            line(b"gm_heap", 10, 1_050, 1_060),
        ],
    );
    let all = trace.host_phases(&[]);
    let got: Vec<(u64, &str)> =
        all.phases.iter().map(|phase| (phase.tid, phase.name.rsplit('.').next().unwrap())).collect();
    assert_eq!(got, [(41, "args"), (42, "relocate"), (42, "arena_h2d"), (42, "gm_heap")]);
}

#[test]
fn times_at_the_limits_of_the_clock_do_no_harm() {
    let trace = with_lines(
        &[span(1, 1, "chip.run.bind", i64::MAX, i64::MAX), span(1, 0, "chip.run", 0, i64::MAX)],
        &[line(b"args", i64::MAX, i64::MAX, i64::MAX)],
    );
    let passes = [pass(41, 1, vec![record("x", i64::MIN, i64::MAX)]), pass(41, 1, vec![])];
    let all = trace.host_phases(&passes);
    assert_eq!((all.phases.len(), all.passes_unmatched, all.lines_unmatched), (2, 0, 0));
}
