//! The only file that names std's or loom's atomics and the kernel's futex.
//!
//! Under loom the futex is a mutex and a condition variable with the kernel's one promise: comparing the word
//! and falling asleep are one step with respect to a wake. The model has no timeout, so that a lost wake is a
//! deadlock, which loom reports.

#[cfg(not(loom))]
pub(crate) use real::Word;

#[cfg(loom)]
pub(crate) use modelled::Word;

#[cfg(not(loom))]
mod real {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    /// A 64-bit atomic whose upper half is a futex.
    #[repr(transparent)]
    #[derive(Debug, Default)]
    pub(crate) struct Word(AtomicU64);

    /// Where the kernel finds the upper half.
    const UPPER_HALF: usize = if cfg!(target_endian = "little") { 1 } else { 0 };

    impl Word {
        pub(crate) const fn new(value: u64) -> Self {
            Self(AtomicU64::new(value))
        }

        #[inline]
        pub(crate) fn load(&self, ordering: Ordering) -> u64 {
            self.0.load(ordering)
        }

        #[inline]
        pub(crate) fn fetch_add(&self, value: u64, ordering: Ordering) -> u64 {
            self.0.fetch_add(value, ordering)
        }

        #[inline]
        pub(crate) fn fetch_sub(&self, value: u64, ordering: Ordering) -> u64 {
            self.0.fetch_sub(value, ordering)
        }

        fn futex(&self) -> *mut u32 {
            self.0.as_ptr().cast::<u32>().wrapping_add(UPPER_HALF)
        }

        /// Sleeps while the upper half is `upper`, until a wake, a signal or `timeout`.
        pub(crate) fn sleep_while(&self, upper: u32, timeout: Duration) {
            let limit = libc::timespec {
                tv_sec: timeout.as_secs() as libc::time_t,
                tv_nsec: timeout.subsec_nanos() as libc::c_long,
            };
            // Not FUTEX_PRIVATE_FLAG: the word may lie in memory that processes share.
            // Every way to return (woken, changed, timed out, interrupted) means: look again.
            // SAFETY: FUTEX_WAIT reads the aligned half of a live word and a timespec that outlives the call.
            unsafe {
                libc::syscall(
                    libc::SYS_futex,
                    self.futex(),
                    libc::FUTEX_WAIT,
                    upper,
                    std::ptr::from_ref(&limit),
                );
            }
        }

        /// Wakes up to `count` sleepers.
        pub(crate) fn wake(&self, count: i32) {
            // SAFETY: FUTEX_WAKE uses the address as a key; it writes nothing.
            unsafe {
                libc::syscall(libc::SYS_futex, self.futex(), libc::FUTEX_WAKE, count);
            }
        }
    }
}

#[cfg(loom)]
mod modelled {
    use loom::sync::atomic::AtomicU64;
    use loom::sync::{Condvar, Mutex};
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    #[derive(Debug)]
    pub(crate) struct Word {
        value: AtomicU64,
        bucket: Mutex<()>,
        sleepers: Condvar,
    }

    impl Word {
        pub(crate) fn new(value: u64) -> Self {
            Self { value: AtomicU64::new(value), bucket: Mutex::new(()), sleepers: Condvar::new() }
        }

        pub(crate) fn load(&self, ordering: Ordering) -> u64 {
            self.value.load(ordering)
        }

        pub(crate) fn fetch_add(&self, value: u64, ordering: Ordering) -> u64 {
            self.value.fetch_add(value, ordering)
        }

        pub(crate) fn fetch_sub(&self, value: u64, ordering: Ordering) -> u64 {
            self.value.fetch_sub(value, ordering)
        }

        pub(crate) fn sleep_while(&self, upper: u32, _timeout: Duration) {
            let Ok(bucket) = self.bucket.lock() else { return };
            // ORDERING: Relaxed: the bucket's lock orders this read against the wake that follows a change.
            if (self.value.load(Ordering::Relaxed) >> 32) as u32 == upper {
                drop(self.sleepers.wait(bucket));
            }
        }

        pub(crate) fn wake(&self, count: i32) {
            let Ok(_bucket) = self.bucket.lock() else { return };
            if count == 1 {
                self.sleepers.notify_one();
            } else {
                self.sleepers.notify_all();
            }
        }
    }
}
