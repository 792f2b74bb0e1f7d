//! Binary frames: what a thread copies into its queue slot instead of a formatted record.
//!
//! A queue slot holds opaque bytes. A first byte below [`FIRST_TEXT_BYTE`] is the kind and version of a
//! frame; any other byte starts a rendered text record. The thread that ends a span copies its fields (a few
//! ns), and the writer thread turns them into the line ([`render`]), which is byte for byte the line that
//! [`encode_span`] or [`encode_text`](crate::encode_text) writes.
//!
//! Layout of a span frame, numbers in the machine's own byte order, since a frame never leaves it:
//!
//! | offset | field | offset | field |
//! |---|---|---|---|
//! | 0 | kind: [`SPAN_FRAME`] or [`SPAN_TICKS_FRAME`] | 24 | thread (`pthread_self`) u64 |
//! | 1 | bytes of name u8 | 32 | inv u64 |
//! | 2 | bytes of attributes u8 | 40 | hid u64 |
//! | 3 | 0 | 48 | ts i64 |
//! | 4 | pid i32 | 56 | dur i64 |
//! | 8 | tid i64 | 64 | depth i32 |
//! | 16 | envelope's mono_ns i64 | 68 | name, then attributes, raw |
//!
//! In a [`SPAN_TICKS_FRAME`] `ts` and `mono_ns` are readings of the processor's counter, the span's start and
//! end, and `dur` is nothing. Only the module that owns the log can say what its readings are in ns, so no other one
//! submits this kind, nor a text frame with readings ([`last_tick`] tells). A [`TEXT_FRAME`]:
//!
//! | offset | field | offset | field |
//! |---|---|---|---|
//! | 0 | kind: [`TEXT_FRAME`] | 6 | line u32 |
//! | 1 | index of the level, and flags: ticks 32, place 64, cut 128 | 10 | mono_ns i64, or ticks |
//! | 2 | bytes of the function's name u16 | 18 | thread u64 |
//! | 4 | bytes of the file's name u16 | 26 | function, file, body, raw |
//!
//! Its head is no longer than the shortest envelope, so that what does not fit a frame does not fit its record.

use core::fmt;
use core::mem::MaybeUninit;

use simpler_log_abi::Level;

use crate::line::{Line, Prose};
use crate::{ATTRS_BYTES, Location, NAME_BYTES, RECORD_BYTES, SpanFields, encode_span};

/// The least first byte of a text record; those below are kinds of frames.
pub const FIRST_TEXT_BYTE: u8 = 0x20;

/// The first byte of a span frame as laid out here. 0 is no kind: a slot that was never written.
pub const SPAN_FRAME: u8 = 1;

/// The first byte of a span frame whose times are counter readings.
pub const SPAN_TICKS_FRAME: u8 = 2;

/// The first byte of a text frame.
pub const TEXT_FRAME: u8 = 3;

/// Where in a span frame the process id stands, an `i32`.
pub const PID_OFFSET: usize = 4;

/// Where in a span frame the kernel's thread id stands, an `i64`.
pub const TID_OFFSET: usize = 8;

/// Where in a span frame the time of emission stands, an `i64`, ns.
pub const MONO_NS_OFFSET: usize = 16;

/// Where in a span frame `pthread_self` stands, a `u64`.
pub const THREAD_OFFSET: usize = 24;

const NAME_LEN_OFFSET: usize = 1;
const ATTRS_LEN_OFFSET: usize = 2;
const INV_OFFSET: usize = 32;
const HID_OFFSET: usize = 40;
const TS_OFFSET: usize = 48;
const DUR_OFFSET: usize = 56;
const DEPTH_OFFSET: usize = 64;

/// The bytes of a span frame in front of its name.
pub const SPAN_HEAD_BYTES: usize = 68;

/// The raw bytes of a name that can matter: one more than fit shows that it must be cut, and no raw byte
/// takes less than one encoded one.
const RAW_NAME_BYTES: usize = NAME_BYTES + 1;

/// The raw bytes of attributes that can matter.
pub const RAW_ATTRS_BYTES: usize = ATTRS_BYTES + 1;

/// The longest span frame.
pub const SPAN_FRAME_BYTES_MAX: usize = SPAN_HEAD_BYTES + RAW_NAME_BYTES + RAW_ATTRS_BYTES;

const _: () = assert!(SPAN_FRAME_BYTES_MAX <= RECORD_BYTES);
// Their lengths are stored in one byte each.
const _: () = assert!(RAW_NAME_BYTES <= u8::MAX as usize);
const _: () = assert!(RAW_ATTRS_BYTES <= u8::MAX as usize);

/// The least room for a span frame without attributes.
pub const OPEN_SPAN_BYTES: usize = SPAN_HEAD_BYTES + RAW_NAME_BYTES;

/// What is known of a span when it opens.
#[derive(Clone, Copy, Debug)]
pub struct OpenSpan<'a> {
    /// As in [`SpanFields`].
    pub name: &'a [u8],
    /// As in [`SpanFields`].
    pub inv: u64,
    /// As in [`SpanFields`].
    pub hid: u64,
    /// In ns, or a reading of the counter.
    pub start: i64,
    /// As in [`SpanFields`].
    pub depth: i32,
}

/// Who emits, as a span frame has it: made once for a thread, and copied.
#[derive(Clone, Copy, Debug)]
pub struct Emitter {
    /// The frame's beginning, the kind and the lengths left out.
    start: [u8; MONO_NS_OFFSET],
    thread: [u8; 8],
}

impl Emitter {
    /// The process, the thread's id in the kernel, and its `pthread_self`.
    pub const fn new(pid: i32, tid: i64, thread: u64) -> Self {
        let mut start = [0; MONO_NS_OFFSET];
        let (head, tid_at) = start.split_at_mut(TID_OFFSET);
        head.split_at_mut(PID_OFFSET).1.copy_from_slice(&pid.to_ne_bytes());
        tid_at.copy_from_slice(&tid.to_ne_bytes());
        Self { start, thread: thread.to_ne_bytes() }
    }

    /// The process.
    #[inline(always)]
    pub fn pid(&self) -> i32 {
        i32::from_ne_bytes(get(&self.start, PID_OFFSET))
    }

    /// The thread's id in the kernel.
    #[inline(always)]
    pub fn tid(&self) -> i64 {
        i64::from_ne_bytes(get(&self.start, TID_OFFSET))
    }

    /// The thread's `pthread_self`.
    #[inline(always)]
    pub fn thread(&self) -> u64 {
        u64::from_ne_bytes(self.thread)
    }
}

/// Says who emits the frames that [`begin_span`] will write into `out`.
pub fn set_emitter<const N: usize>(out: &mut [u8; N], emitter: &Emitter) {
    const { assert!(N >= OPEN_SPAN_BYTES) }
    out[..MONO_NS_OFFSET].copy_from_slice(&emitter.start);
    put(out, THREAD_OFFSET, emitter.thread);
}

/// Writes what is known of a span when it opens where others can see it. What [`set_emitter`] has written is left
/// alone: it is the same for all spans of a thread.
// HOT: every span passes here on the thread that it measures.
#[inline(always)]
pub fn begin_span<const N: usize>(out: &mut [u8; N], kind: u8, span: &OpenSpan<'_>) {
    const { assert!(N >= OPEN_SPAN_BYTES) }
    let name = &span.name[..span.name.len().min(RAW_NAME_BYTES)];
    put(out, 0, [kind, name.len() as u8, 0, 0]);
    put(out, INV_OFFSET, span.inv.to_ne_bytes());
    put(out, HID_OFFSET, span.hid.to_ne_bytes());
    put(out, TS_OFFSET, span.start.to_ne_bytes());
    put(out, DEPTH_OFFSET, span.depth.to_ne_bytes());
    put_text(&mut out[SPAN_HEAD_BYTES..SPAN_HEAD_BYTES + name.len()], name);
}

/// Writes the frame of a span that closes at `end` straight into the place from which it will be rendered, up to its
/// attributes, and gives its length there; the caller puts the `attrs` bytes of those, at most [`RAW_ATTRS_BYTES`],
/// behind it. `None`, and nothing written, if the name does not fit.
///
/// From what is known and not from the open frame: bytes that were just stored in parts are slow to be read as a whole.
// HOT: as above.
#[inline(always)]
pub fn write_span<const N: usize>(
    out: &mut [u8; N],
    kind: u8,
    end: i64,
    emitter: &Emitter,
    span: &OpenSpan<'_>,
    attrs: usize,
) -> Option<usize> {
    const { assert!(N >= SPAN_HEAD_BYTES && N - SPAN_HEAD_BYTES <= SHORT_BYTES_MAX) }
    let length = SPAN_HEAD_BYTES + span.name.len();
    if length > N {
        return None;
    }
    put_span_head(out, [kind, span.name.len() as u8, attrs as u8, 0], end, emitter, span);
    if kind != SPAN_TICKS_FRAME {
        put(out, DUR_OFFSET, end.wrapping_sub(span.start).to_ne_bytes());
    }
    put_short(&mut out[SPAN_HEAD_BYTES..length], span.name);
    Some(length)
}

/// Stores everything in front of a span's name but `dur`.
#[inline(always)]
fn put_span_head<const N: usize>(
    out: &mut [u8; N],
    kind_and_lengths: [u8; 4],
    mono_ns: i64,
    emitter: &Emitter,
    span: &OpenSpan<'_>,
) {
    out[..MONO_NS_OFFSET].copy_from_slice(&emitter.start);
    put(out, THREAD_OFFSET, emitter.thread);
    put(out, 0, kind_and_lengths);
    put(out, MONO_NS_OFFSET, mono_ns.to_ne_bytes());
    put(out, INV_OFFSET, span.inv.to_ne_bytes());
    put(out, HID_OFFSET, span.hid.to_ne_bytes());
    put(out, TS_OFFSET, span.start.to_ne_bytes());
    put(out, DEPTH_OFFSET, span.depth.to_ne_bytes());
}

/// The step of [`put_short`], and how many bytes it copies at most.
const SHORT_STEP: usize = 16;
const SHORT_BYTES_MAX: usize = 3 * SHORT_STEP;

/// A byte that may be written, whatever it was before.
trait Byte: Sized {
    fn of(byte: u8) -> Self;
    fn copy(out: &mut [Self], text: &[u8]);
}

impl Byte for u8 {
    #[inline(always)]
    fn of(byte: u8) -> Self {
        byte
    }

    #[inline(always)]
    fn copy(out: &mut [Self], text: &[u8]) {
        out.copy_from_slice(text);
    }
}

impl Byte for MaybeUninit<u8> {
    #[inline(always)]
    fn of(byte: u8) -> Self {
        MaybeUninit::new(byte)
    }

    #[inline(always)]
    fn copy(out: &mut [Self], text: &[u8]) {
        out.write_copy_of_slice(text);
    }
}

/// Copies a text, which is usually short. Both have one length.
#[inline(always)]
fn put_text<B: Byte>(out: &mut [B], text: &[u8]) {
    if text.len() <= SHORT_BYTES_MAX {
        put_short(out, text);
    } else {
        B::copy(out, text);
    }
}

/// Copies a text, which is short, without a call: a first step and a last one, which may overlap, and one between
/// them. Both have one length.
#[inline(always)]
fn put_short(out: &mut [impl Byte], text: &[u8]) {
    if put_ends::<SHORT_STEP>(out, text) {
        if text.len() > 2 * SHORT_STEP
            && let Some(out) = out[SHORT_STEP..].first_chunk_mut::<SHORT_STEP>()
            && let Some(text) = text[SHORT_STEP..].first_chunk::<SHORT_STEP>()
        {
            *out = text.map(Byte::of);
        }
    } else if !(put_ends::<8>(out, text) || put_ends::<4>(out, text)) {
        for (out, byte) in out.iter_mut().zip(text) {
            *out = Byte::of(*byte);
        }
    }
}

/// Copies the first `STEP` bytes and the last; not, and says so, where there are fewer.
#[inline(always)]
fn put_ends<const STEP: usize>(out: &mut [impl Byte], text: &[u8]) -> bool {
    let (Some(first), Some(last)) = (text.first_chunk::<STEP>(), text.last_chunk::<STEP>()) else {
        return false;
    };
    if let Some(out) = out.first_chunk_mut() {
        *out = first.map(Byte::of);
    }
    if let Some(out) = out.last_chunk_mut() {
        *out = last.map(Byte::of);
    }
    true
}

/// The start that [`begin_span`] wrote.
#[inline(always)]
pub fn start_of<const N: usize>(frame: &[u8; N]) -> i64 {
    const { assert!(N >= OPEN_SPAN_BYTES) }
    i64::from_ne_bytes(get(frame, TS_OFFSET))
}

/// The length of a frame that [`begin_span`] wrote: an open span has no attributes yet.
pub fn open_length<const N: usize>(frame: &[u8; N]) -> usize {
    const { assert!(N >= OPEN_SPAN_BYTES) }
    SPAN_HEAD_BYTES + usize::from(frame[NAME_LEN_OFFSET])
}

/// The fields of a span frame, ticks as they are; `None` if it is none or its lengths disagree with it. An open
/// span reads like a finished one, but for `dur` and the time of emission.
pub fn read_span(frame: &[u8]) -> Option<SpanFields<'_>> {
    matches!(frame.first(), Some(&(SPAN_FRAME | SPAN_TICKS_FRAME)))
        .then(|| read_span_frame(frame))
        .flatten()
        .map(|(_, _, span)| span)
}

const FLAGS_OFFSET: usize = 1;
const FUNC_LEN_OFFSET: usize = 2;
const FILE_LEN_OFFSET: usize = 4;
const LINE_OFFSET: usize = 6;
const STAMP_OFFSET: usize = 10;
const TEXT_THREAD_OFFSET: usize = 18;

/// The bytes of a text frame in front of the function's name.
pub const TEXT_HEAD_BYTES: usize = 26;

const _: () = assert!(TEXT_HEAD_BYTES <= "[mono_ns=0][T0x0][INFO] : ".len());

/// What all levels are multiples of, so that they fit beside the flags.
const LEVEL_STEP: u8 = 5;
const LEVEL_MASK: u8 = 0x1f;
const TICKS_FLAG: u8 = 0x20;
const PLACE_FLAG: u8 = 0x40;
const CUT_FLAG: u8 = 0x80;

/// A text frame in the making, in place: the function and the place first, then the body as it is written
/// ([`fmt::Write`]), then the time. What does not fit is left out, and the record will be a cut one.
pub struct TextFrame {
    length: usize,
    flags: u8,
    bytes: [MaybeUninit<u8>; RECORD_BYTES],
}

impl TextFrame {
    /// Begins the frame of a record at `level` that was made by `func`.
    // HOT: every text record of the owner passes here.
    #[inline]
    pub fn new(level: Level, func: &str, location: Option<Location<'_>>) -> TextFrame {
        let mut frame = TextFrame {
            length: TEXT_HEAD_BYTES,
            flags: (level as u8 / LEVEL_STEP) | if location.is_some() { PLACE_FLAG } else { 0 },
            bytes: [const { MaybeUninit::uninit() }; RECORD_BYTES],
        };
        frame.put(0, [TEXT_FRAME]);
        frame.put(LINE_OFFSET, location.map_or(0, |place| place.line).to_ne_bytes());
        let func = frame.push(func.as_bytes());
        frame.put(FUNC_LEN_OFFSET, func.to_ne_bytes());
        let file = frame.push(location.map_or(b"", |place| place.file.as_bytes()));
        frame.put(FILE_LEN_OFFSET, file.to_ne_bytes());
        frame
    }

    /// Ends the frame: `stamp` is `CLOCK_MONOTONIC` in ns or the counter's reading, `thread` is `pthread_self`.
    // HOT: as above.
    #[inline]
    pub fn finish(&mut self, stamp: i64, is_ticks: bool, thread: u64) -> &[u8] {
        self.put(FLAGS_OFFSET, [self.flags | if is_ticks { TICKS_FLAG } else { 0 }]);
        self.put(STAMP_OFFSET, stamp.to_ne_bytes());
        self.put(TEXT_THREAD_OFFSET, thread.to_ne_bytes());
        // SAFETY: the head is written field by field, `new` and the lines above leave no byte of it out, and
        // `push` has written everything from there to the length.
        unsafe { core::slice::from_raw_parts(self.bytes.as_ptr().cast(), self.length) }
    }

    /// Appends bytes of the function, the file or the body and gives how many found room.
    // HOT: once for each piece of a message; of most pieces the length is known to the compiler.
    #[inline(always)]
    pub fn push(&mut self, text: &[u8]) -> u16 {
        let Some(room) = self.bytes[self.length..].get_mut(..text.len()) else {
            return self.push_what_fits(text);
        };
        put_text(room, text);
        self.length += text.len();
        text.len() as u16
    }

    #[cold]
    fn push_what_fits(&mut self, text: &[u8]) -> u16 {
        let free = &mut self.bytes[self.length..];
        let (fits, _) = text.split_at(text.len().min(free.len()));
        free[..fits.len()].write_copy_of_slice(fits);
        self.length += fits.len();
        self.flags |= CUT_FLAG;
        fits.len() as u16
    }

    /// Stores a field of the head.
    #[inline]
    fn put<const N: usize>(&mut self, at: usize, field: [u8; N]) {
        self.bytes[at..at + N].write_copy_of_slice(&field);
    }
}

impl fmt::Write for TextFrame {
    #[inline]
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text.as_bytes());
        Ok(())
    }
}

/// Copies a span into a frame and returns the frame's length. `mono_ns` and `thread` are the envelope's.
// HOT: every span passes here on the thread that it measures.
#[inline]
pub fn encode_span_frame(
    out: &mut [u8; RECORD_BYTES],
    mono_ns: i64,
    thread: u64,
    span: &SpanFields<'_>,
) -> usize {
    let name = &span.name[..span.name.len().min(RAW_NAME_BYTES)];
    let attrs = &span.attrs[..span.attrs.len().min(RAW_ATTRS_BYTES)];
    let attrs_at = SPAN_HEAD_BYTES + name.len();
    let end = attrs_at + attrs.len();
    let SpanFields { pid, tid, inv, hid, depth, ts, dur, .. } = *span;
    let emitter = Emitter::new(pid, tid, thread);
    let open = OpenSpan { name, inv, hid, start: ts, depth };
    put_span_head(out, [SPAN_FRAME, name.len() as u8, attrs.len() as u8, 0], mono_ns, &emitter, &open);
    put(out, DUR_OFFSET, dur.to_ne_bytes());
    out[SPAN_HEAD_BYTES..attrs_at].copy_from_slice(name);
    out[attrs_at..end].copy_from_slice(attrs);
    end
}

/// The latest counter reading in a slot's content, if it has any: what must be convertible to render it.
#[inline]
pub fn last_tick(frame_or_text: &[u8]) -> Option<u64> {
    let at = match frame_or_text {
        [SPAN_TICKS_FRAME, ..] => MONO_NS_OFFSET,
        [TEXT_FRAME, flags, ..] if flags & TICKS_FLAG != 0 => STAMP_OFFSET,
        _ => return None,
    };
    frame_or_text.get(at..).and_then(|rest| rest.first_chunk()).map(|tick| u64::from_ne_bytes(*tick))
}

/// Puts the ids of the calling thread into a span frame, for a producer that does not know them. Anything
/// but a span frame is left as it is.
// HOT: the owner's enqueue callback does this for records that other shared objects submit.
#[inline]
pub fn set_thread_ids(frame: &mut [u8], pid: i32, tid: i64) {
    if let Some(head) = frame.first_chunk_mut::<SPAN_HEAD_BYTES>()
        && head[0] == SPAN_FRAME
    {
        put(head, PID_OFFSET, pid.to_ne_bytes());
        put(head, TID_OFFSET, tid.to_ne_bytes());
    }
}

/// Writes the text record of a slot's content into `out` and returns its length, which is 0 when the content
/// is neither a text record nor a frame of a known kind: then there is nothing to write and the record is
/// lost. `to_ns` converts the counter's readings; it must not decrease.
///
/// A text record passes through. One without a newline at its end gets it, by the rule of every record: up to
/// [`RECORD_BYTES`] with the newline it is whole, a longer one is cut and marked. What would end the line inside it
/// is escaped.
pub fn render(
    frame_or_text: &[u8],
    out: &mut [u8; RECORD_BYTES],
    mut to_ns: impl FnMut(u64) -> i64,
) -> usize {
    match frame_or_text.first() {
        None => 0,
        Some(&first) if first >= FIRST_TEXT_BYTE => render_text(frame_or_text, out),
        Some(&SPAN_FRAME) => match read_span_frame(frame_or_text) {
            Some((mono_ns, thread, span)) => encode_span(out, mono_ns, thread, &span),
            None => 0,
        },
        Some(&SPAN_TICKS_FRAME) => match read_span_frame(frame_or_text) {
            Some((end, thread, span)) => {
                let ts = to_ns(span.ts.cast_unsigned());
                let end = to_ns(end.cast_unsigned()).max(ts);
                encode_span(out, end, thread, &SpanFields { ts, dur: end.saturating_sub(ts), ..span })
            }
            None => 0,
        },
        Some(&TEXT_FRAME) => render_text_frame(frame_or_text, out, to_ns).unwrap_or(0),
        Some(_) => 0,
    }
}

fn render_text_frame(
    frame: &[u8],
    out: &mut [u8; RECORD_BYTES],
    mut to_ns: impl FnMut(u64) -> i64,
) -> Option<usize> {
    let (head, rest) = frame.split_first_chunk::<TEXT_HEAD_BYTES>()?;
    let length = |at| usize::from(u16::from_ne_bytes(get(head, at)));
    let (func, rest) = rest.split_at_checked(length(FUNC_LEN_OFFSET))?;
    let (file, body) = rest.split_at_checked(length(FILE_LEN_OFFSET))?;
    let flags = head[FLAGS_OFFSET];
    let stamp = i64::from_ne_bytes(get(head, STAMP_OFFSET));
    let mono_ns = if flags & TICKS_FLAG != 0 { to_ns(stamp.cast_unsigned()) } else { stamp };
    let mut line = Line::new(out);
    line.envelope(
        mono_ns,
        u64::from_ne_bytes(get(head, TEXT_THREAD_OFFSET)),
        Level::round_record(i32::from(flags & LEVEL_MASK) * i32::from(LEVEL_STEP)),
    );
    let place = (flags & PLACE_FLAG != 0).then(|| (file, u32::from_ne_bytes(get(head, LINE_OFFSET))));
    line.place(func, place);
    Prose::new(&mut line).bytes(body);
    if flags & CUT_FLAG != 0 {
        line.cut();
    }
    Some(line.finish())
}

fn render_text(text: &[u8], out: &mut [u8; RECORD_BYTES]) -> usize {
    let mut line = Line::new(out);
    Prose::new(&mut line).bytes(text);
    line.finish()
}

/// The fields of a span frame, or `None` if its lengths disagree with it.
fn read_span_frame(frame: &[u8]) -> Option<(i64, u64, SpanFields<'_>)> {
    let (head, tail) = frame.split_first_chunk::<SPAN_HEAD_BYTES>()?;
    let (name, tail) = tail.split_at_checked(usize::from(head[NAME_LEN_OFFSET]))?;
    let attrs = tail.get(..usize::from(head[ATTRS_LEN_OFFSET]))?;
    let span = SpanFields {
        pid: i32::from_ne_bytes(get(head, PID_OFFSET)),
        tid: i64::from_ne_bytes(get(head, TID_OFFSET)),
        inv: u64::from_ne_bytes(get(head, INV_OFFSET)),
        hid: u64::from_ne_bytes(get(head, HID_OFFSET)),
        depth: i32::from_ne_bytes(get(head, DEPTH_OFFSET)),
        name,
        ts: i64::from_ne_bytes(get(head, TS_OFFSET)),
        dur: i64::from_ne_bytes(get(head, DUR_OFFSET)),
        attrs,
    };
    let mono_ns = i64::from_ne_bytes(get(head, MONO_NS_OFFSET));
    let thread = u64::from_ne_bytes(get(head, THREAD_OFFSET));
    Some((mono_ns, thread, span))
}

/// Stores a field of the head. `at` is one of the offsets above, so the range lies inside.
#[inline]
fn put<const N: usize, const HEAD: usize>(head: &mut [u8; HEAD], at: usize, field: [u8; N]) {
    head[at..at + N].copy_from_slice(&field);
}

/// Loads a field of the head. `at` is one of the offsets above, so the range lies inside.
#[inline]
fn get<const N: usize, const HEAD: usize>(head: &[u8; HEAD], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&head[at..at + N]);
    field
}
