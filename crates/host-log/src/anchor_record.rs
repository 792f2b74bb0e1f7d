//! The clock anchor as a record: the pair of clock readings, and its repetition in a later destination.
//!
//! The anchor is emitted once per process. If a directory is bound after it went to stderr, the file would
//! have none, so the same anchor, with the same readings, is written again as the file's first record.

use std::sync::atomic::{AtomicI32, AtomicI64, AtomicU64, Ordering};

use simpler_record_format::{ClockAnchor, RECORD_BYTES, encode_clock_anchor};

use crate::identity::{monotonic_ns, pid, thread_handle, wall_ns};

/// The process whose anchor stands on stderr and not in a file; 0 if none.
///
/// FORK: the parent's pid is not the child's, so the child repeats nothing.
static ON_STDERR: AtomicI32 = AtomicI32::new(0);
/// The readings of the latest anchor. Written only by who holds the anchor's claim.
static MONO_NS: AtomicI64 = AtomicI64::new(0);
static WALL_NS: AtomicI64 = AtomicI64::new(0);
static THREAD: AtomicU64 = AtomicU64::new(0);

/// Reads both clocks and writes the record; only for the holder of the claim.
pub(crate) fn encode(out: &mut [u8; RECORD_BYTES]) -> usize {
    MONO_NS.store(monotonic_ns(), Ordering::Relaxed);
    WALL_NS.store(wall_ns(), Ordering::Relaxed);
    THREAD.store(thread_handle(), Ordering::Relaxed);
    encode_latest(out)
}

/// The anchor of process `pid` landed on stderr.
pub(crate) fn went_to_stderr(pid: i32) {
    // ORDERING: Release pairs with the Acquire in `take_repeat`: the readings are visible with it.
    ON_STDERR.store(pid, Ordering::Release);
}

/// Whether this process's anchor went to stderr and stands in no file yet.
pub(crate) fn is_to_be_repeated() -> bool {
    ON_STDERR.load(Ordering::Relaxed) == pid()
}

/// The anchor once more, if this process's went to stderr; the caller writes it or gives it back with
/// [`went_to_stderr`].
pub(crate) fn take_repeat(out: &mut [u8; RECORD_BYTES]) -> Option<usize> {
    // ORDERING: Acquire pairs with the Release in `went_to_stderr`. One caller gets it.
    ON_STDERR
        .compare_exchange(pid(), 0, Ordering::Acquire, Ordering::Relaxed)
        .is_ok()
        .then(|| encode_latest(out))
}

fn encode_latest(out: &mut [u8; RECORD_BYTES]) -> usize {
    let mono_ns = MONO_NS.load(Ordering::Relaxed);
    let anchor = ClockAnchor { pid: pid() as _, mono_ns, wall_ns: WALL_NS.load(Ordering::Relaxed) };
    encode_clock_anchor(out, mono_ns, THREAD.load(Ordering::Relaxed), &anchor)
}
