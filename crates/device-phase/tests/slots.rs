//! Task slots: the tag on a task, the stores of a scheduler, and the windows that the host makes of them.

use std::mem::size_of;

use simpler_device_phase::{
    Phase, PhaseBufferLayout, PhaseStamper, Phases, START_UNSET, TASK_SLOTS, TaskAttrs, TaskSlot,
    TaskSlotSpan, Window, reduce, tail_used,
};

const THREADS: usize = 4;
const HZ: u64 = 1_000_000_000;

fn slot(id: i32) -> TaskSlot {
    TaskSlot::new(id).expect("a slot's number")
}

/// Stands for device memory, reset.
struct Device {
    words: Vec<u64>,
}

impl Device {
    fn new() -> Self {
        let layout = PhaseBufferLayout::new(THREADS);
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

    fn read_back(&self) -> Phases {
        let bytes: Vec<u8> = self.words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let (front, tail) = bytes.split_at(PhaseBufferLayout::new(THREADS).tail_offset());
        let mut phases = reduce(front, THREADS);
        phases.reduce_slots(tail, THREADS);
        phases
    }

    fn tail_used(&self) -> bool {
        tail_used(&self.words[0].to_ne_bytes())
    }
}

#[test]
fn a_slot_is_a_number_from_0_to_15() {
    for id in 0..TASK_SLOTS as i32 {
        assert_eq!(slot(id).index(), id as usize);
    }
    for id in [-1, 16, 100, i32::MIN, i32::MAX] {
        let refusal = TaskSlot::new(id).expect_err("no slot");
        assert_eq!(refusal.to_string(), format!("task-timing slot {id} is not one of 0 to 15"));
    }
    assert_eq!(TaskSlot::all().count(), TASK_SLOTS);
}

#[test]
fn attributes_are_one_byte_and_a_slot_leaves_the_other_bits_alone() {
    assert_eq!(size_of::<TaskAttrs>(), 1);
    assert_eq!(TaskAttrs::default().slot(), None);
    for others in 0..8 {
        let attrs = TaskAttrs::from_bits(others);
        for tag in [None, Some(slot(0)), Some(slot(15))] {
            let tagged = attrs.with_slot(tag);
            assert_eq!((tagged.slot(), tagged.bits() & 7), (tag, others));
            assert_eq!(TaskAttrs::from_bits(tagged.bits()), tagged);
            assert_eq!(tagged.with_slot(None), attrs);
        }
    }
    // Bit 3 is_timed, bits 4 to 7 the slot.
    assert_eq!(TaskAttrs::default().with_slot(Some(slot(11))).bits(), 0b1011_1000);
    // Without bit 3 the slot's bits are nothing.
    assert_eq!(TaskAttrs::from_bits(0b1111_0001), TaskAttrs::from_bits(1));
}

#[test]
fn a_slot_reaches_from_the_earliest_dispatch_to_the_latest_finish_over_threads_and_uses() {
    let mut device = Device::new();
    let stamp = |device: &mut Device, thread, dispatch, finish| {
        device.stamper(thread).task_dispatched(slot(3), dispatch);
        device.stamper(thread).task_finished(slot(3), finish);
    };
    device.stamper(3).stamp(Phase::Preamble, 1_000, 1_010);
    stamp(&mut device, 0, 1_200, 1_300);
    stamp(&mut device, 0, 1_100, 1_250);
    stamp(&mut device, 0, 1_400, 1_500);
    stamp(&mut device, 1, 1_150, 1_900);
    let phases = device.read_back();
    assert_eq!(phases.slot(slot(3)), Some(Window { start: 1_100, end: 1_900 }));
    assert_eq!(
        phases.slot_spans(HZ).collect::<Vec<_>>(),
        [TaskSlotSpan { slot: slot(3), ts_ns: 100, dur_ns: 800 }]
    );
    assert_eq!(
        phases.slot_spans(HZ / 20).next().map(|span| (span.ts_ns, span.dur_ns)),
        Some((2_000, 16_000))
    );
}

#[test]
fn incomplete_slots_are_skipped_but_make_the_tail_worth_reading() {
    let mut device = Device::new();
    device.stamper(0).publish_tail_use();
    assert!(!device.tail_used());
    device.stamper(2).task_dispatched(slot(15), 700);
    device.stamper(0).publish_tail_use();
    assert!(device.tail_used());
    device.stamper(1).task_finished(slot(14), 800);
    device.stamper(1).task_dispatched(slot(2), 900);
    device.stamper(1).task_finished(slot(2), 900);
    let phases = device.read_back();
    assert_eq!(TaskSlot::all().filter_map(|slot| phases.slot(slot)).count(), 0);
    assert_eq!(phases.origin(), None);
}

#[test]
fn without_phases_times_start_at_the_earliest_dispatch() {
    let mut device = Device::new();
    device.stamper(0).stamp(Phase::RunWall, 100, 9_000);
    for (id, dispatch, finish) in [(0, 700, 900), (5, 500, 600)] {
        device.stamper(0).task_dispatched(slot(id), dispatch);
        device.stamper(0).task_finished(slot(id), finish);
    }
    let phases = device.read_back();
    assert_eq!(phases.origin(), Some(500));
    let spans: Vec<_> =
        phases.slot_spans(HZ).map(|span| (span.slot.index(), span.ts_ns, span.dur_ns)).collect();
    assert_eq!(spans, [(0, 200, 200), (5, 0, 100)]);
}

#[test]
fn a_dispatch_before_the_origin_is_not_placed() {
    let mut device = Device::new();
    device.stamper(0).stamp(Phase::OrchWindow, 1_000, 2_000);
    device.stamper(0).task_dispatched(slot(1), 999);
    device.stamper(0).task_finished(slot(1), 1_500);
    assert_eq!(device.read_back().slot_spans(HZ).count(), 0);
}

#[test]
fn threads_that_were_not_launched_and_no_buffer_leave_no_trace() {
    let mut device = Device::new();
    let before = device.words.clone();
    device.stamper(THREADS).task_dispatched(slot(0), 5);
    device.stamper(usize::MAX).task_finished(slot(0), 5);
    assert_eq!(device.words, before);
    // SAFETY: null means no buffer.
    let nowhere = unsafe { PhaseStamper::new(std::ptr::null_mut(), THREADS, 0) };
    nowhere.task_dispatched(slot(0), 5);
    nowhere.publish_tail_use();
}

#[test]
fn the_reset_forgets_the_slots_of_the_run_before() {
    let mut device = Device::new();
    device.stamper(0).task_dispatched(slot(0), 5);
    device.stamper(0).task_finished(slot(0), 6);
    device.stamper(0).publish_tail_use();
    let layout = PhaseBufferLayout::new(THREADS);
    let mut image = vec![0_u8; layout.bytes()];
    layout.write_reset_image(&mut image).expect("the image is as long as the layout");
    let reset: Vec<u64> =
        image.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().expect("8 bytes"))).collect();
    assert_ne!(device.words, reset);
    device.words = reset;
    assert!(!device.tail_used());
    assert_eq!(device.read_back(), Phases::default());
    assert_eq!(device.words.iter().filter(|word| **word == START_UNSET).count(), THREADS * (10 + TASK_SLOTS));
}
