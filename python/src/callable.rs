//! Callables: compiled from sources, or read from objects.

use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use simpler_kernel_abi::CoreKind;
use simpler_kernel_compiler::{CallableSource, Compiler, KernelSource, SourceFile};
use simpler_runtime::KernelImage;
use simpler_worker::{Callable, CallableImage as Image};

use crate::error::{self, ArgumentError, CompileError};

/// A callable as objects: an orchestration and its kernels.
#[pyclass(frozen, name = "_CallableImage", module = "simpler._task_interface")]
pub(crate) struct CallableImage {
    pub(crate) image: Image,
}

#[pymethods]
impl CallableImage {
    /// From objects: the orchestration's bytes, and (name, core, bytes) of each kernel by its index.
    #[new]
    fn new(name: String, orchestration: Vec<u8>, kernels: Vec<(String, String, Vec<u8>)>) -> PyResult<Self> {
        let kernels = kernels
            .into_iter()
            .map(|(name, core, bytes)| Ok(KernelImage { name, bytes, kind: core_of(&core)? }))
            .collect::<PyResult<_>>()?;
        Ok(Self { image: Image { name, orchestration, kernels } })
    }

    #[getter]
    fn name(&self) -> &str {
        &self.image.name
    }

    /// SHA-256 of its content, 32 bytes.
    #[getter]
    fn digest<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.image.digest())
    }

    /// The trace identity: what `hid=` is in the log.
    #[getter]
    fn hid(&self) -> u64 {
        self.image.hid()
    }

    /// The orchestration's object.
    #[getter]
    fn orchestration<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.image.orchestration)
    }

    /// Each kernel by its index.
    #[getter]
    fn kernels<'py>(&self, py: Python<'py>) -> Vec<Kernel<'_, 'py>> {
        let kernels = self.image.kernels.iter();
        let kernels =
            kernels.map(|kernel| (&*kernel.name, core_name(kernel.kind), PyBytes::new(py, &kernel.bytes)));
        kernels.collect()
    }
}

/// A kernel's name, core and object.
type Kernel<'k, 'py> = (&'k str, &'static str, Bound<'py, PyBytes>);

fn core_of(name: &str) -> PyResult<CoreKind> {
    match name {
        "aic" => Ok(CoreKind::Aic),
        "aiv" => Ok(CoreKind::Aiv),
        _ => Err(ArgumentError::new_err(format!("{name} is no kind of core: aic or aiv"))),
    }
}

const fn core_name(kind: CoreKind) -> &'static str {
    match kind {
        CoreKind::Aic => "aic",
        CoreKind::Aiv => "aiv",
    }
}

/// Compiles (file name, text) of an orchestration, (file name, text, core) of its kernels and (file name, text) of
/// headers, with objects kept in the folder `cache`. The GIL is released.
#[pyfunction]
fn _compile(
    py: Python<'_>,
    name: String,
    orchestration: (String, String),
    kernels: Vec<(String, String, String)>,
    headers: Vec<(String, String)>,
    cache: PathBuf,
) -> PyResult<CallableImage> {
    let kernels = kernels
        .into_iter()
        .map(|(name, text, core)| {
            Ok(KernelSource { file: SourceFile::new(name, text), kind: core_of(&core)? })
        })
        .collect::<PyResult<_>>()?;
    let source = CallableSource {
        name,
        orchestration: SourceFile::new(orchestration.0, orchestration.1),
        kernels,
        headers: headers.into_iter().map(|(name, text)| SourceFile::new(name, text)).collect(),
    };
    compile(py, &source, cache)
}

/// Compiles, with the GIL released.
pub(crate) fn compile(py: Python<'_>, source: &CallableSource, cache: PathBuf) -> PyResult<CallableImage> {
    py.detach(|| {
        let objects = Compiler::new(cache)
            .and_then(|compiler| compiler.compile(source))
            .map_err(|error| error::of_compiler(&error))?;
        let image = Image::load(&objects).map_err(|error| CompileError::new_err(error.text))?;
        Ok(CallableImage { image })
    })
}

/// The digest of a Python function (`orchestration`: of an orchestration) of this name.
#[pyfunction]
fn _closure_digest<'py>(py: Python<'py>, name: &str, orchestration: bool) -> Bound<'py, PyBytes> {
    let callable = if orchestration { Callable::of_orchestration(name) } else { Callable::of_function(name) };
    PyBytes::new(py, &callable.digest())
}

/// Adds this part to the module.
pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<CallableImage>()?;
    module.add_function(wrap_pyfunction!(_compile, module)?)?;
    module.add_function(wrap_pyfunction!(_closure_digest, module)?)
}
