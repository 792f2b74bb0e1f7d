//! JSON by hand: streamed, without a tree in memory, and exact for 64-bit integers.

use std::io::{self, Write};

/// How much text is put together before it is handed on.
const BUFFER_BYTES: usize = 64 * 1024;

/// Writes values and keeps track of the commas. What it holds back is written by [`Json::end_line`].
pub(crate) struct Json<W> {
    out: W,
    text: Vec<u8>,
    number: itoa::Buffer,
    comma: bool,
}

impl<W: Write> Json<W> {
    pub(crate) fn new(out: W) -> Json<W> {
        Json { out, text: Vec::with_capacity(2 * BUFFER_BYTES), number: itoa::Buffer::new(), comma: false }
    }

    /// Ends the document.
    pub(crate) fn end_line(mut self) -> io::Result<()> {
        self.text.push(b'\n');
        self.out.write_all(&self.text)
    }

    fn raw(&mut self, text: &str) {
        self.text.extend_from_slice(text.as_bytes());
    }

    fn value_start(&mut self) {
        if std::mem::replace(&mut self.comma, true) {
            self.text.push(b',');
        }
    }

    fn open(&mut self, bracket: u8) {
        self.value_start();
        self.comma = false;
        self.text.push(bracket);
    }

    fn close(&mut self, bracket: u8) -> io::Result<()> {
        self.comma = true;
        self.text.push(bracket);
        self.hand_on()
    }

    /// A value that is JSON already.
    pub(crate) fn verbatim(&mut self, value: &str) -> io::Result<()> {
        self.value_start();
        self.raw(value);
        self.hand_on()
    }

    fn hand_on(&mut self) -> io::Result<()> {
        if self.text.len() < BUFFER_BYTES {
            return Ok(());
        }
        self.out.write_all(&self.text)?;
        self.text.clear();
        Ok(())
    }

    pub(crate) fn object(&mut self, fields: impl FnOnce(&mut Self) -> io::Result<()>) -> io::Result<()> {
        self.open(b'{');
        fields(self)?;
        self.close(b'}')
    }

    pub(crate) fn array(&mut self, items: impl FnOnce(&mut Self) -> io::Result<()>) -> io::Result<()> {
        self.open(b'[');
        items(self)?;
        self.close(b']')
    }

    /// A key of our own; the value is what is written next.
    pub(crate) fn key(&mut self, key: &'static str) -> io::Result<()> {
        self.word(key)?;
        self.comma = false;
        self.text.push(b':');
        Ok(())
    }

    /// A key that may be anything.
    pub(crate) fn key_text(&mut self, key: &str) -> io::Result<()> {
        self.text(key)?;
        self.comma = false;
        self.text.push(b':');
        Ok(())
    }

    /// A text of our own, in which nothing has to be escaped.
    pub(crate) fn word(&mut self, word: &'static str) -> io::Result<()> {
        debug_assert!(!word.bytes().any(is_escaped), "{word:?} is no plain word");
        self.value_start();
        self.text.push(b'"');
        self.raw(word);
        self.text.push(b'"');
        Ok(())
    }

    pub(crate) fn integer(&mut self, value: impl itoa::Integer) -> io::Result<()> {
        self.value_start();
        self.text.extend_from_slice(self.number.format(value).as_bytes());
        Ok(())
    }

    /// A whole number as text.
    pub(crate) fn integer_text(&mut self, value: impl itoa::Integer) -> io::Result<()> {
        self.value_start();
        self.text.push(b'"');
        self.text.extend_from_slice(self.number.format(value).as_bytes());
        self.text.push(b'"');
        Ok(())
    }

    /// A number as text of hexadecimal digits.
    pub(crate) fn hex(&mut self, value: u64) -> io::Result<()> {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        self.value_start();
        self.text.push(b'"');
        let digits = (u64::BITS - value.leading_zeros()).div_ceil(4).max(1);
        self.text.extend((0..digits).rev().map(|at| DIGITS[(value >> (4 * at)) as usize & 0xf]));
        self.text.push(b'"');
        Ok(())
    }

    /// A number that need not be whole; what is no number at all is `null`.
    pub(crate) fn float(&mut self, value: f64) -> io::Result<()> {
        self.value_start();
        if value.is_finite() {
            write!(self.text, "{value:?}")?;
        } else {
            self.raw("null");
        }
        Ok(())
    }

    pub(crate) fn boolean(&mut self, value: bool) -> io::Result<()> {
        self.value_start();
        self.raw(if value { "true" } else { "false" });
        Ok(())
    }

    /// Nanoseconds as microseconds, every digit kept: `1234567` becomes `1234.567`.
    pub(crate) fn us(&mut self, ns: i64) -> io::Result<()> {
        self.value_start();
        if ns < 0 {
            self.text.push(b'-');
        }
        let ns = ns.unsigned_abs();
        self.text.extend_from_slice(self.number.format(ns / 1000).as_bytes());
        let rest = ns % 1000;
        if rest > 0 {
            let digits = [b'.', digit(rest / 100), digit(rest / 10 % 10), digit(rest % 10)];
            self.text.extend_from_slice(&digits);
        }
        Ok(())
    }

    pub(crate) fn text(&mut self, text: &str) -> io::Result<()> {
        self.value_start();
        self.text.push(b'"');
        self.escaped(text)?;
        self.text.push(b'"');
        Ok(())
    }

    /// Bytes that should be UTF-8; those that are not become U+FFFD.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Ok(text) = std::str::from_utf8(bytes) {
            return self.text(text);
        }
        self.value_start();
        self.text.push(b'"');
        for chunk in bytes.utf8_chunks() {
            self.escaped(chunk.valid())?;
            if !chunk.invalid().is_empty() {
                self.raw("\u{fffd}");
            }
        }
        self.text.push(b'"');
        Ok(())
    }

    fn escaped(&mut self, text: &str) -> io::Result<()> {
        // Nearly all text is as it is: looking at all of it at once is what a processor does best.
        if !text.bytes().fold(false, |any, byte| any | is_escaped(byte)) {
            self.raw(text);
            return Ok(());
        }
        let mut plain = 0;
        for (at, byte) in text.bytes().enumerate().filter(|&(_, byte)| is_escaped(byte)) {
            self.raw(&text[plain..at]);
            match byte {
                b'"' => self.raw("\\\""),
                b'\\' => self.raw("\\\\"),
                b'\n' => self.raw("\\n"),
                b'\t' => self.raw("\\t"),
                _ => write!(self.text, "\\u{byte:04x}")?,
            }
            plain = at + 1;
        }
        self.raw(&text[plain..]);
        Ok(())
    }
}

fn is_escaped(byte: u8) -> bool {
    (byte < 0x20) | (byte == b'"') | (byte == b'\\') | (byte == 0x7f)
}

fn digit(value: u64) -> u8 {
    b'0' + value as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Json<&mut Vec<u8>>) -> io::Result<()>) -> String {
        let mut out = Vec::new();
        let mut json = Json::new(&mut out);
        write(&mut json).unwrap();
        json.end_line().unwrap();
        assert_eq!(out.pop(), Some(b'\n'));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn microseconds_keep_every_nanosecond() {
        for (ns, want) in [
            (0, "0"),
            (1, "0.001"),
            (999, "0.999"),
            (1000, "1"),
            (1_050, "1.050"),
            (9_007_199_254_740_993, "9007199254740.993"),
            (i64::MAX, "9223372036854775.807"),
            (-1, "-0.001"),
            (i64::MIN, "-9223372036854775.808"),
        ] {
            assert_eq!(written(|json| json.us(ns)), want);
        }
    }

    #[test]
    fn any_bytes_become_a_valid_string() {
        let bytes: Vec<u8> = (0..=255).collect();
        let text = written(|json| json.bytes(&bytes));
        let back: String = serde_json::from_str(&text).unwrap();
        assert_eq!(back, String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn nothing_but_a_number_is_printed_as_one() {
        assert_eq!(written(|json| json.float(f64::NAN)), "null");
        assert_eq!(written(|json| json.float(29001.0)), "29001.0");
        assert_eq!(written(|json| json.integer(u64::MAX)), "18446744073709551615");
    }

    #[test]
    fn hexadecimal_text_is_that_of_the_log() {
        for value in [0, 1, 0xf, 0x10, 0xe5f2_81fa_91e2_a5d3, u64::MAX] {
            assert_eq!(written(|json| json.hex(value)), format!("\"{value:x}\""));
        }
        assert_eq!(written(|json| json.integer_text(i64::MIN)), format!("\"{}\"", i64::MIN));
    }

    #[test]
    fn a_document_longer_than_the_buffer_is_written_whole() {
        let text = written(|json| {
            json.array(|json| {
                (0..50_000).try_for_each(|n| {
                    json.object(|json| {
                        json.key("n")?;
                        json.integer(n)
                    })
                })
            })
        });
        let back: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(back.as_array().unwrap().len(), 50_000);
        assert_eq!(back[49_999]["n"], 49_999);
    }

    #[test]
    fn commas_stand_between_values_only() {
        let text = written(|json| {
            json.object(|json| {
                json.key("a")?;
                json.array(|json| {
                    json.integer(1)?;
                    json.object(|_| Ok(()))?;
                    json.boolean(true)
                })?;
                json.key("b")?;
                json.text("\"\\\n")
            })
        });
        assert_eq!(text, r#"{"a":[1,{},true],"b":"\"\\\n"}"#);
    }
}
