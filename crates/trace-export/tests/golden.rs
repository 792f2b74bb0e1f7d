//! The views of real logs and of constructed ones, byte for byte.
//!
//! To accept a change on purpose, run with `BLESS=1` and read the difference.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use simpler_trace_export::json::Wanted;
use simpler_trace_export::{dispatches, json, self_time, steps, text};
use simpler_trace_ingest::{Reading, Source, read};
use std::path::Path;

fn compare(name: &str, got: &[u8]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/logs").join(name);
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, got).unwrap();
    }
    let want = std::fs::read(&path).unwrap();
    assert_eq!(String::from_utf8_lossy(&want), String::from_utf8_lossy(got), "{name}");
    assert_eq!(want, got, "{name}");
}

fn views(log: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/logs").join(log);
    let trace = read(&[Source::path(path.with_extension("log"))]).unwrap().trace;
    let callables = trace.callables();
    let mut table = Vec::new();
    text::table(&mut table, &callables).unwrap();
    compare(&format!("{log}.table.txt"), &table);
    let mut percentiles = Vec::new();
    text::percentiles(&mut percentiles, &trace.callables_with_ranks()).unwrap();
    compare(&format!("{log}.percentiles.txt"), &percentiles);
    let mut tree = Vec::new();
    text::tree(&mut tree, &trace, &callables).unwrap();
    compare(&format!("{log}.tree.txt"), &tree);
    let mut rounds = Vec::new();
    if let Some(of) = trace.rounds(&callables) {
        text::rounds(&mut rounds, &of).unwrap();
    }
    compare(&format!("{log}.rounds.txt"), &rounds);
}

#[test]
fn thirty_runs_with_the_whole_device_tree() {
    views("vec_trb_a2a3sim_r30");
}

#[test]
fn one_callable_once_and_another_fifty_times() {
    views("prefill_decode_trb_a2a3sim_r50");
}

#[test]
fn a_node_and_two_chips() {
    views("l3_ffn_tp_a2a3sim");
}

/// Six workers, one after the other in one process, each counting its invocations from 1.
#[test]
fn workers_that_reuse_their_invocation_numbers() {
    views("tt_tests_a2a3sim");
}

#[test]
fn device_wall_alone_and_prose_between_records() {
    views("vec_hbg_a2a3sim_debuglevel");
}

#[test]
fn setup_without_any_run() {
    views("prewarm_trb_a2a3sim");
}

fn log(name: &str) -> Reading {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    read(&[Source::path(path)]).unwrap()
}

/// A prefill and four decode steps on two chips, each hand-over numbered for itself. Device times relate to the host's but
/// in one run; the second chip's last run is lost.
#[test]
fn steps_self_times_and_dispatches_of_a_node_and_two_chips() {
    let reading = log("logs/node_two_chips_steps.log");
    let trace = &reading.trace;
    let callables = trace.callables();
    let mut out = Vec::new();
    let all = trace.steps(&callables);
    assert_eq!(all.len(), 1, "prefill ran once a rank");
    steps::text(&mut out, trace, &all[0]).unwrap();
    compare("node_two_chips_steps.steps.txt", &out);
    out.clear();
    self_time::text(&mut out, trace, &callables).unwrap();
    compare("node_two_chips_steps.self.txt", &out);
    out.clear();
    dispatches::text(&mut out, trace, &trace.dispatches()).unwrap();
    compare("node_two_chips_steps.dispatches.txt", &out);
    out.clear();
    let wanted = Wanted { steps: true, dispatches: true, self_times: true };
    json::timing(&mut out, &reading, &callables, wanted).unwrap();
    compare("node_two_chips_steps.json", &out);
}

/// Four ranks whose roots share a `run_id`; the device of one is slow.
#[test]
fn steps_of_ranks_that_share_run_ids() {
    let trace = log("cases/straggler-rank/input.log").trace;
    let mut out = Vec::new();
    steps::text(&mut out, &trace, &trace.steps(&trace.callables())[0]).unwrap();
    compare("../cases/straggler-rank/steps.txt", &out);
}

/// A real log of chips that say no identity: its dispatches cannot be joined, and that is said.
#[test]
fn dispatches_without_an_identity_on_the_other_side() {
    let trace = log("logs/l3_ffn_tp_a2a3sim.log").trace;
    let mut out = Vec::new();
    dispatches::text(&mut out, &trace, &trace.dispatches()).unwrap();
    compare("l3_ffn_tp_a2a3sim.dispatches.txt", &out);
    out.clear();
    self_time::text(&mut out, &trace, &trace.callables()).unwrap();
    compare("l3_ffn_tp_a2a3sim.self.txt", &out);
}

#[test]
fn nothing_is_in_the_figures_that_was_not_asked_for() {
    let reading = log("logs/node_two_chips_steps.log");
    let mut out = Vec::new();
    json::timing(&mut out, &reading, &reading.trace.callables(), Wanted::default()).unwrap();
    let text = String::from_utf8(out).unwrap();
    for key in ["\"steps\"", "\"dispatches\"", "\"self_times\""] {
        assert!(!text.contains(key), "{key}");
    }
}
