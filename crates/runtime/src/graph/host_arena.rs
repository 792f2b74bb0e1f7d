//! An arena in this process's memory: where a graph is built without a device, or before it goes there.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

use super::OUTPUT_ALIGNMENT;
use super::arena::{ArenaLayout, Graph};

/// The memory of an arena, with its layout's image. What lies behind the image costs nothing until it is touched.
#[derive(Debug)]
pub(crate) struct HostArena {
    layout: ArenaLayout,
    /// The first aligned byte of the allocation, and how many there are from it on.
    memory: NonNull<u8>,
    bytes: usize,
    allocated: NonNull<u8>,
    allocation: Layout,
}

// SAFETY: the memory is used through graph views only, and those may be used by several threads.
unsafe impl Send for HostArena {}
// SAFETY: as above.
unsafe impl Sync for HostArena {}

impl HostArena {
    /// A whole arena, its heap included: for kernels that run in this process.
    pub(crate) fn whole(layout: ArenaLayout) -> Self {
        Self::new(layout, layout.total_bytes())
    }

    /// An arena without memory for its heap: for a graph whose tasks run on a device.
    pub(crate) fn without_heap(layout: ArenaLayout) -> Self {
        Self::new(layout, layout.heap_offset())
    }

    fn new(layout: ArenaLayout, bytes: usize) -> Self {
        // Aligned by hand: the allocator fills aligned zeros itself, and would touch every page.
        let allocation = bytes
            .checked_add(OUTPUT_ALIGNMENT as usize)
            .and_then(|bytes| Layout::from_size_align(bytes, 1).ok())
            .expect("a layout's parts end below half the address space");
        // SAFETY: a layout has a control block, so the size is not 0.
        let allocated = NonNull::new(unsafe { alloc_zeroed(allocation) });
        let Some(allocated) = allocated else { handle_alloc_error(allocation) };
        let skipped = allocated.as_ptr().align_offset(OUTPUT_ALIGNMENT as usize);
        // SAFETY: less than the alignment, and that much was added to the size.
        let memory = unsafe { allocated.add(skipped) };
        let image = layout.image();
        // SAFETY: the image is the first part of the arena, and the memory is new.
        unsafe { memory.as_ptr().copy_from_nonoverlapping(image.as_ptr(), image.len()) };
        Self { layout, memory, bytes, allocated, allocation }
    }

    /// The graph in it, whose tasks run in this process.
    pub(crate) fn graph(&self) -> Graph<'_> {
        self.graph_for(self.memory.as_ptr() as u64)
    }

    /// The graph in it, whose tasks run where the arena is at `device_base`.
    pub(crate) fn graph_for(&self, device_base: u64) -> Graph<'_> {
        // SAFETY: the memory has the layout's alignment and image, lives as long as the view, and is used through such
        // views only; the heap, if there is none, is only computed with.
        unsafe { Graph::attach_for(self.memory.as_ptr() as u64, device_base, &self.layout) }
            .expect("the image of this layout was written in `new`")
    }

    /// A part of the memory, as bytes; nobody may use the graph meanwhile.
    pub(crate) fn bytes(&mut self, part: std::ops::Range<usize>) -> &[u8] {
        assert!(part.start <= part.end && part.end <= self.bytes);
        // SAFETY: inside the allocation by the assertion.
        let first = unsafe { self.memory.add(part.start) };
        // SAFETY: as above, initialised by zeros at least; no view is alive, since they borrow `self`.
        unsafe { std::slice::from_raw_parts(first.as_ptr(), part.len()) }
    }
}

impl Drop for HostArena {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.allocated.as_ptr(), self.allocation) };
    }
}
