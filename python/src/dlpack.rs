//! DLPack: how a framework hands a tensor over without a copy, as a capsule around a C struct.
//!
//! The layout is that of `dlpack.h`, of which only this much is needed: a consumer takes the capsule's pointer, renames
//! the capsule so that its destructor leaves it alone, and calls the struct's deleter when it is done.

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

use pyo3::ffi;
use pyo3::prelude::*;

use crate::error::ArgumentError;

/// The capsule's name before it is consumed.
const NAME: &CStr = c"dltensor";
/// And afterwards.
const USED_NAME: &CStr = c"used_dltensor";

/// Host memory, plain and pinned.
const HOST_DEVICES: [i32; 2] = [1, 3];

/// Kinds of elements.
pub(crate) const INT: u8 = 0;
pub(crate) const UNSIGNED: u8 = 1;
pub(crate) const FLOAT: u8 = 2;
pub(crate) const BFLOAT: u8 = 4;
pub(crate) const BOOL: u8 = 6;

#[repr(C)]
#[derive(Clone, Copy)]
struct Device {
    kind: i32,
    id: i32,
}

/// An element type.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Element {
    pub(crate) code: u8,
    pub(crate) bits: u8,
    pub(crate) lanes: u16,
}

#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device: Device,
    ndim: i32,
    dtype: Element,
    shape: *const i64,
    /// In elements; null: C-contiguous.
    strides: *const i64,
    byte_offset: u64,
}

#[repr(C)]
struct Managed {
    tensor: Tensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Managed)>,
}

/// A tensor that was handed over, until it is dropped, which takes the GIL.
pub(crate) struct Handed(NonNull<Managed>);

// SAFETY: the struct is this object's alone once the capsule is renamed; nothing in it is bound to a thread.
unsafe impl Send for Handed {}
// SAFETY: it is only read.
unsafe impl Sync for Handed {}

/// What a tensor is.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) addr: u64,
    pub(crate) element: Element,
    pub(crate) shape: Vec<usize>,
    pub(crate) is_contiguous: bool,
}

impl Handed {
    /// Takes a tensor from an object that has `__dlpack__`.
    pub(crate) fn take(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = object.py();
        if let Ok(device) = object.call_method0("__dlpack_device__") {
            let (kind, _): (i32, i32) = device.extract()?;
            if !HOST_DEVICES.contains(&kind) {
                return Err(ArgumentError::new_err(format!(
                    "a DLPack tensor in the memory of device type {kind}: only host memory (1 or 3) can be passed"
                )));
            }
        }
        let capsule = object.call_method0("__dlpack__")?;
        // SAFETY: any object may be asked.
        let managed = unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), NAME.as_ptr()) };
        let Some(managed) = NonNull::new(managed.cast::<Managed>()) else {
            return Err(PyErr::fetch(py));
        };
        // SAFETY: it is the capsule that has just given its pointer.
        if unsafe { ffi::PyCapsule_SetName(capsule.as_ptr(), USED_NAME.as_ptr()) } != 0 {
            return Err(PyErr::fetch(py));
        }
        Ok(Self(managed))
    }

    fn tensor(&self) -> &Tensor {
        // SAFETY: the producer keeps the struct until its deleter is called, which only `drop` does.
        unsafe { &self.0.as_ref().tensor }
    }

    /// What it is.
    pub(crate) fn view(&self) -> PyResult<View> {
        let tensor = self.tensor();
        if !HOST_DEVICES.contains(&tensor.device.kind) {
            let (kind, id) = (tensor.device.kind, tensor.device.id);
            return Err(ArgumentError::new_err(format!("a DLPack tensor on device {id} of type {kind}")));
        }
        let ndim = usize::try_from(tensor.ndim).unwrap_or(0);
        // SAFETY: the producer gives `ndim` numbers; there may be no pointer where there are none.
        let shape = unsafe { numbers(tensor.shape, ndim) }.unwrap_or_default();
        // SAFETY: as above, or null.
        let strides = unsafe { numbers(tensor.strides, ndim) };
        Ok(View {
            addr: (tensor.data.expose_provenance() as u64).wrapping_add(tensor.byte_offset),
            element: tensor.dtype,
            shape: shape.iter().map(|&extent| usize::try_from(extent).unwrap_or(0)).collect(),
            is_contiguous: strides.is_none_or(|strides| is_contiguous(shape, strides)),
        })
    }
}

impl Drop for Handed {
    fn drop(&mut self) {
        let managed = self.0;
        Python::attach(|_| {
            // SAFETY: as in `tensor`.
            if let Some(deleter) = unsafe { managed.as_ref() }.deleter {
                // SAFETY: called once, with the struct that it is of, under the GIL.
                unsafe { deleter(managed.as_ptr()) };
            }
        });
    }
}

/// # Safety
/// `first` is null, or the first of `count` numbers that live as long as the result is used.
unsafe fn numbers<'a>(first: *const i64, count: usize) -> Option<&'a [i64]> {
    // SAFETY: the caller's obligation.
    (!first.is_null()).then(|| unsafe { std::slice::from_raw_parts(first, count) })
}

/// Whether elements follow each other, the last dimension the fastest. How far one goes in a dimension of one element
/// does not matter.
fn is_contiguous(shape: &[i64], strides: &[i64]) -> bool {
    if shape.contains(&0) {
        return true;
    }
    let mut expected = 1_i64;
    shape.iter().zip(strides).rev().all(|(&extent, &stride)| {
        let fits = extent == 1 || stride == expected;
        expected = expected.saturating_mul(extent);
        fits
    })
}
