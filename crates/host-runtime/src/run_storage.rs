//! The caller's block of memory for a run.
//!
//! It says which run is in it, by numbers: the context's, and the run's among all of this object. The run itself is the
//! context's ([`context`](crate::context)), since it borrows the runtime and has spans open on its thread, which no memory
//! that may be copied, or freed, at any time could be trusted with. So a block that is stale, a copy, or written over
//! is refused at worst.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};

use simpler_runtime::RunError;

use crate::context::refused;

/// The first word of a block that was used: `SMPLRUN1` in memory order.
const MAGIC: u64 = u64::from_ne_bytes(*b"SMPLRUN1");

/// The block, which another thread's call may look at while one works on its run: that one is refused, whatever mixture of
/// words it sees, since the context knows the run's thread.
#[repr(transparent)]
pub(crate) struct RunStorage([AtomicU64; WORDS]);

const WORDS: usize = 8;

/// What the words of a block say, in their order. All zero, it was never used.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Words {
    magic: u64,
    /// The context whose run it holds; 0 as long as it holds none.
    context: u64,
    run: u64,
    /// Room for what a later version keeps; 0.
    reserved: [u64; 5],
}

const _: () = assert!(size_of::<RunStorage>() == 64 && align_of::<RunStorage>() == 8);

const UNUSED: Words = Words { magic: 0, context: 0, run: 0, reserved: [0; 5] };
const IDLE: Words = Words { magic: MAGIC, ..UNUSED };

impl RunStorage {
    /// A block of our own, for a run that is one call.
    pub(crate) const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; WORDS])
    }

    /// The block behind a pointer of C.
    ///
    /// # Safety
    /// - `storage` is null, or names memory of this size that is initialized, and that during `'a` nobody touches but through
    ///   this.
    pub(crate) unsafe fn behind<'a>(storage: *mut c_void) -> Result<&'a Self, RunError> {
        let block: *mut Self = storage.cast();
        if !block.is_null() && !block.is_aligned() {
            let alignment = align_of::<Self>();
            return Err(refused(format!("the run storage at {block:p} is not aligned to {alignment} bytes")));
        }
        // SAFETY: aligned; the rest is the caller's obligation.
        unsafe { block.as_ref() }.ok_or_else(|| refused("the run storage is null"))
    }

    fn words(&self) -> Words {
        let [magic, context, run, reserved @ ..] =
            // ORDERING: Relaxed: they are numbers, each of which the context looks up in its own table.
            self.0.each_ref().map(|word| word.load(Ordering::Relaxed));
        Words { magic, context, run, reserved }
    }

    fn set(&self, Words { magic, context, run, reserved: _ }: Words) {
        for (word, value) in self.0.iter().zip([magic, context, run]) {
            // ORDERING: Relaxed: as above.
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Whether a run can be prepared in it.
    pub(crate) fn require_free(&self) -> Result<(), RunError> {
        match self.words() {
            UNUSED | IDLE => Ok(()),
            Words { magic: MAGIC, .. } => Err(refused("the run storage holds a run that is not finalized")),
            _ => Err(refused("the run storage was not zeroed before its first use")),
        }
    }

    /// The run that it holds for a context.
    pub(crate) fn run_of(&self, context: u64) -> Result<u64, RunError> {
        match self.words() {
            UNUSED | IDLE => {
                Err(refused("the run storage holds no run: it was not prepared, or it has ended"))
            }
            Words { magic: MAGIC, context: of, run, .. } if of == context => Ok(run),
            Words { magic: MAGIC, .. } => Err(refused("the run storage holds a run of another context")),
            _ => Err(refused("the run storage was not zeroed before its first use")),
        }
    }

    /// Notes the run that it now holds.
    pub(crate) fn hold(&self, context: u64, run: u64) {
        self.set(Words { context, run, ..IDLE });
    }

    /// Notes that the run has ended.
    pub(crate) fn clear(&self) {
        self.set(IDLE);
    }
}
