//! The binary span frame: made by the thread that measures, rendered by the writer.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail where it stands")]

use std::fmt::Write as _;

use simpler_log_abi::Level;
use simpler_record_format::frame::{
    Emitter, FIRST_TEXT_BYTE, MONO_NS_OFFSET, OpenSpan, PID_OFFSET, SPAN_FRAME, SPAN_FRAME_BYTES_MAX,
    SPAN_HEAD_BYTES, SPAN_TICKS_FRAME, TEXT_FRAME, THREAD_OFFSET, TID_OFFSET, TextFrame, begin_span,
    encode_span_frame, last_tick, read_span, render, set_emitter, set_thread_ids, start_of, write_span,
};
use simpler_record_format::{Envelope, Location, RECORD_BYTES, SpanFields, encode_span, encode_text};

const SPAN: SpanFields<'static> = SpanFields {
    pid: 0x0102_0304,
    tid: 0x1112_1314_1516_1718,
    inv: 7,
    hid: 0xabc,
    depth: 2,
    name: b"simpler_run.bind",
    ts: 1_000,
    dur: 20,
    attrs: b"ntensor=4",
};

fn framed(span: &SpanFields<'_>) -> Vec<u8> {
    let mut out = [0; RECORD_BYTES];
    let len = encode_span_frame(&mut out, 1_234, 0x7f00, span);
    out[..len].to_vec()
}

fn rendered(slot: &[u8]) -> Vec<u8> {
    let mut out = [0xAA; RECORD_BYTES];
    let len = render(slot, &mut out, u64::cast_signed);
    out[..len].to_vec()
}

fn encoded(span: &SpanFields<'_>) -> Vec<u8> {
    let mut out = [0; RECORD_BYTES];
    let len = encode_span(&mut out, 1_234, 0x7f00, span);
    out[..len].to_vec()
}

#[test]
fn a_frame_has_the_documented_layout() {
    let frame = framed(&SPAN);
    assert_eq!(frame[0], SPAN_FRAME);
    assert_eq!(frame[1..4], [16, 9, 0]);
    let at = |offset: usize, bytes: usize| &frame[offset..offset + bytes];
    assert_eq!(at(4, 4), SPAN.pid.to_ne_bytes());
    assert_eq!(at(8, 8), SPAN.tid.to_ne_bytes());
    assert_eq!(at(16, 8), 1_234_i64.to_ne_bytes());
    assert_eq!(at(24, 8), 0x7f00_u64.to_ne_bytes());
    assert_eq!(at(32, 8), SPAN.inv.to_ne_bytes());
    assert_eq!(at(40, 8), SPAN.hid.to_ne_bytes());
    assert_eq!(at(48, 8), SPAN.ts.to_ne_bytes());
    assert_eq!(at(56, 8), SPAN.dur.to_ne_bytes());
    assert_eq!(at(64, 4), SPAN.depth.to_ne_bytes());
    assert_eq!(&frame[68..], b"simpler_run.bindntensor=4");
    assert_eq!([PID_OFFSET, TID_OFFSET, MONO_NS_OFFSET, THREAD_OFFSET, SPAN_HEAD_BYTES], [4, 8, 16, 24, 68]);
}

#[test]
fn a_rendered_frame_is_the_record_that_the_encoder_writes() {
    assert_eq!(rendered(&framed(&SPAN)), encoded(&SPAN));
    assert_eq!(rendered(&framed(&SpanFields { name: b"", attrs: b"", ..SPAN })), {
        encoded(&SpanFields { name: b"", attrs: b"", ..SPAN })
    });
}

#[test]
fn a_frame_keeps_what_it_needs_of_endless_fields() {
    let long = [b'x'; 10_000];
    let span = SpanFields { name: &long, attrs: &long, ..SPAN };
    assert_eq!(framed(&span).len(), SPAN_FRAME_BYTES_MAX);
    assert_eq!(rendered(&framed(&span)), encoded(&span));
}

#[test]
fn the_owner_can_fill_in_the_ids_of_the_calling_thread() {
    let mut frame = framed(&SpanFields { pid: 0, tid: 0, ..SPAN });
    set_thread_ids(&mut frame, SPAN.pid, SPAN.tid);
    assert_eq!(frame, framed(&SPAN));
}

#[test]
fn filling_in_ids_leaves_anything_but_a_span_frame_alone() {
    let text = [b'x'; 100];
    let short = framed(&SPAN)[..SPAN_HEAD_BYTES - 1].to_vec();
    let mut unknown = framed(&SPAN);
    unknown[0] = SPAN_TICKS_FRAME;
    for slot in [&text[..], &short, &unknown, &[]] {
        let mut patched = slot.to_vec();
        set_thread_ids(&mut patched, -1, -1);
        assert_eq!(patched, slot);
    }
}

#[test]
fn text_passes_through_and_ends_in_one_newline() {
    assert_eq!(rendered(b"[mono_ns=1] x\n"), b"[mono_ns=1] x\n");
    assert_eq!(rendered(b"no newline"), b"no newline\n");
    assert_eq!(rendered(&[b'x'; 511]).len(), 512);
    let cut = rendered(&[b'x'; 512]);
    assert_eq!((cut.len(), &cut[509..]), (512, &b"x~\n"[..]));
    let whole = [[b'x'; 511].as_slice(), b"\n"].concat();
    assert_eq!(rendered(&whole), whole);
    assert_eq!(rendered(&[FIRST_TEXT_BYTE]), b" \n");
}

#[test]
fn what_is_neither_text_nor_a_known_frame_renders_to_nothing() {
    let frame = framed(&SPAN);
    for kind in (0..FIRST_TEXT_BYTE).filter(|kind| ![SPAN_FRAME, SPAN_TICKS_FRAME, TEXT_FRAME].contains(kind))
    {
        let mut unknown = frame.clone();
        unknown[0] = kind;
        assert!(rendered(&unknown).is_empty(), "kind {kind}");
    }
    for len in 0..frame.len() {
        assert!(rendered(&frame[..len]).is_empty(), "cut to {len} bytes");
    }
}

fn opened<'a>(span: &SpanFields<'a>) -> OpenSpan<'a> {
    OpenSpan { name: span.name, inv: span.inv, hid: span.hid, start: span.ts, depth: span.depth }
}

#[test]
fn a_span_that_is_written_in_place_is_the_frame_that_the_encoder_writes() {
    let text = b"simpler_run.runner_run.device_wall.config_validate.and_more";
    for length in 0..=text.len() {
        let span = SpanFields { name: &text[..length], ..SPAN };
        let mut place = [0xAA; 112];
        let emitter = Emitter::new(span.pid, span.tid, 0x7f00);
        let end = span.ts + span.dur;
        let size = write_span(&mut place, SPAN_FRAME, end, &emitter, &opened(&span), span.attrs.len());
        let mut expected = [0; RECORD_BYTES];
        let len = encode_span_frame(&mut expected, end, 0x7f00, &span);
        match size {
            Some(size) => assert_eq!([&place[..size], span.attrs].concat(), expected[..len], "{length}"),
            None => assert!(SPAN_HEAD_BYTES + length > place.len() && place == [0xAA; 112]),
        }
        assert_eq!(size.is_some(), SPAN_HEAD_BYTES + length <= 112);
    }
}

#[test]
fn an_open_span_shows_what_is_known_of_it() {
    let mut open = [0xAA; 144];
    set_emitter(&mut open, &Emitter::new(SPAN.pid, 43, 0x7f00));
    begin_span(&mut open, SPAN_FRAME, &opened(&SPAN));
    let seen = read_span(&open).unwrap();
    assert_eq!((seen.pid, seen.tid, seen.inv, seen.hid, seen.depth), (SPAN.pid, 43, 7, 0xabc, 2));
    assert_eq!((seen.name, seen.ts, seen.attrs), (SPAN.name, SPAN.ts, &b""[..]));
    assert_eq!(start_of(&open), SPAN.ts);
}

#[test]
fn a_frame_in_ticks_is_rendered_by_the_clock_that_it_is_given() {
    let mut frame = framed(&SpanFields { ts: 1_000, ..SPAN });
    frame[0] = SPAN_TICKS_FRAME;
    frame[MONO_NS_OFFSET..MONO_NS_OFFSET + 8].copy_from_slice(&3_000_i64.to_ne_bytes());
    assert_eq!(last_tick(&frame), Some(3_000));
    let mut out = [0; RECORD_BYTES];
    let len = render(&frame, &mut out, |tick| tick as i64 / 2 + 7);
    let mut expected = [0; RECORD_BYTES];
    let expected_len = encode_span(&mut expected, 1_507, 0x7f00, &SpanFields { ts: 507, dur: 1_000, ..SPAN });
    assert_eq!(out[..len], expected[..expected_len]);
}

fn text(stamp: i64, is_ticks: bool, location: Option<Location<'_>>, body: &str) -> Vec<u8> {
    let mut frame = TextFrame::new(Level::Warn, "run", location);
    frame.write_str(body).unwrap();
    frame.finish(stamp, is_ticks, 0x7f00).to_vec()
}

#[test]
fn a_text_frame_has_the_documented_layout() {
    let frame = text(0x0102_0304_0506_0708, true, Some(Location { file: "a.rs", line: 77 }), "body");
    assert_eq!(frame[..2], [TEXT_FRAME, 6 | 0x20 | 0x40]);
    assert_eq!(frame[2..6], [3_u16, 4].map(u16::to_ne_bytes).concat());
    assert_eq!(frame[6..10], 77_u32.to_ne_bytes());
    assert_eq!(frame[10..18], 0x0102_0304_0506_0708_i64.to_ne_bytes());
    assert_eq!(frame[18..26], 0x7f00_u64.to_ne_bytes());
    assert_eq!(&frame[26..], b"runa.rsbody");
    assert_eq!(last_tick(&frame), Some(0x0102_0304_0506_0708));
    assert_eq!(last_tick(&text(1, false, None, "body")), None);
}

#[test]
fn a_text_frame_renders_to_the_record_that_the_encoder_writes() {
    for location in [None, Some(Location { file: "dir/a.rs", line: 4_000_000_000 })] {
        for length in (0..700).chain([5_000]) {
            let body: String = "0123\n56789".chars().cycle().take(length).collect();
            let mut expected = [0; RECORD_BYTES];
            let envelope = Envelope { mono_ns: 123_456, thread: 0x7f00, level: Level::Warn, func: "run" };
            let expected_len = encode_text(&mut expected, &envelope, location, format_args!("{body}"));
            assert_eq!(rendered(&text(123_456, true, location, &body)), expected[..expected_len], "{length}");
        }
    }
}

#[test]
fn a_cut_text_frame_is_a_cut_record_even_with_the_shortest_envelope() {
    let mut frame = TextFrame::new(Level::Info, "f", None);
    frame.write_str(&"x".repeat(RECORD_BYTES)).unwrap();
    let line = rendered(frame.finish(0, false, 0));
    assert_eq!((line.len(), &line[510..]), (512, &b"~\n"[..]));
}

#[test]
fn a_text_frame_whose_lengths_disagree_with_it_renders_to_nothing() {
    let frame = text(1, false, Some(Location { file: "a.rs", line: 1 }), "");
    for len in 0..frame.len() {
        assert!(rendered(&frame[..len]).is_empty(), "cut to {len} bytes");
    }
}
