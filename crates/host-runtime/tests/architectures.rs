//! Runs through the loader: both architectures in one process, their devices, phases, and what the log says.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail where it stands")]

mod support;

use std::sync::Arc;

use simpler_host_log as log;
use simpler_host_runtime::host_runtime::{HOST_BUILD_GRAPH, SimplerContextConfig};
use simpler_host_runtime::loader::{HostContext, HostRuntimeLibrary};
use simpler_kernel_abi::{ArgUse, DType, HOST_MEMORY, SimplerTensor};
use simpler_runtime::{CallConfig, ChipArg, RINGS, RingSizes, RunIdentity};
use support::owner::{flushed_lines, in_own_process, log_to_folder, spans, the_anchor};
use support::{NOBODY, PLATFORMS, host_runtime, image, roots, sim_context, tree};

fn library(platform: &str) -> Arc<HostRuntimeLibrary> {
    // SAFETY: the objects of this workspace.
    unsafe { HostRuntimeLibrary::open(&host_runtime(platform), Some(&sim_context())) }
        .unwrap_or_else(|why| panic!("{why}"))
}

fn context(platform: &str, device: i32, pipeline_depth: u32) -> HostContext {
    let config = SimplerContextConfig { pipeline_depth, ..SimplerContextConfig::default() };
    let context = library(platform).create_context(&config).unwrap();
    context.init(device, None, false).unwrap();
    context
}

#[test]
fn both_architectures_run_a_scene_in_one_process_and_one_log() {
    in_own_process("both_architectures_run_a_scene_in_one_process_and_one_log", || {
        let dir = log_to_folder();
        let contexts: Vec<_> =
            PLATFORMS.iter().enumerate().map(|(device, name)| context(name, device as i32, 1)).collect();
        let mut scene = simpler_scenes::vector_add(1_000, 3);
        let image = image(&scene);
        let ids: Vec<u64> = contexts.iter().map(|context| context.register(&image).unwrap()).collect();
        for round in 0..2 {
            // An invocation of this process's own copy of the logger between theirs.
            drop(log::Invocation::begin("of_the_program", 1));
            for (context, id) in contexts.iter().zip(&ids) {
                scene.reset();
                let identity = RunIdentity { run_id: 7, dispatch_id: round + 1 };
                // SAFETY: the arguments are the scene's own memory.
                unsafe { context.run(*id, &scene.args(), identity) }.unwrap();
                scene.check().unwrap();
            }
        }
        let lines = flushed_lines(dir.path());
        the_anchor(&lines);
        let spans = spans(&lines);
        let roots = roots(&spans);
        assert_eq!(roots.len(), 4);
        let mut invocations: Vec<u64> = roots.iter().map(|root| root.inv).collect();
        invocations.extend(spans.iter().filter(|span| span.name == "of_the_program").map(|span| span.inv));
        let count = invocations.len();
        invocations.sort_unstable();
        invocations.dedup();
        assert_eq!((count, invocations.len()), (6, 6), "no two share a number");
        for root in roots {
            assert_eq!((root.hid, root.depth), (image.hid(), 0));
            assert!(root.attrs.starts_with("run_id=7 dispatch_id="), "{}", root.attrs);
            let tree = tree(&spans, root.inv);
            assert_eq!(tree.last(), Some(&(0, "simpler_run")), "the root closes last");
            for expected in [
                (1, "simpler_run.bind"),
                (2, "simpler_run.bind.args"),
                (1, "simpler_run.runner_run"),
                (2, "simpler_run.runner_run.device_wall"),
                (1, "simpler_run.validate"),
            ] {
                assert_eq!(
                    tree.iter().filter(|span| **span == expected).count(),
                    1,
                    "{expected:?}: {tree:?}"
                );
            }
        }
    });
}

#[test]
fn a_device_is_one_contexts_until_it_is_given_back() {
    in_own_process("a_device_is_one_contexts_until_it_is_given_back", || {
        let config = SimplerContextConfig::default();
        let first = context("a2a3sim", 3, 1);
        for platform in PLATFORMS {
            let second = library(platform).create_context(&config).unwrap();
            let error = second.init(3, None, false).unwrap_err();
            assert_eq!(error.code, -1);
            assert!(error.text.contains("simulated device 3 is in use"), "{error}");
            // It may be tried again, and another device is free.
            second.init(4, None, false).unwrap();
        }
        let error = library("a5sim").create_context(&config).unwrap().init(64, None, false).unwrap_err();
        assert!(error.text.contains("no simulated device 64: the last one is 63"), "{error}");
        first.finalize().unwrap();
        let error = first.init(3, None, false).unwrap_err();
        assert!(error.text.contains("was finalized"), "{error}");
        let again = context("a5sim", 3, 1);
        drop(again);
        context("a2a3sim", 3, 1).pipeline_depth().unwrap();
    });
}

#[test]
fn without_the_sim_context_there_is_no_device() {
    in_own_process("without_the_sim_context_there_is_no_device", || {
        // SAFETY: an object of this workspace.
        let library = unsafe { HostRuntimeLibrary::open(&host_runtime("a2a3sim"), None) }.unwrap();
        let context = library.create_context(&SimplerContextConfig::default()).unwrap();
        let error = context.init(0, None, false).unwrap_err();
        assert!(error.text.contains("sim context library is not loaded"), "{error}");
    });
}

#[test]
fn the_graph_may_be_built_on_the_host() {
    in_own_process("the_graph_may_be_built_on_the_host", || {
        let config = SimplerContextConfig { graph_runtime: HOST_BUILD_GRAPH, pipeline_depth: 0 };
        for (device, platform) in PLATFORMS.into_iter().enumerate() {
            let context = library(platform).create_context(&config).unwrap();
            context.init(device as i32, None, false).unwrap();
            let mut scene = simpler_scenes::softmax(5, 33, 4);
            let id = context.register(&image(&scene)).unwrap();
            scene.reset();
            // SAFETY: the arguments are the scene's own memory.
            unsafe { context.run(id, &scene.args(), NOBODY) }.unwrap();
            scene.check().unwrap();
        }
    });
}

#[test]
fn a_run_is_bound_while_another_one_is_on_the_device() {
    in_own_process("a_run_is_bound_while_another_one_is_on_the_device", || {
        let dir = log_to_folder();
        let context = context("a2a3sim", 0, 2);
        assert_eq!(context.pipeline_depth(), Ok(2));
        let mut scenes = [simpler_scenes::vector_add(1_000, 3), simpler_scenes::vector_add(500, 2)];
        let id = context.register(&image(&scenes[0])).unwrap();
        scenes.iter_mut().for_each(simpler_scenes::Scene::reset);
        let [first, second] = &mut scenes;
        let prepare = |scene: &mut simpler_scenes::Scene, dispatch_id, slot| {
            // SAFETY: the arguments are the scene's own memory, which lives until the runs have ended.
            unsafe { context.prepare(id, &scene.args(), RunIdentity { run_id: 1, dispatch_id }, slot) }
        };
        let error = prepare(first, 1, Some(2)).err().unwrap();
        assert!(error.code == -1 && error.text.contains("pipeline slot 2: this chip has 2"), "{error}");
        let one = prepare(first, 1, Some(1)).unwrap();
        let error = prepare(second, 2, Some(1)).err().unwrap();
        assert!(error.text.contains("pipeline slot 1 is in use"), "{error}");
        let one = one.launch().unwrap();
        let two = prepare(second, 2, None).unwrap();
        let error = prepare(second, 3, None).err().unwrap();
        assert!(error.code == -1 && error.text.contains("in use"), "{error}");
        // The device is the first one's until it was waited for: the second one ends here.
        let error = two.launch().err().unwrap();
        assert!(error.code == -1 && error.text.contains("the device is in use"), "{error}");
        let two = prepare(second, 4, Some(0)).unwrap();
        let deadline = std::time::Instant::now() + support::owner::DEADLINE;
        while !one.is_done().unwrap() {
            assert!(std::time::Instant::now() < deadline, "never done");
            std::thread::yield_now();
        }
        let (one, waited) = one.wait();
        waited.unwrap();
        let two = two.launch().unwrap();
        one.finalize().unwrap();
        two.finalize().unwrap();
        scenes.iter().for_each(|scene| scene.check().unwrap());
        let spans = spans(&flushed_lines(dir.path()));
        let slots: Vec<String> = roots(&spans).iter().map(|root| root.attrs.clone()).collect();
        let of = |dispatch: usize, slot: usize| {
            let found = format!("dispatch_id={dispatch} slot_id={slot} ");
            slots.iter().filter(|attrs| attrs.contains(&found)).count()
        };
        assert_eq!((slots.len(), of(1, 1), of(2, 0), of(4, 0)), (3, 1, 1, 1), "{slots:?}");
    });
}

#[test]
fn an_abandoned_run_closes_its_root_span_with_its_context() {
    in_own_process("an_abandoned_run_closes_its_root_span_with_its_context", || {
        let dir = log_to_folder();
        let context = context("a2a3sim", 0, 2);
        let mut scene = simpler_scenes::vector_add(100, 1);
        let id = context.register(&image(&scene)).unwrap();
        scene.reset();
        // SAFETY: the scene outlives the context.
        let prepared = unsafe { context.prepare(id, &scene.args(), NOBODY, None) }.unwrap();
        std::mem::forget(prepared.launch().unwrap());
        // SAFETY: as above.
        std::mem::forget(unsafe { context.prepare(id, &scene.args(), NOBODY, None) }.unwrap());
        assert_eq!(roots(&spans(&flushed_lines(dir.path()))).len(), 0, "both are open");
        let error =
            std::thread::scope(|scope| scope.spawn(|| context.finalize()).join().unwrap()).unwrap_err();
        assert!(error.text.contains("2 runs of other threads are open"), "{error}");
        drop(context);
        let spans = spans(&flushed_lines(dir.path()));
        let roots = roots(&spans);
        assert_eq!(roots.len(), 2);
        for root in roots {
            let tree = tree(&spans, root.inv);
            assert!(tree.contains(&(1, "simpler_run.validate")), "{tree:?}");
            assert_eq!(tree.last(), Some(&(0, "simpler_run")));
        }
        scene.check().unwrap();
        // Nothing of them is left open on the thread, and their device is free.
        assert_eq!((log::context().inv, log::context().depth), (0, 0));
        self::context("a5sim", 0, 1).pipeline_depth().unwrap();
    });
}

/// An orchestration that fails its run.
const GIVES_UP: &str = r#"
#include <simpler/orchestration.h>
SIMPLER_EXPORT int aicpu_orchestration_entry(const SimplerOrchestrationApi *api, SimplerRun *run,
                                             const SimplerChipArgs *args) {
    (void)args;
    api->report_fatal(run, "enough of it");
    return 0;
}
"#;

#[test]
fn what_a_run_fails_with_comes_back_with_its_sentence() {
    in_own_process("what_a_run_fails_with_comes_back_with_its_sentence", || {
        let dir = log_to_folder();
        let context = context("a5sim", 0, 1);
        let image = support::callable("gives_up", GIVES_UP, &[]);
        let id = context.register(&image).unwrap();
        let args = simpler_runtime::RunArgs::default();
        // SAFETY: there are no arguments.
        let prepared = unsafe { context.prepare(id, &args, NOBODY, None) }.unwrap();
        let (done, waited) = prepared.launch().unwrap().wait();
        assert_eq!(waited.unwrap_err().code, -9);
        let error = done.finalize().unwrap_err();
        assert!(error.code == -9 && error.text.contains("enough of it"), "{error}");
        // SAFETY: as above.
        assert_eq!(unsafe { context.run(id, &args, NOBODY) }, Err(error));
        let config = CallConfig { aicpu_threads: Some(77), ..CallConfig::default() };
        let args = simpler_runtime::RunArgs { config, ..args };
        // SAFETY: as above.
        let error = unsafe { context.run(id, &args, NOBODY) }.unwrap_err();
        assert!(error.code == -5 && error.text.contains("77 AICPU threads"), "{error}");
        context.unregister(id).unwrap();
        // SAFETY: as above.
        let error = unsafe { context.run(id, &args, NOBODY) }.unwrap_err();
        assert!(error.code == -1 && error.text.contains("not registered"), "{error}");
        assert_eq!(context.unregister(id).unwrap_err().text, error.text);
        assert_eq!(roots(&spans(&flushed_lines(dir.path()))).len(), 2);
    });
}

#[test]
fn device_memory_is_the_contexts() {
    in_own_process("device_memory_is_the_contexts", || {
        let context = context("a2a3sim", 0, 1);
        let address = context.malloc(4096).unwrap();
        let sent: Vec<u8> = (0..4096).map(|n| n as u8).collect();
        context.copy_to(address, &sent).unwrap();
        let mut back = vec![0; 4096];
        context.copy_from(&mut back, address).unwrap();
        assert_eq!(back, sent);
        assert!(context.copy_to(address + 1, &sent).unwrap_err().text.contains("not inside one allocation"));
        context.free(address).unwrap();
        assert!(context.copy_from(&mut back, address).is_err());
        assert_eq!(context.malloc(0).unwrap_err().code, -1);
    });
}

#[test]
fn a_forked_child_makes_a_context_of_its_own() {
    in_own_process("a_forked_child_makes_a_context_of_its_own", || {
        let dir = log_to_folder();
        let context = context("a2a3sim", 0, 1);
        let mut scene = simpler_scenes::vector_add(100, 1);
        let image = image(&scene);
        let id = context.register(&image).unwrap();
        log::prepare_to_fork(support::owner::DRAIN).unwrap();
        let child = support::owner::fork(|| {
            log::start_writer().unwrap();
            let error = context.malloc(1).unwrap_err();
            assert!(error.text.contains("makes one of its own"), "{error}");
            assert_eq!(context.finalize().unwrap_err().text, error.text);
            let own = self::context("a2a3sim", 0, 1);
            let id = own.register(&image).unwrap();
            scene.reset();
            // SAFETY: the arguments are the scene's own memory.
            unsafe { own.run(id, &scene.args(), NOBODY) }.unwrap();
            scene.check().unwrap();
            drop(own);
            log::close(support::owner::DRAIN);
        });
        support::owner::reap(child);
        log::start_writer().unwrap();
        scene.reset();
        // SAFETY: as above.
        unsafe { context.run(id, &scene.args(), NOBODY) }.unwrap();
        scene.check().unwrap();
        assert_eq!(roots(&spans(&support::owner::lines_of(dir.path(), child))).len(), 1);
        assert_eq!(roots(&spans(&flushed_lines(dir.path()))).len(), 1);
    });
}

#[test]
fn what_the_first_run_would_build_may_be_built_before() {
    in_own_process("what_the_first_run_would_build_may_be_built_before", || {
        let dir = log_to_folder();
        let context = library("a2a3sim").create_context(&SimplerContextConfig::default()).unwrap();
        let rings = [RingSizes { window: Some(64), ..RingSizes::default() }; RINGS];
        let config = |rings| CallConfig { rings, ..CallConfig::default() };
        let odd = [RingSizes { window: Some(3), ..RingSizes::default() }; RINGS];
        let error = context.init(0, Some(&config(odd)), false).unwrap_err();
        assert!(error.code == -5, "{error}");
        // The device was given back.
        context.init(0, Some(&config(rings)), false).unwrap();
        let built = |spans: &[support::owner::SpanLine]| {
            spans.iter().filter(|span| span.name.ends_with("prewarm.build")).count()
        };
        assert_eq!(built(&spans(&flushed_lines(dir.path()))), 1);
        let mut scene = simpler_scenes::vector_add(100, 1);
        let id = context.register(&image(&scene)).unwrap();
        scene.reset();
        let args = simpler_runtime::RunArgs { config: config(rings), ..scene.args() };
        // SAFETY: the arguments are the scene's own memory.
        unsafe { context.run(id, &args, NOBODY) }.unwrap();
        scene.check().unwrap();
    });
}

/// One task.
const ONE_TASK: &str = r#"
#include <simpler/orchestration.h>
SIMPLER_EXPORT int aicpu_orchestration_entry(const SimplerOrchestrationApi *api, SimplerRun *run,
                                             const SimplerChipArgs *args) {
    SimplerTensor from = args->tensors[0], to = args->tensors[1];
    SimplerTaskArg all[] = {{&from, SIMPLER_INPUT}, {&to, SIMPLER_INOUT}};
    SimplerTask task = {0};
    task.struct_size = sizeof task;
    task.aic = task.aiv1 = SIMPLER_NO_KERNEL;
    task.args = all;
    task.arg_count = 2;
    task.block_count = 1;
    return api->submit_task(run, &task) < 0;
}
"#;

/// Leaves a copy to the engine, or says in the first word that there is none.
const LEAVES_A_COPY: &str = r#"
#include <simpler/kernel.h>
void kernel_entry(const SimplerKernelArgs *args) {
    const float *from = simpler_tensor_data(args->tensors[0]);
    float *to = simpler_tensor_data(args->tensors[1]);
    if (!simpler_copy_async(args, to, from, args->tensors[0]->extent)) to[0] = -1;
}
"#;

#[test]
fn kernels_have_a_copy_engine_where_init_was_asked_for_one() {
    in_own_process("kernels_have_a_copy_engine_where_init_was_asked_for_one", || {
        let image = support::callable("leaves_a_copy", ONE_TASK, &[("copy", LEAVES_A_COPY)]);
        for (device, sdma) in [(0, true), (1, false)] {
            let context = library("a5sim").create_context(&SimplerContextConfig::default()).unwrap();
            context.init(device, None, sdma).unwrap();
            let id = context.register(&image).unwrap();
            let (mut from, mut to) = ([1.0_f32, 2.0, 3.0], [0.0_f32; 3]);
            let tensor = |values: &mut [f32; 3], arg_use| {
                let addr = values.as_mut_ptr().expose_provenance() as u64;
                let mut tensor = SimplerTensor::whole(addr, 12, DType::F32, HOST_MEMORY);
                tensor.shapes[0] = 3;
                ChipArg { tensor, arg_use }
            };
            let tensors = vec![tensor(&mut from, ArgUse::Input), tensor(&mut to, ArgUse::InOut)];
            let args = simpler_runtime::RunArgs { tensors, ..simpler_runtime::RunArgs::default() };
            // SAFETY: two arrays that nobody touches meanwhile.
            unsafe { context.run(id, &args, NOBODY) }.unwrap();
            assert_eq!(to, if sdma { from } else { [-1.0, 0.0, 0.0] });
        }
    });
}
