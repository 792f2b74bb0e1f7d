//! The host log of this process, which this module owns: seeding, draining, counting, and records made by hand.
//!
//! A call that may wait lets other Python threads run meanwhile.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString};
use simpler_host_log::{self as host_log, Config, DropReason, ErrorKind, Level, SpanEvent, Threshold};

use crate::text::{RecordText, emitting};

/// Adds this part to the module.
pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(_initialize_host_log, module)?)?;
    module.add_function(wrap_pyfunction!(_start_host_log_writer, module)?)?;
    module.add_function(wrap_pyfunction!(_flush_host_log, module)?)?;
    module.add_function(wrap_pyfunction!(_prepare_host_log_to_fork, module)?)?;
    module.add_function(wrap_pyfunction!(_close_host_log, module)?)?;
    module.add_function(wrap_pyfunction!(_host_log_dropped_records, module)?)?;
    module.add_function(wrap_pyfunction!(_host_log_dropped_records_by_reason, module)?)?;
    module.add_function(wrap_pyfunction!(_host_log_pending_records, module)?)?;
    module.add_function(wrap_pyfunction!(_host_log_directory, module)?)?;
    module.add_function(wrap_pyfunction!(_set_host_log_directory, module)?)?;
    module.add_function(wrap_pyfunction!(_emit_host_log, module)?)?;
    module.add_function(wrap_pyfunction!(_emit_host_span, module)?)?;
    module.add_function(wrap_pyfunction!(_monotonic_now_ns, module)?)
}

/// Sets the process's log up with a threshold of the ladder, and starts its writer unless that is deferred. The logger
/// `simpler` becomes its client.
#[pyfunction]
#[pyo3(signature = (level, defer_writer = false))]
fn _initialize_host_log(py: Python<'_>, level: i64, defer_writer: bool) -> PyResult<()> {
    let Some(threshold) = i32::try_from(level).ok().and_then(Threshold::from_ladder) else {
        return Err(PyValueError::new_err(format!(
            "a threshold of the host log is 10, 20, 25, 30, 40 or 60, not {level}"
        )));
    };
    let config = Config { threshold, directory: None, defer_writer };
    py.detach(|| host_log::init(&config)).map_err(exception)?;
    // Policy, so it is Python's; called here, so that no way to seed leaves it out.
    py.import("simpler._log")?.call_method0("_become_a_client").map(drop)
}

/// Starts the writer of this process, unless it runs. Records are queued from then on.
#[pyfunction]
fn _start_host_log_writer(py: Python<'_>) -> PyResult<()> {
    py.detach(host_log::start_writer).map_err(exception)
}

/// Waits up to `ms` until every record that was accepted before is written or counted. Gives whether they are.
#[pyfunction]
#[pyo3(signature = (ms = 1000))]
fn _flush_host_log(py: Python<'_>, ms: i64) -> PyResult<bool> {
    /// Between two looks for a signal: a wait must not keep Ctrl-C off for longer.
    const SLICE: Duration = Duration::from_millis(50);

    let begin = Instant::now();
    let whole = milliseconds(ms);
    loop {
        let left = whole.saturating_sub(begin.elapsed());
        if py.detach(|| host_log::flush(left.min(SLICE))).is_ok() {
            return Ok(true);
        }
        if left <= SLICE {
            return Ok(false);
        }
        py.check_signals()?;
    }
}

/// Quiesces for up to `ms`: afterwards there is no writer, and the process may fork. When the time is over the writer
/// goes on as before, and the process must not fork: that is an exception.
#[pyfunction]
#[pyo3(signature = (ms = 1000))]
fn _prepare_host_log_to_fork(py: Python<'_>, ms: i64) -> PyResult<()> {
    py.detach(|| host_log::prepare_to_fork(milliseconds(ms)))
        .map_err(|timeout| PyRuntimeError::new_err(timeout.to_string()))
}

/// Quiesces for good, before the process ends. If the records do not reach their destination within `ms`, one warning
/// says how many.
#[pyfunction]
#[pyo3(signature = (ms = 1000))]
fn _close_host_log(py: Python<'_>, ms: i64) {
    py.detach(|| host_log::close(milliseconds(ms)));
}

/// How many records this process has lost.
#[pyfunction]
fn _host_log_dropped_records() -> u64 {
    host_log::counts().dropped
}

/// The lost records by reason; their sum is [`_host_log_dropped_records`].
#[pyfunction]
fn _host_log_dropped_records_by_reason(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let counts = host_log::counts();
    let by_reason = PyDict::new(py);
    for reason in DropReason::ALL {
        by_reason.set_item(reason.name(), counts.by_reason[reason as usize])?;
    }
    Ok(by_reason)
}

/// How many accepted records the writer has not finished.
#[pyfunction]
fn _host_log_pending_records() -> u64 {
    host_log::counts().pending
}

/// The directory of the log, empty while none is bound.
#[pyfunction]
fn _host_log_directory(py: Python<'_>) -> PyResult<Py<PyString>> {
    // The one that is bound stays, so it is made once: every forwarded record asks.
    // FORK: a child's directory is its parent's.
    static BOUND: PyOnceLock<Py<PyString>> = PyOnceLock::new();

    if let Some(directory) = BOUND.get(py) {
        return Ok(directory.clone_ref(py));
    }
    let Some(directory) = host_log::directory() else { return Ok(PyString::intern(py, "").unbind()) };
    let directory =
        BOUND.get_or_try_init(py, || Ok::<_, PyErr>(directory.as_os_str().into_pyobject(py)?.unbind()))?;
    Ok(directory.clone_ref(py))
}

/// Binds the log's directory, made if missing. The first one that is not empty wins. Gives whether this call bound it.
#[pyfunction]
fn _set_host_log_directory(py: Python<'_>, directory: Option<PathBuf>) -> PyResult<bool> {
    let Some(directory) = directory else { return Ok(false) };
    py.detach(|| host_log::set_directory(&directory)).map_err(exception)
}

/// Emits a text record at `level`, rounded down, made by the function `func`.
#[pyfunction]
fn _emit_host_log(
    py: Python<'_>,
    level: i64,
    func: &Bound<'_, PyString>,
    msg: &Bound<'_, PyString>,
) -> PyResult<()> {
    let level = Level::round_record(level.clamp(i32::MIN.into(), i32::MAX.into()) as i32);
    if host_log::enabled(level) {
        let (func, body) = (RecordText::of(func)?, RecordText::of(msg)?);
        emitting(py, || host_log::log(level, &func, None, format_args!("{}", &*body)));
    }
    Ok(())
}

/// Emits a span whose times, in ns, the caller has. Nothing is emitted while TIMING is muted, nor without a name.
#[pyfunction]
#[pyo3(
    signature = (name, invocation_id, callable_hash, depth, timestamp_ns, duration_ns, attributes = None),
    text_signature = "(name, invocation_id, callable_hash, depth, timestamp_ns, duration_ns, attributes='')"
)]
#[expect(clippy::too_many_arguments, reason = "the signature is the specification's")]
fn _emit_host_span(
    py: Python<'_>,
    name: &Bound<'_, PyString>,
    invocation_id: u64,
    callable_hash: u64,
    depth: i32,
    timestamp_ns: i64,
    duration_ns: i64,
    attributes: Option<&Bound<'_, PyString>>,
) -> PyResult<()> {
    if host_log::span_enabled() {
        let name = RecordText::of(name)?;
        let attributes = attributes.map(RecordText::of).transpose()?;
        let event = SpanEvent {
            name: &name,
            inv: invocation_id,
            hid: callable_hash,
            depth,
            ts: timestamp_ns,
            dur: duration_ns,
            attrs: attributes.as_deref().unwrap_or_default(),
        };
        emitting(py, || host_log::emit_span(&event));
    }
    Ok(())
}

/// The log's clock, `CLOCK_MONOTONIC`, in ns.
#[pyfunction]
fn _monotonic_now_ns() -> i64 {
    host_log::monotonic_ns()
}

fn milliseconds(ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

/// The exception of a failure, with its text and that of what caused it.
fn exception(error: host_log::Error) -> PyErr {
    let cause = std::error::Error::source(&error);
    let text = cause.map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"));
    let errno =
        cause.and_then(|cause| cause.downcast_ref::<std::io::Error>()).and_then(std::io::Error::raw_os_error);
    match (error.kind(), errno) {
        (ErrorKind::DirectoryPath, _) => PyValueError::new_err(text),
        (ErrorKind::Directory, Some(errno)) => PyOSError::new_err((errno, text)),
        (ErrorKind::Directory, None) => PyOSError::new_err(text),
        _ => PyRuntimeError::new_err(text),
    }
}
