//! Which records a threshold lets through, through the whole logger, and when a change of it is seen.

#![cfg(feature = "host-strace")]

mod support;
mod tally;

use std::sync::atomic::{AtomicU64, Ordering};

use simpler_host_log::{self as log, Config, Level, Threshold, span};
use support::{DRAIN, envelope, flushed_lines, in_own_process, log_to_folder, wait_for};

/// The wished thresholds and the mildest record number that passes each; `None`: nothing does.
const WISHES: [(i32, Option<i32>); 17] = [
    (i32::MIN, Some(0)),
    (0, Some(0)),
    (10, Some(0)),
    (11, Some(20)),
    (20, Some(20)),
    (21, Some(25)),
    (25, Some(25)),
    (26, Some(30)),
    (30, Some(30)),
    (31, Some(40)),
    (40, Some(40)),
    (41, None),
    (50, None),
    (59, None),
    (60, None),
    (61, None),
    (i32::MAX, None),
];

#[test]
fn a_wish_rounds_up_and_a_record_rounds_down_through_the_whole_logger() {
    in_own_process("a_wish_rounds_up_and_a_record_rounds_down_through_the_whole_logger", || {
        let dir = log_to_folder();
        let numbers = [0, 10, 19, 20, 24, 25, 29, 30, 35, 39, 40, 50, 60, i32::MAX];
        let mut seen = 0;
        for (wish, mildest) in WISHES {
            log::set_threshold(Threshold::normalize(wish));
            for number in numbers {
                log::log(Level::round_record(number), "wish", None, format_args!("{number}"));
            }
            let lines = flushed_lines(dir.path());
            // The first of all is the anchor.
            let fresh: Vec<i32> =
                lines[seen.max(1)..].iter().map(|line| envelope(line).1.parse().unwrap()).collect();
            seen = lines.len();
            let expected: Vec<i32> =
                numbers.into_iter().filter(|&number| mildest.is_some_and(|least| number >= least)).collect();
            assert_eq!(fresh, expected, "threshold {wish}");
        }
    });
}

#[test]
fn nul_mutes_the_anchor_spans_text_and_reports() {
    in_own_process("nul_mutes_the_anchor_spans_text_and_reports", || {
        let dir = tempfile::tempdir().unwrap();
        let threshold = Threshold::NUL;
        log::init(&Config { threshold, directory: Some(dir.path()), ..Config::default() }).unwrap();
        for level in Level::ALL {
            assert!(!log::enabled(level));
            log::log(level, "muted", None, format_args!("muted"));
        }
        drop(span!("muted"));
        drop(log::Invocation::begin("muted", 1));
        log::emit_span(&log::SpanEvent { name: "muted", inv: 1, hid: 1, depth: 0, ts: 1, dur: 1, attrs: "" });
        log::prepare_to_fork(DRAIN).unwrap();
        log::log_error!("muted at once");
        log::close(DRAIN);
        assert!(support::lines_of(dir.path(), log::pid()).is_empty());
        assert_eq!(log::counts(), log::Counts::default(), "what is muted is not lost");
    });
}

#[test]
fn losses_while_errors_are_muted_count_as_told() {
    in_own_process("losses_while_errors_are_muted_count_as_told", || {
        let dir = log_to_folder();
        log::flush(DRAIN).unwrap();
        log::prepare_to_fork(DRAIN).unwrap();
        let file = std::fs::read(support::log_file(dir.path(), log::pid())).unwrap();
        std::fs::remove_dir_all(dir.path()).unwrap();
        log::log_error!("lost");
        std::fs::create_dir(dir.path()).unwrap();
        std::fs::write(support::log_file(dir.path(), log::pid()), file).unwrap();
        log::set_threshold(Threshold::NUL);
        log::prepare_to_fork(DRAIN).unwrap();
        assert_eq!((log::counts().dropped, log::counts().reported), (1, 1));
        log::set_threshold(Threshold::TIMING);
        log::prepare_to_fork(DRAIN).unwrap();
        assert!(tally::drop_reports(&support::lines_of(dir.path(), log::pid())).is_empty());
    });
}

#[test]
fn a_change_is_seen_by_threads_that_run_already() {
    in_own_process("a_change_is_seen_by_threads_that_run_already", || {
        const THREADS: usize = 4;
        static STEP: AtomicU64 = AtomicU64::new(0);
        static SEEN: AtomicU64 = AtomicU64::new(0);
        let dir = log_to_folder();
        let steps = [Threshold::WARN, Threshold::NUL, Threshold::DEBUG, Threshold::TIMING];
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for step in 1..=steps.len() as u64 {
                        wait_for("the next step", || STEP.load(Ordering::Acquire) >= step);
                        log::log_warn!("step {step} warn");
                        log::log_debug!("step {step} debug");
                        drop(span!("step.span", step = step));
                        SEEN.fetch_add(1, Ordering::Release);
                    }
                });
            }
            for (step, threshold) in steps.into_iter().enumerate() {
                log::set_threshold(threshold);
                STEP.fetch_add(1, Ordering::Release);
                let all = (THREADS * (step + 1)) as u64;
                wait_for("all threads", || SEEN.load(Ordering::Acquire) >= all);
            }
        });
        let lines = flushed_lines(dir.path());
        let count = |text: &str| lines.iter().filter(|line| line.ends_with(text)).count();
        let seen = |step: u64| {
            [" warn", " debug", ""].map(|kind| match kind {
                "" => count(&format!(" step={step}")),
                kind => count(&format!("step {step}{kind}")),
            })
        };
        assert_eq!(seen(1), [THREADS, 0, 0]);
        assert_eq!(seen(2), [0, 0, 0]);
        assert_eq!(seen(3), [THREADS, THREADS, THREADS]);
        assert_eq!(seen(4), [THREADS, 0, THREADS]);
    });
}

#[test]
fn the_anchor_precedes_the_first_record_of_every_level() {
    in_own_process("the_anchor_precedes_the_first_record_of_every_level", || {
        for level in Level::ALL {
            for has_writer in [true, false] {
                let dir = tempfile::tempdir().unwrap();
                let child = support::fork(|| {
                    let threshold = Threshold::DEBUG;
                    let config = Config { threshold, directory: Some(dir.path()), defer_writer: !has_writer };
                    log::init(&config).unwrap();
                    log::log(level, "first", None, format_args!("id=0"));
                    log::flush(DRAIN).unwrap();
                });
                support::reap(child);
                let lines = support::lines_of(dir.path(), child);
                support::the_anchor(&lines);
                assert_eq!(lines.len(), 2, "{level:?}");
            }
        }
    });
}

#[test]
fn threads_that_race_for_the_first_record_emit_one_anchor() {
    in_own_process("threads_that_race_for_the_first_record_emit_one_anchor", || {
        for has_writer in [true, false] {
            let dir = tempfile::tempdir().unwrap();
            let child = support::fork(|| {
                let directory = Some(dir.path());
                let threshold = Threshold::NUL;
                log::init(&Config { threshold, directory, defer_writer: !has_writer }).unwrap();
                let start = std::sync::Barrier::new(8);
                std::thread::scope(|scope| {
                    for id in 0..8 {
                        let start = &start;
                        scope.spawn(move || {
                            start.wait();
                            log::set_threshold(Threshold::TIMING);
                            log::log_warn!("first id={id}");
                        });
                    }
                });
                log::flush(DRAIN).unwrap();
            });
            support::reap(child);
            let lines = support::lines_of(dir.path(), child);
            assert_eq!((tally::anchors(&lines).len(), tally::ids(&lines).len(), lines.len()), (1, 8, 9));
        }
    });
}
