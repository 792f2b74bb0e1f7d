//! The seam between the runtime and a device.
//!
//! `simpler-runtime` knows a device only through [`Platform`]: memory, copies, kernel upload, launch, and, from
//! inside a launch, the AICPU thread's view of its surroundings ([`Aicpu`], [`Registers`]). The simulated chip
//! implements it with host threads and atomics; silicon would implement it with its own calls. Nothing here
//! assumes that device memory is host memory, but for one thing that holds on both: code that runs on the
//! AICPU dereferences device addresses directly.

mod host_object;

use std::sync::Arc;
use std::time::Duration;

use simpler_kernel_abi::SimplerKernelArgs;
use simpler_relax::EventCount;

pub use host_object::HostObject;

/// An address in device memory; 0 is null.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceAddr(pub u64);

/// The fixed figures of a platform (RUNTIME §1.5, §1.7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// `a2a3sim`, …
    pub name: &'static str,
    /// `a2a3` or `a5`.
    pub arch: &'static str,
    /// AICPU threads that survive the affinity gate: one orchestrator, the rest schedulers.
    pub aicpu_logical: usize,
    /// AICPU threads that are launched; the phase buffer has this many rows.
    pub aicpu_launched: usize,
    /// Frequency of the device counter in Hz.
    pub counter_hz: u64,
    /// Clusters; each is one AIC and two AIVs.
    pub clusters: usize,
    /// What the thread that finishes a run last does before it resets the scheduler's state.
    pub teardown: Teardown,
}

/// What ends a run on the AICPU (the post_orch phase).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Teardown {
    /// a2a3: what host DMA and SDMA have published into the arena is invalidated in the cache first.
    InvalidateThenReset,
    /// a5: its caches need none of that.
    Reset,
}

impl Profile {
    /// The simulated a2a3.
    pub const fn a2a3sim() -> Self {
        Self {
            name: "a2a3sim",
            arch: "a2a3",
            aicpu_logical: 4,
            aicpu_launched: 6,
            counter_hz: 50_000_000,
            clusters: 8,
            teardown: Teardown::InvalidateThenReset,
        }
    }

    /// The simulated a5.
    pub const fn a5sim() -> Self {
        Self {
            name: "a5sim",
            arch: "a5",
            aicpu_logical: 5,
            aicpu_launched: 14,
            counter_hz: 1_000_000_000,
            clusters: 8,
            teardown: Teardown::Reset,
        }
    }

    /// Cores: AICs are numbered first (one per cluster), then the AIV pairs.
    pub const fn cores(&self) -> usize {
        self.clusters * 3
    }
}

/// What a device refuses.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlatformError {
    /// Device memory is exhausted or the size is 0.
    #[error("device memory: cannot allocate {bytes} bytes: {why}")]
    Allocate {
        /// Bytes asked for.
        bytes: usize,
        /// Reason.
        why: String,
    },
    /// An address range that no allocation covers.
    #[error("device memory: {bytes} bytes at {addr:#x} are not inside one allocation")]
    BadRange {
        /// Device address.
        addr: u64,
        /// Bytes.
        bytes: usize,
    },
    /// A copy that the device refuses.
    #[error("cannot copy {what}: {why}")]
    Copy {
        /// How much, and where.
        what: String,
        /// The device's words.
        why: String,
    },
    /// An object that cannot be loaded.
    #[error("cannot load {what}: {why}")]
    Load {
        /// What was to be loaded.
        what: String,
        /// The loader's words.
        why: String,
    },
    /// A launch that cannot start.
    #[error("launch: {0}")]
    Launch(String),
}

/// A device. Shared by the threads of the process that made it; never used in a forked child.
pub trait Platform: Send + Sync {
    /// The figures of this platform.
    fn profile(&self) -> &Profile;
    /// Allocates device memory, 1024-byte aligned, contents undefined.
    fn allocate(&self, bytes: usize) -> Result<DeviceAddr, PlatformError>;
    /// Frees what [`Platform::allocate`] gave.
    fn release(&self, addr: DeviceAddr) -> Result<(), PlatformError>;
    /// H2D. Refuses a range that is not inside one allocation.
    fn copy_to_device(&self, dst: DeviceAddr, src: &[u8]) -> Result<(), PlatformError>;
    /// D2H.
    fn copy_to_host(&self, dst: &mut [u8], src: DeviceAddr) -> Result<(), PlatformError>;
    /// Uploads a kernel object; the value is what [`DispatchPayload::kernel`] holds. Same bytes, same value.
    fn load_kernel(&self, image: &[u8], name: &str) -> Result<u64, PlatformError>;
    /// Where this process can read and write what [`Platform::allocate`] gave while the device uses it; None where
    /// device memory can only be copied.
    fn host_view(&self, addr: DeviceAddr) -> Option<*mut u8> {
        let _ = addr;
        None
    }
    /// Makes the copy engine's workspace ([`SimplerCopyEngine`](simpler_kernel_abi::SimplerCopyEngine)) and starts the
    /// engine, once; the same address every time. A launch begins with no copy in it and ends when all have. Refused by
    /// a device that has no such engine.
    fn copy_engine(&self) -> Result<DeviceAddr, PlatformError> {
        Err(PlatformError::Launch("the device has no copy engine".to_owned()))
    }
    /// The free-running device counter that AICPU threads see ([`Aicpu::cycles`]), read from the host; None where the
    /// host cannot. What passes between the call and its return is the reader's to measure.
    fn counter(&self) -> Option<u64>;
    /// Starts `program` on the AICPU threads, and the AICores. One launch at a time.
    fn launch(&self, program: Arc<dyn AicpuProgram>) -> Result<Box<dyn Launched>, PlatformError>;
}

/// A launch under way.
pub trait Launched: Send {
    /// Whether all threads have ended.
    fn is_done(&self) -> bool;
    /// Waits for all threads, and for every core to return from its kernel; their memory effects are then visible
    /// and nothing of the launch touches memory any more. A kernel that never returns keeps this from returning.
    ///
    /// The value is 0, or the code of the first failing thread.
    fn wait(self: Box<Self>) -> i32;
    /// As [`Launched::wait`], but no longer than `limit` (give or take a time slice); whether all threads have ended.
    fn wait_for(&self, limit: Duration) -> bool;
}

/// What runs on the AICPU: called once per thread that survives the affinity gate.
pub trait AicpuProgram: Send + Sync {
    /// Returns 0 or an error code; must not unwind.
    fn execute(&self, aicpu: &dyn Aicpu) -> i32;
}

/// What an AICPU thread sees of its device.
pub trait Aicpu {
    /// The free-running device counter, in cycles of [`Profile::counter_hz`].
    fn cycles(&self) -> u64;
    /// The counter, read when all reads of this thread before are done: what a FIN that was seen is stamped with.
    fn cycles_after_reads(&self) -> u64;
    /// Makes this thread's next reads of a range see what host DMA or SDMA has put there. Nothing to do where caches
    /// are coherent.
    fn invalidate(&self, addr: DeviceAddr, bytes: usize);
    /// The AICores' registers.
    fn registers(&self) -> &dyn Registers;
    /// The event that wakes the thread with this executor index (0 .. `aicpu_logical` − 1): rung by the
    /// platform when a core that this thread attached reaches FIN, and by other AICPU threads. An index out of
    /// range gives an event that wakes nobody.
    fn event(&self, thread_index: usize) -> &EventCount;
    /// Loads an orchestration object from its bytes; it stays loaded as long as the value lives.
    fn load_object(&self, image: &[u8], name: &str) -> Result<Box<dyn LoadedObject>, PlatformError>;
}

/// A loaded shared object.
pub trait LoadedObject: Send + Sync {
    /// The address of a symbol.
    fn symbol(&self, name: &str) -> Option<*const ()>;
}

/// The registers of the AICores (RUNTIME §3.6). Every access is atomic.
pub trait Registers: Sync {
    /// Claims `core` for an AICPU thread and tells it where its two payloads are (the handshake). Payload
    /// `value & 1` belongs to the core from the write of `value` until its FIN.
    ///
    /// # Safety
    /// - `payloads` is the address of two initialised payloads that stay there until the launch has ended.
    /// - A payload is not written while it belongs to the core.
    /// - The record of a payload that a write publishes is 0 or the address of an aligned `SimplerAicoreTask` that is
    ///   the core's until FIN.
    /// - The kernel of a payload that a write publishes is 0 or a value of [`Platform::load_kernel`], and its
    ///   arguments are those that the kernel expects.
    unsafe fn attach(&self, core: usize, thread_index: usize, payloads: *const [DispatchPayload; 2]);
    /// Release store: publishes the payload of parity `value & 1` and rings the core. `value` is not 0, below
    /// 2^62, and differs from the one before; a write before the last one's ACK replaces it.
    fn write_data_main_base(&self, core: usize, value: u64);
    /// As [`Registers::write_data_main_base`], for a kernel that may wait for other kernels which are written like
    /// this: where cores share a thread, these do not.
    fn write_data_main_base_together(&self, core: usize, value: u64) {
        self.write_data_main_base(core, value);
    }
    /// As [`Registers::write_data_main_base`], gated: the core does not acknowledge the value before its doorbell is rung.
    /// To an idle core.
    fn stage_data_main_base(&self, core: usize, value: u64);
    /// Rings the doorbell of a core that a value was staged to: from now on it is as if it was written, `together` or not.
    /// Once, by any AICPU thread that comes after the staging.
    fn ring_doorbell(&self, core: usize, together: bool);
    /// Acquire load of COND.
    fn cond(&self, core: usize) -> Cond;
}

/// The status register: what the core is doing, and with which DATA_MAIN_BASE value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cond {
    /// The state.
    pub state: CondState,
    /// The DATA_MAIN_BASE value that it belongs to; 0 before the first.
    pub dispatch: u64,
}

/// States of a core.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CondState {
    /// Nothing was dispatched yet.
    Idle = 0,
    /// The task was accepted and its kernel runs.
    Ack = 1,
    /// The kernel has returned and its writes are visible.
    Fin = 2,
}

/// What a core reads when a dispatch is published.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DispatchPayload {
    /// A value of [`Platform::load_kernel`].
    pub kernel: u64,
    /// The kernel's arguments; their memory is alive until FIN.
    pub args: SimplerKernelArgs,
    /// Where the core notes when it ran the task, before FIN: the address of a `SimplerAicoreTask`, of which it sets
    /// start, end and receive_to_start; 0: nowhere.
    pub record: u64,
}

// SAFETY: a payload is plain data; the pointers in it are device addresses that the dispatch protocol hands
// from the scheduler to the core (written before the release store of DATA_MAIN_BASE, read after the acquire).
unsafe impl Send for DispatchPayload {}
// SAFETY: as above.
unsafe impl Sync for DispatchPayload {}
