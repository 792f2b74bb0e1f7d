//! What is compiled: texts with names.

use std::borrow::Cow;

use simpler_kernel_abi::CoreKind;

/// The language of a source, by the end of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Language {
    C,
    Cpp,
    Rust,
}

impl Language {
    const ENDS: [(&str, Self); 3] = [(".c", Self::C), (".cpp", Self::Cpp), (".rs", Self::Rust)];
}

/// A source, or a file that sources include.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFile {
    /// The name that `#include` and the compiler's messages use: one path component of letters, digits, `_`,
    /// `-` and `.`; a source ends in `.c`, in C++ in `.cpp`, in Rust in `.rs`, and what is before it names the kernel.
    pub name: Cow<'static, str>,
    /// The text.
    pub text: Cow<'static, str>,
}

impl SourceFile {
    /// A file with this name and text.
    pub fn new(name: impl Into<Cow<'static, str>>, text: impl Into<Cow<'static, str>>) -> Self {
        Self { name: name.into(), text: text.into() }
    }

    /// The name without what says the language.
    pub fn stem(&self) -> &str {
        let stems = Language::ENDS.iter().find_map(|(end, _)| self.name.strip_suffix(end));
        stems.unwrap_or(&self.name)
    }

    /// The language; None for what is no source.
    pub(crate) fn language(&self) -> Option<Language> {
        Language::ENDS.iter().find(|(end, _)| self.name.ends_with(end)).map(|(_, language)| *language)
    }
}

/// A kernel and the cores it runs on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelSource {
    /// The source; it defines `kernel_entry`.
    pub file: SourceFile,
    /// The kind of core.
    pub kind: CoreKind,
}

/// A callable as text, in any mixture of languages. Kernels are numbered by their place in the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallableSource {
    /// The callable's name, for people.
    pub name: String,
    /// The source that defines `aicpu_orchestration_entry`.
    pub orchestration: SourceFile,
    /// The kernels, in the order of the indices that the orchestration uses.
    pub kernels: Vec<KernelSource>,
    /// Headers that any of the sources may include by name, and modules that a Rust source may declare (a name that
    /// ends in `.rs`); a change to one recompiles all of them.
    pub headers: Vec<SourceFile>,
}
