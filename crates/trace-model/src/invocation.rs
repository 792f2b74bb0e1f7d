//! Invocations: the spans of one (life, pid, inv), and of one of several when the number was used again.
//!
//! `inv` should be unique within a process life, and often is. Real logs reuse it: workers that follow
//! each other in one process each count from 1. So roots that do not overlap in time are different
//! invocations; those that overlap are one. A span then belongs to the root in whose time it lies. Device
//! spans have no host time: theirs is when their record was made, and where that says nothing, they go with
//! the host span before them, since a run emits them after its host stages.

use crate::build::{Trace, is_grouped};
use crate::group::Members;
use crate::span::{GroupId, Name, Span};
use crate::vocabulary::Stage;
use std::ops::Range;

/// What an invocation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A run of a callable, its root present or lost.
    Run,
    /// Setup before any run.
    Prewarm,
    /// Spans of a family that the reader does not know.
    Other,
}

/// One call, with all its spans.
#[derive(Clone, Copy, Debug)]
pub struct Invocation {
    /// Index into the trace's lives.
    pub life: u32,
    /// The invocation number as logged.
    pub inv: u64,
    /// The callable: the root's, or the first record's where the root is lost.
    pub hid: u64,
    /// What it is.
    pub kind: Kind,
    root: Option<u32>,
    first: u32,
    len: u32,
}

impl Invocation {
    pub(crate) fn range(&self) -> Range<usize> {
        self.first as usize..(self.first + self.len) as usize
    }

    /// Where in the trace's spans the root is; `None` if it was lost.
    pub fn root_index(&self) -> Option<usize> {
        self.root.map(|index| index as usize)
    }

    pub(crate) fn root(&self) -> Option<u32> {
        self.root
    }

    /// The same with its root and its first span in other places.
    pub(crate) fn moved(self, root: Option<u32>, first: u32) -> Invocation {
        Invocation { root, first, ..self }
    }

    /// The root span; `None` if it was lost.
    pub fn root_span<'a>(&self, trace: &'a Trace) -> Option<&'a Span> {
        self.root_index().map(|index| &trace.spans[index])
    }

    /// The earliest span of a stage.
    pub fn stage<'a>(&self, trace: &'a Trace, stage: Stage) -> Option<&'a Span> {
        trace.spans_of(self).filter(|span| trace.name(span).stage == Some(stage)).min_by_key(|span| span.ts)
    }

    /// The earliest span of each name, in log order.
    pub fn by_name<'a>(&self, trace: &'a Trace) -> Vec<&'a Span> {
        let mut held: Vec<&Span> = Vec::with_capacity(self.len as usize);
        let mut slots = rustc_hash::FxHashMap::default();
        for span in trace.spans_of(self) {
            let slot = *slots.entry(trace.name_id(span)).or_insert(held.len());
            match held.get_mut(slot) {
                None => held.push(span),
                Some(earliest) if span.ts < earliest.ts => *earliest = span,
                Some(_) => {}
            }
        }
        held
    }

    /// The window of orchestrator and schedulers together, in ns: they run side by side, so it reaches from
    /// the first start to the last end. `None` if the log has neither.
    pub fn effective_ns(&self, trace: &Trace) -> Option<i64> {
        effective_ns(self.stage(trace, Stage::Orch), self.stage(trace, Stage::Sched))
    }
}

/// From the first start to the last end of whichever of the two there is.
pub(crate) fn effective_ns(orch: Option<&Span>, sched: Option<&Span>) -> Option<i64> {
    let windows = || orch.into_iter().chain(sched);
    let start = windows().map(|span| span.ts).min()?;
    let end = windows().map(Span::end).max()?;
    Some(end.saturating_sub(start))
}

/// What spans of a kind are to their invocation, or all of an invocation together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Part {
    /// Whether they belong to one.
    pub(crate) grouped: bool,
    /// Whether they speak of a run,
    pub(crate) run: bool,
    /// or of setup before any.
    pub(crate) prewarm: bool,
    /// Whether their depth is 0.
    pub(crate) top: bool,
    /// Whether they are a run's own root, if their depth is 0.
    pub(crate) root: bool,
}

impl Part {
    pub(crate) fn new(name: &Name, depth: u32) -> Part {
        Part {
            grouped: is_grouped(name.family),
            run: name.stage.is_some(),
            prewarm: name.prewarm,
            top: depth == 0,
            root: name.stage == Some(Stage::Root),
        }
    }
}

/// Groups the spans of `trace`: the invocations, and the span indices that their ranges refer to.
///
/// A large log does not fit into a processor's cache, so the spans are gone through once, in the order in which they lie
/// in memory.
pub(crate) fn group(trace: &Trace, members: &[Members]) -> (Vec<Invocation>, Vec<u32>) {
    let part = |index: u32| {
        let span = &trace.spans[index as usize];
        Part::new(trace.name(span), trace.depth(span))
    };
    let of = |id: GroupId| &members[id.0 as usize];
    let groups = in_order(trace, members);

    // By group, where its next span goes, and the callable of its root, or of its first span as long as no root has come.
    let mut next = vec![(0_u32, None); members.len()];
    let mut total = 0;
    for &id in &groups {
        next[id.0 as usize].0 = total;
        total += of(id).grouped;
    }
    let mut grouped = vec![0_u32; total as usize];
    for (span, index) in trace.spans.iter().zip(0..) {
        let group = span.group.0 as usize;
        if members[group].mixed && !part(index).grouped {
            continue;
        }
        let (place, hid) = &mut next[group];
        grouped[*place as usize] = index;
        *place += 1;
        if hid.is_none() || members[group].root() == Some(index) {
            *hid = Some(trace.hid(span));
        }
    }

    let mut invocations = Vec::with_capacity(groups.len());
    let mut first = 0;
    for id in groups {
        let group = &mut grouped[first..first + of(id).grouped as usize];
        if of(id).tops > 1 {
            let mut at = 0;
            for len in split(trace, group) {
                let indices = &group[at..at + len];
                let (root, all) = look_through(indices, part);
                let hid = trace.hid(&trace.spans[root.unwrap_or(indices[0]) as usize]);
                invocations.push(describe(trace, id, hid, root, all, first + at..first + at + len));
                at += len;
            }
        } else {
            let hid = next[id.0 as usize].1.unwrap_or_default();
            let all = first..first + group.len();
            invocations.push(describe(trace, id, hid, of(id).root(), of(id).part, all));
        }
        first += group.len();
    }
    (invocations, grouped)
}

/// The groups that have spans of invocations, by pid, life and inv.
fn in_order(trace: &Trace, members: &[Members]) -> Vec<GroupId> {
    let mut lives: Vec<(u64, Vec<GroupId>)> =
        trace.lives().iter().map(|life| (life.pid, Vec::new())).collect();
    for id in trace.groups.ids().filter(|id| members[id.0 as usize].grouped > 0) {
        lives[trace.groups.of(id).life as usize].1.push(id);
    }
    lives.sort_by_key(|&(pid, _)| pid);
    for (_, groups) in &mut lives {
        // They come nearly in this order.
        groups.sort_by_key(|&id| trace.groups.of(id).inv);
    }
    lives.into_iter().flat_map(|(_, groups)| groups).collect()
}

/// The root among spans, and what they are together; as [`Members`](crate::group::Members) are told while they come.
fn look_through(indices: &[u32], part: impl Fn(u32) -> Part) -> (Option<u32>, Part) {
    let mut root: Option<u32> = None;
    let mut all = Part::default();
    for &index in indices {
        let own = part(index);
        all.run |= own.run;
        all.prewarm |= own.prewarm;
        // A run's own root goes before any other depth-0 span of its invocation.
        if own.top && root.is_none_or(|held| own.root && !part(held).root) {
            root = Some(index);
        }
    }
    (root, all)
}

fn describe(
    trace: &Trace,
    id: GroupId,
    hid: u64,
    root: Option<u32>,
    part: Part,
    spans: Range<usize>,
) -> Invocation {
    let of = trace.groups.of(id);
    Invocation {
        life: of.life,
        inv: of.inv,
        hid,
        kind: match (part.run, part.prewarm) {
            (true, _) => Kind::Run,
            (false, true) => Kind::Prewarm,
            (false, false) => Kind::Other,
        },
        root,
        first: spans.start as u32,
        len: spans.len() as u32,
    }
}

/// Orders a group of one (life, pid, inv) so that the spans of each invocation stand together, in time
/// order of the invocations and in log order within, and returns the lengths.
fn split(trace: &Trace, group: &mut [u32]) -> Vec<usize> {
    let span = |index: u32| &trace.spans[index as usize];
    let roots = group.iter().map(|&index| span(index)).filter(|span| trace.depth(span) == 0);
    let windows = root_windows(roots);
    if windows.len() < 2 {
        return vec![group.len()];
    }

    // Part 2k + 1 is the k-th root's, part 2k what lies before it and after the one before: the remains of
    // an invocation whose root was lost.
    let part_at = |ts: i64| {
        let after = windows.partition_point(|window| window.start <= ts);
        match after.checked_sub(1) {
            Some(k) if ts <= windows[k].end => 2 * k + 1,
            _ => 2 * after,
        }
    };
    let mut parts: Vec<Option<usize>> = group
        .iter()
        .map(|&index| {
            let span = span(index);
            match (trace.is_device(span), trace.mono_ns(index)) {
                (false, _) => Some(part_at(span.ts)),
                (true, Some(made)) => Some(part_at(made)).filter(|part| part % 2 == 1),
                (true, None) => None,
            }
        })
        .collect();
    let mut before = parts.iter().flatten().next().copied();
    for part in &mut parts {
        before = part.or(before);
        *part = before;
    }

    let mut tagged: Vec<(usize, u32)> =
        parts.into_iter().map(Option::unwrap_or_default).zip(group.iter().copied()).collect();
    tagged.sort_by_key(|&(part, _)| part);
    for (place, (_, index)) in group.iter_mut().zip(&tagged) {
        *place = *index;
    }
    tagged.chunk_by(|a, b| a.0 == b.0).map(<[_]>::len).collect()
}

/// The times that roots cover, roots that overlap merged. Touching ends do not overlap.
fn root_windows<'a>(roots: impl Iterator<Item = &'a Span>) -> Vec<Range<i64>> {
    let mut windows: Vec<Range<i64>> = roots.map(|root| root.ts..root.end()).collect();
    windows.sort_unstable_by_key(|window| (window.start, window.end));
    let mut merged: Vec<Range<i64>> = Vec::new();
    for window in windows {
        match merged.last_mut() {
            Some(last) if window.start < last.end => last.end = last.end.max(window.end),
            _ => merged.push(window),
        }
    }
    merged
}
