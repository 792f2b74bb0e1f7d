//! The CallConfig of a frame: 6×i32, 12×u64 and 1024 characters (RUNTIME §1.5); all zero means every default.
//!
//! ```text
//! i32  aicpu_thread_num, enable_chip_swimlane, enable_dump_args, enable_pmu, enable_dep_gen, enable_scope_stats
//! u64  runtime_env: task window, heap bytes, dependency pool of each of four rings
//! char output_prefix, up to its NUL
//! ```
//!
//! Written and read as words, like the arguments. What this version does not know (diagnostics other than the swimlane)
//! is refused where it is not zero, rather than left out of a run that asked for it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use simpler_runtime::{CallConfig, RINGS, RingSizes};
use simpler_swimlane::Level;

/// Two i32 a word.
const FLAG_WORDS: usize = 3;
const RING_WORDS: usize = 3 * RINGS;
const PREFIX_BYTES: usize = 1024;
const WORDS: usize = FLAG_WORDS + RING_WORDS + PREFIX_BYTES / 8;

/// The place of a CallConfig in a frame.
pub(crate) type Words = [AtomicU64; WORDS];

/// Writes `config`; the frame's state publishes it.
pub(crate) fn write(words: &Words, config: &CallConfig) -> Result<(), String> {
    let CallConfig { aicpu_threads, swimlane, output_prefix, rings } = config;
    let prefix = output_prefix.as_ref().map_or(&b""[..], |prefix| prefix.as_os_str().as_bytes());
    if prefix.len() >= PREFIX_BYTES || prefix.contains(&0) || (output_prefix.is_some() && prefix.is_empty()) {
        let most = PREFIX_BYTES - 1;
        return Err(format!("an output prefix of {} bytes: 1 to {most}, none of them NUL", prefix.len()));
    }
    let threads = aicpu_threads.map_or(Ok(0), |threads| match i32::try_from(threads) {
        Ok(threads) if threads != 0 => Ok(threads),
        _ => Err(format!("{threads} AICPU threads")),
    })?;
    let flags = threads as u32 as u64 | u64::from(*swimlane as u32) << 32;
    let text = prefix.chunks(8).map(|chunk| {
        let mut bytes = [0; 8];
        bytes[..chunk.len()].copy_from_slice(chunk);
        u64::from_ne_bytes(bytes)
    });
    let windows = rings.iter().map(|ring| u64::from(ring.window.unwrap_or(0)));
    let heaps = rings.iter().map(|ring| ring.heap_bytes.unwrap_or(0));
    let edges = rings.iter().map(|ring| u64::from(ring.edges.unwrap_or(0)));
    let zeros = std::iter::repeat_n(0, FLAG_WORDS - 1);
    let head = std::iter::once(flags).chain(zeros).chain(windows).chain(heaps).chain(edges);
    let all = head.chain(text).chain(std::iter::repeat(0));
    for (to, word) in words.iter().zip(all) {
        // ORDERING: Relaxed: published by the Release store of the frame's state.
        to.store(word, Ordering::Relaxed);
    }
    Ok(())
}

/// Reads what the other side wrote.
pub(crate) fn read(words: &Words) -> Result<CallConfig, String> {
    // ORDERING: Relaxed: the Acquire load of the frame's state made the words visible.
    let words: Vec<u64> = words.iter().map(|word| word.load(Ordering::Relaxed)).collect();
    let (flags, rest) = words.split_at(FLAG_WORDS);
    let (rings, prefix) = rest.split_at(RING_WORDS);
    let [threads, swimlane] = [flags[0] as i32, (flags[0] >> 32) as i32];
    if flags[1..].iter().any(|word| *word != 0) {
        return Err("the call asks for diagnostics that this child does not know".to_owned());
    }
    let chosen = |word: u64| Some(word).filter(|word| *word != 0);
    let narrow = |word: u64| match u32::try_from(word) {
        Ok(word) => Ok(Some(word).filter(|word| *word != 0)),
        Err(_) => Err(format!("the call asks for a ring of {word}")),
    };
    let mut sizes = [RingSizes::default(); RINGS];
    for (ring, sizes) in sizes.iter_mut().enumerate() {
        let [window, heap_bytes, edges] = [0, 1, 2].map(|what| rings[what * RINGS + ring]);
        *sizes = RingSizes { window: narrow(window)?, heap_bytes: chosen(heap_bytes), edges: narrow(edges)? };
    }
    let aicpu_threads = match usize::try_from(threads) {
        Ok(0) => None,
        Ok(threads) => Some(threads),
        Err(_) => return Err(format!("the call asks for {threads} AICPU threads")),
    };
    let swimlane = Level::try_from(i64::from(swimlane)).map_err(|error| error.to_string())?;
    let mut text: Vec<u8> = prefix.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let end = text.iter().position(|byte| *byte == 0).ok_or("the output prefix does not end")?;
    text.truncate(end);
    let output_prefix = (!text.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(&text)));
    Ok(CallConfig { aicpu_threads, swimlane, output_prefix, rings: sizes })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words() -> Words {
        std::array::from_fn(|_| AtomicU64::new(0))
    }

    #[test]
    fn a_configuration_comes_back_whole() {
        let words = words();
        assert_eq!(read(&words), Ok(CallConfig::default()), "zeros are the default");
        for prefix in ["p".to_owned(), "/a/path of/öutput".to_owned(), "x".repeat(PREFIX_BYTES - 1)] {
            let config = CallConfig {
                aicpu_threads: Some(3),
                swimlane: Level::SchedulerPhases,
                output_prefix: Some(prefix.into()),
                rings: std::array::from_fn(|ring| RingSizes {
                    window: Some(4 << ring),
                    heap_bytes: (ring != 2).then_some(1 << (40 + ring)),
                    edges: (ring == 3).then_some(u32::MAX),
                }),
            };
            write(&words, &config).unwrap();
            assert_eq!(read(&words), Ok(config));
        }
        // Nothing of the last one is left.
        write(&words, &CallConfig::default()).unwrap();
        assert_eq!(read(&words), Ok(CallConfig::default()));
        assert!(words.iter().all(|word| word.load(Ordering::Relaxed) == 0));
    }

    #[test]
    fn what_does_not_fit_is_not_sent() {
        let with = |prefix: &str| CallConfig { output_prefix: Some(prefix.into()), ..CallConfig::default() };
        for prefix in ["", "a\0b", &"x".repeat(PREFIX_BYTES)] {
            let error = write(&words(), &with(prefix)).unwrap_err();
            assert!(error.contains("1 to 1023"), "{error}");
        }
        for threads in [0, 1 << 31] {
            let config = CallConfig { aicpu_threads: Some(threads), ..CallConfig::default() };
            assert!(write(&words(), &config).unwrap_err().contains("AICPU threads"));
        }
    }

    #[test]
    fn what_is_not_known_is_refused() {
        let with = |index: usize, value: u64| {
            let words = words();
            words[index].store(value, Ordering::Relaxed);
            read(&words).unwrap_err()
        };
        assert!(with(0, 5 << 32).contains("5 is no swimlane level"));
        assert!(with(0, u64::from(u32::MAX)).contains("-1 AICPU threads"));
        assert!(with(1, 1).contains("diagnostics") && with(2, 1 << 32).contains("diagnostics"));
        for narrow in [0, 2 * RINGS] {
            assert!(with(FLAG_WORDS + narrow, 1 << 32).contains("a ring of 4294967296"));
        }
        let words: Words = std::array::from_fn(|index| {
            AtomicU64::new(if index < FLAG_WORDS + RING_WORDS { 0 } else { u64::MAX })
        });
        assert!(read(&words).unwrap_err().contains("does not end"));
    }
}
