//! The orchestrator's thread: load, validate, wire, reset, release the schedulers, submit, seal.

use std::sync::atomic::Ordering;

use simpler_device_phase::{Phase, cycles_to_ns};
use simpler_host_log::log_timing;
use simpler_relax::{Deadline, Relax};
use simpler_swimlane::{ScopeSink, SimplerPhaseRecorder};

use super::{Gate, GateGuard, ORCH_PROFILING, OrchestratorState, Thread, watchdog};
use crate::code::{self, Stall};
use crate::graph::arena::{Awaited, Graph};
use crate::graph::{GraphError, Shape};
use crate::operations::invalid;
use crate::orchestration::{self, DeviceSubmits, Drain, Orchestration, chip_args};
use crate::run::TENSOR_TIMEOUT;

/// Runs the orchestrator's part; the status of its thread.
pub(super) fn run(thread: &Thread<'_>, graph: Graph<'_>) -> i32 {
    let ready: &Gate = &thread.run.gates.runtime_ready;
    let guard = GateGuard { gate: ready, thread };
    let mut state = thread.run.executor.orchestrator();
    let callable = &*thread.run.callable;
    if state.objects.get(callable).is_none() {
        let loading = thread.phases.scope(Phase::SoLoad, || thread.cycles());
        let loaded = state.objects.load(callable, |image, name| thread.aicpu.load_object(image, name));
        drop(loading);
        if let Err(words) = loaded {
            // The guard breaks the gate, so nobody but the host will look at this graph.
            graph.reset();
            report(thread, &graph, &invalid(words));
            return status(&graph);
        }
    }
    let _build = thread.phases.scope(Phase::GraphBuild, || thread.cycles());
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

    let validating = thread.phases.scope(Phase::ConfigValidate, || thread.cycles());
    let args = chip_args(&run.tensors, &run.scalars);
    let valid = object.validate(callable, &args);
    drop(validating);

    let wiring = thread.phases.scope(Phase::ArenaWire, || thread.cycles());
    let cycles = || thread.cycles();
    // SAFETY: this thread's own pools, of which it makes one writer each.
    let submits = thread.track.and_then(|track| unsafe { track.thread_writer() });
    let mut submits = submits.map(|writer| DeviceSubmits { writer, cycles: &cycles, submits: 0 });
    // SAFETY: as above.
    let scopes = thread.track.and_then(|track| unsafe { track.thread_writer() });
    let sink = scopes.map(|writer| ScopeSink::new(writer, &cycles));
    let scopes = sink.as_ref().map(SimplerPhaseRecorder::new);
    let mut orchestration = Orchestration {
        graph,
        drain: thread,
        profile: &run.profile,
        callable,
        builder,
        arguments,
        failed: false,
        submits: submits.as_mut().map(|track| track as _),
        scopes: scopes.as_ref(),
    };
    drop(wiring);

    let resetting = thread.phases.scope(Phase::SmReset, || thread.cycles());
    graph.reset();
    orchestration.builder.clear(&graph);
    valid?;
    if !guard.open() {
        return Err(gave_up(thread, "the schedulers gave up before it was ready"));
    }
    drop(resetting);

    let window = thread.phases.scope(Phase::OrchWindow, || thread.cycles());
    let started = if ORCH_PROFILING { thread.cycles() } else { 0 };
    object.call(&mut orchestration, &args);
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
    drop(window);
    if ORCH_PROFILING {
        let (ended, hz) = (thread.cycles(), run.profile.counter_hz);
        log_timing!(
            "Thread {}: orch_start={} orch_end={} orch_cost_ns={} tasks_submitted={}",
            thread.index,
            started,
            ended,
            cycles_to_ns(ended - started, hz),
            graph.submitted()
        );
    }
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

/// Notes the orchestrator's error, of which the first counts, and stops the schedulers.
fn report(thread: &Thread<'_>, graph: &Graph<'_>, error: &GraphError) {
    orchestration::report(graph, thread, error);
}

/// The schedulers drain the graph while it is filled.
impl Drain for Thread<'_> {
    fn ready(&self, graph: &Graph<'_>, shape: Shape) {
        let idle = graph.idle_schedulers(shape);
        // With no idle core nobody needs a bell: a scheduler that gets one looks at the queue first.
        if idle != 0 {
            self.aicpu.event(idle.trailing_zeros() as usize).notify_one();
        }
    }

    fn failed(&self) {
        self.ring_others();
    }

    fn wait_for(&self, graph: &Graph<'_>, awaited: Awaited) -> Result<(), GraphError> {
        let event = self.aicpu.event(self.index);
        // A run that waits here makes no progress, perhaps: this says what for, before the schedulers say that.
        let limit = TENSOR_TIMEOUT.min(self.run.timeout / 4 * 3);
        let mut deadline = Deadline::after(limit);
        let mut relax = Relax::new();
        let mut completed = graph.completed();
        graph.set_awaited(Some(awaited));
        let result = loop {
            let seen = event.epoch();
            if awaited.has_come(graph) {
                break Ok(());
            }
            // A scope may have any number of tasks, so its wait ends only where none of them finishes.
            if matches!(awaited, Awaited::Scope(_))
                && std::mem::replace(&mut completed, graph.completed()) != completed
            {
                deadline = Deadline::after(limit);
            }
            if graph.is_fatal() {
                break Err(invalid("the run has failed while the orchestration waited"));
            }
            if deadline.passed() {
                let ms = limit.as_millis();
                let (code, what) = match awaited {
                    Awaited::Task(task) => {
                        (code::TENSOR_TIMEOUT, format!("a tensor that task {} uses", graph.task_in(task)))
                    }
                    Awaited::Scope(_) => {
                        let (_, tasks) = watchdog::diagnose(self.run, graph);
                        (code::FLOW_CONTROL, format!("room that a scope which has ended holds ({tasks})"))
                    }
                };
                let text = format!("the orchestration waits for {what}: {ms} ms");
                break Err(GraphError { code, text });
            }
            relax.wait(event, seen);
        };
        graph.set_awaited(None);
        result
    }

    fn read(&self, addr: u64, to: &mut [u8]) -> Result<(), GraphError> {
        // SAFETY: a view of the orchestration's, which the header asks to be one of device memory; code on the AICPU
        // reads that directly, and nobody writes it.
        let from = unsafe { std::slice::from_raw_parts(addr as *const u8, to.len()) };
        to.copy_from_slice(from);
        Ok(())
    }

    fn write(&self, addr: u64, from: &[u8]) -> Result<(), GraphError> {
        // SAFETY: as above, and nobody uses it; what is submitted later is published after this.
        let to = unsafe { std::slice::from_raw_parts_mut(addr as *mut u8, from.len()) };
        to.copy_from_slice(from);
        Ok(())
    }
}
