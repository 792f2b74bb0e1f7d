//! Losses: each is counted once, under one reason, and told in the log.

#![cfg(feature = "host-strace")]

mod support;

use std::time::{Duration, Instant};

use simpler_host_log::{self as log, Config, Counts, DropReason, Level};
use support::{
    DRAIN, StderrPipe, deferred_log_to_folder, envelope, fork, in_own_process, lines, lines_of, log_file,
    log_to_folder, reap, wait_for,
};

fn by_reason(reason: DropReason) -> u64 {
    log::counts().by_reason[reason as usize]
}

fn sum(counts: &Counts) -> u64 {
    counts.by_reason.iter().sum()
}

#[test]
fn a_stalled_pipe_costs_records_but_never_time() {
    const RECORDS: u64 = 10_000;
    in_own_process("a_stalled_pipe_costs_records_but_never_time", || {
        let pipe = StderrPipe::install(Some(4096));
        pipe.fill();
        log::init(&Config::default()).unwrap();
        let start = Instant::now();
        for record in 0..RECORDS {
            log::log_warn!("{record}");
        }
        let spent = start.elapsed();
        let timeout = log::prepare_to_fork(Duration::from_millis(10)).unwrap_err();
        let flush = log::flush(Duration::from_millis(10)).unwrap_err();
        let counts = log::counts();
        // The pipe moves again, and with it the log.
        pipe.restore();
        let reader = std::thread::spawn(move || pipe.read_to_end());
        log::flush(DRAIN).unwrap();
        let emptied = log::counts();
        log::log_warn!("on the real stderr");
        log::flush(DRAIN).unwrap();
        assert_eq!(log::counts(), emptied, "the quiesce that failed left the log running");
        log::prepare_to_fork(DRAIN).unwrap();
        drop(reader);

        assert!(spent < Duration::from_secs(2), "{spent:?}");
        assert!(by_reason(DropReason::QueueFull) > 0);
        assert_eq!((counts.dropped, counts.by_reason[0]), (sum(&counts), counts.dropped));
        // The anchor and the host's identity are records, too: the queue's 4096 and nothing more were accepted.
        assert_eq!((timeout.dropped, timeout.pending), (counts.dropped, 4096));
        assert_eq!((flush.dropped, flush.pending), (counts.dropped, 4096));
        assert_eq!(counts.dropped, RECORDS + 2 - 4096);
    });
}

#[test]
fn every_record_lands_or_is_counted_while_the_writer_restarts() {
    const PRODUCERS: usize = 4;
    const CYCLES: usize = 20;
    in_own_process("every_record_lands_or_is_counted_while_the_writer_restarts", || {
        let dir = log_to_folder();
        let stop = std::sync::atomic::AtomicBool::new(false);
        let submitted: Vec<u64> = std::thread::scope(|scope| {
            let producers: Vec<_> = (0..PRODUCERS)
                .map(|producer| {
                    let stop = &stop;
                    scope.spawn(move || {
                        let mut record = 0;
                        while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                            log::log_warn!("producer={producer} record={record}");
                            record += 1;
                            // Slow enough that the queue's size is not what is tested.
                            if record % 64 == 0 {
                                std::thread::yield_now();
                            }
                        }
                        record
                    })
                })
                .collect();
            for _ in 0..CYCLES {
                log::prepare_to_fork(DRAIN).unwrap();
                log::start_writer().unwrap();
                let before = log_file(dir.path(), log::pid()).metadata().unwrap().len();
                wait_for("records between two cycles", || {
                    log_file(dir.path(), log::pid()).metadata().unwrap().len() > before
                });
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            producers.into_iter().map(|producer| producer.join().unwrap()).collect()
        });
        log::prepare_to_fork(DRAIN).unwrap();
        let counts = log::counts();
        assert_eq!((counts.pending, sum(&counts)), (0, counts.dropped));
        let lines = lines_of(dir.path(), log::pid());
        for (producer, submitted) in submitted.iter().enumerate() {
            let mark = format!("] producer={producer} record=");
            let mut numbers: Vec<u64> =
                lines.iter().filter_map(|line| Some(line.split_once(&mark)?.1.parse().unwrap())).collect();
            let landed = numbers.len();
            numbers.sort_unstable();
            numbers.dedup();
            assert_eq!(numbers.len(), landed, "none written twice");
            assert!(numbers.last().is_none_or(|last| last < submitted), "none invented");
        }
        let records = lines.iter().filter(|line| line.contains("producer=")).count() as u64;
        // What is not in the file is in the counts, each once. (The reports themselves are no records.)
        assert_eq!(records + counts.dropped, submitted.iter().sum::<u64>());
        assert_eq!(counts.reported, counts.dropped);
    });
}

#[test]
fn a_directory_that_fails_costs_records_which_are_never_put_elsewhere() {
    in_own_process("a_directory_that_fails_costs_records_which_are_never_put_elsewhere", || {
        let pipe = StderrPipe::install(None);
        let dir = log_to_folder();
        log::log_warn!("lands");
        log::prepare_to_fork(DRAIN).unwrap();
        let inside = lines_of(dir.path(), log::pid());
        std::fs::remove_dir_all(dir.path()).unwrap();
        // At once, on this thread.
        log::log_warn!("lost");
        let at_once = log::counts();
        log::start_writer().unwrap();
        for _ in 0..1000 {
            log::log_warn!("lost");
        }
        log::flush(DRAIN).unwrap();
        let queued = log::counts();
        // The report cannot land either, so nothing counts as told.
        log::prepare_to_fork(DRAIN).unwrap();
        let quiesced = log::counts();
        // The folder is back: the next record lands, and the report tells it all.
        std::fs::create_dir(dir.path()).unwrap();
        log::start_writer().unwrap();
        log::log_warn!("lands again");
        log::prepare_to_fork(DRAIN).unwrap();
        let told = log::counts();
        let again = lines_of(dir.path(), log::pid());
        pipe.restore();
        assert_eq!(pipe.read_to_end(), b"", "nothing on stderr");

        assert_eq!(inside.len(), 2);
        assert_eq!((at_once.dropped, at_once.by_reason), (1, [0, 0, 1, 0]));
        assert_eq!((queued.dropped, queued.by_reason), (1001, [0, 0, 1001, 0]));
        assert_eq!((quiesced.dropped, quiesced.reported), (1001, 0));
        assert_eq!((told.dropped, told.reported), (1001, 1001));
        assert_eq!(again.len(), 2, "{again:#?}");
        assert!(again[0].ends_with("lands again"));
        let (report, body) = envelope(&again[1]);
        assert_eq!((report.level, report.func), (Level::Error, &b"host_log_drops"[..]));
        assert_eq!(
            body,
            format!(
                "[HOSTLOG_DROPS] v=1 pid={} new=1001 total=1001 queue_full=0 claim_exhausted=0 \
                 output_failed=1001 not_admitted=0",
                log::pid()
            )
        );
    });
}

#[test]
fn a_quiesce_reports_new_losses_once() {
    in_own_process("a_quiesce_reports_new_losses_once", || {
        let dir = log_to_folder();
        let reports = || {
            let lines = lines_of(dir.path(), log::pid());
            lines.into_iter().filter(|line| line.contains("[HOSTLOG_DROPS]")).collect::<Vec<_>>()
        };
        let lose = |records: u64| {
            let state = log::state();
            let relaxed = std::sync::atomic::Ordering::Relaxed;
            state.dropped_record_count.fetch_add(records, relaxed);
            state.dropped_by_reason[1].fetch_add(records, relaxed);
        };
        let quiesce = || {
            log::start_writer().unwrap();
            log::prepare_to_fork(DRAIN).unwrap();
        };
        quiesce();
        assert!(reports().is_empty(), "no loss, no report");
        lose(3);
        quiesce();
        quiesce();
        assert_eq!(reports().len(), 1, "silent without growth");
        assert!(reports()[0].contains("new=3 total=3 queue_full=0 claim_exhausted=3 "));
        lose(2);
        quiesce();
        assert!(reports()[1].contains("new=2 total=5 queue_full=0 claim_exhausted=5 "));
        // Muted, the losses count as told: nobody wants to hear of them.
        lose(1);
        log::set_threshold(log::Threshold::NUL);
        quiesce();
        assert_eq!((reports().len(), log::counts().reported), (2, 6));
    });
}

#[test]
fn a_file_that_cannot_grow_keeps_whole_records_and_counts_the_rest() {
    const RECORDS: usize = 2000;
    // Not a multiple of any record's size, so that the limit falls into the middle of one.
    const LIMIT: u64 = 50_001;
    in_own_process("a_file_that_cannot_grow_keeps_whole_records_and_counts_the_rest", || {
        for is_queued in [true, false] {
            let dir = tempfile::tempdir().unwrap();
            let child = fork(|| {
                // SAFETY: ignoring a signal.
                unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
                let limit = libc::rlimit { rlim_cur: LIMIT, rlim_max: LIMIT };
                // SAFETY: a valid limit.
                assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) }, 0);
                let directory = Some(dir.path());
                log::init(&Config { directory, defer_writer: !is_queued, ..Config::default() }).unwrap();
                for record in 0..RECORDS {
                    log::log_warn!("record={record}");
                }
                log::flush(DRAIN).unwrap();
                let counts = log::counts();
                let landed = lines_of(dir.path(), log::pid()).len();
                assert!(landed > 100);
                // The anchor is a record, too, and the warning that the queue's file is beyond the limit as well.
                let others = 1 + u64::from(is_queued);
                assert_eq!(landed as u64 + counts.dropped, RECORDS as u64 + others);
                assert_eq!(counts.by_reason, [0, 0, counts.dropped, 0]);
            });
            reap(child);
            let lines = lines_of(dir.path(), child);
            let records = lines[1..].iter().filter(|line| !line.contains("the log queue is private memory"));
            for (record, line) in records.enumerate() {
                assert!(line.ends_with(&format!("record={record}")), "{line:?}");
            }
        }
    });
}

#[test]
fn a_broken_pipe_counts_each_record() {
    in_own_process("a_broken_pipe_counts_each_record", || {
        let child = fork(|| {
            // SAFETY: ignoring a signal.
            unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
            let pipe = StderrPipe::install(None);
            log::init(&Config::default()).unwrap();
            log::flush(DRAIN).unwrap();
            drop(pipe);
            for _ in 0..100 {
                log::log_warn!("nobody reads");
            }
            log::flush(DRAIN).unwrap();
            assert_eq!(log::counts().by_reason, [0, 0, 100, 0]);
        });
        reap(child);
    });
}

#[test]
fn a_nonblocking_stderr_loses_nothing() {
    const RECORDS: usize = 2000;
    in_own_process("a_nonblocking_stderr_loses_nothing", || {
        let pipe = StderrPipe::install(Some(4096));
        // SAFETY: flags of our own pipe.
        let flags = unsafe { libc::fcntl(2, libc::F_GETFL) };
        // SAFETY: as above.
        assert_eq!(unsafe { libc::fcntl(2, libc::F_SETFL, flags | libc::O_NONBLOCK) }, 0);
        let child = fork(|| {
            log::init(&Config::default()).unwrap();
            for record in 0..RECORDS {
                log::log_warn!("record={record}");
            }
            log::flush(DRAIN).unwrap();
            assert_eq!(log::counts().dropped, 0);
        });
        pipe.restore();
        let lines = lines(&pipe.read_to_end());
        reap(child);
        assert_eq!(lines.len(), RECORDS + 1);
    });
}

#[test]
fn losses_before_the_writer_starts_are_kept() {
    in_own_process("losses_before_the_writer_starts_are_kept", || {
        let dir = deferred_log_to_folder();
        std::fs::remove_dir_all(dir.path()).unwrap();
        log::log_error!("lost");
        // The anchor and the record.
        assert_eq!(log::counts().by_reason, [0, 0, 2, 0]);
        std::fs::create_dir(dir.path()).unwrap();
        log::start_writer().unwrap();
        log::prepare_to_fork(DRAIN).unwrap();
        let lines = lines_of(dir.path(), log::pid());
        assert_eq!((log::counts().dropped, lines.len()), (2, 2), "{lines:#?}");
        support::the_anchor(&lines);
        assert!(lines[1].contains("new=2 total=2 "));
    });
}

#[test]
fn close_says_on_stderr_what_it_could_not_drain() {
    in_own_process("close_says_on_stderr_what_it_could_not_drain", || {
        // A FIFO in the log file's place, which nobody reads, holds the writer up.
        let dir = tempfile::tempdir().unwrap();
        let child = fork(|| {
            let path = std::ffi::CString::new(
                log_file(dir.path(), log::pid()).into_os_string().into_encoded_bytes(),
            )
            .unwrap();
            // SAFETY: a zero-terminated path.
            assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
            let pipe = StderrPipe::install(None);
            log::init(&Config { directory: Some(dir.path()), ..Config::default() }).unwrap();
            log::log_warn!("stuck");
            log::close(Duration::from_millis(20));
            pipe.restore();
            let said = pipe.read_to_end();
            let said = lines(&said);
            assert_eq!(said.len(), 1, "{said:#?}");
            let (found, body) = envelope(&said[0]);
            assert_eq!(found.level, Level::Warn);
            assert_eq!(body, "host log not drained within 20 ms: pending=3 dropped=0");
        });
        reap(child);
    });
}

#[test]
fn a_quiesce_without_a_writer_reports_too() {
    in_own_process("a_quiesce_without_a_writer_reports_too", || {
        let dir = deferred_log_to_folder();
        let lose = || {
            std::fs::remove_dir_all(dir.path()).unwrap();
            log::log_error!("lost");
            std::fs::create_dir(dir.path()).unwrap();
        };
        let reports = || {
            let lines = lines_of(dir.path(), log::pid());
            lines.into_iter().filter(|line| line.contains("[HOSTLOG_DROPS]")).collect::<Vec<_>>()
        };
        // Before a deferred writer's start; the anchor is lost with the record.
        lose();
        log::close(DRAIN);
        log::close(DRAIN);
        assert_eq!(reports().len(), 1, "silent without growth");
        assert!(reports()[0].contains("new=2 total=2 "), "{:?}", reports());
        // After the close of a log that had one.
        log::start_writer().unwrap();
        log::close(DRAIN);
        lose();
        log::close(DRAIN);
        assert_eq!(reports().len(), 1, "the first one's file is gone");
        assert!(reports()[0].contains("new=1 total=3 "), "{:?}", reports());
        // The exit is the last quiesce.
        let child = fork(|| {
            lose();
            // SAFETY: runs the exit handlers, which is the point.
            unsafe { libc::exit(0) };
        });
        reap(child);
        let childs = lines_of(dir.path(), child);
        assert_eq!(childs.len(), 1, "{childs:#?}");
        assert!(childs[0].contains("new=2 total=2 "), "{childs:#?}");
    });
}

#[test]
fn a_report_does_not_wait_for_a_stalled_stderr_longer_than_the_quiesce_may() {
    in_own_process("a_report_does_not_wait_for_a_stalled_stderr_longer_than_the_quiesce_may", || {
        let pipe = StderrPipe::install(Some(4096));
        log::init(&Config::default()).unwrap();
        log::flush(DRAIN).unwrap();
        pipe.fill();
        let state = log::state();
        let relaxed = std::sync::atomic::Ordering::Relaxed;
        state.dropped_record_count.fetch_add(3, relaxed);
        state.dropped_by_reason[1].fetch_add(3, relaxed);
        let (quiesced, is_quiesced) = std::sync::mpsc::channel();
        std::thread::spawn(move || quiesced.send(log::prepare_to_fork(Duration::from_millis(20))));
        let in_time = is_quiesced.recv_timeout(support::DEADLINE / 6);
        let stalled = log::counts();
        pipe.restore();
        let reader = std::thread::spawn(move || pipe.read_to_end());
        log::prepare_to_fork(DRAIN).unwrap();
        let told = log::counts();
        drop(reader);
        assert_eq!(in_time, Ok(Ok(())));
        assert_eq!((stalled.dropped, stalled.reported), (3, 0));
        assert_eq!((told.dropped, told.reported), (3, 3));
    });
}

#[test]
fn the_total_of_a_report_is_the_sum_of_its_reasons() {
    in_own_process("the_total_of_a_report_is_the_sum_of_its_reasons", || {
        let dir = log_to_folder();
        // As a producer leaves them between its two additions: a reason ahead of the total.
        log::state().dropped_by_reason[1].fetch_add(3, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(log::counts().dropped, 3);
        log::prepare_to_fork(DRAIN).unwrap();
        let lines = lines_of(dir.path(), log::pid());
        assert!(lines[1].contains("new=3 total=3 queue_full=0 claim_exhausted=3 "), "{lines:#?}");
    });
}

#[test]
fn close_says_in_the_file_what_a_stalled_stderr_does_not_take() {
    in_own_process("close_says_in_the_file_what_a_stalled_stderr_does_not_take", || {
        let dir = log_to_folder();
        log::flush(DRAIN).unwrap();
        let pipe = StderrPipe::install(Some(4096));
        pipe.fill();
        let gap = log::diagnostics::open_gap().unwrap();
        let closes = || {
            let (closed, is_closed) = std::sync::mpsc::channel();
            std::thread::spawn(move || {
                log::close(Duration::from_millis(20));
                closed.send(()).unwrap();
            });
            is_closed.recv_timeout(support::DEADLINE / 6)
        };
        let in_time = closes();
        let file = lines_of(dir.path(), log::pid());
        // While the file is locked, the warning is left out rather than waited for.
        let locked = std::fs::File::open(log_file(dir.path(), log::pid())).unwrap();
        // SAFETY: an open file.
        assert_eq!(unsafe { libc::flock(std::os::fd::AsRawFd::as_raw_fd(&locked), libc::LOCK_EX) }, 0);
        let again_in_time = closes();
        let same_file = lines_of(dir.path(), log::pid());
        drop(locked);
        gap.publish(b"[mono_ns=5][T0x7][WARN] test: in the gap\n");
        pipe.restore();
        drop(pipe);
        log::flush(DRAIN).unwrap();
        assert_eq!((in_time, again_in_time), (Ok(()), Ok(())));
        assert_eq!((file.len(), same_file.len()), (2, 2), "{file:#?}");
        let body = envelope(&file[1]).1;
        assert_eq!(body, "host log not drained within 20 ms: pending=1 dropped=0");
    });
}
