//! The timeline as a viewer reads it.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod picture;

use picture::{assert_nested, complete, ns};
use serde_json::Value;
use simpler_trace_export::chrome::{self, Lanes};
use simpler_trace_ingest::{Source, read};
use std::path::Path;

fn write(log: &str, lanes: Lanes) -> (String, usize) {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let trace = read(&[Source::path(data.join(log))]).unwrap().trace;
    let mut out = Vec::new();
    let spans = chrome::write(&mut out, &trace, lanes).unwrap();
    (String::from_utf8(out).unwrap(), spans)
}

fn case(name: &str, lanes: Lanes) -> Value {
    serde_json::from_str(&write(&format!("cases/{name}/input.log"), lanes).0).unwrap()
}

#[test]
fn spans_of_one_track_nest_or_keep_apart() {
    for log in ["overlapping-roots-one-thread", "interleaved-threads", "straggler-rank", "effective-window"] {
        let document = case(log, Lanes::Thread);
        assert_nested(&document);
    }
    let (text, spans) = write("logs/l3_ffn_tp_a2a3sim.log", Lanes::Thread);
    let document: Value = serde_json::from_str(&text).unwrap();
    assert_nested(&document);
    assert_eq!((complete(&document).len(), spans), (69, 69));
}

#[test]
fn a_pipeline_on_one_thread_takes_two_lanes_and_says_the_real_thread() {
    let document = case("overlapping-roots-one-thread", Lanes::Thread);
    let roots: Vec<&Value> =
        complete(&document).into_iter().filter(|event| event["name"] == "simpler_run").collect();
    let tids: Vec<u64> = roots.iter().map(|event| event["tid"].as_u64().unwrap()).collect();
    assert_eq!(tids, [77, 78, 77, 78]);
    assert_eq!(roots[1]["args"]["os_tid"], 77);
}

#[test]
fn processes_and_threads_are_the_real_ones_and_named() {
    let (text, _) = write("logs/l3_ffn_tp_a2a3sim.log", Lanes::Thread);
    let document: Value = serde_json::from_str(&text).unwrap();
    let names: Vec<(u64, &str)> = document["traceEvents"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|event| event["name"] == "process_name")
        .map(|event| (event["pid"].as_u64().unwrap(), event["args"]["name"].as_str().unwrap()))
        .collect();
    assert_eq!(
        names,
        [
            (29893, "simpler node (pid=29893)"),
            (29966, "simpler chip child (pid=29966)"),
            (29967, "simpler chip child (pid=29967)"),
        ]
    );
    let anchors = document["clockAnchors"].as_array().unwrap();
    assert_eq!(anchors.len(), 3);
    assert_eq!(anchors[0]["mono_ns"], "3994328513138");
}

#[test]
fn device_spans_start_with_the_blocking_wait_and_say_how_sure_that_is() {
    let document = case("device-before-host-root", Lanes::Thread);
    let events = complete(&document);
    let of =
        |name: &str| events.iter().find(|event| event["name"].as_str().unwrap().ends_with(name)).unwrap();
    let (wait, wall, orch) = (of(".runner_run"), of(".device_wall"), of(".orch"));
    assert_eq!(wait["ts"], wall["ts"]);
    assert_ne!(wait["tid"], wall["tid"]);
    assert_eq!(ns(&orch["ts"]), ns(&wall["ts"]) + 20_000_000);
    assert_eq!(wall["args"]["slack_ns"], 500_000);
    assert_eq!(orch["args"]["dev_ts_ns"], 20_000_000);
    assert!(events.iter().all(|event| ns(&event["ts"]) >= 88_400_000_000_000));
}

#[test]
fn device_spans_whose_wait_is_lost_stay_off_the_axis() {
    let (text, spans) = write("cases/crlf/input.log", Lanes::Thread);
    let document: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(spans, 3);
    assert_eq!(complete(&document).len(), 2);
    assert_eq!(document["unalignedDeviceSpans"][0]["dur_ns"], 5200);
}

#[test]
fn every_nanosecond_is_in_the_text() {
    let (text, _) = write("cases/nanosecond-precision/input.log", Lanes::Thread);
    for exact in ["1790000000123456.789", "1790000000123456.790", "9007199254740.993"] {
        assert!(text.contains(&format!("\"ts\":{exact},")), "{exact}");
    }
    let (text, _) = write("cases/u64-limits/input.log", Lanes::Thread);
    assert!(text.contains("\"inv\":18446744073709551615,"));
}

#[test]
fn bytes_that_are_no_text_still_make_valid_json() {
    let document = case("invalid-utf8", Lanes::Thread);
    assert!(complete(&document).iter().any(|event| event["args"]["attrs"] == "note=caf\u{fffd}"));
}

#[test]
fn wall_time_comes_from_the_anchor_of_the_span_s_own_life() {
    let document = case("anchors-repeated", Lanes::Thread);
    let wall: Vec<&str> =
        complete(&document).iter().map(|event| event["args"]["wall_ts_ns"].as_str().unwrap()).collect();
    assert_eq!(wall, ["1790000000000001000", "1790000013000001000"]);
    assert_eq!(complete(&document)[0]["args"]["wall_time"], "2026-09-21T14:13:20.000001000Z");
    let document = case("missing-root", Lanes::Thread);
    assert!(complete(&document)[0]["args"].get("wall_ts_ns").is_none());
}

#[test]
fn the_older_layout_has_a_process_an_invocation() {
    let document = case("same-inv-across-pids", Lanes::Invocation);
    let names: Vec<&str> = document["traceEvents"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|event| event["ph"] == "M")
        .map(|event| event["args"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(names[..3], ["decode inv=1 (pid=41)", "host", "device (clk=dev)"]);
    assert_eq!(names.len(), 9);
    let device = complete(&document).into_iter().find(|event| event["tid"] == 1).unwrap();
    assert_eq!((&device["pid"], &device["ts"]), (&Value::from(1), &Value::from(0)));
}

/// Two hosts, a process of one pid on each.
fn two_hosts() -> simpler_trace_model::Trace {
    let of = |host: u64| {
        format!(
            "[mono_ns=1][T0x1][TIMING] clock_anchor: [CLOCK_ANCHOR] v=1 pid=7 mono_ns={host} wall_ns=9000\n\
             [mono_ns=1][T0x1][TIMING] host.identity: [HOST_IDENTITY] v=1 pid=7 host={host:016x} name=node\n\
             [STRACE] v=1 pid=7 tid=7 inv=1 hid=a depth=0 name=simpler_run ts=1000 dur=500 \n"
        )
    };
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("two-hosts.log");
    std::fs::write(&file, of(1) + &of(2)).unwrap();
    read(&[Source::path(file)]).unwrap().trace
}

#[test]
fn processes_of_one_pid_on_two_hosts_have_tracks_of_their_own() {
    let trace = two_hosts();
    let mut chrome = Vec::new();
    chrome::write(&mut chrome, &trace, Lanes::Thread).unwrap();
    let mut swimlane = Vec::new();
    simpler_trace_export::swimlane::write(&mut swimlane, &trace, &[], &trace.host_phases(&[])).unwrap();
    for picture in [chrome, swimlane] {
        let document: Value = serde_json::from_slice(&picture).unwrap();
        let pids: Vec<&Value> = complete(&document).iter().map(|event| &event["pid"]).collect();
        assert_eq!(pids, [7, 10_000_007]);
        let named = |event: &&Value| event["name"] == "process_name";
        let names: Vec<_> = document["traceEvents"].as_array().unwrap().iter().filter(named).collect();
        let names: Vec<_> = names.iter().map(|event| (&event["pid"], &event["args"]["name"])).collect();
        assert_eq!(names[0].1, "simpler chip child (pid=7 on node 0000000000000001)");
        assert_eq!(names[1].1, "simpler chip child (pid=7 on node 0000000000000002)");
        assert_eq!((names[0].0, names[1].0), (pids[0], pids[1]));
    }
}
