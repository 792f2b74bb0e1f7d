//! Any bytes as an object with named scopes, or as the section of a whole one. Each name that is found stands in the
//! bytes, with a NUL behind it, and is found by its own hash.

#![no_main]

use simpler_swimlane::{PhaseNames, SECTION, fnv1a};

/// A 64-bit object of three sections: none, the names, the sections' names.
fn object(names: &[u8]) -> Vec<u8> {
    let section_names = [b"\0", SECTION.as_bytes(), b"\0.shstrtab\0"].concat();
    let (names_at, section_names_at) = (64, 64 + names.len());
    let headers_at = (section_names_at + section_names.len()).next_multiple_of(8);
    let mut elf = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    // Relocatable, x86-64, version, entry, no program headers, where the section headers are, flags.
    elf.extend([1, 0, 62, 0, 1, 0, 0, 0]);
    elf.extend([0; 16]);
    elf.extend((headers_at as u64).to_le_bytes());
    elf.extend([0; 4]);
    // Sizes and counts: this header, program headers, section headers, the section of names.
    for half in [64_u16, 0, 0, 64, 3, 2] {
        elf.extend(half.to_le_bytes());
    }
    elf.extend(names);
    elf.extend(&section_names);
    elf.resize(headers_at, 0);
    elf.extend([0; 64]);
    for (name, kind, offset, size) in [
        (1_u32, 1_u32, names_at, names.len()),
        (2 + SECTION.len() as u32, 3, section_names_at, section_names.len()),
    ] {
        elf.extend(name.to_le_bytes());
        elf.extend(kind.to_le_bytes());
        elf.extend([0; 16]);
        elf.extend((offset as u64).to_le_bytes());
        elf.extend((size as u64).to_le_bytes());
        elf.extend([0; 8]);
        elf.extend(1_u64.to_le_bytes());
        elf.extend([0; 8]);
    }
    elf
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((&whole, bytes)) = bytes.split_first() else { return };
    let image = if whole == 0 { bytes.to_vec() } else { object(bytes) };
    let Ok(names) = PhaseNames::from_elf(&image) else { return };
    let mut found = 0;
    for (hash, name) in names.iter() {
        assert_eq!(hash, fnv1a(name));
        assert_eq!(names.get(hash), Some(name));
        let mut entry = name.as_bytes().to_vec();
        entry.push(0);
        assert!(image.windows(entry.len()).any(|window| window == entry));
        found += 1;
    }
    // Of a whole section every name is found.
    if whole != 0 && std::str::from_utf8(bytes).is_ok() && bytes.last() == Some(&0) {
        let mut all: Vec<&[u8]> = bytes.split(|byte| *byte == 0).filter(|name| !name.is_empty()).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(found, all.len());
    }
});
