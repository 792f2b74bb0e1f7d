//! Scenes: small callables with their inputs and their right results.
//!
//! A [`Scene`] has the sources of a callable, the tensors and scalars of one run, and what the run must leave in them,
//! computed here by a plain loop (the *golden*). The sources are those of `kernels/scenes/`. Tests run every scene on
//! every platform with every runtime; benchmarks time some of them.
//!
//! ```no_run
//! # use {simpler_kernel_compiler::Compiler, simpler_runtime::ChipRuntime};
//! # fn run(runtime: &ChipRuntime, compiler: &Compiler) -> Result<(), Box<dyn std::error::Error>> {
//! let mut scene = simpler_scenes::paged_attention(4, 64, 16, 50);
//! let image = simpler_runtime::CallableImage::load(&compiler.compile(&scene.source())?)?;
//! let callable = runtime.register(&image)?;
//! scene.reset();
//! // SAFETY: the arguments are the scene's own memory, which nobody touches meanwhile.
//! unsafe { runtime.run(callable, &scene.args()) }?;
//! scene.check()?;
//! # Ok(())
//! # }
//! ```

mod golden;
mod sources;

use std::ops::Range;

use simpler_kernel_abi::{ArgUse, DType, HOST_MEMORY, SimplerTensor};
use simpler_kernel_compiler::CallableSource;
use simpler_runtime::{ChipArg, RunArgs};

/// How far a result may be off, as a share of the largest of its tensor: the compiler may contract a product and a sum,
/// and vectorise a sum, where the plain loop does not.
const TOLERANCE: f32 = 1e-4;
/// Tensors that processes share begin on cache lines of their own.
const PLACE_ALIGNMENT: usize = 64;

/// One tensor of a scene, in host memory.
#[derive(Clone, Debug)]
struct Tensor {
    dims: Vec<u32>,
    arg_use: ArgUse,
    /// What it holds before a run.
    initial: Vec<f32>,
    /// What a run works on.
    values: Vec<f32>,
    /// What a run must leave there, where it leaves a result.
    golden: Option<Vec<f32>>,
}

/// A callable, its arguments, and their right results.
#[derive(Clone, Debug)]
pub struct Scene {
    name: &'static str,
    tensors: Vec<Tensor>,
    scalars: Vec<u64>,
}

impl Scene {
    /// The scene's name, which is its callable's.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The sources of its callable.
    pub fn source(&self) -> CallableSource {
        sources::callable(self.name)
    }

    /// Puts into the tensors what they hold before a run.
    pub fn reset(&mut self) {
        for tensor in &mut self.tensors {
            tensor.values.copy_from_slice(&tensor.initial);
        }
    }

    /// The arguments of a run. They name the scene's memory, which must not be touched until the run has returned.
    pub fn args(&mut self) -> RunArgs {
        let tensors = self.tensors.iter_mut().map(|tensor| {
            let bytes = size_of_val(&*tensor.values) as u64;
            let addr = tensor.values.as_mut_ptr().expose_provenance() as u64;
            let mut view = SimplerTensor::whole(addr, bytes, DType::F32, HOST_MEMORY);
            view.ndims = tensor.dims.len() as u32;
            view.shapes[..tensor.dims.len()].copy_from_slice(&tensor.dims);
            ChipArg { tensor: view, arg_use: tensor.arg_use }
        });
        RunArgs { tensors: tensors.collect(), scalars: self.scalars.clone(), ..RunArgs::default() }
    }

    /// Bytes of memory that [`Scene::place`] needs.
    pub fn bytes(&self) -> usize {
        self.places().last().map_or(0, |place| place.end)
    }

    /// As [`Scene::reset`] and [`Scene::args`], in memory of the caller's that begins at the address `base`, wherever
    /// the run finds it: what several processes share.
    ///
    /// # Panics
    /// Where `memory` is shorter than [`Scene::bytes`].
    pub fn place(&self, memory: &mut [u8], base: u64) -> RunArgs {
        let mut args = self.clone().args();
        for ((place, tensor), arg) in self.places().zip(&self.tensors).zip(&mut args.tensors) {
            arg.tensor.addr = base + place.start as u64;
            let bytes = tensor.initial.iter().flat_map(|value| value.to_ne_bytes());
            memory[place].iter_mut().zip(bytes).for_each(|(to, byte)| *to = byte);
        }
        args
    }

    /// Takes what a run has left in such memory, for [`Scene::check`].
    ///
    /// # Panics
    /// As for [`Scene::place`].
    pub fn take(&mut self, memory: &[u8]) {
        let places: Vec<_> = self.places().collect();
        for (place, tensor) in places.into_iter().zip(&mut self.tensors) {
            for (value, bytes) in tensor.values.iter_mut().zip(memory[place].as_chunks().0) {
                *value = f32::from_ne_bytes(*bytes);
            }
        }
    }

    /// Where each tensor is in such memory.
    fn places(&self) -> impl Iterator<Item = Range<usize>> {
        self.tensors.iter().scan(0_usize, |end, tensor| {
            let start = end.next_multiple_of(PLACE_ALIGNMENT);
            *end = start + size_of_val(&*tensor.initial);
            Some(start..*end)
        })
    }

    /// Compares what a run has left with what it must leave.
    ///
    /// # Errors
    /// The tensor and the first element that is wrong, with both values.
    pub fn check(&self) -> Result<(), String> {
        for (number, tensor) in self.tensors.iter().enumerate() {
            let Some(golden) = &tensor.golden else { continue };
            let largest = golden.iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
            for (place, (value, right)) in tensor.values.iter().zip(golden).enumerate() {
                // What is not a number is not close.
                let is_close = (value - right).abs() <= TOLERANCE * largest;
                if !is_close {
                    let name = self.name;
                    return Err(format!("{name}: tensor {number} is {value} at {place}, not {right}"));
                }
            }
        }
        Ok(())
    }

    fn new(name: &'static str, scalars: Vec<u64>) -> Self {
        Self { name, tensors: Vec::new(), scalars }
    }

    fn input(mut self, dims: &[u32], values: Vec<f32>) -> Self {
        self.push(dims, ArgUse::Input, values, None);
        self
    }

    /// A result that a run writes whole.
    fn output(mut self, dims: &[u32], golden: Vec<f32>) -> Self {
        let initial = vec![f32::NAN; golden.len()];
        self.push(dims, ArgUse::OutputExisting, initial, Some(golden));
        self
    }

    /// One that starts as zeros.
    fn accumulator(mut self, dims: &[u32], count: usize, golden: Option<Vec<f32>>) -> Self {
        self.push(dims, ArgUse::InOut, vec![0.0; count], golden);
        self
    }

    fn push(&mut self, dims: &[u32], arg_use: ArgUse, initial: Vec<f32>, golden: Option<Vec<f32>>) {
        let values = initial.clone();
        self.tensors.push(Tensor { dims: dims.to_vec(), arg_use, initial, values, golden });
    }
}

/// Numbers between −1 and 1 that look random and are the same everywhere; another seed, other numbers.
fn numbers(seed: u32, count: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(1);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

/// c = a + b of so many numbers, in tiles, one AIV task each.
pub fn vector_add(count: u32, tiles: u32) -> Scene {
    let (a, b) = (numbers(1, count as usize), numbers(2, count as usize));
    let c = a.iter().zip(&b).map(|(a, b)| a + b).collect();
    let dims = [count];
    Scene::new("vector_add", vec![tiles.into()]).input(&dims, a).input(&dims, b).output(&dims, c)
}

/// c = a b of square matrices in square tiles of side `tile`, which divides `side`: AIC tasks over strided views, each of
/// which adds to its tile of c.
pub fn matmul_tiles(side: u32, tile: u32) -> Scene {
    let count = (side * side) as usize;
    let (a, b) = (numbers(3, count), numbers(4, count));
    let c = golden::matmul(&a, &b, side as usize, side as usize, side as usize);
    let dims = [side, side];
    let scene = Scene::new("matmul_tiles", vec![tile.into()]);
    scene.input(&dims, a).input(&dims, b).accumulator(&dims, count, Some(c))
}

/// The softmax of each row, one AIV task of so many blocks.
pub fn softmax(rows: u32, columns: u32, blocks: u32) -> Scene {
    let x: Vec<_> = numbers(5, (rows * columns) as usize).iter().map(|x| 10.0 * x).collect();
    let y = x.chunks(columns as usize).flat_map(golden::softmax).collect();
    let dims = [rows, columns];
    Scene::new("softmax", vec![blocks.into()]).input(&dims, x).output(&dims, y)
}

/// Attention of one token over so many tokens in pages that lie in a shuffled order: AIC and AIV tasks, allocated
/// tensors, one chain of merges a head.
pub fn paged_attention(heads: u32, dim: u32, page: u32, tokens: u32) -> Scene {
    let pages = tokens.div_ceil(page);
    // Neighbours in the sequence are none in memory, and one page is nobody's.
    let table: Vec<u64> = (0..pages).rev().map(u64::from).collect();
    let cache = ((pages + 1) * heads * page * dim) as usize;
    let (keys, values) = (numbers(6, cache), numbers(7, cache));
    let q = numbers(8, (heads * dim) as usize);
    let place = |head: usize, token: usize| {
        let (page, heads, dim) = (page as usize, heads as usize, dim as usize);
        ((table[token / page] as usize * heads + head) * page + token % page) * dim
    };
    let out = golden::attention(&q, &keys, &values, dim as usize, tokens as usize, place);
    let scalars = [u64::from(page), u64::from(tokens)].into_iter().chain(table.iter().copied()).collect();
    let of_cache = [pages + 1, heads, page, dim];
    Scene::new("paged_attention", scalars)
        .input(&[heads, dim], q)
        .input(&of_cache, keys)
        .input(&of_cache, values)
        .output(&[heads, dim], out)
}

/// y = relu(a b), a MIX task of so many blocks whose AIVs follow their AIC row by row.
pub fn fused_matmul(rows: u32, inner: u32, columns: u32, blocks: u32) -> Scene {
    let (a, b) = (numbers(9, (rows * inner) as usize), numbers(10, (inner * columns) as usize));
    let product = golden::matmul(&a, &b, rows as usize, inner as usize, columns as usize);
    let y = product.iter().map(|value| value.max(0.0)).collect();
    Scene::new("fused_matmul", vec![blocks.into()])
        .input(&[rows, inner], a)
        .input(&[inner, columns], b)
        .output(&[rows, columns], y)
        .accumulator(&[blocks], blocks as usize, None)
}

/// One of each, of a size that a test can run often.
pub fn all() -> Vec<Scene> {
    vec![
        vector_add(4_096, 4),
        matmul_tiles(64, 16),
        softmax(24, 100, 7),
        paged_attention(4, 64, 16, 50),
        fused_matmul(40, 24, 32, 5),
    ]
}
