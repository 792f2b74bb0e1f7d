//! The host log of this process.

use pyo3::prelude::*;

/// Adds this part to the module.
pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(_monotonic_now_ns, module)?)
}

/// The log's clock, CLOCK_MONOTONIC, in ns.
#[pyfunction]
fn _monotonic_now_ns() -> i64 {
    simpler_host_log::monotonic_ns()
}
