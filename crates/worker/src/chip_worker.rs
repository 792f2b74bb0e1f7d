//! The level-2 worker: one chip and its runtime in this process.
//!
//! A chip child owns one; so may any program that wants a chip without a parent. Making it is the part of
//! bring-up that RUNTIME §1.7 leaves here: the log state is bound (it is the process's own), the platform is
//! made, then the runtime over it, then every callable is registered; what was made before a failure is
//! dropped again.

use std::sync::Arc;

use simpler_platform::{DeviceAddr, Platform};
use simpler_runtime::{CallableId, ChipRuntime, RuntimeConfig};

use crate::{CallableImage, Endpoint, RunArgs, RunError};

/// A chip that runs callables in this process, driven through [`Endpoint`]. Dropping it ends its threads.
pub struct ChipWorker {
    // FORK: made after the last fork; its threads exist in this process only.
    runtime: ChipRuntime,
    /// Local slots: the digest that frames carry, and the runtime's identity.
    slots: Vec<([u8; 32], CallableId)>,
}

impl ChipWorker {
    /// A runtime over `platform` with every callable registered.
    ///
    /// # Errors
    /// What the runtime refuses of a callable, with the callable's name.
    pub fn new(
        platform: Arc<dyn Platform>,
        config: RuntimeConfig,
        callables: &[CallableImage],
    ) -> Result<Self, RunError> {
        let runtime = ChipRuntime::new(platform, config)?;
        let slots = callables
            .iter()
            .map(|callable| {
                let id = runtime.register(callable).map_err(|mut error| {
                    error.text = format!("callable {}: {}", callable.name, error.text);
                    error
                })?;
                Ok((callable.digest(), id))
            })
            .collect::<Result<_, RunError>>()?;
        Ok(Self { runtime, slots })
    }

    fn slot(&self, callable: &[u8; 32]) -> Result<usize, RunError> {
        self.slots.iter().position(|(digest, _)| digest == callable).ok_or_else(|| RunError {
            code: -1,
            text: format!("callable {} is not registered on this chip", hex(callable)),
        })
    }
}

fn hex(digest: &[u8; 32]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Endpoint for ChipWorker {
    unsafe fn run(&mut self, callable: &[u8; 32], args: &RunArgs) -> Result<(), RunError> {
        let (_, id) = self.slots[self.slot(callable)?];
        // SAFETY: the caller's obligations.
        unsafe { self.runtime.run(id, args) }
    }

    fn prepare(&mut self, callable: &[u8; 32]) -> Result<u64, RunError> {
        self.slot(callable).map(|slot| slot as u64)
    }

    fn malloc(&mut self, bytes: usize) -> Result<u64, RunError> {
        self.runtime.malloc(bytes).map(|device| device.0)
    }

    fn free(&mut self, device: u64) -> Result<(), RunError> {
        self.runtime.free(DeviceAddr(device))
    }

    fn copy_to(&mut self, device: u64, host: &[u8]) -> Result<(), RunError> {
        self.runtime.copy_to(DeviceAddr(device), host)
    }

    fn copy_from(&mut self, host: &mut [u8], device: u64) -> Result<(), RunError> {
        self.runtime.copy_from(host, DeviceAddr(device))
    }
}
