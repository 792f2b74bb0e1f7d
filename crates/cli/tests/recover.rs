//! `simpler recover` from outside: what it says, as text and as JSON, and its exit codes.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use serde_json::{Value, json};
use simpler_host_log::{self as log, Config, diagnostics};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// Set in a process that is to die: the folder of its log, or nothing for stderr.
const DIES: &str = "SIMPLER_RECOVER_TEST_DIES";

/// A folder of its own for each test.
fn folder(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(path.join("log")).unwrap();
    path.canonicalize().unwrap()
}

fn recover(folder: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_simpler"));
    let Output { status, stdout, stderr } = command
        .arg("recover")
        .args(arguments)
        .env("SIMPLER_SHM", folder)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

/// Runs this test program again, with only the test below, until it has killed itself; gives its pid.
fn die(folder: &Path, log: &str) -> u32 {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["a_process_that_dies", "--exact", "--nocapture", "--test-threads=1"])
        .env(DIES, log)
        .env("SIMPLER_SHM", folder)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let pid = child.id();
    assert_eq!(child.wait().unwrap().code(), None, "it was to be killed");
    pid
}

#[test]
fn a_process_that_dies() {
    // As a test of its own this is nothing.
    let Some(directory) = std::env::var_os(DIES) else { return };
    let directory = PathBuf::from(directory);
    let directory = Some(&*directory).filter(|directory| !directory.as_os_str().is_empty());
    log::init(&Config { directory, ..Config::default() }).unwrap();
    log::flush(Duration::from_secs(20)).unwrap();
    // The writer never gets past it.
    let _never_published = diagnostics::open_gap().unwrap();
    log::log_warn!("the last words");
    std::process::Command::new("kill").args(["-9", &std::process::id().to_string()]).status().unwrap();
}

#[test]
fn it_says_what_it_did_and_what_is_in_the_log_then() {
    let folder = folder("recover_says");
    let logs = folder.join("log");
    let logs = logs.to_str().unwrap();
    let pid = die(&folder, logs);
    let log = format!("{logs}/host.{pid}.log");
    let (code, out, err) = recover(&folder, &[logs]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert_eq!(out, format!("process {pid}: 1 record recovered ({log})\n"));
    assert!(std::fs::read_to_string(&log).unwrap().ends_with(" the last words\n"));
    assert_eq!(recover(&folder, &[logs]), (Some(0), "nothing to recover\n".to_owned(), String::new()));

    let pid = die(&folder, logs);
    let (code, out, _) = recover(&folder, &[logs, "--json"]);
    let log = format!("{logs}/host.{pid}.log");
    let done = json!({"pid": pid, "log": log, "records": 1, "lost": 0, "cut_bytes": 0});
    assert_eq!(code, Some(0));
    assert_eq!(
        serde_json::from_str::<Value>(&out).unwrap(),
        json!({"recovered": [done], "refused": [], "living": []})
    );
}

#[test]
fn a_ring_that_is_left_is_said_and_the_answer_is_no() {
    let folder = folder("recover_refuses");
    let logs = folder.join("log");
    let pid = die(&folder, logs.to_str().unwrap());
    std::fs::write(logs.join(format!("host.{pid}.log")), "").unwrap();
    let (code, out, err) = recover(&folder, &[logs.to_str().unwrap(), "--json"]);
    assert_eq!(code, Some(1), "{err}");
    assert!(err.starts_with(&format!("the ring of process {pid}, ")) && err.contains("has 0 bytes"), "{err}");
    let out: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(out["refused"][0]["pid"], pid);
    assert!(out["refused"][0]["why"].as_str().unwrap().contains("has 0 bytes"), "{out}");
}

#[test]
fn records_for_stderr_are_printed() {
    let folder = folder("recover_stderr");
    let pid = die(&folder, "");
    let (code, out, err) = recover(&folder, &["--stderr"]);
    assert_eq!(code, Some(0));
    assert!(out.ends_with(" the last words\n"), "{out}");
    assert_eq!(err, format!("process {pid}: 1 record printed, each at least once\n"));
    assert_eq!(recover(&folder, &["--stderr"]).2, "nothing to recover\n");
}

#[test]
fn a_folder_that_is_none_cannot_be_used() {
    let folder = folder("recover_unusable");
    let (code, out, err) = recover(&folder, &["/there/is/none"]);
    assert_eq!((code, out.as_str()), (Some(2), ""));
    assert!(err.contains("/there/is/none"), "{err}");
    assert_eq!(recover(&folder, &[]).0, Some(2));
    assert_eq!(recover(&folder, &[folder.to_str().unwrap()]).0, Some(0), "no ring is fine");
}
