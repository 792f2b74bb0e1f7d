//! A pipe that nobody empties: it costs records, and no producer ever waits for it.

#![cfg(feature = "host-strace")]

mod support;
mod syscalls;
mod tally;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use simpler_host_log::{self as log, Config, DropReason, Invocation, span};
use support::{DRAIN, StderrPipe, in_own_process, lines, wait_for};

const PRODUCERS: u64 = 4;
const RECORDS: u64 = 2500;
const PIPE_BYTES: usize = 4096;

/// Producers that have begun, and that have finished the first and the second half.
static BEGUN: AtomicU64 = AtomicU64::new(0);
static FINISHED: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];
static HALF: AtomicU64 = AtomicU64::new(0);
static UNFILTERED: AtomicU64 = AtomicU64::new(0);

/// Logs twice `RECORDS` records without a syscall that could block, and ends its thread.
fn produce(producer: u64) {
    // A thread's first span asks for its id.
    drop(span!("stalled.first", producer = producer));
    if !support::is_under_thread_sanitizer() && syscalls::trap_all_that_can_block().is_err() {
        UNFILTERED.fetch_add(1, Ordering::Relaxed);
    }
    BEGUN.fetch_add(1, Ordering::Release);
    for half in 0..2 {
        while HALF.load(Ordering::Acquire) <= half {
            std::hint::spin_loop();
        }
        for record in 0..RECORDS {
            let id = (half * PRODUCERS + producer) * RECORDS + record;
            match id % 3 {
                0 => log::log_warn!("text id={id}"),
                1 => drop(span!("stalled.span", id = id)),
                _ => {
                    let _root = Invocation::begin("stalled.root", id);
                    log::emit_span(&log::SpanEvent {
                        name: "stalled.event",
                        inv: 1,
                        hid: 2,
                        depth: 0,
                        ts: 3,
                        dur: 4,
                        attrs: "",
                    });
                }
            }
        }
        FINISHED[half as usize].fetch_add(1, Ordering::Release);
    }
    syscalls::end_thread();
}

/// Lets the producers do one half and gives how long it took.
fn one_half(half: u64) -> Duration {
    let start = Instant::now();
    HALF.store(half + 1, Ordering::Release);
    wait_for("the producers' records", || FINISHED[half as usize].load(Ordering::Acquire) == PRODUCERS);
    start.elapsed()
}

#[test]
fn producers_at_a_stalled_pipe_make_no_syscall_that_blocks_before_and_after_a_refused_quiesce() {
    in_own_process(
        "producers_at_a_stalled_pipe_make_no_syscall_that_blocks_before_and_after_a_refused_quiesce",
        || {
            syscalls::count_traps();
            let pipe = StderrPipe::install(Some(PIPE_BYTES as i32));
            pipe.fill();
            log::init(&Config::default()).unwrap();
            for producer in 0..PRODUCERS {
                std::thread::spawn(move || produce(producer));
            }
            wait_for("the producers", || BEGUN.load(Ordering::Acquire) == PRODUCERS);
            let first = one_half(0);
            let before = log::counts();
            let start = Instant::now();
            let refusal = log::prepare_to_fork(Duration::from_millis(10));
            let refused_after = start.elapsed();
            let second = one_half(1);
            let after = log::counts();
            let trapped = syscalls::trapped();
            // Somebody reads at last: the log goes on where it stood.
            let reader = pipe.read_meanwhile();
            log::prepare_to_fork(DRAIN).unwrap();
            let quiesced = log::counts();
            pipe.restore();
            let bytes = reader.join().unwrap();
            if UNFILTERED.load(Ordering::Relaxed) > 0 {
                eprintln!("skipped: counting syscalls needs seccomp filters");
            }

            assert_eq!(trapped.0, 0, "syscall {}", trapped.1);
            let bound = Duration::from_secs(if support::is_under_thread_sanitizer() { 20 } else { 2 });
            assert!(first + second < bound, "{first:?} {second:?}");
            let refusal = refusal.unwrap_err();
            assert!(refused_after < Duration::from_secs(1), "{refused_after:?}");
            assert_eq!(refusal.dropped, before.dropped);
            assert_eq!(refusal.pending, before.pending);
            let text = refusal.to_string();
            assert!(
                text.contains(&format!("{}", before.pending))
                    && text.contains(&format!("{}", before.dropped))
            );
            assert!(tally::only(DropReason::QueueFull, &before) > 0);
            // The gate is open again: what is lost now is lost for want of room.
            assert!(tally::only(DropReason::QueueFull, &after) > before.dropped);
            assert_eq!(after, log::Counts { pending: after.pending, ..quiesced_without_report(&quiesced) });

            let stuffing = bytes.iter().take_while(|&&byte| byte == b'x').count();
            assert_eq!(stuffing, PIPE_BYTES);
            let lines = lines(&bytes[stuffing..]);
            let reports = tally::drop_reports(&lines);
            assert_eq!(reports.len(), 1);
            assert_eq!((reports[0].total, reports[0].by_reason), (quiesced.dropped, quiesced.by_reason));
            tally::ids(&lines);
            let landed = (lines.len() - reports.len()) as u64;
            // Every third id is two records: the event and the root. Then the first of each thread, and the anchor.
            let ids = 2 * PRODUCERS * RECORDS;
            let submitted = ids + (0..ids).filter(|id| id % 3 == 2).count() as u64 + PRODUCERS + 1;
            assert_eq!(landed + quiesced.dropped, submitted);
        },
    );
}

/// The counts as they were before the report was written.
fn quiesced_without_report(counts: &log::Counts) -> log::Counts {
    log::Counts { reported: 0, ..*counts }
}

#[test]
fn the_filter_of_these_tests_counts_what_blocks_and_lets_wakes_through() {
    in_own_process("the_filter_of_these_tests_counts_what_blocks_and_lets_wakes_through", || {
        if support::is_under_thread_sanitizer() {
            return eprintln!("skipped: ThreadSanitizer holds signals back, and with them the counting");
        }
        syscalls::count_traps();
        std::thread::spawn(|| {
            if syscalls::trap_all_that_can_block().is_err() {
                eprintln!("skipped: counting syscalls needs seccomp filters");
                FINISHED[0].store(1, Ordering::Release);
                return;
            }
            let word = AtomicU64::new(0);
            let futex = |operation: i32| {
                // SAFETY: the word is valid; a wait for another value than it has returns at once.
                unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, 1, 0) }
            };
            futex(libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG);
            let after_wake = syscalls::trapped().0;
            futex(libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG);
            let after_wait = syscalls::trapped().0;
            syscalls::make_one();
            BEGUN.store(100 * after_wake + 10 * after_wait + syscalls::trapped().0, Ordering::Relaxed);
            FINISHED[0].store(1, Ordering::Release);
            syscalls::end_thread();
        });
        wait_for("the thread", || FINISHED[0].load(Ordering::Acquire) == 1);
        let seen = BEGUN.load(Ordering::Relaxed);
        assert!(seen == 0 || seen == 12, "{seen}: none for the wake, one for the wait, one for another");
    });
}
