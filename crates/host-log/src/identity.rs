//! Who writes, and when: the process, its life, and the clock, without a syscall where one can be saved.
//!
//! `getpid` and `gettid` cost more than a whole span, so both are remembered. What makes that safe is a
//! page that the kernel zeroes in every child (`MADV_WIPEONFORK`), however the child was made. A word in it, the
//! *life*, holds the pid and the number of the region that is in use; what a thread has remembered counts only
//! while it stands under that very life. The zero is also how a child that ran no fork handler learns that it is
//! one: who asks for the pid lets `fork` forget the parent. A second word says of which life it is known that a
//! record can go straight into the queue, so that the usual record looks at that word alone.

use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU64, Ordering};

/// FORK: the page's address is the parent's, its content is zero in the child, so `pid` asks again there.
static LIFE_PAGE: AtomicPtr<LifePage> = AtomicPtr::new(core::ptr::null_mut());

/// What lies in the page that the kernel wipes in a child.
#[repr(C)]
struct LifePage {
    /// The pid and the number of the region; 0 in a child that has not noticed yet.
    life: AtomicU64,
    /// The life whose records go straight into the queue: a writer of this module's runs, and the anchor is out. Who
    /// finds its own life here need not look at anything else. It may be out of date for a moment; then the queue is
    /// closed, and who finds that looks at everything.
    ready: AtomicU64,
}

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
    // SAFETY: no preconditions.
    let pid = unsafe { libc::getpid() };
    KNOWN_AS.store(pid, Ordering::Relaxed);
    // Named before others see it: an empty word beside a known pid means a child.
    // SAFETY: the page is zeroed memory, longer than its words and aligned for them, and nobody else has its address.
    unsafe { &*page.cast::<LifePage>() }.life.store(u64::from(pid.cast_unsigned()), Ordering::Relaxed);
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

#[inline(always)]
fn life_page() -> Option<&'static LifePage> {
    // ORDERING: Acquire pairs with the Release in `map_life_page`.
    let page = LIFE_PAGE.load(Ordering::Acquire);
    // SAFETY: null, or a page that `map_life_page` mapped and that is never unmapped; its content is at all
    // times valid words, zeroed or stored below.
    unsafe { page.as_ref() }
}

fn life_word() -> Option<&'static AtomicU64> {
    life_page().map(|page| &page.life)
}

/// Says that no life is ready, where there is no page.
pub(crate) static NONE_READY: AtomicU64 = AtomicU64::new(0);

/// The word that says which life's records go straight into the queue; 0 is none.
pub(crate) fn ready_life() -> &'static AtomicU64 {
    life_page().map_or(&NONE_READY, |page| &page.ready)
}

/// This life's records go straight into the queue from now on.
pub(crate) fn set_ready(life: u64) {
    if let Some(page) = life_page() {
        page.ready.store(life, Ordering::Relaxed);
    }
}

/// Every record looks for its way by itself again.
pub(crate) fn clear_ready() {
    set_ready(0);
}

/// The process and its region as one number; 0 in a child that has not noticed yet, and where there is no page.
// HOT: two loads.
#[inline]
pub(crate) fn life() -> u64 {
    life_page().map_or(0, |page| page.life.load(Ordering::Relaxed))
}

/// As [`life`], for who goes on to look at the region: it is this life's or a later one's.
pub(crate) fn life_with_its_region() -> u64 {
    // ORDERING: Acquire pairs with the Release in `begin_life`.
    life_word().map_or(0, |word| word.load(Ordering::Acquire))
}

/// This process's id.
// HOT: two loads.
#[inline]
pub fn pid() -> i32 {
    match life() {
        0 | FORGETTING => ask_pid(),
        life => life as i32,
    }
}

/// The word while one thread of a child forgets the parent. No pid is 0.
const FORGETTING: u64 = 1 << 63;

/// The pid that this process had when it last asked, 0 if it never did.
///
/// FORK: not wiped: a word of zero beside a pid that is known says that this is a child, whatever its own pid is (in
/// another pid namespace it can be the parent's).
static KNOWN_AS: AtomicI32 = AtomicI32::new(0);

/// How often a thread of a child yields to the one that forgets the parent. That one makes a few stores and
/// syscalls; the bound is for a signal handler that has interrupted it and waits in vain.
const FORGETTING_YIELDS: u32 = 10_000;

#[cold]
fn ask_pid() -> i32 {
    // SAFETY: getpid has no preconditions and is async-signal-safe.
    let pid = unsafe { libc::getpid() };
    let Some(word) = life_word() else {
        // No page: the number is the only evidence.
        let known = KNOWN_AS.swap(pid, Ordering::Relaxed);
        if known != 0 && known != pid {
            crate::fork::forget_the_parent(known, pid);
        }
        return pid;
    };
    // ORDERING: Acquire pairs with the Release below: who finds a life finds everything forgotten.
    match word.compare_exchange(0, FORGETTING, Ordering::Acquire, Ordering::Acquire) {
        Ok(_) => {
            let known = KNOWN_AS.swap(pid, Ordering::Relaxed);
            if known != 0 {
                crate::fork::forget_the_parent(known, pid);
            }
            // ORDERING: Release pairs with the Acquire loads of who waits.
            word.store(u64::from(pid.cast_unsigned()), Ordering::Release);
        }
        Err(_) => {
            // Another thread is at it, and nobody may be counted or look at the region meanwhile.
            for _ in 0..FORGETTING_YIELDS {
                // ORDERING: Acquire as above.
                if word.load(Ordering::Acquire) != FORGETTING {
                    break;
                }
                // SAFETY: no preconditions.
                unsafe { libc::sched_yield() };
            }
        }
    }
    pid
}

/// There is a new region, or a new clock: every thread shall look again.
pub(crate) fn begin_life() {
    pid();
    if let Some(word) = life_word() {
        // ORDERING: Release pairs with the Acquire in `life_with_its_region`: who sees the life sees its region.
        word.fetch_add(ONE_REGION, Ordering::Release);
    }
}

/// This thread's id in the kernel.
// HOT: a thread-local load.
#[inline]
pub fn tid() -> i32 {
    let thread = crate::thread::current();
    thread.refresh();
    // What the kernel gave.
    thread.emitter().tid() as i32
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
