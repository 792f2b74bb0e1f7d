//! The task graph: tasks, the regions they touch, who waits for whom, and who may start.
//!
//! One orchestrator fills it while any number of schedulers drain it. The parts:
//!
//! - [`arena`]: the one allocation that holds everything shared, and its layout;
//! - [`fan`]: a task's slot, with the count of what it waits for (fan-in) and the list of who waits for it
//!   (fan-out);
//! - [`ready`]: the queues of tasks that may start, one per shape and one of those whose blocks start together;
//! - [`gathering`]: how a task gets all the cores at once that its blocks need;
//! - [`regions`]: which task last wrote, and which tasks have read, each byte of each buffer;
//! - [`boxes`]: strided views, told apart;
//! - [`scope`]: when everything in a scope is done;
//! - `ring`: what tasks are made of, handed out in a circle;
//! - [`builder`]: the orchestrator's side: from a task's tensors to its dependencies;
//! - `host_arena`: an arena in the host's memory.
//!
//! Everything shared is an atomic word or is written before the atomic word that publishes it. Shared words hold
//! indices, never pointers, so the graph can be filled on one side and drained on the other: tensormap_and_ringbuffer
//! fills it on the device while it is drained, host_build_graph fills it on the host and uploads it.
//!
//! There are four rings (RUNTIME §3.5). A task belongs to the scope that it is submitted in, and takes what it needs from
//! the ring of the scope's depth; when the scope has ended and all in it is done, later tasks get it. What cannot be had,
//! since scopes that are still open hold it, fails the run with a sentence that names the limit. The run's own scope is
//! open to the end, so an orchestration without scopes has one ring and gets nothing back; nor does a graph that is
//! filled before any of it runs.

#[cfg(not(loom))]
pub mod arena;
#[cfg(not(loom))]
pub mod boxes;
#[cfg(not(loom))]
pub mod builder;
pub mod early;
pub mod fan;
pub mod gathering;
#[cfg(not(loom))]
pub(crate) mod host_arena;
pub mod ready;
#[cfg(not(loom))]
pub mod regions;
#[cfg(not(loom))]
mod ring;
pub mod scope;

use std::fmt;

/// What a task with kernels needs to run; the index of each in per-shape arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One kernel, on any AIC.
    Aic = 0,
    /// One kernel, on any AIV.
    Aiv = 1,
    /// Two or three kernels, on the cores of one cluster.
    Mix = 2,
}

/// Every shape, by index.
pub const SHAPES: [Shape; 3] = [Shape::Aic, Shape::Aiv, Shape::Mix];

/// Rings of a graph; a scope at depth d has ring d, or the last (RUNTIME §3.5).
pub const RINGS: usize = 4;
/// Scopes inside one another, the run's own not counted (RUNTIME §3.5).
pub const SCOPE_DEPTH_MAX: usize = 64;
/// Scopes that are open, or have ended and are not drained. Each that has tasks holds a slot, so small ones end up
/// waiting for each other here rather than for a slot.
pub const SCOPES_MAX: usize = 4096;

const _: () = assert!(SCOPES_MAX > SCOPE_DEPTH_MAX);

/// A task as orchestrations, records and messages name it: its number in its ring, from 0 upwards, and above that the ring
/// (RUNTIME §3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TaskId(u64);

impl TaskId {
    /// The task with this number in this ring.
    pub const fn new(ring: usize, local: u32) -> Self {
        Self((ring as u64) << 32 | local as u64)
    }

    /// The task that an orchestration names; None where there is no such ring.
    pub fn named(id: i64) -> Option<Self> {
        u64::try_from(id).ok().map(Self).filter(|id| id.ring() < RINGS)
    }

    /// Its ring.
    pub const fn ring(self) -> usize {
        (self.0 >> 32) as usize
    }

    /// Its number in the ring.
    pub const fn local(self) -> u32 {
        self.0 as u32
    }

    /// Both in one word.
    pub const fn raw(self) -> u64 {
        self.0
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ring() {
            0 => write!(f, "{}", self.local()),
            ring => write!(f, "{} of ring {ring}", self.local()),
        }
    }
}

/// What a run may use. Equal limits share one prebuilt arena.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// By ring.
    pub rings: [RingLimits; RINGS],
}

impl Limits {
    /// The same for each ring.
    pub const fn each(ring: RingLimits) -> Self {
        Self { rings: [ring; RINGS] }
    }
}

/// What is in use at one time of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingLimits {
    /// Tasks: a power of two, 4 or more (RUNTIME §1.5).
    pub window: u32,
    /// Bytes for OUTPUT tensors, each rounded up to [`OUTPUT_ALIGNMENT`].
    pub heap_bytes: u64,
    /// Bytes for the tensors and scalars of tasks: 136 a tensor, 8 a scalar.
    pub argument_bytes: u64,
    /// Dependencies.
    pub edges: u32,
}

/// Where each OUTPUT tensor starts (RUNTIME §3.5).
pub const OUTPUT_ALIGNMENT: u64 = 1024;

/// The specification's window (RUNTIME §3.5).
const WINDOW_DEFAULT: u32 = 16_384;
/// A quarter of the specification's ring: the machine may have a few GiB for several chips.
const HEAP_BYTES_DEFAULT: u64 = 64 << 20;
/// Seven tensors a task in a full window.
const ARGUMENT_BYTES_DEFAULT: u64 = 16 << 20;
/// Four dependencies a task in a full window, where the specification has one: what is not used costs no memory.
const EDGES_DEFAULT: u32 = 65_536;
/// Regions on record at one time (RUNTIME §3.5).
pub const REGIONS_MAX: usize = 65_536;

impl Default for RingLimits {
    fn default() -> Self {
        Self {
            window: WINDOW_DEFAULT,
            heap_bytes: HEAP_BYTES_DEFAULT,
            argument_bytes: ARGUMENT_BYTES_DEFAULT,
            edges: EDGES_DEFAULT,
        }
    }
}

/// Why a task cannot be added: an orchestrator code (RUNTIME §2.3) and a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphError {
    /// One of [`crate::code`].
    pub code: u32,
    /// What happened, with the limit that was hit.
    pub text: String,
}

impl fmt::Display for GraphError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (code {})", self.text, self.code)
    }
}

impl std::error::Error for GraphError {}
