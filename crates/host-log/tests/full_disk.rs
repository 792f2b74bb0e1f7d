//! A destination that has no room left, and then has some again: whole records only, the rest counted, and told.

#![cfg(feature = "host-strace")]
#![expect(clippy::unwrap_used, reason = "clippy does not take the functions beside the tests for tests")]

mod support;
mod tally;

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use simpler_host_log::{self as log, Config, DropReason};
use support::{DRAIN, StderrPipe, fork, in_own_process, lines, lines_of, log_file, reap, the_anchor};

/// Logs the records with the ids of `range`, with a flush now and then, so that the queue is never full.
fn produce(range: std::ops::Range<u64>) {
    for id in range {
        log::log_warn!("a record that is to land id={id}");
        if id % 1000 == 999 {
            log::flush(DRAIN).unwrap();
        }
    }
    log::flush(DRAIN).unwrap();
}

/// In a child: a file system of `bytes` of its own at `place`, or why not.
fn mount_small_file_system(place: &Path, bytes: u64) -> std::io::Result<()> {
    let check = |result: libc::c_int| match result {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    };
    // SAFETY: no memory involved. Who may not have a mount namespace may have one with a user namespace.
    if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
        // SAFETY: as above.
        check(unsafe { libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS) })?;
    }
    let none = std::ptr::null();
    let flags = libc::MS_REC | libc::MS_PRIVATE;
    // SAFETY: zero-terminated paths.
    check(unsafe { libc::mount(none, c"/".as_ptr(), none, flags, none.cast()) })?;
    let place = std::ffi::CString::new(place.as_os_str().as_bytes()).unwrap();
    let size = std::ffi::CString::new(format!("size={bytes}")).unwrap();
    let kind = c"tmpfs".as_ptr();
    // SAFETY: as above.
    check(unsafe { libc::mount(kind, place.as_ptr(), kind, 0, size.as_ptr().cast()) })
}

/// Runs `body` in a child with a file system of 1 MB, half of which `ballast` takes until it is removed.
fn in_a_small_file_system(body: impl Fn(&Path, &Path)) {
    const BYTES: u64 = 1 << 20;
    let place = tempfile::tempdir().unwrap();
    let child = fork(|| {
        if let Err(error) = mount_small_file_system(place.path(), BYTES) {
            return eprintln!("skipped: a small file system needs a mount namespace: {error}");
        }
        let ballast = place.path().join("ballast");
        std::fs::write(&ballast, vec![0; BYTES as usize / 2]).unwrap();
        body(place.path(), &ballast);
    });
    reap(child);
}

#[test]
fn a_full_file_system_costs_records_but_tears_none_and_is_told_once_there_is_room() {
    const RECORDS: u64 = 8000;
    in_own_process("a_full_file_system_costs_records_but_tears_none_and_is_told_once_there_is_room", || {
        for is_queued in [true, false] {
            in_a_small_file_system(|place, ballast| {
                let directory = Some(place);
                log::init(&Config { directory, defer_writer: !is_queued, ..Config::default() }).unwrap();
                produce(0..RECORDS);
                let full = lines_of(place, log::pid());
                let counts = log::counts();
                let lost = tally::only(DropReason::OutputFailed, &counts);
                assert!(lost > 0, "the file system is full");
                the_anchor(&full);
                let landed = tally::ids(&full);
                assert!(landed.is_sorted());
                assert_eq!(landed.len() as u64 + lost, RECORDS);
                assert_eq!(landed.len() + 1, full.len(), "and nothing else");
                // The report does not land either, so nothing counts as told.
                log::prepare_to_fork(DRAIN).unwrap();
                assert_eq!((log::counts().dropped, log::counts().reported), (lost, 0));
                assert_eq!(lines_of(place, log::pid()), full);
                // There is room again.
                std::fs::remove_file(ballast).unwrap();
                if is_queued {
                    log::start_writer().unwrap();
                }
                produce(RECORDS..RECORDS + 100);
                log::prepare_to_fork(DRAIN).unwrap();
                log::prepare_to_fork(DRAIN).unwrap();
                let lines = lines_of(place, log::pid());
                let reports = tally::drop_reports(&lines);
                assert_eq!(reports.len(), 1, "told once");
                assert_eq!(
                    (reports[0].new, reports[0].total, reports[0].by_reason),
                    (lost, lost, [0, 0, lost, 0])
                );
                assert_eq!(log::counts().reported, lost);
                let ids = tally::ids(&lines);
                assert_eq!(ids.len() as u64 + reports[0].total, RECORDS + 100, "the text alone adds up");
                assert!(
                    ids.ends_with(&(RECORDS..RECORDS + 100).collect::<Vec<u64>>()),
                    "all of the later ones"
                );
            });
        }
    });
}

#[test]
fn an_anchor_lost_to_a_full_file_system_comes_before_the_first_record_that_lands() {
    in_own_process("an_anchor_lost_to_a_full_file_system_comes_before_the_first_record_that_lands", || {
        for is_queued in [true, false] {
            in_a_small_file_system(|place, ballast| {
                let rest = std::fs::write(place.join("rest"), vec![0; 1 << 20]);
                assert_eq!(rest.unwrap_err().kind(), std::io::ErrorKind::StorageFull);
                let directory = Some(place);
                log::init(&Config { directory, defer_writer: !is_queued, ..Config::default() }).unwrap();
                log::flush(DRAIN).unwrap();
                log::log_error!("lost id=0");
                log::flush(DRAIN).unwrap();
                // Each record tries the anchor first, and queued the host's identity behind it; those that start_writer
                // tries are lost as well.
                let lost = tally::only(DropReason::OutputFailed, &log::counts());
                assert!((2..=5).contains(&lost), "{lost}");
                std::fs::remove_file(ballast).unwrap();
                log::log_error!("lands id=1");
                log::flush(DRAIN).unwrap();
                let lines = lines_of(place, log::pid());
                the_anchor(&lines);
                assert_eq!(tally::ids(&lines), [1]);
                assert_eq!(log::counts().dropped, lost);
            });
        }
    });
}

fn limit_files_to(bytes: u64) {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: a valid limit.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) }, 0);
}

#[test]
fn a_file_at_its_limit_ends_at_a_record_and_goes_on_there_once_it_may_grow() {
    const RECORDS: u64 = 1000;
    in_own_process("a_file_at_its_limit_ends_at_a_record_and_goes_on_there_once_it_may_grow", || {
        for is_queued in [true, false] {
            // So that the limit falls at any place of a record.
            for limit in [20_000, 20_033, 20_066] {
                let dir = tempfile::tempdir().unwrap();
                let child = fork(|| {
                    // SAFETY: ignoring a signal.
                    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
                    limit_files_to(limit);
                    let directory = Some(dir.path());
                    log::init(&Config { directory, defer_writer: !is_queued, ..Config::default() }).unwrap();
                    produce(0..RECORDS);
                    let lost = tally::only(DropReason::OutputFailed, &log::counts());
                    let landed = tally::ids(&lines_of(dir.path(), log::pid())).len() as u64;
                    assert_eq!(landed + lost, RECORDS);
                    assert!(landed > 0 && lost > 0);
                    assert!(log_file(dir.path(), log::pid()).metadata().unwrap().len() <= limit);
                    limit_files_to(libc::RLIM_INFINITY);
                    produce(RECORDS..2 * RECORDS);
                    log::prepare_to_fork(DRAIN).unwrap();
                    assert_eq!(tally::only(DropReason::OutputFailed, &log::counts()), lost);
                });
                reap(child);
                let lines = lines_of(dir.path(), child);
                the_anchor(&lines);
                let reports = tally::drop_reports(&lines);
                let ids = tally::ids(&lines);
                assert!(ids.is_sorted());
                assert_eq!(ids.len() as u64 + reports[0].total, 2 * RECORDS);
                // The anchor, and the warning that the queue's file is beyond the limit as well.
                let warnings = lines.iter().filter(|line| line.contains("the log queue is private memory"));
                assert_eq!(warnings.clone().count(), usize::from(is_queued));
                assert_eq!(ids.len() + reports.len() + warnings.count() + 1, lines.len());
            }
        }
    });
}

#[test]
fn a_stderr_without_room_costs_records_which_are_told_on_the_next_one() {
    in_own_process("a_stderr_without_room_costs_records_which_are_told_on_the_next_one", || {
        for is_queued in [true, false] {
            let pipe = StderrPipe::install(None);
            let child = fork(|| {
                // SAFETY: duplicates descriptor 2, the pipe.
                let former = unsafe { libc::fcntl(2, libc::F_DUPFD_CLOEXEC, 3) };
                let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
                // SAFETY: both are open.
                assert_eq!(unsafe { libc::dup2(std::os::fd::AsRawFd::as_raw_fd(&full), 2) }, 2);
                log::init(&Config { defer_writer: !is_queued, ..Config::default() }).unwrap();
                produce(0..100);
                let lost = tally::only(DropReason::OutputFailed, &log::counts());
                // Besides the records, an anchor is lost before each, or only now and then if that comes later.
                assert!((101..=201).contains(&lost), "{lost}");
                log::prepare_to_fork(DRAIN).unwrap();
                assert_eq!(log::counts().reported, 0, "no report landed");
                // SAFETY: as above.
                assert_eq!(unsafe { libc::dup2(former, 2) }, 2);
                produce(100..101);
                log::prepare_to_fork(DRAIN).unwrap();
                assert_eq!(log::counts().reported, lost);
            });
            pipe.restore();
            let lines = lines(&pipe.read_to_end());
            reap(child);
            the_anchor(&lines);
            assert_eq!((tally::ids(&lines), lines.len()), (vec![100], 3), "{lines:#?}");
            assert_eq!(tally::drop_reports(&lines).len(), 1);
        }
    });
}
