//! The gate of the device spans.

use simpler_device_phase::{ENABLE_ENV, emission_enabled};

#[test]
fn only_exactly_zero_turns_emission_off() {
    assert_eq!(ENABLE_ENV, "SIMPLER_DEVICE_STRACE_ENABLE");
    assert!(!emission_enabled(true, Some(b"0"), true));
    for on in [&b""[..], b"1", b"00", b"0 ", b" 0", b"false", b"off", b"\xff"] {
        assert!(emission_enabled(true, Some(on), true), "{on:?}");
    }
    assert!(emission_enabled(true, None, true));
}

#[test]
fn emission_needs_the_build_and_the_threshold_too() {
    assert!(!emission_enabled(false, None, true));
    assert!(!emission_enabled(true, None, false));
    assert!(!emission_enabled(true, Some(b"1"), false));
}
