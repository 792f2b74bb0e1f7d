//! A task's slot: what it waits for and who waits for it, without a lock.
//!
//! *Fan-in* is a count that starts at the number of predecessors plus one. The one is the orchestrator's own: it
//! is given back after all predecessors were linked, so that no completion in between can start the task.
//!
//! *Fan-out* is a list that only the orchestrator pushes to and that is consumed once. A push is a
//! compare-and-swap of the head. A completion swaps [`CLOSED`] in and walks what it got. A push that meets
//! `CLOSED` knows that the predecessor has completed and links nothing. So every successor is counted down
//! exactly once: by the walk, or by the orchestrator.

use simpler_device_phase::TaskAttrs;
use simpler_kernel_abi::CoreKind;

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Head of a list without elements.
const EMPTY: u32 = 0;
/// Head of the list of a completed task.
pub const CLOSED: u32 = u32::MAX;

/// What a scheduler needs of a task, and its two counts. One cache line; all zero is a valid slot.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct TaskSlot {
    waiting_for: AtomicU32,
    /// [`EMPTY`], [`CLOSED`], or the index of an edge plus one.
    successors: AtomicU32,
    kernel: AtomicU64,
    arguments: AtomicU32,
    /// Bits 0..8 tensors, 8..16 scalars, 16..24 core kind, 24.. attributes.
    shape: AtomicU32,
}

/// What a task runs: the kernel, where its arguments are, how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskWork {
    /// The platform's value for the kernel.
    pub kernel: u64,
    /// The kind of core.
    pub kind: CoreKind,
    /// Offset in the argument memory, in bytes.
    pub arguments: u32,
    /// Number of tensors.
    pub tensors: u8,
    /// Number of scalars.
    pub scalars: u8,
    /// How it is scheduled and timed.
    pub attrs: TaskAttrs,
}

/// One element of a fan-out list. All zero is a valid edge.
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

impl TaskSlot {
    /// A slot that no task uses.
    pub fn new() -> Self {
        Self {
            waiting_for: AtomicU32::new(0),
            successors: AtomicU32::new(EMPTY),
            kernel: AtomicU64::new(0),
            arguments: AtomicU32::new(0),
            shape: AtomicU32::new(0),
        }
    }

    /// Makes the slot a task that waits for `predecessors` and for its orchestrator. Orchestrator only, before
    /// the task is linked or pushed anywhere.
    pub fn prepare(&self, work: &TaskWork, predecessors: u32) {
        // ORDERING: Relaxed: nobody else knows the task yet. Who learns of it does so through `successors` of a
        // predecessor or a ready queue, and both are published with Release.
        self.waiting_for.store(predecessors + 1, Ordering::Relaxed);
        // ORDERING: Relaxed: as above.
        self.successors.store(EMPTY, Ordering::Relaxed);
        // ORDERING: Relaxed: as above.
        self.kernel.store(work.kernel, Ordering::Relaxed);
        // ORDERING: Relaxed: as above.
        self.arguments.store(work.arguments, Ordering::Relaxed);
        let shape = u32::from_le_bytes([work.tensors, work.scalars, work.kind as u8, work.attrs.bits()]);
        // ORDERING: Relaxed: as above.
        self.shape.store(shape, Ordering::Relaxed);
    }

    /// What to run. For who took the task from a ready queue, or completes its predecessor.
    #[inline]
    pub fn work(&self) -> TaskWork {
        // ORDERING: Relaxed: the caller's acquire of the queue cell or of the list orders it after `prepare`.
        let [tensors, scalars, kind, attrs] = self.shape.load(Ordering::Relaxed).to_le_bytes();
        TaskWork {
            // ORDERING: Relaxed: as above.
            kernel: self.kernel.load(Ordering::Relaxed),
            kind: if kind == 0 { CoreKind::Aic } else { CoreKind::Aiv },
            // ORDERING: Relaxed: as above.
            arguments: self.arguments.load(Ordering::Relaxed),
            tensors,
            scalars,
            attrs: TaskAttrs::from_bits(attrs),
        }
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
    /// One per task, by task index.
    pub slots: &'m [TaskSlot],
    /// The pool that fan-out lists are made of.
    pub edges: &'m [Edge],
}

impl<'m> Tasks<'m> {
    /// The slot of a task. An index that the graph handed out.
    #[inline]
    pub fn slot(&self, task: u32) -> &'m TaskSlot {
        &self.slots[task as usize]
    }

    /// Makes `successor` wait for `task` with the unused edge `edge`; false when `task` has already completed,
    /// and then the edge is still unused and everything that `task` wrote is visible. Orchestrator only.
    pub fn link(&self, task: u32, edge: u32, successor: u32) -> bool {
        let head = &self.slot(task).successors;
        let element = &self.edges[edge as usize];
        // ORDERING: Relaxed: published by the exchange below.
        element.successor.store(successor, Ordering::Relaxed);
        // ORDERING: Acquire: pairs with the swap in `complete`: who sees CLOSED sees the task's outputs.
        let mut seen = head.load(Ordering::Acquire);
        loop {
            if seen == CLOSED {
                return false;
            }
            // ORDERING: Relaxed: published by the exchange below.
            element.next.store(seen, Ordering::Relaxed);
            // ORDERING: Release on success: pairs with the swap in `complete`, which then reads the edge and the
            // successor's slot. Acquire on failure: only CLOSED can have come in between, see above.
            match head.compare_exchange(seen, edge + 1, Ordering::Release, Ordering::Acquire) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
    }

    /// Completes `task`: closes its list and counts down every successor, calling `ready` for each that now waits
    /// for nothing. Once per task, after its kernel's writes are visible to the caller.
    #[inline]
    pub fn complete(&self, task: u32, mut ready: impl FnMut(u32)) {
        // ORDERING: AcqRel: Release pairs with the loads of CLOSED in `link`; Acquire pairs with its exchange.
        let mut at = self.slot(task).successors.swap(CLOSED, Ordering::AcqRel);
        while at != EMPTY {
            let edge = &self.edges[(at - 1) as usize];
            // ORDERING: Relaxed: ordered by the swap above.
            let successor = edge.successor.load(Ordering::Relaxed);
            // ORDERING: Relaxed: as above.
            at = edge.next.load(Ordering::Relaxed);
            if self.slot(successor).arrive(1) {
                ready(successor);
            }
        }
    }
}
