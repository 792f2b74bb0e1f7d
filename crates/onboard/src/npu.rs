//! The chip as the runtime sees it.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use simpler_log_abi::Threshold;
use simpler_platform::{AicpuProgram, DeviceAddr, Launched, Platform, PlatformError, Profile, Teardown};

use crate::aicpu::{self, AicpuBinary, AicpuFunction, AicpuRun};
use crate::arguments::{InitArgs, KernelArgs};
use crate::cann::Cann;
use crate::device::{CannLogLevel, Device};
use crate::error::OnboardError;
use crate::memory::Memory;

/// The a2a3 chip.
pub const fn a2a3() -> Profile {
    Profile {
        name: "a2a3",
        arch: "a2a3",
        aicpu_logical: 4,
        aicpu_launched: 6,
        counter_hz: 50_000_000,
        clusters: 24,
        teardown: Teardown::InvalidateThenReset,
    }
}

/// The a5 chip.
pub const fn a5() -> Profile {
    Profile {
        name: "a5",
        arch: "a5",
        aicpu_logical: 5,
        aicpu_launched: 14,
        counter_hz: 1_000_000_000,
        clusters: 36,
        teardown: Teardown::Reset,
    }
}

/// Which device to open, and how loud it is to be.
#[derive(Clone, Debug)]
pub struct OnboardOptions {
    /// What chip it is: [`a2a3`] or [`a5`].
    pub profile: Profile,
    /// Its number.
    pub device: i32,
    /// The host's threshold at this moment. The device keeps it.
    pub threshold: Threshold,
}

/// An open chip. The device is closed when the last value that was made of it is gone.
// FORK: a child may neither use nor drop a chip that it inherited.
pub struct OnboardNpu {
    chip: Arc<Chip>,
}

/// What the values of a chip share.
pub(crate) struct Chip {
    profile: Profile,
    threshold: Threshold,
    memory: Memory,
    pub(crate) device: Device,
    /// Whether the init kernel has run.
    is_initialised: Mutex<bool>,
}

impl Chip {
    pub(crate) fn allocate(&self, bytes: usize) -> Result<DeviceAddr, PlatformError> {
        self.memory.allocate(&self.device, bytes)
    }

    pub(crate) fn release(&self, address: DeviceAddr) -> Result<(), PlatformError> {
        self.memory.release(&self.device, address)
    }

    pub(crate) fn copy_in(&self, dst: DeviceAddr, src: &[u8]) -> Result<(), OnboardError> {
        self.memory.copy_in(&self.device, dst, src)
    }

    pub(crate) fn copy_out(&self, dst: &mut [u8], src: DeviceAddr) -> Result<(), OnboardError> {
        self.memory.copy_out(&self.device, dst, src)
    }
}

impl Drop for Chip {
    fn drop(&mut self) {
        self.memory.release_all(&self.device);
    }
}

impl fmt::Debug for OnboardNpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (profile, device) = (self.chip.profile.name, self.chip.device.id());
        f.debug_struct("OnboardNpu").field("profile", &profile).field("device", &device).finish()
    }
}

impl OnboardNpu {
    /// Opens a device: CANN's log level first, unless the environment has chosen it, then the device, then its
    /// stream.
    ///
    /// # Errors
    ///
    /// A negative device number, or whatever CANN refuses; what was opened until then is closed in reverse. A
    /// refused log level is none: see [`OnboardNpu::log_level`].
    pub fn open(cann: Arc<Cann>, options: OnboardOptions) -> Result<Self, OnboardError> {
        let device = Device::open(cann, options.device, options.threshold)?;
        let chip = Chip {
            profile: options.profile,
            threshold: options.threshold,
            memory: Memory::default(),
            device,
            is_initialised: Mutex::new(false),
        };
        Ok(Self { chip: Arc::new(chip) })
    }

    /// How CANN came to the level of its log.
    pub fn log_level(&self) -> CannLogLevel {
        self.chip.device.log_level
    }

    /// The threshold that the device latches, whatever the host's has become since.
    pub fn latched_threshold(&self) -> Threshold {
        self.chip.threshold
    }

    pub(crate) const fn chip(&self) -> &Arc<Chip> {
        &self.chip
    }

    /// Loads the binary whose functions the AICPU is to run: a shared object compiled for it.
    ///
    /// # Errors
    ///
    /// CANN refuses it, or is too old to load one from memory.
    pub fn load_aicpu(&self, image: &[u8]) -> Result<AicpuBinary, OnboardError> {
        AicpuBinary::load(&self.chip, image)
    }

    /// Runs the binary's init kernel ([`crate::INIT_ENTRY`]) and waits for it. It hands over the threshold that the
    /// device was opened with, and the device latches it.
    ///
    /// # Errors
    ///
    /// It has run before on this device, or CANN refuses; after a refusal it may be tried again.
    pub fn init_aicpu(&self, binary: &AicpuBinary) -> Result<(), OnboardError> {
        // A bool is whole whoever panicked.
        let mut is_initialised = self.chip.is_initialised.lock().unwrap_or_else(PoisonError::into_inner);
        if *is_initialised {
            return Err(OnboardError::AlreadyInitialised);
        }
        let init = binary.function(aicpu::INIT_ENTRY)?;
        let args = InitArgs { log_level: self.chip.threshold.get(), device_id: self.chip.device.id() };
        AicpuRun::start(&init, 1, args)?.wait()?;
        *is_initialised = true;
        Ok(())
    }

    /// The arguments of a run whose phase buffer lies at `phases`.
    ///
    /// # Panics
    ///
    /// Never with the profiles of this crate: a profile has fewer than 2^32 threads.
    pub fn kernel_args(&self, phases: DeviceAddr) -> KernelArgs {
        let narrow = |threads: usize| u32::try_from(threads).expect("fewer than 2^32 AICPU threads");
        KernelArgs {
            device_wall_data_base: phases.0,
            aicpu_launched: narrow(self.chip.profile.aicpu_launched),
            aicpu_logical: narrow(self.chip.profile.aicpu_logical),
        }
    }

    /// Puts a function on the stream, once for every launched AICPU thread.
    ///
    /// # Errors
    ///
    /// CANN refuses it.
    pub fn start(&self, function: &AicpuFunction, args: KernelArgs) -> Result<AicpuRun, OnboardError> {
        AicpuRun::start(function, args.aicpu_launched, args)
    }
}

impl Platform for OnboardNpu {
    fn profile(&self) -> &Profile {
        &self.chip.profile
    }

    fn allocate(&self, bytes: usize) -> Result<DeviceAddr, PlatformError> {
        self.chip.allocate(bytes)
    }

    fn release(&self, addr: DeviceAddr) -> Result<(), PlatformError> {
        self.chip.release(addr)
    }

    fn copy_to_device(&self, dst: DeviceAddr, src: &[u8]) -> Result<(), PlatformError> {
        self.chip
            .copy_in(dst, src)
            .map_err(|error| refused_copy(error, || format!("{} bytes to {:#x}", src.len(), dst.0)))
    }

    fn copy_to_host(&self, dst: &mut [u8], src: DeviceAddr) -> Result<(), PlatformError> {
        let bytes = dst.len();
        self.chip
            .copy_out(dst, src)
            .map_err(|error| refused_copy(error, || format!("{bytes} bytes from {:#x}", src.0)))
    }

    fn load_kernel(&self, _image: &[u8], name: &str) -> Result<u64, PlatformError> {
        let why = "loading AICore kernels on silicon is not implemented: they are made by CANN's own compiler, \
                   and no build of one was at hand";
        Err(PlatformError::Load { what: name.to_owned(), why: why.to_owned() })
    }

    fn counter(&self) -> Option<u64> {
        // No host call that reads the AICPU's counter is known; an anchor would take a hand-shake with a thread there.
        None
    }

    fn launch(&self, _program: Arc<dyn AicpuProgram>) -> Result<Box<dyn Launched>, PlatformError> {
        let why = "launching AICPU programs on silicon is not implemented: a program of this process cannot run \
                   there, only a binary compiled for the AICPU (OnboardNpu::load_aicpu)";
        Err(PlatformError::Launch(why.to_owned()))
    }
}

/// A copy whose range is wrong, or that CANN refuses.
fn refused_copy(error: OnboardError, what: impl Fn() -> String) -> PlatformError {
    match error {
        OnboardError::Memory(error) => error,
        error => PlatformError::Copy { what: what(), why: error.to_string() },
    }
}
