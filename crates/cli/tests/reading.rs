//! The reading commands from outside: what they print where, and how they exit.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use serde_json::Value;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

fn simpler(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_simpler"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn run(arguments: &[&str]) -> Output {
    simpler(arguments).output().unwrap()
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

/// A file of its own for each test.
fn file(name: &str, bytes: impl AsRef<[u8]>) -> String {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, bytes).unwrap();
    path.to_str().unwrap().to_owned()
}

fn record(inv: u32, rest: &str) -> String {
    let head = "[T0x7f00][TIMING] emit_host_span: [STRACE] v=1 pid=41 tid=41";
    format!("[mono_ns={inv}9000]{head} inv={inv} hid=b7e2 {rest}\n")
}

/// Runs with an anchor, and nothing wrong.
fn whole(runs: u32) -> String {
    let anchor = "[mono_ns=1][T0x7f00][TIMING] clock_anchor: [CLOCK_ANCHOR] v=1 pid=41 mono_ns=1 wall_ns=1790000000000000000\n";
    let run = |inv: u32| {
        record(inv, &format!("depth=1 name=simpler_run.bind ts={inv}0010 dur=1000 "))
            + &record(inv, &format!("depth=0 name=simpler_run ts={inv}0000 dur=5000 "))
    };
    anchor.to_owned() + &(1..=runs).map(run).collect::<String>()
}

fn torn() -> String {
    whole(2) + "[mono_ns=9][T0x7f00][TIMING] emit_host_span: [STRACE] v=1 pid=41 tid=4\n"
}

#[test]
fn a_whole_log_gives_a_table_and_nothing_else() {
    let log = file("whole.log", whole(2));
    let output = run(&["timing", &log]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(
        stdout(&output),
        "callable hid=b7e2 — 2 invocation(s)\n  simpler_run: mean=5.0us min=5.0us max=5.0us\n    \
         simpler_run.bind: mean=1.0us (n=2)\n\n"
    );
    assert_eq!(stderr(&output), "");
}

/// Two runs with an identity, the second bound while the first is on the device, or only after it.
fn phased(overlapped: bool) -> String {
    let run = |inv: u32, ts: u32, bind: u32| {
        let who = format!("run_id=1 dispatch_id={inv} run_epoch={inv} slot_id={} generation=1", inv % 2);
        record(inv, &format!("depth=1 name=simpler_run.bind ts={bind} dur=100 "))
            + &record(inv, &format!("depth=1 name=simpler_run.runner_run ts={ts} dur=1000 "))
            + &record(inv, &format!("depth=1 name=simpler_run.claim_release ts={} dur=10 ", ts + 1000))
            + &record(inv, &format!("depth=0 name=simpler_run ts={bind} dur={} {who}", ts + 1020 - bind))
    };
    whole(0) + &run(1, 1000, 800) + &run(2, 3000, if overlapped { 1500 } else { 2500 })
}

#[test]
fn overlap_is_proved_before_anything_else_or_exits_with_2_and_writes_nothing() {
    let (yes, no) = (file("overlapped.log", phased(true)), file("serial.log", phased(false)));
    let output = run(&["timing", &yes, "--assert-native-overlap", "--require-hidden-prepare", "--tree"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(stdout(&output), "Native overlap verified for 1 adjacent dispatch pair(s).\n");
    let picture = file("serial.json", "");
    std::fs::remove_file(&picture).unwrap();
    let output = run(&["timing", &no, "--assert-native-overlap", "--trace-out", &picture]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(stdout(&output), "");
    assert!(
        stderr(&output)
            .starts_with("native overlap assertion failed: bind of pid 41 inv 2 (sequence 2) did not"),
        "{}",
        stderr(&output)
    );
    assert!(!std::path::Path::new(&picture).exists());
    let output = run(&["timing", &yes, "--require-hidden-prepare"]);
    assert_eq!(output.status.code(), Some(2), "it says nothing by itself");
}

#[test]
fn the_rounds_table_goes_before_the_tree() {
    let log = file("views.log", whole(2));
    let rounds = run(&["timing", &log, "--tree", "--rounds-table"]);
    assert!(stdout(&rounds).starts_with("  Round      Host (us)\n"));
    let tree = run(&["timing", &log, "--tree"]);
    assert!(
        stdout(&tree).starts_with("callable hid=b7e2 (decode) — median of 2 invocation(s)\nsimpler_run ")
    );
}

#[test]
fn one_view_is_printed_by_precedence() {
    let log = file("precedence.log", whole(2));
    let views = [
        ("--rounds-table", "  Round "),
        ("--steps", "callable hid=b7e2 (decode) — 2 step(s) of 1 rank(s), aligned by order\n  Step "),
        ("--dispatches", "dispatches — 0 joined "),
        ("--slots", ""),
        ("--self", "callable hid=b7e2 (decode) — self time, mean of 2 invocation(s)\n"),
        ("--tree", "callable hid=b7e2 (decode) — median of 2 invocation(s)\n"),
    ];
    for (first, (option, begins)) in views.iter().enumerate() {
        let mut arguments = vec!["timing", &log];
        arguments.extend(views[first..].iter().rev().map(|(option, _)| *option));
        let output = run(&arguments);
        assert_eq!(output.status.code(), Some(0));
        assert!(stdout(&output).starts_with(begins), "{option}: {}", stdout(&output));
        assert_eq!(stdout(&output).is_empty(), begins.is_empty(), "{option}");
    }
}

#[test]
fn steps_dispatches_and_self_times_are_figures_when_they_are_asked_for() {
    let log = file("figures.log", phased(true));
    let output = run(&["timing", "--json", "--steps", "--dispatches", "--self", &log]);
    assert_eq!(stdout(&output).lines().count(), 1);
    let answer: Value = serde_json::from_str(stdout(&output)).unwrap();
    let steps = &answer["steps"][0];
    assert_eq!((&steps["complete"], &steps["aligned_by"]), (&Value::from(2), &Value::from("order")));
    assert_eq!(steps["steps"][0]["critical_pid"], 41);
    assert!(steps["steps"][0].get("device_ns").is_none(), "the log has no device spans");
    assert_eq!(answer["dispatches"]["unmatched_roots"], 2, "attributes are kept");
    let times = &answer["callables"][0]["self_times"];
    let own: i64 =
        times["spans"].as_array().unwrap().iter().map(|span| span["self_ns"].as_i64().unwrap()).sum();
    assert_eq!(times["root_ns"].as_i64(), Some(own));
    let once = file("once.log", whole(1));
    let output = run(&["timing", "--steps", &once]);
    assert_eq!((output.status.code(), stdout(&output)), (Some(0), ""));
    assert_eq!(stderr(&output), "note: no callable ran more than once on a rank, so there are no steps\n");
}

#[test]
fn losses_are_said_before_any_number_and_with_their_place() {
    let log = file("torn.log", torn());
    let output = run(&["timing", &log]);
    assert_eq!(output.status.code(), Some(0));
    assert!(
        stderr(&output).starts_with("warning: 1 of 5 [STRACE] records are incomplete"),
        "{}",
        stderr(&output)
    );
    let at = torn().find("[STRACE] v=1 pid=41 tid=4\n").unwrap();
    assert!(stderr(&output).contains(&format!("{log}: byte {at}: ")));
    assert!(stdout(&output).contains("simpler_run: mean=5.0us"));
}

#[test]
fn records_lost_before_the_log_are_said_before_any_number() {
    let drops = "[mono_ns=9][T0x7f00][ERROR] host_log_drops: [HOSTLOG_DROPS] v=1 pid=41 new=3 total=5 queue_full=5 \
                 claim_exhausted=0 output_failed=0 not_admitted=0\n";
    let output = run(&["timing", &file("drops.log", whole(2) + drops)]);
    assert_eq!(output.status.code(), Some(0));
    let said = "warning: pid 41 dropped 5 host-log record(s) before they reached the destination (queue_full=5 \
                claim_exhausted=0 output_failed=0 not_admitted=0); the timing below is computed from an incomplete log\n";
    assert_eq!(stderr(&output), said);
    let of_another_version = drops.replace("v=1", "v=2");
    assert_eq!(stderr(&run(&["timing", &file("drops-2.log", whole(2) + &of_another_version)])), "");
}

#[test]
fn several_files_are_one_log() {
    let second = whole(3).replace("pid=41 tid=41", "pid=42 tid=42").replace("pid=41 mono", "pid=42 mono");
    let logs = [file("one.log", whole(2)), file("two.log", second)];
    let output = run(&["timing", &logs[0], &logs[1]]);
    assert_eq!(stderr(&output), "");
    assert!(stdout(&output).contains(" — 5 invocation(s)\n"), "{}", stdout(&output));
}

#[test]
fn only_the_first_ten_complaints_are_printed() {
    let log = file("many.log", whole(1) + &"[STRACE] v=1 pid=\n".repeat(25));
    let output = run(&["timing", &log]);
    assert_eq!(stderr(&output).matches("many.log: byte").count(), 10);
    assert!(stderr(&output).ends_with("and 15 more complaints\n"));
}

#[test]
fn what_cannot_be_used_is_a_sentence_and_2() {
    let empty = file("empty.log", "");
    let prose = file("prose.log", "[mono_ns=1][T0x1][INFO] poll: hello\n");
    let binary = file("binary.log", b"\x7fELF\0\x01[STRACE] v=1 \t\xff\0[STRACE]\n");
    let folder = env!("CARGO_MANIFEST_DIR").to_owned();
    for (input, word) in [
        ("/nonexistent/log", "/nonexistent/log"),
        (&empty, "is empty"),
        ("/dev/null", "is empty"),
        (&prose, "threshold"),
        (&binary, "1 damaged"),
        (&folder, "holds no host.*.log"),
    ] {
        for command in ["timing", "check"] {
            let output = run(&[command, input]);
            assert_eq!(output.status.code(), Some(2), "{command} {input}");
            assert!(stderr(&output).lines().last().unwrap().contains(word), "{}", stderr(&output));
            assert_eq!(stdout(&output), "", "no table of zeros");
            let output = run(&[command, "--json", input]);
            assert_eq!(output.status.code(), Some(2), "{command} --json {input}");
            let answer: Value = serde_json::from_str(stdout(&output)).unwrap();
            assert!(answer["error"].as_str().unwrap().contains(word));
        }
    }
    assert_eq!(run(&["timing"]).status.code(), Some(2));
    assert_eq!(run(&["timing", "--no-such-option"]).status.code(), Some(2));
}

#[test]
fn standard_input_is_a_log_too() {
    let mut child = simpler(&["timing", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(whole(3).as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(stdout(&output).starts_with("callable hid=b7e2 — 3 invocation(s)"));
}

#[test]
fn timing_json_has_the_figures_and_the_integrity() {
    let log = file("json.log", torn());
    let output = run(&["timing", "--json", &log]);
    assert_eq!(stdout(&output).lines().count(), 1);
    let answer: Value = serde_json::from_str(stdout(&output)).unwrap();
    let callable = &answer["callables"][0];
    assert_eq!(callable["hid"], "b7e2");
    assert_eq!(callable["label"], "decode");
    assert_eq!(callable["invocations"], 2);
    for key in ["root_mean_ns", "root_min_ns", "root_max_ns", "root_median_ns"] {
        assert_eq!(callable[key], 5000, "{key}");
    }
    let stage = &callable["stages"][0];
    assert_eq!((&stage["name"], &stage["n"]), (&Value::from("simpler_run.bind"), &Value::from(2)));
    assert_eq!((&stage["mean_ns"], &stage["median_ns"]), (&Value::from(1000), &Value::from(1000)));
    assert!(callable.get("effective_mean_ns").is_none(), "the log has no device spans");
    let integrity = &answer["integrity"];
    assert_eq!((&integrity["heads"], &integrity["spans"]), (&Value::from(5), &Value::from(4)));
    assert_eq!(integrity["lossy"], true);
}

#[test]
fn strict_says_no_to_a_lossy_log_only() {
    let whole = file("strict-whole.log", whole(2));
    let torn = file("strict-torn.log", torn());
    assert_eq!(run(&["check", "--strict", &whole]).status.code(), Some(0));
    assert_eq!(run(&["check", &torn]).status.code(), Some(0));
    let output = run(&["check", "--strict", "--json", &torn]);
    assert_eq!(output.status.code(), Some(1));
    let answer: Value = serde_json::from_str(stdout(&output)).unwrap();
    assert_eq!((&answer["torn"], &answer["invocations"]), (&Value::from(1), &Value::from(2)));
    let text = run(&["check", &torn]);
    assert!(stdout(&text).contains("torn                       1  cut or glued"));
    assert!(stdout(&text).ends_with("records are lost: see above\n"));
}

/// Each of these proves a loss, or hides one.
#[test]
fn strict_says_no_to_whatever_was_cut_or_damaged() {
    let envelope = "[mono_ns=9][T0x7f00]";
    let cut_text = format!("{envelope}[INFO] poll: ");
    let cut_text = cut_text.clone() + &"x".repeat(510 - cut_text.len()) + "~\n";
    for (name, more, key) in [
        (
            "drops",
            format!("{envelope}[WARN] writer: [HOSTLOG_DROPS] v=1 pid=1 total=5 queue_f"),
            "damaged_drop_reports",
        ),
        ("anchor", format!("{envelope}[TIMING] clock_anchor: [CLOCK_ANCHOR] v=1 pid=4\n"), "damaged_anchors"),
        ("text", cut_text, "truncated_records"),
        (
            "field",
            record(3, &format!("depth=0 name={}~ ts=30000 dur=5000 ", "n".repeat(63))),
            "truncated_fields",
        ),
        (
            "orphan",
            record(1, "depth=2 name=simpler_run.bind.pack.copy ts=10020 dur=10 ")
                + &record(1, "depth=4 name=simpler_run.bind.pack.copy.row.cell ts=10020 dur=10 "),
            "orphans",
        ),
    ] {
        let log = file(&format!("strict-{name}.log"), whole(2) + &more);
        let output = run(&["check", "--strict", "--json", &log]);
        let answer: Value = serde_json::from_str(stdout(&output)).unwrap();
        assert!(answer[key].as_u64() > Some(0), "{name}: {answer}");
        assert_eq!(answer["lossy"], true, "{name}");
        assert_eq!(output.status.code(), Some(1), "{name}");
        assert_eq!(run(&["check", &log]).status.code(), Some(0), "{name}");
        assert!(stdout(&run(&["check", &log])).ends_with("records are lost: see above\n"), "{name}");
        let timing: Value = serde_json::from_str(stdout(&run(&["timing", "--json", &log]))).unwrap();
        assert_eq!(timing["integrity"]["lossy"], true, "{name}");
    }
}

#[test]
fn nobody_to_hear_the_warnings_changes_nothing_else() {
    let torn = file("deaf.log", torn());
    let nothing = file("deaf-empty.log", "");
    for (arguments, code) in [
        (&["timing", &torn][..], 0),
        (&["timing", "--json", &torn], 0),
        (&["timing", &nothing], 2),
        (&["check", "--strict", &torn], 1),
        (&["check", &nothing], 2),
        (&["check", "/nonexistent/log"], 2),
        (&["timing", &torn, "--trace-out", "/nonexistent/trace.json"], 2),
    ] {
        let heard = run(arguments);
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let (reader, closed) = std::io::pipe().unwrap();
        drop(reader);
        for stderr in [Stdio::from(full), Stdio::from(closed)] {
            let output = simpler(arguments).stderr(stderr).output().unwrap();
            assert_eq!(output.status.code(), Some(code), "{arguments:?}");
            assert_eq!(stdout(&output), stdout(&heard), "{arguments:?}");
        }
    }
}

#[test]
fn a_packed_log_that_yields_nothing_is_not_called_empty() {
    let cut = file("cut.log.gz", [0x1f, 0x8b, 8, 0, 0, 0]);
    let noise = file("noise.log.zst", [0x28, 0xb5, 0x2f, 0xfd, 0xff, 0xff, 0xff, 0xff, 0xff]);
    for log in [&cut, &noise] {
        let output = run(&["timing", log]);
        assert_eq!(output.status.code(), Some(2));
        assert!(
            stderr(&output).ends_with(&format!("{log} cannot be unpacked or read\n")),
            "{}",
            stderr(&output)
        );
    }
}

#[test]
fn a_median_between_two_values_keeps_its_half() {
    let root = |inv, dur| record(inv, &format!("depth=0 name=simpler_run ts={inv}0000 dur={dur} "));
    for (durations, median) in [([10, 11], Value::from(10.5)), ([10, 12], Value::from(11))] {
        let log = file("median.log", root(1, durations[0]) + &root(2, durations[1]));
        let answer: Value = serde_json::from_str(stdout(&run(&["timing", "--json", &log]))).unwrap();
        assert_eq!(answer["callables"][0]["root_median_ns"], median);
        let answer: Value = serde_json::from_str(stdout(&run(&["check", "--json", &log]))).unwrap();
        assert_eq!(answer["root_median_ns"], median);
    }
}

#[test]
fn the_trace_is_written_and_said() {
    let log = file("trace.log", whole(2));
    let out = file("trace.json", "");
    let output = run(&["timing", &log, "--trace-out", &out]);
    assert!(stdout(&output).ends_with(&format!("Wrote Chrome trace: {out} (4 spans)\n")));
    let trace: Value = serde_json::from_slice(&std::fs::read(&out).unwrap()).unwrap();
    let lanes = |trace: &Value| {
        let events = trace["traceEvents"].as_array().unwrap().clone();
        let pid = |event: &Value| event["pid"].as_u64().unwrap();
        events.iter().filter(|event| event["ph"] == "X").map(pid).collect::<Vec<u64>>()
    };
    assert_eq!(lanes(&trace), [41, 41, 41, 41]);

    let output = run(&["timing", "--json", &log, "--trace-out", &out, "--trace-lanes", "invocation"]);
    assert_eq!(stdout(&output).lines().count(), 1, "standard output is one object");
    assert!(stderr(&output).contains("Wrote Chrome trace"));
    let trace: Value = serde_json::from_slice(&std::fs::read(&out).unwrap()).unwrap();
    assert_eq!(lanes(&trace), [1, 1, 2, 2]);

    let output = run(&["timing", &log, "--trace-out", "/nonexistent/trace.json"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("cannot write /nonexistent/trace.json"));
}

/// A device span of the first run, with what places it or without.
fn device(anchors: bool) -> String {
    let anchor = |host_ns: u32, cycle: u32| {
        format!(
            "[mono_ns={host_ns}][T0x7f00][TIMING] clock.anchor: [DEV_CLOCK_ANCHOR] v=1 pid=41 inv=1 \
             host_ns={host_ns} dev_cyc={cycle} dev_freq=50000000 half_ns=30\n"
        )
    };
    let wall = "depth=2 name=simpler_run.runner_run.device_wall ts=0 dur=1000 clk=dev org_cyc=100";
    let anchors = if anchors { anchor(10_100, 50) + &anchor(14_900, 290) } else { String::new() };
    anchors + &record(1, wall)
}

#[test]
fn the_swimlane_is_written_and_said_beside_the_trace() {
    let trace = file("lanes-trace.json", "");
    let lanes = file("lanes.json", "");
    for (anchors, unaligned) in [(false, 1), (true, 0)] {
        let log = file("lanes.log", whole(2) + &device(anchors));
        let output = run(&["timing", &log, "--trace-out", &trace, "--swimlane", &lanes]);
        assert_eq!(output.status.code(), Some(0));
        let said = format!(
            "Wrote Chrome trace: {trace} (5 spans)\nWrote host swimlane: {lanes} (4 host spans, {unaligned} \
             unaligned device spans)\n"
        );
        assert!(stdout(&output).ends_with(&said), "{}", stdout(&output));
        let written: Value = serde_json::from_slice(&std::fs::read(&lanes).unwrap()).unwrap();
        let events = written["traceEvents"].as_array().unwrap();
        let spans = || events.iter().filter(|event| event["ph"] == "X");
        assert_eq!(spans().count(), 5 - unaligned);
        assert_eq!(spans().filter(|event| event["args"]["wall_time"].is_string()).count(), 4);
        // So does the trace, and both keep the monotonic times.
        let traced: Value = serde_json::from_slice(&std::fs::read(&trace).unwrap()).unwrap();
        let root = |document: &Value| {
            let events = document["traceEvents"].as_array().unwrap();
            let root = events.iter().find(|event| event["name"] == "simpler_run").unwrap();
            (root["ts"].clone(), root["args"]["wall_ts_ns"].clone())
        };
        assert_eq!(root(&written), (Value::from(10), Value::from("1790000000000009999")));
        assert_eq!(root(&traced), root(&written));
    }
    let log = file("lanes.log", whole(2));
    let output = run(&["timing", "--json", &log, "--swimlane", &lanes]);
    assert_eq!(stdout(&output).lines().count(), 1, "standard output is one object");
    assert!(stderr(&output).ends_with("(4 host spans, 0 unaligned device spans)\n"), "{}", stderr(&output));
    let output = run(&["timing", &log, "--swimlane", "/nonexistent/lanes.json"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("cannot write /nonexistent/lanes.json"));
}

/// A folder of a test's own, empty.
fn folder(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

/// A file of chip swimlane records of one run, that of a kernel.
fn chip_records(inv: u32, more: &str) -> String {
    format!(
        "{{\"metadata\": {{\"pid\": 41, \"inv\": {inv}{more}}}, \"aicore_tasks\": [[0, 7, 1, 110, 120, 3]]}}"
    )
}

#[test]
fn chip_swimlane_records_are_found_in_directories_and_drawn() {
    let log = file("chip.log", whole(2) + &device(true));
    let lanes = file("chip.json", "");
    let records = folder("chip-records");
    let lossy = ", \"records\": {\"aicore_tasks\": {\"collected\": 1, \"dropped\": 2, \"total\": 3}}";
    for (run, text) in
        [("b/run1", chip_records(1, "")), ("a", chip_records(1, lossy)), ("c", "{\"level\": ".into())]
    {
        std::fs::create_dir_all(records.join(run)).unwrap();
        std::fs::write(records.join(run).join("chip_swimlane_records.json"), text).unwrap();
    }
    std::fs::write(records.join("other.json"), "no JSON").unwrap();
    let alone = file("chip-alone.json", chip_records(2, ""));
    let path = records.to_str().unwrap();
    let output = run(&[
        "timing",
        &log,
        "--swimlane",
        &lanes,
        "--chip-swimlane-records",
        path,
        "--chip-swimlane-records",
        &alone,
    ]);
    assert_eq!(output.status.code(), Some(0));
    let said = "(4 host spans, 0 unaligned device spans, 2 chip swimlane records)\n";
    assert!(stdout(&output).ends_with(said), "{}", stdout(&output));
    let warnings: Vec<&str> = stderr(&output).lines().collect();
    let name = "chip_swimlane_records.json";
    assert_eq!(warnings.len(), 3, "{warnings:?}");
    assert!(
        warnings[0].starts_with(&format!("warning: {path}/c/{name} holds no chip swimlane records: EOF"))
    );
    assert!(
        warnings[1].starts_with(&format!("warning: {path}/a/{name}: 2 chip swimlane record(s) were dropped"))
    );
    assert!(
        warnings[2].starts_with("warning: 1 chip swimlane records file(s) are left out"),
        "no clock for run 2"
    );
    assert!(warnings[2].ends_with(&alone));
    let written: Value = serde_json::from_slice(&std::fs::read(&lanes).unwrap()).unwrap();
    let sources: Vec<&str> = written["chipSwimlaneRecords"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| file["source"].as_str().unwrap())
        .collect();
    assert_eq!(sources, [&format!("{path}/a/{name}"), &format!("{path}/b/run1/{name}"), &alone]);
}

#[test]
fn chip_swimlane_records_that_are_not_there_or_not_wanted_are_a_sentence_and_2() {
    let log = file("chip-none.log", whole(1));
    let lanes = file("chip-none.json", "");
    let empty = folder("chip-none");
    let empty = empty.to_str().unwrap();
    for (arguments, says) in [
        (&["--chip-swimlane-records", empty][..], "needs --swimlane"),
        (&["--swimlane", &lanes, "--chip-swimlane-records", empty], "holds no chip_swimlane_records.json"),
        (&["--swimlane", &lanes, "--chip-swimlane-records", "/nonexistent/records"], "/nonexistent/records"),
    ] {
        let output = run(&[&["timing", &log], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
        assert!(stderr(&output).contains(says), "{}", stderr(&output));
        assert_eq!(stdout(&output), "");
    }
}

/// A pass over the binding of a run, with one segment and one step.
fn pass(inv: u32) -> String {
    format!(
        "{{\"pid\": 41, \"inv\": {inv}, \"records\": [{{\"phase\": \"args\", \"start_ns\": {inv}0010, \"end_ns\": \
         {inv}0020}}, {{\"phase\": \"fanin\", \"start_ns\": {inv}0030, \"end_ns\": {inv}0040}}]}}\n"
    )
}

#[test]
fn host_phase_records_are_drawn_counted_and_what_is_none_is_said() {
    let line = "[mono_ns=20990][T0x7f00][TIMING] end: bind phase=relocate start_ns=20500 dur_ns=100 \n";
    let log = file("phases.log", whole(2) + line + &line.replace("20500", "1"));
    let lanes = file("phases.json", "");
    let of_first = file("phases-1.jsonl", pass(1) + &pass(9));
    let cut = file("phases-cut.jsonl", "[]\n{\"records\": [7]}\n".to_owned() + &pass(1)[..30]);
    let options = ["--swimlane", &lanes, "--host-phase-records", &of_first, "--host-phase-records", &cut];
    let output = run(&[&["timing", &log], &options[..]].concat());
    assert_eq!(output.status.code(), Some(0));
    let said = "(4 host spans, 0 unaligned device spans, 1 bind phases, 2 host phase records)\n";
    assert!(stdout(&output).ends_with(said), "{}", stdout(&output));
    let warnings: Vec<&str> = stderr(&output).lines().collect();
    assert_eq!(warnings.len(), 3, "{warnings:?}");
    let of_cut =
        format!("warning: {cut}: 2 line(s) are no pass of host phases and 1 element(s) no record of one");
    assert!(warnings[0].starts_with(&of_cut), "{warnings:?}");
    assert!(warnings[1].starts_with("warning: 2 phase-record pass(es) had no matching chip.run.bind span"));
    assert!(warnings[2].starts_with("warning: 1 bind phase line(s) lie in no chip.run.bind span"));
    let written: Value = serde_json::from_slice(&std::fs::read(&lanes).unwrap()).unwrap();
    let named = |name: &str| {
        written["traceEvents"].as_array().unwrap().iter().filter(|event| event["name"] == name).count()
    };
    assert_eq!(named("simpler_run.bind.args"), 1);
    assert_eq!(named("simpler_run.bind.host_orch.fanin"), 1);
    assert_eq!(named("simpler_run.bind.relocate"), 1);

    for (options, says) in [
        (
            &["--host-phase-records", &of_first][..],
            "--host-phase-records only adds to a picture, so it needs --swimlane",
        ),
        (
            &["--swimlane", &lanes, "--host-phase-records", "/nonexistent.jsonl"],
            "/nonexistent.jsonl cannot be read",
        ),
    ] {
        let output = run(&[&["timing", &log], options].concat());
        assert_eq!(output.status.code(), Some(2));
        assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
        assert!(stderr(&output).contains(says), "{}", stderr(&output));
        assert_eq!(stdout(&output), "");
    }
}

#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    // More output than a pipe holds, so that the writer meets the closed end.
    let log = file("pipe.log", whole(5000));
    let mut child = simpler(&["timing", "--rounds-table", &log])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0; 7];
    let mut pipe = child.stdout.take().unwrap();
    pipe.read_exact(&mut first).unwrap();
    drop(pipe);
    let output = child.wait_with_output().unwrap();
    assert_eq!(&first, b"  Round");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(stderr(&output), "");
}

#[test]
fn nobody_who_does_not_read_is_told_so() {
    let log = file("gone.log", phased(true));
    let (slower, picture) = (file("gone-slower.log", paced(60, 110)), file("gone.json", ""));
    let (base, torn) = (file("gone-base.log", paced(60, 100)), file("gone-torn.log", torn()));
    let empty = file("gone-empty.log", "");
    for (arguments, code) in [
        (&["timing", &log][..], 0),
        (&["timing", &log, "--tree"], 0),
        (&["timing", &log, "--rounds-table"], 0),
        (&["timing", &log, "--external"], 0),
        (&["timing", &log, "--assert-native-overlap"], 0),
        (&["timing", &log, "--trace-out", &picture], 0),
        (&["timing", &empty], 2),
        (&["check", &log], 0),
        (&["check", &torn, "--strict"], 1),
        (&["diff", &base, "--against", &base], 0),
        (&["diff", &base, "--against", &slower], 1),
        (&["diff", &base, "--against", &empty], 2),
    ] {
        for json in [&[][..], &["--json"]] {
            let arguments = [arguments, json].concat();
            let (reader, writer) = std::io::pipe().unwrap();
            // Closed before anything is printed.
            drop(reader);
            let output =
                simpler(&arguments).stdout(writer).stderr(Stdio::piped()).spawn().unwrap().wait_with_output();
            let output = output.unwrap();
            assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", stderr(&output));
            let said = ["note:", "warning:", "Wrote ", "no [STRACE]"];
            let spoken =
                |line: &str| said.iter().any(|word| line.starts_with(word)) || line.contains(": byte ");
            assert!(stderr(&output).lines().all(spoken), "{arguments:?}: {}", stderr(&output));
        }
    }
    let written: Value = serde_json::from_slice(&std::fs::read(&picture).unwrap()).unwrap();
    assert_eq!(written["traceEvents"][0]["ph"], "M", "a picture is written all the same");
}

#[test]
fn another_trace_is_merged_into_the_pictures() {
    let log = file("merge.log", whole(2));
    let (trace, lanes) = (file("merge-trace.json", ""), file("merge-lanes.json", ""));
    let event = r#"{"ph":"X","name":"decode","ts":10.0000000000000000001,"dur":5,"pid":41,"tid":9}"#;
    let near = file("merge-near.json", format!("{{\"traceEvents\":[{event},{event}]}}"));
    let far = file("merge-far.json", event.replace("10.", "99999.").replace('{', "[{") + "]");
    let output = run(&["timing", &log, "--trace-out", &trace, "--swimlane", &lanes, "--merge", &near]);
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""));
    let said = format!("(4 host spans, 0 unaligned device spans)\nMerged 2 events of {near}\n");
    assert!(stdout(&output).ends_with(&said), "{}", stdout(&output));
    for picture in [&trace, &lanes] {
        let text = std::fs::read_to_string(picture).unwrap();
        assert_eq!(text.matches(event).count(), 2);
        serde_json::from_str::<Value>(&text).unwrap();
    }
    let output = run(&["timing", &log, "--trace-out", &trace, "--merge", &near, "--merge", &far, "--json"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(stdout(&output).lines().count(), 1);
    let said: Vec<&str> = stderr(&output).lines().collect();
    let [warning, wrote, first, second] = said[..] else { panic!("{said:?}") };
    assert_eq!(
        warning,
        format!(
            "warning: {far} has no moment in common with the log: it reaches from 0.099999 s to 0.100004 s, the log \
             from 0.000010 s to 0.000025 s of CLOCK_MONOTONIC"
        )
    );
    assert!(wrote.starts_with("Wrote Chrome trace"), "{wrote}");
    assert_eq!(first, format!("Merged 2 events of {near}"));
    assert_eq!(second, format!("Merged 1 events of {far}"));
}

#[test]
fn what_cannot_be_merged_is_a_sentence_and_2_before_any_file() {
    let log = file("unmerged.log", whole(1));
    let bad = file("unmerged.json", "[{}, 7]");
    let trace = file("unmerged-trace.json", "");
    std::fs::remove_file(&trace).unwrap();
    for (arguments, says) in [
        (&["--merge", &bad][..], "needs --trace-out or --swimlane"),
        (&["--trace-out", &trace, "--merge", &bad], "event 2 is no object"),
        (&["--trace-out", &trace, "--merge", "/nonexistent/trace.json"], "/nonexistent/trace.json"),
    ] {
        let output = run(&[&["timing", &log], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
        assert!(stderr(&output).contains(says), "{}", stderr(&output));
        assert_eq!(stdout(&output), "");
        assert!(!std::path::Path::new(&trace).exists());
    }
}

#[test]
fn a_verdict_does_not_depend_on_who_reads_the_facts() {
    // The drop report says that three records were lost.
    let lossy = file(
        "lossy.log",
        whole(1)
            + "[HOSTLOG_DROPS] v=1 pid=41 new=3 total=3 queue_full=3 claim_exhausted=0 output_failed=0 not_admitted=0\n",
    );
    let mut child =
        simpler(&["check", "--strict", &lossy]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    // Closed before a byte was read.
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(1));
}

/// A foreign producer's spans, two of them around the others.
fn foreign() -> String {
    let anchor = "[mono_ns=1][T0x7f00][TIMING] clock_anchor: [CLOCK_ANCHOR] v=1 pid=41 mono_ns=1 wall_ns=1790000000000000000\n";
    let span = |at: u32, rest: &str| record(0, rest).replace("[mono_ns=09000]", &format!("[mono_ns={at}]"));
    anchor.to_owned()
        + &span(20, "depth=1 name=ext.shop.order.pack ts=11000 dur=4000 ")
        + &span(21, "depth=0 name=ext.shop.order ts=10000 dur=6000 ")
        + &span(22, "depth=0 name=ext.shop.order ts=20000 dur=2000 ")
}

#[test]
fn a_log_of_foreign_spans_alone_is_shown_by_producer() {
    let log = file("foreign.log", foreign());
    let output = run(&["timing", &log]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(
        stdout(&output),
        "external shop — 3 span(s)\n  ext.shop.order: mean=4.0us total=8.0us (n=2)\n  ext.shop.order.pack: \
         mean=4.0us total=4.0us (n=1)\n\n"
    );
    let line = |indent: &str, leaf: &str, us: &str| format!("{indent}{leaf:<22}{:>6}  {us:>12} us\n", "");
    assert_eq!(
        stdout(&run(&["timing", "--tree", &log])),
        format!(
            "external shop — median of 3 span(s)\n{}{}\n",
            line("", "order", "4.0"),
            line("  ", "order.pack", "4.0")
        )
    );
    let trace = file("foreign.json", "");
    assert!(run(&["timing", &log, "--trace-out", &trace]).status.success());
    let trace: Value = serde_json::from_slice(&std::fs::read(&trace).unwrap()).unwrap();
    let name = &trace["traceEvents"][0]["args"]["name"];
    assert_eq!(name, "external producer shop (pid=41)");
}

#[test]
fn foreign_spans_stand_beside_the_callables_only_when_asked_for() {
    let log = file("beside.log", whole(2) + foreign().split_once('\n').unwrap().1);
    let alone = file("beside-alone.log", whole(2));
    for view in [&["timing"][..], &["timing", "--tree"]] {
        let with = |more: &[&str], log: &str| {
            let output = run(&[view, more, &[log]].concat());
            assert_eq!(stderr(&output), "");
            stdout(&output).to_owned()
        };
        assert_eq!(with(&[], &log), with(&[], &alone));
        let both = with(&["--external"], &log);
        assert!(both.strip_prefix(&with(&[], &alone)).unwrap().starts_with("external shop — "), "{both}");
        assert_eq!(with(&["--external"], &alone), with(&[], &alone));
    }
    let answer: Value = serde_json::from_str(stdout(&run(&["timing", "--json", &log]))).unwrap();
    let producer = &answer["external"][0];
    assert_eq!((&producer["producer"], &producer["spans"]), (&Value::from("shop"), &Value::from(3)));
    let order = &producer["names"][0];
    assert_eq!(order["name"], "ext.shop.order");
    for (key, value) in [("n", 2), ("total_ns", 8000), ("mean_ns", 4000), ("min_ns", 2000), ("max_ns", 6000)]
    {
        assert_eq!(order[key], value, "{key}");
    }
    let answer: Value = serde_json::from_str(stdout(&run(&["timing", "--json", &alone]))).unwrap();
    assert!(answer.get("external").is_none());
}

#[test]
fn the_hosts_of_a_log_are_listed() {
    let log = |host: u64| {
        let identity = format!(
            "[mono_ns=1][T0x7f00][TIMING] host.identity: [HOST_IDENTITY] v=1 pid=41 host={host:016x} name=n%20{host}"
        );
        // Behind the anchor.
        file(&format!("host-{host}.log"), whole(2).replacen('\n', &format!("\n{identity}\n"), 1))
    };
    let (first, second) = (log(1), log(2));
    let output = run(&["check", "--strict", "--json", &first, &second]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let answer: Value = serde_json::from_str(stdout(&output)).unwrap();
    let hosts = serde_json::json!([
        {"id": "0000000000000001", "name": "n 1"},
        {"id": "0000000000000002", "name": "n 2"},
    ]);
    assert_eq!(answer["hosts"], hosts);
    assert_eq!((&answer["process_lives"], &answer["spans"]), (&Value::from(2), &Value::from(8)));
    let output = run(&["timing", "--json", &first, &second]);
    let answer: Value = serde_json::from_str(stdout(&output)).unwrap();
    assert_eq!(answer["integrity"]["hosts"], hosts);
    let profile = file("all-day.json", r#"[{"ts": 0, "dur": 100000000}]"#);
    for (logs, warned) in [(&[&first, &second][..], true), (&[&first], false)] {
        let logs: Vec<&str> = logs.iter().map(|log| log.as_str()).collect();
        let said = run(&[&["timing", "--only-overlapping", &profile], &logs[..]].concat()).stderr;
        let warning =
            "warning: the log is of 2 hosts, whose clocks differ; --only-overlapping takes the profile's";
        assert_eq!(String::from_utf8_lossy(&said).contains(warning), warned);
    }
    let output = run(&["check", "--json", &file("no-host.log", whole(2))]);
    let answer: Value = serde_json::from_str(stdout(&output)).unwrap();
    assert_eq!(answer["hosts"], serde_json::json!([]));
}

/// Runs that take `percent` of 5000 ns, and a little more or less each.
fn paced(runs: u32, percent: u32) -> String {
    let anchor = "[mono_ns=1][T0x7f00][TIMING] clock_anchor: [CLOCK_ANCHOR] v=1 pid=41 mono_ns=1 wall_ns=5\n";
    let run = |inv: u32| {
        let dur = 50 * percent + inv * 7 % 100;
        record(inv, &format!("depth=1 name=simpler_run.bind ts={inv}0010 dur={} ", 1000 + inv * 11 % 50))
            + &record(inv, &format!("depth=0 name=simpler_run ts={inv}0000 dur={dur} "))
    };
    anchor.to_owned() + &(1..=runs).map(run).collect::<String>()
}

#[test]
fn diff_exits_by_its_verdict_and_prints_it() {
    let (base, slower) = (file("diff-base.log", paced(60, 100)), file("diff-slower.log", paced(60, 110)));
    for (base, against, more, code, word) in [
        (&base, &base, &[][..], 0, "same"),
        (&base, &slower, &[][..], 1, "regression"),
        (&slower, &base, &[][..], 0, "improvement"),
        (&base, &slower, &["--max-regression", "20%"][..], 0, "tolerated"),
        (&base, &slower, &["--max-regression", "2"][..], 1, "regression"),
    ] {
        let arguments = [&["diff", base, "--against", against][..], more].concat();
        let output = run(&arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?} {}", stderr(&output));
        assert!(stdout(&output).contains(&format!("verdict: {word} ")), "{}", stdout(&output));
        let output = run(&[&arguments[..], &["--json"]].concat());
        assert_eq!(output.status.code(), Some(code));
        let json: Value = serde_json::from_str(stdout(&output)).unwrap();
        assert_eq!(json["verdict"], word);
        assert_eq!(json["callables"][0]["stages"][0]["name"], "simpler_run");
        assert_eq!(json["callables"][0]["stages"][1]["verdict"], "same");
    }
    let output = run(&["diff", &base, "--against", &slower]);
    let table = stdout(&output);
    assert!(table.starts_with("callable hid=b7e2 (decode)\n"), "{table}");
    assert!(table.contains("+9.9%") && table.contains("60/60"), "{table}");
}

#[test]
fn diff_refuses_what_it_cannot_compare() {
    let base = file("diff-good.log", paced(60, 100));
    let lossy = file("diff-lossy.log", paced(60, 100) + &torn());
    let few = file("diff-few.log", whole(2));
    let empty = file("diff-empty.log", "");
    for (other, says) in [(&lossy, "lost records"), (&few, "8 or more invocations"), (&empty, "is empty")] {
        for arguments in
            [["diff", &base, "--against", other, "--json"], ["diff", other, "--against", &base, "--json"]]
        {
            let output = run(&arguments);
            assert_eq!(output.status.code(), Some(2), "{arguments:?}");
            assert!(stderr(&output).contains(says), "{}", stderr(&output));
            let json: Value = serde_json::from_str(stdout(&output)).unwrap();
            assert!(json["error"].as_str().unwrap().contains(says));
        }
    }
    for percent in ["-1", "x%", "nan", "inf"] {
        let output = run(&["diff", &base, "--against", &base, &format!("--max-regression={percent}")]);
        assert_eq!(output.status.code(), Some(2), "{percent}");
    }
}
