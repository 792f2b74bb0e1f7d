//! The swimlane as a viewer reads it.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod picture;

use picture::{assert_nested, complete, events, ns};
use proptest::prelude::*;
use serde_json::{Value, json};
use simpler_record_format::{ClockAnchor, DeviceClockAnchor, RawSpan, RecordEnd};
use simpler_trace_export::chip_records::ChipRecords;
use simpler_trace_export::host_phase_records::HostPhaseFile;
use simpler_trace_export::swimlane::{self, Written};
use simpler_trace_ingest::{Source, read};
use simpler_trace_model::{Trace, TraceBuilder};
use std::path::{Path, PathBuf};

const HZ: u64 = 50_000_000;

/// A log, span by span.
#[derive(Default)]
struct Log(TraceBuilder);

impl Log {
    /// `name ts dur` and attributes, of an invocation by its number.
    fn span(mut self, (pid, tid): (u64, u64), (inv, depth): (u64, u32), text: &str) -> Log {
        let mut words = text.splitn(4, ' ');
        let mut next = || words.next().unwrap_or("");
        let (name, ts, dur) = (next(), next().parse().unwrap(), next().parse().unwrap());
        let attrs = next().as_bytes();
        let (name, end) = (name.as_bytes(), RecordEnd::Line);
        self.0.span(&RawSpan { pid, tid, inv, hid: 0xb7e2, depth, name, ts, dur, attrs, end }, None);
        self
    }

    /// A span of a node's scheduler.
    fn node(self, tid: u64, text: &str) -> Log {
        self.span((40, tid), (0, 0), text)
    }

    /// A span of a chip's invocation.
    fn chip(self, (inv, depth): (u64, u32), text: &str) -> Log {
        self.span((41, 77), (inv, depth), text)
    }

    fn device_anchor(mut self, inv: u64, host_ns: i64, dev_cyc: u64, half_ns: u64) -> Log {
        self.0.device_anchor(DeviceClockAnchor { pid: 41, inv, host_ns, dev_cyc, dev_freq: HZ, half_ns });
        self
    }

    fn finish(self) -> Trace {
        self.0.finish()
    }

    fn draw(self) -> Value {
        draw(&self.finish(), &[])
    }
}

fn draw(trace: &Trace, records: &[ChipRecords]) -> Value {
    written(trace, records).0
}

fn written(trace: &Trace, records: &[ChipRecords]) -> (Value, Written) {
    let mut out = Vec::new();
    let written = swimlane::write(&mut out, trace, records, &trace.host_phases(&[])).unwrap();
    (serde_json::from_slice(&out).unwrap(), written)
}

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

fn trace_of(path: &str) -> Trace {
    read(&[Source::path(data().join(path))]).unwrap().trace
}

fn case(name: &str) -> Value {
    draw(&trace_of(&format!("cases/{name}/input.log")), &[])
}

fn chip_records() -> ChipRecords {
    let bytes = std::fs::read(data().join("swimlane/chip_swimlane_records.json")).unwrap();
    ChipRecords::parse("chip_swimlane_records.json", &bytes).unwrap()
}

/// What processes or threads are called, with their ids.
fn names<'a>(document: &'a Value, what: &str) -> Vec<(u64, u64, &'a str)> {
    let named = events(document).iter().filter(|event| event["name"] == what);
    named
        .map(|event| {
            let id = |key: &str| event[key].as_u64().unwrap();
            (id("pid"), id("tid"), event["args"]["name"].as_str().unwrap())
        })
        .collect()
}

fn thread_names(document: &Value) -> Vec<(u64, &str)> {
    names(document, "thread_name").into_iter().map(|(_, tid, name)| (tid, name)).collect()
}

/// The track on which an event lies.
fn track_of<'a>(document: &'a Value, event: &Value) -> &'a str {
    let key = |event: &Value| (event["pid"].as_u64(), event["tid"].as_u64());
    names(document, "thread_name")
        .into_iter()
        .find(|&(pid, tid, _)| (Some(pid), Some(tid)) == key(event))
        .unwrap()
        .2
}

fn named<'a>(document: &'a Value, name: &str) -> Vec<&'a Value> {
    complete(document).into_iter().filter(|event| event["name"] == name).collect()
}

fn flows(document: &Value) -> Vec<(&Value, &Value)> {
    let of = |ph: &'static str| events(document).iter().filter(move |event| event["ph"] == ph);
    let pairs: Vec<(&Value, &Value)> = of("s").zip(of("f")).collect();
    assert_eq!((of("s").count(), of("f").count()), (pairs.len(), pairs.len()));
    pairs
}

/// To accept a change on purpose, run with `BLESS=1` and read the difference.
#[test]
fn a_run_with_its_node_its_chip_and_its_records() {
    let trace = trace_of("swimlane/run.log");
    assert_eq!(swimlane::warnings(&trace, &[chip_records()]), [""; 0]);
    let mut out = Vec::new();
    let written = swimlane::write(&mut out, &trace, &[chip_records()], &trace.host_phases(&[])).unwrap();
    assert_eq!(
        written,
        Written {
            host_spans: 11,
            device_spans_placed: 3,
            device_spans_unaligned: 1,
            chip_records: 13,
            ..Written::default()
        }
    );
    assert_nested(&serde_json::from_slice(&out).unwrap());
    // An event a line, for whoever reads the difference.
    let got = String::from_utf8(out).unwrap().replace("},{\"ph\"", "},\n{\"ph\"");
    let path = data().join("swimlane/run.swimlane.json");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &got).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), got);
}

#[test]
fn lanes_are_the_real_threads_and_an_arrow_leads_from_submit_to_dispatch() {
    let trace = trace_of("logs/l3_ffn_tp_a2a3sim.log");
    let (document, written) = written(&trace, &[]);
    assert_nested(&document);
    assert_eq!(
        names(&document, "process_name"),
        [
            (29893, 0, "simpler node (pid=29893)"),
            (29966, 0, "simpler chip child (pid=29966)"),
            (29967, 0, "simpler chip child (pid=29967)"),
        ]
    );
    assert_eq!(
        thread_names(&document),
        [
            (29893, "orchestrator / facade"),
            (29968, "scheduler"),
            (29966, "chip child"),
            (29967, "chip child")
        ]
    );
    assert_eq!((written.host_spans, written.device_spans_unaligned), (41, 28));
    let flows = flows(&document);
    assert_eq!(flows.len(), 4);
    let (source, target) = flows[3];
    assert_eq!((&source["pid"], &source["tid"]), (&json!(29893), &json!(29893)));
    assert_eq!((&target["pid"], &target["tid"]), (&json!(29893), &json!(29968)));
    for end in [source, target] {
        assert_eq!(end["name"], "task dispatch");
        assert_eq!(end["cat"], "host.scheduler");
        assert_eq!(end["id"], 4);
        assert_eq!(end["args"]["dispatch_key"], "dispatch:29893:1:2:1:1:2");
    }
}

#[test]
fn events_are_in_the_order_of_time_process_thread_and_name() {
    for document in [
        draw(&trace_of("logs/l3_ffn_tp_a2a3sim.log"), &[]),
        draw(&trace_of("swimlane/run.log"), &[chip_records()]),
        Log::default()
            .span((2, 3), (1, 0), "b 100 5")
            .span((2, 3), (2, 0), "a 100 5")
            .span((1, 9), (1, 0), "c 100 5")
            .span((1, 9), (1, 0), "d 99 1")
            .draw(),
    ] {
        let key = |event: &&Value| {
            let id = |key: &str| event[key].as_u64().unwrap();
            (ns(&event["ts"]), id("pid"), id("tid"), event["name"].as_str().unwrap().to_owned())
        };
        assert!(complete(&document).is_sorted_by_key(key));
    }
}

#[test]
fn a_span_carries_its_identity_its_attributes_and_its_wall_time() {
    let mut log = Log::default();
    log.0.anchor(ClockAnchor { pid: 41, mono_ns: 100, wall_ns: 1_790_000_000_000_000_100 });
    let attrs =
        "n=4 zero=-007 note=a%20b odd=1x n=5 flag inv=9 os_tid=9 wall_time=9 big=99999999999999999999";
    let document = log.chip((3, 0), &format!("simpler_run 200 5 {attrs}")).chip((2, 0), "old 50 5").draw();
    let args = &named(&document, "simpler_run")[0]["args"];
    assert_eq!(
        *args,
        json!({
            "inv": 3, "hid": "b7e2", "depth": 0, "attrs": attrs, "os_tid": 77,
            "n": 5, "zero": -7, "note": "a b", "odd": "1x", "big": "99999999999999999999",
            "wall_ts_ns": "1790000000000000200", "wall_time": "2026-09-21T14:13:20.000000200Z",
        })
    );
    assert!(named(&document, "old")[0]["args"].get("wall_time").is_none(), "earlier than the anchor");
    assert_eq!(document["clockAnchors"][0]["mono_ns"], "100");
}

#[test]
fn a_thread_is_named_by_what_it_does_for_the_runtime() {
    for (spans, want) in [
        (&["node.graph_build 0 9"][..], "orchestrator / facade"),
        (&["node.submit 0 9 role=worker"], "orchestrator / facade"),
        (&["node.activate 0 9 role=facade", "node.dispatch 20 9 role=scheduler"], "orchestrator / facade"),
        (&["node.complete 0 9 role=worker worker_id=1", "node.dispatch 20 9 role=scheduler"], "scheduler"),
        (&["node.complete 0 9 role=worker worker_id=3", "node.activate 20 9 worker_id=3"], "worker 3"),
        (&["node.complete 0 9 worker_id=3", "node.activate 20 9 worker_id=4"], "worker"),
        (&["node.dispatch 0 9"], "worker"),
        (&["chip.run 0 9", "node.complete 20 9 worker_id=3"], "worker 3"),
        (&["chip.run 0 9"], "chip child"),
        (&["host_x.y 0 9"], "tid 500"),
        (&["node.submit 0 9 host_phase_thread=graph_submit_main"], "graph submit main"),
        (
            &["x 0 9 host_phase_thread=graph_submit_main", "y 20 9 host_phase_thread=graph_record_worker"],
            "graph record worker",
        ),
        (&["ext.shop.order 0 9 role=facade", "ext.bank.pay 20 9"], "ext bank/shop"),
        (&["ext.shop 0 9", "ext..order 20 9"], "tid 500"),
        (&["ext.shop.order 0 9 role=facade", "chip.run 20 9"], "chip child"),
        (&["ext.shop.order 0 9", "chip.run.runner_run.device_wall 0 9 clk=dev"], "chip child"),
        (&["ext.shop.order 0 9 host_phase_thread=graph_submit_main", "other 20 9"], "tid 500"),
    ] {
        let document = spans.iter().fold(Log::default(), |log, span| log.node(500, span)).draw();
        assert_eq!(thread_names(&document), [(500, want)], "{spans:?}");
    }
}

#[test]
fn a_process_is_ours_as_soon_as_one_span_is() {
    let ext = "ext.shop.order 0 9";
    for (spans, want) in [
        (&[ext, "node.submit 20 9", "chip.run 40 9"][..], "simpler node (pid=40)"),
        (&[ext, "network2.submit 20 9"], "simpler node (pid=40)"),
        (&[ext, "ext.bank.pay 20 9", "ext.shop 40 9"], "external producer bank/shop (pid=40)"),
        (&["ext.shop 20 9", "ext..x 40 9", "ext.shop. 40 9"], "external producer unattributed (pid=40)"),
        (&[ext, "chip.run 20 9"], "simpler chip child (pid=40)"),
        (&[ext, "chip.run.runner_run.device_wall 0 9 clk=dev"], "simpler chip child (pid=40)"),
        (&["ext.node.submit 0 9"], "external producer node (pid=40)"),
        (&["unheard.of 0 9"], "simpler chip child (pid=40)"),
    ] {
        let document = spans.iter().fold(Log::default(), |log, span| log.node(500, span)).draw();
        assert_eq!(names(&document, "process_name"), [(40, 0, want)], "{spans:?}");
    }
}

#[test]
fn the_scheduler_s_loop_lies_around_its_dispatches() {
    let document = draw(&trace_of("swimlane/run.log"), &[]);
    let [on_loop, on_dispatch] =
        ["node.scheduler_loop", "node.dispatch"].map(|name| named(&document, name)[0]);
    assert_eq!(on_loop["tid"], on_dispatch["tid"]);
    assert_eq!(track_of(&document, on_loop), "scheduler");
    assert_eq!(on_loop["args"]["spins"], 9);
}

#[test]
fn the_loop_of_a_parent_without_a_scheduler_thread_lies_around_what_it_took() {
    // One thread submits, hands over, waits, and takes the outcome while it waits.
    let (role, slot) = ("run_id=1 task_slot=0 worker_id=0 dispatch_id=1 role=worker", "run_id=1 task_slot=0");
    let document = Log::default()
        .node(500, &format!("node.submit 100 30 {slot} role=facade"))
        .node(500, &format!("node.dispatch 110 10 {role}"))
        .node(500, &format!("node.complete 190 5 {role}"))
        .node(500, "node.scheduler_loop 140 60 role=scheduler drained=1 dispatched=0 drain_ns=5 spins=9")
        .draw();
    assert_eq!(names(&document, "thread_name"), [(40, 500, "orchestrator / facade")]);
    let loops = named(&document, "node.scheduler_loop");
    let [on_loop] = loops[..] else { panic!("{loops:?}") };
    assert_eq!((on_loop["args"]["spins"].as_i64(), ns(&on_loop["ts"])), (Some(9), 140));
    for name in ["node.submit", "node.dispatch", "node.complete"] {
        assert_eq!(named(&document, name)[0]["tid"], 500, "{name}");
    }
    assert_eq!(flows(&document).len(), 1, "the loop is no end of an arrow");
}

#[test]
fn a_dispatch_belongs_to_the_latest_submit_before_it() {
    let task = "run_id=1 task_slot=0";
    let document = Log::default()
        .node(500, &format!("node.submit 100 10 {task}"))
        .node(500, &format!("node.submit 200 10 {task}"))
        .node(500, &format!("node.submit 300 10 {task}"))
        // Another run's, another slot's, another process's.
        .node(500, "node.submit 240 5 run_id=2 task_slot=0")
        .node(500, "node.submit 245 5 run_id=1 task_slot=1")
        .span((39, 500), (0, 0), &format!("node.submit 246 5 {task}"))
        .node(501, &format!("node.dispatch 250 10 {task}"))
        .node(501, &format!("node.dispatch 300 10 {task} group_index=4 worker_id=5 dispatch_id=6"))
        // Before every submit, and of no run.
        .node(501, &format!("node.dispatch 50 10 {task}"))
        .node(501, "node.dispatch 400 10 task_slot=0")
        .draw();
    let got: Vec<(i64, i64, u64, &str)> = flows(&document)
        .into_iter()
        .map(|(source, target)| {
            let key = source["args"]["dispatch_key"].as_str().unwrap();
            (ns(&source["ts"]), ns(&target["ts"]), source["id"].as_u64().unwrap(), key)
        })
        .collect();
    assert_eq!(got, [(210, 250, 1, "dispatch:40:1:0:-1:-1:0"), (300, 300, 2, "dispatch:40:1:0:4:5:6")]);
}

#[test]
fn an_arrow_starts_no_later_than_it_ends() {
    let document = Log::default()
        .node(500, "node.submit 100 90 run_id=1 slot=0")
        .node(501, "node.dispatch 150 10 run_id=1 slot=0")
        .draw();
    let [(source, target)] = flows(&document)[..] else { panic!() };
    assert_eq!((ns(&source["ts"]), ns(&target["ts"])), (150, 150));
}

#[test]
fn device_spans_without_anchors_are_listed_and_not_drawn() {
    let document = case("device-before-host-root");
    assert!(complete(&document).iter().all(|event| ns(&event["ts"]) >= 88_400_000_000_000));
    assert_eq!(complete(&document).len(), 4);
    let listed = document["unalignedDeviceSpans"].as_array().unwrap();
    assert_eq!(listed.len(), 3);
    assert_eq!(
        listed[1],
        json!({
            "name": "simpler_run.runner_run.device_wall.orch", "ts_ns": 20_000_000, "dur_ns": 10_000_000,
            "pid": 41, "tid": 41, "inv": 1, "hid": "b7e2c04410d95f6e", "depth": 3,
            "attrs": {"raw": "clk=dev", "clk": "dev"},
        })
    );
}

#[test]
fn device_spans_with_anchors_are_drawn_and_say_how_sure_that_is() {
    let wall = "simpler_run.runner_run.device_wall";
    let document = Log::default()
        .chip((1, 0), "simpler_run 1000000 1000000")
        .chip((1, 2), &format!("{wall} 0 800000 clk=dev org_cyc=5000"))
        .chip((1, 3), &format!("{wall}.sched 100000 20 clk=dev"))
        .device_anchor(1, 1_000_000, 0, 30)
        .device_anchor(1, 2_000_000, 50_000, 30)
        .draw();
    let sched = named(&document, &format!("{wall}.sched"))[0];
    assert_eq!((ns(&sched["ts"]), ns(&sched["dur"])), (1_200_000, 20));
    assert_eq!((&sched["args"]["error_ns"], &sched["args"]["dev_ts_ns"]), (&json!(50), &json!(100_000)));
    assert_eq!((&sched["pid"], &sched["cat"]), (&json!(41), &json!("device")));
    assert_eq!(track_of(&document, sched), "device phases, placed to ±50 ns");
    assert_eq!(document["unalignedDeviceSpans"], json!([]));
    assert_nested(&document);
}

/// Two runs whose roots overlap, each with its stages.
fn pipeline(slots: [&str; 2]) -> Log {
    Log::default()
        .chip((1, 0), &format!("simpler_run 1000 500 {}", slots[0]))
        .chip((1, 1), "simpler_run.bind 1010 50")
        .chip((2, 0), &format!("simpler_run 1300 500 {}", slots[1]))
        .chip((2, 1), "simpler_run.bind 1310 50")
}

#[test]
fn a_pipeline_s_slots_have_a_lane_each() {
    let document = case("overlapping-roots-one-thread");
    assert_nested(&document);
    assert_eq!(thread_names(&document), [(78, "pipeline slot 0 (tid 77)"), (79, "pipeline slot 1 (tid 77)")]);
    for event in complete(&document) {
        let odd = event["args"]["inv"].as_u64().unwrap() % 2 == 1;
        assert_eq!(event["tid"], if odd { 78 } else { 79 });
        assert_eq!(event["args"]["os_tid"], 77);
    }
}

#[test]
fn runs_that_follow_each_other_stay_on_their_thread() {
    let document = Log::default()
        .chip((1, 0), "simpler_run 1000 500 slot_id=0")
        .chip((2, 0), "simpler_run 1500 500 slot_id=1")
        .draw();
    assert_eq!(thread_names(&document), [(77, "chip child")]);
}

/// Viewers drop what overlaps without nesting, so the second run has a lane, though not a slot's.
#[test]
fn runs_that_no_slot_tells_apart_are_not_split_by_slot() {
    for slots in [["slot_id=0", ""], ["slot_id=0", "slot_id=0"], ["slot_id=0", "slot_id=x"]] {
        let document = pipeline(slots).draw();
        assert_eq!(thread_names(&document), [(77, "chip child"), (78, "chip child, lane 1")]);
        assert_nested(&document);
    }
    // A third run overlaps the first in its own slot.
    let document = pipeline(["slot_id=0", "slot_id=1"]).chip((3, 0), "simpler_run 1400 9 slot_id=0").draw();
    assert_eq!(thread_names(&document)[0], (77, "chip child"));
}

#[test]
fn foreign_spans_reshape_nothing_of_ours() {
    let ours = |document: &Value| -> Vec<Value> {
        let mine = |event: &&&Value| !event["name"].as_str().unwrap().starts_with("ext.");
        complete(document).iter().filter(mine).map(|event| (*event).clone()).collect()
    };
    let foreign = [
        // On the same thread: across both roots, across one's start, between them.
        "ext.shop.order 900 2000 slot_id=7 role=facade",
        "ext.shop.order 990 200 slot_id=0 run_id=1 task_slot=0",
        "ext.shop.order 1320 5",
    ];
    for slots in [["slot_id=0", "slot_id=1"], ["", ""]] {
        let flow = |log: Log| {
            log.node(500, "node.submit 1100 10 run_id=1 task_slot=0")
                .node(501, "node.dispatch 1400 10 run_id=1 task_slot=0")
        };
        let tempting = |log: Log| log.node(500, "ext.shop.submit 1320 5 run_id=1 task_slot=0");
        let alone = flow(pipeline(slots)).draw();
        for count in 1..=foreign.len() {
            let log = flow(pipeline(slots));
            let log = foreign[..count].iter().fold(log, |log, span| log.chip((0, 0), span));
            let document = tempting(log).draw();
            assert_eq!(ours(&document), ours(&alone), "{slots:?} {count}");
            assert_eq!(flows(&document), flows(&alone));
            assert_nested(&document);
        }
    }
    let document = pipeline(["slot_id=0", "slot_id=1"]).chip((0, 0), foreign[0]).draw();
    assert_eq!(named(&document, "ext.shop.order")[0]["tid"], 77, "not on a slot's lane");
    assert_eq!(thread_names(&document)[0], (77, "ext shop"));
}

#[test]
fn scheduler_and_foreign_spans_lie_on_the_threads_that_emitted_them() {
    let document = case("scheduler-and-external-spans");
    assert_nested(&document);
    assert_eq!(complete(&document).len(), 12);
    let names = thread_names(&document);
    assert!(names.contains(&(41, "chip child")), "{names:?}");
    assert!(names.contains(&(500, "orchestrator / facade")), "{names:?}");
    assert!(flows(&document).is_empty(), "no submit has a run and slot of a dispatch");
}

/// A file of one run of pid 41.
fn file(inv: u64, more: &Value) -> ChipRecords {
    let mut text =
        json!({"metadata": {"pid": 41, "inv": inv, "clock_freq_hz": HZ, "core_types": ["aic", "aiv"]}});
    for (key, value) in more.as_object().unwrap() {
        match (text.get_mut(key), value) {
            (Some(Value::Object(held)), Value::Object(more)) => held.extend(more.clone()),
            _ => text[key] = value.clone(),
        }
    }
    ChipRecords::parse("records.json", text.to_string().as_bytes()).unwrap()
}

/// A run of 1 ms whose anchors say that cycle 0 was at its start, to 50 ns.
fn anchored() -> Trace {
    Log::default()
        .chip((1, 0), "simpler_run 1000000 1000000")
        .device_anchor(1, 1_000_000, 0, 30)
        .device_anchor(1, 2_000_000, 50_000, 30)
        .finish()
}

#[test]
fn cores_schedulers_and_orchestrators_have_a_track_each_beside_their_chip() {
    let document = draw(&trace_of("swimlane/run.log"), &[chip_records()]);
    let processes = names(&document, "process_name");
    assert_eq!(
        processes[1..],
        [
            (41, 0, "simpler chip child (pid=41)"),
            (42, 0, "AICPU orchestrators (pid=41), placed to ±52 ns"),
            (43, 0, "AICPU schedulers (pid=41), placed to ±57 ns"),
            (44, 0, "AICore (pid=41), placed to ±57 ns"),
        ]
    );
    let of = |pid: u64| -> Vec<&str> {
        let named = names(&document, "thread_name").into_iter();
        named.filter(|named| named.0 == pid).map(|named| named.2).collect()
    };
    assert_eq!(of(42), ["orchestrator 2"]);
    assert_eq!(of(43), ["scheduler 0"]);
    assert_eq!(of(44), ["AIC 0", "AIC 0, lane 1", "AIV 1"]);
    // The second task was dispatched while the first ran: both keep their kernel with their window.
    for task in [7, 8] {
        let window = named(&document, &format!("task {task}: dispatch to finish"))[0];
        let kernel = named(&document, &format!("task {task}"))[0];
        assert_eq!((&kernel["pid"], &kernel["tid"]), (&window["pid"], &window["tid"]));
        assert!(ns(&window["ts"]) <= ns(&kernel["ts"]));
    }
    let order: Vec<u64> = events(&document)
        .iter()
        .filter(|event| event["name"] == "process_sort_index")
        .map(|event| event["pid"].as_u64().unwrap())
        .collect();
    assert_eq!(order, [40, 41, 42, 43, 44]);
}

#[test]
fn a_record_lies_where_the_log_s_anchors_put_its_cycles() {
    let records = file(1, &json!({"aicore_tasks": [[1, 9, 1, 5_000, 10_000, 4]]}));
    let (document, written) = written(&anchored(), std::slice::from_ref(&records));
    let kernel = named(&document, "task 9")[0];
    assert_eq!((ns(&kernel["ts"]), ns(&kernel["dur"])), (1_100_000, 100_000));
    assert_eq!(
        kernel["args"],
        json!({
            "inv": 1, "task": 9, "reg": 1, "receive_to_start_cycles": 4, "start_cycles": 5_000,
            "end_cycles": 10_000, "error_ns": 50,
        })
    );
    assert_eq!(track_of(&document, kernel), "AIV 1");
    assert_eq!(written.chip_records, 1);
    assert_eq!(
        document["chipSwimlaneRecords"],
        json!([{
            "source": "records.json", "pid": 41, "inv": 1, "records": 1, "drawn": 1, "clock": "log",
            "error_ns": 50,
        }])
    );
    assert!(swimlane::warnings(&anchored(), &[records]).is_empty());
}

#[test]
fn what_the_host_did_of_a_graph_stands_where_its_own_clock_says() {
    let records = [file(
        1,
        &json!({
            "host_orchestrator_phases": [[
                {"submit_idx": 0, "task_id": 7, "start_host_ns": 1_000_100, "end_host_ns": 1_000_200},
                {"submit_idx": 1, "task_id": 8, "start_host_ns": 1_000_300, "end_host_ns": 1_000_250},
            ]],
            "host_device_uploads": [
                {"phase": "graph_upload", "start_host_ns": 1_000_400, "end_host_ns": 1_000_450, "detail": 640},
            ],
        }),
    )];
    let (document, written) = written(&anchored(), &records);
    assert_eq!((records[0].count(), written.chip_records), (3, 2));
    let submit = named(&document, "submit task 7")[0];
    assert_eq!((ns(&submit["ts"]), ns(&submit["dur"])), (1_000_100, 100));
    assert_eq!(submit["args"], json!({"inv": 1, "submit_idx": 0, "task": 7, "error_ns": 0}));
    assert_eq!(track_of(&document, submit), "orchestration 0");
    let upload = named(&document, "graph_upload")[0];
    assert_eq!((ns(&upload["ts"]), ns(&upload["dur"])), (1_000_400, 50));
    assert_eq!(upload["args"], json!({"inv": 1, "bytes": 640, "error_ns": 0}));
    assert_eq!(track_of(&document, upload), "uploads");
    assert_eq!(names(&document, "process_name")[1].2, "host_build_graph (pid=41), placed to ±0 ns");
    let [warning] = &swimlane::warnings(&anchored(), &records)[..] else { panic!() };
    assert!(warning.contains(" 1 chip swimlane record(s) end before they start"), "{warning}");
}

#[test]
fn a_file_s_own_anchors_serve_where_the_log_has_none() {
    let anchors = |half: Option<u64>| -> Value {
        let anchor = |host: u64, cycles: u64| {
            let mut anchor = json!({"host_monotonic_ns": host, "device_cycles": cycles});
            if let Some(half) = half {
                anchor["half_ns"] = half.into();
            }
            anchor
        };
        json!({
            "metadata": {"clock_anchors": [anchor(3_000_000, 0), anchor(4_000_000, 50_000)]},
            "aicpu_tasks": [[0, 1, 5_000, 10_000]],
        })
    };
    for (half, bound, error_ns) in
        [(Some(80), "±100 ns", json!(100)), (None, "an unknown bound", Value::Null)]
    {
        let document = draw(&anchored(), &[file(2, &anchors(half))]);
        let window = named(&document, "reg 1: dispatch to finish")[0];
        assert_eq!(ns(&window["ts"]), 3_100_000);
        assert_eq!(window["args"]["error_ns"], error_ns);
        assert_eq!(names(&document, "process_name")[1].2, format!("AICore (pid=41), placed to {bound}"));
        assert_eq!(document["chipSwimlaneRecords"][0]["clock"], "file");
    }
    // The log's go before the file's.
    let document = draw(&anchored(), &[file(1, &anchors(Some(80)))]);
    assert_eq!(ns(&named(&document, "reg 1: dispatch to finish")[0]["ts"]), 1_100_000);
}

#[test]
fn a_file_without_any_clock_is_left_out_and_said() {
    let records = [
        file(2, &json!({"aicore_tasks": [[0, 9, 1, 5, 10, 4]]})),
        file(3, &json!({"aicore_tasks": [[0, 9, 1, 5, 10, 4]]})),
    ];
    let (document, written) = written(&anchored(), &records);
    assert_eq!(written.chip_records, 0);
    assert_eq!(names(&document, "process_name").len(), 1);
    assert_eq!(document["chipSwimlaneRecords"][0]["drawn"], 0);
    let [warning] = &swimlane::warnings(&anchored(), &records)[..] else { panic!() };
    assert!(
        warning.starts_with("warning: 2 chip swimlane records file(s) are left out of the picture"),
        "{warning}"
    );
}

#[test]
fn records_that_were_lost_are_said_and_stand_in_the_picture() {
    let lossy = |records: Value| file(1, &json!({"metadata": {"records": records}}));
    for (records, warning) in [
        (
            json!({"aicore_tasks": {"collected": 5, "dropped": 2, "total": 7}}),
            "warning: records.json: 2 chip swimlane record(s) were dropped on the device",
        ),
        (
            json!({"aicore_tasks": {"collected": 5, "dropped": 0, "total": 7}}),
            "warning: records.json: collected and dropped chip swimlane records do not add up to those made: \
             aicore_tasks 5 + 0 of 7",
        ),
        (json!({"is_exact": false}), "do not add up to those made: the file says so"),
    ] {
        let records = [lossy(records)];
        let warnings = swimlane::warnings(&anchored(), &records);
        assert!(warnings.len() == 1 && warnings[0].contains(warning), "{warnings:?}");
        let said = &draw(&anchored(), &records)["chipSwimlaneRecords"][0];
        assert!(said["dropped"].as_u64() > Some(0) || said["adds_up"] == false, "{said}");
    }
}

#[test]
fn a_record_that_never_ended_is_left_out_and_counted() {
    let records = [file(
        1,
        &json!({"aicpu_tasks": [[0, 1, 5, 0], [0, 2, 5, 6]], "aicore_tasks": [[0, 9, 1, 7, 6, 0]]}),
    )];
    assert_eq!(written(&anchored(), &records).1.chip_records, 1);
    let [warning] = &swimlane::warnings(&anchored(), &records)[..] else { panic!() };
    assert!(warning.contains(" 2 chip swimlane record(s) end before they start"), "{warning}");
}

#[test]
fn a_number_that_was_used_again_takes_the_anchors_around_its_records() {
    let run = |log: Log, start: i64, cycle: u64| {
        log.chip((1, 0), &format!("simpler_run {start} 1000000"))
            .device_anchor(1, start, cycle, 30)
            .device_anchor(1, start + 1_000_000, cycle + 50_000, 30)
    };
    let trace = run(run(Log::default(), 1_000_000, 0), 9_000_000, 900_000).finish();
    for (cycle, at) in [(5_000, 1_100_000), (905_000, 9_100_000)] {
        let records = file(1, &json!({"aicore_tasks": [[0, 9, 1, cycle, cycle + 1, 4]]}));
        assert_eq!(ns(&named(&draw(&trace, &[records]), "task 9")[0]["ts"]), at);
    }
}

#[test]
fn ids_of_tracks_that_the_log_does_not_have_are_nobody_s() {
    let document = Log::default()
        .span((u64::MAX, u64::MAX), (1, 0), "simpler_run 1000 500")
        .span((u64::MAX, u64::MAX), (2, 0), "simpler_run 1300 500")
        .span((1, 1), (2, 0), "simpler_run 1300 500")
        .draw();
    let tids: Vec<u64> = thread_names(&document).into_iter().map(|(tid, _)| tid).collect();
    assert_eq!(tids, [1, 2, u64::MAX]);
}

/// Draws a log with what was recorded of its bindings, a pass a line.
fn draw_with_phases(log: Log, passes: &str) -> (Value, Written) {
    let trace = log.finish();
    let phases = trace.host_phases(&HostPhaseFile::parse(passes.as_bytes()).passes);
    let mut out = Vec::new();
    let written = swimlane::write(&mut out, &trace, &[], &phases).unwrap();
    (serde_json::from_slice(&out).unwrap(), written)
}

/// A run on thread 77 whose binding takes from 1000 to 1500.
fn bound() -> Log {
    Log::default().chip((1, 0), "chip.run 1000 900").chip((1, 1), "chip.run.bind 1000 500")
}

#[test]
fn the_phases_of_a_binding_nest_below_it_and_another_thread_s_have_a_lane_of_their_own() {
    let mut log = bound();
    log.0.anchor(ClockAnchor { pid: 41, mono_ns: 100, wall_ns: 1_790_000_000_000_000_100 });
    let (document, written) = draw_with_phases(
        log,
        r#"{"pid": 41, "inv": 1, "records": [
            {"phase": "args", "start_ns": 1000, "end_ns": 1100, "detail": 3},
            {"phase": "host_orch", "start_ns": 1100, "end_ns": 1400, "tid": 77},
            {"phase": "graph_submit", "start_ns": 1110, "end_ns": 1150, "tid": 77},
            {"phase": "record_in_graph_task", "start_ns": 1120, "end_ns": 1160, "tid": 88}
        ]}"#
        .replace('\n', " ")
        .as_str(),
    );
    assert_nested(&document);
    assert_eq!((written.host_spans, written.host_phase_records, written.bind_phases), (2, 4, 0));
    assert_eq!(thread_names(&document), [(77, "graph submit main"), (88, "graph record worker")]);
    let args = named(&document, "chip.run.bind.args")[0];
    assert_eq!(
        (&args["pid"], &args["tid"], ns(&args["ts"]), ns(&args["dur"])),
        (&json!(41), &json!(77), 1000, 100)
    );
    assert_eq!(
        args["args"],
        json!({
            "inv": 1, "hid": "b7e2", "depth": 2, "os_tid": 77,
            "attrs": "detail=3 src=host_phase_records host_phase_thread=host_main",
            "detail": 3, "src": "host_phase_records", "host_phase_thread": "host_main",
            "wall_ts_ns": "1790000000000001000", "wall_time": "2026-09-21T14:13:20.000001000Z",
        })
    );
    let recorded = named(&document, "chip.run.bind.host_orch.record_in_graph_task")[0];
    assert_eq!((&recorded["tid"], &recorded["args"]["depth"]), (&json!(88), &json!(3)));
    assert_eq!(recorded["args"]["host_phase_thread"], "graph_record_worker");
    assert!(recorded["args"].get("detail").is_none(), "missing is not 0");
}

#[test]
fn older_words_and_records_without_a_thread_stay_where_they_can_be_placed() {
    let (document, _) = draw_with_phases(
        bound(),
        "{\"pid\": 41, \"inv\": 1, \"records\": [{\"phase\": \"record_node\", \"start_ns\": 1100, \"end_ns\": 1200}, \
         {\"phase\": \"record_node\", \"start_ns\": 1100, \"end_ns\": 1200, \"tid\": 88}, \
         {\"phase\": \"build_definition\", \"start_ns\": 1300, \"end_ns\": 1400, \"tid\": 0}]}",
    );
    assert_eq!(thread_names(&document), [(77, "chip child"), (88, "graph record worker")]);
    let tids: Vec<&Value> =
        named(&document, "chip.run.bind.host_orch.record_node").iter().map(|event| &event["tid"]).collect();
    assert_eq!(tids, [77, 88]);
    assert_eq!(named(&document, "chip.run.bind.host_orch.build_definition")[0]["tid"], 77);
}

#[test]
fn phases_follow_their_run_to_its_slot_s_lane_and_reshape_none() {
    let log = pipeline(["slot_id=0", "slot_id=1"]);
    let (document, _) = draw_with_phases(
        log,
        "{\"pid\": 41, \"inv\": 2, \"records\": [{\"phase\": \"args\", \"start_ns\": 1310, \"end_ns\": 1320}]}",
    );
    assert_eq!(thread_names(&document), [(78, "pipeline slot 0 (tid 77)"), (79, "pipeline slot 1 (tid 77)")]);
    let args = named(&document, "simpler_run.bind.args")[0];
    assert_eq!((&args["tid"], &args["args"]["os_tid"]), (&json!(79), &json!(77)));
}

#[test]
fn plain_lines_of_the_log_are_drawn_where_no_pass_says_more() {
    let trace = trace_of("swimlane/bind-phases.log");
    let phases = trace.host_phases(&[]);
    let mut out = Vec::new();
    let written = swimlane::write(&mut out, &trace, &[], &phases).unwrap();
    assert_eq!((written.host_spans, written.bind_phases, written.host_phase_records), (4, 4, 0));
    let document: Value = serde_json::from_slice(&out).unwrap();
    assert_nested(&document);
    let upload = named(&document, "simpler_run.bind.graph_upload")[1];
    assert_eq!((ns(&upload["ts"]), ns(&upload["dur"]), &upload["tid"]), (20_450, 30, &json!(42)));
    assert_eq!((&upload["args"]["bytes"], &upload["args"]["count"]), (&json!(4096), &json!(2)));
    assert_eq!((&upload["args"]["inv"], &upload["args"]["depth"]), (&json!(2), &json!(2)));
    assert_eq!(upload["args"]["attrs"], "bytes=4096 count=2 src=bind_phase host_phase_thread=host_main");

    let pass = "{\"pid\": 41, \"inv\": 2, \"records\": [{\"phase\": \"args\", \"start_ns\": 20010, \"end_ns\": 20020}]}";
    let phases = trace.host_phases(&HostPhaseFile::parse(pass.as_bytes()).passes);
    let written = swimlane::write(&mut Vec::new(), &trace, &[], &phases).unwrap();
    assert_eq!((written.bind_phases, written.host_phase_records), (2, 1));
}

/// What a record may begin and end with.
fn cycles() -> impl Strategy<Value = (u64, u64)> {
    (0..60_000_u64, 0..20_000_u64).prop_map(|(start, length)| (start, start + length))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever overlaps with what, on the host and on the device.
    #[test]
    fn on_each_track_spans_nest_or_keep_apart_and_no_arrow_leads_back(
        spans in prop::collection::vec(
            (0..3_u64, 0..6_usize, 0..4_u64, 0..3_u32, 0..3000_i64, 0..1000_i64, 0..4_u64),
            0..40,
        ),
        kernels in prop::collection::vec((0..2_u64, 0..4_u64, cycles()), 0..20),
        windows in prop::collection::vec((0..2_u64, 0..4_u64, cycles()), 0..20),
        phases in prop::collection::vec(cycles(), 0..20),
        submits in prop::collection::vec(cycles(), 0..20),
        scopes in prop::collection::vec((cycles(), 0..3_u64), 0..20),
    ) {
        let words = ["simpler_run", "simpler_run.bind", "node.submit", "node.dispatch", "ext.a.b", "x"];
        let mut log = Log::default();
        for &(tid, word, inv, depth, ts, dur, slot) in &spans {
            let attrs = format!("run_id={} task_slot={inv} slot_id={slot}", inv % 2);
            let text = format!("{} {ts} {dur} {attrs}", words[word]);
            log = log.span((41, tid), (inv, depth), &text);
        }
        let count = spans.len();
        let trace = log
            .span((41, 0), (9, 0), "simpler_run 0 1000000")
            .device_anchor(9, 0, 0, 30)
            .device_anchor(9, 1_000_000, 50_000, 30)
            .finish();
        let phase = |&(start, end): &(u64, u64)| json!({"kind": "x", "start_cycles": start, "end_cycles": end});
        let records = file(9, &json!({
            "aicore_tasks": kernels.iter().map(|(core, reg, at)| json!([core, 1, reg, at.0, at.1, 0])).collect::<Vec<_>>(),
            "aicpu_tasks": windows.iter().map(|(core, reg, at)| json!([core, reg, at.0, at.1])).collect::<Vec<_>>(),
            "aicpu_scheduler_phases": [phases.iter().map(phase).collect::<Vec<_>>()],
            "aicpu_orchestrator_phases": [submits.iter().map(phase).collect::<Vec<_>>()],
            "named_scopes": [scopes.iter().map(|(at, depth)| json!({
                "name": "s", "start_cycles": at.0, "end_cycles": at.1, "depth": depth,
            })).collect::<Vec<_>>()],
        }));
        let held = records.count();
        let (document, written) = written(&trace, &[records]);
        assert_nested(&document);
        prop_assert_eq!((written.host_spans, written.chip_records), (count + 1, held));
        prop_assert_eq!(complete(&document).len(), count + 1 + held);
        for (source, target) in flows(&document) {
            prop_assert!(ns(&source["ts"]) <= ns(&target["ts"]));
        }
        let ids: Vec<(u64, u64, &str)> = names(&document, "thread_name");
        prop_assert!(ids.windows(2).all(|pair| (pair[0].0, pair[0].1) < (pair[1].0, pair[1].1)), "{ids:?}");
    }
}
