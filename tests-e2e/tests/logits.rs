//! What the chip computes, against a plain host reference and against independent implementations.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};

use serde_json::Value;
use simpler_decoder::reference::Reference;
use simpler_decoder::{DeviceBuffers, Model, Session, SessionConfig, callables};
use simpler_kernel_compiler::Compiler;
use simpler_platform::DeviceAddr;
use simpler_runtime::{CallableId, CallableImage, ChipRuntime, RuntimeConfig};
use simpler_sim_npu::{Profile, SimNpu, SimOptions};

/// The largest difference of logits, over the largest logit, that rounding explains.
const RELATIVE_MAX: f32 = 1e-3;
/// The largest difference of a logit from an independent f32 implementation.
const ABSOLUTE_MAX: f32 = 1e-3;

/// A chip with a model on it.
struct OnChip {
    runtime: ChipRuntime,
    prefill: CallableId,
    decode: CallableId,
    session: Session,
    buffers: DeviceBuffers,
    words: Vec<u32>,
    vocabulary: usize,
}

impl OnChip {
    fn new(model: &Model, capacity: u32) -> OnChip {
        let folder = tempfile::tempdir().unwrap();
        let compiler = Compiler::new(folder.path()).unwrap();
        let session = Session::new(model, SessionConfig::for_cpus(capacity, 2)).unwrap();
        let platform = SimNpu::new(Profile::a2a3sim(), SimOptions::default()).unwrap();
        let runtime = ChipRuntime::new(platform, RuntimeConfig::default()).unwrap();
        let [prefill, decode] = callables(None).unwrap().map(|source| {
            runtime.register(&CallableImage::load(&compiler.compile(&source).unwrap()).unwrap()).unwrap()
        });
        let allocate = |bytes: u64| runtime.malloc(bytes as usize).unwrap().0;
        let buffers = DeviceBuffers {
            weights: allocate(session.weight_bytes()),
            cache: allocate(session.cache_bytes()),
            rope: allocate(session.rope_bytes()),
            logits: allocate(session.logits_bytes()),
        };
        let rope: Vec<u8> = session.rope_table().iter().flat_map(|value| value.to_ne_bytes()).collect();
        runtime.copy_to(DeviceAddr(buffers.weights), &model.image).unwrap();
        runtime.copy_to(DeviceAddr(buffers.rope), &rope).unwrap();
        let words = vec![0; session.token_words()];
        OnChip { runtime, prefill, decode, session, buffers, words, vocabulary: model.config.vocab as usize }
    }

    /// Reads a prompt and gives the token behind it.
    fn prefill(&mut self, prompt: &[u32]) -> u32 {
        self.words[..prompt.len()].copy_from_slice(prompt);
        let words = self.words.as_mut_ptr().expose_provenance() as u64;
        let args = self.session.prefill_args(&self.buffers, words, prompt.len() as u32).unwrap();
        // SAFETY: the arguments name this model's words, which nobody touches meanwhile, and buffers of this chip; the
        // objects are compiled from the built-in sources.
        unsafe { self.runtime.run(self.prefill, &args) }.unwrap();
        self.words[prompt.len()]
    }

    /// Reads the token at a position and gives the one behind it.
    fn decode(&mut self, position: usize) -> u32 {
        let words = self.words.as_mut_ptr().expose_provenance() as u64;
        let args = self.session.decode_args(&self.buffers, words, position as u32).unwrap();
        // SAFETY: as in `prefill`.
        unsafe { self.runtime.run(self.decode, &args) }.unwrap();
        self.words[position + 1]
    }

    fn logits(&self) -> Vec<f32> {
        let mut bytes = vec![0; self.vocabulary * 4];
        self.runtime.copy_from(&mut bytes, DeviceAddr(self.buffers.logits)).unwrap();
        bytes.chunks_exact(4).map(|word| f32::from_ne_bytes([word[0], word[1], word[2], word[3]])).collect()
    }
}

/// max |Δ| / max |reference|.
fn relative_difference(found: &[f32], reference: &[f32]) -> f32 {
    assert_eq!(found.len(), reference.len());
    let difference = found.iter().zip(reference).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    let largest = reference.iter().fold(0.0, |largest: f32, value| largest.max(value.abs()));
    assert!(largest > 0.0 && difference.is_finite());
    difference / largest
}

#[test]
fn tiny_on_the_chip_agrees_with_the_plain_reference_over_32_steps() {
    let model = Model::tiny().unwrap();
    let prompt = model.tokenizer.encode("What the chip computes is what the host computes", false).unwrap();
    let mut chip = OnChip::new(&model, prompt.len() as u32 + 40);
    let mut reference = Reference::new(&model);
    let mut expected = reference.step(&prompt);
    let mut worst = 0.0_f32;
    let mut token = chip.prefill(&prompt);
    for step in 0..32 {
        let logits = chip.logits();
        worst = worst.max(relative_difference(&logits, &expected));
        assert!(worst <= RELATIVE_MAX, "step {step}: {worst}");
        expected = reference.step(&[token]);
        token = chip.decode(prompt.len() + step);
    }
    println!("largest relative difference over 32 steps: {worst:e}");
}

/// The real model, or the reason why this test is skipped, said aloud.
fn smollm2() -> Option<Model> {
    let path = std::env::var_os("SIMPLER_SMOLLM2_GGUF").map(PathBuf::from);
    match path.filter(|path| path.is_file()) {
        Some(path) => Some(Model::from_gguf(&path).unwrap()),
        None => {
            eprintln!("skipped: SIMPLER_SMOLLM2_GGUF names no file (cargo xtask fetch-model fetches it)");
            None
        }
    }
}

fn golden() -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/decoder/tests/data/smollm2_golden.json");
    let golden: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    golden["cases"].as_array().unwrap().clone()
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

#[test]
fn smollm2_on_the_chip_gives_the_logits_and_tokens_of_independent_implementations() {
    let Some(model) = smollm2() else { return };
    let mut chip = OnChip::new(&model, 256);
    for case in golden() {
        let name = case["id"].as_str().unwrap();
        let prompt = ids(&case["prompt_ids"]);
        let text = case["prompt"].as_str().unwrap();
        let encoded = model.tokenizer.encode(text, case["parse_special"].as_bool().unwrap()).unwrap();
        assert_eq!(encoded, prompt, "{name}: the prompt's tokens");

        let mut tokens = vec![chip.prefill(&prompt)];
        let logits = chip.logits();
        for pair in case["first_logits_f32"].as_array().unwrap() {
            let (id, expected) = (pair[0].as_u64().unwrap() as usize, pair[1].as_f64().unwrap() as f32);
            let difference = (logits[id] - expected).abs();
            assert!(difference <= ABSOLUTE_MAX, "{name}: logit {id} is {}, not {expected}", logits[id]);
        }
        let agreed = case["agree"].as_u64().unwrap() as usize;
        while tokens.len() < agreed {
            tokens.push(chip.decode(prompt.len() + tokens.len() - 1));
        }
        assert_eq!(tokens, ids(&case["generated_ids"])[..agreed], "{name}: the greedy tokens");
    }
}
