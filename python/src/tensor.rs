//! Arguments of runs: a view of memory that Python, a chip or another framework owns.
//!
//! [`Tensor`] holds what it views: a buffer stays exported, a DLPack tensor stays handed over, until the run that names
//! it has ended and the object is dropped. Only C-contiguous memory is taken, as it is; nothing here copies.

use pyo3::buffer::{ElementType, PyUntypedBuffer};
use pyo3::prelude::*;
use simpler_kernel_abi::{ArgUse, DEVICE_MEMORY, DType, HOST_MEMORY, SimplerTensor, TENSOR_DIMS_MAX};

use crate::dlpack::{self, Handed};
use crate::error::ArgumentError;

/// Elements of a block of a Q type.
const BLOCK_ELEMENTS: u64 = 32;

/// The element types by their names in Python.
const DTYPES: [(&str, DType); 6] = [
    ("float32", DType::F32),
    ("float16", DType::F16),
    ("int32", DType::I32),
    ("uint8", DType::U8),
    ("q4_1", DType::Q4_1),
    ("q8_0", DType::Q8_0),
];

/// The uses by theirs.
const USES: [(&str, ArgUse); 5] = [
    ("in", ArgUse::Input),
    ("out", ArgUse::OutputExisting),
    ("inout", ArgUse::InOut),
    ("output", ArgUse::Output),
    ("nodep", ArgUse::NoDep),
];

/// Bytes of a block of elements, and how many those are.
const fn block(dtype: DType) -> (u64, u64) {
    match dtype {
        DType::F32 | DType::I32 => (4, 1),
        DType::F16 => (2, 1),
        DType::U8 => (1, 1),
        DType::Q4_1 => (20, BLOCK_ELEMENTS),
        DType::Q8_0 => (34, BLOCK_ELEMENTS),
    }
}

/// What a tensor keeps.
#[expect(dead_code, reason = "kept for what dropping them does")]
enum Memory {
    Buffer(PyUntypedBuffer),
    Handed(Handed),
    /// A part of another one's.
    Part(Py<Tensor>),
    /// A chip's, which nothing here keeps.
    Device,
}

/// An argument of a run.
#[pyclass(frozen, name = "_Tensor", module = "simpler._task_interface")]
pub(crate) struct Tensor {
    pub(crate) addr: u64,
    pub(crate) bytes: u64,
    pub(crate) arg_use: ArgUse,
    dtype: DType,
    dims: Dims,
    memory: Memory,
}

/// Elements per dimension.
#[derive(Clone, Copy, Default)]
struct Dims {
    count: u32,
    extents: [u32; TENSOR_DIMS_MAX],
}

impl Dims {
    fn new(shape: &[usize]) -> PyResult<Self> {
        if shape.len() > TENSOR_DIMS_MAX {
            return Err(ArgumentError::new_err(format!(
                "{} dimensions: a tensor has {TENSOR_DIMS_MAX} at most",
                shape.len()
            )));
        }
        // A number alone is one element.
        let shape = if shape.is_empty() { &[1] } else { shape };
        let mut dims = Self { count: shape.len() as u32, ..Self::default() };
        for (to, &extent) in dims.extents.iter_mut().zip(shape) {
            *to = u32::try_from(extent).map_err(|_| {
                ArgumentError::new_err(format!("a dimension of {extent}: 2^32 - 1 elements at most"))
            })?;
        }
        Ok(dims)
    }

    fn elements(&self) -> Option<u64> {
        let extents = &self.extents[..self.count as usize];
        extents.iter().try_fold(1_u64, |product, &extent| product.checked_mul(extent.into()))
    }
}

/// Memory with what is known of its elements.
struct Viewed {
    addr: u64,
    bytes: u64,
    dtype: Result<DType, String>,
    shape: Vec<usize>,
    is_read_only: bool,
    memory: Memory,
}

#[pymethods]
impl Tensor {
    /// A view of an object with the buffer protocol, or else DLPack.
    ///
    /// `use` is `in`, `out`, `inout`, `output` or `nodep`. `dtype` (a name) and `shape` replace the object's own; with
    /// `dtype` alone the tensor has one dimension. `raw` takes any element type for its bytes.
    #[new]
    #[pyo3(signature = (object, r#use, *, dtype=None, shape=None, raw=false))]
    fn new(
        object: &Bound<'_, PyAny>,
        r#use: &str,
        dtype: Option<&str>,
        shape: Option<Vec<usize>>,
        raw: bool,
    ) -> PyResult<Self> {
        let arg_use = use_of(r#use)?;
        let Viewed { addr, bytes, dtype: own_dtype, shape: own_shape, is_read_only, memory } = view(object)?;
        if is_read_only && writes(arg_use) {
            return Err(ArgumentError::new_err("the array is read-only, and the run would write it"));
        }
        if raw {
            let dims = Dims { count: 1, ..Dims::default() };
            return Ok(Self { addr, bytes, arg_use, dtype: DType::U8, dims, memory });
        }
        let own_shape = if dtype.is_none() { Some(own_shape) } else { None };
        let dtype = match dtype {
            Some(name) => dtype_of(name)?,
            None => own_dtype.map_err(ArgumentError::new_err)?,
        };
        let dims = dims_of(dtype, bytes, shape.or(own_shape))?;
        Ok(Self { addr, bytes, arg_use, dtype, dims, memory })
    }

    /// A view of `nbytes` bytes of a chip's memory.
    #[staticmethod]
    #[pyo3(signature = (address, nbytes, r#use, *, dtype, shape=None))]
    fn device(
        address: u64,
        nbytes: u64,
        r#use: &str,
        dtype: &str,
        shape: Option<Vec<usize>>,
    ) -> PyResult<Self> {
        let dtype = dtype_of(dtype)?;
        let dims = dims_of(dtype, nbytes, shape)?;
        let arg_use = use_of(r#use)?;
        Ok(Self { addr: address, bytes: nbytes, arg_use, dtype, dims, memory: Memory::Device })
    }

    #[getter]
    fn address(&self) -> u64 {
        self.addr
    }

    #[getter]
    fn nbytes(&self) -> u64 {
        self.bytes
    }

    #[getter]
    fn dtype(&self) -> &'static str {
        DTYPES.iter().find(|(_, dtype)| *dtype == self.dtype).map_or("", |(name, _)| name)
    }

    #[getter]
    fn shape(&self) -> Vec<u32> {
        self.dims.extents[..self.dims.count as usize].to_vec()
    }

    #[getter]
    fn r#use(&self) -> &'static str {
        USES.iter().find(|(_, arg_use)| *arg_use == self.arg_use).map_or("", |(name, _)| name)
    }
}

impl Tensor {
    /// What `whole` tensors of a native crate name: memory of a chip, or with `within` a part of that.
    pub(crate) fn of_descriptor(
        py: Python<'_>,
        tensor: &SimplerTensor,
        arg_use: ArgUse,
        within: &Py<Self>,
    ) -> PyResult<Self> {
        let dtype = DTYPES.iter().map(|(_, dtype)| *dtype).find(|dtype| *dtype as u8 == tensor.dtype);
        let dtype = dtype.ok_or_else(|| ArgumentError::new_err(format!("element type {}", tensor.dtype)))?;
        let memory = if tensor.address_space == DEVICE_MEMORY {
            Memory::Device
        } else {
            Memory::Part(within.clone_ref(py))
        };
        let dims = Dims { count: tensor.ndims, extents: tensor.shapes };
        Ok(Self { addr: tensor.addr, bytes: tensor.bytes, arg_use, dtype, dims, memory })
    }

    /// Whether it is memory of a chip.
    pub(crate) fn is_device(&self) -> bool {
        matches!(self.memory, Memory::Device)
    }

    /// Whether a run reads what is there.
    pub(crate) fn is_read(&self) -> bool {
        matches!(self.arg_use, ArgUse::Input | ArgUse::InOut | ArgUse::NoDep)
    }

    /// Whether a run writes to it.
    pub(crate) fn is_written(&self) -> bool {
        writes(self.arg_use)
    }

    /// The descriptor, with the memory at `addr`.
    pub(crate) fn descriptor(&self, addr: u64) -> SimplerTensor {
        let space = if self.is_device() { DEVICE_MEMORY } else { HOST_MEMORY };
        let mut descriptor = SimplerTensor::whole(addr, self.bytes, self.dtype, space);
        descriptor.ndims = self.dims.count;
        descriptor.shapes = self.dims.extents;
        descriptor
    }

    /// The bytes of a tensor in host memory.
    ///
    /// # Safety
    /// Nobody writes them while the result is used; Python code cannot while the GIL is held.
    pub(crate) unsafe fn bytes(&self) -> &[u8] {
        if self.bytes == 0 || self.is_device() {
            return &[];
        }
        let start = std::ptr::with_exposed_provenance::<u8>(self.addr as usize);
        // SAFETY: the memory is kept by `self.memory`, and this long; the rest is the caller's obligation.
        unsafe { std::slice::from_raw_parts(start, self.bytes as usize) }
    }

    /// The same, to be written.
    ///
    /// # Safety
    /// - The tensor [is written](Tensor::is_written).
    /// - Nobody else uses the bytes meanwhile; Python code cannot while the GIL is held.
    #[expect(clippy::mut_from_ref, reason = "the memory is not this object's")]
    pub(crate) unsafe fn bytes_mut(&self) -> &mut [u8] {
        if self.bytes == 0 || self.is_device() {
            return &mut [];
        }
        let start = std::ptr::with_exposed_provenance_mut::<u8>(self.addr as usize);
        // SAFETY: as above, and memory that is written is not read-only.
        unsafe { std::slice::from_raw_parts_mut(start, self.bytes as usize) }
    }
}

const fn writes(arg_use: ArgUse) -> bool {
    !matches!(arg_use, ArgUse::Input | ArgUse::NoDep)
}

fn view(object: &Bound<'_, PyAny>) -> PyResult<Viewed> {
    match PyUntypedBuffer::get(object) {
        Ok(buffer) => view_of_buffer(buffer),
        Err(_) if object.hasattr("__dlpack__")? => view_of_dlpack(Handed::take(object)?),
        Err(error) => Err(error),
    }
}

fn view_of_buffer(buffer: PyUntypedBuffer) -> PyResult<Viewed> {
    if !buffer.is_c_contiguous() {
        let (shape, strides) = (buffer.shape(), buffer.strides());
        return Err(ArgumentError::new_err(format!(
            "the array is not C-contiguous (shape {shape:?}, strides {strides:?} bytes): pass a contiguous copy, as \
             numpy.ascontiguousarray makes one"
        )));
    }
    let dtype = match ElementType::from_format(buffer.format()) {
        ElementType::Float { bytes: 4 } => Ok(DType::F32),
        ElementType::Float { bytes: 2 } => Ok(DType::F16),
        ElementType::SignedInteger { bytes: 4 } => Ok(DType::I32),
        ElementType::UnsignedInteger { bytes: 1 } => Ok(DType::U8),
        ElementType::UnsignedInteger { bytes } => Err(other_type(&format!("uint{}", 8 * bytes))),
        ElementType::SignedInteger { bytes } => Err(other_type(&format!("int{}", 8 * bytes))),
        ElementType::Float { bytes } => Err(other_type(&format!("float{}", 8 * bytes))),
        ElementType::Bool => Err(other_type("bool")),
        ElementType::Unknown => Err(other_type(&buffer.format().to_string_lossy())),
    };
    Ok(Viewed {
        addr: buffer.buf_ptr().expose_provenance() as u64,
        bytes: buffer.len_bytes() as u64,
        dtype,
        shape: buffer.shape().to_vec(),
        is_read_only: buffer.readonly(),
        memory: Memory::Buffer(buffer),
    })
}

fn view_of_dlpack(handed: Handed) -> PyResult<Viewed> {
    let dlpack::View { addr, element, shape, is_contiguous } = handed.view()?;
    if !is_contiguous {
        return Err(ArgumentError::new_err(format!(
            "the DLPack tensor is not C-contiguous (shape {shape:?}): pass a contiguous copy, as torch's contiguous() \
             makes one"
        )));
    }
    let dtype = match (element.code, element.bits, element.lanes) {
        (dlpack::FLOAT, 32, 1) => Ok(DType::F32),
        (dlpack::FLOAT, 16, 1) => Ok(DType::F16),
        (dlpack::INT, 32, 1) => Ok(DType::I32),
        (dlpack::UNSIGNED, 8, 1) => Ok(DType::U8),
        (dlpack::INT, bits, 1) => Err(other_type(&format!("int{bits}"))),
        (dlpack::UNSIGNED, bits, 1) => Err(other_type(&format!("uint{bits}"))),
        (dlpack::FLOAT, bits, 1) => Err(other_type(&format!("float{bits}"))),
        (dlpack::BFLOAT, bits, 1) => Err(other_type(&format!("bfloat{bits}"))),
        (dlpack::BOOL, _, 1) => Err(other_type("bool")),
        (code, bits, lanes) => Err(other_type(&format!("DLPack's {code} of {bits} bits in {lanes} lanes"))),
    };
    let bits = u64::from(element.bits) * u64::from(element.lanes);
    let elements = shape.iter().try_fold(1_u64, |product, &extent| product.checked_mul(extent as u64));
    let bytes = elements.and_then(|elements| elements.checked_mul(bits.div_ceil(8)));
    Ok(Viewed {
        addr,
        bytes: bytes.ok_or_else(|| ArgumentError::new_err("a DLPack tensor beyond an address space"))?,
        dtype,
        shape,
        // What cannot be written is not handed over by a producer of this version of the protocol.
        is_read_only: false,
        memory: Memory::Handed(handed),
    })
}

/// Why elements of this type cannot be passed.
fn other_type(name: &str) -> String {
    format!(
        "elements of type {name}: a chip has float32, float16, int32 and uint8, and q4_1 and q8_0 as blocks of bytes; \
         convert the array, or pass its bytes with dtype=\"uint8\""
    )
}

fn dims_of(dtype: DType, bytes: u64, shape: Option<Vec<usize>>) -> PyResult<Dims> {
    let (block_bytes, block_elements) = block(dtype);
    let name = DTYPES.iter().find(|(_, other)| *other == dtype).map_or("", |(name, _)| name);
    if !bytes.is_multiple_of(block_bytes) {
        return Err(ArgumentError::new_err(format!("{bytes} bytes are no whole number of {name} elements")));
    }
    let elements = bytes / block_bytes * block_elements;
    let dims = match shape {
        Some(shape) => Dims::new(&shape)?,
        None => Dims::new(&[elements as usize])?,
    };
    if dims.elements() != Some(elements) {
        let shape = &dims.extents[..dims.count as usize];
        return Err(ArgumentError::new_err(format!(
            "a shape of {shape:?} over {bytes} bytes, which are {elements} elements of {name}"
        )));
    }
    Ok(dims)
}

fn dtype_of(name: &str) -> PyResult<DType> {
    let found = DTYPES.iter().find(|(other, _)| *other == name);
    found.map(|(_, dtype)| *dtype).ok_or_else(|| ArgumentError::new_err(other_type(name)))
}

fn use_of(name: &str) -> PyResult<ArgUse> {
    let found = USES.iter().find(|(other, _)| *other == name);
    found.map(|(_, arg_use)| *arg_use).ok_or_else(|| {
        let names = USES.map(|(name, _)| name).join(", ");
        ArgumentError::new_err(format!("{name} is no use of an argument: {names}"))
    })
}
