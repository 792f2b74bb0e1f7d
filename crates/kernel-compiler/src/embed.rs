//! The section of an orchestration object that says which kernel objects belong to it.
//!
//! Layout, all little endian: 8 bytes [`MAGIC`], a `u32` count, then per kernel a byte for the core kind, a byte
//! for the length of the name, the name, and the 32 bytes of the SHA-256 of the kernel object.

use std::fmt::Write as _;

use object::read::elf::ElfFile64;
use object::{Object, ObjectSection};
use sha2::{Digest, Sha256};
use simpler_kernel_abi::CoreKind;

/// The section's name.
pub const SECTION: &str = "simpler_kernels";
/// Its first bytes; the last is the layout's version.
const MAGIC: &[u8; 8] = b"simpler\x01";

/// One kernel as the orchestration object names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmbeddedKernel {
    /// The kernel's name, at most 255 bytes.
    pub name: String,
    /// The kind of core it runs on.
    pub kind: CoreKind,
    /// SHA-256 of the kernel object's bytes.
    pub digest: [u8; 32],
}

/// Why [`embedded_kernels`] has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SectionError {
    /// The bytes are not a 64-bit ELF object.
    #[error("not a 64-bit ELF object")]
    NotElf,
    /// The object has no such section.
    #[error("the object has no section {SECTION}, so it was not built as an orchestration")]
    Missing,
    /// The section does not follow the layout.
    #[error("the section {SECTION} does not follow its layout")]
    Malformed,
}

/// SHA-256, the digest that the section holds.
pub fn digest(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// Reads the kernels that an orchestration object names, in index order.
///
/// # Errors
/// When the bytes are no ELF object, or the section is missing or malformed.
pub fn embedded_kernels(orchestration: &[u8]) -> Result<Vec<EmbeddedKernel>, SectionError> {
    let elf = ElfFile64::<object::Endianness>::parse(orchestration).map_err(|_| SectionError::NotElf)?;
    let section = elf.section_by_name(SECTION).ok_or(SectionError::Missing)?;
    let bytes = section.data().map_err(|_| SectionError::Malformed)?;
    decode(bytes).ok_or(SectionError::Malformed)
}

fn decode(bytes: &[u8]) -> Option<Vec<EmbeddedKernel>> {
    let rest = bytes.strip_prefix(MAGIC)?;
    let (count, mut rest) = rest.split_first_chunk::<4>()?;
    let count = u32::from_le_bytes(*count);
    let mut kernels = Vec::new();
    for _ in 0..count {
        let (head, tail) = rest.split_first_chunk::<2>()?;
        let kind = match head[0] {
            0 => CoreKind::Aic,
            1 => CoreKind::Aiv,
            _ => return None,
        };
        let (name, tail) = tail.split_at_checked(usize::from(head[1]))?;
        let (digest, tail) = tail.split_first_chunk::<32>()?;
        kernels.push(EmbeddedKernel { name: String::from_utf8(name.to_vec()).ok()?, kind, digest: *digest });
        rest = tail;
    }
    rest.is_empty().then_some(kernels)
}

/// The section's bytes. Names must be at most 255 bytes, which the caller has checked.
pub(crate) fn section(kernels: &[EmbeddedKernel]) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&(kernels.len() as u32).to_le_bytes());
    for kernel in kernels {
        bytes.push(kernel.kind as u8);
        bytes.push(kernel.name.len() as u8);
        bytes.extend_from_slice(kernel.name.as_bytes());
        bytes.extend_from_slice(&kernel.digest);
    }
    bytes
}

/// C source that defines the section.
pub(crate) fn in_c(section: &[u8]) -> String {
    let (length, bytes) = (section.len(), list(section));
    format!(
        "__attribute__((section(\"{SECTION}\"), used, aligned(1)))\nstatic const unsigned char kernels[{length}] = \
         {{{bytes}\n}};\n"
    )
}

/// Rust source that defines it: exported, or the linker would take it for unused.
pub(crate) fn in_rust(section: &[u8]) -> String {
    let (length, bytes) = (section.len(), list(section));
    format!(
        "#[unsafe(no_mangle)]\n#[unsafe(link_section = \"{SECTION}\")]\npub static simpler_kernels_section: \
         [u8; {length}] = [{bytes}\n];\n"
    )
}

fn list(section: &[u8]) -> String {
    let mut text = String::new();
    for (index, byte) in section.iter().enumerate() {
        text.push_str(if index % 16 == 0 { "\n    " } else { " " });
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:#04x},");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_section_is_malformed() {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&1u32.to_le_bytes());
        bytes.extend_from_slice(&[1, 1, b'k']);
        bytes.extend_from_slice(&[7; 32]);
        assert_eq!(
            decode(&bytes),
            Some(vec![EmbeddedKernel { name: "k".into(), kind: CoreKind::Aiv, digest: [7; 32] }])
        );
        for end in 0..bytes.len() {
            assert_eq!(decode(&bytes[..end]), None, "{end} bytes");
        }
        bytes.push(0);
        assert_eq!(decode(&bytes), None, "a byte too many");
    }
}
