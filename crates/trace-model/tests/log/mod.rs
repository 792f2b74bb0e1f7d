//! A log for tests, span by span, without any text.

use simpler_record_format::{ClockAnchor, RawSpan, RecordEnd};
use simpler_trace_model::{Admission, Trace, TraceBuilder};

/// A span; what a test does not care about has a default.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    pub(crate) pid: u64,
    pub(crate) tid: u64,
    pub(crate) inv: u64,
    pub(crate) hid: u64,
    pub(crate) depth: u32,
    pub(crate) name: &'static str,
    pub(crate) ts: i64,
    pub(crate) dur: i64,
    pub(crate) attrs: &'static str,
    pub(crate) mono_ns: Option<i64>,
}

/// A host span of pid 41 whose record was made when it ended.
pub(crate) fn span(inv: u64, depth: u32, name: &'static str, ts: i64, dur: i64) -> Line {
    Line { pid: 41, tid: 41, inv, hid: 0xa, depth, name, ts, dur, attrs: "", mono_ns: ts.checked_add(dur) }
}

/// A device span of pid 41 whose record was made at `mono_ns`.
pub(crate) fn device(inv: u64, depth: u32, name: &'static str, ts: i64, dur: i64, mono_ns: i64) -> Line {
    Line { attrs: "clk=dev", mono_ns: Some(mono_ns), ..span(inv, depth, name, ts, dur) }
}

/// A run of 1000 ns, in the order in which a run emits: children as they end, device spans, the root.
#[allow(dead_code, reason = "not every test file needs a whole run")]
pub(crate) fn run(inv: u64, ts: i64) -> Vec<Line> {
    vec![
        span(inv, 1, "simpler_run.bind", ts + 10, 90),
        span(inv, 1, "simpler_run.runner_run", ts + 100, 800),
        device(inv, 2, "simpler_run.runner_run.device_wall", 0, 700, ts + 950),
        device(inv, 3, "simpler_run.runner_run.device_wall.orch", 100, 200, ts + 951),
        device(inv, 3, "simpler_run.runner_run.device_wall.sched", 150, 500, ts + 952),
        span(inv, 0, "simpler_run", ts, 1000),
    ]
}

pub(crate) fn add(builder: &mut TraceBuilder, line: &Line) -> Admission {
    let record = RawSpan {
        pid: line.pid,
        tid: line.tid,
        inv: line.inv,
        hid: line.hid,
        depth: line.depth,
        name: line.name.as_bytes(),
        ts: line.ts,
        dur: line.dur,
        attrs: line.attrs.as_bytes(),
        end: RecordEnd::Line,
    };
    builder.span(&record, line.mono_ns)
}

#[allow(dead_code, reason = "a test may build its trace by hand")]
pub(crate) fn trace<'a>(lines: impl IntoIterator<Item = &'a Line>) -> Trace {
    let mut builder = TraceBuilder::new();
    for line in lines {
        add(&mut builder, line);
    }
    builder.finish()
}

#[allow(dead_code, reason = "not every test file needs anchors")]
pub(crate) fn anchor(pid: u64, mono_ns: i64, wall_ns: i64) -> ClockAnchor {
    ClockAnchor { pid, mono_ns, wall_ns }
}
