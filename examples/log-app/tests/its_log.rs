//! What the example logs.

use std::process::Command;

#[test]
fn records_of_log_are_in_the_host_log_when_the_program_has_ended() {
    let folder = tempfile::tempdir().unwrap();
    let ran = Command::new(env!("CARGO_BIN_EXE_log-app")).arg(folder.path()).output().unwrap();
    assert!(ran.status.success());
    assert!(ran.stdout.is_empty() && ran.stderr.is_empty());

    let file = std::fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
    let text = std::fs::read_to_string(file).unwrap();
    let records: Vec<(&str, &str)> = text
        .lines()
        // How far times may be off is said where the processor's counter is the clock.
        .filter(|line| !line.contains("[HOSTLOG_CLOCK]"))
        .map(|line| line.split_once("][").and_then(|(_, rest)| rest.split_once("][")).unwrap().1)
        .map(|rest| rest.split_once(": [").unwrap())
        .collect();
    let [(anchor, _), (host, _), (info, said), (warn, warned)] = records[..] else { panic!("{text}") };
    assert_eq!((anchor, host), ("TIMING] clock_anchor", "TIMING] host.identity"));
    assert_eq!((info, warn), ("INFO] log_app", "WARN] audit"));
    assert!(said.starts_with("main.rs:") && said.ends_with("] 3 pages are left"));
    assert!(warned.ends_with("] printed twice page=2"));
}
