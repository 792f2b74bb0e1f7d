//! Starts that come to nothing: cancelled, too slow, failed at one of the children, orphaned. And whom a signal reaches.

#![allow(clippy::unwrap_used, reason = "a test program whose functions clippy does not know for tests")]

mod one_thread;
mod processes;

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{ExitCode, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use simpler_log_abi::Threshold;
use simpler_worker::{
    ChildId, Endpoint, LogSetup, RunArgs, RunError, SharedBuffer, SharedMemory, Worker, WorkerBuilder,
    WorkerError,
};

use one_thread::{Test, program};
use processes::{LIMIT, until};

const TESTS: &[Test] = &[
    (
        "sigterm_cancels_a_start_in_which_a_chip_hangs_and_the_next_start_works",
        sigterm_cancels_a_start_in_which_a_chip_hangs,
    ),
    (
        "sigterm_cancels_a_start_whose_children_have_become_ready",
        sigterm_cancels_a_start_that_was_nearly_done,
    ),
    (
        "sigterm_cancels_a_start_although_the_host_program_blocks_it",
        sigterm_cancels_a_start_although_the_host_program_blocks_it,
    ),
    (
        "sigterm_again_while_a_start_is_given_up_leaves_nobody_either",
        sigterm_again_while_a_start_is_given_up_leaves_nobody_either,
    ),
    ("a_node_in_its_set_up_leaves_in_order_with_its_chips", a_node_in_its_set_up_leaves_in_order),
    ("a_node_that_gets_sigterm_in_its_set_up_fails_the_pod", a_node_that_gets_sigterm_fails_the_pod),
    ("a_chip_that_is_not_ready_in_time_fails_the_start", a_chip_that_is_not_ready_in_time_fails_the_start),
    (
        "a_chip_that_is_not_ready_in_time_is_blamed_levels_above",
        a_chip_that_is_not_ready_in_time_is_blamed_levels_above,
    ),
    ("an_endless_limit_is_one", an_endless_limit_is_one),
    ("a_start_that_fails_at_any_child_leaves_nobody", a_start_that_fails_at_any_child_leaves_nobody),
    ("a_start_that_fails_waits_for_no_chip_that_hangs", a_start_that_fails_waits_for_no_chip_that_hangs),
    ("orphans_leave_whoever_their_new_parent_is", orphans_leave_whoever_their_new_parent_is),
    ("a_node_in_its_set_up_leaves_with_the_pod", a_node_in_its_set_up_leaves_with_the_pod),
    ("children_have_the_default_disposition_and_lead_their_groups", children_have_the_default_disposition),
    ("a_node_that_is_killed_takes_along_its_chips", a_node_that_is_killed_takes_along_its_chips),
];

const PROGRAMS: &[Test] =
    &[("parent_that_waits", parent_that_waits), ("pod_in_an_endless_set_up", pod_in_an_endless_set_up)];

fn main() -> ExitCode {
    one_thread::main(TESTS, PROGRAMS)
}

/// An endpoint that does nothing.
struct Idle;

impl Endpoint for Idle {
    unsafe fn run(&mut self, _: &[u8; 32], _: &RunArgs) -> Result<(), RunError> {
        Ok(())
    }

    fn prepare(&mut self, _: &[u8; 32]) -> Result<u64, RunError> {
        Ok(0)
    }
}

fn idle(_: usize) -> Result<Box<dyn Endpoint>, RunError> {
    Ok(Box::new(Idle))
}

fn node(
    chips: usize,
    make: impl Fn(usize) -> Result<Box<dyn Endpoint>, RunError> + 'static,
) -> WorkerBuilder {
    let mut node = Worker::builder(3);
    node.chips(chips).endpoint(move |chip, _| make(chip));
    node
}

fn pid() -> i32 {
    std::process::id() as i32
}

fn send(signal: i32, to: i32) {
    // SAFETY: kill has no memory effects.
    assert_eq!(unsafe { libc::kill(to, signal) }, 0);
}

fn parent() -> i32 {
    // SAFETY: always allowed.
    unsafe { libc::getppid() }
}

fn group() -> i32 {
    // SAFETY: always allowed.
    unsafe { libc::getpgrp() }
}

/// Whether a process is there, a zombie included.
fn is_there(pid: i32) -> bool {
    // SAFETY: signal 0 is none.
    unsafe { libc::kill(pid, 0) == 0 }
}

/// A word of shared memory, for a pid.
fn set(shared: &SharedMemory, index: usize, value: i32) {
    shared.write(index * 4, &value.to_ne_bytes()).unwrap();
}

fn get(shared: &SharedMemory, index: usize) -> i32 {
    let mut bytes = [0; 4];
    shared.read(index * 4, &mut bytes).unwrap();
    i32::from_ne_bytes(bytes)
}

fn assert_no_children() {
    let mut status = 0;
    // SAFETY: waits for no child and writes one integer.
    let collected = unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG) };
    assert_eq!(collected, -1, "a child is left, living (0) or a zombie (its pid)");
}

/// How often the host program's own handler has run.
static SEEN: AtomicU32 = AtomicU32::new(0);

extern "C" fn see(_: libc::c_int) {
    SEEN.fetch_add(1, Ordering::Relaxed);
}

/// The disposition of SIGTERM; sets it where there is one to set.
fn disposition(to_set: Option<extern "C" fn(libc::c_int)>) -> usize {
    // SAFETY: all zero is a valid sigaction.
    let mut former: libc::sigaction = unsafe { std::mem::zeroed() };
    let mut action = former;
    action.sa_sigaction = to_set.map_or(0, |handler| handler as *const () as usize);
    let action = to_set.map_or(std::ptr::null(), |_| &raw const action);
    // SAFETY: the handler only counts.
    assert_eq!(unsafe { libc::sigaction(libc::SIGTERM, action, &raw mut former) }, 0);
    former.sa_sigaction
}

fn is_cancelled(started: Result<Worker, WorkerError>, by: &str) {
    let error = started.map(drop).unwrap_err();
    assert!(matches!(error, WorkerError::Cancelled { .. }), "{error:?}");
    assert_eq!(error.to_string(), format!("worker: its set-up was cancelled by {by}"));
    assert_no_children();
}

fn sigterm_cancels_a_start_in_which_a_chip_hangs() {
    disposition(Some(see));
    let builder = node(3, |chip| {
        if chip == 1 {
            send(libc::SIGTERM, parent());
            until("the end of this process", || false);
        }
        idle(chip)
    });
    let began = Instant::now();
    is_cancelled(builder.start(), "SIGTERM");
    assert!(began.elapsed() < LIMIT / 2, "{:?}", began.elapsed());

    // The signal is the host program's again.
    assert_eq!(SEEN.load(Ordering::Relaxed), 0);
    send(libc::SIGTERM, pid());
    until("the host program's handler", || SEEN.load(Ordering::Relaxed) == 1);
    let mut worker = node(2, idle).start().unwrap();
    send(libc::SIGTERM, pid());
    until("the host program's handler", || SEEN.load(Ordering::Relaxed) == 2);
    worker.close().unwrap();
}

fn sigterm_cancels_a_start_that_was_nearly_done() {
    disposition(Some(see));
    // From the last child, which is ready next: whether the signal is seen before or after that, it counts.
    for _ in 0..10 {
        let builder = node(2, |chip| {
            if chip == 1 {
                send(libc::SIGTERM, parent());
            }
            idle(chip)
        });
        is_cancelled(builder.start(), "SIGTERM");
    }
    assert_eq!(SEEN.load(Ordering::Relaxed), 0);
}

fn sigterm_cancels_a_start_although_the_host_program_blocks_it() {
    use nix::sys::signal::{SIGTERM, SigSet};
    let is_blocked = || SigSet::thread_get_mask().unwrap().contains(SIGTERM);
    disposition(Some(see));
    SigSet::from(SIGTERM).thread_block().unwrap();
    let hangs = |chip| {
        send(libc::SIGTERM, parent());
        until("the end of this process", || false);
        idle(chip)
    };
    is_cancelled(node(1, hangs).start(), "SIGTERM");
    assert!(is_blocked());
    let mut worker = node(1, move |chip| {
        assert!(!is_blocked());
        idle(chip)
    });
    worker.subs(1);
    let mut worker = worker.start().unwrap();
    assert!(is_blocked());
    // It waits for whoever takes it.
    send(libc::SIGTERM, pid());
    worker.close().unwrap();
    assert_eq!(SEEN.load(Ordering::Relaxed), 0);
    SigSet::from(SIGTERM).thread_unblock().unwrap();
    assert_eq!(SEEN.load(Ordering::Relaxed), 1);
}

fn sigterm_again_while_a_start_is_given_up_leaves_nobody_either() {
    disposition(Some(see));
    // It goes on until it is killed.
    let asks_for_ever = |_| {
        until("the end of this process", || {
            send(libc::SIGTERM, parent());
            false
        });
        idle(0)
    };
    is_cancelled(node(1, asks_for_ever).start(), "SIGTERM");
    assert_eq!(SEEN.load(Ordering::Relaxed), 0, "the host program's handler might have ended this process");
    // Also where the start had failed by itself.
    let fails_and_is_told_so = |chip| {
        until("the end of this process", || {
            send(libc::SIGTERM, if chip == 0 { pid() } else { parent() });
            false
        });
        idle(0)
    };
    is_cancelled(node(2, fails_and_is_told_so).start(), "SIGTERM");
    assert_eq!(SEEN.load(Ordering::Relaxed), 0);
}

/// A pod of one node with one chip, which calls `act` with the pids that it has noted: its node's and its own.
fn pod(act: impl Fn(i32) + 'static) -> (WorkerBuilder, SharedMemory) {
    let mut pod = Worker::builder(4);
    let pids = pod.share(SharedBuffer::new(64).unwrap());
    let noted = pids.clone();
    pod.worker(node(1, move |chip| {
        set(&noted, 0, parent());
        set(&noted, 1, pid());
        act(parent());
        idle(chip)
    }));
    (pod, pids)
}

fn a_node_in_its_set_up_leaves_in_order() {
    let directory = tempfile::tempdir().unwrap();
    let root = pid();
    let (mut pod, pids) = pod(move |_| {
        send(libc::SIGTERM, root);
        until("the end of this process", || false);
    });
    pod.log(LogSetup { threshold: Threshold::TIMING, directory: Some(directory.path().into()) });
    let began = Instant::now();
    is_cancelled(pod.start(), "SIGTERM");
    assert!(began.elapsed() < LIMIT / 2, "{:?}", began.elapsed());
    let [node, chip] = [0, 1].map(|index| get(&pids, index));
    assert!(node != 0 && chip != 0);
    assert!(!is_there(chip), "the node has collected it");
    let log = fs::read_to_string(directory.path().join(format!("host.{node}.log"))).unwrap();
    assert!(log.contains("worker: its set-up was cancelled by the worker above"), "{log}");
    assert!(log.contains(&format!("chip 0 (pid {chip}) did not leave within 2s")), "{log}");
    // The root has killed nobody: it had nothing to say.
    let log = fs::read_to_string(directory.path().join(format!("host.{root}.log"))).unwrap_or_default();
    assert!(!log.contains("did not leave"), "{log}");
}

fn a_node_that_gets_sigterm_fails_the_pod() {
    let (pod, pids) = pod(|node| send(libc::SIGTERM, node));
    let error = pod.start().map(drop).unwrap_err();
    assert!(matches!(error, WorkerError::Init { child: ChildId::Worker(0), .. }), "{error:?}");
    assert!(error.to_string().ends_with("worker: its set-up was cancelled by SIGTERM"), "{error}");
    assert!(!is_there(get(&pids, 1)));
    assert_no_children();
}

fn a_chip_that_is_not_ready_in_time_fails_the_start() {
    const SHORT: Duration = Duration::from_millis(100);
    // The first, for which it waits first: the other one may be as slow as it likes.
    let mut slow = node(2, |chip| {
        until("the end of this process", || chip == 1);
        idle(chip)
    });
    slow.init_limit(SHORT);
    let began = Instant::now();
    let error = slow.start().map(drop).unwrap_err();
    assert!(
        matches!(error, WorkerError::InitTimeout { child: ChildId::Chip(0), limit: SHORT, .. }),
        "{error:?}"
    );
    assert!(error.to_string().ends_with("was not ready within 100ms"), "{error}");
    assert!((SHORT..LIMIT / 2).contains(&began.elapsed()), "{:?}", began.elapsed());
    assert_no_children();
}

fn a_chip_that_is_not_ready_in_time_is_blamed_levels_above() {
    const SHORT: Duration = Duration::from_millis(100);
    let mut worker = node(1, |chip| {
        until("the end of this process", || false);
        idle(chip)
    });
    worker.init_limit(SHORT);
    for level in [4, 5] {
        let mut above = Worker::builder(level);
        above.worker(worker).init_limit(SHORT);
        worker = above;
    }
    let error = worker.start().map(drop).unwrap_err();
    assert!(matches!(error, WorkerError::Init { child: ChildId::Worker(0), .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("chip 0 (pid ") && text.ends_with("was not ready within 100ms"), "{text}");
    assert_no_children();
}

fn an_endless_limit_is_one() {
    let (mut pod, _) = pod(|_| {});
    pod.init_limit(Duration::MAX);
    pod.start().unwrap().close().unwrap();
}

fn a_start_that_fails_at_any_child_leaves_nobody() {
    let fails = |ends: fn() -> RunError| Err(ends());
    for (ends, text) in [
        ((|| RunError { code: -1, text: "no such device".into() }) as fn() -> RunError, "no such device"),
        (|| panic!("scripted panic"), "scripted panic"),
        // SAFETY: always allowed.
        (|| unsafe { libc::_exit(41) }, "exited with status 41 before it was ready"),
    ] {
        for failing in 0..3 {
            let chip = move |chip| if chip == failing { fails(ends) } else { idle(chip) };
            let error = node(3, chip).start().map(drop).unwrap_err();
            assert!(error.to_string().starts_with(&format!("chip {failing} (pid ")), "{error}");
            assert!(error.to_string().contains(text), "{error}");
            assert_no_children();

            let mut pod = Worker::builder(4);
            let pids = pod.share(SharedBuffer::new(64).unwrap());
            for index in 0..3 {
                let pids = pids.clone();
                pod.worker(node(1, move |chip| {
                    set(&pids, index, pid());
                    if index == failing { fails(ends) } else { idle(chip) }
                }));
            }
            let error = pod.start().map(drop).unwrap_err();
            assert!(error.to_string().starts_with(&format!("worker {failing} (pid ")), "{error}");
            assert!(error.to_string().contains(text), "{error}");
            assert_no_children();
            // One after the other: those behind the one that failed were not even forked.
            let chips = [0, 1, 2].map(|index| get(&pids, index));
            assert_eq!(chips.map(|chip| chip != 0), [0, 1, 2].map(|index| index <= failing));
            assert!(
                chips.iter().all(|chip| *chip == 0 || !is_there(*chip)),
                "their nodes have collected them"
            );
        }
    }
    node(2, idle).start().unwrap().close().unwrap();
}

fn a_start_that_fails_waits_for_no_chip_that_hangs() {
    let fails_beside_one_that_hangs = |chip| {
        until("the end of this process", || chip == 0);
        Err(RunError { code: -1, text: "no such device".into() })
    };
    let began = Instant::now();
    let error = node(2, fails_beside_one_that_hangs).start().map(drop).unwrap_err();
    assert!(matches!(error, WorkerError::Init { child: ChildId::Chip(0), .. }), "{error:?}");
    assert_no_children();
    let mut pod = Worker::builder(4);
    pod.worker(node(2, fails_beside_one_that_hangs));
    let error = pod.start().map(drop).unwrap_err();
    assert!(matches!(error, WorkerError::Init { child: ChildId::Worker(0), .. }), "{error:?}");
    assert!(error.to_string().ends_with("no such device"), "{error}");
    assert!(began.elapsed() < LIMIT / 2, "{:?}", began.elapsed());
    assert_no_children();
}

fn parent_that_waits() {
    let worker = node(2, idle).start().unwrap();
    println!("{} {}", worker.pids()[0], worker.pids()[1]);
    until("the end", || false);
}

fn pod_in_an_endless_set_up() {
    let (pod, _) = pod(|node| {
        println!("{node} {}", pid());
        until("the end", || false);
    });
    drop(pod.start());
}

/// Starts a program, which prints two pids, kills it, and takes its children as this process's own.
fn orphans_of(parent: &str) -> [i32; 2] {
    adopt_orphans();
    let mut parent = program(parent).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(parent.stdout.take().unwrap()).read_line(&mut line).unwrap();
    parent.kill().unwrap();
    parent.wait().unwrap();
    let mut pids = line.split_whitespace().map(|pid| pid.parse().unwrap());
    [pids.next().unwrap(), pids.next().unwrap()]
}

/// Whoever loses its parent becomes this process's child, which learns how it ended.
fn adopt_orphans() {
    // SAFETY: no memory is touched.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) }, 0);
}

/// Waits for a child's end; gives its wait status.
fn status_of(child: i32) -> i32 {
    let mut status = 0;
    until("the child's end", || {
        // SAFETY: waits for a child and writes one integer.
        unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) == child }
    });
    status
}

fn orphans_leave_whoever_their_new_parent_is() {
    for child in orphans_of("parent_that_waits") {
        let status = status_of(child);
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 2, "{status:#x}");
    }
    assert_no_children();
}

fn a_node_in_its_set_up_leaves_with_the_pod() {
    let began = Instant::now();
    let [node, chip] = orphans_of("pod_in_an_endless_set_up");
    // The node's start failed, and it has ended its chip, which hangs, before.
    let status = status_of(node);
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 1, "{status:#x}");
    assert!(!is_there(chip));
    assert!(began.elapsed() < LIMIT / 2, "{:?}", began.elapsed());
    assert_no_children();
}

fn children_have_the_default_disposition() {
    disposition(Some(see));
    let mask = || nix::sys::signal::SigSet::thread_get_mask().unwrap().contains(nix::sys::signal::SIGTERM);
    let check = move |leader: i32| {
        assert_eq!((disposition(None), mask()), (libc::SIG_DFL, false));
        assert_eq!(group(), leader);
    };
    let mut worker = node(2, move |chip| {
        check(pid());
        idle(chip)
    });
    worker.subs(1);
    let mut worker = worker.start().unwrap();
    assert_ne!(group(), worker.pids()[0]);
    assert!(!mask());
    worker.close().unwrap();
    // What a node forks is in the node's group.
    let (pod, _) = pod(check);
    pod.start().unwrap().close().unwrap();
    assert_eq!(disposition(None), see as *const () as usize);
}

fn a_node_that_is_killed_takes_along_its_chips() {
    adopt_orphans();
    let (mut pod, pids) = pod(|_| {});
    let noted = pids.clone();
    let hang = pod
        .orchestration("hang", move |_, _| {
            set(&noted, 2, 1);
            until("the end of this process", || false);
            Ok(())
        })
        .unwrap();
    let mut pod = pod.start().unwrap();
    let _ticket = pod.submit(ChildId::Worker(0), hang, &RunArgs::default()).unwrap();
    until("the orchestration", || get(&pids, 2) == 1);
    let error = pod.close_within(Duration::from_millis(100)).unwrap_err();
    assert!(matches!(error, WorkerError::Unresponsive { child: ChildId::Worker(0), .. }), "{error:?}");
    let status = status_of(get(&pids, 1));
    assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL, "{status:#x}");
    assert_no_children();
}
