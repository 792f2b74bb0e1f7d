//! Workers on other hosts: ranks that a launcher starts on this one, over real sessions.

#![allow(clippy::unwrap_used, reason = "a test program whose functions clippy does not know for tests")]

mod one_thread;
mod processes;
mod real_chips;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use simpler_kernel_abi::{ArgUse, DEVICE_MEMORY, SimplerTensor};
use simpler_log_abi::Threshold;
use simpler_relax::Deadline;
use simpler_worker::remote::{self, Launcher, Mpirun, Rank, Ranks, Remote};
use simpler_worker::{
    Callable, ChildId, ChipArg, ChipWorker, Ending, LogSetup, RunArgs, RunError, SharedBuffer, SharedMemory,
    Worker, WorkerBuilder, WorkerError,
};

use one_thread::{Test, program};
use processes::{LIMIT, children_of, is_alive, wait_until};
use real_chips::*;

const TESTS: &[Test] = &[
    ("ranks_of_a_shell_run_what_their_parent_asks", ranks_of_a_shell_run_what_their_parent_asks),
    ("ranks_of_mpirun_run_what_their_parent_asks", ranks_of_mpirun_run_what_their_parent_asks),
    ("ranks_of_one_pid_on_two_hosts_are_told_apart", ranks_of_one_pid_on_two_hosts_are_told_apart),
    ("tensors_that_overlap_do_so_at_the_rank_as_well", tensors_that_overlap_do_so_at_the_rank_as_well),
    ("a_failure_at_a_rank_arrives_with_its_code", a_failure_at_a_rank_arrives_with_its_code),
    (
        "a_rank_that_is_killed_is_gone_and_the_other_goes_on",
        a_rank_that_is_killed_is_gone_and_the_other_goes_on,
    ),
    (
        "a_rank_of_mpirun_that_is_killed_is_gone_and_the_other_goes_on",
        a_rank_of_mpirun_that_is_killed_is_gone_and_the_other_goes_on,
    ),
    (
        "a_session_that_is_killed_takes_its_rank_along_and_no_other",
        a_session_that_is_killed_takes_its_rank_along_and_no_other,
    ),
    ("a_stranger_is_refused_and_harms_nobody", a_stranger_is_refused_and_harms_nobody),
    ("a_rank_of_another_version_is_refused", a_rank_of_another_version_is_refused),
    ("a_rank_that_does_not_come_up_says_why", a_rank_that_does_not_come_up_says_why),
    ("a_launcher_that_does_not_do_its_work_is_told", a_launcher_that_does_not_do_its_work_is_told),
    ("a_launcher_that_stays_is_ended", a_launcher_that_stays_is_ended),
    ("what_cannot_go_to_another_host_is_refused", what_cannot_go_to_another_host_is_refused),
    (
        "ranks_whose_parent_is_killed_leave_with_their_chips",
        ranks_whose_parent_is_killed_leave_with_their_chips,
    ),
    ("a_rank_in_an_endless_run_leaves_with_its_parent", a_rank_in_an_endless_run_leaves_with_its_parent),
];

/// What launchers start.
const PROGRAMS: &[Test] = &[
    ("rank", rank),
    ("rank_after_strangers", rank_after_strangers),
    ("rank_of_version_2", rank_of_version_2),
    ("rank_without_a_chip", rank_without_a_chip),
    ("parent", parent),
];

fn main() -> ExitCode {
    one_thread::main(TESTS, PROGRAMS)
}

/// A launcher of a few lines, for this host: a shell that starts all and waits.
struct Shell {
    /// What it does at last.
    epilogue: &'static str,
}

impl Launcher for Shell {
    fn command(&self, ranks: &Ranks<'_>) -> Command {
        let script = format!(
            "n=0; while [ $n -lt {} ]; do MY_NUMBER=$n \"$@\" & n=$((n+1)); done; wait; {}",
            ranks.count, self.epilogue
        );
        let mut command = Command::new("sh");
        command.args(["-c", &script, "sh"]).arg(ranks.program).args(ranks.arguments);
        command
    }

    fn rank_variable(&self) -> &str {
        "MY_NUMBER"
    }
}

const SHELL: Shell = Shell { epilogue: "" };

/// Two ranks that are this binary's program of that name.
fn ranks(launcher: impl Launcher + 'static, name: &str) -> Remote {
    let program = program(name);
    let arguments = program.get_args().map(ToOwned::to_owned);
    let remote = Remote::new(launcher, 2, program.get_program()).init_limit(Duration::from_secs(60));
    arguments.fold(remote, Remote::argument)
}

/// A node with a chip, and what it does for its parent.
fn build(rank: &mut Rank) -> Result<(), RunError> {
    let number = rank.number() as u64;
    let node = rank.worker();
    node.chips(1);
    node.endpoint(|_, callables| Ok(Box::new(ChipWorker::new(npu(), small(), callables)?)));
    let add = node.callable(image(ADD_KERNEL))?;
    rank.orchestration("add", move |node, args| {
        let ticket = node.submit(0, add, args)?;
        Ok(node.wait(ticket)?)
    })?;
    rank.orchestration("who", move |_, args| {
        let word = u64::from(std::process::id()) | number << 32 | args.scalars[0] << 48;
        let out = args.tensors[0].tensor;
        // SAFETY: a tensor of eight bytes at least, in memory of this process, for this run.
        unsafe { (out.addr as *mut u64).write_unaligned(word) };
        Ok(())
    })?;
    rank.orchestration("panic", |_, _| panic!("the pen is broken"))?;
    rank.orchestration("stay", |_, _| {
        loop {
            std::thread::park();
        }
    })?;
    Ok(())
}

fn serve(build: impl FnOnce(&mut Rank) -> Result<(), RunError>) {
    let code = remote::serve(build);
    std::process::exit(i32::from(code != ExitCode::SUCCESS));
}

fn rank() {
    serve(build);
}

fn rank_without_a_chip() {
    serve(|rank| {
        build(rank)?;
        rank.worker().endpoint(|_, _| Err(RunError { code: 5, text: "no such device".into() }));
        Ok(())
    });
}

/// What a session begins with: kind, length, version, token, rank, pid, host, name.
fn hello(version: u32, token: [u8; 32], rank: u32) -> Vec<u8> {
    let mut payload = version.to_le_bytes().to_vec();
    payload.extend(token);
    payload.extend(rank.to_le_bytes());
    payload.extend([0; 16]);
    payload.extend(b"nowhere");
    let mut frame = 1_u32.to_le_bytes().to_vec();
    frame.extend((payload.len() as u32).to_le_bytes());
    frame.extend(payload);
    frame
}

/// Says something to the parent and gives all that it answers before it closes the connection.
fn say(bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(std::env::var("SIMPLER_REMOTE_ADDRESS").unwrap()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    // A connection that was reset is closed as well.
    let _ = stream.read_to_end(&mut answer);
    answer
}

fn rank_after_strangers() {
    let answer = say(&hello(1, [7; 32], 0));
    let text = String::from_utf8_lossy(&answer[8..]);
    assert_eq!((answer[0], &*text), (3, "the token is not this parent's"));
    // Of no kind, too long, no hello, and cut off.
    for bytes in
        [&b"GET / HTTP/1.1\r\n\r\n"[..], &[1, 0, 0, 0, 255, 255, 255, 255], &[4, 0, 0, 0, 0, 0, 0, 0]]
    {
        assert_eq!(say(bytes), b"");
    }
    // One that stays and says nothing.
    let silent = TcpStream::connect(std::env::var("SIMPLER_REMOTE_ADDRESS").unwrap()).unwrap();
    std::mem::forget(silent);
    serve(build);
}

fn token() -> [u8; 32] {
    let text = std::env::var("SIMPLER_REMOTE_TOKEN").unwrap();
    std::array::from_fn(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap())
}

fn rank_of_version_2() {
    let answer = say(&hello(2, token(), 0));
    assert!(String::from_utf8_lossy(&answer).contains("session protocol 2, this parent 1"));
}

/// A pod of two ranks, memory that it shares, and what it can ask them.
struct Pod {
    builder: WorkerBuilder,
    shared: SharedMemory,
    add: Callable,
    who: Callable,
    panic: Callable,
    stay: Callable,
}

fn pod(remote: Remote) -> Pod {
    let mut builder = Worker::builder(4);
    let shared = builder.share(SharedBuffer::new(16 * BYTES).unwrap());
    let [add, who, panic, stay] =
        ["add", "who", "panic", "stay"].map(|name| builder.remote_orchestration(name).unwrap());
    builder.remote(remote);
    Pod { builder, shared, add, who, panic, stay }
}

fn run(pod: &mut Worker, rank: usize, callable: Callable, args: &RunArgs) -> Result<(), WorkerError> {
    let ticket = pod.submit(ChildId::Remote(rank), callable, args)?;
    pod.wait(ticket)
}

fn works(launcher: impl Launcher + 'static) {
    let logs = tempfile::tempdir().unwrap();
    let Pod { mut builder, shared, add: add_to, who, .. } = pod(ranks(launcher, "rank"));
    builder.log(LogSetup { threshold: Threshold::TIMING, directory: Some(logs.path().into()) });
    let mut pod = builder.start().unwrap();
    put(&shared, 0, 5.0);
    for round in 1..=3 {
        // Both at once.
        let tickets = [0, 1].map(|rank| {
            pod.submit(ChildId::Remote(rank), add_to, &add(&shared, 0, 1 + rank, round + rank as u64))
                .unwrap()
        });
        for ticket in tickets {
            pod.wait(ticket).unwrap();
        }
        assert_holds(&shared, 0, 5.0);
        assert_holds(&shared, 1, 5.0 + round as f32);
        assert_holds(&shared, 2, 6.0 + round as f32);
    }
    for rank in 0..2 {
        let args = RunArgs {
            tensors: vec![host(&shared, 4, ArgUse::OutputExisting)],
            scalars: vec![9],
            ..RunArgs::default()
        };
        run(&mut pod, rank, who, &args).unwrap();
        let mut word = [0; 8];
        shared.read(4 * BYTES, &mut word).unwrap();
        let peer = pod.peers()[rank].pid;
        assert_eq!(u64::from_ne_bytes(word), peer | (rank as u64) << 32 | 9 << 48);
        assert_eq!(pod.prepare(ChildId::Remote(rank), who).unwrap(), 1);
    }
    let peers = pod.peers().to_vec();
    pod.close().unwrap();
    let own = u64::from(std::process::id());
    check_logs(logs.path(), own, [peers[0].pid, peers[1].pid]);
}

/// What the parent's and both ranks' logs say together.
fn check_logs(logs: &Path, own: u64, ranks: [u64; 2]) {
    let folders = [logs.to_owned(), logs.join("remote.0"), logs.join("remote.1")];
    let reading = simpler_trace_ingest::read(&folders.map(simpler_trace_ingest::Source::path)).unwrap();
    let trace = &reading.trace;
    assert!(!trace.is_lossy() && reading.complaints.total() == 0, "{:?}", reading.complaints.first());
    assert_eq!(trace.hosts().len(), 1, "one host: {:?}", trace.hosts());
    assert!(trace.lives().iter().all(|life| life.host.is_some() && life.anchor.is_some()));
    let count = |pid: u64, name: &str| {
        let of = |span: &&simpler_trace_model::Span| {
            trace.life(span).pid == pid && &*trace.name(span).text == name
        };
        trace.spans().iter().filter(of).count()
    };
    for leaf in ["submit", "dispatch", "complete"] {
        // Three rounds and "who", of each rank.
        assert_eq!(count(own, &format!("network1.{leaf}")), 8);
        for rank in ranks {
            assert_eq!(count(rank, &format!("node.{leaf}")), 3);
            assert_eq!(count(rank, &format!("network1.{leaf}")), 0);
        }
    }
    let is_remote = |span: &&simpler_trace_model::Span| {
        trace.attributes(span).get("endpoint_kind").as_deref() == Some("remote")
    };
    assert_eq!(trace.spans().iter().filter(is_remote).count(), 16, "dispatch and complete");
    // The chips' runs are whole trees, each of its own process.
    assert_eq!(trace.orphans(), 0);
    let roots: Vec<u64> = trace.invocations().iter().map(|run| trace.life_of(run).pid).collect();
    assert_eq!(roots.len(), 6);
    let mut chips = roots;
    chips.dedup();
    assert_eq!(chips.len(), 2, "two chips");
    let callables = trace.callables();
    assert_eq!((callables.len(), callables[0].invocations.len()), (1, 6), "one callable, by content");
}

fn ranks_of_a_shell_run_what_their_parent_asks() {
    works(SHELL);
}

/// Whether there is `mpirun`, which is said aloud where not.
fn has_mpirun() -> bool {
    let answers =
        Command::new("mpirun").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let has = answers.is_ok_and(|status| status.success());
    if !has {
        eprintln!("skipped: there is no mpirun (Debian's openmpi-bin)");
    }
    has
}

fn ranks_of_mpirun_run_what_their_parent_asks() {
    if has_mpirun() {
        works(Mpirun::default());
    }
}

/// A host of its own for a rank: a net namespace that the parent's is connected with. It goes when this is dropped.
struct Host(String);

impl Host {
    /// Of what `ip` refuses the first thing is told.
    fn new(name: &str, subnet: u32) -> Result<(Self, std::net::IpAddr), String> {
        let ip = |arguments: String| {
            let output = Command::new("ip").args(arguments.split(' ')).output();
            match output.map_err(|error| format!("ip: {error}"))? {
                output if output.status.success() => Ok(()),
                output => Err(format!("ip {arguments}: {}", String::from_utf8_lossy(&output.stderr).trim())),
            }
        };
        ip(format!("netns add {name}"))?;
        let host = Self(name.to_owned());
        ip(format!("link add {name}a type veth peer name {name}b netns {name}"))?;
        ip(format!("addr add 10.203.{subnet}.1/30 dev {name}a"))?;
        ip(format!("link set {name}a up"))?;
        ip(format!("-n {name} addr add 10.203.{subnet}.2/30 dev {name}b"))?;
        ip(format!("-n {name} link set {name}b up"))?;
        Ok((host, format!("10.203.{subnet}.1").parse().unwrap()))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

/// Starts rank 0 in a net namespace and rank 1 in this one, and each as process 1 of a pid namespace.
struct Namespaces(String);

impl Launcher for Namespaces {
    fn command(&self, ranks: &Ranks<'_>) -> Command {
        let Self(name) = self;
        let first = "unshare --pid --fork --mount-proc";
        let script =
            format!("MY_NUMBER=0 ip netns exec {name} {first} \"$@\" & MY_NUMBER=1 {first} \"$@\" & wait");
        let mut command = Command::new("sh");
        command.args(["-c", &script, "sh"]).arg(ranks.program).args(ranks.arguments);
        command
    }

    fn rank_variable(&self) -> &str {
        "MY_NUMBER"
    }
}

fn ranks_of_one_pid_on_two_hosts_are_told_apart() {
    let own = std::process::id();
    let (name, address) = (format!("s{own}"), own % 250);
    let (_host, address) = match Host::new(&name, address) {
        Ok(host) => host,
        Err(text) => return eprintln!("skipped: a net namespace cannot be had: {text}"),
    };
    let pid_namespace = Command::new("unshare").args(["--pid", "--fork", "--mount-proc", "true"]).status();
    if !pid_namespace.is_ok_and(|status| status.success()) {
        return eprintln!("skipped: a pid namespace cannot be had");
    }
    let logs = tempfile::tempdir().unwrap();
    let Pod { mut builder, shared, add: add_to, .. } = pod(ranks(Namespaces(name), "rank").listen(address));
    builder.log(LogSetup { threshold: Threshold::TIMING, directory: Some(logs.path().into()) });
    let mut pod = builder.start().unwrap();
    put(&shared, 0, 1.0);
    for rank in 0..2 {
        run(&mut pod, rank, add_to, &add(&shared, 0, 1, 1 + rank as u64)).unwrap();
        assert_holds(&shared, 1, 2.0 + rank as f32);
    }
    let peers = pod.peers().to_vec();
    pod.close().unwrap();
    assert_eq!([peers[0].pid, peers[1].pid], [1, 1]);
    assert_ne!(peers[0].host, peers[1].host);

    let folders = [logs.path().to_owned(), logs.path().join("remote.0"), logs.path().join("remote.1")];
    let reading = simpler_trace_ingest::read(&folders.map(simpler_trace_ingest::Source::path)).unwrap();
    let trace = &reading.trace;
    assert!(!trace.is_lossy() && reading.complaints.total() == 0, "{:?}", reading.complaints.first());
    assert_eq!(trace.hosts().len(), 3, "{:?}", trace.hosts());
    // The ranks are both process 1, and their chips have one number as well; each has its own spans.
    for (peer, other) in [(&peers[0], &peers[1]), (&peers[1], &peers[0])] {
        let of = |life: &simpler_trace_model::Life, host| life.pid == 1 && life.host == Some(host);
        assert_eq!(trace.lives().iter().filter(|life| of(life, peer.host)).count(), 1);
        let submits = trace.spans().iter().filter(|span| &*trace.name(span).text == "node.submit");
        assert_eq!(submits.clone().filter(|span| of(trace.life(span), peer.host)).count(), 1);
        assert_eq!(submits.filter(|span| of(trace.life(span), other.host)).count(), 1);
    }
    let runs: Vec<_> = trace.invocations().iter().map(|run| trace.life_of(run)).collect();
    assert_eq!((runs.len(), runs[0].pid), (2, runs[1].pid));
    assert_ne!(runs[0].host, runs[1].host);
    let mut tracks: Vec<u64> = (0..).zip(trace.lives()).map(|(life, _)| trace.track_pid(life)).collect();
    tracks.sort_unstable();
    tracks.dedup();
    assert_eq!(tracks.len(), trace.lives().len());
}

fn tensors_that_overlap_do_so_at_the_rank_as_well() {
    let Pod { builder, shared, add: add_to, .. } = pod(ranks(SHELL, "rank"));
    let mut pod = builder.start().unwrap();
    put(&shared, 2, 1.0);
    put(&shared, 3, 7.0);
    // In place: what is read is what is written.
    run(&mut pod, 1, add_to, &add(&shared, 2, 2, 4)).unwrap();
    assert_holds(&shared, 2, 5.0);
    assert_holds(&shared, 3, 7.0);
    // The second half of one and the first of the next, into the one after.
    let mut args = add(&shared, 2, 4, 1);
    args.tensors[0].tensor =
        shared.tensor(2 * BYTES + BYTES / 2, BYTES, simpler_kernel_abi::DType::F32).unwrap();
    args.tensors.push(host(&shared, 2, ArgUse::Input));
    run(&mut pod, 0, add_to, &args).unwrap();
    let mut bytes = [0; BYTES];
    shared.read(4 * BYTES, &mut bytes).unwrap();
    let values: Vec<f32> = bytes.as_chunks().0.iter().map(|chunk| f32::from_ne_bytes(*chunk)).collect();
    let half = COUNT / 2;
    let expected = |at: usize| if at < half { 6.0 + (half + at) as f32 } else { 8.0 + (at - half) as f32 };
    assert_eq!(values, (0..COUNT).map(expected).collect::<Vec<_>>());
    pod.close().unwrap();
}

fn a_failure_at_a_rank_arrives_with_its_code() {
    let Pod { mut builder, shared, add: add_to, panic, .. } = pod(ranks(SHELL, "rank"));
    let missing = builder.remote_orchestration("nobody has this").unwrap();
    let mut pod = builder.start().unwrap();
    let error = run(&mut pod, 0, add_to, &add(&shared, 0, 1, 13)).unwrap_err();
    assert!(matches!(error, WorkerError::Child { child: ChildId::Remote(0), code: -9, .. }), "{error:?}");
    let text = error.to_string();
    assert!(
        text.contains("remote worker 0") && text.contains("chip 0") && text.contains("thirteen"),
        "{text}"
    );
    let error = run(&mut pod, 1, missing, &RunArgs::default()).unwrap_err();
    assert!(error.to_string().contains("not one that this worker was given"), "{error}");
    let error = pod.prepare(ChildId::Remote(1), missing).unwrap_err();
    assert!(error.to_string().contains("not one that this worker was given"), "{error}");
    // Both are as good as before.
    for rank in 0..2 {
        run(&mut pod, rank, add_to, &add(&shared, 0, 1, 1)).unwrap();
    }
    let error = run(&mut pod, 1, panic, &RunArgs::default()).unwrap_err();
    assert!(error.to_string().contains("pen is broken"), "{error}");
    // Nothing is known of that one any more.
    let error = run(&mut pod, 1, add_to, &add(&shared, 0, 1, 1)).unwrap_err();
    let gone = (ChildId::Remote(1), Ending::Disconnected);
    assert!(
        matches!(error, WorkerError::ChildGone { child, ending, .. } if (child, ending) == gone),
        "{error:?}"
    );
    run(&mut pod, 0, add_to, &add(&shared, 0, 1, 1)).unwrap();
    pod.close().unwrap();
}

fn loses_one(launcher: impl Launcher + 'static) {
    let Pod { builder, shared, add: add_to, stay, .. } = pod(ranks(launcher, "rank"));
    let mut pod = builder.start().unwrap();
    let chips: Vec<Vec<i32>> = pod.peers().iter().map(|peer| children_of(peer.pid as i32)).collect();
    assert_eq!(chips[1].len(), 1);
    let ticket = pod.submit(ChildId::Remote(1), stay, &RunArgs::default()).unwrap();
    // SAFETY: kill has no memory effects.
    assert_eq!(unsafe { libc::kill(pod.peers()[1].pid as i32, libc::SIGKILL) }, 0);
    let error = pod.wait(ticket).unwrap_err();
    let gone = (ChildId::Remote(1), Ending::Disconnected);
    assert!(
        matches!(error, WorkerError::ChildGone { child, ending, .. } if (child, ending) == gone),
        "{error:?}"
    );
    let there = format!("its process there: {} on ", pod.peers()[1].pid);
    assert!(error.to_string().contains("connection was closed"), "{error}");
    assert!(error.to_string().contains(&there), "{error}");
    wait_until(LIMIT, "a chip outlives its rank", || !chips[1].iter().any(|chip| is_alive(*chip)));
    put(&shared, 0, 1.0);
    // For as long as a launcher may need to notice, and to end the others if it did that.
    let (noticed, mut round) = (Deadline::after(Duration::from_secs(2)), 0);
    while !noticed.passed() {
        round = round % 8 + 1;
        run(&mut pod, 0, add_to, &add(&shared, 0, 1, round)).unwrap();
        assert_holds(&shared, 1, 1.0 + round as f32);
    }
    let error = run(&mut pod, 1, add_to, &add(&shared, 0, 1, 1)).unwrap_err();
    assert!(matches!(error, WorkerError::ChildGone { child: ChildId::Remote(1), .. }), "{error:?}");
    pod.close().unwrap();
    assert!(!chips[0].iter().any(|chip| is_alive(*chip)));
}

fn a_rank_that_is_killed_is_gone_and_the_other_goes_on() {
    loses_one(SHELL);
}

fn a_rank_of_mpirun_that_is_killed_is_gone_and_the_other_goes_on() {
    if has_mpirun() {
        loses_one(Mpirun::default());
    }
}

fn a_session_that_is_killed_takes_its_rank_along_and_no_other() {
    let Pod { builder, shared, add: add_to, .. } = pod(ranks(SHELL, "rank"));
    let mut pod = builder.start().unwrap();
    // SAFETY: kill has no memory effects.
    assert_eq!(unsafe { libc::kill(pod.pids()[1], libc::SIGKILL) }, 0);
    let gone = pod.peers()[1].pid as i32;
    wait_until(LIMIT, "a rank outlives its session", || !is_alive(gone));
    let error = run(&mut pod, 1, add_to, &add(&shared, 0, 1, 1)).unwrap_err();
    assert!(matches!(error, WorkerError::ChildGone { ending: Ending::Killed(9), .. }), "{error:?}");
    run(&mut pod, 0, add_to, &add(&shared, 0, 1, 1)).unwrap();
    pod.close().unwrap();
}

fn a_stranger_is_refused_and_harms_nobody() {
    let Pod { builder, shared, add: add_to, .. } = pod(ranks(SHELL, "rank_after_strangers"));
    let mut pod = builder.start().unwrap();
    run(&mut pod, 1, add_to, &add(&shared, 0, 1, 1)).unwrap();
    pod.close().unwrap();
}

fn refused(remote: Remote) -> String {
    match pod(remote).builder.start() {
        Ok(_) => panic!("it started"),
        Err(error) => error.to_string(),
    }
}

fn a_rank_of_another_version_is_refused() {
    let text = refused(ranks(SHELL, "rank_of_version_2"));
    assert!(text.contains("a rank speaks session protocol 2, this parent 1"), "{text}");
}

fn a_rank_that_does_not_come_up_says_why() {
    let text = refused(ranks(SHELL, "rank_without_a_chip"));
    assert!(
        text.contains("remote worker") && text.contains("chip 0") && text.contains("no such device"),
        "{text}"
    );
}

/// A launcher that is any command.
struct Other(&'static [&'static str]);

impl Launcher for Other {
    fn command(&self, _: &Ranks<'_>) -> Command {
        let mut command = Command::new(self.0[0]);
        command.args(&self.0[1..]);
        command
    }

    fn rank_variable(&self) -> &str {
        "NONE"
    }
}

fn a_launcher_that_does_not_do_its_work_is_told() {
    for (command, expected) in [
        (&["/nonexistent/launcher"][..], "/nonexistent/launcher cannot be started"),
        (
            &["sh", "-c", "echo no such host: moon >&2; exit 7"],
            "exited with status 7 before its ranks had connected (0 of 2 had); it said: no such host: moon",
        ),
        (&["true"], "exited with status 0 before its ranks had connected (0 of 2 had), and said nothing"),
        (&["sh", "-c", "kill -9 $$"], "was killed by signal 9"),
    ] {
        let text = refused(ranks(Other(command), "rank"));
        assert!(text.contains(expected), "{text}");
    }
    let remote = ranks(Other(&["sleep", "1000"]), "rank").init_limit(Duration::from_millis(200));
    let text = refused(remote);
    assert!(text.contains("0 of 2 ranks have connected within 0.2 s"), "{text}");
    assert_eq!(children_of(std::process::id() as i32), [0; 0], "it was ended");
    // A program that is no rank.
    let text = refused(Remote::new(SHELL, 1, "/bin/false"));
    assert!(text.contains("before its ranks had connected"), "{text}");
}

fn a_launcher_that_stays_is_ended() {
    let Pod { builder, .. } = pod(ranks(Shell { epilogue: "sleep 1000" }, "rank"));
    let mut pod = builder.start().unwrap();
    let error = pod.close_within(Duration::from_secs(5)).unwrap_err();
    assert!(matches!(error, WorkerError::Launcher { .. }), "{error:?}");
    assert_eq!(children_of(std::process::id() as i32), [0; 0]);
}

fn what_cannot_go_to_another_host_is_refused() {
    let Pod { builder, shared, add: add_to, .. } = pod(ranks(SHELL, "rank"));
    let mut pod = builder.start().unwrap();
    let mut with = |tensor| {
        let mut args = add(&shared, 0, 1, 1);
        args.tensors[1] = ChipArg { tensor, arg_use: ArgUse::InOut };
        pod.submit(ChildId::Remote(0), add_to, &args).unwrap_err().to_string()
    };
    let own = host(&shared, 0, ArgUse::Input).tensor;
    let device = with(SimplerTensor { address_space: DEVICE_MEMORY, ..own });
    assert!(device.contains("tensor 1 is device memory of this host"), "{device}");
    let local = [0_u8; 64];
    let elsewhere = with(SimplerTensor { addr: local.as_ptr() as u64, bytes: 64, extent: 64, ..own });
    assert!(
        elsewhere.contains("tensor 1") && elsewhere.contains("outside every shared buffer"),
        "{elsewhere}"
    );
    let error = pod.malloc(ChildId::Remote(0), 64).unwrap_err();
    assert!(error.to_string().contains("no device memory"), "{error}");
    let error = pod.submit(ChildId::Remote(2), add_to, &RunArgs::default()).unwrap_err();
    assert!(error.to_string().contains("no remote worker 2 among"), "{error}");
    run(&mut pod, 0, add_to, &add(&shared, 0, 1, 1)).unwrap();
    pod.close().unwrap();
    // Levels that have no such children, and launchers of none or too many.
    for (level, count, expected) in [
        (3, 2, "a worker on another host is none"),
        (4, 0, "a launcher of 0 ranks"),
        (4, 65, "65 ranks, of 64"),
    ] {
        let mut builder = Worker::builder(level);
        builder.remote(Remote::new(SHELL, count, "/bin/true"));
        let Err(error) = builder.start() else { panic!("it started") };
        assert!(error.to_string().contains(expected), "{error}");
    }
}

/// Starts a pod, says who its ranks are, and goes on: with a run that does not end, if asked.
fn parent() {
    let Pod { builder, stay, .. } = pod(ranks(SHELL, "rank"));
    let mut pod = builder.start().unwrap();
    let pids: Vec<u64> = pod.peers().iter().map(|peer| peer.pid).collect();
    let ticket =
        std::env::var_os("STAY").map(|_| pod.submit(ChildId::Remote(0), stay, &RunArgs::default()).unwrap());
    println!("ranks {} {}", pids[0], pids[1]);
    loop {
        std::thread::park();
        assert!(ticket.is_none() || !pod.peers().is_empty());
    }
}

fn parent_is_killed(stays: bool) {
    let mut command = program("parent");
    if stays {
        command.env("STAY", "1");
    }
    let mut parent = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    let mut stdout = parent.stdout.take().unwrap();
    let mut byte = [0];
    while !said.contains("ranks") || !said.ends_with('\n') {
        stdout.read_exact(&mut byte).unwrap();
        said.push(byte[0].into());
    }
    let pids: Vec<i32> =
        said.lines().last().unwrap().split(' ').skip(1).map(|pid| pid.parse().unwrap()).collect();
    let all: Vec<i32> = pids.iter().flat_map(|pid| [vec![*pid], children_of(*pid)].concat()).collect();
    assert_eq!(all.len(), 4, "two ranks and a chip each");
    parent.kill().unwrap();
    parent.wait().unwrap();
    wait_until(LIMIT, "a rank outlives its parent", || !all.iter().any(|pid| is_alive(*pid)));
}

fn ranks_whose_parent_is_killed_leave_with_their_chips() {
    parent_is_killed(false);
}

fn a_rank_in_an_endless_run_leaves_with_its_parent() {
    parent_is_killed(true);
}
