//! The device side: plain stores into slots that belong to one thread.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::layout::PhaseBufferLayout;
use crate::phase::Phase;

/// Stamps the phases of one AICPU thread. Cheap to copy; without a buffer, or for a thread that was not
/// launched, it does nothing.
#[derive(Clone, Copy, Debug)]
pub struct PhaseStamper {
    base: *mut u8,
    layout: PhaseBufferLayout,
    thread_index: usize,
}

impl PhaseStamper {
    /// Stamps as thread `thread_index` of `threads` launched ones into the buffer at `base`; null: no buffer.
    ///
    /// # Safety
    ///
    /// Unless `base` is null:
    /// - it is aligned to 8 and [`PhaseBufferLayout::bytes`] of `threads` long, and stays so as long as the
    ///   stamper or a copy of it is used,
    /// - while device threads run, the buffer is accessed by stampers only.
    pub const unsafe fn new(base: *mut u8, threads: usize, thread_index: usize) -> Self {
        Self { base, layout: PhaseBufferLayout::new(threads), thread_index }
    }

    /// Stores the window of a phase, in cycles.
    #[inline]
    pub fn stamp(&self, phase: Phase, start_cycles: u64, end_cycles: u64) {
        if self.base.is_null() {
            return;
        }
        let Some(offset) = self.layout.record_offset(self.thread_index, phase) else { return };
        // SAFETY: `new`'s caller vouches for the size, and the layout gives offsets inside it.
        let start = unsafe { self.base.add(offset) }.cast::<u64>();
        // SAFETY: aligned and live by `new`'s contract; every concurrent access is one of these.
        let start_word = unsafe { AtomicU64::from_ptr(start) };
        // SAFETY: the end is the second word of the same record, inside the layout like the first.
        let end = unsafe { start.add(1) };
        // SAFETY: as for the start.
        let end_word = unsafe { AtomicU64::from_ptr(end) };
        // ORDERING: Relaxed: no one reads before the host has joined the device's threads or synchronised
        // with its stream; that is the release and the acquire.
        start_word.store(start_cycles, Ordering::Relaxed);
        end_word.store(end_cycles, Ordering::Relaxed);
    }

    /// Reads the counter now and when the scope ends, on whichever path, and then stamps the phase.
    #[inline]
    pub fn scope<C: Fn() -> u64>(&self, phase: Phase, counter: C) -> PhaseScope<C> {
        let start = counter();
        PhaseScope { stamper: *self, phase, start, counter }
    }
}

/// Stamps its phase when it is dropped.
#[must_use = "the phase ends when the scope is dropped"]
#[derive(Debug)]
pub struct PhaseScope<C: Fn() -> u64> {
    stamper: PhaseStamper,
    phase: Phase,
    start: u64,
    counter: C,
}

impl<C: Fn() -> u64> Drop for PhaseScope<C> {
    fn drop(&mut self) {
        self.stamper.stamp(self.phase, self.start, (self.counter)());
    }
}
