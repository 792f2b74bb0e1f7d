//! Links the extension as the owner of a process's host log has to be, and tells it which stub it was built from.

/// What the package beside the extension takes it to be.
const STUB: &str = "simpler/_task_interface.pyi";

fn main() {
    // Its writer thread must never be unmapped.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rerun-if-changed={STUB}");
    let stub = std::fs::read(STUB).unwrap_or_else(|error| panic!("{STUB}: {error}"));
    println!("cargo:rustc-env=SIMPLER_INTERFACE={:08x}", crc32(&stub));
}

/// The checksum that Python has as `zlib.crc32`.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (crc & 1) * 0xedb8_8320)
    })
}
