//! A log as large as one likes, of a run that never was: what benchmarks read.
//!
//! An L3 parent drives eight chip children: each runs the prefill once and then decodes, step after step. Every
//! process speaks as the runtime makes it speak: a clock anchor first, then spans in the order in which they end, the
//! device's clock anchors and spans between them. One line in five is an ordinary one. All of it comes from a counter
//! and a fixed seed, so the same size is the same bytes; a step at a time is held in memory.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result};
use simpler_log_abi::Level;
use simpler_record_format::{
    ClockAnchor, DeviceClockAnchor, Envelope, RECORD_BYTES, SpanFields, encode_clock_anchor, encode_span,
    encode_text,
};

const CHILDREN: usize = 8;
const PARENT_PID: i32 = 30_000;
const THREAD: u64 = 0x7f88_2f98_7200;

const PREFILL_HID: u64 = 0xe2d2_be98_53ca_e1d3;
const DECODE_HID: u64 = 0xe5f2_81fa_91e2_a5d3;

/// One ordinary line stands for every so many records of the others.
const RECORDS_PER_ORDINARY_LINE: usize = 4;

const DEVICE_HZ: u64 = 50_000_000;
const NS_PER_CYCLE: u64 = 1_000_000_000 / DEVICE_HZ;

/// The counter of the first device at time 0.
const DEVICE_ORIGIN: u64 = 1_746_829_069_000_000_000;

/// The device's phases: name, start and length, in thousandths of the wall.
const PHASES: [(&str, u64, u64); 8] = [
    ("preamble", 0, 98),
    ("graph_build", 1, 998),
    ("config_validate", 2, 1),
    ("arena_wire", 3, 1),
    ("sm_reset", 4, 1),
    ("post_orch", 997, 1),
    ("orch", 5, 67),
    ("sched", 57, 940),
];

/// Writes at least `mb` million bytes to `path`.
pub(crate) fn gen_log(mb: u64, path: &Path) -> Result<()> {
    let wanted = mb.saturating_mul(1_000_000);
    let failed = || format!("cannot write {}", path.display());
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path).with_context(failed)?);
    let mut run = Run::new();
    let mut bytes = run.write_step(&mut out).with_context(failed)?;
    while bytes < wanted {
        bytes += run.write_step(&mut out).with_context(failed)?;
    }
    out.flush().with_context(failed)
}

/// The run so far.
struct Run {
    random: u64,
    /// `CLOCK_MONOTONIC` at the start of the next step.
    now: u64,
    /// Steps that were made; the first is the prefill.
    steps: u64,
    ordinary: u64,
    /// The records of the step: when each was made, and where it is in `text`.
    records: Vec<(u64, usize, usize)>,
    text: Vec<u8>,
}

impl Run {
    fn new() -> Run {
        Run {
            random: 0x5eed,
            now: 40_082_863_702_414,
            steps: 0,
            ordinary: 0,
            records: Vec::new(),
            text: Vec::new(),
        }
    }

    /// SplitMix64.
    fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// About `ns`: from 3 % less to 3 % more.
    fn about(&mut self, ns: u64) -> u64 {
        ns - ns * 3 / 100 + self.random() % (ns * 6 / 100 + 1)
    }

    /// One step of all processes, in the order in which the records were made.
    fn write_step(&mut self, out: &mut impl Write) -> std::io::Result<u64> {
        self.records.clear();
        self.text.clear();
        if self.steps == 0 {
            for process in 0..=CHILDREN {
                self.anchor(process);
            }
        }
        self.steps += 1;
        let start = self.now;
        for rank in 0..CHILDREN {
            self.rank(start, rank);
        }
        // Of two made at the same time, the one that was put down first.
        self.records.sort_by_key(|&(made, _, _)| made);
        let last = self.records.last().map_or(start, |&(made, _, _)| made);
        self.now = last + self.about(1_500_000);
        let mut bytes = 0;
        for at in 0..self.records.len() {
            let (made, from, to) = self.records[at];
            out.write_all(&self.text[from..to])?;
            bytes += (to - from) as u64;
            if at % RECORDS_PER_ORDINARY_LINE == 0 {
                let mut line = [0; RECORD_BYTES];
                let len = self.ordinary(&mut line, made);
                out.write_all(&line[..len])?;
                bytes += len as u64;
            }
        }
        Ok(bytes)
    }

    /// What one rank's part of a step leaves in the log, the parent's records included.
    fn rank(&mut self, start: u64, rank: usize) {
        let inv = self.steps;
        let hid = if inv == 1 { PREFILL_HID } else { DECODE_HID };
        let task = (inv - 1) * CHILDREN as u64 + rank as u64 + 1;
        let submit = start + rank as u64 * 9_000;
        let run = format!("run_id={inv} task_slot=0");
        let sent = format!("{run} worker_id={rank} dispatch_id={task} role=worker");
        self.span(PARENT_PID, task, hid, 0, "node.dispatch", submit + 2_000, 4_000, &sent);
        self.span(PARENT_PID, task, hid, 0, "node.submit", submit, 8_000, &format!("{run} role=facade"));

        let pid = PARENT_PID + 1 + rank as i32;
        let root = submit + self.about(20_000);
        let args = self.about(9_000);
        let prebuilt = if inv == 1 { self.about(1_200_000) } else { self.about(1_000) };
        let bind = args + prebuilt + 200;
        self.span(pid, inv, hid, 2, "simpler_run.bind.args", root + 100, args, "ntensor=6");
        self.span(pid, inv, hid, 2, "simpler_run.bind.prebuilt", root + 150 + args, prebuilt, "");
        self.span(pid, inv, hid, 1, "simpler_run.bind", root + 50, bind, "");

        let launch = root + bind + 100;
        let wall_cycles = self.about(if inv == 1 { 9_000_000 } else { 3_300_000 }) / NS_PER_CYCLE;
        let wall = wall_cycles * NS_PER_CYCLE;
        let wait = wall + 120_000;
        let origin = DEVICE_ORIGIN + rank as u64 * 1_000_000 + launch / NS_PER_CYCLE + 3_000;
        self.device_anchor(pid, inv, launch + 7_000, origin - 3_000 + 350);
        self.device_anchor(pid, inv, launch + wait - 5_000, origin - 3_000 + (wait - 5_000) / NS_PER_CYCLE);
        self.span(pid, inv, hid, 1, "simpler_run.runner_run", launch, wait, "");
        self.span(pid, inv, hid, 1, "simpler_run.validate", launch + wait + 60, 400, "");
        let emitted = launch + wait + 3_000;
        let device = |name: &str| format!("simpler_run.runner_run.device_wall{name}");
        let wall_attributes = format!("clk=dev org_cyc={origin}");
        self.span_at(emitted, pid, inv, hid, 2, &device(""), 0, wall, &wall_attributes);
        for (at, (name, from, len)) in PHASES.into_iter().enumerate() {
            let cycles = |thousandths: u64| wall_cycles * thousandths / 1_000 * NS_PER_CYCLE;
            let made = emitted + 150 * (at as u64 + 1);
            let name = device(&format!(".{name}"));
            self.span_at(made, pid, inv, hid, 3, &name, cycles(from), cycles(len), "clk=dev");
        }
        let end = emitted + 2_000;
        self.span(pid, inv, hid, 0, "simpler_run", root, end - root, "");
        self.span(PARENT_PID, task, hid, 0, "node.complete", end + 1_500, 100, &sent);
    }

    /// A host span, whose record is made as it ends.
    #[expect(clippy::too_many_arguments, reason = "the fields of a record, in their order")]
    fn span(&mut self, pid: i32, inv: u64, hid: u64, depth: i32, name: &str, ts: u64, dur: u64, attrs: &str) {
        self.span_at(ts + dur + 40, pid, inv, hid, depth, name, ts, dur, attrs);
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of a record, in their order")]
    fn span_at(
        &mut self,
        made: u64,
        pid: i32,
        inv: u64,
        hid: u64,
        depth: i32,
        name: &str,
        ts: u64,
        dur: u64,
        attrs: &str,
    ) {
        let fields = SpanFields {
            pid,
            tid: i64::from(pid),
            inv,
            hid,
            depth,
            name: name.as_bytes(),
            ts: ts as i64,
            dur: dur as i64,
            attrs: attrs.as_bytes(),
        };
        self.record(made, |line| encode_span(line, made as i64, THREAD, &fields));
    }

    fn device_anchor(&mut self, pid: i32, inv: u64, host_ns: u64, dev_cyc: u64) {
        let anchor = DeviceClockAnchor {
            pid: pid as u64,
            inv,
            host_ns: host_ns as i64,
            dev_cyc,
            dev_freq: DEVICE_HZ,
            half_ns: 20,
        };
        let made = host_ns + 1_900;
        let envelope = envelope(made, Level::Timing, "clock.anchor");
        self.record(made, |line| encode_text(line, &envelope, None, format_args!("{anchor}")));
    }

    fn anchor(&mut self, process: usize) {
        let mono = self.now - 1_000_000 + process as u64 * 50_000;
        let anchor = ClockAnchor {
            pid: PARENT_PID as u64 + process as u64,
            mono_ns: mono as i64,
            wall_ns: 1_796_032_668_000_000_000 + mono as i64 % 1_000_000_000,
        };
        self.record(mono, |line| encode_clock_anchor(line, mono as i64, THREAD, &anchor));
    }

    fn record(&mut self, made: u64, encode: impl FnOnce(&mut [u8; RECORD_BYTES]) -> usize) {
        let mut line = [0; RECORD_BYTES];
        let len = encode(&mut line);
        let from = self.text.len();
        self.text.extend_from_slice(&line[..len]);
        self.records.push((made, from, from + len));
    }

    /// Something that the analyzer has no use for: every fourth without a prefix, as a library prints it.
    fn ordinary(&mut self, line: &mut [u8; RECORD_BYTES], made: u64) -> usize {
        self.ordinary += 1;
        let n = self.ordinary;
        if n.is_multiple_of(4) {
            let text = format!("engine[{n}]: batch of 1 request(s), kv cache at {} %\n", n % 100);
            line[..text.len()].copy_from_slice(text.as_bytes());
            return text.len();
        }
        let envelope = envelope(made, Level::Info, "poll_completions");
        encode_text(
            line,
            &envelope,
            None,
            format_args!("queue depth {} after {n} polls, nothing to retire", n % 7),
        )
    }
}

fn envelope(made: u64, level: Level, func: &str) -> Envelope<'_> {
    Envelope { mono_ns: made as i64, thread: THREAD, level, func }
}

#[cfg(test)]
mod tests {
    use super::*;
    use simpler_record_format::{
        Input, SpanParse, parse_clock_anchor, parse_device_anchor, parse_envelope, parse_span,
    };

    fn steps(n: usize) -> Vec<u8> {
        let mut run = Run::new();
        let mut out = Vec::new();
        for _ in 0..n {
            run.write_step(&mut out).unwrap();
        }
        out
    }

    #[test]
    fn the_same_size_is_the_same_bytes() {
        assert_eq!(steps(3), steps(3));
        assert!(steps(3).starts_with(&steps(2)));
    }

    #[test]
    fn every_record_is_whole_and_one_line_in_five_is_an_ordinary_one() {
        let log = steps(40);
        let (mut spans, mut anchors, mut device_anchors, mut ordinary, mut made) = (0, 0, 0, 0, 0);
        for line in log.split_inclusive(|&b| b == b'\n') {
            let Some((envelope, body)) = parse_envelope(line) else {
                ordinary += 1;
                continue;
            };
            assert!(envelope.mono_ns >= made, "records stand in the order in which they were made");
            made = envelope.mono_ns;
            match parse_span(body, Input::Whole) {
                SpanParse::Span(span, _) => {
                    spans += 1;
                    let device = span.attrs.starts_with(b"clk=dev");
                    assert!(device || span.ts + span.dur <= made, "a span ends before its record");
                }
                SpanParse::NotHead if parse_clock_anchor(line).is_some() => anchors += 1,
                SpanParse::NotHead if parse_device_anchor(line).is_some() => device_anchors += 1,
                SpanParse::NotHead => ordinary += 1,
                other => panic!("{other:?}"),
            }
        }
        let records = spans + anchors + device_anchors;
        assert_eq!((spans, anchors, device_anchors), (40 * 8 * 18, 9, 40 * 8 * 2));
        assert!(ordinary * 4 >= records && ordinary * 4 < records + 4 * 40, "{ordinary} of {records}");
    }
}
