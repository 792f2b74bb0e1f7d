//! Whose turn a frame is, and the word that ends all turns: the synchronization of the mailbox, alone.
//!
//! Everything else in a frame is written by the side whose turn it is, relaxed, and read by the other side
//! after its turn has come. `tests/loom.rs` runs this same code through every schedule.

#[cfg(not(loom))]
use std::sync::atomic::{AtomicI32, AtomicU64};

#[cfg(loom)]
use loom::sync::atomic::{AtomicI32, AtomicU64};

use std::sync::atomic::Ordering;

/// The states in use, with the specification's numbers. FRAME_STAGED 8, TASK_LAUNCHED 9, ACTIVATE 11 and
/// PREPARE_READY 12 are for a parent that steers a pipeline from outside; here the child steers its own.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The parent may fill the frame (in bring-up: the child prepares itself).
    Idle = 0,
    /// The child may run the task.
    TaskReady = 1,
    /// The task has ended well.
    TaskDone = 2,
    /// The child is to leave.
    Shutdown = 3,
    /// The child may answer the control request.
    ControlRequest = 4,
    /// The control request was answered.
    ControlDone = 5,
    /// The child may be used.
    InitReady = 6,
    /// The child will leave, and has said why.
    InitFailed = 7,
    /// The task has failed.
    TaskFailed = 10,
}

/// A frame's state word; zero is IDLE.
#[repr(transparent)]
#[cfg_attr(not(loom), derive(Default))]
pub struct Turn(AtomicI32);

impl Turn {
    /// IDLE.
    #[cfg(loom)]
    #[allow(clippy::new_without_default, reason = "only the model makes one; frames are zeroed memory")]
    pub fn new() -> Self {
        Self(AtomicI32::new(State::Idle as i32))
    }

    /// The state's number. What the other side wrote before it stored the state is visible afterwards.
    pub fn state(&self) -> i32 {
        // ORDERING: Acquire: pairs with the Release store in `hand_over` on the other side.
        self.0.load(Ordering::Acquire)
    }

    /// Whether the state is this one.
    pub fn is(&self, state: State) -> bool {
        self.state() == state as i32
    }

    /// Ends this side's turn.
    pub fn hand_over(&self, state: State) {
        // ORDERING: Release: pairs with the Acquire load in `state` on the other side; publishes all words
        // that this side wrote.
        self.0.store(state as i32, Ordering::Release);
    }

    /// SHUTDOWN, if the frame is idle.
    pub fn end_if_idle(&self) {
        // ORDERING: Release as in `hand_over`; nothing is read on failure.
        let _ = self.0.compare_exchange(
            State::Idle as i32,
            State::Shutdown as i32,
            Ordering::Release,
            Ordering::Relaxed,
        );
    }
}

/// The sticky shutdown word: 0, then 1 for ever.
#[repr(transparent)]
#[cfg_attr(not(loom), derive(Default))]
pub struct Sticky(AtomicU64);

impl Sticky {
    /// Not set.
    #[cfg(loom)]
    #[allow(clippy::new_without_default, reason = "only the model makes one; frames are zeroed memory")]
    pub fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Only the parent does so.
    pub fn set(&self) {
        // ORDERING: Release: pairs with the Acquire load in `is_set`.
        self.0.store(1, Ordering::Release);
    }

    /// Whether the parent has.
    pub fn is_set(&self) -> bool {
        // ORDERING: Acquire: pairs with the Release store in `set`.
        self.0.load(Ordering::Acquire) != 0
    }
}
