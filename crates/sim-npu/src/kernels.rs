//! The kernels of a chip: shared objects, each loaded once and kept for the chip's life.
//!
//! A kernel that logs exports a binder and is given this process's log before anything else of it is looked up. On
//! silicon it cannot, so it is for those who look for an error.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use simpler_kernel_abi::{KERNEL_ENTRY, KernelEntry};
use simpler_platform::{HostObject, LoadedObject, PlatformError};

/// The kernels of a chip, by content.
#[derive(Default)]
pub(crate) struct Kernels {
    loaded: Mutex<HashMap<Box<[u8]>, Kernel>>,
}

struct Kernel {
    entry: u64,
    _object: HostObject,
}

impl Kernels {
    /// The address of the image's `kernel_entry`; the same bytes are loaded once.
    pub(crate) fn load(&self, image: &[u8], name: &str) -> Result<u64, PlatformError> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kernel) = loaded.get(image) {
            return Ok(kernel.entry);
        }
        let object = HostObject::load_kernel(image, name)?;
        // Models under loom have no process, and so no log.
        #[cfg(not(loom))]
        if let Some(binder) = object.symbol(simpler_log_abi::BINDER) {
            // SAFETY: the header gives the symbol of this name this type.
            unsafe { simpler_host_log::bind_object(binder, name) }
                .map_err(|why| PlatformError::Load { what: name.to_owned(), why })?;
        }
        let Some(entry) = object.symbol(KERNEL_ENTRY) else {
            let why = format!("it does not export {KERNEL_ENTRY}");
            return Err(PlatformError::Load { what: name.to_owned(), why });
        };
        let entry = entry.expose_provenance() as u64;
        loaded.insert(image.into(), Kernel { entry, _object: object });
        Ok(entry)
    }
}

/// The function that a value of [`Kernels::load`] names; None for 0.
///
/// # Safety
///
/// - `value` is 0 or came from [`Kernels::load`] of a chip that is alive.
pub(crate) const unsafe fn kernel_entry(value: u64) -> Option<KernelEntry> {
    let address: *const () = std::ptr::with_exposed_provenance(value as usize);
    // SAFETY: a nullable function pointer has the size of an address, and null is its None.
    unsafe { std::mem::transmute::<*const (), Option<KernelEntry>>(address) }
}
