//! How a loader finds the function that binds a module.

/// The one symbol that a logging module exports, a [`crate::SimplerHostLogBindFn`].
pub const BINDER: &str = "simpler_host_log_bind_state";
