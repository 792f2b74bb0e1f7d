//! The one way to wait: spin briefly, yield, then park on an event count, with deadlines in wall time.
//!
//! The machine may have two cores and the simulated chip 24 cores and 6 AICPU threads, so a wait that only
//! spins starves the thread that it waits for, and a wait that only parks pays a system call and a wake-up
//! for every hand-over of a few microseconds. A waiter's loop is therefore always this one:
//!
//! ```
//! # use std::time::Duration;
//! # use std::sync::atomic::{AtomicBool, Ordering};
//! use simpler_relax::{Deadline, EventCount, Relax};
//!
//! fn wait_until(ready: &AtomicBool, event: &EventCount, limit: Duration) -> bool {
//!     let deadline = Deadline::after(limit);
//!     let mut relax = Relax::new();
//!     loop {
//!         let seen = event.epoch(); // before the condition
//!         if ready.load(Ordering::Acquire) {
//!             return true;
//!         }
//!         if deadline.passed() {
//!             return false;
//!         }
//!         relax.wait(event, seen); // a few pauses, a yield, or a park of at most 10 ms
//!     }
//! }
//!
//! let (ready, event) = (AtomicBool::new(false), EventCount::new());
//! std::thread::scope(|s| {
//!     s.spawn(|| {
//!         ready.store(true, Ordering::Release); // the condition first,
//!         event.notify_one(); // then the bell
//!     });
//!     assert!(wait_until(&ready, &event, Duration::from_secs(5)));
//! });
//! ```
//!
//! The event count says nothing about the condition: a wait may end early for no reason, and the condition is
//! looked at again. What is promised is the reverse: whoever read an epoch before a notification is not left
//! asleep by it.

mod event;
mod sync;
mod wait;

pub use event::{Epoch, EventCount};
pub use wait::{Deadline, PARK_SLICE, REST_SLICE, Relax, YIELD_PHASE};
