//! Model files: what is read from good ones, and the sentence that bad ones get.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod gguf_file;

use gguf_file::{ARRAY, BOOL, DIM, FFN, GgufFile, floats, model_file};
use simpler_decoder::Model;
use simpler_decoder::gguf::{Gguf, Value};
use simpler_decoder::reference::Reference;
use simpler_kernel_abi::DType;

fn refusal(file: &GgufFile) -> String {
    Model::from_gguf_bytes(&file.bytes()).unwrap_err().to_string()
}

#[test]
fn metadata_and_tensors_are_read() {
    let bytes = model_file().bytes();
    let file = Gguf::parse(&bytes).unwrap();
    assert_eq!(file.text("general.architecture"), Some("llama"));
    assert_eq!(file.unsigned("llama.block_count"), Some(1));
    assert_eq!(file.float("llama.rope.freq_base"), Some(10000.0));
    assert_eq!(file.get("no.such.key"), None);
    let Some(Value::Integers(kinds)) = file.get("tokenizer.ggml.token_type") else { panic!() };
    assert_eq!((kinds.len(), kinds[256], kinds[0]), (259, 3, 1));
    let gate = file.tensors().iter().find(|tensor| tensor.name == "blk.0.ffn_gate.weight").unwrap();
    assert_eq!((gate.rows, gate.columns, gate.dtype), (FFN, DIM, DType::F32));
    assert_eq!(gate.bytes, floats(7, DIM * FFN));
}

#[test]
fn a_model_is_read_whole() {
    let model = Model::from_gguf_bytes(&model_file().bytes()).unwrap();
    assert_eq!(model.config.qkv_rows(), 64);
    assert_eq!(model.layout.head, model.layout.embedding, "the head is tied");
    assert_eq!(model.tokenizer.encode("he he", false).unwrap(), [257, 258]);
    assert_eq!(model.tokenizer.encode("<|start|>he", true).unwrap(), [256, 257]);
    assert_eq!(model.tokenizer.decode(&[256, 257, 258]), b"he he");
    assert_eq!(model.chat_prompt("hi").unwrap(), "user: hi\n");
    let logits = Reference::new(&model).step(&[1, 2, 3]);
    assert_eq!(logits.len(), 259);
    assert!(logits.iter().all(|logit| logit.is_finite()));
}

#[test]
fn mixed_formats_are_widened_and_a_head_of_its_own_is_used() {
    let plain = Model::from_gguf_bytes(&model_file().bytes()).unwrap();
    // Halves of the numbers 1, so that widening is exact: only the format of one part of a stack differs.
    let half_ones = |count: u64| (0..count).flat_map(|_| 0x3c00u16.to_le_bytes()).collect::<Vec<u8>>();
    let ones = |count: u64| (0..count).flat_map(|_| 1f32.to_le_bytes()).collect::<Vec<u8>>();
    let halves = model_file().replace_tensor("blk.0.attn_k.weight", &[DIM, 16], 1, half_ones(DIM * 16));
    let floats_ = model_file().replace_tensor("blk.0.attn_k.weight", &[DIM, 16], 0, ones(DIM * 16));
    let halves = Model::from_gguf_bytes(&halves.bytes()).unwrap();
    let floats_ = Model::from_gguf_bytes(&floats_.bytes()).unwrap();
    assert_eq!(halves.layout.qkv.dtype, DType::F32);
    assert_eq!(halves.image, floats_.image);
    assert_ne!(halves.image, plain.image);

    let untied = model_file().tensor("output.weight", &[DIM, 259], 0, ones(DIM * 259));
    let untied = Model::from_gguf_bytes(&untied.bytes()).unwrap();
    assert_ne!(untied.layout.head.offset, untied.layout.embedding.offset);
    let logits = Reference::new(&untied).step(&[5]);
    assert!(logits.iter().all(|logit| *logit == logits[0]), "all rows of this head are equal");
}

#[test]
fn files_that_are_none_are_refused_with_a_place() {
    for (bytes, part) in [
        (b"".as_slice(), "byte 0: the file ends here"),
        (b"GG", "byte 0: the file ends here"),
        (b"ELF!....", "not a GGUF file"),
        (b"GGUF\x01\0\0\0", "version 1 is not read"),
        (b"GGUF\0\0\0\x03", "version 50331648"),
        (b"GGUF\x03\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\0\0\0\0\0", "tensors are more than"),
        (b"GGUF\x03\0\0\0\0\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff", "entries are more than"),
    ] {
        let error = Gguf::parse(bytes).unwrap_err().to_string();
        assert!(error.contains(part), "{bytes:?}: {error}");
    }
}

#[test]
fn every_truncation_is_refused() {
    let bytes = model_file().bytes();
    for length in 0..bytes.len() {
        assert!(Gguf::parse(&bytes[..length]).is_err(), "{length} of {} bytes", bytes.len());
    }
}

#[test]
fn counts_that_the_file_cannot_hold_are_refused_before_memory_is_taken() {
    let mut array = 8u32.to_le_bytes().to_vec();
    array.extend_from_slice(&(1u64 << 60).to_le_bytes());
    let file = GgufFile::default().entry("strings", ARRAY, &array);
    assert!(refusal(&file).contains("an array of 1152921504606846976 elements"), "{}", refusal(&file));
    let file = GgufFile::default().entry("text", 8, &u64::MAX.to_le_bytes());
    assert!(refusal(&file).contains("more bytes are announced"), "{}", refusal(&file));
    let file = GgufFile::default().tensor("t", &[1 << 40, 1 << 40], 0, Vec::new());
    assert!(refusal(&file).contains("too many"), "{}", refusal(&file));
    let file = GgufFile::default().tensor("t", &[2, 1 << 62, 4], 0, Vec::new());
    assert!(refusal(&file).contains("rows"), "{}", refusal(&file));
    let file = GgufFile::default().tensor("t", &[1 << 20], 0, Vec::new());
    assert!(refusal(&file).contains("ends beyond the file"), "{}", refusal(&file));
}

#[test]
fn what_the_format_does_not_allow_is_refused() {
    let nested = [9u32.to_le_bytes().as_slice(), &1u64.to_le_bytes()].concat();
    for (file, part) in [
        (GgufFile::default().entry("k", ARRAY, &nested), "an array inside an array"),
        (GgufFile::default().entry("k", 13, &[0; 8]), "value type 13 is unknown"),
        (GgufFile::default().entry("k", BOOL, &[2]), "a boolean is 2"),
        (GgufFile::default().entry("k", 8, &[1, 0, 0, 0, 0, 0, 0, 0, 0xff]), "not UTF-8"),
        (GgufFile::default().u32("k", 1).u32("k", 2), "occurs twice"),
        (GgufFile::default().u32("general.alignment", 3), "general.alignment"),
        (GgufFile::default().u32("general.alignment", 0), "general.alignment"),
        (GgufFile::default().tensor("t", &[], 0, Vec::new()), "0 dimensions"),
        (GgufFile::default().tensor("t", &[1; 5], 0, vec![0; 4]), "5 dimensions"),
        (GgufFile::default().tensor("t", &[256], 14, vec![0; 210]), "t is in Q6_K"),
        (GgufFile::default().tensor("t", &[256], 99, vec![0; 210]), "t is in type 99"),
        (GgufFile::default().tensor("t", &[33], 3, vec![0; 40]), "no whole blocks"),
    ] {
        let error = refusal(&file);
        assert!(error.starts_with("GGUF, byte ") && error.contains(part), "{part}: {error}");
    }
}

#[test]
fn models_that_are_not_run_are_refused_with_the_reason() {
    let set = |key: &str, value: u32| model_file().without(key).u32(key, value);
    for (file, part) in [
        (model_file().without("general.architecture"), "architecture None"),
        (model_file().without("general.architecture").text("general.architecture", "phi"), "\"phi\""),
        (model_file().text("llama.rope.scaling.type", "yarn"), "yarn"),
        (set("llama.attention.head_count", 0), "heads of 0"),
        (set("llama.attention.head_count", 64), "head width of 0"),
        (set("llama.attention.head_count_kv", 3), "2 heads over 3 kv heads"),
        (set("llama.embedding_length", 1 << 20), "width of 1048576"),
        (set("llama.block_count", 2), "no blk.1.attn_norm.weight"),
        (set("llama.block_count", u32::MAX), "layers of 4294967295"),
        (set("llama.rope.dimension_count", 8), "llama.rope.dimension_count is 8"),
        (set("llama.vocab_size", 8), "llama.vocab_size is 8"),
        (model_file().without("llama.block_count"), "no integer llama.block_count"),
        (model_file().without("llama.attention.layer_norm_rms_epsilon"), "layer_norm_rms_epsilon"),
        (model_file().without("blk.0.attn_v.weight"), "no blk.0.attn_v.weight"),
        (model_file().tensor("rope_freqs.weight", &[8], 0, vec![0; 32]), "rope_freqs.weight is not one"),
        (model_file().replace_tensor("output_norm.weight", &[8], 0, vec![0; 32]), "1 by 8, not 1 by 32"),
        (model_file().without("tokenizer.ggml.merges"), "tokenizer.ggml.merges"),
        (model_file().without("tokenizer.ggml.pre").text("tokenizer.ggml.pre", "qwen2"), "qwen2"),
        (model_file().entry("tokenizer.ggml.add_bos_token", BOOL, &[1]), "add_bos_token"),
        (
            model_file().without("tokenizer.ggml.merges").texts("tokenizer.ggml.merges", &["z z".into()]),
            "needs the token \"zz\"",
        ),
        (
            model_file().without("tokenizer.ggml.merges").texts("tokenizer.ggml.merges", &["zz".into()]),
            "not two tokens",
        ),
        (
            model_file()
                .without("tokenizer.ggml.tokens")
                .without("tokenizer.ggml.token_type")
                .texts("tokenizer.ggml.tokens", &["a".into(), "a".into()]),
            "occurs twice",
        ),
    ] {
        let error = refusal(&file);
        assert!(error.contains(part), "{part}: {error}");
    }
}

#[test]
fn templates_that_are_not_understood_are_refused() {
    for (template, part) in [
        ("{% for %}", "syntax error"),
        ("{{ raise_exception('no user messages') }}", "no user messages"),
        ("{{ nothing() }}", "unknown"),
        ("{{ messages.strip() }}", "method"),
    ] {
        let file = model_file().without("tokenizer.chat_template").text("tokenizer.chat_template", template);
        let model = Model::from_gguf_bytes(&file.bytes()).unwrap();
        let error = model.chat_prompt("hi").unwrap_err().to_string();
        assert!(error.starts_with("chat template: ") && error.contains(part), "{template}: {error}");
    }
}

#[test]
fn a_missing_file_is_named() {
    let error = Model::from_gguf("/no/such/model.gguf".as_ref()).unwrap_err().to_string();
    assert!(error.contains("/no/such/model.gguf"), "{error}");
}
