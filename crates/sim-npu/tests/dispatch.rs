//! Kernels through the registers: each runs exactly once, in order, on whichever thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use simpler_kernel_abi::SimplerKernelArgs;
use simpler_platform::{Cond, CondState, Platform};
use simpler_relax::{Deadline, Relax};
use simpler_sim_npu::{Profile, STATUS_CORE_FAULT, SimNpu, SimOptions};

mod support;

use support::{LIMIT, Payloads, Stages, Task, add_one, compile, kernel_of, program, read_words};

const CORES: usize = 24;

/// cell[scalar 1] := 3 · cell[scalar 0] + 1, plus 2^32 for each time that it ran.
const STEP_KERNEL: &str = r#"
#include <simpler/kernel.h>
void kernel_entry(const SimplerKernelArgs *args) {
    uint64_t *cells = simpler_tensor_data(args->tensors[0]);
    uint64_t from = cells[args->scalars[0]] & 0xffffffffu;
    uint64_t times = (cells[args->scalars[1]] >> 32) + 1;
    cells[args->scalars[1]] = times << 32 | ((3 * from + 1) & 0xffffffffu);
}
"#;

#[test]
fn a_chain_of_c_kernels_on_several_cores_sees_each_others_writes() {
    let Some(image) = compile("step", STEP_KERNEL, &[]) else { return };
    const STEPS: usize = 2_000;
    let chip = support::chip();
    let kernel = chip.load_kernel(&image, "step").unwrap();
    let bytes = (STEPS + 1) * 8;
    let cells = chip.allocate(bytes).unwrap();
    let tasks = (0..STEPS as u64).map(|i| Task::new(kernel, cells, bytes, &[i, i + 1])).collect();
    let stages = Arc::new(Stages::new(tasks, 1, CORES, 3));
    let run = program(move |aicpu, index| stages.schedule(aicpu, index));
    assert_eq!(chip.launch(run).unwrap().wait(), 0);
    let mut expected = 0_u32;
    for cell in &read_words(&chip, cells, STEPS + 1)[1..] {
        expected = expected.wrapping_mul(3).wrapping_add(1);
        assert_eq!(*cell, 1 << 32 | u64::from(expected));
    }
}

#[test]
fn ten_thousand_kernels_across_all_cores_run_exactly_once_each() {
    let Some(image) = compile("count", STEP_KERNEL, &[]) else { return };
    const TASKS: usize = 10_000;
    let chip = support::chip();
    let kernel = chip.load_kernel(&image, "count").unwrap();
    let bytes = (TASKS + 1) * 8;
    let cells = chip.allocate(bytes).unwrap();
    let tasks = (1..=TASKS as u64).map(|i| Task::new(kernel, cells, bytes, &[0, i])).collect();
    let stages = Arc::new(Stages::new(tasks, TASKS, CORES, 4));
    let run = program(move |aicpu, index| stages.schedule(aicpu, index));
    assert_eq!(chip.launch(run).unwrap().wait(), 0);
    let cells = read_words(&chip, cells, TASKS + 1);
    assert_eq!(cells[0], 0);
    assert!(cells[1..].iter().all(|&cell| cell == 1 << 32 | 1));
}

/// Stages of 24 tasks on the same 24 cells: each stage's plain writes are read by the next stage, on other
/// cores and threads. A missing release or acquire is a race that ThreadSanitizer sees.
#[test]
fn a_stage_sees_the_plain_writes_of_the_stage_before() {
    const STAGES: usize = 300;
    for core_threads in [1, 2, 5, CORES] {
        let chip = SimNpu::new(
            Profile::a2a3sim(),
            SimOptions { core_threads: Some(core_threads), ..SimOptions::default() },
        )
        .unwrap();
        assert_eq!(chip.core_threads(), core_threads);
        let cells = chip.allocate(CORES * 8).unwrap();
        let tasks = (0..STAGES * CORES)
            .map(|i| Task::new(kernel_of(add_one), cells, CORES * 8, &[((i * 7) % CORES) as u64]))
            .collect();
        let stages = Arc::new(Stages::new(tasks, CORES, CORES, 3));
        let run = program(move |aicpu, index| stages.schedule(aicpu, index));
        assert_eq!(chip.launch(run).unwrap().wait(), 0);
        assert_eq!(read_words(&chip, cells, CORES), [STAGES as u64; CORES]);
    }
}

static IN_KERNEL: AtomicUsize = AtomicUsize::new(0);
static GO_ON: AtomicUsize = AtomicUsize::new(0);
static RAN: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" fn held(_: *const SimplerKernelArgs) {
    IN_KERNEL.fetch_add(1, Ordering::AcqRel);
    let deadline = Deadline::after(LIMIT);
    let allowed = RAN.load(Ordering::Acquire) as usize;
    while GO_ON.load(Ordering::Acquire) <= allowed && !deadline.passed() {
        std::thread::yield_now();
    }
    RAN.fetch_add(1, Ordering::AcqRel);
}

fn poll(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Deadline::after(LIMIT);
    while !condition() {
        assert!(!deadline.passed(), "{what} did not happen");
        std::thread::yield_now();
    }
}

/// The second of a core's two payloads may be published while the first one's kernel runs.
#[test]
fn a_dispatch_behind_a_running_kernel_waits_for_it_and_then_runs() {
    let payloads = Payloads::new();
    let chip = SimNpu::new(Profile::a2a3sim(), SimOptions { core_threads: Some(3), ..SimOptions::default() })
        .unwrap();
    let run = program(move |aicpu, index| {
        if index != 0 {
            return 0;
        }
        let registers = aicpu.registers();
        let cond = |state, dispatch| Cond { state, dispatch };
        assert_eq!(registers.cond(5), cond(CondState::Idle, 0));
        // SAFETY: the program owns the payloads, and they are written as the protocol allows.
        unsafe { registers.attach(5, 0, payloads.address()) };
        let task = Task::new(kernel_of(held), simpler_platform::DeviceAddr(0), 0, &[]);
        payloads.write(1, task.payload());
        registers.write_data_main_base(5, 1);
        poll("ACK 1", || registers.cond(5) == cond(CondState::Ack, 1));
        poll("kernel 1", || IN_KERNEL.load(Ordering::Acquire) == 1);
        payloads.write(2, task.payload());
        registers.write_data_main_base(5, 2);
        // Other threads are free to take it, and must not.
        let until = Deadline::after(std::time::Duration::from_millis(20));
        poll("a while", || until.passed());
        assert_eq!(registers.cond(5), cond(CondState::Ack, 1));
        assert_eq!(IN_KERNEL.load(Ordering::Acquire), 1);
        GO_ON.store(1, Ordering::Release);
        poll("ACK 2", || registers.cond(5) == cond(CondState::Ack, 2));
        GO_ON.store(2, Ordering::Release);
        let mut relax = Relax::new();
        loop {
            let seen = aicpu.event(0).epoch();
            if registers.cond(5) == cond(CondState::Fin, 2) {
                return 0;
            }
            relax.wait(aicpu.event(0), seen);
        }
    });
    assert_eq!(chip.launch(run).unwrap().wait(), 0);
    assert_eq!(RAN.load(Ordering::Acquire), 2);
}

#[test]
fn a_core_that_cannot_run_its_task_finishes_it_and_fails_the_launch() {
    /// Gives what the misused core comes to.
    type Misuse = fn(&dyn simpler_platform::Registers, &Payloads) -> (usize, Cond);
    const FINISHED: Cond = Cond { state: CondState::Fin, dispatch: 1 };
    const UNTOUCHED: Cond = Cond { state: CondState::Idle, dispatch: 0 };
    let cases: [(&str, Misuse); 5] = [
        ("a null kernel", |registers, payloads| {
            // SAFETY: the program owns the payloads, and nobody writes them.
            unsafe { registers.attach(0, 0, payloads.address()) };
            registers.write_data_main_base(0, 1);
            (0, FINISHED)
        }),
        ("no payloads", |registers, _| {
            registers.write_data_main_base(1, 1);
            (1, FINISHED)
        }),
        ("no such core", |registers, payloads| {
            // SAFETY: as above.
            unsafe { registers.attach(CORES, 0, payloads.address()) };
            registers.write_data_main_base(CORES, 1);
            (CORES, UNTOUCHED)
        }),
        ("dispatch 0", |registers, _| {
            registers.write_data_main_base(2, 0);
            (2, UNTOUCHED)
        }),
        ("a dispatch beyond the register", |registers, _| {
            registers.write_data_main_base(2, 1 << 62);
            (2, UNTOUCHED)
        }),
    ];
    let chip = support::chip();
    for (what, misuse) in cases {
        let payloads = Payloads::new();
        let run = program(move |aicpu, index| {
            if index == 0 {
                let registers = aicpu.registers();
                let (core, comes_to) = misuse(registers, &payloads);
                poll(what, || registers.cond(core) == comes_to);
            }
            0
        });
        assert_eq!(chip.launch(run).unwrap().wait(), STATUS_CORE_FAULT, "{what}");
    }
    // It is the launch that failed, not the chip.
    assert_eq!(chip.launch(program(|_, _| 0)).unwrap().wait(), 0);
}

static SLOW_RAN: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" fn slow(_: *const SimplerKernelArgs) {
    let until = Deadline::after(std::time::Duration::from_millis(30));
    while !until.passed() {
        std::thread::yield_now();
    }
    SLOW_RAN.fetch_add(1, Ordering::AcqRel);
}

/// What an error exit of the schedulers leaves behind must not touch payloads that are gone.
#[test]
fn a_launch_ends_only_when_its_last_kernel_has_returned() {
    let chip = support::chip();
    let payloads = Payloads::new();
    let run = program(move |aicpu, index| {
        if index == 0 {
            // SAFETY: the program owns the payloads, and they are written as the protocol allows.
            unsafe { aicpu.registers().attach(7, 0, payloads.address()) };
            let task = Task::new(kernel_of(slow), simpler_platform::DeviceAddr(0), 0, &[]);
            payloads.write(1, task.payload());
            aicpu.registers().write_data_main_base(7, 1);
        }
        -100
    });
    assert_eq!(chip.launch(run).unwrap().wait(), -100);
    assert_eq!(SLOW_RAN.load(Ordering::Acquire), 1);
}

#[test]
fn registers_are_reset_by_a_launch() {
    let chip = support::chip();
    for _ in 0..2 {
        let cells = chip.allocate(8).unwrap();
        let tasks = (0..3).map(|_| Task::new(kernel_of(add_one), cells, 8, &[0])).collect();
        let stages = Stages::new(tasks, 1, 1, 1);
        let run = program(move |aicpu, index| {
            if index != 0 {
                return 0;
            }
            let fresh = aicpu.registers().cond(0);
            if fresh != (Cond { state: CondState::Idle, dispatch: 0 }) {
                return 1;
            }
            stages.schedule(aicpu, 0)
        });
        assert_eq!(chip.launch(run).unwrap().wait(), 0);
        assert_eq!(read_words(&chip, cells, 1), [3]);
    }
}
