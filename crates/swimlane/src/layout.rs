//! Where what lies in the track's device memory, for both sides.
//!
//! ```text
//! +0    ready queues: [thread] { ends 128 B, places }
//!       pools:        [pool] { active head 64 B, free queue 128 B }   AICPU tasks [core], AICore tasks [core],
//!                                                                     scheduler, orchestrator, scopes [thread]
//!       buffers:      [pool][buffer][record]
//! ```
//!
//! A kind of record that the level leaves out has no pools, and level 0 has no bytes.

use crate::level::Level;
use crate::record::RecordKind;
use crate::rotation::{FREE_PLACES, Pool, ReadyEnds, ReadyPlace, ReadyQueue};

/// Alignment of the whole, and of each part: a cache line.
pub const ALIGN_BYTES: usize = 64;

/// AICPU task records in a buffer: 31 KiB, some tens of ms of a busy core (RUNTIME 6.1).
pub const AICPU_TASKS_PER_BUFFER: u32 = 1000;
/// AICore task records in a buffer: 32 KiB (RUNTIME 6.1).
pub const AICORE_TASKS_PER_BUFFER: u32 = 1024;
/// Scheduler phases in a buffer: 1 MiB, since a scheduler makes several in each turn of its loop (RUNTIME 6.1).
pub const SCHED_PHASES_PER_BUFFER: u32 = 16384;
/// Orchestrator phases in a buffer: 512 KiB, several for each submit (RUNTIME 6.1).
pub const ORCH_PHASES_PER_BUFFER: u32 = 16384;
/// Named scopes in a buffer: as many as orchestrator phases, since they are opened in the same loops.
pub const NAMED_SCOPES_PER_BUFFER: u32 = 16384;
/// Places of a ready queue: more than the buffers of all pools of a thread that owns every core of the largest
/// chip (2 × 72 + 3 pools of 4 buffers), so that with these figures it is never full.
pub const READY_PLACES: u32 = 1024;
/// The most places of a ready queue, far below where its 32-bit counters would wrap within it.
const READY_PLACES_MAX: u32 = 1 << 16;

const _: () = assert!(READY_PLACES.is_power_of_two() && READY_PLACES <= READY_PLACES_MAX);
const _: () = assert!(READY_PLACES as usize > (2 * 72 + 3) * FREE_PLACES);

#[cfg(not(loom))]
mod pinned {
    //! RUNTIME 6.1, and `simpler/swimlane.h`.
    use core::mem::offset_of;

    use super::{ALIGN_BYTES, Pool, ReadyEnds, ReadyPlace};
    use crate::rotation::{ActiveHead, FreeQueue};

    const _: () = assert!(size_of::<Pool>() == 192 && align_of::<Pool>() == ALIGN_BYTES);
    const _: () = assert!(size_of::<ActiveHead>() == 64 && size_of::<FreeQueue>() == 128);
    const _: () = assert!(offset_of!(Pool, head) == 0 && offset_of!(Pool, free) == 64);
    const _: () = assert!(offset_of!(ActiveHead, buffer) == 0 && offset_of!(ActiveHead, seq) == 8);
    const _: () = assert!(offset_of!(ActiveHead, total) == 12 && offset_of!(ActiveHead, dropped) == 16);
    const _: () = assert!(offset_of!(ActiveHead, count) == 20 && offset_of!(ActiveHead, committed) == 24);
    const _: () = assert!(size_of::<ReadyEnds>() == 128 && size_of::<ReadyPlace>() == 24);
}

/// How many records a buffer of each kind holds, and how many buffers and places there are.
///
/// What is beyond its bounds is taken as the bound: 1 at the least, 4 buffers at the most; the places of a ready
/// queue are rounded up to a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacities {
    /// Records per buffer.
    pub aicpu_tasks: u32,
    /// Records per buffer.
    pub aicore_tasks: u32,
    /// Records per buffer.
    pub sched_phases: u32,
    /// Records per buffer.
    pub orch_phases: u32,
    /// Records per buffer.
    pub named_scopes: u32,
    /// Buffers per pool, 1 to [`FREE_PLACES`].
    pub buffers: u32,
    /// Places of each thread's ready queue.
    pub ready_places: u32,
}

impl Default for Capacities {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl Capacities {
    /// The figures of RUNTIME 6.1.
    pub const DEFAULT: Self = Self {
        aicpu_tasks: AICPU_TASKS_PER_BUFFER,
        aicore_tasks: AICORE_TASKS_PER_BUFFER,
        sched_phases: SCHED_PHASES_PER_BUFFER,
        orch_phases: ORCH_PHASES_PER_BUFFER,
        named_scopes: NAMED_SCOPES_PER_BUFFER,
        buffers: FREE_PLACES as u32,
        ready_places: READY_PLACES,
    };

    /// The same number of records in every buffer.
    pub const fn uniform(records: u32, buffers: u32, ready_places: u32) -> Self {
        Self {
            aicpu_tasks: records,
            aicore_tasks: records,
            sched_phases: records,
            orch_phases: records,
            named_scopes: records,
            buffers,
            ready_places,
        }
    }

    const fn records(&self, kind: RecordKind) -> u32 {
        let records = match kind {
            RecordKind::AicpuTask => self.aicpu_tasks,
            RecordKind::AicoreTask => self.aicore_tasks,
            RecordKind::SchedPhase => self.sched_phases,
            RecordKind::OrchPhase => self.orch_phases,
            RecordKind::NamedScope => self.named_scopes,
        };
        if records == 0 { 1 } else { records }
    }

    const fn buffers(&self) -> usize {
        match self.buffers as usize {
            0 => 1,
            buffers if buffers > FREE_PLACES => FREE_PLACES,
            buffers => buffers,
        }
    }

    const fn ready_places(&self) -> usize {
        let most = if self.ready_places > READY_PLACES_MAX { READY_PLACES_MAX } else { self.ready_places };
        most.next_power_of_two() as usize
    }
}

/// The track's memory for a level, a number of AICPU threads and a number of cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwimlaneLayout {
    level: Level,
    threads: usize,
    cores: usize,
    capacities: Capacities,
}

/// One pool of a layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PoolPlace {
    /// Offset of its [`Pool`].
    pub(crate) offset: usize,
    /// Offset of its first buffer.
    pub(crate) first_buffer: usize,
    /// From one buffer to the next.
    pub(crate) buffer_bytes: usize,
    /// How many there are.
    pub(crate) buffers: usize,
    /// Records in each.
    pub(crate) capacity: u32,
}

const fn align_up(bytes: usize) -> usize {
    bytes.saturating_add(ALIGN_BYTES - 1) & !(ALIGN_BYTES - 1)
}

impl SwimlaneLayout {
    /// The layout for `aicpu_threads` threads that record and `cores` cores. Numbers that no address space holds
    /// give a size that no allocation grants.
    pub const fn new(level: Level, aicpu_threads: usize, cores: usize, capacities: Capacities) -> Self {
        Self { level, threads: aicpu_threads, cores, capacities }
    }

    /// What is recorded.
    pub const fn level(&self) -> Level {
        self.level
    }

    /// AICPU threads that record; none at level 0.
    pub const fn threads(&self) -> usize {
        if matches!(self.level, Level::Off) { 0 } else { self.threads }
    }

    /// Cores.
    pub const fn cores(&self) -> usize {
        self.cores
    }

    /// Pools of a kind: one per core or thread, or none at this level.
    pub const fn pools(&self, kind: RecordKind) -> usize {
        if !self.level.includes(kind) {
            return 0;
        }
        if kind.is_per_core() { self.cores } else { self.threads }
    }

    /// Records that a buffer of this kind holds.
    pub const fn records_per_buffer(&self, kind: RecordKind) -> u32 {
        self.capacities.records(kind)
    }

    /// Bytes of device memory, to be aligned to [`ALIGN_BYTES`].
    pub fn bytes(&self) -> usize {
        RecordKind::ALL.into_iter().fold(self.buffers_offset(), |bytes, kind| {
            bytes.saturating_add(self.pools(kind).saturating_mul(self.pool_buffers_bytes(kind)))
        })
    }

    /// The offset of a pool, whose words are those of `SimplerSwimlanePool`. None if there is no such pool.
    pub fn pool_offset(&self, kind: RecordKind, index: usize) -> Option<usize> {
        self.pool(kind, index).map(|pool| pool.offset)
    }

    /// Where the queues and pools end, which is all that a reset writes.
    pub(crate) fn buffers_offset(&self) -> usize {
        RecordKind::ALL.into_iter().fold(self.pools_offset(), |bytes, kind| {
            bytes.saturating_add(self.pools(kind).saturating_mul(size_of::<Pool>()))
        })
    }

    pub(crate) fn pool(&self, kind: RecordKind, index: usize) -> Option<PoolPlace> {
        if index >= self.pools(kind) {
            return None;
        }
        let (mut offset, mut first_buffer) = (self.pools_offset(), self.buffers_offset());
        for before in RecordKind::ALL.into_iter().take_while(|before| *before != kind) {
            let pools = self.pools(before);
            offset = offset.saturating_add(pools.saturating_mul(size_of::<Pool>()));
            first_buffer = first_buffer.saturating_add(pools.saturating_mul(self.pool_buffers_bytes(before)));
        }
        Some(PoolPlace {
            offset: offset.saturating_add(index.saturating_mul(size_of::<Pool>())),
            first_buffer: first_buffer.saturating_add(index.saturating_mul(self.pool_buffers_bytes(kind))),
            buffer_bytes: self.buffer_bytes(kind),
            buffers: self.capacities.buffers(),
            capacity: self.capacities.records(kind),
        })
    }

    const fn buffer_bytes(&self, kind: RecordKind) -> usize {
        align_up((self.capacities.records(kind) as usize).saturating_mul(kind.record_bytes()))
    }

    const fn pool_buffers_bytes(&self, kind: RecordKind) -> usize {
        self.buffer_bytes(kind).saturating_mul(self.capacities.buffers())
    }

    const fn ready_places(&self) -> usize {
        self.capacities.ready_places()
    }

    const fn ready_queue_bytes(&self) -> usize {
        align_up(size_of::<ReadyEnds>() + self.ready_places() * size_of::<ReadyPlace>())
    }

    const fn pools_offset(&self) -> usize {
        self.threads().saturating_mul(self.ready_queue_bytes())
    }
}

/// The memory of a layout. Copies of it are the same memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    base: *mut u8,
    layout: SwimlaneLayout,
}

// SAFETY: all that it gives out by itself is references to atomics; who turns it into records says why.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// # Safety
    ///
    /// - `base` is aligned to [`ALIGN_BYTES`], and [`SwimlaneLayout::bytes`] are there for as long as this or a
    ///   copy of it is used.
    /// - Nothing but queues, pools and records of this layout is accessed there.
    pub(crate) const unsafe fn new(base: *mut u8, layout: SwimlaneLayout) -> Self {
        Self { base, layout }
    }

    pub(crate) const fn layout(&self) -> &SwimlaneLayout {
        &self.layout
    }

    /// The words of a pool that the layout has given.
    pub(crate) fn pool<'a>(self, place: &PoolPlace) -> &'a Pool {
        let pool = self.base.wrapping_add(place.offset).cast::<Pool>();
        // SAFETY: inside the memory and aligned, as the layout computes it; atomics only; alive by `new`'s contract.
        unsafe { &*pool }
    }

    /// The ready queue of a thread.
    pub(crate) fn ready<'a>(self, thread: usize) -> Option<ReadyQueue<'a>> {
        if thread >= self.layout.threads() {
            return None;
        }
        let ends = self.base.wrapping_add(thread * self.layout.ready_queue_bytes()).cast::<ReadyEnds>();
        let places = ends.wrapping_add(1).cast::<ReadyPlace>();
        // SAFETY: as in `pool`.
        let ends = unsafe { &*ends };
        // SAFETY: as in `pool`; the places follow the ends.
        let places = unsafe { core::slice::from_raw_parts(places, self.layout.ready_places()) };
        Some(ReadyQueue { ends, places })
    }

    /// The pointer to an address inside the memory.
    pub(crate) fn at(self, address: u64) -> *mut u8 {
        self.base.wrapping_add((address as usize).wrapping_sub(self.base.addr()))
    }

    /// The addresses of a pool's buffers.
    #[cfg(feature = "host")]
    pub(crate) fn buffers(self, place: &PoolPlace) -> impl Iterator<Item = u64> + use<> {
        let (first, step) = (self.base.wrapping_add(place.first_buffer).addr(), place.buffer_bytes);
        (0..place.buffers).map(move |buffer| (first + buffer * step) as u64)
    }

    /// Zeroes queues and pools and gives every pool its buffers.
    ///
    /// # Safety
    ///
    /// Nobody else accesses the memory.
    #[cfg(feature = "host")]
    pub(crate) unsafe fn reset(self) {
        // SAFETY: the queues and pools lie before the buffers, inside the memory, and zeroes are legal in them.
        unsafe { self.base.write_bytes(0, self.layout.buffers_offset()) };
        for kind in RecordKind::ALL {
            for place in (0..self.layout.pools(kind)).filter_map(|index| self.layout.pool(kind, index)) {
                let free = &self.pool(&place).free;
                for buffer in self.buffers(&place) {
                    free.push(buffer);
                }
            }
        }
    }
}
