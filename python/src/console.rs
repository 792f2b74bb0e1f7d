//! The command line, on streams that Python has.
//!
//! Text goes to a text stream as `str` and to a binary one as bytes. The command runs on the calling thread with the GIL
//! released; it is taken for each write, and now and then to see whether a signal has come.

use std::cell::RefCell;
use std::io::{self, Write};
use std::os::fd::{BorrowedFd, RawFd};
use std::path::PathBuf;

use pyo3::exceptions::PyOSError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use simpler_cli::{Console, Stream, run};

use crate::interrupt::Interrupt;

/// Adds this part to the module.
pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(command_line, module)?)
}

/// Runs a command; the first argument is the program's name. Gives its exit code and, of a command that reads logs and
/// has refused to answer, the sentence with which it did. `None` is a stream that nobody reads.
///
/// `demo` forks, so nothing but the calling thread may run then.
///
/// # Errors
/// What a stream raises, unless that is an `OSError`, which the command tells by its exit code; what a signal handler
/// raises, `KeyboardInterrupt` above all.
#[pyfunction]
fn command_line(
    py: Python<'_>,
    arguments: Vec<PathBuf>,
    out: Option<&Bound<'_, PyAny>>,
    err: Option<&Bound<'_, PyAny>>,
) -> PyResult<(u8, Option<String>)> {
    let (out, err) = (Target::new(out)?, Target::new(err)?);
    let (exit, refusal, raised) = py.detach(|| {
        let raised = RefCell::new(None);
        let interrupt = Interrupt::default();
        let interrupted = || interrupt.asked();
        let mut console = Console::new(out.stream(&raised), err.stream(&raised));
        console.interrupted = Some(&interrupted);
        let exit = run(arguments, &mut console);
        let refusal = console.refusal.take();
        drop(console);
        (exit, refusal, interrupt.take().or(raised.take()))
    });
    raised.map_or(Ok((exit as u8, refusal)), Err)
}

/// A stream of Python's.
struct Target {
    stream: Option<Py<PyAny>>,
    is_binary: bool,
    /// The descriptor behind it, if there is one.
    fd: Option<RawFd>,
}

impl Target {
    fn new(stream: Option<&Bound<'_, PyAny>>) -> PyResult<Target> {
        let Some(stream) = stream else { return Ok(Target { stream: None, is_binary: true, fd: None }) };
        let py = stream.py();
        let io = py.import(intern!(py, "io"))?;
        let is_binary = stream.is_instance(&io.getattr(intern!(py, "RawIOBase"))?)?
            || stream.is_instance(&io.getattr(intern!(py, "BufferedIOBase"))?)?;
        // What is no file says so by an exception of one kind or another.
        let fd = stream.call_method0(intern!(py, "fileno")).and_then(|fd| fd.extract::<RawFd>());
        let fd = fd.ok().filter(|fd| *fd >= 0);
        Ok(Target { stream: Some(stream.clone().unbind()), is_binary, fd })
    }

    fn stream<'a>(&'a self, raised: &'a RefCell<Option<PyErr>>) -> Stream<'a> {
        let Some(stream) = &self.stream else { return Stream::new(io::sink(), None) };
        let fd = self.fd.map(|fd| {
            // SAFETY: the descriptor is that of `stream`, which is held for as long as the borrow lasts, and the Python
            // program that has asked for a command on it does not close it meanwhile.
            unsafe { BorrowedFd::borrow_raw(fd) }
        });
        Stream::new(Output { stream, is_binary: self.is_binary, raised }, fd)
    }
}

/// Writes to a stream of Python's.
struct Output<'a> {
    stream: &'a Py<PyAny>,
    is_binary: bool,
    /// What was raised that is no `OSError`.
    raised: &'a RefCell<Option<PyErr>>,
}

impl Output<'_> {
    fn call<'py>(&self, py: Python<'py>, text: &Bound<'py, PyAny>) -> io::Result<Bound<'py, PyAny>> {
        let written = self.stream.bind(py).call_method1(intern!(py, "write"), (text,));
        written.map_err(|error| self.failed(py, error))
    }

    fn failed(&self, py: Python<'_>, error: PyErr) -> io::Error {
        if error.is_instance_of::<PyOSError>(py) {
            return io::Error::from(error);
        }
        let text = error.to_string();
        self.raised.borrow_mut().get_or_insert(error);
        io::Error::other(text)
    }
}

impl Write for Output<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Python::attach(|py| {
            if self.is_binary {
                // An unbuffered stream may take a part.
                let written = self.call(py, PyBytes::new(py, bytes).as_any())?;
                return Ok(written
                    .extract::<usize>()
                    .map_or(bytes.len(), |written| written.min(bytes.len())));
            }
            // What a command prints at once is whole text, and no buffer cuts it. Only `recover` prints bytes as they are.
            self.call(py, PyString::new(py, &String::from_utf8_lossy(bytes)).as_any())?;
            Ok(bytes.len())
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Python::attach(|py| {
            let flush = intern!(py, "flush");
            // Whatever has no such method has nothing to flush.
            let Ok(flush) = self.stream.bind(py).getattr(flush) else { return Ok(()) };
            flush.call0().map(drop).map_err(|error| self.failed(py, error))
        })
    }
}
