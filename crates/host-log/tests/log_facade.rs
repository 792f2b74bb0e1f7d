//! The records of the `log` crate: levels, place, threshold, and what a value that panics leaves behind.

mod support;

use std::cell::Cell;
use std::fmt;
use std::time::Duration;

use simpler_host_log::{self as host_log, Threshold, log_facade};
use support::{envelope, flushed_lines, in_own_process, lines_of, log_to_folder};

/// A value that counts how often it is formatted.
struct Counted<'a>(&'a Cell<u32>);

impl fmt::Display for Counted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.set(self.0.get() + 1);
        f.write_str("counted")
    }
}

/// Level and text of each line but the anchor.
fn records(lines: &[String]) -> Vec<(String, String)> {
    let without_place = |text: &str| text.split_once("] ").expect("a place").1.to_owned();
    lines
        .iter()
        .filter(|line| !line.contains("[CLOCK_ANCHOR]"))
        .map(|line| {
            let (envelope, text) = envelope(line);
            (envelope.level.name().to_owned(), without_place(text))
        })
        .collect()
}

#[test]
fn each_level_has_its_name_and_what_is_finer_than_debug_is_debug() {
    in_own_process("each_level_has_its_name_and_what_is_finer_than_debug_is_debug", || {
        let dir = log_to_folder();
        host_log::set_threshold(Threshold::DEBUG);
        log_facade::install().unwrap();
        log::trace!("a");
        log::debug!("b");
        log::info!("c");
        log::warn!("d");
        log::error!("e");
        let records = records(&flushed_lines(dir.path()));
        let seen: Vec<(&str, &str)> = records.iter().map(|(level, text)| (&**level, &**text)).collect();
        assert_eq!(seen, [("DEBUG", "a"), ("DEBUG", "b"), ("INFO", "c"), ("WARN", "d"), ("ERROR", "e")]);
    });
}

#[test]
fn a_record_says_its_target_and_its_place() {
    in_own_process("a_record_says_its_target_and_its_place", || {
        let dir = log_to_folder();
        log_facade::install().unwrap();
        mod inner {
            pub(crate) fn warns() -> u32 {
                log::warn!("from a module");
                line!() - 1
            }
        }
        let line = inner::warns();
        log::warn!(target: "audit: trail", "from elsewhere");
        log::warn!(user = "ada", tries = 3; "with pairs");
        let lines = flushed_lines(dir.path());
        let text = |at: usize| lines[at].split_once("[WARN] ").unwrap().1;
        assert_eq!(text(1), format!("log_facade.inner: [log_facade.rs:{line}] from a module"));
        assert!(
            text(2).starts_with("audit. trail: [log_facade.rs:"),
            "a colon would end the name: {}",
            text(2)
        );
        assert!(text(3).ends_with("] with pairs user=ada tries=3"), "{}", text(3));
    });
}

#[test]
fn the_threshold_is_asked_at_every_record() {
    in_own_process("the_threshold_is_asked_at_every_record", || {
        let dir = log_to_folder();
        log_facade::install().unwrap();
        let formatted = Cell::new(0);
        let counted = Counted(&formatted);
        let info = || log::info!("{counted}");
        for (threshold, is_heard) in [
            (Threshold::TIMING, false),
            (Threshold::INFO, true),
            (Threshold::NUL, false),
            (Threshold::DEBUG, true),
            (Threshold::ERROR, false),
        ] {
            host_log::set_threshold(threshold);
            let before = formatted.get();
            info();
            assert_eq!(formatted.get() - before, u32::from(is_heard), "{threshold:?}");
            assert_eq!(log::log_enabled!(log::Level::Info), is_heard, "{threshold:?}");
        }
        host_log::set_threshold(Threshold::NUL);
        log::error!("{counted}");
        assert_eq!(formatted.get(), 2);
        assert_eq!(records(&flushed_lines(dir.path())).len(), 2);
    });
}

#[test]
fn a_long_text_is_one_record_that_says_that_it_was_cut() {
    in_own_process("a_long_text_is_one_record_that_says_that_it_was_cut", || {
        let dir = log_to_folder();
        log_facade::install().unwrap();
        log::warn!("{}", "x".repeat(2000));
        log::warn!("two\nlines");
        let lines = flushed_lines(dir.path());
        assert!(lines[1].len() == 511 && lines[1].ends_with("x~"));
        assert!(lines[2].ends_with(r"] two\nlines"));
    });
}

#[test]
fn a_value_that_panics_takes_only_its_own_record_along() {
    in_own_process("a_value_that_panics_takes_only_its_own_record_along", || {
        struct Panics;
        impl fmt::Display for Panics {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("half of ")?;
                panic!("on purpose")
            }
        }
        let dir = log_to_folder();
        log_facade::install().unwrap();
        for round in 0..20 {
            log::warn!("before {round}");
            let panicked = std::panic::catch_unwind(|| log::warn!("{}", Panics));
            assert!(panicked.is_err());
            log::warn!("after {round}");
        }
        let texts: Vec<String> =
            records(&flushed_lines(dir.path())).into_iter().map(|(_, text)| text).collect();
        let want: Vec<String> = (0..20).flat_map(|n| [format!("before {n}"), format!("after {n}")]).collect();
        assert_eq!(texts, want);
        assert_eq!(host_log::counts().dropped, 0);
    });
}

#[test]
fn a_flush_brings_everything_to_the_file() {
    in_own_process("a_flush_brings_everything_to_the_file", || {
        let dir = log_to_folder();
        log_facade::install().unwrap();
        for number in 0..1000 {
            log::error!("number {number}");
        }
        log::logger().flush();
        assert_eq!(lines_of(dir.path(), host_log::pid()).len(), 1001);
    });
}

#[test]
fn a_flush_that_takes_too_long_says_so() {
    in_own_process("a_flush_that_takes_too_long_says_so", || {
        let dir = log_to_folder();
        log_facade::install().unwrap();
        let gap = host_log::diagnostics::open_gap().expect("a writer runs");
        log::logger().flush();
        gap.publish(b"[mono_ns=1][T0x1][INFO] gap: closed\n");
        let lines = flushed_lines(dir.path());
        assert!(lines.last().unwrap().contains("[WARN] flush: "), "{lines:#?}");
    });
}

#[test]
fn a_second_logger_is_refused() {
    in_own_process("a_second_logger_is_refused", || {
        log_facade::install().unwrap();
        assert!(log_facade::install().is_err());
        // Without a log that is set up, there is nothing to write and nothing to wait for.
        log::error!("nobody listens");
        log::logger().flush();
        assert_eq!(host_log::flush(Duration::ZERO), Ok(()));
    });
}
