//! Random graphs: what the regions say against a byte-by-byte oracle, and what a chip computes, bit for bit, against a
//! replay in submission order.

#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use std::collections::BTreeSet;
use std::sync::OnceLock;

use proptest::prelude::*;
use simpler_kernel_abi::{ArgUse, CoreKind, DEVICE_MEMORY, DType, SimplerTensor};
use simpler_runtime::graph::TaskId;
use simpler_runtime::graph::regions::{Region, Regions};
use simpler_runtime::{CallableId, ChipRuntime, GraphRuntime, RingLimits, RunArgs, RuntimeConfig};
use simpler_sim_npu::{SimNpu, SimOptions};
use support::*;

/// Bytes of the oracle's buffers.
const BYTES: u64 = 24;

#[derive(Clone, Debug)]
struct Access {
    buffer: u64,
    region: Region,
    /// By byte of the buffer.
    touched: Vec<u64>,
    write: bool,
}

fn interval() -> impl Strategy<Value = Access> {
    (0..3_u64, 0..BYTES, 0..=BYTES, any::<bool>()).prop_map(|(buffer, a, b, write)| {
        let (start, end) = (a.min(b), a.max(b));
        let region = Region::bytes(4096 * (buffer + 1), start, end);
        Access { buffer, region, touched: (start..end).collect(), write }
    })
}

/// A tile of a buffer with rows of `width` bytes.
fn tile(width: u64) -> impl Strategy<Value = Access> {
    let rows = BYTES / width;
    let place = (0..rows, 0..width)
        .prop_flat_map(move |(row, column)| (Just((row, column)), 1..=rows - row, 1..=width - column));
    (0..3_u64, place, any::<bool>()).prop_map(move |(buffer, ((row, column), height, across), write)| {
        let mut view = SimplerTensor::whole(4096 * (buffer + 1), BYTES, DType::U8, DEVICE_MEMORY);
        (view.contiguous, view.ndims) = (0, 2);
        view.shapes[..2].copy_from_slice(&[height as u32, across as u32]);
        view.strides[..2].copy_from_slice(&[width, 1]);
        view.start_offset = row * width + column;
        view.extent = (height - 1) * width + across;
        let bytes = |row| (row * width + column..row * width + column + across).collect::<Vec<_>>();
        Access {
            buffer,
            region: Region::of(&view),
            touched: (row..row + height).flat_map(bytes).collect(),
            write,
        }
    })
}

/// Per byte: the last writer, and the readers since.
#[derive(Clone, Default)]
struct Byte {
    writer: Option<u32>,
    readers: BTreeSet<u32>,
}

/// The transitive closures of the map's dependencies and of the bytes', by task.
fn closures(tasks: &[Vec<Access>]) -> [Vec<BTreeSet<u32>>; 2] {
    let mut map = Regions::new();
    let mut bytes = vec![vec![Byte::default(); BYTES as usize]; 3];
    let mut closures = [Vec::new(), Vec::new()];
    for (task, accesses) in tasks.iter().enumerate() {
        let task = task as u32;
        let (mut map_says, mut bytes_say) = (BTreeSet::new(), BTreeSet::new());
        for Access { buffer, region, touched, write } in accesses {
            let mut depend = |on: TaskId| {
                map_says.insert(on.local());
                true
            };
            let id = TaskId::new(0, task);
            if *write {
                map.write(region, id, &mut depend).unwrap();
            } else {
                map.read(region, id, &mut depend).unwrap();
            }
            for byte in touched {
                let byte = &mut bytes[*buffer as usize][*byte as usize];
                bytes_say.extend(byte.writer);
                if *write {
                    bytes_say.extend(std::mem::take(&mut byte.readers));
                    byte.writer = Some(task);
                } else {
                    byte.readers.insert(task);
                }
            }
        }
        bytes_say.remove(&task);
        assert!(!map_says.contains(&task), "task {task} waits for itself");
        for (closure, direct) in closures.iter_mut().zip([map_says, bytes_say]) {
            let mut all = direct.clone();
            for on in direct {
                all.extend(&closure[on as usize]);
            }
            closure.push(all);
        }
    }
    map.clear();
    for task in 0..3 {
        let mut forgotten = |on| panic!("task {on} of a run that was forgotten");
        map.read(&Region::bytes(4096, 0, BYTES), TaskId::new(0, task), &mut forgotten).unwrap();
    }
    closures
}

fn tasks_of(access: impl Strategy<Value = Access>) -> impl Strategy<Value = Vec<Vec<Access>>> {
    prop::collection::vec(prop::collection::vec(access, 1..4), 1..40)
}

proptest! {
    /// The map may name a task too many only if that task is waited for anyway, and never one too few.
    #[test]
    fn regions_order_exactly_what_bytes_order(tasks in tasks_of(interval())) {
        let [of_map, of_bytes] = closures(&tasks);
        prop_assert_eq!(of_map, of_bytes);
    }

    /// The same for tiles of one grid.
    #[test]
    fn tiles_of_one_grid_order_exactly_what_bytes_order(tasks in tasks_of(tile(6))) {
        let [of_map, of_bytes] = closures(&tasks);
        prop_assert_eq!(of_map, of_bytes);
    }

    /// What is not from one grid may wait for more than it must, and never for less.
    #[test]
    fn views_of_any_kind_wait_for_all_that_bytes_order(
        tasks in tasks_of(prop_oneof![interval(), tile(6), tile(8), tile(12)]),
    ) {
        let [of_map, of_bytes] = closures(&tasks);
        for (task, (map, bytes)) in of_map.iter().zip(&of_bytes).enumerate() {
            prop_assert!(map.is_superset(bytes), "task {}: {:?} of {:?}", task, map, bytes);
        }
    }
}

/// A matrix that is written tile by tile and read whole keeps a bounded history, too.
#[test]
fn a_tiled_buffer_does_not_collect_dependencies() {
    let mut map = Regions::new();
    let mut task = 0;
    let (mut most, room) = (0, map.room());
    for _ in 0..1000 {
        for column in 0..4_u64 {
            let mut view = SimplerTensor::whole(8, 64, DType::U8, DEVICE_MEMORY);
            (view.contiguous, view.ndims) = (0, 2);
            view.shapes[..2].copy_from_slice(&[4, 4]);
            view.strides[..2].copy_from_slice(&[16, 1]);
            (view.start_offset, view.extent) = (column * 4, 52);
            let mut count = 0;
            let mut depend = |_| {
                count += 1;
                true
            };
            map.write(&Region::of(&view), TaskId::new(0, task), &mut depend).unwrap();
            most = count.max(most);
            task += 1;
        }
        map.read(&Region::bytes(8, 0, 64), TaskId::new(0, task), &mut |_| true).unwrap();
        task += 1;
    }
    assert!(most <= 130, "{most}");
    assert!(room - map.room() <= 140, "{}", room - map.room());
}

/// A buffer that is written slice by slice and read whole keeps a bounded history.
#[test]
fn a_reused_buffer_does_not_collect_dependencies() {
    let mut map = Regions::new();
    let mut task = 0;
    let mut next = || {
        task += 1;
        TaskId::new(0, task)
    };
    for _ in 0..1000 {
        for slice in 0..4 {
            let (task, mut count) = (next(), 0);
            let region = Region::bytes(8, slice * 4, slice * 4 + 4);
            let mut depend = |_| {
                count += 1;
                true
            };
            map.write(&region, task, &mut depend).unwrap();
            assert!(count <= 5, "task {task} waits for {count}: its former writer and four readers");
        }
        for _ in 0..4 {
            let (task, mut count) = (next(), 0);
            let mut depend = |_| {
                count += 1;
                true
            };
            map.read(&Region::bytes(8, 0, 16), task, &mut depend).unwrap();
            assert_eq!(count, 4, "task {task} waits for the four writers");
        }
    }
}

/// What tasks that are done have left behind goes when it is swept, and only that.
#[test]
fn a_sweep_leaves_the_tasks_that_are_there() {
    let mut map = Regions::new();
    let whole = |buffer| Region::bytes(4096 * (buffer + 1), 0, 64);
    let room = map.room();
    for task in 0..1000_u32 {
        let mut none = |on| panic!("task {task} waits for task {on}");
        map.write(&whole(u64::from(task)), TaskId::new(1, task), &mut none).unwrap();
    }
    assert_eq!(map.room(), room - 1000);
    map.sweep(|task| task.local() >= 990);
    assert_eq!(map.room(), room - 10);
    for task in 0..1000_u32 {
        let mut on = Vec::new();
        map.using(&whole(u64::from(task)), true, &mut |user| on.push(user));
        let expected = if task < 990 { vec![] } else { vec![TaskId::new(1, task)] };
        assert_eq!(on, expected, "buffer {task}");
    }
    map.sweep(|_| false);
    assert_eq!(map.room(), room);
}

/// Scalars: a word a task: kernel kind, use of the output, for each of two inputs and the output a buffer, a first
/// element and a count, and a shape. A shape of several parts, which run in any order, is for a task whose output does
/// not overlap what it reads; any other task is one part. Some read a copy of their first input, an output that the
/// runtime allocates. Half of the tasks let others be on their cores before they are done. Tasks without kernels and skipped ones come in
/// between, and so do the ends and beginnings of scopes,
/// each of which gets two words or scopes of its own at most.
const RANDOM: &str = r#"
#include "submit.h"
static SimplerTensor slice(const SimplerChipArgs *args, uint64_t bits) {
    return view(&args->tensors[bits & 1], (bits >> 1) & 63, ((bits >> 7) & 15) + 1);
}
static int apart(const SimplerTensor *a, const SimplerTensor *b) {
    return a->addr != b->addr || a->start_offset + a->extent <= b->start_offset ||
           b->start_offset + b->extent <= a->start_offset;
}
int aicpu_orchestration_entry(const SimplerOrchestrationApi *api, SimplerRun *run, const SimplerChipArgs *args) {
    SimplerTensor no = args->tensors[2];
    uint32_t depth = 0, used[7] = {0};
    for (uint32_t i = 0; i < args->scalar_count; i++) {
        uint64_t word = args->scalars[i], shape = (word >> 35) & 15, scope = (word >> 60) & 3;
        while (depth > 0 && (scope == 0 || used[depth] == 2)) {
            if (api->scope_end(run) < 0) return 4;
            used[--depth]++;
            scope = 2;
        }
        if (depth < 6 && (scope == 1 || (depth == 0 && scope == 3))) {
            if (api->scope_begin(run) < 0) return 5;
            used[++depth] = 0;
        }
        used[depth]++;
        SimplerTensor a = slice(args, word >> 2), b = slice(args, word >> 13), out = slice(args, word >> 24);
        SimplerTaskArg list[] = {{&a, SIMPLER_INPUT}, {&b, SIMPLER_INPUT},
                                 {&out, word & 2 ? SIMPLER_INOUT : SIMPLER_OUTPUT_EXISTING}, {&no, SIMPLER_INPUT}};
        SimplerTask task = simpler_task(list, 4);
        uint64_t salt = i;
        task.scalars = &salt;
        task.scalar_count = 1;
        if (!apart(&a, &out) || !apart(&b, &out)) shape = 0;
        SimplerTensor copied = fresh(a.shapes[0]);
        if (((word >> 62) & 1) && apart(&a, &out)) {
            SimplerTaskArg copy_list[] = {{&a, SIMPLER_INPUT}, {&copied, SIMPLER_OUTPUT}};
            SimplerTask copy = simpler_task(copy_list, 2);
            copy.aiv1 = 7;
            if ((word >> 58) & 1) copy.attrs = SIMPLER_TASK_EARLY_RESOLVE;
            if (api->submit_task(run, &copy) < 0) return 3;
            list[0].tensor = &copied;
        }
        if (shape >= 12) {
            /* Stands between those before and after it, and changes nothing. */
            SimplerTask other = task;
            if (shape & 1) simpler_task_set_predicate(&other, 3);
            other.aiv0 = shape & 1 ? 0 : SIMPLER_NO_KERNEL;
            if ((shape & 1 ? api->submit_task(run, &other) : api->submit_dummy_task(run, &other)) < 0) return 2;
        }
        switch (shape & 7) {
        case 1: task.block_count = 3; task.aiv1 = 0; break;
        case 2: task.block_count = 20; task.aic = 1; break;
        case 3: task.aic = 2; task.aiv1 = 3; break;
        case 4: task.aic = 4; task.aiv0 = 5; task.aiv1 = 6; break;
        case 5: task.aic = 4; task.aiv0 = 5; task.aiv1 = 6; task.block_count = 9; break;
        case 6: task.block_count = 7; task.attrs = SIMPLER_TASK_SYNC_START; task.aiv0 = 0; break;
        case 7: task.aic = 2; task.aiv0 = 3; task.block_count = 5; task.attrs = SIMPLER_TASK_SYNC_START; break;
        default: if (word & 1) task.aic = 1; else task.aiv0 = 0;
        }
        if ((word >> 59) & 1) task.attrs |= SIMPLER_TASK_EARLY_RESOLVE;
        if (api->submit_task(run, &task) < 0) return 1;
    }
    for (; depth > 0; depth--) api->scope_end(run);
    return 0;
}
"#;

/// out[i] = 31 out[i] + a[i % a] - 7 b[i % b] + salt, for the elements of this part: order matters, and every bit does.
fn mix(role: u32, roles: u32) -> String {
    format!(
        r#"
#include <simpler/kernel.h>
void kernel_entry(const SimplerKernelArgs *args) {{
    const SimplerTensor *const *t = args->tensors;
    const uint32_t *a = simpler_tensor_data(t[0]), *b = simpler_tensor_data(t[1]);
    uint32_t *out = simpler_tensor_data(t[2]);
    for (uint32_t i = args->block_index * {roles} + {role}; i < t[2]->shapes[0]; i += args->block_count * {roles})
        out[i] = out[i] * 31 + a[i % t[0]->shapes[0]] - b[i % t[1]->shapes[0]] * 7 + (uint32_t)args->scalars[0];
}}
"#
    )
}

const COPY: &str = r#"
#include <simpler/kernel.h>
void kernel_entry(const SimplerKernelArgs *args) {
    const uint32_t *from = simpler_tensor_data(args->tensors[0]);
    uint32_t *to = simpler_tensor_data(args->tensors[1]);
    for (uint32_t i = 0; i < args->tensors[1]->shapes[0]; i++) to[i] = from[i];
}
"#;

/// Words of each buffer: a first element below 64 and a count of up to 16.
const WORDS: usize = 80;
/// Graphs that are run and replayed; `cargo xtask test --long` says more.
const GRAPHS: u32 = 1_000;
const GRAPHS_LONG: u32 = 10_000;

/// What one task after the other computes, whatever its shape.
fn replay(words: &[u64], buffers: &mut [Vec<u32>; 2]) {
    let slice = |bits: u64| ((bits & 1) as usize, (bits >> 1 & 63) as usize, (bits >> 7 & 15) as usize + 1);
    for (salt, word) in words.iter().enumerate() {
        let [(a, a_from, a_count), (b, b_from, b_count), (out, from, count)] =
            [word >> 2, word >> 13, word >> 24].map(slice);
        for i in 0..count {
            let (a, b) = (buffers[a][a_from + i % a_count], buffers[b][b_from + i % b_count]);
            let value = &mut buffers[out][from + i];
            *value = value.wrapping_mul(31).wrapping_add(a).wrapping_sub(b.wrapping_mul(7));
            *value = value.wrapping_add(salt as u32);
        }
    }
}

fn shared_chips() -> &'static [(ChipRuntime, CallableId)] {
    static CHIPS: OnceLock<Vec<(ChipRuntime, CallableId)>> = OnceLock::new();
    CHIPS.get_or_init(|| {
        let (aic, aiv) = (CoreKind::Aic, CoreKind::Aiv);
        let parts =
            [(aiv, 0, 1), (aic, 0, 1), (aic, 0, 2), (aiv, 1, 2), (aic, 0, 3), (aiv, 1, 3), (aiv, 2, 3)];
        let texts =
            parts.map(|(kind, role, roles)| (format!("mix_{kind:?}_{role}_{roles}"), kind, mix(role, roles)));
        let mut kernels: Vec<_> = texts.iter().map(|(name, kind, text)| (&**name, *kind, &**text)).collect();
        kernels.push(("copy", aiv, COPY));
        let image = image("random", RANDOM, &kernels);
        arms()
            .into_iter()
            .map(|(profile, graph_runtime)| {
                let mut limits = small();
                if graph_runtime == GraphRuntime::TensorMapAndRingBuffer {
                    // What is open of rings 1 to 3 has room, and not much more: the rest must come back in time.
                    let tight =
                        RingLimits { window: 8, heap_bytes: 2 << 10, argument_bytes: 1 << 12, edges: 256 };
                    let deep =
                        RingLimits { window: 64, heap_bytes: 16 << 10, argument_bytes: 1 << 15, edges: 2048 };
                    limits.rings[1..].copy_from_slice(&[tight, tight, deep]);
                }
                let npu = SimNpu::new(profile, SimOptions::default()).unwrap();
                let config = RuntimeConfig { graph_runtime, limits, ..RuntimeConfig::default() };
                let chip = ChipRuntime::new(npu, config).unwrap();
                let id = chip.register(&image).unwrap();
                (chip, id)
            })
            .collect()
    })
}

fn graphs() -> u32 {
    if std::env::var_os("SIMPLER_LONG").is_some() { GRAPHS_LONG } else { GRAPHS }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: graphs(), ..ProptestConfig::default() })]

    #[test]
    fn a_random_graph_computes_what_its_tasks_compute_one_by_one(
        words in prop::collection::vec(any::<u64>(), 1..100),
        arm in 0..4_usize,
    ) {
        let (chip, id) = &shared_chips()[arm];
        let start = |salt: u32| (0..WORDS as u32).map(|i| i * 7 + salt).collect::<Vec<_>>();
        let mut expected = [start(0), start(5)];
        let floats = |words: &Vec<u32>| words.iter().map(|word| f32::from_bits(*word)).collect::<Vec<_>>();
        let mut buffers = expected.each_ref().map(floats);
        replay(&words, &mut expected);
        let mut no = [0.0];
        let mut tensors: Vec<_> = buffers.iter_mut().map(|buffer| host(buffer, ArgUse::InOut)).collect();
        tensors.push(host(&mut no, ArgUse::Input));
        run(chip, *id, &RunArgs { tensors, scalars: words.clone(), ..RunArgs::default() }).unwrap();
        let got = buffers.map(|buffer| buffer.iter().map(|value| value.to_bits()).collect::<Vec<_>>());
        prop_assert_eq!(got, expected);
    }
}
