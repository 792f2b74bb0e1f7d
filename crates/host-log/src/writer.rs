//! The writer: the one thread that empties the queue, and the callback by which other modules fill it.
//!
//! The writer renders what it finds into a batch, writes the batch, notes in the region how far it has come,
//! gives the slots back, and goes on until the queue is empty; then it lingers, and then it sleeps. A record that
//! was claimed earlier but is not yet published stops it there: it sleeps like on an empty queue and is rung
//! when that record is published.
//!
//! A regular file takes a batch in one `write`. Stderr, which may be a pipe shared with other processes,
//! takes one `write` per record, because only that much is written whole.

use core::ffi::{c_char, c_int, c_void};

use simpler_log_abi::{DropReason, SimplerHostLogState};
use simpler_record_format::{RECORD_BYTES, frame};

use crate::admission::Gate;
use crate::anchor::AnchorClaim;
use crate::destination::{self, Output};
use crate::identity::{begin_life, clear_ready, monotonic_ns};
use crate::queue::{Consumer, QUEUE_SLOTS};
use crate::region::{Come, Region};
use crate::sync::{Ordering, futex_wait, futex_wake};
use crate::ticks::{self, Knots};
use crate::{emit, host_identity, state, thread};

/// How long the writer rests on a timer before it really sleeps: short enough that nobody who looks at the log misses
/// a record, long enough that a process which does something every few milliseconds is not asked for a wake each time,
/// nor its processors interrupted: a wake costs the one who asks some 15 µs, and whoever has the processor as much.
/// Who waits for the log rings, and so does who fills half of the queue.
const LINGER_NS: u64 = 20_000_000;

/// What one `write` to a file carries at most: large enough that its cost per record vanishes, small enough
/// for the cache and for the slots that are held meanwhile.
const BATCH_BYTES: usize = 64 * 1024;

/// The records of one batch at most, so that most slots are free while it is written.
const BATCH_RECORDS: usize = QUEUE_SLOTS / 8;

/// How long one wait for the writer lasts before the condition is looked at again: neither a lost wake nor
/// a producer that leaves unannounced can cost more.
const DRAIN_SLICE_NS: u64 = 1_000_000;

/// How long it rests when a record waits behind a position that its owner has reserved and not used: that is
/// taken from it then. What a thread needs between two records of a burst, many times over.
const HOLE_NS: u64 = 50_000;

const _: () = assert!(BATCH_BYTES >= 2 * RECORD_BYTES);

impl Region {
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

    /// Stores the number of pending records where other modules can read it. Whoever stores looks again: of several
    /// that do at once the last one leaves the right number. Reserved positions count until the writer, at rest, has
    /// taken them back: to tell them apart would mean to look at slots that others are just filling.
    pub(crate) fn refresh_pending(&self, state: &SimplerHostLogState) {
        /// Enough for those that meet here; a number that changes all the time is refreshed by who changes it.
        const LOOKS: u32 = 8;
        for _ in 0..LOOKS {
            let unfinished = self.ring.unfinished();
            // ORDERING: AcqRel: the look that follows comes after it.
            state.pending_record_count.swap(unfinished, Ordering::AcqRel);
            if self.ring.unfinished() == unfinished {
                return;
            }
        }
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
    // SAFETY: readable for `size` bytes, or null, by the function's contract.
    let accepted = unsafe { accept_others(context, state, record.cast(), size as usize, anchor_pid) };
    // Left only now: a quiesce that has seen everybody leave has every count.
    Gate::new(&state.sink_producer_state).leave();
    c_int::from(accepted)
}

/// Takes a record of another module into the queue, if `context` is the one that is in use. A loss is counted.
///
/// # Safety
///
/// - `record` is readable for `size` bytes, or null.
unsafe fn accept_others(
    context: *mut c_void,
    state: &SimplerHostLogState,
    record: *const u8,
    size: usize,
    anchor_pid: i32,
) -> bool {
    let thread = thread::current();
    // First of all: in a child this forgets the parent's region.
    thread.refresh();
    let region = Region::current()
        .filter(|region| core::ptr::from_ref(*region) == context.cast::<Region>().cast_const());
    // ORDERING: Acquire pairs with the Release of the owner in `start_writer`.
    let is_ours = state.sink_owner_pid.load(Ordering::Acquire) == thread.pid();
    let Some(region) = region.filter(|_| is_ours && !record.is_null() && (1..=RECORD_BYTES).contains(&size))
    else {
        emit::count_drop(state, DropReason::NotAdmitted);
        return false;
    };
    // SAFETY: not null, so readable by the function's contract.
    let record = unsafe { core::slice::from_raw_parts(record, size) };
    if frame::last_tick(record).is_some() {
        // Only the owner's own threads take readings that its writer can convert.
        emit::count_drop(state, DropReason::NotAdmitted);
        return false;
    }
    // A frame: this is the caller's thread, so its ids are known here.
    let (pid, tid) = (thread.emitter().pid(), thread.emitter().tid());
    let with_ids = |frame: &mut [u8]| frame::set_thread_ids(frame, pid, tid);
    // A negative one would be this module's own.
    let accepted = emit::accept(region, thread, record, anchor_pid.max(0), with_ids);
    // For the caller's own flush, which can see no more than this number.
    region.refresh_pending(state);
    accepted
}

/// The writer thread's whole life.
pub(crate) extern "C" fn writer_main(region: *mut c_void) -> *mut c_void {
    yield_to_others();
    // SAFETY: `start_writer` passes the current region, which stays for ever.
    let region: &'static Region = unsafe { &*region.cast::<Region>() };
    // SAFETY: the owner word admits one writer, and it is joined before another starts.
    let consumer = unsafe { region.ring.consumer() };
    // Also where threads read the kernel's clock by now, but once read the counter.
    let knots = region.ticks.latest().is_some().then(|| Knots::new(&region.ticks));
    let failed = region.come().failed;
    // On the heap, since the thread's stack may be small.
    let batch = Batch::new();
    Writer { region, consumer, knots, output: Output::new(true), batch, failed }.run();
    core::ptr::null_mut()
}

/// Tells the scheduler that this thread is in no hurry: it keeps its share, but does not take a processor from a thread
/// that runs just because its rest is over. Where that is refused the writer is as good as any.
fn yield_to_others() {
    // SAFETY: a zeroed parameter is the one that this policy asks for.
    let parameters: libc::sched_param = unsafe { core::mem::zeroed() };
    // SAFETY: the parameter is there for the call to read; 0 is this thread.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const parameters) };
}

struct Writer {
    region: &'static Region,
    consumer: Consumer<'static>,
    /// `None` where all times were always ns.
    knots: Option<Knots>,
    output: Output,
    batch: Box<Batch>,
    /// How many records this process's writers have lost.
    failed: u64,
}

impl Writer {
    fn run(mut self) {
        let region = self.region;
        let is_at_end = || region.doorbell.is_stopped() && region.ring.unfinished() == 0;
        let mut is_rested = false;
        loop {
            // What threads have reserved and do not use is taken from them once there was time to use it, or when
            // the queue shall become empty.
            let revokes = is_rested
                || region.doorbell.is_stopped()
                || region.waiters.load(Ordering::Relaxed) != 0
                || region.ring.unfinished() > QUEUE_SLOTS as u64 / 2;
            let revoked = self.fill_batch(revokes);
            if !self.batch.is_empty() || revoked {
                self.write_batch();
                self.finish_batch();
                is_rested = false;
            } else if is_at_end() {
                break;
            } else if !is_rested && !region.doorbell.is_stopped() {
                region.doorbell.linger(if self.consumer.is_held_up() { HOLE_NS } else { LINGER_NS });
                is_rested = true;
            } else {
                let position = self.consumer.position();
                let has_work =
                    || self.consumer.has_next() || self.consumer.is_reserved(position) || is_at_end();
                region.doorbell.sleep(has_work);
            }
        }
        if let Some(error_ns) = self.knots.as_ref().and_then(Knots::error_ns) {
            region.clock_error_ns.fetch_max(error_ns, Ordering::Relaxed);
        }
    }

    /// Renders published records until the batch is full or there are no more, and takes back reserved positions
    /// among them if `revokes`. Gives whether it took any.
    fn fill_batch(&mut self, revokes: bool) -> bool {
        self.batch.clear();
        let mut revoked = false;
        let may_revoke = revokes && self.consumer.is_reserved(self.consumer.position());
        if !(self.consumer.has_next() || may_revoke) {
            return revoked;
        }
        self.take_knot();
        let convertible = self.knots.as_ref().map_or(u64::MAX, Knots::latest_tick);
        let clock = &self.region.ticks;
        while let Some(line) = self.batch.room() {
            if revokes && self.consumer.revoke() {
                revoked = true;
                continue;
            }
            let rendered = self.consumer.read(|record, anchor_pid| {
                // Made after the knot was read: the next batch's.
                if frame::last_tick(record).is_some_and(|tick| tick > convertible) {
                    return None;
                }
                Some((frame::render(record, line, |tick| clock.to_ns(tick)), anchor_pid))
            });
            match rendered {
                Some((size, anchor_pid)) => self.batch.push(size, anchor_pid, self.consumer.position()),
                None => break,
            }
        }
        revoked
    }

    /// Makes the counter's readings so far convertible.
    fn take_knot(&mut self) {
        let Some(knots) = &mut self.knots else { return };
        let mut is_a_clock = knots.extend();
        knots.replace_past(self.consumer.position());
        if knots.are_many() {
            let mut starts = Vec::new();
            self.region.stacks.for_each(|_, _, frame| {
                if frame[0] == frame::SPAN_TICKS_FRAME {
                    starts.push(frame::start_of(frame).cast_unsigned());
                }
            });
            knots.plan_replacement(starts, self.region.ring.enqueued());
            is_a_clock &= ticks::is_a_clock();
        }
        if !is_a_clock && self.region.uses_ticks() {
            // From now on threads read the kernel's clock; what they have read before is converted as well as
            // it can be.
            self.region.leave_ticks();
            begin_life();
        }
    }

    /// Writes the batch; every record of it lands or is counted.
    fn write_batch(&mut self) {
        let mut first = 0;
        while first < self.batch.len() {
            if !destination::is_bound(state()) {
                let landed = destination::write_stderr(self.batch.record(first));
                let landed = self.settle(first, landed, true);
                first += 1;
                self.commit(first, None, u64::from(!landed));
                continue;
            }
            let landed = self.output.append(
                &self.batch.text,
                self.batch.start(first),
                &self.batch.ends[first..self.batch.len()],
            );
            let mut lost = 0;
            for index in first..first + landed {
                lost += u64::from(!self.settle(index, true, false));
            }
            first += landed;
            if first < self.batch.len() {
                // This one was refused; the next one tries again, with the file opened anew.
                lost += u64::from(!self.settle(first, false, false));
                first += 1;
            }
            self.commit(first, self.output.bytes(), lost);
        }
    }

    /// Notes that the first `done` records of the batch, at least one, are dealt with, `lost` more by counting.
    fn commit(&mut self, done: usize, file_bytes: Option<u64>, lost: u64) {
        self.failed += lost;
        let next = self.batch.behind[done - 1];
        self.region.commit(Come { next, file_bytes, failed: self.failed });
    }

    /// Takes note of what became of one record, and gives whether it landed.
    fn settle(&self, index: usize, landed: bool, on_stderr: bool) -> bool {
        let state = state();
        // Nothing rendered: the slot held a frame of a kind that this writer does not know.
        let landed = landed && !self.batch.record(index).is_empty();
        let anchor_pid = self.batch.anchor_pid(index);
        if !landed {
            emit::count_drop_of_writer(state);
        }
        if anchor_pid != 0 && !landed {
            match anchor_pid {
                1.. => AnchorClaim::new(&state.clock_anchor_pid).undo(anchor_pid),
                _ => host_identity::claim().undo(anchor_pid.wrapping_neg()),
            }
            clear_ready();
        }
        if landed && on_stderr {
            emit::note_on_stderr(anchor_pid, self.batch.record(index));
        }
        landed
    }

    fn finish_batch(&mut self) {
        self.consumer.release();
        self.region.note_refused(state());
        self.region.refresh_pending(state());
        // ORDERING: Release pairs with the Acquire in `wait_until`.
        self.region.batches.fetch_add(1, Ordering::Release);
        if self.region.waiters.load(Ordering::Relaxed) != 0 {
            futex_wake(&self.region.batches, i32::MAX);
        }
    }
}

/// Rendered records one behind the other.
struct Batch {
    text: [u8; BATCH_BYTES],
    ends: [u32; BATCH_RECORDS],
    anchor_pids: [i32; BATCH_RECORDS],
    /// For each record the position behind it: everything below is read.
    behind: [u64; BATCH_RECORDS],
    records: usize,
}

impl Batch {
    fn new() -> Box<Self> {
        // SAFETY: zero is a valid number.
        unsafe { Box::new_zeroed().assume_init() }
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

    /// The record rendered at [`Batch::room`] has `size` bytes and lies before the position `behind`.
    fn push(&mut self, size: usize, anchor_pid: i32, behind: u64) {
        self.ends[self.records] = (self.start(self.records) + size) as u32;
        self.anchor_pids[self.records] = anchor_pid;
        self.behind[self.records] = behind;
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
