//! What a thread remembers, so that a record costs it neither a syscall nor a search: its ids, its stack of open
//! spans, its run of queue positions, which clock it reads, and the invocation that it is in.
//!
//! All but the last holds for one life (process and region, see `identity`) and is asked for again in another.

use core::cell::Cell;
use core::sync::atomic::{Ordering, compiler_fence};

use simpler_log_abi::{DropReason, SimplerSpanContext};

use crate::identity::{is_ready, life, life_with_its_region, monotonic_ns, pid, set_ready, thread_handle};
use crate::queue::{Claim, Run};
use crate::region::Region;
use crate::stack::{OPEN_FRAME_BYTES, Stack};
use crate::ticks;

std::thread_local! {
    /// FORK: the forking thread goes on in the child with the same invocation, and (pid, inv) stays unique
    /// because the pid differs. What belongs to the parent's life is not used, because the life differs.
    ///
    /// It has no destructor, which would keep a module that holds this code from being unloaded; what a thread
    /// leaves in the region is found to be left.
    static THREAD: Thread = const { Thread::new() };
}

/// This thread's memory.
#[inline(always)]
pub(crate) fn with<R>(look: impl FnOnce(&Thread) -> R) -> R {
    // The address alone, so that what is done with it can be inlined into the caller.
    let thread = THREAD.with(core::ptr::from_ref);
    // SAFETY: this thread's, for as long as it runs code, since it has no destructor; and it does not leave `look`.
    look(unsafe { &*thread })
}

/// See the module's text.
pub(crate) struct Thread {
    /// The life under which the rest was remembered; 0 for never.
    life: Cell<u64>,
    pid: Cell<i32>,
    tid: Cell<i32>,
    handle: Cell<u64>,
    region: Cell<Option<&'static Region>>,
    stack: Cell<Option<&'static Stack>>,
    /// How many places of the stack are taken, those included whose span is just being opened: a signal handler
    /// that logs meanwhile takes the next.
    taken: Cell<u32>,
    reads_ticks: Cell<bool>,
    last_tick: Cell<u64>,
    run: Cell<Run>,
    /// Whether `run` has, or wants, more than one position.
    takes_runs: Cell<bool>,
    context: Cell<SimplerSpanContext>,
}

impl Thread {
    const fn new() -> Self {
        Self {
            life: Cell::new(0),
            pid: Cell::new(0),
            tid: Cell::new(0),
            handle: Cell::new(0),
            region: Cell::new(None),
            stack: Cell::new(None),
            taken: Cell::new(0),
            reads_ticks: Cell::new(false),
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
        let life = life();
        if life == 0 || life != self.life.get() {
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
        let handle = thread_handle();
        let region = Region::current();
        self.pid.set(pid);
        self.tid.set(tid);
        self.handle.set(handle);
        self.region.set(region);
        self.stack.set(region.and_then(|region| region.stacks.take(pid, tid, handle)));
        self.reads_ticks.set(region.is_some_and(Region::uses_ticks));
        self.taken.set(0);
        self.run.set(Run::new());
        self.takes_runs.set(false);
        self.life.set(life);
    }

    /// The region, if this thread's records go straight into its queue; then everything that is remembered is true.
    // HOT: four loads and a compare.
    #[inline(always)]
    pub(crate) fn ready(&self) -> Option<&'static Region> {
        if is_ready(self.life.get()) { self.region.get() } else { None }
    }

    /// Takes note that this thread's records can go straight into the queue.
    pub(crate) fn set_ready(&self) {
        set_ready(self.life.get());
    }

    /// The kernel's id of this thread.
    #[inline]
    pub(crate) fn tid(&self) -> i32 {
        self.refresh();
        self.tid.get()
    }

    /// The kernel's id of this thread, as [`Thread::refresh`] has found it.
    #[inline(always)]
    pub(crate) fn tid_as_found(&self) -> i32 {
        self.tid.get()
    }

    /// The process, as [`Thread::refresh`] has found it.
    #[inline(always)]
    pub(crate) fn pid(&self) -> i32 {
        self.pid.get()
    }

    /// `pthread_self`, as [`Thread::refresh`] has found it.
    #[inline(always)]
    pub(crate) fn handle(&self) -> u64 {
        self.handle.get()
    }

    /// Takes the next place of the stack: its index and its frame, `None` when there is none.
    // HOT: a load and a store.
    #[inline(always)]
    pub(crate) fn take_place(&self) -> Option<(&'static Stack, u32, *mut [u8; OPEN_FRAME_BYTES])> {
        let stack = self.stack.get()?;
        let index = self.taken.get();
        let frame = stack.frame(index)?;
        self.taken.set(index + 1);
        // ORDERING: SeqCst for the compiler alone: the place is taken before it is written to, for a signal handler on
        // this thread.
        compiler_fence(Ordering::SeqCst);
        Some((stack, index, frame))
    }

    /// The frame at a place that [`Thread::take_place`] has given and that is still taken.
    // HOT: a load.
    #[inline(always)]
    pub(crate) fn place(&self, index: u32) -> Option<(&'static Stack, *mut [u8; OPEN_FRAME_BYTES])> {
        let stack = self.stack.get()?;
        if index >= self.taken.get() {
            return None;
        }
        Some((stack, stack.frame(index)?))
    }

    /// Gives the place at `index` back, and those above it.
    // HOT: a store.
    #[inline(always)]
    pub(crate) fn give_back_place(&self, index: u32) {
        // ORDERING: SeqCst for the compiler alone: the place is given back after the last look at it.
        compiler_fence(Ordering::SeqCst);
        self.taken.set(index);
    }

    /// Whether this thread's times are readings of the counter.
    #[inline(always)]
    pub(crate) fn reads_ticks(&self) -> bool {
        self.reads_ticks.get()
    }

    /// The time, on the counter or in ns. On the counter it never decreases within a thread.
    // HOT: one clock reading.
    #[inline(always)]
    pub(crate) fn now(&self, in_ticks: bool) -> i64 {
        if !in_ticks {
            return monotonic_ns();
        }
        let tick = ticks::now().max(self.last_tick.get());
        self.last_tick.set(tick);
        tick.cast_signed()
    }

    /// Claims a position of `region` for this thread.
    // HOT: a load, and a claim.
    #[inline(always)]
    pub(crate) fn claim(&self, region: &Region) -> Result<Claim, DropReason> {
        if !self.takes_runs.get()
            && let Some(claim) = region.ring.claim_alone()
        {
            return Ok(claim);
        }
        self.claim_by_run(region)
    }

    #[inline(never)]
    fn claim_by_run(&self, region: &Region) -> Result<Claim, DropReason> {
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
