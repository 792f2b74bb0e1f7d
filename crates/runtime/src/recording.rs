//! An orchestration's tasks without a device: for benchmarks that run the same kernels in a plain loop.
//!
//! The orchestration runs against a table that only records. The tasks go through the same graph as in a run, so
//! their memory and their dependencies are the run's own; a task's *stage* is the length of the longest chain of
//! dependencies before it, and the tasks of one stage may run in any order.

use std::collections::HashMap;
use std::path::Path;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use simpler_host_log::bind_object;
use simpler_kernel_abi::{
    CoreKind, KERNEL_ENTRY, KernelEntry, ORCHESTRATION_ENTRY, OrchestrationEntry, SimplerChipArgs,
    SimplerKernelArgs, SimplerTensor,
};
use simpler_kernel_compiler::CallableObjects;
use simpler_log_abi::BINDER;
use simpler_platform::Profile;

use crate::code;
use crate::graph::arena::{ArenaLayout, Graph};
use crate::graph::builder::{Builder, TaskArg};
use crate::graph::fan::{PLACES, TaskKernels};
use crate::graph::host_arena::HostArena;
use crate::graph::{GraphError, Limits, TaskId};
use crate::operations::{self, CheckedTask, Operations, invalid};
use crate::orchestration::CORES_PER_CLUSTER;
use crate::run::RunError;

/// A recorded task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedTask {
    /// Its kernels by index in the callable's list: for the AIC and the AIVs of a cluster. None for a dummy task.
    pub kernels: [Option<usize>; PLACES],
    /// How often each of them runs.
    pub blocks: u32,
    /// The tensors as the kernel sees them, outputs allocated.
    pub tensors: Vec<SimplerTensor>,
    /// The scalars.
    pub scalars: Vec<u64>,
    /// The tasks that it depends on, each once, by index in the recording.
    pub predecessors: Vec<usize>,
    /// Longest chain of dependencies before it.
    pub stage: usize,
    slot: u32,
}

/// A callable's objects, opened in this process.
#[derive(Debug)]
pub struct HostCallable {
    entry: OrchestrationEntry,
    kernels: Vec<(KernelEntry, CoreKind)>,
    /// Last: the functions above lie in them.
    _libraries: Vec<Library>,
}

impl HostCallable {
    /// Opens the objects.
    ///
    /// # Errors
    /// Code −1 with the loader's words.
    ///
    /// # Safety
    /// - The objects are what the compiler of this workspace made of sources that keep to the headers' rules.
    pub unsafe fn open(objects: &CallableObjects) -> Result<Self, RunError> {
        let mut libraries = Vec::new();
        // SAFETY: the caller's obligation; the header gives the symbol of this name this type, and the binder, if
        // there is one, its own.
        let entry = unsafe { open(&objects.orchestration, ORCHESTRATION_ENTRY, &mut libraries) }?;
        if let Some(orchestration) = libraries.first() {
            // SAFETY: only the address is taken.
            let binder = unsafe { orchestration.get::<*const ()>(BINDER) }.ok();
            if let Some(binder) = binder {
                let what = objects.orchestration.display().to_string();
                // SAFETY: the symbol of this name has the binder's type.
                unsafe { bind_object(binder.as_raw_ptr().cast_const().cast(), &what) }
                    .map_err(RunError::refused)?;
            }
        }
        let mut kernels = Vec::new();
        for (path, kind) in &objects.kernels {
            // SAFETY: as above.
            kernels.push((unsafe { open(path, KERNEL_ENTRY, &mut libraries) }?, *kind));
        }
        Ok(Self { entry, kernels, _libraries: libraries })
    }

    /// Runs the orchestration and records what it submits. `tensors` are device views whose addresses are memory of
    /// this process.
    ///
    /// # Errors
    /// The orchestration's own failure, as a run would give it.
    ///
    /// # Safety
    /// - The orchestration finds what it expects in `tensors` and `scalars`.
    pub unsafe fn record(
        &self,
        profile: &Profile,
        limits: Limits,
        tensors: &[SimplerTensor],
        scalars: &[u64],
    ) -> Result<Recording, RunError> {
        let memory = HostArena::whole(ArenaLayout::new(limits, profile.cores())?);
        let mut recorder = Recorder {
            callable: self,
            clusters: profile.clusters as u32,
            graph: memory.graph(),
            builder: Builder::ahead(),
            arguments: Vec::new(),
            tasks: Vec::new(),
            in_slot: HashMap::new(),
            failure: None,
        };
        recorder.builder.clear(&recorder.graph);
        let args = SimplerChipArgs {
            tensors: tensors.as_ptr(),
            scalars: scalars.as_ptr(),
            tensor_count: tensors.len() as u32,
            scalar_count: scalars.len() as u32,
        };
        let table = operations::table::<Recorder<'_>>();
        // SAFETY: the symbol has this type; the table's implementation is the one behind the pointer, and it is not
        // touched until the call returns.
        let returned = unsafe { (self.entry)(&raw const table, (&raw mut recorder).cast(), &raw const args) };
        let left_open = recorder.builder.check_all_ended();
        let Recorder { tasks, failure, .. } = recorder;
        match failure {
            Some(error) => Err(error.into()),
            None if returned != 0 => {
                let text = format!("the orchestration returned {returned}");
                Err(GraphError { code: code::EXPLICIT_FATAL, text }.into())
            }
            None => {
                left_open?;
                let stages = tasks.iter().map(|task| task.stage + 1).max().unwrap_or(0);
                let mut by_stage = vec![Vec::new(); stages];
                for (index, task) in tasks.iter().enumerate() {
                    by_stage[task.stage].push(index);
                }
                Ok(Recording { tasks, stages: by_stage, memory })
            }
        }
    }

    /// Calls a recorded task's kernels on this thread, block after block: kernels that wait for each other never
    /// return, and a predicate is not looked at.
    ///
    /// # Safety
    /// - `recording` was made by this callable, and the memory of its tensors is still there.
    /// - The tasks of all earlier stages have returned, and nothing else touches what this one writes.
    pub unsafe fn call(&self, recording: &Recording, task: usize) {
        let RecordedTask { kernels, blocks, .. } = &recording.tasks[task];
        for block in 0..*blocks {
            let args = recording.kernel_args(task, block);
            for kernel in kernels.iter().flatten() {
                let (kernel, _) = self.kernels[*kernel];
                // SAFETY: the caller's obligations; the arguments live in the recording.
                unsafe { kernel(&raw const args) };
            }
        }
    }
}

/// Opens an object and finds its one symbol.
///
/// # Safety
/// - Loading the object is harmless, and its symbol `name` has the type `T`, a function pointer.
unsafe fn open<T: Copy>(path: &Path, name: &str, libraries: &mut Vec<Library>) -> Result<T, RunError> {
    let refuse = |error: libloading::Error| RunError::refused(format!("{}: {error}", path.display()));
    // SAFETY: the caller's obligation.
    let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.map_err(refuse)?;
    // SAFETY: the caller's obligation.
    let symbol = *unsafe { library.get::<T>(name) }.map_err(refuse)?;
    libraries.push(library);
    Ok(symbol)
}

/// What one run of the orchestration submitted.
#[derive(Debug)]
pub struct Recording {
    /// The tasks in the order in which they were submitted.
    pub tasks: Vec<RecordedTask>,
    /// The tasks by stage.
    pub stages: Vec<Vec<usize>>,
    memory: HostArena,
}

impl Recording {
    /// The arguments of a block of a task, as its kernels receive them; they live as long as the recording.
    pub fn kernel_args(&self, task: usize, block: u32) -> SimplerKernelArgs {
        let graph = self.memory.graph();
        graph.kernel_args(&graph.tasks.slot(self.tasks[task].slot).work(), block)
    }
}

/// Whoever waits for a scope waits for ever. A builder of graphs that run later asks for none.
fn nothing_runs(_: u32) -> Result<(), GraphError> {
    Err(invalid("nothing runs yet"))
}

/// What stands behind the recording table.
struct Recorder<'a> {
    callable: &'a HostCallable,
    clusters: u32,
    graph: Graph<'a>,
    builder: Builder,
    arguments: Vec<TaskArg>,
    tasks: Vec<RecordedTask>,
    /// The index of each task by its slot.
    in_slot: HashMap<u32, usize>,
    failure: Option<GraphError>,
}

impl Operations for Recorder<'_> {
    fn kernel_kind(&self, kernel: usize) -> Option<CoreKind> {
        self.callable.kernels.get(kernel).map(|(_, kind)| *kind)
    }

    fn take_arguments(&mut self) -> Vec<TaskArg> {
        std::mem::take(&mut self.arguments)
    }

    fn return_arguments(&mut self, arguments: Vec<TaskArg>) {
        self.arguments = arguments;
    }

    fn submit(&mut self, task: CheckedTask<'_>) -> Result<TaskId, GraphError> {
        let CheckedTask { kernels, blocks, .. } = task;
        let values = TaskKernels::new(kernels.map(|kernel| kernel.map(|kernel| kernel as u64)));
        let scalars = task.scalars.to_vec();
        let mut new = task.into_new(values);
        let submitted = self.builder.submit(&self.graph, &mut new, &nothing_runs)?;
        let slot = self.graph.slot_of(submitted.task);
        self.in_slot.insert(slot, self.tasks.len());
        let predecessors: Vec<_> =
            self.builder.predecessors().iter().map(|slot| self.in_slot[slot]).collect();
        let before = predecessors.iter().map(|before| self.tasks[*before].stage + 1).max();
        self.tasks.push(RecordedTask {
            kernels,
            blocks,
            tensors: new.arguments.iter().map(|argument| argument.tensor).collect(),
            scalars,
            predecessors,
            stage: before.unwrap_or(0),
            slot,
        });
        Ok(submitted.task)
    }

    fn settle(&mut self, tensor: &SimplerTensor, and_reads: bool) -> Result<(), GraphError> {
        self.builder.check_owner(&self.graph, tensor)?;
        let mut used = None;
        self.builder.using(&self.graph, tensor, and_reads, &mut |task| {
            if !self.graph.tasks.is_complete(task) {
                used = Some(task);
            }
        });
        match used {
            None => Ok(()),
            Some(task) => {
                let task = self.graph.task_in(task);
                Err(invalid(format_args!("task {task} uses the tensor, and nothing runs yet")))
            }
        }
    }

    fn begin_scope(&mut self) -> Result<(), GraphError> {
        self.builder.begin_scope(&self.graph, &nothing_runs)
    }

    fn end_scope(&mut self) -> Result<(), GraphError> {
        self.builder.end_scope(&self.graph)
    }

    fn read_memory(&self, addr: u64, to: &mut [u8]) -> Result<(), GraphError> {
        // SAFETY: `record`'s obligation: the addresses are memory of this process that the orchestration expects.
        to.copy_from_slice(unsafe { std::slice::from_raw_parts(addr as *const u8, to.len()) });
        Ok(())
    }

    fn write_memory(&self, addr: u64, from: &[u8]) -> Result<(), GraphError> {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(addr as *mut u8, from.len()) }.copy_from_slice(from);
        Ok(())
    }

    fn core_count(&self, kind: CoreKind) -> u32 {
        self.clusters * CORES_PER_CLUSTER[kind as usize]
    }

    fn is_fatal(&self) -> bool {
        self.failure.is_some()
    }

    fn fail(&mut self, error: GraphError) {
        self.failure.get_or_insert(error);
    }
}
