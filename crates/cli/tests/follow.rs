//! `simpler timing --follow` from outside: what it prints when, and how it ends.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod started;

use nix::pty::openpty;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use started::{Heard, ended, folder, run, simpler};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::mpsc::channel;

fn append(path: &Path, text: &str) {
    OpenOptions::new().append(true).create(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
}

/// Follows, with what it prints and says.
fn follow(path: &Path, more: &[&str]) -> (Child, Heard, Heard) {
    let arguments = [&["timing", "--follow", path.to_str().unwrap()], more].concat();
    let mut child = simpler(&arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (out, err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    (child, Heard::of(out), Heard::of(err))
}

fn signal(child: &Child, signal: Signal) {
    kill(Pid::from_raw(child.id() as i32), signal).unwrap();
}

#[test]
fn a_directory_is_waited_for_and_shown_again_as_its_logs_grow() {
    let folder = folder("follow-directory");
    let (child, mut out, mut err) = follow(&folder, &[]);
    assert_eq!(
        err.until("\n"),
        format!("note: waiting for a host.*.log in {}\n", folder.display()),
        "and it does not end"
    );
    append(&folder.join("host.1.log"), &run(1));
    let first = out.until("\n\n");
    let (wall, view) = first.split_once('\n').unwrap();
    assert!(wall.len() == "2026-01-01T00:00:00Z".len() && wall.ends_with('Z'), "{wall}");
    assert_eq!(
        view,
        "callable hid=b7e2 — 1 invocation(s)\n  simpler_run: mean=5.0us min=5.0us max=5.0us\n\n"
    );
    append(&folder.join("host.2.log"), &run(2).replace("pid=41", "pid=42"));
    let second = out.until("\n\n");
    assert!(second.starts_with("\n20"), "an empty line stands between: {second}");
    assert!(second.contains("Z\ncallable hid=b7e2 — 2 invocation(s)\n"), "{second}");
    append(&folder.join("host.1.log"), &run(3));
    assert!(out.until("\n\n").contains("— 3 invocation(s)"));
    signal(&child, Signal::SIGTERM);
    assert_eq!(ended(child).code(), Some(0));
    assert_eq!((out.all().as_str(), err.all().as_str()), ("", ""), "the last view stands already");
}

#[test]
fn the_last_state_is_printed_and_drawn_when_a_signal_ends_it() {
    let folder = folder("follow-signal");
    let (log, picture) = (folder.join("host.1.log"), folder.join("trace.json"));
    append(&log, &run(1));
    for (number, which) in [(2_usize, Signal::SIGINT), (3, Signal::SIGTERM)] {
        let (child, mut out, err) = follow(&log, &["--trace-out", picture.to_str().unwrap()]);
        out.until("\n\n");
        append(&log, &run(number as u32));
        // Whether it has been shown by now or not.
        signal(&child, which);
        assert_eq!(ended(child).code(), Some(0));
        let rest = out.all();
        assert!(rest.contains(&format!("— {number} invocation(s)")), "{rest}");
        assert!(rest.ends_with(&format!("Wrote Chrome trace: {} ({number} spans)\n", picture.display())));
        assert_eq!(err.all(), "");
        let drawn: Value = serde_json::from_reader(File::open(&picture).unwrap()).unwrap();
        let drawn = drawn["traceEvents"].as_array().unwrap();
        assert_eq!(drawn.iter().filter(|event| event["ph"] == "X").count(), number);
    }
}

#[test]
fn as_json_each_state_is_one_line() {
    let folder = folder("follow-json");
    let log = folder.join("host.1.log");
    append(&log, &run(1));
    let (child, mut out, _err) = follow(&log, &["--json"]);
    let invocations = |line: &str| -> u64 {
        let state: Value = serde_json::from_str(line).unwrap();
        state["callables"][0]["invocations"].as_u64().unwrap()
    };
    assert_eq!(invocations(&out.until("\n")), 1);
    append(&log, &run(2));
    assert_eq!(invocations(&out.until("\n")), 2);
    signal(&child, Signal::SIGTERM);
    assert_eq!(ended(child).code(), Some(0));
    assert_eq!(out.all(), "");
}

#[test]
fn standard_input_is_followed_to_its_end() {
    let (mut child, mut out, err) = follow(Path::new("-"), &[]);
    let mut log = child.stdin.take().unwrap();
    let cut = run(2).find(" depth=").unwrap();
    let (begun, rest) = (run(2)[..cut].to_owned(), run(2)[cut..].to_owned());
    log.write_all((run(1) + &begun).as_bytes()).unwrap();
    assert!(out.until("\n\n").contains("— 1 invocation(s)"));
    log.write_all(rest.as_bytes()).unwrap();
    assert!(out.until("\n\n").contains("— 2 invocation(s)"));
    log.write_all(begun.as_bytes()).unwrap();
    drop(log);
    assert_eq!(ended(child).code(), Some(0));
    // In the end the line that was never finished is torn.
    assert!(err.all().starts_with("warning: 1 of 3 [STRACE] records are incomplete"));
    assert_eq!(out.all(), "");
}

#[test]
fn what_is_cut_or_replaced_is_said_and_read_again() {
    let folder = folder("follow-cut");
    let log = folder.join("host.1.log");
    append(&log, &(run(1) + &run(2)));
    let (child, mut out, mut err) = follow(&folder, &[]);
    assert!(out.until("\n\n").contains("— 2 invocation(s)"));
    std::fs::write(&log, run(3)).unwrap();
    assert!(err.until("\n").contains("host.1.log has become shorter and is read again from its start"));
    assert!(out.until("\n\n").contains("— 3 invocation(s)"));
    std::fs::rename(&log, folder.join("old")).unwrap();
    append(&log, &run(4));
    assert!(err.until("\n").contains("host.1.log was replaced by another file, which is read too"));
    assert!(out.until("\n\n").contains("— 4 invocation(s)"));
    signal(&child, Signal::SIGTERM);
    assert_eq!(ended(child).code(), Some(0));
}

#[test]
fn a_reader_that_goes_away_ends_it_without_news() {
    let folder = folder("follow-gone");
    append(&folder.join("host.1.log"), &run(1));
    for more in [&[][..], &["--json"], &["--tree"], &["--rounds-table"]] {
        let arguments = [&["timing", "--follow", folder.to_str().unwrap()], more].concat();
        let mut child = simpler(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (out, err) = (child.stdout.take().unwrap(), Heard::of(child.stderr.take().unwrap()));
        let (heard, line) = channel();
        std::thread::spawn(move || {
            let mut first = String::new();
            let read = BufReader::new(out).read_line(&mut first);
            heard.send(read.map(|_| first))
        });
        // Then nobody reads any more, and nothing is written either.
        let line = line.recv_timeout(started::PATIENCE).unwrap().unwrap();
        assert!(line.ends_with('\n'), "{line}");
        assert_eq!(ended(child).code(), Some(0), "{more:?}");
        assert_eq!(err.all(), "");
    }
}

#[test]
fn a_terminal_is_redrawn_in_place() {
    let folder = folder("follow-terminal");
    let log = folder.join("host.1.log");
    append(&log, &run(1));
    let terminal = openpty(None, None).unwrap();
    let child = simpler(&["timing", "--follow", log.to_str().unwrap()])
        .stdout(terminal.slave.try_clone().unwrap())
        .stderr(terminal.slave)
        .spawn()
        .unwrap();
    let mut screen = Heard::of(File::from(terminal.master));
    const CLEAR: &str = "\x1b[H\x1b[2J";
    for number in 1..4 {
        assert_eq!(screen.until(CLEAR), CLEAR);
        let view = screen.until("\r\n\r\n");
        assert!(view.contains(&format!("Z\r\ncallable hid=b7e2 — {number} invocation(s)")), "{view:?}");
        append(&log, &run(number + 1));
    }
    screen.until("— 4 invocation(s)");
    signal(&child, Signal::SIGINT);
    assert_eq!(ended(child).code(), Some(0));
}

#[test]
fn a_part_of_a_growing_log_is_shown_once_there_is_one() {
    let folder = folder("follow-part");
    let (log, picture) = (folder.join("host.1.log"), folder.join("trace.json"));
    append(&log, &run(1));
    let drawn = picture.to_str().unwrap();
    let (child, mut out, err) =
        follow(&log, &["--skip-first", "1", "--label", "b7e2=step", "--trace-out", drawn]);
    // The first run alone leaves nothing to be shown.
    append(&log, &run(2));
    assert!(out.until("\n\n").contains("Z\ncallable hid=b7e2 (step) — 1 invocation(s)\n"));
    append(&log, &run(3));
    assert!(out.until("\n\n").contains("(step) — 2 invocation(s)\n"));
    signal(&child, Signal::SIGTERM);
    assert_eq!(ended(child).code(), Some(0));
    assert_eq!(err.all(), "note: --skip-first 1 leaves out 1 invocation(s)\n", "said once, in the end");
    assert!(out.all().ends_with("trace.json (2 spans)\n"));

    // One that is of nothing to the end.
    let (child, out, err) = follow(&log, &["--hid", "abc"]);
    signal_when_it_listens(&child);
    assert_eq!(ended(child).code(), Some(2));
    assert_eq!(err.all(), "--hid abc: the log has no such callable; it has hid=b7e2\n");
    assert_eq!(out.all(), "");
}

#[test]
fn what_cannot_be_followed_is_a_sentence_and_2() {
    let folder = folder("follow-refused");
    let nothing = folder.join("host.1.log");
    append(&nothing, "hello\n");
    for (arguments, says) in [
        (&["/nonexistent/log"][..], "/nonexistent/log"),
        (&["-"], "- is empty"),
        (&[nothing.to_str().unwrap(), "--assert-native-overlap"], "cannot be used with"),
    ] {
        let output = simpler(&[&["timing", "--follow"], arguments].concat()).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains(says), "{said}");
    }
    // A log that never held a span.
    let (child, out, err) = follow(&nothing, &["--json"]);
    signal_when_it_listens(&child);
    assert_eq!(ended(child).code(), Some(2));
    assert!(err.all().contains("threshold"));
    assert!(serde_json::from_str::<Value>(&out.all()).unwrap()["error"].is_string());
}

/// Sends SIGTERM once there is a handler for it.
fn signal_when_it_listens(child: &Child) {
    let deadline = std::time::Instant::now() + started::PATIENCE;
    let status = format!("/proc/{}/status", child.id());
    let listens = || {
        let status = std::fs::read_to_string(&status).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(caught.trim(), 16).unwrap() & (1 << (Signal::SIGTERM as u64 - 1)) != 0
    };
    while !listens() {
        assert!(std::time::Instant::now() < deadline);
        std::thread::yield_now();
    }
    signal(child, Signal::SIGTERM);
}
