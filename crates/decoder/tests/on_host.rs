//! The orchestrations and kernels together, task by task on this thread, against the host reference.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod host;

use host::{Host, argmax, difference};
use simpler_decoder::reference::Reference;
use simpler_decoder::{DeviceBuffers, Model, Session, SessionConfig};
use simpler_runtime::Limits;

/// Largest difference over largest logit that rounding explains.
const TOLERANCE: f32 = 1e-3;

#[test]
fn tiny_decodes_like_the_reference_for_32_steps() {
    let model = Model::tiny().unwrap();
    let prompt =
        model.tokenizer.encode("What can be said of the river and the long state of it?", false).unwrap();
    for (splits, head_splits) in [(2, 4), (3, 5)] {
        let mut host =
            Host::new(&model, SessionConfig { capacity: 128, splits, head_splits, task_slots: false });
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
    let config = SessionConfig { capacity: 256, splits: 2, head_splits: 2, task_slots: false };
    let mut at_once = Host::new(&model, config);
    let recording = at_once.prefill(&prompt);
    let passes = recording.tasks.iter().filter(|task| task.kernels.contains(&Some(0))).count();
    assert_eq!(passes, 4);
    let expected = Reference::new(&model).step(&prompt);
    let apart = difference(&at_once.logits, &expected);
    assert!(apart <= TOLERANCE, "{apart}");

    let mut one_by_one = Host::new(&model, config);
    one_by_one.prefill(&prompt[..1]);
    for (position, token) in prompt.iter().enumerate().skip(1) {
        one_by_one.words[position] = *token;
        one_by_one.decode(position as u32);
    }
    let apart = difference(&one_by_one.logits, &at_once.logits);
    assert!(apart <= TOLERANCE, "{apart}");
}

#[test]
fn tiny_text_is_printable_and_does_not_run_in_circles() {
    let model = Model::tiny().unwrap();
    let mut host =
        Host::new(&model, SessionConfig { capacity: 320, splits: 1, head_splits: 1, task_slots: false });
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
    // Three parts of 128 rows: no part is a head, so that regions overlap in every way.
    let config = SessionConfig { capacity: 64, splits: 3, head_splits: 4, task_slots: false };
    let mut host = Host::new(&model, config);
    host.prefill(&[1, 2, 3]);
    let recording = host.decode(3);
    assert!((150..500).contains(&recording.tasks.len()), "{} tasks", recording.tasks.len());
    let most = recording.tasks.iter().map(|task| task.predecessors.len()).max().unwrap();
    assert!(most <= 16, "a task with {most} predecessors");
}

#[test]
fn the_longest_prompt_fits_the_limits_of_a_run() {
    let model = Model::tiny().unwrap();
    let capacity = model.config.context;
    let mut host =
        Host::new(&model, SessionConfig { capacity, splits: 4, head_splits: 4, task_slots: false });
    host.limits = Limits::default();
    let (buffers, words) = (host.buffers(), host.words.as_mut_ptr() as u64);
    let args = host.session.prefill_args(&buffers, words, capacity).unwrap();
    let recording = host.record(false, &args);
    let dependencies: usize = recording.tasks.iter().map(|task| task.predecessors.len()).sum();
    eprintln!("{} tasks, {dependencies} dependencies", recording.tasks.len());
    assert!(recording.tasks.len() < 16_000, "{} tasks", recording.tasks.len());
}

#[test]
fn requests_beyond_the_capacity_are_refused() {
    let model = Model::tiny().unwrap();
    let config = SessionConfig { capacity: 8, splits: 1, head_splits: 1, task_slots: false };
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
