//! The C sources of the callables, as built in or from a folder.

use std::borrow::Cow;
use std::path::Path;

use simpler_kernel_abi::CoreKind;
use simpler_kernel_compiler::{CallableSource, KernelSource, SourceFile};

use crate::Error;
use crate::error::ErrorKind;

/// The built-in files.
const FILES: [(&str, &str); 11] = [
    ("embed.c", include_str!("../../../kernels/embed.c")),
    ("rmsnorm.c", include_str!("../../../kernels/rmsnorm.c")),
    ("matmul.c", include_str!("../../../kernels/matmul.c")),
    ("attention.c", include_str!("../../../kernels/attention.c")),
    ("gate_up.c", include_str!("../../../kernels/gate_up.c")),
    ("argmax.c", include_str!("../../../kernels/argmax.c")),
    ("vectors.h", include_str!("../../../kernels/vectors.h")),
    ("rows.h", include_str!("../../../kernels/rows.h")),
    ("decoder.h", include_str!("../../../kernels/decoder.h")),
    ("decoder_prefill.c", include_str!("../../../kernels/decoder_prefill.c")),
    ("decoder_decode.c", include_str!("../../../kernels/decoder_decode.c")),
];

/// The kernels in the order of `decoder.h`'s list.
const KERNELS: [(&str, CoreKind); 6] = [
    ("embed.c", CoreKind::Aiv),
    ("rmsnorm.c", CoreKind::Aiv),
    ("matmul.c", CoreKind::Aic),
    ("attention.c", CoreKind::Aiv),
    ("gate_up.c", CoreKind::Aic),
    ("argmax.c", CoreKind::Aiv),
];

const HEADERS: [&str; 3] = ["vectors.h", "rows.h", "decoder.h"];

/// The callable that reads a prompt.
pub const PREFILL: &str = "decoder_prefill";
/// The callable that reads one token.
pub const DECODE: &str = "decoder_decode";

/// The two callables, [`PREFILL`] then [`DECODE`]. A file of the same name in `directory` takes the place of
/// the built-in one.
///
/// # Errors
/// If a file of `directory` is there but cannot be read.
pub fn callables(directory: Option<&Path>) -> Result<[CallableSource; 2], Error> {
    Ok([callable(PREFILL, directory)?, callable(DECODE, directory)?])
}

fn callable(name: &str, directory: Option<&Path>) -> Result<CallableSource, Error> {
    let kernels = KERNELS
        .iter()
        .map(|(file, kind)| Ok(KernelSource { file: source(file, directory)?, kind: *kind }))
        .collect::<Result<_, Error>>()?;
    let headers = HEADERS.iter().map(|file| source(file, directory)).collect::<Result<_, _>>()?;
    let orchestration = source(&format!("{name}.c"), directory)?;
    Ok(CallableSource { name: name.to_owned(), orchestration, kernels, headers })
}

fn source(name: &str, directory: Option<&Path>) -> Result<SourceFile, Error> {
    let (name, built_in) =
        FILES.into_iter().find(|(file, _)| *file == name).expect("the lists of this file name its files");
    let text = match directory.map(|directory| directory.join(name)) {
        Some(path) if path.exists() => {
            Cow::Owned(std::fs::read_to_string(&path).map_err(|source| ErrorKind::Io { path, source })?)
        }
        _ => Cow::Borrowed(built_in),
    };
    Ok(SourceFile { name: Cow::Borrowed(name), text })
}
