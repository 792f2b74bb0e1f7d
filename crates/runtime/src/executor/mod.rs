//! What runs on the AICPU: one orchestrator that fills the graph, and schedulers that drain it.
//!
//! A run is one [`RunProgram`], executed by every AICPU thread that survives the affinity gate. Each takes an index
//! of its own: the first to arrive is N − 1, the orchestrator, the others N − 2 down to 0 are schedulers. All go
//! through the same stages: *preamble* (the leader prepares the cores' records, schedulers shake hands with their
//! clusters), *graph build* (the orchestrator validates, wires and resets, then releases the schedulers and submits
//! while they dispatch), and the teardown, which belongs to whoever finishes last.
//!
//! A graph that the host has built needs no orchestrator: the leader prepares the cores and then schedules like the
//! others. Of such a run the device stamps the wall and the task slots only (RUNTIME §3.7).
//!
//! Every thread that another one waits for holds a guard whose drop releases the waiters, so an error, or a panic,
//! on any path ends the run instead of hanging it.

mod deferred;
mod orchestrator;
mod scheduler;
mod watchdog;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use simpler_device_phase::{Phase, PhaseStamper};
use simpler_kernel_abi::SimplerTensor;
use simpler_platform::{Aicpu, AicpuProgram, DeviceAddr, Profile, Teardown};
use simpler_relax::{Deadline, Relax};
use simpler_swimlane::ThreadTrack;

use crate::code;
use crate::graph::arena::{ArenaLayout, Graph};
use crate::graph::builder::{Builder, TaskArg};
use crate::orchestration::{Callable, ObjectTable};
use crate::run::{GraphRuntime, schedulers};
use crate::swimlane::RunTrack;

pub(crate) use scheduler::OWN_CLUSTERS_MAX;

/// The status of a thread that the executor does not expect, or that panicked; no code of RUNTIME §2.3 fits.
const INTERNAL: i32 = -(code::EXPLICIT_FATAL as i32);

/// Whether variable phases can be recorded (`SIMPLER_DFX`).
pub(crate) const DFX: bool = cfg!(feature = "dfx");
/// Whether the orchestrator logs its window and how many tasks it submitted.
const ORCH_PROFILING: bool = cfg!(feature = "orch-profiling");
/// Whether each scheduler logs its window, how often it went round, and how many tasks it scheduled.
const SCHED_PROFILING: bool = cfg!(feature = "sched-profiling");

/// What outlives a run: the orchestrator's memory and the loaded objects.
#[derive(Default)]
pub(crate) struct Executor {
    orchestrator: Mutex<OrchestratorState>,
}

/// What the orchestrator keeps from run to run.
#[derive(Default)]
struct OrchestratorState {
    objects: ObjectTable,
    builder: Builder,
    arguments: Vec<TaskArg>,
}

impl Executor {
    fn orchestrator(&self) -> MutexGuard<'_, OrchestratorState> {
        // A panicked holder left a builder that the next run clears, and a table that is whole between calls.
        self.orchestrator.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One run.
pub(crate) struct RunProgram {
    pub(crate) graph_runtime: GraphRuntime,
    pub(crate) executor: Arc<Executor>,
    pub(crate) callable: Arc<Callable>,
    /// With as many AICPU threads as the run has.
    pub(crate) profile: Profile,
    /// The threads that the platform sends here; what is more than the run has leaves at once.
    pub(crate) survivors: usize,
    pub(crate) layout: ArenaLayout,
    /// Device address of the arena.
    pub(crate) arena: u64,
    /// Device address of the phase buffer, or 0.
    pub(crate) phase_buffer: u64,
    /// Device address of the copy engine's workspace, or 0.
    pub(crate) copy_engine: u64,
    /// Where variable phases are recorded, if they are.
    pub(crate) swimlane: Option<RunTrack>,
    pub(crate) tensors: Vec<SimplerTensor>,
    pub(crate) scalars: Vec<u64>,
    pub(crate) timeout: Duration,
    pub(crate) gates: Gates,
}

/// The words on which a run's threads meet.
#[derive(Default)]
pub(crate) struct Gates {
    arrived: AtomicUsize,
    /// The leader has prepared what the handshake needs.
    prepared: Gate,
    /// The graph is reset and wired (`runtime_init_ready`).
    runtime_ready: Gate,
    /// Schedulers that have entered their loop.
    scheduling: AtomicUsize,
    finished: AtomicUsize,
}

/// A one-way gate that opens or breaks.
#[derive(Default)]
struct Gate(AtomicU32);

impl Gate {
    const OPEN: u32 = 1;
    const BROKEN: u32 = 2;

    fn settle(&self, outcome: u32) {
        // ORDERING: Release: pairs with the Acquire in `settled`: who passes sees what was prepared. The first
        // outcome stays.
        let _ = self.0.compare_exchange(0, outcome, Ordering::Release, Ordering::Relaxed);
    }

    /// Whether the gate is open; None while nobody knows.
    fn settled(&self) -> Option<bool> {
        // ORDERING: Acquire: pairs with the Release in `settle`.
        match self.0.load(Ordering::Acquire) {
            0 => None,
            outcome => Some(outcome == Self::OPEN),
        }
    }
}

/// How the wait for a gate ended.
enum Passage {
    Open,
    /// The one who was to open it, or another who waited, has the reason.
    Broken,
    TimedOut,
}

/// Breaks a gate that its holder did not open, on every path, and wakes who waits there.
struct GateGuard<'a> {
    gate: &'a Gate,
    thread: &'a Thread<'a>,
}

impl GateGuard<'_> {
    /// Opens the gate; false when those who waited have given up and broken it.
    fn open(self) -> bool {
        self.gate.settle(Gate::OPEN);
        self.gate.settled() == Some(true)
    }
}

impl Drop for GateGuard<'_> {
    fn drop(&mut self) {
        self.gate.settle(Gate::BROKEN);
        self.thread.ring_others();
    }
}

/// One AICPU thread's view of a run.
struct Thread<'a> {
    run: &'a RunProgram,
    aicpu: &'a dyn Aicpu,
    index: usize,
    /// Stamps the phases inside the wall; nowhere, where a run has none.
    phases: PhaseStamper,
    /// Stamps the wall and the task slots.
    stamper: PhaseStamper,
    /// Records variable phases, where they are.
    track: Option<ThreadTrack<'a>>,
}

impl Thread<'_> {
    /// How many threads schedule: the lowest indices.
    fn schedulers(&self) -> usize {
        schedulers(self.run.graph_runtime, self.run.profile.aicpu_logical).unwrap_or(0)
    }

    /// The thread that prepares the run; the orchestrator, if there is one.
    fn leader(&self) -> usize {
        self.run.profile.aicpu_logical - 1
    }

    fn cycles(&self) -> u64 {
        self.aicpu.cycles()
    }

    /// Rings the threads of a set, by bit, but not this one.
    fn ring(&self, threads: u32) {
        let mut left = threads & !(1 << self.index);
        while left != 0 {
            self.aicpu.event(left.trailing_zeros() as usize).notify_one();
            left &= left - 1;
        }
    }

    fn ring_others(&self) {
        for other in (0..self.run.profile.aicpu_logical).filter(|other| *other != self.index) {
            self.aicpu.event(other).notify_one();
        }
    }

    /// Waits for a gate, no longer than the run's timeout: then it breaks, and who comes to open it says so.
    fn pass(&self, gate: &Gate) -> Passage {
        let settled = self.wait_for(|| gate.settled()).or_else(|| {
            gate.settle(Gate::BROKEN);
            // Open all the same, when it was opened at this moment.
            gate.settled().filter(|open| *open)
        });
        match settled {
            Some(true) => Passage::Open,
            Some(false) => Passage::Broken,
            None => Passage::TimedOut,
        }
    }

    /// Waits until `done` gives a value; None when the run's timeout passes first.
    fn wait_for<T>(&self, mut done: impl FnMut() -> Option<T>) -> Option<T> {
        let event = self.aicpu.event(self.index);
        let deadline = Deadline::after(self.run.timeout);
        let mut relax = Relax::new();
        loop {
            let seen = event.epoch();
            if let Some(value) = done() {
                return Some(value);
            }
            if deadline.passed() {
                return None;
            }
            relax.wait(event, seen);
        }
    }
}

/// Counts a thread as finished on every path; the last one tears the run down.
struct FinishGuard<'a> {
    thread: &'a Thread<'a>,
    graph: Option<Graph<'a>>,
}

impl Drop for FinishGuard<'_> {
    fn drop(&mut self) {
        let Thread { run, phases, stamper, .. } = self.thread;
        // ORDERING: AcqRel: pairs with itself: the last one sees what all others did.
        let finished = run.gates.finished.fetch_add(1, Ordering::AcqRel) + 1;
        if finished < run.profile.aicpu_logical {
            // The orchestrator may be waiting for a scheduler that ended without scheduling.
            self.thread.aicpu.event(self.thread.leader()).notify_one();
            return;
        }
        stamper.publish_tail_use();
        let _teardown = phases.scope(Phase::PostOrch, || self.thread.cycles());
        if run.profile.teardown == Teardown::InvalidateThenReset {
            self.thread.aicpu.invalidate(DeviceAddr(run.arena), ArenaLayout::control_bytes());
        }
        if let Some(graph) = &self.graph {
            graph.end_run();
            run.executor.orchestrator().builder.clear(graph);
        }
    }
}

impl AicpuProgram for RunProgram {
    fn execute(&self, aicpu: &dyn Aicpu) -> i32 {
        let entered = aicpu.cycles();
        // ORDERING: Relaxed: the number alone matters, and each is given once.
        let arrival = self.gates.arrived.fetch_add(1, Ordering::Relaxed);
        // The index is distinct and in range before the first stamp, or the thread leaves no trace (LESSONS 25).
        let Some(index) = self.profile.aicpu_logical.checked_sub(arrival + 1) else {
            return if arrival < self.survivors { 0 } else { INTERNAL };
        };
        let launched = self.profile.aicpu_launched;
        // SAFETY: the host has allocated the buffer for `launched` threads, and touches it again only after it has
        // joined this launch.
        let stamper = unsafe { PhaseStamper::new(self.phase_buffer as *mut u8, launched, index) };
        // On every path, and after everything else of this thread.
        let _wall = stamper.scope_from(Phase::RunWall, entered, || aicpu.cycles());
        let phases = match self.graph_runtime {
            GraphRuntime::TensorMapAndRingBuffer => stamper,
            GraphRuntime::HostBuildGraph => PhaseStamper::nowhere(),
        };
        let track = self.swimlane.as_ref().filter(|_| DFX).and_then(|track| {
            let base = track.base as *mut u8;
            let gate = track.gates.get(index)?;
            // SAFETY: the host has allocated the memory with this layout, has started its collector, and releases it
            // after this launch; the index is this thread's alone.
            Some(unsafe { ThreadTrack::new(base, track.layout, index, gate) })
        });
        let thread = Thread { run: self, aicpu, index, phases, stamper, track };
        // SAFETY: the host has allocated the arena with this layout, uploaded its image, and leaves it to this
        // program until it has joined the launch.
        let graph = unsafe { Graph::attach(self.arena, &self.layout) };
        let _finish = FinishGuard { thread: &thread, graph };
        catch_unwind(AssertUnwindSafe(|| thread.execute(graph, entered))).unwrap_or_else(|_| {
            if let Some(graph) = graph {
                graph.control().orchestrator_error.set(
                    code::EXPLICIT_FATAL,
                    0,
                    "the executor panicked; this is an error of the runtime",
                );
                graph.set_fatal();
            }
            thread.ring_others();
            INTERNAL
        })
    }
}

impl Thread<'_> {
    fn execute(&self, graph: Option<Graph<'_>>, entered: u64) -> i32 {
        let prepared = &self.run.gates.prepared;
        let orchestrates = self.index >= self.schedulers();
        if self.index == self.leader() {
            let guard = GateGuard { gate: prepared, thread: self };
            let Some(graph) = graph else {
                return INTERNAL;
            };
            scheduler::prepare_cores(&graph);
            if !orchestrates {
                // The host has built it.
                graph.reset();
                graph.adopt();
            }
            if !guard.open() {
                return orchestrator::too_late(
                    self,
                    &graph,
                    "the schedulers gave up before the cores were prepared",
                );
            }
            if orchestrates {
                self.phases.stamp(Phase::Preamble, entered, self.cycles());
                return orchestrator::run(self, graph);
            }
        }
        let graph = match (self.pass(prepared), graph) {
            (Passage::Open, Some(graph)) => graph,
            // Nobody may touch the control block before the leader has reset it, so the status says it alone
            // until the leader comes.
            (Passage::TimedOut, _) => return -(code::SCHEDULER_TIMEOUT as i32),
            _ => return 0,
        };
        let mut scheduler = scheduler::Scheduler::attach(self, graph);
        self.phases.stamp(Phase::Preamble, entered, self.cycles());
        let _build = self.phases.scope(Phase::GraphBuild, || self.cycles());
        // A graph that the host has built is ready, since the leader has prepared it.
        if self.run.graph_runtime == GraphRuntime::HostBuildGraph {
            return scheduler.run();
        }
        match self.pass(&self.run.gates.runtime_ready) {
            Passage::Open => scheduler.run(),
            // The orchestrator says so when it comes.
            Passage::Broken | Passage::TimedOut => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::alloc::{Layout, alloc_zeroed, dealloc};
    use std::sync::atomic::AtomicU64;

    use simpler_device_phase::TaskAttrs;
    use simpler_platform::{Cond, CondState, DispatchPayload, LoadedObject, PlatformError, Registers};
    use simpler_relax::EventCount;

    use super::*;
    use crate::graph::builder::NewTask;
    use crate::graph::fan::TaskKernels;
    use crate::graph::{Limits, RingLimits, Shape, TaskId};

    /// An arena in host memory.
    struct Arena {
        memory: *mut u8,
        layout: ArenaLayout,
    }

    impl Arena {
        fn new() -> Self {
            let limits = RingLimits { window: 256, heap_bytes: 1024, argument_bytes: 1024, edges: 4 };
            let layout = ArenaLayout::new(Limits::each(limits), Profile::a2a3sim().cores()).unwrap();
            // SAFETY: the size is not 0.
            let memory = unsafe { alloc_zeroed(Self::allocation(&layout)) };
            let image = layout.image();
            // SAFETY: the image is shorter than the arena, whose memory is new.
            unsafe { memory.copy_from_nonoverlapping(image.as_ptr(), image.len()) };
            Self { memory, layout }
        }

        fn allocation(layout: &ArenaLayout) -> Layout {
            Layout::from_size_align(layout.total_bytes(), 1024).unwrap()
        }

        fn graph(&self) -> Graph<'_> {
            // SAFETY: the arena of this layout, which only graphs use.
            unsafe { Graph::attach(self.memory as u64, &self.layout) }.unwrap()
        }

        fn program(&self) -> RunProgram {
            RunProgram {
                graph_runtime: GraphRuntime::default(),
                executor: Arc::default(),
                callable: Arc::new(Callable {
                    slot: 0,
                    name: "none".to_owned(),
                    hid: 0,
                    digest: [0; 32],
                    orchestration: Vec::new(),
                    kernels: Vec::new(),
                    scopes: Default::default(),
                }),
                profile: Profile::a2a3sim(),
                survivors: Profile::a2a3sim().aicpu_logical,
                layout: self.layout,
                arena: self.memory as u64,
                phase_buffer: 0,
                copy_engine: 0,
                swimlane: None,
                tensors: Vec::new(),
                scalars: Vec::new(),
                timeout: Duration::from_millis(1),
                gates: Gates::default(),
            }
        }
    }

    impl Drop for Arena {
        fn drop(&mut self) {
            // SAFETY: allocated in `new` with this layout.
            unsafe { dealloc(self.memory, Self::allocation(&self.layout)) };
        }
    }

    /// A device whose cores nobody gets to.
    #[derive(Default)]
    struct Coreless {
        event: EventCount,
        /// What was invalidated: addresses and sizes.
        invalidated: Mutex<Vec<(u64, usize)>>,
    }

    impl Aicpu for Coreless {
        fn cycles(&self) -> u64 {
            0
        }
        fn cycles_after_reads(&self) -> u64 {
            0
        }
        fn registers(&self) -> &dyn Registers {
            panic!("no cores")
        }
        fn invalidate(&self, addr: DeviceAddr, bytes: usize) {
            self.invalidated.lock().unwrap().push((addr.0, bytes));
        }
        fn event(&self, _: usize) -> &EventCount {
            &self.event
        }
        fn load_object(&self, _: &[u8], name: &str) -> Result<Box<dyn LoadedObject>, PlatformError> {
            Err(PlatformError::Load { what: name.to_owned(), why: "no loader".to_owned() })
        }
    }

    /// A device whose cores start and finish when they are told to.
    #[derive(Default)]
    struct Obedient {
        /// By thread.
        events: [EventCount; 4],
        /// The last value written, and the last that has finished, by core.
        cores: [(AtomicU64, AtomicU64); 24],
        /// The value that it runs, if it was told to start.
        acknowledged: [AtomicU64; 24],
        /// The value that waits for its doorbell.
        gated: [AtomicU64; 24],
    }

    impl Obedient {
        /// The cores that run something, and what.
        fn running(&self) -> Vec<usize> {
            let runs = |(written, finished): &(AtomicU64, AtomicU64)| {
                written.load(Ordering::Relaxed) != finished.load(Ordering::Relaxed)
            };
            (0..self.cores.len()).filter(|core| runs(&self.cores[*core])).collect()
        }

        fn start(&self, core: usize) {
            self.acknowledged[core].store(self.cores[core].0.load(Ordering::Relaxed), Ordering::Relaxed);
        }

        /// Finishes what it was told to start, and starts what was written since.
        fn go_on(&self, core: usize) {
            self.cores[core].1.store(self.acknowledged[core].load(Ordering::Relaxed), Ordering::Relaxed);
            self.start(core);
        }

        fn finish(&self, core: usize) {
            let (written, finished) = &self.cores[core];
            finished.store(written.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    impl Registers for Obedient {
        unsafe fn attach(&self, _: usize, _: usize, _: *const [DispatchPayload; 2]) {}
        fn write_data_main_base(&self, core: usize, value: u64) {
            self.cores[core].0.store(value, Ordering::Relaxed);
        }
        fn stage_data_main_base(&self, core: usize, value: u64) {
            self.gated[core].store(value, Ordering::Relaxed);
        }
        fn ring_doorbell(&self, core: usize, _: bool) {
            self.cores[core].0.store(self.gated[core].swap(0, Ordering::Relaxed), Ordering::Relaxed);
        }
        fn cond(&self, core: usize) -> Cond {
            let dispatch = self.cores[core].1.load(Ordering::Relaxed);
            let running = self.acknowledged[core].load(Ordering::Relaxed);
            if running > dispatch {
                return Cond { state: CondState::Ack, dispatch: running };
            }
            let state = if dispatch == 0 { CondState::Idle } else { CondState::Fin };
            Cond { state, dispatch }
        }
    }

    impl Aicpu for Obedient {
        fn cycles(&self) -> u64 {
            0
        }
        fn cycles_after_reads(&self) -> u64 {
            0
        }
        fn registers(&self) -> &dyn Registers {
            self
        }
        fn invalidate(&self, _: DeviceAddr, _: usize) {}
        fn event(&self, thread: usize) -> &EventCount {
            &self.events[thread]
        }
        fn load_object(&self, _: &[u8], name: &str) -> Result<Box<dyn LoadedObject>, PlatformError> {
            Err(PlatformError::Load { what: name.to_owned(), why: "no loader".to_owned() })
        }
    }

    /// Kernels of the tasks below, by place.
    fn submit(builder: &mut Builder, graph: &Graph<'_>, kernels: [Option<u64>; 3]) -> TaskId {
        submit_after(builder, graph, kernels, &[], 0)
    }

    fn submit_after(
        builder: &mut Builder,
        graph: &Graph<'_>,
        kernels: [Option<u64>; 3],
        before: &[TaskId],
        attrs: u8,
    ) -> TaskId {
        let deps: Vec<_> = before.iter().map(|task| task.raw() as i64).collect();
        let mut new = NewTask {
            kernels: TaskKernels::new(kernels),
            blocks: 1,
            arguments: &mut [],
            scalars: &[],
            deps: &deps,
            attrs: TaskAttrs::from_bits(attrs),
            predicate: 0,
        };
        builder.submit(graph, &mut new, &|_| panic!("there is room")).unwrap().task
    }

    const AIC: [Option<u64>; 3] = [Some(1), None, None];
    const AIV: [Option<u64>; 3] = [None, Some(2), None];

    /// The first N schedulers of a run, their cores, and a graph without tasks.
    fn schedulers<const N: usize>(
        test: impl FnOnce(&Obedient, Graph<'_>, &mut Builder, [scheduler::Scheduler<'_>; N]),
    ) {
        let arena = Arena::new();
        let (program, aicpu) = (arena.program(), Obedient::default());
        let stamper = PhaseStamper::nowhere();
        let thread =
            |index| Thread { run: &program, aicpu: &aicpu, index, phases: stamper, stamper, track: None };
        let threads: [_; N] = std::array::from_fn(thread);
        let graph = arena.graph();
        graph.reset();
        let mut builder = Builder::new();
        builder.clear(&graph);
        let schedulers = threads.each_ref().map(|thread| scheduler::Scheduler::attach(thread, graph));
        test(&aicpu, graph, &mut builder, schedulers);
    }

    /// Two schedulers, the first with no idle AIC and the second with no idle AIV.
    fn two_schedulers(test: impl FnOnce(&Obedient, Graph<'_>, &mut Builder, [scheduler::Scheduler<'_>; 2])) {
        schedulers(|aicpu, graph, builder, [mut first, mut second]| {
            for _ in 0..3 {
                submit(builder, &graph, AIC);
            }
            first.turn();
            for _ in 0..6 {
                submit(builder, &graph, AIV);
            }
            second.turn();
            first.tell_idle(true);
            second.tell_idle(true);
            assert_eq!([Shape::Aic, Shape::Aiv].map(|shape| graph.idle_schedulers(shape)), [0b10, 0b01]);
            test(aicpu, graph, builder, [first, second]);
        });
    }

    #[test]
    fn a_scheduler_stages_what_it_has_cores_for_and_any_other_task_waits() {
        two_schedulers(|aicpu, graph, builder, [mut first, mut second]| {
            let early = submit_after(builder, &graph, AIV, &[], TaskAttrs::EARLY_RESOLVE);
            first.turn();
            // One that it cannot begin comes first in the queue.
            let (aic, aiv) = (
                submit_after(builder, &graph, AIC, &[early], 0),
                submit_after(builder, &graph, AIV, &[early], 0),
            );
            first.turn();
            second.turn();
            let staged = |core: &usize| aicpu.gated[*core].load(Ordering::Relaxed) != 0;
            // Not to the first cluster of the chip, whose AIVs are 8 and 9.
            assert_eq!((0..24).filter(staged).collect::<Vec<_>>(), [14]);
            let on = |core: usize| graph.running_on(core).load(Ordering::Relaxed);
            assert_eq!([on(14), on(1)], [aiv.local() + 1, 0]);
            // Both start when it is done.
            aicpu.finish(8);
            first.turn();
            second.turn();
            assert_eq!((0..24).filter(staged).count(), 0);
            assert_eq!([on(14), on(1)], [aiv.local() + 1, aic.local() + 1]);
        });
    }

    #[test]
    fn who_finds_a_staged_task_ready_rings_a_scheduler_that_has_a_core_for_it() {
        two_schedulers(|aicpu, graph, builder, [mut first, mut second]| {
            let plain = submit(builder, &graph, AIV);
            let early = submit_after(builder, &graph, AIV, &[], TaskAttrs::EARLY_RESOLVE);
            first.turn();
            let task = submit_after(builder, &graph, AIC, &[plain, early], 0);
            // Both are seen to have finished in one look, the one that is not early first: it puts the task into the
            // queue, and the other one finds it there.
            aicpu.finish(8);
            aicpu.finish(9);
            let seen = aicpu.events[1].epoch();
            first.turn();
            assert!(aicpu.events[1].epoch() != seen, "the other one is rung");
            second.turn();
            assert_eq!(graph.running_on(1).load(Ordering::Relaxed), task.local() + 1);
        });
    }

    #[test]
    fn a_mix_task_gets_a_cluster_although_single_tasks_would_take_every_core() {
        schedulers(|aicpu, graph, builder, [mut scheduler]| {
            for task in 0..200 {
                submit(builder, &graph, if task % 3 == 0 { AIC } else { AIV });
            }
            scheduler.turn();
            // Of eight clusters the first, fourth and seventh are this thread's.
            let all = aicpu.running();
            assert_eq!(all, [0, 3, 6, 8, 9, 14, 15, 20, 21]);
            let mix = submit(builder, &graph, [Some(3), Some(4), Some(4)]);
            // One core after the other: each gets another single task, but for those of one cluster.
            for turns in 1..=all.len() {
                let core = all[turns - 1];
                aicpu.finish(core);
                scheduler.turn();
                let runs_mix =
                    |core: &usize| graph.running_on(*core).load(Ordering::Relaxed) == mix.local() + 1;
                let mixed: Vec<_> = aicpu.running().into_iter().filter(runs_mix).collect();
                if !mixed.is_empty() {
                    assert_eq!((turns, mixed), (all.len(), vec![6, 20, 21]));
                    return;
                }
            }
            panic!("no cluster became free");
        });
    }

    #[test]
    fn a_core_that_runs_a_task_gets_a_second_when_no_core_is_idle() {
        schedulers(|aicpu, graph, builder, [mut scheduler]| {
            let written = |core: usize| aicpu.cores[core].0.load(Ordering::Relaxed);
            let mut submit_aivs = |count| {
                for _ in 0..count {
                    submit(builder, &graph, AIV);
                }
            };
            // Of this thread's AIVs five run a task; one is idle.
            submit_aivs(5);
            scheduler.turn();
            assert_eq!(aicpu.running(), [8, 9, 14, 15, 20]);
            aicpu.start(8);
            scheduler.turn();
            submit_aivs(3);
            scheduler.turn();
            // The idle one comes first, then the one that has acknowledged, and the third task waits.
            assert_eq!([8, 9, 14, 15, 20, 21].map(written), [2, 1, 1, 1, 1, 1]);
            assert_eq!(graph.ready[Shape::Aiv as usize].len_hint(), 1);
            // Another scheduler has an idle core: it is not given away.
            aicpu.start(9);
            graph.set_idle(Shape::Aiv, 1, true);
            scheduler.turn();
            assert_eq!(written(9), 1);
            graph.set_idle(Shape::Aiv, 1, false);
            scheduler.turn();
            assert_eq!(written(9), 2);
            assert_eq!(graph.completed(), 0);
            // The first is known to be finished when the second runs.
            aicpu.go_on(8);
            scheduler.turn();
            assert_eq!((graph.completed(), graph.running_on(8).load(Ordering::Relaxed)), (1, 6 + 1));
            // Both at once.
            aicpu.finish(9);
            scheduler.turn();
            assert_eq!((graph.completed(), graph.running_on(9).load(Ordering::Relaxed)), (3, 0));
            submit_aivs(1);
            scheduler.turn();
            assert_eq!((written(8), written(9)), (2, 3));
            for core in [8, 9, 14, 15, 20, 21] {
                aicpu.finish(core);
            }
            scheduler.turn();
            assert_eq!(graph.completed(), graph.submitted());
        });
    }

    #[test]
    fn a_run_whose_schedulers_left_before_the_cores_were_prepared_fails() {
        let arena = Arena::new();
        let program = arena.program();
        let timed_out = -(code::SCHEDULER_TIMEOUT as i32);
        // The leader has its index and is late.
        program.gates.arrived.store(1, Ordering::Relaxed);
        assert_eq!(program.execute(&Coreless::default()), timed_out);
        // The gate is broken now, so the others need not wait.
        assert_eq!(program.execute(&Coreless::default()), 0);
        program.gates.arrived.store(0, Ordering::Relaxed);
        assert_eq!(program.execute(&Coreless::default()), timed_out);
        let failure = arena.graph().control().orchestrator_error.get().unwrap();
        assert_eq!(failure.code, code::SCHEDULER_TIMEOUT);
        assert!(failure.text.contains("gave up before the cores were prepared"), "{}", failure.text);
    }

    #[test]
    fn the_last_finisher_tears_down_as_its_architecture_does() {
        for profile in [Profile::a2a3sim(), Profile::a5sim()] {
            let arena = Arena::new();
            let (threads, teardown) = (profile.aicpu_logical, profile.teardown);
            let program = RunProgram { profile, ..arena.program() };
            let aicpu = Coreless::default();
            program.gates.prepared.settle(Gate::BROKEN);
            for finished in 1..=threads {
                // The last to arrive is a scheduler that finds the gate broken, like the others.
                program.gates.arrived.store(1, Ordering::Relaxed);
                assert_eq!(program.execute(&aicpu), 0);
                let invalidated = std::mem::take(&mut *aicpu.invalidated.lock().unwrap());
                let expected = finished == threads && teardown == Teardown::InvalidateThenReset;
                let range = (arena.memory as u64, ArenaLayout::control_bytes());
                assert_eq!(invalidated, if expected { vec![range] } else { vec![] }, "{teardown:?}");
            }
        }
    }

    #[test]
    fn a_failure_belongs_to_the_run_whose_leader_has_come() {
        let arena = Arena::new();
        let graph = arena.graph();
        graph.control().scheduler_error.set(code::SCHEDULER_TIMEOUT, 1, "of the run before");
        graph.set_fatal();
        scheduler::prepare_cores(&graph);
        assert!(!graph.is_fatal() && graph.control().scheduler_error.get().is_none());
        graph.control().scheduler_error.set(code::EXPLICIT_FATAL, 0, "of this run");
        graph.set_fatal();
        graph.reset();
        assert!(graph.is_fatal());
        assert_eq!(graph.control().scheduler_error.get().unwrap().text, "of this run");
    }
}
