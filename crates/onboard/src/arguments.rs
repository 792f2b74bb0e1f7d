//! What the host hands to the chip with a launch, byte for byte.
//!
//! `include/simpler/aicpu_args.h` is the same for C. Host and device are built from one repository at one time, so
//! there is no version in them; the asserts here and the test of the header hold the two together.

/// The arguments of the init kernel, which runs once in the life of a device.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InitArgs {
    /// A value of the ladder; the device latches it. It is what tells TIMING from WARN there: CANN's own level,
    /// which is WARN for both, cannot.
    pub log_level: i32,
    /// The number under which the host opened the device.
    pub device_id: i32,
}

/// The arguments of a run.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelArgs {
    /// The device address of the phase buffer; 0 and nothing is stamped. It is there whether or not the host reads
    /// the buffer back: stamping is never gated.
    pub device_wall_data_base: u64,
    /// Launched threads: the rows of the phase buffer.
    pub aicpu_launched: u32,
    /// Threads that survive the affinity gate.
    pub aicpu_logical: u32,
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<InitArgs>() == 8 && align_of::<InitArgs>() == 4);
    assert!(offset_of!(InitArgs, log_level) == 0);
    assert!(offset_of!(InitArgs, device_id) == 4);
    assert!(size_of::<KernelArgs>() == 16 && align_of::<KernelArgs>() == 8);
    assert!(offset_of!(KernelArgs, device_wall_data_base) == 0);
    assert!(offset_of!(KernelArgs, aicpu_launched) == 8);
    assert!(offset_of!(KernelArgs, aicpu_logical) == 12);
};
