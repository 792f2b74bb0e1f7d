//! Programs of the headers alone: every path out of a span, and threads under ThreadSanitizer.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail where it stands")]

extern crate host_log as simpler_host_log;

mod support;

use std::process::Command;

use support::owner::{lines, spans, the_anchor};
use support::{build, source};

#[test]
fn spans_end_on_every_path_of_c_and_of_cpp() {
    let folder = tempfile::tempdir().unwrap();
    for compiler in build::compilers() {
        for level in ["-O0", "-O2"] {
            let text = source("paths.c");
            let program = build::compile(folder.path(), compiler, &[("paths.x", &text)], &[level], "paths")
                .unwrap_or_else(|words| panic!("{compiler:?}: {words}"));
            let output = Command::new(program).output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "{compiler:?} {level}: {said}");
            let lines = lines(&output.stderr);
            the_anchor(&lines);
            let spans = spans(&lines);
            // Every span that began while TIMING was admitted has its record, once.
            assert_eq!(spans.len(), if compiler.is_cpp() { 22 } else { 19 }, "{lines:#?}");
            assert_eq!(spans.last().map(|span| (span.name.as_str(), span.depth)), Some(("root", 0)));
            assert_eq!(spans.iter().map(|span| span.depth).max(), Some(i64::from(i32::MAX)));
        }
    }
}

#[test]
fn a_reader_that_is_gone_and_a_full_file_cost_records_and_not_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let text = source("broken.c");
    let compiler = build::compilers()[0];
    let program = build::compile(folder.path(), compiler, &[("broken.x", &text)], &[], "broken").unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let status = Command::new(program).arg(folder.path()).stderr(writer).status().unwrap();
    assert_eq!(status.code(), Some(0), "{status}");
}

#[test]
fn where_pages_are_larger_nothing_is_wiped_in_a_child() {
    let folder = tempfile::tempdir().unwrap();
    let text = source("pages.c");
    for compiler in build::compilers() {
        let program = build::compile(folder.path(), compiler, &[("pages.x", &text)], &[], "pages").unwrap();
        for (page_bytes, expected) in [("4096", 0), ("16384", 3), ("65536", 3)] {
            let status = Command::new(&program).arg(page_bytes).status().unwrap();
            assert_eq!(status.code(), Some(expected), "{compiler:?} {page_bytes}");
        }
    }
}

#[test]
fn a_thread_that_is_cancelled_finishes_its_record_and_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let text = source("cancelled.c");
    let compiler = build::compilers()[0];
    let sources = [("cancelled.x", &*text)];
    let program = build::compile(folder.path(), compiler, &sources, &["-pthread"], "cancelled").unwrap();
    let mut running = Command::new(program).arg(folder.path()).spawn().unwrap();
    let pid = running.id() as i32;
    assert_eq!(running.wait().unwrap().code(), Some(0));
    assert_eq!(support::owner::lines_of(folder.path(), pid).len(), 2);
}

#[test]
fn threads_of_one_module_do_not_race() {
    let folder = tempfile::tempdir().unwrap();
    let flags = ["-O1", "-g", "-fsanitize=thread", "-pthread"];
    let text = source("threads.c");
    let compiler = build::compilers()[0];
    let program = match build::compile(folder.path(), compiler, &[("threads.x", &text)], &flags, "threads") {
        Ok(program) => program,
        Err(words) if words.contains("tsan") => {
            eprintln!("skipped: gcc has no ThreadSanitizer here");
            return;
        }
        Err(words) => panic!("{words}"),
    };
    let output = Command::new(program).arg(folder.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains("ThreadSanitizer"), "{}: {said}", output.status);
}
