//! Records in a compact form that needs no order: what a thread makes of its part of a log.
//!
//! A log is decoded by several threads, a block each, and only what depends on the order of records is left to the
//! [`TraceBuilder`](crate::TraceBuilder). What most records share is looked up once a block's record is read and then
//! is a number: the *kind* (process, thread, callable, depth and name together) and the attributes. A [`Lexicon`]
//! gives the numbers; it lives as long as its thread, and each [`Batch`] holds what was new in it.

use hashbrown::{DefaultHashBuilder, HashTable};
use memchr::memmem;
use simpler_record_format::{
    ENVELOPE_START, Input, PlainSpan, RECORD_BYTES, RawSpan, SpanParse, is_truncated_field, parse_plain,
    parse_span, plain_attributes, plain_decimal,
};
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

/// How many threads' next records can be expected at a time.
const THREADS: usize = 256;

/// How many lengths of what a thread's records begin with are looked for: the numbers of threads differ in their
/// digits.
const HEAD_LENS: usize = 4;

/// Of how many kinds it is known what they look like. A log has some hundreds, a hostile one has one a record.
const EXPECTED_MAX: u32 = 1 << 16;

/// What the records of a thread begin with, and which came last.
#[derive(Clone, Debug, Default)]
struct Thread {
    /// [`PlainSpan::head`]; empty in a free place.
    head: Vec<u8>,
    /// Where in it the span's marker is.
    marker: u32,
    /// The last record's kind.
    last: u32,
}

/// What a record of a kind looks like, and what comes with it and after it.
#[derive(Clone, Debug)]
struct Expected {
    /// From behind the digits of `inv` to those of `ts`. Empty if it is not known.
    text: Vec<u8>,
    /// The attributes of the last one.
    attrs: ShortAttributes,
    /// The two kinds that came last after one of this kind in its thread, the later one first.
    next: [u32; 2],
}

/// Attributes that are short, as most are, with the newline behind them, and their number.
#[derive(Clone, Copy, Debug, Default)]
struct ShortAttributes {
    text: u128,
    /// How many bytes that is; none if there are no short ones.
    len: u32,
    number: u32,
}

impl ShortAttributes {
    fn new(raw: &[u8], number: u32) -> ShortAttributes {
        let mut text = [0; 16];
        match text.get_mut(..raw.len() + 1) {
            Some(place) => {
                place[..raw.len()].copy_from_slice(raw);
                place[raw.len()] = b'\n';
                ShortAttributes { text: u128::from_le_bytes(text), len: raw.len() as u32 + 1, number }
            }
            None => ShortAttributes::default(),
        }
    }

    /// Their number and what is behind them, if `bytes` begin with them.
    #[inline]
    fn strip(self, bytes: &[u8]) -> Option<(u32, &[u8])> {
        let text = u128::from_le_bytes(*bytes.first_chunk()?);
        // The bytes that matter are the lowest.
        let differ = (text ^ self.text).checked_shl(128 - 8 * self.len)?;
        (differ == 0).then(|| (self.number, &bytes[self.len as usize..]))
    }
}

/// No kind.
const NO_KIND: u32 = u32::MAX;

/// The numbers that one thread has given to words.
///
/// A thread of a traced program does the same again and again. So what its next record looks like is known but for four
/// numbers, and what is expected is compared rather than read.
pub struct Lexicon {
    keep: Keep,
    kinds: Table,
    attrs: Table,
    quick_kinds: Vec<Cached>,
    quick_attrs: Vec<Cached>,
    /// The numbers of what [`Keep::Durations`] keeps, by their place in [`CLOCKS`].
    clocks: [Option<u32>; 4],
    /// Finds the key of a clock.
    clk: memmem::Finder<'static>,
    threads: Vec<Thread>,
    head_lens: [usize; HEAD_LENS],
    /// By kind.
    expected: Vec<Expected>,
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
            clocks: [None; 4],
            clk: memmem::Finder::new(b"clk="),
            threads: vec![Thread::default(); THREADS],
            head_lens: [0; HEAD_LENS],
            expected: Vec::new(),
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

    /// As [`Lexicon::add`] for the record that `bytes` begin with, envelope and all, and says how many bytes it has. If
    /// it is not a span record in the encoder's form, and the only one on its line, nothing is added.
    #[inline]
    pub fn add_line(&mut self, batch: &mut Batch, offset: u32, bytes: &[u8]) -> Option<usize> {
        self.add_expected(batch, offset, bytes).or_else(|| self.add_plain(batch, offset, bytes))
    }

    /// Adds a record that is the one that its thread was expected to have next.
    #[inline]
    fn add_expected(&mut self, batch: &mut Batch, offset: u32, bytes: &[u8]) -> Option<usize> {
        let (mono_ns, head) = plain_time(bytes.strip_prefix(ENVELOPE_START)?)?;
        let thread = self.thread(head)?;
        let Thread { head: known, marker, last } = &self.threads[thread];
        let marker = offset + (bytes.len() - head.len()) as u32 + marker;
        let (inv, rest) = plain_decimal(&head[known.len()..])?;
        let [kind, other] = self.expected.get(*last as usize)?.next;
        let looks = |kind: u32| {
            let expected = self.expected.get(kind as usize).filter(|expected| !expected.text.is_empty())?;
            Some((kind, expected.attrs, rest.strip_prefix(expected.text.as_slice())?))
        };
        let (kind, attrs, rest) = looks(kind).or_else(|| looks(other))?;
        let (ts, rest) = plain_time(rest)?;
        let (dur, rest) = plain_time(rest.strip_prefix(b" dur=")?)?;
        let rest = rest.strip_prefix(b" ")?;
        let (attrs, rest) = match attrs.strip(rest) {
            Some(expected) => expected,
            None => {
                let (attrs, rest) = plain_attributes(rest)?;
                (self.expect_attributes(batch, kind, attrs), rest)
            }
        };
        let len = bytes.len() - rest.len();
        if len > RECORD_BYTES {
            return None;
        }
        self.threads[thread].last = kind;
        batch.spans.push(Digest { inv, ts, dur, mono_ns, kind, attrs, offset: marker });
        Some(len)
    }

    /// The thread whose records begin as these bytes do.
    #[inline]
    fn thread(&self, bytes: &[u8]) -> Option<usize> {
        self.head_lens.iter().find_map(|&len| {
            let head = bytes.get(..len).filter(|head| head.ends_with(HEAD_END))?;
            let place = place_of_head(head);
            (self.threads[place].head == head).then_some(place)
        })
    }

    /// Adds a record in the encoder's form, and expects from now on what it is.
    fn add_plain(&mut self, batch: &mut Batch, offset: u32, bytes: &[u8]) -> Option<usize> {
        let (plain, len) = parse_plain(bytes)?;
        let PlainSpan { mono_ns, head, head_at, pid, tid, inv, what, ts, dur, attrs, envelope_len } = plain;
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
                    let SpanParse::Span(record, _) = parse_span(&bytes[envelope_len..len], Input::Whole)
                    else {
                        return None;
                    };
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
        let attrs = self.expect_attributes(batch, kind, attrs);
        self.expect(head, (envelope_len - head_at) as u32, kind, what);
        batch.spans.push(Digest { inv, ts, dur, mono_ns, kind, attrs, offset: offset + envelope_len as u32 });
        Some(len)
    }

    /// Notes what the records of a thread begin with, and that `kind`, which looks like `what`, came last.
    fn expect(&mut self, head: &[u8], marker: u32, kind: u32, what: &[u8]) {
        let thread = match self.thread(head) {
            Some(thread) => thread,
            None => {
                if !self.head_lens.contains(&head.len()) {
                    self.head_lens.rotate_right(1);
                    self.head_lens[0] = head.len();
                }
                let thread = place_of_head(head);
                let held = &mut self.threads[thread];
                held.head.clear();
                held.head.extend_from_slice(head);
                (held.marker, held.last) = (marker, NO_KIND);
                thread
            }
        };
        let last = std::mem::replace(&mut self.threads[thread].last, kind);
        if let Some(last) = self.expected.get_mut(last as usize)
            && last.next[0] != kind
        {
            last.next = [kind, last.next[0]];
        }
        if let Some(expected) = self.expected.get_mut(kind as usize) {
            expected.text.clear();
            for part in [b" ", what, b" ts="] {
                expected.text.extend_from_slice(part);
            }
        }
    }

    /// The number of attributes, which are expected again with their kind.
    fn expect_attributes(&mut self, batch: &mut Batch, kind: u32, raw: &[u8]) -> u32 {
        let number = self.attributes(batch, raw);
        if let Some(expected) = self.expected.get_mut(kind as usize) {
            expected.attrs = ShortAttributes::new(raw, number);
        }
        number
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
            if number < EXPECTED_MAX {
                let (text, attrs) = (Vec::new(), ShortAttributes::default());
                self.expected.push(Expected { text, attrs, next: [NO_KIND; 2] });
            }
        }
        number
    }

    fn attributes(&mut self, batch: &mut Batch, raw: &[u8]) -> u32 {
        if self.keep == Keep::Durations {
            let clock = clock_of(raw, &self.clk);
            return match self.clocks[clock] {
                Some(number) => number,
                None => *self.clocks[clock].insert(number_of(&mut self.attrs, batch, CLOCKS[clock])),
            };
        }
        let place = place(0, raw);
        let held = &self.quick_attrs[place];
        if let Some(number) = held.number
            && held.text == raw
        {
            return number;
        }
        let number = number_of(&mut self.attrs, batch, raw);
        let held = &mut self.quick_attrs[place];
        held.number = Some(number);
        held.text.clear();
        held.text.extend_from_slice(raw);
        number
    }
}

/// The number of attributes, which the batch tells if they are new.
fn number_of(attrs: &mut Table, batch: &mut Batch, raw: &[u8]) -> u32 {
    let (number, new) = attrs.number(raw);
    if new {
        let text = batch.keep(raw);
        batch.attrs.push(text);
    }
    number
}

/// What [`Keep::Durations`] keeps: whether the span is on the device's clock, and whether its emitter cut something.
const CLOCKS: [&[u8]; 4] = [b"", b"clk=dev", b"~", b"clk=dev ~"];

/// Which of [`CLOCKS`] stands for these attributes.
fn clock_of(raw: &[u8], clk: &memmem::Finder<'_>) -> usize {
    // Whoever has the key at all is looked at in full.
    let device = clk.find(raw).is_some() && Attributes(raw).is_device();
    usize::from(device) + 2 * usize::from(is_truncated_field(raw))
}

/// What the head of a plain record ends in.
const HEAD_END: &[u8] = b" inv=";

/// A time at the start, and what is behind it.
#[inline]
fn plain_time(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let (value, rest) = plain_decimal(bytes)?;
    Some((i64::try_from(value).ok()?, rest))
}

/// Where a thread is: by the end of its head, where its numbers are.
#[inline]
fn place_of_head(head: &[u8]) -> usize {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let numbers = &head[..head.len() - HEAD_END.len()];
    let word = |bytes: &[u8]| bytes.last_chunk::<8>().map_or(0, |eight| u64::from_le_bytes(*eight));
    let (tid, pid) = (word(numbers), word(&numbers[..numbers.len().saturating_sub(8)]));
    let mixed = (tid ^ pid.rotate_left(29)).wrapping_mul(ODD);
    (mixed >> 32) as usize % THREADS
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
