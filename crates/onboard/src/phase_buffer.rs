//! The buffer into which the AICPU stamps: reset before a run, read back after it.
//!
//! What lies where in it is not this module's business: it is told how many bytes the head (header and phases) and
//! the tail (task slots) have, and what a reset one looks like. It knows one word, the first: the device sets it
//! if anything was stored in the tail, and only then is the tail worth a transfer.
//!
//! Whether a run is measured is asked once, before the reset, and then latched in [`PhaseRun`]: no answer that
//! changes meanwhile can read back what was not reset.

use std::sync::Arc;

use simpler_platform::DeviceAddr;

use crate::aicpu::Synchronised;
use crate::error::OnboardError;
use crate::npu::{Chip, OnboardNpu};

/// The first word of the head: not 0 if the tail was used.
const TAIL_USED_BYTES: usize = size_of::<u64>();

/// The two parts of a phase buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhaseSizes {
    /// Header and phases: always read back.
    pub head: usize,
    /// What lies behind: read back if it was used. May be 0.
    pub tail: usize,
}

/// A phase buffer in device memory, for one run at a time. As all device memory it stays until the run that stamps
/// into it was waited for.
pub struct PhaseBuffer {
    chip: Arc<Chip>,
    address: DeviceAddr,
    sizes: PhaseSizes,
    image: Box<[u8]>,
    /// What the last run gave.
    host: Box<[u8]>,
}

impl PhaseBuffer {
    /// Allocates the buffer. `image` is what it looks like before a run, both parts of it.
    ///
    /// # Errors
    ///
    /// The image has not the size of both parts, the head does not hold its first word, or the device has no
    /// memory.
    pub fn new(npu: &OnboardNpu, sizes: PhaseSizes, image: Box<[u8]>) -> Result<Self, OnboardError> {
        let PhaseSizes { head, tail } = sizes;
        if head < TAIL_USED_BYTES || head.checked_add(tail) != Some(image.len()) {
            let bytes = image.len();
            return Err(OnboardError::PhaseBuffer(format!(
                "a head of {head} bytes and a tail of {tail} do not make an image of {bytes}"
            )));
        }
        let chip = Arc::clone(npu.chip());
        let address = chip.allocate(image.len())?;
        let host = image.clone();
        Ok(Self { chip, address, sizes, image, host })
    }

    /// What the run's arguments name ([`crate::KernelArgs::device_wall_data_base`]).
    pub fn address(&self) -> DeviceAddr {
        self.address
    }

    /// Begins a run. `is_gated_on` is the one predicate for reset, readback and emission; if it holds, the image is
    /// copied to the device, in one transfer.
    ///
    /// # Errors
    ///
    /// The copy's.
    pub fn start(&mut self, is_gated_on: bool) -> Result<PhaseRun<'_>, OnboardError> {
        if is_gated_on {
            self.chip.copy_in(self.address, &self.image)?;
        }
        Ok(PhaseRun { buffer: self, is_gated_on })
    }
}

impl Drop for PhaseBuffer {
    fn drop(&mut self) {
        // A refusal has no reader any more, and the device's reset frees all.
        let _ = self.chip.release(self.address);
    }
}

/// A run that is measured, or one that was found not to be.
pub struct PhaseRun<'a> {
    buffer: &'a mut PhaseBuffer,
    is_gated_on: bool,
}

impl<'a> PhaseRun<'a> {
    /// As [`PhaseBuffer::address`].
    pub fn address(&self) -> DeviceAddr {
        self.buffer.address
    }

    /// What the device stamped; None if the gate was off when the run began. The stream must have run dry, which
    /// `_synchronised` proves.
    ///
    /// # Errors
    ///
    /// A copy's, with CANN's code: also that of the tail alone.
    pub fn read_back(self, _synchronised: Synchronised) -> Result<Option<PhaseBytes<'a>>, OnboardError> {
        if !self.is_gated_on {
            return Ok(None);
        }
        let PhaseBuffer { chip, address, sizes, image, host } = self.buffer;
        let (head, tail) = host.split_at_mut(sizes.head);
        chip.copy_out(head, *address)?;
        let is_tail_used = head[..TAIL_USED_BYTES].iter().any(|byte| *byte != 0) && sizes.tail != 0;
        if is_tail_used {
            chip.copy_out(tail, DeviceAddr(address.0 + sizes.head as u64))?;
        } else {
            tail.copy_from_slice(&image[sizes.head..]);
        }
        Ok(Some(PhaseBytes { bytes: host, is_tail_used }))
    }
}

/// What came back from the device.
#[derive(Clone, Copy, Debug)]
pub struct PhaseBytes<'a> {
    /// Head and tail. A tail that was not read is as in the image: nothing stamped.
    pub bytes: &'a [u8],
    /// Whether the tail was read.
    pub is_tail_used: bool,
}
