//! The writer's life: start, flush, quiesce before a fork, close.
//!
//! A process may fork only while it has no writer: the child would inherit a queue that nobody empties and
//! records that two processes own. So the owner quiesces ([`prepare_to_fork`]), forks, and both sides start
//! a writer again when they have done forking. Between a quiesce and a start records are written at once,
//! on the thread that makes them.
//!
//! A child that is forked without that counts its own losses: its records are refused, as `not_admitted`,
//! until it starts a writer, and the fork's child handler has forgotten what it inherited. A child made by raw
//! `clone` has run no handler; it forgets when it first asks for its pid, which every record does before it
//! is submitted.

use core::ffi::c_void;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicI32, AtomicI64, AtomicU64};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use simpler_log_abi::{
    DROP_REASONS, DropReason, Level, SimplerHostLogEnqueueFn, SimplerHostLogState, SimplerSpanContext,
    Threshold,
};
use simpler_record_format::{DropReport, Envelope, RECORD_BYTES, encode_drop_report, encode_text};

use crate::admission::Gate;
use crate::directory::DirectoryClaim;
use crate::emit::{begin_queue, enabled, ensure_anchor, set_threshold, try_write_synchronously};
use crate::error::{DrainTimeout, Error, ErrorKind};
use crate::identity::{begin_life, clear_ready, map_life_page, monotonic_ns, pid, thread_handle};
use crate::region::{self, Region};
use crate::sync::{Ordering, register_heavy_barrier};
use crate::writer::{enqueue, writer_main};
use crate::{destination, host_identity, is_bound, log_warn, recover, span, state, thread, ticks};

/// The name of the writer's thread, as /proc has it.
pub const WRITER_THREAD_NAME: &str = match WRITER_THREAD_C_NAME.to_str() {
    Ok(name) => name,
    Err(_) => unreachable!(),
};
const WRITER_THREAD_C_NAME: &core::ffi::CStr = c"simpler-log";

/// How long the exit of the process waits for records that were accepted.
const EXIT_DRAIN: Duration = Duration::from_millis(1000);

/// How the log is set up.
#[derive(Clone, Copy, Debug)]
pub struct Config<'a> {
    /// The mildest level that is let through.
    pub threshold: Threshold,
    /// Where `host.<pid>.log` goes, made if missing. `None`: stderr, until [`set_directory`].
    pub directory: Option<&'a Path>,
    /// Leave the writer to a later [`start_writer`]: for a process that will fork first.
    pub defer_writer: bool,
}

impl Default for Config<'_> {
    /// Spans and above, to stderr, with a writer.
    fn default() -> Self {
        Self { threshold: Threshold::TIMING, directory: None, defer_writer: false }
    }
}

/// What the log lost and what it still holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Accepted records that the writer has not finished.
    pub pending: u64,
    /// Records lost in this process: the sum of `by_reason`.
    pub dropped: u64,
    /// The lost ones by [`DropReason`].
    pub by_reason: [u64; DROP_REASONS],
    /// How many of the lost ones a drop report in the log has told.
    pub reported: u64,
}

/// The counters of this process.
pub fn counts() -> Counts {
    let state = state();
    // In a child, this forgets what the parent counted.
    pid();
    let by_reason = DropReason::ALL
        .map(|reason: DropReason| state.dropped_by_reason[reason as usize].load(Ordering::Relaxed));
    Counts {
        pending: pending(state),
        // Not the total's own word: read at another moment it could differ from the reasons.
        dropped: by_reason.iter().sum(),
        by_reason,
        reported: state.reported_drop_count.load(Ordering::Relaxed),
    }
}

/// Sets the process's log up: threshold, directory, and the writer unless that is deferred.
///
/// May be called again, for instance in a forked child: the threshold changes, the directory that was bound
/// first stays, and a writer that runs goes on. When the process exits normally (a return from `main`, or
/// `exit`), accepted records are drained for up to one second; after `_exit` they are not, so call [`close`]
/// before that.
///
/// # Errors
///
/// When the directory cannot be used (nothing is bound then), or the writer cannot be started. The threshold
/// is set in either case.
pub fn init(config: &Config<'_>) -> Result<(), Error> {
    if is_bound() {
        return Err(Error::new(ErrorKind::NotTheOwner));
    }
    /// FORK: handlers are inherited, so the child registers none of its own.
    static HANDLERS: AtomicI32 = AtomicI32::new(0);

    let state = state();
    map_life_page();
    if HANDLERS.swap(1, Ordering::Relaxed) == 0 {
        state.sink_process_pid.store(pid(), Ordering::Relaxed);
        // SAFETY: the handlers are functions of this object, which is never unloaded (an owner library is
        // linked `-z nodelete`), and are async-signal-safe. Without memory for it, the first `pid` does its work.
        unsafe { libc::pthread_atfork(Some(before_a_fork), Some(in_the_parent), Some(in_the_child)) };
        // SAFETY: as above.
        unsafe { libc::atexit(drain_at_exit) };
    }
    let context_address: extern "C" fn() -> *mut SimplerSpanContext = span::context_address;
    // ORDERING: Release, for modules that find the state through its owner.
    state.span_context.store(context_address as *mut c_void, Ordering::Release);
    set_threshold(config.threshold);
    if let Some(directory) = config.directory {
        destination::bind(directory)?;
    }
    if config.defer_writer { Ok(()) } else { start_writer() }
}

/// Binds the log's directory, made if missing; for a process that learns it late. The first directory that is
/// not empty wins. A clock anchor that already went to stderr becomes the file's first record, too.
///
/// Gives whether this call bound it.
///
/// # Errors
///
/// When the path is too long or the directory cannot be used; nothing is bound then.
pub fn set_directory(directory: &Path) -> Result<bool, Error> {
    destination::bind(directory)
}

/// The log's directory, `None` while none is bound. One that is bound stays.
pub fn directory() -> Option<PathBuf> {
    destination::directory(state())
}

/// Starts the writer, unless this process's already runs, and emits the clock anchor. From then on records
/// are queued: producers do no I/O. May be called by any thread.
///
/// The first start of a process makes its region, in shared memory if that can be had; if not, one WARN record
/// says why.
///
/// # Errors
///
/// When another thread is starting or stopping the writer just now, there is no memory or thread for it, or this
/// copy of the logger is bound to another module's and that has no writer.
pub fn start_writer() -> Result<(), Error> {
    let state = state();
    let gate = Gate::new(&state.sink_producer_state);
    let me = pid();
    loop {
        // ORDERING: Acquire pairs with the Release at the end of this function.
        let owner = state.sink_owner_pid.load(Ordering::Acquire);
        if owner == me {
            let thread = thread::current();
            thread.refresh();
            ensure_anchor(thread);
            return Ok(());
        }
        if is_bound() {
            return Err(Error::new(ErrorKind::NotTheOwner));
        }
        if owner == -me {
            return Err(Error::new(ErrorKind::WriterInTransition));
        }
        // ORDERING: AcqRel pairs with the stores of the owner in `prepare_to_fork`.
        if state.sink_owner_pid.compare_exchange(owner, -me, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            break;
        }
    }
    gate.close();
    // Without `init` nobody has said yet whose the counts are; a child shall know that they are not its own.
    let _ = state.sink_process_pid.compare_exchange(0, me, Ordering::Relaxed, Ordering::Relaxed);
    register_heavy_barrier();
    let started = region_for_writer(me).and_then(|(region, why_private)| {
        region.note_all(state);
        destination::tell_region(region, state);
        region.doorbell.allow();
        spawn_writer(region).map(|()| (region, why_private))
    });
    let (region, why_private) = match started {
        Ok(started) => started,
        Err(source) => {
            // ORDERING: Release pairs with the Acquire loads in `Way::now`.
            state.sink_enqueue.store(null_mut(), Ordering::Release);
            state.sink_context.store(null_mut(), Ordering::Release);
            state.sink_owner_pid.store(0, Ordering::Release);
            gate.open();
            return Err(Error::from_io(ErrorKind::Writer, source));
        }
    };
    region.ring.open();
    // Before anybody else may queue anything: the anchor comes first.
    let thread = thread::current();
    thread.refresh();
    begin_queue(region, thread);
    let callback: SimplerHostLogEnqueueFn = enqueue;
    // ORDERING: Release, each, pairs with the Acquire loads of producers, here and in other modules: who sees
    // the owner sees the callback, and who sees that sees the context.
    state.sink_context.store(core::ptr::from_ref(region).cast_mut().cast(), Ordering::Release);
    state.sink_enqueue.store(callback as *mut c_void, Ordering::Release);
    state.sink_owner_pid.store(me, Ordering::Release);
    gate.open();
    if let Some(why) = why_private {
        log_warn!("the log queue is private memory, a crash of this process loses what it holds: {why}");
    }
    Ok(())
}

/// The region that the process's writer works on: the one that it has, or a new one; with the reason why a crash
/// would lose what it holds, if that is so.
fn region_for_writer(me: i32) -> io::Result<(&'static Region, Option<io::Error>)> {
    if let Some(region) = Region::current() {
        let has_no_file = HAS_NO_FILE.swap(0, Ordering::Relaxed) != 0;
        let why = || io::Error::other("the log was closed, and its ring's file removed");
        return Ok((region, has_no_file.then(why)));
    }
    recover::sweep();
    let made = Region::create(me, ticks::is_a_clock())?;
    begin_life();
    Ok(made)
}

/// Whether [`close`] has removed the region's file and nobody was told yet that the region goes on without.
///
/// FORK: the child has no region, and forgets it.
static HAS_NO_FILE: AtomicI32 = AtomicI32::new(0);

/// The writer's thread, to be joined. Written by who holds the owner word's claim.
///
/// FORK: the thread does not exist in the child, and the owner word says so.
static WRITER_THREAD: AtomicU64 = AtomicU64::new(0);

/// The processor time that the running writer has used, for tests; `None` where it cannot be asked for.
pub fn writer_cpu_ns() -> Option<i64> {
    let mut clock: libc::clockid_t = 0;
    let thread = WRITER_THREAD.load(Ordering::Relaxed);
    if !runs_here(state()) || thread == 0 {
        return None;
    }
    // SAFETY: this process's writer runs, so the thread exists; whoever asks does not quiesce meanwhile.
    if unsafe { libc::pthread_getcpuclockid(thread, &mut clock) } != 0 {
        return None;
    }
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: room for the answer.
    let is_read = unsafe { libc::clock_gettime(clock, &mut time) } == 0;
    is_read.then_some(time.tv_sec * 1_000_000_000 + time.tv_nsec)
}

fn spawn_writer(region: &'static Region) -> io::Result<()> {
    let mut all = core::mem::MaybeUninit::<libc::sigset_t>::uninit();
    let mut former = core::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: room for a set.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // The thread inherits a full mask: signals are for the program's own threads.
    // SAFETY: `all` was filled above, `former` has room.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), former.as_mut_ptr()) };
    let mut thread: libc::pthread_t = 0;
    let context = core::ptr::from_ref(region).cast_mut().cast();
    // SAFETY: `writer_main` takes a region that lives for ever.
    let error = unsafe { libc::pthread_create(&mut thread, core::ptr::null(), writer_main, context) };
    // SAFETY: `former` was filled by the first call, which cannot fail.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, former.as_ptr(), null_mut()) };
    if error != 0 {
        return Err(io::Error::from_raw_os_error(error));
    }
    // SAFETY: the thread was just made and is not joined; a name that is refused does no harm.
    unsafe { libc::pthread_setname_np(thread, WRITER_THREAD_C_NAME.as_ptr()) };
    WRITER_THREAD.store(thread, Ordering::Relaxed);
    Ok(())
}

/// Quiesces: refuses new records, waits until every accepted one is written or counted, ends the writer, and
/// reports new losses in the log. Afterwards the process may fork, and records are written at once until
/// [`start_writer`]. In a process without a writer of its own it only reports.
///
/// A report that stderr does not take in the time that is left is not waited for; a later quiesce makes it.
///
/// Records that other threads make while it waits are refused and counted (`not_admitted`).
///
/// # Errors
///
/// When the time is over, or another thread is at the same: the writer goes on as before and the caller must
/// not fork.
pub fn prepare_to_fork(timeout: Duration) -> Result<(), DrainTimeout> {
    quiesce(timeout, false)
}

/// As [`prepare_to_fork`]; `for_good`, the ring's file goes once nothing is left to be told by it.
fn quiesce(timeout: Duration, for_good: bool) -> Result<(), DrainTimeout> {
    let state = state();
    let gate = Gate::new(&state.sink_producer_state);
    let me = pid();
    let deadline_ns = deadline_ns(timeout);
    if is_bound() {
        // The writer, if there is one, is the owner's to stop.
        return if runs_here(state) {
            flush_by_count(state, deadline_ns)?;
            Err(drain_timeout())
        } else {
            Ok(())
        };
    }
    // ORDERING: AcqRel pairs with the Release of the owner in `start_writer`.
    match state.sink_owner_pid.compare_exchange(me, -me, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {}
        Err(owner) if owner == -me => return Err(drain_timeout()),
        // No writer, or the parent's.
        Err(_) => {
            report(deadline_ns, for_good);
            return Ok(());
        }
    }
    gate.close();
    clear_ready();
    if let Some(region) = Region::current() {
        region.ring.close();
        let is_drained = || gate.producers() == 0 && region.ring.unfinished() == 0;
        if !region.wait_until(deadline_ns, is_drained) {
            region.refresh_pending(state);
            region.ring.open();
            // ORDERING: Release pairs with the Acquire loads of the owner by producers.
            state.sink_owner_pid.store(me, Ordering::Release);
            gate.open();
            return Err(drain_timeout());
        }
        region.doorbell.stop();
        // SAFETY: the thread was made by `spawn_writer` and is joined once, under the owner word's claim.
        unsafe { libc::pthread_join(WRITER_THREAD.load(Ordering::Relaxed), null_mut()) };
        region.refresh_pending(state);
        ticks::keep_latest(&region.ticks);
    }
    // ORDERING: Release, each, pairs with the Acquire loads in `Way::now`.
    state.sink_enqueue.store(null_mut(), Ordering::Release);
    state.sink_context.store(null_mut(), Ordering::Release);
    // Still under the owner word's claim, so that no start comes between.
    report(deadline_ns, for_good);
    // ORDERING: Release pairs with the Acquire loads in `Way::now`.
    state.sink_owner_pid.store(0, Ordering::Release);
    gate.open();
    Ok(())
}

/// Tells what a quiesce has to tell, and `for_good` removes the ring's file if all of it was told: there is nothing
/// that its recovery could add.
fn report(deadline_ns: i64, for_good: bool) {
    report_drops(state(), deadline_ns);
    report_clock(deadline_ns);
    let Counts { dropped, reported, .. } = counts();
    if for_good && dropped <= reported && Region::current().is_some() {
        HAS_NO_FILE.store(1, Ordering::Relaxed);
        Region::remove_file();
    }
}

/// Waits until every record that was accepted before the call is written or counted. In a process without a
/// writer of its own there is nothing to wait for.
///
/// # Errors
///
/// When the time is over. The records are not lost by that; they are still pending.
pub fn flush(timeout: Duration) -> Result<(), DrainTimeout> {
    let state = state();
    let deadline_ns = deadline_ns(timeout);
    if !runs_here(state) {
        return Ok(());
    }
    if is_bound() {
        return flush_by_count(state, deadline_ns);
    }
    let Some(region) = Region::current() else { return Ok(()) };
    let accepted = region.ring.enqueued();
    let is_done = region.wait_until(deadline_ns, || region.ring.finished() >= accepted);
    region.refresh_pending(state);
    if is_done { Ok(()) } else { Err(drain_timeout()) }
}

/// How a bound copy waits for the owner's writer: it can only look at the shared count.
fn flush_by_count(state: &SimplerHostLogState, deadline_ns: i64) -> Result<(), DrainTimeout> {
    /// Between two looks: a batch takes the writer some hundred µs.
    const LOOK_EVERY_NS: i64 = 200_000;
    let between = libc::timespec { tv_sec: 0, tv_nsec: LOOK_EVERY_NS };
    while state.pending_record_count.load(Ordering::Relaxed) != 0 {
        if monotonic_ns() >= deadline_ns || !runs_here(state) {
            return Err(drain_timeout());
        }
        // SAFETY: a valid time; to return early is fine.
        unsafe { libc::nanosleep(&raw const between, null_mut()) };
    }
    Ok(())
}

/// Quiesces for good, before the process ends. Should the records not reach their destination in time, one
/// warning says how many are pending and dropped: on stderr, or, when that takes nothing just now, in the log
/// file if a directory is bound. The warning is never waited for; if neither takes it at once, it is left out.
pub fn close(timeout: Duration) {
    let Err(DrainTimeout { pending, dropped }) = quiesce(timeout, true) else { return };
    if is_bound() {
        // Its records are the owner's to drain, and to speak of.
        return;
    }
    let mut record = [0; RECORD_BYTES];
    let thread = thread_handle();
    let envelope = Envelope { mono_ns: monotonic_ns(), thread, level: Level::Warn, func: "host_log_close" };
    let size = encode_text(
        &mut record,
        &envelope,
        None,
        format_args!(
            "host log not drained within {} ms: pending={pending} dropped={dropped}",
            timeout.as_millis()
        ),
    );
    // A destination that does not move is most likely the reason, and must not hold the exit up any longer.
    if destination::stderr_is_ready(monotonic_ns()) {
        destination::without_deadly_signals(|| destination::write_stderr(&record[..size]));
    } else if destination::is_bound(state()) {
        destination::append_if_free(&record[..size]);
    }
}

/// Whether this process's writer runs or is being stopped.
fn runs_here(state: &SimplerHostLogState) -> bool {
    // ORDERING: Acquire pairs with the Release of the owner in `start_writer`.
    let owner = state.sink_owner_pid.load(Ordering::Acquire);
    owner == pid() || owner == -pid()
}

fn drain_timeout() -> DrainTimeout {
    let Counts { pending, dropped, .. } = counts();
    DrainTimeout { pending, dropped }
}

fn deadline_ns(timeout: Duration) -> i64 {
    monotonic_ns().saturating_add(i64::try_from(timeout.as_nanos()).unwrap_or(i64::MAX))
}

/// Accepted records that are not finished, as far as this copy of the logger can tell.
fn pending(state: &SimplerHostLogState) -> u64 {
    match Region::current() {
        _ if !runs_here(state) => 0,
        Some(region) if !is_bound() => region.ring.pending(),
        _ => state.pending_record_count.load(Ordering::Relaxed),
    }
}

/// Writes, once more records were converted from the counter's readings, how far their times may be off. A report
/// that stderr does not take until `deadline_ns` is left out.
fn report_clock(deadline_ns: i64) {
    /// The bound that was told last.
    ///
    /// FORK: the child tells its own bound if that is wider.
    static TOLD_NS: AtomicI64 = AtomicI64::new(0);

    let error_ns = Region::current().map_or(0, |region| region.clock_error_ns.load(Ordering::Relaxed));
    if error_ns <= TOLD_NS.load(Ordering::Relaxed) || !enabled(Level::Timing) {
        return;
    }
    let mut record = [0; RECORD_BYTES];
    let size = encode_text(
        &mut record,
        &Envelope {
            mono_ns: monotonic_ns(),
            thread: thread_handle(),
            level: Level::Timing,
            func: "host_log_clock",
        },
        None,
        format_args!("[HOSTLOG_CLOCK] v=1 pid={} error_ns={error_ns}", pid()),
    );
    let may_write = destination::is_bound(state()) || destination::stderr_is_ready(deadline_ns);
    if may_write && try_write_synchronously(&record[..size], 0) {
        TOLD_NS.store(error_ns, Ordering::Relaxed);
    }
}

/// Writes the drop report if there are losses that none has told. They count as told once the report has
/// landed, or when ERROR is muted. A report that does not land, or that stderr does not take until
/// `deadline_ns`, is no lost record; the next quiesce repeats it.
fn report_drops(state: &SimplerHostLogState, deadline_ns: i64) {
    let Counts { dropped: total, by_reason, reported, .. } = counts();
    if total <= reported {
        return;
    }
    // Claimed first, so that of two who quiesce at once one reports.
    let told = &state.reported_drop_count;
    if told.compare_exchange(reported, total, Ordering::Relaxed, Ordering::Relaxed).is_err() {
        return;
    }
    if enabled(Level::Error) {
        let new = total - reported;
        let report = DropReport { pid: pid() as _, new, total, by_reason };
        let mut record = [0; RECORD_BYTES];
        let size = encode_drop_report(&mut record, monotonic_ns(), thread_handle(), &report);
        let may_write = destination::is_bound(state) || destination::stderr_is_ready(deadline_ns);
        if !(may_write && try_write_synchronously(&record[..size], 0)) {
            told.fetch_sub(new, Ordering::Relaxed);
        }
    }
    if let Some(region) = Region::current() {
        region.reported.store(told.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

fn forget_counts(state: &SimplerHostLogState) {
    state.dropped_record_count.store(0, Ordering::Relaxed);
    for count in &state.dropped_by_reason {
        count.store(0, Ordering::Relaxed);
    }
    state.reported_drop_count.store(0, Ordering::Relaxed);
    state.pending_record_count.store(0, Ordering::Relaxed);
}

unsafe extern "C" fn before_a_fork() {
    destination::before_fork();
}

unsafe extern "C" fn in_the_parent() {
    destination::after_fork();
}

/// The fork's child handler.
unsafe extern "C" fn in_the_child() {
    // The page is wiped, so the pid is asked for, and that forgets the parent.
    pid();
}

/// The owner word of a child whose parent's writer ran under the child's own pid, which happens across pid
/// namespaces: it is no pid, so it is nobody's.
const INHERITED_OWNER: i32 = i32::MAX;

/// In a child of a fork, called once, by its first thread that wants to know the pid: it forgets the process that
/// was known as `parent`. What was counted was the parent's, threads that were inside the gate or half through a
/// claim do not exist here, the queue's memory is not mapped, and the open log file is not this process's.
///
/// The owner word says what it said: not zero, it makes every record of an unquiesced parent's child
/// `not_admitted`; zero, it leaves the synchronous window open.
///
/// After fork in a process that may have had threads, so only async-signal-safe work, and nothing that asks for the
/// pid.
#[cold]
pub(crate) fn forget_the_parent(parent: i32, me: i32) {
    region::forget_inherited();
    if is_bound() {
        // The words are the owner's, and so is this.
        return;
    }
    let state = state();
    HAS_NO_FILE.store(0, Ordering::Relaxed);
    destination::close_inherited_files(parent);
    forget_counts(state);
    state.sink_producer_state.store(0, Ordering::Relaxed);
    // Another thread of the parent may have been in the middle of binding.
    DirectoryClaim::new(&state.log_directory_bound).forget_half_bound();
    state.clock_anchor_pid.store(0, Ordering::Relaxed);
    host_identity::forget_the_parents();
    if state.sink_owner_pid.load(Ordering::Relaxed).abs() == me {
        state.sink_owner_pid.store(INHERITED_OWNER, Ordering::Relaxed);
    }
    state.sink_process_pid.store(me, Ordering::Relaxed);
}

extern "C" fn drain_at_exit() {
    close(EXIT_DRAIN);
}
