//! The ring: a bounded queue of records with many producers and one consumer.
//!
//! Each slot has a stamp, a position and a state, which says whose turn it is. At position `p` the slot
//! `p mod SLOTS` is *free*, then *published*, then free again for the position of the next lap. A producer
//! claims the position by moving the enqueue cursor from `p` to `p + 1`; between claim and publication the
//! slot is its own. The consumer reads published slots in order and gives them back only when it is done with
//! them (written or counted), so that what was accepted and not yet finished lies between the two cursors.
//!
//! Producers that contend for the cursor pay for its cache line, some 30 ns, on every claim. So a producer
//! that lost a claim to another takes a *run* of positions at once: the first is claimed as above, the others
//! are *reserved*. A reserved slot is its owner's to use, but not for ever: the consumer, when it finds
//! one and has nothing better to do, *revokes* it, and the owner, which takes the slot by marking it as *being
//! written*, notices and claims anew. So an idle thread never stops the queue, and who is alone
//! takes single positions and keeps the order of all records.
//!
//! A bit of the cursor that no position reaches closes the ring: no claim succeeds any more, and once all
//! positions are finished nobody is inside. That makes stopping the writer independent of how many threads
//! there are.
//!
//! A record is opaque bytes. Slots are stored split: a dense head of 128 bytes holds the control words and
//! a short record whole, the tail holds the rest of a long one, so that the usual span stays in few cache
//! lines while the bound stays 512 bytes.

use simpler_log_abi::DropReason;
use simpler_record_format::RECORD_BYTES;

use crate::sync::{AtomicU64, Ordering, UnsafeCell, one_address};

/// How many records wait at most. A producer at full speed fills this in about 150 µs, which is longer than
/// it takes to wake the writer.
pub const QUEUE_SLOTS: usize = 4096;

/// How often a claim is tried before it is given up. Ten times the worst that was ever measured (86): a
/// record that is lost here says that something is wrong, not that the machine is busy.
pub const CLAIM_ATTEMPTS_MAX: u32 = 1024;

/// How many positions a producer takes at once that has lost a claim: the cursor's cache line, for which two claims
/// on far-away processors wait half a microsecond each, is then hardly felt, and what all threads of a process that
/// have a stack leave reserved and unused is less than half of the ring.
pub const RUN_SLOTS: u64 = 32;

/// How far ahead heads are fetched: some 300 ns at full speed, what a line takes that another processor has.
const FETCH_AHEAD: usize = 8;

/// A claim that passes a multiple of this rings for a writer that rests on its timer, so that a burst cannot fill the
/// ring meanwhile.
pub const MARK_EVERY: u64 = QUEUE_SLOTS as u64 / 2;

const _: () = assert!(MARK_EVERY.is_power_of_two());

/// A slot's head with its control words: two cache lines, the pair that the prefetcher fetches together.
const HEAD_BYTES: usize = 128;

/// What the control words of a head take: stamp, size, anchor's pid.
const CONTROL_BYTES: usize = 16;

/// The part of a record that lies in the head.
pub const HEAD_DATA_BYTES: usize = HEAD_BYTES - CONTROL_BYTES;

/// The part of a record that lies in the tail.
const TAIL_DATA_BYTES: usize = RECORD_BYTES - HEAD_DATA_BYTES;

/// The bit of the enqueue cursor that closes the ring: the highest that a stamp keeps, so that no slot is free for a
/// position with it.
const CLOSED: u64 = 1 << (63 - STATE_BITS);

const _: () = assert!(QUEUE_SLOTS.is_power_of_two());
#[cfg(not(loom))]
const _: () = assert!(size_of::<Head>() == HEAD_BYTES);

/// What a slot is, at the position in its stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum SlotState {
    /// Nobody's, or, once the cursor has passed it, claimed and being written by who claimed it alone.
    Free = 0,
    /// A record that the consumer may read.
    Published = 1,
    /// Part of a run and not used yet.
    Reserved = 2,
    /// Part of a run and being written by the run's owner.
    Writing = 3,
    /// Part of a run and taken back by the consumer: no record.
    Revoked = 4,
}

/// The bits of a stamp below the position.
const STATE_BITS: u32 = 3;

/// The stamp of a slot that is in `state` at `position`.
#[inline]
const fn stamp(position: u64, state: SlotState) -> u64 {
    position << STATE_BITS | state as u64
}

/// The position in a stamp.
#[inline]
const fn position_of(stamp: u64) -> u64 {
    stamp >> STATE_BITS
}

#[derive(Debug)]
#[repr(C, align(128))]
struct Head {
    stamp: AtomicU64,
    content: UnsafeCell<Content>,
}

impl Head {
    /// Fetches the head that lies `AHEAD` behind this one to be written: the consumer has had it since it was last
    /// written here, and a store that misses would be waited for by the next claim's read-modify-write. At the end of
    /// the ring it is none that is fetched, which costs those at its beginning their turn.
    #[inline(always)]
    fn fetch<const AHEAD: usize>(&self) {
        #[cfg(target_arch = "x86_64")]
        {
            // SAFETY: prefetching touches nothing; on a processor without the instruction's write hint it does
            // nothing.
            unsafe {
                core::arch::asm!(
                    "prefetchw [{head} + {ahead}]",
                    "prefetchw [{head} + {ahead} + 64]",
                    head = in(reg) core::ptr::from_ref(self),
                    ahead = const AHEAD * HEAD_BYTES,
                    options(nostack, preserves_flags, readonly)
                );
            }
        }
    }
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

/// The ring itself. Zeroed memory is a ring once [`Ring::reset`] has run, and nobody claims from it before.
///
/// FORK: it lies in memory that children do not inherit.
#[derive(Debug)]
#[repr(C)]
pub struct Ring<const SLOTS: usize = QUEUE_SLOTS> {
    enqueue: Cursor,
    dequeue: Cursor,
    heads: [Head; SLOTS],
    tails: [UnsafeCell<[u8; TAIL_DATA_BYTES]>; SLOTS],
}

// SAFETY: a slot's cells are touched only by whom its stamp names, see the module's text.
unsafe impl<const SLOTS: usize> Sync for Ring<SLOTS> {}
// SAFETY: nothing in it belongs to a thread.
unsafe impl<const SLOTS: usize> Send for Ring<SLOTS> {}

/// A position that belongs to one producer until it is published. It must be: the consumer waits for it.
#[must_use = "a claimed position that is never published stops the queue"]
#[derive(Debug)]
pub struct Claim {
    position: u64,
    /// How many positions the cursor was moved over, from this one on; 0 for one of a run.
    moved: u64,
}

impl Claim {
    /// The position in the order of all records.
    #[inline]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Whether the claim moved the cursor over a multiple of [`MARK_EVERY`]: its owner rings for a writer that
    /// rests. Told with the claim and not with the use of a position, which may be never.
    #[inline]
    pub fn passed_mark(&self) -> bool {
        // The first multiple at or after the position is one of those.
        self.position.wrapping_neg() & (MARK_EVERY - 1) < self.moved
    }
}

/// What one thread has reserved in one ring, and whether it should reserve more next time.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    next: u64,
    end: u64,
    /// How many positions the next claim takes: 1, or [`RUN_SLOTS`] after a lost attempt.
    wanted: u64,
}

impl Run {
    /// Nothing reserved.
    pub const fn new() -> Self {
        Self { next: 0, end: 0, wanted: 1 }
    }

    /// Whether nothing is reserved and the next claim takes one position.
    pub const fn is_single(&self) -> bool {
        self.next >= self.end && self.wanted == 1
    }

    /// Nothing reserved, of a thread that has just lost a claim.
    pub const fn wanting_more() -> Self {
        Self { next: 0, end: 0, wanted: RUN_SLOTS }
    }
}

impl Default for Run {
    fn default() -> Self {
        Self::new()
    }
}

/// A slot that is being filled: a claim with the place that it stands for.
#[must_use = "a claimed position that is never published stops the queue"]
#[derive(Debug)]
pub struct Slot<'a, const SLOTS: usize = QUEUE_SLOTS> {
    ring: &'a Ring<SLOTS>,
    head: &'a Head,
    position: u64,
}

impl<const SLOTS: usize> Slot<'_, SLOTS> {
    /// Where the record begins.
    // HOT: no load.
    #[inline(always)]
    pub fn data(&mut self) -> &mut [u8; HEAD_DATA_BYTES] {
        // SAFETY: the claim makes this thread the only one to touch the slot, and it is borrowed for as long.
        unsafe { &mut (*self.content()).data }
    }

    /// Where the slot's content lies. A model sees the access begin here, which is enough to tell whether it comes
    /// after the consumer's last one and before its next.
    #[inline(always)]
    fn content(&self) -> *mut Content {
        self.head.content.with_mut(core::convert::identity)
    }

    /// Hands the record to the consumer: its first `written` bytes are in [`Slot::data`], `rest` follows them. It is
    /// at most [`RECORD_BYTES`] long; what is beyond is cut. `anchor_pid` is the pid whose clock anchor it is, its
    /// negative for that process's host identity, else 0.
    // HOT: two stores, if nothing more follows.
    #[inline(always)]
    pub fn publish(self, written: usize, rest: &[u8], anchor_pid: i32) {
        let written = written.min(HEAD_DATA_BYTES);
        let rest = &rest[..rest.len().min(RECORD_BYTES - written)];
        let (in_head, in_tail) = rest.split_at(rest.len().min(HEAD_DATA_BYTES - written));
        // SAFETY: as in `data`.
        let content = unsafe { &mut *self.content() };
        content.size = (written + rest.len()) as u32;
        content.anchor_pid = anchor_pid;
        if !in_head.is_empty() {
            content.data[written..written + in_head.len()].copy_from_slice(in_head);
        }
        if !in_tail.is_empty() {
            self.ring.tails[(self.position & Ring::<SLOTS>::MASK) as usize].with_mut(|tail| {
                // SAFETY: the tail belongs to the same slot.
                let tail = unsafe { &mut *tail };
                tail[..in_tail.len()].copy_from_slice(in_tail);
            });
        }
        // ORDERING: Release pairs with the Acquire in `Consumer::read`.
        self.head.stamp.store(stamp(self.position, SlotState::Published), Ordering::Release);
    }
}

impl<const SLOTS: usize> Ring<SLOTS> {
    const MASK: u64 = {
        assert!(SLOTS.is_power_of_two());
        SLOTS as u64 - 1
    };

    /// The bytes in front of the slots.
    #[cfg(not(loom))]
    pub(crate) const CURSORS_BYTES: usize = core::mem::offset_of!(Self, heads);

    /// An empty ring, for models; the real one is made in place from zeroed memory.
    #[cfg(loom)]
    pub fn new() -> Self {
        let content = || Content { size: 0, anchor_pid: 0, data: [0; HEAD_DATA_BYTES] };
        let ring = Self {
            enqueue: Cursor(AtomicU64::new(0)),
            dequeue: Cursor(AtomicU64::new(0)),
            heads: core::array::from_fn(|_| Head {
                stamp: AtomicU64::new(0),
                content: UnsafeCell::new(content()),
            }),
            tails: core::array::from_fn(|_| UnsafeCell::new([0; TAIL_DATA_BYTES])),
        };
        ring.reset();
        ring.open();
        ring
    }

    /// Makes the ring empty and leaves it closed. Only while nobody else uses it.
    pub fn reset(&self) {
        for (index, head) in self.heads.iter().enumerate() {
            // ORDERING: none; opening publishes it, and only afterwards somebody claims.
            head.stamp.store(stamp(index as u64, SlotState::Free), Ordering::Relaxed);
        }
        // ORDERING: as above.
        self.enqueue.0.store(CLOSED, Ordering::Relaxed);
        self.dequeue.0.store(0, Ordering::Relaxed);
    }

    /// Lets producers claim.
    pub fn open(&self) {
        // ORDERING: AcqRel: Release pairs with the Acquire of a claim: who claims sees the ring as it was reset.
        self.enqueue.0.fetch_and(!CLOSED, Ordering::AcqRel);
    }

    /// Refuses every claim from now on. Who claimed before may still be writing; what is accepted is
    /// finished once [`Ring::unfinished`] is 0.
    pub fn close(&self) {
        // ORDERING: AcqRel, so that what follows (looking at what is unfinished) stays behind.
        self.enqueue.0.fetch_or(CLOSED, Ordering::AcqRel);
    }

    #[inline]
    fn head(&self, position: u64) -> &Head {
        &self.heads[(position & Self::MASK) as usize]
    }

    /// The usual claim: one position, at the first attempt. `None` where that does not succeed, for whatever reason;
    /// [`Ring::claim`] tells.
    // HOT: two loads and one read-modify-write.
    #[inline(always)]
    pub fn claim_alone(&self) -> Option<Claim> {
        // ORDERING: Relaxed: the cursor only proposes a position; the slot's stamp decides.
        let position = self.enqueue.0.load(Ordering::Relaxed);
        // ORDERING: Acquire pairs with the Release in `release`: the consumer is done reading the slot. A closed
        // ring's is free for no cursor.
        if self.head(position).stamp.load(Ordering::Acquire) != stamp(position, SlotState::Free) {
            return None;
        }
        // ORDERING: Acquire pairs with the Release in `open`. A slot seen to be free belongs to the winner.
        self.enqueue.0.compare_exchange(position, position + 1, Ordering::Acquire, Ordering::Relaxed).ok()?;
        self.head(position).fetch::<FETCH_AHEAD>();
        Some(Claim { position, moved: 1 })
    }

    /// Claims the next position of the caller's `run`. `None` where it has none, or the consumer has revoked it;
    /// [`Ring::claim`] goes on.
    // HOT: one read-modify-write, of a line that nobody else has.
    #[inline(always)]
    pub fn claim_reserved(&self, run: &mut Run) -> Option<Claim> {
        let position = run.next;
        if position >= run.end {
            return None;
        }
        let (reserved, writing) = (stamp(position, SlotState::Reserved), stamp(position, SlotState::Writing));
        // ORDERING: Relaxed: the slot was free for this thread already; the consumer, if it came first, has
        // touched nothing but the stamp.
        self.head(position)
            .stamp
            .compare_exchange(reserved, writing, Ordering::Relaxed, Ordering::Relaxed)
            .ok()?;
        run.next = position + 1;
        Some(Claim { position, moved: 0 })
    }

    /// Claims the next position for the caller, whose `run` it is.
    ///
    /// # Errors
    ///
    /// `QueueFull` when there is no free slot, `ClaimExhausted` when other producers won every attempt,
    /// `NotAdmitted` when the ring is closed.
    #[inline]
    pub fn claim(&self, run: &mut Run) -> Result<Claim, DropReason> {
        if let Some(claim) = self.claim_reserved(run) {
            return Ok(claim);
        }
        if run.next < run.end {
            // Revoked, and the rest is or will be: the consumer waits for nobody. A run of which nothing was used was
            // taken for nothing; who was in the middle of one goes on as before.
            let was_unused = run.end - run.next == run.wanted - 1;
            *run = Run { next: 0, end: 0, wanted: if was_unused { 1 } else { run.wanted } };
        }
        self.claim_at_cursor(run)
    }

    #[inline]
    fn claim_at_cursor(&self, run: &mut Run) -> Result<Claim, DropReason> {
        let mut wanted = run.wanted.min(SLOTS as u64 / 2);
        // ORDERING: Relaxed: the cursor only proposes a position; the slot's stamp decides.
        let mut cursor = self.enqueue.0.load(Ordering::Relaxed);
        for _ in 0..CLAIM_ATTEMPTS_MAX {
            if cursor & CLOSED != 0 {
                return Err(DropReason::NotAdmitted);
            }
            // Slots are given back in order: if the last one is free, all of them are.
            let last = cursor + wanted - 1;
            // ORDERING: Acquire pairs with the Release in `release`: the consumer is done reading the slots.
            let found = self.head(last).stamp.load(Ordering::Acquire);
            match position_of(found).wrapping_sub(last).cast_signed() {
                0 if found == stamp(last, SlotState::Free) => {}
                ..0 if wanted > 1 => {
                    wanted = 1;
                    continue;
                }
                ..0 => return Err(DropReason::QueueFull),
                // Somebody has claimed it since the cursor was read.
                _ => {
                    cursor = self.enqueue.0.load(Ordering::Relaxed);
                    continue;
                }
            }
            // ORDERING: Acquire pairs with the Release in `open`. A slot seen to be free belongs to the winner.
            match self.enqueue.0.compare_exchange_weak(
                cursor,
                cursor + wanted,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => {
                    if wanted > 1 {
                        self.reserve(cursor + 1..cursor + wanted);
                        *run = Run { next: cursor + 1, end: cursor + wanted, wanted };
                    }
                    return Ok(Claim { position: cursor, moved: wanted });
                }
                Err(current) => {
                    // Equal: the processor's reservation was lost, not the claim.
                    if current != cursor {
                        run.wanted = RUN_SLOTS;
                        wanted = RUN_SLOTS.min(SLOTS as u64 / 2);
                    }
                    cursor = current;
                }
            }
        }
        Err(DropReason::ClaimExhausted)
    }

    #[cold]
    fn reserve(&self, positions: core::ops::Range<u64>) {
        // All at once, and never one beyond the run: that is another producer's, who would lose it.
        for position in positions.clone() {
            self.head(position).fetch::<0>();
        }
        for position in positions {
            // ORDERING: Relaxed: until this store the consumer takes the slot for one that is being written.
            self.head(position).stamp.store(stamp(position, SlotState::Reserved), Ordering::Relaxed);
        }
    }

    /// Copies `record` into the claimed slot and hands it to the consumer. `anchor_pid` is the pid whose
    /// clock anchor the record is, its negative for that process's host identity, else 0. A record is at most [`RECORD_BYTES`] long; what is beyond is cut.
    /// `amend` may change the copy's first bytes, at most [`HEAD_DATA_BYTES`].
    // HOT: one copy and one store.
    #[inline]
    pub fn publish(&self, claim: Claim, record: &[u8], anchor_pid: i32, amend: impl FnOnce(&mut [u8])) {
        let (start, rest) = record.split_at(record.len().min(HEAD_DATA_BYTES));
        let mut slot = self.slot(claim);
        let data = &mut slot.data()[..start.len()];
        data.copy_from_slice(start);
        amend(data);
        slot.publish(start.len(), rest, anchor_pid);
    }

    /// The claimed slot, for who writes the record's beginning there.
    #[inline(always)]
    pub fn slot(&self, claim: Claim) -> Slot<'_, SLOTS> {
        Slot { ring: self, head: one_address(self.head(claim.position)), position: claim.position }
    }

    /// How many positions were ever claimed.
    #[inline]
    pub fn enqueued(&self) -> u64 {
        // ORDERING: Acquire only to keep it before what follows; a claim itself publishes nothing.
        self.enqueue.0.load(Ordering::Acquire) & !CLOSED
    }

    /// How many positions the consumer is done with.
    #[inline]
    pub fn finished(&self) -> u64 {
        // ORDERING: Acquire pairs with the Release in `Consumer::release`: what it did to the records
        // (written, or counted as lost) is visible.
        self.dequeue.0.load(Ordering::Acquire)
    }

    /// Claimed positions that the consumer is not done with, reserved ones included.
    pub fn unfinished(&self) -> u64 {
        // The finished ones first: the other order could see more finished than claimed.
        let finished = self.finished();
        self.enqueued() - finished
    }

    /// Accepted records that the consumer is not done with, and records that are being written. Looks at
    /// every slot in question: not for the producers' path.
    pub fn pending(&self) -> u64 {
        let finished = self.finished();
        let enqueued = self.enqueued();
        let is_reserved = |position: &u64| {
            self.head(*position).stamp.load(Ordering::Relaxed) == stamp(*position, SlotState::Reserved)
        };
        enqueued - finished - (finished..enqueued).filter(is_reserved).count() as u64
    }

    /// The published positions from `next` on, in order; for who looks at a ring that nobody works on any more,
    /// whatever is in it.
    pub fn published_from(&self, next: u64) -> Vec<u64> {
        let enqueued = self.enqueued();
        let is_published = |(index, head): (usize, &Head)| {
            let found = head.stamp.load(Ordering::Relaxed);
            let position = position_of(found);
            let is_its = position & Self::MASK == index as u64 && (next..enqueued).contains(&position);
            (is_its && found == stamp(position, SlotState::Published)).then_some(position)
        };
        let mut positions: Vec<u64> = self.heads.iter().enumerate().filter_map(is_published).collect();
        positions.sort_unstable();
        positions
    }

    /// Copies the record that was published at `position` into `out` and gives its length; 0 if it has none that a
    /// record can have. For who looks at a ring that nobody works on any more.
    pub fn record_at(&self, position: u64, out: &mut [u8; RECORD_BYTES]) -> usize {
        let index = (position & Self::MASK) as usize;
        let (in_head, in_tail) = out.split_at_mut(HEAD_DATA_BYTES);
        let size = self.heads[index].content.with(|content| {
            // SAFETY: nobody else touches the slot.
            let content = unsafe { &*content };
            in_head.copy_from_slice(&content.data);
            content.size as usize
        });
        // SAFETY: as above.
        self.tails[index].with(|tail| in_tail.copy_from_slice(unsafe { &*tail }));
        if size <= RECORD_BYTES { size } else { 0 }
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
    /// The position that is read next.
    pub fn position(&self) -> u64 {
        self.next
    }

    /// Whether the next record is published. One that was claimed later does not count before it.
    pub fn has_next(&self) -> bool {
        // ORDERING: Acquire pairs with the Release in `Slot::publish`.
        self.ring.head(self.next).stamp.load(Ordering::Acquire) == stamp(self.next, SlotState::Published)
    }

    /// Whether `position` is reserved and not used.
    pub fn is_reserved(&self, position: u64) -> bool {
        self.ring.head(position).stamp.load(Ordering::Relaxed) == stamp(position, SlotState::Reserved)
    }

    /// Whether a record waits behind a position that is claimed and not published.
    pub fn is_held_up(&self) -> bool {
        // ORDERING: Relaxed: nothing is read on the strength of it.
        let is_published = |position: u64| {
            self.ring.head(position).stamp.load(Ordering::Relaxed) == stamp(position, SlotState::Published)
        };
        (self.next..self.ring.enqueued()).any(is_published)
    }

    /// Takes the next position from its owner if it is reserved and not used, and moves on. Gives whether it was. The
    /// slot stays taken until [`Consumer::release`], like one that was read.
    pub fn revoke(&mut self) -> bool {
        let (reserved, revoked) =
            (stamp(self.next, SlotState::Reserved), stamp(self.next, SlotState::Revoked));
        // ORDERING: Relaxed: nothing is handed over but the slot's number; if the owner was faster, it publishes.
        let is_revoked = self
            .ring
            .head(self.next)
            .stamp
            .compare_exchange(reserved, revoked, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok();
        self.next += u64::from(is_revoked);
        is_revoked
    }

    /// Gives the next record and its anchor's pid to `read`, if it is published, and moves on, unless `read` gives
    /// nothing. The slot stays taken until [`Consumer::release`].
    pub fn read<R>(&mut self, read: impl FnOnce(&[u8], i32) -> Option<R>) -> Option<R> {
        if !self.has_next() {
            return None;
        }
        let index = (self.next & Ring::<SLOTS>::MASK) as usize;
        let taken = self.ring.heads[index].content.with(|content| {
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
        });
        self.next += u64::from(taken.is_some());
        taken
    }

    /// Gives back every slot that was read or revoked: their records are finished.
    pub fn release(&mut self) {
        for position in self.finished..self.next {
            // ORDERING: Release pairs with the Acquire in `claim`.
            self.ring
                .head(position)
                .stamp
                .store(stamp(position + SLOTS as u64, SlotState::Free), Ordering::Release);
        }
        self.finished = self.next;
        // ORDERING: Release pairs with the Acquire in `finished`.
        self.ring.dequeue.0.store(self.finished, Ordering::Release);
    }
}
