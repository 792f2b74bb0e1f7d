//! Links the extension as the owner of a process's host log has to be.

fn main() {
    // Its writer thread must never be unmapped.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
