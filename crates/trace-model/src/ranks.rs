//! Ranks, which are process lives that run callables, and which of their runs are one round over all of them.
//!
//! Runs whose roots carry the same `run_id` are one round, whichever rank they are of; where a rank has a callable
//! several times under one, the first is of the first such round, the second of the second. That says something only
//! where ranks share numbers: a parent that numbers every hand-over gives each rank numbers of its own.

use crate::build::Trace;
use crate::invocation::Invocation;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// A round: `run_id`, callable, and how often a rank had that pair before.
pub(crate) type RoundKey = (i64, u64, usize);

/// Runs by the round that their roots say they are of.
pub(crate) struct Identified {
    /// For each round its runs, indices into the trace's invocations, at most one a rank.
    pub(crate) rounds: BTreeMap<RoundKey, Vec<u32>>,
    /// Runs that lost their root, or whose root does not say.
    pub(crate) apart: Vec<u32>,
    /// Whether any round has runs of two ranks. If not, the numbers are no round's.
    pub(crate) shared: bool,
}

impl Trace {
    /// Those of `runs`, which are indices into the invocations, a rank's in their order.
    pub(crate) fn identified_rounds(&self, runs: impl IntoIterator<Item = u32>) -> Identified {
        let mut found = Identified { rounds: BTreeMap::new(), apart: Vec::new(), shared: false };
        let mut repeats: FxHashMap<(u32, i64, u64), usize> = FxHashMap::default();
        for index in runs {
            let run = self.run(index);
            let root = run.root_span(self);
            let Some(run_id) = root.and_then(|root| self.attributes(root).integer("run_id")) else {
                found.apart.push(index);
                continue;
            };
            let repeat = repeats.entry((run.life, run_id, run.hid)).or_default();
            let round = found.rounds.entry((run_id, run.hid, *repeat)).or_default();
            round.push(index);
            found.shared |= round.len() > 1;
            *repeat += 1;
        }
        found
    }

    /// The invocation at an index.
    pub(crate) fn run(&self, index: u32) -> &Invocation {
        &self.invocations()[index as usize]
    }

    /// Whose clock a life reads: lives with the same have comparable times, those with `None` nobody's. A log that names
    /// at most one host is one host's.
    pub(crate) fn clock_of(&self, life: u32) -> Option<u64> {
        match self.hosts() {
            [_, _, ..] => self.lives()[life as usize].host,
            _ => Some(0),
        }
    }
}
