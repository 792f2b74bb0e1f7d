//! Records from fields: one function for each kind, all of them total.

use core::fmt::{self, Write};

use simpler_log_abi::Level;

use crate::escape::EscapedField;
use crate::line::{Line, Prose};
use crate::{
    ATTRS_BYTES, CLOCK_ANCHOR_FUNC, CLOCK_ANCHOR_MARKER, ClockAnchor, DROP_REPORT_FUNC, DROP_REPORT_MARKER,
    DropReport, HOST_IDENTITY_FUNC, HOST_IDENTITY_MARKER, HostIdentity, NAME_BYTES, RECORD_BYTES, SPAN_FUNC,
    SPAN_MARKER, SpanFields,
};

/// What stands in front of a record's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// `CLOCK_MONOTONIC` when the record was made, ns.
    pub mono_ns: i64,
    /// `pthread_self` of the thread that made it.
    pub thread: u64,
    /// Its severity.
    pub level: Level,
    /// The function that made it. A colon would end it, so one in it is written as a full stop.
    pub func: &'a str,
}

/// Where in the source a record was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location<'a> {
    /// The source file, written as it is given.
    pub file: &'a str,
    /// The line, from 1.
    pub line: u32,
}

/// Writes a record of prose and returns its length.
///
/// The record ends in exactly one newline: the body needs none, one at its end is dropped, and carriage
/// returns and newlines inside it become `\r` and `\n`. A record longer than [`RECORD_BYTES`] is cut at
/// that many bytes, perhaps within a character, and ends in `~` and the newline. A `Display` that fails
/// ends the body with `~`, for it too is cut short.
pub fn encode_text(
    out: &mut [u8; RECORD_BYTES],
    envelope: &Envelope<'_>,
    location: Option<Location<'_>>,
    body: fmt::Arguments<'_>,
) -> usize {
    let mut line = Line::new(out);
    line.envelope(envelope.mono_ns, envelope.thread, envelope.level);
    let location = location.map(|Location { file, line }| (file.as_bytes(), line));
    line.place(envelope.func.as_bytes(), location);
    if Prose::new(&mut line).write_fmt(body).is_err() {
        line.byte(b'~');
    }
    line.finish()
}

/// The longest of each part of a span record, from the widest value of each field.
const SPAN_RECORD_BYTES_MAX: usize = {
    const I32: usize = "-2147483648".len();
    const I64: usize = "-9223372036854775808".len();
    const U64: usize = "18446744073709551615".len();
    const HEX: usize = "ffffffffffffffff".len();
    "[mono_ns=][T0x][TIMING] : ".len()
        + I64
        + HEX
        + SPAN_FUNC.len()
        + "[STRACE] v=1 pid= tid= inv= hid= depth= name= ts= dur= \n".len()
        + I32
        + I64
        + U64
        + HEX
        + I32
        + NAME_BYTES
        + I64
        + I64
        + ATTRS_BYTES
};

// The bounds of name and attributes were chosen so that a span record is never cut as a whole.
const _: () = assert!(SPAN_RECORD_BYTES_MAX <= RECORD_BYTES);

/// Writes a span record and returns its length. `mono_ns` and `thread` are the envelope's: when and on which
/// thread (`pthread_self`) the span was emitted.
///
/// A span record always fits; its name and its attributes are cut each by itself. With no attributes the
/// record ends in a space before the newline.
pub fn encode_span(out: &mut [u8; RECORD_BYTES], mono_ns: i64, thread: u64, span: &SpanFields<'_>) -> usize {
    let mut line = Line::new(out);
    line.envelope(mono_ns, thread, Level::Timing);
    line.bytes(SPAN_FUNC.as_bytes());
    line.literal(b": ");
    line.literal(SPAN_MARKER);
    line.literal(b" v=1 pid=");
    line.signed(i64::from(span.pid));
    line.literal(b" tid=");
    line.signed(span.tid);
    line.literal(b" inv=");
    line.decimal(span.inv);
    line.literal(b" hid=");
    line.hex(span.hid);
    line.literal(b" depth=");
    line.signed(i64::from(span.depth));
    line.literal(b" name=");
    if span.name.is_empty() {
        line.byte(b'~');
    } else {
        line.escaped(span.name, EscapedField::Name);
    }
    line.literal(b" ts=");
    line.signed(span.ts);
    line.literal(b" dur=");
    line.signed(span.dur);
    line.byte(b' ');
    line.escaped(span.attrs, EscapedField::Attrs);
    line.finish()
}

/// The start of what is said of a process as a whole.
fn of_process(line: &mut Line<'_>, func: &str, marker: &[u8], pid: u64) {
    line.bytes(func.as_bytes());
    line.literal(b": ");
    line.bytes(marker);
    line.literal(b" v=1 pid=");
    line.decimal(pid);
}

/// Writes a clock anchor and returns its length. `mono_ns` and `thread` are the envelope's.
pub fn encode_clock_anchor(
    out: &mut [u8; RECORD_BYTES],
    mono_ns: i64,
    thread: u64,
    anchor: &ClockAnchor,
) -> usize {
    let mut line = Line::new(out);
    line.envelope(mono_ns, thread, Level::Timing);
    of_process(&mut line, CLOCK_ANCHOR_FUNC, CLOCK_ANCHOR_MARKER, anchor.pid);
    line.literal(b" mono_ns=");
    line.signed(anchor.mono_ns);
    line.literal(b" wall_ns=");
    line.signed(anchor.wall_ns);
    line.finish()
}

/// Writes a host identity and returns its length. `mono_ns` and `thread` are the envelope's. A host without a name is
/// called `~`.
pub fn encode_host_identity(
    out: &mut [u8; RECORD_BYTES],
    mono_ns: i64,
    thread: u64,
    identity: &HostIdentity<'_>,
) -> usize {
    let mut line = Line::new(out);
    line.envelope(mono_ns, thread, Level::Timing);
    of_process(&mut line, HOST_IDENTITY_FUNC, HOST_IDENTITY_MARKER, identity.pid);
    line.literal(b" host=");
    line.hex_padded(identity.host);
    line.literal(b" name=");
    if identity.name.is_empty() {
        line.byte(b'~');
    } else {
        line.escaped(identity.name, EscapedField::Name);
    }
    line.finish()
}

/// Writes a drop report, an error, and returns its length. `mono_ns` and `thread` are the envelope's.
pub fn encode_drop_report(
    out: &mut [u8; RECORD_BYTES],
    mono_ns: i64,
    thread: u64,
    report: &DropReport,
) -> usize {
    let [queue_full, claim_exhausted, output_failed, not_admitted] = report.by_reason;
    let mut line = Line::new(out);
    line.envelope(mono_ns, thread, Level::Error);
    of_process(&mut line, DROP_REPORT_FUNC, DROP_REPORT_MARKER, report.pid);
    line.literal(b" new=");
    line.decimal(report.new);
    line.literal(b" total=");
    line.decimal(report.total);
    line.literal(b" queue_full=");
    line.decimal(queue_full);
    line.literal(b" claim_exhausted=");
    line.decimal(claim_exhausted);
    line.literal(b" output_failed=");
    line.decimal(output_failed);
    line.literal(b" not_admitted=");
    line.decimal(not_admitted);
    line.finish()
}
