//! The sink: the ring, its doorbell, and the one thread that empties it.
//!
//! The writer renders what it finds into a batch, writes the batch, gives the slots back, and goes on until
//! the ring is empty; then it lingers, and then it sleeps. A record that was claimed earlier but is not yet
//! published stops it there: it sleeps like on an empty ring and is rung when that record is published.
//!
//! A regular file takes a batch in one `write`. Stderr, which may be a pipe shared with other processes,
//! takes one `write` per record, because only that much is written whole.

use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::{AtomicI32, AtomicPtr};

use simpler_log_abi::{DropReason, SimplerHostLogState};
use simpler_record_format::{RECORD_BYTES, frame};

use crate::admission::Gate;
use crate::anchor::AnchorClaim;
use crate::destination::{self, Output};
use crate::emit::count_drop;
use crate::identity::{monotonic_ns, pid, tid};
use crate::queue::{Consumer, QUEUE_SLOTS, Ring};
use crate::sync::{AtomicU32, Ordering, futex_wait, futex_wake};
use crate::wake::Doorbell;
use crate::{anchor_record, state};

/// How long the writer rests on a timer before it really sleeps: short enough that nobody misses a record,
/// long enough that a busy process is hardly ever asked for a wake.
const LINGER_NS: u64 = 1_000_000;

/// A producer that claims a position divisible by this rings a lingering writer, so that a burst cannot
/// fill the ring meanwhile.
const RING_EVERY: u64 = QUEUE_SLOTS as u64 / 4;

/// What one `write` to a file carries at most: large enough that its cost per record vanishes, small enough
/// for the cache and for the slots that are held meanwhile.
const BATCH_BYTES: usize = 64 * 1024;

/// The records of one batch at most, so that most slots are free while it is written.
const BATCH_RECORDS: usize = QUEUE_SLOTS / 8;

/// How long one wait for the writer lasts before the condition is looked at again: neither a lost wake nor
/// a producer that leaves unannounced can cost more.
const DRAIN_SLICE_NS: u64 = 1_000_000;

const _: () = assert!(RING_EVERY.is_power_of_two());
const _: () = assert!(BATCH_BYTES >= 2 * RECORD_BYTES);

/// The sink's memory: mapped once, never unmapped, so that a producer that is late, or that lives in a
/// module which is about to go, can never touch memory that is gone.
///
/// FORK: the child has its own copy and resets it before its writer starts.
static SINK: AtomicPtr<Sink> = AtomicPtr::new(core::ptr::null_mut());

/// The writer's open file, for a child of a parent that was not quiesced: it closes what it inherited.
///
/// FORK: the child takes it before anything else, see [`close_inherited_file`].
static WRITER_FILE: AtomicI32 = AtomicI32::new(-1);

/// In a child: closes the file that the writer of process `parent` had open, if the number still means it. A
/// child that ran no fork handler may have reused it. Async-signal-safe.
pub(crate) fn close_inherited_file(parent: i32) {
    let inherited = WRITER_FILE.swap(-1, Ordering::Relaxed);
    if inherited >= 0 && destination::is_log_of(inherited, parent) {
        // SAFETY: the parent's writer opened it, the child has no other user of it.
        unsafe { libc::close(inherited) };
    }
}

/// What `sink_context` points to.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Sink {
    pub(crate) ring: Ring,
    pub(crate) doorbell: Doorbell,
    /// The process whose writer uses it; 0 in fresh memory.
    process: AtomicI32,
    /// Grows with every batch; who waits for the writer sleeps on it.
    batches: AtomicU32,
    waiters: AtomicU32,
}

impl Sink {
    /// The sink, if it was ever mapped.
    #[inline]
    pub(crate) fn mapped() -> Option<&'static Sink> {
        // ORDERING: Acquire pairs with the Release in `map`.
        let sink = SINK.load(Ordering::Acquire);
        // SAFETY: null, or memory that `map` made and that stays for ever; shared access to atomics and to a
        // ring that guards its cells itself.
        unsafe { sink.as_ref() }
    }

    /// The sink, mapped now if need be. `None` without memory. Only under the owner word's claim.
    pub(crate) fn map() -> Option<&'static Sink> {
        if let Some(sink) = Sink::mapped() {
            return Some(sink);
        }
        // SAFETY: an anonymous mapping at an address of the kernel's choice touches nothing of ours.
        let memory = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                size_of::<Sink>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if memory == libc::MAP_FAILED {
            return None;
        }
        // Zeroed memory is a valid Sink: atomics, integers and bytes; and a page is more than its alignment.
        // ORDERING: Release pairs with the Acquire in `mapped`.
        SINK.store(memory.cast(), Ordering::Release);
        Sink::mapped()
    }

    /// Makes the sink this process's own, if it is not already: empty, with nothing inherited.
    pub(crate) fn adopt(&self, process: i32) {
        if self.process.load(Ordering::Relaxed) == process {
            return;
        }
        self.ring.reset();
        self.doorbell.reset();
        self.waiters.store(0, Ordering::Relaxed);
        self.process.store(process, Ordering::Relaxed);
    }

    /// Takes a record from a producer that has entered the gate, and leaves for it.
    // HOT: claim, copy, leave, and a look at the doorbell.
    #[inline]
    pub(crate) fn accept(&self, state: &SimplerHostLogState, record: &[u8], anchor_pid: i32) -> bool {
        let gate = Gate::new(&state.sink_producer_state);
        match self.ring.claim() {
            Ok(claim) => {
                let at_mark = claim.position() & (RING_EVERY - 1) == 0;
                self.ring.publish(claim, record, anchor_pid);
                gate.leave();
                if at_mark {
                    self.doorbell.ring();
                } else {
                    self.doorbell.ring_if_asleep();
                }
                true
            }
            Err(reason) => {
                // Counted while inside: a quiesce that has seen everybody leave has every count.
                count_drop(state, reason);
                gate.leave();
                // A full ring whose writer lingers is one that nobody rang for.
                self.doorbell.ring();
                false
            }
        }
    }

    /// Waits until `done`, with the writer awake, at most until `deadline_ns`. Gives whether it came to it.
    pub(crate) fn wait_until(&self, deadline_ns: i64, done: impl Fn() -> bool) -> bool {
        self.waiters.fetch_add(1, Ordering::Relaxed);
        let met = loop {
            // ORDERING: Acquire pairs with the Release in `finish_batch`.
            let batches = self.batches.load(Ordering::Acquire);
            if done() {
                break true;
            }
            let left_ns = deadline_ns.saturating_sub(monotonic_ns());
            if left_ns <= 0 {
                break false;
            }
            self.doorbell.ring();
            futex_wait(&self.batches, batches, Some(DRAIN_SLICE_NS.min(left_ns as u64)));
        };
        self.waiters.fetch_sub(1, Ordering::Relaxed);
        met
    }

    /// Stores the number of pending records where other modules can read it.
    pub(crate) fn refresh_pending(&self, state: &SimplerHostLogState) {
        state.pending_record_count.store(self.ring.pending(), Ordering::Relaxed);
    }
}

/// The callback that other modules submit through; the contract is that of
/// [`simpler_log_abi::SimplerHostLogEnqueueFn`].
///
/// # Safety
///
/// - The caller has entered the gate of `state` and does not leave it.
/// - `record` is readable for `size` bytes, or null.
pub(crate) unsafe extern "C" fn enqueue(
    context: *mut c_void,
    state: *mut SimplerHostLogState,
    record: *const c_char,
    size: u32,
    anchor_pid: i32,
) -> c_int {
    // SAFETY: the caller's state lives for the process; null is sanitised to the owner's.
    let state = unsafe { state.as_ref() }.unwrap_or(crate::state());
    let size = size as usize;
    let sink =
        Sink::mapped().filter(|sink| core::ptr::from_ref(*sink) == context.cast::<Sink>().cast_const());
    // ORDERING: Acquire pairs with the Release of the owner in `start_writer`.
    let is_ours = state.sink_owner_pid.load(Ordering::Acquire) == pid();
    let Some(sink) = sink.filter(|_| is_ours && !record.is_null() && (1..=RECORD_BYTES).contains(&size))
    else {
        count_drop(state, DropReason::NotAdmitted);
        Gate::new(&state.sink_producer_state).leave();
        return 0;
    };
    // SAFETY: readable by the function's contract.
    let record = unsafe { core::slice::from_raw_parts(record.cast::<u8>(), size) };
    if record[0] >= frame::FIRST_TEXT_BYTE {
        return c_int::from(sink.accept(state, record, anchor_pid));
    }
    // A frame: this is the caller's thread, so its ids are known here.
    let mut copy = [0; RECORD_BYTES];
    copy[..size].copy_from_slice(record);
    frame::set_thread_ids(&mut copy[..size], pid(), i64::from(tid()));
    c_int::from(sink.accept(state, &copy[..size], anchor_pid))
}

/// The writer thread's whole life.
pub(crate) extern "C" fn writer_main(sink: *mut c_void) -> *mut c_void {
    // SAFETY: `start_writer` passes the mapped sink, which stays for ever.
    let sink = unsafe { &*sink.cast::<Sink>() };
    // SAFETY: the owner word admits one writer, and it is joined before another starts.
    let consumer = unsafe { sink.ring.consumer() };
    Writer { sink, consumer, output: Output::new(Some(&WRITER_FILE)), batch: Batch::new() }.run();
    core::ptr::null_mut()
}

struct Writer {
    sink: &'static Sink,
    consumer: Consumer<'static>,
    output: Output,
    batch: Batch,
}

impl Writer {
    fn run(mut self) {
        let gate = Gate::new(&state().sink_producer_state);
        let mut is_rested = false;
        loop {
            self.fill_batch();
            if !self.batch.is_empty() {
                self.write_batch();
                self.finish_batch();
                is_rested = false;
            } else if self.sink.doorbell.is_stopped() && self.sink.ring.pending() == 0 {
                return;
            } else if !is_rested && !self.sink.doorbell.is_stopped() {
                self.sink.doorbell.linger(LINGER_NS);
                is_rested = true;
            } else {
                let has_work = || {
                    self.consumer.has_next()
                        || self.sink.doorbell.is_stopped() && self.sink.ring.pending() == 0
                };
                self.sink.doorbell.sleep(gate, has_work);
            }
        }
    }

    /// Renders published records until the batch is full or there are no more.
    fn fill_batch(&mut self) {
        self.batch.clear();
        while let Some(line) = self.batch.room() {
            let rendered = self.consumer.read(|record, anchor_pid| (frame::render(record, line), anchor_pid));
            match rendered {
                Some((size, anchor_pid)) => self.batch.push(size, anchor_pid),
                None => return,
            }
        }
    }

    /// Writes the batch; every record of it lands or is counted.
    fn write_batch(&mut self) {
        let mut first = 0;
        while first < self.batch.len() {
            if !destination::is_bound(state()) {
                self.settle(first, destination::write_stderr(self.batch.record(first)), true);
                first += 1;
                continue;
            }
            let landed = self.output.append(
                &self.batch.text,
                self.batch.start(first),
                &self.batch.ends[first..self.batch.len()],
            );
            for index in first..first + landed {
                self.settle(index, true, false);
            }
            first += landed;
            if first < self.batch.len() {
                // This one was refused; the next one tries again, with the file opened anew.
                self.settle(first, false, false);
                first += 1;
            }
        }
    }

    /// Takes note of what became of one record.
    fn settle(&self, index: usize, landed: bool, on_stderr: bool) {
        let state = state();
        // Nothing rendered: the slot held a frame of a kind that this writer does not know.
        let landed = landed && !self.batch.record(index).is_empty();
        let anchor_pid = self.batch.anchor_pid(index);
        if !landed {
            count_drop(state, DropReason::OutputFailed);
        }
        if anchor_pid != 0 && !landed {
            AnchorClaim::new(&state.clock_anchor_pid).undo(anchor_pid);
        }
        if anchor_pid != 0 && landed && on_stderr {
            anchor_record::went_to_stderr(anchor_pid);
        }
    }

    fn finish_batch(&mut self) {
        self.consumer.release();
        self.sink.refresh_pending(state());
        // ORDERING: Release pairs with the Acquire in `wait_until`.
        self.sink.batches.fetch_add(1, Ordering::Release);
        if self.sink.waiters.load(Ordering::Relaxed) != 0 {
            futex_wake(&self.sink.batches, i32::MAX);
        }
    }
}

/// Rendered records one behind the other.
struct Batch {
    text: [u8; BATCH_BYTES],
    ends: [u32; BATCH_RECORDS],
    anchor_pids: [i32; BATCH_RECORDS],
    records: usize,
}

impl Batch {
    fn new() -> Self {
        Self { text: [0; BATCH_BYTES], ends: [0; BATCH_RECORDS], anchor_pids: [0; BATCH_RECORDS], records: 0 }
    }

    fn clear(&mut self) {
        self.records = 0;
    }

    fn len(&self) -> usize {
        self.records
    }

    fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// Where the next record is rendered, if there is room for the longest.
    fn room(&mut self) -> Option<&mut [u8; RECORD_BYTES]> {
        let start = self.start(self.records);
        if self.records == BATCH_RECORDS {
            return None;
        }
        self.text[start..].first_chunk_mut()
    }

    /// The record rendered at [`Batch::room`] has `size` bytes.
    fn push(&mut self, size: usize, anchor_pid: i32) {
        self.ends[self.records] = (self.start(self.records) + size) as u32;
        self.anchor_pids[self.records] = anchor_pid;
        self.records += 1;
    }

    fn start(&self, index: usize) -> usize {
        index.checked_sub(1).map_or(0, |before| self.ends[before] as usize)
    }

    fn record(&self, index: usize) -> &[u8] {
        &self.text[self.start(index)..self.ends[index] as usize]
    }

    fn anchor_pid(&self, index: usize) -> i32 {
        self.anchor_pids[index]
    }
}
