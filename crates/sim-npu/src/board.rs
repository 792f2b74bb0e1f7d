//! Which cores have something to do, and who advances them.
//!
//! A core is rung when its register is written, and advanced by one thread at a time, whichever claims it.
//! Each core counts the rings that nobody has answered. The ring that makes the count 1 posts the core's bit in
//! the mask of pending cores; taking the bit is the claim. The claimant answers the rings that it has seen, and
//! only when none are left does it let go: a ring that comes while the core is being advanced finds the count
//! above 0, posts nothing, and is answered by the claimant's next look. So a core is never advanced by two
//! threads, and no ring is lost.

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// A bit each in one word.
pub(crate) const CORES_MAX: usize = u64::BITS as usize;

/// Keeps what different threads write apart: two cache lines, which is what a CPU fetches at once.
#[repr(align(128))]
#[derive(Debug, Default)]
pub(crate) struct Apart<T>(pub(crate) T);

/// Who is to advance a pending core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Any of a few threads.
    Shared = 0,
    /// A thread that has nothing else to do: what the core runs may wait for what other cores of this lane run.
    Together = 1,
}

/// The pending cores, by lane, and the rings of each.
pub(crate) struct Board {
    pending: [Apart<AtomicU64>; 2],
    rings: Box<[Apart<AtomicU32>]>,
}

/// The right to advance a core.
pub(crate) struct Claim<'a> {
    core: usize,
    rings: &'a AtomicU32,
    /// Rings that this claimant has seen and will answer.
    seen: u32,
}

impl Board {
    /// A board of at most [`CORES_MAX`] cores, none rung.
    pub(crate) fn new(cores: usize) -> Self {
        let rings = (0..cores.min(CORES_MAX)).map(|_| Apart(AtomicU32::new(0))).collect();
        Self { pending: [Apart(AtomicU64::new(0)), Apart(AtomicU64::new(0))], rings }
    }

    /// Rings a core. True if a thread of the lane must be told that there is a core to claim. False also for a core
    /// that does not exist.
    pub(crate) fn ring(&self, core: usize, lane: Lane) -> bool {
        let Some(rings) = self.rings.get(core) else { return false };
        // ORDERING: Release: pairs with the Acquire in `Claim::settle` (which answers this ring) or in `claim`
        // (through the bit): the claimant sees what was written to the core's registers before. Acquire: pairs
        // with the Release in `settle` of the last claimant, whose effects go to the next one by the bit.
        if rings.0.fetch_add(1, Ordering::AcqRel) != 0 {
            return false;
        }
        // ORDERING: Release: pairs with the Acquire of the `fetch_and` in `claim`.
        self.pending[lane as usize].0.fetch_or(1 << core, Ordering::Release);
        true
    }

    /// Claims a pending core of a lane, the first from `from` on, going round.
    pub(crate) fn claim(&self, lane: Lane, from: usize) -> Option<Claim<'_>> {
        let lane = &self.pending[lane as usize].0;
        loop {
            // ORDERING: Relaxed: only a hint of what to try; the `fetch_and` decides. That a bit is seen in time
            // is the bell's business, which is rung after the bit was set.
            let pending = lane.load(Ordering::Relaxed);
            if pending == 0 {
                return None;
            }
            let from = from % CORES_MAX;
            let core = (pending.rotate_right(from as u32).trailing_zeros() as usize + from) % CORES_MAX;
            let bit = 1 << core;
            // ORDERING: Acquire: pairs with the Release of the `fetch_or` in `ring`.
            if lane.fetch_and(!bit, Ordering::Acquire) & bit == 0 {
                continue;
            }
            let rings = &self.rings.get(core)?.0;
            // ORDERING: Acquire: pairs with the Release in `ring`, for the rings that came after the bit.
            let seen = rings.load(Ordering::Acquire);
            return Some(Claim { core, rings, seen });
        }
    }

    /// Whether no core is rung or being advanced.
    pub(crate) fn is_quiet(&self) -> bool {
        // ORDERING: Acquire: pairs with the Release in `settle`: the claimant is done with the core's payloads.
        self.rings.iter().all(|rings| rings.0.load(Ordering::Acquire) == 0)
    }
}

impl Claim<'_> {
    /// The claimed core.
    pub(crate) const fn core(&self) -> usize {
        self.core
    }

    /// Answers the rings seen so far. The claim goes on if there were more meanwhile: then the core must be
    /// looked at again.
    pub(crate) fn settle(self) -> Option<Self> {
        // ORDERING: Release: pairs with the Acquire in `ring` and `is_quiet`. Acquire: pairs with the Release in
        // `ring`, for the rings that came meanwhile.
        let left = self.rings.fetch_sub(self.seen, Ordering::AcqRel).wrapping_sub(self.seen);
        (left != 0).then_some(Self { seen: left, ..self })
    }
}
