//! The kernels and orchestrations on the real model against independent implementations.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod host;
mod smollm2;

use host::{Host, argmax};
use serde_json::Value;
use simpler_decoder::SessionConfig;

/// As the golden data's own page asks.
const LOGIT_TOLERANCE: f32 = 1e-3;

#[test]
fn smollm2_first_logits_and_greedy_tokens_are_the_golden_ones() {
    let Some(model) = smollm2::model() else { return };
    let golden: Value = serde_json::from_str(include_str!("data/smollm2_golden.json")).unwrap();
    let mut host =
        Host::new(&model, SessionConfig { capacity: 128, splits: 2, head_splits: 4, task_slots: false });
    for case in golden["cases"].as_array().unwrap() {
        let id = &case["id"];
        let ids = |key: &str| -> Vec<u32> {
            case[key].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
        };
        let (prompt, expected) = (ids("prompt_ids"), ids("generated_ids"));
        host.prefill(&prompt);
        let mut largest: f32 = 0.0;
        for pair in case["first_logits_f32"].as_array().unwrap() {
            let token = pair[0].as_u64().unwrap() as usize;
            largest = largest.max((host.logits[token] - pair[1].as_f64().unwrap() as f32).abs());
        }
        eprintln!("{id}: first logits differ by at most {largest}");
        assert!(largest <= LOGIT_TOLERANCE, "{id}: {largest}");
        let agree = case["agree"].as_u64().unwrap() as usize;
        for (step, expected) in expected[..agree].iter().enumerate() {
            let position = prompt.len() + step;
            assert_eq!(host.words[position], *expected, "{id}, token {step}");
            assert_eq!(host.words[position], argmax(&host.logits), "{id}, token {step}");
            host.decode(position as u32);
        }
    }
}
