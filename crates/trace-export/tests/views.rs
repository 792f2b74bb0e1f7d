//! Text views of logs that lost something: missing is `–`, never 0, and no mean includes it.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use simpler_trace_export::text;
use simpler_trace_ingest::{Reading, Source, read};
use std::path::Path;

fn case(name: &str) -> Reading {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/cases").join(name);
    read(&[Source::path(folder.join("input.log"))]).unwrap()
}

fn rounds(name: &str) -> String {
    let trace = case(name).trace;
    let mut out = Vec::new();
    text::rounds(&mut out, &trace.rounds(&trace.callables()).unwrap()).unwrap();
    String::from_utf8(out).unwrap()
}

fn table(name: &str) -> String {
    let mut out = Vec::new();
    text::table(&mut out, &case(name).trace.callables()).unwrap();
    String::from_utf8(out).unwrap()
}

fn tree(name: &str) -> String {
    let trace = case(name).trace;
    let mut out = Vec::new();
    text::tree(&mut out, &trace, &trace.callables()).unwrap();
    String::from_utf8(out).unwrap()
}

/// The cells of a row of the rounds table.
fn row(table: &str, number: usize) -> Vec<&str> {
    table.lines().nth(2 + number).unwrap().split_whitespace().collect()
}

#[test]
fn a_lost_root_is_marked_and_left_out_of_the_mean() {
    let rounds = rounds("missing-root");
    assert_eq!(row(&rounds, 1), ["1", "–", "50000.0", "29001.0", "10000.0", "29000.0"]);
    assert!(rounds.contains("Avg Host: 53000.0 us  |  Avg Device: 50000.0 us [3/3]"));
    let table = table("missing-root");
    assert!(table.contains("simpler_run: mean=53000.0us min=52000.0us max=54000.0us (n=2, root lost in 1)"));
    assert!(table.contains("simpler_run.bind: mean=1000.0us (n=3)"));
}

#[test]
fn a_round_without_device_spans_has_no_device_times() {
    let rounds = rounds("missing-device-round");
    assert_eq!(row(&rounds, 1), ["1", "52000.0", "–", "–", "–", "–"]);
    assert!(rounds.contains("Avg Device: 50000.0 us [2/3]  |  Avg Effective: 29001.0 us"));
}

#[test]
fn a_measured_zero_is_a_zero() {
    let rounds = rounds("zero-duration");
    assert_eq!(row(&rounds, 1)[1], "0.0");
    assert!(rounds.contains("Avg Host: 26000.0 us"));
}

/// A log of its own for each test, without envelopes, so that two equal device spans are two.
fn log(name: &str, spans: &[(u64, u32, &str, i64, i64)]) -> Reading {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let line = |&(inv, depth, name, ts, dur): &(u64, u32, &str, i64, i64)| {
        let attrs = if name.contains("device_wall") { "clk=dev" } else { "" };
        format!(
            "[STRACE] v=1 pid=1 tid=1 inv={inv} hid=a depth={depth} name={name} ts={ts} dur={dur} {attrs}\n"
        )
    };
    std::fs::write(&path, spans.iter().map(line).collect::<String>()).unwrap();
    read(&[Source::path(path)]).unwrap()
}

#[test]
fn a_device_that_did_nothing_is_in_no_mean_but_the_hosts() {
    let wall = "simpler_run.runner_run.device_wall";
    let trace = log(
        "device-zero.log",
        &[
            (1, 2, wall, 0, 8_000),
            (1, 0, "simpler_run", 0, 20_000),
            (2, 2, wall, 0, 0),
            (2, 0, "simpler_run", 30_000, 0),
        ],
    )
    .trace;
    let mut out = Vec::new();
    text::rounds(&mut out, &trace.rounds(&trace.callables()).unwrap()).unwrap();
    let rounds = String::from_utf8(out).unwrap();
    assert_eq!(row(&rounds, 1), ["1", "0.0", "0.0"]);
    assert!(rounds.contains("  Avg Host: 10.0 us  |  Avg Device: 8.0 us [1/2]  (2 rounds)\n"), "{rounds}");
}

#[test]
fn what_runs_below_orchestrator_and_schedulers_is_drawn_below_their_window() {
    let wall = "simpler_run.runner_run.device_wall";
    let [orch, sched] = ["orch", "sched"].map(|name| format!("{wall}.{name}"));
    let [submit, first] = [format!("{orch}.submit"), format!("{sched}.first")];
    let trace = log(
        "below-window.log",
        &[
            (1, 2, wall, 0, 8_000),
            (1, 3, &orch, 0, 4_000),
            (1, 4, &submit, 0, 1_000),
            (1, 3, &sched, 1_000, 6_000),
            (1, 4, &first, 1_000, 2_000),
            (1, 1, "simpler_run.runner_run", 0, 9_000),
            (1, 0, "simpler_run", 0, 10_000),
        ],
    )
    .trace;
    let mut out = Vec::new();
    text::tree(&mut out, &trace, &trace.callables()).unwrap();
    let tree = String::from_utf8(out).unwrap();
    let lines: Vec<&str> = tree.lines().skip(4).map(str::trim_end).collect();
    assert_eq!(
        lines[..4],
        [
            "      Effective              [dev]           7.0 us",
            "        orch 4.0  ∥  sched 6.0   (concurrent)",
            "          submit                 [dev]           1.0 us",
            "          first                  [dev]           2.0 us",
        ],
        "{tree}"
    );
}

#[test]
fn columns_without_any_value_are_left_out() {
    let rounds = rounds("torn-in-header");
    assert_eq!(rounds.lines().next().unwrap(), "  Round      Host (us)");
    assert_eq!(rounds.lines().nth(1).unwrap(), "  --------------------");
}

#[test]
fn every_era_of_root_names_makes_a_round() {
    let rounds = rounds("root-name-eras");
    for (number, host) in ["52000.0", "54000.0", "56000.0"].into_iter().enumerate() {
        assert_eq!(
            row(&rounds, number),
            [&number.to_string(), host, "50000.0", "29001.0", "10000.0", "29000.0"]
        );
    }
    assert!(rounds.contains("(3 rounds)"));
}

#[test]
fn orphans_hang_under_the_nearest_ancestor_that_their_name_allows() {
    let tree = tree("missing-parent-depth");
    let lines: Vec<&str> = tree.lines().collect();
    assert!(lines[1].starts_with("simpler_run "));
    assert!(lines[2].starts_with("  bind "));
    assert!(lines[3].starts_with("  Effective              [dev]       29001.0 us"), "{tree}");
    assert_eq!(lines[4], "    orch 10000.0  ∥  sched 29000.0   (concurrent)");
}

#[test]
fn shuffled_lines_make_a_whole_tree() {
    let shuffled = tree("out-of-order-lines");
    let mut natural: Vec<&str> =
        shuffled.lines().skip(1).map(|line| line.trim().split(' ').next().unwrap()).collect();
    natural.retain(|name| !name.is_empty());
    assert_eq!(
        natural,
        ["simpler_run", "bind", "runner_run", "device_wall", "Effective", "orch", "validate"]
    );
}

#[test]
fn no_view_prints_what_is_no_number() {
    for name in ["zero-duration", "timestamp-overflow", "u64-limits"] {
        for text in [table(name), tree(name), rounds(name)] {
            assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
        }
    }
    assert!(table("u64-limits").contains("callable hid=ffffffffffffffff — 2 invocation(s)"));
}

#[test]
fn a_name_cannot_speak_to_the_terminal() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("control.log");
    let spans = ["depth=0 name=odd%0Aname%1B%5B31m", "depth=1 name=odd.%07%E2%82%AC"]
        .map(|fields| format!("[STRACE] v=1 pid=1 tid=1 inv=1 hid=a {fields} ts=1 dur=1 \n"));
    std::fs::write(&path, spans.concat()).unwrap();
    let trace = read(&[Source::path(path)]).unwrap().trace;
    let mut out = Vec::new();
    text::table(&mut out, &trace.callables()).unwrap();
    text::tree(&mut out, &trace, &trace.callables()).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
    assert!(text.contains("odd\\nname\\u{1b}[31m: mean="), "{text}");
    assert!(text.contains("\\u{7}\u{20ac}"), "{text}");
}

#[test]
fn task_slots_show_their_windows_and_the_interval_between_any_two() {
    let trace = case("task-slots").trace;
    let mut out = Vec::new();
    assert!(text::task_slots(&mut out, &trace, &trace.callables()).unwrap());
    let said = String::from_utf8(out).unwrap();
    let rows: Vec<Vec<&str>> = said.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0][..2], ["callable", "hid=b7e2c04410d95f6e"]);
    // Slot 16 is none.
    assert_eq!(rows[2..4], [["0", "1", "1000.0", "2000.0"], ["15", "1", "6000.0", "4000.0"]]);
    assert_eq!(rows[5], ["0", "15"]);
    // 0's dispatch to 15's finish; back, 0 was done before 15 began.
    assert_eq!(rows[6..8], [["0", "2000.0", "9000.0"], ["15", "-3000.0", "4000.0"]]);
    let mut out = Vec::new();
    let trace = case("zero-duration").trace;
    assert!(!text::task_slots(&mut out, &trace, &trace.callables()).unwrap());
    assert!(out.is_empty());
}
