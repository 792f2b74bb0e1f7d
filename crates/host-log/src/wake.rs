//! The doorbell: how a sleeping writer learns that there is work, without a semaphore post per record.
//!
//! A producer rings only when the writer has said that it sleeps, and then only one of them does. A wake is
//! not lost because of a pair of barriers: the writer says "asleep", passes the heavy one, and looks at the
//! queue once more; a producer publishes, passes the light one, and only then looks whether the writer sleeps.
//! Either the writer's second look sees the record or the producer sees "asleep". The heavy barrier, which the
//! writer alone pays, makes the light one cost nothing. The order to stop travels the same way. Where the kernel has
//! no heavy barrier, the light one is a fence, and a bit beside what the writer is doing asks producers for it.
//!
//! After a burst the writer does not go to sleep at once but lingers for a moment on a timer, in which
//! nobody needs to ring: a steady trickle of records, a step of some milliseconds and its spans, costs its producers no
//! wake at all.

use core::sync::atomic::compiler_fence;

use crate::sync::{
    AtomicU32, AtomicU64, Ordering, futex_wait, futex_wake, heavy_barrier, light_barrier,
    light_barrier_is_fence,
};

/// How long a sleep lasts whose barrier the kernel has refused: this once, as from then on producers fence.
const MISSED_WAKE_NS: u64 = 1_000_000;

const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;
const LINGERING: u32 = 2;
/// Beside one of those: who looks shall pass a fence and look again.
const FENCED: u32 = 4;

/// `doing`, as the word of the writer says it.
fn word(doing: u32) -> u32 {
    doing | if light_barrier_is_fence() { FENCED } else { 0 }
}

/// What the writer is doing, on a futex word.
///
/// FORK: the child's copy says what the parent's writer did; it is reset before the child's writer starts.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct Doorbell {
    writer: AtomicU32,
    /// 1 once the writer shall end.
    stop: AtomicU32,
    sleeps: AtomicU64,
    wakes: AtomicU64,
}

impl Doorbell {
    /// The doorbell of a writer that is awake, for models; the real one is zeroed memory.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self {
            writer: AtomicU32::new(word(AWAKE)),
            stop: AtomicU32::new(0),
            sleeps: AtomicU64::new(0),
            wakes: AtomicU64::new(0),
        }
    }

    /// The writer is awake, shall not end, and nothing was counted. Only while nobody else uses it.
    pub fn reset(&self) {
        self.allow();
        self.sleeps.store(0, Ordering::Relaxed);
        self.wakes.store(0, Ordering::Relaxed);
    }

    /// Called by a producer after it has published.
    // HOT: one load while the writer is awake or lingers.
    #[inline]
    pub fn ring_if_asleep(&self) {
        // ORDERING: SeqCst for the compiler alone: a light barrier that is no fence.
        compiler_fence(Ordering::SeqCst);
        // ORDERING: Relaxed: the barrier pairs with the writer's heavy one.
        if self.writer.load(Ordering::Relaxed) & (ASLEEP | FENCED) != 0 {
            self.look_again();
        }
    }

    #[cold]
    fn look_again(&self) {
        light_barrier();
        // ORDERING: Relaxed: the light barrier, before this, pairs with the writer's heavy one.
        if self.writer.load(Ordering::Relaxed) & ASLEEP != 0 {
            self.ring();
        }
    }

    /// Wakes the writer if it sleeps or lingers. At most one of those who ring makes the syscall.
    #[cold]
    pub fn ring(&self) {
        // ORDERING: AcqRel: of several that ring one gets the word; nothing else is handed over by it.
        if self.writer.swap(word(AWAKE), Ordering::AcqRel) & !FENCED != AWAKE {
            self.wakes.fetch_add(1, Ordering::Relaxed);
            futex_wake(&self.writer, 1);
        }
    }

    /// A writer may start. Only while there is none.
    pub fn allow(&self) {
        // ORDERING: none, each; starting the writer's thread publishes it.
        self.writer.store(word(AWAKE), Ordering::Relaxed);
        self.stop.store(0, Ordering::Relaxed);
    }

    /// Asks the writer to end once the ring is empty, and wakes it.
    pub fn stop(&self) {
        // ORDERING: Relaxed: the barrier publishes it, as it does a producer's record: the writer sees it
        // before it sleeps, or is rung.
        self.stop.store(1, Ordering::Relaxed);
        light_barrier();
        self.ring();
    }

    /// Whether the writer is asked to end.
    pub fn is_stopped(&self) -> bool {
        // ORDERING: Relaxed: to end a little later is fine; `sleep` asks behind the barrier.
        self.stop.load(Ordering::Relaxed) != 0
    }

    /// The writer sleeps until somebody rings, unless `has_work` says that there is some.
    pub fn sleep(&self, has_work: impl Fn() -> bool) {
        self.sleeps.fetch_add(1, Ordering::Relaxed);
        // ORDERING: AcqRel: a place of its own among the swaps of those who ring; the barrier that follows
        // publishes it, see the module's text.
        let asleep = word(ASLEEP);
        self.writer.swap(asleep, Ordering::AcqRel);
        let reached_all = heavy_barrier();
        if !has_work() {
            // Where it did not, a producer may have missed the word just now, and the next look must not depend on it.
            futex_wait(&self.writer, asleep, if reached_all { None } else { Some(MISSED_WAKE_NS) });
        }
        // ORDERING: AcqRel as above; a producer that reads the old value rings once for nothing.
        self.writer.swap(word(AWAKE), Ordering::AcqRel);
    }

    /// The writer rests for `ns`; only [`Doorbell::ring`] ends it early. A ring that comes just before is
    /// missed, at the cost of this short time.
    pub fn linger(&self, ns: u64) {
        self.sleeps.fetch_add(1, Ordering::Relaxed);
        // ORDERING: Relaxed: nothing depends on it but how soon the rest ends.
        let lingering = word(LINGERING);
        self.writer.store(lingering, Ordering::Relaxed);
        futex_wait(&self.writer, lingering, Some(ns));
        self.writer.store(word(AWAKE), Ordering::Relaxed);
    }

    /// How often the writer said that it would rest, and how often somebody rang in answer.
    pub fn sleeps_and_wakes(&self) -> (u64, u64) {
        // The wakes first, so that a wake between the two never seems to exceed the sleeps.
        let wakes = self.wakes.load(Ordering::Relaxed);
        (self.sleeps.load(Ordering::Relaxed), wakes)
    }
}

#[cfg(loom)]
impl Default for Doorbell {
    fn default() -> Self {
        Self::new()
    }
}
