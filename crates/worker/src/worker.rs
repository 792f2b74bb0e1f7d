//! The parent: forks its children before any thread exists, then drives them through their mailboxes.
//!
//! The order of start is that of RUNTIME §1.3: mailboxes and shared memory, the snapshot of callables, the log
//! (threshold and directory set, writer deferred, any former writer joined), the forks of chips and sub workers, a
//! barrier on all of them, the forks of the workers below, each ready before the next is forked, and only then this
//! process's own log writer, the first thread. A worker below does the same in its own process before it is ready.
//! One thread drives all children: [`Worker::submit`] hands a run over and returns, [`Worker::wait`] collects it,
//! so that several run at once. While it waits the parent also looks whether the child still lives.
//!
//! A worker of level 2 has no children: its one chip is in this process, and a run has ended when `submit` returns.
//!
//! SIGTERM while children are set up cancels the start. The children of the worker that nobody else has forked lead
//! process groups: a signal to its group, as a terminal sends it, is this process's to handle, and who is killed takes
//! along what it has forked.
//!
//! Every way out goes through [`Worker::close`]: a failed start, an explicit close, a drop.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::unistd::{Pid, getpid, getppid};
use simpler_host_log as host_log;
use simpler_log_abi::Threshold;
use simpler_platform::{DeviceAddr, Platform, PlatformError};
use simpler_relax::{Deadline, PARK_SLICE, Relax};
use simpler_runtime::RuntimeConfig;
use simpler_sim_npu::{Profile, SimNpu, SimOptions};

use crate::cancellation::Cancellation;
use crate::child::{self, Inheritance, LOG_DRAIN_LIMIT, Role};
use crate::endpoint::MakeEndpoint;
use crate::error::Ending;
use crate::function::{FUNCTION, Function, ORCHESTRATION, Orchestration, digest_of};
use crate::image_transfer::{self, Gathering};
use crate::level::{self, CHIP_LEVEL, LEVEL_MAX, NODE_LEVEL, Names};
use crate::mailbox::{Control, Digest, Failure, Mailboxes, ParentEnd, TASK_FRAMES, TaskIdentity};
use crate::process::{Child, Fork, OtherThreads, plain_fork};
use crate::remote::{self, Launched, Peer, Remote, wire};
use crate::shared_memory::SharedRanges;
use crate::span::{RunIdentity, SchedulerLoop, Start};
use crate::{
    CallableImage, ChildId, ChipWorker, Endpoint, RunArgs, RunError, SharedMemory, SharedSlice, WorkerError,
};

/// Most chips of a node (RUNTIME §1.1).
pub const CHIPS_MAX: usize = 16;
/// Most callables of a worker (RUNTIME §1.6).
pub const CALLABLES_MAX: usize = 64;
/// How long a child may take to be ready unless told otherwise: real devices load firmware. A worker below has that long
/// for each of its own barriers.
const INIT_LIMIT: Duration = Duration::from_secs(300);
/// Most sub workers: a process each.
pub const SUBS_MAX: usize = 64;
/// Most workers below: a process each, and the processes of those.
pub const WORKERS_MAX: usize = 64;
/// How long a child may take to leave at close: its run in progress ends by its own deadlines first. A worker below
/// takes that long for its own children, so each level has as much on top.
const REAP_LIMIT: Duration = Duration::from_secs(60);
/// How long a child may take to leave when the set-up is given up, for each level: with the most levels it stays below
/// the 10 s after which who sends SIGTERM usually sends SIGKILL.
const CANCEL_LIMIT: Duration = Duration::from_secs(2);
const BY_SIGTERM: &str = "SIGTERM";
const BY_INTERRUPT: &str = "an interrupt";
/// Most ranks on other hosts, over all launchers: a process each here, too.
pub const REMOTES_MAX: usize = 64;
/// How long SIGKILL may take to end a process that is in the kernel.
const KILL_LIMIT: Duration = Duration::from_secs(10);

/// Run ids are the `inv` of this process's spans, so they go on from worker to worker.
// FORK: a child has a copy and submits nothing.
static NEXT_RUN_ID: AtomicU64 = AtomicU64::new(1);

/// Where the log of the parent and its children goes.
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

/// A callable, from [`WorkerBuilder::callable`], [`WorkerBuilder::function`], [`WorkerBuilder::orchestration`] or
/// [`Worker::register`]: what it is, not whose. The same content (of a closure, the same name) is the same callable for
/// every worker that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Callable(pub(crate) Digest);

impl Callable {
    /// The one of this content.
    pub fn of_image(image: &CallableImage) -> Self {
        Self(image.digest())
    }

    /// The function of this name.
    pub fn of_function(name: &str) -> Self {
        Self(digest_of(FUNCTION, name))
    }

    /// The orchestration of this name.
    pub fn of_orchestration(name: &str) -> Self {
        Self(digest_of(ORCHESTRATION, name))
    }

    /// The registry identity: what frames carry.
    pub fn digest(self) -> [u8; 32] {
        self.0
    }

    /// The callable of such a digest, in any process.
    pub fn from_digest(digest: [u8; 32]) -> Self {
        Self(digest)
    }

    /// Its digest as scalars of a run: an orchestration, which is older than what is registered after the start, is told
    /// of a callable this way.
    pub fn to_scalars(self) -> [u64; 4] {
        let [a, b, c, d] = *self.0.as_chunks().0 else { unreachable!("a digest has 32 bytes") };
        [a, b, c, d].map(u64::from_le_bytes)
    }

    /// The callable that [`Callable::to_scalars`] gave, in any process.
    pub fn from_scalars(scalars: [u64; 4]) -> Self {
        let mut digest = [0; 32];
        digest.as_chunks_mut().0.iter_mut().zip(scalars).for_each(|(to, from)| *to = from.to_le_bytes());
        Self(digest)
    }
}

impl fmt::Display for Callable {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Enough to find it in a text.
        self.0[..4].iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

/// What of a worker runs a callable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunsOn {
    Chips,
    Subs,
    /// Here or on other hosts.
    Workers,
    /// On other hosts only.
    Remotes,
}

impl RunsOn {
    const fn includes(self, child: ChildId) -> bool {
        matches!(
            (self, child),
            (Self::Chips, ChildId::Chip(_))
                | (Self::Subs, ChildId::Sub(_))
                | (Self::Workers, ChildId::Worker(_) | ChildId::Remote(_))
                | (Self::Remotes, ChildId::Remote(_))
        )
    }
}

/// A worker to be: everything that its children inherit is put together here.
pub struct WorkerBuilder {
    level: u32,
    /// As many as the level has usually, where nobody says.
    chips: Option<usize>,
    subs: usize,
    workers: Vec<WorkerBuilder>,
    remotes: Vec<Remote>,
    log: LogSetup,
    callables: Vec<Known>,
    images: Vec<CallableImage>,
    functions: Vec<(Digest, Function)>,
    orchestrations: Vec<(Digest, Orchestration)>,
    shared: SharedRanges,
    make_endpoint: Box<MakeEndpoint>,
    fork: Box<Fork>,
    other_threads: OtherThreads,
    interrupted: Rc<Interrupted>,
    log_goes_on: bool,
    init_limit: Duration,
    /// Of a worker below, the process that forked this one.
    parent: Option<Pid>,
}

impl WorkerBuilder {
    fn new(level: u32) -> Self {
        let mut builder = Self {
            level,
            chips: None,
            subs: 0,
            workers: Vec::new(),
            remotes: Vec::new(),
            log: LogSetup::default(),
            callables: Vec::new(),
            images: Vec::new(),
            functions: Vec::new(),
            orchestrations: Vec::new(),
            shared: SharedRanges::default(),
            make_endpoint: Box::new(|_, _| Err(RunError { code: -1, text: "no platform".into() })),
            fork: Box::new(plain_fork),
            other_threads: OtherThreads::default(),
            interrupted: Rc::new(|| false),
            log_goes_on: false,
            init_limit: INIT_LIMIT,
            parent: None,
        };
        builder.platform(|_| SimNpu::new(Profile::a2a3sim(), SimOptions::default()));
        builder
    }

    /// How many chips, 1 unless told otherwise; above level 3 there are none.
    pub fn chips(&mut self, chips: usize) -> &mut Self {
        self.chips = Some(chips);
        self
    }

    /// How many sub workers, none unless told otherwise. They run the functions of [`WorkerBuilder::function`].
    pub fn subs(&mut self, subs: usize) -> &mut Self {
        self.subs = subs;
        self
    }

    /// Adds a worker of the level below, for levels above 3. It runs the orchestrations of
    /// [`WorkerBuilder::orchestration`] over its own children, logs where this one does, and sees what this one shares.
    pub fn worker(&mut self, below: WorkerBuilder) -> &mut Self {
        self.workers.push(below);
        self
    }

    /// Adds workers of the level below on other hosts, for levels above 3. They run orchestrations, too: those of this
    /// worker by their names ([`WorkerBuilder::orchestration`]), and those that only they have
    /// ([`WorkerBuilder::remote_orchestration`]).
    pub fn remote(&mut self, remote: Remote) -> &mut Self {
        self.remotes.push(remote);
        self
    }

    /// Where the log goes: TIMING and above to stderr unless told otherwise.
    pub fn log(&mut self, log: LogSetup) -> &mut Self {
        self.log = log;
        self
    }

    /// How long each of its children may take to be ready, 300 s unless told otherwise; a worker below has that long for
    /// each of its own barriers, and on top what it takes to give its start up (see [`WorkerBuilder::start`]), and gives
    /// its children as long as its own builder says.
    pub fn init_limit(&mut self, limit: Duration) -> &mut Self {
        self.init_limit = limit;
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
    /// configuration unless told otherwise. At level 2, where it runs in this process, it must not copy to or from what
    /// this worker shares: that is held for it meanwhile.
    pub fn endpoint(
        &mut self,
        make: impl Fn(usize, &[CallableImage]) -> Result<Box<dyn Endpoint>, RunError> + 'static,
    ) -> &mut Self {
        self.make_endpoint = Box::new(make);
        self
    }

    /// Adds a callable to the snapshot that every chip registers, those of workers below too; the same content gives the
    /// same callable. [`Worker::register`] does so after the start.
    ///
    /// # Errors
    /// One more than [`CALLABLES_MAX`].
    pub fn callable(&mut self, image: CallableImage) -> Result<Callable, WorkerError> {
        let known = Known::chip(&image);
        let is_new = know(&mut self.callables, known, &image.name)?;
        if is_new {
            self.images.push(image);
        }
        Ok(Callable(known.digest))
    }

    /// Adds a function that sub workers run, each in its own process, with the memory that this process has now. Of a
    /// host tensor in shared memory it finds the bytes at the tensor's address. It must not read from a terminal, nor
    /// set it up ([`WorkerBuilder::start`]). It is memory of this process, so it can only be added before the fork, and
    /// stays; so an orchestration.
    ///
    /// # Errors
    /// One more than [`CALLABLES_MAX`]; a name that a function has.
    pub fn function(
        &mut self,
        name: &str,
        function: impl Fn(&RunArgs) -> Result<(), RunError> + 'static,
    ) -> Result<Callable, WorkerError> {
        let (callable, digest) = self.know_closure(RunsOn::Subs, FUNCTION, name)?;
        self.functions.push((digest, Rc::new(function)));
        Ok(callable)
    }

    /// Adds an orchestration that workers below run: it submits to their children and waits for them. An error of theirs
    /// passes on with `?`.
    ///
    /// # Errors
    /// One more than [`CALLABLES_MAX`]; a name that an orchestration has.
    pub fn orchestration(
        &mut self,
        name: &str,
        orchestration: impl Fn(&mut Worker, &RunArgs) -> Result<(), RunError> + 'static,
    ) -> Result<Callable, WorkerError> {
        let (callable, digest) = self.know_closure(RunsOn::Workers, ORCHESTRATION, name)?;
        self.orchestrations.push((digest, Rc::new(orchestration)));
        Ok(callable)
    }

    /// Adds an orchestration that the programs of [`WorkerBuilder::remote`] have, by the name that it has there.
    ///
    /// # Errors
    /// One more than [`CALLABLES_MAX`]; a name that an orchestration has.
    pub fn remote_orchestration(&mut self, name: &str) -> Result<Callable, WorkerError> {
        self.know_closure(RunsOn::Remotes, ORCHESTRATION, name).map(|(callable, _)| callable)
    }

    fn know_closure(
        &mut self,
        runs_on: RunsOn,
        kind: &str,
        name: &str,
    ) -> Result<(Callable, Digest), WorkerError> {
        let digest = digest_of(kind, name);
        let [first, ..] = *digest.as_chunks().0 else { unreachable!("a digest has eight bytes") };
        let known = Known { digest, hid: u64::from_le_bytes(first), runs_on, count: 1 };
        let is_new = know(&mut self.callables, known, name)?;
        if !is_new {
            return Err(WorkerError::Config(format!("there is a {kind} {name} already")));
        }
        Ok((Callable(digest), digest))
    }

    /// Says that the process will have other workers after this one: closing it drains the log, and leaves the log's ring
    /// for the next writer. It goes when the process exits.
    pub fn log_goes_on(&mut self) -> &mut Self {
        self.log_goes_on = true;
        self
    }

    /// Gives a buffer, or memory that another worker shares as well, to all children, and to those of workers below; the
    /// parent keeps the returned view.
    pub fn share(&mut self, memory: impl Into<SharedMemory>) -> SharedMemory {
        let memory = memory.into();
        self.shared.add(memory.clone());
        memory
    }

    /// Forks by this instead of the system call alone: an interpreter, say, has things to do around it. It must do what
    /// `fork` does: give 0 in the child, and the child's pid in the parent. It is called by the thread that starts the
    /// worker, with SIGTERM blocked; what it does in the child after the fork is done before anything of the child's.
    pub fn fork_with(&mut self, fork: impl Fn() -> io::Result<i32> + 'static) -> &mut Self {
        self.fork = Box::new(fork);
        self
    }

    /// Lets the worker fork beside other threads, which it refuses unless told otherwise. The child has the thread that
    /// forks and none of the others: a lock that one of them holds at that moment is held there for ever, so nothing of
    /// what they may be using can be used there. Who calls this knows what these threads are, as those that a numerical
    /// library keeps for itself. libc's own locks, its allocator's among them, are in order in any child. One WARN record
    /// names the threads.
    pub fn permit_other_threads(&mut self) -> &mut Self {
        self.other_threads = OtherThreads::Permitted;
        self
    }

    /// Asks this about every 10 ms of a wait for a child, and ends the wait where it says yes: a start is called off
    /// ([`WorkerError::Cancelled`]), whoever waits for an answer is told ([`WorkerError::Interrupted`]), and a close kills
    /// those that it still waits for. It is asked by the thread that waits, and of no other process than this.
    pub fn interrupt_with(&mut self, interrupted: impl Fn() -> bool + 'static) -> &mut Self {
        self.interrupted = Rc::new(interrupted);
        self
    }

    /// Forks the children and waits until all are ready; at level 2 makes the chip.
    ///
    /// To be called before the process has any other thread than the host log's writer, which it stops and,
    /// once the children are ready, starts again; or else see [`WorkerBuilder::permit_other_threads`]. At level 2 there
    /// may be threads.
    ///
    /// SIGTERM meanwhile cancels the start, above level 2, also where the host program has blocked it; what that has
    /// set for it has no effect until this returns. Where a start comes to nothing, children that are in their bring-up
    /// then have 2 s, for each level, before they are killed.
    ///
    /// The children are in process groups of their own, which in a terminal are background groups: a child that reads
    /// from it, sets it up, or writes to it under `stty tostop`, is stopped by the system (SIGTTIN, SIGTTOU), and who
    /// waits for it waits until it is continued or its limit has passed.
    ///
    /// # Errors
    /// A setting out of range, other threads, a log that does not drain, a fork that fails, a child whose
    /// bring-up failed, with the child's text, or [`WorkerError::Cancelled`]. No child is left behind.
    pub fn start(self) -> Result<Worker, WorkerError> {
        self.start_unless(&|| false)
    }

    fn start_unless(mut self, told_to_leave: &dyn Fn() -> bool) -> Result<Worker, WorkerError> {
        for below in &mut self.workers {
            self.images.iter().try_for_each(|image| below.callable(image.clone()).map(drop))?;
        }
        self.check()?;
        let mailboxes = Mailboxes::new(self.ids().len())?;
        let had_writer = log_writer_is_running();
        let started = if self.level == CHIP_LEVEL {
            self.start_here(mailboxes)
        } else {
            self.bring_up(mailboxes, told_to_leave)
        };
        if started.is_err() && had_writer {
            // The refusal is what the caller can act on; a log without a writer still logs.
            let _ = host_log::start_writer();
        }
        started
    }

    /// Starts it as a child of a worker that shares this with it, unless that one tells it to leave meanwhile.
    pub(crate) fn start_below(
        mut self,
        shared: &SharedRanges,
        parent: Pid,
        told_to_leave: &dyn Fn() -> bool,
    ) -> Result<Worker, WorkerError> {
        self.shared.extend(shared);
        self.parent = Some(parent);
        self.start_unless(told_to_leave)
    }

    /// The children, in the order of their mailboxes.
    fn ids(&self) -> Vec<ChildId> {
        let chips = (0..self.chip_count()).filter(|_| self.level != CHIP_LEVEL).map(ChildId::Chip);
        let subs = (0..self.subs).map(ChildId::Sub);
        let workers = (0..self.workers.len()).map(ChildId::Worker);
        chips.chain(subs).chain(workers).chain((0..self.remote_count()).map(ChildId::Remote)).collect()
    }

    fn remote_count(&self) -> usize {
        self.remotes.iter().fold(0, |sum, remote| sum.saturating_add(remote.ranks()))
    }

    /// How many barriers one after the other its start has.
    fn barriers(&self) -> u32 {
        // Ranks have to connect, and then to be ready.
        1 + self.workers.iter().map(Self::barriers).sum::<u32>() + 2 * self.remotes.len() as u32
    }

    /// How many times [`CANCEL_LIMIT`] a start that comes to nothing may take on top: each level gives up in its turn.
    fn cancel_limits(&self) -> u32 {
        let own = self.level.saturating_sub(CHIP_LEVEL);
        own + self.workers.iter().map(Self::cancel_limits).sum::<u32>()
    }

    fn chip_count(&self) -> usize {
        self.chips.unwrap_or(if self.level <= NODE_LEVEL { 1 } else { 0 })
    }

    fn without_children(&mut self, mailboxes: Mailboxes) -> Worker {
        Worker {
            owner: getpid(),
            level: self.level,
            names: level::bind(self.level),
            mailboxes,
            shared: std::mem::take(&mut self.shared),
            callables: std::mem::take(&mut self.callables),
            children: Vec::new(),
            launched: Vec::new(),
            peers: Vec::new(),
            local: None,
            interrupted: Rc::clone(&self.interrupted),
            log_goes_on: self.log_goes_on,
            next_dispatch_id: 1,
            closed: false,
        }
    }

    fn start_here(mut self, mailboxes: Mailboxes) -> Result<Worker, WorkerError> {
        self.init_log(false)?;
        let endpoint = (self.make_endpoint)(0, &self.images).map_err(|error| WorkerError::Init {
            child: ChildId::Chip(0),
            pid: getpid().as_raw(),
            text: error.text,
        })?;
        let mut worker = self.without_children(mailboxes);
        worker.local = Some(Local { endpoint, outcomes: HashMap::new() });
        Ok(worker)
    }

    fn bring_up(
        mut self,
        mailboxes: Mailboxes,
        told_to_leave: &dyn Fn() -> bool,
    ) -> Result<Worker, WorkerError> {
        self.init_log(true)?;
        host_log::prepare_to_fork(LOG_DRAIN_LIMIT).map_err(|error| WorkerError::Log(error.to_string()))?;
        self.other_threads.check()?;
        let mut worker = self.without_children(mailboxes);
        let sigterm = Cancellation::listen()?;
        let parent = self.parent;
        let interrupted = Rc::clone(&self.interrupted);
        let cancelled = || {
            if sigterm.is_asked() {
                Some(BY_SIGTERM)
            } else if interrupted() {
                Some(BY_INTERRUPT)
            } else if told_to_leave() {
                Some("the worker above")
            } else {
                // Nobody else watches for this one before its children are ready.
                parent.is_some_and(|parent| getppid() != parent).then_some("the end of the worker above")
            }
        };
        let outcome = self.fork_children(&mut worker, &cancelled);
        let given_up = match outcome {
            Ok(()) => sigterm.end_unless_asked(),
            Err(_) => Some(sigterm),
        };
        if let Some(sigterm) = given_up {
            // Nobody waits for those that are still at it, whatever became of the others. The signal stays noted: the
            // next one must not end this process before them.
            worker.give_up();
            // What fails once it was asked for follows from that.
            if sigterm.is_asked() {
                return Err(WorkerError::Cancelled { by: BY_SIGTERM });
            }
        }
        outcome?;
        host_log::start_writer().map_err(|error| WorkerError::Log(error.to_string()))?;
        Ok(worker)
    }

    fn fork_children(
        mut self,
        worker: &mut Worker,
        cancelled: &dyn Fn() -> Option<&'static str>,
    ) -> Result<(), WorkerError> {
        let ids = self.ids();
        let limits = self.workers.iter().map(|below| {
            let barriers = self.init_limit.saturating_mul(below.barriers() + 1);
            // Who is late down there is to be told of by the worker that waits for it, which then still has to leave.
            barriers.saturating_add(CANCEL_LIMIT * (below.cancel_limits() + 1))
        });
        let limits: Vec<_> = limits.collect();
        let mut below: VecDeque<_> = std::mem::take(&mut self.workers).into();
        let mut remotes: VecDeque<_> = std::mem::take(&mut self.remotes).into();
        // Of the remotes that are being opened. They go before the worker, which a failed start closes: a rank leaves
        // when its session does.
        let (mut sessions, mut remote_limit) = (VecDeque::new(), self.init_limit);
        for (index, id) in ids.into_iter().enumerate() {
            let role = match id {
                ChildId::Chip(chip) => Role::Chip(chip, &self.images, self.make_endpoint.as_ref()),
                ChildId::Sub(_) => Role::Sub(&self.functions),
                ChildId::Worker(_) => {
                    // What it forks in its turn must not meet with those that are still at it.
                    worker.wait_until_ready(cancelled)?;
                    let Some(mut below) = below.pop_front() else { continue };
                    below.log = self.log.clone();
                    Role::Worker(Box::new(below), &self.orchestrations)
                }
                ChildId::Remote(first) => {
                    if sessions.is_empty() {
                        // Nothing else is forked by now that could wait for this.
                        worker.wait_until_ready(cancelled)?;
                        let Some(remote) = remotes.pop_front() else { continue };
                        let told = remote::Told { level: self.level, first, log: &self.log };
                        let (launched, opened) = remote::open(&remote, &told, cancelled)?;
                        worker.launched.push(launched);
                        worker.peers.extend(opened.iter().map(|session| session.peer().clone()));
                        (sessions, remote_limit) = (opened, remote.limit());
                    }
                    let Some(session) = sessions.pop_front() else { continue };
                    Role::Remote(session)
                }
            };
            let inheritance = Inheritance {
                child: id,
                parent: worker.owner,
                mailbox: worker.mailboxes.child(index),
                shared: &worker.shared,
            };
            // Those that the root has not forked are in the group of the one that it has.
            let process = Child::fork(&self.fork, self.parent.is_none(), || {
                // A connection closes when nobody has it open any more.
                sessions.clear();
                child::live(&inheritance, role)
            })?;
            worker.children.push(ChildState {
                id,
                process,
                frames: Vec::new(),
                unanswered: None,
                init_limit: match id {
                    ChildId::Worker(below) => limits[below],
                    ChildId::Remote(_) => remote_limit,
                    _ => self.init_limit,
                },
                told_to_leave: false,
                ending_is_told: false,
            });
        }
        worker.wait_until_ready(cancelled)
    }

    fn check(&self) -> Result<(), WorkerError> {
        let Self { level, subs, workers, .. } = self;
        let refuse = |text: String| Err(WorkerError::Config(format!("level {level}: {text}")));
        let chips = self.chip_count();
        let most_chips = match *level {
            CHIP_LEVEL => 1,
            NODE_LEVEL => CHIPS_MAX,
            ..=LEVEL_MAX if *level > NODE_LEVEL => 0,
            _ => {
                return refuse(format!("workers have a level from {CHIP_LEVEL} to {LEVEL_MAX}"));
            }
        };
        if chips > most_chips {
            return refuse(format!("{chips} chips are more than {most_chips}"));
        }
        if *level == CHIP_LEVEL && (chips != 1 || *subs != 0) {
            return refuse("it is one chip, without sub workers".to_owned());
        }
        if *subs > SUBS_MAX || workers.len() > WORKERS_MAX {
            let below = workers.len();
            return refuse(format!(
                "{subs} sub workers and {below} workers below, of {SUBS_MAX} and {WORKERS_MAX} at most"
            ));
        }
        if let Some(other) = workers.iter().find(|below| below.level + 1 != *level || *level <= NODE_LEVEL) {
            return refuse(format!("a worker of level {} is none of its children", other.level));
        }
        let remotes = self.remote_count();
        if remotes > REMOTES_MAX {
            return refuse(format!("{remotes} ranks, of {REMOTES_MAX} at most"));
        }
        if !self.remotes.is_empty() && *level <= NODE_LEVEL {
            return refuse("a worker on another host is none of its children".to_owned());
        }
        if self.remotes.iter().any(|remote| remote.ranks() == 0) {
            return refuse("a launcher of 0 ranks".to_owned());
        }
        if *level != CHIP_LEVEL && chips + subs + workers.len() + remotes == 0 {
            return refuse("it has no children".to_owned());
        }
        workers.iter().try_for_each(Self::check)
    }

    fn init_log(&self, defer_writer: bool) -> Result<(), WorkerError> {
        let LogSetup { threshold, directory } = &self.log;
        let config =
            host_log::Config { threshold: *threshold, directory: directory.as_deref(), defer_writer };
        host_log::init(&config).map_err(|error| WorkerError::Log(error.to_string()))
    }
}

/// Whether this process's log has a writer now, which a refused start gives back.
fn log_writer_is_running() -> bool {
    // ORDERING: Acquire: pairs with the Release store of the owner's pid when the writer was published.
    host_log::state().sink_owner_pid.load(Ordering::Acquire) == getpid().as_raw()
}

#[derive(Clone, Copy)]
struct Known {
    digest: Digest,
    hid: u64,
    runs_on: RunsOn,
    /// How often it was registered; 0 where the place is free.
    count: usize,
}

impl Known {
    fn chip(image: &CallableImage) -> Self {
        Self { digest: image.digest(), hid: image.hid(), runs_on: RunsOn::Chips, count: 1 }
    }
}

/// Gives a callable its place, or counts it once more; whether it is a new one.
fn know(callables: &mut Vec<Known>, known: Known, name: &str) -> Result<bool, WorkerError> {
    let mut taken = callables.iter_mut().filter(|other| other.count > 0);
    if let Some(same) = taken.find(|other| other.digest == known.digest) {
        same.count += 1;
        return Ok(false);
    }
    if let Some(free) = callables.iter_mut().find(|other| other.count == 0) {
        *free = known;
        return Ok(true);
    }
    if callables.len() == CALLABLES_MAX {
        return Err(WorkerError::Config(format!(
            "callable {name} does not fit: a worker has at most {CALLABLES_MAX}"
        )));
    }
    callables.push(known);
    Ok(true)
}

struct ChildState {
    id: ChildId,
    process: Child,
    /// Its task frames, as many as it can have runs at a time; none before it is ready.
    frames: Vec<TaskFrame>,
    /// A control request whose answer nobody has taken, as the wait for it was interrupted.
    unanswered: Option<Leftover>,
    /// How long it may take to be ready.
    init_limit: Duration,
    /// It was there when the worker was closed.
    told_to_leave: bool,
    /// An error has already said how this child ended.
    ending_is_told: bool,
}

impl ChildState {
    fn free_frame(&self) -> Result<usize, WorkerError> {
        self.frames.iter().position(|frame| frame.in_flight.is_none()).ok_or_else(|| {
            let run_id = self.frames.iter().filter_map(|frame| frame.in_flight).min().unwrap_or(0);
            WorkerError::Busy { child: self.id, run_id }
        })
    }
}

/// What a control request leaves behind that nobody waits for any more.
#[derive(Clone, Debug)]
enum Leftover {
    Nothing,
    /// Device memory at the address that it answers.
    Memory,
    /// What the request undoes.
    Undone(Control),
}

impl Leftover {
    fn of(request: &Control) -> Self {
        match request {
            Control::Malloc { .. } => Self::Memory,
            _ => Self::Nothing,
        }
    }

    /// What is to be asked once it has answered.
    fn undo(self, answer: u64) -> Option<Control> {
        match self {
            Self::Nothing => None,
            Self::Memory => Some(Control::Free { device: answer }),
            Self::Undone(undo) => Some(undo),
        }
    }
}

/// Whether whoever waits shall stop.
type Interrupted = dyn Fn() -> bool;

/// A task frame as the parent uses it.
#[derive(Clone, Copy, Default)]
struct TaskFrame {
    in_flight: Option<u64>,
    /// Counts its uses.
    generation: u64,
}

/// A run in flight; give it to [`Worker::wait`].
#[derive(Debug)]
#[must_use = "the child has one run less that it can take until this one was waited for"]
pub struct Ticket {
    run: RunIdentity,
    generation: u64,
}

impl Ticket {
    /// The child that runs it.
    pub fn child(&self) -> ChildId {
        self.run.child
    }

    /// The run's number, which is `inv` of the parent's spans about it.
    pub fn run_id(&self) -> u64 {
        self.run.run_id
    }
}

/// The chip of a level-2 worker.
struct Local {
    endpoint: Box<dyn Endpoint>,
    /// Of runs that were not waited for.
    outcomes: HashMap<u64, Result<(), RunError>>,
}

/// A parent and its children. One thread uses it.
pub struct Worker {
    // FORK: a process forked later has a copy that closes nothing; the children stay this process's.
    owner: Pid,
    level: u32,
    names: Names,
    mailboxes: Mailboxes,
    shared: SharedRanges,
    callables: Vec<Known>,
    /// In the order of their mailboxes.
    children: Vec<ChildState>,
    /// What has started its children on other hosts.
    launched: Vec<Launched>,
    /// Those children.
    peers: Vec<Peer>,
    /// At level 2, until it is closed.
    local: Option<Local>,
    interrupted: Rc<Interrupted>,
    log_goes_on: bool,
    next_dispatch_id: u64,
    closed: bool,
}

impl Worker {
    /// A worker of a level (RUNTIME §1.1): 2 is a chip in this process, 3, the node, forks chips, 4 to 6 fork whole
    /// workers of the level below.
    pub fn builder(level: u32) -> WorkerBuilder {
        WorkerBuilder::new(level)
    }

    /// Its level.
    pub fn level(&self) -> u32 {
        self.level
    }

    /// The children's processes: the chips', the sub workers', the workers', each by index.
    pub fn pids(&self) -> Vec<i32> {
        self.children.iter().map(|child| child.process.pid()).collect()
    }

    /// The processes on other hosts, by index of [`ChildId::Remote`]; those of [`Worker::pids`] are their sessions'
    /// here.
    pub fn peers(&self) -> &[Peer] {
        &self.peers
    }

    /// Whether so many bytes at this address lie in memory that this worker shares with its children, so that a host
    /// tensor may name them.
    pub fn shares(&self, addr: u64, bytes: u64) -> bool {
        self.shared.contain(addr, bytes)
    }

    /// Those bytes, if they lie there.
    pub fn shared_slice(&self, addr: u64, bytes: usize) -> Option<SharedSlice> {
        self.shared.slice(addr, bytes)
    }

    /// Allocates device memory on a chip.
    ///
    /// # Errors
    /// The chip's refusal or its end, as for all control operations; a child that has no device memory; an interrupted
    /// wait, after which the child's answer is taken, and its effect undone, before it is asked anything else.
    pub fn malloc(&mut self, child: impl Into<ChildId>, bytes: usize) -> Result<DeviceAddr, WorkerError> {
        self.control(child.into(), Control::Malloc { bytes: bytes as u64 }).map(DeviceAddr)
    }

    /// Frees what [`Worker::malloc`] gave on this chip.
    ///
    /// # Errors
    /// As [`Worker::malloc`].
    pub fn free(&mut self, child: impl Into<ChildId>, device: DeviceAddr) -> Result<(), WorkerError> {
        self.control(child.into(), Control::Free { device: device.0 }).map(drop)
    }

    /// Copies shared memory to a chip's memory.
    ///
    /// # Errors
    /// As [`Worker::malloc`]; memory that was not shared with this worker.
    pub fn copy_to(
        &mut self,
        child: impl Into<ChildId>,
        device: DeviceAddr,
        host: &SharedSlice,
    ) -> Result<(), WorkerError> {
        let (host, bytes) = self.shared_range(host)?;
        self.control(child.into(), Control::CopyTo { device: device.0, host, bytes }).map(drop)
    }

    /// Copies a chip's memory to shared memory.
    ///
    /// # Errors
    /// As [`Worker::copy_to`].
    pub fn copy_from(
        &mut self,
        child: impl Into<ChildId>,
        host: &SharedSlice,
        device: DeviceAddr,
    ) -> Result<(), WorkerError> {
        let (host, bytes) = self.shared_range(host)?;
        self.control(child.into(), Control::CopyFrom { host, device: device.0, bytes }).map(drop)
    }

    /// Asks a child whether it has the callable; gives the child's local slot.
    ///
    /// # Errors
    /// As [`Worker::malloc`].
    pub fn prepare(&mut self, child: impl Into<ChildId>, callable: Callable) -> Result<u64, WorkerError> {
        let (_, Known { digest, .. }) = self.known(callable)?;
        self.control(child.into(), Control::Prepare { callable: digest })
    }

    /// Registers a callable with every chip, those of workers below too, after what was submitted before has ended. The
    /// same content again gives the same callable, which then stays until it is unregistered as often; so does one of
    /// [`WorkerBuilder::callable`]. Functions and orchestrations are closures, which a child has from the fork or not
    /// at all.
    ///
    /// # Errors
    /// One more than [`CALLABLES_MAX`]; an image of more than 64 MiB; a child that refuses it, with the child's text,
    /// or is gone. No child has it then that did not have it before.
    pub fn register(&mut self, image: CallableImage) -> Result<Callable, WorkerError> {
        self.require_open()?;
        let known = Known::chip(&image);
        let callable = Callable(known.digest);
        if know(&mut self.callables, known, &image.name)?
            && let Err(error) = self.register_with_children(&image)
        {
            self.forget(callable);
            return Err(error);
        }
        Ok(callable)
    }

    /// Takes one registration back, whoever made it. After the last no child has the callable, and another one can have
    /// its place; what was submitted before ends first.
    ///
    /// # Errors
    /// A callable that is not registered, or a closure, which stays; a child that refuses or is gone. The callable is
    /// not this worker's any more all the same.
    pub fn unregister(&mut self, callable: Callable) -> Result<(), WorkerError> {
        self.require_open()?;
        let (_, Known { runs_on, digest, .. }) = self.known(callable)?;
        if runs_on != RunsOn::Chips {
            return Err(WorkerError::Unknown(format!(
                "callable {callable} is a function or an orchestration, which stays"
            )));
        }
        if !self.forget(callable) {
            return Ok(());
        }
        if let Some(Local { endpoint, .. }) = &mut self.local {
            let outcome = endpoint.unregister(&digest);
            return outcome.map_err(|error| self.own_error("unregister", error));
        }
        let children = self.children_with_chips();
        let request = Control::Unregister { callable: digest };
        let answers = self.control_each(&children, &request, &Leftover::Nothing);
        answers.into_iter().try_for_each(|answer| answer.map(drop))
    }

    /// Hands a run to a child and returns. A child takes one at a time, or two where its runtime pipelines them
    /// ([`RuntimeConfig::pipeline_depth`]): it makes them in the order in which they were handed over, and copies the
    /// host tensors of the second to the device while the first may still run. What the second reads of the first one's
    /// results must therefore lie in device memory, or the first be waited for. A worker of level 2 makes the run in
    /// this call.
    ///
    /// # Errors
    /// Too many arguments, a host tensor outside shared memory, a child that is busy or gone or does not run such a
    /// callable, an unknown child or callable, a closed worker. Nothing was handed over then.
    pub fn submit(
        &mut self,
        child: impl Into<ChildId>,
        callable: Callable,
        args: &RunArgs,
    ) -> Result<Ticket, WorkerError> {
        let (submit, child) = (Start::now(), child.into());
        let index = self.require_living(child)?;
        let (callable_index, Known { digest, hid, runs_on, .. }) = self.known(callable)?;
        if !runs_on.includes(child) {
            return Err(WorkerError::Unknown(format!("callable {callable} is none that {child} runs")));
        }
        for (position, arg) in args.tensors.iter().enumerate() {
            self.shared.check(position, &arg.tensor).map_err(WorkerError::Arguments)?;
        }
        if let ChildId::Remote(_) = child {
            wire::regions_of(args).map_err(WorkerError::Arguments)?;
        }
        args.config.check_record().map_err(WorkerError::Arguments)?;
        if let Some(prefix) = &args.config.output_prefix {
            // The first directory wins (RUNTIME §1.5).
            host_log::set_directory(prefix).map_err(|error| WorkerError::Log(error.to_string()))?;
        }
        // A chip of this process has no frames, and is never busy.
        let slot = self.children.get(index).map_or(Ok(0), ChildState::free_frame)?;
        let run = RunIdentity {
            run_id: NEXT_RUN_ID.fetch_add(1, Ordering::Relaxed),
            hid,
            task_slot: slot,
            child,
            worker_id: index,
            dispatch_id: self.next_dispatch_id,
            names: self.names,
        };
        if let Some(Local { endpoint, outcomes }) = &mut self.local {
            let _held = self.shared.hold();
            // SAFETY: host tensors lie in shared mappings, which are held; device addresses are this chip's; the objects
            // are what the caller gave to run.
            let outcome = unsafe { endpoint.run(&digest, args) };
            outcomes.insert(run.run_id, outcome);
            return Ok(Ticket { run, generation: 0 });
        }
        let frame = &mut self.children[index].frames[slot];
        let task = TaskIdentity {
            callable_index,
            callable: digest,
            run_id: run.run_id,
            dispatch_id: run.dispatch_id,
            generation: frame.generation + 1,
        };
        let dispatch = Start::now();
        self.mailboxes.parent(index).post_task(slot, &task, args).map_err(WorkerError::Arguments)?;
        dispatch.end_dispatch(&run);
        *frame = TaskFrame { in_flight: Some(run.run_id), generation: task.generation };
        self.next_dispatch_id += 1;
        submit.end_submit(&run);
        Ok(Ticket { run, generation: task.generation })
    }

    /// Whether [`Worker::wait`] would return at once: the run has ended, or its process has, or it would refuse.
    pub fn poll(&mut self, ticket: &Ticket) -> bool {
        let RunIdentity { worker_id, task_slot, .. } = ticket.run;
        let foreign = self.is_foreign();
        let Some(child) = self.children.get_mut(worker_id) else { return true };
        foreign
            || self.closed
            || child.frames.get(task_slot).and_then(|frame| frame.in_flight) != Some(ticket.run_id())
            || self.mailboxes.parent(worker_id).task_is_done(task_slot)
            || child.process.ending().is_some()
    }

    /// Waits for a run.
    ///
    /// # Errors
    /// The child's code and text, or how its process ended. The child takes another run after the former. An interrupted
    /// wait gives the ticket back in the error.
    pub fn wait(&mut self, ticket: Ticket) -> Result<(), WorkerError> {
        let Ticket { run, generation } = ticket;
        let index = self.require_child(run.child)?;
        let unknown = || WorkerError::Unknown(format!("run {} is not of this worker", run.run_id));
        if let Some(Local { outcomes, .. }) = &mut self.local {
            let outcome = outcomes.remove(&run.run_id).ok_or_else(unknown)?;
            return outcome.map_err(|error| self.own_error("run", error));
        }
        let slot = run.task_slot;
        if self.children[index].frames.get(slot).and_then(|frame| frame.in_flight) != Some(run.run_id) {
            return Err(unknown());
        }
        let outcome = self.wait_for_task(index, slot, Some(&run));
        if let Err(Unanswered::Interrupted) = outcome {
            let ticket = Some(Box::new(Ticket { run, generation }));
            return Err(WorkerError::Interrupted { child: run.child, ticket });
        }
        self.children[index].frames[slot].in_flight = None;
        match outcome {
            Ok(outcome) => outcome.map_err(|failure| self.child_error(index, "run", failure)),
            Err(Unanswered::Interrupted) => unreachable!("seen above"),
            Err(Unanswered::Ended(ending)) => {
                let accepted = self.mailboxes.parent(index).accepted(slot, generation);
                let before = if accepted { "while it ran" } else { "before it took up" };
                Err(self.gone(index, ending, format!("{before} run {}", run.run_id)))
            }
        }
    }

    /// Waits for the runs whose tickets were dropped, so that every child can take one again. Their failures go to the
    /// log.
    pub(crate) fn settle(&mut self) {
        for index in 0..self.children.len() {
            for slot in 0..self.children[index].frames.len() {
                let Some(run_id) = self.children[index].frames[slot].in_flight else { continue };
                let id = self.children[index].id;
                let outcome = self.wait_for_task(index, slot, None);
                if let Err(Unanswered::Interrupted) = outcome {
                    // The frame stays that run's.
                    return;
                }
                self.children[index].frames[slot].in_flight = None;
                match outcome {
                    Ok(Ok(())) => {}
                    Ok(Err(failure)) => {
                        host_log::log_warn!(
                            "{id}: run {run_id}, which nobody waited for, failed: {}",
                            failure.text
                        );
                    }
                    // Whoever asks something of it next is told.
                    Err(_) => break,
                }
            }
        }
    }

    /// Shuts every child down, collects its process and drains this process's log. Runs in progress end first;
    /// runs not yet taken up are dropped. Closing again does nothing.
    ///
    /// The process's log goes on without a writer: later records are written by whoever logs them.
    ///
    /// # Errors
    /// The first child that ended otherwise than told to, unless an earlier error has said so, or that was killed, being
    /// late or because the wait for it was interrupted. Everything is closed all the same.
    pub fn close(&mut self) -> Result<(), WorkerError> {
        self.close_within(REAP_LIMIT * self.level.saturating_sub(CHIP_LEVEL).max(1))
    }

    /// As [`Worker::close`], with another limit after which children that did not leave are killed: 60 s at level 3,
    /// and as much for each level above.
    ///
    /// # Errors
    /// As [`Worker::close`].
    pub fn close_within(&mut self, limit: Duration) -> Result<(), WorkerError> {
        if self.closed || self.is_foreign() {
            return Ok(());
        }
        self.closed = true;
        let deadline = Deadline::after(limit);
        // Its threads end, and what they log is drained below.
        self.local = None;
        for (index, child) in self.children.iter_mut().enumerate() {
            child.told_to_leave = child.process.ending().is_none();
            self.mailboxes.parent(index).terminate();
        }
        let mut first_error = None;
        let interrupted = Rc::clone(&self.interrupted);
        if !self.collect(limit, &*interrupted) {
            // Else it was interrupted.
            let is_late = deadline.passed();
            for child in &mut self.children {
                if child.process.ending().is_none() {
                    child.process.kill();
                    child.ending_is_told = true;
                    let (child, pid) = (child.id, child.process.pid());
                    first_error.get_or_insert(if is_late {
                        WorkerError::Unresponsive { child, pid, limit }
                    } else {
                        WorkerError::Interrupted { child, ticket: None }
                    });
                }
            }
            self.collect(KILL_LIMIT, &|| false);
        }
        for index in 0..self.children.len() {
            let child = &mut self.children[index];
            match child.process.ending() {
                None | Some(Ending::Exited(0)) => {}
                Some(_) if child.ending_is_told => {}
                // Where SIGCHLD is ignored nobody learns more of a child than that it has left, as it was told to.
                Some(Ending::Collected) if child.told_to_leave => {}
                Some(ending) => {
                    let when = if child.told_to_leave { "after" } else { "before" };
                    let error = self.gone(index, ending, format!("{when} it was told to leave"));
                    first_error.get_or_insert(error);
                }
            }
        }
        for launched in &mut self.launched {
            if !launched.end(deadline.remaining()) {
                let (name, text) = (
                    launched.name().to_owned(),
                    format!("it was ended, {limit:?} after its ranks were told to leave"),
                );
                first_error.get_or_insert(WorkerError::Launcher { name, text });
            }
        }
        if !self.log_goes_on {
            host_log::close(LOG_DRAIN_LIMIT);
        } else if let Err(error) = host_log::prepare_to_fork(LOG_DRAIN_LIMIT) {
            host_log::log_warn!("{error}");
        }
        first_error.map_or(Ok(()), Err)
    }

    /// Shuts down what there is of a set-up that nobody waits for any more.
    fn give_up(&mut self) {
        // None of them is to blame.
        self.children.iter_mut().for_each(|child| child.ending_is_told = true);
        if let Err(error) = self.close_within(CANCEL_LIMIT * self.level.saturating_sub(CHIP_LEVEL)) {
            host_log::log_warn!("{error}");
        }
    }

    /// The init barrier of the children that there are so far.
    fn wait_until_ready(&mut self, cancelled: &dyn Fn() -> Option<&'static str>) -> Result<(), WorkerError> {
        let began = Instant::now();
        let all = (0..self.children.len())
            .try_for_each(|index| self.wait_until_one_is_ready(index, began, cancelled));
        if all.is_err() {
            // What the others came to follows from this one, and each has said it in its own log.
            self.children.iter_mut().for_each(|child| child.ending_is_told = true);
        }
        all
    }

    fn wait_until_one_is_ready(
        &mut self,
        index: usize,
        began: Instant,
        cancelled: &dyn Fn() -> Option<&'static str>,
    ) -> Result<(), WorkerError> {
        let ChildState { id: child, ref process, ref frames, init_limit: limit, .. } = self.children[index];
        if !frames.is_empty() {
            return Ok(());
        }
        let pid = process.pid();
        let deadline = Deadline::after(limit.saturating_sub(began.elapsed()));
        match self.wait_until(index, Some(deadline), cancelled, |end| end.take_init()) {
            Ok(Ok(depth)) => {
                self.children[index].frames = vec![TaskFrame::default(); depth.clamp(1, TASK_FRAMES)];
                Ok(())
            }
            Ok(Err(failure)) => Err(WorkerError::Init { child, pid, text: failure.text }),
            Err(Missing::Ended(ending)) => Err(self.gone(index, ending, "before it was ready".into())),
            Err(Missing::TimedOut) => Err(WorkerError::InitTimeout { child, pid, limit }),
            Err(Missing::Cancelled(by)) => Err(WorkerError::Cancelled { by }),
        }
    }

    fn control(&mut self, child: ChildId, request: Control) -> Result<u64, WorkerError> {
        let index = self.require_living(child)?;
        if let Some(Local { endpoint, .. }) = &mut self.local {
            let _held = self.shared.hold();
            let (what, mut gathering) = (request.name(), Gathering::default());
            let outcome = child::serve_control(&self.shared, endpoint.as_mut(), &mut gathering, request);
            return outcome.map_err(|error| self.own_error(what, error));
        }
        self.settle_control(index)?;
        self.ask(index, &request, Leftover::of(&request))
    }

    /// Asks a child that owes no answer, and waits for it; what it leaves if that is interrupted.
    fn ask(&mut self, index: usize, request: &Control, leftover: Leftover) -> Result<u64, WorkerError> {
        self.mailboxes.parent(index).post_control(request);
        self.take_answer(index, request.name(), leftover)
    }

    fn take_answer(
        &mut self,
        index: usize,
        what: &'static str,
        leftover: Leftover,
    ) -> Result<u64, WorkerError> {
        match self.wait_for(index, |end| end.take_control()) {
            Ok(outcome) => outcome.map_err(|failure| self.child_error(index, what, failure)),
            Err(Unanswered::Ended(ending)) => Err(self.gone(index, ending, format!("during {what}"))),
            Err(Unanswered::Interrupted) => {
                let child = &mut self.children[index];
                child.unanswered = Some(leftover);
                Err(WorkerError::Interrupted { child: child.id, ticket: None })
            }
        }
    }

    /// Takes the answer that a child owes, and has it undo what nobody waited for.
    fn settle_control(&mut self, index: usize) -> Result<(), WorkerError> {
        let Some(leftover) = self.children[index].unanswered.take() else { return Ok(()) };
        match self.take_answer(index, "an earlier request", leftover.clone()) {
            Ok(answer) => {
                let Some(undo) = leftover.undo(answer) else { return Ok(()) };
                self.ask(index, &undo, Leftover::Nothing).map(drop)
            }
            // There is nothing to undo.
            Err(WorkerError::Child { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Asks several children the same at a time; their answers in that order.
    fn control_each(
        &mut self,
        children: &[usize],
        request: &Control,
        leftover: &Leftover,
    ) -> Vec<Result<u64, WorkerError>> {
        let asked: Vec<_> = children
            .iter()
            .map(|&index| {
                self.require_living(self.children[index].id)?;
                self.settle_control(index)?;
                self.mailboxes.parent(index).post_control(request);
                Ok(index)
            })
            .collect();
        let answers =
            asked.into_iter().map(|asked| self.take_answer(asked?, request.name(), leftover.clone()));
        answers.collect()
    }

    fn children_with_chips(&self) -> Vec<usize> {
        let runs_none = |child: &ChildState| matches!(child.id, ChildId::Sub(_));
        (0..self.children.len()).filter(|&index| !runs_none(&self.children[index])).collect()
    }

    fn register_with_children(&mut self, image: &CallableImage) -> Result<(), WorkerError> {
        if let Some(Local { endpoint, .. }) = &mut self.local {
            let outcome = endpoint.register(image);
            return outcome.map(drop).map_err(|error| self.own_error("register", error));
        }
        let children = self.children_with_chips();
        for &index in &children {
            self.require_living(self.children[index].id)?;
        }
        let mut requests = image_transfer::requests(image).map_err(WorkerError::Arguments)?.peekable();
        while let Some(request) = requests.next() {
            let callable = image.digest();
            // Before the last chunk none of them has more than bytes.
            let undo = match requests.peek() {
                None => Control::Unregister { callable },
                Some(_) => image_transfer::abandon(callable),
            };
            let answers = self.control_each(&children, &request, &Leftover::Undone(undo.clone()));
            let took: Vec<_> = children.iter().zip(&answers).filter(|(_, answer)| answer.is_ok()).collect();
            let took: Vec<_> = took.into_iter().map(|(&index, _)| index).collect();
            let Some(error) = answers.into_iter().find_map(Result::err) else { continue };
            let undone = self.control_each(&took, &undo, &Leftover::Nothing);
            for error in undone.into_iter().filter_map(Result::err) {
                host_log::log_warn!("callable {}: {error}", image.name);
            }
            return Err(error);
        }
        Ok(())
    }

    /// Takes one registration from the table; whether it was the last.
    fn forget(&mut self, callable: Callable) -> bool {
        let mut registered = self.callables.iter_mut().filter(|known| known.count > 0);
        let Some(known) = registered.find(|known| known.digest == callable.0) else { return false };
        known.count -= 1;
        known.count == 0
    }

    fn wait_for_task(
        &mut self,
        index: usize,
        slot: usize,
        run: Option<&RunIdentity>,
    ) -> Result<Result<(), Failure>, Unanswered> {
        let mut waiting = SchedulerLoop::default();
        let outcome = self.wait_for(index, |end| {
            if !end.task_is_done(slot) {
                waiting.spin();
                return None;
            }
            let complete = Start::now();
            let outcome = end.take_task(slot);
            waiting.drain(run.map_or_else(|| complete.elapsed_ns(), |run| complete.end_complete(run)));
            outcome
        });
        waiting.end(&self.names);
        outcome
    }

    fn wait_for<T>(
        &mut self,
        index: usize,
        take: impl FnMut(ParentEnd<'_>) -> Option<T>,
    ) -> Result<T, Unanswered> {
        let interrupted = Rc::clone(&self.interrupted);
        let cancelled = || interrupted().then_some(BY_INTERRUPT);
        match self.wait_until(index, None, &cancelled, take) {
            Ok(taken) => Ok(taken),
            Err(Missing::Ended(ending)) => Err(Unanswered::Ended(ending)),
            Err(Missing::Cancelled(_)) => Err(Unanswered::Interrupted),
            Err(Missing::TimedOut) => unreachable!("it has no deadline"),
        }
    }

    /// Waits until `take` gives something, and looks every park slice whether the child still lives and nobody has called
    /// the wait off.
    fn wait_until<T>(
        &mut self,
        index: usize,
        deadline: Option<Deadline>,
        cancelled: &dyn Fn() -> Option<&'static str>,
        mut take: impl FnMut(ParentEnd<'_>) -> Option<T>,
    ) -> Result<T, Missing> {
        let end = self.mailboxes.parent(index);
        let process = &mut self.children[index].process;
        if let Some(ending) = process.seen_ending() {
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
                if let Some(ending) = process.ending() {
                    // It may have answered before it ended.
                    return take(end).ok_or(Missing::Ended(ending));
                }
                if let Some(by) = cancelled() {
                    return Err(Missing::Cancelled(by));
                }
                if deadline.is_some_and(|deadline| deadline.passed()) {
                    return Err(Missing::TimedOut);
                }
            }
            relax.wait(self.mailboxes.replies(), seen);
        }
    }

    /// Waits for all children to end; false when the limit passed, or it was interrupted.
    fn collect(&mut self, limit: Duration, interrupted: &Interrupted) -> bool {
        let deadline = Deadline::after(limit);
        let mut asked_at = Instant::now();
        let mut relax = Relax::new();
        loop {
            let seen = self.mailboxes.replies().epoch();
            // All of them, so that each is collected as early as it can be.
            let living =
                self.children.iter_mut().filter_map(|child| child.process.ending().is_none().then_some(()));
            if living.count() == 0 {
                return true;
            }
            if deadline.passed() {
                return false;
            }
            if asked_at.elapsed() >= PARK_SLICE {
                asked_at = Instant::now();
                if interrupted() {
                    return false;
                }
            }
            relax.wait(self.mailboxes.replies(), seen);
        }
    }

    /// Whether this is the copy of a worker in a process that was forked later.
    fn is_foreign(&self) -> bool {
        self.owner != getpid()
    }

    /// Also refuses the copy of a worker in another process: its mailboxes are those that the owner uses.
    fn require_open(&self) -> Result<(), WorkerError> {
        if self.is_foreign() {
            return Err(WorkerError::Foreign { owner: self.owner.as_raw() });
        }
        if self.closed {
            return Err(WorkerError::Closed);
        }
        Ok(())
    }

    /// The place of a child; at level 2, which has no other, 0.
    fn require_child(&self, child: ChildId) -> Result<usize, WorkerError> {
        self.require_open()?;
        if self.local.is_some() && child == ChildId::Chip(0) {
            return Ok(0);
        }
        self.children.iter().position(|state| state.id == child).ok_or_else(|| {
            let (mut chips, mut subs, mut workers) = (usize::from(self.local.is_some()), 0, 0);
            let mut remotes = 0;
            for state in &self.children {
                match state.id {
                    ChildId::Chip(_) => chips += 1,
                    ChildId::Sub(_) => subs += 1,
                    ChildId::Worker(_) => workers += 1,
                    ChildId::Remote(_) => remotes += 1,
                }
            }
            let ranks =
                if remotes > 0 { format!(", {remotes} of them on other hosts") } else { String::new() };
            workers += remotes;
            WorkerError::Unknown(format!(
                "there is no {child} among {chips} chips, {subs} sub workers and {workers} workers{ranks}"
            ))
        })
    }

    /// Also refuses a child whose end was seen: its frames may be in the middle of something for ever.
    fn require_living(&mut self, child: ChildId) -> Result<usize, WorkerError> {
        let index = self.require_child(child)?;
        match self.children.get(index).and_then(|state| state.process.seen_ending()) {
            None => Ok(index),
            Some(ending) => Err(self.gone(index, ending, "before this was asked of it".into())),
        }
    }

    fn known(&self, callable: Callable) -> Result<(usize, Known), WorkerError> {
        let index = self.callables.iter().position(|known| known.count > 0 && known.digest == callable.0);
        let index = index
            .ok_or_else(|| WorkerError::Unknown(format!("callable {callable} is none of this worker's")))?;
        Ok((index, self.callables[index]))
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

    fn child_error(&self, index: usize, what: &'static str, failure: Failure) -> WorkerError {
        let ChildState { id: child, ref process, .. } = self.children[index];
        WorkerError::Child { child, pid: process.pid(), what, code: failure.code, text: failure.text }
    }

    /// What the chip of a level-2 worker reports.
    fn own_error(&self, what: &'static str, error: RunError) -> WorkerError {
        let RunError { code, text } = error;
        WorkerError::Child { child: ChildId::Chip(0), pid: self.owner.as_raw(), what, code, text }
    }

    fn gone(&mut self, index: usize, ending: Ending, during: String) -> WorkerError {
        let state = &mut self.children[index];
        state.ending_is_told = true;
        let (mut ending, mut during) = (ending, during);
        if let ChildId::Remote(remote) = state.id {
            if ending == Ending::Exited(child::exit::DISCONNECTED) {
                ending = Ending::Disconnected;
            }
            if let Some(Peer { pid, host_name, .. }) = self.peers.get(remote) {
                during = format!("{during} (its process there: {pid} on {host_name})");
            }
        }
        WorkerError::ChildGone { child: state.id, pid: state.process.pid(), ending, during }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if self.is_foreign() {
            // Its threads are not in this process, so nobody can end it here.
            std::mem::forget(self.local.take());
        }
        if let Err(error) = self.close() {
            host_log::log_warn!("{error}");
        }
    }
}

/// Why whoever waited for an answer has none.
enum Unanswered {
    Ended(Ending),
    Interrupted,
}

/// Why there is nothing to take.
enum Missing {
    Ended(Ending),
    TimedOut,
    Cancelled(&'static str),
}
