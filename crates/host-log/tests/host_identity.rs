//! Which host a process is on stands in its log, once per life, wherever the log goes.

#![cfg(feature = "host-strace")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail where it stands")]

mod support;

use std::path::Path;

use simpler_host_log::{self as log, Config, Threshold, span};
use simpler_record_format::{RawHostIdentity, parse_host_identity, percent_decode};
use support::{DRAIN, StderrPipe, all_lines, enter_pid_namespace, fork, in_own_process, log_file, reap};

/// Where an identity stands among lines: the line's number, the process, the host, its name.
type Stands = (usize, u64, u64, Vec<u8>);

fn identities(lines: &[String]) -> Vec<Stands> {
    let with_end: Vec<String> = lines.iter().map(|line| format!("{line}\n")).collect();
    let found = with_end.iter().enumerate().filter_map(|(number, line)| {
        let RawHostIdentity { pid, host, name } = parse_host_identity(line.as_bytes())?;
        Some((number, pid, host, percent_decode(name).collect()))
    });
    found.collect()
}

fn lines_of(dir: &Path, pid: i32) -> Vec<String> {
    all_lines(&std::fs::read(log_file(dir, pid)).unwrap())
}

/// A process logs into `dir`, after `prepare`; gives its lines. None where it may not prepare, which is said.
fn lines_of_child(dir: &Path, prepare: impl FnOnce() -> std::io::Result<()>) -> Option<Vec<String>> {
    let child = fork(|| {
        if let Err(error) = prepare() {
            return eprintln!("skipped: {error}");
        }
        log::init(&Config { directory: Some(dir), ..Config::default() }).unwrap();
        log::log_warn!("here");
        log::prepare_to_fork(DRAIN).unwrap();
    });
    reap(child);
    log_file(dir, child).exists().then(|| lines_of(dir, child))
}

#[test]
fn processes_of_one_host_name_it_alike_behind_their_anchors() {
    in_own_process("processes_of_one_host_name_it_alike_behind_their_anchors", || {
        let dir = tempfile::tempdir().unwrap();
        let [first, second] = [0, 1].map(|_| lines_of_child(dir.path(), || Ok(())).unwrap());
        let ([first], [second]) = (&identities(&first)[..], &identities(&second)[..]) else {
            panic!("one each: {first:#?} {second:#?}")
        };
        assert_eq!((first.0, second.0), (1, 1), "behind the anchor");
        assert_ne!(first.1, second.1);
        assert_eq!((first.2, &first.3), (second.2, &second.3));
        assert_ne!(first.2, 0);
        let name = std::fs::read("/proc/sys/kernel/hostname").unwrap();
        assert_eq!(first.3, name.trim_ascii_end());
    });
}

#[test]
fn a_process_that_forks_with_a_quiesced_log_and_its_child_say_it_once_each() {
    in_own_process("a_process_that_forks_with_a_quiesced_log_and_its_child_say_it_once_each", || {
        let dir = tempfile::tempdir().unwrap();
        // Written by itself first, then by a writer, then by another one.
        log::init(&Config { directory: Some(dir.path()), defer_writer: true, ..Config::default() }).unwrap();
        log::log_warn!("no writer yet");
        log::start_writer().unwrap();
        log::log_warn!("a writer");
        log::prepare_to_fork(DRAIN).unwrap();
        let child = fork(|| {
            log::start_writer().unwrap();
            drop(span!("in_the_child"));
            log::prepare_to_fork(DRAIN).unwrap();
        });
        reap(child);
        log::start_writer().unwrap();
        log::log_warn!("another writer");
        log::prepare_to_fork(DRAIN).unwrap();
        for pid in [log::pid(), child] {
            let lines = lines_of(dir.path(), pid);
            let found = identities(&lines);
            assert!(matches!(found[..], [(1, of, ..)] if of == pid as u64), "{pid}: {lines:#?}");
        }
    });
}

#[test]
fn a_directory_that_comes_late_gets_the_identity_again() {
    in_own_process("a_directory_that_comes_late_gets_the_identity_again", || {
        for has_writer in [true, false] {
            let dir = tempfile::tempdir().unwrap();
            let pipe = StderrPipe::install(None);
            let child = fork(|| {
                log::init(&Config { defer_writer: !has_writer, ..Config::default() }).unwrap();
                log::log_warn!("to stderr");
                log::flush(DRAIN).unwrap();
                log::set_directory(dir.path()).unwrap();
                log::log_warn!("to the file");
                log::log_warn!("and once more");
                log::prepare_to_fork(DRAIN).unwrap();
            });
            pipe.restore();
            let on_stderr = all_lines(&pipe.read_to_end());
            reap(child);
            let in_file = lines_of(dir.path(), child);
            let ([first], [again]) = (&identities(&on_stderr)[..], &identities(&in_file)[..]) else {
                panic!("one each: {on_stderr:#?} {in_file:#?}")
            };
            assert_eq!(first, again, "the same, and in the same place");
            assert_eq!(first.0, 1);
        }
    });
}

#[test]
fn a_muted_log_names_no_host_before_it_speaks() {
    in_own_process("a_muted_log_names_no_host_before_it_speaks", || {
        let dir = tempfile::tempdir().unwrap();
        log::init(&Config { threshold: Threshold::ERROR, directory: Some(dir.path()), ..Config::default() })
            .unwrap();
        log::log_error!("an error");
        log::flush(DRAIN).unwrap();
        assert_eq!(identities(&lines_of(dir.path(), log::pid())), []);
        log::set_threshold(Threshold::TIMING);
        log::log_error!("another");
        log::flush(DRAIN).unwrap();
        let lines = lines_of(dir.path(), log::pid());
        assert!(matches!(identities(&lines)[..], [(2, ..)]), "error, anchor, identity, error: {lines:#?}");
    });
}

#[test]
fn another_namespace_is_another_host() {
    in_own_process("another_namespace_is_another_host", || {
        let dir = tempfile::tempdir().unwrap();
        let here = identities(&lines_of_child(dir.path(), || Ok(())).unwrap());
        let there = lines_of_child(dir.path(), || {
            // SAFETY: no memory involved.
            match unsafe { libc::unshare(libc::CLONE_NEWNET) } {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        });
        let Some(there) = there else { return };
        let there = identities(&there);
        assert_eq!((here.len(), there.len()), (1, 1));
        assert_ne!(here[0].2, there[0].2);
        assert_eq!(here[0].3, there[0].3, "by the same name");
    });
}

#[test]
fn an_identity_that_is_lost_is_tried_again() {
    in_own_process("an_identity_that_is_lost_is_tried_again", || {
        for has_writer in [true, false] {
            let dir = tempfile::tempdir().unwrap();
            let child = fork(|| {
                // A folder is in the file's place.
                let file = log_file(dir.path(), log::pid());
                std::fs::create_dir(&file).unwrap();
                let directory = Some(dir.path());
                log::init(&Config { directory, defer_writer: !has_writer, ..Config::default() }).unwrap();
                log::log_warn!("lost");
                log::flush(DRAIN).unwrap();
                assert!(log::counts().dropped > 0);
                std::fs::remove_dir(&file).unwrap();
                log::log_warn!("lands");
                log::log_warn!("and again");
                log::prepare_to_fork(DRAIN).unwrap();
            });
            reap(child);
            let lines = lines_of(dir.path(), child);
            assert!(matches!(identities(&lines)[..], [(1, ..)]), "writer {has_writer}: {lines:#?}");
        }
    });
}

#[test]
fn a_killed_process_has_named_its_host_once_it_is_recovered() {
    in_own_process("a_killed_process_has_named_its_host_once_it_is_recovered", || {
        let dir = tempfile::tempdir().unwrap();
        let child = support::fork_to_die(|| {
            log::init(&Config { directory: Some(dir.path()), ..Config::default() }).unwrap();
            log::log_warn!("killed at once");
        });
        let recovery = log::recover(dir.path()).unwrap();
        assert_eq!(recovery.recovered.len(), 1, "{recovery:?}");
        let lines = lines_of(dir.path(), child);
        assert!(matches!(identities(&lines)[..], [(1, of, ..)] if of == child as u64), "{lines:#?}");
        assert!(lines.iter().any(|line| line.contains("killed at once")));
    });
}

#[test]
fn a_child_that_has_its_parents_pid_elsewhere_says_where() {
    in_own_process("a_child_that_has_its_parents_pid_elsewhere_says_where", || {
        let dir = tempfile::tempdir().unwrap();
        let entered = || match enter_pid_namespace() {
            Ok(()) => true,
            Err(error) => {
                eprintln!("skipped: a pid namespace cannot be had: {error}");
                false
            }
        };
        reap(fork(|| {
            if !entered() {
                return;
            }
            reap(fork(|| {
                assert_eq!(log::pid(), 1);
                log::init(&Config { directory: Some(dir.path()), ..Config::default() }).unwrap();
                log::log_warn!("the first 1");
                log::prepare_to_fork(DRAIN).unwrap();
                if !entered() {
                    return;
                }
                reap(fork(|| {
                    assert_eq!(log::pid(), 1);
                    log::start_writer().unwrap();
                    log::log_warn!("the second 1");
                    log::prepare_to_fork(DRAIN).unwrap();
                }));
            }));
        }));
        if !log_file(dir.path(), 1).exists() {
            return;
        }
        let lines = lines_of(dir.path(), 1);
        let found = identities(&lines);
        let [(1, 1, first, _), (at, 1, second, _)] = &found[..] else { panic!("{lines:#?}") };
        assert!(lines[at - 1].contains("[CLOCK_ANCHOR]"), "{lines:#?}");
        assert_ne!(first, second, "{lines:#?}");
    });
}
