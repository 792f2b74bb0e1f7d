//! The spans as they come, each with those of its (life, inv): that tells at once whether a record was there before.
//!
//! Records of one invocation stand close together in a log, so a repeated one is looked for among the few that its
//! group has, from the last one back, and only where a filter of 64 bits does not rule it out. A group that grows
//! beyond any invocation's size (spans outside of any run share an inv) is asked by fingerprint instead, so the time
//! for each record is bounded.

use crate::digest::Digest;
use crate::invocation::Part;
use crate::span::{AttrsId, GroupId, KindId, NO_ENVELOPE, Span, SpanKind};
use hashbrown::{DefaultHashBuilder, HashTable};
use rustc_hash::FxHashMap;
use std::hash::BuildHasher;

/// Up to how many spans a group is looked through one by one.
const LOOKED_THROUGH_MAX: u32 = 64;

/// No span.
const NONE: u32 = u32::MAX;

/// The lag of a span without an envelope.
const NO_LAG: u32 = 0;

/// The lag of a span whose record was made long after it, or before.
const FAR_LAG: u32 = u32::MAX;

/// Lags below this are those of records that were made before the time that they are counted from.
const LAG_ORIGIN: i64 = 1 << 20;

/// Which life of each process id is the current one.
#[derive(Clone, Default)]
pub(crate) struct Current {
    /// In any stream.
    lives: FxHashMap<u64, u32>,
    /// In one of several streams.
    by_stream: FxHashMap<(u32, u64), u32>,
    stream: u32,
    changes: u64,
}

impl Current {
    /// An epoch before all.
    pub(crate) const NEVER: u64 = u64::MAX;

    /// Another one whenever something has changed.
    pub(crate) fn epoch(&self) -> u64 {
        self.changes
    }

    /// The stream whose records come now.
    pub(crate) fn stream(&self) -> u32 {
        self.stream
    }

    pub(crate) fn turn_to(&mut self, stream: u32) {
        if std::mem::replace(&mut self.stream, stream) != stream {
            self.changes += 1;
        }
    }

    pub(crate) fn get(&self, pid: &u64) -> Option<&u32> {
        self.by_stream.get(&(self.stream, *pid)).or_else(|| self.lives.get(pid))
    }

    pub(crate) fn insert(&mut self, pid: u64, life: u32) {
        let in_stream = self.by_stream.insert((self.stream, pid), life);
        let in_any = self.lives.insert(pid, life);
        if in_stream != Some(life) || in_any != Some(life) {
            self.changes += 1;
        }
    }
}

/// One (life, inv).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    pub(crate) inv: u64,
    pub(crate) life: u32,
    /// The envelope's time of its first record; device spans' are counted from it.
    made_ns: i64,
}

/// All groups of a whole trace.
#[derive(Clone, Default)]
pub(crate) struct Grouped {
    groups: Vec<Group>,
    /// By span, the times that no lag can tell.
    far: FxHashMap<u32, i64>,
}

impl Grouped {
    pub(crate) fn of(&self, id: GroupId) -> &Group {
        &self.groups[id.0 as usize]
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = GroupId> + use<> {
        (0..self.groups.len() as u32).map(GroupId)
    }

    /// The life of each group.
    pub(crate) fn lives(&self) -> impl Iterator<Item = u32> {
        self.groups.iter().map(|group| group.life)
    }

    /// Follows the spans to their new places, of those that have one.
    pub(crate) fn follow(&mut self, place: impl Fn(u32) -> Option<u32>) {
        let far = std::mem::take(&mut self.far).into_iter();
        self.far = far.filter_map(|(index, made)| Some((place(index)?, made))).collect();
    }

    /// When the record of a span was made.
    pub(crate) fn made(&self, index: u32, span: &Span, device: bool) -> Option<i64> {
        match span.lag {
            NO_LAG => None,
            FAR_LAG => self.far.get(&index).copied(),
            lag => {
                Some(origin(self.of(span.group), span.ts, span.dur, device).saturating_add(i64::from(lag)))
            }
        }
    }
}

/// From where the lag of a record counts.
fn origin(group: &Group, ts: i64, dur: i64, device: bool) -> i64 {
    let reference = if device { group.made_ns } else { ts.saturating_add(dur) };
    reference.saturating_sub(LAG_ORIGIN)
}

/// What is known of a group's members while they come.
#[derive(Clone, Copy)]
pub(crate) struct Members {
    /// What tells them apart.
    filter: u64,
    last: u32,
    len: u32,
    /// How many of them belong to invocations.
    pub(crate) grouped: u32,
    /// Of these, how many have depth 0, and the last such.
    pub(crate) tops: u32,
    top: u32,
    /// What those that belong to invocations are together.
    pub(crate) part: Part,
    /// Whether some belong to none.
    pub(crate) mixed: bool,
}

impl Default for Members {
    fn default() -> Members {
        Members {
            filter: 0,
            last: NONE,
            len: 0,
            grouped: 0,
            tops: 0,
            top: NONE,
            part: Part::default(),
            mixed: false,
        }
    }
}

impl Members {
    fn add(&mut self, index: u32, part: Part) {
        if part.grouped {
            self.grouped += 1;
            if part.top {
                self.top = index;
                self.tops += 1;
            }
            self.part.run |= part.run;
            self.part.prewarm |= part.prewarm;
        }
        self.mixed |= !part.grouped;
        self.last = index;
    }

    /// The root, if there are not several that it might be.
    pub(crate) fn root(&self) -> Option<u32> {
        (self.top != NONE).then_some(self.top)
    }
}

/// The groups of a life.
#[derive(Clone, Default)]
struct OfLife {
    /// The one that a record was last added to.
    recent: Option<GroupId>,
    /// Those whose inv is larger than all before them, as nearly every one's is when it is first seen.
    ascending: Vec<GroupId>,
}

/// The spans so far.
#[derive(Clone, Default)]
pub(crate) struct Groups {
    spans: Vec<Span>,
    /// By span, the one before it in its group.
    before: Vec<u32>,
    grouped: Grouped,
    members: Vec<Members>,
    /// By life.
    of_life: Vec<OfLife>,
    /// The groups whose inv came after a larger one.
    late: HashTable<GroupId>,
    hash: DefaultHashBuilder,
    /// Fingerprints of the spans of large groups. 64 bits stand for each; among ten million the chance that two
    /// different ones share theirs is below one in a hundred thousand.
    seen: HashTable<u64>,
}

impl Groups {
    /// Makes room for so many spans, as far as there is memory for them, so that none is moved while they come.
    pub(crate) fn reserve(&mut self, spans: usize) {
        // Without the room they are moved now and then.
        let _ = self.spans.try_reserve_exact(spans);
        let _ = self.before.try_reserve_exact(spans);
    }

    /// Adds a span unless an equal record came before.
    #[expect(clippy::too_many_arguments, reason = "the builder's own columns")]
    #[inline]
    pub(crate) fn add(
        &mut self,
        life: u32,
        record: &Digest,
        kind: KindId,
        attrs: AttrsId,
        part: Part,
        kinds: &[SpanKind],
        devices: &[bool],
    ) -> bool {
        let device = devices[attrs.0 as usize];
        let id = self.group(life, record);
        let Members { filter, last, len, .. } = self.members[id.0 as usize];
        let bit = 1 << (mix(record.ts as u64 ^ (record.dur as u64).rotate_left(32)) >> 58);
        // A device span without an envelope carries nothing that tells its time from another's.
        let comparable = record.mono_ns != NO_ENVELOPE || !device;
        if comparable {
            let known = match len {
                0..LOOKED_THROUGH_MAX => filter & bit != 0 && self.holds(last, record, kind, kinds, devices),
                _ => {
                    if len == LOOKED_THROUGH_MAX {
                        self.note_all(last, id, kinds, devices);
                    }
                    !self.note(fingerprint(
                        id,
                        record.mono_ns,
                        record.ts,
                        record.dur,
                        &kinds[kind.0 as usize],
                    ))
                }
            };
            if known {
                // Nothing has changed, but a note of all members is made once.
                if len == LOOKED_THROUGH_MAX {
                    self.members[id.0 as usize].len += 1;
                }
                return false;
            }
        }
        let index = self.spans.len() as u32;
        let lag = match record.mono_ns {
            NO_ENVELOPE => NO_LAG,
            made => {
                let from = origin(self.grouped.of(id), record.ts, record.dur, device);
                match u32::try_from(i128::from(made) - i128::from(from)) {
                    Ok(lag) if lag != NO_LAG && lag != FAR_LAG => lag,
                    _ => {
                        self.grouped.far.insert(index, made);
                        FAR_LAG
                    }
                }
            }
        };
        self.spans.push(Span { ts: record.ts, dur: record.dur, kind, attrs, group: id, lag });
        self.before.push(last);
        let len = if comparable || len != LOOKED_THROUGH_MAX { len.saturating_add(1) } else { len };
        let members = &mut self.members[id.0 as usize];
        members.add(index, part);
        (members.filter, members.len) = (filter | bit, len);
        true
    }

    /// The spans in log order, their groups, and what those have for members.
    pub(crate) fn finish(self) -> (Vec<Span>, Grouped, Vec<Members>) {
        (self.spans, self.grouped, self.members)
    }

    #[inline]
    fn group(&mut self, life: u32, record: &Digest) -> GroupId {
        let slot = life as usize;
        if self.of_life.len() <= slot {
            self.of_life.resize_with(slot + 1, OfLife::default);
        }
        if let Some(id) = self.of_life[slot].recent
            && self.grouped.of(id).inv == record.inv
        {
            return id;
        }
        let id = self.find(life, record.inv).unwrap_or_else(|| self.open(life, record));
        self.of_life[slot].recent = Some(id);
        id
    }

    fn find(&self, life: u32, inv: u64) -> Option<GroupId> {
        let ascending = &self.of_life[life as usize].ascending;
        let inv_of = |id: &GroupId| self.grouped.of(*id).inv;
        let back = inv_of(ascending.last()?).checked_sub(inv)?;
        // Where it is if no number is left out.
        let near = usize::try_from(back).ok().and_then(|back| ascending.len().checked_sub(back + 1));
        if let Some(&id) = near.map(|at| &ascending[at])
            && inv_of(&id) == inv
        {
            return Some(id);
        }
        if let Ok(at) = ascending.binary_search_by_key(&inv, inv_of) {
            return Some(ascending[at]);
        }
        let same = |id: &GroupId| {
            let group = self.grouped.of(*id);
            (group.life, group.inv) == (life, inv)
        };
        self.late.find(self.hash.hash_one((life, inv)), same).copied()
    }

    fn open(&mut self, life: u32, record: &Digest) -> GroupId {
        let id = GroupId(self.grouped.groups.len() as u32);
        let made_ns = if record.mono_ns == NO_ENVELOPE { 0 } else { record.mono_ns };
        self.grouped.groups.push(Group { inv: record.inv, life, made_ns });
        self.members.push(Members::default());
        let ascending = &mut self.of_life[life as usize].ascending;
        let (groups, hash) = (&self.grouped.groups, &self.hash);
        if ascending.last().is_none_or(|last| groups[last.0 as usize].inv < record.inv) {
            ascending.push(id);
        } else {
            let of = |id: &GroupId| {
                let group = &groups[id.0 as usize];
                hash.hash_one((group.life, group.inv))
            };
            self.late.insert_unique(of(&id), id, of);
        }
        id
    }

    /// Whether a group holds an equal record, from its last one back.
    #[cold]
    fn holds(&self, last: u32, record: &Digest, kind: KindId, kinds: &[SpanKind], devices: &[bool]) -> bool {
        let mut at = last;
        while at != NONE {
            let span = &self.spans[at as usize];
            if (span.ts, span.dur) == (record.ts, record.dur) {
                let device = devices[span.attrs.0 as usize];
                let made = self.grouped.made(at, span, device);
                let (a, b) = (&kinds[span.kind.0 as usize], &kinds[kind.0 as usize]);
                let same = (a.tid, a.depth, a.name) == (b.tid, b.depth, b.name)
                    && made.unwrap_or(NO_ENVELOPE) == record.mono_ns;
                if same && (made.is_some() || !device) {
                    return true;
                }
            }
            at = self.before[at as usize];
        }
        false
    }

    /// Notes the fingerprints of all of a group's spans.
    #[cold]
    fn note_all(&mut self, last: u32, id: GroupId, kinds: &[SpanKind], devices: &[bool]) {
        let mut at = last;
        while at != NONE {
            let span = self.spans[at as usize];
            let device = devices[span.attrs.0 as usize];
            let made = self.grouped.made(at, &span, device);
            if made.is_some() || !device {
                let kind = &kinds[span.kind.0 as usize];
                self.note(fingerprint(id, made.unwrap_or(NO_ENVELOPE), span.ts, span.dur, kind));
            }
            at = self.before[at as usize];
        }
    }

    /// Notes a fingerprint; false if it was there.
    fn note(&mut self, print: u64) -> bool {
        if self.seen.find(print, |&held| held == print).is_some() {
            return false;
        }
        self.seen.insert_unique(print, print, |&held| held);
        true
    }
}

/// A number in which each bit of the word has its say at the top.
fn mix(word: u64) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    (word ^ (word >> 32)).wrapping_mul(ODD)
}

/// What tells a record from every other that is not equal: 64 bits by folded 64 × 64 → 128 multiplication.
fn fingerprint(group: GroupId, made_ns: i64, ts: i64, dur: i64, kind: &SpanKind) -> u64 {
    const ODD: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0xd1b5_4a32_d192_ed03];
    let words = [
        made_ns as u64,
        u64::from(group.0),
        kind.tid,
        u64::from(kind.depth),
        u64::from(kind.name.0),
        ts as u64,
        dur as u64,
        ODD[0],
    ];
    words.into_iter().fold(ODD[1], |print, word| {
        let product = u128::from(print ^ word) * u128::from(ODD[0]);
        (product as u64 ^ (product >> 64) as u64).wrapping_add(ODD[1])
    })
}
