//! Orchestration and kernel sources to shared objects, with a content-keyed cache.
//!
//! A callable is one orchestration and a list of kernels ([`CallableSource`]); [`Compiler::compile`] turns each
//! into a shared object of its own. Three properties hold:
//!
//! - *Identity is content.* An object's place in the cache is the SHA-256 of everything that decides its bytes:
//!   sources, headers, flags, the compiler and the CPU it compiles for. The same input gives the same bytes in
//!   any folder: the compiler sees relative names in a folder of its own, and no debug information.
//! - *A callable's identity includes its kernels.* The orchestration object carries the digest of every kernel
//!   object in a section ([`embedded_kernels`]), so its build-id, from which the trace identity is read, changes
//!   when only a kernel does.
//! - *The cache is never half-written.* An object is built in a temporary folder of the cache and renamed into
//!   place; whoever loses a race uses the winner's object, which has the same bytes.
//!
//! Sources are C, C++ or Rust (`rust`), by the end of their names. Loading and verifying objects is left to the runtime.

mod compile;
mod embed;
mod rust;
mod source;

pub use compile::{CallableObjects, CompileError, CompileErrorKind, Compiler};
pub use embed::{EmbeddedKernel, SECTION, SectionError, digest, embedded_kernels};
pub use source::{CallableSource, KernelSource, SourceFile};
