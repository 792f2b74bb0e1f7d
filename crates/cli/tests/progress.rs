//! The bar of a long reading: on a terminal only, and gone before the answer.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod started;

use nix::pty::openpty;
use started::{Heard, ended, run, simpler};
use std::fs::File;
use std::io::Write;
use std::process::Stdio;
use std::time::Duration;

#[test]
fn a_reading_that_takes_long_shows_a_bar_on_a_terminal_and_erases_it() {
    for command in ["timing", "check"] {
        let terminal = openpty(None, None).unwrap();
        let mut child = simpler(&[command, "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(terminal.slave)
            .spawn()
            .unwrap();
        let mut log = child.stdin.take().unwrap();
        let out = Heard::of(child.stdout.take().unwrap());
        let mut screen = Heard::of(File::from(terminal.master));
        log.write_all(run(1).as_bytes()).unwrap();
        screen.until("\rreading 0.0 MB, 0 MB/s\x1b[K");
        log.write_all(&b"hello\n".repeat(100_000)).unwrap();
        screen.until("\rreading 0.6 MB, ");
        log.write_all(run(2).as_bytes()).unwrap();
        drop(log);
        assert_eq!(ended(child).code(), Some(0));
        assert!(!out.all().contains("reading"));
        // Whatever is said afterwards stands on an empty line.
        let said = screen.all();
        let (_, after) = said.rsplit_once("\r\x1b[K").unwrap();
        assert!(!after.contains("reading"), "{said:?}");
    }
}

#[test]
fn a_pipe_shows_no_bar_however_long_it_takes() {
    let mut child = simpler(&["timing", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut log = child.stdin.take().unwrap();
    let (out, mut err) = (Heard::of(child.stdout.take().unwrap()), Heard::of(child.stderr.take().unwrap()));
    log.write_all(run(1).as_bytes()).unwrap();
    // Longer than a bar takes to come.
    assert!(err.is_silent_for(Duration::from_millis(1500)));
    drop(log);
    assert_eq!(ended(child).code(), Some(0));
    assert!(out.all().contains("1 invocation(s)"));
    assert_eq!(err.all(), "");
}
