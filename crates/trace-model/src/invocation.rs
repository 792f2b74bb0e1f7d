//! Invocations: the spans of one (life, pid, inv), and of one of several when the number was used again.
//!
//! `inv` should be unique within a process life, and often is. Real logs reuse it: workers that follow
//! each other in one process each count from 1. So roots that do not overlap in time are different
//! invocations; those that overlap are one. A span then belongs to the root in whose time it lies. Device
//! spans have no host time: theirs is when their record was made, and where that says nothing, they go with
//! the host span before them, since a run emits them after its host stages.

use crate::build::Trace;
use crate::span::Span;
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
            let slot = *slots.entry(span.name).or_insert(held.len());
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
        let orch = self.stage(trace, Stage::Orch);
        let sched = self.stage(trace, Stage::Sched);
        let start = orch.iter().chain(&sched).map(|span| span.ts).min()?;
        let end = orch.iter().chain(&sched).map(|span| span.end()).max()?;
        Some(end.saturating_sub(start))
    }
}

/// Groups the spans of `trace`: the invocations, and the span indices that their ranges refer to.
pub(crate) fn group(trace: &Trace) -> (Vec<Invocation>, Vec<u32>) {
    let spans = &trace.spans;
    let key = |index: u32| {
        let span = &spans[index as usize];
        let life = trace.life_index(span);
        (trace.lives()[life as usize].pid, life, span.inv)
    };
    let mut grouped: Vec<u32> =
        (0..spans.len() as u32).filter(|&index| trace.is_grouped(&spans[index as usize])).collect();
    // Stable, so that log order holds within a group; and quick, since logs are nearly in this order.
    grouped.sort_by_key(|&index| key(index));

    let mut invocations = Vec::new();
    let mut first = 0;
    while first < grouped.len() {
        let of = key(grouped[first]);
        let len = grouped[first..].iter().take_while(|&&index| key(index) == of).count();
        let group = &mut grouped[first..first + len];
        let mut at = first;
        for part in split(trace, group) {
            invocations.push(describe(trace, &grouped[at..at + part], at));
            at += part;
        }
        first += len;
    }
    (invocations, grouped)
}

/// Orders a group of one (life, pid, inv) so that the spans of each invocation stand together, in time
/// order of the invocations and in log order within, and returns the lengths.
fn split(trace: &Trace, group: &mut [u32]) -> Vec<usize> {
    let span = |index: u32| &trace.spans[index as usize];
    let windows = root_windows(group.iter().map(|&index| span(index)).filter(|span| span.depth == 0));
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
            match (trace.is_device(span), span.mono_ns()) {
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
        if span(index).depth > 0 {
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
        inv: leader.inv,
        hid: leader.hid,
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
