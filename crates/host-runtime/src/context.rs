//! A context: the place for one device, and the runs that are open on it.
//!
//! A run borrows the runtime and has spans open on its thread. In Rust the borrow checker and a type that stays on its
//! thread see to both; C has neither, so a context keeps its open runs itself. Each has beside it the [`Arc`] of the chip
//! that it borrows, and the number of its thread, and is touched on that thread alone: by its own phases, or, when the
//! device is given back, to be ended. What C holds ([`RunStorage`]) only says which one is meant.
//!
//! While a call works on a run, the run is out of the table: a long wait holds no lock. A guard ([`Taken`]) puts it back,
//! or strikes it out where it has ended, also if the call panics.

use std::any::Any;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use simpler_host_log::log_info;
use simpler_platform::Platform;
use simpler_runtime::{
    CallConfig, CallableId, ChipRuntime, Done, Launched, Prepared, RunArgs, RunError, RunIdentity,
    RuntimeConfig, code,
};

use crate::run_storage::RunStorage;

/// What tells the objects of two architectures apart.
#[derive(Clone, Copy, Debug)]
pub struct Architecture {
    /// `a2a3sim`, …
    pub name: &'static str,
    /// Attaches a device.
    pub attach: fn(&DeviceRequest<'_>) -> Result<Device, RunError>,
}

/// The device that a context asks for.
#[derive(Clone, Copy, Debug)]
pub struct DeviceRequest<'a> {
    /// 0 or more.
    pub device_id: i32,
    /// The objects of AICPU and AICore, and the one that loads them; empty: none.
    pub aicpu: &'a [u8],
    /// As above.
    pub aicore: &'a [u8],
    /// As above.
    pub dispatcher: &'a [u8],
}

/// An attached device.
pub struct Device {
    /// The device.
    pub platform: Arc<dyn Platform>,
    /// What is dropped once the device is gone.
    pub claim: Box<dyn Any + Send + Sync>,
}

/// What is asked of init besides the device.
#[derive(Clone, Debug, Default)]
pub(crate) struct Provision {
    /// The configuration for which the first run's work is done now.
    pub(crate) prewarm: Option<CallConfig>,
    /// An async-DMA workspace.
    pub(crate) sdma: bool,
}

/// An error that says that something was refused before it began.
pub(crate) fn refused(text: impl Into<String>) -> RunError {
    RunError { code: code::REFUSED, text: text.into() }
}

/// A device with its runtime. The runtime goes first: it has memory on the device.
struct Chip {
    runtime: ChipRuntime,
    _claim: Box<dyn Any + Send + Sync>,
}

/// The life of a context.
enum Attachment {
    None,
    Chip(Arc<Chip>),
    Final,
}

/// A context, `SimplerContext` of the header.
// FORK: a child refuses to use it (`process`), since the device's threads are not there.
pub struct SimplerContext {
    architecture: &'static Architecture,
    config: RuntimeConfig,
    number: u64,
    process: i32,
    /// A call has panicked.
    poisoned: AtomicBool,
    /// Locked by a call until it has the chip; no longer, since it may then wait for a run of another thread.
    attachment: Mutex<Attachment>,
    /// Where both are locked, this one is the second.
    runs: Mutex<Vec<OpenRun>>,
}

/// A run in the table.
struct OpenRun {
    number: u64,
    thread: u64,
    /// None while a call works on it.
    held: Option<Held>,
}

/// A run at one of its phases, and what keeps the runtime alive that it borrows. The phase goes first.
struct Held {
    phase: Option<Phase>,
    chip: Arc<Chip>,
}

// SAFETY: the phase stays on its thread: whoever takes it out of the table, or drops it there, compares
// `OpenRun::thread` with `this_thread` first, and a context is not freed while the table holds any.
unsafe impl Send for Held {}

/// The phases of a run; each borrows the runtime of the `Held` around it.
enum Phase {
    Prepared(Prepared<'static>),
    Launched(Launched<'static>),
    Done(Done<'static>),
}

/// What a phase gives: its result, and the run, unless it has ended.
type Step<T> = (Result<T, RunError>, Option<Phase>);

/// A run that a call works on.
struct Taken<'c> {
    context: &'c SimplerContext,
    number: u64,
    held: Held,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let mut runs = locked(&self.context.runs);
        let Some(at) = runs.iter().position(|run| run.number == self.number) else { return };
        match self.held.phase.take() {
            None => drop(runs.swap_remove(at)),
            phase => runs[at].held = Some(Held { phase, chip: self.held.chip.clone() }),
        }
    }
}

/// Numbers contexts, runs and threads of this object.
///
/// FORK: a child goes on from its parent's; what they name are the child's own.
static NUMBERS: AtomicU64 = AtomicU64::new(1);
/// How far the numbers of two objects are apart for each byte between them in memory.
const NUMBERS_A_BYTE: u64 = 1 << 16;

/// A number that no other object of the process gives either: each begins at a place in memory of its own.
fn next_number() -> u64 {
    let place = (&raw const NUMBERS).addr() as u64;
    place.wrapping_mul(NUMBERS_A_BYTE).wrapping_add(NUMBERS.fetch_add(1, Ordering::Relaxed))
}

/// This thread's number, which no thread after it gets.
fn this_thread() -> u64 {
    std::thread_local! {
        /// 0: none yet. Without a destructor.
        ///
        /// FORK: the forking thread keeps its number in the child.
        static NUMBER: Cell<u64> = const { Cell::new(0) };
    }
    if NUMBER.get() == 0 {
        NUMBER.set(next_number());
    }
    NUMBER.get()
}

impl SimplerContext {
    pub(crate) fn new(architecture: &'static Architecture, config: RuntimeConfig) -> Self {
        Self {
            architecture,
            config,
            number: next_number(),
            process: simpler_host_log::pid(),
            poisoned: AtomicBool::new(false),
            attachment: Mutex::new(Attachment::None),
            runs: Mutex::default(),
        }
    }

    /// Tells it apart from every other one.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Notes that a call has panicked.
    pub(crate) fn poison(&self) {
        // ORDERING: Relaxed: a call that is about to begin may see either.
        self.poisoned.store(true, Ordering::Relaxed);
    }

    /// Refuses a context with which nothing must begin any more.
    pub(crate) fn require_usable(&self) -> Result<(), RunError> {
        self.require_this_process()?;
        // ORDERING: Relaxed: as above.
        if self.poisoned.load(Ordering::Relaxed) {
            return Err(refused(
                "the context is poisoned: a call failed inside before; only end it, and its runs",
            ));
        }
        Ok(())
    }

    pub(crate) fn require_this_process(&self) -> Result<(), RunError> {
        let process = simpler_host_log::pid();
        if process == self.process {
            return Ok(());
        }
        let of = self.process;
        Err(refused(format!("the context was made by process {of}: process {process} makes one of its own")))
    }

    pub(crate) fn init(&self, request: &DeviceRequest<'_>, provision: &Provision) -> Result<(), RunError> {
        let mut attachment = locked(&self.attachment);
        match *attachment {
            Attachment::None => {}
            Attachment::Chip(_) => return Err(refused("the context has a device: it is initialized once")),
            Attachment::Final => return Err(finalized()),
        }
        let DeviceRequest { device_id, .. } = *request;
        if device_id < 0 {
            return Err(refused(format!("there is no device {device_id}")));
        }
        let Device { platform, claim } = (self.architecture.attach)(request)?;
        let config = RuntimeConfig { sdma: provision.sdma, ..self.config.clone() };
        let runtime = ChipRuntime::new(platform, config)?;
        if let Some(config) = &provision.prewarm {
            runtime.prewarm(config)?;
        }
        *attachment = Attachment::Chip(Arc::new(Chip { runtime, _claim: claim }));
        log_info!("{}: device {device_id} is attached", self.architecture.name);
        Ok(())
    }

    /// Ends this thread's runs and gives the device back; the last call that still uses it does, if there is one.
    pub(crate) fn finalize(&self) -> Result<(), RunError> {
        let (own, former) = {
            // Both at a time: a run that is prepared meanwhile is seen here, or sees that it comes too late.
            let mut attachment = locked(&self.attachment);
            let mut runs = locked(&self.runs);
            let this_thread = this_thread();
            let others = runs.iter().filter(|run| run.thread != this_thread || run.held.is_none()).count();
            if others != 0 {
                return Err(refused(format!("{others} runs of other threads are open: they must end first")));
            }
            (std::mem::take(&mut *runs), std::mem::replace(&mut *attachment, Attachment::Final))
        };
        // The newest first, as scopes end. Who abandons a run does not ask how it went; the log says so.
        own.into_iter().rev().for_each(drop);
        // It may take its time: the chip's threads end.
        drop(former);
        Ok(())
    }

    /// Does something with the runtime of the device.
    pub(crate) fn with_runtime<T>(
        &self,
        body: impl FnOnce(&ChipRuntime) -> Result<T, RunError>,
    ) -> Result<T, RunError> {
        self.with_chip(|chip| body(&chip.runtime))
    }

    fn with_chip<T>(&self, body: impl FnOnce(&Arc<Chip>) -> Result<T, RunError>) -> Result<T, RunError> {
        let chip = match &*locked(&self.attachment) {
            Attachment::None => {
                return Err(refused("the context has no device yet: simpler_init comes first"));
            }
            Attachment::Chip(chip) => chip.clone(),
            Attachment::Final => return Err(finalized()),
        };
        body(&chip)
    }

    /// Prepares a run.
    ///
    /// # Safety
    /// As for [`ChipRuntime::run`], until the run has ended.
    pub(crate) unsafe fn prepare(
        &self,
        storage: &RunStorage,
        callable: CallableId,
        args: &RunArgs,
        identity: RunIdentity,
        slot: Option<usize>,
    ) -> Result<(), RunError> {
        storage.require_free()?;
        self.with_chip(|chip| {
            let chip = chip.clone();
            let runtime: *const ChipRuntime = &chip.runtime;
            // SAFETY: what borrows it is a phase, which is in a `Held` with the `Arc`, and goes before that.
            let runtime: &'static ChipRuntime = unsafe { &*runtime };
            let prepared = match slot {
                // SAFETY: the caller's obligations.
                None => unsafe { runtime.prepare(callable, args, identity) },
                // SAFETY: as above.
                Some(slot) => unsafe { runtime.prepare_in(slot, callable, args, identity) },
            }?;
            let held = Held { phase: Some(Phase::Prepared(prepared)), chip };
            let attachment = locked(&self.attachment);
            if let Attachment::Final = *attachment {
                drop(attachment);
                return Err(finalized());
            }
            let number = next_number();
            locked(&self.runs).push(OpenRun { number, thread: this_thread(), held: Some(held) });
            storage.hold(self.number, number);
            Ok(())
        })
    }

    pub(crate) fn launch(&self, storage: &RunStorage) -> Result<(), RunError> {
        self.step(storage, |phase| match phase {
            Phase::Prepared(run) => match self.require_usable().and_then(|()| run.launch()) {
                Ok(run) => (Ok(()), Some(Phase::Launched(run))),
                // It has ended, also where it was refused.
                Err(error) => (Err(error), None),
            },
            phase => (Err(refused("the run was launched before")), Some(phase)),
        })
    }

    /// Whether a wait would return at once.
    pub(crate) fn poll(&self, storage: &RunStorage) -> Result<bool, RunError> {
        self.step(storage, |phase| {
            let is_done = match &phase {
                Phase::Prepared(_) => Err(not_launched()),
                Phase::Launched(run) => Ok(run.is_done()),
                Phase::Done(_) => Ok(true),
            };
            (is_done, Some(phase))
        })
    }

    pub(crate) fn wait(&self, storage: &RunStorage) -> Result<(), RunError> {
        self.step(storage, |phase| {
            let done = match phase {
                Phase::Prepared(_) => return (Err(not_launched()), Some(phase)),
                Phase::Launched(run) => run.wait(),
                Phase::Done(done) => done,
            };
            (done.status(), Some(Phase::Done(done)))
        })
    }

    pub(crate) fn end(&self, storage: &RunStorage) -> Result<(), RunError> {
        self.step(storage, |phase| {
            let result = match phase {
                Phase::Prepared(run) => {
                    drop(run);
                    Err(not_launched())
                }
                Phase::Launched(run) => run.wait().finalize(),
                Phase::Done(done) => done.finalize(),
            };
            (result, None)
        })
    }

    /// Takes the run that `storage` means through a phase.
    fn step<T>(&self, storage: &RunStorage, body: impl FnOnce(Phase) -> Step<T>) -> Result<T, RunError> {
        let number = storage.run_of(self.number)?;
        let mut taken = self.take(number)?;
        let Some(phase) = taken.held.phase.take() else { return Err(stale()) };
        let (result, phase) = body(phase);
        if phase.is_none() {
            storage.clear();
        }
        taken.held.phase = phase;
        result
    }

    fn take(&self, number: u64) -> Result<Taken<'_>, RunError> {
        let mut runs = locked(&self.runs);
        let run = runs.iter_mut().find(|run| run.number == number).ok_or_else(stale)?;
        if run.thread != this_thread() {
            return Err(refused("the run was prepared by another thread, on which it stays"));
        }
        let held = run.held.take().ok_or_else(|| refused("another call works on the run"))?;
        Ok(Taken { context: self, number, held })
    }
}

/// What is behind these locks is whole between statements, also where a holder panicked.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn finalized() -> RunError {
    refused("the context was finalized: make another one")
}

fn not_launched() -> RunError {
    refused("the run was not launched")
}

/// A block that means a run which is not there.
fn stale() -> RunError {
    refused("the run storage is stale: the run that it names has ended")
}
