//! Decimal and hexadecimal numbers, written and read by hand.
//!
//! A span record holds nine of them. `core::fmt` takes longer for one than the whole record may cost, and
//! `str::parse` wants text where a log has bytes.

/// The decimal digits of 0 to 99.
static DIGIT_PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[0; 2]; 100];
    let mut n = 0;
    while n < 100 {
        pairs[n] = [b'0' + (n / 10) as u8, b'0' + (n % 10) as u8];
        n += 1;
    }
    pairs
};

/// The hexadecimal digits of 0 to 255, lower case as `%x` has them.
static HEX_PAIRS: [[u8; 2]; 256] = {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut pairs = [[0; 2]; 256];
    let mut n = 0;
    while n < 256 {
        pairs[n] = [DIGITS[n / 16], DIGITS[n % 16]];
        n += 1;
    }
    pairs
};

/// The value of each hexadecimal digit, 0xff for any other byte.
static HEX_VALUES: [u8; 256] = {
    let mut values = [0xff; 256];
    let mut n = 0;
    while n < 16 {
        values[b"0123456789abcdef"[n] as usize] = n as u8;
        values[b"0123456789ABCDEF"[n] as usize] = n as u8;
        n += 1;
    }
    values
};

/// The most digits of a `u64`: in decimal 18446744073709551615.
pub const DECIMAL_DIGITS_MAX: usize = 20;

/// How many decimal digits `value` has.
#[inline]
pub fn decimal_digits(value: u64) -> usize {
    value.checked_ilog10().map_or(1, |log| log as usize + 1)
}

/// How many hexadecimal digits `value` has.
#[inline]
pub(crate) fn hex_digits(value: u64) -> usize {
    value.checked_ilog2().map_or(1, |log| log as usize / 4 + 1)
}

/// Fills `out`, which must be [`decimal_digits`] long, with `value`.
#[inline]
pub fn write_decimal(out: &mut [u8], mut value: u64) {
    // Eight digits take one long division; their four pairs do not wait for each other.
    const EIGHT_DIGITS: u64 = 100_000_000;
    let (front, eights) = out.as_rchunks_mut::<8>();
    for eight in eights.iter_mut().rev() {
        let low = (value % EIGHT_DIGITS) as u32;
        value /= EIGHT_DIGITS;
        let (high, low) = (low / 10_000, low % 10_000);
        let [pair_0, pair_1, pair_2, pair_3] =
            [high / 100, high % 100, low / 100, low % 100].map(|pair| DIGIT_PAIRS[pair as usize]);
        eight[..2].copy_from_slice(&pair_0);
        eight[2..4].copy_from_slice(&pair_1);
        eight[4..6].copy_from_slice(&pair_2);
        eight[6..].copy_from_slice(&pair_3);
    }
    let mut value = value as u32;
    let (first, pairs) = front.as_rchunks_mut::<2>();
    for pair in pairs.iter_mut().rev() {
        *pair = DIGIT_PAIRS[(value % 100) as usize];
        value /= 100;
    }
    if let [first] = first {
        *first = b'0' + (value % 10) as u8;
    }
}

/// Fills `out`, which must be [`hex_digits`] long, with `value`.
#[inline]
pub(crate) fn write_hex(out: &mut [u8], mut value: u64) {
    let (first, pairs) = out.as_rchunks_mut::<2>();
    for pair in pairs.iter_mut().rev() {
        *pair = HEX_PAIRS[(value & 0xff) as usize];
        value >>= 8;
    }
    if let [first] = first {
        *first = HEX_PAIRS[(value & 0xf) as usize][1];
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
    let mut rest = bytes;
    // Two times eight digits and three more always fit.
    for _ in 0..2 {
        if let Some((eight, behind)) = rest.split_first_chunk()
            && let Some(eight) = eight_digits(eight)
        {
            value = value * 100_000_000 + u64::from(eight);
            rest = behind;
        }
    }
    while let [byte, behind @ ..] = rest
        && byte.is_ascii_digit()
    {
        if bytes.len() - rest.len() == DECIMAL_DIGITS_MAX - 1 {
            return last_decimal_digits(bytes, value);
        }
        value = value * 10 + u64::from(byte - b'0');
        rest = behind;
    }
    (bytes.len() - rest.len(), Some(value))
}

/// As [`leading_decimal`], for a number longer than 19 digits, whose first 19 are `value`.
#[cold]
fn last_decimal_digits(bytes: &[u8], value: u64) -> (usize, Option<u64>) {
    let digits = bytes.iter().take_while(|b| b.is_ascii_digit()).count();
    let value = bytes[DECIMAL_DIGITS_MAX - 1..digits]
        .iter()
        .try_fold(value, |value, digit| value.checked_mul(10)?.checked_add(u64::from(digit - b'0')));
    (digits, value)
}

/// The value of eight decimal digits, all at once: each step joins neighbours, eight bytes to four pairs to
/// two fours to the whole.
#[inline]
fn eight_digits(bytes: &[u8; 8]) -> Option<u32> {
    const EVERY_BYTE: u64 = 0x0101_0101_0101_0101;
    let text = u64::from_le_bytes(*bytes);
    let values = text ^ (EVERY_BYTE * b'0' as u64);
    // A byte above 9 either has a bit of its upper half set or gets one by adding 6.
    if (values | values.wrapping_add(EVERY_BYTE * 6)) & (EVERY_BYTE * 0xf0) != 0 {
        return None;
    }
    let pairs = (values * 10 + (values >> 8)) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs * 100 + (pairs >> 16)) & 0x0000_ffff_0000_ffff;
    Some((fours * 10_000 + (fours >> 32)) as u32)
}

/// As [`leading_decimal`], to base 16.
#[inline]
pub(crate) fn leading_hex(bytes: &[u8]) -> (usize, Option<u64>) {
    let mut value: u64 = 0;
    let mut lost: u64 = 0;
    let mut rest = bytes;
    while let [byte, behind @ ..] = rest
        && let Some(digit) = hex_value(*byte)
    {
        lost |= value >> 60;
        value = value << 4 | u64::from(digit);
        rest = behind;
    }
    (bytes.len() - rest.len(), Some(value).filter(|_| lost == 0))
}

/// The value of one hexadecimal digit.
#[inline]
pub(crate) fn hex_value(byte: u8) -> Option<u8> {
    Some(HEX_VALUES[usize::from(byte)]).filter(|value| *value < 16)
}
