//! The number of threads that decode a log, and the quick way to a plain record, make no difference.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use proptest::prelude::*;
use simpler_trace_ingest::{Found, Keep, Options, Reading, Reason, Scanner, Source, read_with};
use simpler_trace_model::TraceBuilder;
use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;

fn read(path: &Path, threads: usize, keep: Keep) -> Reading {
    let options = Options { keep, threads: NonZeroUsize::new(threads), ..Options::default() };
    read_with(&[Source::path(path)], options).unwrap()
}

/// All that a reading says, span by span.
fn said(reading: &Reading) -> (Vec<String>, String) {
    let trace = &reading.trace;
    let spans = trace.spans().iter().enumerate().map(|(index, span)| {
        format!(
            "{:?} {} {:x} {} {} {} {} {:?} {:?} {:?}",
            trace.thread(span),
            trace.inv(span),
            trace.hid(span),
            trace.depth(span),
            trace.name(span).text,
            span.ts,
            span.dur,
            trace.attributes(span).raw().escape_ascii().to_string(),
            trace.mono_ns(index as u32),
            trace.name_id(span),
        )
    });
    let complaints: Vec<String> =
        reading.complaints.first().iter().map(|one| format!("{} {}", one.offset, one)).collect();
    let kinds: Vec<_> = reading.complaints.counts().collect();
    let rest = format!(
        "{:?} {:?} {:?} {complaints:?} {kinds:?} {}",
        trace.counts(),
        trace.lives(),
        trace.invocations(),
        reading.bytes
    );
    (spans.collect(), rest)
}

/// The same by the scanner alone, which reads each record field by field; and the damage that it meets.
fn slowly(log: &[u8]) -> (Vec<String>, u64, Vec<String>) {
    let mut builder = TraceBuilder::new();
    let mut scanner = Scanner::new();
    let mut damage = Vec::new();
    let mut take = |offset: u64, found: Found<'_>| match found {
        Found::Fault(reason) => damage.push(format!("{offset} {reason}")),
        Found::Span(span, mono_ns) => {
            builder.span(&span, mono_ns);
        }
        Found::Anchor(anchor) => builder.anchor(anchor),
        Found::Host(identity) => builder.host_identity(&identity),
        _ => {}
    };
    scanner.push(log, &mut take);
    scanner.finish(&mut take);
    let duplicates = builder.counts_mut().duplicates;
    let trace = builder.finish();
    let reading = Reading { trace, complaints: Default::default(), bytes: 0 };
    (said(&reading).0, duplicates, damage)
}

/// A line such as logs hold, damaged in some place more often than not.
fn line() -> impl Strategy<Value = Vec<u8>> {
    let span = (0..3_u64, 0..4_u64, 0..3_u64, 0..3_usize, 0..4_usize, 0..50_i64).prop_map(
        |(pid, inv, hid, name, attrs, ts)| {
            let name = ["simpler_run", "simpler_run.bind", "node.submit"][name];
            let attrs = ["", "clk=dev", "run_id=7 slot=0", "clk=dev org_cyc=1~"][attrs];
            let mono = ts * 1_000 + 40_082_887_000_000;
            format!(
                "[mono_ns={mono}][T0x7f7eb76add40][TIMING] emit_host_span: [STRACE] v=1 pid={pid} tid={pid} inv={inv} \
                 hid={hid:x} depth={} name={name} ts={} dur={ts} {attrs}\n",
                name.matches('.').count(),
                mono - 7,
            )
        },
    );
    let anchor = (0..3_u64, 0..3_i64).prop_map(|(pid, n)| {
        format!("[mono_ns={n}][T0x7f][TIMING] clock_anchor: [CLOCK_ANCHOR] v=1 pid={pid} mono_ns={n} wall_ns={n}\n")
    });
    let change = (any::<prop::sample::Index>(), prop::sample::select(b" =[]\\\"'~\n\r0x9\x1b\xff".to_vec()));
    let ordinary = prop::sample::select(vec![
        "a word\n",
        "[mono_ns=7][T0x7f][INFO] poll: nothing to retire\n",
        "[mono_ns=7][T0x7f][WARN] poll: a list [of three]\n",
        "[mono_ns=7][T0x7f][INFO] poll: cut~\n",
        "[mono_ns=7][T0x7f][INFO] poll: [HOSTLOG_DROPS] v=1 pid=7\n",
    ]);
    let intact = prop_oneof![16 => span, 2 => anchor, 3 => ordinary.prop_map(str::to_owned)];
    (intact, prop::option::weighted(0.4, change), any::<bool>()).prop_map(|(text, change, cut)| {
        let mut line = text.into_bytes();
        if let Some((at, byte)) = change {
            let at = at.index(line.len());
            if cut {
                line.remove(at);
            } else {
                line[at] = byte;
            }
        }
        line
    })
}

proptest! {
    #[test]
    fn a_record_read_the_quick_way_is_read_alike(lines in prop::collection::vec(line(), 0..60), again in 1..4_usize) {
        // What comes again is expected.
        let log = lines.concat().repeat(again);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        fs::write(&path, &log).unwrap();
        let reading = read(&path, 1, Keep::All);
        let (spans, duplicates, damage) = slowly(&log);
        prop_assert_eq!((said(&reading).0, reading.trace.counts().duplicates), (spans, duplicates));
        let complaints = reading.complaints.first().iter();
        let complaints = complaints.filter(|one| !matches!(one.reason, Reason::Duplicate | Reason::ImpossibleTime));
        let complaints: Vec<String> = complaints.map(|one| format!("{} {}", one.offset, one.reason)).collect();
        // The first hundred are kept, of all kinds together.
        if reading.complaints.total() <= 100 {
            prop_assert_eq!(complaints, damage);
        }
    }
}

/// A log of many blocks, in which lives, duplicates, damage, long lines and ordinary ones come by.
fn log_of_blocks() -> Vec<u8> {
    let mut log = Vec::new();
    for n in 0..9_000_u64 {
        let (pid, inv) = (n % 5, n / 40);
        let mono = 40_082_887_000_000 + n * 1_000;
        let name = ["simpler_run.bind", "simpler_run.runner_run", "simpler_run"][(n / 5 % 3) as usize];
        let depth = u64::from(name != "simpler_run");
        let text = format!(
            "[mono_ns={mono}][T0x7f7eb76add40][TIMING] emit_host_span: [STRACE] v=1 pid={pid} tid={pid} inv={inv} \
             hid=a depth={depth} name={name} ts={} dur=500 run_id={}\n",
            mono - 600,
            n / 7,
        );
        log.extend_from_slice(text.as_bytes());
        match n {
            _ if n % 501 == 0 => log.extend_from_slice(text.as_bytes()),
            _ if n % 733 == 0 => log.extend_from_slice(&text.as_bytes()[..text.len() / 2]),
            _ if n % 997 == 0 => {
                let anchor = format!(
                    "[mono_ns={mono}][T0x7f][TIMING] clock_anchor: [CLOCK_ANCHOR] v=1 pid={pid} mono_ns={mono} wall_ns=5\n"
                );
                log.extend_from_slice(anchor.as_bytes());
            }
            2_000 | 5_000 => {
                log.extend(std::iter::repeat_n(b'x', 700_000));
                log.extend_from_slice(text.replace("run_id", "long_line").as_bytes());
            }
            _ => {}
        }
    }
    log
}

#[test]
fn any_number_of_threads_says_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let log = log_of_blocks();
    assert!(log.len() > 2_000_000);
    fs::write(&path, &log).unwrap();
    for keep in [Keep::All, Keep::Durations] {
        let one = said(&read(&path, 1, keep));
        assert!(
            one.1.contains("duplicates: 20,"),
            "18 repeated, and two that only their attributes tell apart"
        );
        for threads in [2, 3, 8] {
            assert!(said(&read(&path, threads, keep)) == one, "{threads} threads");
        }
    }
    assert!(said(&read(&path, 3, Keep::All)).0 == slowly(&log).0);
}

#[test]
fn without_attributes_a_trace_still_knows_the_clock_and_the_cuts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let mut log = Vec::new();
    for (n, attrs) in
        ["", "a=1", "clk=dev", "clk=dev org_cyc=7", "a=1~", "clk=dev a=1~", "clk=dev~"].iter().enumerate()
    {
        log.extend_from_slice(
            format!("[STRACE] v=1 pid=1 tid=1 inv={n} hid=a depth=0 name=x ts=5 dur=5 {attrs}\n").as_bytes(),
        );
    }
    fs::write(&path, log).unwrap();
    let (all, few) = (read(&path, 1, Keep::All).trace, read(&path, 1, Keep::Durations).trace);
    assert_eq!(all.counts(), few.counts());
    assert_eq!(all.counts().truncated_fields, 3);
    for (a, b) in all.spans().iter().zip(few.spans()) {
        assert_eq!(all.is_device(a), few.is_device(b));
        assert_eq!(all.attributes(a).truncated(), few.attributes(b).truncated());
    }
}
