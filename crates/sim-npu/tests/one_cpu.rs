//! A whole chip on one CPU: 6 AICPU threads and 4 core threads share it, and nothing livelocks.

use std::sync::Arc;
use std::time::Instant;

use simpler_platform::Platform;
use simpler_sim_npu::{Profile, SimNpu, SimOptions};

mod support;

use support::{LIMIT, Stages, Task, add_one, kernel_of, program, read_words};

fn pin_to_first_allowed_cpu() {
    let size = size_of::<libc::cpu_set_t>();
    // SAFETY: a cpu_set_t is plain bits, all zero is the empty set.
    let mut allowed: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is ours and `size` is its size.
    assert_eq!(unsafe { libc::sched_getaffinity(0, size, &raw mut allowed) }, 0);
    let first = (0..libc::CPU_SETSIZE as usize)
        // SAFETY: the index is below CPU_SETSIZE.
        .find(|&cpu| unsafe { libc::CPU_ISSET(cpu, &allowed) })
        .expect("some CPU is allowed");
    // SAFETY: as above.
    let mut one: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the index is below CPU_SETSIZE.
    unsafe { libc::CPU_SET(first, &mut one) };
    // SAFETY: as above; threads started later inherit the mask.
    assert_eq!(unsafe { libc::sched_setaffinity(0, size, &raw const one) }, 0);
}

#[test]
fn two_thousand_dependent_tasks_finish_on_one_cpu() {
    const STEPS: usize = 2_000;
    pin_to_first_allowed_cpu();
    let started = Instant::now();
    assert_eq!(
        SimNpu::new(Profile::a2a3sim(), SimOptions::default()).unwrap().core_threads(),
        1,
        "the default follows the affinity mask"
    );
    let chip = SimNpu::new(Profile::a2a3sim(), SimOptions { core_threads: Some(4), ..SimOptions::default() })
        .unwrap();
    let cell = chip.allocate(8).unwrap();
    let tasks = (0..STEPS).map(|_| Task::new(kernel_of(add_one), cell, 8, &[0])).collect();
    let stages = Arc::new(Stages::new(tasks, 1, 24, 3));
    let run = program(move |aicpu, index| stages.schedule(aicpu, index));
    assert_eq!(chip.launch(run).unwrap().wait(), 0);
    assert_eq!(read_words(&chip, cell, 1), [STEPS as u64]);
    // Some tens of µs a task; a wait that spins would burn a time slice at each of them.
    assert!(started.elapsed() < LIMIT / 6, "{:?}", started.elapsed());
}
