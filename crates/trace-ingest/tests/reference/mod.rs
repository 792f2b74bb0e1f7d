//! A second opinion on what a log holds, slow and plain: the whole of it at once, byte by byte, each field cut out as
//! text and read by `str::parse`, straight from the sentences of `docs/record-grammar.md` and `docs/analyzer.md`.
//! The tests and the fuzz target hold the reader against it.

#![allow(clippy::unwrap_used, reason = "clippy does not take the functions beside the tests for tests")]

use simpler_record_format::{
    ClockAnchor, RawHostIdentity, RawSpan, RecordEnd, parse_clock_anchor, parse_device_anchor,
    parse_host_identity,
};
use simpler_trace_ingest::{Found, Keep, Options, Reading, Scanner, Source, read_with};
use simpler_trace_model::{Admission, Trace, TraceBuilder};
use std::num::NonZeroUsize;
use std::path::Path;

const SPAN: &[u8] = b"[STRACE]";
const ENVELOPE: &[u8] = b"[mono_ns=";
const DROPS: &[u8] = b"[HOSTLOG_DROPS]";

/// How far an envelope reaches at most, and a span record.
const ENVELOPE_BYTES_MAX: usize = 1024;
const SPAN_BYTES_MAX: usize = 4096;

/// One thing in a log.
#[derive(Debug)]
pub(crate) enum Seen<'a> {
    /// With its envelope's time.
    Span(RawSpan<'a>, Option<i64>),
    Anchor(ClockAnchor),
    Host(RawHostIdentity<'a>),
    /// By the name of its kind.
    Fault(&'static str),
}

/// What stands in front of a body.
struct Envelope<'a> {
    mono_ns: i64,
    func: &'a [u8],
    len: usize,
}

/// All spans, damaged ones, copies in quotes and what tells the lives of processes apart, with their offsets.
pub(crate) fn read(log: &[u8]) -> Vec<(usize, Seen<'_>)> {
    let mut seen = Vec::new();
    let mut at = 0;
    while at < log.len() {
        let rest = &log[at..];
        let quoted = is_quoted(&log[..at]);
        if let Some(envelope) = envelope(first(rest, ENVELOPE_BYTES_MAX)) {
            let body = &rest[envelope.len..];
            let marker = [SPAN, DROPS].into_iter().find(|marker| body.starts_with(marker));
            if quoted {
                seen.push((at, Seen::Fault("quoted")));
                at += envelope.len + marker.map_or(0, <[u8]>::len);
            } else if marker == Some(SPAN) {
                at += envelope.len;
                at += span(log, at, Some(&envelope), &mut seen);
            } else {
                other(first(rest, ENVELOPE_BYTES_MAX), &envelope)
                    .into_iter()
                    .for_each(|one| seen.push((at, one)));
                at += envelope.len;
            }
        } else if rest.starts_with(SPAN) && !quoted {
            at += span(log, at, None, &mut seen);
        } else if let Some(marker) = [SPAN, DROPS].into_iter().find(|marker| rest.starts_with(marker)) {
            if quoted {
                seen.push((at, Seen::Fault("quoted")));
            }
            at += marker.len();
        } else {
            at += 1;
        }
    }
    seen
}

/// A quotation mark is in front, and it does not begin the value of a key, as a JSON line's does.
fn is_quoted(before: &[u8]) -> bool {
    match before.last() {
        Some(b'\'' | b'`') => true,
        Some(b'"') => !before.ends_with(b":\"") && !before.ends_with(b": \""),
        _ => false,
    }
}

/// `[mono_ns=<ns>][T0x<hex>][<LEVEL>] <func>: `
fn envelope(bytes: &[u8]) -> Option<Envelope<'_>> {
    let rest = bytes.strip_prefix(ENVELOPE)?;
    let (mono_ns, rest) = until(rest, b"][T0x")?;
    let (thread, rest) = until(rest, b"][")?;
    let (level, rest) = until(rest, b"] ")?;
    let (func, rest) = until(rest, b": ")?;
    let mono_ns = decimal(mono_ns)?;
    if !thread.iter().all(u8::is_ascii_hexdigit)
        || u64::from_str_radix(std::str::from_utf8(thread).ok()?, 16).is_err()
        || !["DEBUG", "INFO", "TIMING", "WARN", "ERROR"].iter().any(|name| name.as_bytes() == level)
        || func.len() >= 512
        || func.iter().any(|byte| b":\n\r".contains(byte))
    {
        return None;
    }
    Some(Envelope { mono_ns: mono_ns.try_into().ok()?, func, len: bytes.len() - rest.len() })
}

/// An anchor or an identity, or that it is damaged.
fn other<'a>(record: &'a [u8], envelope: &Envelope<'_>) -> Option<Seen<'a>> {
    let body = &record[envelope.len..];
    match envelope.func {
        b"clock_anchor" if body.starts_with(b"[CLOCK_ANCHOR]") => {
            Some(parse_clock_anchor(record).map_or(Seen::Fault("damaged_anchor"), Seen::Anchor))
        }
        b"clock.anchor" if body.starts_with(b"[DEV_CLOCK_ANCHOR]") => match parse_device_anchor(record) {
            Some(_) => None,
            None => Some(Seen::Fault("damaged_anchor")),
        },
        b"host.identity" if body.starts_with(b"[HOST_IDENTITY]") => {
            Some(parse_host_identity(record).map_or(Seen::Fault("damaged_host_identity"), Seen::Host))
        }
        _ => None,
    }
}

/// What the span marker at `at` begins, and how many bytes from there are read.
fn span<'a>(
    log: &'a [u8],
    at: usize,
    envelope: Option<&Envelope<'_>>,
    seen: &mut Vec<(usize, Seen<'a>)>,
) -> usize {
    let rest = &log[at..];
    let Some(head) = head(first(rest, SPAN_BYTES_MAX)) else {
        // A word in a text, unless the emitter of spans came no further than that.
        if envelope.is_some_and(|envelope| envelope.func == b"emit_host_span")
            && stops_within(b" v=", first(&rest[SPAN.len()..], ENVELOPE_BYTES_MAX - SPAN.len()))
        {
            seen.push((at, Seen::Fault("torn")));
        }
        return SPAN.len();
    };
    match head.and_then(|version_end| fields(first(rest, SPAN_BYTES_MAX), version_end)) {
        Ok((span, len)) => {
            seen.push((at, Seen::Span(span, envelope.map(|envelope| envelope.mono_ns))));
            len
        }
        Err(fault) => {
            seen.push((at, Seen::Fault(fault)));
            SPAN.len()
        }
    }
}

/// Whether bytes end, or their line does, or another record begins, somewhere within `text`.
fn stops_within(text: &[u8], bytes: &[u8]) -> bool {
    (0..=text.len()).any(|len| {
        let Some(rest) = bytes.strip_prefix(&text[..len]) else { return false };
        rest.is_empty() || [&b"\n"[..], b"\r", b"[", b"~\n", b"~\r"].iter().any(|stop| rest.starts_with(stop))
    })
}

/// Where the version ends; `None` if there is none, so that this is no head. An error for another version.
fn head(record: &[u8]) -> Option<Result<usize, &'static str>> {
    let rest = &record[SPAN.len()..];
    let blanks = rest.iter().take_while(|byte| is_blank(**byte)).count();
    let version = rest[blanks..].strip_prefix(b"v=").filter(|_| blanks > 0)?;
    let digits = version.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if digits == 0 {
        return None;
    }
    let end = record.len() - version.len() + digits;
    Some(if decimal(&version[..digits]) == Some(1) { Ok(end) } else { Err("unknown_version") })
}

/// The fields behind the version, and where the record ends.
fn fields(record: &[u8], version_end: usize) -> Result<(RawSpan<'_>, usize), &'static str> {
    const TORN: &str = "torn";
    const MALFORMED: &str = "malformed";
    // No field holds a control byte or a bracket. The mark of a cut record is no part of a field either.
    let stop = (SPAN.len()..record.len()).find(|&at| is_stop(record[at]));
    let line_ends = stop.is_some_and(|at| b"\n\r".contains(&record[at]));
    let text = &record[..stop.unwrap_or(record.len())];
    let cut = text.ends_with(b"~") && (line_ends || stop.is_none());
    let text = if cut { &text[..text.len() - 1] } else { text };

    let mut at = version_end;
    let mut numbers = Vec::new();
    let mut name = &[][..];
    // The version is a number like the others: a blank has to follow.
    match text.get(at) {
        Some(byte) if is_blank(*byte) => {}
        Some(_) => return Err(MALFORMED),
        None => return Err(TORN),
    }
    for key in ["pid=", "tid=", "inv=", "hid=", "depth=", "name=", "ts=", "dur="] {
        at += text[at..].iter().take_while(|byte| is_blank(**byte)).count();
        let rest = &text[at..];
        if key.as_bytes().starts_with(rest) && rest.len() < key.len() {
            return Err(TORN);
        }
        let value = rest.strip_prefix(key.as_bytes()).ok_or(MALFORMED)?;
        at += key.len();
        if key == "name=" {
            let len = value.iter().position(|byte| is_blank(*byte)).ok_or(TORN)?;
            if len == 0 {
                return Err(MALFORMED);
            }
            name = &value[..len];
            at += len;
            continue;
        }
        let is_digit: fn(&u8) -> bool =
            if key == "hid=" { u8::is_ascii_hexdigit } else { u8::is_ascii_digit };
        let digits = value.iter().take_while(|byte| is_digit(byte)).count();
        if digits == 0 {
            return Err(if value.is_empty() { TORN } else { MALFORMED });
        }
        at += digits;
        match value.get(digits) {
            Some(byte) if is_blank(*byte) => {}
            Some(_) => return Err(MALFORMED),
            None if key == "dur=" && line_ends && !cut => {}
            None => return Err(TORN),
        }
        let number = match key {
            "hid=" => u64::from_str_radix(std::str::from_utf8(&value[..digits]).unwrap(), 16).ok(),
            _ => decimal(&value[..digits]),
        };
        let largest = match key {
            "depth=" => u32::MAX.into(),
            "ts=" | "dur=" => i64::MAX as u64,
            _ => u64::MAX,
        };
        numbers.push(number.filter(|&number| number <= largest).ok_or(MALFORMED)?);
    }

    let starts = |at: usize| record[at..].starts_with(SPAN) || record[at..].starts_with(ENVELOPE);
    let end = (at..record.len()).find(|&at| b"\n\r".contains(&record[at]) || starts(at));
    let end = end.or((record.len() == SPAN_BYTES_MAX).then_some(record.len())).ok_or(TORN)?;
    let attrs = record[at..end].split(|byte| is_stop(*byte) && *byte != b'[').next().unwrap_or(&[]);
    let [pid, tid, inv, hid, depth, ts, dur] = numbers[..] else { unreachable!("eight keys, one a name") };
    let span = RawSpan {
        pid,
        tid,
        inv,
        hid,
        depth: depth as u32,
        name,
        ts: ts as i64,
        dur: dur as i64,
        attrs: out_of_json(trim(attrs)),
        end: RecordEnd::Line,
    };
    Ok((span, end))
}

/// In a JSON line the newline is written as an escape and the string then ends; a carriage return or a control byte in
/// front of that is one too.
fn out_of_json(attrs: &[u8]) -> &[u8] {
    let Some(end) = attrs.windows(3).position(|three| three == br#"\n""#) else { return attrs };
    let attrs = &attrs[..end];
    let escape = attrs.iter().position(|byte| *byte == b'\\').unwrap_or(attrs.len());
    let is_control = [&br"\r"[..], br"\u00"].iter().any(|text| attrs[escape..].starts_with(text));
    attrs[..if is_control { escape } else { attrs.len() }].trim_ascii()
}

fn is_blank(byte: u8) -> bool {
    b" \t\x0b\x0c".contains(&byte)
}

fn is_stop(byte: u8) -> bool {
    byte == b'[' || byte.is_ascii_control() && !is_blank(byte)
}

fn trim(bytes: &[u8]) -> &[u8] {
    let start = bytes.iter().position(|byte| !is_blank(*byte)).unwrap_or(bytes.len());
    let end = bytes.iter().rposition(|byte| !is_blank(*byte)).map_or(start, |at| at + 1);
    &bytes[start..end]
}

fn first(bytes: &[u8], most: usize) -> &[u8] {
    &bytes[..bytes.len().min(most)]
}

/// What is in front of the first `end`, and what is behind it.
fn until<'a>(bytes: &'a [u8], end: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = bytes.windows(end.len()).position(|window| window == end)?;
    Some((&bytes[..at], &bytes[at + end.len()..]))
}

fn decimal(digits: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(digits).ok()?;
    if digits.bytes().all(|byte| byte.is_ascii_digit()) { digits.parse().ok() } else { None }
}

/// What a trace says of each span.
fn spans(trace: &Trace) -> Vec<String> {
    let said = |(index, span)| {
        let text = trace.attributes(span).raw().escape_ascii().to_string();
        // A life by what it is: its number counts those too of which only drop reports speak.
        let life = trace.life(span);
        format!(
            "{} {:?} {} {} {:x} {} {} {} {} {:?} {text}",
            life.pid,
            life.anchor,
            trace.tid(span),
            trace.inv(span),
            trace.hid(span),
            trace.depth(span),
            trace.name(span).text,
            span.ts,
            span.dur,
            trace.mono_ns(index),
        )
    };
    (0..).zip(trace.spans()).map(said).collect()
}

/// Holds the reading of `log`, which the file at `path` holds, against the reference: each span and each damaged one,
/// with its place.
pub(crate) fn check(log: &[u8], path: &Path) {
    let seen = read(log);
    let mut builder = TraceBuilder::new();
    let mut complaints: Vec<(u64, &str)> = Vec::new();
    let mut heads = 0;
    for (offset, one) in &seen {
        let fault = match one {
            Seen::Span(span, mono_ns) => match builder.span(span, *mono_ns) {
                Admission::Kept => None,
                Admission::Duplicate => Some("duplicate"),
                Admission::Impossible => Some("impossible_time"),
            },
            Seen::Anchor(anchor) => {
                builder.anchor(*anchor);
                None
            }
            Seen::Host(identity) => {
                builder.host_identity(identity);
                None
            }
            Seen::Fault(kind) => Some(*kind),
        };
        heads +=
            u64::from(matches!(one, Seen::Span(..) | Seen::Fault("torn" | "malformed" | "unknown_version")));
        complaints.extend(fault.map(|kind| (*offset as u64, kind)));
    }
    let trace = builder.finish();
    let expected = spans(&trace);

    for threads in [1, 3] {
        let options = Options { keep: Keep::All, threads: NonZeroUsize::new(threads), ..Options::default() };
        let reading: Reading = read_with(&[Source::path(path)], options).unwrap();
        assert_eq!(spans(&reading.trace), expected, "{threads} thread(s)");
        // Drop reports may speak of others.
        assert!(reading.trace.lives().len() >= trace.lives().len());
        assert_eq!(reading.trace.counts().heads, heads);
        let known = [
            "torn",
            "malformed",
            "unknown_version",
            "duplicate",
            "impossible_time",
            "quoted",
            "damaged_anchor",
            "damaged_host_identity",
        ];
        for kind in known {
            let want = complaints.iter().filter(|(_, one)| *one == kind).count();
            let got = reading.complaints.counts().find(|(one, _)| *one == kind).map_or(0, |(_, count)| count);
            assert_eq!(got, want as u64, "{kind}");
        }
        let kept: Vec<(u64, &str)> = reading
            .complaints
            .first()
            .iter()
            .map(|complaint| (complaint.offset, complaint.reason.kind()))
            .filter(|(_, kind)| known.contains(kind))
            .collect();
        assert_eq!(kept, complaints[..kept.len()]);
    }
    check_scanner(log, &seen);
}

/// The same of the scanner alone, however the log is cut into blocks.
fn check_scanner(log: &[u8], seen: &[(usize, Seen<'_>)]) {
    let wanted: Vec<(u64, i64, i64)> = seen
        .iter()
        .filter_map(|(offset, one)| match one {
            Seen::Span(span, _) => Some((*offset as u64, span.ts, span.dur)),
            _ => None,
        })
        .collect();
    for block_bytes in [log.len().max(1), log.len() / 2 + 1, 61] {
        let mut got = Vec::new();
        let mut take = |offset: u64, found: Found<'_>| {
            if let Found::Span(span, _) = found {
                got.push((offset, span.ts, span.dur));
            }
        };
        let mut scanner = Scanner::new();
        log.chunks(block_bytes).for_each(|block| scanner.push(block, &mut take));
        scanner.finish(&mut take);
        assert_eq!(got, wanted, "blocks of {block_bytes}");
    }
}
