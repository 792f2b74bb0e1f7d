//! The device's side asks its surroundings for nothing but core and memory intrinsics.

use std::path::Path;
use std::process::Command;

/// What a freestanding target's compiler-builtins provides.
const BUILTINS: [&str; 5] = ["memcpy", "memmove", "memset", "memcmp", "bcmp"];

#[test]
fn the_object_without_the_host_needs_only_core_and_builtins() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs");
    let object = Path::new(env!("CARGO_TARGET_TMPDIR")).join("swimlane.o");
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let compiled = Command::new(rustc)
        .args(["--edition", "2024", "--crate-type", "lib", "--crate-name", "swimlane", "--emit", "obj"])
        .args([
            "-D",
            "warnings",
            "-O",
            "-C",
            "panic=abort",
            "-C",
            "link-dead-code",
            "-C",
            "codegen-units=1",
            "-o",
        ])
        .args([&object, &source])
        .output()
        .expect("rustc runs");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let symbols = match Command::new("nm").arg("--undefined-only").arg(&object).output() {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).into_owned(),
        _ => {
            eprintln!("skipped: nm cannot be run");
            return;
        }
    };
    let foreign: Vec<_> = symbols
        .lines()
        .filter_map(|line| line.split_whitespace().last())
        .filter(|name| !BUILTINS.contains(name) && !name.contains("4core"))
        .collect();
    assert!(foreign.is_empty(), "needs {foreign:?}");
}
