//! Recovery by hand-made deaths: each test says exactly what the process had accepted and what its writer had done.

#![cfg(feature = "host-strace")]
#![expect(clippy::unwrap_used, reason = "clippy does not take the functions beside the tests for tests")]

mod support;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use simpler_host_log::{self as log, Config, Recovery, Threshold, diagnostics, recover};
use support::{
    DRAIN, StderrPipe, fork, fork_to_die, in_own_process, lines, lines_of, log_file, reap, rings, wait_for,
};

/// A process that is killed with its writer stopped: what `then` logs is accepted and not written. Gives its pid.
fn killed(dir: Option<&Path>, then: impl FnOnce()) -> i32 {
    fork_to_die(|| {
        log::init(&Config { directory: dir, ..Config::default() }).unwrap();
        stop_the_writer();
        then();
    })
}

/// What was accepted so far is written, and nothing from now on.
fn stop_the_writer() {
    log::flush(DRAIN).unwrap();
    // The writer never gets past it.
    let _never_published = diagnostics::open_gap().unwrap();
}

fn say(count: usize) {
    for index in 0..count {
        log::log_warn!("record {index}");
    }
}

fn all_good(recovery: &Recovery) {
    assert!(recovery.refused.is_empty(), "{recovery:?}");
}

/// The numbers of the records of [`say`] in a log.
fn said(lines: &[String]) -> Vec<usize> {
    lines.iter().filter_map(|line| line.rsplit_once("record ")?.1.parse().ok()).collect()
}

fn numbers(count: usize) -> Vec<usize> {
    (0..count).collect()
}

#[test]
fn what_was_accepted_and_not_written_is_appended_once_and_the_ring_is_gone() {
    in_own_process("what_was_accepted_and_not_written_is_appended_once_and_the_ring_is_gone", || {
        let dir = tempfile::tempdir().unwrap();
        let pid = killed(Some(dir.path()), || {
            say(20);
            let _span = log::span!("simpler_run", bytes = 77);
        });
        assert_eq!(lines_of(dir.path(), pid).len(), 1, "the anchor");
        assert_eq!(rings().len(), 1);
        let recovery = recover(dir.path()).unwrap();
        all_good(&recovery);
        let [process] = &recovery.recovered[..] else { panic!("{recovery:?}") };
        assert_eq!((process.pid, process.records, process.lost, process.cut_bytes), (pid, 21, 0, 0));
        assert_eq!(process.log.as_deref(), Some(&*log_file(&dir.path().canonicalize().unwrap(), pid)));
        let lines = lines_of(dir.path(), pid);
        assert_eq!(said(&lines), numbers(20));
        assert!(lines[21].contains("name=simpler_run ") && lines[21].contains("bytes=77"), "{lines:#?}");
        assert_eq!(lines.len(), 22);
        assert_eq!(rings(), Vec::<PathBuf>::new());
        let again = recover(dir.path()).unwrap();
        assert!(again.recovered.is_empty() && again.refused.is_empty() && again.living.is_empty());
        assert_eq!(lines_of(dir.path(), pid), lines);
    });
}

#[test]
fn a_log_in_another_folder_is_left_alone() {
    in_own_process("a_log_in_another_folder_is_left_alone", || {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let pid = killed(Some(dir.path()), || say(3));
        let recovery = recover(other.path()).unwrap();
        assert!(recovery.recovered.is_empty() && recovery.refused.is_empty());
        assert_eq!(said(&lines_of(dir.path(), pid)), numbers(0));
        // Another name for the same folder will do.
        let link = other.path().join("link");
        std::os::unix::fs::symlink(dir.path(), &link).unwrap();
        assert_eq!(recover(&link).unwrap().recovered.len(), 1);
        assert_eq!(said(&lines_of(dir.path(), pid)), numbers(3));
        assert!(recover(&dir.path().join("missing")).is_err());
        assert!(recover(&log_file(dir.path(), pid)).is_err(), "a file is no folder");
    });
}

#[test]
fn a_process_that_lives_is_never_touched() {
    in_own_process("a_process_that_lives_is_never_touched", || {
        let dir = tempfile::tempdir().unwrap();
        let page = support::shared_words();
        let pid = fork(|| {
            log::init(&Config { directory: Some(dir.path()), ..Config::default() }).unwrap();
            log::flush(DRAIN).unwrap();
            let gap = diagnostics::open_gap().unwrap();
            say(5);
            page[0].store(1, std::sync::atomic::Ordering::Release);
            wait_for("a word", || page[1].load(std::sync::atomic::Ordering::Acquire) == 1);
            gap.publish(b"[mono_ns=1][T0x1][WARN] gap: filled\n");
            log::close(DRAIN);
        });
        wait_for("the child", || page[0].load(std::sync::atomic::Ordering::Acquire) == 1);
        let [ring] = &rings()[..] else { panic!() };
        let recovery = recover(dir.path()).unwrap();
        assert_eq!(recovery.living, [pid]);
        assert!(recovery.recovered.is_empty() && recovery.refused.is_empty());
        assert_eq!(lines_of(dir.path(), pid).len(), 1);
        assert!(ring.exists());

        // A dead process that had the same pid, and so the same log, must wait.
        let twin = ring.with_extension("7");
        std::fs::copy(ring, &twin).unwrap();
        let recovery = recover(dir.path()).unwrap();
        assert_eq!(recovery.refused.len(), 1);
        assert!(recovery.refused[0].why.contains("a living process writes to the same log"), "{recovery:?}");
        std::fs::remove_file(twin).unwrap();

        page[1].store(1, std::sync::atomic::Ordering::Release);
        reap(pid);
        assert_eq!(said(&lines_of(dir.path(), pid)), numbers(5));
        assert_eq!(rings(), Vec::<PathBuf>::new());
    });
}

#[test]
fn what_the_writer_wrote_and_had_not_noted_is_found_and_a_partial_record_is_cut() {
    in_own_process("what_the_writer_wrote_and_had_not_noted_is_found_and_a_partial_record_is_cut", || {
        // SAFETY: no other thread asks for the environment. Without the counter no time depends on the recovery.
        unsafe { std::env::set_var("SIMPLER_LOG_CLOCK", "gettime") };
        let dir = tempfile::tempdir().unwrap();
        let pid = killed(Some(dir.path()), || say(4));
        let [ring] = &rings()[..] else { panic!() };
        let (ring, dead) = (ring.clone(), std::fs::read(ring).unwrap());
        let path = log_file(dir.path(), pid);
        let start = std::fs::read(&path).unwrap();
        all_good(&recover(dir.path()).unwrap());
        let whole = std::fs::read(&path).unwrap();
        // As if the kill had come at any byte of the writer's last write.
        for length in start.len()..=whole.len() {
            std::fs::write(&ring, &dead).unwrap();
            std::fs::write(&path, &whole[..length]).unwrap();
            let recovery = recover(dir.path()).unwrap();
            all_good(&recovery);
            let written = whole[start.len()..length].iter().filter(|byte| **byte == b'\n').count();
            let last = whole[..length].iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
            assert_eq!(recovery.recovered[0].records, 4 - written as u64, "{length}");
            assert_eq!(recovery.recovered[0].cut_bytes, (length - last) as u64);
            assert!(std::fs::read(&path).unwrap() == whole, "{length}");
        }
        // Lines of others stay, wherever they stand, and also one that is not ended.
        let third = start.len() + whole[start.len()..].iter().position(|byte| *byte == b'\n').unwrap() + 1;
        let mut mixed = whole[..third].to_vec();
        mixed.extend_from_slice(b"a foreign line\nan unfinished one");
        std::fs::write(&ring, &dead).unwrap();
        std::fs::write(&path, &mixed).unwrap();
        all_good(&recover(dir.path()).unwrap());
        mixed.push(b'\n');
        mixed.extend_from_slice(&whole[third..]);
        assert_eq!(String::from_utf8(std::fs::read(&path).unwrap()), String::from_utf8(mixed));
    });
}

#[test]
fn losses_of_the_dead_are_told_once() {
    in_own_process("losses_of_the_dead_are_told_once", || {
        let dir = tempfile::tempdir().unwrap();
        let pid = killed(Some(dir.path()), || say(5_000));
        let [ring] = &rings()[..] else { panic!() };
        let (ring, dead) = (ring.clone(), std::fs::read(ring).unwrap());
        let recovery = recover(dir.path()).unwrap();
        all_good(&recovery);
        let lines = lines_of(dir.path(), pid);
        let accepted = said(&lines).len();
        assert!((4_000..4_096).contains(&accepted), "{accepted}");
        let lost = 5_000 - accepted;
        assert_eq!(recovery.recovered[0].lost, lost as u64);
        let report = format!("[HOSTLOG_DROPS] v=1 pid={pid} new={lost} total={lost} queue_full={lost} ");
        assert!(lines.last().unwrap().contains(&report), "{:?}", lines.last());

        // Killed between the report and its note: the report is found.
        let path = log_file(dir.path(), pid);
        let report = lines.last().unwrap().clone() + "\n";
        std::fs::write(&ring, &dead).unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        // Behind the anchor and the host's identity, the first batch.
        let second_end = bytes.split_inclusive(|byte| *byte == b'\n').take(2).map(<[u8]>::len).sum();
        bytes.truncate(second_end);
        bytes.extend_from_slice(report.as_bytes());
        std::fs::write(&path, bytes).unwrap();
        all_good(&recover(dir.path()).unwrap());
        let lines = lines_of(dir.path(), pid);
        assert_eq!(lines.iter().filter(|line| line.contains("[HOSTLOG_DROPS]")).count(), 1);
        assert_eq!(said(&lines).len(), accepted);
    });
}

#[test]
fn losses_that_the_process_itself_told_are_not_told_again() {
    in_own_process("losses_that_the_process_itself_told_are_not_told_again", || {
        let dir = tempfile::tempdir().unwrap();
        let pid = fork_to_die(|| {
            log::init(&Config { directory: Some(dir.path()), ..Config::default() }).unwrap();
            log::flush(DRAIN).unwrap();
            let gap = diagnostics::open_gap().unwrap();
            say(5_000);
            gap.publish(b"[mono_ns=1][T0x1][WARN] gap: filled\n");
            log::prepare_to_fork(DRAIN).unwrap();
            log::start_writer().unwrap();
            stop_the_writer();
            say(1);
        });
        all_good(&recover(dir.path()).unwrap());
        let lines = lines_of(dir.path(), pid);
        assert_eq!(lines.iter().filter(|line| line.contains("[HOSTLOG_DROPS]")).count(), 1);
        assert_eq!(said(&lines[lines.len() - 1..]), [0]);
    });
}

#[test]
fn a_log_that_was_never_opened_is_made_and_one_that_is_gone_made_again() {
    in_own_process("a_log_that_was_never_opened_is_made_and_one_that_is_gone_made_again", || {
        let dir = tempfile::tempdir().unwrap();
        let never_opened = |late: bool| {
            fork_to_die(|| {
                // No anchor, so nothing wakes the writer.
                let threshold = Threshold::from_ladder(30).unwrap();
                let directory = Some(dir.path()).filter(|_| !late);
                log::init(&Config { threshold, directory, ..Config::default() }).unwrap();
                let _never_published = diagnostics::open_gap().unwrap();
                if late {
                    log::set_directory(dir.path()).unwrap();
                }
                say(4);
            })
        };
        for late in [false, true] {
            let pid = never_opened(late);
            assert!(!log_file(dir.path(), pid).exists());
            all_good(&recover(dir.path()).unwrap());
            assert_eq!(said(&lines_of(dir.path(), pid)), numbers(4), "late: {late}");
        }
        let pid = killed(Some(dir.path()), || say(4));
        std::fs::remove_file(log_file(dir.path(), pid)).unwrap();
        all_good(&recover(dir.path()).unwrap());
        let lines = lines_of(dir.path(), pid);
        assert_eq!((said(&lines), lines.len()), (numbers(4), 4));
        assert_eq!(rings(), Vec::<PathBuf>::new());
    });
}

#[test]
fn a_log_that_is_another_file_or_has_less_than_was_written_is_refused() {
    in_own_process("a_log_that_is_another_file_or_has_less_than_was_written_is_refused", || {
        let dir = tempfile::tempdir().unwrap();
        let pid = killed(Some(dir.path()), || say(4));
        let (path, aside) = (log_file(dir.path(), pid), dir.path().join("aside"));
        let refused = |what: &str| {
            let before = std::fs::metadata(&path).ok().map(|status| status.size());
            let recovery = recover(dir.path()).unwrap();
            let [refused] = &recovery.refused[..] else { panic!("{recovery:?}") };
            assert!(refused.to_string().contains(what), "{refused}");
            assert_eq!(refused.pid, pid);
            assert_eq!(rings(), std::slice::from_ref(&refused.ring), "the ring is kept");
            assert_eq!(std::fs::metadata(&path).ok().map(|status| status.size()), before);
        };
        std::fs::rename(&path, &aside).unwrap();
        std::fs::write(&path, "something else\n".repeat(100)).unwrap();
        refused("is not the file that the process wrote");
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&aside, &path).unwrap();
        refused("cannot be opened");
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        refused("cannot be opened");
        std::fs::remove_dir(&path).unwrap();
        std::fs::rename(&aside, &path).unwrap();
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
        refused("and the process had written");
        std::fs::write(&path, &whole).unwrap();
        all_good(&recover(dir.path()).unwrap());
        assert_eq!(said(&lines_of(dir.path(), pid)), numbers(4));
    });
}

#[test]
fn a_ring_that_is_cut_short_of_another_version_or_garbage_is_refused_with_a_sentence() {
    in_own_process(
        "a_ring_that_is_cut_short_of_another_version_or_garbage_is_refused_with_a_sentence",
        || {
            let dir = tempfile::tempdir().unwrap();
            let pid = killed(Some(dir.path()), || say(4));
            let [ring] = &rings()[..] else { panic!() };
            let good = std::fs::read(ring).unwrap();
            let patched = |at: usize, bytes: &[u8]| {
                let mut patched = good.clone();
                patched[at..at + bytes.len()].copy_from_slice(bytes);
                patched
            };
            let refused = |bytes: &[u8], what: &str| {
                std::fs::write(ring, bytes).unwrap();
                let recovery = recover(dir.path()).unwrap();
                let [refused] = &recovery.refused[..] else { panic!("{what}: {recovery:?}") };
                assert!(refused.why.contains(what), "{refused}");
                assert!(std::fs::read(ring).unwrap() == bytes, "it is left as it was");
                assert_eq!(said(&lines_of(dir.path(), pid)), numbers(0));
                let elsewhere = tempfile::tempdir().unwrap();
                let recovery = recover(elsewhere.path()).unwrap();
                assert!(recovery.refused.is_empty(), "no matter of another folder: {recovery:?}");
            };
            refused(&good[..good.len() - 1], "is cut short");
            refused(&good[..20], "is cut short");
            refused(&good[..5], "is cut short");
            refused(&patched(8, b"another!"), "another version");
            refused(&patched(0, b"garbage!"), "is no ring");
            refused(&[0x5a; 4096], "is no ring");
            refused(&patched(16, &(pid + 1).to_ne_bytes()), "says that it is of process");
            std::fs::write(ring, &good).unwrap();
            all_good(&recover(dir.path()).unwrap());
            assert_eq!(said(&lines_of(dir.path(), pid)), numbers(4));
        },
    );
}

#[test]
fn records_for_stderr_are_printed_on_request() {
    in_own_process("records_for_stderr_are_printed_on_request", || {
        let dir = tempfile::tempdir().unwrap();
        let pipe = StderrPipe::install(None);
        let pid = killed(None, || say(5_000));
        pipe.restore();
        let written = lines(&pipe.read_to_end());
        assert_eq!(written.len(), 1, "the anchor: {written:?}");
        let recovery = recover(dir.path()).unwrap();
        assert!(recovery.recovered.is_empty() && recovery.refused.is_empty(), "it has no folder");
        assert_eq!(rings().len(), 1);

        assert!(log::recover_stderr(&mut NoRoom).is_err());
        assert_eq!(rings().len(), 1, "kept, because nobody has seen them");
        let mut out = Vec::new();
        let recovery = log::recover_stderr(&mut out).unwrap();
        all_good(&recovery);
        let lines = lines(&out);
        let accepted = said(&lines).len();
        let [process] = &recovery.recovered[..] else { panic!("{recovery:?}") };
        assert_eq!((process.pid, process.log.as_deref()), (pid, None));
        assert_eq!((process.records, process.lost), (accepted as u64, 5_000 - accepted as u64));
        assert!(lines.last().unwrap().contains(&format!("[HOSTLOG_DROPS] v=1 pid={pid} ")));
        assert_eq!(rings(), Vec::<PathBuf>::new());
    });
}

struct NoRoom;

impl std::io::Write for NoRoom {
    fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
        Err(std::io::ErrorKind::StorageFull.into())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_parent_and_its_child_are_recovered_each_into_its_own_log() {
    in_own_process("a_parent_and_its_child_are_recovered_each_into_its_own_log", || {
        let dir = tempfile::tempdir().unwrap();
        let page = support::shared_words();
        let parent = fork_to_die(|| {
            log::init(&Config { directory: Some(dir.path()), ..Config::default() }).unwrap();
            log::log_warn!("before the fork");
            log::prepare_to_fork(DRAIN).unwrap();
            let child = fork_to_die(|| {
                log::start_writer().unwrap();
                stop_the_writer();
                say(7);
            });
            page[0].store(child.cast_unsigned().into(), std::sync::atomic::Ordering::Release);
            log::start_writer().unwrap();
            stop_the_writer();
            say(9);
        });
        let child = page[0].load(std::sync::atomic::Ordering::Acquire) as i32;
        let recovery = recover(dir.path()).unwrap();
        all_good(&recovery);
        assert_eq!(recovery.recovered.len(), 2);
        let (parents, childs) = (lines_of(dir.path(), parent), lines_of(dir.path(), child));
        assert_eq!((said(&parents), said(&childs)), (numbers(9), numbers(7)));
        assert!(parents[0].contains("[CLOCK_ANCHOR]") && childs[0].contains("[CLOCK_ANCHOR]"));
        assert_eq!((parents.len(), childs.len()), (11, 8));
    });
}

#[test]
fn recoveries_at_once_share_the_work() {
    in_own_process("recoveries_at_once_share_the_work", || {
        let dir = tempfile::tempdir().unwrap();
        let dead: Vec<i32> = (0..4).map(|_| killed(Some(dir.path()), || say(1_000))).collect();
        // Processes, and threads of one.
        let others: Vec<i32> = (0..2).map(|_| fork(|| all_good(&recover(dir.path()).unwrap()))).collect();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| all_good(&recover(dir.path()).unwrap()));
            }
        });
        // Whoever returns finds everything done.
        for pid in dead {
            assert_eq!(said(&lines_of(dir.path(), pid)), numbers(1_000));
        }
        others.into_iter().for_each(reap);
        assert_eq!(rings(), Vec::<PathBuf>::new());
    });
}

#[test]
fn a_process_that_starts_removes_dead_rings_that_hold_nothing_and_no_others() {
    in_own_process("a_process_that_starts_removes_dead_rings_that_hold_nothing_and_no_others", || {
        let dir = tempfile::tempdir().unwrap();
        let config = Config { directory: Some(dir.path()), ..Config::default() };
        let quick_exit = || {
            reap(fork(|| {
                log::init(&config).unwrap();
                say(3);
                log::flush(DRAIN).unwrap();
                // And no close: the ring stays.
            }));
        };
        quick_exit();
        let empty = rings();
        assert_eq!(empty.len(), 1);
        let full = killed(Some(dir.path()), || say(3));
        let left = rings();
        assert!(left.len() == 1 && left != empty, "the empty one went when the other process started");
        // One whose process died while it was making it, and one that is no ring.
        let unfinished = left[0].with_file_name(
            left[0].file_name().unwrap().to_str().unwrap().replace(&full.to_string(), "4194303"),
        );
        std::fs::write(&unfinished, "").unwrap();
        std::fs::write(unfinished.with_extension("1"), "something else").unwrap();
        quick_exit();
        let now = rings();
        assert!(now.contains(&left[0]) && now.contains(&unfinished.with_extension("1")));
        assert!(!now.contains(&unfinished));
        assert_eq!(now.len(), 3, "and the last one's own");
        all_good(&recover(dir.path()).unwrap());
        assert_eq!(said(&lines_of(dir.path(), full)), numbers(3));
    });
}

#[test]
fn a_start_leaves_a_ring_that_shows_where_its_process_was() {
    in_own_process("a_start_leaves_a_ring_that_shows_where_its_process_was", || {
        let dir = tempfile::tempdir().unwrap();
        support::fork_to_die(|| {
            log::init(&Config { directory: Some(dir.path()), ..Config::default() }).unwrap();
            std::mem::forget(log::span!("hangs.here"));
            say(3);
            log::flush(DRAIN).unwrap();
        });
        let ring = rings();
        assert_eq!(ring.len(), 1);
        let start = || {
            reap(fork(|| {
                log::init(&Config { directory: Some(dir.path()), ..Config::default() }).unwrap();
                log::close(DRAIN);
            }));
        };
        start();
        assert_eq!(rings(), ring, "nothing is to be recovered, but a span is open");
        // A day later nobody will ask.
        let old = std::time::SystemTime::now() - std::time::Duration::from_secs(25 * 60 * 60);
        std::fs::File::open(&ring[0]).unwrap().set_modified(old).unwrap();
        start();
        assert_eq!(rings(), Vec::<PathBuf>::new());
    });
}
