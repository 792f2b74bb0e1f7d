//! Which part of a log `simpler timing` looks at, and what it says of the rest.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_simpler")).args(arguments).stdin(Stdio::null()).output().unwrap()
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

fn span(pid: u32, inv: u32, hid: &str, depth: u32, name: &str, ts: u32, dur: u32) -> String {
    let made = ts + dur;
    format!(
        "[mono_ns={made}][T0x7f00][TIMING] emit_host_span: [STRACE] v=1 pid={pid} tid={pid} inv={inv} hid={hid} \
         depth={depth} name={name} ts={ts} dur={dur} \n"
    )
}

/// A run of `dur` ns that starts `at` us.
fn call(pid: u32, inv: u32, hid: &str, at: u32, dur: u32) -> String {
    span(pid, inv, hid, 1, "simpler_run.bind", at * 1000 + 10, dur / 5)
        + &span(pid, inv, hid, 0, "simpler_run", at * 1000, dur)
}

/// 1790000000 s is 2026-09-21T14:13:20Z.
fn anchor(pid: u32) -> String {
    format!(
        "[mono_ns=1][T0x7f00][TIMING] clock_anchor: [CLOCK_ANCHOR] v=1 pid={pid} mono_ns=0 \
         wall_ns=1790000000000000000\n"
    )
}

/// Prefill at 10 us, decode at 20, 30, 40 and 50 us, the first one slow, and a scheduler's span beside each.
fn log() -> String {
    let decode =
        (2..=5).map(|inv| call(41, inv, "b7e2", inv * 10, if inv == 2 { 9_000 } else { 4_000 + inv }));
    let beside = (1..=5).map(|at| span(41, 0, "0", 0, "node.scheduler_loop", at * 10_000, 100));
    anchor(41) + &call(41, 1, "a1", 10, 5_000) + &decode.collect::<String>() + &beside.collect::<String>()
}

/// The one sentence of a refusal, with stdout's checked in both forms.
fn refused(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert_eq!(output.status.code(), Some(2), "{arguments:?} {}", stderr(&output));
    assert_eq!(stdout(&output), "", "{arguments:?}");
    let sentence = stderr(&output).lines().last().unwrap().to_owned();
    let output = run(&[arguments, &["--json"]].concat());
    assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    let answer: Value = serde_json::from_str(stdout(&output)).unwrap();
    assert_eq!(answer["error"], sentence);
    sentence
}

fn json(arguments: &[&str]) -> Value {
    let output = run(&[&["timing", "--json"], arguments].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    serde_json::from_str(stdout(&output)).unwrap()
}

#[test]
fn percentiles_are_a_view_and_in_json_always() {
    let log = file("percentiles.log", log());
    let output = run(&["timing", &log, "--percentiles"]);
    assert_eq!(
        stdout(&output),
        "callable hid=b7e2 — 4 invocation(s)\n  \
         Stage (us)                 n           p50           p90           p99           max\n  \
         simpler_run                4           4.0           9.0           9.0           9.0\n    \
         simpler_run.bind         4           0.8           1.8           1.8           1.8\n\n\
         callable hid=a1 — 1 invocation(s)\n  \
         Stage (us)                 n           p50           p90           p99           max\n  \
         simpler_run                1           5.0           5.0           5.0           5.0\n    \
         simpler_run.bind         1           1.0           1.0           1.0           1.0\n\n"
    );
    assert_eq!(stderr(&output), "");
    assert!(stdout(&run(&["timing", &log, "--percentiles", "--tree"])).contains("median of 4"));
    let answer = json(&[&log]);
    let decode = &answer["callables"][0];
    for (key, want) in
        [("root_p50_ns", 4_004), ("root_p90_ns", 9_000), ("root_p99_ns", 9_000), ("root_max_ns", 9_000)]
    {
        assert_eq!(decode[key], want, "{key}");
    }
    assert_eq!(decode["root_median_ns"], 4_004.5, "of an even count it is none of the values");
    assert_eq!(
        (&decode["stages"][0]["p50_ns"], &decode["stages"][0]["p99_ns"]),
        (&800.into(), &1_800.into())
    );
    assert!(answer.get("selected_invocations").is_none());
}

#[test]
fn the_first_runs_are_left_out_and_their_number_is_said() {
    let log = file(
        "skip.log",
        log() + &anchor(42) + &call(42, 1, "b7e2", 20, 8_000) + &call(42, 2, "b7e2", 30, 4_000),
    );
    let output = run(&["timing", &log, "--skip-first", "1"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(stderr(&output), "note: --skip-first 1 leaves out 3 invocation(s)\n");
    assert_eq!(
        stdout(&output),
        "callable hid=b7e2 — 4 invocation(s)\n  simpler_run: mean=4.0us min=4.0us max=4.0us\n    \
         simpler_run.bind: mean=0.8us (n=4)\n\n"
    );
    let answer = json(&[&log, "--skip-first", "1"]);
    assert_eq!(answer["selected_invocations"], 4);
    assert_eq!((&answer["integrity"]["invocations"], &answer["integrity"]["spans"]), (&7.into(), &19.into()));
    assert_eq!(stdout(&run(&["timing", &log, "--skip-first", "0"])), stdout(&run(&["timing", &log])));
    assert_eq!(
        refused(&["timing", &log, "--skip-first", "4"]),
        "--skip-first 4 leaves nothing: none of the callables looked at has more runs in one process"
    );
    assert_eq!(run(&["timing", &log, "--skip-first", "x"]).status.code(), Some(2));
}

#[test]
fn wall_time_selects_in_every_view_and_picture() {
    let log = file("wall.log", log());
    let picture = file("wall.json", "");
    // 30 us and 40 us.
    for window in [
        ["--since=2026-09-21T14:13:20.000021Z", "--until=2026-09-21T16:13:20.00005+02:00"],
        ["--since=1790000000.00003", "--until=1790000000.000040001"],
    ] {
        let output = run(&["timing", &log, window[0], window[1], "--trace-out", &picture]);
        assert_eq!(output.status.code(), Some(0));
        assert!(stdout(&output).starts_with("callable hid=b7e2 — 2 invocation(s)\n"), "{}", stdout(&output));
        assert_eq!(
            stderr(&output),
            "note: --since leaves out 2 invocation(s)\nnote: --until leaves out 1 invocation(s)\n"
        );
        // The scheduler's spans of that time as well.
        assert!(stdout(&output).ends_with("(6 spans)\n"), "{}", stdout(&output));
        let drawn: Value = serde_json::from_slice(&std::fs::read(&picture).unwrap()).unwrap();
        let events = drawn["traceEvents"].as_array().unwrap();
        assert_eq!(events.iter().filter(|event| event["ph"] == "X").count(), 6);
        let output = run(&["timing", &log, window[0], window[1], "--rounds-table", "--swimlane", &picture]);
        assert!(stdout(&output).contains("(2 rounds)\n"));
        assert!(stdout(&output).contains("(6 host spans, "), "{}", stdout(&output));
        // What part a callable plays is said by the whole log.
        assert_eq!(json(&[&log, window[0], window[1]])["callables"][0]["label"], "decode");
    }
    let starts =
        "what the log holds starts from 2026-09-21T14:13:20.000010000Z to 2026-09-21T14:13:20.000050000Z";
    assert_eq!(
        refused(&["timing", &log, "--since", "1790000001"]),
        format!("--since leaves nothing: {starts}")
    );
    assert_eq!(refused(&["timing", &log, "--until", "-1.5"]), format!("--until leaves nothing: {starts}"));
    assert_eq!(
        refused(&["timing", &log, "--since", "5", "--until", "5"]),
        "--until is not after --since, so nothing lies between them"
    );
    let output = run(&["timing", &log, "--since", "yesterday"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("yesterday is no time: one is written as"), "{}", stderr(&output));
}

#[test]
fn what_cannot_be_placed_in_wall_time_is_left_out_and_counted() {
    let log = file("unplaced.log", log() + &call(42, 1, "b7e2", 20, 8_000));
    let output = run(&["timing", &log, "--since", "1790000000"]);
    assert!(stdout(&output).starts_with("callable hid=b7e2 — 4 invocation(s)\n"));
    assert!(
        stderr(&output).ends_with(
            "note: --since leaves out 1 invocation(s) whose process has no clock anchor from before them\n"
        ),
        "{}",
        stderr(&output)
    );
    let without = file("unplaced-all.log", call(42, 1, "b7e2", 20, 8_000));
    assert_eq!(
        refused(&["timing", &without, "--until", "1790000000"]),
        "--until leaves nothing: no process has a clock anchor from before what is left"
    );
}

#[test]
fn callables_are_selected_by_their_hid_however_it_is_written() {
    let log = file("hid.log", log());
    for hid in ["b7e2", "B7E2", "0xb7e2", "0X00b7E2"] {
        let output = run(&["timing", &log, "--hid", hid]);
        assert!(stdout(&output).starts_with("callable hid=b7e2 — 4 invocation(s)\n"));
        assert!(!stdout(&output).contains("hid=a1"));
    }
    let output = run(&["timing", &log, "--hid", "a1", "--hid", "b7e2"]);
    assert_eq!((stdout(&output), stderr(&output)), (stdout(&run(&["timing", &log])), ""));
    assert_eq!(
        refused(&["timing", &log, "--hid", "b7e2", "--hid", "c"]),
        "--hid c: the log has no such callable; it has hid=a1, hid=b7e2"
    );
    let many = (1..=12).map(|n| call(41, n, &format!("{n:x}"), n, 10)).collect::<String>();
    let many = file("hid-many.log", anchor(41) + &many);
    let sentence = refused(&["timing", &many, "--hid", "ff"]);
    assert!(
        sentence.ends_with(
            "it has hid=1, hid=2, hid=3, hid=4, hid=5, hid=6, hid=7, hid=8, hid=9, hid=a and 2 more"
        )
    );
    for bad in ["", "0x", "+b", "g", "12345678901234567"] {
        let output = run(&["timing", &log, &format!("--hid={bad}")]);
        assert_eq!(output.status.code(), Some(2), "{bad}");
        assert!(stderr(&output).contains("hid"), "{}", stderr(&output));
    }
}

#[test]
fn a_callable_is_called_as_it_was_named_in_text_json_and_pictures() {
    let log = file("label.log", log());
    let picture = file("label.json", "");
    let named = &["timing", &log, "--label", "0xB7E2=token step", "--label", "a1=p\u{1b}=1"][..];
    let text = |more: &[&str]| {
        let output = run(&[named, more].concat());
        assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""));
        stdout(&output).to_owned()
    };
    for view in [&[][..], &["--percentiles"]] {
        assert!(text(view).starts_with("callable hid=b7e2 (token step) — 4 invocation(s)\n"));
        assert!(text(view).contains("callable hid=a1 (p\\u{1b}=1) — 1 invocation(s)\n"));
    }
    assert!(text(&["--tree"]).starts_with("callable hid=b7e2 (token step) — median of 4 invocation(s)\n"));
    let answer: Value = serde_json::from_str(&text(&["--json"])).unwrap();
    assert_eq!(answer["callables"][0]["label"], "token step");
    for lanes in [&["--trace-out", &picture][..], &["--swimlane", &picture]] {
        text(lanes);
        let drawn: Value = serde_json::from_slice(&std::fs::read(&picture).unwrap()).unwrap();
        let events = drawn["traceEvents"].as_array().unwrap();
        let called = |label: &str| events.iter().filter(|event| event["args"]["label"] == label).count();
        assert_eq!((called("token step"), called("p\u{1b}=1")), (8, 2), "{lanes:?}");
    }
    text(&["--trace-out", &picture, "--trace-lanes", "invocation"]);
    assert!(std::fs::read_to_string(&picture).unwrap().contains("\"token step inv=2 (pid=41)\""));

    let output = run(&["timing", &log, "--label", "c=other"]);
    assert_eq!(stderr(&output), "note: --label c=other: there is no such callable\n");
    for bad in ["b7e2", "b7e2=", "=x", "zz=x"] {
        let output = run(&["timing", &log, "--label", bad]);
        assert_eq!(output.status.code(), Some(2), "{bad}");
        assert!(stderr(&output).contains(bad), "{}", stderr(&output));
    }
    let output = run(&["diff", &log, "--against", &log, "--label", "b7e2=x"]);
    assert_eq!(output.status.code(), Some(2), "too few invocations");
}

#[test]
fn a_profile_selects_what_overlaps_it() {
    let log = file("profile.log", log());
    // 31 to 41 us: within one run, and to within the next.
    let profile = file(
        "profile.json",
        r#"{"traceEvents": [{"ph": "M", "ts": 0}, {"ph": "X", "ts": 31.5, "dur": 2}, {"ph": "X", "ts": 40, "dur": 1}]}"#,
    );
    let output = run(&["timing", &log, "--only-overlapping", &profile]);
    assert!(stdout(&output).starts_with("callable hid=b7e2 — 2 invocation(s)\n"), "{}", stdout(&output));
    assert_eq!(stderr(&output), "note: --only-overlapping leaves out 3 invocation(s)\n");
    // Prefill ends at 15 us, and the next starts at 20 us.
    let beside = file("profile-beside.json", r#"[{"ts": 15, "dur": 5}]"#);
    assert_eq!(
        refused(&["timing", &log, "--only-overlapping", &beside]),
        format!(
            "--only-overlapping leaves nothing: the events of {beside} lie from 15.000 to 20.000 us of \
             CLOCK_MONOTONIC, what the log holds from 10.000 to 54.005 us"
        )
    );
    let broken = file("profile-broken.json", r#"{"traceEvents": [{"ts": 31"#);
    let sentence = refused(&["timing", &log, "--only-overlapping", &broken]);
    assert!(sentence.starts_with(&format!("{broken} is no whole Chrome trace: EOF")), "{sentence}");
    let sentence = refused(&["timing", &log, "--only-overlapping", "/nonexistent/profile.json"]);
    assert!(sentence.starts_with("cannot read /nonexistent/profile.json: "), "{sentence}");
}

#[test]
fn a_tie_is_said_once_for_every_view() {
    let tie =
        file("tie.log", log() + &(6..=9).map(|inv| call(41, inv, "c", inv * 10, 1_000)).collect::<String>());
    let note = "note: hid=b7e2, hid=c are invoked equally often; none of them is called decode";
    for view in [&[][..], &["--tree"], &["--percentiles"], &["--json"]] {
        let output = run(&[&["timing", &tie], view].concat());
        assert_eq!(stderr(&output), format!("{note}\n"), "{view:?}");
    }
    let output = run(&["timing", &tie, "--rounds-table"]);
    assert_eq!(stderr(&output), format!("{note}; the rounds are those of hid=b7e2\n"));
    assert_eq!(json(&[&tie])["decode_tie"], serde_json::json!(["b7e2", "c"]));
    assert_eq!(stderr(&run(&["timing", &tie, "--label", "c=decode"])), "");
}

#[test]
fn warnings_and_losses_are_those_of_the_whole_log() {
    let torn = "[mono_ns=9][T0x7f00][TIMING] emit_host_span: [STRACE] v=1 pid=41 tid=4\n";
    let rootless = span(41, 99, "a1", 1, "simpler_run.bind", 99_000, 10);
    let log = file("lossy.log", log() + torn + &rootless);
    let whole = run(&["timing", &log]);
    let part = run(&["timing", &log, "--hid", "b7e2"]);
    let note = "note: --hid leaves out 2 invocation(s)\n";
    assert_eq!(stderr(&part), stderr(&whole).to_owned() + note);
    assert!(stderr(&part).contains("1 of 6 invocation(s) have no root record"));
    let (whole, part) = (json(&[&log]), json(&[&log, "--hid", "b7e2"]));
    assert_eq!(part["integrity"], whole["integrity"]);
    assert_eq!(part["integrity"]["lossy"], true);
    assert_eq!(
        (&part["callables"].as_array().unwrap().len(), &part["selected_invocations"]),
        (&1, &4.into())
    );
}

#[test]
fn chip_swimlane_records_of_runs_that_are_left_out_are_not_drawn() {
    let log = file("chip-part.log", log());
    let picture = file("chip-part.json", "");
    let records = |inv: u32| {
        file(
            &format!("chip-part-{inv}.json"),
            format!(
                "{{\"metadata\": {{\"pid\": 41, \"inv\": {inv}, \"clock_freq_hz\": 50000000, \"clock_anchors\": \
                 [{{\"host_ns\": 100, \"dev_cyc\": 5}}]}}, \"aicore_tasks\": [[0, 7, 1, 110, 120, 3]]}}"
            ),
        )
    };
    let (first, second) = (records(1), records(2));
    let all = [
        "timing",
        &log,
        "--swimlane",
        &picture,
        "--chip-swimlane-records",
        &first,
        "--chip-swimlane-records",
        &second,
    ];
    assert!(stdout(&run(&all)).ends_with(", 2 chip swimlane records)\n"));
    let output = run(&[&all[..], &["--hid", "b7e2"]].concat());
    assert!(stdout(&output).ends_with(", 1 chip swimlane records)\n"), "{}", stdout(&output));
    assert_eq!(stderr(&output), "note: --hid leaves out 1 invocation(s)\n");
}

#[test]
fn diff_skips_the_first_runs_of_either_log_and_names_callables() {
    let paced = |first: u32| {
        let dur = |inv: u32| if inv <= 20 { first } else { 4_000 + inv % 7 };
        anchor(41) + &(1..=40).map(|inv| call(41, inv, "b7e2", inv * 100, dur(inv))).collect::<String>()
    };
    let (base, cold) = (file("diff-warm.log", paced(4_000)), file("diff-cold.log", paced(40_000)));
    assert_eq!(run(&["diff", &base, "--against", &cold]).status.code(), Some(1));
    let skipping = ["diff", &base, "--against", &cold, "--skip-first", "20", "--label", "b7e2=step"];
    let output = run(&skipping);
    assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
    assert_eq!(stderr(&output), "note: --skip-first 20 leaves out 20 invocation(s)\n".repeat(2));
    assert!(stdout(&output).starts_with("callable hid=b7e2 (step)\n") && stdout(&output).contains("20/20"));
    let sentence = refused(&["diff", &base, "--against", &cold, "--skip-first", "40"]);
    assert!(sentence.starts_with("--skip-first 40 leaves nothing: "), "{sentence}");
}
