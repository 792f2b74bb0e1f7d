//! The headers and their Rust mirror agree: the numbers of the mirror, printed as static assertions, compile as
//! C11 and as C++17 next to the headers.

#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

use std::fmt::Write as _;
use std::mem::{align_of, offset_of, size_of};
use std::path::Path;
use std::process::Command;

use simpler_kernel_abi::*;

/// `name = value` pairs that must hold in C.
fn facts() -> Vec<(String, u64)> {
    let mut facts = Vec::new();
    macro_rules! layout {
        ($type:ident { $($field:ident as $c_field:ident),* $(,)? }) => {
            facts.push((format!("sizeof({})", stringify!($type)), size_of::<$type>() as u64));
            facts.push((format!("simpler_alignof({})", stringify!($type)), align_of::<$type>() as u64));
            $({
                let expression = format!("offsetof({}, {})", stringify!($type), stringify!($c_field));
                facts.push((expression, offset_of!($type, $field) as u64));
            })*
        };
    }
    layout!(SimplerTensor {
        addr as addr, bytes as bytes, owner_task as owner_task, start_offset as start_offset,
        version as version, ndims as ndims, dtype as dtype, manual_dep as manual_dep,
        contiguous as contiguous, address_space as address_space, shapes as shapes, extent as extent,
        strides as strides, reserved as reserved,
    });
    layout!(SimplerKernelArgs {
        tensors as tensors, scalars as scalars, tensor_count as tensor_count, scalar_count as scalar_count,
        block_index as block_index, block_count as block_count, completions as completions,
        copy_engine as copy_engine,
    });
    layout!(SimplerCompletion { addr as addr, value as value, kind as kind });
    layout!(SimplerCompletions { count as count, reserved as reserved, entries as entries });
    layout!(SimplerCopy {
        dst as dst, src as src, bytes as bytes, state as state, reserved as reserved,
    });
    layout!(SimplerCopyEngine { submitted as submitted, reserved as reserved, copies as copies });
    layout!(SimplerTaskArg { tensor as tensor, arg_use as use });
    layout!(SimplerTask {
        struct_size as struct_size, aic as aic, aiv0 as aiv0, aiv1 as aiv1, args as args, scalars as scalars,
        arg_count as arg_count, scalar_count as scalar_count, deps as deps, dep_count as dep_count,
        attrs as attrs, argument_error as argument_error, predicate as predicate, reserved0 as reserved0,
        block_count as block_count, reserved1 as reserved1,
    });
    layout!(SimplerChipArgs {
        tensors as tensors, scalars as scalars, tensor_count as tensor_count, scalar_count as scalar_count,
    });
    layout!(SimplerOrchestrationConfig {
        struct_size as struct_size, tensors_min as tensors_min, scalars_min as scalars_min,
    });
    layout!(SimplerOrchestrationApi {
        struct_size as struct_size, submit_task as submit_task, core_count as core_count,
        is_fatal as is_fatal, report_fatal as report_fatal, log as log, phase_recorder as phase_recorder,
        submit_dummy_task as submit_dummy_task, alloc_tensors as alloc_tensors, get_tensor_data as get_tensor_data,
        set_tensor_data as set_tensor_data,
        scope_begin as scope_begin,
        scope_end as scope_end,
    });
    for (name, value) in [
        ("SIMPLER_TENSOR_DIMS_MAX", TENSOR_DIMS_MAX as u64),
        ("SIMPLER_NO_TASK", NO_TASK),
        ("SIMPLER_COMPLETIONS_MAX", COMPLETIONS_MAX as u64),
        ("SIMPLER_COMPLETION_COUNTER", u64::from(COMPLETION_COUNTER)),
        ("SIMPLER_COMPLETION_COPY", u64::from(COMPLETION_COPY)),
        ("SIMPLER_COPIES_MAX", COPIES_MAX as u64),
        ("SIMPLER_COPY_FREE", u64::from(COPY_FREE)),
        ("SIMPLER_COPY_CLAIMED", u64::from(COPY_CLAIMED)),
        ("SIMPLER_COPY_SUBMITTED", u64::from(COPY_SUBMITTED)),
        ("SIMPLER_COPY_DONE", u64::from(COPY_DONE)),
        ("SIMPLER_COPY_FAILED", u64::from(COPY_FAILED)),
        ("SIMPLER_F32", DType::F32 as u64),
        ("SIMPLER_F16", DType::F16 as u64),
        ("SIMPLER_I32", DType::I32 as u64),
        ("SIMPLER_U8", DType::U8 as u64),
        ("SIMPLER_Q4_1", DType::Q4_1 as u64),
        ("SIMPLER_Q8_0", DType::Q8_0 as u64),
        ("SIMPLER_HOST_MEMORY", u64::from(HOST_MEMORY)),
        ("SIMPLER_DEVICE_MEMORY", u64::from(DEVICE_MEMORY)),
        ("SIMPLER_TASK_TENSORS_MAX", TASK_TENSORS_MAX as u64),
        ("SIMPLER_TASK_SCALARS_MAX", TASK_SCALARS_MAX as u64),
        ("SIMPLER_CHIP_TENSORS_MAX", CHIP_TENSORS_MAX as u64),
        ("SIMPLER_CHIP_SCALARS_MAX", CHIP_SCALARS_MAX as u64),
        ("SIMPLER_TASK_BLOCKS_MAX", u64::from(TASK_BLOCKS_MAX)),
        ("SIMPLER_NO_KERNEL", i64::from(NO_KERNEL) as u64),
        ("SIMPLER_INPUT", ArgUse::Input as u64),
        ("SIMPLER_OUTPUT", ArgUse::Output as u64),
        ("SIMPLER_INOUT", ArgUse::InOut as u64),
        ("SIMPLER_OUTPUT_EXISTING", ArgUse::OutputExisting as u64),
        ("SIMPLER_NO_DEP", ArgUse::NoDep as u64),
        ("SIMPLER_TASK_EARLY_RESOLVE", u64::from(TASK_EARLY_RESOLVE)),
        ("SIMPLER_TASK_SYNC_START", u64::from(TASK_SYNC_START)),
        ("SIMPLER_TASK_PREDICATE", u64::from(TASK_PREDICATE)),
        ("SIMPLER_TASK_TIMED", u64::from(TASK_TIMED)),
        ("SIMPLER_TASK_SLOT_SHIFT", u64::from(TASK_SLOT_SHIFT)),
        ("SIMPLER_TASK_TIMING_SLOT_MAX", TASK_TIMING_SLOT_MAX as u64),
        ("SIMPLER_TASK_TIMING_SLOT_NONE", i64::from(TASK_TIMING_SLOT_NONE) as u64),
        ("SIMPLER_ARGUMENT_TIMING_SLOT", u64::from(ARGUMENT_TIMING_SLOT)),
        ("SIMPLER_ARGUMENT_PREDICATE", u64::from(ARGUMENT_PREDICATE)),
        ("SIMPLER_AIC", CoreKind::Aic as u64),
        ("SIMPLER_AIV", CoreKind::Aiv as u64),
    ] {
        facts.push((name.to_owned(), value));
    }
    facts
}

fn unit(facts: &[(String, u64)]) -> String {
    let mut text = String::from(
        "#include <simpler/orchestration.h>\n#include <stddef.h>\n\
         #ifdef __cplusplus\n#define simpler_alignof alignof\n#define simpler_assert static_assert\n\
         #else\n#define simpler_alignof _Alignof\n#define simpler_assert _Static_assert\n#endif\n",
    );
    for (expression, value) in facts {
        writeln!(text, "simpler_assert((uint64_t)({expression}) == {value}u, \"{expression}\");").unwrap();
    }
    text
}

/// The compiler's words, None when it agrees.
fn compile(compiler: &str, language: &str, standard: &str, text: &str) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("layout.txt");
    std::fs::write(&source, text).unwrap();
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let output = Command::new(compiler)
        .args(["-x", language, standard, "-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only", "-I"])
        .arg(include)
        .arg(&source)
        .output()
        .unwrap_or_else(|error| panic!("{compiler}: {error}"));
    (!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn the_c_header_has_the_layout_of_the_rust_mirror() {
    assert_eq!(compile("gcc", "c", "-std=c11", &unit(&facts())), None);
}

#[test]
fn the_cpp_header_has_the_layout_of_the_rust_mirror() {
    assert_eq!(compile("g++", "c++", "-std=c++17", &unit(&facts())), None);
}

#[test]
fn a_wrong_number_is_noticed_in_both_languages() {
    for index in 0..facts().len() {
        // One compilation per fact and language would take minutes; every seventh is a sample of each struct.
        if index % 7 != 0 {
            continue;
        }
        let mut wrong = facts();
        wrong[index].1 ^= 1;
        let name = wrong[index].0.clone();
        assert!(compile("gcc", "c", "-std=c11", &unit(&wrong)).is_some_and(|words| words.contains(&name)));
        assert!(
            compile("g++", "c++", "-std=c++17", &unit(&wrong)).is_some_and(|words| words.contains(&name))
        );
    }
}

#[test]
fn the_tensor_is_laid_out_as_specified() {
    // RUNTIME 3.4: the offsets of the descriptor.
    assert_eq!(size_of::<SimplerTensor>(), 128);
    assert_eq!(
        [
            offset_of!(SimplerTensor, addr),
            offset_of!(SimplerTensor, bytes),
            offset_of!(SimplerTensor, owner_task),
            offset_of!(SimplerTensor, start_offset),
            offset_of!(SimplerTensor, version),
            offset_of!(SimplerTensor, ndims),
            offset_of!(SimplerTensor, dtype),
            offset_of!(SimplerTensor, manual_dep),
            offset_of!(SimplerTensor, contiguous),
            offset_of!(SimplerTensor, address_space),
            offset_of!(SimplerTensor, shapes),
            offset_of!(SimplerTensor, extent),
            offset_of!(SimplerTensor, strides),
        ],
        [0, 8, 16, 24, 32, 36, 40, 41, 42, 43, 44, 64, 72]
    );
}
