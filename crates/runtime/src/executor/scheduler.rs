//! A scheduler's thread: watch its own cores, complete what they finish, give them what is ready.
//!
//! Cores belong to schedulers for the length of a run (cluster ci to scheduler ci mod the number of schedulers), so a
//! core's record has one writer. Ready tasks belong to nobody: any scheduler with an idle core of the right kind may
//! take one. A scheduler that leaves tasks in a queue because its own cores are busy rings another that has an idle
//! one; if no such scheduler exists, whoever gets a core back looks at the queue first. So one scheduler carries a
//! steady load alone while the others stay parked, and no task waits next to an idle core.
//!
//! A core has two payloads, so a second task can be written to it while its kernel runs (*pending*): it goes on without
//! waiting for its scheduler. That is for when no core of that kind is idle anywhere, since a task that was written to a
//! core cannot go to another one that becomes idle first. The core must have acknowledged the first, which the second
//! would replace otherwise; and it is not done for kernels that may wait for each other, which are to start at once.

use std::sync::atomic::Ordering;

use simpler_device_phase::{Phase, TaskAttrs, cycles_to_ns};
use simpler_host_log::{log_error, log_timing};
use simpler_kernel_abi::{SimplerCompletions, SimplerKernelArgs};
use simpler_platform::{CondState, DispatchPayload, Registers};
use simpler_relax::{Deadline, Relax};
use simpler_swimlane::{AicoreTask, AicpuTask, SchedKind, SchedPhase, Writer};

use super::deferred::{DEFERRED_MAX, Part};
use super::watchdog::{self, Watchdog};
use super::{SCHED_PROFILING, Thread};
use crate::code;
use crate::graph::arena::{EARLY, Graph, TOGETHER};
use crate::graph::early::{Becomes, CoreSet};
use crate::graph::fan::{PLACES, TaskWork};
use crate::graph::gathering::Round;
use crate::graph::{GraphError, SHAPES, Shape};
use crate::orchestration::CORES_PER_CLUSTER;

/// Clusters of one scheduler: their cores are bits of one word. More than an a5 has (RUNTIME §1.5).
pub(crate) const OWN_CLUSTERS_MAX: usize = u128::BITS as usize / PLACES;
/// The first place of every cluster.
const AIC_BITS: u128 = {
    let (mut bits, mut cluster) = (0, 0);
    while cluster < OWN_CLUSTERS_MAX {
        bits |= 1 << (cluster * PLACES);
        cluster += 1;
    }
    bits
};
/// All places of a cluster.
const CLUSTER: u128 = (1 << PLACES) - 1;
/// Shapes in the order in which they get cores: what needs most comes first.
const DISPATCH_ORDER: [Shape; SHAPES.len()] = [Shape::Mix, Shape::Aic, Shape::Aiv];

/// Prepares the cores' records for the handshake, and forgets how the last run failed. The leader, before anybody
/// attaches or can fail this run.
pub(super) fn prepare_cores(graph: &Graph<'_>) {
    graph.forget_failure();
    for core in 0..graph.cores() {
        // ORDERING: Relaxed: published by the gate that the leader opens.
        graph.running_on(core).store(0, Ordering::Relaxed);
        graph.deferred_on(core).store(0, Ordering::Relaxed);
        for payload in 0..2 {
            // SAFETY: in the arena; no core is attached yet, so nobody else knows it. A run that failed may have left
            // something.
            unsafe { (*graph.completions(core, payload)).count = 0 };
        }
    }
}

/// A core of this scheduler. Its index among them is its cluster's, times the places, plus its place.
#[derive(Clone, Copy)]
struct OwnCore {
    core: usize,
    payloads: *mut [DispatchPayload; 2],
    /// The last DATA_MAIN_BASE value; its parity selects the payload.
    sequence: u64,
    /// What it runs, and what it runs next.
    parts: [Dispatched; 2],
}

/// A part of a task that was written to a core.
#[derive(Clone, Copy, Default)]
struct Dispatched {
    /// The DATA_MAIN_BASE value.
    sequence: u64,
    task: u32,
    /// Of that task.
    attrs: TaskAttrs,
    /// That task has more parts than this one.
    shares: bool,
    /// When it was dispatched, if that is recorded.
    dispatched: u64,
    /// The core fills a record of it.
    recorded: bool,
}

/// Where the tasks of a core are recorded.
struct CoreTrack<'a> {
    aicore: Option<Writer<'a, AicoreTask>>,
    aicpu: Option<Writer<'a, AicpuTask>>,
}

/// When a core may start what is written to it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Publish {
    Now,
    /// When its doorbell is rung.
    Gated,
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
    /// Cores by bit: idle ones, and those that run something. What is neither is held for a task that gathers.
    idle: u128,
    running: u128,
    /// Of those that run something: which were seen to have acknowledged it, and which have the next one already.
    acknowledged: u128,
    pending: u128,
    /// And those to which it was staged; more than wait for their doorbell, since others ring it.
    staged: u128,
    /// A cluster that takes nothing but a MIX task: the last, while one waits and none is idle as a whole.
    reserved: u128,
    /// The shapes that this thread has told others it has cores for.
    told_idle: [bool; SHAPES.len()],
    /// First cores and blocks that are held for the task that gathers.
    held: Vec<(usize, u32)>,
    /// Parts whose kernels have returned, and which wait for what those have left to others.
    deferred: Vec<Part>,
    /// Tasks without kernels that wait for nothing any more.
    dummies: Vec<u32>,
    /// Memory for tasks that others are to stage.
    rest: Vec<u32>,
    /// One a core where tasks are recorded, else none.
    tracks: Vec<CoreTrack<'a>>,
    /// Where this thread's phases are recorded, if they are.
    phase_track: Option<Writer<'a, SchedPhase>>,
    /// Rounds of the loop, and tasks dispatched; counted for profiling and for phases only.
    loops: u64,
    scheduled: u64,
    /// Why this thread has failed the run, if it has.
    status: i32,
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
            idle: 0,
            running: 0,
            acknowledged: 0,
            pending: 0,
            staged: 0,
            reserved: 0,
            told_idle: [false; SHAPES.len()],
            held: Vec::new(),
            deferred: Vec::new(),
            dummies: Vec::new(),
            rest: Vec::new(),
            tracks: Vec::new(),
            phase_track: None,
            loops: 0,
            scheduled: 0,
            status: 0,
        };
        // SAFETY: this thread's own pool, of which it makes one writer.
        scheduler.phase_track = thread.track.and_then(|track| unsafe { track.thread_writer() });
        for cluster in (thread.index..clusters).step_by(schedulers) {
            // AICs are numbered first, then the AIVs in pairs.
            let pair = CORES_PER_CLUSTER[1] as usize;
            scheduler.attach_core(cluster);
            for aiv in 0..pair {
                scheduler.attach_core(clusters + cluster * pair + aiv);
            }
        }
        scheduler.idle = 1_u128.unbounded_shl(scheduler.cores.len() as u32).wrapping_sub(1);
        scheduler
    }

    fn attach_core(&mut self, core: usize) {
        let registers = self.thread.aicpu.registers();
        let payloads = self.graph.payloads(core);
        // SAFETY: the payloads are in the arena, which stays until the launch was waited for; only this thread
        // writes them, and only as the protocol allows.
        unsafe { registers.attach(core, self.thread.index, payloads) };
        // The platform may or may not have reset the core since the last launch; a value must differ from the last.
        let sequence = registers.cond(core).dispatch;
        self.cores.push(OwnCore { core, payloads, sequence, parts: Default::default() });
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
        self.leave_gathering();
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
        self.tell_idle(true);
        let event = aicpu.event(index);
        // FIN is expected soon while a kernel runs. Who has nothing running is rung when it is needed, and would only
        // take turns on a CPU that a kernel could have; the first scheduler is the first to be rung.
        let (mut relax, mut idle) = (Relax::new(), Relax::parking());
        let mut watchdog = Watchdog::new(run.timeout, &self.graph);
        loop {
            let seen = event.epoch();
            if self.graph.is_fatal() {
                return self.status;
            }
            if self.turn() {
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
            // What is staged finishes when somebody else has rung its doorbell.
            let runs = self.running & !self.staged != 0;
            let expects = runs || !self.deferred.is_empty() || index == 0;
            let wait = if expects { &mut relax } else { &mut idle };
            wait.wait(event, seen);
        }
    }

    /// Deals with what has finished and what is ready; whether there was anything.
    pub(super) fn turn(&mut self) -> bool {
        let began = self.phase_began();
        let completed = self.poll_cores();
        if completed != 0 {
            self.tell_idle(true);
        }
        let began = self.phase_ended(began, SchedKind::Complete, completed, Pops::default());
        let arrived = self.poll_deferred();
        let began = self.phase_ended(began, SchedKind::AsyncPoll, arrived, Pops::default());
        if completed != 0 || arrived != 0 {
            // What they wait for may have come by what was completed here.
            self.thread.ring(self.graph.deferring());
        }
        let gathered = self.gather();
        let began = self.phase_ended(began, SchedKind::Drain, gathered, Pops::default());
        let pops = self.dispatch_ready(completed != 0 || arrived != 0 || gathered != 0);
        let began = self.phase_ended(began, SchedKind::Dispatch, pops.hits, pops);
        let early = self.stage_early();
        self.phase_ended(began, SchedKind::EarlyDispatch, early.hits, early);
        if SCHED_PROFILING || self.phase_track.is_some() {
            self.loops += 1;
        }
        completed != 0 || arrived != 0 || gathered != 0 || pops.hits != 0 || early.hits + early.misses != 0
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

    /// Records that a task without kernels, or one that its predicate skipped, has finished.
    fn finished_without_core(&self, kind: SchedKind, task: u32) {
        let Some(track) = &self.phase_track else { return };
        let (now, depths) = (self.thread.cycles(), self.depths());
        // What is lost was counted in the pool.
        track.append(SchedPhase {
            start: now,
            end: now,
            loop_iter: self.loops as u32,
            kind: kind as u32,
            tasks: 1,
            detail: SchedPhase::task(self.graph.task_in(task).raw()),
            depths_at_start: depths,
            depths_at_end: depths,
            ..SchedPhase::default()
        });
    }

    /// How many tasks wait for cores, by shape.
    fn depths(&self) -> [i16; 3] {
        let mut depths = [0; 3];
        for (depth, queue) in depths.iter_mut().zip(&self.graph.ready) {
            *depth = i16::try_from(queue.len_hint()).unwrap_or(i16::MAX);
        }
        depths
    }

    /// Deals with what has finished on its cores; how many parts have.
    fn poll_cores(&mut self) -> u32 {
        let registers = self.thread.aicpu.registers();
        let (mut left, mut finished) = (self.running, 0);
        while left != 0 {
            let own = left.trailing_zeros() as usize;
            left &= left - 1;
            let OwnCore { core, parts: [first, _], .. } = self.cores[own];
            let cond = registers.cond(core);
            if cond.dispatch == first.sequence && cond.state != CondState::Fin {
                self.acknowledged |= 1 << own;
                self.staged &= !(1 << own);
                continue;
            }
            // What was written before the last one has finished, too, once that was acknowledged.
            while self.running >> own & 1 != 0 {
                let [Dispatched { sequence, .. }, _] = self.cores[own].parts;
                if cond.dispatch < sequence || cond.dispatch == sequence && cond.state != CondState::Fin {
                    break;
                }
                self.complete(own);
                finished += 1;
            }
            // Of what is on the core now, if anything is.
            let [Dispatched { sequence, .. }, _] = self.cores[own].parts;
            if self.running >> own & 1 != 0 && cond.dispatch == sequence {
                self.acknowledged |= 1 << own;
            }
        }
        finished
    }

    fn complete(&mut self, own: usize) {
        let OwnCore { core, parts: [first, next], .. } = self.cores[own];
        let Dispatched { sequence, task, attrs, shares, dispatched, recorded } = first;
        // FIN was acquired just now, and nothing of the completion has been done (RUNTIME §4.5).
        if let Some(slot) = attrs.slot() {
            self.thread.stamper.task_finished(slot, self.thread.aicpu.cycles_after_reads());
        }
        if let Some(track) = self.tracks.get(own) {
            if let Some(aicore) = track.aicore.as_ref().filter(|_| recorded) {
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
        self.acknowledged &= !(1 << own);
        self.staged &= !(1 << own);
        let runs = if self.pending >> own & 1 != 0 {
            self.pending &= !(1 << own);
            self.cores[own].parts[0] = next;
            next.task + 1
        } else {
            self.running &= !(1 << own);
            self.idle |= 1 << own;
            0
        };
        // ORDERING: Relaxed: a number for a message.
        graph.running_on(core).store(runs, Ordering::Relaxed);
        let said = graph.completions(core, (sequence & 1) as usize);
        // SAFETY: in the arena, and written by the kernel only, which has returned.
        if unsafe { (*said).count } != 0 {
            return self.defer((task, shares, core), said);
        }
        self.finish_part(task, shares);
    }

    /// A part of a task is done: its kernel has returned, and all that it has left to others has come.
    fn finish_part(&mut self, task: u32, shares: bool) {
        if !shares || self.graph.tasks.slot(task).finish_part() {
            self.finish_task(task);
        }
    }

    /// Keeps a part of which the kernel has left something to others.
    #[cold]
    fn defer(&mut self, part: (u32, bool, usize), said: *mut SimplerCompletions) {
        let (task, shares, core) = part;
        // SAFETY: in the arena, and this thread's own between the kernel's return and the next dispatch to its core.
        let said = std::mem::take(unsafe { &mut *said });
        let engine = std::ptr::with_exposed_provenance(self.thread.run.copy_engine as usize);
        match Part::of(part, &said, engine) {
            Ok(None) => self.finish_part(task, shares),
            Ok(Some(_)) if self.deferred.len() == DEFERRED_MAX => {
                let text = format!("{DEFERRED_MAX} kernels of one scheduler's cores wait already");
                self.fail_task(task, GraphError { code: code::ASYNC_WAITS_FULL, text });
            }
            Ok(Some(part)) => {
                if self.deferred.is_empty() {
                    self.graph.set_deferring(self.thread.index, true);
                }
                self.deferred.push(part);
                self.name_deferred(core);
            }
            Err(error) => self.fail_task(task, error),
        }
    }

    /// Finishes the parts for which everything has come; how many.
    fn poll_deferred(&mut self) -> u32 {
        if self.deferred.is_empty() {
            return 0;
        }
        let (mut at, mut arrived) = (0, 0);
        while let Some(part) = self.deferred.get_mut(at) {
            match part.is_done() {
                Ok(false) => at += 1,
                Ok(true) => {
                    let Part { task, shares, core, .. } = self.deferred.swap_remove(at);
                    arrived += 1;
                    self.name_deferred(core);
                    self.finish_part(task, shares);
                }
                Err(error) => {
                    let task = self.deferred.swap_remove(at).task;
                    self.fail_task(task, error);
                    return arrived;
                }
            }
        }
        if self.deferred.is_empty() {
            self.graph.set_deferring(self.thread.index, false);
        }
        arrived
    }

    /// Notes one of the parts that wait and have run on a core, for diagnosis.
    fn name_deferred(&self, core: usize) {
        let waits = self.deferred.iter().find(|part| part.core == core).map_or(0, |part| part.task + 1);
        // ORDERING: Relaxed: a number for a message.
        self.graph.deferred_on(core).store(waits, Ordering::Relaxed);
    }

    /// Fails the run because of what a kernel of a task wants.
    fn fail_task(&mut self, task: u32, error: GraphError) {
        let GraphError { code, text } = error;
        let named = watchdog::name_task(self.thread.run, &self.graph, task);
        self.graph.control().scheduler_error.set(code, 0, &format!("{named}: {text}"));
        self.graph.set_fatal();
        self.status = -(code as i32);
        self.thread.ring_others();
    }

    /// Completes a task that has finished, and those without kernels that waited for nothing else.
    fn finish_task(&mut self, task: u32) {
        let graph = self.graph;
        let mut finished = Some(task);
        while let Some(task) = finished {
            let (dummies, registers) = (&mut self.dummies, self.thread.aicpu.registers());
            graph.complete(task, |successor| {
                let work = graph.tasks.slot(successor).work();
                let becomes =
                    if work.listens { graph.tasks.early(successor).make_ready() } else { Becomes::READY };
                ring_doorbells(registers, becomes.staged, &work);
                match work.kernels.shape() {
                    // One that is queued is looked at by this thread, too, before it waits.
                    Some(_) if !becomes.ready => {}
                    Some(shape) => graph.push_ready(successor, shape, work.starts_together()),
                    None => dummies.push(successor),
                }
            });
            if graph.is_awaited(task) {
                self.thread.aicpu.event(self.thread.leader()).notify_one();
            }
            finished = self.dummies.pop();
            if let Some(dummy) = finished {
                self.finished_without_core(SchedKind::DummyTask, dummy);
            }
        }
        if graph.is_drained() {
            self.thread.ring_others();
        }
    }

    /// The idle cores of a shape, or for a MIX task the first cores of idle clusters.
    fn units(&self, shape: Shape) -> u128 {
        let idle = self.idle;
        match shape {
            Shape::Aic => idle & AIC_BITS & !self.reserved,
            Shape::Aiv => idle & !AIC_BITS & !self.reserved,
            Shape::Mix => idle & idle >> 1 & idle >> 2 & AIC_BITS,
        }
    }

    /// The cores of a shape that could be given their next task while they run one, if no idle core is to be had: see
    /// the module.
    fn spare(&self, shape: Shape) -> u128 {
        let mut spare = self.acknowledged & !self.pending & !self.reserved;
        // Where the record of what runs now keeps the buffer, the next task's would be lost.
        for (own, track) in self.tracks.iter().enumerate() {
            if track.aicore.as_ref().is_some_and(Writer::is_held_up) {
                spare &= !(1 << own);
            }
        }
        match shape {
            Shape::Aic => spare & AIC_BITS,
            Shape::Aiv => spare & !AIC_BITS,
            Shape::Mix => 0,
        }
    }

    /// Whether a task of a shape waits that nobody has an idle core for.
    fn waits_for_any(&self, shape: Shape) -> bool {
        self.units(shape) == 0
            && !self.graph.ready[shape as usize].is_empty()
            && self.graph.idle_schedulers(shape) & !(1 << self.thread.index) == 0
    }

    /// While a MIX task waits and no cluster is idle as a whole, the last cluster takes nothing else, or cores that
    /// become idle one by one would never make one.
    fn reserve(&mut self) {
        let waits = self.units(Shape::Mix) == 0 && !self.graph.ready[Shape::Mix as usize].is_empty();
        let last = self.cores.len().saturating_sub(PLACES);
        self.reserved = if waits { CLUSTER << last } else { 0 };
    }

    /// Tells others of the shapes that this thread has cores for now and had none before, or the other way round; which
    /// they are.
    pub(super) fn tell_idle(&mut self, idle: bool) -> [bool; SHAPES.len()] {
        SHAPES.map(|shape| {
            let told = self.told_idle[shape as usize];
            let changed = told != idle && (self.units(shape) != 0) == idle;
            if changed {
                self.told_idle[shape as usize] = idle;
                self.graph.set_idle(shape, self.thread.index, idle);
            }
            changed
        })
    }

    /// Gives ready tasks to idle cores; how many, and how often there was a core and no task. None while a task gathers
    /// cores. `changed`: this thread may have made tasks ready, or has given cores away.
    fn dispatch_ready(&mut self, mut changed: bool) -> Pops {
        let mut pops = Pops::default();
        if self.graph.control().gathering.round().is_some_and(|round| round.unclaimed != 0) {
            return pops;
        }
        let before = self.reserved;
        self.reserve();
        if self.reserved != before {
            self.tell_idle(true);
        }
        let mut dispatched = [false; SHAPES.len()];
        for shape in DISPATCH_ORDER {
            while self.units(shape) != 0 {
                let Some(task) = self.graph.ready[shape as usize].pop() else {
                    pops.misses += 1;
                    break;
                };
                // One that is skipped may have made others ready, of any shape.
                changed |= !self.dispatch(shape, task, self.units(shape));
                pops.hits += 1;
                dispatched[shape as usize] = true;
            }
        }
        for shape in [Shape::Aic, Shape::Aiv] {
            while self.spare(shape) != 0 && self.waits_for_any(shape) {
                let Some(task) = self.graph.ready[shape as usize].pop() else { break };
                changed |= !self.dispatch(shape, task, self.spare(shape));
                pops.hits += 1;
                dispatched[shape as usize] = true;
            }
        }
        if pops.hits == 0 && !changed && self.reserved == before {
            return pops;
        }
        let mix = Shape::Mix as usize;
        if dispatched[mix] && self.graph.ready[mix].is_empty() {
            // Others may keep a cluster for a task that is gone.
            self.thread.ring_others();
        }
        let lost = self.tell_idle(false);
        for shape in SHAPES {
            let look = changed || dispatched[shape as usize] || lost[shape as usize];
            if look && self.units(shape) == 0 && !self.graph.ready[shape as usize].is_empty() {
                self.pass_on(shape);
            }
        }
        pops
    }

    /// Takes every task that may be staged from the queue. One that is ready goes into the ready queue. Of any other as many
    /// blocks as there are idle cores for are staged, unless ready tasks want those. What is left of one that was begun is
    /// for other schedulers; one that this thread cannot begin waits like all tasks, since who takes part in a row of tasks
    /// has to look after it, too. How many had blocks staged, and how many turned out to be ready. None while a task
    /// gathers cores.
    fn stage_early(&mut self) -> Pops {
        let (graph, mut pops) = (self.graph, Pops::default());
        if graph.ready[EARLY].is_empty()
            || graph.control().gathering.round().is_some_and(|round| round.unclaimed != 0)
        {
            return pops;
        }
        // Put back after the others were looked at, or this thread would meet them again.
        let (mut rest, mut ring) = (std::mem::take(&mut self.rest), 0);
        while let Some(task) = graph.ready[EARLY].pop() {
            let (work, early) = (graph.tasks.slot(task).work(), graph.tasks.early(task));
            // It has kernels, or it would not listen.
            let Some(shape) = work.kernels.shape() else { continue };
            let is_wanted = !graph.ready[shape as usize].is_empty();
            if !is_wanted && !early.is_ready() {
                let units = self.units(shape) & !self.never_staged();
                if units != 0 {
                    pops.hits += 1;
                    if self.stage(task, &work, units) {
                        continue;
                    }
                }
                self.tell_lost();
                let others = graph.idle_schedulers(shape) & !(1 << self.thread.index);
                let is_begun = graph.tasks.slot(task).next_block() != 0;
                if is_begun && others != 0 && self.units(shape) & !self.never_staged() == 0 {
                    ring |= others & others.wrapping_neg();
                    rest.push(task);
                    continue;
                }
            }
            if early.give_up() {
                graph.push_ready(task, shape, false);
                pops.misses += 1;
                if self.units(shape) == 0 {
                    self.pass_on(shape);
                }
            }
        }
        rest.drain(..).for_each(|task| graph.push_early(task));
        self.rest = rest;
        self.thread.ring(ring);
        if pops.hits != 0 {
            self.tell_lost();
        }
        pops
    }

    /// Cores that nothing is staged to: one cluster of the chip, so that what is ready gets on, whatever the tasks that
    /// staged ones wait for wait for themselves.
    const fn never_staged(&self) -> u128 {
        if self.thread.index == 0 { CLUSTER } else { 0 }
    }

    /// Tells others of the shapes that this thread has no cores for any more; what was made ready for it meanwhile is
    /// theirs.
    fn tell_lost(&mut self) {
        let lost = self.tell_idle(false);
        for shape in SHAPES {
            if lost[shape as usize] && !self.graph.ready[shape as usize].is_empty() {
                self.pass_on(shape);
            }
        }
    }

    /// Puts blocks of a task onto cores of this thread, where they wait for the doorbell; whether those were all that were
    /// left.
    fn stage(&mut self, task: u32, work: &TaskWork, mut units: u128) -> bool {
        let slot = self.graph.tasks.slot(task);
        let first = slot.next_block();
        let end = work.blocks.min(first + units.count_ones());
        slot.set_next_block(end);
        if SCHED_PROFILING && first == 0 {
            self.scheduled += 1;
        }
        let mut cores: CoreSet = 0;
        for block in first..end {
            let unit = units.trailing_zeros() as usize;
            units &= units - 1;
            let taken = taken(work, unit);
            self.idle &= !taken;
            self.start_block(task, work, unit, block, Publish::Gated);
            let mut left = taken;
            while left != 0 {
                cores |= 1 << self.cores[left.trailing_zeros() as usize].core;
                left &= left - 1;
            }
        }
        let all = end == work.blocks;
        let ring = self.graph.tasks.early(task).stage(cores, all);
        ring_doorbells(self.thread.aicpu.registers(), ring, work);
        if all && work.announces() {
            self.announce(task);
        }
        all
    }

    /// Says that all of a task is on cores.
    fn announce(&self, task: u32) {
        self.graph.tasks.announce(task, |listener| self.graph.push_early(listener));
    }

    /// Rings another scheduler that has idle cores for a shape.
    fn pass_on(&self, shape: Shape) {
        let others = self.graph.idle_schedulers(shape) & !(1 << self.thread.index);
        if others != 0 {
            self.thread.aicpu.event(others.trailing_zeros() as usize).notify_one();
        }
    }

    /// Starts as many blocks of a task as there are cores for in `units`; false where its predicate says that it is to be
    /// skipped.
    fn dispatch(&mut self, shape: Shape, task: u32, mut units: u128) -> bool {
        let slot = self.graph.tasks.slot(task);
        let (work, first) = (slot.work(), slot.next_block());
        if first == 0 && !self.begins(task, &work) {
            return false;
        }
        let end = work.blocks.min(first + units.count_ones());
        // The rest goes back before these start, so that others take part at once.
        if end < work.blocks {
            slot.set_next_block(end);
            self.graph.push_ready(task, shape, false);
        }
        for block in first..end {
            let unit = units.trailing_zeros() as usize;
            units &= units - 1;
            self.idle &= !taken(&work, unit);
            self.start_block(task, &work, unit, block, Publish::Now);
        }
        if end == work.blocks && work.announces() {
            self.announce(task);
        }
        true
    }

    /// Whether a task that nobody has begun runs at all; one that does not is finished.
    fn begins(&mut self, task: u32, work: &TaskWork) -> bool {
        if !self.graph.predicate_holds(work) {
            self.finished_without_core(SchedKind::PredicatedSkip, task);
            self.finish_task(task);
            return false;
        }
        if SCHED_PROFILING {
            self.scheduled += 1;
        }
        true
    }

    /// Gives what is idle to the task that gathers, and starts what is held for it once nothing is missing; how many
    /// blocks were claimed or started. Where none gathers, the next one begins.
    fn gather(&mut self) -> u32 {
        let graph = self.graph;
        let gathering = &graph.control().gathering;
        let mut blocks = 0;
        if !graph.ready[TOGETHER].is_empty()
            && let Some(opening) = gathering.open()
        {
            blocks += u32::from(self.begin_gathering(opening));
        }
        let Some(round) = gathering.round() else { return blocks };
        // Of another task, if the round is over; nothing comes of it then.
        let work = graph.tasks.slot(round.task).work();
        let Some(shape) = work.kernels.shape() else { return blocks };
        if std::mem::take(&mut self.reserved) != 0 {
            self.tell_idle(true);
        }
        if let Some(claimed) = gathering.claim(round, self.units(shape).count_ones()) {
            if claimed.start == 0 {
                // They have what is missing, or may go on.
                self.thread.ring_others();
            }
            for block in claimed {
                let unit = self.units(shape).trailing_zeros() as usize;
                self.idle &= !taken(&work, unit);
                self.held.push((unit, block));
                blocks += 1;
            }
        }
        // What is held is for this task, which cannot end before it.
        if !self.held.is_empty() && gathering.round().is_some_and(|round| round.unclaimed == 0) {
            blocks += self.start_held(round);
        }
        blocks
    }

    /// Gives back what is held for a task that gathers, or starts it, where others may have started theirs.
    fn leave_gathering(&mut self) {
        let gathering = &self.graph.control().gathering;
        let Some(round) = gathering.round().filter(|_| !self.held.is_empty()) else { return };
        if !gathering.call_off(round) {
            self.start_held(round);
        }
    }

    /// Starts the blocks of a task that are held; how many.
    fn start_held(&mut self, round: Round) -> u32 {
        let (graph, task) = (self.graph, round.task);
        let work = graph.tasks.slot(task).work();
        let held = std::mem::take(&mut self.held);
        for (unit, block) in &held {
            self.start_block(task, &work, *unit, *block, Publish::Now);
        }
        graph.control().gathering.dispatched(round, held.len() as u32);
        held.len() as u32
    }

    /// Lets the next task gather, or nobody; whether there was one.
    fn begin_gathering(&mut self, opening: Round) -> bool {
        let gathering = &self.graph.control().gathering;
        let Some(task) = self.graph.ready[TOGETHER].pop() else {
            gathering.close(opening);
            return false;
        };
        let work = self.graph.tasks.slot(task).work();
        if self.begins(task, &work) {
            gathering.begin(opening, task, work.blocks);
            self.thread.ring_others();
        } else {
            gathering.close(opening);
        }
        true
    }

    /// Starts a block on the cores of a unit.
    fn start_block(&mut self, task: u32, work: &TaskWork, unit: usize, block: u32, publish: Publish) {
        if work.kernels.shape() != Some(Shape::Mix) {
            return self.start((task, work, block), unit, work.kernels.only(), publish);
        }
        for place in 0..PLACES {
            if let Some(kernel) = work.kernels.at(place) {
                self.start((task, work, block), unit + place, kernel, publish);
            }
        }
    }

    /// Writes a kernel of a block of a task to a core.
    fn start(
        &mut self,
        (task, work, block): (u32, &TaskWork, u32),
        own: usize,
        kernel: u64,
        publish: Publish,
    ) {
        let is_next = self.running >> own & 1 != 0;
        let core = &mut self.cores[own];
        core.sequence += 1;
        let part = &mut core.parts[usize::from(is_next)];
        *part = Dispatched {
            sequence: core.sequence,
            task,
            attrs: work.attrs,
            shares: work.parts() != 1,
            dispatched: 0,
            recorded: false,
        };
        if is_next {
            self.pending |= 1 << own;
        } else {
            self.running |= 1 << own;
            // ORDERING: Relaxed: a number for a message.
            self.graph.running_on(core.core).store(task + 1, Ordering::Relaxed);
        }
        // Reserved before the dispatch, so before the core's ACK; the core fills it before its FIN.
        let aicore = self.tracks.get(own).and_then(|track| track.aicore.as_ref());
        let record = aicore.and_then(|aicore| {
            let (token, reg_task_id) = (self.graph.task_in(task).raw(), core.sequence as u32);
            aicore.reserve(AicoreTask { token, reg_task_id, ..AicoreTask::default() })
        });
        part.recorded = record.is_some();
        let record = record.map_or(0, |record| record.expose_provenance() as u64);
        let parity = (core.sequence & 1) as usize;
        let args = SimplerKernelArgs {
            completions: self.graph.completions(core.core, parity),
            copy_engine: std::ptr::with_exposed_provenance_mut(self.thread.run.copy_engine as usize),
            ..self.graph.kernel_args(work, block)
        };
        let payload = DispatchPayload { kernel, args, record };
        let target = core.payloads.cast::<DispatchPayload>().wrapping_add(parity);
        // SAFETY: one of the two payloads of a core that this thread owns. The core may run what was written last, with the
        // other one; what had this one has finished, and it is read only after the write of DATA_MAIN_BASE below.
        unsafe { target.write(payload) };
        // The payload is there, the register's write comes next (RUNTIME §4.5).
        if let Some(slot) = work.attrs.slot() {
            self.thread.stamper.task_dispatched(slot, self.thread.cycles());
        }
        if self.tracks.get(own).is_some_and(|track| track.aicpu.is_some()) {
            part.dispatched = self.thread.cycles();
        }
        let registers = self.thread.aicpu.registers();
        if publish == Publish::Gated {
            self.staged |= 1 << own;
            registers.stage_data_main_base(core.core, core.sequence);
        } else if work.runs_together() {
            registers.write_data_main_base_together(core.core, core.sequence);
        } else {
            registers.write_data_main_base(core.core, core.sequence);
        }
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
        // What waits for its doorbell never starts; unless somebody is about to ring it, and then the launch waits.
        let staged = (0..self.cores.len()).filter(|own| self.staged >> own & 1 != 0);
        let gated = staged.filter(|own| !self.graph.tasks.early(self.cores[*own].parts[0].task).is_ready());
        self.running &= !gated.fold(0, |bits, own| bits | 1 << own);
        loop {
            let seen = event.epoch();
            self.cores.iter().enumerate().for_each(|(own, core)| {
                let cond = registers.cond(core.core);
                // With the last one all that was written to the core has finished.
                if self.running & 1 << own != 0
                    && cond.state == CondState::Fin
                    && cond.dispatch == core.sequence
                {
                    self.running &= !(1 << own);
                    let parts = &core.parts[..1 + (self.pending >> own & 1) as usize];
                    if let Some(aicore) = self.tracks.get(own).and_then(|track| track.aicore.as_ref()) {
                        parts.iter().filter(|part| part.recorded).for_each(|_| aicore.commit());
                    }
                }
            });
            if self.running == 0 {
                return;
            }
            if deadline.passed() {
                let own = self.cores.iter().enumerate().filter(|(own, _)| self.running & 1 << own != 0);
                let runs = own.map(|(own, core)| {
                    // The second, where that has followed the first.
                    let second = self.pending >> own & 1 != 0
                        && registers.cond(core.core).dispatch == core.parts[1].sequence;
                    (core.core, core.parts[usize::from(second)].task)
                });
                let tasks = watchdog::name_running(run, &self.graph, runs);
                let ms = run.timeout.as_millis();
                log_error!("still running {ms} ms after the run failed, which cannot end before: {tasks}");
                return;
            }
            relax.wait(event, seen);
        }
    }
}

/// Rings the doorbells of cores that a task was staged to.
fn ring_doorbells(registers: &dyn Registers, mut cores: CoreSet, work: &TaskWork) {
    while cores != 0 {
        registers.ring_doorbell(cores.trailing_zeros() as usize, work.runs_together());
        cores &= cores - 1;
    }
}

/// The cores of this thread that a block takes when it starts at `unit`: of a cluster those that it has kernels for.
fn taken(work: &TaskWork, unit: usize) -> u128 {
    let places = if work.kernels.shape() == Some(Shape::Mix) { work.kernels.places() } else { 1 };
    u128::from(places) << unit
}
