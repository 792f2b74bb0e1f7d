//! The queue of tasks that may start: bounded, many producers, many consumers.
//!
//! Each cell has a sequence number that says whose turn it is: a cell of index `i` is free for position `p` when
//! it holds `p`, full for it when it holds `p + 1`, and free again for `p + capacity`. A producer or consumer claims
//! a position by advancing a cursor and then owns the cell. Positions are 32 bits and wrap; a capacity is a power
//! of two far below 2^31, so a difference tells the order.
//!
//! The queue never runs full: it has a cell for every task of the window, and a task is in it at most once. A task of
//! several blocks comes back, though, so positions go round while a consumer that has claimed one has not emptied its
//! cell yet: a push waits for that. One that finds the queue full all the same is told so.

use crate::sync::{AtomicU32, Ordering, yield_now};

/// One cell.
#[repr(C)]
#[derive(Debug)]
pub struct ReadyCell {
    sequence: AtomicU32,
    task: AtomicU32,
}

impl ReadyCell {
    /// The cell of index `index` in an empty queue.
    pub fn new(index: u32) -> Self {
        Self { sequence: AtomicU32::new(index), task: AtomicU32::new(0) }
    }
}

/// A position, alone on its cache line: producers advance one, consumers the other.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct ReadyCursor(AtomicU32);

impl ReadyCursor {
    /// At position 0.
    pub fn new() -> Self {
        Self(AtomicU32::new(0))
    }
}

impl Default for ReadyCursor {
    fn default() -> Self {
        Self::new()
    }
}

/// The queue over memory that somebody else owns.
#[derive(Clone, Copy, Debug)]
pub struct ReadyQueue<'m> {
    /// A power of two of cells.
    pub cells: &'m [ReadyCell],
    /// Where the next push goes.
    pub pushed: &'m ReadyCursor,
    /// Where the next pop comes from.
    pub popped: &'m ReadyCursor,
}

impl ReadyQueue<'_> {
    /// Adds a task; false when there is no free cell.
    #[inline]
    pub fn push(&self, task: u32) -> bool {
        // ORDERING: Relaxed: a position is only a claim; the cell's sequence orders the data.
        let mut position = self.pushed.0.load(Ordering::Relaxed);
        loop {
            let cell = self.cell(position);
            // ORDERING: Acquire: pairs with the Release in `pop` that freed the cell.
            let behind = cell.sequence.load(Ordering::Acquire).wrapping_sub(position) as i32;
            if behind < 0 {
                // ORDERING: Relaxed: a number; a read-modify-write, since an old one could look like a full queue.
                let popped = self.popped.0.fetch_add(0, Ordering::Relaxed);
                if position.wrapping_sub(popped) as usize >= self.cells.len() {
                    return false;
                }
                // Claimed by a consumer that is about to empty it.
                yield_now();
                // ORDERING: Relaxed: as the first load.
                position = self.pushed.0.load(Ordering::Relaxed);
                continue;
            }
            if behind == 0 {
                let next = position.wrapping_add(1);
                // ORDERING: Relaxed: as the load above.
                match self.pushed.0.compare_exchange_weak(
                    position,
                    next,
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                ) {
                    Ok(_) => {
                        // ORDERING: Relaxed: published by the store of the sequence.
                        cell.task.store(task, Ordering::Relaxed);
                        // ORDERING: Release: pairs with the Acquire in `pop`: who takes the task sees its slot.
                        cell.sequence.store(next, Ordering::Release);
                        return true;
                    }
                    Err(now) => position = now,
                }
            } else {
                // ORDERING: Relaxed: as the first load.
                position = self.pushed.0.load(Ordering::Relaxed);
            }
        }
    }

    /// Takes the oldest task.
    #[inline]
    pub fn pop(&self) -> Option<u32> {
        // ORDERING: Relaxed: a position is only a claim; the cell's sequence orders the data.
        let mut position = self.popped.0.load(Ordering::Relaxed);
        loop {
            let cell = self.cell(position);
            let next = position.wrapping_add(1);
            // ORDERING: Acquire: pairs with the Release in `push`.
            let behind = cell.sequence.load(Ordering::Acquire).wrapping_sub(next) as i32;
            if behind < 0 {
                return None;
            }
            if behind == 0 {
                // ORDERING: Relaxed: as the load above.
                match self.popped.0.compare_exchange_weak(
                    position,
                    next,
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                ) {
                    Ok(_) => {
                        // ORDERING: Relaxed: ordered by the Acquire of the sequence.
                        let task = cell.task.load(Ordering::Relaxed);
                        let free = position.wrapping_add(self.cells.len() as u32);
                        // ORDERING: Release: pairs with the Acquire in `push` that reuses the cell.
                        cell.sequence.store(free, Ordering::Release);
                        return Some(task);
                    }
                    Err(now) => position = now,
                }
            } else {
                // ORDERING: Relaxed: as the first load.
                position = self.popped.0.load(Ordering::Relaxed);
            }
        }
    }

    /// Whether a pop would have found nothing at some moment during the call.
    #[inline]
    pub fn is_empty(&self) -> bool {
        // ORDERING: Relaxed: a hint; who acts on it pops.
        let position = self.popped.0.load(Ordering::Relaxed);
        // ORDERING: Relaxed: as above.
        let sequence = self.cell(position).sequence.load(Ordering::Relaxed);
        (sequence.wrapping_sub(position.wrapping_add(1)) as i32) < 0
    }

    /// About how many tasks wait: a number for a record.
    pub fn len_hint(&self) -> u32 {
        // ORDERING: Relaxed: nothing depends on it.
        let popped = self.popped.0.load(Ordering::Relaxed);
        // ORDERING: Relaxed: as above; what was pushed since makes it no less than 0.
        self.pushed.0.load(Ordering::Relaxed).wrapping_sub(popped)
    }

    /// Empties the queue. Nobody else may use it meanwhile.
    pub fn reset(&self) {
        for (index, cell) in self.cells.iter().enumerate() {
            // ORDERING: Relaxed: the caller publishes the whole graph afterwards.
            cell.sequence.store(index as u32, Ordering::Relaxed);
        }
        // ORDERING: Relaxed: as above.
        self.pushed.0.store(0, Ordering::Relaxed);
        // ORDERING: Relaxed: as above.
        self.popped.0.store(0, Ordering::Relaxed);
    }

    #[inline]
    fn cell(&self, position: u32) -> &ReadyCell {
        &self.cells[position as usize & (self.cells.len() - 1)]
    }
}
