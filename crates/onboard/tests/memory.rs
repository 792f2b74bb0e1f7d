//! The chip as a platform: its figures, its memory, and what it refuses.

#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use std::sync::Arc;

use simpler_log_abi::Threshold;
use simpler_onboard::{OnboardNpu, OnboardOptions, a2a3, a5};
use simpler_platform::{Aicpu, AicpuProgram, DeviceAddr, Platform, PlatformError};
use support::StandIn;

#[test]
fn the_profiles_have_the_figures_of_their_chips() {
    let figures = |profile: simpler_platform::Profile| {
        (profile.name, profile.arch, profile.aicpu_logical, profile.aicpu_launched, profile.counter_hz)
    };
    assert_eq!(figures(a2a3()), ("a2a3", "a2a3", 4, 6, 50_000_000));
    assert_eq!(figures(a5()), ("a5", "a5", 5, 14, 1_000_000_000));
    let stand_in = StandIn::new();
    let options = OnboardOptions { profile: a5(), device: 0, threshold: Threshold::TIMING };
    let npu = OnboardNpu::open(stand_in.load(), options).unwrap();
    assert_eq!(*npu.profile(), a5());
}

#[test]
fn what_is_copied_in_comes_out_again() {
    let stand_in = StandIn::new();
    let npu = stand_in.open(Threshold::TIMING).unwrap();
    stand_in.calls();
    let address = npu.allocate(3000).unwrap();
    // CANN aligns to 64 bytes; the platform promises 1024.
    assert_eq!(address.0 % 1024, 0);
    let sent: Vec<u8> = (0..3000).map(|n| n as u8).collect();
    npu.copy_to_device(address, &sent).unwrap();
    let mut back = vec![0; 1000];
    npu.copy_to_host(&mut back, DeviceAddr(address.0 + 2000)).unwrap();
    assert_eq!(back, sent[2000..]);
    npu.release(address).unwrap();
    assert_eq!(
        stand_in.calls(),
        ["aclrtMalloc 4024 0", "aclrtMemcpy H2D 3000", "aclrtMemcpy D2H 1000", "aclrtFree"]
    );
    assert_eq!(stand_in.live_allocations(), 0);
}

#[test]
fn a_copy_outside_of_an_allocation_never_reaches_cann() {
    let stand_in = StandIn::new();
    let npu = stand_in.open(Threshold::TIMING).unwrap();
    let DeviceAddr(address) = npu.allocate(100).unwrap();
    stand_in.calls();
    for (offset, bytes) in [(0, 101), (1, 100), (99, 2), (100, 1), (100, 0), (u64::MAX, 1)] {
        let outside = DeviceAddr(address.wrapping_add(offset));
        let error = npu.copy_to_device(outside, &vec![0; bytes]).unwrap_err();
        assert!(matches!(error, PlatformError::BadRange { .. }), "{offset} {bytes}: {error}");
        let error = npu.copy_to_host(&mut vec![0; bytes], outside).unwrap_err();
        assert!(matches!(error, PlatformError::BadRange { .. }), "{offset} {bytes}: {error}");
    }
    assert!(matches!(npu.release(DeviceAddr(address + 1)), Err(PlatformError::BadRange { .. })));
    // Nothing to copy is nothing to call for.
    npu.copy_to_device(DeviceAddr(address), &[]).unwrap();
    assert_eq!(stand_in.calls(), [""; 0]);
}

#[test]
fn refusals_carry_canns_code() {
    let stand_in = StandIn::new();
    let npu = stand_in.open(Threshold::TIMING).unwrap();
    assert_eq!(
        npu.allocate(0).unwrap_err().to_string(),
        "device memory: cannot allocate 0 bytes: the size is 0"
    );
    assert!(npu.allocate(usize::MAX).is_err());
    stand_in.fail("aclrtMalloc", 0, 207_018);
    let error = npu.allocate(64).unwrap_err();
    let sentence = "device memory: cannot allocate 64 bytes: aclrtMalloc failed with CANN's code 207018";
    assert_eq!(error.to_string(), sentence);
    let address = npu.allocate(64).unwrap();
    stand_in.fail("aclrtMemcpy", 1, 507_899);
    npu.copy_to_device(address, &[1; 8]).unwrap();
    let error = npu.copy_to_host(&mut [0; 8], address).unwrap_err().to_string();
    assert!(error.ends_with(": aclrtMemcpy failed with CANN's code 507899"), "{error}");
    stand_in.fail("aclrtFree", 0, 5);
    let error = npu.release(address).unwrap_err().to_string();
    assert!(error.ends_with(": aclrtFree failed with CANN's code 5"), "{error}");
}

#[test]
fn what_was_not_released_is_freed_before_the_device_is_closed() {
    let stand_in = StandIn::new();
    let npu = stand_in.open(Threshold::TIMING).unwrap();
    npu.allocate(10).unwrap();
    npu.allocate(20).unwrap();
    stand_in.calls();
    drop(npu);
    assert_eq!(
        stand_in.calls(),
        ["aclrtFree", "aclrtFree", "aclrtDestroyStream stream", "aclrtResetDevice 3", "aclFinalize"]
    );
    assert_eq!(stand_in.live_allocations(), 0);
}

#[test]
fn another_thread_enters_the_devices_context_once() {
    let stand_in = StandIn::new();
    let npu = stand_in.open(Threshold::TIMING).unwrap();
    let address = npu.allocate(8).unwrap();
    stand_in.calls();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            npu.copy_to_device(address, &[1; 8]).unwrap();
            npu.copy_to_device(address, &[2; 8]).unwrap();
        });
    });
    npu.copy_to_device(address, &[3; 8]).unwrap();
    let copy = "aclrtMemcpy H2D 8";
    assert_eq!(stand_in.calls(), ["aclrtSetCurrentContext context", copy, copy, copy]);
}

#[test]
fn a_thread_with_two_devices_enters_the_one_it_calls() {
    let (first, second) = (StandIn::new(), StandIn::new());
    let one = first.open(Threshold::TIMING).unwrap();
    let other = second.open(Threshold::TIMING).unwrap();
    first.calls();
    second.calls();
    one.allocate(1).unwrap();
    other.allocate(1).unwrap();
    let expected = ["aclrtSetCurrentContext context", "aclrtMalloc 1025 0"];
    assert_eq!(
        (first.calls(), second.calls()),
        (expected.map(str::to_owned).into(), expected.map(str::to_owned).into())
    );
}

#[test]
fn programs_and_kernels_of_the_host_are_refused_with_a_reason() {
    struct Program;
    impl AicpuProgram for Program {
        fn execute(&self, _: &dyn Aicpu) -> i32 {
            0
        }
    }
    let stand_in = StandIn::new();
    let npu = stand_in.open(Threshold::TIMING).unwrap();
    stand_in.calls();
    let error = npu.launch(Arc::new(Program)).err().unwrap().to_string();
    assert!(error.starts_with("launch: launching AICPU programs on silicon is not implemented: "), "{error}");
    let error = npu.load_kernel(b"image", "matmul").unwrap_err().to_string();
    assert!(
        error.starts_with("cannot load matmul: loading AICore kernels on silicon is not implemented"),
        "{error}"
    );
    assert_eq!(stand_in.calls(), [""; 0]);
}
