//! A part of a log as a trace of its own: the invocations that are asked for, and what runs beside them.
//!
//! Each criterion is a question to one invocation, asked of the whole log: the first runs of a process are its first
//! whatever else is selected, and a callable is *decode* if it is that in the whole log. So the criteria can come in any
//! order; an invocation is selected if it meets all. They are gone through in one order all the same, so that it can be
//! said how many each has left out, and which has left nothing.
//!
//! Times are host times. An invocation starts with its root, or, where that is lost, with its earliest host span, and
//! ends with its root or its last host span. Spans outside of any invocation (schedulers', foreign ones) are asked where
//! a time is given, and else are all there.
//!
//! What is said of the log's losses ([`Trace::is_lossy`], [`Trace::counts`], drops) stays that of the whole log.

use crate::build::{Life, Trace};
use crate::callable::Role;
use crate::invocation::{Invocation, Kind};
use crate::span::Span;
use crate::wall_time::WallTime;
use rustc_hash::{FxHashMap, FxHashSet};
use std::ops::Range;
use std::sync::OnceLock;

/// Which invocations are asked for; by default all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Of these callables only; of all if there are none.
    pub hids: Vec<u64>,
    /// Those that start at this time or later.
    pub since: Option<WallTime>,
    /// Those that start before this time.
    pub until: Option<WallTime>,
    /// Those that share more than a touching end with these times, ns of `CLOCK_MONOTONIC`.
    pub overlapping: Option<Range<i64>>,
    /// Without so many first ones of each callable in each process life, by their start. Setup is no run and stays.
    pub skip_first: u64,
}

/// What an invocation is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Criterion {
    /// [`Selection::hids`].
    Hid,
    /// Whether its wall time is known, which the next two need.
    WallTime,
    /// [`Selection::since`].
    Since,
    /// [`Selection::until`].
    Until,
    /// [`Selection::overlapping`].
    Overlapping,
    /// [`Selection::skip_first`].
    SkipFirst,
}

/// In this order.
const CRITERIA: [Criterion; 6] = [
    Criterion::Hid,
    Criterion::WallTime,
    Criterion::Since,
    Criterion::Until,
    Criterion::Overlapping,
    Criterion::SkipFirst,
];

/// A part of a log.
pub struct Selected {
    /// The trace of it.
    pub trace: Trace,
    /// How many invocations each criterion has left out of those that the ones before had left; only those that have.
    pub left_out: Vec<(Criterion, usize)>,
}

/// No part at all was left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NothingLeft {
    /// The criterion that what was left did not meet.
    pub criterion: Criterion,
    /// From the first start to the last end in the whole log, ns of `CLOCK_MONOTONIC`, if it has host spans.
    pub monotonic_ns: Option<Range<i64>>,
    /// From the first start to the last start in the whole log, Unix time in ns, if it has wall times.
    pub starts_wall_ns: Option<(i64, i64)>,
}

/// What a trace of a part of a log still says of all of it.
pub(crate) struct Whole {
    spans: usize,
    invocations: usize,
    pub(crate) lossy: bool,
    pub(crate) roles: FxHashMap<u64, Role>,
    /// By pid and inv, the runs that were left out.
    left_out: FxHashSet<(u64, u64)>,
}

impl Trace {
    /// The trace of those invocations that are asked for. A criterion that asks nothing leaves out nothing.
    ///
    /// # Errors
    /// If there is no such invocation, or, in a log without any, no such span.
    pub fn select(mut self, selection: &Selection) -> Result<Selected, NothingLeft> {
        if *selection == Selection::default() {
            // Nothing is asked, which takes no look at every span.
            return Ok(Selected { trace: self, left_out: Vec::new() });
        }
        let asked = Asked::new(&self, selection);
        let mut kept: Vec<u32> = (0..self.invocations.len() as u32).collect();
        let mut left_out = Vec::new();
        for criterion in CRITERIA {
            let before = kept.len();
            kept.retain(|&index| asked.of_invocation(&self, criterion, index));
            if kept.len() < before {
                left_out.push((criterion, before - kept.len()));
                if kept.is_empty() {
                    return Err(asked.nothing_left(&self, criterion));
                }
            }
        }
        let outside: Vec<u32> = (0..self.spans.len() as u32)
            .filter(|&index| !self.is_grouped(&self.spans[index as usize]))
            .filter(|&index| asked.of_span(&self, &CRITERIA, index))
            .collect();
        if kept.is_empty() && outside.is_empty() && !self.spans.is_empty() {
            // The first of the criteria that together leave none.
            let up_to = (1..CRITERIA.len()).find(|&up_to| {
                let met = |index| asked.of_span(&self, &CRITERIA[..up_to], index);
                !(0..self.spans.len() as u32).any(met)
            });
            return Err(asked.nothing_left(&self, CRITERIA[up_to.unwrap_or(CRITERIA.len()) - 1]));
        }
        if kept.len() < self.invocations.len() || asked.has_times() {
            self.keep(&kept, &outside);
        }
        Ok(Selected { trace: self, left_out })
    }

    /// Says that this is a part of another trace: callables are called what they are called there.
    pub fn call_as_in(&mut self, whole: &Trace) {
        self.whole = Some(Whole {
            spans: whole.spans.len(),
            invocations: whole.invocations.len(),
            lossy: whole.is_lossy(),
            roles: whole.find_roles(&whole.buckets()),
            left_out: FxHashSet::default(),
        });
    }

    /// The callables of all invocations, in the order of their first one.
    pub fn hids(&self) -> Vec<u64> {
        let mut seen = FxHashSet::default();
        let hids = self.invocations.iter().map(|invocation| invocation.hid);
        hids.filter(|&hid| seen.insert(hid)).collect()
    }

    /// How many spans the whole log has, of which [`Trace::spans`] may be a selected part.
    pub fn spans_in_log(&self) -> usize {
        self.whole.as_ref().map_or(self.spans.len(), |whole| whole.spans)
    }

    /// How many invocations the whole log has, of which [`Trace::invocations`] may be a selected part.
    pub fn invocations_in_log(&self) -> usize {
        self.whole.as_ref().map_or(self.invocations.len(), |whole| whole.invocations)
    }

    /// Whether this is a part of a log.
    pub fn is_selected(&self) -> bool {
        self.whole.is_some()
    }

    /// Whether the log has invocations of this number in processes with this id, and none of them was selected.
    pub fn is_left_out(&self, pid: u64, inv: u64) -> bool {
        self.whole.as_ref().is_some_and(|whole| whole.left_out.contains(&(pid, inv)))
    }

    /// From an invocation's start to its end on the host; `None` if it has no host span.
    fn host_time(&self, invocation: &Invocation) -> Option<Range<i64>> {
        if let Some(root) = invocation.root_span(self).filter(|root| !self.is_device(root)) {
            return Some(root.ts..root.end());
        }
        let host = || self.spans_of(invocation).filter(|span| !self.is_device(span));
        let start = host().map(|span| span.ts).min()?;
        Some(start..host().map(Span::end).max()?)
    }

    /// Leaves these invocations and spans outside of any, both ascending.
    fn keep(&mut self, invocations: &[u32], outside: &[u32]) {
        let lossy = self.is_lossy();
        let key = |trace: &Trace, invocation: &Invocation| (trace.life_of(invocation).pid, invocation.inv);
        let of_all = self.invocations.iter().map(|invocation| key(self, invocation));
        let mut left_out: FxHashSet<(u64, u64)> = of_all.collect();
        for &index in invocations {
            left_out.remove(&key(self, &self.invocations[index as usize]));
        }
        let whole = Whole {
            spans: self.spans.len(),
            invocations: self.invocations.len(),
            lossy,
            roles: self.find_roles(&self.buckets()),
            left_out,
        };
        match &mut self.whole {
            // A part of a part is one of the same log.
            Some(held) => held.left_out.extend(whole.left_out),
            None => self.whole = Some(whole),
        }

        const GONE: u32 = u32::MAX;
        let mut places = vec![GONE; self.spans.len()];
        let of_kept = invocations.iter().map(|&index| &self.invocations[index as usize]);
        let inside = of_kept.flat_map(|invocation| self.span_indices(invocation));
        for &index in inside.chain(outside) {
            places[index as usize] = 0;
        }
        let held = places.iter_mut().filter(|place| **place != GONE);
        held.zip(0..).for_each(|(place, new)| *place = new);
        let place = |index: u32| Some(places[index as usize]).filter(|&place| place != GONE);

        let mut moved = Vec::with_capacity(invocations.len());
        let mut grouped: Vec<u32> = Vec::new();
        for &index in invocations {
            let invocation = self.invocations[index as usize];
            let first = grouped.len() as u32;
            grouped.extend(self.span_indices(&invocation).iter().filter_map(|&index| place(index)));
            moved.push(invocation.moved(invocation.root().and_then(place), first));
        }
        self.invocations = moved;
        self.grouped = grouped;
        self.groups.follow(place);
        let mut index = 0..;
        self.spans.retain(|_| index.next().is_some_and(|index| place(index).is_some()));
        self.orphans = OnceLock::new();
    }
}

/// A selection, with what has to be known of all invocations before one can be asked.
struct Asked<'a> {
    selection: &'a Selection,
    /// By invocation, from its start to its end.
    times: Vec<Option<Range<i64>>>,
    /// By invocation, whether it is one of the first that are to be skipped.
    first: Vec<bool>,
}

impl<'a> Asked<'a> {
    fn new(trace: &Trace, selection: &'a Selection) -> Asked<'a> {
        let times: Vec<_> = trace.invocations.iter().map(|invocation| trace.host_time(invocation)).collect();
        let mut first = vec![false; times.len()];
        if selection.skip_first > 0 {
            // Where no host span says when it was, the records of the device do.
            let start = |index: u32| {
                let made = || {
                    let spans = trace.span_indices(&trace.invocations[index as usize]);
                    spans.iter().filter_map(|&span| trace.mono_ns(span)).min()
                };
                times[index as usize].as_ref().map(|time| time.start).or_else(made).unwrap_or(i64::MAX)
            };
            let of = |index: u32| {
                let Invocation { life, hid, .. } = trace.invocations[index as usize];
                (life, hid)
            };
            let mut runs: Vec<u32> = (0..times.len() as u32)
                .filter(|&index| trace.invocations[index as usize].kind != Kind::Prewarm)
                .collect();
            runs.sort_by_cached_key(|&index| (of(index), start(index), index));
            for of_one in runs.chunk_by(|&a, &b| of(a) == of(b)) {
                let skipped = usize::try_from(selection.skip_first).unwrap_or(usize::MAX);
                of_one.iter().take(skipped).for_each(|&index| first[index as usize] = true);
            }
        }
        Asked { selection, times, first }
    }

    fn has_times(&self) -> bool {
        let Selection { since, until, overlapping, .. } = self.selection;
        since.is_some() || until.is_some() || overlapping.is_some()
    }

    fn of_invocation(&self, trace: &Trace, criterion: Criterion, index: u32) -> bool {
        let invocation = &trace.invocations[index as usize];
        match criterion {
            Criterion::Hid => self.selection.hids.is_empty() || self.selection.hids.contains(&invocation.hid),
            Criterion::SkipFirst => !self.first[index as usize],
            _ => self.of_time(criterion, trace.life_of(invocation), self.times[index as usize].as_ref()),
        }
    }

    /// Whether a span outside of any invocation meets those criteria that ask for a time.
    fn of_span(&self, trace: &Trace, criteria: &[Criterion], index: u32) -> bool {
        let span = &trace.spans[index as usize];
        let time = (!trace.is_device(span)).then(|| span.ts..span.end());
        criteria.iter().all(|&criterion| self.of_time(criterion, trace.life(span), time.as_ref()))
    }

    fn of_time(&self, criterion: Criterion, life: &Life, time: Option<&Range<i64>>) -> bool {
        let Selection { since, until, overlapping, .. } = self.selection;
        let wall = || wall_ns(life, time?);
        let starts = |met: &dyn Fn(i128) -> bool| wall().is_some_and(|ns| met(ns.into()));
        match criterion {
            Criterion::Hid | Criterion::SkipFirst => true,
            Criterion::WallTime => (since.is_none() && until.is_none()) || wall().is_some(),
            Criterion::Since => since.is_none_or(|since| starts(&|ns| ns >= since.unix_ns)),
            Criterion::Until => until.is_none_or(|until| starts(&|ns| ns < until.unix_ns)),
            Criterion::Overlapping => overlapping.as_ref().is_none_or(|window| {
                time.is_some_and(|time| time.start < window.end && window.start < time.end)
            }),
        }
    }

    fn nothing_left(&self, trace: &Trace, criterion: Criterion) -> NothingLeft {
        let outside = trace.spans.iter().filter(|span| !trace.is_grouped(span) && !trace.is_device(span));
        let outside = outside.map(|span| (trace.life(span), span.ts..span.end()));
        let invocations = trace.invocations.iter().zip(&self.times);
        let inside =
            invocations.filter_map(|(invocation, time)| Some((trace.life_of(invocation), time.clone()?)));
        // Where there are invocations, it is them that are asked for.
        let all: Vec<(&Life, Range<i64>)> =
            if trace.invocations.is_empty() { outside.collect() } else { inside.collect() };
        let start = all.iter().map(|(_, time)| time.start).min();
        let end = all.iter().map(|(_, time)| time.end).max();
        let walls = || all.iter().filter_map(|(life, time)| wall_ns(life, time));
        NothingLeft {
            criterion,
            monotonic_ns: start.zip(end).map(|(start, end)| start..end),
            starts_wall_ns: walls().min().zip(walls().max()),
        }
    }
}

/// The Unix time in ns of a start, if the process had taken its clock anchor by then.
fn wall_ns(life: &Life, time: &Range<i64>) -> Option<i64> {
    life.anchor?.wall_of(time.start)
}
