//! The level-3 parent: forks its chips before any thread exists, then drives them through their mailboxes.
//!
//! The order of start is that of RUNTIME §1.3: mailboxes and shared memory, the snapshot of callables, the log
//! (threshold and directory set, writer deferred, any former writer joined), the forks, a barrier on all
//! children, and only then this process's own log writer, the first thread.
//! One thread drives all chips: [`Worker::submit`] hands a run over and returns, [`Worker::wait`] collects it,
//! so that several chips run at once. While it waits the parent also looks whether the child still lives.
//!
//! Every way out goes through [`Worker::close`]: a failed start, an explicit close, a drop.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::unistd::{Pid, getpid};
use simpler_host_log as host_log;
use simpler_log_abi::Threshold;
use simpler_platform::{DeviceAddr, Platform, PlatformError};
use simpler_relax::{Deadline, PARK_SLICE, Relax};
use simpler_runtime::RuntimeConfig;
use simpler_sim_npu::{Profile, SimNpu, SimOptions};

use crate::child::{self, Inheritance, LOG_DRAIN_LIMIT};
use crate::endpoint::MakeEndpoint;
use crate::error::Ending;
use crate::mailbox::{Control, Digest, Failure, Mailboxes, ParentEnd, TASK_FRAMES, TaskIdentity};
use crate::process::{Child, require_one_thread};
use crate::shared_memory::SharedRanges;
use crate::span::{RunIdentity, Start};
use crate::{
    CallableImage, ChipWorker, Endpoint, RunArgs, RunError, SharedBuffer, SharedMemory, SharedSlice,
    WorkerError,
};

/// The level whose children are chips.
const NODE_LEVEL: u32 = 3;
/// Most chips of a node (RUNTIME §1.1).
pub const CHIPS_MAX: usize = 16;
/// Most callables of a worker (RUNTIME §1.6).
pub const CALLABLES_MAX: usize = 64;
/// How long a child may take to be ready: real devices load firmware.
const INIT_LIMIT: Duration = Duration::from_secs(300);
/// How long a child may take to leave at close: its run in progress ends by its own deadlines first.
const REAP_LIMIT: Duration = Duration::from_secs(60);
/// How long SIGKILL may take to end a process that is in the kernel.
const KILL_LIMIT: Duration = Duration::from_secs(10);

/// Run ids are the `inv` of this process's spans, so they go on from worker to worker.
// FORK: a child has a copy and submits nothing.
static NEXT_RUN_ID: AtomicU64 = AtomicU64::new(1);

/// Where the log of the parent and its chips goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSetup {
    /// What is admitted.
    pub threshold: Threshold,
    /// Holds `host.<pid>.log` of each process; none: stderr.
    pub directory: Option<PathBuf>,
}

impl Default for LogSetup {
    fn default() -> Self {
        Self { threshold: Threshold::TIMING, directory: None }
    }
}

/// A callable of one worker, from [`WorkerBuilder::callable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Callable(usize);

/// A worker to be: everything that its chips inherit is put together here.
pub struct WorkerBuilder {
    level: u32,
    chips: usize,
    log: LogSetup,
    callables: Vec<CallableImage>,
    digests: Vec<Digest>,
    shared: SharedRanges,
    make_endpoint: Box<MakeEndpoint>,
}

impl WorkerBuilder {
    fn new(level: u32) -> Self {
        let mut builder = Self {
            level,
            chips: 1,
            log: LogSetup::default(),
            callables: Vec::new(),
            digests: Vec::new(),
            shared: SharedRanges::default(),
            make_endpoint: Box::new(|_, _| Err(RunError { code: -1, text: "no platform".into() })),
        };
        builder.platform(|_| SimNpu::new(Profile::a2a3sim(), SimOptions::default()));
        builder
    }

    /// How many chips, 1 unless told otherwise.
    pub fn chips(&mut self, chips: usize) -> &mut Self {
        self.chips = chips;
        self
    }

    /// Where the log goes: TIMING and above to stderr unless told otherwise.
    pub fn log(&mut self, log: LogSetup) -> &mut Self {
        self.log = log;
        self
    }

    /// Makes each chip's platform, in the chip's process, from the chip's index, under the runtime's default
    /// configuration: a2a3sim unless told otherwise.
    pub fn platform<P: Platform + 'static>(
        &mut self,
        make: impl Fn(usize) -> Result<Arc<P>, PlatformError> + 'static,
    ) -> &mut Self {
        self.chip(RuntimeConfig::default(), make)
    }

    /// As [`WorkerBuilder::platform`], under a configuration of its own.
    pub fn chip<P: Platform + 'static>(
        &mut self,
        config: RuntimeConfig,
        make: impl Fn(usize) -> Result<Arc<P>, PlatformError> + 'static,
    ) -> &mut Self {
        self.endpoint(move |chip, callables| {
            let platform =
                make(chip).map_err(|error| RunError { code: -1, text: format!("platform: {error}") })?;
            Ok(Box::new(ChipWorker::new(platform, config.clone(), callables)?))
        })
    }

    /// Makes what serves each child's mailbox, in the child: a [`ChipWorker`] with the runtime's default
    /// configuration unless told otherwise.
    pub fn endpoint(
        &mut self,
        make: impl Fn(usize, &[CallableImage]) -> Result<Box<dyn Endpoint>, RunError> + 'static,
    ) -> &mut Self {
        self.make_endpoint = Box::new(make);
        self
    }

    /// Adds a callable to the snapshot that every chip registers; the same content gives the same callable.
    ///
    /// # Errors
    /// One more than [`CALLABLES_MAX`].
    pub fn callable(&mut self, image: CallableImage) -> Result<Callable, WorkerError> {
        let digest = image.digest();
        if let Some(known) = self.digests.iter().position(|other| *other == digest) {
            return Ok(Callable(known));
        }
        if self.callables.len() == CALLABLES_MAX {
            return Err(WorkerError::Config(format!(
                "callable {} does not fit: a worker has at most {CALLABLES_MAX}",
                image.name
            )));
        }
        self.callables.push(image);
        self.digests.push(digest);
        Ok(Callable(self.callables.len() - 1))
    }

    /// Gives a buffer to all chips; the parent keeps the returned view.
    pub fn share(&mut self, buffer: SharedBuffer) -> SharedMemory {
        let memory = SharedMemory::new(buffer);
        self.shared.add(memory.clone());
        memory
    }

    /// Forks the chips and waits until all are ready.
    ///
    /// To be called before the process has any other thread than the host log's writer, which it stops and,
    /// once the chips are ready, starts again.
    ///
    /// # Errors
    /// A setting out of range, other threads, a log that does not drain, a fork that fails, or a child whose
    /// bring-up failed, with the child's text. No child is left behind.
    pub fn start(self) -> Result<Worker, WorkerError> {
        self.check()?;
        let mailboxes = Mailboxes::new(self.chips)?;
        let had_writer = log_writer_is_running();
        let started = self.bring_up(mailboxes);
        if started.is_err() && had_writer {
            // The refusal is what the caller can act on; a log without a writer still logs.
            let _ = host_log::start_writer();
        }
        started
    }

    fn bring_up(self, mailboxes: Mailboxes) -> Result<Worker, WorkerError> {
        self.prepare_to_fork()?;
        let mut worker = Worker {
            owner: getpid(),
            mailboxes,
            shared: self.shared,
            callables: Vec::new(),
            chips: Vec::with_capacity(self.chips),
            next_dispatch_id: 1,
            closed: false,
        };
        for index in 0..self.chips {
            let inheritance = Inheritance {
                chip: index,
                parent: worker.owner,
                mailbox: worker.mailboxes.child(index),
                shared: &worker.shared,
                callables: &self.callables,
                make_endpoint: self.make_endpoint.as_ref(),
            };
            let child = Child::fork(|| child::live(&inheritance))?;
            worker.chips.push(Chip {
                child,
                frames: Vec::new(),
                told_to_leave: false,
                ending_is_told: false,
            });
        }
        worker.callables = (self.callables.iter().zip(self.digests))
            .map(|(image, digest)| Known { digest, hid: image.hid() })
            .collect();
        if let Err(error) = worker.wait_until_ready() {
            // What the others came to follows from this one, and each has said it in its own log.
            worker.chips.iter_mut().for_each(|chip| chip.ending_is_told = true);
            return Err(error);
        }
        host_log::start_writer().map_err(|error| WorkerError::Log(error.to_string()))?;
        Ok(worker)
    }

    fn check(&self) -> Result<(), WorkerError> {
        if self.level != NODE_LEVEL {
            return Err(WorkerError::Config(format!(
                "level {} has no such worker: level {NODE_LEVEL} forks chips, level 2 is ChipWorker",
                self.level
            )));
        }
        if !(1..=CHIPS_MAX).contains(&self.chips) {
            return Err(WorkerError::Config(format!("{} chips: a node has 1 to {CHIPS_MAX}", self.chips)));
        }
        Ok(())
    }

    fn prepare_to_fork(&self) -> Result<(), WorkerError> {
        let log_error = |error: &dyn fmt::Display| WorkerError::Log(error.to_string());
        host_log::init(&host_log::Config {
            threshold: self.log.threshold,
            directory: self.log.directory.as_deref(),
            defer_writer: true,
        })
        .map_err(|error| log_error(&error))?;
        host_log::prepare_to_fork(LOG_DRAIN_LIMIT).map_err(|error| log_error(&error))?;
        require_one_thread()
    }
}

/// Whether this process's log has a writer now, which a refused start gives back.
fn log_writer_is_running() -> bool {
    // ORDERING: Acquire: pairs with the Release store of the owner's pid when the writer was published.
    host_log::state().sink_owner_pid.load(Ordering::Acquire) == getpid().as_raw()
}

struct Known {
    digest: Digest,
    hid: u64,
}

struct Chip {
    child: Child,
    /// Its task frames, as many as it can have runs at a time; none before it is ready.
    frames: Vec<TaskFrame>,
    /// It was there when the worker was closed.
    told_to_leave: bool,
    /// An error has already said how this child ended.
    ending_is_told: bool,
}

/// A task frame as the parent uses it.
#[derive(Clone, Copy, Default)]
struct TaskFrame {
    in_flight: Option<u64>,
    /// Counts its uses.
    generation: u64,
}

/// A run in flight; give it to [`Worker::wait`].
#[derive(Debug)]
#[must_use = "the chip has one run less that it can take until this one was waited for"]
pub struct Ticket {
    run: RunIdentity,
    generation: u64,
}

impl Ticket {
    /// The chip that runs it.
    pub fn chip(&self) -> usize {
        self.run.chip
    }

    /// The run's number, which is `inv` of the parent's spans about it.
    pub fn run_id(&self) -> u64 {
        self.run.run_id
    }
}

/// A parent and its chips. One thread uses it.
pub struct Worker {
    // FORK: a process forked later has a copy that closes nothing; the chips stay this process's.
    owner: Pid,
    mailboxes: Mailboxes,
    shared: SharedRanges,
    callables: Vec<Known>,
    chips: Vec<Chip>,
    next_dispatch_id: u64,
    closed: bool,
}

impl Worker {
    /// A worker of a level; 3, the node, is the one that forks chips.
    pub fn builder(level: u32) -> WorkerBuilder {
        WorkerBuilder::new(level)
    }

    /// The chips' processes, by chip index.
    pub fn pids(&self) -> Vec<i32> {
        self.chips.iter().map(|chip| chip.child.pid()).collect()
    }

    /// Allocates device memory on a chip.
    ///
    /// # Errors
    /// The chip's refusal or its end, as for all control operations.
    pub fn malloc(&mut self, chip: usize, bytes: usize) -> Result<DeviceAddr, WorkerError> {
        self.control(chip, Control::Malloc { bytes: bytes as u64 }).map(DeviceAddr)
    }

    /// Frees what [`Worker::malloc`] gave on this chip.
    ///
    /// # Errors
    /// As [`Worker::malloc`].
    pub fn free(&mut self, chip: usize, device: DeviceAddr) -> Result<(), WorkerError> {
        self.control(chip, Control::Free { device: device.0 }).map(drop)
    }

    /// Copies shared memory to a chip's memory.
    ///
    /// # Errors
    /// As [`Worker::malloc`]; memory that was not shared with this worker.
    pub fn copy_to(
        &mut self,
        chip: usize,
        device: DeviceAddr,
        host: &SharedSlice,
    ) -> Result<(), WorkerError> {
        let (host, bytes) = self.shared_range(host)?;
        self.control(chip, Control::CopyTo { device: device.0, host, bytes }).map(drop)
    }

    /// Copies a chip's memory to shared memory.
    ///
    /// # Errors
    /// As [`Worker::copy_to`].
    pub fn copy_from(
        &mut self,
        chip: usize,
        host: &SharedSlice,
        device: DeviceAddr,
    ) -> Result<(), WorkerError> {
        let (host, bytes) = self.shared_range(host)?;
        self.control(chip, Control::CopyFrom { host, device: device.0, bytes }).map(drop)
    }

    /// Asks a chip whether it has the callable; gives the chip's local slot.
    ///
    /// # Errors
    /// As [`Worker::malloc`].
    pub fn prepare(&mut self, chip: usize, callable: Callable) -> Result<u64, WorkerError> {
        let digest = self.known(callable)?.digest;
        self.control(chip, Control::Prepare { callable: digest })
    }

    /// Hands a run to a chip and returns. A chip takes one at a time, or two where its runtime pipelines them
    /// ([`RuntimeConfig::pipeline_depth`]): it makes them in the order in which they were handed over, and copies the
    /// host tensors of the second to the device while the first may still run. What the second reads of the first one's
    /// results must therefore lie in device memory, or the first be waited for.
    ///
    /// # Errors
    /// Too many arguments, a host tensor outside shared memory, a chip that is busy or gone, an unknown chip
    /// or callable, a closed worker. Nothing was handed over then.
    pub fn submit(&mut self, chip: usize, callable: Callable, args: &RunArgs) -> Result<Ticket, WorkerError> {
        let submit = Start::now();
        self.require_living(chip)?;
        let &Known { digest, hid } = self.known(callable)?;
        let frames = &self.chips[chip].frames;
        let Some(slot) = frames.iter().position(|frame| frame.in_flight.is_none()) else {
            let run_id = frames.iter().filter_map(|frame| frame.in_flight).min().unwrap_or(0);
            return Err(WorkerError::Busy { chip, run_id });
        };
        for (position, arg) in args.tensors.iter().enumerate() {
            self.shared.check(position, &arg.tensor).map_err(WorkerError::Arguments)?;
        }
        let run = RunIdentity {
            run_id: NEXT_RUN_ID.fetch_add(1, Ordering::Relaxed),
            hid,
            task_slot: slot,
            chip,
            dispatch_id: self.next_dispatch_id,
        };
        let frame = &mut self.chips[chip].frames[slot];
        let task = TaskIdentity {
            callable_index: callable.0,
            callable: digest,
            run_id: run.run_id,
            dispatch_id: run.dispatch_id,
            generation: frame.generation + 1,
        };
        let dispatch = Start::now();
        self.mailboxes.parent(chip).post_task(slot, &task, args).map_err(WorkerError::Arguments)?;
        dispatch.end_dispatch(&run);
        *frame = TaskFrame { in_flight: Some(run.run_id), generation: task.generation };
        self.next_dispatch_id += 1;
        submit.end_submit(&run);
        Ok(Ticket { run, generation: task.generation })
    }

    /// Whether [`Worker::wait`] would return at once: the run has ended, or its process has, or it would refuse.
    pub fn poll(&mut self, ticket: &Ticket) -> bool {
        let foreign = self.is_foreign();
        let Some(chip) = self.chips.get_mut(ticket.chip()) else { return true };
        foreign
            || self.closed
            || chip.frames.get(ticket.run.task_slot).and_then(|frame| frame.in_flight)
                != Some(ticket.run_id())
            || self.mailboxes.parent(ticket.chip()).task_is_done(ticket.run.task_slot)
            || chip.child.ending().is_some()
    }

    /// Waits for a run.
    ///
    /// # Errors
    /// The chip's code and text, or how its process ended. The chip takes another run after the former.
    pub fn wait(&mut self, ticket: Ticket) -> Result<(), WorkerError> {
        let Ticket { run, generation } = ticket;
        self.require_chip(run.chip)?;
        let slot = run.task_slot;
        if self.chips[run.chip].frames.get(slot).and_then(|frame| frame.in_flight) != Some(run.run_id) {
            return Err(WorkerError::Unknown(format!("run {} is not of this worker", run.run_id)));
        }
        let outcome = self.wait_for(run.chip, |end| {
            if !end.task_is_done(slot) {
                return None;
            }
            let complete = Start::now();
            let outcome = end.take_task(slot);
            complete.end_complete(&run);
            outcome
        });
        self.chips[run.chip].frames[slot].in_flight = None;
        match outcome {
            Ok(outcome) => outcome.map_err(|failure| self.chip_error(run.chip, "run", failure)),
            Err(ending) => {
                let accepted = self.mailboxes.parent(run.chip).accepted(slot, generation);
                let before = if accepted { "while it ran" } else { "before it took up" };
                Err(self.gone(run.chip, ending, format!("{before} run {}", run.run_id)))
            }
        }
    }

    /// Shuts every chip down, collects its process and drains this process's log. Runs in progress end first;
    /// runs not yet taken up are dropped. Closing again does nothing.
    ///
    /// The process's log goes on without a writer: later records are written by whoever logs them.
    ///
    /// # Errors
    /// The first child that ended otherwise than told to, unless an earlier error has said so. Everything is
    /// closed all the same.
    pub fn close(&mut self) -> Result<(), WorkerError> {
        self.close_within(REAP_LIMIT)
    }

    /// As [`Worker::close`], with another limit than 60 s after which chips that did not leave are killed.
    ///
    /// # Errors
    /// As [`Worker::close`].
    pub fn close_within(&mut self, limit: Duration) -> Result<(), WorkerError> {
        if self.closed || self.is_foreign() {
            return Ok(());
        }
        self.closed = true;
        for index in 0..self.chips.len() {
            let chip = &mut self.chips[index];
            chip.told_to_leave = chip.child.ending().is_none();
            self.mailboxes.parent(index).terminate();
        }
        let mut first_error = None;
        if !self.collect(limit) {
            for (index, chip) in self.chips.iter_mut().enumerate() {
                if chip.child.ending().is_none() {
                    chip.child.kill();
                    chip.ending_is_told = true;
                    let pid = chip.child.pid();
                    first_error.get_or_insert(WorkerError::Unresponsive { chip: index, pid, limit });
                }
            }
            self.collect(KILL_LIMIT);
        }
        for index in 0..self.chips.len() {
            let chip = &mut self.chips[index];
            match chip.child.ending() {
                None | Some(Ending::Exited(0)) => {}
                Some(_) if chip.ending_is_told => {}
                // Where SIGCHLD is ignored nobody learns more of a child than that it has left, as it was told to.
                Some(Ending::Collected) if chip.told_to_leave => {}
                Some(ending) => {
                    let when = if chip.told_to_leave { "after" } else { "before" };
                    let error = self.gone(index, ending, format!("{when} it was told to leave"));
                    first_error.get_or_insert(error);
                }
            }
        }
        host_log::close(LOG_DRAIN_LIMIT);
        first_error.map_or(Ok(()), Err)
    }

    /// The init barrier.
    fn wait_until_ready(&mut self) -> Result<(), WorkerError> {
        let deadline = Deadline::after(INIT_LIMIT);
        for index in 0..self.chips.len() {
            let pid = self.chips[index].child.pid();
            match self.wait_until(index, Some(deadline), |end| end.take_init()) {
                Ok(Ok(depth)) => {
                    self.chips[index].frames = vec![TaskFrame::default(); depth.clamp(1, TASK_FRAMES)];
                }
                Ok(Err(failure)) => {
                    return Err(WorkerError::Init { chip: index, pid, text: failure.text });
                }
                Err(Missing::Ended(ending)) => {
                    return Err(self.gone(index, ending, "before it was ready".into()));
                }
                Err(Missing::TimedOut) => {
                    return Err(WorkerError::InitTimeout { chip: index, pid, limit: INIT_LIMIT });
                }
            }
        }
        Ok(())
    }

    fn control(&mut self, chip: usize, request: Control) -> Result<u64, WorkerError> {
        self.require_living(chip)?;
        self.mailboxes.parent(chip).post_control(&request);
        match self.wait_for(chip, |end| end.take_control()) {
            Ok(outcome) => outcome.map_err(|failure| self.chip_error(chip, request.name(), failure)),
            Err(ending) => Err(self.gone(chip, ending, format!("during {}", request.name()))),
        }
    }

    fn wait_for<T>(
        &mut self,
        chip: usize,
        take: impl FnMut(ParentEnd<'_>) -> Option<T>,
    ) -> Result<T, Ending> {
        match self.wait_until(chip, None, take) {
            Ok(taken) => Ok(taken),
            Err(Missing::Ended(ending)) => Err(ending),
            Err(Missing::TimedOut) => unreachable!("there was no deadline"),
        }
    }

    /// Waits until `take` gives something, and looks every park slice whether the child still lives.
    fn wait_until<T>(
        &mut self,
        chip: usize,
        deadline: Option<Deadline>,
        mut take: impl FnMut(ParentEnd<'_>) -> Option<T>,
    ) -> Result<T, Missing> {
        let end = self.mailboxes.parent(chip);
        let child = &mut self.chips[chip].child;
        if let Some(ending) = child.seen_ending() {
            return take(end).ok_or(Missing::Ended(ending));
        }
        let mut looked_at = Instant::now();
        let mut relax = Relax::new();
        loop {
            let seen = self.mailboxes.replies().epoch();
            if let Some(taken) = take(end) {
                return Ok(taken);
            }
            if looked_at.elapsed() >= PARK_SLICE {
                looked_at = Instant::now();
                if let Some(ending) = child.ending() {
                    // It may have answered before it ended.
                    return take(end).ok_or(Missing::Ended(ending));
                }
                if deadline.is_some_and(|deadline| deadline.passed()) {
                    return Err(Missing::TimedOut);
                }
            }
            relax.wait(self.mailboxes.replies(), seen);
        }
    }

    /// Waits for all children to end; false when the limit passed.
    fn collect(&mut self, limit: Duration) -> bool {
        let deadline = Deadline::after(limit);
        let mut relax = Relax::new();
        loop {
            let seen = self.mailboxes.replies().epoch();
            // All of them, so that each is collected as early as it can be.
            let living =
                self.chips.iter_mut().filter_map(|chip| chip.child.ending().is_none().then_some(())).count();
            if living == 0 {
                return true;
            }
            if deadline.passed() {
                return false;
            }
            relax.wait(self.mailboxes.replies(), seen);
        }
    }

    /// Whether this is the copy of a worker in a process that was forked later.
    fn is_foreign(&self) -> bool {
        self.owner != getpid()
    }

    /// Also refuses the copy of a worker in another process: its mailboxes are those that the owner uses.
    fn require_chip(&self, chip: usize) -> Result<(), WorkerError> {
        if self.is_foreign() {
            return Err(WorkerError::Foreign { owner: self.owner.as_raw() });
        }
        if self.closed {
            return Err(WorkerError::Closed);
        }
        if chip >= self.chips.len() {
            return Err(WorkerError::Unknown(format!(
                "there is no chip {chip}, they are {}",
                self.chips.len()
            )));
        }
        Ok(())
    }

    /// Also refuses a chip whose end was seen: its frames may be in the middle of something for ever.
    fn require_living(&mut self, chip: usize) -> Result<(), WorkerError> {
        self.require_chip(chip)?;
        match self.chips[chip].child.seen_ending() {
            None => Ok(()),
            Some(ending) => Err(self.gone(chip, ending, "before this was asked of it".into())),
        }
    }

    fn known(&self, callable: Callable) -> Result<&Known, WorkerError> {
        self.callables
            .get(callable.0)
            .ok_or_else(|| WorkerError::Unknown(format!("there is no callable {}", callable.0)))
    }

    fn shared_range(&self, host: &SharedSlice) -> Result<(u64, u64), WorkerError> {
        let (addr, bytes) = (host.addr(), host.bytes() as u64);
        if self.shared.contain(addr, bytes) {
            Ok((addr, bytes))
        } else {
            Err(WorkerError::Arguments(format!(
                "{bytes} bytes at {addr:#x} were not shared with this worker"
            )))
        }
    }

    fn chip_error(&self, chip: usize, what: &'static str, failure: Failure) -> WorkerError {
        let pid = self.chips[chip].child.pid();
        WorkerError::Chip { chip, pid, what, code: failure.code, text: failure.text }
    }

    fn gone(&mut self, chip: usize, ending: Ending, during: String) -> WorkerError {
        let state = &mut self.chips[chip];
        state.ending_is_told = true;
        WorkerError::ChildGone { chip, pid: state.child.pid(), ending, during }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            host_log::log_warn!("{error}");
        }
    }
}

/// Why there is nothing to take.
enum Missing {
    Ended(Ending),
    TimedOut,
}
