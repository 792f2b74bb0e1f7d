//! What the chip itself costs: an empty launch, a dispatch from the register's write to FIN, and what is lost
//! between dependent stages of real work.
//!
//! `cargo bench -p simpler-sim-npu`; one JSON object on the last line.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use simpler_kernel_abi::SimplerKernelArgs;
use simpler_platform::{Aicpu, AicpuProgram, CondState, DispatchPayload, Platform};
use simpler_relax::Relax;
use simpler_sim_npu::{Profile, SimNpu, SimOptions};

const LAUNCHES: usize = 5_000;
const DISPATCHES: usize = 50_000;
const STAGES: usize = 200;
const STAGE_WORK: Duration = Duration::from_micros(50);
const STEPS: usize = 50;

struct Program<F>(F, AtomicUsize);

impl<F: Fn(&dyn Aicpu, usize) -> i32 + Send + Sync> AicpuProgram for Program<F> {
    fn execute(&self, aicpu: &dyn Aicpu) -> i32 {
        (self.0)(aicpu, self.1.fetch_add(1, Ordering::Relaxed))
    }
}

/// Runs `body` on the four AICPU threads; nanoseconds from before the launch to after the wait.
fn run(chip: &SimNpu, body: impl Fn(&dyn Aicpu, usize) -> i32 + Send + Sync + 'static) -> u64 {
    let program = Arc::new(Program(body, AtomicUsize::new(0)));
    let started = Instant::now();
    let status = chip.launch(program).expect("the chip is idle").wait();
    assert_eq!(status, 0);
    started.elapsed().as_nanos() as u64
}

fn quantile(samples: &mut [u64], at: f64) -> u64 {
    samples.sort_unstable();
    samples[((samples.len() - 1) as f64 * at) as usize]
}

unsafe extern "C" fn nothing(_: *const SimplerKernelArgs) {}

unsafe extern "C" fn work(_: *const SimplerKernelArgs) {
    let started = Instant::now();
    while started.elapsed() < STAGE_WORK {
        std::hint::spin_loop();
    }
}

fn payloads(kernel: unsafe extern "C" fn(*const SimplerKernelArgs)) -> [DispatchPayload; 2] {
    let args = SimplerKernelArgs::NONE;
    [DispatchPayload { kernel: (kernel as *const ()).expose_provenance() as u64, args, record: 0 }; 2]
}

fn wait_fin(aicpu: &dyn Aicpu, thread: usize, core: usize, dispatch: u64) {
    let mut relax = Relax::new();
    loop {
        let seen = aicpu.event(thread).epoch();
        let cond = aicpu.registers().cond(core);
        if cond.state == CondState::Fin && cond.dispatch == dispatch {
            return;
        }
        relax.wait(aicpu.event(thread), seen);
    }
}

/// A step of dependent stages, each of one task on every CPU. Thread 0 dispatches and waits; the other three
/// do what idle schedulers and a finished orchestrator do: they wait for an end that comes last.
fn step(
    aicpu: &dyn Aicpu,
    thread: usize,
    width: usize,
    payloads: &[[DispatchPayload; 2]],
    done: &AtomicUsize,
) {
    if thread != 0 {
        let mut relax = Relax::new();
        loop {
            let seen = aicpu.event(thread).epoch();
            if done.load(Ordering::Acquire) != 0 {
                return;
            }
            relax.wait(aicpu.event(thread), seen);
        }
    }
    for (core, payloads) in payloads.iter().enumerate() {
        // SAFETY: the program owns the payloads, and they are written as the protocol allows.
        unsafe { aicpu.registers().attach(core, 0, payloads) };
    }
    for stage in 1..=STAGES as u64 {
        (0..width).for_each(|core| aicpu.registers().write_data_main_base(core, stage));
        (0..width).for_each(|core| wait_fin(aicpu, 0, core, stage));
    }
    done.store(1, Ordering::Release);
    (1..4).for_each(|other| aicpu.event(other).notify_one());
}

fn main() {
    let chip = SimNpu::new(Profile::a2a3sim(), SimOptions::default()).expect("a chip");
    let width = chip.core_threads();

    let mut launches: Vec<u64> = (0..LAUNCHES).map(|_| run(&chip, |_, _| 0)).collect();

    let dispatches = Arc::new(std::sync::Mutex::new(Vec::with_capacity(DISPATCHES)));
    run(&chip, {
        let (dispatches, payloads) = (Arc::clone(&dispatches), payloads(nothing));
        move |aicpu, thread| {
            if thread != 0 {
                return 0;
            }
            let mut samples = Vec::with_capacity(DISPATCHES);
            // SAFETY: the payloads live on until the launch has ended, and are not written after this.
            unsafe { aicpu.registers().attach(0, 0, &raw const payloads) };
            for dispatch in 1..=DISPATCHES as u64 {
                let started = Instant::now();
                aicpu.registers().write_data_main_base(0, dispatch);
                wait_fin(aicpu, 0, 0, dispatch);
                samples.push(started.elapsed().as_nanos() as u64);
            }
            *dispatches.lock().expect("one thread") = samples;
            0
        }
    });
    let mut dispatches = std::mem::take(&mut *dispatches.lock().expect("the launch has ended"));

    let mut losses: Vec<u64> = (0..STEPS)
        .map(|_| {
            let payloads = vec![payloads(work); width];
            let done = AtomicUsize::new(0);
            let took = run(&chip, move |aicpu, thread| {
                step(aicpu, thread, width, &payloads, &done);
                0
            });
            took.saturating_sub((STAGE_WORK * STAGES as u32).as_nanos() as u64) / STAGES as u64
        })
        .collect();

    println!(
        "{{\"core_threads\":{width},\"empty_launch_ns_p50\":{},\"empty_launch_ns_p99\":{},\"dispatch_ns_p50\":{},\
         \"dispatch_ns_p99\":{},\"stage_work_ns\":{},\"stage_loss_ns_p50\":{},\"stage_loss_ns_p90\":{}}}",
        quantile(&mut launches, 0.5),
        quantile(&mut launches, 0.99),
        quantile(&mut dispatches, 0.5),
        quantile(&mut dispatches, 0.99),
        STAGE_WORK.as_nanos(),
        quantile(&mut losses, 0.5),
        quantile(&mut losses, 0.9),
    );
}
