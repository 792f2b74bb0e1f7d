//! What the tests of C modules share: the plugin, built once a process, and its functions.
#![allow(dead_code, reason = "each test file uses its own part")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail where it stands")]

use std::ffi::{CString, c_char, c_int, c_ulong};
use std::path::{Path, PathBuf};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use simpler_log_abi::{SimplerHostLogState, SimplerHostSpan};

#[path = "../../../log-abi/tests/support/mod.rs"]
pub(crate) mod build;
#[path = "../../../host-log/tests/support/mod.rs"]
pub(crate) mod owner;

/// A C source of this folder.
pub(crate) fn source(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(name)).unwrap()
}

/// Builds the plugin of two files in `folder`.
pub(crate) fn build_plugin(folder: &Path, compiler: build::Compiler, flags: &[&str]) -> PathBuf {
    std::fs::write(folder.join("plugin.h"), source("plugin.h")).unwrap();
    let sources = [("plugin.c", source("plugin.c")), ("second.c", source("second.c"))];
    let sources = [(sources[0].0, &*sources[0].1), (sources[1].0, &*sources[1].1)];
    let flags = [&build::PLUGIN[..], &["-O0"], flags].concat();
    build::compile(folder, compiler, &sources, &flags, "plugin.so").unwrap()
}

/// The plugin, loaded. Dropping it unloads it.
#[derive(Debug)]
pub(crate) struct Plugin {
    library: Library,
    _folder: Option<tempfile::TempDir>,
}

impl Plugin {
    /// The plugin as gcc makes it of C.
    pub(crate) fn load() -> Plugin {
        let folder = tempfile::tempdir().unwrap();
        let file = build_plugin(folder.path(), build::compilers()[0], &[]);
        Plugin { _folder: Some(folder), ..Plugin::open(&file) }
    }

    pub(crate) fn open(file: &Path) -> Plugin {
        // SAFETY: the plugin's constructors do nothing.
        let library = unsafe { Library::open(Some(file), RTLD_NOW | RTLD_LOCAL) }.unwrap();
        Plugin { library, _folder: None }
    }

    /// A function of the plugin.
    ///
    /// # Safety
    ///
    /// - `name` has the type `T`, a function pointer.
    unsafe fn function<T: Copy>(&self, name: &str) -> T {
        // SAFETY: the caller's obligation.
        *unsafe { self.library.get::<T>(name) }.unwrap()
    }

    pub(crate) fn bind(&self, state: *const SimplerHostLogState) -> c_int {
        // SAFETY: host_log_state.h gives it this type.
        let bind = unsafe {
            self.function::<unsafe extern "C" fn(*mut SimplerHostLogState) -> c_int>(
                "simpler_host_log_bind_state",
            )
        };
        // SAFETY: null, or a state that lives as long as the process.
        unsafe { bind(state.cast_mut()) }
    }

    pub(crate) fn call(&self, name: &str) {
        // SAFETY: the callers name functions of this type.
        let function = unsafe { self.function::<extern "C" fn()>(name) };
        function();
    }

    pub(crate) fn call_with(&self, name: &str, n: c_int) {
        // SAFETY: as above.
        let function = unsafe { self.function::<extern "C" fn(c_int)>(name) };
        function(n);
    }

    pub(crate) fn ask(&self, name: &str, n: c_int) -> c_int {
        // SAFETY: as above.
        let function = unsafe { self.function::<extern "C" fn(c_int) -> c_int>(name) };
        function(n)
    }

    pub(crate) fn log_many(&self, from: c_int, count: c_int) {
        // SAFETY: the plugin gives it this type.
        let function = unsafe { self.function::<extern "C" fn(c_int, c_int)>("plugin_log_many") };
        function(from, count);
    }

    pub(crate) fn invocation(&self, hid: c_ulong) {
        // SAFETY: as above.
        let function = unsafe { self.function::<extern "C" fn(c_ulong)>("plugin_invocation") };
        function(hid);
    }

    pub(crate) fn raw_span(&self, span: *const SimplerHostSpan) {
        // SAFETY: as above.
        let function =
            unsafe { self.function::<unsafe extern "C" fn(*const SimplerHostSpan)>("plugin_raw_span") };
        // SAFETY: null, or a span of C texts.
        unsafe { function(span) };
    }

    pub(crate) fn text(&self, func: Option<&[u8]>, format: Option<&[u8]>) {
        type Text = unsafe extern "C" fn(*const c_char, *const c_char);
        // SAFETY: as above.
        let function = unsafe { self.function::<Text>("plugin_text") };
        let owned = |bytes: Option<&[u8]>| bytes.map(|bytes| CString::new(bytes).unwrap());
        let (func, format) = (owned(func), owned(format));
        let pointer = |text: &Option<CString>| text.as_ref().map_or(std::ptr::null(), |text| text.as_ptr());
        // SAFETY: C texts or null; a format takes at most three integers.
        unsafe { function(pointer(&func), pointer(&format)) };
    }
}

/// A state of nobody's but the test's.
pub(crate) fn lone_state(threshold: simpler_log_abi::Threshold) -> &'static SimplerHostLogState {
    Box::leak(Box::new(SimplerHostLogState::new(threshold)))
}

/// Puts a path into a state, bound.
pub(crate) fn bind_directory(state: &SimplerHostLogState, path: &Path) {
    use std::os::unix::ffi::OsStrExt;
    use std::sync::atomic::Ordering;
    for (place, byte) in state.log_directory.iter().zip(path.as_os_str().as_bytes().iter().chain(&[0])) {
        place.store(*byte, Ordering::Relaxed);
    }
    state.log_directory_bound.store(1, Ordering::Release);
}

/// The lost records of a state by reason, which the total must agree with.
pub(crate) fn lost(state: &SimplerHostLogState) -> [u64; 4] {
    use std::sync::atomic::Ordering;
    let by_reason = simpler_log_abi::DropReason::ALL
        .map(|reason| state.dropped_by_reason[reason as usize].load(Ordering::Relaxed));
    assert_eq!(state.dropped_record_count.load(Ordering::Relaxed), by_reason.iter().sum::<u64>());
    by_reason
}
