//! An orchestration, wherever it runs: its loaded object, what is checked before it is called, and what the operations
//! of its table work on.

use std::ffi::c_void;

use simpler_kernel_abi::{
    CoreKind, ORCHESTRATION_CONFIG, ORCHESTRATION_ENTRY, OrchestrationConfigure, OrchestrationEntry,
    SimplerChipArgs, SimplerOrchestrationConfig, SimplerTensor,
};
use simpler_log_abi::BINDER;
use simpler_platform::{DeviceAddr, LoadedObject, Platform, PlatformError, Profile};
use simpler_swimlane::{OrchPhase, PhaseNames, SimplerPhaseRecorder, Writer};

use crate::code;
use crate::graph::arena::{Awaited, Graph};
use crate::graph::builder::{Builder, TaskArg};
use crate::graph::fan::TaskKernels;
use crate::graph::{GraphError, Shape, TaskId};
use crate::operations::{self, CheckedTask, Operations, invalid};
use crate::run::ChipRuntime;

/// Callables of one chip (RUNTIME §1.6).
pub(crate) const CALLABLES_MAX: usize = 64;
/// One AIC and two AIVs make a cluster.
pub(crate) const CORES_PER_CLUSTER: [u32; 2] = [1, 2];

/// A registered callable as a run needs it.
#[derive(Debug)]
pub(crate) struct Callable {
    /// Its place in the table.
    pub(crate) slot: usize,
    pub(crate) name: String,
    pub(crate) hid: u64,
    pub(crate) digest: [u8; 32],
    pub(crate) orchestration: Vec<u8>,
    pub(crate) kernels: Vec<Kernel>,
    /// The named scopes of its orchestration.
    pub(crate) scopes: PhaseNames,
}

/// A kernel on the device.
#[derive(Debug)]
pub(crate) struct Kernel {
    pub(crate) name: String,
    /// The platform's value.
    pub(crate) value: u64,
    pub(crate) kind: CoreKind,
}

/// An orchestration that can be called.
pub(crate) struct LoadedOrchestration {
    /// Of the callable whose it is: another one may have its place by now.
    digest: [u8; 32],
    /// Kept for as long as the functions may be called.
    _object: Box<dyn LoadedObject>,
    entry: OrchestrationEntry,
    configure: Option<OrchestrationConfigure>,
}

/// The objects that were loaded so far, by callable slot, kept from run to run.
#[derive(Default)]
pub(crate) struct ObjectTable {
    loaded: Vec<Option<LoadedOrchestration>>,
}

impl ObjectTable {
    /// The callable's object, if it is loaded.
    pub(crate) fn get(&self, callable: &Callable) -> Option<&LoadedOrchestration> {
        self.loaded.get(callable.slot)?.as_ref().filter(|loaded| loaded.digest == callable.digest)
    }

    /// Keeps what `load` gives of the callable's bytes, hands it the log, and looks its symbols up.
    ///
    /// # Errors
    /// The loader's words, the name of the symbol that is missing, or why the object refuses the log.
    pub(crate) fn load(
        &mut self,
        callable: &Callable,
        load: impl FnOnce(&[u8], &str) -> Result<Box<dyn LoadedObject>, PlatformError>,
    ) -> Result<(), String> {
        let object = load(&callable.orchestration, &callable.name).map_err(|error| error.to_string())?;
        if let Some(binder) = object.symbol(BINDER) {
            // SAFETY: the header gives the symbol of this name this type.
            unsafe { simpler_host_log::bind_object(binder, &callable.name) }?;
        }
        let entry = object.symbol(ORCHESTRATION_ENTRY).ok_or_else(|| {
            format!("{}: the orchestration object has no {ORCHESTRATION_ENTRY}", callable.name)
        })?;
        // SAFETY: the header gives the symbol of this name this type.
        let entry = unsafe { std::mem::transmute::<*const (), OrchestrationEntry>(entry) };
        let configure = object.symbol(ORCHESTRATION_CONFIG).map(|configure| {
            // SAFETY: as above.
            unsafe { std::mem::transmute::<*const (), OrchestrationConfigure>(configure) }
        });
        if self.loaded.len() <= callable.slot {
            self.loaded.resize_with(callable.slot + 1, || None);
        }
        let digest = callable.digest;
        self.loaded[callable.slot] = Some(LoadedOrchestration { digest, _object: object, entry, configure });
        Ok(())
    }
}

/// The arguments of a chip entry; they live as long as the slices.
pub(crate) fn chip_args(tensors: &[SimplerTensor], scalars: &[u64]) -> SimplerChipArgs {
    SimplerChipArgs {
        tensors: tensors.as_ptr(),
        scalars: scalars.as_ptr(),
        tensor_count: tensors.len() as u32,
        scalar_count: scalars.len() as u32,
    }
}

impl LoadedOrchestration {
    /// Asks the configuration function, if there is one, and counts the arguments.
    pub(crate) fn validate(&self, callable: &Callable, args: &SimplerChipArgs) -> Result<(), GraphError> {
        let mut config = SimplerOrchestrationConfig {
            struct_size: size_of::<SimplerOrchestrationConfig>() as u32,
            tensors_min: 0,
            scalars_min: 0,
        };
        let configured = self.configure.map_or(0, |configure| {
            // SAFETY: the object is loaded, the symbol has this type, and the struct lives through the call.
            unsafe { configure(&raw mut config) }
        });
        if configured != 0 {
            return Err(invalid(format_args!("{}: its configuration returned {configured}", callable.name)));
        }
        if args.tensor_count < config.tensors_min || args.scalar_count < config.scalars_min {
            return Err(invalid(format_args!(
                "{}: {} tensors and {} scalars were given, at least {} and {} are expected",
                callable.name, args.tensor_count, args.scalar_count, config.tensors_min, config.scalars_min
            )));
        }
        Ok(())
    }

    /// Calls the entry over `orchestration`, which then holds what was submitted, and fails it if the entry says so.
    pub(crate) fn call(&self, orchestration: &mut Orchestration<'_>, args: &SimplerChipArgs) {
        let table = operations::table::<Orchestration<'_>>();
        let run = std::ptr::from_mut(orchestration).cast();
        // SAFETY: the object is loaded and the symbol has this type; the table's implementation is the one behind the
        // pointer, and it is not touched until the call returns.
        let returned = unsafe { (self.entry)(&raw const table, run, std::ptr::from_ref(args)) };
        // An orchestration that found the run failed returns what it likes: whoever failed the run has said why.
        if returned != 0 && !orchestration.is_fatal() {
            let text = format!("{}: the orchestration returned {returned}", orchestration.callable.name);
            orchestration.fail(GraphError { code: code::EXPLICIT_FATAL, text });
        }
        let left_open = orchestration.builder.check_all_ended();
        if let Err(error) = left_open
            && !orchestration.is_fatal()
        {
            orchestration.fail(error);
        }
    }
}

/// Who drains the graph while it is filled, and must be told.
pub(crate) trait Drain {
    /// A task of this shape is ready.
    fn ready(&self, graph: &Graph<'_>, shape: Shape);
    /// The run has failed.
    fn failed(&self);
    /// Waits until something has come.
    fn wait_for(&self, graph: &Graph<'_>, awaited: Awaited) -> Result<(), GraphError>;
    /// Copies from device memory that nobody writes.
    fn read(&self, addr: u64, to: &mut [u8]) -> Result<(), GraphError>;
    /// Copies to device memory that nobody uses.
    fn write(&self, addr: u64, from: &[u8]) -> Result<(), GraphError>;
}

/// Nobody does: the graph is drained later, on the device of this runtime.
pub(crate) struct Later<'a>(pub(crate) &'a ChipRuntime);

impl Later<'_> {
    /// Another run may be on the device, and use what this one looks at: that one is waited for, or, if it is this
    /// thread's own, the access refused.
    fn without_a_run(
        &self,
        copy: impl FnOnce(&dyn Platform) -> Result<(), PlatformError>,
    ) -> Result<(), GraphError> {
        let _no_run = self.0.no_run().map_err(|error| invalid(error.text))?;
        copy(&*self.0.platform).map_err(invalid)
    }
}

impl Drain for Later<'_> {
    fn ready(&self, _: &Graph<'_>, _: Shape) {}
    fn failed(&self) {}
    fn wait_for(&self, graph: &Graph<'_>, awaited: Awaited) -> Result<(), GraphError> {
        let waits_for = match awaited {
            _ if awaited.has_come(graph) => return Ok(()),
            Awaited::Task(task) => format!("task {} uses the tensor", graph.task_in(task)),
            Awaited::Scope(_) => "the tasks of a scope that has ended are not done".to_owned(),
        };
        Err(invalid(format_args!(
            "{waits_for}, and host_build_graph starts no task before the orchestration has ended"
        )))
    }
    fn read(&self, addr: u64, to: &mut [u8]) -> Result<(), GraphError> {
        self.without_a_run(|platform| platform.copy_to_host(to, DeviceAddr(addr)))
    }
    fn write(&self, addr: u64, from: &[u8]) -> Result<(), GraphError> {
        self.without_a_run(|platform| platform.copy_to_device(DeviceAddr(addr), from))
    }
}

/// What the operations table works on.
pub(crate) struct Orchestration<'a> {
    pub(crate) graph: Graph<'a>,
    pub(crate) drain: &'a dyn Drain,
    pub(crate) profile: &'a Profile,
    pub(crate) callable: &'a Callable,
    pub(crate) builder: &'a mut Builder,
    pub(crate) arguments: &'a mut Vec<TaskArg>,
    pub(crate) failed: bool,
    /// Where its submits are recorded, if they are.
    pub(crate) submits: Option<&'a mut dyn SubmitTrack>,
    /// Where its named scopes are recorded, if they are.
    pub(crate) scopes: Option<&'a SimplerPhaseRecorder<'a>>,
}

/// Records each submit of an orchestration.
pub(crate) trait SubmitTrack {
    /// The clock that it is recorded by.
    fn now(&self) -> u64;
    /// A task was submitted just now, by a call that began at `start`.
    fn submitted(&mut self, task: TaskId, start: u64);
}

/// Records them on the device.
pub(crate) struct DeviceSubmits<'a> {
    pub(crate) writer: Writer<'a, OrchPhase>,
    pub(crate) cycles: &'a dyn Fn() -> u64,
    pub(crate) submits: u32,
}

impl SubmitTrack for DeviceSubmits<'_> {
    fn now(&self) -> u64 {
        (self.cycles)()
    }

    fn submitted(&mut self, task: TaskId, start: u64) {
        let (end, submit_idx) = (self.now(), self.submits);
        self.submits += 1;
        // What is lost was counted in the pool.
        self.writer.append(OrchPhase { start, end, task_id: task.raw(), submit_idx, reserved: 0 });
    }
}

/// Notes an error of the orchestration, of which the first counts, and stops the schedulers. Where the run has failed
/// already, whoever failed it has said why, and this only follows from it.
pub(crate) fn report(graph: &Graph<'_>, drain: &dyn Drain, error: &GraphError) {
    if graph.is_fatal() {
        return;
    }
    graph.control().orchestrator_error.set(error.code, 0, &error.text);
    graph.set_fatal();
    drain.failed();
}

impl Operations for Orchestration<'_> {
    fn kernel_kind(&self, kernel: usize) -> Option<CoreKind> {
        self.callable.kernels.get(kernel).map(|kernel| kernel.kind)
    }

    fn take_arguments(&mut self) -> Vec<TaskArg> {
        std::mem::take(self.arguments)
    }

    fn return_arguments(&mut self, arguments: Vec<TaskArg>) {
        *self.arguments = arguments;
    }

    fn submit(&mut self, task: CheckedTask<'_>) -> Result<TaskId, GraphError> {
        if self.failed {
            return Err(invalid("submit_task: the run has failed"));
        }
        let Self { graph, drain, .. } = *self;
        let start = self.submits.as_ref().map_or(0, |track| track.now());
        let values = task.kernels.map(|kernel| kernel.map(|kernel| self.callable.kernels[kernel].value));
        let mut new = task.into_new(TaskKernels::new(values));
        let submitted =
            self.builder.submit(&graph, &mut new, &|scope| drain.wait_for(&graph, Awaited::Scope(scope)))?;
        if let Some(shape) = submitted.ready {
            drain.ready(&graph, shape);
        }
        if let Some(track) = &mut self.submits {
            track.submitted(submitted.task, start);
        }
        Ok(submitted.task)
    }

    fn settle(&mut self, tensor: &SimplerTensor, and_reads: bool) -> Result<(), GraphError> {
        if self.failed {
            return Err(invalid("the run has failed"));
        }
        self.builder.check_owner(&self.graph, tensor)?;
        let mut result = Ok(());
        self.builder.using(&self.graph, tensor, and_reads, &mut |task| {
            if result.is_ok() {
                result = self.drain.wait_for(&self.graph, Awaited::Task(task));
            }
        });
        result
    }

    fn begin_scope(&mut self) -> Result<(), GraphError> {
        let Self { graph, drain, .. } = *self;
        self.builder.begin_scope(&graph, &|scope| drain.wait_for(&graph, Awaited::Scope(scope)))
    }

    fn end_scope(&mut self) -> Result<(), GraphError> {
        self.builder.end_scope(&self.graph)
    }

    fn read_memory(&self, addr: u64, to: &mut [u8]) -> Result<(), GraphError> {
        self.drain.read(addr, to)
    }

    fn write_memory(&self, addr: u64, from: &[u8]) -> Result<(), GraphError> {
        self.drain.write(addr, from)
    }

    fn core_count(&self, kind: CoreKind) -> u32 {
        self.profile.clusters as u32 * CORES_PER_CLUSTER[kind as usize]
    }

    fn is_fatal(&self) -> bool {
        self.failed || self.graph.is_fatal()
    }

    fn fail(&mut self, error: GraphError) {
        self.failed = true;
        report(&self.graph, self.drain, &error);
    }

    fn phase_recorder(&self) -> *mut c_void {
        self.scopes.map_or(std::ptr::null_mut(), |scopes| scopes.as_ptr().cast())
    }
}
