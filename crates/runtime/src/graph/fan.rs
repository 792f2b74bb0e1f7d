//! A task's slot: what it waits for and who waits for it, without a lock.
//!
//! *Fan-in* is a count that starts at the number of predecessors plus one. The one is the orchestrator's own: it
//! is given back after all predecessors were linked, so that no completion in between can start the task.
//!
//! *Fan-out* is a list that only the orchestrator pushes to and that is consumed once. A push is a
//! compare-and-swap of the head. A completion swaps [`CLOSED`] in and walks what it got. A push that meets
//! `CLOSED` knows that the predecessor has completed and links nothing. So every successor is counted down
//! exactly once: by the walk, or by the orchestrator.
//!
//! A task is known by its slot's index in all of this. When its scope is drained the slot becomes another task's, so an
//! index is good until then, and a scheduler's until it has left the task's scope.
//!
//! What lets a task be on its cores before its predecessors have completed is a second fan-in of the same kind (`early`).
//!
//! A task runs in *parts*: each kernel of each block is one. Blocks are handed out by whoever has taken the task from a
//! ready queue, which one scheduler at a time can have; parts are counted down as they finish, and the last completes
//! the task.

use simpler_device_phase::TaskAttrs;

use super::Shape;
use super::early::EarlyRecord;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Head of a list without elements.
pub(super) const EMPTY: u32 = 0;
/// Head of the list of a completed task.
pub const CLOSED: u32 = u32::MAX;

/// Places of a cluster: its AIC, its first AIV, its second.
pub const PLACES: usize = 3;

/// What a scheduler needs of a task, and its counts. One cache line; any bytes are a slot that no task uses.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct TaskSlot {
    waiting_for: AtomicU32,
    /// [`EMPTY`], [`CLOSED`], or the index of an edge plus one.
    successors: AtomicU32,
    kernels: [AtomicU64; PLACES],
    arguments: AtomicU32,
    /// Bits 0..8 tensors, 8..14 scalars, 14 announces, 15 listens, 16..19 places in use, 19..24 predicate, 24.. attributes.
    shape: AtomicU32,
    blocks: AtomicU32,
    /// The first block that was not handed out; touched by who has the task only.
    next_block: AtomicU32,
    /// Parts that have not finished.
    unfinished: AtomicU32,
    /// The task's number in its ring.
    local: AtomicU32,
    scope: AtomicU32,
}

/// The kernels of a task by their place in a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskKernels {
    /// The platform's values; 0 where a place is not used.
    values: [u64; PLACES],
    /// The places in use, by bit.
    active: u8,
}

impl TaskKernels {
    const PLACE_BITS: u32 = PLACES as u32;

    /// The kernels at the places where there are any.
    pub fn new(kernels: [Option<u64>; PLACES]) -> Self {
        let active = kernels.iter().enumerate().map(|(place, kernel)| u8::from(kernel.is_some()) << place);
        Self { values: kernels.map(|kernel| kernel.unwrap_or(0)), active: active.sum() }
    }

    /// How many there are.
    #[inline]
    pub const fn count(&self) -> u32 {
        self.active.count_ones()
    }

    /// The places where there is one, by bit.
    #[inline]
    pub const fn places(&self) -> u8 {
        self.active
    }

    /// What they need to run; None for a task without kernels.
    #[inline]
    pub const fn shape(&self) -> Option<Shape> {
        shape_of(self.active)
    }

    /// The one kernel of a task that has only one, at whichever place.
    #[inline]
    pub const fn only(&self) -> u64 {
        // At most one of them is not 0.
        self.values[0] | self.values[1] | self.values[2]
    }

    /// The kernel at a place.
    #[inline]
    pub fn at(&self, place: usize) -> Option<u64> {
        (self.active >> place & 1 != 0).then(|| self.values[place])
    }

    /// All of them, by place.
    pub fn iter(&self) -> impl Iterator<Item = u64> {
        let kernels = *self;
        (0..PLACES).filter_map(move |place| kernels.at(place))
    }
}

const fn shape_of(active: u8) -> Option<Shape> {
    match active {
        0 => None,
        0b001 => Some(Shape::Aic),
        0b010 | 0b100 => Some(Shape::Aiv),
        _ => Some(Shape::Mix),
    }
}

/// What a task runs: the kernels, where its arguments are, how many, how often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskWork {
    /// The kernels.
    pub kernels: TaskKernels,
    /// Offset in the argument memory, in bytes.
    pub arguments: u32,
    /// Number of tensors.
    pub tensors: u8,
    /// Number of scalars.
    pub scalars: u8,
    /// How it is scheduled and timed.
    pub attrs: TaskAttrs,
    /// The tensor whose first word is its predicate, if the attributes say that it has one.
    pub predicate: u8,
    /// Blocks, 1 or more.
    pub blocks: u32,
    /// The scope that it is counted in.
    pub scope: u32,
    /// It has a predecessor that announces itself, and is told so; see `early`.
    pub listens: bool,
}

impl TaskWork {
    /// Whether it announces itself when all of it is on cores: where it is allowed to, and always is put there block by
    /// block.
    #[inline]
    pub const fn announces(&self) -> bool {
        self.attrs.bits() & TaskAttrs::EARLY_RESOLVE != 0 && self.can_be_staged()
    }

    /// Whether it can be put on cores before it is ready: there is something to put there, whatever a predicate says
    /// then, and the cores need not be gathered.
    #[inline]
    pub const fn can_be_staged(&self) -> bool {
        self.kernels.count() != 0 && self.attrs.bits() & TaskAttrs::PREDICATE == 0 && !self.starts_together()
    }

    /// Kernels of all blocks together.
    #[inline]
    pub const fn parts(&self) -> u32 {
        self.kernels.count() * self.blocks
    }

    /// Whether its kernels, of one block or of all, may wait for each other.
    #[inline]
    pub const fn runs_together(&self) -> bool {
        self.kernels.count() > 1 || self.starts_together()
    }

    /// Whether all its blocks start at the same time; one block always does.
    #[inline]
    pub const fn starts_together(&self) -> bool {
        self.attrs.bits() & TaskAttrs::SYNC_START != 0 && self.blocks > 1
    }
}

/// One element of a fan-out list. Any bytes are an edge in no list.
#[repr(C)]
#[derive(Debug)]
pub struct Edge {
    successor: AtomicU32,
    next: AtomicU32,
}

impl Edge {
    /// An edge that is in no list.
    pub fn new() -> Self {
        Self { successor: AtomicU32::new(0), next: AtomicU32::new(EMPTY) }
    }
}

impl Default for Edge {
    fn default() -> Self {
        Self::new()
    }
}

impl Default for TaskSlot {
    fn default() -> Self {
        Self::new()
    }
}

/// In the byte of the scalars: the task announces itself.
const ANNOUNCES: u8 = 1 << 6;
/// And that it listens.
const LISTENS: u8 = 1 << 7;

impl TaskSlot {
    /// A slot that no task uses.
    pub fn new() -> Self {
        let word = || AtomicU32::new(0);
        Self {
            waiting_for: word(),
            successors: AtomicU32::new(EMPTY),
            kernels: std::array::from_fn(|_| AtomicU64::new(0)),
            arguments: word(),
            shape: word(),
            blocks: word(),
            next_block: word(),
            unfinished: word(),
            local: word(),
            scope: word(),
        }
    }

    /// Makes the slot the task with the number `local` in its ring, which waits for `predecessors` and for its
    /// orchestrator. Orchestrator only, before the task is linked or pushed anywhere.
    pub fn prepare(&self, local: u32, work: &TaskWork, predecessors: u32) {
        // ORDERING: Relaxed: nobody else knows the task yet, here and below. Who learns of it does so through
        // `successors` of a predecessor or a ready queue, and both are published with Release.
        self.waiting_for.store(predecessors + 1, Ordering::Relaxed);
        self.successors.store(EMPTY, Ordering::Relaxed);
        for (word, kernel) in self.kernels.iter().zip(work.kernels.values) {
            word.store(kernel, Ordering::Relaxed);
        }
        self.arguments.store(work.arguments, Ordering::Relaxed);
        let places = work.kernels.active | work.predicate << TaskKernels::PLACE_BITS;
        let flags = if work.announces() { ANNOUNCES } else { 0 } | if work.listens { LISTENS } else { 0 };
        let shape = u32::from_le_bytes([work.tensors, work.scalars | flags, places, work.attrs.bits()]);
        self.shape.store(shape, Ordering::Relaxed);
        self.blocks.store(work.blocks, Ordering::Relaxed);
        self.next_block.store(0, Ordering::Relaxed);
        self.unfinished.store(work.parts(), Ordering::Relaxed);
        self.local.store(local, Ordering::Relaxed);
        self.scope.store(work.scope, Ordering::Relaxed);
    }

    /// What to run. For who took the task from a ready queue, or completes its predecessor.
    #[inline]
    pub fn work(&self) -> TaskWork {
        // ORDERING: Relaxed: the caller's acquire of the queue cell or of the list orders it after `prepare`, here
        // and below.
        let [tensors, scalars, places, attrs] = self.shape.load(Ordering::Relaxed).to_le_bytes();
        TaskWork {
            kernels: TaskKernels {
                values: std::array::from_fn(|place| self.kernels[place].load(Ordering::Relaxed)),
                active: places & ((1 << TaskKernels::PLACE_BITS) - 1),
            },
            arguments: self.arguments.load(Ordering::Relaxed),
            tensors,
            scalars: scalars & !(ANNOUNCES | LISTENS),
            attrs: TaskAttrs::from_bits(attrs),
            predicate: places >> TaskKernels::PLACE_BITS,
            blocks: self.blocks.load(Ordering::Relaxed),
            scope: self.scope.load(Ordering::Relaxed),
            listens: scalars & LISTENS != 0,
        }
    }

    /// Whether the task announces itself, and whether it listens; see `early`. As for [`TaskSlot::work`].
    #[inline]
    pub fn early(&self) -> (bool, bool) {
        // ORDERING: Relaxed: as in `work`.
        let [_, flags, _, _] = self.shape.load(Ordering::Relaxed).to_le_bytes();
        (flags & ANNOUNCES != 0, flags & LISTENS != 0)
    }

    /// The task's number in its ring. As for [`TaskSlot::work`], or for diagnosis.
    pub fn local(&self) -> u32 {
        // ORDERING: Relaxed: as in `work`.
        self.local.load(Ordering::Relaxed)
    }

    /// The scope that the task is counted in. As for [`TaskSlot::work`].
    #[inline]
    pub fn scope(&self) -> u32 {
        // ORDERING: Relaxed: as in `work`.
        self.scope.load(Ordering::Relaxed)
    }

    /// The first block that was not handed out. For who has the task.
    #[inline]
    pub fn next_block(&self) -> u32 {
        // ORDERING: Relaxed: written by who had the task before, and passed on through the queue, or by `give_up` and
        // `make_ready` of `early`.
        self.next_block.load(Ordering::Relaxed)
    }

    /// Hands out the blocks before this one. For who has the task, before it puts it back.
    #[inline]
    pub fn set_next_block(&self, block: u32) {
        // ORDERING: Relaxed: passed on as above.
        self.next_block.store(block, Ordering::Relaxed);
    }

    /// Counts a part that has finished; whether it was the last, so that the caller must complete the task.
    #[inline]
    pub fn finish_part(&self) -> bool {
        // ORDERING: AcqRel: pairs with itself: who completes the task has seen what all its parts wrote.
        self.unfinished.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// How many completions (and the orchestrator's own one) the task still waits for. For diagnosis.
    pub fn waiting_for(&self) -> u32 {
        // ORDERING: Relaxed: a number for a message.
        self.waiting_for.load(Ordering::Relaxed)
    }

    /// Counts `met` of what the task waits for; whether that was the last, so that the caller must make it ready.
    #[inline]
    pub fn arrive(&self, met: u32) -> bool {
        // ORDERING: AcqRel: pairs with itself. The last to arrive sees what all earlier ones did before they
        // arrived, that is, the outputs of all predecessors.
        self.waiting_for.fetch_sub(met, Ordering::AcqRel) == met
    }
}

/// The slots and the edges of a graph.
#[derive(Clone, Copy, Debug)]
pub struct Tasks<'m> {
    /// One per task, each ring's behind the other's.
    pub slots: &'m [TaskSlot],
    /// The pool that fan-out lists are made of.
    pub edges: &'m [Edge],
    /// What early dispatch knows of each slot's task.
    pub early: &'m [EarlyRecord],
}

impl<'m> Tasks<'m> {
    /// The slot of an index that the graph handed out.
    #[inline]
    pub fn slot(&self, task: u32) -> &'m TaskSlot {
        &self.slots[task as usize]
    }

    /// What early dispatch knows of the task of an index that the graph handed out.
    #[inline]
    pub fn early(&self, task: u32) -> &'m EarlyRecord {
        &self.early[task as usize]
    }

    /// Makes `successor` wait for `task` with the unused edge `edge`; false when `task` has already completed,
    /// and then the edge is still unused and everything that `task` wrote is visible. Orchestrator only.
    pub fn link(&self, task: u32, edge: u32, successor: u32) -> bool {
        self.push(&self.slot(task).successors, edge, successor)
    }

    /// Makes `successor` hear of `task`, which announces itself; false when it has. As [`Tasks::link`].
    pub fn listen(&self, task: u32, edge: u32, successor: u32) -> bool {
        self.push(&self.early(task).listeners, edge, successor)
    }

    /// Puts a task into a list with an unused edge; false when the list is closed.
    fn push(&self, head: &AtomicU32, edge: u32, successor: u32) -> bool {
        let element = &self.edges[edge as usize];
        // ORDERING: Relaxed: published by the exchange below.
        element.successor.store(successor, Ordering::Relaxed);
        // ORDERING: Acquire: pairs with the swap in `complete` and `announce`: who sees CLOSED sees what was done before,
        // of a task that has completed its outputs.
        let mut seen = head.load(Ordering::Acquire);
        loop {
            if seen == CLOSED {
                return false;
            }
            // ORDERING: Relaxed: published by the exchange below.
            element.next.store(seen, Ordering::Relaxed);
            // ORDERING: Release on success: pairs with the swap in `complete` and `announce`, which then read the edge and
            // the successor's slot. Acquire on failure: only CLOSED can have come in between, see above.
            match head.compare_exchange(seen, edge + 1, Ordering::Release, Ordering::Acquire) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
    }

    /// Whether `task` has completed: everything that it wrote is then visible.
    pub fn is_complete(&self, task: u32) -> bool {
        // ORDERING: SeqCst: its Acquire pairs with the swap in `complete`; for the total order see `Graph::set_awaited`.
        self.slot(task).successors.load(Ordering::SeqCst) == CLOSED
    }

    /// Completes `task`: closes its list and counts down every successor, calling `ready` for each that now waits
    /// for nothing, and `queued` for each that may now be staged. Once per task, after its kernel's writes are visible to
    /// the caller.
    #[inline]
    pub fn complete(&self, task: u32, mut ready: impl FnMut(u32), mut queued: impl FnMut(u32)) {
        let (announced, _) = self.slot(task).early();
        // ORDERING: SeqCst: its Release pairs with the loads of CLOSED in `link`, its Acquire with its exchange; for the
        // total order see `Graph::set_awaited`.
        let at = self.slot(task).successors.swap(CLOSED, Ordering::SeqCst);
        self.walk(at, |successor| {
            let slot = self.slot(successor);
            // Before it is counted down: until then it is not ready, and its slot no other task's. One that is about to
            // be ready need not be staged.
            if !announced && slot.early().1 && slot.waiting_for() > 1 && self.early(successor).hear(1) {
                queued(successor);
            }
            if slot.arrive(1) {
                ready(successor);
            }
        });
    }

    /// Says that all of `task` is on cores, calling `queued` for each that may now be staged. Once, for a task that
    /// announces itself, before it is completed.
    pub fn announce(&self, task: u32, mut queued: impl FnMut(u32)) {
        // ORDERING: AcqRel: its Release pairs with the loads of CLOSED in `listen`, its Acquire with its exchange.
        let at = self.early(task).listeners.swap(CLOSED, Ordering::AcqRel);
        self.walk(at, |listener| {
            if self.early(listener).hear(1) {
                queued(listener);
            }
        });
    }

    #[inline]
    fn walk(&self, mut at: u32, mut each: impl FnMut(u32)) {
        while at != EMPTY {
            let edge = &self.edges[(at - 1) as usize];
            // ORDERING: Relaxed: ordered by the swap that gave the list.
            let successor = edge.successor.load(Ordering::Relaxed);
            // ORDERING: Relaxed: as above.
            at = edge.next.load(Ordering::Relaxed);
            each(successor);
        }
    }
}
