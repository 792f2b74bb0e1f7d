//! Who writes, and when: the process, the thread and the clock, without a syscall where one can be saved.
//!
//! `getpid` and `gettid` cost more than a whole span, so both are remembered. What makes that safe is one
//! word in a page that the kernel zeroes in every child (`MADV_WIPEONFORK`), however the child was made: a
//! remembered thread id counts only while it stands next to the process id of that word. The zero is also how
//! a child that ran no fork handler learns that it is one: who asks for the pid lets `fork` forget the parent.

use core::cell::Cell;
use core::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

/// FORK: the page's address is the parent's, its content is zero in the child, so `pid` asks again there.
static PID_PAGE: AtomicPtr<AtomicI32> = AtomicPtr::new(core::ptr::null_mut());

std::thread_local! {
    /// The pid under which the tid beside it was asked for.
    ///
    /// FORK: the child's one thread has another tid; the pid beside it is the parent's, so it is not used.
    static TID: Cell<(i32, i32)> = const { Cell::new((0, 0)) };
}

/// Maps the page. Until then, and where the kernel refuses, every `pid` is a syscall, which is only slower.
pub(crate) fn map_pid_page() {
    if !PID_PAGE.load(Ordering::Relaxed).is_null() {
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
    // ORDERING: AcqRel; Release pairs with the Acquire load in `pid`: who sees the address sees the mapping.
    let published = wiped
        && PID_PAGE
            .compare_exchange(core::ptr::null_mut(), page.cast(), Ordering::AcqRel, Ordering::Relaxed)
            .is_ok();
    if !published {
        // SAFETY: nobody else has the address.
        unsafe { libc::munmap(page, page_bytes) };
    }
}

/// This process's id.
// HOT: two loads.
#[inline]
pub fn pid() -> i32 {
    // ORDERING: Acquire pairs with the Release in `map_pid_page`.
    let page = PID_PAGE.load(Ordering::Acquire);
    // SAFETY: null, or a page that `map_pid_page` mapped and that is never unmapped; its content is at all
    // times a valid AtomicI32, zeroed or stored below.
    match unsafe { page.as_ref() } {
        Some(word) => match word.load(Ordering::Relaxed) {
            0 => {
                let pid = ask_pid();
                word.store(pid, Ordering::Relaxed);
                pid
            }
            pid => pid,
        },
        None => ask_pid(),
    }
}

#[cold]
fn ask_pid() -> i32 {
    // SAFETY: getpid has no preconditions and is async-signal-safe.
    let pid = unsafe { libc::getpid() };
    crate::fork::entered_process(pid);
    pid
}

/// This thread's id in the kernel.
// HOT: a thread-local load.
#[inline]
pub fn tid() -> i32 {
    let pid = pid();
    match TID.get() {
        (asked_in, tid) if asked_in == pid => tid,
        _ => ask_tid(pid),
    }
}

#[cold]
fn ask_tid(pid: i32) -> i32 {
    // SAFETY: gettid has no preconditions and is async-signal-safe.
    let tid = unsafe { libc::gettid() };
    TID.set((pid, tid));
    tid
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
