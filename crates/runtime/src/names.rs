//! The emitted vocabulary: every span name of a run, in one table per root word.

use simpler_device_phase::{PHASES, Phase, TASK_SLOTS, TaskSlot};

/// The names of a run's spans.
#[derive(Debug)]
pub struct SpanNames {
    /// What is built before the first run, apart from any.
    pub prewarm_build: &'static str,
    /// The whole run.
    pub root: &'static str,
    /// Binding the callable and its arguments.
    pub bind: &'static str,
    /// Argument staging.
    pub bind_args: &'static str,
    /// The runtime arena.
    pub bind_prebuilt: &'static str,
    /// The orchestration, where it runs on the host.
    pub bind_host_orch: &'static str,
    /// The graph that it has built, on its way to the device.
    pub bind_graph_upload: &'static str,
    /// Launch to the end of drain.
    pub runner_run: &'static str,
    /// The device is given to the next run; of runs with an identity.
    pub claim_release: &'static str,
    /// Copy-back and release.
    pub validate: &'static str,
    /// The device windows, by the number of their phase.
    device: [&'static str; PHASES],
    /// The task slots, by number.
    task_slots: [&'static str; TASK_SLOTS],
}

impl SpanNames {
    /// The name of a device window.
    pub const fn device(&self, phase: Phase) -> &'static str {
        self.device[phase as usize]
    }

    /// The name of a task slot's window.
    pub const fn task_slot(&self, slot: TaskSlot) -> &'static str {
        self.task_slots[slot.index()]
    }
}

macro_rules! span_names {
    (@slots $root:literal, $($slot:literal)*) => {
        [$(concat!($root, ".runner_run.device_wall.task_slot_", $slot)),*]
    };
    ($root:literal, $prewarm:literal) => {
        SpanNames {
            prewarm_build: concat!($prewarm, ".build"),
            root: $root,
            bind: concat!($root, ".bind"),
            bind_args: concat!($root, ".bind.args"),
            bind_prebuilt: concat!($root, ".bind.prebuilt"),
            bind_host_orch: concat!($root, ".bind.host_orch"),
            bind_graph_upload: concat!($root, ".bind.graph_upload"),
            runner_run: concat!($root, ".runner_run"),
            claim_release: concat!($root, ".claim_release"),
            validate: concat!($root, ".validate"),
            device: [
                concat!($root, ".runner_run.device_wall"),
                concat!($root, ".runner_run.device_wall.preamble"),
                concat!($root, ".runner_run.device_wall.so_load"),
                concat!($root, ".runner_run.device_wall.graph_build"),
                concat!($root, ".runner_run.device_wall.post_orch"),
                concat!($root, ".runner_run.device_wall.orch"),
                concat!($root, ".runner_run.device_wall.sched"),
                concat!($root, ".runner_run.device_wall.config_validate"),
                concat!($root, ".runner_run.device_wall.arena_wire"),
                concat!($root, ".runner_run.device_wall.sm_reset"),
            ],
            task_slots: span_names!(@slots $root, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15),
        }
    };
}

/// The specification's names, under `simpler_run`.
pub static SIMPLER_RUN: SpanNames = span_names!("simpler_run", "simpler_prewarm");

#[cfg(test)]
mod tests {
    use simpler_device_phase::EMIT_ORDER;

    use super::*;

    #[test]
    fn every_device_window_is_named_after_its_phase() {
        for phase in EMIT_ORDER {
            let name = SIMPLER_RUN.device(phase);
            assert!(name.ends_with(&format!(".{}", phase.leaf())), "{phase:?} is {name}");
            assert!(name.starts_with(SIMPLER_RUN.device(Phase::RunWall)));
        }
        for slot in TaskSlot::all() {
            let wall = SIMPLER_RUN.device(Phase::RunWall);
            assert_eq!(SIMPLER_RUN.task_slot(slot), format!("{wall}.task_slot_{}", slot.index()));
        }
    }
}
