//! The bound of 512 bytes through the whole logger: at it, below it, and beyond.

#![cfg(feature = "host-strace")]
#![expect(clippy::unwrap_used, reason = "clippy does not take the functions beside the tests for tests")]

mod support;

use simpler_host_log::{self as log, Config, Level, SpanEvent};
use simpler_record_format::{ATTRS_BYTES, NAME_BYTES, RECORD_BYTES};
use support::{DRAIN, StderrPipe, envelope, fork, in_own_process, lines, log_file, reap, spans};

/// What `body` leaves in a log's file, without the anchor; with a writer, or at once without one.
fn records_of(has_writer: bool, body: impl Fn()) -> Vec<Vec<u8>> {
    let dir = tempfile::tempdir().unwrap();
    let child = fork(|| {
        log::init(&Config { directory: Some(dir.path()), defer_writer: !has_writer, ..Config::default() })
            .unwrap();
        body();
        log::flush(DRAIN).unwrap();
        assert_eq!(log::counts().dropped, 0);
    });
    reap(child);
    let bytes = std::fs::read(log_file(dir.path(), child)).unwrap();
    bytes.split_inclusive(|&byte| byte == b'\n').skip(2).map(<[u8]>::to_vec).collect()
}

/// Logs a record of `bytes` in all with its newline, as long as it is within the bound.
fn log_of_length(bytes: usize) {
    // The clock's digits are as many in both: they change once in a machine's life, or so.
    let overhead = {
        let thread = format!("{:x}", std::ptr::from_ref(&bytes).addr());
        // The thread's handle and an address of its stack have the same number of digits.
        format!("[mono_ns={}][T0x{thread}][WARN] length: \n", log::monotonic_ns()).len()
    };
    let body: String = (b'a'..=b'z').cycle().take(bytes - overhead).map(char::from).collect();
    log::log(Level::Warn, "length", None, format_args!("{body}"));
}

#[test]
fn up_to_512_bytes_a_record_is_whole_and_beyond_it_is_cut_and_marked() {
    in_own_process("up_to_512_bytes_a_record_is_whole_and_beyond_it_is_cut_and_marked", || {
        for has_writer in [true, false] {
            let records = records_of(has_writer, || {
                for bytes in [510, 511, 512, 513, 514, 2000] {
                    log_of_length(bytes);
                }
                log::log(Level::Warn, "after", None, format_args!("whole"));
            });
            let lengths: Vec<usize> = records[..6].iter().map(Vec::len).collect();
            assert_eq!(lengths, [510, 511, 512, 512, 512, 512]);
            for (record, is_cut) in records.iter().zip([false, false, false, true, true, true]) {
                assert_eq!(record.ends_with(b"~\n"), is_cut, "{:?}", String::from_utf8_lossy(record));
            }
            // What is cut is the same as far as it goes.
            let body = |index: usize| {
                let text = std::str::from_utf8(&records[index]).unwrap();
                envelope(text.trim_end()).1.trim_end_matches('~').to_owned()
            };
            assert!(body(5).starts_with(&body(3)[..400]));
            assert_eq!(body(3).len() + 1, body(2).len());
            assert!(records[6].ends_with(b"after: whole\n"));
            assert_eq!(records.len(), 7);
        }
    });
}

#[test]
fn a_body_gets_one_newline_whether_it_brings_it_or_not_and_an_empty_one_too() {
    in_own_process("a_body_gets_one_newline_whether_it_brings_it_or_not_and_an_empty_one_too", || {
        for has_writer in [true, false] {
            let records = records_of(has_writer, || {
                log::log(Level::Warn, "f", None, format_args!("with\n"));
                log::log(Level::Warn, "f", None, format_args!("without"));
                log::log(Level::Warn, "f", None, format_args!(""));
                log::log(Level::Warn, "f", None, format_args!("\n"));
                log::log(Level::Warn, "f", None, format_args!("{}", "two\nlines"));
            });
            let bodies: Vec<String> = records
                .iter()
                .map(|record| {
                    String::from_utf8(record.clone()).unwrap().split_once("] f: ").unwrap().1.to_owned()
                })
                .collect();
            assert_eq!(bodies, ["with\n", "without\n", "\n", "\n", "two\\nlines\n"]);
        }
    });
}

#[test]
fn a_cut_inside_a_character_leaves_the_next_record_whole() {
    in_own_process("a_cut_inside_a_character_leaves_the_next_record_whole", || {
        for has_writer in [true, false] {
            // Four bytes each, so that the cut falls at each place of one.
            for shift in 0..4 {
                let records = records_of(has_writer, || {
                    log::log(
                        Level::Warn,
                        "f",
                        None,
                        format_args!("{}{}", "x".repeat(shift), "🦀".repeat(200)),
                    );
                    log::log(Level::Warn, "f", None, format_args!("next"));
                });
                assert_eq!(records.len(), 2);
                assert_eq!(records[0].len(), RECORD_BYTES);
                assert!(records[0].ends_with(b"~\n"));
                assert!(records[1].ends_with(b"] f: next\n"));
            }
        }
    });
}

#[test]
fn the_longest_span_is_one_record_of_at_most_512_bytes_on_a_pipe() {
    in_own_process("the_longest_span_is_one_record_of_at_most_512_bytes_on_a_pipe", || {
        let pipe = StderrPipe::install(None);
        log::init(&Config::default()).unwrap();
        log::emit_span(&SpanEvent {
            name: &"n".repeat(NAME_BYTES),
            inv: u64::MAX,
            hid: u64::MAX,
            depth: i32::MAX,
            ts: i64::MAX,
            dur: i64::MAX,
            attrs: &"a".repeat(ATTRS_BYTES),
        });
        // An escape has three bytes and is never cut: 64 are 21 of them and a mark, 192 are 64.
        log::emit_span(&SpanEvent {
            name: &"\n".repeat(1000),
            inv: 1,
            hid: 1,
            depth: 0,
            ts: 0,
            dur: 0,
            attrs: &"%".repeat(1000),
        });
        log::flush(DRAIN).unwrap();
        pipe.restore();
        let lines = lines(&pipe.read_to_end());
        let spans = spans(&lines);
        assert_eq!(lines.len(), 3);
        assert_eq!((spans[0].name.len(), spans[0].attrs.len()), (NAME_BYTES, ATTRS_BYTES));
        assert_eq!(
            (spans[0].inv, spans[0].depth, spans[0].ts, spans[0].dur),
            (u64::MAX, i64::from(i32::MAX), i64::MAX, i64::MAX)
        );
        assert_eq!(spans[1].name, format!("{}~", "%0A".repeat(21)));
        assert_eq!(spans[1].attrs, format!("{}~", "%25".repeat(63)));
    });
}
