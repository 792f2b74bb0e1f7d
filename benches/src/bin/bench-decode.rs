//! What `simpler_run` adds to a decode step: the step through the runtime, and the same kernels in a plain loop.
//!
//! Both run the same tasks of the same position, in turn. The plain loop takes the tasks that the orchestration
//! submits, in stages of tasks that do not depend on each other, and splits each stage statically over the online
//! CPUs, with a spinning barrier behind it: what a hand-written decoder would do. Recording the tasks is not
//! timed, and each recording runs once untimed first, so that its memory is as warm as the runtime's.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use simpler_benches::{median, online_cpus, pin_to_cpu, read_bandwidth_gb_per_s};
use simpler_decoder::{DeviceBuffers, Model, Session, SessionConfig, callables};
use simpler_host_log as log;
use simpler_kernel_abi::{ArgUse, SimplerTensor};
use simpler_kernel_compiler::{CallableObjects, Compiler};
use simpler_log_abi::Threshold;
use simpler_platform::Platform;
use simpler_runtime::recording::{HostCallable, Recording};
use simpler_runtime::{CallableId, CallableImage, ChipRuntime, Limits, RingLimits, RunArgs, RuntimeConfig};
use simpler_sim_npu::{Profile, SimNpu, SimOptions};

/// Steps that are timed.
const STEPS: u32 = 100;
/// Steps before them.
const WARM_UP: u32 = 10;
/// What the sequence starts with.
const PROMPT: &str = "The twelve months of the year are January, February, March,";

type Failure = Box<dyn std::error::Error>;

fn main() {
    let json = std::env::args().any(|argument| argument == "--json");
    if let Err(why) = bench(json) {
        eprintln!("bench decode: {why}");
        std::process::exit(2);
    }
}

fn bench(json: bool) -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    // As in a deployment: spans on, to a file.
    log::init(&log::Config {
        threshold: Threshold::TIMING,
        directory: Some(folder.path()),
        defer_writer: false,
    })?;
    let file = std::env::var_os("SIMPLER_SMOLLM2_GGUF").map(PathBuf::from);
    let file =
        file.ok_or("SIMPLER_SMOLLM2_GGUF does not say where the model is; cargo xtask bench sets it")?;
    let tiny = measure(&Model::tiny()?, folder.path())?;
    let real = measure(&Model::from_gguf(&file)?, folder.path())?;
    let bandwidth = read_bandwidth_gb_per_s();
    log::close(std::time::Duration::from_secs(1));

    let round = |value: f64| (value * 1000.0).round() / 1000.0;
    let figures = |step: &Step| {
        serde_json::json!({
            "step_ns": step.runtime_ns.round(),
            "plain_step_ns": step.plain_ns.round(),
            "ratio": round(step.runtime_ns / step.plain_ns),
            "tokens_per_s": round(1e9 / step.runtime_ns),
            "gb_per_s": round(step.weight_bytes as f64 / step.runtime_ns),
            "tasks": step.tasks,
            "stages": step.stages,
        })
    };
    let mut object = figures(&real);
    object["read_gb_per_s"] = round(bandwidth).into();
    object["share_of_bandwidth"] = round(real.weight_bytes as f64 / real.runtime_ns / bandwidth).into();
    object["tiny"] = figures(&tiny);
    if json {
        println!("{object}");
    } else {
        println!("{object:#}");
    }
    Ok(())
}

/// Medians over the timed steps.
struct Step {
    runtime_ns: f64,
    plain_ns: f64,
    weight_bytes: u64,
    tasks: usize,
    stages: usize,
}

fn measure(model: &Model, cache: &std::path::Path) -> Result<Step, Failure> {
    let cpus = online_cpus();
    let prompt = model.tokenizer.encode(PROMPT, false)?;
    let first = prompt.len() as u32;
    let capacity = first + WARM_UP + STEPS + 1;
    let session = Session::new(model, SessionConfig::for_cpus(capacity, cpus as u32))?;

    let platform = SimNpu::new(Profile::a2a3sim(), SimOptions::default())?;
    let runtime = ChipRuntime::new(platform.clone(), RuntimeConfig::default())?;
    let [prefill, decode] = compile(cache)?;
    let host = {
        // SAFETY: the objects were just compiled from the built-in sources.
        unsafe { HostCallable::open(&decode) }?
    };
    let prefill = runtime.register(&CallableImage::load(&prefill)?)?;
    let decode = runtime.register(&CallableImage::load(&decode)?)?;
    let buffers = put_on_chip(&runtime, model, &session)?;
    let mut words = vec![0_u32; session.token_words()];
    words[..prompt.len()].copy_from_slice(&prompt);
    let words_at = words.as_mut_ptr().expose_provenance() as u64;
    run(&runtime, prefill, &session.prefill_args(&buffers, words_at, first)?)?;

    let plain = PlainLoop::new(cpus);
    let (mut through_runtime, mut in_a_loop) = (Vec::new(), Vec::new());
    let (mut tasks, mut stages) = (0, 0);
    for step in 0..WARM_UP + STEPS {
        let args = session.decode_args(&buffers, words_at, first + step)?;
        let recording = {
            // SAFETY: the arguments are those of a run of this callable, and their memory lives on.
            unsafe { record(&host, platform.profile(), &args) }?
        };
        (tasks, stages) = (recording.tasks.len(), recording.stages.len());
        plain.run(&host, &recording);
        let word = first + step + 1;
        let (mut runtime_ns, mut plain_ns) = (0.0, 0.0);
        let mut answers = [0; 2];
        // In turn, and each begins as often as the other. A step that wrote nothing would leave no token behind.
        for (turn, answer) in answers.iter_mut().enumerate() {
            write_word(&mut words, word, u32::MAX);
            if (turn as u32 + step).is_multiple_of(2) {
                plain_ns = plain.run(&host, &recording);
            } else {
                runtime_ns = run(&runtime, decode, &args)?;
            }
            *answer = read_word(&words, word);
        }
        if answers[0] != answers[1] || answers[0] == u32::MAX {
            return Err(format!(
                "step {step}: the runtime and the plain loop give {answers:?}, not one token"
            )
            .into());
        }
        if step >= WARM_UP {
            through_runtime.push(runtime_ns);
            in_a_loop.push(plain_ns);
        }
    }
    let (runtime_ns, plain_ns) = (median(&mut through_runtime), median(&mut in_a_loop));
    Ok(Step { runtime_ns, plain_ns, weight_bytes: session.weight_bytes(), tasks, stages })
}

fn compile(cache: &std::path::Path) -> Result<[CallableObjects; 2], Failure> {
    let compiler = Compiler::new(cache.join("objects"))?;
    let [prefill, decode] = callables(None)?;
    Ok([compiler.compile(&prefill)?, compiler.compile(&decode)?])
}

fn put_on_chip(runtime: &ChipRuntime, model: &Model, session: &Session) -> Result<DeviceBuffers, Failure> {
    let allocate = |bytes: u64| -> Result<u64, Failure> { Ok(runtime.malloc(usize::try_from(bytes)?)?.0) };
    let buffers = DeviceBuffers {
        weights: allocate(session.weight_bytes())?,
        cache: allocate(session.cache_bytes())?,
        rope: allocate(session.rope_bytes())?,
        logits: allocate(session.logits_bytes())?,
    };
    let rope: Vec<u8> = session.rope_table().iter().flat_map(|value| value.to_ne_bytes()).collect();
    runtime.copy_to(simpler_platform::DeviceAddr(buffers.weights), &model.image)?;
    runtime.copy_to(simpler_platform::DeviceAddr(buffers.rope), &rope)?;
    Ok(buffers)
}

fn run(runtime: &ChipRuntime, callable: CallableId, args: &RunArgs) -> Result<f64, Failure> {
    let start = Instant::now();
    // SAFETY: the session's arguments name its own words, which outlive the run, and buffers of this chip; the objects
    // were just compiled from the built-in sources.
    unsafe { runtime.run(callable, args) }?;
    Ok(start.elapsed().as_nanos() as f64)
}

/// The word that a kernel or a copy has written behind the compiler's back.
fn read_word(words: &[u32], position: u32) -> u32 {
    let word = &raw const words[position as usize];
    // SAFETY: the index was checked; runs that write the word have returned.
    unsafe { word.read_volatile() }
}

/// Sets the word, for kernels and copies to overwrite.
fn write_word(words: &mut [u32], position: u32, value: u32) {
    let word = &raw mut words[position as usize];
    // SAFETY: the index was checked; no run is under way.
    unsafe { word.write_volatile(value) };
}

/// # Safety
/// - `args` are arguments of a run of `host`, and all their memory, device memory too, is this process's.
unsafe fn record(
    host: &HostCallable,
    profile: &simpler_platform::Profile,
    args: &RunArgs,
) -> Result<Recording, Failure> {
    let tensors: Vec<SimplerTensor> = args
        .tensors
        .iter()
        .map(|arg| {
            debug_assert!(arg.arg_use != ArgUse::Output || arg.tensor.addr != 0);
            arg.tensor
        })
        .collect();
    // SAFETY: the caller's obligation.
    Ok(unsafe { host.record(profile, LIMITS, &tensors, &args.scalars) }?)
}

/// Room for one step, and no more: an arena is made for every recording.
const LIMITS: Limits =
    Limits::each(RingLimits { window: 4096, heap_bytes: 8 << 20, argument_bytes: 4 << 20, edges: 16_384 });

/// The plain loop's threads, one for each CPU and pinned there: two that share a CPU would wait for each other.
struct PlainLoop {
    threads: usize,
}

impl PlainLoop {
    fn new(threads: usize) -> Self {
        Self { threads }
    }

    /// Runs every task once and gives the ns between the first and the last, with all threads already there.
    fn run(&self, host: &HostCallable, recording: &Recording) -> f64 {
        let barrier = SpinBarrier::new(self.threads);
        let timed = |thread: usize| {
            pin_to_cpu(thread);
            barrier.wait();
            let start = Instant::now();
            self.share(thread, host, recording, &barrier);
            start.elapsed().as_nanos() as f64
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..self.threads)
                .map(|thread| {
                    scope.spawn({
                        let timed = &timed;
                        move || timed(thread)
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap_or(f64::NAN)).fold(0.0, f64::max)
        })
    }

    fn share(&self, thread: usize, host: &HostCallable, recording: &Recording, barrier: &SpinBarrier) {
        for stage in &recording.stages {
            for task in stage.iter().skip(thread).step_by(self.threads) {
                // SAFETY: `host` made the recording, whose memory is still there; the barrier ends each stage before
                // the next begins, and tasks of one stage do not touch what another of them writes.
                unsafe { host.call(recording, *task) };
            }
            barrier.wait();
        }
    }
}

/// All threads arrive before any goes on. Spins, since there is a CPU for each; yields after a while, since the
/// machine may be shared.
struct SpinBarrier {
    threads: usize,
    arrived: AtomicUsize,
    side: AtomicBool,
}

/// Looks before the first yield, about 100 µs: longer than two threads that both run are ever apart here.
const SPINS_MAX: u32 = 4000;

impl SpinBarrier {
    fn new(threads: usize) -> Self {
        Self { threads, arrived: AtomicUsize::new(0), side: AtomicBool::new(false) }
    }

    fn wait(&self) {
        // ORDERING: Relaxed: the side changes only after this thread, too, has arrived.
        let side = self.side.load(Ordering::Relaxed);
        // ORDERING: AcqRel: the last to arrive has seen what all others wrote before they arrived.
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.threads {
            self.arrived.store(0, Ordering::Relaxed);
            // ORDERING: Release: pairs with the Acquire below.
            self.side.store(!side, Ordering::Release);
            return;
        }
        let mut spins = 0;
        // ORDERING: Acquire: pairs with the Release of the last to arrive.
        while self.side.load(Ordering::Acquire) == side {
            spins += 1;
            if spins < SPINS_MAX {
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
    }
}
