//! The binary `simpler`.
fn main() {}
