//! The records: plain data, pinned to the byte, the same in `simpler/swimlane.h`.
//!
//! All times are readings of the device counter, in cycles. What RUNTIME 6.1 leaves open is chosen here: the
//! widths inside the 32 bytes of the task records, and which detail a scheduler phase of a kind carries.

use core::mem::offset_of;

/// What a record is about, and so which pool it goes to.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RecordKind {
    /// [`AicpuTask`], a pool per core.
    AicpuTask = 0,
    /// [`AicoreTask`], a pool per core.
    AicoreTask = 1,
    /// [`SchedPhase`], a pool per AICPU thread.
    SchedPhase = 2,
    /// [`OrchPhase`], a pool per AICPU thread.
    OrchPhase = 3,
    /// [`NamedScope`], a pool per AICPU thread.
    NamedScope = 4,
}

impl RecordKind {
    /// Every kind, in the order of their numbers.
    pub const ALL: [Self; 5] =
        [Self::AicpuTask, Self::AicoreTask, Self::SchedPhase, Self::OrchPhase, Self::NamedScope];

    /// The kind with a number.
    pub const fn from_number(number: u32) -> Option<Self> {
        if number < Self::ALL.len() as u32 { Some(Self::ALL[number as usize]) } else { None }
    }

    /// The kind as artifacts name it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AicpuTask => "aicpu_tasks",
            Self::AicoreTask => "aicore_tasks",
            Self::SchedPhase => "aicpu_scheduler_phases",
            Self::OrchPhase => "aicpu_orchestrator_phases",
            Self::NamedScope => "named_scopes",
        }
    }

    /// Whether there is a pool per core, not one per AICPU thread.
    pub const fn is_per_core(self) -> bool {
        matches!(self, Self::AicpuTask | Self::AicoreTask)
    }

    /// Bytes of a record.
    pub const fn record_bytes(self) -> usize {
        match self {
            Self::AicpuTask => size_of::<AicpuTask>(),
            Self::AicoreTask => size_of::<AicoreTask>(),
            Self::SchedPhase => size_of::<SchedPhase>(),
            Self::OrchPhase => size_of::<OrchPhase>(),
            Self::NamedScope => size_of::<NamedScope>(),
        }
    }
}

/// A task as the AICPU saw it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AicpuTask {
    /// When it was dispatched, in cycles.
    pub dispatch: u64,
    /// When its FIN was seen, in cycles.
    pub finish: u64,
    /// The lower 32 bits of the DATA_MAIN_BASE value that dispatched it: with the core, what joins it to its
    /// [`AicoreTask`].
    pub reg_task_id: u32,
    /// 0.
    pub reserved: [u32; 3],
}

/// A task as its core saw it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AicoreTask {
    /// When the kernel was entered, in cycles.
    pub start: u64,
    /// When it returned, in cycles.
    pub end: u64,
    /// The task that the orchestrator submitted.
    pub token: u64,
    /// As in [`AicpuTask`].
    pub reg_task_id: u32,
    /// From the dispatch being read to the kernel being entered, in cycles.
    pub receive_to_start: u32,
}

/// What a scheduler did for a while.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchedPhase {
    /// Cycles.
    pub start: u64,
    /// Cycles.
    pub end: u64,
    /// Turns of the scheduler's loop before this one.
    pub loop_iter: u32,
    /// A number of [`SchedKind`].
    pub kind: u32,
    /// Tasks that the phase dealt with.
    pub tasks: u32,
    /// By kind, see [`SchedKind::detail`]: hits and misses of ready queues, or the lower and upper half of a
    /// task id.
    pub detail: [u32; 2],
    /// Lengths of the shared ready queues at the start.
    pub depths_at_start: [i16; 3],
    /// And at the end.
    pub depths_at_end: [i16; 3],
    /// 0.
    pub reserved: [u32; 4],
}

/// What the orchestrator did for a while.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OrchPhase {
    /// Cycles.
    pub start: u64,
    /// Cycles.
    pub end: u64,
    /// The task that was submitted.
    pub task_id: u64,
    /// Submits of the run before this one.
    pub submit_idx: u32,
    /// 0.
    pub reserved: u32,
}

/// A named scope: see [`phase_scope!`](crate::phase_scope).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NamedScope {
    /// Cycles.
    pub start: u64,
    /// Cycles.
    pub end: u64,
    /// [`fnv1a`](crate::fnv1a) of the name.
    pub name_hash: u64,
    /// Scopes of the thread that it lies in.
    pub depth: u32,
    /// 0.
    pub reserved: u32,
}

macro_rules! pinned {
    ($type:ident, $bytes:literal, $($field:ident @ $offset:literal),*) => {
        const _: () = assert!(size_of::<$type>() == $bytes && align_of::<$type>() == 8);
        $(const _: () = assert!(offset_of!($type, $field) == $offset);)*
    };
}
pinned!(AicpuTask, 32, dispatch @ 0, finish @ 8, reg_task_id @ 16, reserved @ 20);
pinned!(AicoreTask, 32, start @ 0, end @ 8, token @ 16, reg_task_id @ 24, receive_to_start @ 28);
pinned!(SchedPhase, 64, start @ 0, end @ 8, loop_iter @ 16, kind @ 20, tasks @ 24, detail @ 28,
    depths_at_start @ 36, depths_at_end @ 42, reserved @ 48);
pinned!(OrchPhase, 32, start @ 0, end @ 8, task_id @ 16, submit_idx @ 24, reserved @ 28);
pinned!(NamedScope, 32, start @ 0, end @ 8, name_hash @ 16, depth @ 24, reserved @ 28);

/// What a scheduler may be doing. The numbers are those of RUNTIME 6.1; 3 is retired.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchedKind {
    /// Completing tasks whose FIN was seen.
    Complete = 0,
    /// Giving ready tasks to cores.
    Dispatch = 1,
    /// Releasing what completed tasks held.
    Release = 2,
    /// Completing tasks without a kernel.
    Dummy = 4,
    /// Dispatching ahead of a core's being idle.
    EarlyDispatch = 5,
    /// Resolving the tasks that waited for a completed one.
    Resolve = 6,
    /// One task without a kernel.
    DummyTask = 7,
    /// Draining the cores.
    Drain = 8,
    /// Preparing a drain.
    DrainPrepare = 9,
    /// Publishing a drain.
    DrainPublish = 10,
    /// Looking at asynchronous completions.
    AsyncPoll = 11,
    /// One task that its predicate skipped.
    PredicatedSkip = 12,
    /// Preparing a graph that was built by the host.
    GraphPrepare = 13,
}

/// What [`SchedPhase::detail`] holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchedDetail {
    /// Nothing.
    None,
    /// How often a ready queue had a task, and how often it had none.
    Pops,
    /// The task that the phase was about.
    Task,
}

impl SchedKind {
    /// Every kind.
    pub const ALL: [Self; 13] = [
        Self::Complete,
        Self::Dispatch,
        Self::Release,
        Self::Dummy,
        Self::EarlyDispatch,
        Self::Resolve,
        Self::DummyTask,
        Self::Drain,
        Self::DrainPrepare,
        Self::DrainPublish,
        Self::AsyncPoll,
        Self::PredicatedSkip,
        Self::GraphPrepare,
    ];

    /// The kind with a number; None for 3, which is retired, and beyond 13.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u32 == number)
    }

    /// The kind as artifacts name it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Dispatch => "dispatch",
            Self::Release => "release",
            Self::Dummy => "dummy",
            Self::EarlyDispatch => "early_dispatch",
            Self::Resolve => "resolve",
            Self::DummyTask => "dummy_task",
            Self::Drain => "drain",
            Self::DrainPrepare => "drain_prepare",
            Self::DrainPublish => "drain_publish",
            Self::AsyncPoll => "async_poll",
            Self::PredicatedSkip => "predicated_skip",
            Self::GraphPrepare => "graph_prepare",
        }
    }

    /// What a phase of this kind holds as its detail.
    pub const fn detail(self) -> SchedDetail {
        match self {
            Self::Dispatch | Self::EarlyDispatch => SchedDetail::Pops,
            Self::DummyTask | Self::PredicatedSkip => SchedDetail::Task,
            _ => SchedDetail::None,
        }
    }
}

impl SchedPhase {
    /// The detail of a phase that dispatched.
    pub const fn pops(pop_hit: u32, pop_miss: u32) -> [u32; 2] {
        [pop_hit, pop_miss]
    }

    /// The detail of a phase that was about one task.
    pub const fn task(task_id: u64) -> [u32; 2] {
        [task_id as u32, (task_id >> 32) as u32]
    }

    /// What [`SchedPhase::task`] put together.
    pub const fn task_id(&self) -> u64 {
        self.detail[0] as u64 | (self.detail[1] as u64) << 32
    }
}

mod sealed {
    pub trait Sealed {}
}

/// A record that has pools. Any bytes are a legal record.
pub trait Record: Copy + Default + Send + 'static + sealed::Sealed {
    /// Its kind.
    const KIND: RecordKind;
}

/// A record with a pool per core.
pub trait CoreRecord: Record {}

/// A record with a pool per AICPU thread.
pub trait ThreadRecord: Record {}

macro_rules! records {
    ($($type:ident: $per:ident, per core $per_core:literal;)*) => {
        $(impl sealed::Sealed for $type {}
        impl Record for $type {
            const KIND: RecordKind = RecordKind::$type;
        }
        impl $per for $type {}
        const _: () = assert!(RecordKind::$type.is_per_core() == $per_core);)*
    };
}
records!(
    AicpuTask: CoreRecord, per core true;
    AicoreTask: CoreRecord, per core true;
    SchedPhase: ThreadRecord, per core false;
    OrchPhase: ThreadRecord, per core false;
    NamedScope: ThreadRecord, per core false;
);
