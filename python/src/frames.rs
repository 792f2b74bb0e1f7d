//! A log as a table that data frames and SQL engines take without a copy, by the Arrow PyCapsule interface.
//!
//! The log is read once; each consumer gets a stream of batches that are made as it asks for them, on its own thread and
//! without the GIL.

use std::ffi::CStr;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_schema::ffi::FFI_ArrowSchema;
use pyo3::exceptions::{PyFileNotFoundError, PyOSError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule, PyDict};
use simpler_log_abi::DropReason;
use simpler_trace_export::span_table::SpanTable;
use simpler_trace_ingest::{Complaints, ErrorKind, Keep, Options, Reader, Reading, Source, read_with};
use simpler_trace_model::warnings;

use crate::interrupt::Raised;

/// Adds this part to the module.
pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Log>()?;
    module.add_function(wrap_pyfunction!(_read_log, module)?)
}

/// The names that the PyCapsule interface gives its capsules.
const STREAM: &CStr = c"arrow_array_stream";
const SCHEMA: &CStr = c"arrow_schema";

/// What was read of a log.
#[pyclass(frozen, name = "_Log", module = "simpler._task_interface")]
pub(crate) struct Log {
    table: Arc<SpanTable>,
    complaints: Complaints,
    bytes: u64,
}

#[pymethods]
impl Log {
    /// The spans as a stream of record batches. A schema that is asked for is not heeded, as the interface allows.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        let stream = FFI_ArrowArrayStream::new(Box::new(self.table.batches()));
        PyCapsule::new_with_value(py, stream, STREAM)
    }

    /// The columns.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(&*self.table.schema());
        let schema = schema.map_err(|error| PyValueError::new_err(error.to_string()))?;
        PyCapsule::new_with_value(py, schema, SCHEMA)
    }

    fn __len__(&self) -> usize {
        self.table.rows()
    }

    /// How many bytes were read, unpacked.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.bytes
    }

    /// What is known to be missing, damaged or cut, by what it is; without what is not.
    #[getter]
    fn losses<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let losses: Vec<_> =
            py.detach(|| self.table.trace().losses().filter(|(_, count)| *count > 0).collect());
        let found = PyDict::new(py);
        losses.into_iter().try_for_each(|(what, count)| found.set_item(what, count))?;
        Ok(found)
    }

    /// Records that their writers lost, by reason; the sum over all processes.
    #[getter]
    fn dropped<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let found = PyDict::new(py);
        for reason in DropReason::ALL {
            let of_life = |drops: simpler_trace_model::Drops| drops.by_reason[reason as usize];
            let lives = self.table.trace().lives().iter().filter_map(|life| life.drops);
            found.set_item(reason.name(), lives.map(of_life).fold(0_u64, u64::saturating_add))?;
        }
        Ok(found)
    }

    /// What was met in the bytes: span heads, complete ones, torn ones and so on.
    #[getter]
    fn counts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let counts = self.table.trace().counts();
        let found = PyDict::new(py);
        for (what, count) in [
            ("heads", counts.heads),
            ("spans", self.table.rows() as u64),
            ("torn", counts.torn),
            ("malformed", counts.malformed),
            ("unknown_version", counts.unknown_version),
            ("duplicates", counts.duplicates),
            ("unreadable", counts.unreadable),
        ] {
            found.set_item(what, count)?;
        }
        Ok(found)
    }

    /// What `simpler timing` would say before a number.
    #[getter]
    fn warnings(&self, py: Python<'_>) -> Vec<String> {
        py.detach(|| warnings(self.table.trace()).iter().map(ToString::to_string).collect())
    }

    /// The first complaints about the bytes, each with source, offset and reason.
    #[getter]
    fn complaints(&self) -> Vec<(String, u64, String)> {
        let complaint = |one: &simpler_trace_ingest::Complaint| {
            (one.source.to_string(), one.offset, one.reason.to_string())
        };
        self.complaints.first().iter().map(complaint).collect()
    }

    /// How many complaints there are in all.
    #[getter]
    fn complaints_total(&self) -> u64 {
        self.complaints.total()
    }
}

/// Reads logs as one: paths, or objects with `read`.
///
/// # Errors
/// `OSError` for what cannot be opened, `ValueError` for a directory without logs, whatever a `read` or a signal handler
/// raises.
#[pyfunction]
#[pyo3(signature = (class, sources, /))]
fn _read_log(
    py: Python<'_>,
    class: &Bound<'_, PyAny>,
    sources: Vec<Bound<'_, PyAny>>,
) -> PyResult<Py<PyAny>> {
    let raised = Raised::default();
    let sources = sources.iter().map(|one| source(one, &raised)).collect::<PyResult<Vec<Source>>>()?;
    let read = py.detach(|| {
        let interrupted = || raised.by_signal() || raised.is_set();
        let options = Options { keep: Keep::All, interrupted: Some(&interrupted), ..Options::default() };
        read_with(&sources, options)
            .map(|Reading { trace, complaints, bytes }| (SpanTable::new(Arc::new(trace)), complaints, bytes))
    });
    let (table, complaints, bytes) = match (read, raised.take()) {
        (_, Some(raised)) => return Err(raised),
        (Ok(read), None) => read,
        (Err(error), None) => return Err(exception(&error)),
    };
    let log = Bound::new(py, Log { table: Arc::new(table), complaints, bytes })?;
    Ok(class.call1((log,))?.unbind())
}

fn source(source: &Bound<'_, PyAny>, raised: &Raised) -> PyResult<Source> {
    if source.hasattr(intern!(source.py(), "read"))? {
        let name = source.getattr(intern!(source.py(), "name")).and_then(|name| name.extract::<String>());
        let stream = Stream { stream: source.clone().unbind(), raised: raised.clone() };
        return Ok(Source::Reader(Reader::new(name.as_deref().unwrap_or("a stream"), stream)));
    }
    let Ok(path) = source.extract::<PathBuf>() else {
        return Err(PyTypeError::new_err(format!("a log is a path or a binary stream, not {source:?}")));
    };
    Ok(Source::argument(&path))
}

fn exception(error: &simpler_trace_ingest::Error) -> PyErr {
    match error.kind() {
        ErrorKind::Open(cause) if cause.kind() == io::ErrorKind::NotFound => {
            PyFileNotFoundError::new_err(error.to_string())
        }
        ErrorKind::Open(_) => PyOSError::new_err(error.to_string()),
        _ => PyValueError::new_err(error.to_string()),
    }
}

/// A binary stream of Python's; the GIL is taken for each block. An `OSError` is a stream that cannot be read to its end;
/// any other exception ends the reading.
struct Stream {
    stream: Py<PyAny>,
    raised: Raised,
}

impl Stream {
    fn block<'py>(&self, py: Python<'py>, bytes: usize) -> PyResult<Bound<'py, PyBytes>> {
        let block = self.stream.bind(py).call_method1(intern!(py, "read"), (bytes,))?;
        let block = block.cast_into::<PyBytes>().map_err(|_| {
            PyTypeError::new_err("a stream to be read as a log gives bytes: open it in binary mode")
        })?;
        match block.as_bytes().len() {
            given if given <= bytes => Ok(block),
            given => {
                let text = format!("a stream gave {given} bytes where {bytes} were asked for");
                Err(PyValueError::new_err(text))
            }
        }
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        Python::attach(|py| match self.block(py, into.len()) {
            Ok(block) => {
                let block = block.as_bytes();
                into[..block.len()].copy_from_slice(block);
                Ok(block.len())
            }
            Err(error) => {
                let failed = io::Error::other(error.to_string());
                if !error.is_instance_of::<PyOSError>(py) {
                    self.raised.set(error);
                }
                Err(failed)
            }
        })
    }
}
