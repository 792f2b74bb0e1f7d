//! Host spans on their threads: what a thread is called, and where it is more than one lane.
//!
//! A pipeline runs several invocations at once, each in a slot, from one thread. Their spans overlap without nesting,
//! so each slot has a lane. The phases of a binding lie where its spans do, and what another thread recorded meanwhile
//! lies on that one. Spans of foreign producers decide nothing about ours: whatever they say, and whether they are there
//! or not, our lanes are the same.

use super::{Item, Picture, What};
use crate::event;
use crate::lanes::Nesting;
use rustc_hash::FxHashSet;
use simpler_trace_model::{Attributes, Family, HostPhase, HostPhases, Span, Trace};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Not of any invocation.
const NONE: u32 = u32::MAX;

/// A host span, or a phase of one.
#[derive(Clone, Copy)]
struct Host<'a> {
    /// The bind span, of a phase.
    span: &'a Span,
    phase: Option<&'a HostPhase>,
    invocation: Option<u32>,
    /// Whether it is a foreign producer's.
    foreign: bool,
}

/// Draws all host spans and all phases.
pub(super) fn place<'a>(trace: &'a Trace, phases: &'a HostPhases, picture: &mut Picture<'a>) {
    let mut invocations = vec![NONE; trace.spans().len()];
    for (number, invocation) in trace.invocations().iter().enumerate() {
        for &index in trace.span_indices(invocation) {
            invocations[index as usize] = number as u32;
        }
    }
    let number = |index: usize| Some(invocations[index]).filter(|&number| number != NONE);
    let mut spans = Vec::new();
    // Threads that emitted device spans of a chip.
    let mut chips = FxHashSet::default();
    for (index, span) in trace.spans().iter().enumerate() {
        let family = trace.name(span).family;
        if !trace.is_device(span) {
            let foreign = family == Family::External;
            spans.push(Host { span, phase: None, invocation: number(index), foreign });
        } else if family == Family::Chip {
            chips.insert((event::pid(trace, span), trace.tid(span)));
        }
    }
    spans.extend(phases.phases.iter().map(|phase| {
        let span = &trace.spans()[phase.bind];
        Host { span, phase: Some(phase), invocation: number(phase.bind), foreign: false }
    }));
    // Stable: of equal ones, the first in the log is the outer one.
    spans.sort_by_cached_key(|host| {
        (host.thread(trace), host.start(), Reverse(host.end()), host.depth(trace))
    });

    for spans in spans.chunk_by(|a, b| a.thread(trace) == b.thread(trace)) {
        let (pid, tid) = spans[0].thread(trace);
        let (foreign, own): (Vec<_>, Vec<_>) = spans.iter().partition(|host| host.foreign);
        let name = name(trace, tid, spans, chips.contains(&(pid, tid)));
        if let Some(slots) = slots(trace, &own) {
            for (slot, spans) in slots {
                let name = format!("pipeline slot {slot} (tid {tid})");
                picture.draw(pid, None, &name, spans.into_iter().map(Host::item));
            }
            let name = foreign_name(trace, tid, &foreign);
            picture.draw(pid, Some(tid), &name, foreign.into_iter().map(Host::item));
        } else if own.is_empty() || nest(spans) {
            picture.draw(pid, Some(tid), &name, spans.iter().copied().map(Host::item));
        } else {
            picture.draw(pid, Some(tid), &name, own.into_iter().map(Host::item));
            let name = format!("{} (tid {tid})", foreign_name(trace, tid, &foreign));
            picture.draw(pid, None, &name, foreign.into_iter().map(Host::item));
        }
    }
}

impl<'a> Host<'a> {
    /// Process and thread.
    fn thread(&self, trace: &Trace) -> (u64, u64) {
        (event::pid(trace, self.span), self.phase.map_or_else(|| trace.tid(self.span), |phase| phase.tid))
    }

    fn start(&self) -> i64 {
        self.phase.map_or(self.span.ts, |phase| phase.start_ns)
    }

    fn end(&self) -> i64 {
        self.phase.map_or_else(|| self.span.end(), |phase| phase.end_ns)
    }

    fn depth(&self, trace: &Trace) -> u32 {
        self.phase.map_or_else(|| trace.depth(self.span), |phase| phase.depth)
    }

    fn attributes(&self, trace: &'a Trace) -> Attributes<'a> {
        self.phase.map_or_else(|| trace.attributes(self.span), |phase| Attributes::new(&phase.attrs))
    }

    fn item(self) -> Item<'a> {
        let what = match self.phase {
            Some(phase) => What::Phase(phase, self.span),
            None => What::Host(self.span),
        };
        Item { start: self.start(), end: self.end(), home: self.invocation, what }
    }
}

/// Whether foreign spans leave our own where they would be without them.
fn nest(spans: &[Host<'_>]) -> bool {
    let (mut own, mut first) = (Nesting::default(), Nesting::default());
    spans.iter().all(|host| {
        let (start, end) = (host.start(), host.end());
        let in_first = host.foreign || own.place(start, end, host.invocation) == 0;
        !in_first || first.place(start, end, None) == 0
    })
}

/// A thread's own spans by slot, if some of them overlap and their slots tell those apart.
fn slots<'a>(trace: &Trace, own: &[Host<'a>]) -> Option<BTreeMap<i64, Vec<Host<'a>>>> {
    if !overlap(trace, own) {
        return None;
    }
    let mut slots: BTreeMap<i64, Vec<Host<'a>>> = BTreeMap::new();
    for host in own {
        // A run's slot is said by its root.
        let says = match host.invocation {
            Some(number) => trace.invocations()[number as usize].root_span(trace)?,
            None => host.span,
        };
        slots.entry(trace.attributes(says).integer("slot_id")?).or_default().push(*host);
    }
    // One slot alone still overlaps.
    (!slots.values().any(|spans| overlap(trace, spans))).then_some(slots)
}

/// Whether two spans of depth 0 do. They come in the order of their starts; touching ends do not overlap.
fn overlap(trace: &Trace, spans: &[Host<'_>]) -> bool {
    let mut roots = spans.iter().filter(|host| host.depth(trace) == 0);
    let Some(first) = roots.next() else { return false };
    let mut end = first.end();
    roots.any(|root| {
        let overlaps = root.start() < end;
        end = end.max(root.end());
        overlaps
    })
}

/// What a thread is called; `chip` if it emitted device spans of a chip.
fn name(trace: &Trace, tid: u64, spans: &[Host<'_>], chip: bool) -> String {
    let (mut facade, mut scheduler, mut worker, mut chip) = (false, false, false, chip);
    let (mut record_worker, mut submit_main) = (false, false);
    let mut workers = BTreeSet::new();
    let (foreign, own): (Vec<Host<'_>>, Vec<Host<'_>>) = spans.iter().partition(|host| host.foreign);
    for host in &own {
        let name = trace.name(host.span);
        chip |= name.family == Family::Chip;
        let node = name.family == Family::Scheduler;
        let attributes = host.attributes(trace);
        match attributes.get("host_phase_thread").as_deref() {
            Some("graph_record_worker") => record_worker = true,
            Some("graph_submit_main") => submit_main = true,
            _ => {}
        }
        let role = attributes.get("role");
        match (role.as_deref(), name.leaf()) {
            (Some("facade"), _) => facade = true,
            (_, "graph_build" | "submit") if node => facade = true,
            (Some("scheduler"), _) => scheduler = true,
            (role, _) if node || role == Some("worker") => {
                worker = true;
                workers.extend(attributes.get("worker_id"));
            }
            _ => {}
        }
    }
    if record_worker {
        "graph record worker".to_owned()
    } else if submit_main {
        "graph submit main".to_owned()
    } else if facade {
        "orchestrator / facade".to_owned()
    } else if scheduler {
        "scheduler".to_owned()
    } else if worker {
        match workers.first() {
            Some(id) if workers.len() == 1 => format!("worker {id}"),
            _ => "worker".to_owned(),
        }
    } else if chip {
        "chip child".to_owned()
    } else if own.is_empty() {
        foreign_name(trace, tid, &foreign)
    } else {
        format!("tid {tid}")
    }
}

/// What a track of foreign spans alone is called.
fn foreign_name(trace: &Trace, tid: u64, foreign: &[Host<'_>]) -> String {
    match event::producers(foreign.iter().map(|host| trace.name(host.span))) {
        Some(producers) => format!("ext {producers}"),
        None => format!("tid {tid}"),
    }
}
