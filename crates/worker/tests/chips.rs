//! Real chips: forked, simulated, running compiled callables.

#![allow(clippy::unwrap_used, reason = "a test program whose functions clippy does not know for tests")]

mod one_thread;
mod real_chips;

use std::process::ExitCode;

use simpler_kernel_abi::ArgUse;
use simpler_log_abi::Threshold;
use simpler_platform::DeviceAddr;
use simpler_runtime::{RINGS, RingSizes, RuntimeConfig};
use simpler_swimlane::Level;
use simpler_worker::{
    CallConfig, Callable, ChildId, ChipWorker, Endpoint, LogSetup, RunArgs, SharedBuffer, SharedMemory,
    Worker, WorkerBuilder, WorkerError,
};

use one_thread::Test;
use real_chips::*;

const TESTS: &[Test] = &[
    ("two_chips_run_a_callable_on_their_own_data", two_chips_run_a_callable_on_their_own_data),
    ("data_stays_on_a_chip_between_runs", data_stays_on_a_chip_between_runs),
    (
        "a_fatal_orchestration_gives_its_text_and_the_next_run_works",
        a_fatal_orchestration_gives_its_text_and_the_next_run_works,
    ),
    (
        "a_callable_with_a_foreign_kernel_fails_bring_up_by_name",
        a_callable_with_a_foreign_kernel_fails_bring_up_by_name,
    ),
    ("each_chip_traces_its_runs_in_its_own_log", each_chip_traces_its_runs_in_its_own_log),
    ("a_chip_worker_works_without_a_parent", a_chip_worker_works_without_a_parent),
    ("a_pipelined_chip_binds_the_next_run_meanwhile", a_pipelined_chip_binds_the_next_run_meanwhile),
    ("each_of_two_runs_in_flight_has_its_own_outcome", each_of_two_runs_in_flight_has_its_own_outcome),
    ("a_killed_chip_is_reported_for_both_of_its_runs", a_killed_chip_is_reported_for_both_of_its_runs),
    ("what_a_run_chooses_for_itself_reaches_its_chip", what_a_run_chooses_for_itself_reaches_its_chip),
];

fn main() -> ExitCode {
    one_thread::main(TESTS, &[])
}

fn builder() -> (WorkerBuilder, Callable, SharedMemory) {
    let mut builder = Worker::builder(3);
    builder.chips(2);
    builder.endpoint(|_, callables| Ok(Box::new(ChipWorker::new(npu(), small(), callables)?)));
    let callable = builder.callable(image(ADD_KERNEL)).unwrap();
    let shared = builder.share(SharedBuffer::new(16 * BYTES).unwrap());
    (builder, callable, shared)
}

fn two_chips_run_a_callable_on_their_own_data() {
    let (builder, callable, shared) = builder();
    put(&shared, 0, 100.0);
    put(&shared, 1, 200.0);
    let mut worker = builder.start().unwrap();
    let first = worker.submit(0, callable, &add(&shared, 0, 2, 1)).unwrap();
    let second = worker.submit(1, callable, &add(&shared, 1, 3, 2)).unwrap();
    worker.wait(second).unwrap();
    worker.wait(first).unwrap();
    assert_holds(&shared, 2, 101.0);
    assert_holds(&shared, 3, 202.0);
    worker.close().unwrap();
}

fn data_stays_on_a_chip_between_runs() {
    let (builder, callable, shared) = builder();
    let mut worker = builder.start().unwrap();
    put(&shared, 0, 7.0);
    let slots: Vec<u64> = (0..2).map(|chip| worker.prepare(chip, callable).unwrap()).collect();
    assert_eq!(slots, [0, 0]);
    let (one, other) = (worker.malloc(1, BYTES).unwrap(), worker.malloc(1, BYTES).unwrap());
    worker.copy_to(1, one, &shared.slice(0, BYTES).unwrap()).unwrap();
    for (from, to) in [(one, other), (other, one), (one, other)] {
        let tensors = vec![device(from, ArgUse::Input), device(to, ArgUse::OutputExisting)];
        let ticket = worker
            .submit(1, callable, &RunArgs { tensors, scalars: vec![10], ..RunArgs::default() })
            .unwrap();
        worker.wait(ticket).unwrap();
    }
    worker.copy_from(1, &shared.slice(BYTES, BYTES).unwrap(), other).unwrap();
    assert_holds(&shared, 1, 37.0);
    worker.free(1, one).unwrap();
    // An address of the other chip means nothing on this one, and is not dereferenced.
    let error = worker.copy_from(0, &shared.slice(0, BYTES).unwrap(), other).unwrap_err();
    assert!(
        matches!(error, WorkerError::Child { child: ChildId::Chip(0), what: "copy_from", .. }),
        "{error:?}"
    );
    worker.close().unwrap();
}

fn a_fatal_orchestration_gives_its_text_and_the_next_run_works() {
    let (builder, callable, shared) = builder();
    put(&shared, 0, 1.0);
    let mut worker = builder.start().unwrap();
    let ticket = worker.submit(0, callable, &add(&shared, 0, 1, 13)).unwrap();
    let error = worker.wait(ticket).unwrap_err();
    assert!(
        matches!(error, WorkerError::Child { child: ChildId::Chip(0), what: "run", code: -9, .. }),
        "{error:?}"
    );
    assert!(error.to_string().contains("thirteen brings bad luck"), "{error}");
    let ticket = worker.submit(0, callable, &add(&shared, 0, 1, 14)).unwrap();
    worker.wait(ticket).unwrap();
    assert_holds(&shared, 1, 15.0);
    worker.close().unwrap();
}

fn a_callable_with_a_foreign_kernel_fails_bring_up_by_name() {
    let (mut builder, _, _) = builder();
    let mut tampered = image(ADD_KERNEL);
    tampered.kernels = image(&ADD_KERNEL.replace("in[i] +", "in[i] -")).kernels;
    tampered.name = "tampered".into();
    builder.callable(tampered).unwrap();
    let error = builder.start().map(drop).unwrap_err();
    assert!(matches!(error, WorkerError::Init { .. }), "{error:?}");
    assert!(error.to_string().contains("callable tampered: "), "{error}");
}

fn each_chip_traces_its_runs_in_its_own_log() {
    let directory = tempfile::tempdir().unwrap();
    let (mut builder, callable, shared) = builder();
    builder.log(LogSetup { threshold: Threshold::TIMING, directory: Some(directory.path().into()) });
    let mut worker = builder.start().unwrap();
    for _ in 0..3 {
        let tickets =
            [0, 1].map(|chip| worker.submit(chip, callable, &add(&shared, chip, chip + 2, 1)).unwrap());
        for ticket in tickets {
            worker.wait(ticket).unwrap();
        }
    }
    let mut pids = worker.pids();
    worker.close().unwrap();
    pids.push(std::process::id() as i32);
    let logs = std::fs::read_dir(directory.path()).unwrap().count();
    assert_eq!(logs, 3);
    for (index, pid) in pids.into_iter().enumerate() {
        let log = std::fs::read_to_string(directory.path().join(format!("host.{pid}.log"))).unwrap();
        assert_eq!(log.matches("[CLOCK_ANCHOR] v=1").count(), 1, "pid {pid}");
        let runs =
            log.matches(&format!(" hid={:x} depth=0 name=simpler_run ", image(ADD_KERNEL).hid())).count();
        let dispatches = log.matches("depth=0 name=node.dispatch ").count();
        assert_eq!((runs, dispatches), if index < 2 { (3, 0) } else { (0, 6) }, "pid {pid}");
        assert!(!log.contains("[HOSTLOG_DROPS]"), "{log}");
    }
}

fn a_chip_worker_works_without_a_parent() {
    let image = image(ADD_KERNEL);
    let mut chip = ChipWorker::new(npu(), small(), std::slice::from_ref(&image)).unwrap();
    let mut values: Vec<u8> = (0..COUNT).flat_map(|index| (index as f32).to_ne_bytes()).collect();
    let addr = DeviceAddr(chip.malloc(BYTES).unwrap());
    chip.copy_to(addr.0, &values).unwrap();
    let tensors = vec![device(addr, ArgUse::Input), device(addr, ArgUse::OutputExisting)];
    let args = RunArgs { tensors, scalars: vec![5], ..RunArgs::default() };
    // SAFETY: the buffer is this chip's and has the length that the kernel expects.
    unsafe { chip.run(&image.digest(), &args) }.unwrap();
    chip.copy_from(&mut values, addr.0).unwrap();
    assert_eq!(
        values.as_chunks().0.iter().map(|chunk| f32::from_ne_bytes(*chunk)).collect::<Vec<_>>()[..3],
        [5.0, 6.0, 7.0]
    );
    // SAFETY: no tensors.
    let error = unsafe { chip.run(&[0; 32], &RunArgs::default()) }.unwrap_err();
    assert!(error.text.contains("is not registered on this chip"), "{error}");
    chip.free(addr.0).unwrap();
}

/// Takes a while before it adds.
fn slow_kernel() -> String {
    let sleep = "struct timespec t = {0, 30000000}; while (nanosleep(&t, &t)) { }";
    format!("#include <time.h>\n{}", ADD_KERNEL.replace("float *out", &format!("{sleep} float *out")))
}

/// One chip that takes two runs, with a kernel that takes a while.
fn pipelined() -> (WorkerBuilder, Callable, SharedMemory) {
    let mut builder = Worker::builder(3);
    let config = RuntimeConfig { pipeline_depth: 2, ..small() };
    builder.endpoint(move |_, callables| Ok(Box::new(ChipWorker::new(npu(), config.clone(), callables)?)));
    let callable = builder.callable(image(&slow_kernel())).unwrap();
    let shared = builder.share(SharedBuffer::new(32 * BYTES).unwrap());
    (builder, callable, shared)
}

/// The number behind a key of a record.
fn number(line: &str, key: &str) -> i64 {
    let value = line.split_once(&format!(" {key}=")).unwrap_or_else(|| panic!("{key} in {line}")).1;
    value.split(' ').next().unwrap().parse().unwrap()
}

/// The windows of a chip's spans of one name, by dispatch.
fn windows(log: &str, name: &str, invs: &[i64]) -> Vec<(i64, i64)> {
    let of = |inv: i64| {
        let here = |line: &&str| line.contains(&format!(" name={name} ")) && number(line, "inv") == inv;
        let line = log.lines().find(here).unwrap_or_else(|| panic!("{name} of inv {inv}"));
        (number(line, "ts"), number(line, "ts") + number(line, "dur"))
    };
    invs.iter().map(|inv| of(*inv)).collect()
}

fn a_pipelined_chip_binds_the_next_run_meanwhile() {
    const RUNS: usize = 6;
    let directory = tempfile::tempdir().unwrap();
    let (mut builder, callable, shared) = pipelined();
    builder.log(LogSetup { threshold: Threshold::TIMING, directory: Some(directory.path().into()) });
    let mut worker = builder.start().unwrap();
    let pid = worker.pids()[0];
    (0..RUNS).for_each(|run| put(&shared, run, run as f32 * 1000.0));
    let mut in_flight = std::collections::VecDeque::new();
    for run in 0..RUNS {
        if in_flight.len() == 2 {
            let error = worker.submit(0, callable, &add(&shared, run, RUNS + run, 5)).unwrap_err();
            assert!(matches!(error, WorkerError::Busy { child: ChildId::Chip(0), .. }), "{error:?}");
            worker.wait(in_flight.pop_front().unwrap()).unwrap();
        }
        in_flight.push_back(worker.submit(0, callable, &add(&shared, run, RUNS + run, 5)).unwrap());
    }
    in_flight.into_iter().for_each(|ticket| worker.wait(ticket).unwrap());
    (0..RUNS).for_each(|run| assert_holds(&shared, RUNS + run, run as f32 * 1000.0 + 5.0));
    worker.close().unwrap();

    let log = std::fs::read_to_string(directory.path().join(format!("host.{pid}.log"))).unwrap();
    let mut roots: Vec<_> = log.lines().filter(|line| line.contains(" name=simpler_run ")).collect();
    roots.sort_by_key(|root| number(root, "dispatch_id"));
    assert_eq!(roots.iter().map(|root| number(root, "dispatch_id")).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
    let invs: Vec<_> = roots.iter().map(|root| number(root, "inv")).collect();
    let (binds, runs) =
        (windows(&log, "simpler_run.bind", &invs), windows(&log, "simpler_run.runner_run", &invs));
    let releases = windows(&log, "simpler_run.claim_release", &invs);
    for next in 1..RUNS {
        let (bind, run) = (binds[next], runs[next - 1]);
        assert!(
            bind.0 < run.1 && run.0 < bind.1,
            "run {next}: bound in {bind:?}, the one before ran in {run:?}"
        );
        assert!(runs[next].0 >= releases[next - 1].0, "one at a time on the device");
    }
    // The parent says which of the two frames it was.
    let parent = std::fs::read_to_string(directory.path().join(format!("host.{}.log", std::process::id())));
    let parent = parent.unwrap();
    let slots: Vec<_> = parent
        .lines()
        .filter(|line| line.contains(" name=node.dispatch "))
        .map(|line| number(line, "task_slot"))
        .collect();
    assert_eq!(slots, [0, 1, 0, 1, 0, 1]);
}

fn each_of_two_runs_in_flight_has_its_own_outcome() {
    let (builder, callable, shared) = pipelined();
    put(&shared, 0, 10.0);
    let mut worker = builder.start().unwrap();
    for _ in 0..3 {
        let good = worker.submit(0, callable, &add(&shared, 0, 1, 1)).unwrap();
        let bad = worker.submit(0, callable, &add(&shared, 0, 2, 13)).unwrap();
        // A control request is served when what was submitted before it has ended.
        let memory = worker.malloc(0, 64).unwrap();
        worker.free(0, memory).unwrap();
        assert!(worker.poll(&good));
        // Waited for in the other order.
        let error = worker.wait(bad).unwrap_err();
        assert!(
            matches!(error, WorkerError::Child { child: ChildId::Chip(0), what: "run", code: -9, .. }),
            "{error:?}"
        );
        worker.wait(good).unwrap();
        assert_holds(&shared, 1, 11.0);
    }
    worker.close().unwrap();
}

fn a_killed_chip_is_reported_for_both_of_its_runs() {
    let (builder, callable, shared) = pipelined();
    let mut worker = builder.start().unwrap();
    let tickets = [1, 2].map(|to| worker.submit(0, callable, &add(&shared, 0, to, 1)).unwrap());
    // SAFETY: kill has no memory effects.
    assert_eq!(unsafe { libc::kill(worker.pids()[0], libc::SIGKILL) }, 0);
    for ticket in tickets {
        let error = worker.wait(ticket).unwrap_err();
        assert!(matches!(error, WorkerError::ChildGone { child: ChildId::Chip(0), .. }), "{error:?}");
    }
    let error = worker.submit(0, callable, &add(&shared, 0, 1, 1)).unwrap_err();
    assert!(matches!(error, WorkerError::ChildGone { child: ChildId::Chip(0), .. }), "{error:?}");
    worker.close().unwrap();
}

fn what_a_run_chooses_for_itself_reaches_its_chip() {
    let directory = tempfile::tempdir().unwrap();
    let (builder, callable, shared) = builder();
    let mut worker = builder.start().unwrap();
    let mut run = |config: CallConfig| {
        let ticket = worker.submit(1, callable, &RunArgs { config, ..add(&shared, 0, 1, 1) })?;
        worker.wait(ticket)
    };
    run(CallConfig::default()).unwrap();
    let output_prefix = Some(directory.path().join("records"));
    run(CallConfig {
        swimlane: Level::AicoreTasks,
        output_prefix,
        aicpu_threads: Some(2),
        ..CallConfig::default()
    })
    .unwrap();
    run(CallConfig::default()).unwrap();
    let odd = RingSizes { window: Some(12), ..RingSizes::default() };
    let error = run(CallConfig { rings: [odd; RINGS], ..CallConfig::default() }).unwrap_err();
    assert!(error.to_string().contains("ring 0: a task window of 12"), "{error}");
    let error = run(CallConfig { aicpu_threads: Some(9), ..CallConfig::default() }).unwrap_err();
    assert!(matches!(error, WorkerError::Child { child: ChildId::Chip(1), code: -5, .. }), "{error:?}");
    let output_prefix = Some("x".repeat(2000).into());
    let error = run(CallConfig { output_prefix, ..CallConfig::default() }).unwrap_err();
    assert!(matches!(&error, WorkerError::Arguments(text) if text.contains("2000 bytes")), "{error:?}");
    let chip = directory.path().join("records").join(worker.pids()[1].to_string());
    let runs: Vec<_> = std::fs::read_dir(chip).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    // The second of the chip's invocations.
    assert_eq!(runs, ["2"]);
    worker.close().unwrap();
}
