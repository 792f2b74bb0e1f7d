//! What the tests share: the stand-in for CANN, a library of its own for each test.
#![allow(dead_code, reason = "each test file uses its own part")]
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

use std::ffi::{CStr, CString, c_char, c_int};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use libloading::os::unix::{Library, Symbol};
use simpler_log_abi::Threshold;
use simpler_onboard::{Cann, CannPaths, OnboardError, OnboardNpu, OnboardOptions, a2a3};
use tempfile::TempDir;

/// The stand-in's name in its folder.
pub(crate) const NAME: &str = "libstandin.so";

/// A file of this crate.
pub(crate) fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Runs a compiler over arguments; its words when it refuses.
pub(crate) fn compile(program: &str, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(arguments).output().unwrap();
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

/// The stand-in of one test: a library of its own, since the loader tells files apart, not their contents.
pub(crate) struct StandIn {
    folder: TempDir,
    library: Library,
}

impl StandIn {
    pub(crate) fn new() -> Self {
        Self::compiled_with(&[])
    }

    /// Without one of the functions.
    pub(crate) fn without(symbol: &str) -> Self {
        Self::compiled_with(&[&format!("-D{symbol}=stand_in_has_no_{symbol}")])
    }

    fn compiled_with(flags: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (source, object) = (file("tests/data/cann_stand_in.c"), folder.path().join(NAME));
        let common = ["-std=c11", "-Wall", "-Wextra", "-pedantic", "-Werror", "-shared", "-fPIC"];
        let files = [source.to_str().unwrap(), "-o", object.to_str().unwrap()];
        compile("gcc", &[&common, flags, &files].concat()).unwrap();
        // SAFETY: the stand-in has no initialisers.
        let library = unsafe { Library::new(&object) }.unwrap();
        Self { folder, library }
    }

    /// Where it is.
    pub(crate) fn paths(&self) -> CannPaths {
        let folder = Some(self.folder.path().to_owned());
        CannPaths { folder, acl: vec![NAME.into()], log: vec![NAME.into()] }
    }

    pub(crate) fn load(&self) -> Arc<Cann> {
        Cann::load(&self.paths()).unwrap()
    }

    /// An a2a3 with number 3.
    pub(crate) fn open(&self, threshold: Threshold) -> Result<OnboardNpu, OnboardError> {
        OnboardNpu::open(self.load(), OnboardOptions { profile: a2a3(), device: 3, threshold })
    }

    /// The calls since the last question.
    pub(crate) fn calls(&self) -> Vec<String> {
        let take: Symbol<unsafe extern "C" fn() -> *const c_char> = self.symbol("stand_in_take_calls");
        // SAFETY: the signature is the stand-in's.
        let text = unsafe { take() };
        // SAFETY: a C string that stays until the next call.
        let text = unsafe { CStr::from_ptr(text) };
        text.to_str().unwrap().lines().map(str::to_owned).collect()
    }

    /// After `earlier` more calls `function` returns `code`, once.
    pub(crate) fn fail(&self, function: &str, earlier: c_int, code: c_int) {
        let fail: Symbol<unsafe extern "C" fn(*const c_char, c_int, c_int)> = self.symbol("stand_in_fail");
        let function = CString::new(function).unwrap();
        // SAFETY: the signature is the stand-in's, and it copies the name.
        unsafe { fail(function.as_ptr(), earlier, code) };
    }

    /// What a run stores: the first word of its buffer, and 7 in the last of so many bytes.
    pub(crate) fn stamp(&self, first_word: u64, bytes: usize) {
        let stamp: Symbol<unsafe extern "C" fn(u64, usize)> = self.symbol("stand_in_stamp");
        // SAFETY: the signature is the stand-in's.
        unsafe { stamp(first_word, bytes) };
    }

    pub(crate) fn live_allocations(&self) -> c_int {
        let live: Symbol<unsafe extern "C" fn() -> c_int> = self.symbol("stand_in_live_allocations");
        // SAFETY: the signature is the stand-in's.
        unsafe { live() }
    }

    fn symbol<T>(&self, name: &str) -> Symbol<T> {
        // SAFETY: each caller gives the stand-in's own signature.
        unsafe { self.library.get(name) }.unwrap()
    }
}
