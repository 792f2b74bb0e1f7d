//! `simpler stacks` from outside: a process that hangs is shown, living and dead, and what cannot be shown is said.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use serde_json::Value;
use simpler_host_log::{self as log, Config, Invocation, span};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// Set in a process that is to hang: the folder of its log.
const HANGS: &str = "SIMPLER_STACKS_TEST_HANGS";

/// A folder of its own for each test.
fn folder(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(path.join("log")).unwrap();
    path
}

fn stacks(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_simpler"));
    command.arg("stacks").args(arguments).env("SIMPLER_SHM", folder).stdin(Stdio::null()).output().unwrap()
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

/// A process that hangs, killed at the latest when the test ends.
struct Hung(Child);

impl Hung {
    /// This test program again, with only the test `a_process_that_hangs`.
    fn start(folder: &Path) -> Hung {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["a_process_that_hangs", "--exact", "--nocapture", "--test-threads=1"])
            .env(HANGS, folder.join("log"))
            .env("SIMPLER_SHM", folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let is_ready = lines.map(Result::unwrap).any(|line| line.ends_with("hangs now"));
        assert!(is_ready, "it ended before");
        Hung(child)
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Hung {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The process that the other tests look at; without them it is no test.
#[test]
fn a_process_that_hangs() {
    let Some(directory) = std::env::var_os(HANGS) else { return };
    log::init(&Config { directory: Some(Path::new(&directory)), ..Config::default() }).unwrap();
    let (ready, is_ready) = std::sync::mpsc::channel();
    let ready_first = ready.clone();
    let hang = || loop {
        std::thread::park();
    };
    let spawn = |name: &str, body: Box<dyn FnOnce() + Send>| {
        std::thread::Builder::new().name(name.to_owned()).spawn(body).unwrap();
        is_ready.recv().unwrap();
    };
    let older = move || {
        let _root = Invocation::begin("simpler_run", 0x5eed);
        let _bind = span!("simpler_run.bind", ntensor = 4);
        let _wait = span!("simpler_run.bind.wait");
        ready_first.send(()).unwrap();
        hang()
    };
    spawn("older", Box::new(older));
    let younger = move || {
        let _span = span!("a name with blanks, longer than the first block of a slot");
        ready.send(()).unwrap();
        hang()
    };
    spawn("younger", Box::new(younger));
    println!("hangs now");
    // Until the other end is closed, should the test that started this be gone.
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

/// The lines with every time replaced, so that they can be compared.
fn without_times(text: &str) -> Vec<String> {
    let is_time = |word: &&str| word.starts_with(|byte: char| byte.is_ascii_digit());
    let line = |line: &str| {
        if let Some((before, after)) = line.split_once("last seen alive ") {
            let (ago, after) = after.split_once(" ago").unwrap();
            assert!(ago.split(' ').next().as_ref().is_some_and(is_time), "{line}");
            return format!("{before}last seen alive TIME ago{after}");
        }
        let Some((age, rest)) =
            line.strip_prefix("    ").and_then(|line| line.trim_start().split_once("s  "))
        else {
            return line.to_owned();
        };
        let time = age.strip_prefix("at least ").unwrap_or(age);
        assert!(time.split(' ').next().as_ref().is_some_and(is_time), "{line}");
        format!("    {}TIME  {rest}", &age[..age.len() - time.len()])
    };
    text.lines().map(line).collect()
}

#[test]
fn a_hang_is_shown_by_process_and_thread() {
    let folder = folder("stacks_text");
    let mut hung = Hung::start(&folder);
    let pid = hung.pid();
    let log = folder.join("log").join(format!("host.{pid}.log"));
    let output = stacks(&folder, &[&pid]);
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""));
    let tid = |line: &str| line.split(' ').nth(3).unwrap().to_owned();
    let lines = without_times(stdout(&output));
    assert_eq!(lines.len(), 8, "{lines:#?}");
    let (older, younger, main) = (tid(&lines[1]), tid(&lines[5]), tid(&lines[7]));
    let long = "a%20name%20with%20blanks,%20longer%20than%20the%20first%20block~";
    let expected = |head: String, names: [&str; 2], at_least: &str| {
        vec![
            head,
            format!("  thread {older}{}", names[0]),
            format!("    {at_least}TIME  simpler_run  inv=1 hid=5eed"),
            format!("    {at_least}TIME    simpler_run.bind"),
            format!("    {at_least}TIME      simpler_run.bind.wait"),
            format!("  thread {younger}{}", names[1]),
            format!("    {at_least}TIME  {long}"),
        ]
    };
    let head = |state: &str| format!("process {pid}, {state}, log {}", log.display());
    let mut alive = expected(head("alive"), [" older", " younger"], "");
    let name_of_main = std::fs::read_to_string(format!("/proc/{pid}/task/{main}/comm")).unwrap();
    alive.push(format!("  thread {main} {}: no span open", name_of_main.trim_end()));
    assert_eq!(lines, alive);
    // By the directory of its log, the same.
    let by_directory = stacks(&folder, &[folder.join("log").to_str().unwrap()]);
    assert_eq!(without_times(stdout(&by_directory)), alive);
    hung.kill();
    let output = stacks(&folder, &[&pid]);
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""));
    assert_eq!(
        without_times(stdout(&output)),
        expected(head("dead, last seen alive TIME ago"), ["", ""], "at least ")
    );
}

#[test]
fn the_json_is_one_object_on_one_line() {
    let folder = folder("stacks_json");
    let mut hung = Hung::start(&folder);
    let pid = hung.pid();
    let look = || -> Value {
        let output = stacks(&folder, &[&pid, "--json"]);
        assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""));
        assert_eq!(stdout(&output).lines().count(), 1);
        serde_json::from_str(stdout(&output)).unwrap()
    };
    let alive = look();
    let process = &alive["processes"][0];
    assert_eq!(process["pid"].to_string(), pid);
    assert_eq!((&process["alive"], &process["same_pid_namespace"]), (&Value::Bool(true), &Value::Bool(true)));
    assert!(process["log"].as_str().unwrap().ends_with(&format!("host.{pid}.log")));
    let thread = &process["threads"][0];
    assert_eq!((&thread["name"], &thread["changing"]), (&"older".into(), &Value::Bool(false)));
    let span = &thread["spans"][1];
    assert_eq!(
        (&span["name"], &span["inv"], &span["hid"], &span["depth"]),
        (&"simpler_run.bind".into(), &1.into(), &"5eed".into(), &1.into())
    );
    let ns = |value: &Value| value.as_i64().unwrap();
    assert_eq!(ns(&span["since_ns"]) + ns(&span["open_ns"]), ns(&process["seen_ns"]));
    assert_eq!(process["threads"][2]["spans"], Value::Array(Vec::new()));
    assert_eq!(alive["refused"], Value::Array(Vec::new()));
    hung.kill();
    let dead = look();
    let process = &dead["processes"][0];
    assert_eq!(process["alive"], Value::Bool(false));
    assert!(ns(&process["looked_ns"]) > ns(&process["seen_ns"]));
    let span = &process["threads"][0]["spans"][1];
    assert_eq!(span.get("open_ns"), None, "nobody knows");
    assert_eq!(ns(&span["since_ns"]) + ns(&span["open_min_ns"]), ns(&process["seen_ns"]));
    assert_eq!(process["threads"][0].get("name"), None);
}

#[test]
fn what_is_not_there_is_1_and_what_cannot_be_meant_is_2() {
    let folder = folder("stacks_none");
    let elsewhere = folder.join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    let log = folder.join("log");
    let (log, own_pid) = (log.to_str().unwrap(), std::process::id().to_string());
    for (argument, code, sentence) in [
        (own_pid.as_str(), 1, "no ring of process"),
        (log, 1, "no ring of a process that logs to"),
        ("/nonexistent", 2, "neither a process's id nor a directory"),
        ("/dev/null", 2, "neither a process's id nor a directory"),
        ("0", 2, "greater than 0"),
        ("99999999999", 2, "neither a process's id nor a directory"),
    ] {
        let output = stacks(&folder, &[argument]);
        assert_eq!((output.status.code(), stdout(&output)), (Some(code), ""), "{argument}");
        assert!(stderr(&output).contains(sentence), "{}", stderr(&output));
        let output = stacks(&folder, &[argument, "--json"]);
        let answer: Value = serde_json::from_str(stdout(&output)).unwrap();
        assert_eq!(output.status.code(), Some(code));
        assert!(answer["error"].as_str().unwrap().contains(sentence));
    }
    assert_eq!(stacks(&folder, &[]).status.code(), Some(2));
    assert_eq!(stacks(&folder, &["1", "2"]).status.code(), Some(2));
    // Where it looks for rings is not to be trusted.
    let hung = Hung::start(&folder);
    let rings = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let rings = rings.into_iter().find(|path| path.to_str().unwrap().contains("simpler-")).unwrap();
    std::fs::set_permissions(&rings, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let output = stacks(&folder, &[&hung.pid()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("is open to others"), "{}", stderr(&output));
}

#[test]
fn a_ring_of_another_version_is_refused_with_a_sentence() {
    let folder = folder("stacks_version");
    let mut hung = Hung::start(&folder);
    hung.kill();
    let rings = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let rings = rings.into_iter().find(|path| path.to_str().unwrap().contains("simpler-")).unwrap();
    let ring = std::fs::read_dir(rings).unwrap().next().unwrap().unwrap().path();
    let mut bytes = std::fs::read(&ring).unwrap();
    bytes[8..16].fill(7);
    std::fs::write(&ring, bytes).unwrap();
    let output = stacks(&folder, &[&hung.pid()]);
    assert_eq!((output.status.code(), stdout(&output)), (Some(1), ""));
    let (ring, said) = (ring.to_str().unwrap(), stderr(&output));
    assert!(said.starts_with(ring) && said.contains("was left by another version of simpler"), "{said}");
}

#[test]
fn the_help_says_what_is_not_shown() {
    let output = stacks(Path::new("/dev/shm"), &["--help"]);
    assert_eq!(output.status.code(), Some(0));
    for word in ["PID|DIR", "--json", "attributes", "SIMPLER_SHM", "at least"] {
        assert!(stdout(&output).contains(word), "{word}");
    }
}
