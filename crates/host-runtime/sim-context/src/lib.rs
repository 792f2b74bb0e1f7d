//! `libsimpler_sim_context.so`: which simulated devices of this process are taken (`sim_context.h`).
//!
//! A word a device holds the process that has it. So nothing need be done at a fork: a child finds its parent's id there,
//! which it takes for free.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};

use simpler_host_log::log_debug;

simpler_host_log::export_binder!();

/// Four times the chips of the largest host.
const DEVICES: usize = 64;

const CLAIMED: c_int = 0;
const IN_USE: c_int = 1;
const OUT_OF_RANGE: c_int = 2;

/// Whose each device is; 0: nobody's.
///
/// FORK: a child's copy has the parent's claims, which are not the child's process and so count as free.
static HOLDERS: [AtomicU32; DEVICES] = [const { AtomicU32::new(0) }; DEVICES];

fn holder(device_id: i32) -> Option<&'static AtomicU32> {
    HOLDERS.get(usize::try_from(device_id).ok()?)
}

/// Takes a device for a chip.
#[unsafe(no_mangle)]
pub extern "C" fn simpler_sim_context_claim(device_id: i32) -> c_int {
    let Some(holder) = holder(device_id) else { return OUT_OF_RANGE };
    let process = std::process::id();
    // ORDERING: Acquire pairs with the Release of whoever gave it back: its chip is gone.
    if holder.swap(process, Ordering::Acquire) == process {
        return IN_USE;
    }
    log_debug!("simulated device {device_id} is taken");
    CLAIMED
}

/// Gives a device back.
#[unsafe(no_mangle)]
pub extern "C" fn simpler_sim_context_release(device_id: i32) {
    let process = std::process::id();
    let Some(holder) = holder(device_id) else { return };
    // ORDERING: Release pairs with the Acquire of the next claim.
    if holder.compare_exchange(process, 0, Ordering::Release, Ordering::Relaxed).is_ok() {
        log_debug!("simulated device {device_id} is free");
    }
}
