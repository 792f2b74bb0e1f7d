//! What can fail: setting the log up. A log call itself never fails towards its caller; it counts.

use std::fmt;
use std::io;

/// Why the log could not be set up.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    source: Option<io::Error>,
}

/// The kinds of [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The directory's absolute path has more than 1023 bytes, or holds a zero byte.
    DirectoryPath,
    /// The directory does not exist and cannot be made, or is not a directory.
    Directory,
    /// Another thread is starting or stopping the writer just now.
    WriterInTransition,
    /// No memory for the queue or no thread for the writer.
    Writer,
    /// This copy of the logger is bound to another module's log, which that module sets up.
    NotTheOwner,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind) -> Self {
        Self { kind, source: None }
    }

    pub(crate) fn from_io(kind: ErrorKind, source: io::Error) -> Self {
        Self { kind, source: Some(source) }
    }

    /// What kind of failure it is.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            ErrorKind::DirectoryPath => {
                "the log directory's absolute path has more than 1023 bytes or holds a zero byte"
            }
            ErrorKind::Directory => "the log directory cannot be used",
            ErrorKind::WriterInTransition => "another thread is starting or stopping the log writer",
            ErrorKind::Writer => "the log writer cannot be started",
            ErrorKind::NotTheOwner => "the log belongs to the module that this one is bound to",
        })
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}

/// Accepted records did not reach their destination in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainTimeout {
    /// Accepted records that the writer has not finished.
    pub pending: u64,
    /// Records lost so far.
    pub dropped: u64,
}

impl fmt::Display for DrainTimeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "host log not drained in time: {} pending, {} dropped", self.pending, self.dropped)
    }
}

impl std::error::Error for DrainTimeout {}
