//! Workers: parents, their forked children, and the mailboxes between them.
//!
//! A [`Worker`] of level 3 is a parent that forks one child per chip before it has any thread. Each child makes a
//! [`ChipWorker`] (a platform and its runtime) and serves the mailbox that it shares with its parent; host
//! data lies in [`SharedMemory`] that both see. Errors come back as a code and a text. A chip never outlives
//! its parent, and its parent never loses one without saying so.
//!
//! The same holds at every level above (RUNTIME §1.1): the children of a worker of level 4 are whole workers of level 3,
//! which run orchestrations, closures over their own children; and a worker of any of these levels has sub workers, which
//! run functions of the host program. A worker of level 2 is one chip in the process itself, under the same calls.
//!
//! ```no_run
//! use simpler_kernel_abi::{ArgUse, DType};
//! use simpler_worker::{ChipArg, RunArgs, SharedBuffer, Worker};
//! # fn example(image: simpler_worker::CallableImage) -> Result<(), Box<dyn std::error::Error>> {
//! let mut builder = Worker::builder(3);
//! builder.chips(2);
//! let callable = builder.callable(image)?;
//! let outputs = builder.share(SharedBuffer::new(2 * 64)?);
//! let mut worker = builder.start()?; // forks
//! let tickets = (0..2)
//!     .map(|chip| {
//!         let tensor = outputs.tensor(chip * 64, 64, DType::F32)?;
//!         let tensors = vec![ChipArg { tensor, arg_use: ArgUse::OutputExisting }];
//!         worker.submit(chip, callable, &RunArgs { tensors, scalars: vec![], ..RunArgs::default() })
//!     })
//!     .collect::<Result<Vec<_>, _>>()?;
//! for ticket in tickets {
//!     worker.wait(ticket)?;
//! }
//! worker.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! A pod, whose nodes run an orchestration over their chips:
//!
//! ```no_run
//! use simpler_worker::{ChildId, RunArgs, Worker};
//! # fn example(images: [simpler_worker::CallableImage; 2]) -> Result<(), Box<dyn std::error::Error>> {
//! let mut pod = Worker::builder(4);
//! let mut add = None;
//! for image in images {
//!     let mut node = Worker::builder(3);
//!     node.chips(2);
//!     add = Some(node.callable(image)?);
//!     pod.worker(node);
//! }
//! let add = add.expect("two nodes");
//! let step = pod.orchestration("step", move |node: &mut Worker, args: &RunArgs| {
//!     let tickets = [node.submit(0, add, args)?, node.submit(1, add, args)?];
//!     Ok(tickets.into_iter().try_for_each(|ticket| node.wait(ticket))?)
//! })?;
//! let mut pod = pod.start()?; // forks two nodes, which fork two chips each
//! let tickets = [0, 1].map(|node| pod.submit(ChildId::Worker(node), step, &RunArgs::default()));
//! for ticket in tickets {
//!     pod.wait(ticket?)?;
//! }
//! pod.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! Workers of the level below can also be on other hosts, see [`remote`].
//!
//! The mailbox's protocol is in `mailbox.rs`, the child's life in `child.rs`, the parent's in `worker.rs`.

#[cfg(not(loom))]
mod arguments;
#[cfg(not(loom))]
mod call_config;
#[cfg(not(loom))]
mod cancellation;
#[cfg(not(loom))]
mod child;
#[cfg(not(loom))]
mod child_id;
#[cfg(not(loom))]
mod chip_worker;
#[cfg(not(loom))]
mod endpoint;
#[cfg(not(loom))]
mod error;
#[cfg(not(loom))]
mod function;
#[cfg(not(loom))]
mod image_transfer;
#[cfg(not(loom))]
mod launcher;
#[cfg(not(loom))]
mod level;
#[cfg(not(loom))]
mod mailbox;
#[cfg(not(loom))]
mod process;
#[cfg(not(loom))]
pub mod remote;
#[cfg(not(loom))]
mod shared_memory;
#[cfg(not(loom))]
mod span;
#[doc(hidden)]
pub mod turn;
#[cfg(not(loom))]
mod worker;

#[cfg(not(loom))]
pub use child_id::ChildId;
#[cfg(not(loom))]
pub use chip_worker::ChipWorker;
#[cfg(not(loom))]
pub use endpoint::{Endpoint, MakeEndpoint, Task, Tasks};
#[cfg(not(loom))]
pub use error::{Ending, WorkerError};
#[cfg(not(loom))]
pub use shared_memory::{SharedBuffer, SharedMemory, SharedSlice};
#[cfg(not(loom))]
pub use simpler_kernel_abi::ArgUse;
#[cfg(not(loom))]
pub use simpler_runtime::{CallConfig, CallableImage, ChipArg, Launched, RunArgs, RunError};
#[cfg(not(loom))]
pub use worker::{
    CALLABLES_MAX, CHIPS_MAX, Callable, LogSetup, REMOTES_MAX, SUBS_MAX, Ticket, WORKERS_MAX, Worker,
    WorkerBuilder,
};
