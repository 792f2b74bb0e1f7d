//! Nesting, invocations and attributes of spans made by guards.

#![cfg(feature = "host-strace")]

mod support;

use simpler_host_log::{self as log, Invocation, SpanContext, Threshold, span};
use support::{flushed_lines, in_own_process, log_to_folder, spans};

#[test]
fn spans_nest_by_depth_and_carry_their_invocation() {
    in_own_process("spans_nest_by_depth_and_carry_their_invocation", || {
        let dir = log_to_folder();
        {
            let _root = Invocation::begin("simpler_run", 0xabc);
            assert_eq!(log::context(), SpanContext { inv: 1, hid: 0xabc, depth: 1 });
            {
                let _bind = span!("simpler_run.bind");
                let _args = span!("simpler_run.bind.args", ntensor = 2 + 2, kind = "dense");
            }
            let _run = span!("simpler_run.runner_run");
        }
        let _second = Invocation::begin("simpler_run", 0xdef);
        drop(_second);
        let spans = spans(&flushed_lines(dir.path()));
        let seen: Vec<_> = spans
            .iter()
            .map(|span| (span.name.as_str(), span.inv, span.hid, span.depth, span.attrs.as_str()))
            .collect();
        assert_eq!(
            seen,
            [
                ("simpler_run.bind.args", 1, 0xabc, 2, "ntensor=4 kind=dense"),
                ("simpler_run.bind", 1, 0xabc, 1, ""),
                ("simpler_run.runner_run", 1, 0xabc, 1, ""),
                ("simpler_run", 1, 0xabc, 0, ""),
                ("simpler_run", 2, 0xdef, 0, ""),
            ]
        );
        let end = |span: &support::SpanLine| span.ts + span.dur;
        assert!(spans[0].ts >= spans[1].ts && end(&spans[0]) <= end(&spans[1]));
        assert!(spans[1].ts >= spans[3].ts && end(&spans[2]) <= end(&spans[3]));
        assert!(spans.iter().all(|span| span.dur >= 0 && span.pid == i64::from(log::pid())));
    });
}

#[test]
fn a_span_outside_any_invocation_has_none() {
    in_own_process("a_span_outside_any_invocation_has_none", || {
        let dir = log_to_folder();
        drop(span!("outside"));
        let spans = spans(&flushed_lines(dir.path()));
        assert_eq!((spans[0].inv, spans[0].hid, spans[0].depth), (0, 0, 0));
    });
}

#[test]
fn an_invocation_inside_another_leaves_it_as_it_was() {
    in_own_process("an_invocation_inside_another_leaves_it_as_it_was", || {
        let _dir = log_to_folder();
        let _outer = Invocation::begin("outer", 1);
        let _span = span!("outer.span");
        let before = log::context();
        {
            let _inner = Invocation::begin("inner", 2);
            assert_eq!(log::context(), SpanContext { inv: 2, hid: 2, depth: 1 });
        }
        assert_eq!(log::context(), before);
    });
}

#[test]
fn a_span_ends_on_every_path() {
    in_own_process("a_span_ends_on_every_path", || {
        let dir = log_to_folder();
        let fails = || -> Result<(), std::num::ParseIntError> {
            let _root = Invocation::begin("fails", 1);
            let _span = span!("fails.parse");
            "x".parse::<u8>()?;
            Ok(())
        };
        assert!(fails().is_err());
        let panics = std::panic::catch_unwind(|| {
            let _root = Invocation::begin("panics", 2);
            let _span = span!("panics.inside");
            panic!("on purpose");
        });
        assert!(panics.is_err());
        assert_eq!(log::context(), SpanContext::default());
        let names: Vec<String> = spans(&flushed_lines(dir.path())).into_iter().map(|s| s.name).collect();
        assert_eq!(names, ["fails.parse", "fails", "panics.inside", "panics"]);
    });
}

#[test]
fn threads_have_contexts_of_their_own_and_never_share_an_invocation() {
    in_own_process("threads_have_contexts_of_their_own_and_never_share_an_invocation", || {
        let dir = log_to_folder();
        let _root = Invocation::begin("main", 1);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    assert_eq!(log::context(), SpanContext::default());
                    for _ in 0..100 {
                        drop(Invocation::begin("thread", 2));
                    }
                });
            }
        });
        let spans = spans(&flushed_lines(dir.path()));
        let mut invs: Vec<u64> = spans.iter().map(|span| span.inv).collect();
        invs.sort_unstable();
        assert_eq!(invs, (2..=401).collect::<Vec<u64>>());
        let mut tids: Vec<i64> = spans.iter().map(|span| span.tid).collect();
        tids.sort_unstable();
        tids.dedup();
        assert_eq!(tids.len(), 4);
    });
}

#[test]
fn a_context_can_be_carried_to_another_thread() {
    in_own_process("a_context_can_be_carried_to_another_thread", || {
        let dir = log_to_folder();
        let root = Invocation::begin("run", 5);
        let carried = log::context();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let former = log::replace_context(carried);
                drop(span!("run.elsewhere"));
                assert_eq!(log::replace_context(former), carried);
            });
        });
        drop(root);
        let spans = spans(&flushed_lines(dir.path()));
        assert_eq!((spans[0].inv, spans[0].hid, spans[0].depth), (1, 5, 1));
        assert_ne!(spans[0].tid, spans[1].tid);
    });
}

#[test]
fn a_span_muted_at_its_start_stays_muted() {
    in_own_process("a_span_muted_at_its_start_stays_muted", || {
        let dir = log_to_folder();
        log::set_threshold(Threshold::ERROR);
        let root = Invocation::begin("muted", 1);
        let span = span!("muted.inside");
        log::set_threshold(Threshold::TIMING);
        drop(span!("muted.heard"));
        drop(span);
        drop(root);
        let spans = spans(&flushed_lines(dir.path()));
        assert_eq!(spans.len(), 1);
        // The numbers are drawn even while muted, and the place of the root is its own.
        assert_eq!((spans[0].name.as_str(), spans[0].inv, spans[0].depth), ("muted.heard", 1, 1));
        assert_eq!(log::context(), SpanContext::default());
    });
}

#[test]
fn attributes_too_long_are_cut_and_marked() {
    in_own_process("attributes_too_long_are_cut_and_marked", || {
        let dir = log_to_folder();
        drop(span!("long", first = "x".repeat(500), second = 1));
        drop(span!("exact", a = "y".repeat(190)));
        drop(span!("over", a = "y".repeat(190), b = 1));
        let spans = spans(&flushed_lines(dir.path()));
        assert_eq!(spans[0].attrs, format!("first={}~", "x".repeat(192 - 7)));
        assert_eq!(spans[1].attrs, format!("a={}", "y".repeat(190)));
        assert_eq!(spans[2].attrs, format!("a={}~", "y".repeat(189)));
    });
}

#[test]
fn other_modules_see_the_same_context() {
    in_own_process("other_modules_see_the_same_context", || {
        use std::sync::atomic::Ordering;

        use simpler_log_abi::SimplerSpanContextFn;

        let _dir = log_to_folder();
        let address = log::state().span_context.load(Ordering::Acquire);
        assert!(!address.is_null());
        // SAFETY: the state documents the pointer's type.
        let context: SimplerSpanContextFn = unsafe { std::mem::transmute(address) };
        let _root = Invocation::begin("run", 9);
        // SAFETY: any thread may call it.
        let address = unsafe { context() };
        // SAFETY: valid on this thread.
        let seen = unsafe { *address };
        assert_eq!((seen.inv, seen.hid, seen.depth, seen.reserved), (1, 9, 1, 0));
    });
}
