//! The decoder example: a model and the arguments of its runs.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use simpler_decoder::{
    DeviceBuffers, Model as NativeModel, Session as NativeSession, SessionConfig, callables,
};

use crate::callable::{self, CallableImage};
use crate::error::{self, ArgumentError};
use crate::memory::fill;
use crate::tensor::Tensor;

/// A decoder's figures, weights and tokenizer. The buffer protocol gives its weights as the device holds them.
#[pyclass(frozen, name = "_Model", module = "simpler._task_interface")]
pub(crate) struct Model {
    model: Arc<NativeModel>,
}

#[pymethods]
impl Model {
    /// The built-in one.
    #[staticmethod]
    fn tiny() -> PyResult<Self> {
        Self::of(NativeModel::tiny())
    }

    /// One of a GGUF file; the GIL is released.
    #[staticmethod]
    fn from_gguf(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        Self::of(py.detach(|| NativeModel::from_gguf(&path)))
    }

    /// Its figures by name; `rms_eps` and `rope_base` as floats, the others as whole numbers of the same type.
    #[getter]
    fn config(&self) -> BTreeMap<&'static str, f64> {
        let config = &self.model.config;
        BTreeMap::from([
            ("layers", config.layers.into()),
            ("dim", config.dim.into()),
            ("heads", config.heads.into()),
            ("kv_heads", config.kv_heads.into()),
            ("head_dim", config.head_dim.into()),
            ("ffn", config.ffn.into()),
            ("vocab", config.vocab.into()),
            ("context", config.context.into()),
            ("rms_eps", config.rms_eps.into()),
            ("rope_base", config.rope_base.into()),
        ])
    }

    /// The token ids of a text; `special` parses the special tokens in it.
    #[pyo3(signature = (text, special=false))]
    fn encode(&self, text: &str, special: bool) -> PyResult<Vec<u32>> {
        self.model.tokenizer.encode(text, special).map_err(|error| error::of_model(&error))
    }

    /// The bytes of token ids, which may end within a character.
    fn decode<'py>(&self, py: Python<'py>, ids: Vec<u32>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.model.tokenizer.decode(&ids))
    }

    /// The prompt of one user message by the model's own template; to be encoded with special tokens.
    fn chat_prompt(&self, message: &str) -> PyResult<String> {
        self.model.chat_prompt(message).map_err(|error| error::of_model(&error))
    }

    // SAFETY: CPython hands in a view to fill; the bytes are the object's, which the view keeps, and never change.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let image = &slf.get().model.image;
        let addr = image.as_ptr().expose_provenance() as u64;
        // SAFETY: as above.
        unsafe { fill(slf.as_any(), view, flags, addr, image.len(), false) }
    }
}

impl Model {
    fn of(model: Result<NativeModel, simpler_decoder::Error>) -> PyResult<Self> {
        let model = Arc::new(model.map_err(|error| error::of_model(&error))?);
        Ok(Self { model })
    }
}

/// What a sequence needs on a chip, and the arguments of its runs.
#[pyclass(frozen, name = "_Session", module = "simpler._task_interface")]
pub(crate) struct Session {
    session: NativeSession,
}

#[pymethods]
impl Session {
    /// A session of so many tokens, prompt and generated ones, cut for a machine that runs `cpus` cores at a time.
    #[new]
    #[pyo3(signature = (model, capacity, cpus, task_slots=false))]
    fn new(model: &Model, capacity: u32, cpus: u32, task_slots: bool) -> PyResult<Self> {
        let config = SessionConfig { task_slots, ..SessionConfig::for_cpus(capacity, cpus) };
        let session = NativeSession::new(&model.model, config).map_err(|error| error::of_model(&error))?;
        Ok(Self { session })
    }

    #[getter]
    fn weight_bytes(&self) -> u64 {
        self.session.weight_bytes()
    }

    #[getter]
    fn cache_bytes(&self) -> u64 {
        self.session.cache_bytes()
    }

    #[getter]
    fn rope_bytes(&self) -> u64 {
        self.session.rope_bytes()
    }

    #[getter]
    fn logits_bytes(&self) -> u64 {
        self.session.logits_bytes()
    }

    #[getter]
    fn token_words(&self) -> usize {
        self.session.token_words()
    }

    /// The rope table as bytes of float32.
    fn rope_table<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let bytes: Vec<u8> = self.session.rope_table().iter().flat_map(|value| value.to_ne_bytes()).collect();
        PyBytes::new(py, &bytes)
    }

    /// The tensors and scalars of a run over `tokens` tokens from `position` on: (weights, cache, rope, logits) are the
    /// addresses on the chip, `words` the sequence's host words.
    fn args(
        &self,
        py: Python<'_>,
        buffers: (u64, u64, u64, u64),
        words: Py<Tensor>,
        position: u32,
        tokens: u32,
    ) -> PyResult<(Vec<Tensor>, Vec<u64>)> {
        let (weights, cache, rope, logits) = buffers;
        let host = words.bind(py).get();
        let needed = 4 * self.session.token_words() as u64;
        if host.is_device() || !host.is_written() || host.bytes < needed {
            return Err(ArgumentError::new_err(format!(
                "the words of a sequence are {needed} bytes of host memory that a run may write, not {}",
                host.bytes
            )));
        }
        let buffers = DeviceBuffers { weights, cache, rope, logits };
        let args = match position {
            0 => self.session.prefill_args(&buffers, host.addr, tokens),
            _ if tokens == 1 => self.session.decode_args(&buffers, host.addr, position),
            _ => return Err(ArgumentError::new_err("a decode is of one token")),
        };
        let args = args.map_err(|error| error::of_model(&error))?;
        let tensors = args.tensors.iter();
        let tensors = tensors.map(|arg| Tensor::of_descriptor(py, &arg.tensor, arg.arg_use, &words));
        Ok((tensors.collect::<PyResult<_>>()?, args.scalars))
    }
}

/// Compiles the decoder's callables, prefill and decode, with objects kept in `cache`; a file of the same name in
/// `kernels` takes the place of a built-in source. The GIL is released.
#[pyfunction]
#[pyo3(signature = (cache, kernels=None))]
fn _decoder_callables(
    py: Python<'_>,
    cache: PathBuf,
    kernels: Option<PathBuf>,
) -> PyResult<(CallableImage, CallableImage)> {
    let sources = callables(kernels.as_deref().map(Path::new)).map_err(|error| error::of_model(&error))?;
    let [prefill, decode] = &sources;
    Ok((callable::compile(py, prefill, cache.clone())?, callable::compile(py, decode, cache)?))
}

/// Adds this part to the module.
pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Model>()?;
    module.add_class::<Session>()?;
    module.add_function(wrap_pyfunction!(_decoder_callables, module)?)
}
