//! Records in a compact form that needs no order: what a thread makes of its part of a log.
//!
//! A log is decoded by several threads, a block each, and only what depends on the order of records is left to the
//! [`TraceBuilder`](crate::TraceBuilder). What most records share is looked up once a block's record is read and then
//! is a number: the *kind* (process, thread, callable, depth and name together) and the attributes. A [`Lexicon`]
//! gives the numbers; it lives as long as its thread, and each [`Batch`] holds what was new in it.

use hashbrown::{DefaultHashBuilder, HashTable};
use simpler_record_format::{PlainSpan, RawSpan, is_truncated_field};
use std::hash::BuildHasher;
use std::ops::Range;

use crate::span::Attributes;

/// Which attributes a trace will hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// All of them.
    #[default]
    All,
    /// None but whether a span is on the device's clock, and whether its emitter cut them. That is what durations need;
    /// attributes may differ from span to span, so it saves much of a large log's memory.
    Durations,
}

/// A span record whose words have become numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Digest {
    pub(crate) inv: u64,
    pub(crate) ts: i64,
    pub(crate) dur: i64,
    pub(crate) mono_ns: i64,
    /// The lexicon's numbers.
    pub(crate) kind: u32,
    pub(crate) attrs: u32,
    /// Where in its block the record stands.
    pub(crate) offset: u32,
}

/// What spans of one kind share, with their name still in a text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KindText {
    pub(crate) pid: u64,
    pub(crate) tid: u64,
    pub(crate) hid: u64,
    pub(crate) depth: u32,
    pub(crate) name: (u32, u32),
}

/// The spans of a block, in log order, and the words that were new to the thread that read it.
#[derive(Debug, Default)]
pub struct Batch {
    pub(crate) spans: Vec<Digest>,
    pub(crate) kinds: Vec<KindText>,
    pub(crate) attrs: Vec<(u32, u32)>,
    text: Vec<u8>,
}

impl Batch {
    /// How many spans it holds.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Makes room for the next block.
    pub fn clear(&mut self) {
        self.spans.clear();
        self.kinds.clear();
        self.attrs.clear();
        self.text.clear();
    }

    pub(crate) fn bytes(&self, (start, end): (u32, u32)) -> &[u8] {
        &self.text[start as usize..end as usize]
    }

    fn keep(&mut self, bytes: &[u8]) -> (u32, u32) {
        let start = self.text.len() as u32;
        self.text.extend_from_slice(bytes);
        (start, self.text.len() as u32)
    }
}

/// How many words the quick way to a kind or to attributes can hold. More are found the slow way.
const CACHED: usize = 2048;

/// A word that was seen, and its number.
#[derive(Clone, Debug, Default)]
struct Cached {
    pid: u64,
    tid: u64,
    text: Vec<u8>,
    /// `None` in an empty place.
    number: Option<u32>,
}

/// The numbers that one thread has given to words.
pub struct Lexicon {
    keep: Keep,
    kinds: Table,
    attrs: Table,
    quick_kinds: Vec<Cached>,
    quick_attrs: Vec<Cached>,
}

/// All words of one sort, each after its hash's key, end to end.
#[derive(Default)]
struct Table {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    table: HashTable<u32>,
    hash: DefaultHashBuilder,
}

impl Table {
    fn range(ends: &[usize], number: u32) -> Range<usize> {
        let number = number as usize;
        (if number == 0 { 0 } else { ends[number - 1] })..ends[number]
    }

    /// The number of a word, and whether it is new.
    fn number(&mut self, word: &[u8]) -> (u32, bool) {
        let Table { bytes, ends, table, hash } = self;
        let hashed = hash.hash_one(word);
        if let Some(&number) = table.find(hashed, |&held| &bytes[Self::range(ends, held)] == word) {
            return (number, false);
        }
        let number = ends.len() as u32;
        bytes.extend_from_slice(word);
        ends.push(bytes.len());
        table.insert_unique(hashed, number, |&held| hash.hash_one(&bytes[Self::range(ends, held)]));
        (number, true)
    }
}

impl Lexicon {
    /// One that knows no words yet.
    pub fn new(keep: Keep) -> Lexicon {
        Lexicon {
            keep,
            kinds: Table::default(),
            attrs: Table::default(),
            quick_kinds: vec![Cached::default(); CACHED],
            quick_attrs: vec![Cached::default(); CACHED],
        }
    }

    /// Adds a span record that stands at `offset` of its block.
    pub fn add(&mut self, batch: &mut Batch, offset: u32, record: &RawSpan<'_>, mono_ns: Option<i64>) {
        let kind = self.kind(batch, record);
        let attrs = self.attributes(batch, record.attrs);
        batch.spans.push(Digest {
            inv: record.inv,
            ts: record.ts,
            dur: record.dur,
            mono_ns: mono_ns.unwrap_or(crate::span::NO_ENVELOPE),
            kind,
            attrs,
            offset,
        });
    }

    /// As [`Lexicon::add`] for a record in the encoder's form. `parse` reads the whole record, which is asked for
    /// where its words have not been seen; if that finds something else, nothing is added, and the answer is `false`.
    pub fn add_plain<'a>(
        &mut self,
        batch: &mut Batch,
        offset: u32,
        plain: &PlainSpan<'_>,
        parse: impl FnOnce() -> Option<RawSpan<'a>>,
    ) -> bool {
        let PlainSpan { mono_ns, pid, tid, inv, what, ts, dur, attrs, .. } = *plain;
        let place = place(pid ^ tid.rotate_left(32), what);
        let same =
            |held: &Cached| held.number.is_some() && held.pid == pid && held.tid == tid && held.text == what;
        let kind = match self.quick_kinds[place].number.filter(|_| same(&self.quick_kinds[place])) {
            Some(kind) => kind,
            None => {
                // Two words may share a place: each has a second one.
                let second = place ^ 1;
                if same(&self.quick_kinds[second]) {
                    self.quick_kinds.swap(place, second);
                    self.quick_kinds[place].number.unwrap_or_default()
                } else {
                    let Some(record) = parse() else { return false };
                    let kind = self.kind(batch, &record);
                    self.quick_kinds.swap(place, second);
                    let held = &mut self.quick_kinds[place];
                    (held.pid, held.tid, held.number) = (pid, tid, Some(kind));
                    held.text.clear();
                    held.text.extend_from_slice(what);
                    kind
                }
            }
        };
        let attrs = self.attributes(batch, attrs);
        batch.spans.push(Digest { inv, ts, dur, mono_ns, kind, attrs, offset });
        true
    }

    fn kind(&mut self, batch: &mut Batch, record: &RawSpan<'_>) -> u32 {
        let mut word = Vec::with_capacity(28 + record.name.len());
        for number in [record.pid, record.tid, record.hid] {
            word.extend_from_slice(&number.to_le_bytes());
        }
        word.extend_from_slice(&record.depth.to_le_bytes());
        word.extend_from_slice(record.name);
        let (number, new) = self.kinds.number(&word);
        if new {
            let name = batch.keep(record.name);
            let RawSpan { pid, tid, hid, depth, .. } = *record;
            batch.kinds.push(KindText { pid, tid, hid, depth, name });
        }
        number
    }

    fn attributes(&mut self, batch: &mut Batch, raw: &[u8]) -> u32 {
        let raw = match self.keep {
            Keep::All => raw,
            Keep::Durations => clock_of(raw),
        };
        let place = place(0, raw);
        let held = &self.quick_attrs[place];
        if let Some(number) = held.number
            && held.text == raw
        {
            return number;
        }
        let (number, new) = self.attrs.number(raw);
        if new {
            let text = batch.keep(raw);
            batch.attrs.push(text);
        }
        let held = &mut self.quick_attrs[place];
        held.number = Some(number);
        held.text.clear();
        held.text.extend_from_slice(raw);
        number
    }
}

/// What [`Keep::Durations`] keeps.
fn clock_of(raw: &[u8]) -> &'static [u8] {
    // Most spans have none, or this one alone.
    let (device, truncated) = match raw {
        b"" => (false, false),
        b"clk=dev" => (true, false),
        _ => {
            // Whoever has the key at all is looked at in full.
            let may_be_device = raw.windows(4).any(|four| four == b"clk=");
            (may_be_device && Attributes(raw).is_device(), is_truncated_field(raw))
        }
    };
    match (device, truncated) {
        (false, false) => b"",
        (true, false) => b"clk=dev",
        (false, true) => b"~",
        (true, true) => b"clk=dev ~",
    }
}

/// Where the quick way looks for a word: by its length and its ends, where words differ.
#[inline]
fn place(seed: u64, word: &[u8]) -> usize {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let first = word.get(8..16).or(word.get(..8)).and_then(|eight| <[u8; 8]>::try_from(eight).ok());
    let last = word.last_chunk::<8>().copied();
    let ends = u64::from_le_bytes(first.unwrap_or_default()) ^ seed.wrapping_mul(ODD);
    let mixed = (ends ^ (ends >> 29)).wrapping_mul(ODD) ^ u64::from_le_bytes(last.unwrap_or_default());
    let mixed = (mixed ^ word.len() as u64).wrapping_mul(ODD);
    (mixed >> 32) as usize % CACHED
}
