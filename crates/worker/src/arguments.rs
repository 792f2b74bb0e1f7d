//! The argument blob of a frame: `[i32 tensor count][i32 scalar count][tensors][u64 scalars]`.
//!
//! A tensor is its 128-byte descriptor followed by its use. The blob is written and read as words, because the
//! frame that holds it is made of atomics; a reader trusts none of it and checks every bound.

use std::sync::atomic::{AtomicU64, Ordering};

use simpler_kernel_abi::{ArgUse, CHIP_SCALARS_MAX, CHIP_TENSORS_MAX, SimplerTensor};

use crate::{ChipArg, RunArgs};

const DESCRIPTOR_WORDS: usize = size_of::<SimplerTensor>() / size_of::<u64>();
/// A descriptor and its use.
const TENSOR_WORDS: usize = DESCRIPTOR_WORDS + 1;
/// The two counts, and the most that a chip entry takes.
pub(crate) const BLOB_WORDS: usize = 1 + CHIP_TENSORS_MAX * TENSOR_WORDS + CHIP_SCALARS_MAX;

const _: () = assert!(size_of::<SimplerTensor>() == 128, "the descriptor of RUNTIME 3.4");

/// The blob's place in a frame.
pub(crate) type Blob = [AtomicU64; BLOB_WORDS];

/// Refuses what the blob cannot hold.
pub(crate) fn check(tensors: usize, scalars: usize) -> Result<(), String> {
    if tensors > CHIP_TENSORS_MAX || scalars > CHIP_SCALARS_MAX {
        return Err(format!(
            "{tensors} tensors and {scalars} scalars: a run takes at most {CHIP_TENSORS_MAX} and \
             {CHIP_SCALARS_MAX}"
        ));
    }
    Ok(())
}

/// How many of the blob's words such arguments take.
pub(crate) fn words(tensors: usize, scalars: usize) -> usize {
    1 + tensors * TENSOR_WORDS + scalars
}

/// Writes `args`; the frame's state publishes it.
pub(crate) fn write(blob: &Blob, args: &RunArgs) -> Result<(), String> {
    check(args.tensors.len(), args.scalars.len())?;
    let counts = (args.tensors.len() as u64) | ((args.scalars.len() as u64) << 32);
    let tensors = args.tensors.iter().flat_map(|arg| {
        let words = descriptor_words(arg.tensor);
        words.into_iter().chain([arg.arg_use as u64])
    });
    let words = std::iter::once(counts).chain(tensors).chain(args.scalars.iter().copied());
    for (to, word) in blob.iter().zip(words) {
        // ORDERING: Relaxed: published by the Release store of the frame's state.
        to.store(word, Ordering::Relaxed);
    }
    Ok(())
}

/// Reads what the other side wrote.
pub(crate) fn read(blob: &Blob) -> Result<RunArgs, String> {
    // ORDERING: Relaxed: the Acquire load of the frame's state made the words visible.
    let word = |index: usize| blob[index].load(Ordering::Relaxed);
    let counts = word(0);
    let (tensors, scalars) = (counts as u32 as usize, (counts >> 32) as usize);
    check(tensors, scalars)?;
    let mut args = RunArgs {
        tensors: Vec::with_capacity(tensors),
        scalars: Vec::with_capacity(scalars),
        ..RunArgs::default()
    };
    for position in 0..tensors {
        let first = 1 + position * TENSOR_WORDS;
        let raw_use = word(first + DESCRIPTOR_WORDS);
        let arg_use = ArgUse::from_raw(raw_use)
            .ok_or_else(|| format!("tensor {position} has the unknown use {raw_use}"))?;
        let tensor = descriptor(std::array::from_fn(|index| word(first + index)));
        args.tensors.push(ChipArg { tensor, arg_use });
    }
    let first = 1 + tensors * TENSOR_WORDS;
    args.scalars.extend((first..first + scalars).map(word));
    Ok(args)
}

fn descriptor_words(tensor: SimplerTensor) -> [u64; DESCRIPTOR_WORDS] {
    // SAFETY: the descriptor is 128 bytes of integers without padding (sizes asserted above, offsets by the
    // layout test of kernel-abi), so that all its bytes are initialized.
    unsafe { std::mem::transmute(tensor) }
}

fn descriptor(words: [u64; DESCRIPTOR_WORDS]) -> SimplerTensor {
    // SAFETY: as above, and any value of an integer is valid.
    unsafe { std::mem::transmute(words) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use simpler_kernel_abi::DType;

    fn blob() -> Box<Blob> {
        let words: Box<[AtomicU64]> = (0..BLOB_WORDS).map(|_| AtomicU64::new(0)).collect();
        words.try_into().unwrap()
    }

    fn tensor(seed: u64) -> ChipArg {
        let mut tensor = SimplerTensor::whole(seed, seed + 1, DType::I32, 1);
        tensor.shapes = [1, 2, 3, 4, seed as u32];
        tensor.strides[4] = seed * 3;
        tensor.reserved[1] = 5;
        ChipArg { tensor, arg_use: ArgUse::InOut }
    }

    #[test]
    fn the_largest_arguments_come_back_whole() {
        let args = RunArgs {
            tensors: (0..CHIP_TENSORS_MAX as u64).map(tensor).collect(),
            scalars: (0..CHIP_SCALARS_MAX as u64).map(|n| n << 40).collect(),
            ..RunArgs::default()
        };
        let blob = blob();
        write(&blob, &args).unwrap();
        let back = read(&blob).unwrap();
        assert_eq!(back.scalars, args.scalars);
        assert_eq!(back.tensors.len(), args.tensors.len());
        for (back, sent) in back.tensors.iter().zip(&args.tensors) {
            assert_eq!((back.tensor, back.arg_use), (sent.tensor, sent.arg_use));
        }
    }

    #[test]
    fn one_argument_too_many_is_refused_with_the_limit() {
        let scalars =
            RunArgs { tensors: Vec::new(), scalars: vec![0; CHIP_SCALARS_MAX + 1], ..RunArgs::default() };
        let tensors = RunArgs {
            tensors: vec![tensor(1); CHIP_TENSORS_MAX + 1],
            scalars: Vec::new(),
            ..RunArgs::default()
        };
        for args in [scalars, tensors] {
            assert!(write(&blob(), &args).unwrap_err().contains("at most 256 and 128"));
        }
    }

    #[test]
    fn counts_and_uses_that_no_writer_makes_are_refused() {
        for counts in [u64::MAX, 257, 129 << 32, 0x8000_0000] {
            let blob = blob();
            blob[0].store(counts, Ordering::Relaxed);
            assert!(read(&blob).is_err(), "{counts:#x}");
        }
        let blob = blob();
        write(&blob, &RunArgs { tensors: vec![tensor(1)], scalars: Vec::new(), ..RunArgs::default() })
            .unwrap();
        blob[1 + DESCRIPTOR_WORDS].store(9, Ordering::Relaxed);
        assert!(read(&blob).unwrap_err().contains("unknown use 9"));
    }
}
