//! What a worker refuses or reports, each kind with the sentence that the caller shows.

use std::fmt;
use std::time::Duration;

use crate::{ChildId, RunError, Ticket};

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It exited with this status.
    Exited(i32),
    /// This signal killed it.
    Killed(i32),
    /// Its process on another host is gone, or the connection with it.
    Disconnected,
    /// It is gone and somebody else has collected its status.
    Collected,
}

impl fmt::Display for Ending {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Exited(status) => write!(out, "exited with status {status}"),
            Self::Killed(signal) => match nix::sys::signal::Signal::try_from(signal) {
                Ok(name) => write!(out, "was killed by signal {signal} ({name})"),
                Err(_) => write!(out, "was killed by signal {signal}"),
            },
            Self::Disconnected => write!(out, "is gone, its connection was closed"),
            Self::Collected => write!(out, "is gone, its status was collected elsewhere"),
        }
    }
}

/// Everything that can go wrong between a parent and its children.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkerError {
    /// A setting that cannot be met.
    #[error("worker: {0}")]
    Config(String),
    /// Fork in a process that has other threads.
    #[error(
        "worker: this process has {threads} threads and can no longer fork its children (a child would inherit \
         locks whose holders it does not have): start the worker before any other thread"
    )]
    Threads {
        /// Threads that /proc/self/task shows.
        threads: usize,
    },
    /// The host log could not be set up or drained before the fork.
    #[error("worker: host log: {0}")]
    Log(String),
    /// A system call failed.
    #[error("worker: {call}: {source}")]
    System {
        /// The call.
        call: &'static str,
        /// Its error.
        source: std::io::Error,
    },
    /// What was to start children on other hosts did not.
    #[error("launcher {name}: {text}")]
    Launcher {
        /// What the launcher calls itself.
        name: String,
        /// What went wrong, with what it said.
        text: String,
    },
    /// A child's initialization failed; the text is the child's.
    #[error("{child} (pid {pid}): initialization failed: {text}")]
    Init {
        /// Which child.
        child: ChildId,
        /// Its process.
        pid: i32,
        /// The child's text.
        text: String,
    },
    /// The init barrier's time limit passed.
    #[error("{child} (pid {pid}) was not ready within {limit:?}")]
    InitTimeout {
        /// Which child.
        child: ChildId,
        /// Its process.
        pid: i32,
        /// The limit.
        limit: Duration,
    },
    /// The set-up was called off: by SIGTERM, by an interrupt, by the worker above, or because that one is gone. The
    /// children that there were are gone.
    #[error("worker: its set-up was cancelled by {by}")]
    Cancelled {
        /// `SIGTERM`, `an interrupt`, `the worker above` or `the end of the worker above`.
        by: &'static str,
    },
    /// Whoever waited for a child was interrupted ([`WorkerBuilder::interrupt_with`](crate::WorkerBuilder::interrupt_with)).
    /// The child goes on with what it was asked, but for a close, which kills it.
    #[error("worker: interrupted while waiting for {child}")]
    Interrupted {
        /// Which child.
        child: ChildId,
        /// The run that was waited for, which can be waited for again.
        ticket: Option<Box<Ticket>>,
    },
    /// A child's process ended while something was expected from it.
    #[error("{child} (pid {pid}) {ending} {during}")]
    ChildGone {
        /// Which child.
        child: ChildId,
        /// Its process.
        pid: i32,
        /// How it ended.
        ending: Ending,
        /// What the parent was waiting for, as `while it ran run 7`.
        during: String,
    },
    /// A child had to be killed at close because it did not leave.
    #[error("{child} (pid {pid}) did not leave within {limit:?} of the shutdown and was killed")]
    Unresponsive {
        /// Which child.
        child: ChildId,
        /// Its process.
        pid: i32,
        /// The limit.
        limit: Duration,
    },
    /// Arguments that may not go to a child.
    #[error("arguments: {0}")]
    Arguments(String),
    /// No such child, callable or ticket.
    #[error("worker: {0}")]
    Unknown(String),
    /// The child still has a run whose ticket was not waited for.
    #[error("{child} is busy with run {run_id}: wait for its ticket first")]
    Busy {
        /// Which child.
        child: ChildId,
        /// The run in flight.
        run_id: u64,
    },
    /// This process was forked from the one whose worker it is, and has only a copy.
    #[error("worker: its children belong to process {owner}")]
    Foreign {
        /// The process that started the worker.
        owner: i32,
    },
    /// The worker was closed.
    #[error("worker: closed")]
    Closed,
    /// What the child reported; code and text are the child's.
    #[error("{child} (pid {pid}): {what} failed with code {code}: {text}")]
    Child {
        /// Which child.
        child: ChildId,
        /// Its process.
        pid: i32,
        /// `run`, `malloc`, `free`, `copy_to`, `copy_from`, `prepare`, `register` or `unregister`.
        what: &'static str,
        /// The code.
        code: i32,
        /// The text.
        text: String,
    },
}

/// What an orchestration over a worker passes on of its children's failures: their code where they had one, else −1.
impl From<WorkerError> for RunError {
    fn from(error: WorkerError) -> Self {
        let code = if let WorkerError::Child { code, .. } = &error { *code } else { -1 };
        Self { code, text: error.to_string() }
    }
}

impl WorkerError {
    pub(crate) fn system(call: &'static str, errno: nix::errno::Errno) -> Self {
        Self::System { call, source: errno.into() }
    }
}
