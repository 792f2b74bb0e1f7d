//! `host_runtime.h`: its types, and the bodies of its functions.
//!
//! Each function is one call into `guarded`, which turns what goes wrong, a panic too, into a code and a sentence. What
//! a parameter means, and who may call when, is said by the header alone.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::{MaybeUninit, offset_of};
use std::panic::{AssertUnwindSafe, catch_unwind};

use simpler_kernel_abi::{ArgUse, CHIP_SCALARS_MAX, CHIP_TENSORS_MAX, CoreKind, SimplerTensor};
use simpler_platform::DeviceAddr;
use simpler_runtime::{
    CallableId, CallableImage, ChipArg, GraphRuntime, KernelImage, RunArgs, RunError, RunIdentity,
    RuntimeConfig, code,
};

pub use simpler_runtime::SimplerCallConfig;

use crate::context::{Architecture, DeviceRequest, Provision, SimplerContext, refused};
use crate::last_error;
use crate::run_storage::RunStorage;

/// The version of the header: another one where a record or a function means something else than before, or is no more.
pub const HOST_RUNTIME_ABI: u32 = 1;
/// The function that gives an object's version; the only one that every version has.
pub const ABI_FUNCTION: &str = "simpler_host_runtime_abi";
/// The graph is built on the device.
pub const TENSORMAP_AND_RINGBUFFER: u32 = 0;
/// The graph is built on the host.
pub const HOST_BUILD_GRAPH: u32 = 1;
/// Any slot that is free.
pub const ANY_SLOT: i32 = -1;

/// `SimplerBytes`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SimplerBytes {
    /// First byte.
    pub data: *const c_void,
    /// Bytes.
    pub size: u64,
}

/// `SimplerContextConfig`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct SimplerContextConfig {
    /// [`TENSORMAP_AND_RINGBUFFER`] or [`HOST_BUILD_GRAPH`].
    pub graph_runtime: u32,
    /// 0: 1.
    pub pipeline_depth: u32,
}

/// `SimplerBinaries`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SimplerBinaries {
    /// Object of the AICPU.
    pub aicpu: SimplerBytes,
    /// Object of the AICores.
    pub aicore: SimplerBytes,
}

/// `SimplerKernelImage`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SimplerKernelImage {
    /// For people.
    pub name: *const c_char,
    /// The object.
    pub object: SimplerBytes,
    /// A [`CoreKind`].
    pub kind: i32,
    /// 0.
    pub reserved: u32,
}

/// `SimplerCallableImage`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SimplerCallableImage {
    /// For people.
    pub name: *const c_char,
    /// The object.
    pub orchestration: SimplerBytes,
    /// `kernel_count` of them.
    pub kernels: *const SimplerKernelImage,
    /// Kernels.
    pub kernel_count: u32,
    /// 0.
    pub reserved: u32,
}

/// `SimplerRunTensor`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SimplerRunTensor {
    /// The buffer.
    pub tensor: SimplerTensor,
    /// An [`ArgUse`]; `use` in C.
    pub arg_use: u64,
}

/// `SimplerRunRequest`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SimplerRunRequest {
    /// Its id.
    pub callable: u64,
    /// `tensor_count` of them.
    pub tensors: *const SimplerRunTensor,
    /// `scalar_count` of them.
    pub scalars: *const u64,
    /// Tensors.
    pub tensor_count: u32,
    /// Scalars.
    pub scalar_count: u32,
    /// Null: every default.
    pub config: *const SimplerCallConfig,
    /// The run of the caller.
    pub run_id: u64,
    /// The number of its dispatch.
    pub dispatch_id: u64,
    /// Slot, or [`ANY_SLOT`].
    pub slot: i32,
    /// 0.
    pub reserved: u32,
}

/// Pins the layout of a record: its size, and where each field is.
macro_rules! layout {
    ($type:ident of $size:literal bytes { $($field:ident @ $offset:literal),* $(,)? }) => {
        const _: () = {
            assert!(size_of::<$type>() == $size);
            $(assert!(offset_of!($type, $field) == $offset);)*
        };
    };
}

layout!(SimplerBytes of 16 bytes { data @ 0, size @ 8 });
layout!(SimplerContextConfig of 8 bytes { graph_runtime @ 0, pipeline_depth @ 4 });
layout!(SimplerBinaries of 32 bytes { aicpu @ 0, aicore @ 16 });
layout!(SimplerKernelImage of 32 bytes { name @ 0, object @ 8, kind @ 24, reserved @ 28 });
layout!(SimplerCallableImage of 40 bytes {
    name @ 0, orchestration @ 8, kernels @ 24, kernel_count @ 32, reserved @ 36,
});
layout!(SimplerRunTensor of 136 bytes { tensor @ 0, arg_use @ 128 });
layout!(SimplerRunRequest of 64 bytes {
    callable @ 0, tensors @ 8, scalars @ 16, tensor_count @ 24, scalar_count @ 28, config @ 32, run_id @ 40,
    dispatch_id @ 48, slot @ 56, reserved @ 60,
});

macro_rules! api {
    ($($name:ident: $type:ty,)*) => {
        /// The functions of the header, as a loader has resolved them.
        #[derive(Clone, Copy, Debug)]
        #[allow(missing_docs, reason = "the header documents them")]
        pub struct HostRuntimeApi {
            $(pub $name: $type,)*
        }

        impl HostRuntimeApi {
            /// Their names, in the header's order; [`ABI_FUNCTION`] comes before.
            pub const NAMES: &[&str] = &[$(stringify!($name)),*];

            /// Looks all of them up, in an object of this version; `symbol` gives an address by its name.
            ///
            /// # Errors
            /// What the object lacks, or which version it has, as a sentence.
            ///
            /// # Safety
            /// - What `symbol` gives for a name is the function that the header calls so.
            pub unsafe fn resolve(symbol: impl Fn(&str) -> Option<*const ()>) -> Result<Self, String> {
                let address_of =
                    |name| symbol(name).ok_or_else(|| format!("it is no host runtime: it has no {name}"));
                let address = address_of(ABI_FUNCTION)?;
                // SAFETY: a function of this type in every version, by the caller's obligation.
                let abi = unsafe { std::mem::transmute::<*const (), extern "C" fn() -> u32>(address) }();
                if abi != HOST_RUNTIME_ABI {
                    return Err(format!(
                        "it has version {abi} of host_runtime.h, where version {HOST_RUNTIME_ABI} is needed"
                    ));
                }
                Ok(Self {
                    $($name: {
                        let address = address_of(stringify!($name))?;
                        // SAFETY: a function of this type, by the caller's obligation.
                        unsafe { std::mem::transmute::<*const (), $type>(address) }
                    },)*
                })
            }
        }
    };
}

type Context = *mut SimplerContext;

api! {
    simpler_create_context: unsafe extern "C" fn(*const SimplerContextConfig) -> Context,
    simpler_destroy_context: unsafe extern "C" fn(Context) -> c_int,
    simpler_init: unsafe extern "C" fn(
        Context, i32, *const SimplerBinaries, *const SimplerBytes, *const SimplerCallConfig, c_int,
    ) -> c_int,
    simpler_finalize: unsafe extern "C" fn(Context) -> c_int,
    simpler_pipeline_depth: unsafe extern "C" fn(Context) -> c_int,
    simpler_malloc: unsafe extern "C" fn(Context, u64, *mut u64) -> c_int,
    simpler_free: unsafe extern "C" fn(Context, u64) -> c_int,
    simpler_copy_to: unsafe extern "C" fn(Context, u64, *const c_void, u64) -> c_int,
    simpler_copy_from: unsafe extern "C" fn(Context, *mut c_void, u64, u64) -> c_int,
    simpler_register_callable: unsafe extern "C" fn(Context, *const SimplerCallableImage, *mut u64) -> c_int,
    simpler_unregister_callable: unsafe extern "C" fn(Context, u64) -> c_int,
    simpler_run_storage_size: extern "C" fn() -> usize,
    simpler_run_storage_alignment: extern "C" fn() -> usize,
    simpler_run_prepare: unsafe extern "C" fn(Context, *mut c_void, *const SimplerRunRequest) -> c_int,
    simpler_run_launch: unsafe extern "C" fn(Context, *mut c_void) -> c_int,
    simpler_run_poll: unsafe extern "C" fn(Context, *mut c_void) -> c_int,
    simpler_run_wait: unsafe extern "C" fn(Context, *mut c_void) -> c_int,
    simpler_run_finalize: unsafe extern "C" fn(Context, *mut c_void) -> c_int,
    simpler_run: unsafe extern "C" fn(Context, *const SimplerRunRequest) -> c_int,
    simpler_last_error: unsafe extern "C" fn(*const SimplerContext, *mut c_char, usize) -> usize,
}

/// Runs the body of a function: what it gives, or the code of its failure, whose text is kept.
fn guarded(context: Option<&SimplerContext>, body: impl FnOnce() -> Result<c_int, RunError>) -> c_int {
    let outcome = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        if let Some(context) = context {
            context.poison();
        }
        let words = panic.downcast_ref::<&str>().copied();
        let words = words.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic");
        Err(refused(format!("the host runtime failed inside: {words}")))
    });
    match outcome {
        Ok(value) => value,
        Err(RunError { code, text }) => {
            last_error::remember(context.map_or(0, SimplerContext::number), &text);
            // A status of the device's own may have either sign; a failure is negative.
            if code < 0 { code } else { code::REFUSED }
        }
    }
}

/// As [`guarded`], for a function that needs a context of this process.
///
/// # Safety
/// - `context` is null or a live context of this object.
unsafe fn with_any_context(
    context: Context,
    body: impl FnOnce(&SimplerContext) -> Result<c_int, RunError>,
) -> c_int {
    // SAFETY: the caller's obligation.
    let context = unsafe { context.as_ref() };
    guarded(context, || {
        let context = context.ok_or_else(|| null("context"))?;
        context.require_this_process()?;
        body(context)
    })
}

/// As [`with_any_context`], for a function that begins something, which a poisoned context does not.
///
/// # Safety
/// As there.
unsafe fn with_context(
    context: Context,
    body: impl FnOnce(&SimplerContext) -> Result<c_int, RunError>,
) -> c_int {
    let body = |context: &SimplerContext| {
        context.require_usable()?;
        body(context)
    };
    // SAFETY: the caller's obligation.
    unsafe { with_any_context(context, body) }
}

fn null(what: &str) -> RunError {
    refused(format!("the {what} is null"))
}

/// What a pointer of C names, which must not be null.
///
/// # Safety
/// - `pointer` is null, or names a value that stays as it is during `'a`.
unsafe fn required<'a, T>(pointer: *const T, what: &str) -> Result<&'a T, RunError> {
    // SAFETY: the caller's obligation.
    unsafe { pointer.as_ref() }.ok_or_else(|| null(what))
}

/// `count` values of C; null only where there is none.
///
/// # Safety
/// - `data` is null, or names `count` values that stay as they are during `'a`.
unsafe fn values<'a, T>(data: *const T, count: u64, what: &str) -> Result<&'a [T], RunError> {
    match extent(data, count, what)? {
        0 => Ok(&[]),
        // SAFETY: not null, of a size that an object can have; the rest is the caller's obligation.
        count => Ok(unsafe { std::slice::from_raw_parts(data, count) }),
    }
}

/// `count`, if there can be so many values at `data`.
fn extent<T>(data: *const T, count: u64, what: &str) -> Result<usize, RunError> {
    if data.is_null() && count != 0 {
        return Err(null(what));
    }
    let fits = usize::try_from(count).ok().filter(|count| {
        let bytes = count.checked_mul(size_of::<T>());
        bytes.is_some_and(|bytes| isize::try_from(bytes).is_ok())
    });
    fits.ok_or_else(|| refused(format!("the {what}: {count} are more than memory can hold")))
}

/// # Safety
/// As for [`values`].
unsafe fn bytes<'a>(of: SimplerBytes, what: &str) -> Result<&'a [u8], RunError> {
    // SAFETY: the caller's obligation.
    unsafe { values(of.data.cast(), of.size, what) }
}

/// A name of C.
///
/// # Safety
/// - `name` is null or zero-terminated.
unsafe fn name(name: *const c_char, what: &str) -> Result<String, RunError> {
    if name.is_null() {
        return Err(null(what));
    }
    // SAFETY: not null; the rest is the caller's obligation.
    Ok(unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
}

fn require_zero(reserved: u32, of: &str) -> Result<(), RunError> {
    match reserved {
        0 => Ok(()),
        _ => Err(refused(format!("the reserved word of the {of} is not 0"))),
    }
}

/// See the header.
///
/// # Safety
/// As the header says.
pub unsafe fn create_context(
    architecture: &'static Architecture,
    config: *const SimplerContextConfig,
) -> *mut SimplerContext {
    let mut created = std::ptr::null_mut();
    guarded(None, || {
        // SAFETY: the caller's obligation.
        let config = unsafe { config.as_ref() }.copied().unwrap_or_default();
        let graph_runtime = match config.graph_runtime {
            TENSORMAP_AND_RINGBUFFER => GraphRuntime::TensorMapAndRingBuffer,
            HOST_BUILD_GRAPH => GraphRuntime::HostBuildGraph,
            other => return Err(refused(format!("there is no graph runtime {other}"))),
        };
        let pipeline_depth = config.pipeline_depth.max(1) as usize;
        if pipeline_depth > simpler_runtime::PIPELINE_DEPTH_MAX {
            let most = simpler_runtime::PIPELINE_DEPTH_MAX;
            return Err(refused(format!("a pipeline of {pipeline_depth} runs: 1 to {most}")));
        }
        let config = RuntimeConfig { graph_runtime, pipeline_depth, ..RuntimeConfig::default() };
        created = Box::into_raw(Box::new(SimplerContext::new(architecture, config)));
        Ok(0)
    });
    created
}

/// See the header.
///
/// # Safety
/// As the header says.
pub unsafe fn destroy_context(context: Context) -> c_int {
    // SAFETY: as below.
    let ended = unsafe { finalize(context) };
    if ended != 0 {
        return ended;
    }
    guarded(None, || {
        // SAFETY: made by `create_context`; the caller does not use it any more, and no run is open in it.
        drop(unsafe { Box::from_raw(context) });
        Ok(0)
    })
}

/// See the header.
///
/// # Safety
/// As the header says.
pub unsafe fn init(
    context: Context,
    device_id: i32,
    binaries: *const SimplerBinaries,
    dispatcher: *const SimplerBytes,
    prewarm: *const SimplerCallConfig,
    enable_sdma: c_int,
) -> c_int {
    const NONE: SimplerBytes = SimplerBytes { data: std::ptr::null(), size: 0 };
    let body = |context: &SimplerContext| {
        // SAFETY: the caller's obligation.
        let binaries = unsafe { binaries.as_ref() }.copied();
        let SimplerBinaries { aicpu, aicore } =
            binaries.unwrap_or(SimplerBinaries { aicpu: NONE, aicore: NONE });
        // SAFETY: as above.
        let dispatcher = unsafe { dispatcher.as_ref() }.copied().unwrap_or(NONE);
        // SAFETY: as above.
        let aicpu = unsafe { bytes(aicpu, "AICPU object") }?;
        // SAFETY: as above.
        let aicore = unsafe { bytes(aicore, "AICore object") }?;
        // SAFETY: as above.
        let dispatcher = unsafe { bytes(dispatcher, "dispatcher object") }?;
        // SAFETY: as above.
        let prewarm = unsafe { prewarm.as_ref() }.map(SimplerCallConfig::config).transpose();
        let provision = Provision { prewarm: prewarm.map_err(invalid)?, sdma: enable_sdma != 0 };
        context.init(&DeviceRequest { device_id, aicpu, aicore, dispatcher }, &provision)?;
        Ok(0)
    };
    // SAFETY: the caller's obligation.
    unsafe { with_context(context, body) }
}

/// An error for a configuration that is none.
fn invalid(text: String) -> RunError {
    RunError { code: -(code::INVALID_ARGUMENTS as i32), text }
}

/// See the header.
///
/// # Safety
/// As the header says.
pub unsafe fn finalize(context: Context) -> c_int {
    // SAFETY: the caller's obligation.
    unsafe { with_any_context(context, |context| context.finalize().map(|()| 0)) }
}

/// See the header.
///
/// # Safety
/// As the header says.
pub unsafe fn pipeline_depth(context: Context) -> c_int {
    let body =
        |context: &SimplerContext| context.with_runtime(|runtime| Ok(runtime.pipeline_depth() as c_int));
    // SAFETY: the caller's obligation.
    unsafe { with_context(context, body) }
}

/// See the header.
///
/// # Safety
/// As the header says.
pub unsafe fn malloc(context: Context, bytes: u64, address: *mut u64) -> c_int {
    let body = |context: &SimplerContext| {
        // SAFETY: the caller's obligation.
        let address = unsafe { address.as_mut() }.ok_or_else(|| null("place for the address"))?;
        let bytes = usize::try_from(bytes).map_err(|error| refused(error.to_string()))?;
        *address = context.with_runtime(|runtime| runtime.malloc(bytes))?.0;
        Ok(0)
    };
    // SAFETY: the caller's obligation.
    unsafe { with_context(context, body) }
}

/// See the header.
///
/// # Safety
/// As the header says.
pub unsafe fn free(context: Context, address: u64) -> c_int {
    let body = |context: &SimplerContext| {
        context.with_runtime(|runtime| runtime.free(DeviceAddr(address)))?;
        Ok(0)
    };
    // SAFETY: the caller's obligation.
    unsafe { with_context(context, body) }
}

/// See the header.
///
/// # Safety
/// As the header says.
pub unsafe fn copy_to(context: Context, destination: u64, source: *const c_void, size: u64) -> c_int {
    let body = |context: &SimplerContext| {
        // SAFETY: the caller's obligation.
        let source = unsafe { bytes(SimplerBytes { data: source, size }, "source of the copy") }?;
        context.with_runtime(|runtime| runtime.copy_to(DeviceAddr(destination), source))?;
        Ok(0)
    };
    // SAFETY: the caller's obligation.
    unsafe { with_context(context, body) }
}

/// See the header.
///
/// # Safety
/// As the header says.
pub unsafe fn copy_from(context: Context, destination: *mut c_void, source: u64, size: u64) -> c_int {
    let body = |context: &SimplerContext| {
        let destination: *mut u8 = destination.cast();
        let destination = match extent(destination, size, "destination of the copy")? {
            0 => &mut [],
            // SAFETY: not null, of a size that an object can have, and the caller's to be written.
            bytes => unsafe { std::slice::from_raw_parts_mut(destination, bytes) },
        };
        context.with_runtime(|runtime| runtime.copy_from(destination, DeviceAddr(source)))?;
        Ok(0)
    };
    // SAFETY: the caller's obligation.
    unsafe { with_context(context, body) }
}

/// See the header.
///
/// # Safety
/// As the header says.
pub unsafe fn register_callable(
    context: Context,
    image: *const SimplerCallableImage,
    callable: *mut u64,
) -> c_int {
    let body = |context: &SimplerContext| {
        // SAFETY: the caller's obligation.
        let callable = unsafe { callable.as_mut() }.ok_or_else(|| null("place for the callable's id"))?;
        // SAFETY: as above.
        let image = unsafe { required(image, "callable") }?;
        // SAFETY: as above.
        let image = unsafe { callable_image(image) }?;
        *callable = context.with_runtime(|runtime| runtime.register(&image))?.to_raw();
        Ok(0)
    };
    // SAFETY: the caller's obligation.
    unsafe { with_context(context, body) }
}

/// The callable that a record of C describes.
///
/// # Safety
/// - What it points to is as the header says.
unsafe fn callable_image(image: &SimplerCallableImage) -> Result<CallableImage, RunError> {
    require_zero(image.reserved, "callable")?;
    // SAFETY: the caller's obligation.
    let name = unsafe { self::name(image.name, "callable's name") }?;
    // SAFETY: as above.
    let orchestration = unsafe { bytes(image.orchestration, "orchestration object") }?.to_vec();
    // SAFETY: as above.
    let kernels = unsafe { values(image.kernels, image.kernel_count.into(), "list of kernels") }?;
    let kernels = kernels.iter().map(|kernel| {
        require_zero(kernel.reserved, "kernel")?;
        let kind = [CoreKind::Aic, CoreKind::Aiv].into_iter().find(|kind| *kind as i32 == kernel.kind);
        Ok(KernelImage {
            // SAFETY: as above.
            name: unsafe { self::name(kernel.name, "kernel's name") }?,
            // SAFETY: as above.
            bytes: unsafe { bytes(kernel.object, "kernel object") }?.to_vec(),
            kind: kind.ok_or_else(|| refused(format!("there are no cores of kind {}", kernel.kind)))?,
        })
    });
    Ok(CallableImage { name, orchestration, kernels: kernels.collect::<Result<_, RunError>>()? })
}

/// See the header.
///
/// # Safety
/// As the header says.
pub unsafe fn unregister_callable(context: Context, callable: u64) -> c_int {
    let body = |context: &SimplerContext| {
        context.with_runtime(|runtime| runtime.unregister(CallableId::from_raw(callable)))?;
        Ok(0)
    };
    // SAFETY: the caller's obligation.
    unsafe { with_context(context, body) }
}

/// See the header.
pub fn run_storage_size() -> usize {
    size_of::<RunStorage>()
}

/// See the header.
pub fn run_storage_alignment() -> usize {
    align_of::<RunStorage>()
}

/// What a request asks for.
struct Request {
    callable: CallableId,
    args: RunArgs,
    identity: RunIdentity,
    slot: Option<usize>,
}

impl Request {
    /// # Safety
    /// - `request` is null, or as the header says.
    unsafe fn read(request: *const SimplerRunRequest) -> Result<Self, RunError> {
        // SAFETY: the caller's obligation.
        let request = unsafe { required(request, "run request") }?;
        require_zero(request.reserved, "run request")?;
        let (tensors, scalars) = (request.tensor_count as usize, request.scalar_count as usize);
        if tensors > CHIP_TENSORS_MAX || scalars > CHIP_SCALARS_MAX {
            return Err(refused(format!(
                "{tensors} tensors and {scalars} scalars: a run takes at most {CHIP_TENSORS_MAX} and \
                 {CHIP_SCALARS_MAX}"
            )));
        }
        // SAFETY: as above.
        let tensors = unsafe { values(request.tensors, request.tensor_count.into(), "list of tensors") }?;
        let tensors = tensors.iter().enumerate().map(|(position, SimplerRunTensor { tensor, arg_use })| {
            let of = ArgUse::from_raw(*arg_use);
            let of = of.ok_or_else(|| refused(format!("tensor {position} has the unknown use {arg_use}")))?;
            Ok(ChipArg { tensor: *tensor, arg_use: of })
        });
        let tensors = tensors.collect::<Result<_, RunError>>()?;
        // SAFETY: as above.
        let scalars = unsafe { values(request.scalars, request.scalar_count.into(), "list of scalars") }?;
        // SAFETY: as above.
        let config =
            unsafe { request.config.as_ref() }.map_or(Ok(Default::default()), |record| record.config());
        let slot = match request.slot {
            ANY_SLOT => None,
            slot => Some(
                usize::try_from(slot).map_err(|_| refused(format!("there is no pipeline slot {slot}")))?,
            ),
        };
        Ok(Self {
            callable: CallableId::from_raw(request.callable),
            args: RunArgs { tensors, scalars: scalars.to_vec(), config: config.map_err(invalid)? },
            identity: RunIdentity { run_id: request.run_id, dispatch_id: request.dispatch_id },
            slot,
        })
    }

    /// # Safety
    /// - The tensors are as the header says until the run has ended.
    unsafe fn prepare(&self, context: &SimplerContext, storage: &RunStorage) -> Result<(), RunError> {
        // SAFETY: the caller's obligation.
        unsafe { context.prepare(storage, self.callable, &self.args, self.identity, self.slot) }
    }
}

/// See the header.
///
/// # Safety
/// As the header says.
pub unsafe fn run_prepare(
    context: Context,
    storage: *mut c_void,
    request: *const SimplerRunRequest,
) -> c_int {
    let body = |context: &SimplerContext| {
        // SAFETY: the caller's obligation.
        let storage = unsafe { RunStorage::behind(storage) }?;
        storage.require_free()?;
        // SAFETY: as above.
        let request = unsafe { Request::read(request) }?;
        // SAFETY: as above.
        unsafe { request.prepare(context, storage) }?;
        Ok(0)
    };
    // SAFETY: the caller's obligation.
    unsafe { with_context(context, body) }
}

/// A phase after the first. A run that has begun can be ended whatever has become of its context: only then are the
/// tensors, and the storage, the caller's again.
///
/// # Safety
/// As the header says.
unsafe fn phase(
    context: Context,
    storage: *mut c_void,
    body: impl FnOnce(&SimplerContext, &RunStorage) -> Result<c_int, RunError>,
) -> c_int {
    let body = |context: &SimplerContext| {
        // SAFETY: the caller's obligation.
        body(context, unsafe { RunStorage::behind(storage) }?)
    };
    // SAFETY: the caller's obligation.
    unsafe { with_any_context(context, body) }
}

/// See the header.
///
/// # Safety
/// As the header says.
pub unsafe fn run_launch(context: Context, storage: *mut c_void) -> c_int {
    // SAFETY: the caller's obligation.
    unsafe { phase(context, storage, |context, storage| context.launch(storage).map(|()| 0)) }
}

/// See the header.
///
/// # Safety
/// As the header says.
pub unsafe fn run_poll(context: Context, storage: *mut c_void) -> c_int {
    // SAFETY: the caller's obligation.
    unsafe { phase(context, storage, |context, storage| context.poll(storage).map(c_int::from)) }
}

/// See the header.
///
/// # Safety
/// As the header says.
pub unsafe fn run_wait(context: Context, storage: *mut c_void) -> c_int {
    // SAFETY: the caller's obligation.
    unsafe { phase(context, storage, |context, storage| context.wait(storage).map(|()| 0)) }
}

/// See the header.
///
/// # Safety
/// As the header says.
pub unsafe fn run_finalize(context: Context, storage: *mut c_void) -> c_int {
    // SAFETY: the caller's obligation.
    unsafe { phase(context, storage, |context, storage| context.end(storage).map(|()| 0)) }
}

/// See the header.
///
/// # Safety
/// As the header says.
pub unsafe fn run(context: Context, request: *const SimplerRunRequest) -> c_int {
    let body = |context: &SimplerContext| {
        let storage = RunStorage::new();
        // SAFETY: the caller's obligation.
        let request = unsafe { Request::read(request) }?;
        // SAFETY: as above; the run ends before this returns.
        unsafe { request.prepare(context, &storage) }?;
        context.launch(&storage)?;
        let waited = context.wait(&storage);
        // Its failure wins over that of the wait.
        context.end(&storage)?;
        waited.map(|()| 0)
    };
    // SAFETY: the caller's obligation.
    unsafe { with_context(context, body) }
}

/// See the header.
///
/// # Safety
/// As the header says.
pub unsafe fn last_error(context: *const SimplerContext, out: *mut c_char, size: usize) -> usize {
    // SAFETY: the caller's obligation.
    let context = unsafe { context.as_ref() };
    last_error::with(context.map(SimplerContext::number), |text| {
        if size != 0 && !out.is_null() {
            let bytes = text.len().min(size - 1);
            // SAFETY: `size` bytes at `out` are the caller's to be written; what they were is not looked at.
            let out = unsafe { std::slice::from_raw_parts_mut(out.cast::<MaybeUninit<u8>>(), size) };
            out[..bytes].write_copy_of_slice(&text[..bytes]);
            out[bytes].write(0);
        }
        text.len()
    })
}
