//! What the tests share: memory that stands for the device's, and gates of their own.
#![allow(dead_code, reason = "each test file uses its own part")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail where it stands")]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use simpler_swimlane::{
    ALIGN_BYTES, Capacities, CoreRecord, Drain, Gate, Level, OrchPhase, RecordKind, SwimlaneLayout,
    ThreadRecord, ThreadTrack, Writer,
};

/// A test that takes longer than this hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Memory of a layout, full of rubbish.
pub(crate) struct Device {
    base: *mut u8,
    pub(crate) layout: SwimlaneLayout,
}

// SAFETY: a pointer to memory that the tests access through the crate.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

impl Device {
    pub(crate) fn new(level: Level, threads: usize, cores: usize, capacities: Capacities) -> Self {
        let layout = SwimlaneLayout::new(level, threads, cores, capacities);
        let of_memory = Self::memory(&layout);
        // SAFETY: the size is not 0.
        let base = unsafe { alloc(of_memory) };
        if base.is_null() {
            handle_alloc_error(of_memory);
        }
        // SAFETY: that many bytes were allocated.
        unsafe { base.write_bytes(0xa5, of_memory.size()) };
        Self { base, layout }
    }

    /// All records at all levels, `records` a buffer, `buffers` a pool.
    pub(crate) fn small(records: u32, buffers: u32, ready_places: u32) -> Self {
        Self::new(Level::OrchestratorPhases, 2, 3, Capacities::uniform(records, buffers, ready_places))
    }

    fn memory(layout: &SwimlaneLayout) -> Layout {
        Layout::from_size_align(layout.bytes().max(1), ALIGN_BYTES).unwrap()
    }

    pub(crate) fn base(&self) -> *mut u8 {
        self.base
    }

    pub(crate) fn drain(&self) -> Drain {
        // SAFETY: the tests use one drain at a time, and finish it when their writers are done.
        unsafe { Drain::new(self.base, self.layout) }
    }

    pub(crate) fn track<'a>(&self, thread: usize, gate: &'a dyn Gate) -> ThreadTrack<'a> {
        // SAFETY: the tests drop their writers before the device, and make one per pool.
        unsafe { ThreadTrack::new(self.base, self.layout, thread, gate) }
    }

    pub(crate) fn thread_writer<'a, R: ThreadRecord>(
        &self,
        thread: usize,
        gate: &'a dyn Gate,
    ) -> Writer<'a, R> {
        // SAFETY: as in `track`.
        unsafe { self.track(thread, gate).thread_writer() }.unwrap()
    }

    pub(crate) fn core_writer<'a, R: CoreRecord>(
        &self,
        thread: usize,
        core: usize,
        gate: &'a dyn Gate,
    ) -> Writer<'a, R> {
        // SAFETY: as in `track`.
        unsafe { self.track(thread, gate).core_writer(core) }.unwrap()
    }

    /// A word of a pool's active head, at an offset of RUNTIME 6.1 or of the header.
    pub(crate) fn head_word(&self, kind: RecordKind, index: usize, offset: usize) -> &AtomicU32 {
        let at = self.layout.pool_offset(kind, index).unwrap() + offset;
        let word = self.base.wrapping_add(at).cast();
        // SAFETY: inside the memory and aligned; a word that everybody accesses as an atomic.
        unsafe { AtomicU32::from_ptr(word) }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: allocated like this in `new`.
        unsafe { dealloc(self.base, Self::memory(&self.layout)) };
    }
}

/// Offsets in the active head.
pub(crate) const SEQ: usize = 8;
pub(crate) const TOTAL: usize = 12;
pub(crate) const DROPPED: usize = 16;

/// Nobody opens it; counts who tried.
#[derive(Default)]
pub(crate) struct ShutGate {
    pub(crate) handed_over: Cell<u32>,
    pub(crate) waits: Cell<u32>,
}

impl Gate for ShutGate {
    fn handed_over(&self) {
        self.handed_over.set(self.handed_over.get() + 1);
    }

    fn wait(&self, open: &mut dyn FnMut() -> bool) -> bool {
        self.waits.set(self.waits.get() + 1);
        assert!(!open(), "a gate that is open is not waited for");
        false
    }
}

/// Drains when somebody waits: a slow collector, on the device's own thread.
pub(crate) struct DrainingGate {
    pub(crate) drain: RefCell<Option<Drain>>,
    pub(crate) waits: Cell<u32>,
}

impl DrainingGate {
    pub(crate) fn new(drain: Drain) -> Self {
        Self { drain: RefCell::new(Some(drain)), waits: Cell::new(0) }
    }
}

impl Gate for DrainingGate {
    fn handed_over(&self) {}

    fn wait(&self, open: &mut dyn FnMut() -> bool) -> bool {
        self.waits.set(self.waits.get() + 1);
        assert!(!open(), "a gate that is open is not waited for");
        self.drain.borrow_mut().as_mut().unwrap().step(|_| ());
        open()
    }
}

pub(crate) fn phase(submit_idx: u32) -> OrchPhase {
    let start = u64::from(submit_idx) * 3;
    OrchPhase { start, end: start + 2, task_id: !start, submit_idx, reserved: 0 }
}

pub(crate) fn phases(range: std::ops::Range<u32>) -> Vec<OrchPhase> {
    range.map(phase).collect()
}

pub(crate) fn poll_until(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < PATIENCE, "waited in vain until {what}");
        std::thread::yield_now();
    }
}

pub(crate) fn value(word: &AtomicU32) -> u32 {
    word.load(Ordering::Relaxed)
}
