//! Real chips: forked, simulated, running compiled callables.

#![allow(clippy::unwrap_used, reason = "a test program whose functions clippy does not know for tests")]

mod one_thread;

use std::path::Path;
use std::process::ExitCode;

use simpler_kernel_abi::{ArgUse, CoreKind, DEVICE_MEMORY, DType, SimplerTensor};
use simpler_kernel_compiler::{CallableSource, Compiler, KernelSource, SourceFile};
use simpler_log_abi::Threshold;
use simpler_platform::DeviceAddr;
use simpler_runtime::{Limits, RuntimeConfig};
use simpler_sim_npu::{Profile, SimNpu, SimOptions};
use simpler_worker::{
    Callable, CallableImage, ChipArg, ChipWorker, Endpoint, LogSetup, RunArgs, SharedBuffer, SharedMemory,
    Worker, WorkerBuilder, WorkerError,
};

use one_thread::Test;

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
];

fn main() -> ExitCode {
    one_thread::main(TESTS, &[])
}

/// Adds its scalar to each of COUNT numbers, or is fatal when the scalar is 13.
const ADD_ORCHESTRATION: &str = r#"
#include <simpler/orchestration.h>
int aicpu_orchestration_entry(const SimplerOrchestrationApi *api, SimplerRun *run, const SimplerChipArgs *args) {
    if (args->scalars[0] == 13) {
        api->report_fatal(run, "thirteen brings bad luck");
        return 1;
    }
    SimplerTensor in = args->tensors[0], out = args->tensors[1];
    SimplerTaskArg uses[2] = {{&in, SIMPLER_INPUT}, {&out, SIMPLER_OUTPUT_EXISTING}};
    SimplerTask task = simpler_task(uses, 2);
    task.aiv0 = 0;
    task.scalars = args->scalars;
    task.scalar_count = 1;
    return api->submit_task(run, &task) < 0;
}
"#;

const ADD_KERNEL: &str = r#"
#include <simpler/kernel.h>
void kernel_entry(const SimplerKernelArgs *args) {
    const float *in = simpler_tensor_data(args->tensors[0]);
    float *out = simpler_tensor_data(args->tensors[1]);
    for (uint64_t i = 0; i < args->tensors[1]->extent / 4; i++) out[i] = in[i] + (float)args->scalars[0];
}
"#;

const COUNT: usize = 64;
const BYTES: usize = COUNT * 4;

fn image(kernel: &str) -> CallableImage {
    let source = CallableSource {
        name: "add".into(),
        orchestration: SourceFile::new("add.c", ADD_ORCHESTRATION),
        kernels: vec![KernelSource {
            file: SourceFile::new("add_kernel.c", kernel.to_owned()),
            kind: CoreKind::Aiv,
        }],
        headers: vec![],
    };
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("callables");
    let objects = Compiler::new(cache).unwrap().compile(&source).unwrap_or_else(|error| panic!("{error}"));
    CallableImage::load(&objects).unwrap()
}

/// Limits that make small arenas: two chips share the test's machine with other tests.
fn small() -> RuntimeConfig {
    let limits = Limits { window: 1024, heap_bytes: 1 << 20, argument_bytes: 1 << 20, edges: 1 << 16 };
    RuntimeConfig { limits, ..RuntimeConfig::default() }
}

fn npu() -> std::sync::Arc<SimNpu> {
    SimNpu::new(Profile::a2a3sim(), SimOptions { core_threads: Some(1), ..SimOptions::default() }).unwrap()
}

fn builder() -> (WorkerBuilder, Callable, SharedMemory) {
    let mut builder = Worker::builder(3);
    builder.chips(2);
    builder.endpoint(|_, callables| Ok(Box::new(ChipWorker::new(npu(), small(), callables)?)));
    let callable = builder.callable(image(ADD_KERNEL)).unwrap();
    let shared = builder.share(SharedBuffer::new(16 * BYTES).unwrap());
    (builder, callable, shared)
}

/// Numbers at slot `slot` of the shared memory.
fn put(shared: &SharedMemory, slot: usize, first: f32) {
    let bytes: Vec<u8> = (0..COUNT).flat_map(|index| (first + index as f32).to_ne_bytes()).collect();
    shared.write(slot * BYTES, &bytes).unwrap();
}

fn assert_holds(shared: &SharedMemory, slot: usize, first: f32) {
    let mut bytes = [0; BYTES];
    shared.read(slot * BYTES, &mut bytes).unwrap();
    let values: Vec<f32> = bytes.as_chunks().0.iter().map(|chunk| f32::from_ne_bytes(*chunk)).collect();
    let expected: Vec<f32> = (0..COUNT).map(|index| first + index as f32).collect();
    assert_eq!(values, expected);
}

fn host(shared: &SharedMemory, slot: usize, arg_use: ArgUse) -> ChipArg {
    ChipArg { tensor: shared.tensor(slot * BYTES, BYTES, DType::F32).unwrap(), arg_use }
}

fn device(addr: DeviceAddr, arg_use: ArgUse) -> ChipArg {
    ChipArg { tensor: SimplerTensor::whole(addr.0, BYTES as u64, DType::F32, DEVICE_MEMORY), arg_use }
}

fn add(shared: &SharedMemory, from: usize, to: usize, scalar: u64) -> RunArgs {
    let tensors = vec![host(shared, from, ArgUse::Input), host(shared, to, ArgUse::OutputExisting)];
    RunArgs { tensors, scalars: vec![scalar] }
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
        let ticket = worker.submit(1, callable, &RunArgs { tensors, scalars: vec![10] }).unwrap();
        worker.wait(ticket).unwrap();
    }
    worker.copy_from(1, &shared.slice(BYTES, BYTES).unwrap(), other).unwrap();
    assert_holds(&shared, 1, 37.0);
    worker.free(1, one).unwrap();
    // An address of the other chip means nothing on this one, and is not dereferenced.
    let error = worker.copy_from(0, &shared.slice(0, BYTES).unwrap(), other).unwrap_err();
    assert!(matches!(error, WorkerError::Chip { chip: 0, what: "copy_from", .. }), "{error:?}");
    worker.close().unwrap();
}

fn a_fatal_orchestration_gives_its_text_and_the_next_run_works() {
    let (builder, callable, shared) = builder();
    put(&shared, 0, 1.0);
    let mut worker = builder.start().unwrap();
    let ticket = worker.submit(0, callable, &add(&shared, 0, 1, 13)).unwrap();
    let error = worker.wait(ticket).unwrap_err();
    assert!(matches!(error, WorkerError::Chip { chip: 0, what: "run", code: -9, .. }), "{error:?}");
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
    let args = RunArgs { tensors, scalars: vec![5] };
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
