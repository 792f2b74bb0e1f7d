//! Orchestrations and kernels in Rust, beside those in C, in each runtime, on each platform.

#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use simpler_kernel_abi::{ArgUse, CoreKind};
use simpler_kernel_compiler::{CallableSource, Compiler, KernelSource, SourceFile};
use simpler_runtime::{CallableImage, RunArgs};
use support::*;

/// x + x + 1 in Rust on an AIV, that + x + 2 in C on an AIC, and a word in the log; fails as told by the scalar.
const ORCHESTRATION: &str = r#"
use core::ffi::c_int;
use simpler_kernel_abi::*;

unsafe fn add(
    api: &SimplerOrchestrationApi,
    run: *mut SimplerRun,
    tensors: [(&mut SimplerTensor, ArgUse); 3],
    extra: u64,
    name: impl FnOnce(&mut SimplerTask),
) -> i64 {
    let args = tensors.map(|(tensor, arg_use)| SimplerTaskArg { tensor, arg_use: arg_use as u64 });
    let mut task = SimplerTask { args: args.as_ptr(), arg_count: 3, ..SimplerTask::new() };
    task.scalars = &extra;
    task.scalar_count = 1;
    name(&mut task);
    unsafe { (api.submit_task)(run, &task) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn aicpu_orchestration_entry(
    api: *const SimplerOrchestrationApi,
    run: *mut SimplerRun,
    args: *const SimplerChipArgs,
) -> c_int {
    let (api, args) = unsafe { (&*api, &*args) };
    let tensors = unsafe { core::slice::from_raw_parts(args.tensors, args.tensor_count as usize) };
    let scalars = unsafe { core::slice::from_raw_parts(args.scalars, args.scalar_count as usize) };
    if scalars[0] == 13 {
        unsafe { (api.report_fatal)(run, c"a fatal in Rust".as_ptr()) };
        return 1;
    }
    let count = tensors[0].shapes[0];
    let (mut x, mut x2, mut y) = (tensors[0], tensors[0], tensors[1]);
    let mut between = SimplerTensor {
        shapes: [count, 0, 0, 0, 0],
        ..SimplerTensor::whole(0, u64::from(count) * 4, DType::F32, DEVICE_MEMORY)
    };
    let first = unsafe {
        add(api, run, [(&mut x, ArgUse::Input), (&mut x2, ArgUse::Input), (&mut between, ArgUse::Output)], 1, |task| {
            task.aiv0 = 0;
            task.set_task_timing_slot(3);
        })
    };
    let second = unsafe {
        add(api, run, [(&mut between, ArgUse::Input), (&mut x, ArgUse::Input), (&mut y, ArgUse::OutputExisting)], 2,
            |task| task.aic = 1)
    };
    unsafe { (api.log)(run, 25, c"orchestration".as_ptr(), c"submitted from Rust".as_ptr()) };
    if first == 0 && second == 1 { 0 } else { 1 }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn aicpu_orchestration_config(config: *mut SimplerOrchestrationConfig) -> c_int {
    let config = unsafe { &mut *config };
    (config.tensors_min, config.scalars_min) = (2, 1);
    0
}
"#;

const KERNEL: &str = r#"
use simpler_kernel_abi::*;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn kernel_entry(args: *const SimplerKernelArgs) {
    let args = unsafe { &*args };
    let tensors = unsafe { core::slice::from_raw_parts(args.tensors, args.tensor_count as usize) };
    let extra = unsafe { *args.scalars } as f32;
    let count = unsafe { (*tensors[2]).shapes[0] } as usize;
    let [a, b] = [0, 1].map(|index| unsafe {
        core::slice::from_raw_parts((*tensors[index]).data::<f32>(), count)
    });
    let out = unsafe { core::slice::from_raw_parts_mut((*tensors[2]).data::<f32>(), count) };
    for ((out, a), b) in out.iter_mut().zip(a).zip(b) {
        *out = a + b + extra;
    }
}
"#;

#[test]
fn an_orchestration_and_a_kernel_in_rust_run_beside_a_kernel_in_c() {
    let source = CallableSource {
        name: "in_rust".to_owned(),
        orchestration: SourceFile::new("in_rust.rs", ORCHESTRATION),
        kernels: vec![
            KernelSource { file: SourceFile::new("add_in_rust.rs", KERNEL), kind: CoreKind::Aiv },
            KernelSource { file: SourceFile::new("add_in_c.c", ADD_KERNEL), kind: CoreKind::Aic },
        ],
        headers: Vec::new(),
    };
    let objects = Compiler::new(cache()).unwrap().compile(&source).unwrap_or_else(|why| panic!("{why}"));
    let image = CallableImage::load(&objects).unwrap();
    assert_ne!(image.hid(), 0);
    for chip in small_chips() {
        let id = chip.register(&image).unwrap();
        let mut x: Vec<f32> = (0..500).map(|i| i as f32).collect();
        let mut y = vec![0.0; 500];
        let mut go = |scalars: &[u64]| {
            let tensors = vec![host(&mut x, ArgUse::Input), host(&mut y, ArgUse::Output)];
            run(&chip, id, &RunArgs { tensors, scalars: scalars.to_vec(), ..RunArgs::default() })
        };
        let error = go(&[13]).unwrap_err();
        assert_eq!((error.code, error.text.as_str()), (-9, "a fatal in Rust"));
        let error = go(&[]).unwrap_err();
        assert!(error.code == -5 && error.text.contains("at least 2 and 1 are expected"), "{error}");
        for _ in 0..10 {
            go(&[0]).unwrap();
        }
        assert!(x.iter().zip(&y).all(|(x, y)| *y == 3.0 * x + 3.0), "{:?}", &y[..4]);
    }
}
