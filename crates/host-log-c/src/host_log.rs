//! `host_log.h`: set up, drain, count and emit, as C calls it.

use core::cell::Cell;
use core::ffi::{CStr, c_char, c_int};
use core::fmt;
use core::sync::atomic::Ordering;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Duration;

use host_log::{Config, DrainTimeout, ErrorKind, Level, SpanEvent, Threshold};
use simpler_log_abi::{DROP_REASONS, SimplerHostLogState, SimplerHostSpan};

/// The results of the header, in its order.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Ok = 0,
    BadArgument = 1,
    BadPath = 2,
    BadDirectory = 3,
    InTransition = 4,
    NoWriter = 5,
    NotDrained = 6,
    AlreadyBound = 7,
    Panicked = 8,
    NotTheOwner = 9,
}

impl Outcome {
    const ALL: [(Outcome, &'static CStr); 10] = [
        (Outcome::Ok, c"done"),
        (Outcome::BadArgument, c"a null pointer, or a threshold off the level ladder"),
        (Outcome::BadPath, c"the log directory's absolute path has more than 1023 bytes"),
        (Outcome::BadDirectory, c"the log directory cannot be used"),
        (Outcome::InTransition, c"another thread is starting or stopping the log writer"),
        (Outcome::NoWriter, c"the log writer cannot be started"),
        (Outcome::NotDrained, c"accepted records did not reach the log's destination in time"),
        (Outcome::AlreadyBound, c"another log directory was bound before"),
        (Outcome::Panicked, c"the log library failed inside"),
        (Outcome::NotTheOwner, c"the log belongs to the module that this library is bound to"),
    ];
}

/// `SimplerHostLogCounts` of the header.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct SimplerHostLogCounts {
    pending: u64,
    dropped: u64,
    by_reason: [u64; DROP_REASONS],
    reported: u64,
}

/// Longest text of a failure that is kept; it names no path, so nothing of ours is longer.
const LAST_ERROR_BYTES: usize = 256;

std::thread_local! {
    /// What the latest failure on this thread said: its length and its bytes. Without a destructor.
    ///
    /// FORK: the forking thread's text goes on in the child.
    static LAST_ERROR: Cell<(usize, [u8; LAST_ERROR_BYTES])> = const { Cell::new((0, [0; LAST_ERROR_BYTES])) };
}

/// Keeps what `failure` says, and what caused it, for `simpler_host_log_last_error`.
fn remember(failure: &dyn std::error::Error) {
    let mut text = [0; LAST_ERROR_BYTES];
    let mut rest = &mut text[..];
    // A text that does not fit is cut.
    let _ = std::io::Write::write_fmt(&mut rest, format_args!("{failure}"));
    if let Some(source) = failure.source() {
        let _ = std::io::Write::write_fmt(&mut rest, format_args!(": {source}"));
    }
    let free = rest.len();
    LAST_ERROR.set((LAST_ERROR_BYTES - free, text));
}

/// Runs the body of a function that returns a result.
fn guarded(body: impl FnOnce() -> Result<Outcome, Outcome>) -> c_int {
    let outcome = catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(Outcome::Panicked));
    let (Ok(outcome) | Err(outcome)) = outcome;
    outcome as c_int
}

fn failed(error: host_log::Error) -> Outcome {
    remember(&error);
    match error.kind() {
        ErrorKind::DirectoryPath => Outcome::BadPath,
        ErrorKind::Directory => Outcome::BadDirectory,
        ErrorKind::WriterInTransition => Outcome::InTransition,
        ErrorKind::NotTheOwner => Outcome::NotTheOwner,
        _ => Outcome::NoWriter,
    }
}

fn not_drained(timeout: DrainTimeout) -> Outcome {
    remember(&timeout);
    Outcome::NotDrained
}

/// A threshold of the ladder.
fn threshold(value: i32) -> Result<Threshold, Outcome> {
    Threshold::from_ladder(value).ok_or(Outcome::BadArgument)
}

/// The text behind a pointer of C; `None` for null.
///
/// # Safety
///
/// - `text` is null or zero-terminated, and stays as it is for as long as the result is used.
unsafe fn text<'a>(text: *const c_char) -> Option<&'a CStr> {
    // SAFETY: the caller's obligation.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) })
}

fn path(text: &CStr) -> &Path {
    Path::new(OsStr::from_bytes(text.to_bytes()))
}

/// Sets the process's log up.
///
/// # Safety
///
/// - `directory` is null or zero-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn simpler_host_log_init(
    threshold: i32,
    directory: *const c_char,
    defer_writer: c_int,
) -> c_int {
    guarded(|| {
        let threshold = self::threshold(threshold)?;
        // SAFETY: the caller's obligation.
        let directory = unsafe { text(directory) }.map(path);
        let config = Config { threshold, directory, defer_writer: defer_writer != 0 };
        host_log::init(&config).map(|()| Outcome::Ok).map_err(failed)
    })
}

/// Starts the writer, unless this process's already runs.
#[unsafe(no_mangle)]
pub extern "C" fn simpler_host_log_start_writer() -> c_int {
    guarded(|| host_log::start_writer().map(|()| Outcome::Ok).map_err(failed))
}

/// Binds the log's directory; the first wins.
///
/// # Safety
///
/// - `directory` is null or zero-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn simpler_host_log_set_directory(directory: *const c_char) -> c_int {
    guarded(|| {
        // SAFETY: the caller's obligation.
        let directory = unsafe { text(directory) }.ok_or(Outcome::BadArgument)?;
        match host_log::set_directory(path(directory)) {
            Ok(false) if !directory.is_empty() => Ok(Outcome::AlreadyBound),
            Ok(_) => Ok(Outcome::Ok),
            Err(error) => Err(failed(error)),
        }
    })
}

/// Changes the threshold for all bound modules.
#[unsafe(no_mangle)]
pub extern "C" fn simpler_host_log_set_threshold(threshold: i32) -> c_int {
    guarded(|| {
        host_log::set_threshold(self::threshold(threshold)?);
        Ok(Outcome::Ok)
    })
}

/// Waits until what was accepted is written or counted.
#[unsafe(no_mangle)]
pub extern "C" fn simpler_host_log_flush(timeout_ms: u32) -> c_int {
    guarded(|| host_log::flush(duration(timeout_ms)).map(|()| Outcome::Ok).map_err(not_drained))
}

/// A bound copy has no writer to stop, and the owner's is the owner's.
fn owners_only() -> Result<(), Outcome> {
    if host_log::is_bound() { Err(Outcome::NotTheOwner) } else { Ok(()) }
}

/// Quiesces before a fork.
#[unsafe(no_mangle)]
pub extern "C" fn simpler_host_log_prepare_to_fork(timeout_ms: u32) -> c_int {
    guarded(|| {
        owners_only()?;
        host_log::prepare_to_fork(duration(timeout_ms)).map(|()| Outcome::Ok).map_err(not_drained)
    })
}

/// Quiesces before the process ends.
#[unsafe(no_mangle)]
pub extern "C" fn simpler_host_log_close(timeout_ms: u32) -> c_int {
    guarded(|| {
        owners_only()?;
        host_log::close(duration(timeout_ms));
        // A close that succeeds leaves no writer; one that does not leaves it running.
        // ORDERING: Acquire pairs with the Release of the owner when a writer starts or ends.
        let owner = host_log::state().sink_owner_pid.load(Ordering::Acquire);
        if owner.unsigned_abs() != host_log::pid().unsigned_abs() {
            return Ok(Outcome::Ok);
        }
        let host_log::Counts { pending, dropped, .. } = host_log::counts();
        Err(not_drained(DrainTimeout { pending, dropped }))
    })
}

fn duration(timeout_ms: u32) -> Duration {
    Duration::from_millis(timeout_ms.into())
}

/// The state to hand to modules.
#[unsafe(no_mangle)]
pub extern "C" fn simpler_host_log_state() -> *mut SimplerHostLogState {
    core::ptr::from_ref(host_log::state()).cast_mut()
}

/// The counters of this process.
///
/// # Safety
///
/// - `out` is null or has room for the counts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn simpler_host_log_counts(out: *mut SimplerHostLogCounts) -> c_int {
    guarded(|| {
        if out.is_null() {
            return Err(Outcome::BadArgument);
        }
        let host_log::Counts { pending, dropped, by_reason, reported } = host_log::counts();
        // SAFETY: not null, so it has room by the caller's obligation.
        unsafe { out.write(SimplerHostLogCounts { pending, dropped, by_reason, reported }) };
        Ok(Outcome::Ok)
    })
}

/// What a result means.
#[unsafe(no_mangle)]
pub extern "C" fn simpler_host_log_error_text(result: c_int) -> *const c_char {
    let found = Outcome::ALL.iter().find(|(outcome, _)| *outcome as c_int == result);
    found.map_or(c"no result of this library", |(_, text)| text).as_ptr()
}

/// What the calling thread's latest failure said.
///
/// # Safety
///
/// - `out` is null, or has room for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn simpler_host_log_last_error(out: *mut c_char, size: usize) -> usize {
    let (length, text) = LAST_ERROR.get();
    if !out.is_null() && size > 0 {
        let kept = length.min(size - 1);
        // SAFETY: `kept` bytes are readable in `text`, and fit `out` with the zero behind them.
        unsafe { core::ptr::copy_nonoverlapping(text.as_ptr().cast(), out, kept) };
        let end = out.wrapping_add(kept);
        // SAFETY: `kept` is less than `size`, so this is inside `out`.
        unsafe { end.write(0) };
    }
    length
}

/// Bytes as text: what is not UTF-8 is shown as U+FFFD.
struct Lossy<'a>(&'a [u8]);

impl fmt::Display for Lossy<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            f.write_str(chunk.valid())?;
            if !chunk.invalid().is_empty() {
                f.write_str("\u{fffd}")?;
            }
        }
        Ok(())
    }
}

/// Emits a text record.
///
/// # Safety
///
/// - `func` is null or zero-terminated.
/// - `message` is readable for `length` bytes, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn simpler_host_log_emit_text(
    level: i32,
    func: *const c_char,
    message: *const c_char,
    length: usize,
) -> c_int {
    guarded(|| {
        if message.is_null() && length > 0 || length > isize::MAX as usize {
            return Err(Outcome::BadArgument);
        }
        let level = Level::round_record(level);
        if host_log::enabled(level) {
            // SAFETY: the caller's obligation.
            let func = unsafe { text(func) }.unwrap_or(c"?").to_string_lossy();
            let message = match length {
                0 => &[],
                // SAFETY: not null, and readable by the caller's obligation.
                _ => unsafe { core::slice::from_raw_parts(message.cast::<u8>(), length) },
            };
            host_log::log(level, &func, None, format_args!("{}", Lossy(message)));
        }
        Ok(Outcome::Ok)
    })
}

/// Emits a finished span.
///
/// # Safety
///
/// - `span` is null or readable, its name and its attributes are null or zero-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn simpler_host_log_emit_span(span: *const SimplerHostSpan) -> c_int {
    guarded(|| {
        // SAFETY: the caller's obligation.
        let span = unsafe { span.as_ref() }.ok_or(Outcome::BadArgument)?;
        // SAFETY: as above.
        let name = unsafe { text(span.name) }.ok_or(Outcome::BadArgument)?;
        if host_log::span_enabled() {
            // SAFETY: as above.
            let attrs = unsafe { text(span.attrs) }.unwrap_or_default().to_string_lossy();
            let SimplerHostSpan { inv, hid, depth, ts, dur, .. } = *span;
            let name = name.to_string_lossy();
            host_log::emit_span(&SpanEvent { name: &name, inv, hid, depth, ts, dur, attrs: &attrs });
        }
        Ok(Outcome::Ok)
    })
}

/// The one clock of records and spans.
#[unsafe(no_mangle)]
pub extern "C" fn simpler_host_log_monotonic_ns() -> i64 {
    host_log::monotonic_ns()
}

const _: () = {
    // The header's numbers, which `tests/library.rs` asserts in C.
    assert!(size_of::<SimplerHostLogCounts>() == 56);
    assert!(core::mem::offset_of!(SimplerHostLogCounts, by_reason) == 16);
    assert!(core::mem::offset_of!(SimplerHostLogCounts, reported) == 48);
    let mut index = 0;
    while index < Outcome::ALL.len() {
        assert!(Outcome::ALL[index].0 as usize == index);
        index += 1;
    }
};
