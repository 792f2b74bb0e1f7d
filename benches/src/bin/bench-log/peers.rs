//! The peers: what others' users would set up to get a line per span in a file, in the best shape known.
//!
//! Each writes through a thread of its own, with a user-space buffer before the file, and loses nothing. Whether
//! all spans came out is asked of the writing end, so that a peer's throughput ends when its last line is written.

#[cfg(feature = "peers")]
mod fastrace;
#[cfg(feature = "peers")]
mod spdlog;
#[cfg(feature = "peers")]
mod tracing;

use std::path::Path;

use crate::Failure;
use crate::subject::Subject;

/// The peers, in the order of the table.
pub(crate) const NAMES: [&str; 3] = ["tracing", "fastrace", "spdlog"];

/// The peers that can be had, and why the others cannot.
pub(crate) type Peers = (Vec<Box<dyn Subject>>, Vec<String>);

/// Opens the peers' logs in a folder.
#[cfg(feature = "peers")]
pub(crate) fn open(folder: &Path) -> Result<Peers, Failure> {
    let mut peers: Vec<Box<dyn Subject>> =
        vec![Box::new(tracing::Tracing::open(folder)?), Box::new(fastrace::Fastrace::open(folder)?)];
    let mut skipped = Vec::new();
    match spdlog::Spdlog::open(folder) {
        Ok(spdlog) => peers.push(Box::new(spdlog)),
        Err(why) => skipped.push(format!("spdlog: {why}")),
    }
    Ok((peers, skipped))
}

/// Without the feature there are none.
#[cfg(not(feature = "peers"))]
pub(crate) fn open(_: &Path) -> Result<Peers, Failure> {
    Ok((Vec::new(), NAMES.map(|name| format!("{name}: built without the feature `peers`")).to_vec()))
}

/// A file that counts the lines which have reached it, for peers that cannot be asked.
#[cfg(feature = "peers")]
mod counted {
    use std::fs::File;
    use std::io::{self, BufWriter, Write};
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Instant;

    use crate::Failure;
    use crate::subject::SETTLE;

    /// A buffered file; a line counts once it was flushed.
    pub(crate) struct CountedFile {
        file: BufWriter<File>,
        lines: u64,
        flushed: Arc<AtomicU64>,
    }

    /// The reading end of the count.
    #[derive(Clone)]
    pub(crate) struct Lines(Arc<AtomicU64>);

    impl CountedFile {
        pub(crate) fn create(path: &Path) -> io::Result<(CountedFile, Lines)> {
            let flushed = Arc::new(AtomicU64::new(0));
            let file = BufWriter::with_capacity(64 * 1024, File::create(path)?);
            Ok((CountedFile { file, lines: 0, flushed: Arc::clone(&flushed) }, Lines(flushed)))
        }
    }

    impl Write for CountedFile {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let written = self.file.write(bytes)?;
            self.lines += u64::from(bytes[..written].ends_with(b"\n"));
            Ok(written)
        }

        fn flush(&mut self) -> io::Result<()> {
            self.file.flush()?;
            self.flushed.store(self.lines, Ordering::Release);
            Ok(())
        }
    }

    impl Lines {
        pub(crate) fn written(&self) -> u64 {
            self.0.load(Ordering::Acquire)
        }

        /// Waits until so many lines are written.
        pub(crate) fn wait_for(&self, lines: u64) -> Result<(), Failure> {
            wait_until("lines", || self.written() >= lines)
        }
    }

    /// Waits with the CPU left to the writer.
    pub(crate) fn wait_until(what: &str, is_met: impl Fn() -> bool) -> Result<(), Failure> {
        let deadline = Instant::now() + SETTLE;
        while !is_met() {
            if Instant::now() > deadline {
                return Err(format!("{what} did not come within {SETTLE:?}").into());
            }
            std::thread::yield_now();
        }
        Ok(())
    }
}
