//! Each kernel against a plain loop, built for this CPU and for one without AVX2.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use simpler_decoder::blocks::{Q4_1_BYTES, Q8_0_BYTES, f16_from_f32, unpack, weight_bytes};
use simpler_decoder::callables;
use simpler_kernel_abi::{
    DEVICE_MEMORY, DType, KERNEL_ENTRY, KERNEL_HEADER, KernelEntry, SimplerKernelArgs, SimplerTensor,
};

/// The compilation flags that make the two builds.
const TARGETS: [&str; 2] = ["-march=native", "-march=x86-64"];

/// Folder with the sources and headers of all kernels.
fn sources() -> &'static Path {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    FOLDER
        .get_or_init(|| {
            let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
            std::fs::create_dir_all(folder.path().join("simpler")).unwrap();
            std::fs::write(folder.path().join("simpler/kernel.h"), KERNEL_HEADER).unwrap();
            let [callable, _] = callables(None).unwrap();
            for file in callable.headers.iter().chain(callable.kernels.iter().map(|kernel| &kernel.file)) {
                std::fs::write(folder.path().join(file.name.as_ref()), file.text.as_bytes()).unwrap();
            }
            folder
        })
        .path()
}

struct Kernel {
    entry: KernelEntry,
    target: &'static str,
    _library: Library,
}

/// A kernel in both builds.
fn kernels(name: &str) -> Vec<Kernel> {
    TARGETS
        .into_iter()
        .map(|target| {
            let object = compile(name, target);
            // SAFETY: the object is the kernel just compiled; its constructors are the C runtime's own.
            let library = unsafe { Library::open(Some(&object), RTLD_NOW | RTLD_LOCAL) }.unwrap();
            // SAFETY: the header gives the symbol this type.
            let entry = *unsafe { library.get::<KernelEntry>(KERNEL_ENTRY) }.unwrap();
            Kernel { entry, target, _library: library }
        })
        .collect()
}

fn compile(name: &str, target: &str) -> PathBuf {
    let object = sources().join(format!("{name}{target}.so"));
    let output = Command::new("gcc")
        .args(["-std=gnu11", "-O3", target, "-fno-math-errno", "-fPIC", "-shared", "-fvisibility=hidden"])
        .args(["-Wall", "-Wextra", "-Werror", "-Wno-psabi", "-Wl,-z,defs", "-I.", "-o"])
        .arg(&object)
        .args([&format!("{name}.c"), "-lm"])
        .current_dir(sources())
        .output()
        .unwrap();
    assert!(output.status.success(), "{name} {target}: {}", String::from_utf8_lossy(&output.stderr));
    object
}

impl Kernel {
    fn call(&self, tensors: &[&SimplerTensor], scalars: &[u64]) {
        let pointers: Vec<*const SimplerTensor> =
            tensors.iter().map(|tensor| std::ptr::from_ref(*tensor)).collect();
        let args = SimplerKernelArgs {
            tensors: pointers.as_ptr(),
            scalars: scalars.as_ptr(),
            tensor_count: tensors.len() as u32,
            scalar_count: scalars.len() as u32,
            ..SimplerKernelArgs::NONE
        };
        // SAFETY: the tests give each kernel the tensors that its source asks for, over live memory.
        unsafe { (self.entry)(&raw const args) };
    }
}

fn tensor<T>(data: &[T], dtype: DType, rows: u32, columns: u32) -> SimplerTensor {
    let bytes = size_of_val(data) as u64;
    let mut tensor = SimplerTensor::whole(data.as_ptr() as u64, bytes, dtype, DEVICE_MEMORY);
    tensor.ndims = 2;
    tensor.shapes[0] = rows;
    tensor.shapes[1] = columns;
    tensor
}

/// As `tensor`, for memory that the kernel writes.
fn output<T>(data: &mut [T], dtype: DType, rows: u32, columns: u32) -> SimplerTensor {
    let addr = data.as_mut_ptr() as u64;
    SimplerTensor { addr, ..tensor(data, dtype, rows, columns) }
}

/// Xorshift: tests need values, not randomness.
struct Values(u64);

impl Values {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn float(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u32 << 23) as f32 - 1.0
    }

    fn floats(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.float()).collect()
    }

    /// Weights of any bit pattern that a block can have, with small finite scales (subnormal halves among them).
    fn weights(&mut self, dtype: DType, rows: u32, columns: u32) -> Vec<u8> {
        let bytes = weight_bytes(dtype, u64::from(rows) * u64::from(columns)).unwrap() as usize;
        let mut weights: Vec<u8> = (0..bytes).map(|_| self.next() as u8).collect();
        match dtype {
            DType::F32 => {
                for value in weights.chunks_exact_mut(4) {
                    value.copy_from_slice(&self.float().to_le_bytes());
                }
            }
            _ => {
                let (block, halves) = if dtype == DType::Q4_1 { (Q4_1_BYTES, 2) } else { (Q8_0_BYTES, 1) };
                for (index, block) in weights.chunks_exact_mut(block).enumerate() {
                    for half in 0..halves {
                        let scale = if index % 7 == 3 { 1e-6 } else { 0.1 };
                        let bits = f16_from_f32(self.float() * scale);
                        block[2 * half..2 * half + 2].copy_from_slice(&bits.to_le_bytes());
                    }
                }
            }
        }
        weights
    }
}

fn close(kernel: &Kernel, what: &str, actual: &[f32], expected: &[f32], tolerance: f32) {
    assert_eq!(actual.len(), expected.len());
    let largest = expected.iter().fold(1e-6, |largest: f32, value| largest.max(value.abs()));
    for (index, (actual, expected)) in actual.iter().zip(expected).enumerate() {
        assert!(
            (actual - expected).abs() <= tolerance * largest,
            "{what} {}: element {index} is {actual}, not {expected}",
            kernel.target
        );
    }
}

/// rows x columns weights times x [columns, tokens], as [rows, tokens].
fn product(dtype: DType, weights: &[u8], x: &[f32], rows: usize, columns: usize, tokens: usize) -> Vec<f32> {
    let row_bytes = weights.len() / rows;
    let mut row = vec![0.0; columns];
    let mut out = Vec::new();
    for bytes in weights.chunks_exact(row_bytes) {
        unpack(dtype, bytes, &mut row);
        for token in 0..tokens {
            out.push((0..columns).map(|i| row[i] * x[i * tokens + token]).sum());
        }
    }
    out
}

/// Odd numbers of rows and blocks, and every remainder of the token tile.
const SHAPES: [(u32, u32); 5] = [(1, 32), (7, 96), (5, 64), (33, 576), (3, 1536)];

#[test]
fn matmul_multiplies_and_adds() {
    let mut values = Values(1);
    for kernel in kernels("matmul") {
        for dtype in [DType::Q4_1, DType::Q8_0, DType::F32] {
            for (rows, columns) in SHAPES {
                let weights = values.weights(dtype, rows, columns);
                for tokens in 1..=9 {
                    let x = values.floats((columns * tokens) as usize);
                    let before = values.floats((rows * tokens) as usize);
                    let expected =
                        product(dtype, &weights, &x, rows as usize, columns as usize, tokens as usize);
                    for add in [0, 1] {
                        let mut out = before.clone();
                        let tensors = [
                            &tensor(&weights, dtype, rows, columns),
                            &tensor(&x, DType::F32, columns, tokens),
                            &output(&mut out, DType::F32, rows, tokens),
                        ];
                        kernel.call(&tensors, &[add]);
                        let expected: Vec<f32> =
                            expected.iter().zip(&before).map(|(e, b)| e + b * add as f32).collect();
                        let what = format!("matmul {dtype:?} {rows}x{columns}x{tokens}");
                        close(&kernel, &what, &out, &expected, 2e-5);
                    }
                }
            }
        }
    }
}

#[test]
fn matmul_takes_columns_without_whole_vectors_in_f32() {
    let mut values = Values(2);
    for kernel in kernels("matmul") {
        let weights = values.weights(DType::F32, 3, 13);
        let x = values.floats(13 * 5);
        let mut out = vec![0.0; 15];
        let tensors = [
            &tensor(&weights, DType::F32, 3, 13),
            &tensor(&x, DType::F32, 13, 5),
            &output(&mut out, DType::F32, 3, 5),
        ];
        kernel.call(&tensors, &[0]);
        close(&kernel, "matmul F32 3x13x5", &out, &product(DType::F32, &weights, &x, 3, 13, 5), 2e-5);
    }
}

#[test]
fn gate_up_gates() {
    let mut values = Values(3);
    for kernel in kernels("gate_up") {
        for dtype in [DType::Q4_1, DType::Q8_0, DType::F32] {
            for tokens in 1..=9 {
                let (rows, columns) = (11, 160);
                let gate = values.weights(dtype, rows, columns);
                let up = values.weights(dtype, rows, columns);
                let x = values.floats((columns * tokens) as usize);
                let mut out = vec![0.0; (rows * tokens) as usize];
                let tensors = [
                    &tensor(&gate, dtype, rows, columns),
                    &tensor(&up, dtype, rows, columns),
                    &tensor(&x, DType::F32, columns, tokens),
                    &output(&mut out, DType::F32, rows, tokens),
                ];
                kernel.call(&tensors, &[]);
                let product = |weights: &[u8]| {
                    product(dtype, weights, &x, rows as usize, columns as usize, tokens as usize)
                };
                let expected: Vec<f32> = product(&gate)
                    .iter()
                    .zip(product(&up))
                    .map(|(g, u)| g / (1.0 + (-g).exp()) * u)
                    .collect();
                close(&kernel, &format!("gate_up {dtype:?} x{tokens}"), &out, &expected, 2e-5);
            }
        }
    }
}

#[test]
fn gate_up_survives_extreme_gates() {
    // silu(x) is x for large x and 0 for very negative x; neither may become NaN.
    for kernel in kernels("gate_up") {
        let gate: Vec<f32> = [1e4f32, -1e4, 100.0, -100.0].to_vec();
        let up = vec![1.0f32; 4];
        let mut out = vec![f32::NAN; 4];
        let tensors = [
            &tensor(&gate, DType::F32, 4, 1),
            &tensor(&up, DType::F32, 4, 1),
            &tensor(&[1.0f32], DType::F32, 1, 1),
            &output(&mut out, DType::F32, 4, 1),
        ];
        kernel.call(&tensors, &[]);
        close(&kernel, "silu", &out, &[1e4, 0.0, 100.0, 0.0], 1e-6);
    }
}

#[test]
fn rmsnorm_normalises_columns() {
    let mut values = Values(4);
    let eps: f32 = 1e-5;
    for kernel in kernels("rmsnorm") {
        for (features, x_tokens, first, out_tokens) in
            [(576, 1, 0, 1), (13, 1, 0, 1), (64, 9, 0, 9), (64, 70, 0, 70), (64, 9, 8, 1), (64, 5, 2, 3)]
        {
            let x = values.floats(features * x_tokens);
            let weight = values.floats(features);
            let mut out = vec![0.0; features * out_tokens];
            let tensors = [
                &tensor(&x, DType::F32, features as u32, x_tokens as u32),
                &tensor(&weight, DType::F32, features as u32, 1),
                &output(&mut out, DType::F32, features as u32, out_tokens as u32),
            ];
            kernel.call(&tensors, &[first as u64, eps.to_bits().into()]);
            let mut expected = vec![0.0; out.len()];
            for token in 0..out_tokens {
                let column: Vec<f32> = (0..features).map(|i| x[i * x_tokens + first + token]).collect();
                let mean = column.iter().map(|value| value * value).sum::<f32>() / features as f32;
                for i in 0..features {
                    expected[i * out_tokens + token] = column[i] / (mean + eps).sqrt() * weight[i];
                }
            }
            close(&kernel, &format!("rmsnorm {features}x{x_tokens}"), &out, &expected, 1e-5);
        }
    }
}

#[test]
fn embed_unpacks_rows_and_knows_no_strangers() {
    let mut values = Values(5);
    for kernel in kernels("embed") {
        for dtype in [DType::Q4_1, DType::Q8_0, DType::F32] {
            let (vocabulary, features) = (10, 96);
            let weights = values.weights(dtype, vocabulary, features);
            let ids = [0, 9, 3, -1, 10, i32::MAX];
            let mut out = vec![f32::NAN; features as usize * ids.len()];
            let count = ids.len() as u32;
            let tensors = [
                &tensor(&ids, DType::I32, count, 1),
                &tensor(&weights, dtype, vocabulary, features),
                &output(&mut out, DType::F32, features, count),
            ];
            kernel.call(&tensors, &[count.into()]);
            let row_bytes = weights.len() / vocabulary as usize;
            let mut row = vec![0.0; features as usize];
            let mut expected = vec![0.0; out.len()];
            for (token, id) in ids.iter().enumerate().filter(|(_, id)| (0..10).contains(*id)) {
                unpack(dtype, &weights[*id as usize * row_bytes..][..row_bytes], &mut row);
                for (i, value) in row.iter().enumerate() {
                    expected[i * ids.len() + token] = *value;
                }
            }
            close(&kernel, &format!("embed {dtype:?}"), &out, &expected, 1e-6);
        }
    }
}

#[test]
fn argmax_finds_the_first_largest() {
    let mut values = Values(6);
    for kernel in kernels("argmax") {
        for count in [1, 7, 8, 9, 1000] {
            for round in 0..20 {
                let mut numbers = values.floats(count);
                if round % 2 == 0 {
                    let (a, b) = (values.next() as usize % count, values.next() as usize % count);
                    numbers[a] = 2.0;
                    numbers[b] = 2.0;
                }
                let expected =
                    (0..count).rev().max_by(|a, b| numbers[*a].total_cmp(&numbers[*b])).unwrap() as i32;
                let mut out = [-1];
                let tensors =
                    [&tensor(&numbers, DType::F32, count as u32, 1), &output(&mut out, DType::I32, 1, 1)];
                kernel.call(&tensors, &[]);
                assert_eq!(out[0], expected, "{} of {count}", kernel.target);
            }
        }
    }
}

#[test]
fn attention_attends() {
    let mut values = Values(7);
    for kernel in kernels("attention") {
        // A head of 64 has a copy of its own; 20 is no whole number of vectors; 300 positions are three spans.
        for (head, group, position, tokens) in
            [(64, 3, 0, 1), (64, 3, 299, 1), (64, 1, 120, 9), (16, 2, 5, 4), (20, 2, 130, 3)]
        {
            check_attention(&kernel, &mut values, head, group, position, tokens);
        }
    }
}

fn check_attention(
    kernel: &Kernel,
    values: &mut Values,
    head: usize,
    group: usize,
    position: usize,
    tokens: usize,
) {
    let end = position + tokens;
    let q = values.floats(group * head * tokens);
    let k = values.floats(head * tokens);
    let v = values.floats(head * tokens);
    let mut keys = values.floats(end * head);
    let mut cached_values = values.floats(end * head);
    let angles = values.floats(tokens * head / 2);
    let rope: Vec<f32> = angles.iter().flat_map(|angle| [(angle * 3.0).cos(), (angle * 3.0).sin()]).collect();
    let (keys_before, values_before) = (keys.clone(), cached_values.clone());
    let mut out = vec![0.0; q.len()];
    let (h, g, t, e) = (head as u32, group as u32, tokens as u32, end as u32);
    let tensors = [
        &tensor(&q, DType::F32, g * h, t),
        &tensor(&k, DType::F32, h, t),
        &tensor(&v, DType::F32, h, t),
        &output(&mut keys, DType::F32, e, h),
        &output(&mut cached_values, DType::F32, e, h),
        &tensor(&rope, DType::F32, t, h),
        &output(&mut out, DType::F32, g * h, t),
    ];
    kernel.call(&tensors, &[position as u64]);

    let column =
        |from: &[f32], token: usize| -> Vec<f32> { (0..head).map(|i| from[i * tokens + token]).collect() };
    let rotate = |values: &[f32], token: usize| -> Vec<f32> {
        let rope = &rope[token * head..][..head];
        values
            .chunks_exact(2)
            .zip(rope.chunks_exact(2))
            .flat_map(|(x, r)| [x[0] * r[0] - x[1] * r[1], x[0] * r[1] + x[1] * r[0]])
            .collect()
    };
    let what = format!("attention {head}x{group} at {position}+{tokens}");
    let (mut all_keys, mut all_values) = (keys_before, values_before);
    for token in 0..tokens {
        all_keys[(position + token) * head..][..head].copy_from_slice(&rotate(&column(&k, token), token));
        all_values[(position + token) * head..][..head].copy_from_slice(&column(&v, token));
    }
    close(kernel, &what, &keys, &all_keys, 1e-6);
    close(kernel, &what, &cached_values, &all_values, 0.0);
    let mut expected = vec![0.0; out.len()];
    for token in 0..tokens {
        for member in 0..group {
            let query = rotate(&column(&q[member * head * tokens..], token), token);
            let scores: Vec<f32> = (0..=position + token)
                .map(|at| {
                    let key = &all_keys[at * head..][..head];
                    query.iter().zip(key).map(|(q, k)| q * k).sum::<f32>() / (head as f32).sqrt()
                })
                .collect();
            let largest = scores.iter().copied().fold(f32::MIN, f32::max);
            let shares: Vec<f32> = scores.iter().map(|score| (score - largest).exp()).collect();
            let sum: f32 = shares.iter().sum();
            for i in 0..head {
                let total: f32 =
                    shares.iter().enumerate().map(|(at, share)| share * all_values[at * head + i]).sum();
                expected[(member * head + i) * tokens + token] = total / sum;
            }
        }
    }
    close(kernel, &what, &out, &expected, 1e-5);
}
