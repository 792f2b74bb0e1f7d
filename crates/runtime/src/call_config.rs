//! What one run may choose for itself (RUNTIME §1.5).
//!
//! Of the specification's fields these are known: `aicpu_thread_num`, `enable_chip_swimlane`, `runtime_env` and
//! `output_prefix`. What else it has is refused where it comes in, as a [record](crate::SimplerCallConfig).

use std::path::PathBuf;

use simpler_platform::Profile;
use simpler_swimlane::Level;

use crate::executor::DFX;
use crate::graph::RINGS;
use crate::ring_sizes::RingSizes;
use crate::run::{GraphRuntime, RunError, require_served};

/// Fewest AICPU threads that a run may ask for: an orchestrator and a scheduler.
const AICPU_THREADS_MIN: usize = 2;

/// The choices of a run. The default is all of the platform's threads, and nothing recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallConfig {
    /// How many AICPU threads work on it, 2 to as many as the platform has; None: all of them. Where the graph is built
    /// on the device one of them is the orchestrator.
    pub aicpu_threads: Option<usize>,
    /// What is recorded of its variable phases.
    pub swimlane: Level,
    /// The folder for its artifacts, below which each run has one of its own; and for the process's log, if that has none
    /// (RUNTIME §1.5). Without it records are collected and reconciled only, which nobody but a caller of this crate may
    /// ask for: a [record](crate::SimplerCallConfig) must have it then.
    pub output_prefix: Option<PathBuf>,
    /// How large its rings are. Runs of other sizes than the last one's on the same slot build an arena anew.
    pub rings: [RingSizes; RINGS],
}

impl CallConfig {
    /// Refuses what a platform, or this build, cannot do.
    pub(crate) fn check(&self, profile: &Profile, graph_runtime: GraphRuntime) -> Result<(), RunError> {
        let most = profile.aicpu_logical;
        if let Some(threads) = self.aicpu_threads {
            if !(AICPU_THREADS_MIN..=most).contains(&threads) {
                return Err(RunError::invalid(format!(
                    "{threads} AICPU threads: a run on this platform has {AICPU_THREADS_MIN} to {most}"
                )));
            }
            require_served(profile.clusters, graph_runtime, threads)?;
        }
        if self.swimlane != Level::Off && !DFX {
            return Err(RunError::invalid("this build has no swimlane: it was made without the feature dfx"));
        }
        Ok(())
    }
}
