//! `tracing` with `tracing-appender`: the `fmt` layer with a line per closed span, through the non-blocking writer.
//!
//! Defaults throughout: the layer's time stamp, a queue of 128,000 lines. The writer thread gets a buffered file,
//! which it flushes whenever its queue is empty; `rolling::never`, the usual choice, makes a system call per line.

use std::path::Path;

use ::tracing::info_span;
use simpler_benches::{Latency, each_ns};
use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::fmt::format::FmtSpan;

use super::counted::{CountedFile, Lines};
use crate::Failure;
use crate::subject::Subject;

pub(super) struct Tracing {
    lines: Lines,
    emitted: u64,
    errors: ErrorCounter,
    _writer: WorkerGuard,
}

impl Tracing {
    pub(super) fn open(folder: &Path) -> Result<Tracing, Failure> {
        let (file, lines) = CountedFile::create(&folder.join("tracing.log"))?;
        let (writer, guard) = NonBlockingBuilder::default().finish(file);
        let errors = writer.error_counter();
        tracing_subscriber::fmt()
            .with_ansi(false)
            .with_span_events(FmtSpan::CLOSE)
            .with_writer(writer)
            .try_init()
            .map_err(|why| why.to_string())?;
        Ok(Tracing { lines, emitted: 0, errors, _writer: guard })
    }
}

impl Subject for Tracing {
    fn name(&self) -> &'static str {
        "tracing"
    }

    fn burst(&mut self, spans: usize) -> f64 {
        self.emitted += spans as u64;
        each_ns(spans, |_| {
            let _span = info_span!("simpler_run.bind").entered();
        })
    }

    fn singles(&mut self, spans: usize, latency: &mut Latency) {
        self.emitted += spans as u64;
        latency.time(spans, |_| {
            let _span = info_span!("simpler_run.bind").entered();
        });
    }

    fn settle(&mut self) -> Result<(), Failure> {
        self.lines.wait_for(self.emitted - self.lost())
    }

    fn lost(&self) -> u64 {
        self.errors.dropped_lines() as u64
    }
}
