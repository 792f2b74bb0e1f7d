//! Which spans are open just now, in this or another process, living or dead: what a hang looks like.
//!
//! The stacks of open spans lie in the shared region (see `stack`), so a process need not answer to be asked. What
//! its threads change while they are looked at is never shown half: a stack is copied three times, and
//! what all three agree on, from the bottom up, was open. Between the first and the third copy of a frame its start
//! stayed the same, so no other span began in its place; and the second copy's depth says that it was
//! finished by then. A thread that opens and closes spans faster than they can be copied shows the spans that stay
//! open below those.
//!
//! An open span has the name, the invocation and the nesting that its record will have. It has no attributes
//! yet: those follow when it closes. Spans of C plugins and of the `tracing` layer are told to the log when they close,
//! so they are not seen here; those of the owner around them are, and a [`ForeignSpan`](crate::ForeignSpan) is.
//!
//! Of a dead process nobody knows when it died, only when it was last seen alive: by the latest knot of its clock, the
//! latest span that it opened, and the records that it left unwritten. So its spans were open *at least* as long
//! as is said here.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use simpler_record_format::frame::{self, SPAN_TICKS_FRAME};
use simpler_record_format::{
    Input, RECORD_BYTES, SPAN_MARKER, SpanFields, SpanParse, parse_envelope, parse_span,
};

use crate::identity::pid;
use crate::recover::log_name;
use crate::region::{Region, folder_path};
use crate::rings::{Flaw, Holder, RingFile, RingName, Rings};
use crate::stack::{OPEN_FRAME_BYTES, Stack, THREADS_MAX};
use crate::ticks::{Knot, TickClock};

/// How many open spans of a thread are seen, from the outermost on.
pub const OPEN_SPANS_MAX: usize = crate::stack::OPEN_SPANS_MAX;

/// How often a stack is looked at until three copies agree. A thread that is at rest is seen at once.
const LOOKS_MAX: u32 = 16;

/// Whose open spans are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose<'a> {
    /// Those of the process with this id in this pid namespace, and of dead ones that had it.
    Process(i32),
    /// Those of all processes whose log is a file in this directory.
    Directory(&'a Path),
}

/// What [`open_spans`] has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The processes, by id, the dead before the living.
    pub processes: Vec<Process>,
    /// The files that should be rings and cannot be used, with a sentence each.
    pub refused: Vec<(PathBuf, String)>,
}

/// A process and its threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its id, as its pid namespace calls it.
    pub pid: i32,
    /// Whether that is this process's pid namespace, too.
    pub is_of_this_namespace: bool,
    /// Whether it lives, by its ring's lock: a process that has become another program is dead.
    pub is_alive: bool,
    /// When it was last known to be alive, in ns of `CLOCK_MONOTONIC`: now, if it is.
    pub seen_ns: i64,
    /// When it was looked at, on the same clock. A dead one died in between.
    pub looked_ns: i64,
    /// Its log, if that is a file.
    pub log: Option<PathBuf>,
    /// The threads that were seen to open spans, the one whose innermost span is the oldest first. Of a dead process
    /// only those with open spans.
    pub threads: Vec<Thread>,
}

/// A thread and its open spans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// The kernel's id of it, as the process's pid namespace calls it.
    pub tid: i32,
    /// Its name; only of a living process.
    pub name: Option<String>,
    /// Whether it opened and closed more spans while it was looked at than could be seen.
    pub is_changing: bool,
    /// The spans, from the outermost to the innermost. The first [`OPEN_SPANS_MAX`] are seen.
    pub spans: Vec<OpenSpan>,
}

/// A span that is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenSpan {
    /// Its name as its record will have it, escaped and cut.
    pub name: String,
    /// The invocation that it belongs to, 0 outside any.
    pub inv: u64,
    /// The identity of its callable.
    pub hid: u64,
    /// The nesting that its record will have.
    pub depth: i32,
    /// When it was opened, in ns of `CLOCK_MONOTONIC`.
    pub since_ns: i64,
    /// From then until [`Process::seen_ns`]: how long it is open, or, in a dead process, was open at least.
    pub open_ns: i64,
}

/// Looks which spans are open.
///
/// Processes are found by their rings, which lie in this user's folder of shared memory; one that could not have a
/// ring there is not found, except for this process itself.
///
/// # Errors
///
/// When the folder of rings cannot be read or cannot be trusted.
pub fn open_spans(whose: Whose<'_>) -> io::Result<Found> {
    let mut found = Found::default();
    if let Some(rings) = Rings::open()? {
        for name in rings.names()? {
            let is_meant = |name: &RingName| match whose {
                Whose::Process(pid) => name.pid == pid && name.is_of_this_namespace,
                Whose::Directory(_) => true,
            };
            if !is_meant(&name) {
                continue;
            }
            let looked = rings.ring(&name).and_then(|ring| match ring {
                Some(ring) => look_into(&ring, &name, whose),
                None => Ok(None),
            });
            match looked {
                Ok(process) => found.processes.extend(process),
                // It is just being made, or its process died over that, before it opened any span.
                Err(Flaw::Unfinished) => {}
                // What it says of itself cannot be read: it is a matter of this folder only if a log lies there.
                Err(_) if !has_a_log_in(whose, &name) => {}
                Err(flaw) => {
                    let path = rings.path(&name);
                    let why = format!("{} {flaw}", path.display());
                    found.refused.push((path, why));
                }
            }
        }
    }
    found.processes.extend(own_process(whose)?);
    found.processes.sort_by_key(|process| (process.pid, process.is_alive));
    Ok(found)
}

/// Whether the log of a ring's process lies where it was asked for; a process that was asked for by its pid has one.
fn has_a_log_in(whose: Whose<'_>, name: &RingName) -> bool {
    match whose {
        Whose::Process(_) => true,
        Whose::Directory(directory) => directory.join(log_name(name.pid)).symlink_metadata().is_ok(),
    }
}

/// Where the rings of this user are looked for.
pub fn folder_of_rings() -> PathBuf {
    folder_path()
}

/// The process of a ring, if it is meant.
fn look_into(ring: &RingFile, name: &RingName, whose: Whose<'_>) -> Result<Option<Process>, Flaw> {
    let head = ring.read_first(core::mem::offset_of!(Region, ticks))?;
    let log = head.log();
    if !is_asked_for(whose, log.as_ref()) {
        return Ok(None);
    }
    // Before its stacks: what dies meanwhile was alive when it was seen.
    let is_alive = ring.holder().map_err(Flaw::Unreadable)? == Holder::Process;
    if ring.is_removed().map_err(Flaw::Unreadable)? {
        return Ok(None);
    }
    let left = if is_alive { None } else { Some(ring.read()?) };
    let source = Source::Ring(ring);
    let process = Process {
        pid: name.pid,
        is_of_this_namespace: name.is_of_this_namespace,
        is_alive,
        seen_ns: 0,
        looked_ns: 0,
        log: log.map(|(path, _, _)| path),
        threads: Vec::new(),
    };
    look(&source, process, left.as_deref()).map(Some).map_err(Flaw::Unreadable)
}

/// This process, if it is meant and has a log. Its memory is read, not its ring's file: to close that would give the
/// lock away by which it is known to live.
fn own_process(whose: Whose<'_>) -> io::Result<Option<Process>> {
    // In a child, this forgets the parent's region.
    let me = pid();
    let Some(region) = Region::current() else { return Ok(None) };
    let log = region.log();
    let is_meant = match whose {
        Whose::Process(pid) => pid == me,
        Whose::Directory(_) => is_asked_for(whose, log.as_ref()),
    };
    if !is_meant {
        return Ok(None);
    }
    // By the kernel, for whom it is no race that the threads go on.
    let memory = File::open("/proc/self/mem")?;
    let source = Source::Memory(&memory, core::ptr::from_ref(region).addr() as u64);
    let process = Process {
        pid: me,
        is_of_this_namespace: true,
        is_alive: true,
        seen_ns: 0,
        looked_ns: 0,
        log: log.map(|(path, _, _)| path),
        threads: Vec::new(),
    };
    look(&source, process, None).map(Some)
}

/// Whether the log is one of those that are asked for.
fn is_asked_for(whose: Whose<'_>, log: Option<&(PathBuf, u64, u64)>) -> bool {
    let Whose::Directory(directory) = whose else { return true };
    let Some((path, device, inode)) = log else { return false };
    let is_same_file = |name: &OsStr| {
        let status = std::fs::metadata(directory.join(name));
        status.is_ok_and(|status| (status.dev(), status.ino()) == (*device, *inode))
    };
    let is_in_it = || match (path.parent().map(std::fs::canonicalize), std::fs::canonicalize(directory)) {
        (Some(Ok(parent)), Ok(directory)) => parent == directory,
        _ => false,
    };
    path.file_name().is_some_and(is_same_file) || is_in_it()
}

/// Where a region is read from.
enum Source<'a> {
    Ring(&'a RingFile),
    /// This process's memory, and the region's address.
    Memory(&'a File, u64),
}

/// What lies in a region as numbers and bytes.
///
/// # Safety
///
/// Any value of any byte is valid.
unsafe trait Plain {}

// SAFETY: atomics, and cells of bytes.
unsafe impl Plain for Stack {}
// SAFETY: atomics.
unsafe impl Plain for TickClock {}

impl Source<'_> {
    /// A private copy of what lies at `offset`: of a running process a sample, in which words that belong together
    /// may be of different moments.
    fn copy<T: Plain>(&self, offset: usize) -> io::Result<Box<T>> {
        // SAFETY: zero is valid, since everything is.
        let mut copy = unsafe { Box::<T>::new_zeroed().assume_init() };
        let start: *mut u8 = core::ptr::from_mut(&mut *copy).cast();
        // SAFETY: that many bytes, initialised, for they were zeroed; borrowed from the box; any value is valid.
        let bytes = unsafe { std::slice::from_raw_parts_mut(start, size_of::<T>()) };
        match self {
            Source::Ring(ring) => ring.sample(bytes, offset)?,
            Source::Memory(memory, start) => memory.read_exact_at(bytes, start + offset as u64)?,
        }
        Ok(copy)
    }

    /// The stack at `index`.
    fn stack(&self, index: usize) -> io::Result<Box<Stack>> {
        self.copy(core::mem::offset_of!(Region, stacks) + index * size_of::<Stack>())
    }

    /// The clock, with a table that was not written over while it was copied.
    fn clock(&self) -> io::Result<Box<TickClock>> {
        let place = core::mem::offset_of!(Region, ticks);
        let mut clock: Box<TickClock> = self.copy(place)?;
        for _ in 1..LOOKS_MAX {
            let later: Box<TickClock> = self.copy(place)?;
            if later.replacements() == clock.replacements() {
                break;
            }
            clock = later;
        }
        Ok(clock)
    }
}

/// Looks at the threads of `process`; `left` is the region of a dead one.
fn look(source: &Source<'_>, mut process: Process, left: Option<&Region>) -> io::Result<Process> {
    let mut pictures = Vec::new();
    for index in 0..THREADS_MAX {
        // Most places are nobody's, and one copy shows it.
        if source.stack(index)?.tid() != 0 {
            let sample = || source.stack(index).map(|stack| Sample::new(&stack, process.pid));
            pictures.extend(picture(sample)?);
        }
    }
    // After the stacks: every opening that was seen is older than this knot.
    let now = Knot::read();
    let clock = source.clock()?;
    if !clock.is_sound() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the knots of its clock do not rise"));
    }
    let to_ns = |tick: u64| clock.to_ns_by(now, tick);
    let start_ns = |frame: &Frame| {
        let start = frame::start_of(&frame.bytes);
        if frame.bytes[0] == SPAN_TICKS_FRAME { to_ns(start.cast_unsigned()) } else { start }
    };
    process.looked_ns = now.ns;
    process.seen_ns = match left {
        None => now.ns,
        Some(region) => {
            let knot_ns = clock.latest().map(|(_, ns)| ns);
            let opened_ns = pictures.iter().flat_map(|picture| &picture.frames).map(start_ns).max();
            let record_ns = latest_record_ns(region, to_ns);
            knot_ns.max(opened_ns).max(record_ns).unwrap_or(0).min(now.ns)
        }
    };
    let can_see_threads = process.is_alive
        && process.is_of_this_namespace
        && Path::new(&format!("/proc/{}/task", process.pid)).exists();
    for Picture { tid, is_changing, frames } in pictures {
        let name = if can_see_threads { name_of(process.pid, tid) } else { Name::Unknown };
        // What a thread leaves behind that ends is nobody's until its place is needed.
        if matches!(name, Name::IsGone) || (!process.is_alive && frames.is_empty()) {
            continue;
        }
        let spans = frames.iter().filter_map(|frame| {
            let since_ns = start_ns(frame);
            let SpanFields { inv, hid, depth, .. } = frame.span()?;
            let open_ns = process.seen_ns.saturating_sub(since_ns).max(0);
            Some(OpenSpan { name: frame.name()?, inv, hid, depth, since_ns, open_ns })
        });
        let spans = spans.collect();
        let name = match name {
            Name::Is(name) => Some(name),
            _ => None,
        };
        process.threads.push(Thread { tid, name, is_changing, spans });
    }
    let age = |thread: &Thread| thread.spans.last().map(|span| span.open_ns);
    process.threads.sort_by_key(|thread| (core::cmp::Reverse(age(thread)), thread.tid));
    Ok(process)
}

/// When the latest of the records was made that a dead process has left unwritten.
fn latest_record_ns(region: &Region, to_ns: impl Fn(u64) -> i64) -> Option<i64> {
    let mut record = [0; RECORD_BYTES];
    let mut line = [0; RECORD_BYTES];
    let made_ns = |position| {
        let size = region.ring.record_at(position, &mut record);
        let size = frame::render(&record[..size], &mut line, &to_ns);
        parse_envelope(&line[..size]).map(|(envelope, _)| envelope.mono_ns)
    };
    region.ring.published_from(region.come().next).into_iter().filter_map(made_ns).max()
}

/// What the kernel says of a thread.
enum Name {
    Is(String),
    IsGone,
    Unknown,
}

fn name_of(pid: i32, tid: i32) -> Name {
    match std::fs::read(format!("/proc/{pid}/task/{tid}/comm")) {
        Ok(name) => Name::Is(String::from_utf8_lossy(name.trim_ascii_end()).into_owned()),
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)) => Name::IsGone,
        Err(_) => Name::Unknown,
    }
}

/// A thread's stack, as far as it was seen for sure.
#[derive(Debug, Default, PartialEq, Eq)]
struct Picture {
    tid: i32,
    is_changing: bool,
    frames: Vec<Frame>,
}

/// A stack as one copy shows it, `None` in the place of what is no frame of an open span of its thread.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Sample {
    tid: i32,
    frames: Vec<Option<Frame>>,
}

impl Sample {
    /// What `stack`, a copy from the region of process `pid`, shows.
    fn new(stack: &Stack, pid: i32) -> Sample {
        let tid = stack.tid();
        let is_its = |frame: &Frame| {
            let is_its = |span: SpanFields<'_>| (span.pid, span.tid) == (pid, i64::from(tid));
            frame.span().is_some_and(|span| is_its(span) && !span.name.is_empty())
        };
        Sample { tid, frames: stack.copies().map(|bytes| Frame::new(bytes).filter(is_its)).collect() }
    }
}

/// The picture of a stack of which `sample` takes samples; `None` if no thread keeps it for as long as that.
fn picture(mut sample: impl FnMut() -> io::Result<Sample>) -> io::Result<Option<Picture>> {
    let mut picture = None;
    for _ in 0..LOOKS_MAX {
        let [first, second, third] = [sample()?, sample()?, sample()?];
        if first.tid == 0 || [&second, &third].iter().any(|later| later.tid != first.tid) {
            // Taken or left just now.
            picture = None;
            continue;
        }
        let agree = |index: &usize| {
            let frame = first.frames.get(*index).and_then(Option::as_ref);
            let in_later = |later: &Sample| later.frames.get(*index).and_then(Option::as_ref) == frame;
            frame.is_some() && in_later(&second) && in_later(&third)
        };
        let length = (0..first.frames.len()).take_while(agree).count();
        let is_changing = [&first, &second, &third].iter().any(|sample| sample.frames.len() != length);
        let frames = first.frames.into_iter().take(length).flatten().collect();
        picture = Some(Picture { tid: first.tid, is_changing, frames });
        if !is_changing {
            break;
        }
    }
    Ok(picture)
}

/// What an open span has written: not its end, of which there may be something already.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Frame {
    bytes: [u8; OPEN_FRAME_BYTES],
    length: usize,
}

impl Frame {
    /// The frame in `bytes`; `None` if it cannot be one.
    fn new(mut bytes: [u8; OPEN_FRAME_BYTES]) -> Option<Frame> {
        let length = frame::open_length(&bytes);
        // What is behind it was left by longer names.
        bytes.get_mut(length..)?.fill(0);
        Some(Frame { bytes, length })
    }

    fn span(&self) -> Option<SpanFields<'_>> {
        frame::read_span(&self.bytes[..self.length])
    }

    /// The name, as the record would have it.
    fn name(&self) -> Option<String> {
        let mut line = [0; RECORD_BYTES];
        let size = frame::render(&self.bytes[..self.length], &mut line, |_| 0);
        let marker = line[..size].windows(SPAN_MARKER.len()).position(|window| window == SPAN_MARKER)?;
        match parse_span(&line[marker..size], Input::Whole) {
            SpanParse::Span(span, _) => Some(String::from_utf8_lossy(span.name).into_owned()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use simpler_record_format::frame::{Emitter, OpenSpan};

    use super::*;

    fn frame(name: &str, start: i64) -> Option<Frame> {
        let mut bytes = [0xee; OPEN_FRAME_BYTES];
        frame::set_emitter(&mut bytes, &Emitter::new(1, 2, 3));
        let span = OpenSpan { name: name.as_bytes(), inv: 4, hid: 5, start, depth: 0 };
        frame::begin_span(&mut bytes, frame::SPAN_FRAME, &span);
        Frame::new(bytes)
    }

    fn sample(frames: &[Option<Frame>]) -> Sample {
        Sample { tid: 2, frames: frames.to_vec() }
    }

    /// The picture that these samples give, the last one for ever, and how many were taken.
    fn picture_of(samples: &[Sample]) -> (Option<Picture>, usize) {
        let mut taken = 0;
        let next = || {
            taken += 1;
            Ok(samples[(taken - 1).min(samples.len() - 1)].clone())
        };
        (picture(next).unwrap(), taken)
    }

    fn seen(is_changing: bool, frames: &[Option<Frame>]) -> Option<Picture> {
        Some(Picture { tid: 2, is_changing, frames: frames.iter().flatten().cloned().collect() })
    }

    #[test]
    fn a_thread_at_rest_is_seen_at_once() {
        let all = [frame("a", 1), frame("a.b", 2)];
        assert_eq!(picture_of(&[sample(&all)]), (seen(false, &all), 3));
        assert_eq!(picture_of(&[sample(&[])]), (seen(false, &[]), 3));
    }

    #[test]
    fn a_frame_is_seen_only_where_all_three_copies_agree() {
        let (outer, inner, torn) = (frame("a", 1), frame("a.b", 2), frame("a.c", 2));
        let both = sample(&[outer.clone(), inner.clone()]);
        for odd in [
            sample(&[outer.clone(), torn.clone()]),
            sample(&[outer.clone(), frame("a.b", 3)]),
            sample(&[outer.clone(), None]),
            sample(std::slice::from_ref(&outer)),
        ] {
            for place in 0..3 {
                let mut turns = vec![both.clone(); 3];
                turns[place] = odd.clone();
                let samples: Vec<Sample> = turns.into_iter().cycle().take(3 * LOOKS_MAX as usize).collect();
                let (picture, taken) = picture_of(&samples);
                assert_eq!(picture, seen(true, std::slice::from_ref(&outer)), "{odd:?} at {place}");
                assert_eq!(taken, samples.len());
            }
        }
        // What lies above one that is torn is not seen either.
        let on_torn = sample(&[outer.clone(), torn, inner.clone()]);
        let others = sample(&[outer.clone(), inner.clone(), inner]);
        let samples: Vec<Sample> = [on_torn, others.clone(), others].into_iter().cycle().take(48).collect();
        assert_eq!(picture_of(&samples).0, seen(true, &[outer]));
    }

    #[test]
    fn a_thread_that_comes_to_rest_is_looked_at_until_then() {
        let rest = [frame("a", 1)];
        let busy = [sample(&[frame("b", 2)]), sample(&[]), sample(&[frame("b", 3)])];
        let samples: Vec<Sample> = busy.into_iter().chain([sample(&rest)]).collect();
        assert_eq!(picture_of(&samples), (seen(false, &rest), 6));
    }

    #[test]
    fn a_stack_that_changes_hands_is_nobodys() {
        let (one, free) = (sample(&[frame("a", 1)]), Sample { tid: 0, frames: Vec::new() });
        let other = Sample { tid: 9, ..one.clone() };
        assert_eq!(picture_of(std::slice::from_ref(&free)).0, None);
        let samples: Vec<Sample> = [one, other, free].into_iter().cycle().take(48).collect();
        assert_eq!(picture_of(&samples).0, None);
    }

    #[test]
    fn a_frame_that_says_it_is_longer_than_it_can_be_is_none() {
        let mut bytes = [0; OPEN_FRAME_BYTES];
        let span = OpenSpan { name: b"a.name", inv: 4, hid: 5, start: 7, depth: 0 };
        frame::begin_span(&mut bytes, frame::SPAN_FRAME, &span);
        bytes[1] = 200;
        assert_eq!(Frame::new(bytes), None);
    }
}
