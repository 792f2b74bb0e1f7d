//! The busiest callable's runs one by one: what each took on the host and on the device.
//!
//! A run that lost its root is a round all the same, with its host time missing; a device time that the
//! log does not hold is missing too. No mean includes what is missing.

use crate::build::Trace;
use crate::callable::Callable;
use crate::invocation::{Invocation, Kind};
use crate::vocabulary::Stage;

/// With more rounds than this, the extremes are also cut off before the mean.
const TRIM_ABOVE: usize = 20;

/// How many of the lowest and of the highest values a trimmed mean leaves out.
const TRIMMED_EACH: usize = 10;

const _: () = assert!(TRIM_ABOVE >= 2 * TRIMMED_EACH);

/// One run, times in ns; `None` is what the log does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Round {
    /// The whole run on the host.
    pub host_ns: Option<i64>,
    /// The whole window on the device.
    pub device_ns: Option<i64>,
    /// The window of orchestrator and schedulers together.
    pub effective_ns: Option<i64>,
    /// The orchestrator's window.
    pub orch_ns: Option<i64>,
    /// The schedulers' window.
    pub sched_ns: Option<i64>,
}

/// A mean without the extremes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trimmed {
    /// The mean in ns.
    pub mean_ns: f64,
    /// How many values were left.
    pub used: usize,
    /// How many were left out at either end.
    pub dropped_each: usize,
}

/// The rounds of one callable.
#[derive(Clone, Debug, PartialEq)]
pub struct Rounds {
    /// The callable.
    pub hid: u64,
    /// Its runs, in the order of their inv.
    pub rounds: Vec<Round>,
}

impl Rounds {
    /// The mean in ns of those rounds that have the value, and their number.
    pub fn mean(&self, value: impl Fn(&Round) -> Option<i64>) -> Option<(f64, usize)> {
        let values: Vec<i64> = self.rounds.iter().filter_map(value).collect();
        mean(&values).map(|mean| (mean, values.len()))
    }

    /// The mean without the ten lowest and the ten highest, if there are enough values for that.
    pub fn trimmed(&self, value: impl Fn(&Round) -> Option<i64>) -> Option<Trimmed> {
        let mut values: Vec<i64> = self.rounds.iter().filter_map(value).collect();
        if values.len() <= TRIM_ABOVE {
            return None;
        }
        values.sort_unstable();
        let kept = &values[TRIMMED_EACH..values.len() - TRIMMED_EACH];
        Some(Trimmed { mean_ns: mean(kept)?, used: kept.len(), dropped_each: TRIMMED_EACH })
    }
}

fn mean(values: &[i64]) -> Option<f64> {
    let sum: i128 = values.iter().map(|&value| i128::from(value)).sum();
    (!values.is_empty()).then(|| sum as f64 / values.len() as f64)
}

impl Trace {
    /// What an invocation took on the host and on the device.
    pub fn round(&self, invocation: &Invocation) -> Round {
        let stage = |stage| invocation.stage(self, stage).map(|span| span.dur);
        Round {
            host_ns: invocation.root_span(self).map(|root| root.dur),
            device_ns: stage(Stage::DeviceWall),
            effective_ns: invocation.effective_ns(self),
            orch_ns: stage(Stage::Orch),
            sched_ns: stage(Stage::Sched),
        }
    }

    /// The rounds of the callable with the most runs, of `callables` as [`Trace::callables`] gives them;
    /// `None` if nothing ran.
    pub fn rounds(&self, callables: &[Callable]) -> Option<Rounds> {
        let runs = |callable: &Callable| {
            let kind = |&&index: &&u32| self.invocations()[index as usize].kind == Kind::Run;
            callable.invocations.iter().filter(kind).count()
        };
        // The first of equals: `max_by_key` alone would take the last.
        let busiest = callables.iter().rev().max_by_key(|callable| runs(callable))?;
        let rounds: Vec<Round> = busiest
            .invocations
            .iter()
            .map(|&index| &self.invocations()[index as usize])
            .filter(|invocation| invocation.kind == Kind::Run)
            .map(|invocation| self.round(invocation))
            .collect();
        (!rounds.is_empty()).then_some(Rounds { hid: busiest.hid, rounds })
    }
}
