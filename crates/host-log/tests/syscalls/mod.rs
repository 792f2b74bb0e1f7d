//! The syscalls of one thread, counted instead of made: a seccomp filter that traps all but a few.
#![allow(dead_code, reason = "each test file uses its own part")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail where it stands")]

use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

static TRAPPED: AtomicU64 = AtomicU64::new(0);
static LAST: AtomicI32 = AtomicI32::new(-1);

/// How many were trapped so far, in all threads, and the number of the last one.
pub(crate) fn trapped() -> (u64, i32) {
    (TRAPPED.load(Ordering::Relaxed), LAST.load(Ordering::Relaxed))
}

extern "C" fn on_trap(_signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    /// The start of a SIGSYS's information: signal, error, code, padding, the call's address, its number.
    #[repr(C)]
    struct Information(i32, i32, i32, i32, u64, i32);
    // SAFETY: the kernel's siginfo for SIGSYS begins like that.
    let number = unsafe { &*info.cast::<Information>() }.5;
    LAST.store(number, Ordering::Relaxed);
    TRAPPED.fetch_add(1, Ordering::Relaxed);
}

/// Prepares the process for [`trap_all_that_can_block`].
pub(crate) fn count_traps() {
    // SAFETY: all zero is a valid sigaction.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_trap as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO;
    // SAFETY: a valid handler that only stores to atomics.
    assert_eq!(unsafe { libc::sigaction(libc::SIGSYS, &action, std::ptr::null_mut()) }, 0);
}

/// From now on this thread can read the clock, wake a futex and end by [`end_thread`]; any other syscall is
/// counted and not made.
pub(crate) fn trap_all_that_can_block() -> std::io::Result<()> {
    /// Offsets in what a filter sees: the call's number, and the lower half of its second argument.
    const NUMBER: u32 = 0;
    const SECOND_ARGUMENT: u32 = 24;
    let step = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt, jf, k };
    let load = |offset: u32| step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, offset);
    let equals = |k: i64, jt, jf| step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, jt, jf, k as u32);
    let give = |action: u32| step(libc::BPF_RET | libc::BPF_K, 0, 0, action);
    let operation_mask = !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME) as u32;
    let mut filter = [
        load(NUMBER),
        // Only where the vDSO cannot read the clock.
        equals(libc::SYS_clock_gettime, 6, 0),
        equals(libc::SYS_rt_sigreturn, 5, 0),
        equals(libc::SYS_exit, 4, 0),
        equals(libc::SYS_futex, 0, 4),
        load(SECOND_ARGUMENT),
        step(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0, 0, operation_mask),
        equals(i64::from(libc::FUTEX_WAKE), 0, 1),
        give(libc::SECCOMP_RET_ALLOW),
        give(libc::SECCOMP_RET_TRAP),
    ];
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

/// Makes one syscall that is trapped.
pub(crate) fn make_one() {
    // SAFETY: no memory involved.
    unsafe { libc::syscall(libc::SYS_getppid) };
}

/// Ends this thread at once: the filter cannot be taken off, and the usual end makes many syscalls. Not `-> !`, in
/// front of which AddressSanitizer makes syscalls of its own.
pub(crate) fn end_thread() {
    // SAFETY: the caller's thread owns nothing.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
}
