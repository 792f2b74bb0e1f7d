//! The text views of real logs, byte for byte.
//!
//! To accept a change on purpose, run with `BLESS=1` and read the difference.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use simpler_trace_export::text;
use simpler_trace_ingest::{Source, read};
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
