//! Device phase timing: fixed phases and task slots, stamped on the device, reduced on the host.
//!
//! A device thread cannot log: it would disturb what it measures, and AICores have no log at all. So the host
//! allocates one small buffer in device memory ([`PhaseBufferLayout`]), resets it before each run, and every
//! AICPU thread stores the counter readings of its phases into slots of its own ([`PhaseStamper`]): two plain
//! stores a phase, no synchronisation. After the run has ended, which is what makes the stores visible, the
//! host reads the buffer back, reduces each phase over the threads ([`reduce`]) and re-emits the non-zero ones
//! as `clk=dev` spans ([`Phases::spans`]).
//!
//! Behind the phases lie sixteen slots a thread for tasks that an orchestration has tagged ([`TaskSlot`]): the
//! earliest dispatch and the latest finish of each. They are read back only if a run has used them.
//!
//! ```
//! use simpler_device_phase::{Phase, PhaseBufferLayout, PhaseStamper, reduce};
//!
//! let layout = PhaseBufferLayout::new(2);
//! let mut device = vec![0_u64; layout.bytes() / 8]; // stands for device memory
//! let mut image = vec![0_u8; layout.bytes()];
//! layout.write_reset_image(&mut image)?;
//! for (word, bytes) in device.iter_mut().zip(image.chunks_exact(8)) {
//!     *word = u64::from_ne_bytes(bytes.try_into().unwrap());
//! }
//!
//! // SAFETY: `device` has the layout's size and alignment and outlives the stamper.
//! let stamper = unsafe { PhaseStamper::new(device.as_mut_ptr().cast(), 2, 0) };
//! stamper.stamp(Phase::OrchWindow, 100, 350);
//!
//! let back: Vec<u8> = device.iter().flat_map(|word| word.to_ne_bytes()).collect();
//! let span = reduce(&back, 2).spans(50_000_000).next().unwrap();
//! assert_eq!((span.phase.leaf(), span.ts_ns, span.dur_ns), ("orch", 0, 5_000));
//! # Ok::<(), simpler_device_phase::ShortBuffer>(())
//! ```
//!
//! No std, no allocation, no dependency: the device side is what would run on silicon, and the header
//! `include/simpler/device_phase.h` has the layout and the stamps for device code in C and C++. Which thread stamps
//! which phase is the executor's business, emitting the spans is the runtime's.
#![no_std]

#[cfg(not(target_pointer_width = "64"))]
compile_error!("device addresses are 64 bits wide");

mod gate;
mod layout;
mod phase;
mod reduce;
mod slot;
mod stamp;

pub use gate::{ENABLE_ENV, emission_enabled};
pub use layout::{HEADER_BYTES, PhaseBufferLayout, RECORD_BYTES, START_UNSET, ShortBuffer};
pub use phase::{EMIT_ORDER, PHASES, Phase};
pub use reduce::{DevicePhaseSpan, Phases, TaskSlotSpan, Window, cycles_to_ns, reduce, tail_used};
pub use slot::{NoSuchSlot, TASK_SLOTS, TaskAttrs, TaskSlot};
pub use stamp::{PhaseScope, PhaseStamper};
