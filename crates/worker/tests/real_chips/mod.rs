//! A callable that adds, and small simulated chips to run it on.

#![allow(dead_code, reason = "shared by test binaries that each use a part")]

use std::path::Path;

use simpler_kernel_abi::{ArgUse, CoreKind, DEVICE_MEMORY, DType, SimplerTensor};
use simpler_kernel_compiler::{CallableSource, Compiler, KernelSource, SourceFile};
use simpler_platform::DeviceAddr;
use simpler_runtime::{Limits, RingLimits, RuntimeConfig};
use simpler_sim_npu::{Profile, SimNpu, SimOptions};
use simpler_worker::{CallableImage, ChipArg, RunArgs, SharedMemory};

/// Adds its scalar to each of COUNT numbers, or is fatal when the scalar is 13.
pub(crate) const ADD_ORCHESTRATION: &str = r#"
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

pub(crate) const ADD_KERNEL: &str = r#"
#include <simpler/kernel.h>
void kernel_entry(const SimplerKernelArgs *args) {
    const float *in = simpler_tensor_data(args->tensors[0]);
    float *out = simpler_tensor_data(args->tensors[1]);
    for (uint64_t i = 0; i < args->tensors[1]->extent / 4; i++) out[i] = in[i] + (float)args->scalars[0];
}
"#;

pub(crate) const COUNT: usize = 64;
pub(crate) const BYTES: usize = COUNT * 4;

pub(crate) fn image(kernel: &str) -> CallableImage {
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
pub(crate) fn small() -> RuntimeConfig {
    let limits = Limits::each(RingLimits {
        window: 1024,
        heap_bytes: 1 << 20,
        argument_bytes: 1 << 20,
        edges: 1 << 16,
    });
    RuntimeConfig { limits, ..RuntimeConfig::default() }
}

pub(crate) fn npu() -> std::sync::Arc<SimNpu> {
    SimNpu::new(Profile::a2a3sim(), SimOptions { core_threads: Some(1), ..SimOptions::default() }).unwrap()
}

/// Numbers at slot `slot` of the shared memory.
pub(crate) fn put(shared: &SharedMemory, slot: usize, first: f32) {
    let bytes: Vec<u8> = (0..COUNT).flat_map(|index| (first + index as f32).to_ne_bytes()).collect();
    shared.write(slot * BYTES, &bytes).unwrap();
}

pub(crate) fn assert_holds(shared: &SharedMemory, slot: usize, first: f32) {
    let mut bytes = [0; BYTES];
    shared.read(slot * BYTES, &mut bytes).unwrap();
    let values: Vec<f32> = bytes.as_chunks().0.iter().map(|chunk| f32::from_ne_bytes(*chunk)).collect();
    let expected: Vec<f32> = (0..COUNT).map(|index| first + index as f32).collect();
    assert_eq!(values, expected);
}

pub(crate) fn host(shared: &SharedMemory, slot: usize, arg_use: ArgUse) -> ChipArg {
    ChipArg { tensor: shared.tensor(slot * BYTES, BYTES, DType::F32).unwrap(), arg_use }
}

pub(crate) fn device(addr: DeviceAddr, arg_use: ArgUse) -> ChipArg {
    ChipArg { tensor: SimplerTensor::whole(addr.0, BYTES as u64, DType::F32, DEVICE_MEMORY), arg_use }
}

pub(crate) fn add(shared: &SharedMemory, from: usize, to: usize, scalar: u64) -> RunArgs {
    let tensors = vec![host(shared, from, ArgUse::Input), host(shared, to, ArgUse::OutputExisting)];
    RunArgs { tensors, scalars: vec![scalar], ..RunArgs::default() }
}
