//! Calling the compiler, and the cache.

use std::ffi::OsString;
use std::io;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use sha2::{Digest, Sha256};
use simpler_kernel_abi::{CoreKind, KERNEL_HEADER, ORCHESTRATION_CPP_HEADER, ORCHESTRATION_HEADER};
use simpler_log_abi::HEADERS as LOG_HEADERS;
use simpler_swimlane::SWIMLANE_HEADER;

use crate::embed::{self, EmbeddedKernel};
use crate::rust::RustCompiler;
use crate::source::{CallableSource, Language, SourceFile};

/// The compiler where `CC` does not name one.
const DEFAULT_COMPILER: &str = "gcc";

/// The flags of every object. The build-id is asked for by name, since the linker's default varies (LESSONS 29).
/// Undefined symbols are an error here, not at load. `-fno-math-errno` lets square roots be one instruction.
const FLAGS: [&str; 12] = [
    "-O3",
    "-march=native",
    "-fno-math-errno",
    "-fPIC",
    "-shared",
    "-fvisibility=hidden",
    "-Wall",
    "-Wextra",
    "-Wl,--build-id=sha1",
    "-Wl,-z,defs",
    "-I.",
    "-Iinclude",
];
/// The headers under `simpler/` besides those of the log.
const RUNTIME_HEADERS: [(&str, &str); 4] = [
    ("kernel.h", KERNEL_HEADER),
    ("orchestration.h", ORCHESTRATION_HEADER),
    ("orchestration.hpp", ORCHESTRATION_CPP_HEADER),
    ("swimlane.h", SWIMLANE_HEADER),
];
/// The language of an object that is all C. One with C++ in it has the compiler's own, since the flag would be an error
/// for the other.
const C_STANDARD: &str = "-std=gnu11";
/// Libraries, after the sources.
const LIBRARIES: [&str; 1] = ["-lm"];
/// And those of C++.
const CPP_LIBRARIES: [&str; 2] = ["-lstdc++", "-lm"];

/// The flags and the libraries of an object from these sources.
fn flags(sources: &[&SourceFile]) -> (impl Iterator<Item = &'static str>, &'static [&'static str]) {
    let has_cpp = sources.iter().any(|source| source.language() == Some(Language::Cpp));
    let libraries: &[&str] = if has_cpp { &CPP_LIBRARIES } else { &LIBRARIES };
    ((!has_cpp).then_some(C_STANDARD).into_iter().chain(FLAGS), libraries)
}

/// Longest name of a source: its length is a byte in the orchestration's section.
const NAME_BYTES_MAX: usize = 255;

/// The object's name in its folder while it is built.
pub(crate) const OBJECT: &str = "object.so";

/// Where the objects of a callable are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallableObjects {
    /// The callable's name.
    pub name: String,
    /// The orchestration object.
    pub orchestration: PathBuf,
    /// The kernel objects in index order; a file's stem is the kernel's name.
    pub kernels: Vec<(PathBuf, CoreKind)>,
}

/// What a compilation fails with.
#[derive(Debug, thiserror::Error)]
#[error("cannot compile {what}: {kind}")]
pub struct CompileError {
    /// The file or folder that it is about.
    pub what: String,
    /// The reason.
    #[source]
    pub kind: CompileErrorKind,
}

/// Why a compilation failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompileErrorKind {
    /// A name that is no plain file name, or used twice.
    #[error("{0}")]
    Name(&'static str),
    /// The compiler cannot be started.
    #[error("cannot run the compiler {compiler}: {source}")]
    Spawn {
        /// The program.
        compiler: String,
        /// The system's reason.
        source: io::Error,
    },
    /// The compiler refused the source.
    #[error("the compiler says:\n{0}")]
    Refused(String),
    /// The cache folder cannot be used.
    #[error("cache: {0}")]
    Cache(#[from] io::Error),
}

/// Compiles callables into a cache folder. Any number of compilers, in any number of processes, may share one.
#[derive(Debug)]
pub struct Compiler {
    cache: PathBuf,
    program: OsString,
    rust: RustCompiler,
    /// What the compiler says of itself and of this CPU; part of every key.
    fingerprint: [u8; 32],
}

impl Compiler {
    /// A compiler over `cache`, which is made if it is not there. The program is `CC`, or gcc.
    ///
    /// # Errors
    /// When the folder cannot be made or the compiler cannot be run.
    pub fn new(cache: impl Into<PathBuf>) -> Result<Self, CompileError> {
        let program =
            std::env::var_os("CC").filter(|cc| !cc.is_empty()).unwrap_or_else(|| DEFAULT_COMPILER.into());
        let cache = cache.into();
        std::fs::create_dir_all(&cache).map_err(|source| at(&cache, source))?;
        let mut hash = Sha256::new();
        // The second call spells out what -march=native means on this CPU; it compiles nothing.
        for arguments in [&["--version"][..], &["-###", "-march=native", "-E", "-x", "c", "/dev/null"]] {
            let output =
                Command::new(&program).args(arguments).stdin(Stdio::null()).output().map_err(|source| {
                    let compiler = program.to_string_lossy().into_owned();
                    CompileError {
                        what: "anything".into(),
                        kind: CompileErrorKind::Spawn { compiler, source },
                    }
                })?;
            absorb(&mut hash, &output.stdout);
            absorb(&mut hash, &output.stderr);
        }
        Ok(Self { cache, program, rust: RustCompiler::new(), fingerprint: hash.finalize().into() })
    }

    /// Compiles what is not in the cache and says where all objects are. Kernels compile in parallel.
    ///
    /// # Errors
    /// On a name that cannot be a file, on a source that the compiler refuses (with its words), and when the
    /// cache cannot be written.
    pub fn compile(&self, callable: &CallableSource) -> Result<CallableObjects, CompileError> {
        check_names(callable)?;
        let paths = self.compile_kernels(callable)?;
        let mut embedded = Vec::with_capacity(paths.len());
        for (path, kernel) in paths.iter().zip(&callable.kernels) {
            let bytes = std::fs::read(path).map_err(|source| at(path, source))?;
            embedded.push(EmbeddedKernel {
                name: kernel.file.stem().to_owned(),
                kind: kernel.kind,
                digest: embed::digest(&bytes),
            });
        }
        let section = embed::section(&embedded);
        let orchestration = self.object(&callable.orchestration, Some(&section), &callable.headers)?;
        Ok(CallableObjects {
            name: callable.name.clone(),
            orchestration,
            kernels: paths.into_iter().zip(callable.kernels.iter().map(|kernel| kernel.kind)).collect(),
        })
    }

    fn compile_kernels(&self, callable: &CallableSource) -> Result<Vec<PathBuf>, CompileError> {
        let kernels = &callable.kernels;
        let results: Vec<Mutex<Option<Result<PathBuf, CompileError>>>> =
            kernels.iter().map(|_| Mutex::new(None)).collect();
        let next = AtomicUsize::new(0);
        let workers = std::thread::available_parallelism().map_or(1, NonZero::get).min(kernels.len());
        std::thread::scope(|scope| {
            for _ in 0..workers {
                scope.spawn(|| {
                    loop {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        let (Some(kernel), Some(result)) = (kernels.get(index), results.get(index)) else {
                            return;
                        };
                        let object = self.object(&kernel.file, None, &callable.headers);
                        *result.lock().unwrap_or_else(PoisonError::into_inner) = Some(object);
                    }
                });
            }
        });
        results
            .into_iter()
            .map(|slot| {
                slot.into_inner()
                    .unwrap_or_else(PoisonError::into_inner)
                    .expect("every index below the length was handed out once")
            })
            .collect()
    }

    /// The object of `source`, out of the cache, or compiled into it; `section` is that of an orchestration.
    fn object(
        &self,
        source: &SourceFile,
        section: Option<&[u8]>,
        headers: &[SourceFile],
    ) -> Result<PathBuf, CompileError> {
        let is_rust = source.language() == Some(Language::Rust);
        let section = section.map(|section| {
            let (name, text) =
                if is_rust { ("", embed::in_rust(section)) } else { (SECTION_SOURCE, embed::in_c(section)) };
            SourceFile::new(name, text)
        });
        let sources: Vec<&SourceFile> = [source].into_iter().chain(&section).collect();
        let key = if is_rust { self.rust_key(&sources, headers)? } else { self.key(&sources, headers) };
        let folder = self.cache.join(key);
        let file_name = format!("{}.so", source.stem());
        let object = folder.join(&file_name);
        if object.is_file() {
            return Ok(object);
        }
        let temporary = tempfile::Builder::new()
            .prefix("unfinished-")
            .tempdir_in(&self.cache)
            .map_err(|source| at(&self.cache, source))?;
        if is_rust {
            let section = section.as_ref().map(|section| &*section.text);
            self.rust.build(temporary.path(), &self.program, source, section, headers)?;
        } else {
            self.build(temporary.path(), source, &sources, headers)?;
        }
        let finished = temporary.path().join("finished");
        std::fs::create_dir(&finished)
            .and_then(|()| std::fs::rename(temporary.path().join(OBJECT), finished.join(&file_name)))
            .map_err(|source| at(&finished, source))?;
        match std::fs::rename(&finished, &folder) {
            Ok(()) => Ok(object),
            // Another compiler was first; its object has the same bytes.
            Err(_) if object.is_file() => Ok(object),
            Err(source) => Err(at(&folder, source)),
        }
    }

    fn build(
        &self,
        folder: &Path,
        named: &SourceFile,
        sources: &[&SourceFile],
        headers: &[SourceFile],
    ) -> Result<(), CompileError> {
        let include = folder.join("include").join("simpler");
        let write =
            |path: PathBuf, text: &str| std::fs::write(&path, text).map_err(|source| at(&path, source));
        std::fs::create_dir_all(&include).map_err(|source| at(&include, source))?;
        for (name, text) in RUNTIME_HEADERS.into_iter().chain(LOG_HEADERS) {
            write(include.join(name), text)?;
        }
        for file in sources.iter().copied().chain(headers) {
            write(folder.join(file.name.as_ref()), &file.text)?;
        }
        let (flags, libraries) = flags(sources);
        let output = Command::new(&self.program)
            .current_dir(folder)
            .args(flags)
            .args(["-o", OBJECT])
            .args(sources.iter().map(|source| source.name.as_ref()))
            .args(libraries)
            .stdin(Stdio::null())
            .output()
            .map_err(|source| CompileError {
                what: named.name.clone().into_owned(),
                kind: CompileErrorKind::Spawn {
                    compiler: self.program.to_string_lossy().into_owned(),
                    source,
                },
            })?;
        words_or_refuse(&named.name, &output)
    }

    fn rust_key(&self, sources: &[&SourceFile], modules: &[SourceFile]) -> Result<String, CompileError> {
        let mut hash = Sha256::new();
        // The linker is the C compiler, and what native means is this CPU.
        absorb(&mut hash, &self.fingerprint);
        for part in self.rust.parts(&self.cache)? {
            absorb(&mut hash, part);
        }
        absorb_files(&mut hash, sources, modules);
        Ok(hexadecimal(hash))
    }

    fn key(&self, sources: &[&SourceFile], headers: &[SourceFile]) -> String {
        let mut hash = Sha256::new();
        absorb(&mut hash, &self.fingerprint);
        let (flags, libraries) = flags(sources);
        for flag in flags.chain(libraries.iter().copied()) {
            absorb(&mut hash, flag.as_bytes());
        }
        for (name, text) in RUNTIME_HEADERS.into_iter().chain(LOG_HEADERS) {
            absorb(&mut hash, name.as_bytes());
            absorb(&mut hash, text.as_bytes());
        }
        absorb_files(&mut hash, sources, headers);
        hexadecimal(hash)
    }
}

/// Nothing, or what the compiler says against `what`.
pub(crate) fn words_or_refuse(what: &str, output: &Output) -> Result<(), CompileError> {
    if output.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&output.stderr).trim_end().to_owned();
    Err(CompileError { what: what.to_owned(), kind: CompileErrorKind::Refused(words) })
}

fn absorb_files(hash: &mut Sha256, sources: &[&SourceFile], headers: &[SourceFile]) {
    absorb(hash, &(sources.len() as u64).to_le_bytes());
    for file in sources.iter().copied().chain(headers) {
        absorb(hash, file.name.as_bytes());
        absorb(hash, file.text.as_bytes());
    }
}

fn hexadecimal(hash: Sha256) -> String {
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Adds a part with its length, so that no two lists of parts look alike.
fn absorb(hash: &mut Sha256, part: &[u8]) {
    hash.update((part.len() as u64).to_le_bytes());
    hash.update(part);
}

pub(crate) fn at(path: &Path, source: io::Error) -> CompileError {
    CompileError { what: path.display().to_string(), kind: CompileErrorKind::Cache(source) }
}

/// The generated source that an orchestration is compiled with.
const SECTION_SOURCE: &str = "simpler_kernels_section.c";

fn check_names(callable: &CallableSource) -> Result<(), CompileError> {
    let refuse = |file: &SourceFile, why: &'static str| {
        Err(CompileError { what: file.name.clone().into_owned(), kind: CompileErrorKind::Name(why) })
    };
    let sources = std::iter::once(&callable.orchestration).chain(callable.kernels.iter().map(|k| &k.file));
    for source in sources.clone() {
        if source.language().is_none() {
            return refuse(source, "a source's name ends in .c, .cpp or .rs");
        }
        if source.name == SECTION_SOURCE {
            return refuse(source, "the source that names the kernels is written under this name");
        }
    }
    for file in sources.chain(&callable.headers) {
        let plain = file.name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte));
        if !plain
            || file.name.is_empty()
            || file.name.starts_with(['.', '-'])
            || file.name.len() > NAME_BYTES_MAX
        {
            return refuse(
                file,
                "a name is at most 255 letters, digits, _, - and ., and begins with neither - nor .",
            );
        }
    }
    for (index, header) in callable.headers.iter().enumerate() {
        let earlier = &callable.headers[..index];
        let is_source = matches!(header.language(), Some(Language::C | Language::Cpp));
        if is_source || earlier.iter().any(|other| other.name == header.name) {
            return refuse(header, "a header's name does not end in .c or .cpp and is not used twice");
        }
    }
    Ok(())
}
