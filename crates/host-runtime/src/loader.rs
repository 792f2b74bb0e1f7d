//! Opens a host runtime object, in the order of RUNTIME §1.7, and wraps its functions.
//!
//! ```text
//! sim context   once a path, RTLD_GLOBAL, kept for the process ── bind its log
//! host runtime  RTLD_LOCAL ── bind its log ── only then compare versions ── and look up anything else
//! ```
//!
//! What was opened is closed where a later step fails, but for a sim context that was whole: that one stays, for the
//! next attempt. An object that is whole is never unmapped (it is linked so), and closing it is only bookkeeping.
//!
//! Every Rust object has its own standard library, so nothing but the types of `host_runtime.h` passes. The wrappers
//! here, [`HostContext`] and [`HostRun`], are that header with its rules as types: a context outlives its runs, a run
//! stays on its thread, and its phases come in their order.
//!
//! ```no_run
//! # use std::path::Path;
//! # use simpler_host_runtime::{host_runtime::SimplerContextConfig, loader::HostRuntimeLibrary};
//! # use simpler_runtime::{CallableImage, RunArgs, RunIdentity};
//! # fn run(image: &CallableImage, args: &RunArgs) -> Result<(), Box<dyn std::error::Error>> {
//! let (runtime, context) = ("libsimpler_host_runtime_a5sim.so", "libsimpler_sim_context.so");
//! // SAFETY: these are what their names say.
//! let library = unsafe { HostRuntimeLibrary::open(Path::new(runtime), Some(Path::new(context))) }?;
//! let context = library.create_context(&SimplerContextConfig { pipeline_depth: 2, ..Default::default() })?;
//! context.init(0, None, false)?;
//! let callable = context.register(image)?;
//! let identity = RunIdentity { run_id: 1, dispatch_id: 1 };
//! // SAFETY: nobody touches the memory that the arguments name until the run has ended.
//! let run = unsafe { context.prepare(callable, args, identity, None) }?.launch()?;
//! let (run, waited) = run.wait();
//! run.finalize()?;
//! # waited?;
//! # Ok(())
//! # }
//! ```

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::marker::PhantomData;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use libc::{RTLD_GLOBAL, RTLD_LOCAL, RTLD_NOW};
use simpler_log_abi::BINDER;
use simpler_runtime::{CallConfig, CallableImage, RunArgs, RunError, RunIdentity, code};

use crate::host_runtime::{
    ANY_SLOT, HostRuntimeApi, SimplerBytes, SimplerCallConfig, SimplerCallableImage, SimplerContextConfig,
    SimplerKernelImage, SimplerRunRequest, SimplerRunTensor,
};
use crate::{SimplerContext, context::refused};

/// Why an object cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {why}", path.display())]
pub struct LoadError {
    /// The object.
    pub path: PathBuf,
    /// A sentence.
    pub why: String,
}

/// The sim contexts of this process, by canonical path.
///
/// FORK: a child has its parent's objects mapped, and goes on with them.
static SIM_CONTEXTS: Mutex<Vec<(PathBuf, OpenObject)>> = Mutex::new(Vec::new());

/// An open host runtime object. Any thread.
#[derive(Debug)]
pub struct HostRuntimeLibrary {
    api: HostRuntimeApi,
    path: PathBuf,
    _object: OpenObject,
}

impl HostRuntimeLibrary {
    /// Opens an object and binds this process's log to it; for a simulated architecture after its sim context.
    ///
    /// # Errors
    /// The object that cannot be used, and why; nothing that this call opened stays open, but for a sim context that is
    /// whole.
    ///
    /// # Safety
    /// - The objects are code of this process from here on, and what their symbols are called is what they are.
    pub unsafe fn open(host_runtime: &Path, sim_context: Option<&Path>) -> Result<Arc<Self>, LoadError> {
        if let Some(path) = sim_context {
            // SAFETY: the caller's obligation.
            unsafe { keep_sim_context(path) }?;
        }
        // SAFETY: as above.
        let object = unsafe { OpenObject::bound(host_runtime, RTLD_NOW | RTLD_LOCAL) }?;
        // SAFETY: as above.
        let api = unsafe { HostRuntimeApi::resolve(|name| object.symbol(name)) };
        let path = host_runtime.to_owned();
        match api {
            Ok(api) => Ok(Arc::new(Self { api, path, _object: object })),
            Err(why) => Err(LoadError { path, why }),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A context without a device.
    ///
    /// # Errors
    /// Code −1 for a configuration that is none.
    pub fn create_context(self: &Arc<Self>, config: &SimplerContextConfig) -> Result<HostContext, RunError> {
        // SAFETY: a configuration that lives on.
        let context = unsafe { (self.api.simpler_create_context)(config) };
        match NonNull::new(context) {
            Some(context) => Ok(HostContext { library: self.clone(), context }),
            None => Err(RunError { code: code::REFUSED, text: last_error(&self.api, std::ptr::null()) }),
        }
    }
}

/// Opens the sim context at a path, unless it was opened before.
///
/// # Safety
/// As for [`HostRuntimeLibrary::open`].
unsafe fn keep_sim_context(path: &Path) -> Result<(), LoadError> {
    let canonical = path.canonicalize().map_err(|error| LoadError {
        path: path.to_owned(),
        why: format!("the sim context is not there: {error}"),
    })?;
    let mut known = SIM_CONTEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    if known.iter().any(|(path, _)| *path == canonical) {
        return Ok(());
    }
    // SAFETY: the caller's obligation.
    let object = unsafe { OpenObject::bound(&canonical, RTLD_NOW | RTLD_GLOBAL) }?;
    known.push((canonical, object));
    Ok(())
}

/// An open object; closed when it is dropped.
#[derive(Debug)]
struct OpenObject {
    handle: NonNull<c_void>,
}

// SAFETY: the dynamic linker's functions take a handle on any thread.
unsafe impl Send for OpenObject {}
// SAFETY: as above, several at a time.
unsafe impl Sync for OpenObject {}

impl Drop for OpenObject {
    fn drop(&mut self) {
        // SAFETY: open, and not used any more.
        unsafe { libc::dlclose(self.handle.as_ptr()) };
    }
}

impl OpenObject {
    /// # Safety
    /// As for [`HostRuntimeLibrary::open`].
    unsafe fn open(path: &Path, flags: c_int) -> Result<Self, String> {
        let path = CString::new(path.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
        // SAFETY: a C string; what its constructors do is the caller's obligation.
        let handle = unsafe { libc::dlopen(path.as_ptr(), flags) };
        NonNull::new(handle).map(|handle| Self { handle }).ok_or_else(|| {
            // SAFETY: no preconditions.
            let words = unsafe { libc::dlerror() };
            if words.is_null() {
                return "it cannot be opened".to_owned();
            }
            // SAFETY: the linker's words for this thread, until its next failure.
            unsafe { CStr::from_ptr(words) }.to_string_lossy().into_owned()
        })
    }

    /// Opens an object and binds this process's log to it, before anything else of it is looked up.
    ///
    /// # Safety
    /// As for [`HostRuntimeLibrary::open`].
    unsafe fn bound(path: &Path, flags: c_int) -> Result<Self, LoadError> {
        let failed = |why: String| LoadError { path: path.to_owned(), why };
        // SAFETY: the caller's obligation.
        let object = unsafe { Self::open(path, flags) }.map_err(failed)?;
        let Some(binder) = object.symbol(BINDER) else {
            return Err(failed(format!("it does not log into this process's log: it has no {BINDER}")));
        };
        // SAFETY: the headers of the log give the symbol of this name its type.
        unsafe { simpler_host_log::bind_object(binder, "the object") }.map_err(failed)?;
        Ok(object)
    }

    /// The address of a symbol that the object itself has. The dynamic linker also looks into what the object depends
    /// on, where there may be a binder of another one.
    fn symbol(&self, name: &str) -> Option<*const ()> {
        let name = CString::new(name).ok()?;
        // SAFETY: an open handle and a C string; the address is only taken.
        let address = unsafe { libc::dlsym(self.handle.as_ptr(), name.as_ptr()) };
        let mut map: *const LinkMap = std::ptr::null();
        // SAFETY: an open handle, and a place for the answer to this question.
        let asked =
            unsafe { libc::dlinfo(self.handle.as_ptr(), libc::RTLD_DI_LINKMAP, (&raw mut map).cast()) };
        if address.is_null() || asked != 0 {
            return None;
        }
        // SAFETY: the linker's record of an object that is open.
        let dynamic = unsafe { map.as_ref() }?.dynamic_section;
        (object_of(address)? == object_of(dynamic)?).then_some(address.cast_const().cast())
    }
}

/// The public head of glibc's `struct link_map`.
#[repr(C)]
struct LinkMap {
    load_bias: usize,
    file_name: *const c_char,
    dynamic_section: *mut c_void,
}

/// Where the object begins that an address is in.
fn object_of(address: *mut c_void) -> Option<usize> {
    // SAFETY: all zero is an answer.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: any address may be asked for.
    let is_known = unsafe { libc::dladdr(address, &raw mut found) } != 0;
    is_known.then(|| found.dli_fbase.addr())
}

/// The calling thread's latest failure with a context, or, for null, with any.
fn last_error(api: &HostRuntimeApi, context: *const SimplerContext) -> String {
    // SAFETY: nothing is written to a place of no size.
    let bytes = unsafe { (api.simpler_last_error)(context, std::ptr::null_mut(), 0) };
    let mut text = vec![0_u8; bytes + 1];
    // SAFETY: so many bytes, ours to be written.
    unsafe { (api.simpler_last_error)(context, text.as_mut_ptr().cast(), text.len()) };
    let text = CStr::from_bytes_until_nul(&text).map_or_else(|_| "".into(), CStr::to_string_lossy);
    text.into_owned()
}

/// A context of a host runtime object. Dropped, it gives its device back. Any thread.
// FORK: a child makes its own; the object refuses it this one.
#[derive(Debug)]
pub struct HostContext {
    library: Arc<HostRuntimeLibrary>,
    context: NonNull<SimplerContext>,
}

// SAFETY: the header lets any thread call any function.
unsafe impl Send for HostContext {}
// SAFETY: as above, several at a time.
unsafe impl Sync for HostContext {}

impl Drop for HostContext {
    fn drop(&mut self) {
        // A context that must stay, because a run was forgotten on another thread, stays.
        // SAFETY: a live context, and its last call.
        unsafe { (self.api().simpler_destroy_context)(self.context.as_ptr()) };
    }
}

impl HostContext {
    fn api(&self) -> &HostRuntimeApi {
        &self.library.api
    }

    /// What a function gave, or its failure with the sentence to it.
    fn result(&self, given: c_int) -> Result<c_int, RunError> {
        if given >= 0 {
            return Ok(given);
        }
        Err(RunError { code: given, text: last_error(self.api(), self.context.as_ptr()) })
    }

    /// Attaches a device whose architecture has its own objects, as the simulated ones do.
    ///
    /// # Errors
    /// As the header says; so with all that follow.
    pub fn init(&self, device_id: i32, prewarm: Option<&CallConfig>, sdma: bool) -> Result<(), RunError> {
        let prewarm = prewarm.map(record).transpose()?;
        let prewarm = prewarm.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: a live context, no objects, and a configuration that lives on.
        let given = unsafe {
            (self.api().simpler_init)(
                self.context.as_ptr(),
                device_id,
                std::ptr::null(),
                std::ptr::null(),
                prewarm,
                sdma.into(),
            )
        };
        self.result(given).map(drop)
    }

    /// Gives the device back.
    pub fn finalize(&self) -> Result<(), RunError> {
        // SAFETY: a live context; so with all that follow.
        self.result(unsafe { (self.api().simpler_finalize)(self.context.as_ptr()) }).map(drop)
    }

    /// How many runs may have begun at a time.
    pub fn pipeline_depth(&self) -> Result<usize, RunError> {
        // SAFETY: as above.
        let given = unsafe { (self.api().simpler_pipeline_depth)(self.context.as_ptr()) };
        self.result(given).map(|depth| depth as usize)
    }

    /// Device memory of so many bytes.
    pub fn malloc(&self, bytes: u64) -> Result<u64, RunError> {
        let mut address = 0;
        // SAFETY: as above, and a place for the address.
        let given = unsafe { (self.api().simpler_malloc)(self.context.as_ptr(), bytes, &raw mut address) };
        self.result(given).map(|_| address)
    }

    /// Frees device memory.
    pub fn free(&self, address: u64) -> Result<(), RunError> {
        // SAFETY: as above.
        self.result(unsafe { (self.api().simpler_free)(self.context.as_ptr(), address) }).map(drop)
    }

    /// Copies to the device.
    pub fn copy_to(&self, destination: u64, source: &[u8]) -> Result<(), RunError> {
        let (from, bytes) = (source.as_ptr().cast(), source.len() as u64);
        // SAFETY: as above, and so many bytes.
        let given = unsafe { (self.api().simpler_copy_to)(self.context.as_ptr(), destination, from, bytes) };
        self.result(given).map(drop)
    }

    /// Copies from the device.
    pub fn copy_from(&self, destination: &mut [u8], source: u64) -> Result<(), RunError> {
        let (to, bytes) = (destination.as_mut_ptr().cast(), destination.len() as u64);
        // SAFETY: as above, and so many bytes, ours to be written.
        let given = unsafe { (self.api().simpler_copy_from)(self.context.as_ptr(), to, source, bytes) };
        self.result(given).map(drop)
    }

    /// Makes a callable known; its id.
    pub fn register(&self, image: &CallableImage) -> Result<u64, RunError> {
        let text =
            |text: &str| CString::new(text).map_err(|_| refused(format!("the name {text:?} has a NUL")));
        let names = image.kernels.iter().map(|kernel| text(&kernel.name)).collect::<Result<Vec<_>, _>>()?;
        let bytes = |bytes: &[u8]| SimplerBytes { data: bytes.as_ptr().cast(), size: bytes.len() as u64 };
        let kernels = image.kernels.iter().zip(&names).map(|(kernel, name)| SimplerKernelImage {
            name: name.as_ptr(),
            object: bytes(&kernel.bytes),
            kind: kernel.kind as i32,
            reserved: 0,
        });
        let (kernels, name) = (kernels.collect::<Vec<_>>(), text(&image.name)?);
        let record = SimplerCallableImage {
            name: name.as_ptr(),
            orchestration: bytes(&image.orchestration),
            kernels: kernels.as_ptr(),
            kernel_count: kernels.len() as u32,
            reserved: 0,
        };
        let mut callable = 0;
        // SAFETY: as above; the record names what lives here, and there is a place for the id.
        let given = unsafe {
            (self.api().simpler_register_callable)(
                self.context.as_ptr(),
                &raw const record,
                &raw mut callable,
            )
        };
        self.result(given).map(|_| callable)
    }

    /// Takes one registration back.
    pub fn unregister(&self, callable: u64) -> Result<(), RunError> {
        // SAFETY: as above.
        let given = unsafe { (self.api().simpler_unregister_callable)(self.context.as_ptr(), callable) };
        self.result(given).map(drop)
    }

    /// Runs a callable to its end.
    ///
    /// # Safety
    /// As for [`simpler_runtime::ChipRuntime::run`].
    pub unsafe fn run(&self, callable: u64, args: &RunArgs, identity: RunIdentity) -> Result<(), RunError> {
        let request = Request::new(callable, args, identity, None)?;
        // SAFETY: a live context, and a request that lives on; the rest is the caller's obligation.
        let given = unsafe { (self.api().simpler_run)(self.context.as_ptr(), &request.record()) };
        self.result(given).map(drop)
    }

    /// The first phase of a run, in a slot or in any that is free.
    ///
    /// # Safety
    /// As for [`simpler_runtime::ChipRuntime::run`], until the run has ended: by [`HostRun::finalize`], by being
    /// dropped, or, if it is forgotten, with the context.
    pub unsafe fn prepare(
        &self,
        callable: u64,
        args: &RunArgs,
        identity: RunIdentity,
        slot: Option<usize>,
    ) -> Result<HostRun<'_, Prepared>, RunError> {
        let request = Request::new(callable, args, identity, slot)?;
        let open = OpenRun { context: self, storage: Storage::new(self.api())?, stays: PhantomData };
        // SAFETY: as above, and storage that is as the object wants it.
        let given = unsafe {
            (self.api().simpler_run_prepare)(
                self.context.as_ptr(),
                open.storage.0.as_ptr().cast(),
                &request.record(),
            )
        };
        match self.result(given) {
            Ok(_) => Ok(HostRun { open, _phase: PhantomData }),
            Err(error) => {
                open.forget();
                Err(error)
            }
        }
    }
}

fn record(config: &CallConfig) -> Result<SimplerCallConfig, RunError> {
    let invalid = |text| RunError { code: -(code::INVALID_ARGUMENTS as i32), text };
    SimplerCallConfig::new(config).map_err(invalid)
}

/// What a request names.
struct Request {
    callable: u64,
    tensors: Vec<SimplerRunTensor>,
    scalars: Vec<u64>,
    config: SimplerCallConfig,
    identity: RunIdentity,
    slot: i32,
}

impl Request {
    fn new(
        callable: u64,
        args: &RunArgs,
        identity: RunIdentity,
        slot: Option<usize>,
    ) -> Result<Self, RunError> {
        let tensor = |arg: &simpler_runtime::ChipArg| SimplerRunTensor {
            tensor: arg.tensor,
            arg_use: arg.arg_use as u64,
        };
        let slot = slot.map_or(Ok(ANY_SLOT), |slot| {
            i32::try_from(slot).map_err(|_| refused(format!("there is no pipeline slot {slot}")))
        })?;
        Ok(Self {
            callable,
            tensors: args.tensors.iter().map(tensor).collect(),
            scalars: args.scalars.clone(),
            config: record(&args.config)?,
            identity,
            slot,
        })
    }

    fn record(&self) -> SimplerRunRequest {
        SimplerRunRequest {
            callable: self.callable,
            tensors: self.tensors.as_ptr(),
            scalars: self.scalars.as_ptr(),
            tensor_count: self.tensors.len() as u32,
            scalar_count: self.scalars.len() as u32,
            config: &raw const self.config,
            run_id: self.identity.run_id,
            dispatch_id: self.identity.dispatch_id,
            slot: self.slot,
            reserved: 0,
        }
    }
}

/// Zeroed memory of the size and alignment that an object wants for a run.
struct Storage(NonNull<u8>, std::alloc::Layout);

impl Storage {
    fn new(api: &HostRuntimeApi) -> Result<Self, RunError> {
        let (size, alignment) = ((api.simpler_run_storage_size)(), (api.simpler_run_storage_alignment)());
        let layout = std::alloc::Layout::from_size_align(size.max(1), alignment);
        let layout = layout.map_err(|error| refused(format!("run storage of {size} bytes: {error}")))?;
        // SAFETY: of a size that is not 0.
        let memory = unsafe { std::alloc::alloc_zeroed(layout) };
        let memory = NonNull::new(memory);
        memory.map(|memory| Self(memory, layout)).ok_or_else(|| refused("no memory for the run storage"))
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        // SAFETY: allocated so, above.
        unsafe { std::alloc::dealloc(self.0.as_ptr(), self.1) };
    }
}

/// A phase of [`HostRun`]: it can be launched.
#[derive(Debug)]
pub enum Prepared {}
/// A phase of [`HostRun`]: it is on the device.
#[derive(Debug)]
pub enum Launched {}
/// A phase of [`HostRun`]: it has left the device.
#[derive(Debug)]
pub enum Done {}

/// An open run at one of its phases. Dropped, it is finalized and its result forgotten.
#[must_use = "dropped, the run is finalized and its result forgotten"]
pub struct HostRun<'c, Phase> {
    open: OpenRun<'c>,
    _phase: PhantomData<Phase>,
}

struct OpenRun<'c> {
    context: &'c HostContext,
    storage: Storage,
    /// On its thread.
    stays: PhantomData<*mut ()>,
}

impl OpenRun<'_> {
    fn call(
        &self,
        function: unsafe extern "C" fn(*mut SimplerContext, *mut c_void) -> c_int,
    ) -> Result<c_int, RunError> {
        // SAFETY: a live context, and storage that lives on.
        let given = unsafe { function(self.context.context.as_ptr(), self.storage.0.as_ptr().cast()) };
        self.context.result(given)
    }

    fn finalize(self) -> Result<(), RunError> {
        let result = self.call(self.context.api().simpler_run_finalize).map(drop);
        self.forget();
        result
    }

    /// Gives the storage of a run back that has ended.
    fn forget(self) {
        let run = std::mem::ManuallyDrop::new(self);
        // SAFETY: taken once, of a value that is not dropped.
        drop(unsafe { std::ptr::read(&raw const run.storage) });
    }
}

impl Drop for OpenRun<'_> {
    fn drop(&mut self) {
        // Who drops it does not ask how it went; the log says so.
        let _ = self.call(self.context.api().simpler_run_finalize);
    }
}

impl<'c> HostRun<'c, Prepared> {
    /// Starts the run on the device. After a failure it has ended.
    pub fn launch(self) -> Result<HostRun<'c, Launched>, RunError> {
        let Self { open, .. } = self;
        match open.call(open.context.api().simpler_run_launch) {
            Ok(_) => Ok(HostRun { open, _phase: PhantomData }),
            Err(error) => {
                open.forget();
                Err(error)
            }
        }
    }
}

impl<'c> HostRun<'c, Launched> {
    /// Whether [`HostRun::wait`] would return at once.
    pub fn is_done(&self) -> Result<bool, RunError> {
        self.open.call(self.open.context.api().simpler_run_poll).map(|done| done != 0)
    }

    /// Waits for the end of the run on the device; how it ended there.
    pub fn wait(self) -> (HostRun<'c, Done>, Result<(), RunError>) {
        let Self { open, .. } = self;
        let waited = open.call(open.context.api().simpler_run_wait).map(drop);
        (HostRun { open, _phase: PhantomData }, waited)
    }
}

impl<Phase> HostRun<'_, Phase> {
    /// Copies results back and ends the run; its result. One that is on the device is waited for.
    pub fn finalize(self) -> Result<(), RunError> {
        self.open.finalize()
    }
}
