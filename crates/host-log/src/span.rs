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
use simpler_record_format::frame::{self, OpenSpan, RAW_ATTRS_BYTES, SPAN_FRAME, SPAN_TICKS_FRAME};
use simpler_record_format::{RECORD_BYTES, SpanFields};

use crate::emit::{self, Way};
use crate::identity::monotonic_ns;
use crate::queue::{Claim, HEAD_DATA_BYTES};
use crate::region::Region;
use crate::sync::one_address;
use crate::thread::{self, Place, Thread};
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
    let SimplerSpanContext { inv, hid, depth, .. } = context_of(thread::current()).get();
    SpanContext { inv, hid, depth }
}

/// Replaces this thread's context and returns the former one. A phased run keeps its context in the run
/// and puts it in place at each entry, wherever that happens.
pub fn replace_context(context: SpanContext) -> SpanContext {
    let SpanContext { inv, hid, depth } = context;
    let context = SimplerSpanContext { inv, hid, depth, reserved: 0 };
    let former = context_of(thread::current()).replace(context);
    SpanContext { inv: former.inv, hid: former.hid, depth: former.depth }
}

/// The context's address for other modules; see [`simpler_log_abi::SimplerSpanContextFn`].
pub(crate) extern "C" fn context_address() -> *mut SimplerSpanContext {
    thread::current().context().as_ptr()
}

/// This thread's context: one for all modules of the process, in the memory of the module that owns the log.
// HOT: one load for the owner.
#[inline(always)]
fn context_of(thread: &Thread) -> &Cell<SimplerSpanContext> {
    if is_bound() { owners_context() } else { None }.unwrap_or(thread.context())
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
    emit_spans([*event]);
}

/// As [`emit_span`] for several that became known at the same time: their records have one and the same time.
pub fn emit_spans<'a>(events: impl IntoIterator<Item = SpanEvent<'a>>) {
    if !span_enabled() {
        return;
    }
    let now = monotonic_ns();
    for SpanEvent { name, inv, hid, depth, ts, dur, attrs } in events {
        if !name.is_empty() {
            let (name, attrs) = (name.as_bytes(), attrs.as_bytes());
            crate::emit::span(now, SpanFields { pid: 0, tid: 0, inv, hid, depth, name, ts, dur, attrs });
        }
    }
}

/// What an open span knows.
#[derive(Debug)]
struct Open {
    span: OpenSpan<'static>,
    /// The frame's place in the thread's stack, or [`NO_INDEX`], with [`IN_TICKS`] and [`STRAIGHT`].
    index: u32,
}

/// The place of a span that found none: beyond every stack.
const NO_INDEX: u32 = !FLAGS;

/// Says with a span's place that its start is a reading of the counter.
const IN_TICKS: u32 = 1 << 30;

/// Says with [`IN_TICKS`] that its name fits a slot's head.
const STRAIGHT: u32 = 1 << 31;

const FLAGS: u32 = IN_TICKS | STRAIGHT;

// The usual way is straight: what is rare or long is a function of its own that does all the rest, so that nothing is
// kept for it meanwhile.
impl Open {
    // HOT: one load when muted; otherwise a clock reading, the frame's first half, and the nesting.
    #[inline(always)]
    fn enter(name: &'static str) -> Option<Open> {
        if span_enabled() { Some(Open::enter_on(thread::current(), name)) } else { None }
    }

    #[inline(always)]
    fn enter_on(thread: &Thread, name: &'static str) -> Open {
        let name = name.as_bytes();
        if thread.is_ready_in_ticks()
            && let Some(place) = thread.take_place()
        {
            // Not bound, so the context is this module's.
            let (inv, hid, depth) = nest(thread.context());
            let span = OpenSpan { name, inv, hid, start: thread.now(true), depth };
            let index = place.index | if fits_a_head(name) { STRAIGHT | IN_TICKS } else { IN_TICKS };
            show(place, SPAN_TICKS_FRAME, &span);
            Open { span, index }
        } else {
            let (start, depth_and_index) = if thread.ready().is_some() {
                Open::enter_by_the_kernels_clock(thread, name)
            } else {
                Open::enter_elsewhere(thread, name)
            };
            let context = context_of(thread).get();
            let depth = (depth_and_index >> 32) as i32;
            let span = OpenSpan { name, inv: context.inv, hid: context.hid, start, depth };
            Open { span, index: depth_and_index as u32 }
        }
    }

    /// Enters by the kernel's clock. Gives the start, and the depth above [`Open::index`]: what two registers hold, so
    /// that nobody's way leads through memory.
    #[inline(never)]
    fn enter_by_the_kernels_clock(thread: &Thread, name: &[u8]) -> (i64, u64) {
        let start = thread.now(false);
        let (inv, hid, depth) = nest(thread.context());
        // Without a place nobody keeps the start convertible, so a span that finds none comes here, too.
        let index = show_anywhere(thread, SPAN_FRAME, &OpenSpan { name, inv, hid, start, depth });
        (start, depth_and_index(depth, index))
    }

    /// Enters where nothing is known to be ready. Gives what [`Open::enter_by_the_kernels_clock`] does.
    #[cold]
    #[inline(never)]
    fn enter_elsewhere(thread: &Thread, name: &[u8]) -> (i64, u64) {
        thread.refresh();
        let (inv, hid, depth) = nest(context_of(thread));
        let Some(place) = thread.take_place() else {
            return (thread.now(false), depth_and_index(depth, NO_INDEX));
        };
        // Only a writer keeps a start convertible.
        let in_ticks = thread.reads_ticks() && emit::is_queued(thread);
        let start = thread.now(in_ticks);
        let kind = if in_ticks { SPAN_TICKS_FRAME } else { SPAN_FRAME };
        let index = place.index | if in_ticks { IN_TICKS } else { 0 };
        show(place, kind, &OpenSpan { name, inv, hid, start, depth });
        (start, depth_and_index(depth, index))
    }

    /// Whether the span can go straight into a slot when it is left, if the log is ready then.
    #[inline(always)]
    fn is_straight(&self) -> bool {
        self.index & STRAIGHT != 0
    }

    /// Whether the span's start is a reading of the counter.
    #[inline(always)]
    fn in_ticks(&self) -> bool {
        self.index & IN_TICKS != 0
    }

    // HOT: a clock reading, a claim and a copy.
    #[inline(never)]
    fn leave(&self) {
        if self.is_straight() { self.leave_straight(b"") } else { self.leave_otherwise() }
    }

    /// As [`Open::leave`] with attributes.
    #[inline(never)]
    fn leave_with(&self, attrs: &[u8]) {
        let attrs = &attrs[..attrs.len().min(RAW_ATTRS_BYTES)];
        if self.is_straight() { self.leave_straight(attrs) } else { self.leave_by_its_clock(attrs) }
    }

    #[inline(always)]
    fn leave_straight(&self, attrs: &[u8]) {
        // SAFETY: the span was said to be straight because of it.
        unsafe { core::hint::assert_unchecked(fits_a_head(self.span.name)) };
        let thread = thread::current();
        let end = thread.now(true);
        match thread.ready_in_ticks() {
            // Asked again, here and below: the threshold may have changed since the span was entered.
            Some(region) if emit::enabled_here(Level::Timing) => {
                self.leave_into(region, thread, SPAN_TICKS_FRAME, end, attrs)
            }
            _ => self.leave_elsewhere(thread, end, attrs),
        }
    }

    #[inline(never)]
    fn leave_otherwise(&self) {
        self.leave_by_its_clock(b"");
    }

    #[inline(always)]
    fn leave_by_its_clock(&self, attrs: &[u8]) {
        let thread = thread::current();
        let end = thread.now(self.in_ticks());
        match thread.ready() {
            Some(region)
                if !self.in_ticks() && emit::enabled_here(Level::Timing) && fits_a_head(self.span.name) =>
            {
                self.leave_into(region, thread, SPAN_FRAME, end, attrs);
            }
            _ => self.leave_elsewhere(thread, end, attrs),
        }
    }

    #[inline(always)]
    fn leave_into(&self, region: &'static Region, thread: &Thread, kind: u8, end: i64, attrs: &[u8]) {
        match thread.claim_alone(region) {
            Some(claim) => self.publish(thread, region, claim, kind, end, attrs),
            None => self.leave_by_run(thread, region, kind, end, attrs),
        }
    }

    /// Leaves where several threads contend for positions.
    #[inline(never)]
    fn leave_by_run(&self, thread: &Thread, region: &'static Region, kind: u8, end: i64, attrs: &[u8]) {
        match thread.claim_by_run(region) {
            Ok(claim) => self.publish(thread, region, claim, kind, end, attrs),
            // Tried again there, and counted.
            Err(_) => self.leave_elsewhere(thread, end, attrs),
        }
    }

    /// Writes the span straight into its slot's head, which it fits.
    #[inline(always)]
    fn publish(
        &self,
        thread: &Thread,
        region: &'static Region,
        claim: Claim,
        kind: u8,
        end: i64,
        attrs: &[u8],
    ) {
        let passed_mark = claim.passed_mark();
        let mut slot = region.ring.slot(claim);
        // It fits, so this is never nothing.
        let size =
            frame::write_span(slot.data(), kind, end, thread.emitter(), &self.span, attrs.len()).unwrap_or(0);
        slot.publish(size, attrs, 0);
        // Read again rather than kept for so long.
        let this = one_address(self);
        // SAFETY: not bound, and the cell is this thread's.
        unsafe { (*thread.context().as_ptr()).depth = this.span.depth };
        this.close(thread);
        emit::published(region, passed_mark);
    }

    /// Leaves where the span does not go straight into a slot's head: there is no writer, or it is another module's,
    /// or the queue is full or closed, the name long, the clock another one by now.
    #[cold]
    #[inline(never)]
    fn leave_elsewhere(&self, thread: &Thread, end: i64, attrs: &[u8]) {
        thread.refresh();
        // SAFETY: the cell is this thread's.
        unsafe { (*context_of(thread).as_ptr()).depth = self.span.depth };
        if emit::enabled(Level::Timing) {
            let way = Way::of(thread);
            let mut in_ticks = self.in_ticks();
            let emitter = thread.emitter();
            let OpenSpan { name, inv, hid, start, depth } = self.span;
            let mut span = SpanFields {
                pid: emitter.pid(),
                tid: emitter.tid(),
                inv,
                hid,
                depth,
                name,
                ts: start,
                dur: end.wrapping_sub(start),
                attrs,
            };
            let mut mono_ns = end;
            if in_ticks && !thread.reads_ticks() {
                // Of a life whose clock is no more: nobody else will convert it.
                let mut to_ns = ticks::without_writer();
                span.ts = to_ns(start.cast_unsigned());
                mono_ns = to_ns(end.cast_unsigned()).max(span.ts);
                span.dur = mono_ns.saturating_sub(span.ts);
                in_ticks = false;
            }
            let mut record = [0; RECORD_BYTES];
            let size = frame::encode_span_frame(&mut record, mono_ns, emitter.thread(), &span);
            if in_ticks {
                record[0] = SPAN_TICKS_FRAME;
            }
            emit::submit(way, thread, &record[..size], 0);
        }
        self.close(thread);
    }

    /// Takes the span from the thread's stack.
    #[inline(always)]
    fn close(&self, thread: &Thread) {
        hide(thread, self.index & !FLAGS, self.span.start);
    }
}

/// Takes the span at `index` that began at `start` from the thread's stack, after its record was published: who does
/// not see it there finds that.
#[inline(always)]
pub(crate) fn hide(thread: &Thread, index: u32, start: i64) {
    if let Some(place) = thread.place(index)
        // Another's, if the span was opened in another life or on another thread, or one below it was closed first.
        // SAFETY: the place is this thread's.
        && frame::start_of(unsafe { &*place.frame }) == start
    {
        place.stack.closed(index);
        thread.give_back_place(index);
    }
}

/// Whether a span's name fits a slot's head.
#[inline(always)]
fn fits_a_head(name: &[u8]) -> bool {
    name.len() <= HEAD_DATA_BYTES - frame::SPAN_HEAD_BYTES
}

/// A depth above an [`Open::index`].
#[inline(always)]
fn depth_and_index(depth: i32, index: u32) -> u64 {
    u64::from(depth.cast_unsigned()) << 32 | u64::from(index)
}

/// Nests one deeper in the thread's context: gives the invocation, the callable and the depth of a span that opens.
#[inline(always)]
fn nest(context: &Cell<SimplerSpanContext>) -> (u64, u64, i32) {
    // Field by field: a struct that was written in parts is slow to be read as a whole.
    // SAFETY: the cell is this thread's.
    let context = unsafe { &mut *context.as_ptr() };
    let depth = context.depth;
    context.depth = if depth == i32::MAX {
        // A branch, for it is never taken.
        core::hint::cold_path();
        depth
    } else {
        depth + 1
    };
    (context.inv, context.hid, depth)
}

/// Shows a span that opens to others.
#[inline(always)]
fn show(place: Place, kind: u8, span: &OpenSpan<'_>) {
    // SAFETY: the place is this thread's, and the frame is not yet shown.
    frame::begin_span(unsafe { &mut *place.frame }, kind, span);
    place.stack.opened(place.index);
}

/// Shows a span that opens if there is a place for it, and gives its index: else [`NO_INDEX`].
#[inline(always)]
pub(crate) fn show_anywhere(thread: &Thread, kind: u8, span: &OpenSpan<'_>) -> u32 {
    thread.take_place().map_or(NO_INDEX, |place| {
        let index = place.index;
        show(place, kind, span);
        index
    })
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
            open.leave();
        }
    }
}

/// The guard of an open span with attributes; made by [`span!`](crate::span!). It stays on its thread.
#[must_use = "the span ends when its guard is dropped: bind it to a name"]
#[derive(Debug)]
pub struct AttributedSpan {
    open: Option<Open>,
    /// What `open` is described by, if it is.
    attributes: MaybeUninit<Attributes>,
    on_this_thread: PhantomData<*const ()>,
}

impl AttributedSpan {
    /// Opens a span called `name` whose attributes `describe` writes; it is not called while muted.
    #[inline]
    pub fn enter(name: &'static str, describe: impl FnOnce(&mut Attributes)) -> AttributedSpan {
        let mut attributes = MaybeUninit::uninit();
        let mut open = None;
        if span_enabled() {
            // Described first: the time that takes is not the span's.
            describe(Attributes::begin(&mut attributes));
            open = Open::enter(name);
        }
        AttributedSpan { open, attributes, on_this_thread: PhantomData }
    }
}

impl Drop for AttributedSpan {
    #[inline]
    fn drop(&mut self) {
        if let Some(open) = &self.open {
            // SAFETY: an open span was described before it was opened.
            open.leave_with(unsafe { self.attributes.assume_init_ref() }.as_bytes());
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
    /// An empty text in `place`.
    #[inline]
    fn begin(place: &mut MaybeUninit<Attributes>) -> &mut Attributes {
        // SAFETY: the field lies in `place`.
        let length = unsafe { &raw mut (*place.as_mut_ptr()).length };
        // SAFETY: `place` is the caller's to write.
        unsafe { length.write(0) };
        // SAFETY: the length is written, and the text need not be.
        unsafe { place.assume_init_mut() }
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
        Self::begin_described(name, hid, None)
    }

    /// As [`Invocation::begin`], with attributes on the root span, which `describe` writes; it is not called while
    /// muted.
    pub fn begin_with(name: &'static str, hid: u64, describe: impl FnOnce(&mut Attributes)) -> RootGuard {
        let attributes = span_enabled().then(|| {
            let mut attributes = MaybeUninit::uninit();
            describe(Attributes::begin(&mut attributes));
            // SAFETY: `begin` has written the length, and the text need not be.
            unsafe { attributes.assume_init() }
        });
        Self::begin_described(name, hid, attributes)
    }

    fn begin_described(name: &'static str, hid: u64, attributes: Option<Attributes>) -> RootGuard {
        let inv = state().next_invocation_id.fetch_add(1, core::sync::atomic::Ordering::Relaxed);
        let former = replace_context(SpanContext { inv, hid, depth: 0 });
        let open = Open::enter(name);
        if open.is_none() {
            replace_context(SpanContext { inv, hid, depth: 1 });
        }
        RootGuard { former, open, attributes, on_this_thread: PhantomData }
    }
}

/// The guard of an invocation's root span. It stays on its thread.
#[must_use = "the invocation ends when its guard is dropped: bind it to a name"]
#[derive(Debug)]
pub struct RootGuard {
    former: SpanContext,
    open: Option<Open>,
    attributes: Option<Attributes>,
    on_this_thread: PhantomData<*const ()>,
}

impl Drop for RootGuard {
    fn drop(&mut self) {
        match (&self.open, &self.attributes) {
            (Some(open), Some(attributes)) => open.leave_with(attributes.as_bytes()),
            (Some(open), None) => open.leave(),
            (None, _) => {}
        }
        replace_context(self.former);
    }
}

/// What [`span!`](crate::span!) gives when host spans are compiled out.
#[derive(Debug)]
pub struct NoSpan;
