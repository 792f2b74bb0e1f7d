//! The binary span frame: what a thread copies into its queue slot instead of a formatted record.
//!
//! A queue slot holds opaque bytes. A first byte below [`FIRST_TEXT_BYTE`] is the kind and version of a
//! frame; any other byte starts a rendered text record. The thread that ends a span copies its fields
//! ([`encode_span_frame`], a few ns), and the writer thread turns them into the line ([`render`]), which is
//! byte for byte the line that [`encode_span`] writes.
//!
//! Layout of a span frame, numbers in the machine's own byte order, since a frame never leaves it:
//!
//! | offset | field | offset | field |
//! |---|---|---|---|
//! | 0 | kind and version, [`SPAN_FRAME`] | 24 | thread (`pthread_self`) u64 |
//! | 1 | bytes of name u8 | 32 | inv u64 |
//! | 2 | bytes of attributes u8 | 40 | hid u64 |
//! | 3 | 0 | 48 | ts i64 |
//! | 4 | pid i32 | 56 | dur i64 |
//! | 8 | tid i64 | 64 | depth i32 |
//! | 16 | envelope's mono_ns i64 | 68 | name, then attributes, raw |

use crate::{ATTRS_BYTES, NAME_BYTES, RECORD_BYTES, SpanFields, encode_span};

/// The least first byte of a text record; those below are kinds of frames.
pub const FIRST_TEXT_BYTE: u8 = 0x20;

/// The first byte of a span frame as laid out here. 0 is no kind: a slot that was never written.
pub const SPAN_FRAME: u8 = 1;

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
const RAW_ATTRS_BYTES: usize = ATTRS_BYTES + 1;

/// The longest span frame.
pub const SPAN_FRAME_BYTES_MAX: usize = SPAN_HEAD_BYTES + RAW_NAME_BYTES + RAW_ATTRS_BYTES;

const _: () = assert!(SPAN_FRAME_BYTES_MAX <= RECORD_BYTES);
// Their lengths are stored in one byte each.
const _: () = assert!(RAW_NAME_BYTES <= u8::MAX as usize);
const _: () = assert!(RAW_ATTRS_BYTES <= u8::MAX as usize);

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
    put(out, 0, [SPAN_FRAME, name.len() as u8, attrs.len() as u8, 0]);
    put(out, PID_OFFSET, span.pid.to_ne_bytes());
    put(out, TID_OFFSET, span.tid.to_ne_bytes());
    put(out, MONO_NS_OFFSET, mono_ns.to_ne_bytes());
    put(out, THREAD_OFFSET, thread.to_ne_bytes());
    put(out, INV_OFFSET, span.inv.to_ne_bytes());
    put(out, HID_OFFSET, span.hid.to_ne_bytes());
    put(out, TS_OFFSET, span.ts.to_ne_bytes());
    put(out, DUR_OFFSET, span.dur.to_ne_bytes());
    put(out, DEPTH_OFFSET, span.depth.to_ne_bytes());
    out[SPAN_HEAD_BYTES..attrs_at].copy_from_slice(name);
    out[attrs_at..end].copy_from_slice(attrs);
    end
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
/// lost.
///
/// A text record passes through. One without a newline at its end gets it, by the rule of every record: up to
/// [`RECORD_BYTES`] with the newline it is whole, a longer one is cut and marked.
pub fn render(frame_or_text: &[u8], out: &mut [u8; RECORD_BYTES]) -> usize {
    match frame_or_text.first() {
        None => 0,
        Some(&first) if first >= FIRST_TEXT_BYTE => render_text(frame_or_text, out),
        Some(&SPAN_FRAME) => match read_span_frame(frame_or_text) {
            Some((mono_ns, thread, span)) => encode_span(out, mono_ns, thread, &span),
            None => 0,
        },
        Some(_) => 0,
    }
}

fn render_text(text: &[u8], out: &mut [u8; RECORD_BYTES]) -> usize {
    let mut line = crate::line::Line::new(out);
    line.bytes(text.strip_suffix(b"\n").unwrap_or(text));
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
fn get<const N: usize>(head: &[u8; SPAN_HEAD_BYTES], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&head[at..at + N]);
    field
}
