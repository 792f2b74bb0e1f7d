//! Host and device on one time line: both clocks are read around known events, and the place that a reader of the log
//! gives such an event must be as near to its true time as the reader says.
//!
//! The simulated counter has an offset and a rate error of its own, so none of this holds by chance.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use simpler_host_log::{self as log, Threshold};
use simpler_kernel_compiler::{CallableSource, Compiler, SourceFile};
use simpler_platform::{Aicpu, AicpuProgram, Platform, Profile};
use simpler_runtime::{
    CallableImage, ChipRuntime, Limits, RingLimits, RunArgs, RuntimeConfig, take_clock_anchor,
};
use simpler_sim_npu::{SimNpu, SimOptions};
use simpler_trace_ingest::{Source, read};
use simpler_trace_model::{Span, Stage, Trace};

/// Runs of which all but one in a hundred must be placed well.
const RUNS: usize = 100;
const GOOD_RUNS_MIN: usize = 99;
/// How wide a printed bound may be, besides a tick.
const BOUND_NS_MAX: i64 = 2_000;
/// How long the device works, so that 50 ppm are several times the bound, and how many events it stamps meanwhile.
const RUN_TIME: Duration = Duration::from_millis(4);
const EVENTS: usize = 20;

/// A device's cycle, and the host's clock before and after it was read.
#[derive(Clone, Copy)]
struct Event {
    before_ns: i64,
    cycle: u64,
    after_ns: i64,
}

/// Stamps events on one AICPU thread.
struct Stamps(Mutex<Vec<Event>>);

impl AicpuProgram for Stamps {
    fn execute(&self, aicpu: &dyn Aicpu) -> i32 {
        let mut events = self.0.lock().unwrap();
        if !events.is_empty() {
            return 0;
        }
        let started = Instant::now();
        for part in 1..=EVENTS as u32 {
            while started.elapsed() < RUN_TIME * part / EVENTS as u32 {
                std::hint::spin_loop();
            }
            // The narrowest of three brackets: who loses the processor inside one knows no time.
            let event = |_| {
                let before_ns = log::monotonic_ns();
                let cycle = aicpu.cycles();
                Event { before_ns, cycle, after_ns: log::monotonic_ns() }
            };
            events.extend((0..3).map(event).min_by_key(|event| event.after_ns - event.before_ns));
        }
        0
    }
}

/// A launch, and its log: what a run would emit of its clocks, and each event as a device span without length.
fn launch(chip: &SimNpu, inv: u64) -> (String, Vec<Event>) {
    let program = Arc::new(Stamps(Mutex::new(Vec::new())));
    let first = take_clock_anchor(chip, inv).unwrap();
    assert_eq!(chip.launch(program.clone()).unwrap().wait(), 0);
    let last = take_clock_anchor(chip, inv).unwrap();
    let events = std::mem::take(&mut *program.0.lock().unwrap());
    let mut text = String::new();
    let pid = std::process::id();
    for anchor in [first, last] {
        writeln!(text, "[mono_ns={}][T0x1][TIMING] clock.anchor: {anchor}", anchor.host_ns).unwrap();
    }
    let hz = chip.profile().counter_hz;
    let origin = events[0].cycle;
    let mut span = |depth: u32, name: &str, ts: i64, dur: i64, attrs: &str| {
        let head = format!("[mono_ns={}][T0x1][TIMING] emit_host_span: [STRACE] v=1", last.host_ns);
        writeln!(
            text,
            "{head} pid={pid} tid=1 inv={inv} hid=a depth={depth} name=simpler_run{name} ts={ts} dur={dur} {attrs}"
        )
        .unwrap();
    };
    span(2, ".runner_run.device_wall", 0, 1, &format!("clk=dev org_cyc={origin}"));
    for (index, event) in events.iter().enumerate() {
        let ts = u128::from(event.cycle - origin) * 1_000_000_000 / u128::from(hz);
        let name = format!(".runner_run.device_wall.event_{index}");
        span(3, &name, ts as i64, 0, "clk=dev");
    }
    span(0, "", first.host_ns - 1_000, last.host_ns - first.host_ns + 2_000, "");
    (text, events)
}

fn read_text(text: &str) -> Trace {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    read(&[Source::path(file.path())]).unwrap().trace
}

#[test]
fn events_of_the_device_are_placed_within_the_printed_bound() {
    for (profile, ppm) in
        [(Profile::a2a3sim(), 50), (Profile::a2a3sim(), -50), (Profile::a5sim(), 50), (Profile::a5sim(), -50)]
    {
        let options = SimOptions {
            counter_offset: Some(0x1234_5678_9abc),
            counter_rate_error_ppm: Some(ppm),
            ..SimOptions::default()
        };
        let tick_ns = 1_000_000_000_i64.div_euclid(profile.counter_hz as i64);
        let chip = SimNpu::new(profile, options).unwrap();
        let (mut good, mut widest, mut worst) = (0, 0, 0);
        for inv in 1..=RUNS as u64 {
            let (text, events) = launch(&chip, inv);
            let trace = read_text(&text);
            let invocation = &trace.invocations()[0];
            let alignment = trace.alignment(invocation).expect("there are anchors");
            let placed_well = events.iter().enumerate().all(|(index, event)| {
                let leaf = format!("event_{index}");
                let span = trace.spans().iter().find(|span| trace.name(span).leaf() == leaf).unwrap();
                let placed = alignment.place(&trace, span);
                let wrong = (event.before_ns - placed.start_ns).max(placed.start_ns - event.after_ns).max(0);
                (widest, worst) = (widest.max(placed.error_ns), worst.max(wrong));
                wrong <= placed.error_ns && placed.error_ns <= BOUND_NS_MAX + tick_ns
            });
            good += usize::from(placed_well);
        }
        eprintln!(
            "{} {ppm:+} ppm: {good} of {RUNS} runs; bounds up to {widest} ns, beyond its bracket by up to {worst} ns",
            chip.profile().name
        );
        assert!(good >= GOOD_RUNS_MIN, "{} {ppm} ppm: {good} of {RUNS}", chip.profile().name);
    }
}

/// Says when it begins and when it ends, in records of the host's clock.
const ORCHESTRATION: &str = r#"
#include <simpler/orchestration.h>
int aicpu_orchestration_entry(const SimplerOrchestrationApi *api, SimplerRun *run, const SimplerChipArgs *args) {
    (void)args;
    api->log(run, 25, "orchestration", "begins");
    api->log(run, 25, "orchestration", "ends");
    return 0;
}
"#;

#[test]
fn the_windows_of_a_run_hold_what_the_host_saw_in_them() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("log");
    std::fs::create_dir(&directory).unwrap();
    log::init(&log::Config {
        threshold: Threshold::TIMING,
        directory: Some(&directory),
        defer_writer: false,
    })
    .unwrap();
    let source = CallableSource {
        name: "says".to_owned(),
        orchestration: SourceFile::new("says.c", ORCHESTRATION.to_owned()),
        kernels: Vec::new(),
        headers: Vec::new(),
    };
    let objects = Compiler::new(folder.path().join("objects")).unwrap().compile(&source).unwrap();
    let image = CallableImage::load(&objects).unwrap();
    for profile in [Profile::a2a3sim(), Profile::a5sim()] {
        let chip = SimNpu::new(profile, SimOptions::default()).unwrap();
        let limits = Limits::each(RingLimits { window: 4, heap_bytes: 1024, argument_bytes: 1024, edges: 4 });
        let runtime = ChipRuntime::new(chip, RuntimeConfig { limits, ..RuntimeConfig::default() }).unwrap();
        let id = runtime.register(&image).unwrap();
        for _ in 0..RUNS {
            // SAFETY: there are no tensors, and the callable is this test's.
            unsafe { runtime.run(id, &RunArgs::default()) }.unwrap();
        }
    }
    log::close(Duration::from_secs(10));

    let file = directory.join(format!("host.{}.log", std::process::id()));
    let text = std::fs::read_to_string(&file).unwrap();
    let said = |word: &str| -> Vec<i64> {
        let of = |line: &str| line.strip_prefix("[mono_ns=")?.split_once(']')?.0.parse().ok();
        let word = format!("orchestration: {word}");
        text.lines().filter(|line| line.contains(&word)).filter_map(of).collect()
    };
    let (begins, ends) = (said("begins"), said("ends"));
    let trace = read(&[Source::path(&file)]).unwrap().trace;
    assert_eq!((begins.len(), ends.len(), trace.invocations().len()), (2 * RUNS, 2 * RUNS, 2 * RUNS));
    let mut good = 0;
    for ((invocation, begins), ends) in trace.invocations().iter().zip(begins).zip(ends) {
        let alignment = trace.alignment(invocation).expect("a run has anchors");
        let place = |stage| {
            let span: &Span = invocation.stage(&trace, stage).unwrap();
            alignment.place(&trace, span)
        };
        let (wall, orch) = (place(Stage::DeviceWall), place(Stage::Orch));
        let wait = invocation.stage(&trace, Stage::RunnerRun).unwrap();
        // Records are stamped by the processor's counter, converted with some tens of ns of error.
        let slack = orch.error_ns + 1_000;
        let inside = orch.start_ns <= begins + slack && ends <= orch.end_ns + slack;
        let within = wait.ts <= wall.start_ns + slack && wall.end_ns <= wait.end() + slack;
        assert!(inside && within, "{wait:?} {wall:?} {orch:?} {begins} {ends}");
        good += usize::from(orch.error_ns <= BOUND_NS_MAX + 20);
    }
    assert!(good >= 2 * GOOD_RUNS_MIN, "{good} of {} bounds are narrow", 2 * RUNS);
}
