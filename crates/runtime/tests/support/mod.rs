//! Callables from small C sources, and a simulated chip to run them on.

#![allow(
    clippy::unwrap_used,
    dead_code,
    reason = "shared by test binaries that each use a part; a failing helper is a failing test"
)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use simpler_kernel_abi::{ArgUse, CoreKind, DEVICE_MEMORY, DType, HOST_MEMORY, SimplerTensor};
use simpler_kernel_compiler::{CallableObjects, CallableSource, Compiler, KernelSource, SourceFile};
use simpler_platform::DeviceAddr;
use simpler_runtime::{
    CallableId, CallableImage, ChipArg, ChipRuntime, GraphRuntime, Limits, RingLimits, RunArgs, RuntimeConfig,
};
use simpler_sim_npu::{Profile, SimNpu, SimOptions};

/// An orchestration that submits nothing.
pub(crate) const EMPTY: &str = r#"
#include "submit.h"
int aicpu_orchestration_entry(const SimplerOrchestrationApi *api, SimplerRun *run, const SimplerChipArgs *args) {
    (void)api; (void)run; (void)args;
    return 0;
}
"#;

/// Where the tests of this crate keep their objects: compiled once, found again by content.
pub(crate) fn cache() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("callables")
}

/// Compiles a callable whose kernels are (name, kind, text).
pub(crate) fn compile(
    name: &str,
    orchestration: &str,
    kernels: &[(&str, CoreKind, &str)],
) -> CallableObjects {
    compile_source(name, SourceFile::new(format!("{name}.c"), orchestration.to_owned()), kernels)
}

/// As [`compile`], from any source.
pub(crate) fn compile_source(
    name: &str,
    orchestration: SourceFile,
    kernels: &[(&str, CoreKind, &str)],
) -> CallableObjects {
    let source = CallableSource {
        name: name.to_owned(),
        orchestration,
        kernels: kernels
            .iter()
            .map(|(name, kind, text)| KernelSource {
                file: SourceFile::new(format!("{name}.c"), (*text).to_owned()),
                kind: *kind,
            })
            .collect(),
        headers: vec![SourceFile::new("submit.h", SUBMIT_HEADER)],
    };
    Compiler::new(cache()).unwrap().compile(&source).unwrap_or_else(|error| panic!("{error}"))
}

/// As [`compile`], loaded.
pub(crate) fn image(name: &str, orchestration: &str, kernels: &[(&str, CoreKind, &str)]) -> CallableImage {
    CallableImage::load(&compile(name, orchestration, kernels)).unwrap()
}

/// Limits that make small arenas.
pub(crate) fn small() -> Limits {
    Limits::each(RingLimits { window: 1024, heap_bytes: 1 << 20, argument_bytes: 1 << 20, edges: 1 << 16 })
}

/// A runtime over a fresh a2a3sim chip.
pub(crate) fn chip(config: RuntimeConfig) -> ChipRuntime {
    let npu = SimNpu::new(Profile::a2a3sim(), SimOptions::default()).unwrap();
    ChipRuntime::new(npu, config).unwrap()
}

/// Every simulated platform with each graph runtime.
pub(crate) fn arms() -> Vec<(Profile, GraphRuntime)> {
    [Profile::a2a3sim(), Profile::a5sim()]
        .into_iter()
        .flat_map(|profile| {
            [GraphRuntime::TensorMapAndRingBuffer, GraphRuntime::HostBuildGraph]
                .map(|graph_runtime| (profile.clone(), graph_runtime))
        })
        .collect()
}

/// A runtime over a fresh chip of an arm, with small limits.
pub(crate) fn chip_of((profile, graph_runtime): (Profile, GraphRuntime)) -> ChipRuntime {
    let npu = SimNpu::new(profile, SimOptions::default()).unwrap();
    ChipRuntime::new(npu, RuntimeConfig { graph_runtime, limits: small(), ..RuntimeConfig::default() })
        .unwrap()
}

/// A chip of each arm, one at a time.
pub(crate) fn small_chips() -> impl Iterator<Item = ChipRuntime> {
    arms().into_iter().map(chip_of)
}

/// A runtime with small limits.
pub(crate) fn small_chip() -> ChipRuntime {
    chip(RuntimeConfig { limits: small(), ..RuntimeConfig::default() })
}

/// A host buffer of floats as an argument.
pub(crate) fn host(values: &mut [f32], arg_use: ArgUse) -> ChipArg {
    let bytes = size_of_val(values) as u64;
    let mut tensor = SimplerTensor::whole(values.as_mut_ptr() as u64, bytes, DType::F32, HOST_MEMORY);
    tensor.shapes[0] = values.len() as u32;
    ChipArg { tensor, arg_use }
}

/// A device buffer as an argument.
pub(crate) fn device(addr: DeviceAddr, bytes: u64, arg_use: ArgUse) -> ChipArg {
    ChipArg { tensor: SimplerTensor::whole(addr.0, bytes, DType::F32, DEVICE_MEMORY), arg_use }
}

/// Registers and runs once.
pub(crate) fn run_once(
    chip: &ChipRuntime,
    image: &CallableImage,
    tensors: Vec<ChipArg>,
    scalars: Vec<u64>,
) -> Result<CallableId, simpler_runtime::RunError> {
    let id = chip.register(image)?;
    run(chip, id, &RunArgs { tensors, scalars, ..RunArgs::default() }).map(|()| id)
}

/// Runs a callable of these tests.
pub(crate) fn run(
    chip: &ChipRuntime,
    id: CallableId,
    args: &RunArgs,
) -> Result<(), simpler_runtime::RunError> {
    // SAFETY: the arguments are made by `host` of vectors that live on and are not touched meanwhile, or by `device`
    // of this chip's memory, or of what the runtime refuses to touch; the objects are those of the tests.
    unsafe { chip.run(id, args) }
}

/// Short-hands for orchestrations: `view(buffer, first, count)` of floats, and `submit` of one AIV kernel.
pub(crate) const SUBMIT_HEADER: &str = r#"
#include <simpler/orchestration.h>
static inline SimplerTensor view(const SimplerTensor *of, uint64_t first, uint64_t count) {
    SimplerTensor t = *of;
    t.start_offset += first * 4;
    t.extent = count * 4;
    t.shapes[0] = (uint32_t)count;
    return t;
}
static inline SimplerTensor fresh(uint64_t count) {
    SimplerTensor t = {0};
    t.bytes = t.extent = count * 4;
    t.ndims = 1;
    t.shapes[0] = (uint32_t)count;
    t.contiguous = 1;
    t.address_space = SIMPLER_DEVICE_MEMORY;
    t.owner_task = SIMPLER_NO_TASK;
    return t;
}
static inline SimplerTask task_of(const SimplerTaskArg *args, uint32_t count) { return simpler_task(args, count); }
"#;

/// out = a + b + scalar, element by element.
pub(crate) const ADD_KERNEL: &str = r#"
#include <simpler/kernel.h>
void kernel_entry(const SimplerKernelArgs *args) {
    const float *a = simpler_tensor_data(args->tensors[0]);
    const float *b = simpler_tensor_data(args->tensors[1]);
    float *out = simpler_tensor_data(args->tensors[2]);
    float extra = args->scalar_count ? (float)args->scalars[0] : 0.0f;
    for (uint32_t i = 0; i < args->tensors[2]->shapes[0]; i++) out[i] = a[i] + b[i] + extra;
}
"#;

/// Takes as many milliseconds as its first scalar says.
pub(crate) const SLEEP_KERNEL: &str = r#"
#include <simpler/kernel.h>
#include <time.h>
void kernel_entry(const SimplerKernelArgs *args) {
    struct timespec t = {0, (long)args->scalars[0] * 1000000};
    while (nanosleep(&t, &t)) { }
}
"#;

/// A platform as the runtime takes it.
pub(crate) fn npu() -> Arc<SimNpu> {
    SimNpu::new(Profile::a2a3sim(), SimOptions::default()).unwrap()
}
