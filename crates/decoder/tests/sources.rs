//! Where the callables' sources come from.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use simpler_decoder::{DECODE, PREFILL, callables};

#[test]
fn a_folder_replaces_the_files_that_it_has() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("argmax.c"), "/* another */").unwrap();
    std::fs::write(folder.path().join("rows.h"), "/* other rows */").unwrap();
    let built_in = callables(None).unwrap();
    let replaced = callables(Some(folder.path())).unwrap();
    for (built_in, replaced) in built_in.iter().zip(&replaced) {
        let differing: Vec<&str> = built_in
            .kernels
            .iter()
            .map(|kernel| &kernel.file)
            .chain(&built_in.headers)
            .zip(replaced.kernels.iter().map(|kernel| &kernel.file).chain(&replaced.headers))
            .filter(|(before, after)| before != after)
            .map(|(_, after)| after.name.as_ref())
            .collect();
        assert_eq!(differing, ["argmax.c", "rows.h"]);
        assert_eq!(built_in.orchestration, replaced.orchestration);
    }
    assert_eq!(replaced.map(|callable| callable.name), [PREFILL, DECODE]);
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("embed.c")).unwrap();
    let error = callables(Some(folder.path())).unwrap_err().to_string();
    assert!(error.contains("embed.c"), "{error}");
}
