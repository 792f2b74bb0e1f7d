//! The spans of Python programs. `simpler.trace` says what they are called; this says when they are open, and what is
//! around them.
//!
//! Which span is the innermost is a matter of Python's context (`contextvars`), not of the thread: tasks that take turns
//! on a thread do not nest in each other. Each entry of a span is an object of its own, which knows what was around it
//! and never learns anything else, so entries form no circle however often their span is entered, and one that is closed
//! is passed over by those who find it later. All of it happens under the GIL.

use pyo3::exceptions::PyException;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString};
use simpler_host_log::{self as host_log, ForeignAttributes, ForeignPlace, ForeignSpan};

use crate::text::{RecordText, emitting};

/// Adds this part to the module.
pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<HostSpan>()?;
    module.add_function(wrap_pyfunction!(_host_spans_active, module)?)
}

/// Whether spans are emitted just now.
#[pyfunction]
fn _host_spans_active() -> bool {
    host_log::span_enabled()
}

/// A span that can be entered by `with`, any number of times, also while it is open.
#[pyclass(name = "_HostSpan", module = "simpler._task_interface", subclass)]
struct HostSpan {
    name: Py<PyString>,
    attributes: Py<PyDict>,
    /// The latest entry, if that is open, for an exit in another context than the entry's.
    latest: Option<Py<Entry>>,
}

#[pymethods]
impl HostSpan {
    #[new]
    fn new(name: Bound<'_, PyString>, attributes: Bound<'_, PyDict>) -> Self {
        Self { name: name.unbind(), attributes: attributes.unbind(), latest: None }
    }

    fn __enter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, Self>> {
        // While it is open, a muted entry is one as well: its exit must not close the other.
        if host_log::span_enabled() || slf.borrow().latest.is_some() {
            Entry::open(slf)?;
        }
        Ok(slf.clone())
    }

    fn __exit__(
        slf: &Bound<'_, Self>,
        _kind: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let py = slf.py();
        let innermost = Innermost::get(py)?;
        let mut left = innermost.clone();
        while let Some(entry) = left.take_if(|entry| !entry.borrow().is_open_for(slf)) {
            left = entry.borrow().outer(py);
        }
        let latest = || slf.borrow().latest.as_ref().map(|latest| latest.bind(py).clone());
        // None of either: it was muted when it was entered.
        let Some(left) = left.or_else(latest) else { return Ok(()) };
        let span = {
            let mut entry = left.borrow_mut();
            entry.is_open = false;
            entry.span.take()
        };
        {
            let mut this = slf.borrow_mut();
            drop(this.latest.take_if(|latest| latest.is(&left)));
        }
        if innermost.is_some_and(|innermost| innermost.is(&left)) {
            Innermost::set(py, Entry::open_from(left.borrow().outer(py)))?;
        }
        if let Some(span) = span {
            let name = slf.borrow().name.clone_ref(py);
            let name = RecordText::of(name.bind(py))?;
            emitting(py, || span.close(&name));
        }
        Ok(())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.attributes)?;
        visit.call(&self.latest)
    }

    fn __clear__(&mut self) {
        self.latest = None;
    }
}

/// One entry of a span.
#[pyclass]
struct Entry {
    of: Py<HostSpan>,
    /// What was open around it in the same context.
    outer: Option<Py<Entry>>,
    /// Where the spans inside it stand; what is muted has no place, and they stand in its outer's.
    place: Option<ForeignPlace>,
    is_open: bool,
    /// What is to be closed; nothing if it was muted.
    span: Option<ForeignSpan>,
}

#[pymethods]
impl Entry {
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.of)?;
        visit.call(&self.outer)
    }
}

impl Entry {
    /// Enters `of`: from now on it is the innermost span of this context.
    fn open(of: &Bound<'_, HostSpan>) -> PyResult<()> {
        let py = of.py();
        let outer = Entry::open_from(Innermost::get(py)?);
        let around = outer.as_ref().and_then(|outer| outer.borrow().place);
        let (name, attributes) = {
            let of = of.borrow();
            (of.name.clone_ref(py), of.attributes.clone_ref(py))
        };
        let name = RecordText::of(name.bind(py))?;
        let span = ForeignSpan::open(&name, around, |text| describe(attributes.bind(py), text))?;
        let place = span.as_ref().map(ForeignSpan::place).or(around);
        let of_it = of.clone().unbind();
        let entry =
            Bound::new(py, Entry { of: of_it, outer: outer.map(Bound::unbind), place, is_open: true, span })?;
        of.borrow_mut().latest = Some(entry.clone().unbind());
        Innermost::set(py, Some(entry))
    }

    fn is_open_for(&self, span: &Bound<'_, HostSpan>) -> bool {
        self.is_open && self.of.is(span)
    }

    fn outer<'py>(&self, py: Python<'py>) -> Option<Bound<'py, Entry>> {
        self.outer.as_ref().map(|outer| outer.bind(py).clone())
    }

    /// The first one that is open, from `entry` outwards.
    fn open_from(entry: Option<Bound<'_, Entry>>) -> Option<Bound<'_, Entry>> {
        let mut open = entry;
        while let Some(entry) = open.take_if(|entry| !entry.borrow().is_open) {
            open = entry.borrow().outer(entry.py());
        }
        open
    }
}

/// The innermost entry of a context; it may be closed by now.
struct Innermost;

impl Innermost {
    fn get(py: Python<'_>) -> PyResult<Option<Bound<'_, Entry>>> {
        static GET: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

        let get = GET.get_or_try_init(py, || Innermost::variable(py)?.getattr(py, intern!(py, "get")))?;
        Ok(get.bind(py).call0()?.cast_into::<Entry>().ok())
    }

    fn set(py: Python<'_>, entry: Option<Bound<'_, Entry>>) -> PyResult<()> {
        static SET: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

        let set = SET.get_or_try_init(py, || Innermost::variable(py)?.getattr(py, intern!(py, "set")))?;
        set.bind(py).call1((entry,)).map(drop)
    }

    fn variable(py: Python<'_>) -> PyResult<&Py<PyAny>> {
        static VARIABLE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

        VARIABLE.get_or_try_init(py, || {
            let nothing = PyDict::new(py);
            nothing.set_item("default", py.None())?;
            let class = py.import("contextvars")?.getattr("ContextVar")?;
            Ok(class.call(("simpler.trace",), Some(&nothing))?.unbind())
        })
    }
}

/// Writes `attributes` as pairs. A value that cannot say what it is becomes `~`; what is no error, an interruption or the
/// wish to exit, goes on.
fn describe(attributes: &Bound<'_, PyDict>, text: &mut ForeignAttributes) -> PyResult<()> {
    for (key, value) in attributes {
        let key = key.cast_into::<PyString>()?;
        let key = RecordText::of(&key)?;
        match value.str() {
            Ok(value) => text.pair(&key, format_args!("{}", &*RecordText::of(&value)?)),
            Err(error) if error.is_instance_of::<PyException>(value.py()) => {
                text.pair(&key, format_args!("~"))
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
