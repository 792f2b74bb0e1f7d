//! The trace identity of a callable: 64 bits of its orchestration object's content (RUNTIME §1.6).
//!
//! The linker has already hashed the object into its build-id note, so the first eight bytes of that note are
//! the identity. An object without the note is hashed whole. This is not the registry identity, which is a
//! SHA-256 ([`CallableImage::digest`](crate::CallableImage::digest)).

/// `NT_GNU_BUILD_ID`.
const NOTE_TYPE_BUILD_ID: u32 = 3;
/// The note's owner, with its terminator.
const NOTE_NAME: &[u8] = b"GNU\0";
/// `PT_NOTE`.
const SEGMENT_NOTE: u32 = 4;
/// Bytes of a 64-bit ELF header, and of a program header.
const ELF_HEADER_BYTES: usize = 64;
const PROGRAM_HEADER_BYTES: usize = 56;

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;

/// The trace identity of an orchestration object: the first 8 bytes of its build-id, little endian, or FNV-1a of
/// all its bytes where there is none. Total: any bytes have one.
pub fn hid(object: &[u8]) -> u64 {
    build_id(object).unwrap_or_else(|| fnv1a(object))
}

/// FNV-1a, 64 bits.
pub(crate) fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(FNV_OFFSET, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(FNV_PRIME))
}

fn build_id(object: &[u8]) -> Option<u64> {
    // Magic, and class 2: 64 bits.
    if object.len() < ELF_HEADER_BYTES || !object.starts_with(b"\x7fELF\x02") {
        return None;
    }
    let table = usize::try_from(u64_at(object, 32)?).ok()?;
    let entry_bytes = usize::from(u16_at(object, 54)?);
    let count = usize::from(u16_at(object, 56)?);
    if entry_bytes < PROGRAM_HEADER_BYTES {
        return None;
    }
    let headers = object.get(table..table.checked_add(entry_bytes.checked_mul(count)?)?)?;
    headers.chunks_exact(entry_bytes).find_map(|header| {
        if u32_at(header, 0)? != SEGMENT_NOTE {
            return None;
        }
        let offset = usize::try_from(u64_at(header, 8)?).ok()?;
        let bytes = usize::try_from(u64_at(header, 32)?).ok()?;
        // A segment that reaches past the buffer is skipped.
        build_id_in(object.get(offset..offset.checked_add(bytes)?)?)
    })
}

/// Walks the notes of one segment; a note whose sizes do not fit ends the walk.
fn build_id_in(mut notes: &[u8]) -> Option<u64> {
    while !notes.is_empty() {
        let name_bytes = u32_at(notes, 0)? as usize;
        let value_bytes = u32_at(notes, 4)? as usize;
        let kind = u32_at(notes, 8)?;
        let name = notes.get(12..)?.get(..name_bytes)?;
        let value_start = 12 + name_bytes.next_multiple_of(4);
        let value = notes.get(value_start..)?.get(..value_bytes)?;
        if kind == NOTE_TYPE_BUILD_ID
            && name == NOTE_NAME
            && let Some(first) = value.first_chunk::<8>()
        {
            return Some(u64::from_le_bytes(*first));
        }
        // The padding of the last note may be missing.
        notes = notes.get(value_start + value_bytes.next_multiple_of(4)..).unwrap_or_default();
    }
    None
}

fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    bytes.get(offset..)?.first_chunk().map(|chunk| u16::from_le_bytes(*chunk))
}

fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    bytes.get(offset..)?.first_chunk().map(|chunk| u32::from_le_bytes(*chunk))
}

fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    bytes.get(offset..)?.first_chunk().map(|chunk| u64::from_le_bytes(*chunk))
}
