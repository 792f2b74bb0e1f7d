//! Sources to objects: determinism, the cache, the compiler's words, and the section that ties them together.

#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

use std::path::Path;

use simpler_kernel_abi::CoreKind;
use simpler_kernel_compiler::{
    CallableSource, CompileErrorKind, Compiler, KernelSource, SectionError, SourceFile, digest,
    embedded_kernels,
};

const ORCHESTRATION: &str = r#"
#include <simpler/orchestration.h>
#include "shared.h"
int aicpu_orchestration_entry(const SimplerOrchestrationApi *api, SimplerRun *run, const SimplerChipArgs *args) {
    (void)api; (void)run; (void)args;
    return SHARED;
}
"#;
const KERNEL: &str = r#"
#include <simpler/kernel.h>
#include <math.h>
void kernel_entry(const SimplerKernelArgs *args) {
    float *x = simpler_tensor_data(args->tensors[0]);
    *x = expf(*x);
}
"#;

fn callable(kernel: &str) -> CallableSource {
    CallableSource {
        name: "sample".into(),
        orchestration: SourceFile::new("sample.c", ORCHESTRATION),
        kernels: vec![
            KernelSource { file: SourceFile::new("first.c", kernel.to_owned()), kind: CoreKind::Aiv },
            KernelSource { file: SourceFile::new("second.c", KERNEL), kind: CoreKind::Aic },
        ],
        headers: vec![SourceFile::new("shared.h", "#define SHARED 0\n")],
    }
}

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap()
}

#[test]
fn the_same_text_gives_the_same_bytes_in_another_folder() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let first = Compiler::new(one.path()).unwrap().compile(&callable(KERNEL)).unwrap();
    let second = Compiler::new(two.path().join("deeper")).unwrap().compile(&callable(KERNEL)).unwrap();
    assert_eq!(read(&first.orchestration), read(&second.orchestration));
    assert_eq!(read(&first.kernels[0].0), read(&second.kernels[0].0));
    let text = String::from_utf8_lossy(&read(&first.orchestration)).into_owned();
    assert!(!text.contains(&*one.path().to_string_lossy()), "the object names the folder it was built in");
}

#[test]
fn the_orchestration_object_names_its_kernels() {
    let cache = tempfile::tempdir().unwrap();
    let objects = Compiler::new(cache.path()).unwrap().compile(&callable(KERNEL)).unwrap();
    let embedded = embedded_kernels(&read(&objects.orchestration)).unwrap();
    assert_eq!(embedded.len(), 2);
    for (kernel, (path, kind)) in embedded.iter().zip(&objects.kernels) {
        assert_eq!(kernel.name, path.file_stem().unwrap().to_str().unwrap());
        assert_eq!(kernel.kind, *kind);
        assert_eq!(kernel.digest, digest(&read(path)));
    }
    assert_eq!(embedded_kernels(&read(&objects.kernels[0].0)), Err(SectionError::Missing));
    assert_eq!(embedded_kernels(b"text"), Err(SectionError::NotElf));
}

#[test]
fn a_changed_kernel_changes_the_orchestration_object_too() {
    let cache = tempfile::tempdir().unwrap();
    let compiler = Compiler::new(cache.path()).unwrap();
    let before = compiler.compile(&callable(KERNEL)).unwrap();
    let after = compiler.compile(&callable(&KERNEL.replace("expf(*x)", "expf(*x) + 1.0f"))).unwrap();
    assert_ne!(read(&before.kernels[0].0), read(&after.kernels[0].0));
    assert_eq!(before.kernels[1], after.kernels[1], "the other kernel is the cached one");
    assert_ne!(read(&before.orchestration), read(&after.orchestration));
}

#[test]
fn a_changed_header_is_a_miss_and_a_repeat_a_hit() {
    let cache = tempfile::tempdir().unwrap();
    let compiler = Compiler::new(cache.path()).unwrap();
    let first = compiler.compile(&callable(KERNEL)).unwrap();
    let written = std::fs::metadata(&first.orchestration).unwrap().modified().unwrap();
    let again = compiler.compile(&callable(KERNEL)).unwrap();
    assert_eq!(first, again);
    assert_eq!(std::fs::metadata(&again.orchestration).unwrap().modified().unwrap(), written);
    let mut changed = callable(KERNEL);
    changed.headers[0].text = "#define SHARED 1\n".into();
    assert_ne!(compiler.compile(&changed).unwrap().orchestration, first.orchestration);
}

#[test]
fn an_error_carries_the_compilers_words_and_leaves_nothing_behind() {
    let cache = tempfile::tempdir().unwrap();
    let compiler = Compiler::new(cache.path()).unwrap();
    let error = compiler.compile(&callable("int kernel_entry = no_such_word;")).unwrap_err();
    assert!(matches!(error.kind, CompileErrorKind::Refused(_)), "{error}");
    let text = error.to_string();
    assert!(text.contains("first.c") && text.contains("no_such_word"), "{text}");
    // An undefined function is found when the object is linked, not when it is loaded.
    let error = compiler
        .compile(&callable(
            &KERNEL.replace("expf(*x)", "not_there()").replace("#include <math.h>", "float not_there(void);"),
        ))
        .unwrap_err();
    assert!(error.to_string().contains("not_there"), "{error}");
    for entry in std::fs::read_dir(cache.path()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(!name.starts_with("unfinished-"), "{name}");
    }
}

#[test]
fn names_that_leave_the_folder_are_refused() {
    let cache = tempfile::tempdir().unwrap();
    let compiler = Compiler::new(cache.path()).unwrap();
    for name in ["../escape.c", "/tmp/x.c", "kernel.h", "", "-flag.c", ".hidden.c"] {
        let mut bad = callable(KERNEL);
        bad.kernels[0].file.name = name.into();
        let error = compiler.compile(&bad).unwrap_err();
        assert!(matches!(error.kind, CompileErrorKind::Name(_)), "{name}: {error}");
    }
    let mut generated = callable(KERNEL);
    generated.orchestration.name = "simpler_kernels_section.c".into();
    assert!(matches!(compiler.compile(&generated).unwrap_err().kind, CompileErrorKind::Name(_)));
    let mut twice = callable(KERNEL);
    twice.headers.push(twice.headers[0].clone());
    assert!(matches!(compiler.compile(&twice).unwrap_err().kind, CompileErrorKind::Name(_)));
}

#[test]
fn concurrent_compilations_agree() {
    let cache = tempfile::tempdir().unwrap();
    let all: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| Compiler::new(cache.path()).unwrap().compile(&callable(KERNEL)).unwrap()))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for objects in &all {
        assert_eq!(objects, &all[0]);
        assert!(embedded_kernels(&read(&objects.orchestration)).is_ok());
    }
}

#[test]
fn an_orchestration_that_logs_needs_no_more_than_the_headers() {
    let cache = tempfile::tempdir().unwrap();
    let mut logging = callable(KERNEL);
    logging.orchestration.text = ORCHESTRATION
        .replace("#include \"shared.h\"", "#include \"shared.h\"\n#include <simpler/strace.h>")
        .replace("(void)api;", "(void)api; SIMPLER_SPAN(\"ext.sample.entry\"); LOG_INFO(\"%d kernels\", 2);")
        .into();
    let compiler = Compiler::new(cache.path()).unwrap();
    let objects = compiler.compile(&logging).unwrap();
    assert!(holds(&read(&objects.orchestration), "simpler_host_log_bind_state"));
    // One that does not log is not made bigger by it.
    let silent = compiler.compile(&callable(KERNEL)).unwrap();
    assert!(!holds(&read(&silent.orchestration), "simpler_host_log_bind_state"));
}

fn holds(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

const RUST_ORCHESTRATION: &str = r#"
use simpler_kernel_abi::*;
mod shared;
#[unsafe(no_mangle)]
pub extern "C" fn aicpu_orchestration_entry(
    _api: *const SimplerOrchestrationApi,
    _run: *mut SimplerRun,
    _args: *const SimplerChipArgs,
) -> core::ffi::c_int {
    shared::ANSWER
}
"#;

fn in_rust(orchestration: &str) -> CallableSource {
    CallableSource {
        name: "sample".into(),
        orchestration: SourceFile::new("sample.rs", orchestration.to_owned()),
        kernels: vec![KernelSource { file: SourceFile::new("first.c", KERNEL), kind: CoreKind::Aiv }],
        headers: vec![SourceFile::new("shared.rs", "pub const ANSWER: i32 = 0;\n")],
    }
}

#[test]
fn rust_sources_give_the_same_bytes_everywhere_and_name_their_kernels() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let source = in_rust(RUST_ORCHESTRATION);
    let first = Compiler::new(one.path()).unwrap().compile(&source).unwrap();
    let second = Compiler::new(two.path().join("deeper")).unwrap().compile(&source).unwrap();
    let bytes = read(&first.orchestration);
    assert_eq!(bytes, read(&second.orchestration));
    assert!(!holds(&bytes, &one.path().to_string_lossy()), "the object names the folder it was built in");
    let kernels = embedded_kernels(&bytes).unwrap();
    assert_eq!(kernels.len(), 1);
    assert_eq!(kernels[0].digest, digest(&read(&first.kernels[0].0)));
    // A module is part of the content.
    let mut other = source.clone();
    other.headers[0].text = "pub const ANSWER: i32 = 1;\n".into();
    let other = Compiler::new(one.path()).unwrap().compile(&other).unwrap();
    assert_ne!(other.orchestration, first.orchestration);
}

#[test]
fn an_error_in_rust_carries_the_compilers_words() {
    let cache = tempfile::tempdir().unwrap();
    let source = in_rust(&RUST_ORCHESTRATION.replace("shared::ANSWER", "shared::QUESTION"));
    let error = Compiler::new(cache.path()).unwrap().compile(&source).unwrap_err();
    assert_eq!(error.what, "sample.rs");
    let CompileErrorKind::Refused(words) = &error.kind else { panic!("{error}") };
    assert!(words.contains("QUESTION") && words.contains("sources/sample.rs:10"), "{words}");
}

#[test]
fn without_a_rust_compiler_a_rust_source_is_refused_and_c_is_not() {
    const NOWHERE: &str = "/nowhere/rustc";
    if std::env::var_os("RUSTC").is_none_or(|rustc| rustc != NOWHERE) {
        // The environment is the process's, so this test runs itself in another one.
        let name = "without_a_rust_compiler_a_rust_source_is_refused_and_c_is_not";
        let mut itself = std::process::Command::new(std::env::current_exe().unwrap());
        let output = itself.args(["--exact", name]).env("RUSTC", NOWHERE).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        return;
    }
    let cache = tempfile::tempdir().unwrap();
    let compiler = Compiler::new(cache.path()).unwrap();
    compiler.compile(&callable(KERNEL)).unwrap();
    let error = compiler.compile(&in_rust(RUST_ORCHESTRATION)).unwrap_err();
    assert!(
        matches!(&error.kind, CompileErrorKind::Spawn { compiler, .. } if compiler == NOWHERE),
        "{error}"
    );
    assert!(error.to_string().contains("cannot run the compiler /nowhere/rustc"), "{error}");
}
