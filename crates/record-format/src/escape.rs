//! The encoding of a span's name and attributes: bytes that the grammar needs become `%XX`, and a field that
//! is too long ends in `~`.

use crate::line::Line;
use crate::number::hex_value;

/// One of the two escaped fields: which bytes stand for themselves, and how long the field may get.
#[derive(Clone, Copy)]
pub(crate) enum EscapedField {
    Name,
    Attrs,
}

impl EscapedField {
    const fn bit(self) -> u8 {
        match self {
            EscapedField::Name => 1,
            EscapedField::Attrs => 2,
        }
    }

    pub(crate) const fn bytes_max(self) -> usize {
        match self {
            EscapedField::Name => crate::NAME_BYTES,
            EscapedField::Attrs => crate::ATTRS_BYTES,
        }
    }
}

/// For each byte the fields in which it is literal. Space and `=` are the grammar of the attributes and
/// stay there; in a name they would end it.
const LITERAL_IN: [u8; 256] = {
    let mut table = [0; 256];
    let mut byte = 0x20;
    while byte < 0x7f {
        table[byte] = match byte as u8 {
            b'%' | b'[' | b']' => 0,
            b' ' | b'=' => EscapedField::Attrs.bit(),
            _ => EscapedField::Name.bit() | EscapedField::Attrs.bit(),
        };
        byte += 1;
    }
    table
};

impl Line<'_> {
    /// Pushes `raw` encoded. Where it exceeds the field's bound, units (a byte or a whole escape) are left
    /// out from the first that does not fit, and `~` follows, in place of the last unit if need be.
    pub(crate) fn escaped(&mut self, raw: &[u8], field: EscapedField) {
        const UPPER_DIGITS: &[u8; 16] = b"0123456789ABCDEF";
        let all_literal = raw.iter().fold(field.bit(), |all, b| all & LITERAL_IN[usize::from(*b)]) != 0;
        if all_literal && raw.len() <= field.bytes_max() {
            self.bytes(raw);
            return;
        }
        let mut used = 0;
        let mut last_unit = 0;
        for &byte in raw {
            let literal = LITERAL_IN[usize::from(byte)] & field.bit() != 0;
            let unit = if literal { 1 } else { 3 };
            if used + unit > field.bytes_max() {
                if used == field.bytes_max() {
                    self.take_back(last_unit);
                }
                self.byte(b'~');
                return;
            }
            if literal {
                self.byte(byte);
            } else {
                let (high, low) = (usize::from(byte >> 4), usize::from(byte & 0xf));
                self.literal(&[b'%', UPPER_DIGITS[high], UPPER_DIGITS[low]]);
            }
            used += unit;
            last_unit = unit;
        }
    }
}

/// The raw bytes of an encoded field. What is no escape (`%` without two hexadecimal digits) stands for
/// itself, so every input has a reading. A decoded byte is never decoded again.
///
/// The result need not be UTF-8: a producer may have put any bytes there.
pub fn percent_decode(encoded: &[u8]) -> PercentDecode<'_> {
    PercentDecode { rest: encoded }
}

/// The iterator of [`percent_decode`].
#[derive(Clone, Debug)]
pub struct PercentDecode<'a> {
    rest: &'a [u8],
}

impl Iterator for PercentDecode<'_> {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        if let [b'%', high, low, rest @ ..] = self.rest
            && let (Some(high), Some(low)) = (hex_value(*high), hex_value(*low))
        {
            self.rest = rest;
            return Some(high << 4 | low);
        }
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.rest.len().div_ceil(3), Some(self.rest.len()))
    }
}

/// Whether an encoded name, value or attribute field was cut: it ends in `~`. The last value of cut
/// attributes is not the value that the producer gave.
///
/// A field that was not cut but ends in a `~` of its own cannot be told apart; the grammar has it so.
pub fn is_truncated_field(encoded: &[u8]) -> bool {
    encoded.last() == Some(&b'~')
}
