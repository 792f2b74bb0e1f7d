//! The ladder of severities: what a record has ([`Level`]) and what a process admits ([`Threshold`]).
//!
//! The two are different types because they round in opposite directions: who asks for threshold 35 must
//! not be given warnings, but a record at 35 is a warning that someone gave a number of their own.

/// The severity of one record. The values are those of Python's `logging`.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Details for whoever works on the code.
    Debug = 10,
    /// Progress of normal work.
    Info = 20,
    /// Spans and the clock anchor; the default threshold lets these through.
    Timing = 25,
    /// Something is off, work goes on.
    Warn = 30,
    /// Something failed.
    Error = 40,
}

impl Level {
    /// All levels, mildest first.
    pub const ALL: [Level; 5] = [Level::Debug, Level::Info, Level::Timing, Level::Warn, Level::Error];

    /// The name as it stands in a record's envelope.
    pub const fn name(self) -> &'static str {
        match self {
            Level::Debug => "DEBUG",
            Level::Info => "INFO",
            Level::Timing => "TIMING",
            Level::Warn => "WARN",
            Level::Error => "ERROR",
        }
    }

    /// The level of a record that carries the number `level`: the largest one not above it, and `Debug`
    /// for anything below the ladder.
    pub const fn round_record(level: i32) -> Level {
        match level {
            40.. => Level::Error,
            30..40 => Level::Warn,
            25..30 => Level::Timing,
            20..25 => Level::Info,
            _ => Level::Debug,
        }
    }

    /// The level of CANN's device log that stands for this one. CANN has no TIMING: it becomes WARN, so
    /// that the default threshold does not open the vendor's INFO stream.
    pub const fn cann(self) -> i32 {
        match self {
            Level::Debug => 0,
            Level::Info => 1,
            Level::Timing | Level::Warn => 2,
            Level::Error => 3,
        }
    }
}

/// The mildest level that a process lets through; [`Threshold::NUL`] lets nothing through.
///
/// Only values of the ladder exist, so a threshold never needs checking once it is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Threshold(i32);

impl Threshold {
    /// Everything.
    pub const DEBUG: Threshold = Threshold(10);
    /// INFO and above.
    pub const INFO: Threshold = Threshold(20);
    /// TIMING and above: the default, which keeps the spans.
    pub const TIMING: Threshold = Threshold(25);
    /// WARN and above.
    pub const WARN: Threshold = Threshold(30);
    /// Errors only.
    pub const ERROR: Threshold = Threshold(40);
    /// Nothing at all.
    pub const NUL: Threshold = Threshold(60);

    /// All thresholds, most talkative first.
    pub const ALL: [Threshold; 6] =
        [Self::DEBUG, Self::INFO, Self::TIMING, Self::WARN, Self::ERROR, Self::NUL];

    /// The threshold with exactly this value, `None` off the ladder.
    pub const fn from_ladder(value: i32) -> Option<Threshold> {
        match value {
            10 | 20 | 25 | 30 | 40 | 60 => Some(Threshold(value)),
            _ => None,
        }
    }

    /// The threshold that the wish `value` gets: the smallest of the ladder not below it, and NUL above
    /// ERROR.
    pub const fn normalize(value: i32) -> Threshold {
        match value {
            ..=10 => Self::DEBUG,
            11..=20 => Self::INFO,
            21..=25 => Self::TIMING,
            26..=30 => Self::WARN,
            31..=40 => Self::ERROR,
            41.. => Self::NUL,
        }
    }

    /// The threshold of a tool's `--log-level` argument: debug, info, timing, warn, error or null.
    pub fn from_name(name: &str) -> Option<Threshold> {
        Self::ALL.into_iter().find(|threshold| threshold.name() == name)
    }

    /// The name that [`Threshold::from_name`] takes.
    pub const fn name(self) -> &'static str {
        match self.0 {
            10 => "debug",
            20 => "info",
            25 => "timing",
            30 => "warn",
            40 => "error",
            _ => "null",
        }
    }

    /// Whether a record at `level` is let through. No level reaches NUL's value, so NUL needs no case.
    #[inline]
    pub const fn admits(self, level: Level) -> bool {
        level as i32 >= self.0
    }

    /// The value on the ladder.
    pub const fn get(self) -> i32 {
        self.0
    }

    /// The level that CANN's device log is set to for this threshold; 4 mutes it.
    pub const fn cann(self) -> i32 {
        match self.0 {
            10 => 0,
            20 => 1,
            25 | 30 => 2,
            40 => 3,
            _ => 4,
        }
    }
}
