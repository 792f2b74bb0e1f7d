//! Rust sources to objects, by the `rustc` of the machine: `RUSTC` names another one.
//!
//! A source is a module of a generated crate whose root has what `simpler-kernel-abi` has, under that name: it says
//! `use simpler_kernel_abi::*;` and exports its entry with `#[unsafe(no_mangle)] pub extern "C" fn`. No cargo, no other
//! crate. A panic aborts, since nothing may unwind into the runtime.
//!
//! The objects carry std with them. What std keeps per thread would outlive the object (LESSONS 26), so a source keeps
//! away from `thread_local!` and from what uses it: printing, `std::thread`.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use simpler_kernel_abi::RUST_FILES;

use crate::compile::{CompileError, CompileErrorKind, OBJECT, words_or_refuse};
use crate::source::SourceFile;

/// The compiler where `RUSTC` does not name one.
const DEFAULT_COMPILER: &str = "rustc";

/// The flags of every object; as those of C as far as the two compilers are alike. One unit of code generation, so that
/// the same source gives the same bytes on machines with more or fewer CPUs.
const FLAGS: [&str; 17] = [
    "--crate-name=simpler_object",
    "--crate-type=cdylib",
    "--edition=2024",
    "-C",
    "opt-level=3",
    "-C",
    "target-cpu=native",
    "-C",
    "codegen-units=1",
    "-C",
    "panic=abort",
    "-C",
    "strip=debuginfo",
    "-C",
    "link-arg=-Wl,--build-id=sha1",
    "-C",
    "link-arg=-Wl,-z,defs",
];

/// The generated crate's root, and the folder of the sources beside it.
const ROOT: &str = "simpler_object.rs";
const SOURCES: &str = "sources";

/// The crate's root, but for its source's name and the section.
const ROOT_TEXT: &str = "#![allow(non_upper_case_globals)]
extern crate self as simpler_kernel_abi;
#[allow(dead_code)]
mod kernel;
#[allow(dead_code)]
mod orchestration;
pub use kernel::*;
pub use orchestration::*;
";

/// The compiler, which nobody asks for anything before there is a Rust source.
#[derive(Debug)]
pub(crate) struct RustCompiler {
    program: OsString,
    says: OnceLock<Result<Vec<u8>, String>>,
}

impl RustCompiler {
    pub(crate) fn new() -> Self {
        let named = std::env::var_os("RUSTC").filter(|rustc| !rustc.is_empty());
        Self { program: named.unwrap_or_else(|| DEFAULT_COMPILER.into()), says: OnceLock::new() }
    }

    /// What decides the bytes of an object besides its sources: the compiler's version and target, the flags, the
    /// mirror of the headers.
    pub(crate) fn parts(&self, cache: &Path) -> Result<Vec<&[u8]>, CompileError> {
        let says = self.says.get_or_init(|| {
            // Where it compiles: which toolchain it is may depend on the folder.
            let mut command = Command::new(&self.program);
            let output = command.current_dir(cache).args(["-vV"]).stdin(Stdio::null()).output();
            output.map(|output| output.stdout).map_err(|error| error.to_string())
        });
        let says = match says {
            Ok(says) => says,
            Err(why) => return Err(self.spawn_error("a Rust source", io::Error::other(why.clone()))),
        };
        let files = RUST_FILES.iter().flat_map(|(name, text)| [name.as_bytes(), text.as_bytes()]);
        let parts = [says.as_slice(), ROOT_TEXT.as_bytes()];
        Ok(parts.into_iter().chain(FLAGS.map(str::as_bytes)).chain(files).collect())
    }

    /// Compiles `source` to the object of `folder`, linked by `linker`; `section` defines what an orchestration names its
    /// kernels by.
    pub(crate) fn build(
        &self,
        folder: &Path,
        linker: &OsStr,
        source: &SourceFile,
        section: Option<&str>,
        modules: &[SourceFile],
    ) -> Result<(), CompileError> {
        let write = |path: std::path::PathBuf, text: &str| {
            std::fs::write(&path, text).map_err(|error| crate::compile::at(&path, error))
        };
        let sources = folder.join(SOURCES);
        std::fs::create_dir_all(&sources).map_err(|error| crate::compile::at(&sources, error))?;
        for (name, text) in RUST_FILES {
            write(folder.join(name), text)?;
        }
        for file in modules.iter().chain([source]) {
            write(sources.join(file.name.as_ref()), &file.text)?;
        }
        let name = &source.name;
        let section = section.unwrap_or_default();
        let root = format!("{ROOT_TEXT}#[path = \"{SOURCES}/{name}\"]\nmod source;\n{section}");
        write(folder.join(ROOT), &root)?;
        let mut linker_flag = OsString::from("linker=");
        linker_flag.push(linker);
        let output = Command::new(&self.program)
            .current_dir(folder)
            .args(FLAGS)
            .arg("-C")
            .arg(linker_flag)
            .args(["-o", OBJECT, ROOT])
            .stdin(Stdio::null())
            .output()
            .map_err(|error| self.spawn_error(name, error))?;
        words_or_refuse(name, &output)
    }

    fn spawn_error(&self, what: &str, source: io::Error) -> CompileError {
        let compiler = self.program.to_string_lossy().into_owned();
        CompileError { what: what.to_owned(), kind: CompileErrorKind::Spawn { compiler, source } }
    }
}
