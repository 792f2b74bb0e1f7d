//! Waits that Ctrl-C, any other signal with a Python handler, and a deadline can end.
//!
//! A wait is native and holds no GIL, so CPython notes a signal and nobody acts on it. [`Interrupt::asked`] is what a
//! worker asks every few milliseconds of a wait (`WorkerBuilder::interrupt_with`): it takes the GIL, lets the handlers
//! run, and keeps the exception that one of them raises for the caller.

use std::cell::Cell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use simpler_relax::Deadline;

/// How long a wait that nobody wakes goes on before it looks for signals: a person who presses Ctrl-C notices no
/// tenth of a second.
pub(crate) const LOOK_PERIOD: Duration = Duration::from_millis(50);

/// The first exception that ends what is done without the GIL, on whichever thread it was raised.
#[derive(Clone, Debug, Default)]
pub(crate) struct Raised(Arc<Mutex<Option<PyErr>>>);

impl Raised {
    fn held(&self) -> MutexGuard<'_, Option<PyErr>> {
        // It is whole between statements, also where a holder panicked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set(&self, error: PyErr) {
        self.held().get_or_insert(error);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.held().is_some()
    }

    pub(crate) fn take(&self) -> Option<PyErr> {
        self.held().take()
    }

    /// Lets the handlers of signals that have come run, and says whether one of them raised. Takes the GIL.
    pub(crate) fn by_signal(&self) -> bool {
        match Python::attach(|py| py.check_signals()) {
            Ok(()) => false,
            Err(raised) => {
                self.set(raised);
                true
            }
        }
    }
}

/// Why the current wait of a worker shall end.
// FORK: a child's own workers have their own.
#[derive(Debug, Default)]
pub(crate) struct Interrupt {
    /// What a signal handler has raised.
    raised: Raised,
    deadline: Cell<Option<Deadline>>,
}

impl Interrupt {
    /// Whether the wait shall end; takes the GIL.
    pub(crate) fn asked(&self) -> bool {
        self.deadline.get().is_some_and(|deadline| deadline.passed()) || self.raised.by_signal()
    }

    /// Lets the waits of `body` end when `limit` has passed.
    pub(crate) fn within<T>(&self, limit: Option<Duration>, body: impl FnOnce() -> T) -> T {
        self.deadline.set(limit.map(Deadline::after));
        let result = body();
        self.deadline.set(None);
        result
    }

    /// What a signal handler has raised in the last wait.
    pub(crate) fn take(&self) -> Option<PyErr> {
        self.raised.take()
    }

    /// That, or else `otherwise`.
    pub(crate) fn or(&self, otherwise: PyErr) -> PyErr {
        self.take().unwrap_or(otherwise)
    }
}

/// Calls `body` without the GIL, whatever it holds; [`Python::detach`] takes only what can go to another thread.
///
/// # Safety
/// `body` and what it gives hold nothing that is bound to the GIL (`Python`, `Bound`, `PyRef`).
pub(crate) unsafe fn detached<T>(py: Python<'_>, body: impl FnOnce() -> T) -> T {
    struct OnThisThread<T>(T);
    // SAFETY: `detach` calls its closure on the calling thread, and the result is that thread's as well: nothing goes
    // anywhere. That nothing is bound to the GIL is the caller's obligation.
    unsafe impl<T> Send for OnThisThread<T> {}
    impl<T> OnThisThread<T> {
        fn into_inner(self) -> T {
            self.0
        }
    }
    let body = OnThisThread(body);
    py.detach(move || OnThisThread((body.into_inner())())).into_inner()
}
