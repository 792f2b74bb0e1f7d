//! The simulated chip: memory, AICPU threads, AICores, registers, device counter.
//!
//! [`SimNpu`] implements [`simpler_platform::Platform`] on host threads. What runs where:
//!
//! ```text
//! caller         launch ── rings ──▶ AICPU threads (as many as are launched) ── gate ──▶ program.execute
//!                                        │ write DATA_MAIN_BASE          ▲ FIN rings the owner's event
//!                                        ▼                               │
//!                board: a pending bit per core ──▶ core threads claim a core, ACK, call its kernel, FIN
//! ```
//!
//! The chip has 24 cores and the host may have two CPUs: a core is a state machine that whichever core thread
//! claims it advances, and there are as many core threads as CPUs. All threads are started once, with the
//! chip, and wait through `simpler_relax` between launches, so a launch costs no thread. Kernels that may wait for each
//! other would starve each other on so few: the first dispatch of such a kernel starts a thread for each core besides,
//! which runs nothing else.
//!
//! A copy engine is one more thread, started when it is first asked for (`copy_engine`).
//!
//! The device counter is another clock than the host's, with an offset and a rate error of its own (`clock`).
//!
//! Registers are atomics with a release publish and an acquire poll (`cores`); a launch ends when every
//! AICPU thread has returned and no core is in a kernel any more (`launch`). Kernels and orchestrations are
//! shared objects that are loaded from memory files ([`simpler_platform::HostObject`]).
//!
//! A kernel is native code: one that crashes takes the process with it, one that never returns keeps the
//! launch from ending.

mod board;
mod clock;
mod copy_engine;
mod cores;
mod kernels;
mod launch;
mod memory;
mod sync;
mod threads;

use std::sync::Arc;

use simpler_platform::{AicpuProgram, DeviceAddr, Launched, Platform, PlatformError};

pub use launch::{STATUS_CORE_FAULT, STATUS_PROGRAM_PANICKED};
pub use simpler_platform::Profile;

use crate::board::CORES_MAX;
use crate::clock::Counter;
use crate::copy_engine::CopyEngine;
use crate::kernels::Kernels;
use crate::launch::Chip;
use crate::memory::Memory;
use crate::threads::Pool;

/// What may be chosen about a simulated chip.
#[derive(Clone, Debug, Default)]
pub struct SimOptions {
    /// Threads that advance the cores, 1 to the number of cores; None: one per CPU that this process may use.
    pub core_threads: Option<usize>,
    /// What the device counter shows when the chip is made, in cycles; None: some number.
    pub counter_offset: Option<u64>,
    /// By how much the device counter runs too fast, in parts per million, at most 1000 either way; None: 50 too
    /// fast or too slow.
    pub counter_rate_error_ppm: Option<i32>,
}

/// A simulated chip.
// FORK: a child has none of the chip's threads; it may neither use nor drop a chip that it inherited.
pub struct SimNpu {
    chip: Arc<Chip>,
    memory: Arc<Memory>,
    kernels: Kernels,
    /// Joined before memory and kernels go: a program may use them until then.
    pool: Pool,
}

impl SimNpu {
    /// A chip with its threads, all of them asleep.
    ///
    /// # Errors
    ///
    /// `profile` has no core or more than 64, or lets more AICPU threads through the gate than it launches; or
    /// a thread could not be started.
    pub fn new(profile: Profile, options: SimOptions) -> Result<Arc<Self>, PlatformError> {
        let refuse = |why: String| Err(PlatformError::Launch(why));
        let cores = profile.cores();
        if cores == 0 || cores > CORES_MAX {
            return refuse(format!("{cores} cores, not 1 to {CORES_MAX}"));
        }
        if profile.aicpu_logical == 0 || profile.aicpu_logical > profile.aicpu_launched {
            return refuse(format!(
                "{} of {} AICPU threads are to run",
                profile.aicpu_logical, profile.aicpu_launched
            ));
        }
        let cpus = || std::thread::available_parallelism().map_or(1, usize::from);
        let core_threads = options.core_threads.unwrap_or_else(cpus).clamp(1, cores);
        let counter_hz = profile.counter_hz;
        let chip = Arc::new(Chip::new(
            profile,
            Counter::new(counter_hz, options.counter_offset, options.counter_rate_error_ppm),
        ));
        let pool = Pool::start(&chip, core_threads)
            .map_err(|error| PlatformError::Launch(format!("cannot start a thread: {error}")))?;
        Ok(Arc::new(Self { chip, memory: Arc::default(), kernels: Kernels::default(), pool }))
    }

    /// Threads that advance the cores.
    pub fn core_threads(&self) -> usize {
        self.pool.core_threads()
    }
}

impl Drop for SimNpu {
    fn drop(&mut self) {
        self.pool.stop(&self.chip);
        if let Some(engine) = self.chip.cores().copy_engine().get() {
            engine.stop();
        }
    }
}

impl Platform for SimNpu {
    fn profile(&self) -> &Profile {
        self.chip.profile()
    }

    fn allocate(&self, bytes: usize) -> Result<DeviceAddr, PlatformError> {
        self.memory.allocate(bytes)
    }

    fn release(&self, addr: DeviceAddr) -> Result<(), PlatformError> {
        self.memory.release(addr)
    }

    fn copy_to_device(&self, dst: DeviceAddr, src: &[u8]) -> Result<(), PlatformError> {
        self.memory.copy_in(dst, src)
    }

    fn copy_to_host(&self, dst: &mut [u8], src: DeviceAddr) -> Result<(), PlatformError> {
        self.memory.copy_out(dst, src)
    }

    fn load_kernel(&self, image: &[u8], name: &str) -> Result<u64, PlatformError> {
        self.kernels.load(image, name)
    }

    fn host_view(&self, addr: DeviceAddr) -> Option<*mut u8> {
        Some(std::ptr::with_exposed_provenance_mut(addr.0 as usize))
    }

    fn copy_engine(&self) -> Result<DeviceAddr, PlatformError> {
        let engine = self.chip.cores().copy_engine();
        if let Some(engine) = engine.get() {
            return Ok(engine.address());
        }
        let started = CopyEngine::start(&self.memory, &self.chip)?;
        // Another thread may have been quicker; then ours goes again.
        if let Err(late) = engine.set(Arc::clone(&started)) {
            late.stop();
            self.memory.release(late.address())?;
        }
        Ok(engine.get().map_or(started.address(), |engine| engine.address()))
    }

    fn counter(&self) -> Option<u64> {
        Some(self.chip.counter().cycles())
    }

    fn launch(&self, program: Arc<dyn AicpuProgram>) -> Result<Box<dyn Launched>, PlatformError> {
        Ok(Box::new(self.chip.launch(program)?))
    }
}
