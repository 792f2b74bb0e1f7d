//! The words that every module of one process shares.
//!
//! The struct carries no version and no size: whoever binds it was built with it, and hands in all of it. The
//! first 1128 bytes are the specification's and never move; what this implementation adds follows them.

use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::{AtomicI32, AtomicI64, AtomicPtr, AtomicU8, AtomicU64};

use crate::Threshold;

/// The size of the directory's field, with its terminating zero: the longest path has 1023 bytes.
pub const LOG_DIRECTORY_BYTES: usize = 1024;

/// The bit of [`SimplerHostLogState::sink_producer_state`] that closes admission. The bits below it count
/// the producers that may hold the sink's context.
pub const PRODUCERS_CLOSED: u64 = 1 << 63;

/// Why a record was lost. Each lost record has exactly one reason; the values are indices into
/// [`SimplerHostLogState::dropped_by_reason`].
#[repr(usize)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DropReason {
    /// The queue is too small for the burst, or the destination too slow for it.
    QueueFull = 0,
    /// The bounded claim lost to other producers although there was room.
    ClaimExhausted = 1,
    /// The destination refused the write.
    OutputFailed = 2,
    /// There was no sink to submit to.
    NotAdmitted = 3,
}

/// How many [`DropReason`]s there are.
pub const DROP_REASONS: usize = 4;

impl DropReason {
    /// All reasons in the order of their indices, which is also the order in the drop report.
    pub const ALL: [DropReason; DROP_REASONS] = [
        DropReason::QueueFull,
        DropReason::ClaimExhausted,
        DropReason::OutputFailed,
        DropReason::NotAdmitted,
    ];

    /// The key in the drop report.
    pub const fn name(self) -> &'static str {
        match self {
            DropReason::QueueFull => "queue_full",
            DropReason::ClaimExhausted => "claim_exhausted",
            DropReason::OutputFailed => "output_failed",
            DropReason::NotAdmitted => "not_admitted",
        }
    }
}

/// Submits one record: a rendered line, or a binary span frame (first byte below 0x20).
///
/// The bytes are copied before it returns. `anchor_pid` is the pid whose clock anchor the record is, else 0.
/// Non-zero only if the record was accepted; on 0 the drop is already counted. The **caller** enters the
/// producer section (adds 1 to `sink_producer_state`) and checks bit 63 of the former value; the **callee**
/// leaves it (subtracts 1) on every path, exactly once. May be called from any thread of the process whose
/// pid is `sink_owner_pid`. It does not unwind, block or allocate.
pub type SimplerHostLogEnqueueFn = unsafe extern "C" fn(
    context: *mut c_void,
    state: *mut SimplerHostLogState,
    record: *const c_char,
    size: u32,
    anchor_pid: i32,
) -> c_int;

/// Hands a module the process's state: 0, or why not (1 a null pointer, 2 a threshold off the ladder), and
/// then nothing has changed. The state outlives the module.
pub type SimplerHostLogBindFn = unsafe extern "C" fn(state: *mut SimplerHostLogState) -> c_int;

/// The shared state of one process's log. The owner holds it in static memory for the life of the process;
/// after a `fork` the child works on its own copy.
#[repr(C)]
#[derive(Debug)]
pub struct SimplerHostLogState {
    /// A value of the ladder ([`Threshold`]); read by every producer for every record.
    pub threshold: AtomicI32,
    /// Who has emitted the clock anchor: 0 nobody, pid done, −pid at it. A fork child finds its parent's
    /// pid here, which is not its own, and so emits its own.
    pub clock_anchor_pid: AtomicI32,
    /// 0 free, −1 being written, 1 `log_directory` holds the destination. Only 1 may be read as bound.
    pub log_directory_bound: AtomicI32,
    /// The directory's path, zero-terminated.
    pub log_directory: [AtomicU8; LOG_DIRECTORY_BYTES],
    /// The writer's process: 0 none, pid running, −pid in transition.
    pub sink_owner_pid: AtomicI32,
    /// The process that the counters below belong to.
    pub sink_process_pid: AtomicI32,
    /// What `sink_enqueue` wants as its first argument.
    pub sink_context: AtomicPtr<c_void>,
    /// A [`SimplerHostLogEnqueueFn`], null while there is no writer.
    pub sink_enqueue: AtomicPtr<c_void>,
    /// All lost records.
    pub dropped_record_count: AtomicU64,
    /// Accepted records that the writer has not finished. The owner derives the number from its queue and
    /// stores it here when it looks: at every batch, flush and quiesce. Between those it may lag.
    pub pending_record_count: AtomicU64,
    /// [`PRODUCERS_CLOSED`] and, below it, the number of producers inside.
    pub sink_producer_state: AtomicU64,
    /// The lost records by [`DropReason`]; their sum is `dropped_record_count`.
    pub dropped_by_reason: [AtomicU64; DROP_REASONS],
    /// How much of `dropped_record_count` a drop report in the log has told.
    pub reported_drop_count: AtomicU64,
    /// The invocation number handed out next; the first is 1.
    pub next_invocation_id: AtomicU64,
    /// A [`crate::SimplerSpanContextFn`], null while there is no owner.
    pub span_context: AtomicPtr<c_void>,
    /// The process whose clock anchor stands on stderr and in no file yet; 0 if none. Whoever's record of it landed
    /// there stores the readings below, then this; who opens a log file takes it (compare-exchange to 0) and
    /// repeats the anchor there. A fork child finds its parent's pid, and so repeats nothing.
    pub anchor_stderr_pid: AtomicI32,
    /// That anchor's reading of the monotonic clock.
    pub anchor_mono_ns: AtomicI64,
    /// That anchor's reading of the wall clock.
    pub anchor_wall_ns: AtomicI64,
    /// The thread in that anchor's envelope.
    pub anchor_thread: AtomicU64,
}

impl SimplerHostLogState {
    /// A state with no directory, no sink and nothing counted.
    pub const fn new(threshold: Threshold) -> Self {
        Self {
            threshold: AtomicI32::new(threshold.get()),
            clock_anchor_pid: AtomicI32::new(0),
            log_directory_bound: AtomicI32::new(0),
            log_directory: [const { AtomicU8::new(0) }; LOG_DIRECTORY_BYTES],
            sink_owner_pid: AtomicI32::new(0),
            sink_process_pid: AtomicI32::new(0),
            sink_context: AtomicPtr::new(core::ptr::null_mut()),
            sink_enqueue: AtomicPtr::new(core::ptr::null_mut()),
            dropped_record_count: AtomicU64::new(0),
            pending_record_count: AtomicU64::new(0),
            sink_producer_state: AtomicU64::new(0),
            dropped_by_reason: [const { AtomicU64::new(0) }; DROP_REASONS],
            reported_drop_count: AtomicU64::new(0),
            next_invocation_id: AtomicU64::new(1),
            span_context: AtomicPtr::new(core::ptr::null_mut()),
            anchor_stderr_pid: AtomicI32::new(0),
            anchor_mono_ns: AtomicI64::new(0),
            anchor_wall_ns: AtomicI64::new(0),
            anchor_thread: AtomicU64::new(0),
        }
    }
}

const _: () = {
    use core::mem::{align_of, offset_of, size_of};
    assert!(align_of::<SimplerHostLogState>() == 8);
    assert!(offset_of!(SimplerHostLogState, threshold) == 0);
    assert!(offset_of!(SimplerHostLogState, clock_anchor_pid) == 4);
    assert!(offset_of!(SimplerHostLogState, log_directory_bound) == 8);
    assert!(offset_of!(SimplerHostLogState, log_directory) == 12);
    assert!(offset_of!(SimplerHostLogState, sink_owner_pid) == 1036);
    assert!(offset_of!(SimplerHostLogState, sink_process_pid) == 1040);
    assert!(offset_of!(SimplerHostLogState, sink_context) == 1048);
    assert!(offset_of!(SimplerHostLogState, sink_enqueue) == 1056);
    assert!(offset_of!(SimplerHostLogState, dropped_record_count) == 1064);
    assert!(offset_of!(SimplerHostLogState, pending_record_count) == 1072);
    assert!(offset_of!(SimplerHostLogState, sink_producer_state) == 1080);
    assert!(offset_of!(SimplerHostLogState, dropped_by_reason) == 1088);
    assert!(offset_of!(SimplerHostLogState, reported_drop_count) == 1120);
    // The tail that this implementation adds.
    assert!(offset_of!(SimplerHostLogState, next_invocation_id) == 1128);
    assert!(offset_of!(SimplerHostLogState, span_context) == 1136);
    assert!(offset_of!(SimplerHostLogState, anchor_stderr_pid) == 1144);
    assert!(offset_of!(SimplerHostLogState, anchor_mono_ns) == 1152);
    assert!(offset_of!(SimplerHostLogState, anchor_wall_ns) == 1160);
    assert!(offset_of!(SimplerHostLogState, anchor_thread) == 1168);
    assert!(size_of::<SimplerHostLogState>() == 1176);
    // A C caller sees a function pointer where Rust keeps an `AtomicPtr`.
    assert!(size_of::<SimplerHostLogEnqueueFn>() == size_of::<AtomicPtr<c_void>>());
};
