//! What the behaviour tests share: a process for each, logs read back, children, a captured stderr.
#![allow(dead_code, reason = "each test file uses its own part")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail where it stands")]

use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use simpler_host_log::{self as log, Config, Threshold};
use simpler_record_format::{Input, RawEnvelope, SpanParse, parse_envelope, parse_span};

/// Longer than anything here takes on a busy machine; only a hang reaches it.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// Enough for a drain that is going to succeed.
pub(crate) const DRAIN: Duration = Duration::from_secs(20);

const ISOLATED: &str = "SIMPLER_HOST_LOG_ISOLATED_TEST";

/// Runs `body` in a process of its own, because the log is one per process: this test binary again, with
/// only the test called `test`, whatever the runner. On failure its output is shown.
pub(crate) fn in_own_process(test: &str, body: impl FnOnce()) {
    if std::env::var(ISOLATED).is_ok_and(|name| name == test) {
        return body();
    }
    // Rings that its children leave behind go with this folder.
    let shared_memory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(ISOLATED, test)
        .env("SIMPLER_SHM", shared_memory.path())
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && stdout.contains("1 passed"),
        "{test} in its own process: {}\n--- stdout\n{stdout}\n--- stderr\n{stderr}",
        output.status
    );
    for line in stderr.lines().filter(|line| line.starts_with("skipped:")) {
        eprintln!("{line}");
    }
}

/// A log that is set up to write to a fresh folder, writer running.
pub(crate) fn log_to_folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    log::init(&Config { directory: Some(dir.path()), ..Config::default() }).unwrap();
    dir
}

/// A log that is set up to write to a fresh folder, without a writer yet.
pub(crate) fn deferred_log_to_folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let config = Config { threshold: Threshold::TIMING, directory: Some(dir.path()), defer_writer: true };
    log::init(&config).unwrap();
    dir
}

/// The log file of process `pid`.
pub(crate) fn log_file(dir: &Path, pid: i32) -> PathBuf {
    dir.join(format!("host.{pid}.log"))
}

/// The lines of this process's log, after a flush.
pub(crate) fn flushed_lines(dir: &Path) -> Vec<String> {
    log::flush(DRAIN).unwrap();
    lines_of(dir, log::pid())
}

/// The lines of a process's log; none if there is no file. A last line without newline is a failure.
pub(crate) fn lines_of(dir: &Path, pid: i32) -> Vec<String> {
    match std::fs::read(log_file(dir, pid)) {
        Ok(bytes) => lines(&bytes),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(error) => panic!("{error}"),
    }
}

/// Bytes as lines that are all records: with an envelope, and ended. A quiesce may tell how far times can be off,
/// on a line of its own: that one is left out, since whether it comes depends on the machine's clock. So is the host's
/// identity, which every life has behind its anchor and `host_identity.rs` looks at.
pub(crate) fn lines(bytes: &[u8]) -> Vec<String> {
    let mut lines = all_lines(bytes);
    lines.retain(|line| !line.contains(" host_log_clock: [HOSTLOG_CLOCK] "));
    lines.retain(|line| !line.contains(" host.identity: [HOST_IDENTITY] "));
    lines
}

/// As [`lines`], with nothing left out.
pub(crate) fn all_lines(bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'), "torn at the end: {text:?}");
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for line in &lines {
        assert!(parse_envelope(line.as_bytes()).is_some(), "no record: {line:?}");
        assert_eq!(line.matches("[mono_ns=").count(), 1, "glued: {line:?}");
        assert!(line.len() < 512, "too long: {line:?}");
    }
    lines
}

/// The envelope of a line and the text behind it.
pub(crate) fn envelope(line: &str) -> (RawEnvelope<'_>, &str) {
    let (envelope, rest) = parse_envelope(line.as_bytes()).unwrap();
    (envelope, std::str::from_utf8(rest).unwrap())
}

/// A span as tests compare it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SpanLine {
    pub(crate) pid: i64,
    pub(crate) tid: i64,
    pub(crate) inv: u64,
    pub(crate) hid: u64,
    pub(crate) depth: i64,
    pub(crate) name: String,
    pub(crate) ts: i64,
    pub(crate) dur: i64,
    pub(crate) attrs: String,
}

/// The spans among `lines`, in their order.
pub(crate) fn spans(lines: &[String]) -> Vec<SpanLine> {
    let marked = |line: &String| line.find("[STRACE]").map(|at| format!("{}\n", &line[at..]));
    let parse = |text: String| match parse_span(text.as_bytes(), Input::Whole) {
        SpanParse::Span(span, _) => SpanLine {
            pid: span.pid as i64,
            tid: span.tid as i64,
            inv: span.inv,
            hid: span.hid,
            depth: i64::from(span.depth),
            name: String::from_utf8(span.name.to_vec()).unwrap(),
            ts: span.ts,
            dur: span.dur,
            attrs: String::from_utf8(span.attrs.to_vec()).unwrap(),
        },
        other => panic!("{text:?}: {other:?}"),
    };
    lines.iter().filter_map(marked).map(parse).collect()
}

/// The text of the one clock anchor among `lines`, which must be the first.
pub(crate) fn the_anchor(lines: &[String]) -> &str {
    let mut anchors = lines.iter().enumerate().filter(|(_, line)| line.contains("[CLOCK_ANCHOR]"));
    let (index, line) = anchors.next().expect("an anchor");
    assert_eq!(index, 0, "the anchor comes first: {lines:#?}");
    assert_eq!(anchors.next(), None, "one anchor");
    line
}

/// Forks; the child runs `body`, drains, and ends without the parent's exit handlers. Gives its pid.
pub(crate) fn fork(body: impl FnOnce()) -> i32 {
    // SAFETY: the callers fork while the log is quiesced or on purpose while it is not; the child touches
    // only what is its own and ends by _exit.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork");
    if pid == 0 {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        // SAFETY: ends the child.
        unsafe { libc::_exit(i32::from(outcome.is_err())) };
    }
    pid
}

/// Forks a child that runs `body` and is killed at once then. Gives its pid once it is dead.
pub(crate) fn fork_to_die(body: impl FnOnce()) -> i32 {
    let pid = fork(|| {
        body();
        // SAFETY: raises a signal in this process, and needs nothing.
        unsafe { libc::raise(libc::SIGKILL) };
    });
    reap_killed(pid);
    pid
}

/// Waits for a child that was killed, and checks that this is how it ended.
pub(crate) fn reap_killed(pid: i32) {
    let status = wait_for_end(pid);
    assert!(
        libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL,
        "child {pid}: status {status:#x}"
    );
}

/// The rings that lie in this test's shared memory.
pub(crate) fn rings() -> Vec<PathBuf> {
    let shared_memory = PathBuf::from(std::env::var_os("SIMPLER_SHM").unwrap());
    // SAFETY: no preconditions.
    let folder = shared_memory.join(format!("simpler-{}", unsafe { libc::geteuid() }));
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut rings: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    rings.sort();
    rings
}

/// Some words that children share with their parent.
pub(crate) fn shared_words() -> &'static [AtomicU64; 64] {
    // SAFETY: a fresh mapping touches nothing of ours.
    let memory = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            size_of::<[AtomicU64; 64]>(),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    assert_ne!(memory, libc::MAP_FAILED);
    // SAFETY: mapped above, zeroed, of that size, and never unmapped.
    unsafe { &*memory.cast() }
}

/// Waits for a child and checks that it ended with 0.
pub(crate) fn reap(pid: i32) {
    let status = wait_for_end(pid);
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "child {pid}: status {status:#x}");
}

/// Waits for a child, and gives its status.
pub(crate) fn wait_for_end(pid: i32) -> i32 {
    let deadline = Instant::now() + DEADLINE;
    let mut status = 0;
    // SAFETY: a valid place for the status.
    while unsafe { libc::waitpid(pid, &mut status, libc::WNOHANG) } == 0 {
        if Instant::now() > deadline {
            // SAFETY: our own child.
            unsafe { libc::kill(pid, libc::SIGKILL) };
            panic!("child {pid} hangs");
        }
        std::thread::yield_now();
    }
    status
}

/// Waits until `condition`, with a deadline.
pub(crate) fn wait_for(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::yield_now();
    }
}

/// A pipe in the place of stderr.
pub(crate) struct StderrPipe {
    reader: OwnedFd,
    real_stderr: OwnedFd,
}

impl StderrPipe {
    /// Puts a pipe of `bytes` (or the system's size) in place of stderr.
    pub(crate) fn install(bytes: Option<i32>) -> StderrPipe {
        let mut ends = [0; 2];
        // SAFETY: room for two descriptors.
        assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
        if let Some(bytes) = bytes {
            // SAFETY: our own pipe.
            let size = unsafe { libc::fcntl(ends[1], libc::F_SETPIPE_SZ, bytes) };
            assert_eq!(size, bytes);
        }
        // SAFETY: duplicates descriptor 2.
        let saved = unsafe { libc::fcntl(2, libc::F_DUPFD_CLOEXEC, 3) };
        assert!(saved >= 0);
        // SAFETY: replaces descriptor 2 by the pipe's writing end.
        assert_eq!(unsafe { libc::dup2(ends[1], 2) }, 2);
        // SAFETY: 2 stands for it now.
        unsafe { libc::close(ends[1]) };
        // SAFETY: both were opened above and belong to nobody else.
        let own = |descriptor| unsafe { OwnedFd::from_raw_fd(descriptor) };
        StderrPipe { reader: own(ends[0]), real_stderr: own(saved) }
    }

    /// Puts the real stderr back in this process. Others may still hold the pipe's writing end.
    pub(crate) fn restore(&self) {
        // SAFETY: both are valid.
        assert_eq!(unsafe { libc::dup2(self.real_stderr.as_raw_fd(), 2) }, 2);
    }

    /// Fills the pipe to the last byte.
    pub(crate) fn fill(&self) {
        // SAFETY: flags of the writing end.
        let flags = unsafe { libc::fcntl(2, libc::F_GETFL) };
        // SAFETY: as above.
        unsafe { libc::fcntl(2, libc::F_SETFL, flags | libc::O_NONBLOCK) };
        // SAFETY: one readable byte.
        while unsafe { libc::write(2, b"x".as_ptr().cast(), 1) } == 1 {}
        // SAFETY: as above.
        unsafe { libc::fcntl(2, libc::F_SETFL, flags) };
    }

    /// Reads from now on, in a thread of its own, until the last writing end is closed.
    pub(crate) fn read_meanwhile(&self) -> std::thread::JoinHandle<Vec<u8>> {
        let mut reader = std::fs::File::from(self.reader.try_clone().unwrap());
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            reader.read_to_end(&mut bytes).unwrap();
            bytes
        })
    }

    /// Everything until the last writing end is closed.
    pub(crate) fn read_to_end(self) -> Vec<u8> {
        let mut bytes = Vec::new();
        std::fs::File::from(self.reader).read_to_end(&mut bytes).unwrap();
        bytes
    }
}

/// What ThreadSanitizer, if this is built with it, is not to report: races inside std and libtest, which are
/// not built with it, so that it does not see the fences that order them.
#[unsafe(no_mangle)]
extern "C" fn __tsan_default_suppressions() -> *const std::ffi::c_char {
    c"race:std::thread::thread::Inner\n\
      race:std::thread::scoped::\n\
      race:std::thread::lifecycle::\n\
      race:std::sync::mpmc::\n\
      race:alloc::sync::Arc\n\
      race:test::event::CompletedTest\n"
        .as_ptr()
}

/// ThreadSanitizer's start asks for its options here. A child of a process with threads may start its writer:
/// it took nothing that another thread holds.
#[unsafe(no_mangle)]
extern "C" fn __tsan_default_options() -> *const std::ffi::c_char {
    c"die_after_fork=0".as_ptr()
}

/// Whether this is built with ThreadSanitizer: instrumented code calls a function of that name. The name is put
/// together here, or this very text would be found.
pub(crate) fn is_under_thread_sanitizer() -> bool {
    calls_function(["__tsan", "func", "entry"])
}

/// As [`is_under_thread_sanitizer`], for either sanitizer.
pub(crate) fn is_under_a_sanitizer() -> bool {
    is_under_thread_sanitizer() || calls_function(["__asan", "report", "load1"])
}

fn calls_function(name: [&str; 3]) -> bool {
    let name = name.join("_");
    let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    program.windows(name.len()).any(|window| window == name.as_bytes())
}

/// In a process of its own: makes its next child the first process of a new pid namespace.
pub(crate) fn enter_pid_namespace() -> std::io::Result<()> {
    // SAFETY: no memory involved. Who may not have a pid namespace may have one with a user namespace.
    if unsafe { libc::unshare(libc::CLONE_NEWPID) } == 0 {
        return Ok(());
    }
    // SAFETY: as above.
    match unsafe { libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWPID) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}
