//! The device side: plain stores into slots that belong to one thread.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::layout::{PhaseBufferLayout, START_UNSET};
use crate::phase::Phase;
use crate::slot::TaskSlot;

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

    /// Stamps nothing.
    pub const fn nowhere() -> Self {
        Self { base: core::ptr::null_mut(), layout: PhaseBufferLayout::new(0), thread_index: 0 }
    }

    /// Stores the window of a phase, in cycles.
    #[inline]
    pub fn stamp(&self, phase: Phase, start_cycles: u64, end_cycles: u64) {
        let Some([start, end]) = self.record(self.layout.record_offset(self.thread_index, phase)) else {
            return;
        };
        // ORDERING: Relaxed: no one reads before the host has joined the device's threads or synchronised
        // with its stream; that is the release and the acquire.
        start.store(start_cycles, Ordering::Relaxed);
        end.store(end_cycles, Ordering::Relaxed);
    }

    /// Notes that a task of `slot` was published at this cycle, right before the write that makes a core start it.
    /// The earliest of this thread counts.
    #[inline]
    pub fn task_dispatched(&self, slot: TaskSlot, cycles: u64) {
        let Some([dispatch, _]) = self.record(self.layout.slot_offset(self.thread_index, slot)) else {
            return;
        };
        // ORDERING: Relaxed: this thread alone writes the record; see `stamp` for who reads it.
        if cycles < dispatch.load(Ordering::Relaxed) {
            dispatch.store(cycles, Ordering::Relaxed);
        }
    }

    /// Notes that a task of `slot` was seen to have finished at this cycle. The latest of this thread counts.
    #[inline]
    pub fn task_finished(&self, slot: TaskSlot, cycles: u64) {
        let Some([_, finish]) = self.record(self.layout.slot_offset(self.thread_index, slot)) else { return };
        // ORDERING: Relaxed: as in `task_dispatched`.
        if cycles > finish.load(Ordering::Relaxed) {
            finish.store(cycles, Ordering::Relaxed);
        }
    }

    /// Tells the host whether the slots hold anything: any dispatch, complete or not. For the thread that finishes
    /// last, once it has seen all others finish.
    pub fn publish_tail_use(&self) {
        let threads = self.layout.threads();
        let dispatched = |offset| {
            // ORDERING: Relaxed: the caller's acquire of the other threads' end orders these.
            self.record(offset).is_some_and(|[dispatch, _]| dispatch.load(Ordering::Relaxed) != START_UNSET)
        };
        let used = (0..threads)
            .any(|thread| TaskSlot::all().any(|slot| dispatched(self.layout.slot_offset(thread, slot))));
        if let Some([tail_used, _]) = self.record((threads != 0).then_some(0)) {
            // ORDERING: Relaxed: as in `stamp`.
            tail_used.store(u64::from(used), Ordering::Relaxed);
        }
    }

    /// The two words at an offset of the layout; None without a buffer.
    #[inline]
    fn record(&self, offset: Option<usize>) -> Option<[&AtomicU64; 2]> {
        let offset = offset.filter(|_| !self.base.is_null())?;
        // SAFETY: `new`'s caller vouches for the size, and the layout gives offsets inside it.
        let first = unsafe { self.base.add(offset) }.cast::<u64>();
        // SAFETY: every record, the header among them, has a second word, inside the layout like the first.
        let second = unsafe { first.add(1) };
        // SAFETY: aligned and live by `new`'s contract; every concurrent access is one of these.
        let first = unsafe { AtomicU64::from_ptr(first) };
        // SAFETY: as for the first.
        let second = unsafe { AtomicU64::from_ptr(second) };
        Some([first, second])
    }

    /// Reads the counter now and when the scope ends, on whichever path, and then stamps the phase.
    #[inline]
    pub fn scope<C: Fn() -> u64>(&self, phase: Phase, counter: C) -> PhaseScope<C> {
        let start = counter();
        self.scope_from(phase, start, counter)
    }

    /// As [`PhaseStamper::scope`], for a phase that began when the counter showed `start_cycles`.
    #[inline]
    pub fn scope_from<C: Fn() -> u64>(&self, phase: Phase, start_cycles: u64, counter: C) -> PhaseScope<C> {
        PhaseScope { stamper: *self, phase, start: start_cycles, counter }
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
