//! A function with spans and the same one without, for `off_object.rs` to look at in the object file.

use simpler_host_log::span;

unsafe extern "C" {
    /// Nobody defines it: where it is not called, it is not in the object either.
    safe fn probe_attribute_value(n: u64) -> u64;
}

/// Work with spans around it.
#[unsafe(no_mangle)]
pub extern "C" fn probe_with_spans(n: u64) -> u64 {
    let _whole = span!("probe_span_name.whole", probe_attribute_key = probe_attribute_value(n));
    let product = {
        let _part = span!("probe_span_name.part");
        n.wrapping_mul(n ^ 0x5eed)
    };
    product ^ n
}

/// The same work alone.
#[unsafe(no_mangle)]
pub extern "C" fn probe_without_spans(n: u64) -> u64 {
    let product = n.wrapping_mul(n ^ 0x5eed);
    product ^ n
}
