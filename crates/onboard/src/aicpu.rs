//! Binaries for the AICPU: loaded from memory, their functions launched by name.

use std::ffi::{CString, c_void};
use std::sync::Arc;

use crate::cann::checked;
use crate::error::OnboardError;
use crate::npu::Chip;
use crate::signatures::{BinaryLoadOption, BinaryLoadOptions, CPU_KERNEL_FROM_DATA, CPU_KERNEL_MODE, Handle};

/// The init kernel of a binary that contains [`crate::DEVICE_LOG_SOURCE`].
pub const INIT_ENTRY: &str = "simpler_aicpu_init";

/// A binary on the device. It stays there until it and all its functions are dropped.
#[derive(Clone)]
pub struct AicpuBinary {
    loaded: Arc<Loaded>,
}

struct Loaded {
    chip: Arc<Chip>,
    handle: Handle,
}

impl AicpuBinary {
    pub(crate) fn load(chip: &Arc<Chip>, image: &[u8]) -> Result<Self, OnboardError> {
        let load = chip.device.cann().launch_functions()?.load;
        chip.device.enter()?;
        let mut option = BinaryLoadOption { kind: CPU_KERNEL_MODE, value: [CPU_KERNEL_FROM_DATA, 0, 0, 0] };
        let options = BinaryLoadOptions { options: &raw mut option, count: 1 };
        let mut handle = Handle::NULL;
        // SAFETY: image, options and handle outlive the call, which copies what it keeps.
        let code = unsafe { load(image.as_ptr().cast(), image.len(), &raw const options, &raw mut handle) };
        checked("aclrtBinaryLoadFromData", code)?;
        Ok(Self { loaded: Arc::new(Loaded { chip: Arc::clone(chip), handle }) })
    }

    /// The function that the binary exports as `name`.
    ///
    /// # Errors
    ///
    /// CANN does not find it.
    pub fn function(&self, name: &str) -> Result<AicpuFunction, OnboardError> {
        let register = self.loaded.chip.device.cann().launch_functions()?.register;
        let c_name = CString::new(name).map_err(|_| OnboardError::Name(name.to_owned()))?;
        self.loaded.chip.device.enter()?;
        let mut handle = Handle::NULL;
        // SAFETY: the binary is loaded; name and handle outlive the call, which copies what it keeps.
        let code = unsafe { register(self.loaded.handle, c_name.as_ptr(), c_name.as_ptr(), &raw mut handle) };
        checked("aclrtRegisterCpuFunc", code)?;
        Ok(AicpuFunction { binary: Arc::clone(&self.loaded), handle })
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        let Ok(launch) = self.chip.device.cann().launch_functions() else { return };
        // A refusal has no reader any more, and the device's reset frees all.
        let _ = self.chip.device.enter();
        // SAFETY: loaded in `load`; no function of it is left, since each holds this value.
        let _ = unsafe { (launch.unload)(self.handle) };
    }
}

/// A function of a binary.
#[derive(Clone)]
pub struct AicpuFunction {
    binary: Arc<Loaded>,
    handle: Handle,
}

/// A function on the stream. Dropping it waits, too: until then CANN may read the arguments.
#[must_use = "what was started is waited for"]
pub struct AicpuRun {
    function: AicpuFunction,
    is_waited_for: bool,
    /// Where they are until the end: whether CANN copies them at once depends on the release.
    _args: Box<dyn Send>,
}

/// The stream has run dry after a launch, and what the device stored is there to be read. One for each wait.
#[derive(Debug)]
pub struct Synchronised(());

impl AicpuRun {
    pub(crate) fn start<T: Copy + Send + 'static>(
        function: &AicpuFunction,
        blocks: u32,
        args: T,
    ) -> Result<Self, OnboardError> {
        let device = &function.binary.chip.device;
        let launch = device.cann().launch_functions()?.launch;
        device.enter()?;
        let mut args = Box::new(args);
        let address: *mut c_void = (&raw mut *args).cast();
        let (nothing, bytes) = (std::ptr::null_mut(), size_of::<T>());
        // SAFETY: function and stream live; the arguments lie in a box that this value keeps until the stream has
        // run dry; null stands for no configuration and no placeholders.
        let code =
            unsafe { launch(function.handle, blocks, device.stream(), nothing, address, bytes, nothing, 0) };
        checked("aclrtLaunchKernelWithHostArgs", code)?;
        Ok(Self { function: function.clone(), is_waited_for: false, _args: args })
    }

    /// Waits until all that was put on the stream has run.
    ///
    /// # Errors
    ///
    /// CANN's, which is also how a fault on the device is told.
    pub fn wait(mut self) -> Result<Synchronised, OnboardError> {
        self.is_waited_for = true;
        self.function.binary.chip.device.synchronise()?;
        Ok(Synchronised(()))
    }
}

impl Drop for AicpuRun {
    fn drop(&mut self) {
        if !self.is_waited_for {
            // Nobody asked how it ended.
            let _ = self.function.binary.chip.device.synchronise();
        }
    }
}
