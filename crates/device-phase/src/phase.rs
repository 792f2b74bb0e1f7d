//! The phases and their names.

/// A fixed phase: it happens at most once per run and thread.
///
/// The discriminant is the slot in the buffer, on the device and on the host: append, never renumber.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// The whole run on the device; the parent of all others.
    RunWall = 0,
    /// Executor init, including the wait for it.
    Preamble = 1,
    /// Loading the orchestration object and looking up its symbols.
    SoLoad = 2,
    /// The executor's run body; contains the three preparations and the two windows.
    GraphBuild = 3,
    /// Teardown, by the thread that finishes last.
    PostOrch = 4,
    /// The orchestrator submits.
    OrchWindow = 5,
    /// A scheduler dispatches.
    SchedWindow = 6,
    /// The orchestration's configuration function and the argument count.
    ConfigValidate = 7,
    /// Attaching the arena and wiring its device pointers.
    ArenaWire = 8,
    /// Resetting shared memory, up to releasing the schedulers.
    SmReset = 9,
}

/// How many phases there are.
pub const PHASES: usize = 10;

/// The order in which spans are emitted.
pub const EMIT_ORDER: [Phase; PHASES] = [
    Phase::RunWall,
    Phase::Preamble,
    Phase::SoLoad,
    Phase::GraphBuild,
    Phase::ConfigValidate,
    Phase::ArenaWire,
    Phase::SmReset,
    Phase::PostOrch,
    Phase::OrchWindow,
    Phase::SchedWindow,
];

const _: () = {
    // Every phase is emitted once, and no discriminant lies outside the buffer.
    let mut seen = 0_u32;
    let mut i = 0;
    while i < PHASES {
        assert!((EMIT_ORDER[i] as usize) < PHASES);
        seen |= 1 << EMIT_ORDER[i] as u32;
        i += 1;
    }
    assert!(seen == (1 << PHASES) - 1);
};

impl Phase {
    /// The last part of the span's name. [`Phase::RunWall`] is the span `device_wall` itself, the others are
    /// its children.
    pub const fn leaf(self) -> &'static str {
        match self {
            Self::RunWall => "device_wall",
            Self::Preamble => "preamble",
            Self::SoLoad => "so_load",
            Self::GraphBuild => "graph_build",
            Self::PostOrch => "post_orch",
            Self::OrchWindow => "orch",
            Self::SchedWindow => "sched",
            Self::ConfigValidate => "config_validate",
            Self::ArenaWire => "arena_wire",
            Self::SmReset => "sm_reset",
        }
    }
}
