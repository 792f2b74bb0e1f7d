//! A C plugin in a process whose log Rust owns: one queue, one nesting, one anchor, and unloading at any time.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail where it stands")]

extern crate host_log as simpler_host_log;

mod support;

use std::collections::BTreeSet;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicI32, Ordering};

use host_log::{Invocation, Threshold, span};
use simpler_log_abi::Level;
use support::owner::{
    DRAIN, deferred_log_to_folder, envelope, flushed_lines, fork, in_own_process, lines_of, log_to_folder,
    reap, spans, the_anchor,
};
use support::{Plugin, build, build_plugin};

/// The plugin, bound to this process's log.
fn bound_plugin() -> Plugin {
    let plugin = Plugin::load();
    assert_eq!(plugin.bind(host_log::state()), 0);
    plugin
}

#[test]
fn texts_and_spans_of_a_plugin_land_in_the_owners_log() {
    in_own_process("texts_and_spans_of_a_plugin_land_in_the_owners_log", || {
        for compiler in build::compilers() {
            let folder = tempfile::tempdir().unwrap();
            let plugin = Plugin::open(&build_plugin(folder.path(), compiler, &[]));
            let dir = log_to_folder();
            assert_eq!(plugin.bind(host_log::state()), 0);
            plugin.call_with("plugin_tree", 3);
            plugin.call_with("plugin_second", 4);
            host_log::log_warn!("from Rust");
            if compiler.program != "gcc" || compiler.is_cpp() {
                // The first directory stays; the rest of the compilers only show that nothing is lost.
                host_log::flush(DRAIN).unwrap();
                assert_eq!(host_log::counts().dropped, 0);
                continue;
            }
            let lines = flushed_lines(dir.path());
            the_anchor(&lines);
            assert_eq!(lines.len(), 6);
            assert_eq!(envelope(&lines[4]).1, "[second.c:6] second file 4");
            // The envelope's thread is the same for both languages, and so are the ids of a span.
            assert_eq!(envelope(&lines[4]).0.thread, envelope(&lines[5]).0.thread);
            for span in spans(&lines) {
                assert_eq!((span.pid, span.tid), (i64::from(host_log::pid()), i64::from(host_log::tid())));
            }
        }
        assert_eq!(host_log::counts().dropped, 0);
    });
}

#[test]
fn spans_of_a_plugin_nest_under_the_owners_invocation() {
    in_own_process("spans_of_a_plugin_nest_under_the_owners_invocation", || {
        let plugin = Plugin::load();
        let dir = log_to_folder();
        assert_eq!(plugin.bind(host_log::state()), 0);
        {
            let _root = Invocation::begin("simpler_run", 0xabc);
            let _bind = span!("simpler_run.bind");
            plugin.call_with("plugin_tree", 3);
            // One that the plugin begins has a number and a nesting of its own, and gives the thread back.
            plugin.invocation(0xdef);
            drop(span!("simpler_run.bind.after"));
        }
        plugin.invocation(0x123);
        drop(Invocation::begin("simpler_run", 0xabc));
        let spans = spans(&flushed_lines(dir.path()));
        let seen: Vec<_> =
            spans.iter().map(|span| (span.name.as_str(), span.inv, span.hid, span.depth)).collect();
        assert_eq!(
            seen,
            [
                ("ext.plugin.outer.inner", 1, 0xabc, 3),
                ("ext.plugin.outer.open", 1, 0xabc, 3),
                ("ext.plugin.outer", 1, 0xabc, 2),
                ("plugin_run.bind", 2, 0xdef, 1),
                ("plugin_run", 2, 0xdef, 0),
                ("simpler_run.bind.after", 1, 0xabc, 2),
                ("simpler_run.bind", 1, 0xabc, 1),
                ("simpler_run", 1, 0xabc, 0),
                ("plugin_run.bind", 3, 0x123, 1),
                ("plugin_run", 3, 0x123, 0),
                ("simpler_run", 4, 0xabc, 0),
            ]
        );
        assert_eq!(spans[2].attrs, "n=3 kind=dense");
        // Inside in time as well: one clock for both.
        let within = |inner: &support::owner::SpanLine, outer: &support::owner::SpanLine| {
            inner.ts >= outer.ts && inner.ts + inner.dur <= outer.ts + outer.dur
        };
        assert!(within(&spans[0], &spans[2]) && within(&spans[2], &spans[6]) && within(&spans[4], &spans[6]));
    });
}

#[test]
fn two_plugins_and_the_owner_never_share_an_invocation() {
    in_own_process("two_plugins_and_the_owner_never_share_an_invocation", || {
        let dir = log_to_folder();
        let plugins = [bound_plugin(), bound_plugin()];
        std::thread::scope(|scope| {
            for plugin in &plugins {
                for _ in 0..2 {
                    scope.spawn(|| (0..100).for_each(|_| plugin.invocation(1)));
                }
            }
            (0..100).for_each(|_| drop(Invocation::begin("simpler_run", 2)));
        });
        let spans = spans(&flushed_lines(dir.path()));
        let roots: Vec<u64> = spans.iter().filter(|span| span.depth == 0).map(|span| span.inv).collect();
        assert_eq!((roots.len(), roots.iter().collect::<BTreeSet<_>>().len()), (500, 500));
        // Every child has the root that its own thread began.
        for span in spans.iter().filter(|span| span.depth == 1) {
            assert!(spans.iter().any(|root| root.depth == 0 && (root.inv, root.tid) == (span.inv, span.tid)));
        }
        assert_eq!(host_log::counts().dropped, 0);
    });
}

#[test]
fn a_plugin_that_is_muted_when_its_invocation_begins_still_takes_its_place() {
    in_own_process("a_plugin_that_is_muted_when_its_invocation_begins_still_takes_its_place", || {
        let dir = log_to_folder();
        let plugin = bound_plugin();
        host_log::set_threshold(Threshold::ERROR);
        plugin.invocation(1);
        host_log::set_threshold(Threshold::TIMING);
        plugin.invocation(2);
        let spans = spans(&flushed_lines(dir.path()));
        assert_eq!((spans.len(), spans[0].inv, spans[0].hid), (2, 2, 2));
        assert_eq!(host_log::context(), host_log::SpanContext::default());
    });
}

#[test]
fn the_owners_threshold_is_the_plugins_at_once() {
    in_own_process("the_owners_threshold_is_the_plugins_at_once", || {
        let dir = log_to_folder();
        let plugin = bound_plugin();
        for threshold in Threshold::ALL {
            host_log::set_threshold(threshold);
            for level in Level::ALL {
                let enabled = plugin.ask("plugin_enabled", level as i32) != 0;
                assert_eq!(enabled, host_log::enabled(level), "{threshold:?} {level:?}");
            }
        }
        host_log::set_threshold(Threshold::INFO);
        plugin.call("plugin_levels");
        let lines = flushed_lines(dir.path());
        let levels: Vec<Level> = lines[1..].iter().map(|line| envelope(line).0.level).collect();
        assert_eq!(levels, [Level::Info, Level::Timing, Level::Warn, Level::Error]);
    });
}

#[test]
fn records_of_a_plugin_that_is_unloaded_at_once_are_all_there() {
    in_own_process("records_of_a_plugin_that_is_unloaded_at_once_are_all_there", || {
        let dir = log_to_folder();
        let plugin = bound_plugin();
        plugin.log_many(0, 200);
        plugin.invocation(1);
        drop(plugin);
        assert!(!std::fs::read_to_string("/proc/self/maps").unwrap().contains("plugin.so"));
        let lines = flushed_lines(dir.path());
        assert_eq!(lines.len(), 1 + 200 + 2);
        for (number, line) in lines[1..201].iter().enumerate() {
            assert!(line.ends_with(&format!("record {number} of the plugin")), "{line}");
        }
    });
}

#[test]
fn loading_and_unloading_a_plugin_leaves_no_mapping() {
    const ROUNDS: i32 = 500;
    in_own_process("loading_and_unloading_a_plugin_leaves_no_mapping", || {
        let dir = log_to_folder();
        let folder = tempfile::tempdir().unwrap();
        let file = build_plugin(folder.path(), build::compilers()[0], &[]);
        let mappings = || std::fs::read_to_string("/proc/self/maps").unwrap().lines().count();
        let mut after_the_first = None;
        for round in 0..ROUNDS {
            let plugin = Plugin::open(&file);
            assert_eq!(plugin.bind(host_log::state()), 0);
            plugin.log_many(round, 1);
            plugin.invocation(1);
            drop(plugin);
            if round == ROUNDS / 10 {
                after_the_first = Some(mappings());
            }
        }
        // The allocator may map something for itself meanwhile; a leak of one mapping a round would be hundreds.
        let (before, after) = (after_the_first.unwrap(), mappings());
        assert!(after <= before + 2, "{before} mappings became {after}");
        assert_eq!(flushed_lines(dir.path()).len(), 1 + 3 * ROUNDS as usize);
    });
}

#[test]
fn a_child_of_a_parent_that_was_not_quiesced_counts_what_a_plugin_loses() {
    in_own_process("a_child_of_a_parent_that_was_not_quiesced_counts_what_a_plugin_loses", || {
        let dir = log_to_folder();
        let plugin = bound_plugin();
        plugin.log_many(0, 1);
        let child = fork(|| {
            plugin.log_many(1, 3);
            plugin.invocation(1);
            // Five records; the anchor, which nobody would take, is not one of them.
            assert_eq!(host_log::counts().by_reason, [0, 0, 0, 5]);
            host_log::start_writer().unwrap();
            plugin.log_many(4, 1);
            host_log::flush(DRAIN).unwrap();
        });
        reap(child);
        plugin.log_many(5, 1);
        assert_eq!(flushed_lines(dir.path()).len(), 3);
        let lines = lines_of(dir.path(), child);
        the_anchor(&lines);
        assert!(lines[1].ends_with("record 4 of the plugin"), "{lines:#?}");
    });
}

#[test]
fn a_plugin_writes_at_once_before_the_first_start_and_after_a_quiesce() {
    in_own_process("a_plugin_writes_at_once_before_the_first_start_and_after_a_quiesce", || {
        let dir = deferred_log_to_folder();
        let plugin = bound_plugin();
        plugin.log_many(0, 1);
        assert_eq!(lines_of(dir.path(), host_log::pid()).len(), 2, "no flush was needed");
        host_log::start_writer().unwrap();
        plugin.log_many(1, 1);
        host_log::prepare_to_fork(DRAIN).unwrap();
        let child = fork(|| plugin.log_many(10, 2));
        plugin.log_many(2, 1);
        reap(child);
        host_log::start_writer().unwrap();
        plugin.log_many(3, 1);
        let lines = flushed_lines(dir.path());
        the_anchor(&lines);
        assert_eq!(lines.len(), 5);
        let lines = lines_of(dir.path(), child);
        the_anchor(&lines);
        assert_eq!((lines.len(), host_log::counts().dropped), (3, 0));
    });
}

#[test]
fn what_a_plugin_submits_while_the_log_is_quiesced_and_restarted_reconciles() {
    const CYCLES: u32 = 20;
    in_own_process("what_a_plugin_submits_while_the_log_is_quiesced_and_restarted_reconciles", || {
        let dir = log_to_folder();
        let plugin = bound_plugin();
        let (is_over, submitted) = (AtomicI32::new(0), AtomicI32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while is_over.load(Ordering::Relaxed) == 0 {
                        plugin.log_many(0, 10);
                        submitted.fetch_add(10, Ordering::Relaxed);
                        std::thread::yield_now();
                    }
                });
            }
            for _ in 0..CYCLES {
                // A quiesce may be refused under load; it is never half done.
                if host_log::prepare_to_fork(DRAIN).is_ok() {
                    host_log::start_writer().unwrap();
                }
            }
            is_over.store(1, Ordering::Relaxed);
        });
        let lines = flushed_lines(dir.path());
        let landed = lines.iter().filter(|line| line.contains("of the plugin")).count() as u64;
        let counts = host_log::counts();
        assert_eq!(landed + counts.dropped, u64::from(submitted.into_inner().unsigned_abs()));
        assert_eq!(counts.dropped, counts.by_reason.iter().sum::<u64>());
    });
}

#[test]
fn an_anchor_that_a_plugin_emitted_follows_a_late_directory() {
    in_own_process("an_anchor_that_a_plugin_emitted_follows_a_late_directory", || {
        let pipe = support::owner::StderrPipe::install(None);
        let config = host_log::Config { threshold: Threshold::ERROR, ..host_log::Config::default() };
        host_log::init(&config).unwrap();
        let plugin = bound_plugin();
        host_log::set_threshold(Threshold::TIMING);
        plugin.log_many(0, 1);
        host_log::flush(DRAIN).unwrap();
        let dir = tempfile::tempdir().unwrap();
        host_log::set_directory(dir.path()).unwrap();
        plugin.log_many(1, 1);
        let late = flushed_lines(dir.path());
        pipe.restore();
        let early = support::owner::lines(&pipe.read_to_end());
        assert_eq!(the_anchor(&late), the_anchor(&early));
    });
}

#[test]
fn an_anchor_on_stderr_follows_into_the_file_of_whichever_module_opens_it() {
    in_own_process("an_anchor_on_stderr_follows_into_the_file_of_whichever_module_opens_it", || {
        // Who writes it to stderr at once, and who opens the file later: by itself, or the owner's writer.
        for (plugin_is_first, plugin_is_second, with_writer) in
            [(true, false, true), (true, false, false), (false, true, false), (true, true, false)]
        {
            let folder = tempfile::tempdir().unwrap();
            let (reader, writer) = std::io::pipe().unwrap();
            let child = fork(|| {
                // SAFETY: both are open.
                assert_eq!(unsafe { libc::dup2(writer.as_raw_fd(), 2) }, 2);
                let config = host_log::Config { defer_writer: true, ..host_log::Config::default() };
                host_log::init(&config).unwrap();
                let plugin = bound_plugin();
                let log = |by_plugin| match by_plugin {
                    true => plugin.log_many(0, 1),
                    false => host_log::log_warn!("of the owner"),
                };
                log(plugin_is_first);
                if with_writer {
                    host_log::start_writer().unwrap();
                }
                host_log::set_directory(folder.path()).unwrap();
                // A child's own anchor is the only one that it writes.
                let grandchild = (!with_writer).then(|| fork(|| log(plugin_is_second)));
                log(plugin_is_second);
                host_log::flush(DRAIN).unwrap();
                if let Some(grandchild) = grandchild {
                    reap(grandchild);
                    let lines = lines_of(folder.path(), grandchild);
                    assert!(the_anchor(&lines).contains(&format!(" pid={grandchild} ")) && lines.len() == 2);
                }
            });
            drop(writer);
            reap(child);
            let early = std::io::read_to_string(reader).unwrap();
            let late = lines_of(folder.path(), child);
            let early = support::owner::lines(early.as_bytes());
            let who = (plugin_is_first, plugin_is_second, with_writer);
            assert_eq!((early.len(), late.len()), (2, 2), "{who:?} {early:#?} {late:#?}");
            assert_eq!(the_anchor(&late), the_anchor(&early), "{who:?}");
        }
    });
}
