//! CANN's variable wins over our threshold, whatever its value. One test, since the environment is the process's.

#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use simpler_log_abi::Threshold;
use simpler_onboard::{CannLogLevel, LOG_LEVEL_ENV};
use support::StandIn;

#[test]
fn with_the_variable_present_cann_is_told_no_level() {
    assert_eq!(LOG_LEVEL_ENV, "ASCEND_GLOBAL_LOG_LEVEL");
    for value in ["3", "0", "", "nonsense"] {
        // SAFETY: this process has one test, so no other thread looks at the environment.
        unsafe { std::env::set_var(LOG_LEVEL_ENV, value) };
        let stand_in = StandIn::new();
        let npu = stand_in.open(Threshold::DEBUG).unwrap();
        assert_eq!(stand_in.calls()[0], "aclInit null", "{value:?}");
        assert_eq!(npu.log_level(), CannLogLevel::Environment);
    }
    // SAFETY: as above.
    unsafe { std::env::remove_var(LOG_LEVEL_ENV) };
    let stand_in = StandIn::new();
    stand_in.open(Threshold::DEBUG).unwrap();
    assert_eq!(stand_in.calls()[0], "dlog_setlevel -1 0 0");
}
