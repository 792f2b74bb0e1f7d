//! Recovery: what a process that was killed had accepted and not yet written is put into its log, exactly once.
//!
//! The process's ring says how far its writer had come: the first position that was not dealt with, and the size
//! that the log file had then. The writer says so after each write and before it gives slots back, so a record is
//! in the ring until it is known to be in the file, and whatever the writer appended after it had said so is the
//! rendering of the records from that position on, in their order. Rendering is a function of what is in the ring.
//! So the lines behind that size are compared with what the records render to; those that are there already are
//! passed over, a last record that is there in part is cut off, and the rest is appended.
//!
//! Recovery notes how far it has come in the same place and in the same way. So one that is interrupted, by a kill or
//! by a full disk, is simply run again, and a ring is removed only when nothing is left to do. Two that run at once
//! wait for one another at the ring's lock.
//!
//! Only published records were accepted: a slot that was reserved, or half written when its thread died, is passed
//! over. Records that the process had counted as lost are told, as it would have done, by a drop report.
//!
//! A process that wrote to stderr or to a pipe left nothing behind by which one could tell what arrived; its records
//! are rendered on request ([`recover_stderr`]), each at least once.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use simpler_record_format::{
    DROP_REPORT_MARKER, DropReport, RECORD_BYTES, encode_drop_report, frame, parse_drop_report,
};

use crate::region::{Come, Region, parts};
use crate::rings::{Flaw, Holder, RingFile, RingName, Rings};
use crate::ticks::Knot;

/// What one `write` to the log carries at least, but for the last; after each one the progress is noted.
const APPEND_BYTES: usize = 64 * 1024;

/// How long the log's lock is waited for. A living process holds it for the time of a write.
const LOG_LOCK_WAIT: Duration = Duration::from_secs(2);

/// How long to rest between two looks at a lock.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// What every record begins with.
const RECORD_START: &[u8] = b"[mono_ns=";

/// What a recovery did.
#[derive(Debug, Default)]
pub struct Recovery {
    /// The dead processes whose rings are dealt with and gone.
    pub recovered: Vec<Recovered>,
    /// The rings that are left as they were, or as far as it went.
    pub refused: Vec<Refused>,
    /// The processes that live: theirs is theirs.
    pub living: Vec<i32>,
}

/// What was done for one dead process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// The process, as its pid namespace called it.
    pub pid: i32,
    /// Its log, `None` if it wrote to stderr.
    pub log: Option<PathBuf>,
    /// The records that were accepted and not written, and are now.
    pub records: u64,
    /// The bytes of a partial last record that were cut off.
    pub cut_bytes: u64,
    /// The records that the process lost and the log did not tell of, and does now.
    pub lost: u64,
}

/// A ring that could not be recovered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The process that the ring's name names.
    pub pid: i32,
    /// The ring's file.
    pub ring: PathBuf,
    /// Why, as the rest of a sentence that begins with the ring.
    pub why: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the ring of process {}, {}, {}", self.pid, self.ring.display(), self.why)
    }
}

/// Recovers the rings of all dead processes of this user whose logs lie in `directory`.
///
/// # Errors
///
/// When `directory` is no directory that can be read, or the folder of rings cannot be read or trusted. What is
/// wrong with a single ring is in the answer.
pub fn recover(directory: &Path) -> io::Result<Recovery> {
    let directory = directory.canonicalize()?;
    std::fs::read_dir(&directory)?;
    recover_all(&Wanted::Directory(directory), &mut |work| work.into_log())
}

/// Renders what dead processes of this user had accepted, whose destination was no file, to `out`, and removes their
/// rings. What was written just before a process died is there twice: each record at least once.
///
/// # Errors
///
/// When the folder of rings cannot be read or trusted, or `out` fails: then the ring whose records it was is kept.
pub fn recover_stderr(out: &mut dyn Write) -> io::Result<Recovery> {
    let mut failure = None;
    let recovery = recover_all(&Wanted::NoFile, &mut |work| {
        if failure.is_some() {
            return Err("is left: what came before it could not be written".to_owned());
        }
        check(&work.region, work.pid)?;
        work.into_stream(out).map_err(|error| {
            let why = format!("is kept: its records cannot be written: {error}");
            failure = Some(error);
            why
        })
    })?;
    match failure {
        Some(error) => Err(error),
        None => Ok(recovery),
    }
}

/// Which rings are meant.
enum Wanted {
    /// Those of processes whose log lies in this directory, a canonical path.
    Directory(PathBuf),
    /// Those of processes that wrote to what has no size.
    NoFile,
}

impl Wanted {
    fn includes(&self, region: &Region) -> bool {
        let log = region.log();
        match self {
            Wanted::Directory(directory) => log
                .filter(|_| !has_no_size(region))
                .and_then(|(path, ..)| path.parent().and_then(|parent| parent.canonicalize().ok()))
                .is_some_and(|parent| parent == *directory),
            Wanted::NoFile => log.is_none() || has_no_size(region),
        }
    }

    /// Whether a ring that does not say itself where its log is seems to be meant.
    fn includes_by_name(&self, name: &RingName) -> bool {
        match self {
            Wanted::Directory(directory) => directory.join(log_name(name.pid)).symlink_metadata().is_ok(),
            Wanted::NoFile => false,
        }
    }
}

/// Whether the writer has opened something that is no regular file, in the place of its log.
fn has_no_size(region: &Region) -> bool {
    region.log().is_some_and(|(_, _, inode)| inode != 0) && region.come().file_bytes.is_none()
}

/// The name of a process's log in its folder.
pub(crate) fn log_name(pid: i32) -> String {
    format!("host.{pid}.log")
}

fn recover_all(
    wanted: &Wanted,
    deal: &mut dyn FnMut(Work<'_>) -> Result<Recovered, String>,
) -> io::Result<Recovery> {
    let mut recovery = Recovery::default();
    let Some(rings) = Rings::open()? else { return Ok(recovery) };
    let names = rings.names()?;
    let mut living_logs = Vec::new();
    for name in &names {
        if let Ok(Some(ring)) = rings.ring(name)
            && let Ok(region) = ring.read_first(parts::HEAD_BYTES)
            && wanted.includes(&region)
            && ring.holder()? == Holder::Process
        {
            recovery.living.push(name.pid);
            living_logs.extend(region.log().map(|(_, device, inode)| (device, inode)));
        }
    }
    for name in &names {
        let outcome = match open_dead(&rings, name, wanted) {
            Ok(None) => continue,
            Ok(Some((ring, region))) => {
                deal(Work { ring: &ring, region, pid: name.pid, living: &living_logs }).and_then(
                    |recovered| {
                        rings.remove(name).map_err(|error| format!("cannot be removed: {error}"))?;
                        Ok(recovered)
                    },
                )
            }
            Err(Flaw::Unfinished) => {
                remove_unfinished(&rings, name);
                continue;
            }
            Err(flaw) if wanted.includes_by_name(name) => Err(flaw.to_string()),
            Err(_) => continue,
        };
        match outcome {
            Ok(recovered) => recovery.recovered.push(recovered),
            Err(why) => recovery.refused.push(Refused { pid: name.pid, ring: rings.path(name), why }),
        }
    }
    Ok(recovery)
}

/// A ring that is meant and whose process is dead, with its lock; `None` if it is none or gone by now.
fn open_dead(
    rings: &Rings,
    name: &RingName,
    wanted: &Wanted,
) -> Result<Option<(RingFile, Box<Region>)>, Flaw> {
    let Some(ring) = rings.ring(name)? else { return Ok(None) };
    let head = match ring.read_first(parts::HEAD_BYTES) {
        Ok(head) => head,
        // What is being made, or is a living process's of another version, is no matter of ours.
        Err(_) if ring.holder().is_ok_and(|holder| holder == Holder::Process) => return Ok(None),
        Err(flaw) => return Err(flaw),
    };
    if !wanted.includes(&head) || ring.holder().map_err(Flaw::Unreadable)? == Holder::Process {
        return Ok(None);
    }
    ring.lock().map_err(Flaw::Unreadable)?;
    if ring.is_removed().map_err(Flaw::Unreadable)? {
        return Ok(None);
    }
    let region = ring.read()?;
    Ok(Some((ring, region)))
}

/// Removes a ring that was never finished, if its process is known to be dead.
fn remove_unfinished(rings: &Rings, name: &RingName) {
    // SAFETY: signal 0 is no signal; the call only asks whether the process exists.
    let is_gone = name.is_of_this_namespace
        && unsafe { libc::kill(name.pid, 0) } != 0
        && io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH);
    if is_gone {
        // Should it fail, it stays: nothing is in it.
        let _ = rings.remove(name);
    }
}

/// How many rings of other processes a process looks at when it makes its own: what is left behind is taken away
/// sooner or later, and nobody's start waits for it.
const SWEEP_RINGS_MAX: usize = 16;

/// How long a dead process's ring is kept that holds nothing but spans that were open when it died: so long somebody
/// may ask (`simpler stacks`) where it was.
const OPEN_SPANS_KEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// Removes rings of dead processes that hold nothing: everything accepted is written, every loss is told, and no
/// span was open lately. Only before this process has a ring. Waits for nobody, and says nothing.
pub(crate) fn sweep() {
    let Ok(Some(rings)) = Rings::open() else { return };
    let Ok(names) = rings.names() else { return };
    // From a place of its own, so that rings which stay do not hide those behind them.
    let start = std::process::id() as usize % names.len().max(1);
    for name in names.iter().cycle().skip(start).take(SWEEP_RINGS_MAX.min(names.len())) {
        match is_dead_and_empty(&rings, name) {
            // The lock is held until the file is closed, after its name is gone.
            Ok(Some(_ring)) => drop(rings.remove(name)),
            Err(Flaw::Unfinished) => remove_unfinished(&rings, name),
            _ => {}
        }
    }
}

fn is_dead_and_empty(rings: &Rings, name: &RingName) -> Result<Option<RingFile>, Flaw> {
    let Some(ring) = rings.ring(name)? else { return Ok(None) };
    let is_empty = |region: &Region| {
        region.ring.finished() == region.ring.enqueued()
            && total(&region.dropped_by_reason()) <= region.reported.load(Ordering::Relaxed)
    };
    if !is_empty(&*ring.read_first(parts::HEAD_BYTES)?) || !ring.try_lock().map_err(Flaw::Unreadable)? {
        return Ok(None);
    }
    // Once more: until the lock was taken it may have lived.
    let is_left =
        !ring.is_removed().map_err(Flaw::Unreadable)? && is_empty(&*ring.read_first(parts::HEAD_BYTES)?);
    if !is_left {
        return Ok(None);
    }
    let is_recent = ring.age().is_some_and(|age| age < OPEN_SPANS_KEPT);
    if is_recent {
        let mut is_open = false;
        ring.read()?.stacks.for_each(|_, _, _| is_open = true);
        if is_open {
            return Ok(None);
        }
    }
    Ok(Some(ring))
}

fn total(by_reason: &[u64]) -> u64 {
    by_reason.iter().fold(0, |sum, count| sum.saturating_add(*count))
}

/// A dead process's ring, locked, and a copy of what is in it.
struct Work<'a> {
    ring: &'a RingFile,
    region: Box<Region>,
    pid: i32,
    /// The logs of living processes, by device and inode.
    living: &'a [(u64, u64)],
}

impl Work<'_> {
    /// Appends what is missing to the process's log. The error is the rest of a sentence about the ring.
    fn into_log(mut self) -> Result<Recovered, String> {
        check(&self.region, self.pid)?;
        let (path, mut device, mut inode) = self.region.log().ok_or("names no log")?;
        if path.file_name() != Some(log_name(self.pid).as_ref()) {
            return Err(format!("names {}, which is not that process's log", path.display()));
        }
        let with_path = |what: &str, error: io::Error| {
            format!("is kept: its log {} cannot be {what}: {error}", path.display())
        };
        let mut log = match open_log(&path, false) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.region.forget_file();
                self.write_back(&[parts::INODE])?;
                (device, inode) = (0, 0);
                open_log(&path, true).map_err(|error| with_path("made", error))?
            }
            opened => opened.map_err(|error| with_path("opened", error))?,
        };
        lock_log(&log).map_err(|error| with_path("locked", error))?;
        let status = log.metadata().map_err(|error| with_path("read", error))?;
        if !status.is_file() {
            return Err(format!("is kept: its log {} is no regular file", path.display()));
        }
        let identity = (status.dev(), status.ino());
        if self.living.contains(&identity) {
            return Err(format!("is kept: a living process writes to the same log {}", path.display()));
        }
        if inode != 0 && (device, inode) != identity {
            return Err(format!("is kept: {} is not the file that the process wrote", path.display()));
        }
        let start = match self.region.come().file_bytes {
            Some(written) if inode != 0 => written,
            _ => status.size(),
        };
        if start > status.size() {
            let size = status.size();
            return Err(format!(
                "is kept: {} has {size} bytes, and the process had written {start}",
                path.display()
            ));
        }
        if inode == 0 {
            self.region.note_opened(b"", identity.0, identity.1, Some(start));
            self.write_back(&[parts::PROGRESS, parts::PROGRESSED, parts::DEVICE, parts::INODE])?;
        }
        let mut done =
            Recovered { pid: self.pid, log: Some(path.clone()), records: 0, cut_bytes: 0, lost: 0 };
        match self.append(&mut log, start, &mut done) {
            Ok(()) => Ok(done),
            Err(error) if done.records == 0 => Err(with_path("written", error)),
            Err(error) => {
                Err(format!("{}, after {} records", with_path("written any more", error), done.records))
            }
        }
    }

    /// Renders all that was not written to `out`.
    fn into_stream(self, out: &mut dyn Write) -> io::Result<Recovered> {
        let mut line = [0; RECORD_BYTES];
        let come = self.region.come();
        self.region.keep_recovery_knot(Knot::read());
        let (mut records, mut failed) = (0, come.failed);
        for position in self.region.ring.published_from(come.next) {
            let size = render(&self.region, position, &mut line);
            out.write_all(&line[..size])?;
            records += u64::from(size != 0);
            failed = failed.saturating_add(u64::from(size == 0));
        }
        self.region.commit(Come { failed, ..come });
        let report = untold(&self.region);
        if let Some(report) = &report {
            let size = render_report(&self.region, report, &mut line);
            out.write_all(&line[..size])?;
        }
        out.flush()?;
        let lost = report.map_or(0, |report| report.new);
        Ok(Recovered { pid: self.pid, log: None, records, cut_bytes: 0, lost })
    }

    /// Appends what is missing behind `start`, what the file is known to have had. `done` grows with every write.
    fn append(&mut self, log: &mut File, start: u64, done: &mut Recovered) -> io::Result<()> {
        log.seek(SeekFrom::Start(start))?;
        let come = self.region.come();
        let positions = self.region.ring.published_from(come.next);
        let found = find(&self.region, &positions, &mut BufReader::new(&*log))?;
        let mut size = start + found.whole_bytes;
        if found.is_torn {
            log.set_len(size)?;
            done.cut_bytes = found.tail.len() as u64;
        } else if !found.tail.is_empty() {
            // Somebody else's: it stays, and what follows shall not be glued to it.
            log.write_all(b"\n")?;
            size += found.tail.len() as u64 + 1;
        }
        let (written, rest) = positions.split_at(found.written);
        let next = written.last().map_or(come.next, |position| position + 1);
        let mut failed = come.failed.saturating_add(found.failed);
        self.commit(Come { next, file_bytes: Some(size), failed })?;
        if self.region.recovery_knot().is_none() {
            self.region.keep_recovery_knot(Knot::read());
            self.ring.write_back(&mut self.region, parts::RECOVERY_KNOT)?;
        }

        let mut batch = Vec::with_capacity(APPEND_BYTES + RECORD_BYTES);
        let mut line = [0; RECORD_BYTES];
        let mut in_batch = 0;
        for (index, position) in rest.iter().enumerate() {
            let bytes = render(&self.region, *position, &mut line);
            batch.extend_from_slice(&line[..bytes]);
            in_batch += u64::from(bytes != 0);
            failed = failed.saturating_add(u64::from(bytes == 0));
            if batch.len() < APPEND_BYTES && index + 1 < rest.len() {
                continue;
            }
            write_whole(log, &batch, size)?;
            size += batch.len() as u64;
            self.commit(Come { next: position + 1, file_bytes: Some(size), failed })?;
            done.records += in_batch;
            in_batch = 0;
            batch.clear();
        }

        let Some(report) = untold(&self.region) else { return Ok(()) };
        let is_told = |told: &DropReport| told.total == report.total && told.by_reason == report.by_reason;
        if !found.reports.iter().any(is_told) {
            let bytes = render_report(&self.region, &report, &mut line);
            write_whole(log, &line[..bytes], size)?;
            done.lost = report.new;
        }
        self.region.reported.store(report.total, Ordering::Relaxed);
        self.ring.write_back(&mut self.region, parts::REPORTED)
    }

    fn write_back(&mut self, parts: &[Range<usize>]) -> Result<(), String> {
        for part in parts {
            self.ring
                .write_back(&mut self.region, part.clone())
                .map_err(|error| format!("cannot be written: {error}"))?;
        }
        Ok(())
    }

    /// Notes how far recovery has come, as the writer does.
    fn commit(&mut self, come: Come) -> io::Result<()> {
        self.region.commit(come);
        // The place first, and then which one is current.
        self.ring.write_back(&mut self.region, parts::PROGRESS)?;
        self.ring.write_back(&mut self.region, parts::PROGRESSED)
    }
}

/// Whether the region says what its name says, and can be rendered.
fn check(region: &Region, pid: i32) -> Result<(), String> {
    if region.pid() != pid {
        return Err(format!("says that it is of process {}", region.pid()));
    }
    if !region.ticks.is_sound() {
        return Err("is damaged: the clock in it goes backwards".to_owned());
    }
    Ok(())
}

/// The losses that no report has told.
fn untold(region: &Region) -> Option<DropReport> {
    let by_reason = region.dropped_by_reason();
    let total = total(&by_reason);
    let new = total.saturating_sub(region.reported.load(Ordering::Relaxed));
    (new != 0).then_some(DropReport { pid: region.pid().cast_unsigned().into(), new, total, by_reason })
}

/// The report was made when recovery first looked, and by no thread of the process.
fn render_report(region: &Region, report: &DropReport, line: &mut [u8; RECORD_BYTES]) -> usize {
    let mono_ns = region.recovery_knot().map_or(0, |(_, ns)| ns);
    encode_drop_report(line, mono_ns, 0, report)
}

/// Renders the record at `position`: as the dead process's writer did or would have done.
fn render(region: &Region, position: u64, line: &mut [u8; RECORD_BYTES]) -> usize {
    let mut record = [0; RECORD_BYTES];
    let size = region.ring.record_at(position, &mut record);
    let latest = region.ticks.latest();
    let knot = region.recovery_knot().filter(|(tick, ns)| {
        latest.is_some_and(|(latest_tick, latest_ns)| *tick > latest_tick && *ns >= latest_ns)
    });
    frame::render(&record[..size], line, |tick| match knot {
        Some(knot) => region.ticks.to_ns_by(Knot::known(knot), tick),
        None => region.ticks.to_ns(tick),
    })
}

/// What is in the log behind the size that it is known to have had.
#[derive(Debug, Default)]
struct Found {
    /// How many of the positions were written, or could not be.
    written: usize,
    /// How many of those could not be.
    failed: u64,
    /// The bytes of whole lines.
    whole_bytes: u64,
    /// What follows the last whole line.
    tail: Vec<u8>,
    /// Whether the tail is the beginning of a record.
    is_torn: bool,
    /// The drop reports of the process.
    reports: Vec<DropReport>,
}

/// Looks for the records at `positions`, in their order, among the lines of `log`. Other lines may stand between
/// them: those that were written while there was no writer.
fn find(region: &Region, positions: &[u64], log: &mut impl BufRead) -> io::Result<Found> {
    let mut found = Found::default();
    let mut expected = Expected { region, positions, index: 0, skipped: 0, line: [0; RECORD_BYTES], size: 0 };
    expected.advance();
    loop {
        let mut line = Vec::new();
        log.read_until(b'\n', &mut line)?;
        if line.last() != Some(&b'\n') {
            found.is_torn = expected.begins_with(&line) || is_torn_record(&line);
            found.tail = line;
            return Ok(found);
        }
        found.whole_bytes += line.len() as u64;
        if expected.is_at_the_end_of(&line) {
            found.written = expected.index + 1;
            found.failed = expected.skipped;
            expected.index += 1;
            expected.advance();
        } else if let Some(report) = drop_report_in(&line)
            && i64::try_from(report.pid) == Ok(region.pid().into())
        {
            found.reports.push(report);
        }
    }
}

/// The next record to be found.
struct Expected<'a> {
    region: &'a Region,
    positions: &'a [u64],
    index: usize,
    /// How many before it render to nothing.
    skipped: u64,
    line: [u8; RECORD_BYTES],
    size: usize,
}

impl Expected<'_> {
    /// Renders the record at `index`, or the first one behind it that renders to anything.
    fn advance(&mut self) {
        while let Some(position) = self.positions.get(self.index) {
            self.size = render(self.region, *position, &mut self.line);
            if self.size != 0 {
                return;
            }
            self.skipped += 1;
            self.index += 1;
        }
        self.size = 0;
    }

    /// Whether `line` is the record, or has it behind something that was torn.
    fn is_at_the_end_of(&self, line: &[u8]) -> bool {
        self.size != 0 && line.ends_with(&self.line[..self.size])
    }

    fn begins_with(&self, tail: &[u8]) -> bool {
        !tail.is_empty() && self.line[..self.size].starts_with(tail)
    }
}

/// Whether `tail`, which has no newline, begins as records do.
fn is_torn_record(tail: &[u8]) -> bool {
    !tail.is_empty() && (tail.starts_with(RECORD_START) || RECORD_START.starts_with(tail))
}

fn drop_report_in(line: &[u8]) -> Option<DropReport> {
    let marker = DROP_REPORT_MARKER;
    let at = line.windows(marker.len()).position(|window| window == marker)?;
    parse_drop_report(&line[at..])
}

/// Opens a log for reading and appending.
fn open_log(path: &Path, make: bool) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .append(true)
        .create(make)
        .mode(0o666)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)
}

/// Takes the log's lock, which who appends holds.
fn lock_log(log: &File) -> io::Result<()> {
    let deadline = Instant::now() + LOG_LOCK_WAIT;
    loop {
        // SAFETY: flock has no memory preconditions.
        if unsafe { libc::flock(log.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        match error.kind() {
            io::ErrorKind::WouldBlock if Instant::now() < deadline => std::thread::sleep(LOOK_EVERY),
            io::ErrorKind::WouldBlock => {
                return Err(io::Error::new(error.kind(), "another process holds its lock"));
            }
            io::ErrorKind::Interrupted => {}
            // A file system without such locks.
            _ => return Ok(()),
        }
    }
}

/// Appends all of `bytes` to a log of `size` bytes, or nothing.
fn write_whole(log: &mut File, bytes: &[u8], size: u64) -> io::Result<()> {
    log.write_all(bytes).inspect_err(|_| {
        // Should it fail, too, the next recovery finds what is whole and cuts the rest.
        let _ = log.set_len(size);
    })
}

#[cfg(any(fuzzing, test))]
pub mod trial {
    //! Recovery of rings with any bytes in the places that matter, for the fuzzer and for the replay of its corpus.

    use core::mem::offset_of;
    use std::io::Cursor;
    use std::ops::Range;

    use super::{check, find, render, render_report, untold};
    use crate::queue::{QUEUE_SLOTS, Ring, Run};
    use crate::region::{Come, Region, parts};
    use crate::rings::{bytes_of, zeroed_region};
    use crate::ticks::Knot;
    use simpler_record_format::frame::SPAN_TICKS_FRAME;
    use simpler_record_format::{RECORD_BYTES, SpanFields, frame};

    /// How many records the ring holds; with slots of the first lap and of the second.
    const RECORDS: u64 = 12;
    /// The first position that the writer has not dealt with.
    const FIRST: u64 = QUEUE_SLOTS as u64 - 4;
    const PID: i32 = 77;

    /// The bytes that an input may change: what stands in front of the slots, the clock's first knots, and the
    /// slots with records.
    fn places() -> [Range<usize>; 5] {
        let heads = parts::HEAD_BYTES;
        let ticks = offset_of!(Region, ticks);
        let last_slots = heads + (QUEUE_SLOTS - 4) * 128;
        [
            16..ticks,
            ticks..ticks + 128,
            offset_of!(Region, ring)..heads,
            heads..heads + 8 * 128,
            last_slots..last_slots + 4 * 128,
        ]
    }

    /// A region in the making and what it was before an input changed it.
    #[derive(Debug)]
    pub struct Trial {
        sound: Box<Region>,
        tried: Box<Region>,
    }

    impl Default for Trial {
        fn default() -> Self {
            let [mut sound, mut tried] = [zeroed_region(), zeroed_region()];
            fill(&mut sound);
            bytes_of(&mut tried).copy_from_slice(bytes_of(&mut sound));
            Trial { sound, tried }
        }
    }

    fn fill(region: &mut Region) {
        region.ring.reset();
        region.ring.open();
        region.note_path(b"/log/host.77.log");
        bytes_of(region)[parts::PID].copy_from_slice(&PID.to_ne_bytes());
        region.ticks.put_knots(&[(1_000, 500), (2_000, 1_000), (9_000, 4_500)]);
        region.keep_recovery_knot(Knot::known((20_000, 10_000)));
        let ring: &Ring = &region.ring;
        // SAFETY: the only consumer of this ring.
        let mut consumer = unsafe { ring.consumer() };
        for position in 0..FIRST + RECORDS {
            if position == FIRST {
                region.commit(Come { next: FIRST, file_bytes: Some(0), failed: 1 });
            }
            let mut frame = [0; RECORD_BYTES];
            let size = match position % 3 {
                0 => {
                    let text = b"[mono_ns=5][T0x7][WARN] plugin: [a.c:3] from C";
                    frame[..text.len()].copy_from_slice(text);
                    text.len()
                }
                1 => {
                    let name = b"simpler_run";
                    let span = SpanFields {
                        pid: 1,
                        tid: 2,
                        inv: 1,
                        hid: 2,
                        depth: 0,
                        name,
                        ts: 1_500,
                        dur: 0,
                        attrs: b"",
                    };
                    let size = frame::encode_span_frame(&mut frame, 9_500 + position as i64, 7, &span);
                    frame[0] = SPAN_TICKS_FRAME;
                    size
                }
                _ => {
                    let (name, attrs) = (b"simpler_run.bind", b"producer=3 text=a%20b");
                    let span =
                        SpanFields { pid: 1, tid: 2, inv: 3, hid: 4, depth: 1, name, ts: 5, dur: 6, attrs };
                    frame::encode_span_frame(&mut frame, 11, 7, &span)
                }
            };
            if let Ok(claim) = ring.claim(&mut Run::new()) {
                ring.publish(claim, &frame[..size], 0, |_| ());
            }
            if position < FIRST {
                consumer.read(|_, _| Some(()));
                consumer.release();
            }
        }
    }

    impl Trial {
        /// The input is patches, each a place (two bytes), a length (one byte) and its bytes, up to a length of 255;
        /// the rest is the end of the log. Length 254 there appends what the sound ring renders to.
        ///
        /// # Panics
        ///
        /// When recovery would write anything but whole records, or miscount.
        pub fn run(&mut self, mut input: &[u8]) {
            let mut log = Vec::new();
            while let Some(([low, high, length], rest)) = input.split_first_chunk::<3>() {
                input = rest;
                match *length {
                    255 => break,
                    254 => self.append_rendered(usize::from(*low), usize::from(*high), &mut log),
                    length => {
                        let (bytes, rest) = rest.split_at(rest.len().min(length.into()));
                        input = rest;
                        self.patch(u16::from_le_bytes([*low, *high]), bytes);
                    }
                }
            }
            log.extend_from_slice(input);
            self.look(&log);
            for place in places() {
                let sound = bytes_of(&mut self.sound)[place.clone()].to_vec();
                bytes_of(&mut self.tried)[place].copy_from_slice(&sound);
            }
        }

        fn patch(&mut self, at: u16, bytes: &[u8]) {
            let mut at = usize::from(at);
            for place in places() {
                if at < place.len() {
                    let start = place.start + at;
                    let length = bytes.len().min(place.end - start);
                    bytes_of(&mut self.tried)[start..start + length].copy_from_slice(&bytes[..length]);
                    return;
                }
                at -= place.len();
            }
        }

        /// The lines of `count` records from the `first` on, of which the last lacks the end.
        fn append_rendered(&self, first: usize, count: usize, log: &mut Vec<u8>) {
            let mut line = [0; RECORD_BYTES];
            let positions = self.sound.ring.published_from(FIRST);
            for position in positions.into_iter().skip(first).take(count % 16) {
                let size = render(&self.sound, position, &mut line);
                log.extend_from_slice(&line[..size]);
            }
            log.truncate(log.len().saturating_sub(count / 16));
        }

        fn look(&self, log: &[u8]) {
            let region = &*self.tried;
            let _ = region.log();
            if check(region, PID).is_err() {
                return;
            }
            let come = region.come();
            let positions = region.ring.published_from(come.next);
            assert!(positions.is_sorted() && positions.len() <= QUEUE_SLOTS);
            assert!(positions.iter().all(|position| *position >= come.next));
            let Ok(found) = find(region, &positions, &mut Cursor::new(log)) else {
                panic!("memory can be read");
            };
            assert_eq!(found.whole_bytes + found.tail.len() as u64, log.len() as u64);
            assert!(!found.tail.contains(&b'\n') && found.written <= positions.len());
            assert!(found.failed <= found.written as u64);
            assert!(!found.tail.is_empty() || !found.is_torn);
            let mut line = [0; RECORD_BYTES];
            for position in &positions[found.written..] {
                let size = render(region, *position, &mut line);
                is_whole(&line[..size]);
            }
            if let Some(report) = untold(region) {
                let size = render_report(region, &report, &mut line);
                is_whole(&line[..size]);
            }
        }
    }

    /// A record that cannot be rendered is none; any other is one line.
    fn is_whole(line: &[u8]) {
        assert!(line.is_empty() || line.iter().position(|byte| *byte == b'\n') == Some(line.len() - 1));
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn what_is_in_the_log_already_is_found() {
            let trial = Trial::default();
            let positions = trial.sound.ring.published_from(FIRST);
            assert_eq!(positions.len() as u64, RECORDS);
            for count in 0..=RECORDS as usize {
                let mut log = b"foreign\n".to_vec();
                trial.append_rendered(0, count, &mut log);
                let found = find(&trial.sound, &positions, &mut Cursor::new(&log)).unwrap();
                assert_eq!((found.written, found.whole_bytes), (count, log.len() as u64));
            }
        }

        #[test]
        fn a_clock_that_goes_backwards_is_refused() {
            let trial = Trial::default();
            assert_eq!(check(&trial.tried, PID), Ok(()));
            for knots in
                [[(2_000, 1_000), (1_000, 2_000)], [(1_000, 9_000), (2_000, 1_000)], [(5, -7), (6, 8)]]
            {
                trial.tried.ticks.put_knots(&knots);
                assert!(check(&trial.tried, PID).is_err_and(|why| why.contains("clock")), "{knots:?}");
            }
        }

        #[test]
        fn the_corpus_of_the_fuzzer_passes() {
            let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/recover_ring");
            let mut trial = Trial::default();
            let mut inputs = 0;
            for entry in std::fs::read_dir(corpus).unwrap() {
                trial.run(&std::fs::read(entry.unwrap().path()).unwrap());
                inputs += 1;
            }
            assert!(inputs > 5);
        }
    }
}
