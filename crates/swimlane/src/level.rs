//! How much is recorded.

use core::fmt;

use crate::record::RecordKind;

/// How much is recorded; each level records what the one below does, and more.
#[repr(u32)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Nothing; there are no pools.
    #[default]
    Off = 0,
    /// What each AICore did when.
    AicoreTasks = 1,
    /// And when the AICPU dispatched each task and saw it finish.
    AicpuTasks = 2,
    /// And what the schedulers did.
    SchedulerPhases = 3,
    /// And what the orchestrator did, and the named scopes.
    OrchestratorPhases = 4,
}

impl Level {
    /// Whether records of a kind are kept at this level.
    pub const fn includes(self, kind: RecordKind) -> bool {
        let least = match kind {
            RecordKind::AicoreTask => Self::AicoreTasks,
            RecordKind::AicpuTask => Self::AicpuTasks,
            RecordKind::SchedPhase => Self::SchedulerPhases,
            RecordKind::OrchPhase | RecordKind::NamedScope => Self::OrchestratorPhases,
        };
        self as u32 >= least as u32
    }
}

impl TryFrom<i64> for Level {
    type Error = UnknownLevel;

    fn try_from(number: i64) -> Result<Self, UnknownLevel> {
        Ok(match number {
            0 => Self::Off,
            1 => Self::AicoreTasks,
            2 => Self::AicpuTasks,
            3 => Self::SchedulerPhases,
            4 => Self::OrchestratorPhases,
            _ => return Err(UnknownLevel(number)),
        })
    }
}

/// A number that is no level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownLevel(pub i64);

impl fmt::Display for UnknownLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is no swimlane level, which are 0 to 4", self.0)
    }
}

impl core::error::Error for UnknownLevel {}
