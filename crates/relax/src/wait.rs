//! How one wait goes on: pauses, yields, parks; and deadlines.

use std::time::{Duration, Instant};

use crate::event::{Epoch, EventCount};

/// Steps of pauses before the first yield. With [`STEP_PAUSES`] they last about half a microsecond: what a cache
/// line needs to come and a short reply to go back. More is lost where threads share a CPU, since the thread that
/// would reply cannot run meanwhile: with 8 steps, stages of 50 µs on two CPUs lost 10 µs each instead of 7.
const SPIN_STEPS: u32 = 2;
/// Pauses in a step, that is between two looks at the caller's condition.
const STEP_PAUSES: u32 = 8;
/// How long a wait yields, from its first yield, before it parks. A hand-over between threads that share a
/// CPU is a few µs by yielding and tens of µs by a wake-up; the stages of a decode step are about 50 µs
/// apart, and a wait longer than a few of them is worth the wake-up. Wall time, since a yield lasts 0.3 µs on
/// an idle CPU and a time slice on a busy one.
pub const YIELD_PHASE: Duration = Duration::from_micros(150);
/// The longest park: a caller that watches a deadline looks at it this often.
pub const PARK_SLICE: Duration = Duration::from_millis(10);

/// The longest park of a waiter that is rung for whatever happens and watches no deadline: it looks all the same, but so
/// seldom that a thousand such threads take no CPU to speak of.
pub const REST_SLICE: Duration = Duration::from_secs(1);

const _: () = assert!(YIELD_PHASE.as_nanos() < PARK_SLICE.as_nanos());

/// The state of one wait: how long it has been going on.
#[derive(Debug)]
pub struct Relax {
    steps: u32,
    yielding_since: Option<Instant>,
    yield_phase: Duration,
    slice: Duration,
}

impl Default for Relax {
    fn default() -> Self {
        Self::new()
    }
}

impl Relax {
    /// A fresh wait for something that is expected soon.
    pub const fn new() -> Self {
        Self::yielding_for(YIELD_PHASE)
    }

    /// A fresh wait that parks right after its pauses: for what is not expected soon, so that the waiter does not
    /// take turns on a CPU that others could use.
    pub const fn parking() -> Self {
        Self::yielding_for(Duration::ZERO)
    }

    /// A fresh wait that yields this long before it parks: for what is due at once, but that nobody rings for.
    pub const fn yielding_for(yield_phase: Duration) -> Self {
        Self { steps: 0, yielding_since: None, yield_phase, slice: PARK_SLICE }
    }

    /// A fresh wait of a thread that has nothing to do until it is rung: it parks for up to [`REST_SLICE`].
    pub const fn until_rung() -> Self {
        Self { slice: REST_SLICE, ..Self::new() }
    }

    /// There was progress: start again with the cheap steps.
    pub const fn reset(&mut self) {
        *self = Self { slice: self.slice, ..Self::yielding_for(self.yield_phase) };
    }

    /// One step of waiting for `event` to leave `seen`, an epoch that was read before the condition.
    ///
    /// Returns after a few pauses, a yield, or a park of at most [`PARK_SLICE`] ([`REST_SLICE`] of a wait that began
    /// so), and early when the event was rung or for no reason.
    #[inline]
    pub fn wait(&mut self, event: &EventCount, seen: Epoch) {
        // Under loom a pause or a yield is one more schedule to explore and proves nothing.
        if cfg!(loom) {
            return event.park(seen, self.slice);
        }
        if self.steps < SPIN_STEPS {
            self.steps += 1;
            for _ in 0..STEP_PAUSES {
                if event.epoch() != seen {
                    return;
                }
                std::hint::spin_loop();
            }
            return;
        }
        self.yield_or_park(event, seen);
    }

    #[cold]
    fn yield_or_park(&mut self, event: &EventCount, seen: Epoch) {
        let now = Instant::now();
        let since = *self.yielding_since.get_or_insert(now);
        if now.duration_since(since) < self.yield_phase {
            std::thread::yield_now();
        } else {
            event.park(seen, self.slice);
        }
    }
}

/// A point in monotonic time after which a wait gives up.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    /// None: so far away that the clock cannot hold it.
    at: Option<Instant>,
}

impl Deadline {
    /// The deadline `limit` from now; a limit beyond the clock's range never passes.
    pub fn after(limit: Duration) -> Self {
        Self { at: Instant::now().checked_add(limit) }
    }

    /// Whether it lies in the past.
    pub fn passed(&self) -> bool {
        self.remaining().is_zero()
    }

    /// The time that is left; zero once passed.
    pub fn remaining(&self) -> Duration {
        self.at.map_or(Duration::MAX, |at| at.saturating_duration_since(Instant::now()))
    }
}
