//! What a record costs the thread that emits it, and what it costs the writer to drain it.
//!
//! The floor F is what no design can avoid: reading the clock twice and copying 128 bytes into a ring. It is
//! measured in turn with the spans, so that a slow minute of the machine slows both.

use std::hint::black_box;
use std::path::Path;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use simpler_benches::{CpuTime, cpu_time, median, quantile};
use simpler_host_log as log;
use simpler_log_abi::Threshold;

/// Records in a burst; two threads' bursts together fit the queue of 4096 slots.
const BURST: usize = 1024;
/// Bursts per figure.
const REPETITIONS: usize = 300;
/// Longest wait for the writer between bursts.
const DRAIN: Duration = Duration::from_secs(10);
/// Calls per repetition where one call is too short to time.
const MUTED_CALLS: usize = 100_000;

fn main() {
    let json = std::env::args().any(|argument| argument == "--json");
    let folder = std::env::temp_dir().join(format!("simpler-bench-log.{}", std::process::id()));
    if let Err(why) =
        std::fs::create_dir_all(&folder).map_err(|why| why.to_string()).and_then(|()| bench(&folder, json))
    {
        eprintln!("bench log: {why}");
        std::process::exit(2);
    }
    // The log of a benchmark is of no further use; that it may stay behind is no error.
    let _ = std::fs::remove_dir_all(&folder);
}

fn bench(folder: &Path, json: bool) -> Result<(), String> {
    let config = log::Config { threshold: Threshold::TIMING, directory: Some(folder), defer_writer: false };
    log::init(&config).map_err(|why| why.to_string())?;
    let drained = || log::flush(DRAIN).map_err(|why| why.to_string());

    let (mut floors, mut spans, mut texts, mut singles) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..REPETITIONS {
        floors.push(floor_burst());
        spans.push(span_burst());
        drained()?;
        texts.push(text_burst());
        drained()?;
    }
    for _ in 0..REPETITIONS * 32 {
        singles.push(single_span());
    }
    drained()?;
    let floor_ns = median(&mut floors);
    let span_ns_burst = median(&mut spans);
    let two_threads_ns = two_threads(&drained)?;
    let (drain_records_per_s, drain_cpu_ns_per_record) = drain(&drained)?;

    log::set_threshold(Threshold::WARN);
    let mut muted: Vec<f64> = (0..REPETITIONS).map(|_| muted_burst()).collect();
    let mut empty: Vec<f64> = (0..REPETITIONS).map(|_| empty_burst()).collect();
    log::set_threshold(Threshold::TIMING);
    let counts = log::counts();
    log::close(DRAIN);

    let figures = [
        ("floor_ns", floor_ns),
        ("span_ns_p50", quantile(&mut singles, 0.5)),
        ("span_ns_p99", quantile(&mut singles, 0.99)),
        ("span_ns_burst", span_ns_burst),
        ("ratio_burst", span_ns_burst / floor_ns),
        ("ratio_2_threads", two_threads_ns / floor_ns),
        ("text_record_ns_burst", median(&mut texts)),
        ("muted_span_ns", (median(&mut muted) - median(&mut empty)).max(0.0)),
        ("drain_records_per_s", drain_records_per_s),
        ("drain_cpu_ns_per_record", drain_cpu_ns_per_record),
        ("dropped", counts.dropped as f64),
    ];
    if !json {
        for (name, value) in figures {
            println!("{name:<24} {value:>14.2}");
        }
        return Ok(());
    }
    let mut object = serde_json::Map::new();
    for (name, value) in figures {
        object.insert(name.to_owned(), serde_json::json!((value * 100.0).round() / 100.0));
    }
    object.insert("peers".to_owned(), serde_json::json!({}));
    println!("{}", serde_json::Value::Object(object));
    Ok(())
}

/// ns of one call out of `calls` timed together.
fn each(calls: usize, mut call: impl FnMut(usize)) -> f64 {
    let start = Instant::now();
    for number in 0..calls {
        call(number);
    }
    start.elapsed().as_nanos() as f64 / calls as f64
}

/// F: two clock reads and a 128-byte copy into a ring of the queue's size.
fn floor_burst() -> f64 {
    static mut RING: [[u8; 128]; 4096] = [[0; 128]; 4096];
    let mut record = [0_u8; 128];
    each(BURST, |number| {
        let start = log::monotonic_ns();
        let end = log::monotonic_ns();
        record[..8].copy_from_slice(&start.to_le_bytes());
        record[8..16].copy_from_slice(&end.to_le_bytes());
        let slot = (&raw mut RING).cast::<[u8; 128]>().wrapping_add(number % 4096);
        // SAFETY: the slot lies in RING, which only this function, called from one thread, touches.
        unsafe { slot.write_volatile(black_box(record)) };
    })
}

fn span_burst() -> f64 {
    each(BURST, |number| {
        let _span = log::span!("bench.burst", number = number);
    })
}

fn text_burst() -> f64 {
    each(BURST, |number| log::log_timing!("bench record {number} of {BURST}"))
}

/// One span alone, the clock's own cost taken out.
fn single_span() -> f64 {
    let before = Instant::now();
    let start = Instant::now();
    {
        let _span = log::span!("bench.single");
    }
    let end = Instant::now();
    (end - start).as_nanos() as f64 - (start - before).as_nanos() as f64
}

fn muted_burst() -> f64 {
    each(MUTED_CALLS, |number| {
        let _span = log::span!("bench.muted", number = black_box(number));
    })
}

fn empty_burst() -> f64 {
    each(MUTED_CALLS, |number| {
        black_box(number);
    })
}

/// ns per span and thread while two threads emit at once.
fn two_threads(drained: &dyn Fn() -> Result<(), String>) -> Result<f64, String> {
    let mut figures = Vec::new();
    for _ in 0..REPETITIONS / 3 {
        let barrier = Barrier::new(2);
        let burst = || {
            barrier.wait();
            span_burst()
        };
        let both = std::thread::scope(|scope| {
            let other = scope.spawn(burst);
            let own = burst();
            other.join().map(|others| f64::midpoint(own, others))
        });
        figures.push(both.map_err(|_| "a thread of the benchmark panicked".to_owned())?);
        drained()?;
    }
    Ok(median(&mut figures))
}

/// Records a second from the first emitted to the last written, and the writer's CPU time for each.
fn drain(drained: &dyn Fn() -> Result<(), String>) -> Result<(f64, f64), String> {
    /// Fills nearly the whole queue.
    const FILL: usize = 4000;
    let (mut rates, mut costs) = (Vec::new(), Vec::new());
    for _ in 0..REPETITIONS / 3 {
        let before = log::counts().dropped;
        let (process, thread) = (cpu_time(CpuTime::Process), cpu_time(CpuTime::Thread));
        let start = Instant::now();
        for number in 0..FILL {
            let _span = log::span!("bench.drain", number = number);
        }
        drained()?;
        let wall = start.elapsed();
        let writer =
            (cpu_time(CpuTime::Process) - process).saturating_sub(cpu_time(CpuTime::Thread) - thread);
        let written = FILL as f64 - (log::counts().dropped - before) as f64;
        rates.push(written / wall.as_secs_f64());
        costs.push(writer.as_nanos() as f64 / written);
    }
    Ok((median(&mut rates), median(&mut costs)))
}
