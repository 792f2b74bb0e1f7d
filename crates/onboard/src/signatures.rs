//! CANN's functions as its public documentation gives them: the one place to mend if a release differs.
//!
//! From the AscendCL reference (8.0 and 8.5), which gives prototypes and enumerations: everything `acl*`.
//! From uses in public sources only, since the log's functions are in no reference: `dlog_setlevel`. Not checked
//! against any header of an installed toolkit, and never called on silicon.

use std::ffi::{c_char, c_int, c_void};

use crate::cann::Opened;
use crate::error::OnboardError;

/// `aclError`: 0 is success.
pub(crate) type AclError = c_int;

/// What `aclInit` returns when the process has called it before (`ACL_ERROR_REPEAT_INITIALIZE`).
pub(crate) const REPEAT_INITIALIZE: AclError = 100_002;
/// `ACL_MEM_MALLOC_HUGE_FIRST`: huge pages for what is large, as long as there are some.
pub(crate) const MALLOC_HUGE_FIRST: c_int = 0;
/// `ACL_MEMCPY_HOST_TO_DEVICE`.
pub(crate) const HOST_TO_DEVICE: c_int = 1;
/// `ACL_MEMCPY_DEVICE_TO_HOST`.
pub(crate) const DEVICE_TO_HOST: c_int = 2;
/// `dlog_setlevel`'s module id for all modules.
pub(crate) const ALL_MODULES: c_int = -1;
/// `dlog_setlevel`'s last argument: events are not switched on.
pub(crate) const NO_EVENTS: c_int = 0;

/// A stream, context, binary or function of CANN.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handle(pub(crate) *mut c_void);

impl Handle {
    pub(crate) const NULL: Handle = Handle(std::ptr::null_mut());
}

// SAFETY: a handle is a number to us; CANN takes it from any thread that has entered the device's context.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

/// `aclrtBinaryLoadOption`: a kind and a union of 16 bytes.
#[repr(C)]
pub(crate) struct BinaryLoadOption {
    pub(crate) kind: c_int,
    pub(crate) value: [u32; 4],
}

/// `aclrtBinaryLoadOptions`.
#[repr(C)]
pub(crate) struct BinaryLoadOptions {
    pub(crate) options: *mut BinaryLoadOption,
    pub(crate) count: usize,
}

/// `ACL_RT_BINARY_LOAD_OPT_CPU_KERNEL_MODE`.
pub(crate) const CPU_KERNEL_MODE: c_int = 3;
/// Its value for a binary from memory, whose functions are registered one by one.
pub(crate) const CPU_KERNEL_FROM_DATA: u32 = 2;

const _: () = {
    assert!(size_of::<BinaryLoadOption>() == 20 && align_of::<BinaryLoadOption>() == 4);
    assert!(size_of::<BinaryLoadOptions>() == 16 && align_of::<BinaryLoadOptions>() == 8);
};

macro_rules! functions {
    ($(#[$doc:meta])* $name:ident { $($symbol:literal $field:ident ($($argument:ty),*);)* }) => {
        $(#[$doc])*
        pub(crate) struct $name {
            $(pub(crate) $field: unsafe extern "C" fn($($argument),*) -> AclError,)*
        }

        impl $name {
            /// Looks every symbol up, once; the first that is missing is the error.
            pub(crate) fn resolve(library: &Opened) -> Result<Self, OnboardError> {
                $(
                    // SAFETY: the signature beside the symbol's name is the one that CANN documents for it.
                    let $field = unsafe { library.function($symbol) }?;
                )*
                Ok(Self { $($field),* })
            }
        }
    };
}

functions! {
    /// Of the log's library.
    LogFunctions {
        // module, level, events
        "dlog_setlevel" set_level(c_int, c_int, c_int);
    }
}

functions! {
    /// Of AscendCL's library; without one of them there is no device.
    DeviceFunctions {
        // path of a configuration file or null
        "aclInit" init(*const c_char);
        "aclFinalize" finalize();
        "aclrtSetDevice" set_device(i32);
        "aclrtResetDevice" reset_device(i32);
        "aclrtGetCurrentContext" get_current_context(*mut Handle);
        "aclrtSetCurrentContext" set_current_context(Handle);
        "aclrtCreateStream" create_stream(*mut Handle);
        "aclrtDestroyStream" destroy_stream(Handle);
        "aclrtSynchronizeStream" synchronize_stream(Handle);
        // out: address; bytes, policy
        "aclrtMalloc" malloc(*mut *mut c_void, usize, c_int);
        "aclrtFree" free(*mut c_void);
        // destination, its room, source, bytes, kind
        "aclrtMemcpy" memcpy(*mut c_void, usize, *const c_void, usize, c_int);
    }
}

functions! {
    /// Of AscendCL's library, in newer releases only: what it takes to launch a function by its name.
    LaunchFunctions {
        // image, bytes, options, out: binary
        "aclrtBinaryLoadFromData" load(*const c_void, usize, *const BinaryLoadOptions, *mut Handle);
        "aclrtBinaryUnLoad" unload(Handle);
        // binary, symbol in the image, name to register it under, out: function
        "aclrtRegisterCpuFunc" register(Handle, *const c_char, *const c_char, *mut Handle);
        // function, blocks, stream, configuration or null, arguments, their bytes, placeholders or null, their count
        "aclrtLaunchKernelWithHostArgs" launch(
            Handle, u32, Handle, *mut c_void, *mut c_void, usize, *mut c_void, usize
        );
    }
}
