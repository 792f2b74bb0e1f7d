//! The way of a record: asked for, encoded, submitted to the sink, or written at once while there is none.

use core::fmt;
use core::sync::atomic::Ordering;

use simpler_log_abi::{DropReason, Level, SimplerHostLogState, Threshold};
use simpler_record_format::{Envelope, Location, RECORD_BYTES, SpanFields, encode_text, frame};

use crate::admission::Gate;
use crate::anchor::AnchorClaim;
use crate::destination::{self, Output};
use crate::identity::{monotonic_ns, pid, thread_handle, tid};
use crate::writer::Sink;
use crate::{anchor_record, state};

/// Whether a record at `level` would be emitted now.
// HOT: one relaxed load.
#[inline]
pub fn enabled(level: Level) -> bool {
    // Relaxed: a change of the threshold takes effect soon, not at a certain record. A value off the ladder
    // cannot get here, and would only shift the border; NUL's value is above every level's.
    level as i32 >= state().threshold.load(Ordering::Relaxed)
}

/// Changes the threshold, for this and all bound modules of the process at once.
pub fn set_threshold(threshold: Threshold) {
    state().threshold.store(threshold.get(), Ordering::Relaxed);
}

/// Emits a text record; the macros are the usual way here. Does nothing when the level is muted.
///
/// The record has at most 512 bytes with its newline; a longer one is cut there and ends in `~`.
pub fn log(level: Level, func: &str, location: Option<Location<'_>>, body: fmt::Arguments<'_>) {
    if !enabled(level) {
        return;
    }
    ensure_anchor();
    let mut record = [0; RECORD_BYTES];
    let envelope = Envelope { mono_ns: monotonic_ns(), thread: thread_handle(), level, func };
    let size = encode_text(&mut record, &envelope, location, body);
    submit(&record[..size], 0);
}

/// Emits a span of this process and thread at `mono_ns`; pid and tid are filled in here.
// HOT: one frame, one submission.
#[inline]
pub(crate) fn span(mono_ns: i64, span: SpanFields<'_>) {
    // Asked again: the threshold may have changed since the span was entered.
    if !enabled(Level::Timing) {
        return;
    }
    ensure_anchor();
    let mut record = [0; RECORD_BYTES];
    let span = SpanFields { pid: pid(), tid: i64::from(tid()), ..span };
    let size = frame::encode_span_frame(&mut record, mono_ns, thread_handle(), &span);
    submit(&record[..size], 0);
}

/// Emits the process's clock anchor, unless that is done or TIMING is muted.
// HOT: two loads once it is done.
#[inline]
pub(crate) fn ensure_anchor() {
    if !AnchorClaim::new(&state().clock_anchor_pid).is_settled(pid()) && enabled(Level::Timing) {
        emit_anchor();
    }
}

#[cold]
fn emit_anchor() {
    let pid = pid();
    let claim = AnchorClaim::new(&state().clock_anchor_pid);
    if !claim.claim(pid) {
        return;
    }
    let mut record = [0; RECORD_BYTES];
    let size = anchor_record::encode(&mut record);
    match submit(&record[..size], pid) {
        true => claim.finish(pid),
        false => claim.undo(pid),
    }
}

/// Hands one record to the sink, or writes it at once while there is none. Gives whether it was accepted;
/// if not, the loss is counted.
// HOT: three read-modify-writes and a copy once the writer runs.
#[inline]
pub(crate) fn submit(record: &[u8], anchor_pid: i32) -> bool {
    let state = state();
    let gate = Gate::new(&state.sink_producer_state);
    if in_synchronous_window(state) {
        return write_synchronously(record, anchor_pid);
    }
    if !gate.enter() {
        count_drop(state, DropReason::NotAdmitted);
        return false;
    }
    // ORDERING: Acquire pairs with the Release of the owner in `start_writer`.
    if state.sink_owner_pid.load(Ordering::Acquire) != pid() {
        // Counted while inside: a quiesce that has seen everybody leave has every count.
        count_drop(state, DropReason::NotAdmitted);
        gate.leave();
        return false;
    }
    match Sink::mapped() {
        Some(sink) => sink.accept(state, record, anchor_pid),
        None => {
            count_drop(state, DropReason::NotAdmitted);
            gate.leave();
            false
        }
    }
}

/// Whether there is no sink and nobody is making or unmaking one: before the first start, and from a
/// quiesce to the next start.
#[inline]
fn in_synchronous_window(state: &SimplerHostLogState) -> bool {
    // ORDERING: Acquire pairs with the stores in `start_writer` and `prepare_to_fork`, and keeps the four
    // looks in order. They are no snapshot; a record at the window's edge may be taken either way.
    state.sink_owner_pid.load(Ordering::Acquire) == 0
        && state.sink_enqueue.load(Ordering::Acquire).is_null()
        && state.sink_context.load(Ordering::Acquire).is_null()
        && !Gate::new(&state.sink_producer_state).is_closed()
}

/// Writes a record to its destination on the caller's thread. A loss is counted.
#[cold]
fn write_synchronously(record: &[u8], anchor_pid: i32) -> bool {
    let landed = try_write_synchronously(record, anchor_pid);
    if !landed {
        count_drop(state(), DropReason::OutputFailed);
    }
    landed
}

/// As [`write_synchronously`], without counting.
pub(crate) fn try_write_synchronously(record: &[u8], anchor_pid: i32) -> bool {
    let mut line = [0; RECORD_BYTES];
    let size = frame::render(record, &mut line);
    let line = &line[..size];
    if line.is_empty() {
        return false;
    }
    if destination::is_bound(state()) {
        return Output::new(None).append(line, 0, &[size as u32]) == 1;
    }
    let landed = destination::write_stderr(line);
    if landed && anchor_pid != 0 {
        anchor_record::went_to_stderr(anchor_pid);
    }
    landed
}

/// Counts one lost record: in the total and under exactly one reason.
#[cold]
pub(crate) fn count_drop(state: &SimplerHostLogState, reason: DropReason) {
    state.dropped_by_reason[reason as usize].fetch_add(1, Ordering::Relaxed);
    state.dropped_record_count.fetch_add(1, Ordering::Relaxed);
}
