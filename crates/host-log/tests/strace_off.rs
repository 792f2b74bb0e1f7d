//! Host spans compiled out: nothing is evaluated and nothing is emitted, and text records stay.

#![cfg(not(feature = "host-strace"))]

mod support;

use simpler_host_log::{self as log, Invocation, SpanContext, SpanEvent, span};
use support::{flushed_lines, in_own_process, log_to_folder, the_anchor};

#[test]
fn spans_that_are_compiled_out_evaluate_and_emit_nothing() {
    in_own_process("spans_that_are_compiled_out_evaluate_and_emit_nothing", || {
        let dir = log_to_folder();
        assert!(!log::span_enabled());
        {
            let _root = Invocation::begin("root", 7);
            // The invocation is still known, and its root keeps its place, for who submits spans by other ways.
            assert_eq!(log::context(), SpanContext { inv: 1, hid: 7, depth: 1 });
            let never = || -> u32 { panic!("evaluated") };
            let _span = span!("root.nested", value = never());
            log::emit_span(&SpanEvent { name: "dev", inv: 1, hid: 7, depth: 1, ts: 0, dur: 1, attrs: "" });
        }
        log::log_warn!("text stays");
        let lines = flushed_lines(dir.path());
        the_anchor(&lines);
        assert_eq!(lines.len(), 2, "{lines:#?}");
    });
}
