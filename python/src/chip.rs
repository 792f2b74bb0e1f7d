//! The chip in this process, level 2.
//!
//! A run uses the memory of the caller's arrays as it is. Its wait can be interrupted, and the run then stays on the
//! chip, with what it names kept alive; whatever is asked of the chip next waits for it first.

use std::mem::ManuallyDrop;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use pyo3::prelude::*;
use simpler_host_log as host_log;
use simpler_worker::{Callable, ChipArg, ChipWorker, Endpoint, Launched, RunArgs, RunError};

use crate::callable::CallableImage;
use crate::error::{self, ArgumentError, ClosedError, InitError};
use crate::interrupt::{LOOK_PERIOD, detached};
use crate::owner::{Owner, in_a_call};
use crate::plan::{Config, Plan};
use crate::tensor::Tensor;

/// How long a chip that goes waits for its log.
const DRAIN_LIMIT: Duration = Duration::from_millis(1000);

/// A chip and its runtime.
#[pyclass(frozen, name = "_ChipWorker", module = "simpler._task_interface")]
pub(crate) struct NativeChipWorker {
    owner: Owner,
    chip: Mutex<Option<ManuallyDrop<Chip>>>,
}

struct Chip {
    /// Whose wait was interrupted. Goes before what it borrows.
    interrupted: Option<(Launched<'static>, Vec<Py<Tensor>>)>,
    // FORK: its threads are not in a child, where it is not dropped.
    worker: Box<ChipWorker>,
}

// SAFETY: a run on the chip is its thread's, and only the owner's thread touches one: another thread that drops a chip
// which has one leaves it alone. A `ChipWorker` may be used by any thread, one at a time.
unsafe impl Send for Chip {}

#[pymethods]
impl NativeChipWorker {
    /// Makes the chip of a plan and starts this process's log.
    #[new]
    fn new(py: Python<'_>, plan: Plan) -> PyResult<Self> {
        let make = plan.chip().maker()?;
        let images = plan.images(py);
        plan.start_log()?;
        // SAFETY: native values only.
        let made = unsafe { detached(py, || make(&images)) };
        let worker = made
            .map_err(|error| InitError::new_err(format!("chip 0: initialization failed: {}", error.text)))?;
        let chip = Chip { interrupted: None, worker: Box::new(worker) };
        Ok(Self { owner: Owner::current(), chip: Mutex::new(Some(ManuallyDrop::new(chip))) })
    }

    /// Whether it was finalized.
    #[getter]
    fn is_closed(&self) -> bool {
        self.try_lock().is_ok_and(|chip| chip.is_none())
    }

    /// Runs a callable to its end.
    #[pyo3(signature = (callable, tensors, scalars, config=None))]
    fn run(
        &self,
        py: Python<'_>,
        callable: [u8; 32],
        tensors: Vec<Py<Tensor>>,
        scalars: Vec<u64>,
        config: Option<Config>,
    ) -> PyResult<()> {
        let mut chip = self.enter()?;
        let chip = ready(py, &mut chip)?;
        let config = config.as_ref().map(Config::to_native).transpose()?.unwrap_or_default();
        let placed = tensors.iter().map(|tensor| {
            let tensor = tensor.bind(py).get();
            ChipArg { tensor: tensor.descriptor(tensor.addr), arg_use: tensor.arg_use }
        });
        let args = RunArgs { tensors: placed.collect(), scalars, config };
        let worker = &chip.worker;
        // SAFETY: the arrays are kept until the run has ended, and what they name may be written where the run does;
        // what else touches them meanwhile is the program's affair. Device memory is this chip's, and objects are what
        // the caller gave to run.
        let launch = || unsafe { worker.launch(&callable, &args) };
        // SAFETY: native values only.
        let launched = unsafe { detached(py, launch) }.map_err(|error| error::of_chip("run", error))?;
        // SAFETY: the run goes before the chip does, which stays in its box (`Chip`), and which nobody changes while it
        // has one (`ready`).
        let launched = unsafe { std::mem::transmute::<Launched<'_>, Launched<'static>>(launched) };
        chip.interrupted = Some((launched, tensors));
        chip.finish(py)?.map_err(|error| error::of_chip("run", error))
    }

    fn register(&self, py: Python<'_>, callable: &CallableImage) -> PyResult<()> {
        self.request(py, "register", |chip| chip.register(&callable.image).map(drop))
    }

    fn unregister(&self, py: Python<'_>, callable: [u8; 32]) -> PyResult<()> {
        let callable = Callable::from_digest(callable).digest();
        self.request(py, "unregister", |chip| chip.unregister(&callable))
    }

    /// Allocates memory of the chip; gives its address.
    fn malloc(&self, py: Python<'_>, nbytes: usize) -> PyResult<u64> {
        self.request(py, "malloc", |chip| chip.malloc(nbytes))
    }

    fn free(&self, py: Python<'_>, address: u64) -> PyResult<()> {
        self.request(py, "free", |chip| chip.free(address))
    }

    fn copy_to(&self, py: Python<'_>, address: u64, source: &Tensor) -> PyResult<()> {
        if source.is_device() {
            return Err(ArgumentError::new_err(
                "a copy between a chip's memory and an array of this process",
            ));
        }
        // SAFETY: what else writes the array meanwhile is the program's affair.
        self.request(py, "copy_to", |chip| chip.copy_to(address, unsafe { source.bytes() }))
    }

    fn copy_from(&self, py: Python<'_>, target: &Tensor, address: u64) -> PyResult<()> {
        if target.is_device() || !target.is_written() {
            return Err(ArgumentError::new_err("a copy to memory that was not said to be written"));
        }
        // SAFETY: it is written; what else uses the array meanwhile is the program's affair.
        self.request(py, "copy_from", |chip| chip.copy_from(unsafe { target.bytes_mut() }, address))
    }

    /// Ends the chip and drains the log. Again: nothing.
    fn finalize(&self, py: Python<'_>) -> PyResult<()> {
        if !self.owner.is_here() {
            return Ok(());
        }
        let mut held = self.try_lock()?;
        if let Some(chip) = held.as_mut().filter(|chip| chip.interrupted.is_some()) {
            self.owner.require_caller()?;
            // How it ended concerns nobody.
            let _ = chip.finish(py)?;
        }
        let Some(chip) = held.take() else { return Ok(()) };
        // SAFETY: native values only; the run that it may have had has ended.
        let drained = unsafe {
            detached(py, || {
                drop(ManuallyDrop::into_inner(chip));
                host_log::flush(DRAIN_LIMIT)
            })
        };
        if drained.is_err() {
            let host_log::Counts { pending, dropped, .. } = host_log::counts();
            host_log::log_warn!("the log did not drain: {pending} records are pending, {dropped} dropped");
        }
        Ok(())
    }
}

impl Chip {
    /// Waits for the run on the chip; an error is what interrupts that, and then the run stays there.
    fn finish(&mut self, py: Python<'_>) -> PyResult<Result<(), RunError>> {
        while let Some((run, _)) = &mut self.interrupted {
            // SAFETY: native values only.
            if unsafe { detached(py, || run.wait_for(LOOK_PERIOD)) } {
                break;
            }
            py.check_signals()?;
        }
        let Some((run, tensors)) = self.interrupted.take() else { return Ok(Ok(())) };
        // SAFETY: native values only.
        let result = unsafe { detached(py, || run.wait().finalize()) };
        drop(tensors);
        Ok(result)
    }
}

/// The chip with no run on it.
fn ready<'c>(py: Python<'_>, chip: &'c mut Option<ManuallyDrop<Chip>>) -> PyResult<&'c mut Chip> {
    let chip = chip.as_mut().ok_or_else(|| ClosedError::new_err("worker: closed"))?;
    if let Err(error) = chip.finish(py)? {
        host_log::log_warn!("a run whose wait was interrupted failed: {}", error.text);
    }
    Ok(&mut **chip)
}

impl NativeChipWorker {
    fn enter(&self) -> PyResult<MutexGuard<'_, Option<ManuallyDrop<Chip>>>> {
        self.owner.require_caller()?;
        self.try_lock()
    }

    fn try_lock(&self) -> PyResult<MutexGuard<'_, Option<ManuallyDrop<Chip>>>> {
        match self.chip.try_lock() {
            Ok(chip) => Ok(chip),
            // A panic was reported; what is here is whole between statements.
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => Err(in_a_call()),
        }
    }

    fn request<T>(
        &self,
        py: Python<'_>,
        what: &'static str,
        ask: impl FnOnce(&mut ChipWorker) -> Result<T, RunError>,
    ) -> PyResult<T> {
        let mut chip = self.enter()?;
        let worker = &mut *ready(py, &mut chip)?.worker;
        // SAFETY: what the callers of this give holds native values.
        unsafe { detached(py, || ask(worker)) }.map_err(|error| error::of_chip(what, error))
    }
}

impl Drop for NativeChipWorker {
    fn drop(&mut self) {
        let chip = self.chip.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let Some(chip) = chip else { return };
        // A copy in another process has no threads to end; a run on the chip is its thread's to end.
        let is_mine = self.owner.is_here() && (chip.interrupted.is_none() || self.owner.is_caller());
        if is_mine {
            // SAFETY: native values only.
            Python::attach(|py| unsafe { detached(py, || drop(ManuallyDrop::into_inner(chip))) });
        }
    }
}

/// Adds this part to the module.
pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<NativeChipWorker>()
}
