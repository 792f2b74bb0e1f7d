//! A device and what it knows: callables, memory, and runs, each of which is the phases of [`pipeline`](crate::pipeline)
//! one after the other.

use std::ffi::OsStr;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use simpler_host_log::Invocation;
use simpler_kernel_abi::{ArgUse, SimplerTensor};
use simpler_platform::{DeviceAddr, Platform, PlatformError};
use simpler_swimlane::PhaseNames;

use crate::call_config::CallConfig;
use crate::code;
use crate::executor::{Executor, OWN_CLUSTERS_MAX};
use crate::graph::arena::ArenaLayout;
use crate::graph::{GraphError, Limits, RINGS};
use crate::image::CallableImage;
use crate::names::{SIMPLER_RUN, SpanNames};
use crate::orchestration::{CALLABLES_MAX, Callable, Kernel};
use crate::pipeline::{Claim, Claimable, Device, IfBusy, Launched};
use crate::ring_sizes::{self, RingSizes};
use crate::slot::Slot;

/// How long a run may make no progress (RUNTIME §2.3).
pub const SCHEDULER_TIMEOUT: Duration = Duration::from_secs(20);
/// How long an orchestration may wait for a tensor (RUNTIME §2.3), and three quarters of the run's own limit at most.
pub const TENSOR_TIMEOUT: Duration = Duration::from_secs(15);
/// Overrides [`SCHEDULER_TIMEOUT`], in milliseconds; read once per [`ChipRuntime`].
pub const SCHEDULER_TIMEOUT_ENV: &str = "SIMPLER_SCHEDULER_TIMEOUT_MS";
/// As many as a set of them has bits (`Graph::idle_schedulers`).
const SCHEDULERS: RangeInclusive<usize> = 1..=u32::BITS as usize;
/// Runs that a device may have begun at a time: one on it, one that is bound meanwhile (RUNTIME §1.4).
pub const PIPELINE_DEPTH_MAX: usize = 2;

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
    /// What a run may use; the environment overrides it, and so may each run.
    pub limits: Limits,
    /// The words of its spans.
    pub names: &'static SpanNames,
    /// How long a run may make no progress; the environment overrides it.
    pub scheduler_timeout: Duration,
    /// How many runs may have begun at a time, 1 to [`PIPELINE_DEPTH_MAX`]. Each has an arena and a staging buffer of
    /// its own.
    pub pipeline_depth: usize,
    /// Whether kernels can leave copies to the device's copy engine (`enable_sdma`): its workspace is made with the
    /// runtime.
    pub sdma: bool,
}

impl Default for RuntimeConfig {
    fn default() -> Self {
        Self {
            graph_runtime: GraphRuntime::default(),
            limits: Limits::default(),
            names: &SIMPLER_RUN,
            scheduler_timeout: SCHEDULER_TIMEOUT,
            pipeline_depth: 1,
            sdma: false,
        }
    }
}

/// A registered callable; valid for the runtime that gave it, until it is unregistered as often as it was registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallableId {
    slot: usize,
    /// Tells the callables that have had the slot apart.
    use_of_slot: u64,
}

impl CallableId {
    /// The id as a number, for what carries only numbers; never 0.
    pub fn to_raw(self) -> u64 {
        (self.use_of_slot * CALLABLES_MAX as u64 + self.slot as u64) + 1
    }

    /// The id that such a number is; any other is that of no callable, and refused as such where it is used.
    pub fn from_raw(raw: u64) -> Self {
        let number = raw.wrapping_sub(1);
        let callables = CALLABLES_MAX as u64;
        Self { slot: (number % callables) as usize, use_of_slot: number / callables }
    }
}

/// A callable's place in the table.
#[derive(Default)]
struct Registration {
    /// None where the place is free.
    callable: Option<Arc<Callable>>,
    /// How often it was registered.
    count: usize,
    use_of_slot: u64,
}

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
    /// What it chooses for itself.
    pub config: CallConfig,
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

    pub(crate) fn invalid(text: impl Into<String>) -> Self {
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

/// One device and the callables that it knows. Any thread may call any method; on the device runs are one at a time.
// FORK: a forked child must make its own: the device's threads are not there.
pub struct ChipRuntime {
    pub(crate) platform: Arc<dyn Platform>,
    pub(crate) graph_runtime: GraphRuntime,
    pub(crate) names: &'static SpanNames,
    pub(crate) timeout: Duration,
    pub(crate) layout: ArenaLayout,
    pub(crate) executor: Arc<Executor>,
    /// The copy engine's workspace, where there is one.
    pub(crate) copy_engine: Option<DeviceAddr>,
    device_spans: AtomicBool,
    callables: Mutex<Vec<Registration>>,
    /// What a run has from its binding to its end.
    pub(crate) slots: Box<[Claimable<Slot>]>,
    /// What a run has while it is on the device.
    pub(crate) device: Claimable<Device>,
    /// Runs that were prepared so far.
    pub(crate) runs: AtomicU64,
}

impl ChipRuntime {
    /// A runtime over a device.
    ///
    /// # Errors
    /// Code −5 when the limits make no arena, the pipeline is too deep, or the platform's AICPU threads no schedulers
    /// (and, where the graph is built on the device, no orchestrator) or too few for its clusters. Code −1 when it has no
    /// copy engine and one is asked for.
    pub fn new(platform: Arc<dyn Platform>, config: RuntimeConfig) -> Result<Self, RunError> {
        let threads = platform.profile().aicpu_logical;
        let schedulers = schedulers(config.graph_runtime, threads);
        if !schedulers.is_some_and(|schedulers| SCHEDULERS.contains(&schedulers)) {
            let others = threads - schedulers.unwrap_or(threads);
            let (min, max) = (SCHEDULERS.start() + others, SCHEDULERS.end() + others);
            return Err(RunError::invalid(format!("{threads} AICPU threads: a run needs {min} to {max}")));
        }
        require_served(platform.profile().clusters, config.graph_runtime, threads)?;
        let depth = config.pipeline_depth;
        if !(1..=PIPELINE_DEPTH_MAX).contains(&depth) {
            return Err(RunError::invalid(format!("a pipeline of {depth} runs: 1 to {PIPELINE_DEPTH_MAX}")));
        }
        let limits = ring_sizes::over(&ring_sizes::from_env(|name| std::env::var_os(name))?, &config.limits);
        let layout = ArenaLayout::new(limits, platform.profile().cores())?;
        let timeout = std::env::var_os(SCHEDULER_TIMEOUT_ENV);
        let copy_engine = if config.sdma { Some(platform.copy_engine()?) } else { None };
        Ok(Self {
            platform,
            graph_runtime: config.graph_runtime,
            names: config.names,
            timeout: timeout_from_env(timeout.as_deref()).unwrap_or(config.scheduler_timeout),
            layout,
            executor: Arc::default(),
            copy_engine,
            device_spans: AtomicBool::new(true),
            callables: Mutex::default(),
            slots: (0..depth).map(|_| Claimable::default()).collect(),
            device: Claimable::default(),
            runs: AtomicU64::new(0),
        })
    }

    /// The arena of a run that chooses these sizes.
    pub(crate) fn layout_with(&self, rings: &[RingSizes; RINGS]) -> Result<ArenaLayout, RunError> {
        if *rings == [RingSizes::default(); RINGS] {
            return Ok(self.layout);
        }
        let limits = ring_sizes::over(rings, self.layout.limits());
        Ok(ArenaLayout::new(limits, self.platform.profile().cores())?)
    }

    /// Builds and uploads what the first runs would, with the ring sizes that they will choose (`prewarm_config`): the
    /// arena of each slot, and the phase buffer. One span, apart from any run's. Waits for runs that have begun.
    ///
    /// # Errors
    /// Code −5 when the sizes make no arena, −1 when the device refuses the memory, or a run of this thread has begun.
    pub fn prewarm(&self, config: &CallConfig) -> Result<(), RunError> {
        let layout = self.layout_with(&config.rings)?;
        let _root = Invocation::begin(self.names.prewarm_build, 0);
        for slot in &self.slots {
            slot.claim(IfBusy::Wait, "a slot")?.prewarm(self, &layout)?;
        }
        Ok(())
    }

    /// Turns the device spans of later runs on or off, apart from the host's: on unless told otherwise, and off in any
    /// case where [`simpler_device_phase::ENABLE_ENV`] or the log's threshold says so. Off, a run neither resets nor
    /// reads the phase buffer, and takes no clock anchors.
    pub fn set_device_spans(&self, on: bool) {
        // ORDERING: Relaxed: a run that is about to begin may have either.
        self.device_spans.store(on, Ordering::Relaxed);
    }

    pub(crate) fn device_spans(&self) -> bool {
        // ORDERING: Relaxed: as above.
        self.device_spans.load(Ordering::Relaxed)
    }

    /// How many runs may have begun at a time, 1 to [`PIPELINE_DEPTH_MAX`].
    pub fn pipeline_depth(&self) -> usize {
        self.slots.len()
    }

    /// The device.
    pub fn platform(&self) -> &Arc<dyn Platform> {
        &self.platform
    }

    /// Makes a callable known: verifies that its objects belong together and uploads the kernels. The same content
    /// gets the same id, and is known until it was unregistered as often.
    ///
    /// # Errors
    /// Code −5 when the kernels are not those that the orchestration was built for, −1 when the device refuses a
    /// kernel or 64 callables are known.
    pub fn register(&self, image: &CallableImage) -> Result<CallableId, RunError> {
        image.verify()?;
        let digest = image.digest();
        let mut table = locked(&self.callables);
        let holds =
            |place: &Registration| place.callable.as_ref().is_some_and(|known| known.digest == digest);
        if let Some(slot) = table.iter().position(holds) {
            table[slot].count += 1;
            return Ok(CallableId { slot, use_of_slot: table[slot].use_of_slot });
        }
        let slot = table.iter().position(|place| place.callable.is_none()).unwrap_or(table.len());
        if slot == CALLABLES_MAX {
            return Err(RunError::refused(format!("a chip knows at most {CALLABLES_MAX} callables")));
        }
        let scopes = PhaseNames::from_elf(&image.orchestration)
            .map_err(|error| RunError::invalid(format!("{}: {error}", image.name)))?;
        let kernels = image.kernels.iter().map(|kernel| {
            let value = self.platform.load_kernel(&kernel.bytes, &kernel.name)?;
            Ok(Kernel { name: kernel.name.clone(), value, kind: kernel.kind })
        });
        let callable = Arc::new(Callable {
            slot,
            name: image.name.clone(),
            hid: image.hid(),
            digest,
            orchestration: image.orchestration.clone(),
            kernels: kernels.collect::<Result<_, RunError>>()?,
            scopes,
        });
        if slot == table.len() {
            table.push(Registration::default());
        }
        let place = &mut table[slot];
        *place = Registration { callable: Some(callable), count: 1, use_of_slot: place.use_of_slot + 1 };
        Ok(CallableId { slot, use_of_slot: place.use_of_slot })
    }

    /// Takes one registration back. After the last the id is not known any more, and another callable can have its
    /// place; runs that have begun go on. Its kernels stay on the device, where the same content finds them again, and
    /// its orchestration stays loaded until the place is used again.
    ///
    /// # Errors
    /// Code −1 when the callable is not registered.
    pub fn unregister(&self, id: CallableId) -> Result<(), RunError> {
        let mut table = locked(&self.callables);
        let place = table.get_mut(id.slot).filter(|place| place.use_of_slot == id.use_of_slot);
        let Some(place) = place.filter(|place| place.callable.is_some()) else {
            return Err(not_registered());
        };
        place.count -= 1;
        if place.count == 0 {
            place.callable = None;
        }
        Ok(())
    }

    pub(crate) fn callable(&self, id: CallableId) -> Result<Arc<Callable>, RunError> {
        let table = locked(&self.callables);
        let place = table.get(id.slot).filter(|place| place.use_of_slot == id.use_of_slot);
        place.and_then(|place| place.callable.clone()).ok_or_else(not_registered)
    }

    /// Allocates device memory that stays until [`ChipRuntime::free`].
    ///
    /// # Errors
    /// The device's, with code −1; the same for the next three.
    pub fn malloc(&self, bytes: usize) -> Result<DeviceAddr, RunError> {
        Ok(self.platform.allocate(bytes)?)
    }

    /// Frees what [`ChipRuntime::malloc`] gave, after the run that is on the device; so with the copies. While it is
    /// this thread's own ([`Launched`](crate::Launched)) they are refused.
    pub fn free(&self, addr: DeviceAddr) -> Result<(), RunError> {
        let _no_run = self.no_run()?;
        Ok(self.platform.release(addr)?)
    }

    /// Copies to the device.
    pub fn copy_to(&self, dst: DeviceAddr, src: &[u8]) -> Result<(), RunError> {
        let _no_run = self.no_run()?;
        Ok(self.platform.copy_to_device(dst, src)?)
    }

    /// Copies from the device.
    pub fn copy_from(&self, dst: &mut [u8], src: DeviceAddr) -> Result<(), RunError> {
        let _no_run = self.no_run()?;
        Ok(self.platform.copy_to_host(dst, src)?)
    }

    /// The device, once no run is on it.
    pub(crate) fn no_run(&self) -> Result<Claim<'_, Device>, RunError> {
        self.device.claim(IfBusy::Wait, "the device")
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
        // SAFETY: the caller's obligations, for as long as the run lasts, which is until `finalize` returns.
        unsafe { self.launch(callable, args) }?.wait().finalize()
    }

    /// The first half of [`ChipRuntime::run`], for who has something else to look at while the run is on the device.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// As there, until the run has ended.
    pub unsafe fn launch(&self, callable: CallableId, args: &RunArgs) -> Result<Launched<'_>, RunError> {
        // SAFETY: the caller's obligations.
        unsafe { self.begin(callable, args, None, None, IfBusy::Wait) }?.launch_if(IfBusy::Wait)
    }
}

fn not_registered() -> RunError {
    RunError::refused("the callable is not registered")
}

/// What is behind these locks is whole between statements, also where a holder panicked.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Frees the device memory that the runtime itself has allocated.
impl Drop for ChipRuntime {
    fn drop(&mut self) {
        let of_slots = self.slots.iter_mut().flat_map(|slot| slot.get_mut().take_memory());
        let of_device = self.device.get_mut().take_memory();
        for addr in of_slots.chain(of_device) {
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

/// Refuses fewer AICPU threads than can serve so many clusters.
pub(crate) fn require_served(
    clusters: usize,
    graph_runtime: GraphRuntime,
    threads: usize,
) -> Result<(), RunError> {
    let served = schedulers(graph_runtime, threads).unwrap_or(0) * OWN_CLUSTERS_MAX;
    if clusters > served {
        return Err(RunError::invalid(format!(
            "{clusters} clusters: {threads} AICPU threads can serve {served}"
        )));
    }
    Ok(())
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
