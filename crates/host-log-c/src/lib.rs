//! The host log as a C library: the functions of `include/simpler/host_log.h` and the binder, nothing else.
//!
//! C names live in this leaf crate alone, because a shared library exports again whatever names of C its Rust
//! dependencies define. Each function checks its pointers, makes one call into `simpler-host-log` and turns
//! the outcome into a code; no panic leaves. The header is the documentation.

pub mod host_log;
pub mod host_log_state;
