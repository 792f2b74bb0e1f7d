//! The error codes of a run (RUNTIME §2.3) and who may set them.

/// The task window or the argument memory of a ring is exhausted, and its oldest tasks belong to a scope that is open.
pub const SCOPE_DEADLOCK: u32 = 1;
/// So is the heap for OUTPUT tensors.
pub const HEAP_FULL: u32 = 2;
/// There is no room, and the tasks of a scope that has ended make no progress; or a run has more tasks than numbers.
pub const FLOW_CONTROL: u32 = 3;
/// The pool of dependencies is exhausted, as for 1.
pub const DEPENDENCIES_FULL: u32 = 4;
/// An argument that the operation does not allow.
pub const INVALID_ARGUMENTS: u32 = 5;
/// A task whose blocks start together has more of them than the chip has cores or clusters.
pub const SYNC_START_INVALID: u32 = 7;
/// A tensor that the orchestration wants to read or write is not done in [`TENSOR_TIMEOUT`](crate::TENSOR_TIMEOUT).
pub const TENSOR_TIMEOUT: u32 = 8;
/// The orchestration failed the run.
pub const EXPLICIT_FATAL: u32 = 9;
/// Scopes are nested too deeply.
pub const SCOPES_TOO_DEEP: u32 = 10;
/// The map of regions is full.
pub const REGIONS_FULL: u32 = 11;
/// No progress for the length of the timeout; the sub-class says of what kind.
pub const SCHEDULER_TIMEOUT: u32 = 100;
/// A kernel waits for something that cannot come: no such word, no such kind, or a copy that the engine refused.
pub const ASYNC_COMPLETION: u32 = 101;
/// More kernels of one scheduler's cores have left work to others than it can wait for.
pub const ASYNC_WAITS_FULL: u32 = 102;
/// A kernel waits for more than it can say.
pub const ASYNC_REGISTRATION: u32 = 103;

/// The status of a run that was refused before it began.
pub const REFUSED: i32 = -1;

/// What a scheduler timeout is about, in order of precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Stall {
    /// A kernel does not return.
    Running = 1,
    /// Tasks are ready and cores idle, yet nothing starts.
    Ready = 3,
    /// Tasks wait for tasks that never complete.
    Waiting = 4,
    /// The orchestration neither submits nor ends.
    Orchestrator = 5,
    /// None of these.
    Unknown = 99,
}
