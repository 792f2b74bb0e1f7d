//! The level-2 worker: one chip and its runtime in this process.
//!
//! A chip child owns one; so may any program that wants a chip without a parent. Making it is the part of
//! bring-up that RUNTIME §1.7 leaves here: the log state is bound (it is the process's own), the platform is
//! made, then the runtime over it, then every callable is registered; what was made before a failure is
//! dropped again.

use std::sync::Arc;
use std::time::Duration;

use simpler_platform::{DeviceAddr, Platform};
use simpler_runtime::{CallableId, ChipRuntime, Launched, Prepared, RunIdentity, RuntimeConfig};

use crate::{CallConfig, CallableImage, Endpoint, RunArgs, RunError, Task, Tasks};

/// A chip that runs callables in this process, driven through [`Endpoint`]. Dropping it ends its threads.
pub struct ChipWorker {
    // FORK: made after the last fork; its threads exist in this process only.
    runtime: ChipRuntime,
    /// Local slots, free ones among them.
    slots: Vec<Option<Slot>>,
}

/// A callable of this chip.
struct Slot {
    /// What frames carry.
    digest: [u8; 32],
    id: CallableId,
    /// How often it was registered; the runtime counts the same.
    count: usize,
}

/// How often a worker with one run on its device looks for another one to bind meanwhile.
const LOOK_INTERVAL: Duration = Duration::from_micros(500);

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
        let mut worker = Self { runtime: ChipRuntime::new(platform, config)?, slots: Vec::new() };
        callables.iter().try_for_each(|callable| worker.register(callable).map(drop))?;
        Ok(worker)
    }

    /// Builds and uploads what the first runs would ([`ChipRuntime::prewarm`]).
    ///
    /// # Errors
    /// As there.
    pub fn prewarm(&self, config: &CallConfig) -> Result<(), RunError> {
        self.runtime.prewarm(config)
    }

    /// The first half of [`Endpoint::run`]: gives the run while it is on the device.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// As there, until the run has ended.
    pub unsafe fn launch(&self, callable: &[u8; 32], args: &RunArgs) -> Result<Launched<'_>, RunError> {
        let (_, id) = self.slot(callable)?;
        // SAFETY: the caller's obligations.
        unsafe { self.runtime.launch(id, args) }
    }

    fn slot(&self, callable: &[u8; 32]) -> Result<(usize, CallableId), RunError> {
        let slots = self.slots.iter().enumerate().filter_map(|(index, slot)| Some((index, slot.as_ref()?)));
        let mut found = slots.filter(|(_, slot)| slot.digest == *callable);
        found.next().map(|(index, slot)| (index, slot.id)).ok_or_else(|| RunError {
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
        // SAFETY: the caller's obligations, for as long as the run lasts, which is until `finalize` returns.
        unsafe { self.launch(callable, args) }?.wait().finalize()
    }

    fn pipeline_depth(&self) -> usize {
        self.runtime.pipeline_depth()
    }

    unsafe fn run_all(&mut self, tasks: &mut dyn Tasks) {
        let mut pipeline = Pipeline { worker: self, tasks, prepared: None, launched: None };
        // SAFETY: the caller's obligation.
        while unsafe { pipeline.advance() } {}
    }

    fn prepare(&mut self, callable: &[u8; 32]) -> Result<u64, RunError> {
        self.slot(callable).map(|(slot, _)| slot as u64)
    }

    fn register(&mut self, image: &CallableImage) -> Result<u64, RunError> {
        let id = self.runtime.register(image).map_err(|mut error| {
            error.text = format!("callable {}: {}", image.name, error.text);
            error
        })?;
        let digest = image.digest();
        let index = self.slot(&digest).map_or_else(
            |_| self.slots.iter().position(Option::is_none).unwrap_or(self.slots.len()),
            |(known, _)| known,
        );
        if index == self.slots.len() {
            self.slots.push(None);
        }
        self.slots[index].get_or_insert(Slot { digest, id, count: 0 }).count += 1;
        Ok(index as u64)
    }

    fn unregister(&mut self, callable: &[u8; 32]) -> Result<(), RunError> {
        let (index, id) = self.slot(callable)?;
        self.runtime.unregister(id)?;
        let slot = &mut self.slots[index];
        *slot = slot.take().filter(|slot| slot.count > 1).map(|slot| Slot { count: slot.count - 1, ..slot });
        Ok(())
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

/// Up to two runs: one on the device, and where the runtime has a second slot, one that is bound meanwhile. Both say in
/// their roots who they are.
struct Pipeline<'r> {
    worker: &'r ChipWorker,
    tasks: &'r mut dyn Tasks,
    prepared: Option<(usize, Prepared<'r>)>,
    launched: Option<(usize, Launched<'r>)>,
}

impl Pipeline<'_> {
    /// Does the next thing; whether there was any.
    ///
    /// # Safety
    /// As for [`Endpoint::run_all`].
    unsafe fn advance(&mut self) -> bool {
        let overlaps = self.worker.pipeline_depth() > 1;
        if self.prepared.is_none()
            && (overlaps || self.launched.is_none())
            && let Some(task) = self.tasks.next()
        {
            // SAFETY: the caller's obligation.
            unsafe { self.bind(task) };
        }
        let Some((slot, mut run)) = self.launched.take() else {
            return self.launch_next();
        };
        // With another one bound, or without the slot for one, there is nothing else to do meanwhile.
        if overlaps && self.prepared.is_none() && !run.wait_for(LOOK_INTERVAL) {
            self.launched = Some((slot, run));
            return true;
        }
        let done = run.wait();
        // Before the results are copied back, so that the device does not wait for that.
        self.launch_next();
        self.tasks.finish(slot, done.finalize());
        true
    }

    /// # Safety
    /// As for [`Endpoint::run_all`].
    unsafe fn bind(&mut self, task: Task) {
        let Task { slot, callable, args, run_id, dispatch_id } = task;
        let worker = self.worker;
        let prepared = worker.slot(&callable).and_then(|(_, id)| {
            // SAFETY: the caller's obligation.
            unsafe { worker.runtime.prepare(id, &args, RunIdentity { run_id, dispatch_id }) }
        });
        match prepared {
            Ok(prepared) => self.prepared = Some((slot, prepared)),
            Err(error) => self.tasks.finish(slot, Err(error)),
        }
    }

    /// Launches the run that is bound; whether there was one.
    fn launch_next(&mut self) -> bool {
        let Some((slot, prepared)) = self.prepared.take() else { return false };
        match prepared.launch() {
            Ok(launched) => self.launched = Some((slot, launched)),
            Err(error) => self.tasks.finish(slot, Err(error)),
        }
        true
    }
}
