//! What the tests of the runtime objects share: the objects themselves, a scene's image, and the spans of a run.
#![allow(dead_code, reason = "each test file uses its own part")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail where it stands")]

use std::path::{Path, PathBuf};
use std::process::Command;

use simpler_kernel_abi::CoreKind;
use simpler_kernel_compiler::{CallableObjects, CallableSource, Compiler, KernelSource, SourceFile};
use simpler_runtime::{CallableImage, RunIdentity};
use simpler_scenes::Scene;

#[path = "../../../log-abi/tests/support/mod.rs"]
pub(crate) mod build;
#[path = "../../../host-log/tests/support/mod.rs"]
pub(crate) mod owner;

/// The simulated architectures.
pub(crate) const PLATFORMS: [&str; 2] = ["a2a3sim", "a5sim"];

/// Nobody counts.
pub(crate) const NOBODY: RunIdentity = RunIdentity { run_id: 0, dispatch_id: 0 };

/// A file of another package, built as it is now. Cargo builds for a test only what Rust can link.
pub(crate) fn built(package: &str, name: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let output = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--offline", "--package", package, "--target-dir"])
        .arg(target)
        // Flags of this test's own build, a sanitizer say, are none of the object's.
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("CARGO_BUILD_TARGET")
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "cargo build: {}", String::from_utf8_lossy(&output.stderr));
    target.join("debug").join(name)
}

pub(crate) fn host_runtime(platform: &str) -> PathBuf {
    let name = format!("libsimpler_host_runtime_{platform}.so");
    built(&format!("simpler-host-runtime-{platform}"), &name)
}

pub(crate) fn sim_context() -> PathBuf {
    built("simpler-sim-context", "libsimpler_sim_context.so")
}

/// The folders of the headers that `host_runtime.h` needs, as flags.
pub(crate) fn includes() -> [String; 3] {
    let here = env!("CARGO_MANIFEST_DIR");
    [
        format!("-I{here}/include"),
        format!("-I{here}/sim-context/include"),
        format!("-I{here}/../kernel-abi/include"),
    ]
}

fn compiler() -> Compiler {
    Compiler::new(Path::new(env!("CARGO_TARGET_TMPDIR")).join("callables")).unwrap()
}

/// A scene's objects.
pub(crate) fn objects(scene: &Scene) -> CallableObjects {
    compiler().compile(&scene.source()).unwrap_or_else(|why| panic!("{why}"))
}

/// A scene's objects, read.
pub(crate) fn image(scene: &Scene) -> CallableImage {
    CallableImage::load(&objects(scene)).unwrap()
}

/// A callable of one orchestration and kernels of vector cores, as (name, text).
pub(crate) fn callable(name: &str, orchestration: &str, kernels: &[(&str, &str)]) -> CallableImage {
    let file = |name: &str, text: &str| SourceFile::new(format!("{name}.c"), text.to_owned());
    let kernel = |(name, text): &(&str, &str)| KernelSource { file: file(name, text), kind: CoreKind::Aiv };
    let source = CallableSource {
        name: name.to_owned(),
        orchestration: file(name, orchestration),
        kernels: kernels.iter().map(kernel).collect(),
        headers: Vec::new(),
    };
    CallableImage::load(&compiler().compile(&source).unwrap_or_else(|why| panic!("{why}"))).unwrap()
}

/// The spans of one invocation, as (depth, name), in the order of the log.
pub(crate) fn tree(spans: &[owner::SpanLine], inv: u64) -> Vec<(i64, &str)> {
    spans.iter().filter(|span| span.inv == inv).map(|span| (span.depth, &*span.name)).collect()
}

/// The root spans of runs, in the order of the log.
pub(crate) fn roots(spans: &[owner::SpanLine]) -> Vec<&owner::SpanLine> {
    spans.iter().filter(|span| span.name == "simpler_run").collect()
}
