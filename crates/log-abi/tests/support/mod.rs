//! What the header tests share: the compilers, and a folder of sources.
#![allow(dead_code, reason = "each test file uses its own part")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail where it stands")]

use std::path::{Path, PathBuf};
use std::process::Command;

/// A consumer is warned of nothing.
pub(crate) const WARNINGS: [&str; 4] = ["-Wall", "-Wextra", "-pedantic", "-Werror"];

/// How a plugin is linked: hidden by default, nothing undefined.
pub(crate) const PLUGIN: [&str; 4] = ["-shared", "-fPIC", "-fvisibility=hidden", "-Wl,-z,defs"];

/// A compiler for one language and standard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Compiler {
    pub(crate) program: &'static str,
    pub(crate) language: &'static str,
    pub(crate) standard: &'static str,
}

impl Compiler {
    pub(crate) const fn is_cpp(&self) -> bool {
        self.language.len() > 1
    }
}

/// The compilers of this machine: gcc and g++ always, clang where there is one.
pub(crate) fn compilers() -> Vec<Compiler> {
    let all = [
        Compiler { program: "gcc", language: "c", standard: "-std=c11" },
        Compiler { program: "g++", language: "c++", standard: "-std=c++17" },
        Compiler { program: "g++", language: "c++", standard: "-std=c++11" },
        Compiler { program: "clang", language: "c", standard: "-std=c11" },
        Compiler { program: "clang++", language: "c++", standard: "-std=c++17" },
    ];
    let is_here = |compiler: &Compiler| {
        let found = Command::new(compiler.program).arg("--version").output().is_ok();
        if !found {
            // Not on stderr, where some tests have their log.
            println!("skipped: no {} on this machine", compiler.program);
        }
        found || compiler.program.starts_with('g')
    };
    all.into_iter().filter(is_here).collect()
}

/// The headers; tests of other crates use this file, too.
pub(crate) fn include() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../log-abi/include")
}

/// Compiles sources, given as name and text, in `folder`; the compiler's words when it refuses.
pub(crate) fn compile(
    folder: &Path,
    compiler: Compiler,
    sources: &[(&str, &str)],
    flags: &[&str],
    output: &str,
) -> Result<PathBuf, String> {
    for (name, text) in sources {
        // A source ends in a newline, says clang.
        std::fs::write(folder.join(name), format!("{text}\n")).unwrap();
    }
    let result = Command::new(compiler.program)
        .current_dir(folder)
        .arg(compiler.standard)
        .args(WARNINGS)
        .args(flags)
        .arg("-I")
        .arg(include())
        .args(["-x", compiler.language])
        .args(sources.iter().map(|(name, _)| name))
        .args(["-o", output])
        .output()
        .unwrap_or_else(|error| panic!("{}: {error}", compiler.program));
    match result.status.success() {
        true => Ok(folder.join(output)),
        false => Err(String::from_utf8_lossy(&result.stderr).into_owned()),
    }
}

/// What `nm` says of a file.
pub(crate) fn nm(arguments: &[&str], file: &Path) -> Vec<String> {
    let output = Command::new("nm").args(arguments).arg(file).output().unwrap();
    assert!(output.status.success(), "nm: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// The names that a shared object exports, sorted.
pub(crate) fn exports(file: &Path) -> Vec<String> {
    let mut names: Vec<String> = nm(&["-D", "--defined-only"], file)
        .iter()
        .filter_map(|line| line.split_whitespace().nth(2))
        .map(str::to_owned)
        .collect();
    names.sort();
    names
}
