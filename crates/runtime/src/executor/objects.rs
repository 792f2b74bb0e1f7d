//! The orchestration objects that were loaded so far: one entry per callable, kept from run to run.

use simpler_kernel_abi::{
    ORCHESTRATION_CONFIG, ORCHESTRATION_ENTRY, OrchestrationConfigure, OrchestrationEntry,
};
use simpler_log_abi::BINDER;
use simpler_platform::{Aicpu, LoadedObject};

use super::Callable;
use crate::log_binding::bind_log;

/// Callables of one chip (RUNTIME §1.6).
pub(crate) const CALLABLES_MAX: usize = 64;

/// An orchestration that can be called.
pub(super) struct LoadedOrchestration {
    /// Kept for as long as the functions may be called.
    _object: Box<dyn LoadedObject>,
    pub(super) entry: OrchestrationEntry,
    pub(super) configure: Option<OrchestrationConfigure>,
}

/// The table, by callable slot.
#[derive(Default)]
pub(crate) struct ObjectTable {
    loaded: Vec<Option<LoadedOrchestration>>,
}

impl ObjectTable {
    /// Whether the callable's object is loaded.
    pub(super) fn get(&self, callable: &Callable) -> Option<&LoadedOrchestration> {
        self.loaded.get(callable.slot)?.as_ref()
    }

    /// Loads the callable's object, hands it the log, and looks its symbols up.
    ///
    /// # Errors
    /// The loader's words, the name of the symbol that is missing, or why the object refuses the log.
    pub(super) fn load(&mut self, aicpu: &dyn Aicpu, callable: &Callable) -> Result<(), String> {
        let object =
            aicpu.load_object(&callable.orchestration, &callable.name).map_err(|error| error.to_string())?;
        bind_log(object.symbol(BINDER), &callable.name)?;
        let entry = object.symbol(ORCHESTRATION_ENTRY).ok_or_else(|| {
            format!("{}: the orchestration object has no {ORCHESTRATION_ENTRY}", callable.name)
        })?;
        // SAFETY: the header gives the symbol of this name this type.
        let entry = unsafe { std::mem::transmute::<*const (), OrchestrationEntry>(entry) };
        let configure = object.symbol(ORCHESTRATION_CONFIG).map(|configure| {
            // SAFETY: as above.
            unsafe { std::mem::transmute::<*const (), OrchestrationConfigure>(configure) }
        });
        if self.loaded.len() <= callable.slot {
            self.loaded.resize_with(callable.slot + 1, || None);
        }
        self.loaded[callable.slot] = Some(LoadedOrchestration { _object: object, entry, configure });
        Ok(())
    }
}
