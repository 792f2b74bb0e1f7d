//! How far a reading has come, for somebody who waits for it.

use crate::source::Stream;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How much has been read, and of how much. Bytes are those of the files, packed ones as they lie there.
#[derive(Debug, Default)]
pub struct Progress {
    read: AtomicU64,
    /// 0 as long as nobody knows.
    known: AtomicU64,
}

impl Progress {
    /// Bytes read so far.
    pub fn read_bytes(&self) -> u64 {
        // ORDERING: Relaxed: a number to look at; nothing is read on the strength of it.
        self.read.load(Ordering::Relaxed)
    }

    /// How many bytes there are, if that is known: a pipe does not say.
    pub fn known_bytes(&self) -> Option<u64> {
        // ORDERING: Relaxed as in `read_bytes`.
        Some(self.known.load(Ordering::Relaxed)).filter(|&known| known > 0)
    }

    pub(crate) fn expect(&self, bytes: u64) {
        // ORDERING: Relaxed as in `read_bytes`.
        self.known.store(bytes, Ordering::Relaxed);
    }
}

/// A stream whose bytes are noted as they are read.
pub(crate) struct Counted {
    stream: Stream,
    progress: Arc<Progress>,
}

impl Counted {
    /// The stream itself if nobody waits.
    pub(crate) fn wrap(stream: Stream, progress: Option<&Arc<Progress>>) -> Stream {
        match progress {
            Some(progress) => Box::new(Counted { stream, progress: Arc::clone(progress) }),
            None => stream,
        }
    }
}

impl Read for Counted {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.stream.read(into)?;
        // ORDERING: Relaxed as in `Progress::read_bytes`.
        self.progress.read.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}
