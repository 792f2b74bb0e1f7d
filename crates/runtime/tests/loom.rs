//! The lock-free parts of the graph under every schedule: fan-out against completion, the ready queue, how tasks gather,
//! and scopes.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p simpler-runtime --release --test loom`
#![cfg(loom)]
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;
use simpler_device_phase::TaskAttrs;
use simpler_runtime::graph::early::{CoreSet, EarlyRecord};
use simpler_runtime::graph::fan::{Edge, TaskKernels, TaskSlot, TaskWork, Tasks};
use simpler_runtime::graph::gathering::{Gathering, Round};
use simpler_runtime::graph::ready::{ReadyCell, ReadyCursor, ReadyQueue};
use simpler_runtime::graph::scope::{ROOT, ScopeRecord, Scopes};

/// Where `LOOM_MAX_PREEMPTIONS` does not say otherwise.
const PREEMPTIONS: usize = 2;

fn model(body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(PREEMPTIONS);
    builder.check(body);
}

struct Graph {
    slots: Vec<TaskSlot>,
    edges: Vec<Edge>,
    early: Vec<EarlyRecord>,
    /// What each task's kernel wrote, without any ordering of its own.
    outputs: Vec<AtomicU32>,
    ready: Vec<AtomicU32>,
}

impl Graph {
    fn new(tasks: usize, edges: usize) -> Self {
        Self {
            slots: (0..tasks).map(|_| TaskSlot::new()).collect(),
            edges: (0..edges).map(|_| Edge::new()).collect(),
            early: (0..tasks).map(|_| EarlyRecord::new()).collect(),
            outputs: (0..tasks).map(|_| AtomicU32::new(0)).collect(),
            ready: (0..tasks).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    fn tasks(&self) -> Tasks<'_> {
        Tasks { slots: &self.slots, edges: &self.edges, early: &self.early }
    }

    fn work(task: u32) -> TaskWork {
        TaskWork {
            kernels: TaskKernels::new([None, Some(u64::from(task) + 7), None]),
            arguments: task,
            tensors: 2,
            scalars: 1,
            attrs: TaskAttrs::default(),
            predicate: 0,
            blocks: 1,
            scope: ROOT,
            listens: false,
        }
    }

    /// A kernel: its output is plain, only the graph orders it.
    fn run_and_complete(&self, task: u32) {
        self.outputs[task as usize].store(1, Ordering::Relaxed);
        self.tasks().complete(task, |successor| self.became_ready(successor, &[]), |_| ());
    }

    fn became_ready(&self, task: u32, predecessors: &[u32]) {
        assert_eq!(self.ready[task as usize].fetch_add(1, Ordering::Relaxed), 0, "task {task} twice");
        assert_eq!(self.tasks().slot(task).work(), Self::work(task), "its slot is visible");
        for predecessor in predecessors {
            assert_eq!(self.outputs[*predecessor as usize].load(Ordering::Relaxed), 1, "outputs are visible");
        }
    }
}

#[test]
fn a_successor_is_ready_exactly_once_whenever_its_predecessors_complete() {
    model(|| {
        // Tasks 0 and 1 complete on threads of their own while task 2, which needs both, is linked.
        let graph = Arc::new(Graph::new(3, 2));
        graph.tasks().slot(0).prepare(0, &Graph::work(0), 0);
        graph.tasks().slot(1).prepare(0, &Graph::work(1), 0);
        let threads: Vec<_> = (0..2)
            .map(|task| {
                let graph = graph.clone();
                thread::spawn(move || {
                    graph.outputs[task as usize].store(1, Ordering::Relaxed);
                    graph.tasks().complete(task, |successor| graph.became_ready(successor, &[0, 1]), |_| ());
                })
            })
            .collect();
        graph.tasks().slot(2).prepare(0, &Graph::work(2), 2);
        let (mut met, mut edge) = (1, 0);
        for predecessor in 0..2 {
            if graph.tasks().link(predecessor, edge, 2) {
                edge += 1;
            } else {
                met += 1;
            }
        }
        if graph.tasks().slot(2).arrive(met) {
            graph.became_ready(2, &[0, 1]);
        }
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(graph.ready[2].load(Ordering::Relaxed), 1);
    });
}

#[test]
fn every_successor_in_a_list_is_counted_down_once() {
    model(|| {
        // Task 0 completes while tasks 1 and 2 are hung onto its list.
        let graph = Arc::new(Graph::new(3, 2));
        graph.tasks().slot(0).prepare(0, &Graph::work(0), 0);
        let completer = {
            let graph = graph.clone();
            thread::spawn(move || graph.run_and_complete(0))
        };
        let mut edge = 0;
        for task in 1..3 {
            graph.tasks().slot(task).prepare(0, &Graph::work(task), 1);
            let linked = graph.tasks().link(0, edge, task);
            edge += u32::from(linked);
            if graph.tasks().slot(task).arrive(if linked { 1 } else { 2 }) {
                graph.became_ready(task, &[0]);
            }
        }
        completer.join().unwrap();
        for task in 1..3 {
            assert_eq!(graph.ready[task].load(Ordering::Relaxed), 1, "task {task}");
        }
    });
}

#[test]
fn the_last_part_to_finish_completes_the_task_and_has_seen_the_others() {
    model(|| {
        let slot = Arc::new(TaskSlot::new());
        slot.prepare(0, &TaskWork { blocks: 3, ..Graph::work(0) }, 0);
        let outputs: Arc<Vec<_>> = Arc::new((0..3).map(|_| AtomicU32::new(0)).collect());
        let part = |slot: &TaskSlot, outputs: &[AtomicU32], part: usize| {
            outputs[part].store(1, Ordering::Relaxed);
            let last = slot.finish_part();
            if last {
                assert!(outputs.iter().all(|output| output.load(Ordering::Relaxed) == 1));
            }
            last
        };
        let others: Vec<_> = (1..3)
            .map(|index| {
                let (slot, outputs) = (slot.clone(), outputs.clone());
                thread::spawn(move || part(&slot, &outputs, index))
            })
            .collect();
        let mut last = u32::from(part(&slot, &outputs, 0));
        for other in others {
            last += u32::from(other.join().unwrap());
        }
        assert_eq!(last, 1);
    });
}

/// Two schedulers with one core each, and two tasks, one of one block and one of two that start together, one after the
/// other in the same slot.
struct Meetings {
    gathering: Gathering,
    /// Tasks that began to gather.
    begun: AtomicU32,
    /// Per task the blocks that were started, by bit.
    started: Vec<AtomicU32>,
    /// The slot: which task it is.
    slot: AtomicU32,
}

impl Meetings {
    const BLOCKS: [u32; 2] = [1, 2];
    const SLOT: u32 = 5;

    /// One look of a scheduler that holds `held` of a task; whether everything was started.
    fn turn(&self, held: &mut Option<(u32, u32)>) -> bool {
        if let Some(opening) = self.gathering.open() {
            let task = self.begun.load(Ordering::Relaxed);
            let Some(blocks) = Self::BLOCKS.get(task as usize) else {
                self.gathering.close(opening);
                return true;
            };
            // Relaxed on purpose: only who has the gathering may begin, and it must pass this on.
            self.begun.store(task + 1, Ordering::Relaxed);
            self.slot.store(task, Ordering::Relaxed);
            self.gathering.begin(opening, Self::SLOT, *blocks);
        }
        let Some(round) = self.gathering.round() else { return false };
        assert_eq!(round.task, Self::SLOT);
        if held.is_none() {
            // The task's facts are read before a block is claimed.
            let task = self.slot.load(Ordering::Relaxed);
            if let Some(blocks) = self.gathering.claim(round, 1) {
                assert_eq!(blocks.len(), 1, "as many as there are cores");
                assert!(blocks.start < Self::BLOCKS[task as usize], "a block of the task that was looked at");
                *held = Some((task, blocks.start));
            }
        }
        if let Some((of, block)) = *held
            && self.gathering.round().is_some_and(|round| round.unclaimed == 0)
        {
            let now = self.slot.load(Ordering::Relaxed);
            assert_eq!(now, of, "what is held is for the task that gathers");
            let before = self.started[of as usize].fetch_add(1 << block, Ordering::Relaxed);
            assert_eq!(before >> block & 1, 0, "block {block} of task {of} twice");
            *held = None;
            self.gathering.dispatched(round, 1);
        }
        false
    }
}

#[test]
fn tasks_gather_one_after_the_other_and_each_block_has_a_core() {
    model(|| {
        let words = || Meetings::BLOCKS.map(|_| AtomicU32::new(0)).into();
        let meetings = Arc::new(Meetings {
            gathering: Gathering::new(),
            begun: AtomicU32::new(0),
            started: words(),
            slot: AtomicU32::new(0),
        });
        let work = |meetings: &Meetings| {
            let mut held = None;
            while !meetings.turn(&mut held) {
                thread::yield_now();
            }
            assert_eq!(held, None);
        };
        let other = {
            let meetings = meetings.clone();
            thread::spawn(move || work(&meetings))
        };
        work(&meetings);
        other.join().unwrap();
        for (started, blocks) in meetings.started.iter().zip(Meetings::BLOCKS) {
            assert_eq!(started.load(Ordering::Relaxed), (1 << blocks) - 1);
        }
    });
}

/// Two schedulers have claimed the two blocks of a task, or are about to, when one of them leaves: either no block
/// starts, or both do.
#[test]
fn a_task_that_is_called_off_starts_as_a_whole_or_not_at_all() {
    model(|| {
        let gathering = Arc::new(Gathering::new());
        let started = Arc::new(AtomicU32::new(0));
        let opening = gathering.open().unwrap();
        gathering.begin(opening, 3, 2);
        let round = gathering.round().unwrap();
        assert_eq!((round.task, round.unclaimed), (3, 2));
        let start = move |gathering: &Gathering, started: &AtomicU32, block: u32| {
            started.fetch_add(1 << block, Ordering::Relaxed);
            gathering.dispatched(round, 1);
        };
        let leaving = {
            let (gathering, started) = (gathering.clone(), started.clone());
            thread::spawn(move || {
                let Some(held) = gathering.claim(round, 1) else { return };
                if !gathering.call_off(round) {
                    start(&gathering, &started, held.start);
                }
            })
        };
        if let Some(held) = gathering.claim(round, 1) {
            // It stays, until its task is complete or gone.
            loop {
                match gathering.round() {
                    Some(Round { task: 3, unclaimed: 0, .. }) => {
                        break start(&gathering, &started, held.start);
                    }
                    Some(_) => thread::yield_now(),
                    None => break,
                }
            }
        }
        leaving.join().unwrap();
        assert!([0, 0b11].contains(&started.load(Ordering::Relaxed)));
    });
}

/// An outer scope with one task and an inner one with two. Each task's memory is used by whoever runs it, and by the
/// orchestrator again once the scope is drained.
#[test]
fn what_a_drained_scope_held_belongs_to_the_orchestrator() {
    model(|| {
        const OUTER: u32 = 1;
        const INNER: u32 = 2;
        let records: Arc<Vec<_>> = Arc::new((0..2).map(|_| ScopeRecord::new()).collect());
        let memory: Arc<Vec<_>> = Arc::new((0..3).map(|_| UnsafeCell::new(0_u32)).collect());
        let scopes = Scopes { records: &records };
        scopes.open(OUTER, ROOT);
        scopes.open(INNER, OUTER);
        let tasks = [vec![(0, INNER)], vec![(1, INNER), (2, OUTER)]];
        let schedulers: Vec<_> = tasks
            .into_iter()
            .map(|tasks| {
                let (records, memory) = (records.clone(), memory.clone());
                thread::spawn(move || {
                    for (task, scope) in tasks {
                        // SAFETY: loom checks that nobody else touches it.
                        memory[task].with_mut(|memory| unsafe { *memory += 1 });
                        Scopes { records: &records }.leave(scope);
                    }
                })
            })
            .collect();
        scopes.close(INNER, 2);
        if scopes.is_drained(INNER) {
            // SAFETY: loom checks that nobody else touches it.
            memory[..2].iter().for_each(|memory| memory.with_mut(|memory| unsafe { *memory += 10 }));
            // The record is free.
            scopes.open(INNER, ROOT);
        }
        // The inner scope and a task.
        scopes.close(OUTER, 2);
        if scopes.is_drained(OUTER) {
            // SAFETY: as above.
            memory.iter().for_each(|memory| memory.with_mut(|memory| unsafe { *memory += 100 }));
        }
        for scheduler in schedulers {
            scheduler.join().unwrap();
        }
        assert!(scopes.is_drained(OUTER), "all is done and nobody waits for ever");
    });
}

struct Queue {
    cells: Vec<ReadyCell>,
    pushed: ReadyCursor,
    popped: ReadyCursor,
    /// Written before a push, without any ordering of its own.
    payload: Vec<AtomicU32>,
}

impl Queue {
    fn new(capacity: u32) -> Self {
        Self {
            cells: (0..capacity).map(ReadyCell::new).collect(),
            pushed: ReadyCursor::new(),
            popped: ReadyCursor::new(),
            payload: (0..4).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    fn view(&self) -> ReadyQueue<'_> {
        ReadyQueue { cells: &self.cells, pushed: &self.pushed, popped: &self.popped }
    }

    fn push(&self, task: u32) -> bool {
        self.payload[task as usize].store(1, Ordering::Relaxed);
        self.view().push(task)
    }

    fn pop(&self) -> Option<u32> {
        let task = self.view().pop()?;
        assert_eq!(
            self.payload[task as usize].load(Ordering::Relaxed),
            1,
            "what was written before the push"
        );
        Some(task)
    }
}

#[test]
fn two_producers_and_two_consumers_lose_nothing_and_double_nothing() {
    model(|| {
        let queue = Arc::new(Queue::new(2));
        let producers: Vec<_> = (0..2)
            .map(|task| {
                let queue = queue.clone();
                thread::spawn(move || assert!(queue.push(task), "there is a cell for each"))
            })
            .collect();
        let consumer = {
            let queue = queue.clone();
            thread::spawn(move || queue.pop())
        };
        let mut seen: Vec<u32> = queue.pop().into_iter().collect();
        for producer in producers {
            producer.join().unwrap();
        }
        seen.extend(consumer.join().unwrap());
        while let Some(task) = queue.pop() {
            seen.push(task);
        }
        seen.sort_unstable();
        assert_eq!(seen, [0, 1]);
        assert!(queue.view().is_empty());
    });
}

#[test]
fn a_cell_is_used_again_only_after_it_was_emptied() {
    model(|| {
        let queue = Arc::new(Queue::new(2));
        assert!(queue.push(0) && queue.push(1));
        let consumer = {
            let queue = queue.clone();
            thread::spawn(move || (queue.pop(), queue.pop()))
        };
        // Full until the consumer has taken one: refused then, never overwritten.
        let third = queue.push(2);
        let (first, second) = consumer.join().unwrap();
        assert_eq!((first, second.is_some()), (Some(0), true));
        let mut rest = Vec::new();
        rest.extend(second);
        while let Some(task) = queue.pop() {
            rest.push(task);
        }
        assert_eq!(rest, if third { vec![1, 2] } else { vec![1] });
    });
}

/// A task that listens to one that announces itself, and may be staged, starts exactly once, and only when that one has
/// completed: by a doorbell, or by the ready queue.
struct EarlyModel {
    graph: Graph,
    queued: AtomicU32,
    /// Doorbells of each core, and how often it went into the ready queue.
    rung: [AtomicU32; 2],
    pushed: AtomicU32,
    /// What was written to the cores, without any ordering of its own.
    written: AtomicU32,
}

/// One core in each word.
const LOW: CoreSet = 1;
const HIGH: CoreSet = 1 << 100;

impl EarlyModel {
    fn new() -> Self {
        let word = || AtomicU32::new(0);
        Self {
            graph: Graph::new(2, 2),
            queued: word(),
            rung: [word(), word()],
            pushed: word(),
            written: word(),
        }
    }

    fn work(task: u32, attrs: u8, listens: bool) -> TaskWork {
        TaskWork { attrs: TaskAttrs::from_bits(attrs), listens, blocks: 2, ..Graph::work(task) }
    }

    fn starts(&self) {
        assert_eq!(self.graph.outputs[0].load(Ordering::Relaxed), 1, "it starts after what it waits for");
    }

    fn ring(&self, cores: CoreSet) {
        for (rung, core) in self.rung.iter().zip([LOW, HIGH]) {
            if cores & core != 0 {
                self.starts();
                assert_eq!(self.written.load(Ordering::Relaxed), 1, "what is on the core is visible");
                rung.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn push_ready(&self) {
        self.starts();
        self.pushed.fetch_add(1, Ordering::Relaxed);
    }

    /// The scheduler of task 0: it is on its cores, then it completes.
    fn run_first(&self) {
        let queue = |task| {
            assert_eq!(task, 1);
            self.queued.fetch_add(1, Ordering::Release);
        };
        self.graph.tasks().announce(0, queue);
        self.graph.outputs[0].store(1, Ordering::Relaxed);
        let ready = |task| {
            let becomes = self.graph.tasks().early(task).make_ready();
            self.ring(becomes.staged);
            if becomes.ready {
                self.push_ready();
            }
        };
        self.graph.tasks().complete(0, ready, queue);
    }

    /// Who takes task 1 from the queue, if it is there: stages one block or both, gives the rest up, or all of it.
    fn take(&self, stages: u32) {
        if self.queued.swap(0, Ordering::Acquire) == 0 {
            return;
        }
        let early = self.graph.tasks().early(1);
        if stages != 0 && !early.is_ready() {
            self.written.store(1, Ordering::Relaxed);
            let cores = if stages == 2 { LOW | HIGH } else { HIGH };
            self.ring(early.stage(cores, stages == 2));
            if stages == 2 {
                return;
            }
        }
        if early.give_up() {
            self.push_ready();
        }
    }
}

#[test]
fn a_staged_task_starts_exactly_once_after_what_it_waits_for() {
    for stages in 0..=2 {
        model(move || {
            let model = Arc::new(EarlyModel::new());
            let first = EarlyModel::work(0, TaskAttrs::EARLY_RESOLVE, false);
            model.graph.tasks().slot(0).prepare(0, &first, 0);
            model.graph.tasks().early(0).prepare(0);
            let scheduler = {
                let model = model.clone();
                thread::spawn(move || model.run_first())
            };
            let taker = {
                let model = model.clone();
                thread::spawn(move || model.take(stages))
            };
            // The orchestrator.
            let tasks = model.graph.tasks();
            tasks.slot(1).prepare(0, &EarlyModel::work(1, 0, true), 1);
            tasks.early(1).prepare(1);
            let (mut met, mut heard) = (1, 1);
            if !tasks.link(0, 0, 1) {
                (met, heard) = (2, 2);
            } else if !tasks.listen(0, 1, 1) {
                heard = 2;
            }
            if tasks.slot(1).arrive(met) {
                model.push_ready();
            } else if tasks.early(1).hear(heard) {
                model.queued.fetch_add(1, Ordering::Release);
            }
            scheduler.join().unwrap();
            taker.join().unwrap();
            // Whoever comes after everybody takes what is left in the queue.
            model.take(stages);
            let [low, high] = model.rung.each_ref().map(|rung| rung.load(Ordering::Relaxed));
            let pushed = model.pushed.load(Ordering::Relaxed);
            let whole = (low, high, pushed) == (1, 1, 0);
            let part = (low, high, pushed) == (0, 1, 1);
            let plain = (low, high, pushed) == (0, 0, 1);
            assert!(
                plain || if stages == 2 { whole } else { stages == 1 && part },
                "{stages} staged: {low} {high} {pushed}"
            );
        });
    }
}

#[test]
fn the_slot_of_a_staged_task_that_is_another_ones_by_now_is_left_alone() {
    model(|| {
        let model = Arc::new(EarlyModel::new());
        let tasks = model.graph.tasks();
        tasks.slot(0).prepare(0, &EarlyModel::work(0, TaskAttrs::EARLY_RESOLVE, false), 0);
        tasks.early(0).prepare(0);
        tasks.slot(1).prepare(0, &EarlyModel::work(1, 0, true), 1);
        tasks.early(1).prepare(1);
        assert!(tasks.link(0, 0, 1) && tasks.listen(0, 1, 1));
        assert!(!tasks.slot(1).arrive(1) && !tasks.early(1).hear(1));
        let scheduler = {
            let model = model.clone();
            thread::spawn(move || model.run_first())
        };
        if model.queued.swap(0, Ordering::Acquire) != 0 && tasks.early(1).give_up() {
            // Ready by then, so it runs and is done; its slot becomes another task's, which waits for something.
            model.push_ready();
            tasks.early(1).prepare(1);
            let rung = tasks.early(1).stage(HIGH, true);
            assert_eq!(rung, 0, "nobody has made the other one ready");
        }
        scheduler.join().unwrap();
    });
}
