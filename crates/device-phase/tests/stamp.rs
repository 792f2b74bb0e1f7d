//! Stamping on the device side, and what the host makes of it.

use std::cell::Cell;

use simpler_device_phase::{
    DevicePhaseSpan, EMIT_ORDER, Phase, PhaseBufferLayout, PhaseStamper, Phases, Window, reduce,
};

const THREADS: usize = 6;
const HZ: u64 = 50_000_000;

/// Stands for device memory.
struct Device {
    words: Vec<u64>,
}

impl Device {
    fn reset(threads: usize) -> Self {
        let layout = PhaseBufferLayout::new(threads);
        let mut image = vec![0_u8; layout.bytes()];
        layout.write_reset_image(&mut image).expect("the image is as long as the layout");
        let words =
            image.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().expect("8 bytes"))).collect();
        Self { words }
    }

    fn stamper(&mut self, thread_index: usize) -> PhaseStamper {
        let base = self.words.as_mut_ptr().cast();
        // SAFETY: the words are the layout of THREADS threads, aligned, and outlive the stampers of each test.
        unsafe { PhaseStamper::new(base, THREADS, thread_index) }
    }

    fn bytes(&self) -> Vec<u8> {
        self.words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }
}

#[test]
fn a_reset_buffer_reduces_to_nothing() {
    let phases = reduce(&Device::reset(THREADS).bytes(), THREADS);
    assert_eq!(phases, Phases::default());
    assert_eq!(phases.origin(), None);
    assert_eq!(phases.spans(HZ).count(), 0);
}

#[test]
fn a_stamp_changes_only_its_own_record() {
    for thread in 0..THREADS {
        for phase in EMIT_ORDER {
            let mut device = Device::reset(THREADS);
            let before = device.words.clone();
            device.stamper(thread).stamp(phase, 11, 22);
            let changed: Vec<_> = (0..before.len()).filter(|&i| before[i] != device.words[i]).collect();
            let first = 2 + 2 * (thread * 10 + phase as usize);
            assert_eq!(changed, [first, first + 1]);
            assert_eq!(device.words[first..first + 2], [11, 22]);
        }
    }
}

#[test]
fn no_buffer_and_foreign_threads_stamp_nothing() {
    // SAFETY: null means no buffer.
    let nowhere = unsafe { PhaseStamper::new(std::ptr::null_mut(), THREADS, 0) };
    nowhere.stamp(Phase::Preamble, 1, 2);
    let mut device = Device::reset(THREADS);
    let before = device.words.clone();
    device.stamper(THREADS).stamp(Phase::SmReset, 1, 2);
    device.stamper(usize::MAX).stamp(Phase::RunWall, 1, 2);
    assert_eq!(device.words, before);
}

#[test]
fn a_scope_stamps_when_it_ends_on_every_path() {
    fn returns_early(stamper: PhaseStamper, clock: &Cell<u64>) -> Option<()> {
        let _scope = stamper.scope(Phase::ConfigValidate, || clock.get());
        clock.set(140);
        None
    }
    let mut device = Device::reset(THREADS);
    let stamper = device.stamper(2);
    let clock = Cell::new(100);
    assert_eq!(returns_early(stamper, &clock), None);
    clock.set(999);
    let phases = reduce(&device.bytes(), THREADS);
    assert_eq!(phases.window(Phase::ConfigValidate), Some(Window { start: 100, end: 140 }));
}

#[test]
fn windows_span_all_threads_and_times_start_at_the_origin() {
    let mut device = Device::reset(THREADS);
    device.stamper(0).stamp(Phase::RunWall, 900, 5_000);
    device.stamper(0).stamp(Phase::Preamble, 1_000, 1_010);
    device.stamper(1).stamp(Phase::Preamble, 1_005, 1_050);
    device.stamper(1).stamp(Phase::SchedWindow, 2_000, 2_500);
    device.stamper(2).stamp(Phase::SchedWindow, 1_900, 2_400);
    device.stamper(0).stamp(Phase::OrchWindow, 1_950, 2_100);
    let phases = reduce(&device.bytes(), THREADS);
    assert_eq!(phases.origin(), Some(1_000));
    let span = |phase, ts_ns, dur_ns| DevicePhaseSpan { phase, ts_ns, dur_ns };
    assert_eq!(
        phases.spans(HZ).collect::<Vec<_>>(),
        [
            span(Phase::RunWall, 0, 82_000),
            span(Phase::Preamble, 0, 1_000),
            span(Phase::OrchWindow, 19_000, 3_000),
            span(Phase::SchedWindow, 18_000, 12_000),
        ]
    );
}

#[test]
fn incomplete_and_zero_length_records_are_not_spans() {
    let mut device = Device::reset(THREADS);
    device.stamper(0).stamp(Phase::GraphBuild, 500, 500);
    device.stamper(1).stamp(Phase::PostOrch, 600, 400);
    device.stamper(2).stamp(Phase::SoLoad, u64::MAX, 700);
    assert_eq!(reduce(&device.bytes(), THREADS), Phases::default());
    // Complete, but less than a nanosecond at this frequency.
    device.stamper(3).stamp(Phase::ArenaWire, 100, 101);
    assert_eq!(reduce(&device.bytes(), THREADS).spans(2_000_000_000).count(), 0);
}

#[test]
fn the_wall_alone_is_its_own_origin() {
    let mut device = Device::reset(THREADS);
    device.stamper(0).stamp(Phase::RunWall, 900, 1_000);
    let phases = reduce(&device.bytes(), THREADS);
    assert_eq!(phases.origin(), Some(900));
    let spans: Vec<_> = phases.spans(HZ).map(|span| (span.ts_ns, span.dur_ns)).collect();
    assert_eq!(spans, [(0, 2_000)]);
}
