//! The gates that need a build of their own: model checking, sanitizers, fuzzing, features, the build without spans.
//!
//! Each has its own folder under `target/`, so that its flags do not throw away the ordinary build. All of it runs
//! on a stable toolchain; where that needs a compiler switch that is meant for nightly, `RUSTC_BOOTSTRAP=1` is set
//! for that one command.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, bail};

use crate::{cargo, ensure_debian, run, target_dir};

/// The only target that the sanitizers and the fuzzers are run on.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Whether this machine is that target.
const SANITIZED: bool = cfg!(all(target_arch = "x86_64", target_os = "linux"));

/// Crates with a loom model.
const LOOM_CRATES: [&str; 6] = [
    "simpler-relax",
    "simpler-host-log",
    "simpler-swimlane",
    "simpler-sim-npu",
    "simpler-runtime",
    "simpler-worker",
];

/// Crates whose tests run under ThreadSanitizer.
const THREAD_SANITIZER_CRATES: [&str; 4] =
    ["simpler-relax", "simpler-host-log", "simpler-swimlane", "simpler-sim-npu"];

/// Crates whose tests run under AddressSanitizer.
const ADDRESS_SANITIZER_CRATES: [&str; 4] =
    ["simpler-record-format", "simpler-host-log", "simpler-swimlane", "simpler-sim-npu"];

/// Removes what the gate of this name has built, where nobody builds again and the disk may be small.
pub(crate) fn clear(gate: &str) -> Result<()> {
    let folders: &[&str] = match gate {
        "loom" => &["loom"],
        "sanitizers" => &["thread-sanitizer", "address-sanitizer"],
        "fuzz" => &["fuzz"],
        _ => &[],
    };
    for folder in folders {
        let built = target_dir()?.join(folder);
        if built.exists() {
            std::fs::remove_dir_all(&built).with_context(|| format!("cannot remove {}", built.display()))?;
        }
    }
    Ok(())
}

/// Model-checks every lock-free protocol; preemptions ≤ 2, or 3 in the long form.
pub(crate) fn loom(long: bool) -> Result<()> {
    for package in LOOM_CRATES {
        run(cargo()
            .args(["test", "--quiet", "--release", "--test", "loom", "--package", package])
            .env("RUSTFLAGS", "--cfg loom")
            .env("LOOM_MAX_PREEMPTIONS", if long { "3" } else { "2" })
            .env("CARGO_TARGET_DIR", target_dir()?.join("loom")))?;
    }
    Ok(())
}

/// Thread and fork tests under ThreadSanitizer, memory tests under AddressSanitizer.
pub(crate) fn sanitize() -> Result<()> {
    if !SANITIZED {
        println!("skipped: the sanitizers, because they are set up for {TARGET} only");
        return Ok(());
    }
    for (sanitizer, crates) in [("thread", THREAD_SANITIZER_CRATES), ("address", ADDRESS_SANITIZER_CRATES)] {
        let mut command = cargo();
        command.args(["nextest", "run", "--target", TARGET, "--no-fail-fast"]);
        command.args(["--features", HOST_LOG_FEATURES]);
        for package in crates {
            command.args(["--package", package]);
        }
        let suppressions = std::path::absolute("xtask/thread-sanitizer.suppressions")?;
        run(command
            .env("TSAN_OPTIONS", format!("suppressions={}", suppressions.display()))
            // Tests that leave by `exit` in the middle of the harness leave its allocations behind.
            .env("ASAN_OPTIONS", "detect_leaks=0")
            .env("RUSTC_BOOTSTRAP", "1")
            .env("RUSTFLAGS", format!("-Zsanitizer={sanitizer} -Cunsafe-allow-abi-mismatch=sanitizer"))
            .env("CARGO_TARGET_DIR", target_dir()?.join(format!("{sanitizer}-sanitizer"))))?;
    }
    Ok(())
}

/// Fuzzes every target of `fuzz/` for some seconds, from its committed corpus.
pub(crate) fn fuzz(seconds: u64) -> Result<()> {
    if !SANITIZED {
        println!("skipped: fuzzing, because its flags are for {TARGET} only");
        return Ok(());
    }
    ensure_debian("a C++ compiler", &["g++"], || crate::answers("g++", &["--version"]))?;
    let targets = fuzz_targets()?;
    // The flags are in fuzz/.cargo/config.toml, which holds for that folder only while RUSTFLAGS is unset.
    let built = target_dir()?.join("fuzz");
    let in_fuzz = |command: &mut Command| {
        run(command.current_dir("fuzz").env_remove("RUSTFLAGS").env("CARGO_TARGET_DIR", &built))
    };
    in_fuzz(cargo().args(["build", "--quiet", "--release"]))?;
    let fuzz_one = |target: &String| -> Result<()> {
        // New inputs go to a scratch folder; the committed corpus only seeds.
        let found = built.join("corpus").join(target);
        for folder in [&found, &PathBuf::from(format!("fuzz/artifacts/{target}"))] {
            std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        }
        let mut command = Command::new(built.join(TARGET).join("release").join(target));
        command
            .arg(format!("-max_total_time={seconds}"))
            .arg(format!("-artifact_prefix=artifacts/{target}/"));
        command.arg("-verbosity=0").arg(found).arg(format!("corpus/{target}"));
        in_fuzz(&mut command).with_context(|| format!("fuzz target {target}"))?;
        println!("fuzz {target}: {seconds} s, nothing found");
        Ok(())
    };
    // A target keeps one CPU busy.
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicUsize::new(0);
    let one_after_the_other = || -> Result<()> {
        while let Some(target) = targets.get(next.fetch_add(1, Ordering::Relaxed)) {
            fuzz_one(target)?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..cpus).map(|_| scope.spawn(one_after_the_other)).collect();
        workers.into_iter().try_for_each(|worker| match worker.join() {
            Ok(outcome) => outcome,
            Err(_) => bail!("a thread that runs fuzz targets panicked"),
        })
    })
}

/// The targets: one file each in `fuzz/fuzz_targets`.
fn fuzz_targets() -> Result<Vec<String>> {
    let mut targets = Vec::new();
    for entry in std::fs::read_dir("fuzz/fuzz_targets").context("cannot read fuzz/fuzz_targets")? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "rs")
            && let Some(stem) = path.file_stem().and_then(|stem| stem.to_str())
        {
            targets.push(stem.to_owned());
        }
    }
    targets.sort();
    if targets.is_empty() { bail!("fuzz/fuzz_targets holds no target") } else { Ok(targets) }
}

/// The build without spans: it compiles, and its tests see no span.
pub(crate) fn off_build() -> Result<()> {
    run(cargo().args([
        "nextest",
        "run",
        "--package",
        "simpler-host-log",
        "--no-default-features",
        "--no-fail-fast",
    ]))
}

/// The examples that turn features of the host log on that are off by default. In a build of the whole workspace
/// they would turn them on for everybody.
pub(crate) const FEATURE_EXAMPLES: [&str; 2] = ["log-app", "tracing-app"];

/// Those features.
const HOST_LOG_FEATURES: &str = "simpler-host-log/log,simpler-host-log/tracing";

/// The host log with the features `log` and `tracing`, the programs that use them, and the executor that profiles itself.
pub(crate) fn features() -> Result<()> {
    let mut command = cargo();
    command.args(["nextest", "run", "--no-fail-fast", "--package", "simpler-host-log"]);
    for example in FEATURE_EXAMPLES {
        command.args(["--package", example]);
    }
    command.args(["--features", HOST_LOG_FEATURES, "--lib"]);
    for test in ["log_facade", "tracing_layer", "its_log", "read_by_simpler"] {
        command.args(["--test", test]);
    }
    run(&mut command)?;
    // The deep dive of the executor, which is off by default.
    run(cargo()
        .args(["nextest", "run", "--package", "simpler-runtime", "--test", "profiling"])
        .args(["--features", "simpler-runtime/orch-profiling,simpler-runtime/sched-profiling"]))?;
    // Without diagnostics the swimlane is gone and everything else is as before.
    let mut command = cargo();
    command.args(["nextest", "run", "--package", "simpler-runtime", "--no-default-features"]);
    command.args(["--features", "simpler-runtime/host-strace"]);
    for test in ["spans", "task_slots", "no_dfx"] {
        command.args(["--test", test]);
    }
    run(&mut command)
}
