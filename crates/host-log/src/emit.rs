//! The way of a record: asked for, encoded, queued, or written at once while there is no writer.

use core::ffi::c_void;
use core::fmt::{self, Write};
use core::sync::atomic::Ordering;

use simpler_log_abi::{DropReason, Level, SimplerHostLogEnqueueFn, SimplerHostLogState, Threshold};
use simpler_record_format::frame::{self, TextFrame};
use simpler_record_format::{Location, RECORD_BYTES, SpanFields};

use crate::admission::Gate;
use crate::anchor::AnchorClaim;
use crate::binding::own_state;
use crate::destination::{self, Output};
use crate::identity::clear_ready;
use crate::region::Region;
use crate::thread::{self, Thread};
use crate::{anchor_record, host_identity, is_bound, state, ticks};

/// Whether a record at `level` would be emitted now.
// HOT: two loads.
#[inline]
pub fn enabled(level: Level) -> bool {
    // Relaxed: a change of the threshold takes effect soon, not at a certain record. A value off the ladder, which
    // only another module can store, shifts the border; NUL's value is above every level's.
    level as i32 >= state().threshold.load(Ordering::Relaxed)
}

/// As [`enabled`] where the log is this module's own.
// HOT: one load.
#[inline(always)]
pub(crate) fn enabled_here(level: Level) -> bool {
    level as i32 >= own_state().threshold.load(Ordering::Relaxed)
}

/// Changes the threshold, for this and all bound modules of the process at once.
pub fn set_threshold(threshold: Threshold) {
    state().threshold.store(threshold.get(), Ordering::Relaxed);
}

/// Emits a text record; the macros are the usual way here. Does nothing when the level is muted.
///
/// The record has at most 512 bytes with its newline; a longer one is cut there and ends in `~`.
pub fn log(level: Level, func: &str, location: Option<Location<'_>>, body: fmt::Arguments<'_>) {
    if !enabled(level) {
        return;
    }
    let mut frame = TextFrame::new(level, func, location);
    if frame.write_fmt(body).is_err() {
        frame.push(b"~");
    }
    emit_text(&mut frame);
}

/// Emits a text record of which all is written. Nothing is claimed before: what writes it is the caller's code, which
/// may panic.
pub fn emit_text(frame: &mut TextFrame) {
    let thread = thread::current();
    let way = Way::of(thread);
    let is_ticks = matches!(way, Way::Queue(_)) && thread.reads_ticks();
    let record = frame.finish(thread.now(is_ticks), is_ticks, thread.emitter().thread());
    submit(way, thread, record, 0);
}

/// Emits a span of this process and thread whose times are ns; pid and tid are filled in here.
pub(crate) fn span(mono_ns: i64, span: SpanFields<'_>) {
    // Asked again: the threshold may have changed since the span was entered.
    if !enabled(Level::Timing) {
        return;
    }
    let thread = thread::current();
    let way = Way::of(thread);
    let mut record = [0; RECORD_BYTES];
    let emitter = thread.emitter();
    let span = SpanFields { pid: emitter.pid(), tid: emitter.tid(), ..span };
    let size = frame::encode_span_frame(&mut record, mono_ns, emitter.thread(), &span);
    submit(way, thread, &record[..size], 0);
}

/// Emits the process's clock anchor, unless that is done or TIMING is muted.
// HOT: one load once it is done.
#[inline]
pub(crate) fn ensure_anchor(thread: &Thread) {
    if AnchorClaim::new(&state().clock_anchor_pid).is_done(thread.pid()) {
        if !is_bound() && !host_identity::claim().is_done(thread.pid()) && enabled(Level::Timing) {
            try_host_identity(thread);
        }
        if is_queued(thread) {
            thread.set_ready();
        }
    } else if enabled(Level::Timing) {
        try_anchor(thread);
    }
}

/// How often a thread that writes by itself yields while another one writes the anchor, which must come first. A
/// write takes some µs; the bound is for a destination that does not move.
const ANCHOR_YIELDS: u32 = 10_000;

#[cold]
fn try_anchor(thread: &Thread) {
    let pid = thread.pid();
    let claim = AnchorClaim::new(&state().clock_anchor_pid);
    let way = Way::now(thread);
    match way {
        // It would be lost, and whoever starts the writer emits it first of all.
        Way::Refused => {}
        Way::Synchronous if claim.claim(pid) => {
            let mut record = [0; RECORD_BYTES];
            let size = anchor_record::encode(&mut record);
            match write_synchronously(&record[..size], pid) {
                true => claim.finish(pid),
                false => claim.undo(pid),
            }
        }
        Way::Synchronous => {
            for _ in 0..ANCHOR_YIELDS {
                if !claim.is_claimed(pid) {
                    return;
                }
                // SAFETY: no preconditions.
                unsafe { libc::sched_yield() };
            }
        }
        Way::Queue(_) | Way::Bound => {
            if claim.claim(pid) {
                queue_anchor(pid, |record| submit(way, thread, record, pid));
            }
        }
    }
    // Behind an anchor that could be had; else the next record tries both.
    if claim.is_done(pid) && !is_bound() && !host_identity::claim().is_done(pid) {
        try_host_identity(thread);
    }
}

/// Emits the process's host identity, unless somebody else is at it. For the log's owner.
#[cold]
fn try_host_identity(thread: &Thread) {
    let pid = thread.pid();
    let claim = host_identity::claim();
    let way = Way::now(thread);
    // The writer's start emits it first of all.
    if matches!(way, Way::Refused) || !claim.claim(pid) {
        return;
    }
    let mut record = [0; RECORD_BYTES];
    let size = match way {
        Way::Synchronous => Some(host_identity::encode_now(&mut record)),
        _ => host_identity::encode_noted(&mut record),
    };
    // Finished first: from the submission on the writer may lose it.
    claim.finish(pid);
    if let Some(size) = size
        && !submit(way, thread, &record[..size], -pid)
    {
        claim.undo(pid);
        clear_ready();
    }
}

/// The first records of a queue that nobody else uses yet: the clock anchor and the host identity, unless they are done
/// or TIMING is muted.
pub(crate) fn begin_queue(region: &'static Region, thread: &Thread) {
    let pid = thread.pid();
    let claim = AnchorClaim::new(&state().clock_anchor_pid);
    if !claim.is_done(pid) && enabled(Level::Timing) && claim.claim(pid) {
        queue_anchor(pid, |record| accept(region, thread, record, pid, |_| ()));
    }
    host_identity::note();
    let claim = host_identity::claim();
    if !claim.is_done(pid) && enabled(Level::Timing) && claim.claim(pid) {
        let mut record = [0; RECORD_BYTES];
        claim.finish(pid);
        let size = host_identity::encode_noted(&mut record);
        if let Some(size) = size
            && !accept(region, thread, &record[..size], -pid, |_| ())
        {
            claim.undo(pid);
        }
    }
}

/// Emits the anchor of process `pid`, whose claim the caller holds, into a queue by `submit`.
fn queue_anchor(pid: i32, submit: impl FnOnce(&[u8]) -> bool) {
    let claim = AnchorClaim::new(&state().clock_anchor_pid);
    let mut record = [0; RECORD_BYTES];
    let size = anchor_record::encode(&mut record);
    claim.finish(pid);
    if !submit(&record[..size]) {
        claim.undo(pid);
        clear_ready();
    }
}

/// Where a record of this process goes just now.
#[derive(Clone, Copy)]
pub(crate) enum Way {
    /// Into this process's queue, by its owner.
    Queue(&'static Region),
    /// Into it through the callback of the module that owns it.
    Bound,
    /// To the destination at once: there is no writer.
    Synchronous,
    /// Nowhere: a writer is being started or stopped, or it is another process's.
    Refused,
}

/// Whether this process's records are queued just now, by their owner.
// HOT: two loads.
#[inline(always)]
pub(crate) fn is_queued(thread: &Thread) -> bool {
    // ORDERING: Relaxed: only a hint for which clock to read.
    state().sink_owner_pid.load(Ordering::Relaxed) == thread.pid() && !is_bound()
}

impl Way {
    /// The way of this thread's next record: everything that it remembers is true, and the anchor was seen to.
    // HOT: four loads for the owner's own records.
    #[inline]
    pub(crate) fn of(thread: &Thread) -> Way {
        thread.ready().map_or_else(|| Way::look(thread), Way::Queue)
    }

    #[cold]
    fn look(thread: &Thread) -> Way {
        thread.refresh();
        ensure_anchor(thread);
        Way::now(thread)
    }

    // HOT: three loads for the owner's own records.
    #[inline]
    pub(crate) fn now(thread: &Thread) -> Way {
        let state = state();
        // ORDERING: Acquire pairs with the Release of the owner in `start_writer`.
        if state.sink_owner_pid.load(Ordering::Acquire) == thread.pid() && !is_bound() {
            return Region::current().map_or(Way::Refused, Way::Queue);
        }
        Way::elsewhere(state, thread.pid())
    }

    #[cold]
    fn elsewhere(state: &SimplerHostLogState, pid: i32) -> Way {
        // ORDERING: Acquire, here and below, pairs with the stores in `start_writer` and `prepare_to_fork`, and
        // keeps the looks in order. They are no snapshot; a record at the window's edge may be taken either way.
        let owner = state.sink_owner_pid.load(Ordering::Acquire);
        let callback = state.sink_enqueue.load(Ordering::Acquire);
        let context = state.sink_context.load(Ordering::Acquire);
        let is_closed = Gate::new(&state.sink_producer_state).is_closed();
        if owner == 0 && callback.is_null() && context.is_null() && !is_closed {
            return Way::Synchronous;
        }
        if owner == pid && is_bound() { Way::Bound } else { Way::Refused }
    }
}

/// Hands one record to the sink, or writes it at once while there is none. Gives whether it was accepted;
/// if not, the loss is counted.
// HOT: a claim and a copy once the writer runs.
#[inline]
pub(crate) fn submit(way: Way, thread: &Thread, record: &[u8], anchor_pid: i32) -> bool {
    match way {
        Way::Queue(region) => accept(region, thread, record, anchor_pid, |_| ()),
        Way::Bound => hand_in(record, anchor_pid),
        Way::Synchronous => write_synchronously(record, anchor_pid),
        Way::Refused => {
            count_drop(state(), DropReason::NotAdmitted);
            false
        }
    }
}

/// Takes a record into the queue, its first bytes amended by `amend`.
// HOT: claim, copy, and a look at the doorbell.
#[inline]
pub(crate) fn accept(
    region: &'static Region,
    thread: &Thread,
    record: &[u8],
    anchor_pid: i32,
    amend: impl FnOnce(&mut [u8]),
) -> bool {
    match thread.claim(region) {
        Ok(claim) => {
            let passed_mark = claim.passed_mark();
            region.ring.publish(claim, record, anchor_pid, amend);
            published(region, passed_mark);
            true
        }
        Err(reason) => {
            refused(region, reason);
            false
        }
    }
}

/// A record was published: sees to it that the writer comes.
// HOT: one load, usually.
#[inline(always)]
pub(crate) fn published(region: &Region, passed_mark: bool) {
    if passed_mark {
        region.doorbell.ring();
    } else {
        region.doorbell.ring_if_asleep();
    }
}

/// A claim was refused.
#[cold]
pub(crate) fn refused(region: &Region, reason: DropReason) {
    count_drop(state(), reason);
    // A full ring whose writer lingers is one that nobody rang for.
    region.doorbell.ring();
}

/// Submits a record of a bound copy to the module that owns the sink.
#[cold]
fn hand_in(record: &[u8], anchor_pid: i32) -> bool {
    let state = state();
    let gate = Gate::new(&state.sink_producer_state);
    let is_open = gate.enter();
    // ORDERING: Acquire, each, pairs with the stores in `start_writer`. Inside the gate: what is found there stays
    // alive until this thread leaves.
    let owner = state.sink_owner_pid.load(Ordering::Acquire);
    let callback = state.sink_enqueue.load(Ordering::Acquire);
    let context = state.sink_context.load(Ordering::Acquire);
    if !is_open || owner != crate::pid() || callback.is_null() || context.is_null() {
        // Counted while inside: a quiesce that has seen everybody leave has every count.
        count_drop(state, DropReason::NotAdmitted);
        gate.leave();
        return false;
    }
    // SAFETY: not null, and by the state's contract a function of this type.
    let callback = unsafe { core::mem::transmute::<*mut c_void, SimplerHostLogEnqueueFn>(callback) };
    // SAFETY: inside the gate the context that was published with the callback is alive; the callee leaves.
    let accepted = unsafe {
        callback(
            context,
            core::ptr::from_ref(state).cast_mut(),
            record.as_ptr().cast(),
            record.len() as u32,
            anchor_pid,
        )
    };
    accepted != 0
}

/// Writes a record to its destination on the caller's thread. A loss is counted.
#[cold]
fn write_synchronously(record: &[u8], anchor_pid: i32) -> bool {
    let landed = try_write_synchronously(record, anchor_pid);
    if !landed {
        count_drop(state(), DropReason::OutputFailed);
    }
    landed
}

/// `line` landed on stderr. `anchor_pid` is the pid whose clock anchor it is, its negative if it is that process's host
/// identity, else 0.
pub(crate) fn note_on_stderr(anchor_pid: i32, line: &[u8]) {
    match anchor_pid {
        1.. => anchor_record::went_to_stderr(anchor_pid, line),
        ..=-1 => host_identity::went_to_stderr(anchor_pid.wrapping_neg()),
        0 => {}
    }
}

/// As [`write_synchronously`], without counting.
pub(crate) fn try_write_synchronously(record: &[u8], anchor_pid: i32) -> bool {
    let mut line = [0; RECORD_BYTES];
    let size = frame::render(record, &mut line, ticks::without_writer());
    let line = &line[..size];
    if line.is_empty() {
        return false;
    }
    destination::without_deadly_signals(|| {
        if destination::is_bound(state()) {
            return Output::new(false).append(line, 0, &[size as u32]) == 1;
        }
        let landed = destination::write_stderr(line);
        if landed {
            note_on_stderr(anchor_pid, line);
        }
        landed
    })
}

/// Counts one lost record: in the total and under exactly one reason.
#[cold]
pub(crate) fn count_drop(state: &SimplerHostLogState, reason: DropReason) {
    count(state, reason);
    if let Some(region) = Region::current() {
        match reason {
            DropReason::OutputFailed => region.note_failed(),
            _ => region.note_refused(state),
        }
    }
}

/// Counts a record that the writer could not write. The region learns of it with the writer's progress, so that
/// a record is never both counted and recovered.
#[cold]
pub(crate) fn count_drop_of_writer(state: &SimplerHostLogState) {
    count(state, DropReason::OutputFailed);
}

fn count(state: &SimplerHostLogState, reason: DropReason) {
    state.dropped_by_reason[reason as usize].fetch_add(1, Ordering::Relaxed);
    state.dropped_record_count.fetch_add(1, Ordering::Relaxed);
}
