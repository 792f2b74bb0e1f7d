//! simpler_run: bind, runner_run, validate, over the task graph and its executor.
//!
//! A [`ChipRuntime`] owns one device. It is given callables ([`CallableImage`]: an orchestration and its kernels) and
//! runs them: the orchestration runs and submits tasks, tasks wait for each other by the tensor
//! regions that they read and write, schedulers give them to cores. Each run explains itself in the log: a tree of
//! host spans, and below it the device's own windows ([`names`]).
//!
//! - [`run`](ChipRuntime::run) is the host's side, [`prepare`](ChipRuntime::prepare) the first of the phases that it
//!   consists of; `executor` is what runs on the device's control threads;
//!   [`graph`] is what they share; `orchestration` and `operations` are the object that is called and the table that it
//!   calls. Where it runs is the choice of [`GraphRuntime`]: on a device thread while its tasks already run, or, by
//!   `host_graph`, on the host before the launch.
//! - [`recording`] runs an orchestration without a device, for benchmarks that want the same tasks in a plain loop.
//!
//! The device is known only through `simpler-platform`; which one it is, is the caller's choice.

#[cfg(not(target_pointer_width = "64"))]
compile_error!("device addresses are 64 bits wide");

#[cfg(not(loom))]
mod call_config;
#[cfg(not(loom))]
mod call_config_record;
#[cfg(not(loom))]
mod clock_anchor;
pub mod code;
#[cfg(not(loom))]
mod device_spans;
#[cfg(not(loom))]
mod executor;
pub mod graph;
mod hid;
#[cfg(not(loom))]
mod host_graph;
#[cfg(not(loom))]
mod image;
pub mod names;
#[cfg(not(loom))]
mod operations;
#[cfg(not(loom))]
mod orchestration;
#[cfg(not(loom))]
mod pipeline;
#[cfg(not(loom))]
pub mod recording;
#[cfg(not(loom))]
mod ring_sizes;
#[cfg(not(loom))]
mod run;
#[cfg(not(loom))]
mod slot;
#[cfg(not(loom))]
mod swimlane;
mod sync;

#[cfg(not(loom))]
pub use call_config::CallConfig;
#[cfg(not(loom))]
pub use call_config_record::{CALL_CONFIG_WORDS, OUTPUT_PREFIX_BYTES, SimplerCallConfig};
#[cfg(not(loom))]
pub use clock_anchor::take as take_clock_anchor;
pub use graph::{Limits, RINGS, RingLimits};
pub use hid::hid;
#[cfg(not(loom))]
pub use image::{CallableImage, KernelImage};
#[cfg(not(loom))]
pub use pipeline::{Done, Launched, Prepared, RunIdentity};
#[cfg(not(loom))]
pub use ring_sizes::RingSizes;
#[cfg(not(loom))]
pub use run::{
    CallableId, ChipArg, ChipRuntime, GraphRuntime, PIPELINE_DEPTH_MAX, RunArgs, RunError, RuntimeConfig,
    SCHEDULER_TIMEOUT, SCHEDULER_TIMEOUT_ENV, TENSOR_TIMEOUT,
};
