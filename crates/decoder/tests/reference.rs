//! The host reference against independent implementations: the rest of the tests lean on it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod smollm2;

use serde_json::Value;
use simpler_decoder::reference::Reference;

/// As the golden data's own page asks.
const LOGIT_TOLERANCE: f32 = 1e-3;
/// Greedy tokens compared; the chip, which is faster, compares all of them.
const STEPS: usize = 4;

fn argmax(logits: &[f32]) -> u32 {
    let best = logits.iter().enumerate().rev().max_by(|(_, a), (_, b)| a.total_cmp(b)).unwrap();
    best.0 as u32
}

#[test]
fn smollm2_first_logits_and_greedy_tokens_are_the_golden_ones() {
    let Some(model) = smollm2::model() else { return };
    let golden: Value = serde_json::from_str(include_str!("data/smollm2_golden.json")).unwrap();
    for id in ["months", "emoji_utf8"] {
        let case = golden["cases"].as_array().unwrap().iter().find(|case| case["id"] == id).unwrap();
        let ids = |key: &str| -> Vec<u32> {
            case[key].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
        };
        let mut reference = Reference::new(&model);
        let mut logits = reference.step(&ids("prompt_ids"));
        let mut largest: f32 = 0.0;
        for pair in case["first_logits_f32"].as_array().unwrap() {
            let token = pair[0].as_u64().unwrap() as usize;
            largest = largest.max((logits[token] - pair[1].as_f64().unwrap() as f32).abs());
        }
        eprintln!("{id}: first logits differ by at most {largest}");
        assert!(largest <= LOGIT_TOLERANCE, "{id}: {largest}");
        for (step, expected) in ids("generated_ids").into_iter().take(STEPS).enumerate() {
            let token = argmax(&logits);
            assert_eq!(token, expected, "{id}, token {step}");
            if step + 1 < STEPS {
                logits = reference.step(&[token]);
            }
        }
    }
}
