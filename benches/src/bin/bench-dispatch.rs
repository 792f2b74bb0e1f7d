//! What a task costs when its kernel does nothing: CPU time of everything that submits, schedules and runs it.
//!
//! Three graphs: a chain, in which each task waits for the one before; a fan-out, in which all wait for one; and a
//! random graph, in which each waits for four of the thousand before it. Next to each the same graph on a pool of
//! threads of rayon, with a counter a task and a spawn when it reaches zero.
//!
//! Then the time of small runs, as somebody sees it who waits for one: scenes in this process, and a group of two chips
//! under an L3 parent from its submission to its completion; warm, with the log on, in a process of their own, since a
//! parent forks before it has threads.
//!
//! CPU time is the process's, of all threads, between the call of a run and its return: a machine that others use as
//! well makes it longer by little. What submitting alone costs is the orchestration's own thread's CPU time, of graphs
//! that are built on the host while nothing else runs.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use simpler_benches::{CpuTime, cpu_time, median, online_cpus, quantile};
use simpler_kernel_abi::{ArgUse, CoreKind, DType, HOST_MEMORY, SimplerTensor};
use simpler_kernel_compiler::{CallableSource, Compiler, KernelSource, SourceFile};
use simpler_log_abi::Threshold;
use simpler_runtime::{
    CallConfig, CallableId, CallableImage, ChipArg, ChipRuntime, GraphRuntime, Limits, RingLimits, RunArgs,
    RuntimeConfig,
};
use simpler_scenes::{Scene, paged_attention, vector_add};
use simpler_sim_npu::{Profile, SimNpu, SimOptions};
use simpler_swimlane::Level;
use simpler_worker::{LogSetup, SharedBuffer, Worker};

/// Tasks of a graph that is compared.
const TASKS: u64 = 100_000;
/// Tasks of the graphs that show how the cost of one grows.
const GROWTH: [u64; 4] = [1_000, 10_000, 100_000, 1_000_000];
/// Tasks of a scope, where there are scopes.
const SCOPE_TASKS: u64 = 1_000;
/// Tasks whose dispatch is timed one by one.
const TIMED_TASKS: u64 = 2_000;
/// Runs of which the median is taken, after one that is not counted.
const RUNS: usize = 9;
/// Says that the scenes are to be measured in this process.
const SCENES: &str = "--scenes";
/// Runs of a scene of which the median is taken, and those before them.
const SCENE_RUNS: usize = 200;
const SCENES_WARM_UP: usize = 10;
/// Chips of a group.
const CHIPS: usize = 2;
/// How long a chip that does nothing is watched.
const IDLE: Duration = Duration::from_secs(2);
/// Each task of a random graph waits for as many tasks.
const RANDOM_DEPENDENCIES: u64 = 4;
/// Among as many before it.
const RANDOM_REACH: u64 = 1_000;

/// scalars: graph, tasks, tasks of a scope or 0 for none. The tensor's first word gets the CPU time of the submits in ns.
const ORCHESTRATION: &str = r#"
#include <simpler/orchestration.h>
#include <time.h>
static uint64_t cpu_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}
int aicpu_orchestration_entry(const SimplerOrchestrationApi *api, SimplerRun *run, const SimplerChipArgs *args) {
    uint64_t graph = args->scalars[0], tasks = args->scalars[1], state = 88172645463325252u, start = cpu_ns();
    uint64_t scope = args->scalars[2];
    int64_t ring = scope ? (int64_t)1 << 32 : 0;
    uint64_t *spent = simpler_tensor_data(&args->tensors[0]);
    for (uint64_t i = 0; i < tasks; i++) {
        if (scope && i % scope == 0 && ((i && api->scope_end(run) != 0) || api->scope_begin(run) != 0)) return 2;
        SimplerTask task = simpler_task(0, 0);
        int64_t deps[4] = {0};
        task.aiv0 = 0;
        task.deps = deps;
        if (graph == 0 && i) {
            deps[0] = ring + (int64_t)i - 1;
            task.dep_count = 1;
        } else if (graph == 1 && i) {
            deps[0] = ring;
            task.dep_count = 1;
        } else if (graph == 2 && i) {
            for (uint64_t k = 0; k < 4; k++) {
                state ^= state << 13, state ^= state >> 7, state ^= state << 17;
                deps[k] = ring + (int64_t)(i - 1 - state % (i < 1000 ? i : 1000));
            }
            task.dep_count = 4;
        }
        if (api->submit_task(run, &task) < 0) return 1;
    }
    if (scope && api->scope_end(run) != 0) return 3;
    *spent = cpu_ns() - start;
    return 0;
}
"#;

const KERNEL: &str =
    "#include <simpler/kernel.h>\nvoid kernel_entry(const SimplerKernelArgs *args) { (void)args; }\n";

type Failure = Box<dyn std::error::Error>;

/// The graphs; the discriminant is the orchestration's first scalar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Graph {
    Chain = 0,
    FanOut = 1,
    Random = 2,
}

impl Graph {
    const ALL: [Self; 3] = [Self::Chain, Self::FanOut, Self::Random];

    const fn key(self) -> &'static str {
        match self {
            Self::Chain => "chain",
            Self::FanOut => "fanout",
            Self::Random => "random",
        }
    }

    /// What each task waits for, as the orchestration says it.
    fn dependencies(self, tasks: u64) -> Vec<Vec<u64>> {
        let mut state = 88_172_645_463_325_252_u64;
        let mut random = |i: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            i - 1 - state % i.min(RANDOM_REACH)
        };
        let of = |i: u64| match self {
            _ if i == 0 => Vec::new(),
            Self::Chain => vec![i - 1],
            Self::FanOut => vec![0],
            Self::Random => (0..RANDOM_DEPENDENCIES).map(|_| random(i)).collect(),
        };
        (0..tasks).map(of).collect()
    }
}

fn main() {
    let asked = |what: &str| std::env::args().any(|argument| argument == what);
    let (json, measured) = (asked("--json"), if asked(SCENES) { scenes() } else { bench() });
    match measured {
        Ok(object) if json => println!("{object}"),
        Ok(object) => println!("{object:#}"),
        Err(why) => {
            eprintln!("bench dispatch: {why}");
            std::process::exit(2);
        }
    }
}

fn bench() -> Result<Value, Failure> {
    let folder = tempfile::tempdir()?;
    let image = compile(folder.path())?;
    let mut object = json!({});
    for graph in Graph::ALL {
        object[graph.key()] = measure(&image, graph, folder.path())?;
    }
    let growth = growth(&image)?;
    object["growth_cpu_ns_per_task"] = growth[0].clone();
    object["growth_scoped_cpu_ns_per_task"] = growth[1].clone();
    object["idle_cpu_share"] = round(idle(&image)?, 5).into();
    let of_scenes = std::process::Command::new(std::env::current_exe()?).args([SCENES, "--json"]).output()?;
    if !of_scenes.status.success() {
        return Err(String::from_utf8_lossy(&of_scenes.stderr).into());
    }
    if let (Some(all), Value::Object(scenes)) =
        (object.as_object_mut(), serde_json::from_slice(&of_scenes.stdout)?)
    {
        all.extend(scenes);
    }
    object["cpus"] = online_cpus().into();
    Ok(object)
}

fn compile(folder: &Path) -> Result<CallableImage, Failure> {
    let source = CallableSource {
        name: "dispatch".to_owned(),
        orchestration: SourceFile::new("dispatch.c", ORCHESTRATION.to_owned()),
        kernels: vec![KernelSource {
            file: SourceFile::new("nothing.c", KERNEL.to_owned()),
            kind: CoreKind::Aiv,
        }],
        headers: Vec::new(),
    };
    Ok(CallableImage::load(&Compiler::new(folder.join("objects"))?.compile(&source)?)?)
}

/// The figures of the scenes alone, in this process.
fn scenes() -> Result<Value, Failure> {
    let folder = tempfile::tempdir()?;
    let compiler = Compiler::new(folder.path().join("objects"))?;
    // Four tasks, and four heads of four pages.
    let (vector, attention) = (vector_add(4_096, 4), paged_attention(4, 64, 16, 64));
    let group = l3_group_run_us(&compiler, &folder.path().join("log"), vector.clone())?;
    Ok(json!({
        "vector_run_us": scene_run_us(&compiler, vector)?,
        "paged_attention_run_us": scene_run_us(&compiler, attention)?,
        "l3_group_run_us": group,
        "scene_runs": SCENE_RUNS,
    }))
}

/// The median time of `simpler_run` of a scene.
fn scene_run_us(compiler: &Compiler, mut scene: Scene) -> Result<f64, Failure> {
    let npu = SimNpu::new(Profile::a2a3sim(), SimOptions::default())?;
    let runtime = ChipRuntime::new(npu, RuntimeConfig::default())?;
    let callable = runtime.register(&CallableImage::load(&compiler.compile(&scene.source())?)?)?;
    let mut times = Vec::new();
    for run in 0..SCENES_WARM_UP + SCENE_RUNS {
        scene.reset();
        let args = scene.args();
        let start = Instant::now();
        // SAFETY: the arguments are the scene's own memory; the objects were compiled from its sources.
        unsafe { runtime.run(callable, &args) }?;
        let time = start.elapsed();
        scene.check()?;
        if run >= SCENES_WARM_UP {
            times.push(time.as_nanos() as f64 / 1_000.0);
        }
    }
    Ok(round(median(&mut times), 1))
}

/// The median time of a scene on each of two chips, from the first submit to the last completion.
fn l3_group_run_us(compiler: &Compiler, log: &Path, mut scene: Scene) -> Result<f64, Failure> {
    let mut builder = Worker::builder(3);
    builder.chips(CHIPS);
    builder.log(LogSetup { threshold: Threshold::TIMING, directory: Some(log.into()) });
    let callable = builder.callable(CallableImage::load(&compiler.compile(&scene.source())?)?)?;
    let bytes = scene.bytes();
    let mut buffer = SharedBuffer::new(CHIPS * bytes)?;
    let base = buffer.as_mut_slice().as_ptr().addr() as u64;
    let chips = buffer.as_mut_slice().chunks_exact_mut(bytes).enumerate();
    let args: Vec<RunArgs> =
        chips.map(|(chip, memory)| scene.place(memory, base + (chip * bytes) as u64)).collect();
    let shared = builder.share(buffer);
    let mut worker = builder.start()?;
    let mut times = Vec::new();
    for run in 0..SCENES_WARM_UP + SCENE_RUNS {
        let start = Instant::now();
        let tickets = (0..CHIPS).map(|chip| worker.submit(chip, callable, &args[chip]));
        for ticket in tickets.collect::<Result<Vec<_>, _>>()? {
            worker.wait(ticket)?;
        }
        if run >= SCENES_WARM_UP {
            times.push(start.elapsed().as_nanos() as f64 / 1_000.0);
        }
    }
    for chip in 0..CHIPS {
        let mut memory = vec![0; bytes];
        shared.read(chip * bytes, &mut memory)?;
        scene.take(&memory);
        scene.check()?;
    }
    worker.close()?;
    Ok(round(median(&mut times), 1))
}

/// A chip with room for so many tasks of these graphs.
struct Subject {
    runtime: ChipRuntime,
    callable: CallableId,
    /// Tasks of a scope, or 0.
    scope: u64,
}

impl Subject {
    /// With the default limits: as many tasks as one likes, in scopes.
    fn scoped(image: &CallableImage) -> Result<Self, Failure> {
        Self::with(image, Profile::a2a3sim(), RuntimeConfig::default(), SCOPE_TASKS)
    }

    fn new(
        image: &CallableImage,
        profile: Profile,
        graph_runtime: GraphRuntime,
        tasks: u64,
    ) -> Result<Self, Failure> {
        let window = u32::try_from(tasks.next_power_of_two())?;
        let edges = u32::try_from(tasks * RANDOM_DEPENDENCIES)?;
        // They have no scopes, so all of them are in the first ring.
        let mut limits = Limits::default();
        limits.rings[0] = RingLimits { window, edges, ..limits.rings[0] };
        Self::with(image, profile, RuntimeConfig { graph_runtime, limits, ..Default::default() }, 0)
    }

    fn with(
        image: &CallableImage,
        profile: Profile,
        config: RuntimeConfig,
        scope: u64,
    ) -> Result<Self, Failure> {
        let runtime = ChipRuntime::new(SimNpu::new(profile, SimOptions::default())?, config)?;
        let callable = runtime.register(image)?;
        Ok(Self { runtime, callable, scope })
    }

    fn run(&self, graph: Graph, tasks: u64) -> Result<Run, Failure> {
        self.run_with(graph, tasks, CallConfig::default())
    }

    fn run_with(&self, graph: Graph, tasks: u64, config: CallConfig) -> Result<Run, Failure> {
        let mut submit_ns = Box::new(0_u64);
        let at = std::ptr::from_mut(&mut *submit_ns).expose_provenance() as u64;
        let tensor = SimplerTensor::whole(at, 8, DType::U8, HOST_MEMORY);
        let tensors = vec![ChipArg { tensor, arg_use: ArgUse::OutputExisting }];
        let args = RunArgs { tensors, scalars: vec![graph as u64, tasks, self.scope], config };
        let (cpu, start) = (cpu_time(CpuTime::Process), Instant::now());
        // SAFETY: the one tensor is the word above; the objects were compiled from the sources above.
        unsafe { self.runtime.run(self.callable, &args) }?;
        let (wall, cpu) = (start.elapsed(), cpu_time(CpuTime::Process) - cpu);
        let word = &raw const *submit_ns;
        // SAFETY: the run that wrote the word has returned.
        let submit_ns = unsafe { word.read_volatile() } as f64;
        Ok(Run { cpu_ns: cpu.as_nanos() as f64, wall_ns: wall.as_nanos() as f64, submit_ns })
    }

    /// The median of several runs, each figure for itself.
    fn runs(&self, graph: Graph, tasks: u64) -> Result<Run, Failure> {
        self.run(graph, tasks)?;
        let runs = (0..RUNS).map(|_| self.run(graph, tasks)).collect::<Result<Vec<_>, _>>()?;
        let of = |figure: fn(&Run) -> f64| median(&mut runs.iter().map(figure).collect::<Vec<_>>());
        Ok(Run {
            cpu_ns: of(|run| run.cpu_ns),
            wall_ns: of(|run| run.wall_ns),
            submit_ns: of(|run| run.submit_ns),
        })
    }
}

struct Run {
    cpu_ns: f64,
    wall_ns: f64,
    submit_ns: f64,
}

fn measure(image: &CallableImage, graph: Graph, folder: &Path) -> Result<Value, Failure> {
    let profile = Profile::a2a3sim;
    let device = Subject::new(image, profile(), GraphRuntime::TensorMapAndRingBuffer, TASKS)?;
    let run = device.runs(graph, TASKS)?;
    let host = Subject::new(image, profile(), GraphRuntime::HostBuildGraph, TASKS)?;
    let built = host.runs(graph, TASKS)?;
    let mut latencies = dispatch_latencies(image, graph, folder)?;
    let per_task = |ns: f64| (ns / TASKS as f64).round();
    Ok(json!({
        "tasks": TASKS,
        "tasks_per_s": (TASKS as f64 / run.wall_ns * 1e9).round(),
        "cpu_ns_per_task": per_task(run.cpu_ns),
        "submit_ns_per_task": per_task(built.submit_ns),
        "host_build_graph_cpu_ns_per_task": per_task(built.cpu_ns),
        "dispatch_ns_p50": quantile(&mut latencies, 0.5).round(),
        "dispatch_ns_p99": quantile(&mut latencies, 0.99).round(),
        "rayon_cpu_ns_per_task": per_task(rayon_cpu_ns(graph)?),
    }))
}

/// From the write of a core's register to the entry of its kernel, a task each, in ns.
fn dispatch_latencies(image: &CallableImage, graph: Graph, folder: &Path) -> Result<Vec<f64>, Failure> {
    // Its counter is the finer one.
    let profile = Profile::a5sim();
    let hz = profile.counter_hz as f64;
    let output = folder.join(graph.key());
    let subject = Subject::new(image, profile, GraphRuntime::TensorMapAndRingBuffer, TIMED_TASKS)?;
    subject.run(graph, TIMED_TASKS)?;
    let output_prefix = Some(output.clone());
    let config = CallConfig { swimlane: Level::AicpuTasks, output_prefix, ..CallConfig::default() };
    subject.run_with(graph, TIMED_TASKS, config)?;
    let artifact = find(&output).ok_or("the run has written no records")?;
    let records: Value = serde_json::from_slice(&std::fs::read(artifact)?)?;
    let rows = |key: &str| -> Vec<Vec<u64>> {
        let rows = records[key].as_array().into_iter().flatten();
        rows.map(|row| row.as_array().into_iter().flatten().filter_map(Value::as_u64).collect()).collect()
    };
    let started: std::collections::HashMap<(u64, u64), u64> = rows("aicore_tasks")
        .iter()
        .filter_map(|row| Some(((*row.first()?, *row.get(2)?), *row.get(3)?)))
        .collect();
    let latency = |row: &Vec<u64>| {
        let start = started.get(&(*row.first()?, *row.get(1)?))?;
        Some(start.saturating_sub(*row.get(2)?) as f64 / hz * 1e9)
    };
    let latencies: Vec<f64> = rows("aicpu_tasks").iter().filter_map(latency).collect();
    if latencies.len() as u64 != TIMED_TASKS {
        return Err(format!("{} of {TIMED_TASKS} tasks have a dispatch and a start", latencies.len()).into());
    }
    Ok(latencies)
}

/// The one artifact below a folder.
fn find(folder: &Path) -> Option<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    entries.into_iter().find_map(|path| if path.is_dir() { find(&path) } else { Some(path) })
}

/// CPU time of the same graph on rayon: the median of as many runs.
fn rayon_cpu_ns(graph: Graph) -> Result<f64, Failure> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(online_cpus()).build()?;
    let dependencies = graph.dependencies(TASKS);
    let mut cpu_ns = Vec::new();
    for run in 0..=RUNS {
        let cpu = cpu_time(CpuTime::Process);
        let tasks = Tasks::new(&dependencies);
        pool.scope(|scope| {
            let tasks = &tasks;
            for task in (0..tasks.successors.len()).filter(|task| dependencies[*task].is_empty()) {
                scope.spawn(move |scope| tasks.spawn_successors(scope, task));
            }
        });
        if run != 0 {
            cpu_ns.push((cpu_time(CpuTime::Process) - cpu).as_nanos() as f64);
        }
        if tasks.done.load(Ordering::Relaxed) as u64 != TASKS {
            return Err("rayon left tasks undone".into());
        }
    }
    Ok(median(&mut cpu_ns))
}

/// A graph for a pool of threads.
struct Tasks {
    waiting_for: Vec<AtomicU32>,
    successors: Vec<Vec<u32>>,
    done: AtomicU32,
}

impl Tasks {
    fn new(dependencies: &[Vec<u64>]) -> Self {
        let mut successors = vec![Vec::new(); dependencies.len()];
        for (task, before) in dependencies.iter().enumerate() {
            before.iter().for_each(|before| successors[*before as usize].push(task as u32));
        }
        let waiting_for = dependencies.iter().map(|before| AtomicU32::new(before.len() as u32)).collect();
        Self { waiting_for, successors, done: AtomicU32::new(0) }
    }

    /// `task` is done: whoever waited for it last is spawned.
    fn spawn_successors<'s>(&'s self, scope: &rayon::Scope<'s>, task: usize) {
        // ORDERING: Relaxed: read when the scope has ended.
        self.done.fetch_add(1, Ordering::Relaxed);
        for successor in &self.successors[task] {
            let successor = *successor as usize;
            // ORDERING: AcqRel: the last sees what all before it have done.
            if self.waiting_for[successor].fetch_sub(1, Ordering::AcqRel) == 1 {
                scope.spawn(move |scope| self.spawn_successors(scope, successor));
            }
        }
    }
}

/// CPU time of a task of graphs of very different size.
/// Once in a window that holds all of it, and once in scopes that come and go.
fn growth(image: &CallableImage) -> Result<[Value; 2], Failure> {
    let mut figures = [json!({}), json!({})];
    for tasks in GROWTH {
        let whole = Subject::new(image, Profile::a2a3sim(), GraphRuntime::TensorMapAndRingBuffer, tasks)?;
        for (figures, subject) in figures.iter_mut().zip([whole, Subject::scoped(image)?]) {
            let run = subject.runs(Graph::Random, tasks)?;
            figures[tasks.to_string()] = (run.cpu_ns / tasks as f64).round().into();
        }
    }
    Ok(figures)
}

/// The share of one CPU that a chip takes that has run something and does nothing now.
fn idle(image: &CallableImage) -> Result<f64, Failure> {
    let subject = Subject::new(image, Profile::a2a3sim(), GraphRuntime::TensorMapAndRingBuffer, 1_000)?;
    subject.run(Graph::FanOut, 1_000)?;
    // Its threads come to rest.
    std::thread::park_timeout(Duration::from_millis(100));
    let (cpu, start) = (cpu_time(CpuTime::Process), Instant::now());
    std::thread::park_timeout(IDLE);
    Ok((cpu_time(CpuTime::Process) - cpu).as_secs_f64() / start.elapsed().as_secs_f64())
}

fn round(value: f64, digits: i32) -> f64 {
    let scale = 10_f64.powi(digits);
    (value * scale).round() / scale
}
