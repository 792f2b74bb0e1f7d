//! A scheduler's thread: watch its own cores, complete what they finish, give them what is ready.
//!
//! Cores belong to schedulers for the length of a run (cluster ci to scheduler ci mod the number of schedulers), so a
//! core's record has one writer. Ready tasks belong to nobody: any scheduler with an idle core of the right kind may
//! take one. A scheduler that leaves tasks in a queue because its own cores are busy rings another that has an idle
//! one; if no such scheduler exists, whoever gets a core back looks at the queue first. So one scheduler carries a
//! steady load alone while the others stay parked, and no task waits next to an idle core.

use std::sync::atomic::Ordering;

use simpler_device_phase::{Phase, TaskAttrs, cycles_to_ns};
use simpler_host_log::{log_error, log_timing};
use simpler_platform::{CondState, DispatchPayload};
use simpler_relax::{Deadline, Relax};
use simpler_swimlane::{AicoreTask, AicpuTask, SchedKind, SchedPhase, Writer};

use super::watchdog::{self, Watchdog};
use super::{SCHED_PROFILING, Thread};
use crate::code;
use crate::graph::CORE_KINDS;
use crate::graph::arena::Graph;
use crate::orchestration::CORES_PER_CLUSTER;

/// Cores of one scheduler: a word of bits.
const OWN_CORES_MAX: usize = u64::BITS as usize;

/// Prepares the cores' records for the handshake, and forgets how the last run failed. The leader, before anybody
/// attaches or can fail this run.
pub(super) fn prepare_cores(graph: &Graph<'_>) {
    graph.forget_failure();
    for core in 0..graph.cores() {
        // ORDERING: Relaxed: published by the gate that the leader opens.
        graph.running_on(core).store(0, Ordering::Relaxed);
    }
}

/// A core of this scheduler.
#[derive(Clone, Copy)]
struct OwnCore {
    core: usize,
    kind: usize,
    payloads: *mut [DispatchPayload; 2],
    /// The last DATA_MAIN_BASE value; its parity selects the payload.
    sequence: u64,
    task: u32,
    /// Of that task.
    attrs: TaskAttrs,
    /// When it was dispatched, if that is recorded.
    dispatched: u64,
}

/// Where the tasks of a core are recorded.
struct CoreTrack<'a> {
    aicore: Option<Writer<'a, AicoreTask>>,
    aicpu: Option<Writer<'a, AicpuTask>>,
}

/// What one look at the ready queues came to.
#[derive(Clone, Copy, Default)]
struct Pops {
    hits: u32,
    misses: u32,
}

/// The scheduler with this index.
pub(super) struct Scheduler<'a> {
    thread: &'a Thread<'a>,
    graph: Graph<'a>,
    cores: Vec<OwnCore>,
    /// Per kind, the idle cores, by bit.
    idle: [u64; CORE_KINDS.len()],
    running: u64,
    /// One a core where tasks are recorded, else none.
    tracks: Vec<CoreTrack<'a>>,
    /// Where this thread's phases are recorded, if they are.
    phase_track: Option<Writer<'a, SchedPhase>>,
    /// Rounds of the loop, and tasks dispatched; counted for profiling and for phases only.
    loops: u64,
    scheduled: u64,
}

impl<'a> Scheduler<'a> {
    /// Shakes hands with the cores of this thread's clusters.
    pub(super) fn attach(thread: &'a Thread<'a>, graph: Graph<'a>) -> Self {
        let clusters = thread.run.profile.clusters;
        let schedulers = thread.schedulers();
        let mut scheduler = Self {
            thread,
            graph,
            cores: Vec::new(),
            idle: [0; 2],
            running: 0,
            tracks: Vec::new(),
            phase_track: None,
            loops: 0,
            scheduled: 0,
        };
        // SAFETY: this thread's own pool, of which it makes one writer.
        scheduler.phase_track = thread.track.and_then(|track| unsafe { track.thread_writer() });
        for cluster in (thread.index..clusters).step_by(schedulers) {
            scheduler.attach_core(cluster, 0);
            // AICs are numbered first, then the AIVs in pairs.
            let pair = CORES_PER_CLUSTER[1] as usize;
            for aiv in 0..pair {
                scheduler.attach_core(clusters + cluster * pair + aiv, 1);
            }
        }
        scheduler
    }

    fn attach_core(&mut self, core: usize, kind: usize) {
        let own = self.cores.len();
        if own == OWN_CORES_MAX {
            return;
        }
        let registers = self.thread.aicpu.registers();
        let payloads = self.graph.payloads(core);
        // SAFETY: the payloads are in the arena, which stays until the launch was waited for; only this thread
        // writes them, and only as the protocol allows.
        unsafe { registers.attach(core, self.thread.index, payloads) };
        // The platform may or may not have reset the core since the last launch; a value must differ from the last.
        let sequence = registers.cond(core).dispatch;
        self.cores.push(OwnCore {
            core,
            kind,
            payloads,
            sequence,
            task: 0,
            attrs: TaskAttrs::default(),
            dispatched: 0,
        });
        self.idle[kind] |= 1 << own;
        if let Some(track) = self.thread.track {
            // SAFETY: the core was attached by this thread, which makes one writer of each of its pools.
            let aicore = unsafe { track.core_writer(core) };
            // SAFETY: as above.
            let aicpu = unsafe { track.core_writer(core) };
            self.tracks.push(CoreTrack { aicore, aicpu });
        }
    }

    /// The resolve and dispatch loop; the status of this thread.
    pub(super) fn run(&mut self) -> i32 {
        let thread = self.thread;
        let window = thread.phases.scope(Phase::SchedWindow, || thread.cycles());
        let started = if SCHED_PROFILING { thread.cycles() } else { 0 };
        let status = self.schedule();
        drop(window);
        if SCHED_PROFILING {
            let (ended, hz, index) = (thread.cycles(), thread.run.profile.counter_hz, thread.index);
            let cost_ns = cycles_to_ns(ended - started, hz);
            log_timing!("Thread {index}: sched_start={started} sched_end={ended} sched_cost_ns={cost_ns}");
            let (loops, scheduled) = (self.loops, self.scheduled);
            log_timing!("Thread {index}: Scheduler summary: loops={loops}, tasks_scheduled={scheduled}");
        }
        if status != 0 || self.graph.is_fatal() {
            self.drain_cores();
        }
        status
    }

    fn schedule(&mut self) -> i32 {
        let Thread { run, aicpu, index, .. } = *self.thread;
        // ORDERING: Release: pairs with the Acquire in the orchestrator's last wait.
        if run.gates.scheduling.fetch_add(1, Ordering::Release) == 0 {
            aicpu.event(self.thread.leader()).notify_one();
        }
        for kind in 0..CORE_KINDS.len() {
            self.graph.set_idle(kind, index, self.idle[kind] != 0);
        }
        let event = aicpu.event(index);
        // FIN is expected soon while a kernel runs. Who has nothing running is rung when it is needed, and would only
        // take turns on a CPU that a kernel could have; the first scheduler is the first to be rung.
        let (mut relax, mut idle) = (Relax::new(), Relax::parking());
        let mut watchdog = Watchdog::new(run.timeout, &self.graph);
        loop {
            let seen = event.epoch();
            if self.graph.is_fatal() {
                return 0;
            }
            let began = self.phase_began();
            let completed = self.poll_cores();
            let began = self.phase_ended(began, SchedKind::Complete, completed, Pops::default());
            let pops = self.dispatch_ready(completed != 0);
            self.phase_ended(began, SchedKind::Dispatch, pops.hits, pops);
            if SCHED_PROFILING || self.phase_track.is_some() {
                self.loops += 1;
            }
            if completed != 0 || pops.hits != 0 {
                relax.reset();
                idle.reset();
                // Nobody rings this thread for what it did itself, such as the last completion.
                continue;
            }
            if self.graph.is_drained() {
                return 0;
            }
            if watchdog.has_expired(&self.graph) {
                return self.time_out();
            }
            let wait = if self.running == 0 && index != 0 { &mut idle } else { &mut relax };
            wait.wait(event, seen);
        }
    }

    /// The start of a phase, and the lengths of the ready queues at it; None where phases are not recorded.
    fn phase_began(&self) -> Option<(u64, [i16; 3])> {
        self.phase_track.as_ref().map(|_| (self.thread.cycles(), self.depths()))
    }

    /// Records a phase that dealt with any task. Its end is the start of the next.
    fn phase_ended(
        &self,
        began: Option<(u64, [i16; 3])>,
        kind: SchedKind,
        tasks: u32,
        pops: Pops,
    ) -> Option<(u64, [i16; 3])> {
        let (Some((start, depths_at_start)), Some(track)) = (began, &self.phase_track) else { return None };
        if tasks == 0 {
            return began;
        }
        let (end, depths_at_end) = (self.thread.cycles(), self.depths());
        // What is lost was counted in the pool.
        track.append(SchedPhase {
            start,
            end,
            loop_iter: self.loops as u32,
            kind: kind as u32,
            tasks,
            detail: SchedPhase::pops(pops.hits, pops.misses),
            depths_at_start,
            depths_at_end,
            ..SchedPhase::default()
        });
        Some((end, depths_at_end))
    }

    /// How many tasks wait for a core, by kind.
    fn depths(&self) -> [i16; 3] {
        let mut depths = [0; 3];
        for (depth, queue) in depths.iter_mut().zip(&self.graph.ready) {
            *depth = i16::try_from(queue.len_hint()).unwrap_or(i16::MAX);
        }
        depths
    }

    /// Completes what has finished; how much had.
    fn poll_cores(&mut self) -> u32 {
        let registers = self.thread.aicpu.registers();
        let before = self.running;
        let mut left = before;
        while left != 0 {
            let own = left.trailing_zeros() as usize;
            left &= left - 1;
            let OwnCore { core, sequence, .. } = self.cores[own];
            let cond = registers.cond(core);
            if cond.state == CondState::Fin && cond.dispatch == sequence {
                self.complete(own);
            }
        }
        before.count_ones() - self.running.count_ones()
    }

    fn complete(&mut self, own: usize) {
        let OwnCore { core, kind, task, attrs, dispatched, sequence, .. } = self.cores[own];
        // FIN was acquired just now, and nothing of the completion has been done (RUNTIME §4.5).
        if let Some(slot) = attrs.slot() {
            self.thread.stamper.task_finished(slot, self.thread.aicpu.cycles_after_reads());
        }
        if let Some(track) = self.tracks.get(own) {
            if let Some(aicore) = &track.aicore {
                aicore.commit();
            }
            if let Some(aicpu) = &track.aicpu {
                let finish = self.thread.aicpu.cycles_after_reads();
                let (dispatch, reg_task_id) = (dispatched, sequence as u32);
                // What is lost was counted in the pool.
                aicpu.append(AicpuTask { dispatch, finish, reg_task_id, ..AicpuTask::default() });
            }
        }
        let graph = self.graph;
        // ORDERING: Relaxed: a number for a message.
        graph.running_on(core).store(0, Ordering::Relaxed);
        graph.tasks.complete(task, |successor| graph.push_ready(successor));
        self.running &= !(1 << own);
        if self.idle[kind] == 0 {
            graph.set_idle(kind, self.thread.index, true);
        }
        self.idle[kind] |= 1 << own;
        graph.count_completed();
        if graph.is_drained() {
            self.thread.ring_others();
        }
    }

    /// Gives ready tasks to idle cores; how many, and how often there was a core and no task. `pushed`: this thread may have made tasks ready.
    fn dispatch_ready(&mut self, pushed: bool) -> Pops {
        let mut pops = Pops::default();
        for kind in 0..CORE_KINDS.len() {
            let mut dispatched = false;
            while self.idle[kind] != 0 {
                let Some(task) = self.graph.ready[kind].pop() else {
                    pops.misses += 1;
                    break;
                };
                self.dispatch(kind, task);
                pops.hits += 1;
                dispatched = true;
            }
            if self.idle[kind] == 0 {
                if dispatched {
                    self.graph.set_idle(kind, self.thread.index, false);
                }
                if (dispatched || pushed) && !self.graph.ready[kind].is_empty() {
                    self.pass_on(kind);
                }
            }
        }
        pops
    }

    /// Rings another scheduler that has an idle core of a kind.
    fn pass_on(&self, kind: usize) {
        let others = self.graph.idle_schedulers(kind) & !(1 << self.thread.index);
        if others != 0 {
            self.thread.aicpu.event(others.trailing_zeros() as usize).notify_one();
        }
    }

    fn dispatch(&mut self, kind: usize, task: u32) {
        let own = self.idle[kind].trailing_zeros() as usize;
        self.idle[kind] &= !(1 << own);
        self.running |= 1 << own;
        if SCHED_PROFILING {
            self.scheduled += 1;
        }
        let work = self.graph.tasks.slot(task).work();
        let core = &mut self.cores[own];
        core.task = task;
        core.attrs = work.attrs;
        core.sequence += 1;
        // ORDERING: Relaxed: a number for a message.
        self.graph.running_on(core.core).store(task + 1, Ordering::Relaxed);
        // Reserved before the dispatch, so before the core's ACK; the core fills it before its FIN.
        let aicore = self.tracks.get(own).and_then(|track| track.aicore.as_ref());
        let record = aicore.and_then(|aicore| {
            let (token, reg_task_id) = (task.into(), core.sequence as u32);
            aicore.reserve(AicoreTask { token, reg_task_id, ..AicoreTask::default() })
        });
        let record = record.map_or(0, |record| record.expose_provenance() as u64);
        let payload = DispatchPayload { kernel: work.kernel, args: self.graph.kernel_args(&work), record };
        let target = core.payloads.cast::<DispatchPayload>().wrapping_add((core.sequence & 1) as usize);
        // SAFETY: one of the two payloads of a core that this thread owns; the core is idle, so it reads neither
        // until the write of DATA_MAIN_BASE below.
        unsafe { target.write(payload) };
        // The payload is there, the register's write comes next (RUNTIME §4.5).
        if let Some(slot) = work.attrs.slot() {
            self.thread.stamper.task_dispatched(slot, self.thread.cycles());
        }
        if self.tracks.get(own).is_some_and(|track| track.aicpu.is_some()) {
            core.dispatched = self.thread.cycles();
        }
        self.thread.aicpu.registers().write_data_main_base(core.core, core.sequence);
    }

    fn time_out(&self) -> i32 {
        let Thread { run, .. } = *self.thread;
        let (stall, detail) = watchdog::diagnose(run, &self.graph);
        let text = watchdog::timeout_text(run.timeout, stall, &detail);
        self.graph.control().scheduler_error.set(code::SCHEDULER_TIMEOUT, stall as u32, &text);
        self.graph.set_fatal();
        self.thread.ring_others();
        -(code::SCHEDULER_TIMEOUT as i32)
    }

    /// After a failure: waits for the kernels that still run, so as to say which do not return in the time that a
    /// run may take without progress. The launch ends only when they have, which may be never.
    fn drain_cores(&mut self) {
        let Thread { run, aicpu, index, .. } = *self.thread;
        let event = aicpu.event(index);
        let registers = aicpu.registers();
        let deadline = Deadline::after(run.timeout);
        let mut relax = Relax::new();
        loop {
            let seen = event.epoch();
            self.cores.iter().enumerate().for_each(|(own, core)| {
                let cond = registers.cond(core.core);
                if self.running & 1 << own != 0
                    && cond.state == CondState::Fin
                    && cond.dispatch == core.sequence
                {
                    self.running &= !(1 << own);
                    if let Some(aicore) = self.tracks.get(own).and_then(|track| track.aicore.as_ref()) {
                        aicore.commit();
                    }
                }
            });
            if self.running == 0 {
                return;
            }
            if deadline.passed() {
                let own = self.cores.iter().enumerate().filter(|(own, _)| self.running & 1 << own != 0);
                let tasks =
                    watchdog::name_running(run, &self.graph, own.map(|(_, core)| (core.core, core.task)));
                let ms = run.timeout.as_millis();
                log_error!("still running {ms} ms after the run failed, which cannot end before: {tasks}");
                return;
            }
            relax.wait(event, seen);
        }
    }
}
