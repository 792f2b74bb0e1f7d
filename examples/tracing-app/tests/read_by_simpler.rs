//! What the example logs, and what `simpler` makes of it.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The binary `simpler` of this checkout, built if it is not there yet.
fn simpler() -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
    let built = Command::new(cargo)
        .args(["build", "--quiet", "--package", "simpler-cli", "--message-format", "json-render-diagnostics"])
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let messages = String::from_utf8(built.stdout).unwrap();
    let executable = |line: &str| {
        let message: Value = serde_json::from_str(line).ok()?;
        Some(PathBuf::from(message["executable"].as_str()?))
    };
    messages.lines().filter_map(executable).find(|path| path.ends_with("simpler")).unwrap()
}

/// Runs `simpler` and gives its two outputs.
fn output(simpler: &Path, arguments: &[&str]) -> (String, String) {
    let output = Command::new(simpler).args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", text(output.stderr));
    (text(output.stdout), text(output.stderr))
}

#[test]
fn a_program_that_knows_tracing_alone_is_read_by_simpler() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let ran = Command::new(env!("CARGO_BIN_EXE_tracing-app")).arg(&log).output().unwrap();
    assert!(ran.status.success());
    assert!(ran.stdout.is_empty() && ran.stderr.is_empty(), "all of it is in the log");

    let log = log.to_str().unwrap();
    let simpler = simpler();

    // Nothing lost, though the program ends without a word to the log.
    let (facts, _) = output(&simpler, &["check", "--strict", "--json", log]);
    let facts: Value = serde_json::from_str(&facts).unwrap();
    assert_eq!((&facts["spans"], &facts["external"], &facts["anchors"]), (&14.into(), &14.into(), &1.into()));

    let (table, notes) = output(&simpler, &["timing", log]);
    assert_eq!(notes, "note: only scheduler and external spans, no invocations\n");
    let mut lines = table.lines();
    assert_eq!(lines.next(), Some("external shop — 14 span(s)"));
    assert!(lines.next().unwrap().starts_with("  ext.shop.day: mean="), "the longest comes first: {table}");
    for (name, count) in [("day", 1), ("order", 4), ("order.check", 4), ("order.pack", 4), ("audit", 1)] {
        let line = table.lines().find(|line| line.starts_with(&format!("  ext.shop.{name}: mean="))).unwrap();
        assert!(line.contains("us total=") && line.ends_with(&format!("us (n={count})")), "{line}");
    }

    let (tree, _) = output(&simpler, &["timing", "--tree", log]);
    let names: Vec<&str> =
        tree.lines().skip(1).map(|line| &line[..line.len().min(14)]).map(str::trim_end).collect();
    assert_eq!(names, ["day", "  order", "    order.chec", "    order.pack", "audit", ""]);

    let (figures, _) = output(&simpler, &["timing", "--json", log]);
    let figures: Value = serde_json::from_str(&figures).unwrap();
    let names = figures["external"][0]["names"].as_array().unwrap();
    let figure =
        |name: &str, key: &str| names.iter().find(|one| one["name"] == name).unwrap()[key].as_i64().unwrap();
    assert!(figure("ext.shop.order.pack", "min_ns") >= 100_000, "as long as the work took");
    let (inner, outer) = (figure("ext.shop.order", "total_ns"), figure("ext.shop.day", "total_ns"));
    assert!(inner >= 4 * 150_000 && inner <= outer);

    let picture = folder.path().join("trace.json");
    output(&simpler, &["timing", log, "--trace-out", picture.to_str().unwrap()]);
    let picture: Value = serde_json::from_slice(&std::fs::read(&picture).unwrap()).unwrap();
    let events = picture["traceEvents"].as_array().unwrap();
    let spans: Vec<&Value> = events.iter().filter(|event| event["ph"] == "X").collect();
    assert_eq!(spans.len(), 14);
    let process = events.iter().find(|event| event["name"] == "process_name").unwrap();
    assert!(process["args"]["name"].as_str().unwrap().starts_with("external producer shop (pid="));
    let tid = |name: &str| &spans.iter().find(|event| event["name"] == name).unwrap()["tid"];
    assert_ne!(tid("ext.shop.audit"), tid("ext.shop.day"), "the worker has a track of its own");

    // The events: those above the threshold, with place and fields.
    let file = std::fs::read_dir(log).unwrap().next().unwrap().unwrap().path();
    let text = std::fs::read_to_string(file).unwrap();
    assert_eq!(text.matches("[INFO] tracing_app: [main.rs:").count(), 4);
    assert!(text.contains("] packed late number=3\n") && !text.contains("below the threshold"));
}
