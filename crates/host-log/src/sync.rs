//! The primitives that the lock-free parts are made of, and the only file that knows whether they are real
//! or loom's. A model under `--cfg loom` therefore runs the very code of `queue`, `admission`, `wake` and
//! `anchor`.

#[cfg(not(loom))]
pub use real::*;

#[cfg(loom)]
pub use model::*;

pub use core::sync::atomic::Ordering;

#[cfg(not(loom))]
mod real {
    pub use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64};

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
