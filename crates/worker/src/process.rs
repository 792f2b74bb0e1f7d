//! The process calls of a worker: count threads, fork, watch a child, watch the parent.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork, getppid, setpgid};
use simpler_relax::{Deadline, EventCount, Relax};

use crate::WorkerError;
use crate::cancellation::with_sigterm_held;
use crate::child::exit;
use crate::error::Ending;

/// How often a child asks who its parent is: it learns of its parent's end within about this time, at ten wake-ups
/// and cheap system calls a second.
const PARENT_CHECK_PERIOD: Duration = Duration::from_millis(100);
/// A joined thread stays in /proc for the moment between waking its joiner and leaving the kernel.
const THREAD_EXIT_LIMIT: Duration = Duration::from_millis(100);

/// Refuses a process that has more than the calling thread.
pub(crate) fn require_one_thread() -> Result<(), WorkerError> {
    let deadline = Deadline::after(THREAD_EXIT_LIMIT);
    let mut relax = Relax::new();
    let never_rung = EventCount::new();
    loop {
        let threads = std::fs::read_dir("/proc/self/task")
            .map_err(|source| WorkerError::System { call: "read /proc/self/task", source })?
            .count();
        if threads <= 1 {
            return Ok(());
        }
        if deadline.passed() {
            return Err(WorkerError::Threads { threads });
        }
        relax.wait(&never_rung, never_rung.epoch());
    }
}

/// A forked child, until it is collected.
#[derive(Debug)]
pub(crate) struct Child {
    // FORK: means nothing in a child, which never waits for its siblings.
    pid: Pid,
    /// It leads a process group, in which are the processes that it has forked.
    leads: bool,
    ending: Option<Ending>,
}

impl Child {
    /// Forks; the child runs `body` and leaves with its status. It neither returns nor unwinds into a frame of
    /// the caller, runs no exit handler and flushes no inherited stdio buffer. SIGTERM has its default effect on it. One
    /// that leads a group does so before this returns: what is sent to the caller's group does not reach it.
    pub(crate) fn fork(leads: bool, body: impl FnOnce() -> i32) -> Result<Self, WorkerError> {
        let own = Pid::from_raw(0);
        let forked = with_sigterm_held(|in_child| {
            // SAFETY: the caller's process has one thread (`require_one_thread` came before), so the child holds
            // no lock of another; it is a full process.
            let forked = unsafe { fork() };
            if let Ok(ForkResult::Child) = forked {
                in_child();
            }
            forked
        })?;
        match forked.map_err(|errno| WorkerError::system("fork", errno))? {
            ForkResult::Parent { child } => {
                // Both sides do it, as either may be first; the later one changes nothing, or finds the child gone.
                let _ = leads.then(|| setpgid(child, own));
                Ok(Self { pid: child, leads, ending: None })
            }
            ForkResult::Child => {
                let _ = leads.then(|| setpgid(own, own));
                let status = catch_unwind(AssertUnwindSafe(body)).unwrap_or(exit::PANICKED);
                exit_now(status)
            }
        }
    }

    pub(crate) fn pid(&self) -> i32 {
        self.pid.as_raw()
    }

    /// How it ended, if it has; does not wait.
    pub(crate) fn ending(&mut self) -> Option<Ending> {
        if self.ending.is_none() {
            self.ending = match waitpid(self.pid, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(_, status)) => Some(Ending::Exited(status)),
                Ok(WaitStatus::Signaled(_, signal, _)) => Some(Ending::Killed(signal as i32)),
                Err(Errno::ECHILD) => Some(Ending::Collected),
                Ok(_) | Err(_) => None,
            };
        }
        self.ending
    }

    /// How it ended, as far as `ending` has seen.
    pub(crate) fn seen_ending(&self) -> Option<Ending> {
        self.ending
    }

    /// Kills it, with its group if it leads one, unless it was collected.
    pub(crate) fn kill(&self) {
        if self.ending.is_none() {
            // It can only fail because the process has ended, which is what was asked for.
            let _ = kill(self.pid, Signal::SIGKILL);
            let _ = self.leads.then(|| killpg(self.pid, Signal::SIGKILL));
        }
    }
}

/// Ends this process and all its threads: runs no exit handler, flushes no inherited stdio buffer.
pub(crate) fn exit_now(status: i32) -> ! {
    // SAFETY: _exit is always allowed; it ends all threads of this process.
    unsafe { libc::_exit(status) }
}

/// Returns when `parent`, which is what the parent's `getpid` gave before the fork, is this process's parent no
/// more. The new parent may be anyone (a subreaper, init of a container), so the test is for a change.
pub(crate) fn wait_for_the_end_of(parent: Pid) {
    while getppid() == parent {
        std::thread::sleep(PARENT_CHECK_PERIOD);
    }
}
