//! Callables come and go: counts, places that are used again, ids that mean nothing any more.

#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use simpler_kernel_abi::{ArgUse, CoreKind};
use simpler_runtime::{CallableImage, ChipRuntime, RunArgs};
use support::*;

/// y := scalar.
fn setter(value: u32) -> CallableImage {
    let orchestration = format!(
        r#"
#include "submit.h"
int aicpu_orchestration_entry(const SimplerOrchestrationApi *api, SimplerRun *run, const SimplerChipArgs *args) {{
    SimplerTensor y = args->tensors[0];
    SimplerTaskArg a[] = {{{{&y, SIMPLER_OUTPUT_EXISTING}}}};
    SimplerTask task = simpler_task(a, 1);
    uint64_t value = {value};
    task.aiv0 = 0;
    task.scalars = &value;
    task.scalar_count = 1;
    return api->submit_task(run, &task) < 0;
}}
"#
    );
    const SET: &str = r#"
#include <simpler/kernel.h>
void kernel_entry(const SimplerKernelArgs *args) {
    *(float *)simpler_tensor_data(args->tensors[0]) = (float)args->scalars[0];
}
"#;
    image(&format!("set_{value}"), &orchestration, &[("set", CoreKind::Aiv, SET)])
}

fn runs(chip: &ChipRuntime, id: simpler_runtime::CallableId) -> Result<f32, simpler_runtime::RunError> {
    let mut y = vec![0.0];
    let tensors = vec![host(&mut y, ArgUse::Output)];
    run(chip, id, &RunArgs { tensors, ..RunArgs::default() })?;
    Ok(y[0])
}

#[test]
fn a_callable_is_known_until_it_is_unregistered_as_often_as_registered() {
    for chip in small_chips() {
        let id = chip.register(&setter(1)).unwrap();
        assert_eq!(chip.register(&setter(1)), Ok(id), "the same content, the same id");
        assert_eq!(runs(&chip, id), Ok(1.0));
        chip.unregister(id).unwrap();
        assert_eq!(runs(&chip, id), Ok(1.0));
        chip.unregister(id).unwrap();
        for error in [runs(&chip, id).unwrap_err(), chip.unregister(id).unwrap_err()] {
            assert!(error.code == -1 && error.text.contains("not registered"), "{error}");
        }
        // Another one has its place; the old id does not mean it, and its object is not called.
        let other = chip.register(&setter(2)).unwrap();
        assert!(runs(&chip, id).is_err());
        assert_eq!(runs(&chip, other), Ok(2.0));
        // And the first again.
        chip.unregister(other).unwrap();
        let again = chip.register(&setter(1)).unwrap();
        assert!(again != id && runs(&chip, other).is_err());
        assert_eq!(runs(&chip, again), Ok(1.0));
    }
}

#[test]
fn a_full_table_takes_another_one_when_one_is_gone() {
    let chip = small_chip();
    let images: Vec<_> = (0..65).map(setter).collect();
    let ids: Vec<_> = images[..64].iter().map(|image| chip.register(image).unwrap()).collect();
    let error = chip.register(&images[64]).unwrap_err();
    assert!(error.code == -1 && error.text.contains("at most 64 callables"), "{error}");
    chip.unregister(ids[17]).unwrap();
    let id = chip.register(&images[64]).unwrap();
    assert_eq!((runs(&chip, id), runs(&chip, ids[16])), (Ok(64.0), Ok(16.0)));
    assert!(runs(&chip, ids[17]).is_err());
}
