//! `orchestration.h`.

use core::ffi::{c_char, c_int, c_void};

use crate::SimplerTensor;

/// Most tensors of a task.
pub const TASK_TENSORS_MAX: usize = 32;
/// Most scalars of a task.
pub const TASK_SCALARS_MAX: usize = 16;
/// Most tensors of a chip entry.
pub const CHIP_TENSORS_MAX: usize = 256;
/// Most scalars of a chip entry.
pub const CHIP_SCALARS_MAX: usize = 128;
/// Most blocks of a task.
pub const TASK_BLOCKS_MAX: u32 = 65_535;
/// No kernel of this kind.
pub const NO_KERNEL: i32 = -1;

/// How a task uses a tensor (`SIMPLER_INPUT` …).
#[repr(u64)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgUse {
    /// Read.
    Input = 0,
    /// Written whole, allocated by the runtime.
    Output = 1,
    /// Read and written.
    InOut = 2,
    /// Written, memory is the caller's.
    OutputExisting = 3,
    /// No dependency either way.
    NoDep = 4,
}

impl ArgUse {
    /// The use that a C value names.
    pub const fn from_raw(raw: u64) -> Option<Self> {
        Some(match raw {
            0 => Self::Input,
            1 => Self::Output,
            2 => Self::InOut,
            3 => Self::OutputExisting,
            4 => Self::NoDep,
            _ => return None,
        })
    }
}

/// Core kinds.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CoreKind {
    /// Cube (matrix) core.
    Aic = 0,
    /// Vector core.
    Aiv = 1,
}

/// Opaque to orchestrations.
#[repr(C)]
pub struct SimplerRun {
    _opaque: [u8; 0],
}

/// One argument of a task.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SimplerTaskArg {
    /// Copied at submit; an output's `addr` and `owner_task` are stored through it.
    pub tensor: *mut SimplerTensor,
    /// An [`ArgUse`].
    pub arg_use: u64,
}

/// Bit of [`SimplerTask::attrs`]: tasks that wait for it may be on their cores before it has finished; they start when it
/// has.
pub const TASK_EARLY_RESOLVE: u8 = 1 << 0;
/// Bit of [`SimplerTask::attrs`]: all blocks run at the same time.
pub const TASK_SYNC_START: u8 = 1 << 1;
/// Bit of [`SimplerTask::attrs`]: the task is skipped if a word is 0.
pub const TASK_PREDICATE: u8 = 1 << 2;
/// Bit of [`SimplerTask::attrs`]: the task is timed in the slot of bits 4 to 7.
pub const TASK_TIMED: u8 = 1 << 3;
/// Where the slot's bits begin.
pub const TASK_SLOT_SHIFT: u32 = 4;
/// The highest slot.
pub const TASK_TIMING_SLOT_MAX: i32 = 15;
/// What [`SimplerTask::timing_slot`] is of a task that is not timed.
pub const TASK_TIMING_SLOT_NONE: i32 = -1;
/// Bit of [`SimplerTask::argument_error`]: a slot was refused.
pub const ARGUMENT_TIMING_SLOT: u8 = 1 << 0;
/// Bit of [`SimplerTask::argument_error`]: a predicate was refused.
pub const ARGUMENT_PREDICATE: u8 = 1 << 1;

/// A task to submit; see `orchestration.h` for the shapes that follow from its kernels.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SimplerTask {
    /// `sizeof(SimplerTask)` of the caller.
    pub struct_size: u32,
    /// Kernel index for the AIC, or [`NO_KERNEL`].
    pub aic: i32,
    /// Kernel index for the first AIV.
    pub aiv0: i32,
    /// Kernel index for the second AIV.
    pub aiv1: i32,
    /// `arg_count` arguments.
    pub args: *const SimplerTaskArg,
    /// `scalar_count` values.
    pub scalars: *const u64,
    /// Number of tensors.
    pub arg_count: u32,
    /// Number of scalars.
    pub scalar_count: u32,
    /// `dep_count` ids of earlier tasks to wait for, besides those that follow from the tensors.
    pub deps: *const i64,
    /// Number of ids.
    pub dep_count: u32,
    /// `TASK_*` bits.
    pub attrs: u8,
    /// `ARGUMENT_*` bits: what a setter has refused.
    pub argument_error: u8,
    /// With [`TASK_PREDICATE`] the argument whose first word decides.
    pub predicate: u8,
    /// Zero.
    pub reserved0: u8,
    /// 1 to [`TASK_BLOCKS_MAX`].
    pub block_count: u32,
    /// Zero.
    pub reserved1: u32,
}

impl SimplerTask {
    /// A task of one block, without kernels, arguments or attributes.
    pub const fn new() -> Self {
        Self {
            struct_size: size_of::<Self>() as u32,
            aic: NO_KERNEL,
            aiv0: NO_KERNEL,
            aiv1: NO_KERNEL,
            args: core::ptr::null(),
            scalars: core::ptr::null(),
            arg_count: 0,
            scalar_count: 0,
            deps: core::ptr::null(),
            dep_count: 0,
            attrs: 0,
            argument_error: 0,
            predicate: 0,
            reserved0: 0,
            block_count: 1,
            reserved1: 0,
        }
    }

    /// Runs the task only if the 32-bit word that argument `arg` begins with is not 0 when all that the task waits
    /// for is done. An `arg` that no task has is remembered as an argument error, which fails the submit.
    pub const fn set_predicate(&mut self, arg: u32) {
        if arg >= TASK_TENSORS_MAX as u32 {
            self.argument_error |= ARGUMENT_PREDICATE;
            return;
        }
        self.attrs |= TASK_PREDICATE;
        self.predicate = arg as u8;
    }

    /// Times the task in slot 0 to 15. Any other number is remembered as an argument error, which fails the submit,
    /// and the slot stays as it was.
    pub const fn set_task_timing_slot(&mut self, id: i32) {
        if id < 0 || id > TASK_TIMING_SLOT_MAX {
            self.argument_error |= ARGUMENT_TIMING_SLOT;
            return;
        }
        self.attrs = self.attrs & (TASK_TIMED - 1) | TASK_TIMED | (id as u8) << TASK_SLOT_SHIFT;
    }

    /// The slot that the task is timed in, or [`TASK_TIMING_SLOT_NONE`].
    pub const fn task_timing_slot(&self) -> i32 {
        if self.attrs & TASK_TIMED == 0 {
            TASK_TIMING_SLOT_NONE
        } else {
            (self.attrs >> TASK_SLOT_SHIFT) as i32
        }
    }
}

impl Default for SimplerTask {
    fn default() -> Self {
        Self::new()
    }
}

/// Arguments of the chip entry.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SimplerChipArgs {
    /// `tensor_count` views.
    pub tensors: *const SimplerTensor,
    /// `scalar_count` values.
    pub scalars: *const u64,
    /// Number of tensors.
    pub tensor_count: u32,
    /// Number of scalars.
    pub scalar_count: u32,
}

/// What an orchestration expects.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SimplerOrchestrationConfig {
    /// Size of this struct in the runtime.
    pub struct_size: u32,
    /// Fewest tensors.
    pub tensors_min: u32,
    /// Fewest scalars.
    pub scalars_min: u32,
}

/// The operations table.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SimplerOrchestrationApi {
    /// Size of this struct in the runtime.
    pub struct_size: u32,
    /// See `orchestration.h`.
    pub submit_task: unsafe extern "C" fn(run: *mut SimplerRun, task: *const SimplerTask) -> i64,
    /// See `orchestration.h`.
    pub core_count: unsafe extern "C" fn(run: *mut SimplerRun, kind: c_int) -> u32,
    /// See `orchestration.h`.
    pub is_fatal: unsafe extern "C" fn(run: *mut SimplerRun) -> c_int,
    /// See `orchestration.h`.
    pub report_fatal: unsafe extern "C" fn(run: *mut SimplerRun, text: *const c_char),
    /// See `orchestration.h`.
    pub log:
        unsafe extern "C" fn(run: *mut SimplerRun, level: c_int, func: *const c_char, text: *const c_char),
    /// See `orchestration.h`; a `SimplerPhaseRecorder` of `swimlane.h`.
    pub phase_recorder: unsafe extern "C" fn(run: *mut SimplerRun) -> *mut c_void,
    /// See `orchestration.h`.
    pub submit_dummy_task: unsafe extern "C" fn(run: *mut SimplerRun, task: *const SimplerTask) -> i64,
    /// See `orchestration.h`.
    pub alloc_tensors:
        unsafe extern "C" fn(run: *mut SimplerRun, tensors: *const *mut SimplerTensor, count: u32) -> i64,
    /// See `orchestration.h`.
    pub get_tensor_data: unsafe extern "C" fn(
        run: *mut SimplerRun,
        tensor: *const SimplerTensor,
        to: *mut c_void,
        bytes: u64,
    ) -> i32,
    /// See `orchestration.h`.
    pub set_tensor_data: unsafe extern "C" fn(
        run: *mut SimplerRun,
        tensor: *const SimplerTensor,
        from: *const c_void,
        bytes: u64,
    ) -> i32,
    /// See `orchestration.h`.
    pub scope_begin: unsafe extern "C" fn(run: *mut SimplerRun) -> i32,
    /// See `orchestration.h`.
    pub scope_end: unsafe extern "C" fn(run: *mut SimplerRun) -> i32,
}

/// The symbol of an orchestration's entry.
pub const ORCHESTRATION_ENTRY: &str = "aicpu_orchestration_entry";
/// The symbol of an orchestration's configuration function.
pub const ORCHESTRATION_CONFIG: &str = "aicpu_orchestration_config";
/// The type of the entry.
pub type OrchestrationEntry = unsafe extern "C" fn(
    api: *const SimplerOrchestrationApi,
    run: *mut SimplerRun,
    args: *const SimplerChipArgs,
) -> c_int;
/// The type of the configuration function.
pub type OrchestrationConfigure = unsafe extern "C" fn(config: *mut SimplerOrchestrationConfig) -> c_int;
