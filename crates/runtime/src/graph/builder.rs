//! The orchestrator's side of the graph: from a task's tensors to memory, dependencies and readiness; and the scopes.

use simpler_device_phase::TaskAttrs;
use simpler_kernel_abi::{ArgUse, NO_TASK, SimplerTensor, TASK_TENSORS_MAX};

use super::arena::{Graph, argument_bytes_of};
use super::fan::{TaskKernels, TaskWork};
use super::regions::{Region, Regions, RegionsFull};
use super::ring::{Resource, Ring, ScopeUse};
use super::scope::{ENTERED_MAX, ROOT};
use super::{GraphError, OUTPUT_ALIGNMENT, REGIONS_MAX, RINGS, SCOPE_DEPTH_MAX, SCOPES_MAX, Shape, TaskId};
use crate::code;
use crate::ring_sizes::{EDGES_ENV, HEAP_ENV, WINDOW_ENV};

/// Room that the region map is to have for a submit: more entries than most need.
const REGIONS_SPARE: usize = REGIONS_MAX / 16;
/// Tasks that have to come back before the map is swept for room: a sweep looks at every entry.
const SWEEP_TASKS: u64 = REGIONS_MAX as u64 / 64;
/// Room at which it is swept for any that came back: several times the tensors of a task.
const REGIONS_TIGHT: usize = 8 * TASK_TENSORS_MAX;

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
    /// Which one it is.
    pub task: TaskId,
    /// It waits for nothing, or may be staged, and is in a queue, from where a scheduler with cores for this shape can take
    /// it.
    pub ready: Option<Shape>,
}

/// Waits until a scope that has ended is drained.
pub type AwaitScope<'a> = dyn Fn(u32) -> Result<(), GraphError> + 'a;

/// What is known of a scope's record.
#[derive(Clone, Copy, Debug, Default)]
struct Record {
    is_open: bool,
    /// Tasks, and scopes directly in it, so far.
    entered: u32,
    /// Of the scope that has it now.
    serial: u64,
}

/// What the orchestrator alone knows of the graph it fills. One for many runs.
#[derive(Debug, Default)]
pub struct Builder {
    /// Nothing runs before the graph is complete, so nothing comes back.
    ahead: bool,
    rings: [Ring; RINGS],
    /// The open scopes, from the outer to the inner.
    open: Vec<ScopeUse>,
    /// Of the last scope that was opened.
    serial: u64,
    /// By scope less one.
    records: Vec<Record>,
    free_records: Vec<u32>,
    regions: Regions,
    /// Tasks that have come back since the map was swept.
    come_back: u64,
    /// The slots of the predecessors.
    predecessors: Vec<u32>,
    /// By slot, the last submit that was found to depend on it: each predecessor counts once.
    counted_for: Vec<u64>,
    submits: u64,
    /// By slot, the serial number of the task's scope.
    scope_serials: Vec<u64>,
    /// A task of this run announces itself (`early`).
    has_early: bool,
}

impl Builder {
    /// A builder for a graph that runs while it is filled. To be cleared first.
    pub fn new() -> Self {
        Self::default()
    }

    /// A builder for a graph that runs later.
    pub fn ahead() -> Self {
        Self { ahead: true, ..Self::default() }
    }

    /// Forgets the last run's tasks, keeps the memory. From now on for `graph`.
    pub fn clear(&mut self, graph: &Graph<'_>) {
        for (ring, limits) in self.rings.iter_mut().zip(&graph.limits().rings) {
            ring.clear(limits);
        }
        self.open.clear();
        self.records.clear();
        self.free_records.clear();
        self.regions.clear();
        self.come_back = 0;
        self.has_early = false;
        self.counted_for.resize(graph.tasks.slots.len(), 0);
        self.scope_serials.resize(graph.tasks.slots.len(), ScopeUse::ROOT.serial);
    }

    /// Tasks submitted so far, edges and bytes of argument memory in use, by ring, of a graph that is built ahead.
    pub(crate) fn used(&self) -> [[usize; 3]; RINGS] {
        let used = |ring: &Ring, resource| ring.used(resource).0 as usize;
        [0, 1, 2, 3].map(|ring| {
            [Resource::Tasks, Resource::Edges, Resource::Arguments].map(|what| used(&self.rings[ring], what))
        })
    }

    /// The slots of the tasks that the last submitted task depends on, each once; tasks that came back are not among
    /// them.
    pub fn predecessors(&self) -> &[u32] {
        &self.predecessors
    }

    /// Refuses an orchestration that has ended with scopes open.
    ///
    /// # Errors
    /// Code 5.
    pub(crate) fn check_all_ended(&self) -> Result<(), GraphError> {
        match self.open.len() {
            0 => Ok(()),
            open => {
                let text = format!("the orchestration left {open} scopes open");
                Err(GraphError { code: code::INVALID_ARGUMENTS, text })
            }
        }
    }

    /// Opens a scope in the innermost open one.
    ///
    /// # Errors
    /// Code 10 where scopes are nested too deeply; code 3 for more than a scope can count; what the wait for a scope that has
    /// ended gives, where all records of one are in use.
    pub fn begin_scope(&mut self, graph: &Graph<'_>, wait: &AwaitScope<'_>) -> Result<(), GraphError> {
        if self.open.len() == SCOPE_DEPTH_MAX {
            let text = format!("more than {SCOPE_DEPTH_MAX} scopes inside one another");
            return Err(GraphError { code: code::SCOPES_TOO_DEEP, text });
        }
        self.serial += 1;
        let (parent, serial) = (self.scope().scope, self.serial);
        let scope = if self.ahead { ROOT } else { self.take_record(graph, wait)? };
        if scope != ROOT {
            self.enter(parent)?;
            graph.scopes.open(scope, parent);
            self.records[scope as usize - 1] = Record { is_open: true, entered: 0, serial };
        }
        self.open.push(ScopeUse { scope, serial });
        Ok(())
    }

    /// Ends the innermost scope: what is submitted later must not use its outputs.
    ///
    /// # Errors
    /// Code 5 where none is open.
    pub fn end_scope(&mut self, graph: &Graph<'_>) -> Result<(), GraphError> {
        let Some(ScopeUse { scope, .. }) = self.open.pop() else {
            let text = "scope_end without a scope_begin before it".to_owned();
            return Err(GraphError { code: code::INVALID_ARGUMENTS, text });
        };
        if scope != ROOT {
            let record = &mut self.records[scope as usize - 1];
            record.is_open = false;
            graph.scopes.close(scope, record.entered);
        }
        Ok(())
    }

    /// The innermost open scope.
    fn scope(&self) -> ScopeUse {
        self.open.last().copied().unwrap_or(ScopeUse::ROOT)
    }

    /// One more task or scope in a scope.
    fn enter(&mut self, scope: u32) -> Result<(), GraphError> {
        if scope != ROOT {
            let entered = &mut self.records[scope as usize - 1].entered;
            if *entered == ENTERED_MAX {
                let text = format!("a scope has at most {ENTERED_MAX} tasks and scopes");
                return Err(GraphError { code: code::FLOW_CONTROL, text });
            }
            *entered += 1;
        }
        Ok(())
    }

    /// Whether a scope has ended and everything in it is done. One whose record is another's by now is long drained.
    fn is_drained(&self, graph: &Graph<'_>, of: ScopeUse) -> bool {
        if of.scope == ROOT {
            return false;
        }
        let record = &self.records[of.scope as usize - 1];
        record.serial != of.serial || !record.is_open && graph.scopes.is_drained(of.scope)
    }

    /// A record for a scope that is about to begin.
    fn take_record(&mut self, graph: &Graph<'_>, wait: &AwaitScope<'_>) -> Result<u32, GraphError> {
        loop {
            if let Some(free) = self.free_records.pop() {
                return Ok(free);
            }
            if self.records.len() < SCOPES_MAX {
                self.records.push(Record::default());
                return Ok(self.records.len() as u32);
            }
            // All records are in use: of open scopes, and of others that have ended.
            let ended = || (1..).zip(&self.records).filter(|(_, record)| !record.is_open);
            let drained = ended().map(|(scope, _)| scope).filter(|scope| graph.scopes.is_drained(*scope));
            self.free_records.extend(drained);
            if self.free_records.is_empty() {
                let oldest = ended().min_by_key(|(_, record)| record.serial);
                let (oldest, _) = oldest.expect("fewer scopes can be open than there are records");
                wait(oldest)?;
            }
        }
    }

    /// Gives a ring what its oldest tasks do not need any more.
    fn reclaim(&mut self, graph: &Graph<'_>, ring: usize) {
        let before = self.rings[ring].oldest_local();
        while let Some(scope) = self.rings[ring].segments.front().map(|segment| segment.scope)
            && self.is_drained(graph, scope)
        {
            self.rings[ring].pop_segment();
        }
        self.come_back += self.rings[ring].oldest_local() - before;
    }

    /// The scope of a ring's oldest tasks, unless it is open. After [`Builder::reclaim`].
    fn oldest_if_ended(&self, ring: usize) -> Option<u32> {
        let oldest = self.rings[ring].segments.front()?.scope.scope;
        (oldest != ROOT && !self.records[oldest as usize - 1].is_open).then_some(oldest)
    }

    /// Takes of a ring's resource, waiting for a scope that has ended; `full` says what cannot be had.
    #[inline]
    fn take(
        &mut self,
        graph: &Graph<'_>,
        ring: usize,
        (resource, count): (Resource, u64),
        wait: &AwaitScope<'_>,
        full: impl FnOnce((u64, u64)) -> (u32, String),
    ) -> Result<u64, GraphError> {
        let place = match self.rings[ring].take(resource, count) {
            None => self.take_later(graph, ring, (resource, count), wait)?,
            place => place,
        };
        if let Some(place) = place {
            return Ok(place);
        }
        let (code, text) = full(self.rings[ring].used(resource));
        let holder = match self.rings[ring].segments.front() {
            None => "",
            Some(_) if self.ahead => ", and nothing comes back before the graph runs",
            Some(_) => ", and what is in use belongs to a scope that is still open",
        };
        Err(GraphError { code, text: format!("ring {ring}: {text}{holder}") })
    }

    /// Takes what had no room, once there is some; None where it would wait for itself.
    #[cold]
    fn take_later(
        &mut self,
        graph: &Graph<'_>,
        ring: usize,
        (resource, count): (Resource, u64),
        wait: &AwaitScope<'_>,
    ) -> Result<Option<u64>, GraphError> {
        loop {
            self.reclaim(graph, ring);
            if let Some(place) = self.rings[ring].take(resource, count) {
                return Ok(Some(place));
            }
            let Some(ended) = self.oldest_if_ended(ring) else { return Ok(None) };
            wait(ended)?;
        }
    }

    /// Adds a task: allocates its outputs, finds out what it depends on, and makes it ready if nothing; one without
    /// kernels is then finished. Where its ring is full it waits for a scope that has ended.
    ///
    /// # Errors
    /// When a limit of the run is reached or a tensor leaves its buffer. The graph then holds the tasks before, and
    /// the run must be failed.
    pub fn submit(
        &mut self,
        graph: &Graph<'_>,
        new: &mut NewTask<'_>,
        wait: &AwaitScope<'_>,
    ) -> Result<Submitted, GraphError> {
        let NewTask { kernels, blocks, ref mut arguments, scalars, deps, attrs, predicate } = *new;
        let ring = self.open.len().min(RINGS - 1);
        let Ok(local) = u32::try_from(self.rings[ring].next_local()) else {
            let text = format!("ring {ring}: a run has at most {} tasks there", u32::MAX);
            return Err(GraphError { code: code::FLOW_CONTROL, text });
        };
        let task = TaskId::new(ring, local);
        self.take(graph, ring, (Resource::Tasks, 1), wait, |(_, window)| {
            (code::SCOPE_DEADLOCK, format!("the task window is full: it has {window} tasks ({WINDOW_ENV})"))
        })?;
        self.allocate_outputs(graph, task, arguments, wait)?;
        check_predicate(task, arguments, attrs, predicate)?;
        let bytes = argument_bytes_of(arguments.len(), scalars.len());
        let offset = self.take(graph, ring, (Resource::Arguments, bytes), wait, |(_, size)| {
            (
                code::SCOPE_DEADLOCK,
                format!("the argument memory is full: it has {size} bytes (as {WINDOW_ENV} goes)"),
            )
        })?;
        // The layout keeps the argument memory below 4 GiB.
        let offset = graph.first_argument(ring) + offset as u32;
        graph.store_arguments(offset, arguments.iter().map(|argument| &argument.tensor), scalars);
        self.make_room_for_regions(graph, wait)?;
        self.find_predecessors(graph, task, arguments, deps)?;

        let scope = self.scope();
        let predecessors = self.predecessors.len() as u32;
        let mut work = TaskWork {
            kernels,
            arguments: offset,
            tensors: arguments.len() as u8,
            scalars: scalars.len() as u8,
            attrs,
            predicate,
            blocks,
            scope: scope.scope,
            listens: false,
        };
        let announces = |task: &u32| graph.tasks.slot(*task).early().0;
        work.listens = self.has_early && work.can_be_staged() && self.predecessors.iter().any(announces);
        self.has_early |= work.announces();
        let index = graph.slot_of(task);
        let (slot, early) = (graph.tasks.slot(index), graph.tasks.early(index));
        slot.prepare(local, &work, predecessors);
        if work.announces() || work.listens {
            early.prepare(predecessors);
        }
        // The orchestrator's own count, and one for each predecessor that has already completed; or, of the second,
        // announced itself.
        let (mut met, mut heard) = (1, 1);
        for position in 0..self.predecessors.len() {
            let predecessor = self.predecessors[position];
            let edge = self.take_edge(graph, ring, wait)?;
            if !graph.tasks.link(predecessor, edge, index) {
                self.rings[ring].give_back(Resource::Edges, 1);
                met += 1;
                heard += 1;
            } else if work.listens && announces(&predecessor) {
                let edge = self.take_edge(graph, ring, wait)?;
                if !graph.tasks.listen(predecessor, edge, index) {
                    self.rings[ring].give_back(Resource::Edges, 1);
                    heard += 1;
                }
            }
        }
        self.enter(scope.scope)?;
        self.scope_serials[index as usize] = scope.serial;
        self.rings[ring].note_scope(scope);
        // Before the task can complete: nobody may see more tasks completed than submitted.
        graph.set_submitted(ring, local.wrapping_add(1));
        let mut ready = None;
        if slot.arrive(met) {
            ready = kernels.shape();
            match ready {
                Some(shape) => graph.push_ready(index, shape, work.starts_together()),
                // Nothing was linked to it yet.
                None => graph.complete(index, |_| ()),
            }
        } else if work.listens && early.hear(heard) {
            // It may be ready by now, or done; its slot is this task's until this thread gives it another.
            graph.push_early(index);
            ready = kernels.shape();
        }
        Ok(Submitted { task, ready })
    }

    /// An unused edge of a ring.
    fn take_edge(
        &mut self,
        graph: &Graph<'_>,
        ring: usize,
        wait: &AwaitScope<'_>,
    ) -> Result<u32, GraphError> {
        let edge = self.take(graph, ring, (Resource::Edges, 1), wait, |(_, edges)| {
            (
                code::DEPENDENCIES_FULL,
                format!("the dependency pool is full: it has {edges} dependencies ({EDGES_ENV})"),
            )
        })?;
        Ok(graph.first_edge(ring) + edge as u32)
    }

    /// Whether any task of the graph has part in early dispatch.
    pub(crate) fn has_early(&self) -> bool {
        self.has_early
    }

    /// Tells each task so far that writes any of a view, and, `read` as well, that has read it since.
    /// `each` gets its slot.
    pub(crate) fn using(
        &self,
        graph: &Graph<'_>,
        tensor: &SimplerTensor,
        read: bool,
        each: &mut impl FnMut(u32),
    ) {
        self.regions.using(&Region::of(tensor), read, &mut |task| {
            if is_there(&self.rings, task) {
                each(graph.slot_of(task));
            }
        });
    }

    fn allocate_outputs(
        &mut self,
        graph: &Graph<'_>,
        task: TaskId,
        arguments: &mut [TaskArg],
        wait: &AwaitScope<'_>,
    ) -> Result<(), GraphError> {
        let ring = task.ring();
        // What overflows is more than any heap.
        let rounded = |tensor: &SimplerTensor| {
            tensor.bytes.checked_next_multiple_of(OUTPUT_ALIGNMENT).unwrap_or(u64::MAX)
        };
        let outputs = arguments.iter().filter(|argument| argument.arg_use == ArgUse::Output);
        let asked = outputs.fold(0, |sum: u64, output| sum.saturating_add(rounded(&output.tensor)));
        // All at once: one after the other could be in each other's way.
        let mut place = self.take(graph, ring, (Resource::Heap, asked), wait, |(used, size)| {
            let text = format!(
                "the heap is full: task {task} asks for {asked} bytes, {used} of {size} are in use ({HEAP_ENV})"
            );
            (code::HEAP_FULL, text)
        })?;
        for argument in arguments {
            let tensor = &mut argument.tensor;
            if argument.arg_use == ArgUse::Output {
                tensor.addr = if tensor.bytes == 0 { 0 } else { graph.heap(ring) + place };
                place += rounded(tensor);
                tensor.owner_task = task.raw();
            } else {
                self.check_owner(graph, tensor)?;
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

    /// Refuses a view of a task's output whose scope has ended.
    ///
    /// # Errors
    /// Code 5.
    pub(crate) fn check_owner(&self, graph: &Graph<'_>, view: &SimplerTensor) -> Result<(), GraphError> {
        let owner = i64::try_from(view.owner_task).ok().filter(|_| view.owner_task != NO_TASK);
        let Some(owner) = owner.and_then(TaskId::named) else { return Ok(()) };
        if u64::from(owner.local()) >= self.rings[owner.ring()].next_local() {
            // Of another run, or never filled in.
            return Ok(());
        }
        let serial = self.scope_serials[graph.slot_of(owner) as usize];
        let is_open = serial == ScopeUse::ROOT.serial || self.open.iter().any(|open| open.serial == serial);
        if is_there(&self.rings, owner) && is_open {
            return Ok(());
        }
        let text = format!("a tensor is the output of task {owner}, whose scope has ended");
        Err(GraphError { code: code::INVALID_ARGUMENTS, text })
    }

    /// Makes room in the region map where there is little, if that can be; where there is next to none, waits for a scope
    /// that has ended.
    fn make_room_for_regions(&mut self, graph: &Graph<'_>, wait: &AwaitScope<'_>) -> Result<(), GraphError> {
        loop {
            let room = self.regions.room();
            if room >= REGIONS_SPARE {
                return Ok(());
            }
            (0..RINGS).for_each(|ring| self.reclaim(graph, ring));
            let is_tight = room < REGIONS_TIGHT;
            if self.come_back >= SWEEP_TASKS || is_tight && self.come_back != 0 {
                self.come_back = 0;
                let Self { regions, rings, .. } = self;
                regions.sweep(|task| is_there(rings, task));
                continue;
            }
            let ended = (0..RINGS).find_map(|ring| self.oldest_if_ended(ring));
            match ended.filter(|_| is_tight) {
                Some(ended) => wait(ended)?,
                // The map itself says so when it is full.
                None => return Ok(()),
            }
        }
    }

    fn find_predecessors(
        &mut self,
        graph: &Graph<'_>,
        task: TaskId,
        arguments: &[TaskArg],
        deps: &[i64],
    ) -> Result<(), GraphError> {
        self.submits += 1;
        let Self { regions, predecessors, counted_for, rings, submits, .. } = self;
        predecessors.clear();
        let mut depend = |on: TaskId| {
            if !is_there(rings, on) {
                return false;
            }
            let slot = graph.slot_of(on);
            let mark = &mut counted_for[slot as usize];
            if *mark != *submits {
                *mark = *submits;
                predecessors.push(slot);
            }
            true
        };
        for dep in deps {
            let named = TaskId::named(*dep).filter(|named| {
                u64::from(named.local()) < rings[named.ring()].next_local() && *named != task
            });
            let Some(named) = named else {
                let text = format!("task {task}: it cannot wait for task {dep}, which is none before it");
                return Err(GraphError { code: code::INVALID_ARGUMENTS, text });
            };
            // One that is not there any more is done.
            depend(named);
        }
        for TaskArg { tensor, arg_use } in arguments {
            if tensor.manual_dep != 0 {
                continue;
            }
            let region = || Region::of(tensor);
            match arg_use {
                ArgUse::NoDep => Ok(()),
                ArgUse::Input => regions.read(&region(), task, &mut depend),
                ArgUse::Output | ArgUse::InOut | ArgUse::OutputExisting => {
                    regions.write(&region(), task, &mut depend)
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

/// Whether a task has not come back. For one that was submitted.
fn is_there(rings: &[Ring; RINGS], task: TaskId) -> bool {
    u64::from(task.local()) >= rings[task.ring()].oldest_local()
}

/// Whether a task's predicate is a word that is there when the task is ready.
fn check_predicate(
    task: TaskId,
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
