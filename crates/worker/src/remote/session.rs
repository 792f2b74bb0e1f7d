//! The parent's end of a session, in a process of its own between the mailbox and the rank.

use std::io;
use std::net::TcpStream;
use std::time::Duration;

use simpler_host_log as host_log;

use super::wire::{self, Broken, Kind, TaskHead};
use super::{Peer, set_up};
use crate::child::{LOG_DRAIN_LIMIT, exit};
use crate::mailbox::Digest;
use crate::process::exit_now;
use crate::{Endpoint, RunArgs, RunError, Task, Tasks};

/// A connection to a rank that has said who it is.
#[derive(Debug)]
pub(crate) struct Session {
    // FORK: the session's own process keeps it; the parent and all other children close theirs.
    stream: TcpStream,
    rank: usize,
    peer: Peer,
}

impl Session {
    /// Tells the rank that it is welcome, whereupon it brings its worker up; `limit` is how long that may take.
    pub(crate) fn welcome(
        mut stream: TcpStream,
        rank: usize,
        peer: Peer,
        limit: Duration,
    ) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(limit))?;
        set_up(&stream)?;
        wire::write_frame(&mut stream, Kind::Welcome, &[])?;
        Ok(Self { stream, rank, peer })
    }

    pub(crate) fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Waits until the rank is ready.
    pub(crate) fn endpoint(mut self) -> Result<RemoteWorker, RunError> {
        let refused = |text| RunError { code: -1, text };
        let who = self.to_string();
        let heard = self.read_small().map_err(|broken| match broken {
            Broken::Closed(error) if error.kind() == io::ErrorKind::WouldBlock => {
                refused(format!("{who} did not say that it is ready in time"))
            }
            broken => refused(format!("{who} was not ready yet: {broken}")),
        })?;
        match heard {
            (Kind::Ready, _) => {}
            (Kind::Failed, payload) => {
                let failure = wire::decode_failure(&payload).map_err(refused)?;
                return Err(RunError { code: failure.code, text: format!("{who}: {}", failure.text) });
            }
            (kind, _) => return Err(refused(format!("{who} said {kind:?} instead of being ready"))),
        }
        // A run has no limit.
        self.stream
            .set_read_timeout(None)
            .map_err(|error| refused(format!("{who}: the connection's time-out cannot be set: {error}")))?;
        Ok(RemoteWorker(self))
    }

    /// The next frame, of a kind without data.
    fn read_small(&mut self) -> Result<(Kind, Vec<u8>), Broken> {
        let (kind, bytes) = wire::read_header(&mut self.stream)?;
        if bytes > wire::CONTROL_BYTES_MAX {
            return Err(Broken::Protocol(format!(
                "a {kind:?} frame of {bytes} bytes where data are not due"
            )));
        }
        Ok((kind, wire::read_bytes(&mut self.stream, bytes)?))
    }

    /// Asks something whose answer is a number.
    fn ask(&mut self, kind: Kind, payload: &[u8]) -> Result<Result<u64, RunError>, Broken> {
        wire::write_frame(&mut self.stream, kind, &[payload])?;
        let (kind, payload) = self.read_small()?;
        match kind {
            Kind::Answer => wire::decode_u64(&payload).map(Ok).map_err(Broken::Protocol),
            _ => failure(kind, &payload).map(Err),
        }
    }

    /// Hands a run over and takes its outcome; its results are in the parent's memory then.
    ///
    /// # Safety
    /// As [`Endpoint::run`].
    unsafe fn run(&mut self, head: &TaskHead, encoded: &[u8]) -> Result<Result<(), RunError>, Broken> {
        let mut pieces = vec![encoded];
        for region in &head.regions {
            // SAFETY: a region is the union of tensors that overlap; each is readable by the caller's obligation, and
            // nobody writes meanwhile.
            pieces
                .push(unsafe { std::slice::from_raw_parts(region.addr as *const u8, region.bytes as usize) });
        }
        wire::write_frame(&mut self.stream, Kind::Task, &pieces)?;
        drop(pieces);
        let (kind, bytes) = wire::read_header(&mut self.stream)?;
        let back = head.regions.iter().filter(|region| region.comes_back);
        if kind != Kind::Done {
            if bytes > wire::CONTROL_BYTES_MAX {
                return Err(Broken::Protocol(format!("a {kind:?} frame of {bytes} bytes")));
            }
            let payload = wire::read_bytes(&mut self.stream, bytes)?;
            return failure(kind, &payload).map(Err);
        }
        let due: u64 = back.clone().map(|region| region.bytes).sum();
        if due != bytes as u64 {
            return Err(Broken::Protocol(format!("{bytes} bytes of results, where {due} are due")));
        }
        for region in back {
            // SAFETY: some tensor of the region may be written; the others that overlap it are the caller's as well, and
            // nobody reads or writes them meanwhile.
            let target =
                unsafe { std::slice::from_raw_parts_mut(region.addr as *mut u8, region.bytes as usize) };
            io::Read::read_exact(&mut self.stream, target)?;
        }
        Ok(Ok(()))
    }

    /// The rank is gone, or cannot be understood, which is as bad: this process ends, and so its parent learns of it.
    fn give_up(&self, during: &str, broken: &Broken) -> ! {
        host_log::log_error!("{self} is lost {during}: {broken}");
        host_log::close(LOG_DRAIN_LIMIT);
        exit_now(exit::DISCONNECTED)
    }
}

impl std::fmt::Display for Session {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { rank, peer: Peer { pid, host_name, .. }, .. } = self;
        write!(out, "rank {rank} (pid {pid} on {host_name})")
    }
}

fn failure(kind: Kind, payload: &[u8]) -> Result<RunError, Broken> {
    if kind != Kind::Failed {
        return Err(Broken::Protocol(format!("{kind:?} is no answer")));
    }
    let failure = wire::decode_failure(payload).map_err(Broken::Protocol)?;
    Ok(RunError { code: failure.code, text: failure.text })
}

/// A whole worker on another host.
#[derive(Debug)]
pub(crate) struct RemoteWorker(Session);

impl RemoteWorker {
    /// # Safety
    /// As [`Endpoint::run`].
    unsafe fn hand_over(
        &mut self,
        callable: Digest,
        args: RunArgs,
        run_id: u64,
        dispatch_id: u64,
    ) -> Result<(), RunError> {
        let refused = |text| RunError { code: -1, text };
        let regions = wire::regions_of(&args).map_err(refused)?;
        let head = TaskHead { callable, run_id, dispatch_id, args, regions };
        let encoded = head.encode().map_err(refused)?;
        // SAFETY: the caller's obligation.
        match unsafe { self.0.run(&head, &encoded) } {
            Ok(outcome) => outcome,
            Err(broken) => self.0.give_up(&format!("in run {run_id}"), &broken),
        }
    }
}

impl Endpoint for RemoteWorker {
    unsafe fn run(&mut self, callable: &Digest, args: &RunArgs) -> Result<(), RunError> {
        // SAFETY: the caller's obligation.
        unsafe { self.hand_over(*callable, args.clone(), 0, 0) }
    }

    unsafe fn run_all(&mut self, tasks: &mut dyn Tasks) {
        while let Some(Task { slot, callable, args, run_id, dispatch_id }) = tasks.next() {
            // SAFETY: the caller's obligation.
            let outcome = unsafe { self.hand_over(callable, args, run_id, dispatch_id) };
            tasks.finish(slot, outcome);
        }
    }

    fn prepare(&mut self, callable: &Digest) -> Result<u64, RunError> {
        match self.0.ask(Kind::Prepare, callable) {
            Ok(outcome) => outcome,
            Err(broken) => self.0.give_up("when it was asked for a callable", &broken),
        }
    }

    fn close(&mut self) -> Result<(), RunError> {
        match self.0.ask(Kind::Shutdown, &[]) {
            Ok(outcome) => outcome.map(drop),
            Err(broken) => self.0.give_up("when it was told to leave", &broken),
        }
    }
}
