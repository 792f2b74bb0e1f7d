//! A launch: the gate that AICPU threads arrive at, what survivors run, and how it all ends.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use simpler_platform::{
    Aicpu, AicpuProgram, Cond, DeviceAddr, DispatchPayload, HostObject, Launched, LoadedObject,
    PlatformError, Profile, Registers,
};
use simpler_relax::{Deadline, EventCount, Relax};

use crate::board::Lane;
use crate::clock::Counter;
use crate::cores::Cores;
use crate::threads::TogetherThreads;

/// Status of a launch whose program panicked on some thread. Apart from the runtime's own codes,
/// which are above −1000.
pub const STATUS_PROGRAM_PANICKED: i32 = -1001;
/// Status of a launch that told a core to run what it cannot: a null kernel, no payloads, a
/// dispatch value of 0 or beyond the register, a core that does not exist.
pub const STATUS_CORE_FAULT: i32 = -1002;

/// The "basic" affinity gate: the first arrivals survive, whatever CPU they are on, the last one resets it.
/// It gives out no index; that is the executor's.
struct Gate {
    arrivals: AtomicUsize,
    survivors: usize,
    launched: usize,
}

impl Gate {
    fn arrive(&self) -> bool {
        // ORDERING: Relaxed: a ticket, nothing is published by it; the launch's generation separates the
        // arrivals of one launch from those of the next.
        let ticket = self.arrivals.fetch_add(1, Ordering::Relaxed);
        if ticket + 1 == self.launched {
            // ORDERING: Relaxed: as above; all threads of this launch have taken their tickets.
            self.arrivals.store(0, Ordering::Relaxed);
        }
        ticket < self.survivors
    }
}

/// What the threads of a chip share.
pub(crate) struct Chip {
    profile: Profile,
    counter: Counter,
    cores: Cores,
    /// A thread for each core, from when kernels first may wait for each other.
    together: TogetherThreads,
    gate: Gate,
    /// From the launch until its last thread has ended.
    busy: AtomicBool,
    current: Mutex<Option<Current>>,
    /// Counts launches. Every AICPU thread sees every value, since a launch ends only when all have ended.
    generation: AtomicU64,
    /// Rung at a launch, and to end the AICPU threads.
    bell: EventCount,
    stopping: AtomicBool,
}

#[derive(Clone)]
struct Current {
    program: Arc<dyn AicpuProgram>,
    record: Arc<Record>,
}

/// What is known of one launch.
struct Record {
    /// Threads that have not ended.
    running: AtomicUsize,
    /// The code of the first failing thread; 0 so far.
    status: AtomicI32,
    ended: AtomicBool,
    bell: EventCount,
}

impl Record {
    fn fail(&self, status: i32) {
        // ORDERING: Relaxed: read after `ended` was acquired. A lost exchange means: another thread was first.
        let _ = self.status.compare_exchange(0, status, Ordering::Relaxed, Ordering::Relaxed);
    }
}

impl Chip {
    pub(crate) fn new(profile: Profile, counter: Counter) -> Self {
        Self {
            counter,
            cores: Cores::new(profile.cores(), profile.aicpu_logical, counter),
            together: TogetherThreads::default(),
            gate: Gate {
                arrivals: AtomicUsize::new(0),
                survivors: profile.aicpu_logical,
                launched: profile.aicpu_launched,
            },
            busy: AtomicBool::new(false),
            current: Mutex::new(None),
            generation: AtomicU64::new(0),
            bell: EventCount::new(),
            stopping: AtomicBool::new(false),
            profile,
        }
    }

    pub(crate) const fn profile(&self) -> &Profile {
        &self.profile
    }

    pub(crate) const fn counter(&self) -> &Counter {
        &self.counter
    }

    pub(crate) const fn cores(&self) -> &Cores {
        &self.cores
    }

    pub(crate) const fn together(&self) -> &TogetherThreads {
        &self.together
    }

    pub(crate) fn launch(&self, program: Arc<dyn AicpuProgram>) -> Result<SimLaunch, PlatformError> {
        // ORDERING: Acquire: pairs with the Release in `end`: the last launch's threads are done with the
        // registers.
        if self.busy.swap(true, Ordering::Acquire) {
            return Err(PlatformError::Launch("another launch is under way".to_owned()));
        }
        self.cores.reset();
        let record = Arc::new(Record {
            running: AtomicUsize::new(self.profile.aicpu_launched),
            status: AtomicI32::new(0),
            ended: AtomicBool::new(false),
            bell: EventCount::new(),
        });
        let current = Current { program, record: Arc::clone(&record) };
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Some(current);
        // ORDERING: Release: pairs with the Acquire in `run_thread`: registers reset, launch in place.
        self.generation.fetch_add(1, Ordering::Release);
        self.bell.notify_all();
        Ok(SimLaunch { record })
    }

    /// Ends [`Chip::run_thread`] on every thread, after the launch that is under way.
    pub(crate) fn stop(&self) {
        // ORDERING: Release: pairs with the Acquire in `run_thread`.
        self.stopping.store(true, Ordering::Release);
        self.bell.notify_all();
    }

    /// The life of an AICPU thread: one pass through the gate per launch.
    pub(crate) fn run_thread(self: &Arc<Self>) {
        let mut relax = Relax::until_rung();
        let mut served = 0;
        loop {
            let seen = self.bell.epoch();
            // ORDERING: Acquire: pairs with the Release in `launch`.
            let generation = self.generation.load(Ordering::Acquire);
            if generation != served {
                served = generation;
                self.serve();
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

    fn serve(self: &Arc<Self>) {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(Current { program, record }) = current else { return };
        if self.gate.arrive() {
            // The program's state after a panic is the program's problem: the launch has failed.
            let executed = catch_unwind(AssertUnwindSafe(|| program.execute(&SimAicpu { chip: self })));
            let status = executed.unwrap_or(STATUS_PROGRAM_PANICKED);
            if status != 0 {
                record.fail(status);
            }
        }
        drop(program);
        // ORDERING: AcqRel: the last thread sees what all others did, and passes it on by `ended`.
        if record.running.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.end(&record);
        }
    }

    /// The last thread of a launch: afterwards nothing of the chip touches the program or its payloads.
    fn end(&self, record: &Record) {
        self.cores.wait_until_quiet();
        if self.cores.faulted() {
            record.fail(STATUS_CORE_FAULT);
        }
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(current);
        // ORDERING: Release: pairs with the Acquire in `launch`.
        self.busy.store(false, Ordering::Release);
        // ORDERING: Release: pairs with the Acquire in `is_done`.
        record.ended.store(true, Ordering::Release);
        record.bell.notify_all();
    }
}

/// A launch of this chip. Dropped, it goes on by itself.
pub(crate) struct SimLaunch {
    record: Arc<Record>,
}

impl Launched for SimLaunch {
    fn is_done(&self) -> bool {
        // ORDERING: Acquire: pairs with the Release in `end`.
        self.record.ended.load(Ordering::Acquire)
    }

    fn wait_for(&self, limit: Duration) -> bool {
        self.wait_until(Some(Deadline::after(limit)))
    }

    fn wait(self: Box<Self>) -> i32 {
        self.wait_until(None);
        // ORDERING: Relaxed: ordered by `is_done`.
        self.record.status.load(Ordering::Relaxed)
    }
}

impl SimLaunch {
    /// Waits for the end, but not beyond a deadline; whether it has come.
    fn wait_until(&self, deadline: Option<Deadline>) -> bool {
        let mut relax = Relax::new();
        loop {
            let seen = self.record.bell.epoch();
            if self.is_done() {
                return true;
            }
            if deadline.as_ref().is_some_and(Deadline::passed) {
                return false;
            }
            relax.wait(&self.record.bell, seen);
        }
    }
}

/// An AICPU thread's view.
struct SimAicpu<'a> {
    chip: &'a Arc<Chip>,
}

impl Registers for SimAicpu<'_> {
    unsafe fn attach(&self, core: usize, thread_index: usize, payloads: *const [DispatchPayload; 2]) {
        // SAFETY: the caller's obligations.
        unsafe { self.chip.cores.attach(core, thread_index, payloads) };
    }

    fn write_data_main_base(&self, core: usize, value: u64) {
        self.chip.cores.write(core, value, Lane::Shared);
    }

    fn write_data_main_base_together(&self, core: usize, value: u64) {
        if self.chip.together.start(self.chip) {
            self.chip.cores.write(core, value, Lane::Together);
        } else {
            // With fewer threads than cores the kernels might wait for one that never starts, and never return: none
            // starts, and the run times out.
            self.chip.cores.fault();
        }
    }

    fn stage_data_main_base(&self, core: usize, value: u64) {
        self.chip.cores.stage(core, value);
    }

    fn ring_doorbell(&self, core: usize, together: bool) {
        if !together {
            self.chip.cores.ring_doorbell(core, Lane::Shared);
        } else if self.chip.together.start(self.chip) {
            self.chip.cores.ring_doorbell(core, Lane::Together);
        } else {
            // As above.
            self.chip.cores.fault();
        }
    }

    fn cond(&self, core: usize) -> Cond {
        self.chip.cores.cond(core)
    }
}

impl Aicpu for SimAicpu<'_> {
    fn cycles(&self) -> u64 {
        self.chip.counter.cycles()
    }

    fn cycles_after_reads(&self) -> u64 {
        self.chip.counter.cycles_after_reads()
    }

    fn invalidate(&self, _: DeviceAddr, _: usize) {
        // Device memory is the host's, and its caches are coherent.
    }

    fn registers(&self) -> &dyn Registers {
        self
    }

    fn event(&self, thread_index: usize) -> &EventCount {
        self.chip.cores.aicpu_bell(thread_index)
    }

    fn load_object(&self, image: &[u8], name: &str) -> Result<Box<dyn LoadedObject>, PlatformError> {
        Ok(Box::new(HostObject::load_orchestration(image, name)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gate_lets_the_first_arrivals_through_and_resets_at_the_last() {
        let gate = Gate { arrivals: AtomicUsize::new(0), survivors: 4, launched: 6 };
        for _ in 0..3 {
            let survived: Vec<bool> = (0..6).map(|_| gate.arrive()).collect();
            assert_eq!(survived, [true, true, true, true, false, false]);
        }
    }
}
