//! From records in log order to a [`Trace`].
//!
//! Three things have to be decided while the records come by, in their order: which life of a process id
//! a record belongs to, whether it was seen before, and the small numbers that stand for its strings. All
//! else waits until the log has ended.

use crate::callable::Role;
use crate::digest::{Batch, Digest};
use crate::group::{Current, Grouped, Groups};
use crate::host_phases::BindPhaseLine;
use crate::hosts::{self, Host};
use crate::intern::Interner;
use crate::invocation::{self, Invocation, Part};
use crate::select::Whole;
use crate::span::{Attributes, AttrsId, KindId, NO_ENVELOPE, Name, NameId, Span, SpanKind, ThreadId};
use crate::tree::parents;
use crate::vocabulary::Family;
use hashbrown::{DefaultHashBuilder, HashTable};
use rustc_hash::FxHashMap;
use simpler_record_format::{ClockAnchor, DeviceClockAnchor, DropReport, RawHostIdentity, RawSpan};
use std::hash::BuildHasher;
use std::ops::Range;
use std::sync::OnceLock;

/// A span that claims to end this much later than its own record was made is impossible. The envelope's
/// clock is read after the span's end; it may step back by milliseconds between threads, not by a minute.
const FUTURE_MAX_NS: i64 = 60_000_000_000;

/// A reading of both clocks by one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Anchor {
    /// `CLOCK_MONOTONIC`, ns.
    pub mono_ns: i64,
    /// Unix time, ns.
    pub wall_ns: i64,
}

impl Anchor {
    /// The Unix time in ns of the monotonic `ts`, if the anchor was taken by then.
    pub fn wall_of(self, ts: i64) -> Option<i64> {
        if ts < self.mono_ns {
            return None;
        }
        self.wall_ns.checked_add(ts.checked_sub(self.mono_ns)?)
    }
}

/// One process from its start to its end. The same process id in a later process, or on another host, is another life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    /// The process id.
    pub pid: u64,
    /// The number of the host that it ran on, if the log says so; see [`Trace::hosts`].
    pub host: Option<u64>,
    /// The life's clock anchor, if the log holds it.
    pub anchor: Option<Anchor>,
    /// Whether any span belongs to it.
    pub has_spans: bool,
    /// What the life's last drop report says.
    pub drops: Option<Drops>,
}

/// Records that a process lost before they reached its log: totals over its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drops {
    /// All of them.
    pub total: u64,
    /// By reason: queue full, claim exhausted, output failed, not admitted.
    pub by_reason: [u64; 4],
}

impl Drops {
    /// Whether the reasons account for the total.
    pub fn consistent(self) -> bool {
        self.by_reason.iter().map(|&n| u128::from(n)).sum::<u128>() == u128::from(self.total)
    }
}

/// What was met in the bytes, damage included. Everything that is a loss is here, not only in a complaint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Span record heads, complete or not, of any version.
    pub heads: u64,
    /// Heads whose record is cut, unterminated or glued to something else.
    pub torn: u64,
    /// Heads with a field outside the grammar.
    pub malformed: u64,
    /// Heads of a version other than 1.
    pub unknown_version: u64,
    /// Physical lines that hold more than one record.
    pub joined_lines: u64,
    /// Span records that repeat an earlier one exactly.
    pub duplicates: u64,
    /// Records that their writer cut at its length limit.
    pub truncated_records: u64,
    /// Names and attributes that their writer cut at its length limit.
    pub truncated_fields: u64,
    /// Copies of a record inside quotes, which are none.
    pub quoted: u64,
    /// Clock anchor records that are damaged.
    pub damaged_anchors: u64,
    /// Host identities that are damaged.
    pub damaged_host_identities: u64,
    /// Drop reports that are damaged.
    pub damaged_drop_reports: u64,
    /// Spans that end after their own record was made, or after the end of time.
    pub impossible_times: u64,
    /// Sources that could not be read to their end.
    pub unreadable: u64,
}

/// What became of a span record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It is in the trace.
    Kept,
    /// It is in the trace, but its times cannot be.
    Impossible,
    /// It repeats an earlier record and was left out.
    Duplicate,
}

/// Takes records in log order and makes a [`Trace`] of them. A log that goes on is shown by a clone that is finished.
#[derive(Clone, Default)]
pub struct TraceBuilder {
    groups: Groups,
    name_ids: Interner,
    names: Vec<Name>,
    kind_ids: HashTable<KindId>,
    kind_hash: DefaultHashBuilder,
    kinds: Vec<SpanKind>,
    /// By kind.
    facts: Vec<KindFacts>,
    attrs: Interner,
    device: Vec<bool>,
    /// By attribute text, whether its emitter cut it.
    attrs_truncated: Vec<bool>,
    /// By thread that decodes, what the numbers of its lexicon stand for.
    translations: Vec<Translation>,
    lives: Vec<Life>,
    current_life: Current,
    anchored_life: FxHashMap<(u64, Anchor), u32>,
    hosts: Vec<Host>,
    /// The lives of a process id on a host: by anchor, and the latest of all.
    hosted_life: FxHashMap<(u64, u64, Option<Anchor>), u32>,
    /// By stream and process id, the anchor that no identity has followed yet, and the life that it was given to, if
    /// that had none before.
    fresh_anchor: FxHashMap<(u32, u64), (Anchor, Option<u32>)>,
    device_anchors: Vec<(u32, DeviceClockAnchor)>,
    bind_phases: Vec<BindPhaseLine>,
    counts: Counts,
}

/// What is asked of each record's kind.
#[derive(Clone, Copy)]
struct KindFacts {
    /// The life of its process id, as of this epoch of [`Current`].
    epoch: u64,
    life: u32,
    /// What its spans are to an invocation.
    part: Part,
    /// Whether its name was cut.
    truncated: bool,
}

/// What the numbers of a lexicon stand for.
#[derive(Clone, Default)]
struct Translation {
    kinds: Vec<KindId>,
    attrs: Vec<AttrsId>,
}

impl TraceBuilder {
    /// A builder of an empty trace.
    pub fn new() -> TraceBuilder {
        TraceBuilder::default()
    }

    /// The counts so far, to be added to by whoever finds the records.
    pub fn counts_mut(&mut self) -> &mut Counts {
        &mut self.counts
    }

    /// Says that the records that follow are of another stream than those before, one of several that grow side by side.
    /// Which life a process id stands for is what its own stream said last: hosts have process ids in common. A stream
    /// that has said nothing of a process id means the life that was last spoken of in any.
    ///
    /// Streams that are read one after the other need no numbers.
    pub fn stream(&mut self, number: u32) {
        self.current_life.turn_to(number);
    }

    /// Takes a complete span record; `mono_ns` is its envelope's time, if it had one.
    pub fn span(&mut self, record: &RawSpan<'_>, mono_ns: Option<i64>) -> Admission {
        let kind = self.kind(record.pid, record.tid, record.hid, record.depth, record.name);
        let attrs = self.attributes(record.attrs);
        let RawSpan { inv, ts, dur, .. } = *record;
        let mono_ns = mono_ns.unwrap_or(NO_ENVELOPE);
        self.admit(kind, attrs, &Digest { inv, ts, dur, mono_ns, kind: 0, attrs: 0, offset: 0 })
    }

    /// Takes the words that are new in the next batch of the decoding thread with the number `reader`. Batches of one
    /// thread come in the order in which it made them; that is the order of the log.
    pub fn learn(&mut self, reader: usize, batch: &Batch) {
        if self.translations.len() <= reader {
            self.translations.resize_with(reader + 1, Translation::default);
        }
        for new in &batch.kinds {
            let kind = self.kind(new.pid, new.tid, new.hid, new.depth, batch.bytes(new.name));
            self.translations[reader].kinds.push(kind);
        }
        for &new in &batch.attrs {
            let attrs = self.attributes(batch.bytes(new));
            self.translations[reader].attrs.push(attrs);
        }
    }

    /// Takes some of the spans of the batch that `reader`'s last [`TraceBuilder::learn`] was about, and says what
    /// became of those that are not simply kept, with their place in the block.
    pub fn spans(
        &mut self,
        reader: usize,
        batch: &Batch,
        range: Range<usize>,
        mut became: impl FnMut(&mut TraceBuilder, u32, Admission),
    ) {
        for digest in &batch.spans[range] {
            let words = &self.translations[reader];
            let (kind, attrs) = (words.kinds[digest.kind as usize], words.attrs[digest.attrs as usize]);
            match self.admit(kind, attrs, digest) {
                Admission::Kept => {}
                other => became(self, digest.offset, other),
            }
        }
    }

    /// Looks the current life of a kind's process id up.
    #[cold]
    fn refresh_life(&mut self, kind: KindId) -> u32 {
        let life = self.life_of(self.kinds[kind.0 as usize].pid);
        let facts = &mut self.facts[kind.0 as usize];
        (facts.epoch, facts.life) = (self.current_life.epoch(), life);
        life
    }

    fn admit(&mut self, kind: KindId, attrs: AttrsId, record: &Digest) -> Admission {
        let device = self.device[attrs.0 as usize];
        let KindFacts { epoch, life, part, truncated } = self.facts[kind.0 as usize];
        let life = if epoch == self.current_life.epoch() { life } else { self.refresh_life(kind) };
        let kept = self.groups.add(life, record, kind, attrs, part, &self.kinds, &self.device);
        if !kept {
            self.counts.duplicates += 1;
            return Admission::Duplicate;
        }
        self.counts.truncated_fields +=
            u64::from(truncated) + u64::from(self.attrs_truncated[attrs.0 as usize]);
        let made = record.mono_ns;
        let possible = device
            || record
                .ts
                .checked_add(record.dur)
                .is_some_and(|end| made == NO_ENVELOPE || end.saturating_sub(FUTURE_MAX_NS) <= made);
        if possible {
            Admission::Kept
        } else {
            self.counts.impossible_times += 1;
            Admission::Impossible
        }
    }

    /// Takes a clock anchor. Another anchor than the current one of its process id begins a new life; one
    /// that was there before leads back to its life, as when a file is read twice.
    pub fn anchor(&mut self, record: ClockAnchor) {
        let anchor = Anchor { mono_ns: record.mono_ns, wall_ns: record.wall_ns };
        if let Some(&life) = self.anchored_life.get(&(record.pid, anchor)) {
            self.current_life.insert(record.pid, life);
            self.fresh_anchor.insert((self.current_life.stream(), record.pid), (anchor, None));
            return;
        }
        let current = self.life_of(record.pid);
        let life = match self.lives[current as usize].anchor {
            None => current,
            Some(_) => self.new_life(record.pid),
        };
        self.lives[life as usize].anchor = Some(anchor);
        self.anchored_life.insert((record.pid, anchor), life);
        self.fresh_anchor.insert((self.current_life.stream(), record.pid), (anchor, Some(life)));
    }

    /// Takes a host identity. It says of the current life of its process id where that ran. If that ran elsewhere, the
    /// records that follow are of another life: of the host's with the anchor that stands in front of the identity, or,
    /// without one, of the host's latest.
    pub fn host_identity(&mut self, record: &RawHostIdentity<'_>) {
        let RawHostIdentity { pid, host, name } = *record;
        hosts::note(&mut self.hosts, host, name);
        let fresh = self.fresh_anchor.remove(&(self.current_life.stream(), pid));
        let current = self.life_of(pid);
        let life = match self.lives[current as usize].host {
            None => current,
            Some(of) if of == host => current,
            Some(_) => {
                let anchor = fresh.map(|(anchor, _)| anchor);
                if let Some((anchor, Some(given_to))) = fresh {
                    // It was taken for the first anchor of a life that had lost its own.
                    self.lives[given_to as usize].anchor = None;
                    self.anchored_life.remove(&(pid, anchor));
                }
                match self.hosted_life.get(&(pid, host, anchor)) {
                    Some(&life) => life,
                    None => {
                        let life = self.new_life(pid);
                        self.lives[life as usize].anchor = anchor;
                        if let Some(anchor) = anchor {
                            self.anchored_life.entry((pid, anchor)).or_insert(life);
                        }
                        life
                    }
                }
            }
        };
        self.lives[life as usize].host = Some(host);
        self.current_life.insert(pid, life);
        self.hosted_life.insert((pid, host, None), life);
        if let Some(anchor) = self.lives[life as usize].anchor {
            self.hosted_life.insert((pid, host, Some(anchor)), life);
        }
    }

    /// Takes a pair of readings of a device's counter and the host's clock.
    pub fn device_anchor(&mut self, record: DeviceClockAnchor) {
        let life = self.life_of(record.pid);
        self.device_anchors.push((life, record));
    }

    /// Makes room for so many spans more, as far as there is memory for them.
    pub fn reserve(&mut self, spans: usize) {
        self.groups.reserve(spans);
    }

    /// Takes a drop report. Reports are cumulative, so the largest of a life counts.
    pub fn drop_report(&mut self, record: &DropReport) {
        let drops = Drops { total: record.total, by_reason: record.by_reason };
        let life = self.life_of(record.pid);
        let held = &mut self.lives[life as usize].drops;
        if held.is_none_or(|held| held.total <= drops.total) {
            *held = Some(drops);
        }
    }

    /// Takes a segment of a binding that stands in plain text.
    pub fn bind_phase(&mut self, line: &BindPhaseLine) {
        self.bind_phases.push(line.clone());
    }

    /// The finished trace.
    pub fn finish(mut self) -> Trace {
        // By life, invocation and time; a file that was read twice holds each twice.
        self.device_anchors.sort();
        self.device_anchors.dedup();
        self.bind_phases.sort();
        self.bind_phases.dedup();
        let (spans, groups, members) = self.groups.finish();
        for life in groups.lives() {
            self.lives[life as usize].has_spans = true;
        }
        let mut trace = Trace {
            spans,
            groups,
            names: self.names,
            kinds: self.kinds,
            attrs: self.attrs,
            device: self.device,
            track_pids: hosts::track_pids(&self.lives),
            lives: self.lives,
            hosts: self.hosts,
            counts: self.counts,
            device_anchors: self.device_anchors,
            bind_phases: self.bind_phases,
            invocations: Vec::new(),
            grouped: Vec::new(),
            orphans: OnceLock::new(),
            given_labels: FxHashMap::default(),
            whole: None,
        };
        (trace.invocations, trace.grouped) = invocation::group(&trace, &members);
        trace
    }

    fn life_of(&mut self, pid: u64) -> u32 {
        match self.current_life.get(&pid) {
            Some(&life) => life,
            None => self.new_life(pid),
        }
    }

    fn new_life(&mut self, pid: u64) -> u32 {
        let life = self.lives.len() as u32;
        self.lives.push(Life { pid, host: None, anchor: None, has_spans: false, drops: None });
        self.current_life.insert(pid, life);
        life
    }

    fn attributes(&mut self, raw: &[u8]) -> AttrsId {
        let (id, new) = self.attrs.intern(raw);
        if new {
            self.device.push(Attributes(raw).is_device());
            self.attrs_truncated.push(Attributes(raw).truncated());
        }
        AttrsId(id)
    }

    fn name(&mut self, encoded: &[u8]) -> NameId {
        let (id, new) = self.name_ids.intern(encoded);
        if new {
            self.names.push(Name::new(encoded));
        }
        NameId(id)
    }

    fn kind(&mut self, pid: u64, tid: u64, hid: u64, depth: u32, name: &[u8]) -> KindId {
        let name = self.name(name);
        let kind = SpanKind { pid, tid, hid, depth, name };
        let hash = |hasher: &DefaultHashBuilder, kind: &SpanKind| {
            hasher.hash_one((kind.pid, kind.tid, kind.hid, kind.depth, kind.name))
        };
        let (kinds, hasher) = (&self.kinds, &self.kind_hash);
        let hashed = hash(hasher, &kind);
        if let Some(&id) = self.kind_ids.find(hashed, |id| kinds[id.0 as usize] == kind) {
            return id;
        }
        let id = KindId(kinds.len() as u32);
        self.kind_ids.insert_unique(hashed, id, |id| hash(hasher, &kinds[id.0 as usize]));
        self.kinds.push(kind);
        let of = &self.names[name.0 as usize];
        let (part, truncated) = (Part::new(of, depth), of.truncated);
        self.facts.push(KindFacts { epoch: Current::NEVER, life: 0, part, truncated });
        id
    }
}

/// Whether spans of a family belong to invocations.
pub(crate) fn is_grouped(family: Family) -> bool {
    !matches!(family, Family::Scheduler | Family::External)
}

/// A whole log, ready to be asked.
pub struct Trace {
    pub(crate) spans: Vec<Span>,
    pub(crate) groups: Grouped,
    pub(crate) names: Vec<Name>,
    pub(crate) kinds: Vec<SpanKind>,
    attrs: Interner,
    device: Vec<bool>,
    lives: Vec<Life>,
    hosts: Vec<Host>,
    /// By life.
    track_pids: Vec<u64>,
    counts: Counts,
    /// By life, invocation and time.
    pub(crate) device_anchors: Vec<(u32, DeviceClockAnchor)>,
    /// By start.
    pub(crate) bind_phases: Vec<BindPhaseLine>,
    pub(crate) invocations: Vec<Invocation>,
    /// Indices into `spans`, the spans of each invocation together and in log order.
    pub(crate) grouped: Vec<u32>,
    /// Counted when first asked for: that takes a look at every span's parent.
    pub(crate) orphans: OnceLock<usize>,
    /// By hid.
    given_labels: FxHashMap<u64, Box<str>>,
    /// What the log was before a part of it was selected.
    pub(crate) whole: Option<Whole>,
}

impl Trace {
    /// All spans, in log order.
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// What was met in the bytes.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The process lives, in the order in which the log first speaks of them.
    pub fn lives(&self) -> &[Life] {
        &self.lives
    }

    /// The hosts that the log names, in the order in which it does. None for a log of before there were identities.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// Where a life ran, for people: only if the log names several hosts, whose pids could be confused.
    pub fn host_label(&self, life: &Life) -> Option<String> {
        hosts::label(&self.hosts, life.host?)
    }

    /// A number for the process of a life (an index into [`Trace::lives`]) that no process of another host has: its pid,
    /// unless another host has that one too and is named first.
    pub fn track_pid(&self, life: u32) -> u64 {
        self.track_pids[life as usize]
    }

    /// The invocations, ordered by pid, life, inv and start.
    pub fn invocations(&self) -> &[Invocation] {
        &self.invocations
    }

    /// The spans of an invocation, in log order.
    pub fn spans_of<'a>(&'a self, invocation: &Invocation) -> impl Iterator<Item = &'a Span> + Clone {
        self.grouped[invocation.range()].iter().map(|&index| &self.spans[index as usize])
    }

    /// Where in [`Trace::spans`] the spans of an invocation are, in log order.
    pub fn span_indices(&self, invocation: &Invocation) -> &[u32] {
        &self.grouped[invocation.range()]
    }

    /// All distinct names, in the order in which the log first has them.
    pub fn names(&self) -> &[Name] {
        &self.names
    }

    /// How many distinct attribute texts there are.
    pub fn attributes_len(&self) -> usize {
        self.device.len()
    }

    /// Which of the distinct attribute texts a span has, from 0 on.
    pub fn attributes_index(&self, span: &Span) -> usize {
        span.attrs.0 as usize
    }

    /// The name of a span.
    pub fn name(&self, span: &Span) -> &Name {
        &self.names[self.name_id(span).0 as usize]
    }

    /// Which of the distinct names a span has.
    pub fn name_id(&self, span: &Span) -> NameId {
        self.kinds[span.kind.0 as usize].name
    }

    /// The invocation number of a span as logged: unique at best within one process life.
    pub fn inv(&self, span: &Span) -> u64 {
        self.groups.of(span.group).inv
    }

    /// The identity of the callable that a span belongs to.
    pub fn hid(&self, span: &Span) -> u64 {
        self.kinds[span.kind.0 as usize].hid
    }

    /// The nesting depth of a span, 0 for a root.
    pub fn depth(&self, span: &Span) -> u32 {
        self.kinds[span.kind.0 as usize].depth
    }

    /// The thread that emitted a span.
    pub fn thread(&self, span: &Span) -> ThreadId {
        ThreadId { life: self.life_index(span), tid: self.tid(span) }
    }

    /// When the record of a span, by its place in [`Trace::spans`], was made, by its envelope; `None` if it stood
    /// without one.
    pub fn mono_ns(&self, index: u32) -> Option<i64> {
        let span = &self.spans[index as usize];
        self.groups.made(index, span, self.is_device(span))
    }

    /// The attributes of a span.
    pub fn attributes(&self, span: &Span) -> Attributes<'_> {
        Attributes(self.attrs.get(span.attrs.0))
    }

    /// Whether the span is on the device's clock.
    pub fn is_device(&self, span: &Span) -> bool {
        self.device[span.attrs.0 as usize]
    }

    /// The process life that emitted the span.
    pub fn life(&self, span: &Span) -> &Life {
        &self.lives[self.life_index(span) as usize]
    }

    /// The process life that an invocation ran in.
    pub fn life_of(&self, invocation: &Invocation) -> &Life {
        &self.lives[invocation.life as usize]
    }

    /// Where in [`Trace::lives`] the life is that emitted the span.
    pub fn life_index(&self, span: &Span) -> u32 {
        self.groups.of(span.group).life
    }

    /// The kernel's id of the thread that emitted the span.
    pub fn tid(&self, span: &Span) -> u64 {
        self.kinds[span.kind.0 as usize].tid
    }

    /// Whether the span belongs to an invocation: scheduler spans and external ones do not.
    pub fn is_grouped(&self, span: &Span) -> bool {
        is_grouped(self.name(span).family)
    }

    /// Calls a callable by a name that whoever reads the log has for it, whatever part it plays. The last name counts.
    pub fn name_callable(&mut self, hid: u64, label: impl Into<Box<str>>) {
        self.given_labels.insert(hid, label.into());
    }

    /// The name that a callable was given.
    pub fn given_label(&self, hid: u64) -> Option<&str> {
        self.given_labels.get(&hid).map(|label| &**label)
    }

    /// What parts the callables play, where that is not to be found from these invocations.
    pub(crate) fn roles(&self) -> Option<&FxHashMap<u64, Role>> {
        self.whole.as_ref().map(|whole| &whole.roles)
    }

    /// Records lost before they reached the log, over all lives.
    pub fn dropped(&self) -> u64 {
        self.lives.iter().filter_map(|life| life.drops).fold(0, |sum, drops| sum.saturating_add(drops.total))
    }

    /// The process ids that emitted spans but no clock anchor, ascending.
    pub fn pids_without_anchor(&self) -> Vec<u64> {
        let mut pids: Vec<u64> = self
            .lives
            .iter()
            .filter(|life| life.has_spans && life.anchor.is_none())
            .map(|life| life.pid)
            .collect();
        pids.sort_unstable();
        pids.dedup();
        pids
    }

    /// Spans below a root whose parent is missing. A span is logged with all that enclose it, so each is the
    /// trace of a lost record.
    pub fn orphans(&self) -> usize {
        let of = |invocation| {
            let spans: Vec<&Span> = self.spans_of(invocation).collect();
            let parents = parents(self, &spans);
            spans
                .iter()
                .zip(parents)
                .filter(|(span, parent)| self.depth(span) > 0 && parent.is_none())
                .count()
        };
        *self.orphans.get_or_init(|| self.invocations.iter().map(of).sum())
    }

    /// Whether some record is known to be missing, damaged or cut, so that the numbers may be bent: whether there are any
    /// [`Trace::losses`]. Said of the whole log, whatever part of it was selected.
    pub fn is_lossy(&self) -> bool {
        match &self.whole {
            Some(whole) => whole.lossy,
            None => self.losses().any(|(_, count)| count > 0),
        }
    }

    /// What is known to be missing, damaged or cut, and how often; 0 for what is not. A drop report that is damaged or
    /// contradicts itself may hide a loss, so it counts as one. The last are counted when they are asked for.
    pub fn losses(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = &self.counts;
        let drops = || self.lives.iter().filter_map(|life| life.drops);
        let inconsistent = drops().filter(|drops| !drops.consistent()).count() as u64;
        let known = [
            ("torn", counts.torn),
            ("malformed", counts.malformed),
            ("unknown_version", counts.unknown_version),
            ("truncated_records", counts.truncated_records),
            ("truncated_fields", counts.truncated_fields),
            ("damaged_anchors", counts.damaged_anchors),
            ("damaged_host_identities", counts.damaged_host_identities),
            ("damaged_drop_reports", counts.damaged_drop_reports),
            ("unreadable", counts.unreadable),
            ("dropped", self.dropped()),
            ("inconsistent_drop_reports", inconsistent),
        ];
        let of_invocations = [
            ("missing_roots", Trace::missing_roots as fn(&Trace) -> usize),
            ("orphans", Trace::orphans as fn(&Trace) -> usize),
        ];
        let counted = of_invocations.into_iter().map(|(what, count)| (what, count(self) as u64));
        known.into_iter().chain(counted)
    }

    /// Invocations whose root was lost.
    pub fn missing_roots(&self) -> usize {
        self.invocations.iter().filter(|invocation| invocation.root().is_none()).count()
    }
}
