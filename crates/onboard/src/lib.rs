//! The seam to CANN, the runtime of real chips: device, log level, phase buffer, launch.
//!
//! **None of this has ever run on silicon.** There was no chip and no CANN to run it against: it follows the public
//! documentation, and its tests run it against a stand-in that records calls and their order. `docs/onboard.md`
//! says what that leaves open.
//!
//! CANN is loaded when it is asked for ([`Cann::load`]) and never linked, so a program that carries this crate
//! starts on a machine without it. What CANN's functions look like is written in one file (`signatures`); if a
//! release differs, that file is what changes.
//!
//! ```text
//! Cann::load          dlopen, every symbol once
//! OnboardNpu::open    dlog_setlevel unless the environment chose ── aclInit ── aclrtSetDevice ── aclrtCreateStream
//! load_aicpu, init    InitArgs.log_level, once: the device keeps it, whatever the host's threshold does later
//! a run               PhaseBuffer::start ── OnboardNpu::start ── AicpuRun::wait ── PhaseRun::read_back
//!                     one H2D, if gated on                       stream sync       D2H, the tail only if it was used
//! drop                the reverse of open
//! ```
//!
//! The threshold is live on host modules and latched on the device: who wants another level on the device opens
//! it again.
//!
//! [`OnboardNpu`] is a [`simpler_platform::Platform`] as far as memory goes. Launching through that trait is
//! refused: it takes a program of this process, and a chip runs only what was compiled for it. The C side, for
//! code compiled for the chip, is in `include` ([`HEADERS`]) and `device` ([`DEVICE_LOG_SOURCE`]).

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!("CANN is there for 64-bit Linux");

mod aicpu;
mod arguments;
mod cann;
mod device;
mod error;
mod headers;
mod memory;
mod npu;
mod phase_buffer;
mod signatures;

pub use aicpu::{AicpuBinary, AicpuFunction, AicpuRun, INIT_ENTRY, Synchronised};
pub use arguments::{InitArgs, KernelArgs};
pub use cann::{Cann, CannPaths, FOLDER_ENV};
pub use device::{CannLogLevel, LOG_LEVEL_ENV};
pub use error::OnboardError;
pub use headers::{DEVICE_LOG_SOURCE, HEADERS};
pub use npu::{OnboardNpu, OnboardOptions, a2a3, a5};
pub use phase_buffer::{PhaseBuffer, PhaseBytes, PhaseRun, PhaseSizes};
