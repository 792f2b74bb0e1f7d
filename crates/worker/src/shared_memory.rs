//! Memory that the parent and its chips share: made before the fork, inherited at the same address.
//!
//! A [`SharedBuffer`] belongs to one process alone and may be filled like any slice. Giving it to
//! `WorkerBuilder::share` turns it into a [`SharedMemory`], which other processes will see, the children of any worker
//! that it is given to, so that from then on its bytes are only copied in and out, word by word as relaxed atomics: a
//! run that is still writing can give torn values but no undefined behaviour. A [`SharedSlice`] is a checked range of it.
//!
//! A chip in this very process (level 2) reads and writes the bytes as they are. It holds the memory meanwhile, and who
//! copies in or out waits.
//!
//! Only such memory may be named by the host tensors of a run. A child knows nothing of what its parent
//! allocated after the fork, so any other address is refused on submit ([`SharedRanges::check`]), and once
//! more in the child.

use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use simpler_kernel_abi::{DType, HOST_MEMORY, SimplerTensor};

use crate::WorkerError;

/// A MAP_SHARED anonymous mapping, zeroed by the kernel, page-aligned, unmapped on drop.
#[derive(Debug)]
pub(crate) struct Mapping {
    // FORK: parent and child hold the same pages at the same address; each unmaps its own view.
    base: NonNull<u8>,
    bytes: NonZeroUsize,
}

// SAFETY: a mapping is an address range; whoever dereferences it is answerable for the accesses.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    pub(crate) fn new(bytes: usize) -> Result<Self, WorkerError> {
        let bytes =
            NonZeroUsize::new(bytes).ok_or_else(|| WorkerError::Config("shared memory of 0 bytes".into()))?;
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: an anonymous mapping at an address that the kernel chooses touches no memory in use.
        let base = unsafe { mmap_anonymous(None, bytes, protection, MapFlags::MAP_SHARED) }
            .map_err(|errno| WorkerError::system("mmap", errno))?;
        Ok(Self { base: base.cast(), bytes })
    }

    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn bytes(&self) -> usize {
        self.bytes.get()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `new`, and whoever owns the mapping holds no reference into it now.
        let unmapped = unsafe { munmap(self.base.cast(), self.bytes.get()) };
        debug_assert!(unmapped.is_ok(), "a range that mmap gave can be unmapped");
    }
}

/// Shared memory to be, still seen by this process alone: fill it before the fork.
#[derive(Debug)]
pub struct SharedBuffer {
    mapping: Mapping,
}

impl SharedBuffer {
    /// `bytes` zero bytes, page-aligned.
    ///
    /// # Errors
    /// 0 bytes, or the kernel's refusal.
    pub fn new(bytes: usize) -> Result<Self, WorkerError> {
        Ok(Self { mapping: Mapping::new(bytes)? })
    }

    /// All of its bytes.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is readable, writable and initialized (zero), no other process has it before
        // `WorkerBuilder::share` consumes `self`, and `&mut self` excludes other users here.
        unsafe { std::slice::from_raw_parts_mut(self.mapping.base().as_ptr(), self.mapping.bytes()) }
    }
}

/// Memory that the parent and all its chips see at one address. Clones name the same memory.
#[derive(Clone, Debug)]
pub struct SharedMemory {
    mapping: Arc<Mapping>,
    /// Taken by who copies, and by a chip in this process while it uses the bytes.
    // FORK: never taken then: a process that forks has one thread, and that one is forking.
    in_use: Arc<Mutex<()>>,
}

impl From<SharedBuffer> for SharedMemory {
    /// From now on other processes may see it.
    fn from(buffer: SharedBuffer) -> Self {
        Self { mapping: Arc::new(buffer.mapping), in_use: Arc::default() }
    }
}

impl SharedMemory {
    fn hold(&self) -> MutexGuard<'_, ()> {
        // Nothing is guarded but the moment.
        self.in_use.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Address of the first byte, the same in parent and children.
    pub fn addr(&self) -> u64 {
        self.mapping.base().as_ptr() as u64
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.mapping.bytes()
    }

    /// The range of `bytes` bytes from `offset`.
    ///
    /// # Errors
    /// A range that is not inside.
    pub fn slice(&self, offset: usize, bytes: usize) -> Result<SharedSlice, WorkerError> {
        self.inside(offset, bytes).ok_or_else(|| {
            WorkerError::Arguments(format!(
                "{bytes} bytes at offset {offset} are not inside {} bytes of shared memory",
                self.bytes()
            ))
        })
    }

    fn inside(&self, offset: usize, bytes: usize) -> Option<SharedSlice> {
        offset.checked_add(bytes).filter(|end| *end <= self.bytes())?;
        Some(SharedSlice { mapping: Arc::clone(&self.mapping), offset, bytes })
    }

    /// A host tensor over the range, one-dimensional, as an argument of a run.
    ///
    /// # Errors
    /// A range that is not inside.
    pub fn tensor(&self, offset: usize, bytes: usize, dtype: DType) -> Result<SimplerTensor, WorkerError> {
        let slice = self.slice(offset, bytes)?;
        Ok(SimplerTensor::whole(slice.addr(), bytes as u64, dtype, HOST_MEMORY))
    }

    /// Copies `bytes` to `offset`. A run that uses the range meanwhile reads either value of each word.
    ///
    /// # Errors
    /// A range that is not inside.
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), WorkerError> {
        let slice = self.slice(offset, bytes.len())?;
        let _held = self.hold();
        let (head, words, tail) = slice.atoms();
        let (source_head, rest) = bytes.split_at(head.len());
        let (source_words, source_tail) = rest.as_chunks::<8>();
        // ORDERING: Relaxed for all: the mailbox's release and acquire of the frame state order these bytes
        // against the child's.
        head.iter().zip(source_head).for_each(|(to, from)| to.store(*from, Ordering::Relaxed));
        words
            .iter()
            .zip(source_words)
            .for_each(|(to, from)| to.store(u64::from_ne_bytes(*from), Ordering::Relaxed));
        tail.iter().zip(source_tail).for_each(|(to, from)| to.store(*from, Ordering::Relaxed));
        Ok(())
    }

    /// Copies out from `offset`. A run that writes the range meanwhile gives either value of each word.
    ///
    /// # Errors
    /// A range that is not inside.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<(), WorkerError> {
        let slice = self.slice(offset, bytes.len())?;
        let _held = self.hold();
        let (head, words, tail) = slice.atoms();
        let (target_head, rest) = bytes.split_at_mut(head.len());
        let (target_words, target_tail) = rest.as_chunks_mut::<8>();
        // ORDERING: Relaxed for all, as in `write`.
        head.iter().zip(target_head).for_each(|(from, to)| *to = from.load(Ordering::Relaxed));
        words
            .iter()
            .zip(target_words)
            .for_each(|(from, to)| *to = from.load(Ordering::Relaxed).to_ne_bytes());
        tail.iter().zip(target_tail).for_each(|(from, to)| *to = from.load(Ordering::Relaxed));
        Ok(())
    }
}

/// A range inside one shared memory.
#[derive(Clone, Debug)]
pub struct SharedSlice {
    mapping: Arc<Mapping>,
    offset: usize,
    bytes: usize,
}

impl SharedSlice {
    /// Address of the first byte.
    pub fn addr(&self) -> u64 {
        (self.mapping.base().as_ptr() as u64) + self.offset as u64
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The range as atomics: bytes up to a word boundary, words, bytes.
    fn atoms(&self) -> (&[AtomicU8], &[AtomicU64], &[AtomicU8]) {
        // SAFETY: `offset` is inside the mapping (checked when the slice was made).
        let first = unsafe { self.mapping.base().add(self.offset) };
        // SAFETY: the range lies inside the mapping, which `self` keeps alive, and an atomic byte has the
        // layout of a byte.
        let atoms = unsafe { std::slice::from_raw_parts(first.as_ptr().cast::<AtomicU8>(), self.bytes) };
        // SAFETY: eight atomic bytes at an aligned address may be seen as one atomic word: any bits are valid.
        unsafe { atoms.align_to::<AtomicU64>() }
    }
}

/// The address ranges that host tensors may name.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedRanges {
    // FORK: the child's copy names the same ranges; it keeps the mappings alive there.
    memories: Vec<SharedMemory>,
}

impl SharedRanges {
    pub(crate) fn add(&mut self, memory: SharedMemory) {
        self.memories.push(memory);
    }

    /// Keeps everybody else in this process from the bytes.
    pub(crate) fn hold(&self) -> Vec<MutexGuard<'_, ()>> {
        let mut memories: Vec<_> = self.memories.iter().collect();
        // In one order everywhere, each once.
        memories.sort_unstable_by_key(|memory| memory.addr());
        memories.dedup_by_key(|memory| memory.addr());
        memories.into_iter().map(SharedMemory::hold).collect()
    }

    /// Adds what another worker shares.
    pub(crate) fn extend(&mut self, others: &Self) {
        self.memories.extend(others.memories.iter().cloned());
    }

    /// Whether `bytes` bytes at `addr` lie inside one shared memory.
    pub(crate) fn contain(&self, addr: u64, bytes: u64) -> bool {
        usize::try_from(bytes).is_ok_and(|bytes| self.slice(addr, bytes).is_some())
    }

    /// The range of `bytes` bytes at `addr`, where it lies inside one shared memory.
    pub(crate) fn slice(&self, addr: u64, bytes: usize) -> Option<SharedSlice> {
        self.memories.iter().find_map(|memory| {
            let offset = usize::try_from(addr.checked_sub(memory.addr())?).ok()?;
            memory.inside(offset, bytes)
        })
    }

    /// Refuses a host tensor that a child could not reach; device tensors are the device's to check.
    pub(crate) fn check(&self, position: usize, tensor: &SimplerTensor) -> Result<(), String> {
        if tensor.address_space != HOST_MEMORY || tensor.bytes == 0 {
            return Ok(());
        }
        if !self.contain(tensor.addr, tensor.bytes) {
            return Err(format!(
                "tensor {position} ({} bytes at {:#x}) is host memory outside every shared buffer: a child's \
                 process cannot reach it",
                tensor.bytes, tensor.addr
            ));
        }
        if tensor.start_offset.checked_add(tensor.extent).is_none_or(|end| end > tensor.bytes) {
            return Err(format!(
                "tensor {position} views {} bytes from offset {} of a buffer of {} bytes",
                tensor.extent, tensor.start_offset, tensor.bytes
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(bytes: usize) -> (SharedRanges, SharedMemory) {
        let memory = SharedMemory::from(SharedBuffer::new(bytes).unwrap());
        let mut ranges = SharedRanges::default();
        ranges.add(memory.clone());
        (ranges, memory)
    }

    #[test]
    fn unaligned_copies_give_back_what_was_written() {
        let (_, memory) = ranges(64);
        let bytes: Vec<u8> = (1..=37).collect();
        for offset in 0..9 {
            memory.write(offset, &bytes).unwrap();
            let mut back = [0; 37];
            memory.read(offset, &mut back).unwrap();
            assert_eq!(back.as_slice(), bytes, "offset {offset}");
        }
    }

    #[test]
    fn a_range_that_ends_outside_is_refused() {
        let (_, memory) = ranges(4096);
        assert!(memory.slice(4096, 0).is_ok());
        for (offset, bytes) in [(4096, 1), (1, 4096), (usize::MAX, 2)] {
            assert!(memory.slice(offset, bytes).is_err(), "{offset} + {bytes}");
        }
    }

    #[test]
    fn a_host_tensor_must_lie_inside_one_shared_memory() {
        let (ranges, memory) = ranges(4096);
        let inside = memory.tensor(0, 4096, DType::U8).unwrap();
        assert_eq!(ranges.check(0, &inside), Ok(()));
        let local = [0u8; 16];
        for tensor in [
            SimplerTensor { addr: inside.addr + 1, ..inside },
            SimplerTensor { addr: inside.addr - 1, ..inside },
            SimplerTensor { addr: local.as_ptr() as u64, bytes: 16, extent: 16, ..inside },
            SimplerTensor { bytes: u64::MAX, ..inside },
        ] {
            assert!(ranges.check(3, &tensor).unwrap_err().contains("tensor 3"), "{tensor:?}");
        }
        assert!(ranges.check(0, &SimplerTensor { start_offset: 1, ..inside }).is_err());
    }

    #[test]
    fn empty_and_device_tensors_need_no_shared_memory() {
        let (ranges, _) = ranges(4096);
        assert_eq!(ranges.check(0, &SimplerTensor::whole(0, 0, DType::F32, HOST_MEMORY)), Ok(()));
        let device = SimplerTensor::whole(64, 8, DType::F32, simpler_kernel_abi::DEVICE_MEMORY);
        assert_eq!(ranges.check(0, &device), Ok(()));
    }
}
