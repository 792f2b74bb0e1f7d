//! Which host this process runs on, as a record: once per life behind the clock anchor, and again in a later destination.
//!
//! A pid says who a process is on one host only, and logs of several hosts are read together. So each log names its
//! host: 64 bits that are the same for all processes that share a space of pids, and a name for people. The number is
//! FNV-1a over the boot id, the host's name, and the pid and net namespaces' inodes: a machine that boots again, another
//! machine, and another container on the same one are other hosts. What cannot be read counts as empty; the rest still
//! tells hosts apart.
//!
//! The owner of the log emits it, under a claim like the anchor's but in a word of its own: the anchor may be another
//! module's, which need not know hosts. A record that is lost is tried again.

use core::sync::atomic::{AtomicI32, AtomicU8, AtomicU32, AtomicU64, Ordering};

use simpler_record_format::{HostIdentity, RECORD_BYTES, encode_host_identity};

use crate::anchor::AnchorClaim;
use crate::identity::{monotonic_ns, pid, thread_handle};

/// The kernel's limit for a host's name (`HOST_NAME_MAX`), and room for a zero.
const NAME_BYTES: usize = 65;

/// The process whose identity is out, as the word of an [`AnchorClaim`].
// FORK: the child's handler sets it to 0, and the child says where it runs by itself.
static CLAIM: AtomicI32 = AtomicI32::new(0);

/// The process whose identity went to stderr and stands in no file yet.
// FORK: names the parent, so it means nothing in a child.
static ON_STDERR: AtomicI32 = AtomicI32::new(0);

/// What was found when the writer started: a producer asks the kernel for nothing.
static FOUND: Found = Found {
    pid: AtomicI32::new(0),
    host: AtomicU64::new(0),
    name: [const { AtomicU8::new(0) }; NAME_BYTES],
    name_bytes: AtomicU32::new(0),
};

struct Found {
    /// Whose it is, stored last.
    // FORK: names the parent, so a child looks by itself.
    pid: AtomicI32,
    host: AtomicU64,
    name: [AtomicU8; NAME_BYTES],
    name_bytes: AtomicU32,
}

/// The claim over this copy's word; a copy that is bound to another module's log never asks.
pub(crate) fn claim() -> AnchorClaim<'static> {
    AnchorClaim::new(&CLAIM)
}

/// In a child of a fork. Async-signal-safe.
pub(crate) fn forget_the_parents() {
    CLAIM.store(0, Ordering::Relaxed);
    ON_STDERR.store(0, Ordering::Relaxed);
    FOUND.pid.store(0, Ordering::Relaxed);
}

/// Asks the kernel, for producers of this life to come. Only while a writer is being started, which one thread does.
pub(crate) fn note() {
    let (host, name, name_bytes) = look();
    FOUND.host.store(host, Ordering::Relaxed);
    for (place, byte) in FOUND.name.iter().zip(name) {
        place.store(byte, Ordering::Relaxed);
    }
    FOUND.name_bytes.store(name_bytes as u32, Ordering::Relaxed);
    // ORDERING: Release pairs with the Acquire in `encode_noted`.
    FOUND.pid.store(pid(), Ordering::Release);
}

/// Writes the record of what [`note`] has found, if it has in this process.
pub(crate) fn encode_noted(out: &mut [u8; RECORD_BYTES]) -> Option<usize> {
    // ORDERING: Acquire pairs with the Release in `note`.
    if FOUND.pid.load(Ordering::Acquire) != pid() {
        return None;
    }
    let name: [u8; NAME_BYTES] = core::array::from_fn(|at| FOUND.name[at].load(Ordering::Relaxed));
    let name_bytes = (FOUND.name_bytes.load(Ordering::Relaxed) as usize).min(NAME_BYTES);
    Some(encode(out, FOUND.host.load(Ordering::Relaxed), &name[..name_bytes]))
}

/// Asks the kernel and writes the record; for who writes by itself.
pub(crate) fn encode_now(out: &mut [u8; RECORD_BYTES]) -> usize {
    let (host, name, name_bytes) = look();
    encode(out, host, &name[..name_bytes])
}

fn encode(out: &mut [u8; RECORD_BYTES], host: u64, name: &[u8]) -> usize {
    encode_host_identity(out, monotonic_ns(), thread_handle(), &HostIdentity { pid: pid() as _, host, name })
}

/// This process's identity landed on stderr.
pub(crate) fn went_to_stderr(pid: i32) {
    ON_STDERR.store(pid, Ordering::Relaxed);
}

/// Whether this process's identity went to stderr and stands in no file yet.
pub(crate) fn is_to_be_repeated() -> bool {
    ON_STDERR.load(Ordering::Relaxed) == pid()
}

/// The identity once more, if this process's went to stderr; the caller writes it or gives it back.
pub(crate) fn take_repeat(out: &mut [u8; RECORD_BYTES]) -> Option<usize> {
    ON_STDERR.compare_exchange(pid(), 0, Ordering::Relaxed, Ordering::Relaxed).ok()?;
    Some(encode_noted(out).unwrap_or_else(|| encode_now(out)))
}

/// What [`take_repeat`] gave did not land.
pub(crate) fn give_back_repeat() {
    went_to_stderr(pid());
}

/// Where a process runs, as its log says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// The same for all processes that share a space of pids, another one elsewhere.
    pub id: u64,
    /// The host's name; bytes that are not UTF-8 become U+FFFD.
    pub name: String,
}

/// Where this process runs. Asks the kernel.
pub fn host() -> Host {
    let (id, name, name_bytes) = look();
    Host { id, name: String::from_utf8_lossy(&name[..name_bytes]).into_owned() }
}

/// This process's host: its number, and its name with the length. Async-signal-safe.
fn look() -> (u64, [u8; NAME_BYTES], usize) {
    let mut name = [0; NAME_BYTES];
    // SAFETY: room for that many bytes.
    let named = unsafe { libc::gethostname(name.as_mut_ptr().cast(), NAME_BYTES) } == 0;
    let name_bytes = if named { name.iter().position(|byte| *byte == 0).unwrap_or(NAME_BYTES) } else { 0 };
    // A line of 36 characters.
    let mut boot = [0; 64];
    let boot_bytes = read(c"/proc/sys/kernel/random/boot_id", &mut boot);
    let inodes =
        [c"/proc/self/ns/pid", c"/proc/self/ns/net"].map(|path| inode(path).unwrap_or(0).to_le_bytes());
    // Zeros part the texts, which hold none.
    let parts = [&boot[..boot_bytes], &[0], &name[..name_bytes], &[0], &inodes[0], &inodes[1]];
    let bytes = parts.into_iter().flatten();
    let host = bytes.fold(FNV_OFFSET, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(FNV_PRIME));
    (host, name, name_bytes)
}

// FNV-1a, 64 bits.
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;

/// Reads what a file begins with; 0 bytes where that cannot be.
fn read(path: &core::ffi::CStr, into: &mut [u8]) -> usize {
    // SAFETY: the path is zero-terminated.
    let descriptor = unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    if descriptor < 0 {
        return 0;
    }
    // SAFETY: room for that many bytes.
    let bytes = unsafe { libc::read(descriptor, into.as_mut_ptr().cast(), into.len()) };
    // SAFETY: opened above and known to nobody else.
    unsafe { libc::close(descriptor) };
    usize::try_from(bytes).unwrap_or(0)
}

fn inode(path: &core::ffi::CStr) -> Option<u64> {
    let mut status = core::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the path is zero-terminated, and there is room for the answer.
    if unsafe { libc::stat(path.as_ptr(), status.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: filled, for the call succeeded.
    Some(unsafe { status.assume_init() }.st_ino)
}
