//! Replays the fuzz targets' committed corpus, so that what fuzzing once found stays found without a fuzzer.

#![allow(clippy::unwrap_used, reason = "clippy does not take the functions beside the tests for tests")]

mod reference;

use std::path::Path;

/// Runs `check` on every file of `target`'s corpus.
fn replay(target: &str, check: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut replayed = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        // The name is on stderr when the check fails.
        eprintln!("{}", path.display());
        check(&std::fs::read(&path).unwrap());
        replayed += 1;
    }
    assert!(replayed > 0, "{} holds no files", folder.display());
}

#[test]
fn corpus_of_decode_record_agrees_with_the_reference() {
    replay("decode_record", reference::check_decode);
}

#[test]
fn corpus_of_render_frame_agrees_with_the_reference() {
    replay("render_frame", reference::check_render);
}
