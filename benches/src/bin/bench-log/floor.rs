//! F: two clock reads and a 128-byte copy into a ring of the queue's size.
//!
//! The clock is asked directly, so that F stays what it is whatever clock the log uses.

use std::hint::black_box;

use simpler_benches::each_ns;

use crate::subject::{until_kept, watched};

/// Untimed rounds before the timed ones, as every subject gets them.
const WARM_UP: usize = 64;

/// ns of one F, out of `calls` timed together.
pub(crate) fn burst_ns(calls: usize) -> f64 {
    let mut record = [0_u8; 128];
    let mut floor = |number: usize| {
        let start = clock_gettime_ns();
        let end = clock_gettime_ns();
        record[..8].copy_from_slice(&start.to_le_bytes());
        record[8..16].copy_from_slice(&end.to_le_bytes());
        copy_to_ring(number, &record);
    };
    (0..WARM_UP).for_each(&mut floor);
    until_kept(|| watched(|| each_ns(calls, &mut floor))).0
}

#[inline]
fn copy_to_ring(number: usize, record: &[u8; 128]) {
    static mut RING: [[u8; 128]; 4096] = [[0; 128]; 4096];
    let slot = (&raw mut RING).cast::<[u8; 128]>().wrapping_add(number % 4096);
    // SAFETY: the slot lies in RING, which only this function touches, called from the producer alone. One copy:
    // both ends are shown to the compiler as addresses that somebody else may look at.
    unsafe { std::ptr::copy_nonoverlapping(black_box(record), slot, 1) };
    black_box(slot);
}

#[inline]
fn clock_gettime_ns() -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec to write to, and the clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}
