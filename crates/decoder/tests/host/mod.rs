//! A chip without the chip: a session's buffers in this process, its tasks run on this thread.
#![allow(dead_code, reason = "each test file uses a part")]

use std::path::Path;

use simpler_decoder::{DeviceBuffers, Model, Session, SessionConfig, callables};
use simpler_kernel_abi::{DEVICE_MEMORY, SimplerTensor};
use simpler_kernel_compiler::Compiler;
use simpler_platform::Profile;
use simpler_runtime::recording::{HostCallable, Recording};
use simpler_runtime::{Limits, RingLimits, RunArgs};

/// A chip's memory and callables, without the chip.
pub(crate) struct Host<'m> {
    pub(crate) session: Session,
    prefill: HostCallable,
    decode: HostCallable,
    buffers: DeviceBuffers,
    pub(crate) words: Vec<u32>,
    cache: Vec<f32>,
    rope: Vec<f32>,
    pub(crate) logits: Vec<f32>,
    model: &'m Model,
    pub(crate) limits: Limits,
}

/// Enough for the short runs here; a recording clears all of its memory.
const SMALL: Limits =
    Limits::each(RingLimits { window: 2048, heap_bytes: 1 << 20, argument_bytes: 2 << 20, edges: 16384 });

impl<'m> Host<'m> {
    pub(crate) fn new(model: &'m Model, config: SessionConfig) -> Self {
        let session = Session::new(model, config).unwrap();
        let compiler = Compiler::new(Path::new(env!("CARGO_TARGET_TMPDIR")).join("kernels")).unwrap();
        let [prefill, decode] = callables(None).unwrap().map(|source| {
            let objects = compiler.compile(&source).unwrap();
            // SAFETY: the sources are this crate's own.
            unsafe { HostCallable::open(&objects) }.unwrap()
        });
        // NaN: whatever is read before it is written shows.
        let cache = vec![f32::NAN; session.cache_bytes() as usize / 4];
        let logits = vec![f32::NAN; session.logits_bytes() as usize / 4];
        let words = vec![0; session.token_words()];
        let rope = session.rope_table();
        assert_eq!(rope.len() as u64 * 4, session.rope_bytes());
        let buffers = DeviceBuffers { weights: 0, cache: 0, rope: 0, logits: 0 };
        Self { session, prefill, decode, buffers, words, cache, rope, logits, model, limits: SMALL }
    }

    /// Takes all addresses anew: the vectors may have been borrowed since.
    pub(crate) fn buffers(&mut self) -> DeviceBuffers {
        self.buffers = DeviceBuffers {
            weights: self.model.image.as_ptr() as u64,
            cache: self.cache.as_mut_ptr() as u64,
            rope: self.rope.as_ptr() as u64,
            logits: self.logits.as_mut_ptr() as u64,
        };
        self.buffers
    }

    pub(crate) fn record(&mut self, decode: bool, args: &RunArgs) -> Recording {
        let tensors: Vec<SimplerTensor> = args
            .tensors
            .iter()
            .map(|arg| SimplerTensor { address_space: DEVICE_MEMORY, ..arg.tensor })
            .collect();
        let callable = if decode { &self.decode } else { &self.prefill };
        // SAFETY: the arguments are the session's, over memory that is as large as it asks.
        unsafe { callable.record(&Profile::a2a3sim(), self.limits, &tensors, &args.scalars) }.unwrap()
    }

    /// Runs stage by stage; within a stage from the last task to the first, which dependencies must allow.
    fn run(&mut self, decode: bool, args: &RunArgs) -> Recording {
        let recording = self.record(decode, args);
        let callable = if decode { &self.decode } else { &self.prefill };
        for stage in &recording.stages {
            for task in stage.iter().rev() {
                // SAFETY: the stages before have returned, and this thread is the only one.
                unsafe { callable.call(&recording, *task) };
            }
        }
        recording
    }

    pub(crate) fn prefill(&mut self, tokens: &[u32]) -> Recording {
        self.words[..tokens.len()].copy_from_slice(tokens);
        let (buffers, words) = (self.buffers(), self.words.as_mut_ptr() as u64);
        let args = self.session.prefill_args(&buffers, words, tokens.len() as u32).unwrap();
        self.run(false, &args)
    }

    pub(crate) fn decode(&mut self, position: u32) -> Recording {
        let (buffers, words) = (self.buffers(), self.words.as_mut_ptr() as u64);
        let args = self.session.decode_args(&buffers, words, position).unwrap();
        self.run(true, &args)
    }
}

pub(crate) fn difference(actual: &[f32], expected: &[f32]) -> f32 {
    let largest = expected.iter().fold(0.0, |largest: f32, value| largest.max(value.abs()));
    let apart = actual.iter().zip(expected).map(|(a, e)| (a - e).abs());
    // A NaN compares as too large.
    apart.fold(0.0, |most: f32, apart| if apart <= most { most } else { apart }) / largest
}

pub(crate) fn argmax(logits: &[f32]) -> u32 {
    logits.iter().enumerate().rev().max_by(|(_, a), (_, b)| a.total_cmp(b)).unwrap().0 as u32
}
