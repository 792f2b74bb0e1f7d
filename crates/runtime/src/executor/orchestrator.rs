//! The orchestrator's thread: load, validate, wire, reset, release the schedulers, submit, seal.

use std::sync::atomic::Ordering;

use simpler_device_phase::Phase;
use simpler_kernel_abi::{CoreKind, SimplerChipArgs, SimplerOrchestrationConfig};

use super::{Callable, Gate, GateGuard, OrchestratorState, Thread, watchdog};
use crate::code::{self, Stall};
use crate::graph::arena::Graph;
use crate::graph::builder::{Builder, TaskArg};
use crate::graph::{CORE_KINDS, GraphError};
use crate::operations::{self, CheckedTask, Operations, invalid};

/// Runs the orchestrator's part; the status of its thread.
pub(super) fn run(thread: &Thread<'_>, graph: Graph<'_>) -> i32 {
    let ready: &Gate = &thread.run.gates.runtime_ready;
    let guard = GateGuard { gate: ready, thread };
    let mut state = thread.run.executor.orchestrator();
    let callable = &*thread.run.callable;
    if state.objects.get(callable).is_none() {
        let loading = thread.stamper.scope(Phase::SoLoad, || thread.cycles());
        let loaded = state.objects.load(thread.aicpu, callable);
        drop(loading);
        if let Err(words) = loaded {
            // The guard breaks the gate, so nobody but the host will look at this graph.
            graph.reset();
            report(thread, &graph, &invalid(words));
            return status(&graph);
        }
    }
    let _build = thread.stamper.scope(Phase::GraphBuild, || thread.cycles());
    if let Err(error) = start_and_submit(thread, graph, &mut state, guard) {
        report(thread, &graph, &error);
    }
    status(&graph)
}

/// The thread's status: what was reported as the orchestrator's error.
fn status(graph: &Graph<'_>) -> i32 {
    graph.control().orchestrator_error.get().map_or(0, |failure| -(failure.code as i32))
}

fn start_and_submit(
    thread: &Thread<'_>,
    graph: Graph<'_>,
    state: &mut OrchestratorState,
    guard: GateGuard<'_>,
) -> Result<(), GraphError> {
    let OrchestratorState { objects, builder, arguments } = state;
    let run = thread.run;
    let callable = &*run.callable;
    let Some(object) = objects.get(callable) else {
        return Err(invalid("the orchestration object is not loaded"));
    };

    let validating = thread.stamper.scope(Phase::ConfigValidate, || thread.cycles());
    let args = SimplerChipArgs {
        tensors: run.tensors.as_ptr(),
        scalars: run.scalars.as_ptr(),
        tensor_count: run.tensors.len() as u32,
        scalar_count: run.scalars.len() as u32,
    };
    let mut config = SimplerOrchestrationConfig {
        struct_size: size_of::<SimplerOrchestrationConfig>() as u32,
        tensors_min: 0,
        scalars_min: 0,
    };
    let configured = object.configure.map_or(0, |configure| {
        // SAFETY: the object is loaded, the symbol has this type, and the struct lives through the call.
        unsafe { configure(&raw mut config) }
    });
    let valid = check_config(callable, configured, &config, &args);
    drop(validating);

    let wiring = thread.stamper.scope(Phase::ArenaWire, || thread.cycles());
    let mut orchestration = Orchestration { thread, graph, callable, builder, arguments, failed: false };
    let table = operations::table::<Orchestration<'_>>();
    drop(wiring);

    let resetting = thread.stamper.scope(Phase::SmReset, || thread.cycles());
    graph.reset();
    orchestration.builder.clear();
    valid?;
    if !guard.open() {
        return Err(gave_up(thread, "the schedulers gave up before it was ready"));
    }
    drop(resetting);

    let _window = thread.stamper.scope(Phase::OrchWindow, || thread.cycles());
    let run_pointer = (&raw mut orchestration).cast();
    // SAFETY: the object is loaded and the symbol has this type; the table's implementation is the one behind the
    // pointer, and it is not touched until the call returns.
    let returned = unsafe { (object.entry)(&raw const table, run_pointer, &raw const args) };
    // An orchestration that found the run failed returns what it likes: whoever failed the run has said why.
    if returned != 0 && !orchestration.is_fatal() {
        let text = format!("{}: the orchestration returned {returned}", callable.name);
        orchestration.fail(GraphError { code: code::EXPLICIT_FATAL, text });
    }
    seal(thread, &graph);
    // The window ends when a scheduler has taken note, so that one that starts late still overlaps it. A run whose
    // schedulers all ended early has failed, and waits no longer than the timeout.
    let gates = &run.gates;
    thread.wait_for(|| {
        // ORDERING: Acquire: nothing is read on the strength of these; they only end the wait.
        let scheduling = gates.scheduling.load(Ordering::Acquire);
        let finished = gates.finished.load(Ordering::Acquire);
        (scheduling != 0 || finished == thread.schedulers() || graph.is_fatal()).then_some(())
    });
    // ORDERING: Acquire: pairs with the AcqRel in `FinishGuard`: what the schedulers completed is visible.
    let all_left = gates.finished.load(Ordering::Acquire) == thread.schedulers();
    if all_left && !graph.is_drained() && !graph.is_fatal() {
        let text =
            format!("all schedulers left with {} of {} tasks done", graph.completed(), graph.submitted());
        return Err(GraphError { code: code::EXPLICIT_FATAL, text });
    }
    Ok(())
}

/// The status of a leader that nobody waits for any more.
pub(super) fn too_late(thread: &Thread<'_>, graph: &Graph<'_>, detail: &str) -> i32 {
    report(thread, graph, &gave_up(thread, detail));
    status(graph)
}

fn gave_up(thread: &Thread<'_>, detail: &str) -> GraphError {
    let text = watchdog::timeout_text(thread.run.timeout, Stall::Orchestrator, detail);
    GraphError { code: code::SCHEDULER_TIMEOUT, text }
}

/// No more tasks will come. If that was the last thing to happen, nobody else will wake the schedulers.
fn seal(thread: &Thread<'_>, graph: &Graph<'_>) {
    graph.seal();
    if graph.is_drained() || graph.is_fatal() {
        thread.ring_others();
    }
}

fn check_config(
    callable: &Callable,
    configured: i32,
    config: &SimplerOrchestrationConfig,
    args: &SimplerChipArgs,
) -> Result<(), GraphError> {
    if configured != 0 {
        return Err(invalid(format_args!("{}: its configuration returned {configured}", callable.name)));
    }
    if args.tensor_count < config.tensors_min || args.scalar_count < config.scalars_min {
        return Err(invalid(format_args!(
            "{}: {} tensors and {} scalars were given, at least {} and {} are expected",
            callable.name, args.tensor_count, args.scalar_count, config.tensors_min, config.scalars_min
        )));
    }
    Ok(())
}

/// Notes the orchestrator's error, of which the first counts, and stops the schedulers.
fn report(thread: &Thread<'_>, graph: &Graph<'_>, error: &GraphError) {
    graph.control().orchestrator_error.set(error.code, 0, &error.text);
    graph.set_fatal();
    thread.ring_others();
}

/// What the operations table works on.
struct Orchestration<'a> {
    thread: &'a Thread<'a>,
    graph: Graph<'a>,
    callable: &'a Callable,
    builder: &'a mut Builder,
    arguments: &'a mut Vec<TaskArg>,
    failed: bool,
}

impl Operations for Orchestration<'_> {
    fn kernel_kind(&self, kernel: usize) -> Option<CoreKind> {
        self.callable.kernels.get(kernel).map(|kernel| kernel.kind)
    }

    fn take_arguments(&mut self) -> Vec<TaskArg> {
        std::mem::take(self.arguments)
    }

    fn return_arguments(&mut self, arguments: Vec<TaskArg>) {
        *self.arguments = arguments;
    }

    fn submit(&mut self, task: CheckedTask<'_>) -> Result<u32, GraphError> {
        if self.failed {
            return Err(invalid("submit_task: the run has failed"));
        }
        let kernel = &self.callable.kernels[task.kernel];
        let submitted =
            self.builder.submit(&self.graph, kernel.value, kernel.kind, task.arguments, task.scalars)?;
        if submitted.ready {
            let idle = self.graph.idle_schedulers(kernel.kind as usize);
            // With no idle core nobody needs a bell: a scheduler that gets one looks at the queue first.
            if idle != 0 {
                self.thread.aicpu.event(idle.trailing_zeros() as usize).notify_one();
            }
        }
        Ok(submitted.task)
    }

    fn core_count(&self, kind: CoreKind) -> u32 {
        let clusters = self.thread.run.profile.clusters as u32;
        clusters * CORES_PER_CLUSTER[kind as usize]
    }

    fn is_fatal(&self) -> bool {
        self.failed || self.graph.is_fatal()
    }

    fn fail(&mut self, error: GraphError) {
        self.failed = true;
        report(self.thread, &self.graph, &error);
    }
}

/// One AIC and two AIVs make a cluster.
pub(crate) const CORES_PER_CLUSTER: [u32; CORE_KINDS.len()] = [1, 2];
