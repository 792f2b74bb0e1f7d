//! Writes small GGUF files.
#![allow(dead_code, reason = "each test file uses a part")]

/// A file in the making.
#[derive(Clone, Default)]
pub(crate) struct GgufFile {
    entries: Vec<Vec<u8>>,
    tensors: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Value types of the format.
pub(crate) const U32: u32 = 4;
pub(crate) const F32: u32 = 6;
pub(crate) const BOOL: u32 = 7;
pub(crate) const STRING: u32 = 8;
pub(crate) const ARRAY: u32 = 9;

fn string(text: &str) -> Vec<u8> {
    let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(text.as_bytes());
    bytes
}

impl GgufFile {
    pub(crate) fn entry(mut self, key: &str, kind: u32, value: &[u8]) -> Self {
        let mut bytes = string(key);
        bytes.extend_from_slice(&kind.to_le_bytes());
        bytes.extend_from_slice(value);
        self.entries.push(bytes);
        self
    }

    pub(crate) fn u32(self, key: &str, value: u32) -> Self {
        self.entry(key, U32, &value.to_le_bytes())
    }

    pub(crate) fn f32(self, key: &str, value: f32) -> Self {
        self.entry(key, F32, &value.to_le_bytes())
    }

    pub(crate) fn text(self, key: &str, value: &str) -> Self {
        self.entry(key, STRING, &string(value))
    }

    pub(crate) fn texts(self, key: &str, values: &[String]) -> Self {
        let mut bytes = STRING.to_le_bytes().to_vec();
        bytes.extend_from_slice(&(values.len() as u64).to_le_bytes());
        for value in values {
            bytes.extend_from_slice(&string(value));
        }
        self.entry(key, ARRAY, &bytes)
    }

    /// `kind` is the format's number of an element type.
    pub(crate) fn tensor(mut self, name: &str, dimensions: &[u64], kind: u32, data: Vec<u8>) -> Self {
        let mut bytes = string(name);
        bytes.extend_from_slice(&(dimensions.len() as u32).to_le_bytes());
        for dimension in dimensions {
            bytes.extend_from_slice(&dimension.to_le_bytes());
        }
        bytes.extend_from_slice(&kind.to_le_bytes());
        self.tensors.push((bytes, data));
        self
    }

    /// A tensor of this name takes the new form.
    pub(crate) fn replace_tensor(mut self, name: &str, dimensions: &[u64], kind: u32, data: Vec<u8>) -> Self {
        self.tensors.retain(|(entry, _)| !entry.starts_with(&string(name)));
        self.tensor(name, dimensions, kind, data)
    }

    /// The entry of this key goes.
    pub(crate) fn without(mut self, key: &str) -> Self {
        self.entries.retain(|entry| !entry.starts_with(&string(key)));
        self.tensors.retain(|(entry, _)| !entry.starts_with(&string(key)));
        self
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut file = b"GGUF".to_vec();
        file.extend_from_slice(&3u32.to_le_bytes());
        file.extend_from_slice(&(self.tensors.len() as u64).to_le_bytes());
        file.extend_from_slice(&(self.entries.len() as u64).to_le_bytes());
        for entry in &self.entries {
            file.extend_from_slice(entry);
        }
        let mut data: Vec<u8> = Vec::new();
        for (entry, bytes) in &self.tensors {
            data.resize(data.len().next_multiple_of(32), 0);
            file.extend_from_slice(entry);
            file.extend_from_slice(&(data.len() as u64).to_le_bytes());
            data.extend_from_slice(bytes);
        }
        file.resize(file.len().next_multiple_of(32), 0);
        file.extend_from_slice(&data);
        file
    }
}

/// GPT-2's alphabet, as in the format's vocabularies.
fn byte_tokens() -> Vec<String> {
    let mut moved = 0x100;
    (0..=255u8)
        .map(|byte| match byte {
            b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff => char::from(byte).to_string(),
            _ => {
                moved += 1;
                char::from_u32(moved - 1).unwrap().to_string()
            }
        })
        .collect()
}

/// Numbers between -1 and 1 that repeat nothing soon.
pub(crate) fn floats(seed: u32, count: u64) -> Vec<u8> {
    (0..count as u32)
        .flat_map(|i| {
            ((i + 1).wrapping_mul(seed.wrapping_mul(2654435761) | 1) as i32 as f32 / 2e9).to_le_bytes()
        })
        .collect()
}

pub(crate) const DIM: u64 = 32;
pub(crate) const FFN: u64 = 64;

/// A whole llama model in F32 with one layer, two heads of 16 over one kv head, a tied head, and 259 tokens.
pub(crate) fn model_file() -> GgufFile {
    let mut tokens = byte_tokens();
    tokens.extend(["<|start|>".to_owned(), "he".to_owned(), "\u{120}he".to_owned()]);
    let kinds: Vec<u8> = [5u32.to_le_bytes(), 259u32.to_le_bytes(), 0u32.to_le_bytes()]
        .concat()
        .into_iter()
        .chain((0..259).flat_map(|id| if id == 256 { 3i32 } else { 1 }.to_le_bytes()))
        .collect();
    let vocab = tokens.len() as u64;
    let mut file = GgufFile::default()
        .text("general.architecture", "llama")
        .u32("llama.block_count", 1)
        .u32("llama.context_length", 64)
        .u32("llama.embedding_length", DIM as u32)
        .u32("llama.feed_forward_length", FFN as u32)
        .u32("llama.attention.head_count", 2)
        .u32("llama.attention.head_count_kv", 1)
        .f32("llama.attention.layer_norm_rms_epsilon", 1e-5)
        .f32("llama.rope.freq_base", 10000.0)
        .text("tokenizer.ggml.model", "gpt2")
        .text("tokenizer.ggml.pre", "smollm")
        .texts("tokenizer.ggml.tokens", &tokens)
        .texts("tokenizer.ggml.merges", &["h e".to_owned(), "\u{120} he".to_owned()])
        .entry("tokenizer.ggml.token_type", ARRAY, &kinds)
        .text(
            "tokenizer.chat_template",
            "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}",
        );
    let shapes: [(&str, &[u64]); 11] = [
        ("blk.0.attn_norm.weight", &[DIM]),
        ("blk.0.attn_q.weight", &[DIM, 32]),
        ("blk.0.attn_k.weight", &[DIM, 16]),
        ("blk.0.attn_v.weight", &[DIM, 16]),
        ("blk.0.attn_output.weight", &[32, DIM]),
        ("blk.0.ffn_norm.weight", &[DIM]),
        ("blk.0.ffn_gate.weight", &[DIM, FFN]),
        ("blk.0.ffn_up.weight", &[DIM, FFN]),
        ("blk.0.ffn_down.weight", &[FFN, DIM]),
        ("output_norm.weight", &[DIM]),
        ("token_embd.weight", &[DIM, vocab]),
    ];
    for (seed, (name, shape)) in (1..).zip(shapes) {
        file = file.tensor(name, shape, 0, floats(seed, shape.iter().product()));
    }
    file
}
