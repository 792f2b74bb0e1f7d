//! A decoder's figures and weights, packed as the device holds them.
//!
//! The weights are one image: a region per layer, all with the same layout, then the final norm, the
//! embedding and the head. Matrices keep the format they came in (F32, Q4_1 or Q8_0; F16 is widened), so the
//! device reads as few bytes per token as the file has. The matrices that one task reads together are stacked
//! (q, k, v; gate, up). Where the parts of a stack, or the same matrix of two layers, differ in format, that
//! matrix is widened to F32 in all layers.

use std::path::Path;

use simpler_kernel_abi::DType;

use crate::Error;
use crate::blocks::{unpack, weight_bytes};
use crate::chat::ChatTemplate;
use crate::error::ErrorKind;
use crate::gguf::{Gguf, Tensor};
use crate::tiny;
use crate::tokenizer::{Tokenizer, VOCABULARY_MAX};

/// Where matrices and vectors of the image start: a cache line.
pub const IMAGE_ALIGNMENT: u64 = 64;
/// Most layers; deeper llama models are not known.
pub const LAYERS_MAX: u32 = 256;
/// Longest row of a matrix: a kernel packs a tile of activations this long on its core's stack (`rows.h`).
pub const COLUMNS_MAX: u32 = 8192;
/// Widest attention head (`attention.c`).
pub const HEAD_DIM_MAX: u32 = 256;
/// Longest context; bounds the rope table to 1 GiB at the widest head.
pub const CONTEXT_MAX: u32 = 1 << 20;

/// The figures of a llama-architecture decoder.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ModelConfig {
    /// Layers.
    pub layers: u32,
    /// Width of the residual stream.
    pub dim: u32,
    /// Query heads.
    pub heads: u32,
    /// Key and value heads; each serves `heads / kv_heads` query heads in a row.
    pub kv_heads: u32,
    /// Width of a head.
    pub head_dim: u32,
    /// Width of the feed-forward network.
    pub ffn: u32,
    /// Tokens of the vocabulary.
    pub vocab: u32,
    /// Tokens that the model was made for.
    pub context: u32,
    /// Added to the mean square in RMS norm.
    pub rms_eps: f32,
    /// Base of the rope angles: pair i of a head turns by `position * rope_base^(-2 i / head_dim)`.
    pub rope_base: f32,
}

impl ModelConfig {
    /// Width of all query heads.
    pub fn q_dim(&self) -> u32 {
        self.heads * self.head_dim
    }

    /// Width of all key (or value) heads.
    pub fn kv_dim(&self) -> u32 {
        self.kv_heads * self.head_dim
    }

    /// Rows of the stacked q, k and v matrices.
    pub fn qkv_rows(&self) -> u32 {
        self.q_dim() + 2 * self.kv_dim()
    }

    fn check(&self) -> Result<(), Error> {
        let bounds = [
            ("layers", self.layers, LAYERS_MAX),
            ("width", self.dim, COLUMNS_MAX),
            ("heads", self.heads, COLUMNS_MAX),
            ("kv heads", self.kv_heads, COLUMNS_MAX),
            ("head width", self.head_dim, HEAD_DIM_MAX),
            ("feed-forward width", self.ffn, COLUMNS_MAX),
            ("vocabulary", self.vocab, VOCABULARY_MAX as u32),
            ("context", self.context, CONTEXT_MAX),
        ];
        for (what, value, max) in bounds {
            if value == 0 || value > max {
                return Err(Error::model(format!("{what} of {value}; 1 to {max} are supported")));
            }
        }
        // Both factors are bounded above, so the product fits.
        if self.q_dim() > COLUMNS_MAX || !self.head_dim.is_multiple_of(2) {
            return Err(Error::model(format!("{} heads of {} are not supported", self.heads, self.head_dim)));
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            return Err(Error::model(format!("{} heads over {} kv heads", self.heads, self.kv_heads)));
        }
        if !(self.rms_eps > 0.0 && self.rms_eps < 1.0 && self.rope_base > 1.0 && self.rope_base.is_finite()) {
            return Err(Error::model(format!("eps {} or rope base {}", self.rms_eps, self.rope_base)));
        }
        Ok(())
    }
}

/// A matrix in the image. Rows follow each other without gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matrix {
    /// Bytes from the start of the image, or of the layer's region for a layer's matrix.
    pub offset: u64,
    /// F32, Q4_1 or Q8_0.
    pub dtype: DType,
    /// Outputs.
    pub rows: u32,
    /// Inputs.
    pub columns: u32,
}

/// Where everything is in the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Start of the first layer's region.
    pub layers_offset: u64,
    /// Bytes from one layer's region to the next.
    pub layer_stride: u64,
    /// F32 vector, in the layer's region.
    pub attention_norm: u64,
    /// q, k and v stacked, in the layer's region.
    pub qkv: Matrix,
    /// Attention's output, in the layer's region.
    pub o: Matrix,
    /// F32 vector, in the layer's region.
    pub ffn_norm: u64,
    /// gate and up stacked, in the layer's region.
    pub gate_up: Matrix,
    /// The feed-forward network's output, in the layer's region.
    pub down: Matrix,
    /// F32 vector.
    pub final_norm: u64,
    /// One row a token.
    pub embedding: Matrix,
    /// One row a token; the embedding itself in models that tie the two.
    pub head: Matrix,
}

/// A decoder, ready to be put on a device.
#[derive(Debug)]
pub struct Model {
    /// Its figures.
    pub config: ModelConfig,
    /// Where its weights are in `image`.
    pub layout: Layout,
    /// All weights; bytes between them are 0.
    pub image: Vec<u8>,
    /// Its tokenizer.
    pub tokenizer: Tokenizer,
    /// Its chat template, if it has one.
    pub chat_template: Option<ChatTemplate>,
}

impl Model {
    /// The built-in model: small, deterministic, and as untaught as it is small; it has every kind of task
    /// that a real one has.
    ///
    /// # Errors
    /// None that depend on the caller.
    pub fn tiny() -> Result<Self, Error> {
        tiny::model()
    }

    /// Reads a model file.
    ///
    /// # Errors
    /// If the file cannot be read, or is not a llama-architecture GGUF in the supported formats.
    pub fn from_gguf(path: &Path) -> Result<Self, Error> {
        let bytes = std::fs::read(path).map_err(|source| ErrorKind::Io { path: path.to_owned(), source })?;
        Self::from_gguf_bytes(&bytes)
    }

    /// A model from the bytes of a GGUF file.
    ///
    /// # Errors
    /// If they are not a llama-architecture GGUF in the supported formats.
    pub fn from_gguf_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let file = Gguf::parse(bytes)?;
        let tokenizer = Tokenizer::from_gguf(&file)?;
        let config = read_config(&file, tokenizer.vocabulary())?;
        let parts = collect_parts(&file, &config)?;
        let (layout, image) = pack(&config, &parts)?;
        let chat_template = file.text("tokenizer.chat_template").map(|source| ChatTemplate {
            source: source.to_owned(),
            bos_token: special_text(&file, "tokenizer.ggml.bos_token_id"),
            eos_token: special_text(&file, "tokenizer.ggml.eos_token_id"),
        });
        Ok(Self { config, layout, image, tokenizer, chat_template })
    }

    /// The prompt of one user message by the model's own template; encode it with special tokens parsed.
    ///
    /// # Errors
    /// If the model has no template, or one that is not supported.
    pub fn chat_prompt(&self, message: &str) -> Result<String, Error> {
        match &self.chat_template {
            Some(template) => template.user_prompt(message),
            None => Err(ErrorKind::Chat("this model has none".into()).into()),
        }
    }

    /// The bytes of a matrix at `offset` from the image's start.
    ///
    /// # Panics
    /// If the matrix is not of this model.
    pub fn matrix_bytes(&self, offset: u64, matrix: &Matrix) -> &[u8] {
        let bytes = weight_bytes(matrix.dtype, u64::from(matrix.rows) * u64::from(matrix.columns))
            .expect("a layout holds whole blocks only");
        &self.image[offset as usize..(offset + bytes) as usize]
    }
}

fn special_text(file: &Gguf<'_>, key: &str) -> String {
    let text = file.unsigned(key).and_then(|id| match file.get("tokenizer.ggml.tokens")? {
        crate::gguf::Value::Texts(tokens) => tokens.get(usize::try_from(id).ok()?).copied(),
        _ => None,
    });
    text.unwrap_or_default().to_owned()
}

fn read_config(file: &Gguf<'_>, tokens: usize) -> Result<ModelConfig, Error> {
    match file.text("general.architecture") {
        Some("llama") => {}
        other => return Err(Error::model(format!("architecture {other:?}; \"llama\" is supported"))),
    }
    if let Some(scaling) = file.text("llama.rope.scaling.type").filter(|scaling| *scaling != "none") {
        return Err(Error::model(format!("rope scaling {scaling:?} is not supported")));
    }
    let optional = |key: &str| {
        file.unsigned(key)
            .map(|value| u32::try_from(value).map_err(|_| Error::model(format!("{key} is {value}"))))
            .transpose()
    };
    let required =
        |key: &str| optional(key)?.ok_or_else(|| Error::model(format!("the file has no integer {key}")));
    let heads = required("llama.attention.head_count")?;
    let dim = required("llama.embedding_length")?;
    let head_dim = match optional("llama.attention.key_length")? {
        Some(head_dim) => head_dim,
        None => dim.checked_div(heads).unwrap_or(0),
    };
    let config = ModelConfig {
        layers: required("llama.block_count")?,
        dim,
        heads,
        kv_heads: optional("llama.attention.head_count_kv")?.unwrap_or(heads),
        head_dim,
        ffn: required("llama.feed_forward_length")?,
        vocab: u32::try_from(tokens).map_err(|_| Error::model("a vocabulary beyond 2^32"))?,
        context: required("llama.context_length")?,
        rms_eps: file
            .float("llama.attention.layer_norm_rms_epsilon")
            .ok_or_else(|| Error::model("the file has no float llama.attention.layer_norm_rms_epsilon"))?,
        rope_base: file.float("llama.rope.freq_base").unwrap_or(10000.0),
    };
    config.check()?;
    for (key, expected) in [
        ("llama.rope.dimension_count", config.head_dim),
        ("llama.attention.value_length", config.head_dim),
        ("llama.vocab_size", config.vocab),
    ] {
        if let Some(value) = optional(key)?.filter(|value| *value != expected) {
            return Err(Error::model(format!("{key} is {value}; {expected} is supported")));
        }
    }
    Ok(config)
}

/// Weights with the rows of what is stacked still apart.
pub(crate) struct Part<'a> {
    pub(crate) rows: u32,
    pub(crate) columns: u32,
    pub(crate) dtype: DType,
    pub(crate) bytes: &'a [u8],
}

pub(crate) struct LayerParts<'a> {
    pub(crate) attention_norm: Part<'a>,
    pub(crate) qkv: [Part<'a>; 3],
    pub(crate) o: [Part<'a>; 1],
    pub(crate) ffn_norm: Part<'a>,
    pub(crate) gate_up: [Part<'a>; 2],
    pub(crate) down: [Part<'a>; 1],
}

pub(crate) struct Parts<'a> {
    pub(crate) layers: Vec<LayerParts<'a>>,
    pub(crate) final_norm: Part<'a>,
    pub(crate) embedding: [Part<'a>; 1],
    pub(crate) head: Option<[Part<'a>; 1]>,
}

/// Takes every tensor that the architecture has; one that is left over would change what the model means.
fn collect_parts<'a>(file: &Gguf<'a>, config: &ModelConfig) -> Result<Parts<'a>, Error> {
    let mut left: std::collections::HashMap<&str, &Tensor<'a>> =
        file.tensors().iter().map(|tensor| (tensor.name, tensor)).collect();
    let mut take = |name: &str, rows: u32, columns: u32| -> Result<Part<'a>, Error> {
        let tensor = left.remove(name).ok_or_else(|| Error::model(format!("the file has no {name}")))?;
        if (tensor.rows, tensor.columns) != (rows.into(), columns.into()) {
            return Err(Error::model(format!(
                "{name} is {} by {}, not {rows} by {columns}",
                tensor.rows, tensor.columns
            )));
        }
        Ok(Part { rows, columns, dtype: tensor.dtype, bytes: tensor.bytes })
    };
    let ModelConfig { dim, ffn, vocab, .. } = *config;
    let (q_dim, kv_dim) = (config.q_dim(), config.kv_dim());
    let mut layers = Vec::new();
    for layer in 0..config.layers {
        let name = |role: &str| format!("blk.{layer}.{role}.weight");
        layers.push(LayerParts {
            attention_norm: take(&name("attn_norm"), 1, dim)?,
            qkv: [
                take(&name("attn_q"), q_dim, dim)?,
                take(&name("attn_k"), kv_dim, dim)?,
                take(&name("attn_v"), kv_dim, dim)?,
            ],
            o: [take(&name("attn_output"), dim, q_dim)?],
            ffn_norm: take(&name("ffn_norm"), 1, dim)?,
            gate_up: [take(&name("ffn_gate"), ffn, dim)?, take(&name("ffn_up"), ffn, dim)?],
            down: [take(&name("ffn_down"), dim, ffn)?],
        });
    }
    let final_norm = take("output_norm.weight", 1, dim)?;
    let embedding = [take("token_embd.weight", vocab, dim)?];
    let tied = !file.tensors().iter().any(|tensor| tensor.name == "output.weight");
    let head = if tied { None } else { Some([take("output.weight", vocab, dim)?]) };
    if let Some(name) = left.keys().min() {
        return Err(Error::model(format!("the tensor {name} is not one of this architecture's")));
    }
    Ok(Parts { layers, final_norm, embedding, head })
}

/// The format that holds all these parts: their own if they agree, else F32.
fn joint_dtype<'p, 'a: 'p>(mut parts: impl Iterator<Item = &'p Part<'a>>) -> DType {
    let first = parts.next().map_or(DType::F32, |part| part.dtype);
    if first != DType::F16 && parts.all(|part| part.dtype == first) { first } else { DType::F32 }
}

/// Places matrices one after the other.
struct Placer {
    end: u64,
}

impl Placer {
    fn vector(&mut self, length: u32) -> u64 {
        self.bytes(u64::from(length) * 4)
    }

    fn bytes(&mut self, bytes: u64) -> u64 {
        let offset = self.end.next_multiple_of(IMAGE_ALIGNMENT);
        // Figures are bounded (ModelConfig::check), so sizes stay far below 2^64.
        self.end = offset + bytes;
        offset
    }

    fn matrix(&mut self, dtype: DType, parts: &[Part<'_>]) -> Result<Matrix, Error> {
        let rows = parts.iter().map(|part| part.rows).sum();
        let columns = parts.first().map_or(0, |part| part.columns);
        let bytes = weight_bytes(dtype, u64::from(columns))
            .and_then(|row| row.checked_mul(u64::from(rows)))
            .ok_or_else(|| Error::model(format!("rows of {columns} are no whole blocks")))?;
        Ok(Matrix { offset: self.bytes(bytes), dtype, rows, columns })
    }
}

/// Builds the image.
pub(crate) fn pack(config: &ModelConfig, parts: &Parts<'_>) -> Result<(Layout, Vec<u8>), Error> {
    config.check()?;
    let Some(first) = parts.layers.first() else {
        return Err(Error::model("no layers"));
    };
    let layers = &parts.layers;
    let mut place = Placer { end: 0 };
    let attention_norm = place.vector(config.dim);
    let qkv = place.matrix(joint_dtype(layers.iter().flat_map(|layer| &layer.qkv)), &first.qkv)?;
    let o = place.matrix(joint_dtype(layers.iter().flat_map(|layer| &layer.o)), &first.o)?;
    let ffn_norm = place.vector(config.dim);
    let gate_up =
        place.matrix(joint_dtype(layers.iter().flat_map(|layer| &layer.gate_up)), &first.gate_up)?;
    let down = place.matrix(joint_dtype(layers.iter().flat_map(|layer| &layer.down)), &first.down)?;
    let layer_stride = place.end.next_multiple_of(IMAGE_ALIGNMENT);
    place.end = layer_stride * u64::from(config.layers);
    let final_norm = place.vector(config.dim);
    let embedding = place.matrix(joint_dtype(parts.embedding.iter()), &parts.embedding)?;
    let head = match &parts.head {
        Some(head) => place.matrix(joint_dtype(head.iter()), head)?,
        None => embedding,
    };
    let layout = Layout {
        layers_offset: 0,
        layer_stride,
        attention_norm,
        qkv,
        o,
        ffn_norm,
        gate_up,
        down,
        final_norm,
        embedding,
        head,
    };
    let bytes = usize::try_from(place.end.next_multiple_of(IMAGE_ALIGNMENT))
        .map_err(|_| Error::model("the weights exceed memory"))?;
    let mut image = vec![0; bytes];
    for (layer, index) in layers.iter().zip(0u64..) {
        let base = layout.layers_offset + index * layer_stride;
        copy(&mut image, base + attention_norm, DType::F32, std::slice::from_ref(&layer.attention_norm));
        copy(&mut image, base + qkv.offset, qkv.dtype, &layer.qkv);
        copy(&mut image, base + o.offset, o.dtype, &layer.o);
        copy(&mut image, base + ffn_norm, DType::F32, std::slice::from_ref(&layer.ffn_norm));
        copy(&mut image, base + gate_up.offset, gate_up.dtype, &layer.gate_up);
        copy(&mut image, base + down.offset, down.dtype, &layer.down);
    }
    copy(&mut image, final_norm, DType::F32, std::slice::from_ref(&parts.final_norm));
    copy(&mut image, embedding.offset, embedding.dtype, &parts.embedding);
    if let Some(parts) = &parts.head {
        copy(&mut image, head.offset, head.dtype, parts);
    }
    Ok((layout, image))
}

/// Writes parts one after the other at `offset`, as they are or widened.
fn copy(image: &mut [u8], offset: u64, dtype: DType, parts: &[Part<'_>]) {
    let mut at = offset as usize;
    for part in parts {
        if part.dtype == dtype {
            image[at..at + part.bytes.len()].copy_from_slice(part.bytes);
            at += part.bytes.len();
            continue;
        }
        let mut values = vec![0.0; part.columns as usize];
        let row_bytes = part.bytes.len() / part.rows as usize;
        for row in part.bytes.chunks_exact(row_bytes) {
            unpack(part.dtype, row, &mut values);
            for value in &values {
                image[at..at + 4].copy_from_slice(&value.to_le_bytes());
                at += 4;
            }
        }
    }
}
