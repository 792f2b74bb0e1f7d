//! When a run makes no progress: deadlines in wall time, and a sentence that names the cause.

use std::fmt::Write as _;
use std::time::Duration;

use simpler_relax::Deadline;

use super::RunProgram;
use crate::code::Stall;
use crate::graph::arena::{EARLY, Graph};
use crate::sync::Ordering;

/// Tasks that a text names before it says "and more".
const NAMED_TASKS_MAX: usize = 4;

/// Watches the counters of a run. Progress of any thread counts.
pub(super) struct Watchdog {
    timeout: Duration,
    deadline: Deadline,
    seen: [u32; 2],
}

impl Watchdog {
    pub(super) fn new(timeout: Duration, graph: &Graph<'_>) -> Self {
        Self { timeout, deadline: Deadline::after(timeout), seen: counters(graph) }
    }

    /// Whether nothing was submitted or completed for the length of the timeout.
    pub(super) fn has_expired(&mut self, graph: &Graph<'_>) -> bool {
        let now = counters(graph);
        if now != self.seen {
            self.seen = now;
            self.deadline = Deadline::after(self.timeout);
        }
        self.deadline.passed()
    }
}

fn counters(graph: &Graph<'_>) -> [u32; 2] {
    [graph.submitted(), graph.completed()]
}

/// What kind of stall it is (RUNTIME §2.3: running, then ready, then waiting, then the orchestrator), and a text.
pub(super) fn diagnose(run: &RunProgram, graph: &Graph<'_>) -> (Stall, String) {
    let mut tasks = Tasks { text: String::new(), named: 0 };
    for core in 0..graph.cores() {
        // ORDERING: Relaxed: a number for a message.
        let task = graph.running_on(core).load(Ordering::Relaxed).checked_sub(1);
        // One that is only staged there waits like others.
        if let Some(task) = task.filter(|task| graph.tasks.slot(*task).waiting_for() == 0) {
            tasks.name(run, graph, task, &format!(" on core {core}"));
        }
    }
    for core in 0..graph.cores() {
        // ORDERING: Relaxed: as above.
        if let Some(task) = graph.deferred_on(core).load(Ordering::Relaxed).checked_sub(1) {
            tasks.name(run, graph, task, " waits for what its kernels have left to others");
        }
    }
    if tasks.named != 0 {
        return (Stall::Running, tasks.text);
    }
    // What may be staged only waits.
    let ready = graph.ready[..EARLY].iter().filter(|queue| !queue.is_empty()).count();
    for task in graph.slots_in_use() {
        let waiting_for = graph.tasks.slot(task).waiting_for();
        if waiting_for != 0 {
            tasks.name(run, graph, task, &format!(" waits for {waiting_for}"));
        }
    }
    match (ready, tasks.named, graph.is_sealed()) {
        (0, 0, false) => (Stall::Orchestrator, "the orchestration neither submits nor ends".to_owned()),
        (0, 0, true) => (Stall::Unknown, "no task is running, ready or waiting".to_owned()),
        (0, _, _) => (Stall::Waiting, tasks.text),
        (queues, _, _) => (Stall::Ready, format!("{queues} ready queues are not empty")),
    }
}

/// Tasks that run on (core, task).
pub(super) fn name_running(
    run: &RunProgram,
    graph: &Graph<'_>,
    running: impl Iterator<Item = (usize, u32)>,
) -> String {
    let mut tasks = Tasks { text: String::new(), named: 0 };
    running.for_each(|(core, task)| tasks.name(run, graph, task, &format!(" on core {core}")));
    tasks.text
}

/// A task by its number and its kernels.
pub(super) fn name_task(run: &RunProgram, graph: &Graph<'_>, task: u32) -> String {
    let mut tasks = Tasks { text: String::new(), named: 0 };
    tasks.name(run, graph, task, "");
    tasks.text
}

/// The text of a timeout.
pub(super) fn timeout_text(timeout: Duration, stall: Stall, detail: &str) -> String {
    format!(
        "no progress for {} ms (sub-class {}: {}): {detail}",
        timeout.as_millis(),
        stall as u32,
        words(stall)
    )
}

const fn words(stall: Stall) -> &'static str {
    match stall {
        Stall::Running => "a running task stalled",
        Stall::Ready => "ready work but idle cores",
        Stall::Waiting => "dependency deadlock",
        Stall::Orchestrator => "the orchestrator starved the schedulers",
        Stall::Unknown => "unknown",
    }
}

struct Tasks {
    text: String,
    named: usize,
}

impl Tasks {
    fn name(&mut self, run: &RunProgram, graph: &Graph<'_>, task: u32, what: &str) {
        self.named += 1;
        if self.named > NAMED_TASKS_MAX {
            if self.named == NAMED_TASKS_MAX + 1 {
                self.text.push_str(" and more");
            }
            return;
        }
        let kernels = graph.tasks.slot(task).work().kernels;
        let names = kernels.iter().map(|value| {
            let kernel = run.callable.kernels.iter().find(|kernel| kernel.value == value);
            kernel.map_or("unknown", |kernel| &kernel.name)
        });
        let name = if kernels.count() == 0 { "no kernel" } else { &names.collect::<Vec<_>>().join("+") };
        let comma = if self.named == 1 { "" } else { ", " };
        // Writing to a String cannot fail.
        let _ = write!(self.text, "{comma}task {} ({name}){what}", graph.task_in(task));
    }
}
