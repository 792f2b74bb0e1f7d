//! The built-in model: random weights from a fixed seed, a vocabulary of bytes and short words.
//!
//! It has the shape of a real decoder (Q4_1 layers, Q8_0 embedding and head, grouped heads) and a context long
//! enough for long runs. Only whole words have a head row, so whatever it generates is printable.

use simpler_kernel_abi::DType;

use crate::Error;
use crate::blocks::{pack_q4_1, pack_q8_0};
use crate::model::{LayerParts, Model, ModelConfig, Part, Parts, pack};
use crate::tokenizer::{Tokenizer, byte_characters};

/// Its figures.
const CONFIG: ModelConfig = ModelConfig {
    layers: 16,
    dim: 64,
    heads: 4,
    kv_heads: 2,
    head_dim: 16,
    ffn: 192,
    vocab: 512,
    context: 8192,
    rms_eps: 1e-5,
    rope_base: 10000.0,
};

/// Chosen, like [`GAIN`], so that greedy text does not settle into a short cycle.
const SEED: u64 = 2;

/// How much larger a layer's outputs are than its inputs. With 1, attention is so even and the layers add so
/// little that the next word follows from the last one alone.
const GAIN: f32 = 2.0;

/// What it can say, each with a space before it. The vocabulary is the bytes, then every beginning of these
/// words in order until it is full; a later word of which only the beginning fits is not in it.
const WORDS: &str = "the of and to in is was for it with as his on be at by had not are but from or have an \
    they which one you were her all she there would their we him been has when who will more no if out so \
    said what up its about into than them can only other new some could time these two may then do first any \
    my now such like our over man me even most made after also did many before must through back years \
    where much your way well down should because each just those people mister how too little state good \
    very make world still own see men work long get here between both life being under never day same";

pub(crate) fn model() -> Result<Model, Error> {
    let vocabulary = vocabulary();
    let tokens: Vec<&str> = vocabulary.tokens.iter().map(String::as_str).collect();
    let merges: Vec<(&str, &str)> =
        vocabulary.merges.iter().map(|(left, right)| (left.as_str(), right.as_str())).collect();
    let tokenizer = Tokenizer::new(&tokens, &merges, &vec![1; tokens.len()])?;

    let mut random = Random(SEED);
    let ModelConfig { dim, ffn, vocab, .. } = CONFIG;
    let layers: Vec<LayerWeights> = (0..CONFIG.layers)
        .map(|_| LayerWeights {
            q: random.q4_1(CONFIG.q_dim(), dim),
            k: random.q4_1(CONFIG.kv_dim(), dim),
            v: random.q4_1(CONFIG.kv_dim(), dim),
            o: random.q4_1(dim, CONFIG.q_dim()),
            gate: random.q4_1(ffn, dim),
            up: random.q4_1(ffn, dim),
            down: random.q4_1(dim, ffn),
        })
        .collect();
    let embedding = random.rows(vocab, dim, |_| true);
    let head = random.rows(vocab, dim, |token| vocabulary.whole_words.contains(&token));
    let ones: Vec<u8> = std::iter::repeat_n(1.0f32.to_le_bytes(), dim as usize).flatten().collect();

    let norm = || Part { rows: 1, columns: dim, dtype: DType::F32, bytes: &ones };
    let parts = Parts {
        layers: layers
            .iter()
            .map(|layer| LayerParts {
                attention_norm: norm(),
                qkv: [
                    part(CONFIG.q_dim(), dim, DType::Q4_1, &layer.q),
                    part(CONFIG.kv_dim(), dim, DType::Q4_1, &layer.k),
                    part(CONFIG.kv_dim(), dim, DType::Q4_1, &layer.v),
                ],
                o: [part(dim, CONFIG.q_dim(), DType::Q4_1, &layer.o)],
                ffn_norm: norm(),
                gate_up: [part(ffn, dim, DType::Q4_1, &layer.gate), part(ffn, dim, DType::Q4_1, &layer.up)],
                down: [part(dim, ffn, DType::Q4_1, &layer.down)],
            })
            .collect(),
        final_norm: norm(),
        embedding: [part(vocab, dim, DType::Q8_0, &embedding)],
        head: Some([part(vocab, dim, DType::Q8_0, &head)]),
    };
    let (layout, image) = pack(&CONFIG, &parts)?;
    Ok(Model { config: CONFIG, layout, image, tokenizer, chat_template: None })
}

fn part(rows: u32, columns: u32, dtype: DType, bytes: &[u8]) -> Part<'_> {
    Part { rows, columns, dtype, bytes }
}

struct LayerWeights {
    q: Vec<u8>,
    k: Vec<u8>,
    v: Vec<u8>,
    o: Vec<u8>,
    gate: Vec<u8>,
    up: Vec<u8>,
    down: Vec<u8>,
}

struct Vocabulary {
    tokens: Vec<String>,
    merges: Vec<(String, String)>,
    whole_words: Vec<u32>,
}

fn vocabulary() -> Vocabulary {
    let characters = byte_characters();
    let space = characters[usize::from(b' ')];
    let mut tokens: Vec<String> = characters.iter().map(|character| character.to_string()).collect();
    let mut merges = Vec::new();
    let mut whole_words = Vec::new();
    for word in WORDS.split_whitespace() {
        let mut piece = space.to_string();
        for letter in word.chars() {
            let longer = format!("{piece}{letter}");
            if !tokens.contains(&longer) {
                if tokens.len() == CONFIG.vocab as usize {
                    break;
                }
                merges.push((piece.clone(), letter.to_string()));
                tokens.push(longer.clone());
            }
            piece = longer;
        }
        if let Some(id) = (0u32..).zip(&tokens).find(|(_, token)| **token == format!("{space}{word}")) {
            whole_words.push(id.0);
        }
    }
    Vocabulary { tokens, merges, whole_words }
}

/// SplitMix64: small, and its output for a seed is fixed for good.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// About normal with deviation 1: the sum of four uniform values.
    fn normal(&mut self) -> f32 {
        let sum: f32 = (0..4).map(|_| (self.next() >> 40) as f32 / (1u32 << 24) as f32 - 0.5).sum();
        sum * 3.0f32.sqrt()
    }

    /// A matrix whose outputs have about [`GAIN`] times the deviation of its inputs.
    fn q4_1(&mut self, rows: u32, columns: u32) -> Vec<u8> {
        let deviation = GAIN / (columns as f32).sqrt();
        let values: Vec<f32> = (0..rows * columns).map(|_| self.normal() * deviation).collect();
        let mut bytes = Vec::new();
        pack_q4_1(&values, &mut bytes);
        bytes
    }

    fn rows(&mut self, rows: u32, columns: u32, keep: impl Fn(u32) -> bool) -> Vec<u8> {
        let mut bytes = Vec::new();
        for row in 0..rows {
            let kept = if keep(row) { 1.0 } else { 0.0 };
            let values: Vec<f32> = (0..columns).map(|_| self.normal() * kept).collect();
            pack_q8_0(&values, &mut bytes);
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_fill_the_vocabulary() {
        let vocabulary = vocabulary();
        assert_eq!(vocabulary.tokens.len(), CONFIG.vocab as usize);
        assert!(vocabulary.whole_words.len() > 64, "{}", vocabulary.whole_words.len());
    }
}
