//! A [`CallConfig`] as a plain record, as C hands it in and as a mailbox carries it (RUNTIME §1.5).
//!
//! ```text
//! i32  aicpu_thread_num, enable_chip_swimlane, enable_dump_args, enable_pmu, enable_dep_gen, enable_scope_stats
//! u64  runtime_env: task window, heap bytes, dependency pool of each of four rings
//! char output_prefix, up to its NUL
//! ```
//!
//! All zero means every default. What this version does not know (diagnostics other than the swimlane) is refused where
//! it is not zero, rather than left out of a run that asked for it.

use std::ffi::OsStr;
use std::mem::offset_of;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use simpler_swimlane::Level;

use crate::call_config::CallConfig;
use crate::graph::RINGS;
use crate::ring_sizes::RingSizes;

/// The size of the prefix's field, its NUL included.
pub const OUTPUT_PREFIX_BYTES: usize = 1024;
/// The record in words of eight bytes.
pub const CALL_CONFIG_WORDS: usize = size_of::<SimplerCallConfig>() / size_of::<u64>();

/// The record; see the module.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimplerCallConfig {
    /// AICPU threads of the run; 0: all of the platform's.
    pub aicpu_thread_num: i32,
    /// Swimlane level, 0 to 4.
    pub enable_chip_swimlane: i32,
    /// Not known to this version: 0.
    pub enable_dump_args: i32,
    /// Not known to this version: 0.
    pub enable_pmu: i32,
    /// Not known to this version: 0.
    pub enable_dep_gen: i32,
    /// Not known to this version: 0.
    pub enable_scope_stats: i32,
    /// Tasks in the window of each ring; 0: not chosen, like the next two.
    pub ring_task_window: [u64; RINGS],
    /// Bytes of each ring's heap.
    pub ring_heap_bytes: [u64; RINGS],
    /// Dependencies of each ring.
    pub ring_dep_pool: [u64; RINGS],
    /// Folder of the run's artifacts, up to its NUL; empty: none.
    pub output_prefix: [u8; OUTPUT_PREFIX_BYTES],
}

const _: () = {
    assert!(size_of::<SimplerCallConfig>() == 6 * 4 + 12 * 8 + 1024);
    assert!(align_of::<SimplerCallConfig>() == 8);
    assert!(offset_of!(SimplerCallConfig, enable_chip_swimlane) == 4);
    assert!(offset_of!(SimplerCallConfig, enable_dump_args) == 8);
    assert!(offset_of!(SimplerCallConfig, enable_pmu) == 12);
    assert!(offset_of!(SimplerCallConfig, enable_dep_gen) == 16);
    assert!(offset_of!(SimplerCallConfig, enable_scope_stats) == 20);
    assert!(offset_of!(SimplerCallConfig, ring_task_window) == 24);
    assert!(offset_of!(SimplerCallConfig, ring_heap_bytes) == 56);
    assert!(offset_of!(SimplerCallConfig, ring_dep_pool) == 88);
    assert!(offset_of!(SimplerCallConfig, output_prefix) == 120);
};

impl Default for SimplerCallConfig {
    fn default() -> Self {
        Self::from_words([0; CALL_CONFIG_WORDS])
    }
}

impl SimplerCallConfig {
    /// The record of a configuration.
    ///
    /// # Errors
    /// A sentence where a number or the prefix does not fit, or something is recorded and there is no prefix.
    pub fn new(config: &CallConfig) -> Result<Self, String> {
        config.check_record()?;
        let CallConfig { aicpu_threads, swimlane, output_prefix, rings } = config;
        let prefix = output_prefix.as_ref().map_or(&b""[..], |prefix| prefix.as_os_str().as_bytes());
        // Whatever does not fit was refused.
        let aicpu_thread_num = aicpu_threads.map_or(0, |threads| threads as i32);
        let mut record = Self {
            aicpu_thread_num,
            enable_chip_swimlane: *swimlane as i32,
            ring_task_window: rings.map(|ring| ring.window.unwrap_or(0).into()),
            ring_heap_bytes: rings.map(|ring| ring.heap_bytes.unwrap_or(0)),
            ring_dep_pool: rings.map(|ring| ring.edges.unwrap_or(0).into()),
            ..Self::default()
        };
        record.output_prefix[..prefix.len()].copy_from_slice(prefix);
        Ok(record)
    }

    /// The configuration that the record means.
    ///
    /// # Errors
    /// A sentence where it is none that this version knows.
    pub fn config(&self) -> Result<CallConfig, String> {
        let unknown = [self.enable_dump_args, self.enable_pmu, self.enable_dep_gen, self.enable_scope_stats];
        if unknown != [0; 4] {
            return Err("the call asks for diagnostics that this version does not know".to_owned());
        }
        let narrow = |word: u64| match u32::try_from(word) {
            Ok(word) => Ok(Some(word).filter(|word| *word != 0)),
            Err(_) => Err(format!("the call asks for a ring of {word}")),
        };
        let mut rings = [RingSizes::default(); RINGS];
        for (ring, sizes) in rings.iter_mut().enumerate() {
            *sizes = RingSizes {
                window: narrow(self.ring_task_window[ring])?,
                heap_bytes: Some(self.ring_heap_bytes[ring]).filter(|bytes| *bytes != 0),
                edges: narrow(self.ring_dep_pool[ring])?,
            };
        }
        let aicpu_threads = match usize::try_from(self.aicpu_thread_num) {
            Ok(0) => None,
            Ok(threads) => Some(threads),
            Err(_) => return Err(format!("the call asks for {} AICPU threads", self.aicpu_thread_num)),
        };
        let swimlane =
            Level::try_from(i64::from(self.enable_chip_swimlane)).map_err(|error| error.to_string())?;
        let end = self.output_prefix.iter().position(|byte| *byte == 0);
        let prefix = &self.output_prefix[..end.ok_or("the output prefix does not end")?];
        let output_prefix = (!prefix.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(prefix)));
        let config = CallConfig { aicpu_threads, swimlane, output_prefix, rings };
        config.require_prefix()?;
        Ok(config)
    }

    /// The record as words, in the machine's byte order.
    pub fn to_words(self) -> [u64; CALL_CONFIG_WORDS] {
        // SAFETY: integers without padding (sizes and offsets asserted above), so that all bytes are initialized.
        unsafe { std::mem::transmute(self) }
    }

    /// The record that such words are.
    pub fn from_words(words: [u64; CALL_CONFIG_WORDS]) -> Self {
        // SAFETY: as above, and any value of an integer is valid.
        unsafe { std::mem::transmute(words) }
    }
}

impl CallConfig {
    /// Whether [`SimplerCallConfig::new`] has a record for it, without making one: for who takes a configuration from a
    /// caller.
    ///
    /// # Errors
    /// As there.
    pub fn check_record(&self) -> Result<(), String> {
        if let Some(prefix) = &self.output_prefix {
            let prefix = prefix.as_os_str().as_bytes();
            if !(1..OUTPUT_PREFIX_BYTES).contains(&prefix.len()) || prefix.contains(&0) {
                let most = OUTPUT_PREFIX_BYTES - 1;
                return Err(format!(
                    "an output prefix of {} bytes: 1 to {most}, none of them NUL",
                    prefix.len()
                ));
            }
        }
        match self.aicpu_threads {
            Some(threads) if threads == 0 || i32::try_from(threads).is_err() => {
                return Err(format!("{threads} AICPU threads"));
            }
            _ => {}
        }
        self.require_prefix()
    }

    /// Who asks for a run that records anything says where that is to go (RUNTIME §1.5).
    fn require_prefix(&self) -> Result<(), String> {
        if self.swimlane != Level::Off && self.output_prefix.is_none() {
            return Err("the call asks for the swimlane and names no output prefix".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_comes_back_whole() {
        assert_eq!(SimplerCallConfig::default().config(), Ok(CallConfig::default()), "zeros are the default");
        assert_eq!(
            SimplerCallConfig::new(&CallConfig::default()).unwrap().to_words(),
            [0; CALL_CONFIG_WORDS]
        );
        for prefix in ["p".to_owned(), "/a/path of/öutput".to_owned(), "x".repeat(OUTPUT_PREFIX_BYTES - 1)] {
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
            let words = SimplerCallConfig::new(&config).unwrap().to_words();
            assert_eq!(SimplerCallConfig::from_words(words).config(), Ok(config));
        }
    }

    #[test]
    fn what_does_not_fit_is_no_record() {
        let with = |prefix: &str| CallConfig { output_prefix: Some(prefix.into()), ..CallConfig::default() };
        for prefix in ["", "a\0b", &"x".repeat(OUTPUT_PREFIX_BYTES)] {
            let error = SimplerCallConfig::new(&with(prefix)).unwrap_err();
            assert!(error.contains("1 to 1023"), "{error}");
        }
        let recorded = CallConfig { swimlane: Level::AicoreTasks, ..CallConfig::default() };
        assert!(SimplerCallConfig::new(&recorded).unwrap_err().contains("names no output prefix"));
        for threads in [0, 1 << 31] {
            let config = CallConfig { aicpu_threads: Some(threads), ..CallConfig::default() };
            assert!(SimplerCallConfig::new(&config).unwrap_err().contains("AICPU threads"));
        }
    }

    #[test]
    fn what_is_not_known_is_refused() {
        let with = |change: fn(&mut SimplerCallConfig)| {
            let mut record = SimplerCallConfig::default();
            change(&mut record);
            record.config().unwrap_err()
        };
        assert!(with(|record| record.enable_chip_swimlane = 5).contains("5 is no swimlane level"));
        assert!(with(|record| record.enable_chip_swimlane = 1).contains("names no output prefix"));
        assert!(with(|record| record.aicpu_thread_num = -1).contains("-1 AICPU threads"));
        for change in [
            (|record| record.enable_dump_args = 1) as fn(&mut SimplerCallConfig),
            |record| record.enable_pmu = 1,
            |record| record.enable_dep_gen = 1,
            |record| record.enable_scope_stats = -1,
        ] {
            assert!(with(change).contains("diagnostics"));
        }
        assert!(with(|record| record.ring_task_window[0] = 1 << 32).contains("a ring of 4294967296"));
        assert!(with(|record| record.ring_dep_pool[3] = 1 << 32).contains("a ring of 4294967296"));
        assert!(with(|record| record.output_prefix.fill(b'x')).contains("does not end"));
    }
}
