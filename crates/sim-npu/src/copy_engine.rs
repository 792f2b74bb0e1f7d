//! The copy engine (SDMA): a thread that makes the copies which kernels have left to it.
//!
//! Kernels and engine meet in the workspace in device memory ([`SimplerCopyEngine`]): a kernel claims a free copy, fills
//! it and submits it; the engine makes it and says how it ended; the scheduler that waits for it frees it. A core's
//! thread rings the engine when its kernel has submitted anything, and the engine rings the AICPU threads when something
//! has ended. Copies are checked against the allocations like those of the host, and made one after the other.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::{io, sync::Mutex};

use simpler_kernel_abi::{
    COPY_CLAIMED, COPY_DONE, COPY_FAILED, COPY_FREE, COPY_SUBMITTED, SimplerCopy, SimplerCopyEngine,
};
use simpler_platform::{DeviceAddr, PlatformError};
use simpler_relax::{EventCount, Relax};

use crate::cores::Cores;
use crate::launch::Chip;
use crate::memory::Memory;

/// The engine, and its workspace.
pub(crate) struct CopyEngine {
    memory: Arc<Memory>,
    workspace: DeviceAddr,
    /// The count of submitted copies that the engine was last rung for.
    rung_for: AtomicU32,
    bell: EventCount,
    stopping: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl CopyEngine {
    /// An engine with its thread, over a workspace that it allocates.
    pub(crate) fn start(memory: &Arc<Memory>, chip: &Arc<Chip>) -> Result<Arc<Self>, PlatformError> {
        // A fresh allocation is zero, which is a workspace without copies.
        let workspace = memory.allocate(size_of::<SimplerCopyEngine>())?;
        let engine = Arc::new(Self {
            memory: Arc::clone(memory),
            workspace,
            rung_for: AtomicU32::new(0),
            bell: EventCount::new(),
            stopping: AtomicBool::new(false),
            thread: Mutex::new(None),
        });
        let (ours, chip) = (Arc::clone(&engine), Arc::downgrade(chip));
        let refused = |error: io::Error| PlatformError::Launch(format!("cannot start a thread: {error}"));
        let thread = Builder::new()
            .name("sdma".to_owned())
            .spawn(move || {
                // The chip stops the engine before it goes.
                if let Some(chip) = chip.upgrade() {
                    ours.run_thread(chip.cores());
                }
            })
            .map_err(refused)?;
        *engine.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(engine)
    }

    pub(crate) fn address(&self) -> DeviceAddr {
        self.workspace
    }

    fn workspace(&self) -> *mut SimplerCopyEngine {
        std::ptr::with_exposed_provenance_mut(self.workspace.0 as usize)
    }

    fn copies(&self) -> impl Iterator<Item = *mut SimplerCopy> {
        let workspace = self.workspace();
        (0..simpler_kernel_abi::COPIES_MAX).map(move |index| {
            // SAFETY: an element of the workspace, which is never released; no reference is made.
            unsafe { &raw mut (*workspace).copies[index] }
        })
    }

    /// Every copy free. Only while no launch is under way.
    pub(crate) fn reset(&self) {
        for copy in self.copies() {
            // ORDERING: Release: pairs with the Acquire of the kernel that claims it.
            state_of(copy).store(COPY_FREE, Ordering::Release);
        }
    }

    /// Tells the engine of copies that a kernel has just submitted, if any has. By the core's thread, after the kernel.
    pub(crate) fn look(&self) {
        // SAFETY: the workspace's count is an atomic.
        let submitted = unsafe { &(*self.workspace()).submitted };
        // ORDERING: Acquire: pairs with the Release of every kernel that has counted so far: what this thread rings for is
        // visible to the engine, whichever kernel it is of.
        let submitted = submitted.load(Ordering::Acquire);
        // ORDERING: Relaxed: a hint that saves a bell; who changes it rings.
        if self.rung_for.load(Ordering::Relaxed) != submitted
            && self.rung_for.swap(submitted, Ordering::Relaxed) != submitted
        {
            self.bell.notify_one();
        }
    }

    /// Whether no copy is the engine's or about to be.
    pub(crate) fn is_quiet(&self) -> bool {
        // ORDERING: Acquire: pairs with the Release in `make_copies`: what was copied is visible.
        let busy = |copy| matches!(state_of(copy).load(Ordering::Acquire), COPY_CLAIMED | COPY_SUBMITTED);
        !self.copies().any(busy)
    }

    fn run_thread(&self, cores: &Cores) {
        let mut relax = Relax::until_rung();
        loop {
            let seen = self.bell.epoch();
            if self.make_copies() {
                cores.ring_aicpu();
                relax.reset();
                continue;
            }
            // ORDERING: Acquire: pairs with the Release in `stop`.
            if self.stopping.load(Ordering::Acquire) {
                return;
            }
            relax.wait(&self.bell, seen);
        }
    }

    /// Makes the copies that are submitted; whether there was any.
    fn make_copies(&self) -> bool {
        let mut made = false;
        for copy in self.copies() {
            // ORDERING: Acquire: pairs with the Release of the kernel: the copy is whole, and so is what it reads.
            if state_of(copy).load(Ordering::Acquire) != COPY_SUBMITTED {
                continue;
            }
            // SAFETY: submitted, so it is the engine's until the state says otherwise; it begins with these three fields.
            let [dst, src, bytes] = unsafe { copy.cast::<[u64; 3]>().read() };
            let made_it = self.memory.copy_inside(DeviceAddr(dst), DeviceAddr(src), bytes).is_ok();
            // ORDERING: Release: pairs with the Acquire of the scheduler: what was copied is visible.
            state_of(copy).store(if made_it { COPY_DONE } else { COPY_FAILED }, Ordering::Release);
            made = true;
        }
        made
    }

    /// Ends the engine's thread, once no copy is submitted.
    pub(crate) fn stop(&self) {
        // ORDERING: Release: pairs with the Acquire in `run_thread`.
        self.stopping.store(true, Ordering::Release);
        self.bell.notify_all();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        // It catches nothing and throws nothing; there is nothing to report.
        drop(thread.map(JoinHandle::join));
    }
}

fn state_of<'a>(copy: *mut SimplerCopy) -> &'a AtomicU32 {
    // SAFETY: an element of the workspace, which is never released; the field is an atomic.
    unsafe { &(*copy).state }
}
