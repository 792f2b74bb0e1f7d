//! The ends of a process: each drains what was accepted, or says what it could not.

#![cfg(feature = "host-strace")]

mod support;
mod tally;

use std::process::Command;
use std::time::{Duration, Instant};

use simpler_host_log::{self as log, Config, Level};
use support::{
    DRAIN, StderrPipe, envelope, fork, in_own_process, lines, lines_of, log_file, log_to_folder, reap,
};

const RECORDS: u64 = 3000;

fn produce() {
    for id in 0..RECORDS {
        log::log_warn!("not flushed id={id}");
    }
}

#[test]
fn a_return_from_main_drains() {
    const FOLDER: &str = "SIMPLER_HOST_LOG_RETURNING_TEST";
    if let Some(folder) = std::env::var_os(FOLDER) {
        // The test harness returns from its `main` when its tests have passed.
        log::init(&Config { directory: Some(folder.as_ref()), ..Config::default() }).unwrap();
        return produce();
    }
    let dir = tempfile::tempdir().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["a_return_from_main_drains", "--exact", "--test-threads=1"])
        .env(FOLDER, dir.path())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    assert!(child.wait().unwrap().success());
    let lines = lines_of(dir.path(), child.id() as i32);
    assert_eq!(tally::ids(&lines), (0..RECORDS).collect::<Vec<u64>>());
}

#[test]
fn a_close_before_an_exit_without_handlers_drains() {
    in_own_process("a_close_before_an_exit_without_handlers_drains", || {
        let dir = tempfile::tempdir().unwrap();
        let child = fork(|| {
            log::init(&Config { directory: Some(dir.path()), ..Config::default() }).unwrap();
            produce();
            log::close(DRAIN);
            // `fork` ends by _exit.
        });
        reap(child);
        assert_eq!(tally::ids(&lines_of(dir.path(), child)).len() as u64, RECORDS);
    });
}

#[test]
fn an_exit_while_another_thread_logs_drains_and_reports() {
    in_own_process("an_exit_while_another_thread_logs_drains_and_reports", || {
        let dir = tempfile::tempdir().unwrap();
        let child = fork(|| {
            let config = Config { directory: Some(dir.path()), defer_writer: true, ..Config::default() };
            log::init(&config).unwrap();
            let away = dir.path().with_extension("away");
            std::fs::rename(dir.path(), &away).unwrap();
            log::log_warn!("lost");
            std::fs::rename(&away, dir.path()).unwrap();
            log::start_writer().unwrap();
            produce();
            let begun = std::sync::Arc::new(std::sync::Barrier::new(2));
            std::thread::spawn({
                let begun = begun.clone();
                move || {
                    begun.wait();
                    loop {
                        log::log_warn!("until the end");
                    }
                }
            });
            begun.wait();
            // SAFETY: runs the exit handlers, which is the point.
            unsafe { libc::exit(0) };
        });
        reap(child);
        let lines = lines_of(dir.path(), child);
        assert_eq!(tally::ids(&lines), (0..RECORDS).collect::<Vec<u64>>());
        let reports = tally::drop_reports(&lines);
        assert_eq!(reports.len(), 1);
        // The record and the anchor before it; what the other thread lost meanwhile is told as well.
        assert_eq!(reports[0].by_reason[2], 2);
    });
}

#[test]
fn an_exit_that_cannot_drain_says_both_counts_and_does_not_hang() {
    in_own_process("an_exit_that_cannot_drain_says_both_counts_and_does_not_hang", || {
        let dir = tempfile::tempdir().unwrap();
        let pipe = StderrPipe::install(None);
        let start = Instant::now();
        let child = fork(|| {
            // A FIFO in the log file's place, which nobody reads, holds the writer up.
            let path = log_file(dir.path(), log::pid()).into_os_string().into_encoded_bytes();
            let path = std::ffi::CString::new(path).unwrap();
            // SAFETY: a zero-terminated path.
            assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
            log::init(&Config { directory: Some(dir.path()), ..Config::default() }).unwrap();
            for _ in 0..5000 {
                log::log_warn!("stuck");
            }
            // SAFETY: runs the exit handlers, which is the point.
            unsafe { libc::exit(0) };
        });
        pipe.restore();
        let said = lines(&pipe.read_to_end());
        reap(child);
        assert!(start.elapsed() < Duration::from_secs(10));
        assert_eq!(said.len(), 1, "{said:#?}");
        let (found, body) = envelope(&said[0]);
        assert_eq!(found.level, Level::Warn);
        // The anchor and the host's identity are records, too.
        assert_eq!(body, "host log not drained within 1000 ms: pending=4096 dropped=906");
    });
}

#[test]
fn a_close_says_what_was_lost_in_the_log_itself() {
    in_own_process("a_close_says_what_was_lost_in_the_log_itself", || {
        let dir = log_to_folder();
        log::flush(DRAIN).unwrap();
        std::fs::rename(dir.path(), dir.path().with_extension("away")).unwrap();
        log::prepare_to_fork(DRAIN).unwrap();
        log::log_error!("lost");
        std::fs::rename(dir.path().with_extension("away"), dir.path()).unwrap();
        log::close(DRAIN);
        log::close(DRAIN);
        let reports = tally::drop_reports(&lines_of(dir.path(), log::pid()));
        assert_eq!(reports.len(), 1);
        assert_eq!((reports[0].new, reports[0].by_reason), (1, [0, 0, 1, 0]));
    });
}
