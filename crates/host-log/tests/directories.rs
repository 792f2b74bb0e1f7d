//! Bound directories: races for the first place, folders that cannot be written, and one that comes late.

#![cfg(feature = "host-strace")]

mod support;
mod tally;

use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use simpler_host_log::{self as log, Config, DropReason, ErrorKind, span};
use support::{
    DRAIN, StderrPipe, deferred_log_to_folder, fork, in_own_process, lines, lines_of, reap, the_anchor,
};

#[test]
fn of_many_directories_bound_at_once_one_wins_and_has_everything() {
    in_own_process("of_many_directories_bound_at_once_one_wins_and_has_everything", || {
        const BINDERS: usize = 8;
        for has_writer in [true, false] {
            let dirs: Vec<_> = (0..BINDERS).map(|_| tempfile::tempdir().unwrap()).collect();
            let pipe = StderrPipe::install(None);
            let child = fork(|| {
                log::init(&Config { defer_writer: !has_writer, ..Config::default() }).unwrap();
                let start = Barrier::new(BINDERS);
                let bound = AtomicU64::new(0);
                std::thread::scope(|scope| {
                    for (number, dir) in dirs.iter().enumerate() {
                        let (start, bound) = (&start, &bound);
                        scope.spawn(move || {
                            start.wait();
                            if log::set_directory(dir.path()).unwrap() {
                                bound.fetch_add(1, Ordering::Relaxed);
                            }
                            // Whoever lost may be before the winner is done; its record is on stderr then.
                            log::log_warn!("bound id={number}");
                        });
                    }
                });
                assert_eq!(bound.load(Ordering::Relaxed), 1);
                log::log_warn!("later id=100");
                log::flush(DRAIN).unwrap();
                assert_eq!(log::counts().dropped, 0);
            });
            pipe.restore();
            let on_stderr = lines(&pipe.read_to_end());
            reap(child);
            let with_file: Vec<&Path> =
                dirs.iter().map(|dir| dir.path()).filter(|dir| !lines_of(dir, child).is_empty()).collect();
            assert_eq!(with_file.len(), 1, "one run's log is never split over two folders");
            let in_file = lines_of(with_file[0], child);
            assert_eq!(tally::anchors(&in_file).len(), 1);
            if has_writer {
                the_anchor(&in_file);
            }
            let mut ids = tally::ids(&[in_file, on_stderr].concat());
            ids.sort_unstable();
            assert_eq!(ids, (0..BINDERS as u64).chain([100]).collect::<Vec<u64>>());
        }
    });
}

#[test]
fn a_directory_that_takes_no_file_costs_every_record_and_stderr_stays_silent() {
    in_own_process("a_directory_that_takes_no_file_costs_every_record_and_stderr_stays_silent", || {
        // Not even root makes a file there.
        let refusing = Path::new("/proc/self");
        for has_writer in [true, false] {
            let pipe = StderrPipe::install(None);
            let child = fork(|| {
                let config =
                    Config { directory: Some(refusing), defer_writer: !has_writer, ..Config::default() };
                if log::init(&config).is_err() {
                    // Refused with a text is as good.
                    return;
                }
                for id in 0..10 {
                    log::log_error!("lost id={id}");
                }
                log::flush(DRAIN).unwrap();
                let lost = tally::only(DropReason::OutputFailed, &log::counts());
                assert!(lost >= 10, "{lost}");
                log::close(DRAIN);
                assert_eq!(log::counts().reported, 0);
            });
            pipe.restore();
            let said = pipe.read_to_end();
            reap(child);
            assert_eq!(String::from_utf8_lossy(&said), "", "nothing is relocated");
        }
    });
}

#[test]
fn a_directory_that_cannot_be_made_is_refused_and_another_can_be_bound() {
    in_own_process("a_directory_that_cannot_be_made_is_refused_and_another_can_be_bound", || {
        let dir = tempfile::tempdir().unwrap();
        log::init(&Config { defer_writer: true, ..Config::default() }).unwrap();
        for path in ["/proc/none/of/it", "/dev/null", "/dev/null/below", "/sys/kernel/none"] {
            let error = log::set_directory(Path::new(path)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Directory, "{path}");
            assert!(!error.to_string().is_empty());
            assert!(std::error::Error::source(&error).is_some());
        }
        assert!(log::set_directory(dir.path()).unwrap());
        log::log_warn!("here id=1");
        assert_eq!(tally::ids(&lines_of(dir.path(), log::pid())), [1]);
    });
}

#[test]
fn a_folder_of_somebody_else_costs_the_records_of_who_may_not_write_there() {
    in_own_process("a_folder_of_somebody_else_costs_the_records_of_who_may_not_write_there", || {
        let dir = tempfile::tempdir().unwrap();
        let permissions = |mode| std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(dir.path(), permissions(0o555)).unwrap();
        let child = fork(|| {
            const NOBODY: libc::uid_t = 65_534;
            // SAFETY: no memory involved. Root may write anywhere, so it becomes somebody else.
            let is_root = unsafe { libc::geteuid() } == 0;
            // SAFETY: as above.
            if is_root && unsafe { libc::setresuid(NOBODY, NOBODY, NOBODY) } != 0 {
                return eprintln!("skipped: root that may not become nobody writes anywhere");
            }
            let config = Config { directory: Some(dir.path()), defer_writer: true, ..Config::default() };
            if log::init(&config).is_err() {
                return;
            }
            log::log_error!("lost");
            assert!(tally::only(DropReason::OutputFailed, &log::counts()) > 0);
        });
        reap(child);
        std::fs::set_permissions(dir.path(), permissions(0o755)).unwrap();
        assert!(lines_of(dir.path(), child).is_empty());
    });
}

#[test]
fn a_directory_bound_in_the_middle_of_a_load_splits_it_once_and_repeats_the_anchor() {
    in_own_process("a_directory_bound_in_the_middle_of_a_load_splits_it_once_and_repeats_the_anchor", || {
        const THREADS: u64 = 4;
        for has_writer in [true, false] {
            let dir = tempfile::tempdir().unwrap();
            let pipe = StderrPipe::install(None);
            let child = fork(|| {
                log::init(&Config { defer_writer: !has_writer, ..Config::default() }).unwrap();
                log::log_warn!("load id=0");
                let next = AtomicU64::new(1);
                let stop = AtomicBool::new(false);
                std::thread::scope(|scope| {
                    for _ in 0..THREADS {
                        scope.spawn(|| {
                            // No more than the queue holds, should the pipe's reader be late.
                            while !stop.load(Ordering::Relaxed) && next.load(Ordering::Relaxed) < 3_000 {
                                log::log_warn!("load id={}", next.fetch_add(1, Ordering::Relaxed));
                                std::thread::yield_now();
                            }
                        });
                    }
                    let made = |records| {
                        support::wait_for("records", || next.load(Ordering::Relaxed) >= records);
                    };
                    made(50);
                    log::flush(DRAIN).unwrap();
                    assert!(log::set_directory(dir.path()).unwrap());
                    made((next.load(Ordering::Relaxed) + 50).min(3_000));
                    stop.store(true, Ordering::Relaxed);
                });
                log::prepare_to_fork(DRAIN).unwrap();
                log::log_warn!("the last id={}", next.load(Ordering::Relaxed));
                assert_eq!(log::counts().dropped, 0);
            });
            let reader = pipe.read_meanwhile();
            pipe.restore();
            let on_stderr = lines(&reader.join().unwrap());
            reap(child);
            let in_file = lines_of(dir.path(), child);
            the_anchor(&on_stderr);
            if has_writer {
                the_anchor(&in_file);
            }
            assert_eq!(
                tally::anchors(&on_stderr),
                tally::anchors(&in_file),
                "the same readings, not a new life"
            );
            assert!(on_stderr.len() > 1 && in_file.len() > 1);
            let mut ids = tally::ids(&[on_stderr, in_file].concat());
            ids.sort_unstable();
            assert_eq!(ids, (0..ids.len() as u64).collect::<Vec<u64>>(), "each once, in one of the two");
        }
    });
}

#[test]
fn a_log_file_that_is_no_regular_file_loses_nothing_unseen() {
    in_own_process("a_log_file_that_is_no_regular_file_loses_nothing_unseen", || {
        for has_writer in [true, false] {
            let dir = tempfile::tempdir().unwrap();
            let child = fork(|| {
                // A folder, and then a device that is always full.
                let file = support::log_file(dir.path(), log::pid());
                std::fs::create_dir(&file).unwrap();
                let directory = Some(dir.path());
                log::init(&Config { directory, defer_writer: !has_writer, ..Config::default() }).unwrap();
                log::log_error!("lost id=0");
                log::flush(DRAIN).unwrap();
                let first = tally::only(DropReason::OutputFailed, &log::counts());
                assert!(first > 0);
                std::fs::remove_dir(&file).unwrap();
                std::os::unix::fs::symlink("/dev/full", &file).unwrap();
                log::log_error!("lost id=1");
                log::flush(DRAIN).unwrap();
                assert!(tally::only(DropReason::OutputFailed, &log::counts()) > first);
                std::fs::remove_file(&file).unwrap();
                log::log_error!("lands id=2");
                log::prepare_to_fork(DRAIN).unwrap();
            });
            reap(child);
            let lines = lines_of(dir.path(), child);
            the_anchor(&lines);
            assert_eq!((tally::ids(&lines), lines.len()), (vec![2], 3));
            assert_eq!(tally::drop_reports(&lines).len(), 1);
        }
    });
}

#[test]
fn failures_before_the_writer_are_counted_and_told_by_its_quiesce() {
    in_own_process("failures_before_the_writer_are_counted_and_told_by_its_quiesce", || {
        let dir = deferred_log_to_folder();
        log::log_warn!("lands at once id=0");
        assert_eq!(tally::ids(&lines_of(dir.path(), log::pid())), [0]);
        let away = dir.path().with_extension("away");
        std::fs::rename(dir.path(), &away).unwrap();
        for id in 1..=5 {
            drop(span!("lost", id = id));
        }
        assert_eq!(tally::only(DropReason::OutputFailed, &log::counts()), 5);
        std::fs::rename(&away, dir.path()).unwrap();
        log::start_writer().unwrap();
        assert_eq!(log::counts().dropped, 5, "the start keeps them");
        log::log_warn!("queued id=6");
        log::prepare_to_fork(DRAIN).unwrap();
        let lines = lines_of(dir.path(), log::pid());
        let reports = tally::drop_reports(&lines);
        assert_eq!((reports.len(), reports[0].total), (1, 5));
        assert_eq!(tally::ids(&lines), [0, 6]);
    });
}
