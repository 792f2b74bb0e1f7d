//! What a child does with the requests that come through its mailbox.

use crate::{CallableImage, RunArgs, RunError};

/// A run that an endpoint is to make.
#[derive(Debug)]
pub struct Task {
    /// Its frame, to be given back with the outcome.
    pub(crate) slot: usize,
    /// The callable's digest.
    pub callable: [u8; 32],
    /// Its arguments.
    pub args: RunArgs,
    /// The parent's number for the run.
    pub run_id: u64,
    /// The parent's number for handing it over, counted from 1.
    pub dispatch_id: u64,
}

/// What the parent has handed over and not yet got back.
pub trait Tasks {
    /// The next run in the order of dispatch, if there is one now; none while the parent waits for something else.
    ///
    /// Its arguments satisfy what [`Endpoint::run`] asks for, until it is finished.
    fn next(&mut self) -> Option<Task>;
    /// Gives a run back.
    fn finish(&mut self, slot: usize, outcome: Result<(), RunError>);
}

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
    /// How many runs [`Endpoint::run_all`] takes before it gives the first back, 1 or 2.
    fn pipeline_depth(&self) -> usize {
        1
    }
    /// Makes the runs that there are, and gives each back, until there is none.
    ///
    /// # Safety
    /// As for [`Endpoint::run`], for every run that `tasks` gives.
    unsafe fn run_all(&mut self, tasks: &mut dyn Tasks) {
        while let Some(task) = tasks.next() {
            // SAFETY: the caller's obligation.
            let outcome = unsafe { self.run(&task.callable, &task.args) };
            tasks.finish(task.slot, outcome);
        }
    }
    /// The local slot of a callable that the parent's snapshot held or that was registered since.
    fn prepare(&mut self, callable: &[u8; 32]) -> Result<u64, RunError>;
    /// Makes a callable known that the snapshot did not hold; gives its local slot. One that is known already stays until
    /// it is unregistered as often. Refused, as the next one, where there is no chip for it.
    fn register(&mut self, image: &CallableImage) -> Result<u64, RunError> {
        no_chip(&format!("register callable {}", image.name))
    }
    /// Takes one registration back, that of the snapshot included. Runs that were handed over before have ended.
    fn unregister(&mut self, _callable: &[u8; 32]) -> Result<(), RunError> {
        no_chip("unregister")
    }
    /// Ends what this endpoint drives, before it is dropped.
    fn close(&mut self) -> Result<(), RunError> {
        Ok(())
    }
    /// Device memory; refused, as the three below, where there is no device.
    fn malloc(&mut self, bytes: usize) -> Result<u64, RunError> {
        no_device(&format!("malloc of {bytes} bytes"))
    }
    /// Frees what `malloc` gave.
    fn free(&mut self, device: u64) -> Result<(), RunError> {
        no_device(&format!("free of {device:#x}"))
    }
    /// Host to device.
    fn copy_to(&mut self, device: u64, host: &[u8]) -> Result<(), RunError> {
        no_device(&format!("copy of {} bytes to {device:#x}", host.len()))
    }
    /// Device to host.
    fn copy_from(&mut self, host: &mut [u8], device: u64) -> Result<(), RunError> {
        no_device(&format!("copy of {} bytes from {device:#x}", host.len()))
    }
}

fn no_chip<T>(what: &str) -> Result<T, RunError> {
    Err(RunError { code: -1, text: format!("{what}: this worker runs no chip callables") })
}

fn no_device<T>(what: &str) -> Result<T, RunError> {
    Err(RunError { code: -1, text: format!("{what}: this worker has no device memory of its own") })
}

/// Makes the endpoint of one child, in that child: gets the chip's index and the parent's snapshot of
/// callables. Threads may exist from here on.
pub type MakeEndpoint = dyn Fn(usize, &[CallableImage]) -> Result<Box<dyn Endpoint>, RunError>;
