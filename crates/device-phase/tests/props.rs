//! Reduction against a naive model, conversion against long division.

use proptest::prelude::*;
use simpler_device_phase::{
    EMIT_ORDER, PHASES, Phase, PhaseBufferLayout, TASK_SLOTS, TaskSlot, cycles_to_ns, reduce,
};

/// Records like those that occur: unset, half set, reversed, empty, complete, and anything at all.
fn record() -> impl Strategy<Value = (u64, u64)> {
    prop_oneof![
        3 => Just((u64::MAX, 0)),
        1 => (0..2_000_u64).prop_map(|start| (start, 0)),
        4 => (0..2_000_u64, 0..2_000_u64),
        1 => any::<(u64, u64)>(),
        1 => (any::<u64>()).prop_map(|end| (u64::MAX, end)),
    ]
}

fn buffer_of(records: &[(u64, u64)]) -> Vec<u8> {
    let mut bytes = vec![0_u8; 16];
    for (start, end) in records {
        bytes.extend(start.to_ne_bytes());
        bytes.extend(end.to_ne_bytes());
    }
    bytes
}

/// Floor of cycles · 10^9 / hz by schoolbook long division, one binary digit at a time.
fn long_division(cycles: u64, hz: u64) -> u128 {
    let dividend = u128::from(cycles) * 1_000_000_000;
    let (mut quotient, mut rest) = (0_u128, 0_u128);
    for bit in (0..128).rev() {
        rest = rest << 1 | dividend >> bit & 1;
        quotient <<= 1;
        if rest >= u128::from(hz) {
            rest -= u128::from(hz);
            quotient |= 1;
        }
    }
    quotient
}

proptest! {
    #[test]
    fn reduction_is_the_naive_one(
        threads in 0_usize..16,
        records in prop::collection::vec(record(), 16 * PHASES),
        slots in prop::collection::vec(record(), 16 * TASK_SLOTS),
        hz in prop_oneof![Just(50_000_000_u64), Just(1_000_000_000), Just(0), any::<u64>()],
    ) {
        let records = &records[..threads * PHASES];
        let buffer = buffer_of(records);
        prop_assert_eq!(buffer.len(), PhaseBufferLayout::new(threads).tail_offset());
        let slots = &slots[..threads * TASK_SLOTS];
        let tail = &buffer_of(slots)[16..];
        prop_assert_eq!(buffer.len() + tail.len(), PhaseBufferLayout::new(threads).bytes());
        let mut phases = reduce(&buffer, threads);
        phases.reduce_slots(tail, threads);

        fn column(rows: &[(u64, u64)], first: usize, width: usize) -> impl Iterator<Item = &(u64, u64)> {
            rows.iter().skip(first).step_by(width).filter(|(start, end)| *start != u64::MAX && end > start)
        }
        let valid = |phase: usize| column(records, phase, PHASES);
        let of_slot = |slot: usize| column(slots, slot, TASK_SLOTS);
        let origin = (1..PHASES).flat_map(valid).map(|record| record.0).min();
        let origin = origin.or_else(|| (0..TASK_SLOTS).flat_map(of_slot).map(|record| record.0).min());
        let origin = origin.or_else(|| valid(0).map(|record| record.0).min());
        prop_assert_eq!(phases.origin(), origin);
        let mut expected = Vec::new();
        for phase in EMIT_ORDER {
            let starts = valid(phase as usize).map(|record| record.0).min();
            let ends = valid(phase as usize).map(|record| record.1).max();
            prop_assert_eq!(phases.window(phase).map(|w| w.start), starts);
            prop_assert_eq!(phases.window(phase).map(|w| w.end), ends);
            if let (Some(start), Some(end)) = (starts, ends) {
                let dur = cycles_to_ns(end - start, hz);
                let ts = if phase == Phase::RunWall { 0 } else { cycles_to_ns(start - origin.unwrap(), hz) };
                if dur > 0 {
                    expected.push((phase, ts, dur));
                }
            }
        }
        let spans: Vec<_> = phases.spans(hz).map(|s| (s.phase, s.ts_ns, s.dur_ns)).collect();
        prop_assert_eq!(spans, expected);

        let mut expected = Vec::new();
        for slot in TaskSlot::all() {
            let dispatch = of_slot(slot.index()).map(|record| record.0).min();
            let finish = of_slot(slot.index()).map(|record| record.1).max();
            if let (Some(dispatch), Some(finish), Some(origin)) = (dispatch, finish, origin) {
                let dur = cycles_to_ns(finish - dispatch, hz);
                if dispatch >= origin && dur > 0 {
                    expected.push((slot, cycles_to_ns(dispatch - origin, hz), dur));
                }
            }
        }
        let spans: Vec<_> = phases.slot_spans(hz).map(|s| (s.slot, s.ts_ns, s.dur_ns)).collect();
        prop_assert_eq!(spans, expected);
    }

    #[test]
    fn conversion_is_long_division_cut_off(
        cycles in prop_oneof![any::<u64>(), 0..1_u64 << 53, Just((1 << 53) + 1)],
        hz in prop_oneof![Just(50_000_000_u64), Just(1_000_000_000), 1..u64::MAX],
    ) {
        let exact = long_division(cycles, hz);
        prop_assert_eq!(u128::from(cycles_to_ns(cycles, hz)), exact.min(u128::from(u64::MAX)));
    }

    #[test]
    fn records_beyond_a_short_buffer_count_as_unset(
        records in prop::collection::vec(record(), 3 * PHASES),
        bytes in 0_usize..16 + 3 * 160,
        threads in prop_oneof![Just(3_usize), Just(usize::MAX)],
    ) {
        let short = &buffer_of(&records)[..bytes];
        let mut unset = records.clone();
        unset[bytes.saturating_sub(16) / 16..].fill((u64::MAX, 0));
        prop_assert_eq!(reduce(short, threads), reduce(&buffer_of(&unset), 3));
    }
}

#[test]
fn no_frequency_is_no_time() {
    assert_eq!(cycles_to_ns(u64::MAX, 0), 0);
    assert_eq!(cycles_to_ns(u64::MAX, 1), u64::MAX);
    assert_eq!(cycles_to_ns(3, 50_000_000), 60);
}
