//! A `simpler` that runs beside the test, read line by line and by a deadline.

#![allow(dead_code, reason = "not every test file needs all")]

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Longer than anything takes on a machine that does much else.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn simpler(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_simpler"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// A folder of a test's own, empty.
pub(crate) fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

/// A run's records.
pub(crate) fn run(inv: u32) -> String {
    format!(
        "[mono_ns=1][T0x7f00][TIMING] clock_anchor: [CLOCK_ANCHOR] v=1 pid=41 mono_ns=1 wall_ns=1790000000000000000\n\
         [mono_ns={inv}9000][T0x7f00][TIMING] emit_host_span: [STRACE] v=1 pid=41 tid=41 inv={inv} hid=b7e2 depth=0 \
         name=simpler_run ts={inv}0000 dur=5000 \n"
    )
}

/// What comes from a stream, as it comes.
pub(crate) struct Heard {
    bytes: Receiver<Vec<u8>>,
    /// What has come and was not asked for yet.
    rest: Vec<u8>,
}

impl Heard {
    pub(crate) fn of(stream: impl Read + Send + 'static) -> Heard {
        let (sender, bytes) = channel();
        thread::spawn(move || {
            let mut stream = BufReader::new(stream);
            // The other end of a terminal is gone with an error, not with an end.
            while let Ok(read @ [_, ..]) = stream.fill_buf() {
                let read = read.to_vec();
                stream.consume(read.len());
                if sender.send(read).is_err() {
                    return;
                }
            }
        });
        Heard { bytes, rest: Vec::new() }
    }

    /// All up to the first `text` and that.
    pub(crate) fn until(&mut self, text: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(at) = self.rest.windows(text.len()).position(|part| part == text.as_bytes()) {
                let head = self.rest.drain(..at + text.len()).collect();
                return String::from_utf8(head).unwrap();
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match self.bytes.recv_timeout(left) {
                Ok(bytes) => self.rest.extend(bytes),
                Err(why) => panic!("{why}: no {text:?} in {:?}", String::from_utf8_lossy(&self.rest)),
            }
        }
    }

    /// Whether nothing comes for so long.
    pub(crate) fn is_silent_for(&mut self, time: Duration) -> bool {
        match self.bytes.recv_timeout(time) {
            Err(RecvTimeoutError::Timeout) => self.rest.is_empty(),
            Ok(bytes) => {
                self.rest.extend(bytes);
                false
            }
            Err(RecvTimeoutError::Disconnected) => false,
        }
    }

    /// All up to the end.
    pub(crate) fn all(mut self) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.bytes.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(bytes) => self.rest.extend(bytes),
                Err(RecvTimeoutError::Disconnected) => return String::from_utf8(self.rest).unwrap(),
                Err(RecvTimeoutError::Timeout) => panic!("no end"),
            }
        }
    }
}

/// How it ends. One that does not is killed, and the test fails.
pub(crate) fn ended(mut child: Child) -> ExitStatus {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        thread::yield_now();
    }
    let _ = child.kill();
    panic!("it does not end");
}
