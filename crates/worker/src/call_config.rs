//! The CallConfig of a frame: the words of a [`SimplerCallConfig`], written and read like the arguments.

use std::sync::atomic::{AtomicU64, Ordering};

use simpler_runtime::{CALL_CONFIG_WORDS, CallConfig, SimplerCallConfig};

/// The place of a CallConfig in a frame.
pub(crate) type Words = [AtomicU64; CALL_CONFIG_WORDS];

/// Writes `config`; the frame's state publishes it.
pub(crate) fn write(words: &Words, config: &CallConfig) -> Result<(), String> {
    for (to, word) in words.iter().zip(SimplerCallConfig::new(config)?.to_words()) {
        // ORDERING: Relaxed: published by the Release store of the frame's state.
        to.store(word, Ordering::Relaxed);
    }
    Ok(())
}

/// Reads what the other side wrote.
pub(crate) fn read(words: &Words) -> Result<CallConfig, String> {
    // ORDERING: Relaxed: the Acquire load of the frame's state made the words visible.
    SimplerCallConfig::from_words(std::array::from_fn(|index| words[index].load(Ordering::Relaxed))).config()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_keeps_nothing_of_the_configuration_before() {
        let words: Words = std::array::from_fn(|_| AtomicU64::new(0));
        let config =
            CallConfig { aicpu_threads: Some(3), output_prefix: Some("p".into()), ..CallConfig::default() };
        write(&words, &config).unwrap();
        assert_eq!(read(&words), Ok(config));
        write(&words, &CallConfig::default()).unwrap();
        assert_eq!(read(&words), Ok(CallConfig::default()));
        assert!(words.iter().all(|word| word.load(Ordering::Relaxed) == 0));
    }

    #[test]
    fn what_no_writer_makes_is_refused() {
        let words: Words = std::array::from_fn(|_| AtomicU64::new(u64::MAX));
        assert!(read(&words).unwrap_err().contains("diagnostics"));
    }
}
