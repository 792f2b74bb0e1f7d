//! Parts of tasks whose kernels have returned before their work was done.
//!
//! A kernel says in its [`SimplerCompletions`] what it leaves to others: copies of the copy engine, words that are to
//! reach a value. When its core shows FIN the core is free, and the part waits here, with the scheduler that owns the
//! core, which looks at all of them in every round. The copy engine rings when a copy has ended; for words nobody does,
//! so whoever completes tasks rings the schedulers that wait ([`Graph::set_deferring`](crate::graph::arena::Graph)), and
//! a word that is stored in another way is seen at the end of a park slice.

use simpler_kernel_abi::{
    COMPLETION_COPY, COMPLETION_COUNTER, COMPLETIONS_MAX, COPIES_MAX, COPY_DONE, COPY_FAILED, COPY_FREE,
    SimplerCompletion, SimplerCompletions, SimplerCopy, SimplerCopyEngine,
};

use crate::code;
use crate::graph::GraphError;
use crate::sync::{AtomicU32, Ordering};

/// Parts that one scheduler waits for at a time: as many as the copy engine has copies, four times over.
pub(super) const DEFERRED_MAX: usize = 4 * COPIES_MAX;

/// A part that waits.
#[derive(Debug)]
pub(super) struct Part {
    /// The slot of its task.
    pub(super) task: u32,
    /// The task has other parts.
    pub(super) shares: bool,
    /// The core that its kernel has returned on.
    pub(super) core: usize,
    left: [SimplerCompletion; COMPLETIONS_MAX],
    count: usize,
}

impl Part {
    /// What a kernel of a task has left to others, as it says; None where that is nothing.
    pub(super) fn of(
        (task, shares, core): (u32, bool, usize),
        said: &SimplerCompletions,
        engine: *const SimplerCopyEngine,
    ) -> Result<Option<Self>, GraphError> {
        let count = said.count as usize;
        if count == 0 {
            return Ok(None);
        }
        let Some(entries) = said.entries.get(..count) else {
            let text = format!("a kernel waits for {count} completions, at most {COMPLETIONS_MAX} are kept");
            return Err(GraphError { code: code::ASYNC_REGISTRATION, text });
        };
        entries.iter().try_for_each(|entry| check(entry, engine))?;
        Ok(Some(Self { task, shares, core, left: said.entries, count }))
    }

    /// Looks at what is left; whether nothing is.
    pub(super) fn is_done(&mut self) -> Result<bool, GraphError> {
        let mut at = 0;
        while at < self.count {
            if has_come(&self.left[at])? {
                self.count -= 1;
                self.left.swap(at, self.count);
            } else {
                at += 1;
            }
        }
        Ok(self.count == 0)
    }
}

fn invalid(text: String) -> GraphError {
    GraphError { code: code::ASYNC_COMPLETION, text }
}

/// Whether somebody can look at it.
fn check(entry: &SimplerCompletion, engine: *const SimplerCopyEngine) -> Result<(), GraphError> {
    let SimplerCompletion { addr, kind, .. } = *entry;
    let is_word = addr != 0 && addr.is_multiple_of(align_of::<AtomicU32>() as u64);
    let is_copy = || {
        let first = engine.addr() as u64 + std::mem::offset_of!(SimplerCopyEngine, copies) as u64;
        let state = std::mem::offset_of!(SimplerCopy, state) as u64;
        let index = addr
            .checked_sub(first + state)
            .filter(|offset| offset.is_multiple_of(size_of::<SimplerCopy>() as u64));
        !engine.is_null()
            && index.is_some_and(|offset| offset / (size_of::<SimplerCopy>() as u64) < COPIES_MAX as u64)
    };
    match kind {
        COMPLETION_COUNTER if is_word => Ok(()),
        COMPLETION_COUNTER => {
            Err(invalid(format!("a kernel waits for a counter at {addr:#x}, where none can be")))
        }
        COMPLETION_COPY if is_copy() => Ok(()),
        COMPLETION_COPY => {
            Err(invalid(format!("a kernel waits for a copy at {addr:#x}, which is none of the engine's")))
        }
        kind => Err(invalid(format!("a kernel waits for a completion of kind {kind}, which there is not"))),
    }
}

/// Whether it has come; a copy that has ended is free then.
fn has_come(entry: &SimplerCompletion) -> Result<bool, GraphError> {
    let word: *const AtomicU32 = std::ptr::with_exposed_provenance(entry.addr as usize);
    // SAFETY: not null and aligned, see `check`; the header asks that the word stays until the task has completed, and
    // a copy's state is in the engine's workspace, which is never released.
    let word = unsafe { &*word };
    // ORDERING: Acquire: pairs with the Release of who stores it: what was done before is visible.
    let now = word.load(Ordering::Acquire);
    if entry.kind == COMPLETION_COUNTER {
        return Ok(now >= entry.value);
    }
    match now {
        COPY_DONE => {
            // ORDERING: Release: pairs with the Acquire of the kernel that claims the copy next.
            word.store(COPY_FREE, Ordering::Release);
            Ok(true)
        }
        COPY_FAILED => {
            // SAFETY: the state is a field of a copy of the engine's, see `check`; the engine has let go of it.
            let copy = unsafe { &*copy_with_state_at(entry.addr) };
            let SimplerCopy { dst, src, bytes, .. } = *copy;
            Err(invalid(format!(
                "the copy engine refused {bytes} bytes from {src:#x} to {dst:#x}: they overlap, or one is not inside one allocation"
            )))
        }
        _ => Ok(false),
    }
}

/// The copy whose state is at an address.
fn copy_with_state_at(addr: u64) -> *const SimplerCopy {
    std::ptr::with_exposed_provenance(addr as usize - std::mem::offset_of!(SimplerCopy, state))
}
