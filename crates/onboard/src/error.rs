//! What can go wrong between us and CANN.

use simpler_platform::PlatformError;

/// A refusal of CANN or of its loader, or a use of this crate that cannot be right.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OnboardError {
    /// No library of CANN under the names tried.
    #[error("cannot load CANN's library {library}: {why}")]
    Library {
        /// The names tried.
        library: String,
        /// The loader's words.
        why: String,
    },
    /// A library without a function that is needed.
    #[error("CANN's library {library} has no function {symbol}")]
    Symbol {
        /// The function.
        symbol: &'static str,
        /// The library that was asked.
        library: String,
    },
    /// A function of CANN that did not return 0.
    #[error("{function} failed with CANN's code {code}")]
    Call {
        /// The function.
        function: &'static str,
        /// What it returned.
        code: i32,
    },
    /// A device number below 0.
    #[error("there is no device {0}")]
    NoDevice(i32),
    /// A second init kernel in one life of a device.
    #[error(
        "the AICPU is initialised: its log level is latched for the life of the device; open the device again \
         for another one"
    )]
    AlreadyInitialised,
    /// A name that C cannot hold.
    #[error("the name {0:?} has a zero byte in it")]
    Name(String),
    /// A reset image or sizes that do not fit together.
    #[error("phase buffer: {0}")]
    PhaseBuffer(String),
    /// Device memory refused.
    #[error(transparent)]
    Memory(#[from] PlatformError),
}
