//! Forked children and their parent, with endpoints made for the purpose in place of chips.

#![allow(clippy::unwrap_used, reason = "a test program whose functions clippy does not know for tests")]

mod one_thread;
mod processes;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{ExitCode, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use simpler_host_log::monotonic_ns;
use simpler_kernel_abi::{ArgUse, DType, HOST_MEMORY, SimplerTensor};
use simpler_log_abi::Threshold;
use simpler_platform::DeviceAddr;
use simpler_worker::{
    CALLABLES_MAX, CHIPS_MAX, Callable, CallableImage, ChildId, ChipArg, Ending, Endpoint, LogSetup, RunArgs,
    RunError, SharedBuffer, SharedMemory, Worker, WorkerBuilder, WorkerError,
};

use one_thread::{Test, program};
use processes::{LIMIT, until};

const TESTS: &[Test] = &[
    ("two_chips_run_at_once_and_give_their_results", two_chips_run_at_once_and_give_their_results),
    ("control_operations_reach_the_chip", control_operations_reach_the_chip),
    (
        "a_run_that_fails_gives_its_text_and_the_next_one_works",
        a_run_that_fails_gives_its_text_and_the_next_one_works,
    ),
    ("a_child_that_panics_says_so_and_leaves", a_child_that_panics_says_so_and_leaves),
    (
        "a_failed_bring_up_gives_the_childs_text_and_leaves_nobody",
        a_failed_bring_up_gives_the_childs_text_and_leaves_nobody,
    ),
    ("a_child_that_dies_in_bring_up_is_reported", a_child_that_dies_in_bring_up_is_reported),
    (
        "a_killed_child_is_reported_while_the_other_finishes",
        a_killed_child_is_reported_while_the_other_finishes,
    ),
    ("a_child_killed_during_control_is_reported", a_child_killed_during_control_is_reported),
    ("closing_twice_does_nothing_more", closing_twice_does_nothing_more),
    ("dropping_closes", dropping_closes),
    ("close_lets_a_run_in_progress_end", close_lets_a_run_in_progress_end),
    ("a_chip_that_does_not_leave_is_killed", a_chip_that_does_not_leave_is_killed),
    ("a_second_worker_can_follow_the_first", a_second_worker_can_follow_the_first),
    ("children_of_a_killed_parent_leave", children_of_a_killed_parent_leave),
    ("a_child_in_an_endless_run_leaves_with_its_parent", a_child_in_an_endless_run_leaves_with_its_parent),
    (
        "a_child_in_an_endless_bring_up_leaves_with_its_parent",
        a_child_in_an_endless_bring_up_leaves_with_its_parent,
    ),
    ("close_says_when_a_chip_ended_that_was_not_told_to", close_says_when_a_chip_ended_that_was_not_told_to),
    (
        "an_orderly_close_is_one_where_nobody_keeps_the_status_of_children",
        an_orderly_close_is_one_where_nobody_keeps_the_status_of_children,
    ),
    ("a_copy_in_a_forked_process_does_nothing", a_copy_in_a_forked_process_does_nothing),
    ("a_second_thread_forbids_the_start", a_second_thread_forbids_the_start),
    (
        "threads_that_are_permitted_are_named_and_the_start_goes_on",
        threads_that_are_permitted_are_named_and_the_start_goes_on,
    ),
    ("each_child_is_forked_as_the_builder_was_told", each_child_is_forked_as_the_builder_was_told),
    ("an_interrupted_wait_gives_the_ticket_back", an_interrupted_wait_gives_the_ticket_back),
    (
        "an_interrupted_request_is_undone_before_the_next_one",
        an_interrupted_request_is_undone_before_the_next_one,
    ),
    ("an_interrupted_start_leaves_nobody", an_interrupted_start_leaves_nobody),
    ("an_interrupted_close_kills_whoever_is_late", an_interrupted_close_kills_whoever_is_late),
    ("memory_that_no_chip_can_reach_is_refused", memory_that_no_chip_can_reach_is_refused),
    ("a_busy_chip_takes_no_second_run", a_busy_chip_takes_no_second_run),
    ("settings_out_of_range_are_refused", settings_out_of_range_are_refused),
    ("every_process_writes_one_log_with_one_anchor", every_process_writes_one_log_with_one_anchor),
    (
        "a_wait_that_finds_nothing_at_first_is_a_span_around_what_it_takes",
        a_wait_that_finds_nothing_at_first_is_a_span,
    ),
    (
        "children_leave_their_parents_stdio_and_exit_handlers_alone",
        children_leave_their_parents_stdio_and_exit_handlers_alone,
    ),
];
const PROGRAMS: &[Test] = &[
    ("parent_that_waits", parent_that_waits),
    ("parent_of_a_chip_in_an_endless_run", parent_of_a_chip_in_an_endless_run),
    ("parent_of_a_chip_in_an_endless_bring_up", parent_of_a_chip_in_an_endless_bring_up),
    ("parent_with_buffered_output", parent_with_buffered_output),
];

fn main() -> ExitCode {
    one_thread::main(TESTS, PROGRAMS)
}

/// What a run does, as its first scalar.
#[derive(Clone, Copy)]
enum Script {
    /// Adds the second scalar to the first word of the tensor and stores it in the second.
    Add,
    /// Fails with code −9 and a text.
    Fail,
    Panic,
    /// Stores 1 in the first word and waits until the second is not 0.
    Meet,
    /// Stores 1 in the first word and never returns.
    Hang,
}

fn hang() -> ! {
    loop {
        std::thread::park();
    }
}

/// An endpoint that does what a script says, with a vector as its device memory.
#[derive(Default)]
struct Scripted {
    memory: Vec<u8>,
    /// Its first word is set by a `free` that never returns.
    stuck: Option<SharedMemory>,
    /// Its third word is what was freed last.
    freed: Option<SharedMemory>,
    _at_the_end: PanicAtTheEnd,
}

#[derive(Default)]
struct PanicAtTheEnd(bool);

impl Drop for PanicAtTheEnd {
    fn drop(&mut self) {
        assert!(!self.0, "scripted panic at the end");
    }
}

fn words(args: &RunArgs) -> [&'static AtomicU64; 2] {
    let first = args.tensors[0].tensor.addr as *const AtomicU64;
    // SAFETY: the tests pass two aligned words of shared memory, which lives as long as this process.
    let first_word = unsafe { &*first };
    // SAFETY: as above.
    let second = unsafe { first.add(1) };
    // SAFETY: as above.
    [first_word, unsafe { &*second }]
}

impl Endpoint for Scripted {
    unsafe fn run(&mut self, callable: &[u8; 32], args: &RunArgs) -> Result<(), RunError> {
        assert_eq!(*callable, image("first").digest());
        match args.scalars[0] {
            script if script == Script::Add as u64 => {
                let [input, output] = words(args);
                output.store(input.load(Ordering::Relaxed) + args.scalars[1], Ordering::Relaxed);
            }
            script if script == Script::Fail as u64 => {
                return Err(RunError { code: -9, text: "the orchestration gave up: no tokens".into() });
            }
            script if script == Script::Meet as u64 => {
                let [here, there] = words(args);
                here.store(1, Ordering::Release);
                until("the other side", || there.load(Ordering::Acquire) != 0);
            }
            script if script == Script::Hang as u64 => {
                words(args)[0].store(1, Ordering::Release);
                hang();
            }
            _ => panic!("scripted panic"),
        }
        Ok(())
    }

    fn prepare(&mut self, callable: &[u8; 32]) -> Result<u64, RunError> {
        Ok(u64::from(callable[0]))
    }

    fn malloc(&mut self, bytes: usize) -> Result<u64, RunError> {
        self.memory = vec![0; bytes];
        Ok(64)
    }

    fn free(&mut self, device: u64) -> Result<(), RunError> {
        match device {
            64 => {
                self.freed.iter().for_each(|shared| set_word(shared, 16, 64));
                Ok(())
            }
            0xdead => {
                set_word(self.stuck.as_ref().unwrap(), 0, 1);
                until("the end", || false);
                Ok(())
            }
            _ => Err(RunError { code: 7, text: format!("{device} was not allocated") }),
        }
    }

    fn copy_to(&mut self, _device: u64, host: &[u8]) -> Result<(), RunError> {
        self.memory.copy_from_slice(host);
        Ok(())
    }

    fn copy_from(&mut self, host: &mut [u8], _device: u64) -> Result<(), RunError> {
        host.copy_from_slice(&self.memory);
        Ok(())
    }
}

fn image(name: &str) -> CallableImage {
    CallableImage { name: name.into(), orchestration: name.as_bytes().to_vec(), kernels: Vec::new() }
}

fn scripted(chips: usize) -> (WorkerBuilder, Callable) {
    let mut builder = Worker::builder(3);
    builder.chips(chips);
    builder.endpoint(|_, _| Ok(Box::new(Scripted::default())));
    let callable = builder.callable(image("first")).unwrap();
    (builder, callable)
}

/// A started worker with one page of shared memory.
fn started(chips: usize) -> (Worker, Callable, SharedMemory) {
    let (mut builder, callable) = scripted(chips);
    let shared = builder.share(SharedBuffer::new(4096).unwrap());
    (builder.start().unwrap(), callable, shared)
}

fn args(script: Script, scalar: u64, shared: &SharedMemory, offset: usize) -> RunArgs {
    let tensor = shared.tensor(offset, 16, DType::U8).unwrap();
    RunArgs {
        tensors: vec![ChipArg { tensor, arg_use: ArgUse::InOut }],
        scalars: vec![script as u64, scalar],
        ..RunArgs::default()
    }
}

fn word(shared: &SharedMemory, offset: usize) -> u64 {
    let mut bytes = [0; 8];
    shared.read(offset, &mut bytes).unwrap();
    u64::from_ne_bytes(bytes)
}

fn set_word(shared: &SharedMemory, offset: usize, value: u64) {
    shared.write(offset, &value.to_ne_bytes()).unwrap();
}

fn kill(pid: i32) {
    // SAFETY: kill has no memory effects.
    let killed = unsafe { libc::kill(pid, libc::SIGKILL) };
    assert_eq!(killed, 0);
}

/// Whether a process has neither ended nor is a zombie.
fn lives(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')')
        .is_some_and(|(_, rest)| !matches!(rest.trim_start().chars().next(), Some('Z' | 'X')))
}

/// Waits for a child's end and leaves its status to be collected. Its main thread alone may end before the others.
fn wait_until_collectible(pid: i32) {
    // SAFETY: all zero is a value of this struct.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let how = libc::WEXITED | libc::WNOWAIT;
    // SAFETY: waits for a child and writes one struct.
    assert_eq!(unsafe { libc::waitid(libc::P_PID, pid as libc::id_t, &mut info, how) }, 0);
}

fn assert_no_children() {
    let mut status = 0;
    // SAFETY: waits for no child and writes one integer.
    let collected = unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG) };
    assert_eq!(collected, -1, "a child is left, living (0) or a zombie (its pid)");
    assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::ECHILD));
}

fn two_chips_run_at_once_and_give_their_results() {
    let (mut worker, callable, shared) = started(2);
    // The first run ends only because the second has begun meanwhile: the second's first word is the first's second.
    let one = args(Script::Meet, 0, &shared, 0);
    let other = args(Script::Meet, 0, &shared, 8);
    let first = worker.submit(0, callable, &one).unwrap();
    until("the first run", || word(&shared, 0) == 1);
    assert!(!worker.poll(&first), "it waits for the second");
    let second = worker.submit(1, callable, &other).unwrap();
    set_word(&shared, 16, 1);
    worker.wait(second).unwrap();
    until("the poll", || worker.poll(&first));
    worker.wait(first).unwrap();

    set_word(&shared, 64, 40);
    set_word(&shared, 128, 50);
    let sums: Vec<_> = [(0, 64), (1, 128)]
        .map(|(chip, offset)| worker.submit(chip, callable, &args(Script::Add, 2, &shared, offset)).unwrap())
        .into();
    for ticket in sums {
        worker.wait(ticket).unwrap();
    }
    assert_eq!((word(&shared, 72), word(&shared, 136)), (42, 52));
    worker.close().unwrap();
}

fn control_operations_reach_the_chip() {
    let (mut worker, callable, shared) = started(2);
    let bytes: Vec<u8> = (0..=255).collect();
    shared.write(0, &bytes).unwrap();
    let device = worker.malloc(1, 256).unwrap();
    worker.copy_to(1, device, &shared.slice(0, 256).unwrap()).unwrap();
    worker.copy_from(1, &shared.slice(1024, 256).unwrap(), device).unwrap();
    let mut back = [0; 256];
    shared.read(1024, &mut back).unwrap();
    assert_eq!(back.as_slice(), bytes);
    worker.free(1, device).unwrap();
    let error = worker.free(1, DeviceAddr(3)).unwrap_err();
    assert!(
        matches!(error, WorkerError::Child { child: ChildId::Chip(1), what: "free", code: 7, .. }),
        "{error:?}"
    );
    assert!(error.to_string().contains("3 was not allocated"), "{error}");
    assert_eq!(worker.prepare(0, callable).unwrap(), u64::from(image("first").digest()[0]));
    assert!(matches!(worker.malloc(2, 1), Err(WorkerError::Unknown(_))));
    worker.close().unwrap();
}

fn a_run_that_fails_gives_its_text_and_the_next_one_works() {
    let (mut worker, callable, shared) = started(1);
    let pid = worker.pids()[0];
    let ticket = worker.submit(0, callable, &args(Script::Fail, 0, &shared, 0)).unwrap();
    let error = worker.wait(ticket).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("chip 0 (pid {pid}): run failed with code -9: the orchestration gave up: no tokens")
    );
    let ticket = worker.submit(0, callable, &args(Script::Add, 5, &shared, 0)).unwrap();
    worker.wait(ticket).unwrap();
    assert_eq!(word(&shared, 8), 5);
    worker.close().unwrap();
}

fn a_child_that_panics_says_so_and_leaves() {
    let (mut worker, callable, shared) = started(2);
    let pid = worker.pids()[0];
    let ticket = worker.submit(0, callable, &args(Script::Panic, 0, &shared, 0)).unwrap();
    let error = worker.wait(ticket).unwrap_err();
    assert!(error.to_string().contains("the child panicked: scripted panic"), "{error}");
    until("the child's end", || !lives(pid));
    let error = worker.malloc(0, 1).unwrap_err();
    assert!(matches!(error, WorkerError::ChildGone { ending: Ending::Exited(3), .. }), "{error:?}");
    worker.malloc(1, 1).unwrap();
    worker.close().unwrap();
    assert_no_children();
}

fn a_failed_bring_up_gives_the_childs_text_and_leaves_nobody() {
    let (mut builder, _) = scripted(3);
    builder.endpoint(|chip, callables| {
        assert_eq!(callables.len(), 1, "the snapshot");
        if chip == 1 {
            return Err(RunError { code: -5, text: "callable first: no such symbol".into() });
        }
        Ok(Box::new(Scripted::default()))
    });
    let error = builder.start().map(drop).unwrap_err();
    assert!(matches!(error, WorkerError::Init { child: ChildId::Chip(1), .. }), "{error:?}");
    assert!(error.to_string().ends_with("initialization failed: callable first: no such symbol"), "{error}");
    assert_no_children();
}

fn a_child_that_dies_in_bring_up_is_reported() {
    let (mut builder, _) = scripted(2);
    builder.endpoint(|chip, _| {
        if chip == 1 {
            kill(std::process::id() as i32);
        }
        Ok(Box::new(Scripted::default()))
    });
    let error = builder.start().map(drop).unwrap_err();
    assert!(
        matches!(error, WorkerError::ChildGone { child: ChildId::Chip(1), ending: Ending::Killed(9), .. }),
        "{error:?}"
    );
    assert!(error.to_string().ends_with("was killed by signal 9 (SIGKILL) before it was ready"), "{error}");
    assert_no_children();
}

fn a_killed_child_is_reported_while_the_other_finishes() {
    let (mut worker, callable, shared) = started(2);
    let pid = worker.pids()[0];
    let doomed = worker.submit(0, callable, &args(Script::Meet, 0, &shared, 0)).unwrap();
    let other = worker.submit(1, callable, &args(Script::Meet, 0, &shared, 64)).unwrap();
    until("both runs", || word(&shared, 0) == 1 && word(&shared, 64) == 1);
    let run = doomed.run_id();
    kill(pid);
    let error = worker.wait(doomed).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("chip 0 (pid {pid}) was killed by signal 9 (SIGKILL) while it ran run {run}")
    );
    set_word(&shared, 72, 1);
    worker.wait(other).unwrap();
    // What is asked of the dead one later fails as well, and does not wait.
    let late = worker.submit(0, callable, &args(Script::Add, 1, &shared, 0)).unwrap_err();
    assert!(late.to_string().contains(&format!("pid {pid}")), "{late}");
    worker.malloc(1, 8).unwrap();
    worker.close().unwrap();
    assert_no_children();
}

/// Another child of this process, which runs `body` and leaves; it can act while the parent waits.
fn beside(body: impl FnOnce()) -> impl FnOnce() {
    // SAFETY: the tests call this while the process has one thread, or the child takes no lock.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        body();
        // SAFETY: always allowed.
        unsafe { libc::_exit(0) };
    }
    move || {
        let mut status = 0;
        // SAFETY: waits for the process forked above and writes one integer.
        assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
        assert_eq!(status, 0, "the process beside failed");
    }
}

fn a_child_killed_during_control_is_reported() {
    let (mut builder, _) = scripted(2);
    let stuck = builder.share(SharedBuffer::new(64).unwrap());
    let inherited = stuck.clone();
    builder.endpoint(move |_, _| {
        Ok(Box::new(Scripted { stuck: Some(inherited.clone()), ..Scripted::default() }))
    });
    let mut worker = builder.start().unwrap();
    let pid = worker.pids()[0];
    let killed = beside(|| {
        until("the control request", || word(&stuck, 0) == 1);
        kill(pid);
    });
    let error = worker.free(0, DeviceAddr(0xdead)).unwrap_err();
    assert!(error.to_string().ends_with("was killed by signal 9 (SIGKILL) during free"), "{error}");
    killed();
    worker.malloc(1, 1).unwrap();
    worker.close().unwrap();
    assert_no_children();
}

fn closing_twice_does_nothing_more() {
    let (mut worker, callable, shared) = started(2);
    let pids = worker.pids();
    let ticket = worker.submit(0, callable, &args(Script::Add, 1, &shared, 0)).unwrap();
    worker.close().unwrap();
    assert!(pids.iter().all(|pid| !lives(*pid)));
    assert_no_children();
    worker.close().unwrap();
    assert!(matches!(worker.malloc(0, 1), Err(WorkerError::Closed)));
    assert!(matches!(
        worker.submit(0, callable, &args(Script::Add, 1, &shared, 0)),
        Err(WorkerError::Closed)
    ));
    assert!(worker.poll(&ticket));
    assert!(matches!(worker.wait(ticket), Err(WorkerError::Closed)));
}

fn dropping_closes() {
    let (worker, _, _) = started(2);
    let pids = worker.pids();
    drop(worker);
    assert!(pids.iter().all(|pid| !lives(*pid)));
    assert_no_children();
}

fn close_says_when_a_chip_ended_that_was_not_told_to() {
    let (mut worker, _, _) = started(1);
    let pid = worker.pids()[0];
    kill(pid);
    wait_until_collectible(pid);
    let error = worker.close().unwrap_err();
    assert!(error.to_string().ends_with("(SIGKILL) before it was told to leave"), "{error}");

    let mut builder = scripted(1).0;
    builder
        .endpoint(|_, _| Ok(Box::new(Scripted { _at_the_end: PanicAtTheEnd(true), ..Scripted::default() })));
    let error = builder.start().unwrap().close().unwrap_err();
    assert!(error.to_string().ends_with("exited with status 3 after it was told to leave"), "{error}");
    assert_no_children();
}

fn an_orderly_close_is_one_where_nobody_keeps_the_status_of_children() {
    // SAFETY: no handler is installed.
    let former = unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    assert_ne!(former, libc::SIG_ERR);
    let (mut worker, callable, shared) = started(2);
    let ticket = worker.submit(0, callable, &args(Script::Add, 1, &shared, 0)).unwrap();
    worker.wait(ticket).unwrap();
    worker.close().unwrap();
    assert_no_children();
}

fn a_copy_in_a_forked_process_does_nothing() {
    let (mut worker, callable, shared) = started(1);
    let owner = std::process::id() as i32;
    let ticket = worker.submit(0, callable, &args(Script::Meet, 0, &shared, 0)).unwrap();
    until("the run", || word(&shared, 0) == 1);
    beside(|| {
        assert!(worker.poll(&ticket), "nothing to wait for");
        let refusals = [
            worker.malloc(0, 8).map(drop),
            worker.submit(0, callable, &args(Script::Add, 1, &shared, 0)).map(drop),
        ];
        for refusal in refusals {
            assert!(matches!(refusal, Err(WorkerError::Foreign { owner: of }) if of == owner), "{refusal:?}");
        }
        worker.close().unwrap();
    })();
    assert!(!worker.poll(&ticket), "the run goes on");
    set_word(&shared, 8, 1);
    worker.wait(ticket).unwrap();
    worker.close().unwrap();
}

fn close_lets_a_run_in_progress_end() {
    let (mut worker, callable, shared) = started(2);
    let idle = worker.pids()[1];
    let run = args(Script::Meet, 0, &shared, 0);
    let _ticket = worker.submit(0, callable, &run).unwrap();
    until("the run", || word(&shared, 0) == 1);
    // The idle chip's end shows that close has told them; then the run may end.
    let released = beside(|| {
        until("the idle chip's end", || !lives(idle));
        set_word(&shared, 8, 1);
    });
    worker.close().unwrap();
    assert_eq!(word(&shared, 8), 1, "close returned before the run had ended");
    released();
    assert_no_children();
}

fn a_chip_that_does_not_leave_is_killed() {
    let (mut worker, callable, shared) = started(2);
    let pid = worker.pids()[1];
    let _ticket = worker.submit(1, callable, &args(Script::Meet, 0, &shared, 0)).unwrap();
    until("the run", || word(&shared, 0) == 1);
    let error = worker.close_within(Duration::from_millis(100)).unwrap_err();
    assert!(matches!(error, WorkerError::Unresponsive { child: ChildId::Chip(1), .. }), "{error:?}");
    assert!(
        error.to_string().starts_with(&format!("chip 1 (pid {pid}) did not leave within 100ms")),
        "{error}"
    );
    assert_no_children();
    worker.close().unwrap();
}

fn a_second_worker_can_follow_the_first() {
    for _ in 0..3 {
        let (mut worker, callable, shared) = started(1);
        let ticket = worker.submit(0, callable, &args(Script::Add, 3, &shared, 0)).unwrap();
        worker.wait(ticket).unwrap();
        assert_eq!(word(&shared, 8), 3);
    }
    // Two at once cannot be: the first one's log writer is stopped for the fork and started again.
    let (mut first, callable, shared) = started(1);
    let (second, _, _) = started(1);
    drop(second);
    let ticket = first.submit(0, callable, &args(Script::Add, 4, &shared, 0)).unwrap();
    first.wait(ticket).unwrap();
    first.close().unwrap();
    assert_no_children();
}

fn parent_that_waits() {
    let (worker, _, _) = started(2);
    let pids = worker.pids();
    println!("{} {}", pids[0], pids[1]);
    until("the end", || false);
}

fn parent_of_a_chip_in_an_endless_run() {
    let (mut worker, callable, shared) = started(1);
    let _ticket = worker.submit(0, callable, &args(Script::Hang, 0, &shared, 0)).unwrap();
    until("the run", || word(&shared, 0) == 1);
    println!("{}", worker.pids()[0]);
    hang();
}

fn parent_of_a_chip_in_an_endless_bring_up() {
    let (mut builder, _) = scripted(1);
    builder.endpoint(|_, _| {
        println!("{}", std::process::id());
        hang();
    });
    drop(builder.start());
}

fn children_of_a_killed_parent_leave() {
    assert_children_leave_with("parent_that_waits", 2);
}

fn a_child_in_an_endless_run_leaves_with_its_parent() {
    assert_children_leave_with("parent_of_a_chip_in_an_endless_run", 1);
}

fn a_child_in_an_endless_bring_up_leaves_with_its_parent() {
    assert_children_leave_with("parent_of_a_chip_in_an_endless_bring_up", 1);
}

/// Starts a program, which prints the pids of its children, and kills it.
fn assert_children_leave_with(parent: &str, children: usize) {
    let mut parent = program(parent).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(parent.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let pids: Vec<i32> = line.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
    assert_eq!(pids.len(), children);
    assert!(pids.iter().all(|pid| lives(*pid)));
    parent.kill().unwrap();
    parent.wait().unwrap();
    let deadline = Instant::now() + LIMIT;
    while pids.iter().any(|pid| lives(*pid)) && Instant::now() < deadline {
        std::thread::yield_now();
    }
    let left: Vec<i32> = pids.into_iter().filter(|pid| lives(*pid)).collect();
    left.iter().for_each(|pid| kill(*pid));
    assert!(left.is_empty(), "{left:?} outlived their parent");
}

fn a_second_thread_forbids_the_start() {
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || stopped.recv());
    let error = scripted(1).0.start().map(drop).unwrap_err();
    assert!(matches!(error, WorkerError::Threads { threads: 2 }), "{error:?}");
    assert!(error.to_string().contains("start the worker before any other thread"), "{error}");
    assert_no_children();
    drop(stop);
    let _ = thread.join().unwrap();
    drop(scripted(1).0.start().unwrap());
}

fn threads_that_are_permitted_are_named_and_the_start_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let (begin, begun) = std::sync::mpsc::channel::<()>();
    let wait = move || {
        drop(begin);
        stopped.recv()
    };
    let idle = std::thread::Builder::new().name("of a library".into()).spawn(wait).unwrap();
    // A thread gives itself its name, before anything else.
    assert!(begun.recv().is_err());
    let (mut builder, callable) = scripted(1);
    builder.permit_other_threads();
    builder.log(LogSetup { threshold: Threshold::TIMING, directory: Some(directory.path().into()) });
    let shared = builder.share(SharedBuffer::new(64).unwrap());
    let mut worker = builder.start().unwrap();
    let ticket = worker.submit(0, callable, &args(Script::Add, 1, &shared, 0)).unwrap();
    worker.wait(ticket).unwrap();
    worker.close().unwrap();
    drop(stop);
    let _ = idle.join().unwrap();

    let log = fs::read_to_string(directory.path().join(format!("host.{}.log", std::process::id()))).unwrap();
    assert_eq!(log.matches("forking beside 1 other threads (1 of a library)").count(), 1, "{log}");
}

fn each_child_is_forked_as_the_builder_was_told() {
    let (mut builder, _) = scripted(2);
    let forks = std::rc::Rc::new(std::cell::Cell::new(0));
    let counted = forks.clone();
    builder.fork_with(move || {
        counted.set(counted.get() + 1);
        // SAFETY: the test's process has one thread.
        match unsafe { libc::fork() } {
            -1 => Err(std::io::Error::last_os_error()),
            pid => Ok(pid),
        }
    });
    let mut worker = builder.start().unwrap();
    assert_eq!((forks.get(), worker.pids().len()), (2, 2));
    worker.close().unwrap();

    let (mut builder, _) = scripted(2);
    let forks = std::rc::Rc::new(std::cell::Cell::new(0));
    builder.fork_with(move || match forks.replace(1) {
        // SAFETY: as above.
        0 => Ok(unsafe { libc::fork() }),
        _ => Err(std::io::Error::other("no more of them")),
    });
    let error = builder.start().map(drop).unwrap_err();
    assert_eq!(error.to_string(), "worker: fork: no more of them");
    assert_no_children();
}

/// Says no until it is set, and no again once it has said yes.
type Asked = std::rc::Rc<std::cell::Cell<bool>>;

/// As `started`, with one chip and a way to interrupt.
fn interruptible() -> (Worker, Callable, SharedMemory, Asked) {
    let (mut builder, callable) = scripted(1);
    let shared = builder.share(SharedBuffer::new(4096).unwrap());
    let freed = shared.clone();
    builder
        .endpoint(move |_, _| Ok(Box::new(Scripted { freed: Some(freed.clone()), ..Scripted::default() })));
    let asked = Asked::default();
    let interrupted = asked.clone();
    builder.interrupt_with(move || interrupted.take());
    (builder.start().unwrap(), callable, shared, asked)
}

fn an_interrupted_wait_gives_the_ticket_back() {
    let (mut worker, callable, shared, asked) = interruptible();
    let ticket = worker.submit(0, callable, &args(Script::Meet, 0, &shared, 0)).unwrap();
    let run = ticket.run_id();
    asked.set(true);
    let error = worker.wait(ticket).unwrap_err();
    assert_eq!(error.to_string(), "worker: interrupted while waiting for chip 0");
    let WorkerError::Interrupted { ticket: Some(ticket), .. } = error else { panic!("{error:?}") };
    assert_eq!(ticket.run_id(), run);
    let busy = worker.submit(0, callable, &args(Script::Add, 1, &shared, 64)).unwrap_err();
    assert!(matches!(busy, WorkerError::Busy { run_id, .. } if run_id == run), "{busy:?}");
    set_word(&shared, 8, 1);
    worker.wait(*ticket).unwrap();
    let ticket = worker.submit(0, callable, &args(Script::Add, 1, &shared, 64)).unwrap();
    worker.wait(ticket).unwrap();
    worker.close().unwrap();
}

fn an_interrupted_request_is_undone_before_the_next_one() {
    let (mut worker, callable, shared, asked) = interruptible();
    let ticket = worker.submit(0, callable, &args(Script::Meet, 0, &shared, 0)).unwrap();
    until("the run", || word(&shared, 0) == 1);
    // It is served once the run has ended.
    asked.set(true);
    let error = worker.malloc(0, 16).unwrap_err();
    assert!(matches!(error, WorkerError::Interrupted { ticket: None, .. }), "{error:?}");
    asked.set(true);
    let error = worker.register(image("second")).unwrap_err();
    assert!(matches!(error, WorkerError::Interrupted { .. }), "it still waits for the first: {error:?}");
    set_word(&shared, 8, 1);
    worker.wait(ticket).unwrap();
    // The scripted device says what it is asked to free.
    assert_eq!(worker.malloc(0, 32).unwrap(), DeviceAddr(64));
    assert_eq!(word(&shared, 16), 64, "the first was freed");
    let error = worker.submit(0, Callable::from_scalars([0; 4]), &RunArgs::default()).unwrap_err();
    assert!(matches!(error, WorkerError::Unknown(_)), "{error:?}");
    worker.close().unwrap();
}

fn an_interrupted_start_leaves_nobody() {
    let (mut builder, _) = scripted(2);
    builder.endpoint(|_, _| {
        hang();
    });
    let began = Instant::now();
    builder.interrupt_with(move || began.elapsed() > Duration::from_millis(50));
    let error = builder.start().map(drop).unwrap_err();
    assert_eq!(error.to_string(), "worker: its set-up was cancelled by an interrupt");
    assert!(began.elapsed() < LIMIT);
    assert_no_children();
}

fn an_interrupted_close_kills_whoever_is_late() {
    let (mut worker, callable, shared, asked) = interruptible();
    let ticket = worker.submit(0, callable, &args(Script::Hang, 0, &shared, 0)).unwrap();
    until("the run", || word(&shared, 0) == 1);
    asked.set(true);
    let began = Instant::now();
    let error = worker.close().unwrap_err();
    assert!(matches!(error, WorkerError::Interrupted { ticket: None, .. }), "{error:?}");
    assert!(began.elapsed() < LIMIT);
    assert_no_children();
    assert!(matches!(worker.wait(ticket), Err(WorkerError::Closed)));
}

fn memory_that_no_chip_can_reach_is_refused() {
    let (mut worker, callable, shared) = started(1);
    let own = [0u8; 16];
    let tensor = SimplerTensor::whole(own.as_ptr() as u64, 16, DType::U8, HOST_MEMORY);
    let run = RunArgs {
        tensors: vec![ChipArg { tensor, arg_use: ArgUse::Input }],
        scalars: vec![],
        ..RunArgs::default()
    };
    let error = worker.submit(0, callable, &run).unwrap_err();
    assert!(error.to_string().contains("outside every shared buffer"), "{error}");

    // Shared, but with nobody: the buffer of another worker to be.
    let foreign = scripted(1).0.share(SharedBuffer::new(64).unwrap());
    let error = worker.copy_to(0, DeviceAddr(64), &foreign.slice(0, 64).unwrap()).unwrap_err();
    assert!(error.to_string().contains("were not shared with this worker"), "{error}");
    let error = worker.submit(0, callable, &args(Script::Add, 0, &foreign, 0)).unwrap_err();
    assert!(matches!(error, WorkerError::Arguments(_)), "{error:?}");

    let ticket = worker.submit(0, callable, &args(Script::Add, 9, &shared, 0)).unwrap();
    worker.wait(ticket).unwrap();
    assert_eq!(word(&shared, 8), 9);
    worker.close().unwrap();
}

fn a_busy_chip_takes_no_second_run() {
    let (mut worker, callable, shared) = started(1);
    let ticket = worker.submit(0, callable, &args(Script::Meet, 0, &shared, 0)).unwrap();
    let error = worker.submit(0, callable, &args(Script::Add, 0, &shared, 64)).unwrap_err();
    assert!(
        matches!(error, WorkerError::Busy { child: ChildId::Chip(0), run_id } if run_id == ticket.run_id()),
        "{error:?}"
    );
    set_word(&shared, 8, 1);
    worker.wait(ticket).unwrap();
    worker.close().unwrap();
}

fn settings_out_of_range_are_refused() {
    for (level, chips, part) in [(4, 1, "level 4"), (3, 0, "no children"), (3, CHIPS_MAX + 1, "17 chips")] {
        let mut builder = Worker::builder(level);
        builder.chips(chips);
        let error = builder.start().map(drop).unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
    }
    let mut builder = Worker::builder(3);
    let first = builder.callable(image("0")).unwrap();
    for number in 1..CALLABLES_MAX {
        builder.callable(image(&number.to_string())).unwrap();
    }
    assert_eq!(builder.callable(image("0")).unwrap(), first, "the same content is the same callable");
    let error = builder.callable(image("one more")).unwrap_err();
    assert!(error.to_string().contains("at most 64"), "{error}");
}

fn every_process_writes_one_log_with_one_anchor() {
    let directory = tempfile::tempdir().unwrap();
    let (mut builder, callable) = scripted(2);
    builder.log(LogSetup { threshold: Threshold::TIMING, directory: Some(directory.path().into()) });
    let shared = builder.share(SharedBuffer::new(4096).unwrap());
    let mut worker = builder.start().unwrap();
    let ticket = worker.submit(1, callable, &args(Script::Add, 1, &shared, 0)).unwrap();
    let run = ticket.run_id();
    worker.wait(ticket).unwrap();
    let pids = worker.pids();
    worker.close().unwrap();

    let own = std::process::id() as i32;
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 3);
    let log = |pid: i32| fs::read_to_string(directory.path().join(format!("host.{pid}.log"))).unwrap();
    for pid in [own, pids[0], pids[1]] {
        let anchors = log(pid).matches(&format!("clock_anchor: [CLOCK_ANCHOR] v=1 pid={pid}")).count();
        assert_eq!(anchors, 1, "pid {pid}");
        assert_eq!(log(pid).matches("[CLOCK_ANCHOR]").count(), 1, "pid {pid}: nobody else's");
    }
    for (name, attributes) in [
        ("node.submit", format!("run_id={run} task_slot=0 role=facade")),
        ("node.dispatch", format!("run_id={run} task_slot=0 worker_id=1 dispatch_id=1 role=worker")),
        ("node.complete", format!("run_id={run} task_slot=0 worker_id=1 dispatch_id=1 role=worker")),
    ] {
        let text = log(own);
        let spans: Vec<&str> = text.lines().filter(|line| line.contains(&format!("name={name} "))).collect();
        assert_eq!(spans.len(), 1, "{name}");
        assert!(spans[0].contains(&format!("inv={run} ")) && spans[0].ends_with(&attributes), "{}", spans[0]);
    }
}

/// Whether a process sleeps.
fn sleeps(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('S'))
}

/// How often a process has gone to sleep.
fn sleeps_so_far(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    count.unwrap().trim().parse().unwrap()
}

/// The number behind a key of a record.
fn number(record: &str, key: &str) -> i64 {
    let value = record.split_once(&format!(" {key}=")).unwrap_or_else(|| panic!("{key} in {record}")).1;
    value.split(' ').next().unwrap().parse().unwrap()
}

fn a_wait_that_finds_nothing_at_first_is_a_span() {
    let directory = tempfile::tempdir().unwrap();
    let (mut builder, callable) = scripted(1);
    builder.log(LogSetup { threshold: Threshold::TIMING, directory: Some(directory.path().into()) });
    let shared = builder.share(SharedBuffer::new(4096).unwrap());
    let mut worker = builder.start().unwrap();
    let own = std::process::id() as i32;
    let done = worker.submit(0, callable, &args(Script::Add, 1, &shared, 64)).unwrap();
    until("the run", || worker.poll(&done));
    worker.wait(done).unwrap();
    // Two runs: one that ends when this process sleeps in its wait, one whose child is killed then.
    let mut waited = Vec::new();
    for (offset, release) in [(128, true), (192, false)] {
        let ticket = worker.submit(0, callable, &args(Script::Meet, 0, &shared, offset)).unwrap();
        let child = worker.pids()[0];
        let ended = beside(|| {
            until("the wait", || word(&shared, offset) == 1 && sleeps(own));
            set_word(&shared, offset + 16, monotonic_ns() as u64);
            // It looks a few times more.
            let before = sleeps_so_far(own);
            until("more looks", || sleeps_so_far(own) > before + 2);
            if release { set_word(&shared, offset + 8, 1) } else { kill(child) }
        });
        waited.push(ticket.run_id());
        assert_eq!(worker.wait(ticket).is_ok(), release);
        ended();
    }
    let _ = worker.close();

    let log = fs::read_to_string(directory.path().join(format!("host.{own}.log"))).unwrap();
    let named = |name: &str| -> Vec<&str> {
        log.lines().filter(|line| line.contains(&format!(" name=node.{name} "))).collect()
    };
    let [first, second] = named("scheduler_loop")[..] else { panic!("two waits: {log}") };
    for record in [first, second] {
        assert!(record.contains(" inv=0 hid=0 depth=0 ") && record.contains(" role=scheduler drained="));
        assert!(number(record, "spins") > 0 && number(record, "dispatched") == 0, "{record}");
    }
    let complete =
        named("complete").into_iter().find(|record| number(record, "inv") == waited[0] as i64).unwrap();
    let window = |record: &str| (number(record, "ts"), number(record, "ts") + number(record, "dur"));
    for (record, offset) in [(first, 128), (second, 192)] {
        let (slept, (start, end)) = (word(&shared, offset + 16) as i64, window(record));
        assert!(start <= slept && slept <= end, "{start} to {end} is not around {slept}");
    }
    let (inner, outer) = (window(complete), window(first));
    assert!(outer.0 <= inner.0 && inner.1 <= outer.1, "{outer:?} is not around {inner:?}");
    assert_eq!((number(first, "drained"), number(first, "drain_ns")), (1, number(complete, "dur")));
    assert_eq!((number(second, "drained"), number(second, "drain_ns")), (0, 0));
}

extern "C" fn on_exit() {
    println!("exit handler");
}

fn parent_with_buffered_output() {
    // SAFETY: the handler only prints.
    let registered = unsafe { libc::atexit(on_exit) };
    assert_eq!(registered, 0);
    // Without a newline it stays in the buffer over the fork.
    print!("buffered ");
    let (mut worker, _, _) = started(2);
    worker.close().unwrap();
    println!("closed");
    std::io::stdout().flush().unwrap();
}

fn children_leave_their_parents_stdio_and_exit_handlers_alone() {
    let output = program("parent_with_buffered_output").output().unwrap();
    assert!(output.status.success());
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "buffered closed\nexit handler\n");
}
