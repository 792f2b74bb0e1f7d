//! Invocations: the spans of one (life, pid, inv), and of one of several when the number was used again.
//!
//! `inv` should be unique within a process life, and often is. Real logs reuse it: workers that follow
//! each other in one process each count from 1. So roots that do not overlap in time are different
//! invocations; those that overlap are one. A span then belongs to the root in whose time it lies. Device
//! spans have no host time: theirs is when their record was made, and where that says nothing, they go with
//! the host span before them, since a run emits them after its host stages.

use crate::build::Trace;
use crate::span::{GroupId, Span, SpanKind};
use crate::vocabulary::{Family, Stage};
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

/// Groups the spans of `trace`: the invocations, and the span indices that their ranges refer to.
pub(crate) fn group(trace: &Trace) -> (Vec<Invocation>, Vec<u32>) {
    let spans = &trace.spans;
    let in_none = |kind: &SpanKind| {
        let family = trace.names[kind.name.0 as usize].family;
        matches!(family, Family::Scheduler | Family::External)
    };
    let grouped_kinds: Vec<bool> = trace.kinds.iter().map(|kind| !in_none(kind)).collect();
    let is_grouped = |span: &&Span| grouped_kinds[span.kind.0 as usize];
    let mut lens = vec![0_u32; trace.groups.len()];
    spans.iter().filter(is_grouped).for_each(|span| lens[span.group.0 as usize] += 1);

    // By pid, life and inv. The groups of a life come nearly in the order of their inv.
    let mut by_life: Vec<Vec<GroupId>> = vec![Vec::new(); trace.lives().len()];
    for id in (0..trace.groups.len() as u32).map(GroupId).filter(|id| lens[id.0 as usize] > 0) {
        by_life[trace.groups.of(id).life as usize].push(id);
    }
    let mut lives: Vec<u32> = (0..by_life.len() as u32).collect();
    lives.sort_by_key(|&life| trace.lives()[life as usize].pid);
    let mut order: Vec<GroupId> = Vec::new();
    for life in lives {
        let of = &mut by_life[life as usize];
        of.sort_by_key(|&id| trace.groups.of(id).inv);
        order.append(of);
    }

    // Within a group log order holds.
    let mut ends = vec![0_u32; trace.groups.len()];
    let mut total = 0;
    for id in &order {
        ends[id.0 as usize] = total;
        total += lens[id.0 as usize];
    }
    let mut grouped = vec![0_u32; total as usize];
    for (index, span) in spans.iter().enumerate().filter(|(_, span)| is_grouped(span)) {
        let end = &mut ends[span.group.0 as usize];
        grouped[*end as usize] = index as u32;
        *end += 1;
    }

    let mut invocations = Vec::with_capacity(order.len());
    let mut first = 0;
    for id in order {
        let len = lens[id.0 as usize] as usize;
        let group = &mut grouped[first..first + len];
        let roots = group.iter().filter(|&&index| trace.depth(&spans[index as usize]) == 0).count();
        if roots < 2 {
            invocations.push(describe(trace, group, first));
        } else {
            let mut at = first;
            for part in split(trace, group) {
                invocations.push(describe(trace, &grouped[at..at + part], at));
                at += part;
            }
        }
        first += len;
    }
    (invocations, grouped)
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

fn describe(trace: &Trace, indices: &[u32], first: usize) -> Invocation {
    let span = |index: u32| &trace.spans[index as usize];
    let mut root: Option<u32> = None;
    let (mut run, mut prewarm) = (false, false);
    for &index in indices {
        let name = trace.name(span(index));
        run |= name.stage.is_some();
        prewarm |= name.prewarm;
        if trace.depth(span(index)) > 0 {
            continue;
        }
        // A run's own root goes before any other depth-0 span of its invocation.
        let better =
            |held: u32| name.stage == Some(Stage::Root) && trace.name(span(held)).stage != Some(Stage::Root);
        if root.is_none_or(better) {
            root = Some(index);
        }
    }
    let leader = span(root.unwrap_or(indices[0]));
    Invocation {
        life: trace.life_index(leader),
        inv: trace.inv(leader),
        hid: trace.hid(leader),
        kind: match (run, prewarm) {
            (true, _) => Kind::Run,
            (false, true) => Kind::Prewarm,
            (false, false) => Kind::Other,
        },
        root,
        first: first as u32,
        len: indices.len() as u32,
    }
}
