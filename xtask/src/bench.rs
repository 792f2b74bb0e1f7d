//! Benchmarks: each is a binary of the crate `benches`, built in release and run alone.

use anyhow::{Result, bail};

use crate::{cargo, ensure_c_compiler, fetch_model, run};

/// Runs one benchmark.
pub(crate) fn bench(name: &str, json: bool) -> Result<()> {
    let mut command = cargo();
    command.args(["run", "--quiet", "--release", "--package", "simpler-benches", "--bin"]);
    match name {
        "log" => {
            command.arg("bench-log");
        }
        "decode" => {
            ensure_c_compiler()?;
            command.arg("bench-decode").env("SIMPLER_SMOLLM2_GGUF", fetch_model::fetch()?);
        }
        other => bail!("there is no benchmark {other}; there are log and decode"),
    }
    if json {
        command.args(["--", "--json"]);
    }
    run(&mut command)
}
