//! JSON by hand: streamed, without a tree in memory, and exact for 64-bit integers.

use std::io::{self, Write};

/// Writes values and keeps track of the commas.
pub(crate) struct Json<W> {
    out: W,
    number: itoa::Buffer,
    comma: bool,
}

impl<W: Write> Json<W> {
    pub(crate) fn new(out: W) -> Json<W> {
        Json { out, number: itoa::Buffer::new(), comma: false }
    }

    pub(crate) fn raw(&mut self, text: &str) -> io::Result<()> {
        self.out.write_all(text.as_bytes())
    }

    fn value_start(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.comma, true) { self.raw(",") } else { Ok(()) }
    }

    fn open(&mut self, bracket: &str) -> io::Result<()> {
        self.value_start()?;
        self.comma = false;
        self.raw(bracket)
    }

    fn close(&mut self, bracket: &str) -> io::Result<()> {
        self.comma = true;
        self.raw(bracket)
    }

    pub(crate) fn object(&mut self, fields: impl FnOnce(&mut Self) -> io::Result<()>) -> io::Result<()> {
        self.open("{")?;
        fields(self)?;
        self.close("}")
    }

    pub(crate) fn array(&mut self, items: impl FnOnce(&mut Self) -> io::Result<()>) -> io::Result<()> {
        self.open("[")?;
        items(self)?;
        self.close("]")
    }

    /// A key; the value is what is written next.
    pub(crate) fn key(&mut self, key: &str) -> io::Result<()> {
        self.text(key)?;
        self.comma = false;
        self.raw(":")
    }

    pub(crate) fn integer(&mut self, value: impl itoa::Integer) -> io::Result<()> {
        self.value_start()?;
        self.out.write_all(self.number.format(value).as_bytes())
    }

    /// A number that need not be whole; what is no number at all is `null`.
    pub(crate) fn float(&mut self, value: f64) -> io::Result<()> {
        self.value_start()?;
        if value.is_finite() { write!(self.out, "{value:?}") } else { self.raw("null") }
    }

    pub(crate) fn boolean(&mut self, value: bool) -> io::Result<()> {
        self.value_start()?;
        self.raw(if value { "true" } else { "false" })
    }

    /// Nanoseconds as microseconds, every digit kept: `1234567` becomes `1234.567`.
    pub(crate) fn us(&mut self, ns: i64) -> io::Result<()> {
        self.value_start()?;
        if ns < 0 {
            self.raw("-")?;
        }
        let ns = ns.unsigned_abs();
        self.out.write_all(self.number.format(ns / 1000).as_bytes())?;
        let rest = ns % 1000;
        if rest == 0 {
            return Ok(());
        }
        let digits = [b'.', digit(rest / 100), digit(rest / 10 % 10), digit(rest % 10)];
        self.out.write_all(&digits)
    }

    pub(crate) fn text(&mut self, text: &str) -> io::Result<()> {
        self.value_start()?;
        self.raw("\"")?;
        self.escaped(text)?;
        self.raw("\"")
    }

    /// Bytes that should be UTF-8; those that are not become U+FFFD.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.value_start()?;
        self.raw("\"")?;
        for chunk in bytes.utf8_chunks() {
            self.escaped(chunk.valid())?;
            if !chunk.invalid().is_empty() {
                self.raw("\u{fffd}")?;
            }
        }
        self.raw("\"")
    }

    fn escaped(&mut self, text: &str) -> io::Result<()> {
        let mut plain = 0;
        for (at, byte) in text.bytes().enumerate() {
            if byte >= 0x20 && byte != b'"' && byte != b'\\' && byte != 0x7f {
                continue;
            }
            self.raw(&text[plain..at])?;
            match byte {
                b'"' => self.raw("\\\"")?,
                b'\\' => self.raw("\\\\")?,
                b'\n' => self.raw("\\n")?,
                b'\t' => self.raw("\\t")?,
                _ => write!(self.out, "\\u{byte:04x}")?,
            }
            plain = at + 1;
        }
        self.raw(&text[plain..])
    }
}

fn digit(value: u64) -> u8 {
    b'0' + value as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Json<&mut Vec<u8>>) -> io::Result<()>) -> String {
        let mut out = Vec::new();
        write(&mut Json::new(&mut out)).unwrap();
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
