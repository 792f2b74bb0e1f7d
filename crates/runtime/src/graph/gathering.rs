//! Tasks whose blocks start together: how schedulers gather the cores for one.
//!
//! One task at a time gathers as many idle cores, or clusters, as it has blocks. One scheduler opens it with a task.
//! While blocks are left to be claimed, every scheduler claims as many as it has idle cores for and dispatches nothing
//! else, so that cores become idle; it holds those cores until the last block is claimed, and dispatches them then. Who
//! dispatches the last block closes it, and the next task can gather.
//!
//! Whoever leaves with cores held calls it off. Where that comes too late, since the last block was claimed, others may
//! have started theirs, which wait for the held ones: then those are started all the same.

use std::ops::Range;

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// The task that gathers, if one does. All zero is nobody. Any scheduler may call any method, as far as the method says.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Gathering {
    /// [`Gathering::CLOSED`], [`Gathering::OPENING`], or the task plus one above the blocks that nobody has claimed. One
    /// word, so that a claim is for the task that it means.
    word: AtomicU64,
    /// Blocks that were not dispatched.
    undispatched: AtomicU32,
}

impl Default for Gathering {
    fn default() -> Self {
        Self::new()
    }
}

impl Gathering {
    const CLOSED: u64 = 0;
    const OPENING: u64 = u64::MAX;

    /// Nobody gathers.
    pub fn new() -> Self {
        Self { word: AtomicU64::new(Self::CLOSED), undispatched: AtomicU32::new(0) }
    }

    const fn gathers(word: u64) -> Option<(u32, u32)> {
        match word {
            Self::CLOSED | Self::OPENING => None,
            _ => Some(((word >> 32) as u32 - 1, word as u32)),
        }
    }

    /// The task that gathers, if one does, and the blocks that nobody has claimed.
    #[inline]
    pub fn state(&self) -> Option<(u32, u32)> {
        // ORDERING: Acquire: pairs with the Release in `begin` and `claim`: the task's slot is visible.
        Self::gathers(self.word.load(Ordering::Acquire))
    }

    /// Takes the right to begin; whoever has it must `begin` or `close`.
    pub fn open(&self) -> bool {
        let (success, failure) = (Ordering::Acquire, Ordering::Relaxed);
        // ORDERING: Acquire: pairs with the Release in `close`: the last one's counts came before ours. Relaxed on
        // failure: somebody else has it.
        self.word.compare_exchange(Self::CLOSED, Self::OPENING, success, failure).is_ok()
    }

    /// Gathers for a task.
    pub fn begin(&self, task: u32, blocks: u32) {
        // ORDERING: Relaxed: published by the store below.
        self.undispatched.store(blocks, Ordering::Relaxed);
        // ORDERING: Release: pairs with the Acquire in `state` and `claim`.
        self.word.store(u64::from(task + 1) << 32 | u64::from(blocks), Ordering::Release);
    }

    /// The next task can gather.
    pub fn close(&self) {
        // ORDERING: Release: pairs with the Acquire in `open`.
        self.word.store(Self::CLOSED, Ordering::Release);
    }

    /// Claims up to `units` blocks for `task`; those that it got begin with 0 when no block is left. None where the
    /// task does not gather any more or has no block left.
    pub fn claim(&self, task: u32, units: u32) -> Option<Range<u32>> {
        let claim = |word: u64| match Self::gathers(word) {
            Some((of, left)) if of == task && left != 0 && units != 0 => {
                Some(word - u64::from(left.min(units)))
            }
            _ => None,
        };
        // ORDERING: AcqRel: who sees the last block claimed comes after all who claimed before; Acquire on failure: as
        // in `state`.
        let before = self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, claim).ok()? as u32;
        Some(before - before.min(units)..before)
    }

    /// Ends it for good, unless no block of `task` is left to be claimed; false then, and what is held must be dispatched.
    pub fn call_off(&self, task: u32) -> bool {
        let call_off = |word: u64| match Self::gathers(word) {
            Some((of, left)) if of == task && left != 0 => Some(Self::OPENING),
            _ => None,
        };
        // ORDERING: AcqRel: as in `claim`. Nobody opens what is opening.
        self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, call_off).is_ok()
    }

    /// Counts blocks that were dispatched by who had claimed them; the last one closes it.
    pub fn dispatched(&self, blocks: u32) {
        // ORDERING: Relaxed: a count. The next one to begin stores it after the last one closed, and reads nothing that
        // the others have written.
        if self.undispatched.fetch_sub(blocks, Ordering::Relaxed) == blocks {
            self.close();
        }
    }
}
