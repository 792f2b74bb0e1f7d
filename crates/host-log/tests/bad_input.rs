//! What no caller should pass: it becomes one whole line, or a counted loss, and never a panic.

#![cfg(feature = "host-strace")]

mod support;
mod tally;

use std::ffi::{c_char, c_int};
use std::fmt;
use std::sync::atomic::Ordering;

use simpler_host_log::{self as log, DropReason, Invocation, Level, Location, SpanContext, SpanEvent, span};
use simpler_log_abi::{SimplerHostLogEnqueueFn, SimplerHostLogState};
use simpler_record_format::{ATTRS_BYTES, NAME_BYTES, RECORD_BYTES};
use support::{DRAIN, flushed_lines, fork, in_own_process, log_file, log_to_folder, reap, spans};

const EVENT: SpanEvent<'static> =
    SpanEvent { name: "event", inv: 1, hid: 2, depth: 0, ts: 3, dur: 4, attrs: "" };

#[test]
fn huge_and_strange_names_are_one_line_within_their_bounds() {
    in_own_process("huge_and_strange_names_are_one_line_within_their_bounds", || {
        let dir = log_to_folder();
        let all_ascii: String = (0..128u8).map(char::from).collect();
        let long = "x".repeat(1 << 20);
        let names =
            [long.as_str(), &all_ascii, "\0", "a\0b", "\n[mono_ns=1][T0x1][WARN] f: x\n", "é🦀", " ", "="];
        for name in names {
            log::emit_span(&SpanEvent { name, attrs: name, ..EVENT });
        }
        let lines = flushed_lines(dir.path());
        let spans = spans(&lines);
        assert_eq!((spans.len(), lines.len()), (names.len(), names.len() + 1));
        for (span, name) in spans.iter().zip(names) {
            assert!(span.name.len() <= NAME_BYTES && span.attrs.len() <= ATTRS_BYTES);
            assert!(span.name.bytes().all(|byte| byte.is_ascii_graphic()), "{:?}", span.name);
            assert!(span.attrs.bytes().all(|byte| (0x20..0x7f).contains(&byte)), "{:?}", span.attrs);
            assert!(!span.name.is_empty(), "{name:?}");
        }
        assert_eq!(spans[3].name, "a%00b");
        assert_eq!((spans[5].name.as_str(), spans[6].name.as_str()), ("%C3%A9%F0%9F%A6%80", "%20"));
        assert_eq!(log::counts().dropped, 0);
    });
}

#[test]
fn extreme_numbers_of_a_span_come_out_as_they_are() {
    in_own_process("extreme_numbers_of_a_span_come_out_as_they_are", || {
        let dir = log_to_folder();
        let extremes = [i64::MIN, i64::MIN + 1, -1, 0, 1, i64::MAX];
        let depths = [i32::MIN, -1, 0, i32::MAX];
        let mut expected = Vec::new();
        for ts in extremes {
            for dur in extremes {
                for depth in depths {
                    log::emit_span(&SpanEvent { ts, dur, depth, inv: u64::MAX, hid: u64::MAX, ..EVENT });
                    expected.push(format!(
                        " inv=18446744073709551615 hid=ffffffffffffffff depth={depth} name=event ts={ts} dur={dur} "
                    ));
                }
            }
        }
        let lines = flushed_lines(dir.path());
        assert_eq!(lines.len(), expected.len() + 1);
        for (line, expected) in lines[1..].iter().zip(expected) {
            assert!(line.ends_with(&expected), "{line:?}: {expected:?}");
        }
        assert_eq!(log::counts().dropped, 0);
    });
}

#[test]
fn nesting_beyond_every_bound_neither_overflows_nor_is_forgotten() {
    in_own_process("nesting_beyond_every_bound_neither_overflows_nor_is_forgotten", || {
        let dir = log_to_folder();
        for depth in [i32::MAX, i32::MAX - 1] {
            let planted = SpanContext { inv: 7, hid: 8, depth };
            let former = log::replace_context(planted);
            {
                let _first = span!("deep.first");
                let _second = span!("deep.second", depth = depth);
                let _root = Invocation::begin("deep.root", 9);
                let _third = span!("deep.third");
            }
            assert_eq!(log::replace_context(former), planted, "every guard put back what it found");
        }
        let lines = flushed_lines(dir.path());
        assert_eq!(spans(&lines).len(), 8);
        let depths: Vec<i64> = spans(&lines)[2..4].iter().map(|span| span.depth).collect();
        assert_eq!(depths, [i64::from(i32::MAX); 2], "saturated: the second stands where the first does");
        // Many real ones, each a frame on the stack of the program.
        fn nest(left: u32) {
            let _span = span!("nested");
            if left > 0 {
                nest(left - 1);
            }
        }
        nest(2000);
        assert_eq!(log::context(), SpanContext::default());
        let depths: Vec<i64> = spans(&flushed_lines(dir.path()))[8..].iter().map(|span| span.depth).collect();
        assert_eq!(depths, (0..=2000).rev().collect::<Vec<i64>>());
    });
}

#[test]
fn strange_functions_files_and_bodies_are_one_line_each() {
    in_own_process("strange_functions_files_and_bodies_are_one_line_each", || {
        let dir = log_to_folder();
        let long = "y".repeat(1 << 20);
        let strange = ["", "\0", "a::b", "[x]", "\r\n", "\u{1b}[31m", "é🦀", " ", long.as_str()];
        for text in strange {
            log::log(
                Level::Warn,
                text,
                Some(Location { file: text, line: u32::MAX }),
                format_args!("{text}"),
            );
            log::log(Level::Warn, text, None, format_args!("id=1"));
            log::log(Level::Warn, "f", Some(Location { file: text, line: 0 }), format_args!("id=2"));
        }
        log::flush(DRAIN).unwrap();
        let bytes = std::fs::read(log_file(dir.path(), log::pid())).unwrap();
        let records: Vec<&[u8]> = bytes.split_inclusive(|&byte| byte == b'\n').collect();
        assert_eq!(records.len(), 3 * strange.len() + 2);
        for record in records {
            assert!(record.starts_with(b"[mono_ns=") && record.len() <= RECORD_BYTES, "{record:?}");
            assert!(!record.contains(&b'\r'));
        }
        assert_eq!(log::counts().dropped, 0);
    });
}

#[test]
fn a_display_that_fails_or_panics_leaves_the_log_whole() {
    struct Fails;
    impl fmt::Display for Fails {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("begun")?;
            Err(fmt::Error)
        }
    }
    struct Panics;
    impl fmt::Display for Panics {
        fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
            panic!("on purpose");
        }
    }
    struct Logs;
    impl fmt::Display for Logs {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            log::log_warn!("from within");
            f.write_str("outer")
        }
    }
    in_own_process("a_display_that_fails_or_panics_leaves_the_log_whole", || {
        let dir = log_to_folder();
        log::log_warn!("{}", Fails);
        assert!(std::panic::catch_unwind(|| log::log_warn!("{}", Panics)).is_err());
        assert!(std::panic::catch_unwind(|| drop(span!("panics", value = Panics))).is_err());
        drop(span!("fails", value = Fails, other = 1));
        log::log_warn!("{}", Logs);
        drop(span!("after"));
        assert_eq!(log::context(), SpanContext::default(), "the one that panicked is not open");
        let lines = flushed_lines(dir.path());
        let has = |text: &str| lines.iter().filter(|line| line.contains(text)).count();
        assert_eq!((has("begun~"), has("from within"), has("] outer"), has("name=after ")), (1, 1, 1, 1));
        assert_eq!(spans(&lines).last().unwrap().depth, 0);
        assert_eq!(log::counts().dropped, 0);
        // The gate is free: a quiesce has nobody to wait for.
        log::prepare_to_fork(DRAIN).unwrap();
    });
}

/// Submits bytes as a module of another language would.
fn submit(record: &[u8]) -> c_int {
    let state = log::state();
    let context = state.sink_context.load(Ordering::Acquire);
    // SAFETY: the state documents the pointer's type.
    let enqueue: SimplerHostLogEnqueueFn =
        unsafe { std::mem::transmute(state.sink_enqueue.load(Ordering::Acquire)) };
    state.sink_producer_state.fetch_add(1, Ordering::AcqRel);
    let state = std::ptr::from_ref::<SimplerHostLogState>(state).cast_mut();
    // SAFETY: entered above; the record is readable.
    unsafe { enqueue(context, state, record.as_ptr().cast::<c_char>(), record.len() as u32, 0) }
}

#[test]
fn bytes_of_another_module_that_are_no_text_come_out_as_one_line() {
    in_own_process("bytes_of_another_module_that_are_no_text_come_out_as_one_line", || {
        let dir = log_to_folder();
        let head = b"[mono_ns=5][T0x7][WARN] plugin: ";
        let with = |body: &[u8]| [head.as_slice(), body].concat();
        let records = [
            with(b"no newline"),
            with(b"\xff\xfe\x80 invalid\n"),
            with(b"a\0zero\n"),
            with(&[b'z'; RECORD_BYTES - 32]),
        ];
        assert_eq!(records[3].len(), RECORD_BYTES);
        for record in &records {
            assert_ne!(submit(record), 0);
        }
        log::log_warn!("next");
        log::flush(DRAIN).unwrap();
        let bytes = std::fs::read(log_file(dir.path(), log::pid())).unwrap();
        let lines: Vec<&[u8]> = bytes.split_inclusive(|&byte| byte == b'\n').skip(2).collect();
        assert_eq!(lines.len(), records.len() + 1);
        assert!(lines.iter().all(|line| line.starts_with(b"[mono_ns=") && line.len() <= RECORD_BYTES));
        assert_eq!(lines[1], &records[1][..]);
        assert!(lines[3].ends_with(b"z~\n"));
    });
}

#[test]
fn frames_that_lie_about_their_lengths_are_lost_and_counted() {
    in_own_process("frames_that_lie_about_their_lengths_are_lost_and_counted", || {
        let dir = log_to_folder();
        // Pseudo-random bytes behind each first byte that is no text, at every length of note.
        let mut seed = 1_u32;
        let mut accepted = 0;
        let mut refused = 0;
        for kind in 0..0x20 {
            for length in [1, 2, 7, 8, 31, 63, 64, 71, 72, 73, 80, 128, 300, RECORD_BYTES] {
                let mut frame: Vec<u8> = (0..length)
                    .map(|_| {
                        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                        (seed >> 24) as u8
                    })
                    .collect();
                frame[0] = kind;
                match submit(&frame) {
                    0 => refused += 1,
                    _ => accepted += 1,
                }
            }
            log::flush(DRAIN).unwrap();
        }
        log::log_warn!("next");
        log::flush(DRAIN).unwrap();
        let counts = log::counts();
        let losses = tally::losses(&counts);
        let bytes = std::fs::read(log_file(dir.path(), log::pid())).unwrap();
        let lines = bytes.split_inclusive(|&byte| byte == b'\n').collect::<Vec<_>>();
        assert!(lines.iter().all(|line| line.starts_with(b"[mono_ns=") && line.ends_with(b"\n")));
        // Without the anchor, the host's identity and the last.
        let landed = lines.len() as u64 - 3;
        assert_eq!(landed + losses[DropReason::OutputFailed as usize], accepted);
        assert_eq!(losses[DropReason::NotAdmitted as usize], refused);
    });
}

#[test]
fn an_owner_word_of_garbage_refuses_and_counts() {
    in_own_process("an_owner_word_of_garbage_refuses_and_counts", || {
        let dir = log_to_folder();
        log::flush(DRAIN).unwrap();
        let child = fork(|| {
            // As a child of an unquiesced parent whose state was overwritten.
            log::state().sink_owner_pid.store(i32::MIN, Ordering::Relaxed);
            log::set_threshold(log::Threshold::WARN);
            log::log_error!("refused");
            assert_eq!(tally::only(DropReason::NotAdmitted, &log::counts()), 1);
        });
        reap(child);
        drop(dir);
    });
}
