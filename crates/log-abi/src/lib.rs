//! The C-visible types of the host log: the level ladder, the shared state, the span and its context.
//!
//! Every shared object of a process has a private logger, and all of them work on one
//! [`SimplerHostLogState`] that the owner publishes. What they agree on is therefore bytes, not code: the
//! types here are `repr(C)`, every offset is asserted below, and every word that two threads touch is an
//! atomic. Nothing here acts; the owner's behaviour is the crate `simpler-host-log`.
//!
//! `include/simpler` has the same for C and C++, a header for each module here, and with it a whole consumer, which
//! has no Rust beside it; [`HEADERS`] is its text.
//!
//! ```
//! use simpler_log_abi::{Level, Threshold};
//!
//! assert!(Threshold::TIMING.admits(Level::Timing));
//! assert!(!Threshold::TIMING.admits(Level::Info));
//! assert_eq!(Threshold::normalize(21), Threshold::TIMING); // a wish is rounded up
//! assert_eq!(Level::round_record(35), Level::Warn); // a record is rounded down
//! ```

#![no_std]

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!("the shared log state is laid out for 64-bit Linux");

mod headers;
mod host_log_binding;
mod host_log_state;
mod host_span;
mod log_level;

pub use headers::HEADERS;
pub use host_log_binding::BINDER;
pub use host_log_state::{
    DROP_REASONS, DropReason, LOG_DIRECTORY_BYTES, PRODUCERS_CLOSED, SimplerHostLogBindFn,
    SimplerHostLogEnqueueFn, SimplerHostLogState,
};
pub use host_span::{SimplerHostSpan, SimplerSpanContext, SimplerSpanContextFn};
pub use log_level::{Level, Threshold};
