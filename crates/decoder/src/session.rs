//! What a sequence needs on the device, and the arguments of its runs.
//!
//! A chip keeps four buffers for a sequence: the weights, the key and value cache, the rope table and the
//! logits. The tokens themselves lie in one array of host words that parent and chip share: word `i` is the
//! token at position `i`. A prefill of `n` tokens reads words `0 .. n` and writes word `n`; a decode at
//! position `p` reads word `p` and writes word `p + 1`. So the whole sequence ends up in the array, and no
//! token is passed around.

use simpler_kernel_abi::{ArgUse, DEVICE_MEMORY, DType, HOST_MEMORY, SimplerTensor};
use simpler_runtime::{ChipArg, RunArgs};

use crate::Error;
use crate::error::ErrorKind;
use crate::model::{Model, ModelConfig};

/// Fewest tokens of a prefill's pass: enough that unpacking weights costs little beside using them.
const CHUNK_MIN: u32 = 64;
/// Tasks that a prefill plans for. A run's window is 16384 tasks; the rest is slack for the head.
const PREFILL_TASKS_MAX: u32 = 12_000;
/// Most tasks that share a matrix: the AICs of a simulated chip.
const SPLITS_MAX: u32 = 8;
/// Bytes of a token word.
const WORD_BYTES: u64 = 4;

/// How a session cuts its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionConfig {
    /// Tokens that the cache holds, prompt and generated ones; at most the model's context.
    pub capacity: u32,
    /// Tasks that share the rows of a layer's matrix; about the cores that really run side by side.
    pub splits: u32,
    /// Tasks that share the rows of the head, the largest matrix.
    pub head_splits: u32,
    /// Whether runs time tasks in all 16 slots: 0 the embedding, 1 to 14 the norm that opens as many layers, 15
    /// the argmax.
    pub task_slots: bool,
}

impl SessionConfig {
    /// Cut for a machine whose cores really run `cpus` at a time.
    pub fn for_cpus(capacity: u32, cpus: u32) -> Self {
        let splits = cpus.clamp(1, SPLITS_MAX);
        // More parts of the head than run at a time would only wake a second scheduler for it.
        Self { capacity, splits, head_splits: splits, task_slots: false }
    }
}

/// Device addresses of a sequence's buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceBuffers {
    /// [`Session::weight_bytes`] bytes: the model's image. Sequences on one chip may share it.
    pub weights: u64,
    /// [`Session::cache_bytes`] bytes, of any content at first.
    pub cache: u64,
    /// [`Session::rope_bytes`] bytes: [`Session::rope_table`].
    pub rope: u64,
    /// [`Session::logits_bytes`] bytes; each run leaves the logits of its last token, f32 each.
    pub logits: u64,
}

/// A model and the room for one sequence.
#[derive(Clone, Debug)]
pub struct Session {
    model: ModelConfig,
    config: SessionConfig,
    weight_bytes: u64,
    /// The scalars of `decoder.h` that say what the model is.
    figures: Vec<u64>,
    layout: Vec<u64>,
}

impl Session {
    /// A session over `model`.
    ///
    /// # Errors
    /// If the capacity is 0 or beyond the model's context, or a split is 0.
    pub fn new(model: &Model, config: SessionConfig) -> Result<Self, Error> {
        let figures = model.config;
        if config.capacity == 0 || config.capacity > figures.context {
            let what =
                format!("a capacity of {}; the model's context is {}", config.capacity, figures.context);
            return Err(ErrorKind::Session(what).into());
        }
        if config.splits == 0 || config.head_splits == 0 {
            return Err(ErrorKind::Session("a split of 0".into()).into());
        }
        let layout = &model.layout;
        Ok(Self {
            model: figures,
            config,
            weight_bytes: model.image.len() as u64,
            figures: vec![
                figures.layers.into(),
                figures.dim.into(),
                figures.heads.into(),
                figures.kv_heads.into(),
                figures.head_dim.into(),
                figures.ffn.into(),
                figures.vocab.into(),
                figures.rms_eps.to_bits().into(),
                config.capacity.into(),
            ],
            layout: vec![
                layout.layers_offset,
                layout.layer_stride,
                layout.attention_norm,
                layout.qkv.offset,
                layout.qkv.dtype as u64,
                layout.o.offset,
                layout.o.dtype as u64,
                layout.ffn_norm,
                layout.gate_up.offset,
                layout.gate_up.dtype as u64,
                layout.down.offset,
                layout.down.dtype as u64,
                layout.final_norm,
                layout.embedding.offset,
                layout.embedding.dtype as u64,
                layout.head.offset,
                layout.head.dtype as u64,
            ],
        })
    }

    /// Bytes of the weights.
    pub fn weight_bytes(&self) -> u64 {
        self.weight_bytes
    }

    /// Bytes of the key and value cache: f32, all layers, `capacity` positions.
    pub fn cache_bytes(&self) -> u64 {
        let per_position = u64::from(self.model.layers) * 2 * u64::from(self.model.kv_dim()) * 4;
        per_position * u64::from(self.config.capacity)
    }

    /// Bytes of the rope table.
    pub fn rope_bytes(&self) -> u64 {
        u64::from(self.config.capacity) * u64::from(self.model.head_dim) * 4
    }

    /// Bytes of the logits.
    pub fn logits_bytes(&self) -> u64 {
        u64::from(self.model.vocab) * 4
    }

    /// Host words that the sequence's tokens need: one for each position, and one for the token after the last.
    pub fn token_words(&self) -> usize {
        self.config.capacity as usize + 1
    }

    /// The rope table: per position and pair of a head, cosine and sine of the angle.
    pub fn rope_table(&self) -> Vec<f32> {
        let pairs = self.model.head_dim / 2;
        let base = f64::from(self.model.rope_base);
        let frequencies: Vec<f64> = (0..pairs)
            .map(|pair| base.powf(-2.0 * f64::from(pair) / f64::from(self.model.head_dim)))
            .collect();
        (0..self.config.capacity)
            .flat_map(|position| {
                frequencies.iter().flat_map(move |frequency| {
                    let (sin, cos) = (f64::from(position) * frequency).sin_cos();
                    [cos as f32, sin as f32]
                })
            })
            .collect()
    }

    /// Arguments of a prefill: reads words `0 .. tokens` of the array at host address `words` into an empty
    /// cache, and writes word `tokens`.
    ///
    /// # Errors
    /// If there are no tokens, or more than the capacity.
    pub fn prefill_args(&self, buffers: &DeviceBuffers, words: u64, tokens: u32) -> Result<RunArgs, Error> {
        self.args(buffers, words, 0, tokens)
    }

    /// Arguments of a decode: reads word `position` of the array at host address `words` behind the tokens
    /// before it, which the cache holds, and writes word `position + 1`.
    ///
    /// # Errors
    /// If the position is beyond the capacity.
    pub fn decode_args(&self, buffers: &DeviceBuffers, words: u64, position: u32) -> Result<RunArgs, Error> {
        self.args(buffers, words, position, 1)
    }

    fn args(
        &self,
        buffers: &DeviceBuffers,
        words: u64,
        position: u32,
        tokens: u32,
    ) -> Result<RunArgs, Error> {
        let end = position.checked_add(tokens).filter(|end| tokens > 0 && *end <= self.config.capacity);
        let Some(end) = end else {
            let capacity = self.config.capacity;
            let what = format!("{tokens} tokens at position {position} of a capacity of {capacity}");
            return Err(ErrorKind::Session(what).into());
        };
        let device = |addr, bytes, dtype, arg_use| ChipArg {
            tensor: SimplerTensor::whole(addr, bytes, dtype, DEVICE_MEMORY),
            arg_use,
        };
        let host = |first: u32, count: u32, arg_use| ChipArg {
            tensor: SimplerTensor::whole(
                words + u64::from(first) * WORD_BYTES,
                u64::from(count) * WORD_BYTES,
                DType::I32,
                HOST_MEMORY,
            ),
            arg_use,
        };
        let tensors = vec![
            device(buffers.weights, self.weight_bytes, DType::U8, ArgUse::NoDep),
            device(buffers.cache, self.cache_bytes(), DType::F32, ArgUse::InOut),
            device(buffers.rope, self.rope_bytes(), DType::F32, ArgUse::NoDep),
            device(buffers.logits, self.logits_bytes(), DType::F32, ArgUse::OutputExisting),
            host(position, tokens, ArgUse::Input),
            host(end, 1, ArgUse::Output),
        ];
        let run = [
            position.into(),
            tokens.into(),
            self.chunk(tokens).into(),
            self.config.splits.into(),
            self.config.head_splits.into(),
            self.config.task_slots.into(),
        ];
        let scalars = self.figures.iter().chain(&run).chain(&self.layout).copied().collect();
        Ok(RunArgs { tensors, scalars, ..RunArgs::default() })
    }

    /// Tokens of a pass: more for a long prompt, so that its tasks fit the run.
    fn chunk(&self, tokens: u32) -> u32 {
        let per_layer = 2 + self.model.kv_heads + 4 * self.config.splits;
        let per_pass = u64::from(self.model.layers) * u64::from(per_layer) + 1;
        let passes = (u64::from(PREFILL_TASKS_MAX) / per_pass).max(1);
        // No more than `tokens`, so it fits.
        let needed = u64::from(tokens).div_ceil(passes) as u32;
        needed.max(CHUNK_MIN).next_multiple_of(4)
    }
}
