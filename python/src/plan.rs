//! What a worker is to be, as Python describes it, and the builder that comes of it.
//!
//! The Python class keeps a plan and the ones of the workers below; [`Plan`] is read from it once, at `init`.

use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use simpler_host_log as host_log;
use simpler_kernel_abi::ArgUse;
use simpler_log_abi::Threshold;
use simpler_platform::PlatformError;
use simpler_runtime::{GraphRuntime, RuntimeConfig, SimplerCallConfig};
use simpler_sim_npu::{Profile, SimNpu, SimOptions};
use simpler_worker::{
    CallConfig, CallableImage as Image, ChipWorker, Endpoint, LogSetup, RunArgs, RunError, SharedMemory,
    Worker, WorkerBuilder,
};

use crate::callable::CallableImage;
use crate::error::{self, ArgumentError, WorkerError};
use crate::interrupt::Interrupt;
use crate::memory::{SharedBuffer, TaskMemory};
use crate::worker::NativeWorker;

/// How a chip is made; the attributes of `simpler.worker._ChipPlan`.
#[derive(Clone, FromPyObject)]
pub(crate) struct ChipPlan {
    platform: String,
    runtime: String,
    pipeline_depth: usize,
    enable_sdma: bool,
    scheduler_timeout: Option<f64>,
    core_threads: Option<usize>,
    prewarm_config: Option<Config>,
}

/// How a worker is made; the attributes of `simpler.worker._Plan`.
#[derive(FromPyObject)]
pub(crate) struct Plan {
    level: u32,
    chips: Option<usize>,
    subs: usize,
    chip: ChipPlan,
    init_limit: f64,
    log_threshold: i32,
    log_directory: Option<PathBuf>,
    callables: Vec<Py<CallableImage>>,
    /// Names, and what calls the function: `simpler._child.Function`.
    functions: Vec<(String, Py<PyAny>)>,
    orchestrations: Vec<(String, Py<PyAny>)>,
    workers: Vec<Plan>,
    shared: Vec<Py<SharedBuffer>>,
    staging: Py<SharedBuffer>,
}

/// A `CallConfig` of Python's.
#[derive(Clone, FromPyObject)]
pub(crate) struct Config {
    aicpu_thread_num: i32,
    enable_chip_swimlane: i32,
    runtime_env: RuntimeEnv,
    output_prefix: Option<PathBuf>,
}

#[derive(Clone, FromPyObject)]
struct RuntimeEnv {
    task_window: [u64; 4],
    heap: [u64; 4],
    dep_pool: [u64; 4],
}

impl Config {
    /// The crates' one. By way of the record, which refuses what does not fit.
    pub(crate) fn to_native(&self) -> PyResult<CallConfig> {
        let refused = |text: String| ArgumentError::new_err(format!("config: {text}"));
        let prefixed = CallConfig { output_prefix: self.output_prefix.clone(), ..CallConfig::default() };
        let record = SimplerCallConfig {
            aicpu_thread_num: self.aicpu_thread_num,
            enable_chip_swimlane: self.enable_chip_swimlane,
            ring_task_window: self.runtime_env.task_window,
            ring_heap_bytes: self.runtime_env.heap,
            ring_dep_pool: self.runtime_env.dep_pool,
            ..SimplerCallConfig::new(&prefixed).map_err(refused)?
        };
        record.config().map_err(refused)
    }
}

impl ChipPlan {
    fn profile(&self) -> PyResult<Profile> {
        match self.platform.as_str() {
            "a2a3sim" => Ok(Profile::a2a3sim()),
            "a5sim" => Ok(Profile::a5sim()),
            other => Err(WorkerError::new_err(format!("platform {other}: there are a2a3sim and a5sim"))),
        }
    }

    fn runtime_config(&self) -> PyResult<RuntimeConfig> {
        let graph_runtime = match self.runtime.as_str() {
            "tensormap_and_ringbuffer" => GraphRuntime::TensorMapAndRingBuffer,
            "host_build_graph" => GraphRuntime::HostBuildGraph,
            other => {
                return Err(WorkerError::new_err(format!(
                    "runtime {other}: there are tensormap_and_ringbuffer (tmr) and host_build_graph (hbg)"
                )));
            }
        };
        let mut config = RuntimeConfig {
            graph_runtime,
            pipeline_depth: self.pipeline_depth,
            sdma: self.enable_sdma,
            ..RuntimeConfig::default()
        };
        if let Some(timeout) = self.scheduler_timeout {
            config.scheduler_timeout = seconds("scheduler_timeout", timeout)?;
        }
        Ok(config)
    }

    /// What makes a chip, in its process.
    pub(crate) fn maker(&self) -> PyResult<impl Fn(&[Image]) -> Result<ChipWorker, RunError> + use<>> {
        let (profile, config) = (self.profile()?, self.runtime_config()?);
        let options = SimOptions { core_threads: self.core_threads, ..SimOptions::default() };
        let prewarm = self.prewarm_config.as_ref().map(Config::to_native).transpose()?;
        Ok(move |callables: &[Image]| {
            let failed = |error: PlatformError| RunError { code: -1, text: format!("platform: {error}") };
            let platform: Arc<SimNpu> = SimNpu::new(profile.clone(), options.clone()).map_err(failed)?;
            let chip = ChipWorker::new(platform, config.clone(), callables)?;
            if let Some(prewarm) = &prewarm {
                chip.prewarm(prewarm)?;
            }
            Ok(chip)
        })
    }
}

impl Plan {
    /// The log of the worker's process, which this sets up for a worker that forks nobody.
    pub(crate) fn start_log(&self) -> PyResult<()> {
        let LogSetup { threshold, directory } = self.log()?;
        let config = host_log::Config { threshold, directory: directory.as_deref(), defer_writer: false };
        host_log::init(&config).map_err(|error| WorkerError::new_err(format!("worker: host log: {error}")))
    }

    fn log(&self) -> PyResult<LogSetup> {
        let threshold = Threshold::from_ladder(self.log_threshold)
            .ok_or_else(|| WorkerError::new_err(format!("{} is no log threshold", self.log_threshold)))?;
        Ok(LogSetup { threshold, directory: self.log_directory.clone() })
    }

    pub(crate) fn chip(&self) -> &ChipPlan {
        &self.chip
    }

    pub(crate) fn images(&self, py: Python<'_>) -> Vec<Image> {
        self.callables.iter().map(|callable| callable.bind(py).get().image.clone()).collect()
    }

    pub(crate) fn staging(&self, py: Python<'_>) -> SharedMemory {
        self.staging.bind(py).get().memory.clone()
    }

    /// The builder, and those of the workers below. `interrupt` is for the waits of this process.
    pub(crate) fn builder(&self, py: Python<'_>, interrupt: &Rc<Interrupt>) -> PyResult<WorkerBuilder> {
        let mut builder = Worker::builder(self.level);
        if let Some(chips) = self.chips {
            builder.chips(chips);
        }
        builder.subs(self.subs);
        let make = self.chip.maker()?;
        builder.endpoint(move |_, callables| {
            let chip = make(callables)?;
            Ok(Box::new(chip) as Box<dyn Endpoint>)
        });
        builder.log(self.log()?);
        builder.init_limit(seconds("init_limit", self.init_limit)?);
        builder.fork_with(fork_as_python_does);
        builder.permit_other_threads();
        builder.log_goes_on();
        let asked = Rc::clone(interrupt);
        builder.interrupt_with(move || asked.asked());
        for image in self.images(py) {
            builder.callable(image).map_err(error::of_worker)?;
        }
        for (name, function) in &self.functions {
            let function = function.clone_ref(py);
            builder.function(name, move |args| call(&function, None, args)).map_err(error::of_worker)?;
        }
        let mut below = Vec::new();
        for plan in &self.workers {
            // Its waits are in its own process, where somebody else is interrupted.
            let interrupt = Rc::<Interrupt>::default();
            builder.worker(plan.builder(py, &interrupt)?);
            below.push(Below { staging: plan.staging(py), interrupt });
        }
        let below: Rc<[Below]> = below.into();
        for (name, orchestration) in &self.orchestrations {
            let (orchestration, below) = (orchestration.clone_ref(py), Rc::clone(&below));
            let orchestrate = move |worker: &mut Worker, args: &RunArgs| {
                let place = below
                    .iter()
                    .position(|below| worker.shares(below.staging.addr(), below.staging.bytes() as u64));
                let place = place.ok_or_else(|| refused("this worker is none of the plan's".into()))?;
                NativeWorker::lend(worker, &below[place], |lent| {
                    call(&orchestration, Some((place, lent)), args)
                })
            };
            builder.orchestration(name, orchestrate).map_err(error::of_worker)?;
        }
        for buffer in self.shared.iter().chain([&self.staging]) {
            builder.share(buffer.bind(py).get().memory.clone());
        }
        Ok(builder)
    }
}

/// `os.fork`, which runs what Python and its libraries have registered for a fork. The GIL is held at the fork itself.
fn fork_as_python_does() -> io::Result<i32> {
    let parent = std::process::id();
    let forked = Python::attach(|py| py.import("os")?.call_method0("fork")?.extract::<i32>());
    if std::process::id() != parent {
        // Whatever became of the rest of the call: the child must not take itself for a parent whose fork has failed.
        return Ok(0);
    }
    forked.map_err(|error| io::Error::other(error.to_string()))
}

/// A worker below, as its orchestrations need it.
pub(crate) struct Below {
    /// Which no other one sees.
    pub(crate) staging: SharedMemory,
    pub(crate) interrupt: Rc<Interrupt>,
}

/// Calls a function of Python's in a child, under the GIL; an orchestration with its worker, and that one's place among
/// its siblings.
fn call(
    function: &Py<PyAny>,
    worker: Option<(usize, &Py<NativeWorker>)>,
    args: &RunArgs,
) -> Result<(), RunError> {
    if let Some(prefix) = &args.config.output_prefix {
        // As a chip's run does.
        let bound = host_log::set_directory(prefix).map(drop);
        bound.map_err(|error| refused(format!("output prefix {}: {error}", prefix.display())))?;
    }
    Python::attach(|py| {
        let memories = args.tensors.iter().map(|arg| {
            let writable = !matches!(arg.arg_use, ArgUse::Input | ArgUse::NoDep);
            // SAFETY: a child takes only tensors inside the mappings that it has inherited, which it keeps until it ends,
            // and those are readable and writable.
            let memory = unsafe { TaskMemory::new(arg.tensor.addr, arg.tensor.bytes as usize, writable) };
            Py::new(py, memory)
        });
        let memories = memories.collect::<PyResult<Vec<_>>>()?;
        let failure: Option<(i32, String)> = function.bind(py).call1((worker, memories))?.extract()?;
        Ok(failure.map_or(Ok(()), |(code, text)| Err(RunError { code, text })))
    })
    .unwrap_or_else(|error: PyErr| Err(refused(error.to_string())))
}

fn refused(text: String) -> RunError {
    RunError { code: -1, text }
}

/// A positive number of seconds.
pub(crate) fn seconds(what: &str, number: f64) -> PyResult<Duration> {
    let duration = Duration::try_from_secs_f64(number).ok().filter(|duration| !duration.is_zero());
    duration.ok_or_else(|| ArgumentError::new_err(format!("{what} of {number} seconds")))
}
