//! The ring files of this user: which there are, whether their processes live, and what is in them.
//!
//! A ring is looked at from outside here, by another process than its own, so nothing is taken for granted: the
//! file may be cut short, be left by another version or hold anything. It is read, not mapped, since a mapped file
//! that is cut meanwhile kills who touches it; and everything in a [`Region`] is a number or a byte of which any
//! value is valid, so a copy of whatever was found is a region whose *words* may be wrong, and no worse.
//!
//! Whether a process lives is told by its lock (see `region`). Who works on a dead process's ring takes a lock, too,
//! one that belongs to the open file and not to the process: it conflicts with the other kind and with its
//! like, also between threads, and nothing but closing that very file gives it back. A lock is only taken of a ring
//! that is finished, since its process took its own before it finished it: so nobody ever finds the ring that
//! it is just making locked by somebody who only looks.
//!
//! A process never opens a ring of its own here: to close it would give its lock away.

use std::ffi::CString;
use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use crate::region::{self, Region};

/// The bytes of a region that its marks take.
const MARKS_BYTES: usize = 16;

/// The name of a ring file of this boot, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RingName {
    name: String,
    /// The process that made it, as its pid namespace calls it.
    pub(crate) pid: i32,
    /// Whether this process is of the same pid namespace, so that the pid means something here.
    pub(crate) is_of_this_namespace: bool,
}

/// Who holds a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// Its process, which lives.
    Process,
    /// Somebody who works on a dead process's ring.
    Recovery,
    /// Nobody: its process is dead.
    Nobody,
}

/// Why a file is no ring that can be used.
#[derive(Debug)]
pub(crate) enum Flaw {
    /// Its process has not finished making it, and never will if it is dead.
    Unfinished,
    /// It does not begin like a ring.
    NoRing,
    /// It was made by another version of this program.
    OtherVersion,
    /// It has too few bytes.
    CutShort(u64),
    /// It belongs to that user.
    Foreign(u32),
    /// It cannot be opened or read.
    Unreadable(io::Error),
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Flaw::Unfinished => f.write_str("was never finished: its process died while it made it"),
            Flaw::NoRing => f.write_str("is no ring of the log"),
            Flaw::OtherVersion => {
                f.write_str("was left by another version of simpler, which must recover it")
            }
            Flaw::CutShort(bytes) => {
                write!(f, "is cut short: {bytes} of {} bytes are there", size_of::<Region>())
            }
            Flaw::Foreign(user) => write!(f, "belongs to user {user}"),
            Flaw::Unreadable(error) => write!(f, "cannot be read: {error}"),
        }
    }
}

/// The folder of this user's rings, open.
#[derive(Debug)]
pub(crate) struct Rings {
    folder: OwnedFd,
    /// What the names of this process's rings begin with.
    own: String,
    /// The pid namespace's part of it, with the boot's.
    namespace: String,
    boot: String,
}

impl Rings {
    /// Opens the folder; `None` if there is none, and so no ring either.
    ///
    /// # Errors
    ///
    /// When it cannot be opened or cannot be trusted, see [`region::open_folder`].
    pub(crate) fn open() -> io::Result<Option<Rings>> {
        let folder = match region::open_folder(false) {
            Ok(folder) => folder,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let namespace = region::name_prefix()?;
        let own = format!("{namespace}-{}.", std::process::id());
        let boot = namespace.rsplit_once('-').map_or("", |(boot, _)| boot).to_owned();
        Ok(Some(Rings { folder, own, namespace, boot }))
    }

    /// The rings of this boot, by pid and age, without those of this process. Files of other names are passed over.
    pub(crate) fn names(&self) -> io::Result<Vec<RingName>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(region::folder_path())? {
            if let Some(name) = entry?.file_name().to_str().and_then(|name| self.parse(name)) {
                names.push(name);
            }
        }
        names.sort_by_cached_key(|(name, number)| (name.pid, *number));
        Ok(names.into_iter().map(|(name, _)| name).collect())
    }

    /// Takes `<boot>-<pid namespace>-<pid>.<number>` apart.
    fn parse(&self, name: &str) -> Option<(RingName, u32)> {
        let (rest, number) = name.rsplit_once('.')?;
        let (namespace, pid) = rest.rsplit_once('-')?;
        let (boot, _) = namespace.rsplit_once('-')?;
        let (pid, number) = (pid.parse().ok()?, number.parse().ok()?);
        if boot != self.boot || pid <= 0 || name.starts_with(&self.own) {
            return None;
        }
        let is_of_this_namespace = namespace == self.namespace;
        Some((RingName { name: name.to_owned(), pid, is_of_this_namespace }, number))
    }

    /// Opens a ring that [`Rings::names`] gave; `None` if it is gone by now.
    pub(crate) fn ring(&self, name: &RingName) -> Result<Option<RingFile>, Flaw> {
        let c_name = CString::new(name.name.as_str()).map_err(|error| Flaw::Unreadable(error.into()))?;
        // Without waiting, should it be a pipe.
        let flags = libc::O_RDWR | libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
        // SAFETY: the name is zero-terminated.
        let descriptor = unsafe { libc::openat(self.folder.as_raw_fd(), c_name.as_ptr(), flags) };
        if descriptor < 0 {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::NotFound => Ok(None),
                _ => Err(Flaw::Unreadable(error)),
            };
        }
        // SAFETY: opened just now.
        let file = File::from(unsafe { OwnedFd::from_raw_fd(descriptor) });
        let status =
            region::status_of(descriptor).ok_or_else(|| Flaw::Unreadable(io::Error::last_os_error()))?;
        if status.st_mode & libc::S_IFMT != libc::S_IFREG {
            return Err(Flaw::NoRing);
        }
        // SAFETY: no preconditions.
        if status.st_uid != unsafe { libc::geteuid() } {
            return Err(Flaw::Foreign(status.st_uid));
        }
        Ok(Some(RingFile { file }))
    }

    /// Where the ring lies, for texts.
    pub(crate) fn path(&self, name: &RingName) -> PathBuf {
        region::folder_path().join(&name.name)
    }

    /// Removes the ring's file. Only by who holds its lock, or for one that no process can be making any more.
    pub(crate) fn remove(&self, name: &RingName) -> io::Result<()> {
        let c_name = CString::new(name.name.as_bytes())?;
        // SAFETY: the name is zero-terminated.
        match unsafe { libc::unlinkat(self.folder.as_raw_fd(), c_name.as_ptr(), 0) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// The ring of another process, open.
#[derive(Debug)]
pub(crate) struct RingFile {
    file: File,
}

impl RingFile {
    /// A private copy of all of it: of a living process's ring a sample, in which words that belong together may
    /// be of different moments.
    pub(crate) fn read(&self) -> Result<Box<Region>, Flaw> {
        self.read_first(size_of::<Region>())
    }

    /// As [`RingFile::read`] of the first `length` bytes; the rest is zero.
    pub(crate) fn read_first(&self, length: usize) -> Result<Box<Region>, Flaw> {
        let bytes = self.file.metadata().map_err(Flaw::Unreadable)?.len();
        if bytes == 0 {
            return Err(Flaw::Unfinished);
        }
        let mut region = zeroed_region();
        let cut_short = |error: io::Error| match error.kind() {
            io::ErrorKind::UnexpectedEof => Flaw::CutShort(bytes),
            _ => Flaw::Unreadable(error),
        };
        let marks = &mut bytes_of(&mut region)[..MARKS_BYTES];
        self.file.read_exact_at(marks, 0).map_err(cut_short)?;
        let is_begun = marks[..size_of::<u64>()] != [0; size_of::<u64>()];
        let (is_finished, is_this_version) = region.marks();
        if !is_finished {
            return Err(if is_begun { Flaw::NoRing } else { Flaw::Unfinished });
        }
        if !is_this_version {
            return Err(Flaw::OtherVersion);
        }
        if bytes < size_of::<Region>() as u64 {
            return Err(Flaw::CutShort(bytes));
        }
        let rest = MARKS_BYTES..length.clamp(MARKS_BYTES, size_of::<Region>());
        self.file.read_exact_at(&mut bytes_of(&mut region)[rest], MARKS_BYTES as u64).map_err(cut_short)?;
        Ok(region)
    }

    /// How long ago the file was made or last written to by a call; `None` where that cannot be told.
    pub(crate) fn age(&self) -> Option<std::time::Duration> {
        self.file.metadata().ok()?.modified().ok()?.elapsed().ok()
    }

    /// Reads what is at `offset` of a ring that [`RingFile::read_first`] found whole.
    pub(crate) fn sample(&self, bytes: &mut [u8], offset: usize) -> io::Result<()> {
        self.file.read_exact_at(bytes, offset as u64)
    }

    /// Who holds the ring. Only of one that is finished is `Nobody` the answer that its process is dead.
    pub(crate) fn holder(&self) -> io::Result<Holder> {
        let mut lock = lock_of(libc::F_WRLCK);
        // SAFETY: a valid lock description.
        if unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(if lock.l_type == libc::F_UNLCK as libc::c_short {
            Holder::Nobody
        } else if lock.l_pid == -1 {
            // That is how the kernel says that the lock belongs to an open file.
            Holder::Recovery
        } else {
            Holder::Process
        })
    }

    /// Takes the ring's lock if nobody has it. Given back when the file is closed. Only for a finished ring.
    pub(crate) fn try_lock(&self) -> io::Result<bool> {
        let lock = lock_of(libc::F_WRLCK);
        // SAFETY: a valid lock description.
        if unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) } == 0 {
            return Ok(true);
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EACCES) => Ok(false),
            _ => Err(error),
        }
    }

    /// As [`RingFile::try_lock`], waiting for another recovery to end.
    pub(crate) fn lock(&self) -> io::Result<()> {
        let lock = lock_of(libc::F_WRLCK);
        loop {
            // SAFETY: a valid lock description.
            if unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_OFD_SETLKW, &raw const lock) } == 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }

    /// Whether the file was removed since it was opened: by its process, which had nothing left to write, or by who
    /// has recovered it.
    pub(crate) fn is_removed(&self) -> io::Result<bool> {
        let status = region::status_of(self.file.as_raw_fd()).ok_or_else(io::Error::last_os_error)?;
        Ok(status.st_nlink == 0)
    }

    /// Writes a part of `region`, a copy that was read from here and then changed, back. Only by who holds the
    /// ring's lock.
    pub(crate) fn write_back(&self, region: &mut Region, part: Range<usize>) -> io::Result<()> {
        self.file.write_all_at(&bytes_of(region)[part.clone()], part.start as u64)
    }
}

/// A region in which everything is zero, and which is unfinished therefore.
pub(crate) fn zeroed_region() -> Box<Region> {
    // SAFETY: a region is atomics, and cells of numbers and bytes, of which zero is valid.
    unsafe { Box::<Region>::new_zeroed().assume_init() }
}

/// The bytes of a region that was made by [`zeroed_region`].
pub(crate) fn bytes_of(region: &mut Region) -> &mut [u8] {
    let start: *mut u8 = core::ptr::from_mut(region).cast();
    // SAFETY: that many bytes, all of them initialised, padding included, since they were zeroed; borrowed from
    // `region`, and any value of any byte is valid in it.
    unsafe { std::slice::from_raw_parts_mut(start, size_of::<Region>()) }
}

fn lock_of(kind: i32) -> libc::flock {
    // SAFETY: plain integers, of which zero is valid.
    let mut lock: libc::flock = unsafe { core::mem::zeroed() };
    lock.l_type = kind as _;
    lock.l_whence = libc::SEEK_SET as _;
    lock
}
