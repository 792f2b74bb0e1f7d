//! The orchestrator's side of the graph: from a task's tensors to memory, dependencies and readiness.

use simpler_device_phase::TaskAttrs;
use simpler_kernel_abi::{ArgUse, SimplerTensor};

use super::arena::{Graph, argument_bytes_of};
use super::fan::{TaskKernels, TaskWork};
use super::regions::{Region, Regions, RegionsFull};
use super::{GraphError, OUTPUT_ALIGNMENT, REGIONS_MAX, Shape};
use crate::code;

/// One tensor of a task.
#[derive(Clone, Copy, Debug)]
pub struct TaskArg {
    /// The view. Of an output the builder sets `addr` and `owner_task`.
    pub tensor: SimplerTensor,
    /// How the task uses it.
    pub arg_use: ArgUse,
}

/// A task as it is submitted.
#[derive(Debug)]
pub struct NewTask<'t> {
    /// Its kernels; none makes it a dummy task.
    pub kernels: TaskKernels,
    /// How often it runs, 1 or more.
    pub blocks: u32,
    /// Its tensors; outputs are allocated.
    pub arguments: &'t mut [TaskArg],
    /// Its scalars.
    pub scalars: &'t [u64],
    /// Earlier tasks that it waits for, besides those that follow from its tensors.
    pub deps: &'t [i64],
    /// How it is scheduled and timed.
    pub attrs: TaskAttrs,
    /// The tensor whose first word is its predicate, if the attributes say that it has one.
    pub predicate: u8,
}

/// What became of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Submitted {
    /// Its index, from 0 upwards.
    pub task: u32,
    /// It waits for nothing and is in a ready queue, from where a scheduler with cores for this shape can take it.
    pub ready: Option<Shape>,
}

/// What the orchestrator alone knows of the graph it fills. One for many runs.
#[derive(Debug, Default)]
pub struct Builder {
    regions: Regions,
    next_task: u32,
    next_edge: u32,
    argument_bytes_used: u64,
    heap_bytes_used: u64,
    predecessors: Vec<u32>,
    /// Per task, the last task (plus one) that was found to depend on it: each predecessor counts once.
    counted_for: Vec<u32>,
}

impl Builder {
    /// A builder for a graph without tasks.
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets the last run's tasks, keeps the memory.
    pub fn clear(&mut self) {
        self.regions.clear();
        self.counted_for.clear();
        self.next_task = 0;
        self.next_edge = 0;
        self.argument_bytes_used = 0;
        self.heap_bytes_used = 0;
    }

    /// Tasks submitted so far, edges and bytes of argument memory in use.
    pub(crate) fn used(&self) -> [usize; 3] {
        [self.next_task as usize, self.next_edge as usize, self.argument_bytes_used as usize]
    }

    /// The tasks that the last submitted task depends on, each once.
    pub fn predecessors(&self) -> &[u32] {
        &self.predecessors
    }

    /// Adds a task: allocates its outputs, finds out what it depends on, and makes it ready if nothing; one without
    /// kernels is then finished.
    ///
    /// # Errors
    /// When a limit of the run is reached or a tensor leaves its buffer. The graph then holds the tasks before, and
    /// the run must be failed.
    pub fn submit(&mut self, graph: &Graph<'_>, new: &mut NewTask<'_>) -> Result<Submitted, GraphError> {
        let NewTask { kernels, blocks, ref mut arguments, scalars, deps, attrs, predicate } = *new;
        let task = self.next_task;
        let window = graph.tasks.slots.len();
        if task as usize == window {
            let text = format!("the task window is full: a run has at most {window} tasks");
            return Err(GraphError { code: code::FLOW_CONTROL, text });
        }
        self.allocate_outputs(graph, task, arguments)?;
        check_predicate(task, arguments, attrs, predicate)?;
        let offset = self.reserve_arguments(graph, arguments.len(), scalars.len())?;
        graph.store_arguments(offset, arguments.iter().map(|argument| &argument.tensor), scalars);
        self.find_predecessors(task, arguments, deps)?;

        let predecessors = self.predecessors.len() as u32;
        let work = TaskWork {
            kernels,
            arguments: offset,
            tensors: arguments.len() as u8,
            scalars: scalars.len() as u8,
            attrs,
            predicate,
            blocks,
        };
        let slot = graph.tasks.slot(task);
        slot.prepare(&work, predecessors);
        let edges = graph.tasks.edges.len();
        // The orchestrator's own count, and one for each predecessor that has already completed.
        let mut met = 1;
        for predecessor in &self.predecessors {
            if self.next_edge as usize == edges {
                let text = format!("the dependency pool is full: a run has at most {edges} dependencies");
                return Err(GraphError { code: code::DEPENDENCIES_FULL, text });
            }
            if graph.tasks.link(*predecessor, self.next_edge, task) {
                self.next_edge += 1;
            } else {
                met += 1;
            }
        }
        self.next_task += 1;
        // Before the task can complete: nobody may see more tasks completed than submitted.
        graph.set_submitted(self.next_task);
        let mut ready = None;
        if slot.arrive(met) {
            ready = kernels.shape();
            match ready {
                Some(shape) => graph.push_ready(task, shape, work.starts_together()),
                None => {
                    // Nothing was linked to it yet.
                    graph.tasks.complete(task, |_| ());
                    graph.count_completed();
                }
            }
        }
        Ok(Submitted { task, ready })
    }

    /// Tells each task so far that writes any of a view, and, `read` as well, that has read it since.
    pub(crate) fn using(&self, tensor: &SimplerTensor, read: bool, each: &mut impl FnMut(u32)) {
        let start = tensor.start_offset;
        self.regions.using(Region { base: tensor.addr, start, end: start + tensor.extent }, read, each);
    }

    fn allocate_outputs(
        &mut self,
        graph: &Graph<'_>,
        task: u32,
        arguments: &mut [TaskArg],
    ) -> Result<(), GraphError> {
        let (heap, heap_bytes) = graph.heap();
        for argument in arguments {
            let tensor = &mut argument.tensor;
            if argument.arg_use == ArgUse::Output {
                let bytes = tensor.bytes.checked_next_multiple_of(OUTPUT_ALIGNMENT);
                let used = bytes.and_then(|bytes| self.heap_bytes_used.checked_add(bytes));
                let Some(used) = used.filter(|used| *used <= heap_bytes) else {
                    let text = format!(
                        "the heap is full: task {task} asks for {} bytes, {} of {heap_bytes} are in use",
                        tensor.bytes, self.heap_bytes_used
                    );
                    return Err(GraphError { code: code::HEAP_FULL, text });
                };
                tensor.addr = if tensor.bytes == 0 { 0 } else { heap + self.heap_bytes_used };
                tensor.owner_task = u64::from(task);
                self.heap_bytes_used = used;
            }
            let end = tensor.start_offset.checked_add(tensor.extent);
            if end.is_none_or(|end| end > tensor.bytes) {
                let text = format!(
                    "task {task}: a view of {} bytes at {} leaves its buffer of {} bytes",
                    tensor.extent, tensor.start_offset, tensor.bytes
                );
                return Err(GraphError { code: code::INVALID_ARGUMENTS, text });
            }
            if tensor.extent == 0 && tensor.bytes != 0 && argument.arg_use != ArgUse::NoDep {
                let text = format!(
                    "task {task}: a view of 0 bytes touches nothing of its buffer of {} bytes: is its extent set?",
                    tensor.bytes
                );
                return Err(GraphError { code: code::INVALID_ARGUMENTS, text });
            }
            if tensor.addr == 0 && tensor.bytes != 0 {
                let text = format!("task {task}: a tensor of {} bytes has no address", tensor.bytes);
                return Err(GraphError { code: code::INVALID_ARGUMENTS, text });
            }
        }
        Ok(())
    }

    fn reserve_arguments(
        &mut self,
        graph: &Graph<'_>,
        tensors: usize,
        scalars: usize,
    ) -> Result<u32, GraphError> {
        let offset = self.argument_bytes_used;
        let used = offset + argument_bytes_of(tensors, scalars);
        if used > graph.argument_bytes() {
            let text = format!(
                "the argument memory is full: a run has {} bytes of it and no task frees any",
                graph.argument_bytes()
            );
            return Err(GraphError { code: code::FLOW_CONTROL, text });
        }
        self.argument_bytes_used = used;
        // The layout keeps the argument memory below 4 GiB.
        Ok(offset as u32)
    }

    fn find_predecessors(
        &mut self,
        task: u32,
        arguments: &[TaskArg],
        deps: &[i64],
    ) -> Result<(), GraphError> {
        let Self { regions, predecessors, counted_for, .. } = self;
        predecessors.clear();
        counted_for.push(0);
        let mut depend = |on: u32| {
            if let Some(mark) = counted_for.get_mut(on as usize)
                && *mark != task + 1
            {
                *mark = task + 1;
                predecessors.push(on);
            }
        };
        for dep in deps {
            match u32::try_from(*dep) {
                Ok(dep) if dep < task => depend(dep),
                _ => {
                    let text = format!("task {task}: it cannot wait for task {dep}, which is none before it");
                    return Err(GraphError { code: code::INVALID_ARGUMENTS, text });
                }
            }
        }
        for TaskArg { tensor, arg_use } in arguments {
            if tensor.manual_dep != 0 {
                continue;
            }
            let start = tensor.start_offset;
            let region = Region { base: tensor.addr, start, end: start + tensor.extent };
            match arg_use {
                ArgUse::NoDep => Ok(()),
                ArgUse::Input => regions.read(region, task, &mut depend),
                ArgUse::Output | ArgUse::InOut | ArgUse::OutputExisting => {
                    regions.write(region, task, &mut depend)
                }
            }
            .map_err(|RegionsFull| GraphError {
                code: code::REGIONS_FULL,
                text: format!("the region map is full: it holds at most {REGIONS_MAX} regions"),
            })?;
        }
        Ok(())
    }
}

/// Whether a task's predicate is a word that is there when the task is ready.
fn check_predicate(
    task: u32,
    arguments: &[TaskArg],
    attrs: TaskAttrs,
    predicate: u8,
) -> Result<(), GraphError> {
    if attrs.bits() & TaskAttrs::PREDICATE == 0 {
        return Ok(());
    }
    let argument = arguments.get(usize::from(predicate));
    let is_word = argument.is_some_and(|TaskArg { tensor, arg_use }| {
        tensor.extent >= size_of::<u32>() as u64
            && matches!(arg_use, ArgUse::Input | ArgUse::InOut | ArgUse::NoDep)
    });
    if is_word {
        return Ok(());
    }
    let text = format!("task {task}: its predicate, tensor {predicate}, is no word that it reads");
    Err(GraphError { code: code::INVALID_ARGUMENTS, text })
}
