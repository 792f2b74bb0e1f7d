//! Whether a run's device spans are emitted.

/// The variable that turns device spans off: exactly `0` does, anything else and unset do not.
pub const ENABLE_ENV: &str = "SIMPLER_DEVICE_STRACE_ENABLE";

/// The one predicate: host tracing compiled in, [`ENABLE_ENV`] (its bytes, None if unset) not exactly `0`, and
/// the log's threshold lets TIMING through. Stamping is never gated.
pub const fn emission_enabled(compiled_in: bool, env: Option<&[u8]>, timing_visible: bool) -> bool {
    compiled_in && timing_visible && !matches!(env, Some(b"0"))
}
