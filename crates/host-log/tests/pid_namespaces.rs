//! Two processes that have the same pid, each in a pid namespace of its own, and one log folder.

#![cfg(feature = "host-strace")]

mod support;
mod tally;

use simpler_host_log::{self as log, Config, DropReason, span};
use support::{DRAIN, enter_pid_namespace, fork, in_own_process, reap};

const RECORDS: u64 = 2000;

#[test]
fn processes_of_the_same_pid_tear_and_lose_nothing_of_each_others() {
    in_own_process("processes_of_the_same_pid_tear_and_lose_nothing_of_each_others", || {
        let dir = tempfile::tempdir().unwrap();
        let stages: Vec<i32> = (0..2)
            .map(|number| {
                fork(|| {
                    if let Err(error) = enter_pid_namespace() {
                        return eprintln!("skipped: a pid namespace cannot be had: {error}");
                    }
                    reap(fork(|| {
                        assert_eq!(log::pid(), 1);
                        log::init(&Config { directory: Some(dir.path()), ..Config::default() }).unwrap();
                        for record in 0..RECORDS {
                            let id = number * RECORDS + record;
                            if id.is_multiple_of(2) {
                                log::log_warn!("id={id}")
                            } else {
                                drop(span!("same", id = id))
                            }
                        }
                        log::prepare_to_fork(DRAIN).unwrap();
                        assert_eq!(tally::only(DropReason::QueueFull, &log::counts()), 0);
                    }));
                })
            })
            .collect();
        stages.into_iter().for_each(reap);
        // Whatever their files are called.
        let mut lines = Vec::new();
        for entry in std::fs::read_dir(dir.path()).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            assert!(name.starts_with("host.1") && name.ends_with(".log"), "{name}");
            lines.extend(support::lines(&std::fs::read(dir.path().join(name)).unwrap()));
        }
        if lines.is_empty() {
            return;
        }
        let mut ids = tally::ids(&lines);
        ids.sort_unstable();
        assert_eq!(ids, (0..2 * RECORDS).collect::<Vec<u64>>());
        assert_eq!(tally::anchors(&lines).len(), 2, "each its own");
    });
}

#[test]
fn a_child_that_has_its_parents_pid_is_still_another_process() {
    in_own_process("a_child_that_has_its_parents_pid_is_still_another_process", || {
        for quiesces in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            reap(fork(|| {
                if let Err(error) = enter_pid_namespace() {
                    return eprintln!("skipped: a pid namespace cannot be had: {error}");
                }
                reap(fork(|| {
                    log::init(&Config { directory: Some(dir.path()), ..Config::default() }).unwrap();
                    log::log_warn!("parent id=1");
                    if quiesces {
                        log::prepare_to_fork(DRAIN).unwrap();
                    } else {
                        log::flush(DRAIN).unwrap();
                    }
                    if enter_pid_namespace().is_err() {
                        return eprintln!("skipped: a second pid namespace cannot be had");
                    }
                    let open = span!("across", id = 2);
                    reap(fork(|| {
                        assert_eq!(log::pid(), 1, "as its parent");
                        drop(open);
                        log::log_warn!("child id=3");
                        let refused = if quiesces { 0 } else { 2 };
                        assert_eq!(tally::only(DropReason::NotAdmitted, &log::counts()), refused);
                        log::start_writer().unwrap();
                        log::log_warn!("child id=4");
                        log::close(DRAIN);
                    }));
                }));
            }));
        }
    });
}
