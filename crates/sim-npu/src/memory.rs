//! Device memory: mappings of the host, known by their address, copied within their bounds.

use std::collections::BTreeMap;
use std::io;
use std::ptr::NonNull;
use std::sync::{PoisonError, RwLock};

use simpler_platform::{DeviceAddr, PlatformError};

/// What [`simpler_platform::Platform::allocate`] promises; pages are aligned to more.
const ALIGNMENT: usize = 1024;
/// The smallest page there is on a 64-bit Linux.
const PAGE_BYTES_MIN: usize = 4096;
/// From here on an allocation asks for huge pages: a decode step streams through all weights, and a TLB miss
/// every 4 KiB is a measurable part of that.
const HUGE_PAGE_BYTES: usize = 2 << 20;

const _: () = assert!(PAGE_BYTES_MIN.is_multiple_of(ALIGNMENT));

/// All allocations of a chip, by address. A copy holds the lock, so that nothing is freed under it: the host's shared to
/// read device memory, and alone to write it, since two copies may name the same bytes; the copy engine's shared, since
/// what it writes is its own meanwhile.
#[derive(Default)]
pub(crate) struct Memory {
    mappings: RwLock<BTreeMap<u64, Mapping>>,
}

/// One allocation, unmapped when dropped. Starts as zeros: a fresh mapping costs nothing until it is touched.
struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread; who may touch its bytes is the device's business.
unsafe impl Send for Mapping {}
// SAFETY: as above; the only shared operation is computing addresses.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(bytes: usize) -> io::Result<Self> {
        // SAFETY: an anonymous mapping at an address of the kernel's choice touches nothing that exists.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        if bytes >= HUGE_PAGE_BYTES {
            // Only advice: without it the memory is slower and nothing else.
            // SAFETY: the range is the mapping just made.
            unsafe { libc::madvise(start, bytes, libc::MADV_HUGEPAGE) };
        }
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))?;
        Ok(Self { start, bytes })
    }

    fn address(&self) -> u64 {
        self.start.as_ptr().expose_provenance() as u64
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: made by `new` with this length, and unmapped only here.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

impl Memory {
    pub(crate) fn allocate(&self, bytes: usize) -> Result<DeviceAddr, PlatformError> {
        if bytes == 0 {
            return Err(PlatformError::Allocate { bytes, why: "the size is 0".to_owned() });
        }
        let mapping =
            Mapping::new(bytes).map_err(|error| PlatformError::Allocate { bytes, why: error.to_string() })?;
        let address = mapping.address();
        self.mappings.write().unwrap_or_else(PoisonError::into_inner).insert(address, mapping);
        Ok(DeviceAddr(address))
    }

    pub(crate) fn release(&self, addr: DeviceAddr) -> Result<(), PlatformError> {
        let removed = self.mappings.write().unwrap_or_else(PoisonError::into_inner).remove(&addr.0);
        removed.map(drop).ok_or(PlatformError::BadRange { addr: addr.0, bytes: 0 })
    }

    pub(crate) fn copy_in(&self, dst: DeviceAddr, src: &[u8]) -> Result<(), PlatformError> {
        let mappings = self.mappings.write().unwrap_or_else(PoisonError::into_inner);
        with_range(&mappings, dst, src.len(), |device| {
            // SAFETY: `device` has `src.len()` bytes inside one mapping, which a slice of the host's own
            // cannot overlap, and which no other copy touches and nobody frees as long as the lock is held.
            unsafe { device.copy_from_nonoverlapping(NonNull::from(src).cast(), src.len()) };
        })
    }

    /// Copies between two ranges that do not overlap. By the copy engine: kernels may use the rest of the allocations
    /// meanwhile, and the ranges are its own until it says that it is done.
    pub(crate) fn copy_inside(
        &self,
        dst: DeviceAddr,
        src: DeviceAddr,
        bytes: u64,
    ) -> Result<(), PlatformError> {
        let bytes =
            usize::try_from(bytes).map_err(|_| PlatformError::BadRange { addr: dst.0, bytes: usize::MAX })?;
        let overlap = dst.0.abs_diff(src.0) < bytes as u64;
        if overlap {
            return Err(PlatformError::BadRange { addr: dst.0, bytes });
        }
        // Shared, so that a long copy does not keep the host from its own.
        let mappings = self.mappings.read().unwrap_or_else(PoisonError::into_inner);
        let mut from = None;
        with_range(&mappings, src, bytes, |device| from = Some(device))?;
        with_range(&mappings, dst, bytes, |device| {
            if let Some(from) = from {
                // SAFETY: both have `bytes` bytes inside mappings that nobody frees as long as the lock is held, and
                // they do not overlap.
                unsafe { device.copy_from_nonoverlapping(from, bytes) };
            }
        })
    }

    pub(crate) fn copy_out(&self, dst: &mut [u8], src: DeviceAddr) -> Result<(), PlatformError> {
        let bytes = dst.len();
        let mappings = self.mappings.read().unwrap_or_else(PoisonError::into_inner);
        with_range(&mappings, src, bytes, |device| {
            // SAFETY: as in `copy_in`, but for copies that read; the mapping's bytes are always initialised.
            unsafe { device.copy_to_nonoverlapping(NonNull::from(dst).cast(), bytes) };
        })
    }
}

/// Calls `copy` with the host pointer of a device range that lies inside one allocation.
fn with_range(
    mappings: &BTreeMap<u64, Mapping>,
    addr: DeviceAddr,
    bytes: usize,
    copy: impl FnOnce(NonNull<u8>),
) -> Result<(), PlatformError> {
    let refused = PlatformError::BadRange { addr: addr.0, bytes };
    let Some((start, mapping)) = mappings.range(..=addr.0).next_back() else { return Err(refused) };
    let offset = (addr.0 - start) as usize;
    if offset >= mapping.bytes || bytes > mapping.bytes - offset {
        return Err(refused);
    }
    // SAFETY: the offset is inside the mapping.
    copy(unsafe { mapping.start.add(offset) });
    Ok(())
}
