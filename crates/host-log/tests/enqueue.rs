//! The callback through which other modules of the process submit.

#![cfg(feature = "host-strace")]

mod support;

use std::ffi::{c_char, c_int};
use std::sync::atomic::{AtomicU64, Ordering};

use simpler_host_log as log;
use simpler_log_abi::{SimplerHostLogEnqueueFn, SimplerHostLogState};
use simpler_record_format::{RECORD_BYTES, SpanFields, frame::encode_span_frame};
use support::{DRAIN, StderrPipe, envelope, flushed_lines, in_own_process, log_to_folder, spans};

/// Submits as a module of another language would: enter, ask, call; the callee leaves.
fn submit(record: *const u8, size: u32) -> c_int {
    let state = log::state();
    let context = state.sink_context.load(Ordering::Acquire);
    let enqueue = state.sink_enqueue.load(Ordering::Acquire);
    assert!(!enqueue.is_null());
    // SAFETY: the state documents the pointer's type.
    let enqueue: SimplerHostLogEnqueueFn = unsafe { std::mem::transmute(enqueue) };
    assert_eq!(state.sink_producer_state.fetch_add(1, Ordering::AcqRel), 0);
    // SAFETY: entered above; the record is readable or null.
    let accepted = unsafe {
        enqueue(
            context,
            std::ptr::from_ref::<SimplerHostLogState>(state).cast_mut(),
            record.cast::<c_char>(),
            size,
            0,
        )
    };
    assert_eq!(state.sink_producer_state.load(Ordering::Acquire), 0, "the callee left, once");
    accepted
}

#[test]
fn a_line_of_another_module_comes_out_as_it_is() {
    in_own_process("a_line_of_another_module_comes_out_as_it_is", || {
        let dir = log_to_folder();
        let line = b"[mono_ns=5][T0x7][WARN] plugin: [a.c:3] from C\n";
        assert_ne!(submit(line.as_ptr(), line.len() as u32), 0);
        assert_eq!(flushed_lines(dir.path())[1].as_bytes(), line.strip_suffix(b"\n").unwrap());
    });
}

#[test]
fn a_frame_of_another_module_gets_the_ids_of_its_thread() {
    in_own_process("a_frame_of_another_module_gets_the_ids_of_its_thread", || {
        let dir = log_to_folder();
        let mut frame = [0; RECORD_BYTES];
        let span = SpanFields {
            pid: 0,
            tid: 0,
            inv: 3,
            hid: 4,
            depth: 0,
            name: b"plugin.work",
            ts: 10,
            dur: 20,
            attrs: b"",
        };
        let size = encode_span_frame(&mut frame, 30, 0x7, &span);
        assert_ne!(submit(frame.as_ptr(), size as u32), 0);
        let lines = flushed_lines(dir.path());
        assert_eq!(envelope(&lines[1]).0.mono_ns, 30);
        let span = &spans(&lines)[0];
        assert_eq!((span.pid, span.tid), (i64::from(log::pid()), i64::from(log::tid())));
        assert_eq!((span.name.as_str(), span.inv, span.ts), ("plugin.work", 3, 10));
    });
}

#[test]
fn what_is_no_record_is_refused_and_counted() {
    in_own_process("what_is_no_record_is_refused_and_counted", || {
        let dir = log_to_folder();
        let bytes = [b'x'; RECORD_BYTES + 1];
        assert_eq!(submit(std::ptr::null(), 5), 0);
        assert_eq!(submit(bytes.as_ptr(), 0), 0);
        assert_eq!(submit(bytes.as_ptr(), RECORD_BYTES as u32 + 1), 0);
        assert_eq!(log::counts().by_reason, [0, 0, 0, 3]);
        // A frame of a kind that nobody knows is accepted, and lost when it cannot be rendered.
        assert_ne!(submit([7, 7, 7].as_ptr(), 3), 0);
        log::flush(DRAIN).unwrap();
        let counts = log::counts();
        assert_eq!((counts.dropped, counts.by_reason), (4, [0, 0, 1, 3]));
        assert_eq!(flushed_lines(dir.path()).len(), 1);
        assert_eq!(log::state().pending_record_count.load(Ordering::Relaxed), 0);
    });
}

/// Submits `records` times, to be refused each time, while another thread looks whether whoever has left the
/// gate is counted. Gives how often that was not so.
fn uncounted_leavers(record: *const u8, size: u32, records: u64) -> u64 {
    let state = log::state();
    let lost = || state.dropped_record_count.load(Ordering::Relaxed);
    let lost_before = lost();
    let submitted = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut uncounted = 0;
            loop {
                let begun = submitted.load(Ordering::Acquire);
                if state.sink_producer_state.load(Ordering::Acquire) == 0 {
                    // Whoever began had entered, and nobody is inside: those have left.
                    uncounted += u64::from(lost() - lost_before < begun);
                }
                if begun == records {
                    return uncounted;
                }
            }
        });
        let context = state.sink_context.load(Ordering::Acquire);
        // SAFETY: the state documents the pointer's type.
        let enqueue: SimplerHostLogEnqueueFn =
            unsafe { std::mem::transmute(state.sink_enqueue.load(Ordering::Acquire)) };
        for _ in 0..records {
            state.sink_producer_state.fetch_add(1, Ordering::AcqRel);
            submitted.fetch_add(1, Ordering::Release);
            let state = std::ptr::from_ref::<SimplerHostLogState>(state).cast_mut();
            // SAFETY: entered above; the record is readable or null.
            unsafe { enqueue(context, state, record.cast(), size, 0) };
        }
        watcher.join().expect("the watcher")
    })
}

#[test]
fn a_refused_record_is_counted_before_its_producer_leaves() {
    const RECORDS: u64 = 1_000_000;
    in_own_process("a_refused_record_is_counted_before_its_producer_leaves", || {
        let pipe = StderrPipe::install(Some(4096));
        pipe.fill();
        log::init(&log::Config::default()).unwrap();
        let invalid = uncounted_leavers(std::ptr::null(), 5, RECORDS);
        let after_invalid = log::counts();
        // The writer is stuck in the pipe, so that the queue fills up.
        let line = b"[mono_ns=5][T0x7][WARN] plugin: [a.c:3] from C\n";
        while log::counts().by_reason[0] == 0 {
            submit(line.as_ptr(), line.len() as u32);
        }
        let full = uncounted_leavers(line.as_ptr(), line.len() as u32, RECORDS);
        // The pipe moves again: the exit would wait for it, and so would the message of a failure.
        pipe.restore();
        let reader = std::thread::spawn(move || pipe.read_to_end());
        log::flush(DRAIN).unwrap();
        drop(reader);
        assert_eq!(after_invalid.by_reason, [0, 0, 0, RECORDS]);
        assert!(log::counts().by_reason[0] > RECORDS);
        assert_eq!((invalid, full), (0, 0), "left the gate before the loss was counted");
    });
}
