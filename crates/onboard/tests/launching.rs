//! Binaries of the AICPU: the init kernel, which latches the level once, and runs.

#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use std::sync::atomic::Ordering;

use simpler_log_abi::{SimplerHostLogState, Threshold};
use simpler_onboard::{OnboardError, OnboardNpu, OnboardOptions, a5};
use simpler_platform::DeviceAddr;
use support::StandIn;

const LOADED: &str = "aclrtBinaryLoadFromData image 1 option 3=2";
const INIT: &str = "aclrtLaunchKernelWithHostArgs simpler_aicpu_init x1 on stream: 8 bytes, level";

#[test]
fn the_device_keeps_its_level_while_the_hosts_changes() {
    let state = SimplerHostLogState::new(Threshold::WARN);
    let threshold = || Threshold::from_ladder(state.threshold.load(Ordering::Relaxed)).unwrap();
    let stand_in = StandIn::new();
    let npu = stand_in.open(threshold()).unwrap();
    assert_eq!(stand_in.calls()[0], "dlog_setlevel -1 2 0");
    // The host's threshold changes even before the init kernel runs: CANN was told WARN, and so is the device.
    state.threshold.store(Threshold::DEBUG.get(), Ordering::Relaxed);
    let binary = npu.load_aicpu(b"image").unwrap();
    npu.init_aicpu(&binary).unwrap();
    let register = "aclrtRegisterCpuFunc binary simpler_aicpu_init simpler_aicpu_init";
    let init = format!("{INIT} 30 device 3");
    assert_eq!(stand_in.calls(), [LOADED, register, &init, "aclrtSynchronizeStream stream"]);

    // It goes on changing; a run tells the device nothing about it, and there is no second init.
    let run = binary.function("run").unwrap();
    stand_in.calls();
    for live in Threshold::ALL {
        state.threshold.store(live.get(), Ordering::Relaxed);
        npu.start(&run, npu.kernel_args(DeviceAddr(0))).unwrap().wait().unwrap();
        let launch = "aclrtLaunchKernelWithHostArgs run x6 on stream: 16 bytes, threads 6 4";
        assert_eq!(stand_in.calls(), [launch, "aclrtSynchronizeStream stream"]);
        assert!(matches!(npu.init_aicpu(&binary), Err(OnboardError::AlreadyInitialised)));
        assert_eq!((stand_in.calls(), npu.latched_threshold()), (vec![], Threshold::WARN));
    }

    // Another life, another level.
    drop((run, binary, npu));
    stand_in.calls();
    state.threshold.store(Threshold::INFO.get(), Ordering::Relaxed);
    let npu = stand_in.open(threshold()).unwrap();
    let binary = npu.load_aicpu(b"image").unwrap();
    npu.init_aicpu(&binary).unwrap();
    let calls = stand_in.calls();
    assert_eq!(calls[0], "dlog_setlevel -1 1 0");
    assert!(calls.contains(&format!("{INIT} 20 device 3")), "{calls:?}");
}

#[test]
fn timing_and_warn_reach_the_device_as_different_levels() {
    for (threshold, level) in [(Threshold::TIMING, 25), (Threshold::WARN, 30)] {
        let stand_in = StandIn::new();
        let npu = stand_in.open(threshold).unwrap();
        npu.init_aicpu(&npu.load_aicpu(b"image").unwrap()).unwrap();
        let calls = stand_in.calls();
        assert_eq!(calls[0], "dlog_setlevel -1 2 0");
        assert!(calls.contains(&format!("{INIT} {level} device 3")), "{calls:?}");
    }
}

#[test]
fn a_failed_init_may_be_tried_again() {
    for function in ["aclrtRegisterCpuFunc", "aclrtLaunchKernelWithHostArgs", "aclrtSynchronizeStream"] {
        let stand_in = StandIn::new();
        let npu = stand_in.open(Threshold::TIMING).unwrap();
        let binary = npu.load_aicpu(b"image").unwrap();
        stand_in.fail(function, 0, 7);
        let error = npu.init_aicpu(&binary).unwrap_err();
        assert_eq!(error.to_string(), format!("{function} failed with CANN's code 7"));
        npu.init_aicpu(&binary).unwrap();
    }
}

#[test]
fn a_run_has_a_block_for_every_launched_thread() {
    let stand_in = StandIn::new();
    let options = OnboardOptions { profile: a5(), device: 0, threshold: Threshold::TIMING };
    let npu = OnboardNpu::open(stand_in.load(), options).unwrap();
    let run = npu.load_aicpu(b"image").unwrap().function("run").unwrap();
    let args = npu.kernel_args(DeviceAddr(64));
    assert_eq!((args.device_wall_data_base, args.aicpu_launched, args.aicpu_logical), (64, 14, 5));
    npu.start(&run, args).unwrap().wait().unwrap();
    let calls = stand_in.calls();
    let launch = "aclrtLaunchKernelWithHostArgs run x14 on stream: 16 bytes, threads 14 5";
    assert!(calls.iter().any(|call| call == launch), "{calls:?}");
}

#[test]
fn a_run_that_nobody_waits_for_is_waited_for() {
    let stand_in = StandIn::new();
    let npu = stand_in.open(Threshold::TIMING).unwrap();
    let run = npu.load_aicpu(b"image").unwrap().function("run").unwrap();
    stand_in.calls();
    drop(npu.start(&run, npu.kernel_args(DeviceAddr(0))).unwrap());
    assert_eq!(stand_in.calls()[1..], ["aclrtSynchronizeStream stream"]);
    // A wait that failed is not repeated.
    stand_in.fail("aclrtSynchronizeStream", 0, 507_018);
    let error = npu.start(&run, npu.kernel_args(DeviceAddr(0))).unwrap().wait().unwrap_err();
    assert_eq!(error.to_string(), "aclrtSynchronizeStream failed with CANN's code 507018");
    assert_eq!(stand_in.calls()[1..], ["aclrtSynchronizeStream stream"]);
}

#[test]
fn the_device_closes_after_the_last_of_what_was_made_of_it() {
    let stand_in = StandIn::new();
    let npu = stand_in.open(Threshold::TIMING).unwrap();
    let binary = npu.load_aicpu(b"image").unwrap();
    let run = binary.function("run").unwrap();
    stand_in.calls();
    drop(npu);
    drop(binary);
    assert_eq!(stand_in.calls(), [""; 0]);
    drop(run);
    let closing = ["aclrtDestroyStream stream", "aclrtResetDevice 3", "aclFinalize"];
    assert_eq!(stand_in.calls(), [&["aclrtBinaryUnLoad binary"][..], &closing].concat());
}

#[test]
fn a_name_with_a_zero_byte_is_refused() {
    let stand_in = StandIn::new();
    let npu = stand_in.open(Threshold::TIMING).unwrap();
    let error = npu.load_aicpu(b"image").unwrap().function("a\0b").err().unwrap();
    assert!(matches!(error, OnboardError::Name(_)), "{error}");
}
