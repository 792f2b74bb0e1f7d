//! The text grammar of the log in one place: encode into 512 bytes, decode into borrowed fields.
//!
//! A log is a sequence of records. Each is one line of at most [`RECORD_BYTES`] with exactly one newline,
//! its last byte:
//!
//! ```text
//! [mono_ns=<ns>][T0x<thread>][<LEVEL>] <func>: <body>
//! ```
//!
//! Most bodies are prose for people. Five are for machines, and each begins with a marker of its own:
//!
//! ```text
//! [STRACE] v=1 pid=<n> tid=<n> inv=<n> hid=<hex> depth=<n> name=<dotted> ts=<ns> dur=<ns> [k=v ...]
//! [CLOCK_ANCHOR] v=1 pid=<n> mono_ns=<ns> wall_ns=<ns>
//! [HOST_IDENTITY] v=1 pid=<n> host=<16 hex> name=<hostname>
//! [DEV_CLOCK_ANCHOR] v=1 pid=<n> inv=<n> host_ns=<ns> dev_cyc=<n> dev_freq=<hz> half_ns=<ns>
//! [HOSTLOG_DROPS] v=1 pid=<n> new=<n> total=<n> queue_full=<n> claim_exhausted=<n> output_failed=<n> not_admitted=<n>
//! ```
//!
//! A sixth is not ours: `bind phase=<word> start_ns=<ns> dur_ns=<ns> [k=v ...]`, which other runtimes write in plain
//! text. It is read ([`parse_bind_phase`]) and never written.
//!
//! The writing side meets the reading side here and in `simpler-log-abi` only, so what one writes the
//! other reads. Encoding ([`encode_text`], [`encode_span`], [`encode_clock_anchor`],
//! [`encode_host_identity`], [`encode_drop_report`]) never fails: what is too long is cut and the cut is marked with `~`. A span is not even formatted by the
//! thread that ends it: it copies a binary [`frame`], and the writer thread renders that. The body of a
//! [`DeviceClockAnchor`] is its `Display`, in a record of [`DEVICE_ANCHOR_FUNC`]. Decoding ([`parse_envelope`],
//! [`parse_span`], [`parse_clock_anchor`], [`parse_host_identity`], [`parse_device_anchor`], [`parse_drop_report`])
//! takes bytes, since logs are not always text, never panics, and says precisely what is wrong with a record that it refuses.
//!
//! Finding records in a stream, deduplicating and counting them is left to the reader.
//!
//! ```
//! use simpler_record_format::{Input, RECORD_BYTES, SpanFields, SpanParse, encode_span, parse_envelope, parse_span};
//!
//! let span = SpanFields {
//!     pid: 41, tid: 43, inv: 7, hid: 0xb7e2, depth: 1, name: b"simpler_run.bind", ts: 1_000, dur: 250,
//!     attrs: b"ntensor=4",
//! };
//! let mut out = [0; RECORD_BYTES];
//! let len = encode_span(&mut out, 1_300, 0x7f00, &span);
//! assert_eq!(
//!     &out[..len],
//!     b"[mono_ns=1300][T0x7f00][TIMING] emit_host_span: [STRACE] v=1 pid=41 tid=43 inv=7 hid=b7e2 depth=1 \
//!       name=simpler_run.bind ts=1000 dur=250 ntensor=4\n"
//! );
//!
//! let (envelope, body) = parse_envelope(&out[..len]).unwrap();
//! assert_eq!(envelope.func, b"emit_host_span");
//! let SpanParse::Span(read, _) = parse_span(body, Input::Whole) else { panic!() };
//! assert_eq!((read.inv, read.dur, read.attrs), (7, 250, &b"ntensor=4"[..]));
//! ```

#![no_std]

mod decode;
mod encode;
mod escape;
pub mod frame;
mod line;
mod number;
mod plain;

pub use decode::{
    Fault, Field, Input, Malformed, RawBindPhase, RawEnvelope, RawHostIdentity, RawSpan, RecordEnd,
    SPAN_WINDOW_BYTES, SpanParse, parse_bind_phase, parse_clock_anchor, parse_device_anchor,
    parse_drop_report, parse_envelope, parse_host_identity, parse_span, parse_span_of_any_version,
};
pub use encode::{
    Envelope, Location, encode_clock_anchor, encode_drop_report, encode_host_identity, encode_span,
    encode_text,
};
pub use escape::{PercentDecode, is_truncated_field, percent_decode};
pub use number::{DECIMAL_DIGITS_MAX, decimal_digits, parse_decimal, parse_hex, parse_i63, write_decimal};
pub use plain::{PlainSpan, parse_plain, parse_plain_device_anchor, plain_attributes, plain_decimal};

/// The longest record, its newline included: the least `PIPE_BUF` that POSIX allows, so that a record is
/// one atomic write to a pipe which forked processes share.
pub const RECORD_BYTES: usize = 512;

/// The longest encoded name of a span, the `~` of a cut one included.
pub const NAME_BYTES: usize = 64;

/// The longest encoded attributes of a span, the `~` of cut ones included.
pub const ATTRS_BYTES: usize = 192;

/// How every record begins.
pub const ENVELOPE_START: &[u8; 9] = b"[mono_ns=";

/// How the body of a span record begins.
pub const SPAN_MARKER: &[u8; 8] = b"[STRACE]";

/// How the body of a clock anchor begins.
pub const CLOCK_ANCHOR_MARKER: &[u8; 14] = b"[CLOCK_ANCHOR]";

/// How the body of a host identity begins.
pub const HOST_IDENTITY_MARKER: &[u8; 15] = b"[HOST_IDENTITY]";

/// How the body of a device clock anchor begins.
pub const DEVICE_ANCHOR_MARKER: &[u8; 18] = b"[DEV_CLOCK_ANCHOR]";

/// How the body of a drop report begins.
pub const DROP_REPORT_MARKER: &[u8; 15] = b"[HOSTLOG_DROPS]";

/// The function that the envelope of a span record names.
pub const SPAN_FUNC: &str = "emit_host_span";

/// The function that the envelope of a clock anchor names.
pub const CLOCK_ANCHOR_FUNC: &str = "clock_anchor";

/// The function that the envelope of a host identity names.
pub const HOST_IDENTITY_FUNC: &str = "host.identity";

/// The function that the envelope of a device clock anchor names.
pub const DEVICE_ANCHOR_FUNC: &str = "clock.anchor";

/// The function that the envelope of a drop report names.
pub const DROP_REPORT_FUNC: &str = "host_log_drops";

/// One span as the process that measured it knows it.
///
/// `name` and `attrs` are raw: escaping and cutting them to [`NAME_BYTES`] and [`ATTRS_BYTES`] is the
/// encoder's work. In `attrs` a space separates pairs and `=` ends a key, so a value that holds either must
/// have been escaped by its producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanFields<'a> {
    /// The process.
    pub pid: i32,
    /// The kernel's id of the thread, unlike the envelope's, which is `pthread_self`.
    pub tid: i64,
    /// The invocation that the span belongs to.
    pub inv: u64,
    /// The identity of the callable that runs.
    pub hid: u64,
    /// 0 for the root of an invocation, one more for each level below.
    pub depth: i32,
    /// The dotted name. The grammar has no empty name; an empty one is written as `~`.
    pub name: &'a [u8],
    /// The start, in ns of the clock that `attrs` name, `CLOCK_MONOTONIC` by default.
    pub ts: i64,
    /// The length in ns.
    pub dur: i64,
    /// `key=value` pairs between spaces, or nothing.
    pub attrs: &'a [u8],
}

/// A pair of readings that maps the log's monotonic clock to wall time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockAnchor {
    /// The process that read the clocks.
    pub pid: u64,
    /// `CLOCK_MONOTONIC`, ns.
    pub mono_ns: i64,
    /// Unix time at that moment, ns.
    pub wall_ns: i64,
}

/// Which host a process runs on. Process ids of different hosts have nothing to do with each other.
///
/// A host is wherever process ids are one space: two containers on one machine are two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostIdentity<'a> {
    /// The process.
    pub pid: u64,
    /// The same for all processes of a host, another one elsewhere.
    pub host: u64,
    /// The host's name, for people; raw, the encoder escapes it and cuts it to [`NAME_BYTES`].
    pub name: &'a [u8],
}

/// A pair of readings that maps a device's counter to the log's monotonic clock.
///
/// Its `Display` is the record's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceClockAnchor {
    /// The process that drives the device.
    pub pid: u64,
    /// The invocation that it was taken for.
    pub inv: u64,
    /// `CLOCK_MONOTONIC` in the middle of the bracket, ns; not negative.
    pub host_ns: i64,
    /// What the counter showed, in cycles.
    pub dev_cyc: u64,
    /// The counter's nominal frequency, Hz; not 0.
    pub dev_freq: u64,
    /// Half the width of the bracket of host readings around the counter's, ns: by this much `host_ns` may be wrong.
    pub half_ns: u64,
}

impl core::fmt::Display for DeviceClockAnchor {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        // A run waits for its anchors, so they are put together by hand and written at once.
        const HEAD: &str = "[DEV_CLOCK_ANCHOR] v=1";
        const KEYS: [&str; 6] = [" pid=", " inv=", " host_ns=", " dev_cyc=", " dev_freq=", " half_ns="];
        const BYTES_MAX: usize = HEAD.len() + KEYS.len() * (" dev_freq=".len() + DECIMAL_DIGITS_MAX);
        // No monotonic clock is negative.
        let host_ns = u64::try_from(self.host_ns).unwrap_or(0);
        let values = [self.pid, self.inv, host_ns, self.dev_cyc, self.dev_freq, self.half_ns];
        let mut text = [0; BYTES_MAX];
        text[..HEAD.len()].copy_from_slice(HEAD.as_bytes());
        let mut end = HEAD.len();
        for (key, value) in KEYS.into_iter().zip(values) {
            let digits_at = end + key.len();
            text[end..digits_at].copy_from_slice(key.as_bytes());
            end = digits_at + decimal_digits(value);
            write_decimal(&mut text[digits_at..end], value);
        }
        f.write_str(core::str::from_utf8(&text[..end]).map_err(|_| core::fmt::Error)?)
    }
}

/// What a process says about the records that it lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DropReport {
    /// The process that lost them.
    pub pid: u64,
    /// Records lost since the process's report before this one.
    pub new: u64,
    /// Records lost in the life of the process.
    pub total: u64,
    /// The total by reason: queue full, claim exhausted, output failed, not admitted.
    pub by_reason: [u64; 4],
}
