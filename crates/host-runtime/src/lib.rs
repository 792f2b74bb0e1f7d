//! The C API of the host runtime, and the loader of the objects that offer it.
//!
//! A runtime object is one shared library per architecture (`libsimpler_host_runtime_a2a3sim.so`, …) with everything in
//! it: the runtime, the platform, a logger. The packages below this one are those objects and nothing else; what they
//! export is written here once, and [`export_host_runtime!`] makes it theirs.
//!
//! ```text
//! the process's owner of the log
//!   └─ loader ── dlopen, global ──▶ simpler_sim_context       which simulated devices are taken
//!             └─ dlopen, local  ──▶ simpler_host_runtime_…    bind the log, then the C API
//!                                      context ▶ ChipRuntime ▶ Platform
//! ```
//!
//! - [`host_runtime`] is `include/simpler/host_runtime.h`: its types, and each function's body behind one guard, through
//!   which no panic passes.
//! - `context` is what a context holds, and the runs that are open in it; `run_storage` the caller's block of memory.
//! - [`sim`] makes the device of a simulated architecture.
//! - [`loader`] is the other side: it opens an object in the order that the header says, and wraps its functions.
//!
//! What a run is, is `simpler-runtime`'s business.

mod context;
mod exports;
pub mod host_runtime;
mod last_error;
pub mod loader;
mod run_storage;
pub mod sim;

pub use context::{Architecture, Device, DeviceRequest, SimplerContext};
