//! host_build_graph: the orchestration runs on the host, inside bind, and the device only schedules.
//!
//! The graph is the one that tensormap_and_ringbuffer fills on the device. Here it is filled in an arena of the host's
//! memory with the addresses that hold on the device, and uploaded as far as it is used. So tasks start with nothing to
//! wait for but each other.

use simpler_host_log::monotonic_ns;
use simpler_kernel_abi::SimplerTensor;
use simpler_platform::{DeviceAddr, HostObject, Platform, PlatformError};
use simpler_swimlane::{HostOrchestration, HostSubmit, HostUpload};

use crate::graph::arena::ArenaLayout;
use crate::graph::builder::{Builder, TaskArg};
use crate::graph::host_arena::HostArena;
use crate::graph::{GraphError, TaskId};
use crate::operations::invalid;
use crate::orchestration::{Callable, Later, ObjectTable, Orchestration, SubmitTrack, chip_args};
use crate::run::ChipRuntime;

/// What builds graphs on the host: kept from run to run.
pub(crate) struct HostGraph {
    layout: ArenaLayout,
    arena: HostArena,
    objects: ObjectTable,
    builder: Builder,
    arguments: Vec<TaskArg>,
    /// What was done of the last graph, if that is recorded.
    recorded: Option<HostOrchestration>,
}

impl HostGraph {
    /// A builder of graphs with this layout.
    pub(crate) fn new(layout: ArenaLayout) -> Self {
        Self {
            layout,
            arena: HostArena::without_heap(layout),
            objects: ObjectTable::default(),
            builder: Builder::ahead(),
            arguments: Vec::new(),
            recorded: None,
        }
    }

    /// What was done of the last graph, if that was recorded.
    pub(crate) fn recorded(&self) -> Option<&HostOrchestration> {
        self.recorded.as_ref()
    }

    /// Builds graphs with this layout from now on.
    pub(crate) fn set_layout(&mut self, layout: ArenaLayout) {
        if self.layout.key() != layout.key() {
            (self.layout, self.arena) = (layout, HostArena::without_heap(layout));
        }
    }

    /// Runs the callable's orchestration over tensors of the device and scalars, for an arena at `device`; `records` what it
    /// does.
    ///
    /// # Errors
    /// What the orchestration fails with.
    pub(crate) fn build(
        &mut self,
        runtime: &ChipRuntime,
        callable: &Callable,
        device: DeviceAddr,
        (tensors, scalars): (&[SimplerTensor], &[u64]),
        records: bool,
    ) -> Result<(), GraphError> {
        self.recorded = records.then(HostOrchestration::default);
        if self.objects.get(callable).is_none() {
            let load = |image: &[u8], name: &str| {
                HostObject::load_orchestration(image, name).map(|object| Box::new(object) as _)
            };
            self.objects.load(callable, load).map_err(invalid)?;
        }
        let Some(object) = self.objects.get(callable) else {
            return Err(invalid("the orchestration object is not loaded"));
        };
        let args = chip_args(tensors, scalars);
        object.validate(callable, &args)?;
        let graph = self.arena.graph_for(device.0);
        graph.forget_failure();
        graph.reset();
        self.builder.clear(&graph);
        let mut orchestration = Orchestration {
            graph,
            drain: &Later(runtime),
            profile: runtime.platform.profile(),
            callable,
            builder: &mut self.builder,
            arguments: &mut self.arguments,
            failed: false,
            submits: self.recorded.as_mut().map(|recorded| recorded as _),
            scopes: None,
        };
        object.call(&mut orchestration, &args);
        if let Some(recorded) = &mut self.recorded {
            recorded.tasks = graph.submitted().into();
        }
        match graph.control().orchestrator_error.get() {
            Some(failure) => Err(GraphError { code: failure.code, text: failure.text }),
            None => Ok(()),
        }
    }

    /// Copies the graph that was built to the arena on the device.
    ///
    /// # Errors
    /// The device's.
    pub(crate) fn upload(
        &mut self,
        platform: &dyn Platform,
        device: DeviceAddr,
    ) -> Result<(), PlatformError> {
        let ready = self.arena.graph_for(device.0).hand_over();
        for part in self.layout.built_parts(ready, self.builder.used(), self.builder.has_early()) {
            if !part.is_empty() {
                let (to, bytes) = (DeviceAddr(device.0 + part.start as u64), part.len() as u64);
                let start_ns = now_ns();
                platform.copy_to_device(to, self.arena.bytes(part))?;
                if let Some(recorded) = &mut self.recorded {
                    recorded.uploads.push(HostUpload { bytes, start_ns, end_ns: now_ns() });
                }
            }
        }
        Ok(())
    }
}

fn now_ns() -> u64 {
    monotonic_ns().cast_unsigned()
}

impl SubmitTrack for HostOrchestration {
    fn now(&self) -> u64 {
        now_ns()
    }

    fn submitted(&mut self, task: TaskId, start_ns: u64) {
        self.submits.push(HostSubmit { task_id: task.raw(), start_ns, end_ns: now_ns() });
    }
}
