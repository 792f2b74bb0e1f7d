//! One span, small enough to hold millions of them, and what its name and attributes mean.

use crate::vocabulary::{self, Family, Stage};
use simpler_record_format::{is_truncated_field, percent_decode};
use std::borrow::Cow;

/// A thread of one process life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ThreadId {
    /// Index into the trace's lives.
    pub life: u32,
    /// The kernel's id of the thread.
    pub tid: u64,
}

/// What spans of one kind share; there are as many as there are threads, callables and names that go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SpanKind {
    pub(crate) pid: u64,
    pub(crate) tid: u64,
    pub(crate) hid: u64,
    pub(crate) depth: u32,
    pub(crate) name: NameId,
}

/// A distinct kind; index into the trace's kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct KindId(pub(crate) u32);

/// The records of one (life, inv); index into the trace's groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct GroupId(pub(crate) u32);

/// A distinct span name; index into the trace's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NameId(pub(crate) u32);

impl NameId {
    /// Where in [`Trace::names`](crate::Trace::names) the name is.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A distinct attribute text; index into the trace's attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct AttrsId(pub(crate) u32);

/// Says that a record stood without an envelope; no envelope can carry it.
pub(crate) const NO_ENVELOPE: i64 = i64::MIN;

/// One complete `[STRACE]` record. A log of gigabytes holds millions, so what many have in common stands once in the
/// trace: ask [`Trace::inv`](crate::Trace::inv) and its siblings.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// Start in ns: `CLOCK_MONOTONIC` for host spans, an offset on the invocation's own origin for device
    /// spans.
    pub ts: i64,
    /// Duration in ns. 0 is a measured value.
    pub dur: i64,
    pub(crate) kind: KindId,
    pub(crate) attrs: AttrsId,
    pub(crate) group: GroupId,
    /// When the record was made, as the trace can tell.
    pub(crate) lag: u32,
}

const _: () = assert!(size_of::<Span>() == 32, "the memory that a large log takes");

impl Span {
    /// The end in ns; a sum beyond the clock's range stays at its limit.
    pub fn end(&self) -> i64 {
        self.ts.saturating_add(self.dur)
    }
}

/// A span name with all that follows from it.
#[derive(Clone, Debug)]
pub struct Name {
    /// Decoded once, as UTF-8; bytes that are not become U+FFFD.
    pub text: Box<str>,
    /// Whose span it is.
    pub family: Family,
    /// The stage of a run, if it is one.
    pub stage: Option<Stage>,
    /// Whether it speaks of setup before any run.
    pub prewarm: bool,
    /// Whether the emitter cut it.
    pub truncated: bool,
}

impl Name {
    pub(crate) fn new(encoded: &[u8]) -> Name {
        let bytes: Vec<u8> = percent_decode(encoded).collect();
        let text: Box<str> = String::from_utf8_lossy(&bytes).into();
        Name {
            family: vocabulary::family(&text),
            stage: vocabulary::stage(&text),
            prewarm: vocabulary::is_prewarm(&text),
            truncated: is_truncated_field(encoded),
            text,
        }
    }

    /// The producer of an external span, if the name says whose it is.
    pub fn producer(&self) -> Option<&str> {
        vocabulary::producer(&self.text)
    }

    /// The last dotted segment.
    pub fn leaf(&self) -> &str {
        self.text.rsplit('.').next().unwrap_or(&self.text)
    }
}

/// The attributes of a span as logged: `key=value` tokens between blanks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes<'a>(pub(crate) &'a [u8]);

impl<'a> Attributes<'a> {
    /// Of a text that stands in for a span's attributes.
    pub fn new(raw: &'a [u8]) -> Attributes<'a> {
        Attributes(raw)
    }

    /// The raw bytes, still percent-encoded.
    pub fn raw(self) -> &'a [u8] {
        self.0
    }

    /// Whether the emitter cut them.
    pub fn truncated(self) -> bool {
        is_truncated_field(self.0)
    }

    /// Each `key=value` with its value still encoded. A token without `=` is skipped, and so is one that the
    /// emitter cut, since nobody knows what it would have said.
    pub fn pairs(self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let text = if self.truncated() {
            let last = self.0.iter().rposition(|b| b.is_ascii_whitespace()).unwrap_or(0);
            &self.0[..last]
        } else {
            self.0
        };
        text.split(|b| b.is_ascii_whitespace()).filter_map(|token| {
            let equals = token.iter().position(|&b| b == b'=')?;
            Some((&token[..equals], &token[equals + 1..]))
        })
    }

    /// The decoded value of `key`; the last one wins.
    pub fn get(self, key: &str) -> Option<Cow<'a, str>> {
        let value = self.pairs().filter(|(name, _)| *name == key.as_bytes()).last()?.1;
        if !value.contains(&b'%') {
            // As it stands, as nearly all are.
            return Some(String::from_utf8_lossy(value));
        }
        let bytes: Vec<u8> = percent_decode(value).collect();
        Some(Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// The value of `key` as an integer.
    pub fn integer(self, key: &str) -> Option<i64> {
        self.get(key)?.parse().ok()
    }

    pub(crate) fn is_device(self) -> bool {
        self.pairs().filter(|(key, _)| *key == b"clk").last().is_some_and(|(_, value)| value == b"dev")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_leaf_is_what_stands_behind_the_last_point() {
        for (name, leaf) in [
            ("node.submit", "submit"),
            ("network2.a.b", "b"),
            ("chip", "chip"),
            ("node.", ""),
            ("a%2Eb", "b"),
        ] {
            assert_eq!(Name::new(name.as_bytes()).leaf(), leaf, "{name}");
        }
    }

    #[test]
    fn values_are_decoded_once_and_as_utf8() {
        let attrs = Attributes(b"note=a%20b%3Dc%0Ad pct=%2541 euro=%E2%82%AC");
        assert_eq!(attrs.get("note").unwrap(), "a b=c\nd");
        assert_eq!(attrs.get("pct").unwrap(), "%41");
        assert_eq!(attrs.get("euro").unwrap(), "\u{20ac}");
        assert_eq!(attrs.get("absent"), None);
    }

    #[test]
    fn a_cut_value_is_unknown_and_a_tilde_inside_is_not_a_cut() {
        assert_eq!(Attributes(b"run_id=7 slot_id=1~").get("slot_id"), None);
        assert_eq!(Attributes(b"run_id=7 slot_id=1~").integer("run_id"), Some(7));
        assert_eq!(Attributes(b"note=x~y").get("note").unwrap(), "x~y");
    }

    #[test]
    fn only_clk_exactly_dev_is_a_device_span() {
        assert!(Attributes(b"clk=dev").is_device());
        assert!(Attributes(b"a=1 clk=dev b=2").is_device());
        assert!(!Attributes(b"clk=device").is_device());
        assert!(!Attributes(b"clk=dev~").is_device());
        assert!(!Attributes(b"xclk=dev").is_device());
    }

    #[test]
    fn odd_tokens_do_no_harm() {
        let attrs = Attributes(b"ntensor=4 zz=1 flag empty= a=b=c zz=2");
        assert_eq!(attrs.get("zz").unwrap(), "2");
        assert_eq!(attrs.get("empty").unwrap(), "");
        assert_eq!(attrs.get("a").unwrap(), "b=c");
        assert_eq!(attrs.get("flag"), None);
    }
}
