//! The order in which a device is opened and closed, and what is left when opening fails half way.

#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use simpler_log_abi::Threshold;
use simpler_onboard::{CannLogLevel, OnboardError, OnboardNpu, OnboardOptions, a5};
use support::StandIn;

const OPENING: [&str; 5] = [
    "dlog_setlevel -1 2 0",
    "aclInit null",
    "aclrtSetDevice 3",
    "aclrtGetCurrentContext",
    "aclrtCreateStream",
];
const CLOSING: [&str; 3] = ["aclrtDestroyStream stream", "aclrtResetDevice 3", "aclFinalize"];

#[test]
fn the_log_level_comes_first_and_closing_is_the_reverse_of_opening() {
    let stand_in = StandIn::new();
    let npu = stand_in.open(Threshold::TIMING).unwrap();
    assert_eq!(stand_in.calls(), OPENING);
    drop(npu);
    assert_eq!(stand_in.calls(), CLOSING);
}

#[test]
fn each_threshold_has_its_level_of_cann() {
    let table = [
        (Threshold::DEBUG, 0),
        (Threshold::INFO, 1),
        (Threshold::TIMING, 2),
        (Threshold::WARN, 2),
        (Threshold::ERROR, 3),
        (Threshold::NUL, 4),
    ];
    assert_eq!(table.map(|(threshold, _)| threshold), Threshold::ALL);
    for (threshold, level) in table {
        let stand_in = StandIn::new();
        let npu = stand_in.open(threshold).unwrap();
        assert_eq!(stand_in.calls()[0], format!("dlog_setlevel -1 {level} 0"), "{threshold:?}");
        assert_eq!(npu.log_level(), CannLogLevel::Set(level));
    }
}

#[test]
fn a_failed_opening_closes_what_it_opened_in_reverse() {
    // After the failing call come these; the call itself is told with its code.
    let table: [(&str, &[&str]); 4] = [
        ("aclInit", &[]),
        ("aclrtSetDevice", &["aclFinalize"]),
        ("aclrtGetCurrentContext", &["aclrtResetDevice 3", "aclFinalize"]),
        ("aclrtCreateStream", &["aclrtResetDevice 3", "aclFinalize"]),
    ];
    for (function, closing) in table {
        let stand_in = StandIn::new();
        stand_in.fail(function, 0, 507_000);
        let error = stand_in.open(Threshold::TIMING).unwrap_err();
        assert_eq!(error.to_string(), format!("{function} failed with CANN's code 507000"));
        let calls = stand_in.calls();
        let failed = calls.iter().position(|call| call.starts_with(function)).unwrap();
        assert_eq!(calls[..=failed], OPENING[..=failed]);
        assert_eq!(calls[failed + 1..], *closing, "{function}");
    }
}

#[test]
fn a_refused_log_level_is_told_and_the_device_opened() {
    let stand_in = StandIn::new();
    stand_in.fail("dlog_setlevel", 0, -1);
    let npu = stand_in.open(Threshold::ERROR).unwrap();
    assert_eq!(npu.log_level(), CannLogLevel::Refused { level: 3, code: -1 });
}

#[test]
fn what_somebody_else_initialised_is_theirs_to_finalize() {
    let stand_in = StandIn::new();
    stand_in.fail("aclInit", 0, 100_002);
    drop(stand_in.open(Threshold::TIMING).unwrap());
    let calls = stand_in.calls();
    assert_eq!(calls[..5], OPENING);
    assert_eq!(calls[5..], CLOSING[..2]);
}

#[test]
fn a_negative_device_is_refused_before_anything_is_called() {
    let stand_in = StandIn::new();
    let options = OnboardOptions { profile: a5(), device: -1, threshold: Threshold::TIMING };
    let error = OnboardNpu::open(stand_in.load(), options).unwrap_err();
    assert!(matches!(error, OnboardError::NoDevice(-1)), "{error}");
    assert_eq!(stand_in.calls(), [""; 0]);
}

#[test]
fn a_device_may_be_opened_again() {
    let stand_in = StandIn::new();
    let cann = stand_in.load();
    for _ in 0..2 {
        let options = OnboardOptions { profile: a5(), device: 3, threshold: Threshold::TIMING };
        drop(OnboardNpu::open(cann.clone(), options).unwrap());
        assert_eq!(stand_in.calls(), [&OPENING[..], &CLOSING].concat());
    }
}
