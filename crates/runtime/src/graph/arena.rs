//! The one allocation that a run's shared state lives in, and its layout.
//!
//! In order: the control block, the cores' records, the ready queues; what is built ahead, the scopes' records, the task
//! slots, what early dispatch knows of them, the edges, the argument memory, the heap, of the last four each ring's behind the other's. All before the
//! semicolon has a defined first state, the *image*, which is built on the host and uploaded once; from then on a run
//! resets a few words. The rest is written before it is read. The layout follows from [`Limits`] and the number of cores,
//! and the control block names both by a key, so that a view of the wrong arena is refused.
//!
//! A graph that is built ahead, elsewhere, goes into an arena without touching the words of the image, which belong to
//! the threads that use it: the tasks that may start are a list of their own, from where the first of those threads puts
//! them into the queues ([`Graph::adopt`]).

use std::mem::{align_of, offset_of, size_of};
use std::ops::Range;

use simpler_device_phase::TaskAttrs;
use simpler_kernel_abi::{SimplerCompletions, SimplerKernelArgs, SimplerTensor};
use simpler_platform::DispatchPayload;

use super::early::{EarlyRecord, STAGED_CORES_MAX};
use super::fan::{Edge, TaskSlot, TaskWork, Tasks};
use super::gathering::{Gathering, SLOTS_MAX};
use super::ready::{ReadyCell, ReadyCursor, ReadyQueue};
use super::scope::{ScopeRecord, Scopes};
use super::{GraphError, Limits, OUTPUT_ALIGNMENT, RINGS, RingLimits, SCOPES_MAX, SHAPES, Shape, TaskId};
use crate::code;
use crate::hid::fnv1a;
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// First word of every arena.
const MAGIC: u64 = 0x6172_656e_6173_696d;
/// One queue a shape, then the one of tasks whose blocks start together, then the one of tasks that may be staged.
pub(crate) const QUEUES: usize = SHAPES.len() + 2;
/// The queue of tasks whose blocks start together.
pub(crate) const TOGETHER: usize = SHAPES.len();
/// The queue of tasks that may be staged (`early`).
pub(crate) const EARLY: usize = SHAPES.len() + 1;
/// Every part begins on a cache line of its own.
const PART_ALIGNMENT: usize = 64;
/// Longest error text.
pub(crate) const ERROR_TEXT_BYTES: usize = 500;

/// Fewest tasks of a window (RUNTIME §1.5).
const WINDOW_MIN: u32 = 4;
/// The windows of all rings together: a slot's index in the word of who gathers.
const WINDOWS_MAX: u64 = SLOTS_MAX;
/// Half an address space, which leaves the sum of all parts representable.
const HEAP_BYTES_MAX: u64 = isize::MAX as u64 / 2;
/// An index plus one stays below the mark of a closed list.
const EDGES_MAX: u64 = u32::MAX as u64 - 1;
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
    /// Tasks submitted so far, by ring; written by the orchestrator.
    submitted: Submitted,
    /// Non-zero once no more tasks will come.
    sealed: Padded,
    /// Tasks completed so far; counted by the schedulers.
    completed: Padded,
    /// Non-zero once the run has failed.
    fatal: Padded,
    /// What the orchestrator waits for: a slot plus one, or a scope with a bit that tells them apart; 0 for nothing.
    awaited: Padded,
    /// Per shape, the set of schedulers that have idle cores for it.
    idle: [Padded; SHAPES.len()],
    /// The set of schedulers that wait for what kernels have left to others.
    deferring: Padded,
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

/// What an orchestration waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Awaited {
    /// The task in this slot has completed.
    Task(u32),
    /// Everything in this scope, which has ended, is done.
    Scope(u32),
}

/// Tells a scope from a slot, of which there are fewer.
const AWAITED_SCOPE: u32 = 1 << 31;

impl Awaited {
    /// Whether it has come.
    pub(crate) fn has_come(self, graph: &Graph<'_>) -> bool {
        match self {
            Self::Task(task) => graph.tasks.is_complete(task),
            Self::Scope(scope) => graph.scopes.is_drained(scope),
        }
    }
}

/// A word for each ring, on a cache line of their own.
#[repr(C, align(64))]
#[derive(Debug)]
struct Submitted([AtomicU32; RINGS]);

/// What the host says of a graph that it has built.
#[repr(C, align(64))]
#[derive(Debug)]
struct Built {
    /// Tasks, by ring.
    submitted: [AtomicU32; RINGS],
    /// Tasks without kernels that have completed.
    completed: AtomicU32,
    /// Tasks that may start, by queue; the list has them in this order.
    ready: [AtomicU32; QUEUES],
}

/// Where a ring's parts begin, each counted in its own unit from the first ring's, and how much there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct RingPlace {
    slots: u32,
    edges: u32,
    /// In bytes.
    arguments: u32,
    /// In bytes.
    heap: u64,
}

/// What belongs to one core during a run.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct CoreRecord {
    payloads: [DispatchPayload; 2],
    /// What the kernels of the two payloads leave to others; nothing, but from a kernel to its completion.
    completions: [SimplerCompletions; 2],
    /// The slot of the task that the core runs, plus one; 0 for none. For diagnosis.
    running: AtomicU32,
    /// And of one whose kernel has returned there and has left something to others.
    deferred: AtomicU32,
}

/// Where everything is in an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArenaLayout {
    limits: Limits,
    cores: usize,
    key: u64,
    rings: [RingPlace; RINGS],
    /// Of all rings together, as the two below.
    window: usize,
    edge_count: usize,
    argument_bytes: usize,
    core_records: usize,
    cursors: usize,
    cells: usize,
    /// Cells of each queue: a power of two, and one for each slot.
    queue: usize,
    built: usize,
    initial: usize,
    scopes: usize,
    slots: usize,
    early: usize,
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
        let mut rings = [RingPlace::default(); RINGS];
        // Sums of four numbers that are far below the largest each, once they are checked.
        let (mut windows, mut edge_count, mut argument_bytes, mut heap_bytes) = (0_u64, 0_u64, 0_u64, 0_u64);
        for (ring, (place, limits)) in rings.iter_mut().zip(&limits.rings).enumerate() {
            // Those of the rings before it were checked.
            let (slots, edges, arguments) = (windows as u32, edge_count as u32, argument_bytes as u32);
            *place = RingPlace { slots, edges, arguments, heap: heap_bytes };
            if !limits.window.is_power_of_two() || limits.window < WINDOW_MIN {
                return refuse(format!(
                    "ring {ring}: a task window of {} is not a power of two from {WINDOW_MIN} on",
                    limits.window
                ));
            }
            if !(OUTPUT_ALIGNMENT..=HEAP_BYTES_MAX).contains(&limits.heap_bytes) {
                return refuse(format!(
                    "ring {ring}: a heap of {} bytes is not between {OUTPUT_ALIGNMENT} and {HEAP_BYTES_MAX}",
                    limits.heap_bytes
                ));
            }
            if limits.argument_bytes > ARGUMENT_BYTES_MAX {
                return refuse(format!(
                    "ring {ring}: {} bytes of argument memory are more than {ARGUMENT_BYTES_MAX}",
                    limits.argument_bytes
                ));
            }
            windows += u64::from(limits.window);
            edge_count += u64::from(limits.edges);
            argument_bytes += limits.argument_bytes.next_multiple_of(PART_ALIGNMENT as u64);
            heap_bytes += limits.heap_bytes.next_multiple_of(OUTPUT_ALIGNMENT);
            for (sum, most, what) in [
                (windows, WINDOWS_MAX, "tasks in the windows"),
                (edge_count, EDGES_MAX, "dependencies"),
                (argument_bytes, ARGUMENT_BYTES_MAX, "bytes of argument memory"),
                (heap_bytes, HEAP_BYTES_MAX, "bytes of heap"),
            ] {
                if sum > most {
                    return refuse(format!("{sum} {what} up to ring {ring} are more than {most}"));
                }
            }
        }
        if cores > STAGED_CORES_MAX {
            return refuse(format!("{cores} cores are more than {STAGED_CORES_MAX}"));
        }
        let mut end = size_of::<Control>();
        let mut part = |bytes: usize, alignment: usize| {
            let start = end.next_multiple_of(alignment);
            end = start + bytes;
            start
        };
        let (window, edge_count) = (windows as usize, edge_count as usize);
        let of_ring =
            |ring: &RingLimits| [ring.window.into(), ring.heap_bytes, ring.argument_bytes, ring.edges.into()];
        let words = limits.rings.iter().flat_map(of_ring).chain([cores as u64]);
        let key = fnv1a(&words.flat_map(u64::to_le_bytes).collect::<Vec<_>>());
        let (argument_bytes, queue) = (argument_bytes as usize, window.next_power_of_two());
        Ok(Self {
            limits,
            cores,
            key,
            rings,
            window,
            edge_count,
            argument_bytes,
            core_records: part(cores * size_of::<CoreRecord>(), PART_ALIGNMENT),
            cursors: part(QUEUES * 2 * size_of::<ReadyCursor>(), PART_ALIGNMENT),
            cells: part(QUEUES * queue * size_of::<ReadyCell>(), PART_ALIGNMENT),
            queue,
            built: part(size_of::<Built>(), PART_ALIGNMENT),
            initial: part(window * size_of::<AtomicU32>(), PART_ALIGNMENT),
            scopes: part(SCOPES_MAX * size_of::<ScopeRecord>(), PART_ALIGNMENT),
            slots: part(window * size_of::<TaskSlot>(), PART_ALIGNMENT),
            early: part(window * size_of::<EarlyRecord>(), PART_ALIGNMENT),
            edges: part(edge_count * size_of::<Edge>(), PART_ALIGNMENT),
            arguments: part(argument_bytes, PART_ALIGNMENT),
            heap: part(heap_bytes as usize, OUTPUT_ALIGNMENT as usize),
            total: end,
        })
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

    /// What a graph that was built elsewhere consists of: so many tasks that may start, and of each ring so many tasks and
    /// edges, and bytes of argument memory; and whether any of its tasks has part in early dispatch.
    pub(crate) fn built_parts(
        &self,
        ready: usize,
        used: [[usize; 3]; RINGS],
        has_early: bool,
    ) -> impl Iterator<Item = Range<usize>> {
        let part = |start: usize, bytes: usize| start..start + bytes;
        let of_rings = self.rings.into_iter().zip(used);
        let (slots, early, edges, arguments) = (self.slots, self.early, self.edges, self.arguments);
        let of_rings = of_rings.flat_map(move |(place, [tasks, links, argument_bytes])| {
            [
                part(slots + place.slots as usize * size_of::<TaskSlot>(), tasks * size_of::<TaskSlot>()),
                part(
                    early + place.slots as usize * size_of::<EarlyRecord>(),
                    if has_early { tasks * size_of::<EarlyRecord>() } else { 0 },
                ),
                part(edges + place.edges as usize * size_of::<Edge>(), links * size_of::<Edge>()),
                part(arguments + place.arguments as usize, argument_bytes),
            ]
        });
        let built =
            [part(self.built, size_of::<Built>()), part(self.initial, ready * size_of::<AtomicU32>())];
        built.into_iter().chain(of_rings)
    }

    /// What distinguishes this layout from others: FNV over the limits and the cores.
    pub fn key(&self) -> u64 {
        self.key
    }

    /// The first state of the control block, the cores' records and the queues.
    pub fn image(&self) -> Vec<u8> {
        let mut image = vec![0; self.built];
        let mut word = |at: usize, bytes: &[u8]| image[at..at + bytes.len()].copy_from_slice(bytes);
        word(offset_of!(Control, magic), &MAGIC.to_le_bytes());
        word(offset_of!(Control, key), &self.key().to_le_bytes());
        for queue in 0..QUEUES {
            for index in 0..self.queue {
                let cell = self.cells + (queue * self.queue + index) * size_of::<ReadyCell>();
                word(cell, &(index as u32).to_le_bytes());
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
const _: () = assert!(size_of::<EarlyRecord>() == 24);
const _: () = assert!(align_of::<Control>() <= PART_ALIGNMENT && ERROR_TEXT_BYTES.is_multiple_of(4));

/// A view of an arena: everything that a run's threads share. Copied to each of them.
#[derive(Clone, Copy, Debug)]
pub struct Graph<'m> {
    /// Slots and edges.
    pub tasks: Tasks<'m>,
    /// One queue per shape, and the one of tasks whose blocks start together.
    pub ready: [ReadyQueue<'m>; QUEUES],
    /// The scopes' counts.
    pub(crate) scopes: Scopes<'m>,
    layout: &'m ArenaLayout,
    control: &'m Control,
    built: &'m Built,
    /// The tasks that may start of a graph that was built ahead.
    initial: &'m [AtomicU32],
    core_records: *const CoreRecord,
    arguments: *mut u8,
    heap: u64,
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
    pub unsafe fn attach(base: u64, layout: &'m ArenaLayout) -> Option<Self> {
        // SAFETY: the caller's obligations.
        unsafe { Self::attach_for(base, base, layout) }
    }

    /// As [`Graph::attach`], for a graph that is built at `base` and runs at `device_base`: the addresses that tasks
    /// get are those there. Of the memory at `base` the heap is not needed.
    ///
    /// # Safety
    /// As for [`Graph::attach`], the heap excepted.
    pub unsafe fn attach_for(base: u64, device_base: u64, layout: &'m ArenaLayout) -> Option<Self> {
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
        // SAFETY: the layout puts so many slots there.
        let slots = unsafe { part(start, layout.slots, layout.window) };
        // SAFETY: the layout puts one a slot there.
        let early = unsafe { part(start, layout.early, layout.window) };
        // SAFETY: the layout puts this many edges there.
        let edges = unsafe { part(start, layout.edges, layout.edge_count) };
        // SAFETY: the layout puts two cursors a queue there.
        let cursors: &[ReadyCursor] = unsafe { part(start, layout.cursors, QUEUES * 2) };
        // SAFETY: the layout puts so many cells a queue there.
        let cells: &[ReadyCell] = unsafe { part(start, layout.cells, QUEUES * layout.queue) };
        let queue = |index: usize| ReadyQueue {
            cells: &cells[index * layout.queue..(index + 1) * layout.queue],
            pushed: &cursors[index * 2],
            popped: &cursors[index * 2 + 1],
        };
        // SAFETY: the layout puts so many records there.
        let records = unsafe { part(start, layout.scopes, SCOPES_MAX) };
        // SAFETY: the layout puts one there.
        let built: &[Built] = unsafe { part(start, layout.built, 1) };
        // SAFETY: the layout puts one a slot there.
        let initial = unsafe { part(start, layout.initial, layout.window) };
        Some(Self {
            tasks: Tasks { slots, edges, early },
            ready: std::array::from_fn(queue),
            scopes: Scopes { records },
            layout,
            control,
            built: &built[0],
            initial,
            core_records: start.wrapping_add(layout.core_records).cast_const().cast(),
            arguments: start.wrapping_add(layout.arguments),
            heap: device_base + layout.heap as u64,
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
        let words = [&control.sealed, &control.completed, &control.awaited, &control.deferring];
        let words = words.into_iter().chain(&control.idle).map(|word| &word.0);
        for word in words.chain(&control.submitted.0) {
            word.store(0, Ordering::Relaxed);
        }
        control.gathering.reset();
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

    /// Takes the tasks out of the queues, and says of the graph what [`Graph::adopt`] needs where it runs; how many tasks
    /// may start.
    pub(crate) fn hand_over(&self) -> usize {
        let Self { control, built, .. } = self;
        // ORDERING: Relaxed: the caller copies the graph to where it runs, here and below.
        for (to, from) in built.submitted.iter().zip(&control.submitted.0) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        built.completed.store(self.completed(), Ordering::Relaxed);
        let mut initial = self.initial.iter();
        for (queue, count) in self.ready.iter().zip(&built.ready) {
            let tasks = std::iter::from_fn(|| queue.pop()).zip(initial.by_ref());
            let handed = tasks.map(|(task, place)| place.store(task, Ordering::Relaxed)).count();
            count.store(handed as u32, Ordering::Relaxed);
        }
        // ORDERING: Relaxed: read by this thread's next reset: the queues are empty.
        control.dirty.store(0, Ordering::Relaxed);
        self.initial.len() - initial.len()
    }

    /// Makes the graph that was built ahead the one of this run, which begins with it. After [`Graph::reset`].
    pub(crate) fn adopt(&self) {
        let Self { control, built, .. } = self;
        // ORDERING: Relaxed: the host has copied it here before the launch; the caller publishes the rest, here and below.
        for (to, from) in control.submitted.0.iter().zip(&built.submitted) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        control.completed.0.store(built.completed.load(Ordering::Relaxed), Ordering::Relaxed);
        let mut initial = self.initial.iter();
        for (queue, count) in built.ready.iter().enumerate() {
            for task in initial.by_ref().take(count.load(Ordering::Relaxed) as usize) {
                self.push(task.load(Ordering::Relaxed), queue);
            }
        }
        self.seal();
    }

    /// Tasks submitted so far.
    pub fn submitted(&self) -> u32 {
        // ORDERING: Acquire: pairs with the Release in `set_submitted`. The sum is exact once no more tasks come.
        self.control
            .submitted
            .0
            .iter()
            .map(|of_ring| of_ring.load(Ordering::Acquire))
            .fold(0, u32::wrapping_add)
    }

    pub(super) fn set_submitted(&self, ring: usize, tasks: u32) {
        // ORDERING: Release: pairs with the Acquire above: whoever sees the number may look at the slots.
        self.control.submitted.0[ring].store(tasks, Ordering::Release);
    }

    /// The slots that hold the last tasks of each ring, done or not. For diagnosis.
    pub(crate) fn slots_in_use(&self) -> impl Iterator<Item = u32> {
        let rings = self.layout.rings.iter().zip(&self.layout.limits.rings).zip(&self.control.submitted.0);
        rings.flat_map(|((place, limits), submitted)| {
            // ORDERING: Acquire: as in `submitted`.
            place.slots..place.slots + submitted.load(Ordering::Acquire).min(limits.window)
        })
    }

    /// The slot of a task that is there.
    pub fn slot_of(&self, task: TaskId) -> u32 {
        let ring = task.ring();
        self.layout.rings[ring].slots + (task.local() & (self.layout.limits.rings[ring].window - 1))
    }

    /// The task in a slot.
    pub fn task_in(&self, slot: u32) -> TaskId {
        let ring = self.layout.rings.iter().rposition(|place| place.slots <= slot).unwrap_or(0);
        TaskId::new(ring, self.tasks.slot(slot).local())
    }

    /// What is in use at one time of a ring.
    pub(super) fn limits(&self) -> &'m Limits {
        &self.layout.limits
    }

    /// The first edge of a ring.
    pub(super) fn first_edge(&self, ring: usize) -> u32 {
        self.layout.rings[ring].edges
    }

    /// Where a ring's argument memory begins in all of it.
    pub(super) fn first_argument(&self, ring: usize) -> u32 {
        self.layout.rings[ring].arguments
    }

    /// The address of a ring's heap, where its tasks run.
    pub(super) fn heap(&self, ring: usize) -> u64 {
        self.heap + self.layout.rings[ring].heap
    }

    /// Tasks completed so far.
    pub fn completed(&self) -> u32 {
        // ORDERING: SeqCst: see `is_drained`.
        self.control.completed.0.load(Ordering::SeqCst)
    }

    fn count_completed(&self) {
        // ORDERING: SeqCst: see `is_drained`.
        self.control.completed.0.fetch_add(1, Ordering::SeqCst);
    }

    /// Says what the orchestrator waits for, or that it does not any more.
    ///
    /// It says so and then looks whether that has come; a scheduler completes a task, leaves its scope, and then looks here.
    /// All these accesses are SeqCst, so that one of the two sees the other: the orchestrator what it waits for, or the
    /// scheduler that it must ring.
    pub(crate) fn set_awaited(&self, awaited: Option<Awaited>) {
        let word = match awaited {
            None => 0,
            Some(Awaited::Task(slot)) => slot + 1,
            Some(Awaited::Scope(scope)) => AWAITED_SCOPE | scope,
        };
        // ORDERING: SeqCst: see above.
        self.control.awaited.0.store(word, Ordering::SeqCst);
    }

    /// Whether the orchestrator waits for what has come by this task, perhaps. For who has just completed it.
    #[inline]
    pub(crate) fn is_awaited(&self, task: u32) -> bool {
        // ORDERING: SeqCst: see `set_awaited`.
        match self.control.awaited.0.load(Ordering::SeqCst) {
            0 => false,
            word if word & AWAITED_SCOPE != 0 => self.scopes.is_drained(word & !AWAITED_SCOPE),
            word => word - 1 == task,
        }
    }

    /// Completes a task, calling `ready` for each that now waits for nothing, and putting each that may be staged into its
    /// queue. The slot may be another task's afterwards.
    #[inline]
    pub(crate) fn complete(&self, task: u32, ready: impl FnMut(u32)) {
        let scope = self.tasks.slot(task).scope();
        self.tasks.complete(task, ready, |task| self.push_early(task));
        self.count_completed();
        self.scopes.leave(scope);
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
        self.push(task, if starts_together { TOGETHER } else { shape as usize });
    }

    /// Puts a task that may be staged where the schedulers find it.
    ///
    /// # Panics
    /// As [`Graph::push_ready`].
    pub(crate) fn push_early(&self, task: u32) {
        self.push(task, EARLY);
    }

    fn push(&self, task: u32, queue: usize) {
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

    /// Notes that a scheduler waits for what kernels have left to others, or does not any more.
    pub(crate) fn set_deferring(&self, scheduler: usize, defers: bool) {
        let word = &self.control.deferring.0;
        // ORDERING: Relaxed: who misses it lets that one sleep to the end of its park slice.
        if defers {
            word.fetch_or(1 << scheduler, Ordering::Relaxed);
        } else {
            word.fetch_and(!(1 << scheduler), Ordering::Relaxed);
        }
    }

    /// The schedulers that wait for what kernels have left to others, by bit.
    #[inline]
    pub(crate) fn deferring(&self) -> u32 {
        // ORDERING: Relaxed: as above.
        self.control.deferring.0.load(Ordering::Relaxed)
    }

    /// Where the kernel of a core's payload says what it leaves to others.
    pub(crate) fn completions(&self, core: usize, payload: usize) -> *mut SimplerCompletions {
        assert!(payload < 2, "payload {payload} of 2");
        let record = self.record(core).cast_mut();
        // SAFETY: the record is inside the arena; no reference is made.
        unsafe { &raw mut (*record).completions[payload] }
    }

    /// A core's two payloads, for the handshake.
    pub(crate) fn payloads(&self, core: usize) -> *mut [DispatchPayload; 2] {
        let record = self.record(core);
        // SAFETY: the record is inside the arena; no reference is made.
        unsafe { &raw const (*record).payloads }.cast_mut()
    }

    /// The slot of the task that a core runs, plus one; 0 for none.
    pub(crate) fn running_on(&self, core: usize) -> &AtomicU32 {
        let record = self.record(core);
        // SAFETY: the record is inside the arena, lives for 'm, and the word is only used atomically.
        unsafe { &(*record).running }
    }

    /// The slot of a task whose kernel has returned on a core and has left something to others, plus one; 0 for none.
    pub(crate) fn deferred_on(&self, core: usize) -> &AtomicU32 {
        let record = self.record(core);
        // SAFETY: as in `running_on`.
        unsafe { &(*record).deferred }
    }

    fn record(&self, core: usize) -> *const CoreRecord {
        assert!(core < self.cores(), "core {core} of {}", self.cores());
        self.core_records.wrapping_add(core)
    }

    /// Number of cores that have a record.
    pub(crate) fn cores(&self) -> usize {
        self.layout.cores
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
        assert!(
            u64::from(offset) + argument_bytes_of(count, scalars.len()) <= self.layout.argument_bytes as u64
        );
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

    /// The arguments of a block of a task, as its kernels receive them. Valid until the task's
    /// scope is drained.
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
            ..SimplerKernelArgs::NONE
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
/// - The elements are inside an allocation that lives for `'m`, aligned, and initialised; any bytes are such an element.
/// - All their fields are atomics.
unsafe fn part<'m, T>(start: *mut u8, offset: usize, count: usize) -> &'m [T] {
    let first: *const T = start.wrapping_add(offset).cast_const().cast();
    // SAFETY: the caller's obligations are those of this call.
    unsafe { std::slice::from_raw_parts(first, count) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::host_arena::HostArena;

    #[test]
    fn parts_do_not_overlap_and_the_image_ends_before_the_arguments() {
        let ring = RingLimits { window: 8, ..RingLimits::default() };
        let layout = ArenaLayout::new(Limits::each(ring), 24).unwrap();
        let parts = [
            (0, size_of::<Control>()),
            (layout.core_records, 24 * size_of::<CoreRecord>()),
            (layout.cursors, 2 * QUEUES * 64),
            (layout.cells, QUEUES * 32 * 8),
            (layout.built, size_of::<Built>()),
            (layout.initial, 32 * 4),
            (layout.scopes, SCOPES_MAX * 8),
            (layout.slots, 32 * 64),
            (layout.early, 32 * 24),
            (layout.edges, RINGS * ring.edges as usize * 8),
            (layout.arguments, RINGS * ring.argument_bytes as usize),
            (layout.heap, RINGS * ring.heap_bytes as usize),
        ];
        for pair in parts.windows(2) {
            assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{pair:?}");
            assert_eq!(pair[1].0 % 64, 0);
        }
        assert_eq!(layout.total, layout.heap + RINGS * ring.heap_bytes as usize);
        assert_eq!(layout.image().len(), layout.built);
        assert_eq!(layout.heap % 1024, 0);
    }

    #[test]
    fn rings_of_different_sizes_follow_each_other() {
        let ring = RingLimits { window: 8, heap_bytes: 1500, argument_bytes: 100, edges: 3 };
        let mut limits = Limits::each(ring);
        limits.rings[1] = RingLimits { window: 16, heap_bytes: 4096, argument_bytes: 64, edges: 5 };
        let layout = ArenaLayout::new(limits, 24).unwrap();
        let places = layout.rings.map(|place| (place.slots, place.edges, place.arguments, place.heap));
        assert_eq!(places, [(0, 0, 0, 0), (8, 3, 128, 2048), (24, 8, 192, 6144), (32, 11, 320, 8192)]);
        // The queue has a cell for each of the 40 slots.
        assert_eq!((layout.window, layout.queue), (40, 64));
        let memory = HostArena::whole(layout);
        let graph = memory.graph();
        assert_eq!(graph.heap(1) - graph.heap(0), 2048);
        for (ring, local, slot) in [(0, 0, 0), (0, 9, 1), (1, 16, 8), (1, 15, 23), (2, 7, 31), (3, 4, 36)] {
            let task = TaskId::new(ring, local);
            assert_eq!(graph.slot_of(task), slot);
            graph.tasks.slot(slot).prepare(local, &TaskWork::default(), 0);
            assert_eq!(graph.task_in(slot), task);
        }
    }

    #[test]
    fn limits_that_make_no_arena_are_refused() {
        let good = RingLimits::default();
        for bad in [
            RingLimits { window: 3, ..good },
            RingLimits { window: 2, ..good },
            RingLimits { window: 0, ..good },
            RingLimits { heap_bytes: 1023, ..good },
            RingLimits { argument_bytes: 1 << 32, ..good },
            // Only all four of them are too many.
            RingLimits { window: 1 << 26, ..good },
            RingLimits { argument_bytes: 1 << 30, ..good },
            RingLimits { edges: 1 << 30, ..good },
        ] {
            assert_eq!(
                ArenaLayout::new(Limits::each(bad), 24).unwrap_err().code,
                code::INVALID_ARGUMENTS,
                "{bad:?}"
            );
        }
    }
}
