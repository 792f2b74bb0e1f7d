//! Memory that parent and children share, as Python sees it: objects with the buffer protocol.
//!
//! - [`SharedBuffer`] is made before the fork; arrays over it are of no copy to any child.
//! - [`TaskMemory`] is a range of such memory in a child, where a run names it.
//! - [`Staging`] is what the arguments that lie elsewhere are copied through.
//!
//! Python code and a run that touch the same bytes at a time are the program's own affair, as with any shared memory.

use std::ffi::c_int;

use pyo3::ffi;
use pyo3::prelude::*;
use simpler_worker::{SharedBuffer as NativeBuffer, SharedMemory};

use crate::error;

/// Where parts of the staging memory begin: a cache line.
const ALIGNMENT: usize = 64;

/// Zeroed memory that the children of workers see which are started later.
#[pyclass(frozen, weakref, name = "_SharedBuffer", module = "simpler._task_interface")]
pub(crate) struct SharedBuffer {
    pub(crate) memory: SharedMemory,
}

#[pymethods]
impl SharedBuffer {
    /// So many bytes, at least one.
    #[new]
    fn new(nbytes: usize) -> PyResult<Self> {
        let buffer = NativeBuffer::new(nbytes).map_err(error::of_worker)?;
        Ok(Self { memory: buffer.into() })
    }

    #[getter]
    fn nbytes(&self) -> usize {
        self.memory.bytes()
    }

    /// Its first byte's address, the same in parent and children.
    #[getter]
    fn address(&self) -> u64 {
        self.memory.addr()
    }

    // SAFETY: CPython hands in a view to fill; the memory is the object's, which the view keeps.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let memory = &slf.get().memory;
        // SAFETY: as above, and the mapping is readable and writable for as long as the object lives.
        unsafe { fill(slf.as_any(), view, flags, memory.addr(), memory.bytes(), true) }
    }
}

/// A range of memory that this process has inherited, during a run that names it.
#[pyclass(frozen, name = "_TaskMemory", module = "simpler._task_interface")]
pub(crate) struct TaskMemory {
    addr: u64,
    bytes: usize,
    writable: bool,
}

impl TaskMemory {
    /// # Safety
    /// The range lies inside a mapping that this process never unmaps, and may be written if it says so.
    pub(crate) unsafe fn new(addr: u64, bytes: usize, writable: bool) -> Self {
        Self { addr, bytes, writable }
    }
}

#[pymethods]
impl TaskMemory {
    // SAFETY: CPython hands in a view to fill.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let Self { addr, bytes, writable } = *slf.get();
        // SAFETY: as above; what `new` was promised.
        unsafe { fill(slf.as_any(), view, flags, addr, bytes, writable) }
    }
}

/// Fills a view of bytes.
///
/// # Safety
/// - `view` is CPython's, to be filled.
/// - The range is good for as long as `owner` lives, and may be written if `writable`.
pub(crate) unsafe fn fill(
    owner: &Bound<'_, PyAny>,
    view: *mut ffi::Py_buffer,
    flags: c_int,
    addr: u64,
    bytes: usize,
    writable: bool,
) -> PyResult<()> {
    let start = std::ptr::with_exposed_provenance_mut(addr as usize);
    // SAFETY: the caller's obligations; a mapping is no longer than half the address space, so its length is an isize.
    let filled = unsafe {
        ffi::PyBuffer_FillInfo(
            view,
            owner.as_ptr(),
            start,
            bytes as ffi::Py_ssize_t,
            c_int::from(!writable),
            flags,
        )
    };
    if filled == 0 { Ok(()) } else { Err(PyErr::fetch(owner.py())) }
}

/// A part of the staging memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) offset: usize,
    bytes: usize,
}

/// Memory that runs borrow for arguments that lie where no child sees them.
#[derive(Debug)]
pub(crate) struct Staging {
    pub(crate) memory: SharedMemory,
    /// By offset; two of them never touch.
    free: Vec<Part>,
}

impl Staging {
    /// All of `memory`, free.
    pub(crate) fn new(memory: SharedMemory) -> Self {
        let free = vec![Part { offset: 0, bytes: memory.bytes() }];
        Self { memory, free }
    }

    /// The first part that is large enough; none where there is none.
    pub(crate) fn take(&mut self, bytes: usize) -> Option<Part> {
        let bytes = bytes.max(1).checked_next_multiple_of(ALIGNMENT)?;
        let index = self.free.iter().position(|part| part.bytes >= bytes)?;
        let part = &mut self.free[index];
        let taken = Part { offset: part.offset, bytes };
        part.offset += bytes;
        part.bytes -= bytes;
        if part.bytes == 0 {
            self.free.remove(index);
        }
        Some(taken)
    }

    /// Gives a part back.
    pub(crate) fn give(&mut self, part: Part) {
        let index = self.free.partition_point(|other| other.offset < part.offset);
        self.free.insert(index, part);
        for first in [index, index.saturating_sub(1)] {
            if let [a, b, ..] = self.free[first..]
                && a.offset + a.bytes == b.offset
            {
                self.free[first].bytes += b.bytes;
                self.free.remove(first + 1);
            }
        }
    }

    /// Bytes of the largest part that is free.
    pub(crate) fn largest(&self) -> usize {
        self.free.iter().map(|part| part.bytes).max().unwrap_or(0)
    }
}
