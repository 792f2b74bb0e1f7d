//! What a producer may not do once the writer runs: allocate, or make a syscall other than the clock's and
//! at most one wake per sleep of the writer.

#![cfg(feature = "host-strace")]

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

use simpler_host_log::{self as log, Invocation, Level, SpanEvent, span};
use support::{DRAIN, in_own_process, log_to_folder, wait_for};

/// Counts each thread's allocations.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// One of everything that a producer does.
fn produce(round: u64) {
    let _run = Invocation::begin("simpler_run", 0xabc);
    let _bind = span!("simpler_run.bind");
    let _args = span!("simpler_run.bind.args", ntensor = round, kind = "dense");
    log::log_warn!("round {round} of {}", "many");
    log::emit_span(&SpanEvent { name: "dev", inv: 1, hid: 2, depth: 3, ts: 4, dur: 5, attrs: "clk=dev" });
    assert!(!log::enabled(Level::Debug));
    log::log_debug!("muted {round}");
}

/// Rounds that overrun the queue several times, so that losing a record is measured as well.
const ROUNDS: u64 = 10_000;

#[test]
fn producers_do_not_allocate() {
    in_own_process("producers_do_not_allocate", || {
        let _dir = log_to_folder();
        let before = ALLOCATIONS.get();
        for round in 0..ROUNDS {
            produce(round);
        }
        assert_eq!(ALLOCATIONS.get() - before, 0);
        drop(std::hint::black_box(Box::new(before)));
        assert_eq!(ALLOCATIONS.get() - before, 1, "the counter counts");
        log::flush(DRAIN).unwrap();
    });
}

static OTHER_SYSCALLS: AtomicU64 = AtomicU64::new(0);
static LAST_SYSCALL: AtomicI32 = AtomicI32::new(-1);
static DONE: AtomicBool = AtomicBool::new(false);

extern "C" fn on_forbidden_syscall(
    _signal: libc::c_int,
    info: *mut libc::siginfo_t,
    _context: *mut libc::c_void,
) {
    /// The start of a SIGSYS's information: signal, error, code, padding, the call's address, its number.
    #[repr(C)]
    struct Information(i32, i32, i32, i32, u64, i32);
    // SAFETY: the kernel's siginfo for SIGSYS begins like that.
    let number = unsafe { &*info.cast::<Information>() }.5;
    LAST_SYSCALL.store(number, Ordering::Relaxed);
    OTHER_SYSCALLS.fetch_add(1, Ordering::Relaxed);
}

/// From now on this thread's syscalls are counted instead of made, but for those in `allowed`.
fn count_syscalls_except(allowed: &[libc::c_long]) -> std::io::Result<()> {
    /// In a seccomp filter the syscall's number is the first word.
    const NUMBER: u32 = 0;
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let mut filter = vec![statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, NUMBER)];
    for &number in allowed {
        let jump = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
        filter.push(libc::sock_filter { code: jump as u16, jt: 0, jf: 1, k: number as u32 });
        filter.push(statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW));
    }
    filter.push(statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_TRAP));
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: no memory involved.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: the program is valid during the call; the kernel copies it.
    if unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &program) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    Ok(())
}

#[test]
fn producers_make_no_syscall_but_the_clock_and_one_wake_per_sleep() {
    in_own_process("producers_make_no_syscall_but_the_clock_and_one_wake_per_sleep", || {
        if support::is_under_thread_sanitizer() {
            return eprintln!("skipped: ThreadSanitizer holds signals back, and with them the counting");
        }
        let _dir = log_to_folder();
        // SAFETY: all zero is a valid sigaction.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = on_forbidden_syscall as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        // SAFETY: a valid handler that only stores to atomics.
        assert_eq!(unsafe { libc::sigaction(libc::SIGSYS, &action, std::ptr::null_mut()) }, 0);
        let (sleeps_before, wakes_before) = log::diagnostics::sleeps_and_wakes();
        std::thread::spawn(|| {
            // The thread's first record asks for its id.
            produce(0);
            let allowed = [
                libc::SYS_futex,
                // Only where the vDSO cannot read the clock.
                libc::SYS_clock_gettime,
                libc::SYS_rt_sigreturn,
                libc::SYS_exit,
            ];
            if let Err(error) = count_syscalls_except(&allowed) {
                eprintln!("skipped: counting syscalls needs seccomp filters: {error}");
            } else {
                for round in 0..ROUNDS {
                    produce(round);
                }
                let other = OTHER_SYSCALLS.load(Ordering::Relaxed);
                // SAFETY: counted instead of made.
                unsafe { libc::syscall(libc::SYS_getppid) };
                assert_eq!(OTHER_SYSCALLS.swap(other, Ordering::Relaxed), other + 1, "the filter counts");
            }
            DONE.store(true, Ordering::Release);
            // The filter cannot be taken off, and the usual end of a thread makes many syscalls.
            // SAFETY: ends this thread at once; it owns nothing.
            unsafe { libc::syscall(libc::SYS_exit, 0) };
        });
        wait_for("the producer's end", || DONE.load(Ordering::Acquire));
        assert_eq!(OTHER_SYSCALLS.load(Ordering::Relaxed), 0, "syscall {LAST_SYSCALL:?}");
        log::flush(DRAIN).unwrap();
        let (sleeps, wakes) = log::diagnostics::sleeps_and_wakes();
        // The writer may have been asleep already when the counting began.
        assert!(wakes - wakes_before <= sleeps - sleeps_before + 1, "{wakes} wakes, {sleeps} sleeps");
        let counts = log::counts();
        assert_eq!(counts.dropped, counts.by_reason.iter().sum());
    });
}
