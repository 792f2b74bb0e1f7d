//! The crates' errors as exceptions of `simpler.errors`, with the native text.

use pyo3::prelude::*;
use simpler_kernel_compiler::CompileError as NativeCompileError;
use simpler_worker::{ChildId, RunError as NativeRunError, WorkerError as NativeWorkerError};

pyo3::import_exception!(simpler.errors, ArgumentError);
pyo3::import_exception!(simpler.errors, BusyError);
pyo3::import_exception!(simpler.errors, ChildLostError);
pyo3::import_exception!(simpler.errors, ClosedError);
pyo3::import_exception!(simpler.errors, CompileError);
pyo3::import_exception!(simpler.errors, InitError);
pyo3::import_exception!(simpler.errors, ModelError);
pyo3::import_exception!(simpler.errors, RunError);
pyo3::import_exception!(simpler.errors, UnsupportedError);
pyo3::import_exception!(simpler.errors, WorkerError);

/// A worker's error.
pub(crate) fn of_worker(error: NativeWorkerError) -> PyErr {
    use NativeWorkerError as Native;
    let text = error.to_string();
    match error {
        Native::Child { child, code, what, .. } => RunError::new_err((text, code, name(child), what)),
        Native::ChildGone { child, pid, .. } => ChildLostError::new_err((text, name(child), pid)),
        Native::Init { .. } | Native::InitTimeout { .. } => InitError::new_err(text),
        Native::Arguments(_) => ArgumentError::new_err(text),
        Native::Busy { .. } => BusyError::new_err(text),
        Native::Closed => ClosedError::new_err(text),
        _ => WorkerError::new_err(text),
    }
}

/// What the chip in this process reports of `what`.
pub(crate) fn of_chip(what: &'static str, error: NativeRunError) -> PyErr {
    let NativeRunError { code, text } = error;
    let (child, pid) = (ChildId::Chip(0), std::process::id() as i32);
    of_worker(NativeWorkerError::Child { child, pid, what, code, text })
}

/// A compilation's error, which may hold several lines of the compiler's.
pub(crate) fn of_compiler(error: &NativeCompileError) -> PyErr {
    CompileError::new_err(error.to_string())
}

/// The decoder's error.
pub(crate) fn of_model(error: &simpler_decoder::Error) -> PyErr {
    ModelError::new_err(error.to_string())
}

/// `chip 0`, and so on.
fn name(child: ChildId) -> String {
    child.to_string()
}
