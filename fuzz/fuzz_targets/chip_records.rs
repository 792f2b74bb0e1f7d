//! Any bytes as the records of a chip's run. What is accepted holds no more records than its lists have elements.

#![no_main]

use serde_json::Value;
use simpler_trace_export::chip_records::ChipRecords;

fn elements(value: &Value) -> usize {
    match value {
        Value::Array(all) => all.len() + all.iter().map(elements).sum::<usize>(),
        Value::Object(all) => all.values().map(elements).sum(),
        _ => 0,
    }
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(records) = ChipRecords::parse("fuzzed", bytes) else { return };
    // What is passed over is not looked at closely: a text in it may be none.
    if let Ok(value) = serde_json::from_slice::<Value>(bytes) {
        assert!(records.count() <= elements(&value));
    }
});
