//! The ring: a bounded queue of records with many producers and one consumer.
//!
//! Each slot has a sequence number, which says whose turn it is. At position `p` the slot `p mod SLOTS` is
//! free when its sequence is `p`, published when it is `p + 1`, and free again, for the next lap, at
//! `p + SLOTS`. A producer claims the position by moving the enqueue cursor from `p` to `p + 1`; between
//! claim and publication the slot is its own. The consumer reads published slots in order and gives them
//! back only when it is done with them (written or counted), so that what was accepted and not yet finished
//! is always the distance of the two cursors.
//!
//! A record is opaque bytes. Slots are stored split: a dense head of 128 bytes holds the control words and
//! a short record whole, the tail holds the rest of a long one, so that the usual span stays in few cache
//! lines while the bound stays 512 bytes.

use simpler_log_abi::DropReason;
use simpler_record_format::RECORD_BYTES;

use crate::sync::{AtomicU64, Ordering, UnsafeCell};

/// How many records wait at most. A producer at full speed fills this in about 300 µs, which is longer than
/// it takes to wake the writer.
pub const QUEUE_SLOTS: usize = 4096;

/// How often a claim is tried before it is given up. Ten times the worst that was ever measured (86): a
/// record that is lost here says that something is wrong, not that the machine is busy.
pub const CLAIM_ATTEMPTS_MAX: u32 = 1024;

/// A slot's head with its control words: two cache lines, the pair that the prefetcher fetches together.
const HEAD_BYTES: usize = 128;

/// What the control words of a head take: sequence, size, anchor's pid.
const CONTROL_BYTES: usize = 16;

/// The part of a record that lies in the head.
const HEAD_DATA_BYTES: usize = HEAD_BYTES - CONTROL_BYTES;

/// The part of a record that lies in the tail.
const TAIL_DATA_BYTES: usize = RECORD_BYTES - HEAD_DATA_BYTES;

const _: () = assert!(QUEUE_SLOTS.is_power_of_two());
#[cfg(not(loom))]
const _: () = assert!(size_of::<Head>() == HEAD_BYTES);

#[derive(Debug)]
#[repr(C, align(128))]
struct Head {
    sequence: AtomicU64,
    content: UnsafeCell<Content>,
}

#[derive(Debug)]
#[repr(C)]
struct Content {
    size: u32,
    anchor_pid: i32,
    data: [u8; HEAD_DATA_BYTES],
}

/// A cursor alone on its cache lines: producers move one, the consumer the other.
#[derive(Debug)]
#[repr(align(128))]
struct Cursor(AtomicU64);

/// The ring itself. Zeroed memory is a ring once [`Ring::reset`] has run.
///
/// FORK: the child holds a copy in whatever state the parent's threads left it; it resets it before use.
#[derive(Debug)]
#[repr(C)]
pub struct Ring<const SLOTS: usize = QUEUE_SLOTS> {
    enqueue: Cursor,
    dequeue: Cursor,
    heads: [Head; SLOTS],
    tails: [UnsafeCell<[u8; TAIL_DATA_BYTES]>; SLOTS],
}

// SAFETY: a slot's cells are touched only by whom its sequence number names, see the module's text.
unsafe impl<const SLOTS: usize> Sync for Ring<SLOTS> {}
// SAFETY: nothing in it belongs to a thread.
unsafe impl<const SLOTS: usize> Send for Ring<SLOTS> {}

/// A position that belongs to one producer until it is published. It must be: the consumer waits for it.
#[must_use = "a claimed position that is never published stops the queue"]
#[derive(Debug)]
pub struct Claim {
    position: u64,
}

impl Claim {
    /// The position in the order of all records.
    #[inline]
    pub fn position(&self) -> u64 {
        self.position
    }
}

impl<const SLOTS: usize> Ring<SLOTS> {
    const MASK: u64 = {
        // With one slot, published at one position and free at the next would be the same number.
        assert!(SLOTS.is_power_of_two() && SLOTS >= 2);
        SLOTS as u64 - 1
    };

    /// An empty ring, for models; the real one is made in place from zeroed memory.
    #[cfg(loom)]
    pub fn new() -> Self {
        let content = || Content { size: 0, anchor_pid: 0, data: [0; HEAD_DATA_BYTES] };
        let ring = Self {
            enqueue: Cursor(AtomicU64::new(0)),
            dequeue: Cursor(AtomicU64::new(0)),
            heads: core::array::from_fn(|_| Head {
                sequence: AtomicU64::new(0),
                content: UnsafeCell::new(content()),
            }),
            tails: core::array::from_fn(|_| UnsafeCell::new([0; TAIL_DATA_BYTES])),
        };
        ring.reset();
        ring
    }

    /// Makes the ring empty. Only while nobody else uses it.
    pub fn reset(&self) {
        for (index, head) in self.heads.iter().enumerate() {
            // ORDERING: none; opening the gate publishes it, and only afterwards somebody claims.
            head.sequence.store(index as u64, Ordering::Relaxed);
        }
        // ORDERING: as above.
        self.enqueue.0.store(0, Ordering::Relaxed);
        self.dequeue.0.store(0, Ordering::Relaxed);
    }

    /// Claims the next position for the caller, within [`CLAIM_ATTEMPTS_MAX`] attempts.
    ///
    /// # Errors
    ///
    /// `QueueFull` when there is no free slot, `ClaimExhausted` when other producers won every attempt.
    // HOT: usually one load and one read-modify-write.
    #[inline]
    pub fn claim(&self) -> Result<Claim, DropReason> {
        // ORDERING: Relaxed: the cursor only proposes a position; the slot's sequence decides.
        let mut position = self.enqueue.0.load(Ordering::Relaxed);
        for _ in 0..CLAIM_ATTEMPTS_MAX {
            let head = &self.heads[(position & Self::MASK) as usize];
            // ORDERING: Acquire pairs with the Release in `release`: the consumer is done reading the slot.
            let distance = head.sequence.load(Ordering::Acquire).wrapping_sub(position) as i64;
            if distance < 0 {
                return Err(DropReason::QueueFull);
            }
            if distance > 0 {
                // Somebody claimed and published it since the cursor was read.
                position = self.enqueue.0.load(Ordering::Relaxed);
                continue;
            }
            // ORDERING: Relaxed: the winner is alone with a slot that it already saw to be free.
            match self.enqueue.0.compare_exchange_weak(
                position,
                position + 1,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Ok(Claim { position }),
                Err(current) => position = current,
            }
        }
        Err(DropReason::ClaimExhausted)
    }

    /// Copies `record` into the claimed slot and hands it to the consumer. `anchor_pid` is the pid whose
    /// clock anchor the record is, else 0. A record is at most [`RECORD_BYTES`] long; what is beyond is cut.
    // HOT: one copy and one store.
    #[inline]
    pub fn publish(&self, claim: Claim, record: &[u8], anchor_pid: i32) {
        let index = (claim.position & Self::MASK) as usize;
        let record = &record[..record.len().min(RECORD_BYTES)];
        let (start, rest) = record.split_at(record.len().min(HEAD_DATA_BYTES));
        let head = &self.heads[index];
        head.content.with_mut(|content| {
            // SAFETY: the claim makes this thread the only one to touch the slot until the store below.
            let content = unsafe { &mut *content };
            content.size = record.len() as u32;
            content.anchor_pid = anchor_pid;
            content.data[..start.len()].copy_from_slice(start);
        });
        if !rest.is_empty() {
            self.tails[index].with_mut(|tail| {
                // SAFETY: as above; the tail belongs to the same slot.
                let tail = unsafe { &mut *tail };
                tail[..rest.len()].copy_from_slice(rest);
            });
        }
        // ORDERING: Release pairs with the Acquire in `Consumer::read`.
        head.sequence.store(claim.position + 1, Ordering::Release);
    }

    /// How many positions were ever claimed.
    #[inline]
    pub fn enqueued(&self) -> u64 {
        // ORDERING: Acquire only to keep it before what follows; a claim itself publishes nothing.
        self.enqueue.0.load(Ordering::Acquire)
    }

    /// How many records the consumer is done with.
    #[inline]
    pub fn finished(&self) -> u64 {
        // ORDERING: Acquire pairs with the Release in `Consumer::release`: what it did to the records
        // (written, or counted as lost) is visible.
        self.dequeue.0.load(Ordering::Acquire)
    }

    /// Accepted records that the consumer is not done with.
    pub fn pending(&self) -> u64 {
        // The finished ones first: the other order could see more finished than claimed.
        let finished = self.finished();
        self.enqueued() - finished
    }

    /// The reading end.
    ///
    /// # Safety
    ///
    /// - There is at most one consumer of a ring at any time.
    pub unsafe fn consumer(&self) -> Consumer<'_, SLOTS> {
        let finished = self.finished();
        Consumer { ring: self, next: finished, finished }
    }
}

#[cfg(loom)]
impl<const SLOTS: usize> Default for Ring<SLOTS> {
    fn default() -> Self {
        Self::new()
    }
}

/// The reading end of a ring.
#[derive(Debug)]
pub struct Consumer<'a, const SLOTS: usize = QUEUE_SLOTS> {
    ring: &'a Ring<SLOTS>,
    next: u64,
    finished: u64,
}

impl<const SLOTS: usize> Consumer<'_, SLOTS> {
    /// Whether the next record is published. One that was claimed later does not count before it.
    pub fn has_next(&self) -> bool {
        let head = &self.ring.heads[(self.next & Ring::<SLOTS>::MASK) as usize];
        // ORDERING: Acquire pairs with the Release in `publish`.
        head.sequence.load(Ordering::Acquire) == self.next + 1
    }

    /// Gives the next record and its anchor's pid to `read`, if it is published, and moves on. The slot stays
    /// taken until [`Consumer::release`].
    pub fn read<R>(&mut self, read: impl FnOnce(&[u8], i32) -> R) -> Option<R> {
        if !self.has_next() {
            return None;
        }
        let index = (self.next & Ring::<SLOTS>::MASK) as usize;
        self.next += 1;
        Some(self.ring.heads[index].content.with(|content| {
            // SAFETY: the slot is published and not released, so no producer touches it.
            let content = unsafe { &*content };
            let size = content.size as usize;
            if size <= HEAD_DATA_BYTES {
                return read(&content.data[..size], content.anchor_pid);
            }
            let mut record = [0; RECORD_BYTES];
            record[..HEAD_DATA_BYTES].copy_from_slice(&content.data);
            self.ring.tails[index].with(|tail| {
                // SAFETY: as above; the tail belongs to the same slot.
                let tail = unsafe { &*tail };
                record[HEAD_DATA_BYTES..size].copy_from_slice(&tail[..size - HEAD_DATA_BYTES]);
            });
            read(&record[..size], content.anchor_pid)
        }))
    }

    /// Gives back every slot that was read: their records are finished.
    pub fn release(&mut self) {
        for position in self.finished..self.next {
            let head = &self.ring.heads[(position & Ring::<SLOTS>::MASK) as usize];
            // ORDERING: Release pairs with the Acquire in `claim`.
            head.sequence.store(position + SLOTS as u64, Ordering::Release);
        }
        self.finished = self.next;
        // ORDERING: Release pairs with the Acquire in `finished`.
        self.ring.dequeue.0.store(self.finished, Ordering::Release);
    }
}
