//! `kill -9` at random moments under full load, of the process and then of its recovery: everything that was
//! accepted is in the log exactly once.

#![cfg(feature = "host-strace")]
#![expect(clippy::unwrap_used, reason = "clippy does not take the functions beside the tests for tests")]

mod support;

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use simpler_host_log::{self as log, Config, Threshold, recover};
use simpler_log_abi::{SimplerHostLogEnqueueFn, SimplerHostLogState};
use simpler_record_format::{RECORD_BYTES, SpanFields, frame::encode_span_frame};
use support::{DRAIN, fork, in_own_process, lines_of, log_file, reap_killed, rings, spans};

/// How often a process is killed; `cargo xtask test --long` says more.
const KILLS: u64 = 20;
const KILLS_LONG: u64 = 200;

const THREADS: u64 = 4;

/// The latest a process is killed after it has begun.
const LIFE_US: u64 = 40_000;
/// The latest a recovery is killed. All of a full ring takes some 10 ms.
const RECOVERY_US: u64 = 10_000;

/// With this many records between two flushes, of all threads together, the ring never fills, and nothing is lost.
const RECORDS_PER_FLUSH: u64 = 200;

#[test]
fn everything_accepted_is_there_exactly_once_whenever_the_process_is_killed() {
    in_own_process("everything_accepted_is_there_exactly_once_whenever_the_process_is_killed", || {
        let kills = if std::env::var_os("SIMPLER_LONG").is_some() { KILLS_LONG } else { KILLS };
        let mut dice = Dice::new();
        let mut seen = Seen::default();
        for round in 0..kills {
            // Every second process waits for its writer now and then: nothing may be lost at all. The others run the
            // ring full, and what is missing must have been counted.
            one_kill(round, round % 2 == 0, &mut dice, &mut seen);
        }
        eprintln!("seed {}: {seen:?}", dice.seed);
        assert!(seen.records > kills * 100, "the processes were killed before they did anything: {seen:?}");
        assert!(seen.recovered > 0 && seen.in_the_log > 0, "the kills met no load: {seen:?}");
        assert!(seen.interrupted > 0, "no recovery was interrupted: {seen:?}");
    });
}

/// What the kills met.
#[derive(Debug, Default)]
struct Seen {
    /// What producers counted as accepted, or as handed in where the ring ran full.
    records: u64,
    in_the_log: u64,
    recovered: u64,
    lost: u64,
    torn: u64,
    interrupted: u64,
}

fn one_kill(round: u64, paced: bool, dice: &mut Dice, seen: &mut Seen) {
    let dir = tempfile::tempdir().unwrap();
    // How many records each thread was told are accepted.
    let accepted = support::shared_words();
    let born_ns = log::monotonic_ns();
    let pid = fork(|| load(dir.path(), accepted, paced));
    dice.spin(LIFE_US);
    kill(pid);
    let dead_ns = log::monotonic_ns();
    let accepted: Vec<u64> =
        accepted[..THREADS as usize].iter().map(|count| count.load(Ordering::Acquire)).collect();
    let before = std::fs::read(log_file(dir.path(), pid)).unwrap_or_default();
    seen.torn += u64::from(before.last().is_some_and(|byte| *byte != b'\n'));
    let in_the_log = before.iter().filter(|byte| **byte == b'\n').count() as u64;

    // In most rounds the recovery is killed, too, once or several times.
    for _ in 0..round % 4 {
        let recovery = fork(|| drop(recover(dir.path()).unwrap()));
        dice.spin(RECOVERY_US);
        let was_at_it = !rings().is_empty();
        // SAFETY: our own child, which is not reaped yet.
        unsafe { libc::kill(recovery, libc::SIGKILL) };
        seen.interrupted += u64::from(support::wait_for_end(recovery) != 0 && was_at_it);
    }
    let recovery = recover(dir.path()).unwrap();
    assert!(recovery.refused.is_empty() && recovery.living.is_empty(), "{recovery:?}");
    assert!(rings().is_empty(), "{recovery:?}");
    let again = recover(dir.path()).unwrap();
    assert!(again.recovered.is_empty() && again.refused.is_empty(), "{again:?}");

    // Fails on a torn or a glued line.
    let lines = lines_of(dir.path(), pid);
    let reports: Vec<&String> = lines.iter().filter(|line| line.contains("[HOSTLOG_DROPS]")).collect();
    let lost = reports.last().map_or(0, |line| number_behind(line, " total="));
    assert!(reports.len() <= 1 && !(paced && lost > 0), "{reports:?}");
    assert!(lines.iter().filter(|line| line.contains("[CLOCK_ANCHOR]")).count() <= 1);

    let mut latest = HashMap::new();
    let mut found = vec![0; THREADS as usize];
    for line in lines.iter().filter(|line| line.contains("producer=")) {
        let (thread, index) = (number_behind(line, "producer="), number_behind(line, "index="));
        // Rising: so each at most once, and in its thread's order.
        let former = latest.insert(thread, index);
        assert!(former.is_none_or(|former| former < index), "{index} of {thread} comes after {former:?}");
        assert!(index <= accepted[thread as usize], "{index} of {thread} was never made");
        found[thread as usize] += u64::from(index < accepted[thread as usize]);
    }
    let missing: u64 = accepted.iter().zip(&found).map(|(accepted, found)| accepted - found).sum();
    if paced {
        assert_eq!(missing, 0, "accepted {accepted:?}, found {found:?}, of {recovery:?}");
    }
    // A thread may have died between counting a loss and saying that it is done with the record.
    assert!((missing..=missing + THREADS).contains(&lost), "missing {missing}, told {lost}");
    times_are_sane(&lines, born_ns, dead_ns);

    seen.records += accepted.iter().sum::<u64>();
    seen.in_the_log += in_the_log;
    seen.recovered += (lines.len() as u64).saturating_sub(in_the_log);
    seen.lost += lost;
}

/// Every time lies in the process's life, and each thread's rise.
fn times_are_sane(lines: &[String], born_ns: i64, dead_ns: i64) {
    /// How far a time may be off that was read from the processor's counter.
    const ERROR_NS: i64 = 100_000;
    let life = born_ns - ERROR_NS..=dead_ns + ERROR_NS;
    let mut latest = HashMap::new();
    for line in lines.iter().filter(|line| line.contains("producer=") && !line.contains("plugin.")) {
        let mono_ns = support::envelope(line).0.mono_ns;
        assert!(life.contains(&mono_ns), "{mono_ns} is not in {life:?}: {line}");
        let former = latest.insert(number_behind(line, "producer="), mono_ns);
        assert!(former.is_none_or(|former| former <= mono_ns), "{mono_ns} comes after {former:?}: {line}");
    }
    for span in spans(lines) {
        assert!(life.contains(&span.ts) && life.contains(&(span.ts + span.dur)), "{span:?} not in {life:?}");
    }
}

/// The process that is killed: threads that log as fast as they can.
fn load(dir: &Path, accepted: &'static [AtomicU64; 64], paced: bool) {
    log::init(&Config { threshold: Threshold::INFO, directory: Some(dir), ..Config::default() }).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                let deadline = Instant::now() + support::DEADLINE;
                for index in 0.. {
                    produce(thread, index);
                    accepted[thread as usize].store(index + 1, Ordering::Release);
                    if paced && index % RECORDS_PER_FLUSH == RECORDS_PER_FLUSH - 1 {
                        log::flush(DRAIN).unwrap();
                    }
                    assert!(Instant::now() < deadline, "nobody has killed this process");
                }
            });
        }
    });
}

/// One record: short and long text, spans with attributes, and what a module of another language submits.
fn produce(thread: u64, index: u64) {
    match index % 5 {
        0 => log::log_info!("producer={thread} index={index} end"),
        1 => drop(log::span!("simpler_run.work", producer = thread, index = index)),
        2 => log::log_warn!("producer={thread} index={index} {:>300}", "end"),
        3 => {
            let _outer =
                log::span!("simpler_run", producer = thread, index = index, text = "a b%c", of = index);
        }
        _ => {
            let mut frame = [0; RECORD_BYTES];
            let attrs = format!("producer={thread} index={index}");
            let (ts, name) = (log::monotonic_ns(), b"plugin.work");
            let span = SpanFields {
                pid: 0,
                tid: 0,
                inv: 3,
                hid: 4,
                depth: 0,
                name,
                ts,
                dur: 1,
                attrs: attrs.as_bytes(),
            };
            let size = encode_span_frame(&mut frame, ts, 0x7, &span);
            submit(&frame[..size]);
        }
    }
}

/// Submits as a module of another language does.
fn submit(record: &[u8]) {
    let state = log::state();
    let context = state.sink_context.load(Ordering::Acquire);
    let enqueue = state.sink_enqueue.load(Ordering::Acquire);
    assert!(!enqueue.is_null());
    // SAFETY: the state documents the pointer's type.
    let enqueue: SimplerHostLogEnqueueFn = unsafe { std::mem::transmute(enqueue) };
    state.sink_producer_state.fetch_add(1, Ordering::AcqRel);
    let state = std::ptr::from_ref::<SimplerHostLogState>(state).cast_mut();
    // SAFETY: entered above; the record is readable.
    unsafe { enqueue(context, state, record.as_ptr().cast(), record.len() as u32, 0) };
}

fn number_behind(line: &str, what: &str) -> u64 {
    let at = line.find(what).unwrap_or_else(|| panic!("no {what} in {line}")) + what.len();
    let digits = line[at..].split(|c: char| !c.is_ascii_digit()).next().unwrap();
    digits.parse().unwrap()
}

fn kill(pid: i32) {
    // SAFETY: our own child, which is not reaped yet.
    unsafe { libc::kill(pid, libc::SIGKILL) };
    reap_killed(pid);
}

/// Moments that differ from run to run; the seed is told.
struct Dice {
    seed: u64,
    state: u64,
    slowness: u64,
}

impl Dice {
    fn new() -> Dice {
        let seed = log::monotonic_ns() as u64 | 1;
        let slowness = if support::is_under_thread_sanitizer() { 10 } else { 1 };
        Dice { seed, state: seed, slowness }
    }

    /// Lets a random time pass, at most `most_us`, or what that is for a program that is watched.
    fn spin(&mut self, most_us: u64) {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        let end = Instant::now() + Duration::from_micros(self.state % (most_us * self.slowness));
        while Instant::now() < end {
            std::thread::yield_now();
        }
    }
}
