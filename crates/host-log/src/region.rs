//! The region: everything of the log that is to survive its process, as one file in shared memory.
//!
//! It holds the queue, the open spans, the clock's knots, the log's path, how far the writer has come and what was
//! lost: bytes and numbers, never an address. A process that is killed leaves it behind, and `recover` renders
//! what was accepted and not yet written; who looks at a living one sees where it is.
//!
//! The file lies in a folder of the user's own (0700, owner checked, no link followed) and is named by boot, pid
//! namespace and pid. Its space is reserved when it is made, so that a file system that becomes full later
//! cannot fault a producer. Where any of this fails, the region is private memory: logging is the same, only a
//! crash loses what is queued, and one warning says so.
//!
//! Whether the process lives is told by a lock on the file that the kernel takes away with the process, not by
//! a pid, which may be somebody else's by now.
//!
//! FORK: a child does not inherit the memory (`MADV_DONTFORK`), and so can never write into its parent's queue;
//! it forgets the address before it looks (see `fork`), and makes a region of its own when it starts a writer. It
//! inherits the descriptor but not the lock, and closes it.
//!
//! A region is mapped once and never unmapped, so that a producer that is late, or that lives in a module which
//! is about to go, can never touch memory that is gone.

use std::ffi::{CStr, CString, OsString};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, AtomicI64, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering, fence};

use simpler_log_abi::{DROP_REASONS, DropReason, LOG_DIRECTORY_BYTES, SimplerHostLogState};

use crate::queue::{QUEUE_SLOTS, RUN_SLOTS, Ring};
use crate::stack::{OPEN_FRAME_BYTES, OPEN_SPANS_MAX, Stacks, THREADS_MAX};
use crate::ticks::{KNOTS_MAX, Knot, TickClock};
use crate::wake::Doorbell;

/// Where the folder of rings is, instead of `/dev/shm`: for machines whose shared memory is elsewhere.
pub(crate) const FOLDER_VARIABLE: &CStr = c"SIMPLER_SHM";

/// What a region that is ready begins with.
const MAGIC: u64 = u64::from_le_bytes(*b"simplrRG");

/// Room for the log's path: the directory, `/host.`, a pid, `.log`.
pub(crate) const LOG_PATH_BYTES: usize = LOG_DIRECTORY_BYTES + 32;

/// The size that stands for a destination which has none: stderr, a pipe.
const NO_SIZE: u64 = u64::MAX;

/// How many regions of one pid can lie in the folder: one that lives, and those of dead processes that had the
/// same pid and wait for recovery.
const NAMES_MAX: u32 = 64;

// What threads leave reserved cannot fill the ring, see `RUN_SLOTS`.
const _: () = assert!(RUN_SLOTS as usize * THREADS_MAX <= QUEUE_SLOTS / 2);

/// What the layout depends on, as one number: a region made by another version of this code has another one.
pub(crate) const LAYOUT: u64 = {
    /// Grows when the meaning of the bytes changes and no number below does.
    const REVISION: u64 = 4;
    let parts = [
        REVISION,
        size_of::<Region>() as u64,
        QUEUE_SLOTS as u64,
        RUN_SLOTS,
        KNOTS_MAX as u64,
        THREADS_MAX as u64,
        OPEN_SPANS_MAX as u64,
        OPEN_FRAME_BYTES as u64,
        std::mem::offset_of!(Region, progress) as u64,
        std::mem::offset_of!(Region, ticks) as u64,
        std::mem::offset_of!(Region, ring) as u64,
        std::mem::offset_of!(Region, stacks) as u64,
    ];
    // FNV-1a over the parts.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut index = 0;
    while index < parts.len() {
        hash = (hash ^ parts[index]).wrapping_mul(0x0100_0000_01b3);
        index += 1;
    }
    hash
};

/// How far the writer has come. Two of these take turns, so that one is always whole.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Progress {
    /// The first position that is neither written nor counted.
    next: AtomicU64,
    /// The size that the log file has then, or [`NO_SIZE`].
    file_bytes: AtomicU64,
    /// How many records the writer has counted as lost.
    failed: AtomicU64,
}

/// A [`Progress`], read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Come {
    /// The first position that is neither written nor counted.
    pub(crate) next: u64,
    /// The size that the log file has then; `None` for a destination that has none.
    pub(crate) file_bytes: Option<u64>,
    /// How many records the writer has counted as lost.
    pub(crate) failed: u64,
}

/// Both clocks, as a recovery has read them; the tick is 0 while none has.
#[derive(Debug)]
#[repr(C)]
struct RecoveryKnot {
    tick: AtomicU64,
    ns: AtomicI64,
}

/// The log file, noted when its directory is bound, and again as the writer opened it.
#[derive(Debug)]
#[repr(C)]
struct LogFile {
    device: AtomicU64,
    /// 0 while the writer has opened none.
    inode: AtomicU64,
    /// 0 while no directory is bound.
    path_bytes: AtomicU32,
    path: [AtomicU8; LOG_PATH_BYTES],
}

/// All of it. Zeroed memory is a valid, unfinished region.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Region {
    magic: AtomicU64,
    layout: AtomicU64,
    pid: AtomicI32,
    uses_ticks: AtomicU32,
    /// The bound on the clock's error so far, ns; 0 while nothing was converted.
    pub(crate) clock_error_ns: AtomicI64,
    /// What was lost, but for what the writer lost.
    dropped_by_reason: [AtomicU64; DROP_REASONS],
    /// How much of all that a report in the log has told.
    pub(crate) reported: AtomicU64,
    log: LogFile,
    /// The current progress is this number's parity.
    progressed: AtomicU32,
    progress: [Progress; 2],
    /// A pair of the clocks that was read after the process's death, for readings that are newer than its last
    /// knot. Kept here, so that a recovery that is interrupted renders the same when it is run again.
    recovery_knot: RecoveryKnot,
    pub(crate) ticks: TickClock,
    pub(crate) doorbell: Doorbell,
    /// Grows with every batch; who waits for the writer sleeps on it.
    pub(crate) batches: AtomicU32,
    pub(crate) waiters: AtomicU32,
    pub(crate) ring: Ring,
    pub(crate) stacks: Stacks,
}

/// Where in a region's bytes the parts lie that a recovery writes back.
pub(crate) mod parts {
    use core::mem::offset_of;
    use core::ops::Range;

    use super::{LogFile, Progress, RecoveryKnot, Region};
    use crate::queue::{QUEUE_SLOTS, Ring};

    /// Everything in front of the slots: what says whether there is something to recover.
    pub(crate) const HEAD_BYTES: usize = offset_of!(Region, ring) + Ring::<QUEUE_SLOTS>::CURSORS_BYTES;
    /// The process's id.
    #[cfg(any(fuzzing, test))]
    pub(crate) const PID: Range<usize> = range(offset_of!(Region, pid), size_of::<i32>());
    /// The places that take turns.
    pub(crate) const PROGRESS: Range<usize> = range(offset_of!(Region, progress), size_of::<[Progress; 2]>());
    /// Which of them is current.
    pub(crate) const PROGRESSED: Range<usize> = range(offset_of!(Region, progressed), size_of::<u32>());
    /// The log file's device.
    pub(crate) const DEVICE: Range<usize> =
        range(offset_of!(Region, log) + offset_of!(LogFile, device), size_of::<u64>());
    /// The log file's inode, by which it counts as opened.
    pub(crate) const INODE: Range<usize> =
        range(offset_of!(Region, log) + offset_of!(LogFile, inode), size_of::<u64>());
    /// The clocks as read by a recovery.
    pub(crate) const RECOVERY_KNOT: Range<usize> =
        range(offset_of!(Region, recovery_knot), size_of::<RecoveryKnot>());
    /// How much of the losses was told.
    pub(crate) const REPORTED: Range<usize> = range(offset_of!(Region, reported), size_of::<u64>());

    const fn range(start: usize, length: usize) -> Range<usize> {
        start..start + length
    }
}

/// This process's region, null before its first writer.
///
/// FORK: the address is the parent's and points to nothing in the child, which sets it to null first of all.
static CURRENT: AtomicPtr<Region> = AtomicPtr::new(core::ptr::null_mut());

/// The region's file.
///
/// FORK: the child closes its copy of the descriptor; the lock stays the parent's.
static FILE: FileNote =
    FileNote { descriptor: AtomicI32::new(-1), device: AtomicU64::new(0), inode: AtomicU64::new(0) };

/// The file's path, zero-terminated and leaked, or null.
static FILE_PATH: AtomicPtr<std::ffi::c_char> = AtomicPtr::new(core::ptr::null_mut());

#[derive(Debug)]
struct FileNote {
    descriptor: AtomicI32,
    device: AtomicU64,
    inode: AtomicU64,
}

impl Region {
    /// This process's region, if it has one.
    // HOT: one load.
    #[inline]
    pub(crate) fn current() -> Option<&'static Region> {
        // ORDERING: Acquire pairs with the Release in `create`.
        let region = CURRENT.load(Ordering::Acquire);
        // SAFETY: null, or memory that `create` mapped, that stays for ever, and whose address a child forgets
        // before it asks; shared access to atomics and to cells that guard themselves.
        unsafe { region.as_ref() }
    }

    /// Makes a region and makes it the current one; gives also why it is private memory, if it is. Only under the
    /// owner word's claim.
    pub(crate) fn create(pid: i32, uses_ticks: bool) -> io::Result<(&'static Region, Option<io::Error>)> {
        let (memory, why_private) = match map_file(pid) {
            Ok(memory) => (memory, None),
            Err(why) => (map_memory(None)?, Some(why)),
        };
        // SAFETY: mapped just now, zeroed and of that size, aligned to a page, and never unmapped.
        let region: &'static Region = unsafe { &*memory.cast::<Region>() };
        region.ring.reset();
        region.doorbell.reset();
        region.pid.store(pid, Ordering::Relaxed);
        region.uses_ticks.store(u32::from(uses_ticks), Ordering::Relaxed);
        if uses_ticks {
            region.ticks.begin();
        }
        region.layout.store(LAYOUT, Ordering::Relaxed);
        // ORDERING: Release: who finds the file with this in it finds the rest.
        region.magic.store(MAGIC, Ordering::Release);
        // ORDERING: Release pairs with the Acquire in `current`.
        CURRENT.store(memory.cast(), Ordering::Release);
        Ok((region, why_private))
    }

    /// Whether readings of the processor's counter are taken in this region.
    pub(crate) fn uses_ticks(&self) -> bool {
        self.uses_ticks.load(Ordering::Relaxed) != 0
    }

    /// The counter turned out to be no clock: no more readings of it.
    pub(crate) fn leave_ticks(&self) {
        self.uses_ticks.store(0, Ordering::Relaxed);
    }

    /// The writer has dealt with everything below `come.next`. One thread at a time.
    pub(crate) fn commit(&self, come: Come) {
        let number = self.progressed.load(Ordering::Relaxed).wrapping_add(1);
        let place = &self.progress[number as usize % 2];
        place.next.store(come.next, Ordering::Relaxed);
        place.file_bytes.store(come.file_bytes.unwrap_or(NO_SIZE), Ordering::Relaxed);
        place.failed.store(come.failed, Ordering::Relaxed);
        // ORDERING: Release pairs with the Acquire in `come`.
        self.progressed.store(number, Ordering::Release);
    }

    /// How far the writer has come.
    pub(crate) fn come(&self) -> Come {
        // ORDERING: Acquire pairs with the Release in `commit`.
        let place = &self.progress[self.progressed.load(Ordering::Acquire) as usize % 2];
        let file_bytes = place.file_bytes.load(Ordering::Relaxed);
        Come {
            next: place.next.load(Ordering::Relaxed),
            file_bytes: (file_bytes != NO_SIZE).then_some(file_bytes),
            failed: place.failed.load(Ordering::Relaxed),
        }
    }

    /// Notes where the log file will be, for whoever finds the region before the writer has opened it. The first
    /// path stays, as the first directory does; two threads may say it at once. `path` without a zero.
    pub(crate) fn note_path(&self, path: &[u8]) {
        if self.log.path_bytes.load(Ordering::Relaxed) != 0 {
            return;
        }
        for (place, byte) in self.log.path.iter().zip(path) {
            place.store(*byte, Ordering::Relaxed);
        }
        // ORDERING: Release: who sees the length sees the path.
        self.log.path_bytes.store(path.len().min(LOG_PATH_BYTES) as u32, Ordering::Release);
    }

    /// Notes that the log file was opened, and its size, if it has one; what is found behind that may be the
    /// writer's. Only by who commits.
    pub(crate) fn note_opened(&self, path: &[u8], device: u64, inode: u64, file_bytes: Option<u64>) {
        self.note_path(path);
        self.log.inode.store(0, Ordering::Relaxed);
        // ORDERING: Release: should the process be killed among these stores, the file is not opened as far as
        // anybody can tell, and nothing was written to it; never is the size another file's.
        fence(Ordering::Release);
        self.commit(Come { file_bytes, ..self.come() });
        self.log.device.store(device, Ordering::Relaxed);
        // ORDERING: Release, as above.
        self.log.inode.store(inode, Ordering::Release);
    }

    /// The log file's path, if a directory was bound, and its device and inode, which are 0 while the writer has not
    /// opened it.
    pub(crate) fn log(&self) -> Option<(PathBuf, u64, u64)> {
        // ORDERING: Acquire pairs with the Release in `note_path`.
        let length = (self.log.path_bytes.load(Ordering::Acquire) as usize).min(LOG_PATH_BYTES);
        let path: Vec<u8> = self.log.path[..length].iter().map(|byte| byte.load(Ordering::Relaxed)).collect();
        // ORDERING: Acquire pairs with the Release in `note_opened`.
        let inode = self.log.inode.load(Ordering::Acquire);
        let device = if inode == 0 { 0 } else { self.log.device.load(Ordering::Relaxed) };
        (length != 0).then(|| (PathBuf::from(OsString::from_vec(path)), device, inode))
    }

    /// No file is opened: the one that was is gone, and who recovers makes another. As a stage of its own, so that
    /// an interruption before [`Region::note_opened`] leaves this.
    pub(crate) fn forget_file(&self) {
        self.log.inode.store(0, Ordering::Relaxed);
    }

    /// The pair of the clocks, tick and ns, that a recovery has read.
    pub(crate) fn recovery_knot(&self) -> Option<(u64, i64)> {
        let knot = &self.recovery_knot;
        let knot = (knot.tick.load(Ordering::Relaxed), knot.ns.load(Ordering::Relaxed));
        (knot.0 != 0).then_some(knot)
    }

    /// Keeps the pair of the clocks that a recovery has read.
    pub(crate) fn keep_recovery_knot(&self, knot: Knot) {
        self.recovery_knot.ns.store(knot.ns, Ordering::Relaxed);
        self.recovery_knot.tick.store(knot.tick, Ordering::Relaxed);
    }

    /// The region shall know what `state` says was refused, here or in other modules.
    pub(crate) fn note_refused(&self, state: &SimplerHostLogState) {
        for reason in DropReason::ALL.into_iter().filter(|reason| *reason != DropReason::OutputFailed) {
            let counted = state.dropped_by_reason[reason as usize].load(Ordering::Relaxed);
            if counted > self.dropped_by_reason[reason as usize].load(Ordering::Relaxed) {
                self.dropped_by_reason[reason as usize].fetch_max(counted, Ordering::Relaxed);
            }
        }
    }

    /// One more record did not reach the destination, and not by the writer, which tells it with its progress.
    pub(crate) fn note_failed(&self) {
        self.dropped_by_reason[DropReason::OutputFailed as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// The region shall know all that `state` says was lost. Only while there is no writer.
    pub(crate) fn note_all(&self, state: &SimplerHostLogState) {
        self.note_refused(state);
        let counted = state.dropped_by_reason[DropReason::OutputFailed as usize].load(Ordering::Relaxed);
        let elsewhere = counted.saturating_sub(self.come().failed);
        self.dropped_by_reason[DropReason::OutputFailed as usize].fetch_max(elsewhere, Ordering::Relaxed);
        self.reported.store(state.reported_drop_count.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// What was lost, by reason, the writer's losses included.
    pub(crate) fn dropped_by_reason(&self) -> [u64; DROP_REASONS] {
        let mut counts =
            DropReason::ALL.map(|reason| self.dropped_by_reason[reason as usize].load(Ordering::Relaxed));
        counts[DropReason::OutputFailed as usize] =
            counts[DropReason::OutputFailed as usize].saturating_add(self.come().failed);
        counts
    }

    /// The process that the region belongs to.
    pub(crate) fn pid(&self) -> i32 {
        self.pid.load(Ordering::Relaxed)
    }

    /// Whether this is a region, finished, and of this version's layout: what to ask of bytes that were found.
    pub(crate) fn marks(&self) -> (bool, bool) {
        // ORDERING: Acquire pairs with the Release in `create`.
        let is_finished = self.magic.load(Ordering::Acquire) == MAGIC;
        (is_finished, self.layout.load(Ordering::Relaxed) == LAYOUT)
    }

    /// Removes the file, now that everything is written; the memory stays as it is.
    pub(crate) fn remove_file() {
        let path = FILE_PATH.swap(core::ptr::null_mut(), Ordering::Relaxed);
        if path.is_null() {
            return;
        }
        // SAFETY: a zero-terminated path that was leaked for this.
        unsafe { libc::unlink(path) };
        close_if_still_the_file();
    }
}

/// In a child: forgets the parent's region and closes its file, if the descriptor still means it. A child that ran
/// no fork handler may have reused the number. Async-signal-safe.
pub(crate) fn forget_inherited() {
    // ORDERING: Release, for the child's other threads, as in `create`.
    CURRENT.store(core::ptr::null_mut(), Ordering::Release);
    FILE_PATH.store(core::ptr::null_mut(), Ordering::Relaxed);
    close_if_still_the_file();
}

/// Closes the region's descriptor, if the number still means it: somebody may have closed it, and its number may be
/// another file's. Closing it gives the lock back that this process may hold. Async-signal-safe.
fn close_if_still_the_file() {
    let descriptor = FILE.descriptor.swap(-1, Ordering::Relaxed);
    let file = (FILE.device.load(Ordering::Relaxed), FILE.inode.load(Ordering::Relaxed));
    if descriptor >= 0 && identity_of(descriptor) == Some(file) {
        // SAFETY: opened by `map_file`, or inherited from who did, and nobody else knows of it.
        unsafe { libc::close(descriptor) };
    }
}

/// What the kernel says of an open file. Async-signal-safe.
pub(crate) fn status_of(descriptor: i32) -> Option<libc::stat> {
    let mut status = core::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: room for the answer.
    if unsafe { libc::fstat(descriptor, status.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: filled, for the call succeeded.
    Some(unsafe { status.assume_init() })
}

/// Device and inode of an open file. Async-signal-safe.
pub(crate) fn identity_of(descriptor: i32) -> Option<(u64, u64)> {
    status_of(descriptor).map(|status| (status.st_dev, status.st_ino))
}

/// The folder of this user's regions.
pub(crate) fn folder_path() -> PathBuf {
    // SAFETY: no preconditions.
    let user = unsafe { libc::geteuid() };
    let shared_memory = environment(FOLDER_VARIABLE).filter(|folder| !folder.is_empty());
    let shared_memory = shared_memory.unwrap_or_else(|| OsString::from("/dev/shm"));
    let folder = Path::new(&shared_memory).join(format!("simpler-{user}"));
    // Absolute, or a later chdir would mean another one.
    std::path::absolute(&folder).unwrap_or(folder)
}

/// The value of an environment variable; none for a program that runs with more rights than its caller. Not by the
/// standard library, whose lock another thread may hold when this process is forked.
pub(crate) fn environment(name: &CStr) -> Option<OsString> {
    unsafe extern "C" {
        /// As `getenv`, but null in a program with more rights than its caller.
        fn secure_getenv(name: *const core::ffi::c_char) -> *const core::ffi::c_char;
    }
    // SAFETY: a zero-terminated name.
    let value = unsafe { secure_getenv(name.as_ptr()) };
    if value.is_null() {
        return None;
    }
    // SAFETY: the environment's strings are zero-terminated; who changes them while others read breaks C's rule.
    let value = unsafe { CStr::from_ptr(value) };
    Some(OsString::from_vec(value.to_bytes().to_vec()))
}

/// Opens the folder of this user's regions, made if missing when `make` is set.
///
/// # Errors
///
/// When it cannot be opened, is not a folder of its own (a link), belongs to somebody else, or is open to others.
pub(crate) fn open_folder(make: bool) -> io::Result<OwnedFd> {
    let path = folder_path();
    let c_path = CString::new(path.as_os_str().as_bytes())?;
    let with_path = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    if make {
        // SAFETY: the path is zero-terminated.
        let made = unsafe { libc::mkdir(c_path.as_ptr(), 0o700) } == 0;
        let error = io::Error::last_os_error();
        if !made && error.kind() != io::ErrorKind::AlreadyExists {
            return Err(with_path(error));
        }
    }
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    // SAFETY: as above.
    let descriptor = unsafe { libc::open(c_path.as_ptr(), flags) };
    if descriptor < 0 {
        return Err(with_path(io::Error::last_os_error()));
    }
    // SAFETY: opened just now.
    let folder = unsafe { OwnedFd::from_raw_fd(descriptor) };
    let status = status_of(descriptor).ok_or_else(|| with_path(io::Error::last_os_error()))?;
    // SAFETY: no preconditions.
    if status.st_uid != unsafe { libc::geteuid() } {
        let why = format!("{} belongs to user {}", path.display(), status.st_uid);
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    if status.st_mode & 0o077 != 0 {
        let why = format!("{} is open to others (mode {:o})", path.display(), status.st_mode & 0o777);
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    Ok(folder)
}

/// What the names of this boot's and pid namespace's regions begin with.
pub(crate) fn name_prefix() -> io::Result<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let namespace = std::fs::read_link("/proc/self/ns/pid")?;
    let number: String = namespace.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
    Ok(format!("{}-{number}", boot.trim_end()))
}

/// Takes the lock that says that the region's process lives; it goes with the process, or when the process
/// closes any descriptor of the file.
pub(crate) fn lock(file: &OwnedFd) -> io::Result<()> {
    // SAFETY: plain integers, of which zero is valid.
    let mut lock: libc::flock = unsafe { core::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as _;
    lock.l_whence = libc::SEEK_SET as _;
    // SAFETY: a valid lock description.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &raw const lock) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn map_file(pid: i32) -> io::Result<*mut core::ffi::c_void> {
    let folder = open_folder(true)?;
    let prefix = name_prefix()?;
    let (file, name) = make_file(&folder, &prefix, pid)?;
    match reserve_and_map(&file) {
        Ok(memory) => {
            let path = CString::new(folder_path().join(name).into_os_string().as_bytes())?;
            let (device, inode) = identity_of(file.as_raw_fd()).ok_or_else(io::Error::last_os_error)?;
            FILE.device.store(device, Ordering::Relaxed);
            FILE.inode.store(inode, Ordering::Relaxed);
            FILE.descriptor.store(file.into_raw_fd(), Ordering::Relaxed);
            FILE_PATH.store(path.into_raw(), Ordering::Relaxed);
            Ok(memory)
        }
        Err(error) => {
            let name = CString::new(name)?;
            // SAFETY: the name is zero-terminated and was made above.
            unsafe { libc::unlinkat(folder.as_raw_fd(), name.as_ptr(), 0) };
            Err(error)
        }
    }
}

/// A new file for process `pid`; a name that is taken is a dead process's, waiting to be recovered.
fn make_file(folder: &OwnedFd, prefix: &str, pid: i32) -> io::Result<(OwnedFd, String)> {
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    for number in 0..NAMES_MAX {
        let name = format!("{prefix}-{pid}.{number}");
        let c_name = CString::new(name.as_str())?;
        // SAFETY: the name is zero-terminated.
        let descriptor = unsafe { libc::openat(folder.as_raw_fd(), c_name.as_ptr(), flags, 0o600) };
        if descriptor >= 0 {
            // SAFETY: opened just now.
            return Ok((unsafe { OwnedFd::from_raw_fd(descriptor) }, name));
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::AlreadyExists {
            return Err(error);
        }
    }
    let why = format!("{NAMES_MAX} rings of dead processes with pid {pid} wait for `simpler recover`");
    Err(io::Error::new(io::ErrorKind::AlreadyExists, why))
}

fn reserve_and_map(file: &OwnedFd) -> io::Result<*mut core::ffi::c_void> {
    lock(file)?;
    // Beyond the process's limit on file sizes the kernel would not only refuse but send a deadly signal.
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: room for the answer.
    unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) };
    if limit.rlim_cur < size_of::<Region>() as u64 {
        let why = format!(
            "the limit on file sizes is {} bytes, and the ring has {}",
            limit.rlim_cur,
            size_of::<Region>()
        );
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    // SAFETY: the call has no memory arguments.
    let error = unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, size_of::<Region>() as libc::off_t) };
    if error != 0 {
        let error = io::Error::from_raw_os_error(error);
        let why = format!("reserving {} bytes of shared memory: {error}", size_of::<Region>());
        return Err(io::Error::new(error.kind(), why));
    }
    map_memory(Some(file))
}

/// Maps the room for a region that children do not inherit: of `file`, or private memory.
fn map_memory(file: Option<&OwnedFd>) -> io::Result<*mut core::ffi::c_void> {
    let (sharing, descriptor) = match file {
        Some(file) => (libc::MAP_SHARED, file.as_raw_fd()),
        None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1),
    };
    // SAFETY: a mapping at an address of the kernel's choice touches nothing of ours. Populated, so that no
    // producer pays for a page.
    let memory = unsafe {
        libc::mmap(
            core::ptr::null_mut(),
            size_of::<Region>(),
            libc::PROT_READ | libc::PROT_WRITE,
            sharing | libc::MAP_POPULATE,
            descriptor,
            0,
        )
    };
    if memory == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the mapping made above.
    if unsafe { libc::madvise(memory, size_of::<Region>(), libc::MADV_DONTFORK) } != 0 {
        let error = io::Error::last_os_error();
        // SAFETY: as above, and nobody has the address.
        unsafe { libc::munmap(memory, size_of::<Region>()) };
        return Err(error);
    }
    Ok(memory)
}
