//! The committed corpus of the fuzz target `gguf`, replayed.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};

use simpler_decoder::Model;
use simpler_decoder::gguf::Gguf;

fn seed(name: &str) -> Vec<u8> {
    let corpus: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/gguf");
    std::fs::read(corpus.join(name)).unwrap()
}

#[test]
fn the_seeds_are_files_of_every_kind_of_value_and_tensor() {
    assert_eq!(Gguf::parse(&seed("empty")).unwrap().tensors().len(), 0);
    assert_eq!(Gguf::parse(&seed("values")).unwrap().text("text"), Some("hi"));
    assert_eq!(Gguf::parse(&seed("tensors")).unwrap().tensors().len(), 4);
    let model = Model::from_gguf_bytes(&seed("model")).unwrap();
    assert_eq!(model.tokenizer.encode("abba", false).unwrap(), [2, 1, 0]);
    assert_eq!(model.chat_prompt("hi").unwrap(), "hi");
}
