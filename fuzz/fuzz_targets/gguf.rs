//! Any bytes as a model file. What is accepted must hold together: a tensor has the bytes that its shape and
//! format need, inside the file, and a model tokenizes and decodes without losing what its vocabulary has.

#![no_main]

use simpler_decoder::Model;
use simpler_decoder::blocks::weight_bytes;
use simpler_decoder::gguf::Gguf;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(file) = Gguf::parse(bytes) else { return };
    let place = bytes.as_ptr_range();
    for tensor in file.tensors() {
        assert_eq!(weight_bytes(tensor.dtype, tensor.columns * tensor.rows), Some(tensor.bytes.len() as u64));
        let within = tensor.bytes.as_ptr_range();
        assert!(tensor.bytes.is_empty() || place.start <= within.start && within.end <= place.end);
    }
    let Ok(model) = Model::from_gguf_bytes(bytes) else { return };
    let text = "he said: 12";
    let ids = model.tokenizer.encode(text, false).expect("a short text");
    let decoded = model.tokenizer.decode(&ids);
    assert!(decoded.len() <= text.len() && ids.iter().all(|id| *id < model.config.vocab));
    let _ = model.chat_prompt(text);
});
