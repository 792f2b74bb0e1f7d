//! The clock anchor's claim: which thread of which module emits the one anchor of the process.
//!
//! The word in the shared state is 0 (nobody has), −pid (somebody is at it) or pid (done). A child of a fork
//! finds a word that is not about itself and claims its own. Losing the record, at submission or at the
//! destination, sets the word back to 0, so that the next record tries again.
//!
//! Who queues the anchor calls it done before it submits: from then on the writer may lose it, and a claim that is
//! finished only afterwards could be another thread's. Who writes it by itself finishes when it stands there, so
//! that others can wait for it.

use crate::sync::{AtomicI32, Ordering};

/// The claim over the state's `clock_anchor_pid`.
#[derive(Clone, Copy, Debug)]
pub struct AnchorClaim<'a>(&'a AtomicI32);

impl<'a> AnchorClaim<'a> {
    /// The claim that `word` is.
    #[inline]
    pub const fn new(word: &'a AtomicI32) -> Self {
        Self(word)
    }

    /// Whether process `pid` has its anchor.
    // HOT: one load.
    #[inline]
    pub fn is_done(self, pid: i32) -> bool {
        // ORDERING: Relaxed: only whether to try; `claim` decides.
        self.0.load(Ordering::Relaxed) == pid
    }

    /// Whether somebody in process `pid` is at it.
    pub fn is_claimed(self, pid: i32) -> bool {
        // ORDERING: Acquire pairs with the Release half of `finish`: who sees that it is done comes after it.
        self.0.load(Ordering::Acquire) == -pid
    }

    /// Takes the claim for process `pid`; true for exactly one caller until it is done or undone.
    pub fn claim(self, pid: i32) -> bool {
        // ORDERING: AcqRel pairs with `finish` and `undo`: who claims after a failure comes after it.
        let mut word = self.0.load(Ordering::Relaxed);
        while word != pid && word != -pid {
            match self.0.compare_exchange(word, -pid, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(current) => word = current,
            }
        }
        false
    }

    /// The anchor stands at its destination, or is about to be queued; only for the claim's holder.
    pub fn finish(self, pid: i32) {
        // ORDERING: AcqRel pairs with `claim`.
        let _ = self.0.compare_exchange(-pid, pid, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// The anchor was lost: the next record may try again.
    pub fn undo(self, pid: i32) {
        let mut word = self.0.load(Ordering::Relaxed);
        while word == pid || word == -pid {
            // ORDERING: AcqRel pairs with `claim`.
            match self.0.compare_exchange(word, 0, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return,
                Err(current) => word = current,
            }
        }
    }
}
