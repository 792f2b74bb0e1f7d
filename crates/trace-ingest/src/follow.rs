//! Logs that grow: files, directories in which new ones appear, and pipes until their end.
//!
//! A [`Follower`] looks at its sources again and again and gives the builder what has come since. A scanner of its own
//! for each stream holds the line that is not whole yet: it is undecided, in no [`Follower::snapshot`] and no damage
//! there. Only where a stream has ended (a pipe's end, a file that was cut or replaced, [`Follower::finish`]) does it
//! count as what it is. So what a follower knows in the end is what [`read`](crate::read) says of the same bytes, but
//! for the order of records of several files: they come as they are met.
//!
//! A file that was cut is read again from its start, one that was replaced is read to its end and then the new one;
//! records that are met twice are duplicates as in any log. A file that is cut and grows beyond where it was between
//! two looks is not noticed.

use crate::block::{Block, Decoder};
use crate::complaint::Complaints;
use crate::scan::Scanner;
use crate::source::{BLOCK_BYTES, Error, ErrorKind, Reading, Source, Stream, is_packed, list, unpack};
use simpler_trace_model::{Keep, TraceBuilder};
use std::collections::HashSet;
use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

/// How long files are left alone between two looks: short beside what a reader of tables notices, and so long that the
/// looks at some hundred files cost nothing.
pub const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// How many bytes one [`Follower::poll`] takes at most, so that whoever follows a log that is already large is asked
/// now and then.
const POLL_BYTES_MAX: usize = 16 * 1024 * 1024;

/// How many pieces of pipes may wait to be taken, until their writers have to.
const CHUNKS_MAX: usize = 16;

/// Something that whoever follows should know. Its text is a sentence.
#[derive(Debug)]
#[non_exhaustive]
pub enum Notice {
    /// A directory holds no log yet.
    NoLogYet(PathBuf),
    /// A file has become shorter than what was read of it.
    Cut(PathBuf),
    /// Another file has taken a file's place.
    Replaced(PathBuf),
    /// A file is packed.
    Packed(PathBuf),
    /// A file or a directory cannot be read, now or any more.
    Unreadable(PathBuf, io::Error),
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::NoLogYet(path) => write!(f, "waiting for a host.*.log in {}", path.display()),
            Notice::Cut(path) => {
                write!(f, "{} has become shorter and is read again from its start", path.display())
            }
            Notice::Replaced(path) => {
                write!(f, "{} was replaced by another file, which is read too", path.display())
            }
            Notice::Packed(path) => {
                write!(f, "{} is packed: it is read once and not followed", path.display())
            }
            Notice::Unreadable(path, error) => write!(f, "{} cannot be read: {error}", path.display()),
        }
    }
}

/// Follows sources that grow.
pub struct Follower {
    log: Log,
    directories: Vec<Directory>,
    tails: Vec<Tail>,
    /// By number; `None` once it has ended.
    pipes: Vec<Option<Scan>>,
    chunks: Receiver<Chunk>,
    /// One that has come while it was waited for.
    waiting: Option<Chunk>,
    /// Whether the last poll has left something.
    behind: bool,
}

/// What all streams together hold so far.
struct Log {
    builder: TraceBuilder,
    complaints: Complaints,
    decoder: Decoder,
    block: Block,
    bytes: u64,
    streams: u32,
    buffer: Vec<u8>,
}

/// A stream from its start on.
struct Scan {
    number: u32,
    source: Arc<str>,
    scanner: Scanner,
    offset: u64,
}

struct Directory {
    path: PathBuf,
    /// Its logs that are followed already.
    known: HashSet<PathBuf>,
    /// Whether it was said that there is nothing to read.
    said: bool,
}

/// A file that grows.
struct Tail {
    path: PathBuf,
    state: State,
}

enum State {
    Closed {
        /// Whether it was said that it cannot be opened.
        said: bool,
    },
    Open(Open),
    /// A packed file that is read once.
    Packed(Stream, Scan),
    /// Nothing will come any more.
    Ended,
}

struct Open {
    file: File,
    /// Device and inode. As long as the file is open no other one gets them.
    identity: (u64, u64),
    /// How much of it was read.
    read: u64,
    /// The first bytes, as long as they do not say whether it is packed.
    head: Option<Vec<u8>>,
    scan: Scan,
}

/// A piece of a pipe.
struct Chunk {
    pipe: usize,
    what: Piece,
}

enum Piece {
    Bytes(Vec<u8>),
    Ended,
    Unreadable,
}

impl Follower {
    /// Follows all sources; nothing is read yet. Threads read pipes, standard input and named ones.
    ///
    /// # Errors
    /// If a source is not there or cannot be opened. A directory without logs is none: some may come.
    pub fn new(sources: &[Source], keep: Keep) -> Result<Follower, Error> {
        let (sender, chunks) = sync_channel(CHUNKS_MAX);
        let mut follower = Follower {
            log: Log {
                builder: TraceBuilder::new(),
                complaints: Complaints::default(),
                decoder: Decoder::new(keep),
                block: Block::default(),
                bytes: 0,
                streams: 0,
                buffer: vec![0; BLOCK_BYTES],
            },
            directories: Vec::new(),
            tails: Vec::new(),
            pipes: Vec::new(),
            chunks,
            waiting: None,
            behind: false,
        };
        for source in sources {
            let path = match source {
                Source::Path(path) => path,
                Source::Stdin => {
                    follower.pump("-", &sender, || Ok(Box::new(io::stdin())));
                    continue;
                }
                Source::Reader(reader) => {
                    let stream = reader.take()?;
                    follower.pump(reader.name(), &sender, || Ok(stream));
                    continue;
                }
            };
            let failed = |error| Error::new(path, ErrorKind::Open(error));
            let facts = path.metadata().map_err(failed)?;
            if facts.is_dir() {
                list(path).map_err(failed)?;
                let known = HashSet::new();
                follower.directories.push(Directory { path: path.clone(), known, said: false });
            } else if facts.is_file() {
                let state = State::Open(follower.log.open(path).map_err(failed)?);
                follower.tails.push(Tail { path: path.clone(), state });
            } else {
                let name = path.display().to_string();
                let path = path.clone();
                follower.pump(&name, &sender, move || Ok(Box::new(File::open(path)?)));
            }
        }
        Ok(follower)
    }

    /// Reads a pipe to its end, beside whatever else is done.
    fn pump(
        &mut self,
        name: &str,
        sender: &SyncSender<Chunk>,
        open: impl FnOnce() -> io::Result<Stream> + Send + 'static,
    ) {
        let (pipe, sender) = (self.pipes.len(), sender.clone());
        let scan = self.log.begin(name);
        self.pipes.push(Some(scan));
        let read = move || {
            // Nobody may be there to hear it: the follower is gone, and so is what the thread is for.
            let send = |what| sender.send(Chunk { pipe, what });
            let pass_on = || -> io::Result<()> {
                let mut stream = unpack(open()?)?;
                loop {
                    let mut bytes = vec![0; BLOCK_BYTES];
                    match stream.read(&mut bytes) {
                        Ok(0) => return Ok(()),
                        Ok(read) => bytes.truncate(read),
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                        Err(error) => return Err(error),
                    }
                    if send(Piece::Bytes(bytes)).is_err() {
                        return Ok(());
                    }
                }
            };
            let _ = match pass_on() {
                Ok(()) => send(Piece::Ended),
                Err(_) => send(Piece::Unreadable),
            };
        };
        let _ = thread::Builder::new().name("pipe".to_owned()).spawn(read);
    }

    /// Reads what has come since the last time, and says how many bytes that is. What is to be known about the sources
    /// is given to `notice`.
    pub fn poll(&mut self, notice: &mut dyn FnMut(Notice)) -> u64 {
        let before = self.log.bytes;
        for directory in &mut self.directories {
            directory.look(&mut self.tails, notice);
        }
        let mut budget = POLL_BYTES_MAX;
        for tail in &mut self.tails {
            tail.read(&mut self.log, &mut budget, notice);
        }
        while budget > 0
            && let Some(Chunk { pipe, what }) = self.waiting.take().or_else(|| self.chunks.try_recv().ok())
        {
            let Some(scan) = &mut self.pipes[pipe] else { continue };
            match what {
                Piece::Bytes(bytes) => {
                    budget = budget.saturating_sub(bytes.len());
                    self.log.take(scan, &bytes);
                    continue;
                }
                Piece::Ended => {}
                Piece::Unreadable => self.log.unreadable(scan),
            }
            if let Some(scan) = self.pipes[pipe].take() {
                self.log.end(scan);
            }
        }
        self.behind = budget == 0;
        self.log.bytes - before
    }

    /// Waits until there may be something to [`Follower::poll`], at most for [`POLL_INTERVAL`].
    pub fn wait(&mut self) {
        if self.behind || self.waiting.is_some() {
            return;
        }
        if self.pipes.iter().all(Option::is_none) {
            thread::sleep(POLL_INTERVAL);
            return;
        }
        match self.chunks.recv_timeout(POLL_INTERVAL) {
            Ok(chunk) => self.waiting = Some(chunk),
            Err(RecvTimeoutError::Timeout) => {}
            // No thread could be had, or it is gone without a word.
            Err(RecvTimeoutError::Disconnected) => {
                for pipe in 0..self.pipes.len() {
                    if let Some(mut scan) = self.pipes[pipe].take() {
                        self.log.unreadable(&mut scan);
                        self.log.end(scan);
                    }
                }
            }
        }
    }

    /// Whether nothing can come any more: all sources are pipes that have ended, or packed.
    pub fn is_ended(&self) -> bool {
        self.directories.is_empty()
            && self.tails.iter().all(|tail| matches!(tail.state, State::Ended))
            && self.pipes.iter().all(Option::is_none)
    }

    /// What is known by now. It takes time and memory as the log does so far.
    pub fn snapshot(&self) -> Reading {
        let Log { builder, complaints, bytes, .. } = &self.log;
        Reading { trace: builder.clone().finish(), complaints: complaints.clone(), bytes: *bytes }
    }

    /// What was known in the end: lines that have no end yet are taken as they are.
    pub fn finish(self) -> Reading {
        let Follower { mut log, tails, pipes, .. } = self;
        for tail in tails {
            match tail.state {
                State::Open(open) => log.close(open),
                State::Packed(_, scan) => log.end(scan),
                State::Closed { .. } | State::Ended => {}
            }
        }
        pipes.into_iter().flatten().for_each(|scan| log.end(scan));
        let Log { builder, complaints, bytes, .. } = log;
        Reading { trace: builder.finish(), complaints, bytes }
    }
}

impl Log {
    fn begin(&mut self, source: &str) -> Scan {
        let number = self.streams;
        self.streams += 1;
        Scan { number, source: source.into(), scanner: Scanner::new(), offset: 0 }
    }

    fn open(&mut self, path: &Path) -> io::Result<Open> {
        let file = File::open(path)?;
        let facts = file.metadata()?;
        let scan = self.begin(&path.display().to_string());
        Ok(Open { file, identity: (facts.dev(), facts.ino()), read: 0, head: Some(Vec::new()), scan })
    }

    fn take(&mut self, scan: &mut Scan, bytes: &[u8]) {
        self.block.begin(scan.scanner.held_from());
        self.decoder.part(&mut self.block, &mut scan.scanner, bytes);
        scan.offset += bytes.len() as u64;
        self.bytes += bytes.len() as u64;
        self.deliver(scan);
    }

    /// Adds that a stream goes on beyond what can be read.
    fn unreadable(&mut self, scan: &mut Scan) {
        self.block.begin(scan.offset);
        self.block.unreadable(scan.offset);
        self.deliver(scan);
    }

    /// Adds what a stream's last bytes are, now that nothing follows.
    fn end(&mut self, mut scan: Scan) {
        let scanner = std::mem::take(&mut scan.scanner);
        self.block.begin(scanner.held_from());
        self.decoder.rest(&mut self.block, scanner);
        self.deliver(&scan);
    }

    fn close(&mut self, open: Open) {
        let Open { head, mut scan, .. } = open;
        self.take(&mut scan, &head.unwrap_or_default());
        self.end(scan);
    }

    fn deliver(&mut self, scan: &Scan) {
        self.builder.stream(scan.number);
        self.block.deliver(0, &scan.source, &mut self.builder, &mut self.complaints);
    }
}

impl Directory {
    /// Finds new logs.
    fn look(&mut self, tails: &mut Vec<Tail>, notice: &mut dyn FnMut(Notice)) {
        let logs = match list(&self.path) {
            Ok(logs) => logs,
            Err(error) => {
                if !std::mem::replace(&mut self.said, true) {
                    notice(Notice::Unreadable(self.path.clone(), error));
                }
                return;
            }
        };
        for path in logs {
            if self.known.insert(path.clone()) {
                tails.push(Tail { path, state: State::Closed { said: false } });
            }
        }
        if self.known.is_empty() && !std::mem::replace(&mut self.said, true) {
            notice(Notice::NoLogYet(self.path.clone()));
        }
    }
}

impl Tail {
    /// Reads what is there.
    fn read(&mut self, log: &mut Log, budget: &mut usize, notice: &mut dyn FnMut(Notice)) {
        while *budget > 0 {
            let again = match &mut self.state {
                State::Ended => false,
                State::Closed { said } => match log.open(&self.path) {
                    Ok(open) => {
                        self.state = State::Open(open);
                        true
                    }
                    Err(error) => {
                        if !std::mem::replace(said, true) {
                            notice(Notice::Unreadable(self.path.clone(), error));
                        }
                        false
                    }
                },
                State::Packed(..) => self.unpack(log, budget),
                State::Open(_) => self.grow(log, budget, notice),
            };
            if !again {
                return;
            }
        }
    }

    /// Reads on in a packed file, and says whether there is more to be done.
    fn unpack(&mut self, log: &mut Log, budget: &mut usize) -> bool {
        let State::Packed(stream, scan) = &mut self.state else { return false };
        let mut buffer = std::mem::take(&mut log.buffer);
        let read = stream.read(&mut buffer);
        match &read {
            Ok(read) => {
                *budget = budget.saturating_sub(*read);
                log.take(scan, &buffer[..*read]);
            }
            Err(_) => log.unreadable(scan),
        }
        log.buffer = buffer;
        if matches!(read, Ok(1..)) {
            return true;
        }
        if let State::Packed(_, scan) = std::mem::replace(&mut self.state, State::Ended) {
            log.end(scan);
        }
        false
    }

    /// Reads on in a file, and says whether there is more to be done.
    fn grow(&mut self, log: &mut Log, budget: &mut usize, notice: &mut dyn FnMut(Notice)) -> bool {
        let State::Open(open) = &mut self.state else { return false };
        // Looked at before the last bytes are read: a file that was replaced gets no more.
        let replaced = self.path.metadata().is_ok_and(|facts| (facts.dev(), facts.ino()) != open.identity);
        if open.file.metadata().is_ok_and(|facts| facts.len() < open.read) {
            notice(Notice::Cut(self.path.clone()));
            self.leave_for(State::Closed { said: false }, log);
            return true;
        }
        let mut buffer = std::mem::take(&mut log.buffer);
        let read = open.file.read(&mut buffer);
        let again = match read {
            Ok(0) if replaced => {
                notice(Notice::Replaced(self.path.clone()));
                self.leave_for(State::Closed { said: false }, log);
                true
            }
            Ok(0) => false,
            Ok(read) => {
                *budget = budget.saturating_sub(read);
                open.read += read as u64;
                self.took(&buffer[..read], log, notice);
                true
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => true,
            Err(error) => {
                log.unreadable(&mut open.scan);
                notice(Notice::Unreadable(self.path.clone(), error));
                self.leave_for(State::Ended, log);
                false
            }
        };
        log.buffer = buffer;
        again
    }

    /// Takes the next bytes of a file, once its first ones say that it is not packed.
    fn took(&mut self, bytes: &[u8], log: &mut Log, notice: &mut dyn FnMut(Notice)) {
        let State::Open(open) = &mut self.state else { return };
        let Some(head) = &mut open.head else { return log.take(&mut open.scan, bytes) };
        head.extend_from_slice(bytes);
        match is_packed(head) {
            None => {}
            Some(false) => {
                log.take(&mut open.scan, head);
                open.head = None;
            }
            Some(true) => {
                notice(Notice::Packed(self.path.clone()));
                let unpacked = open.file.rewind().and_then(|()| unpack(Box::new(open.file.try_clone()?)));
                open.head = None;
                match (unpacked, std::mem::replace(&mut self.state, State::Ended)) {
                    (Ok(stream), State::Open(open)) => self.state = State::Packed(stream, open.scan),
                    (Err(_), State::Open(mut open)) => {
                        log.unreadable(&mut open.scan);
                        log.close(open);
                    }
                    _ => {}
                }
            }
        }
    }

    /// Leaves an open file as it is now for good.
    fn leave_for(&mut self, state: State, log: &mut Log) {
        if let State::Open(open) = std::mem::replace(&mut self.state, state) {
            log.close(open);
        }
    }
}
