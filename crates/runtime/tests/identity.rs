//! What a callable is: its content, kernels included.

#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod support;

use simpler_kernel_abi::CoreKind;
use simpler_runtime::CallableImage;
use support::*;

const ORCHESTRATION: &str = r#"
#include "submit.h"
int aicpu_orchestration_entry(const SimplerOrchestrationApi *api, SimplerRun *run, const SimplerChipArgs *args) {
    (void)api; (void)run; (void)args;
    return 0;
}
"#;

fn callable(name: &str, kernel: &str) -> CallableImage {
    image(name, ORCHESTRATION, &[("kernel", CoreKind::Aiv, kernel)])
}

#[test]
fn a_changed_kernel_changes_the_hid_of_its_callable() {
    let before = callable("same", ADD_KERNEL);
    let after = callable("same", &ADD_KERNEL.replace("+ extra", "- extra"));
    assert_ne!(before.hid(), after.hid());
    assert_ne!(before.digest(), after.digest());
    assert_eq!(before.hid(), callable("same", ADD_KERNEL).hid(), "and only that");
}

#[test]
fn the_hid_is_the_build_id_that_the_linker_wrote() {
    let image = callable("same", ADD_KERNEL);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &image.orchestration).unwrap();
    let notes = std::process::Command::new("readelf").arg("-n").arg(file.path()).output().unwrap();
    let text = String::from_utf8(notes.stdout).unwrap();
    let id = text.split("Build ID: ").nth(1).unwrap();
    let bytes: Vec<u8> = (0..8).map(|at| u8::from_str_radix(&id[2 * at..2 * at + 2], 16).unwrap()).collect();
    assert_eq!(image.hid(), u64::from_le_bytes(bytes.try_into().unwrap()));
}

#[test]
fn the_same_content_is_registered_once() {
    let chip = small_chip();
    let id = chip.register(&callable("same", ADD_KERNEL)).unwrap();
    let mut renamed = callable("same", ADD_KERNEL);
    renamed.name = "another name".into();
    assert_eq!(chip.register(&renamed).unwrap(), id);
    assert_ne!(chip.register(&callable("same", &ADD_KERNEL.replace("a[i]", "2 * a[i]"))).unwrap(), id);
}

#[test]
fn kernels_that_the_orchestration_was_not_built_for_are_refused() {
    let chip = small_chip();
    let good = callable("same", ADD_KERNEL);
    let other = callable("same", &ADD_KERNEL.replace("+ extra", "- extra"));

    let mut swapped = good.clone();
    swapped.kernels[0].bytes = other.kernels[0].bytes.clone();
    let mut wrong_kind = good.clone();
    wrong_kind.kernels[0].kind = CoreKind::Aic;
    let mut missing = good.clone();
    missing.kernels.clear();
    let mut no_section = good.clone();
    no_section.orchestration = good.kernels[0].bytes.clone();
    let mut no_object = good.clone();
    no_object.orchestration = b"text".to_vec();
    for bad in [swapped, wrong_kind, missing, no_section, no_object] {
        let error = chip.register(&bad).unwrap_err();
        assert_eq!(error.code, -5, "{error}");
        assert!(error.text.contains("same"), "{error}");
    }
    chip.register(&good).unwrap();
}

#[test]
fn a_chip_knows_at_most_64_callables() {
    let chip = small_chip();
    let image = callable("same", ADD_KERNEL);
    for number in 0..64 {
        let mut one = image.clone();
        // Trailing bytes make another content of an object that loads just the same.
        one.orchestration.push(number);
        chip.register(&one).unwrap();
    }
    let mut one = image;
    one.orchestration.push(64);
    let error = chip.register(&one).unwrap_err();
    assert!(error.text.contains("64"), "{error}");
}
