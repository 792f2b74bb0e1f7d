//! The spans that are open, as another process sees them: in one that hangs, one that is busy, and one that is dead.

#![cfg(feature = "host-strace")]
#![expect(clippy::unwrap_used, reason = "clippy does not take the functions beside the tests for tests")]

mod baton;
mod support;

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use baton::Baton;
use simpler_host_log::open_spans::{Found, OPEN_SPANS_MAX, Process, Thread, Whose, open_spans};
use simpler_host_log::{self as log, Config, Invocation, span};
use support::{DRAIN, fork, in_own_process, log_to_folder, reap, wait_for};

/// What two conversions of one reading of the counter may differ by, on a machine whose clock is slewed.
const CLOCK_ERROR_NS: i64 = 100_000;

/// The rings of this test.
fn rings() -> Vec<PathBuf> {
    let shm = PathBuf::from(std::env::var_os("SIMPLER_SHM").unwrap());
    // SAFETY: no preconditions.
    let folder = shm.join(format!("simpler-{}", unsafe { libc::geteuid() }));
    let mut rings: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    rings.sort();
    rings
}

fn found(whose: Whose<'_>) -> Found {
    open_spans(whose).unwrap()
}

/// The one process with this id.
fn the_process(pid: i32) -> Process {
    let Found { mut processes, refused } = found(Whose::Process(pid));
    assert_eq!((processes.len(), refused), (1, Vec::new()));
    processes.pop().unwrap()
}

fn names(thread: &Thread) -> Vec<&str> {
    thread.spans.iter().map(|span| span.name.as_str()).collect()
}

/// A child with a log in `directory` that has done `body` and stays where it is inside.
struct Hung {
    pid: i32,
}

impl Hung {
    fn start(directory: &Path, body: impl FnOnce(&dyn Fn())) -> Hung {
        let (ready, never) = (Baton::new(), Baton::new());
        let pid = fork(|| {
            log::init(&Config { directory: Some(directory), ..Config::default() }).unwrap();
            body(&|| {
                ready.pass(0);
                never.take();
            });
        });
        ready.take();
        Hung { pid }
    }

    /// Kills it, and waits until it is dead.
    fn kill(&self) {
        // SAFETY: our own child, not waited for yet.
        assert_eq!(unsafe { libc::kill(self.pid, libc::SIGKILL) }, 0);
        let mut status = 0;
        // SAFETY: room for the status.
        assert_eq!(unsafe { libc::waitpid(self.pid, &mut status, 0) }, self.pid);
    }
}

/// Runs `body` in a thread called `name`, and stays in it for ever.
fn spawn_named(name: &str, body: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().name(name.to_owned()).spawn(body).unwrap();
}

/// Three threads that hang inside spans, and this one without any.
fn hang_in_three_threads(hang: &dyn Fn()) {
    let all_there: &'static Barrier = Box::leak(Box::new(Barrier::new(4)));
    let stay = || loop {
        std::thread::park();
    };
    spawn_named("outer", move || {
        let _root = Invocation::begin("simpler_run", 0x5eed);
        all_there.wait();
        stay();
    });
    spawn_named("middle", move || {
        let _root = Invocation::begin("simpler_run", 0x5eed);
        let _bind = span!("simpler_run.bind", ntensor = 4);
        let _upload = span!("simpler_run.bind.upload");
        all_there.wait();
        stay();
    });
    spawn_named("outside", move || {
        let _lone = span!("a.name.that.is.longer.than.the.first.block.of.a.slot.can.hold");
        all_there.wait();
        stay();
    });
    all_there.wait();
    hang();
}

fn assert_three_hung_threads(process: &Process, range_ns: (i64, i64)) {
    let find = |name: &str, innermost: &str| -> &Thread {
        let is_it = |thread: &&Thread| match &thread.name {
            Some(given) => given == name,
            None => names(thread).last() == Some(&innermost),
        };
        process.threads.iter().find(is_it).unwrap_or_else(|| panic!("{name}: {process:#?}"))
    };
    let outer = find("outer", "simpler_run");
    let middle = find("middle", "simpler_run.bind.upload");
    let long = "a.name.that.is.longer.than.the.first.block.of.a.slot.can.hold";
    let outside = find("outside", long);
    assert_eq!(names(outer), ["simpler_run"]);
    assert_eq!(names(middle), ["simpler_run", "simpler_run.bind", "simpler_run.bind.upload"]);
    assert_eq!(names(outside), [long]);
    let context = |thread: &Thread| -> Vec<(u64, i32)> {
        thread.spans.iter().map(|span| (span.hid, span.depth)).collect()
    };
    assert_eq!(context(middle), [(0x5eed, 0), (0x5eed, 1), (0x5eed, 2)]);
    assert_eq!(context(outside), [(0, 0)]);
    let invocations: Vec<u64> = middle.spans.iter().map(|span| span.inv).collect();
    assert!(invocations[0] != 0 && invocations.iter().all(|inv| *inv == invocations[0]));
    assert_ne!(invocations[0], outer.spans[0].inv);
    for thread in [outer, middle, outside] {
        assert!(!thread.is_changing, "{thread:#?}");
        assert!(thread.spans.is_sorted_by_key(|span| span.since_ns));
        for span in &thread.spans {
            let (from, to) = range_ns;
            assert!((from - CLOCK_ERROR_NS..=to + CLOCK_ERROR_NS).contains(&span.since_ns), "{span:?}");
            assert_eq!(span.open_ns, process.seen_ns - span.since_ns);
        }
    }
    let innermost = |thread: &Thread| thread.spans.last().map(|span| span.open_ns);
    assert!(process.threads.is_sorted_by_key(|thread| std::cmp::Reverse(innermost(thread))), "{process:#?}");
}

fn a_hang_is_seen(clock: Option<&str>) {
    if let Some(clock) = clock {
        // SAFETY: no other thread looks at the environment.
        unsafe { std::env::set_var("SIMPLER_LOG_CLOCK", clock) };
    }
    let dir = tempfile::tempdir().unwrap();
    let before_ns = log::monotonic_ns();
    let hung = Hung::start(dir.path(), hang_in_three_threads);
    let hung_ns = log::monotonic_ns();
    let alive = the_process(hung.pid);
    let looked_ns = log::monotonic_ns();
    assert!(alive.is_alive && alive.is_of_this_namespace);
    assert!((hung_ns..=looked_ns).contains(&alive.seen_ns));
    assert_eq!(
        alive.log,
        Some(std::fs::canonicalize(dir.path()).unwrap().join(format!("host.{}.log", hung.pid)))
    );
    assert_three_hung_threads(&alive, (before_ns, hung_ns));
    let main = alive.threads.iter().find(|thread| thread.tid == hung.pid).expect("the anchor's thread");
    assert!(main.spans.is_empty() && !main.is_changing);
    assert!(alive.threads.last() == Some(main), "threads without spans come last");
    // As seen again later, nothing but the time has changed.
    let later = the_process(hung.pid);
    assert!(later.seen_ns > alive.seen_ns);
    assert_three_hung_threads(&later, (before_ns, hung_ns));

    hung.kill();
    let dead = the_process(hung.pid);
    assert!(!dead.is_alive);
    assert_three_hung_threads(&dead, (before_ns, hung_ns));
    assert_eq!(dead.threads.len(), 3, "only what is open is told of the dead");
    assert!(dead.threads.iter().all(|thread| thread.name.is_none()));
    // What nobody knows is not claimed: it was alive at least until its last sign of life.
    assert!(dead.looked_ns >= looked_ns && alive.looked_ns == alive.seen_ns);
    assert!(dead.seen_ns >= before_ns && dead.seen_ns <= dead.looked_ns, "{dead:#?}");
    for thread in &dead.threads {
        let then = alive.threads.iter().find(|then| then.tid == thread.tid).unwrap();
        for (span, then) in thread.spans.iter().zip(&then.spans) {
            assert!((span.since_ns - then.since_ns).abs() <= CLOCK_ERROR_NS, "{span:?} {then:?}");
            assert!((0..=dead.looked_ns - span.since_ns).contains(&span.open_ns), "{span:?} {then:?}");
        }
    }
    let by_directory = found(Whose::Directory(dir.path())).processes;
    assert_eq!(by_directory.len(), 1);
    assert_three_hung_threads(&by_directory[0], (before_ns, hung_ns));
}

#[test]
fn a_hang_is_seen_alive_and_dead() {
    in_own_process("a_hang_is_seen_alive_and_dead", || a_hang_is_seen(None));
}

#[test]
fn a_hang_is_seen_alive_and_dead_without_the_counter() {
    in_own_process("a_hang_is_seen_alive_and_dead_without_the_counter", || a_hang_is_seen(Some("gettime")));
}

#[test]
fn a_dead_process_was_alive_when_it_made_the_records_that_it_left() {
    in_own_process("a_dead_process_was_alive_when_it_made_the_records_that_it_left", || {
        let dir = tempfile::tempdir().unwrap();
        let last = Baton::new();
        let hung = Hung::start(dir.path(), |hang| {
            let _outer = span!("outer");
            log::flush(DRAIN).unwrap();
            // The writer comes no further than this, so the clock gets no knots.
            let _gap = log::diagnostics::open_gap().unwrap();
            let start = Instant::now();
            wait_for("that some time passes", || start.elapsed().as_millis() > 50);
            log::log_warn!("left");
            last.pass(0);
            hang();
        });
        last.take();
        hung.kill();
        let dead = the_process(hung.pid);
        let open_ns = dead.threads[0].spans[0].open_ns;
        assert!(open_ns >= 50_000_000 - CLOCK_ERROR_NS, "{open_ns}");
    });
}

#[test]
fn names_are_as_their_records_will_have_them() {
    in_own_process("names_are_as_their_records_will_have_them", || {
        let dir = log_to_folder();
        let names_given = [
            "x",
            "exactly.forty.four.bytes.of.a.name.are.these",
            "forty.five.bytes.of.a.name.are.altogether.the",
            "sixty.four.bytes.of.a.name.are.exactly.what.a.record.has.room.fo",
            "one.byte.more.than.sixty.four.of.a.name.is.marked.as.a.cut.one.ok",
            "a name with blanks, a tab\tand a line\nand so on, longer than a record has room for",
            "größe.in.μs",
        ];
        let open: Vec<_> = names_given.iter().map(|name| log::Span::enter(name)).collect();
        let seen = the_process(log::pid());
        let seen = names(thread_with_spans(&seen)).into_iter().map(str::to_owned).collect::<Vec<_>>();
        for span in open.into_iter().rev() {
            drop(span);
        }
        let mut recorded: Vec<String> =
            support::spans(&support::flushed_lines(dir.path())).into_iter().map(|span| span.name).collect();
        recorded.reverse();
        assert_eq!(seen, recorded);
        assert!(seen[4].ends_with('~') && seen[5].contains("%20"), "{seen:?}");
    });
}

/// The thread of this process that has open spans.
fn thread_with_spans(process: &Process) -> &Thread {
    let with_spans: Vec<&Thread> = process.threads.iter().filter(|thread| !thread.spans.is_empty()).collect();
    assert_eq!(with_spans.len(), 1, "{process:#?}");
    with_spans[0]
}

#[test]
fn a_process_without_open_spans_is_found() {
    in_own_process("a_process_without_open_spans_is_found", || {
        let dir = tempfile::tempdir().unwrap();
        let hung = Hung::start(dir.path(), |hang| {
            drop(span!("over"));
            hang();
        });
        let alive = the_process(hung.pid);
        assert_eq!((alive.threads.len(), alive.threads[0].spans.len()), (1, 0));
        hung.kill();
        let dead = the_process(hung.pid);
        assert!(!dead.is_alive && dead.threads.is_empty());
        assert_eq!(found(Whose::Process(i32::MAX)), Found::default());
    });
}

/// Names that tell their depth and their callable, of all lengths.
const TELLING: [[&str; 3]; 3] = [
    [
        "d0.h0",
        "d0.h1.bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb",
        "d0.h2.cccccccccccccccccccccccccccccccccccccccccccccccccc",
    ],
    ["d1.h0.aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "d1.h1", "d1.h2.ccccccccccccccccccccc"],
    [
        "d2.h0.aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        "d2.h1.bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb",
        "d2.h2",
    ],
];

/// Opens and closes spans until `is_over`, as fast as it can, under one that stays open.
fn be_busy(is_over: impl Fn() -> bool) {
    let _root = span!("busy.root");
    for hid in 0.. {
        if is_over() {
            return;
        }
        let names = |depth: usize| TELLING[depth][hid as usize % 3];
        let _root = Invocation::begin(names(0), hid);
        for _ in 0..hid % 3 {
            let _first = log::Span::enter(names(1));
            let _second = log::AttributedSpan::enter(names(2), |_| {});
        }
    }
}

/// What can be said of any picture of a busy process.
fn assert_whole(process: &Process, started_ns: i64) -> usize {
    let mut inner = 0;
    for thread in &process.threads {
        let Some((root, nested)) = thread.spans.split_first() else { continue };
        assert_eq!((root.name.as_str(), root.depth, root.inv), ("busy.root", 0, 0));
        for (depth, span) in nested.iter().enumerate() {
            assert_eq!(span.name, TELLING[depth][span.hid as usize % 3], "{thread:#?}");
            assert_eq!((span.depth, span.inv), (depth as i32, nested[0].inv), "{thread:#?}");
        }
        assert!(thread.spans.is_sorted_by_key(|span| span.since_ns), "{thread:#?}");
        for span in &thread.spans {
            assert!(span.since_ns >= started_ns - CLOCK_ERROR_NS, "{span:?}");
            assert!((0..=process.seen_ns - started_ns + CLOCK_ERROR_NS).contains(&span.open_ns), "{span:?}");
        }
        inner += nested.len();
    }
    inner
}

#[test]
fn a_busy_process_is_never_seen_torn() {
    const LOOKS: usize = 1000;
    /// Where a sanitizer makes each look slow, some less will do.
    const LOOKS_MIN: usize = 100;
    const ENOUGH: Duration = Duration::from_secs(10);
    in_own_process("a_busy_process_is_never_seen_torn", || {
        let dir = tempfile::tempdir().unwrap();
        let started_ns = log::monotonic_ns();
        let hung = Hung::start(dir.path(), |hang| {
            for _ in 0..3 {
                std::thread::spawn(|| be_busy(|| false));
            }
            hang();
        });
        wait_for("that all three are at it", || {
            let process = the_process(hung.pid);
            process.threads.iter().filter(|thread| !thread.spans.is_empty()).count() == 3
        });
        let (mut inner, mut roots, mut looks) = (0, 0, 0);
        let start = Instant::now();
        while looks < LOOKS_MIN || looks < LOOKS && start.elapsed() < ENOUGH {
            looks += 1;
            let process = the_process(hung.pid);
            inner += assert_whole(&process, started_ns);
            roots += process.threads.iter().filter(|thread| !thread.spans.is_empty()).count();
        }
        println!("{inner} inner spans and {roots} roots in {looks} looks");
        assert_eq!(roots, 3 * looks, "what stays open is always seen");
        assert!(inner > 0, "not one that is short was caught");
        hung.kill();
        // Wherever the kill has hit, what is left is whole.
        assert_whole(&the_process(hung.pid), started_ns);
    });
}

#[test]
fn a_process_looks_at_itself_and_keeps_its_lock() {
    in_own_process("a_process_looks_at_itself_and_keeps_its_lock", || {
        let started_ns = log::monotonic_ns();
        let dir = log_to_folder();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| be_busy(|| is_over.load(Ordering::Relaxed)));
            for _ in 0..200 {
                assert_whole(&the_process(log::pid()), started_ns);
                let found = found(Whose::Directory(dir.path()));
                assert_eq!(found.processes.len(), 1);
                assert_whole(&found.processes[0], started_ns);
            }
            is_over.store(true, Ordering::Relaxed);
        });
        let me = log::pid();
        log::prepare_to_fork(DRAIN).unwrap();
        reap(fork(|| assert!(the_process(me).is_alive, "for others, too")));
    });
}

#[test]
fn the_processes_of_a_directory_are_found_by_their_logs() {
    in_own_process("the_processes_of_a_directory_are_found_by_their_logs", || {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let hang = |hang: &dyn Fn()| {
            let _open = span!("open");
            hang();
        };
        let mut hung = [one.path(), one.path(), other.path()].map(|directory| Hung::start(directory, hang));
        hung[..2].sort_by_key(|hung| hung.pid);
        let pids = |directory: &Path| -> Vec<i32> {
            let found = found(Whose::Directory(directory));
            found.processes.iter().map(|process| process.pid).collect()
        };
        let in_one = [hung[0].pid, hung[1].pid];
        assert_eq!(pids(one.path()), in_one);
        assert_eq!(pids(other.path()), [hung[2].pid]);
        let link = other.path().join("link");
        std::os::unix::fs::symlink(one.path(), &link).unwrap();
        assert_eq!(pids(&link), in_one);
        std::env::set_current_dir(one.path()).unwrap();
        assert_eq!(pids(Path::new(".")), in_one);
        assert!(pids(Path::new("/")).is_empty() && pids(&one.path().join("missing")).is_empty());
        // The log may be gone, and the process that wrote it be dead.
        std::fs::remove_file(one.path().join(format!("host.{}.log", in_one[0]))).unwrap();
        hung[0].kill();
        let found = found(Whose::Directory(one.path()));
        let alive: Vec<bool> = found.processes.iter().map(|process| process.is_alive).collect();
        assert_eq!(alive, [false, true]);
        assert!(found.processes.iter().all(|process| names(&process.threads[0]) == ["open"]));
        hung[1].kill();
        hung[2].kill();
    });
}

#[test]
fn a_process_in_another_pid_namespace_is_found_by_its_directory() {
    in_own_process("a_process_in_another_pid_namespace_is_found_by_its_directory", || {
        let dir = tempfile::tempdir().unwrap();
        let (ready, go_on) = (Baton::new(), Baton::new());
        let stage = fork(|| {
            // SAFETY: no memory involved.
            if unsafe { libc::unshare(libc::CLONE_NEWPID) } != 0 {
                let error = std::io::Error::last_os_error();
                eprintln!("skipped: a pid namespace cannot be had: {error}");
                return ready.pass(0);
            }
            reap(fork(|| {
                log::init(&Config { directory: Some(dir.path()), ..Config::default() }).unwrap();
                let _open = span!("far.away");
                ready.pass(1);
                go_on.take();
            }));
        });
        if ready.take() == 1 {
            let found = found(Whose::Directory(dir.path()));
            assert_eq!(found.processes.len(), 1, "{found:#?}");
            let process = &found.processes[0];
            assert_eq!((process.pid, process.is_of_this_namespace, process.is_alive), (1, false, true));
            assert_eq!((names(&process.threads[0]), &process.threads[0].name), (vec!["far.away"], &None));
            assert_eq!(open_spans(Whose::Process(1)).unwrap(), Found::default(), "that is somebody else");
            go_on.pass(0);
        }
        reap(stage);
    });
}

#[test]
fn rings_that_cannot_be_used_are_refused_with_a_sentence() {
    in_own_process("rings_that_cannot_be_used_are_refused_with_a_sentence", || {
        let dir = tempfile::tempdir().unwrap();
        let hung = Hung::start(dir.path(), |hang| {
            // So that there is a log in the folder, by which a ring that cannot be read is known to belong there.
            log::flush(support::DRAIN).unwrap();
            let _open = span!("open");
            hang();
        });
        hung.kill();
        let ring = rings().pop().unwrap();
        let whole = std::fs::read(&ring).unwrap();
        let refused_with = |sentence: &str| {
            for whose in [Whose::Process(hung.pid), Whose::Directory(dir.path())] {
                let Found { processes, refused } = found(whose);
                assert_eq!((processes.len(), refused.len()), (0, 1), "{sentence}: {refused:?}");
                let (path, why) = &refused[0];
                assert_eq!(path, &ring);
                assert!(why.starts_with(ring.to_str().unwrap()) && why.contains(sentence), "{why}");
            }
        };
        let with = |range: std::ops::Range<usize>, byte: u8| {
            let mut bytes = whole.clone();
            bytes[range].fill(byte);
            std::fs::write(&ring, bytes).unwrap();
        };
        with(8..16, 7);
        refused_with("another version");
        with(0..8, 7);
        refused_with("is no ring");
        std::fs::write(&ring, &whole[..whole.len() - 1]).unwrap();
        refused_with("is cut short");
        std::fs::write(&ring, &whole[..100]).unwrap();
        refused_with("is cut short");
        with(0..8, 0);
        assert_eq!(found(Whose::Process(hung.pid)), Found::default(), "one that is just being made");
        std::fs::remove_file(&ring).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &ring).unwrap();
        refused_with("cannot be read");
        std::fs::remove_file(&ring).unwrap();
        std::fs::write(&ring, &whole).unwrap();
        assert_eq!(names(&the_process(hung.pid).threads[0]), ["open"]);
    });
}

#[test]
fn whatever_a_dead_process_has_left_is_looked_at_without_a_panic() {
    const TRIES: u64 = 200;
    in_own_process("whatever_a_dead_process_has_left_is_looked_at_without_a_panic", || {
        let dir = tempfile::tempdir().unwrap();
        let hung = Hung::start(dir.path(), hang_in_three_threads);
        hung.kill();
        let ring = rings().pop().unwrap();
        let whole = std::fs::read(&ring).unwrap();
        let file = std::fs::File::options().write(true).open(&ring).unwrap();
        // Where something is, so that a change is one of something.
        let places: Vec<usize> = (16..whole.len()).filter(|at| whole[*at] != 0).collect();
        // The log's path is among it, so that the process is asked for by its pid alone.
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random
        };
        let (mut shown, mut refused) = (0, 0);
        for _ in 0..TRIES {
            let changes: Vec<(usize, u8)> = (0..1 + next() % 8)
                .map(|_| (places[next() as usize % places.len()] + next() as usize % 8, next() as u8))
                .filter(|(at, _)| *at < whole.len())
                .collect();
            for (at, byte) in &changes {
                file.write_all_at(&[*byte], *at as u64).unwrap();
            }
            let found = found(Whose::Process(hung.pid));
            shown += found.processes.len();
            refused += found.refused.len();
            for process in &found.processes {
                for span in process.threads.iter().flat_map(|thread| &thread.spans) {
                    assert!(span.open_ns >= 0 && !span.name.is_empty(), "{span:?}");
                    assert!(!span.name.contains(|byte: char| byte.is_control() || byte == ' '), "{span:?}");
                }
            }
            for (at, _) in &changes {
                file.write_all_at(&whole[*at..=*at], *at as u64).unwrap();
            }
        }
        println!("{shown} shown, {refused} refused");
        assert_eq!(shown + refused, TRIES as usize);
        assert_three_hung_threads(&the_process(hung.pid), (0, i64::MAX - CLOCK_ERROR_NS));
    });
}

#[test]
fn threads_and_spans_beyond_what_is_seen_take_nothing_from_the_others() {
    const THREADS: usize = 80;
    const SEEN: usize = 64;
    const NESTED: usize = OPEN_SPANS_MAX + 8;
    in_own_process("threads_and_spans_beyond_what_is_seen_take_nothing_from_the_others", || {
        let _dir = log_to_folder();
        let (all_open, looked) = (Barrier::new(THREADS + 1), Barrier::new(THREADS + 1));
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    let mut open: Vec<_> = (0..NESTED).map(|depth| span!("nested", depth = depth)).collect();
                    all_open.wait();
                    looked.wait();
                    while open.pop().is_some() {}
                });
            }
            all_open.wait();
            let seen = the_process(log::pid());
            looked.wait();
            let lengths: Vec<usize> = seen.threads.iter().map(|thread| thread.spans.len()).collect();
            // This thread has a place, too, since it emitted the anchor.
            assert_eq!(lengths.iter().filter(|length| **length == OPEN_SPANS_MAX).count(), SEEN - 1);
            assert_eq!(lengths.iter().sum::<usize>(), (SEEN - 1) * OPEN_SPANS_MAX);
        });
        // The places of the threads that have ended are used again, and nothing of them is seen meanwhile.
        for _ in 0..3 * SEEN {
            let seen = std::thread::spawn(|| {
                let _open = span!("later");
                the_process(log::pid())
            });
            let seen = seen.join().unwrap();
            assert_eq!(names(thread_with_spans(&seen)), ["later"]);
        }
    });
}

#[test]
fn a_thread_that_ends_inside_a_span_is_not_seen_any_more() {
    in_own_process("a_thread_that_ends_inside_a_span_is_not_seen_any_more", || {
        let _dir = log_to_folder();
        std::thread::spawn(|| std::mem::forget(span!("left.open"))).join().unwrap();
        // A thread that is joined may be in the kernel's list for a moment.
        wait_for("that it is gone", || {
            the_process(log::pid()).threads.iter().all(|thread| thread.spans.is_empty())
        });
    });
}

#[test]
fn a_span_stays_the_same_over_writers_and_over_the_clocks_past() {
    in_own_process("a_span_stays_the_same_over_writers_and_over_the_clocks_past", || {
        let _dir = log_to_folder();
        let _open = span!("long.open");
        let since_ns = || {
            let process = the_process(log::pid());
            let thread = thread_with_spans(&process);
            assert_eq!(names(thread), ["long.open"]);
            thread.spans[0].since_ns
        };
        let first_ns = since_ns();
        log::prepare_to_fork(DRAIN).unwrap();
        assert!((since_ns() - first_ns).abs() <= CLOCK_ERROR_NS, "without a writer");
        log::start_writer().unwrap();
        // Enough batches for the clock's past to be replaced, twice.
        for _ in 0..2000 {
            log::log_warn!("a batch");
            log::flush(DRAIN).unwrap();
        }
        assert!((since_ns() - first_ns).abs() <= CLOCK_ERROR_NS, "{} {first_ns}", since_ns());
    });
}

#[test]
fn a_span_of_the_parent_is_not_seen_in_the_child() {
    in_own_process("a_span_of_the_parent_is_not_seen_in_the_child", || {
        let dir = log_to_folder();
        let _outer = span!("parents");
        log::prepare_to_fork(DRAIN).unwrap();
        let hung = Hung::start(dir.path(), |hang| {
            let _own = span!("childs");
            hang();
        });
        assert_eq!(names(&the_process(hung.pid).threads[0]), ["childs"]);
        assert_eq!(names(thread_with_spans(&the_process(log::pid()))), ["parents"]);
        hung.kill();
    });
}
