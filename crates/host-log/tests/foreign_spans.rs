//! Spans that are not the runtime's own: where they stand, that the runtime does not nest in them, and that they are seen
//! while they are open.

#![cfg(feature = "host-strace")]
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod support;

use std::convert::Infallible;
use std::time::Duration;

use simpler_host_log::open_spans::{Whose, open_spans};
use simpler_host_log::{self as log, ForeignPlace, ForeignSpan, Invocation, Threshold, span};
use support::{flushed_lines, in_own_process, log_to_folder, spans};

fn open(name: &str, parent: Option<&ForeignSpan>) -> ForeignSpan {
    let parent: Option<ForeignPlace> = parent.map(ForeignSpan::place);
    ForeignSpan::open::<Infallible>(name, parent, |_| Ok(())).unwrap().unwrap()
}

/// What is seen of this thread, from the outermost span on.
fn seen() -> Vec<(String, i32)> {
    let found = open_spans(Whose::Process(log::pid())).unwrap();
    let threads = &found.processes.first().unwrap().threads;
    let this = threads.iter().find(|thread| thread.tid == log::tid());
    this.map_or_else(Vec::new, |thread| {
        thread.spans.iter().map(|span| (span.name.clone(), span.depth)).collect()
    })
}

fn told(dir: &tempfile::TempDir) -> Vec<(String, u64, u64, i64)> {
    let spans = spans(&flushed_lines(dir.path()));
    spans.into_iter().map(|span| (span.name, span.inv, span.hid, span.depth)).collect()
}

#[test]
fn they_nest_in_a_run_and_the_run_does_not_nest_in_them() {
    in_own_process("they_nest_in_a_run_and_the_run_does_not_nest_in_them", || {
        let dir = log_to_folder();
        let around = open("ext.p.around", None);
        let inv;
        {
            let _run = Invocation::begin("simpler_run", 0x5eed);
            inv = log::context().inv;
            // What is around is no part of the run.
            let outer = open("ext.p.outer", Some(&around));
            assert_eq!(log::context().depth, 1);
            let inner = open("ext.p.inner", Some(&outer));
            let bind = span!("simpler_run.bind");
            let in_bind = open("ext.p.in_bind", Some(&inner));
            in_bind.close("ext.p.in_bind");
            drop(bind);
            inner.close("ext.p.inner");
            outer.close("ext.p.outer");
        }
        around.close("ext.p.around");
        let expected = [
            ("ext.p.in_bind", inv, 0x5eed, 4),
            ("simpler_run.bind", inv, 0x5eed, 1),
            ("ext.p.inner", inv, 0x5eed, 2),
            ("ext.p.outer", inv, 0x5eed, 1),
            ("simpler_run", inv, 0x5eed, 0),
            ("ext.p.around", 0, 0, 0),
        ];
        assert_eq!(told(&dir), expected.map(|(name, inv, hid, depth)| (name.to_owned(), inv, hid, depth)));
    });
}

#[test]
fn they_are_seen_while_they_are_open_among_the_runtimes() {
    in_own_process("they_are_seen_while_they_are_open_among_the_runtimes", || {
        let dir = log_to_folder();
        let outer = open("ext.p.outer", None);
        let run = Invocation::begin("simpler_run", 0x5eed);
        let inner = open("ext.p.in ner", Some(&outer));
        let expected = [("ext.p.outer", 0), ("simpler_run", 0), ("ext.p.in%20ner", 1)];
        assert_eq!(seen(), expected.map(|(name, depth)| (name.to_owned(), depth)));
        inner.close("ext.p.in ner");
        assert_eq!(seen().len(), 2);
        drop(run);
        outer.close("ext.p.outer");
        assert_eq!(seen(), []);
        assert_eq!(told(&dir).len(), 3);
    });
}

#[test]
fn what_ends_in_another_order_or_on_another_thread_is_told_and_takes_nothing_from_the_others() {
    in_own_process(
        "what_ends_in_another_order_or_on_another_thread_is_told_and_takes_nothing_from_the_others",
        || {
            let dir = log_to_folder();
            let (first, second) = (open("ext.p.first", None), open("ext.p.second", None));
            first.close("ext.p.first");
            let third = open("ext.p.third", None);
            second.close("ext.p.second");
            assert_eq!(seen(), [("ext.p.third".to_owned(), 0)]);
            std::thread::spawn(move || {
                let own = open("ext.p.own", None);
                third.close("ext.p.third");
                assert_eq!(seen(), [("ext.p.own".to_owned(), 0)]);
                own.close("ext.p.own");
            })
            .join()
            .unwrap();
            assert_eq!(log::context().depth, 0);
            {
                let _run = Invocation::begin("simpler_run", 0);
            }
            let lines = flushed_lines(dir.path());
            let spans = spans(&lines);
            assert_eq!(spans.len(), 5);
            assert!(spans.iter().all(|span| span.depth == 0), "{spans:?}");
            let tid = |name: &str| spans.iter().find(|span| span.name == name).unwrap().tid;
            assert_eq!(tid("ext.p.third"), tid("ext.p.own"));
            assert_eq!(tid("ext.p.second"), tid("simpler_run"));
        },
    );
}

#[test]
fn none_is_0_ns_long_and_a_muted_one_is_not_described() {
    in_own_process("none_is_0_ns_long_and_a_muted_one_is_not_described", || {
        let dir = log_to_folder();
        for _ in 0..1000 {
            open("ext.p.s", None).close("ext.p.s");
        }
        log::set_threshold(Threshold::WARN);
        let muted = ForeignSpan::open::<Infallible>("ext.p.muted", None, |_| panic!("described"));
        assert!(muted.unwrap().is_none());
        log::set_threshold(Threshold::TIMING);
        let muted_later = open("ext.p.muted_later", None);
        log::set_threshold(Threshold::WARN);
        muted_later.close("ext.p.muted_later");
        assert_eq!(seen(), []);
        log::set_threshold(Threshold::TIMING);
        log::flush(Duration::from_secs(10)).unwrap();
        let spans = spans(&flushed_lines(dir.path()));
        assert_eq!(spans.len(), 1000);
        assert!(spans.iter().all(|span| span.dur > 0));
    });
}

#[test]
fn an_error_of_who_describes_leaves_nothing_open() {
    in_own_process("an_error_of_who_describes_leaves_nothing_open", || {
        let dir = log_to_folder();
        let refused = ForeignSpan::open("ext.p.s", None, |attributes| {
            attributes.pair("a", format_args!("{}", 1));
            Err("no")
        });
        assert_eq!(refused.unwrap_err(), "no");
        assert_eq!((seen(), log::context().depth), (Vec::new(), 0));
        let span = ForeignSpan::open::<Infallible>("ext.p.s", None, |attributes| {
            attributes.pair("a b=", format_args!("x y"));
            attributes.pair("clk", format_args!("dev"));
            Ok(())
        });
        span.unwrap().unwrap().close("ext.p.s");
        let [span] = &spans(&flushed_lines(dir.path()))[..] else { panic!("one span") };
        assert_eq!(span.attrs, "a_b_=x%2520y _clk=dev");
    });
}
