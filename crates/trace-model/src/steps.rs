//! Steps: one round of one callable over all ranks, and which rank made it late, on which side.
//!
//! A rank is a process life. Where roots of two ranks carry the same `run_id`, that is what belongs together; else the
//! k-th run of the callable on each rank is the k-th step. A step is *complete* if each rank has a root in it; only
//! complete steps are in a mean.
//!
//! The *critical* rank of a step is the one whose root ends last; where the ranks read clocks of several hosts, which
//! cannot be compared, the one whose root takes longest. Its duration has three parts, which add up to it: the host's
//! until `runner_run` begins, the device's `device_wall`, and the host's *tail*, which is the rest: the launch, and all
//! that follows the device.
//!
//! It is late by three amounts against the medians over the ranks of the step: it *began* later, its *device* took
//! longer, its *host* took longer, which is the duration without the device's part. The greatest of the three, if it is
//! above 0, is the side that made it late.

use crate::alignment::Placed;
use crate::build::Trace;
use crate::callable::Callable;
use crate::invocation::Kind;
use crate::ranks::Identified;
use crate::span::Span;
use crate::statistics::{mean_ns, median_ns};
use crate::vocabulary::Stage;
use rustc_hash::FxHashMap;

/// What tells that runs of several ranks are one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlignedBy {
    /// The `run_id` of their roots.
    RunId,
    /// Their place among the runs of the callable on their rank.
    Order,
}

/// What makes a rank late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LateBy {
    /// It began late.
    Start,
    /// Its host took long.
    Host,
    /// Its device took long.
    Device,
}

impl LateBy {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            LateBy::Start => "start",
            LateBy::Host => "host",
            LateBy::Device => "device",
        }
    }
}

/// How long a rank's device had nothing to do before a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceGap {
    /// From the end of the device window of the rank's run before, whichever callable's, to the start of this one's, ns.
    pub ns: i64,
    /// By how much it may be wrong, either way, ns.
    pub error_ns: i64,
}

/// One rank's run in a step; `None` is what the log does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepRun {
    /// Index into [`Steps::ranks`].
    pub rank: usize,
    /// The invocation number.
    pub inv: u64,
    /// The root's start, ns of the rank's `CLOCK_MONOTONIC`.
    pub start_ns: Option<i64>,
    /// The root's duration, ns.
    pub dur_ns: Option<i64>,
    /// From the root's start to that of `runner_run`, ns.
    pub host_before_ns: Option<i64>,
    /// The window on the device, ns.
    pub device_ns: Option<i64>,
    /// What is left of the root, ns; negative if the device's clock counted more time than there was.
    pub host_tail_ns: Option<i64>,
    /// Known only where the log relates both runs' device clocks to the host's.
    pub device_gap: Option<DeviceGap>,
}

impl StepRun {
    /// What the host took: the root's duration without the device's part.
    fn host_ns(&self) -> Option<i64> {
        Some(self.dur_ns?.saturating_sub(self.device_ns?))
    }
}

/// By how much the critical rank exceeds the medians over the ranks of its step, ns; negative where it is below.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Excess {
    /// Of the start; `None` where clocks cannot be compared.
    pub start_ns: Option<i64>,
    /// Of the host's time.
    pub host_ns: Option<i64>,
    /// Of the device's time.
    pub device_ns: Option<i64>,
}

impl Excess {
    /// The side with the greatest excess above 0. `None` if there is none, or the ranks' host and device times are not
    /// known.
    pub fn late_by(&self) -> Option<LateBy> {
        let known = [
            (self.device_ns?, LateBy::Device),
            (self.host_ns?, LateBy::Host),
            (self.start_ns.unwrap_or(0), LateBy::Start),
        ];
        let (ns, by) = known.into_iter().rev().max_by_key(|&(ns, _)| ns)?;
        (ns > 0).then_some(by)
    }
}

/// One round over all ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The `run_id`, where that is what aligns.
    pub run_id: Option<i64>,
    /// The ranks' runs, in the order of the ranks.
    pub runs: Vec<StepRun>,
    /// Whether each rank has a root in it.
    pub complete: bool,
    /// The earliest start of a root, after that of the first step, ns. Only ranks of the first rank's host count.
    pub start_ns: Option<i64>,
    /// Which of `runs` is the critical rank's; `None` if no root is left.
    pub critical: Option<usize>,
    /// The longest root minus the shortest, ns; `None` of one.
    pub skew_ns: Option<i64>,
    /// What makes the critical rank late. All `None` where it is the only one.
    pub excess: Excess,
}

impl Step {
    /// The critical rank's run.
    pub fn critical_run(&self) -> Option<&StepRun> {
        self.runs.get(self.critical?)
    }
}

/// A rank, and how often it was late: over the complete steps of several ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rank {
    /// Index into the trace's lives.
    pub life: u32,
    /// In how many steps it was critical.
    pub critical: usize,
    /// By how much it then took longer than the fastest, the mean, ns.
    pub excess_mean_ns: Option<i64>,
    /// How often it then was late by its start, its host and its device.
    pub late_by: [usize; 3],
}

impl Rank {
    /// How often the critical rank was late on a side.
    pub fn late_by(&self, side: LateBy) -> usize {
        self.late_by[side as usize]
    }
}

/// The steps of one callable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Steps {
    /// The callable.
    pub hid: u64,
    /// What it is called.
    pub label: String,
    /// What made steps of its runs.
    pub aligned_by: AlignedBy,
    /// The ranks that run it, by pid.
    pub ranks: Vec<Rank>,
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// Runs that are in no step: their root is lost or does not say what it belongs to, while others' do.
    pub runs_apart: usize,
    /// How many groups of ranks there are that did not run at the same time, by the clock of the first rank's host: more
    /// than one, and what was aligned does not belong together.
    pub sessions: usize,
}

impl Steps {
    /// The complete steps.
    pub fn complete(&self) -> impl Iterator<Item = &Step> + Clone {
        self.steps.iter().filter(|step| step.complete)
    }

    /// The mean in ns over the complete steps that have the value, and their number.
    pub fn mean(&self, value: impl Fn(&Step) -> Option<i64>) -> Option<(i64, usize)> {
        let values: Vec<i64> = self.complete().filter_map(value).collect();
        Some((mean_ns(&values)?, values.len()))
    }
}

impl Trace {
    /// The steps of each callable that some rank has run more than once, in the order of `callables`, which are as
    /// [`Trace::callables`] gives them: the most invoked first.
    pub fn steps(&self, callables: &[Callable]) -> Vec<Steps> {
        let gaps = self.device_gaps();
        callables.iter().filter_map(|callable| self.steps_of(callable, &gaps)).collect()
    }

    fn steps_of(&self, callable: &Callable, gaps: &FxHashMap<u32, DeviceGap>) -> Option<Steps> {
        let all = callable.invocations.iter().copied();
        let mut runs: Vec<u32> = all.filter(|&index| self.run(index).kind == Kind::Run).collect();
        runs.sort_by_cached_key(|&index| {
            let life = self.run(index).life;
            (self.lives()[life as usize].pid, life, self.began_ns(index), index)
        });
        let by_rank: Vec<&[u32]> = runs.chunk_by(|&a, &b| self.run(a).life == self.run(b).life).collect();
        if by_rank.iter().all(|runs| runs.len() < 2) {
            return None;
        }
        let lives: Vec<u32> = by_rank.iter().map(|runs| self.run(runs[0]).life).collect();
        let rank_of: FxHashMap<u32, usize> =
            lives.iter().enumerate().map(|(rank, &life)| (life, rank)).collect();

        let Identified { rounds, apart, shared } = self.identified_rounds(runs.iter().copied());
        let groups: Vec<(Option<i64>, Vec<u32>)> = if shared {
            rounds.into_iter().map(|((run_id, ..), runs)| (Some(run_id), runs)).collect()
        } else {
            let mut groups = vec![(None, Vec::new()); by_rank.iter().map(|runs| runs.len()).max()?];
            for runs in &by_rank {
                runs.iter().zip(&mut groups).for_each(|(&run, (_, group))| group.push(run));
            }
            groups
        };
        let run = |index| self.step_run(index, &rank_of, gaps);
        let mut steps: Vec<Step> = groups
            .into_iter()
            .map(|(run_id, group)| self.step(run_id, group.into_iter().map(run).collect(), &lives))
            .collect();
        let origin = steps.iter().find_map(|step| step.start_ns);
        for step in &mut steps {
            step.start_ns = step.start_ns.zip(origin).map(|(start, origin)| start.saturating_sub(origin));
        }
        Some(Steps {
            hid: callable.hid,
            label: callable.display_label(),
            aligned_by: if shared { AlignedBy::RunId } else { AlignedBy::Order },
            ranks: lateness(lives, &steps),
            steps,
            runs_apart: if shared { apart.len() } else { 0 },
            sessions: self.sessions(&by_rank),
        })
    }

    /// How many groups of ranks did not run at the same time.
    fn sessions(&self, by_rank: &[&[u32]]) -> usize {
        let clock = |runs: &[u32]| self.clock_of(self.run(runs[0]).life);
        let first = by_rank.first().and_then(|runs| clock(runs));
        let mut windows: Vec<(i64, i64)> = by_rank
            .iter()
            .filter(|runs| first.is_some() && clock(runs) == first)
            .filter_map(|runs| {
                let roots = || runs.iter().filter_map(|&index| self.run(index).root_span(self));
                Some((roots().map(|root| root.ts).min()?, roots().map(Span::end).max()?))
            })
            .collect();
        windows.sort_unstable();
        let mut end = None;
        let begins = |&(from, to): &(i64, i64)| {
            let apart = end.is_none_or(|end| from > end);
            end = end.max(Some(to));
            apart
        };
        windows.iter().copied().filter(begins).count().max(1)
    }

    /// When a run began, as far as the log tells.
    pub(crate) fn began_ns(&self, index: u32) -> i64 {
        let run = self.run(index);
        let earliest = || self.spans_of(run).filter(|span| !self.is_device(span)).map(|span| span.ts).min();
        run.root_span(self).map(|root| root.ts).or_else(earliest).unwrap_or(i64::MAX)
    }

    fn step_run(
        &self,
        index: u32,
        rank_of: &FxHashMap<u32, usize>,
        gaps: &FxHashMap<u32, DeviceGap>,
    ) -> StepRun {
        let run = self.run(index);
        let root = run.root_span(self);
        let runner_run = run.stage(self, Stage::RunnerRun);
        let device_ns = run.stage(self, Stage::DeviceWall).map(|wall| wall.dur);
        let host_before_ns = root.zip(runner_run).map(|(root, runner)| runner.ts.saturating_sub(root.ts));
        let host_tail_ns = root
            .zip(host_before_ns)
            .zip(device_ns)
            .map(|((root, before), device)| root.dur.saturating_sub(before).saturating_sub(device));
        StepRun {
            rank: rank_of.get(&run.life).copied().unwrap_or_default(),
            inv: run.inv,
            start_ns: root.map(|root| root.ts),
            dur_ns: root.map(|root| root.dur),
            host_before_ns,
            device_ns,
            host_tail_ns,
            device_gap: gaps.get(&index).copied(),
        }
    }

    /// A step with its start not yet made relative.
    fn step(&self, run_id: Option<i64>, runs: Vec<StepRun>, lives: &[u32]) -> Step {
        let clock = |run: &StepRun| self.clock_of(lives[run.rank]);
        let rooted =
            || runs.iter().enumerate().filter_map(|(at, run)| Some((at, run, run.start_ns?, run.dur_ns?)));
        let first = self.clock_of(lives[0]);
        let on_first = |run: &StepRun| run.rank == 0 || (first.is_some() && clock(run) == first);
        let mut clocks = rooted().map(|(_, run, ..)| clock(run));
        let one_clock = match clocks.next() {
            Some(Some(one)) => clocks.all(|clock| clock == Some(one)),
            _ => clocks.next().is_none(),
        };
        let late = |&(at, _, start, dur): &(usize, &StepRun, i64, i64)| {
            let end = if one_clock { i128::from(start) + i128::from(dur) } else { 0 };
            (end, dur, std::cmp::Reverse(at))
        };
        let critical = rooted().max_by_key(late).map(|(at, ..)| at);
        let durations = || rooted().map(|(.., dur)| dur);
        let skew_ns = durations()
            .max()
            .zip(durations().min())
            .filter(|_| rooted().count() > 1)
            .map(|(slowest, fastest)| slowest.saturating_sub(fastest));
        let excess = |value: &dyn Fn(&StepRun) -> Option<i64>| {
            let mut values: Vec<i64> = rooted().filter_map(|(_, run, ..)| value(run)).collect();
            let own = value(&runs[critical?])?;
            // A difference from one's own value says nothing.
            let median = median_ns(&mut values).filter(|_| values.len() > 1)?;
            Some(own.saturating_sub(median as i64))
        };
        let earliest = rooted().map(|(_, _, start, _)| start).min().unwrap_or_default();
        Step {
            run_id,
            complete: rooted().count() == lives.len(),
            start_ns: rooted().filter(|(_, run, ..)| on_first(run)).map(|(_, _, start, _)| start).min(),
            critical,
            skew_ns,
            excess: Excess {
                start_ns: excess(&|run| Some(run.start_ns?.saturating_sub(earliest))).filter(|_| one_clock),
                host_ns: excess(&StepRun::host_ns),
                device_ns: excess(&|run| run.device_ns),
            },
            runs,
        }
    }

    /// For each run, by its index, how long its device was idle before it. Both runs' windows must have a place on the
    /// host's axis.
    fn device_gaps(&self) -> FxHashMap<u32, DeviceGap> {
        let mut runs: Vec<(u32, i64, u32)> = (0..self.invocations().len() as u32)
            .filter(|&index| self.run(index).kind == Kind::Run)
            .map(|index| {
                let run = self.run(index);
                let launched = run.stage(self, Stage::RunnerRun).map(|runner| runner.ts);
                (run.life, launched.unwrap_or_else(|| self.began_ns(index)), index)
            })
            .collect();
        runs.sort_unstable();
        let mut gaps = FxHashMap::default();
        let mut before: Option<(u32, Option<Placed>)> = None;
        for (life, _, index) in runs {
            let run = self.run(index);
            let placed = self
                .alignment(run)
                .zip(run.stage(self, Stage::DeviceWall))
                .map(|(alignment, wall)| alignment.place(self, wall));
            if let (Some((of, Some(last))), Some(this)) = (before, placed)
                && of == life
            {
                gaps.insert(
                    index,
                    DeviceGap {
                        ns: this.start_ns.saturating_sub(last.end_ns),
                        error_ns: this.error_ns.saturating_add(last.error_ns),
                    },
                );
            }
            before = Some((life, placed));
        }
        gaps
    }
}

/// The ranks, and how often each was late.
fn lateness(lives: Vec<u32>, steps: &[Step]) -> Vec<Rank> {
    let mut ranks: Vec<Rank> = lives
        .into_iter()
        .map(|life| Rank { life, critical: 0, excess_mean_ns: None, late_by: [0; 3] })
        .collect();
    let mut excesses: Vec<Vec<i64>> = vec![Vec::new(); ranks.len()];
    for step in steps.iter().filter(|step| step.complete && step.runs.len() > 1) {
        let Some(run) = step.critical_run() else { continue };
        let fastest = step.runs.iter().filter_map(|run| run.dur_ns).min();
        let excess = run.dur_ns.zip(fastest).map(|(dur, fastest)| dur.saturating_sub(fastest));
        excesses[run.rank].extend(excess);
        ranks[run.rank].critical += 1;
        if let Some(side) = step.excess.late_by() {
            ranks[run.rank].late_by[side as usize] += 1;
        }
    }
    for (rank, excesses) in ranks.iter_mut().zip(excesses) {
        rank.excess_mean_ns = mean_ns(&excesses);
    }
    ranks
}
