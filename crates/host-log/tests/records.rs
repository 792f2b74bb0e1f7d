//! What a record looks like, byte for byte, and what is not even evaluated.

#![cfg(feature = "host-strace")]

mod support;

use std::cell::Cell;
use std::time::Duration;

use simpler_host_log::{self as log, Config, Level, SpanEvent, Threshold};
use support::{envelope, flushed_lines, in_own_process, log_to_folder, spans};

#[test]
fn a_span_record_is_the_golden_line() {
    in_own_process("a_span_record_is_the_golden_line", || {
        let dir = log_to_folder();
        log::emit_span(&SpanEvent {
            name: "simpler_run.runner_run.device_wall",
            inv: (1 << 32) + 7,
            hid: 0xdead_beef_0123_4567,
            depth: 2,
            ts: 0,
            dur: 12_345,
            attrs: "clk=dev org_cyc=99",
        });
        let lines = flushed_lines(dir.path());
        let (found, _) = envelope(&lines[1]);
        // SAFETY: no preconditions.
        let tid = unsafe { libc::gettid() };
        // SAFETY: no preconditions.
        let thread = unsafe { libc::pthread_self() };
        assert_eq!(
            lines[1],
            format!(
                "[mono_ns={}][T0x{thread:x}][TIMING] emit_host_span: [STRACE] v=1 pid={} tid={tid} \
                 inv=4294967303 hid=deadbeef01234567 depth=2 name=simpler_run.runner_run.device_wall ts=0 \
                 dur=12345 clk=dev org_cyc=99",
                found.mono_ns,
                std::process::id(),
            )
        );
        assert_eq!(lines.len(), 2);
    });
}

#[test]
fn a_text_record_names_function_file_and_line() {
    in_own_process("a_text_record_names_function_file_and_line", || {
        let dir = log_to_folder();
        let before = log::monotonic_ns();
        log::log_warn!("{} of {}", 3, "four");
        let line = line!() - 1;
        let after = log::monotonic_ns();
        let lines = flushed_lines(dir.path());
        let (found, body) = envelope(&lines[1]);
        assert_eq!(found.level, Level::Warn);
        assert!((before..=after).contains(&found.mono_ns));
        assert_eq!(found.func, b"a_text_record_names_function_file_and_line");
        assert!(body.ends_with(&format!("[records.rs:{line}] 3 of four")), "{body:?}");
    });
}

/// Logs a message and gives what `format!` makes of it.
macro_rules! logged {
    ($($message:tt)+) => {{
        log::log_info!($($message)+);
        format!($($message)+)
    }};
}

#[test]
fn a_message_is_what_format_makes_of_it() {
    in_own_process("a_message_is_what_format_makes_of_it", || {
        let dir = log_to_folder();
        log::set_threshold(Threshold::INFO);
        let (number, negative, text, owned) = (7_usize, i64::MIN, "four", String::from("five"));
        let value_0 = "as a variable of the macro's is called";
        let (by_reference, nested) = (&number, &&number);
        let evaluated = Cell::new(0);
        let count = || {
            evaluated.set(evaluated.get() + 1);
            evaluated.get()
        };
        fn generic<T: std::fmt::Display>(value: T) -> String {
            logged!("of any type: {value} {}", value)
        }
        let expected = [
            logged!("plain"),
            logged!("{number} of {} and {{{}}}", 12, negative),
            logged!("{}", count()),
            logged!("{value_0} {}", 8),
            logged!("{text}|{owned}|{}|{}", "x", &owned),
            logged!("{by_reference} {nested} {} {}", by_reference, nested),
            logged!("{} {} {} {} {} {}", 0, u64::MAX, i8::MIN, u8::MAX, i16::MIN, usize::MAX),
            logged!("{} {} {} {}", true, 'c', 1.5, u128::MAX),
            generic(3_u32),
            generic("text"),
            logged!("{:?} {text:>8} {0:x} {named}", number, named = 1),
            logged!(concat!("con", "cat {}"), 1),
            logged!("{}", if number > 3 { "more" } else { "less" }),
            logged!("{}", [1, 2, 3].iter().map(|n| n + 1).sum::<i32>()),
            logged!("trailing comma {}", 1,),
        ];
        // Once by each of the two macros.
        assert_eq!(evaluated.get(), 2);
        let lines = flushed_lines(dir.path());
        let found: Vec<&str> = lines
            .iter()
            .filter_map(|line| line.split_once(".rs:")?.1.split_once("] "))
            .map(|it| it.1)
            .collect();
        // What `count` gave was 1 in the record and 2 for `format!`.
        let expected = expected.map(|text| if text == "2" { String::from("1") } else { text });
        assert_eq!(found, expected);
    });
}

#[test]
fn each_macro_has_its_level() {
    in_own_process("each_macro_has_its_level", || {
        let dir = log_to_folder();
        log::set_threshold(Threshold::DEBUG);
        log::log_debug!("a");
        log::log_info!("b");
        log::log_timing!("c");
        log::log_warn!("d");
        log::log_error!("e");
        let levels: Vec<Level> =
            flushed_lines(dir.path())[1..].iter().map(|line| envelope(line).0.level).collect();
        assert_eq!(levels, Level::ALL);
    });
}

#[test]
fn a_record_too_long_is_cut_to_512_bytes_and_marked() {
    in_own_process("a_record_too_long_is_cut_to_512_bytes_and_marked", || {
        let dir = log_to_folder();
        log::log_error!("{}", "x".repeat(5000));
        log::log_error!("short");
        log::flush(support::DRAIN).unwrap();
        let bytes = std::fs::read(support::log_file(dir.path(), log::pid())).unwrap();
        let records: Vec<&[u8]> = bytes.split_inclusive(|&byte| byte == b'\n').collect();
        assert_eq!(records.len(), 4);
        assert_eq!(records[2].len(), 512);
        assert!(records[2].ends_with(b"x~\n"));
        assert!(records[3].ends_with(b"short\n"));
    });
}

#[test]
fn a_record_longer_than_a_slots_head_comes_out_whole() {
    in_own_process("a_record_longer_than_a_slots_head_comes_out_whole", || {
        let dir = log_to_folder();
        let body = |length: usize| (b'a'..=b'z').cycle().take(length).map(char::from).collect::<String>();
        for length in 0..350 {
            log::log_warn!("{}", body(length));
        }
        let lines = flushed_lines(dir.path());
        for (length, line) in lines[1..].iter().enumerate() {
            assert!(line.ends_with(&format!("] {}", body(length))), "{line:?}");
        }
        assert_eq!(lines.len(), 351);
    });
}

#[test]
fn a_muted_level_evaluates_nothing_and_writes_nothing() {
    in_own_process("a_muted_level_evaluates_nothing_and_writes_nothing", || {
        let evaluated = Cell::new(0);
        let count = || {
            evaluated.set(evaluated.get() + 1);
            evaluated.get()
        };
        // Not initialised: silent at every level.
        log::log_error!("{}", count());
        let dir = tempfile::tempdir().unwrap();
        let threshold = Threshold::WARN;
        log::init(&Config { threshold, directory: Some(dir.path()), ..Config::default() }).unwrap();
        assert!(!log::span_enabled() && !log::enabled(Level::Timing) && log::enabled(Level::Warn));
        log::log_info!("{}", count());
        {
            let _span = log::span!("muted", value = count());
            assert_eq!(log::context().depth, 0);
        }
        log::emit_span(&SpanEvent { name: "muted", inv: 0, hid: 0, depth: 0, ts: 0, dur: 0, attrs: "" });
        assert_eq!(evaluated.get(), 0);
        // No span, hence no anchor either.
        log::log_warn!("{}", count());
        let lines = flushed_lines(dir.path());
        assert_eq!(lines.len(), 1, "{lines:#?}");
        log::set_threshold(Threshold::NUL);
        log::log_error!("{}", count());
        assert_eq!((flushed_lines(dir.path()).len(), evaluated.get()), (1, 1));
        // The anchor comes as soon as TIMING is visible.
        log::set_threshold(Threshold::TIMING);
        drop(log::span!("visible", value = count()));
        let lines = flushed_lines(dir.path());
        assert!(lines[1].contains("[CLOCK_ANCHOR]"), "{lines:#?}");
        assert_eq!((spans(&lines)[0].attrs.as_str(), lines.len()), ("value=2", 3));
    });
}

#[test]
fn a_span_without_a_name_is_not_emitted() {
    in_own_process("a_span_without_a_name_is_not_emitted", || {
        let dir = log_to_folder();
        log::emit_span(&SpanEvent { name: "", inv: 1, hid: 1, depth: 0, ts: 1, dur: 1, attrs: "a=1" });
        assert_eq!(flushed_lines(dir.path()).len(), 1);
        assert_eq!(log::counts().dropped, 0);
    });
}

#[test]
fn the_writer_sleeps_while_an_earlier_record_is_not_published() {
    in_own_process("the_writer_sleeps_while_an_earlier_record_is_not_published", || {
        /// Long enough that a writer that spins, or polls, shows.
        const WINDOW: Duration = Duration::from_millis(50);
        const RESTING_NS: i64 = 1_000_000;
        let dir = log_to_folder();
        log::flush(support::DRAIN).expect("nothing is in the way");
        let gap = log::diagnostics::open_gap().expect("room");
        log::log_warn!("behind the gap");
        assert_eq!(log::counts().pending, 2);
        let used = || log::diagnostics::writer_cpu_ns().expect("the writer runs");
        support::wait_for("the writer rests", || {
            let before = (used(), log::diagnostics::sleeps_and_wakes());
            std::thread::park_timeout(WINDOW);
            used() - before.0 < RESTING_NS && log::diagnostics::sleeps_and_wakes() == before.1
        });
        assert_eq!(log::counts().pending, 2);
        gap.publish(b"[mono_ns=5][T0x7][WARN] test: in the gap\n");
        let lines = support::flushed_lines(dir.path());
        assert!(lines[1].ends_with("in the gap"), "{lines:#?}");
        assert!(lines[2].ends_with("behind the gap"), "{lines:#?}");
    });
}
