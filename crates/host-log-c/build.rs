//! How the shared library is linked: never unloaded, since its writer thread and its handlers run in its code.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libsimpler_host_log.so");
}
