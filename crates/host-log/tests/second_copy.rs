//! Two private copies of the logger in one process: the program's, which owns the log, and a shared object's.
#![cfg(feature = "host-strace")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail where it stands")]

mod support;

use std::ffi::{CString, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use simpler_host_log::{self as log, Config, SimplerHostLogState, Threshold};
use support::{
    DRAIN, deferred_log_to_folder, fork, in_own_process, lines_of, log_to_folder, reap, spans, the_anchor,
};

/// Runs `body` in a process of its own, but not under a sanitizer: each copy of a Rust object holds the sanitizer's
/// whole runtime then, and a process takes one.
fn with_two_copies(test: &str, body: impl FnOnce()) {
    if support::is_under_a_sanitizer() {
        return eprintln!("skipped: two Rust objects with a sanitizer do not go into one process");
    }
    in_own_process(test, body);
}

/// The loaded shared object; unloaded when it is dropped.
struct Plugin {
    handle: *mut c_void,
}

impl Plugin {
    fn load() -> Plugin {
        let path = CString::new(built().as_os_str().as_bytes()).unwrap();
        // SAFETY: a library of ours, whose constructors do nothing.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!handle.is_null(), "{path:?}");
        Plugin { handle }
    }

    fn loaded_and_bound() -> Plugin {
        let plugin = Plugin::load();
        assert_eq!(plugin.bind(log::state()), 0);
        plugin
    }

    fn symbol(&self, name: &str) -> *mut c_void {
        let name = CString::new(name).unwrap();
        // SAFETY: the handle is open.
        let symbol = unsafe { libc::dlsym(self.handle, name.as_ptr()) };
        assert!(!symbol.is_null(), "{name:?}");
        symbol
    }

    fn bind(&self, state: *const SimplerHostLogState) -> c_int {
        type Bind = unsafe extern "C" fn(*mut SimplerHostLogState) -> c_int;
        // SAFETY: that is the symbol's type.
        let bind =
            unsafe { std::mem::transmute::<*mut c_void, Bind>(self.symbol("simpler_host_log_bind_state")) };
        // SAFETY: null, or a state that lives longer than the plugin.
        unsafe { bind(state.cast_mut()) }
    }

    fn text(&self, number: c_int) {
        // SAFETY: that is the symbol's type.
        let text =
            unsafe { std::mem::transmute::<*mut c_void, extern "C" fn(c_int)>(self.symbol("plugin_text")) };
        text(number);
    }

    fn span(&self, inside: Option<extern "C" fn()>) {
        type Span = extern "C" fn(Option<extern "C" fn()>);
        // SAFETY: that is the symbol's type.
        let span = unsafe { std::mem::transmute::<*mut c_void, Span>(self.symbol("plugin_span")) };
        span(inside);
    }

    fn invocation(&self) -> u64 {
        // SAFETY: that is the symbol's type.
        let run = unsafe {
            std::mem::transmute::<*mut c_void, extern "C" fn() -> u64>(self.symbol("plugin_invocation"))
        };
        run()
    }

    fn ask(&self, name: &str) -> c_int {
        // SAFETY: all that are asked by name have this type.
        let ask = unsafe { std::mem::transmute::<*mut c_void, extern "C" fn() -> c_int>(self.symbol(name)) };
        ask()
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        // SAFETY: opened by `load`, and nothing of it is in use.
        assert_eq!(unsafe { libc::dlclose(self.handle) }, 0);
    }
}

/// The shared object, which cargo builds with the tests.
fn built() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let path = tests.parent().unwrap().parent().unwrap().join("examples/libbound_plugin.so");
    assert!(path.exists(), "{} is not built: run the tests without --test", path.display());
    path
}

#[test]
fn an_unbound_copy_says_nothing_and_a_refused_one_stays_unbound() {
    with_two_copies("an_unbound_copy_says_nothing_and_a_refused_one_stays_unbound", || {
        let dir = log_to_folder();
        let plugin = Plugin::load();
        assert_eq!(plugin.bind(std::ptr::null()), log::BIND_NULL);
        let off_ladder = SimplerHostLogState::new(Threshold::TIMING);
        off_ladder.threshold.store(26, Ordering::Relaxed);
        assert_eq!(plugin.bind(&raw const off_ladder), log::BIND_OFF_LADDER);
        plugin.text(1);
        plugin.span(None);
        log::flush(DRAIN).unwrap();
        assert_eq!(lines_of(dir.path(), log::pid()).len(), 1, "the owner's anchor");
    });
}

#[test]
fn spans_of_two_copies_nest_and_never_share_an_invocation() {
    with_two_copies("spans_of_two_copies_nest_and_never_share_an_invocation", || {
        extern "C" fn inside() {
            let _span = log::span!("simpler_run.plugin.back");
        }
        let dir = log_to_folder();
        let plugin = Plugin::loaded_and_bound();
        let (own, context_after);
        {
            let _run = log::Invocation::begin("simpler_run", 0xa11ce);
            own = log::context().inv;
            let _outer = log::span!("simpler_run.outer");
            plugin.span(Some(inside));
            let foreign = plugin.invocation();
            assert_ne!(foreign, own);
            context_after = log::context();
        }
        assert_eq!((context_after.inv, context_after.depth), (own, 2));
        log::flush(DRAIN).unwrap();
        let lines = lines_of(dir.path(), log::pid());
        the_anchor(&lines);
        let spans = spans(&lines);
        let seen: Vec<(&str, i64, bool, u64, i64)> = spans
            .iter()
            .map(|span| (span.name.as_str(), span.depth, span.inv == own, span.hid, span.tid))
            .collect();
        let tid = i64::from(log::tid());
        assert_eq!(
            seen,
            [
                ("simpler_run.plugin.back", 3, true, 0xa11ce, tid),
                ("simpler_run.plugin", 2, true, 0xa11ce, tid),
                ("plugin_run.part", 1, false, 0xb0b, tid),
                ("plugin_run", 0, false, 0xb0b, tid),
                ("simpler_run.outer", 1, true, 0xa11ce, tid),
                ("simpler_run", 0, true, 0xa11ce, tid),
            ]
        );
        for pair in
            spans.windows(2).filter(|pair| pair[1].depth < pair[0].depth && pair[0].inv == pair[1].inv)
        {
            // The two copies may read different clocks: their distance is bounded by what a pair of readings costs.
            assert!(
                pair[1].ts <= pair[0].ts + 1_000
                    && pair[0].ts + pair[0].dur <= pair[1].ts + pair[1].dur + 1_000
            );
        }
    });
}

#[test]
fn a_bound_copy_uses_the_owners_writer_and_sets_nothing_up() {
    with_two_copies("a_bound_copy_uses_the_owners_writer_and_sets_nothing_up", || {
        let dir = log_to_folder();
        log::set_threshold(Threshold::INFO);
        let plugin = Plugin::loaded_and_bound();
        assert_eq!((plugin.ask("plugin_init"), plugin.ask("plugin_start_writer")), (0, 1));
        plugin.text(1);
        assert_eq!(plugin.ask("plugin_flush"), 1);
        assert!(lines_of(dir.path(), log::pid()).last().unwrap().ends_with(" from the plugin 1"));
        // The threshold is the owner's, at once.
        log::set_threshold(Threshold::WARN);
        plugin.text(2);
        log::set_threshold(Threshold::INFO);
        log::prepare_to_fork(DRAIN).unwrap();
        assert_eq!(plugin.ask("plugin_start_writer"), 0, "no sink lives, and this copy makes none");
        plugin.text(3);
        let lines = lines_of(dir.path(), log::pid());
        let texts: Vec<&str> = lines.iter().filter_map(|line| line.split(" from the ").nth(1)).collect();
        assert_eq!(texts, ["plugin 1", "plugin 3"]);
        assert_eq!(log::counts().dropped, 0);
    });
}

#[test]
fn a_plugin_that_is_unloaded_at_once_leaves_all_its_records() {
    with_two_copies("a_plugin_that_is_unloaded_at_once_leaves_all_its_records", || {
        let dir = deferred_log_to_folder();
        log::set_threshold(Threshold::INFO);
        log::start_writer().unwrap();
        for round in 0..20 {
            let plugin = Plugin::loaded_and_bound();
            for number in 0..200 {
                plugin.text(200 * round + number);
            }
            drop(plugin);
        }
        log::flush(DRAIN).unwrap();
        let lines = lines_of(dir.path(), log::pid());
        let texts: Vec<c_int> =
            lines.iter().filter_map(|line| line.split(" from the plugin ").nth(1)?.parse().ok()).collect();
        assert_eq!(texts, (0..4000).collect::<Vec<_>>());
    });
}

#[test]
fn in_a_child_of_an_unquiesced_parent_a_bound_copy_counts_not_admitted() {
    with_two_copies("in_a_child_of_an_unquiesced_parent_a_bound_copy_counts_not_admitted", || {
        let dir = tempfile::tempdir().unwrap();
        let config = Config { threshold: Threshold::INFO, directory: Some(dir.path()), defer_writer: false };
        log::init(&config).unwrap();
        let plugin = Plugin::loaded_and_bound();
        plugin.text(1);
        let child = fork(|| {
            plugin.text(2);
            plugin.text(3);
            let counts = log::counts();
            assert_eq!((counts.dropped, counts.by_reason[3]), (2, 2));
            log::start_writer().unwrap();
            plugin.text(4);
            log::flush(DRAIN).unwrap();
        });
        reap(child);
        assert!(lines_of(dir.path(), child).last().unwrap().ends_with(" from the plugin 4"));
        log::flush(DRAIN).unwrap();
        assert!(lines_of(dir.path(), log::pid()).last().unwrap().ends_with(" from the plugin 1"));
    });
}

#[test]
fn a_bind_puts_right_what_would_mute_the_log_or_send_it_astray() {
    with_two_copies("a_bind_puts_right_what_would_mute_the_log_or_send_it_astray", || {
        let plugin = Plugin::load();
        let fresh = || {
            let state = SimplerHostLogState::new(Threshold::INFO);
            state.clock_anchor_pid.store(-log::pid(), Ordering::Relaxed);
            state
        };
        // Somebody is at the anchor, for ever; the directory's word is none; the gate is shut by nobody.
        let state: &'static SimplerHostLogState = Box::leak(Box::new(fresh()));
        state.log_directory_bound.store(7, Ordering::Relaxed);
        state.sink_producer_state.store(simpler_log_abi::PRODUCERS_CLOSED, Ordering::Relaxed);
        let pipe = support::StderrPipe::install(None);
        assert_eq!(plugin.bind(state), 0);
        plugin.text(1);
        // Bound to a directory that has no name, and half bound.
        for word in [1, -1] {
            let state: &'static SimplerHostLogState = Box::leak(Box::new(fresh()));
            state.log_directory_bound.store(word, Ordering::Relaxed);
            assert_eq!(plugin.bind(state), 0);
            assert_eq!(state.log_directory_bound.load(Ordering::Relaxed), 0, "{word}");
            plugin.text(2);
        }
        pipe.restore();
        let lines = support::lines(&pipe.read_to_end());
        let said = |line: &String| match line.split(" from the ").nth(1) {
            Some(text) => text.to_owned(),
            None => "anchor".to_owned(),
        };
        let said: Vec<String> = lines.iter().map(said).collect();
        assert_eq!(said, ["anchor", "plugin 1", "anchor", "plugin 2", "anchor", "plugin 2"]);
    });
}

#[test]
fn a_bound_copy_never_stops_a_writer_that_it_does_not_own() {
    with_two_copies("a_bound_copy_never_stops_a_writer_that_it_does_not_own", || {
        let dir = log_to_folder();
        log::set_threshold(Threshold::INFO);
        let plugin = Plugin::loaded_and_bound();
        let writers = || {
            let names = std::fs::read_dir("/proc/self/task")
                .unwrap()
                .map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).unwrap_or_default());
            names.filter(|name| name.trim_end() == "simpler-log").count()
        };
        assert_eq!(plugin.ask("plugin_quiesce"), 0, "a writer lives");
        assert_eq!(writers(), 1);
        plugin.text(1);
        log::start_writer().unwrap();
        assert_eq!(writers(), 1);
        log::prepare_to_fork(DRAIN).unwrap();
        assert_eq!(plugin.ask("plugin_quiesce"), 1);
        log::start_writer().unwrap();
        plugin.text(2);
        log::close(DRAIN);
        let lines = lines_of(dir.path(), log::pid());
        assert_eq!(lines.iter().filter(|line| line.contains(" from the plugin ")).count(), 2);
        assert_eq!(log::counts().dropped, 0);
    });
}
