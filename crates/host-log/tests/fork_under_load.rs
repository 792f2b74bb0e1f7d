//! Forks while many threads log: the quiesce holds or refuses, nothing hangs, nothing is written twice, and
//! parent and children each account for what is theirs.

#![cfg(feature = "host-strace")]
#![expect(clippy::unwrap_used, reason = "clippy does not take the functions beside the tests for tests")]

mod support;
mod tally;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use simpler_host_log::{self as log, DropReason, span};
use support::{DRAIN, fork, in_own_process, lines_of, log_file, log_to_folder, reap, wait_for};

const THREADS: usize = 8;
const ROUNDS: u64 = 20;
/// How many records a child makes before it has a writer, and after.
const CHILD_RECORDS: u64 = 50;

/// The next id; children begin far away from the parent's, each at its own place.
static NEXT: AtomicU64 = AtomicU64::new(0);
const CHILD_IDS: u64 = 1 << 40;

fn log_one() {
    let id = NEXT.fetch_add(1, Ordering::Relaxed);
    if id.is_multiple_of(2) { log::log_warn!("load id={id}") } else { drop(span!("load", id = id)) }
}

/// Runs `body` while threads log without a pause, and gives how many records they made.
fn under_load(body: impl FnOnce()) -> u64 {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    for _ in 0..32 {
                        log_one();
                    }
                    std::thread::yield_now();
                }
            });
        }
        body();
        stop.store(true, Ordering::Relaxed);
    });
    NEXT.load(Ordering::Relaxed)
}

/// What a child does with `round`; it has a writer of its own from the middle on.
fn in_the_child(round: u64) {
    NEXT.store(CHILD_IDS * (round + 1), Ordering::Relaxed);
    (0..CHILD_RECORDS).for_each(|_| log_one());
    log::start_writer().unwrap();
    (0..CHILD_RECORDS).for_each(|_| log_one());
    log::prepare_to_fork(DRAIN).unwrap();
    tally::losses(&log::counts());
}

/// The ids in a child's log, and what it says it lost; each of its records is in one of the two.
fn accounts_of_child(dir: &Path, child: i32, round: u64) -> (Vec<u64>, [u64; 4]) {
    let lines = lines_of(dir, child);
    let anchors = tally::anchors(&lines);
    assert_eq!(anchors.iter().map(|anchor| anchor.pid).collect::<Vec<_>>(), [child as u64]);
    let ids = tally::ids(&lines);
    let own = CHILD_IDS * (round + 1)..CHILD_IDS * (round + 1) + 2 * CHILD_RECORDS;
    assert!(ids.iter().all(|id| own.contains(id)), "nothing of the parent's or of another child");
    let reports = tally::drop_reports(&lines);
    assert!(reports.iter().all(|report| report.pid == child as u64));
    assert!(reports.len() <= 1);
    (ids, reports.first().map_or([0; 4], |report| report.by_reason))
}

/// The parent's records: each landed once or is counted, and no child's is among them.
fn check_parent(dir: &Path, submitted: u64) {
    log::prepare_to_fork(DRAIN).unwrap();
    let lines = lines_of(dir, log::pid());
    assert_eq!(tally::anchors(&lines).len(), 1);
    let ids = tally::ids(&lines);
    assert!(ids.iter().all(|&id| id < submitted));
    let counts = log::counts();
    tally::losses(&counts);
    assert_eq!(ids.len() as u64 + counts.dropped, submitted);
    assert_eq!(counts.reported, counts.dropped);
    let told: u64 = tally::drop_reports(&lines).iter().map(|report| report.new).sum();
    assert_eq!(told, counts.dropped, "the text says the same");
}

fn rounds() -> u64 {
    if support::is_under_thread_sanitizer() { 5 } else { ROUNDS }
}

fn wait_for_growth(dir: &Path) {
    let size = || log_file(dir, log::pid()).metadata().map_or(0, |file| file.len());
    let before = size();
    wait_for("records of this round", || size() > before);
}

#[test]
fn a_fork_in_a_quiesce_that_holds_duplicates_and_loses_nothing_unseen() {
    in_own_process("a_fork_in_a_quiesce_that_holds_duplicates_and_loses_nothing_unseen", || {
        let dir = log_to_folder();
        let mut children = Vec::new();
        let mut refusals = 0;
        let submitted = under_load(|| {
            for round in 0..rounds() {
                wait_for_growth(dir.path());
                // Short ones may be refused; then the log goes on and the fork waits for one that is not.
                while log::prepare_to_fork(Duration::from_micros(100 * round)).is_err() {
                    refusals += 1;
                    assert!(refusals < 100_000, "a quiesce is never refused for ever");
                    if refusals % 10 == 9 && log::prepare_to_fork(DRAIN).is_ok() {
                        break;
                    }
                }
                let child = fork(|| in_the_child(round));
                log::start_writer().unwrap();
                children.push(child);
            }
        });
        for (round, &child) in children.iter().enumerate() {
            reap(child);
            let (ids, losses) = accounts_of_child(dir.path(), child, round as u64);
            // Forked from a quiesced parent, it writes from its first record on.
            assert_eq!((ids.len() as u64, losses), (2 * CHILD_RECORDS, [0; 4]), "round {round}");
        }
        check_parent(dir.path(), submitted);
        let distinct: BTreeSet<i32> = children.iter().copied().collect();
        assert_eq!(distinct.len(), children.len());
    });
}

#[test]
fn a_fork_without_a_quiesce_costs_the_child_its_own_records_only() {
    in_own_process("a_fork_without_a_quiesce_costs_the_child_its_own_records_only", || {
        let dir = log_to_folder();
        // Losses of the parent, which no child may take for its own.
        log::prepare_to_fork(DRAIN).unwrap();
        let away = dir.path().with_extension("away");
        std::fs::rename(dir.path(), &away).unwrap();
        (0..3).for_each(|_| log_one());
        std::fs::rename(&away, dir.path()).unwrap();
        log::start_writer().unwrap();
        assert_eq!(log::counts().dropped, 3);
        let mut children = Vec::new();
        let submitted = under_load(|| {
            for round in 0..rounds() {
                wait_for_growth(dir.path());
                children.push(fork(|| in_the_child(round)));
            }
        });
        for (round, &child) in children.iter().enumerate() {
            reap(child);
            let (ids, losses) = accounts_of_child(dir.path(), child, round as u64);
            assert_eq!(ids.len() as u64, CHILD_RECORDS, "round {round}: those since its writer started");
            // Each refused record, and the anchor that was tried before it.
            assert_eq!(losses, [0, 0, 0, losses[DropReason::NotAdmitted as usize]]);
            assert!((CHILD_RECORDS..=2 * CHILD_RECORDS).contains(&losses[3]), "{losses:?}");
        }
        check_parent(dir.path(), submitted);
    });
}
