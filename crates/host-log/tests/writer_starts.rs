//! Starts and quiesces that meet each other, and a start that cannot be: one writer at most, and no record unseen.

#![cfg(feature = "host-strace")]

mod support;
mod tally;

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use simpler_host_log::{self as log, ErrorKind};
use support::{
    DRAIN, deferred_log_to_folder, fork, in_own_process, lines_of, log_to_folder, reap, the_anchor,
};

#[test]
fn starts_and_quiesces_of_many_threads_leave_one_writer_and_every_record() {
    const THREADS: u64 = 6;
    const CYCLES: u64 = 50;
    in_own_process("starts_and_quiesces_of_many_threads_leave_one_writer_and_every_record", || {
        let dir = log_to_folder();
        let next = AtomicU64::new(0);
        let start = Barrier::new(THREADS as usize);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (start, next) = (&start, &next);
                scope.spawn(move || {
                    start.wait();
                    for _ in 0..CYCLES {
                        log::log_warn!("between id={}", next.fetch_add(1, Ordering::Relaxed));
                        if thread % 2 == 0 {
                            // Refused while another thread is at the same.
                            let _ = log::prepare_to_fork(DRAIN);
                        } else if let Err(error) = log::start_writer() {
                            assert_eq!(error.kind(), ErrorKind::WriterInTransition);
                        }
                    }
                });
            }
        });
        log::start_writer().unwrap();
        log::log_warn!("the last id={}", next.load(Ordering::Relaxed));
        log::prepare_to_fork(DRAIN).unwrap();
        let counts = log::counts();
        tally::losses(&counts);
        let lines = lines_of(dir.path(), log::pid());
        the_anchor(&lines);
        assert_eq!(tally::ids(&lines).len() as u64 + counts.dropped, THREADS * CYCLES + 1);
        let told: u64 = tally::drop_reports(&lines).iter().map(|report| report.new).sum();
        assert_eq!((told, counts.reported), (counts.dropped, counts.dropped));
    });
}

#[test]
fn a_writer_that_cannot_be_started_leaves_records_to_their_threads() {
    in_own_process("a_writer_that_cannot_be_started_leaves_records_to_their_threads", || {
        if support::is_under_a_sanitizer() {
            return eprintln!("skipped: the sanitizers need memory themselves, which this test forbids");
        }
        let dir = deferred_log_to_folder();
        let child = fork(|| {
            let limit_memory_to = |bytes| {
                let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
                // SAFETY: a valid limit.
                assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
            };
            limit_memory_to(1 << 20);
            let refused = log::start_writer();
            log::log_warn!("at once id=0");
            limit_memory_to(libc::RLIM_INFINITY);
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::Writer);
            assert_eq!(tally::ids(&lines_of(dir.path(), log::pid())), [0]);
            log::start_writer().unwrap();
            log::log_warn!("queued id=1");
            log::prepare_to_fork(DRAIN).unwrap();
            assert_eq!(log::counts(), log::Counts::default());
        });
        reap(child);
        let lines = lines_of(dir.path(), child);
        the_anchor(&lines);
        assert_eq!(tally::ids(&lines), [0, 1]);
    });
}

#[test]
fn with_nothing_pending_a_flush_and_a_quiesce_need_no_time() {
    in_own_process("with_nothing_pending_a_flush_and_a_quiesce_need_no_time", || {
        let dir = log_to_folder();
        log::log_warn!("id=0");
        log::flush(DRAIN).unwrap();
        log::flush(Duration::ZERO).unwrap();
        log::prepare_to_fork(Duration::ZERO).unwrap();
        log::prepare_to_fork(Duration::ZERO).unwrap();
        log::flush(Duration::ZERO).unwrap();
        assert_eq!(tally::ids(&lines_of(dir.path(), log::pid())), [0]);
    });
}
