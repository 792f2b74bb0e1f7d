//! Which process and which thread may use an object that drives children or a chip.
//!
//! One thread uses a worker, that which made it, and a process that was forked later has only a copy, whose children
//! and threads are another process's. Both are refused with a sentence; neither waits.

use std::thread::ThreadId;

use pyo3::prelude::*;

use crate::error::WorkerError;

/// Who made an object.
// FORK: the child holds the parent's pid here, and is told so.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner {
    pid: u32,
    thread: ThreadId,
}

impl Owner {
    /// The caller.
    pub(crate) fn current() -> Self {
        Self { pid: std::process::id(), thread: std::thread::current().id() }
    }

    /// Whether this is the owner's process.
    pub(crate) fn is_here(self) -> bool {
        self.pid == std::process::id()
    }

    /// Whether this is the owner's thread, and process.
    pub(crate) fn is_caller(self) -> bool {
        self.is_here() && self.thread == std::thread::current().id()
    }

    /// Refuses another process.
    pub(crate) fn require_process(self) -> PyResult<()> {
        if self.is_here() {
            return Ok(());
        }
        let text = format!(
            "worker: it belongs to process {}; this process ({}) was forked from that one and has only a copy",
            self.pid,
            std::process::id()
        );
        Err(WorkerError::new_err(text))
    }

    /// Refuses another process, and another thread.
    pub(crate) fn require_caller(self) -> PyResult<()> {
        self.require_process()?;
        if self.is_caller() {
            return Ok(());
        }
        Err(WorkerError::new_err(
            "worker: one thread uses it, the one that has started it, and this is another one",
        ))
    }
}

/// What whoever comes while a call is under way is told.
pub(crate) fn in_a_call() -> PyErr {
    WorkerError::new_err("worker: a call of it is under way; a signal handler, say, cannot begin another one")
}
