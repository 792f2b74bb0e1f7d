//! The Python package: a wheel of this checkout in a fresh virtual environment, and what is run there.
//!
//! What is tested is the installed package, from a folder that holds nothing else: the source tree is never imported.

use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context, Result, bail};

use crate::{answers, ensure_debian, gen_log, run, target_dir};

/// What the tests cannot do without; numpy comes with the package itself.
const NEEDED: [&str; 3] = ["maturin>=1.9.4,<2", "pytest", "mypy"];

/// What some tests look at the package with; each is skipped, aloud, where its own is not to be had.
const OPTIONAL: [&str; 7] = ["pyarrow", "pandas", "polars", "duckdb", "nbclient", "ipykernel", "matplotlib"];

/// A virtual environment with the package.
pub(crate) struct Environment {
    folder: PathBuf,
}

impl Environment {
    /// Makes it anew, builds the wheel and installs it.
    pub(crate) fn new() -> Result<Environment> {
        let environment = Environment::with_tools()?;
        let wheels = environment.folder.join("wheels");
        let maturin = environment.folder.join("venv/bin/maturin");
        // The same optimised crates as the binary's, from the same folder.
        let mut wheel = Command::new(maturin);
        wheel
            .args(["build", "--quiet", "--release", "--manifest-path", "python/Cargo.toml", "--out"])
            .arg(&wheels)
            .env("CARGO_INCREMENTAL", "0")
            .env("CARGO_TARGET_DIR", target_dir()?);
        // What is fetched takes long as well, and the other processor hardly notices.
        thread::scope(|scope| {
            scope.spawn(|| environment.optional_packages());
            run(&mut wheel)
        })?;
        let mut built = fs::read_dir(&wheels)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
        let (Some(wheel), true) = (built.pop(), built.is_empty()) else {
            bail!("maturin has not left one wheel in {}", wheels.display())
        };
        environment.pip([wheel.as_os_str()])?;
        Ok(environment)
    }

    /// Installs what can be had of them.
    fn optional_packages(&self) {
        for package in OPTIONAL {
            if let Err(why) = self.pip([OsStr::new(package)]) {
                eprintln!("skipped: tests that need {package}: {why:#}");
            }
        }
    }

    /// An empty one with what builds and tests.
    fn with_tools() -> Result<Environment> {
        let folder = target_dir()?.join("python");
        if folder.exists() {
            fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
        }
        fs::create_dir_all(folder.join("run"))?;
        ensure_debian("python3-venv", &["python3", "python3-venv"], || {
            answers("python3", &["-m", "ensurepip", "--version"])
        })?;
        run(Command::new("python3").args(["-m", "venv"]).arg(folder.join("venv")))?;
        let environment = Environment { folder };
        environment.pip(NEEDED)?;
        Ok(environment)
    }

    fn pip(&self, packages: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Result<()> {
        run(self
            .python()
            .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
            .args(packages))
    }

    /// Its interpreter, in a folder of its own.
    pub(crate) fn python(&self) -> Command {
        let mut python = Command::new(self.folder.join("venv/bin/python"));
        python.current_dir(self.folder.join("run"));
        python
    }
}

/// Builds the package, and a command that runs its tests.
pub(crate) fn tests() -> Result<Command> {
    let mut pytest = Environment::new()?.python();
    let tests = std::path::absolute("python/tests")?;
    pytest
        // Where the tests are must not matter: `importlib` leaves the search path as it is.
        .args(["-m", "pytest", "-q", "-rs", "--import-mode=importlib", "-p", "no:cacheprovider", "--rootdir"])
        .arg(&tests)
        .arg(&tests)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("SIMPLER_TEST_INSTALLED", "1");
    Ok(pytest)
}

/// Measures the package: each script prints one JSON object as its last line.
pub(crate) fn bench(as_json: bool) -> Result<()> {
    let environment = Environment::new()?;
    let log = environment.folder.join("bench.log");
    gen_log::gen_log(LOG_MB, &log)?;
    let mut found = serde_json::Map::new();
    for name in BENCHES {
        let script = std::path::absolute(format!("python/benches/{name}.py"))?;
        let output = environment.python().arg(script).arg(&log).stderr(Stdio::inherit()).output()?;
        if !output.status.success() {
            bail!("python/benches/{name}.py: {}", output.status);
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let object = text.lines().last().map(serde_json::from_str::<serde_json::Value>);
        let object = object.transpose().ok().flatten();
        found.insert(name.to_owned(), object.with_context(|| format!("{name}.py printed no JSON object"))?);
    }
    let found = serde_json::Value::Object(found);
    if as_json {
        println!("{found}");
    } else {
        println!("{found:#}");
    }
    Ok(())
}

/// The scripts of `python/benches`; each takes a log as its argument.
const BENCHES: [&str; 2] = ["host_log", "reading"];

/// How large that log is, in millions of bytes.
const LOG_MB: u64 = 100;
