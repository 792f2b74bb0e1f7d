//! What is compiled: texts with names.

use std::borrow::Cow;

use simpler_kernel_abi::CoreKind;

/// A C source or header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFile {
    /// The name that `#include` and the compiler's messages use: one path component of letters, digits, `_`,
    /// `-` and `.`; a source ends in `.c` or, in C++, in `.cpp`, and what is before it names the kernel.
    pub name: Cow<'static, str>,
    /// The text.
    pub text: Cow<'static, str>,
}

impl SourceFile {
    /// A file with this name and text.
    pub fn new(name: impl Into<Cow<'static, str>>, text: impl Into<Cow<'static, str>>) -> Self {
        Self { name: name.into(), text: text.into() }
    }

    /// The name without `.c` or `.cpp`.
    pub fn stem(&self) -> &str {
        let name: &str = &self.name;
        name.strip_suffix(".c").or_else(|| name.strip_suffix(".cpp")).unwrap_or(name)
    }

    /// Whether it is C++.
    pub fn is_cpp(&self) -> bool {
        self.name.ends_with(".cpp")
    }

    pub(crate) fn is_source(&self) -> bool {
        self.name.ends_with(".c") || self.is_cpp()
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

/// A callable as text. Kernels are numbered by their place in the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallableSource {
    /// The callable's name, for people.
    pub name: String,
    /// The source that defines `aicpu_orchestration_entry`.
    pub orchestration: SourceFile,
    /// The kernels, in the order of the indices that the orchestration uses.
    pub kernels: Vec<KernelSource>,
    /// Headers that any of the sources may include by name; a change to one recompiles all of them.
    pub headers: Vec<SourceFile>,
}
