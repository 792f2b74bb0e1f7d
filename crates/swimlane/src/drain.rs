//! The host's side: full buffers out of the ready queues, their records copied, the buffers given back.

use std::fmt;
use std::vec;
use std::vec::Vec;

use crate::layout::{Memory, PoolPlace, SwimlaneLayout};
use crate::record::{AicoreTask, AicpuTask, NamedScope, OrchPhase, Record, RecordKind, SchedPhase};
use crate::rotation::FullBuffer;
use crate::sync::{AtomicU32, Ordering};

/// All records of a run, in the order in which each pool got them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Records {
    /// Per core; empty where the level leaves the kind out, as the others.
    pub aicpu_tasks: Vec<Vec<AicpuTask>>,
    /// Per core.
    pub aicore_tasks: Vec<Vec<AicoreTask>>,
    /// Per AICPU thread.
    pub sched_phases: Vec<Vec<SchedPhase>>,
    /// Per AICPU thread.
    pub orch_phases: Vec<Vec<OrchPhase>>,
    /// Per AICPU thread.
    pub named_scopes: Vec<Vec<NamedScope>>,
}

/// The numbers of a pool, or the sums of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Records that the host has.
    pub collected: u64,
    /// Records that the device counted as lost.
    pub dropped: u64,
    /// Records that the device was to make.
    pub total: u64,
}

impl Totals {
    /// Whether every record is accounted for.
    pub const fn is_exact(&self) -> bool {
        self.collected + self.dropped == self.total
    }

    const fn add(&mut self, other: &Self) {
        self.collected += other.collected;
        self.dropped += other.dropped;
        self.total += other.total;
    }
}

/// A pool whose numbers do not agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Its kind.
    pub kind: RecordKind,
    /// Its core or AICPU thread.
    pub index: usize,
    /// Its numbers.
    pub totals: Totals,
}

/// Whether what was collected is what was recorded, pool by pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reconciliation {
    kinds: [Totals; RecordKind::ALL.len()],
    /// The pools where collected + dropped is not the total.
    pub mismatches: Vec<Mismatch>,
    /// Entries of ready queues that name no buffer of a pool, too many records, or the wrong turn; what they
    /// stood for is not in the records.
    pub unusable_entries: u64,
}

impl Reconciliation {
    /// The sums of a kind.
    pub const fn kind(&self, kind: RecordKind) -> Totals {
        self.kinds[kind as usize]
    }

    /// The sums of all kinds.
    pub fn sum(&self) -> Totals {
        self.kinds.iter().fold(Totals::default(), |mut sum, kind| {
            sum.add(kind);
            sum
        })
    }

    /// Whether every record of every pool is accounted for.
    pub const fn is_exact(&self) -> bool {
        self.mismatches.is_empty() && self.unusable_entries == 0
    }
}

/// One line, such as `swimlane: 1234 collected + 0 dropped = 1234 recorded`.
impl fmt::Display for Reconciliation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Totals { collected, dropped, total } = self.sum();
        write!(f, "swimlane: {collected} collected + {dropped} dropped ")?;
        if self.is_exact() {
            return write!(f, "= {total} recorded");
        }
        write!(f, "do not account for {total} recorded")?;
        if let Some(Mismatch { kind, index, totals }) = self.mismatches.first() {
            let place = if kind.is_per_core() { "core" } else { "thread" };
            write!(f, ": {} of {place} {index}: ", kind.name())?;
            write!(f, "{} + {}, not {}", totals.collected, totals.dropped, totals.total)?;
            match self.mismatches.len() - 1 {
                0 => {}
                more => write!(f, " (and {more} pools more)")?,
            }
        }
        match self.unusable_entries {
            0 => Ok(()),
            entries => write!(f, "; {entries} unusable ready entries"),
        }
    }
}

/// What a run has left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// The records.
    pub records: Records,
    /// Whether they are all.
    pub reconciliation: Reconciliation,
}

/// A record that [`Records`] has a place for.
trait Kept: Record {
    fn kept(records: &mut Records) -> &mut Vec<Vec<Self>>;
}

macro_rules! kept {
    ($($type:ident: $field:ident),*) => {$(
        impl Kept for $type {
            fn kept(records: &mut Records) -> &mut Vec<Vec<Self>> {
                &mut records.$field
            }
        }
    )*};
}
kept!(
    AicpuTask: aicpu_tasks, AicoreTask: aicore_tasks,
    SchedPhase: sched_phases, OrchPhase: orch_phases, NamedScope: named_scopes
);

/// Empties the ready queues whenever it is told to, on whatever thread. [`Collector`](crate::Collector) is one
/// with a thread of its own.
#[derive(Debug)]
pub struct Drain {
    memory: Memory,
    records: Records,
    /// Buffers that came from each pool so far, by kind and index: the sequence number of the next.
    next_seq: [Vec<u32>; RecordKind::ALL.len()],
    unusable_entries: u64,
}

impl Drain {
    /// Resets the memory at `base` for a run that has not begun.
    ///
    /// The host addresses device memory directly here, as it can on the simulated chip. Elsewhere `base` would be
    /// a mapping, and the buffers' addresses those of the device.
    ///
    /// # Safety
    ///
    /// - `base` is aligned to [`ALIGN_BYTES`](crate::ALIGN_BYTES), and [`SwimlaneLayout::bytes`] are there for as
    ///   long as this is used.
    /// - The memory is accessed by this and by the writers of one run only. They begin after this call.
    /// - [`Drain::finish`] is called when they, and the cores whose records they reserved, have ended, and their
    ///   effects are visible: their threads were joined, or the launch was waited for.
    pub unsafe fn new(base: *mut u8, layout: SwimlaneLayout) -> Self {
        // SAFETY: the caller's first two obligations.
        let memory = unsafe { Memory::new(base, layout) };
        // SAFETY: nobody else accesses it yet.
        unsafe { Self::again(memory) }
    }

    /// Resets a memory for its next run.
    ///
    /// # Safety
    ///
    /// As for [`Drain::new`].
    pub(crate) unsafe fn again(memory: Memory) -> Self {
        // SAFETY: the caller's obligation.
        unsafe { memory.reset() };
        Self::over(memory)
    }

    /// Takes no notice of what may be in the memory.
    pub(crate) fn over(memory: Memory) -> Self {
        let layout = *memory.layout();
        Self {
            memory,
            records: Records {
                aicpu_tasks: empty_pools(&layout),
                aicore_tasks: empty_pools(&layout),
                sched_phases: empty_pools(&layout),
                orch_phases: empty_pools(&layout),
                named_scopes: empty_pools(&layout),
            },
            next_seq: RecordKind::ALL.map(|kind| vec![0; layout.pools(kind)]),
            unusable_entries: 0,
        }
    }

    pub(crate) const fn memory(&self) -> Memory {
        self.memory
    }

    /// Takes what is in the ready queues now, and gives the buffers back; calls `refilled` with a thread's index
    /// after each of its buffers. Returns the number of buffers.
    pub fn step(&mut self, mut refilled: impl FnMut(usize)) -> usize {
        let mut taken = 0;
        for thread in 0..self.memory.layout().threads() {
            let Some(queue) = self.memory.ready(thread) else { continue };
            // One turn of the queue at most, so that a busy thread does not keep the others waiting.
            for full in std::iter::from_fn(|| queue.pop()).take(queue.places.len()) {
                self.take(&full);
                taken += 1;
                refilled(thread);
            }
        }
        taken
    }

    /// Takes what is left, in the queues and in the buffers that are not full, and settles the accounts.
    pub fn finish(mut self) -> Collected {
        while self.step(|_| ()) > 0 {}
        let mut reconciliation = Reconciliation::default();
        for kind in RecordKind::ALL {
            for index in 0..self.memory.layout().pools(kind) {
                let totals = self.settle(kind, index);
                reconciliation.kinds[kind as usize].add(&totals);
                if !totals.is_exact() {
                    reconciliation.mismatches.push(Mismatch { kind, index, totals });
                }
            }
        }
        reconciliation.unusable_entries = self.unusable_entries;
        Collected { records: self.records, reconciliation }
    }

    /// Copies a full buffer and gives it back.
    fn take(&mut self, full: &FullBuffer) {
        let named = RecordKind::from_number(full.kind)
            .and_then(|kind| Some((kind, self.memory.layout().pool(kind, full.index as usize)?)));
        let Some((kind, place)) = named.filter(|(kind, place)| self.is_usable(*kind, place, full)) else {
            self.unusable_entries += 1;
            return;
        };
        self.next_seq[kind as usize][full.index as usize] = full.seq.wrapping_add(1);
        self.copy(kind, full);
        // Only now: the device may write into it from here on. There is a place, since a pool has no more buffers
        // than its free queue has places.
        self.memory.pool(&place).free.push(full.buffer);
    }

    /// Whether the buffer is one of the pool's, holds no more than it can, and is the next one.
    fn is_usable(&self, kind: RecordKind, place: &PoolPlace, full: &FullBuffer) -> bool {
        full.count <= place.capacity
            && self.memory.buffers(place).any(|buffer| buffer == full.buffer)
            && self.next_seq[kind as usize].get(full.index as usize) == Some(&full.seq)
    }

    /// Takes the buffer that a pool was filling, and reads its counts. After the run.
    fn settle(&mut self, kind: RecordKind, index: usize) -> Totals {
        let Some(place) = self.memory.layout().pool(kind, index) else { return Totals::default() };
        let head = &self.memory.pool(&place).head;
        // ORDERING: Relaxed: the device's threads were joined.
        let number = |word: &AtomicU32| word.load(Ordering::Relaxed);
        let buffer = head.buffer.load(Ordering::Relaxed);
        let (total, dropped) = (u64::from(number(&head.total)), u64::from(number(&head.dropped)));
        if buffer != 0 {
            let partial = FullBuffer {
                index: index as u32,
                kind: kind as u32,
                buffer,
                seq: number(&head.seq),
                count: number(&head.committed),
            };
            if self.is_usable(kind, &place, &partial) {
                self.copy(kind, &partial);
            } else {
                self.unusable_entries += 1;
            }
        }
        Totals { collected: self.kept(kind, index) as u64, dropped, total }
    }

    fn copy(&mut self, kind: RecordKind, full: &FullBuffer) {
        match kind {
            RecordKind::AicpuTask => self.copy_records::<AicpuTask>(full),
            RecordKind::AicoreTask => self.copy_records::<AicoreTask>(full),
            RecordKind::SchedPhase => self.copy_records::<SchedPhase>(full),
            RecordKind::OrchPhase => self.copy_records::<OrchPhase>(full),
            RecordKind::NamedScope => self.copy_records::<NamedScope>(full),
        }
    }

    fn copy_records<R: Kept>(&mut self, full: &FullBuffer) {
        let first = self.memory.at(full.buffer).cast_const().cast::<R>();
        // SAFETY: the buffer is one of the pool's and holds this many places (`is_usable`), all of them written
        // (they were committed). It is the host's from the pop of the ready queue, or from the end of the run, on.
        let records = unsafe { std::slice::from_raw_parts(first, full.count as usize) };
        if let Some(kept) = R::kept(&mut self.records).get_mut(full.index as usize) {
            kept.extend_from_slice(records);
        }
    }

    /// How many records of a pool there are.
    fn kept(&self, kind: RecordKind, index: usize) -> usize {
        fn length<R>(pools: &[Vec<R>], index: usize) -> usize {
            pools.get(index).map_or(0, Vec::len)
        }
        let records = &self.records;
        match kind {
            RecordKind::AicpuTask => length(&records.aicpu_tasks, index),
            RecordKind::AicoreTask => length(&records.aicore_tasks, index),
            RecordKind::SchedPhase => length(&records.sched_phases, index),
            RecordKind::OrchPhase => length(&records.orch_phases, index),
            RecordKind::NamedScope => length(&records.named_scopes, index),
        }
    }
}

fn empty_pools<R: Record>(layout: &SwimlaneLayout) -> Vec<Vec<R>> {
    vec![Vec::new(); layout.pools(R::KIND)]
}
