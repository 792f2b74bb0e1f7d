//! The host's side of a run: bind, runner_run, validate.

use std::ffi::{OsStr, OsString};
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use simpler_device_phase::{Phase, PhaseBufferLayout, Phases, emission_enabled, reduce, tail_used};
use simpler_host_log::{Invocation, SpanEvent, log_error, span};
use simpler_kernel_abi::{
    ArgUse, CHIP_SCALARS_MAX, CHIP_TENSORS_MAX, DEVICE_MEMORY, HOST_MEMORY, SimplerTensor,
};
use simpler_log_abi::Level;
use simpler_platform::{DeviceAddr, Platform, PlatformError};
use simpler_record_format::DeviceClockAnchor;
use simpler_swimlane::{Collected, Level as SwimlaneLevel, PhaseNames};

use crate::clock_anchor::{self, ANCHOR_INTERVAL};
use crate::code;
use crate::executor::{DFX, Executor, OWN_CLUSTERS_MAX, RunProgram};
use crate::graph::arena::ArenaLayout;
use crate::graph::{GraphError, Limits};
use crate::host_graph::HostGraph;
use crate::image::CallableImage;
use crate::names::{SIMPLER_RUN, SpanNames};
use crate::orchestration::{CALLABLES_MAX, Callable, Kernel};
use crate::swimlane::{self, RunFacts, SwimlaneConfig, Track};

/// How long a run may make no progress (RUNTIME §2.3).
pub const SCHEDULER_TIMEOUT: Duration = Duration::from_secs(20);
/// Overrides [`SCHEDULER_TIMEOUT`], in milliseconds; read once per [`ChipRuntime`].
pub const SCHEDULER_TIMEOUT_ENV: &str = "SIMPLER_SCHEDULER_TIMEOUT_MS";
/// As many as a set of them has bits (`Graph::idle_schedulers`).
const SCHEDULERS: RangeInclusive<usize> = 1..=u32::BITS as usize;
/// Where each staged argument starts (RUNTIME §2.2).
const STAGING_ALIGNMENT: usize = 1024;

/// Where the graph of a run is built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GraphRuntime {
    /// tensormap_and_ringbuffer: on an AICPU thread, while the others already drain it.
    #[default]
    TensorMapAndRingBuffer,
    /// host_build_graph: on the host, in bind; every AICPU thread schedules. The device stamps its wall and the task
    /// slots, and no other phase.
    HostBuildGraph,
}

/// How a chip is to run.
#[derive(Clone, Debug)]
pub struct RuntimeConfig {
    /// Where graphs are built.
    pub graph_runtime: GraphRuntime,
    /// What a run may use.
    pub limits: Limits,
    /// The words of its spans.
    pub names: &'static SpanNames,
    /// How long a run may make no progress; the environment overrides it.
    pub scheduler_timeout: Duration,
    /// What is recorded of its variable phases.
    pub swimlane: SwimlaneConfig,
}

impl Default for RuntimeConfig {
    fn default() -> Self {
        Self {
            graph_runtime: GraphRuntime::default(),
            limits: Limits::default(),
            names: &SIMPLER_RUN,
            scheduler_timeout: SCHEDULER_TIMEOUT,
            swimlane: SwimlaneConfig::default(),
        }
    }
}

/// A registered callable; valid for the runtime that gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallableId(usize);

/// A tensor argument of a run.
///
/// `tensor.address_space` says whose memory it is; see [`ChipRuntime::run`] for what the caller vouches for.
#[derive(Clone, Copy, Debug)]
pub struct ChipArg {
    /// The view. `start_offset` and `extent` are the orchestration's business; the whole buffer is staged.
    pub tensor: SimplerTensor,
    /// Host memory: INPUT and NO_DEP are copied in, OUTPUT and OUTPUT_EXISTING are copied back, INOUT both.
    pub arg_use: ArgUse,
}

/// The arguments of a run.
#[derive(Clone, Debug, Default)]
pub struct RunArgs {
    /// At most 256.
    pub tensors: Vec<ChipArg>,
    /// At most 128.
    pub scalars: Vec<u64>,
}

/// Why a run, or what prepares one, failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("failed with code {code}: {text}")]
pub struct RunError {
    /// Negative: −1 refused before it began, else the code of [`crate::code`] with its sign changed.
    pub code: i32,
    /// A sentence for people.
    pub text: String,
}

impl RunError {
    pub(crate) fn refused(text: impl Into<String>) -> Self {
        Self { code: code::REFUSED, text: text.into() }
    }

    fn invalid(text: impl Into<String>) -> Self {
        Self { code: -(code::INVALID_ARGUMENTS as i32), text: text.into() }
    }
}

impl From<PlatformError> for RunError {
    fn from(error: PlatformError) -> Self {
        Self::refused(error.to_string())
    }
}

impl From<GraphError> for RunError {
    fn from(error: GraphError) -> Self {
        Self { code: -(error.code as i32), text: error.text }
    }
}

/// One device and the callables that it knows. Any thread may call any method; runs are one at a time.
// FORK: a forked child must make its own: the device's threads are not there.
pub struct ChipRuntime {
    platform: Arc<dyn Platform>,
    graph_runtime: GraphRuntime,
    names: &'static SpanNames,
    timeout: Duration,
    layout: ArenaLayout,
    executor: Arc<Executor>,
    device_spans: AtomicBool,
    swimlane: Mutex<SwimlaneConfig>,
    state: Mutex<State>,
}

/// What runs change.
#[derive(Default)]
struct State {
    callables: Vec<Arc<Callable>>,
    staging: Option<DeviceBuffer>,
    arena: Option<CachedArena>,
    host_graph: Option<HostGraph>,
    phases: Option<PhaseBuffer>,
    track: Option<Track>,
    leases: Vec<Lease>,
}

struct DeviceBuffer {
    addr: DeviceAddr,
    bytes: usize,
}

/// The runtime arena, uploaded under this key.
struct CachedArena {
    key: u64,
    buffer: DeviceBuffer,
}

/// The phase buffer, and the host memory for its transfers.
struct PhaseBuffer {
    addr: DeviceAddr,
    layout: PhaseBufferLayout,
    reset_image: Vec<u8>,
    readback: Vec<u8>,
}

/// A host tensor that is to be copied back.
struct Lease {
    host: u64,
    device: u64,
    bytes: usize,
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

/// What bind gives to the runner.
struct Bound {
    arena: DeviceAddr,
    tensors: Vec<SimplerTensor>,
}

impl ChipRuntime {
    /// A runtime over a device.
    ///
    /// # Errors
    /// Code −5 when the limits make no arena, or the platform's AICPU threads no schedulers (and, where the graph is
    /// built on the device, no orchestrator) or too few for its clusters.
    pub fn new(platform: Arc<dyn Platform>, config: RuntimeConfig) -> Result<Self, RunError> {
        let threads = platform.profile().aicpu_logical;
        let schedulers = schedulers(config.graph_runtime, threads);
        if !schedulers.is_some_and(|schedulers| SCHEDULERS.contains(&schedulers)) {
            let others = threads - schedulers.unwrap_or(threads);
            let (min, max) = (SCHEDULERS.start() + others, SCHEDULERS.end() + others);
            return Err(RunError::invalid(format!("{threads} AICPU threads: a run needs {min} to {max}")));
        }
        let clusters = platform.profile().clusters;
        let most = schedulers.unwrap_or(0) * OWN_CLUSTERS_MAX;
        if clusters > most {
            let text = format!("{clusters} clusters: {threads} AICPU threads can serve {most}");
            return Err(RunError::invalid(text));
        }
        let layout = ArenaLayout::new(config.limits, platform.profile().cores())?;
        let timeout = std::env::var_os(SCHEDULER_TIMEOUT_ENV);
        let runtime = Self {
            platform,
            graph_runtime: config.graph_runtime,
            names: config.names,
            timeout: timeout_from_env(timeout.as_deref()).unwrap_or(config.scheduler_timeout),
            layout,
            executor: Arc::default(),
            device_spans: AtomicBool::new(true),
            swimlane: Mutex::default(),
            state: Mutex::default(),
        };
        runtime.set_swimlane(config.swimlane)?;
        Ok(runtime)
    }

    /// What is recorded of the variable phases of later runs.
    ///
    /// # Errors
    /// Code −5 where a level is asked for and this build records none (it was made without the feature `dfx`).
    pub fn set_swimlane(&self, swimlane: SwimlaneConfig) -> Result<(), RunError> {
        if swimlane.level != SwimlaneLevel::Off && !DFX {
            return Err(RunError::invalid("this build has no swimlane: it was made without the feature dfx"));
        }
        *self.swimlane.lock().unwrap_or_else(PoisonError::into_inner) = swimlane;
        Ok(())
    }

    /// Turns the device spans of later runs on or off, apart from the host's: on unless told otherwise, and off in any
    /// case where [`simpler_device_phase::ENABLE_ENV`] or the log's threshold says so. Off, a run neither resets nor
    /// reads the phase buffer, and takes no clock anchors.
    pub fn set_device_spans(&self, on: bool) {
        // ORDERING: Relaxed: a run that is about to begin may have either.
        self.device_spans.store(on, Ordering::Relaxed);
    }

    /// The device.
    pub fn platform(&self) -> &Arc<dyn Platform> {
        &self.platform
    }

    /// Makes a callable known: verifies that its objects belong together and uploads the kernels. The same content
    /// gets the same id.
    ///
    /// # Errors
    /// Code −5 when the kernels are not those that the orchestration was built for, −1 when the device refuses a
    /// kernel or 64 callables are known.
    pub fn register(&self, image: &CallableImage) -> Result<CallableId, RunError> {
        image.verify()?;
        let digest = image.digest();
        let mut state = self.state();
        if let Some(slot) = state.callables.iter().position(|known| known.digest == digest) {
            return Ok(CallableId(slot));
        }
        let slot = state.callables.len();
        if slot == CALLABLES_MAX {
            return Err(RunError::refused(format!("a chip knows at most {CALLABLES_MAX} callables")));
        }
        let scopes = PhaseNames::from_elf(&image.orchestration)
            .map_err(|error| RunError::invalid(format!("{}: {error}", image.name)))?;
        let kernels = image.kernels.iter().map(|kernel| {
            let value = self.platform.load_kernel(&kernel.bytes, &kernel.name)?;
            Ok(Kernel { name: kernel.name.clone(), value, kind: kernel.kind })
        });
        let callable = Callable {
            slot,
            name: image.name.clone(),
            hid: image.hid(),
            digest,
            orchestration: image.orchestration.clone(),
            kernels: kernels.collect::<Result<_, RunError>>()?,
            scopes,
        };
        state.callables.push(Arc::new(callable));
        Ok(CallableId(slot))
    }

    /// Allocates device memory that stays until [`ChipRuntime::free`].
    ///
    /// # Errors
    /// The device's, with code −1; the same for the next three.
    pub fn malloc(&self, bytes: usize) -> Result<DeviceAddr, RunError> {
        Ok(self.platform.allocate(bytes)?)
    }

    /// Frees what [`ChipRuntime::malloc`] gave, after the run that is under way; so with the copies.
    pub fn free(&self, addr: DeviceAddr) -> Result<(), RunError> {
        let _no_run = self.state();
        Ok(self.platform.release(addr)?)
    }

    /// Copies to the device.
    pub fn copy_to(&self, dst: DeviceAddr, src: &[u8]) -> Result<(), RunError> {
        let _no_run = self.state();
        Ok(self.platform.copy_to_device(dst, src)?)
    }

    /// Copies from the device.
    pub fn copy_from(&self, dst: &mut [u8], src: DeviceAddr) -> Result<(), RunError> {
        let _no_run = self.state();
        Ok(self.platform.copy_to_host(dst, src)?)
    }

    /// Runs a callable to its end and emits the run's spans. It returns only when every kernel has: one that never
    /// does keeps the run from ending, which an ERROR record then says.
    ///
    /// # Errors
    /// Code −1 when the callable is unknown or the device refuses something; else the run's own code. Whatever the
    /// error, `validate` and the root span are emitted once the run has begun, and the next run starts afresh.
    ///
    /// # Safety
    /// - A tensor in host memory names `bytes` bytes at `addr` that nobody writes during the call; unless its use is
    ///   INPUT or NO_DEP they are writable and nobody reads them either.
    /// - A tensor in device memory names memory of this runtime's device.
    /// - The callable's objects keep to the kernel headers: on a simulated chip they are code of this process.
    pub unsafe fn run(&self, callable: CallableId, args: &RunArgs) -> Result<(), RunError> {
        let mut state = self.state();
        let Some(callable) = state.callables.get(callable.0).cloned() else {
            return Err(RunError::refused("the callable is not registered"));
        };
        // Latched, as what follows.
        let swimlane = self.swimlane.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let root = Invocation::begin(self.names.root, callable.hid);
        let inv = simpler_host_log::context().inv;
        // Latched: reset, readback and emission of one run go together.
        let device_spans = self.device_spans_visible();

        let bound = {
            let _span = span!(self.names.bind);
            self.bind(&mut state, &callable, args)
        };
        let outcome = bound.and_then(|bound| {
            let _span = span!(self.names.runner_run);
            self.run_on_device(&mut state, &callable, bound, args, device_spans, swimlane.level)
        });
        let result = {
            let _span = span!(self.names.validate);
            self.validate(&mut state, &callable, &outcome)
        };
        if let Ok(Ended { status: 0, phases: Some(phases), .. }) = &outcome {
            self.emit_device_spans(phases);
        }
        drop(root);
        if let Ok(Ended { status: 0, collected: Some(collected), anchors, .. }) = &outcome {
            self.report_swimlane(inv, &callable, &swimlane, collected, anchors);
        }
        result
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every field is whole between statements; a panicked holder left at worst a buffer that is still cached.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn device_spans_visible(&self) -> bool {
        // ORDERING: Relaxed: see `set_device_spans`.
        let visible = self.device_spans.load(Ordering::Relaxed) && simpler_host_log::enabled(Level::Timing);
        emission_enabled(cfg!(feature = "host-strace"), device_spans_env(), visible)
    }

    fn bind(&self, state: &mut State, callable: &Callable, args: &RunArgs) -> Result<Bound, RunError> {
        let tensors = {
            let _span = span!(self.names.bind_args, ntensor = args.tensors.len());
            self.bind_args(state, args)?
        };
        let arena = {
            let _span = span!(self.names.bind_prebuilt);
            self.bind_prebuilt(state)?
        };
        if self.graph_runtime == GraphRuntime::HostBuildGraph {
            let host_graph = state.host_graph.get_or_insert_with(|| HostGraph::new(self.layout));
            {
                let _span = span!(self.names.bind_host_orch);
                host_graph.build(self.platform.profile(), callable, arena, &tensors, &args.scalars)?;
            }
            let _span = span!(self.names.bind_graph_upload);
            host_graph.upload(&*self.platform, arena)?;
        }
        Ok(Bound { arena, tensors })
    }

    /// Gives every tensor a device address: its own, or a slice of the staging buffer.
    fn bind_args(&self, state: &mut State, args: &RunArgs) -> Result<Vec<SimplerTensor>, RunError> {
        state.leases.clear();
        if args.tensors.len() > CHIP_TENSORS_MAX || args.scalars.len() > CHIP_SCALARS_MAX {
            return Err(RunError::invalid(format!(
                "{} tensors and {} scalars: a run has at most {CHIP_TENSORS_MAX} and {CHIP_SCALARS_MAX}",
                args.tensors.len(),
                args.scalars.len()
            )));
        }
        let mut staged_bytes = 0_usize;
        for (index, ChipArg { tensor, .. }) in args.tensors.iter().enumerate() {
            match tensor.address_space {
                DEVICE_MEMORY => {}
                HOST_MEMORY if tensor.bytes == 0 => {}
                HOST_MEMORY if tensor.addr != 0 => {
                    let end = usize::try_from(tensor.bytes)
                        .ok()
                        .and_then(|bytes| bytes.checked_next_multiple_of(STAGING_ALIGNMENT))
                        .and_then(|bytes| staged_bytes.checked_add(bytes))
                        // More than this is no slice, and has no next power of two.
                        .filter(|bytes| *bytes <= isize::MAX as usize);
                    staged_bytes = end.ok_or_else(|| {
                        RunError::invalid(format!("tensor {index} of {} bytes is too large", tensor.bytes))
                    })?;
                }
                _ => {
                    return Err(RunError::invalid(format!(
                        "tensor {index}: {} bytes at {:#x} in address space {}",
                        tensor.bytes, tensor.addr, tensor.address_space
                    )));
                }
            }
        }
        let mut next = self.staging(state, staged_bytes)?.0;
        let mut tensors = Vec::with_capacity(args.tensors.len());
        for ChipArg { tensor, arg_use } in &args.tensors {
            let mut bound = *tensor;
            if tensor.address_space == HOST_MEMORY {
                bound.address_space = DEVICE_MEMORY;
                bound.addr = if tensor.bytes == 0 { 0 } else { next };
            }
            if tensor.address_space == HOST_MEMORY && tensor.bytes != 0 {
                let bytes = tensor.bytes as usize;
                next += bytes.next_multiple_of(STAGING_ALIGNMENT) as u64;
                if matches!(arg_use, ArgUse::Input | ArgUse::InOut | ArgUse::NoDep) {
                    // SAFETY: not null, and the caller vouches for the buffer (see `run`).
                    let host = unsafe { std::slice::from_raw_parts(tensor.addr as *const u8, bytes) };
                    self.platform.copy_to_device(DeviceAddr(bound.addr), host)?;
                }
                if matches!(arg_use, ArgUse::Output | ArgUse::OutputExisting | ArgUse::InOut) {
                    state.leases.push(Lease { host: tensor.addr, device: bound.addr, bytes });
                }
            }
            tensors.push(bound);
        }
        Ok(tensors)
    }

    /// The staging buffer, grown to `bytes` if it is smaller. It never shrinks.
    fn staging(&self, state: &mut State, bytes: usize) -> Result<DeviceAddr, RunError> {
        if bytes == 0 {
            return Ok(DeviceAddr(0));
        }
        if let Some(buffer) = &state.staging
            && buffer.bytes >= bytes
        {
            return Ok(buffer.addr);
        }
        if let Some(small) = state.staging.take() {
            self.platform.release(small.addr)?;
        }
        let bytes = bytes.next_power_of_two();
        let addr = self.platform.allocate(bytes)?;
        state.staging = Some(DeviceBuffer { addr, bytes });
        Ok(addr)
    }

    /// The runtime arena: built and uploaded once, then a cache hit.
    fn bind_prebuilt(&self, state: &mut State) -> Result<DeviceAddr, RunError> {
        let key = self.layout.key();
        if let Some(cached) = &state.arena
            && cached.key == key
        {
            return Ok(cached.buffer.addr);
        }
        let bytes = self.layout.total_bytes();
        let buffer = DeviceBuffer { addr: self.platform.allocate(bytes)?, bytes };
        if let Err(error) = self.platform.copy_to_device(buffer.addr, &self.layout.image()) {
            self.platform.release(buffer.addr)?;
            return Err(error.into());
        }
        let addr = buffer.addr;
        state.arena = Some(CachedArena { key, buffer });
        Ok(addr)
    }

    /// Launches and waits.
    fn run_on_device(
        &self,
        state: &mut State,
        callable: &Arc<Callable>,
        bound: Bound,
        args: &RunArgs,
        device_spans: bool,
        level: SwimlaneLevel,
    ) -> Result<Ended, RunError> {
        let timeout = self.timeout;
        let swimlane = self.track(state, level)?.map(|track| track.begin(timeout));
        let phases = self.phase_buffer(state)?;
        if device_spans {
            self.platform.copy_to_device(phases.addr, &phases.reset_image)?;
        }
        let program = RunProgram {
            graph_runtime: self.graph_runtime,
            executor: self.executor.clone(),
            callable: callable.clone(),
            profile: self.platform.profile().clone(),
            layout: self.layout,
            arena: bound.arena.0,
            phase_buffer: phases.addr.0,
            swimlane,
            tensors: bound.tensors,
            scalars: args.scalars.clone(),
            timeout: self.timeout,
            gates: Default::default(),
        };
        let mut anchors = Vec::new();
        let mut anchor = || {
            if device_spans {
                let anchor = clock_anchor::emit(&*self.platform, simpler_host_log::context().inv);
                // The log has them; an artifact has them too.
                anchors.extend(anchor.filter(|_| level != SwimlaneLevel::Off));
            }
        };
        anchor();
        let launched = self.platform.launch(Arc::new(program))?;
        while !launched.wait_for(ANCHOR_INTERVAL) {
            anchor();
        }
        let status = launched.wait();
        anchor();
        let wanted = device_spans && status == 0;
        let phases = wanted.then(|| self.read_phases(phases)).transpose()?;
        let collected = self.track(state, level)?.map(Track::end);
        Ok(Ended { status, phases, collected, anchors })
    }

    /// The memory of the variable phases at a level, made when the level is first asked for; None at level 0.
    fn track<'s>(
        &self,
        state: &'s mut State,
        level: SwimlaneLevel,
    ) -> Result<Option<&'s mut Track>, RunError> {
        if level == SwimlaneLevel::Off {
            return Ok(None);
        }
        if state.track.as_ref().is_none_or(|track| track.level() != level) {
            if let Some(other) = state.track.take() {
                self.platform.release(other.close())?;
            }
            state.track = Some(Track::new(&*self.platform, level)?);
        }
        Ok(state.track.as_mut())
    }

    /// Says what became of a run's variable phases, and writes them where they are wanted.
    fn report_swimlane(
        &self,
        inv: u64,
        callable: &Callable,
        swimlane: &SwimlaneConfig,
        collected: &Collected,
        anchors: &[DeviceClockAnchor],
    ) {
        swimlane::report(inv, collected);
        let Some(output) = &swimlane.output else { return };
        let profile = self.platform.profile();
        let facts = RunFacts {
            inv,
            profile,
            schedulers: schedulers(self.graph_runtime, profile.aicpu_logical).unwrap_or(1),
            level: swimlane.level,
            anchors,
            names: &callable.scopes,
        };
        swimlane::write(output, &facts, collected);
    }

    /// Reads back what the device has stamped: the slots only if there are any.
    fn read_phases(&self, buffer: &mut PhaseBuffer) -> Result<Phases, RunError> {
        let threads = buffer.layout.threads();
        let (front, tail) = buffer.readback.split_at_mut(buffer.layout.tail_offset());
        self.platform.copy_to_host(front, buffer.addr)?;
        let mut phases = reduce(front, threads);
        if tail_used(front) {
            let at = DeviceAddr(buffer.addr.0 + buffer.layout.tail_offset() as u64);
            self.platform.copy_to_host(tail, at)?;
            phases.reduce_slots(tail, threads);
        }
        Ok(phases)
    }

    fn phase_buffer<'s>(&self, state: &'s mut State) -> Result<&'s mut PhaseBuffer, RunError> {
        let buffer = match state.phases.take() {
            Some(buffer) => buffer,
            None => {
                let layout = PhaseBufferLayout::new(self.platform.profile().aicpu_launched);
                let mut reset_image = vec![0; layout.bytes()];
                layout
                    .write_reset_image(&mut reset_image)
                    .map_err(|error| RunError::refused(format!("phase buffer: {error}")))?;
                let readback = reset_image.clone();
                let addr = self.platform.allocate(layout.bytes())?;
                PhaseBuffer { addr, layout, reset_image, readback }
            }
        };
        Ok(state.phases.insert(buffer))
    }

    /// Copies results back, or says in one record why there are none.
    fn validate(
        &self,
        state: &mut State,
        callable: &Callable,
        outcome: &Result<Ended, RunError>,
    ) -> Result<(), RunError> {
        let failure = match outcome {
            Ok(Ended { status: 0, .. }) => None,
            Ok(Ended { status, .. }) => Some(self.device_failure(state, *status)),
            Err(error) => Some(error.clone()),
        };
        if let Some(failure) = failure {
            log_error!(
                "run of {} failed with code {}: {}; {} results are not copied back",
                callable.name,
                failure.code,
                failure.text,
                state.leases.len()
            );
            state.leases.clear();
            return Err(failure);
        }
        let mut result = Ok(());
        for lease in state.leases.drain(..) {
            // SAFETY: not null, and the caller vouches for the buffer and lends it for the run (see `run`).
            let host = unsafe { std::slice::from_raw_parts_mut(lease.host as *mut u8, lease.bytes) };
            result = result.and(self.platform.copy_to_host(host, DeviceAddr(lease.device)));
        }
        Ok(result?)
    }

    /// The error that the device's threads left in the control block: the orchestrator's before the schedulers'.
    fn device_failure(&self, state: &State, status: i32) -> RunError {
        let mut control = vec![0; ArenaLayout::control_bytes()];
        let read = state
            .arena
            .as_ref()
            .map(|arena| self.platform.copy_to_host(&mut control, arena.buffer.addr).is_ok());
        if read == Some(true)
            && let Some(failure) = ArenaLayout::failures(&control).into_iter().flatten().next()
        {
            return RunError { code: -(failure.code as i32), text: failure.text };
        }
        RunError { code: status, text: format!("the device ended with status {status}") }
    }

    fn emit_device_spans(&self, phases: &Phases) {
        let hz = self.platform.profile().counter_hz;
        let context = simpler_host_log::context();
        let emit = |name: &str, depth: i32, ts_ns: u64, dur_ns: u64, attrs: &str| {
            simpler_host_log::emit_span(&SpanEvent {
                name,
                inv: context.inv,
                hid: context.hid,
                depth,
                ts: i64::try_from(ts_ns).unwrap_or(i64::MAX),
                dur: i64::try_from(dur_ns).unwrap_or(i64::MAX),
                attrs,
            });
        };
        for span in phases.spans(hz) {
            let name = self.names.device(span.phase);
            if span.phase == Phase::RunWall {
                emit(name, DEVICE_WALL_DEPTH, span.ts_ns, span.dur_ns, &wall_attributes(phases));
            } else {
                emit(name, DEVICE_WALL_DEPTH + 1, span.ts_ns, span.dur_ns, DEVICE_CLOCK);
            }
        }
        for span in phases.slot_spans(hz) {
            let name = self.names.task_slot(span.slot);
            emit(name, DEVICE_WALL_DEPTH + 1, span.ts_ns, span.dur_ns, DEVICE_CLOCK);
        }
    }
}

/// The wall's attributes: besides the clock the cycle that device time 0 stands for, and the cycle at which the wall
/// itself began, where that is another one.
fn wall_attributes(phases: &Phases) -> String {
    let origin = phases.origin().unwrap_or(0);
    let began = phases.window(Phase::RunWall).map(|wall| wall.start).filter(|began| *began != origin);
    let began = began.map_or_else(String::new, |began| format!(" wall_cyc={began}"));
    format!("{DEVICE_CLOCK} org_cyc={origin}{began}")
}

/// The clock of a device span, and all that its attributes say unless it is the wall.
const DEVICE_CLOCK: &str = "clk=dev";
/// Below the root and runner_run.
const DEVICE_WALL_DEPTH: i32 = 2;

/// Frees the device memory that the runtime itself has allocated.
impl Drop for ChipRuntime {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let staging = state.staging.take().map(|buffer| buffer.addr);
        let arena = state.arena.take().map(|arena| arena.buffer.addr);
        let phases = state.phases.take().map(|buffer| buffer.addr);
        let track = state.track.take().map(Track::close);
        for addr in [staging, arena, phases, track].into_iter().flatten() {
            // A device that refuses to free is going away itself.
            let _ = self.platform.release(addr);
        }
    }
}

/// How many of a run's AICPU threads schedule; None if none is left to.
pub(crate) fn schedulers(graph_runtime: GraphRuntime, threads: usize) -> Option<usize> {
    match graph_runtime {
        GraphRuntime::TensorMapAndRingBuffer => threads.checked_sub(1),
        GraphRuntime::HostBuildGraph => Some(threads),
    }
}

/// What the environment says about device spans: read once, for all of the process (RUNTIME §4.4).
fn device_spans_env() -> Option<&'static [u8]> {
    // FORK: a child inherits the value with the environment that it was read from.
    static VALUE: OnceLock<Option<OsString>> = OnceLock::new();
    VALUE.get_or_init(|| std::env::var_os(simpler_device_phase::ENABLE_ENV)).as_deref().map(OsStr::as_bytes)
}

/// The timeout that the environment names; None where it is unset or no positive number.
fn timeout_from_env(value: Option<&OsStr>) -> Option<Duration> {
    let ms = value?.to_str()?.trim().parse::<u64>().ok()?;
    (ms != 0).then(|| Duration::from_millis(ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_positive_number_of_milliseconds_overrides_the_timeout() {
        for (text, expected) in
            [("250", Some(250)), (" 7 ", Some(7)), ("0", None), ("-1", None), ("soon", None)]
        {
            assert_eq!(
                timeout_from_env(Some(OsStr::new(text))),
                expected.map(Duration::from_millis),
                "{text}"
            );
        }
        assert_eq!(timeout_from_env(None), None);
    }
}
