//! The life of a forked child: log writer, endpoint, ready, requests, drain.
//!
//! Everything that needs threads starts here, after the fork. The child leaves in one of four ways: told to
//! (shutdown), orphaned, its bring-up failed, or it panicked; each drains its log within a limit and ends in
//! `_exit`, so that no frame, exit handler or stdio buffer of the parent is touched.
//!
//! The main thread may be in the middle of anything when the parent ends, a kernel that never returns included. So a
//! thread of its own watches the parent from bring-up on, and ends the process without asking the main thread. A child that
//! forks in its turn has no thread before it has, and looks after its parent while it waits for its own children.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use nix::unistd::Pid;
use simpler_host_log as host_log;
use simpler_relax::Relax;

use crate::endpoint::{MakeEndpoint, Task, Tasks};
use crate::function::{Function, Nested, Orchestration, SubWorker};
use crate::image_transfer::Gathering;
use crate::mailbox::{ChildEnd, Control, Digest, Failure, Request, TASK_FRAMES};
use crate::process::{exit_now, wait_for_the_end_of};
use crate::remote::Session;
use crate::shared_memory::SharedRanges;
use crate::{CallableImage, ChildId, Endpoint, RunError, WorkerBuilder};

/// The specification's flush limit: how long a leaving process waits for its log's writer.
pub(crate) const LOG_DRAIN_LIMIT: Duration = Duration::from_millis(1000);

/// Exit statuses of a child; 0 is an orderly shutdown.
pub(crate) mod exit {
    /// Bring-up failed, with the text in the mailbox.
    pub(crate) const INIT_FAILED: i32 = 1;
    /// The parent is gone.
    pub(crate) const ORPHANED: i32 = 2;
    /// A request or bring-up panicked; the panic's text went to stderr and, where one was due, in the answer.
    pub(crate) const PANICKED: i32 = 3;
    /// What the endpoint drives did not end as it should, with the text in the child's log.
    pub(crate) const CLOSE_FAILED: i32 = 4;
    /// The rank that a session's process is for is gone, with the text in the process's log.
    pub(crate) const DISCONNECTED: i32 = 5;
}

/// What a child inherits.
#[derive(Clone, Copy)]
pub(crate) struct Inheritance<'a> {
    pub(crate) child: ChildId,
    pub(crate) parent: Pid,
    pub(crate) mailbox: ChildEnd<'a>,
    pub(crate) shared: &'a SharedRanges,
}

/// What makes a child's endpoint, in the child.
pub(crate) enum Role<'a> {
    /// A chip of this index, with this snapshot of callables.
    Chip(usize, &'a [CallableImage], &'a MakeEndpoint),
    /// A sub worker.
    Sub(&'a [(Digest, Function)]),
    /// A worker below. It forks in its turn, so it is started before this process has a thread.
    Worker(Box<WorkerBuilder>, &'a [(Digest, Orchestration)]),
    /// The session with a worker on another host.
    Remote(Session),
}

impl Role<'_> {
    /// Makes the endpoint; the process has the log's writer afterwards.
    fn endpoint(self, inheritance: &Inheritance<'_>) -> Result<Box<dyn Endpoint>, RunError> {
        match self {
            Role::Chip(chip, callables, make) => {
                start_threads(inheritance)?;
                make(chip, callables)
            }
            Role::Sub(functions) => {
                start_threads(inheritance)?;
                Ok(Box::new(SubWorker(functions.to_vec())))
            }
            Role::Worker(builder, orchestrations) => {
                let told_to_leave = || inheritance.mailbox.is_told_to_leave();
                let worker = builder.start_below(inheritance.shared, inheritance.parent, &told_to_leave)?;
                leave_with_the_parent(inheritance)?;
                Ok(Box::new(Nested { worker, orchestrations: orchestrations.to_vec() }))
            }
            Role::Remote(session) => {
                start_threads(inheritance)?;
                Ok(Box::new(session.endpoint()?))
            }
        }
    }
}

fn start_threads(inheritance: &Inheritance<'_>) -> Result<(), RunError> {
    host_log::start_writer().map_err(|error| RunError { code: -1, text: format!("host log: {error}") })?;
    leave_with_the_parent(inheritance)
}

/// Lives as the child until it is to leave; gives the exit status.
pub(crate) fn live(inheritance: &Inheritance<'_>, role: Role<'_>) -> i32 {
    let status = match bring_up(inheritance, role) {
        Ok(endpoint) => serve_and_finalize(inheritance, endpoint),
        Err(status) => status,
    };
    host_log::close(LOG_DRAIN_LIMIT);
    status
}

fn serve_and_finalize(inheritance: &Inheritance<'_>, mut endpoint: Box<dyn Endpoint>) -> i32 {
    let status = serve(inheritance, endpoint.as_mut());
    if status == exit::PANICKED {
        // Its memory and threads end with the process; tearing it down could hang.
        std::mem::forget(endpoint);
        return status;
    }
    let closed = guarded(|| {
        let closed = endpoint.close();
        drop(endpoint);
        closed
    });
    match closed {
        Ok(()) => status,
        Err((failure, panicked)) => {
            host_log::log_error!("{}: {}", inheritance.child, failure.text);
            panicked.unwrap_or(exit::CLOSE_FAILED)
        }
    }
}

fn bring_up(inheritance: &Inheritance<'_>, role: Role<'_>) -> Result<Box<dyn Endpoint>, i32> {
    match guarded(|| role.endpoint(inheritance)) {
        Ok(endpoint) => {
            inheritance.mailbox.finish_init(Ok(endpoint.pipeline_depth().clamp(1, TASK_FRAMES)));
            Ok(endpoint)
        }
        Err((failure, status)) => {
            host_log::log_error!("{}: initialization failed: {}", inheritance.child, failure.text);
            inheritance.mailbox.finish_init(Err(&failure));
            Err(status.unwrap_or(exit::INIT_FAILED))
        }
    }
}

/// Starts the thread that ends this process when its parent has ended, whatever the other threads do.
fn leave_with_the_parent(inheritance: &Inheritance<'_>) -> Result<(), RunError> {
    let Inheritance { child, parent, .. } = *inheritance;
    let watch = move || {
        wait_for_the_end_of(parent);
        host_log::log_warn!("{child}: the parent process is gone, leaving");
        host_log::close(LOG_DRAIN_LIMIT);
        exit_now(exit::ORPHANED)
    };
    let thread = std::thread::Builder::new().name("parent-watch".into()).spawn(watch);
    // It is never joined: it ends with the process.
    thread
        .map(drop)
        .map_err(|error| RunError { code: -1, text: format!("cannot watch the parent process: {error}") })
}

fn serve(inheritance: &Inheritance<'_>, endpoint: &mut dyn Endpoint) -> i32 {
    let mailbox = inheritance.mailbox;
    let mut gathering = Gathering::default();
    let mut relax = Relax::new();
    loop {
        let seen = mailbox.requests().epoch();
        let panicked = match mailbox.next([false; TASK_FRAMES]) {
            Some(Request::Shutdown) => return 0,
            Some(Request::Control(request)) => {
                let outcome = answer(request, |control| {
                    serve_control(inheritance.shared, endpoint, &mut gathering, control)
                });
                mailbox.finish_control(outcome.as_ref().copied().map_err(|(failure, _)| failure));
                outcome.err().and_then(|(_, status)| status)
            }
            // Not answered yet, so it is found again.
            Some(Request::Task(..)) => serve_tasks(inheritance, endpoint),
            None => {
                relax.wait(mailbox.requests(), seen);
                continue;
            }
        };
        if let Some(status) = panicked {
            return status;
        }
        relax.reset();
    }
}

/// A failure, and the status to leave with where the child can no longer be trusted.
pub(crate) type Refusal = (Failure, Option<i32>);

fn answer<Q, T>(
    request: Result<Q, Failure>,
    serve: impl FnOnce(Q) -> Result<T, RunError>,
) -> Result<T, Refusal> {
    let request = request.map_err(|failure| (failure, None))?;
    guarded(|| serve(request))
}

/// Runs `body`; a panic becomes a failure after which the child leaves, as nothing is known of the endpoint.
pub(crate) fn guarded<T>(body: impl FnOnce() -> Result<T, RunError>) -> Result<T, Refusal> {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(outcome) => outcome.map_err(|error| (Failure { code: error.code, text: error.text }, None)),
        Err(panic) => {
            let text = panic
                .downcast_ref::<&str>()
                .copied()
                .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
                .unwrap_or("no text");
            let failure = Failure { code: -1, text: format!("the child panicked: {text}") };
            // Dropping the payload could panic again.
            std::mem::forget(panic);
            Err((failure, Some(exit::PANICKED)))
        }
    }
}

/// Lets the endpoint make the runs that there are; the status to leave with if it panicked.
fn serve_tasks(inheritance: &Inheritance<'_>, endpoint: &mut dyn Endpoint) -> Option<i32> {
    let mut frames = Frames { inheritance, taken: [false; TASK_FRAMES] };
    let served = guarded(|| {
        // SAFETY: host tensors lie inside shared mappings that this process keeps, as `next` checks, and the parent asks
        // its users to leave them alone until the run is waited for; device addresses come from this endpoint, and the
        // objects of the snapshot are what the parent was given to run.
        unsafe { endpoint.run_all(&mut frames) };
        Ok(())
    });
    let (failure, status) = served.err().unwrap_or_else(|| {
        (Failure { code: -1, text: "the endpoint gave the run back without an outcome".into() }, None)
    });
    for slot in (0..TASK_FRAMES).filter(|slot| frames.taken[*slot]) {
        inheritance.mailbox.finish_task(slot, Err(&failure));
    }
    status
}

/// The task frames, for the endpoint.
struct Frames<'a> {
    inheritance: &'a Inheritance<'a>,
    /// Those whose runs the endpoint has not given back.
    taken: [bool; TASK_FRAMES],
}

impl Tasks for Frames<'_> {
    fn next(&mut self) -> Option<Task> {
        loop {
            // Shutdown and control are served when the endpoint has given all runs back.
            let Some(Request::Task(slot, task)) = self.inheritance.mailbox.next(self.taken) else {
                return None;
            };
            let checked = task.and_then(|task| {
                for (position, arg) in task.args.tensors.iter().enumerate() {
                    let check = self.inheritance.shared.check(position, &arg.tensor);
                    check.map_err(|text| Failure { code: -1, text })?;
                }
                Ok(task)
            });
            match checked {
                Ok(task) => {
                    self.taken[slot] = true;
                    return Some(task);
                }
                Err(failure) => self.inheritance.mailbox.finish_task(slot, Err(&failure)),
            }
        }
    }

    fn finish(&mut self, slot: usize, outcome: Result<(), RunError>) {
        self.taken[slot] = false;
        let failure = outcome.err().map(|error| Failure { code: error.code, text: error.text });
        self.inheritance.mailbox.finish_task(slot, failure.as_ref().map_or(Ok(()), Err));
    }
}

/// Answers a control request.
pub(crate) fn serve_control(
    shared: &SharedRanges,
    endpoint: &mut dyn Endpoint,
    gathering: &mut Gathering,
    control: Control,
) -> Result<u64, RunError> {
    match control {
        Control::Malloc { bytes } => endpoint.malloc(size(bytes)?),
        Control::Free { device } => endpoint.free(device).map(|()| 0),
        Control::CopyTo { device, host, bytes } => {
            let length = shared_range(shared, host, bytes)?;
            // SAFETY: the range lies inside a mapping that this process inherited and keeps; all bytes are
            // initialized; the parent waits for the answer and asks its users not to write meanwhile.
            let source = unsafe { std::slice::from_raw_parts(host as *const u8, length) };
            endpoint.copy_to(device, source).map(|()| 0)
        }
        Control::CopyFrom { host, device, bytes } => {
            let length = shared_range(shared, host, bytes)?;
            // SAFETY: as above; nobody else in this process has a reference into it.
            let target = unsafe { std::slice::from_raw_parts_mut(host as *mut u8, length) };
            endpoint.copy_from(target, device).map(|()| 0)
        }
        Control::Prepare { callable } => endpoint.prepare(&callable),
        Control::Register { callable, chunk } => match gathering.take(callable, chunk).map_err(refused)? {
            Some(image) => endpoint.register(&image),
            None => Ok(0),
        },
        Control::Unregister { callable } => endpoint.unregister(&callable).map(|()| 0),
    }
}

fn shared_range(shared: &SharedRanges, host: u64, bytes: u64) -> Result<usize, RunError> {
    if !shared.contain(host, bytes) {
        return Err(refused(format!("{bytes} bytes at {host:#x} are not inside a shared buffer")));
    }
    size(bytes)
}

fn size(bytes: u64) -> Result<usize, RunError> {
    usize::try_from(bytes).map_err(|_| refused(format!("{bytes} bytes are more than an address space")))
}

fn refused(text: String) -> RunError {
    RunError { code: -1, text }
}
