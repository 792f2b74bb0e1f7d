//! The device's side: records into the active buffer of a pool.

use core::cell::Cell;
use core::fmt;
use core::marker::PhantomData;

use crate::layout::{Memory, SwimlaneLayout};
use crate::record::{CoreRecord, Record, ThreadRecord};
use crate::rotation::{Gate, Rotation};

/// What one AICPU thread records through: gives the writers of its pools.
///
/// The thread owns the pools of its index and those of the cores that it attached; their full buffers go into
/// its ready queue.
#[derive(Clone, Copy)]
pub struct ThreadTrack<'a> {
    memory: Memory,
    thread: usize,
    gate: &'a dyn Gate,
}

impl fmt::Debug for ThreadTrack<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadTrack").field("thread", &self.thread).finish_non_exhaustive()
    }
}

impl<'a> ThreadTrack<'a> {
    /// Records as AICPU thread `thread` into the memory at `base`, which the host has reset for this run.
    ///
    /// # Safety
    ///
    /// - `base` is aligned to [`ALIGN_BYTES`](crate::ALIGN_BYTES), and [`SwimlaneLayout::bytes`] are there for as
    ///   long as this, a copy of it or a writer of it is used.
    /// - The memory is accessed by writers and by the host's collector only, which was started before.
    /// - One thread at a time uses the index `thread`.
    pub const unsafe fn new(
        base: *mut u8,
        layout: SwimlaneLayout,
        thread: usize,
        gate: &'a dyn Gate,
    ) -> Self {
        // SAFETY: the caller's obligations are these.
        Self { memory: unsafe { Memory::new(base, layout) }, thread, gate }
    }

    /// The writer of a core's pool. None for a core that there is not, and where the level leaves the kind out.
    ///
    /// # Safety
    ///
    /// The pool has no other writer in this run: the core is this thread's.
    pub unsafe fn core_writer<R: CoreRecord>(&self, core: usize) -> Option<Writer<'a, R>> {
        self.writer(core)
    }

    /// The writer of the thread's own pool. None where the level leaves the kind out.
    ///
    /// # Safety
    ///
    /// The pool has no other writer in this run.
    pub unsafe fn thread_writer<R: ThreadRecord>(&self) -> Option<Writer<'a, R>> {
        self.writer(self.thread)
    }

    fn writer<R: Record>(&self, index: usize) -> Option<Writer<'a, R>> {
        let ready = self.memory.ready(self.thread)?;
        let place = self.memory.layout().pool(R::KIND, index)?;
        let pool = self.memory.pool(&place);
        let rotation = Rotation {
            head: &pool.head,
            free: &pool.free,
            ready,
            gate: self.gate,
            index: index as u32,
            kind: R::KIND as u32,
            capacity: place.capacity,
            gave_up: Cell::new(false),
        };
        Some(Writer { rotation, memory: self.memory, records: PhantomData })
    }
}

/// Writes the records of one pool, on one thread, without allocating or locking.
///
/// When the active buffer is full it is handed to the collector and a fresh one is taken; where there is none
/// the thread waits at its [`Gate`]. Once the gate did not open in time, records are lost, and counted, until
/// there is a buffer again, without further waits. A run may make 2^32 − 1 records per pool.
pub struct Writer<'a, R: Record> {
    rotation: Rotation<'a>,
    memory: Memory,
    records: PhantomData<*mut R>,
}

impl<R: Record> fmt::Debug for Writer<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, index) = (R::KIND, self.rotation.index);
        f.debug_struct("Writer").field("kind", &kind).field("index", &index).finish_non_exhaustive()
    }
}

// SAFETY: the pool's only writer may move to another thread, with its pool; it cannot be used by two (the cell in
// the rotation forbids that).
unsafe impl<R: Record> Send for Writer<'_, R> {}

impl<R: Record> Writer<'_, R> {
    /// Appends a record; false if it was lost, which was counted. Not while a reserved record is uncommitted.
    // HOT: no allocation, lock or system call, unless the buffer is full.
    #[inline]
    pub fn append(&self, record: R) -> bool {
        let kept = self.reserve(record).is_some();
        if kept {
            self.commit();
        }
        kept
    }

    /// Reserves the next record, which holds `initial` until somebody else, a core, has filled it; None if it is
    /// lost, which was counted.
    ///
    /// The contract, in the order of one task: the scheduler reserves *before* it dispatches, so before the
    /// core's ACK; the core fills the record before its FIN; the scheduler has seen the FIN (acquire) and calls
    /// [`Writer::commit`]. The pointer is good until then. A full buffer is handed over by a later reserve only,
    /// and only if each of its records was committed; the record of a reserve that finds one that was not is
    /// lost. So no late core writes into a buffer that was returned.
    // HOT: as `append`.
    #[inline]
    pub fn reserve(&self, initial: R) -> Option<*mut R> {
        let place = self.rotation.reserve()?;
        let record = self.memory.at(place.buffer).cast::<R>().wrapping_add(place.slot as usize);
        // What was left there by the buffer's last turn must not pass for this record.
        // SAFETY: the place lies inside a buffer that is this pool's and that the device owns until it is handed
        // over; buffers are aligned more than records; this thread is the pool's only writer.
        unsafe { record.write(initial) };
        Some(record)
    }

    /// Whether a reserved record that is not committed keeps a full buffer: what is reserved before it is, is lost.
    pub fn is_held_up(&self) -> bool {
        self.rotation.is_held_up()
    }

    /// Says that the oldest reserved record is filled: its core's FIN was seen. Does nothing if none is reserved. One
    /// call for each record that was not lost.
    #[inline]
    pub fn commit(&self) {
        self.rotation.commit();
    }
}
