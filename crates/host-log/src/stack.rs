//! The spans that are open just now, by thread, where another process can see them.
//!
//! A span is one record when it closes; while it is open the log shows nothing of it, and a hang shows nothing
//! at all. So each thread keeps the frames of its open spans in the shared region, from their opening on, and a
//! closing span copies its frame from there into the queue: what makes the stack visible is the work that a
//! span is anyway.
//!
//! A thread that finds no free stack, or a span that is nested too deep for it, is emitted like any other and
//! only not seen while open.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use simpler_record_format::frame::{self, Emitter};

use crate::queue::HEAD_DATA_BYTES;
use crate::sync::UnsafeCell;

/// How many threads of a process have a stack at a time. A chip has some thirty that emit.
pub(crate) const THREADS_MAX: usize = 64;

/// How many open spans of a thread are seen. The specification's tree has five levels.
pub(crate) const OPEN_SPANS_MAX: usize = 16;

/// A frame in the making, with the room that a slot's head copies whole.
pub(crate) const OPEN_FRAME_BYTES: usize = 144;

const _: () = assert!(frame::OPEN_SPAN_BYTES <= OPEN_FRAME_BYTES && HEAD_DATA_BYTES <= OPEN_FRAME_BYTES);

/// The open spans of one thread.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct Stack {
    /// In the lower half the kernel's id of the thread, 0 if the stack is free; above it how often it was taken, so
    /// that who finds a holder gone does not free the stack of a later one with the same id.
    holder: AtomicU64,
    depth: AtomicU32,
    /// The frames begin where a vector register's worth is aligned.
    padding: u32,
    frames: [UnsafeCell<[u8; OPEN_FRAME_BYTES]>; OPEN_SPANS_MAX],
}

// SAFETY: the frames are written by the stack's thread alone, and read by others only through `copies`, which
// takes what it finds for a sample.
unsafe impl Sync for Stack {}

impl Stack {
    /// Takes the stack for the thread `emitter`, if it is free.
    fn take(&self, emitter: &Emitter) -> bool {
        let holder = self.holder.load(Ordering::Relaxed);
        if tid_of(holder) != 0 {
            return false;
        }
        let next = (holder >> 32).wrapping_add(1) << 32 | u64::from(emitter.tid() as u32);
        // ORDERING: Acquire pairs with the Release in `free`.
        if self.holder.compare_exchange(holder, next, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return false;
        }
        self.begin(emitter);
        true
    }

    /// Makes the stack empty, with the frames of the thread `emitter`, whose it is.
    fn begin(&self, emitter: &Emitter) {
        self.depth.store(0, Ordering::Relaxed);
        for frame in &self.frames {
            // SAFETY: the stack is this thread's now.
            frame.with_mut(|frame| frame::set_emitter(unsafe { &mut *frame }, emitter));
        }
    }

    /// The frame at `index`, which is below [`OPEN_SPANS_MAX`], for the stack's thread, which knows whether it is its
    /// to use. Seen by others once [`Stack::opened`] is called.
    // HOT: no load.
    #[inline(always)]
    pub(crate) fn frame(&self, index: u32) -> *mut [u8; OPEN_FRAME_BYTES] {
        // The remainder is for the compiler, which does not know that the index is below it.
        self.frames[index as usize % OPEN_SPANS_MAX].with_mut(core::convert::identity)
    }

    /// The frame at the top is filled.
    // HOT: one store.
    #[inline(always)]
    pub(crate) fn opened(&self, index: u32) {
        // ORDERING: Release pairs with the Acquire in `copies`: who sees the depth sees the frame.
        self.depth.store(index + 1, Ordering::Release);
    }

    /// The span at `index` is closed, and those above it that were forgotten.
    // HOT: one store.
    #[inline(always)]
    pub(crate) fn closed(&self, index: u32) {
        // ORDERING: Release keeps it behind the publication of the span's frame: who does not see the span here
        // any more finds it in the queue, unless it was lost.
        self.depth.store(index, Ordering::Release);
    }
}

/// The thread's id in a stack's holder.
const fn tid_of(holder: u64) -> i32 {
    holder as i32
}

/// All stacks of a process.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Stacks {
    pub(crate) threads: [Stack; THREADS_MAX],
}

impl Stacks {
    /// A stack for the thread `emitter`: a free one, or that of a thread which is gone.
    #[cold]
    pub(crate) fn take(&self, emitter: &Emitter) -> Option<&Stack> {
        // A thread that looks again (there is a new clock), or that was interrupted here, has one already.
        if let Some(own) = self.threads.iter().find(|stack| i64::from(stack.tid()) == emitter.tid()) {
            own.begin(emitter);
            return Some(own);
        }
        let free = |stack: &&Stack| stack.take(emitter);
        if let Some(stack) = self.threads.iter().find(free) {
            return Some(stack);
        }
        for stack in &self.threads {
            let holder = stack.holder.load(Ordering::Relaxed);
            let holder_tid = tid_of(holder);
            // SAFETY: signal 0 is no signal; the call only asks whether the thread exists.
            let is_gone = holder_tid != 0
                && unsafe { libc::syscall(libc::SYS_tgkill, emitter.pid(), holder_tid, 0) } != 0
                && std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH);
            if is_gone {
                stack.free(holder);
            }
        }
        self.threads.iter().find(free)
    }

    /// Gives each open span's frame, a copy, with its thread's id and its index from the bottom. A thread that
    /// opens or closes spans meanwhile may be seen half before and half after.
    pub(crate) fn for_each(&self, mut see: impl FnMut(i32, usize, &[u8; OPEN_FRAME_BYTES])) {
        for stack in &self.threads {
            let tid = stack.tid();
            let copies = stack.copies();
            if tid != 0 {
                copies.enumerate().for_each(|(index, frame)| see(tid, index, &frame));
            }
        }
    }
}

impl Stack {
    /// The kernel's id of the stack's thread, 0 if it is free.
    pub(crate) fn tid(&self) -> i32 {
        tid_of(self.holder.load(Ordering::Relaxed))
    }

    /// Copies of the frames of the spans that are open, from the bottom.
    pub(crate) fn copies(&self) -> impl Iterator<Item = [u8; OPEN_FRAME_BYTES]> {
        // ORDERING: Acquire pairs with the Release in `opened`.
        let depth = (self.depth.load(Ordering::Acquire) as usize).min(OPEN_SPANS_MAX);
        self.frames[..depth].iter().map(|frame| {
            // SAFETY: the bytes are there; a copy that its thread changes meanwhile is a sample like another,
            // and nothing is made of it but numbers and bytes. Volatile, so that it is read once.
            frame.with(|frame| unsafe { frame.read_volatile() })
        })
    }

    /// The thread that `holder` means is gone; one caller gets to say so.
    fn free(&self, holder: u64) {
        let free = holder >> 32 << 32;
        // ORDERING: Release pairs with the Acquire in `take`.
        let _ = self.holder.compare_exchange(holder, free, Ordering::Release, Ordering::Relaxed);
    }
}
