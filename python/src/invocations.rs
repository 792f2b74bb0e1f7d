//! Invocations as Python sees them, and what is computed of them: each time as of a log that holds these spans.

use std::collections::BTreeMap;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyFrozenSet, PyList, PyString};
use simpler_record_format::parse_hex;
use simpler_trace_export::host_phase_records::HostPhaseFile;
use simpler_trace_export::{chrome, swimlane, text};
use simpler_trace_model::{
    Admission, HostPhases, PhaseSource, Round, RunIdentity, Stage, Trace, TraceBuilder, stage,
};

use crate::spans::{ClockAnchor, Span, is_grouped, spans_of};

/// Adds this part to the module.
pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Invocation>()?;
    module.add_class::<NativeRun>()?;
    module.add_function(wrap_pyfunction!(group_invocations, module)?)?;
    module.add_function(wrap_pyfunction!(round_metrics, module)?)?;
    module.add_function(wrap_pyfunction!(callable_table, module)?)?;
    module.add_function(wrap_pyfunction!(rounds_table, module)?)?;
    module.add_function(wrap_pyfunction!(call_trees, module)?)?;
    module.add_function(wrap_pyfunction!(chrome_trace, module)?)?;
    module.add_function(wrap_pyfunction!(host_swimlane, module)?)?;
    module.add_function(wrap_pyfunction!(host_record_spans, module)?)?;
    module.add_function(wrap_pyfunction!(native_overlap, module)?)
}

/// All spans of one call: of one (pid, inv).
#[pyclass(get_all, set_all, module = "simpler_setup.tools.strace_timing")]
pub(crate) struct Invocation {
    /// The process.
    pid: u64,
    /// The invocation number as logged.
    inv: u64,
    /// The callable's identity in hexadecimal: the root's, or the first record's where the root is lost.
    hid: Py<PyString>,
    /// Its spans, in the order of their records.
    spans: Py<PyList>,
}

impl Invocation {
    fn spans_of<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, Span>>> {
        spans_of(self.spans.bind(py))
    }
}

#[pymethods]
impl Invocation {
    #[new]
    #[pyo3(signature = (pid, inv, hid, spans = None))]
    fn new(py: Python<'_>, pid: u64, inv: u64, hid: Py<PyString>, spans: Option<Py<PyList>>) -> Invocation {
        Invocation { pid, inv, hid, spans: spans.unwrap_or_else(|| PyList::empty(py).unbind()) }
    }

    /// The span of depth 0, or None if it was lost. A run's own root goes before any other one.
    fn root<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, Span>>> {
        let mut root: Option<Bound<'py, Span>> = None;
        for span in self.spans_of(py)?.into_iter().filter(|span| span.get().depth() == 0) {
            if stage(span.get().name().bind(py).to_str()?) == Some(Stage::Root) {
                return Ok(Some(span));
            }
            root.get_or_insert(span);
        }
        Ok(root)
    }

    /// By name, the span of that name that starts first.
    fn by_name<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let names = PyDict::new(py);
        for span in self.spans_of(py)? {
            let name = span.get().name();
            let held = names.get_item(name)?;
            let earlier = match &held {
                Some(held) => span.get().ts() < held.cast::<Span>()?.get().ts(),
                None => true,
            };
            if earlier {
                names.set_item(name, &span)?;
            }
        }
        Ok(names)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let (hid, spans) = (self.hid.bind(py).repr()?, self.spans.bind(py).len());
        Ok(format!("Invocation(pid={}, inv={}, hid={hid}, spans=[{spans} spans])", self.pid, self.inv))
    }
}

/// A trace of spans, and which of them each of the trace's is: a record that came before is left out.
fn trace_of(
    py: Python<'_>,
    spans: &[Bound<'_, Span>],
    anchors: &[PyRef<'_, ClockAnchor>],
) -> (Trace, Vec<usize>) {
    let mut builder = TraceBuilder::new();
    for anchor in anchors {
        builder.anchor((&**anchor).into());
    }
    let mut kept = Vec::with_capacity(spans.len());
    for (index, span) in spans.iter().enumerate() {
        let span = span.get();
        if builder.span(&span.record(py), span.made_ns()) != Admission::Duplicate {
            kept.push(index);
        }
    }
    (py.detach(|| builder.finish()), kept)
}

/// The spans of all invocations of an iterable.
fn spans_of_invocations<'py>(invocations: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, Span>>> {
    let mut all = Vec::new();
    for invocation in invocations.try_iter()? {
        let invocation = invocation?;
        let invocation = invocation
            .cast::<Invocation>()
            .map_err(|_| PyTypeError::new_err("invocations are those of group_invocations"))?;
        all.extend(invocation.borrow().spans_of(invocation.py())?);
    }
    Ok(all)
}

fn trace_of_invocations(invocations: &Bound<'_, PyAny>) -> PyResult<Trace> {
    let spans = spans_of_invocations(invocations)?;
    Ok(trace_of(invocations.py(), &spans, &[]).0)
}

/// The invocations of spans, by pid and inv.
///
/// Where a process has used a number again, roots that do not overlap in time tell its invocations apart. Spans of
/// schedulers and of foreign producers are not of a run: those of one (pid, inv) are a group of their own.
#[pyfunction]
fn group_invocations<'py>(spans: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, Invocation>>> {
    let py = spans.py();
    let spans = spans_of(spans)?;
    let (trace, kept) = trace_of(py, &spans, &[]);
    let mut groups: Vec<((u64, u64), Invocation)> = Vec::new();
    for invocation in trace.invocations() {
        let members = trace.span_indices(invocation).iter().map(|&index| &spans[kept[index as usize]]);
        let list = PyList::new(py, members.collect::<Vec<_>>())?.unbind();
        let (pid, inv) = (trace.life_of(invocation).pid, invocation.inv);
        let hid = PyString::new(py, &format!("{:x}", invocation.hid)).unbind();
        groups.push(((pid, inv), Invocation { pid, inv, hid, spans: list }));
    }
    let mut beside: BTreeMap<(u64, u64), Vec<&Bound<'_, Span>>> = BTreeMap::new();
    for span in kept.iter().map(|&index| &spans[index]).filter(|span| !is_grouped(span.get())) {
        beside.entry((span.get().pid(), span.get().inv())).or_default().push(span);
    }
    for ((pid, inv), members) in beside {
        let hid = members[0].get().hid_text().clone_ref(py);
        let list = PyList::new(py, members)?.unbind();
        groups.push(((pid, inv), Invocation { pid, inv, hid, spans: list }));
    }
    // Stable: runs go before what is beside them.
    groups.sort_by_key(|(key, _)| *key);
    groups.into_iter().map(|(_, group)| Bound::new(py, group)).collect()
}

/// What an invocation took, in us: host, device, effective, orchestrator, schedulers. What it does not hold is None.
#[pyfunction]
fn round_metrics(py: Python<'_>, invocation: PyRef<'_, Invocation>) -> PyResult<[Option<f64>; 5]> {
    let (trace, _) = trace_of(py, &invocation.spans_of(py)?, &[]);
    let us = |ns: Option<i64>| ns.map(|ns| ns as f64 / 1000.0);
    Ok(trace.invocations().first().map_or([None; 5], |invocation| {
        let Round { host_ns, device_ns, effective_ns, orch_ns, sched_ns } = trace.round(invocation);
        [host_ns, device_ns, effective_ns, orch_ns, sched_ns].map(us)
    }))
}

/// Text that a view prints.
fn printed(print: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>) -> PyResult<String> {
    let mut out = Vec::new();
    print(&mut out)?;
    Ok(String::from_utf8_lossy(&out).into_owned())
}

/// The callable table of invocations. `labels` are names for callables by hid.
#[pyfunction]
fn callable_table(invocations: &Bound<'_, PyAny>, labels: Vec<(String, String)>) -> PyResult<String> {
    let mut trace = trace_of_invocations(invocations)?;
    for (hid, label) in labels {
        let number = parse_hex(hid.as_bytes());
        let number = number.ok_or_else(|| PyValueError::new_err(format!("{hid:?} is no hid of a log")))?;
        trace.name_callable(number, label);
    }
    printed(|out| text::table(out, &trace.callables()))
}

/// The rounds table of the invocations' busiest callable; None if none of them is a run.
#[pyfunction]
fn rounds_table(invocations: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    let trace = trace_of_invocations(invocations)?;
    let rounds = trace.rounds(&trace.callables());
    rounds.map(|rounds| printed(|out| text::rounds(out, &rounds))).transpose()
}

/// The call trees of the invocations' callables.
#[pyfunction]
fn call_trees(invocations: &Bound<'_, PyAny>) -> PyResult<String> {
    let trace = trace_of_invocations(invocations)?;
    printed(|out| text::tree(out, &trace, &trace.callables()))
}

/// The Chrome trace of invocations, a process each, as JSON. Callables are called what they are in `whole`.
#[pyfunction]
fn chrome_trace<'py>(
    invocations: &Bound<'py, PyAny>,
    whole: Option<&Bound<'py, PyAny>>,
    anchors: Vec<PyRef<'py, ClockAnchor>>,
) -> PyResult<Bound<'py, PyBytes>> {
    let py = invocations.py();
    let (mut trace, _) = trace_of(py, &spans_of_invocations(invocations)?, &anchors);
    if let Some(whole) = whole {
        trace.call_as_in(&trace_of_invocations(whole)?);
    }
    let mut json = Vec::new();
    py.detach(|| chrome::write(&mut json, &trace, chrome::Lanes::Invocation))?;
    Ok(PyBytes::new(py, &json))
}

/// The swimlane picture of spans, as JSON.
#[pyfunction]
fn host_swimlane<'py>(
    spans: &Bound<'py, PyAny>,
    anchors: Vec<PyRef<'py, ClockAnchor>>,
) -> PyResult<Bound<'py, PyBytes>> {
    let py = spans.py();
    let (trace, _) = trace_of(py, &spans_of(spans)?, &anchors);
    let mut json = Vec::new();
    py.detach(|| swimlane::write(&mut json, &trace, &[], &HostPhases::default()))?;
    Ok(PyBytes::new(py, &json))
}

/// The phases of passes, a JSON object a line, as spans below the bind spans of `spans`; how many passes have none; and
/// by pid and inv the bindings of which a pass says the segments.
#[pyfunction]
fn host_record_spans<'py>(
    spans: &Bound<'py, PyAny>,
    passes: &[u8],
) -> PyResult<(Vec<Span>, usize, Bound<'py, PyFrozenSet>)> {
    let py = spans.py();
    let (trace, _) = trace_of(py, &spans_of(spans)?, &[]);
    let found = trace.host_phases(&HostPhaseFile::parse(passes).passes);
    let mut covered = Vec::new();
    let mut phases = Vec::with_capacity(found.phases.len());
    for phase in found.phases.iter().filter(|phase| phase.source == PhaseSource::Record) {
        let bind = &trace.spans()[phase.bind];
        let (pid, inv) = (trace.life(bind).pid, trace.inv(bind));
        // A segment lies directly below its bind span, a step of the orchestration deeper.
        if phase.depth == trace.depth(bind).saturating_add(1) {
            covered.push((pid, inv));
        }
        phases.push(Span::made(
            py,
            [pid, phase.tid, inv, trace.hid(bind)],
            phase.depth,
            &phase.name,
            phase.start_ns,
            phase.end_ns - phase.start_ns,
            &String::from_utf8_lossy(&phase.attrs),
            1,
            None,
        ));
    }
    Ok((phases, found.passes_unmatched, PyFrozenSet::new(py, covered)?))
}

/// Who a run is, by what its root says.
#[pyclass(frozen, eq, hash, module = "simpler_setup.tools.strace_timing")]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct NativeRun(RunIdentity);

#[pymethods]
impl NativeRun {
    /// Its process.
    #[getter]
    fn pid(&self) -> u64 {
        self.0.pid
    }

    /// Its invocation.
    #[getter]
    fn inv(&self) -> u64 {
        self.0.inv
    }

    /// `run_id`.
    #[getter]
    fn run_id(&self) -> i64 {
        self.0.run_id
    }

    /// `dispatch_id`; 0 if no scheduler gave one.
    #[getter]
    fn dispatch_id(&self) -> i64 {
        self.0.dispatch_id
    }

    /// `run_epoch`.
    #[getter]
    fn run_epoch(&self) -> i64 {
        self.0.run_epoch
    }

    /// `slot_id`.
    #[getter]
    fn slot_id(&self) -> i64 {
        self.0.slot_id
    }

    /// `generation`.
    #[getter]
    fn generation(&self) -> i64 {
        self.0.generation
    }

    /// Its place among the runs of its process: `dispatch_id`, or `run_epoch` where that is 0.
    #[getter]
    fn sequence(&self) -> i64 {
        self.0.sequence()
    }

    fn __repr__(&self) -> String {
        let RunIdentity { pid, inv, run_id, dispatch_id, run_epoch, slot_id, generation } = self.0;
        format!(
            "NativeRun(pid={pid}, inv={inv}, run_id={run_id}, dispatch_id={dispatch_id}, run_epoch={run_epoch}, \
             slot_id={slot_id}, generation={generation})"
        )
    }
}

/// The pairs of neighbouring runs, all of which were pipelined, and else why they were not.
#[pyfunction]
#[expect(clippy::type_complexity, reason = "what Python unpacks")]
fn native_overlap(
    spans: &Bound<'_, PyAny>,
    hidden: bool,
) -> PyResult<(Vec<(NativeRun, NativeRun)>, Option<String>)> {
    let (trace, _) = trace_of(spans.py(), &spans_of(spans)?, &[]);
    Ok(match trace.native_overlap(hidden) {
        Ok(pairs) => {
            (pairs.into_iter().map(|[first, second]| (NativeRun(first), NativeRun(second))).collect(), None)
        }
        Err(why) => (Vec::new(), Some(why.to_string())),
    })
}
