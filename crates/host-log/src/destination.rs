//! Where records go: `<directory>/host.<pid>.log` once a directory is bound, else stderr.
//!
//! A bound directory is the destination, not a preference: what it cannot take is lost and counted, never
//! put elsewhere. Files are written by raw `write` in append mode, so that no buffer of ours can be lost or
//! written twice by a fork. An [`Output`] belongs to one thread: the writer keeps one for its life, and in
//! the synchronous window each record opens, writes and closes its own, because a descriptor shared by
//! threads without a lock could be closed by one and reused by another in the middle of a write.
//!
//! A failed write closes the file and the next record opens it again. What a failed write left of a record
//! is cut off, as long as nothing was appended behind it, so that no torn line is followed by another. In the
//! synchronous window another thread might append between the look and the cut, so an append holds the file's
//! lock (`flock`) until it has cut; where the file system knows no such lock, nothing is cut. The lock is given
//! back by name, not by closing, because a child forked meanwhile shares it.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering, fence};

use simpler_log_abi::{LOG_DIRECTORY_BYTES, SimplerHostLogState};
use simpler_record_format::RECORD_BYTES;

use crate::directory::DirectoryClaim;
use crate::error::{Error, ErrorKind};
use crate::identity::{monotonic_ns, pid};
use crate::region::{self, Region};
use crate::{anchor_record, host_identity, state};

/// Room for the directory, `/host.`, a pid, `.log` and a zero.
const PATH_BYTES: usize = LOG_DIRECTORY_BYTES + 32;

/// Binds the process's log directory; the first one that is not empty wins. Gives whether this call bound it.
pub(crate) fn bind(directory: &Path) -> Result<bool, Error> {
    let state = state();
    if directory.as_os_str().is_empty() || is_bound(state) {
        return Ok(false);
    }
    // Absolute, or a later chdir would split one run's log over two places.
    let absolute = std::path::absolute(directory).map_err(|e| Error::from_io(ErrorKind::Directory, e))?;
    let bytes = absolute.as_os_str().as_bytes();
    if bytes.len() >= LOG_DIRECTORY_BYTES || bytes.contains(&0) {
        return Err(Error::new(ErrorKind::DirectoryPath));
    }
    std::fs::create_dir_all(&absolute).map_err(|e| Error::from_io(ErrorKind::Directory, e))?;
    let is_first = DirectoryClaim::new(&state.log_directory_bound).bind(|| {
        for (byte, place) in bytes.iter().chain(&[0]).zip(&state.log_directory) {
            place.store(*byte, Ordering::Relaxed);
        }
    });
    if is_first {
        // In a child, this forgets the parent's region.
        pid();
        // ORDERING: SeqCst pairs with the fence in `tell_region`: a writer that starts meanwhile sees the
        // directory, or its region is seen here.
        fence(Ordering::SeqCst);
        if let Some(region) = Region::current() {
            note_path(region, state);
        }
    }
    Ok(is_first)
}

/// Tells a region whose writer is about to start where the log file will be, if that is known: records may be
/// accepted, and the process be killed, before the writer has opened it.
pub(crate) fn tell_region(region: &Region, state: &SimplerHostLogState) {
    // ORDERING: SeqCst, see `bind`.
    fence(Ordering::SeqCst);
    if is_bound(state) {
        note_path(region, state);
    }
}

fn note_path(region: &Region, state: &SimplerHostLogState) {
    region.note_path(without_zero(&log_path(state, pid())));
}

/// Whether a directory is bound. Then every record goes there.
pub(crate) fn is_bound(state: &SimplerHostLogState) -> bool {
    DirectoryClaim::new(&state.log_directory_bound).is_bound()
}

/// The bound directory.
pub(crate) fn directory(state: &SimplerHostLogState) -> Option<PathBuf> {
    is_bound(state).then(|| OsString::from_vec(directory_bytes(state).collect()).into())
}

/// Writes one record to stderr with one `write`, which a pipe takes whole or not at all. Gives whether it did.
pub(crate) fn write_stderr(record: &[u8]) -> bool {
    let written = write_all(libc::STDERR_FILENO, record);
    if written > 0 && written < record.len() {
        mend_stderr(written);
    }
    written == record.len()
}

/// Runs `write` on a thread of the program's own such that a reader that is gone, or a file at its limit, costs the
/// record and not the process: the signals of both are held back, and taken when `write` has caused one. (The
/// writer's thread takes no signals at all.)
pub(crate) fn without_deadly_signals(write: impl FnOnce() -> bool) -> bool {
    let mut deadly = core::mem::MaybeUninit::<libc::sigset_t>::uninit();
    let mut former = core::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: room for a set.
    unsafe { libc::sigemptyset(deadly.as_mut_ptr()) };
    for signal in DEADLY_SIGNALS {
        // SAFETY: made above.
        unsafe { libc::sigaddset(deadly.as_mut_ptr(), signal) };
    }
    // SAFETY: made above.
    let deadly = unsafe { deadly.assume_init() };
    // SAFETY: one valid set, and room for another.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const deadly, former.as_mut_ptr()) };
    let mut pending = core::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: room for a set.
    unsafe { libc::sigpending(pending.as_mut_ptr()) };
    // SAFETY: filled by the call above, which cannot fail.
    let former = unsafe { former.assume_init() };
    // SAFETY: as above.
    let pending = unsafe { pending.assume_init() };
    let landed = write();
    if !landed {
        // What this write has caused is this thread's, and taken back: not what was held back or pending before.
        let mut caused = deadly;
        for signal in DEADLY_SIGNALS {
            // SAFETY: a valid set.
            let is_in = |set: &libc::sigset_t| unsafe { libc::sigismember(set, signal) } == 1;
            if is_in(&former) || is_in(&pending) {
                // SAFETY: a valid set.
                unsafe { libc::sigdelset(&raw mut caused, signal) };
            }
        }
        let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: a valid set and time; nobody wants to know more of the signal.
        unsafe { libc::sigtimedwait(&raw const caused, core::ptr::null_mut(), &raw const at_once) };
    }
    // SAFETY: a valid set.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const former, core::ptr::null_mut()) };
    landed
}

/// What a `write` can raise.
const DEADLY_SIGNALS: [i32; 2] = [libc::SIGPIPE, libc::SIGXFSZ];

/// Takes back the `written` bytes of a record of which stderr, a file, took no more; unless somebody has written
/// behind them.
fn mend_stderr(written: usize) {
    let is_file = region::status_of(libc::STDERR_FILENO)
        .is_some_and(|status| status.st_mode & libc::S_IFMT == libc::S_IFREG);
    if is_file {
        let lock = FileLock::take(libc::STDERR_FILENO);
        cut_back(&lock, written);
    }
}

/// Whether stderr would take a record without blocking, now or before `deadline_ns`.
pub(crate) fn stderr_is_ready(deadline_ns: i64) -> bool {
    poll_writable(libc::STDERR_FILENO, deadline_ns)
}

/// Appends one record to the bound directory's file, unless that would wait for somebody: a file that is
/// locked has an append under way, and a pipe in its place may be full. The record may be lost or torn.
pub(crate) fn append_if_free(record: &[u8]) {
    let path = log_path(state(), pid());
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND | libc::O_CLOEXEC | libc::O_NONBLOCK;
    // SAFETY: the path is zero-terminated.
    let descriptor = unsafe { libc::open(path.as_ptr().cast(), flags, 0o666) };
    if descriptor < 0 {
        return;
    }
    // SAFETY: flock has no memory preconditions.
    if unsafe { libc::flock(descriptor, libc::LOCK_EX | libc::LOCK_NB) } == 0 {
        // SAFETY: the record is readable for its length. Once, so that nothing is waited for.
        unsafe { libc::write(descriptor, record.as_ptr().cast(), record.len()) };
        // SAFETY: as above; by name, because a child may share it.
        unsafe { libc::flock(descriptor, libc::LOCK_UN) };
    }
    // SAFETY: opened above and known to nobody else.
    unsafe { libc::close(descriptor) };
}

/// The log files that are open in this process, for a child: it closes what it inherited. One is the writer's, the
/// others belong to threads that write by themselves just now; more of those at once than there is room for leave a
/// descriptor open in a child that is forked in that moment, and do no other harm.
///
/// FORK: the child takes them all before anything else, see [`close_inherited_files`].
static OPEN_FILES: [AtomicI32; 32] = [const { AtomicI32::new(-1) }; 32];

/// How often a thread was about to open a log file for a record of its own, and how often it has closed it. (The
/// writer's file stays open, and is noted.)
static OPENS: AtomicU64 = AtomicU64::new(0);
static CLOSES: AtomicU64 = AtomicU64::new(0);

/// What `OPENS` was when a fork began in which no thread had a log file open; else [`NO_FORK`].
static OPENS_BEFORE_FORK: AtomicU64 = AtomicU64::new(NO_FORK);
const NO_FORK: u64 = u64::MAX;

/// The fork's handler before it, in the parent. The kernel copies the descriptors first and the memory later, so
/// that a file can be open in the child of which its memory knows nothing; the child asks whether any was opened
/// meanwhile.
pub(crate) fn before_fork() {
    let closes = CLOSES.load(Ordering::Relaxed);
    let opens = OPENS.load(Ordering::Relaxed);
    OPENS_BEFORE_FORK.store(if opens == closes { opens } else { NO_FORK }, Ordering::Relaxed);
}

/// The fork's handler after it, in the parent: a child made by raw `clone` shall not take this for its own.
pub(crate) fn after_fork() {
    OPENS_BEFORE_FORK.store(NO_FORK, Ordering::Relaxed);
}

/// The descriptors among which a child looks for one that nobody has noted: what a process may open by default.
const LIKELY_DESCRIPTORS: core::ops::Range<i32> = 3..1024;

/// In a child: closes the log files that the threads of process `parent` had open, if the numbers still mean them. A
/// child that ran no fork handler may have reused them. Async-signal-safe.
pub(crate) fn close_inherited_files(parent: i32) {
    let log = identity_of_log(parent);
    let close = |descriptor: i32| {
        // The program may have the file open as well, but hardly like this.
        // SAFETY: asks for flags.
        let flags = unsafe { libc::fcntl(descriptor, libc::F_GETFL) };
        let is_ours =
            flags >= 0 && flags & (libc::O_ACCMODE | libc::O_APPEND) == libc::O_WRONLY | libc::O_APPEND;
        if log.is_some() && is_ours && region::identity_of(descriptor) == log {
            // SAFETY: a thread of the parent opened it, the child has no other user of it.
            unsafe { libc::close(descriptor) };
        }
    };
    for place in &OPEN_FILES {
        let inherited = place.swap(-1, Ordering::Relaxed);
        if inherited >= 0 {
            close(inherited);
        }
    }
    let opens = OPENS.load(Ordering::Relaxed);
    if opens != OPENS_BEFORE_FORK.swap(NO_FORK, Ordering::Relaxed) {
        LIKELY_DESCRIPTORS.for_each(close);
    }
    CLOSES.store(opens, Ordering::Relaxed);
}

/// The open log file of one thread.
#[derive(Debug)]
pub(crate) struct Output {
    /// −1 while closed.
    descriptor: i32,
    /// Where the descriptor is noted for a child.
    note: Option<&'static AtomicI32>,
    /// The writer also tells the region which file it has opened.
    is_writers: bool,
    /// What the file should have, going by its size when it was opened and what was appended here.
    bytes: u64,
    is_regular: bool,
}

impl Output {
    /// A closed output; it opens when something is written.
    pub(crate) const fn new(is_writers: bool) -> Self {
        Self { descriptor: -1, note: None, is_writers, bytes: 0, is_regular: false }
    }

    /// The size that the file has by now, as far as it was written here; `None` if it is none, or closed and
    /// never opened.
    pub(crate) fn bytes(&self) -> Option<u64> {
        self.is_regular.then_some(self.bytes)
    }

    /// Appends the records that lie one behind the other in `text` from `start` on, the n-th ending at
    /// `ends[n]`, with as few writes as the system takes. Gives how many landed, which are the first ones; the
    /// next one is lost.
    pub(crate) fn append(&mut self, text: &[u8], start: usize, ends: &[u32]) -> usize {
        if self.descriptor < 0 && !self.open() {
            return 0;
        }
        let end = ends.last().map_or(start, |&end| end as usize);
        let lock = FileLock::take(self.descriptor);
        let reached = start + write_all(self.descriptor, &text[start..end]);
        if reached == end {
            self.bytes += (end - start) as u64;
            return ends.len();
        }
        let landed = ends.partition_point(|&end| end as usize <= reached);
        let whole = landed.checked_sub(1).map_or(start, |last| ends[last] as usize);
        self.bytes += (whole - start) as u64;
        cut_back(&lock, reached - whole);
        drop(lock);
        self.close();
        landed
    }

    fn open(&mut self) -> bool {
        let path = log_path(state(), pid());
        if !self.is_writers {
            OPENS.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: the path is zero-terminated.
        let descriptor = unsafe {
            libc::open(
                path.as_ptr().cast(),
                libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND | libc::O_CLOEXEC,
                0o666,
            )
        };
        self.set_descriptor(descriptor);
        if descriptor < 0 {
            self.count_close();
            return false;
        }
        let status = region::status_of(descriptor);
        self.is_regular = status.is_some_and(|status| status.st_mode & libc::S_IFMT == libc::S_IFREG);
        self.bytes = status.map_or(0, |status| status.st_size.cast_unsigned());
        if let (true, Some(status), Some(region)) = (self.is_writers, status, Region::current()) {
            region.note_opened(without_zero(&path), status.st_dev, status.st_ino, self.bytes());
        }
        // An anchor that went to stderr before the directory was bound comes first here as well, and the identity of
        // the host behind it.
        if anchor_record::is_to_be_repeated() {
            let repeated = self.repeat(anchor_record::take_repeat, anchor_record::give_back_repeat);
            if !repeated {
                return false;
            }
        }
        !host_identity::is_to_be_repeated()
            || self.repeat(host_identity::take_repeat, host_identity::give_back_repeat)
    }

    /// Writes a record that went to stderr, if `take` still gives it: under the file's lock, so that no other thread
    /// appends before it. Where that fails the file is closed, and the record given back.
    fn repeat(
        &mut self,
        take: impl FnOnce(&mut [u8; RECORD_BYTES]) -> Option<usize>,
        give_back: impl FnOnce(),
    ) -> bool {
        let lock = FileLock::take(self.descriptor);
        let mut record = [0; RECORD_BYTES];
        let Some(size) = take(&mut record) else { return true };
        let written = write_all(self.descriptor, &record[..size]);
        if written < size {
            cut_back(&lock, written);
            drop(lock);
            give_back();
            self.close();
            return false;
        }
        self.bytes += size as u64;
        true
    }

    fn close(&mut self) {
        if self.descriptor >= 0 {
            let descriptor = self.descriptor;
            // Noted first: a child forked between the two would close somebody else's.
            self.set_descriptor(-1);
            // SAFETY: the descriptor was opened here and is forgotten.
            unsafe { libc::close(descriptor) };
            self.count_close();
        }
    }

    fn count_close(&self) {
        if !self.is_writers {
            CLOSES.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn set_descriptor(&mut self, descriptor: i32) {
        self.descriptor = descriptor;
        if let Some(note) = self.note.take() {
            note.store(-1, Ordering::Relaxed);
        }
        if descriptor >= 0 {
            self.note = OPEN_FILES.iter().find(|place| {
                place.compare_exchange(-1, descriptor, Ordering::Relaxed, Ordering::Relaxed).is_ok()
            });
        }
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        self.close();
    }
}

/// Device and inode of the log file of process `pid`, if there is one. Async-signal-safe.
fn identity_of_log(pid: i32) -> Option<(u64, u64)> {
    let path = log_path(state(), pid);
    let mut named = core::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the path is zero-terminated, and there is room for the answer.
    if unsafe { libc::stat(path.as_ptr().cast(), named.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: filled, for the call succeeded.
    let named = unsafe { named.assume_init() };
    Some((named.st_dev, named.st_ino))
}

/// The bound directory's path, without the zero at its end.
fn directory_bytes(state: &SimplerHostLogState) -> impl Iterator<Item = u8> {
    let bytes = &state.log_directory[..LOG_DIRECTORY_BYTES - 1];
    bytes.iter().map(|byte| byte.load(Ordering::Relaxed)).take_while(|byte| *byte != 0)
}

/// `<directory>/host.<pid>.log`, zero-terminated.
fn log_path(state: &SimplerHostLogState, pid: i32) -> [u8; PATH_BYTES] {
    let mut path = [0; PATH_BYTES];
    let mut length = 0;
    for (place, byte) in path.iter_mut().zip(directory_bytes(state)) {
        *place = byte;
        length += 1;
    }
    let mut rest = &mut path[length..PATH_BYTES - 1];
    // Always fits: the directory has at most 1023 bytes, and the name at most 20.
    let _ = std::io::Write::write_fmt(&mut rest, format_args!("/host.{pid}.log"));
    path
}

fn without_zero(path: &[u8]) -> &[u8] {
    path.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Writes all of `bytes`, over interruptions and short writes, and gives how many were taken.
fn write_all(descriptor: i32, bytes: &[u8]) -> usize {
    let mut written = 0;
    while written < bytes.len() {
        let rest = &bytes[written..];
        // SAFETY: `rest` is readable for its length.
        let taken = unsafe { libc::write(descriptor, rest.as_ptr().cast(), rest.len()) };
        if taken > 0 {
            written += taken as usize;
            continue;
        }
        let error = std::io::Error::last_os_error().raw_os_error();
        match error {
            Some(libc::EINTR) if taken < 0 => {}
            // Somebody made stderr non-blocking: wait as a blocking one would.
            Some(libc::EAGAIN) if taken < 0 && poll_writable(descriptor, i64::MAX) => {}
            _ => break,
        }
    }
    written
}

/// Whether `descriptor` can be written, now or before `deadline_ns` of the monotonic clock.
fn poll_writable(descriptor: i32, deadline_ns: i64) -> bool {
    let mut entry = libc::pollfd { fd: descriptor, events: libc::POLLOUT, revents: 0 };
    loop {
        let left_ms = deadline_ns.saturating_sub(monotonic_ns()).max(0) / 1_000_000;
        let slice_ms = i32::try_from(left_ms).unwrap_or(i32::MAX);
        // SAFETY: one valid entry.
        let ready = unsafe { libc::poll(&mut entry, 1, slice_ms) };
        if ready > 0 || ready == 0 && slice_ms < i32::MAX {
            return ready > 0 && entry.revents & (libc::POLLOUT | libc::POLLERR) == libc::POLLOUT;
        }
        if ready == 0 {
            continue;
        }
        if std::io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
            return false;
        }
    }
}

/// The lock of an open log file, held by who appends to it and may cut what it appended.
struct FileLock {
    descriptor: i32,
    is_held: bool,
}

/// How often the lock is asked for, and what lies between. An append takes some µs. Longer than this the lock is held
/// by somebody who reads (or by the frame below a signal handler), and the append goes on without: what is lost by
/// that is only the cutting of a torn record.
const LOCK_TRIES: u32 = 20;
const LOCK_PAUSE_NS: i64 = 100_000;

impl FileLock {
    /// Asks for the lock; not held where the file has none to give, or somebody keeps it.
    fn take(descriptor: i32) -> FileLock {
        for _ in 0..LOCK_TRIES {
            // SAFETY: flock has no memory preconditions.
            if unsafe { libc::flock(descriptor, libc::LOCK_EX | libc::LOCK_NB) } == 0 {
                return FileLock { descriptor, is_held: true };
            }
            match std::io::Error::last_os_error().raw_os_error() {
                Some(libc::EINTR) => {}
                Some(libc::EWOULDBLOCK) => {
                    let pause = libc::timespec { tv_sec: 0, tv_nsec: LOCK_PAUSE_NS };
                    // SAFETY: a valid time; to return early is fine.
                    unsafe { libc::nanosleep(&raw const pause, core::ptr::null_mut()) };
                }
                _ => break,
            }
        }
        FileLock { descriptor, is_held: false }
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        if !self.is_held {
            return;
        }
        // SAFETY: flock has no memory preconditions.
        unsafe { libc::flock(self.descriptor, libc::LOCK_UN) };
    }
}

/// Removes the last `bytes` that the lock's descriptor appended, unless somebody appended behind them, which
/// nobody can while the lock is held.
fn cut_back(lock: &FileLock, bytes: usize) {
    if bytes == 0 || !lock.is_held {
        return;
    }
    let descriptor = lock.descriptor;
    // In append mode the offset is the end of the last write.
    // SAFETY: lseek has no memory preconditions.
    let end = unsafe { libc::lseek(descriptor, 0, libc::SEEK_CUR) };
    // SAFETY: as above.
    let size = unsafe { libc::lseek(descriptor, 0, libc::SEEK_END) };
    if end == size && end >= bytes as libc::off_t {
        let whole = end - bytes as libc::off_t;
        // SAFETY: as above. Should it fail, the torn record stays; the reader knows how to count it.
        unsafe { libc::ftruncate(descriptor, whole) };
        // Without append mode the next write would leave a hole.
        // SAFETY: as above.
        unsafe { libc::lseek(descriptor, whole, libc::SEEK_SET) };
    }
}
