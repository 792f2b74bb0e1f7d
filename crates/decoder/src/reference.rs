//! The same decoder once more, as plainly as it can be written: f32 loops on the host over unpacked weights.
//!
//! It shares nothing with the kernels but the weights, and is what their results are compared with.

use crate::blocks::{unpack, weight_bytes};
use crate::model::{Matrix, Model};

/// A sequence being decoded on the host.
#[derive(Debug)]
pub struct Reference<'m> {
    model: &'m Model,
    /// Per layer, per position, all kv heads.
    keys: Vec<Vec<Vec<f32>>>,
    values: Vec<Vec<Vec<f32>>>,
}

impl<'m> Reference<'m> {
    /// An empty sequence.
    pub fn new(model: &'m Model) -> Self {
        let empty = vec![Vec::new(); model.config.layers as usize];
        Self { model, keys: empty.clone(), values: empty }
    }

    /// Appends tokens to the sequence and returns the logits that follow the last one.
    ///
    /// # Panics
    /// If `tokens` is empty or holds an id outside the vocabulary.
    pub fn step(&mut self, tokens: &[u32]) -> Vec<f32> {
        let model = self.model;
        let layout = &model.layout;
        let mut xs: Vec<Vec<f32>> = tokens.iter().map(|token| self.embedding(*token)).collect();
        for layer in 0..model.config.layers as usize {
            let base = layout.layers_offset + layer as u64 * layout.layer_stride;
            let normed: Vec<_> = xs.iter().map(|x| self.norm(x, base + layout.attention_norm)).collect();
            let qkv = self.multiply(base + layout.qkv.offset, &layout.qkv, &normed);
            let attended: Vec<_> = qkv.iter().map(|qkv| self.attend(layer, qkv)).collect();
            add(&mut xs, &self.multiply(base + layout.o.offset, &layout.o, &attended));
            let normed: Vec<_> = xs.iter().map(|x| self.norm(x, base + layout.ffn_norm)).collect();
            let gate_up = self.multiply(base + layout.gate_up.offset, &layout.gate_up, &normed);
            let gated: Vec<_> = gate_up
                .iter()
                .map(|both| {
                    let (gates, ups) = both.split_at(model.config.ffn as usize);
                    gates.iter().zip(ups).map(|(gate, up)| gate / (1.0 + (-gate).exp()) * up).collect()
                })
                .collect();
            add(&mut xs, &self.multiply(base + layout.down.offset, &layout.down, &gated));
        }
        let last = xs.pop().expect("at least one token");
        let normed = self.norm(&last, layout.final_norm);
        self.multiply(layout.head.offset, &layout.head, &[normed]).pop().expect("one column in, one out")
    }

    fn embedding(&self, token: u32) -> Vec<f32> {
        let matrix = &self.model.layout.embedding;
        let bytes = self.model.matrix_bytes(matrix.offset, matrix);
        let row_bytes = bytes.len() / matrix.rows as usize;
        let mut x = vec![0.0; matrix.columns as usize];
        unpack(matrix.dtype, &bytes[token as usize * row_bytes..][..row_bytes], &mut x);
        x
    }

    fn norm(&self, x: &[f32], weight_offset: u64) -> Vec<f32> {
        let weights = self.model.image[weight_offset as usize..].chunks_exact(4);
        let mean = x.iter().map(|value| value * value).sum::<f32>() / x.len() as f32;
        let scale = 1.0 / (mean + self.model.config.rms_eps).sqrt();
        let weight = |raw: &[u8]| f32::from_le_bytes([raw[0], raw[1], raw[2], raw[3]]);
        x.iter().zip(weights).map(|(value, raw)| value * scale * weight(raw)).collect()
    }

    fn multiply(&self, offset: u64, matrix: &Matrix, xs: &[Vec<f32>]) -> Vec<Vec<f32>> {
        let row_bytes = weight_bytes(matrix.dtype, matrix.columns.into()).expect("whole blocks") as usize;
        let mut row = vec![0.0; matrix.columns as usize];
        let mut out = vec![Vec::with_capacity(matrix.rows as usize); xs.len()];
        for bytes in self.model.matrix_bytes(offset, matrix).chunks_exact(row_bytes) {
            unpack(matrix.dtype, bytes, &mut row);
            for (x, out) in xs.iter().zip(&mut out) {
                out.push(row.iter().zip(x).map(|(weight, value)| weight * value).sum());
            }
        }
        out
    }

    /// Appends one token's key and value to the layer and attends over all.
    fn attend(&mut self, layer: usize, qkv: &[f32]) -> Vec<f32> {
        let config = &self.model.config;
        let head_dim = config.head_dim as usize;
        let (q, kv) = qkv.split_at(config.q_dim() as usize);
        let (k, v) = kv.split_at(config.kv_dim() as usize);
        let position = self.keys[layer].len();
        let key = k.chunks_exact(head_dim).flat_map(|head| self.rotate(head, position)).collect();
        self.keys[layer].push(key);
        self.values[layer].push(v.to_vec());
        let group = (config.heads / config.kv_heads) as usize;
        let mut out = Vec::with_capacity(q.len());
        for (head, query) in q.chunks_exact(head_dim).enumerate() {
            let query = self.rotate(query, position);
            let within = head / group * head_dim..(head / group + 1) * head_dim;
            let scores: Vec<f32> = self.keys[layer]
                .iter()
                .map(|key| {
                    let dot: f32 = query.iter().zip(&key[within.clone()]).map(|(q, k)| q * k).sum();
                    dot / (head_dim as f32).sqrt()
                })
                .collect();
            let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let shares: Vec<f32> = scores.iter().map(|score| (score - largest).exp()).collect();
            let sum: f32 = shares.iter().sum();
            out.extend(within.clone().map(|index| {
                let weighted: f32 =
                    shares.iter().zip(&self.values[layer]).map(|(share, value)| share * value[index]).sum();
                weighted / sum
            }));
        }
        out
    }

    fn rotate(&self, head: &[f32], position: usize) -> Vec<f32> {
        let base = f64::from(self.model.config.rope_base);
        head.chunks_exact(2)
            .enumerate()
            .flat_map(|(pair, values)| {
                let angle = position as f64 * base.powf(-2.0 * pair as f64 / head.len() as f64);
                let (sin, cos) = (angle.sin() as f32, angle.cos() as f32);
                [values[0] * cos - values[1] * sin, values[0] * sin + values[1] * cos]
            })
            .collect()
    }
}

fn add(xs: &mut [Vec<f32>], ys: &[Vec<f32>]) {
    for (x, y) in xs.iter_mut().zip(ys) {
        for (value, more) in x.iter_mut().zip(y) {
            *value += more;
        }
    }
}
