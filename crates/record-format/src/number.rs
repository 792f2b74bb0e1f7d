//! Decimal and hexadecimal numbers, written and read by hand.
//!
//! A span record holds nine of them. `core::fmt` takes longer for one than the whole record may cost, and
//! `str::parse` wants text where a log has bytes.

/// The decimal digits of 0 to 99, two bytes each.
const DIGIT_PAIRS: [u8; 200] = {
    let mut pairs = [0; 200];
    let mut n = 0;
    while n < 100 {
        pairs[2 * n] = b'0' + (n / 10) as u8;
        pairs[2 * n + 1] = b'0' + (n % 10) as u8;
        n += 1;
    }
    pairs
};

/// The hexadecimal digits of 0 to 255, two bytes each, lower case as `%x` has them.
const HEX_PAIRS: [u8; 512] = {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut pairs = [0; 512];
    let mut n = 0;
    while n < 256 {
        pairs[2 * n] = DIGITS[n / 16];
        pairs[2 * n + 1] = DIGITS[n % 16];
        n += 1;
    }
    pairs
};

/// The most digits of a `u64`: in decimal 18446744073709551615.
pub(crate) const DECIMAL_DIGITS_MAX: usize = 20;

/// How many decimal digits `value` has.
#[inline]
pub(crate) fn decimal_digits(value: u64) -> usize {
    value.checked_ilog10().map_or(1, |log| log as usize + 1)
}

/// How many hexadecimal digits `value` has.
#[inline]
pub(crate) fn hex_digits(value: u64) -> usize {
    value.checked_ilog2().map_or(1, |log| log as usize / 4 + 1)
}

/// Fills `out`, which must be [`decimal_digits`] long, with `value`.
#[inline]
pub(crate) fn write_decimal(out: &mut [u8], mut value: u64) {
    let mut pairs = out.rchunks_exact_mut(2);
    for pair in &mut pairs {
        let at = (value % 100) as usize * 2;
        pair.copy_from_slice(&DIGIT_PAIRS[at..at + 2]);
        value /= 100;
    }
    if let [first] = pairs.into_remainder() {
        *first = b'0' + (value % 10) as u8;
    }
}

/// Fills `out`, which must be [`hex_digits`] long, with `value`.
#[inline]
pub(crate) fn write_hex(out: &mut [u8], mut value: u64) {
    let mut pairs = out.rchunks_exact_mut(2);
    for pair in &mut pairs {
        let at = (value & 0xff) as usize * 2;
        pair.copy_from_slice(&HEX_PAIRS[at..at + 2]);
        value >>= 8;
    }
    if let [first] = pairs.into_remainder() {
        *first = HEX_PAIRS[(value & 0xf) as usize * 2 + 1];
    }
}

/// The value of `text` if it is nothing but decimal digits, at least one, and fits.
pub fn parse_decimal(text: &[u8]) -> Option<u64> {
    whole(text, leading_decimal)
}

/// The value of `text` if it is nothing but hexadecimal digits of either case, at least one, and fits.
pub fn parse_hex(text: &[u8]) -> Option<u64> {
    whole(text, leading_hex)
}

/// As [`parse_decimal`], within the positive half of an `i64`: the range of times and durations.
pub fn parse_i63(text: &[u8]) -> Option<i64> {
    parse_decimal(text).and_then(|value| i64::try_from(value).ok())
}

fn whole(text: &[u8], leading: fn(&[u8]) -> (usize, Option<u64>)) -> Option<u64> {
    match leading(text) {
        (digits, value) if digits == text.len() && digits > 0 => value,
        _ => None,
    }
}

/// The number that `bytes` begin with: how many digits it has (0: none) and its value unless that exceeds
/// a `u64`.
#[inline]
pub(crate) fn leading_decimal(bytes: &[u8]) -> (usize, Option<u64>) {
    let mut value: u64 = 0;
    let mut digits = 0;
    while let Some(digit) = bytes.get(digits).map(|b| b.wrapping_sub(b'0')).filter(|d| *d < 10) {
        // One digit less than the longest number always fits.
        if digits < DECIMAL_DIGITS_MAX - 1 {
            value = value * 10 + u64::from(digit);
        } else {
            match value.checked_mul(10).and_then(|v| v.checked_add(u64::from(digit))) {
                Some(next) => value = next,
                None => return (digits + count(&bytes[digits..], |b| b.is_ascii_digit()), None),
            }
        }
        digits += 1;
    }
    (digits, Some(value))
}

/// As [`leading_decimal`], to base 16.
#[inline]
pub(crate) fn leading_hex(bytes: &[u8]) -> (usize, Option<u64>) {
    let mut value: u64 = 0;
    let mut digits = 0;
    while let Some(digit) = bytes.get(digits).and_then(|b| hex_value(*b)) {
        if value >> 60 != 0 {
            return (digits + count(&bytes[digits..], |b| b.is_ascii_hexdigit()), None);
        }
        value = value << 4 | u64::from(digit);
        digits += 1;
    }
    (digits, Some(value))
}

/// The value of one hexadecimal digit.
#[inline]
pub(crate) fn hex_value(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

fn count(bytes: &[u8], is_digit: fn(&u8) -> bool) -> usize {
    bytes.iter().take_while(|b| is_digit(b)).count()
}
