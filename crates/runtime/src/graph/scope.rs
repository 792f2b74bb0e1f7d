//! When everything in a scope is done: a count for each.
//!
//! A scope is open while its orchestration submits to it, and *drained* once it is closed and all its tasks, and all
//! scopes inside it, are done. Outputs are valid inside their scope only, so whoever reads one belongs to that scope or
//! to one inside it: when a scope is drained nobody needs its tasks' slots, arguments, dependencies and outputs any more,
//! and the orchestrator gives them to later tasks.
//!
//! The count begins at a number that no scope reaches and goes down by one for each task that is done. The orchestrator
//! knows how many it has submitted and subtracts at the end what is left of that number. So a submit touches no word that
//! schedulers write, and the count is 0 exactly when the scope is drained. Whoever brings it there counts down the scope
//! around it.
//!
//! The outermost scope, [`ROOT`], is open until the run ends and has no count.

use crate::sync::{AtomicU32, Ordering};

/// The run's own scope.
pub const ROOT: u32 = 0;

/// What an open scope begins with.
const OPEN: u32 = 1 << 31;
/// Tasks and scopes that a scope can have.
pub const ENTERED_MAX: u32 = OPEN - 1;

/// The count of one scope. Any bytes are a record that is not in use.
#[repr(C)]
#[derive(Debug)]
pub struct ScopeRecord {
    /// What is not done; at least [`OPEN`] less the tasks that are done while the scope is open.
    pending: AtomicU32,
    /// The scope around it.
    parent: AtomicU32,
}

impl ScopeRecord {
    /// A record that no scope uses.
    pub fn new() -> Self {
        Self { pending: AtomicU32::new(0), parent: AtomicU32::new(ROOT) }
    }
}

impl Default for ScopeRecord {
    fn default() -> Self {
        Self::new()
    }
}

/// The records of a graph. A scope is named by the index of its record plus one.
#[derive(Clone, Copy, Debug)]
pub struct Scopes<'m> {
    /// As many as there can be scopes that are open or not drained.
    pub records: &'m [ScopeRecord],
}

impl Scopes<'_> {
    fn record(&self, scope: u32) -> &ScopeRecord {
        &self.records[scope as usize - 1]
    }

    /// Opens a scope in a record that no other one uses. Orchestrator only.
    pub fn open(&self, scope: u32, parent: u32) {
        let record = self.record(scope);
        // ORDERING: Relaxed: who leaves the scope learned of it by a task that was published later, here and below.
        record.pending.store(OPEN, Ordering::Relaxed);
        record.parent.store(parent, Ordering::Relaxed);
    }

    /// A task of `scope` is done, or a scope directly in it drained: the last thing that is done for a task, since its
    /// slot may be another's afterwards.
    #[inline]
    pub fn leave(&self, scope: u32) {
        if scope != ROOT {
            self.count_down(scope, 1);
        }
    }

    /// No more tasks or scopes come: `entered` of them have. Orchestrator only.
    pub fn close(&self, scope: u32, entered: u32) {
        self.count_down(scope, OPEN - entered);
    }

    fn count_down(&self, mut scope: u32, mut by: u32) {
        while scope != ROOT {
            let record = self.record(scope);
            // ORDERING: Relaxed: written before anybody could leave the scope. Read first: once the count is 0 the record
            // may be another scope's.
            let parent = record.parent.load(Ordering::Relaxed);
            // ORDERING: SeqCst: its AcqRel pairs with itself and with the Acquire in `is_drained`: who finds the scope
            // drained comes after all that was done in it. For the total order see `Graph::set_awaited`.
            if record.pending.fetch_sub(by, Ordering::SeqCst) != by {
                return;
            }
            (scope, by) = (parent, 1);
        }
    }

    /// Whether a closed scope is drained; nobody touches anything of its tasks then. For the orchestrator, and as a hint to
    /// it for others, since the record may have become another scope's.
    pub fn is_drained(&self, scope: u32) -> bool {
        // ORDERING: SeqCst: see `count_down`.
        self.record(scope).pending.load(Ordering::SeqCst) == 0
    }
}
