//! Random graphs: what the regions say against a byte-by-byte oracle, and what a chip computes against a replay in
//! submission order.

#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use std::collections::BTreeSet;
use std::sync::OnceLock;

use proptest::prelude::*;
use simpler_kernel_abi::{ArgUse, CoreKind};
use simpler_runtime::graph::regions::{Region, Regions};
use simpler_runtime::{CallableId, ChipRuntime, RunArgs};
use support::*;

/// Bytes of the oracle's buffers.
const BYTES: u64 = 24;

#[derive(Clone, Debug)]
struct Access {
    base: u64,
    start: u64,
    end: u64,
    write: bool,
}

fn access() -> impl Strategy<Value = Access> {
    (0..3_u64, 0..BYTES, 0..=BYTES, any::<bool>()).prop_map(|(buffer, a, b, write)| Access {
        base: 4096 * (buffer + 1),
        start: a.min(b),
        end: a.max(b),
        write,
    })
}

/// Per byte: the last writer, and the readers since.
#[derive(Clone, Default)]
struct Byte {
    writer: Option<u32>,
    readers: BTreeSet<u32>,
}

proptest! {
    /// The map may name a task too many only if that task is waited for anyway, and never one too few: the transitive
    /// closures of the map's dependencies and of the oracle's are the same.
    #[test]
    fn regions_order_exactly_what_bytes_order(tasks in prop::collection::vec(prop::collection::vec(access(), 1..4), 1..40)) {
        let mut map = Regions::new();
        let mut bytes = vec![vec![Byte::default(); BYTES as usize]; 3];
        let (mut of_map, mut of_bytes): (Vec<BTreeSet<u32>>, Vec<BTreeSet<u32>>) = Default::default();
        for (task, accesses) in tasks.iter().enumerate() {
            let task = task as u32;
            let (mut map_says, mut bytes_say) = (BTreeSet::new(), BTreeSet::new());
            for Access { base, start, end, write } in accesses {
                let region = Region { base: *base, start: *start, end: *end };
                let mut depend = |on| { map_says.insert(on); };
                if *write {
                    map.write(region, task, &mut depend).unwrap();
                } else {
                    map.read(region, task, &mut depend).unwrap();
                }
                for byte in &mut bytes[(base / 4096 - 1) as usize][*start as usize..*end as usize] {
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
            prop_assert!(!map_says.contains(&task), "task {task} waits for itself");
            for (closure, direct) in [(&mut of_map, map_says), (&mut of_bytes, bytes_say)] {
                let mut all = direct.clone();
                for on in direct {
                    all.extend(&closure[on as usize]);
                }
                closure.push(all);
            }
            prop_assert_eq!(&of_map[task as usize], &of_bytes[task as usize], "task {}", task);
        }
        map.clear();
        for task in 0..3 {
            let region = Region { base: 4096, start: 0, end: BYTES };
            map.read(region, task, &mut |on| panic!("task {on} of a run that was forgotten")).unwrap();
        }
    }
}

/// A buffer that is written slice by slice and read whole keeps a bounded history.
#[test]
fn a_reused_buffer_does_not_collect_dependencies() {
    let mut map = Regions::new();
    let mut task = 0;
    for _ in 0..1000 {
        for slice in 0..4 {
            let mut count = 0;
            map.write(Region { base: 8, start: slice * 4, end: slice * 4 + 4 }, task, &mut |_| count += 1)
                .unwrap();
            assert!(count <= 5, "task {task} waits for {count}: its former writer and four readers");
            task += 1;
        }
        for _ in 0..4 {
            let mut count = 0;
            map.read(Region { base: 8, start: 0, end: 16 }, task, &mut |_| count += 1).unwrap();
            assert_eq!(count, 4, "task {task} waits for the four writers");
            task += 1;
        }
    }
}

/// Scalars: the number of tasks, then per task a word: kernel 0..2, and for each of two inputs and the output a first
/// element and a count, on one of two buffers. The last task's output goes nowhere else.
const RANDOM: &str = r#"
#include "submit.h"
static SimplerTensor slice(const SimplerChipArgs *args, uint64_t bits) {
    return view(&args->tensors[bits & 1], (bits >> 1) & 63, ((bits >> 7) & 15) + 1);
}
int aicpu_orchestration_entry(const SimplerOrchestrationApi *api, SimplerRun *run, const SimplerChipArgs *args) {
    for (uint32_t i = 0; i < args->scalar_count; i++) {
        uint64_t word = args->scalars[i];
        SimplerTensor a = slice(args, word >> 2), b = slice(args, word >> 13), out = slice(args, word >> 24);
        SimplerTaskArg list[] = {{&a, SIMPLER_INPUT}, {&b, SIMPLER_INPUT},
                                 {&out, word & 2 ? SIMPLER_INOUT : SIMPLER_OUTPUT_EXISTING}};
        SimplerTask task = task_of(list, 3);
        uint64_t salt = i;
        task.scalars = &salt;
        task.scalar_count = 1;
        if (word & 1) task.aic = 1; else task.aiv0 = 0;
        if (api->submit_task(run, &task) < 0) return 1;
    }
    return 0;
}
"#;

/// out[i] = out[i] / 2 + a[i % a] - b[i % b] / 4 + salt: order matters, and every operation is exact enough to repeat.
const MIX: &str = r#"
#include <simpler/kernel.h>
void kernel_entry(const SimplerKernelArgs *args) {
    const SimplerTensor *const *t = args->tensors;
    const float *a = simpler_tensor_data(t[0]), *b = simpler_tensor_data(t[1]);
    float *out = simpler_tensor_data(t[2]);
    for (uint32_t i = 0; i < t[2]->shapes[0]; i++) {
        float value = out[i] * 0.5f;
        value = value + a[i % t[0]->shapes[0]];
        value = value - b[i % t[1]->shapes[0]] * 0.25f;
        out[i] = value + (float)(args->scalars[0] % 7);
    }
}
"#;

/// Floats of each buffer: a first element below 64 and a count of up to 16.
const FLOATS: usize = 80;

fn replay(words: &[u64], buffers: &mut [Vec<f32>; 2]) {
    let slice = |bits: u64| ((bits & 1) as usize, (bits >> 1 & 63) as usize, (bits >> 7 & 15) as usize + 1);
    for (salt, word) in words.iter().enumerate() {
        let [(a, a_from, a_count), (b, b_from, b_count), (out, from, count)] =
            [word >> 2, word >> 13, word >> 24].map(slice);
        for i in 0..count {
            // Contraction is the compiler's choice, so the kernel's sums are compared with a tolerance.
            let value = buffers[out][from + i] * 0.5 + buffers[a][a_from + i % a_count]
                - buffers[b][b_from + i % b_count] * 0.25;
            buffers[out][from + i] = value + (salt % 7) as f32;
        }
    }
}

fn shared_chips() -> &'static [(ChipRuntime, CallableId)] {
    static CHIPS: OnceLock<Vec<(ChipRuntime, CallableId)>> = OnceLock::new();
    CHIPS.get_or_init(|| {
        let kernels = [("mix", CoreKind::Aiv, MIX), ("mix_cube", CoreKind::Aic, MIX)];
        let image = image("random", RANDOM, &kernels);
        small_chips().map(|chip| chip.register(&image).map(|id| (chip, id)).unwrap()).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn a_random_graph_computes_what_its_tasks_compute_one_by_one(
        words in prop::collection::vec(any::<u64>(), 1..100),
        arm in 0..4_usize,
    ) {
        let (chip, id) = &shared_chips()[arm];
        let start = |salt: usize| (0..FLOATS).map(|i| ((i * 7 + salt) % 13) as f32 - 6.0).collect::<Vec<_>>();
        let mut buffers = [start(0), start(5)];
        let mut expected = buffers.clone();
        replay(&words, &mut expected);
        let tensors = buffers.iter_mut().map(|buffer| host(buffer, ArgUse::InOut)).collect();
        run(chip, *id, &RunArgs { tensors, scalars: words.clone() }).unwrap();
        for (got, expected) in buffers.iter().flatten().zip(expected.iter().flatten()) {
            prop_assert!((got - expected).abs() <= 1e-3 * (1.0 + expected.abs()), "{} is not {}", got, expected);
        }
    }
}
