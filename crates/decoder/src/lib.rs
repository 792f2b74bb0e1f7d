//! A llama-architecture decoder as callables on the chip.
//!
//! [`Model`] holds the figures, the packed weights and the [`Tokenizer`]: the built-in [`Model::tiny`], or a
//! GGUF file. [`callables`] are the C sources of the two callables, prefill and decode, with their kernels.
//! [`Session`] says which buffers a sequence needs on the device and gives the arguments of each run.
//! [`reference::Reference`] computes the same on the host, plainly, for tests.
//!
//! Nothing here starts a thread: a process may load a model, tokenize, and fork afterwards.

pub mod blocks;
mod chat;
mod error;
pub mod gguf;
mod model;
pub mod reference;
mod session;
mod sources;
mod tiny;
mod tokenizer;

pub use chat::ChatTemplate;
pub use error::{Error, ErrorKind};
pub use model::{
    COLUMNS_MAX, CONTEXT_MAX, HEAD_DIM_MAX, IMAGE_ALIGNMENT, LAYERS_MAX, Layout, Matrix, Model, ModelConfig,
};
pub use session::{DeviceBuffers, Session, SessionConfig};
pub use sources::{DECODE, PREFILL, callables};
pub use tokenizer::{TEXT_BYTES_MAX, Tokenizer, VOCABULARY_MAX};
