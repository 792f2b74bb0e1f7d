//! Where records go, and when that is decided.

#![cfg(feature = "host-strace")]

mod support;

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use simpler_host_log::{self as log, Config, ErrorKind, Invocation, span};
use support::{
    DRAIN, StderrPipe, flushed_lines, fork, in_own_process, lines, lines_of, log_file, log_to_folder, reap,
    spans, the_anchor,
};

#[test]
fn a_bound_directory_takes_everything_from_the_anchor_on() {
    in_own_process("a_bound_directory_takes_everything_from_the_anchor_on", || {
        let pipe = StderrPipe::install(None);
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("made/on/demand");
        log::init(&Config { directory: Some(&missing), ..Config::default() }).unwrap();
        {
            let _root = Invocation::begin("root", 1);
            let _nested = span!("root.nested");
        }
        let lines = flushed_lines(&missing);
        pipe.restore();
        the_anchor(&lines);
        assert_eq!(lines.len(), 3, "{lines:#?}");
        assert_eq!(pipe.read_to_end(), b"");
    });
}

#[test]
fn without_a_directory_records_go_to_stderr() {
    in_own_process("without_a_directory_records_go_to_stderr", || {
        let pipe = StderrPipe::install(None);
        log::init(&Config::default()).unwrap();
        drop(span!("seen"));
        log::log_error!("and heard");
        log::flush(DRAIN).unwrap();
        pipe.restore();
        let lines = lines(&pipe.read_to_end());
        the_anchor(&lines);
        assert_eq!((spans(&lines).len(), lines.len()), (1, 3));
    });
}

#[test]
fn a_directory_bound_late_begins_with_the_same_anchor() {
    in_own_process("a_directory_bound_late_begins_with_the_same_anchor", || {
        for has_writer in [true, false] {
            let dir = tempfile::tempdir().unwrap();
            let pipe = StderrPipe::install(None);
            let child = fork(|| {
                log::init(&Config { defer_writer: !has_writer, ..Config::default() }).unwrap();
                log::log_warn!("on stderr");
                log::flush(DRAIN).unwrap();
                assert!(log::set_directory(dir.path()).unwrap());
                log::log_warn!("in the file");
                drop(span!("in.the.file"));
                log::flush(DRAIN).unwrap();
            });
            pipe.restore();
            let on_stderr = lines(&pipe.read_to_end());
            reap(child);
            let in_file = lines_of(dir.path(), child);
            assert_eq!((on_stderr.len(), in_file.len()), (2, 3), "{on_stderr:#?} {in_file:#?}");
            assert_eq!(the_anchor(&on_stderr), the_anchor(&in_file));
        }
    });
}

#[test]
fn the_first_directory_wins() {
    in_own_process("the_first_directory_wins", || {
        let first = tempfile::tempdir().unwrap();
        let second = tempfile::tempdir().unwrap();
        log::init(&Config { defer_writer: true, ..Config::default() }).unwrap();
        assert!(!log::set_directory(Path::new("")).unwrap(), "an empty one is none");
        let bound: Vec<bool> = std::thread::scope(|scope| {
            let binders: Vec<_> =
                (0..4).map(|_| scope.spawn(|| log::set_directory(first.path()).unwrap())).collect();
            binders.into_iter().map(|binder| binder.join().unwrap()).collect()
        });
        assert_eq!(bound.iter().filter(|&&bound| bound).count(), 1);
        assert!(!log::set_directory(second.path()).unwrap());
        log::init(&Config { directory: Some(second.path()), ..Config::default() }).unwrap();
        log::log_warn!("here");
        assert_eq!(flushed_lines(first.path()).len(), 2);
        assert!(lines_of(second.path(), log::pid()).is_empty());
    });
}

#[test]
fn a_path_that_is_too_long_is_refused_and_binds_nothing() {
    in_own_process("a_path_that_is_too_long_is_refused_and_binds_nothing", || {
        let dir = tempfile::tempdir().unwrap();
        // Components of 200 bytes up to exactly `length` bytes in all.
        let path_of = |length: usize| {
            let mut path = dir.path().to_owned();
            while path.as_os_str().len() + 201 + 2 < length {
                path.push("d".repeat(200));
            }
            path.push("e".repeat(length - path.as_os_str().len() - 1));
            assert_eq!(path.as_os_str().len(), length);
            path
        };
        let error = log::init(&Config { directory: Some(&path_of(1024)), ..Config::default() }).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DirectoryPath);
        assert!(error.to_string().contains("1023 bytes"));
        let zero = PathBuf::from(std::ffi::OsStr::from_bytes(b"/tmp/a\0b"));
        assert_eq!(log::set_directory(&zero).unwrap_err().kind(), ErrorKind::DirectoryPath);
        // Neither bound anything: the longest that fits still can.
        let longest = path_of(1023);
        assert!(log::set_directory(&longest).unwrap());
        log::start_writer().unwrap();
        log::log_warn!("deep down");
        log::flush(DRAIN).unwrap();
        // The file's own path is too long for nobody but some tools.
        assert_eq!(log::counts().dropped, 0);
        assert!(log_file(&longest, log::pid()).exists());
    });
}

#[test]
fn a_directory_that_cannot_be_is_refused_with_its_reason() {
    in_own_process("a_directory_that_cannot_be_is_refused_with_its_reason", || {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        for path in [file.clone(), file.join("below")] {
            let error = log::set_directory(&path).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Directory);
            assert!(std::error::Error::source(&error).is_some());
        }
        assert!(log::set_directory(dir.path()).unwrap());
    });
}

#[test]
fn a_relative_directory_stays_where_it_was_when_bound() {
    in_own_process("a_relative_directory_stays_where_it_was_when_bound", || {
        let dir = tempfile::tempdir().unwrap();
        std::env::set_current_dir(dir.path()).unwrap();
        log::init(&Config { directory: Some(Path::new("logs")), ..Config::default() }).unwrap();
        std::env::set_current_dir("/").unwrap();
        log::log_warn!("here");
        assert_eq!(flushed_lines(&dir.path().join("logs")).len(), 2);
    });
}

#[test]
fn a_record_is_appended_to_what_an_earlier_life_left() {
    in_own_process("a_record_is_appended_to_what_an_earlier_life_left", || {
        let dir = tempfile::tempdir().unwrap();
        let earlier = "[mono_ns=1][T0x1][WARN] earlier: a process that had this pid\n";
        std::fs::write(log_file(dir.path(), log::pid()), earlier).unwrap();
        log::init(&Config { directory: Some(dir.path()), ..Config::default() }).unwrap();
        let lines = flushed_lines(dir.path());
        assert_eq!((lines.len(), lines[0].as_str()), (2, earlier.trim_end()));
    });
}

#[test]
fn a_normal_exit_drains() {
    in_own_process("a_normal_exit_drains", || {
        const RECORDS: usize = 1000;
        let dir = tempfile::tempdir().unwrap();
        let child = fork(|| {
            log::init(&Config { directory: Some(dir.path()), ..Config::default() }).unwrap();
            for _ in 0..RECORDS {
                log::log_warn!("not flushed");
            }
            // SAFETY: runs the exit handlers, which is the point.
            unsafe { libc::exit(0) };
        });
        reap(child);
        assert_eq!(lines_of(dir.path(), child).len(), RECORDS + 1);
    });
}

#[test]
fn an_anchor_that_is_lost_is_tried_again() {
    in_own_process("an_anchor_that_is_lost_is_tried_again", || {
        let dir = log_to_folder();
        log::flush(DRAIN).unwrap();
        let child_of_nothing = || {
            std::fs::remove_dir_all(dir.path()).unwrap();
            log::start_writer().unwrap();
            log::flush(DRAIN).unwrap();
            assert!(log::counts().dropped > 0, "the anchor was lost at the destination");
            std::fs::create_dir(dir.path()).unwrap();
            log::log_warn!("lands");
            log::prepare_to_fork(DRAIN).unwrap();
        };
        log::prepare_to_fork(DRAIN).unwrap();
        let child = fork(child_of_nothing);
        reap(child);
        let lines = lines_of(dir.path(), child);
        the_anchor(&lines);
        assert!(lines[1].ends_with("lands"), "{lines:#?}");
    });
}

#[test]
fn a_lock_that_somebody_keeps_on_the_file_holds_nobody_up() {
    in_own_process("a_lock_that_somebody_keeps_on_the_file_holds_nobody_up", || {
        use std::os::fd::AsRawFd;

        let dir = support::deferred_log_to_folder();
        log::log_warn!("first");
        // Whoever may read the log may lock it.
        let reader = std::fs::File::open(log_file(dir.path(), log::pid())).unwrap();
        // SAFETY: an open file.
        assert_eq!(unsafe { libc::flock(reader.as_raw_fd(), libc::LOCK_SH) }, 0);
        log::log_warn!("second");
        assert_eq!(lines_of(dir.path(), log::pid()).len(), 3, "the anchor and both");
        log::start_writer().unwrap();
        for number in 0..10_000 {
            log::log_warn!("record {number}");
            if number % 1000 == 0 {
                log::flush(DRAIN).unwrap();
            }
        }
        log::close(DRAIN);
        assert_eq!(log::counts().dropped, 0);
        assert_eq!(lines_of(dir.path(), log::pid()).len(), 10_003);
    });
}
