//! `fastrace`: local spans below a root, collected by its own thread with the default batching.
//!
//! Its spans are handed over in one piece when the root's scope ends, so that is part of a burst; of a single
//! span it is not. The reporter renders a line per span into a buffered file.

use std::io::Write;
use std::path::Path;

use ::fastrace::collector::{Config, Reporter, SpanContext, SpanRecord};
use ::fastrace::local::LocalSpan;
use ::fastrace::{Span, flush, set_reporter};
use simpler_benches::{Latency, each_ns};

use super::counted::{CountedFile, Lines};
use crate::Failure;
use crate::subject::Subject;

pub(super) struct Fastrace {
    lines: Lines,
    emitted: u64,
    lost: u64,
}

/// Writes a line per span.
struct LineReporter(CountedFile);

impl Reporter for LineReporter {
    fn report(&mut self, spans: Vec<SpanRecord>) {
        for span in spans {
            // A line that is lost shows in the count.
            let _ = self.0.write_all(
                format!(
                    "name={} trace={:032x} id={:016x} parent={:016x} ts={} dur={}\n",
                    span.name,
                    span.trace_id.0,
                    span.span_id.0,
                    span.parent_id.0,
                    span.begin_time_unix_ns,
                    span.duration_ns,
                )
                .as_bytes(),
            );
        }
        let _ = self.0.flush();
    }
}

impl Fastrace {
    pub(super) fn open(folder: &Path) -> Result<Fastrace, Failure> {
        let (file, lines) = CountedFile::create(&folder.join("fastrace.log"))?;
        set_reporter(LineReporter(file), Config::default());
        Ok(Fastrace { lines, emitted: 0, lost: 0 })
    }
}

impl Subject for Fastrace {
    fn name(&self) -> &'static str {
        "fastrace"
    }

    fn burst(&mut self, spans: usize) -> f64 {
        // The root is a line of its own.
        self.emitted += spans as u64 + 1;
        let start = std::time::Instant::now();
        {
            let root = Span::root("simpler_run", SpanContext::random());
            let _scope = root.set_local_parent();
            each_ns(spans, |_| {
                let _span = LocalSpan::enter_with_local_parent("simpler_run.bind");
            });
        }
        start.elapsed().as_nanos() as f64 / spans as f64
    }

    fn singles(&mut self, spans: usize, latency: &mut Latency) {
        self.emitted += spans as u64 + 1;
        let root = Span::root("simpler_run", SpanContext::random());
        let _scope = root.set_local_parent();
        latency.time(spans, |_| {
            let _span = LocalSpan::enter_with_local_parent("simpler_run.bind");
        });
    }

    fn settle(&mut self) -> Result<(), Failure> {
        flush();
        // Everything that was handed over is reported now; what is missing was dropped.
        self.lost = self.emitted.saturating_sub(self.lines.written());
        Ok(())
    }

    fn lost(&self) -> u64 {
        self.lost
    }
}
