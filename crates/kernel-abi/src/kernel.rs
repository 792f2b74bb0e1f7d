//! `kernel.h`.

use core::sync::atomic::{AtomicU32, Ordering};

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

/// What a kernel may wait for besides its own return, at most.
pub const COMPLETIONS_MAX: usize = 4;
/// `kind` of a completion: a 32-bit word has reached a value.
pub const COMPLETION_COUNTER: u32 = 1;
/// `kind` of a completion: a copy of the copy engine has ended; `addr` is that of its state.
pub const COMPLETION_COPY: u32 = 2;

/// What a task waits for after a kernel of its has returned.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SimplerCompletion {
    /// Of a 32-bit word, 4-byte aligned.
    pub addr: u64,
    /// Of a counter: what the word is to reach, unsigned.
    pub value: u32,
    /// A `COMPLETION_*`.
    pub kind: u32,
}

/// What one kernel waits for.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct SimplerCompletions {
    /// How many it has asked for; more than there is room for fails the run.
    pub count: u32,
    /// Zero.
    pub reserved: u32,
    /// The first of them.
    pub entries: [SimplerCompletion; COMPLETIONS_MAX],
}

/// Copies that the engine has room for at a time.
pub const COPIES_MAX: usize = 64;
/// State of a copy: free.
pub const COPY_FREE: u32 = 0;
/// State of a copy: being filled by a kernel.
pub const COPY_CLAIMED: u32 = 1;
/// State of a copy: the engine's.
pub const COPY_SUBMITTED: u32 = 2;
/// State of a copy: ended.
pub const COPY_DONE: u32 = 3;
/// State of a copy: refused by the engine.
pub const COPY_FAILED: u32 = 4;

/// A copy of the copy engine.
#[repr(C)]
#[derive(Debug)]
pub struct SimplerCopy {
    /// To where.
    pub dst: u64,
    /// From where.
    pub src: u64,
    /// How much.
    pub bytes: u64,
    /// A `COPY_*`.
    pub state: AtomicU32,
    /// Zero.
    pub reserved: u32,
}

/// The workspace of the copy engine, in device memory. All zero is one without copies.
#[repr(C)]
#[derive(Debug)]
pub struct SimplerCopyEngine {
    /// Copies so far.
    pub submitted: AtomicU32,
    /// Zero.
    pub reserved: [u32; 15],
    /// The copies.
    pub copies: [SimplerCopy; COPIES_MAX],
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
    /// Where the kernel says what it waits for; null: nobody looks there.
    pub completions: *mut SimplerCompletions,
    /// The copy engine; null: there is none.
    pub copy_engine: *mut SimplerCopyEngine,
}

impl SimplerKernelArgs {
    /// The one block of a task without tensors and scalars, which can leave nothing to others.
    pub const NONE: Self = Self {
        tensors: core::ptr::null(),
        scalars: core::ptr::null(),
        tensor_count: 0,
        scalar_count: 0,
        block_index: 0,
        block_count: 1,
        completions: core::ptr::null_mut(),
        copy_engine: core::ptr::null_mut(),
    };

    /// `simpler_complete_at`: the task completes only when `word` is at least `value`; whether anybody looks.
    ///
    /// # Safety
    /// - These are the arguments that the kernel was called with, which has not returned.
    /// - `word` stays where it is until the task has completed.
    pub unsafe fn complete_at(&self, word: *const AtomicU32, value: u32) -> bool {
        // SAFETY: null, or this kernel's own until it returns.
        let Some(completions) = (unsafe { self.completions.as_mut() }) else { return false };
        if let Some(entry) = completions.entries.get_mut(completions.count as usize) {
            *entry =
                SimplerCompletion { addr: word.expose_provenance() as u64, value, kind: COMPLETION_COUNTER };
        }
        completions.count += 1;
        true
    }

    /// `simpler_copy_async`: starts a copy on the device's copy engine; whether there was one with room.
    ///
    /// # Safety
    /// - These are the arguments that the kernel was called with, which has not returned.
    /// - Both ranges are memory of the task's tensors, do not overlap, and nobody else touches them until the task has
    ///   completed.
    pub unsafe fn copy_async(&self, dst: *mut u8, src: *const u8, bytes: u64) -> bool {
        // SAFETY: null, or this kernel's own until it returns.
        let Some(completions) = (unsafe { self.completions.as_mut() }) else { return false };
        let Some(entry) = completions.entries.get_mut(completions.count as usize) else { return false };
        if self.copy_engine.is_null() {
            return false;
        }
        for index in 0..COPIES_MAX {
            // SAFETY: the workspace of the engine, which outlives every run; no reference to a copy that another has.
            let copy = unsafe { &raw mut (*self.copy_engine).copies[index] };
            // SAFETY: as above; the state is an atomic.
            let state = unsafe { &(*copy).state };
            // ORDERING: Acquire: pairs with the Release that freed it: who had it before is done with it. Relaxed on
            // failure: another one is tried.
            if state.compare_exchange(COPY_FREE, COPY_CLAIMED, Ordering::Acquire, Ordering::Relaxed).is_err()
            {
                continue;
            }
            let what = [dst.expose_provenance() as u64, src.expose_provenance() as u64, bytes];
            // SAFETY: claimed, so this kernel's alone until it is submitted; it begins with these three fields.
            unsafe { copy.cast::<[u64; 3]>().write(what) };
            // ORDERING: Release: pairs with the Acquire of the engine: the copy is whole.
            state.store(COPY_SUBMITTED, Ordering::Release);
            // SAFETY: as above; the count is an atomic.
            let submitted = unsafe { &(*self.copy_engine).submitted };
            // ORDERING: Release: who sees the count sees the copy.
            submitted.fetch_add(1, Ordering::Release);
            let addr = address_of(state);
            *entry = SimplerCompletion { addr, value: COPY_DONE, kind: COMPLETION_COPY };
            completions.count += 1;
            return true;
        }
        false
    }
}

fn address_of(word: &AtomicU32) -> u64 {
    core::ptr::from_ref(word).expose_provenance() as u64
}

/// The symbol of a kernel object.
pub const KERNEL_ENTRY: &str = "kernel_entry";
/// The type of `kernel_entry`.
pub type KernelEntry = unsafe extern "C" fn(args: *const SimplerKernelArgs);
