//! Where the bytes come from, and the whole way from there to a trace.
//!
//! Streams are cut into blocks of whole lines, which threads decode side by side: no record goes on in the next line. A
//! block's records are delivered in the order of the log, by whichever thread finds that it is their turn, so the
//! result is the same for any number of threads.

use crate::block::{Block, Decoder};
use crate::complaint::Complaints;
use crate::progress::{Counted, Progress};
use crate::scan::Scanner;
use flate2::read::MultiGzDecoder;
use memchr::{memchr, memrchr};
use simpler_trace_model::{Keep, Trace, TraceBuilder};
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How much is read and decoded at once: enough that the calls cost nothing, little enough to stay in cache.
pub(crate) const BLOCK_BYTES: usize = 256 * 1024;

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Something to read.
#[derive(Debug)]
pub enum Source {
    /// A file, or a directory that stands for its `host.*.log` in the order of their names.
    Path(PathBuf),
    /// Standard input.
    Stdin,
    /// A stream that somebody has opened already.
    Reader(Reader),
}

/// A stream that somebody has opened already. It can be read once.
pub struct Reader {
    name: Arc<str>,
    stream: Mutex<Option<Stream>>,
}

impl Reader {
    /// A stream, and what it is called in complaints.
    pub fn new(name: &str, stream: impl Read + Send + 'static) -> Reader {
        Reader { name: name.into(), stream: Mutex::new(Some(Box::new(stream))) }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// # Errors
    /// If it was taken before.
    pub(crate) fn take(&self) -> Result<Stream, Error> {
        unpoisoned(self.stream.lock()).take().ok_or_else(|| {
            let read = io::Error::other("it has been read already");
            Error { source: self.name.to_string(), kind: ErrorKind::Open(read) }
        })
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reader").field(&self.name).finish()
    }
}

impl Source {
    /// A file or a directory.
    pub fn path(path: impl Into<PathBuf>) -> Source {
        Source::Path(path.into())
    }

    /// What the user typed: `-` is standard input, anything else a path.
    pub fn argument(argument: impl Into<PathBuf>) -> Source {
        let path = argument.into();
        if path.as_os_str() == "-" { Source::Stdin } else { Source::Path(path) }
    }
}

/// A source that cannot be used at all.
#[derive(Debug)]
pub struct Error {
    source: String,
    kind: ErrorKind,
}

/// Why a source cannot be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// It cannot be opened or listed.
    Open(io::Error),
    /// It is a directory without any `host.*.log`.
    NoLogs,
    /// Whoever asked for it wants it no more.
    Interrupted,
}

impl Error {
    pub(crate) fn new(source: &Path, kind: ErrorKind) -> Error {
        Error { source: source.display().to_string(), kind }
    }

    /// Why.
    pub fn kind(&self) -> &ErrorKind {
        &self.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            ErrorKind::Open(error) => write!(f, "cannot read {}: {error}", self.source),
            ErrorKind::NoLogs => {
                write!(f, "{} is a directory but holds no host.*.log files", self.source)
            }
            ErrorKind::Interrupted => write!(f, "the reading of {} was interrupted", self.source),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.kind {
            ErrorKind::Open(error) => Some(error),
            ErrorKind::NoLogs | ErrorKind::Interrupted => None,
        }
    }
}

/// What all sources together hold.
pub struct Reading {
    /// The spans and what follows from them.
    pub trace: Trace,
    /// What was wrong with the bytes.
    pub complaints: Complaints,
    /// How many bytes were read, unpacked.
    pub bytes: u64,
}

impl Reading {
    /// Whether there was no trace of a span record at all, not even a damaged one.
    pub fn has_no_markers(&self) -> bool {
        self.trace.counts().heads == 0
    }
}

/// How a log is read.
#[derive(Clone, Default)]
pub struct Options<'a> {
    /// Which attributes the trace will hold.
    pub keep: Keep,
    /// How many threads decode; one for each processor if that is not said. It makes no difference to the result.
    pub threads: Option<NonZeroUsize>,
    /// Where it is noted how far the reading has come, for whoever looks meanwhile.
    pub progress: Option<Arc<Progress>>,
    /// Asked about every [`ASK_INTERVAL`] by the thread that reads: as soon as it says yes, nothing more is read.
    pub interrupted: Option<&'a dyn Fn() -> bool>,
}

/// How often somebody is asked whether a reading is still wanted: nobody notices a pause of so long, and it costs
/// nothing.
pub const ASK_INTERVAL: Duration = Duration::from_millis(50);

/// Reads all sources, in their order, as one log.
///
/// # Errors
/// If a source cannot be opened, or is a directory without logs, or the reading was interrupted. Whatever is wrong inside
/// a source is a complaint, not an error.
pub fn read(sources: &[Source]) -> Result<Reading, Error> {
    read_with(sources, Options::default())
}

/// As [`read`], with options.
///
/// # Errors
/// As [`read`].
pub fn read_with(sources: &[Source], options: Options<'_>) -> Result<Reading, Error> {
    // All are looked for before the first is read: gigabytes later is too late to say that one is missing.
    let files = sources.iter().map(expand).collect::<Result<Vec<_>, _>>()?;
    let inputs: Vec<Input> = files.into_iter().flatten().collect();
    let bytes_known: u64 = inputs.iter().map(Input::len).sum();
    let processors = || thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let threads = options.threads.unwrap_or_else(|| match bytes_known {
        ..SMALL_BYTES => NonZeroUsize::MIN,
        _ => processors().min(THREADS_MAX),
    });
    if let Some(progress) = &options.progress
        && inputs.iter().all(Input::has_len)
    {
        progress.expect(bytes_known);
    }
    let feed = Mutex::new(Feed::new(inputs, options.progress));
    let mut builder = TraceBuilder::new();
    builder
        .reserve(usize::try_from(bytes_known / SPAN_BYTES).map_or(SPANS_MAX, |spans| spans.min(SPANS_MAX)));
    let merge = Mutex::new(Merge { builder, complaints: Complaints::default(), next: 0 });
    let waiting = Mutex::new(BTreeMap::new());
    let keep = options.keep;
    let work = |number, interrupted| work(number, keep, threads.get(), &feed, &merge, &waiting, interrupted);
    thread::scope(|scope| {
        for number in 1..threads.get() {
            // A thread that cannot be had is one fewer; this one does it all if need be.
            let _ = thread::Builder::new().spawn_scoped(scope, move || work(number, None));
        }
        work(0, options.interrupted);
    });
    let feed = unpoisoned(feed.into_inner());
    if let Some(error) = feed.error {
        return Err(error);
    }
    let Merge { builder, complaints, .. } = unpoisoned(merge.into_inner());
    Ok(Reading { trace: builder.finish(), complaints, bytes: feed.bytes })
}

/// Inputs of fewer bytes are read by one thread: a second one would only have to be started.
const SMALL_BYTES: u64 = 16 * 1024 * 1024;

/// A record is rarely shorter: for so many bytes of a file there is room for a span before they are read. Memory is
/// taken where spans come.
const SPAN_BYTES: u64 = 160;

/// No more room than this beforehand, some 600 MB of addresses.
const SPANS_MAX: usize = 1 << 24;

/// More threads than this would wait for each other.
const THREADS_MAX: NonZeroUsize = NonZeroUsize::MIN.saturating_add(15);

/// How many blocks for each thread may wait for one before them, until who made them waits too.
const WAITING_PER_THREAD_MAX: usize = 4;

/// What the blocks make, one after the other.
struct Merge {
    builder: TraceBuilder,
    complaints: Complaints,
    /// The number of the next block.
    next: u64,
}

/// A block that may have to wait for its turn.
struct Ready {
    block: Block,
    decoder: usize,
    source: Arc<str>,
}

type Waiting = Mutex<BTreeMap<u64, Ready>>;

/// Decodes blocks until there are none, and delivers those whose turn it is.
fn work(
    number: usize,
    keep: Keep,
    threads: usize,
    feed: &Mutex<Feed>,
    merge: &Mutex<Merge>,
    waiting: &Waiting,
    interrupted: Option<&dyn Fn() -> bool>,
) {
    let mut decoder = Decoder::new(keep);
    let mut text = Text::default();
    let mut spare = Vec::new();
    let mut asked = Instant::now();
    loop {
        if let Some(interrupted) = interrupted
            && asked.elapsed() >= ASK_INTERVAL
        {
            asked = Instant::now();
            if interrupted() {
                unpoisoned(feed.lock()).interrupt();
            }
        }
        let mut block = spare.pop().unwrap_or_default();
        let Some(next) = unpoisoned(feed.lock()).next(&mut text, &mut decoder, &mut block) else { break };
        if next.is_lines {
            decoder.lines(&mut block, text.as_slice());
        }
        if let Some(offset) = next.unreadable_at {
            block.unreadable(offset);
        }
        let many = {
            let mut waiting = unpoisoned(waiting.lock());
            waiting.insert(next.number, Ready { block, decoder: number, source: next.source });
            waiting.len() > threads * WAITING_PER_THREAD_MAX
        };
        let turn = if many { Some(unpoisoned(merge.lock())) } else { merge.try_lock().ok() };
        if let Some(mut merge) = turn {
            merge.deliver(waiting, &mut spare);
        }
    }
    // Whoever is last finds all that others have left.
    unpoisoned(merge.lock()).deliver(waiting, &mut spare);
}

impl Merge {
    /// Delivers the blocks whose turn it is.
    fn deliver(&mut self, waiting: &Waiting, spare: &mut Vec<Block>) {
        loop {
            let Some(ready) = unpoisoned(waiting.lock()).remove(&self.next) else { return };
            let Ready { block, decoder, source } = ready;
            block.deliver(decoder, &source, &mut self.builder, &mut self.complaints);
            self.next += 1;
            if spare.len() < WAITING_PER_THREAD_MAX {
                spare.push(block);
            }
        }
    }
}

/// A panic of another thread is passed on when that is joined; until then its state is as good as any.
fn unpoisoned<T>(result: Result<T, PoisonError<T>>) -> T {
    result.unwrap_or_else(PoisonError::into_inner)
}

/// The streams, cut into blocks of whole lines.
struct Feed {
    inputs: std::vec::IntoIter<Input>,
    open: Option<Open>,
    /// Blocks so far.
    blocks: u64,
    /// Bytes of all streams so far.
    bytes: u64,
    error: Option<Error>,
    progress: Option<Arc<Progress>>,
}

/// The stream that is being read.
struct Open {
    source: Arc<str>,
    stream: Stream,
    /// Where `held` begins.
    offset: u64,
    /// What was read but is in no block yet.
    held: Vec<u8>,
    /// Reads a line that is too long to be held.
    long: Option<Scanner>,
    ended: Option<Ended>,
}

/// How a stream ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ended {
    Whole,
    Unreadable,
}

/// What the next block is.
struct Next {
    number: u64,
    source: Arc<str>,
    /// Whether there are lines to be decoded; if not, the block is.
    is_lines: bool,
    /// Where the stream could not be read further.
    unreadable_at: Option<u64>,
}

impl Feed {
    fn new(inputs: Vec<Input>, progress: Option<Arc<Progress>>) -> Feed {
        Feed { inputs: inputs.into_iter(), open: None, blocks: 0, bytes: 0, error: None, progress }
    }

    /// The next block: lines in `text`, or, of a line that goes on and on, decoded into `block`. `None` at the end of
    /// all streams, or where one cannot be opened.
    fn next(&mut self, block_text: &mut Text, decoder: &mut Decoder, block: &mut Block) -> Option<Next> {
        if self.error.is_some() {
            return None;
        }
        let mut open = match self.open.take() {
            Some(open) => open,
            None => self.open_next()?,
        };
        let start = open.offset;
        block.begin(start);
        open.fill(block_text);
        let text = block_text.as_slice();
        let end = start + text.len() as u64;
        let lines = match open.ended {
            Some(_) => text.len(),
            None => memrchr(b'\n', text).map_or(0, |at| at + 1),
        };
        let is_lines = open.long.is_none() && lines > 0;
        if let Some(mut scanner) = open.long.take() {
            // The rest of the long line, and no more.
            let line = memchr(b'\n', text).map_or(text.len(), |at| at + 1);
            decoder.part(block, &mut scanner, &text[..line]);
            open.held.extend_from_slice(&text[line..]);
            match text[..line].last() {
                Some(b'\n') => {}
                _ if open.ended.is_some() => decoder.rest(block, scanner),
                _ => open.long = Some(scanner),
            }
        } else if is_lines {
            open.held.extend_from_slice(&text[lines..]);
            block_text.len = lines;
        } else if !text.is_empty() {
            let mut scanner = Scanner::new();
            decoder.part(block, &mut scanner, text);
            open.long = Some(scanner);
        }
        open.offset = end - open.held.len() as u64;
        let source = Arc::clone(&open.source);
        let mut unreadable_at = None;
        match open.ended {
            Some(ended) if open.held.is_empty() => {
                self.bytes += end;
                unreadable_at = (ended == Ended::Unreadable).then_some(end);
            }
            _ => self.open = Some(open),
        }
        let number = self.blocks;
        self.blocks += 1;
        Some(Next { number, source, is_lines, unreadable_at })
    }

    /// Lets nobody read on.
    fn interrupt(&mut self) {
        let source = self.open.as_ref().map_or_else(|| "the log".to_owned(), |open| open.source.to_string());
        self.error.get_or_insert(Error { source, kind: ErrorKind::Interrupted });
    }

    /// The next stream; `None` if there is none, or it cannot be opened.
    fn open_next(&mut self) -> Option<Open> {
        let input = self.inputs.next()?;
        let source = input.to_string().into();
        let (stream, ended) = match input.open() {
            Ok(stream) => match unpack(Counted::wrap(stream, self.progress.as_ref())) {
                Ok(stream) => (stream, None),
                Err(_) => (Box::new(io::empty()) as Stream, Some(Ended::Unreadable)),
            },
            Err(error) => {
                self.error = Some(error);
                return None;
            }
        };
        Some(Open { source, stream, offset: 0, held: Vec::new(), long: None, ended })
    }
}

impl Open {
    /// Puts into `text` what was held and the stream's next bytes, unless it has ended.
    fn fill(&mut self, text: &mut Text) {
        text.len = 0;
        text.room(self.held.len()).copy_from_slice(&self.held);
        text.len = self.held.len();
        self.held.clear();
        let mut wanted = if self.ended.is_some() { 0 } else { BLOCK_BYTES };
        while wanted > 0 {
            match self.stream.read(text.room(wanted)) {
                Ok(0) => (self.ended, wanted) = (Some(Ended::Whole), 0),
                Ok(read) => (text.len, wanted) = (text.len + read, wanted - read),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => (self.ended, wanted) = (Some(Ended::Unreadable), 0),
            }
        }
    }
}

/// Bytes that blocks are read into, one after the other. What is written once stays, so that no later block is
/// zeroed before it is read, and each is one system call.
#[derive(Default)]
struct Text {
    bytes: Vec<u8>,
    /// How many of them are this block's.
    len: usize,
}

impl Text {
    fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Room for so many more bytes.
    fn room(&mut self, more: usize) -> &mut [u8] {
        let end = self.len + more;
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        &mut self.bytes[self.len..end]
    }
}

/// One stream of bytes.
enum Input {
    File(PathBuf),
    Stdin,
    Reader(Arc<str>, Stream),
}

impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Input::File(path) => path.display().fmt(f),
            Input::Stdin => f.write_str("-"),
            Input::Reader(name, _) => f.write_str(name),
        }
    }
}

pub(crate) type Stream = Box<dyn Read + Send>;

impl Input {
    /// How many bytes it has as it lies there, as far as can be told; a pipe may have any number.
    fn len(&self) -> u64 {
        match self {
            Input::File(path) => path.metadata().map_or(0, |facts| facts.len()),
            Input::Stdin | Input::Reader(..) => SMALL_BYTES,
        }
    }

    /// Whether [`Input::len`] is what it has.
    fn has_len(&self) -> bool {
        matches!(self, Input::File(path) if path.is_file())
    }

    fn open(self) -> Result<Stream, Error> {
        match self {
            Input::File(path) => match File::open(&path) {
                Ok(file) => Ok(Box::new(file)),
                Err(error) => Err(Error::new(&path, ErrorKind::Open(error))),
            },
            Input::Stdin => Ok(Box::new(io::stdin())),
            Input::Reader(_, stream) => Ok(stream),
        }
    }
}

/// The streams that a source stands for.
fn expand(source: &Source) -> Result<Vec<Input>, Error> {
    let path = match source {
        Source::Path(path) => path,
        Source::Stdin => return Ok(vec![Input::Stdin]),
        Source::Reader(reader) => return Ok(vec![Input::Reader(reader.name().into(), reader.take()?)]),
    };
    let open = |error| Error::new(path, ErrorKind::Open(error));
    if !path.metadata().map_err(open)?.is_dir() {
        return Ok(vec![Input::File(path.clone())]);
    }
    let logs = list(path).map_err(open)?;
    if logs.is_empty() {
        return Err(Error::new(path, ErrorKind::NoLogs));
    }
    Ok(logs.into_iter().map(Input::File).collect())
}

/// The `host.*.log` files of a directory, sorted.
pub(crate) fn list(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut logs = Vec::new();
    for entry in directory.read_dir()? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.as_encoded_bytes();
        let is_log = name.strip_prefix(b"host.").is_some_and(|rest| rest.ends_with(b".log"));
        if is_log && entry.path().is_file() {
            logs.push(entry.path());
        }
    }
    logs.sort_unstable();
    Ok(logs)
}

/// Whether a stream is packed, by its first bytes and not by its name; `None` if there are too few to tell.
pub(crate) fn is_packed(head: &[u8]) -> Option<bool> {
    let magics = [&GZIP_MAGIC[..], &ZSTD_MAGIC];
    if magics.iter().any(|magic| head.starts_with(magic)) {
        return Some(true);
    }
    (!magics.iter().any(|magic| magic.starts_with(head))).then_some(false)
}

/// The plain bytes of a file that may be packed.
pub(crate) fn open_unpacked(path: &Path) -> io::Result<Stream> {
    unpack(Box::new(File::open(path)?))
}

/// The plain bytes of a stream that may be packed by gzip or zstd, told by its first bytes.
///
/// # Errors
/// If the first bytes cannot be read, or no decoder can be had.
pub fn unpack(mut stream: Box<dyn Read + Send>) -> io::Result<Box<dyn Read + Send>> {
    let mut magic = Vec::with_capacity(ZSTD_MAGIC.len());
    stream.by_ref().take(ZSTD_MAGIC.len() as u64).read_to_end(&mut magic)?;
    let packing = magic.clone();
    let stream = io::Cursor::new(magic).chain(stream);
    Ok(if packing.starts_with(&GZIP_MAGIC) {
        Box::new(MultiGzDecoder::new(io::BufReader::with_capacity(BLOCK_BYTES, stream)))
    } else if packing.starts_with(&ZSTD_MAGIC) {
        Box::new(zstd::stream::read::Decoder::new(stream)?)
    } else {
        Box::new(stream)
    })
}
