//! A small AICPU program for tests: tasks in stages, dispatched by several schedulers.
#![allow(dead_code, reason = "every test file is a crate of its own and uses a part")]

use std::cell::UnsafeCell;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use simpler_kernel_abi::{DEVICE_MEMORY, DType, SimplerKernelArgs, SimplerTensor};
use simpler_platform::{Aicpu, AicpuProgram, CondState, DeviceAddr, DispatchPayload, Platform};
use simpler_relax::{Deadline, Relax};
use simpler_sim_npu::{Profile, SimNpu, SimOptions};

/// Far beyond any correct run, on one CPU and under a sanitizer too.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);
/// What a scheduler returns that got nowhere in [`LIMIT`].
pub(crate) const TIMED_OUT: i32 = -100;

pub(crate) fn chip() -> Arc<SimNpu> {
    SimNpu::new(Profile::a2a3sim(), SimOptions::default()).expect("a chip")
}

/// A closure as a program; it is called with the thread's executor index.
pub(crate) struct Program<F> {
    body: F,
    arrivals: AtomicUsize,
}

pub(crate) fn program<F>(body: F) -> Arc<Program<F>>
where
    F: Fn(&dyn Aicpu, usize) -> i32 + Send + Sync,
{
    Arc::new(Program { body, arrivals: AtomicUsize::new(0) })
}

impl<F> AicpuProgram for Program<F>
where
    F: Fn(&dyn Aicpu, usize) -> i32 + Send + Sync,
{
    fn execute(&self, aicpu: &dyn Aicpu) -> i32 {
        let index = self.arrivals.fetch_add(1, Ordering::Relaxed);
        (self.body)(aicpu, index)
    }
}

/// One task's arguments: one tensor, some scalars.
pub(crate) struct Task {
    pub(crate) kernel: u64,
    scalars: Vec<u64>,
    tensors: Box<[*const SimplerTensor; 1]>,
    /// What the list above points to.
    _tensor: Box<SimplerTensor>,
}

// SAFETY: the pointers are device addresses, and the tensor list of the task itself.
unsafe impl Send for Task {}
// SAFETY: as above; nothing is changed after `new`.
unsafe impl Sync for Task {}

impl Task {
    pub(crate) fn new(kernel: u64, buffer: DeviceAddr, bytes: usize, scalars: &[u64]) -> Self {
        let tensor = Box::new(SimplerTensor::whole(buffer.0, bytes as u64, DType::U8, DEVICE_MEMORY));
        let tensors = Box::new([std::ptr::from_ref(&*tensor)]);
        Self { kernel, scalars: scalars.to_vec(), tensors, _tensor: tensor }
    }

    pub(crate) fn payload(&self) -> DispatchPayload {
        DispatchPayload {
            kernel: self.kernel,
            args: SimplerKernelArgs {
                tensors: self.tensors.as_ptr(),
                scalars: self.scalars.as_ptr(),
                tensor_count: 1,
                scalar_count: self.scalars.len() as u32,
                ..SimplerKernelArgs::NONE
            },
            record: 0,
        }
    }
}

/// A kernel in Rust, which a sanitizer sees: adds 1 to the plain memory of one cell.
pub(crate) unsafe extern "C" fn add_one(args: *const SimplerKernelArgs) {
    // SAFETY: called by a core, with the arguments of a payload.
    let args = unsafe { &*args };
    // SAFETY: a `Task` has one tensor.
    let tensor = unsafe { *args.tensors };
    // SAFETY: as above; the task outlives its run.
    let cells = unsafe { (*tensor).addr };
    // SAFETY: the task has one scalar, the index of its cell.
    let index = unsafe { *args.scalars } as usize;
    let cell = std::ptr::with_exposed_provenance_mut::<u64>(cells as usize).wrapping_add(index);
    // SAFETY: inside the tensor; the tasks of one cell follow each other.
    unsafe { *cell += 1 };
}

/// What the chip would give for a kernel that was loaded.
pub(crate) fn kernel_of(entry: unsafe extern "C" fn(*const SimplerKernelArgs)) -> u64 {
    (entry as *const ()).expose_provenance() as u64
}

pub(crate) const NO_PAYLOAD: DispatchPayload =
    DispatchPayload { kernel: 0, args: SimplerKernelArgs::NONE, record: 0 };

/// The payloads of one core, written by its scheduler.
pub(crate) struct Payloads(UnsafeCell<[DispatchPayload; 2]>);

// SAFETY: the dispatch protocol hands a payload from the scheduler to the core.
unsafe impl Sync for Payloads {}

impl Payloads {
    pub(crate) const fn new() -> Self {
        Self(UnsafeCell::new([NO_PAYLOAD; 2]))
    }

    pub(crate) fn address(&self) -> *const [DispatchPayload; 2] {
        self.0.get()
    }

    /// Writes the payload of `dispatch`. Only the core's scheduler may, and only while the core is done with it.
    pub(crate) fn write(&self, dispatch: u64, payload: DispatchPayload) {
        let slot = self.0.get().cast::<DispatchPayload>().wrapping_add((dispatch & 1) as usize);
        // SAFETY: inside the array; by the protocol nobody else touches this payload now.
        unsafe { slot.write(payload) };
    }
}

/// Tasks in stages of `width`: a stage starts when the one before has finished.
pub(crate) struct Stages {
    pub(crate) tasks: Vec<Task>,
    pub(crate) width: usize,
    payloads: Vec<Payloads>,
    next: AtomicUsize,
    finished: AtomicUsize,
    schedulers: usize,
}

impl Stages {
    pub(crate) fn new(tasks: Vec<Task>, width: usize, cores: usize, schedulers: usize) -> Self {
        Self {
            tasks,
            width,
            payloads: (0..cores).map(|_| Payloads::new()).collect(),
            next: AtomicUsize::new(0),
            finished: AtomicUsize::new(0),
            schedulers,
        }
    }

    fn take(&self) -> Option<&Task> {
        let may = |next: usize| {
            let stage_start = next / self.width * self.width;
            next < self.tasks.len() && self.finished.load(Ordering::Acquire) >= stage_start
        };
        let taken = self
            .next
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |next| may(next).then_some(next + 1))
            .ok()?;
        Some(&self.tasks[taken])
    }

    /// What scheduler `index` does: dispatches to its cores until all tasks have finished. Cores beyond the
    /// schedulers' are left alone; a thread that is no scheduler returns at once.
    pub(crate) fn schedule(&self, aicpu: &dyn Aicpu, index: usize) -> i32 {
        if index >= self.schedulers {
            return 0;
        }
        let registers = aicpu.registers();
        let mine: Vec<usize> = (index..self.payloads.len()).step_by(self.schedulers).collect();
        for &core in &mine {
            // SAFETY: the launch's program owns the payloads, and they are written as the protocol allows.
            unsafe { registers.attach(core, index, self.payloads[core].address()) };
        }
        let mut sequence = vec![0_u64; mine.len()];
        let mut busy = vec![false; mine.len()];
        let deadline = Deadline::after(LIMIT);
        let mut relax = Relax::new();
        let event = aicpu.event(index);
        loop {
            let seen = event.epoch();
            let mut progress = false;
            for (slot, &core) in mine.iter().enumerate() {
                if busy[slot] {
                    let cond = registers.cond(core);
                    if cond.state == CondState::Fin && cond.dispatch == sequence[slot] {
                        busy[slot] = false;
                        progress = true;
                        let finished = self.finished.fetch_add(1, Ordering::AcqRel) + 1;
                        if finished.is_multiple_of(self.width) || finished == self.tasks.len() {
                            (0..self.schedulers).for_each(|other| aicpu.event(other).notify_one());
                        }
                    }
                }
                if !busy[slot]
                    && let Some(task) = self.take()
                {
                    sequence[slot] += 1;
                    self.payloads[core].write(sequence[slot], task.payload());
                    registers.write_data_main_base(core, sequence[slot]);
                    busy[slot] = true;
                    progress = true;
                }
            }
            if progress {
                relax.reset();
                continue;
            }
            if self.finished.load(Ordering::Acquire) == self.tasks.len() {
                return 0;
            }
            if deadline.passed() {
                return TIMED_OUT;
            }
            relax.wait(event, seen);
        }
    }
}

/// Reads `count` u64 from the device.
pub(crate) fn read_words(chip: &SimNpu, addr: DeviceAddr, count: usize) -> Vec<u64> {
    let mut bytes = vec![0_u8; count * 8];
    chip.copy_to_host(&mut bytes, addr).expect("inside the buffer");
    bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().expect("8 bytes"))).collect()
}

/// Compiles C to a shared object and gives its bytes; None, said aloud, where there is no compiler.
pub(crate) fn compile(name: &str, source: &str, flags: &[&str]) -> Option<Vec<u8>> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let include: PathBuf = [env!("CARGO_MANIFEST_DIR"), "..", "kernel-abi", "include"].iter().collect();
    let unique = format!("{name}-{}", std::process::id());
    let (text, object) = (folder.join(format!("{unique}.c")), folder.join(format!("{unique}.so")));
    std::fs::write(&text, source).expect("the target folder is writable");
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let output = Command::new(&compiler)
        .args(["-O2", "-fPIC", "-shared", "-Wall", "-Werror", "-I"])
        .arg(include)
        .args(flags)
        .arg("-o")
        .args([&object, &text])
        .output();
    let output = match output {
        Ok(output) => output,
        Err(error) => {
            eprintln!("skipped: the C compiler {compiler:?} cannot be run: {error}");
            return None;
        }
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let image = std::fs::read(&object).expect("the compiler wrote it");
    drop((std::fs::remove_file(text), std::fs::remove_file(object)));
    Some(image)
}
