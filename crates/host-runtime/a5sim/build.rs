//! How the object is linked: never unloaded, since the chip's threads, and what the standard library keeps of a caller's
//! thread, run in its code.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
