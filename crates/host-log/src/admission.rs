//! The gate in front of the sink: who may be inside, and since when nobody may.
//!
//! One word holds a closed bit and the number of producers inside. A producer of another module enters, uses
//! the sink through the owner's callback, which leaves for it; whoever wants to stop the writer closes the gate
//! and waits for the number to reach zero. The word lives in the shared state, and modules of all languages use
//! it by the same rule. The owner's own producers need no gate: the queue's cursor refuses them when it is
//! closed, and what they use is never unmapped.

use simpler_log_abi::PRODUCERS_CLOSED;

use crate::sync::{AtomicU64, Ordering};

/// The gate over the state's `sink_producer_state`.
#[derive(Clone, Copy, Debug)]
pub struct Gate<'a>(&'a AtomicU64);

impl<'a> Gate<'a> {
    /// The gate that `word` is.
    #[inline]
    pub const fn new(word: &'a AtomicU64) -> Self {
        Self(word)
    }

    /// Enters, and gives whether the gate is open. In either case exactly one [`Gate::leave`] follows: who finds it
    /// closed counts its loss first, so that whoever waits for everybody to leave has every count.
    // HOT: one read-modify-write.
    #[inline]
    pub fn enter(self) -> bool {
        // ORDERING: Acquire pairs with the Release in `open`: who is let in sees the sink that was published
        // before the gate opened.
        self.0.fetch_add(1, Ordering::Acquire) & PRODUCERS_CLOSED == 0
    }

    /// Leaves.
    // HOT: one read-modify-write.
    #[inline]
    pub fn leave(self) {
        // ORDERING: Release pairs with the Acquire in `producers`: who sees the number at zero sees what its
        // producers did.
        self.0.fetch_sub(1, Ordering::Release);
    }

    /// Lets nobody in from now on.
    pub fn close(self) {
        // ORDERING: AcqRel, so that what follows (looking at the number of producers) stays behind.
        self.0.fetch_or(PRODUCERS_CLOSED, Ordering::AcqRel);
    }

    /// Lets producers in again.
    pub fn open(self) {
        // ORDERING: Release pairs with the Acquire in `enter`.
        self.0.fetch_and(!PRODUCERS_CLOSED, Ordering::AcqRel);
    }

    /// Whether the gate is closed just now.
    #[inline]
    pub fn is_closed(self) -> bool {
        // ORDERING: Acquire pairs with `close`, as far as a look without entering can say anything.
        self.0.load(Ordering::Acquire) & PRODUCERS_CLOSED != 0
    }

    /// How many producers are inside. Once the gate is closed and this was zero, nobody touches the sink.
    pub fn producers(self) -> u64 {
        // ORDERING: Acquire pairs with the Release in `leave`.
        self.0.load(Ordering::Acquire) & !PRODUCERS_CLOSED
    }
}
