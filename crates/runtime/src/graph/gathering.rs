//! Tasks whose blocks start together: how schedulers gather the cores for one.
//!
//! One task at a time gathers as many idle cores, or clusters, as it has blocks. One scheduler opens it with a task.
//! While blocks are left to be claimed, every scheduler claims as many as it has idle cores for and dispatches nothing
//! else, so that cores become idle; it holds those cores until the last block is claimed, and dispatches them then. Who
//! dispatches the last block closes it, and the next task can gather.
//!
//! A slot may gather for one task, and later for another. A claim names the round that it was made for, so that who was
//! held up since it looked does not claim for a task that it knows nothing of.
//!
//! Whoever leaves with cores held calls it off. Where that comes too late, since the last block was claimed, others may
//! have started theirs, which wait for the held ones: then those are started all the same.

use std::ops::Range;

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// The task that gathers, if one does. All zero is nobody. Any scheduler may call any method, as far as the method says.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Gathering {
    /// The round, the task, and the blocks that nobody has claimed. One word, so that a claim is for the task that it
    /// means. Between two rounds there is no task, and a block says that a round is about to begin.
    word: AtomicU64,
    /// Blocks that were not dispatched.
    undispatched: AtomicU32,
}

impl Default for Gathering {
    fn default() -> Self {
        Self::new()
    }
}

/// Bits of the blocks in the word: a task has at most as many as the chip has cores.
const BLOCK_BITS: u32 = 8;
/// Bits of the task plus one; 0 is no task.
const TASK_BITS: u32 = 28;
/// Slots of a graph at most. The round has the bits above, and would come again only to a scheduler that is held up for
/// as many rounds between two instructions.
pub const SLOTS_MAX: u64 = (1 << TASK_BITS) - 1;
/// In place of a task.
const NOBODY: u32 = u32::MAX;
/// Blocks of a task that gathers, at most.
pub const GATHERED_MAX: u32 = (1 << BLOCK_BITS) - 1;

/// A task that gathers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Round {
    /// Its slot.
    pub task: u32,
    /// Blocks that nobody has claimed.
    pub unclaimed: u32,
    number: u64,
}

impl Round {
    const fn of(word: u64) -> Self {
        let task = ((word >> BLOCK_BITS & SLOTS_MAX) as u32).wrapping_sub(1);
        Self { task, unclaimed: word as u32 & GATHERED_MAX, number: word >> (BLOCK_BITS + TASK_BITS) }
    }

    const fn word(self) -> u64 {
        let task = self.task.wrapping_add(1) as u64;
        self.number << (BLOCK_BITS + TASK_BITS) | task << BLOCK_BITS | self.unclaimed as u64
    }

    fn gathers(self) -> bool {
        self.task != NOBODY
    }

    const fn nobody(number: u64, opening: bool) -> Self {
        Self { task: NOBODY, unclaimed: opening as u32, number }
    }
}

impl Gathering {
    /// Nobody gathers.
    pub fn new() -> Self {
        Self { word: AtomicU64::new(Round::nobody(0, false).word()), undispatched: AtomicU32::new(0) }
    }

    /// As at first, for a run in which nobody gathers yet.
    pub fn reset(&self) {
        // ORDERING: Relaxed: the caller publishes it.
        self.word.store(Round::nobody(0, false).word(), Ordering::Relaxed);
    }

    /// The task that gathers, if one does.
    #[inline]
    pub fn round(&self) -> Option<Round> {
        // ORDERING: Acquire: pairs with the Release in `begin` and `claim`: the task's slot is visible.
        Some(Round::of(self.word.load(Ordering::Acquire))).filter(|round| round.gathers())
    }

    /// The right to begin a round; whoever has it must `begin` or `close`. None where another one has it, or a task
    /// gathers.
    pub fn open(&self) -> Option<Round> {
        // ORDERING: Relaxed: a guess.
        let round = Round::of(self.word.load(Ordering::Relaxed));
        if round.gathers() || round.unclaimed != 0 {
            return None;
        }
        let opening = Round::nobody(round.number, true);
        let (success, failure) = (Ordering::Acquire, Ordering::Relaxed);
        // ORDERING: Acquire: pairs with the Release in `close`: the last one's counts came before ours. Relaxed on
        // failure: somebody else has it.
        self.word.compare_exchange(round.word(), opening.word(), success, failure).ok()?;
        Some(opening)
    }

    /// Gathers for a task, at most [`GATHERED_MAX`] blocks, in the round that `opening` is the right to.
    pub fn begin(&self, opening: Round, task: u32, blocks: u32) {
        // ORDERING: Relaxed: published by the store below.
        self.undispatched.store(blocks, Ordering::Relaxed);
        // ORDERING: Release: pairs with the Acquire in `round` and `claim`.
        self.word.store(Round { task, unclaimed: blocks, ..opening }.word(), Ordering::Release);
    }

    /// The next task can gather; for who has the right to `round`, or dispatched its last block.
    pub fn close(&self, round: Round) {
        // ORDERING: Release: pairs with the Acquire in `open`.
        self.word.store(Round::nobody(round.number + 1, false).word(), Ordering::Release);
    }

    /// Claims up to `units` blocks in a round; those that it got begin with 0 when no block is left. None where that
    /// round is over or has no block left.
    pub fn claim(&self, round: Round, units: u32) -> Option<Range<u32>> {
        let claim = |word: u64| {
            let now = Round::of(word);
            let unclaimed = now.unclaimed.checked_sub(now.unclaimed.min(units).max(1))?;
            (now.task == round.task && now.number == round.number && units != 0)
                .then(|| Round { unclaimed, ..now }.word())
        };
        // ORDERING: AcqRel: who sees the last block claimed comes after all who claimed before; Acquire on failure: as
        // in `round`.
        let before = self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, claim).ok()?;
        let before = Round::of(before).unclaimed;
        Some(before - before.min(units)..before)
    }

    /// Ends a round for good, unless none of its blocks is left to be claimed; false then, and what is held must be
    /// dispatched.
    pub fn call_off(&self, round: Round) -> bool {
        let call_off = |word: u64| {
            let now = Round::of(word);
            (now.task == round.task && now.number == round.number && now.unclaimed != 0)
                .then(|| Round::nobody(now.number, true).word())
        };
        // ORDERING: AcqRel: as in `claim`. Nobody opens what is opening.
        self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, call_off).is_ok()
    }

    /// Counts blocks that were dispatched by who had claimed them; the last one closes the round.
    pub fn dispatched(&self, round: Round, blocks: u32) {
        // ORDERING: Relaxed: a count. The next one to begin stores it after the last one closed, and reads nothing that
        // the others have written.
        if self.undispatched.fetch_sub(blocks, Ordering::Relaxed) == blocks {
            self.close(round);
        }
    }
}
