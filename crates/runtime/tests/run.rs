//! Runs on the simulated chip: results, arguments, reuse.

#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use std::time::{Duration, Instant};

use simpler_kernel_abi::{ArgUse, CoreKind};
use simpler_runtime::{CallableImage, RunArgs};
use support::*;

/// y = x + x + 1, then y = y + x + 2, … `scalars[0]` tasks long, alternating between the two core kinds.
const CHAIN: &str = r#"
#include "submit.h"
int aicpu_orchestration_config(SimplerOrchestrationConfig *config) {
    config->tensors_min = 2;
    config->scalars_min = 1;
    return 0;
}
int aicpu_orchestration_entry(const SimplerOrchestrationApi *api, SimplerRun *run, const SimplerChipArgs *args) {
    SimplerTensor x = args->tensors[0], y = args->tensors[1], last = x;
    for (uint64_t i = 0; i < args->scalars[0]; i++) {
        int final = i + 1 == args->scalars[0];
        SimplerTensor out = final ? y : fresh(x.shapes[0]);
        SimplerTaskArg a[] = {{&last, SIMPLER_INPUT}, {&x, SIMPLER_INPUT},
                              {&out, final ? SIMPLER_OUTPUT_EXISTING : SIMPLER_OUTPUT}};
        uint64_t extra = i + 1;
        SimplerTask task = task_of(a, 3);
        if (i % 2) task.aic = 1; else task.aiv0 = 0;
        task.scalars = &extra;
        task.scalar_count = 1;
        if (api->submit_task(run, &task) < 0) return 1;
        last = out;
    }
    return 0;
}
"#;

fn chain() -> CallableImage {
    image("chain", CHAIN, &[("add", CoreKind::Aiv, ADD_KERNEL), ("add_cube", CoreKind::Aic, ADD_KERNEL)])
}

fn chain_result(x: f32, tasks: u64) -> f32 {
    (1..=tasks).fold(x, |last, extra| last + x + extra as f32)
}

#[test]
fn a_chain_of_tasks_computes_in_order() {
    for chip in small_chips() {
        let id = chip.register(&chain()).unwrap();
        for tasks in [1, 2, 7, 100, 500] {
            let mut x: Vec<f32> = (0..64).map(|i| i as f32).collect();
            let mut y = vec![0.0; 64];
            let args = RunArgs {
                tensors: vec![host(&mut x, ArgUse::Input), host(&mut y, ArgUse::Output)],
                scalars: vec![tasks],
                ..RunArgs::default()
            };
            run(&chip, id, &args).unwrap_or_else(|error| panic!("{tasks} tasks: {error}"));
            for (x, y) in x.iter().zip(&y) {
                assert_eq!(*y, chain_result(*x, tasks), "{tasks} tasks");
            }
        }
    }
}

/// Two sums from one source, joined: d = (x + x + 1) + (x + x + 2), and a NO_DEP constant on the way.
const DIAMOND: &str = r#"
#include "submit.h"
static int64_t add(const SimplerOrchestrationApi *api, SimplerRun *run, SimplerTensor *a, SimplerTensor *b,
                   SimplerTensor *out, uint64_t use, uint64_t extra) {
    SimplerTaskArg args[] = {{a, SIMPLER_INPUT}, {b, SIMPLER_NO_DEP}, {out, use}};
    args[1].use = b == a ? SIMPLER_NO_DEP : SIMPLER_INPUT;
    SimplerTask task = task_of(args, 3);
    task.aiv1 = 0;
    task.scalars = &extra;
    task.scalar_count = 1;
    return api->submit_task(run, &task);
}
int aicpu_orchestration_entry(const SimplerOrchestrationApi *api, SimplerRun *run, const SimplerChipArgs *args) {
    SimplerTensor x = args->tensors[0], d = args->tensors[1];
    SimplerTensor left = fresh(x.shapes[0]), right = fresh(x.shapes[0]);
    if (add(api, run, &x, &x, &left, SIMPLER_OUTPUT, 1) != 0) return 1;
    if (add(api, run, &x, &x, &right, SIMPLER_OUTPUT, 2) != 1) return 2;
    if (left.owner_task != 0 || right.owner_task != 1 || !left.addr || left.addr % 1024 || left.addr == right.addr)
        return 3;
    if (add(api, run, &left, &right, &d, SIMPLER_INOUT, 0) != 2) return 4;
    if (api->core_count(run, SIMPLER_AIC) != 8 || api->core_count(run, SIMPLER_AIV) != 16) return 5;
    if (api->core_count(run, 2) != 0 || api->is_fatal(run)) return 6;
    api->log(run, 25, "diamond", "submitted");
    return api->struct_size == sizeof *api ? 0 : 7;
}
"#;

fn diamond() -> CallableImage {
    image("diamond", DIAMOND, &[("add", CoreKind::Aiv, ADD_KERNEL)])
}

#[test]
fn a_diamond_joins_both_of_its_sides() {
    for chip in small_chips() {
        let id = chip.register(&diamond()).unwrap();
        for _ in 0..50 {
            let mut x = vec![1.5; 1000];
            let mut d = vec![-1.0; 1000];
            let tensors = vec![host(&mut x, ArgUse::Input), host(&mut d, ArgUse::InOut)];
            run(&chip, id, &RunArgs { tensors, scalars: vec![], ..RunArgs::default() }).unwrap();
            assert!(d.iter().all(|d| *d == 4.0 * 1.5 + 3.0), "{:?}", &d[..4]);
        }
    }
}

#[test]
fn device_tensors_stay_where_they_are_between_runs() {
    for chip in small_chips() {
        let id = chip.register(&chain()).unwrap();
        let (x, y) = (chip.malloc(256).unwrap(), chip.malloc(256).unwrap());
        let bytes = |value: f32| value.to_le_bytes().repeat(64);
        chip.copy_to(x, &bytes(3.0)).unwrap();
        let mut args = RunArgs {
            tensors: vec![device(x, 256, ArgUse::Input), device(y, 256, ArgUse::Output)],
            scalars: vec![10],
            ..RunArgs::default()
        };
        args.tensors[0].tensor.shapes[0] = 64;
        args.tensors[1].tensor.shapes[0] = 64;
        run(&chip, id, &args).unwrap();
        let mut result = vec![0; 256];
        chip.copy_from(&mut result, y).unwrap();
        assert_eq!(result, bytes(chain_result(3.0, 10)));
        // The result of the first run is the source of the second.
        args.tensors.swap(0, 1);
        run(&chip, id, &args).unwrap();
        chip.copy_from(&mut result, x).unwrap();
        assert_eq!(result, bytes(chain_result(chain_result(3.0, 10), 10)));
        chip.free(x).unwrap();
        chip.free(y).unwrap();
        assert!(chip.free(y).is_err(), "twice");
    }
}

/// Copies every tensor's address to the last one, as the orchestration sees it.
const ADDRESSES: &str = r#"
#include "submit.h"
int aicpu_orchestration_entry(const SimplerOrchestrationApi *api, SimplerRun *run, const SimplerChipArgs *args) {
    (void)api; (void)run;
    uint64_t *out = simpler_tensor_data(&args->tensors[args->tensor_count - 1]);
    for (uint32_t i = 0; i < args->tensor_count; i++) {
        out[2 * i] = args->tensors[i].addr;
        out[2 * i + 1] = args->tensors[i].address_space;
    }
    return 0;
}
"#;

#[test]
fn host_tensors_are_staged_at_1024_and_empty_ones_have_no_address() {
    for chip in small_chips() {
        let image = image("addresses", ADDRESSES, &[]);
        let (mut a, mut empty, mut c, mut out) = (vec![1.0; 300], vec![], vec![1.0; 3], vec![0.0; 16]);
        let own = chip.malloc(64).unwrap();
        let tensors = vec![
            host(&mut a, ArgUse::Input),
            host(&mut empty, ArgUse::Input),
            host(&mut c, ArgUse::InOut),
            host(&mut out, ArgUse::OutputExisting),
        ];
        let mut with_device = tensors.clone();
        with_device.insert(0, device(own, 64, ArgUse::InOut));
        let seen = |out: &[f32]| -> Vec<u64> {
            out.chunks(2).map(|two| u64::from(two[0].to_bits()) | u64::from(two[1].to_bits()) << 32).collect()
        };
        run_once(&chip, &image, tensors, vec![]).unwrap();
        let first = seen(&out);
        let [base, 1, 0, 1, third, 1, last, 1] = first[..] else { panic!("{first:?}") };
        assert_eq!((base % 1024, third, last), (0, base + 2048, base + 3072));
        // The buffer is kept, and a device tensor takes nothing of it.
        let mut wide = vec![0.0; 20];
        with_device[4] = host(&mut wide, ArgUse::OutputExisting);
        run_once(&chip, &image, with_device, vec![]).unwrap();
        assert_eq!(seen(&wide)[..8], [own.0, 1, base, 1, 0, 1, third, 1]);
    }
}

#[test]
fn an_empty_run_is_a_run() {
    let empty = "#include \"submit.h\"\nint aicpu_orchestration_entry(const SimplerOrchestrationApi *api, \
                 SimplerRun *run, const SimplerChipArgs *args) { (void)api; (void)run; (void)args; return 0; }\n";
    for chip in small_chips() {
        let id = chip.register(&image("empty", empty, &[])).unwrap();
        for _ in 0..100 {
            run(&chip, id, &RunArgs::default()).unwrap();
        }
    }
}

#[test]
fn a_full_window_of_tasks_runs() {
    for chip in small_chips() {
        let mut x = vec![0.25; 4];
        let mut y = vec![0.0; 4];
        let tasks = u64::from(small().rings[0].window);
        let tensors = vec![host(&mut x, ArgUse::Input), host(&mut y, ArgUse::Output)];
        run_once(&chip, &chain(), tensors, vec![tasks]).unwrap();
        assert_eq!(y, vec![chain_result(0.25, tasks); 4]);
    }
}

#[test]
fn two_chips_of_one_process_run_at_the_same_time() {
    let image = chain();
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let image = &image;
            scope.spawn(move || {
                let chip = small_chip();
                let id = chip.register(image).unwrap();
                for round in 1..20 {
                    let mut x = vec![thread as f32; 16];
                    let mut y = vec![0.0; 16];
                    let tensors = vec![host(&mut x, ArgUse::Input), host(&mut y, ArgUse::Output)];
                    run(&chip, id, &RunArgs { tensors, scalars: vec![round], ..RunArgs::default() }).unwrap();
                    assert_eq!(y, vec![chain_result(thread as f32, round); 16]);
                }
            });
        }
    });
}

#[test]
fn runs_of_several_threads_on_one_chip_take_turns() {
    let chip = small_chip();
    let id = chip.register(&chain()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let chip = &chip;
            scope.spawn(move || {
                let mut x = vec![thread as f32; 16];
                let mut y = vec![0.0; 16];
                for _ in 0..10 {
                    let tensors = vec![host(&mut x, ArgUse::Input), host(&mut y, ArgUse::Output)];
                    run(chip, id, &RunArgs { tensors, scalars: vec![5], ..RunArgs::default() }).unwrap();
                    assert_eq!(y, vec![chain_result(thread as f32, 5); 16]);
                }
            });
        }
    });
}

/// Layers of tasks, each of which reads the whole layer before: every completion is a race for the last arrival, and
/// every layer end a race between going to sleep and being rung.
const LAYERS: &str = r#"
#include "submit.h"
int aicpu_orchestration_entry(const SimplerOrchestrationApi *api, SimplerRun *run, const SimplerChipArgs *args) {
    uint64_t width = args->scalars[1];
    SimplerTensor from = args->tensors[0], to = args->tensors[1];
    for (uint64_t layer = 0; layer < args->scalars[0]; layer++) {
        for (uint64_t i = 0; i < width; i++) {
            SimplerTensor in = view(&from, 0, width), own = view(&from, i, 1), out = view(&to, i, 1);
            SimplerTaskArg a[] = {{&own, SIMPLER_INPUT}, {&own, SIMPLER_INPUT}, {&out, SIMPLER_OUTPUT_EXISTING},
                                  {&in, SIMPLER_INPUT}};
            SimplerTask task = task_of(a, 4);
            if (i % 3) task.aiv0 = 0; else task.aic = 1;
            uint64_t extra = i;
            task.scalars = &extra;
            task.scalar_count = 1;
            if (api->submit_task(run, &task) < 0) return 1;
        }
        SimplerTensor swap = from; from = to; to = swap;
    }
    return 0;
}
"#;

/// A thread that nobody rings is late by a whole park slice; a run of these graphs takes a fraction of one.
#[test]
fn no_width_of_a_graph_leaves_a_thread_to_its_park_slice() {
    for chip in small_chips() {
        let kernels = [("add", CoreKind::Aiv, ADD_KERNEL), ("add_cube", CoreKind::Aic, ADD_KERNEL)];
        let id = chip.register(&image("layers_of_sums", LAYERS, &kernels)).unwrap();
        for width in [1, 2, 5, 10, 17] {
            let mut times: Vec<Duration> = (0..21)
                .map(|_| {
                    let mut a = vec![1.0; width as usize];
                    let mut b = vec![0.0; width as usize];
                    let tensors = vec![host(&mut a, ArgUse::InOut), host(&mut b, ArgUse::InOut)];
                    let start = Instant::now();
                    run(&chip, id, &RunArgs { tensors, scalars: vec![8, width], ..RunArgs::default() })
                        .unwrap();
                    start.elapsed()
                })
                .collect();
            times.sort();
            // A busy machine delays some runs; what is never rung delays them all.
            let median = times[times.len() / 2];
            assert!(median < simpler_relax::PARK_SLICE / 2, "{width} wide: half of the runs took {median:?}");
        }
    }
}

#[test]
fn wide_layers_lose_no_task_and_no_wake_up() {
    for chip in small_chips() {
        let kernels = [("add", CoreKind::Aiv, ADD_KERNEL), ("add_cube", CoreKind::Aic, ADD_KERNEL)];
        let id = chip.register(&image("layers_of_sums", LAYERS, &kernels)).unwrap();
        // Wider than the cores of one scheduler, of two, and of the chip.
        for width in [2, 5, 10, 17, 40] {
            for round in 0..15 {
                let layers = 2 * (1 + round % 9);
                let mut a: Vec<f32> = (0..width).map(|i| i as f32).collect();
                let mut b = vec![0.0; width as usize];
                let tensors = vec![host(&mut a, ArgUse::InOut), host(&mut b, ArgUse::InOut)];
                run(&chip, id, &RunArgs { tensors, scalars: vec![layers, width], ..RunArgs::default() })
                    .unwrap();
                for (i, value) in a.iter().enumerate() {
                    let expected = (0..layers).fold(i as f32, |value, _| value * 2.0 + i as f32);
                    assert_eq!(*value, expected, "{width} wide, {layers} layers, column {i}");
                }
            }
        }
    }
}
