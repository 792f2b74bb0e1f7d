//! A C plugin with a state and no writer: what it writes by itself, refuses, and counts.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail where it stands")]

extern crate host_log as simpler_host_log;

mod support;

use std::ffi::{c_char, c_int, c_void};
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use simpler_log_abi::{
    LOG_DIRECTORY_BYTES, Level, PRODUCERS_CLOSED, SimplerHostLogEnqueueFn, SimplerHostLogState,
    SimplerHostSpan, Threshold,
};
use simpler_record_format::frame;
use support::owner::{
    StderrPipe, envelope, fork, in_own_process, lines, lines_of, log_file, reap, shared_words, spans,
    the_anchor,
};
use support::{Plugin, bind_directory, build, build_plugin, lone_state, lost};

fn pid() -> i32 {
    std::process::id() as i32
}

/// What `body` writes to stderr, as lines that are all records.
fn on_stderr(body: impl FnOnce()) -> Vec<String> {
    let pipe = StderrPipe::install(None);
    body();
    pipe.restore();
    lines(&pipe.read_to_end())
}

/// The text behind the envelope.
fn bodies(lines: &[String]) -> Vec<&str> {
    lines.iter().map(|line| envelope(line).1).collect()
}

#[test]
fn a_plugin_is_silent_until_it_is_bound() {
    in_own_process("a_plugin_is_silent_until_it_is_bound", || {
        let plugin = Plugin::load();
        let seen = on_stderr(|| {
            plugin.call("plugin_levels");
            plugin.call_with("plugin_tree", 1);
            plugin.invocation(1);
            plugin.call_with("plugin_second", 1);
        });
        assert_eq!(seen, [""; 0]);
        assert_eq!(plugin.ask("plugin_enabled", Level::Error as i32), 0);
    });
}

#[test]
fn one_bind_serves_both_files_of_the_plugin() {
    in_own_process("one_bind_serves_both_files_of_the_plugin", || {
        for compiler in build::compilers() {
            let folder = tempfile::tempdir().unwrap();
            let plugin = Plugin::open(&build_plugin(folder.path(), compiler, &[]));
            let state = lone_state(Threshold::INFO);
            let seen = on_stderr(|| {
                assert_eq!(plugin.bind(state), 0);
                plugin.call_with("plugin_log", 7);
                plugin.call_with("plugin_second", 8);
            });
            the_anchor(&seen);
            let (first, text) = envelope(&seen[1]);
            assert_eq!(
                (first.func, first.level, text),
                (&b"plugin_log"[..], Level::Info, "[plugin.c:6] n=7")
            );
            let (second, text) = envelope(&seen[2]);
            assert_eq!((second.func, second.level), (&b"plugin_second"[..], Level::Error));
            assert_eq!((text, seen.len()), ("[second.c:6] second file 8", 3));
        }
    });
}

#[test]
fn what_is_below_the_threshold_is_muted_and_not_evaluated() {
    in_own_process("what_is_below_the_threshold_is_muted_and_not_evaluated", || {
        let plugin = Plugin::load();
        let state = lone_state(Threshold::WARN);
        assert_eq!(plugin.bind(state), 0);
        let seen = on_stderr(|| {
            plugin.call("plugin_levels");
            plugin.call_with("plugin_tree", 1);
            assert_eq!(plugin.ask("plugin_evaluations", 0), 0);
            assert_eq!(plugin.ask("plugin_spans_enabled", 0), 0);
            // The threshold is live, and NUL mutes even errors.
            state.threshold.store(Threshold::NUL.get(), Ordering::Relaxed);
            plugin.call("plugin_levels");
            state.threshold.store(Threshold::TIMING.get(), Ordering::Relaxed);
            plugin.call("plugin_levels");
            assert_eq!(plugin.ask("plugin_spans_enabled", 0), 1);
        });
        // The anchor is a TIMING record: it comes when it is first let through.
        let texts = bodies(&seen);
        assert_eq!(texts[..2], ["warn 30", "error 40"]);
        assert!(texts[2].starts_with("[CLOCK_ANCHOR] v=1 "), "{texts:?}");
        assert_eq!(texts[3..], ["timing 25", "warn 30", "error 40"]);
    });
}

#[test]
fn a_bind_refuses_null_and_thresholds_off_the_ladder_and_nothing_else() {
    in_own_process("a_bind_refuses_null_and_thresholds_off_the_ladder_and_nothing_else", || {
        let plugin = Plugin::load();
        assert_eq!(plugin.bind(std::ptr::null()), 1);
        let seen = on_stderr(|| {
            for threshold in (-100..100).chain([i32::MIN, i32::MAX]) {
                let state = lone_state(Threshold::NUL);
                state.threshold.store(threshold, Ordering::Relaxed);
                let expected = if Threshold::from_ladder(threshold).is_some() { 0 } else { 2 };
                assert_eq!(plugin.bind(state), expected, "threshold {threshold}");
            }
            // The last state that was bound is NUL's: the refused ones changed nothing.
            plugin.call("plugin_levels");
        });
        assert_eq!(seen, [""; 0]);
    });
}

#[test]
fn a_claim_of_the_anchor_that_nobody_finishes_does_not_keep_it_out() {
    in_own_process("a_claim_of_the_anchor_that_nobody_finishes_does_not_keep_it_out", || {
        let plugin = Plugin::load();
        for garbage in [-pid(), i32::MIN, i32::MAX, -1, 1] {
            let state = lone_state(Threshold::INFO);
            state.clock_anchor_pid.store(garbage, Ordering::Relaxed);
            let seen = on_stderr(|| {
                assert_eq!(plugin.bind(state), 0);
                plugin.call_with("plugin_log", 1);
                plugin.call_with("plugin_log", 2);
            });
            the_anchor(&seen);
            assert_eq!(seen.len(), 3, "garbage {garbage}: {seen:#?}");
            assert_eq!(state.clock_anchor_pid.load(Ordering::Relaxed), pid());
        }
    });
}

#[test]
fn a_claim_of_the_anchor_that_is_being_worked_on_is_left_alone() {
    in_own_process("a_claim_of_the_anchor_that_is_being_worked_on_is_left_alone", || {
        let plugin = Plugin::load();
        let state = lone_state(Threshold::INFO);
        state.clock_anchor_pid.store(-pid(), Ordering::Relaxed);
        std::thread::scope(|scope| {
            // Whoever is at it finishes while the bind looks.
            scope.spawn(|| state.clock_anchor_pid.store(pid(), Ordering::Release));
            assert_eq!(plugin.bind(state), 0);
        });
        assert_eq!(state.clock_anchor_pid.load(Ordering::Relaxed), pid());
    });
}

#[test]
fn directory_words_that_mean_nothing_are_put_right() {
    in_own_process("directory_words_that_mean_nothing_are_put_right", || {
        let plugin = Plugin::load();
        // None of the three values, and bound without a path.
        for (word, fill, after) in
            [(7, b'x', 0), (-2, b'x', 0), (i32::MIN, b'x', 0), (1, 0, 0), (-1, b'x', 0)]
        {
            let state = lone_state(Threshold::INFO);
            state.log_directory_bound.store(word, Ordering::Relaxed);
            state.log_directory.iter().for_each(|byte| byte.store(fill, Ordering::Relaxed));
            let seen = on_stderr(|| {
                assert_eq!(plugin.bind(state), 0);
                plugin.call_with("plugin_log", 1);
            });
            assert_eq!(seen.len(), 2, "{word}: not bound, so stderr: {seen:#?}");
            assert_eq!(state.log_directory_bound.load(Ordering::Relaxed), after);
            assert_eq!(lost(state), [0; 4]);
        }
        // A path without an end is bounded, and cannot be used.
        let state = lone_state(Threshold::INFO);
        state.log_directory_bound.store(1, Ordering::Relaxed);
        state.log_directory.iter().for_each(|byte| byte.store(b'/', Ordering::Relaxed));
        state.log_directory[1].store(b'n', Ordering::Relaxed);
        assert_eq!(plugin.bind(state), 0);
        assert_eq!(state.log_directory[LOG_DIRECTORY_BYTES - 1].load(Ordering::Relaxed), 0);
        let seen = on_stderr(|| plugin.call_with("plugin_log", 1));
        assert_eq!((seen.len(), lost(state)), (0, [0, 0, 2, 0]));
    });
}

#[test]
fn a_gate_that_is_closed_without_an_owner_is_opened() {
    in_own_process("a_gate_that_is_closed_without_an_owner_is_opened", || {
        let plugin = Plugin::load();
        let state = lone_state(Threshold::INFO);
        state.sink_producer_state.store(PRODUCERS_CLOSED, Ordering::Relaxed);
        let seen = on_stderr(|| {
            assert_eq!(plugin.bind(state), 0);
            plugin.call_with("plugin_log", 1);
        });
        assert_eq!((seen.len(), lost(state)), (2, [0; 4]));
        // With an owner it is meant: a quiesce is under way.
        state.sink_owner_pid.store(-pid(), Ordering::Relaxed);
        state.sink_producer_state.store(PRODUCERS_CLOSED, Ordering::Relaxed);
        assert_eq!(plugin.bind(state), 0);
        assert_eq!(state.sink_producer_state.load(Ordering::Relaxed), PRODUCERS_CLOSED);
    });
}

#[test]
fn spans_without_an_owner_are_rendered_by_the_plugin() {
    in_own_process("spans_without_an_owner_are_rendered_by_the_plugin", || {
        let plugin = Plugin::load();
        let state = lone_state(Threshold::TIMING);
        // No context is offered, and a number that would mean none.
        state.next_invocation_id.store(0, Ordering::Relaxed);
        assert_eq!(plugin.bind(state), 0);
        let seen = on_stderr(|| {
            plugin.call_with("plugin_tree", 5);
            plugin.invocation(9);
        });
        the_anchor(&seen);
        let spans = spans(&seen);
        let names: Vec<&str> = spans.iter().map(|span| span.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "ext.plugin.outer.inner",
                "ext.plugin.outer.open",
                "ext.plugin.outer",
                "plugin_run.bind",
                "plugin_run"
            ]
        );
        assert_eq!(spans[2].attrs, "n=5 kind=dense");
        // SAFETY: no preconditions.
        let tid = i64::from(unsafe { libc::gettid() });
        for span in &spans {
            assert_eq!((span.inv, span.hid, span.depth), (0, 0, 0));
            assert_eq!((span.pid, span.tid), (i64::from(pid()), tid));
            assert!(span.dur >= 0 && span.ts > 0);
        }
        assert!(seen[1..].iter().all(|line| line.contains("][TIMING] emit_host_span: [STRACE] v=1 ")));
    });
}

#[test]
fn a_bound_directory_is_the_destination() {
    in_own_process("a_bound_directory_is_the_destination", || {
        let plugin = Plugin::load();
        let folder = tempfile::tempdir().unwrap();
        let state = lone_state(Threshold::INFO);
        bind_directory(state, folder.path());
        assert_eq!(plugin.bind(state), 0);
        let seen = on_stderr(|| {
            plugin.call_with("plugin_log", 1);
            plugin.call_with("plugin_tree", 1);
        });
        assert_eq!(seen, [""; 0]);
        let lines = lines_of(folder.path(), pid());
        the_anchor(&lines);
        assert_eq!((lines.len(), lost(state)), (5, [0; 4]));
    });
}

#[test]
fn what_a_bound_directory_cannot_take_is_lost_and_counted() {
    in_own_process("what_a_bound_directory_cannot_take_is_lost_and_counted", || {
        let plugin = Plugin::load();
        let state = lone_state(Threshold::WARN);
        bind_directory(state, Path::new("/proc/self/no-such-folder"));
        assert_eq!(plugin.bind(state), 0);
        let seen = on_stderr(|| plugin.log_many(0, 3));
        assert_eq!((seen.len(), lost(state)), (0, [0, 0, 3, 0]));
        // Spans and the anchor, which is tried again with each record.
        state.threshold.store(Threshold::TIMING.get(), Ordering::Relaxed);
        let seen = on_stderr(|| plugin.invocation(1));
        assert_eq!((seen.len(), lost(state)), (0, [0, 0, 7, 0]));
        assert_eq!(state.clock_anchor_pid.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn a_full_disk_never_tears_a_line() {
    in_own_process("a_full_disk_never_tears_a_line", || {
        let plugin = Plugin::load();
        let folder = tempfile::tempdir().unwrap();
        let state = lone_state(Threshold::WARN);
        bind_directory(state, folder.path());
        assert_eq!(plugin.bind(state), 0);
        plugin.log_many(100, 1);
        let record = std::fs::metadata(log_file(folder.path(), pid())).unwrap().len();
        // Room for two and a half records more.
        let limit = libc::rlimit { rlim_cur: record * 7 / 2, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: without it the limit would end the process.
        unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
        // SAFETY: a valid limit.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) }, 0);
        plugin.log_many(101, 5);
        let lines = lines_of(folder.path(), pid());
        assert_eq!((lines.len(), lost(state)), (3, [0, 0, 3, 0]));
    });
}

extern "C" fn interrupt(_signal: c_int) {}

#[test]
fn an_interrupted_or_unready_stderr_still_gets_whole_records() {
    in_own_process("an_interrupted_or_unready_stderr_still_gets_whole_records", || {
        // Shared with the threads that log, and never unloaded under them.
        let plugin: &Plugin = Box::leak(Box::new(Plugin::load()));
        let state = lone_state(Threshold::WARN);
        assert_eq!(plugin.bind(state), 0);
        // SAFETY: an action of zeroes has no flags, so that calls are interrupted and not restarted.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = interrupt as *const () as usize;
        // SAFETY: a valid action.
        assert_eq!(unsafe { libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()) }, 0);
        for nonblocking in [0, libc::O_NONBLOCK] {
            let mut ends = [0; 2];
            // SAFETY: room for two descriptors.
            assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) }, 0);
            // SAFETY: one readable byte.
            while unsafe { libc::write(ends[1], b"x".as_ptr().cast(), 1) } == 1 {}
            for (end, flags) in [(ends[0], 0), (ends[1], nonblocking)] {
                // SAFETY: flags of our own pipe.
                assert_eq!(unsafe { libc::fcntl(end, libc::F_SETFL, flags) }, 0);
            }
            // SAFETY: duplicates descriptor 2.
            let real_stderr = unsafe { libc::fcntl(2, libc::F_DUPFD_CLOEXEC, 3) };
            // SAFETY: puts the pipe in the place of stderr.
            assert_eq!(unsafe { libc::dup2(ends[1], 2) }, 2);
            let (sender, receiver) = std::sync::mpsc::channel();
            let writer = std::thread::spawn(move || {
                // SAFETY: no preconditions.
                sender.send(unsafe { libc::pthread_self() }).unwrap();
                plugin.log_many(1, 3);
            });
            let thread = receiver.recv().unwrap();
            for _ in 0..1000 {
                // SAFETY: the thread waits for the pipe, which stays full until it is read below.
                assert_eq!(unsafe { libc::pthread_kill(thread, libc::SIGUSR1) }, 0);
                std::thread::yield_now();
            }
            // SAFETY: the reading end, which is ours alone.
            let mut reading = std::fs::File::from(unsafe { OwnedFd::from_raw_fd(ends[0]) });
            let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
            while !bytes.ends_with(b"record 3 of the plugin\n") {
                let taken = reading.read(&mut piece).unwrap();
                bytes.extend(&piece[..taken]);
            }
            writer.join().unwrap();
            // SAFETY: puts the real stderr back.
            assert_eq!(unsafe { libc::dup2(real_stderr, 2) }, 2);
            let records = lines(&bytes[bytes.iter().take_while(|byte| **byte == b'x').count()..]);
            assert_eq!((records.len(), lost(state)), (3, [0; 4]), "{records:#?}");
        }
    });
}

#[test]
fn an_anchor_follows_a_late_directory() {
    in_own_process("an_anchor_follows_a_late_directory", || {
        let plugin = Plugin::load();
        let folder = tempfile::tempdir().unwrap();
        let state = lone_state(Threshold::INFO);
        assert_eq!(plugin.bind(state), 0);
        let early = on_stderr(|| plugin.call_with("plugin_log", 1));
        bind_directory(state, folder.path());
        plugin.call_with("plugin_log", 2);
        plugin.call_with("plugin_log", 3);
        let late = lines_of(folder.path(), pid());
        assert_eq!(the_anchor(&late), the_anchor(&early));
        assert_eq!((early.len(), late.len()), (2, 3));
    });
}

#[test]
fn a_forked_child_has_its_own_file_and_its_own_anchor() {
    in_own_process("a_forked_child_has_its_own_file_and_its_own_anchor", || {
        let plugin = Plugin::load();
        let folder = tempfile::tempdir().unwrap();
        let state = lone_state(Threshold::INFO);
        bind_directory(state, folder.path());
        assert_eq!(plugin.bind(state), 0);
        plugin.call_with("plugin_log", 1);
        let child = fork(|| plugin.call_with("plugin_log", 2));
        reap(child);
        plugin.call_with("plugin_log", 3);
        for (process, expected) in [(pid(), 3), (child, 2)] {
            let lines = lines_of(folder.path(), process);
            assert!(the_anchor(&lines).contains(&format!("pid={process} ")), "{lines:#?}");
            assert_eq!(lines.len(), expected);
        }
    });
}

#[test]
fn errno_is_as_it_was_and_percent_m_means_the_callers() {
    in_own_process("errno_is_as_it_was_and_percent_m_means_the_callers", || {
        let plugin = Plugin::load();
        let state = lone_state(Threshold::DEBUG);
        // Unbound, on stderr, in a folder that fails, and refused by the gate.
        assert_eq!(plugin.ask("plugin_errno", libc::EXDEV), libc::EXDEV);
        state.clock_anchor_pid.store(-pid(), Ordering::Relaxed);
        assert_eq!(plugin.bind(state), 0);
        let seen = on_stderr(|| assert_eq!(plugin.ask("plugin_errno", libc::EXDEV), libc::EXDEV));
        assert!(envelope(&seen[1]).1 == "Invalid cross-device link", "{seen:#?}");
        bind_directory(state, Path::new("/proc/self/no-such-folder"));
        assert_eq!(plugin.ask("plugin_errno", libc::EXDEV), libc::EXDEV);
        state.sink_owner_pid.store(1, Ordering::Relaxed);
        assert_eq!(plugin.ask("plugin_errno", libc::EXDEV), libc::EXDEV);
        assert_eq!(lost(state), [0, 0, 6, 6]);
    });
}

#[test]
fn null_and_endless_and_unprintable_arguments_are_records_too() {
    in_own_process("null_and_endless_and_unprintable_arguments_are_records_too", || {
        let plugin = Plugin::load();
        let state = lone_state(Threshold::WARN);
        assert_eq!(plugin.bind(state), 0);
        let pipe = StderrPipe::install(None);
        plugin.text(None, Some(b"no name"));
        plugin.text(Some(b"f"), None);
        plugin.text(Some(b"a::b\n"), Some(b"%d\n%d\r%d\n"));
        plugin.text(Some(&[b'f'; 5000]), Some(b"never seen"));
        plugin.text(Some(b"f"), Some(&[b'b'; 5000]));
        plugin.text(Some(b"f"), Some(b"\xff\x01\t"));
        pipe.restore();
        let bytes = pipe.read_to_end();
        let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
        let ends = |index: usize, end: &[u8]| {
            assert!(lines[index].ends_with(end), "{index}: {:?}", lines[index].escape_ascii().to_string())
        };
        assert_eq!(lines.len(), 6);
        ends(0, b"] ?: no name\n");
        ends(1, b"] f: (null)\n");
        ends(2, b"] a..b : 1\\n2\\r3\n");
        ends(3, b"ff~\n");
        ends(4, b"bb~\n");
        ends(5, b"] f: \xff\x01\t\n");
        assert_eq!((lines[3].len(), lines[4].len()), (512, 512));
        // Spans without a name are nothing, whichever way they have none.
        state.threshold.store(Threshold::TIMING.get(), Ordering::Relaxed);
        let mut span = SimplerHostSpan {
            inv: 0,
            hid: 0,
            depth: 0,
            reserved: 0,
            ts: 0,
            dur: 0,
            name: std::ptr::null(),
            attrs: std::ptr::null(),
        };
        let seen = on_stderr(|| {
            plugin.raw_span(std::ptr::null());
            plugin.raw_span(&span);
            span.name = c"".as_ptr();
            plugin.raw_span(&span);
        });
        assert_eq!((seen.len(), lost(state)), (0, [0; 4]));
    });
}

/// How often the callback below refuses before it accepts.
static REFUSALS: AtomicUsize = AtomicUsize::new(0);
static CALLS: AtomicUsize = AtomicUsize::new(0);
static LAST_SIZE: AtomicUsize = AtomicUsize::new(0);
static FIRST_BYTE: AtomicI32 = AtomicI32::new(0);
static LAST_ANCHOR: AtomicI32 = AtomicI32::new(0);

/// An owner's callback that keeps what it is told.
unsafe extern "C" fn callback(
    _context: *mut c_void,
    state: *mut SimplerHostLogState,
    record: *const c_char,
    size: u32,
    anchor_pid: i32,
) -> c_int {
    // SAFETY: the plugin hands in the state that it is bound to.
    let state = unsafe { &*state };
    assert_eq!(state.sink_producer_state.load(Ordering::Acquire), 1, "the caller has entered");
    // SAFETY: at least one byte.
    FIRST_BYTE.store(i32::from(unsafe { *record } as u8), Ordering::Relaxed);
    CALLS.fetch_add(1, Ordering::Relaxed);
    LAST_SIZE.store(size as usize, Ordering::Relaxed);
    LAST_ANCHOR.store(anchor_pid, Ordering::Relaxed);
    let refuses = REFUSALS.load(Ordering::Relaxed) > 0;
    if refuses {
        REFUSALS.fetch_sub(1, Ordering::Relaxed);
        state.dropped_by_reason[0].fetch_add(1, Ordering::Relaxed);
        state.dropped_record_count.fetch_add(1, Ordering::Relaxed);
    }
    state.sink_producer_state.fetch_sub(1, Ordering::AcqRel);
    c_int::from(!refuses)
}

fn publish_callback(state: &SimplerHostLogState) {
    let function: SimplerHostLogEnqueueFn = callback;
    state.sink_context.store(std::ptr::from_ref(state).cast_mut().cast(), Ordering::Release);
    state.sink_enqueue.store(function as *mut c_void, Ordering::Release);
    state.sink_owner_pid.store(pid(), Ordering::Release);
}

#[test]
fn a_sink_gets_lines_and_frames_and_the_callee_leaves() {
    in_own_process("a_sink_gets_lines_and_frames_and_the_callee_leaves", || {
        let plugin = Plugin::load();
        let state = lone_state(Threshold::TIMING);
        publish_callback(state);
        assert_eq!(plugin.bind(state), 0);
        let calls = || CALLS.swap(0, Ordering::Relaxed);
        // An anchor that is refused is tried again by the next record, and once accepted never again.
        REFUSALS.store(1, Ordering::Relaxed);
        plugin.log_many(0, 1);
        assert_eq!((calls(), state.clock_anchor_pid.load(Ordering::Relaxed)), (2, 0));
        plugin.log_many(0, 1);
        assert_eq!((calls(), state.clock_anchor_pid.load(Ordering::Relaxed)), (2, pid()));
        plugin.log_many(0, 1);
        assert_eq!((calls(), LAST_ANCHOR.load(Ordering::Relaxed)), (1, 0));
        assert_eq!(FIRST_BYTE.load(Ordering::Relaxed), i32::from(b'['));
        plugin.invocation(1);
        assert_eq!((calls(), FIRST_BYTE.load(Ordering::Relaxed)), (2, i32::from(frame::SPAN_FRAME)));
        assert_eq!(LAST_SIZE.load(Ordering::Relaxed), frame::SPAN_HEAD_BYTES + "plugin_run".len());
        assert_eq!((lost(state), state.sink_producer_state.load(Ordering::Acquire)), ([1, 0, 0, 0], 0));
    });
}

#[test]
fn without_a_usable_sink_records_are_not_admitted() {
    in_own_process("without_a_usable_sink_records_are_not_admitted", || {
        let plugin = Plugin::load();
        let state = lone_state(Threshold::WARN);
        publish_callback(state);
        assert_eq!(plugin.bind(state), 0);
        let refused = |expected: u64| {
            let seen = on_stderr(|| plugin.log_many(0, 1));
            assert_eq!((seen.len(), CALLS.load(Ordering::Relaxed)), (0, 0));
            assert_eq!(lost(state), [0, 0, 0, expected]);
        };
        // Another process's, being stopped, and being started.
        state.sink_owner_pid.store(pid() + 1, Ordering::Release);
        refused(1);
        state.sink_owner_pid.store(-pid(), Ordering::Release);
        refused(2);
        state.sink_owner_pid.store(pid(), Ordering::Release);
        state.sink_producer_state.store(PRODUCERS_CLOSED, Ordering::Release);
        refused(3);
        assert_eq!(state.sink_producer_state.swap(0, Ordering::AcqRel), PRODUCERS_CLOSED, "left again");
        // Half a sink is none.
        let context = state.sink_context.swap(std::ptr::null_mut(), Ordering::AcqRel);
        refused(4);
        state.sink_context.store(context, Ordering::Release);
        state.sink_enqueue.store(std::ptr::null_mut(), Ordering::Release);
        refused(5);
        assert_eq!(state.sink_producer_state.load(Ordering::Acquire), 0);
    });
}

/// Counts what is told about an anchor: loses it as the owner's writer would, and has another thread claim it.
unsafe extern "C" fn losing_callback(
    _context: *mut c_void,
    state: *mut SimplerHostLogState,
    _record: *const c_char,
    _size: u32,
    anchor_pid: i32,
) -> c_int {
    // SAFETY: the plugin hands in the state that it is bound to.
    let state = unsafe { &*state };
    if anchor_pid != 0 {
        let word = &state.clock_anchor_pid;
        LAST_ANCHOR.store(word.swap(0, Ordering::AcqRel), Ordering::Relaxed);
        word.store(-anchor_pid, Ordering::Release);
    }
    state.sink_producer_state.fetch_sub(1, Ordering::AcqRel);
    1
}

#[test]
fn an_anchor_that_the_writer_has_lost_meanwhile_is_not_taken_for_done() {
    in_own_process("an_anchor_that_the_writer_has_lost_meanwhile_is_not_taken_for_done", || {
        let plugin = Plugin::load();
        let state = lone_state(Threshold::TIMING);
        publish_callback(state);
        let function: SimplerHostLogEnqueueFn = losing_callback;
        state.sink_enqueue.store(function as *mut c_void, Ordering::Release);
        assert_eq!(plugin.bind(state), 0);
        plugin.log_many(0, 1);
        // It was done as soon as it was handed in, and what another thread is at now stays that thread's.
        assert_eq!(LAST_ANCHOR.load(Ordering::Relaxed), pid());
        assert_eq!(state.clock_anchor_pid.load(Ordering::Relaxed), -pid());
    });
}

#[test]
fn where_a_record_is_refused_the_anchor_is_not_tried() {
    in_own_process("where_a_record_is_refused_the_anchor_is_not_tried", || {
        let plugin = Plugin::load();
        let state = lone_state(Threshold::TIMING);
        publish_callback(state);
        assert_eq!(plugin.bind(state), 0);
        let owners = [(pid() + 1, 0), (-pid(), 0), (pid(), PRODUCERS_CLOSED), (0, PRODUCERS_CLOSED)];
        for (count, (owner, gate)) in (1..).zip(owners) {
            state.sink_owner_pid.store(owner, Ordering::Release);
            state.sink_producer_state.store(gate, Ordering::Release);
            plugin.log_many(0, 1);
            assert_eq!(lost(state), [0, 0, 0, count], "{owner} {gate:x}");
            assert_eq!(state.clock_anchor_pid.load(Ordering::Relaxed), 0);
        }
        assert_eq!(CALLS.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn a_level_is_rounded_and_evaluated_once_and_nul_mutes_every_number() {
    in_own_process("a_level_is_rounded_and_evaluated_once_and_nul_mutes_every_number", || {
        let plugin = Plugin::load();
        let state = lone_state(Threshold::NUL);
        assert_eq!(plugin.bind(state), 0);
        let seen = on_stderr(|| {
            for level in [i32::MIN, 5, 10, 40, 59, 60, 100, i32::MAX] {
                assert_eq!((plugin.ask("plugin_at", level), plugin.ask("plugin_enabled", level)), (1, 0));
            }
            state.threshold.store(Threshold::ERROR.get(), Ordering::Relaxed);
            for level in [i32::MIN, 39, 40, 60, i32::MAX] {
                assert_eq!(plugin.ask("plugin_at", level), 1);
                assert_eq!(plugin.ask("plugin_enabled", level), i32::from(level >= 40), "{level}");
            }
            state.threshold.store(Threshold::DEBUG.get(), Ordering::Relaxed);
            for level in [i32::MIN, 5] {
                assert_eq!((plugin.ask("plugin_at", level), plugin.ask("plugin_enabled", level)), (1, 1));
            }
        });
        let levels: Vec<(Level, i32)> = seen
            .iter()
            .map(|line| envelope(line))
            .filter_map(|(envelope, text)| {
                Some((envelope.level, text.split_once("] at ")?.1.parse().unwrap()))
            })
            .collect();
        let expected = [(40, 40), (40, 60), (40, i32::MAX), (10, i32::MIN), (10, 5)];
        assert_eq!(levels, expected.map(|(level, number)| (Level::round_record(level), number)));
    });
}

#[test]
fn the_anchor_comes_first_where_threads_race_at_once() {
    in_own_process("the_anchor_comes_first_where_threads_race_at_once", || {
        let plugin = Plugin::load();
        for _ in 0..200 {
            let folder = tempfile::tempdir().unwrap();
            let child = fork(|| {
                let state = lone_state(Threshold::TIMING);
                bind_directory(state, folder.path());
                assert_eq!(plugin.bind(state), 0);
                let start = std::sync::Barrier::new(8);
                std::thread::scope(|scope| {
                    for number in 0..8 {
                        let (plugin, start) = (&plugin, &start);
                        scope.spawn(move || {
                            start.wait();
                            plugin.log_many(number, 1);
                        });
                    }
                });
            });
            reap(child);
            let lines = lines_of(folder.path(), child);
            the_anchor(&lines);
            assert_eq!(lines.len(), 9);
        }
    });
}

#[test]
fn a_stderr_that_is_a_file_is_not_torn_by_a_full_disk() {
    in_own_process("a_stderr_that_is_a_file_is_not_torn_by_a_full_disk", || {
        let plugin = Plugin::load();
        let folder = tempfile::tempdir().unwrap();
        let limit_files_to = |bytes| {
            let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
            // SAFETY: a valid limit.
            assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) }, 0);
        };
        // Appended to, as `2>>file` does, and written from the beginning, as `2>file` does.
        for appends in [true, false] {
            let path = folder.path().join(format!("stderr {appends}"));
            let child = fork(|| {
                let mut how = std::fs::OpenOptions::new();
                let file = how.write(true).append(appends).create(true).open(&path).unwrap();
                // SAFETY: both are open.
                assert_eq!(unsafe { libc::dup2(file.as_raw_fd(), 2) }, 2);
                let state = lone_state(Threshold::WARN);
                assert_eq!(plugin.bind(state), 0);
                limit_files_to(1033);
                plugin.log_many(100, 50);
                let refused = lost(state);
                assert!(refused[2] > 0 && refused[2] < 50);
                limit_files_to(libc::RLIM_INFINITY);
                plugin.log_many(200, 50);
                assert_eq!(lost(state), refused);
            });
            reap(child);
            let lines = lines(&std::fs::read(&path).unwrap());
            let numbers: Vec<usize> =
                bodies(&lines).iter().map(|text| text.rsplit(' ').nth(3).unwrap().parse().unwrap()).collect();
            let first = numbers.iter().filter(|number| **number < 200).count();
            assert!(first > 1, "{numbers:?}");
            assert_eq!(numbers, (100..100 + first).chain(200..250).collect::<Vec<_>>());
        }
    });
}

#[test]
fn a_child_closes_the_file_that_a_thread_of_its_parent_had_open() {
    in_own_process("a_child_closes_the_file_that_a_thread_of_its_parent_had_open", || {
        let plugin = Plugin::load();
        let folder = tempfile::tempdir().unwrap();
        let state = lone_state(Threshold::WARN);
        bind_directory(state, folder.path());
        assert_eq!(plugin.bind(state), 0);
        let path = log_file(folder.path(), pid());
        let open = || {
            let all = std::fs::read_dir("/proc/self/fd").unwrap();
            all.filter(|entry| {
                std::fs::read_link(entry.as_ref().unwrap().path()).is_ok_and(|file| file == path)
            })
            .count()
        };
        // A file of the test's own, and its lock, for which the plugin waits a while with its own file open.
        let lock = std::fs::File::create(&path).unwrap();
        let (inherited_files, mut forked_meanwhile) = (&shared_words()[0], false);
        for _ in 0..20 {
            lock.lock().unwrap();
            let child = std::thread::scope(|scope| {
                scope.spawn(|| plugin.log_many(0, 1));
                let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
                while open() < 2 && std::time::Instant::now() < deadline {
                    std::thread::yield_now();
                }
                let child = fork(|| {
                    let inherited = open();
                    plugin.log_many(1, 1);
                    // The test's own is none of the plugin's business.
                    assert!(open() == 1, "{} of {inherited} files", open());
                    inherited_files.store(inherited as u64, Ordering::Relaxed);
                });
                lock.unlock().unwrap();
                child
            });
            reap(child);
            forked_meanwhile |= inherited_files.load(Ordering::Relaxed) == 2;
            if forked_meanwhile {
                break;
            }
        }
        assert!(forked_meanwhile, "no child had the file");
        assert_eq!((lost(state), open()), ([0; 4], 1));
    });
}

#[test]
fn children_forked_while_threads_write_at_once_keep_no_file_of_their_parent() {
    in_own_process("children_forked_while_threads_write_at_once_keep_no_file_of_their_parent", || {
        let plugin = Plugin::load();
        let folder = tempfile::tempdir().unwrap();
        let state = lone_state(Threshold::WARN);
        bind_directory(state, folder.path());
        assert_eq!(plugin.bind(state), 0);
        let open = || {
            let all = std::fs::read_dir("/proc/self/fd").unwrap();
            let links = all.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
            links.filter(|file| file.starts_with(folder.path())).count()
        };
        let inherited = &shared_words()[0];
        let (is_over, mut children) = (AtomicI32::new(0), Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    while is_over.load(Ordering::Relaxed) == 0 {
                        plugin.log_many(0, 10);
                    }
                });
            }
            for _ in 0..100 {
                children.push(fork(|| {
                    inherited.fetch_add(open() as u64, Ordering::Relaxed);
                    plugin.log_many(0, 1);
                    assert_eq!(open(), 0);
                }));
            }
            is_over.store(1, Ordering::Relaxed);
        });
        children.into_iter().for_each(reap);
        assert!(inherited.load(Ordering::Relaxed) > 0, "no child had a file");
        assert_eq!(lost(state), [0; 4]);
    });
}

#[test]
fn readings_of_an_anchor_that_nobody_has_written_are_not_repeated() {
    in_own_process("readings_of_an_anchor_that_nobody_has_written_are_not_repeated", || {
        let plugin = Plugin::load();
        let folder = tempfile::tempdir().unwrap();
        let state = lone_state(Threshold::WARN);
        state.anchor_stderr_pid.store(pid(), Ordering::Relaxed);
        bind_directory(state, folder.path());
        assert_eq!(plugin.bind(state), 0);
        plugin.log_many(0, 1);
        assert_eq!(lines_of(folder.path(), pid()).len(), 1);
    });
}
