//! A rank: the process that a launcher has started, with a whole worker of its own.
//!
//! It connects first and brings its worker up when it is welcome, since that forks and may take long. Then its main thread
//! serves the session, one frame at a time. An orchestration may run when the parent's host goes away, so a thread of its
//! own watches the connection, and ends the process when the main thread does not.

use std::ffi::OsString;
use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use simpler_host_log as host_log;
use simpler_log_abi::Threshold;

use super::wire::{self, Broken, Hello, Kind, PROTOCOL_VERSION, TaskHead, Token, WINDOW_BYTES};
use super::{set_up, variable};
use crate::child::{LOG_DRAIN_LIMIT, exit, guarded};
use crate::function::{Nested, Orchestration, digest_of};
use crate::mailbox::Digest;
use crate::process::exit_now;
use crate::{
    Endpoint, LogSetup, RunArgs, RunError, SharedBuffer, SharedMemory, Worker, WorkerBuilder, WorkerError,
};

/// How long the parent may take to be reached, and to say that a rank is welcome.
const CONNECT_LIMIT: Duration = Duration::from_secs(30);
/// How long the main thread has, when the connection has closed, to shut the worker down: as the session's process has
/// for its log, many times over. What it leaves behind then leaves by itself, as its parent is gone.
const ORPHAN_LIMIT: Duration = Duration::from_secs(5);

/// What a rank is to be: its worker, and what that runs for the parent.
pub struct Rank {
    number: usize,
    count: usize,
    worker: WorkerBuilder,
    orchestrations: Vec<(Digest, Orchestration)>,
}

impl Rank {
    /// Which of the launcher's ranks this is, from 0.
    pub fn number(&self) -> usize {
        self.number
    }

    /// How many ranks the launcher has started.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The worker: of the level below the parent's, logging with the parent's threshold, into the folder `remote.<n>` of
    /// the parent's log directory if that has one (a file's name has only the pid, which another host may have as well).
    pub fn worker(&mut self) -> &mut WorkerBuilder {
        &mut self.worker
    }

    /// Adds an orchestration that the parent calls by this name. The host tensors of its arguments lie in memory that all
    /// children of this worker share; what it writes there goes back if the tensor's use says that it is written.
    ///
    /// # Errors
    /// A name that there is already.
    pub fn orchestration(
        &mut self,
        name: &str,
        orchestration: impl Fn(&mut Worker, &RunArgs) -> Result<(), RunError> + 'static,
    ) -> Result<(), WorkerError> {
        let digest = digest_of("orchestration", name);
        if self.orchestrations.iter().any(|(other, _)| *other == digest) {
            return Err(WorkerError::Config(format!("there is an orchestration {name} already")));
        }
        self.orchestrations.push((digest, Rc::new(orchestration)));
        Ok(())
    }
}

/// Serves the parent whose launcher has started this process, until it is told to leave or the parent is gone.
///
/// `build` says what the worker is. To be called from `main`, before there is any other thread: the worker forks.
/// Gives what the process is to exit with; what went wrong is on stderr, in the log, and with the parent.
pub fn serve(build: impl FnOnce(&mut Rank) -> Result<(), RunError>) -> ExitCode {
    match Place::of_environment().and_then(|place| place.serve(build)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("rank: {text}");
            ExitCode::FAILURE
        }
    }
}

/// What the environment says.
struct Place {
    parent: SocketAddr,
    token: Token,
    number: usize,
    count: usize,
    level: u32,
    log: LogSetup,
}

impl Place {
    fn of_environment() -> Result<Self, String> {
        let text = |name: &str| {
            std::env::var(name).map_err(|_| {
                format!("{name} is not set: this program is a rank, which a simpler worker starts through a launcher")
            })
        };
        let number = |name: &str| {
            let text = text(name)?;
            text.parse::<usize>().map_err(|_| format!("{name} is {text:?}, which is no number"))
        };
        let parent = text(variable::ADDRESS)?;
        let parent =
            parent.parse().map_err(|_| format!("{}: {parent:?} is no address", variable::ADDRESS))?;
        let token =
            parse_token(&text(variable::TOKEN)?).ok_or_else(|| format!("{} is no token", variable::TOKEN))?;
        let rank = number(&text(variable::RANK_VARIABLE)?)?;
        let remote = number(variable::FIRST)?.saturating_add(rank);
        let threshold = i32::try_from(number(variable::THRESHOLD)?).ok().and_then(Threshold::from_ladder);
        let directory: Option<OsString> = std::env::var_os(variable::DIRECTORY);
        Ok(Self {
            parent,
            token,
            number: rank,
            count: number(variable::COUNT)?,
            level: u32::try_from(number(variable::LEVEL)?).unwrap_or(u32::MAX),
            log: LogSetup {
                threshold: threshold.ok_or_else(|| format!("{} is off the ladder", variable::THRESHOLD))?,
                directory: directory.map(|parent| PathBuf::from(parent).join(format!("remote.{remote}"))),
            },
        })
    }

    fn serve(self, build: impl FnOnce(&mut Rank) -> Result<(), RunError>) -> Result<(), String> {
        let mut stream = self.connect()?;
        match self.bring_up(build) {
            Ok((worker, window)) => serve_session(stream, worker, &window),
            Err(failure) => {
                let payload = wire::encode_failure(failure.code, &failure.text);
                let told = wire::write_frame(&mut stream, Kind::Failed, &[&payload]);
                let told = told.map_or(" (the parent is gone)", |()| "");
                Err(format!("initialization failed{told}: {}", failure.text))
            }
        }
    }

    /// A connection to the parent, which has said that this rank is welcome.
    fn connect(&self) -> Result<TcpStream, String> {
        let parent = self.parent;
        let failed = |error: &dyn std::fmt::Display| format!("parent at {parent}: {error}");
        let mut stream =
            TcpStream::connect_timeout(&parent, CONNECT_LIMIT).map_err(|error| failed(&error))?;
        let set = set_up(&stream).and_then(|()| stream.set_read_timeout(Some(CONNECT_LIMIT)));
        set.map_err(|error| failed(&error))?;
        let host = host_log::host();
        let hello = Hello {
            version: PROTOCOL_VERSION,
            token: self.token,
            rank: u32::try_from(self.number).unwrap_or(u32::MAX),
            pid: u64::from(std::process::id()),
            host: host.id,
            name: host.name,
        };
        wire::write_frame(&mut stream, Kind::Hello, &[&hello.encode()]).map_err(|error| failed(&error))?;
        let (kind, payload) = read_small(&mut stream).map_err(|broken| failed(&broken))?;
        match kind {
            Kind::Welcome => {}
            Kind::Refused => {
                return Err(format!("refused by the {}", failed(&String::from_utf8_lossy(&payload))));
            }
            kind => return Err(failed(&format!("it said {kind:?}"))),
        }
        // The next task may be long in coming.
        stream.set_read_timeout(None).map_err(|error| failed(&error))?;
        Ok(stream)
    }

    fn bring_up(
        &self,
        build: impl FnOnce(&mut Rank) -> Result<(), RunError>,
    ) -> Result<(Nested, SharedMemory), RunError> {
        let started = guarded(|| {
            let mut rank = Rank {
                number: self.number,
                count: self.count,
                worker: Worker::builder(self.level),
                orchestrations: Vec::new(),
            };
            rank.worker.log(self.log.clone());
            build(&mut rank)?;
            let window = rank.worker.share(SharedBuffer::new(WINDOW_BYTES)?);
            Ok((Nested { worker: rank.worker.start()?, orchestrations: rank.orchestrations }, window))
        });
        started.map_err(|(failure, _)| RunError { code: failure.code, text: failure.text })
    }
}

fn parse_token(text: &str) -> Option<Token> {
    let mut token = [0; 32];
    if text.len() != 2 * token.len() || !text.is_ascii() {
        return None;
    }
    for (at, byte) in token.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(token)
}

fn read_small(stream: &mut TcpStream) -> Result<(Kind, Vec<u8>), Broken> {
    let (kind, bytes) = wire::read_header(stream)?;
    if bytes > wire::CONTROL_BYTES_MAX {
        return Err(Broken::Protocol(format!("a {kind:?} frame of {bytes} bytes where data are not due")));
    }
    Ok((kind, wire::read_bytes(stream, bytes)?))
}

/// Serves frames until there is no more to come, and shuts the worker down.
fn serve_session(mut stream: TcpStream, mut worker: Nested, window: &SharedMemory) -> Result<(), String> {
    let served = watch(&stream)
        .map_err(Broken::Closed)
        .and_then(|()| Ok(wire::write_frame(&mut stream, Kind::Ready, &[])?))
        .and_then(|()| {
            while serve_frame(&mut stream, &mut worker, window)? {}
            Ok(())
        });
    let closed = guarded(|| worker.close()).map_err(|(failure, _)| failure);
    let result = match (served, closed) {
        (Ok(()), closed) => {
            // The parent waits for it, and may be gone by now all the same.
            let _ = match &closed {
                Ok(()) => wire::write_frame(&mut stream, Kind::Answer, &[&0_u64.to_le_bytes()]),
                Err(failure) => {
                    let payload = wire::encode_failure(failure.code, &failure.text);
                    wire::write_frame(&mut stream, Kind::Failed, &[&payload])
                }
            };
            closed.map_err(|failure| failure.text)
        }
        (Err(broken), _) => Err(format!("the session with the parent is lost: {broken}")),
    };
    if let Err(text) = &result {
        host_log::log_warn!("rank: {text}");
    }
    host_log::close(LOG_DRAIN_LIMIT);
    result
}

/// Serves one frame; false if that says to leave.
fn serve_frame(stream: &mut TcpStream, worker: &mut Nested, window: &SharedMemory) -> Result<bool, Broken> {
    let (kind, bytes) = wire::read_header(stream)?;
    match kind {
        Kind::Shutdown => return Ok(false),
        Kind::Prepare => {
            let payload = wire::read_bytes(stream, bytes)?;
            let digest = wire::decode_digest(&payload).map_err(Broken::Protocol)?;
            match worker.prepare(&digest) {
                Ok(slot) => wire::write_frame(stream, Kind::Answer, &[&slot.to_le_bytes()])?,
                Err(error) => fail(stream, &error)?,
            }
        }
        Kind::Task => serve_task(stream, bytes, worker, window)?,
        kind => return Err(Broken::Protocol(format!("{kind:?} is nothing that a rank is asked"))),
    }
    Ok(true)
}

fn fail(stream: &mut TcpStream, error: &RunError) -> Result<(), Broken> {
    Ok(wire::write_frame(stream, Kind::Failed, &[&wire::encode_failure(error.code, &error.text)])?)
}

/// Reads a task of so many bytes, runs it, and answers. A task that cannot be understood ends the session: nobody knows
/// what else the parent means.
fn serve_task(
    stream: &mut TcpStream,
    bytes: usize,
    worker: &mut Nested,
    window: &SharedMemory,
) -> Result<(), Broken> {
    let short = || Broken::Protocol("a task is shorter than its head".to_owned());
    let rest = bytes.checked_sub(4).ok_or_else(short)?;
    let mut head_bytes = [0; 4];
    stream.read_exact(&mut head_bytes)?;
    let head_bytes = u32::from_le_bytes(head_bytes) as usize;
    let data = rest.checked_sub(head_bytes).ok_or_else(short)?;
    if head_bytes > wire::CONTROL_BYTES_MAX {
        return Err(Broken::Protocol(format!("a task's head of {head_bytes} bytes")));
    }
    let mut head = TaskHead::decode(&wire::read_bytes(stream, head_bytes)?).map_err(Broken::Protocol)?;
    let due: u64 = head.regions.iter().map(|region| region.bytes).sum();
    if due != data as u64 {
        return Err(Broken::Protocol(format!("{data} bytes of data, where {due} are due")));
    }
    let offsets = head.place(window.addr(), window.bytes()).map_err(Broken::Protocol)?;
    for (region, offset) in head.regions.iter().zip(&offsets) {
        // SAFETY: `place` has put the region inside the window, which is mapped as long as `window`; no run is in progress,
        // so nobody else uses it.
        let target = unsafe {
            std::slice::from_raw_parts_mut((window.addr() + *offset as u64) as *mut u8, region.bytes as usize)
        };
        stream.read_exact(target)?;
    }
    host_log::log_debug!("run {} of the parent, dispatch {}", head.run_id, head.dispatch_id);
    let outcome = guarded(|| {
        // SAFETY: the tensors lie in the window, see above; none is in device memory, as `place` checks.
        unsafe { worker.run(&head.callable, &head.args) }
    });
    match outcome {
        Ok(()) => {
            let back = head.regions.iter().zip(&offsets).filter(|(region, _)| region.comes_back);
            let mut pieces: Vec<&[u8]> = vec![&[]];
            for (region, offset) in back {
                // SAFETY: as above; the run has ended, and the worker has settled what it began.
                pieces.push(unsafe {
                    std::slice::from_raw_parts(
                        (window.addr() + *offset as u64) as *const u8,
                        region.bytes as usize,
                    )
                });
            }
            Ok(wire::write_frame(stream, Kind::Done, &pieces)?)
        }
        Err((failure, panicked)) => {
            fail(stream, &RunError { code: failure.code, text: failure.text })?;
            match panicked {
                None => Ok(()),
                // Nothing is known of the worker any more.
                Some(_) => Err(Broken::Protocol("an orchestration panicked, so the rank leaves".to_owned())),
            }
        }
    }
}

/// Starts the thread that ends this process some time after its connection has closed.
fn watch(stream: &TcpStream) -> std::io::Result<()> {
    let stream = stream.try_clone()?;
    let watch = move || {
        let mut closed = libc::pollfd { fd: stream.as_raw_fd(), events: libc::POLLRDHUP, revents: 0 };
        loop {
            // SAFETY: one descriptor, which is open.
            let ready = unsafe { libc::poll(&raw mut closed, 1, -1) };
            if ready > 0 {
                break;
            }
        }
        std::thread::sleep(ORPHAN_LIMIT);
        host_log::log_warn!("rank: the session's connection has closed, leaving in the middle of something");
        host_log::close(LOG_DRAIN_LIMIT);
        exit_now(exit::ORPHANED)
    };
    // It is never joined: it ends with the process.
    std::thread::Builder::new().name("session-watch".into()).spawn(watch).map(drop)
}
