//! A ring with any bytes in the places that matter, and any end of the log: recovery never reads out of bounds, never
//! panics, and would write nothing but whole records.

#![no_main]

use std::cell::RefCell;

use simpler_host_log::diagnostics::trial::Trial;

thread_local! {
    static TRIAL: RefCell<Trial> = RefCell::new(Trial::default());
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| TRIAL.with_borrow_mut(|trial| trial.run(bytes)));
