//! Where what lies in the phase buffer, for both sides.
//!
//! ```text
//! +0            header: tail_used u64, reserved u64
//! +16           phases: [thread][phase] { start u64, end u64 }
//! +16 + T*160   tail:   [thread][slot] { dispatch u64, finish u64 }
//! ```
//!
//! T is the number of *launched* threads, those included that the affinity gate turns away. `tail_used` is not 0
//! once a run has stamped any task slot, also an incomplete one: only then is the tail worth a transfer.

use core::fmt;

use crate::phase::{PHASES, Phase};
use crate::slot::{TASK_SLOTS, TaskSlot};

/// The header in front of the phases.
pub const HEADER_BYTES: usize = 16;
/// One phase of one thread (start and end) or one slot of one thread (dispatch and finish), in cycles.
pub const RECORD_BYTES: usize = 16;
/// The start of a phase, or the dispatch of a slot, that was not stamped.
pub const START_UNSET: u64 = u64::MAX;

/// Where in a record the end lies.
const END_OFFSET: usize = 8;
const WORD_BYTES: usize = size_of::<u64>();
/// Phases of one thread.
const THREAD_BYTES: usize = PHASES * RECORD_BYTES;
/// Task slots of one thread.
const THREAD_TAIL_BYTES: usize = TASK_SLOTS * RECORD_BYTES;

const _: () = assert!(RECORD_BYTES == END_OFFSET + WORD_BYTES);
const _: () = assert!(THREAD_BYTES == 160 && THREAD_TAIL_BYTES == 256);

/// The buffer for a number of launched threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhaseBufferLayout {
    threads: usize,
}

impl PhaseBufferLayout {
    /// The layout for `threads` launched threads. A count that no address space holds gives a size that no
    /// allocation grants.
    pub const fn new(threads: usize) -> Self {
        Self { threads }
    }

    /// Launched threads.
    pub const fn threads(&self) -> usize {
        self.threads
    }

    /// Bytes of device memory.
    pub const fn bytes(&self) -> usize {
        self.threads.saturating_mul(THREAD_TAIL_BYTES).saturating_add(self.tail_offset())
    }

    /// Where the phases end and the task slots begin: what is read back of every run, in bytes.
    pub const fn tail_offset(&self) -> usize {
        self.threads.saturating_mul(THREAD_BYTES).saturating_add(HEADER_BYTES)
    }

    /// The offset of a record's start; its end follows. None for a thread that was not launched.
    pub const fn record_offset(&self, thread: usize, phase: Phase) -> Option<usize> {
        if thread >= self.threads {
            return None;
        }
        Some(thread.saturating_mul(THREAD_BYTES).saturating_add(HEADER_BYTES + phase as usize * RECORD_BYTES))
    }

    /// The offset of a slot's dispatch; its finish follows. None for a thread that was not launched.
    pub const fn slot_offset(&self, thread: usize, slot: TaskSlot) -> Option<usize> {
        if thread >= self.threads {
            return None;
        }
        let of_thread = thread.saturating_mul(THREAD_TAIL_BYTES).saturating_add(self.tail_offset());
        Some(of_thread.saturating_add(slot.index() * RECORD_BYTES))
    }

    /// Writes what the host copies to the device before each run: a zero header, and every phase and every slot
    /// unset (start [`START_UNSET`], end 0). Bytes of `image` beyond the layout are left alone.
    ///
    /// # Errors
    ///
    /// `image` is shorter than [`PhaseBufferLayout::bytes`]; nothing was written.
    pub fn write_reset_image(&self, image: &mut [u8]) -> Result<(), ShortBuffer> {
        let needed = self.bytes();
        let image = image.get_mut(..needed).ok_or(ShortBuffer { needed })?;
        let (header, records) = image.split_at_mut(HEADER_BYTES);
        header.fill(0);
        for record in records.chunks_exact_mut(RECORD_BYTES) {
            let (start, end) = record.split_at_mut(END_OFFSET);
            start.copy_from_slice(&START_UNSET.to_ne_bytes());
            end.fill(0);
        }
        Ok(())
    }
}

/// A buffer that cannot hold the layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortBuffer {
    /// Bytes that it must have.
    pub needed: usize,
}

impl fmt::Display for ShortBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the phase buffer needs {} bytes", self.needed)
    }
}

impl core::error::Error for ShortBuffer {}
