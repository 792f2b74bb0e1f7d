//! Records that went wrong on their way, and what the reader is told about each.

#![allow(clippy::unwrap_used, reason = "clippy does not take the functions beside the tests for tests")]

use simpler_log_abi::Level;
use simpler_record_format::{
    ClockAnchor, DeviceClockAnchor, DropReport, Fault, Field, Input, Malformed, RawHostIdentity, RawSpan,
    RecordEnd, SPAN_WINDOW_BYTES, SpanParse, is_truncated_field, parse_clock_anchor, parse_device_anchor,
    parse_drop_report, parse_envelope, parse_host_identity, parse_span, parse_span_of_any_version,
    percent_decode,
};

const HEAD: &str = "[STRACE] v=1 pid=41 tid=43 inv=1 hid=b7e2c04410d95f6e depth=0 name=simpler_run \
                    ts=88400000000000 dur=5000";
const PREFIX: &str = "[mono_ns=88400000005000][T0x7f002900a740][TIMING] emit_host_span: ";

#[track_caller]
fn span(bytes: &[u8]) -> RawSpan<'_> {
    match parse_span(bytes, Input::Whole) {
        SpanParse::Span(span, _) => span,
        other => panic!("{other:?} from {}", String::from_utf8_lossy(bytes)),
    }
}

#[track_caller]
fn assert_parse(bytes: impl AsRef<[u8]>, expected: SpanParse<'_>) {
    let bytes = bytes.as_ref();
    assert_eq!(parse_span(bytes, Input::Whole), expected, "{}", String::from_utf8_lossy(bytes));
}

fn malformed(field: Field, fault: Fault) -> SpanParse<'static> {
    SpanParse::Malformed(Malformed { field, fault })
}

#[test]
fn a_complete_record_gives_all_its_fields() {
    let record = format!("{HEAD} ntensor=4 flag empty= a=b=c\nnext line");
    let read = span(record.as_bytes());
    assert_eq!(
        read,
        RawSpan {
            pid: 41,
            tid: 43,
            inv: 1,
            hid: 0xb7e2_c044_10d9_5f6e,
            depth: 0,
            name: b"simpler_run",
            ts: 88_400_000_000_000,
            dur: 5_000,
            attrs: b"ntensor=4 flag empty= a=b=c",
            end: RecordEnd::Line,
        }
    );
    assert_parse(&record, SpanParse::Span(read, record.find('\n').unwrap()));
}

#[test]
fn blanks_between_fields_may_be_any_and_hid_of_either_case() {
    let record = HEAD.replace(' ', " \t ").replace("b7e2c04410d95f6e", "B7E2C04410D95F6E") + "\t \n";
    assert_eq!(span(record.as_bytes()).hid, 0xb7e2_c044_10d9_5f6e);
    assert_eq!(span(record.as_bytes()).attrs, b"");
}

#[test]
fn a_record_ends_where_the_next_begins() {
    for next in [format!("{PREFIX}{HEAD} \n"), format!("{HEAD} \n"), "[mono_ns=884".to_owned()] {
        let record = format!("{HEAD} ntensor=4");
        let line = record.clone() + &next;
        let SpanParse::Span(read, len) = parse_span(line.as_bytes(), Input::Whole) else { panic!("{line}") };
        assert_eq!((read.attrs, read.end, len), (&b"ntensor=4"[..], RecordEnd::Record, record.len()));
    }
}

#[test]
fn brackets_that_begin_no_record_stay_in_the_attributes() {
    let line = format!("{HEAD} shape=[2,3] [mono] x\n");
    assert_eq!(span(line.as_bytes()).attrs, b"shape=[2,3] [mono] x");
}

#[test]
fn what_a_terminal_or_collector_appends_is_no_attribute() {
    for tail in ["\r\n", "\r 30%|###   | 3/10\n", "\x1b[0m\n", "\0\0\0\n", "\x1b[0m[mono_ns=1]"] {
        let line = format!("{HEAD} ntensor=4{tail}");
        assert_eq!(span(line.as_bytes()).attrs, b"ntensor=4", "{tail:?}");
    }
}

#[test]
fn bytes_that_are_not_utf8_are_kept() {
    let line = [HEAD.as_bytes(), b" note=caf\xe9\n"].concat();
    assert_eq!(span(&line).attrs, b"note=caf\xe9");
}

#[test]
fn a_record_cut_anywhere_is_torn_and_never_a_shorter_number() {
    let head_end = HEAD.find("pid=").unwrap() - 1;
    // Within the digits of dur a line end hides the cut: the policy takes such a record as whole.
    let dur_digits = HEAD.find("dur=").unwrap() + "dur=".len() + 1;
    for end in head_end..HEAD.len() {
        let cut = &HEAD[..end];
        for tail in ["\n", "\r\n", "~\n", "", "~", "\0\0\0\n"] {
            if end < dur_digits || !tail.starts_with(['\n', '\r']) {
                assert_parse(format!("{cut}{tail}"), SpanParse::Torn);
            }
        }
        assert_parse(format!("{cut}{PREFIX}{HEAD} \n"), SpanParse::Torn);
        assert_parse(format!("{cut}{HEAD} \n"), SpanParse::Torn);
        assert_parse(format!("{cut}[rank 0] {PREFIX}{HEAD} \n"), SpanParse::Torn);
    }
}

#[test]
fn a_duration_counts_only_before_white_space() {
    for tail in [" \n", "\n", "\r\n", "\t\n", " [mono_ns=1"] {
        assert_eq!(span(format!("{HEAD}{tail}").as_bytes()).dur, 5_000, "{tail:?}");
    }
    for tail in ["[mono_ns=1][T0x1]", "~\n", "\0\n", "\x1b[0m\n"] {
        assert_parse(format!("{HEAD}{tail}"), SpanParse::Torn);
    }
    for tail in ["' in text\n", ".5 \n", "ns \n"] {
        assert_parse(format!("{HEAD}{tail}"), malformed(Field::Dur, Fault::NotANumber));
    }
}

#[test]
fn a_record_without_terminator_is_torn_or_incomplete() {
    for tail in ["", " ", " ntensor=4", " ntensor=4[mono"] {
        let record = format!("{HEAD}{tail}");
        assert_parse(&record, SpanParse::Torn);
        assert_eq!(parse_span(record.as_bytes(), Input::Partial), SpanParse::Incomplete);
    }
}

#[test]
fn a_partial_input_asks_for_more_until_the_record_is_decided() {
    let record = format!("{HEAD} ntensor=4\n");
    for end in 0..record.len() {
        assert_eq!(
            parse_span(&record.as_bytes()[..end], Input::Partial),
            SpanParse::Incomplete,
            "{end} bytes"
        );
    }
    assert_eq!(parse_span(record.as_bytes(), Input::Partial), parse_span(record.as_bytes(), Input::Whole));
    // A second digit would make it version 12.
    for undecided in [&b"[STRACE] v=1"[..], b"[STRACE] v=2"] {
        assert_eq!(parse_span(undecided, Input::Partial), SpanParse::Incomplete);
    }
    assert_eq!(parse_span(b"[STRACE] v=2 ", Input::Partial), SpanParse::UnknownVersion(2));
}

#[test]
fn a_record_is_looked_for_within_a_window_only() {
    let filler = "y".repeat(SPAN_WINDOW_BYTES);
    let line = format!("{HEAD} tail {filler}");
    let SpanParse::Span(read, len) = parse_span(line.as_bytes(), Input::Partial) else { panic!() };
    assert_eq!((read.end, len), (RecordEnd::Window, SPAN_WINDOW_BYTES));
    assert!(read.attrs.starts_with(b"tail yyy"));

    let endless_name = format!("[STRACE] v=1 pid=1 tid=1 inv=1 hid=1 depth=0 name={filler}");
    assert_eq!(parse_span(endless_name.as_bytes(), Input::Partial), SpanParse::Torn);
    let endless_version = format!("[STRACE] v={}", "1".repeat(SPAN_WINDOW_BYTES));
    assert_eq!(parse_span(endless_version.as_bytes(), Input::Partial), SpanParse::UnknownVersion(u64::MAX));
}

#[test]
fn numbers_are_plain_and_in_range() {
    let with = |from: &str, to: &str| format!("{} \n", HEAD.replace(from, to));
    for (from, to, field, fault) in [
        ("pid=41", "pid=<n>", Field::Pid, Fault::NotANumber),
        ("pid=41", "pid=", Field::Pid, Fault::NotANumber),
        ("pid=41", "pid=+41", Field::Pid, Fault::NotANumber),
        ("tid=43", "tid=-43", Field::Tid, Fault::NotANumber),
        ("tid=43", "tid=4_3", Field::Tid, Fault::NotANumber),
        ("inv=1", "inv=18446744073709551616", Field::Inv, Fault::OutOfRange),
        ("inv=1", "inv=0x1", Field::Inv, Fault::NotANumber),
        ("hid=b7e2c04410d95f6e", "hid=1b7e2c04410d95f6e", Field::Hid, Fault::OutOfRange),
        ("hid=b7e2c04410d95f6e", "hid=0xb7", Field::Hid, Fault::NotANumber),
        ("hid=b7e2c04410d95f6e", "hid=wxyz", Field::Hid, Fault::NotANumber),
        ("depth=0", "depth=-1", Field::Depth, Fault::NotANumber),
        ("depth=0", "depth=4294967296", Field::Depth, Fault::OutOfRange),
        ("ts=88400000000000", "ts=9223372036854775808", Field::Ts, Fault::OutOfRange),
        ("ts=88400000000000", "ts=1e3", Field::Ts, Fault::NotANumber),
        ("dur=5000", "dur=99999999999999999999999999", Field::Dur, Fault::OutOfRange),
        ("name=simpler_run", "name=", Field::Name, Fault::Empty),
        ("v=1", "v=1x", Field::Version, Fault::NotANumber),
    ] {
        assert_parse(with(from, to), malformed(field, fault));
    }
    assert_eq!(span(with("inv=1", "inv=18446744073709551615").as_bytes()).inv, u64::MAX);
    assert_eq!(span(with("inv=1", "inv=0000000000000000000000000000007").as_bytes()).inv, 7);
    assert_eq!(span(with("hid=b7e2c04410d95f6e", "hid=ffffffffffffffff").as_bytes()).hid, u64::MAX);
    assert_eq!(span(with("ts=88400000000000", "ts=9223372036854775807").as_bytes()).ts, i64::MAX);
}

#[test]
fn a_number_out_of_range_at_the_end_of_a_torn_record_is_a_tear() {
    assert_parse("[STRACE] v=1 pid=1 tid=1 inv=99999999999999999999\n", SpanParse::Torn);
}

#[test]
fn fields_stand_in_their_order() {
    for (from, to, field) in [
        ("pid=41 tid=43", "tid=43 pid=41", Field::Pid),
        (" depth=0", "", Field::Depth),
        ("name=", "nome=", Field::Name),
        ("v=1 ", "v=1 records are spans: ", Field::Pid),
    ] {
        assert_parse(format!("{} \n", HEAD.replace(from, to)), malformed(field, Fault::Missing));
    }
}

#[test]
fn other_versions_are_named_and_not_read() {
    assert_parse("[STRACE] v=2 whatever\n", SpanParse::UnknownVersion(2));
    assert_parse("[STRACE] v=0\n", SpanParse::UnknownVersion(0));
    assert_parse("[STRACE] v=2", SpanParse::UnknownVersion(2));
    assert_parse("[STRACE] v=99999999999999999999\n", SpanParse::UnknownVersion(u64::MAX));
}

#[test]
fn a_marker_without_version_is_no_head() {
    for text in
        ["[STRACE]", "[STRACE]\n", "[STRACE] markers\n", "[STRACE]v=1 pid=1", "[STRACE] v=x", "[STRACE] v="]
    {
        assert_parse(text, SpanParse::NotHead);
    }
    assert_parse("STRACE] v=1", SpanParse::NotHead);
    assert_parse("", SpanParse::NotHead);
    assert_parse("[STRACE] v=1", SpanParse::Torn);
}

#[test]
fn an_envelope_is_read_up_to_its_body() {
    let record = format!("{PREFIX}body: x\n");
    let (envelope, body) = parse_envelope(record.as_bytes()).unwrap();
    assert_eq!((envelope.mono_ns, envelope.thread), (88_400_000_005_000, 0x7f00_2900_a740));
    assert_eq!((envelope.level, envelope.func), (Level::Timing, &b"emit_host_span"[..]));
    assert_eq!(body, b"body: x\n");
    for level in Level::ALL {
        let record = format!("[mono_ns=1][T0xAB][{}] f: ", level.name());
        let (envelope, body) = parse_envelope(record.as_bytes()).unwrap();
        assert_eq!((envelope.level, envelope.thread, body), (level, 0xab, &b""[..]));
    }
}

#[test]
fn a_damaged_envelope_is_none() {
    let whole = "[mono_ns=1][T0x2][INFO] f: ";
    for end in 0..whole.len() {
        assert_eq!(parse_envelope(&whole.as_bytes()[..end]), None, "cut to {end}");
    }
    for (from, to) in [
        ("=1", "=-1"),
        ("=1", "=9223372036854775808"),
        ("0x2", "0x"),
        ("0x2", "0x11112222333344445"),
        ("INFO", "info"),
        ("INFO", "NUL"),
        ("f: ", "f:x"),
        ("f: ", "f\n: "),
        ("[T", " [T"),
    ] {
        assert_eq!(parse_envelope(whole.replacen(from, to, 1).as_bytes()), None, "{from} → {to}");
    }
    let endless = format!("[mono_ns=1][T0x2][INFO] {}: ", "f".repeat(100_000));
    assert_eq!(parse_envelope(endless.as_bytes()), None);
}

#[test]
fn a_device_anchor_needs_its_own_whole_envelope_and_a_frequency() {
    let record = "[mono_ns=5][T0x7f][TIMING] clock.anchor: [DEV_CLOCK_ANCHOR] v=1 pid=42 inv=3 host_ns=4 \
                  dev_cyc=18446744073709551615 dev_freq=50000000 half_ns=31\n";
    let expected = Some(DeviceClockAnchor {
        pid: 42,
        inv: 3,
        host_ns: 4,
        dev_cyc: u64::MAX,
        dev_freq: 50_000_000,
        half_ns: 31,
    });
    assert_eq!(parse_device_anchor(record.as_bytes()), expected);
    for end in 0..record.len() {
        assert_eq!(parse_device_anchor(&record.as_bytes()[..end]), None, "cut to {end}");
    }
    for tail in [" \n", "\r\n", "\x1b[0m\n"] {
        assert_eq!(parse_device_anchor(record.replace('\n', tail).as_bytes()), expected, "{tail:?}");
    }
    for (from, to) in [
        ("[TIMING]", "[INFO]"),
        ("clock.anchor:", "clock_anchor:"),
        ("v=1", "v=2"),
        ("host_ns=4", "host_ns=9223372036854775808"),
        ("host_ns=4", "host_ns=-4"),
        ("dev_freq=50000000", "dev_freq=0"),
        ("dev_cyc=18446744073709551615", "dev_cyc=18446744073709551616"),
        (" half_ns=31", ""),
        ("\n", " more=1\n"),
    ] {
        assert_eq!(parse_device_anchor(record.replacen(from, to, 1).as_bytes()), None, "{from} → {to}");
    }
    assert_eq!(parse_clock_anchor(record.as_bytes()), None);
}

#[test]
fn an_anchor_needs_its_own_whole_envelope() {
    let record =
        "[mono_ns=5][T0x7f][TIMING] clock_anchor: [CLOCK_ANCHOR] v=1 pid=42 mono_ns=4 wall_ns=1790\n";
    let expected = Some(ClockAnchor { pid: 42, mono_ns: 4, wall_ns: 1_790 });
    assert_eq!(parse_clock_anchor(record.as_bytes()), expected);
    for end in 0..record.len() {
        assert_eq!(parse_clock_anchor(&record.as_bytes()[..end]), None, "cut to {end}");
    }
    for tail in [" \r\n", "\t\n", "\x1b[0m\n", "\x1b[1;32m\x1b[m\n"] {
        assert_eq!(parse_clock_anchor(record.replace('\n', tail).as_bytes()), expected, "{tail:?}");
    }
    for (from, to) in [
        ("TIMING", "INFO"),
        ("clock_anchor:", "poll:"),
        ("clock_anchor: ", "clock_anchor: [x.rs:7] "),
        ("v=1", "v=2"),
        ("pid=42", "pid=x"),
        ("wall_ns=1790", "wall_ns=9223372036854775808"),
        ("\n", "[mono_ns=1]\n"),
        ("\n", " half_ns=3\n"),
        ("\n", "\x1b[0\n"),
    ] {
        assert_eq!(parse_clock_anchor(record.replacen(from, to, 1).as_bytes()), None, "{from} → {to}");
    }
}

#[test]
fn a_drop_report_counts_wherever_it_stands_and_however_it_ends() {
    let report = "[HOSTLOG_DROPS] v=1 pid=41 new=2 total=10 queue_full=6 claim_exhausted=1 output_failed=1 \
                  not_admitted=2";
    let expected = Some(DropReport { pid: 41, new: 2, total: 10, by_reason: [6, 1, 1, 2] });
    for tail in ["", "\n", "' in text", "[mono_ns=1]", "\x1b[0m\n"] {
        assert_eq!(parse_drop_report(format!("{report}{tail}").as_bytes()), expected, "{tail:?}");
    }
    for end in 0..report.len() {
        assert_eq!(parse_drop_report(&report.as_bytes()[..end]), None, "cut to {end}");
    }
    for (from, to) in [("v=1", "v=2"), ("v=1", "v=12"), (" pid", "pid"), ("=10", "=99999999999999999999")] {
        assert_eq!(parse_drop_report(report.replacen(from, to, 1).as_bytes()), None, "{from} → {to}");
    }
}

#[test]
fn escapes_are_decoded_once_and_byte_by_byte() {
    for (encoded, raw) in [
        ("ext.app.load%5Btable%5D", &b"ext.app.load[table]"[..]),
        ("%E2%82%AC", "\u{20ac}".as_bytes()),
        ("%2541", b"%41"),
        ("%2525%0a%0A", b"%25\n\n"),
        ("100%", b"100%"),
        ("%4", b"%4"),
        ("%zz%%41", b"%zz%A"),
        ("", b""),
    ] {
        assert_eq!(percent_decode(encoded.as_bytes()).collect::<Vec<u8>>(), raw, "{encoded}");
    }
}

#[test]
fn only_a_mark_at_the_end_is_a_truncation() {
    assert!(is_truncated_field(b"run_id=7 slot_id=1~"));
    assert!(is_truncated_field(b"~"));
    assert!(!is_truncated_field(b"note=x~y"));
    assert!(!is_truncated_field(b""));
}

#[test]
fn a_host_identity_needs_its_own_whole_envelope_and_all_its_digits() {
    let record = "[mono_ns=5][T0x7f][TIMING] host.identity: [HOST_IDENTITY] v=1 pid=42 host=00000000000000b7 name=n%207\n";
    let expected = Some(RawHostIdentity { pid: 42, host: 0xb7, name: b"n%207" });
    assert_eq!(parse_host_identity(record.as_bytes()), expected);
    for end in 0..record.len() {
        assert_eq!(parse_host_identity(&record.as_bytes()[..end]), None, "cut to {end}");
    }
    for tail in [" \r\n", "\t\n", "\x1b[0m\n"] {
        assert_eq!(parse_host_identity(record.replace('\n', tail).as_bytes()), expected, "{tail:?}");
    }
    for (from, to) in [
        ("TIMING", "INFO"),
        ("host.identity:", "clock_anchor:"),
        ("v=1", "v=2"),
        ("pid=42", "pid=x"),
        ("host=0", "host="),
        ("host=0", "host=00"),
        ("host=0", "host=g"),
        (" name=n%207", ""),
        ("name=n%207", "name="),
        ("\n", "[mono_ns=1]\n"),
        ("\n", " more=1\n"),
    ] {
        assert_eq!(parse_host_identity(record.replacen(from, to, 1).as_bytes()), None, "{from} → {to}");
    }
}

#[test]
fn a_record_of_another_version_is_read_as_one_of_version_1_by_whoever_asks() {
    let of = |version: &str| {
        format!("[STRACE] v={version} pid=1 tid=2 inv=3 hid=aB depth=0 name=x ts=4 dur=5 k=v\n")
    };
    let first = of("1");
    let one = span(first.as_bytes());
    for version in [0, 1, 2, u64::MAX] {
        assert_eq!(parse_span_of_any_version(of(&version.to_string()).as_bytes()), Some((version, one)));
    }
    // A version beyond 64 bits, other fields, a cut, and the marker alone.
    for none in [&of("99999999999999999999"), "[STRACE] v=2 whatever\n", &of("2")[..40], "[STRACE] word\n"] {
        assert_eq!(parse_span_of_any_version(none.as_bytes()), None, "{none}");
    }
}
