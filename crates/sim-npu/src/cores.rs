//! The AICores: their registers, and how a core is advanced.
//!
//! ```text
//! AICPU thread                                 core thread
//!   write payload[v & 1]
//!   DATA_MAIN_BASE := v   (release) ─────────▶   read v (acquire), COND := ACK v
//!                                                read payload[v & 1], call the kernel
//!   read COND (acquire)   ◀───────── (release)   COND := FIN v, ring the owner's event
//! ```

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use simpler_platform::{Cond, CondState, DispatchPayload};
use std::time::Duration;

use simpler_relax::{EventCount, Relax};
use simpler_swimlane::AicoreTask;

use crate::board::{Apart, Board, Claim, Lane};
use crate::clock::Counter;
use crate::copy_engine::CopyEngine;
use crate::kernels::kernel_entry;

/// COND holds the state below and the dispatch above.
const STATE_BITS: u32 = 2;
const STATE_MASK: u64 = (1 << STATE_BITS) - 1;
/// Dispatch values are below this.
const DISPATCH_LIMIT: u64 = 1 << (u64::BITS - STATE_BITS);
/// In DATA_MAIN_BASE: the value is there, and waits for the doorbell.
const GATED: u64 = 1 << 63;
/// How long a thread that lost its CPU between FIN and letting go may take to get it back: a few time slices.
const LET_GO_TIME: Duration = Duration::from_millis(20);
/// No AICPU thread has attached the core.
const NO_OWNER: usize = usize::MAX;

const fn pack(cond: Cond) -> u64 {
    cond.dispatch << STATE_BITS | cond.state as u64
}

const fn unpack(word: u64) -> Cond {
    let state = match word & STATE_MASK {
        0 => CondState::Idle,
        1 => CondState::Ack,
        _ => CondState::Fin,
    };
    Cond { state, dispatch: word >> STATE_BITS }
}

/// The registers of one core.
struct Core {
    data_main_base: Apart<AtomicU64>,
    cond: Apart<AtomicU64>,
    payloads: AtomicPtr<DispatchPayload>,
    owner: AtomicUsize,
}

/// All cores of a chip, and the events that connect them with the AICPU threads.
pub(crate) struct Cores {
    counter: Counter,
    cores: Box<[Core]>,
    board: Board,
    /// By lane: rung when a core becomes pending, and to end the core threads.
    bells: [Apart<EventCount>; 2],
    /// One per surviving AICPU thread, and one that wakes nobody.
    aicpu_bells: Box<[Apart<EventCount>]>,
    nobody: EventCount,
    /// What kernels may leave copies to, once it was asked for.
    copy_engine: OnceLock<Arc<CopyEngine>>,
    /// A core was told to run what it cannot run.
    faulted: AtomicBool,
    stopping: AtomicBool,
}

impl Cores {
    pub(crate) fn new(cores: usize, aicpu_threads: usize, counter: Counter) -> Self {
        let core = || Core {
            data_main_base: Apart::default(),
            cond: Apart::default(),
            payloads: AtomicPtr::new(ptr::null_mut()),
            owner: AtomicUsize::new(NO_OWNER),
        };
        Self {
            counter,
            cores: (0..cores).map(|_| core()).collect(),
            board: Board::new(cores),
            bells: Default::default(),
            aicpu_bells: (0..aicpu_threads).map(|_| Apart::default()).collect(),
            nobody: EventCount::new(),
            copy_engine: OnceLock::new(),
            faulted: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
        }
    }

    /// All registers as at power-on. Only while no launch is under way.
    pub(crate) fn reset(&self) {
        // ORDERING: Relaxed: the launch's generation, stored with Release after this, publishes it to the AICPU
        // threads, and they to the cores by what they write.
        for core in &self.cores {
            core.data_main_base.0.store(0, Ordering::Relaxed);
            core.cond.0.store(0, Ordering::Relaxed);
            core.payloads.store(ptr::null_mut(), Ordering::Relaxed);
            core.owner.store(NO_OWNER, Ordering::Relaxed);
        }
        self.faulted.store(false, Ordering::Relaxed);
        if let Some(engine) = self.copy_engine.get() {
            engine.reset();
        }
    }

    /// The copy engine, if it was asked for.
    pub(crate) fn copy_engine(&self) -> &OnceLock<Arc<CopyEngine>> {
        &self.copy_engine
    }

    /// Rings every AICPU thread.
    pub(crate) fn ring_aicpu(&self) {
        self.aicpu_bells.iter().for_each(|bell| bell.0.notify_one());
    }

    /// Waits until no core is rung or in a kernel, and no copy under way. Nothing may ring cores meanwhile.
    pub(crate) fn wait_until_quiet(&self) {
        // A core lets go of its last task right after its FIN, so this is hardly ever a wait, and not worth a bell at
        // the end of every task. If the core's thread has lost its CPU in between, a yield gives it one. Only after
        // an error exit may a kernel still be running; its end is noticed at the end of a park slice.
        let mut relax = Relax::yielding_for(LET_GO_TIME);
        while !self.board.is_quiet() {
            relax.wait(&self.nobody, self.nobody.epoch());
        }
        // Of a run that ended well nobody waits for a copy any more.
        let mut relax = Relax::new();
        while self.copy_engine.get().is_some_and(|engine| !engine.is_quiet()) {
            relax.wait(&self.nobody, self.nobody.epoch());
        }
    }

    /// Whether a core was told to run what it cannot run, since the last reset.
    pub(crate) fn faulted(&self) -> bool {
        // ORDERING: Relaxed: read after `wait_until_quiet`, whose Acquire pairs with the claimant's Release.
        self.faulted.load(Ordering::Relaxed)
    }

    /// The event of an AICPU thread.
    pub(crate) fn aicpu_bell(&self, thread_index: usize) -> &EventCount {
        self.aicpu_bells.get(thread_index).map_or(&self.nobody, |bell| &bell.0)
    }

    /// Ends [`Cores::run_thread`] on every thread, once no core is pending.
    pub(crate) fn stop(&self) {
        // ORDERING: Release: pairs with the Acquire in `run_thread`.
        self.stopping.store(true, Ordering::Release);
        self.bells.iter().for_each(|bell| bell.0.notify_all());
    }

    /// The life of core thread `index` of a lane: advances whichever core is pending there.
    pub(crate) fn run_thread(&self, lane: Lane, index: usize) {
        let bell = &self.bells[lane as usize].0;
        let mut relax = Relax::until_rung();
        // Threads start apart, and each goes on after the core it had, so that no core waits for ever.
        let mut from = index;
        loop {
            let seen = bell.epoch();
            if let Some(claim) = self.board.claim(lane, from) {
                from = claim.core() + 1;
                self.advance(claim);
                relax.reset();
                continue;
            }
            // ORDERING: Acquire: pairs with the Release in `stop`.
            if self.stopping.load(Ordering::Acquire) {
                return;
            }
            relax.wait(bell, seen);
        }
    }

    /// Runs what is in the claimed core's register until nothing new is.
    fn advance(&self, claim: Claim<'_>) {
        let Some(core) = self.cores.get(claim.core()) else { return };
        let mut claim = Some(claim);
        while let Some(held) = claim {
            // ORDERING: Acquire: pairs with the Release in `write_data_main_base`: the payload is whole.
            let dispatch = core.data_main_base.0.load(Ordering::Acquire);
            // ORDERING: Relaxed: only the claimant writes COND, and a claim sees what the last one wrote.
            let last = unpack(core.cond.0.load(Ordering::Relaxed)).dispatch;
            let runs = dispatch != 0 && dispatch & GATED == 0 && dispatch != last;
            if runs {
                self.run(core, dispatch);
                if let Some(engine) = self.copy_engine.get() {
                    engine.look();
                }
            }
            // ORDERING: Relaxed: stored before the register was written, which was acquired.
            let owner = core.owner.load(Ordering::Relaxed);
            claim = held.settle();
            // After letting go: the thread that is woken may take this one's CPU, and end the launch.
            if runs {
                self.aicpu_bell(owner).notify_one();
            }
        }
    }

    fn run(&self, core: &Core, dispatch: u64) {
        // ORDERING: Release: pairs with the Acquire in `cond`, as every store to COND.
        core.cond.0.store(pack(Cond { state: CondState::Ack, dispatch }), Ordering::Release);
        // ORDERING: Acquire: pairs with the Release in `attach`.
        let payloads = core.payloads.load(Ordering::Acquire);
        let payload = (!payloads.is_null()).then(|| {
            let parity = (dispatch & 1) as usize;
            // SAFETY: `attach` was given two payloads, which stay until the launch has ended.
            let payload = unsafe { payloads.add(parity) };
            // SAFETY: the payload of this parity is the core's from the register's write, which was acquired,
            // until FIN.
            unsafe { payload.read() }
        });
        let received = payload.as_ref().filter(|payload| payload.record != 0).map(|_| self.counter.cycles());
        // SAFETY: a payload's kernel is 0 or a value of `load_kernel`.
        let entry = payload.as_ref().and_then(|payload| unsafe { kernel_entry(payload.kernel) });
        match (entry, &payload, received) {
            // SAFETY: the arguments are the payload's own, alive until FIN. What the kernel does with them is
            // the kernel's contract.
            (Some(entry), Some(payload), None) => unsafe { entry(&raw const payload.args) },
            (Some(entry), Some(payload), Some(received)) => {
                let start = self.counter.cycles();
                // SAFETY: as above.
                unsafe { entry(&raw const payload.args) };
                let end = self.counter.cycles();
                let record: *mut AicoreTask = std::ptr::with_exposed_provenance_mut(payload.record as usize);
                // SAFETY: a payload's record is the address of a record that is the core's until FIN.
                let record = unsafe { &mut *record };
                record.start = start;
                record.end = end;
                record.receive_to_start = u32::try_from(start.saturating_sub(received)).unwrap_or(u32::MAX);
            }
            // FIN all the same: the scheduler gets on, and the launch says that it is worth nothing.
            _ => self.fault(),
        }
        // ORDERING: Release: pairs with the Acquire in `cond`: who sees FIN sees the kernel's writes.
        core.cond.0.store(pack(Cond { state: CondState::Fin, dispatch }), Ordering::Release);
    }
}

/// The registers, for the AICPU threads.
impl Cores {
    /// As [`Registers::attach`](simpler_platform::Registers::attach).
    ///
    /// # Safety
    /// As there.
    pub(crate) unsafe fn attach(
        &self,
        core: usize,
        thread_index: usize,
        payloads: *const [DispatchPayload; 2],
    ) {
        let Some(core) = self.cores.get(core) else { return };
        // ORDERING: Relaxed: published by the first write of DATA_MAIN_BASE.
        core.owner.store(thread_index, Ordering::Relaxed);
        // ORDERING: Release: pairs with the Acquire in `run`, also if another thread writes DATA_MAIN_BASE.
        core.payloads.store(payloads.cast_mut().cast(), Ordering::Release);
    }

    // HOT: once per task.
    pub(crate) fn write(&self, core: usize, value: u64, lane: Lane) {
        let register = self.cores.get(core).filter(|_| value != 0 && value < DISPATCH_LIMIT);
        let Some(register) = register else {
            self.fault();
            return;
        };
        // ORDERING: Release: pairs with the Acquire in `advance`.
        register.data_main_base.0.store(value, Ordering::Release);
        if self.board.ring(core, lane) {
            self.bells[lane as usize].0.notify_one();
        }
    }

    /// As [`Registers::stage_data_main_base`](simpler_platform::Registers::stage_data_main_base).
    pub(crate) fn stage(&self, core: usize, value: u64) {
        let register = self.cores.get(core).filter(|_| value != 0 && value < DISPATCH_LIMIT);
        let Some(register) = register else {
            self.fault();
            return;
        };
        // ORDERING: Release: pairs with the Acquire in `advance`, by the doorbell, which goes on from here.
        register.data_main_base.0.store(value | GATED, Ordering::Release);
    }

    /// As [`Registers::ring_doorbell`](simpler_platform::Registers::ring_doorbell).
    pub(crate) fn ring_doorbell(&self, core: usize, lane: Lane) {
        let Some(register) = self.cores.get(core) else {
            self.fault();
            return;
        };
        // ORDERING: AcqRel: pairs with the Acquire in `advance`: the payload, and what the ringer comes after, are whole.
        register.data_main_base.0.fetch_and(!GATED, Ordering::AcqRel);
        if self.board.ring(core, lane) {
            self.bells[lane as usize].0.notify_one();
        }
    }

    /// Notes that a core was told to run what it cannot run, or what nobody is there to run.
    pub(crate) fn fault(&self) {
        // ORDERING: Relaxed: read after the board is quiet, see `faulted`, and after the AICPU threads have returned.
        self.faulted.store(true, Ordering::Relaxed);
    }

    // HOT: polled by the schedulers.
    pub(crate) fn cond(&self, core: usize) -> Cond {
        // ORDERING: Acquire: pairs with the Release stores in `run`.
        unpack(self.cores.get(core).map_or(0, |core| core.cond.0.load(Ordering::Acquire)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cond_keeps_state_and_dispatch() {
        for dispatch in [0, 1, 2, 77, DISPATCH_LIMIT - 1] {
            for state in [CondState::Idle, CondState::Ack, CondState::Fin] {
                let cond = Cond { state, dispatch };
                assert_eq!(unpack(pack(cond)), cond);
            }
        }
    }
}
