//! spdlog's asynchronous logger, compiled from `benches/peers/spdlog.cpp` to a shared object by `cargo xtask bench`.

use std::ffi::{CString, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use libloading::{Library, Symbol};
use simpler_benches::{Latency, each_ns};

use super::counted::wait_until;
use crate::Failure;
use crate::subject::Subject;

/// Says where the shared object is, or why there is none.
const OBJECT: &str = "SIMPLER_BENCH_SPDLOG";
const WHY_NOT: &str = "SIMPLER_BENCH_SPDLOG_MISSING";

pub(super) struct Spdlog {
    spans: extern "C" fn(u64),
    flush: extern "C" fn(),
    flushed_lines: extern "C" fn() -> u64,
    close: extern "C" fn(),
    emitted: u64,
    /// The functions above live in it.
    _object: Library,
}

impl Spdlog {
    pub(super) fn open(folder: &Path) -> Result<Spdlog, Failure> {
        let Some(path) = std::env::var_os(OBJECT) else {
            let why = std::env::var(WHY_NOT);
            return Err(why.unwrap_or_else(|_| format!("{OBJECT} does not say where it is")).into());
        };
        // SAFETY: the object's initialisers are those of spdlog and of the C++ library.
        let object = unsafe { Library::new(path) }?;
        let open: Symbol<'_, extern "C" fn(*const c_char) -> c_int> = {
            // SAFETY: the type is that of the source, as for the others below.
            unsafe { object.get(b"peer_open") }?
        };
        let log = CString::new(folder.join("spdlog.log").as_os_str().as_bytes())?;
        if open(log.as_ptr()) != 0 {
            return Err("its log cannot be opened".into());
        }
        // SAFETY: as above.
        let spans = *unsafe { object.get::<extern "C" fn(u64)>(b"peer_spans") }?;
        // SAFETY: as above.
        let flush = *unsafe { object.get::<extern "C" fn()>(b"peer_flush") }?;
        // SAFETY: as above.
        let flushed_lines = *unsafe { object.get::<extern "C" fn() -> u64>(b"peer_flushed_lines") }?;
        // SAFETY: as above.
        let close = *unsafe { object.get::<extern "C" fn()>(b"peer_close") }?;
        Ok(Spdlog { spans, flush, flushed_lines, close, emitted: 0, _object: object })
    }
}

impl Subject for Spdlog {
    fn name(&self) -> &'static str {
        "spdlog"
    }

    fn burst(&mut self, spans: usize) -> f64 {
        self.emitted += spans as u64;
        each_ns(1, |_| (self.spans)(spans as u64)) / spans as f64
    }

    fn singles(&mut self, spans: usize, latency: &mut Latency) {
        self.emitted += spans as u64;
        latency.time(spans, |_| (self.spans)(1));
    }

    fn settle(&mut self) -> Result<(), Failure> {
        (self.flush)();
        wait_until("spdlog's lines", || (self.flushed_lines)() >= self.emitted)
    }

    fn lost(&self) -> u64 {
        // It blocks instead, and a settled one has written everything.
        0
    }
}

impl Drop for Spdlog {
    fn drop(&mut self) {
        (self.close)();
    }
}
