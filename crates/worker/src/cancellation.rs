//! SIGTERM while a worker is set up: the start is called off in order (RUNTIME §1.3).
//!
//! Set-up may take minutes on real devices. A parent that SIGTERM ends meanwhile would leave its children to find out that
//! they are orphans. So from the first fork until all are ready a handler notes the signal, nothing else; who waits for
//! the children looks, gives up, and shuts down those that there are. Before and afterwards the signal is the host
//! program's own, and a child has the default disposition from its first instruction on. A host program that blocks the
//! signal, as one does that waits for it in a thread, has it unblocked meanwhile, and so have its children for good.

use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, sigaction};

use crate::WorkerError;

/// Whether the signal has come since the handler was set.
// FORK: a child has a copy, and clears it before it sets a handler of its own.
static ASKED: AtomicBool = AtomicBool::new(false);

extern "C" fn note(_signal: libc::c_int) {
    // ORDERING: Relaxed: a flag; whoever reads it is on the thread that the handler interrupted.
    ASKED.store(true, Ordering::Relaxed);
}

/// The handler, until it is dropped.
pub(crate) struct Cancellation {
    former: SigAction,
    former_mask: SigSet,
}

impl Cancellation {
    /// Listens from now on. One at a time: who sets up has the only thread of its process.
    pub(crate) fn listen() -> Result<Self, WorkerError> {
        // ORDERING: Relaxed as in `note`.
        ASKED.store(false, Ordering::Relaxed);
        let handler = SigAction::new(SigHandler::Handler(note), SaFlags::SA_RESTART, SigSet::empty());
        // SAFETY: the handler is one atomic store.
        let former = unsafe { sigaction(Signal::SIGTERM, &handler) };
        let former = former.map_err(|errno| WorkerError::system("sigaction", errno))?;
        // It cannot fail with a signal that there is; should it, the handler stays, which only notes.
        Ok(Self { former, former_mask: mask_sigterm(SigmaskHow::SIG_UNBLOCK)? })
    }

    /// Whether the signal has come.
    pub(crate) fn is_asked(&self) -> bool {
        // ORDERING: Relaxed as in `note`.
        ASKED.load(Ordering::Relaxed)
    }

    /// Gives the signal back to the host program, unless it has come: one that comes meanwhile is the host program's.
    pub(crate) fn end_unless_asked(self) -> Option<Self> {
        let held = mask_sigterm(SigmaskHow::SIG_BLOCK);
        debug_assert!(held.is_ok(), "a mask of a known signal can be set");
        if self.is_asked() {
            let _ = mask_sigterm(SigmaskHow::SIG_UNBLOCK);
            return Some(self);
        }
        drop(self);
        None
    }
}

impl Drop for Cancellation {
    fn drop(&mut self) {
        // In between it would meet a handler that nobody asks any more, or an effect that the host program has blocked.
        let _ = mask_sigterm(SigmaskHow::SIG_BLOCK);
        // SAFETY: gives back what the host program had.
        let restored = unsafe { sigaction(Signal::SIGTERM, &self.former) };
        let unmasked = self.former_mask.thread_set_mask();
        debug_assert!(restored.is_ok() && unmasked.is_ok(), "what was set before can be set again");
    }
}

/// Forks with SIGTERM held back until the child has the default disposition again: none meets the parent's handler in the
/// child, where nobody looks. `fork` calls what it is given in the child.
pub(crate) fn with_sigterm_held<T>(fork: impl FnOnce(fn()) -> T) -> Result<T, WorkerError> {
    let former = mask_sigterm(SigmaskHow::SIG_BLOCK)?;
    let forked = fork(take_default);
    // In the child as well.
    former.thread_set_mask().map_err(|errno| WorkerError::system("sigprocmask", errno))?;
    Ok(forked)
}

/// Blocks or unblocks the signal; the mask before.
fn mask_sigterm(how: SigmaskHow) -> Result<SigSet, WorkerError> {
    let former = SigSet::from(Signal::SIGTERM).thread_swap_mask(how);
    former.map_err(|errno| WorkerError::system("sigprocmask", errno))
}

fn take_default() {
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    // SAFETY: no handler is installed.
    let taken = unsafe { sigaction(Signal::SIGTERM, &default) };
    debug_assert!(taken.is_ok(), "the signal exists");
}
