//! A run in phases: prepare, launch, wait, finalize; and what lets the next run be prepared meanwhile.
//!
//! ```text
//! prepare ──▶ Prepared ── launch ──▶ Launched ── wait ──▶ Done ── finalize ──▶ result
//!   bind         │                      │ runner_run        │        validate, device spans, root span
//!                └────────── dropped ───┴───────────────────┴──▶ all that is left to do, and the root span
//! ```
//!
//! [`ChipRuntime::run`] is these four, one after the other. Whoever takes them apart can bind the next run while one
//! is on the device, from the same thread: `prepare` of N + 1 between `launch` and `wait` of N. A run has a *slot*
//! (arena, staging, phase buffer) from its preparation to its end, and the *device* from its launch to the end of its
//! wait. Both are claimed; what is claimed is refused with code −1, or, by `run`, waited for.
//!
//! The spans of a run belong to its own invocation, whichever run's phase comes next on the thread: each phase puts the
//! run's context in place and the former one back (RUNTIME §2.1).

use std::fmt::Write as _;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use simpler_device_phase::Phases;
use simpler_host_log::{Invocation, RootGuard, Span, SpanContext, context, replace_context, span};
use simpler_platform::{DeviceAddr, Launched as Launch, Profile};
use simpler_record_format::DeviceClockAnchor;
use simpler_relax::Deadline;
use simpler_swimlane::{Collected, Level as SwimlaneLevel};

use crate::call_config::CallConfig;
use crate::clock_anchor::{self, ANCHOR_INTERVAL};
use crate::device_spans;
use crate::executor::RunProgram;
use crate::orchestration::Callable;
use crate::run::{CallableId, ChipRuntime, RunArgs, RunError, schedulers};
use crate::slot::{Bound, Slot};
use crate::swimlane::{self, RunFacts, Track};

/// Who a run is for whoever dispatched it: attributes of the root span, from which a reader knows in which order runs
/// were meant to be (RUNTIME §7.9). The runtime adds slot_id, generation and run_epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunIdentity {
    /// The run of the parent.
    pub run_id: u64,
    /// The number of its dispatch, which rises from run to run of a chip; 0 where nobody counts, and run_epoch orders the
    /// runs.
    pub dispatch_id: u64,
}

/// What becomes of a claim to what another run has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IfBusy {
    Wait,
    Refuse,
}

/// What one run at a time can have. It knows the thread that has it, which must not wait for itself.
#[derive(Default)]
pub(crate) struct Claimable<T> {
    /// The kernel's id of the thread; 0: none.
    holder: AtomicI32,
    value: Mutex<T>,
}

/// What a run has.
pub(crate) struct Claim<'r, T> {
    holder: &'r AtomicI32,
    value: MutexGuard<'r, T>,
}

impl<T> Claimable<T> {
    /// Claims it; `what` it is, for who is refused.
    pub(crate) fn claim(&self, if_busy: IfBusy, what: &str) -> Result<Claim<'_, T>, RunError> {
        let refused = |by: &str| Err(RunError::refused(format!("{what} is in use by a run of {by} thread")));
        let value = match self.value.try_lock() {
            Ok(value) => value,
            // Every field is whole between statements; a panicked holder left at worst a buffer that is still cached.
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) if self.is_mine() => return refused("this"),
            Err(TryLockError::WouldBlock) if if_busy == IfBusy::Refuse => return refused("another"),
            Err(TryLockError::WouldBlock) => self.value.lock().unwrap_or_else(PoisonError::into_inner),
        };
        // ORDERING: Relaxed: a thread sees what it has stored itself; another's id is never this one's.
        self.holder.store(simpler_host_log::tid() as i32, Ordering::Relaxed);
        Ok(Claim { holder: &self.holder, value })
    }

    /// Whether this thread has it.
    fn is_mine(&self) -> bool {
        // ORDERING: Relaxed: as in `claim`.
        self.holder.load(Ordering::Relaxed) == simpler_host_log::tid() as i32
    }

    /// What is inside, of one that nobody can have claimed.
    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.value.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Deref for Claim<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Claim<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T> Drop for Claim<'_, T> {
    fn drop(&mut self) {
        // ORDERING: Relaxed: before the lock is given back, see `claim`.
        self.holder.store(0, Ordering::Relaxed);
    }
}

/// What the run on the device has.
#[derive(Default)]
pub(crate) struct Device {
    track: Option<Track>,
}

impl Device {
    /// The memory of the variable phases at a level, made when the level is first asked for; None at level 0.
    fn track(&mut self, runtime: &ChipRuntime, level: SwimlaneLevel) -> Result<Option<&mut Track>, RunError> {
        if level == SwimlaneLevel::Off {
            return Ok(None);
        }
        if self.track.as_ref().is_none_or(|track| track.level() != level) {
            if let Some(other) = self.track.take() {
                runtime.platform.release(other.close())?;
            }
            self.track = Some(Track::new(&*runtime.platform, level)?);
        }
        Ok(self.track.as_mut())
    }

    /// The device memory that it has, to be released.
    pub(crate) fn take_memory(&mut self) -> Option<DeviceAddr> {
        self.track.take().map(Track::close)
    }
}

/// How a launch ended.
struct Ended {
    /// 0, or the code of the first failing thread.
    status: i32,
    /// What the device has stamped, if that is wanted and the run succeeded.
    phases: Option<Phases>,
    /// What was collected of its variable phases, if they are recorded, and the anchors of its clock.
    collected: Option<Collected>,
    anchors: Vec<DeviceClockAnchor>,
}

/// A run on the device.
struct Flight<'r> {
    device: Claim<'r, Device>,
    launch: Box<dyn Launch>,
    runner_run: Span,
    anchors: Vec<DeviceClockAnchor>,
    /// When the last one was taken.
    anchored: Instant,
}

/// A run between its preparation and its end. It stays on its thread, whose spans it has open.
struct Run<'r> {
    runtime: &'r ChipRuntime,
    slot: Claim<'r, Slot>,
    callable: Arc<Callable>,
    scalars: Vec<u64>,
    /// Latched, like the next: reset, readback and emission of one run go together.
    device_spans: bool,
    config: CallConfig,
    identified: bool,
    /// The invocation's context between the run's phases.
    context: SpanContext,
    bound: Option<Bound>,
    flight: Option<Flight<'r>>,
    outcome: Option<Result<Ended, RunError>>,
    /// None once the run has been finalized.
    root: Option<RootGuard>,
}

/// A run that is bound, and can be launched.
#[must_use = "dropped, the run ends without having been launched"]
pub struct Prepared<'r>(Run<'r>);

/// A run on the device.
#[must_use = "dropped, the run is waited for and its result forgotten"]
pub struct Launched<'r>(Run<'r>);

/// A run that has left the device.
#[must_use = "dropped, the run is finalized and its result forgotten"]
pub struct Done<'r>(Run<'r>);

impl ChipRuntime {
    /// The first phase of a run: claims a slot and binds the callable and its arguments to it. The root span is open
    /// from here to the end of [`Done::finalize`], or until what this gives is dropped, at whichever phase.
    ///
    /// # Errors
    /// Code −1 when the callable is unknown, every slot is in use or the device refuses something, −5 for a
    /// configuration that cannot be; else what binding fails with, and then the run has ended.
    ///
    /// # Safety
    /// As for [`ChipRuntime::run`], until the run has ended.
    pub unsafe fn prepare(
        &self,
        callable: CallableId,
        args: &RunArgs,
        identity: RunIdentity,
    ) -> Result<Prepared<'_>, RunError> {
        // SAFETY: the caller's obligations.
        unsafe { self.begin(callable, args, Some(identity), None, IfBusy::Refuse) }
    }

    /// As [`ChipRuntime::prepare`], in slot `slot_id` of [`ChipRuntime::pipeline_depth`] and no other.
    ///
    /// # Errors
    /// As there; code −1 also for a slot that there is not.
    ///
    /// # Safety
    /// As there.
    pub unsafe fn prepare_in(
        &self,
        slot_id: usize,
        callable: CallableId,
        args: &RunArgs,
        identity: RunIdentity,
    ) -> Result<Prepared<'_>, RunError> {
        // SAFETY: the caller's obligations.
        unsafe { self.begin(callable, args, Some(identity), Some(slot_id), IfBusy::Refuse) }
    }

    /// As [`ChipRuntime::prepare`].
    ///
    /// # Safety
    /// As there.
    pub(crate) unsafe fn begin(
        &self,
        callable: CallableId,
        args: &RunArgs,
        identity: Option<RunIdentity>,
        slot_id: Option<usize>,
        if_busy: IfBusy,
    ) -> Result<Prepared<'_>, RunError> {
        let callable = self.callable(callable)?;
        args.config.check(self.platform.profile(), self.graph_runtime)?;
        let depth = self.slots.len();
        if let Some(slot_id) = slot_id.filter(|slot_id| *slot_id >= depth) {
            return Err(RunError::refused(format!("pipeline slot {slot_id}: this chip has {depth}, from 0")));
        }
        if let Some(prefix) = &args.config.output_prefix {
            // The first directory wins.
            simpler_host_log::set_directory(prefix)
                .map_err(|error| RunError::invalid(format!("output prefix {}: {error}", prefix.display())))?;
        }
        // ORDERING: Relaxed: only a number.
        let run_epoch = self.runs.fetch_add(1, Ordering::Relaxed) + 1;
        let (slot_id, mut slot) = match slot_id {
            None => self.slot(run_epoch, if_busy)?,
            Some(slot_id) => (slot_id, self.claim_slot(slot_id, if_busy)?),
        };
        slot.generation += 1;
        let outer = context();
        let root = match identity {
            None => Invocation::begin(self.names.root, callable.hid),
            Some(RunIdentity { run_id, dispatch_id }) => {
                let generation = slot.generation;
                Invocation::begin_with(self.names.root, callable.hid, |attributes| {
                    // What does not fit is cut.
                    let _ = write!(
                        attributes,
                        "run_id={run_id} dispatch_id={dispatch_id} slot_id={slot_id} generation={generation} \
                         run_epoch={run_epoch}"
                    );
                })
            }
        };
        let mut run = Run {
            runtime: self,
            slot,
            callable,
            scalars: args.scalars.clone(),
            device_spans: device_spans::wanted(self.device_spans()),
            config: args.config.clone(),
            identified: identity.is_some(),
            context: replace_context(outer),
            bound: None,
            flight: None,
            outcome: None,
            root: Some(root),
        };
        match run.within(|run| run.bind(args)) {
            Ok(()) => Ok(Prepared(run)),
            Err(error) => Err(run.fail(error)),
        }
    }

    /// A slot for a run, and its number: a free one, or by turns the one that is waited for.
    fn slot(&self, run_epoch: u64, if_busy: IfBusy) -> Result<(usize, Claim<'_, Slot>), RunError> {
        let depth = self.slots.len();
        let turns = (0..depth).map(|turn| (run_epoch as usize + turn) % depth);
        let mut refused = None;
        // Who has the device must not wait for a slot: the run that has it may be waiting for the device.
        let if_busy = if self.device.is_mine() { IfBusy::Refuse } else { if_busy };
        for if_busy in [IfBusy::Refuse, if_busy] {
            for index in turns.clone() {
                match self.claim_slot(index, if_busy) {
                    Ok(claim) => return Ok((index, claim)),
                    Err(error) => refused = Some(error),
                }
            }
        }
        Err(refused.unwrap_or_else(|| RunError::refused("the pipeline has no slots")))
    }

    fn claim_slot(&self, index: usize, if_busy: IfBusy) -> Result<Claim<'_, Slot>, RunError> {
        self.slots[index].claim(if_busy, &format!("pipeline slot {index}"))
    }
}

impl<'r> Prepared<'r> {
    /// Claims the device and starts the run on it.
    ///
    /// # Errors
    /// Code −1 when another run is on the device, or the device refuses something. The run has then ended.
    pub fn launch(self) -> Result<Launched<'r>, RunError> {
        self.launch_if(IfBusy::Refuse)
    }

    pub(crate) fn launch_if(self, if_busy: IfBusy) -> Result<Launched<'r>, RunError> {
        let Self(mut run) = self;
        match run.within(|run| run.launch(if_busy)) {
            Ok(()) => Ok(Launched(run)),
            Err(error) => Err(run.fail(error)),
        }
    }
}

impl<'r> Launched<'r> {
    /// Whether [`Launched::wait`] would return at once.
    pub fn is_done(&self) -> bool {
        self.0.flight.as_ref().is_none_or(|flight| flight.launch.is_done())
    }

    /// As [`Launched::wait`], but no longer than `limit`, and the run stays on the device; whether `wait` would return at
    /// once.
    pub fn wait_for(&mut self, limit: Duration) -> bool {
        let deadline = Deadline::after(limit);
        self.0.within(|run| {
            loop {
                let ended = run.wait_for(deadline.remaining());
                if ended || deadline.passed() {
                    return ended;
                }
            }
        })
    }

    /// Waits for the end of the run on the device, and gives the device back. It returns only when every kernel has.
    pub fn wait(self) -> Done<'r> {
        let Self(mut run) = self;
        run.within(Run::wait);
        Done(run)
    }
}

impl Done<'_> {
    /// How the run ended on the device; [`Done::finalize`] fails with the same, or succeeds but for what it does itself.
    ///
    /// # Errors
    /// The run's own code.
    pub fn status(&self) -> Result<(), RunError> {
        self.0.failure().map_or(Ok(()), Err)
    }

    /// Copies results back, emits the device's spans, closes the root span and gives the slot back.
    ///
    /// # Errors
    /// The run's own code, or what copying back fails with.
    pub fn finalize(self) -> Result<(), RunError> {
        let Self(mut run) = self;
        run.within(Run::finalize)
    }
}

/// A thread in a run's invocation; dropped, it is in the one again that it was in before.
struct Inside<'i, 'r> {
    run: &'i mut Run<'r>,
    outer: SpanContext,
}

impl Drop for Inside<'_, '_> {
    fn drop(&mut self) {
        self.run.context = replace_context(self.outer);
    }
}

impl<'r> Run<'r> {
    /// Does something with the run's invocation as the thread's, which is put away again on every path.
    fn within<T>(&mut self, phase: impl FnOnce(&mut Self) -> T) -> T {
        let outer = replace_context(self.context);
        let inside = Inside { run: self, outer };
        phase(&mut *inside.run)
    }

    /// Finalizes a run that comes no further; why.
    fn fail(mut self, error: RunError) -> RunError {
        self.outcome = Some(Err(error.clone()));
        Done(self).finalize().err().unwrap_or(error)
    }

    fn bind(&mut self, args: &RunArgs) -> Result<(), RunError> {
        let _span = span!(self.runtime.names.bind);
        self.bound = Some(self.slot.bind(self.runtime, &self.callable, args)?);
        Ok(())
    }

    fn launch(&mut self, if_busy: IfBusy) -> Result<(), RunError> {
        let runtime = self.runtime;
        let mut device = runtime.device.claim(if_busy, "the device")?;
        let Some(Bound { layout, arena, tensors }) = self.bound.take() else {
            return Err(RunError::refused("the run is not bound"));
        };
        let runner_run = Span::enter(runtime.names.runner_run);
        let track = device.track(runtime, self.config.swimlane)?.map(|track| track.begin(runtime.timeout));
        let program = RunProgram {
            graph_runtime: runtime.graph_runtime,
            executor: runtime.executor.clone(),
            callable: self.callable.clone(),
            profile: self.profile(),
            survivors: runtime.platform.profile().aicpu_logical,
            layout,
            arena: arena.0,
            phase_buffer: self.slot.phases_at(runtime, self.device_spans)?.0,
            copy_engine: runtime.copy_engine.map_or(0, |addr| addr.0),
            swimlane: track,
            tensors,
            scalars: std::mem::take(&mut self.scalars),
            timeout: runtime.timeout,
            gates: Default::default(),
        };
        let mut anchors = Vec::new();
        self.anchor(&mut anchors);
        let launch = runtime.platform.launch(Arc::new(program))?;
        self.flight = Some(Flight { device, launch, runner_run, anchors, anchored: Instant::now() });
        Ok(())
    }

    /// The platform's figures, with as many AICPU threads as this run has.
    fn profile(&self) -> Profile {
        let of_platform = self.runtime.platform.profile();
        let aicpu_logical = self.config.aicpu_threads.unwrap_or(of_platform.aicpu_logical);
        Profile { aicpu_logical, ..of_platform.clone() }
    }

    /// Takes a clock anchor, if device spans are wanted: the log has it, and an artifact has it too.
    fn anchor(&self, anchors: &mut Vec<DeviceClockAnchor>) {
        if self.device_spans {
            let anchor = clock_anchor::emit(&*self.runtime.platform, context().inv);
            anchors.extend(anchor.filter(|_| self.config.swimlane != SwimlaneLevel::Off));
        }
    }

    /// Waits for the launch, no longer than `limit`; takes an anchor where the last one is old.
    fn wait_for(&mut self, limit: Duration) -> bool {
        let Some(flight) = &mut self.flight else { return true };
        let ended = flight.launch.wait_for(limit.min(ANCHOR_INTERVAL));
        if !ended && flight.anchored.elapsed() >= ANCHOR_INTERVAL {
            flight.anchored = Instant::now();
            let mut anchors = std::mem::take(&mut flight.anchors);
            self.anchor(&mut anchors);
            if let Some(flight) = &mut self.flight {
                flight.anchors = anchors;
            }
        }
        ended
    }

    fn wait(&mut self) {
        while !self.wait_for(ANCHOR_INTERVAL) {}
        let Some(Flight { mut device, launch, runner_run, mut anchors, .. }) = self.flight.take() else {
            return;
        };
        let status = launch.wait();
        self.anchor(&mut anchors);
        self.outcome = Some(self.ended(&mut device, status, anchors));
        drop(runner_run);
        // The next run may have the device from here on.
        let _span = self.identified.then(|| span!(self.runtime.names.claim_release));
        drop(device);
    }

    fn ended(
        &mut self,
        device: &mut Device,
        status: i32,
        anchors: Vec<DeviceClockAnchor>,
    ) -> Result<Ended, RunError> {
        let wanted = self.device_spans && status == 0;
        let phases = wanted.then(|| self.slot.read_phases(self.runtime)).transpose()?;
        let collected = device.track(self.runtime, self.config.swimlane)?.map(Track::end);
        Ok(Ended { status, phases, collected, anchors })
    }

    /// Why the run failed until now, if it did.
    fn failure(&self) -> Option<RunError> {
        match &self.outcome {
            Some(Ok(Ended { status: 0, .. })) => None,
            Some(Ok(Ended { status, .. })) => Some(self.slot.device_failure(self.runtime, *status)),
            Some(Err(error)) => Some(error.clone()),
            None => Some(RunError::refused("it was not launched")),
        }
    }

    fn finalize(&mut self) -> Result<(), RunError> {
        let runtime = self.runtime;
        let failure = self.failure();
        let result = {
            let _span = span!(runtime.names.validate);
            self.slot.validate(runtime, &self.callable, failure)
        };
        let inv = context().inv;
        if let Some(Ok(Ended { status: 0, phases: Some(phases), .. })) = &self.outcome {
            device_spans::emit(runtime.names, phases, runtime.platform.profile().counter_hz);
        }
        drop(self.root.take());
        if let Some(Ok(Ended { status: 0, collected: Some(collected), anchors, .. })) = &self.outcome {
            self.report_swimlane(inv, collected, anchors);
        }
        result
    }

    /// Says what became of the run's variable phases, and writes them where they are wanted.
    fn report_swimlane(&self, inv: u64, collected: &Collected, anchors: &[DeviceClockAnchor]) {
        swimlane::report(inv, collected);
        let Some(output) = &self.config.output_prefix else { return };
        let profile = &self.profile();
        let facts = RunFacts {
            inv,
            profile,
            schedulers: schedulers(self.runtime.graph_runtime, profile.aicpu_logical).unwrap_or(1),
            level: self.config.swimlane,
            anchors,
            names: &self.callable.scopes,
            host: self.slot.host_orchestration(),
        };
        swimlane::write(output, &facts, collected);
    }
}

/// A run that is given up does what is left of it, so that its root span closes on every path.
impl Drop for Run<'_> {
    fn drop(&mut self) {
        if self.root.is_some() {
            self.within(|run| {
                run.wait();
                // Who drops it does not ask how it went; the log says so.
                let _ = run.finalize();
            });
        }
    }
}
