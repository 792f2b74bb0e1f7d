//! What the tests of whole programs share: the release binary, a finished demo, and a reader of its log.
//!
//! The reader is deliberately not the project's: it splits lines at spaces and knows nothing else, so that the
//! binary's figures are compared with somebody else's count.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tempfile::TempDir;

/// The release binary; `cargo xtask test` builds it before these tests run.
pub fn simpler() -> Command {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    Command::new(target.join("release/simpler"))
}

/// The workspace's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or_else(|| Path::new(".")).to_path_buf()
}

/// Runs a command to its end and gives its output, whatever its status.
///
/// # Errors
/// The program cannot be started.
pub fn output(command: &mut Command) -> Result<Output> {
    command.output().with_context(|| format!("cannot start {command:?} (cargo xtask test builds it)"))
}

/// The last line of a text that starts an object.
///
/// # Errors
/// There is none, or it is no JSON.
pub fn last_json(stdout: &[u8]) -> Result<Value> {
    let text = String::from_utf8_lossy(stdout);
    let line = text.lines().rfind(|line| line.starts_with('{')).context("no line starts an object")?;
    serde_json::from_str(line).with_context(|| format!("no JSON: {line}"))
}

/// A demo that has run.
pub struct Demo {
    /// What it printed as its last line.
    pub json: Value,
    /// All that it printed.
    pub stdout: String,
    /// Where it wrote; goes away with this value.
    pub folder: TempDir,
}

impl Demo {
    /// Runs `simpler demo --json` with these arguments and a fresh output folder.
    ///
    /// # Errors
    /// It cannot be started, fails, or prints no JSON.
    pub fn run(arguments: &[&str]) -> Result<Demo> {
        Self::run_with(arguments, &[])
    }

    /// As [`Demo::run`], with environment variables.
    ///
    /// # Errors
    /// As [`Demo::run`].
    pub fn run_with(arguments: &[&str], environment: &[(&str, &Path)]) -> Result<Demo> {
        let folder = TempDir::new()?;
        let mut command = simpler();
        command.arg("demo").args(arguments).arg("--json").arg("--out").arg(folder.path().join("demo"));
        for (name, value) in environment {
            command.env(name, value);
        }
        let output = output(&mut command)?;
        if !output.status.success() {
            bail!("{command:?}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
        }
        let json = last_json(&output.stdout)?;
        Ok(Demo { json, stdout: String::from_utf8_lossy(&output.stdout).into_owned(), folder })
    }

    /// The folder of its logs.
    pub fn log(&self) -> PathBuf {
        self.folder.path().join("demo/log")
    }
}

/// A span as it stands in a log.
#[derive(Clone, Debug)]
pub struct Span {
    /// Every `key=value` of the record, the attributes too.
    pub fields: BTreeMap<String, String>,
    /// Where it stands in its file.
    pub line: usize,
}

impl Span {
    /// A field as text; empty where there is none.
    pub fn text(&self, key: &str) -> &str {
        self.fields.get(key).map_or("", String::as_str)
    }

    /// A field as a number; -1 where there is none.
    pub fn number(&self, key: &str) -> i64 {
        self.text(key).parse().unwrap_or(-1)
    }

    /// Start and end in ns.
    pub fn window(&self) -> (i64, i64) {
        (self.number("ts"), self.number("ts") + self.number("dur"))
    }

    /// Whether it is on the device's clock.
    pub fn is_device(&self) -> bool {
        self.text("clk") == "dev"
    }
}

/// The log of one process.
#[derive(Debug)]
pub struct ProcessLog {
    /// From the file's name.
    pub pid: i64,
    /// The file's text.
    pub text: String,
    /// Its spans in file order.
    pub spans: Vec<Span>,
}

/// The logs in a folder, by pid.
///
/// # Errors
/// A file that cannot be read.
pub fn process_logs(folder: &Path) -> Result<Vec<ProcessLog>> {
    let mut logs = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let Some(pid) = name.strip_prefix("host.").and_then(|rest| rest.strip_suffix(".log")) else {
            continue;
        };
        let text = std::fs::read_to_string(&path)?;
        let spans = text.lines().enumerate().filter_map(|(line, text)| span(line, text)).collect();
        logs.push(ProcessLog { pid: pid.parse()?, text, spans });
    }
    logs.sort_by_key(|log| log.pid);
    Ok(logs)
}

fn span(line: usize, text: &str) -> Option<Span> {
    let (_, record) = text.split_once("[STRACE] ")?;
    let fields = record.split(' ').filter_map(|field| field.split_once('='));
    Some(Span { fields: fields.map(|(key, value)| (key.to_owned(), value.to_owned())).collect(), line })
}
