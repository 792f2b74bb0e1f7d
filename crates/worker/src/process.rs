//! The process calls of a worker: count threads, fork, watch a child, watch the parent.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork, getppid, setpgid};
use simpler_host_log as host_log;
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

/// Whether a process may fork that has other threads than the calling one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum OtherThreads {
    /// No.
    #[default]
    Refused,
    /// Yes; one WARN record names them.
    Permitted,
}

impl OtherThreads {
    /// Looks at the threads of this process, which is about to fork.
    pub(crate) fn check(self) -> Result<(), WorkerError> {
        let deadline = Deadline::after(THREAD_EXIT_LIMIT);
        let mut relax = Relax::new();
        let never_rung = EventCount::new();
        loop {
            let others = other_threads()
                .map_err(|source| WorkerError::System { call: "read /proc/self/task", source })?;
            // The writer that was joined just now is on its way out, not another's.
            let is_leaving = |name: &str| name == host_log::WRITER_THREAD_NAME;
            if others.keys().all(|name| self == Self::Permitted && !is_leaving(name)) {
                self.tell(&others);
                return Ok(());
            }
            if deadline.passed() {
                let threads = others.values().sum::<usize>() + 1;
                return Err(WorkerError::Threads { threads });
            }
            relax.wait(&never_rung, never_rung.epoch());
        }
    }

    fn tell(self, others: &BTreeMap<String, usize>) {
        if others.is_empty() {
            return;
        }
        let count: usize = others.values().sum();
        let names: Vec<_> = others.iter().map(|(name, count)| format!("{count} {name}")).collect();
        host_log::log_warn!(
            "forking beside {count} other threads ({}): a child has none of them, and a lock that one of them holds \
             just now stays held there",
            names.join(", ")
        );
    }
}

/// The names of this process's threads but the calling one, and how many have each.
fn other_threads() -> io::Result<BTreeMap<String, usize>> {
    let own = host_log::tid().to_string();
    let mut names = BTreeMap::new();
    for thread in fs::read_dir("/proc/self/task")? {
        let thread = thread?;
        if thread.file_name().to_str() == Some(&own) {
            continue;
        }
        // One that has ended meanwhile has no name any more, and is none to speak of.
        if let Ok(name) = fs::read_to_string(thread.path().join("comm")) {
            *names.entry(name.trim_end().to_owned()).or_default() += 1;
        }
    }
    Ok(names)
}

/// How a process forks: gives 0 in the child, the child's pid in the parent.
pub(crate) type Fork = dyn Fn() -> io::Result<i32>;

/// The system call and libc's handlers, nothing else.
pub(crate) fn plain_fork() -> io::Result<i32> {
    // SAFETY: the process has one thread, or its owner has said that what the others hold is nothing a child needs
    // (`OtherThreads` was asked before); the child is a full process.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => Ok(child.as_raw()),
        ForkResult::Child => Ok(0),
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
    pub(crate) fn fork(fork: &Fork, leads: bool, body: impl FnOnce() -> i32) -> Result<Self, WorkerError> {
        let own = Pid::from_raw(0);
        let forked = with_sigterm_held(|in_child| {
            let forked = fork();
            if let Ok(0) = forked {
                in_child();
            }
            forked
        })?;
        let pid = Pid::from_raw(forked.map_err(|source| WorkerError::System { call: "fork", source })?);
        if pid == own {
            let _ = leads.then(|| setpgid(own, own));
            let status = catch_unwind(AssertUnwindSafe(body)).unwrap_or(exit::PANICKED);
            exit_now(status)
        }
        // Both sides do it, as either may be first; the later one changes nothing, or finds the child gone.
        let _ = leads.then(|| setpgid(pid, own));
        Ok(Self { pid, leads, ending: None })
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
