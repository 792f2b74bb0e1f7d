//! The layout that C sees, as a table that reads like the specification's.

use std::mem::{align_of, offset_of, size_of};

use simpler_log_abi::{
    DROP_REASONS, DropReason, LOG_DIRECTORY_BYTES, PRODUCERS_CLOSED, SimplerHostLogState, SimplerHostSpan,
    SimplerSpanContext, Threshold,
};

#[test]
fn the_shared_state_has_the_specified_offsets() {
    macro_rules! offsets {
        ($($field:ident @ $offset:literal),* $(,)?) => {
            $(assert_eq!(offset_of!(SimplerHostLogState, $field), $offset, stringify!($field));)*
        };
    }
    offsets! {
        threshold @ 0, clock_anchor_pid @ 4, log_directory_bound @ 8, log_directory @ 12,
        sink_owner_pid @ 1036, sink_process_pid @ 1040, sink_context @ 1048, sink_enqueue @ 1056,
        dropped_record_count @ 1064, pending_record_count @ 1072, sink_producer_state @ 1080,
        dropped_by_reason @ 1088, reported_drop_count @ 1120,
        next_invocation_id @ 1128, span_context @ 1136, anchor_stderr_pid @ 1144, anchor_mono_ns @ 1152,
        anchor_wall_ns @ 1160, anchor_thread @ 1168,
    }
    assert_eq!(size_of::<SimplerHostLogState>(), 1176);
    assert_eq!(align_of::<SimplerHostLogState>(), 8);
}

#[test]
fn the_span_and_its_context_have_the_specified_sizes() {
    assert_eq!((size_of::<SimplerHostSpan>(), align_of::<SimplerHostSpan>()), (56, 8));
    assert_eq!(offset_of!(SimplerHostSpan, name), 40);
    assert_eq!(offset_of!(SimplerHostSpan, attrs), 48);
    assert_eq!((size_of::<SimplerSpanContext>(), align_of::<SimplerSpanContext>()), (24, 8));
}

#[test]
fn drop_reasons_are_indices_in_the_order_of_the_report() {
    assert_eq!(DropReason::ALL.len(), DROP_REASONS);
    for (index, reason) in DropReason::ALL.into_iter().enumerate() {
        assert_eq!(reason as usize, index);
    }
    assert_eq!(
        DropReason::ALL.map(DropReason::name),
        ["queue_full", "claim_exhausted", "output_failed", "not_admitted"]
    );
}

#[test]
fn a_new_state_is_silent_about_everything_but_its_threshold() {
    let mut state = SimplerHostLogState::new(Threshold::TIMING);
    assert_eq!(*state.threshold.get_mut(), 25);
    assert_eq!(*state.clock_anchor_pid.get_mut(), 0);
    assert_eq!(*state.log_directory_bound.get_mut(), 0);
    assert!(state.log_directory.iter_mut().all(|byte| *byte.get_mut() == 0));
    assert_eq!((*state.sink_owner_pid.get_mut(), *state.sink_process_pid.get_mut()), (0, 0));
    assert!(state.sink_context.get_mut().is_null() && state.sink_enqueue.get_mut().is_null());
    assert_eq!(*state.sink_producer_state.get_mut(), 0);
    assert_eq!((*state.dropped_record_count.get_mut(), *state.reported_drop_count.get_mut()), (0, 0));
    assert!(state.dropped_by_reason.iter_mut().all(|count| *count.get_mut() == 0));
    assert_eq!(*state.next_invocation_id.get_mut(), 1);
    assert!(state.span_context.get_mut().is_null());
    assert_eq!(*state.anchor_stderr_pid.get_mut(), 0);
    assert_eq!(LOG_DIRECTORY_BYTES, 1024);
    assert_eq!(PRODUCERS_CLOSED, 0x8000_0000_0000_0000);
}
