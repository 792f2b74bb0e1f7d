//! What a foreign module hands in for one span, and the context that makes spans of several modules nest.

use core::ffi::c_char;

/// One finished span, as a C caller describes it. The logger adds pid, tid and the envelope.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SimplerHostSpan {
    /// The invocation that the span belongs to, 0 outside any.
    pub inv: u64,
    /// The identity of the callable that is being run, 0 outside any.
    pub hid: u64,
    /// Nesting before the span was entered; a root has 0.
    pub depth: i32,
    /// Zero.
    pub reserved: i32,
    /// Start in ns of `CLOCK_MONOTONIC` (of the device's own axis for `clk=dev` spans).
    pub ts: i64,
    /// Length in ns.
    pub dur: i64,
    /// Dotted name, zero-terminated. A span without a name is not emitted.
    pub name: *const c_char,
    /// `key=value` attributes separated by spaces, zero-terminated, or null for none.
    pub attrs: *const c_char,
}

/// The open invocation of one thread. It lives in the owner's thread-local memory, so that every module of
/// the process sees the same nesting.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SimplerSpanContext {
    /// The invocation, 0 outside any.
    pub inv: u64,
    /// The callable, 0 outside any.
    pub hid: u64,
    /// How many spans of this thread are open.
    pub depth: i32,
    /// Zero.
    pub reserved: i32,
}

/// Gives the calling thread's context. The pointer is valid on that thread only, for as long as it lives.
/// Any thread may call it at any time, also between `fork` and `exec`; it never returns null.
pub type SimplerSpanContextFn = unsafe extern "C" fn() -> *mut SimplerSpanContext;

const _: () = {
    use core::mem::{align_of, offset_of, size_of};
    assert!(size_of::<SimplerHostSpan>() == 56);
    assert!(align_of::<SimplerHostSpan>() == 8);
    assert!(offset_of!(SimplerHostSpan, inv) == 0);
    assert!(offset_of!(SimplerHostSpan, hid) == 8);
    assert!(offset_of!(SimplerHostSpan, depth) == 16);
    assert!(offset_of!(SimplerHostSpan, reserved) == 20);
    assert!(offset_of!(SimplerHostSpan, ts) == 24);
    assert!(offset_of!(SimplerHostSpan, dur) == 32);
    assert!(offset_of!(SimplerHostSpan, name) == 40);
    assert!(offset_of!(SimplerHostSpan, attrs) == 48);
    assert!(size_of::<SimplerSpanContext>() == 24);
    assert!(align_of::<SimplerSpanContext>() == 8);
    assert!(offset_of!(SimplerSpanContext, inv) == 0);
    assert!(offset_of!(SimplerSpanContext, hid) == 8);
    assert!(offset_of!(SimplerSpanContext, depth) == 16);
    assert!(offset_of!(SimplerSpanContext, reserved) == 20);
};
