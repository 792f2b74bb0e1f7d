//! Where a command prints: two streams, given by whoever runs it.
//!
//! The binary gives the process's own; the Python package gives what `sys.stdout` and `sys.stderr` are just then. What
//! is done on a terminal only, the bar of a long reading and the view that is drawn in place, asks the descriptor that
//! lies behind a stream. A stream without one is never a terminal.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::fmt;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::BorrowedFd;

/// The two streams of a command, and what its caller and it say to each other besides.
pub struct Console<'a> {
    /// The answer.
    pub out: Stream<'a>,
    /// What is to be said beside it.
    pub err: Stream<'a>,
    /// Asked now and then while a log is read, by the calling thread: whether nobody waits for the answer any more.
    pub interrupted: Option<&'a dyn Fn() -> bool>,
    /// The sentence with which a command that reads logs has refused to answer.
    pub refusal: Option<String>,
}

impl<'a> Console<'a> {
    /// These streams, for somebody who waits.
    pub fn new(out: Stream<'a>, err: Stream<'a>) -> Console<'a> {
        Console { out, err, interrupted: None, refusal: None }
    }
}

/// Something to print on.
pub struct Stream<'a> {
    write: Box<dyn Write + 'a>,
    fd: Option<BorrowedFd<'a>>,
}

impl<'a> Stream<'a> {
    /// What is written goes to `write`, and on to `fd` if that is known.
    pub fn new(write: impl Write + 'a, fd: Option<BorrowedFd<'a>>) -> Stream<'a> {
        Stream { write: Box::new(write), fd }
    }

    /// Whether somebody looks at a terminal.
    pub(crate) fn is_terminal(&self) -> bool {
        self.fd.is_some_and(|fd| fd.is_terminal())
    }

    /// The terminal itself, for another thread to draw on; `None` if it is none.
    pub(crate) fn terminal(&self) -> Option<File> {
        let fd = self.fd.filter(|fd| fd.is_terminal())?;
        fd.try_clone_to_owned().ok().map(File::from)
    }

    /// Whether nobody can read what is printed: only a write would tell otherwise, and there may be nothing to write.
    pub(crate) fn is_reader_gone(&self) -> bool {
        let Some(fd) = self.fd else { return false };
        let mut out = [PollFd::new(fd, PollFlags::empty())];
        let gone = PollFlags::POLLERR | PollFlags::POLLHUP | PollFlags::POLLNVAL;
        poll(&mut out, PollTimeout::ZERO).is_ok()
            && out[0].revents().is_some_and(|events| events.intersects(gone))
    }

    /// Says a line. Where nobody can hear it, the exit code still speaks.
    pub(crate) fn say(&mut self, line: impl fmt::Display) {
        let _ = writeln!(self, "{line}").and_then(|()| self.flush());
    }
}

impl Write for Stream<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write.write(bytes)
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write.write_all(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.write.flush()
    }
}
