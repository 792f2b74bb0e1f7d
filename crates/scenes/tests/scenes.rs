//! Every scene, on every simulated platform, with each graph runtime: the results, and that a wrong one is noticed.

#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

use std::path::Path;

use simpler_kernel_compiler::Compiler;
use simpler_runtime::{CallableImage, ChipRuntime, GraphRuntime, Limits, RingLimits, RuntimeConfig};
use simpler_scenes::Scene;
use simpler_sim_npu::{Profile, SimNpu, SimOptions};

fn chips() -> impl Iterator<Item = ChipRuntime> {
    let runtimes = [GraphRuntime::TensorMapAndRingBuffer, GraphRuntime::HostBuildGraph];
    [Profile::a2a3sim(), Profile::a5sim()].into_iter().flat_map(move |profile| {
        runtimes.map(|graph_runtime| {
            let limits =
                Limits::each(RingLimits { window: 1024, heap_bytes: 1 << 20, ..RingLimits::default() });
            let npu = SimNpu::new(profile.clone(), SimOptions::default()).unwrap();
            let config = RuntimeConfig { graph_runtime, limits, ..RuntimeConfig::default() };
            ChipRuntime::new(npu, config).unwrap()
        })
    })
}

fn image(scene: &Scene) -> CallableImage {
    let compiler = Compiler::new(Path::new(env!("CARGO_TARGET_TMPDIR")).join("callables")).unwrap();
    CallableImage::load(&compiler.compile(&scene.source()).unwrap_or_else(|why| panic!("{why}"))).unwrap()
}

fn run_on_every_chip(mut scene: Scene) {
    let image = image(&scene);
    for chip in chips() {
        let callable = chip.register(&image).unwrap();
        for _ in 0..5 {
            scene.reset();
            assert!(scene.check().is_err(), "nothing is right before a run");
            // SAFETY: the arguments are the scene's own memory; the objects were compiled from its sources.
            unsafe { chip.run(callable, &scene.args()) }.unwrap();
            scene.check().unwrap_or_else(|why| panic!("{why}"));
        }
    }
}

#[test]
fn vectors_add_in_tiles() {
    for (count, tiles) in [(1, 1), (1_000, 3), (4_096, 4), (100, 100)] {
        run_on_every_chip(simpler_scenes::vector_add(count, tiles));
    }
}

#[test]
fn matrices_multiply_in_strided_tiles() {
    for (side, tile) in [(16, 16), (48, 16), (64, 8)] {
        run_on_every_chip(simpler_scenes::matmul_tiles(side, tile));
    }
}

#[test]
fn rows_are_normalised_by_the_blocks_of_one_task() {
    for (rows, columns, blocks) in [(1, 1, 1), (24, 100, 7), (5, 33, 40)] {
        run_on_every_chip(simpler_scenes::softmax(rows, columns, blocks));
    }
}

#[test]
fn a_token_attends_to_tokens_in_pages() {
    for (heads, dim, page, tokens) in [(1, 8, 4, 1), (4, 64, 16, 50), (3, 16, 8, 64), (2, 32, 5, 99)] {
        run_on_every_chip(simpler_scenes::paged_attention(heads, dim, page, tokens));
    }
}

#[test]
fn vector_cores_follow_their_cube_core_row_by_row() {
    for (rows, inner, columns, blocks) in [(1, 1, 1, 1), (40, 24, 32, 5), (64, 8, 16, 30)] {
        run_on_every_chip(simpler_scenes::fused_matmul(rows, inner, columns, blocks));
    }
}

#[test]
fn each_scene_has_its_own_name() {
    let mut names: Vec<_> = simpler_scenes::all().iter().map(Scene::name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 5);
}
