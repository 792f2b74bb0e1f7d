//! Records byte for byte: what any other encoder of this grammar must write for the same fields.

#![allow(clippy::unwrap_used, reason = "clippy does not take the functions beside the tests for tests")]

use simpler_log_abi::Level;
use simpler_record_format::{
    ATTRS_BYTES, ClockAnchor, DEVICE_ANCHOR_FUNC, DeviceClockAnchor, DropReport, Envelope, HostIdentity,
    Location, NAME_BYTES, RECORD_BYTES, SpanFields, encode_clock_anchor, encode_drop_report,
    encode_host_identity, encode_span, encode_text,
};

const LOAD: Envelope<'static> =
    Envelope { mono_ns: 88_400_000_000_000, thread: 0x7f00_2900_a740, level: Level::Info, func: "load" };

const ROOT: SpanFields<'static> = SpanFields {
    pid: 41,
    tid: 43,
    inv: 1,
    hid: 0xb7e2_c044_10d9_5f6e,
    depth: 0,
    name: b"simpler_run",
    ts: 88_400_000_000_000,
    dur: 5_000,
    attrs: b"",
};

fn text(envelope: &Envelope<'_>, location: Option<Location<'_>>, body: &str) -> Vec<u8> {
    let mut out = [0xAA; RECORD_BYTES];
    let len = encode_text(&mut out, envelope, location, format_args!("{body}"));
    out[..len].to_vec()
}

fn span(fields: &SpanFields<'_>) -> Vec<u8> {
    let mut out = [0xAA; RECORD_BYTES];
    let len = encode_span(&mut out, 88_400_000_005_000, 0x7f00_2900_a740, fields);
    out[..len].to_vec()
}

#[track_caller]
fn assert_record(found: &[u8], expected: &[u8]) {
    assert_eq!(String::from_utf8_lossy(found), String::from_utf8_lossy(expected));
    assert_eq!(found, expected);
}

/// The field of `record` that stands between `key` and `end`.
fn between<'a>(record: &'a [u8], key: &str, end: &str) -> &'a str {
    let record = std::str::from_utf8(record).unwrap();
    let from = record.find(key).unwrap() + key.len();
    &record[from..from + record[from..].find(end).unwrap()]
}

#[test]
fn text_up_to_512_bytes_is_whole_and_longer_text_is_cut_and_marked() {
    let location = Some(Location { file: "weights.rs", line: 77 });
    let digits = "0123456789".repeat(60);
    let empty_body = text(&LOAD, location, "").len();
    for (bytes, expected) in [
        (511, &include_bytes!("data/text-511.log")[..]),
        (512, include_bytes!("data/text-512.log")),
        (513, include_bytes!("data/text-513.log")),
        (514, include_bytes!("data/text-514.log")),
    ] {
        let found = text(&LOAD, location, &digits[..bytes - empty_body]);
        assert_record(&found, expected);
        assert_eq!(found.len(), bytes.min(512));
    }
}

#[test]
fn text_of_every_level_carries_its_name() {
    for (level, name) in [
        (Level::Debug, "DEBUG"),
        (Level::Info, "INFO"),
        (Level::Timing, "TIMING"),
        (Level::Warn, "WARN"),
        (Level::Error, "ERROR"),
    ] {
        let found = text(&Envelope { mono_ns: 7, thread: 0xab, level, func: "f" }, None, "x");
        assert_record(&found, format!("[mono_ns=7][T0xab][{name}] f: x\n").as_bytes());
    }
}

#[test]
fn text_is_one_line_whatever_its_body_holds() {
    let head = "[mono_ns=88400000000000][T0x7f002900a740][INFO] load: ";
    for (body, expected) in [
        ("", ""),
        ("\n", ""),
        ("done\n", "done"),
        ("done\n\n", "done\\n"),
        ("a\nb", "a\\nb"),
        ("a\r\nb\r\n", "a\\r\\nb\\r"),
        ("\n\nx", "\\n\\nx"),
        ("\u{20ac}%[]", "\u{20ac}%[]"),
    ] {
        assert_record(&text(&LOAD, None, body), format!("{head}{expected}\n").as_bytes());
    }
}

#[test]
fn text_written_in_pieces_is_the_same_as_in_one() {
    let mut out = [0; RECORD_BYTES];
    let len = encode_text(&mut out, &LOAD, None, format_args!("{}{}{}", "a\n", "", "\nb\n"));
    assert_record(&out[..len], &text(&LOAD, None, "a\n\nb\n"));
}

#[test]
fn text_in_front_of_the_body_cannot_break_the_envelope() {
    let found = text(&Envelope { func: "a::b\nc", ..LOAD }, Some(Location { file: "x\r.rs", line: 0 }), "y");
    assert_record(&found, b"[mono_ns=88400000000000][T0x7f002900a740][INFO] a..b c: [x .rs:0] y\n");
}

#[test]
fn text_with_an_endless_function_name_is_cut_like_any_other() {
    let found = text(&Envelope { func: &"f".repeat(5000), ..LOAD }, None, "never seen");
    assert_eq!(found.len(), RECORD_BYTES);
    assert!(found.ends_with(b"f~\n"));
}

#[test]
fn text_whose_display_fails_is_marked_as_cut() {
    struct Fails;
    impl std::fmt::Display for Fails {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("half")?;
            Err(std::fmt::Error)
        }
    }
    let mut out = [0; RECORD_BYTES];
    let len = encode_text(&mut out, &LOAD, None, format_args!("{Fails} and more"));
    assert!(out[..len].ends_with(b": half~\n"));
}

#[test]
fn span_without_attributes_ends_in_a_space() {
    assert_record(
        &span(&ROOT),
        b"[mono_ns=88400000005000][T0x7f002900a740][TIMING] emit_host_span: [STRACE] v=1 pid=41 tid=43 inv=1 \
          hid=b7e2c04410d95f6e depth=0 name=simpler_run ts=88400000000000 dur=5000 \n",
    );
}

#[test]
fn span_with_attributes_keeps_their_blanks_and_equal_signs() {
    assert_record(
        &span(&SpanFields {
            depth: 3,
            name: b"simpler_run.runner_run.device_wall.orch",
            ts: 0,
            dur: 0,
            attrs: b"clk=dev org_cyc=12 empty=",
            ..ROOT
        }),
        b"[mono_ns=88400000005000][T0x7f002900a740][TIMING] emit_host_span: [STRACE] v=1 pid=41 tid=43 inv=1 \
          hid=b7e2c04410d95f6e depth=3 name=simpler_run.runner_run.device_wall.orch ts=0 dur=0 clk=dev \
          org_cyc=12 empty=\n",
    );
}

#[test]
fn span_escapes_what_the_grammar_needs() {
    let found = span(&SpanFields {
        name: b"bad name\n[STRACE]=x%\x7f\xe9~",
        attrs: b"note=a b \t[50%]\r\xff~",
        ..ROOT
    });
    assert_eq!(between(&found, "name=", " ts="), "bad%20name%0A%5BSTRACE%5D%3Dx%25%7F%E9~");
    assert_eq!(between(&found, "dur=5000 ", "\n"), "note=a b %09%5B50%25%5D%0D%FF~");
}

#[test]
fn span_with_an_empty_name_gets_the_mark_of_a_cut_one() {
    assert_eq!(between(&span(&SpanFields { name: b"", ..ROOT }), "name=", " ts="), "~");
}

#[test]
fn span_fields_are_cut_in_whole_units() {
    let n = |count: usize| "n".repeat(count);
    for (raw, expected) in [
        (n(63), n(63)),
        (n(64), n(64)),
        // One byte too many takes the place of the last.
        (n(65), n(63) + "~"),
        (n(500), n(63) + "~"),
        // An escape that just fits, and then one that would end behind the bound.
        (n(61) + "%", n(61) + "%25"),
        (n(62) + "%", n(62) + "~"),
        (n(63) + "%", n(63) + "~"),
        // A full field gives up its last unit whole.
        (n(61) + "%n", n(61) + "~"),
        ("%".repeat(21) + "n", "%25".repeat(21) + "n"),
        ("%".repeat(21) + "nn", "%25".repeat(21) + "~"),
        ("%".repeat(22), "%25".repeat(21) + "~"),
    ] {
        let found = span(&SpanFields { name: raw.as_bytes(), ..ROOT });
        assert_eq!(between(&found, "name=", " ts="), expected, "name {raw}");
        assert!(expected.len() <= NAME_BYTES);

        // The attributes follow the same rule at their own bound.
        let (raw, expected) = (n(ATTRS_BYTES - NAME_BYTES) + &raw, n(ATTRS_BYTES - NAME_BYTES) + &expected);
        let found = span(&SpanFields { attrs: raw.as_bytes(), ..ROOT });
        assert_eq!(between(&found, "dur=5000 ", "\n"), expected, "attributes {raw}");
    }
}

#[test]
fn span_of_the_widest_values_still_fits() {
    let found = span(&SpanFields {
        pid: i32::MIN,
        tid: i64::MIN,
        inv: u64::MAX,
        hid: u64::MAX,
        depth: i32::MIN,
        name: &[b'n'; NAME_BYTES],
        ts: i64::MIN,
        dur: i64::MIN,
        attrs: &[b'a'; ATTRS_BYTES],
    });
    let expected = format!(
        "[mono_ns=88400000005000][T0x7f002900a740][TIMING] emit_host_span: [STRACE] v=1 pid=-2147483648 \
         tid=-9223372036854775808 inv=18446744073709551615 hid=ffffffffffffffff depth=-2147483648 name={} \
         ts=-9223372036854775808 dur=-9223372036854775808 {}\n",
        "n".repeat(64),
        "a".repeat(192)
    );
    assert_record(&found, expected.as_bytes());
}

#[test]
fn a_device_clock_anchor_is_a_timing_record_of_its_own_function() {
    let mut out = [0; RECORD_BYTES];
    let anchor = DeviceClockAnchor {
        pid: 41,
        inv: 7,
        host_ns: 88_400_000_000_000,
        dev_cyc: u64::MAX,
        dev_freq: 50_000_000,
        half_ns: 31,
    };
    let envelope = Envelope {
        mono_ns: 88_400_000_000_001,
        thread: 0x7f,
        level: Level::Timing,
        func: DEVICE_ANCHOR_FUNC,
    };
    let len = encode_text(&mut out, &envelope, None, format_args!("{anchor}"));
    assert_eq!(
        String::from_utf8_lossy(&out[..len]),
        "[mono_ns=88400000000001][T0x7f][TIMING] clock.anchor: [DEV_CLOCK_ANCHOR] v=1 pid=41 inv=7 \
         host_ns=88400000000000 dev_cyc=18446744073709551615 dev_freq=50000000 half_ns=31\n"
    );
}

#[test]
fn clock_anchor_is_a_timing_record() {
    let mut out = [0; RECORD_BYTES];
    let anchor = ClockAnchor { pid: 41, mono_ns: 88_400_000_000_000, wall_ns: 1_790_000_000_000_000_000 };
    let len = encode_clock_anchor(&mut out, 88_400_000_000_001, 0x7f, &anchor);
    assert_record(
        &out[..len],
        b"[mono_ns=88400000000001][T0x7f][TIMING] clock_anchor: [CLOCK_ANCHOR] v=1 pid=41 \
          mono_ns=88400000000000 wall_ns=1790000000000000000\n",
    );
}

#[test]
fn a_host_identity_is_a_timing_record_with_an_escaped_name() {
    let mut out = [0; RECORD_BYTES];
    let long = "h".repeat(70);
    for (host, name, expected) in [
        (0xb7e2, "node-7.cluster", "host=000000000000b7e2 name=node-7.cluster"),
        (u64::MAX, "a b=c", "host=ffffffffffffffff name=a%20b%3Dc"),
        (0, "", "host=0000000000000000 name=~"),
        (1, long.as_str(), &format!("host=0000000000000001 name={}~", &long[..63])),
    ] {
        let identity = HostIdentity { pid: 41, host, name: name.as_bytes() };
        let len = encode_host_identity(&mut out, 88_400_000_000_001, 0x7f, &identity);
        let expected = format!(
            "[mono_ns=88400000000001][T0x7f][TIMING] host.identity: [HOST_IDENTITY] v=1 pid=41 {expected}\n"
        );
        assert_record(&out[..len], expected.as_bytes());
    }
}

#[test]
fn drop_report_is_an_error_record() {
    let mut out = [0; RECORD_BYTES];
    let report = DropReport { pid: 1234, new: 3, total: 14, by_reason: [5, 4, 3, 2] };
    let len = encode_drop_report(&mut out, 1, 2, &report);
    assert_record(
        &out[..len],
        b"[mono_ns=1][T0x2][ERROR] host_log_drops: [HOSTLOG_DROPS] v=1 pid=1234 new=3 total=14 queue_full=5 \
          claim_exhausted=4 output_failed=3 not_admitted=2\n",
    );
}

#[test]
fn drop_report_of_the_widest_values_still_fits() {
    let mut out = [0; RECORD_BYTES];
    let report = DropReport { pid: u64::MAX, new: u64::MAX, total: u64::MAX, by_reason: [u64::MAX; 4] };
    let len = encode_drop_report(&mut out, i64::MIN, u64::MAX, &report);
    assert!(out[..len].ends_with(b" not_admitted=18446744073709551615\n"));
}
