//! A callable on its way to a child that is already there: its image as bytes, in chunks.
//!
//! What parent and child share was mapped before the fork, so there is no memory for an image that comes later. It
//! crosses the mailbox: the parent asks `register` once per chunk, and the chunk lies behind the operands in the base
//! frame. That needs no file, no descriptor and no memory of its own, leaves nothing behind when a process dies, and
//! works wherever a mailbox does. It costs a round trip per 35 kB, which is about the size of an object.
//!
//! ```text
//! u64 bytes of the name, name, u64 bytes of the orchestration, orchestration,
//! u64 kernels, of each: u64 kind, u64 bytes of the name, name, u64 bytes of the object, object
//! ```
//!
//! A child believes none of it: the bounds are checked, and the digest of what has come must be that of the request.

use simpler_kernel_abi::CoreKind;
use simpler_runtime::KernelImage;

use crate::CallableImage;
use crate::mailbox::{CHUNK_BYTES, Control, Digest};

/// Most bytes of an image: a child gathers so many before it knows what they are. A statically linked kernel has a
/// few megabytes.
pub(crate) const IMAGE_BYTES_MAX: usize = 64 << 20;

/// A part of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    /// Bytes of the whole image; 0: it does not come.
    pub(crate) total: u64,
    /// Where this part begins.
    pub(crate) offset: u64,
    pub(crate) bytes: Vec<u8>,
}

/// The requests that carry an image, in their order.
///
/// # Errors
/// An image of more than [`IMAGE_BYTES_MAX`] bytes.
pub(crate) fn requests(image: &CallableImage) -> Result<impl Iterator<Item = Control> + use<>, String> {
    let (callable, bytes) = (image.digest(), encode(image));
    if bytes.len() > IMAGE_BYTES_MAX {
        let (name, size) = (&image.name, bytes.len());
        return Err(format!("callable {name} has {size} bytes, at most {IMAGE_BYTES_MAX} can be registered"));
    }
    let offsets = (0..bytes.len()).step_by(CHUNK_BYTES);
    Ok(offsets.map(move |offset| {
        let end = bytes.len().min(offset + CHUNK_BYTES);
        let chunk =
            Chunk { total: bytes.len() as u64, offset: offset as u64, bytes: bytes[offset..end].to_vec() };
        Control::Register { callable, chunk }
    }))
}

/// The request that ends the transfer of an image of which some chunks were sent: the child keeps nothing of it.
pub(crate) fn abandon(callable: Digest) -> Control {
    Control::Register { callable, chunk: Chunk { total: 0, offset: 0, bytes: Vec::new() } }
}

/// What has come of an image so far, in the child.
#[derive(Default)]
pub(crate) struct Gathering {
    callable: Digest,
    bytes: Vec<u8>,
}

impl Gathering {
    /// Takes a chunk; gives the image with the last one. The first chunk of an image ends what was not finished; so does one
    /// of nothing ([`abandon`]), with which none begins.
    ///
    /// # Errors
    /// A chunk that does not follow the one before, an image that is too large, is none, or is not the callable that the
    /// request names.
    pub(crate) fn take(&mut self, callable: Digest, chunk: Chunk) -> Result<Option<CallableImage>, String> {
        let Chunk { total, offset, bytes } = chunk;
        if offset == 0 {
            *self = Self { callable, bytes: Vec::new() };
        }
        if (total, offset, bytes.len()) == (0, 0, 0) {
            return Ok(None);
        }
        if self.callable != callable || self.bytes.len() as u64 != offset {
            let here = self.bytes.len();
            return Err(format!("a chunk at byte {offset} of an image of which {here} bytes are here"));
        }
        if total > IMAGE_BYTES_MAX as u64 || offset + bytes.len() as u64 > total {
            return Err(format!("an image of {total} bytes, at most {IMAGE_BYTES_MAX} can be registered"));
        }
        self.bytes.extend_from_slice(&bytes);
        if (self.bytes.len() as u64) < total {
            return Ok(None);
        }
        let image =
            decode(&std::mem::take(&mut self.bytes)).ok_or("the image's parts do not fit together")?;
        if image.digest() != callable {
            return Err(format!("callable {}: what has arrived has another digest", image.name));
        }
        Ok(Some(image))
    }
}

fn encode(image: &CallableImage) -> Vec<u8> {
    let mut out = Vec::new();
    let part = |out: &mut Vec<u8>, bytes: &[u8]| {
        out.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        out.extend_from_slice(bytes);
    };
    part(&mut out, image.name.as_bytes());
    part(&mut out, &image.orchestration);
    out.extend_from_slice(&(image.kernels.len() as u64).to_le_bytes());
    for kernel in &image.kernels {
        out.extend_from_slice(&(kernel.kind as u64).to_le_bytes());
        part(&mut out, kernel.name.as_bytes());
        part(&mut out, &kernel.bytes);
    }
    out
}

/// Nothing where the bytes end early, go on after the image, or hold a kind of core that there is not.
fn decode(bytes: &[u8]) -> Option<CallableImage> {
    let mut rest = bytes;
    let rest = &mut rest;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let name = text(part(rest)?);
    let orchestration = part(rest)?.to_vec();
    let mut kernels = Vec::new();
    for _ in 0..number(rest)? {
        let kind = match number(rest)? {
            kind if kind == CoreKind::Aic as u64 => CoreKind::Aic,
            kind if kind == CoreKind::Aiv as u64 => CoreKind::Aiv,
            _ => return None,
        };
        kernels.push(KernelImage { name: text(part(rest)?), bytes: part(rest)?.to_vec(), kind });
    }
    rest.is_empty().then_some(CallableImage { name, orchestration, kernels })
}

fn number(rest: &mut &[u8]) -> Option<u64> {
    let (number, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(u64::from_le_bytes(*number))
}

fn part<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(number(rest)?).ok()?;
    let (part, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(object: usize) -> CallableImage {
        let kernel = |name: &str, kind| KernelImage { name: name.into(), bytes: vec![7; object], kind };
        let kernels = vec![kernel("näme", CoreKind::Aiv), kernel("", CoreKind::Aic)];
        CallableImage { name: "scene".into(), orchestration: vec![1; object], kernels }
    }

    fn chunks(image: &CallableImage) -> Vec<Chunk> {
        let chunks = requests(image).unwrap().map(|request| match request {
            Control::Register { callable, chunk } if callable == image.digest() => chunk,
            other => panic!("{other:?}"),
        });
        chunks.collect()
    }

    #[test]
    fn an_image_of_any_size_comes_back_whole() {
        let mut gathering = Gathering::default();
        for object in [0, 1, CHUNK_BYTES, 3 * CHUNK_BYTES + 5] {
            let image = image(object);
            let mut chunks = chunks(&image);
            assert!(chunks.iter().all(|chunk| (1..=CHUNK_BYTES).contains(&chunk.bytes.len())));
            let last = chunks.pop().unwrap();
            for chunk in chunks {
                assert_eq!(gathering.take(image.digest(), chunk), Ok(None));
            }
            assert_eq!(gathering.take(image.digest(), last), Ok(Some(image)));
        }
    }

    #[test]
    fn a_chunk_that_does_not_follow_is_refused_and_a_first_one_begins_again() {
        let image = image(CHUNK_BYTES);
        let (digest, chunks) = (image.digest(), chunks(&image));
        let mut gathering = Gathering::default();
        assert!(gathering.take(digest, chunks[1].clone()).unwrap_err().contains("of which 0 bytes are here"));
        assert_eq!(gathering.take(digest, chunks[0].clone()), Ok(None));
        assert!(gathering.take(digest, chunks[2].clone()).is_err());
        assert!(gathering.take([0; 32], chunks[1].clone()).is_err(), "another image's");
        // As after a parent that gave up.
        let all: Vec<_> = chunks.into_iter().map(|chunk| gathering.take(digest, chunk)).collect();
        assert_eq!(all.last(), Some(&Ok(Some(image))));
    }

    #[test]
    fn nothing_is_kept_of_an_image_that_is_abandoned() {
        let image = image(CHUNK_BYTES);
        let (digest, chunks) = (image.digest(), chunks(&image));
        let Control::Register { callable, chunk: nothing } = abandon(digest) else { panic!("a chunk") };
        assert_eq!(callable, digest);
        let mut gathering = Gathering::default();
        // Also where none has begun.
        assert_eq!(gathering.take(digest, nothing.clone()), Ok(None));
        assert_eq!(gathering.take(digest, chunks[0].clone()), Ok(None));
        assert!(gathering.bytes.capacity() >= CHUNK_BYTES);
        assert_eq!(gathering.take(digest, nothing), Ok(None));
        assert_eq!(gathering.bytes.capacity(), 0);
        assert!(gathering.take(digest, chunks[1].clone()).unwrap_err().contains("of which 0 bytes are here"));
    }

    #[test]
    fn what_is_too_large_or_not_what_was_announced_is_refused() {
        let first = |total: u64| Chunk { total, offset: 0, bytes: vec![0; 16] };
        let mut gathering = Gathering::default();
        for total in [IMAGE_BYTES_MAX as u64 + 1, u64::MAX, 15] {
            assert!(
                gathering.take([0; 32], first(total)).unwrap_err().contains("at most 67108864"),
                "{total}"
            );
        }
        assert!(gathering.take([0; 32], first(16)).unwrap_err().contains("do not fit together"));
        let [chunk] = &chunks(&image(3))[..] else { panic!("one chunk") };
        let error = gathering.take([0; 32], chunk.clone()).unwrap_err();
        assert_eq!(error, "callable scene: what has arrived has another digest");
        let large = CallableImage { orchestration: vec![0; IMAGE_BYTES_MAX], ..image(0) };
        assert!(requests(&large).map(drop).unwrap_err().contains("at most 67108864 can be registered"));
    }

    #[test]
    fn bytes_that_end_early_or_go_on_are_no_image() {
        let bytes = encode(&image(9));
        assert_eq!(decode(&bytes), Some(image(9)));
        assert!((0..bytes.len()).all(|end| decode(&bytes[..end]).is_none()));
        assert_eq!(decode(&[&bytes[..], &[0]].concat()), None);
        // A kind that there is not.
        let kind = 8 + "scene".len() + 8 + 9 + 8;
        let mut odd = bytes.clone();
        assert_eq!(odd[kind], CoreKind::Aiv as u8);
        odd[kind] = 2;
        assert_eq!(decode(&odd), None);
        // A length beyond an address space.
        let mut long = bytes;
        long[..8].copy_from_slice(&[0xff; 8]);
        assert_eq!(decode(&long), None);
    }
}
