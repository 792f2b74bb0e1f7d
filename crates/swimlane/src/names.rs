//! The names of scopes, read back from the objects that hold them.

use std::borrow::ToOwned;
use std::collections::BTreeMap;
use std::fmt;
use std::string::String;

use object::read::elf::ElfFile64;
use object::{Object, ObjectSection};

use crate::scope::{SECTION, fnv1a};

/// Why an object's names cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NamesError {
    /// The bytes are not a 64-bit ELF object.
    #[error("not a 64-bit ELF object")]
    NotElf,
    /// The section's bytes are not in the object.
    #[error("the section {SECTION} lies outside the object")]
    Malformed,
    /// A name is not UTF-8.
    #[error("the section {SECTION} holds a name that is not UTF-8: {0}")]
    NotText(String),
    /// Two names have one hash: their records could not be told apart, so one of them must change.
    #[error("the scopes \"{first}\" and \"{second}\" have the same hash {hash:016x}; rename one of them")]
    Collision {
        /// The name that was there.
        first: String,
        /// The one that came.
        second: String,
        /// The hash of both.
        hash: u64,
    },
}

/// The names of scopes by their hashes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PhaseNames {
    by_hash: BTreeMap<u64, String>,
}

impl PhaseNames {
    /// No names.
    pub const fn new() -> Self {
        Self { by_hash: BTreeMap::new() }
    }

    /// The names that an object holds; an object without scopes holds none.
    ///
    /// # Errors
    ///
    /// It is no ELF object, its section cannot be read, or two of its names collide.
    pub fn from_elf(image: &[u8]) -> Result<Self, NamesError> {
        let mut names = Self::new();
        names.add_elf(image)?;
        Ok(names)
    }

    /// Adds the names of another object: one set of names for all that record into a track.
    ///
    /// # Errors
    ///
    /// As for [`PhaseNames::from_elf`]; a collision may be one with a name that was there. Names that came before
    /// it are added.
    pub fn add_elf(&mut self, image: &[u8]) -> Result<(), NamesError> {
        let elf = ElfFile64::<object::Endianness>::parse(image).map_err(|_| NamesError::NotElf)?;
        // A relocatable object may have several of the name.
        for section in elf.sections().filter(|section| section.name_bytes() == Ok(SECTION.as_bytes())) {
            self.add_section(section.data().map_err(|_| NamesError::Malformed)?, fnv1a)?;
        }
        Ok(())
    }

    /// The name with a hash.
    pub fn get(&self, hash: u64) -> Option<&str> {
        self.by_hash.get(&hash).map(String::as_str)
    }

    /// What to call the scope with a hash: its name, or `phase_` and the hash as 16 hexadecimal digits.
    pub fn label(&self, hash: u64) -> PhaseLabel<'_> {
        PhaseLabel { name: self.get(hash), hash }
    }

    /// All of them, by hash.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &str)> {
        self.by_hash.iter().map(|(hash, name)| (*hash, name.as_str()))
    }

    /// The hash is a parameter, since no two names are known that collide under the real one.
    fn add_section(&mut self, bytes: &[u8], hash_of: impl Fn(&str) -> u64) -> Result<(), NamesError> {
        for entry in bytes.split(|byte| *byte == 0).filter(|entry| !entry.is_empty()) {
            let name = std::str::from_utf8(entry)
                .map_err(|_| NamesError::NotText(String::from_utf8_lossy(entry).into_owned()))?;
            let hash = hash_of(name);
            match self.by_hash.get(&hash) {
                None => drop(self.by_hash.insert(hash, name.to_owned())),
                Some(first) if first == name => {}
                Some(first) => {
                    let (first, second) = (first.clone(), name.to_owned());
                    return Err(NamesError::Collision { first, second, hash });
                }
            }
        }
        Ok(())
    }
}

/// The name of a scope, or what stands for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhaseLabel<'a> {
    name: Option<&'a str>,
    hash: u64,
}

impl fmt::Display for PhaseLabel<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name {
            Some(name) => f.write_str(name),
            None => write!(f, "phase_{:016x}", self.hash),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;
    use std::vec::Vec;

    #[test]
    fn two_names_with_one_hash_are_an_error_that_names_both() {
        let by_length = |name: &str| name.len() as u64;
        let mut names = PhaseNames::new();
        names.add_section(b"bind\0", by_length).unwrap();
        assert_eq!(names.add_section(b"bind\0\0submit\0bind\0", by_length), Ok(()), "one name twice is one");
        let error = names.add_section(b"wire\0", by_length).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the scopes \"bind\" and \"wire\" have the same hash 0000000000000004; rename one of them"
        );
    }

    #[test]
    fn a_section_is_names_between_zeros_and_padding_is_skipped() {
        let mut names = PhaseNames::new();
        names.add_section(b"\0\0one\0\0\0two\0\0", fnv1a).unwrap();
        let mut found: Vec<&str> = names.iter().map(|(_, name)| name).collect();
        found.sort_unstable();
        assert_eq!(found, ["one", "two"]);
        assert_eq!(names.get(fnv1a("one")), Some("one"));
    }

    #[test]
    fn a_name_that_is_no_text_is_an_error() {
        let error = PhaseNames::new().add_section(b"\xff\0", fnv1a).unwrap_err();
        assert_eq!(error.to_string(), "the section simpler_phase holds a name that is not UTF-8: \u{fffd}");
    }
}
