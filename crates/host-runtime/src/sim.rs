//! The devices of the simulated architectures.
//!
//! A simulated chip is threads and memory of this process, so nothing keeps two contexts from having a chip each that both
//! call device 0. `libsimpler_sim_context.so`, which all runtime objects of a process share, does
//! (`include/simpler/sim_context.h` of `sim-context`): it is found by name among what is globally visible, and an
//! object that does not find it has no devices.

use std::ffi::{CStr, c_int};

use simpler_runtime::RunError;
use simpler_sim_npu::{Profile, SimNpu, SimOptions};

use crate::context::{Architecture, Device, DeviceRequest, refused};

/// The simulated a2a3.
pub const A2A3SIM: Architecture =
    Architecture { name: "a2a3sim", attach: |request| attach(Profile::a2a3sim(), request) };

/// The simulated a5.
pub const A5SIM: Architecture =
    Architecture { name: "a5sim", attach: |request| attach(Profile::a5sim(), request) };

/// Device ids are below this; the header's `SIMPLER_SIM_DEVICES`.
pub const SIM_DEVICES: i32 = 64;
/// `simpler_sim_context_claim`: the device is the caller's.
pub const CLAIMED: c_int = 0;
/// `simpler_sim_context_claim`: a chip of this process has the device.
pub const IN_USE: c_int = 1;
/// `simpler_sim_context_claim`: there is no such device.
pub const OUT_OF_RANGE: c_int = 2;

const CLAIM: &CStr = c"simpler_sim_context_claim";
const RELEASE: &CStr = c"simpler_sim_context_release";

type ClaimFn = extern "C" fn(device_id: i32) -> c_int;
type ReleaseFn = extern "C" fn(device_id: i32);

/// A device that is ours; given back when it is dropped.
struct Claim {
    device_id: i32,
    release: ReleaseFn,
}

impl Drop for Claim {
    fn drop(&mut self) {
        (self.release)(self.device_id);
    }
}

impl Claim {
    fn take(device_id: i32) -> Result<Self, RunError> {
        let (Some(claim), Some(release)) = (global(CLAIM), global(RELEASE)) else {
            return Err(refused(
                "the sim context library is not loaded: a simulated chip needs libsimpler_sim_context.so, opened \
                 before with RTLD_GLOBAL",
            ));
        };
        // SAFETY: sim_context.h gives the symbol of this name this type.
        let claim = unsafe { std::mem::transmute::<*const (), ClaimFn>(claim) };
        // SAFETY: as above.
        let release = unsafe { std::mem::transmute::<*const (), ReleaseFn>(release) };
        match claim(device_id) {
            CLAIMED => Ok(Self { device_id, release }),
            IN_USE => Err(refused(format!(
                "simulated device {device_id} is in use: another context of this process has it"
            ))),
            OUT_OF_RANGE => Err(refused(format!(
                "there is no simulated device {device_id}: the last one is {}",
                SIM_DEVICES - 1
            ))),
            other => Err(refused(format!("the sim context refuses device {device_id} with {other}"))),
        }
    }
}

/// The address of a globally visible symbol.
fn global(name: &CStr) -> Option<*const ()> {
    // SAFETY: the name is a C string; the address is only taken.
    let symbol = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!symbol.is_null()).then_some(symbol.cast_const().cast())
}

fn attach(profile: Profile, request: &DeviceRequest<'_>) -> Result<Device, RunError> {
    for (what, object) in
        [("AICPU", request.aicpu), ("AICore", request.aicore), ("dispatcher", request.dispatcher)]
    {
        if !object.is_empty() {
            let bytes = object.len();
            return Err(refused(format!(
                "a simulated chip has its own objects: the {what} object ({bytes} bytes) must be left out"
            )));
        }
    }
    let claim = Claim::take(request.device_id)?;
    let platform = SimNpu::new(profile, SimOptions::default()).map_err(|error| refused(error.to_string()))?;
    Ok(Device { platform, claim: Box::new(claim) })
}
