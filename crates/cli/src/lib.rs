//! The command line `simpler`: arguments and printing; every computation is in the crates.
//!
//! [`run`] is all of it: the binary gives it the process's arguments and streams, the Python package its own. Exit
//! codes: 0 fine, 1 the answer is "no", 2 unusable input or arguments. A reader that goes away, as `head` does, ends a
//! command quietly.

mod check;
mod console;
mod demo;
mod diff;
mod follow;
mod log;
mod progress;
mod recover;
mod selection;
mod stacks;
mod timing;

pub use console::{Console, Stream};

use clap::{Parser, Subcommand};
use std::ffi::OsString;
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

/// How a command ended; the number is the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Fine.
    Fine = 0,
    /// The answer is "no".
    No = 1,
    /// The input or the arguments cannot be used.
    Unusable = 2,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// Runs a command. The first argument is the program's name.
///
/// `demo` forks, so nothing but the calling thread may run then; `timing --follow` listens to SIGINT and SIGTERM
/// meanwhile. Nothing else here asks which thread calls.
pub fn run<A>(arguments: impl IntoIterator<Item = A>, console: &mut Console<'_>) -> Exit
where
    A: Into<OsString> + Clone,
{
    let command = match Cli::try_parse_from(arguments) {
        Ok(Cli { command }) => command,
        Err(error) => return explain(&error, console),
    };
    let outcome = match command {
        Command::Demo(demo) => demo.run(console),
        Command::Timing(timing) => timing.run(console),
        Command::Check(check) => check.run(console),
        Command::Diff(diff) => diff.run(console),
        Command::Recover(recover) => recover.run(console),
        Command::Stacks(stacks) => stacks.run(console),
    };
    outcome.unwrap_or_else(|error| {
        let pipe_closed = error
            .chain()
            .filter_map(|cause| cause.downcast_ref::<io::Error>())
            .any(|cause| cause.kind() == io::ErrorKind::BrokenPipe);
        if pipe_closed {
            return Exit::Fine;
        }
        console.err.say(format_args!("simpler: {error:#}"));
        Exit::Unusable
    })
}

/// What clap has to say instead of a command: help, the version, or what is wrong with the arguments.
fn explain(error: &clap::Error, console: &mut Console<'_>) -> Exit {
    let (stream, exit) = match error.use_stderr() {
        true => (&mut console.err, Exit::Unusable),
        false => (&mut console.out, Exit::Fine),
    };
    let text = error.render();
    // As clap itself decides when it prints.
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let coloured =
        stream.is_terminal() && !is_set("NO_COLOR") && std::env::var_os("TERM") != Some("dumb".into());
    let printed = match coloured {
        true => write!(stream, "{}", text.ansi()),
        false => write!(stream, "{text}"),
    };
    // Where nobody can read it, the exit code still speaks.
    let _ = printed.and_then(|()| stream.flush());
    exit
}
