//! What a thread remembers, so that a record costs it neither a syscall nor a search: its ids, its stack of open
//! spans, its run of queue positions, which clock it reads, and the invocation that it is in.
//!
//! All but the last holds for one life (process and region, see `identity`) and is asked for again in another.

use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering, compiler_fence};

use simpler_log_abi::{DropReason, SimplerSpanContext};
use simpler_record_format::frame::Emitter;

use crate::identity::{
    NONE_READY, life, life_with_its_region, monotonic_ns, pid, ready_life, set_ready, thread_handle,
};
use crate::queue::{Claim, Run};
use crate::region::Region;
use crate::stack::{OPEN_FRAME_BYTES, OPEN_SPANS_MAX, Stack};
use crate::ticks;

std::thread_local! {
    /// FORK: the forking thread goes on in the child with the same invocation, and (pid, inv) stays unique
    /// because the pid differs. What belongs to the parent's life is not used, because the life differs.
    ///
    /// It has no destructor, which would keep a module that holds this code from being unloaded; what a thread
    /// leaves in the region is found to be left.
    static THREAD: Thread = const { Thread::new() };
}

/// This thread's memory. The reference stays on the thread, since what it points to is not `Sync`.
#[inline(always)]
pub(crate) fn current() -> &'static Thread {
    let thread = THREAD.with(core::ptr::from_ref);
    // SAFETY: this thread's, and, since it has no destructor, there for as long as the thread runs code.
    unsafe { &*thread }
}

/// No life at all: neither one that a process can have, nor the 0 of a process that has none.
const NO_LIFE: u64 = u64::MAX;

/// See the module's text.
pub(crate) struct Thread {
    /// The life under which the rest was remembered, or [`NO_LIFE`].
    life: Cell<u64>,
    /// Where it stands which life is ready.
    ready: Cell<&'static AtomicU64>,
    emitter: Cell<Emitter>,
    region: Cell<Option<&'static Region>>,
    stack: Cell<Option<&'static Stack>>,
    /// How many places of the stack are taken, those included whose span is just being opened: a signal handler
    /// that logs meanwhile takes the next.
    taken: Cell<u32>,
    /// The life again if its times are readings of the counter, or [`NO_LIFE`].
    life_in_ticks: Cell<u64>,
    last_tick: Cell<u64>,
    run: Cell<Run>,
    /// Whether `run` has, or wants, more than one position.
    takes_runs: Cell<bool>,
    context: Cell<SimplerSpanContext>,
}

/// Where in its thread's stack an open span is seen.
pub(crate) struct Place {
    pub(crate) stack: &'static Stack,
    pub(crate) index: u32,
    pub(crate) frame: *mut [u8; OPEN_FRAME_BYTES],
}

impl Thread {
    const fn new() -> Self {
        Self {
            life: Cell::new(NO_LIFE),
            ready: Cell::new(&NONE_READY),
            emitter: Cell::new(Emitter::new(0, 0, 0)),
            region: Cell::new(None),
            stack: Cell::new(None),
            taken: Cell::new(0),
            life_in_ticks: Cell::new(NO_LIFE),
            last_tick: Cell::new(0),
            run: Cell::new(Run::new()),
            takes_runs: Cell::new(false),
            context: Cell::new(SimplerSpanContext { inv: 0, hid: 0, depth: 0, reserved: 0 }),
        }
    }

    /// Makes what is remembered true for the present life.
    // HOT: three loads and a compare.
    #[inline(always)]
    pub(crate) fn refresh(&self) {
        if life() != self.life.get() {
            self.remember();
        }
    }

    #[cold]
    #[inline(never)]
    fn remember(&self) {
        let pid = pid();
        // Read before the region is looked up: if there is a newer one meanwhile, the next look finds out.
        let life = life_with_its_region();
        // SAFETY: gettid has no preconditions and is async-signal-safe.
        let tid = unsafe { libc::gettid() };
        let emitter = Emitter::new(pid, i64::from(tid), thread_handle());
        let region = Region::current();
        self.ready.set(ready_life());
        self.emitter.set(emitter);
        self.region.set(region);
        self.stack.set(region.and_then(|region| region.stacks.take(&emitter)));
        self.taken.set(0);
        self.run.set(Run::new());
        self.takes_runs.set(false);
        let life = if life == 0 { NO_LIFE } else { life };
        self.life_in_ticks.set(if region.is_some_and(Region::uses_ticks) { life } else { NO_LIFE });
        self.life.set(life);
    }

    /// The region, if this thread's records go straight into its queue; then everything that is remembered is true.
    // HOT: four loads and a compare.
    #[inline(always)]
    pub(crate) fn ready(&self) -> Option<&'static Region> {
        // Relaxed: out of date for a moment, see `identity`.
        if self.ready.get().load(Ordering::Relaxed) == self.life.get() { self.region.get() } else { None }
    }

    /// As [`Thread::ready`], if besides this thread's times are readings of the counter.
    // HOT: four loads and a compare.
    #[inline(always)]
    pub(crate) fn ready_in_ticks(&self) -> Option<&'static Region> {
        if self.is_ready_in_ticks() { self.region.get() } else { None }
    }

    /// Whether there is what [`Thread::ready_in_ticks`] gives, for who does not need it yet.
    // HOT: three loads and a compare.
    #[inline(always)]
    pub(crate) fn is_ready_in_ticks(&self) -> bool {
        // Relaxed as in `ready`.
        self.ready.get().load(Ordering::Relaxed) == self.life_in_ticks.get()
    }

    /// Takes note that this thread's records can go straight into the queue.
    pub(crate) fn set_ready(&self) {
        if self.life.get() != NO_LIFE {
            set_ready(self.life.get());
        }
    }

    /// Who this thread is, as [`Thread::refresh`] has found it.
    #[inline(always)]
    pub(crate) fn emitter(&self) -> &Emitter {
        // SAFETY: the cell is this thread's, and what is read from it is plain bytes: a signal handler that finds a new
        // life may replace them meanwhile.
        unsafe { &*self.emitter.as_ptr() }
    }

    /// The process, as [`Thread::refresh`] has found it.
    #[inline(always)]
    pub(crate) fn pid(&self) -> i32 {
        self.emitter().pid()
    }

    /// Takes the next place of the stack, `None` when there is none.
    // HOT: a load and a store.
    #[inline(always)]
    pub(crate) fn take_place(&self) -> Option<Place> {
        let stack = self.stack.get()?;
        let index = self.taken.get();
        if index as usize >= OPEN_SPANS_MAX {
            return None;
        }
        self.taken.set(index + 1);
        // ORDERING: SeqCst for the compiler alone: the place is taken before it is written to, for a signal handler on
        // this thread.
        compiler_fence(Ordering::SeqCst);
        Some(Place { stack, index, frame: stack.frame(index) })
    }

    /// The place at `index`, which [`Thread::take_place`] has given, if it is still taken.
    // HOT: a load.
    #[inline(always)]
    pub(crate) fn place(&self, index: u32) -> Option<Place> {
        let stack = self.stack.get()?;
        if index >= self.taken.get() {
            return None;
        }
        Some(Place { stack, index, frame: stack.frame(index) })
    }

    /// Gives the place at `index` back, and those above it.
    // HOT: a store.
    #[inline(always)]
    pub(crate) fn give_back_place(&self, index: u32) {
        // ORDERING: SeqCst for the compiler alone: the place is given back after the last look at it.
        compiler_fence(Ordering::SeqCst);
        self.taken.set(index);
    }

    /// Whether this thread's times are readings of the counter, as [`Thread::refresh`] has found it.
    #[inline(always)]
    pub(crate) fn reads_ticks(&self) -> bool {
        self.life_in_ticks.get() != NO_LIFE
    }

    /// The time, on the counter or in ns. On the counter it never decreases within a thread.
    // HOT: one clock reading.
    #[inline(always)]
    pub(crate) fn now(&self, in_ticks: bool) -> i64 {
        if !in_ticks {
            return monotonic_ns();
        }
        let mut tick = ticks::now();
        if tick < self.last_tick.get() {
            // A branch, for it is never taken.
            core::hint::cold_path();
            tick = self.last_tick.get();
        }
        self.last_tick.set(tick);
        tick.cast_signed()
    }

    /// Claims a position of `region` for this thread.
    // HOT: a load, and a claim.
    #[inline(always)]
    pub(crate) fn claim(&self, region: &Region) -> Result<Claim, DropReason> {
        self.claim_alone(region).map_or_else(|| self.claim_by_run(region), Ok)
    }

    /// As [`Thread::claim`] while nobody contends; `None` where that does not succeed, for whatever reason.
    // HOT: a load, and a claim.
    #[inline(always)]
    pub(crate) fn claim_alone(&self, region: &Region) -> Option<Claim> {
        if self.takes_runs.get() { None } else { region.ring.claim_alone() }
    }

    /// As [`Thread::claim`] where several threads contend.
    // HOT: a claim out of a run, usually.
    #[inline(always)]
    pub(crate) fn claim_by_run(&self, region: &Region) -> Result<Claim, DropReason> {
        // SAFETY: the cell is this thread's, and the borrow ends here. A signal handler that claims meanwhile takes the
        // same position, and one of the two finds it taken.
        let run = unsafe { &mut *self.run.as_ptr() };
        region.ring.claim_reserved(run).map_or_else(|| self.claim_anew(region), Ok)
    }

    #[inline(never)]
    fn claim_anew(&self, region: &Region) -> Result<Claim, DropReason> {
        let mut run = self.run.get();
        let claim = region.ring.claim(&mut run);
        self.run.set(run);
        self.takes_runs.set(!run.is_single());
        claim
    }

    /// The invocation's place, for the owner's own spans and, through the state's function, for other modules.
    #[inline(always)]
    pub(crate) fn context(&self) -> &Cell<SimplerSpanContext> {
        &self.context
    }
}
