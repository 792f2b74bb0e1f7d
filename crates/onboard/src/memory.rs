//! Device memory: what was allocated, so that a copy outside of it is refused before CANN sees it.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

use simpler_platform::{DeviceAddr, PlatformError};

use crate::device::Device;
use crate::error::OnboardError;

/// What the platform promises; CANN alone promises 64.
const ALIGNMENT: usize = 1024;

/// All allocations of a device, by their aligned address. A copy holds the lock, so that nothing is freed under it.
#[derive(Default)]
pub(crate) struct Memory {
    allocations: RwLock<BTreeMap<u64, Allocation>>,
}

struct Allocation {
    bytes: usize,
    /// What CANN gave, to be given back.
    start: u64,
}

impl Memory {
    pub(crate) fn allocate(&self, device: &Device, bytes: usize) -> Result<DeviceAddr, PlatformError> {
        let refused = |why: String| PlatformError::Allocate { bytes, why };
        if bytes == 0 {
            return Err(refused("the size is 0".to_owned()));
        }
        let padded =
            bytes.checked_add(ALIGNMENT).ok_or_else(|| refused("no device has so much".to_owned()))?;
        let start = device.malloc(padded).map_err(|error| refused(error.to_string()))?;
        let address = start.next_multiple_of(ALIGNMENT as u64);
        let mut allocations = self.allocations.write().unwrap_or_else(PoisonError::into_inner);
        allocations.insert(address, Allocation { bytes, start });
        Ok(DeviceAddr(address))
    }

    pub(crate) fn release(&self, device: &Device, address: DeviceAddr) -> Result<(), PlatformError> {
        let mut allocations = self.allocations.write().unwrap_or_else(PoisonError::into_inner);
        let Some(allocation) = allocations.remove(&address.0) else {
            return Err(PlatformError::BadRange { addr: address.0, bytes: 0 });
        };
        // SAFETY: it was in the map, so it is CANN's and was not freed; that nothing uses it is the caller's promise.
        unsafe { device.free(allocation.start) }.map_err(|error| {
            PlatformError::Launch(format!(
                "cannot free {} bytes at {:#x}: {error}",
                allocation.bytes, address.0
            ))
        })
    }

    pub(crate) fn copy_in(&self, device: &Device, dst: DeviceAddr, src: &[u8]) -> Result<(), OnboardError> {
        let allocations = self.allocations.read().unwrap_or_else(PoisonError::into_inner);
        if !covers(&allocations, dst, src.len())? {
            return Ok(());
        }
        // SAFETY: inside an allocation, which the lock keeps.
        unsafe { device.copy_in(dst.0, src) }
    }

    pub(crate) fn copy_out(
        &self,
        device: &Device,
        dst: &mut [u8],
        src: DeviceAddr,
    ) -> Result<(), OnboardError> {
        let allocations = self.allocations.read().unwrap_or_else(PoisonError::into_inner);
        if !covers(&allocations, src, dst.len())? {
            return Ok(());
        }
        // SAFETY: inside an allocation, which the lock keeps.
        unsafe { device.copy_out(dst, src.0) }
    }

    /// Gives everything back, since the device is going.
    pub(crate) fn release_all(&self, device: &Device) {
        let mut allocations = self.allocations.write().unwrap_or_else(PoisonError::into_inner);
        while let Some((_, allocation)) = allocations.pop_last() {
            // A refusal has no reader any more, and the device's reset frees all.
            // SAFETY: as in `release`.
            let _ = unsafe { device.free(allocation.start) };
        }
    }
}

/// Whether there is anything to copy; an error if no allocation covers it.
fn covers(
    allocations: &BTreeMap<u64, Allocation>,
    address: DeviceAddr,
    bytes: usize,
) -> Result<bool, PlatformError> {
    let is_inside = allocations.range(..=address.0).next_back().is_some_and(|(start, allocation)| {
        let offset = usize::try_from(address.0 - start).unwrap_or(usize::MAX);
        offset < allocation.bytes && bytes <= allocation.bytes - offset
    });
    if !is_inside {
        return Err(PlatformError::BadRange { addr: address.0, bytes });
    }
    Ok(bytes != 0)
}
