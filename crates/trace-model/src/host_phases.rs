//! What the host did while a run was bound, finer than the spans say.
//!
//! A runtime that builds the graph on the host may note each step of it beside the log, a *pass* for each binding, and
//! the segments of the binding as plain lines in it. Both have the host's clock, so nothing has to be converted; what
//! has to be found is the bind span that each belongs to. A pass says its process and invocation; where those occur
//! more than once, time decides. A line says neither, so it belongs to the bind span that contains it; of several, to
//! the one that ended first after the line was made, since a runtime writes the lines just before that.
//!
//! A *segment* is a part of the binding itself and lies directly below it; any other phase is a step of the
//! orchestration and lies below that.

use crate::build::Trace;
use crate::span::Span;
use crate::vocabulary::Stage;
use rustc_hash::{FxHashMap, FxHashSet};
use simpler_record_format::RawBindPhase;
use std::collections::BTreeSet;

/// The segments of a binding. They follow each other and make it up; whatever else a pass holds is a step of the
/// orchestration.
const SEGMENTS: [&str; 12] = [
    "args",
    "arena_build",
    "static_arena",
    "gm_heap",
    "shared_mem",
    "runtime_init",
    "host_orch",
    "graph_upload",
    "relocate",
    "sm_h2d",
    "arena_h2d",
    "host_view_close",
];

/// What a thread of its own records while the main one submits. `record_node` is an older word.
const RECORDED: [&str; 3] = ["record_in_graph_task", "record_node", "build_definition"];

/// One pass over a binding: what a runtime noted of it beside the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostPass {
    /// The process; `None` if the pass does not say.
    pub pid: Option<u64>,
    /// The invocation; `None` if the pass does not say.
    pub inv: Option<u64>,
    /// What was done, in any order.
    pub records: Vec<HostPhaseRecord>,
}

/// One thing that was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPhaseRecord {
    /// What.
    pub phase: Box<str>,
    /// Its start, `CLOCK_MONOTONIC` in ns.
    pub start_ns: i64,
    /// Its end, not before the start.
    pub end_ns: i64,
    /// The kernel's id of the thread that did it; `None` stands for the one that binds.
    pub tid: Option<u64>,
    /// A number that depends on the phase, such as bytes.
    pub detail: Option<i128>,
}

/// A segment of a binding that stands in the log in plain text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BindPhaseLine {
    start_ns: i64,
    dur_ns: i64,
    mono_ns: i64,
    phase: Box<str>,
    attrs: Box<[u8]>,
}

impl From<&RawBindPhase<'_>> for BindPhaseLine {
    fn from(raw: &RawBindPhase<'_>) -> BindPhaseLine {
        let RawBindPhase { mono_ns, phase, start_ns, dur_ns, attrs } = *raw;
        let phase = String::from_utf8_lossy(phase).into();
        BindPhaseLine { start_ns, dur_ns, mono_ns, phase, attrs: attrs.into() }
    }
}

/// Where a phase was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PhaseSource {
    /// In a pass beside the log.
    Record,
    /// In a plain line of the log.
    Line,
}

/// A phase of a binding on the host's axis, as if it were a span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPhase {
    /// Where in the trace's spans the bind span is.
    pub bind: usize,
    /// The whole name, below that of the bind span.
    pub name: String,
    /// The kernel's id of the thread that did it.
    pub tid: u64,
    /// Its depth, as a span's.
    pub depth: u32,
    /// Start, ns.
    pub start_ns: i64,
    /// End, ns.
    pub end_ns: i64,
    /// What is known of it, as the attributes of a span.
    pub attrs: Vec<u8>,
    /// Where it was found.
    pub source: PhaseSource,
}

/// The phases of all bindings of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostPhases {
    /// All that belong to a bind span, those of one together.
    pub phases: Vec<HostPhase>,
    /// Passes without a bind span of their process and invocation.
    pub passes_unmatched: usize,
    /// Plain lines that no bind span contains.
    pub lines_unmatched: usize,
}

impl HostPhases {
    /// What has to be said before the picture.
    pub fn warnings(&self) -> Vec<String> {
        let mut out = Vec::new();
        if self.passes_unmatched > 0 {
            out.push(format!(
                "warning: {} phase-record pass(es) had no matching chip.run.bind span (or simpler_run.bind) of the \
                 same pid and inv and are left out of the picture",
                self.passes_unmatched
            ));
        }
        if self.lines_unmatched > 0 {
            out.push(format!(
                "warning: {} bind phase line(s) lie in no chip.run.bind span (or simpler_run.bind) and are left out of \
                 the picture",
                self.lines_unmatched
            ));
        }
        out
    }
}

/// A stretch of time that is asked for the bind span around it.
#[derive(Clone, Copy)]
struct Asked {
    start: i64,
    end: i64,
    /// The bind span had not ended yet.
    made: i64,
    /// Who asks.
    by: usize,
}

impl Trace {
    /// The phases of the bindings: what `passes` say, and for the bindings of which they hold no segment the plain
    /// lines of the log.
    pub fn host_phases(&self, passes: &[HostPass]) -> HostPhases {
        let mut out = HostPhases::default();
        if passes.is_empty() && self.bind_phases.is_empty() {
            return out;
        }
        let is_bind = |span: &Span| self.name(span).stage == Some(Stage::Bind) && !self.is_device(span);
        let mut binds: Vec<usize> = (0..self.spans.len()).filter(|&at| is_bind(&self.spans[at])).collect();
        binds.sort_by_key(|&at| self.spans[at].ts);

        let mut covered: FxHashSet<usize> = FxHashSet::default();
        for (pass, bind) in passes.iter().zip(self.binds_of_passes(&binds, passes)) {
            let Some(bind) = bind else {
                out.passes_unmatched += 1;
                continue;
            };
            for record in &pass.records {
                if is_segment(&record.phase) {
                    covered.insert(bind);
                }
                out.phases.push(self.phase_of_record(bind, record));
            }
        }
        let asked = self.bind_phases.iter().enumerate().map(|(by, line)| {
            let end = line.start_ns.saturating_add(line.dur_ns);
            Asked { start: line.start_ns, end, made: line.mono_ns, by }
        });
        let mut around = vec![None; self.bind_phases.len()];
        self.enclosing(&binds, asked.collect(), &mut around);
        for (line, bind) in self.bind_phases.iter().zip(around) {
            match bind {
                None => out.lines_unmatched += 1,
                Some(bind) if covered.contains(&bind) => {}
                Some(bind) => out.phases.push(self.phase_of_line(bind, line)),
            }
        }
        // Stable: of one bind span, in the order of their source.
        out.phases.sort_by_key(|phase| phase.bind);
        out
    }

    /// The bind span of each pass: the only one of its process and invocation, else the one in whose time the pass
    /// begins.
    fn binds_of_passes(&self, binds: &[usize], passes: &[HostPass]) -> Vec<Option<usize>> {
        let mut by_key: FxHashMap<(u64, u64), (Vec<usize>, Vec<Asked>)> = FxHashMap::default();
        for (by, pass) in passes.iter().enumerate() {
            let (Some(pid), Some(inv)) = (pass.pid, pass.inv) else { continue };
            let start = pass.records.iter().map(|record| record.start_ns).min().unwrap_or(0);
            by_key.entry((pid, inv)).or_default().1.push(Asked { start, end: start, made: start, by });
        }
        for &bind in binds {
            let span = &self.spans[bind];
            if let Some((of_key, _)) = by_key.get_mut(&(self.life(span).pid, self.inv(span))) {
                of_key.push(bind);
            }
        }
        let mut found = vec![None; passes.len()];
        for (binds, asked) in by_key.into_values() {
            match binds[..] {
                [only] => asked.iter().for_each(|asked| found[asked.by] = Some(only)),
                _ => self.enclosing(&binds, asked, &mut found),
            }
        }
        found
    }

    /// The bind span around each stretch of time: of those that contain it the first to end once it was made, else the
    /// last of them to end. `binds` are in the order of their starts.
    fn enclosing(&self, binds: &[usize], mut asked: Vec<Asked>, found: &mut [Option<usize>]) {
        asked.sort_by_key(|asked| asked.start);
        // Those that have started, by end.
        let mut started: BTreeSet<(i64, usize)> = BTreeSet::new();
        let mut binds = binds.iter().peekable();
        for Asked { start, end, made, by } in asked {
            while let Some(&bind) = binds.next_if(|&&bind| self.spans[bind].ts <= start) {
                started.insert((self.spans[bind].end(), bind));
            }
            let first = started.range((end.max(made), 0)..).next();
            let last = || started.range((end, 0)..).next_back();
            found[by] = first.or_else(last).map(|&(_, bind)| bind);
        }
    }

    fn phase_of_record(&self, bind: usize, record: &HostPhaseRecord) -> HostPhase {
        let HostPhaseRecord { phase, start_ns, end_ns, tid, detail } = record;
        let span = &self.spans[bind];
        let main = self.tid(span);
        let said = tid.filter(|&tid| tid > 0).unwrap_or(main);
        let segment = is_segment(phase);
        let (tid, thread) = match &**phase {
            _ if segment => (main, "host_main"),
            phase if RECORDED.contains(&phase) && said != main => (said, "graph_record_worker"),
            "graph_submit" => (said, "graph_submit_main"),
            _ => (said, "host_main"),
        };
        let detail = detail.map(|detail| format!("detail={detail} ")).unwrap_or_default();
        HostPhase {
            bind,
            name: self.phase_name(bind, phase, segment),
            tid,
            depth: self.depth(span).saturating_add(if segment { 1 } else { 2 }),
            start_ns: *start_ns,
            end_ns: *end_ns,
            attrs: format!("{detail}src=host_phase_records host_phase_thread={thread}").into(),
            source: PhaseSource::Record,
        }
    }

    fn phase_of_line(&self, bind: usize, line: &BindPhaseLine) -> HostPhase {
        let span = &self.spans[bind];
        let mut attrs = line.attrs.to_vec();
        if !attrs.is_empty() {
            attrs.push(b' ');
        }
        attrs.extend_from_slice(b"src=bind_phase host_phase_thread=host_main");
        HostPhase {
            bind,
            name: self.phase_name(bind, &line.phase, true),
            tid: self.tid(span),
            depth: self.depth(span).saturating_add(1),
            start_ns: line.start_ns,
            end_ns: line.start_ns.saturating_add(line.dur_ns),
            attrs,
            source: PhaseSource::Line,
        }
    }

    fn phase_name(&self, bind: usize, phase: &str, segment: bool) -> String {
        let bind = &self.name(&self.spans[bind]).text;
        format!("{bind}{}.{phase}", if segment { "" } else { ".host_orch" })
    }
}

fn is_segment(phase: &str) -> bool {
    SEGMENTS.contains(&phase)
}
