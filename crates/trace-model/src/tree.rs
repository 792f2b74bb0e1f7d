//! Call trees: which span is whose child, in one invocation and over all of a callable's.
//!
//! A span's parent is the span at the next lower depth in the same invocation whose name is the longest
//! dotted prefix of its own; if there is none, the most recent one at that depth. Timestamps have no say:
//! host and device have different clocks. A span without a parent by that rule is an orphan; it is kept and
//! drawn under the nearest ancestor that its name allows.

use crate::build::Trace;
use crate::callable::Callable;
use crate::span::{NameId, Span};
use crate::statistics::median_ns;
use crate::vocabulary::Stage;
use rustc_hash::FxHashMap;
use simpler_record_format::NAME_BYTES;

/// How deep a drawn tree gets; what lies deeper is drawn at this depth. Names end long before, but a log may
/// claim any depth, and the tree is walked by recursion.
pub(crate) const LEVELS_MAX: usize = 64;

/// For each of an invocation's spans, in log order, the position of its parent among them. A root has none,
/// and neither has an orphan.
pub fn parents(trace: &Trace, spans: &[&Span]) -> Vec<Option<usize>> {
    let mut by_depth: FxHashMap<u32, Vec<usize>> = FxHashMap::default();
    let mut by_name: FxHashMap<(u32, &str), Vec<usize>> = FxHashMap::default();
    for (at, span) in spans.iter().enumerate() {
        by_depth.entry(trace.depth(span)).or_default().push(at);
        by_name.entry((trace.depth(span), &trace.name(span).text)).or_default().push(at);
    }
    spans
        .iter()
        .enumerate()
        .map(|(at, span)| {
            let above = trace.depth(span).checked_sub(1)?;
            for prefix in dotted_prefixes(&trace.name(span).text) {
                if let Some(named) = by_name.get(&(above, prefix)) {
                    // A host span is emitted when it ends, after its children; a device span before them.
                    return if trace.is_device(span) && trace.is_device(spans[named[0]]) {
                        last_before(named, at).or_else(|| first_after(named, at))
                    } else {
                        first_after(named, at).or_else(|| last_before(named, at))
                    };
                }
            }
            let all = by_depth.get(&above)?;
            last_before(all, at).or_else(|| first_after(all, at))
        })
        .collect()
}

/// The parents, and for each orphan what it is drawn under: the span whose name is the longest dotted prefix of its own,
/// at any lower depth; else `root`, a position too.
pub(crate) fn hung(
    trace: &Trace,
    spans: &[&Span],
    parents: &[Option<usize>],
    root: Option<usize>,
) -> Vec<Option<usize>> {
    let is_orphan = |at: usize| parents[at].is_none() && trace.depth(spans[at]) > 0;
    if !(0..spans.len()).any(is_orphan) {
        return parents.to_vec();
    }
    let mut by_text: FxHashMap<&str, usize> = FxHashMap::default();
    for (at, span) in spans.iter().enumerate() {
        by_text.entry(&trace.name(span).text).or_insert(at);
    }
    let nearest = |orphan: &Span| {
        dotted_prefixes(&trace.name(orphan).text)
            .filter_map(|prefix| by_text.get(prefix).copied())
            .find(|&other| trace.depth(spans[other]) < trace.depth(orphan))
            .or(root)
    };
    (0..spans.len()).map(|at| if is_orphan(at) { nearest(spans[at]) } else { parents[at] }).collect()
}

/// The dotted prefixes of a name, the longest first. An emitted name cannot have more than there are bytes in
/// it, and no more than that many are tried for one that came from elsewhere.
fn dotted_prefixes(name: &str) -> impl Iterator<Item = &str> {
    fn shorter(prefix: &str) -> Option<&str> {
        prefix.rfind('.').map(|dot| &prefix[..dot])
    }
    std::iter::successors(shorter(name), |prefix| shorter(prefix)).take(NAME_BYTES)
}

fn last_before(ascending: &[usize], at: usize) -> Option<usize> {
    ascending[..ascending.partition_point(|&other| other < at)].last().copied()
}

fn first_after(ascending: &[usize], at: usize) -> Option<usize> {
    ascending.get(ascending.partition_point(|&other| other <= at)).copied()
}

/// One line of a callable's tree.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The span name.
    pub name: Box<str>,
    /// Its last dotted segment.
    pub leaf: Box<str>,
    /// The stage it stands for, if it is part of a run.
    pub stage: Option<Stage>,
    /// Whether it is on the device's clock.
    pub device: bool,
    /// The median over the invocations that have it, in ns.
    pub median_ns: f64,
    /// How many invocations have it.
    pub n: usize,
    /// Whether its parent is missing, so that it hangs under a more distant ancestor.
    pub orphan: bool,
    /// What lies below, by start.
    pub children: Vec<Node>,
}

/// The tree of all invocations of a callable, spans of one name taken together.
#[derive(Clone, Debug, PartialEq)]
pub struct CallTree {
    /// The roots: one, unless roots were lost or have several names.
    pub roots: Vec<Node>,
    /// The median of the invocations' effective windows, in ns, of those that have one.
    pub effective_median_ns: Option<f64>,
}

/// What is known of a name while the invocations go by. Of those that have it, the one with the most names
/// decides where it stands, the last of equals.
#[derive(Default)]
struct Entry {
    /// How many names the deciding invocation has.
    names: usize,
    parent: Option<NameId>,
    orphan: bool,
    device: bool,
    start: i64,
    durations: Vec<i64>,
}

impl Trace {
    /// The call tree of a callable.
    pub fn call_tree(&self, callable: &Callable) -> CallTree {
        let mut entries: FxHashMap<NameId, Entry> = FxHashMap::default();
        let mut effective = Vec::new();
        for &index in &callable.invocations {
            let invocation = &self.invocations()[index as usize];
            let root = invocation.root_span(self);
            let origin = root.map_or(0, |root| root.ts);
            let spans: Vec<&Span> = invocation.by_name(self);
            let parents = parents(self, &spans);
            let top =
                root.and_then(|root| spans.iter().position(|span| self.name_id(span) == self.name_id(root)));
            let hung = hung(self, &spans, &parents, top);
            for (at, span) in spans.iter().enumerate() {
                let device = self.is_device(span);
                let start = if device { span.ts } else { span.ts.saturating_sub(origin) };
                let orphan = parents[at].is_none() && self.depth(span) > 0;
                let parent = hung[at].map(|at| self.name_id(spans[at]));
                let entry = entries.entry(self.name_id(span)).or_default();
                if spans.len() >= entry.names {
                    let durations = std::mem::take(&mut entry.durations);
                    *entry = Entry { names: spans.len(), parent, orphan, device, start, durations };
                }
                entry.durations.push(span.dur);
            }
            effective.extend(invocation.effective_ns(self));
        }
        CallTree { roots: self.assemble(entries), effective_median_ns: median_ns(&mut effective) }
    }

    fn assemble(&self, entries: FxHashMap<NameId, Entry>) -> Vec<Node> {
        let mut children: FxHashMap<Option<NameId>, Vec<NameId>> = FxHashMap::default();
        for (&name, entry) in &entries {
            let parent = entry.parent.filter(|parent| entries.contains_key(parent));
            children.entry(parent).or_default().push(name);
        }
        for siblings in children.values_mut() {
            siblings.sort_by_key(|name| (entries[name].start, *name));
        }
        let mut forest = Forest { trace: self, entries, children };
        // Every name is below a top. From a name to its parent the deciding invocation gets fuller or later or
        // stays the same, and within one the depth falls; so a chain of parents never comes back.
        forest.below(None).into_iter().filter_map(|name| forest.take(name, 0)).collect()
    }
}

/// The names that have not become nodes yet.
struct Forest<'a> {
    trace: &'a Trace,
    entries: FxHashMap<NameId, Entry>,
    children: FxHashMap<Option<NameId>, Vec<NameId>>,
}

impl Forest<'_> {
    fn below(&mut self, parent: Option<NameId>) -> Vec<NameId> {
        self.children.remove(&parent).unwrap_or_default()
    }

    fn take(&mut self, name: NameId, level: usize) -> Option<Node> {
        let mut entry = self.entries.remove(&name)?;
        let mut below = self.below(Some(name));
        if level + 2 == LEVELS_MAX {
            let mut at = 0;
            while let Some(&deeper) = below.get(at) {
                below.extend(self.below(Some(deeper)));
                at += 1;
            }
        }
        let of = &self.trace.names[name.0 as usize];
        Some(Node {
            name: of.text.clone(),
            leaf: of.leaf().into(),
            stage: of.stage,
            device: entry.device,
            n: entry.durations.len(),
            median_ns: median_ns(&mut entry.durations)?,
            orphan: entry.orphan,
            children: below.into_iter().filter_map(|name| self.take(name, level + 1)).collect(),
        })
    }
}
