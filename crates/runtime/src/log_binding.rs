//! The process's log for objects that are loaded: handed over before any other function of theirs is called.
//!
//! An object that logs exports one binder; one that does not log exports none, which is no error. Kernels are
//! not asked: they log nothing.

use std::ffi::c_int;

use simpler_log_abi::{BINDER, SimplerHostLogBindFn, SimplerHostLogState};

/// Hands the log to the object `what`, whose symbol [`BINDER`] is `binder`.
///
/// # Errors
/// A sentence, when the object refuses.
pub(crate) fn bind_log(binder: Option<*const ()>, what: &str) -> Result<(), String> {
    let Some(binder) = binder else { return Ok(()) };
    // SAFETY: the header gives the symbol of this name this type.
    let binder = unsafe { std::mem::transmute::<*const (), SimplerHostLogBindFn>(binder) };
    let state = std::ptr::from_ref::<SimplerHostLogState>(simpler_host_log::state());
    // SAFETY: the state lives as long as the process, and everything behind it is atomic.
    let result = unsafe { binder(state.cast_mut()) };
    if result == 0 {
        Ok(())
    } else {
        Err(format!("{what}: {BINDER} refused the process's log: {}", why(result)))
    }
}

/// What a binder's result means.
fn why(result: c_int) -> String {
    match result {
        1 => "it says that the state is null".to_owned(),
        2 => "it says that the threshold is no value of the level ladder".to_owned(),
        other => format!("it returned {other}"),
    }
}
