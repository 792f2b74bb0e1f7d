//! The clock anchor as a record: the pair of clock readings, and its repetition in a later destination.
//!
//! The anchor is emitted once per process. If a directory is bound after it went to stderr, the file would
//! have none, so the same anchor, with the same readings, is written again as the file's first record. The
//! readings are kept in the shared state, since the module whose anchor it was need not be the one that opens
//! the file.

use std::sync::atomic::Ordering;

use simpler_record_format::{
    ClockAnchor, RECORD_BYTES, encode_clock_anchor, parse_clock_anchor, parse_envelope,
};

use crate::identity::{monotonic_ns, pid, thread_handle, wall_ns};
use crate::state;

/// Reads both clocks and writes the record; only for the holder of the claim.
pub(crate) fn encode(out: &mut [u8; RECORD_BYTES]) -> usize {
    let mono_ns = monotonic_ns();
    let anchor = ClockAnchor { pid: pid() as _, mono_ns, wall_ns: wall_ns() };
    encode_clock_anchor(out, mono_ns, thread_handle(), &anchor)
}

/// `line`, the anchor of process `pid`, whichever module made it, landed on stderr.
pub(crate) fn went_to_stderr(pid: i32, line: &[u8]) {
    let (Some(anchor), Some((envelope, _))) = (parse_clock_anchor(line), parse_envelope(line)) else {
        return;
    };
    let state = state();
    state.anchor_mono_ns.store(anchor.mono_ns, Ordering::Relaxed);
    state.anchor_wall_ns.store(anchor.wall_ns, Ordering::Relaxed);
    state.anchor_thread.store(envelope.thread, Ordering::Relaxed);
    // ORDERING: Release pairs with the Acquire in `take_repeat`, here and in other modules: the readings are
    // visible with it.
    state.anchor_stderr_pid.store(pid, Ordering::Release);
}

/// Whether this process's anchor went to stderr and stands in no file yet.
pub(crate) fn is_to_be_repeated() -> bool {
    state().anchor_stderr_pid.load(Ordering::Relaxed) == pid()
}

/// The anchor once more, if this process's went to stderr; the caller writes it or gives it back.
pub(crate) fn take_repeat(out: &mut [u8; RECORD_BYTES]) -> Option<usize> {
    let state = state();
    // ORDERING: Acquire pairs with the Release in `went_to_stderr`. One caller of all modules gets it.
    state.anchor_stderr_pid.compare_exchange(pid(), 0, Ordering::Acquire, Ordering::Relaxed).ok()?;
    let mono_ns = state.anchor_mono_ns.load(Ordering::Relaxed);
    let anchor =
        ClockAnchor { pid: pid() as _, mono_ns, wall_ns: state.anchor_wall_ns.load(Ordering::Relaxed) };
    Some(encode_clock_anchor(out, mono_ns, state.anchor_thread.load(Ordering::Relaxed), &anchor))
}

/// What [`take_repeat`] gave did not land.
pub(crate) fn give_back_repeat() {
    // ORDERING: Release, as in `went_to_stderr`.
    state().anchor_stderr_pid.store(pid(), Ordering::Release);
}
