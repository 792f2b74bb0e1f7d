//! What the chip itself costs: an empty launch, and a dispatch from the register's write to FIN.
fn main() {}
