//! The directory's claim: which of several modules says where the process's log goes.
//!
//! The word in the shared state is 0 (free), −1 (its path is being written) or 1 (bound). The first claim wins, and
//! a reader takes only 1 for bound, so nobody ever sees half a path. Who claims it binds it; a claim is given up
//! only by a child that finds its parent's half done, and by who binds a copy of the logger to words that are none
//! of these.

use crate::sync::{AtomicI32, Ordering};

/// Nothing is bound: records go to stderr.
pub const UNBOUND: i32 = 0;
/// Somebody writes the path.
pub const BINDING: i32 = -1;
/// The path stands.
pub const BOUND: i32 = 1;

/// The claim over the state's `log_directory_bound`.
#[derive(Clone, Copy, Debug)]
pub struct DirectoryClaim<'a>(&'a AtomicI32);

impl<'a> DirectoryClaim<'a> {
    /// The claim that `word` is.
    #[inline]
    pub const fn new(word: &'a AtomicI32) -> Self {
        Self(word)
    }

    /// Whether a directory is bound; then its path may be read.
    #[inline]
    pub fn is_bound(self) -> bool {
        // ORDERING: Acquire pairs with the Release in `bind`: who sees 1 sees the whole path.
        self.0.load(Ordering::Acquire) == BOUND
    }

    /// Binds the directory whose path `write` puts in its place, unless another was first. Gives whether it did.
    pub fn bind(self, write: impl FnOnce()) -> bool {
        // ORDERING: Acquire; only one caller gets past this, and readers wait for the Release below.
        if self.0.compare_exchange(UNBOUND, BINDING, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return false;
        }
        write();
        // ORDERING: Release pairs with the Acquire in `is_bound`.
        self.0.store(BOUND, Ordering::Release);
        true
    }

    /// Frees a claim that its holder cannot finish: it was another process's thread.
    pub fn forget_half_bound(self) {
        let _ = self.0.compare_exchange(BINDING, UNBOUND, Ordering::Relaxed, Ordering::Relaxed);
    }
}
