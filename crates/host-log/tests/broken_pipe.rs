//! A stderr whose reader is gone: records are counted, and the process lives.

#![cfg(feature = "host-strace")]

mod support;
mod tally;

use simpler_host_log::{self as log, Config, DropReason};
use support::{DRAIN, StderrPipe, fork, in_own_process, lines, reap, the_anchor};

/// How a process takes SIGPIPE.
fn set_sigpipe(disposition: libc::sighandler_t) {
    // SAFETY: no handler is installed.
    assert_ne!(unsafe { libc::signal(libc::SIGPIPE, disposition) }, libc::SIG_ERR);
}

#[test]
fn a_reader_that_leaves_in_the_middle_costs_the_rest_and_a_new_one_is_told() {
    const PRODUCERS: u64 = 4;
    const RECORDS: u64 = 500;
    in_own_process("a_reader_that_leaves_in_the_middle_costs_the_rest_and_a_new_one_is_told", || {
        let child = fork(|| {
            // As Rust's start-up leaves it.
            set_sigpipe(libc::SIG_IGN);
            let first = StderrPipe::install(None);
            log::init(&Config::default()).unwrap();
            log::log_warn!("read id=0");
            log::flush(DRAIN).unwrap();
            let produce = |producer: u64| {
                for record in 0..RECORDS {
                    log::log_warn!("nobody reads id={}", 1 + producer * RECORDS + record);
                }
            };
            drop(first);
            std::thread::scope(|scope| {
                for producer in 0..PRODUCERS {
                    scope.spawn(move || produce(producer));
                }
            });
            log::flush(DRAIN).unwrap();
            let lost = tally::only(DropReason::OutputFailed, &log::counts());
            assert_eq!(lost, PRODUCERS * RECORDS);
            log::prepare_to_fork(DRAIN).unwrap();
            assert_eq!(log::counts().reported, 0, "the report did not land");
            // At once, on this thread.
            log::log_warn!("nobody reads id=9999");
            assert_eq!(tally::only(DropReason::OutputFailed, &log::counts()), lost + 1);
            let second = StderrPipe::install(None);
            log::start_writer().unwrap();
            log::log_warn!("read again id=10000");
            log::prepare_to_fork(DRAIN).unwrap();
            second.restore();
            let lines = lines(&second.read_to_end());
            let reports = tally::drop_reports(&lines);
            assert_eq!((tally::ids(&lines), reports.len(), lines.len()), (vec![10_000], 1, 2));
            assert_eq!((reports[0].new, reports[0].by_reason), (lost + 1, [0, 0, lost + 1, 0]));
        });
        reap(child);
    });
}

#[test]
fn an_anchor_that_nobody_reads_is_tried_again() {
    in_own_process("an_anchor_that_nobody_reads_is_tried_again", || {
        let child = fork(|| {
            set_sigpipe(libc::SIG_IGN);
            drop(StderrPipe::install(None));
            log::init(&Config::default()).unwrap();
            log::flush(DRAIN).unwrap();
            // With the identity of the host.
            assert_eq!(tally::only(DropReason::OutputFailed, &log::counts()), 2);
            let pipe = StderrPipe::install(None);
            log::log_warn!("read id=1");
            log::flush(DRAIN).unwrap();
            pipe.restore();
            let lines = lines(&pipe.read_to_end());
            the_anchor(&lines);
            assert_eq!(tally::ids(&lines), [1]);
        });
        reap(child);
    });
}

#[test]
fn a_writer_at_a_broken_pipe_does_not_end_a_process_that_leaves_sigpipe_as_it_is() {
    in_own_process("a_writer_at_a_broken_pipe_does_not_end_a_process_that_leaves_sigpipe_as_it_is", || {
        let child = fork(|| {
            set_sigpipe(libc::SIG_DFL);
            let pipe = StderrPipe::install(None);
            log::init(&Config::default()).unwrap();
            log::flush(DRAIN).unwrap();
            drop(pipe);
            for id in 0..100 {
                log::log_warn!("nobody reads id={id}");
            }
            log::flush(DRAIN).unwrap();
            assert_eq!(tally::only(DropReason::OutputFailed, &log::counts()), 100);
        });
        reap(child);
    });
}
