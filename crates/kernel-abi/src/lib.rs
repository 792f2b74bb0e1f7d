//! The C types that orchestrations and kernels see, as Rust sees them.
//!
//! `include/simpler/kernel.h` and `include/simpler/orchestration.h` are the documented contract; this crate
//! mirrors them, and `tests/layout.rs` compiles the headers and compares every size and offset.
#![no_std]

mod kernel;
mod orchestration;

pub use kernel::*;
pub use orchestration::*;

/// The text of `simpler/kernel.h`.
pub const KERNEL_HEADER: &str = include_str!("../include/simpler/kernel.h");
/// The text of `simpler/orchestration.h`.
pub const ORCHESTRATION_HEADER: &str = include_str!("../include/simpler/orchestration.h");
/// The text of `simpler/orchestration.hpp`.
pub const ORCHESTRATION_CPP_HEADER: &str = include_str!("../include/simpler/orchestration.hpp");
/// The Rust mirror of both C headers as text, by file name: what a Rust orchestration or kernel is compiled with.
pub const RUST_FILES: [(&str, &str); 2] =
    [("kernel.rs", include_str!("kernel.rs")), ("orchestration.rs", include_str!("orchestration.rs"))];
