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
//! - [`builder`]: the orchestrator's side: from a task's tensors to its dependencies;
//! - `host_arena`: an arena in the host's memory.
//!
//! Everything shared is an atomic word or is written before the atomic word that publishes it. Shared words hold
//! indices, never pointers, so the graph can be filled on one side and drained on the other: tensormap_and_ringbuffer
//! fills it on the device while it is drained, host_build_graph fills it on the host and uploads it.
//! Nothing is recycled within a run: a run that needs more tasks or memory than the [`Limits`] fails with a
//! sentence that names the limit.

#[cfg(not(loom))]
pub mod arena;
#[cfg(not(loom))]
pub mod builder;
pub mod fan;
pub mod gathering;
#[cfg(not(loom))]
pub(crate) mod host_arena;
pub mod ready;
pub mod regions;

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

/// What a run may use. Equal limits share one prebuilt arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Tasks of a run: a power of two, 4 or more (RUNTIME §1.5).
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
/// Four dependencies a task in a full window: here one pool serves the run, where the specification has one of
/// 16384 a ring and four rings.
const EDGES_DEFAULT: u32 = 65_536;
/// Regions on record at one time (RUNTIME §3.5).
pub const REGIONS_MAX: usize = 65_536;

impl Default for Limits {
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
