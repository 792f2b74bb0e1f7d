//! host_build_graph: the orchestration runs on the host, inside bind, and the device only schedules.
//!
//! The graph is the one that tensormap_and_ringbuffer fills on the device. Here it is filled in an arena of the host's
//! memory with the addresses that hold on the device, and uploaded as far as it is used. So tasks start with nothing to
//! wait for but each other.

use simpler_kernel_abi::SimplerTensor;
use simpler_platform::{DeviceAddr, HostObject, Platform, PlatformError};

use crate::graph::GraphError;
use crate::graph::arena::ArenaLayout;
use crate::graph::builder::{Builder, TaskArg};
use crate::graph::host_arena::HostArena;
use crate::operations::invalid;
use crate::orchestration::{Callable, Later, ObjectTable, Orchestration, chip_args};
use crate::run::ChipRuntime;

/// What builds graphs on the host: kept from run to run.
pub(crate) struct HostGraph {
    layout: ArenaLayout,
    arena: HostArena,
    objects: ObjectTable,
    builder: Builder,
    arguments: Vec<TaskArg>,
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
        }
    }

    /// Builds graphs with this layout from now on.
    pub(crate) fn set_layout(&mut self, layout: ArenaLayout) {
        if self.layout.key() != layout.key() {
            (self.layout, self.arena) = (layout, HostArena::without_heap(layout));
        }
    }

    /// Runs the callable's orchestration over `tensors` of the device, for an arena at `device`.
    ///
    /// # Errors
    /// What the orchestration fails with.
    pub(crate) fn build(
        &mut self,
        runtime: &ChipRuntime,
        callable: &Callable,
        device: DeviceAddr,
        tensors: &[SimplerTensor],
        scalars: &[u64],
    ) -> Result<(), GraphError> {
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
            submits: None,
            scopes: None,
        };
        object.call(&mut orchestration, &args);
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
        for part in self.layout.built_parts(ready, self.builder.used()) {
            if !part.is_empty() {
                let to = DeviceAddr(device.0 + part.start as u64);
                platform.copy_to_device(to, self.arena.bytes(part))?;
            }
        }
        Ok(())
    }
}
