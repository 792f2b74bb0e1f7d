//! A device that is open: the order of opening, its reverse, and calls from any thread.
//!
//! The log's level is set first: CANN hands it to the device when the device is opened, and not again.

use std::cell::Cell;
use std::env;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use simpler_log_abi::Threshold;

use crate::cann::{Cann, checked};
use crate::error::OnboardError;
use crate::signatures::{
    ALL_MODULES, DEVICE_TO_HOST, HOST_TO_DEVICE, Handle, MALLOC_HUGE_FIRST, NO_EVENTS, REPEAT_INITIALIZE,
};

/// CANN's own variable for its level. Where it is present, with any value, it wins over our threshold.
pub const LOG_LEVEL_ENV: &str = "ASCEND_GLOBAL_LOG_LEVEL";

/// How CANN came to the level of its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CannLogLevel {
    /// [`LOG_LEVEL_ENV`] is present: CANN reads it, and was told nothing.
    Environment,
    /// CANN was told this level.
    Set(i32),
    /// CANN was told `level` and refused. That is no reason to do without the device.
    Refused {
        /// What it was told.
        level: i32,
        /// What it returned.
        code: i32,
    },
}

/// Devices opened so far, so that each has a number of its own.
static OPENED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The number of the device whose context this thread has; 0 is none.
    // FORK: a child inherits a number of a device that it may not use.
    static ENTERED: Cell<u64> = const { Cell::new(0) };
}

/// An open device. The fields are dropped in this order, which is the reverse of opening.
// FORK: a child may neither use nor drop a device that it inherited.
pub(crate) struct Device {
    stream: Stream,
    context: Handle,
    attached: Attached,
    cann: Arc<Cann>,
    number: u64,
    pub(crate) log_level: CannLogLevel,
}

impl Device {
    pub(crate) fn open(cann: Arc<Cann>, id: i32, threshold: Threshold) -> Result<Self, OnboardError> {
        if id < 0 {
            return Err(OnboardError::NoDevice(id));
        }
        let log_level = set_log_level(&cann, threshold);
        let initialised = Initialised::new(Arc::clone(&cann))?;
        let attached = Attached::new(initialised, id)?;
        let mut context = Handle::NULL;
        // SAFETY: the pointer is to a local that outlives the call.
        let code = unsafe { (cann.device.get_current_context)(&raw mut context) };
        checked("aclrtGetCurrentContext", code)?;
        let stream = Stream::new(Arc::clone(&cann))?;
        let number = OPENED.fetch_add(1, Ordering::Relaxed) + 1;
        ENTERED.set(number);
        Ok(Self { stream, context, attached, cann, number, log_level })
    }

    pub(crate) const fn id(&self) -> i32 {
        self.attached.id
    }

    pub(crate) fn cann(&self) -> &Cann {
        &self.cann
    }

    pub(crate) const fn stream(&self) -> Handle {
        self.stream.handle
    }

    /// Makes this device the calling thread's. CANN keeps that per thread, a platform may be called from any.
    pub(crate) fn enter(&self) -> Result<(), OnboardError> {
        if ENTERED.get() != self.number {
            // SAFETY: the context belongs to the device, which is attached as long as this value lives.
            let code = unsafe { (self.cann.device.set_current_context)(self.context) };
            checked("aclrtSetCurrentContext", code)?;
            ENTERED.set(self.number);
        }
        Ok(())
    }

    /// Device memory, aligned as CANN aligns it (64 bytes).
    pub(crate) fn malloc(&self, bytes: usize) -> Result<u64, OnboardError> {
        self.enter()?;
        let mut address: *mut c_void = std::ptr::null_mut();
        // SAFETY: the pointer is to a local that outlives the call.
        let code = unsafe { (self.cann.device.malloc)(&raw mut address, bytes, MALLOC_HUGE_FIRST) };
        checked("aclrtMalloc", code)?;
        Ok(address.expose_provenance() as u64)
    }

    /// # Safety
    ///
    /// - `address` came from [`Device::malloc`] of this device and was not freed.
    /// - Nothing on the device uses it any more.
    pub(crate) unsafe fn free(&self, address: u64) -> Result<(), OnboardError> {
        self.enter()?;
        // SAFETY: the caller vouches for the address.
        let code = unsafe { (self.cann.device.free)(pointer(address)) };
        checked("aclrtFree", code)
    }

    /// # Safety
    ///
    /// - `dst` and the bytes behind it are inside one allocation of this device.
    pub(crate) unsafe fn copy_in(&self, dst: u64, src: &[u8]) -> Result<(), OnboardError> {
        self.enter()?;
        let bytes = src.len();
        // SAFETY: the source is a slice, the caller vouches for the destination.
        let code = unsafe {
            (self.cann.device.memcpy)(pointer(dst), bytes, src.as_ptr().cast(), bytes, HOST_TO_DEVICE)
        };
        checked("aclrtMemcpy", code)
    }

    /// # Safety
    ///
    /// - `src` and the bytes behind it are inside one allocation of this device.
    pub(crate) unsafe fn copy_out(&self, dst: &mut [u8], src: u64) -> Result<(), OnboardError> {
        self.enter()?;
        let bytes = dst.len();
        // SAFETY: the destination is a slice, the caller vouches for the source.
        let code = unsafe {
            (self.cann.device.memcpy)(dst.as_mut_ptr().cast(), bytes, pointer(src), bytes, DEVICE_TO_HOST)
        };
        checked("aclrtMemcpy", code)
    }

    /// Waits for all that was put on the stream.
    pub(crate) fn synchronise(&self) -> Result<(), OnboardError> {
        self.enter()?;
        // SAFETY: the stream lives as long as the device.
        let code = unsafe { (self.cann.device.synchronize_stream)(self.stream.handle) };
        checked("aclrtSynchronizeStream", code)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // The fields' own drops follow on this thread; without its context they may fail, and nobody could mend it.
        let _ = self.enter();
        ENTERED.set(0);
    }
}

const fn pointer(address: u64) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

/// Tells CANN's log our threshold, unless the environment has chosen its level.
fn set_log_level(cann: &Cann, threshold: Threshold) -> CannLogLevel {
    if env::var_os(LOG_LEVEL_ENV).is_some() {
        return CannLogLevel::Environment;
    }
    let level = threshold.cann();
    // SAFETY: three integers.
    match unsafe { (cann.log.set_level)(ALL_MODULES, level, NO_EVENTS) } {
        0 => CannLogLevel::Set(level),
        code => CannLogLevel::Refused { level, code },
    }
}

/// AscendCL's own state in this process.
struct Initialised {
    cann: Arc<Cann>,
    /// Somebody in this process initialised it before: it is theirs to finalize.
    is_ours: bool,
}

impl Initialised {
    fn new(cann: Arc<Cann>) -> Result<Self, OnboardError> {
        // SAFETY: null stands for no configuration file.
        let code = unsafe { (cann.device.init)(std::ptr::null()) };
        if code == REPEAT_INITIALIZE {
            return Ok(Self { cann, is_ours: false });
        }
        checked("aclInit", code)?;
        Ok(Self { cann, is_ours: true })
    }
}

impl Drop for Initialised {
    fn drop(&mut self) {
        if self.is_ours {
            // Whatever it returns, there is nothing left to do with it.
            // SAFETY: initialised in `new`; everything that was made since is gone, being dropped before.
            let _ = unsafe { (self.cann.device.finalize)() };
        }
    }
}

/// The process's hold on a device.
struct Attached {
    id: i32,
    initialised: Initialised,
}

impl Attached {
    fn new(initialised: Initialised, id: i32) -> Result<Self, OnboardError> {
        // SAFETY: an integer.
        let code = unsafe { (initialised.cann.device.set_device)(id) };
        checked("aclrtSetDevice", code)?;
        Ok(Self { id, initialised })
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        // As above.
        // SAFETY: attached in `new`, and the stream is gone, being dropped before.
        let _ = unsafe { (self.initialised.cann.device.reset_device)(self.id) };
    }
}

/// The one stream: what is put on it runs in order.
struct Stream {
    cann: Arc<Cann>,
    handle: Handle,
}

impl Stream {
    fn new(cann: Arc<Cann>) -> Result<Self, OnboardError> {
        let mut handle = Handle::NULL;
        // SAFETY: the pointer is to a local that outlives the call.
        let code = unsafe { (cann.device.create_stream)(&raw mut handle) };
        checked("aclrtCreateStream", code)?;
        Ok(Self { cann, handle })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // As above.
        // SAFETY: created in `new`; the device, which alone hands it out, is going.
        let _ = unsafe { (self.cann.device.destroy_stream)(self.handle) };
    }
}
