//! The event count: an epoch that notifications advance, and the number of threads parked on it.
//!
//! Both live in one 64-bit word, the epoch above, the count below. A notification adds to the epoch and learns
//! the count from the same read-modify-write; a waiter adds itself to the count and learns the epoch from the
//! same read-modify-write. One of the two comes first in the word's modification order, so either the waiter
//! sees the new epoch and does not sleep, or the notifier sees the waiter and wakes it. There is no pair of
//! words whose stores and loads could pass each other, and a notification that nobody waits for costs one
//! read-modify-write.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::sync::Word;

/// One parked thread, in the lower half.
const ONE_PARKED: u64 = 1;
/// One notification, in the upper half; its overflow leaves the word at the top.
const ONE_EPOCH: u64 = 1 << 32;

/// What [`EventCount::epoch`] saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch(u32);

impl Epoch {
    const fn of(word: u64) -> Self {
        Self((word >> 32) as u32)
    }
}

const fn parked_in(word: u64) -> u32 {
    word as u32
}

/// A word to park on: 8 bytes, aligned to 8, all zero when new, usable in memory that processes share.
///
/// Any thread may call any method. A waiter that read an epoch and then slept through exactly 2^32
/// notifications would take them for none; a park lasts at most [`REST_SLICE`](crate::REST_SLICE), in which
/// that many cannot happen.
///
/// A waiter that is killed while parked leaves the count too high by one, which costs later notifications a
/// system call each and nothing else.
// FORK: in private memory the child gets a copy: an epoch that is still right, and a count that may include
// threads that the child does not have (the cost is as above). In shared memory both have the same word.
#[repr(transparent)]
#[derive(Debug)]
pub struct EventCount {
    word: Word,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<EventCount>() == 8 && align_of::<EventCount>() == 8);

impl Default for EventCount {
    fn default() -> Self {
        Self::new()
    }
}

impl EventCount {
    /// An event that was never rung.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self { word: Word::new(0) }
    }

    /// An event that was never rung.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self { word: Word::new(0) }
    }

    /// The number of notifications so far, modulo 2^32. Read it before looking at the condition.
    #[inline]
    pub fn epoch(&self) -> Epoch {
        // ORDERING: Acquire: pairs with the Release half of `notify`: who sees an epoch sees what was done
        // before it was rung. It also keeps the look at the condition behind this load.
        Epoch::of(self.word.load(Ordering::Acquire))
    }

    /// Wakes one waiter. Call it after the condition was made true.
    ///
    /// For events with one waiter, or where any waiter can do the work; a waiter that is awake sees the epoch
    /// and needs no wake.
    #[inline]
    pub fn notify_one(&self) {
        self.notify(1);
    }

    /// As [`EventCount::notify_one`], for every waiter.
    #[inline]
    pub fn notify_all(&self) {
        self.notify(i32::MAX);
    }

    #[inline]
    fn notify(&self, waiters: i32) {
        // ORDERING: Release: pairs with the Acquire loads in `epoch` and `park`, so that the condition's
        // stores are visible to who sees the new epoch. No fence is needed for the count: it is in the word
        // that this operation changes.
        let before = self.word.fetch_add(ONE_EPOCH, Ordering::Release);
        if parked_in(before) != 0 {
            self.word.wake(waiters);
        }
    }

    /// Parks until the epoch is no longer `seen`, at most `timeout`, or for no reason less.
    pub(crate) fn park(&self, seen: Epoch, timeout: Duration) {
        // ORDERING: Acquire: pairs with the Release half of `notify` where it finds a newer epoch. Where it
        // finds `seen`, every later notification comes after it in the word's modification order and finds
        // this waiter counted; the kernel compares the epoch again when it puts the waiter to sleep.
        let before = self.word.fetch_add(ONE_PARKED, Ordering::Acquire);
        if Epoch::of(before) == seen {
            self.word.sleep_while(seen.0, timeout);
        }
        // ORDERING: Relaxed: the count only saves system calls; what the waiter does next begins with `epoch`.
        self.word.fetch_sub(ONE_PARKED, Ordering::Relaxed);
    }
}
