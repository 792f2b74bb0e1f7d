//! Records in a stream of bytes, wherever they stand.
//!
//! A record need not begin a line: collectors put prefixes in front, processes that share a stream glue
//! records together, progress bars leave text. So the scanner goes from one `[` or line end to the next and
//! asks what begins there: an envelope, or a marker without one. Each question looks at a window of bounded
//! size, and is asked only once the window's bytes (or the end of the line, or of the stream) are there. That
//! makes the result independent of how the stream was cut into blocks, and the time linear in its length:
//! no window is looked at again, since what a record consumed is skipped, and what it did not consume
//! contains no further `[`.

use crate::complaint::Reason;
use memchr::{memchr, memchr_iter, memchr2, memmem, memrchr};
use simpler_record_format::{
    CLOCK_ANCHOR_FUNC, CLOCK_ANCHOR_MARKER, ClockAnchor, DEVICE_ANCHOR_FUNC, DEVICE_ANCHOR_MARKER,
    DROP_REPORT_MARKER, DeviceClockAnchor, DropReport, ENVELOPE_START, HOST_IDENTITY_FUNC,
    HOST_IDENTITY_MARKER, Input, RECORD_BYTES, RawBindPhase, RawEnvelope, RawHostIdentity, RawSpan,
    RecordEnd, SPAN_FUNC, SPAN_MARKER, SPAN_WINDOW_BYTES, SpanParse, parse_bind_phase, parse_clock_anchor,
    parse_device_anchor, parse_drop_report, parse_envelope, parse_host_identity, parse_plain_device_anchor,
    parse_span,
};

/// How far an envelope, an anchor or a drop report is looked for: twice the longest record.
const RECORD_WINDOW_BYTES: usize = 2 * RECORD_BYTES;

/// How many bytes from a `[` on decide what begins there, on a line that has not ended yet.
const LOOKAHEAD_BYTES: usize = RECORD_WINDOW_BYTES + SPAN_WINDOW_BYTES;

/// How many bytes in front of a `[` or a line end matter: the quote before a marker and what is before it,
/// the `~` and the carriage return before a newline.
const LOOKBEHIND_BYTES: usize = 4;

/// What the scanner found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Found<'a> {
    /// A complete span record and its envelope's time, if it has one.
    Span(RawSpan<'a>, Option<i64>),
    /// A clock anchor.
    Anchor(ClockAnchor),
    /// Which host a process is on.
    Host(RawHostIdentity<'a>),
    /// A pair of readings of a device's counter and the host's clock.
    DeviceAnchor(DeviceClockAnchor),
    /// A drop report.
    Drops(DropReport),
    /// A segment of a binding, in plain text.
    BindPhase(RawBindPhase<'a>),
    /// Something that is no plain record.
    Fault(Reason),
    /// The end of a physical line with more than one record on it.
    JoinedLine,
}

/// Reads one kind of record that needs its own envelope. What else its marker begins is the damage that it names.
type ParseAnchor = for<'a> fn(&'a [u8]) -> Option<Found<'a>>;

/// Takes what the scanner finds, with its offset in the stream.
///
/// Any closure that takes [`Found`] is one.
pub trait Sink {
    /// Takes one thing.
    fn found(&mut self, offset: u64, found: Found<'_>);

    /// Takes the record that `bytes` begin with, if that is a span's, in the encoder's form and alone on its line, and
    /// says how long it is. What is not taken here is read field by field and found.
    fn line(&mut self, offset: u64, bytes: &[u8]) -> Option<usize> {
        let _ = (offset, bytes);
        None
    }
}

impl<F: FnMut(u64, Found<'_>)> Sink for F {
    fn found(&mut self, offset: u64, found: Found<'_>) {
        self(offset, found);
    }
}

/// Finds records in the bytes that it is given block by block.
#[derive(Debug, Default)]
pub struct Scanner {
    /// What has not been decided yet, behind what still matters of what has.
    held: Vec<u8>,
    /// The offset of `held` in the stream.
    base: u64,
    /// Up to here in `held` everything is decided.
    cursor: usize,
    line: Line,
}

/// What the current physical line has held so far.
#[derive(Debug, Default)]
struct Line {
    records: u32,
    open: Option<Open>,
}

/// The last record on the line.
#[derive(Clone, Copy, Debug)]
struct Open {
    /// Offset in the stream.
    start: u64,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// An envelope whose body is none of the five kinds for machines, so far.
    Prose,
    /// A span record that is cut.
    Torn,
    /// Any other record for machines.
    Done,
}

impl Scanner {
    /// A scanner at the start of a stream.
    pub fn new() -> Scanner {
        Scanner::default()
    }

    /// Takes the next block and reports everything that is decided by now, with its offset in the stream.
    pub fn push(&mut self, block: &[u8], found: &mut impl Sink) {
        self.held.extend_from_slice(block);
        self.scan(false, found);
        let decided = self.cursor.saturating_sub(LOOKBEHIND_BYTES);
        self.held.drain(..decided);
        self.base += decided as u64;
        self.cursor -= decided;
    }

    /// Where in the stream the bytes begin that are still looked at.
    pub(crate) fn held_from(&self) -> u64 {
        self.base
    }

    /// Says that the stream has ended, and reports the rest.
    pub fn finish(mut self, found: &mut impl Sink) {
        self.scan(true, found);
        let end = self.base + self.held.len() as u64;
        self.line.finish(end, found);
    }

    fn scan(&mut self, whole: bool, found: &mut impl Sink) {
        let Scanner { held, base, cursor, line } = self;
        // Up to its last line end the stream is as good as whole.
        let lines_end = match whole {
            true => held.len(),
            false => memrchr(b'\n', held).map_or(0, |at| at + 1),
        };
        *cursor = scan(held, *base, *cursor, lines_end, line, found);
    }
}

/// Finds the records of whole lines, which stand at `base` of their stream. What follows them is another matter.
pub fn scan_lines(lines: &[u8], base: u64, found: &mut impl Sink) {
    let mut line = Line::default();
    scan(lines, base, 0, lines.len(), &mut line, found);
    line.finish(base + lines.len() as u64, found);
}

/// Decides all that can be decided of `held` from `cursor` on, if it is whole up to `lines_end`, and says how far that
/// is.
fn scan(
    held: &[u8],
    base: u64,
    mut cursor: usize,
    lines_end: usize,
    line: &mut Line,
    found: &mut impl Sink,
) -> usize {
    let mut level_at = 0;
    while let Some(at) = memchr2(b'[', b'\n', &held[cursor..]).map(|offset| cursor + offset) {
        if at >= lines_end && held.len() - at < LOOKAHEAD_BYTES {
            return at;
        }
        let bytes = Bytes { held, base, at };
        if held[at] == b'\n' {
            line.end(bytes, found);
            cursor = at + 1;
            continue;
        }
        cursor = at;
        // As long as each line is a record, there is nothing to look for.
        while let Some(len) = self::line(held, base, cursor, line, &mut level_at, found) {
            cursor += len;
        }
        if cursor == at {
            cursor += line.bracket(bytes, found);
        }
    }
    held.len()
}

/// Takes the record that begins here, if it is a plain one and all of its line, and says how long it is. `level_at` is
/// where the last such record had its level, which most likely tells what this one is.
fn line(
    held: &[u8],
    base: u64,
    at: usize,
    line: &Line,
    level_at: &mut usize,
    found: &mut impl Sink,
) -> Option<usize> {
    let bytes = &held[at..];
    let begins = line.records == 0 && !matches!(held[..at].last(), Some(b'\'' | b'`' | b'"'));
    if !begins || !bytes.starts_with(ENVELOPE_START) {
        return None;
    }
    let offset = base + at as u64;
    let level = bytes.get(*level_at..).unwrap_or_default();
    let is_span = !level.starts_with(b"[TIMING] clock.anchor");
    let is_timing = !matches!(level, [b'[', b'I' | b'D' | b'W' | b'E', ..]);
    if is_timing
        && is_span
        && let Some(len) = found.line(offset, bytes)
    {
        return Some(len);
    }
    if is_timing && let Some((anchor, len)) = parse_plain_device_anchor(bytes) {
        found.found(offset, Found::DeviceAnchor(anchor));
        return Some(len);
    }
    let (level, len) = ordinary(bytes)?;
    *level_at = level;
    Some(len)
}

/// Where the level is and how long the line is that begins with an envelope, if nothing in it can be a record for
/// machines or the trace of one.
fn ordinary(bytes: &[u8]) -> Option<(usize, usize)> {
    let newline = memchr(b'\n', &bytes[..bytes.len().min(RECORD_WINDOW_BYTES)])?;
    let line = &bytes[..newline];
    // The envelope's three brackets, and no other; none of them begins a marker.
    let mut brackets = memchr_iter(b'[', line);
    let (_, thread, level) = (brackets.next()?, brackets.next()?, brackets.next()?);
    let prose = brackets.next().is_none()
        && line[thread..].starts_with(b"[T0x")
        && [&b"[INFO]"[..], b"[DEBUG]", b"[WARN]", b"[ERROR]"]
            .iter()
            .any(|name| line[level..].starts_with(name));
    // A cut one is counted.
    (prose && !line.ends_with(b"~") && !line.ends_with(b"~\r")).then_some((level, newline + 1))
}

/// The bytes around a position of interest.
#[derive(Clone, Copy)]
struct Bytes<'a> {
    held: &'a [u8],
    base: u64,
    at: usize,
}

impl<'a> Bytes<'a> {
    fn offset(self) -> u64 {
        self.base + self.at as u64
    }

    /// The bytes from here on, as far as a record other than a span's may reach.
    fn window(self) -> &'a [u8] {
        let rest = &self.held[self.at..];
        &rest[..rest.len().min(RECORD_WINDOW_BYTES)]
    }

    fn span_window(self) -> &'a [u8] {
        let rest = &self.held[self.at..];
        &rest[..rest.len().min(SPAN_WINDOW_BYTES)]
    }

    fn plus(self, bytes: usize) -> Bytes<'a> {
        Bytes { at: self.at + bytes, ..self }
    }

    fn before(self) -> &'a [u8] {
        &self.held[..self.at]
    }

    /// Whether a quotation starts in front of a record here. A string in a JSON line is none: that is how a
    /// collector wraps a whole line.
    fn is_quoted(self) -> bool {
        match self.before() {
            [.., b'\'' | b'`'] => true,
            [.., b':', b'"'] | [.., b':', b' ', b'"'] => false,
            [.., b'"'] => true,
            _ => false,
        }
    }
}

impl Line {
    /// What begins at a `[`, and how many bytes of it are decided.
    fn bracket(&mut self, bytes: Bytes<'_>, found: &mut impl Sink) -> usize {
        let window = bytes.window();
        if window.starts_with(ENVELOPE_START) {
            return match parse_envelope(window) {
                Some((envelope, body)) => self.envelope(bytes, envelope, window.len() - body.len(), found),
                None => ENVELOPE_START.len(),
            };
        }
        if window.starts_with(SPAN_MARKER) {
            if bytes.is_quoted() {
                found.found(bytes.offset(), Found::Fault(Reason::Quoted));
                return SPAN_MARKER.len();
            }
            let own = self.open.is_none_or(|open| open.state != State::Prose);
            return self.span(bytes, None, own.then(|| bytes.offset()), found);
        }
        if window.starts_with(DROP_REPORT_MARKER) {
            return self.drop_report(bytes, found);
        }
        1
    }

    /// A complete envelope of `len` bytes, and the body behind it.
    fn envelope(
        &mut self,
        bytes: Bytes<'_>,
        envelope: RawEnvelope<'_>,
        len: usize,
        found: &mut impl Sink,
    ) -> usize {
        let body = bytes.plus(len);
        if bytes.is_quoted() {
            found.found(bytes.offset(), Found::Fault(Reason::Quoted));
            let marker = [&SPAN_MARKER[..], DROP_REPORT_MARKER]
                .into_iter()
                .find(|marker| body.window().starts_with(marker));
            return len + marker.map_or(0, <[u8]>::len);
        }
        if body.window().starts_with(SPAN_MARKER) {
            return len + self.span(body, Some(&envelope), Some(bytes.offset()), found);
        }
        self.start(bytes.offset(), State::Prose);
        if body.window().starts_with(DROP_REPORT_MARKER) {
            return len + self.drop_report(body, found);
        }
        let damaged = Reason::DamagedAnchor;
        let anchor: Option<(&[u8], ParseAnchor, Reason)> = match envelope.func {
            func if func == CLOCK_ANCHOR_FUNC.as_bytes() => {
                Some((CLOCK_ANCHOR_MARKER, |bytes| parse_clock_anchor(bytes).map(Found::Anchor), damaged))
            }
            func if func == DEVICE_ANCHOR_FUNC.as_bytes() => {
                let parse: ParseAnchor = |bytes| parse_device_anchor(bytes).map(Found::DeviceAnchor);
                Some((DEVICE_ANCHOR_MARKER, parse, damaged))
            }
            func if func == HOST_IDENTITY_FUNC.as_bytes() => {
                let parse: ParseAnchor = |bytes| parse_host_identity(bytes).map(Found::Host);
                Some((HOST_IDENTITY_MARKER, parse, Reason::DamagedHostIdentity))
            }
            _ => None,
        };
        if let Some((marker, parse, damaged)) = anchor
            && body.window().starts_with(marker)
        {
            self.settle(State::Done);
            let anchor = parse(bytes.window());
            found.found(bytes.offset(), anchor.unwrap_or(Found::Fault(damaged)));
            return len + marker.len();
        }
        if let Some(mut phase) = parse_bind_phase(&envelope, body.window()) {
            phase.attrs = unwrap_json(phase.attrs);
            found.found(bytes.offset(), Found::BindPhase(phase));
        }
        len
    }

    /// A span marker, and how many bytes from it on are decided. `start` is the offset at which its record
    /// begins, `None` if it stands in the body of one that has begun already.
    fn span(
        &mut self,
        bytes: Bytes<'_>,
        envelope: Option<&RawEnvelope<'_>>,
        start: Option<u64>,
        found: &mut impl Sink,
    ) -> usize {
        let parsed = parse_span(bytes.span_window(), Input::Whole);
        let (state, decided, result) = match parsed {
            SpanParse::Span(mut span, consumed) => {
                span.attrs = unwrap_json(span.attrs);
                if span.end == RecordEnd::Window {
                    found.found(bytes.offset(), Found::Fault(Reason::OverlongAttributes));
                }
                let mono_ns = envelope.map(|envelope| envelope.mono_ns);
                (State::Done, consumed, Some(Found::Span(span, mono_ns)))
            }
            SpanParse::Torn | SpanParse::Incomplete => {
                (State::Torn, SPAN_MARKER.len(), Some(Found::Fault(Reason::Torn)))
            }
            SpanParse::Malformed(malformed) => {
                (State::Done, SPAN_MARKER.len(), Some(Found::Fault(Reason::Malformed(malformed))))
            }
            SpanParse::UnknownVersion(version) => {
                (State::Done, SPAN_MARKER.len(), Some(Found::Fault(Reason::UnknownVersion(version))))
            }
            // The marker alone is a word in a text, unless the emitter of spans wrote it and came no further.
            SpanParse::NotHead if envelope.is_some_and(|envelope| cut_behind_marker(bytes, envelope)) => {
                (State::Torn, SPAN_MARKER.len(), Some(Found::Fault(Reason::Torn)))
            }
            SpanParse::NotHead if envelope.is_some() => (State::Prose, SPAN_MARKER.len(), None),
            SpanParse::NotHead => return SPAN_MARKER.len(),
        };
        match start {
            Some(start) => self.start(start, state),
            None => self.settle(state),
        }
        if let Some(result) = result {
            found.found(bytes.offset(), result);
        }
        decided
    }

    fn drop_report(&mut self, bytes: Bytes<'_>, found: &mut impl Sink) -> usize {
        if bytes.is_quoted() {
            found.found(bytes.offset(), Found::Fault(Reason::Quoted));
            return DROP_REPORT_MARKER.len();
        }
        self.settle(State::Done);
        match parse_drop_report(bytes.window()) {
            Some(report) => {
                let total: u128 = report.by_reason.iter().map(|&n| u128::from(n)).sum();
                found.found(bytes.offset(), Found::Drops(report));
                if total != u128::from(report.total) {
                    found.found(bytes.offset(), Found::Fault(Reason::InconsistentDropReport));
                }
            }
            // A text that only mentions the marker is no damage.
            None if bytes.window()[DROP_REPORT_MARKER.len()..].starts_with(b" v=1 ") => {
                found.found(bytes.offset(), Found::Fault(Reason::DamagedDropReport));
            }
            None => {}
        }
        DROP_REPORT_MARKER.len()
    }

    fn start(&mut self, start: u64, state: State) {
        self.records = self.records.saturating_add(1);
        self.open = Some(Open { start, state });
    }

    fn settle(&mut self, state: State) {
        if let Some(open) = &mut self.open {
            open.state = state;
        }
    }

    /// The newline at `bytes`.
    fn end(&mut self, bytes: Bytes<'_>, found: &mut impl Sink) {
        let text = bytes.before();
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        if let Some(open) = self.open
            && text.ends_with(b"~")
        {
            let record_bytes = bytes.base + text.len() as u64 - open.start + 1;
            // Prose may end in a tilde by itself, so its length has to speak for the cut too.
            let cut = open.state == State::Torn
                || open.state == State::Prose && record_bytes == RECORD_BYTES as u64;
            if cut {
                found.found(open.start, Found::Fault(Reason::TruncatedRecord));
            }
        }
        self.finish(bytes.offset(), found);
    }

    fn finish(&mut self, offset: u64, found: &mut impl Sink) {
        if self.records > 1 {
            found.found(offset, Found::JoinedLine);
        }
        *self = Line::default();
    }
}

/// Whether the emitter of spans came no further than somewhere in `[STRACE] v=`.
fn cut_behind_marker(bytes: Bytes<'_>, envelope: &RawEnvelope<'_>) -> bool {
    if envelope.func != SPAN_FUNC.as_bytes() {
        return false;
    }
    let rest = &bytes.window()[SPAN_MARKER.len()..];
    let meant = b" v=";
    let same = rest.iter().zip(meant).take_while(|(a, b)| a == b).count();
    matches!(rest.get(same), None | Some(b'\n' | b'\r' | b'['))
        || matches!(rest.get(same..), Some([b'~', b'\n' | b'\r', ..]))
}

/// Attributes without the tail of a JSON line that the record was wrapped in: there the newline is written
/// as an escape, and so is a terminal's colour code.
fn unwrap_json(attrs: &[u8]) -> &[u8] {
    let Some(end) = memmem::find(attrs, br#"\n""#) else { return attrs };
    let attrs = &attrs[..end];
    let escape = memchr(b'\\', attrs)
        .filter(|&at| [&br"\r"[..], br"\u00"].into_iter().any(|escape| attrs[at..].starts_with(escape)));
    attrs[..escape.unwrap_or(attrs.len())].trim_ascii()
}
