//! What Python programs call lines: text of a log in any of the forms in which they hold it.
//!
//! An element of an iterable is one line or several, with or without the newline of the last, as `str` or as bytes; a
//! whole log may also come as one `str` or bytes. Whatever ends an element ends a line. Text is read as UTF-8; what is
//! no text in there (a lone surrogate) is what Python's decoders make of bytes that are not UTF-8, and becomes those
//! bytes again.
//!
//! A regular file is asked for large pieces rather than for lines. Anything else is asked for an element when that is
//! needed, so that a generator that waits for a log to grow gives what it has.

use memchr::{memchr, memrchr};
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::{PyByteArray, PyBytes, PyIterator, PyMemoryView, PyString};

/// How much of a file is asked for at once, and looked at of a blob: enough that the calls cost nothing, little enough
/// to stay in cache.
const PIECE_BYTES: usize = 256 * 1024;

/// Bytes of zero behind what is scanned: numbers are read eight bytes at a time, to the last of them.
const PADDING: [u8; 8] = [0; 8];

/// Where the lines come from.
enum Source {
    Elements(Py<PyIterator>),
    /// The bound method `read` of a regular file.
    File(Py<PyAny>),
    Blob(Text, usize),
    Ended,
}

/// Text that stays where it is.
enum Text {
    Str(PyBackedStr),
    Bytes(PyBackedBytes),
}

impl Text {
    fn new(text: &Bound<'_, PyAny>) -> PyResult<Option<Text>> {
        if let Ok(text) = text.cast::<PyString>() {
            return Ok(Some(match PyBackedStr::try_from(text.clone()) {
                Ok(text) => Text::Str(text),
                Err(_) => Text::Bytes(encoded(text)?.into()),
            }));
        }
        if let Ok(bytes) = text.cast::<PyBytes>() {
            return Ok(Some(Text::Bytes(bytes.clone().into())));
        }
        if let Ok(bytes) = text.cast::<PyByteArray>() {
            return Ok(Some(Text::Bytes(bytes.clone().into())));
        }
        if text.is_instance_of::<PyMemoryView>() {
            let bytes = text.call_method0(intern!(text.py(), "tobytes"))?;
            return Ok(Some(Text::Bytes(bytes.cast_into::<PyBytes>()?.into())));
        }
        Ok(None)
    }

    fn as_bytes(&self) -> &[u8] {
        match self {
            Text::Str(text) => text.as_bytes(),
            Text::Bytes(bytes) => bytes,
        }
    }
}

/// A text that has lone surrogates.
#[cold]
fn encoded<'py>(text: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyBytes>> {
    let encode = |errors: &str| text.call_method1("encode", ("utf-8", errors));
    Ok(encode("surrogateescape").or_else(|_| encode("replace"))?.cast_into()?)
}

/// Whole lines, a piece at a time.
pub(crate) struct Lines {
    source: Source,
    /// The piece, with [`PADDING`] behind it.
    piece: Vec<u8>,
    /// What of a file is no whole line yet.
    held: Vec<u8>,
}

impl Lines {
    /// Of an iterable, a file or a blob.
    ///
    /// # Errors
    /// If it is none of these.
    pub(crate) fn new(lines: &Bound<'_, PyAny>) -> PyResult<Lines> {
        let source = match Text::new(lines)? {
            Some(text) => Source::Blob(text, 0),
            None => match read_of_regular_file(lines) {
                Some(read) => Source::File(read.unbind()),
                None => Source::Elements(lines.try_iter()?.unbind()),
            },
        };
        Ok(Lines { source, piece: Vec::new(), held: Vec::new() })
    }

    /// The next piece: whole lines and some bytes of zero; `None` once there are no more.
    ///
    /// # Errors
    /// Whatever the iterable or the file raises; `TypeError` for an element that is no text.
    pub(crate) fn next(&mut self, py: Python<'_>) -> PyResult<Option<&[u8]>> {
        self.piece.clear();
        match &mut self.source {
            Source::Elements(elements) => {
                let Some(element) = elements.bind(py).clone().next().transpose()? else {
                    self.source = Source::Ended;
                    return Ok(None);
                };
                take(&element, &mut self.piece)?;
                self.end_line();
            }
            Source::File(read) => {
                let text = read.bind(py).call1((PIECE_BYTES,))?;
                let known = self.held.len();
                take(&text, &mut self.held)?;
                if self.held.len() == known {
                    self.source = Source::Ended;
                    if known == 0 {
                        return Ok(None);
                    }
                    self.piece.append(&mut self.held);
                    self.end_line();
                } else if let Some(newline) = memrchr(b'\n', &self.held[known..]) {
                    let lines = known + newline + 1;
                    self.piece.extend_from_slice(&self.held[..lines]);
                    self.held.drain(..lines);
                }
            }
            Source::Blob(text, at) => {
                let rest = &text.as_bytes()[*at..];
                if rest.is_empty() {
                    self.source = Source::Ended;
                    return Ok(None);
                }
                let lines = match rest.get(..PIECE_BYTES) {
                    None => rest.len(),
                    // A line that is longer than a piece is a piece by itself.
                    Some(piece) => memrchr(b'\n', piece)
                        .or_else(|| memchr(b'\n', rest))
                        .map_or(rest.len(), |newline| newline + 1),
                };
                self.piece.extend_from_slice(&rest[..lines]);
                *at += lines;
                self.end_line();
            }
            Source::Ended => return Ok(None),
        }
        self.piece.extend_from_slice(&PADDING);
        Ok(Some(&self.piece))
    }

    fn end_line(&mut self) {
        if self.piece.last() != Some(&b'\n') {
            self.piece.push(b'\n');
        }
    }
}

fn take(text: &Bound<'_, PyAny>, into: &mut Vec<u8>) -> PyResult<()> {
    // The two that nearly all are, without a text of our own.
    if let Ok(string) = text.cast::<PyString>()
        && let Ok(string) = string.to_str()
    {
        into.extend_from_slice(string.as_bytes());
    } else if let Ok(bytes) = text.cast::<PyBytes>() {
        into.extend_from_slice(bytes.as_bytes());
    } else {
        let Some(text) = Text::new(text)? else {
            let what = text.get_type().name()?;
            return Err(PyTypeError::new_err(format!("lines of a log are str or bytes, not {what}")));
        };
        into.extend_from_slice(text.as_bytes());
    }
    Ok(())
}

/// The method that reads a file, if it is a regular one that Python has opened: only then is a piece as good as lines.
fn read_of_regular_file<'py>(file: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
    let py = file.py();
    let io = py.import(intern!(py, "io")).ok()?;
    let is_file = ["TextIOWrapper", "BufferedReader", "FileIO"]
        .iter()
        .any(|name| io.getattr(*name).is_ok_and(|class| file.get_type().is(&class)));
    if !is_file {
        return None;
    }
    let fd = file.call_method0(intern!(py, "fileno")).ok()?;
    let mode = py.import(intern!(py, "os")).ok()?.call_method1(intern!(py, "fstat"), (fd,)).ok()?;
    let mode = mode.getattr(intern!(py, "st_mode")).ok()?;
    let regular = py.import(intern!(py, "stat")).ok()?.call_method1(intern!(py, "S_ISREG"), (mode,)).ok()?;
    if !regular.is_truthy().ok()? {
        return None;
    }
    file.getattr(intern!(py, "read")).ok()
}
