//! The C encoder and the Rust encoder write the same bytes for the same fields.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail where it stands")]

extern crate host_log as simpler_host_log;

mod support;

use std::io::Write;
use std::process::{Command, Stdio};

use simpler_log_abi::Level;
use simpler_record_format::frame::{encode_span_frame, render};
use simpler_record_format::{
    ClockAnchor, Envelope, Location, RECORD_BYTES, SpanFields, encode_clock_anchor, encode_span, encode_text,
};
use support::{build, source};

/// A text record's fields.
#[derive(Clone, Debug)]
struct Text {
    mono_ns: i64,
    thread: u64,
    level: Level,
    func: String,
    place: Option<(String, i32)>,
    body: String,
}

/// A span's fields; the bytes of its texts are none of them zero.
#[derive(Clone, Debug)]
struct Span {
    mono_ns: i64,
    thread: u64,
    pid: i32,
    tid: i64,
    inv: u64,
    hid: u64,
    depth: i32,
    ts: i64,
    dur: i64,
    name: Vec<u8>,
    attrs: Option<Vec<u8>>,
}

#[derive(Clone, Debug)]
enum Vector {
    Text(Text),
    Span(Span),
    Frame(Span),
    Anchor { mono_ns: i64, thread: u64, pid: i32, anchor_mono_ns: i64, anchor_wall_ns: i64 },
}

impl Span {
    fn fields(&self) -> SpanFields<'_> {
        let Span { pid, tid, inv, hid, depth, ts, dur, .. } = *self;
        let attrs = self.attrs.as_deref().unwrap_or_default();
        SpanFields { pid, tid, inv, hid, depth, name: &self.name, ts, dur, attrs }
    }
}

impl Vector {
    /// What Rust writes.
    fn expected(&self) -> Vec<u8> {
        let mut out = [0; RECORD_BYTES];
        let size = match self {
            Vector::Text(Text { mono_ns, thread, level, func, place, body }) => {
                let envelope = Envelope { mono_ns: *mono_ns, thread: *thread, level: *level, func };
                let place = place.as_ref();
                let place = place.map(|(file, line)| Location { file, line: line.unsigned_abs() });
                encode_text(&mut out, &envelope, place, format_args!("{body}"))
            }
            Vector::Span(span) => encode_span(&mut out, span.mono_ns, span.thread, &span.fields()),
            Vector::Frame(span) => encode_span_frame(&mut out, span.mono_ns, span.thread, &span.fields()),
            Vector::Anchor { mono_ns, thread, pid, anchor_mono_ns, anchor_wall_ns } => {
                let (pid, mono, wall_ns) = (*pid as u64, *anchor_mono_ns, *anchor_wall_ns);
                encode_clock_anchor(&mut out, *mono_ns, *thread, &ClockAnchor { pid, mono_ns: mono, wall_ns })
            }
        };
        out[..size].to_vec()
    }

    /// What the C program reads.
    fn request(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let text = |out: &mut Vec<u8>, bytes: &[u8]| {
            out.extend((bytes.len() as u32).to_ne_bytes());
            out.extend(bytes);
        };
        match self {
            Vector::Text(Text { mono_ns, thread, level, func, place, body }) => {
                out.push(b't');
                out.extend(mono_ns.to_ne_bytes());
                out.extend(thread.to_ne_bytes());
                out.extend((*level as i32).to_ne_bytes());
                let (file, line) = place.as_ref().map_or(("", -1), |(file, line)| (file, *line));
                out.extend(line.to_ne_bytes());
                text(&mut out, func.as_bytes());
                text(&mut out, file.as_bytes());
                text(&mut out, body.as_bytes());
            }
            Vector::Span(span) | Vector::Frame(span) => {
                out.push(if matches!(self, Vector::Span(_)) { b's' } else { b'f' });
                out.extend(span.mono_ns.to_ne_bytes());
                out.extend(span.thread.to_ne_bytes());
                out.extend(span.pid.to_ne_bytes());
                out.extend(span.tid.to_ne_bytes());
                out.extend(span.inv.to_ne_bytes());
                out.extend(span.hid.to_ne_bytes());
                out.extend(span.depth.to_ne_bytes());
                out.extend(span.ts.to_ne_bytes());
                out.extend(span.dur.to_ne_bytes());
                out.push(u8::from(span.attrs.is_some()));
                text(&mut out, &span.name);
                text(&mut out, span.attrs.as_deref().unwrap_or_default());
            }
            Vector::Anchor { mono_ns, thread, pid, anchor_mono_ns, anchor_wall_ns } => {
                out.push(b'a');
                out.extend(mono_ns.to_ne_bytes());
                out.extend(thread.to_ne_bytes());
                out.extend(pid.to_ne_bytes());
                out.extend(anchor_mono_ns.to_ne_bytes());
                out.extend(anchor_wall_ns.to_ne_bytes());
            }
        }
        out
    }
}

/// Numbers at every edge.
const I64S: [i64; 9] = [0, 1, -1, 9, 10, 88_400_000_000_000, i64::MAX, i64::MIN, -9_000_000_000_000_000_000];
const I32S: [i32; 6] = [0, 1, -1, 41, i32::MAX, i32::MIN];
const U64S: [u64; 6] = [0, 7, 0xb7e2_c044_10d9_5f6e, u64::MAX, 1 << 32, (1 << 32) + 7];

fn plain_span() -> Span {
    Span {
        mono_ns: 88_400_000_005_000,
        thread: 0x7f00_2900_a740,
        pid: 41,
        tid: 43,
        inv: 1,
        hid: 0xb7e2,
        depth: 1,
        ts: 88_400_000_000_000,
        dur: 5_000,
        name: b"simpler_run.bind".to_vec(),
        attrs: Some(b"ntensor=4".to_vec()),
    }
}

fn plain_text() -> Text {
    Text {
        mono_ns: 88_400_000_000_000,
        thread: 0x7f00_2900_a740,
        level: Level::Info,
        func: "load".into(),
        place: Some(("weights.c".into(), 77)),
        body: "x".into(),
    }
}

/// The vectors that somebody thought of.
fn chosen() -> Vec<Vector> {
    let mut vectors = Vec::new();
    // Text: lengths around the bound, places, lines in the body, colons in the name.
    for body in 380..520 {
        vectors.push(Vector::Text(Text { body: "0123456789".repeat(60)[..body].into(), ..plain_text() }));
        vectors.push(Vector::Text(Text { body: "ab\n".repeat(200)[..body].into(), ..plain_text() }));
        vectors.push(Vector::Text(Text { body: "\r".repeat(body / 2), ..plain_text() }));
        vectors.push(Vector::Text(Text { body: "\u{20ac}".repeat(body / 3), place: None, ..plain_text() }));
    }
    for body in
        ["", "\n", "\r", "done\n", "done\n\n", "a\nb", "a\r\nb\r\n", "\n\nx", "\u{20ac}%[]\u{1}\t\u{7f}"]
    {
        vectors.push(Vector::Text(Text { body: body.into(), ..plain_text() }));
    }
    for func in ["", "a::b\nc\rd", "emit_host_span", &"f".repeat(470), &"f:".repeat(3000)] {
        for place in
            [None, Some((String::new(), 0)), Some(("x\r\n.c".into(), i32::MAX)), Some(("p".repeat(2000), 1))]
        {
            vectors.push(Vector::Text(Text { func: func.into(), place, ..plain_text() }));
        }
    }
    for level in Level::ALL {
        for mono_ns in I64S {
            for thread in U64S {
                vectors.push(Vector::Text(Text { mono_ns, thread, level, ..plain_text() }));
            }
        }
    }
    // Spans: every number at its edges, names and attributes of every byte and around their bounds.
    for number in I64S {
        vectors.push(Vector::Span(Span { mono_ns: number, ..plain_span() }));
        vectors.push(Vector::Span(Span { ts: number, ..plain_span() }));
        vectors.push(Vector::Span(Span { dur: number, ..plain_span() }));
        vectors.push(Vector::Span(Span { tid: number, ..plain_span() }));
        for anchor_wall_ns in I64S {
            let (thread, pid, anchor_mono_ns) = (0x7f, 41, number);
            vectors.push(Vector::Anchor { mono_ns: number, thread, pid, anchor_mono_ns, anchor_wall_ns });
        }
    }
    for number in I32S {
        vectors.push(Vector::Span(Span { depth: number, ..plain_span() }));
        vectors.push(Vector::Span(Span { pid: number, ..plain_span() }));
    }
    for number in U64S {
        vectors.push(Vector::Span(Span { inv: number, hid: number, thread: number, ..plain_span() }));
    }
    for byte in 1..=u8::MAX {
        let texts = vec![byte; usize::from(byte)];
        vectors.push(Vector::Span(Span { name: texts.clone(), attrs: Some(texts), ..plain_span() }));
        let around = [b"a", &[byte][..], b"b"].concat();
        vectors.push(Vector::Span(Span { name: around.clone(), attrs: Some(around), ..plain_span() }));
    }
    for length in (50..80).chain(180..200).chain([500, 5000]) {
        for unit in [&b"n"[..], b"%", b"n%", b"nn%", b"%n", b"=", b" ", b"\xff", b"~"] {
            let mut text = unit.repeat(length);
            text.truncate(length);
            vectors.push(Vector::Span(Span { name: text.clone(), attrs: Some(text), ..plain_span() }));
        }
        // An escape that stands where the field ends.
        for before in length.saturating_sub(4)..length {
            let text = [vec![b'n'; before], b"%".to_vec(), vec![b'n'; 3]].concat();
            vectors.push(Vector::Span(Span { name: text.clone(), attrs: Some(text), ..plain_span() }));
        }
    }
    vectors.push(Vector::Span(Span { name: Vec::new(), attrs: Some(Vec::new()), ..plain_span() }));
    vectors.push(Vector::Span(Span { name: Vec::new(), attrs: None, ..plain_span() }));
    // The widest record that there is.
    vectors.push(Vector::Span(Span {
        mono_ns: i64::MIN,
        thread: u64::MAX,
        pid: i32::MIN,
        tid: i64::MIN,
        inv: u64::MAX,
        hid: u64::MAX,
        depth: i32::MIN,
        ts: i64::MIN,
        dur: i64::MIN,
        name: vec![b'n'; 5000],
        attrs: Some(vec![b'a'; 5000]),
    }));
    vectors
}

/// A generator that gives the same numbers each time (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Of every length: a number with so many bits.
    fn number(&mut self) -> u64 {
        let bits = self.next() % 64;
        self.next() >> bits
    }

    fn bytes(&mut self, most: u64) -> Vec<u8> {
        let length = self.next() % (most + 1);
        // Mostly what names are made of, sometimes any byte but zero.
        let wild = self.next().is_multiple_of(3);
        let byte = |numbers: &mut Numbers| match wild {
            true => (numbers.next() % 255 + 1) as u8,
            false => b"abcdefgh._=% []0123"[(numbers.next() % 19) as usize],
        };
        (0..length).map(|_| byte(self)).collect()
    }

    fn text(&mut self, most: u64) -> String {
        const LETTERS: [char; 12] =
            ['a', 'b', ' ', ':', '\n', '\r', '~', '%', '\u{1}', '\u{e9}', '\u{20ac}', '\u{1f600}'];
        let length = self.next() % (most + 1);
        (0..length).map(|_| LETTERS[(self.next() % 12) as usize]).collect()
    }
}

/// The vectors that nobody thought of.
fn drawn(count: usize) -> Vec<Vector> {
    let mut numbers = Numbers(0x51_3913_7e40);
    let mut draw = || {
        let n = &mut numbers;
        let (mono_ns, thread) = (n.number() as i64, n.number());
        let span = |n: &mut Numbers| Span {
            mono_ns,
            thread,
            pid: n.number() as i32,
            tid: n.number() as i64,
            inv: n.number(),
            hid: n.number(),
            depth: n.number() as i32,
            ts: n.number() as i64,
            dur: n.number() as i64,
            name: n.bytes(80),
            attrs: (!n.next().is_multiple_of(5)).then(|| n.bytes(230)),
        };
        match n.next() % 3 {
            0 => Vector::Span(span(n)),
            1 => Vector::Frame(span(n)),
            _ => Vector::Text(Text {
                mono_ns,
                thread,
                level: Level::ALL[(n.next() % 5) as usize],
                func: n.text(30),
                place: n.next().is_multiple_of(2).then(|| (n.text(20), (n.number() >> 33) as i32)),
                body: n.text(500),
            }),
        }
    };
    (0..count).map(|_| draw()).collect()
}

/// What the C program makes of the vectors.
fn encoded_by_c(program: &std::path::Path, vectors: &[Vector]) -> Vec<Vec<u8>> {
    let mut child = Command::new(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let requests: Vec<u8> = vectors.iter().flat_map(Vector::request).collect();
    let writer = std::thread::spawn(move || input.write_all(&requests));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success(), "{}", output.status);
    let mut rest = &output.stdout[..];
    let mut records = Vec::new();
    while let Some((size, behind)) = rest.split_first_chunk::<4>() {
        let (record, behind) = behind.split_at(u32::from_ne_bytes(*size) as usize);
        records.push(record.to_vec());
        rest = behind;
    }
    records
}

#[test]
fn c_and_rust_write_the_same_bytes() {
    let mut vectors = chosen();
    let frames: Vec<Vector> = vectors
        .iter()
        .filter_map(|vector| match vector {
            Vector::Span(span) => Some(Vector::Frame(span.clone())),
            _ => None,
        })
        .collect();
    vectors.extend(frames);
    vectors.extend(drawn(20_000));
    let folder = tempfile::tempdir().unwrap();
    let text = source("encoders.c");
    for compiler in build::compilers() {
        // The sanitizers read over the shoulder of one compiler: the others may not have them installed.
        let sanitized = ["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
        let builds =
            if compiler.program == "gcc" { &[&["-O2"][..], &sanitized][..] } else { &[&["-O2"][..]] };
        for flags in builds {
            let sources = [("encoders.x", &*text)];
            let program = build::compile(folder.path(), compiler, &sources, flags, "encoders").unwrap();
            let records = encoded_by_c(&program, &vectors);
            assert_eq!(records.len(), vectors.len());
            for (vector, record) in vectors.iter().zip(&records) {
                let expected = vector.expected();
                assert!(
                    *record == expected,
                    "{compiler:?} {flags:?}\n{vector:?}\nC    {}\nRust {}",
                    record.escape_ascii(),
                    expected.escape_ascii()
                );
            }
        }
    }
}

#[test]
fn the_vectors_reach_every_bound() {
    let vectors = chosen();
    let texts: Vec<Vec<u8>> =
        vectors.iter().filter(|vector| matches!(vector, Vector::Text(_))).map(Vector::expected).collect();
    for length in [511, 512] {
        assert!(texts.iter().any(|record| record.len() == length && !record.ends_with(b"~\n")), "{length}");
    }
    assert!(texts.iter().any(|record| record.len() == 512 && record.ends_with(b"~\n")));
    // And a frame that C made renders to the line that C writes by itself.
    for vector in &vectors {
        if let Vector::Span(span) = vector {
            let mut out = [0; RECORD_BYTES];
            let size = render(&Vector::Frame(span.clone()).expected(), &mut out, u64::cast_signed);
            assert_eq!(out[..size], vector.expected());
        }
    }
}
