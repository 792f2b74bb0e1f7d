//! Processes of several hosts in one reading: equal pids are never taken for one process.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use simpler_trace_ingest::{Reading, Source, read};
use simpler_trace_model::Anchor;

fn anchor(mono_ns: u32) -> String {
    format!(
        "[mono_ns={mono_ns}][T0x1][TIMING] clock_anchor: [CLOCK_ANCHOR] v=1 pid=7 mono_ns={mono_ns} wall_ns=9000\n"
    )
}

fn identity(host: u64) -> String {
    format!(
        "[mono_ns=5][T0x1][TIMING] host.identity: [HOST_IDENTITY] v=1 pid=7 host={host:016x} name=node-{host}\n"
    )
}

fn run(inv: u32) -> String {
    format!(
        "[mono_ns={inv}500][T0x1][TIMING] emit_host_span: [STRACE] v=1 pid=7 tid=7 inv={inv} hid=a depth=0 \
         name=simpler_run ts={inv}000 dur=500 \n"
    )
}

fn drops(total: u32) -> String {
    format!(
        "[mono_ns=9][T0x1][ERROR] host_log_drops: [HOSTLOG_DROPS] v=1 pid=7 new={total} total={total} \
         queue_full={total} claim_exhausted=0 output_failed=0 not_admitted=0\n"
    )
}

/// What each life is: its host, its anchor's time, and the inv of each of its spans.
fn lives(reading: &Reading) -> Vec<(Option<u64>, Option<i64>, Vec<u64>)> {
    let trace = &reading.trace;
    let of = |(at, life): (usize, &simpler_trace_model::Life)| {
        let spans = trace.spans().iter().filter(|span| trace.life_index(span) as usize == at);
        let anchor = life.anchor.map(|Anchor { mono_ns, .. }| mono_ns);
        (life.host, anchor, spans.map(|span| reading.trace.inv(span)).collect())
    };
    trace.lives().iter().enumerate().map(of).collect()
}

/// Reads texts as files of one command, and as one stream.
fn both_ways(texts: &[String]) -> [Reading; 2] {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: String, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        Source::path(path)
    };
    let files: Vec<_> = texts.iter().enumerate().map(|(at, text)| write(format!("{at}.log"), text)).collect();
    let stream = write("stream.log".to_owned(), &texts.concat());
    [read(&files).unwrap(), read(&[stream]).unwrap()]
}

#[test]
fn equal_pids_of_two_hosts_are_two_processes_even_if_all_else_is_equal() {
    let [first, second] = [1, 2].map(|host| anchor(4) + &identity(host) + &run(1) + &run(2) + &drops(3));
    for reading in both_ways(&[first, second]) {
        let expected = [(Some(1), Some(4), vec![1, 2]), (Some(2), Some(4), vec![1, 2])];
        assert_eq!(lives(&reading), expected);
        assert_eq!(reading.trace.counts().duplicates, 0);
        assert_eq!((reading.trace.dropped(), reading.trace.invocations().len()), (6, 4));
        assert_eq!([reading.trace.track_pid(0), reading.trace.track_pid(1)], [7, 10_000_007]);
        let hosts: Vec<_> = reading.trace.hosts().iter().map(|host| (host.id, &*host.name)).collect();
        assert_eq!(hosts, [(1, "node-1"), (2, "node-2")]);
    }
}

#[test]
fn a_host_that_is_read_again_is_the_one_that_it_was() {
    let [first, second] = [1, 2].map(|host| anchor(4) + &identity(host) + &run(1));
    for reading in both_ways(&[first.clone(), second.clone(), first.clone() + &run(3), second + &run(4)]) {
        let expected = [(Some(1), Some(4), vec![1, 3]), (Some(2), Some(4), vec![1, 4])];
        assert_eq!(lives(&reading), expected);
        assert_eq!(reading.trace.counts().duplicates, 2);
    }
    // The process of one host may have a successor of its pid.
    for reading in both_ways(&[first, anchor(6) + &identity(1) + &run(1)]) {
        assert_eq!(lives(&reading), [(Some(1), Some(4), vec![1]), (Some(1), Some(6), vec![1])]);
        assert_eq!([reading.trace.track_pid(0), reading.trace.track_pid(1)], [7, 7]);
    }
}

#[test]
fn what_follows_an_identity_is_that_hosts_with_and_without_anchors() {
    let text = [identity(1), run(1), identity(2), run(2), identity(1), run(3), identity(2), run(4)];
    for reading in both_ways(&text) {
        assert_eq!(lives(&reading), [(Some(1), None, vec![1, 3]), (Some(2), None, vec![2, 4])]);
    }
    // The first host's anchor is lost: the second one's is not given to it.
    for reading in both_ways(&[identity(1), run(1), anchor(4) + &identity(2) + &run(2)]) {
        assert_eq!(lives(&reading), [(Some(1), None, vec![1]), (Some(2), Some(4), vec![2])]);
    }
    // Nor is one that a log of before there were identities had.
    for reading in both_ways(&[anchor(4) + &run(1), anchor(5) + &identity(2) + &run(2)]) {
        assert_eq!(lives(&reading), [(None, Some(4), vec![1]), (Some(2), Some(5), vec![2])]);
        assert_eq!([reading.trace.track_pid(0), reading.trace.track_pid(1)], [7, 10_000_007]);
    }
}

#[test]
fn a_log_without_identities_is_read_as_ever() {
    for reading in both_ways(&[anchor(4) + &run(1), anchor(5) + &run(1), anchor(4) + &run(1)]) {
        assert_eq!(lives(&reading), [(None, Some(4), vec![1]), (None, Some(5), vec![1])]);
        assert_eq!(reading.trace.hosts(), []);
        assert_eq!([reading.trace.track_pid(0), reading.trace.track_pid(1)], [7, 7]);
    }
}

#[test]
fn a_damaged_identity_is_a_complaint_and_the_log_lossy() {
    let damaged = identity(2).replace("name=node-2", "");
    for reading in both_ways(&[anchor(4) + &identity(1) + &run(1), damaged + &run(2)]) {
        assert_eq!(lives(&reading), [(Some(1), Some(4), vec![1, 2])]);
        assert!(reading.trace.is_lossy());
        assert!(reading.complaints.counts().any(|count| count == ("damaged_host_identity", 1)));
    }
}
