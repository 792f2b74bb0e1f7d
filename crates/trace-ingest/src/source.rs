//! Where the bytes come from, and the whole way from there to a trace.

use crate::complaint::{Complaints, Reason};
use crate::scan::{Found, Scanner};
use flate2::read::MultiGzDecoder;
use simpler_trace_model::{Admission, Trace, TraceBuilder};
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How much is read at once: enough that the calls cost nothing, little enough to stay in cache.
const BLOCK_BYTES: usize = 256 * 1024;

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Something to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A file, or a directory that stands for its `host.*.log` in the order of their names.
    Path(PathBuf),
    /// Standard input.
    Stdin,
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
}

impl Error {
    fn new(source: &Path, kind: ErrorKind) -> Error {
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
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.kind {
            ErrorKind::Open(error) => Some(error),
            ErrorKind::NoLogs => None,
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

/// Reads all sources, in their order, as one log.
///
/// # Errors
/// If a source cannot be opened, or is a directory without logs. Whatever is wrong inside a source is a
/// complaint, not an error.
pub fn read(sources: &[Source]) -> Result<Reading, Error> {
    // All are looked for before the first is read: gigabytes later is too late to say that one is missing.
    let files = sources.iter().map(expand).collect::<Result<Vec<_>, _>>()?;
    let mut builder = TraceBuilder::new();
    let mut complaints = Complaints::default();
    let mut bytes = 0;
    for file in files.into_iter().flatten() {
        let name: Arc<str> = file.to_string().into();
        bytes += ingest(&name, file.open()?, &mut builder, &mut complaints);
    }
    Ok(Reading { trace: builder.finish(), complaints, bytes })
}

/// One stream of bytes.
enum Input {
    File(PathBuf),
    Stdin,
}

impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Input::File(path) => path.display().fmt(f),
            Input::Stdin => f.write_str("-"),
        }
    }
}

type Stream = Box<dyn Read>;

impl Input {
    fn open(&self) -> Result<Stream, Error> {
        match self {
            Input::File(path) => match File::open(path) {
                Ok(file) => Ok(Box::new(file)),
                Err(error) => Err(Error::new(path, ErrorKind::Open(error))),
            },
            Input::Stdin => Ok(Box::new(io::stdin().lock())),
        }
    }
}

/// The streams that a source stands for.
fn expand(source: &Source) -> Result<Vec<Input>, Error> {
    let Source::Path(path) = source else { return Ok(vec![Input::Stdin]) };
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
fn list(directory: &Path) -> io::Result<Vec<PathBuf>> {
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

/// Reads one stream to its end and returns how many bytes it had, unpacked.
fn ingest(name: &Arc<str>, stream: Stream, builder: &mut TraceBuilder, complaints: &mut Complaints) -> u64 {
    let mut scanner = Scanner::new();
    let mut block = vec![0; BLOCK_BYTES];
    let mut bytes = 0;
    let mut take = |offset: u64, found: Found<'_>| admit(builder, complaints, name, offset, found);
    match unpack(stream) {
        Ok(mut stream) => loop {
            match stream.read(&mut block) {
                Ok(0) => break,
                Ok(n) => {
                    bytes += n as u64;
                    scanner.push(&block[..n], &mut take);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    take(bytes, Found::Fault(Reason::Unreadable));
                    break;
                }
            }
        },
        Err(_) => take(0, Found::Fault(Reason::Unreadable)),
    }
    scanner.finish(&mut take);
    bytes
}

/// The plain bytes of a stream that may be packed, told by its first bytes and not by its name.
fn unpack(mut stream: Stream) -> io::Result<Stream> {
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

fn admit(
    builder: &mut TraceBuilder,
    complaints: &mut Complaints,
    source: &Arc<str>,
    offset: u64,
    found: Found<'_>,
) {
    let reason = match found {
        Found::Span(span, mono_ns) => {
            builder.counts_mut().heads += 1;
            match builder.span(&span, mono_ns) {
                Admission::Kept => return,
                Admission::Duplicate => Reason::Duplicate,
                Admission::Impossible => Reason::ImpossibleTime,
            }
        }
        Found::Anchor(anchor) => return builder.anchor(anchor),
        Found::Host(identity) => return builder.host_identity(&identity),
        Found::DeviceAnchor(anchor) => return builder.device_anchor(anchor),
        Found::Drops(report) => return builder.drop_report(&report),
        Found::JoinedLine => {
            builder.counts_mut().joined_lines += 1;
            return;
        }
        Found::Fault(reason) => reason,
    };
    let counts = builder.counts_mut();
    match reason {
        Reason::Torn => (counts.heads, counts.torn) = (counts.heads + 1, counts.torn + 1),
        Reason::Malformed(_) => (counts.heads, counts.malformed) = (counts.heads + 1, counts.malformed + 1),
        Reason::UnknownVersion(_) => {
            (counts.heads, counts.unknown_version) = (counts.heads + 1, counts.unknown_version + 1);
        }
        Reason::TruncatedRecord => counts.truncated_records += 1,
        Reason::Quoted => counts.quoted += 1,
        Reason::DamagedAnchor => counts.damaged_anchors += 1,
        Reason::DamagedHostIdentity => counts.damaged_host_identities += 1,
        Reason::DamagedDropReport => counts.damaged_drop_reports += 1,
        Reason::Duplicate
        | Reason::ImpossibleTime
        | Reason::OverlongAttributes
        | Reason::InconsistentDropReport => {}
        Reason::Unreadable => counts.unreadable += 1,
    }
    complaints.push(source, offset, reason);
}
