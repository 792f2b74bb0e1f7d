//! What this crate fails with.

use std::io;
use std::path::PathBuf;

/// An error with a sentence about its cause.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Error {
    kind: ErrorKind,
}

impl Error {
    /// What went wrong, for callers that branch on it.
    pub fn kind(&self) -> &ErrorKind {
        &self.kind
    }

    pub(crate) fn gguf(offset: usize, what: impl Into<String>) -> Self {
        ErrorKind::Gguf { offset, what: what.into() }.into()
    }

    pub(crate) fn model(what: impl Into<String>) -> Self {
        ErrorKind::Model(what.into()).into()
    }

    pub(crate) fn tokenizer(what: impl Into<String>) -> Self {
        ErrorKind::Tokenizer(what.into()).into()
    }
}

impl From<ErrorKind> for Error {
    fn from(kind: ErrorKind) -> Self {
        Self { kind }
    }
}

/// The kinds of failure.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The bytes are not a GGUF file that this reader takes.
    #[error("GGUF, byte {offset}: {what}")]
    Gguf {
        /// Where in the file.
        offset: usize,
        /// The reason.
        what: String,
    },
    /// The file is no model that the decoder runs.
    #[error("model: {0}")]
    Model(String),
    /// The vocabulary makes no tokenizer.
    #[error("tokenizer: {0}")]
    Tokenizer(String),
    /// The chat template is missing or not understood.
    #[error("chat template: {0}")]
    Chat(String),
    /// A request does not fit the session.
    #[error("session: {0}")]
    Session(String),
}
