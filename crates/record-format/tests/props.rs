//! Properties of the grammar over all fields, not only those that somebody thought of.

#![allow(clippy::unwrap_used, reason = "clippy does not take the functions beside the tests for tests")]

mod reference;

use proptest::collection::vec;
use proptest::prelude::*;
use simpler_log_abi::Level;
use simpler_record_format::{
    ClockAnchor, DropReport, Envelope, HostIdentity, Input, RECORD_BYTES, SpanFields, SpanParse,
    encode_clock_anchor, encode_drop_report, encode_host_identity, encode_span, encode_text,
    is_truncated_field, parse_clock_anchor, parse_decimal, parse_drop_report, parse_envelope, parse_hex,
    parse_host_identity, parse_i63, parse_span, percent_decode,
};

fn newlines(record: &[u8]) -> usize {
    record.iter().filter(|b| **b == b'\n').count()
}

/// Bytes of names and attributes: mostly those that occur, with those that need care among them.
fn field_bytes(bytes_max: usize) -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        8 => b'a'..=b'z',
        2 => prop::sample::select(b"._=0123456789~ ".to_vec()),
        1 => prop::sample::select(b"%[]\n\r\t\0\x7f".to_vec()),
        1 => any::<u8>(),
    ];
    vec(byte, 0..bytes_max)
}

/// Numbers of every length rather than nearly always the longest.
fn number() -> impl Strategy<Value = u64> {
    (any::<u64>(), 0_u32..64).prop_map(|(value, shift)| value >> shift)
}

/// Lines that begin as a record does and then lose, gain or repeat something.
fn damaged_record() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(&b"[STRACE] v=1 pid=1 tid=2 inv=3 hid=4f depth=5 name=n.m ts=6 dur=7"[..]),
        Just(&b"[mono_ns=1][T0x2][TIMING] emit_host_span: "[..]),
        Just(&b"[mono_ns=1][T0x2][TIMING] clock_anchor: [CLOCK_ANCHOR] v=1 pid=3 mono_ns=4 wall_ns=5"[..]),
        Just(&b"[mono_ns=1][T0x2][TIMING] clock.anchor: [DEV_CLOCK_ANCHOR] v=1 pid=3 inv=4 host_ns=5 "[..]),
        Just(&b"dev_cyc=6 dev_freq=7 half_ns=8"[..]),
        Just(&b"[HOSTLOG_DROPS] v=1 pid=1 new=2 total=3 queue_full=4 claim_exhausted=5 output_failed=6 not_admitted=7"[..]),
        prop::sample::select(vec![&b" a=1"[..], b"[STRACE] v=12 x\n", b" clk=dev", b"\n", b"\r\n", b" ", b"~", b"\0\0", b"\x1b[0m", b"'", b"[", b"99999999999999999999"]),
    ];
    (vec(piece, 1..6), vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..3)).prop_map(
        |(pieces, cuts)| {
            let mut bytes = pieces.concat();
            for (from, len) in cuts {
                let from = from.index(bytes.len());
                let len = len.index(bytes.len() - from);
                bytes.drain(from..from + len.min(12));
            }
            bytes
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, ..ProptestConfig::default() })]

    #[test]
    fn span_records_give_their_fields_back(
        pid in 0..=i32::MAX,
        tid in 0..=i64::MAX,
        inv in number(),
        hid in number(),
        depth in 0..=i32::MAX,
        name in field_bytes(20).prop_filter("a name", |name| !name.is_empty()),
        ts in number().prop_map(|n| (n >> 1) as i64),
        dur in number().prop_map(|n| (n >> 1) as i64),
        attrs in field_bytes(63),
        mono_ns in 0..=i64::MAX,
        thread in number(),
    ) {
        let fields = SpanFields { pid, tid, inv, hid, depth, name: &name, ts, dur, attrs: &attrs };
        let mut out = [0; RECORD_BYTES];
        let len = encode_span(&mut out, mono_ns, thread, &fields);
        prop_assert_eq!(newlines(&out[..len]), 1);

        let (envelope, body) = parse_envelope(&out[..len]).unwrap();
        prop_assert_eq!((envelope.mono_ns, envelope.thread), (mono_ns, thread));
        prop_assert_eq!((envelope.level, envelope.func), (Level::Timing, &b"emit_host_span"[..]));
        let SpanParse::Span(read, read_len) = parse_span(body, Input::Whole) else {
            return Err(TestCaseError::fail(format!("{:?}", parse_span(body, Input::Whole))));
        };
        prop_assert_eq!(read_len, body.len() - 1);
        prop_assert_eq!((read.pid, read.tid), (pid as u64, tid as u64));
        prop_assert_eq!((read.inv, read.hid, read.depth), (inv, hid, depth as u32));
        prop_assert_eq!((read.ts, read.dur), (ts, dur));
        prop_assert_eq!(percent_decode(read.name).collect::<Vec<u8>>(), name);
        let stripped: &[u8] = {
            let mut rest = &attrs[..];
            while let [b' ', inner @ ..] | [inner @ .., b' '] = rest {
                rest = inner;
            }
            rest
        };
        prop_assert_eq!(percent_decode(read.attrs).collect::<Vec<u8>>(), stripped);
    }

    #[test]
    fn spans_are_encoded_as_the_reference_does_directly_and_through_a_frame(
        pid: i32, tid: i64, inv in number(), hid in number(), depth: i32, ts: i64, dur: i64,
        name in field_bytes(90), attrs in field_bytes(250), mono_ns: i64, thread in number(),
    ) {
        let fields = SpanFields { pid, tid, inv, hid, depth, name: &name, ts, dur, attrs: &attrs };
        reference::check_span_encoding(mono_ns, thread, &fields);
    }

    #[test]
    fn a_cut_field_never_ends_within_an_escape(name in vec(any::<u8>(), 0..130)) {
        let fields = SpanFields {
            pid: 1, tid: 1, inv: 1, hid: 1, depth: 0, name: &name, ts: 0, dur: 0, attrs: &name,
        };
        let mut out = [0; RECORD_BYTES];
        let len = encode_span(&mut out, 0, 0, &fields);
        let (_, body) = parse_envelope(&out[..len]).unwrap();
        let SpanParse::Span(read, _) = parse_span(body, Input::Whole) else { panic!() };
        for (encoded, bytes_max) in [(read.name, 64), (read.attrs, 192)] {
            prop_assert!(encoded.len() <= bytes_max);
            for (at, _) in encoded.iter().enumerate().filter(|(_, b)| **b == b'%') {
                let digits = encoded.get(at + 1..at + 3);
                prop_assert!(digits.is_some_and(|d| parse_hex(d).is_some()), "{:?}", encoded);
            }
            let raw: Vec<u8> = percent_decode(encoded).collect();
            if let Some(kept) = raw.strip_suffix(b"~").filter(|_| is_truncated_field(encoded)) {
                // What is left of a cut field is what it began with.
                prop_assert!(name.is_empty() || name.trim_ascii().starts_with(kept.trim_ascii()));
            }
        }
    }

    #[test]
    fn text_records_are_one_line_as_the_reference_writes_them(
        mono_ns: i64, thread in number(), level in prop::sample::select(Level::ALL.to_vec()),
        func in "[a-z:\n]{0,12}", body in "([a-z ]{0,200}|[\n\r]|\\PC){0,12}",
    ) {
        let envelope = Envelope { mono_ns, thread, level, func: &func };
        let mut out = [0; RECORD_BYTES];
        let len = encode_text(&mut out, &envelope, None, format_args!("{body}"));
        reference::assert_line(&out[..len]);
        prop_assert_eq!(newlines(&out[..len]), 1);
        prop_assert_eq!(&out[..len], reference::text_record(&envelope, &body));
    }

    #[test]
    fn anchors_and_drop_reports_give_their_fields_back(
        pid in number(), mono_ns in 0..=i64::MAX, wall_ns in 0..=i64::MAX, thread in number(),
        new in number(), total in number(), by_reason in [number(), number(), number(), number()],
    ) {
        let anchor = ClockAnchor { pid, mono_ns, wall_ns };
        let mut out = [0; RECORD_BYTES];
        let len = encode_clock_anchor(&mut out, mono_ns, thread, &anchor);
        prop_assert_eq!(newlines(&out[..len]), 1);
        prop_assert_eq!(parse_clock_anchor(&out[..len]), Some(anchor));

        let name = new.to_le_bytes();
        let identity = HostIdentity { pid, host: total, name: &name };
        let len = encode_host_identity(&mut out, mono_ns, thread, &identity);
        prop_assert_eq!(newlines(&out[..len]), 1);
        let read = parse_host_identity(&out[..len]).unwrap();
        prop_assert_eq!((read.pid, read.host), (pid, total));
        prop_assert_eq!(percent_decode(read.name).collect::<Vec<_>>(), name);

        let report = DropReport { pid, new, total, by_reason };
        let len = encode_drop_report(&mut out, mono_ns, thread, &report);
        prop_assert_eq!(newlines(&out[..len]), 1);
        let (envelope, body) = parse_envelope(&out[..len]).unwrap();
        prop_assert_eq!((envelope.level, envelope.func), (Level::Error, &b"host_log_drops"[..]));
        prop_assert_eq!(parse_drop_report(body), Some(report));
    }

    #[test]
    fn damaged_records_are_judged_as_the_reference_does(bytes in damaged_record()) {
        reference::check_decode(&bytes);
    }

    #[test]
    fn more_input_changes_no_verdict(bytes in damaged_record(), end in any::<prop::sample::Index>()) {
        let early = parse_span(&bytes[..end.index(bytes.len() + 1)], Input::Partial);
        if early != SpanParse::Incomplete {
            prop_assert_eq!(early, parse_span(&bytes, Input::Whole));
        }
    }

    #[test]
    fn any_bytes_are_decoded_and_rendered(bytes in vec(any::<u8>(), 0..600)) {
        reference::check_decode(&bytes);
        reference::check_render(&bytes);
    }

    #[test]
    fn numbers_are_read_as_std_reads_them(
        text in prop_oneof!["[0-9]{0,22}", "[0-9a-fA-F]{0,18}", "[+-]?[0-9]{1,3}[ x.]?", number().prop_map(|n| n.to_string())],
    ) {
        let unsigned = Some(&text).filter(|text| !text.starts_with('+'));
        prop_assert_eq!(parse_decimal(text.as_bytes()), unsigned.and_then(|t| t.parse().ok()));
        prop_assert_eq!(parse_hex(text.as_bytes()), unsigned.and_then(|t| u64::from_str_radix(t, 16).ok()));
        prop_assert_eq!(
            parse_i63(text.as_bytes()),
            unsigned.and_then(|t| t.parse().ok()).filter(|n| *n >= 0 && !text.starts_with('-'))
        );
    }
}
