//! What a record costs the thread that emits it, what it costs the writer to drain it, and what others' cost.
//!
//! The floor F is what no design can avoid: reading the clock twice and copying 128 bytes into a ring. It is
//! measured before and after each repetition's spans, so that a slow minute of the machine slows both, and a
//! ratio is the middle of the repetitions' own ratios. The peers take part in the same repetitions, on the same
//! CPU, in bursts of the same size. The writers are left to the kernel: they start before the producer is pinned.
//!
//! `own` is this project's log, `peers` the others, `stalled` a producer whose pipe nobody reads.

mod floor;
mod kernels_clock;
mod own;
mod peers;
mod stalled;
mod subject;
mod table;
mod two_threads;

use std::path::Path;

use own::HostLog;
use simpler_benches::{Latency, Percentiles, median, median_ratio, pin_to_cpu};
use subject::{Subject, Tally, lossless, settled, undisturbed};

/// Spans in a burst; two threads' bursts together fit the queue of 4096 slots.
const BURST: usize = 1024;
/// Spans of a repetition that are timed alone.
const SINGLES: usize = 512;
/// Rounds of everything; each gives one value of each figure.
const REPETITIONS: usize = 300;
/// A repetition in so many also fills the queue and drains it.
const DRAIN_EVERY: usize = 3;
/// Spans of a drain: nearly the whole queue.
const FILL: usize = 4000;

type Failure = Box<dyn std::error::Error>;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|argument| argument == stalled::CHILD) {
        stalled::produce();
    }
    if arguments.first().is_some_and(|argument| argument == kernels_clock::CHILD) {
        if let Err(why) = kernels_clock::produce() {
            eprintln!("bench log, kernel's clock: {why}");
            std::process::exit(2);
        }
        return;
    }
    let folder = std::env::temp_dir().join(format!("simpler-bench-log.{}", std::process::id()));
    let measured = std::fs::create_dir_all(&folder).map_err(Failure::from).and_then(|()| measure(&folder));
    // The logs of a benchmark are of no further use; that they may stay behind is no error.
    let _ = std::fs::remove_dir_all(&folder);
    match measured {
        Ok(figures) if arguments.iter().any(|argument| argument == "--json") => {
            println!("{}", table::json(&figures));
        }
        Ok(figures) => print!("{}", table::text(&figures)),
        Err(why) => {
            eprintln!("bench log: {why}");
            std::process::exit(2);
        }
    }
}

/// Everything that is published.
#[derive(Debug, Default)]
struct Figures {
    floor_ns: f64,
    own: Cost,
    span_cpu_ns_burst: f64,
    span_attr_ns_burst: f64,
    ratio_burst: f64,
    ratio_attr_burst: f64,
    /// With the kernel's clock in place of the counter.
    ratio_burst_clock_gettime: f64,
    two_threads: Option<two_threads::TwoThreads>,
    text_record_ns_burst: f64,
    ratio_text_burst: f64,
    muted_span_ns: f64,
    span_after_idle_ns: f64,
    drain_cpu_ns_per_record: f64,
    peers: Vec<(&'static str, Cost)>,
    skipped: Vec<String>,
    stalled: stalled::Stalled,
    /// Of this log's measurements.
    tally: Tally,
    /// Records dropped in all of them; the figures are from those without.
    dropped: u64,
    file_system: String,
}

/// What a span costs in one library.
#[derive(Debug, Default)]
struct Cost {
    burst_ns: f64,
    single: Option<Percentiles>,
    singles: u64,
    drain_per_s: f64,
    lost: u64,
}

/// One library's values, a repetition each.
#[derive(Default)]
struct Series {
    bursts_ns: Vec<f64>,
    drains_per_s: Vec<f64>,
    singles: Latency,
}

impl Series {
    fn cost(mut self, lost: u64) -> Cost {
        Cost {
            burst_ns: median(&mut self.bursts_ns),
            single: Some(self.singles.percentiles()),
            singles: self.singles.calls(),
            drain_per_s: median(&mut self.drains_per_s),
            lost,
        }
    }
}

fn measure(folder: &Path) -> Result<Figures, Failure> {
    // What was written before, by a build for example, is not to be written while files are measured.
    // SAFETY: no preconditions.
    unsafe { libc::sync() };
    let mut host_log = HostLog::open(folder)?;
    let (mut peers, skipped) = peers::open(folder)?;
    let mut figures = Figures { skipped, file_system: table::file_system_of(folder), ..Figures::default() };
    // Threads and processes inherit the CPU of whom they come from: only the producers' own threads are pinned.
    pinned_to(0, || side_by_side(&mut host_log, &mut peers, &mut figures))?;
    figures.two_threads = two_threads::measure(&mut host_log, &mut figures.tally)?;
    figures.dropped = host_log.lost();
    figures.own.lost = figures.dropped;
    drop(peers);
    host_log.close();
    figures.ratio_burst_clock_gettime = kernels_clock::ratio_burst()?;
    figures.stalled = stalled::compare()?;
    Ok(figures)
}

/// Runs `work` in a thread of its own on one CPU.
fn pinned_to(cpu: usize, work: impl FnOnce() -> Result<(), Failure> + Send) -> Result<(), Failure> {
    let pinned = || {
        pin_to_cpu(cpu);
        work().map_err(|why| why.to_string())
    };
    let done = std::thread::scope(|scope| scope.spawn(pinned).join());
    Ok(done.map_err(|_| "a thread of the benchmark panicked")??)
}

/// All that one producer can show, the libraries in turn.
fn side_by_side(
    host_log: &mut HostLog,
    peers: &mut [Box<dyn Subject>],
    figures: &mut Figures,
) -> Result<(), Failure> {
    let mut own = Series::default();
    let mut others: Vec<Series> = peers.iter().map(|_| Series::default()).collect();
    let (mut floors, mut drain_cpus, mut cpus) = (Vec::new(), Vec::new(), Vec::new());
    let (mut attributed, mut texts, mut muted) = (Vec::new(), Vec::new(), Vec::new());
    let mut after_idle = Vec::new();
    let tally = &mut figures.tally;
    for repetition in 0..REPETITIONS {
        let is_draining = repetition % DRAIN_EVERY == 0;
        let before_ns = floor::burst_ns(BURST);
        let burst = undisturbed(host_log, tally, |log| log.burst_with_cpu(BURST))?;
        own.bursts_ns.push(burst.ns);
        cpus.push(burst.cpu_ns);
        attributed.push(undisturbed(host_log, tally, |log| log.attributed_burst(BURST))?);
        texts.push(undisturbed(host_log, tally, |log| log.text_burst(BURST))?);
        let after_ns = floor::burst_ns(BURST);
        floors.push(f64::midpoint(before_ns, after_ns));

        muted.push(host_log.muted_ns());
        after_idle.push(host_log.span_after_idle_ns()?);
        lossless(host_log, tally, |log| log.singles(SINGLES, &mut own.singles))?;
        if is_draining {
            let (per_s, cpu_ns) = lossless(host_log, tally, |log| log.drain_with_cpu(FILL))??;
            own.drains_per_s.push(per_s);
            drain_cpus.push(cpu_ns);
        }
        for (peer, series) in peers.iter_mut().zip(&mut others) {
            let mut peers_tally = Tally::default();
            series.bursts_ns.push(undisturbed(peer.as_mut(), &mut peers_tally, |peer| peer.burst(BURST))?);
            settled(peer.as_mut(), |peer| peer.singles(SINGLES, &mut series.singles))?;
            if is_draining {
                series.drains_per_s.push(peer.drain(FILL)?);
            }
        }
    }
    figures.ratio_burst = median_ratio(&own.bursts_ns, &floors);
    figures.ratio_attr_burst = median_ratio(&attributed, &floors);
    figures.ratio_text_burst = median_ratio(&texts, &floors);
    figures.floor_ns = median(&mut floors);
    figures.span_cpu_ns_burst = median(&mut cpus);
    figures.span_attr_ns_burst = median(&mut attributed);
    figures.text_record_ns_burst = median(&mut texts);
    figures.muted_span_ns = median(&mut muted);
    figures.span_after_idle_ns = median(&mut after_idle);
    figures.drain_cpu_ns_per_record = median(&mut drain_cpus);
    figures.own = own.cost(0);
    let costs = peers.iter().zip(others).map(|(peer, series)| (peer.name(), series.cost(peer.lost())));
    figures.peers = costs.collect();
    Ok(())
}
