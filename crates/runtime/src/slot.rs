//! What a run has from its binding to its end: memory on the device that the next run of the same slot uses again.
//!
//! *bind* gives every argument a device address and finds or builds the runtime arena; the launch works in both;
//! *validate* copies results back. A slot is one run's at a time, so that with two of them a run can be bound while
//! another one is on the device.

use simpler_device_phase::{PhaseBufferLayout, Phases, reduce, tail_used};
use simpler_host_log::{log_error, span};
use simpler_kernel_abi::{
    ArgUse, CHIP_SCALARS_MAX, CHIP_TENSORS_MAX, DEVICE_MEMORY, HOST_MEMORY, SimplerTensor,
};
use simpler_platform::DeviceAddr;
use simpler_swimlane::{HostOrchestration, Level};

use crate::graph::arena::ArenaLayout;
use crate::host_graph::HostGraph;
use crate::orchestration::Callable;
use crate::run::{ChipArg, ChipRuntime, GraphRuntime, RunArgs, RunError};

/// Where each staged argument starts (RUNTIME §2.2).
const STAGING_ALIGNMENT: usize = 1024;

/// See the module. Its memory is made when a run first needs it, and stays.
#[derive(Default)]
pub(crate) struct Slot {
    staging: Option<DeviceBuffer>,
    arena: Option<CachedArena>,
    host_graph: Option<HostGraph>,
    phases: Option<PhaseBuffer>,
    leases: Vec<Lease>,
    /// Runs that have had the slot.
    pub(crate) generation: u64,
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

/// What bind gives to the launch.
pub(crate) struct Bound {
    pub(crate) layout: ArenaLayout,
    pub(crate) arena: DeviceAddr,
    pub(crate) tensors: Vec<SimplerTensor>,
}

impl Slot {
    /// Binds a callable and its arguments.
    pub(crate) fn bind(
        &mut self,
        runtime: &ChipRuntime,
        callable: &Callable,
        args: &RunArgs,
    ) -> Result<Bound, RunError> {
        let names = runtime.names;
        let layout = runtime.layout_with(&args.config.rings)?;
        let tensors = {
            let _span = span!(names.bind_args, ntensor = args.tensors.len());
            self.bind_args(runtime, args)?
        };
        let arena = {
            let _span = span!(names.bind_prebuilt);
            self.bind_prebuilt(runtime, &layout)?
        };
        if runtime.graph_runtime == GraphRuntime::HostBuildGraph {
            let host_graph = self.host_graph.get_or_insert_with(|| HostGraph::new(layout));
            host_graph.set_layout(layout);
            {
                let _span = span!(names.bind_host_orch);
                let records = args.config.swimlane >= Level::OrchestratorPhases;
                host_graph.build(runtime, callable, arena, (&tensors, &args.scalars), records)?;
            }
            let _span = span!(names.bind_graph_upload);
            host_graph.upload(&*runtime.platform, arena)?;
        }
        Ok(Bound { layout, arena, tensors })
    }

    /// Gives every tensor a device address: its own, or a slice of the staging buffer.
    fn bind_args(&mut self, runtime: &ChipRuntime, args: &RunArgs) -> Result<Vec<SimplerTensor>, RunError> {
        self.leases.clear();
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
        let mut next = self.staging(runtime, staged_bytes)?.0;
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
                    // SAFETY: not null, and the caller vouches for the buffer (see `ChipRuntime::run`).
                    let host = unsafe { std::slice::from_raw_parts(tensor.addr as *const u8, bytes) };
                    runtime.platform.copy_to_device(DeviceAddr(bound.addr), host)?;
                }
                if matches!(arg_use, ArgUse::Output | ArgUse::OutputExisting | ArgUse::InOut) {
                    self.leases.push(Lease { host: tensor.addr, device: bound.addr, bytes });
                }
            }
            tensors.push(bound);
        }
        Ok(tensors)
    }

    /// The staging buffer, grown to `bytes` if it is smaller. It never shrinks.
    fn staging(&mut self, runtime: &ChipRuntime, bytes: usize) -> Result<DeviceAddr, RunError> {
        if bytes == 0 {
            return Ok(DeviceAddr(0));
        }
        if let Some(buffer) = &self.staging
            && buffer.bytes >= bytes
        {
            return Ok(buffer.addr);
        }
        if let Some(small) = self.staging.take() {
            runtime.platform.release(small.addr)?;
        }
        let bytes = bytes.next_power_of_two();
        let addr = runtime.platform.allocate(bytes)?;
        self.staging = Some(DeviceBuffer { addr, bytes });
        Ok(addr)
    }

    /// The runtime arena: built and uploaded once, then a cache hit for runs of the same layout.
    fn bind_prebuilt(&mut self, runtime: &ChipRuntime, layout: &ArenaLayout) -> Result<DeviceAddr, RunError> {
        let key = layout.key();
        if let Some(cached) = &self.arena
            && cached.key == key
        {
            return Ok(cached.buffer.addr);
        }
        if let Some(other) = self.arena.take() {
            runtime.platform.release(other.buffer.addr)?;
        }
        let bytes = layout.total_bytes();
        let buffer = DeviceBuffer { addr: runtime.platform.allocate(bytes)?, bytes };
        if let Err(error) = runtime.platform.copy_to_device(buffer.addr, &layout.image()) {
            runtime.platform.release(buffer.addr)?;
            return Err(error.into());
        }
        let addr = buffer.addr;
        self.arena = Some(CachedArena { key, buffer });
        Ok(addr)
    }

    /// Makes what the first run would make: the arena, and where its threads stamp.
    pub(crate) fn prewarm(&mut self, runtime: &ChipRuntime, layout: &ArenaLayout) -> Result<(), RunError> {
        self.bind_prebuilt(runtime, layout)?;
        self.phase_buffer(runtime)?;
        Ok(())
    }

    /// What the host did of the last graph that it built, where that was recorded.
    pub(crate) fn host_orchestration(&self) -> Option<&HostOrchestration> {
        self.host_graph.as_ref()?.recorded()
    }

    /// Where a run's threads stamp their phases. `reset`: what the last run has stamped is forgotten.
    pub(crate) fn phases_at(&mut self, runtime: &ChipRuntime, reset: bool) -> Result<DeviceAddr, RunError> {
        let phases = self.phase_buffer(runtime)?;
        if reset {
            runtime.platform.copy_to_device(phases.addr, &phases.reset_image)?;
        }
        Ok(phases.addr)
    }

    /// The phase buffer, made when a run first needs it.
    fn phase_buffer(&mut self, runtime: &ChipRuntime) -> Result<&mut PhaseBuffer, RunError> {
        let buffer = match self.phases.take() {
            Some(buffer) => buffer,
            None => {
                let layout = PhaseBufferLayout::new(runtime.platform.profile().aicpu_launched);
                let mut reset_image = vec![0; layout.bytes()];
                layout
                    .write_reset_image(&mut reset_image)
                    .map_err(|error| RunError::refused(format!("phase buffer: {error}")))?;
                let readback = reset_image.clone();
                let addr = runtime.platform.allocate(layout.bytes())?;
                PhaseBuffer { addr, layout, reset_image, readback }
            }
        };
        Ok(self.phases.insert(buffer))
    }

    /// Reads back what the device has stamped: the slots only if there are any.
    pub(crate) fn read_phases(&mut self, runtime: &ChipRuntime) -> Result<Phases, RunError> {
        let buffer = self.phase_buffer(runtime)?;
        let threads = buffer.layout.threads();
        let (front, tail) = buffer.readback.split_at_mut(buffer.layout.tail_offset());
        runtime.platform.copy_to_host(front, buffer.addr)?;
        let mut phases = reduce(front, threads);
        if tail_used(front) {
            let at = DeviceAddr(buffer.addr.0 + buffer.layout.tail_offset() as u64);
            runtime.platform.copy_to_host(tail, at)?;
            phases.reduce_slots(tail, threads);
        }
        Ok(phases)
    }

    /// Copies results back, or says in one record why there are none.
    pub(crate) fn validate(
        &mut self,
        runtime: &ChipRuntime,
        callable: &Callable,
        failure: Option<RunError>,
    ) -> Result<(), RunError> {
        if let Some(failure) = failure {
            log_error!(
                "run of {} failed with code {}: {}; {} results are not copied back",
                callable.name,
                failure.code,
                failure.text,
                self.leases.len()
            );
            self.leases.clear();
            return Err(failure);
        }
        let mut result = Ok(());
        for lease in self.leases.drain(..) {
            // SAFETY: not null, and the caller vouches for the buffer and lends it for the run (see `ChipRuntime::run`).
            let host = unsafe { std::slice::from_raw_parts_mut(lease.host as *mut u8, lease.bytes) };
            result = result.and(runtime.platform.copy_to_host(host, DeviceAddr(lease.device)));
        }
        Ok(result?)
    }

    /// The error that the device's threads left in the control block: the orchestrator's before the schedulers'.
    pub(crate) fn device_failure(&self, runtime: &ChipRuntime, status: i32) -> RunError {
        let mut control = vec![0; ArenaLayout::control_bytes()];
        let read = self
            .arena
            .as_ref()
            .map(|arena| runtime.platform.copy_to_host(&mut control, arena.buffer.addr).is_ok());
        if read == Some(true)
            && let Some(failure) = ArenaLayout::failures(&control).into_iter().flatten().next()
        {
            return RunError { code: -(failure.code as i32), text: failure.text };
        }
        RunError { code: status, text: format!("the device ended with status {status}") }
    }

    /// The device memory that it has, to be released.
    pub(crate) fn take_memory(&mut self) -> impl Iterator<Item = DeviceAddr> + use<> {
        let staging = self.staging.take().map(|buffer| buffer.addr);
        let arena = self.arena.take().map(|arena| arena.buffer.addr);
        let phases = self.phases.take().map(|buffer| buffer.addr);
        [staging, arena, phases].into_iter().flatten()
    }
}
