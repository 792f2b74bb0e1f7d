//! Logs that went wrong in some way, and what `simpler check --json` has to say about each.
//!
//! A case is a folder with its input and a `facts.json`. A fact of the case that the output does not hold
//! is a failure, and so is a case without any fact.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use serde_json::Value;
use simpler_trace_export::json;
use simpler_trace_ingest::{Source, read};
use std::path::{Path, PathBuf};

fn cases() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/cases")
}

fn check(input: &Path) -> Value {
    let reading = read(&[Source::path(input)]).unwrap();
    let mut out = Vec::new();
    json::check(&mut out, &reading, &reading.trace.facts(), None).unwrap();
    assert_eq!(out.iter().filter(|&&b| b == b'\n').count(), 1, "one line");
    serde_json::from_slice(&out).unwrap()
}

fn holds(want: &Value, got: &Value) -> bool {
    match (want, got) {
        (Value::Number(want), Value::Number(got)) if want.is_f64() => {
            let (want, got) = (want.as_f64().unwrap(), got.as_f64().unwrap());
            (want - got).abs() <= 1e-6 * want.abs()
        }
        (Value::Object(want), Value::Object(got)) => {
            want.iter().all(|(key, want)| got.get(key).is_some_and(|got| holds(want, got)))
        }
        _ => want == got,
    }
}

#[test]
fn every_case_has_its_facts() {
    let mut failures = Vec::new();
    let mut facts = 0;
    for case in cases().read_dir().unwrap() {
        let folder = case.unwrap().path();
        let case: Value = serde_json::from_slice(&std::fs::read(folder.join("facts.json")).unwrap()).unwrap();
        let wanted = case["facts"].as_object().unwrap();
        assert!(!wanted.is_empty());
        let inputs = ["input.log", "input.log.gz", "input"].map(|name| folder.join(name));
        let inputs: Vec<&PathBuf> = inputs.iter().filter(|input| input.exists()).collect();
        assert!(!inputs.is_empty(), "{}", folder.display());
        for input in inputs {
            let got = check(input);
            for (key, want) in wanted {
                facts += 1;
                if !got.get(key).is_some_and(|got| holds(want, got)) {
                    failures.push(format!("{}: {key}: want {want}, got {}", input.display(), got[key]));
                }
            }
        }
    }
    assert!(facts > 150, "only {facts} facts");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn a_fact_that_the_log_does_not_hold_has_no_key() {
    let got = check(&cases().join("torn-in-header/input.log"));
    for key in ["effective_us", "device_slack_us", "straggler_pid", "slot_interval_us"] {
        assert!(got.get(key).is_none(), "{key}");
    }
}

#[test]
fn complaints_say_where_and_why() {
    let got = check(&cases().join("torn-in-header/input.log"));
    let complaint = &got["complaints"][0];
    assert_eq!(complaint["kind"], "torn");
    let at = complaint["offset"].as_u64().unwrap() as usize;
    let input = std::fs::read(cases().join("torn-in-header/input.log")).unwrap();
    assert!(input[at..].starts_with(b"[STRACE] v=1 pid=42"));
    assert_eq!(got["complaint_counts"]["torn"], 1);
}

#[test]
fn one_record_read_twice_counts_once() {
    let input = cases().join("ranks-with-unequal-rounds/input.log");
    let once = read(&[Source::path(&input)]).unwrap();
    let twice = read(&[Source::path(&input), Source::path(&input)]).unwrap();
    assert_eq!(twice.trace.counts().duplicates as usize, once.trace.spans().len());
    assert_eq!(twice.trace.facts(), once.trace.facts());
}
