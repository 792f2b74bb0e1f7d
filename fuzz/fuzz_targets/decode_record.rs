//! Any bytes through every parser, held against the slow reference.

#![no_main]

#[path = "../../crates/record-format/tests/reference/mod.rs"]
#[allow(dead_code, reason = "the other target uses the rest")]
mod reference;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| reference::check_decode(bytes));
