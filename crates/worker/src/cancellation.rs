//! SIGTERM while a worker is set up: the start is called off in order (RUNTIME §1.3).
//!
//! Set-up may take minutes on real devices. A parent that SIGTERM ends meanwhile would leave its children to find out that
//! they are orphans. So from the first fork until all are ready a handler notes the signal, nothing else; who waits for
//! the children looks, gives up, and shuts down those that there are. Before and afterwards the signal is the host
//! program's own, and a child has the default disposition from its first instruction on.

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
}

impl Cancellation {
    /// Listens from now on. One at a time: who sets up has the only thread of its process.
    pub(crate) fn listen() -> Result<Self, WorkerError> {
        // ORDERING: Relaxed as in `note`.
        ASKED.store(false, Ordering::Relaxed);
        let handler = SigAction::new(SigHandler::Handler(note), SaFlags::SA_RESTART, SigSet::empty());
        // SAFETY: the handler is one atomic store.
        let former = unsafe { sigaction(Signal::SIGTERM, &handler) };
        Ok(Self { former: former.map_err(|errno| WorkerError::system("sigaction", errno))? })
    }

    /// Whether the signal has come.
    pub(crate) fn is_asked(&self) -> bool {
        // ORDERING: Relaxed as in `note`.
        ASKED.load(Ordering::Relaxed)
    }

    /// Gives the signal back to the host program, unless it has come: one that comes meanwhile is the host program's.
    pub(crate) fn end_unless_asked(self) -> Option<Self> {
        // Where it cannot be held back there is only less certainty about what comes right now.
        let held = SigSet::from(Signal::SIGTERM).thread_swap_mask(SigmaskHow::SIG_BLOCK);
        let listening = if self.is_asked() {
            Some(self)
        } else {
            drop(self);
            None
        };
        let released = held.and_then(|former| former.thread_set_mask());
        debug_assert!(released.is_ok(), "a mask of a known signal can be set");
        listening
    }
}

impl Drop for Cancellation {
    fn drop(&mut self) {
        // SAFETY: gives back what the host program had.
        let restored = unsafe { sigaction(Signal::SIGTERM, &self.former) };
        debug_assert!(restored.is_ok(), "what was set before can be set again");
    }
}

/// Forks with SIGTERM held back until the child has the default disposition again: none meets the parent's handler in the
/// child, where nobody looks. `fork` calls what it is given in the child.
pub(crate) fn with_sigterm_held<T>(fork: impl FnOnce(fn()) -> T) -> Result<T, WorkerError> {
    let failed = |errno| WorkerError::system("sigprocmask", errno);
    let sigterm = SigSet::from(Signal::SIGTERM);
    let former = sigterm.thread_swap_mask(SigmaskHow::SIG_BLOCK).map_err(failed)?;
    let forked = fork(take_default);
    // In the child as well.
    former.thread_set_mask().map_err(failed)?;
    Ok(forked)
}

fn take_default() {
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    // SAFETY: no handler is installed.
    let taken = unsafe { sigaction(Signal::SIGTERM, &default) };
    debug_assert!(taken.is_ok(), "the signal exists");
}
