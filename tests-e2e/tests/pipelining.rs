//! Whether runs were pipelined, as the command reads it from the log: the arm that binds the next run while one is on
//! the device proves it, the arm that takes one run after the other is refused.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::Output;
use std::time::Duration;

use simpler_host_log::{self as log, Threshold};
use simpler_kernel_abi::CoreKind;
use simpler_kernel_compiler::{CallableSource, Compiler, KernelSource, SourceFile};
use simpler_platform::Profile;
use simpler_runtime::{CallableImage, ChipRuntime, Limits, RingLimits, RunArgs, RunIdentity, RuntimeConfig};
use simpler_sim_npu::{SimNpu, SimOptions};

/// Runs of an arm.
const RUNS: u64 = 5;

const ORCHESTRATION: &str = r#"
#include <simpler/orchestration.h>
int aicpu_orchestration_entry(const SimplerOrchestrationApi *api, SimplerRun *run, const SimplerChipArgs *args) {
    SimplerTask task = simpler_task(0, 0);
    (void)args;
    task.aiv0 = 0;
    return api->submit_task(run, &task) < 0;
}
"#;

/// Long enough that a thread which loses its CPU for a while still binds the next run meanwhile.
const KERNEL: &str = r#"
#include <simpler/kernel.h>
#include <time.h>
void kernel_entry(const SimplerKernelArgs *args) {
    struct timespec t = {0, 50000000};
    (void)args;
    while (nanosleep(&t, &t)) { }
}
"#;

/// Runs the arm with its log in `folder`, and asks the command.
fn arm(folder: &Path, pipelined: bool) -> Output {
    log::init(&log::Config { directory: Some(folder), ..Default::default() }).unwrap();
    log::set_threshold(Threshold::TIMING);
    let source = CallableSource {
        name: "waits".to_owned(),
        orchestration: SourceFile::new("waits.c", ORCHESTRATION),
        kernels: vec![KernelSource { file: SourceFile::new("sleeps.c", KERNEL), kind: CoreKind::Aiv }],
        headers: Vec::new(),
    };
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pipelining");
    let image = CallableImage::load(&Compiler::new(cache).unwrap().compile(&source).unwrap()).unwrap();
    let limits =
        Limits::each(RingLimits { window: 16, heap_bytes: 1 << 16, argument_bytes: 1 << 16, edges: 16 });
    let npu = SimNpu::new(Profile::a2a3sim(), SimOptions::default()).unwrap();
    let config = RuntimeConfig { limits, pipeline_depth: 2, ..RuntimeConfig::default() };
    let chip = ChipRuntime::new(npu, config).unwrap();
    let callable = chip.register(&image).unwrap();
    let args = RunArgs::default();
    let prepare = |dispatch_id| {
        // SAFETY: there are no arguments; the objects were compiled from the sources above.
        unsafe { chip.prepare(callable, &args, RunIdentity { run_id: 1, dispatch_id }) }.unwrap()
    };
    let mut next = Some(prepare(1));
    for dispatch_id in 2..=RUNS + 1 {
        let launched = next.take().unwrap().launch().unwrap();
        if pipelined && dispatch_id <= RUNS {
            next = Some(prepare(dispatch_id));
        }
        launched.wait().finalize().unwrap();
        if !pipelined && dispatch_id <= RUNS {
            next = Some(prepare(dispatch_id));
        }
    }
    log::flush(Duration::from_secs(5)).unwrap();
    simpler_tests_e2e::simpler()
        .arg("timing")
        .arg(folder)
        .args(["--assert-native-overlap", "--require-hidden-prepare"])
        .output()
        .unwrap()
}

#[test]
fn a_pipeline_of_two_proves_its_overlap() {
    let folder = tempfile::tempdir().unwrap();
    let output = arm(folder.path(), true);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(text, format!("Native overlap verified for {} adjacent dispatch pair(s).\n", RUNS - 1));
}

#[test]
fn one_run_after_the_other_is_no_overlap() {
    let folder = tempfile::tempdir().unwrap();
    let output = arm(folder.path(), false);
    let words = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{words}");
    assert!(
        words.contains("native overlap assertion failed: bind of ") && words.contains("did not overlap"),
        "{words}"
    );
    assert!(output.stdout.is_empty());
}
