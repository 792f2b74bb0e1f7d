//! The parent's spans: one submission, one dispatch, one completion per run, at depth 0.
//!
//! Their names begin with the level's word, `node` and above it `networkN`, so that readers keep them apart from the
//! chips' invocations;
//! `inv` is the run id and `hid` the callable's, which ties them to the run they are about. `role` says whom
//! a span concerns: the submission the facade that was called, the rest the worker.

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
            run,
            format_args!("run_id={} task_slot={} role=facade", run.run_id, run.task_slot),
        );
    }

    /// `<level>.dispatch`: handing the frame to the worker.
    pub(crate) fn end_dispatch(self, run: &RunIdentity) {
        self.end_worker(run.names.dispatch, run);
    }

    /// `<level>.complete`: taking the outcome from the worker's frame.
    pub(crate) fn end_complete(self, run: &RunIdentity) {
        self.end_worker(run.names.complete, run);
    }

    fn end_worker(self, name: &str, run: &RunIdentity) {
        self.end(
            name,
            run,
            format_args!(
                "run_id={} task_slot={} worker_id={} dispatch_id={} role=worker",
                run.run_id, run.task_slot, run.worker_id, run.dispatch_id
            ),
        );
    }

    fn end(self, name: &str, run: &RunIdentity, attributes: fmt::Arguments<'_>) {
        let Some(ts) = self.0 else { return };
        let dur = monotonic_ns() - ts;
        let mut text = Attributes { bytes: [0; ATTRIBUTE_BYTES], used: 0 };
        // Cannot fail: the buffer is larger than the longest text.
        let _ = text.write_fmt(attributes);
        emit_span(&SpanEvent {
            name,
            inv: run.run_id,
            hid: run.hid,
            depth: 0,
            ts,
            dur,
            attrs: text.as_str(),
        });
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
