//! Workers on other hosts: started by a launcher, driven over sessions.
//!
//! A worker of level 4 or above can have children on other hosts beside those that it forks. It does not know how to
//! start a process elsewhere; a [`Launcher`] does, and the worker gives it a program to start so many times. Each of
//! the started processes, a *rank*, calls [`serve`], connects back to its parent, makes its own whole worker of the
//! level below, and runs orchestrations over it.
//!
//! A connection is a *session*. The parent has a process of its own for each, forked like every other child: it takes
//! tasks from its mailbox and hands them to the rank (`session`). So the parent waits for all of its children in one
//! way, has no thread and no socket of its own, and learns of a session's end as of any child's. That process is also
//! what copies: no memory is shared with another host, so the bytes of a run's host tensors go with the task, and those
//! that the run may write come back with its outcome. Scalars are numbers, and go as they are; device memory of the
//! parent's host means nothing elsewhere and is refused.
//!
//! Starting goes in this order: the parent listens on the address that it was given, makes a secret, starts the launcher
//! with both in its environment, and takes as many connections as there are ranks. Who connects says first which version
//! it speaks, the secret, and who it is; without the secret it is refused and nothing else happens. Then the sessions'
//! processes are forked, and each waits until its rank is ready.
//!
//! What ends: a rank whose connection closes shuts its worker down and leaves, whatever it is doing. A session whose
//! connection closes ends, and so its child is gone for the parent, while the others go on. At close the ranks are told
//! to leave, and the launcher, which ends with its ranks, is waited for, or else ended.
//!
//! The parent:
//!
//! ```no_run
//! use simpler_worker::remote::{Mpirun, Remote};
//! use simpler_worker::{ChildId, RunArgs, SharedBuffer, Worker};
//! # fn example(args: RunArgs) -> Result<(), Box<dyn std::error::Error>> {
//! let mut pod = Worker::builder(4);
//! let results = pod.share(SharedBuffer::new(1 << 20)?);
//! let step = pod.remote_orchestration("step")?;
//! let launcher = Mpirun { hosts: vec!["node-1".into(), "node-2".into()], ..Mpirun::default() };
//! pod.remote(Remote::new(launcher, 2, "/opt/app/rank").listen("10.0.0.1".parse()?));
//! let mut pod = pod.start()?;
//! let tickets = [0, 1].map(|rank| pod.submit(ChildId::Remote(rank), step, &args));
//! for ticket in tickets {
//!     pod.wait(ticket?)?;
//! }
//! pod.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! `/opt/app/rank`:
//!
//! ```no_run
//! # fn image() -> Result<simpler_worker::CallableImage, simpler_worker::RunError> {
//! #     Err(simpler_worker::RunError { code: -1, text: "there is none here".to_owned() })
//! # }
//! fn main() -> std::process::ExitCode {
//!     simpler_worker::remote::serve(|rank| {
//!         let node = rank.worker();
//!         node.chips(8);
//!         let add = node.callable(image()?)?;
//!         rank.orchestration("step", move |node, args| {
//!             let ticket = node.submit(0, add, args)?;
//!             Ok(node.wait(ticket)?)
//!         })?;
//!         Ok(())
//!     })
//! }
//! ```

mod rank;
mod session;
pub(crate) mod wire;

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child as Process, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use simpler_relax::{Deadline, EventCount, Relax};

use crate::{LogSetup, WorkerError};
use wire::{Broken, Hello, Kind, PROTOCOL_VERSION, Token};

pub use crate::launcher::{Launcher, Mpirun, Ranks};
pub use rank::{Rank, serve};
pub(crate) use session::Session;
pub use wire::DATA_BYTES_MAX;
#[cfg(any(fuzzing, test))]
#[doc(hidden)]
pub use wire::trial;

/// How long ranks may take to connect, and then to be ready, unless told otherwise: as for every other child.
const INIT_LIMIT: Duration = Duration::from_secs(300);
/// How long somebody who has connected may take to say who he is.
const HELLO_LIMIT: Duration = Duration::from_secs(10);
/// How many may be about to say it at once: the ranks, and strangers. More are not taken up before one of these is done.
const WAITING_MAX: usize = 64;
/// How much of what a launcher said last goes into an error.
const TAIL_BYTES: u64 = 2048;
/// How long a launcher that is told to end may take before it is killed.
const TERMINATE_LIMIT: Duration = Duration::from_secs(5);
/// How often a launcher is looked at: nobody rings when it ends.
const LOOK_PERIOD: Duration = Duration::from_millis(10);

/// The environment of a rank.
mod variable {
    /// `address:port` of the parent.
    pub(super) const ADDRESS: &str = "SIMPLER_REMOTE_ADDRESS";
    /// The secret, in hexadecimal.
    pub(super) const TOKEN: &str = "SIMPLER_REMOTE_TOKEN";
    /// The variable in which the launcher says the rank's number.
    pub(super) const RANK_VARIABLE: &str = "SIMPLER_REMOTE_RANK_VARIABLE";
    /// How many ranks there are.
    pub(super) const COUNT: &str = "SIMPLER_REMOTE_RANKS";
    /// The number of rank 0 among all remote children of the parent.
    pub(super) const FIRST: &str = "SIMPLER_REMOTE_FIRST";
    /// The level of the rank's worker.
    pub(super) const LEVEL: &str = "SIMPLER_REMOTE_LEVEL";
    /// The log's threshold, as a number.
    pub(super) const THRESHOLD: &str = "SIMPLER_REMOTE_LOG_THRESHOLD";
    /// The parent's log directory, if it has one.
    pub(super) const DIRECTORY: &str = "SIMPLER_REMOTE_LOG_DIRECTORY";
}

/// Children on other hosts: a launcher, and what it is to start.
pub struct Remote {
    launcher: Box<dyn Launcher>,
    ranks: usize,
    program: PathBuf,
    arguments: Vec<OsString>,
    environment: Vec<(String, OsString)>,
    listen: IpAddr,
    init_limit: Duration,
}

impl Remote {
    /// `ranks` children, each a process of `program` that calls [`serve`], started by `launcher`.
    pub fn new(launcher: impl Launcher + 'static, ranks: usize, program: impl Into<PathBuf>) -> Self {
        Self {
            launcher: Box::new(launcher),
            ranks,
            program: program.into(),
            arguments: Vec::new(),
            environment: Vec::new(),
            listen: Ipv4Addr::LOCALHOST.into(),
            init_limit: INIT_LIMIT,
        }
    }

    /// Adds an argument of the program.
    pub fn argument(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Adds a variable to the ranks' environment.
    pub fn environment(mut self, name: impl Into<String>, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// The address of this host at which the ranks find it: the loopback interface's unless told otherwise, which is for
    /// ranks on this host.
    pub fn listen(mut self, address: IpAddr) -> Self {
        self.listen = address;
        self
    }

    /// How long the ranks may take to connect, and again to be ready: 300 s unless told otherwise.
    pub fn init_limit(mut self, limit: Duration) -> Self {
        self.init_limit = limit;
        self
    }

    pub(crate) fn ranks(&self) -> usize {
        self.ranks
    }

    pub(crate) fn limit(&self) -> Duration {
        self.init_limit
    }
}

/// Who is at the other end of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The rank's process, on its host.
    pub pid: u64,
    /// The host's number, as the rank's log has it.
    pub host: u64,
    /// The host's name.
    pub host_name: String,
}

/// A launcher that runs.
#[derive(Debug)]
pub(crate) struct Launched {
    name: String,
    process: Process,
    /// What it says, and through it the ranks.
    // FORK: children have the descriptor and leave it alone.
    said: File,
}

/// What the ranks of a launcher are told of their parent.
pub(crate) struct Told<'a> {
    pub(crate) level: u32,
    pub(crate) first: usize,
    pub(crate) log: &'a LogSetup,
}

/// Starts the launcher and waits until all its ranks have connected, unless `cancelled` says by whom that is called off.
pub(crate) fn open(
    remote: &Remote,
    told: &Told<'_>,
    cancelled: &dyn Fn() -> Option<&'static str>,
) -> Result<(Launched, VecDeque<Session>), WorkerError> {
    let system = |call| move |source| WorkerError::System { call, source };
    let listener = TcpListener::bind((remote.listen, 0)).map_err(system("bind of the session listener"))?;
    listener.set_nonblocking(true).map_err(system("set_nonblocking"))?;
    let address = listener.local_addr().map_err(system("getsockname"))?;
    let mut token: Token = [0; 32];
    File::open("/dev/urandom")
        .and_then(|mut random| random.read_exact(&mut token))
        .map_err(system("read /dev/urandom"))?;
    let deadline = Deadline::after(remote.init_limit);
    let mut launched = launch(remote, told, address, &token)?;
    let accepted = Accepting { listener, token, waiting: Vec::new(), sessions: Vec::new() }.all(
        remote,
        &mut launched,
        deadline,
        cancelled,
    );
    match accepted {
        Ok(sessions) => Ok((launched, sessions)),
        Err(refused) => {
            launched.end(Duration::ZERO);
            Err(match refused {
                Refused::Cancelled(by) => WorkerError::Cancelled { by },
                Refused::Because(text) => WorkerError::Launcher { name: launched.name.clone(), text },
            })
        }
    }
}

/// Why not all ranks have connected.
enum Refused {
    Cancelled(&'static str),
    Because(String),
}

impl From<String> for Refused {
    fn from(text: String) -> Self {
        Self::Because(text)
    }
}

fn launch(
    remote: &Remote,
    told: &Told<'_>,
    address: SocketAddr,
    token: &Token,
) -> Result<Launched, WorkerError> {
    let name = remote.launcher.name();
    let mut environment = remote.environment.clone();
    let mut add = |name: &str, value: &OsStr| environment.push((name.to_owned(), value.to_owned()));
    let secret: String = token.iter().map(|byte| format!("{byte:02x}")).collect();
    add(variable::ADDRESS, OsStr::new(&address.to_string()));
    add(variable::TOKEN, OsStr::new(&secret));
    add(variable::RANK_VARIABLE, OsStr::new(remote.launcher.rank_variable()));
    add(variable::COUNT, OsStr::new(&remote.ranks.to_string()));
    add(variable::FIRST, OsStr::new(&told.first.to_string()));
    add(variable::LEVEL, OsStr::new(&(told.level - 1).to_string()));
    add(variable::THRESHOLD, OsStr::new(&told.log.threshold.get().to_string()));
    if let Some(directory) = &told.log.directory {
        let absolute = std::path::absolute(directory).unwrap_or_else(|_| directory.clone());
        add(variable::DIRECTORY, absolute.as_os_str());
    }
    let ranks = Ranks {
        count: remote.ranks,
        program: &remote.program,
        arguments: &remote.arguments,
        environment: &environment,
    };
    let refuse = |text: String| WorkerError::Launcher { name: name.clone(), text };
    // A pipe would need somebody who reads it.
    let said = unnamed_file().map_err(|error| refuse(format!("no file for what it says: {error}")))?;
    let both = said.try_clone().and_then(|out| Ok((out, said.try_clone()?)));
    let (out, err) = both.map_err(|error| refuse(format!("no file for what it says: {error}")))?;
    let mut command: Command = remote.launcher.command(&ranks);
    command.envs(environment.iter().map(|(name, value)| (name, value)));
    // A group of its own, so that it can be ended with all that it has started here.
    command.stdin(Stdio::null()).stdout(out).stderr(err).process_group(0);
    let process = command.spawn().map_err(|error| {
        refuse(format!("{} cannot be started: {error}", command.get_program().to_string_lossy()))
    })?;
    Ok(Launched { name, process, said })
}

/// A file without a name, which goes with its last descriptor.
fn unnamed_file() -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    // Appending: the launcher and its ranks write through one description each or the same one.
    let unnamed = |flags| {
        std::fs::OpenOptions::new().read(true).append(true).custom_flags(flags).open(std::env::temp_dir())
    };
    unnamed(libc::O_TMPFILE).or_else(|_| {
        // Not every file system has that.
        let name = format!("simpler-launcher-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let file = std::fs::OpenOptions::new().read(true).append(true).create_new(true).open(&path)?;
        std::fs::remove_file(&path)?;
        Ok(file)
    })
}

/// Somebody who has connected and not yet said who he is.
struct Waiting {
    stream: TcpStream,
    since: Instant,
    heard: Vec<u8>,
}

/// The sessions to be.
struct Accepting {
    listener: TcpListener,
    token: Token,
    waiting: Vec<Waiting>,
    sessions: Vec<(usize, Session)>,
}

impl Accepting {
    /// All sessions, by rank; the listener is closed then.
    fn all(
        mut self,
        remote: &Remote,
        launched: &mut Launched,
        deadline: Deadline,
        cancelled: &dyn Fn() -> Option<&'static str>,
    ) -> Result<VecDeque<Session>, Refused> {
        let (never_rung, mut relax) = (EventCount::new(), Relax::new());
        while self.sessions.len() < remote.ranks {
            if self.look(remote)? {
                relax.reset();
                continue;
            }
            if let Some(by) = cancelled() {
                return Err(Refused::Cancelled(by));
            }
            let (here, all) = (self.sessions.len(), remote.ranks);
            if let Some(ending) = launched.ending() {
                // What it has started may have connected just before.
                while self.look(remote)? {}
                if self.sessions.len() == all {
                    break;
                }
                return Err(format!(
                    "it {ending} before its ranks had connected ({here} of {all} had){}",
                    launched.tail()
                )
                .into());
            }
            if deadline.passed() {
                return Err(format!(
                    "{here} of {all} ranks have connected within {} s{}",
                    remote.init_limit.as_secs_f64(),
                    launched.tail()
                )
                .into());
            }
            relax.wait(&never_rung, never_rung.epoch());
        }
        self.sessions.sort_unstable_by_key(|(rank, _)| *rank);
        Ok(self.sessions.into_iter().map(|(_, session)| session).collect())
    }

    /// Takes up who connects, and hears those who have; whether there was anything new.
    fn look(&mut self, remote: &Remote) -> Result<bool, String> {
        let mut something = false;
        while self.waiting.len() < WAITING_MAX {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    something = true;
                    if stream.set_nonblocking(true).is_ok() {
                        self.waiting.push(Waiting { stream, since: Instant::now(), heard: Vec::new() });
                    }
                }
                Err(_) => break,
            }
        }
        for mut one in std::mem::take(&mut self.waiting) {
            match one.hear() {
                Ok(None) if one.since.elapsed() < HELLO_LIMIT => self.waiting.push(one),
                Ok(Some(hello)) => {
                    something = true;
                    self.admit(one.stream, hello, remote)?;
                }
                // Silent, gone, or no rank at all.
                Ok(None) | Err(_) => something = true,
            }
        }
        Ok(something)
    }

    /// Makes a session of somebody, or refuses him. Fails where it is one of the ranks that cannot be used.
    fn admit(&mut self, mut stream: TcpStream, hello: Hello, remote: &Remote) -> Result<(), String> {
        // Whatever becomes of it, nobody waits for somebody who does not read.
        let mut refuse = |text: &str| {
            let _ = wire::write_frame(&mut stream, Kind::Refused, &[text.as_bytes()]);
        };
        // All of it is looked at, wherever the first difference is.
        let differs = hello.token.iter().zip(&self.token).fold(0, |all, (a, b)| all | (a ^ b));
        if differs != 0 {
            refuse("the token is not this parent's");
            simpler_host_log::log_warn!("a connection to the session listener had another token");
            return Ok(());
        }
        if hello.version != PROTOCOL_VERSION {
            let text =
                format!("a rank speaks session protocol {}, this parent {PROTOCOL_VERSION}", hello.version);
            refuse(&text);
            return Err(text);
        }
        let rank = hello.rank as usize;
        if rank >= remote.ranks || self.sessions.iter().any(|(other, _)| *other == rank) {
            let text = format!("a process says that it is rank {rank}, of {} each once", remote.ranks);
            refuse(&text);
            return Err(text);
        }
        let peer = Peer { pid: hello.pid, host: hello.host, host_name: hello.name };
        let session = Session::welcome(stream, rank, peer, remote.init_limit)
            .map_err(|error| format!("rank {rank}: {error}"))?;
        self.sessions.push((rank, session));
        Ok(())
    }
}

impl Waiting {
    /// What it says, once that is whole.
    fn hear(&mut self) -> Result<Option<Hello>, Broken> {
        let mut block = [0; wire::HEADER_BYTES + wire::HELLO_BYTES_MAX];
        loop {
            let wanted = match self.heard.first_chunk() {
                Some(header) => {
                    let (kind, bytes) = wire::parse_header(*header).map_err(Broken::Protocol)?;
                    if kind != Kind::Hello {
                        return Err(Broken::Protocol(format!("{kind:?} is not what a session begins with")));
                    }
                    wire::HEADER_BYTES + bytes
                }
                None => wire::HEADER_BYTES,
            };
            let Some(missing) = wanted.checked_sub(self.heard.len()).filter(|missing| *missing > 0) else {
                return Hello::decode(&self.heard[wire::HEADER_BYTES..]).map(Some).map_err(Broken::Protocol);
            };
            match self.stream.read(&mut block[..missing]) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                Ok(bytes) => self.heard.extend_from_slice(&block[..bytes]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Launched {
    /// How it ended, if it has.
    fn ending(&mut self) -> Option<String> {
        match self.process.try_wait() {
            Ok(status) => status.map(describe),
            // Where SIGCHLD is ignored nobody learns more.
            Err(_) => Some("ended".to_owned()),
        }
    }

    /// Waits until it ends by itself, at most for `limit`; then ends it. Passes on what it said. Whether it ended by
    /// itself.
    pub(crate) fn end(&mut self, limit: Duration) -> bool {
        let by_itself = self.ends_within(limit);
        if !by_itself {
            self.signal(libc::SIGTERM);
            if !self.ends_within(TERMINATE_LIMIT) {
                self.signal(libc::SIGKILL);
                let _ = self.process.wait();
            }
        }
        // Late, but whole: the ranks' words as well.
        let mut text = Vec::new();
        let read = self.said.seek(SeekFrom::Start(0)).and_then(|_| self.said.read_to_end(&mut text));
        if read.is_ok() && !text.is_empty() {
            let _ = io::stderr().write_all(&text);
        }
        by_itself
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    fn ends_within(&mut self, limit: Duration) -> bool {
        let deadline = Deadline::after(limit);
        loop {
            if self.ending().is_some() {
                return true;
            }
            if deadline.passed() {
                return false;
            }
            std::thread::sleep(LOOK_PERIOD.min(deadline.remaining()));
        }
    }

    /// To all of its group on this host.
    fn signal(&self, signal: i32) {
        // It is not collected yet, so the number is its own.
        // SAFETY: kill has no memory effects.
        unsafe { libc::kill(-(self.process.id() as i32), signal) };
    }

    /// What it said last, as the end of a sentence.
    fn tail(&mut self) -> String {
        let mut text = Vec::new();
        let bytes = self.said.seek(SeekFrom::End(0)).unwrap_or(0);
        let read = self
            .said
            .seek(SeekFrom::Start(bytes.saturating_sub(TAIL_BYTES)))
            .and_then(|_| self.said.read_to_end(&mut text));
        let text = String::from_utf8_lossy(&text);
        match (read, text.trim()) {
            (Ok(_), "") | (Err(_), _) => ", and said nothing".to_owned(),
            (Ok(_), text) if bytes > TAIL_BYTES => format!("; it said last: ~{text}"),
            (Ok(_), text) => format!("; it said: {text}"),
        }
    }
}

fn describe(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with status {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

/// How long a connection may be silent before it is asked whether it is still there, how often it is asked, and how many
/// times in vain: a host that has lost its power says nothing.
const KEEPALIVE: [(i32, i32); 3] =
    [(libc::TCP_KEEPIDLE, 10), (libc::TCP_KEEPINTVL, 5), (libc::TCP_KEEPCNT, 3)];

/// Sends small frames at once, and notices a host that is gone.
fn set_up(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let set = |level, option, value: i32| {
        // SAFETY: the value is there to be read.
        let set = unsafe {
            libc::setsockopt(
                stream.as_raw_fd(),
                level,
                option,
                (&raw const value).cast(),
                size_of::<i32>() as libc::socklen_t,
            )
        };
        if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    set(libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1)?;
    KEEPALIVE.into_iter().try_for_each(|(option, value)| set(libc::IPPROTO_TCP, option, value))
}
