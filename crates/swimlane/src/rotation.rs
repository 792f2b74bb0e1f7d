//! Buffers that go round: the words that device and host share, and who does what with them.
//!
//! ```text
//!            reserve, commit                   ready queue, one per AICPU thread
//!   device ── active buffer ── full ──▶ push (pool, buffer, seq, count) ──▶ pop ── host copies
//!                   ▲                                                                  │
//!                   └── pop ◀── free queue, one per pool ◀── push ─────────────────────┘
//! ```
//!
//! Every word is an atomic with one writer. A buffer has one owner at any time: the device from the pop of the
//! free queue to the push of the ready queue, the host from there to the push of the free queue. A push is what
//! ends an owner's accesses and a pop what begins the next one's, so the records themselves are plain memory.
//!
//! A buffer leaves the active head only after the ready queue has it, and only when each of its records was
//! committed. When there is no place or no buffer the device waits at a [`Gate`]; a record that gets no place is
//! counted where it is lost.

use core::cell::Cell;

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Places of a free queue (RUNTIME 6.1), and so the most buffers that a pool may have: a refill always finds one.
pub const FREE_PLACES: usize = 4;

/// What a device thread does where it cannot go on alone.
pub trait Gate {
    /// A ready queue has one more entry: whoever drains it may be told.
    fn handed_over(&self);

    /// Returns true once `open` does, or false when the caller shall not wait any longer and lose its record.
    /// Nothing may be recorded in here.
    fn wait(&self, open: &mut dyn FnMut() -> bool) -> bool;
}

/// The active head of a pool, written by the device.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub(crate) struct ActiveHead {
    /// Address of the buffer that is being filled; 0: none.
    pub(crate) buffer: AtomicU64,
    /// Buffers that were handed over before it.
    pub(crate) seq: AtomicU32,
    /// Records that were to be made in this run.
    pub(crate) total: AtomicU32,
    /// And those of them that were lost.
    pub(crate) dropped: AtomicU32,
    /// Places that are taken in the buffer.
    pub(crate) count: AtomicU32,
    /// And those of them that are filled.
    pub(crate) committed: AtomicU32,
    reserved: [u32; 9],
}

/// The free buffers of a pool: put in by the host, taken out by the device.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub(crate) struct FreeQueue {
    buffers: [AtomicU64; FREE_PLACES],
    /// Buffers taken out so far; written by the device.
    head: AtomicU32,
    /// Buffers put in so far; written by the host.
    tail: AtomicU32,
    reserved: [u64; 11],
}

/// A pool as both sides see it.
#[repr(C)]
#[derive(Debug, Default)]
pub(crate) struct Pool {
    pub(crate) head: ActiveHead,
    pub(crate) free: FreeQueue,
}

/// The ends of a ready queue, on lines of their own.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub(crate) struct ReadyEnds {
    /// Entries taken out so far; written by the host.
    taken: AtomicU32,
    taken_line: [u32; 15],
    /// Entries put in so far; written by the device.
    put: AtomicU32,
    put_line: [u32; 15],
}

/// One place of a ready queue.
#[repr(C)]
#[derive(Debug, Default)]
pub(crate) struct ReadyPlace {
    index: AtomicU32,
    kind: AtomicU32,
    buffer: AtomicU64,
    seq: AtomicU32,
    count: AtomicU32,
}

/// A full buffer on its way to the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FullBuffer {
    /// The core or thread of the pool.
    pub(crate) index: u32,
    /// The number of the pool's record kind.
    pub(crate) kind: u32,
    /// Address of the buffer.
    pub(crate) buffer: u64,
    /// Buffers of the pool that were handed over before.
    pub(crate) seq: u32,
    /// Records in it.
    pub(crate) count: u32,
}

/// The queue of full buffers of one AICPU thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadyQueue<'a> {
    pub(crate) ends: &'a ReadyEnds,
    /// A power of two of them, so that the counters may wrap.
    pub(crate) places: &'a [ReadyPlace],
}

impl ReadyQueue<'_> {
    fn place(&self, number: u32) -> Option<&ReadyPlace> {
        self.places.get(number as usize & self.places.len().wrapping_sub(1))
    }

    /// Device: whether a push will find a place.
    pub(crate) fn has_room(&self) -> bool {
        // ORDERING: Acquire: pairs with the Release in `pop`: the host has read the place before it is written
        // again. `put` is this thread's own.
        let taken = self.ends.taken.load(Ordering::Acquire);
        let waiting = self.ends.put.load(Ordering::Relaxed).wrapping_sub(taken);
        (waiting as usize) < self.places.len()
    }

    /// Device: puts a buffer in; false if there is no place.
    pub(crate) fn push(&self, full: FullBuffer) -> bool {
        // ORDERING: Relaxed: the device's own word.
        let put = self.ends.put.load(Ordering::Relaxed);
        let Some(place) = self.place(put).filter(|_| self.has_room()) else { return false };
        // ORDERING: Relaxed: published by the store of `put`.
        place.index.store(full.index, Ordering::Relaxed);
        place.kind.store(full.kind, Ordering::Relaxed);
        place.buffer.store(full.buffer, Ordering::Relaxed);
        place.seq.store(full.seq, Ordering::Relaxed);
        place.count.store(full.count, Ordering::Relaxed);
        // ORDERING: Release: pairs with the Acquire in `pop`, for the place and for the buffer's records.
        self.ends.put.store(put.wrapping_add(1), Ordering::Release);
        true
    }

    /// Host: takes the oldest buffer out. Its records may be read from now on.
    #[cfg(feature = "host")]
    pub(crate) fn pop(&self) -> Option<FullBuffer> {
        // ORDERING: Relaxed: the host's own word.
        let taken = self.ends.taken.load(Ordering::Relaxed);
        // ORDERING: Acquire: pairs with the Release in `push`.
        if self.ends.put.load(Ordering::Acquire) == taken {
            return None;
        }
        let place = self.place(taken)?;
        // ORDERING: Relaxed: the Acquire above has made them visible.
        let full = FullBuffer {
            index: place.index.load(Ordering::Relaxed),
            kind: place.kind.load(Ordering::Relaxed),
            buffer: place.buffer.load(Ordering::Relaxed),
            seq: place.seq.load(Ordering::Relaxed),
            count: place.count.load(Ordering::Relaxed),
        };
        // ORDERING: Release: pairs with the Acquire in `has_room`: the place was read.
        self.ends.taken.store(taken.wrapping_add(1), Ordering::Release);
        Some(full)
    }
}

impl FreeQueue {
    /// Host: puts a buffer in that it no longer reads; false if there is no place.
    #[cfg(feature = "host")]
    pub(crate) fn push(&self, buffer: u64) -> bool {
        // ORDERING: Relaxed: the host's own word.
        let tail = self.tail.load(Ordering::Relaxed);
        // ORDERING: Acquire: pairs with the Release in `pop`: the device has read the place.
        if tail.wrapping_sub(self.head.load(Ordering::Acquire)) as usize >= FREE_PLACES {
            return false;
        }
        // ORDERING: Relaxed: published by the store of `tail`.
        self.buffers[tail as usize % FREE_PLACES].store(buffer, Ordering::Relaxed);
        // ORDERING: Release: pairs with the Acquire in `pop` and `is_empty`: the host has copied the records
        // before the device writes new ones.
        self.tail.store(tail.wrapping_add(1), Ordering::Release);
        true
    }

    /// Device: whether there is no buffer.
    pub(crate) fn is_empty(&self) -> bool {
        // ORDERING: Relaxed for the device's own word; Acquire: pairs with the Release in `push`.
        self.tail.load(Ordering::Acquire) == self.head.load(Ordering::Relaxed)
    }

    /// Device: takes a buffer out. Its records may be written from now on.
    pub(crate) fn pop(&self) -> Option<u64> {
        if self.is_empty() {
            return None;
        }
        // ORDERING: Relaxed: the device's own word, and a place that the Acquire in `is_empty` has made visible.
        let head = self.head.load(Ordering::Relaxed);
        let buffer = self.buffers[head as usize % FREE_PLACES].load(Ordering::Relaxed);
        // ORDERING: Release: pairs with the Acquire in `push`: the place was read.
        self.head.store(head.wrapping_add(1), Ordering::Release);
        Some(buffer)
    }
}

/// Adds one to a word that only this thread writes.
fn bump(word: &AtomicU32) {
    // ORDERING: Relaxed: the device's own word; the host reads it after the run, which orders the two.
    word.store(word.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
}

/// Where a record goes: the address of the active buffer, and the place in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) buffer: u64,
    pub(crate) slot: u32,
}

/// The device's side of one pool.
///
/// The words of the active head are written here alone and read by the host after the run only, whose end is the
/// release and the acquire; so they are Relaxed throughout.
pub(crate) struct Rotation<'a> {
    pub(crate) head: &'a ActiveHead,
    pub(crate) free: &'a FreeQueue,
    pub(crate) ready: ReadyQueue<'a>,
    pub(crate) gate: &'a dyn Gate,
    pub(crate) index: u32,
    pub(crate) kind: u32,
    /// Records that a buffer holds.
    pub(crate) capacity: u32,
    /// The gate did not open in time, and has not been seen open since.
    pub(crate) gave_up: Cell<bool>,
}

impl Rotation<'_> {
    /// Takes a place for a record; None if it is lost, which was counted.
    // HOT: a handful of loads and stores of one cache line, unless the buffer is full.
    #[inline]
    pub(crate) fn reserve(&self) -> Option<Place> {
        bump(&self.head.total);
        let place = self.place();
        if place.is_none() {
            bump(&self.head.dropped);
        }
        place
    }

    /// The oldest record that was reserved and not committed is filled.
    #[inline]
    pub(crate) fn commit(&self) {
        if self.is_uncommitted() {
            bump(&self.head.committed);
        }
    }

    /// Whether a record that is not committed keeps a full buffer, so that one that is reserved now is lost.
    #[inline]
    pub(crate) fn is_held_up(&self) -> bool {
        self.head.count.load(Ordering::Relaxed) >= self.capacity && self.is_uncommitted()
    }

    /// Whether a record was reserved and not committed.
    #[inline]
    fn is_uncommitted(&self) -> bool {
        self.head.committed.load(Ordering::Relaxed) != self.head.count.load(Ordering::Relaxed)
    }

    #[inline]
    fn place(&self) -> Option<Place> {
        let buffer = self.head.buffer.load(Ordering::Relaxed);
        let slot = self.head.count.load(Ordering::Relaxed);
        if buffer != 0 && slot < self.capacity {
            self.head.count.store(slot + 1, Ordering::Relaxed);
            return Some(Place { buffer, slot });
        }
        self.turn_over(buffer)
    }

    /// Hands the full buffer over, if there is one, and takes the first place of a fresh one.
    #[cold]
    fn turn_over(&self, full: u64) -> Option<Place> {
        let head = self.head;
        if full != 0 {
            // Who fills the record may still be at it: the buffer stays.
            if self.is_uncommitted() {
                return None;
            }
            let (seq, count) = (head.seq.load(Ordering::Relaxed), head.count.load(Ordering::Relaxed));
            if !self.wait(|| self.ready.has_room()) {
                return None;
            }
            let entry = FullBuffer { index: self.index, kind: self.kind, buffer: full, seq, count };
            if !self.ready.push(entry) {
                return None;
            }
            // Delivered, and only therefore no longer the head's.
            head.buffer.store(0, Ordering::Relaxed);
            head.seq.store(seq.wrapping_add(1), Ordering::Relaxed);
            head.count.store(0, Ordering::Relaxed);
            head.committed.store(0, Ordering::Relaxed);
            self.gate.handed_over();
        }
        if !self.wait(|| !self.free.is_empty()) {
            return None;
        }
        let buffer = self.free.pop()?;
        head.buffer.store(buffer, Ordering::Relaxed);
        head.count.store(1, Ordering::Relaxed);
        Some(Place { buffer, slot: 0 })
    }

    /// Waits at the gate, unless it stayed shut the last time: then the records are lost until it is open.
    fn wait(&self, mut open: impl FnMut() -> bool) -> bool {
        let is_open = open() || (!self.gave_up.get() && self.gate.wait(&mut open));
        self.gave_up.set(!is_open);
        is_open
    }
}
