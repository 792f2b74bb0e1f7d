//! Workers of every level: a chip in the process, sub workers, parents of parents.

#![allow(clippy::unwrap_used, reason = "a test program whose functions clippy does not know for tests")]

mod one_thread;
mod processes;
mod real_chips;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use simpler_kernel_abi::{ArgUse, DType};
use simpler_log_abi::Threshold;
use simpler_worker::{
    Callable, ChildId, ChipWorker, Ending, LogSetup, RunArgs, RunError, SharedBuffer, SharedMemory, Worker,
    WorkerBuilder, WorkerError,
};

use one_thread::Test;
use processes::{children_of, is_alive, wait_until};
use real_chips::*;

/// How long what a test waits for may take.
const LIMIT: Duration = Duration::from_secs(20);

const TESTS: &[Test] = &[
    ("a_worker_of_level_2_is_a_chip_in_this_process", a_worker_of_level_2_is_a_chip_in_this_process),
    (
        "sub_workers_run_functions_in_processes_of_their_own",
        sub_workers_run_functions_in_processes_of_their_own,
    ),
    ("a_function_that_fails_or_panics_is_reported", a_function_that_fails_or_panics_is_reported),
    (
        "a_pod_runs_orchestrations_over_the_chips_of_its_nodes",
        a_pod_runs_orchestrations_over_the_chips_of_its_nodes,
    ),
    ("a_failure_two_levels_below_arrives_with_its_code", a_failure_two_levels_below_arrives_with_its_code),
    ("every_level_has_its_word_and_its_log", every_level_has_its_word_and_its_log),
    ("a_killed_node_is_reported_and_its_chips_leave", a_killed_node_is_reported_and_its_chips_leave),
    ("a_node_whose_chip_does_not_come_up_fails_the_pod", a_node_whose_chip_does_not_come_up_fails_the_pod),
    (
        "a_node_that_loses_a_chip_says_so_when_the_pod_is_closed",
        a_node_that_loses_a_chip_says_so_when_the_pod_is_closed,
    ),
    (
        "the_copy_of_a_chip_worker_in_a_forked_process_ends_nothing",
        the_copy_of_a_chip_worker_in_a_forked_process_ends_nothing,
    ),
    ("what_a_level_has_not_is_refused", what_a_level_has_not_is_refused),
];

fn main() -> ExitCode {
    one_thread::main(TESTS, &[])
}

/// A node of so many chips, and its callable.
fn node(chips: usize) -> (WorkerBuilder, Callable) {
    let mut builder = Worker::builder(3);
    builder.chips(chips);
    builder.endpoint(|_, callables| Ok(Box::new(ChipWorker::new(npu(), small(), callables)?)));
    let add = builder.callable(image(ADD_KERNEL)).unwrap();
    (builder, add)
}

/// An orchestration of a node: each chip adds the scalar to the numbers of slot 0, chip c into the slot that the second
/// scalar says, plus c.
fn spread(
    add_to: Callable,
    chips: usize,
    shared: SharedMemory,
) -> impl Fn(&mut Worker, &RunArgs) -> Result<(), RunError> {
    move |worker, args| {
        let to = args.scalars[1] as usize;
        let submit = |chip| worker.submit(chip, add_to, &add(&shared, 0, to + chip, args.scalars[0]));
        let tickets: Vec<_> = (0..chips).map(submit).collect::<Result<_, _>>()?;
        tickets.into_iter().try_for_each(|ticket| worker.wait(ticket))?;
        Ok(())
    }
}

/// A pod of two nodes with two chips each, and its callable.
fn pod() -> (WorkerBuilder, Callable, SharedMemory) {
    let mut pod = Worker::builder(4);
    let shared = pod.share(SharedBuffer::new(16 * BYTES).unwrap());
    let mut handle = None;
    for _ in 0..2 {
        let (node, add) = node(2);
        pod.worker(node);
        handle = Some(add);
    }
    let step = pod.orchestration("spread", spread(handle.unwrap(), 2, shared.clone())).unwrap();
    (pod, step, shared)
}

fn scalars(scalars: &[u64]) -> RunArgs {
    RunArgs { scalars: scalars.to_vec(), ..RunArgs::default() }
}

fn a_worker_of_level_2_is_a_chip_in_this_process() {
    let mut builder = Worker::builder(2);
    builder.endpoint(|_, callables| Ok(Box::new(ChipWorker::new(npu(), small(), callables)?)));
    let callable = builder.callable(image(ADD_KERNEL)).unwrap();
    let shared = builder.share(SharedBuffer::new(4 * BYTES).unwrap());
    let mut worker = builder.start().unwrap();
    assert_eq!((worker.level(), worker.pids()), (2, vec![]));
    put(&shared, 0, 1.0);
    let tickets = [1, 2].map(|to| worker.submit(0, callable, &add(&shared, 0, to, to as u64)).unwrap());
    for ticket in tickets {
        assert!(worker.poll(&ticket));
        worker.wait(ticket).unwrap();
    }
    assert_holds(&shared, 1, 2.0);
    assert_holds(&shared, 2, 3.0);
    let memory = worker.malloc(0, BYTES).unwrap();
    worker.copy_to(0, memory, &shared.slice(BYTES, BYTES).unwrap()).unwrap();
    worker.copy_from(0, &shared.slice(3 * BYTES, BYTES).unwrap(), memory).unwrap();
    worker.free(0, memory).unwrap();
    assert_holds(&shared, 3, 2.0);
    let failing = worker.submit(0, callable, &add(&shared, 0, 1, 13)).unwrap();
    let error = worker.wait(failing).unwrap_err();
    assert!(matches!(error, WorkerError::Child { child: ChildId::Chip(0), code: -9, .. }), "{error:?}");
    assert!(error.to_string().contains("thirteen"), "{error}");
    let error = worker.submit(1, callable, &add(&shared, 0, 1, 1)).unwrap_err();
    assert!(error.to_string().contains("no chip 1 among 1 chips"), "{error}");
    worker.close().unwrap();
    let error = worker.submit(0, callable, &add(&shared, 0, 1, 1)).unwrap_err();
    assert!(matches!(error, WorkerError::Closed), "{error:?}");
}

fn sub_workers_run_functions_in_processes_of_their_own() {
    let mut builder = Worker::builder(3);
    builder.chips(0).subs(2);
    let shared = builder.share(SharedBuffer::new(64).unwrap());
    let memory = shared.clone();
    let note = builder
        .function("note", move |args| {
            let word = (u64::from(std::process::id()) << 32 | args.scalars[1]).to_ne_bytes();
            memory.write(args.scalars[0] as usize * 8, &word).map_err(RunError::from)
        })
        .unwrap();
    let error = builder.function("note", |_| Ok(())).unwrap_err();
    assert!(error.to_string().contains("a function note already"), "{error}");
    let mut worker = builder.start().unwrap();
    let pids = worker.pids();
    let subs = [0, 1].map(ChildId::Sub);
    let tickets = subs.map(|sub| {
        let place = if sub == ChildId::Sub(0) { 0 } else { 1 };
        worker.submit(sub, note, &scalars(&[place, 40 + place])).unwrap()
    });
    for ticket in tickets {
        worker.wait(ticket).unwrap();
    }
    for (place, pid) in pids.iter().enumerate() {
        let mut word = [0; 8];
        shared.read(place * 8, &mut word).unwrap();
        assert_eq!(u64::from_ne_bytes(word), (*pid as u64) << 32 | (40 + place as u64));
    }
    assert_eq!(worker.prepare(ChildId::Sub(1), note).unwrap(), 0);
    let error = worker.malloc(ChildId::Sub(0), 8).unwrap_err();
    assert!(error.to_string().contains("no device memory"), "{error}");
    worker.close().unwrap();
}

fn a_function_that_fails_or_panics_is_reported() {
    let mut builder = Worker::builder(3);
    builder.chips(0).subs(2);
    let fails =
        builder.function("fails", |_| Err(RunError { code: 77, text: "no more ink".into() })).unwrap();
    let panics = builder.function("panics", |_| panic!("the pen is broken")).unwrap();
    let mut worker = builder.start().unwrap();
    let mut call = |sub, function| {
        let ticket = worker.submit(ChildId::Sub(sub), function, &scalars(&[]))?;
        worker.wait(ticket)
    };
    let error = call(0, fails).unwrap_err();
    assert!(matches!(error, WorkerError::Child { child: ChildId::Sub(0), code: 77, .. }), "{error:?}");
    let error = call(1, panics).unwrap_err();
    assert!(
        error.to_string().contains("sub worker 1") && error.to_string().contains("pen is broken"),
        "{error}"
    );
    // The other one goes on.
    assert!(matches!(call(0, fails).unwrap_err(), WorkerError::Child { code: 77, .. }));
    let error = worker.close().unwrap_err();
    assert!(
        matches!(error, WorkerError::ChildGone { child: ChildId::Sub(1), ending: Ending::Exited(3), .. }),
        "{error:?}"
    );
}

fn a_pod_runs_orchestrations_over_the_chips_of_its_nodes() {
    let (mut pod, step, shared) = pod();
    pod.subs(1);
    let sum_of = shared.clone();
    let sum = pod
        .function("first numbers", move |args| {
            let mut total = 0.0;
            for slot in 1..=4 {
                let mut bytes = [0; 4];
                sum_of.read(slot * BYTES, &mut bytes)?;
                total += f32::from_ne_bytes(bytes);
            }
            sum_of.write(args.scalars[0] as usize * BYTES, &total.to_ne_bytes()).map_err(RunError::from)
        })
        .unwrap();
    let mut pod = pod.start().unwrap();
    put(&shared, 0, 5.0);
    for round in 1..=3 {
        let tickets = [0, 1].map(|node| {
            let args = scalars(&[round + node as u64, 1 + 2 * node as u64]);
            pod.submit(ChildId::Worker(node), step, &args).unwrap()
        });
        for ticket in tickets {
            pod.wait(ticket).unwrap();
        }
        let first = 5.0 + round as f32;
        for (slot, expected) in [(1, first), (2, first), (3, first + 1.0), (4, first + 1.0)] {
            assert_holds(&shared, slot, expected);
        }
        let ticket = pod.submit(ChildId::Sub(0), sum, &scalars(&[9])).unwrap();
        pod.wait(ticket).unwrap();
        let mut bytes = [0; 4];
        shared.read(9 * BYTES, &mut bytes).unwrap();
        assert_eq!(f32::from_ne_bytes(bytes), 4.0 * first + 2.0);
    }
    pod.close().unwrap();
}

fn a_failure_two_levels_below_arrives_with_its_code() {
    let (pod, step, shared) = pod();
    let mut pod = pod.start().unwrap();
    put(&shared, 0, 0.0);
    let ticket = pod.submit(ChildId::Worker(1), step, &scalars(&[13, 1])).unwrap();
    let error = pod.wait(ticket).unwrap_err();
    assert!(matches!(error, WorkerError::Child { child: ChildId::Worker(1), code: -9, .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("worker 1") && text.contains("chip 0") && text.contains("thirteen"), "{text}");
    // Of the run on the node's other chip, which nobody waited for, nothing is left.
    let ticket = pod.submit(ChildId::Worker(1), step, &scalars(&[1, 1])).unwrap();
    pod.wait(ticket).unwrap();
    assert_holds(&shared, 1, 1.0);
    pod.close().unwrap();
}

/// The lines of all logs in a folder.
fn lines(directory: &Path) -> Vec<String> {
    let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    files
        .flat_map(|file| {
            std::fs::read_to_string(file).unwrap().lines().map(str::to_owned).collect::<Vec<_>>()
        })
        .collect()
}

fn every_level_has_its_word_and_its_log() {
    let directory = tempfile::tempdir().unwrap();
    let (mut pod, step, _) = pod();
    pod.log(LogSetup { threshold: Threshold::TIMING, directory: Some(directory.path().into()) });
    let mut pod = pod.start().unwrap();
    for node in 0..2 {
        let ticket = pod.submit(ChildId::Worker(node), step, &scalars(&[1, 1 + 2 * node as u64])).unwrap();
        pod.wait(ticket).unwrap();
    }
    let (own, nodes) = (std::process::id() as i32, pod.pids());
    pod.close().unwrap();
    let lines = lines(directory.path());
    let emitted = |pid: i32, name: &str| {
        let of = |line: &&String| {
            line.contains(&format!(" pid={pid} ")) && line.contains(&format!(" name={name} "))
        };
        lines.iter().filter(of).count()
    };
    for (pid, word, other, runs) in
        [(own, "network1", "node", 2), (nodes[0], "node", "network1", 2), (nodes[1], "node", "network1", 2)]
    {
        for leaf in ["submit", "dispatch", "complete"] {
            assert_eq!(emitted(pid, &format!("{word}.{leaf}")), runs, "{pid} {word}.{leaf}");
            assert_eq!(emitted(pid, &format!("{other}.{leaf}")), 0, "{pid} {other}.{leaf}");
        }
    }
    let chips: Vec<_> = lines.iter().filter(|line| line.contains(" name=simpler_run ")).collect();
    assert_eq!(chips.len(), 4, "a run of each chip");
    // One pod, two nodes, four chips.
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 7);
}

fn a_killed_node_is_reported_and_its_chips_leave() {
    let (pod, step, _shared) = pod();
    let mut pod = pod.start().unwrap();
    let node = pod.pids()[0];
    let chips = children_of(node);
    assert_eq!(chips.len(), 2);
    // SAFETY: kill has no memory effects.
    assert_eq!(unsafe { libc::kill(node, libc::SIGKILL) }, 0);
    let error = match pod.submit(ChildId::Worker(0), step, &scalars(&[1, 1])) {
        Ok(ticket) => pod.wait(ticket).unwrap_err(),
        Err(error) => error,
    };
    assert!(
        matches!(error, WorkerError::ChildGone { child: ChildId::Worker(0), ending: Ending::Killed(9), .. }),
        "{error:?}"
    );
    wait_until(LIMIT, "a chip outlives its node", || !chips.iter().any(|chip| is_alive(*chip)));
    // The other node works on.
    let ticket = pod.submit(ChildId::Worker(1), step, &scalars(&[1, 3])).unwrap();
    pod.wait(ticket).unwrap();
    pod.close().unwrap();
}

fn a_node_that_loses_a_chip_says_so_when_the_pod_is_closed() {
    let (pod, _, _shared) = pod();
    let mut pod = pod.start().unwrap();
    let chip = children_of(pod.pids()[1])[0];
    // SAFETY: kill has no memory effects.
    assert_eq!(unsafe { libc::kill(chip, libc::SIGKILL) }, 0);
    let error = pod.close().unwrap_err();
    let expected = (ChildId::Worker(1), Ending::Exited(4));
    assert!(
        matches!(error, WorkerError::ChildGone { child, ending, .. } if (child, ending) == expected),
        "{error:?}"
    );
}

fn the_copy_of_a_chip_worker_in_a_forked_process_ends_nothing() {
    let mut builder = Worker::builder(2);
    builder.endpoint(|_, callables| Ok(Box::new(ChipWorker::new(npu(), small(), callables)?)));
    let callable = builder.callable(image(ADD_KERNEL)).unwrap();
    let shared = builder.share(SharedBuffer::new(2 * BYTES).unwrap());
    let mut worker = builder.start().unwrap();
    put(&shared, 0, 1.0);
    // SAFETY: the child drops the copy and leaves at once.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused =
            matches!(worker.submit(0, callable, &add(&shared, 0, 1, 1)), Err(WorkerError::Foreign { .. }));
        drop(worker);
        // SAFETY: ends this process.
        unsafe { libc::_exit(if refused { 7 } else { 8 }) };
    }
    let mut status = 0;
    wait_until(LIMIT, "the copy hangs", || {
        // SAFETY: the status is there to be filled.
        unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) != 0 }
    });
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7, "{status:#x}");
    let ticket = worker.submit(0, callable, &add(&shared, 0, 1, 1)).unwrap();
    worker.wait(ticket).unwrap();
    assert_holds(&shared, 1, 2.0);
    worker.close().unwrap();
}

fn a_node_whose_chip_does_not_come_up_fails_the_pod() {
    let mut pod = Worker::builder(4);
    let (good, _) = node(1);
    let mut bad = Worker::builder(3);
    bad.chips(2);
    bad.endpoint(|chip, callables| match chip {
        1 => Err(RunError { code: 5, text: "no such device".into() }),
        _ => Ok(Box::new(ChipWorker::new(npu(), small(), callables)?)),
    });
    pod.worker(good).worker(bad);
    let Err(error) = pod.start() else { panic!("it started") };
    let text = error.to_string();
    assert!(matches!(error, WorkerError::Init { child: ChildId::Worker(1), .. }), "{text}");
    assert!(
        text.contains("worker 1") && text.contains("chip 1") && text.contains("no such device"),
        "{text}"
    );
}

fn what_a_level_has_not_is_refused() {
    let start = |builder: WorkerBuilder| match builder.start() {
        Ok(_) => panic!("it started"),
        Err(error) => error.to_string(),
    };
    let of = |level, change: fn(&mut WorkerBuilder)| {
        let mut builder = Worker::builder(level);
        change(&mut builder);
        start(builder)
    };
    for (text, expected) in [
        (of(1, |_| ()), "from 2 to 6"),
        (of(7, |_| ()), "from 2 to 6"),
        (of(2, |worker| _ = worker.chips(2)), "2 chips are more than 1"),
        (of(2, |worker| _ = worker.subs(1)), "without sub workers"),
        (of(3, |worker| _ = worker.chips(17)), "17 chips are more than 16"),
        (of(3, |worker| _ = worker.chips(0)), "no children"),
        (of(3, |worker| _ = worker.subs(65)), "65 sub workers"),
        (
            of(3, |worker| _ = worker.worker(Worker::builder(2))),
            "a worker of level 2 is none of its children",
        ),
        (of(4, |worker| _ = worker.chips(1)), "1 chips are more than 0"),
        (of(4, |_| ()), "no children"),
        (
            of(5, |worker| _ = worker.worker(Worker::builder(3))),
            "a worker of level 3 is none of its children",
        ),
        (
            of(4, |worker| {
                _ = worker.worker({
                    let mut below = Worker::builder(3);
                    below.chips(99);
                    below
                })
            }),
            "level 3: 99 chips",
        ),
    ] {
        assert!(text.contains(expected), "{text}");
    }
    // Callables go to the children that run them.
    let (mut builder, add_to) = node(1);
    builder.subs(1);
    let function = builder.function("nothing", |_| Ok(())).unwrap();
    let shared = builder.share(SharedBuffer::new(2 * BYTES).unwrap());
    let mut worker = builder.start().unwrap();
    let error = worker.submit(0, function, &scalars(&[])).unwrap_err();
    assert!(error.to_string().contains("none that chip 0 runs"), "{error}");
    let error = worker.submit(ChildId::Sub(0), add_to, &add(&shared, 0, 1, 1)).unwrap_err();
    assert!(error.to_string().contains("none that sub worker 0 runs"), "{error}");
    let mut other = Worker::builder(3);
    let foreign = other.function("of another worker", |_| Ok(())).unwrap();
    let error = worker.submit(ChildId::Sub(0), foreign, &scalars(&[])).unwrap_err();
    assert!(error.to_string().contains("none of this worker's"), "{error}");
    let error = worker.submit(ChildId::Worker(0), function, &scalars(&[])).unwrap_err();
    assert!(error.to_string().contains("no worker 0 among 1 chips, 1 sub workers and 0 workers"), "{error}");
    assert_eq!(host(&shared, 0, ArgUse::Input).tensor.dtype, DType::F32 as u8);
    worker.close().unwrap();
}
