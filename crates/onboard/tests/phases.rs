//! The phase buffer over CANN: which copies a run makes, in which order, and what a refused one does.

#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use simpler_device_phase::{PhaseBufferLayout, emission_enabled, reduce};
use simpler_log_abi::{Level, Threshold};
use simpler_onboard::{AicpuFunction, OnboardError, OnboardNpu, PhaseBuffer, PhaseSizes};
use simpler_platform::Platform;
use support::StandIn;

const THREADS: usize = 6;
const TAIL: usize = 96;
const COPY_OUT: &str = "aclrtMemcpy D2H";

struct Setup {
    stand_in: StandIn,
    npu: OnboardNpu,
    run: AicpuFunction,
    buffer: PhaseBuffer,
    head: usize,
    image: Vec<u8>,
}

fn setup() -> Setup {
    let stand_in = StandIn::new();
    let npu = stand_in.open(Threshold::TIMING).unwrap();
    let run = npu.load_aicpu(b"image").unwrap().function("run").unwrap();
    assert_eq!(npu.profile().aicpu_launched, THREADS);
    let layout = PhaseBufferLayout::new(THREADS);
    let head = layout.bytes();
    let mut image = vec![0xee; head + TAIL];
    layout.write_reset_image(&mut image).unwrap();
    let sizes = PhaseSizes { head, tail: TAIL };
    let buffer = PhaseBuffer::new(&npu, sizes, image.clone().into_boxed_slice()).unwrap();
    stand_in.calls();
    Setup { stand_in, npu, run, buffer, head, image }
}

impl Setup {
    /// One run, as the runtime would make it.
    fn run(&mut self, is_gated_on: bool) -> Result<Option<(Vec<u8>, bool)>, OnboardError> {
        let measured = self.buffer.start(is_gated_on)?;
        let args = self.npu.kernel_args(measured.address());
        let synchronised = self.npu.start(&self.run, args)?.wait()?;
        let back = measured.read_back(synchronised)?;
        Ok(back.map(|back| (back.bytes.to_vec(), back.is_tail_used)))
    }

    /// The calls' first two words.
    fn calls(&self) -> Vec<String> {
        let head = |call: String| call.split(' ').take(2).collect::<Vec<_>>().join(" ");
        self.stand_in.calls().into_iter().map(head).collect()
    }
}

const LAUNCH: &str = "aclrtLaunchKernelWithHostArgs run";
const WAIT: &str = "aclrtSynchronizeStream stream";

#[test]
fn one_reset_before_the_launch_and_the_head_after_the_wait() {
    let mut setup = setup();
    let (back, is_tail_used) = setup.run(true).unwrap().unwrap();
    assert_eq!(
        setup.stand_in.calls(),
        [
            format!("aclrtMemcpy H2D {}", setup.head + TAIL),
            format!("{LAUNCH} x6 on stream: 16 bytes, threads 6 4"),
            WAIT.to_owned(),
            format!("{COPY_OUT} {}", setup.head),
        ]
    );
    assert!(!is_tail_used);
    // The device stored nothing: the image came back, and reduces to nothing.
    assert_eq!(back, setup.image);
    assert_eq!(reduce(&back, THREADS).spans(50_000_000).count(), 0);
}

#[test]
fn with_the_gate_off_neither_copy_is_made() {
    let mut setup = setup();
    assert!(setup.run(false).unwrap().is_none());
    assert_eq!(setup.calls(), [LAUNCH, WAIT]);
}

#[test]
fn the_gate_is_asked_once_a_run() {
    let mut setup = setup();
    for was_on in [true, false] {
        let mut threshold = if was_on { Threshold::TIMING } else { Threshold::WARN };
        let gate = emission_enabled(true, None, threshold.admits(Level::Timing));
        let measured = setup.buffer.start(gate).unwrap();
        // It would say the opposite now; the run began with what it said then.
        threshold = if was_on { Threshold::WARN } else { Threshold::TIMING };
        assert_ne!(emission_enabled(true, None, threshold.admits(Level::Timing)), gate);
        let args = setup.npu.kernel_args(measured.address());
        let synchronised = setup.npu.start(&setup.run, args).unwrap().wait().unwrap();
        assert_eq!(measured.read_back(synchronised).unwrap().is_some(), was_on);
        let copies = setup.calls().into_iter().filter(|call| call.starts_with("aclrtMemcpy")).count();
        assert_eq!(copies, if was_on { 2 } else { 0 });
    }
}

#[test]
fn the_tail_is_read_only_if_the_first_word_says_that_it_was_used() {
    let mut setup = setup();
    let head = format!("{COPY_OUT} {}", setup.head);
    // Any bit of the word counts.
    for used in [1, 1 << 63] {
        setup.stand_in.stamp(used, setup.head + TAIL);
        let (back, is_tail_used) = setup.run(true).unwrap().unwrap();
        assert_eq!(setup.stand_in.calls()[3..], [head.clone(), format!("{COPY_OUT} {TAIL}")]);
        assert_eq!((back.last(), is_tail_used), (Some(&7), true));
    }
    // Stamped as before, but not said to be used: nothing of the former run's tail is left.
    setup.stand_in.stamp(0, setup.head + TAIL);
    let (back, is_tail_used) = setup.run(true).unwrap().unwrap();
    assert_eq!(setup.stand_in.calls()[3..], [head]);
    assert_eq!((&back[setup.head..], is_tail_used), (&setup.image[setup.head..], false));
}

#[test]
fn a_buffer_without_a_tail_reads_none() {
    let setup = setup();
    let sizes = PhaseSizes { head: 16, tail: 0 };
    let mut buffer = PhaseBuffer::new(&setup.npu, sizes, vec![0; 16].into()).unwrap();
    setup.stand_in.stamp(1, 16);
    setup.stand_in.calls();
    let measured = buffer.start(true).unwrap();
    let synchronised =
        setup.npu.start(&setup.run, setup.npu.kernel_args(measured.address())).unwrap().wait().unwrap();
    assert_eq!(measured.read_back(synchronised).unwrap().map(|back| back.is_tail_used), Some(false));
    assert_eq!(setup.stand_in.calls()[3..], ["aclrtMemcpy D2H 16"]);
}

#[test]
fn each_copys_refusal_comes_out_with_its_code() {
    // The copies of a run in their order: the image, the head, the tail.
    for (copy, calls_after) in [(0, 0), (1, 2), (2, 2)] {
        let mut setup = setup();
        setup.stand_in.stamp(1, setup.head + TAIL);
        let code = 507_000 + copy;
        setup.stand_in.fail("aclrtMemcpy", copy, code);
        match setup.run(true).unwrap_err() {
            OnboardError::Call { function: "aclrtMemcpy", code: told } => assert_eq!(told, code),
            other => panic!("{other}"),
        }
        // A run whose reset failed is not launched.
        let others = setup.calls().into_iter().filter(|call| !call.starts_with("aclrtMemcpy")).count();
        assert_eq!(others, calls_after);
        // The buffer is as good as before.
        assert!(setup.run(true).unwrap().is_some());
    }
}

#[test]
fn sizes_and_image_belong_together() {
    let setup = setup();
    for (head, tail, image) in [(16, 16, 31), (16, 16, 33), (7, 9, 16), (usize::MAX, 17, 16)] {
        let sizes = PhaseSizes { head, tail };
        let error = PhaseBuffer::new(&setup.npu, sizes, vec![0; image].into()).err().unwrap();
        assert!(matches!(error, OnboardError::PhaseBuffer(_)), "{error}");
    }
    assert_eq!(setup.stand_in.calls(), [""; 0]);
}

#[test]
fn the_buffer_gives_its_memory_back() {
    let setup = setup();
    let before = setup.stand_in.live_allocations();
    drop(setup.buffer);
    assert_eq!(setup.stand_in.live_allocations(), before - 1);
}
