//! The headers, the exports and the Rust types say the same.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail where it stands")]

mod support;

use std::fmt::Write as _;
use std::mem::{align_of, offset_of, size_of};
use std::process::Command;

use simpler_host_runtime::host_runtime::*;
use simpler_host_runtime::sim;
use support::{PLATFORMS, build, host_runtime, includes, sim_context};

/// What must hold in C, from the Rust types.
fn facts() -> Vec<(String, i64)> {
    let mut facts = Vec::new();
    macro_rules! layout {
        ($type:ident { $($field:ident as $c_field:ident),* $(,)? }) => {
            facts.push((format!("sizeof({})", stringify!($type)), size_of::<$type>() as i64));
            facts.push((format!("simpler_alignof({})", stringify!($type)), align_of::<$type>() as i64));
            $({
                let expression = format!("offsetof({}, {})", stringify!($type), stringify!($c_field));
                facts.push((expression, offset_of!($type, $field) as i64));
            })*
        };
    }
    layout!(SimplerBytes { data as data, size as size });
    layout!(SimplerContextConfig { graph_runtime as graph_runtime, pipeline_depth as pipeline_depth });
    layout!(SimplerBinaries { aicpu as aicpu, aicore as aicore });
    layout!(SimplerCallConfig {
        aicpu_thread_num as aicpu_thread_num, enable_chip_swimlane as enable_chip_swimlane,
        enable_dump_args as enable_dump_args, enable_pmu as enable_pmu, enable_dep_gen as enable_dep_gen,
        enable_scope_stats as enable_scope_stats, ring_task_window as ring_task_window,
        ring_heap_bytes as ring_heap_bytes, ring_dep_pool as ring_dep_pool, output_prefix as output_prefix,
    });
    layout!(SimplerKernelImage { name as name, object as object, kind as kind, reserved as reserved });
    layout!(SimplerCallableImage {
        name as name, orchestration as orchestration, kernels as kernels, kernel_count as kernel_count,
        reserved as reserved,
    });
    layout!(SimplerRunTensor { tensor as tensor, arg_use as use });
    layout!(SimplerRunRequest {
        callable as callable, tensors as tensors, scalars as scalars, tensor_count as tensor_count,
        scalar_count as scalar_count, config as config, run_id as run_id, dispatch_id as dispatch_id,
        slot as slot, reserved as reserved,
    });
    for (name, value) in [
        ("SIMPLER_HOST_RUNTIME_ABI", HOST_RUNTIME_ABI.into()),
        ("SIMPLER_REFUSED", simpler_runtime::code::REFUSED.into()),
        ("SIMPLER_TENSORMAP_AND_RINGBUFFER", TENSORMAP_AND_RINGBUFFER.into()),
        ("SIMPLER_HOST_BUILD_GRAPH", HOST_BUILD_GRAPH.into()),
        ("SIMPLER_RINGS", simpler_runtime::RINGS as i64),
        ("SIMPLER_OUTPUT_PREFIX_BYTES", simpler_runtime::OUTPUT_PREFIX_BYTES as i64),
        ("SIMPLER_ANY_SLOT", ANY_SLOT.into()),
        ("SIMPLER_SIM_DEVICES", sim::SIM_DEVICES.into()),
        ("SIMPLER_SIM_CLAIMED", sim::CLAIMED.into()),
        ("SIMPLER_SIM_IN_USE", sim::IN_USE.into()),
        ("SIMPLER_SIM_OUT_OF_RANGE", sim::OUT_OF_RANGE.into()),
        ("sizeof(((SimplerCallConfig *)0)->ring_dep_pool)", 32),
        ("sizeof(((SimplerRunRequest *)0)->slot)", 4),
        ("sizeof(((SimplerRunRequest *)0)->tensor_count)", 4),
        ("sizeof(SIMPLER_RUN_MAGIC)", 9),
    ] {
        facts.push((name.to_owned(), value));
    }
    facts
}

fn compiled(facts: &[(String, i64)], compiler: build::Compiler) -> Result<(), String> {
    let mut text = String::from(
        "#include <simpler/host_runtime.h>\n#include <simpler/sim_context.h>\n\
         #ifdef __cplusplus\n#define simpler_alignof alignof\n#define simpler_assert static_assert\n\
         #else\n#define simpler_alignof _Alignof\n#define simpler_assert _Static_assert\n#endif\n",
    );
    for (expression, value) in facts {
        writeln!(text, "simpler_assert((int64_t)({expression}) == {value}, \"{expression}\");").unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let includes = includes();
    let flags: Vec<&str> = ["-c"].into_iter().chain(includes.iter().map(String::as_str)).collect();
    build::compile(folder.path(), compiler, &[("layout.x", &text)], &flags, "layout.o").map(drop)
}

#[test]
fn the_headers_have_the_layout_and_the_values_of_the_rust_types() {
    for compiler in build::compilers() {
        assert_eq!(compiled(&facts(), compiler).err(), None, "{compiler:?}");
    }
}

#[test]
fn a_wrong_number_is_noticed() {
    let compiler = build::compilers()[0];
    for index in (0..facts().len()).step_by(5) {
        let mut wrong = facts();
        wrong[index].1 ^= 1;
        let words = compiled(&wrong, compiler).unwrap_err();
        assert!(words.contains(&wrong[index].0), "{words}");
    }
}

/// The functions that a header declares.
fn declared(header: &str) -> Vec<&str> {
    let mut declared: Vec<&str> = header
        .lines()
        .filter(|line| !line.starts_with([' ', '/', '*', '#', '}']) && line.contains('('))
        .filter_map(|line| line.split_once('(')?.0.rsplit([' ', '*']).next())
        .collect();
    // The binder is declared by the log.
    declared.push("simpler_host_log_bind_state");
    declared.sort_unstable();
    declared
}

#[test]
fn the_objects_export_what_is_listed_and_declared_and_stay_mapped() {
    let listed = include_str!("../exports.txt").lines().collect::<Vec<_>>();
    assert_eq!(declared(include_str!("../include/simpler/host_runtime.h")), listed);
    let mut resolved = HostRuntimeApi::NAMES.to_vec();
    resolved.extend(["simpler_host_log_bind_state", ABI_FUNCTION]);
    resolved.sort_unstable();
    assert_eq!(resolved, listed);
    let of_context = include_str!("../sim-context/exports.txt").lines().collect::<Vec<_>>();
    assert_eq!(declared(include_str!("../sim-context/include/simpler/sim_context.h")), of_context);
    let runtimes = PLATFORMS.map(|platform| (host_runtime(platform), &listed));
    for (object, listed) in runtimes.iter().chain(&[(sim_context(), &of_context)]) {
        assert_eq!(build::exports(object), **listed, "{}", object.display());
        let dynamic = Command::new("readelf").arg("-d").arg(object).output().unwrap();
        assert!(String::from_utf8_lossy(&dynamic.stdout).contains("NODELETE"), "{}", object.display());
    }
}
