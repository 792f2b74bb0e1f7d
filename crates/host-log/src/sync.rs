//! The primitives that the lock-free parts are made of, and the only file that knows whether they are real
//! or loom's. A model under `--cfg loom` therefore runs the very code of `queue`, `admission`, `wake`, `anchor` and
//! `directory`.

#[cfg(not(loom))]
pub use real::*;

#[cfg(loom)]
pub use model::*;

pub use core::sync::atomic::Ordering;

/// `place` as an address of its own, in one register: the compiler would else compute it anew, from what it is made
/// of, for each of its fields.
// HOT: no instruction.
#[inline(always)]
#[allow(clippy::pointers_in_nomem_asm_block, reason = "there is nothing that could use it")]
pub fn one_address<T>(place: &T) -> &T {
    #[cfg(not(miri))]
    {
        let mut address = core::ptr::from_ref(place);
        // SAFETY: no instruction at all.
        unsafe {
            core::arch::asm!("/* {0} */", inout(reg) address, options(pure, nomem, nostack, preserves_flags));
        }
        // SAFETY: the address is what it was.
        unsafe { &*address }
    }
    #[cfg(miri)]
    place
}

#[cfg(not(loom))]
mod real {
    use core::sync::atomic::{AtomicBool, Ordering, compiler_fence, fence};

    pub use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64};

    /// Whether [`heavy_barrier`] reaches the other threads' processors. While false, [`light_barrier`] is a
    /// real fence.
    ///
    /// FORK: the registration is inherited with the address space.
    static HEAVY_REACHES_ALL: AtomicBool = AtomicBool::new(false);

    /// Asks the kernel for barriers that reach all threads of the process. Before the writer starts.
    pub fn register_heavy_barrier() {
        let command = libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED;
        // SAFETY: the call has no memory arguments.
        let registered = unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) } == 0;
        HEAVY_REACHES_ALL.store(registered, Ordering::Relaxed);
    }

    /// The producers' half of a barrier between a store and a later load, which costs them nothing: the other
    /// side's [`heavy_barrier`] makes every processor that runs this process pass a full fence.
    // HOT: one relaxed load.
    #[inline(always)]
    pub fn light_barrier() {
        if HEAVY_REACHES_ALL.load(Ordering::Relaxed) {
            // ORDERING: SeqCst for the compiler alone; `heavy_barrier` brings the processors'.
            compiler_fence(Ordering::SeqCst);
        } else {
            // ORDERING: SeqCst pairs with the fence in `heavy_barrier`.
            fence(Ordering::SeqCst);
        }
    }

    /// Whether [`light_barrier`] is a fence by now.
    pub fn light_barrier_is_fence() -> bool {
        !HEAVY_REACHES_ALL.load(Ordering::Relaxed)
    }

    /// The other half: what threads stored before their [`light_barrier`] is visible afterwards, or they see
    /// after theirs what was stored before this. A few µs; only for who goes to sleep or stops somebody. Gives
    /// whether it reached all threads; the kernel may come to refuse what it has granted.
    pub fn heavy_barrier() -> bool {
        // ORDERING: SeqCst pairs with the fence in `light_barrier` where the kernel has no such barrier.
        fence(Ordering::SeqCst);
        if !HEAVY_REACHES_ALL.load(Ordering::Relaxed) {
            return true;
        }
        let command = libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED;
        // SAFETY: the call has no memory arguments.
        let has_passed = unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) } == 0;
        if !has_passed {
            // From now on producers fence by themselves.
            HEAVY_REACHES_ALL.store(false, Ordering::Relaxed);
        }
        has_passed
    }

    /// [`core::cell::UnsafeCell`] in the shape that loom can watch.
    #[derive(Debug)]
    #[repr(transparent)]
    pub struct UnsafeCell<T>(core::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        /// Runs `read` on the content's address, which it may read through.
        #[inline(always)]
        pub fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
            read(self.0.get())
        }

        /// Runs `write` on the content's address, which it may write through.
        #[inline(always)]
        pub fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
            write(self.0.get())
        }
    }

    /// Sleeps while `word` is `expected`, until woken, interrupted or `timeout_ns` has passed (never, if
    /// `None`). May return early for no reason.
    pub fn futex_wait(word: &AtomicU32, expected: u32, timeout_ns: Option<u64>) {
        let timeout = timeout_ns.map(|ns| libc::timespec {
            tv_sec: (ns / 1_000_000_000) as i64,
            tv_nsec: (ns % 1_000_000_000) as i64,
        });
        let timeout = timeout.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
        // SAFETY: the word outlives the call, the timeout is null or points to a timespec above.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                word.as_ptr(),
                libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                expected,
                timeout,
            )
        };
    }

    /// Wakes up to `threads` of those that sleep on `word`.
    pub fn futex_wake(word: &AtomicU32, threads: i32) {
        // SAFETY: the word is a valid address; FUTEX_WAKE does not touch its content.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                word.as_ptr(),
                libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
                threads,
            )
        };
    }
}

#[cfg(loom)]
mod model {
    use loom::sync::{Condvar, Mutex};

    pub use loom::cell::UnsafeCell;

    /// Under loom both halves are what the pair amounts to: a full fence.
    pub fn light_barrier() {
        // ORDERING: SeqCst pairs with the fence below.
        loom::sync::atomic::fence(super::Ordering::SeqCst);
    }

    /// See [`light_barrier`].
    pub fn light_barrier_is_fence() -> bool {
        true
    }

    /// See [`light_barrier`].
    pub fn heavy_barrier() -> bool {
        // ORDERING: SeqCst pairs with the fence above.
        loom::sync::atomic::fence(super::Ordering::SeqCst);
        true
    }

    pub use loom::sync::atomic::{AtomicI32, AtomicU32, AtomicU64};

    loom::lazy_static! {
        /// The kernel's queue of sleepers: comparing the word and going to sleep is one step for it.
        static ref SLEEPERS: (Mutex<()>, Condvar) = (Mutex::new(()), Condvar::new());
    }

    /// As the kernel does it; a timeout never fires in a model.
    pub fn futex_wait(word: &AtomicU32, expected: u32, _timeout_ns: Option<u64>) {
        let guard = SLEEPERS.0.lock().unwrap();
        if word.load(super::Ordering::Relaxed) == expected {
            drop(SLEEPERS.1.wait(guard).unwrap());
        }
    }

    /// As the kernel does it.
    pub fn futex_wake(_word: &AtomicU32, _threads: i32) {
        let _guard = SLEEPERS.0.lock().unwrap();
        SLEEPERS.1.notify_all();
    }
}
