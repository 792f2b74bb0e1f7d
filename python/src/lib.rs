//! `simpler._task_interface`: the crates as Python sees them.
//!
//! The extension is thin: it converts, and releases the GIL where a call waits. Behaviour is in the crates, policy in
//! the Python package beside it. Each module here adds its part to the one flat module:
//!
//! - `log`: the process's host log, which this module owns;
//! - `trace`: the spans of Python programs; `text` is how Python's text gets into records;
//! - `callable`: callables from sources and objects;
//! - `memory`, `tensor`, `dlpack`: what runs read and write;
//! - `plan`, `worker`, `chip`: workers of every level, made of a plan; `owner` is who may use one, `interrupt` how a wait
//!   for one ends early;
//! - `decoder`: the model example;
//! - `spans`, `invocations`: what `simpler_setup.tools.strace_timing` gives of a log; `lines` is how it comes in;
//! - `frames`: a log as a table that data frames take;
//! - `console`: the command line.
//!
//! Every function may be called from any thread that holds the GIL. Panics become `PanicException`; none is expected.

mod callable;
mod chip;
mod console;
mod decoder;
mod dlpack;
mod error;
mod frames;
mod interrupt;
mod invocations;
mod lines;
mod log;
mod memory;
mod owner;
mod plan;
mod spans;
mod tensor;
mod text;
mod trace;
mod worker;

use pyo3::prelude::*;

/// The checksum of the stub that this module was built beside: what it is to the Python package. A package with another
/// stub says that the extension is stale.
const INTERFACE: u32 = crc32(include_bytes!("../simpler/_task_interface.pyi"));

/// The checksum that Python has as `zlib.crc32`.
const fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    let mut bit = 0;
    while bit < 8 * bytes.len() {
        if bit % 8 == 0 {
            crc ^= bytes[bit / 8] as u32;
        }
        crc = (crc >> 1) ^ (crc & 1) * 0xedb8_8320;
        bit += 1;
    }
    !crc
}

#[pymodule]
fn _task_interface(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("INTERFACE", INTERFACE)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    log::add(module)?;
    trace::add(module)?;
    callable::add(module)?;
    module.add_class::<memory::SharedBuffer>()?;
    module.add_class::<memory::TaskMemory>()?;
    module.add_class::<tensor::Tensor>()?;
    worker::add(module)?;
    chip::add(module)?;
    decoder::add(module)?;
    spans::add(module)?;
    invocations::add(module)?;
    frames::add(module)?;
    console::add(module)?;
    // Who imports from here names what it imports.
    module.delattr("__all__")
}
