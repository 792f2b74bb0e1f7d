//! Each distinct byte string once, named by a number.
//!
//! Names and attributes repeat by the million in a log. They come from files, hence the seeded hash.

use hashbrown::{DefaultHashBuilder, HashTable};
use std::hash::BuildHasher;

/// The strings lie end to end in one buffer; an id is the index of its end.
#[derive(Clone, Default)]
pub(crate) struct Interner {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    table: HashTable<u32>,
    hash: DefaultHashBuilder,
}

impl Interner {
    /// The id of `text`, and whether it was seen for the first time.
    pub(crate) fn intern(&mut self, text: &[u8]) -> (u32, bool) {
        let hash = self.hash.hash_one(text);
        let found = self.table.find(hash, |&id| slice(&self.bytes, &self.ends, id) == text);
        if let Some(&id) = found {
            return (id, false);
        }
        let id = self.ends.len() as u32;
        self.bytes.extend_from_slice(text);
        self.ends.push(self.bytes.len());
        let (bytes, ends, hasher) = (&self.bytes, &self.ends, &self.hash);
        self.table.insert_unique(hash, id, |&id| hasher.hash_one(slice(bytes, ends, id)));
        (id, true)
    }

    /// The bytes of an id that [`Interner::intern`] gave.
    pub(crate) fn get(&self, id: u32) -> &[u8] {
        slice(&self.bytes, &self.ends, id)
    }
}

fn slice<'a>(bytes: &'a [u8], ends: &[usize], id: u32) -> &'a [u8] {
    let id = id as usize;
    let start = if id == 0 { 0 } else { ends[id - 1] };
    &bytes[start..ends[id]]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_strings_share_an_id_and_different_ones_do_not() {
        let mut interner = Interner::default();
        let words: Vec<String> = (0..1000).map(|n| format!("name.{n}")).collect();
        let ids: Vec<u32> = words.iter().map(|word| interner.intern(word.as_bytes()).0).collect();
        assert_eq!(interner.intern(b""), (1000, true));
        for (word, id) in words.iter().zip(ids) {
            assert_eq!(interner.intern(word.as_bytes()), (id, false));
            assert_eq!(interner.get(id), word.as_bytes());
        }
    }
}
