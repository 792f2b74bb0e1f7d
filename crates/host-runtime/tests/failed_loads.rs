//! Objects that cannot be loaded: each is refused with a sentence, and closed.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail where it stands")]

mod support;

use std::path::{Path, PathBuf};

use simpler_host_runtime::host_runtime::{ABI_FUNCTION, HOST_RUNTIME_ABI, HostRuntimeApi};
use simpler_host_runtime::loader::HostRuntimeLibrary;
use support::owner::in_own_process;

/// A binder that takes any log.
const BINDER: &str = "static int bound;\n\
    EXPORT int simpler_host_log_bind_state(void *state) { bound = state != 0; return 0; }\n\
    EXPORT int is_bound(void) { return bound; }\n";

/// A function that gives the object's version of the header.
fn version(abi: u32) -> String {
    format!("EXPORT unsigned {ABI_FUNCTION}(void) {{ return {abi}u; }}\n")
}

/// Compiles an object that exports what `EXPORT` stands before.
fn object(folder: &Path, name: &str, text: &str, flags: &[&str]) -> PathBuf {
    let text = format!("#define EXPORT __attribute__((visibility(\"default\")))\n{text}");
    let flags = [&support::build::PLUGIN[..], &["-Wno-pedantic", "-Wno-missing-prototypes"], flags].concat();
    let source = format!("{name}.x");
    support::build::compile(folder, support::build::compilers()[0], &[(&*source, &*text)], &flags, name)
        .unwrap()
}

/// Whether an object is mapped into this process.
fn is_mapped(object: &Path) -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().any(|line| line.ends_with(object.to_str().unwrap()))
}

/// Tries to open; what it says. The object must be gone afterwards.
#[track_caller]
fn refusal(host_runtime: &Path, sim_context: Option<&Path>) -> String {
    // SAFETY: the objects of this test do nothing.
    let error = unsafe { HostRuntimeLibrary::open(host_runtime, sim_context) }.unwrap_err();
    assert!(!is_mapped(&error.path), "{error}");
    assert!(!is_mapped(host_runtime), "{error}");
    let text = error.to_string();
    assert!(text.starts_with(error.path.to_str().unwrap()), "{text}");
    error.why
}

#[test]
fn a_host_runtime_that_cannot_be_used_is_closed() {
    in_own_process("a_host_runtime_that_cannot_be_used_is_closed", || {
        let folder = tempfile::tempdir().unwrap();
        let text = folder.path().join("text.so");
        std::fs::write(&text, "no object\n").unwrap();
        assert!(refusal(&text, None).contains("file too short") || refusal(&text, None).contains("ELF"));
        let missing = folder.path().join("missing.so");
        assert!(refusal(&missing, None).contains("No such file"));
        let silent = object(folder.path(), "silent.so", "EXPORT int simpler_init(void) { return 0; }\n", &[]);
        assert!(refusal(&silent, None).contains("it has no simpler_host_log_bind_state"));
        let refuses = "EXPORT int simpler_host_log_bind_state(void *state) { return state != 0 ? 2 : 0; }\n";
        let refuses = object(folder.path(), "refuses.so", refuses, &[]);
        assert!(
            refusal(&refuses, None)
                .contains("refused the process's log: it says that the threshold is no value")
        );
        let bare = object(folder.path(), "bare.so", BINDER, &[]);
        let why = refusal(&bare, None);
        assert_eq!(why, "it is no host runtime: it has no simpler_host_runtime_abi");
        // The version is looked at first: nothing else is known of another one.
        for other in [HOST_RUNTIME_ABI + 1, 0, u32::MAX] {
            let name = format!("version-{other}.so");
            let other_version = object(folder.path(), &name, &format!("{BINDER}{}", version(other)), &[]);
            let expected = format!("it has version {other} of host_runtime.h, where version 1 is needed");
            assert_eq!(refusal(&other_version, None), expected);
        }
        let same = version(HOST_RUNTIME_ABI);
        let empty = object(folder.path(), "empty.so", &format!("{BINDER}{same}"), &[]);
        assert_eq!(refusal(&empty, None), "it is no host runtime: it has no simpler_create_context");
        // All functions but the last.
        let names = &HostRuntimeApi::NAMES[..HostRuntimeApi::NAMES.len() - 1];
        let all: String =
            names.iter().map(|name| format!("EXPORT int {name}(void) {{ return 0; }}\n")).collect();
        let nearly = object(folder.path(), "nearly.so", &format!("{BINDER}{same}{all}"), &[]);
        assert_eq!(refusal(&nearly, None), "it is no host runtime: it has no simpler_last_error");
    });
}

#[test]
fn a_binder_of_a_dependency_is_not_the_objects() {
    in_own_process("a_binder_of_a_dependency_is_not_the_objects", || {
        let folder = tempfile::tempdir().unwrap();
        object(folder.path(), "bare.so", BINDER, &[]);
        let linked = ["-L.", "-Wl,-rpath,$ORIGIN", "-Wl,--no-as-needed", "-l:bare.so"];
        let silent = object(folder.path(), "silent.so", "EXPORT int nothing;\n", &linked);
        assert!(refusal(&silent, None).contains("it has no simpler_host_log_bind_state"));
    });
}

#[test]
fn a_sim_context_that_cannot_be_used_is_closed_and_not_kept() {
    in_own_process("a_sim_context_that_cannot_be_used_is_closed_and_not_kept", || {
        let folder = tempfile::tempdir().unwrap();
        let runtime = support::host_runtime("a2a3sim");
        let missing = folder.path().join("missing.so");
        assert!(refusal(&runtime, Some(&missing)).contains("the sim context is not there"));
        let silent = object(folder.path(), "silent.so", "EXPORT int nothing;\n", &[]);
        for _ in 0..2 {
            assert!(refusal(&runtime, Some(&silent)).contains("it has no simpler_host_log_bind_state"));
        }
    });
}

#[test]
fn a_whole_sim_context_is_loaded_once_a_path_and_kept() {
    in_own_process("a_whole_sim_context_is_loaded_once_a_path_and_kept", || {
        let folder = tempfile::tempdir().unwrap();
        // It counts its bindings where anybody can see them.
        let counts = "EXPORT int bindings_of_the_context;\n\
            EXPORT int simpler_host_log_bind_state(void *state) { (void)state; bindings_of_the_context++; return 0; }\n";
        let context = object(folder.path(), "context.so", counts, &[]);
        let other_name = folder.path().join("other.so");
        std::os::unix::fs::symlink(&context, &other_name).unwrap();
        let missing = folder.path().join("missing.so");
        for path in [&context, &other_name, &context] {
            assert!(refusal(&missing, Some(path)).contains("No such file"));
            assert!(is_mapped(&context));
        }
        // SAFETY: a symbol of global visibility, an int.
        let bindings = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"bindings_of_the_context".as_ptr()) };
        assert!(!bindings.is_null(), "it is globally visible");
        // SAFETY: as above.
        assert_eq!(unsafe { *bindings.cast::<i32>() }, 1);
    });
}

#[test]
fn the_log_is_bound_before_anything_else_is_looked_up() {
    in_own_process("the_log_is_bound_before_anything_else_is_looked_up", || {
        let folder = tempfile::tempdir().unwrap();
        // An indirect function is resolved when it is looked up: then the log must be bound.
        let mut text = format!(
            "{BINDER}#include <stdlib.h>\nstatic int looked_up;\nEXPORT int lookups(void) {{ return looked_up; }}\n\
             typedef int (*Function)(void);\nstatic int nothing(void) {{ return 0; }}\n\
             static Function resolve(void) {{ if (!bound) abort(); looked_up++; return nothing; }}\n"
        );
        text += "static int version(void) { return 1; }\n\
                 static Function resolve_first(void) { if (!bound || looked_up) abort(); return version; }\n";
        text += &format!("EXPORT int {ABI_FUNCTION}(void) __attribute__((ifunc(\"resolve_first\")));\n");
        for name in HostRuntimeApi::NAMES {
            text += &format!("EXPORT int {name}(void) __attribute__((ifunc(\"resolve\")));\n");
        }
        let object = object(folder.path(), "order.so", &text, &[]);
        // SAFETY: its functions do nothing.
        let library = unsafe { HostRuntimeLibrary::open(&object, None) }.unwrap();
        let path = std::ffi::CString::new(object.to_str().unwrap()).unwrap();
        // SAFETY: it is open.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
        // SAFETY: an open handle.
        let lookups = unsafe { libc::dlsym(handle, c"lookups".as_ptr()) };
        // SAFETY: the text above gives it this type.
        let lookups =
            unsafe { std::mem::transmute::<*mut std::ffi::c_void, extern "C" fn() -> i32>(lookups) };
        assert_eq!(lookups() as usize, HostRuntimeApi::NAMES.len());
        // SAFETY: opened above.
        unsafe { libc::dlclose(handle) };
        drop(library);
        assert!(!is_mapped(&object), "nobody has it open");
    });
}
