//! Any bytes as a payload of a session with another host: reading never panics, and what a task names lies inside the
//! memory that came with it.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| simpler_worker::remote::trial::read_all(bytes));
