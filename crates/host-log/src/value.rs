//! Values on their way into a record's text: attributes of spans, and what the messages of text records hold.
//!
//! Integers and strings, which most are, do not go through the formatting machinery: with the two traits in scope,
//! `(&Value(&value)).put(..)` finds [`PutPlain`] where there is one and [`PutDisplay`] elsewhere.

use core::fmt;

use simpler_record_format::{DECIMAL_DIGITS_MAX, decimal_digits, write_decimal};

/// A value to be written.
#[derive(Debug)]
pub struct Value<'a, T: ?Sized>(pub &'a T);

/// Integers and strings.
pub trait PutPlain {
    /// Writes the value as `Display` does.
    ///
    /// # Errors
    ///
    /// As `text` gives them.
    fn put(&self, text: &mut impl fmt::Write) -> fmt::Result;
}

/// Everything that has a `Display`.
pub trait PutDisplay {
    /// As [`PutPlain::put`].
    ///
    /// # Errors
    ///
    /// As the value and `text` give them.
    fn put(&self, text: &mut impl fmt::Write) -> fmt::Result;
}

impl<T: fmt::Display + ?Sized> PutDisplay for &Value<'_, T> {
    fn put(&self, text: &mut impl fmt::Write) -> fmt::Result {
        text.write_fmt(format_args!("{}", self.0))
    }
}

macro_rules! put_integers {
    ($($integer:ident)*) => {$(
        impl PutPlain for Value<'_, $integer> {
            #[inline]
            fn put(&self, text: &mut impl fmt::Write) -> fmt::Result {
                let value = *self.0;
                #[allow(unused_comparisons, reason = "of the unsigned ones")]
                let is_negative = value < 0;
                put_integer(text, is_negative, (value as i128).unsigned_abs() as u64)
            }
        }

        impl PutPlain for Value<'_, &$integer> {
            #[inline]
            fn put(&self, text: &mut impl fmt::Write) -> fmt::Result {
                Value(*self.0).put(text)
            }
        }
    )*};
}

put_integers! { u8 u16 u32 u64 usize i8 i16 i32 i64 isize }

macro_rules! put_strings {
    ($($string:ty)*) => {$(
        impl PutPlain for Value<'_, $string> {
            #[inline]
            fn put(&self, text: &mut impl fmt::Write) -> fmt::Result {
                text.write_str(self.0)
            }
        }
    )*};
}

put_strings! { str &str String &String }

#[inline]
fn put_integer(text: &mut impl fmt::Write, is_negative: bool, magnitude: u64) -> fmt::Result {
    let mut bytes = [b'-'; 1 + DECIMAL_DIGITS_MAX];
    let end = 1 + decimal_digits(magnitude);
    write_decimal(&mut bytes[1..end], magnitude);
    let bytes = &bytes[usize::from(!is_negative)..end];
    // SAFETY: a sign and digits.
    text.write_str(unsafe { core::str::from_utf8_unchecked(bytes) })
}
