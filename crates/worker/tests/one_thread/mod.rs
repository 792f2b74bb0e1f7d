//! A test harness whose tests each run on the main thread of a process of their own.
//!
//! A worker refuses to fork in a process with a second thread, and libtest runs every test on one. So these
//! test binaries have `harness = false` and this `main`: asked for one test by exact name (as nextest does) it
//! runs it right here; asked for all, it runs itself once per test.

use std::process::{Command, ExitCode};

/// A name, and what it runs.
pub(crate) type Test = (&'static str, fn());

/// Runs `tests` as the command line asks; `programs` can be started by name, but are no tests.
pub(crate) fn main(tests: &[Test], programs: &[Test]) -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let named = arguments.iter().find(|argument| !argument.starts_with('-'));
    if has("--list") {
        // None of them is ignored.
        if !has("--ignored") {
            tests.iter().for_each(|(name, _)| println!("{name}: test"));
        }
        return ExitCode::SUCCESS;
    }
    if has("--exact") {
        let found = tests.iter().chain(programs).find(|(name, _)| Some(*name) == named.map(String::as_str));
        let (_, run) = found.expect("a test of this name");
        run();
        return ExitCode::SUCCESS;
    }
    let mut failures = 0;
    for (name, _) in tests.iter().filter(|(name, _)| named.is_none_or(|part| name.contains(part.as_str()))) {
        let passed = program(name).status().expect("start this binary again").success();
        println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
        failures += u32::from(!passed);
    }
    if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// This binary, asked for one test or program.
pub(crate) fn program(name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("the path of this binary"));
    command.args(["--exact", name, "--nocapture"]);
    command
}
