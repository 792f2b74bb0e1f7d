//! How little observing disturbs: a decode step of a real model with the log muted, with host spans, with device
//! phases besides, with all task slots in use besides, with variable phases at level 4 in place of the slots.
//!
//! The step is the same one over and over: the same position, the same token, the same memory. A round gives each arm
//! a turn of several steps, the first of which is not timed: what the writer still does of the turn before is that
//! turn's. The order of the arms is drawn for each round, so that an arm and the muted turns that it is divided by are
//! neighbours in time and a machine that changes its speed changes both. Two arms are muted: the others are divided by
//! their mean, which is steadier than either, and one by the other is noise. What is printed is the median of these
//! ratios, with the interval in which the median of such ratios lies with 95 % certainty by the order of the samples,
//! which asks nothing of their distribution.
//!
//! The same is done with the processor time of the process, the log's writer included. On few processors, all of them
//! busy, the time of a step is that and how the threads happen to follow one another.
//!
//! Beside what was measured stands what it should cost: the number of events of a step times what one of them costs
//! in a loop, the median of loops that are spread over the rounds: a machine that is slow for a while is so for both.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use simpler_benches::{each_ns, median, online_cpus};
use simpler_decoder::{DeviceBuffers, Model, Session, SessionConfig, callables};
use simpler_device_phase::{Phase, PhaseBufferLayout, PhaseStamper, TaskSlot};
use simpler_host_log::{self as log, SpanEvent, span};
use simpler_kernel_compiler::Compiler;
use simpler_log_abi::{Level as LogLevel, Threshold};
use simpler_platform::{DeviceAddr, Platform, Profile};
use simpler_runtime::{
    CallConfig, CallableId, CallableImage, ChipRuntime, RunArgs, RuntimeConfig, take_clock_anchor,
};
use simpler_sim_npu::{SimNpu, SimOptions};
use simpler_swimlane::{BACKSTOP, Capacities, Collector, Level, OrchPhase, SwimlaneLayout, ThreadTrack};

/// What the sequence starts with.
const PROMPT: &str = "The twelve months of the year are January, February, March,";
/// Steps of a turn that are timed, behind one that is not.
const STEPS: usize = 4;
/// Rounds before the first that counts.
const WARM_UP: usize = 3;
/// Rounds at least, whatever the intervals say.
const ROUNDS_MIN: usize = 40;
/// Half the width that every interval must come down to, as a share, or the answer is inconclusive.
const HALF_WIDTH: f64 = 0.005;
/// How long to go on for that.
const LIMIT: Duration = Duration::from_secs(20 * 60);
/// Half the width that is worth some time more, and how much: an upper end of 1 % wants a narrow interval.
const NARROW: f64 = 0.002;
const PATIENCE: Duration = Duration::from_secs(8 * 60);
/// Calls of which a unit's cost is the mean, as many as the log's queue takes without dropping any.
const CALLS: usize = 200;
/// Device spans that are emitted together: those of a step without its slots.
const EMITTED: usize = 10;
/// Repetitions of that.
const REPETITIONS: usize = 20;
/// Rounds between two such measurements.
const ROUNDS_PER_UNITS: usize = 50;
/// How long the log may take to write what was emitted between two measurements.
const FLUSH: Duration = Duration::from_secs(10);

type Failure = Box<dyn std::error::Error>;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let json = arguments.iter().any(|argument| argument == "--json");
    // For a look: as good as it gets in so many seconds.
    let seconds = arguments.iter().find_map(|argument| argument.strip_prefix("--seconds=")?.parse().ok());
    match bench(seconds.map_or(LIMIT, Duration::from_secs)) {
        Ok(object) if json => println!("{object}"),
        Ok(object) => println!("{object:#}"),
        Err(why) => {
            eprintln!("bench observer: {why}");
            std::process::exit(2);
        }
    }
}

/// What is observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arm {
    Muted,
    MutedAgain,
    Host,
    Device,
    Slots,
    Variable,
}

impl Arm {
    const ALL: [Self; 6] =
        [Self::Muted, Self::MutedAgain, Self::Host, Self::Device, Self::Slots, Self::Variable];

    const fn key(self) -> &'static str {
        match self {
            Self::Muted => "muted",
            Self::MutedAgain => "noise",
            Self::Host => "host",
            Self::Device => "device",
            Self::Slots => "slots",
            Self::Variable => "variable",
        }
    }
}

/// The model on a chip, and the step in three versions.
struct Subject {
    platform: Arc<SimNpu>,
    runtime: ChipRuntime,
    decode: CallableId,
    plain: RunArgs,
    timed: RunArgs,
    /// The plain step with its variable phases collected and reconciled; what goes to a file is written after a step.
    recorded: RunArgs,
    /// The sequence; the arguments name it.
    _words: Vec<u32>,
}

impl Subject {
    fn new(model: &Model, cache: &Path) -> Result<Self, Failure> {
        let prompt = model.tokenizer.encode(PROMPT, false)?;
        let first = prompt.len() as u32;
        let config = SessionConfig::for_cpus(first + 2, online_cpus() as u32);
        let session = Session::new(model, config)?;
        let timed = Session::new(model, SessionConfig { task_slots: true, ..config })?;
        let platform = SimNpu::new(Profile::a2a3sim(), SimOptions::default())?;
        let runtime = ChipRuntime::new(platform.clone(), RuntimeConfig::default())?;
        let compiler = Compiler::new(cache.join("objects"))?;
        let [prefill, decode] = callables(None)?;
        let register = |source| -> Result<CallableId, Failure> {
            Ok(runtime.register(&CallableImage::load(&compiler.compile(source)?)?)?)
        };
        let (prefill, decode) = (register(&prefill)?, register(&decode)?);
        let allocate =
            |bytes: u64| -> Result<u64, Failure> { Ok(runtime.malloc(usize::try_from(bytes)?)?.0) };
        let buffers = DeviceBuffers {
            weights: allocate(session.weight_bytes())?,
            cache: allocate(session.cache_bytes())?,
            rope: allocate(session.rope_bytes())?,
            logits: allocate(session.logits_bytes())?,
        };
        let rope: Vec<u8> = session.rope_table().iter().flat_map(|value| value.to_ne_bytes()).collect();
        runtime.copy_to(DeviceAddr(buffers.weights), &model.image)?;
        runtime.copy_to(DeviceAddr(buffers.rope), &rope)?;
        let mut words = vec![0_u32; session.token_words()];
        words[..prompt.len()].copy_from_slice(&prompt);
        let at = words.as_mut_ptr().expose_provenance() as u64;
        let plain = session.decode_args(&buffers, at, first)?;
        let config = CallConfig { swimlane: Level::OrchestratorPhases, ..CallConfig::default() };
        let subject = Self {
            platform,
            decode,
            recorded: RunArgs { config, ..plain.clone() },
            plain,
            timed: timed.decode_args(&buffers, at, first)?,
            runtime,
            _words: words,
        };
        subject.run(prefill, &session.prefill_args(&buffers, at, first)?)?;
        Ok(subject)
    }

    fn run(&self, callable: CallableId, args: &RunArgs) -> Result<f64, Failure> {
        let start = Instant::now();
        // SAFETY: the session's arguments name this subject's words, which live on, and buffers of this chip; the
        // objects were just compiled from the built-in sources.
        unsafe { self.runtime.run(callable, args) }?;
        Ok(start.elapsed().as_nanos() as f64)
    }

    /// A turn of an arm: the mean of its steps.
    fn turn(&self, arm: Arm) -> Result<Step, Failure> {
        self.step(arm)?;
        let before = process_cpu_ns();
        let times: Vec<f64> = (0..STEPS).map(|_| self.step(arm)).collect::<Result<_, _>>()?;
        let cpu_ns = process_cpu_ns() - before;
        Ok(Step { wall_ns: times.iter().sum::<f64>() / STEPS as f64, cpu_ns: cpu_ns / STEPS as f64 })
    }

    /// The step in an arm, ns.
    fn step(&self, arm: Arm) -> Result<f64, Failure> {
        let muted = matches!(arm, Arm::Muted | Arm::MutedAgain);
        log::set_threshold(if muted { Threshold::NUL } else { Threshold::TIMING });
        self.runtime.set_device_spans(matches!(arm, Arm::Device | Arm::Slots | Arm::Variable));
        let args = match arm {
            Arm::Slots => &self.timed,
            Arm::Variable => &self.recorded,
            _ => &self.plain,
        };
        self.run(self.decode, args)
    }
}

fn bench(limit: Duration) -> Result<serde_json::Value, Failure> {
    let folder = tempfile::tempdir()?;
    // As in a deployment: a file, and the writer beside the step.
    log::init(&log::Config {
        threshold: Threshold::TIMING,
        directory: Some(folder.path()),
        defer_writer: false,
    })?;
    let file = std::env::var_os("SIMPLER_SMOLLM2_GGUF").map(PathBuf::from);
    let file =
        file.ok_or("SIMPLER_SMOLLM2_GGUF does not say where the model is; cargo xtask bench sets it")?;
    let subject = Subject::new(&Model::from_gguf(&file)?, folder.path())?;
    let events = Events::of_a_step(&subject, folder.path())?;
    let (rounds, units) = measure(&subject, limit)?;
    log::set_threshold(Threshold::TIMING);
    let dropped = log::counts().dropped;
    log::close(FLUSH);

    let muted = |of: Measure| median(&mut rounds.iter().map(|round| of(&round[0])).collect::<Vec<_>>());
    let step_ns = muted(WALL);
    let mut object = json!({
        "step_ns": step_ns.round(),
        "step_cpu_ns": muted(CPU).round(),
        "rounds": rounds.len(),
        "dropped": dropped,
        "stamp_ns": tenths(units.stamp_ns),
        "counter_read_ns": tenths(units.counter_ns),
        "host_span_ns": tenths(units.span_ns),
        "device_span_ns": tenths(units.emit_ns),
        "clock_anchor_ns": tenths(units.anchor_ns),
        "phase_transfers_ns": tenths(units.transfers_ns),
        "slot_stamp_ns": tenths(units.slot_ns),
        "host_spans": events.host_spans,
        "device_spans": events.device_spans,
        "clock_anchors": events.anchors,
        "stamps": events.stamps,
        "timed_tasks": events.timed_tasks,
        "variable_records": events.variable_records,
        "variable_record_ns": tenths(units.record_ns),
    });
    let mut inconclusive = false;
    for (index, arm) in Arm::ALL.into_iter().enumerate().skip(1) {
        let key = arm.key();
        for (measure, name) in [(WALL, "overhead"), (CPU, "cpu")] {
            let interval = Interval::of(&rounds, index, measure);
            object[&*format!("{key}_{name}_pct")] = percent(interval.middle);
            object[&*format!("{key}_{name}_lo_pct")] = percent(interval.low);
            object[&*format!("{key}_{name}_hi_pct")] = percent(interval.high);
        }
        inconclusive |= Interval::of(&rounds, index, WALL).half_width() > HALF_WIDTH;
        if let Some(ns) = events.cost_ns(&units, arm) {
            object[&*format!("{key}_computed_pct")] = percent(ns / step_ns);
        }
    }
    object["inconclusive"] = inconclusive.into();
    Ok(object)
}

/// What a step takes, on the mean of a turn.
#[derive(Clone, Copy, Default)]
struct Step {
    wall_ns: f64,
    /// Of all threads of the process.
    cpu_ns: f64,
}

/// A step for each arm.
type Round = [Step; Arm::ALL.len()];
/// What is looked at of a step.
type Measure = fn(&Step) -> f64;
const WALL: Measure = |step| step.wall_ns;
const CPU: Measure = |step| step.cpu_ns;

fn process_cpu_ns() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the struct is there for the call to fill; the clock is one that every Linux has.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Rounds of a turn for each arm, until every interval is narrow or the time is up; and what an event costs.
fn measure(subject: &Subject, limit: Duration) -> Result<(Vec<Round>, Units), Failure> {
    let started = Instant::now();
    let (mut rounds, mut units) = (Vec::new(), Vec::new());
    let mut order = Order(0x9e37_79b9_7f4a_7c15);
    for number in 0.. {
        if number % ROUNDS_PER_UNITS == 0 {
            units.push(Units::measure(subject)?);
        }
        let mut round = Round::default();
        for index in order.shuffled(round.len()) {
            round[index] = subject.turn(Arm::ALL[index])?;
        }
        if number < WARM_UP {
            continue;
        }
        rounds.push(round);
        let width =
            (1..round.len()).map(|arm| Interval::of(&rounds, arm, WALL).half_width()).fold(0.0, f64::max);
        let wanted = if started.elapsed() < PATIENCE { NARROW } else { HALF_WIDTH };
        if rounds.len() >= ROUNDS_MIN && width <= wanted || started.elapsed() > limit {
            break;
        }
    }
    Ok((rounds, Units::medians(&units)))
}

/// Draws orders; the same in every run of the benchmark.
struct Order(u64);

impl Order {
    fn shuffled(&mut self, count: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..count).collect();
        for last in (1..count).rev() {
            // Xorshift.
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            order.swap(last, (self.0 % (last as u64 + 1)) as usize);
        }
        order
    }
}

/// The median overhead of an arm, as a share, and where it lies with 95 % certainty.
struct Interval {
    low: f64,
    middle: f64,
    high: f64,
}

impl Interval {
    fn of(rounds: &[Round], arm: usize, measure: Measure) -> Self {
        let share = |round: &Round| {
            let [muted, again] = [measure(&round[0]), measure(&round[1])];
            let base = if Arm::ALL[arm] == Arm::MutedAgain { muted } else { f64::midpoint(muted, again) };
            measure(&round[arm]) / base - 1.0
        };
        let mut shares: Vec<f64> = rounds.iter().map(share).collect();
        let middle = median(&mut shares);
        // The number of samples below the true median is binomial, near a normal of this deviation.
        let count = shares.len() as f64;
        let reach = 1.96 * count.sqrt() / 2.0;
        let at = |place: f64| shares[place.clamp(0.0, count - 1.0) as usize];
        Self { low: at((count / 2.0 - reach).floor()), middle, high: at((count / 2.0 + reach).ceil()) }
    }

    fn half_width(&self) -> f64 {
        (self.high - self.low) / 2.0
    }
}

/// What a step does for its observers.
struct Events {
    host_spans: usize,
    device_spans: usize,
    slot_spans: usize,
    anchors: usize,
    stamps: usize,
    timed_tasks: usize,
    variable_records: usize,
}

impl Events {
    /// Counted in the log of one step with everything on; the stamps by what each AICPU thread passes through.
    fn of_a_step(subject: &Subject, directory: &Path) -> Result<Self, Failure> {
        let file = directory.join(format!("host.{}.log", std::process::id()));
        let log_of = |arm| -> Result<String, Failure> {
            log::flush(FLUSH)?;
            let before = std::fs::read_to_string(&file)?.len();
            subject.step(arm)?;
            log::flush(FLUSH)?;
            Ok(std::fs::read_to_string(&file)?.split_off(before))
        };
        let text = log_of(Arm::Slots)?;
        let variable = log_of(Arm::Variable)?;
        let (_, variable) = variable.split_once("swimlane: ").ok_or("a step says nothing of its records")?;
        let (variable, _) = variable.split_once(" collected + 0 dropped = ").ok_or("a step drops records")?;
        let count = |what: &dyn Fn(&str) -> bool| text.lines().filter(|line| what(line)).count();
        let schedulers = subject.platform.profile().aicpu_logical - 1;
        // All of them the wall, the preamble, the graph build and a window; the orchestrator its three preparations,
        // and the last finisher the teardown.
        let stamps = (schedulers + 1) * 4 + 3 + 1;
        let slots = count(&|line| line.contains(".task_slot_"));
        if slots != TaskSlot::all().count() {
            return Err(format!("a step uses {slots} slots, not all").into());
        }
        Ok(Self {
            host_spans: count(&|line| line.contains("[STRACE]") && !line.contains("clk=dev")),
            device_spans: count(&|line| line.contains("clk=dev") && !line.contains(".task_slot_")),
            slot_spans: slots,
            anchors: count(&|line| line.contains("[DEV_CLOCK_ANCHOR]")),
            stamps,
            // The embedding, the norms that open fourteen layers, the argmax.
            timed_tasks: slots,
            variable_records: variable.parse()?,
        })
    }

    /// What an arm should cost a step, ns; None for one that observes nothing.
    fn cost_ns(&self, units: &Units, arm: Arm) -> Option<f64> {
        let host = self.host_spans as f64 * (units.span_ns - units.muted_span_ns).max(0.0);
        let device = host
            + self.stamps as f64 * units.stamp_ns
            + self.device_spans as f64 * units.emit_ns
            + self.anchors as f64 * units.anchor_ns
            + units.transfers_ns;
        match arm {
            Arm::Muted | Arm::MutedAgain => None,
            Arm::Host => Some(host),
            Arm::Device => Some(device),
            Arm::Slots => Some(
                device
                    + self.timed_tasks as f64 * units.slot_ns
                    + self.slot_spans as f64 * units.emit_ns
                    + units.tail_ns,
            ),
            Arm::Variable => Some(device + self.variable_records as f64 * units.record_ns),
        }
    }
}

/// What one event costs, ns: the median over repetitions of a mean over calls.
struct Units {
    muted_span_ns: f64,
    span_ns: f64,
    emit_ns: f64,
    anchor_ns: f64,
    counter_ns: f64,
    /// Two readings of the counter and two stores.
    stamp_ns: f64,
    /// A dispatch and a finish.
    slot_ns: f64,
    /// The reset and the readback of the phases.
    transfers_ns: f64,
    /// The readback of the slots.
    tail_ns: f64,
    /// A record of a variable phase: two readings of the counter, and the append.
    record_ns: f64,
}

impl Units {
    fn medians(all: &[Self]) -> Self {
        let of = |figure: fn(&Self) -> f64| median(&mut all.iter().map(figure).collect::<Vec<_>>());
        Self {
            muted_span_ns: of(|units| units.muted_span_ns),
            span_ns: of(|units| units.span_ns),
            emit_ns: of(|units| units.emit_ns),
            anchor_ns: of(|units| units.anchor_ns),
            counter_ns: of(|units| units.counter_ns),
            stamp_ns: of(|units| units.stamp_ns),
            slot_ns: of(|units| units.slot_ns),
            transfers_ns: of(|units| units.transfers_ns),
            tail_ns: of(|units| units.tail_ns),
            record_ns: of(|units| units.record_ns),
        }
    }

    fn measure(subject: &Subject) -> Result<Self, Failure> {
        let platform = &*subject.platform;
        let layout = PhaseBufferLayout::new(platform.profile().aicpu_launched);
        let mut image = vec![0; layout.bytes()];
        layout.write_reset_image(&mut image)?;
        let device = platform.allocate(layout.bytes())?;
        // SAFETY: the buffer was allocated with this layout, is used by nobody else, and is released below.
        let stamper = unsafe { PhaseStamper::new(device.0 as *mut u8, layout.threads(), 0) };
        let counter = || platform.counter().unwrap_or(0);
        let slot = TaskSlot::new(3)?;
        let name = "simpler_run.runner_run.device_wall.graph_build";
        let event =
            SpanEvent { name, inv: 1, hid: 1, depth: 3, ts: 1_000, dur: 25_000_000, attrs: "clk=dev" };

        log::set_threshold(Threshold::NUL);
        let muted_span_ns = unit(|_| drop(span!("bench.span")));
        log::set_threshold(Threshold::TIMING);
        let units = Self {
            muted_span_ns,
            span_ns: unit(|_| drop(span!("bench.span"))),
            emit_ns: unit(|_| log::emit_spans([event; EMITTED])) / EMITTED as f64,
            anchor_ns: unit(|_| {
                if let Some(anchor) = take_clock_anchor(platform, 1) {
                    log::log(LogLevel::Timing, "bench.anchor", None, format_args!("{anchor}"));
                }
            }),
            counter_ns: unit(|_| {
                std::hint::black_box(counter());
            }),
            stamp_ns: unit(|_| drop(stamper.scope(Phase::GraphBuild, counter))),
            slot_ns: unit(|_| {
                stamper.task_dispatched(slot, counter());
                stamper.task_finished(slot, counter());
            }),
            transfers_ns: transfers(platform, device, &image, layout.tail_offset()),
            tail_ns: transfers(platform, device, &[], layout.bytes() - layout.tail_offset()),
            record_ns: record(counter)?,
        };
        platform.release(device)?;
        Ok(units)
    }
}

fn unit(mut call: impl FnMut(usize)) -> f64 {
    let mut times: Vec<f64> = (0..REPETITIONS)
        .map(|_| {
            // The queue is empty again, or what is emitted next would be dropped, which costs less.
            let _ = log::flush(FLUSH);
            each_ns(CALLS, &mut call)
        })
        .collect();
    median(&mut times)
}

/// A record of a pool that is drained meanwhile.
fn record(counter: impl Fn() -> u64) -> Result<f64, Failure> {
    let layout = SwimlaneLayout::new(Level::OrchestratorPhases, 1, 1, Capacities::default());
    let mut memory = vec![[0_u64; 8]; layout.bytes() / 64 + 1];
    let base = memory.as_mut_ptr().cast::<u8>();
    let base = base.wrapping_add(base.align_offset(64));
    // SAFETY: the memory has the layout's size and alignment, and nothing but collector and writer uses it.
    let collector = unsafe { Collector::start(base, layout) }?;
    let gate = collector.gate(0, BACKSTOP);
    // SAFETY: as above, and nobody else is thread 0.
    let track = unsafe { ThreadTrack::new(base, layout, 0, &gate) };
    // SAFETY: the only writer of this pool.
    let writer = unsafe { track.thread_writer::<OrchPhase>() }.ok_or("the level records no submits")?;
    let ns = unit(|number| {
        let start = counter();
        let task_id = number as u64;
        writer.append(OrchPhase { start, end: counter(), task_id, ..OrchPhase::default() });
    });
    drop(collector.finish());
    Ok(ns)
}

/// A copy there of `image` and back of `bytes` bytes.
fn transfers(platform: &dyn Platform, device: DeviceAddr, image: &[u8], bytes: usize) -> f64 {
    let mut back = vec![0; bytes];
    unit(|_| {
        // The range was allocated, so neither is refused.
        let _ = platform.copy_to_device(device, image);
        let _ = platform.copy_to_host(&mut back, device);
    })
}

fn percent(share: f64) -> serde_json::Value {
    json!((share * 100.0 * 10_000.0).round() / 10_000.0)
}

fn tenths(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}
