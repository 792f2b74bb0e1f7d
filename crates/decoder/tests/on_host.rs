//! The orchestrations and kernels together, task by task on this thread, against the host reference.

use std::path::Path;

use simpler_decoder::reference::Reference;
use simpler_decoder::{DeviceBuffers, Model, Session, SessionConfig, callables};
use simpler_kernel_abi::{DEVICE_MEMORY, SimplerTensor};
use simpler_kernel_compiler::Compiler;
use simpler_runtime::recording::{HostCallable, Recording};
use simpler_runtime::{Limits, RunArgs};
use simpler_sim_npu::Profile;

/// The bar: largest difference over largest logit.
const TOLERANCE: f32 = 1e-3;

/// A chip's memory and callables, without the chip.
struct Host<'m> {
    session: Session,
    prefill: HostCallable,
    decode: HostCallable,
    buffers: DeviceBuffers,
    words: Vec<u32>,
    cache: Vec<f32>,
    rope: Vec<f32>,
    logits: Vec<f32>,
    model: &'m Model,
    limits: Limits,
}

/// Enough for the short runs here; a recording clears all of its memory.
const SMALL: Limits = Limits { window: 2048, heap_bytes: 1 << 20, argument_bytes: 2 << 20, edges: 16384 };

impl<'m> Host<'m> {
    fn new(model: &'m Model, config: SessionConfig) -> Self {
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
    fn buffers(&mut self) -> DeviceBuffers {
        self.buffers = DeviceBuffers {
            weights: self.model.image.as_ptr() as u64,
            cache: self.cache.as_mut_ptr() as u64,
            rope: self.rope.as_ptr() as u64,
            logits: self.logits.as_mut_ptr() as u64,
        };
        self.buffers
    }

    fn record(&mut self, decode: bool, args: &RunArgs) -> Recording {
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

    fn prefill(&mut self, tokens: &[u32]) -> Recording {
        self.words[..tokens.len()].copy_from_slice(tokens);
        let (buffers, words) = (self.buffers(), self.words.as_mut_ptr() as u64);
        let args = self.session.prefill_args(&buffers, words, tokens.len() as u32).unwrap();
        self.run(false, &args)
    }

    fn decode(&mut self, position: u32) -> Recording {
        let (buffers, words) = (self.buffers(), self.words.as_mut_ptr() as u64);
        let args = self.session.decode_args(&buffers, words, position).unwrap();
        self.run(true, &args)
    }
}

fn difference(actual: &[f32], expected: &[f32]) -> f32 {
    let largest = expected.iter().fold(0.0, |largest: f32, value| largest.max(value.abs()));
    let apart = actual.iter().zip(expected).map(|(a, e)| (a - e).abs());
    // A NaN compares as too large.
    apart.fold(0.0, |most: f32, apart| if apart <= most { most } else { apart }) / largest
}

fn argmax(logits: &[f32]) -> u32 {
    logits.iter().enumerate().rev().max_by(|(_, a), (_, b)| a.total_cmp(b)).unwrap().0 as u32
}

#[test]
fn tiny_decodes_like_the_reference_for_32_steps() {
    let model = Model::tiny().unwrap();
    let prompt =
        model.tokenizer.encode("What can be said of the river and the long state of it?", false).unwrap();
    for (splits, head_splits) in [(2, 4), (3, 5)] {
        let mut host = Host::new(&model, SessionConfig { capacity: 128, splits, head_splits });
        let mut reference = Reference::new(&model);
        host.prefill(&prompt);
        let mut expected = reference.step(&prompt);
        let mut worst = difference(&host.logits, &expected);
        for position in prompt.len()..prompt.len() + 32 {
            let token = host.words[position];
            assert_eq!(token, argmax(&host.logits), "position {position}");
            host.decode(position as u32);
            expected = reference.step(&[token]);
            worst = worst.max(difference(&host.logits, &expected));
        }
        eprintln!("splits {splits}: logits differ by {worst} of the largest");
        assert!(worst <= TOLERANCE, "{worst}");
        let text = String::from_utf8(model.tokenizer.decode(&host.words[prompt.len()..][..33])).unwrap();
        eprintln!("{text}");
    }
}

#[test]
fn a_prompt_of_several_passes_gives_what_one_token_at_a_time_gives() {
    let model = Model::tiny().unwrap();
    // Four passes in two workspaces, the last shorter than the others.
    let prompt: Vec<u32> = (0..230).map(|i| i * 131 % 512).collect();
    let config = SessionConfig { capacity: 256, splits: 2, head_splits: 2 };
    let mut at_once = Host::new(&model, config);
    let recording = at_once.prefill(&prompt);
    let passes = recording.tasks.iter().filter(|task| task.kernel == 0).count();
    assert_eq!(passes, 4);
    let expected = Reference::new(&model).step(&prompt);
    let apart = difference(&at_once.logits, &expected);
    assert!(apart <= TOLERANCE, "{apart}");

    let mut one_by_one = Host::new(&model, config);
    one_by_one.prefill(&prompt[..1]);
    for position in 1..prompt.len() {
        one_by_one.words[position] = prompt[position];
        one_by_one.decode(position as u32);
    }
    let apart = difference(&one_by_one.logits, &at_once.logits);
    assert!(apart <= TOLERANCE, "{apart}");
}

#[test]
fn tiny_text_is_printable_and_does_not_run_in_circles() {
    let model = Model::tiny().unwrap();
    let mut host = Host::new(&model, SessionConfig { capacity: 320, splits: 1, head_splits: 1 });
    let prompt = model.tokenizer.encode("Once upon a time", false).unwrap();
    host.prefill(&prompt);
    for position in prompt.len()..prompt.len() + 255 {
        host.decode(position as u32);
    }
    let generated = &host.words[prompt.len()..][..256];
    let text = String::from_utf8(model.tokenizer.decode(generated)).unwrap();
    eprintln!("{text}");
    assert!(text.chars().all(|c| c == ' ' || c.is_ascii_lowercase()), "{text}");
    let different: std::collections::HashSet<_> = generated.iter().collect();
    assert!(different.len() >= 24, "{} different words: {text}", different.len());
    for period in 1..32 {
        let (tail, before) = (&generated[192..], &generated[192 - period..256 - period]);
        assert_ne!(tail, before, "period {period}: {text}");
    }
}

#[test]
fn a_decode_step_is_a_few_hundred_tasks_with_a_handful_of_dependencies_each() {
    let model = Model::tiny().unwrap();
    let config = SessionConfig { capacity: 64, splits: 2, head_splits: 4 };
    let mut host = Host::new(&model, config);
    host.prefill(&[1, 2, 3]);
    let recording = host.decode(3);
    assert!((150..500).contains(&recording.tasks.len()), "{} tasks", recording.tasks.len());
    let most = recording.tasks.iter().map(|task| task.predecessors.len()).max().unwrap();
    assert!(most <= 12, "a task with {most} predecessors");
}

#[test]
fn the_longest_prompt_fits_the_limits_of_a_run() {
    let model = Model::tiny().unwrap();
    let capacity = model.config.context;
    let mut host = Host::new(&model, SessionConfig { capacity, splits: 4, head_splits: 4 });
    host.limits = Limits::default();
    let (buffers, words) = (host.buffers(), host.words.as_mut_ptr() as u64);
    let args = host.session.prefill_args(&buffers, words, capacity).unwrap();
    let recording = host.record(false, &args);
    assert!(recording.tasks.len() < 16_000, "{} tasks", recording.tasks.len());
}

#[test]
fn requests_beyond_the_capacity_are_refused() {
    let model = Model::tiny().unwrap();
    let config = SessionConfig { capacity: 8, splits: 1, head_splits: 1 };
    let session = Session::new(&model, config).unwrap();
    let buffers = DeviceBuffers { weights: 64, cache: 64, rope: 64, logits: 64 };
    assert!(session.prefill_args(&buffers, 64, 8).is_ok());
    assert!(session.prefill_args(&buffers, 64, 9).is_err());
    assert!(session.prefill_args(&buffers, 64, 0).is_err());
    assert!(session.decode_args(&buffers, 64, 7).is_ok());
    assert!(session.decode_args(&buffers, 64, 8).is_err());
    assert!(session.decode_args(&buffers, 64, u32::MAX).is_err());
    for config in [
        SessionConfig { capacity: 0, ..config },
        SessionConfig { capacity: model.config.context + 1, ..config },
        SessionConfig { splits: 0, ..config },
        SessionConfig { head_splits: 0, ..config },
    ] {
        assert!(Session::new(&model, config).is_err(), "{config:?}");
    }
}
