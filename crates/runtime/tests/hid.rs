//! The trace identity: RUNTIME §1.6, step by step.

#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

use simpler_runtime::hid;

const FNV_OF_NOTHING: u64 = 0xcbf2_9ce4_8422_2325;

fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(FNV_OF_NOTHING, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

fn note(kind: u32, name: &[u8], value: &[u8]) -> Vec<u8> {
    let mut note = Vec::new();
    for word in [name.len() as u32, value.len() as u32, kind] {
        note.extend_from_slice(&word.to_le_bytes());
    }
    for part in [name, value] {
        note.extend_from_slice(part);
        note.resize(note.len().next_multiple_of(4), 0);
    }
    note
}

/// An ELF file with these segments: (type, bytes, size that the header claims).
fn elf(segments: &[(u32, Vec<u8>, Option<u64>)]) -> Vec<u8> {
    let mut file = vec![0; 64 + 56 * segments.len()];
    file[..5].copy_from_slice(b"\x7fELF\x02");
    file[32..40].copy_from_slice(&64_u64.to_le_bytes());
    file[54..56].copy_from_slice(&56_u16.to_le_bytes());
    file[56..58].copy_from_slice(&(segments.len() as u16).to_le_bytes());
    for (index, (kind, bytes, claimed)) in segments.iter().enumerate() {
        let (at, offset) = (64 + 56 * index, file.len() as u64);
        file[at..at + 4].copy_from_slice(&kind.to_le_bytes());
        file[at + 8..at + 16].copy_from_slice(&offset.to_le_bytes());
        file[at + 32..at + 40].copy_from_slice(&claimed.unwrap_or(bytes.len() as u64).to_le_bytes());
        file.extend_from_slice(bytes);
    }
    file
}

const ID: [u8; 20] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20];
const ID_HID: u64 = 0x0807_0605_0403_0201;

#[test]
fn the_first_eight_bytes_of_the_build_id_are_taken_verbatim_little_endian() {
    assert_eq!(hid(&elf(&[(4, note(3, b"GNU\0", &ID), None)])), ID_HID);
    assert_eq!(hid(&elf(&[(4, note(3, b"GNU\0", &ID[..8]), None)])), ID_HID);
}

#[test]
fn other_segments_and_notes_are_stepped_over() {
    let mut notes = note(1, b"GNU\0", &[9; 16]);
    notes.extend(note(3, b"stapsdt\0", &[9; 13])); // unpadded value
    notes.extend(note(3, b"GNU\0", &[9; 7])); // too short to be one
    notes.extend(note(3, b"GNU\0", &ID));
    let segments = [(1, vec![7; 100], None), (4, note(5, b"GNU\0", &[0; 16]), None), (4, notes, None)];
    assert_eq!(hid(&elf(&segments)), ID_HID);
}

#[test]
fn a_segment_past_the_end_is_skipped_and_the_next_one_counts() {
    let past = (4, note(3, b"GNU\0", &[9; 20]), Some(1 << 40));
    let huge = (4, note(3, b"GNU\0", &[9; 20]), Some(u64::MAX));
    assert_eq!(hid(&elf(&[past, huge, (4, note(3, b"GNU\0", &ID), None)])), ID_HID);
}

#[test]
fn a_note_with_malformed_sizes_ends_its_segment_only() {
    for at in [0, 4] {
        let mut broken = note(3, b"GNU\0", &[9; 20]);
        broken[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
        broken.extend(note(3, b"GNU\0", &[8; 20])); // never reached
        assert_eq!(hid(&elf(&[(4, broken, None), (4, note(3, b"GNU\0", &ID), None)])), ID_HID, "word {at}");
    }
}

#[test]
fn without_a_build_id_the_whole_object_is_hashed() {
    let valid = elf(&[(4, note(3, b"GNU\0", &ID), None)]);
    let mut class_32 = valid.clone();
    class_32[4] = 1;
    let mut no_magic = valid.clone();
    no_magic[0] = 0;
    let mut headers_outside = valid.clone();
    headers_outside[32..40].copy_from_slice(&(valid.len() as u64).to_le_bytes());
    let mut headers_far_outside = valid.clone();
    headers_far_outside[32..40].copy_from_slice(&u64::MAX.to_le_bytes());
    let no_note = elf(&[(1, vec![1, 2, 3], None)]);
    let other_note = elf(&[(4, note(1, b"GNU\0", &ID), None)]);
    for bytes in [
        b"".to_vec(),
        b"\x7fELF\x02".to_vec(),
        b"some text".to_vec(),
        valid[..63].to_vec(),
        class_32,
        no_magic,
        headers_outside,
        headers_far_outside,
        no_note,
        other_note,
    ] {
        assert_eq!(hid(&bytes), fnv1a(&bytes), "{} bytes", bytes.len());
    }
    assert_eq!(hid(b""), FNV_OF_NOTHING);
    assert_ne!(hid(b"one"), hid(b"two"));
}

#[test]
fn every_prefix_and_every_flipped_byte_has_an_identity() {
    let valid = elf(&[(4, note(3, b"GNU\0", &ID), None), (4, note(3, b"GNU\0", &ID), None)]);
    for end in 0..valid.len() {
        hid(&valid[..end]);
    }
    for at in 0..valid.len() {
        for flip in [0xff, 0x80, 1] {
            let mut bytes = valid.clone();
            bytes[at] ^= flip;
            hid(&bytes);
        }
    }
}
