//! From a parent's hand-over to its child's run and back: which dispatch of a node is which chip's root.
//!
//! A node's scheduler notes each hand-over (`node.dispatch`, or `node.frame_submit` inside it) and each return
//! (`node.complete`) with a `run_id` and a `dispatch_id`; the root of the run that the child makes of it carries the
//! same two. They join a dispatch and a root if nobody else of that host has them at that time, and the `hid` is the
//! same too, in a log whose two sides give a callable the same one anywhere. The time of a dispatch is from its start to
//! that of its return; several dispatches of the same identity whose times overlap cannot be told apart, for instance
//! those of two parents, and then nothing is guessed: they are *ambiguous*, and so are the roots in that time.
//!
//! A dispatch that nobody took, one to a worker that is no chip, and one whose root is lost look alike: they are
//! unmatched.

use crate::build::Trace;
use crate::invocation::Kind;
use crate::span::Span;
use crate::statistics::Stats;
use crate::vocabulary::Family;
use rustc_hash::FxHashSet;
use std::collections::BTreeMap;

/// The level whose children are chips.
const NODE: &str = "node";

/// A dispatch and the root that came of it. Times are of their host's `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dispatch {
    /// The life that handed over, an index into the trace's lives.
    pub parent: u32,
    /// The life that took it.
    pub child: u32,
    /// The parent's number of the worker, if it says so.
    pub worker_id: Option<i64>,
    /// The run that it is of.
    pub run_id: i64,
    /// The number of the dispatch.
    pub dispatch_id: i64,
    /// The task's place, if the parent says so.
    pub task_slot: Option<i64>,
    /// The invocation number of the root.
    pub inv: u64,
    /// The callable, as the root has it.
    pub hid: u64,
    /// When the parent began to hand over, ns.
    pub start_ns: i64,
    /// From there to the start of the root, ns: the hand-over latency.
    pub hand_over_ns: i64,
    /// From there to the start of `activate`, ns: where the child prepares first and is let run later.
    pub activate_ns: Option<i64>,
    /// The duration of the root, ns.
    pub root_ns: i64,
    /// From the end of the root to when the parent began to take the outcome, ns: the return latency.
    pub return_ns: Option<i64>,
}

/// All dispatches from one parent to one child under one worker number.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// The life that handed over.
    pub parent: u32,
    /// The parent's number of the worker.
    pub worker_id: Option<i64>,
    /// The life that took it.
    pub child: u32,
    /// The hand-over latencies.
    pub hand_over: Stats,
    /// The return latencies, of those that have one.
    pub returned: Option<Stats>,
}

/// All dispatches of a log, joined or not.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Dispatches {
    /// The joined ones, by start.
    pub joined: Vec<Dispatch>,
    /// The same by who handed over to whom, by pid.
    pub links: Vec<Link>,
    /// Dispatches that no root belongs to.
    pub unmatched_dispatches: usize,
    /// Roots that no dispatch belongs to.
    pub unmatched_roots: usize,
    /// Dispatches that cannot be told from others.
    pub ambiguous_dispatches: usize,
    /// Roots of which it cannot be told to which dispatch they belong.
    pub ambiguous_roots: usize,
    /// Dispatches that do not say who they are.
    pub dispatches_without_identity: usize,
    /// Roots that do not say of which dispatch they are, as those of a run that no parent handed over.
    pub roots_without_identity: usize,
}

/// What a parent says of one hand-over.
#[derive(Clone, Copy, Debug)]
struct HandOver {
    parent: u32,
    worker_id: Option<i64>,
    task_slot: Option<i64>,
    hid: u64,
    start_ns: i64,
    has_frame: bool,
    activate_ns: Option<i64>,
    complete_ns: Option<i64>,
}

impl HandOver {
    /// When its time is over.
    fn end_ns(&self) -> i64 {
        self.complete_ns.unwrap_or(i64::MAX)
    }
}

/// `run_id` and `dispatch_id`; 0 is no dispatch.
type Identity = (i64, i64);

/// What a parent's span says of itself: life, identity, task slot, place in its group, worker.
type Task = (u32, Identity, [Option<i64>; 3]);

/// Clock, identity, and the callable where both sides give it the same number.
type Key = (Result<u64, u32>, Identity, u64);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Leaf {
    Dispatch,
    Frame,
    Activate,
    Complete,
}

impl Trace {
    /// The dispatches of the log's nodes and the roots that came of them.
    pub fn dispatches(&self) -> Dispatches {
        let mut found = Dispatches::default();
        let hand_overs = self.hand_overs(&mut found);
        let mut roots: Vec<(Identity, u32)> = Vec::new();
        for (index, run) in (0..).zip(self.invocations()).filter(|(_, run)| run.kind == Kind::Run) {
            let Some(root) = run.root_span(self) else { continue };
            match self.identity(root) {
                Some(identity) => roots.push((identity, index)),
                None => found.roots_without_identity += 1,
            }
        }
        let root_hids: FxHashSet<u64> = roots.iter().map(|&(_, index)| self.run(index).hid).collect();
        let same_hids = hand_overs.iter().any(|(_, of)| root_hids.contains(&of.hid));
        let key = |life, identity, hid| -> Key {
            // Without a common clock a life is alone with its own, and nothing joins.
            let clock = self.clock_of(life).ok_or(life);
            (clock, identity, if same_hids { hid } else { 0 })
        };
        let mut groups: BTreeMap<Key, (Vec<HandOver>, Vec<u32>)> = BTreeMap::new();
        for (identity, of) in hand_overs {
            groups.entry(key(of.parent, identity, of.hid)).or_default().0.push(of);
        }
        for (identity, index) in roots {
            let run = self.run(index);
            groups.entry(key(run.life, identity, run.hid)).or_default().1.push(index);
        }
        for ((_, identity, _), (hand_overs, roots)) in groups {
            self.join(identity, hand_overs, &roots, &mut found);
        }
        found.joined.sort_by_key(|one| (one.start_ns, one.parent, one.run_id, one.dispatch_id));
        found.links = self.links(&found.joined);
        found
    }

    /// `run_id` and `dispatch_id`, if there are both and they are those of a dispatch.
    fn identity(&self, span: &Span) -> Option<Identity> {
        let attributes = self.attributes(span);
        let identity = (attributes.integer("run_id")?, attributes.integer("dispatch_id")?);
        (identity.1 != 0).then_some(identity)
    }

    /// What the nodes say of their hand-overs.
    fn hand_overs(&self, found: &mut Dispatches) -> Vec<(Identity, HandOver)> {
        let mut spans: Vec<(Task, i64, Leaf, &Span)> = Vec::new();
        for span in self.spans() {
            let name = self.name(span);
            if name.family != Family::Scheduler {
                continue;
            }
            let Some((NODE, leaf)) = name.text.split_once('.') else { continue };
            let leaf = match leaf {
                "dispatch" => Leaf::Dispatch,
                "frame_submit" => Leaf::Frame,
                "activate" => Leaf::Activate,
                "complete" => Leaf::Complete,
                _ => continue,
            };
            match self.identity(span) {
                Some(identity) => {
                    let attributes = self.attributes(span);
                    let which = ["task_slot", "group_index", "worker_id"].map(|key| attributes.integer(key));
                    spans.push(((self.life_index(span), identity, which), span.ts, leaf, span));
                }
                None => found.dispatches_without_identity += usize::from(leaf == Leaf::Dispatch),
            }
        }
        spans.sort_by_key(|&(task, ts, leaf, _)| (task, ts, leaf));

        let mut hand_overs: Vec<(Identity, HandOver)> = Vec::new();
        let mut before: Option<Task> = None;
        for (task, ts, leaf, span) in spans {
            let (parent, identity, [task_slot, _, worker_id]) = task;
            let same = before.replace(task) == Some(task);
            let open = hand_overs.last_mut().map(|(_, of)| of).filter(|of| same && of.complete_ns.is_none());
            match (leaf, open) {
                (Leaf::Frame, Some(open)) if !open.has_frame => open.has_frame = true,
                (Leaf::Dispatch | Leaf::Frame, _) => hand_overs.push((
                    identity,
                    HandOver {
                        parent,
                        worker_id,
                        task_slot,
                        hid: self.hid(span),
                        start_ns: ts,
                        has_frame: leaf == Leaf::Frame,
                        activate_ns: None,
                        complete_ns: None,
                    },
                )),
                (Leaf::Activate, Some(open)) => {
                    open.activate_ns.get_or_insert(ts);
                }
                (Leaf::Complete, Some(open)) => open.complete_ns = Some(ts),
                // Of a hand-over that is lost.
                (Leaf::Activate | Leaf::Complete, None) => {}
            }
        }
        hand_overs
    }

    /// Joins what has the same identity, each root to the dispatch in whose time it began.
    fn join(&self, identity: Identity, mut hand_overs: Vec<HandOver>, roots: &[u32], found: &mut Dispatches) {
        hand_overs.sort_by_key(|of| (of.start_ns, of.end_ns()));
        let mut roots: Vec<(i64, u32)> = roots.iter().map(|&index| (self.began_ns(index), index)).collect();
        roots.sort_unstable();
        let mut roots = roots.as_slice();
        let mut rest = hand_overs.as_slice();
        while let Some(first) = rest.first() {
            // Those whose times overlap, one after the other.
            let mut end = first.end_ns();
            let mut together = 1;
            while let Some(next) = rest.get(together).filter(|next| next.start_ns < end) {
                end = end.max(next.end_ns());
                together += 1;
            }
            let before = roots.partition_point(|&(start, _)| start < first.start_ns);
            let within = roots[before..].partition_point(|&(start, _)| start <= end);
            found.unmatched_roots += before;
            let inside = &roots[before..before + within];
            match (&rest[..together], inside) {
                (_, []) => found.unmatched_dispatches += together,
                ([one], &[(_, index)]) => self.join_one(identity, one, index, found),
                _ => {
                    found.ambiguous_dispatches += together;
                    found.ambiguous_roots += inside.len();
                }
            }
            roots = &roots[before + within..];
            rest = &rest[together..];
        }
        found.unmatched_roots += roots.len();
    }

    fn join_one(&self, (run_id, dispatch_id): Identity, of: &HandOver, index: u32, found: &mut Dispatches) {
        let run = self.run(index);
        let Some(root) = run.root_span(self) else { return };
        found.joined.push(Dispatch {
            parent: of.parent,
            child: run.life,
            worker_id: of.worker_id,
            run_id,
            dispatch_id,
            task_slot: of.task_slot,
            inv: run.inv,
            hid: run.hid,
            start_ns: of.start_ns,
            hand_over_ns: root.ts.saturating_sub(of.start_ns),
            activate_ns: of.activate_ns.map(|ts| ts.saturating_sub(of.start_ns)),
            root_ns: root.dur,
            return_ns: of.complete_ns.map(|ts| ts.saturating_sub(root.end())),
        });
    }

    fn links(&self, joined: &[Dispatch]) -> Vec<Link> {
        type Latencies = (Vec<i64>, Vec<i64>);
        let mut links: BTreeMap<_, Latencies> = BTreeMap::new();
        let pid = |life: u32| self.lives()[life as usize].pid;
        for one in joined {
            let key = (pid(one.parent), one.parent, one.worker_id, pid(one.child), one.child);
            let (there, back) = links.entry(key).or_default();
            there.push(one.hand_over_ns);
            back.extend(one.return_ns);
        }
        let link = |((_, parent, worker_id, _, child), (mut there, mut back)): (_, Latencies)| {
            let (hand_over, returned) = (Stats::of(&mut there)?, Stats::of(&mut back));
            Some(Link { parent, worker_id, child, hand_over, returned })
        };
        links.into_iter().filter_map(link).collect()
    }
}
