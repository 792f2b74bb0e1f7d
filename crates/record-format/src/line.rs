//! The one place that writes into a record: a line that counts what it is given and keeps what fits.

use core::fmt;

use simpler_log_abi::Level;

use crate::number::{DECIMAL_DIGITS_MAX, decimal_digits, hex_digits, write_decimal, write_hex};
use crate::{ENVELOPE_START, RECORD_BYTES};

/// A record in the making. Every push is total: beyond the end of the buffer it only counts, and
/// [`Line::finish`] decides from the count whether the record is whole.
pub(crate) struct Line<'a> {
    out: &'a mut [u8; RECORD_BYTES],
    /// The bytes pushed so far, those that found no room included.
    len: usize,
}

impl<'a> Line<'a> {
    pub(crate) fn new(out: &'a mut [u8; RECORD_BYTES]) -> Self {
        Line { out, len: 0 }
    }

    /// Pushes bytes whose number the compiler knows, which makes this a few stores.
    #[inline]
    pub(crate) fn literal<const N: usize>(&mut self, bytes: &[u8; N]) {
        match self.out.get_mut(self.len..).and_then(|rest| rest.first_chunk_mut::<N>()) {
            Some(place) => {
                *place = *bytes;
                self.len += N;
            }
            None => self.bytes(bytes),
        }
    }

    pub(crate) fn byte(&mut self, byte: u8) {
        self.literal(&[byte]);
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        let room = self.out.get_mut(self.len..).unwrap_or(&mut []);
        let kept = room.len().min(bytes.len());
        room[..kept].copy_from_slice(&bytes[..kept]);
        self.len = self.len.saturating_add(bytes.len());
    }

    #[inline]
    pub(crate) fn decimal(&mut self, value: u64) {
        let digits = decimal_digits(value);
        match self.out.get_mut(self.len..self.len.saturating_add(digits)) {
            Some(place) => {
                write_decimal(place, value);
                self.len += digits;
            }
            None => {
                let mut place = [0; DECIMAL_DIGITS_MAX];
                write_decimal(&mut place[..digits], value);
                self.bytes(&place[..digits]);
            }
        }
    }

    #[inline]
    pub(crate) fn signed(&mut self, value: i64) {
        if value < 0 {
            self.byte(b'-');
        }
        self.decimal(value.unsigned_abs());
    }

    #[inline]
    pub(crate) fn hex(&mut self, value: u64) {
        let digits = hex_digits(value);
        match self.out.get_mut(self.len..self.len.saturating_add(digits)) {
            Some(place) => {
                write_hex(place, value);
                self.len += digits;
            }
            None => {
                let mut place = [0; DECIMAL_DIGITS_MAX];
                write_hex(&mut place[..digits], value);
                self.bytes(&place[..digits]);
            }
        }
    }

    /// All 16 digits.
    pub(crate) fn hex_padded(&mut self, value: u64) {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        for shift in (0..u64::BITS).step_by(4).rev() {
            self.byte(DIGITS[(value >> shift) as usize & 0xf]);
        }
    }

    /// Takes back the last `count` bytes.
    pub(crate) fn take_back(&mut self, count: usize) {
        self.len = self.len.saturating_sub(count);
    }

    /// Pushes everything of an envelope up to the function's name.
    #[inline]
    pub(crate) fn envelope(&mut self, mono_ns: i64, thread: u64, level: Level) {
        self.literal(ENVELOPE_START);
        self.signed(mono_ns);
        self.literal(b"][T0x");
        self.hex(thread);
        self.literal(b"][");
        match level {
            Level::Debug => self.literal(b"DEBUG"),
            Level::Info => self.literal(b"INFO"),
            Level::Timing => self.literal(b"TIMING"),
            Level::Warn => self.literal(b"WARN"),
            Level::Error => self.literal(b"ERROR"),
        }
        self.literal(b"] ");
    }

    /// Pushes the function and, if there is one, the place in the source: file and line.
    pub(crate) fn place(&mut self, func: &[u8], location: Option<(&[u8], u32)>) {
        for &byte in func {
            self.byte(match byte {
                b':' => b'.',
                b'\n' | b'\r' => b' ',
                other => other,
            });
        }
        self.literal(b": ");
        if let Some((file, number)) = location {
            self.byte(b'[');
            for &byte in file {
                self.byte(if matches!(byte, b'\n' | b'\r') { b' ' } else { byte });
            }
            self.byte(b':');
            self.decimal(u64::from(number));
            self.literal(b"] ");
        }
    }

    /// More was to come than anybody can say: the record is a cut one.
    pub(crate) fn cut(&mut self) {
        while self.len < RECORD_BYTES {
            self.byte(b' ');
        }
    }

    /// Ends the record with its newline and returns its length. A record that does not fit with it is cut
    /// to [`RECORD_BYTES`] and ends in `~` and the newline; one that just fits is whole.
    pub(crate) fn finish(self) -> usize {
        match self.out.get_mut(self.len) {
            Some(end) => {
                *end = b'\n';
                self.len + 1
            }
            None => {
                self.out[RECORD_BYTES - 2] = b'~';
                self.out[RECORD_BYTES - 1] = b'\n';
                RECORD_BYTES
            }
        }
    }
}

/// Prose on its way into a [`Line`]: keeps one record one line.
///
/// A carriage return or newline inside becomes the two characters `\r` or `\n`. Only the last newline of
/// all is dropped, since the record's own takes its place; whether one is the last is known when the next
/// byte comes.
pub(crate) struct Prose<'line, 'out> {
    line: &'line mut Line<'out>,
    newline_withheld: bool,
}

impl<'line, 'out> Prose<'line, 'out> {
    pub(crate) fn new(line: &'line mut Line<'out>) -> Self {
        Prose { line, newline_withheld: false }
    }
}

impl Prose<'_, '_> {
    pub(crate) fn bytes(&mut self, text: &[u8]) {
        let mut rest = text;
        while !rest.is_empty() {
            if self.newline_withheld {
                self.line.literal(b"\\n");
                self.newline_withheld = false;
            }
            let plain = rest.iter().position(|b| matches!(b, b'\n' | b'\r')).unwrap_or(rest.len());
            self.line.bytes(&rest[..plain]);
            match rest.get(plain) {
                Some(b'\r') => self.line.literal(b"\\r"),
                Some(_) => self.newline_withheld = true,
                None => break,
            }
            rest = &rest[plain + 1..];
        }
    }
}

impl fmt::Write for Prose<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.bytes(text.as_bytes());
        Ok(())
    }
}
