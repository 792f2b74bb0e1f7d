//! `simpler._task_interface`: the crates as Python sees them.
//!
//! The extension is thin: it converts, and releases the GIL where a call waits. Behaviour is in the crates, policy in
//! the Python package beside it. Each module here adds its part to the one flat module:
//!
//! - `log`: the process's host log, which this module owns;
//! - `trace`: the spans of Python programs; `text` is how Python's text gets into records.
//!
//! Every function may be called from any thread that holds the GIL. Panics become `PanicException`; none is expected.

mod log;
mod text;
mod trace;

use pyo3::prelude::*;

/// The checksum of the stub that this module was built beside: what it is to the Python package. A package with another
/// stub says that the extension is stale.
const INTERFACE: &str = env!("SIMPLER_INTERFACE");

#[pymodule]
fn _task_interface(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("INTERFACE", INTERFACE)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    log::add(module)?;
    trace::add(module)?;
    // Who imports from here names what it imports.
    module.delattr("__all__")
}
