//! Whether runs of a chip were pipelined: run N + 1 bound while run N was on the device, in the order they were sent.
//!
//! What is proved is proved from host spans alone. A run takes part if its root says who it is: `run_id`,
//! `dispatch_id`, `run_epoch`, `slot_id`, `generation`, all integers. Its place in the sequence is `dispatch_id`, or
//! `run_epoch` where that is 0, and a run in which both are 0 was not phased and takes no part. Within a process life
//! runs follow each other by the start of `runner_run`, and of each two neighbours (RUNTIME §7.9):
//!
//! - the sequence rises;
//! - `bind` of the second and `runner_run` of the first share some time, and, where that is asked for, `bind` has ended
//!   when `runner_run` ends, so that all of it was hidden;
//! - `runner_run` of the second does not start before `claim_release` of the first does.

use std::fmt;

use crate::build::Trace;
use crate::invocation::Invocation;
use crate::span::Span;
use crate::vocabulary::Stage;

/// The attributes that say who a run is.
const IDENTITY: [&str; 5] = ["run_id", "dispatch_id", "run_epoch", "slot_id", "generation"];
/// The spans that a run must have, by the last part of their names.
const REQUIRED: [(&str, Stage); 3] =
    [("bind", Stage::Bind), ("runner_run", Stage::RunnerRun), ("claim_release", Stage::ClaimRelease)];

/// Why runs were not pipelined, or cannot be said to have been.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotOverlapped(String);

impl fmt::Display for NotOverlapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NotOverlapped {}

/// Who a run is, by what its root says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RunIdentity {
    /// Its process.
    pub pid: u64,
    /// Its invocation.
    pub inv: u64,
    /// `run_id`.
    pub run_id: i64,
    /// `dispatch_id`; 0 if no scheduler gave one.
    pub dispatch_id: i64,
    /// `run_epoch`.
    pub run_epoch: i64,
    /// `slot_id`.
    pub slot_id: i64,
    /// `generation`.
    pub generation: i64,
}

impl RunIdentity {
    /// Its place among the runs of its process: `dispatch_id`, or `run_epoch` where that is 0.
    pub fn sequence(&self) -> i64 {
        if self.dispatch_id == 0 { self.run_epoch } else { self.dispatch_id }
    }
}

impl fmt::Display for RunIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pid {} inv {} (sequence {})", self.pid, self.inv, self.sequence())
    }
}

/// A run that takes part.
struct Run<'t> {
    life: u32,
    identity: RunIdentity,
    bind: &'t Span,
    runner_run: &'t Span,
    claim_release: &'t Span,
}

impl fmt::Display for Run<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.identity.fmt(f)
    }
}

impl Trace {
    /// The pairs of neighbouring runs, all of which were pipelined; `hidden`: and the whole binding of the second was
    /// hidden behind the first.
    ///
    /// # Errors
    /// The first pair, or the first run, that says otherwise; or that there is no pair.
    pub fn native_overlap(&self, hidden: bool) -> Result<Vec<[RunIdentity; 2]>, NotOverlapped> {
        let mut runs = Vec::new();
        let mut identities = rustc_hash::FxHashSet::default();
        for invocation in self.invocations() {
            if let Some((run, numbers)) = self.identified(invocation)? {
                if !identities.insert((run.life, numbers)) {
                    return refuse(format!("duplicate identity: {run}"));
                }
                runs.push(run);
            }
        }
        runs.sort_by_key(|run| (run.life, run.runner_run.ts));
        let mut pairs = Vec::new();
        for pair in runs.windows(2).filter(|pair| pair[0].life == pair[1].life) {
            check(&pair[0], &pair[1], hidden)?;
            pairs.push([pair[0].identity, pair[1].identity]);
        }
        if pairs.is_empty() {
            return refuse("need at least two complete native runs of one process");
        }
        Ok(pairs)
    }

    /// The run that an invocation is, with its identity; None if it takes no part.
    fn identified(&self, invocation: &Invocation) -> Result<Option<(Run<'_>, [i64; 5])>, NotOverlapped> {
        let Some(root) = invocation.root_span(self) else { return Ok(None) };
        let attributes = self.attributes(root);
        let (pid, inv) = (self.life_of(invocation).pid, invocation.inv);
        let values = IDENTITY.map(|key| attributes.get(key));
        let missing: Vec<_> =
            IDENTITY.iter().zip(&values).filter(|(_, value)| value.is_none()).map(|(key, _)| *key).collect();
        if missing.len() == IDENTITY.len() {
            return Ok(None);
        }
        if !missing.is_empty() {
            return refuse(format!("pid {pid} inv {inv}: missing identity field(s) {}", missing.join(", ")));
        }
        let mut numbers = [0; IDENTITY.len()];
        for ((number, key), value) in numbers.iter_mut().zip(IDENTITY).zip(values) {
            let value = value.unwrap_or_default();
            let Ok(integer) = value.parse() else {
                return refuse(format!("pid {pid} inv {inv}: non-integer identity {key}={value}"));
            };
            *number = integer;
        }
        let [run_id, dispatch_id, run_epoch, slot_id, generation] = numbers;
        let identity = RunIdentity { pid, inv, run_id, dispatch_id, run_epoch, slot_id, generation };
        if identity.sequence() == 0 {
            return Ok(None);
        }
        let spans = REQUIRED.map(|(_, stage)| invocation.stage(self, stage));
        let [Some(bind), Some(runner_run), Some(claim_release)] = spans else {
            let missing = REQUIRED.iter().zip(spans).filter(|(_, span)| span.is_none());
            let missing: Vec<_> = missing.map(|((name, _), _)| *name).collect();
            return refuse(format!("{identity} is missing span(s) {}", missing.join(", ")));
        };
        let run = Run { life: invocation.life, identity, bind, runner_run, claim_release };
        Ok(Some((run, numbers)))
    }
}

/// Looks at two neighbours.
fn check(first: &Run<'_>, second: &Run<'_>, hidden: bool) -> Result<(), NotOverlapped> {
    if second.identity.sequence() <= first.identity.sequence() {
        return refuse(format!("launch order is not monotonic: {second} follows {first}"));
    }
    let (bind, runner_run) = (second.bind, first.runner_run);
    if bind.ts >= runner_run.end() || runner_run.ts >= bind.end() {
        return refuse(format!("bind of {second} did not overlap runner_run of {first}"));
    }
    if hidden && bind.end() > runner_run.end() {
        return refuse(format!("bind of {second} was not fully hidden behind runner_run of {first}"));
    }
    if second.runner_run.ts < first.claim_release.ts {
        return refuse(format!("runner_run of {second} was reordered before the claim release of {first}"));
    }
    Ok(())
}

fn refuse<T>(why: impl Into<String>) -> Result<T, NotOverlapped> {
    Err(NotOverlapped(why.into()))
}
