//! The parent's spans: one submission, one dispatch, one completion per run, and each wait for one, at depth 0.
//!
//! Their names begin with the level's word, `node` and above it `networkN`, so that readers keep them apart from the
//! chips' invocations;
//! `inv` is the run id and `hid` the callable's, which ties them to the run they are about. `role` says whom
//! a span concerns: the submission the facade that was called, the wait the scheduler, the rest the worker. There is no
//! thread for a scheduler: who waits for a run does its work meanwhile, which is the completion. Such a wait is of no
//! invocation, and none where the run had ended already.

use std::fmt::{self, Write};

use simpler_host_log::{SpanEvent, emit_span, monotonic_ns, span_enabled};

use crate::ChildId;
use crate::level::Names;

/// Enough for five identities of 20 digits; the record's own limit is 192.
const ATTRIBUTE_BYTES: usize = 192;

/// Which run a span belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunIdentity {
    pub(crate) run_id: u64,
    pub(crate) hid: u64,
    pub(crate) task_slot: usize,
    /// The child that it is for, and its number among all children.
    pub(crate) child: ChildId,
    pub(crate) worker_id: usize,
    pub(crate) dispatch_id: u64,
    /// The level's words.
    pub(crate) names: Names,
}

/// The beginning of a span; nothing when spans are muted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start(Option<i64>);

impl Start {
    pub(crate) fn now() -> Self {
        Self(span_enabled().then(monotonic_ns))
    }

    /// `<level>.submit`: the facade's part, from the call to its return.
    pub(crate) fn end_submit(self, run: &RunIdentity) {
        self.end(
            run.names.submit,
            (run.run_id, run.hid),
            format_args!("run_id={} task_slot={} role=facade", run.run_id, run.task_slot),
        );
    }

    /// `<level>.dispatch`: handing the frame to the worker.
    pub(crate) fn end_dispatch(self, run: &RunIdentity) {
        self.end_worker(run.names.dispatch, run);
    }

    /// `<level>.complete`: taking the outcome from the worker's frame. Gives how long it took, in ns.
    pub(crate) fn end_complete(self, run: &RunIdentity) -> i64 {
        self.end_worker(run.names.complete, run)
    }

    /// In ns; 0 when spans are muted.
    pub(crate) fn elapsed_ns(self) -> i64 {
        self.0.map_or(0, |ts| monotonic_ns() - ts)
    }

    fn end_worker(self, name: &str, run: &RunIdentity) -> i64 {
        self.end(
            name,
            (run.run_id, run.hid),
            format_args!(
                "run_id={} task_slot={} worker_id={} dispatch_id={}{} role=worker",
                run.run_id,
                run.task_slot,
                run.worker_id,
                run.dispatch_id,
                if matches!(run.child, ChildId::Remote(_)) { " endpoint_kind=remote" } else { "" }
            ),
        )
    }

    fn end(self, name: &str, (inv, hid): (u64, u64), attributes: fmt::Arguments<'_>) -> i64 {
        let Some(ts) = self.0 else { return 0 };
        let dur = monotonic_ns() - ts;
        let mut text = Attributes { bytes: [0; ATTRIBUTE_BYTES], used: 0 };
        // Cannot fail: the buffer is larger than the longest text.
        let _ = text.write_fmt(attributes);
        emit_span(&SpanEvent { name, inv, hid, depth: 0, ts, dur, attrs: text.as_str() });
        dur
    }
}

/// `<level>.scheduler_loop`: a wait for a run, from the first look that finds nothing until the outcome is taken, or the
/// child is gone.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SchedulerLoop {
    began: Option<Start>,
    /// Looks that found nothing.
    spins: u64,
    /// Outcomes taken, and how long that took.
    drained: u64,
    drain_ns: i64,
}

impl SchedulerLoop {
    pub(crate) fn spin(&mut self) {
        self.began.get_or_insert_with(Start::now);
        self.spins += 1;
    }

    pub(crate) fn drain(&mut self, drain_ns: i64) {
        self.drained += 1;
        self.drain_ns += drain_ns;
    }

    /// Nothing is handed over in a wait, so `dispatched` is 0.
    pub(crate) fn end(self, names: &Names) {
        let Self { began: Some(began), spins, drained, drain_ns } = self else { return };
        let attributes =
            format_args!("role=scheduler drained={drained} dispatched=0 drain_ns={drain_ns} spins={spins}");
        began.end(names.scheduler_loop, (0, 0), attributes);
    }
}

/// Attributes on the stack.
struct Attributes {
    bytes: [u8; ATTRIBUTE_BYTES],
    used: usize,
}

impl Attributes {
    fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.used]).unwrap_or_default()
    }
}

impl Write for Attributes {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.bytes.get_mut(self.used..self.used + text.len()).ok_or(fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.used += text.len();
        Ok(())
    }
}
