//! The spans and events of the `tracing` crate: what they become, where they stand, and what is not evaluated.

#![cfg(feature = "host-strace")]
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod support;

use std::cell::Cell;
use std::fmt;
use std::panic::catch_unwind;

use simpler_host_log::tracing_layer::{self, HostLogLayer, InstallError};
use simpler_host_log::{self as log, Config, Invocation, Threshold};
use support::{SpanLine, envelope, flushed_lines, in_own_process, spans};
use tracing::{Dispatch, debug_span, error_span, info, info_span, trace_span};
use tracing_subscriber::Registry;
use tracing_subscriber::layer::SubscriberExt;

/// A log in a fresh folder that takes what `tracing` sees.
fn traced(threshold: Threshold) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let config = Config { threshold, directory: Some(dir.path()), ..Config::default() };
    tracing_layer::install("shop", &config).unwrap();
    dir
}

fn flushed_spans(dir: &tempfile::TempDir) -> Vec<SpanLine> {
    spans(&flushed_lines(dir.path()))
}

/// A value that counts how often it is formatted.
struct Counted<'a>(&'a Cell<u32>);

impl fmt::Debug for Counted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.set(self.0.get() + 1);
        f.write_str("counted")
    }
}

/// A value that panics when it is formatted.
struct Panics;

impl fmt::Debug for Panics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("half of ")?;
        panic!("on purpose")
    }
}

#[test]
fn each_event_has_its_level_target_place_and_fields() {
    in_own_process("each_event_has_its_level_target_place_and_fields", || {
        let dir = traced(Threshold::DEBUG);
        let count = 3;
        tracing::trace!("a");
        tracing::debug!("b");
        info!(count, user = "ada", share = 0.5, "c {}", 1 + 1);
        tracing::warn!(target: "audit", "d");
        tracing::error!(error = %"broken");
        let lines = flushed_lines(dir.path());
        let seen: Vec<(String, String)> = lines[1..]
            .iter()
            .map(|line| {
                let (envelope, text) = envelope(line);
                let text = text.split_once("] ").expect("a place").1;
                let head = format!("{} {}", envelope.level.name(), envelope.func.escape_ascii());
                (head, text.to_owned())
            })
            .collect();
        let seen: Vec<(&str, &str)> = seen.iter().map(|(head, text)| (&**head, &**text)).collect();
        assert_eq!(
            seen,
            [
                ("DEBUG tracing_layer", "a"),
                ("DEBUG tracing_layer", "b"),
                ("INFO tracing_layer", "c 2 count=3 user=\"ada\" share=0.5"),
                ("WARN audit", "d"),
                ("ERROR tracing_layer", "error=broken"),
            ]
        );
        assert!(lines[1].contains(": [tracing_layer.rs:"));
    });
}

#[test]
fn spans_of_every_level_nest_and_belong_to_no_invocation() {
    in_own_process("spans_of_every_level_nest_and_belong_to_no_invocation", || {
        let dir = traced(Threshold::TIMING);
        error_span!("outer", n = 1, ok = true, who = "ada").in_scope(|| {
            debug_span!("middle").in_scope(|| trace_span!("inner").in_scope(|| {}));
            info_span!("sibling").in_scope(|| {});
        });
        let spans = flushed_spans(&dir);
        let seen: Vec<_> = spans
            .iter()
            .map(|span| (span.name.as_str(), span.inv, span.hid, span.depth, span.attrs.as_str()))
            .collect();
        assert_eq!(
            seen,
            [
                ("ext.shop.inner", 0, 0, 2, ""),
                ("ext.shop.middle", 0, 0, 1, ""),
                ("ext.shop.sibling", 0, 0, 1, ""),
                ("ext.shop.outer", 0, 0, 0, "n=1 ok=true who=ada"),
            ]
        );
        let (inner, outer) = (&spans[0], &spans[3]);
        assert!(outer.ts <= inner.ts && inner.ts + inner.dur <= outer.ts + outer.dur);
        assert!(spans.iter().all(|span| span.tid == i64::from(log::tid())));
    });
}

#[test]
fn inside_an_invocation_a_span_carries_it_and_changes_nothing_of_it() {
    in_own_process("inside_an_invocation_a_span_carries_it_and_changes_nothing_of_it", || {
        let dir = traced(Threshold::TIMING);
        let request = info_span!("request").entered();
        {
            let _root = Invocation::begin("simpler_run", 0xabc);
            let before = log::context();
            let load = info_span!("load").entered();
            assert_eq!(log::context(), before, "a foreign span leaves the context alone");
            {
                let _bind = log::span!("simpler_run.bind");
                info_span!("read").in_scope(|| {});
            }
            // Handed to a thread that is in no invocation: it works for the one of its parent.
            std::thread::scope(|scope| {
                scope.spawn(|| info_span!(parent: &load, "elsewhere").in_scope(|| {}));
            });
        }
        drop(request);
        let seen: Vec<(String, u64, u64, i64)> =
            flushed_spans(&dir).into_iter().map(|s| (s.name, s.inv, s.hid, s.depth)).collect();
        let want = [
            // The run, load and bind are around it; request is outside the invocation.
            ("ext.shop.read", 1, 0xabc, 3),
            ("simpler_run.bind", 1, 0xabc, 1),
            ("ext.shop.elsewhere", 1, 0xabc, 2),
            ("ext.shop.load", 1, 0xabc, 1),
            ("simpler_run", 1, 0xabc, 0),
            ("ext.shop.request", 0, 0, 0),
        ];
        assert_eq!(seen, want.map(|(name, inv, hid, depth)| (name.to_owned(), inv, hid, depth)));
    });
}

#[test]
fn what_is_muted_is_not_evaluated() {
    in_own_process("what_is_muted_is_not_evaluated", || {
        let dir = traced(Threshold::WARN);
        let formatted = Cell::new(0);
        let counted = Counted(&formatted);
        let evaluated = Cell::new(0);
        let evaluates = || {
            evaluated.set(evaluated.get() + 1);
            &counted
        };
        let all = || {
            info_span!("span", value = ?evaluates()).in_scope(|| {});
            info!(value = ?evaluates(), "event");
        };
        all();
        assert_eq!((evaluated.get(), formatted.get()), (0, 0));
        assert!(flushed_lines(dir.path()).is_empty());

        // The same callsites again: none of them has kept the answer.
        log::set_threshold(Threshold::INFO);
        all();
        assert_eq!((evaluated.get(), formatted.get()), (2, 2));
        log::set_threshold(Threshold::NUL);
        all();
        assert_eq!((evaluated.get(), formatted.get()), (2, 2));
        let lines = flushed_lines(dir.path());
        assert_eq!(lines.len(), 3, "{lines:#?}");
        assert!(lines[1].ends_with(" value=counted") && lines[2].ends_with("] event value=counted"));
    });
}

#[test]
fn a_span_muted_at_its_creation_stays_muted() {
    in_own_process("a_span_muted_at_its_creation_stays_muted", || {
        let dir = traced(Threshold::ERROR);
        let outer = info_span!("outer").entered();
        log::set_threshold(Threshold::TIMING);
        info_span!("inner").in_scope(|| {});
        drop(outer);
        // And one that is muted when it closes is not emitted.
        let muted = info_span!("muted").entered();
        log::set_threshold(Threshold::ERROR);
        drop(muted);
        let spans = flushed_spans(&dir);
        let seen: Vec<_> = spans.iter().map(|span| (span.name.as_str(), span.depth)).collect();
        assert_eq!(seen, [("ext.shop.inner", 0)]);
    });
}

#[test]
fn another_layer_hears_what_the_threshold_mutes() {
    in_own_process("another_layer_hears_what_the_threshold_mutes", || {
        use std::sync::atomic::{AtomicU32, Ordering};

        static HEARD: AtomicU32 = AtomicU32::new(0);
        struct Ear;
        impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for Ear {
            fn on_event(&self, _: &tracing::Event<'_>, _: tracing_subscriber::layer::Context<'_, S>) {
                HEARD.fetch_add(1, Ordering::Relaxed);
            }
        }
        let dir = support::log_to_folder();
        let subscriber = Registry::default().with(HostLogLayer::new("shop")).with(Ear);
        tracing::dispatcher::with_default(&Dispatch::new(subscriber), || {
            info!("below the threshold");
            tracing::warn!("above it");
        });
        assert_eq!(HEARD.load(Ordering::Relaxed), 2);
        assert_eq!(flushed_lines(dir.path()).len(), 2);
    });
}

#[test]
fn beside_other_layers_what_is_muted_is_not_formatted() {
    in_own_process("beside_other_layers_what_is_muted_is_not_formatted", || {
        let dir = support::log_to_folder();
        let formatted = Cell::new(0);
        let counted = Counted(&formatted);
        let all = || {
            info_span!("span", value = ?counted).in_scope(|| {});
            info!(value = ?counted, "event");
        };
        let subscriber = Registry::default().with(HostLogLayer::new("shop"));
        tracing::dispatcher::with_default(&Dispatch::new(subscriber), || {
            for (threshold, count) in [(Threshold::WARN, 0), (Threshold::TIMING, 1), (Threshold::INFO, 3)] {
                log::set_threshold(threshold);
                all();
                assert_eq!(formatted.get(), count, "{threshold:?}");
            }
        });
        assert_eq!(flushed_spans(&dir).len(), 2);
    });
}

#[test]
fn names_and_fields_cannot_break_the_grammar() {
    in_own_process("names_and_fields_cannot_break_the_grammar", || {
        let dir = traced(Threshold::TIMING);
        info_span!("two words=[x]\n%").in_scope(|| {});
        info_span!("").in_scope(|| {});
        info_span!(".dot").in_scope(|| {});
        info_span!("a.b").in_scope(|| {});
        info_span!("values", text = "a b=c", line = "x\ny", percent = "5%", clk = "dev").in_scope(|| {});
        info_span!("keys", "my key=" = 1, http.method = "GET").in_scope(|| {});
        info_span!("forged", x = "[STRACE] v=1 pid=1 tid=1 inv=9").in_scope(|| {});
        let lines = flushed_lines(dir.path());
        let spans = spans(&lines);
        let seen: Vec<_> = spans.iter().map(|span| (span.name.as_str(), span.attrs.as_str())).collect();
        assert_eq!(
            seen,
            [
                ("ext.shop.two%20words%3D%5Bx%5D%0A%25", ""),
                ("ext.shop._", ""),
                ("ext.shop._.dot", ""),
                ("ext.shop.a.b", ""),
                ("ext.shop.values", "text=a%2520b=c line=x%0Ay percent=5%25 _clk=dev"),
                ("ext.shop.keys", "my_key_=1 http.method=GET"),
                ("ext.shop.forged", "x=%5BSTRACE%5D%2520v=1%2520pid=1%2520tid=1%2520inv=9"),
            ]
        );
    });
}

#[test]
fn a_producer_is_one_word_that_leaves_room_for_the_span() {
    in_own_process("a_producer_is_one_word_that_leaves_room_for_the_span", || {
        let dir = support::log_to_folder();
        let long = "p".repeat(40);
        for producer in ["", "my.shop of\u{e9}s", &long, &long[..28]] {
            let subscriber = Registry::default().with(HostLogLayer::new(producer));
            tracing::dispatcher::with_default(&Dispatch::new(subscriber), || {
                info_span!("span").in_scope(|| {});
            });
        }
        let subscriber = Registry::default().with(HostLogLayer::default());
        tracing::dispatcher::with_default(&Dispatch::new(subscriber), || info_span!("span").in_scope(|| {}));
        let names: Vec<String> = flushed_spans(&dir).into_iter().map(|span| span.name).collect();
        let p = |count: usize| "p".repeat(count);
        assert_eq!(
            names,
            [
                "ext.app.span".to_owned(),
                "ext.my_shop_of_s.span".to_owned(),
                format!("ext.{}~.span", p(27)),
                format!("ext.{}.span", p(28)),
                "ext.app.span".to_owned(),
            ]
        );
    });
}

#[test]
fn what_is_too_long_is_cut_and_marked() {
    in_own_process("what_is_too_long_is_cut_and_marked", || {
        let dir = traced(Threshold::TIMING);
        info_span!("a_name_that_goes_on_for_longer_than_a_record_has_room_for_in_its_field").in_scope(|| {});
        info_span!("fields", a = "x".repeat(500), b = 1).in_scope(|| {});
        info_span!("exact", a = "y".repeat(190)).in_scope(|| {});
        info_span!("over", a = "y".repeat(190), b = 1).in_scope(|| {});
        info_span!("wide", a = "\u{20ac}".repeat(200)).in_scope(|| {});
        let later = info_span!("later", a = "y".repeat(100), b = tracing::field::Empty);
        later.record("b", "z".repeat(100));
        drop(later);
        let spans = flushed_spans(&dir);
        assert_eq!(spans[0].name.len(), 64);
        assert!(spans[0].name.ends_with('~') && spans[0].name.starts_with("ext.shop.a_name_that"));
        assert_eq!(spans[1].attrs, format!("a={}~", "x".repeat(189)));
        assert_eq!(spans[2].attrs, format!("a={}", "y".repeat(190)));
        assert_eq!(spans[3].attrs, format!("a={}~", "y".repeat(189)));
        // Three bytes of three escaped bytes each, and never a part of an escape.
        assert!(spans[4].attrs.len() <= 192 && spans[4].attrs.ends_with('~'), "{}", spans[4].attrs);
        assert!(spans[4].attrs[2..spans[4].attrs.len() - 1].split('%').skip(1).all(|unit| unit.len() == 2));
        assert_eq!(spans[5].attrs, format!("a={} b={}~", "y".repeat(100), "z".repeat(192 - 102 - 3 - 1)));
    });
}

#[test]
fn a_field_recorded_later_follows_the_others() {
    in_own_process("a_field_recorded_later_follows_the_others", || {
        let dir = traced(Threshold::TIMING);
        let span = info_span!("order", number = 7, total = tracing::field::Empty);
        span.in_scope(|| span.record("total", 12).record("number", 8));
        drop(span);
        assert_eq!(flushed_spans(&dir)[0].attrs, "number=7 total=12 number=8");
    });
}

#[test]
fn a_span_lasts_from_first_entered_to_last_left_and_says_how_long_it_was_busy() {
    in_own_process("a_span_lasts_from_first_entered_to_last_left_and_says_how_long_it_was_busy", || {
        let dir = traced(Threshold::TIMING);
        let clock_moves = || {
            let now = log::monotonic_ns();
            while log::monotonic_ns() < now + 100_000 {}
            log::monotonic_ns()
        };
        let before = log::monotonic_ns();
        let twice = info_span!("twice", n = 1);
        let entered = clock_moves();
        twice.in_scope(clock_moves);
        let outside = clock_moves();
        // Entered within itself: that is not another visit, and the time before counts.
        let again = || {
            clock_moves();
            twice.in_scope(clock_moves);
        };
        twice.in_scope(again);
        let left = log::monotonic_ns();
        clock_moves();
        drop(twice);
        let never = info_span!("never");
        let closed = clock_moves();
        drop(never);
        let once = info_span!("once");
        once.in_scope(|| once.in_scope(|| {}));
        drop(once);

        let spans = flushed_spans(&dir);
        let twice = &spans[0];
        assert!(twice.ts >= entered && twice.ts < outside, "from the first time");
        let end = twice.ts + twice.dur;
        assert!(end <= left, "to the last time, not to the close");
        let busy: i64 =
            twice.attrs.strip_prefix("busy_ns=").unwrap().split_once(" n=1").unwrap().0.parse().unwrap();
        assert!(busy >= 300_000 && busy <= twice.dur - 100_000, "{busy} of {}", twice.dur);
        let never = &spans[1];
        assert!(never.ts > left && never.ts > before && never.ts + never.dur >= closed);
        assert_eq!((never.attrs.as_str(), spans[2].attrs.as_str()), ("", ""));
    });
}

#[test]
fn a_span_that_is_handed_on_shows_the_thread_that_closes_it() {
    in_own_process("a_span_that_is_handed_on_shows_the_thread_that_closes_it", || {
        let dir = traced(Threshold::TIMING);
        let span = info_span!("handed");
        span.in_scope(|| {});
        let parent = info_span!("parent").entered();
        let handed_on = std::sync::Barrier::new(5);
        let tids: Vec<i64> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..4)
                .map(|_| {
                    let span = span.clone();
                    let (parent, handed_on) = (&parent, &handed_on);
                    scope.spawn(move || {
                        handed_on.wait();
                        let _inside = span.enter();
                        for _ in 0..50 {
                            info_span!(parent: parent, "child").in_scope(|| {});
                        }
                        i64::from(log::tid())
                    })
                })
                .collect();
            drop(span);
            handed_on.wait();
            workers.into_iter().map(|worker| worker.join().unwrap()).collect()
        });
        drop(parent);
        let spans = flushed_spans(&dir);
        let named = |name: &str| spans.iter().filter(|span| span.name == name).collect::<Vec<_>>();
        let handed = named("ext.shop.handed");
        assert_eq!(handed.len(), 1, "one record for one span");
        assert!(tids.contains(&handed[0].tid));
        let children = named("ext.shop.child");
        assert_eq!(children.len(), 200);
        assert!(children.iter().all(|child| tids.contains(&child.tid) && child.depth == 1));
        assert_eq!(named("ext.shop.parent")[0].tid, i64::from(log::tid()));
        assert_eq!(spans.len(), 202);
    });
}

#[test]
fn a_child_goes_on_below_the_spans_of_its_parent() {
    in_own_process("a_child_goes_on_below_the_spans_of_its_parent", || {
        let dir = traced(Threshold::TIMING);
        let around = info_span!("around").entered();
        log::prepare_to_fork(support::DRAIN).unwrap();
        let child = support::fork(|| {
            log::start_writer().unwrap();
            info_span!("inside").in_scope(|| {});
            log::flush(support::DRAIN).unwrap();
        });
        support::reap(child);
        log::start_writer().unwrap();
        drop(around);
        let of_child = spans(&support::lines_of(dir.path(), child));
        let seen: Vec<_> = of_child.iter().map(|s| (s.name.as_str(), s.pid, s.tid, s.depth)).collect();
        assert_eq!(seen, [("ext.shop.inside", i64::from(child), i64::from(child), 1)]);
        let of_parent = flushed_spans(&dir);
        let seen: Vec<_> = of_parent.iter().map(|s| (s.name.as_str(), s.pid, s.depth)).collect();
        assert_eq!(seen, [("ext.shop.around", i64::from(log::pid()), 0)]);
    });
}

#[test]
fn a_field_that_panics_loses_no_other_record() {
    in_own_process("a_field_that_panics_loses_no_other_record", || {
        let dir = traced(Threshold::INFO);
        let around = info_span!("around", later = tracing::field::Empty).entered();
        for round in 0..20 {
            info!(round, "before");
            assert!(catch_unwind(|| info!(value = ?Panics, "lost")).is_err());
            info_span!("half", value = ?Panics, round).in_scope(|| {});
            info_span!("whole", round).in_scope(|| {});
        }
        around.record("later", tracing::field::debug(Panics));
        around.record("later", 1);
        drop(around);
        let lines = flushed_lines(dir.path());
        assert_eq!(lines.iter().filter(|line| line.contains("] before round=")).count(), 20);
        assert!(lines.iter().all(|line| !line.contains("lost")));
        let spans = spans(&lines);
        for (name, count, attrs) in [
            ("ext.shop.whole", 20, "round=19"),
            ("ext.shop.half", 20, "value=half%2520of%2520~ round=19"),
            ("ext.shop.around", 1, "later=half%2520of%2520~ later=1"),
        ] {
            let named: Vec<&SpanLine> = spans.iter().filter(|span| span.name == name).collect();
            assert_eq!((named.len(), named.last().unwrap().attrs.as_str()), (count, attrs), "{name}");
        }
        assert_eq!(lines.len(), 1 + 3 * 20 + 1);
        assert_eq!(log::counts().dropped, 0);
    });
}

#[test]
fn a_second_subscriber_is_refused() {
    in_own_process("a_second_subscriber_is_refused", || {
        let dir = traced(Threshold::TIMING);
        let elsewhere = tempfile::tempdir().unwrap();
        let config =
            Config { threshold: Threshold::DEBUG, directory: Some(elsewhere.path()), ..Config::default() };
        let refused = tracing_layer::install("shop", &config);
        assert!(matches!(refused, Err(InstallError::Subscriber(_))));
        info!("still muted");
        assert_eq!(flushed_lines(dir.path()).len(), 1);
        assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    });
}

#[test]
fn a_log_that_cannot_be_set_up_is_an_error() {
    in_own_process("a_log_that_cannot_be_set_up_is_an_error", || {
        let file = tempfile::NamedTempFile::new().unwrap();
        let config = Config { directory: Some(file.path()), ..Config::default() };
        let refused = tracing_layer::install("shop", &config);
        assert!(matches!(refused, Err(InstallError::Log(_))));
    });
}
