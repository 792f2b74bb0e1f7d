//! Recording: the tasks of a run, in stages that a plain loop can follow.

#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use simpler_kernel_abi::{ArgUse, CoreKind, DEVICE_MEMORY, DType, SimplerTensor};
use simpler_platform::Profile;
use simpler_runtime::recording::HostCallable;
use support::*;

/// Two outputs from x, their sum, and one task beside them that only reads x.
const GRAPH: &str = r#"
#include "submit.h"
int aicpu_orchestration_entry(const SimplerOrchestrationApi *api, SimplerRun *run, const SimplerChipArgs *args) {
    SimplerTensor x = args->tensors[0], y = args->tensors[1], z = args->tensors[2];
    SimplerTensor left = fresh(x.shapes[0]), right = fresh(x.shapes[0]);
    SimplerTaskArg lists[4][3] = {
        {{&x, SIMPLER_INPUT}, {&x, SIMPLER_INPUT}, {&left, SIMPLER_OUTPUT}},
        {{&x, SIMPLER_INPUT}, {&x, SIMPLER_INPUT}, {&right, SIMPLER_OUTPUT}},
        {{&left, SIMPLER_INPUT}, {&right, SIMPLER_INPUT}, {&y, SIMPLER_OUTPUT_EXISTING}},
        {{&x, SIMPLER_INPUT}, {&x, SIMPLER_INPUT}, {&z, SIMPLER_OUTPUT_EXISTING}},
    };
    if (api->core_count(run, SIMPLER_AIV) != 16) return 9;
    for (uint64_t i = 0; i < 4; i++) {
        SimplerTask task = task_of(lists[i], 3);
        if (i == 2) task.aic = 1; else task.aiv0 = 0;
        task.scalars = &i;
        task.scalar_count = 1;
        if (api->submit_task(run, &task) != (int64_t)i) return 1;
    }
    if (args->scalar_count) api->report_fatal(run, "recorded too far");
    return 0;
}
"#;

fn whole(values: &mut [f32]) -> SimplerTensor {
    let bytes = size_of_val(values) as u64;
    let mut tensor = SimplerTensor::whole(values.as_mut_ptr() as u64, bytes, DType::F32, DEVICE_MEMORY);
    tensor.shapes[0] = values.len() as u32;
    tensor
}

/// Two tiles of a matrix of 8 × 8 floats that stand side by side, then one that meets both.
const TILES: &str = r#"
#include "submit.h"
int aicpu_orchestration_entry(const SimplerOrchestrationApi *api, SimplerRun *run, const SimplerChipArgs *args) {
    const uint64_t columns[] = {0, 4, 2};
    for (int i = 0; i < 3; i++) {
        SimplerTensor tile = args->tensors[0];
        tile.contiguous = 0;
        tile.ndims = 2;
        tile.shapes[0] = 8, tile.shapes[1] = 4;
        tile.strides[0] = 32, tile.strides[1] = 4;
        tile.start_offset = columns[i] * 4;
        tile.extent = 7 * 32 + 16;
        SimplerTaskArg list[] = {{&tile, SIMPLER_INOUT}};
        SimplerTask task = task_of(list, 1);
        if (api->submit_dummy_task(run, &task) < 0) return 1;
    }
    return 0;
}
"#;

#[test]
fn tiles_side_by_side_do_not_wait_for_each_other() {
    let objects = compile("tiles", TILES, &[]);
    // SAFETY: the objects were compiled from the sources above.
    let callable = unsafe { HostCallable::open(&objects) }.unwrap();
    let mut matrix = vec![0.0; 64];
    // SAFETY: a tensor of floats, as the orchestration expects.
    let recording =
        unsafe { callable.record(&Profile::a2a3sim(), small(), &[whole(&mut matrix)], &[]) }.unwrap();
    assert_eq!(recording.stages, [vec![0, 1], vec![2]]);
}

#[test]
fn a_recording_has_the_runs_tasks_and_computes_the_runs_result() {
    let kernels = [("add", CoreKind::Aiv, ADD_KERNEL), ("add_cube", CoreKind::Aic, ADD_KERNEL)];
    let objects = compile("recorded", GRAPH, &kernels);
    // SAFETY: the objects were compiled from the sources above.
    let callable = unsafe { HostCallable::open(&objects) }.unwrap();
    let (mut x, mut y, mut z) = (vec![1.5; 8], vec![0.0; 8], vec![0.0; 8]);
    let views = [whole(&mut x), whole(&mut y), whole(&mut z)];
    // SAFETY: three tensors of floats, as the orchestration expects.
    let recording = unsafe { callable.record(&Profile::a2a3sim(), small(), &views, &[]) }.unwrap();
    assert_eq!(recording.stages, [vec![0, 1, 3], vec![2]]);
    let predecessors: Vec<_> = recording.tasks.iter().map(|task| task.predecessors.clone()).collect();
    assert_eq!(predecessors[..2], [Vec::<usize>::new(), Vec::new()]);
    assert_eq!(predecessors[3], [0_usize; 0]);
    let mut of_sum = predecessors[2].clone();
    of_sum.sort_unstable();
    assert_eq!(of_sum, [0, 1]);
    assert_eq!((recording.tasks[2].kernels, recording.tasks[2].blocks), ([Some(1), None, None], 1));
    assert_eq!(recording.tasks[2].tensors[0].addr, recording.tasks[0].tensors[2].addr);
    assert_ne!(recording.tasks[0].tensors[2].addr, 0);
    assert_eq!(recording.tasks[3].scalars, [3]);

    for stage in &recording.stages {
        for task in stage {
            // SAFETY: the buffers are alive, one thread, stage after stage.
            unsafe { callable.call(&recording, *task) };
        }
    }
    let chip = small_chip();
    let (mut run_y, mut run_z) = (vec![0.0; 8], vec![0.0; 8]);
    let tensors =
        vec![host(&mut x, ArgUse::Input), host(&mut run_y, ArgUse::Output), host(&mut run_z, ArgUse::Output)];
    let image = simpler_runtime::CallableImage::load(&objects).unwrap();
    run_once(&chip, &image, tensors, vec![]).unwrap();
    assert_eq!((y, z), (run_y, run_z));

    // SAFETY: as above.
    let failed = unsafe { callable.record(&Profile::a2a3sim(), small(), &views, &[1]) }.unwrap_err();
    assert_eq!((failed.code, failed.text.as_str()), (-9, "recorded too far"));
}
