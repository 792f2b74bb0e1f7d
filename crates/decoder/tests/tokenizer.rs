//! Token ids against those of an independent tokenizer, and the built-in model's tokenizer.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod smollm2;

use serde_json::Value;
use simpler_decoder::Model;

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

#[test]
fn smollm2_ids_are_those_of_llama_cpp() {
    let Some(model) = smollm2::model() else { return };
    let cases: Value = serde_json::from_str(include_str!("data/smollm2_tokenizer_cases.json")).unwrap();
    let mut checked = 0;
    for case in cases.as_array().unwrap() {
        let text = case["text"].as_str().unwrap();
        for (key, parse_special) in [("ids_plain", false), ("ids_parse_special", true)] {
            let encoded = model.tokenizer.encode(text, parse_special).unwrap();
            assert_eq!(encoded, ids(&case[key]), "{text:?}, parse_special {parse_special}");
            checked += 1;
        }
        let plain = model.tokenizer.encode(text, false).unwrap();
        assert_eq!(model.tokenizer.decode(&plain), text.as_bytes(), "{text:?}");
    }
    assert!(checked >= 48);
}

#[test]
fn smollm2_prompts_and_texts_are_those_of_the_golden_runs() {
    let Some(model) = smollm2::model() else { return };
    let golden: Value = serde_json::from_str(include_str!("data/smollm2_golden.json")).unwrap();
    for case in golden["cases"].as_array().unwrap() {
        let parse_special = case["parse_special"].as_bool().unwrap();
        let encoded = model.tokenizer.encode(case["prompt"].as_str().unwrap(), parse_special).unwrap();
        assert_eq!(encoded, ids(&case["prompt_ids"]), "{}", case["id"]);
        // The text goes on where the implementations no longer agree on the ids.
        let agreed = &ids(&case["generated_ids"])[..case["agree"].as_u64().unwrap() as usize];
        let text: String = model.tokenizer.decode(agreed).iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(case["text_hex"].as_str().unwrap().starts_with(&text), "{}: {text}", case["id"]);
    }
}

#[test]
fn smollm2_chat_prompt_is_what_its_template_says() {
    let Some(model) = smollm2::model() else { return };
    let golden: Value = serde_json::from_str(include_str!("data/smollm2_golden.json")).unwrap();
    let prompt = |id: &str| {
        let case = golden["cases"].as_array().unwrap().iter().find(|case| case["id"] == id).unwrap();
        case["prompt"].as_str().unwrap().to_owned()
    };
    assert_eq!(model.chat_prompt("What is gravity?").unwrap(), prompt("chat_gravity"));
    assert_eq!(model.chat_prompt("Count from 1 to 20.").unwrap(), prompt("chat_count"));
}

#[test]
fn smollm2_takes_every_character_but_those_without_a_token() {
    let Some(model) = smollm2::model() else { return };
    let without = |c: char| {
        matches!(c, '\x04' | '\x06' | '\x13' | '\x14' | '\x16' | '\x1d' | '\u{40000}'..='\u{bffff}')
    };
    let all = (0..0x800).chain((0x800..0x11_0000).step_by(61)).filter_map(char::from_u32);
    let text: String = all.filter(|c| !without(*c)).collect();
    let encoded = model.tokenizer.encode(&text, false).unwrap();
    assert_eq!(model.tokenizer.decode(&encoded), text.as_bytes());
    let encoded = model.tokenizer.encode("a\x04b", false).unwrap();
    assert_eq!(model.tokenizer.decode(&encoded), b"ab");
}

#[test]
fn tiny_takes_any_text_back_unchanged() {
    let model = Model::tiny().unwrap();
    for text in ["", "The river was there.", " the time", "naïve 日本語 👩‍👩‍👧\n\0\t", "<|im_start|>"]
    {
        let encoded = model.tokenizer.encode(text, true).unwrap();
        assert_eq!(model.tokenizer.decode(&encoded), text.as_bytes(), "{text:?}");
    }
    let words = model.tokenizer.encode(" the time", false).unwrap();
    assert_eq!(words.len(), 2, "whole words are one token each: {words:?}");
}

#[test]
fn tiny_has_no_chat_template_and_says_so() {
    let error = Model::tiny().unwrap().chat_prompt("hello").unwrap_err().to_string();
    assert!(error.contains("chat template"), "{error}");
}

#[test]
fn unknown_ids_decode_to_nothing() {
    assert_eq!(Model::tiny().unwrap().tokenizer.decode(&[u32::MAX, 512]), b"");
}
