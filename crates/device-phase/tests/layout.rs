//! The buffer's layout is shared by host and device: its numbers are pinned.

use simpler_device_phase::{
    EMIT_ORDER, HEADER_BYTES, PHASES, Phase, PhaseBufferLayout, RECORD_BYTES, START_UNSET, ShortBuffer,
    TASK_SLOTS, TaskSlot,
};

#[test]
fn phases_keep_their_numbers_and_names() {
    let expected = [
        (Phase::RunWall, 0, "device_wall"),
        (Phase::Preamble, 1, "preamble"),
        (Phase::SoLoad, 2, "so_load"),
        (Phase::GraphBuild, 3, "graph_build"),
        (Phase::PostOrch, 4, "post_orch"),
        (Phase::OrchWindow, 5, "orch"),
        (Phase::SchedWindow, 6, "sched"),
        (Phase::ConfigValidate, 7, "config_validate"),
        (Phase::ArenaWire, 8, "arena_wire"),
        (Phase::SmReset, 9, "sm_reset"),
    ];
    assert_eq!(expected.len(), PHASES);
    for (phase, number, leaf) in expected {
        assert_eq!((phase as usize, phase.leaf()), (number, leaf));
    }
}

#[test]
fn emission_order_differs_from_enum_order() {
    let leaves: Vec<_> = EMIT_ORDER.iter().map(|phase| phase.leaf()).collect();
    assert_eq!(
        leaves,
        [
            "device_wall",
            "preamble",
            "so_load",
            "graph_build",
            "config_validate",
            "arena_wire",
            "sm_reset",
            "post_orch",
            "orch",
            "sched"
        ]
    );
}

#[test]
fn regions_follow_the_header_thread_major() {
    assert_eq!((HEADER_BYTES, RECORD_BYTES), (16, 16));
    for (threads, tail) in [(0, 16), (1, 176), (6, 16 + 960), (14, 16 + 2240), (24, 16 + 3840)] {
        let layout = PhaseBufferLayout::new(threads);
        assert_eq!((layout.threads(), layout.tail_offset()), (threads, tail));
        assert_eq!(layout.bytes(), tail + threads * 256);
        for (index, slot) in
            (0..threads).flat_map(|thread| TaskSlot::all().map(move |slot| (thread, slot))).enumerate()
        {
            assert_eq!(layout.slot_offset(slot.0, slot.1), Some(tail + 16 * index));
        }
        assert_eq!(layout.slot_offset(threads, TaskSlot::new(0).unwrap()), None);
        for thread in 0..threads {
            for phase in EMIT_ORDER {
                let index = thread * 10 + phase as usize;
                assert_eq!(layout.record_offset(thread, phase), Some(16 + 16 * index));
            }
        }
        assert_eq!(layout.record_offset(threads, Phase::RunWall), None);
        assert_eq!(layout.record_offset(usize::MAX, Phase::SmReset), None);
    }
    assert_eq!(PhaseBufferLayout::new(usize::MAX).bytes(), usize::MAX);
}

#[test]
fn each_architecture_has_the_size_that_the_specification_says() {
    // RUNTIME 4.2: a2a3 launches 6 threads, a5 14.
    assert_eq!(PhaseBufferLayout::new(6).bytes(), 16 + 960 + 1536);
    assert_eq!(PhaseBufferLayout::new(14).bytes(), 5840);
}

#[test]
fn the_reset_image_clears_the_header_and_unsets_every_record() {
    for threads in [1, 6, 14] {
        let layout = PhaseBufferLayout::new(threads);
        let mut image = vec![0xA5_u8; layout.bytes() + 8];
        layout.write_reset_image(&mut image).unwrap();
        let words: Vec<u64> =
            image.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap())).collect();
        assert_eq!(words[..2], [0, 0]);
        let records = &words[2..2 + threads * (PHASES + TASK_SLOTS) * 2];
        assert!(records.chunks(2).all(|record| record == [START_UNSET, 0]));
        assert_eq!(words.last(), Some(&0xA5A5_A5A5_A5A5_A5A5), "wrote past the layout");
    }
}

#[test]
fn a_short_image_is_refused_untouched() {
    let layout = PhaseBufferLayout::new(6);
    let mut image = vec![7_u8; layout.bytes() - 1];
    assert_eq!(layout.write_reset_image(&mut image), Err(ShortBuffer { needed: 2512 }));
    assert!(image.iter().all(|&byte| byte == 7));
    assert_eq!(ShortBuffer { needed: 2512 }.to_string(), "the phase buffer needs 2512 bytes");
}
