//! A thread that drains while the run goes on, and the gate at which the device's threads wait for it.

use std::boxed::Box;
use std::fmt;
use std::io;
use std::string::String;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use simpler_relax::{Deadline, EventCount, Relax};

use crate::drain::{Collected, Drain};
use crate::layout::{Memory, SwimlaneLayout};
use crate::rotation::Gate;

/// How long a device thread waits for the collector before it loses records (RUNTIME 6.1). It means that the
/// collector is stuck: a refill takes milliseconds.
pub const BACKSTOP: Duration = Duration::from_secs(30);

/// What the two sides ring.
struct Bells {
    /// A ready queue has an entry, or the collector shall stop.
    ready: EventCount,
    /// By AICPU thread: a pool of the thread has a buffer, or there is nobody left to wait for.
    refilled: Box<[EventCount]>,
    /// The run has ended.
    stop: AtomicBool,
    /// Nobody drains any more.
    closed: AtomicBool,
}

/// The gate of one AICPU thread: it waits for the collector, no longer than a backstop, and not for one that has
/// ended. Cheap to clone.
#[derive(Clone)]
pub struct CollectorGate {
    bells: Arc<Bells>,
    thread: usize,
    backstop: Duration,
}

impl fmt::Debug for CollectorGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CollectorGate").field("thread", &self.thread).finish_non_exhaustive()
    }
}

impl Gate for CollectorGate {
    fn handed_over(&self) {
        self.bells.ready.notify_one();
    }

    fn wait(&self, open: &mut dyn FnMut() -> bool) -> bool {
        let deadline = Deadline::after(self.backstop);
        let event = self.bells.refilled.get(self.thread).unwrap_or(&self.bells.ready);
        let mut relax = Relax::new();
        loop {
            let seen = event.epoch();
            // ORDERING: Acquire: pairs with the Release in `CloseOnExit`: what was refilled before is seen below.
            let is_closed = self.bells.closed.load(Ordering::Acquire);
            if open() {
                return true;
            }
            if is_closed || deadline.passed() {
                return false;
            }
            relax.wait(event, seen);
        }
    }
}

/// Collects the records of runs, one after the other, on a thread of its own that sleeps between them.
// FORK: a child has no such thread; it may neither finish nor drop a collector that it inherited.
pub struct Collector {
    bells: Arc<Bells>,
    memory: Memory,
    /// The run under way; the thread drains it, and who ends it takes it.
    run: Arc<Mutex<Option<Drain>>>,
    drainer: Option<JoinHandle<()>>,
}

impl fmt::Debug for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Collector").finish_non_exhaustive()
    }
}

impl Collector {
    /// Resets the memory at `base` and starts to collect: before the first run is launched.
    ///
    /// What is collected stays in memory until [`Collector::finish`]: 32 or 64 bytes a record.
    ///
    /// # Errors
    ///
    /// The thread cannot be started.
    ///
    /// # Safety
    ///
    /// - As for [`Drain::new`], with [`Collector::finish`] in the place of [`Drain::finish`].
    /// - It is finished or dropped before the memory goes.
    pub unsafe fn start(base: *mut u8, layout: SwimlaneLayout) -> io::Result<Self> {
        // SAFETY: the caller's obligations are these.
        let drain = unsafe { Drain::new(base, layout) };
        let memory = drain.memory();
        let run = Arc::new(Mutex::new(Some(drain)));
        let bells = Arc::new(Bells {
            ready: EventCount::new(),
            refilled: (0..layout.threads()).map(|_| EventCount::new()).collect(),
            stop: AtomicBool::new(false),
            closed: AtomicBool::new(false),
        });
        let (of_thread, drained) = (CloseOnExit(bells.clone()), run.clone());
        let drainer = thread::Builder::new()
            .name(String::from("swimlane"))
            .spawn(move || of_thread.0.drain_until_stopped(&drained))?;
        Ok(Self { bells, memory, run, drainer: Some(drainer) })
    }

    /// Ends the run under way, if there is one, and begins the next: resets the memory.
    ///
    /// # Safety
    ///
    /// - As for [`Collector::start`]: no device thread accesses the memory.
    pub unsafe fn begin(&mut self) {
        let mut run = self.run.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the caller's obligation; the drain that was there is dropped with this one.
        *run = Some(unsafe { Drain::again(self.memory) });
    }

    /// Ends the run under way: takes what is left, and settles the accounts. The thread stays for the next.
    ///
    /// If the thread has panicked while it drained, what it had taken is reported as a mismatch.
    pub fn end(&mut self) -> Collected {
        let drain = match self.run.lock() {
            Ok(mut run) => run.take(),
            Err(_) => None,
        };
        drain.unwrap_or_else(|| Drain::over(self.memory)).finish()
    }

    /// The gate of an AICPU thread. `backstop` is how long it waits at most: [`BACKSTOP`], but for tests.
    pub fn gate(&self, thread: usize, backstop: Duration) -> CollectorGate {
        CollectorGate { bells: self.bells.clone(), thread, backstop }
    }

    /// As [`Collector::end`], for the last run: the thread ends.
    pub fn finish(mut self) -> Collected {
        self.stop();
        self.end()
    }

    fn stop(&mut self) {
        let Some(drainer) = self.drainer.take() else { return };
        // ORDERING: Release: pairs with the Acquire in `drain_until_stopped`.
        self.bells.stop.store(true, Ordering::Release);
        self.bells.ready.notify_one();
        // A thread that has panicked has said so; what it left behind is in the lock.
        drop(drainer.join());
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Bells {
    fn drain_until_stopped(&self, run: &Mutex<Option<Drain>>) {
        let mut relax = Relax::parking();
        loop {
            let seen = self.ready.epoch();
            let mut run = run.lock().unwrap_or_else(PoisonError::into_inner);
            let taken =
                run.as_mut().map_or(0, |drain| drain.step(|thread| self.refilled[thread].notify_one()));
            drop(run);
            if taken > 0 {
                relax.reset();
                continue;
            }
            // ORDERING: Acquire: pairs with the Release in `Collector::stop`.
            if self.stop.load(Ordering::Acquire) {
                return;
            }
            relax.wait(&self.ready, seen);
        }
    }
}

/// Opens every gate when the thread ends, on whatever path: nobody waits for one that is gone.
struct CloseOnExit(Arc<Bells>);

impl Drop for CloseOnExit {
    fn drop(&mut self) {
        // ORDERING: Release: pairs with the Acquire in `CollectorGate::wait`.
        self.0.closed.store(true, Ordering::Release);
        for event in &self.0.refilled {
            event.notify_all();
        }
    }
}
