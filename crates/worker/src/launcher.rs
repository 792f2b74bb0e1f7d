//! Launchers: what starts a program several times, on this host or on others.
//!
//! Starting processes elsewhere, and telling each which of them it is, is what launchers of parallel programs do:
//! `mpirun`, `srun`, a shell. [`Launcher`] is all that a worker asks of one: a command to run, and the environment
//! variable in which a started process finds its number. [`Mpirun`] is that of Open MPI. The command stays there until
//! all that it has started has ended, and passes on their standard error.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::Command;

/// What a launcher is to start.
#[derive(Clone, Copy, Debug)]
pub struct Ranks<'a> {
    /// How many.
    pub count: usize,
    /// The program, which is there on every host.
    pub program: &'a Path,
    /// Its arguments, the same for all.
    pub arguments: &'a [OsString],
    /// What each must find in its environment besides what the launcher itself puts there. Not for a command line, which
    /// other users can see: one of them is a secret.
    pub environment: &'a [(String, OsString)],
}

/// Starts ranks.
pub trait Launcher {
    /// The command that starts them and ends when they have. Its own environment holds [`Ranks::environment`] as well,
    /// added by the caller.
    fn command(&self, ranks: &Ranks<'_>) -> Command;

    /// The environment variable in which a rank finds its number, from 0.
    fn rank_variable(&self) -> &str;

    /// What texts call it.
    fn name(&self) -> String {
        "the launcher".to_owned()
    }
}

/// `mpirun` of Open MPI. The ranks need not use MPI.
///
/// A rank that dies does not take the others along (`--enable-recovery`), ranks are bound to no core, since each has
/// processes and threads of its own, and more of them than cores is no error.
#[derive(Clone, Debug)]
pub struct Mpirun {
    /// The command; `mpirun` of the search path by default.
    pub command: OsString,
    /// Where the ranks run, in `--host`'s grammar (`name` or `name:slots` each); empty is this host.
    pub hosts: Vec<String>,
    /// Further arguments, put before the program.
    pub options: Vec<OsString>,
}

impl Default for Mpirun {
    fn default() -> Self {
        Self { command: "mpirun".into(), hosts: Vec::new(), options: Vec::new() }
    }
}

impl Launcher for Mpirun {
    fn command(&self, ranks: &Ranks<'_>) -> Command {
        let mut command = Command::new(&self.command);
        command.arg("-n").arg(ranks.count.to_string());
        command.args(["--oversubscribe", "--bind-to", "none"]);
        command.args(["--enable-recovery", "--mca", "orte_abort_on_non_zero_status", "0"]);
        // SAFETY: no preconditions.
        if unsafe { libc::geteuid() } == 0 {
            command.arg("--allow-run-as-root");
        }
        if !self.hosts.is_empty() {
            command.arg("--host").arg(self.hosts.join(","));
        }
        for (name, _) in ranks.environment {
            // By name: the value is taken from the command's own environment.
            command.arg("-x").arg(name);
        }
        command.args(&self.options).arg(ranks.program).args(ranks.arguments);
        command
    }

    fn rank_variable(&self) -> &str {
        "OMPI_COMM_WORLD_RANK"
    }

    fn name(&self) -> String {
        OsStr::to_string_lossy(&self.command).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_of_the_environment_is_in_no_argument() {
        let environment = [("SECRET".to_owned(), OsString::from("tell nobody"))];
        let ranks = Ranks {
            count: 3,
            program: Path::new("/a/program"),
            arguments: &["--flag".into()],
            environment: &environment,
        };
        let launcher = Mpirun { hosts: vec!["a:2".into(), "b".into()], ..Mpirun::default() };
        let command = launcher.command(&ranks);
        let arguments: Vec<_> = command.get_args().map(|argument| argument.to_str().unwrap()).collect();
        assert_eq!(arguments[..2], ["-n", "3"]);
        assert!(arguments.windows(2).any(|pair| pair == ["--host", "a:2,b"]), "{arguments:?}");
        assert!(arguments.windows(2).any(|pair| pair == ["-x", "SECRET"]), "{arguments:?}");
        assert_eq!(arguments[arguments.len() - 2..], ["/a/program", "--flag"]);
        assert!(!arguments.iter().any(|argument| argument.contains("nobody")), "{arguments:?}");
    }
}
