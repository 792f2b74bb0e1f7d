//! `kernel.h`.

/// Most dimensions of a tensor.
pub const TENSOR_DIMS_MAX: usize = 5;
/// The owner of a buffer that no task made.
pub const NO_TASK: u64 = u64::MAX;

/// Element types; the Q types are GGUF block formats of 32 elements.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DType {
    /// 32-bit float.
    F32 = 0,
    /// 16-bit float.
    F16 = 1,
    /// 32-bit signed integer.
    I32 = 2,
    /// Byte.
    U8 = 3,
    /// 20 bytes a block: f16 d, f16 m, 16 bytes of nibbles.
    Q4_1 = 4,
    /// 34 bytes a block: f16 d, 32 signed bytes.
    Q8_0 = 5,
}

/// `address_space` of memory that the host owns.
pub const HOST_MEMORY: u8 = 0;
/// `address_space` of memory that the device owns.
pub const DEVICE_MEMORY: u8 = 1;

/// A view of a buffer; see `kernel.h` for each field.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimplerTensor {
    /// First byte of the buffer; 0 where the runtime is to allocate.
    pub addr: u64,
    /// Size of the buffer in bytes.
    pub bytes: u64,
    /// The task that made the buffer, or [`NO_TASK`].
    pub owner_task: u64,
    /// Bytes from `addr` to the first element of the view.
    pub start_offset: u64,
    /// Content version.
    pub version: u32,
    /// Dimensions in use.
    pub ndims: u32,
    /// A [`DType`].
    pub dtype: u8,
    /// Non-zero: dependencies of this tensor are declared by hand.
    pub manual_dep: u8,
    /// Non-zero: `strides` is not read.
    pub contiguous: u8,
    /// [`HOST_MEMORY`] or [`DEVICE_MEMORY`].
    pub address_space: u8,
    /// Elements per dimension, outermost first.
    pub shapes: [u32; TENSOR_DIMS_MAX],
    /// Bytes that the view spans from `start_offset`.
    pub extent: u64,
    /// Bytes per step of each dimension.
    pub strides: [u64; TENSOR_DIMS_MAX],
    /// Zero.
    pub reserved: [u64; 2],
}

impl SimplerTensor {
    /// A contiguous view of a whole buffer of `bytes` bytes at `addr`, one-dimensional in bytes of `dtype`.
    pub const fn whole(addr: u64, bytes: u64, dtype: DType, address_space: u8) -> Self {
        Self {
            addr,
            bytes,
            owner_task: NO_TASK,
            start_offset: 0,
            version: 0,
            ndims: 1,
            dtype: dtype as u8,
            manual_dep: 0,
            contiguous: 1,
            address_space,
            shapes: [0; TENSOR_DIMS_MAX],
            extent: bytes,
            strides: [0; TENSOR_DIMS_MAX],
            reserved: [0; 2],
        }
    }

    /// The first element of the view, as `simpler_tensor_data` gives it. Good where the address is: in a kernel.
    pub const fn data<T>(&self) -> *mut T {
        core::ptr::with_exposed_provenance_mut((self.addr + self.start_offset) as usize)
    }
}

/// What `kernel_entry` receives.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SimplerKernelArgs {
    /// `tensor_count` pointers to views.
    pub tensors: *const *const SimplerTensor,
    /// `scalar_count` values.
    pub scalars: *const u64,
    /// Number of tensors.
    pub tensor_count: u32,
    /// Number of scalars.
    pub scalar_count: u32,
    /// This block, from 0.
    pub block_index: u32,
    /// Blocks of the task.
    pub block_count: u32,
}

/// The symbol of a kernel object.
pub const KERNEL_ENTRY: &str = "kernel_entry";
/// The type of `kernel_entry`.
pub type KernelEntry = unsafe extern "C" fn(args: *const SimplerKernelArgs);
