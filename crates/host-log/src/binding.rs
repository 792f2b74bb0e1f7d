//! Which state this copy of the logger works on: its own, or that of the module that owns the process's log.
//!
//! Each shared object that holds the logger has a copy of it, with statics of its own, and all copies of a process
//! work on one state. The owner's copy works on its own; any other is bound by its loader, and until then it
//! works on its own as well, which is muted: a binding that was forgotten shows as a module that says nothing.
//! A bound copy submits to the owner's queue and never makes one, so that nothing of it is left behind when it
//! is unloaded.

use core::ffi::c_int;
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU64, Ordering};

use simpler_log_abi::{BINDER, PRODUCERS_CLOSED, SimplerHostLogBindFn, SimplerHostLogState, Threshold};

use crate::directory::{self, DirectoryClaim};
use crate::identity;

/// [`bind_state`]: done.
pub const BOUND: c_int = 0;
/// [`bind_state`]: there is no state.
pub const BIND_NULL: c_int = 1;
/// [`bind_state`]: the state's threshold is not on the ladder.
pub const BIND_OFF_LADDER: c_int = 2;

/// This copy's own state, which is the process's if this copy owns the log. Muted until `init`.
///
/// FORK: parent and child each go on with their own copy; `fork` says what the child makes of it.
static OWN: SimplerHostLogState = SimplerHostLogState::new(Threshold::NUL);

/// The state that this copy works on.
static STATE: AtomicPtr<SimplerHostLogState> = AtomicPtr::new((&raw const OWN).cast_mut());

/// The state of the process's log, as this copy of the logger knows it: its own, for other modules to bind, or the
/// one that it is bound to. It lives as long as the process.
// HOT: one load.
#[inline]
pub fn state() -> &'static SimplerHostLogState {
    // ORDERING: Acquire pairs with the Release in `bind_state`.
    let state = STATE.load(Ordering::Acquire);
    // SAFETY: never null: the own state, or one of which `bind_state`'s caller said that it lives on.
    unsafe { &*state }
}

/// This copy's own state.
#[inline(always)]
pub(crate) fn own_state() -> &'static SimplerHostLogState {
    &OWN
}

/// Whether this copy is bound to another module's state.
// HOT: one load.
#[inline]
pub fn is_bound() -> bool {
    // ORDERING: Relaxed: who goes on to use the state asks for it by itself.
    !core::ptr::eq(STATE.load(Ordering::Relaxed), &raw const OWN)
}

/// Binds this copy of the logger to the state of the module that owns the log: from now on records go there. A
/// module exports this as `simpler_host_log_bind_state`, see [`export_binder!`](crate::export_binder).
///
/// Gives [`BOUND`], [`BIND_NULL`] for a null pointer, or [`BIND_OFF_LADDER`] for a threshold that is none; nothing is
/// bound then. Every other word on which a logger branches later is put right where it cannot be meant.
/// May be called again, also with this copy's own state, which makes it an owner again. Any thread, but
/// not while others emit through this copy for the first time.
///
/// # Safety
///
/// - `state` is null or points to a state that lives as long as this module emits records.
/// - Its callbacks are null or functions of the types that the state's documentation says.
pub unsafe fn bind_state(state: *mut SimplerHostLogState) -> c_int {
    // SAFETY: null or alive, by the function's contract; all fields are atomics.
    let Some(words) = (unsafe { state.as_ref() }) else { return BIND_NULL };
    if Threshold::from_ladder(words.threshold.load(Ordering::Relaxed)).is_none() {
        return BIND_OFF_LADDER;
    }
    if !is_bound() && !core::ptr::eq(state, &raw const OWN) {
        // A log of this copy's own ends here; without a writer this does nothing.
        let _ = crate::prepare_to_fork(OWN_LOG_DRAIN);
    }
    identity::map_life_page();
    // SAFETY: no preconditions.
    sanitise(words, unsafe { libc::getpid() });
    identity::clear_ready();
    // ORDERING: Release pairs with the Acquire in `state`.
    STATE.store(state, Ordering::Release);
    BOUND
}

/// Hands the process's log to an object that was loaded, whose symbol [`BINDER`] is `binder`; `what` it is, for who reads
/// the error. Before any other function of the object is called. Any thread.
///
/// # Errors
/// A sentence, when the object refuses.
///
/// # Safety
///
/// - `binder` is the address of a function of the type that the header gives to the symbol of this name.
pub unsafe fn bind_object(binder: *const (), what: &str) -> Result<(), String> {
    // SAFETY: the caller's obligation.
    let binder = unsafe { core::mem::transmute::<*const (), SimplerHostLogBindFn>(binder) };
    let state = core::ptr::from_ref(state());
    // SAFETY: the state lives as long as the process, and everything behind it is atomic.
    let why = match unsafe { binder(state.cast_mut()) } {
        BOUND => return Ok(()),
        BIND_NULL => "it says that the state is null".to_owned(),
        BIND_OFF_LADDER => "it says that the threshold is no value of the level ladder".to_owned(),
        other => format!("it returned {other}"),
    };
    Err(format!("{what}: {BINDER} refused the process's log: {why}"))
}

/// How long a bind waits for what this copy's own log still holds.
const OWN_LOG_DRAIN: core::time::Duration = core::time::Duration::from_millis(100);

/// How long a word that says "somebody is at it" is given to change before it is taken for garbage: what these words
/// guard takes some µs, or as long as a slow stderr takes for one record.
const PATIENCE_NS: i64 = 100_000_000;
/// Between two looks.
const LOOK_EVERY_NS: i64 = 200_000;

/// Puts the words right that would mute the log for ever, or send it astray, although nobody meant it.
fn sanitise(state: &SimplerHostLogState, pid: i32) {
    // "This process's anchor is being emitted", for ever.
    settle(&state.clock_anchor_pid, -pid, 0);
    // Readings of an anchor that this process never made.
    let anchor = state.clock_anchor_pid.load(Ordering::Relaxed);
    if anchor != pid && anchor != -pid {
        let _ = state.anchor_stderr_pid.compare_exchange(pid, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
    let bound = &state.log_directory_bound;
    let is_a_word =
        [directory::UNBOUND, directory::BINDING, directory::BOUND].contains(&bound.load(Ordering::Relaxed));
    // A bound directory without a name would be the root of the file system.
    let names_nothing = DirectoryClaim::new(bound).is_bound()
        && state.log_directory.first().is_none_or(|byte| byte.load(Ordering::Relaxed) == 0);
    if !is_a_word || names_nothing {
        bound.store(directory::UNBOUND, Ordering::Relaxed);
    }
    settle(bound, directory::BINDING, directory::UNBOUND);
    // A gate that is closed although nobody owns a sink.
    let gate: &AtomicU64 = &state.sink_producer_state;
    let is_shut = || {
        gate.load(Ordering::Relaxed) & PRODUCERS_CLOSED != 0
            && state.sink_owner_pid.load(Ordering::Relaxed) == 0
    };
    if stays(is_shut) {
        // ORDERING: Release, as when a gate is opened.
        gate.fetch_and(!PRODUCERS_CLOSED, Ordering::Release);
    }
}

/// Replaces `word` by `instead` if it stays `suspect`.
fn settle(word: &AtomicI32, suspect: i32, instead: i32) {
    if stays(|| word.load(Ordering::Relaxed) == suspect) {
        let _ = word.compare_exchange(suspect, instead, Ordering::Relaxed, Ordering::Relaxed);
    }
}

fn stays(condition: impl Fn() -> bool) -> bool {
    let deadline_ns = identity::monotonic_ns().saturating_add(PATIENCE_NS);
    while condition() {
        if identity::monotonic_ns() >= deadline_ns {
            return true;
        }
        let between = libc::timespec { tv_sec: 0, tv_nsec: LOOK_EVERY_NS };
        // SAFETY: a valid time; to return early is fine.
        unsafe { libc::nanosleep(&raw const between, core::ptr::null_mut()) };
    }
    false
}

/// Makes a shared object export `simpler_host_log_bind_state`, by which its loader binds its copy of this logger.
/// For the root of a `cdylib` that emits records and is loaded by a program with a log; once in each.
#[macro_export]
macro_rules! export_binder {
    () => {
        /// Binds this module's logger to the log of the process.
        ///
        /// # Safety
        ///
        /// See `simpler_host_log::bind_state`.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn simpler_host_log_bind_state(
            state: *mut $crate::SimplerHostLogState,
        ) -> ::core::ffi::c_int {
            // SAFETY: the caller's promise is this function's.
            unsafe { $crate::bind_state(state) }
        }
    };
}
