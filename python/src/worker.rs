//! Workers that have children: level 3 and above, and the ones that an orchestration is lent in a child.
//!
//! [`NativeWorker`] keeps, for each run in flight, its ticket, the Python objects whose memory it names, and the parts of
//! the staging memory that stand for those which no child sees. A run that nobody waits for any more, because the wait
//! was interrupted or its ticket is gone, is waited for when its child is wanted again.
//!
//! The GIL is held where Python's memory is read or written and where a child is forked, and released in every wait.

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use pyo3::prelude::*;
use simpler_host_log as host_log;
use simpler_platform::DeviceAddr;
use simpler_worker::{
    Callable, ChildId, ChipArg, RunArgs, RunError, SharedSlice, Ticket, Worker, WorkerError as NativeError,
};

use crate::callable::CallableImage;
use crate::error::{self, ArgumentError, WorkerError};
use crate::interrupt::{Interrupt, detached};
use crate::memory::{Part, Staging};
use crate::owner::{Owner, in_a_call};
use crate::plan::{Below, Config, Plan, seconds};
use crate::tensor::Tensor;

/// A worker and what its runs keep.
#[pyclass(frozen, name = "_Worker", module = "simpler._task_interface")]
pub(crate) struct NativeWorker {
    owner: Owner,
    held: Mutex<Held>,
    /// Runs that nobody waits for any more, not yet looked at. A ticket may go at any moment, also in the middle of a call;
    /// nothing of Python's runs under this lock.
    abandoned: Mutex<Vec<u64>>,
}

struct Held {
    worker: Hold,
    staging: Staging,
    /// Runs in flight, by their numbers.
    runs: BTreeMap<u64, Run>,
    /// The worker's waits ask it.
    interrupt: Rc<Interrupt>,
}

// SAFETY: its raw pointers and reference counts are used under the mutex alone: by the owner's thread, or, to close what
// nobody refers to any more, by another one. The endpoints and closures of a worker that are bound to a thread are in its
// children.
unsafe impl Send for Held {}

enum Hold {
    Own(Box<Worker>),
    /// For as long as an orchestration runs.
    Lent(NonNull<Worker>),
    /// It was closed, or the orchestration has returned.
    Gone(&'static str),
}

/// A run in flight.
struct Run {
    ticket: Ticket,
    /// What the memory that it names belongs to.
    tensors: Vec<Py<Tensor>>,
    /// By place among the tensors.
    staged: Vec<(usize, Part)>,
    /// Nobody waits for it.
    is_abandoned: bool,
}

impl Hold {
    fn get(&mut self) -> PyResult<&mut Worker> {
        match self {
            Self::Own(worker) => Ok(worker),
            // SAFETY: it is lent until `lend` takes it back, which it does before the loan ends; `lend` does not use it
            // meanwhile.
            Self::Lent(worker) => Ok(unsafe { worker.as_mut() }),
            Self::Gone(why) => Err(error::ClosedError::new_err(format!("worker: {why}"))),
        }
    }
}

/// A child by its kind and its index.
fn child_of((kind, index): (&str, usize)) -> PyResult<ChildId> {
    match kind {
        "chip" => Ok(ChildId::Chip(index)),
        "sub" => Ok(ChildId::Sub(index)),
        "worker" => Ok(ChildId::Worker(index)),
        _ => Err(ArgumentError::new_err(format!("{kind} is no kind of child"))),
    }
}

/// Starts the worker of a plan (level 3 and above): forks its children by `os.fork` and waits until all are ready, with
/// the GIL released but for the forks.
#[pyfunction]
fn _start_worker(py: Python<'_>, plan: Plan) -> PyResult<NativeWorker> {
    let interrupt = Rc::<Interrupt>::default();
    let builder = plan.builder(py, &interrupt)?;
    let staging = Staging::new(plan.staging(py));
    drop(plan);
    // SAFETY: a builder and a worker hold nothing that is bound to the GIL: closures that take it when they are called.
    let started = unsafe { detached(py, || builder.start()) };
    let worker = match started {
        Ok(worker) => Hold::Own(Box::new(worker)),
        Err(error) => return Err(interrupt.or(error::of_worker(error))),
    };
    let held = Held { worker, staging, runs: BTreeMap::new(), interrupt };
    Ok(NativeWorker::new(held))
}

impl NativeWorker {
    fn new(held: Held) -> Self {
        Self { owner: Owner::current(), held: Mutex::new(held), abandoned: Mutex::default() }
    }

    /// Lends a worker to Python for as long as `body` lasts.
    pub(crate) fn lend(
        worker: &mut Worker,
        below: &Below,
        body: impl FnOnce(&Py<Self>) -> Result<(), RunError>,
    ) -> Result<(), RunError> {
        let held = Held {
            worker: Hold::Lent(NonNull::from(worker)),
            staging: Staging::new(below.staging.clone()),
            runs: BTreeMap::new(),
            interrupt: Rc::clone(&below.interrupt),
        };
        let lent = Python::attach(|py| Py::new(py, Self::new(held)));
        let lent = lent.map_err(|error| RunError { code: -1, text: error.to_string() })?;
        let result = body(&lent);
        let mut held = lent.get().held.lock().unwrap_or_else(PoisonError::into_inner);
        held.worker = Hold::Gone("it was lent to an orchestration, which has returned");
        // Who lends it settles what was not waited for.
        held.runs.clear();
        result
    }

    /// For the owner's thread.
    fn enter(&self) -> PyResult<MutexGuard<'_, Held>> {
        self.owner.require_caller()?;
        self.try_lock()
    }

    fn try_lock(&self) -> PyResult<MutexGuard<'_, Held>> {
        match self.held.try_lock() {
            Ok(held) => Ok(held),
            // A panic was reported; what is here is whole between statements.
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => Err(in_a_call()),
        }
    }
}

#[pymethods]
impl NativeWorker {
    /// The children's processes, in the order of chips, sub workers, workers.
    #[getter]
    fn pids(&self) -> PyResult<Vec<i32>> {
        Ok(self.enter()?.worker.get()?.pids())
    }

    /// Whether it was closed, or its loan is over.
    #[getter]
    fn is_closed(&self) -> bool {
        self.try_lock().is_ok_and(|held| matches!(held.worker, Hold::Gone(_)))
    }

    /// Hands a run to the first of `children` that can take one; gives its number and the child's place.
    #[pyo3(signature = (children, callable, tensors, scalars, config=None))]
    fn submit(
        &self,
        py: Python<'_>,
        children: Vec<(String, usize)>,
        callable: [u8; 32],
        tensors: Vec<Py<Tensor>>,
        scalars: Vec<u64>,
        config: Option<Config>,
    ) -> PyResult<(u64, usize)> {
        let mut held = self.enter()?;
        let children: Vec<_> =
            children.iter().map(|(kind, index)| child_of((kind, *index))).collect::<PyResult<_>>()?;
        let config = config.as_ref().map(Config::to_native).transpose()?.unwrap_or_default();
        let (args, staged) = held.place(py, &tensors, scalars)?;
        let args = RunArgs { config, ..args };
        for number in self.abandoned.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            if let Some(run) = held.runs.get_mut(&number) {
                run.is_abandoned = true;
            }
        }
        match held.submit(py, &children, Callable::from_digest(callable), &args) {
            Ok((ticket, place)) => {
                let number = ticket.run_id();
                held.runs.insert(number, Run { ticket, tensors, staged, is_abandoned: false });
                Ok((number, place))
            }
            Err(error) => {
                staged.into_iter().for_each(|(_, part)| held.staging.give(part));
                Err(error)
            }
        }
    }

    /// Waits for a run, at most `timeout` seconds; whether it has ended.
    #[pyo3(signature = (run, timeout=None))]
    fn wait(&self, py: Python<'_>, run: u64, timeout: Option<f64>) -> PyResult<bool> {
        let mut held = self.enter()?;
        let limit = match timeout {
            Some(0.0) => Some(Duration::ZERO),
            Some(timeout) => Some(seconds("a timeout", timeout)?),
            None => None,
        };
        let interrupt = Rc::clone(&held.interrupt);
        interrupt.within(limit, || held.wait(py, run))
    }

    /// Whether a wait for the run would return at once.
    fn done(&self, run: u64) -> PyResult<bool> {
        let held = &mut *self.enter()?;
        let worker = held.worker.get()?;
        Ok(held.runs.get(&run).is_none_or(|run| worker.poll(&run.ticket)))
    }

    /// Nobody will wait for the run any more.
    fn abandon(&self, run: u64) -> PyResult<()> {
        self.owner.require_process()?;
        self.abandoned.lock().unwrap_or_else(PoisonError::into_inner).push(run);
        Ok(())
    }

    /// Registers a callable with every chip.
    fn register(&self, py: Python<'_>, callable: &CallableImage) -> PyResult<()> {
        self.request(py, |worker| worker.register(callable.image.clone()).map(drop))
    }

    /// Takes one registration back.
    fn unregister(&self, py: Python<'_>, callable: [u8; 32]) -> PyResult<()> {
        self.request(py, |worker| worker.unregister(Callable::from_digest(callable)))
    }

    /// Allocates memory of a child; gives its address there.
    fn malloc(&self, py: Python<'_>, child: (String, usize), nbytes: usize) -> PyResult<u64> {
        let child = child_of((&child.0, child.1))?;
        self.request(py, |worker| worker.malloc(child, nbytes).map(|device| device.0))
    }

    /// Frees it.
    fn free(&self, py: Python<'_>, child: (String, usize), address: u64) -> PyResult<()> {
        let child = child_of((&child.0, child.1))?;
        self.request(py, |worker| worker.free(child, DeviceAddr(address)))
    }

    /// Copies to a child's memory: at once from memory that is shared, else in parts by way of the staging memory.
    fn copy_to(&self, py: Python<'_>, child: (String, usize), address: u64, source: &Tensor) -> PyResult<()> {
        let child = child_of((&child.0, child.1))?;
        let copy = |worker: &mut Worker, offset: u64, host: &SharedSlice| {
            worker.copy_to(child, DeviceAddr(address + offset), host)
        };
        let fill = |staging: &Staging, part: Part, from: usize, to: usize| {
            // SAFETY: a copy to a chip only reads; Python code does not run while the bytes are copied.
            let bytes = unsafe { source.bytes() };
            staging.memory.write(part.offset, &bytes[from..to])
        };
        self.copy(py, source, copy, fill, |_, _, _, _| Ok(()))
    }

    /// Copies from a child's memory, likewise.
    fn copy_from(
        &self,
        py: Python<'_>,
        child: (String, usize),
        target: &Tensor,
        address: u64,
    ) -> PyResult<()> {
        let child = child_of((&child.0, child.1))?;
        if !target.is_written() {
            return Err(ArgumentError::new_err("a copy to memory that was not said to be written"));
        }
        let copy = |worker: &mut Worker, offset: u64, host: &SharedSlice| {
            worker.copy_from(child, host, DeviceAddr(address + offset))
        };
        let empty = |staging: &Staging, part: Part, from: usize, to: usize| {
            // SAFETY: it is written, as was asked above; Python code does not run while the bytes are copied.
            let bytes = unsafe { target.bytes_mut() };
            staging.memory.read(part.offset, &mut bytes[from..to])
        };
        self.copy(py, target, copy, |_, _, _, _| Ok(()), empty)
    }

    /// Shuts every child down, collects it and drains the log, at most `limit` seconds if that is given. Again: nothing.
    #[pyo3(signature = (limit=None))]
    fn close(&self, py: Python<'_>, limit: Option<f64>) -> PyResult<()> {
        if !self.owner.is_here() {
            // Its children are another process's.
            return Ok(());
        }
        let limit = limit.map(|limit| seconds("a limit", limit)).transpose()?;
        let mut held = self.try_lock()?;
        let interrupt = Rc::clone(&held.interrupt);
        let gone = Hold::Gone("closed");
        match std::mem::replace(&mut held.worker, gone) {
            Hold::Own(mut worker) => {
                // SAFETY: the worker holds nothing that is bound to the GIL.
                let closed = unsafe {
                    detached(py, || match limit {
                        Some(limit) => worker.close_within(limit),
                        None => worker.close(),
                    })
                };
                held.runs.clear();
                closed.map_err(|error| interrupt.or(error::of_worker(error)))
            }
            lent @ Hold::Lent(_) => {
                held.worker = lent;
                Err(WorkerError::new_err(
                    "worker: it is lent to an orchestration; who has started it closes it",
                ))
            }
            gone @ Hold::Gone(_) => {
                held.worker = gone;
                Ok(())
            }
        }
    }
}

impl NativeWorker {
    fn request<T: Send>(
        &self,
        py: Python<'_>,
        ask: impl FnOnce(&mut Worker) -> Result<T, NativeError>,
    ) -> PyResult<T> {
        let held = &mut *self.enter()?;
        let worker = held.worker.get()?;
        // SAFETY: what the callers of this give holds native values.
        let answer = unsafe { detached(py, || ask(worker)) };
        answer.map_err(|error| held.interrupt.or(error::of_worker(error)))
    }

    /// Copies to or from shared memory: `copy` a range of it, `before` and `after` the array's bytes to and from the
    /// staging memory.
    fn copy(
        &self,
        py: Python<'_>,
        array: &Tensor,
        copy: impl Fn(&mut Worker, u64, &SharedSlice) -> Result<(), NativeError>,
        before: impl Fn(&Staging, Part, usize, usize) -> Result<(), NativeError>,
        after: impl Fn(&Staging, Part, usize, usize) -> Result<(), NativeError>,
    ) -> PyResult<()> {
        if array.is_device() {
            return Err(ArgumentError::new_err(
                "a copy between a chip's memory and an array of this process",
            ));
        }
        let Held { worker, staging, interrupt, .. } = &mut *self.enter()?;
        let worker = worker.get()?;
        let failed = |error| interrupt.or(error::of_worker(error));
        if array.bytes == 0 {
            return Ok(());
        }
        if let Some(slice) = worker.shared_slice(array.addr, array.bytes as usize) {
            // SAFETY: native values only.
            return unsafe { detached(py, || copy(worker, 0, &slice)) }.map_err(failed);
        }
        let whole = array.bytes as usize;
        let size = whole.min(staging.largest());
        let part = staging.take(size).filter(|_| size > 0).ok_or_else(|| staging_is_full(whole, staging))?;
        let copied = (0..whole).step_by(size).try_for_each(|from| {
            let to = whole.min(from + size);
            before(staging, part, from, to)?;
            let slice = staging.memory.slice(part.offset, to - from)?;
            // SAFETY: native values only.
            unsafe { detached(py, || copy(worker, from as u64, &slice)) }?;
            after(staging, part, from, to)
        });
        // Should the wait have been interrupted, the child still has the range: it is not given to another one.
        if !matches!(copied, Err(NativeError::Interrupted { .. })) {
            staging.give(part);
        }
        copied.map_err(failed)
    }
}

fn staging_is_full(bytes: usize, staging: &Staging) -> PyErr {
    let (all, free) = (staging.memory.bytes(), staging.largest());
    ArgumentError::new_err(format!(
        "an array of {bytes} bytes lies where no child sees it, and {free} of {all} bytes of staging memory are free in \
         one piece: make it by shared() before init(), or give the worker more staging_bytes"
    ))
}

impl Held {
    /// The arguments as a child sees them, and what was staged for it.
    fn place(
        &mut self,
        py: Python<'_>,
        tensors: &[Py<Tensor>],
        scalars: Vec<u64>,
    ) -> PyResult<(RunArgs, Vec<(usize, Part)>)> {
        let mut staged = Vec::new();
        let placed = tensors.iter().enumerate().map(|(place, tensor)| {
            let tensor = tensor.bind(py).get();
            let mut addr = tensor.addr;
            let is_seen = tensor.is_device() || tensor.bytes == 0;
            if !is_seen && !self.worker.get()?.shares(addr, tensor.bytes) {
                let bytes = tensor.bytes as usize;
                let part = self.staging.take(bytes);
                let part = part.ok_or_else(|| staging_is_full(bytes, &self.staging))?;
                staged.push((place, part));
                if tensor.is_read() {
                    // SAFETY: the GIL is held, so Python code writes nothing.
                    let bytes = unsafe { tensor.bytes() };
                    self.staging.memory.write(part.offset, bytes).map_err(error::of_worker)?;
                }
                addr = self.staging.memory.addr() + part.offset as u64;
            }
            Ok(ChipArg { tensor: tensor.descriptor(addr), arg_use: tensor.arg_use })
        });
        match placed.collect::<PyResult<Vec<_>>>() {
            Ok(tensors) => Ok((RunArgs { tensors, scalars, ..RunArgs::default() }, staged)),
            Err(error) => {
                staged.into_iter().for_each(|(_, part)| self.staging.give(part));
                Err(error)
            }
        }
    }

    fn submit(
        &mut self,
        py: Python<'_>,
        children: &[ChildId],
        callable: Callable,
        args: &RunArgs,
    ) -> PyResult<(Ticket, usize)> {
        loop {
            let mut busy = None;
            for (place, child) in children.iter().enumerate() {
                match self.worker.get()?.submit(*child, callable, args) {
                    Ok(ticket) => return Ok((ticket, place)),
                    Err(error @ NativeError::Busy { .. }) => busy = busy.or(Some(error)),
                    Err(error) => return Err(error::of_worker(error)),
                }
            }
            let nobody_s = self
                .runs
                .iter()
                .find(|(_, run)| run.is_abandoned && children.contains(&run.ticket.child()))
                .map(|(number, _)| *number);
            match (nobody_s, busy) {
                (Some(number), _) => self.settle(py, number)?,
                (None, Some(busy)) => return Err(error::of_worker(busy)),
                (None, None) => return Err(WorkerError::new_err("worker: it has no child that runs this")),
            }
        }
    }

    /// Waits for a run that nobody waits for.
    fn settle(&mut self, py: Python<'_>, number: u64) -> PyResult<()> {
        match self.wait(py, number) {
            Ok(_) => Ok(()),
            Err(error) if self.runs.contains_key(&number) => Err(error),
            Err(error) => {
                host_log::log_warn!("run {number}, which nobody waited for, failed: {}", error.value(py));
                Ok(())
            }
        }
    }

    /// Waits for a run and brings back what it has written; false where the wait's time is over.
    fn wait(&mut self, py: Python<'_>, number: u64) -> PyResult<bool> {
        let worker = self.worker.get()?;
        let Some(Run { ticket, tensors, staged, is_abandoned }) = self.runs.remove(&number) else {
            return Err(WorkerError::new_err(format!("worker: run {number} is not in flight")));
        };
        // SAFETY: native values only.
        let outcome = unsafe { detached(py, || worker.wait(ticket)) };
        if let Err(NativeError::Interrupted { ticket: Some(ticket), .. }) = outcome {
            self.runs.insert(number, Run { ticket: *ticket, tensors, staged, is_abandoned });
            return self.interrupt.take().map_or(Ok(false), Err);
        }
        let mut result = outcome.map_err(error::of_worker);
        for (place, part) in staged {
            let tensor = tensors[place].bind(py).get();
            if result.is_ok() && tensor.is_written() && !is_abandoned {
                // SAFETY: it is written, and the GIL is held, so Python code does not touch it meanwhile.
                let bytes = unsafe { tensor.bytes_mut() };
                result = self.staging.memory.read(part.offset, bytes).map_err(error::of_worker);
            }
            self.staging.give(part);
        }
        result.map(|()| true)
    }
}

impl Drop for NativeWorker {
    fn drop(&mut self) {
        if !self.owner.is_here() {
            return;
        }
        let held = self.held.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Hold::Own(worker) = std::mem::replace(&mut held.worker, Hold::Gone("closed")) {
            // Closes; Python has said so by then (`ResourceWarning`).
            // SAFETY: native values only.
            Python::attach(|py| unsafe { detached(py, || drop(worker)) });
        }
    }
}

/// Adds this part to the module.
pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<NativeWorker>()?;
    module.add_function(wrap_pyfunction!(_start_worker, module)?)
}
