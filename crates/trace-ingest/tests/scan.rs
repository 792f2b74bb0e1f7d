//! Records wherever they stand: what counts as one, what is a loss, and what only looks like either.

use simpler_record_format::{Fault, Field};
use simpler_trace_ingest::{Found, Reason, Scanner};

const SPAN: &str = "[STRACE] v=1 pid=41 tid=42 inv=1 hid=b7e2 depth=0 name=simpler_run ts=1000 dur=500 ";
const ENVELOPE: &str = "[mono_ns=1500][T0x7f00][TIMING] emit_host_span: ";

/// What the scanner finds, in short: a span by its attributes, the rest by its kind.
fn scan(bytes: impl AsRef<[u8]>) -> Vec<String> {
    let mut found = Vec::new();
    let mut take = |_, one: Found<'_>| {
        found.push(match one {
            Found::Span(span, _) => format!("span {}", String::from_utf8_lossy(span.attrs)).trim().to_owned(),
            Found::Anchor(anchor) => format!("anchor {}", anchor.pid),
            Found::Host(host) => {
                format!("host {} {:x} {}", host.pid, host.host, String::from_utf8_lossy(host.name))
            }
            Found::DeviceAnchor(anchor) => format!("device anchor {} {}", anchor.pid, anchor.inv),
            Found::Drops(drops) => format!("drops {}", drops.total),
            Found::BindPhase(phase) => {
                let [word, attrs] = [phase.phase, phase.attrs].map(String::from_utf8_lossy);
                format!("bind {word} {} {} {attrs}", phase.start_ns, phase.dur_ns)
            }
            Found::Fault(reason) => reason.kind().to_owned(),
            Found::JoinedLine => "joined".to_owned(),
        });
    };
    let mut scanner = Scanner::new();
    scanner.push(bytes.as_ref(), &mut take);
    scanner.finish(&mut take);
    found
}

#[test]
fn a_record_is_found_behind_any_prefix() {
    for prefix in [
        "",
        "rank0: ",
        "2026-09-20T10:11:12.1Z stderr F ",
        "\x1b[33m",
        "\0\0\0",
        "\r 30%|###",
        "[pod/a] ",
        "'x' ",
    ] {
        assert_eq!(scan(format!("{prefix}{ENVELOPE}{SPAN}a=1\n")), ["span a=1"], "{prefix:?}");
        assert_eq!(scan(format!("{prefix}{SPAN}a=1\n")), ["span a=1"], "{prefix:?} without an envelope");
    }
}

#[test]
fn what_a_collector_appends_is_no_part_of_the_attributes() {
    assert_eq!(scan(format!("{ENVELOPE}{SPAN}a=1\x1b[0m\n")), ["span a=1"]);
    assert_eq!(scan(format!("{ENVELOPE}{SPAN}a=1\r\n")), ["span a=1"]);
    assert_eq!(scan(format!("{ENVELOPE}{SPAN}\r\n")), ["span"]);
}

#[test]
fn a_record_inside_a_json_line_ends_with_its_string() {
    for attrs in ["a=1", "a=1\\r", "a=1\\u001b[0m"] {
        let line = format!("{{\"log\":\"{ENVELOPE}{SPAN}{attrs}\\n\",\"stream\":\"stderr\"}}\n");
        assert_eq!(scan(line), ["span a=1"], "{attrs}");
    }
    assert_eq!(scan(format!("{{\"log\": \"{ENVELOPE}{SPAN}\\n\",\"t\":1}}\n")), ["span"]);
}

#[test]
fn a_copy_in_quotes_is_no_record() {
    for quote in ["'", "`", "\""] {
        assert_eq!(scan(format!("assert {quote}{SPAN}a=1{quote} in text\n")), ["quoted"]);
        assert_eq!(scan(format!("assert {quote}{ENVELOPE}{SPAN}a=1{quote} in text\n")), ["quoted"]);
    }
}

#[test]
fn only_white_space_proves_that_the_last_number_is_whole() {
    let record = SPAN.trim_end();
    assert_eq!(scan(format!("{record}\n")), ["span"]);
    assert_eq!(scan(format!("{record}{ENVELOPE}{SPAN}\n")), ["torn", "span", "joined"]);
    assert_eq!(scan(record), ["torn"], "the stream ends inside the number, perhaps");
    assert_eq!(scan(SPAN), ["torn"], "the line has no end and nothing follows");
}

#[test]
fn a_record_may_be_cut_anywhere_and_is_torn() {
    let record = format!("{ENVELOPE}{SPAN}");
    let head = ENVELOPE.len() + "[STRACE]".len();
    let last_digits = record.len() - "500 ".len();
    for cut in head..record.len() {
        // White space behind the last digits there are says that there are no more; glue does not.
        if cut <= last_digits {
            assert_eq!(scan(format!("{}\n", &record[..cut])), ["torn"], "cut at {cut}");
        }
        let glued = format!("{}{ENVELOPE}{SPAN}\n", &record[..cut]);
        assert_eq!(scan(glued), ["torn", "span", "joined"], "glued at {cut}");
    }
}

#[test]
fn a_marker_in_prose_is_a_word() {
    assert_eq!(scan("grep '[STRACE]' for spans, [STRACE] is the marker\n"), ["quoted"]);
    assert_eq!(scan("[mono_ns=1][T0x1][INFO] help: see [STRACE] or [HOSTLOG_DROPS]\n"), [""; 0]);
}

#[test]
fn a_wrong_field_is_malformed_and_said() {
    let line = format!("{ENVELOPE}{}", SPAN.replace("inv=1", "inv=18446744073709551616"));
    let mut reasons = Vec::new();
    let mut scanner = Scanner::new();
    let mut take = |offset, found: Found<'_>| {
        if let Found::Fault(reason) = found {
            reasons.push((offset, reason));
        }
    };
    scanner.push(format!("{line}\n").as_bytes(), &mut take);
    scanner.finish(&mut take);
    let [(offset, Reason::Malformed(malformed))] = reasons[..] else { panic!("{reasons:?}") };
    assert_eq!(offset, ENVELOPE.len() as u64);
    assert_eq!((malformed.field, malformed.fault), (Field::Inv, Fault::OutOfRange));
}

#[test]
fn another_version_is_kept_apart() {
    assert_eq!(scan(format!("{ENVELOPE}{}\n", SPAN.replace("v=1", "v=2"))), ["unknown_version"]);
}

#[test]
fn a_device_anchor_needs_its_own_envelope_and_nothing_behind() {
    let anchor = "[DEV_CLOCK_ANCHOR] v=1 pid=7 inv=3 host_ns=1 dev_cyc=2 dev_freq=50 half_ns=4";
    let envelope = "[mono_ns=1][T0x1][TIMING] clock.anchor: ";
    assert_eq!(scan(format!("x{envelope}{anchor} \n")), ["device anchor 7 3"]);
    assert_eq!(scan(format!("{anchor}\n")), [""; 0]);
    assert_eq!(scan(format!("[mono_ns=1][T0x1][INFO] poll: {anchor}\n")), [""; 0]);
    assert_eq!(scan(format!("{envelope}{anchor} and more\n")), ["damaged_anchor"]);
    assert_eq!(scan(format!("{envelope}{anchor}")), ["damaged_anchor"], "the last number may be cut");
}

#[test]
fn an_anchor_needs_its_own_envelope_and_nothing_behind() {
    let anchor = "[CLOCK_ANCHOR] v=1 pid=7 mono_ns=1 wall_ns=2";
    let envelope = "[mono_ns=1][T0x1][TIMING] clock_anchor: ";
    assert_eq!(scan(format!("x{envelope}{anchor} \n")), ["anchor 7"]);
    assert_eq!(scan(format!("{anchor}\n")), [""; 0]);
    assert_eq!(scan(format!("[mono_ns=1][T0x1][INFO] poll: {anchor}\n")), [""; 0]);
    assert_eq!(scan(format!("{envelope}{anchor} and more\n")), ["damaged_anchor"]);
    assert_eq!(scan(format!("{envelope}{anchor}")), ["damaged_anchor"], "the last number may be cut");
}

#[test]
fn a_host_identity_needs_its_own_envelope_and_nothing_behind() {
    let identity = "[HOST_IDENTITY] v=1 pid=7 host=00000000000000b7 name=n%207";
    let envelope = "[mono_ns=1][T0x1][TIMING] host.identity: ";
    assert_eq!(scan(format!("x{envelope}{identity} \n")), ["host 7 b7 n%207"]);
    assert_eq!(scan(format!("{identity}\n")), [""; 0]);
    assert_eq!(scan(format!("[mono_ns=1][T0x1][INFO] poll: {identity}\n")), [""; 0]);
    assert_eq!(scan(format!("'{envelope}{identity}'\n")), ["quoted"]);
    assert_eq!(scan(format!("{envelope}{identity} and more\n")), ["damaged_host_identity"]);
    assert_eq!(scan(format!("{envelope}{identity}")), ["damaged_host_identity"], "the name may be cut");
}

#[test]
fn a_drop_report_counts_wherever_it_stands() {
    let report = "[HOSTLOG_DROPS] v=1 pid=7 new=1 total=3 queue_full=2 claim_exhausted=1 output_failed=0 not_admitted=0";
    assert_eq!(scan(format!("[mono_ns=1][T0x1][ERROR] host_log_drops: {report}\n")), ["drops 3"]);
    assert_eq!(scan(format!("x {report}\n")), ["drops 3"]);
    assert_eq!(scan(report.replace("total=3", "total=4") + "\n"), ["drops 4", "inconsistent_drop_report"]);
    assert_eq!(scan("[HOSTLOG_DROPS] v=1 pid=7 new=\n"), ["damaged_drop_report"]);
    assert_eq!(scan(format!("'{report}'\n")), ["quoted"]);
}

#[test]
fn prose_is_cut_only_at_the_length_limit() {
    let prose = |bytes: usize| {
        let mut line = String::from("[mono_ns=1][T0x1][ERROR] dump: ");
        line.push_str(&"s".repeat(bytes - line.len() - 2));
        line + "~\n"
    };
    assert_eq!(scan(prose(512)), ["truncated_record"]);
    assert_eq!(scan(prose(512).replace('\n', "\r\n")), ["truncated_record"]);
    assert_eq!(scan(prose(511)), [""; 0], "it just ends in a tilde");
    assert_eq!(scan(format!("prefix {}", prose(512))), ["truncated_record"]);
    assert_eq!(scan(format!("{ENVELOPE}{}~\n", &SPAN[..60])), ["torn", "truncated_record"]);
    assert_eq!(scan(format!("{ENVELOPE}{SPAN}a=1~\n")), ["span a=1~"], "a cut field, not a cut record");
}

#[test]
fn records_on_one_line_are_joined_once_a_line() {
    let record = format!("{ENVELOPE}{SPAN}a=1");
    let prose = "[mono_ns=1][T0x1][INFO] poll: hello";
    assert_eq!(
        scan(format!("{record}{record}{record}\n{record}\n")),
        ["span a=1", "span a=1", "span a=1", "joined", "span a=1"]
    );
    assert_eq!(scan(format!("{prose}{record}\n")), ["span a=1", "joined"]);
    assert_eq!(scan(format!("{record}{prose}\n")), ["span a=1", "joined"]);
    assert_eq!(
        scan(format!("[mono_ns=1][T0x1][INFO] poll: copy of {SPAN}\n")),
        ["span"],
        "one record in another's body"
    );
}

#[test]
fn a_tail_of_megabytes_does_not_become_attributes() {
    let line = format!("{}{ENVELOPE}{SPAN}a=1 {}\n", "x".repeat(1 << 20), "y".repeat(1 << 20));
    let found = scan(line);
    assert_eq!(found[0], "overlong_attributes");
    assert!(found[1].starts_with("span a=1 yyy") && found[1].len() < 5000);
    assert_eq!(found.len(), 2);
}

#[test]
fn a_segment_of_a_binding_is_a_record_of_level_timing_and_may_name_its_place() {
    let timing = "[mono_ns=1500][T0x7f00][TIMING] host_phase_trace_end: ";
    let body = "bind phase=graph_upload start_ns=1000 dur_ns=20";
    for (text, want) in [
        (format!("{timing}{body} \n"), "bind graph_upload 1000 20 "),
        (
            format!("{timing}[host_phase_trace.cpp:123] {body} bytes=7 count=1\r\n"),
            "bind graph_upload 1000 20 bytes=7 count=1",
        ),
        (format!("rank0: {timing}{body}\n"), "bind graph_upload 1000 20 "),
        (format!("{{\"log\": \"{timing}{body} bytes=7\\n\"}}\n"), "bind graph_upload 1000 20 bytes=7"),
        (format!("{timing}{body} bytes=7\x1b[0m\n"), "bind graph_upload 1000 20 bytes=7"),
    ] {
        assert_eq!(scan(&text), [want], "{text}");
    }
    for text in [
        format!("{body}\n"),
        format!("'{timing}{body}\n"),
        format!("{}{body}\n", timing.replace("TIMING", "INFO")),
        format!("{timing}the {body}\n"),
        format!("{timing}[f.c:1]{body}\n"),
        // Cut: by the end of the stream, and within the last number.
        format!("{timing}{body} "),
        format!("{timing}{body}~\n"),
        format!("{timing}bind phase= start_ns=1 dur_ns=2\n"),
        format!("{timing}bind phase=x start_ns=-1 dur_ns=2\n"),
        format!("{timing}bind phase=x start_ns=1 dur_ns=9223372036854775808\n"),
        format!("{timing}bind phase=x dur_ns=2 start_ns=1\n"),
    ] {
        let found = scan(&text);
        assert!(found.iter().all(|one| !one.starts_with("bind")), "{text}: {found:?}");
    }
    let two = format!("{timing}{body} a=1{ENVELOPE}{SPAN}b=2\n");
    assert_eq!(
        scan(two),
        ["bind graph_upload 1000 20 a=1", "span b=2", "joined"],
        "glued to the next record"
    );
}

#[test]
fn a_blob_of_several_lines_holds_all_its_records() {
    let record = |n: u32| format!("{ENVELOPE}{}a={n}", SPAN.replace("inv=1", &format!("inv={n}")));
    let blob = format!("captured:\n{}\ntext\n{}{}\r\n{}\n", record(1), record(2), record(3), record(4));
    assert_eq!(scan(blob), ["span a=1", "span a=2", "span a=3", "joined", "span a=4"]);
}
