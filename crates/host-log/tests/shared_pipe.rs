//! Sixteen busy processes at one small pipe: every record whole, and every one accounted for by the text alone.

#![cfg(feature = "host-strace")]

mod support;
mod tally;

use std::collections::{BTreeMap, BTreeSet};

use simpler_host_log::{self as log, Config, span};
use support::{DEADLINE, StderrPipe, fork, in_own_process, lines, reap, spans};

const CHILDREN: u64 = 16;
const THREADS: u64 = 4;

/// Logs `records` of one thread, spans and text in turn.
fn produce(child: u64, thread: u64, records: u64) {
    for id in 0..records {
        if id.is_multiple_of(2) {
            log::log_warn!("child={child} thread={thread} id={id}");
        } else {
            let _span = span!("child.work", child = child, thread = thread, id = id);
        }
        // So that the threads take turns, and the queue is not one thread's alone.
        if id.is_multiple_of(16) {
            std::thread::yield_now();
        }
    }
}

/// The number behind `key` in a line.
fn number(line: &str, key: &str) -> u64 {
    let value = line.split_once(key).expect("the key").1;
    value.split(' ').next().expect("a value").parse().expect("a number")
}

#[test]
fn sixteen_children_of_four_threads_share_one_small_pipe() {
    in_own_process("sixteen_children_of_four_threads_share_one_small_pipe", || {
        let records = if support::is_under_thread_sanitizer() { 200 } else { 2000 };
        log::init(&Config { defer_writer: true, ..Config::default() }).unwrap();
        let pipe = StderrPipe::install(Some(4096));
        let children: Vec<i32> = (0..CHILDREN)
            .map(|child| {
                fork(|| {
                    log::start_writer().unwrap();
                    std::thread::scope(|scope| {
                        for thread in 0..THREADS {
                            scope.spawn(move || produce(child, thread, records));
                        }
                    });
                    log::prepare_to_fork(DEADLINE).unwrap();
                    let counts = log::counts();
                    tally::losses(&counts);
                    assert_eq!((counts.pending, counts.reported), (0, counts.dropped));
                })
            })
            .collect();
        pipe.restore();
        let lines = lines(&pipe.read_to_end());
        children.iter().copied().for_each(reap);

        let mut anchored: Vec<u64> = tally::anchors(&lines).iter().map(|anchor| anchor.pid).collect();
        anchored.sort_unstable();
        let mut pids: Vec<u64> = children.iter().map(|&pid| pid as u64).collect();
        pids.sort_unstable();
        assert_eq!(anchored, pids, "one anchor for each child");

        let mut landed: BTreeMap<(u64, u64), Vec<u64>> = BTreeMap::new();
        for line in lines.iter().filter(|line| tally::id(line).is_some()) {
            let producer = (number(line, "child="), number(line, "thread="));
            landed.entry(producer).or_default().push(tally::id(line).unwrap());
        }
        for (producer, ids) in &landed {
            assert!(ids.is_sorted_by(|a, b| a < b), "{producer:?}: once each, in the order of its thread");
            assert!(ids.last() < Some(&records));
        }
        let reports = tally::drop_reports(&lines);
        for (child, &pid) in children.iter().enumerate() {
            let received: usize =
                (0..THREADS).filter_map(|thread| landed.get(&(child as u64, thread))).map(Vec::len).sum();
            assert!(received as u64 >= records, "a queue holds more than one thread's records");
            // A child that lost nothing says nothing.
            let mut own = reports.iter().filter(|report| report.pid == pid as u64);
            let lost = own.next().map_or(0, |report| report.total);
            assert_eq!(own.next(), None, "one report a child");
            assert_eq!(received as u64 + lost, THREADS * records, "child {child}");
        }
        for report in &reports {
            assert_eq!((report.new, report.by_reason.iter().sum()), (report.total, report.total));
        }
        let whose: BTreeSet<i64> = spans(&lines).iter().map(|span| span.pid).collect();
        assert_eq!(whose.len() as u64, CHILDREN);
        let expected = landed.values().map(Vec::len).sum::<usize>() + anchored.len() + reports.len();
        assert_eq!(lines.len(), expected, "and nothing else");
    });
}
