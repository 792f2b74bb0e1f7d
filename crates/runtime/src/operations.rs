//! The operations table that an orchestration calls, over anything that can take a task.
//!
//! Each `extern "C"` function is one call into a safe function under `catch_unwind`. What C hands over is checked
//! here, once, for the executor and for the recorder alike: sizes, counts, pointers, uses, kernel indices. An error
//! fails the run and comes back as a negative code.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use simpler_device_phase::{TASK_SLOTS, TaskAttrs};
use simpler_kernel_abi::{
    ARGUMENT_PREDICATE, ARGUMENT_TIMING_SLOT, ArgUse, CoreKind, NO_KERNEL, SimplerOrchestrationApi,
    SimplerRun, SimplerTask, SimplerTensor, TASK_BLOCKS_MAX, TASK_EARLY_RESOLVE, TASK_PREDICATE,
    TASK_SCALARS_MAX, TASK_SLOT_SHIFT, TASK_SYNC_START, TASK_TENSORS_MAX, TASK_TIMED, TASK_TIMING_SLOT_MAX,
};
use simpler_log_abi::Level;

use crate::code;
use crate::graph::builder::{NewTask, TaskArg};
use crate::graph::fan::{PLACES, TaskKernels};
use crate::graph::gathering::GATHERED_MAX;
use crate::graph::{GraphError, Shape, TaskId};

/// Longest text of `report_fatal`, as the header promises.
const FATAL_TEXT_BYTES: usize = 255;
/// Longest text and function name of `log`: more than a record holds.
const LOG_TEXT_BYTES: usize = 512;

/// A task whose arguments were checked.
pub(crate) struct CheckedTask<'a> {
    /// Its kernels by index in the callable's list: for the AIC and the AIVs of a cluster. None for a dummy task.
    pub(crate) kernels: [Option<usize>; PLACES],
    /// How often it runs.
    pub(crate) blocks: u32,
    /// Its tensors; outputs are to be filled in.
    pub(crate) arguments: &'a mut [TaskArg],
    /// Its scalars.
    pub(crate) scalars: &'a [u64],
    /// Earlier tasks that it waits for, besides those that follow from its tensors; not checked yet.
    pub(crate) deps: &'a [i64],
    /// How it is scheduled and timed.
    pub(crate) attrs: TaskAttrs,
    /// The tensor whose first word is its predicate, if the attributes say that it has one; not checked yet.
    pub(crate) predicate: u8,
}

impl<'a> CheckedTask<'a> {
    /// The task for a graph in which its kernels have these values.
    pub(crate) fn into_new(self, kernels: TaskKernels) -> NewTask<'a> {
        let Self { blocks, arguments, scalars, deps, attrs, predicate, .. } = self;
        NewTask { kernels, blocks, arguments, scalars, deps, attrs, predicate }
    }
}

// The byte of the header is the byte of the scheduler.
const _: () = assert!(
    TASK_EARLY_RESOLVE == TaskAttrs::EARLY_RESOLVE
        && TASK_SYNC_START == TaskAttrs::SYNC_START
        && TASK_PREDICATE == TaskAttrs::PREDICATE
        && TASK_TIMED == TaskAttrs::IS_TIMED
        && TASK_SLOT_SHIFT == TaskAttrs::SLOT_SHIFT
        && TASK_TIMING_SLOT_MAX as usize + 1 == TASK_SLOTS
);

/// What stands behind the table.
pub(crate) trait Operations {
    /// The kinds of the callable's kernels, by index.
    fn kernel_kind(&self, kernel: usize) -> Option<CoreKind>;
    /// Memory for the checked arguments; reused from task to task.
    fn take_arguments(&mut self) -> Vec<TaskArg>;
    /// Gives the memory back.
    fn return_arguments(&mut self, arguments: Vec<TaskArg>);
    /// Adds a task; the value is its id.
    fn submit(&mut self, task: CheckedTask<'_>) -> Result<TaskId, GraphError>;
    /// Opens a scope in the innermost open one.
    fn begin_scope(&mut self) -> Result<(), GraphError>;
    /// Ends the innermost open scope.
    fn end_scope(&mut self) -> Result<(), GraphError>;
    /// Waits until no task so far writes any of a checked view, nor, `and_reads`, reads it.
    fn settle(&mut self, tensor: &SimplerTensor, and_reads: bool) -> Result<(), GraphError>;
    /// Copies from device memory; what is there was settled.
    fn read_memory(&self, addr: u64, to: &mut [u8]) -> Result<(), GraphError>;
    /// Copies to device memory; who uses it was waited for.
    fn write_memory(&self, addr: u64, from: &[u8]) -> Result<(), GraphError>;
    /// Cores of a kind.
    fn core_count(&self, kind: CoreKind) -> u32;
    /// Whether the run has failed.
    fn is_fatal(&self) -> bool;
    /// Fails the run.
    fn fail(&mut self, error: GraphError);
    /// The `SimplerPhaseRecorder` of the orchestration's named scopes; null where none are recorded.
    fn phase_recorder(&self) -> *mut c_void {
        std::ptr::null_mut()
    }
}

/// The table for an implementation. The `run` that goes with it is a pointer to that implementation.
pub(crate) const fn table<O: Operations>() -> SimplerOrchestrationApi {
    SimplerOrchestrationApi {
        struct_size: size_of::<SimplerOrchestrationApi>() as u32,
        submit_task: submit_task::<O>,
        core_count: core_count::<O>,
        is_fatal: is_fatal::<O>,
        report_fatal: report_fatal::<O>,
        log: log::<O>,
        phase_recorder: phase_recorder::<O>,
        submit_dummy_task: submit_dummy_task::<O>,
        alloc_tensors: alloc_tensors::<O>,
        get_tensor_data: get_tensor_data::<O>,
        set_tensor_data: set_tensor_data::<O>,
        scope_begin: scope_begin::<O>,
        scope_end: scope_end::<O>,
    }
}

/// The implementation behind an orchestration's `run`.
///
/// # Safety
/// - `run` is null or the pointer that the entry received, and its entry has not returned.
/// - No other reference from this function is alive.
unsafe fn behind<'a, O: Operations>(run: *mut SimplerRun) -> Option<&'a mut O> {
    // SAFETY: the caller's obligations.
    unsafe { run.cast::<O>().as_mut() }
}

unsafe extern "C" fn submit_task<O: Operations>(run: *mut SimplerRun, task: *const SimplerTask) -> i64 {
    // SAFETY: the header: all calls come from the entry, one at a time, with null or a task that lives through the
    // call.
    unsafe { submit_checked::<O>(run, "submit_task", task, checked_kernels::<O>) }
}

unsafe extern "C" fn submit_dummy_task<O: Operations>(run: *mut SimplerRun, task: *const SimplerTask) -> i64 {
    // SAFETY: as above.
    unsafe { submit_checked::<O>(run, "submit_dummy_task", task, |_, task| no_kernels(task)) }
}

unsafe extern "C" fn alloc_tensors<O: Operations>(
    run: *mut SimplerRun,
    tensors: *const *mut SimplerTensor,
    count: u32,
) -> i64 {
    let (name, count) = ("alloc_tensors", count as usize);
    let operation = |operations: Option<&mut O>| {
        let allocate = |operations: &mut O, arguments: &mut Vec<TaskArg>| {
            if count == 0 || count > TASK_TENSORS_MAX || tensors.is_null() {
                return Err(invalid(format_args!(
                    "{name}: {count} tensors, not 1 to {TASK_TENSORS_MAX} or at a null address"
                )));
            }
            // SAFETY: not null, and the header: `count` pointers that live through the call.
            let tensors = unsafe { elements(tensors, count) };
            let outputs = tensors.iter().map(|tensor| (*tensor, ArgUse::Output as u64));
            // SAFETY: the header: each is null or a tensor of the caller that nobody else holds.
            unsafe { check_arguments(name, outputs.clone(), arguments) }?;
            let id = operations.submit(without_kernels(arguments, &[], &[]))?;
            // SAFETY: as above; they were found not to be null.
            unsafe { store_outputs(arguments, outputs) };
            Ok(id)
        };
        with_arguments(operations, allocate)
    };
    // SAFETY: the header: all calls come from the entry, one at a time.
    unsafe { guarded(run, name, -i64::from(code::EXPLICIT_FATAL), operation) }
}

unsafe extern "C" fn get_tensor_data<O: Operations>(
    run: *mut SimplerRun,
    tensor: *const SimplerTensor,
    to: *mut c_void,
    bytes: u64,
) -> i32 {
    let name = "get_tensor_data";
    let read = |operations: &mut O| {
        // SAFETY: the header: null or a tensor that lives through the call.
        let (tensor, length) = checked_view(name, unsafe { tensor.as_ref() }, to.is_null(), bytes)?;
        operations.settle(tensor, false)?;
        if length == 0 {
            return Ok(());
        }
        // SAFETY: not null, and the header: so many bytes of the caller's to be written.
        let to = unsafe { std::slice::from_raw_parts_mut(to.cast::<u8>(), length) };
        operations.read_memory(tensor.addr + tensor.start_offset, to)
    };
    // SAFETY: the header: all calls come from the entry, one at a time.
    unsafe { guarded(run, name, -(code::EXPLICIT_FATAL as i32), |operations| status(operations, read)) }
}

unsafe extern "C" fn set_tensor_data<O: Operations>(
    run: *mut SimplerRun,
    tensor: *const SimplerTensor,
    from: *const c_void,
    bytes: u64,
) -> i32 {
    let name = "set_tensor_data";
    let write = |operations: &mut O| {
        // SAFETY: the header: null or a tensor that lives through the call.
        let (tensor, length) = checked_view(name, unsafe { tensor.as_ref() }, from.is_null(), bytes)?;
        operations.settle(tensor, true)?;
        if length == 0 {
            return Ok(());
        }
        // SAFETY: not null, and the header: so many bytes of the caller's.
        let from = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), length) };
        operations.write_memory(tensor.addr + tensor.start_offset, from)
    };
    // SAFETY: the header: all calls come from the entry, one at a time.
    unsafe { guarded(run, name, -(code::EXPLICIT_FATAL as i32), |operations| status(operations, write)) }
}

unsafe extern "C" fn scope_begin<O: Operations>(run: *mut SimplerRun) -> i32 {
    let otherwise = -(code::EXPLICIT_FATAL as i32);
    // SAFETY: the header: all calls come from the entry, one at a time.
    unsafe { guarded(run, "scope_begin", otherwise, |operations| status(operations, O::begin_scope)) }
}

unsafe extern "C" fn scope_end<O: Operations>(run: *mut SimplerRun) -> i32 {
    let otherwise = -(code::EXPLICIT_FATAL as i32);
    // SAFETY: the header: all calls come from the entry, one at a time.
    unsafe { guarded(run, "scope_end", otherwise, |operations| status(operations, O::end_scope)) }
}

/// A view of which so many bytes can be copied.
fn checked_view<'a>(
    name: &str,
    tensor: Option<&'a SimplerTensor>,
    memory_is_null: bool,
    bytes: u64,
) -> Result<(&'a SimplerTensor, usize), GraphError> {
    let tensor = tensor.ok_or_else(|| invalid(format_args!("{name}: the tensor is null")))?;
    let end = tensor.start_offset.checked_add(tensor.extent).filter(|end| *end <= tensor.bytes);
    if end.is_none() || bytes > tensor.extent || tensor.contiguous == 0 {
        return Err(invalid(format_args!(
            "{name}: {bytes} bytes of a {} view of {} bytes at {} in a buffer of {}",
            if tensor.contiguous == 0 { "strided" } else { "contiguous" },
            tensor.extent,
            tensor.start_offset,
            tensor.bytes
        )));
    }
    if bytes != 0 && (memory_is_null || tensor.addr == 0) {
        return Err(invalid(format_args!("{name}: {bytes} bytes at or to a null address")));
    }
    let length = usize::try_from(bytes).map_err(|_| invalid(format_args!("{name}: {bytes} bytes")))?;
    Ok((tensor, length))
}

/// What an operation gives; an error fails the run, and its code is left.
fn or_fail<O: Operations, T>(
    operations: Option<&mut O>,
    operation: impl FnOnce(&mut O) -> Result<T, GraphError>,
) -> Result<T, u32> {
    let operations = operations.ok_or(code::INVALID_ARGUMENTS)?;
    operation(operations).map_err(|error| {
        let code = error.code;
        operations.fail(error);
        code
    })
}

/// As [`or_fail`]: 0, or the code with its sign changed.
fn status<O: Operations>(
    operations: Option<&mut O>,
    operation: impl FnOnce(&mut O) -> Result<(), GraphError>,
) -> i32 {
    or_fail(operations, operation).map_or_else(|code| -(code as i32), |()| 0)
}

/// What a submitted task runs: its kernels, and what else follows from them.
type Checked = Result<([Option<usize>; PLACES], u32, TaskAttrs), GraphError>;

/// Submits a task whose kernels `check` has looked at.
///
/// # Safety
/// - As for [`behind`]; `task` is null or lives through the call.
unsafe fn submit_checked<O: Operations>(
    run: *mut SimplerRun,
    name: &str,
    task: *const SimplerTask,
    check: impl Fn(&O, &SimplerTask) -> Checked,
) -> i64 {
    let operation = |operations: Option<&mut O>| {
        // SAFETY: the caller's obligation.
        let task = unsafe { task.as_ref() };
        with_arguments(operations, |operations: &mut O, arguments| {
            check_and_submit(operations, name, task, arguments, &check)
        })
    };
    // SAFETY: the caller's obligation.
    unsafe { guarded(run, name, -i64::from(code::EXPLICIT_FATAL), operation) }
}

/// Calls `submit` with memory for arguments; an error fails the run.
fn with_arguments<O: Operations>(
    operations: Option<&mut O>,
    submit: impl FnOnce(&mut O, &mut Vec<TaskArg>) -> Result<TaskId, GraphError>,
) -> i64 {
    let id = or_fail(operations, |operations| {
        let mut arguments = operations.take_arguments();
        arguments.clear();
        let result = submit(operations, &mut arguments);
        operations.return_arguments(arguments);
        result
    });
    id.map_or_else(|code| -i64::from(code), |id| id.raw().cast_signed())
}

fn check_and_submit<O: Operations>(
    operations: &mut O,
    name: &str,
    task: Option<&SimplerTask>,
    arguments: &mut Vec<TaskArg>,
    check: impl Fn(&O, &SimplerTask) -> Checked,
) -> Result<TaskId, GraphError> {
    let task = task.ok_or_else(|| invalid(format_args!("{name}: the task is null")))?;
    if task.struct_size as usize != size_of::<SimplerTask>() {
        return Err(invalid(format_args!(
            "{name}: struct_size is {}, this runtime knows {}",
            task.struct_size,
            size_of::<SimplerTask>()
        )));
    }
    let (kernels, blocks, attrs) = check(operations, task)?;
    let count = task.arg_count as usize;
    if count > TASK_TENSORS_MAX || (count != 0 && task.args.is_null()) {
        return Err(invalid(format_args!(
            "{name}: {count} tensors, at most {TASK_TENSORS_MAX} and not at a null address"
        )));
    }
    let scalar_count = task.scalar_count as usize;
    if scalar_count > TASK_SCALARS_MAX || (scalar_count != 0 && task.scalars.is_null()) {
        return Err(invalid(format_args!(
            "{name}: {scalar_count} scalars, at most {TASK_SCALARS_MAX} and not at a null address"
        )));
    }
    // SAFETY: not null unless empty, and the header: `arg_count` arguments that live through the call.
    let raw = unsafe { elements(task.args, count) };
    let raw = raw.iter().map(|argument| (argument.tensor, argument.arg_use));
    // SAFETY: as above, for `scalar_count` values.
    let scalars = unsafe { elements(task.scalars, scalar_count) };
    if task.dep_count != 0 && task.deps.is_null() {
        return Err(invalid(format_args!("{name}: {} tasks to wait for at a null address", task.dep_count)));
    }
    // SAFETY: as above, for `dep_count` ids.
    let deps = unsafe { elements(task.deps, task.dep_count as usize) };
    // SAFETY: the header: each is null or a tensor of the caller that nobody else holds.
    unsafe { check_arguments(name, raw.clone(), arguments) }?;
    let predicate = task.predicate;
    let checked =
        CheckedTask { kernels, blocks, attrs, predicate, ..without_kernels(arguments, scalars, deps) };
    let id = operations.submit(checked)?;
    // SAFETY: as above; they were found not to be null.
    unsafe { store_outputs(arguments, raw) };
    Ok(id)
}

/// A task of these arguments that runs nothing.
fn without_kernels<'a>(arguments: &'a mut [TaskArg], scalars: &'a [u64], deps: &'a [i64]) -> CheckedTask<'a> {
    let attrs = TaskAttrs::default();
    CheckedTask { kernels: [None; PLACES], blocks: 1, arguments, scalars, deps, attrs, predicate: 0 }
}

/// Copies the tensors of a task.
///
/// # Safety
/// - Each tensor is null or the address of one that nobody writes meanwhile.
unsafe fn check_arguments(
    name: &str,
    raw: impl Iterator<Item = (*mut SimplerTensor, u64)>,
    arguments: &mut Vec<TaskArg>,
) -> Result<(), GraphError> {
    for (index, (tensor, arg_use)) in raw.enumerate() {
        let arg_use = ArgUse::from_raw(arg_use)
            .ok_or_else(|| invalid(format_args!("{name}: tensor {index} has use {arg_use}")))?;
        // SAFETY: the caller's obligation.
        let tensor = unsafe { tensor.as_ref() }
            .ok_or_else(|| invalid(format_args!("{name}: tensor {index} is null")))?;
        arguments.push(TaskArg { tensor: *tensor, arg_use });
    }
    Ok(())
}

/// Tells the caller where its outputs are.
///
/// # Safety
/// - Each tensor is the address of one that nobody else holds.
unsafe fn store_outputs(arguments: &[TaskArg], raw: impl Iterator<Item = (*mut SimplerTensor, u64)>) {
    for (argument, (tensor, _)) in arguments.iter().zip(raw) {
        if argument.arg_use == ArgUse::Output {
            // SAFETY: the caller's obligation.
            let tensor = unsafe { &mut *tensor };
            tensor.addr = argument.tensor.addr;
            tensor.owner_task = argument.tensor.owner_task;
        }
    }
}

/// The attributes of a task, unless a setter has refused something or they ask for what this runtime has not.
fn checked_attrs(task: &SimplerTask) -> Result<TaskAttrs, GraphError> {
    if task.argument_error & ARGUMENT_TIMING_SLOT != 0 {
        return Err(invalid(format_args!(
            "submit_task: a task-timing slot was set that is not one of 0 to {TASK_TIMING_SLOT_MAX}"
        )));
    }
    if task.argument_error & ARGUMENT_PREDICATE != 0 {
        return Err(invalid(format_args!(
            "submit_task: a predicate was set that is not one of {TASK_TENSORS_MAX} tensors"
        )));
    }
    if task.argument_error != 0 {
        return Err(invalid(format_args!("submit_task: argument_error is {:#x}", task.argument_error)));
    }
    Ok(TaskAttrs::from_bits(task.attrs))
}

/// What a task with kernels runs.
fn checked_kernels<O: Operations>(operations: &O, task: &SimplerTask) -> Checked {
    let attrs = checked_attrs(task)?;
    let named = [(task.aic, CoreKind::Aic), (task.aiv0, CoreKind::Aiv), (task.aiv1, CoreKind::Aiv)];
    let mut kernels = [None; PLACES];
    for (place, (index, kind)) in kernels.iter_mut().zip(named) {
        if index == NO_KERNEL {
            continue;
        }
        let kernel = usize::try_from(index).ok();
        match kernel.and_then(|kernel| Some((kernel, operations.kernel_kind(kernel)?))) {
            None => return Err(invalid(format_args!("submit_task: the callable has no kernel {index}"))),
            Some((_, of)) if of != kind => {
                return Err(invalid(format_args!(
                    "submit_task: kernel {index} is for {of:?}, the task names it for {kind:?}"
                )));
            }
            Some((kernel, _)) => *place = Some(kernel),
        }
    }
    let places = kernels.map(|kernel| kernel.map(|_| 0));
    let Some(shape) = TaskKernels::new(places).shape() else {
        return Err(invalid("submit_task: the task names no kernel: that is what submit_dummy_task takes"));
    };
    let blocks = task.block_count;
    if blocks == 0 || blocks > TASK_BLOCKS_MAX {
        return Err(invalid(format_args!("submit_task: {blocks} blocks, not 1 to {TASK_BLOCKS_MAX}")));
    }
    // A cluster has one AIC.
    let (units, what) = match shape {
        Shape::Aic => (operations.core_count(CoreKind::Aic), "AICs"),
        Shape::Aiv => (operations.core_count(CoreKind::Aiv), "AIVs"),
        Shape::Mix => (operations.core_count(CoreKind::Aic), "clusters"),
    };
    let units = units.min(GATHERED_MAX);
    if attrs.bits() & TASK_SYNC_START != 0 && blocks > units {
        let text = format!("submit_task: {blocks} blocks cannot start together on {units} {what}");
        return Err(GraphError { code: code::SYNC_START_INVALID, text });
    }
    Ok((kernels, blocks, attrs))
}

/// What a task without kernels runs: nothing, once, and whatever its attributes say.
fn no_kernels(task: &SimplerTask) -> Checked {
    if [task.aic, task.aiv0, task.aiv1] != [NO_KERNEL; PLACES] {
        return Err(invalid("submit_dummy_task: the task names a kernel: that is what submit_task takes"));
    }
    Ok(([None; PLACES], 1, TaskAttrs::default()))
}

unsafe extern "C" fn core_count<O: Operations>(run: *mut SimplerRun, kind: c_int) -> u32 {
    let kind = match kind {
        0 => CoreKind::Aic,
        1 => CoreKind::Aiv,
        _ => return 0,
    };
    let operation =
        |operations: Option<&mut O>| operations.map_or(0, |operations| operations.core_count(kind));
    // SAFETY: the header: all calls come from the entry, one at a time.
    unsafe { guarded(run, "core_count", 0, operation) }
}

unsafe extern "C" fn is_fatal<O: Operations>(run: *mut SimplerRun) -> c_int {
    let operation =
        |operations: Option<&mut O>| operations.map_or(1, |operations| c_int::from(operations.is_fatal()));
    // SAFETY: the header: all calls come from the entry, one at a time.
    unsafe { guarded(run, "is_fatal", 1, operation) }
}

unsafe extern "C" fn report_fatal<O: Operations>(run: *mut SimplerRun, text: *const c_char) {
    let operation = |operations: Option<&mut O>| {
        let mut buffer = [0; FATAL_TEXT_BYTES];
        // SAFETY: null, or a string of the caller that lives through the call.
        let text = unsafe { copied_text(text, &mut buffer) };
        if let Some(operations) = operations {
            operations.fail(GraphError { code: code::EXPLICIT_FATAL, text: text.into_owned() });
        }
    };
    // SAFETY: the header: all calls come from the entry, one at a time.
    unsafe { guarded(run, "report_fatal", (), operation) }
}

unsafe extern "C" fn log<O: Operations>(
    run: *mut SimplerRun,
    level: c_int,
    func: *const c_char,
    text: *const c_char,
) {
    let operation = |_: Option<&mut O>| {
        let level = Level::round_record(level);
        if !simpler_host_log::enabled(level) {
            return;
        }
        let (mut func_buffer, mut text_buffer) = ([0; LOG_TEXT_BYTES], [0; LOG_TEXT_BYTES]);
        // SAFETY: null, or a string of the caller that lives through the call.
        let func = unsafe { copied_text(func, &mut func_buffer) };
        // SAFETY: as above.
        let text = unsafe { copied_text(text, &mut text_buffer) };
        simpler_host_log::log(level, &func, None, format_args!("{text}"));
    };
    // SAFETY: the header: all calls come from the entry, one at a time.
    unsafe { guarded(run, "log", (), operation) }
}

unsafe extern "C" fn phase_recorder<O: Operations>(run: *mut SimplerRun) -> *mut c_void {
    let nowhere = std::ptr::null_mut();
    let operation =
        |operations: Option<&mut O>| operations.map_or(nowhere, |operations| operations.phase_recorder());
    // SAFETY: the header: all calls come from the entry, one at a time.
    unsafe { guarded(run, "phase_recorder", nowhere, operation) }
}

/// Runs one operation; a panic in it fails the run and becomes `otherwise`.
///
/// # Safety
/// As for [`behind`].
unsafe fn guarded<O: Operations, R>(
    run: *mut SimplerRun,
    name: &str,
    otherwise: R,
    operation: impl FnOnce(Option<&mut O>) -> R,
) -> R {
    // SAFETY: the caller's obligations.
    let attempt = || operation(unsafe { behind::<O>(run) });
    let panic = match catch_unwind(AssertUnwindSafe(attempt)) {
        Ok(value) => return value,
        Err(panic) => panic,
    };
    // Dropping the payload could panic again.
    std::mem::forget(panic);
    let fail = || {
        // SAFETY: as above; the reference that the operation had is gone.
        if let Some(operations) = unsafe { behind::<O>(run) } {
            let text = format!("{name} panicked; this is an error of the runtime");
            operations.fail(GraphError { code: code::EXPLICIT_FATAL, text });
        }
    };
    // One that cannot even fail the run has nothing left to try.
    let _ = catch_unwind(AssertUnwindSafe(fail));
    otherwise
}

pub(crate) fn invalid(text: impl std::fmt::Display) -> GraphError {
    GraphError { code: code::INVALID_ARGUMENTS, text: text.to_string() }
}

/// The elements of a C array; none for a null pointer.
///
/// # Safety
/// - `first` is null or the address of `count` initialised, aligned elements that live for `'a`.
unsafe fn elements<'a, T>(first: *const T, count: usize) -> &'a [T] {
    if first.is_null() {
        return &[];
    }
    // SAFETY: the caller's obligation.
    unsafe { std::slice::from_raw_parts(first, count) }
}

/// A C string, cut to the size of `buffer`, with what is not UTF-8 replaced; empty for null.
///
/// # Safety
/// - `text` is null or the address of a string that ends in NUL.
unsafe fn copied_text<'a>(text: *const c_char, buffer: &'a mut [u8]) -> std::borrow::Cow<'a, str> {
    let mut length = 0;
    if !text.is_null() {
        // SAFETY: the caller's obligation.
        let bytes = unsafe { CStr::from_ptr(text) }.to_bytes();
        length = bytes.len().min(buffer.len());
        buffer[..length].copy_from_slice(&bytes[..length]);
    }
    String::from_utf8_lossy(&buffer[..length])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Panics wherever it is asked for something.
    #[derive(Default)]
    struct Panicking {
        failed: Vec<GraphError>,
    }

    impl Operations for Panicking {
        fn kernel_kind(&self, _: usize) -> Option<CoreKind> {
            panic!("kernel_kind")
        }
        fn take_arguments(&mut self) -> Vec<TaskArg> {
            panic!("take_arguments")
        }
        fn return_arguments(&mut self, _: Vec<TaskArg>) {}
        fn submit(&mut self, _: CheckedTask<'_>) -> Result<TaskId, GraphError> {
            panic!("submit")
        }
        fn begin_scope(&mut self) -> Result<(), GraphError> {
            panic!("begin_scope")
        }
        fn end_scope(&mut self) -> Result<(), GraphError> {
            panic!("end_scope")
        }
        fn settle(&mut self, _: &SimplerTensor, _: bool) -> Result<(), GraphError> {
            panic!("settle")
        }
        fn read_memory(&self, _: u64, _: &mut [u8]) -> Result<(), GraphError> {
            panic!("read_memory")
        }
        fn write_memory(&self, _: u64, _: &[u8]) -> Result<(), GraphError> {
            panic!("write_memory")
        }
        fn core_count(&self, _: CoreKind) -> u32 {
            panic!("core_count")
        }
        fn is_fatal(&self) -> bool {
            panic!("is_fatal")
        }
        fn fail(&mut self, error: GraphError) {
            self.failed.push(error);
        }
    }

    #[test]
    fn a_panic_in_an_operation_fails_the_run() {
        let mut behind = Panicking::default();
        let run: *mut SimplerRun = (&raw mut behind).cast();
        let table = table::<Panicking>();
        // SAFETY: the pointer that belongs to the table; a null task is allowed.
        assert_eq!(unsafe { (table.submit_task)(run, std::ptr::null()) }, -i64::from(code::EXPLICIT_FATAL));
        // SAFETY: as above.
        assert_eq!(unsafe { (table.core_count)(run, 0) }, 0);
        // SAFETY: as above.
        assert_eq!(unsafe { (table.is_fatal)(run) }, 1);
        let failed: Vec<_> = behind.failed.iter().map(|error| (error.code, error.text.as_str())).collect();
        assert_eq!(
            failed,
            ["submit_task", "core_count", "is_fatal"]
                .map(|name| (
                    code::EXPLICIT_FATAL,
                    format!("{name} panicked; this is an error of the runtime")
                ))
                .iter()
                .map(|(code, text)| (*code, text.as_str()))
                .collect::<Vec<_>>()
        );
    }
}
