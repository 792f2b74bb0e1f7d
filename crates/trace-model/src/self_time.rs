//! Self time: of each span of a call, the time that no span below it accounts for.
//!
//! Every instant of a call is given to exactly one span, so that the self times of a call add up to its root's duration.
//! The self time of a span is its duration without what its children cover, and three rules say what is not plain:
//!
//! - Children count as far as they lie inside their parent. What sticks out is nobody's and is counted as *overhang*.
//! - What two children of one parent share belongs to the one that began last, which is the inner one where one lies
//!   inside the other; for the other it counts as *shared*. Orchestrator and schedulers run side by side by design:
//!   together they are one child, the effective window.
//! - A child on another clock than its parent's has no place in it. It covers as much time as it took, and what is more
//!   than the room that the children with a place leave is overhang, from the end back.
//!
//! Over the calls of a callable the figures are means, because means add up and medians do not. A call that has no span
//! of a name spent nothing in it, so the mean is over all calls that have a root.

use crate::build::Trace;
use crate::callable::Callable;
use crate::span::{NameId, Span};
use crate::tree::{LEVELS_MAX, hung, parents};
use crate::vocabulary::Stage;
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// One line of a callable's tree. All times are means over the calls that have a root, in ns, cut to whole ones.
#[derive(Clone, Debug, PartialEq)]
pub struct SelfTime {
    /// The span name; none for the effective window of orchestrator and schedulers, which stands for both.
    pub name: Option<Box<str>>,
    /// How deep it stands, 0 for a root. Spans deeper than a drawn tree gets have its last level.
    pub level: usize,
    /// Whether it is on the device's clock.
    pub device: bool,
    /// How many calls have it.
    pub n: usize,
    /// How long it took.
    pub total_ns: i64,
    /// Its self time.
    pub self_ns: i64,
    /// The self time as a part of the roots' duration, in percent; `None` if the roots took no time.
    pub share_pct: Option<f64>,
    /// The self time of those that have children: time of which the log says no more. `None` if none has.
    pub unattributed_ns: Option<i64>,
    /// Time outside its parent, which is in nobody's self time.
    pub overhang_ns: i64,
    /// Time that belongs to another child of its parent, or of one of those above.
    pub shared_ns: i64,
    /// Of the effective window what orchestrator and schedulers took, in this order.
    pub concurrent_ns: Option<(i64, i64)>,
}

/// Where the time of a callable's calls goes, line by line as the tree is drawn.
#[derive(Clone, Debug, PartialEq)]
pub struct SelfTimes {
    /// How many calls it is the mean of: those that have a root.
    pub n: usize,
    /// The mean duration of the roots, ns: the self times add up to it, but for what cutting to whole ns takes.
    pub root_ns: i64,
    /// The mean of the unattributed time, ns.
    pub unattributed_ns: i64,
    /// The lines, each after the one that it stands below.
    pub lines: Vec<SelfTime>,
}

/// A stretch of time, not backwards.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    start: i128,
    end: i128,
}

impl Window {
    fn of(span: &Span) -> Window {
        let start = i128::from(span.ts);
        Window { start, end: start + i128::from(span.dur.max(0)) }
    }

    fn len(self) -> i128 {
        self.end - self.start
    }

    /// What of it lies inside another; empty, and at its edge, if nothing does.
    fn within(self, other: Window) -> Window {
        let start = self.start.clamp(other.start, other.end);
        Window { start, end: self.end.clamp(start, other.end) }
    }
}

/// A span of a call, or the effective window.
#[derive(Clone, Debug)]
struct Part {
    what: What,
    device: bool,
    window: Window,
    /// What of it lies inside all that it stands below and shares a clock with.
    inside: Window,
    /// How deep it stands, 1 for a root.
    level: usize,
    parent: Option<usize>,
    children: Vec<usize>,
    /// Which axis it lies on, see [`Axis`].
    axis: usize,
    /// Instants that are its own, and such as there was no room for.
    own: i128,
    roomless: i128,
    /// The same with those of all below it on its axis, and all of its own below it on others.
    whole: i128,
    whole_roomless: i128,
    /// Of an effective window what orchestrator and schedulers took.
    concurrent: [i128; 2],
    place: usize,
}

/// Parts whose times can be compared: a root and what is below it on its clock, or all children of one part that are on
/// another clock than it, with what is below them on theirs.
#[derive(Default)]
struct Axis {
    /// Where the second kind hangs.
    below: Option<usize>,
    parts: Vec<usize>,
}

/// A part that is going on, the one that began last on top; of equals the shorter one, then the later in the log.
type GoingOn = BinaryHeap<(i128, Reverse<i128>, usize)>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum What {
    Span(NameId),
    /// The effective window.
    Effective,
}

/// All spans of the same name below the same names; sums over the calls so far.
#[derive(Default)]
struct Place {
    what: Option<What>,
    level: usize,
    device: bool,
    /// When it began in the first call that has it, after that call's root.
    first_start: i128,
    children: Vec<usize>,
    /// The last call that has it, counted from 1, and how many have.
    call: usize,
    n: usize,
    total: i128,
    own: i128,
    unattributed: Option<i128>,
    overhang: i128,
    shared: i128,
    concurrent: [i128; 2],
}

impl Trace {
    /// The self times of a callable's calls; `None` if all have lost their root.
    pub fn self_times(&self, callable: &Callable) -> Option<SelfTimes> {
        // The first place stands for nothing and holds the roots.
        let mut places = vec![Place::default()];
        let mut known: FxHashMap<(usize, What), usize> = FxHashMap::default();
        let (mut n, mut roots) = (0, 0);
        for &index in &callable.invocations {
            let call = &self.invocations()[index as usize];
            let Some(root) = call.root_span(self) else { continue };
            n += 1;
            let spans: Vec<&Span> = self.spans_of(call).collect();
            let mut parts = self.parts(&spans, root);
            let order = arrange(&mut parts, spans.len());
            roots += order
                .iter()
                .map(|&at| &parts[at])
                .filter(|part| part.parent.is_none())
                .map(|part| part.window.len())
                .sum::<i128>();
            for at in order {
                let part = &parts[at];
                let start = part.window.start - if part.device { 0 } else { i128::from(root.ts) };
                let above = part.parent.map_or(0, |parent| parts[parent].place);
                let place = place_of(&mut places, &mut known, part, above, start);
                note(&mut places[place], part, n);
                parts[at].place = place;
            }
        }
        (n > 0).then(|| self.self_lines(&places, n, roots))
    }

    /// The spans of a call at their places in it, then one part that stands for nothing and has the roots for children,
    /// then the effective windows. A span that is part of one is nobody's child.
    fn parts(&self, spans: &[&Span], root: &Span) -> Vec<Part> {
        let part = |what, device, window: Window| Part {
            what,
            device,
            window,
            inside: Window::default(),
            level: 0,
            parent: None,
            children: Vec::new(),
            axis: 0,
            own: 0,
            roomless: 0,
            whole: 0,
            whole_roomless: 0,
            concurrent: [0; 2],
            place: 0,
        };
        let mut parts: Vec<Part> = spans
            .iter()
            .map(|span| part(What::Span(self.name_id(span)), self.is_device(span), Window::of(span)))
            .collect();
        parts.push(part(What::Effective, false, Window::default()));
        let top = spans.iter().position(|span| std::ptr::eq(*span, root));
        let mut under = hung(self, spans, &parents(self, spans), top);

        // Orchestrator and schedulers below the same span, where there are both.
        let mut pairs: FxHashMap<usize, [Vec<usize>; 2]> = FxHashMap::default();
        for (at, span) in spans.iter().enumerate() {
            if let (Some(which), Some(parent)) = (side_by_side(self, span), under[at]) {
                pairs.entry(parent).or_default()[which].push(at);
            }
        }
        let mut effective: Vec<Option<usize>> = vec![None; spans.len()];
        let mut parents: Vec<usize> = pairs
            .iter()
            .filter(|(_, pair)| pair.iter().all(|side| !side.is_empty()))
            .map(|(&at, _)| at)
            .collect();
        parents.sort_unstable();
        for parent in parents {
            let members = || pairs[&parent].iter().flatten().copied();
            let windows = || members().map(|at| parts[at].window);
            let start = windows().map(|window| window.start).min().unwrap_or_default();
            let end = windows().map(|window| window.end).max().unwrap_or_default();
            let device = members().all(|at| parts[at].device);
            members().for_each(|at| effective[at] = Some(parts.len()));
            let took = |which: usize| pairs[&parent][which].iter().map(|&at| parts[at].window.len()).sum();
            let concurrent = [took(0), took(1)];
            parts.push(Part { concurrent, ..part(What::Effective, device, Window { start, end }) });
            under.push(Some(parent));
        }
        let placeless = spans.len();
        for (at, parent) in under.into_iter().enumerate() {
            let of = if at < spans.len() { at } else { at + 1 };
            if effective.get(at).is_some_and(Option::is_some) {
                continue;
            }
            let parent = parent.map_or(placeless, |parent| effective[parent].unwrap_or(parent));
            parts[parent].children.push(of);
        }
        parts
    }

    fn self_lines(&self, places: &[Place], n: usize, roots: i128) -> SelfTimes {
        let mean = |sum: i128| i64::try_from(sum / n as i128).unwrap_or(i64::MAX);
        let mut lines = Vec::new();
        let mut unattributed = 0;
        let mut open = sorted(places, 0);
        while let Some(at) = open.pop() {
            open.extend(sorted(places, at));
            let place = &places[at];
            unattributed += place.unattributed.unwrap_or(0);
            lines.push(SelfTime {
                name: match place.what {
                    Some(What::Span(name)) => Some(self.names[name.0 as usize].text.clone()),
                    _ => None,
                },
                level: place.level - 1,
                device: place.device,
                n: place.n,
                total_ns: mean(place.total),
                self_ns: mean(place.own),
                share_pct: (roots > 0).then(|| place.own as f64 * 100.0 / roots as f64),
                unattributed_ns: place.unattributed.map(mean),
                overhang_ns: mean(place.overhang),
                shared_ns: mean(place.shared),
                concurrent_ns: (place.what == Some(What::Effective))
                    .then(|| (mean(place.concurrent[0]), mean(place.concurrent[1]))),
            });
        }
        SelfTimes { n, root_ns: mean(roots), unattributed_ns: mean(unattributed), lines }
    }
}

/// 0 for the orchestrator, 1 for the schedulers.
fn side_by_side(trace: &Trace, span: &Span) -> Option<usize> {
    match trace.name(span).stage {
        Some(Stage::Orch) => Some(0),
        Some(Stage::Sched) => Some(1),
        _ => None,
    }
}

/// Hangs all parts below the part `tops`, which stands for nothing, gives each its own time, and returns them, each after
/// its parent.
fn arrange(parts: &mut [Part], tops: usize) -> Vec<usize> {
    let mut axes: Vec<Axis> = Vec::new();
    // By part, its axis for children on another clock.
    let mut other: FxHashMap<usize, usize> = FxHashMap::default();
    let mut order = std::mem::take(&mut parts[tops].children);
    for &top in &order {
        (parts[top].level, parts[top].inside, parts[top].axis) = (1, parts[top].window, axes.len());
        axes.push(Axis { below: None, parts: vec![top] });
    }
    let mut at = 0;
    while let Some(&part) = order.get(at) {
        at += 1;
        let children = std::mem::take(&mut parts[part].children);
        // Deeper than a tree is drawn they stand beside their parent, which began before them.
        let parent = match parts[part].parent {
            Some(above) if parts[part].level == LEVELS_MAX => above,
            _ => part,
        };
        let Part { device, inside, level, axis, .. } = parts[parent];
        for &child in &children {
            let same = parts[child].device == device;
            let axis = match same {
                true => axis,
                false => *other.entry(parent).or_insert_with(|| {
                    axes.push(Axis { below: Some(parent), parts: Vec::new() });
                    axes.len() - 1
                }),
            };
            axes[axis].parts.push(child);
            let part = &mut parts[child];
            part.inside = if same { part.window.within(inside) } else { part.window };
            (part.parent, part.level, part.axis) = (Some(parent), level + 1, axis);
        }
        parts[parent].children.extend(&children);
        order.extend(children);
    }
    axes.iter().for_each(|axis| sweep(parts, axis));
    for &at in order.iter().rev() {
        parts[at].whole += parts[at].own;
        parts[at].whole_roomless += parts[at].roomless;
        let Part { parent: Some(parent), axis, whole, whole_roomless, .. } = parts[at] else { continue };
        parts[parent].whole += whole;
        if parts[parent].axis == axis {
            parts[parent].whole_roomless += whole_roomless;
        }
    }
    order
}

/// Gives every instant of an axis to the part that is reached from its top by going, at each level, to the one that began
/// last of those that go on.
fn sweep(parts: &mut [Part], axis: &Axis) {
    let mut room = axis.below.map_or(i128::MAX, |above| parts[above].own);
    let before = room;
    let mut events: Vec<(i128, Option<usize>)> = Vec::new();
    for &at in axis.parts.iter().filter(|&&at| parts[at].inside.len() > 0) {
        events.push((parts[at].inside.start, Some(at)));
        events.push((parts[at].inside.end, None));
    }
    events.sort_unstable();
    // Those that go on, by part of the axis that they stand below; first those that stand below none.
    let mut going_on: FxHashMap<Option<usize>, GoingOn> = FxHashMap::default();
    for pair in 0..events.len() {
        let (now, begins) = events[pair];
        if let Some(part) = begins {
            let Part { parent, window, .. } = parts[part];
            let below = parent.filter(|_| parent != axis.below);
            going_on.entry(below).or_default().push((window.start, Reverse(window.end), part));
        }
        let Some(&(next, _)) = events.get(pair + 1).filter(|&&(next, _)| next > now) else { continue };
        let mut owner = None;
        while let Some(below) = going_on.get_mut(&owner) {
            while below.peek().is_some_and(|&(_, Reverse(end), _)| end <= now) {
                below.pop();
            }
            let Some(&(.., part)) = below.peek() else { break };
            owner = Some(part);
        }
        if let Some(owner) = owner {
            let given = (next - now).min(room);
            room -= given;
            parts[owner].own += given;
            parts[owner].roomless += next - now - given;
        }
    }
    if let Some(above) = axis.below {
        parts[above].own -= before - room;
    }
}

/// The place of a part, below that of its parent.
fn place_of(
    places: &mut Vec<Place>,
    known: &mut FxHashMap<(usize, What), usize>,
    part: &Part,
    parent: usize,
    start: i128,
) -> usize {
    *known.entry((parent, part.what)).or_insert_with(|| {
        let place = places.len();
        places.push(Place {
            what: Some(part.what),
            level: part.level,
            device: part.device,
            first_start: start,
            ..Place::default()
        });
        places[parent].children.push(place);
        place
    })
}

fn note(place: &mut Place, part: &Part, call: usize) {
    place.n += usize::from(std::mem::replace(&mut place.call, call) != call);
    place.total += part.window.len();
    place.own += part.own;
    place.overhang += part.window.len() - part.inside.len() + part.whole_roomless;
    place.shared += part.inside.len() - part.whole - part.whole_roomless;
    place.concurrent.iter_mut().zip(part.concurrent).for_each(|(sum, took)| *sum += took);
    if !part.children.is_empty() {
        *place.unattributed.get_or_insert(0) += part.own;
    }
}

/// The children of a place, the last one first.
fn sorted(places: &[Place], at: usize) -> Vec<usize> {
    let mut children = places[at].children.clone();
    children.sort_by_key(|&child| Reverse((places[child].first_start, child)));
    children
}
