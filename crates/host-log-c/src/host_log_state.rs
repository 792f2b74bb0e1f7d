//! `host_log_state.h`: the one function that every logging module exports, this library included.

use core::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use simpler_log_abi::SimplerHostLogState;

/// What the binder returns when it fails inside; the header's own results are 0, 1 and 2.
const PANICKED: c_int = 3;

/// Binds this library's copy of the logger to the log of another owner.
///
/// # Safety
///
/// - `state` is null, or lives as long as this library is used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn simpler_host_log_bind_state(state: *mut SimplerHostLogState) -> c_int {
    // SAFETY: the caller's obligation; what the state's callbacks are, its owner has promised to all.
    let bind = || unsafe { host_log::bind_state(state) };
    catch_unwind(AssertUnwindSafe(bind)).unwrap_or(PANICKED)
}
