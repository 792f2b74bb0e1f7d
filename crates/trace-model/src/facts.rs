//! The facts that `simpler check` states about a log, and nothing that the log does not say.
//!
//! Ranks are process lives that run callables. A *round* is one step over all ranks: runs whose roots carry
//! the same `run_id` are one round; a run without it is a round of its own, and so is each where no two ranks share a
//! number.

use crate::build::Trace;
use crate::invocation::Kind;
use crate::ranks::Identified;
use crate::span::Span;
use crate::statistics::{Stats, mean_ns};
use crate::vocabulary::{Family, Stage};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;

/// How many names, wall times and per-inv values are listed at most: a list is for looking at, and a log of
/// gigabytes holds millions.
pub const NAMES_MAX: usize = 65_536;

/// Task slots are numbered from 0 and there are 16.
pub const SLOTS_MAX: u8 = 16;

/// Everything in one place; `None` and empty mean that the log does not say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// Complete spans without duplicates.
    pub spans: usize,
    /// Distinct clock anchors.
    pub anchors: usize,
    /// Process ids with spans but no anchor.
    pub pids_without_anchor: Vec<u64>,
    /// Process lives.
    pub process_lives: usize,
    /// Records lost before they reached the log.
    pub dropped: u64,
    /// Invocations.
    pub invocations: usize,
    /// Invocations without a root.
    pub missing_root: usize,
    /// Spans below a root whose parent is missing.
    pub orphans: usize,
    /// Distinct callables that ran.
    pub callables: usize,
    /// Spans on the device's clock.
    pub device_spans: usize,
    /// Spans of foreign producers.
    pub external: usize,
    /// Spans of schedulers.
    pub scheduler: usize,
    /// Invocations that are setup before any run.
    pub prewarm: usize,
    /// Span names in log order, duplicates kept, the first [`NAMES_MAX`].
    pub names: Vec<Box<str>>,
    /// Root durations, setup left out.
    pub root: Option<Stats>,
    /// Rounds over all ranks.
    pub rounds: usize,
    /// Rounds that lack a rank, or a root.
    pub incomplete_rounds: usize,
    /// Whether anything is known to be lost: as [`Trace::is_lossy`], or a round is incomplete.
    pub lossy: bool,
    /// Runs that have a device window.
    pub device_n: usize,
    /// The mean effective window.
    pub effective_us: Option<f64>,
    /// Effective window by inv.
    pub effective_us_by_inv: BTreeMap<u64, f64>,
    /// From the first slot's dispatch to the last slot's end, the mean over runs with more than one slot.
    pub slot_interval_us: Option<f64>,
    /// The mean room that the device window has inside the host's blocking wait.
    pub device_slack_us: Option<f64>,
    /// The pid that is slowest in most rounds of several ranks.
    pub straggler_pid: Option<u64>,
    /// The mean difference of the slowest and the fastest rank of a round.
    pub skew_us: Option<f64>,
    /// Runs without each rank's first.
    pub warm_runs: usize,
    /// The least bind + runner_run of one run, each rank's first left out.
    pub min_sum_us: Option<f64>,
    /// Lanes that a timeline of the roots needs.
    pub lanes: usize,
    /// Unix times of the roots' starts, where an anchor gives them.
    pub wall_ns: Vec<i64>,
    /// The earliest host span.
    pub host_min_ts: Option<i64>,
}

/// One rank's part of a round.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    /// How long its run took, in ns.
    dur: i64,
    life: u32,
}

impl Trace {
    /// The first start and the last end of all spans on the host's clock, ns of `CLOCK_MONOTONIC`.
    pub fn host_window(&self) -> Option<(i64, i64)> {
        let spans = self.spans().iter().filter(|span| !self.is_device(span));
        let windows = spans.map(|span| (span.ts, span.end()));
        windows.reduce(|(from, to), (start, end)| (from.min(start), to.max(end)))
    }

    /// The facts.
    pub fn facts(&self) -> Facts {
        let mut facts = Facts {
            spans: self.spans().len(),
            anchors: self.lives().iter().filter(|life| life.anchor.is_some()).count(),
            pids_without_anchor: self.pids_without_anchor(),
            process_lives: self.lives().len(),
            dropped: self.dropped(),
            invocations: self.invocations().len(),
            orphans: self.orphans(),
            ..Facts::default()
        };
        for span in self.spans() {
            let name = self.name(span);
            facts.device_spans += usize::from(self.is_device(span));
            facts.external += usize::from(name.family == Family::External);
            facts.scheduler += usize::from(name.family == Family::Scheduler);
            if facts.names.len() < NAMES_MAX {
                facts.names.push(name.text.clone());
            }
            if !self.is_device(span) {
                facts.host_min_ts = Some(facts.host_min_ts.map_or(span.ts, |least| least.min(span.ts)));
            }
        }
        self.population(&mut facts);
        self.windows(&mut facts);
        self.ranks(&mut facts);
        facts.lossy = self.is_lossy() || facts.incomplete_rounds > 0;
        facts.lanes = self.lanes();
        facts
    }

    fn population(&self, facts: &mut Facts) {
        let mut hids = FxHashSet::default();
        let mut roots = Vec::new();
        for invocation in self.invocations() {
            if invocation.kind == Kind::Prewarm {
                facts.prewarm += 1;
            } else {
                hids.insert(invocation.hid);
                roots.extend(invocation.root_span(self).map(|root| root.dur));
            }
            facts.missing_root += usize::from(invocation.root().is_none());
            if let Some(root) = invocation.root_span(self)
                && let Some(wall) = self.life_of(invocation).anchor.and_then(|anchor| anchor.wall_of(root.ts))
                && facts.wall_ns.len() < NAMES_MAX
            {
                facts.wall_ns.push(wall);
            }
        }
        facts.callables = hids.len();
        facts.root = Stats::of(&mut roots);
    }

    fn windows(&self, facts: &mut Facts) {
        let (mut effective, mut slots, mut slack) = (Vec::new(), Vec::new(), Vec::new());
        for run in self.invocations().iter().filter(|invocation| invocation.kind == Kind::Run) {
            let wall = run.stage(self, Stage::DeviceWall);
            facts.device_n += usize::from(wall.is_some());
            if let Some(ns) = run.effective_ns(self) {
                effective.push(ns);
                if facts.effective_us_by_inv.len() < NAMES_MAX {
                    facts.effective_us_by_inv.entry(run.inv).or_insert(us(ns));
                }
            }
            if let (Some(outer), Some(inner)) = (run.stage(self, Stage::RunnerRun), wall) {
                slack.push(outer.dur.saturating_sub(inner.dur));
            }
            let tasks: Vec<&Span> = self
                .spans_of(run)
                .filter(|span| matches!(self.name(span).stage, Some(Stage::TaskSlot(_))))
                .collect();
            if let (Some(start), Some(end), true) = (
                tasks.iter().map(|span| span.ts).min(),
                tasks.iter().map(|span| span.end()).max(),
                tasks.len() > 1,
            ) {
                slots.push(end.saturating_sub(start));
            }
        }
        facts.effective_us = mean_ns(&effective).map(us);
        facts.slot_interval_us = mean_ns(&slots).map(us);
        facts.device_slack_us = mean_ns(&slack).map(us);
    }

    fn ranks(&self, facts: &mut Facts) {
        let runs: Vec<u32> =
            (0..self.invocations().len() as u32).filter(|&index| self.run(index).kind == Kind::Run).collect();
        let mut first_run: FxHashMap<u32, (i64, u32)> = FxHashMap::default();
        for &index in &runs {
            let run = self.run(index);
            let host = self.spans_of(run).filter(|span| !self.is_device(span));
            let start = host.map(|span| span.ts).min().unwrap_or(i64::MAX);
            let first = first_run.entry(run.life).or_insert((start, index));
            *first = (*first).min((start, index));
        }
        let Identified { rounds, apart, shared } = self.identified_rounds(runs.iter().copied());
        let mut ranks = FxHashSet::default();
        let rounds: Vec<Vec<Rank>> = rounds
            .into_values()
            .map(|round| {
                let of = round.into_iter().map(|index| self.run(index));
                of.filter_map(|run| Some(Rank { dur: run.root_span(self)?.dur, life: run.life })).collect()
            })
            .collect();
        ranks.extend(rounds.iter().flatten().map(|rank| rank.life));
        facts.rounds = rounds.len() + apart.len();
        facts.incomplete_rounds = apart.iter().filter(|&&index| self.run(index).root().is_none()).count();
        if shared {
            facts.incomplete_rounds += rounds.iter().filter(|round| round.len() < ranks.len()).count();
        }
        self.skew(rounds, facts);

        for index in runs {
            let run = self.run(index);
            if first_run.get(&run.life).is_some_and(|&(_, first)| first == index) {
                continue;
            }
            facts.warm_runs += 1;
            if let (Some(bind), Some(runner)) =
                (run.stage(self, Stage::Bind), run.stage(self, Stage::RunnerRun))
            {
                let sum = us(bind.dur.saturating_add(runner.dur));
                facts.min_sum_us = Some(facts.min_sum_us.map_or(sum, |least| least.min(sum)));
            }
        }
    }

    fn skew(&self, rounds: Vec<Vec<Rank>>, facts: &mut Facts) {
        let mut last: BTreeMap<(u64, Option<u64>), usize> = BTreeMap::new();
        let mut skews = Vec::new();
        for mut ranks in rounds {
            ranks.sort_unstable();
            if let [fast, .., slow] = ranks.as_slice() {
                skews.push(slow.dur - fast.dur);
                if slow.dur > fast.dur {
                    let life = &self.lives()[slow.life as usize];
                    *last.entry((life.pid, life.host)).or_default() += 1;
                }
            }
        }
        facts.skew_us = mean_ns(&skews).map(us);
        facts.straggler_pid = last
            .iter()
            .max_by_key(|&(_, &times)| times)
            .filter(|&(_, &times)| 2 * times > skews.len())
            .map(|(&(pid, _), _)| pid);
    }

    /// For each thread as many lanes as roots overlap at the worst moment.
    fn lanes(&self) -> usize {
        let mut edges: FxHashMap<_, Vec<(i64, i32)>> = FxHashMap::default();
        for invocation in self.invocations() {
            if let Some(root) = invocation.root_span(self).filter(|root| !self.is_device(root)) {
                // At the same moment ends (-1) sort before starts: touching roots share a lane.
                edges.entry(self.thread(root)).or_default().extend([(root.ts, 1), (root.end(), -1)]);
            }
        }
        let lanes = edges.into_values().map(|mut edges| {
            edges.sort_unstable();
            let mut open = 0;
            edges.iter().fold(1, |most: i32, &(_, step)| {
                open += step;
                most.max(open)
            })
        });
        lanes.map(|lanes| usize::try_from(lanes).unwrap_or(0)).sum()
    }
}

fn us(ns: i64) -> f64 {
    ns as f64 / 1000.0
}
