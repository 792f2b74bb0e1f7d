//! Benchmarks: each is a binary of the crate `benches`, built in release and run alone; `timing` runs `simpler` itself,
//! `python` the installed package.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, bail};

use crate::{bench_timing, cargo, ensure_c_compiler, ensure_debian, fetch_model, python, run, target_dir};

/// Runs one benchmark.
pub(crate) fn bench(name: &str, json: bool) -> Result<()> {
    match name {
        "timing" => return bench_timing::bench(json),
        "python" => return python::bench(json),
        _ => {}
    }
    let mut command = cargo();
    command.args(["run", "--quiet", "--release", "--package", "simpler-benches", "--bin"]);
    match name {
        "log" => {
            command.args(["bench-log", "--features", "peers"]);
            match build_spdlog() {
                Ok(object) => command.env("SIMPLER_BENCH_SPDLOG", object),
                Err(why) => command.env("SIMPLER_BENCH_SPDLOG_MISSING", format!("{why:#}")),
            };
        }
        "decode" | "observer" => {
            ensure_c_compiler()?;
            command.arg(format!("bench-{name}")).env("SIMPLER_SMOLLM2_GGUF", fetch_model::fetch()?);
        }
        "dispatch" => {
            ensure_c_compiler()?;
            command.arg("bench-dispatch");
        }
        other => bail!(
            "there is no benchmark {other}; there are log, decode, observer, dispatch, timing and python"
        ),
    }
    if json {
        command.args(["--", "--json"]);
    }
    run(&mut command)
}

/// Compiles spdlog as a peer of the host log into a shared object, unless that was done since the source changed.
/// Debian's headers are all that it needs.
fn build_spdlog() -> Result<PathBuf> {
    const SOURCE: &str = "benches/peers/spdlog.cpp";
    let folder = target_dir()?.join("release");
    let object = folder.join("bench-log-spdlog.so");
    let changed = |path: &std::path::Path| fs::metadata(path).and_then(|facts| facts.modified());
    if changed(&object).is_ok_and(|built| changed(SOURCE.as_ref()).is_ok_and(|source| source < built)) {
        return Ok(object);
    }
    ensure_c_compiler()?;
    ensure_debian("spdlog", &["libspdlog-dev"], || {
        fs::exists("/usr/include/spdlog/async.h").unwrap_or(false)
    })?;
    fs::create_dir_all(&folder)?;
    let mut compiler = Command::new("g++");
    compiler.args(["-std=c++17", "-O2", "-Wall", "-Wextra", "-shared", "-fPIC", "-pthread", SOURCE, "-o"]);
    run(compiler.arg(&object))?;
    Ok(object)
}
