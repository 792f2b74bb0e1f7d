//! Spans as guards: the time between a guard's creation and its drop, with the thread's invocation and depth.
//!
//! Each thread has one context {inv, hid, depth}. [`Invocation::begin`] opens a fresh invocation in it, a
//! [`span!`](crate::span!) inside nests one deeper, and each guard emits its record when it is dropped, on
//! every path out of the scope. The printed depth is the nesting before the span was entered, so a root
//! has 0.
//!
//! The decision is taken when a span is entered: muted then, it does nothing at its end either, so that a
//! threshold that changes meanwhile cannot produce a span with half a context. Of the muted ones only an
//! invocation's root counts in the depth.

use core::cell::Cell;
use core::fmt;
use core::marker::PhantomData;

use simpler_log_abi::{Level, SimplerSpanContext};
use simpler_record_format::{ATTRS_BYTES, SpanFields};

use crate::identity::monotonic_ns;
use crate::state;

std::thread_local! {
    /// FORK: the forking thread's context goes on in the child with the same invocation; (pid, inv) stays
    /// unique because the pid differs.
    static CONTEXT: Cell<SimplerSpanContext> =
        const { Cell::new(SimplerSpanContext { inv: 0, hid: 0, depth: 0, reserved: 0 }) };
}

/// The invocation that a thread is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpanContext {
    /// The invocation, 0 outside any.
    pub inv: u64,
    /// The identity of its callable.
    pub hid: u64,
    /// How many spans are open.
    pub depth: i32,
}

/// This thread's context.
pub fn context() -> SpanContext {
    let SimplerSpanContext { inv, hid, depth, .. } = CONTEXT.get();
    SpanContext { inv, hid, depth }
}

/// Replaces this thread's context and returns the former one. A phased run keeps its context in the run
/// and puts it in place at each entry, wherever that happens.
pub fn replace_context(context: SpanContext) -> SpanContext {
    let SpanContext { inv, hid, depth } = context;
    let former = CONTEXT.replace(SimplerSpanContext { inv, hid, depth, reserved: 0 });
    SpanContext { inv: former.inv, hid: former.hid, depth: former.depth }
}

/// The context's address for other modules; see [`simpler_log_abi::SimplerSpanContextFn`].
pub(crate) extern "C" fn context_address() -> *mut SimplerSpanContext {
    CONTEXT.with(Cell::as_ptr)
}

/// Whether spans are emitted, for whoever prepares one by hand. The macros ask by themselves.
#[inline]
pub fn span_enabled() -> bool {
    cfg!(feature = "host-strace") && crate::enabled(Level::Timing)
}

/// One finished span whose times the caller already has: device windows, synthesized nodes.
#[derive(Clone, Copy, Debug)]
pub struct SpanEvent<'a> {
    /// Dotted name, up to 64 bytes once escaped. An empty name is not emitted.
    pub name: &'a str,
    /// The invocation that the span belongs to.
    pub inv: u64,
    /// The identity of its callable.
    pub hid: u64,
    /// Nesting; the invocation's root has 0.
    pub depth: i32,
    /// Start in ns of `CLOCK_MONOTONIC`, or of the device's own axis when the attributes say `clk=dev`.
    pub ts: i64,
    /// Length in ns.
    pub dur: i64,
    /// `key=value` pairs separated by spaces, up to 192 bytes once escaped; may be empty.
    pub attrs: &'a str,
}

/// Emits `event` as a span of this process and thread. Does nothing while TIMING is muted.
pub fn emit_span(event: &SpanEvent<'_>) {
    if span_enabled() && !event.name.is_empty() {
        let SpanEvent { name, inv, hid, depth, ts, dur, attrs } = *event;
        let (name, attrs) = (name.as_bytes(), attrs.as_bytes());
        crate::emit::span(
            monotonic_ns(),
            SpanFields { pid: 0, tid: 0, inv, hid, depth, name, ts, dur, attrs },
        );
    }
}

/// What an open span knows: where it stands and when it began.
#[derive(Debug)]
struct Open {
    name: &'static str,
    start_ns: i64,
    depth: i32,
}

impl Open {
    // HOT: one relaxed load when muted; otherwise one clock read and two thread-local accesses.
    #[inline]
    fn enter(name: &'static str) -> Option<Open> {
        if !span_enabled() {
            return None;
        }
        let mut context = CONTEXT.get();
        let depth = context.depth;
        context.depth = depth.saturating_add(1);
        CONTEXT.set(context);
        Some(Open { name, start_ns: monotonic_ns(), depth })
    }

    // HOT: one clock read, one frame, one submission.
    fn leave(&self, attrs: &[u8]) {
        let end_ns = monotonic_ns();
        let mut context = CONTEXT.get();
        context.depth = self.depth;
        CONTEXT.set(context);
        crate::emit::span(
            end_ns,
            SpanFields {
                pid: 0,
                tid: 0,
                inv: context.inv,
                hid: context.hid,
                depth: self.depth,
                name: self.name.as_bytes(),
                ts: self.start_ns,
                dur: end_ns - self.start_ns,
                attrs,
            },
        );
    }
}

/// The guard of an open span; made by [`span!`](crate::span!). It stays on its thread.
#[must_use = "the span ends when its guard is dropped: bind it to a name"]
#[derive(Debug)]
pub struct Span {
    open: Option<Open>,
    on_this_thread: PhantomData<*const ()>,
}

impl Span {
    /// Opens a span called `name`.
    #[inline]
    pub fn enter(name: &'static str) -> Span {
        Span { open: Open::enter(name), on_this_thread: PhantomData }
    }
}

impl Drop for Span {
    #[inline]
    fn drop(&mut self) {
        if let Some(open) = &self.open {
            open.leave(b"");
        }
    }
}

/// The guard of an open span with attributes; made by [`span!`](crate::span!). It stays on its thread.
#[must_use = "the span ends when its guard is dropped: bind it to a name"]
#[derive(Debug)]
pub struct AttributedSpan {
    open: Option<(Open, Attributes)>,
    on_this_thread: PhantomData<*const ()>,
}

impl AttributedSpan {
    /// Opens a span called `name` whose attributes `describe` writes; it is not called while muted.
    #[inline]
    pub fn enter(name: &'static str, describe: impl FnOnce(&mut Attributes)) -> AttributedSpan {
        let open = if span_enabled() {
            let mut attributes = Attributes::new();
            // Described first: the time that takes is not the span's.
            describe(&mut attributes);
            Open::enter(name).map(|open| (open, attributes))
        } else {
            None
        };
        AttributedSpan { open, on_this_thread: PhantomData }
    }
}

impl Drop for AttributedSpan {
    #[inline]
    fn drop(&mut self) {
        if let Some((open, attributes)) = &self.open {
            open.leave(attributes.as_bytes());
        }
    }
}

/// One byte more than a record shows, so that the encoder sees that something was cut and marks it.
const ATTRIBUTE_TEXT_BYTES: usize = ATTRS_BYTES + 1;

/// The text of a span's attributes, in place. Writing never fails; what does not fit is cut.
pub struct Attributes {
    length: usize,
    text: [u8; ATTRIBUTE_TEXT_BYTES],
}

impl Attributes {
    #[inline]
    const fn new() -> Self {
        Self { length: 0, text: [0; ATTRIBUTE_TEXT_BYTES] }
    }

    fn as_bytes(&self) -> &[u8] {
        &self.text[..self.length]
    }
}

impl fmt::Debug for Attributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_bytes().escape_ascii())
    }
}

impl fmt::Write for Attributes {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // Cut within a character if need be: the record is bytes, and the encoder marks the cut.
        let free = &mut self.text[self.length..];
        let fits = text.len().min(free.len());
        free[..fits].copy_from_slice(&text.as_bytes()[..fits]);
        self.length += fits;
        Ok(())
    }
}

/// An invocation: one run of one callable, the root of a tree of spans.
#[derive(Debug)]
pub struct Invocation;

impl Invocation {
    /// Begins an invocation with a number of its own and opens its root span, called `name`, at depth 0.
    ///
    /// `hid` is the callable's identity. The thread's former context comes back when the guard is dropped,
    /// so an invocation inside another does not disturb it. The number is drawn even while muted: numbers
    /// then mean the same whatever the threshold. A muted root takes its place in the nesting, too, so that a
    /// span that is heard later is the child of a root that is missing, not a root.
    pub fn begin(name: &'static str, hid: u64) -> RootGuard {
        let inv = state().next_invocation_id.fetch_add(1, core::sync::atomic::Ordering::Relaxed);
        let former = replace_context(SpanContext { inv, hid, depth: 0 });
        let open = Open::enter(name);
        if open.is_none() {
            replace_context(SpanContext { inv, hid, depth: 1 });
        }
        RootGuard { former, open, on_this_thread: PhantomData }
    }
}

/// The guard of an invocation's root span. It stays on its thread.
#[must_use = "the invocation ends when its guard is dropped: bind it to a name"]
#[derive(Debug)]
pub struct RootGuard {
    former: SpanContext,
    open: Option<Open>,
    on_this_thread: PhantomData<*const ()>,
}

impl Drop for RootGuard {
    fn drop(&mut self) {
        if let Some(open) = &self.open {
            open.leave(b"");
        }
        replace_context(self.former);
    }
}

/// What [`span!`](crate::span!) gives when host spans are compiled out.
#[derive(Debug)]
pub struct NoSpan;
