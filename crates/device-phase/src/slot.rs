//! Task-timing slots: the window of a selected task, from its first dispatch to its last finish.

use core::fmt;

/// How many slots there are.
pub const TASK_SLOTS: usize = 16;

/// The slot that a task is tagged with: 0 to 15.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskSlot(u8);

impl TaskSlot {
    /// The slot of this number.
    ///
    /// # Errors
    /// The number is not 0 to 15.
    pub const fn new(id: i32) -> Result<Self, NoSuchSlot> {
        if 0 <= id && id < TASK_SLOTS as i32 { Ok(Self(id as u8)) } else { Err(NoSuchSlot { id }) }
    }

    /// Its number.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// All slots, ascending.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..TASK_SLOTS as u8).map(Self)
    }
}

/// A number that names no slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSuchSlot {
    /// The number.
    pub id: i32,
}

impl fmt::Display for NoSuchSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "task-timing slot {} is not one of 0 to {}", self.id, TASK_SLOTS - 1)
    }
}

impl core::error::Error for NoSuchSlot {}

/// The scheduling attributes of a task: one byte beside the other words that a scheduler reads of it.
///
/// Bit 0 early resolve, bit 1 sync-start, bit 2 predicate, bit 3 timed, bits 4 to 7 the slot (RUNTIME §3.4). All
/// zero is a task without any, so a task without kernels, whose byte nobody sets, cannot carry a tag.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskAttrs(u8);

impl TaskAttrs {
    /// Bit 0: the task's successors may be on their cores before it has finished.
    pub const EARLY_RESOLVE: u8 = 1 << 0;
    /// Bit 1: all blocks start together.
    pub const SYNC_START: u8 = 1 << 1;
    /// Bit 2: the task may be skipped.
    pub const PREDICATE: u8 = 1 << 2;
    /// Bit 3: the task is timed in the slot of the bits above.
    pub const IS_TIMED: u8 = 1 << 3;
    /// Where the slot's four bits begin.
    pub const SLOT_SHIFT: u32 = 4;

    /// The attributes that a byte stands for. In one that is not timed the slot means nothing and is cleared.
    pub const fn from_bits(bits: u8) -> Self {
        if bits & Self::IS_TIMED == 0 { Self(bits & (Self::IS_TIMED - 1)) } else { Self(bits) }
    }

    /// The byte.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// The same attributes, timed in a slot, or in none. The other bits stay.
    #[must_use]
    pub const fn with_slot(self, slot: Option<TaskSlot>) -> Self {
        let others = self.0 & (Self::IS_TIMED - 1);
        match slot {
            Some(slot) => Self(others | Self::IS_TIMED | slot.0 << Self::SLOT_SHIFT),
            None => Self(others),
        }
    }

    /// The slot; None for an untagged task, which costs one compare.
    #[inline]
    pub const fn slot(self) -> Option<TaskSlot> {
        if self.0 & Self::IS_TIMED == 0 { None } else { Some(TaskSlot(self.0 >> Self::SLOT_SHIFT)) }
    }
}

const _: () = assert!(size_of::<TaskAttrs>() == 1 && TASK_SLOTS == 1 << (8 - TaskAttrs::SLOT_SHIFT));
