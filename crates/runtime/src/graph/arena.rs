//! The one allocation that a run's shared state lives in, and its layout.
//!
//! In order: the control block, the cores' records, the ready queues, the task slots, the edges, the argument
//! memory, the heap. All but the last two have a defined first state, the *image*, which is built on the host
//! and uploaded once; from then on a run resets a few words. The layout follows from [`Limits`] and the number of
//! cores, and the control block names both by a key, so that a view of the wrong arena is refused.

use std::mem::{align_of, offset_of, size_of};
use std::ops::Range;

use simpler_device_phase::TaskAttrs;
use simpler_kernel_abi::{SimplerKernelArgs, SimplerTensor};
use simpler_platform::DispatchPayload;

use super::fan::{Edge, TaskSlot, TaskWork, Tasks};
use super::gathering::Gathering;
use super::ready::{ReadyCell, ReadyCursor, ReadyQueue};
use super::{GraphError, Limits, OUTPUT_ALIGNMENT, SHAPES, Shape};
use crate::code;
use crate::hid::fnv1a;
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// First word of every arena.
const MAGIC: u64 = 0x6172_656e_6173_696d;
/// One queue a shape, then the one of tasks whose blocks start together.
pub(crate) const QUEUES: usize = SHAPES.len() + 1;
/// The queue of tasks whose blocks start together.
pub(crate) const TOGETHER: usize = SHAPES.len();
/// Every part begins on a cache line of its own.
const PART_ALIGNMENT: usize = 64;
/// Longest error text.
pub(crate) const ERROR_TEXT_BYTES: usize = 500;

/// Fewest tasks of a window (RUNTIME §1.5).
const WINDOW_MIN: u32 = 4;
/// A difference of two queue positions tells their order only far below 2^31.
const WINDOW_MAX: u32 = 1 << 30;
/// Half an address space, which leaves the sum of all parts representable.
const HEAP_BYTES_MAX: u64 = isize::MAX as u64 / 2;
/// An index plus one stays below the mark of a closed list.
const EDGES_MAX: u32 = u32::MAX - 1;
/// Offsets in the argument memory are 32 bits.
const ARGUMENT_BYTES_MAX: u64 = u32::MAX as u64;

/// An error that one thread of a run reports, and the host reads afterwards.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct ErrorCell {
    /// 0 free, 1 being written, 2 written.
    state: AtomicU32,
    code: AtomicU32,
    class: AtomicU32,
    text_bytes: AtomicU32,
    text: [AtomicU32; ERROR_TEXT_BYTES / 4],
}

/// An error as the host reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunFailure {
    /// One of [`crate::code`].
    pub code: u32,
    /// The sub-class of a timeout, else 0.
    pub class: u32,
    /// The sentence.
    pub text: String,
}

impl ErrorCell {
    const FREE: u32 = 0;
    const BUSY: u32 = 1;
    const SET: u32 = 2;

    /// Reports an error; the first report wins. Text beyond [`ERROR_TEXT_BYTES`] is cut.
    pub(crate) fn set(&self, code: u32, class: u32, text: &str) {
        // ORDERING: Relaxed: a claim between writers; the text is published by the store below.
        if self.state.compare_exchange(Self::FREE, Self::BUSY, Ordering::Relaxed, Ordering::Relaxed).is_err()
        {
            return;
        }
        let end = (0..=text.len().min(ERROR_TEXT_BYTES)).rev().find(|end| text.is_char_boundary(*end));
        let bytes = &text.as_bytes()[..end.unwrap_or(0)];
        // ORDERING: Relaxed: published by the store of SET, here and below.
        self.code.store(code, Ordering::Relaxed);
        self.class.store(class, Ordering::Relaxed);
        self.text_bytes.store(bytes.len() as u32, Ordering::Relaxed);
        for (word, chunk) in self.text.iter().zip(bytes.chunks(4)) {
            let mut four = [0; 4];
            four[..chunk.len()].copy_from_slice(chunk);
            word.store(u32::from_le_bytes(four), Ordering::Relaxed);
        }
        // ORDERING: Release: pairs with the Acquire in `get`.
        self.state.store(Self::SET, Ordering::Release);
    }

    /// The error, once it is written.
    pub(crate) fn get(&self) -> Option<RunFailure> {
        // ORDERING: Acquire: pairs with the Release in `set`; the loads below are ordered by it.
        if self.state.load(Ordering::Acquire) != Self::SET {
            return None;
        }
        let mut text: Vec<u8> =
            self.text.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).collect();
        text.truncate(self.text_bytes.load(Ordering::Relaxed) as usize);
        Some(RunFailure {
            code: self.code.load(Ordering::Relaxed),
            class: self.class.load(Ordering::Relaxed),
            text: String::from_utf8_lossy(&text).into_owned(),
        })
    }

    fn reset(&self) {
        // ORDERING: Relaxed: a run's threads learn of the reset through the gate that the leader opens.
        self.state.store(Self::FREE, Ordering::Relaxed);
    }
}

/// The words that a run's threads share. All zero but the first two is the state before a run.
#[repr(C)]
#[derive(Debug)]
pub struct Control {
    magic: AtomicU64,
    key: AtomicU64,
    /// Non-zero while a run is under way, and for ever after one that did not end cleanly.
    dirty: AtomicU32,
    /// Tasks submitted so far; written by the orchestrator.
    submitted: Padded,
    /// Non-zero once no more tasks will come.
    sealed: Padded,
    /// Tasks completed so far; counted by the schedulers.
    completed: Padded,
    /// Non-zero once the run has failed.
    fatal: Padded,
    /// Non-zero while the orchestrator waits for a task.
    awaited: Padded,
    /// Per shape, the set of schedulers that have idle cores for it.
    idle: [Padded; SHAPES.len()],
    /// The task that gathers cores so that all its blocks start together.
    pub(crate) gathering: Gathering,
    /// The orchestrator's error.
    pub(crate) orchestrator_error: ErrorCell,
    /// The schedulers' error.
    pub(crate) scheduler_error: ErrorCell,
}

/// A word on a cache line of its own.
#[repr(C, align(64))]
#[derive(Debug)]
struct Padded(AtomicU32);

/// What belongs to one core during a run.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct CoreRecord {
    payloads: [DispatchPayload; 2],
    /// The task that the core runs, plus one; 0 for none. For diagnosis.
    running: AtomicU32,
}

/// Where everything is in an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArenaLayout {
    limits: Limits,
    cores: usize,
    core_records: usize,
    cursors: usize,
    cells: usize,
    slots: usize,
    edges: usize,
    arguments: usize,
    heap: usize,
    total: usize,
}

impl ArenaLayout {
    /// The layout for these limits and this many cores.
    ///
    /// # Errors
    /// Code 5 with the rule that a limit breaks.
    pub fn new(limits: Limits, cores: usize) -> Result<Self, GraphError> {
        let refuse = |text: String| Err(GraphError { code: code::INVALID_ARGUMENTS, text });
        if !limits.window.is_power_of_two() || !(WINDOW_MIN..=WINDOW_MAX).contains(&limits.window) {
            return refuse(format!(
                "a task window of {} is not a power of two from {WINDOW_MIN} to {WINDOW_MAX}",
                limits.window
            ));
        }
        if !(OUTPUT_ALIGNMENT..=HEAP_BYTES_MAX).contains(&limits.heap_bytes) {
            return refuse(format!(
                "a heap of {} bytes is not between {OUTPUT_ALIGNMENT} and {HEAP_BYTES_MAX}",
                limits.heap_bytes
            ));
        }
        if limits.argument_bytes > ARGUMENT_BYTES_MAX {
            return refuse(format!(
                "{} bytes of argument memory are more than {ARGUMENT_BYTES_MAX}",
                limits.argument_bytes
            ));
        }
        if limits.edges > EDGES_MAX {
            return refuse(format!("{} dependencies are more than {EDGES_MAX}", limits.edges));
        }
        let mut end = size_of::<Control>();
        let mut part = |bytes: usize, alignment: usize| {
            let start = end.next_multiple_of(alignment);
            end = start + bytes;
            start
        };
        let window = limits.window as usize;
        let core_records = part(cores * size_of::<CoreRecord>(), PART_ALIGNMENT);
        let cursors = part(QUEUES * 2 * size_of::<ReadyCursor>(), PART_ALIGNMENT);
        let cells = part(QUEUES * window * size_of::<ReadyCell>(), PART_ALIGNMENT);
        let slots = part(window * size_of::<TaskSlot>(), PART_ALIGNMENT);
        let edges = part(limits.edges as usize * size_of::<Edge>(), PART_ALIGNMENT);
        let arguments = part(limits.argument_bytes as usize, PART_ALIGNMENT);
        let heap = part(limits.heap_bytes as usize, OUTPUT_ALIGNMENT as usize);
        Ok(Self { limits, cores, core_records, cursors, cells, slots, edges, arguments, heap, total: end })
    }

    /// The limits that it was made from.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Bytes of the whole allocation.
    pub fn total_bytes(&self) -> usize {
        self.total
    }

    /// Where the heap begins, and everything that has a first state or is written by the orchestration has ended.
    pub(crate) fn heap_offset(&self) -> usize {
        self.heap
    }

    /// What a graph that was built elsewhere consists of: this many tasks and edges, and bytes of argument memory.
    pub(crate) fn built_parts(&self, [tasks, edges, argument_bytes]: [usize; 3]) -> [Range<usize>; 4] {
        [
            0..self.slots,
            self.slots..self.slots + tasks * size_of::<TaskSlot>(),
            self.edges..self.edges + edges * size_of::<Edge>(),
            self.arguments..self.arguments + argument_bytes,
        ]
    }

    /// What distinguishes this layout from others: FNV over the limits and the cores.
    pub fn key(&self) -> u64 {
        let mut bytes = Vec::new();
        for word in [
            u64::from(self.limits.window),
            self.limits.heap_bytes,
            self.limits.argument_bytes,
            u64::from(self.limits.edges),
            self.cores as u64,
        ] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        fnv1a(&bytes)
    }

    /// The first state of everything before the argument memory.
    pub fn image(&self) -> Vec<u8> {
        let mut image = vec![0; self.arguments];
        let mut word = |at: usize, bytes: &[u8]| image[at..at + bytes.len()].copy_from_slice(bytes);
        word(offset_of!(Control, magic), &MAGIC.to_le_bytes());
        word(offset_of!(Control, key), &self.key().to_le_bytes());
        for queue in 0..QUEUES {
            for index in 0..self.limits.window {
                let cell = self.cells + (queue * self.limits.window as usize + index as usize) * 8;
                word(cell, &index.to_le_bytes());
            }
        }
        image
    }

    /// Bytes of the control block, at the start of the arena: what the host reads after a failure.
    pub(crate) const fn control_bytes() -> usize {
        size_of::<Control>()
    }

    /// The errors in a copy of the control block: the orchestrator's and the schedulers'.
    pub(crate) fn failures(control: &[u8]) -> [Option<RunFailure>; 2] {
        [offset_of!(Control, orchestrator_error), offset_of!(Control, scheduler_error)].map(|cell| {
            let word = |offset: usize| {
                control.get(cell + offset..)?.first_chunk().map(|chunk| u32::from_le_bytes(*chunk))
            };
            if word(offset_of!(ErrorCell, state))? != ErrorCell::SET {
                return None;
            }
            let text = control.get(cell + offset_of!(ErrorCell, text)..)?;
            let text = text.get(..word(offset_of!(ErrorCell, text_bytes))? as usize)?;
            Some(RunFailure {
                code: word(offset_of!(ErrorCell, code))?,
                class: word(offset_of!(ErrorCell, class))?,
                text: String::from_utf8_lossy(text).into_owned(),
            })
        })
    }
}

const _: () = assert!(size_of::<ReadyCell>() == 8 && size_of::<TaskSlot>() == 64 && size_of::<Edge>() == 8);
const _: () = assert!(align_of::<Control>() <= PART_ALIGNMENT && ERROR_TEXT_BYTES.is_multiple_of(4));

/// A view of an arena: everything that a run's threads share. Copied to each of them.
#[derive(Clone, Copy, Debug)]
pub struct Graph<'m> {
    /// Slots and edges.
    pub tasks: Tasks<'m>,
    /// One queue per shape, and the one of tasks whose blocks start together.
    pub ready: [ReadyQueue<'m>; QUEUES],
    control: &'m Control,
    core_records: *const CoreRecord,
    cores: usize,
    arguments: *mut u8,
    argument_bytes: u64,
    heap: u64,
    heap_bytes: u64,
    /// From an address of this view to the one where tasks run.
    to_device: u64,
}

// SAFETY: the raw pointers lead to memory that lives for 'm; what is behind them is written by one thread at a
// time: argument memory by the orchestrator before it publishes a task, a core's record by the scheduler that
// owns the core.
unsafe impl Send for Graph<'_> {}
// SAFETY: as above.
unsafe impl Sync for Graph<'_> {}

impl<'m> Graph<'m> {
    /// The view of the arena at `base`, or None when there is another layout, or no arena, at that address.
    ///
    /// # Safety
    /// - `base` is the address of [`ArenaLayout::total_bytes`] bytes, aligned to [`OUTPUT_ALIGNMENT`], readable and
    ///   writable for all of `'m`.
    /// - They hold the image of `layout`, or what runs over such views have made of it.
    /// - They are used by nothing but such views and the tasks of the run.
    pub unsafe fn attach(base: u64, layout: &ArenaLayout) -> Option<Self> {
        // SAFETY: the caller's obligations.
        unsafe { Self::attach_for(base, base, layout) }
    }

    /// As [`Graph::attach`], for a graph that is built at `base` and runs at `device_base`: the addresses that tasks
    /// get are those there. Of the memory at `base` the heap is not needed.
    ///
    /// # Safety
    /// As for [`Graph::attach`], the heap excepted.
    pub unsafe fn attach_for(base: u64, device_base: u64, layout: &ArenaLayout) -> Option<Self> {
        let start = base as *mut u8;
        if start.is_null() || !base.is_multiple_of(OUTPUT_ALIGNMENT) {
            return None;
        }
        // SAFETY: the caller gives an arena, whose first part is a control block.
        let control = unsafe { &*start.cast::<Control>() };
        // ORDERING: Relaxed: both words never change after the upload.
        let words = [control.magic.load(Ordering::Relaxed), control.key.load(Ordering::Relaxed)];
        if words != [MAGIC, layout.key()] {
            return None;
        }
        let window = layout.limits.window as usize;
        // SAFETY: the layout puts `window` slots there.
        let slots = unsafe { part(start, layout.slots, window) };
        // SAFETY: the layout puts this many edges there.
        let edges = unsafe { part(start, layout.edges, layout.limits.edges as usize) };
        // SAFETY: the layout puts two cursors a queue there.
        let cursors: &[ReadyCursor] = unsafe { part(start, layout.cursors, QUEUES * 2) };
        // SAFETY: the layout puts `window` cells a queue there.
        let cells: &[ReadyCell] = unsafe { part(start, layout.cells, QUEUES * window) };
        let queue = |index: usize| ReadyQueue {
            cells: &cells[index * window..(index + 1) * window],
            pushed: &cursors[index * 2],
            popped: &cursors[index * 2 + 1],
        };
        Some(Self {
            tasks: Tasks { slots, edges },
            ready: std::array::from_fn(queue),
            control,
            core_records: start.wrapping_add(layout.core_records).cast_const().cast(),
            cores: layout.cores,
            arguments: start.wrapping_add(layout.arguments),
            argument_bytes: layout.limits.argument_bytes,
            heap: device_base + layout.heap as u64,
            heap_bytes: layout.limits.heap_bytes,
            to_device: device_base.wrapping_sub(base),
        })
    }

    /// Puts the graph into the state before a run. Whoever may touch the graph afterwards learns so from the caller.
    pub fn reset(&self) {
        let control = self.control;
        // ORDERING: Relaxed: the caller publishes the reset graph, here and below.
        if control.dirty.swap(1, Ordering::Relaxed) != 0 {
            // The run before left tasks in the queues. Otherwise they are empty at whatever position.
            self.ready.iter().for_each(ReadyQueue::reset);
        }
        for word in [&control.submitted, &control.sealed, &control.completed, &control.awaited] {
            word.0.store(0, Ordering::Relaxed);
        }
        for word in &control.idle {
            word.0.store(0, Ordering::Relaxed);
        }
        control.gathering.close();
    }

    /// Takes back that the last run failed, and why. Apart from [`Graph::reset`], and before anybody can fail the
    /// new run, so that no report of it is lost.
    pub(crate) fn forget_failure(&self) {
        // ORDERING: Relaxed: the caller publishes it, as for `reset`.
        self.control.fatal.0.store(0, Ordering::Relaxed);
        self.control.orchestrator_error.reset();
        self.control.scheduler_error.reset();
    }

    /// The run has ended; a run whose every task has completed leaves the queues empty.
    pub(crate) fn end_run(&self) {
        if !self.is_fatal() && self.completed() == self.submitted() {
            // ORDERING: Relaxed: read by the next run's reset, which the host starts after it has joined this one.
            self.control.dirty.store(0, Ordering::Relaxed);
        }
    }

    /// Tasks submitted so far.
    pub fn submitted(&self) -> u32 {
        // ORDERING: Acquire: pairs with the Release in `set_submitted`.
        self.control.submitted.0.load(Ordering::Acquire)
    }

    pub(super) fn set_submitted(&self, tasks: u32) {
        // ORDERING: Release: pairs with the Acquire above: whoever sees the number may look at the slots.
        self.control.submitted.0.store(tasks, Ordering::Release);
    }

    /// Tasks completed so far.
    pub fn completed(&self) -> u32 {
        // ORDERING: SeqCst: see `is_drained`.
        self.control.completed.0.load(Ordering::SeqCst)
    }

    /// Counts a completed task.
    pub(crate) fn count_completed(&self) {
        // ORDERING: SeqCst: see `is_drained`.
        self.control.completed.0.fetch_add(1, Ordering::SeqCst);
    }

    /// Says that the orchestrator waits for a task to complete, or does not any more.
    ///
    /// It says so and then looks at the task; a scheduler completes the task and then looks here. All four accesses are
    /// SeqCst, so that one of the two sees the other: the orchestrator that the task has completed, or the scheduler that
    /// it must ring.
    pub(crate) fn await_task(&self, awaited: bool) {
        // ORDERING: SeqCst: see above.
        self.control.awaited.0.store(awaited.into(), Ordering::SeqCst);
    }

    /// Whether the orchestrator waits for a task. For who has just completed one.
    #[inline]
    pub(crate) fn is_task_awaited(&self) -> bool {
        // ORDERING: SeqCst: see `await_task`.
        self.control.awaited.0.load(Ordering::SeqCst) != 0
    }

    /// No more tasks will be submitted.
    pub(crate) fn seal(&self) {
        // ORDERING: SeqCst: see `is_drained`.
        self.control.sealed.0.store(1, Ordering::SeqCst);
    }

    /// Whether no more tasks will be submitted.
    pub fn is_sealed(&self) -> bool {
        // ORDERING: SeqCst: see `is_drained`.
        self.control.sealed.0.load(Ordering::SeqCst) != 0
    }

    /// Whether all tasks were submitted and have completed.
    ///
    /// The orchestrator seals and then looks; a scheduler counts and then looks. All four accesses are SeqCst, so
    /// that at least one of the last two threads sees the run drained and can tell the others.
    pub fn is_drained(&self) -> bool {
        self.is_sealed() && self.completed() == self.submitted()
    }

    /// Fails the run: everybody stops as soon as they see it.
    pub(crate) fn set_fatal(&self) {
        // ORDERING: Release: pairs with the Acquire below: who sees the run failed sees the error.
        self.control.fatal.0.store(1, Ordering::Release);
    }

    /// Whether the run has failed.
    #[inline]
    pub fn is_fatal(&self) -> bool {
        // ORDERING: Acquire: pairs with the Release above.
        self.control.fatal.0.load(Ordering::Acquire) != 0
    }

    pub(crate) fn control(&self) -> &'m Control {
        self.control
    }

    /// Makes a task with kernels available to schedulers, or puts it back.
    ///
    /// # Panics
    /// When the queue is full, which cannot be: it has a cell for each task of the window, and a task is in it at most
    /// once.
    #[inline]
    pub(crate) fn push_ready(&self, task: u32, shape: Shape, starts_together: bool) {
        let queue = if starts_together { TOGETHER } else { shape as usize };
        assert!(self.ready[queue].push(task), "a ready queue has a cell for every task");
    }

    /// Notes that a scheduler has idle cores for a shape, or none any more.
    #[inline]
    pub(crate) fn set_idle(&self, shape: Shape, scheduler: usize, idle: bool) {
        let word = &self.control.idle[shape as usize].0;
        if idle {
            // ORDERING: SeqCst: see `idle_schedulers`.
            word.fetch_or(1 << scheduler, Ordering::SeqCst);
            // ORDERING: SeqCst: see `idle_schedulers`.
            fence(Ordering::SeqCst);
        } else {
            // ORDERING: SeqCst: see `idle_schedulers`.
            word.fetch_and(!(1 << scheduler), Ordering::SeqCst);
            // ORDERING: SeqCst: see `idle_schedulers`.
            fence(Ordering::SeqCst);
        }
    }

    /// The schedulers that have idle cores for a shape, by bit. For who has just pushed a task of that shape.
    ///
    /// A pusher pushes, then looks here; a scheduler sets or clears its bit, then looks at the queue. Both have a
    /// SeqCst fence between the two, so that one of them sees the other: who sets the bit finds the task or is rung
    /// for it, and a pusher that rings one whose bit is about to go has pushed early enough for that one to find the
    /// task after the clearing and to pass it on. So no task waits next to an idle core.
    #[inline]
    pub(crate) fn idle_schedulers(&self, shape: Shape) -> u32 {
        // ORDERING: SeqCst: see above.
        fence(Ordering::SeqCst);
        // ORDERING: SeqCst: see above.
        self.control.idle[shape as usize].0.load(Ordering::SeqCst)
    }

    /// A core's two payloads, for the handshake.
    pub(crate) fn payloads(&self, core: usize) -> *mut [DispatchPayload; 2] {
        let record = self.record(core);
        // SAFETY: the record is inside the arena; no reference is made.
        unsafe { &raw const (*record).payloads }.cast_mut()
    }

    /// The task that a core runs, plus one; 0 for none.
    pub(crate) fn running_on(&self, core: usize) -> &AtomicU32 {
        let record = self.record(core);
        // SAFETY: the record is inside the arena, lives for 'm, and the word is only used atomically.
        unsafe { &(*record).running }
    }

    fn record(&self, core: usize) -> *const CoreRecord {
        assert!(core < self.cores, "core {core} of {}", self.cores);
        self.core_records.wrapping_add(core)
    }

    /// Number of cores that have a record.
    pub(crate) fn cores(&self) -> usize {
        self.cores
    }

    /// Address and size of the heap.
    pub(super) fn heap(&self) -> (u64, u64) {
        (self.heap, self.heap_bytes)
    }

    /// Size of the argument memory.
    pub(super) fn argument_bytes(&self) -> u64 {
        self.argument_bytes
    }

    /// Stores a task's arguments at `offset`, where the orchestrator has reserved
    /// [`argument_bytes_of`] bytes for a task that is not published yet.
    pub(super) fn store_arguments<'t>(
        &self,
        offset: u32,
        tensors: impl ExactSizeIterator<Item = &'t SimplerTensor>,
        scalars: &[u64],
    ) {
        let count = tensors.len();
        assert!(u64::from(offset) + argument_bytes_of(count, scalars.len()) <= self.argument_bytes);
        let pointers: *mut *const SimplerTensor = self.arguments.wrapping_add(offset as usize).cast();
        let views: *mut SimplerTensor = pointers.wrapping_add(count).cast();
        let values: *mut u64 = views.wrapping_add(count).cast();
        for (index, tensor) in tensors.enumerate().take(count) {
            let view = views.wrapping_add(index);
            // SAFETY: inside the reserved bytes by the assertion above, 8-byte aligned since offsets and all sizes
            // are multiples of 8, and known to nobody else yet.
            unsafe { view.write(*tensor) };
            let pointer = pointers.wrapping_add(index);
            let on_device = (view as u64).wrapping_add(self.to_device) as *const SimplerTensor;
            // SAFETY: as above.
            unsafe { pointer.write(on_device) };
        }
        // SAFETY: as above.
        unsafe { std::ptr::copy_nonoverlapping(scalars.as_ptr(), values, scalars.len()) };
    }

    /// The arguments of a block of a task, as its kernels receive them. Valid until the next run resets the graph.
    #[inline]
    pub fn kernel_args(&self, work: &TaskWork, block: u32) -> SimplerKernelArgs {
        let pointers: *const *const SimplerTensor =
            self.arguments.wrapping_add(work.arguments as usize).cast_const().cast();
        let views: *const SimplerTensor = pointers.wrapping_add(work.tensors.into()).cast();
        SimplerKernelArgs {
            tensors: pointers,
            scalars: views.wrapping_add(work.tensors.into()).cast(),
            tensor_count: work.tensors.into(),
            scalar_count: work.scalars.into(),
            block_index: block,
            block_count: work.blocks,
        }
    }

    /// Whether the first word of a task's predicate says that it is to run. For who has the task, where it runs.
    pub(crate) fn predicate_holds(&self, work: &TaskWork) -> bool {
        if work.attrs.bits() & TaskAttrs::PREDICATE == 0 {
            return true;
        }
        let views = self.kernel_args(work, 0).tensors;
        let place = views.wrapping_add(work.predicate.into());
        // SAFETY: the builder has checked that the task has this tensor, whose pointer the argument memory holds.
        let view = unsafe { place.read() };
        // SAFETY: it leads to the view behind it.
        let view = unsafe { &*view };
        let word = (view.addr + view.start_offset) as *const u32;
        // SAFETY: the builder has checked that the view has a word inside its buffer; all that the task waits for is
        // done, and what writes it afterwards waits for the task.
        unsafe { word.read_unaligned() != 0 }
    }
}

/// Bytes of argument memory that a task needs: a pointer and a view a tensor, a word a scalar.
pub(super) const fn argument_bytes_of(tensors: usize, scalars: usize) -> u64 {
    let tensor = size_of::<*const SimplerTensor>() + size_of::<SimplerTensor>();
    (tensors * tensor + scalars * size_of::<u64>()) as u64
}

/// `count` elements of `T` at `offset`.
///
/// # Safety
/// - The elements are inside an allocation that lives for `'m`, aligned, and initialised.
/// - All their fields are atomics.
unsafe fn part<'m, T>(start: *mut u8, offset: usize, count: usize) -> &'m [T] {
    let first: *const T = start.wrapping_add(offset).cast_const().cast();
    // SAFETY: the caller's obligations are those of this call.
    unsafe { std::slice::from_raw_parts(first, count) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_overlap_and_the_image_ends_before_the_arguments() {
        let layout = ArenaLayout::new(Limits { window: 8, ..Limits::default() }, 24).unwrap();
        let parts = [
            (0, size_of::<Control>()),
            (layout.core_records, 24 * size_of::<CoreRecord>()),
            (layout.cursors, 2 * QUEUES * 64),
            (layout.cells, QUEUES * 8 * 8),
            (layout.slots, 8 * 64),
            (layout.edges, layout.limits.edges as usize * 8),
            (layout.arguments, layout.limits.argument_bytes as usize),
            (layout.heap, layout.limits.heap_bytes as usize),
        ];
        for pair in parts.windows(2) {
            assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{pair:?}");
            assert_eq!(pair[1].0 % 64, 0);
        }
        assert_eq!(layout.total, layout.heap + layout.limits.heap_bytes as usize);
        assert_eq!(layout.image().len(), layout.arguments);
        assert_eq!(layout.heap % 1024, 0);
    }

    #[test]
    fn limits_that_make_no_arena_are_refused() {
        let good = Limits::default();
        for bad in [
            Limits { window: 3, ..good },
            Limits { window: 2, ..good },
            Limits { window: 0, ..good },
            Limits { heap_bytes: 1023, ..good },
            Limits { argument_bytes: 1 << 32, ..good },
        ] {
            assert_eq!(ArenaLayout::new(bad, 24).unwrap_err().code, code::INVALID_ARGUMENTS, "{bad:?}");
        }
    }
}
