//! What the log of a demo must show, read by a reader that is not the project's.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};

use simpler_tests_e2e::{Demo, ProcessLog, Span, process_logs};

const TOKENS: usize = 9;
/// The stages that every invocation has, behind the root's name.
const ALWAYS: [&str; 9] = [
    "",
    ".bind",
    ".bind.args",
    ".bind.prebuilt",
    ".runner_run",
    ".claim_release",
    ".validate",
    ".runner_run.device_wall",
    ".runner_run.device_wall.graph_build",
];
/// The phases that last more than a cycle of 20 ns in every run.
const LONG: [&str; 4] = ["preamble", "graph_build", "orch", "sched"];
/// Those that may be done within one, and are then not emitted.
const BRIEF: [&str; 4] = ["config_validate", "arena_wire", "sm_reset", "post_orch"];
const ROOT: &str = "simpler_run";
const WALL: &str = "simpler_run.runner_run.device_wall";

fn demo() -> (Demo, Vec<ProcessLog>) {
    let demo = Demo::run(&["--model", "tiny", "--tokens", &TOKENS.to_string(), "--chips", "2"]).unwrap();
    let logs = process_logs(&demo.log()).unwrap();
    (demo, logs)
}

/// The invocations of a chip: its spans by `inv`, in the order of their first record.
fn invocations(log: &ProcessLog) -> BTreeMap<i64, BTreeMap<&str, &Span>> {
    let mut found: BTreeMap<i64, BTreeMap<&str, &Span>> = BTreeMap::new();
    for span in log.spans.iter().filter(|span| span.text("name").starts_with(ROOT)) {
        let former = found.entry(span.number("inv")).or_default().insert(span.text("name"), span);
        assert!(former.is_none(), "{} twice in one invocation", span.text("name"));
    }
    found
}

fn chips(logs: &[ProcessLog]) -> Vec<&ProcessLog> {
    logs.iter().filter(|log| log.spans.iter().any(|span| span.text("name") == ROOT)).collect()
}

#[test]
fn each_chip_has_one_prefill_and_a_decode_for_each_further_token() {
    let (demo, logs) = demo();
    assert_eq!(logs.len(), 3, "a parent and two chips");
    let hid_of = |name: &str| {
        let callables = demo.json["callables"].as_array().unwrap();
        let one = callables.iter().find(|one| one["name"].as_str().unwrap().ends_with(name)).unwrap();
        one["hid"].as_str().unwrap().to_owned()
    };
    let (prefill, decode) = (hid_of("prefill"), hid_of("decode"));
    assert_ne!(prefill, decode);
    assert_eq!(chips(&logs).len(), 2);
    for chip in chips(&logs) {
        let roots: Vec<&str> =
            chip.spans.iter().filter(|span| span.text("name") == ROOT).map(|span| span.text("hid")).collect();
        assert_eq!(roots[0], prefill, "the prompt comes first");
        assert_eq!(roots[1..], vec![decode.as_str(); TOKENS - 1]);
    }
}

#[test]
fn every_invocation_has_every_stage() {
    let (_demo, logs) = demo();
    for chip in chips(&logs) {
        for (inv, spans) in invocations(chip) {
            for stage in ALWAYS {
                let name = format!("{ROOT}{stage}");
                assert!(spans.contains_key(name.as_str()), "pid {} inv {inv} lacks {name}", chip.pid);
            }
            for phase in LONG {
                let name = format!("{WALL}.{phase}");
                assert!(spans.contains_key(name.as_str()), "pid {} inv {inv} lacks {name}", chip.pid);
            }
        }
        for phase in BRIEF {
            let name = format!("{WALL}.{phase}");
            let any = invocations(chip).values().any(|spans| spans.contains_key(name.as_str()));
            assert!(any, "pid {} lacks {name} throughout", chip.pid);
        }
    }
}

#[test]
fn an_orchestration_is_loaded_once_a_chip_and_callable() {
    let (_demo, logs) = demo();
    for chip in chips(&logs) {
        let mut loaded = BTreeSet::new();
        let mut seen = BTreeSet::new();
        for spans in invocations(chip).values() {
            let hid = spans[ROOT].text("hid");
            let loads = spans.contains_key(format!("{WALL}.so_load").as_str());
            assert_eq!(
                loads,
                seen.insert(hid),
                "so_load stands in the first run of a callable and in no other"
            );
            if loads {
                loaded.insert(hid);
            }
        }
        assert_eq!(loaded.len(), 2);
    }
}

#[test]
fn host_children_lie_inside_their_parents_and_depths_follow() {
    let (_demo, logs) = demo();
    for chip in chips(&logs) {
        for spans in invocations(chip).values() {
            for (name, span) in spans {
                let Some((parent, _)) = name.rsplit_once('.') else {
                    assert_eq!(span.number("depth"), 0);
                    continue;
                };
                let parent = spans[parent];
                assert_eq!(span.number("depth"), parent.number("depth") + 1, "{name}");
                assert_eq!(span.text("hid"), parent.text("hid"), "{name}");
                if span.is_device() {
                    continue;
                }
                let ((start, end), (opens, closes)) = (span.window(), parent.window());
                assert!(
                    opens <= start && end <= closes,
                    "{name} [{start}, {end}] outside [{opens}, {closes}]"
                );
            }
        }
    }
}

#[test]
fn device_time_fits_its_run_and_orchestration_overlaps_scheduling() {
    let (_demo, logs) = demo();
    for chip in chips(&logs) {
        for spans in invocations(chip).values() {
            let wall = spans[WALL];
            assert!(wall.is_device());
            assert_eq!(wall.number("ts"), 0);
            assert!(wall.number("dur") <= spans["simpler_run.runner_run"].number("dur"));
            let phase = |leaf: &str| spans.get(format!("{WALL}.{leaf}").as_str()).map(|span| span.window());
            let [orch, sched] = ["orch", "sched"].map(|leaf| phase(leaf).expect("a long phase"));
            assert!(
                orch.0 < sched.1 && sched.0 < orch.1,
                "orch {orch:?} and sched {sched:?} run side by side"
            );
            for leaf in LONG.iter().chain(&BRIEF) {
                let Some((start, end)) = phase(leaf) else { continue };
                assert!(start >= 0 && end > start, "{leaf}");
                assert!(end - start <= wall.number("dur"), "{leaf} is longer than the wall");
            }
            let teardown = phase("post_orch").map_or(sched.1, |post_orch| post_orch.0);
            assert!(teardown >= sched.1, "the teardown follows the last scheduler");
        }
    }
}

#[test]
fn records_come_in_exit_order_then_the_device_then_the_root() {
    let (_demo, logs) = demo();
    for chip in chips(&logs) {
        for spans in invocations(chip).values() {
            let line = |name: &str| spans[name].line;
            let host = [
                "simpler_run.bind.args",
                "simpler_run.bind.prebuilt",
                "simpler_run.bind",
                "simpler_run.runner_run",
                "simpler_run.validate",
                WALL,
            ];
            assert!(host.windows(2).all(|pair| line(pair[0]) < line(pair[1])));
            let last = spans.values().map(|span| span.line).max();
            assert_eq!(last, Some(line(ROOT)), "the root comes last");
        }
    }
}

#[test]
fn nothing_is_lost_and_the_binary_counts_as_we_do() {
    let (demo, logs) = demo();
    let heads: usize = logs.iter().map(|log| log.text.matches("[STRACE] v=1").count()).sum();
    assert!(heads > 200);
    assert_eq!(demo.json["heads"], heads);
    assert_eq!(demo.json["spans"], heads);
    assert_eq!(demo.json["dropped"], 0);
    assert_eq!(demo.json["torn"], 0);
    assert_eq!(demo.json["prefill_invocations"], 2);
    assert_eq!(demo.json["decode_invocations"], 2 * (TOKENS - 1));
    for log in &logs {
        assert!(!log.text.contains("[HOSTLOG_DROPS]"));
        assert!(log.text.ends_with('\n'));
        assert!(log.text.lines().all(|line| line.len() < 512), "a record has at most 512 bytes");
        assert!(log.text.lines().next().unwrap().contains("clock_anchor: [CLOCK_ANCHOR] v=1 pid="));
        assert_eq!(log.text.matches("[CLOCK_ANCHOR]").count(), 1, "one anchor a process");
        assert_eq!(log.text.matches("[HOST_IDENTITY]").count(), 1, "one identity of the host a process");
        assert!(log.spans.iter().all(|span| span.number("pid") == log.pid), "each process has its own file");
    }
}

#[test]
fn every_run_is_joined_to_the_dispatch_that_it_came_of() {
    let (demo, _) = demo();
    let mut timing = simpler_tests_e2e::simpler();
    let output = timing.arg("timing").arg(demo.log()).args(["--dispatches", "--json"]).output().unwrap();
    let facts: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let dispatches = &facts["dispatches"];
    assert_eq!(dispatches["joined"], 2 * TOKENS, "{dispatches}");
    for left in ["unmatched_dispatches", "unmatched_roots", "ambiguous_dispatches", "ambiguous_roots"] {
        assert_eq!(dispatches[left], 0, "{left}: {dispatches}");
    }
    for worker in dispatches["workers"].as_array().unwrap() {
        assert_eq!(worker["hand_over_n"], TOKENS, "{worker}");
        assert_eq!(worker["return_n"], TOKENS, "{worker}");
    }
}

#[test]
fn the_printed_means_are_those_of_the_log() {
    let (demo, logs) = demo();
    let decode = demo.json["callables"]
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["name"].as_str().unwrap().ends_with("decode"));
    let hid = decode.unwrap()["hid"].as_str().unwrap().to_owned();
    let mut roots = Vec::new();
    let mut walls = Vec::new();
    for chip in chips(&logs) {
        for spans in invocations(chip).values().filter(|spans| spans[ROOT].text("hid") == hid) {
            roots.push(spans[ROOT].number("dur"));
            walls.push(spans[WALL].number("dur"));
        }
    }
    let mean_us = |values: &[i64]| values.iter().sum::<i64>() as f64 / values.len() as f64 / 1000.0;
    let close = |key: &str, want: f64| {
        let got = demo.json[key].as_f64().unwrap();
        assert!((got - want).abs() <= 0.002, "{key}: {got}, by our count {want}");
    };
    close("decode_mean_us", mean_us(&roots));
    close("device_wall_mean_us", mean_us(&walls));
}

#[test]
fn the_device_gate_leaves_the_host_spans() {
    let arguments = ["--model", "tiny", "--tokens", "3", "--chips", "1"];
    let demo =
        Demo::run_with(&arguments, &[("SIMPLER_DEVICE_STRACE_ENABLE", std::path::Path::new("0"))]).unwrap();
    let logs = process_logs(&demo.log()).unwrap();
    let spans: Vec<&Span> = logs.iter().flat_map(|log| &log.spans).collect();
    assert!(spans.iter().all(|span| !span.is_device()));
    assert_eq!(spans.iter().filter(|span| span.text("name") == ROOT).count(), 3);
    assert_eq!(spans.iter().filter(|span| span.text("name") == "simpler_run.bind.args").count(), 3);
}
