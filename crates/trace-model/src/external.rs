//! Spans of foreign producers, `ext.<producer>.<span>`: what each took, and how they nest.
//!
//! They belong to no invocation and say nothing about the runtime's spans, so they are shown by themselves.
//! All of them have the host's clock, so unlike a run's tree theirs is one of time: on one thread, a span lies
//! below the innermost one that covers it and has a lower depth. A span that was handed to another thread than
//! the one around it stands on top.

use crate::build::Trace;
use crate::span::{NameId, Span, ThreadId};
use crate::statistics::{Stats, median_ns};
use crate::tree::{LEVELS_MAX, Node};
use crate::vocabulary::{self, Family};
use rustc_hash::FxHashMap;
use std::cmp::Reverse;

/// The spans of one foreign producer.
#[derive(Clone, Debug)]
pub struct Producer {
    /// Its name; `None` for spans whose name does not say whose they are.
    pub name: Option<Box<str>>,
    /// How many spans it has.
    pub spans: usize,
    /// Them by name, those that took the most time in all first, then by name.
    pub names: Vec<ExternalName>,
    /// How they nest; the values are medians of all spans in one place.
    pub roots: Vec<Node>,
}

/// All external spans of one name.
#[derive(Clone, Debug, PartialEq)]
pub struct ExternalName {
    /// The whole name.
    pub name: Box<str>,
    /// Their durations.
    pub stats: Stats,
    /// The sum of the durations. Spans of several threads, or within each other, add up to more than the time
    /// that went by.
    pub total_ns: i64,
}

/// A place in the forest: a name below the same names.
struct Place {
    name: NameId,
    level: usize,
    children: Vec<usize>,
    durations: Vec<i64>,
}

impl Trace {
    /// The foreign producers, those with the most spans first, then by name; those whose name is not known last.
    pub fn producers(&self) -> Vec<Producer> {
        let mut by_name: FxHashMap<NameId, Vec<i64>> = FxHashMap::default();
        let mut spans: Vec<&Span> = Vec::new();
        for span in self.spans().iter().filter(|span| self.name(span).family == Family::External) {
            by_name.entry(self.name_id(span)).or_default().push(span.dur);
            spans.push(span);
        }
        let mut producers: FxHashMap<Option<&str>, Producer> = FxHashMap::default();
        for (name, mut durations) in by_name {
            let text = &self.names[name.0 as usize].text;
            let producer = of(&mut producers, vocabulary::producer(text));
            producer.spans += durations.len();
            let sum: i128 = durations.iter().map(|&ns| i128::from(ns)).sum();
            let total_ns = i64::try_from(sum).unwrap_or(i64::MAX);
            if let Some(stats) = Stats::of(&mut durations) {
                producer.names.push(ExternalName { name: text.clone(), stats, total_ns });
            }
        }
        let mut forest = self.nest(spans);
        let tops = std::mem::take(&mut forest[0].children);
        for top in tops {
            let name = vocabulary::producer(&self.names[forest[top].name.0 as usize].text);
            let node = self.node(&mut forest, top, name);
            of(&mut producers, name).roots.extend(node);
        }
        let mut producers: Vec<Producer> = producers.into_values().collect();
        for producer in &mut producers {
            producer.names.sort_by(|a, b| b.total_ns.cmp(&a.total_ns).then_with(|| a.name.cmp(&b.name)));
        }
        producers.sort_by(|a, b| {
            let key = |one: &Producer| (one.name.is_none(), Reverse(one.spans));
            key(a).cmp(&key(b)).then_with(|| a.name.cmp(&b.name))
        });
        producers
    }

    /// The places of all spans; the first stands for nothing and holds the top ones, all in the order of time.
    fn nest(&self, mut spans: Vec<&Span>) -> Vec<Place> {
        spans.sort_by_key(|span| (self.thread(span), span.ts, Reverse(span.end()), self.depth(span)));
        let top = Place { name: NameId(0), level: 0, children: Vec::new(), durations: Vec::new() };
        let mut places = vec![top];
        let mut known: FxHashMap<(usize, NameId), usize> = FxHashMap::default();
        let mut open: Vec<(&Span, usize)> = Vec::new();
        let mut thread: Option<ThreadId> = None;
        for span in spans {
            if thread.replace(self.thread(span)) != Some(self.thread(span)) {
                open.clear();
            }
            open.retain(|(outer, _)| outer.end() > span.ts || outer.ts == span.ts);
            let around = |(outer, place): &&(&Span, usize)| {
                outer.end() >= span.end()
                    && self.depth(outer) < self.depth(span)
                    && places[*place].level < LEVELS_MAX
            };
            let parent = open.iter().rev().find(around).map_or(0, |&(_, place)| place);
            let level = places[parent].level + 1;
            let place = *known.entry((parent, self.name_id(span))).or_insert_with(|| {
                places.push(Place {
                    name: self.name_id(span),
                    level,
                    children: Vec::new(),
                    durations: Vec::new(),
                });
                let place = places.len() - 1;
                places[parent].children.push(place);
                place
            });
            places[place].durations.push(span.dur);
            // More open at once than a tree has levels is damage, and keeping them all would take ever longer.
            if open.len() < LEVELS_MAX {
                open.push((span, place));
            }
        }
        places
    }

    /// A place and what is below it, below a top one of `producer`, which the leaves need not repeat.
    fn node(&self, forest: &mut Vec<Place>, place: usize, producer: Option<&str>) -> Option<Node> {
        let children = std::mem::take(&mut forest[place].children);
        let children = children.into_iter().filter_map(|below| self.node(forest, below, producer)).collect();
        let Place { name, durations, .. } = &mut forest[place];
        let name = &self.names[name.0 as usize].text;
        let leaf = match producer {
            Some(word) if vocabulary::producer(name) == producer => &name["ext..".len() + word.len()..],
            _ => name.strip_prefix("ext.").unwrap_or(name),
        };
        Some(Node {
            name: name.clone(),
            leaf: leaf.into(),
            stage: None,
            device: false,
            n: durations.len(),
            median_ns: median_ns(durations)?,
            orphan: false,
            children,
        })
    }
}

fn of<'a, 'b>(
    producers: &'b mut FxHashMap<Option<&'a str>, Producer>,
    name: Option<&'a str>,
) -> &'b mut Producer {
    producers.entry(name).or_insert_with(|| Producer {
        name: name.map(Into::into),
        spans: 0,
        names: Vec::new(),
        roots: Vec::new(),
    })
}
