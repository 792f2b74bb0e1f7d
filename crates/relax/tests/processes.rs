//! The event count in memory that two processes share.
#![cfg(not(loom))]

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use simpler_relax::{Deadline, EventCount, PARK_SLICE, Relax};

const LIMIT: Duration = Duration::from_secs(60);
const TURNS: u64 = 20_000;
/// Every so many turns the parent dawdles, so that the child is parked when it is rung.
const DAWDLE_EVERY: u64 = 500;
const DAWDLES: u64 = TURNS / DAWDLE_EVERY;

#[repr(C)]
struct Shared {
    turn: AtomicU64,
    to_child: EventCount,
    to_parent: EventCount,
}

fn wait_for(word: &AtomicU64, event: &EventCount, target: u64) -> bool {
    let deadline = Deadline::after(LIMIT);
    let mut relax = Relax::new();
    loop {
        let seen = event.epoch();
        if word.load(Ordering::Acquire) >= target {
            return true;
        }
        if deadline.passed() {
            return false;
        }
        relax.wait(event, seen);
    }
}

fn child(shared: &Shared) -> bool {
    for i in 0..TURNS {
        if !wait_for(&shared.turn, &shared.to_child, 2 * i + 1) {
            return false;
        }
        shared.turn.store(2 * i + 2, Ordering::Release);
        shared.to_parent.notify_one();
    }
    true
}

#[test]
fn ping_pong_across_a_fork_misses_no_turn_and_wakes_the_parked() {
    // SAFETY: a fresh anonymous mapping; failure is checked below.
    let page = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            size_of::<Shared>(),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    assert_ne!(page, libc::MAP_FAILED);
    // SAFETY: the mapping is large enough, page-aligned, zeroed (which is a new `Shared`), and never unmapped.
    let shared: &'static Shared = unsafe { &*page.cast::<Shared>() };

    // SAFETY: the child touches only the shared page and its own stack, and leaves by _exit.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        let code = i32::from(!child(shared));
        // SAFETY: always sound; the child runs nothing of the harness.
        unsafe { libc::_exit(code) };
    }
    let mut woken_late = 0;
    let mut finished = true;
    for i in 0..TURNS {
        let dawdle = i % DAWDLE_EVERY == 0;
        if dawdle {
            let until = Deadline::after(Duration::from_micros(2_000 + i));
            while !until.passed() {
                std::thread::yield_now();
            }
        }
        let rung = Instant::now();
        shared.turn.store(2 * i + 1, Ordering::Release);
        shared.to_child.notify_one();
        if !wait_for(&shared.turn, &shared.to_parent, 2 * i + 2) {
            finished = false;
            break;
        }
        woken_late += u64::from(dawdle && rung.elapsed() > PARK_SLICE / 4);
    }
    let mut status = 0;
    // SAFETY: `pid` is our child; its waits have deadlines, so this ends.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    assert!(finished, "the parent waited in vain");
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "the child waited in vain");
    assert!(woken_late < DAWDLES / 4, "{woken_late} of {DAWDLES} wakes took over a quarter of a slice");
}
