//! Kernels and orchestrations as shared objects.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use simpler_platform::{Platform, PlatformError};

mod support;

use support::{compile, program};

fn answer_source(answer: i32) -> String {
    format!(
        "int answer(void) {{ return {answer}; }}\nvoid kernel_entry(const void *args) {{ (void)args; }}\n"
    )
}

/// Loads each image in turn on an AICPU thread, calls its `answer`, and drops it again.
fn answers(images: Vec<Vec<u8>>) -> Vec<i64> {
    let chip = support::chip();
    let answers: Arc<Vec<AtomicI64>> = Arc::new(images.iter().map(|_| AtomicI64::new(-1)).collect());
    let run = {
        let answers = Arc::clone(&answers);
        program(move |aicpu, index| {
            if index != 0 {
                return 0;
            }
            for (image, answer) in images.iter().zip(answers.iter()) {
                let Ok(object) = aicpu.load_object(image, "orchestration") else { return 1 };
                let Some(function) = object.symbol("answer") else { return 2 };
                assert_eq!(object.symbol("no_such_symbol"), None);
                // SAFETY: the object exports `int answer(void)` and is loaded.
                let function: extern "C" fn() -> i32 = unsafe { std::mem::transmute(function) };
                answer.store(function().into(), Ordering::Release);
            }
            0
        })
    };
    assert_eq!(chip.launch(run).expect("the chip is idle").wait(), 0);
    answers.iter().map(|answer| answer.load(Ordering::Acquire)).collect()
}

#[test]
fn each_orchestration_is_its_own_bytes_though_the_descriptor_comes_back() {
    let images: Option<Vec<_>> =
        (0..3).map(|i| compile(&format!("plain-{i}"), &answer_source(i), &[])).collect();
    let Some(images) = images else { return };
    assert_eq!(answers(images), [0, 1, 2]);
}

/// The loader keeps such an object, and would give it again to whoever opens its path.
#[test]
fn an_orchestration_that_cannot_be_unloaded_does_not_replace_the_next() {
    let flags = ["-Wl,-z,nodelete"];
    let images: Option<Vec<_>> =
        (0..3).map(|i| compile(&format!("stays-{i}"), &answer_source(10 + i), &flags)).collect();
    let Some(images) = images else { return };
    assert_eq!(answers(images), [10, 11, 12]);
}

#[test]
fn the_same_kernel_bytes_are_loaded_once_and_others_apart() {
    let Some(first) = compile("kernel-1", &answer_source(1), &[]) else { return };
    let Some(second) = compile("kernel-2", &answer_source(2), &[]) else { return };
    let chip = support::chip();
    let value = chip.load_kernel(&first, "one").unwrap();
    assert_ne!(value, 0);
    assert_eq!(chip.load_kernel(&first, "the same by another name").unwrap(), value);
    assert_ne!(chip.load_kernel(&second, "one").unwrap(), value);
}

#[test]
fn what_is_no_kernel_is_refused_with_the_reason() {
    let chip = support::chip();
    for image in [&b""[..], b"\x7fELF", b"not an object at all"] {
        let error = chip.load_kernel(image, "broken\0name").unwrap_err();
        assert!(matches!(error, PlatformError::Load { .. }), "{error}");
    }
    let Some(image) = compile("no-entry", "int other(void) { return 1; }", &[]) else { return };
    let error = chip.load_kernel(&image, "no-entry").unwrap_err();
    assert_eq!(error.to_string(), "cannot load no-entry: it does not export kernel_entry");
    let Some(image) = compile("undefined", "void nowhere(void); void kernel_entry(void) { nowhere(); }", &[])
    else {
        return;
    };
    let error = chip.load_kernel(&image, "undefined").unwrap_err();
    assert!(error.to_string().contains("nowhere"), "{error}");
}

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("/proc is mounted").count()
}

#[test]
fn loading_and_unloading_leaks_no_descriptor() {
    let Some(image) = compile("loop", &answer_source(7), &[]) else { return };
    let before = open_files();
    assert_eq!(answers(vec![image; 200]), [7; 200]);
    // Other tests of this process hold a few for a moment.
    assert!(open_files() < before + 50, "{before} open files became {}", open_files());
}
