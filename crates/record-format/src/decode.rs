//! Fields from records: borrowed from the bytes, total, and exact about what is wrong with a record.
//!
//! Real logs are cut in the middle of a record, glued to the next one, wrapped by collectors, padded with
//! NULs, and quoted. So nothing here assumes a line: a function takes the bytes from a marker on and finds
//! out by itself where the record ends. What these parsers accept is wider than what the encoder writes
//! (any blanks between fields, any unknown attribute), except where width would turn damage into a
//! measurement: a number that is cut short still looks like a number, so it counts only if what follows it
//! proves that it ended.

use simpler_log_abi::Level;

use crate::number::{leading_decimal, leading_hex, parse_hex};
use crate::{
    CLOCK_ANCHOR_FUNC, CLOCK_ANCHOR_MARKER, ClockAnchor, DEVICE_ANCHOR_FUNC, DEVICE_ANCHOR_MARKER,
    DROP_REPORT_MARKER, DeviceClockAnchor, DropReport, ENVELOPE_START, HOST_IDENTITY_FUNC,
    HOST_IDENTITY_MARKER, RECORD_BYTES, SPAN_MARKER,
};

/// How far behind its marker a span record is looked for, eight times the longest record: a line that goes
/// on for megabytes holds other things. Given this many bytes, [`parse_span`] never asks for more.
pub const SPAN_WINDOW_BYTES: usize = 4096;

const _: () = assert!(SPAN_WINDOW_BYTES >= 8 * RECORD_BYTES);

const LEVEL_NAME_BYTES_MAX: usize = "TIMING".len();

/// What stands in front of a record's body, as read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawEnvelope<'a> {
    /// `CLOCK_MONOTONIC` when the record was made, ns.
    pub mono_ns: i64,
    /// `pthread_self` of the thread that made it.
    pub thread: u64,
    /// Its severity.
    pub level: Level,
    /// The function that made it.
    pub func: &'a [u8],
}

/// A complete span record, as read. Names and attributes are still encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawSpan<'a> {
    /// The process.
    pub pid: u64,
    /// The thread.
    pub tid: u64,
    /// The invocation that the span belongs to.
    pub inv: u64,
    /// The identity of the callable that ran.
    pub hid: u64,
    /// 0 for the root of an invocation, one more for each level below.
    pub depth: u32,
    /// The dotted name, encoded, never empty.
    pub name: &'a [u8],
    /// The start, in ns of the clock that `attrs` name. Not negative.
    pub ts: i64,
    /// The length in ns. Not negative; `ts + dur` may exceed an `i64`.
    pub dur: i64,
    /// The attributes, encoded, without blanks around them. They end before the first control byte, which
    /// an encoder would have escaped: what a terminal or a collector adds is not part of them.
    pub attrs: &'a [u8],
    /// What ended the record.
    pub end: RecordEnd,
}

/// What ended a span record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordEnd {
    /// A newline or a carriage return, the normal case.
    Line,
    /// Another record on the same line: its writer and this one's shared a stream.
    Record,
    /// [`SPAN_WINDOW_BYTES`] without either: text of some other origin was appended to the line.
    Window,
}

/// Whether the bytes given are all that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// Nothing comes after them: a record that they cut is torn.
    Whole,
    /// More may come: a record that they cut is [`SpanParse::Incomplete`].
    Partial,
}

/// What [`parse_span`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanParse<'a> {
    /// A complete record of version 1, and how many bytes it has from the marker to its end. The newline, or
    /// the next record, that ended it is not among them.
    Span(RawSpan<'a>, usize),
    /// The bytes end before the record does and there may be more. Only for [`Input::Partial`].
    Incomplete,
    /// A record's head, but the record is cut, unterminated, or glued to another in the middle of a field.
    Torn,
    /// A record's head, but a field is not what the grammar says.
    Malformed(Malformed),
    /// A record of another version (saturated), not read further.
    UnknownVersion(u64),
    /// No record's head at all: the marker without `v=<n>` behind it.
    NotHead,
}

/// Why a span record is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The first field that is wrong.
    pub field: Field,
    /// What is wrong with it.
    pub fault: Fault,
}

/// A field of a span record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// `v=`
    Version,
    /// `pid=`
    Pid,
    /// `tid=`
    Tid,
    /// `inv=`
    Inv,
    /// `hid=`
    Hid,
    /// `depth=`
    Depth,
    /// `name=`
    Name,
    /// `ts=`
    Ts,
    /// `dur=`
    Dur,
}

impl Field {
    /// The key as it stands in the record, its `=` included.
    pub const fn key(self) -> &'static str {
        match self {
            Field::Version => "v=",
            Field::Pid => "pid=",
            Field::Tid => "tid=",
            Field::Inv => "inv=",
            Field::Hid => "hid=",
            Field::Depth => "depth=",
            Field::Name => "name=",
            Field::Ts => "ts=",
            Field::Dur => "dur=",
        }
    }
}

/// What can be wrong with a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Something else stands where the field should.
    Missing,
    /// Its value is empty, or not a plain number where there must be one: a sign, a point, a letter.
    NotANumber,
    /// Its number exceeds the field's range.
    OutOfRange,
    /// The name is empty.
    Empty,
}

/// Reads an envelope at the start of `bytes` and returns it with what follows, the record's body. `None` if
/// there is no complete one.
pub fn parse_envelope(bytes: &[u8]) -> Option<(RawEnvelope<'_>, &[u8])> {
    let rest = bytes.strip_prefix(ENVELOPE_START)?;
    let (digits, mono_ns) = leading_decimal(rest);
    let mono_ns = nonempty(digits, mono_ns).and_then(|ns| i64::try_from(ns).ok())?;
    let rest = rest[digits..].strip_prefix(b"][T0x")?;
    let (digits, thread) = leading_hex(rest);
    let thread = nonempty(digits, thread)?;
    let rest = rest[digits..].strip_prefix(b"][")?;
    let level_end = first(rest, LEVEL_NAME_BYTES_MAX + 1).iter().position(|b| *b == b']')?;
    let level = match &rest[..level_end] {
        b"DEBUG" => Level::Debug,
        b"INFO" => Level::Info,
        b"TIMING" => Level::Timing,
        b"WARN" => Level::Warn,
        b"ERROR" => Level::Error,
        _ => return None,
    };
    let rest = rest[level_end..].strip_prefix(b"] ")?;
    let func_end = first(rest, RECORD_BYTES).iter().position(|b| matches!(b, b':' | b'\n' | b'\r'))?;
    let (func, rest) = rest.split_at(func_end);
    let body = rest.strip_prefix(b": ")?;
    Some((RawEnvelope { mono_ns, thread, level, func }, body))
}

/// Reads the clock anchor whose envelope starts `bytes`. `None` for anything else: another body, another
/// function or level, another version, something but blanks or a terminal's colour reset behind it, or no end
/// of line (the last number may then be cut).
///
/// A quoted anchor is none, which is why this asks for the envelope.
pub fn parse_clock_anchor(bytes: &[u8]) -> Option<ClockAnchor> {
    let mut scan = anchor_fields(bytes, CLOCK_ANCHOR_FUNC, CLOCK_ANCHOR_MARKER)?;
    let pid = scan.pair("pid=")?;
    let mono_ns = i64::try_from(scan.pair("mono_ns=")?).ok()?;
    let wall_ns = i64::try_from(scan.pair("wall_ns=")?).ok()?;
    scan.ends_line().then_some(ClockAnchor { pid, mono_ns, wall_ns })
}

/// A host identity as it stands in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawHostIdentity<'a> {
    /// The process.
    pub pid: u64,
    /// The same for all processes of a host.
    pub host: u64,
    /// The host's name, still percent-encoded; `~` is none.
    pub name: &'a [u8],
}

/// Reads the host identity whose envelope starts `bytes`. `None` as for [`parse_clock_anchor`]; the host has all its 16
/// digits.
pub fn parse_host_identity(bytes: &[u8]) -> Option<RawHostIdentity<'_>> {
    let mut scan = anchor_fields(bytes, HOST_IDENTITY_FUNC, HOST_IDENTITY_MARKER)?;
    let pid = scan.pair("pid=")?;
    let host = scan.value("host=")?;
    let host = (host.len() == 16).then(|| parse_hex(host))??;
    let name = scan.value("name=")?;
    scan.ends_line().then_some(RawHostIdentity { pid, host, name })
}

/// Reads the device clock anchor whose envelope starts `bytes`. `None` as for [`parse_clock_anchor`], and for a
/// counter of 0 Hz, which measures nothing.
pub fn parse_device_anchor(bytes: &[u8]) -> Option<DeviceClockAnchor> {
    let mut scan = anchor_fields(bytes, DEVICE_ANCHOR_FUNC, DEVICE_ANCHOR_MARKER)?;
    let pid = scan.pair("pid=")?;
    let inv = scan.pair("inv=")?;
    let host_ns = i64::try_from(scan.pair("host_ns=")?).ok()?;
    let dev_cyc = scan.pair("dev_cyc=")?;
    let dev_freq = scan.pair("dev_freq=")?;
    let half_ns = scan.pair("half_ns=")?;
    (scan.ends_line() && dev_freq != 0).then_some(DeviceClockAnchor {
        pid,
        inv,
        host_ns,
        dev_cyc,
        dev_freq,
        half_ns,
    })
}

/// The fields of version 1 behind an anchor's marker, in a whole record of level TIMING and its own function.
fn anchor_fields<'a>(bytes: &'a [u8], func: &str, marker: &[u8]) -> Option<Scan<'a>> {
    let (envelope, body) = parse_envelope(bytes)?;
    if envelope.level != Level::Timing || envelope.func != func.as_bytes() {
        return None;
    }
    let mut scan = Scan::new(body.strip_prefix(marker)?);
    (scan.pair("v=")? == 1).then_some(scan)
}

/// A segment of a run's binding, as a runtime notes it in plain text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawBindPhase<'a> {
    /// When the line was made: at the end of the binding. `CLOCK_MONOTONIC`, ns.
    pub mono_ns: i64,
    /// The segment.
    pub phase: &'a [u8],
    /// Its start, `CLOCK_MONOTONIC` in ns. Not negative.
    pub start_ns: i64,
    /// Its length in ns. Not negative; `start_ns + dur_ns` may exceed an `i64`.
    pub dur_ns: i64,
    /// What else the line says of it, `key=value` between blanks, without blanks around.
    pub attrs: &'a [u8],
}

/// Reads the segment of a binding from a record's body: perhaps `[file:line] `, then
/// `bind phase=<word> start_ns=<ns> dur_ns=<ns> [k=v ...]`. `None` for anything else, for another level than TIMING,
/// and if the line does not end.
pub fn parse_bind_phase<'a>(envelope: &RawEnvelope<'_>, body: &'a [u8]) -> Option<RawBindPhase<'a>> {
    if envelope.level != Level::Timing {
        return None;
    }
    let body = match body.strip_prefix(b"[") {
        Some(place) => {
            let end = place.iter().position(|byte| matches!(byte, b']' | b'\n' | b'\r'))?;
            place[end..].strip_prefix(b"] ")?
        }
        None => body,
    };
    let mut scan = Scan::new(body.strip_prefix(b"bind")?);
    let phase = scan.value("phase=")?;
    let start_ns = i64::try_from(scan.pair("start_ns=")?).ok()?;
    let dur_ns = i64::try_from(scan.pair("dur_ns=")?).ok()?;
    // Only white space proves that the last number is whole.
    scan.number_ends(Field::Dur).ok()?;
    let end = scan.rest.iter().position(|byte| matches!(byte, b'\n' | b'\r'))?;
    let attrs = scan.rest[..end].split(|byte| ends_field(*byte)).next().unwrap_or(&[]);
    Some(RawBindPhase { mono_ns: envelope.mono_ns, phase, start_ns, dur_ns, attrs: trim_blanks(attrs) })
}

/// Reads the drop report whose marker starts `bytes`. `None` if it is of another version, or any of its
/// fields is not there.
///
/// Other than an anchor it counts wherever it stands and however it ends: a warning about losses that is
/// itself damaged must not be lost.
pub fn parse_drop_report(bytes: &[u8]) -> Option<DropReport> {
    let mut scan = Scan::new(bytes.strip_prefix(DROP_REPORT_MARKER)?);
    if scan.pair("v=")? != 1 {
        return None;
    }
    let pid = scan.pair("pid=")?;
    let new = scan.pair("new=")?;
    let total = scan.pair("total=")?;
    let by_reason = [
        scan.pair("queue_full=")?,
        scan.pair("claim_exhausted=")?,
        scan.pair("output_failed=")?,
        scan.pair("not_admitted=")?,
    ];
    Some(DropReport { pid, new, total, by_reason })
}

/// Reads the span record whose marker starts `bytes`.
///
/// The fields must stand in their order with blanks between them. Process, thread, invocation and callable
/// fit a `u64`, times an `i64` without sign, the depth a `u32`. The record counts only if `dur`'s digits are
/// followed by white space and the record by the end of its line or by another record; a copy inside quotes
/// is for the caller to recognise, by the byte in front of `bytes`.
///
/// Torn or malformed: a record that stops is torn, one that says something else is malformed. It stops at a
/// control byte, at a `[` (no field can hold one, so another record or a prefix was glued on), or at the `~`
/// that ends a record cut by its writer.
pub fn parse_span(bytes: &[u8], input: Input) -> SpanParse<'_> {
    let (window, edge) = window(bytes, input);
    let mut scan = Scan::new(window);
    match scan.head(edge) {
        Ok(Some(1)) => {}
        Ok(version) => return SpanParse::UnknownVersion(version.unwrap_or(u64::MAX)),
        Err(HeadStop::NotHead) => return SpanParse::NotHead,
        Err(HeadStop::RanOut) if edge == Edge::More => return SpanParse::Incomplete,
        Err(HeadStop::RanOut) => return SpanParse::NotHead,
    }
    match scan.record(window.len(), edge) {
        Ok((span, len)) => SpanParse::Span(span, len),
        Err(Stop::RanOut) if edge == Edge::More => SpanParse::Incomplete,
        Err(Stop::RanOut | Stop::Cut) => SpanParse::Torn,
        Err(Stop::Bad(malformed)) => SpanParse::Malformed(malformed),
    }
}

/// The span record whose marker starts `bytes`, whatever its version, which comes first: its fields are read as those of
/// version 1. `None` if [`parse_span`] would find no whole record in that.
pub fn parse_span_of_any_version(bytes: &[u8]) -> Option<(u64, RawSpan<'_>)> {
    let (window, edge) = window(bytes, Input::Whole);
    let mut scan = Scan::new(window);
    let version = scan.head(edge).ok()??;
    let (span, _) = scan.record(window.len(), edge).ok()?;
    Some((version, span))
}

/// As many of the bytes as are looked at, and what lies beyond.
fn window(bytes: &[u8], input: Input) -> (&[u8], Edge) {
    match bytes.get(..SPAN_WINDOW_BYTES) {
        Some(window) => (window, Edge::Window),
        None if input == Input::Partial => (bytes, Edge::More),
        None => (bytes, Edge::End),
    }
}

/// What lies beyond the bytes that are looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Edge {
    /// Nothing.
    End,
    /// Bytes not yet given.
    More,
    /// Bytes too far away to belong to the record.
    Window,
}

/// Why the scan of a span record's head stopped.
enum HeadStop {
    NotHead,
    RanOut,
}

/// Why the scan of a span record stopped.
enum Stop {
    /// At the end of the bytes.
    RanOut,
    /// At something that no field can hold.
    Cut,
    Bad(Malformed),
}

impl Stop {
    fn bad(field: Field, fault: Fault) -> Stop {
        Stop::Bad(Malformed { field, fault })
    }
}

/// What is left of the bytes of one record.
struct Scan<'a> {
    rest: &'a [u8],
}

impl<'a> Scan<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Scan { rest: bytes }
    }

    fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    fn skip(&mut self, count: usize) {
        self.rest = self.rest.get(count..).unwrap_or(&[]);
    }

    /// Skips blanks and tells whether there were any.
    #[inline]
    fn blanks(&mut self) -> bool {
        let before = self.rest.len();
        while let [byte, rest @ ..] = self.rest
            && is_blank(*byte)
        {
            self.rest = rest;
        }
        self.rest.len() < before
    }

    /// Skips what a terminal or a collector puts around a line to colour it: `ESC [ 0 m` and the like.
    /// Whether nothing but blanks and a terminal's colour reset is left of the line, and the line ends.
    fn ends_line(&mut self) -> bool {
        self.blanks();
        self.colour_codes();
        matches!(self.peek(), Some(b'\n' | b'\r'))
    }

    fn colour_codes(&mut self) {
        while let Some(code) = self.rest.strip_prefix(b"\x1b[") {
            let parameters = code.iter().take_while(|b| matches!(b, b'0'..=b'9' | b';')).count();
            match code[parameters..].strip_prefix(b"m") {
                Some(rest) => self.rest = rest,
                None => return,
            }
        }
    }

    /// One `key=<decimal>` after blanks, for records whose damage is not classified.
    fn pair(&mut self, key: &str) -> Option<u64> {
        if !self.blanks() {
            return None;
        }
        self.rest = self.rest.strip_prefix(key.as_bytes())?;
        let (digits, value) = leading_decimal(self.rest);
        self.skip(digits);
        nonempty(digits, value)
    }

    /// One `key=<text>` after blanks: at least one byte, up to a blank, a control byte or a bracket.
    fn value(&mut self, key: &str) -> Option<&'a [u8]> {
        if !self.blanks() {
            return None;
        }
        let text = self.rest.strip_prefix(key.as_bytes())?;
        let end =
            text.iter().position(|byte| matches!(byte, 0..=b' ' | b'[' | b']' | 0x7f)).unwrap_or(text.len());
        let (value, rest) = text.split_at(end);
        self.rest = rest;
        (!value.is_empty()).then_some(value)
    }

    /// The marker and the version, `None` for one that exceeds a `u64`.
    #[inline]
    fn head(&mut self, edge: Edge) -> Result<Option<u64>, HeadStop> {
        self.expect(SPAN_MARKER)?;
        match (self.blanks(), self.peek()) {
            (true, _) => self.expect(b"v=")?,
            (false, None) => return Err(HeadStop::RanOut),
            (false, Some(_)) => return Err(HeadStop::NotHead),
        }
        let (digits, version) = leading_decimal(self.rest);
        self.skip(digits);
        match self.peek() {
            // The next byte may be one more digit.
            None if digits == 0 || edge == Edge::More => Err(HeadStop::RanOut),
            Some(_) if digits == 0 => Err(HeadStop::NotHead),
            _ => Ok(version),
        }
    }

    #[inline]
    fn expect<const N: usize>(&mut self, text: &[u8; N]) -> Result<(), HeadStop> {
        match self.rest.strip_prefix(text) {
            Some(rest) => {
                self.rest = rest;
                Ok(())
            }
            None if text.starts_with(self.rest) => Err(HeadStop::RanOut),
            None => Err(HeadStop::NotHead),
        }
    }

    /// Everything behind the version, and how many bytes the record has if there are `len` from its marker on.
    #[inline]
    fn record(&mut self, len: usize, edge: Edge) -> Result<(RawSpan<'a>, usize), Stop> {
        let span = self.fields()?;
        let (attrs, record, end) = self.attributes(edge)?;
        let attrs = trim_blanks(&self.rest[..attrs]);
        Ok((RawSpan { attrs, end, ..span }, len - self.rest.len() + record))
    }

    /// Everything behind the version, except the attributes and the end.
    #[inline]
    fn fields(&mut self) -> Result<RawSpan<'a>, Stop> {
        self.number_ends(Field::Version)?;
        let pid = self.unsigned(Field::Pid)?;
        let tid = self.unsigned(Field::Tid)?;
        let inv = self.unsigned(Field::Inv)?;
        let hid = self.hex(Field::Hid)?;
        let depth = self.unsigned(Field::Depth)?;
        let depth = u32::try_from(depth).map_err(|_| Stop::bad(Field::Depth, Fault::OutOfRange))?;
        let name = self.name()?;
        let ts = self.time(Field::Ts)?;
        let dur = self.time(Field::Dur)?;
        Ok(RawSpan { pid, tid, inv, hid, depth, name, ts, dur, attrs: &[], end: RecordEnd::Line })
    }

    // From here on inlining is forced where the field is known: its key is then compared as one number.

    /// Skips the blanks in front of a field, and its key.
    #[inline(always)]
    fn key(&mut self, field: Field) -> Result<(), Stop> {
        self.blanks();
        match self.rest.strip_prefix(field.key().as_bytes()) {
            Some(rest) => {
                self.rest = rest;
                Ok(())
            }
            None => Err(self.stop_within_key(field)),
        }
    }

    #[inline(always)]
    fn unsigned(&mut self, field: Field) -> Result<u64, Stop> {
        self.key(field)?;
        self.number(field, leading_decimal(self.rest))
    }

    #[inline(always)]
    fn hex(&mut self, field: Field) -> Result<u64, Stop> {
        self.key(field)?;
        self.number(field, leading_hex(self.rest))
    }

    #[inline(always)]
    fn time(&mut self, field: Field) -> Result<i64, Stop> {
        let value = self.unsigned(field)?;
        i64::try_from(value).map_err(|_| Stop::bad(field, Fault::OutOfRange))
    }

    #[inline(always)]
    fn number(&mut self, field: Field, (digits, value): (usize, Option<u64>)) -> Result<u64, Stop> {
        if digits == 0 {
            return Err(self.stop(field, Fault::NotANumber));
        }
        self.skip(digits);
        self.number_ends(field)?;
        value.ok_or(Stop::bad(field, Fault::OutOfRange))
    }

    /// Only white space proves that a number was not cut. Behind the last field the line may end.
    #[inline]
    fn number_ends(&self, field: Field) -> Result<(), Stop> {
        match self.peek() {
            Some(b) if is_blank(b) => Ok(()),
            Some(b'\n' | b'\r') if field == Field::Dur => Ok(()),
            _ => Err(self.stop(field, Fault::NotANumber)),
        }
    }

    #[inline]
    fn name(&mut self) -> Result<&'a [u8], Stop> {
        self.key(Field::Name)?;
        let len = self.rest.iter().position(|b| class(*b) != 0).ok_or(Stop::RanOut)?;
        let (name, rest) = self.rest.split_at(len);
        self.rest = rest;
        if rest.first().is_some_and(|b| ends_field(*b)) {
            return Err(Stop::Cut);
        }
        if name.is_empty() {
            return Err(Stop::bad(Field::Name, Fault::Empty));
        }
        Ok(name)
    }

    /// How many bytes of attributes follow, how many of the record, and what ends it.
    #[inline]
    fn attributes(&self, edge: Edge) -> Result<(usize, usize, RecordEnd), Stop> {
        let mut attrs_end = None;
        let mut at = 0;
        while let Some(ahead) = self.rest[at..].iter().position(|b| ends_field(*b)) {
            at += ahead;
            match self.rest[at] {
                b'\n' | b'\r' => return Ok((attrs_end.unwrap_or(at), at, RecordEnd::Line)),
                b'[' if starts_record(&self.rest[at..]) => {
                    return Ok((attrs_end.unwrap_or(at), at, RecordEnd::Record));
                }
                b'[' => {}
                _ => attrs_end = attrs_end.or(Some(at)),
            }
            at += 1;
        }
        let len = self.rest.len();
        match edge {
            Edge::Window => Ok((attrs_end.unwrap_or(len), len, RecordEnd::Window)),
            Edge::End | Edge::More => Err(Stop::RanOut),
        }
    }

    /// Tells why the key here is not that of `field`, by the first byte that differs.
    #[cold]
    fn stop_within_key(&mut self, field: Field) -> Stop {
        let same =
            self.rest.iter().zip(field.key().as_bytes()).take_while(|(found, key)| found == key).count();
        self.skip(same);
        self.stop(field, Fault::Missing)
    }

    /// Tells why the byte here is not the one that `field` needs.
    #[cold]
    fn stop(&self, field: Field, fault: Fault) -> Stop {
        match self.rest {
            [] | [b'~'] => Stop::RanOut,
            [b'~', b'\n' | b'\r', ..] => Stop::Cut,
            [byte, ..] if ends_field(*byte) => Stop::Cut,
            _ => Stop::bad(field, fault),
        }
    }
}

/// At most the first `bytes_max` of `bytes`.
fn first(bytes: &[u8], bytes_max: usize) -> &[u8] {
    bytes.get(..bytes_max).unwrap_or(bytes)
}

fn nonempty(digits: usize, value: Option<u64>) -> Option<u64> {
    value.filter(|_| digits > 0)
}

/// White space within a line.
const BLANK: u8 = 1;

/// What no field of a span record can hold, since the encoder escapes it: control bytes and the bracket that
/// begins every record and most prefixes.
const ENDS_FIELD: u8 = 2;

static CLASSES: [u8; 256] = {
    let mut classes = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        classes[byte] = match byte as u8 {
            b' ' | b'\t' | 0x0b | 0x0c => BLANK,
            0..0x20 | b'[' | 0x7f => ENDS_FIELD,
            _ => 0,
        };
        byte += 1;
    }
    classes
};

fn class(byte: u8) -> u8 {
    CLASSES[usize::from(byte)]
}

fn is_blank(byte: u8) -> bool {
    class(byte) == BLANK
}

fn ends_field(byte: u8) -> bool {
    class(byte) == ENDS_FIELD
}

fn starts_record(bytes: &[u8]) -> bool {
    bytes.starts_with(ENVELOPE_START) || bytes.starts_with(SPAN_MARKER)
}

fn trim_blanks(mut bytes: &[u8]) -> &[u8] {
    while let [first, rest @ ..] = bytes
        && is_blank(*first)
    {
        bytes = rest;
    }
    while let [rest @ .., last] = bytes
        && is_blank(*last)
    {
        bytes = rest;
    }
    bytes
}
