//! A whole log of any bytes through the reader, quick way and all, held against the slow reference.

#![no_main]

#[path = "../../crates/trace-ingest/tests/reference/mod.rs"]
mod reference;

use std::fs::{self, File};
use std::io::{Seek, Write};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// A file without a name, in memory where that can be had, that holds one input after the other.
static FILE: Mutex<Option<(File, PathBuf)>> = Mutex::new(None);

fn file() -> (File, PathBuf) {
    let folder = Some(PathBuf::from("/dev/shm")).filter(|folder| folder.is_dir());
    let path = folder.unwrap_or_else(std::env::temp_dir).join(format!("read_log.{}", std::process::id()));
    let file = File::create_new(&path).expect("a folder for files in memory can be written to");
    fs::remove_file(&path).expect("it was just made");
    let path = format!("/proc/self/fd/{}", file.as_raw_fd()).into();
    (file, path)
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    // What is packed is another matter.
    if bytes.starts_with(b"\x1f\x8b") || bytes.starts_with(b"\x28\xb5\x2f\xfd") {
        return;
    }
    let mut held = FILE.lock().unwrap_or_else(PoisonError::into_inner);
    let (file, path) = held.get_or_insert_with(file);
    file.set_len(0)
        .and_then(|()| file.rewind())
        .and_then(|()| file.write_all(bytes))
        .expect("it can be written");
    reference::check(bytes, path);
});
