//! Span records in exactly the form that the encoder gives them, read the quick way.
//!
//! Nearly every record of a log is one of these: an envelope of its emitter, one blank between fields, a newline at the
//! end. [`parse_plain`] reads eight bytes at a time and gives up at the first that it did not expect; whoever asks then
//! reads the record with [`parse_envelope`](crate::parse_envelope) and [`parse_span`](crate::parse_span), which say
//! what it is. What it does read, they read alike, provided that they find a span in it at all: hid, depth and name
//! are only delimited here, since a reader that has seen the same text before need not look at it again.
//!
//! Such a reader may even know what text to expect. It then compares that, and reads with [`plain_decimal`] and
//! [`plain_attributes`] what stands between.

use crate::{DeviceClockAnchor, ENVELOPE_START};

/// How long a record that is read the quick way can be, newline included. The encoder's are not longer.
const PLAIN_BYTES_MAX: usize = crate::RECORD_BYTES;

/// Digits that always fit a `u64`.
const DIGITS_MAX: usize = 19;

/// A span record in the encoder's form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlainSpan<'a> {
    /// The envelope's time, ns of `CLOCK_MONOTONIC`.
    pub mono_ns: i64,
    /// All between that time and the digits of `inv`: what the records of a thread share.
    pub head: &'a [u8],
    /// How many bytes stand in front of the head.
    pub head_at: usize,
    /// The process.
    pub pid: u64,
    /// The thread.
    pub tid: u64,
    /// The invocation.
    pub inv: u64,
    /// `hid=<hex> depth=<n> name=<dotted>`, perhaps with something else where the values should be.
    pub what: &'a [u8],
    /// The start in ns.
    pub ts: i64,
    /// The length in ns.
    pub dur: i64,
    /// The attributes, encoded, without blanks around them.
    pub attrs: &'a [u8],
    /// How many bytes stand in front of the span's marker.
    pub envelope_len: usize,
}

/// Reads the span record whose envelope starts `bytes`, and how many bytes it has, its newline included. `None` if it
/// is not in the encoder's form, or if fewer than eight bytes follow some field of it.
#[inline]
pub fn parse_plain(bytes: &[u8]) -> Option<(PlainSpan<'_>, usize)> {
    let (mono_ns, head, rest) = envelope(bytes)?;
    let rest = rest.strip_prefix(b"emit_host_span: ")?;
    let envelope_len = bytes.len() - rest.len();
    let rest = rest.strip_prefix(b"[STRACE] v=1 pid=")?;
    let (pid, rest) = plain_decimal(rest)?;
    let (tid, rest) = plain_decimal(rest.strip_prefix(b" tid=")?)?;
    let rest = rest.strip_prefix(b" inv=")?;
    let head_at = bytes.len() - head.len();
    let head = &head[..head.len() - rest.len()];
    let (inv, rest) = plain_decimal(rest)?;
    let what = rest.strip_prefix(b" ")?;
    let rest = behind_field(what.strip_prefix(b"hid=")?)?;
    let rest = behind_field(rest.strip_prefix(b" depth=")?)?;
    let rest = behind_field(rest.strip_prefix(b" name=")?)?;
    let what = &what[..what.len() - rest.len()];
    let (ts, rest) = time(rest.strip_prefix(b" ts=")?)?;
    let (dur, rest) = time(rest.strip_prefix(b" dur=")?)?;
    let rest = rest.strip_prefix(b" ")?;
    let (attrs, rest) = plain_attributes(rest)?;
    let len = bytes.len() - rest.len();
    (len <= PLAIN_BYTES_MAX).then_some((
        PlainSpan { mono_ns, head, head_at, pid, tid, inv, what, ts, dur, attrs, envelope_len },
        len,
    ))
}

/// Reads the device clock anchor whose envelope starts `bytes`, if that is in the form of its [`Display`](core::fmt::Display),
/// and how many bytes its record has, its newline included. What it reads,
/// [`parse_device_anchor`](crate::parse_device_anchor) reads alike.
pub fn parse_plain_device_anchor(bytes: &[u8]) -> Option<(DeviceClockAnchor, usize)> {
    let (_, _, rest) = envelope(bytes)?;
    let (pid, rest) = plain_decimal(rest.strip_prefix(b"clock.anchor: [DEV_CLOCK_ANCHOR] v=1 pid=")?)?;
    let (inv, rest) = plain_decimal(rest.strip_prefix(b" inv=")?)?;
    let (host_ns, rest) = time(rest.strip_prefix(b" host_ns=")?)?;
    let (dev_cyc, rest) = plain_decimal(rest.strip_prefix(b" dev_cyc=")?)?;
    let (dev_freq, rest) = plain_decimal(rest.strip_prefix(b" dev_freq=")?)?;
    let (half_ns, rest) = plain_decimal(rest.strip_prefix(b" half_ns=")?)?;
    let rest = rest.strip_prefix(b"\n")?;
    let anchor = DeviceClockAnchor { pid, inv, host_ns, dev_cyc, dev_freq, half_ns };
    (dev_freq != 0).then_some((anchor, bytes.len() - rest.len()))
}

/// The time of an envelope of level TIMING, what is behind its digits, and what is behind all of it.
#[inline]
fn envelope(bytes: &[u8]) -> Option<(i64, &[u8], &[u8])> {
    let (mono_ns, behind) = time(bytes.strip_prefix(ENVELOPE_START)?)?;
    let rest = behind.strip_prefix(b"][T0x")?;
    let digits = rest.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    if !(1..=16).contains(&digits) {
        return None;
    }
    Some((mono_ns, behind, rest[digits..].strip_prefix(b"][TIMING] ")?))
}

const EVERY_BYTE: u64 = 0x0101_0101_0101_0101;
const TOP_BITS: u64 = 0x80 * EVERY_BYTE;

/// The top bit of each byte that is 0, as far as the first of them.
#[inline]
fn zeros(word: u64) -> u64 {
    word.wrapping_sub(EVERY_BYTE) & !word & TOP_BITS
}

/// The first eight bytes.
#[inline]
fn eight(bytes: &[u8]) -> Option<u64> {
    bytes.first_chunk().map(|eight| u64::from_le_bytes(*eight))
}

/// The number at the start, of 1 to 19 digits, and what is behind it. `None` for anything else, or if fewer than eight
/// bytes follow.
#[inline]
pub fn plain_decimal(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value: u64 = 0;
    let mut digits = 0;
    loop {
        let text = eight(&bytes[digits..])?;
        let values = text ^ (EVERY_BYTE * u64::from(b'0'));
        // A byte above 9 gets its top bit by adding, or has it.
        let others = (values.wrapping_add(EVERY_BYTE * 0x76) | values) & TOP_BITS;
        let count = others.trailing_zeros() as usize / 8;
        if count == 0 {
            break;
        }
        // The digits to the end of the word, zeros in front.
        let values = values << (64 - 8 * count);
        let pairs = (values.wrapping_mul(10).wrapping_add(values >> 8)) & 0x00ff_00ff_00ff_00ff;
        let fours = (pairs.wrapping_mul(100).wrapping_add(pairs >> 16)) & 0x0000_ffff_0000_ffff;
        let eight = (fours.wrapping_mul(10_000).wrapping_add(fours >> 32)) & 0xffff_ffff;
        digits += count;
        if digits > DIGITS_MAX {
            return None;
        }
        value = value * POWERS[count] + eight;
        if count < 8 {
            break;
        }
    }
    (digits > 0).then(|| (value, &bytes[digits..]))
}

const POWERS: [u64; 9] = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000];

#[inline]
fn time(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let (value, rest) = plain_decimal(bytes)?;
    Some((i64::try_from(value).ok()?, rest))
}

/// What is behind a field of at least one byte: from the next blank on.
#[inline]
fn behind_field(bytes: &[u8]) -> Option<&[u8]> {
    let mut at = 0;
    loop {
        let blanks = zeros(eight(&bytes[at..])? ^ (EVERY_BYTE * u64::from(b' ')));
        if blanks != 0 {
            at += blanks.trailing_zeros() as usize / 8;
            return (at > 0).then(|| &bytes[at..]);
        }
        at += 8;
        if at > PLAIN_BYTES_MAX {
            return None;
        }
    }
}

/// The attributes up to the newline, and what is behind that. `None` if they are not in the encoder's form.
#[inline]
pub fn plain_attributes(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let len = match bytes.first_chunk::<8>() {
        // The commonest by far.
        Some([b'\n', ..]) => 0,
        Some(b"clk=dev\n") => 7,
        _ => attributes_len(bytes)?,
    };
    let (attrs, rest) = bytes.split_at(len);
    // Blanks around them, and the tail of a JSON line, are not for the quick way.
    if attrs.first() == Some(&b' ') || attrs.last() == Some(&b' ') {
        return None;
    }
    Some((attrs, rest.strip_prefix(b"\n")?))
}

/// How many bytes there are up to the first that no plain attributes hold.
#[inline]
fn attributes_len(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    while let Some(text) = bytes.get(at..).and_then(eight) {
        let is = |byte: u8| zeros(text ^ (EVERY_BYTE * u64::from(byte)));
        let control = text.wrapping_sub(EVERY_BYTE * 0x20) & !text & TOP_BITS;
        let stops = control | is(b'[') | is(b'\\') | is(0x7f);
        if stops != 0 {
            return Some(at + stops.trailing_zeros() as usize / 8);
        }
        at += 8;
        if at > PLAIN_BYTES_MAX {
            return None;
        }
    }
    let rest = bytes.get(at..)?;
    rest.iter().position(|byte| matches!(byte, ..0x20 | b'[' | b'\\' | 0x7f)).map(|len| at + len)
}
