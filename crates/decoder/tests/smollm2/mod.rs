//! The real model, where this machine has it.

use std::path::PathBuf;

use simpler_decoder::Model;

/// The model, or `None` after saying aloud why not.
pub(crate) fn model() -> Option<Model> {
    let Some(path) = path() else {
        eprintln!("skipped: no SIMPLER_SMOLLM2_GGUF and no model in the cache (`cargo xtask fetch-model`)");
        return None;
    };
    Some(Model::from_gguf(&path).unwrap())
}

fn path() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("SIMPLER_SMOLLM2_GGUF") {
        return Some(path.into());
    }
    let cache = match std::env::var_os("XDG_CACHE_HOME").filter(|folder| !folder.is_empty()) {
        Some(folder) => PathBuf::from(folder),
        None => PathBuf::from(std::env::var_os("HOME")?).join(".cache"),
    };
    Some(cache.join("simpler/models/SmolLM2-135M-Instruct.Q4_1.gguf")).filter(|path| path.exists())
}
