//! What a child does with the requests that come through its mailbox.

use crate::{CallableImage, RunArgs, RunError};

/// The receiving end of a mailbox: made in the child after the fork, driven by its one loop.
///
/// [`ChipWorker`](crate::ChipWorker) is the endpoint of a chip child; tests put their own in its place.
/// Addresses are device addresses of this endpoint's device. An error's code and text reach the parent.
pub trait Endpoint {
    /// Runs a callable to its end.
    ///
    /// # Safety
    /// - A tensor in host memory names `bytes` bytes at `addr` that nobody writes during the call; unless its use is
    ///   INPUT or NO_DEP they are writable and nobody reads them either.
    /// - A tensor in device memory names memory of this endpoint's device.
    /// - The callable's objects keep to the kernel headers.
    unsafe fn run(&mut self, callable: &[u8; 32], args: &RunArgs) -> Result<(), RunError>;
    /// The local slot of a callable that the parent's snapshot held.
    fn prepare(&mut self, callable: &[u8; 32]) -> Result<u64, RunError>;
    /// Device memory.
    fn malloc(&mut self, bytes: usize) -> Result<u64, RunError>;
    /// Frees what `malloc` gave.
    fn free(&mut self, device: u64) -> Result<(), RunError>;
    /// Host to device.
    fn copy_to(&mut self, device: u64, host: &[u8]) -> Result<(), RunError>;
    /// Device to host.
    fn copy_from(&mut self, host: &mut [u8], device: u64) -> Result<(), RunError>;
}

/// Makes the endpoint of one child, in that child: gets the chip's index and the parent's snapshot of
/// callables. Threads may exist from here on.
pub type MakeEndpoint = dyn Fn(usize, &[CallableImage]) -> Result<Box<dyn Endpoint>, RunError>;
