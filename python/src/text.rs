//! Python's text in records, and emitting them.

use std::borrow::Cow;
use std::ops::Deref;
use std::sync::atomic::Ordering;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PySequence, PyString};
use simpler_host_log as host_log;
use simpler_record_format::RECORD_BYTES;

/// What of a text can be in a record: so much that whoever encodes it sees that something was cut. So a text of any
/// length costs no more than that.
///
/// Python's text is any sequence of code points; one that UTF-8 does not have, a lone surrogate, becomes `\udcff`, as it
/// does on Python's stderr.
pub(crate) struct RecordText<'a>(Cow<'a, str>);

impl<'a> RecordText<'a> {
    pub(crate) fn of<'py>(text: &'a Bound<'py, PyString>) -> PyResult<RecordText<'a>> {
        // A code point has at least one byte.
        if text.len()? > RECORD_BYTES {
            let start = text.cast::<PySequence>()?.get_slice(0, RECORD_BYTES)?;
            return Ok(RecordText(Cow::Owned(encoded(start.cast::<PyString>()?)?.into_owned())));
        }
        Ok(RecordText(encoded(text)?))
    }
}

impl Deref for RecordText<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

fn encoded<'a>(text: &'a Bound<'_, PyString>) -> PyResult<Cow<'a, str>> {
    if let Ok(text) = text.to_str() {
        return Ok(Cow::Borrowed(text));
    }
    let py = text.py();
    let bytes = text.call_method1(intern!(py, "encode"), ("utf-8", "backslashreplace"))?;
    Ok(Cow::Owned(String::from_utf8_lossy(bytes.cast::<PyBytes>()?.as_bytes()).into_owned()))
}

/// Runs `emit`, which writes to the destination by itself where no writer of this process runs; then other Python
/// threads run meanwhile, among them perhaps the one that reads what is written. Where there is a writer it does not
/// wait, and handing over the GIL would cost more than the record.
pub(crate) fn emitting(py: Python<'_>, emit: impl FnOnce() + Send) {
    // Relaxed: only the GIL depends on it.
    if host_log::state().sink_owner_pid.load(Ordering::Relaxed) == host_log::pid() {
        emit();
    } else {
        py.detach(emit);
    }
}
