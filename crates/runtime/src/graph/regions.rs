//! Who wrote and who has read each byte: from accesses to dependencies.
//!
//! A buffer is known by its first byte's address, an access is an interval of its bytes. A read depends on the
//! writers that it overlaps (RAW). A write depends on the writers (WAW) and on the readers (WAR) that it overlaps,
//! and takes their place in the bytes that it covers: whoever touches those bytes later waits for the new writer,
//! and it has waited for them. What a write leaves uncovered of an entry stays on record. So a buffer that is
//! written slice by slice and read whole, over and over, keeps a bounded number of entries.
//!
//! Buffers that begin at different addresses are different buffers, also where their bytes overlap: a caller that
//! wants two views of one allocation to be seen as such gives both the allocation's address and an offset.
//!
//! A strided view is an interval as well, and besides a box in its buffer's grid, so that tiles which lie side by side do
//! not wait for each other. A write takes the place of a box only if it covers all of it, and a strided write that of
//! nothing but smaller boxes, since what else it leaves of the bytes between its ends is no interval. So that a buffer
//! whose tiles are written and which is read whole, over and over, keeps a bounded number of entries all the same, a write
//! to a buffer with [`BOXES_MAX`] entries is taken for one of all bytes between its ends.
//!
//! A task that was given back to its ring is done, and nobody need wait for it. Its entries leave the map when a write
//! comes by, or by [`Regions::sweep`].
//!
//! The map belongs to one orchestrator. Entries come from one pool and go back to it; in steady state nothing is
//! allocated.

use simpler_kernel_abi::SimplerTensor;

use super::boxes::GridBox;
use super::{REGIONS_MAX, TaskId};

/// Chains of buffers (RUNTIME §3.5).
const BUCKETS: usize = 4096;
/// Entries of a buffer up to which a strided write is told apart from others.
const BOXES_MAX: usize = 128;
/// No element: the end of a list.
const NONE: u32 = u32::MAX;

const _: () = assert!(BUCKETS.is_power_of_two() && REGIONS_MAX < NONE as usize);

/// The map holds [`REGIONS_MAX`] entries, or as many buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionsFull;

/// An interval of bytes of the buffer at `base`: `start .. end`, counted from the buffer's first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// The buffer.
    pub base: u64,
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
    /// Which of these bytes, if not all.
    pub grid_box: Option<GridBox>,
}

impl Region {
    /// All bytes from `start` to `end`.
    pub const fn bytes(base: u64, start: u64, end: u64) -> Self {
        Self { base, start, end, grid_box: None }
    }

    /// What a view touches.
    pub fn of(view: &SimplerTensor) -> Self {
        let (base, start) = (view.addr, view.start_offset);
        Self { base, start, end: start + view.extent, grid_box: GridBox::of(view) }
    }
}

#[derive(Debug)]
struct Buffer {
    base: u64,
    next: u32,
    writers: u32,
    readers: u32,
}

#[derive(Clone, Copy, Debug)]
struct Access {
    start: u64,
    end: u64,
    task: TaskId,
    next: u32,
    /// Its place among the boxes, if it is one.
    grid_box: u32,
}

/// The map.
#[derive(Debug)]
pub struct Regions {
    buckets: Box<[u32]>,
    buffers: Vec<Buffer>,
    accesses: Vec<Access>,
    free: u32,
    /// How many are free.
    freed: usize,
    /// As many as there are entries with one, and those that are free.
    boxes: Vec<GridBox>,
    free_boxes: Vec<u32>,
}

impl Default for Regions {
    fn default() -> Self {
        Self::new()
    }
}

impl Regions {
    /// A map without entries.
    pub fn new() -> Self {
        Self {
            buckets: vec![NONE; BUCKETS].into_boxed_slice(),
            buffers: Vec::new(),
            accesses: Vec::new(),
            free: NONE,
            freed: 0,
            boxes: Vec::new(),
            free_boxes: Vec::new(),
        }
    }

    /// Forgets everything, keeps the memory.
    pub fn clear(&mut self) {
        for buffer in &self.buffers {
            self.buckets[bucket_of(buffer.base)] = NONE;
        }
        self.buffers.clear();
        self.accesses.clear();
        self.free = NONE;
        self.freed = 0;
        self.boxes.clear();
        self.free_boxes.clear();
    }

    /// Notes that `task` reads `region` and tells each task that it must wait for, perhaps more than once. `depend`
    /// gives whether that task is still there.
    pub fn read(
        &mut self,
        region: &Region,
        task: TaskId,
        depend: &mut impl FnMut(TaskId) -> bool,
    ) -> Result<(), RegionsFull> {
        if region.start >= region.end {
            return Ok(());
        }
        let buffer = self.buffer(region.base)?;
        let mut at = self.buffers[buffer].writers;
        while at != NONE {
            let writer = self.accesses[at as usize];
            if writer.task != task && self.overlaps(&writer, region) {
                depend(writer.task);
            }
            at = writer.next;
        }
        self.buffers[buffer].readers = self.prepend(self.buffers[buffer].readers, region, task)?;
        Ok(())
    }

    /// Notes that `task` writes `region`, having read it or not, and tells each task that it must wait for, perhaps
    /// more than once. `depend` as for [`Regions::read`].
    pub fn write(
        &mut self,
        region: &Region,
        task: TaskId,
        depend: &mut impl FnMut(TaskId) -> bool,
    ) -> Result<(), RegionsFull> {
        if region.start >= region.end {
            return Ok(());
        }
        let buffer = self.buffer(region.base)?;
        let all_bytes = Region { grid_box: None, ..*region };
        let region = if region.grid_box.is_some() && self.is_crowded(buffer) { &all_bytes } else { region };
        let writers = self.supersede(self.buffers[buffer].writers, region, task, depend)?;
        self.buffers[buffer].readers = self.supersede(self.buffers[buffer].readers, region, task, depend)?;
        self.buffers[buffer].writers = self.prepend(writers, region, task)?;
        Ok(())
    }

    /// Tells each task that writes any of `region`, and, `read` as well, that has read it since, perhaps more than once.
    pub fn using(&self, region: &Region, read: bool, each: &mut impl FnMut(TaskId)) {
        let Some(buffer) = self.known(region.base) else { return };
        let lists = [Some(buffer.writers), read.then_some(buffer.readers)];
        for mut at in lists.into_iter().flatten() {
            while at != NONE {
                let access = self.accesses[at as usize];
                if self.overlaps(&access, region) {
                    each(access.task);
                }
                at = access.next;
            }
        }
    }

    /// Walks a list for a write: dependencies on what overlaps, and the bytes that are covered leave it. Returns the
    /// new head.
    fn supersede(
        &mut self,
        head: u32,
        region: &Region,
        task: TaskId,
        depend: &mut impl FnMut(TaskId) -> bool,
    ) -> Result<u32, RegionsFull> {
        let (mut kept, mut at) = (NONE, head);
        while at != NONE {
            let access = self.accesses[at as usize];
            let after = access.next;
            let overlaps = self.overlaps(&access, region);
            let is_there = !overlaps || access.task == task || depend(access.task);
            if overlaps && (!is_there || self.covers(region, &access)) {
                let grid_box = self.box_of(&access);
                self.release(at);
                // What the write leaves on either side, if anything. The first part takes the freed entry.
                for (start, end) in [(access.start, region.start), (region.end, access.end)] {
                    if is_there && start < end && region.grid_box.is_none() {
                        let part = Region { base: region.base, start, end, grid_box };
                        kept = self.prepend(kept, &part, access.task)?;
                    }
                }
            } else {
                self.accesses[at as usize].next = kept;
                kept = at;
            }
            at = after;
        }
        Ok(kept)
    }

    /// How many entries, or buffers, can still come.
    pub fn room(&self) -> usize {
        let unused = REGIONS_MAX - self.accesses.len() + self.freed;
        unused.min(REGIONS_MAX - self.buffers.len())
    }

    /// Drops the entries of tasks that are not there any more, and the buffers that are left without any.
    pub fn sweep(&mut self, is_there: impl Fn(TaskId) -> bool) {
        let buffers = std::mem::take(&mut self.buffers);
        for buffer in &buffers {
            self.buckets[bucket_of(buffer.base)] = NONE;
        }
        self.buffers = buffers
            .into_iter()
            .filter_map(|mut buffer| {
                for head in [&mut buffer.writers, &mut buffer.readers] {
                    let (mut kept, mut at) = (NONE, *head);
                    while at != NONE {
                        let Access { task, next, .. } = self.accesses[at as usize];
                        if is_there(task) {
                            self.accesses[at as usize].next = kept;
                            kept = at;
                        } else {
                            self.release(at);
                        }
                        at = next;
                    }
                    *head = kept;
                }
                (buffer.writers != NONE || buffer.readers != NONE).then_some(buffer)
            })
            .collect();
        for (index, buffer) in self.buffers.iter_mut().enumerate() {
            let bucket = &mut self.buckets[bucket_of(buffer.base)];
            buffer.next = std::mem::replace(bucket, index as u32);
        }
    }

    fn box_of(&self, access: &Access) -> Option<GridBox> {
        self.boxes.get(access.grid_box as usize).copied()
    }

    fn overlaps(&self, access: &Access, region: &Region) -> bool {
        if access.start >= region.end || region.start >= access.end {
            return false;
        }
        let (Some(one), Some(other)) = (&region.grid_box, self.boxes.get(access.grid_box as usize)) else {
            return true;
        };
        !one.is_apart_from(other)
    }

    /// Whether a write takes the place of all that lies between its ends of an entry that it overlaps.
    fn covers(&self, region: &Region, access: &Access) -> bool {
        match (&region.grid_box, self.boxes.get(access.grid_box as usize)) {
            (None, _) => true,
            (Some(one), Some(other)) => one.covers(other),
            (Some(_), None) => false,
        }
    }

    /// Whether a buffer has so many entries that boxes are not told apart any more.
    fn is_crowded(&self, buffer: usize) -> bool {
        let Buffer { writers, readers, .. } = self.buffers[buffer];
        let mut entries = 0;
        for mut at in [writers, readers] {
            while at != NONE && entries < BOXES_MAX {
                entries += 1;
                at = self.accesses[at as usize].next;
            }
        }
        entries == BOXES_MAX
    }

    fn release(&mut self, at: u32) {
        let grid_box = std::mem::replace(&mut self.accesses[at as usize].grid_box, NONE);
        if grid_box != NONE {
            self.free_boxes.push(grid_box);
        }
        self.accesses[at as usize].next = self.free;
        self.free = at;
        self.freed += 1;
    }

    fn prepend(&mut self, next: u32, region: &Region, task: TaskId) -> Result<u32, RegionsFull> {
        let grid_box = region.grid_box.map_or(NONE, |grid_box| self.keep_box(grid_box));
        let access = Access { start: region.start, end: region.end, task, next, grid_box };
        if self.free != NONE {
            let at = self.free;
            self.free = std::mem::replace(&mut self.accesses[at as usize], access).next;
            self.freed -= 1;
            return Ok(at);
        }
        if self.accesses.len() == REGIONS_MAX {
            return Err(RegionsFull);
        }
        self.accesses.push(access);
        Ok(self.accesses.len() as u32 - 1)
    }

    fn keep_box(&mut self, grid_box: GridBox) -> u32 {
        if let Some(free) = self.free_boxes.pop() {
            self.boxes[free as usize] = grid_box;
            return free;
        }
        self.boxes.push(grid_box);
        self.boxes.len() as u32 - 1
    }

    fn known(&self, base: u64) -> Option<&Buffer> {
        self.index_of(base).map(|index| &self.buffers[index])
    }

    fn index_of(&self, base: u64) -> Option<usize> {
        let mut at = self.buckets[bucket_of(base)];
        while at != NONE {
            let buffer = &self.buffers[at as usize];
            if buffer.base == base {
                return Some(at as usize);
            }
            at = buffer.next;
        }
        None
    }

    fn buffer(&mut self, base: u64) -> Result<usize, RegionsFull> {
        if let Some(known) = self.index_of(base) {
            return Ok(known);
        }
        let bucket = bucket_of(base);
        let index = self.buffers.len();
        if index == REGIONS_MAX {
            return Err(RegionsFull);
        }
        self.buffers.push(Buffer { base, next: self.buckets[bucket], writers: NONE, readers: NONE });
        self.buckets[bucket] = index as u32;
        Ok(index)
    }
}

/// Multiplicative hashing: buffers are aligned, so their low bits say nothing.
fn bucket_of(base: u64) -> usize {
    (base.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - BUCKETS.trailing_zeros())) as usize
}
