//! This project's log: spans plain and with an attribute, text records, muted spans, the drain.

use std::cell::Cell;
use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use simpler_benches::{CpuTime, Latency, cpu_time, each_ns};
use simpler_host_log as log;
use simpler_log_abi::{DropReason, Threshold};

use crate::Failure;
use crate::subject::{SETTLE, Subject};

/// Calls per repetition where one call is too short to time.
const MUTED_CALLS: usize = 100_000;
/// Longer than the 20 ms that the writer rests on a timer before it sleeps.
const IDLE: Duration = Duration::from_millis(50);
/// The callable in whose invocation the spans stand.
pub(crate) const CALLABLE: u64 = 0x5eed;

/// The process's log; there is one.
pub(crate) struct HostLog {
    _own: (),
}

/// A burst, seen from the clock on the wall and from the CPU.
pub(crate) struct Burst {
    pub(crate) ns: f64,
    pub(crate) cpu_ns: f64,
}

impl HostLog {
    pub(crate) fn open(folder: &Path) -> Result<HostLog, Failure> {
        let config =
            log::Config { threshold: Threshold::TIMING, directory: Some(folder), defer_writer: false };
        log::init(&config)?;
        Ok(HostLog { _own: () })
    }

    pub(crate) fn close(self) {
        log::close(SETTLE);
    }

    pub(crate) fn burst_with_cpu(&mut self, spans: usize) -> Burst {
        let cpu = cpu_time(CpuTime::Thread);
        let ns = self.burst(spans);
        let cpu = cpu_time(CpuTime::Thread) - cpu;
        Burst { ns, cpu_ns: cpu.as_nanos() as f64 / spans as f64 }
    }

    /// Spans with one integer attribute.
    pub(crate) fn attributed_burst(&mut self, spans: usize) -> f64 {
        let _run = log::Invocation::begin("simpler_run", CALLABLE);
        each_ns(spans, |number| {
            let _span = log::span!("simpler_run.bind", ntensor = number);
        })
    }

    /// Formatted text records with three integers.
    pub(crate) fn text_burst(&mut self, records: usize) -> f64 {
        each_ns(records, |number| log::log_timing!("task {number} of {records} took {} pages", number * 7))
    }

    /// ns of one muted span with an attribute, the loop around it included.
    pub(crate) fn muted_ns(&mut self) -> f64 {
        let evaluated = Cell::new(0_usize);
        log::set_threshold(Threshold::WARN);
        let ns = each_ns(MUTED_CALLS, |number| {
            let attribute = || {
                evaluated.set(evaluated.get() + 1);
                black_box(number)
            };
            let _span = log::span!("simpler_run.bind", ntensor = attribute());
        });
        log::set_threshold(Threshold::TIMING);
        assert_eq!(evaluated.get(), 0, "a muted span evaluates no attribute");
        ns
    }

    /// ns of the first span after a pause in which the writer went to sleep: it makes the call that wakes it.
    pub(crate) fn span_after_idle_ns(&mut self) -> Result<f64, Failure> {
        self.settle()?;
        std::thread::park_timeout(IDLE);
        let _run = log::Invocation::begin("simpler_run", CALLABLE);
        Ok(each_ns(1, |_| {
            let _span = log::span!("simpler_run.bind");
        }))
    }

    /// Records a second from the first emitted to the last written, and the writer's CPU time for each.
    pub(crate) fn drain_with_cpu(&mut self, records: usize) -> Result<(f64, f64), Failure> {
        let writer = || log::diagnostics::writer_cpu_ns().ok_or("the writer's CPU time cannot be read");
        let before = writer()?;
        let start = Instant::now();
        self.burst(records);
        self.settle()?;
        let wall = start.elapsed();
        Ok((records as f64 / wall.as_secs_f64(), (writer()? - before) as f64 / records as f64))
    }
}

impl Subject for HostLog {
    fn name(&self) -> &'static str {
        "host log"
    }

    fn burst(&mut self, spans: usize) -> f64 {
        let _run = log::Invocation::begin("simpler_run", CALLABLE);
        span_burst(spans)
    }

    fn singles(&mut self, spans: usize, latency: &mut Latency) {
        let _run = log::Invocation::begin("simpler_run", CALLABLE);
        latency.time(spans, |_| {
            let _span = log::span!("simpler_run.bind");
        });
    }

    fn settle(&mut self) -> Result<(), Failure> {
        Ok(log::flush(SETTLE)?)
    }

    fn lost(&self) -> u64 {
        log::counts().dropped
    }

    fn why_lost(&self) -> String {
        let lost = DropReason::ALL.into_iter().zip(log::counts().by_reason).filter(|(_, count)| *count != 0);
        lost.map(|(reason, count)| format!(" {}={count}", reason.name())).collect()
    }
}

/// ns of one span out of a burst of them.
pub(crate) fn span_burst(spans: usize) -> f64 {
    each_ns(spans, |_| {
        let _span = log::span!("simpler_run.bind");
    })
}
