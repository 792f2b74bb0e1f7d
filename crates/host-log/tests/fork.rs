//! What parent and child of a fork each have: a file, an anchor, counts of their own.

#![cfg(feature = "host-strace")]

mod support;

use std::time::Duration;

use simpler_host_log::{self as log, Config, DropReason, Invocation, span};
use support::{
    DRAIN, StderrPipe, deferred_log_to_folder, envelope, flushed_lines, fork, in_own_process, lines,
    lines_of, log_file, log_to_folder, reap, spans, the_anchor,
};

/// The threads of this process that are called like the writer and are not on their way out.
///
/// A joined thread is listed until the kernel has taken it apart, but it was marked as exiting before the join could
/// return: a thread without the mark was not joined.
fn writer_threads() -> usize {
    /// `PF_EXITING` among the flags of a task, the kernel's own number.
    const EXITING: u64 = 4;
    let is_live_writer = |stat: &str| {
        // `tid (name) state ppid pgrp session tty tpgid flags …`; see proc(5).
        let (head, fields) = stat.rsplit_once(") ").expect("a name in parentheses");
        let flags: u64 =
            fields.split(' ').nth(6).and_then(|flags| flags.parse().ok()).expect("a task has flags");
        head.ends_with("(simpler-log") && flags & EXITING == 0
    };
    let tasks = std::fs::read_dir("/proc/self/task").expect("/proc is mounted");
    tasks
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("stat")).ok())
        .filter(|stat| is_live_writer(stat))
        .count()
}

/// The files below `dir` that this process has open.
fn open_logs(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
    let open_files = std::fs::read_dir("/proc/self/fd").expect("/proc is mounted");
    open_files
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
        .filter(|file| file.starts_with(dir))
        .collect()
}

#[test]
fn a_forked_child_writes_its_own_file_with_its_own_anchor() {
    in_own_process("a_forked_child_writes_its_own_file_with_its_own_anchor", || {
        let dir = log_to_folder();
        drop(Invocation::begin("parent.before", 1));
        log::prepare_to_fork(DRAIN).unwrap();
        let child = fork(|| {
            log::start_writer().unwrap();
            drop(Invocation::begin("child", 2));
            log::log_warn!("from the child");
            log::prepare_to_fork(DRAIN).unwrap();
        });
        log::start_writer().unwrap();
        drop(Invocation::begin("parent.after", 1));
        let parents = flushed_lines(dir.path());
        reap(child);
        let childs = lines_of(dir.path(), child);
        assert!(the_anchor(&parents).contains(&format!(" pid={} ", log::pid())), "{parents:#?}");
        assert!(the_anchor(&childs).contains(&format!(" pid={child} ")), "{childs:#?}");
        let names = |lines: &[String]| spans(lines).into_iter().map(|s| s.name).collect::<Vec<_>>();
        assert_eq!(names(&parents), ["parent.before", "parent.after"]);
        assert_eq!(names(&childs), ["child"]);
        let span = &spans(&childs)[0];
        assert_eq!((span.pid, span.tid), (i64::from(child), i64::from(child)));
        assert!(envelope(&childs[2]).1.ends_with("from the child"));
        assert_eq!(log::counts().dropped, 0);
    });
}

#[test]
fn after_a_quiesce_no_writer_lives_and_records_are_written_at_once() {
    in_own_process("after_a_quiesce_no_writer_lives_and_records_are_written_at_once", || {
        let dir = log_to_folder();
        support::wait_for("the writer has its name", || writer_threads() == 1);
        log::prepare_to_fork(DRAIN).unwrap();
        assert_eq!(writer_threads(), 0);
        log::log_warn!("at once");
        assert_eq!(lines_of(dir.path(), log::pid()).len(), 2);
        // A second quiesce has nothing to do.
        log::prepare_to_fork(Duration::ZERO).unwrap();
        log::start_writer().unwrap();
        log::start_writer().unwrap();
        log::log_warn!("queued");
        assert_eq!(flushed_lines(dir.path()).len(), 3);
    });
}

#[test]
fn a_child_of_an_unquiesced_parent_counts_its_own_losses_as_not_admitted() {
    in_own_process("a_child_of_an_unquiesced_parent_counts_its_own_losses_as_not_admitted", || {
        let dir = log_to_folder();
        log::log_warn!("parent");
        log::flush(DRAIN).unwrap();
        // Losses of the parent, which the child must not inherit.
        let state = log::state();
        state.dropped_record_count.store(3, std::sync::atomic::Ordering::Relaxed);
        state.dropped_by_reason[0].store(3, std::sync::atomic::Ordering::Relaxed);
        let child = fork(|| {
            assert_eq!(log::counts(), log::Counts::default());
            assert!(open_logs(dir.path()).is_empty(), "the parent's file is closed at once");
            // The anchor, too, is one of the child's records: it tries it before each.
            log::set_threshold(log::Threshold::WARN);
            for _ in 0..5 {
                log::log_warn!("nobody takes it");
            }
            let counts = log::counts();
            assert_eq!((counts.dropped, counts.by_reason), (5, [0, 0, 0, 5]));
            // Nothing to flush here: the writer is the parent's.
            log::flush(Duration::ZERO).unwrap();
            log::set_threshold(log::Threshold::TIMING);
            log::start_writer().unwrap();
            log::log_warn!("child");
            log::flush(DRAIN).unwrap();
            assert_eq!(open_logs(dir.path()), [log_file(dir.path(), log::pid())]);
            log::prepare_to_fork(DRAIN).unwrap();
            assert_eq!(log::counts().reported, 5);
        });
        reap(child);
        let childs = lines_of(dir.path(), child);
        assert_eq!(childs.len(), 3, "{childs:#?}");
        the_anchor(&childs);
        assert!(childs[1].ends_with("child"));
        assert!(childs[2].ends_with(&format!(
            "host_log_drops: [HOSTLOG_DROPS] v=1 pid={child} new=5 total=5 queue_full=0 claim_exhausted=0 \
             output_failed=0 not_admitted=5"
        )));
        // The parent's writer and counts are untouched.
        log::log_warn!("parent again");
        let parents = flushed_lines(dir.path());
        assert_eq!(parents.len(), 3, "{parents:#?}");
        assert_eq!(log::counts().by_reason[DropReason::NotAdmitted as usize], 0);
    });
}

/// A child by the raw call, which runs no fork handlers. Gives its pid.
fn raw_clone(body: impl FnOnce()) -> i32 {
    // SAFETY: a plain fork; the child ends by _exit.
    let child = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) } as i32;
    assert!(child >= 0);
    if child == 0 {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        // SAFETY: ends the child.
        unsafe { libc::_exit(i32::from(outcome.is_err())) };
    }
    child
}

const RAW_CLONES_SKIPPED: &str =
    "skipped: ThreadSanitizer does not see a raw clone and takes the child for a thread";

#[test]
fn a_child_made_by_raw_clone_forgets_the_parent_and_reports_its_own_losses() {
    in_own_process("a_child_made_by_raw_clone_forgets_the_parent_and_reports_its_own_losses", || {
        if support::is_under_thread_sanitizer() {
            return eprintln!("{RAW_CLONES_SKIPPED}");
        }
        let dir = log_to_folder();
        log::log_warn!("parent");
        log::flush(DRAIN).unwrap();
        let (parent, parents_tid) = (log::pid(), log::tid());
        // Losses of the parent, and a producer of it inside the gate, which the child must not inherit.
        let state = log::state();
        let relaxed = std::sync::atomic::Ordering::Relaxed;
        state.dropped_record_count.store(7, relaxed);
        state.dropped_by_reason[0].store(7, relaxed);
        state.sink_producer_state.fetch_add(1, relaxed);
        let child = raw_clone(|| {
            log::set_threshold(log::Threshold::WARN);
            log::log_warn!("refused");
            assert_ne!(log::pid(), parent);
            assert_ne!(log::tid(), parents_tid);
            assert_eq!(log::counts().by_reason, [0, 0, 0, 1]);
            assert_eq!(state.sink_producer_state.load(relaxed), 0);
            assert!(open_logs(dir.path()).is_empty(), "the parent's file is closed");
            log::set_threshold(log::Threshold::TIMING);
            log::start_writer().unwrap();
            log::log_warn!("child");
            log::prepare_to_fork(DRAIN).unwrap();
        });
        let silent = raw_clone(|| log::close(DRAIN));
        state.sink_producer_state.fetch_sub(1, relaxed);
        reap(child);
        reap(silent);
        let childs = lines_of(dir.path(), child);
        the_anchor(&childs);
        assert_eq!(childs.len(), 3, "{childs:#?}");
        assert!(childs[2].contains(&format!(" pid={child} new=1 total=1 ")), "{childs:#?}");
        assert!(lines_of(dir.path(), silent).is_empty(), "the parent's losses are not its own");
    });
}

#[test]
fn a_child_never_closes_a_file_of_its_own() {
    in_own_process("a_child_never_closes_a_file_of_its_own", || {
        if support::is_under_thread_sanitizer() {
            return eprintln!("{RAW_CLONES_SKIPPED}");
        }
        let dir = log_to_folder();
        log::flush(DRAIN).unwrap();
        let log_of_parent = log_file(dir.path(), log::pid());
        let body = || {
            let link = |number: i32| std::fs::read_link(format!("/proc/self/fd/{number}")).ok();
            // Still open only where no handler ran.
            let number = (3..1000).find(|&number| link(number).as_ref() == Some(&log_of_parent));
            if let Some(number) = number {
                // SAFETY: the parent's file, which the child closes as one that tidies up would.
                unsafe { libc::close(number) };
            }
            let own: Vec<_> = (0..8).map(|_| std::fs::File::open("/dev/null").unwrap()).collect();
            log::start_writer().unwrap();
            log::prepare_to_fork(DRAIN).unwrap();
            for file in &own {
                file.metadata().unwrap();
            }
        };
        reap(fork(body));
        reap(raw_clone(body));
    });
}

#[test]
fn children_that_share_one_small_pipe_never_mix_their_records() {
    const CHILDREN: usize = 16;
    const RECORDS: usize = 128;
    in_own_process("children_that_share_one_small_pipe_never_mix_their_records", || {
        log::init(&Config { defer_writer: true, ..Config::default() }).unwrap();
        let pipe = StderrPipe::install(Some(4096));
        let children: Vec<i32> = (0..CHILDREN)
            .map(|number| {
                fork(|| {
                    log::start_writer().unwrap();
                    for record in 0..RECORDS {
                        let _span = span!("child.work", child = number, record = record);
                    }
                    log::prepare_to_fork(DRAIN).unwrap();
                    assert_eq!(log::counts().dropped, 0);
                })
            })
            .collect();
        pipe.restore();
        let lines = lines(&pipe.read_to_end());
        children.iter().copied().for_each(reap);
        assert_eq!(lines.len(), CHILDREN * (RECORDS + 1));
        for (number, child) in children.iter().enumerate() {
            let own: Vec<String> =
                lines.iter().filter(|line| line.contains(&format!(" pid={child} "))).cloned().collect();
            the_anchor(&own);
            let attrs: Vec<String> = spans(&own).into_iter().map(|span| span.attrs).collect();
            let expected: Vec<String> =
                (0..RECORDS).map(|record| format!("child={number} record={record}")).collect();
            assert_eq!(attrs, expected);
        }
    });
}

#[test]
fn a_deferred_writer_leaves_records_to_their_threads_until_it_starts() {
    in_own_process("a_deferred_writer_leaves_records_to_their_threads_until_it_starts", || {
        let dir = deferred_log_to_folder();
        assert_eq!(writer_threads(), 0);
        drop(span!("early"));
        let lines = lines_of(dir.path(), log::pid());
        the_anchor(&lines);
        assert_eq!(lines.len(), 2, "a span frame is rendered here, too");
        log::start_writer().unwrap();
        drop(span!("late"));
        let names: Vec<String> = spans(&flushed_lines(dir.path())).into_iter().map(|s| s.name).collect();
        assert_eq!(names, ["early", "late"]);
    });
}

#[test]
fn grandchildren_have_logs_of_their_own() {
    in_own_process("grandchildren_have_logs_of_their_own", || {
        let dir = deferred_log_to_folder();
        let path = dir.path().to_owned();
        let child = fork(|| {
            // A child that forks further starts its writer when that is done.
            let grandchild = fork(|| {
                log::start_writer().unwrap();
                log::log_warn!("grandchild");
                log::prepare_to_fork(DRAIN).unwrap();
            });
            log::start_writer().unwrap();
            log::log_warn!("child");
            log::prepare_to_fork(DRAIN).unwrap();
            reap(grandchild);
            let lines = lines_of(&path, grandchild);
            the_anchor(&lines);
            assert!(lines[1].ends_with("grandchild"));
        });
        reap(child);
        let lines = lines_of(dir.path(), child);
        the_anchor(&lines);
        assert_eq!(lines.len(), 2);
        assert!(lines_of(dir.path(), log::pid()).is_empty());
    });
}

#[test]
fn a_child_of_an_unquiesced_parent_that_never_starts_a_writer_reports_at_its_close() {
    in_own_process("a_child_of_an_unquiesced_parent_that_never_starts_a_writer_reports_at_its_close", || {
        let dir = log_to_folder();
        log::flush(DRAIN).unwrap();
        let child = fork(|| {
            log::set_threshold(log::Threshold::WARN);
            for _ in 0..5 {
                log::log_warn!("nobody takes it");
            }
            log::close(Duration::ZERO);
            log::close(Duration::ZERO);
        });
        reap(child);
        let childs = lines_of(dir.path(), child);
        assert_eq!(childs.len(), 1, "{childs:#?}");
        assert!(childs[0].contains(&format!(" pid={child} new=5 total=5 ")), "{childs:#?}");
    });
}
