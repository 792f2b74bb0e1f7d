//! A shared object loaded into this process from its bytes.
//!
//! Orchestrations are such objects wherever they run on a CPU of this process: on a simulated AICPU, or on the host for
//! host_build_graph; kernels are on a simulated chip. An image is written to a memory file and opened by its
//! `/proc/self/fd` path, so nothing is left in a file system. The dynamic loader knows an object by its path before it
//! looks at the file: the descriptor, and with it the path, must not be used again while the object is mapped, so it is
//! closed after the object is gone, and never if the object stays (which one linked `-z nodelete` does).

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Write};
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd};

use libloading::os::unix::{Library, RTLD_LAZY, RTLD_LOCAL, RTLD_NOW};

use crate::{LoadedObject, PlatformError};

/// The longest name a memory file may have; a longer one is shortened, since it is only for people to read.
const NAME_BYTES_MAX: usize = 200;

/// An object in this process; see the module.
#[derive(Debug)]
pub struct HostObject {
    library: ManuallyDrop<Library>,
    file: ManuallyDrop<File>,
    path: String,
}

impl HostObject {
    /// Loads an orchestration: symbols are bound when they are first called. Its constructors run here.
    ///
    /// # Errors
    /// The loader's words.
    pub fn load_orchestration(image: &[u8], name: &str) -> Result<Self, PlatformError> {
        Self::load(image, name, RTLD_LAZY | RTLD_LOCAL)
    }

    /// Loads a kernel: symbols are bound at once. Its constructors run here.
    ///
    /// # Errors
    /// The loader's words.
    pub fn load_kernel(image: &[u8], name: &str) -> Result<Self, PlatformError> {
        Self::load(image, name, RTLD_NOW | RTLD_LOCAL)
    }

    fn load(image: &[u8], name: &str, flags: i32) -> Result<Self, PlatformError> {
        let failed = |why: String| PlatformError::Load { what: name.to_owned(), why };
        let mut file = memory_file(name).map_err(|error| failed(error.to_string()))?;
        file.write_all(image).map_err(|error| failed(error.to_string()))?;
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        // SAFETY: loading runs the object's constructors. Kernels and orchestrations are code that the caller
        // has chosen to run in this process.
        let library =
            unsafe { Library::open(Some(&*path), flags) }.map_err(|error| failed(describe(&error)))?;
        Ok(Self { library: ManuallyDrop::new(library), file: ManuallyDrop::new(file), path })
    }

    fn still_mapped(&self) -> bool {
        // SAFETY: NOLOAD loads nothing and runs nothing; a handle that it gives is closed again at once.
        unsafe { Library::open(Some(&*self.path), RTLD_LAZY | libc::RTLD_NOLOAD) }.is_ok()
    }
}

impl LoadedObject for HostObject {
    fn symbol(&self, name: &str) -> Option<*const ()> {
        // SAFETY: only the address is taken; what it is, is for the caller to know.
        let symbol = unsafe { self.library.get::<*const ()>(name) }.ok()?;
        Some(symbol.as_raw_ptr().cast_const().cast())
    }
}

impl Drop for HostObject {
    fn drop(&mut self) {
        // SAFETY: taken once, here.
        let library = unsafe { ManuallyDrop::take(&mut self.library) };
        // An object that cannot be closed is still mapped, which is asked next.
        drop(library.close());
        if !self.still_mapped() {
            // SAFETY: dropped once, here.
            unsafe { ManuallyDrop::drop(&mut self.file) };
        }
    }
}

fn memory_file(name: &str) -> io::Result<File> {
    let name: Vec<u8> = name.bytes().filter(|&byte| byte != 0).take(NAME_BYTES_MAX).collect();
    let name = CString::new(name)?;
    // SAFETY: the name is a C string that outlives the call.
    let descriptor = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { File::from_raw_fd(descriptor) })
}

/// The loader's own words, which the error keeps as its source.
fn describe(error: &libloading::Error) -> String {
    let source = std::error::Error::source(error);
    source.map_or_else(|| error.to_string(), ToString::to_string)
}
