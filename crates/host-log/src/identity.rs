//! Who writes, and when: the process, its life, and the clock, without a syscall where one can be saved.
//!
//! `getpid` and `gettid` cost more than a whole span, so both are remembered. What makes that safe is one
//! word in a page that the kernel zeroes in every child (`MADV_WIPEONFORK`), however the child was made. The
//! word holds the pid and the number of the region that is in use; what a thread has remembered counts only
//! while it stands under that very word. The zero is also how a child that ran no fork handler learns that it is
//! one: who asks for the pid lets `fork` forget the parent.

use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// FORK: the page's address is the parent's, its content is zero in the child, so `pid` asks again there.
static LIFE_PAGE: AtomicPtr<AtomicU64> = AtomicPtr::new(core::ptr::null_mut());

/// One region, in the upper half of the word.
const ONE_REGION: u64 = 1 << 32;

/// Maps the page. Until then, and where the kernel refuses, every `pid` is a syscall, which is only slower.
pub(crate) fn map_life_page() {
    if !LIFE_PAGE.load(Ordering::Relaxed).is_null() {
        return;
    }
    // SAFETY: sysconf has no preconditions.
    let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    // SAFETY: an anonymous mapping at an address of the kernel's choice touches nothing of ours.
    let page = unsafe {
        libc::mmap(
            core::ptr::null_mut(),
            page_bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if page == libc::MAP_FAILED {
        return;
    }
    // SAFETY: `page` is the mapping made above, of that size.
    let wiped = unsafe { libc::madvise(page, page_bytes, libc::MADV_WIPEONFORK) } == 0;
    // ORDERING: AcqRel; Release pairs with the Acquire load in `life`: who sees the address sees the mapping.
    let published = wiped
        && LIFE_PAGE
            .compare_exchange(core::ptr::null_mut(), page.cast(), Ordering::AcqRel, Ordering::Relaxed)
            .is_ok();
    if !published {
        // SAFETY: nobody else has the address.
        unsafe { libc::munmap(page, page_bytes) };
    }
}

#[inline]
fn life_word() -> Option<&'static AtomicU64> {
    // ORDERING: Acquire pairs with the Release in `map_life_page`.
    let page = LIFE_PAGE.load(Ordering::Acquire);
    // SAFETY: null, or a page that `map_life_page` mapped and that is never unmapped; its content is at all
    // times a valid AtomicU64, zeroed or stored below.
    unsafe { page.as_ref() }
}

/// The process and its region as one number; 0 in a child that has not noticed yet, and where there is no page.
// HOT: two loads.
#[inline]
pub(crate) fn life() -> u64 {
    life_word().map_or(0, |word| word.load(Ordering::Relaxed))
}

/// This process's id.
// HOT: two loads.
#[inline]
pub fn pid() -> i32 {
    match life() {
        0 => ask_pid(),
        life => life as i32,
    }
}

#[cold]
fn ask_pid() -> i32 {
    // SAFETY: getpid has no preconditions and is async-signal-safe.
    let pid = unsafe { libc::getpid() };
    crate::fork::entered_process(pid);
    if let Some(word) = life_word() {
        // Another thread may have been here, and may even have begun a region.
        let _ =
            word.compare_exchange(0, u64::from(pid.cast_unsigned()), Ordering::Relaxed, Ordering::Relaxed);
    }
    pid
}

/// There is a new region, or a new clock: every thread shall look again.
pub(crate) fn begin_life() {
    pid();
    if let Some(word) = life_word() {
        // ORDERING: Release pairs with nothing but the region's own publication, which it follows.
        word.fetch_add(ONE_REGION, Ordering::Release);
    }
}

/// This thread's id in the kernel.
// HOT: a thread-local load.
#[inline]
pub fn tid() -> i32 {
    crate::thread::with(|thread| thread.tid())
}

/// This thread's handle, as the envelope prints it.
#[inline]
pub(crate) fn thread_handle() -> u64 {
    // SAFETY: pthread_self has no preconditions.
    unsafe { libc::pthread_self() }
}

/// `CLOCK_MONOTONIC` in ns: the one clock of envelopes and spans.
// HOT: the vDSO's clock, no syscall.
#[inline]
pub fn monotonic_ns() -> i64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// Unix time in ns, for the clock anchor only.
pub(crate) fn wall_ns() -> i64 {
    clock_ns(libc::CLOCK_REALTIME)
}

#[inline]
fn clock_ns(clock: libc::clockid_t) -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec to write to. Both clocks exist on every Linux, so it cannot fail.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}
