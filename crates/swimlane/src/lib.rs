//! The variable-phase track: phases that a run enters any number of times, recorded in buffers that go round.
//!
//! The fixed phases have a slot each (`simpler-device-phase`). What happens once per task, per submit or per turn
//! of a scheduler's loop has no such bound, so each core and each AICPU thread has a pool of buffers: the device
//! fills one, hands it over when it is full and takes a fresh one, while the host copies the records out and
//! gives the buffer back. When there is no buffer the device waits for the host instead of losing records, no
//! longer than a deadline; what is lost after all is counted where it is lost, and at the end the host reconciles
//! collected + dropped with the total, pool by pool.
//!
//! ```
//! use simpler_swimlane::{BACKSTOP, Capacities, Collector, Level, OrchPhase, SwimlaneLayout, ThreadTrack};
//!
//! let layout = SwimlaneLayout::new(Level::OrchestratorPhases, 2, 3, Capacities::uniform(2, 4, 8));
//! let mut device = vec![[0_u64; 8]; layout.bytes() / 64 + 1]; // stands for device memory
//! let base = device.as_mut_ptr().cast::<u8>();
//! let base = base.wrapping_add(base.align_offset(64));
//!
//! // SAFETY: the memory has the layout's size and alignment, and only collector and writers access it.
//! let collector = unsafe { Collector::start(base, layout)? };
//! let gate = collector.gate(1, BACKSTOP);
//! // SAFETY: as above, and no one else is thread 1.
//! let track = unsafe { ThreadTrack::new(base, layout, 1, &gate) };
//! // SAFETY: the only writer of this pool.
//! let writer = unsafe { track.thread_writer::<OrchPhase>() }.unwrap();
//! for submit_idx in 0..9 {
//!     writer.append(OrchPhase { start: 10, end: 20, submit_idx, ..OrchPhase::default() });
//! }
//!
//! // Once the device's threads have ended:
//! let collected = collector.finish();
//! assert_eq!(collected.reconciliation.to_string(), "swimlane: 9 collected + 0 dropped = 9 recorded");
//! assert_eq!(collected.records.orch_phases[1][8].submit_idx, 8);
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! How buffers go round is in `rotation`, where what lies in `layout`, the records in `record` and, for C, in
//! `simpler/swimlane.h`. Named scopes (`scope`, [`phase_scope!`]) add a kind of phase with one line and no list
//! of kinds; [`PhaseNames`] finds their names in the objects. [`write_artifact`] writes what was collected.
//!
//! The device's side is `core` only: no allocation, lock or thread-local, and no dependency. How a thread waits is
//! its caller's business, a [`Gate`]. The host's side is behind the feature `host`, which is on by default. What
//! is recorded when is the executor's business, where the artifact goes the worker's.
#![no_std]

#[cfg(not(target_pointer_width = "64"))]
compile_error!("device addresses are 64 bits wide");

#[cfg(feature = "host")]
extern crate std;

#[cfg(feature = "host")]
mod artifact;
#[cfg(feature = "host")]
mod collector;
#[cfg(feature = "host")]
mod drain;
mod layout;
mod level;
#[cfg(feature = "host")]
mod names;
mod record;
mod rotation;
mod scope;
mod sync;
mod writer;

#[cfg(feature = "host")]
pub use artifact::{
    ARTIFACT_FILE, ClockAnchor, HostOrchestration, HostSubmit, HostUpload, Metadata, write_artifact,
};
#[cfg(feature = "host")]
pub use collector::{BACKSTOP, Collector, CollectorGate};
#[cfg(feature = "host")]
pub use drain::{Collected, Drain, Mismatch, Reconciliation, Records, Totals};
pub use layout::{
    AICORE_TASKS_PER_BUFFER, AICPU_TASKS_PER_BUFFER, ALIGN_BYTES, Capacities, NAMED_SCOPES_PER_BUFFER,
    ORCH_PHASES_PER_BUFFER, READY_PLACES, SCHED_PHASES_PER_BUFFER, SwimlaneLayout,
};
pub use level::{Level, UnknownLevel};
#[cfg(feature = "host")]
pub use names::{NamesError, PhaseLabel, PhaseNames};
pub use record::{
    AicoreTask, AicpuTask, CoreRecord, NamedScope, OrchPhase, Record, RecordKind, SchedDetail, SchedKind,
    SchedPhase, ThreadRecord,
};
pub use rotation::{FREE_PLACES, Gate};
pub use scope::{NAME_BYTES_MAX, PhaseScope, SECTION, ScopeSink, SimplerPhaseRecorder, fnv1a, section_entry};
pub use writer::{ThreadTrack, Writer};

/// The text of `simpler/swimlane.h`, for whoever compiles sources that include it.
pub const SWIMLANE_HEADER: &str = include_str!("../include/simpler/swimlane.h");
