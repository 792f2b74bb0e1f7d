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
use core::ffi::c_void;
use core::fmt;
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::sync::atomic::Ordering;

use simpler_log_abi::{Level, SimplerSpanContext, SimplerSpanContextFn};
use simpler_record_format::frame::{self, RAW_ATTRS_BYTES, SPAN_FRAME, SPAN_TICKS_FRAME};
use simpler_record_format::{DECIMAL_DIGITS_MAX, RECORD_BYTES, SpanFields, decimal_digits, write_decimal};

use crate::emit::{self, Way};
use crate::identity::monotonic_ns;
use crate::queue::HEAD_DATA_BYTES;
use crate::stack::OPEN_FRAME_BYTES;
use crate::thread::{self, Thread};
use crate::{is_bound, state, ticks};

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
    let SimplerSpanContext { inv, hid, depth, .. } = thread::with(|thread| with_context(thread, Cell::get));
    SpanContext { inv, hid, depth }
}

/// Replaces this thread's context and returns the former one. A phased run keeps its context in the run
/// and puts it in place at each entry, wherever that happens.
pub fn replace_context(context: SpanContext) -> SpanContext {
    let SpanContext { inv, hid, depth } = context;
    let context = SimplerSpanContext { inv, hid, depth, reserved: 0 };
    let former = thread::with(|thread| with_context(thread, |place| place.replace(context)));
    SpanContext { inv: former.inv, hid: former.hid, depth: former.depth }
}

/// The context's address for other modules; see [`simpler_log_abi::SimplerSpanContextFn`].
pub(crate) extern "C" fn context_address() -> *mut SimplerSpanContext {
    thread::with(|thread| thread.context().as_ptr())
}

/// This thread's context: one for all modules of the process, in the memory of the module that owns the log.
// HOT: one load for the owner.
#[inline(always)]
fn with_context<R>(thread: &Thread, look: impl FnOnce(&Cell<SimplerSpanContext>) -> R) -> R {
    look(if is_bound() { owners_context() } else { None }.unwrap_or(thread.context()))
}

#[cold]
fn owners_context<'a>() -> Option<&'a Cell<SimplerSpanContext>> {
    // ORDERING: Acquire pairs with the Release in `init`.
    let function = state().span_context.load(Ordering::Acquire);
    if function.is_null() {
        return None;
    }
    // SAFETY: not null, and by the state's contract a function of this type.
    let function = unsafe { core::mem::transmute::<*mut c_void, SimplerSpanContextFn>(function) };
    // SAFETY: any thread may call it at any time.
    let context = unsafe { function() };
    // SAFETY: the pointer is this thread's for as long as it lives, never null, and a cell is its content.
    Some(unsafe { &*context.cast::<Cell<SimplerSpanContext>>() })
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
    inv: u64,
    hid: u64,
    /// In ns, or a reading of the counter.
    start: i64,
    depth: i32,
    /// The frame's place in the thread's stack; beyond it if there was none.
    index: u32,
    in_ticks: bool,
}

/// No place in a stack.
const NO_INDEX: u32 = u32::MAX;

impl Open {
    // HOT: one load when muted; otherwise a clock reading, the frame's first half, and the nesting.
    #[inline(always)]
    fn enter(name: &'static str) -> Option<Open> {
        span_enabled().then(|| thread::with(|thread| Open::enter_on(thread, name)))
    }

    #[inline(always)]
    fn enter_on(thread: &Thread, name: &'static str) -> Open {
        if thread.ready().is_some() {
            // Not bound, so the context is this module's.
            return Open::enter_in(thread, thread.context(), thread.reads_ticks(), name);
        }
        Open::enter_unready(thread, name)
    }

    #[cold]
    #[inline(never)]
    fn enter_unready(thread: &Thread, name: &'static str) -> Open {
        thread.refresh();
        // Only a writer keeps a start convertible.
        let in_ticks = thread.reads_ticks() && emit::is_queued(thread);
        with_context(thread, |context| Open::enter_in(thread, context, in_ticks, name))
    }

    #[inline(always)]
    fn enter_in(
        thread: &Thread,
        context: &Cell<SimplerSpanContext>,
        in_ticks: bool,
        name: &'static str,
    ) -> Open {
        // Field by field: a struct that was written in parts is slow to be read as a whole.
        let context = context.as_ptr();
        // SAFETY: the cell is this thread's.
        let context = unsafe { &mut *context };
        let (inv, hid, depth) = (context.inv, context.hid, context.depth);
        context.depth = depth.saturating_add(1);
        let Some((stack, index, frame)) = thread.take_place() else {
            // Only a span that others can see has its start kept convertible.
            let start = thread.now(false);
            return Open { name, inv, hid, start, depth, index: NO_INDEX, in_ticks: false };
        };
        let start = thread.now(in_ticks);
        let kind = if in_ticks { SPAN_TICKS_FRAME } else { SPAN_FRAME };
        // SAFETY: the place is this thread's, and the frame is not yet shown to others.
        let frame = unsafe { &mut *frame };
        frame::begin_span(frame, kind, inv, hid, depth, start, name.as_bytes());
        stack.opened(index);
        Open { name, inv, hid, start, depth, index, in_ticks }
    }

    // HOT: a clock reading, a claim and a copy.
    #[inline(never)]
    fn leave(&self, attrs: &[u8]) {
        thread::with(|thread| {
            let end = thread.now(self.in_ticks);
            if let Some(region) = thread.ready()
                && self.fits_a_head()
                && self.in_ticks <= thread.reads_ticks()
                // Asked again: the threshold may have changed since the span was entered.
                && emit::enabled(Level::Timing)
                && let Ok(claim) = thread.claim(region)
            {
                // SAFETY: not bound, and the cell is this thread's.
                unsafe { (*thread.context().as_ptr()).depth = self.depth };
                let passed_mark = claim.passed_mark();
                let attrs = &attrs[..attrs.len().min(RAW_ATTRS_BYTES)];
                let kind = if self.in_ticks { SPAN_TICKS_FRAME } else { SPAN_FRAME };
                region.ring.publish_filled(
                    claim,
                    |place| {
                        let span = self.fields(thread, end, attrs);
                        // It fits, so this is never nothing.
                        frame::write_span(place, kind, end, thread.handle(), &span, attrs.len()).unwrap_or(0)
                    },
                    attrs,
                );
                emit::published(region, passed_mark);
            } else {
                self.leave_unready(thread, end, attrs);
            }
            if let Some((stack, frame)) = thread.place(self.index)
                && self.is_in(frame)
            {
                stack.closed(self.index);
                thread.give_back_place(self.index);
            }
        });
    }

    #[inline(always)]
    fn fields<'a>(&self, thread: &Thread, end: i64, attrs: &'a [u8]) -> SpanFields<'a> {
        SpanFields {
            pid: thread.pid(),
            tid: i64::from(thread.tid_as_found()),
            inv: self.inv,
            hid: self.hid,
            depth: self.depth,
            name: self.name.as_bytes(),
            ts: self.start,
            dur: end.wrapping_sub(self.start),
            attrs,
        }
    }

    /// Leaves where the span does not go straight into a slot's head: there is no writer, or it is another module's,
    /// or the queue is full or closed, the name long, the clock another one by now.
    #[cold]
    #[inline(never)]
    fn leave_unready(&self, thread: &Thread, end: i64, attrs: &[u8]) {
        thread.refresh();
        with_context(thread, |place| {
            // SAFETY: the cell is this thread's.
            unsafe { (*place.as_ptr()).depth = self.depth }
        });
        if emit::enabled(Level::Timing) {
            emit::ensure_anchor(thread);
            let span = self.fields(thread, end, &attrs[..attrs.len().min(RAW_ATTRS_BYTES)]);
            self.emit_elsewhere(Way::now(thread), thread, end, span);
        }
    }

    /// Whether the span's name fits a slot's head.
    #[inline(always)]
    fn fits_a_head(&self) -> bool {
        self.name.len() <= HEAD_DATA_BYTES - frame::SPAN_HEAD_BYTES
    }

    /// Whether `frame` is this span's: not if the span was opened in another life, or one below it was closed first.
    #[inline(always)]
    fn is_in(&self, frame: *mut [u8; OPEN_FRAME_BYTES]) -> bool {
        // SAFETY: the place is this thread's.
        frame::start_of(unsafe { &*frame }) == self.start
    }

    /// Emits the span another way than straight into a slot's head.
    #[cold]
    #[inline(never)]
    fn emit_elsewhere(&self, way: Way, thread: &Thread, end: i64, span: SpanFields<'_>) {
        let mut end = end;
        let mut span = span;
        let mut in_ticks = self.in_ticks;
        if in_ticks && !thread.reads_ticks() {
            // Of a life whose clock is no more: nobody else will convert it.
            let mut to_ns = ticks::without_writer();
            span.ts = to_ns(self.start.cast_unsigned());
            end = to_ns(end.cast_unsigned()).max(span.ts);
            span.dur = end.saturating_sub(span.ts);
            in_ticks = false;
        }
        let mut record = [0; RECORD_BYTES];
        let size = frame::encode_span_frame(&mut record, end, thread.handle(), &span);
        if in_ticks {
            record[0] = SPAN_TICKS_FRAME;
        }
        emit::submit_by(way, thread, &record[..size], 0);
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

/// The text of a span's attributes, in place: one byte more than a record shows, so that the encoder sees that
/// something was cut and marks it. Writing never fails; what does not fit is cut.
pub struct Attributes {
    length: usize,
    text: [MaybeUninit<u8>; RAW_ATTRS_BYTES],
}

impl Attributes {
    #[inline]
    const fn new() -> Self {
        Self { length: 0, text: [const { MaybeUninit::uninit() }; RAW_ATTRS_BYTES] }
    }

    #[inline]
    fn as_bytes(&self) -> &[u8] {
        // SAFETY: `push` has written everything below the length.
        unsafe { core::slice::from_raw_parts(self.text.as_ptr().cast(), self.length) }
    }

    /// Appends bytes, cut within a character if need be: the record is bytes, and the encoder marks the cut.
    #[inline]
    pub(crate) fn push(&mut self, text: &[u8]) {
        let free = &mut self.text[self.length..];
        let fits = text.len().min(free.len());
        free[..fits].write_copy_of_slice(&text[..fits]);
        self.length += fits;
    }

    /// Appends a key and the `=` behind it; what the macro expands to.
    #[doc(hidden)]
    #[inline]
    pub fn key(&mut self, key_and_sign: &'static str) {
        self.push(key_and_sign.as_bytes());
    }
}

/// An attribute's value on its way into the text. Integers, which most are, do not go through the formatting
/// machinery: with the two traits in scope, `(&AttributeValue(&value)).put(..)` finds [`PutInteger`] where there is
/// one and [`PutDisplay`] elsewhere.
#[doc(hidden)]
#[derive(Debug)]
pub struct AttributeValue<'a, T: ?Sized>(pub &'a T);

/// See [`AttributeValue`].
#[doc(hidden)]
pub trait PutInteger {
    fn put(&self, attributes: &mut Attributes);
}

/// See [`AttributeValue`].
#[doc(hidden)]
pub trait PutDisplay {
    fn put(&self, attributes: &mut Attributes);
}

impl<T: fmt::Display + ?Sized> PutDisplay for &AttributeValue<'_, T> {
    fn put(&self, attributes: &mut Attributes) {
        // The text never fails: what does not fit is cut. A value that fails ends where it does.
        let _ = fmt::Write::write_fmt(attributes, format_args!("{}", self.0));
    }
}

macro_rules! put_integers {
    ($($integer:ident)*) => {$(
        impl PutInteger for AttributeValue<'_, $integer> {
            #[inline]
            fn put(&self, attributes: &mut Attributes) {
                let value = *self.0;
                #[allow(unused_comparisons, reason = "of the unsigned ones")]
                if value < 0 {
                    attributes.push(b"-");
                }
                let magnitude = (value as i128).unsigned_abs() as u64;
                let digits = decimal_digits(magnitude);
                let mut text = [0; DECIMAL_DIGITS_MAX];
                write_decimal(&mut text[..digits], magnitude);
                attributes.push(&text[..digits]);
            }
        }
    )*};
}

put_integers! { u8 u16 u32 u64 usize i8 i16 i32 i64 isize }

impl fmt::Debug for Attributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_bytes().escape_ascii())
    }
}

impl fmt::Write for Attributes {
    #[inline]
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text.as_bytes());
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
