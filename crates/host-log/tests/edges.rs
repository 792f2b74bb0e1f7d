//! What is rare and was once wrong: torn files, anchors that came second, descriptors that stayed open.
#![cfg(feature = "host-strace")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod support;
mod tally;

use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use simpler_host_log::{self as log, Config, Threshold};
use support::{DRAIN, StderrPipe, fork, in_own_process, lines, lines_of, log_to_folder, reap, the_anchor};

#[test]
fn a_stderr_that_is_a_file_is_not_torn_by_a_full_disk() {
    in_own_process("a_stderr_that_is_a_file_is_not_torn_by_a_full_disk", || {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("stderr");
        let limit_files_to = |bytes| {
            let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
            // SAFETY: a valid limit.
            assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) }, 0);
        };
        let produce = |ids: std::ops::Range<u64>| ids.for_each(|id| log::log_warn!("a record id={id}"));
        let child = fork(|| {
            // SAFETY: ignoring a signal.
            unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
            let file = std::fs::OpenOptions::new().append(true).create(true).open(&path).unwrap();
            // SAFETY: both are open.
            assert_eq!(unsafe { libc::dup2(file.as_raw_fd(), 2) }, 2);
            limit_files_to(20_033);
            log::init(&Config::default()).unwrap();
            produce(0..1000);
            log::flush(DRAIN).unwrap();
            assert!(log::counts().dropped > 0);
            limit_files_to(libc::RLIM_INFINITY);
            produce(1000..1100);
            log::prepare_to_fork(DRAIN).unwrap();
        });
        reap(child);
        let lines = lines(&std::fs::read(&path).unwrap()); // fails: "glued: …"
        assert_eq!(tally::ids(&lines).len() as u64 + tally::drop_reports(&lines)[0].total, 1100);
    });
}

#[test]
fn a_close_at_a_broken_pipe_does_not_end_a_process_that_leaves_sigpipe_as_it_is() {
    in_own_process("a_close_at_a_broken_pipe_does_not_end_a_process_that_leaves_sigpipe_as_it_is", || {
        let child = fork(|| {
            // SAFETY: no handler is installed.
            unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
            let pipe = StderrPipe::install(None);
            log::init(&Config::default()).unwrap();
            log::flush(DRAIN).unwrap();
            drop(pipe);
            log::log_warn!("nobody reads");
            log::close(DRAIN);
        });
        reap(child); // fails: status 0xd, killed by SIGPIPE in the report's write
    });
}

#[test]
fn a_newline_inside_a_record_of_another_module_makes_no_second_line() {
    in_own_process("a_newline_inside_a_record_of_another_module_makes_no_second_line", || {
        let dir = log_to_folder();
        let record = b"[mono_ns=5][T0x7][WARN] plugin: first\nno envelope\n";
        let state = log::state();
        // SAFETY: the state documents the pointer's type.
        let enqueue: simpler_log_abi::SimplerHostLogEnqueueFn =
            unsafe { std::mem::transmute(state.sink_enqueue.load(Ordering::Acquire)) };
        state.sink_producer_state.fetch_add(1, Ordering::AcqRel);
        let context = state.sink_context.load(Ordering::Acquire);
        let state = std::ptr::from_ref(state).cast_mut();
        // SAFETY: entered above; the record is readable.
        unsafe { enqueue(context, state, record.as_ptr().cast(), record.len() as u32, 0) };
        assert_eq!(support::flushed_lines(dir.path()).len(), 2); // fails: no record: "no envelope"
    });
}

#[test]
fn the_anchor_comes_first_where_threads_race_in_the_synchronous_window() {
    in_own_process("the_anchor_comes_first_where_threads_race_in_the_synchronous_window", || {
        for _ in 0..50 {
            let dir = tempfile::tempdir().unwrap();
            let child = fork(|| {
                log::init(&Config { directory: Some(dir.path()), defer_writer: true, ..Config::default() })
                    .unwrap();
                let start = std::sync::Barrier::new(8);
                std::thread::scope(|scope| {
                    for id in 0..8 {
                        let start = &start;
                        scope.spawn(move || {
                            start.wait();
                            log::log_warn!("first id={id}");
                        });
                    }
                });
            });
            reap(child);
            the_anchor(&lines_of(dir.path(), child)); // fails: records in front of it
        }
    });
}

#[test]
fn the_anchor_comes_first_where_threads_race_for_a_new_queue() {
    in_own_process("the_anchor_comes_first_where_threads_race_for_a_new_queue", || {
        for _ in 0..200 {
            let dir = tempfile::tempdir().unwrap();
            let child = fork(|| {
                let config =
                    Config { directory: Some(dir.path()), threshold: Threshold::NUL, defer_writer: true };
                log::init(&config).unwrap();
                let stop = AtomicBool::new(false);
                std::thread::scope(|scope| {
                    for _ in 0..4 {
                        scope.spawn(|| {
                            while !stop.load(Ordering::Relaxed) {
                                // Only once the writer is there: not the window, which is another gap.
                                if log::state().sink_owner_pid.load(Ordering::Acquire) == log::pid() {
                                    log::log_warn!("early");
                                }
                            }
                        });
                    }
                    std::thread::yield_now();
                    log::set_threshold(Threshold::TIMING);
                    log::start_writer().unwrap();
                    stop.store(true, Ordering::Relaxed);
                });
                log::flush(DRAIN).unwrap();
            });
            reap(child);
            the_anchor(&lines_of(dir.path(), child)); // fails now and then
        }
    });
}

#[test]
fn a_child_forked_while_threads_write_at_once_keeps_no_file_of_its_parent() {
    in_own_process("a_child_forked_while_threads_write_at_once_keeps_no_file_of_its_parent", || {
        let dir = support::deferred_log_to_folder();
        let stop = AtomicBool::new(false);
        let mut children = Vec::new();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        log::log_warn!("at once");
                    }
                });
            }
            for _ in 0..300 {
                children.push(fork(|| {
                    let open = std::fs::read_dir("/proc/self/fd").unwrap();
                    let links = open.filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok());
                    assert_eq!(links.filter(|file| file.starts_with(dir.path())).count(), 0);
                }));
            }
            stop.store(true, Ordering::Relaxed);
        });
        children.into_iter().for_each(reap); // fails for some
    });
}

#[test]
fn a_signal_handler_that_logs_does_not_wait_for_the_record_that_it_interrupts() {
    in_own_process("a_signal_handler_that_logs_does_not_wait_for_the_record_that_it_interrupts", || {
        static HANDLED: AtomicU32 = AtomicU32::new(0);
        extern "C" fn handler(_: libc::c_int) {
            HANDLED.fetch_add(1, Ordering::Relaxed);
            log::log_warn!("from the handler");
            drop(log::span!("handler"));
        }
        for is_queued in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let child = fork(|| {
                let handler: extern "C" fn(libc::c_int) = handler;
                // SAFETY: the handler only logs, which is what is tested.
                unsafe { libc::signal(libc::SIGALRM, handler as libc::sighandler_t) };
                let directory = Some(dir.path());
                log::init(&Config { directory, defer_writer: !is_queued, ..Config::default() }).unwrap();
                // A handler that meets its own thread's lock waits for some ms.
                let every = libc::timeval { tv_sec: 0, tv_usec: if is_queued { 200 } else { 10_000 } };
                let timer = libc::itimerval { it_interval: every, it_value: every };
                // SAFETY: a valid timer.
                assert_eq!(unsafe { libc::setitimer(libc::ITIMER_REAL, &timer, std::ptr::null_mut()) }, 0);
                let (records, signals) = if is_queued { (50_000, 20) } else { (100, 3) };
                let mut number = 0;
                while number < records || HANDLED.load(Ordering::Relaxed) < signals {
                    number += 1;
                    let _span = log::span!("outer", number = number);
                    if number % 3 == 0 {
                        log::log_warn!("record {number}");
                    }
                }
                let off = libc::timeval { tv_sec: 0, tv_usec: 0 };
                let timer = libc::itimerval { it_interval: off, it_value: off };
                // SAFETY: as above.
                assert_eq!(unsafe { libc::setitimer(libc::ITIMER_REAL, &timer, std::ptr::null_mut()) }, 0);
                log::close(DRAIN);
            });
            reap(child);
            let lines = lines_of(dir.path(), child);
            let spans = support::spans(&lines);
            assert!(lines.iter().any(|line| line.contains("from the handler")), "it was interrupted");
            for span in &spans {
                let is_outer = span.name == "outer" && span.depth == 0 && span.attrs.starts_with("number=");
                assert!(is_outer || span.name == "handler" && span.attrs.is_empty(), "{span:?}");
                assert!(span.dur >= 0, "{span:?}");
            }
        }
    });
}

#[test]
fn a_program_that_blocks_one_deadly_signal_is_not_ended_by_the_other() {
    in_own_process("a_program_that_blocks_one_deadly_signal_is_not_ended_by_the_other", || {
        let dir = tempfile::tempdir().unwrap();
        reap(fork(|| {
            let mut blocked = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
            // SAFETY: room for a set.
            unsafe { libc::sigemptyset(blocked.as_mut_ptr()) };
            // SAFETY: made above.
            unsafe { libc::sigaddset(blocked.as_mut_ptr(), libc::SIGPIPE) };
            // SAFETY: made above.
            unsafe { libc::sigprocmask(libc::SIG_BLOCK, blocked.as_ptr(), std::ptr::null_mut()) };
            // SAFETY: as it is by default.
            unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_DFL) };
            let directory = Some(dir.path());
            log::init(&Config { directory, defer_writer: true, ..Config::default() }).unwrap();
            let limit = libc::rlimit { rlim_cur: 10_000, rlim_max: libc::RLIM_INFINITY };
            // SAFETY: a valid limit.
            assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) }, 0);
            for number in 0..500 {
                log::log_warn!("at once {number}");
            }
            assert!(log::counts().dropped > 0);
        }));
    });
}

#[test]
fn the_shared_count_of_pending_records_goes_back_to_zero_by_itself() {
    in_own_process("the_shared_count_of_pending_records_goes_back_to_zero_by_itself", || {
        let _dir = log_to_folder();
        for _ in 0..50 {
            // Threads that contend reserve positions, and leave some unused.
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        for number in 0..100 {
                            drop(log::span!("contended", number = number));
                        }
                    });
                }
            });
            let pending = &log::state().pending_record_count;
            support::wait_for("everything written", || log::counts().pending == 0);
            support::wait_for("nothing pending", || pending.load(Ordering::Relaxed) == 0);
        }
    });
}

#[test]
fn a_ring_whose_losses_nobody_was_told_of_outlives_the_close() {
    in_own_process("a_ring_whose_losses_nobody_was_told_of_outlives_the_close", || {
        let rings = || {
            let folder = std::path::PathBuf::from(std::env::var_os("SIMPLER_SHM").unwrap());
            let of_user = std::fs::read_dir(folder).unwrap().next().unwrap().unwrap().path();
            std::fs::read_dir(of_user).unwrap().count()
        };
        let dir = tempfile::tempdir().unwrap();
        let child = fork(|| {
            // SAFETY: ignoring a signal.
            unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
            log::init(&Config { directory: Some(dir.path()), ..Config::default() }).unwrap();
            log::log_warn!("lands");
            log::flush(DRAIN).unwrap();
            let limit = libc::rlimit { rlim_cur: 1, rlim_max: 1 };
            // SAFETY: a valid limit.
            assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) }, 0);
            for number in 0..10 {
                log::log_warn!("lost {number}");
            }
            log::close(DRAIN);
            assert_eq!(log::counts().dropped, 10);
        });
        reap(child);
        assert_eq!(rings(), 1);
        let recovery = log::recover(dir.path()).unwrap();
        assert!(recovery.refused.is_empty());
        assert_eq!(rings(), 0);
        let reports = tally::drop_reports(&lines_of(dir.path(), child));
        assert_eq!((reports.len(), reports[0].total, reports[0].by_reason), (1, 10, [0, 0, 10, 0]));
    });
}

#[test]
fn times_of_a_thread_keep_their_order_wherever_its_records_go() {
    in_own_process("times_of_a_thread_keep_their_order_wherever_its_records_go", || {
        let dir = log_to_folder();
        for round in 0..40 {
            // Opened under a writer, closed without one, and the other way round; and deeper than a stack is.
            let outer = log::span!("t.outer");
            nest(20);
            if round % 2 == 0 {
                log::prepare_to_fork(DRAIN).unwrap();
            } else {
                log::start_writer().unwrap();
            }
            nest(20);
            drop(outer);
        }
        log::close(DRAIN);
        let spans = support::spans(&lines_of(dir.path(), log::pid()));
        assert!(spans.len() > 1_000);
        let mut closed: Vec<&support::SpanLine> = Vec::new();
        for span in &spans {
            assert!(span.dur >= 0, "{span:?}");
            // What closed before at a greater depth lies inside.
            while let Some(inner) = closed.pop_if(|inner| inner.depth > span.depth) {
                assert!(inner.ts >= span.ts, "{inner:?} in {span:?}");
                assert!(inner.ts + inner.dur <= span.ts + span.dur, "{inner:?} in {span:?}");
            }
            closed.push(span);
        }
    });
}

fn nest(depth: u32) {
    if depth > 0 {
        let _span = log::span!("t.nested");
        nest(depth - 1);
    }
}
