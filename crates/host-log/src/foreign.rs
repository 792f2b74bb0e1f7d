//! Spans that are not the runtime's own: what a program, or a library in another language, wants to see beside them.
//!
//! They nest in the runtime's invocations and in each other, and the runtime does not nest in them: a thread's
//! [context](crate::context) is read and never changed. So it does no harm if they overlap, as those of interleaved
//! tasks do, or end on another thread than they began on. What is around a span is said by who opens it, for only a
//! program's own scheduler knows.
//!
//! Their names begin with `ext.<producer>.`, which is up to the caller; readers leave them out of every invocation.

use core::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use simpler_record_format::frame::{self, SPAN_FRAME};
use simpler_record_format::{ATTRS_BYTES, SpanFields};

use crate::identity::monotonic_ns;
use crate::span::{self, SpanContext, span_enabled};
use crate::{emit, thread};

/// Where a foreign span stands: in which invocation, and how deep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForeignPlace {
    /// The invocation, 0 outside any.
    pub(crate) inv: u64,
    /// The identity of its callable.
    pub(crate) hid: u64,
    /// The runtime's spans around it.
    ours: i32,
    /// The foreign spans around it, in the same invocation.
    foreign: i32,
}

impl ForeignPlace {
    /// The place of a span below `parent` that is created on a thread with the context `ours`. A thread that is
    /// in no invocation works for that of the parent.
    pub(crate) fn below(parent: Option<ForeignPlace>, ours: SpanContext) -> ForeignPlace {
        let SpanContext { inv, hid, depth } = ours;
        match parent {
            Some(parent) if inv == parent.inv || inv == 0 => ForeignPlace {
                ours: if inv == parent.inv { depth.max(parent.ours) } else { parent.ours },
                foreign: parent.foreign.saturating_add(1),
                ..parent
            },
            _ => ForeignPlace { inv, hid, ours: depth, foreign: 0 },
        }
    }

    /// The nesting that the span's record has.
    pub(crate) fn depth(self) -> i32 {
        self.ours.saturating_add(self.foreign)
    }
}

/// A foreign span that is open. Until it is closed, `simpler stacks` shows it on the thread that opened it, among the
/// spans of the runtime. Dropped without being closed it is not emitted.
#[derive(Debug)]
pub struct ForeignSpan {
    place: ForeignPlace,
    attributes: ForeignAttributes,
    start_ns: i64,
    /// Its place in the thread's stack.
    index: u32,
}

impl ForeignSpan {
    /// Opens a span called `name` on this thread, below `parent` and whatever the runtime has open here. `describe`
    /// writes its attributes; it is not called while spans are muted, and then there is no span.
    ///
    /// # Errors
    ///
    /// What `describe` says.
    pub fn open<E>(
        name: &str,
        parent: Option<ForeignPlace>,
        describe: impl FnOnce(&mut ForeignAttributes) -> Result<(), E>,
    ) -> Result<Option<ForeignSpan>, E> {
        if !span_enabled() {
            return Ok(None);
        }
        // Described first: the time that takes is not the span's.
        let mut attributes = ForeignAttributes::new();
        describe(&mut attributes)?;
        let thread = thread::current();
        thread.refresh();
        let place = ForeignPlace::below(parent, span::context());
        let start_ns = monotonic_ns();
        let ForeignPlace { inv, hid, .. } = place;
        let open = frame::OpenSpan { name: name.as_bytes(), inv, hid, start: start_ns, depth: place.depth() };
        let index = span::show_anywhere(thread, SPAN_FRAME, &open);
        Ok(Some(ForeignSpan { place, attributes, start_ns, index }))
    }

    /// The span's place, for spans below it.
    pub fn place(&self) -> ForeignPlace {
        self.place
    }

    /// Closes the span and emits it, under the `name` that it was opened by, as one of this thread. It is at least 1 ns
    /// long: a length of 0 means that nothing was measured.
    pub fn close(self, name: &str) {
        let end_ns = monotonic_ns();
        let ForeignSpan { place, attributes, start_ns, index } = self;
        emit::span(
            end_ns,
            SpanFields {
                pid: 0,
                tid: 0,
                inv: place.inv,
                hid: place.hid,
                depth: place.depth(),
                name: name.as_bytes(),
                ts: start_ns,
                dur: end_ns.saturating_sub(start_ns).max(1),
                attrs: attributes.as_str().as_bytes(),
            },
        );
        span::hide(thread::current(), index, start_ns);
    }
}

/// The bytes of `N` that a text takes, cut behind a whole character.
fn fitting(text: &str, bytes: usize) -> &str {
    let mut end = text.len().min(bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// A cut text must stay longer than its field, so that the encoder marks the cut: whatever the last character
/// was, this many bytes more than the field has are enough.
pub(crate) const CUT_MARGIN: usize = char::MAX.len_utf8();

/// A bounded text in place. What does not fit is left out.
pub(crate) struct Bounded<const N: usize> {
    length: usize,
    bytes: [u8; N],
}

impl<const N: usize> Bounded<N> {
    pub(crate) fn new() -> Self {
        Bounded { length: 0, bytes: [0; N] }
    }

    pub(crate) fn push(&mut self, text: &str) {
        let text = fitting(text, N - self.length);
        self.bytes[self.length..self.length + text.len()].copy_from_slice(text.as_bytes());
        self.length += text.len();
    }

    pub(crate) fn as_str(&self) -> &str {
        // Only whole characters were pushed.
        core::str::from_utf8(&self.bytes[..self.length]).unwrap_or_default()
    }
}

/// The attributes of a foreign span: `key=value` pairs with a space between them, 192 bytes once escaped. What does not
/// fit is cut, and the record says so.
///
/// A space would end a value, so it is written `%20`; the record then escapes the `%` as it does any. Spaces and `=` in
/// a key become `_`, and a key `clk`, which would claim another clock, becomes `_clk`.
pub struct ForeignAttributes(Bounded<{ ATTRS_BYTES + CUT_MARGIN }>);

impl ForeignAttributes {
    pub(crate) fn new() -> Self {
        Self(Bounded::new())
    }

    /// Appends a pair. A value that cannot be written, or panics over it, ends in `~`.
    pub fn pair(&mut self, key: &str, value: fmt::Arguments<'_>) {
        if self.0.length > 0 {
            self.0.push(" ");
        }
        match key {
            "" | "clk" => self.0.push("_"),
            _ => {}
        }
        let is_barred = |c: char| c.is_whitespace() || c == '=';
        for (at, part) in key.split(is_barred).enumerate() {
            self.0.push(if at > 0 { "_" } else { "" });
            self.0.push(part);
        }
        self.0.push("=");
        // The text may be half written when a value panics; it is marked as cut then.
        let written =
            catch_unwind(AssertUnwindSafe(|| fmt::Write::write_fmt(&mut Value(&mut self.0), value)));
        if !matches!(written, Ok(Ok(()))) {
            self.0.push("~");
        }
    }

    #[cfg(feature = "tracing")]
    pub(crate) fn append(&mut self, more: &ForeignAttributes) {
        if self.0.length > 0 && more.0.length > 0 {
            self.0.push(" ");
        }
        self.0.push(more.as_str());
    }

    pub(crate) fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl fmt::Debug for ForeignAttributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_str())
    }
}

/// Writes a value: a space, which would end it, is encoded.
struct Value<'a, const N: usize>(&'a mut Bounded<N>);

impl<const N: usize> fmt::Write for Value<'_, N> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for (at, part) in text.split(' ').enumerate() {
            self.0.push(if at > 0 { "%20" } else { "" });
            self.0.push(part);
        }
        Ok(())
    }
}
