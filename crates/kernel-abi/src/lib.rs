//! The C types that orchestrations and kernels see, as Rust sees them.
//!
//! `include/simpler/kernel.h` and `include/simpler/orchestration.h` are the documented contract; this crate
//! mirrors them, and `tests/layout.rs` compiles the headers and compares every size and offset.
#![no_std]

mod kernel;
mod orchestration;

pub use kernel::*;
pub use orchestration::*;
