//! The binary `simpler`: arguments and printing; every computation is in the crates.
//!
//! Exit codes: 0 fine, 1 the answer is "no", 2 unusable input or arguments. A reader that goes away, as
//! `head` does, ends the program quietly.

mod check;
mod demo;
mod diff;
mod follow;
mod log;
mod progress;
mod recover;
mod selection;
mod stacks;
mod timing;

use clap::{Parser, Subcommand};
use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

/// Explains where an accelerator runtime's time goes, from nothing but its log.
#[derive(Parser)]
#[command(name = "simpler", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Demo(demo::Demo),
    Timing(timing::Timing),
    Check(check::Check),
    Diff(diff::Diff),
    Recover(recover::Recover),
    Stacks(stacks::Stacks),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Demo(demo) => demo.run(),
        Command::Timing(timing) => timing.run(),
        Command::Check(check) => check.run(),
        Command::Diff(diff) => diff.run(),
        Command::Recover(recover) => recover.run(),
        Command::Stacks(stacks) => stacks.run(),
    };
    outcome.unwrap_or_else(|error| {
        let pipe_closed = error
            .chain()
            .filter_map(|cause| cause.downcast_ref::<io::Error>())
            .any(|cause| cause.kind() == io::ErrorKind::BrokenPipe);
        if pipe_closed {
            return ExitCode::SUCCESS;
        }
        say(format_args!("simpler: {error:#}"));
        UNUSABLE.into()
    })
}

/// Says a line on stderr. Where nobody can hear it, the exit code still speaks.
fn say(line: impl fmt::Display) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// The answer is "no".
const NO: u8 = 1;

/// The input or the arguments cannot be used.
const UNUSABLE: u8 = 2;
