//! Early dispatch: a task that is on its cores before what it waits for is done.
//!
//! A task that allows it (`early_resolve`) *announces* itself when all of its blocks are on cores. Another one, of which
//! every predecessor has either completed or announced itself, may be *staged*: written to idle cores, which do not start
//! it before their doorbell is rung. Who completes its last predecessor rings. So between the two kernels there is no
//! dispatch, only a doorbell.
//!
//! Announcements are a second fan-in over the same tasks: a count of who has not announced itself, and a list of who
//! listens, that an announcement swaps closed as a completion does the list of successors (`fan`). A predecessor that does
//! not allow it announces itself by completing. Only a task with a predecessor that allows it *listens*; for all others
//! nothing of this is touched.
//!
//! When the count is down the task is *queued*. Whichever scheduler takes it from there stages as many of its blocks as it
//! has idle cores for, and puts it back for the others, or gives the rest up. It becomes ready at any time, and whoever
//! made it so rings the doorbells of what is staged; what is staged later lets its own cores start:
//!
//! ```text
//!                            who made it ready does this with what is not on cores
//!   in no queue, given up    puts it into the ready queue
//!   queued                   leaves it to who takes it from the queue: into the ready queue
//!   staged, all of it        nothing
//! ```
//!
//! Each core is in one of two words, and each of them says whether the task is ready, so one operation decides which of
//! the two came first, and every doorbell is rung exactly once. The lower word also says whether the upper one is in use:
//! who made the task ready may not touch it otherwise, since nothing but its doorbells keeps the task from ending and the
//! slot from being another's.

use super::fan::CLOSED;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// In both words: the task waits for nothing any more.
const READY: u64 = 1 << 63;
/// In the lower word: the task is in the queue of tasks to be staged, or with who took it from there.
const QUEUED: u64 = 1 << 62;
/// In the lower word: all of it is on cores.
const STAGED: u64 = 1 << 61;
/// In the lower word: there are, or are about to be, cores in the upper one.
const HIGH: u64 = 1 << 60;
/// Cores in the lower word; the others are in the upper one.
const LOW_CORES: usize = 60;
/// Cores in the upper word.
const HIGH_CORES: usize = 63;
/// Cores that a staged task can be on: more than an a5 has (RUNTIME §1.5).
pub const STAGED_CORES_MAX: usize = LOW_CORES + HIGH_CORES;

/// What early dispatch knows of a task. Any bytes are one of a task that has no part in it.
#[repr(C)]
#[derive(Debug)]
pub struct EarlyRecord {
    /// Predecessors that have not announced themselves, and the orchestrator's own count.
    unannounced: AtomicU32,
    /// Who listens: a list as that of successors.
    pub(super) listeners: AtomicU32,
    /// States, and the lower cores that were staged.
    low: AtomicU64,
    /// The upper ones.
    high: AtomicU64,
}

/// Cores, by bit.
pub type CoreSet = u128;

const _: () = assert!(STAGED_CORES_MAX <= CoreSet::BITS as usize);

/// What becomes of a task that waits for nothing any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Becomes {
    /// It, or what is not on cores of it, goes into the ready queue.
    pub ready: bool,
    /// The doorbells of these cores are to be rung.
    pub staged: CoreSet,
}

impl Becomes {
    /// As a task that has no part in early dispatch.
    pub const READY: Self = Self { ready: true, staged: 0 };
}

impl Default for EarlyRecord {
    fn default() -> Self {
        Self::new()
    }
}

impl EarlyRecord {
    /// Of a task that has no part in it.
    pub fn new() -> Self {
        Self {
            unannounced: AtomicU32::new(0),
            listeners: AtomicU32::new(CLOSED),
            low: AtomicU64::new(0),
            high: AtomicU64::new(0),
        }
    }

    /// As a task begins with it that announces itself or listens to so many predecessors. Orchestrator only, before the
    /// task is linked or pushed anywhere.
    pub fn prepare(&self, predecessors: u32) {
        // ORDERING: Relaxed: nobody else knows the task yet, here and below; as in `TaskSlot::prepare`.
        self.unannounced.store(predecessors + 1, Ordering::Relaxed);
        self.listeners.store(super::fan::EMPTY, Ordering::Relaxed);
        self.low.store(0, Ordering::Relaxed);
        self.high.store(0, Ordering::Relaxed);
    }

    /// Counts announcements; whether those were the last and the task is not ready, so that the caller must put it into the
    /// queue.
    #[inline]
    pub fn hear(&self, announcements: u32) -> bool {
        // ORDERING: AcqRel: pairs with itself: who queues the task has seen what all who announced themselves did before.
        self.unannounced.fetch_sub(announcements, Ordering::AcqRel) == announcements
            // ORDERING: AcqRel: see `make_ready`.
            && self.low.fetch_or(QUEUED, Ordering::AcqRel) & READY == 0
    }

    /// Notes that the task waits for nothing any more. Once, by who counted the last predecessor.
    pub fn make_ready(&self) -> Becomes {
        // ORDERING: AcqRel, on both words: Acquire pairs with the Release in `stage`: what was written to the cores is
        // there. Release pairs with the Acquire in `stage` and `give_up`: what the predecessors wrote is visible to who
        // lets the task start.
        let low = self.low.fetch_or(READY, Ordering::AcqRel);
        let mut staged = CoreSet::from(low & (HIGH - 1));
        if low & HIGH != 0 {
            // Whoever is at it has blocks that wait for a doorbell, or rings its own first when it sees READY in `low`.
            // ORDERING: AcqRel: as above.
            staged |= CoreSet::from(self.high.fetch_or(READY, Ordering::AcqRel) & !READY) << LOW_CORES;
        }
        Becomes { ready: low & (QUEUED | STAGED) == 0, staged }
    }

    /// Notes that blocks of the task are on these cores, `all` that were left or not. By who took it from the queue. The
    /// cores that the caller must ring, since the task was ready before.
    #[must_use]
    pub fn stage(&self, cores: CoreSet, all: bool) -> CoreSet {
        let (low, high) = (cores as u64 & (HIGH - 1), (cores >> LOW_CORES) as u64);
        let mut ring = 0;
        if high != 0 {
            // ORDERING: AcqRel: see `make_ready`.
            let before = self.low.fetch_or(HIGH, Ordering::AcqRel);
            // Who made it ready before there was any upper core leaves the upper word alone: then the first here says so.
            let first_says = if before & (READY | HIGH) == READY { READY } else { 0 };
            // ORDERING: AcqRel: see `make_ready`.
            let high_before = self.high.fetch_or(high | first_says, Ordering::AcqRel);
            if (high_before | first_says) & READY != 0 {
                ring |= CoreSet::from(high) << LOW_CORES;
            }
        }
        let state = if all { STAGED } else { 0 };
        // ORDERING: AcqRel: see `make_ready`.
        if self.low.fetch_or(low | state, Ordering::AcqRel) & READY != 0 {
            ring |= CoreSet::from(low);
        }
        ring
    }

    /// Gives up what is not on cores. By who took the task from the queue. Whether it is ready already, so that the caller
    /// must put it into the ready queue.
    #[must_use]
    pub fn give_up(&self) -> bool {
        // ORDERING: AcqRel: see `make_ready`.
        self.low.fetch_and(!QUEUED, Ordering::AcqRel) & READY != 0
    }

    /// Whether the task waits for nothing any more.
    pub fn is_ready(&self) -> bool {
        // ORDERING: Acquire: see `make_ready`.
        self.low.load(Ordering::Acquire) & READY != 0
    }
}
