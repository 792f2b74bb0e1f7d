//! Callables that are registered when the children are there already, at every level.

#![allow(clippy::unwrap_used, reason = "a test program whose functions clippy does not know for tests")]

mod one_thread;
mod real_chips;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use simpler_kernel_compiler::Compiler;
use simpler_runtime::RuntimeConfig;
use simpler_scenes::Scene;
use simpler_worker::{
    CALLABLES_MAX, Callable, CallableImage, ChildId, ChipWorker, Ending, Endpoint, RunArgs, RunError,
    SharedBuffer, SharedMemory, Worker, WorkerBuilder, WorkerError,
};

use one_thread::Test;
use real_chips::*;

const TESTS: &[Test] = &[
    (
        "scenes_registered_after_the_start_run_on_every_chip",
        scenes_registered_after_the_start_run_on_every_chip,
    ),
    (
        "a_pod_passes_callables_on_to_the_chips_of_its_nodes",
        a_pod_passes_callables_on_to_the_chips_of_its_nodes,
    ),
    ("a_chip_in_this_process_takes_callables_too", a_chip_in_this_process_takes_callables_too),
    (
        "a_callable_stays_until_it_is_unregistered_as_often_as_registered",
        a_callable_stays_until_it_is_unregistered_as_often_as_registered,
    ),
    ("a_kernel_that_does_not_load_is_refused_by_name", a_kernel_that_does_not_load_is_refused_by_name),
    (
        "what_one_chip_refuses_is_taken_back_from_the_others",
        what_one_chip_refuses_is_taken_back_from_the_others,
    ),
    ("a_chip_that_is_gone_is_reported_and_the_others_have_nothing", a_chip_that_is_gone_is_reported),
    ("what_has_come_of_an_image_goes_with_its_transfer", what_has_come_of_an_image_goes_with_its_transfer),
    ("a_full_table_has_room_again_after_unregistering", a_full_table_has_room_again_after_unregistering),
    (
        "runs_handed_over_before_end_before_the_callable_goes",
        runs_handed_over_before_end_before_the_callable_goes,
    ),
    (
        "an_image_of_several_requests_comes_while_runs_are_in_flight",
        an_image_of_several_requests_comes_while_runs_are_in_flight,
    ),
    (
        "an_image_of_several_requests_comes_while_an_orchestration_runs_and_from_it",
        an_image_of_several_requests_comes_while_an_orchestration_runs_and_from_it,
    ),
    ("closures_stay", closures_stay),
];

fn main() -> ExitCode {
    one_thread::main(TESTS, &[])
}

fn compiled(scene: &Scene) -> CallableImage {
    let cache = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("callables");
    CallableImage::load(&Compiler::new(cache).unwrap().compile(&scene.source()).unwrap()).unwrap()
}

fn node(chips: usize) -> WorkerBuilder {
    let mut builder = Worker::builder(3);
    builder.chips(chips);
    builder.endpoint(|_, callables| Ok(Box::new(ChipWorker::new(npu(), small(), callables)?)));
    builder
}

/// The scene's arguments at an offset of shared memory.
fn placed(scene: &Scene, shared: &SharedMemory, offset: usize) -> RunArgs {
    let mut bytes = vec![0; scene.bytes()];
    let args = scene.place(&mut bytes, shared.addr() + offset as u64);
    shared.write(offset, &bytes).unwrap();
    args
}

fn assert_right(scene: &Scene, shared: &SharedMemory, offset: usize) {
    let mut bytes = vec![0; scene.bytes()];
    shared.read(offset, &mut bytes).unwrap();
    let mut scene = scene.clone();
    scene.take(&bytes);
    scene.check().unwrap();
}

/// Room for the arguments of every scene, for so many chips.
fn room(builder: &mut WorkerBuilder, chips: usize) -> (SharedMemory, usize) {
    let each = simpler_scenes::all().iter().map(Scene::bytes).max().unwrap().next_multiple_of(4096);
    (builder.share(SharedBuffer::new(chips * each).unwrap()), each)
}

fn scenes_registered_after_the_start_run_on_every_chip() {
    let mut builder = node(2);
    builder.subs(1);
    let (shared, each) = room(&mut builder, 2);
    let mut worker = builder.start().unwrap();
    let mut largest = 0;
    for scene in simpler_scenes::all() {
        let image = compiled(&scene);
        let kernels: usize = image.kernels.iter().map(|kernel| kernel.bytes.len()).sum();
        largest = largest.max(image.orchestration.len() + kernels);
        let callable = worker.register(image).unwrap();
        let tickets = [0, 1].map(|chip| {
            let args = placed(&scene, &shared, chip * each);
            worker.submit(chip, callable, &args).unwrap()
        });
        tickets.into_iter().for_each(|ticket| worker.wait(ticket).unwrap());
        [0, 1].into_iter().for_each(|chip| assert_right(&scene, &shared, chip * each));
        // One place is enough for all of them, one after the other.
        assert_eq!(worker.prepare(1, callable).unwrap(), 0);
        worker.unregister(callable).unwrap();
        let error = worker.submit(0, callable, &placed(&scene, &shared, 0)).unwrap_err();
        assert!(error.to_string().contains("is none of this worker's"), "{error}");
        assert!(matches!(worker.prepare(0, callable), Err(WorkerError::Unknown(_))));
    }
    assert!(largest > 40_000, "an image of {largest} bytes takes more than one request");
    worker.close().unwrap();
    assert!(matches!(worker.register(image(ADD_KERNEL)), Err(WorkerError::Closed)));
}

/// Runs the callable that the scalars name, with the scalars behind that, on each chip of the node.
fn run_named(node: &mut Worker, args: &RunArgs) -> Result<(), RunError> {
    let (name, scalars) = args.scalars.split_first_chunk().unwrap();
    let args = RunArgs { scalars: scalars.to_vec(), ..args.clone() };
    let ticket = node.submit(0, Callable::from_scalars(*name), &args)?;
    Ok(node.wait(ticket)?)
}

fn named(callable: Callable, args: RunArgs) -> RunArgs {
    RunArgs {
        scalars: callable.to_scalars().into_iter().chain(args.scalars.iter().copied()).collect(),
        ..args
    }
}

fn a_pod_passes_callables_on_to_the_chips_of_its_nodes() {
    let scenes = [simpler_scenes::softmax(24, 100, 7), simpler_scenes::vector_add(4_096, 4)];
    let mut pod = Worker::builder(4);
    pod.worker(node(1)).worker(node(1));
    let (shared, each) = room(&mut pod, 2);
    let run = pod.orchestration("run", run_named).unwrap();
    // One of the pod's snapshot, which its nodes have as well, and one that comes later.
    let before = pod.callable(compiled(&scenes[0])).unwrap();
    let mut pod = pod.start().unwrap();
    let after = pod.register(compiled(&scenes[1])).unwrap();
    for (scene, callable) in scenes.iter().zip([before, after]) {
        let tickets = [0, 1].map(|node| {
            let args = named(callable, placed(scene, &shared, node * each));
            pod.submit(ChildId::Worker(node), run, &args).unwrap()
        });
        tickets.into_iter().for_each(|ticket| pod.wait(ticket).unwrap());
        [0, 1].into_iter().for_each(|node| assert_right(scene, &shared, node * each));
        let error = pod.submit(ChildId::Worker(0), callable, &RunArgs::default()).unwrap_err();
        assert!(error.to_string().contains("none that worker 0 runs"), "{error}");
        pod.unregister(callable).unwrap();
        let ticket =
            pod.submit(ChildId::Worker(1), run, &named(callable, placed(scene, &shared, 0))).unwrap();
        let error = pod.wait(ticket).unwrap_err();
        assert!(error.to_string().contains("is none of this worker's"), "{error}");
    }
    // Two levels below; what it says comes up.
    let error = pod.register(image(&ADD_KERNEL.replace("kernel_entry", "another_name"))).unwrap_err();
    assert!(
        matches!(error, WorkerError::Child { child: ChildId::Worker(0), what: "register", .. }),
        "{error:?}"
    );
    assert!(
        error.to_string().contains("chip 0 (pid ") && error.to_string().contains("kernel_entry"),
        "{error}"
    );
    pod.close().unwrap();
}

fn a_chip_in_this_process_takes_callables_too() {
    let scene = simpler_scenes::matmul_tiles(64, 16);
    let mut builder = Worker::builder(2);
    builder.endpoint(|_, callables| Ok(Box::new(ChipWorker::new(npu(), small(), callables)?)));
    let (shared, _) = room(&mut builder, 1);
    let mut worker = builder.start().unwrap();
    let callable = worker.register(compiled(&scene)).unwrap();
    let ticket = worker.submit(0, callable, &placed(&scene, &shared, 0)).unwrap();
    worker.wait(ticket).unwrap();
    assert_right(&scene, &shared, 0);
    let bad = image(&ADD_KERNEL.replace("kernel_entry", "another_name"));
    let error = worker.register(bad).unwrap_err();
    assert!(
        matches!(error, WorkerError::Child { child: ChildId::Chip(0), what: "register", .. }),
        "{error:?}"
    );
    worker.unregister(callable).unwrap();
    assert!(worker.submit(0, callable, &placed(&scene, &shared, 0)).is_err());
    // More than a chip has places for, one after the other; what follows an object's end is content too.
    let mut image = image(ADD_KERNEL);
    for _ in 0..=CALLABLES_MAX {
        image.orchestration.push(0);
        let callable = worker.register(image.clone()).unwrap();
        worker.unregister(callable).unwrap();
    }
    worker.close().unwrap();
}

fn a_callable_stays_until_it_is_unregistered_as_often_as_registered() {
    let mut builder = node(1);
    let shared = builder.share(SharedBuffer::new(4 * BYTES).unwrap());
    let callable = builder.callable(image(ADD_KERNEL)).unwrap();
    let mut worker = builder.start().unwrap();
    assert_eq!(worker.register(image(ADD_KERNEL)).unwrap(), callable);
    put(&shared, 0, 1.0);
    for left in [1, 0] {
        worker.unregister(callable).unwrap();
        let submitted = worker.submit(0, callable, &add(&shared, 0, 1, 3));
        assert_eq!(submitted.is_ok(), left == 1);
        submitted.into_iter().for_each(|ticket| worker.wait(ticket).unwrap());
    }
    let error = worker.unregister(callable).unwrap_err();
    assert!(error.to_string().contains("is none of this worker's"), "{error}");
    // It can come again.
    assert_eq!(worker.register(image(ADD_KERNEL)).unwrap(), callable);
    let ticket = worker.submit(0, callable, &add(&shared, 0, 2, 5)).unwrap();
    worker.wait(ticket).unwrap();
    assert_holds(&shared, 2, 6.0);
    worker.close().unwrap();
}

fn a_kernel_that_does_not_load_is_refused_by_name() {
    let mut builder = node(2);
    let shared = builder.share(SharedBuffer::new(4 * BYTES).unwrap());
    let mut worker = builder.start().unwrap();
    let bad = image(&ADD_KERNEL.replace("kernel_entry", "another_name"));
    let error = worker.register(bad).unwrap_err();
    assert!(matches!(error, WorkerError::Child { what: "register", .. }), "{error:?}");
    assert!(error.to_string().contains("callable add: "), "{error}");
    assert!(error.to_string().contains("kernel_entry"), "{error}");
    let mut tampered = image(ADD_KERNEL);
    tampered.kernels = image(&ADD_KERNEL.replace("in[i] +", "in[i] -")).kernels;
    let error = worker.register(tampered).unwrap_err();
    assert!(matches!(error, WorkerError::Child { what: "register", code: -5, .. }), "{error:?}");
    // Nothing is left of them, and the chips go on.
    let callable = worker.register(image(ADD_KERNEL)).unwrap();
    assert_eq!(worker.prepare(0, callable).unwrap(), 0);
    put(&shared, 0, 1.0);
    let ticket = worker.submit(1, callable, &add(&shared, 0, 1, 3)).unwrap();
    worker.wait(ticket).unwrap();
    assert_holds(&shared, 1, 4.0);
    worker.close().unwrap();
}

/// Notes in shared memory what it is asked: of each chip registrations, and those taken back.
struct Noting {
    chip: usize,
    notes: SharedMemory,
}

const NOTES: usize = 2;

impl Noting {
    fn note(&self, what: usize) {
        let offset = (self.chip * NOTES + what) * 8;
        let mut word = [0; 8];
        self.notes.read(offset, &mut word).unwrap();
        self.notes.write(offset, &(u64::from_ne_bytes(word) + 1).to_ne_bytes()).unwrap();
    }
}

impl Endpoint for Noting {
    unsafe fn run(&mut self, _: &[u8; 32], _: &RunArgs) -> Result<(), RunError> {
        Ok(())
    }

    fn prepare(&mut self, _: &[u8; 32]) -> Result<u64, RunError> {
        Ok(0)
    }

    fn register(&mut self, image: &CallableImage) -> Result<u64, RunError> {
        match (self.chip, image.name.as_str()) {
            (1, "refused") => return Err(RunError { code: -7, text: "not this one".into() }),
            // SAFETY: always allowed.
            (1, "fatal") => unsafe { libc::_exit(41) },
            _ => self.note(0),
        }
        Ok(0)
    }

    fn unregister(&mut self, _: &[u8; 32]) -> Result<(), RunError> {
        self.note(1);
        Ok(())
    }
}

/// Takes what it is given.
struct Quiet;

impl Endpoint for Quiet {
    unsafe fn run(&mut self, _: &[u8; 32], _: &RunArgs) -> Result<(), RunError> {
        Ok(())
    }

    fn prepare(&mut self, _: &[u8; 32]) -> Result<u64, RunError> {
        Ok(0)
    }

    fn register(&mut self, _: &CallableImage) -> Result<u64, RunError> {
        Ok(0)
    }
}

fn noting() -> (Worker, Arc<dyn Fn(usize) -> [u64; NOTES]>) {
    let mut builder = Worker::builder(3);
    builder.chips(3);
    let notes = builder.share(SharedBuffer::new(3 * NOTES * 8).unwrap());
    let inherited = notes.clone();
    builder.endpoint(move |chip, _| Ok(Box::new(Noting { chip, notes: inherited.clone() })));
    let of = move |chip: usize| {
        let mut bytes = [0; NOTES * 8];
        notes.read(chip * NOTES * 8, &mut bytes).unwrap();
        std::array::from_fn(|what| u64::from_ne_bytes(*bytes[what * 8..].first_chunk().unwrap()))
    };
    (builder.start().unwrap(), Arc::new(of))
}

/// Large enough for several requests.
fn bytes(name: &str) -> CallableImage {
    let orchestration = name.bytes().cycle().take(100_000).collect();
    CallableImage { name: name.into(), orchestration, kernels: Vec::new() }
}

fn what_one_chip_refuses_is_taken_back_from_the_others() {
    let (mut worker, notes) = noting();
    let pid = worker.pids()[1];
    let error = worker.register(bytes("refused")).unwrap_err();
    assert_eq!(error.to_string(), format!("chip 1 (pid {pid}): register failed with code -7: not this one"));
    assert_eq!([0, 1, 2].map(&*notes), [[1, 1], [0, 0], [1, 1]]);
    let callable = worker.register(bytes("other")).unwrap();
    assert_eq!([0, 1, 2].map(&*notes), [[2, 1], [1, 0], [2, 1]]);
    worker.unregister(callable).unwrap();
    assert_eq!([0, 1, 2].map(&*notes), [[2, 2], [1, 1], [2, 2]]);
    worker.close().unwrap();
}

fn a_chip_that_is_gone_is_reported() {
    let (mut worker, notes) = noting();
    let held = worker.register(bytes("held")).unwrap();
    let error = worker.register(bytes("fatal")).unwrap_err();
    let gone = |error: &WorkerError| {
        matches!(error, WorkerError::ChildGone { child: ChildId::Chip(1), ending: Ending::Exited(41), .. })
    };
    assert!(
        gone(&error) && error.to_string().ends_with("exited with status 41 during register"),
        "{error:?}"
    );
    assert_eq!([0, 2].map(&*notes), [[2, 1]; 2]);
    // Before anything is sent.
    let error = worker.register(bytes("late")).unwrap_err();
    assert!(gone(&error), "{error:?}");
    assert_eq!([0, 2].map(&*notes), [[2, 1]; 2]);
    // It goes from those that are there.
    let error = worker.unregister(held).unwrap_err();
    assert!(gone(&error), "{error:?}");
    assert_eq!([0, 2].map(&*notes), [[2, 2]; 2]);
    assert!(matches!(worker.unregister(held), Err(WorkerError::Unknown(_))));
    worker.close().unwrap();
}

fn until(what: &str, mut condition: impl FnMut() -> bool) {
    const LIMIT: Duration = Duration::from_secs(30);
    let deadline = Instant::now() + LIMIT;
    while !condition() {
        assert!(Instant::now() < deadline, "{what} did not happen within {LIMIT:?}");
        std::thread::yield_now();
    }
}

/// Memory of a process that it shares with nobody, in bytes: not the rings of its log.
fn resident(pid: i32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    1024 * line.trim().trim_end_matches(" kB").parse::<usize>().unwrap()
}

fn what_has_come_of_an_image_goes_with_its_transfer() {
    const IMAGE_BYTES: usize = 48 << 20;
    let own = || resident(std::process::id() as i32);
    let mut builder = Worker::builder(3);
    builder.chips(2).endpoint(move |chip, _| {
        // One chip leaves in the middle.
        let before = own();
        let leave = move || {
            until("the half of the image", || own() > before + IMAGE_BYTES / 2);
            // SAFETY: always allowed.
            unsafe { libc::_exit(41) };
        };
        let _ = (chip == 1).then(|| std::thread::spawn(leave));
        Ok(Box::new(Quiet))
    });
    let mut worker = builder.start().unwrap();
    let [stays, _] = worker.pids()[..] else { panic!("two chips") };
    let before = resident(stays);
    let large =
        CallableImage { name: "large".into(), orchestration: vec![1; IMAGE_BYTES], kernels: Vec::new() };
    let error = worker.register(large).unwrap_err();
    assert!(matches!(error, WorkerError::ChildGone { child: ChildId::Chip(1), .. }), "{error:?}");
    until("the other chip has the memory no more", || resident(stays) < before + IMAGE_BYTES / 4);
    worker.close().unwrap();
}

fn a_full_table_has_room_again_after_unregistering() {
    let (mut worker, notes) = noting();
    let small = |number: usize| CallableImage {
        name: number.to_string(),
        orchestration: vec![number as u8],
        kernels: Vec::new(),
    };
    let all: Vec<_> = (0..CALLABLES_MAX).map(|number| worker.register(small(number)).unwrap()).collect();
    let error = worker.register(small(99)).unwrap_err();
    assert_eq!(error.to_string(), "worker: callable 99 does not fit: a worker has at most 64");
    assert_eq!(worker.register(small(3)).unwrap(), all[3], "one that is there needs no room");
    worker.unregister(all[7]).unwrap();
    let late = worker.register(small(99)).unwrap();
    assert!(worker.register(small(7)).is_err());
    assert_eq!(notes(0), [CALLABLES_MAX as u64 + 1, 1]);
    let late = worker.submit(0, late, &RunArgs::default()).unwrap();
    worker.wait(late).unwrap();
    worker.close().unwrap();
}

fn runs_handed_over_before_end_before_the_callable_goes() {
    let mut builder = pipelined();
    let shared = builder.share(SharedBuffer::new(4 * BYTES).unwrap());
    let mut worker = builder.start().unwrap();
    put(&shared, 0, 1.0);
    for round in 0..10 {
        let callable = worker.register(image(ADD_KERNEL)).unwrap();
        let tickets = [1, 2].map(|to| worker.submit(0, callable, &add(&shared, 0, to, round)).unwrap());
        worker.unregister(callable).unwrap();
        assert!(tickets.iter().all(|ticket| worker.poll(ticket)), "they have ended");
        tickets.into_iter().for_each(|ticket| worker.wait(ticket).unwrap());
        [1, 2].into_iter().for_each(|to| assert_holds(&shared, to, 1.0 + round as f32));
    }
    worker.close().unwrap();
}

/// The kernel that adds, in an image that takes several requests; what follows an object's end is content, too.
fn large_add(number: u8) -> CallableImage {
    let mut large = image(ADD_KERNEL);
    large.orchestration.extend([number; 100_000]);
    large
}

fn pipelined() -> WorkerBuilder {
    let mut builder = Worker::builder(3);
    let config = RuntimeConfig { pipeline_depth: 2, ..small() };
    builder.endpoint(move |_, callables| Ok(Box::new(ChipWorker::new(npu(), config.clone(), callables)?)));
    builder
}

fn an_image_of_several_requests_comes_while_runs_are_in_flight() {
    let mut builder = pipelined();
    let shared = builder.share(SharedBuffer::new(4 * BYTES).unwrap());
    let mut worker = builder.start().unwrap();
    let first = worker.register(image(ADD_KERNEL)).unwrap();
    put(&shared, 0, 1.0);
    for round in 0..10 {
        // To make it takes longer than the runs do.
        let large = large_add(round);
        let tickets =
            [1, 2].map(|to| worker.submit(0, first, &add(&shared, 0, to, u64::from(round))).unwrap());
        let large = worker.register(large).unwrap();
        assert_ne!(large, first);
        assert!(tickets.iter().all(|ticket| worker.poll(ticket)), "they have ended");
        tickets.into_iter().for_each(|ticket| worker.wait(ticket).unwrap());
        [1, 2].into_iter().for_each(|to| assert_holds(&shared, to, 1.0 + f32::from(round)));
        let ticket = worker.submit(0, large, &add(&shared, 2, 3, 5)).unwrap();
        worker.wait(ticket).unwrap();
        assert_holds(&shared, 3, 6.0 + f32::from(round));
        worker.unregister(large).unwrap();
    }
    worker.close().unwrap();
}

fn an_image_of_several_requests_comes_while_an_orchestration_runs_and_from_it() {
    let mut pod = Worker::builder(4);
    pod.worker(pipelined());
    let shared = pod.share(SharedBuffer::new(4 * BYTES).unwrap());
    let first = pod.callable(image(ADD_KERNEL)).unwrap();
    let (memory, own) = (shared.clone(), large_add(255));
    let step = pod
        .orchestration("step", move |node, args| {
            let named = Callable::from_scalars(*args.scalars.first_chunk().unwrap());
            let tickets = [1, 2].map(|to| node.submit(0, named, &add(&memory, 0, to, 1)));
            // One of its own, meanwhile.
            let own = node.register(own.clone())?;
            tickets.into_iter().try_for_each(|ticket| node.wait(ticket?))?;
            let ticket = node.submit(0, own, &add(&memory, 2, 3, 5))?;
            node.wait(ticket)?;
            Ok(node.unregister(own)?)
        })
        .unwrap();
    let mut pod = pod.start().unwrap();
    let with = |callable| named(callable, RunArgs::default());
    for round in 0..5 {
        put(&shared, 0, f32::from(round));
        let large = large_add(round);
        let ticket = pod.submit(ChildId::Worker(0), step, &with(first)).unwrap();
        let large = pod.register(large).unwrap();
        assert!(pod.poll(&ticket), "it has ended");
        pod.wait(ticket).unwrap();
        [(1, 1.0), (2, 1.0), (3, 6.0)]
            .into_iter()
            .for_each(|(slot, more)| assert_holds(&shared, slot, f32::from(round) + more));
        let ticket = pod.submit(ChildId::Worker(0), step, &with(large)).unwrap();
        pod.wait(ticket).unwrap();
        pod.unregister(large).unwrap();
    }
    pod.close().unwrap();
}

fn closures_stay() {
    let mut builder = Worker::builder(3);
    builder.chips(0).subs(1);
    let function = builder.function("nothing", |_| Ok(())).unwrap();
    let mut worker = builder.start().unwrap();
    let error = worker.unregister(function).unwrap_err();
    assert!(error.to_string().ends_with("is a function or an orchestration, which stays"), "{error}");
    let ticket = worker.submit(ChildId::Sub(0), function, &RunArgs::default()).unwrap();
    worker.wait(ticket).unwrap();
    worker.close().unwrap();
}
