//! A second opinion on the grammar, slow and plain: formatting by `format!`, numbers by `str::parse`, records
//! by cutting up lines. The property tests, the corpus replay and the fuzz targets hold the crate against it.

#![allow(clippy::unwrap_used, reason = "clippy does not take the functions beside the tests for tests")]

use simpler_log_abi::Level;
use std::fmt::Write as _;

use simpler_record_format::frame::{
    FIRST_TEXT_BYTE, SPAN_FRAME, SPAN_TICKS_FRAME, TEXT_FRAME, TextFrame, encode_span_frame, render,
};
use simpler_record_format::{
    ATTRS_BYTES, CLOCK_ANCHOR_MARKER, DEVICE_ANCHOR_FUNC, DEVICE_ANCHOR_MARKER, DROP_REPORT_MARKER,
    ENVELOPE_START, Envelope, HOST_IDENTITY_MARKER, HostIdentity, Input, NAME_BYTES, RECORD_BYTES,
    RawEnvelope, SPAN_MARKER, SPAN_WINDOW_BYTES, SpanFields, SpanParse, encode_clock_anchor,
    encode_drop_report, encode_host_identity, encode_span, encode_text, parse_clock_anchor,
    parse_device_anchor, parse_drop_report, parse_envelope, parse_host_identity, parse_span, percent_decode,
};

/// A complete span record: its numbers, name and attributes, and its length from the marker on.
#[derive(Debug, PartialEq)]
pub(crate) struct Span<'a> {
    pub(crate) numbers: [u64; 7],
    pub(crate) name: &'a [u8],
    pub(crate) attrs: &'a [u8],
    pub(crate) len: usize,
}

/// The span record at the start of `bytes`, if there is a complete one of version 1.
pub(crate) fn span(bytes: &[u8]) -> Option<Span<'_>> {
    let window = &bytes[..bytes.len().min(SPAN_WINDOW_BYTES)];
    let body_at = window.starts_with(SPAN_MARKER).then_some(SPAN_MARKER.len())?;
    let end = (body_at..window.len()).find(|at| {
        let rest = &window[*at..];
        rest[0] == b'\n'
            || rest[0] == b'\r'
            || rest.starts_with(SPAN_MARKER)
            || rest.starts_with(ENVELOPE_START)
    });
    let end = end.or((bytes.len() >= SPAN_WINDOW_BYTES).then_some(window.len()))?;
    let line_ends = matches!(window.get(end), Some(b'\n' | b'\r'));

    let mut rest = &window[body_at..end];
    let mut numbers = Vec::new();
    let mut name = &[][..];
    for key in ["v=", "pid=", "tid=", "inv=", "hid=", "depth=", "name=", "ts=", "dur="] {
        let token_at = rest.iter().position(|b| !b" \t\x0b\x0c".contains(b)).filter(|at| *at > 0)?;
        rest = &rest[token_at..];
        let token_end = rest.iter().position(|b| b" \t\x0b\x0c".contains(b));
        if token_end.is_none() && !(key == "dur=" && line_ends) {
            return None;
        }
        let (token, behind) = rest.split_at(token_end.unwrap_or(rest.len()));
        rest = behind;
        let value = token.strip_prefix(key.as_bytes())?;
        if key == "name=" {
            name = value;
            continue;
        }
        let text = std::str::from_utf8(value).ok().filter(|text| !text.starts_with('+'))?;
        numbers.push(if key == "hid=" { u64::from_str_radix(text, 16) } else { text.parse() }.ok()?);
    }
    let numbers: [u64; 8] = numbers.try_into().ok()?;
    let [version, pid, tid, inv, hid, depth, ts, dur] = numbers;
    let is_foreign = |b: &u8| b.is_ascii_control() && !b"\t\x0b\x0c".contains(b);
    if version != 1
        || u32::try_from(depth).is_err()
        || i64::try_from(ts).is_err()
        || i64::try_from(dur).is_err()
        || name.is_empty()
        || name.iter().any(|b| is_foreign(b) || *b == b'[')
    {
        return None;
    }
    let attrs = rest.split(is_foreign).next().unwrap_or(&[]);
    let first = attrs.iter().position(|b| !b" \t\x0b\x0c".contains(b)).unwrap_or(attrs.len());
    let last = attrs.iter().rposition(|b| !b" \t\x0b\x0c".contains(b)).map_or(first, |at| at + 1);
    Some(Span { numbers: [pid, tid, inv, hid, depth, ts, dur], name, attrs: &attrs[first..last], len: end })
}

/// Whether `bytes` begin with a head, the marker and any version, within the window.
pub(crate) fn is_head(bytes: &[u8]) -> bool {
    let window = &bytes[..bytes.len().min(SPAN_WINDOW_BYTES)];
    let Some(rest) = window.strip_prefix(SPAN_MARKER) else { return false };
    let blanks = rest.iter().take_while(|b| b" \t\x0b\x0c".contains(b)).count();
    let Some(rest) = rest[blanks..].strip_prefix(b"v=") else { return false };
    blanks > 0 && rest.first().is_some_and(u8::is_ascii_digit)
}

/// `raw` encoded and cut to `bytes_max`, unit by unit.
pub(crate) fn escape(raw: &[u8], extra_literals: &str, bytes_max: usize) -> String {
    let mut units: Vec<String> = raw
        .iter()
        .map(|b| match char::from(*b) {
            c if c.is_ascii_graphic() && !"%[]=".contains(c) || extra_literals.contains(c) => c.to_string(),
            _ => format!("%{b:02X}"),
        })
        .collect();
    if units.concat().len() > bytes_max {
        while units.concat().len() >= bytes_max {
            units.pop();
        }
        units.push("~".to_owned());
    }
    units.concat()
}

/// The record of a span.
pub(crate) fn span_record(mono_ns: i64, thread: u64, span: &SpanFields<'_>) -> Vec<u8> {
    let SpanFields { pid, tid, inv, hid, depth, name, ts, dur, attrs } = *span;
    let name = if name.is_empty() { "~".to_owned() } else { escape(name, "", NAME_BYTES) };
    let attrs = escape(attrs, " =", ATTRS_BYTES);
    format!(
        "[mono_ns={mono_ns}][T0x{thread:x}][TIMING] emit_host_span: [STRACE] v=1 pid={pid} tid={tid} \
         inv={inv} hid={hid:x} depth={depth} name={name} ts={ts} dur={dur} {attrs}\n"
    )
    .into_bytes()
}

/// The record of a text.
pub(crate) fn text_record(envelope: &Envelope<'_>, body: &str) -> Vec<u8> {
    let Envelope { mono_ns, thread, level, func } = envelope;
    let level = level.name();
    let func = func.replace(':', ".").replace(['\n', '\r'], " ");
    let body = body.strip_suffix('\n').unwrap_or(body).replace('\n', "\\n").replace('\r', "\\r");
    let mut record = format!("[mono_ns={mono_ns}][T0x{thread:x}][{level}] {func}: {body}\n").into_bytes();
    if record.len() > RECORD_BYTES {
        record.truncate(RECORD_BYTES - 2);
        record.extend_from_slice(b"~\n");
    }
    record
}

/// Holds every parser against the reference at the start of `bytes` and at every bracket in them.
pub(crate) fn check_decode(bytes: &[u8]) {
    check_decode_at(bytes);
    for at in (1..bytes.len()).filter(|at| bytes[*at] == b'[') {
        check_decode_at(&bytes[at..]);
    }
}

fn check_decode_at(bytes: &[u8]) {
    check_span(bytes);
    if bytes.starts_with(ENVELOPE_START) {
        check_anchor(bytes);
    }
    if let Some(report) = parse_drop_report(bytes) {
        assert!(bytes.starts_with(DROP_REPORT_MARKER));
        let mut out = [0; RECORD_BYTES];
        let len = encode_drop_report(&mut out, 0, 0, &report);
        let (_, body) = parse_envelope(&out[..len]).unwrap();
        assert_eq!(parse_drop_report(body), Some(report));
    }
}

fn check_span(bytes: &[u8]) {
    let whole = parse_span(bytes, Input::Whole);
    let partial = parse_span(bytes, Input::Partial);
    assert!(partial == whole || partial == SpanParse::Incomplete, "{partial:?} but {whole:?}");
    assert!(bytes.len() < SPAN_WINDOW_BYTES || partial != SpanParse::Incomplete);
    assert_eq!(is_head(bytes), whole != SpanParse::NotHead, "{whole:?}");
    let SpanParse::Span(read, len) = whole else {
        assert_eq!(span(bytes), None, "refused as {whole:?}");
        return;
    };
    let numbers =
        [read.pid, read.tid, read.inv, read.hid, read.depth.into(), read.ts as u64, read.dur as u64];
    let found = Span { numbers, name: read.name, attrs: read.attrs, len };
    assert_eq!(span(bytes), Some(found));

    // What was read can be written, and is then read again.
    let (Ok(pid), Ok(tid), Ok(depth)) = (read.pid.try_into(), read.tid.try_into(), read.depth.try_into())
    else {
        return;
    };
    let name: Vec<u8> = percent_decode(read.name).collect();
    let attrs: Vec<u8> = percent_decode(read.attrs).collect();
    let fields = SpanFields {
        pid,
        tid,
        inv: read.inv,
        hid: read.hid,
        depth,
        name: &name,
        ts: read.ts,
        dur: read.dur,
        attrs: &attrs,
    };
    let mut out = [0; RECORD_BYTES];
    let len = encode_span(&mut out, 0, 0, &fields);
    let (_, body) = parse_envelope(&out[..len]).unwrap();
    let SpanParse::Span(again, _) = parse_span(body, Input::Whole) else { panic!("{fields:?}") };
    assert_eq!((again.pid, again.tid, again.inv, again.hid), (read.pid, read.tid, read.inv, read.hid));
    assert_eq!((again.depth, again.ts, again.dur), (read.depth, read.ts, read.dur));
    assert_eq!(again.name, escape(&name, "", NAME_BYTES).as_bytes());
}

fn check_anchor(bytes: &[u8]) {
    if let Some(anchor) = parse_device_anchor(bytes) {
        let (envelope, body) = parse_envelope(bytes).unwrap();
        assert!(body.starts_with(DEVICE_ANCHOR_MARKER));
        let mut out = [0; RECORD_BYTES];
        let RawEnvelope { mono_ns, thread, level, .. } = envelope;
        let envelope = Envelope { mono_ns, thread, level, func: DEVICE_ANCHOR_FUNC };
        let len = encode_text(&mut out, &envelope, None, format_args!("{anchor}"));
        assert_eq!(parse_device_anchor(&out[..len]), Some(anchor));
    }
    if let Some(identity) = parse_host_identity(bytes) {
        let (envelope, body) = parse_envelope(bytes).unwrap();
        assert!(body.starts_with(HOST_IDENTITY_MARKER));
        let name: Vec<u8> = percent_decode(identity.name).collect();
        let mut out = [0; RECORD_BYTES];
        let again = HostIdentity { pid: identity.pid, host: identity.host, name: &name };
        let len = encode_host_identity(&mut out, envelope.mono_ns, envelope.thread, &again);
        let again = parse_host_identity(&out[..len]).unwrap();
        assert_eq!((again.pid, again.host), (identity.pid, identity.host));
        assert_eq!(again.name, escape(&name, "", NAME_BYTES).as_bytes());
    }
    let Some(anchor) = parse_clock_anchor(bytes) else { return };
    let (envelope, body) = parse_envelope(bytes).unwrap();
    assert!(body.starts_with(CLOCK_ANCHOR_MARKER));
    let mut out = [0; RECORD_BYTES];
    let len = encode_clock_anchor(&mut out, envelope.mono_ns, envelope.thread, &anchor);
    assert_eq!(parse_clock_anchor(&out[..len]), Some(anchor));
}

/// Renders `bytes` as they stand, as the fields of a span, and as the body of a text.
pub(crate) fn check_render(bytes: &[u8]) {
    let mut out = [0; RECORD_BYTES];
    let len = render(bytes, &mut out, u64::cast_signed);
    match bytes.first() {
        Some(&kind) if kind >= FIRST_TEXT_BYTE || (SPAN_FRAME..=TEXT_FRAME).contains(&kind) && len > 0 => {
            assert_line(&out[..len]);
        }
        _ => assert_eq!(len, 0),
    }

    if let Some((numbers, rest)) = bytes.split_first_chunk::<65>() {
        let word = |at: usize| u64::from_ne_bytes(numbers[8 * at..8 * at + 8].try_into().unwrap());
        let (name, attrs) = rest.split_at(usize::from(numbers[64]).min(rest.len()));
        let fields = SpanFields {
            pid: word(0) as i32,
            tid: word(1) as i64,
            inv: word(2),
            hid: word(3),
            depth: word(4) as i32,
            name,
            ts: word(5) as i64,
            dur: word(6) as i64,
            attrs,
        };
        check_span_encoding(word(7) as i64, !word(7), &fields);
    }

    let body = String::from_utf8_lossy(bytes);
    let envelope = Envelope { mono_ns: 1, thread: 2, level: Level::Info, func: "f" };
    let len = encode_text(&mut out, &envelope, None, format_args!("{body}"));
    assert_line(&out[..len]);
    assert_eq!(out[..len], text_record(&envelope, &body));
    let mut frame = TextFrame::new(envelope.level, envelope.func, None);
    write!(frame, "{body}").unwrap();
    let len = render(frame.finish(envelope.mono_ns, false, envelope.thread), &mut out, |_| unreachable!());
    assert_eq!(out[..len], text_record(&envelope, &body));
}

/// Encodes a span directly and through a frame and compares both with the reference.
pub(crate) fn check_span_encoding(mono_ns: i64, thread: u64, fields: &SpanFields<'_>) {
    let expected = span_record(mono_ns, thread, fields);
    let mut out = [0xAA; RECORD_BYTES];
    let len = encode_span(&mut out, mono_ns, thread, fields);
    assert_line(&out[..len]);
    assert_eq!(String::from_utf8_lossy(&out[..len]), String::from_utf8_lossy(&expected));

    let mut frame = [0xAA; RECORD_BYTES];
    let frame_len = encode_span_frame(&mut frame, mono_ns, thread, fields);
    let mut out = [0xAA; RECORD_BYTES];
    let len = render(&frame[..frame_len], &mut out, u64::cast_signed);
    assert_eq!(String::from_utf8_lossy(&out[..len]), String::from_utf8_lossy(&expected));

    // The same, its times taken from another clock.
    let end = fields.ts.saturating_add(fields.dur);
    if fields.dur >= 0 && end.checked_sub(fields.ts) == Some(fields.dur) {
        let len = encode_span_frame(&mut frame, end, thread, fields);
        frame[0] = SPAN_TICKS_FRAME;
        let len = render(&frame[..len], &mut out, u64::cast_signed);
        let expected = span_record(end, thread, fields);
        assert_eq!(String::from_utf8_lossy(&out[..len]), String::from_utf8_lossy(&expected));
    }
}

/// A record is at most 512 bytes and ends in a newline. (That it holds no other is the encoder's promise,
/// not that of a text that a slot already held.)
pub(crate) fn assert_line(record: &[u8]) {
    assert!(record.len() <= RECORD_BYTES, "{} bytes", record.len());
    assert_eq!(record.last(), Some(&b'\n'));
}
