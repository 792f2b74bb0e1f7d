//! Where the ring lies: a file in shared memory that is this user's own, and private memory, said once, where that
//! cannot be had. And whose it is: a child's, a successor's and a namesake's are others.

#![cfg(feature = "host-strace")]
#![expect(clippy::unwrap_used, reason = "clippy does not take the functions beside the tests for tests")]

mod baton;
mod support;
mod tally;

use std::ffi::CString;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use baton::Baton;
use simpler_host_log::{self as log, Config, DropReason, Invocation, Level, span};
use support::{
    DEADLINE, DRAIN, envelope, flushed_lines, fork, in_own_process, lines_of, log_to_folder, reap, spans,
    the_anchor, wait_for,
};

/// What `start_writer` says when the ring is not in shared memory.
const WARNING: &str = "the log queue is private memory, a crash of this process loses what it holds: ";

fn euid() -> u32 {
    // SAFETY: no preconditions.
    unsafe { libc::geteuid() }
}

/// This user's folder of rings in `shm`.
fn folder_in(shm: &Path) -> PathBuf {
    shm.join(format!("simpler-{}", euid()))
}

/// Where the rings of this test are.
fn shm() -> PathBuf {
    std::env::var_os("SIMPLER_SHM").unwrap().into()
}

/// The rings in `folder`, by path.
fn rings_in(folder: &Path) -> Vec<PathBuf> {
    match std::fs::read_dir(folder) {
        Ok(entries) => {
            let mut rings: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
            rings.sort();
            rings
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => panic!("{error}"),
    }
}

/// The mappings of files below `shm` in this process.
fn mapped(shm: &Path) -> Vec<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.contains(shm.to_str().unwrap())).map(str::to_owned).collect()
}

/// The open descriptors in this process whose files are below `shm`.
fn opened(shm: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir("/proc/self/fd").unwrap();
    let links = entries.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
    links.filter(|link| link.starts_with(shm)).collect()
}

/// Whether some other process holds the lock on `ring`, that is, lives. Not for the own ring: closing what is opened
/// here would give the lock back.
fn is_held(ring: &Path) -> bool {
    let file = std::fs::File::options().read(true).write(true).open(ring).unwrap();
    // SAFETY: plain integers, of which zero is valid.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as _;
    // SAFETY: a valid lock description.
    assert_eq!(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLK, &raw mut lock) }, 0);
    i32::from(lock.l_type) != libc::F_UNLCK
}

/// The warnings among `lines`.
fn warnings(lines: &[String]) -> Vec<&str> {
    let is_warning = |line: &&String| envelope(line).0.level == Level::Warn;
    lines.iter().filter(is_warning).map(|line| envelope(line).1).collect()
}

/// In a process without a log yet: the rings are to be in `shm`.
fn use_shm(shm: &Path) {
    // SAFETY: this process has one thread.
    unsafe { std::env::set_var("SIMPLER_SHM", shm) };
}

const RECORDS: u64 = 1000;

/// Logs `RECORDS` records with ids, spans and texts, and waits until they are written.
fn produce() {
    for id in 0..RECORDS {
        if id.is_multiple_of(2) {
            log::log_error!("that is to land id={id}")
        } else {
            drop(span!("s", id = id))
        }
    }
    log::flush(DRAIN).unwrap();
}

/// In a process without a log yet: it logs without a ring in `shm`, says once that it does, and why, and loses
/// nothing.
fn logs_in_private_memory_because(shm: &Path, why: &str) {
    use_shm(shm);
    let dir = log_to_folder();
    produce();
    assert!(mapped(shm).is_empty() && opened(shm).is_empty(), "{:?} {:?}", mapped(shm), opened(shm));
    // The second life of the same process has nothing new to say.
    log::prepare_to_fork(DRAIN).unwrap();
    log::start_writer().unwrap();
    log::prepare_to_fork(DRAIN).unwrap();
    let lines = lines_of(dir.path(), log::pid());
    the_anchor(&lines);
    assert_eq!(tally::ids(&lines), (0..RECORDS).collect::<Vec<u64>>());
    assert_eq!(tally::only(DropReason::QueueFull, &log::counts()), 0);
    let warnings = warnings(&lines);
    assert_eq!(warnings.len(), 1, "{warnings:#?}");
    let said = warnings[0].split_once(WARNING).unwrap_or_else(|| panic!("{}", warnings[0])).1;
    assert!(said.contains(why), "said {said:?}, not {why:?}");
    log::close(DRAIN);
}

#[test]
fn the_folder_is_made_and_the_ring_in_it_is_the_users_own() {
    in_own_process("the_folder_is_made_and_the_ring_in_it_is_the_users_own", || {
        let dir = log_to_folder();
        produce();
        let folder = folder_in(&shm());
        let rings = rings_in(&folder);
        assert_eq!(rings.len(), 1);
        let mode = |path: &Path| {
            let status = std::fs::symlink_metadata(path).unwrap();
            (status.uid(), status.permissions().mode() & 0o777)
        };
        assert_eq!((mode(&folder), mode(&rings[0])), ((euid(), 0o700), (euid(), 0o600)));
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        let namespace = std::fs::metadata("/proc/self/ns/pid").unwrap().ino();
        let name = format!("{}-{namespace}-{}.0", boot.trim(), log::pid());
        assert_eq!(rings[0].file_name().unwrap().to_str(), Some(name.as_str()));
        // Its space is reserved, so that a store into it cannot fail later.
        let status = std::fs::metadata(&rings[0]).unwrap();
        assert!(status.blocks() * 512 >= status.size() && status.size() > 2 << 20);
        assert_eq!((mapped(&shm()).len(), opened(&shm()).len()), (1, 1));
        assert!(warnings(&flushed_lines(dir.path())).is_empty());
    });
}

#[test]
fn a_folder_of_another_user_is_not_used() {
    in_own_process("a_folder_of_another_user_is_not_used", || {
        if euid() != 0 {
            return eprintln!("skipped: only root can give a folder to another user");
        }
        let folder = folder_in(&shm());
        std::fs::create_dir(&folder).unwrap();
        std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o700)).unwrap();
        std::os::unix::fs::chown(&folder, Some(12345), None).unwrap();
        logs_in_private_memory_because(&shm(), "belongs to user 12345");
        assert!(rings_in(&folder).is_empty());
    });
}

#[test]
fn a_folder_that_is_open_to_others_is_not_used() {
    in_own_process("a_folder_that_is_open_to_others_is_not_used", || {
        let folder = folder_in(&shm());
        std::fs::create_dir(&folder).unwrap();
        for mode in [0o755, 0o701, 0o770] {
            std::fs::set_permissions(&folder, PermissionsExt::from_mode(mode)).unwrap();
            let why = format!("is open to others (mode {mode:o})");
            reap(fork(|| logs_in_private_memory_because(&shm(), &why)));
            assert!(rings_in(&folder).is_empty());
        }
    });
}

#[test]
fn a_link_in_the_folders_place_is_not_followed() {
    in_own_process("a_link_in_the_folders_place_is_not_followed", || {
        // Without the link it would do.
        let target = shm().join("target");
        std::fs::create_dir(&target).unwrap();
        std::fs::set_permissions(&target, PermissionsExt::from_mode(0o700)).unwrap();
        symlink(&target, folder_in(&shm())).unwrap();
        logs_in_private_memory_because(&shm(), "Not a directory");
        assert!(rings_in(&target).is_empty());
    });
}

#[test]
fn a_link_to_nowhere_in_the_folders_place_makes_nothing() {
    in_own_process("a_link_to_nowhere_in_the_folders_place_makes_nothing", || {
        let target = shm().join("target");
        symlink(&target, folder_in(&shm())).unwrap();
        logs_in_private_memory_because(&shm(), "simpler-");
        assert!(!target.exists());
    });
}

#[test]
fn a_file_in_the_folders_place_stays_as_it_is() {
    in_own_process("a_file_in_the_folders_place_stays_as_it_is", || {
        std::fs::write(folder_in(&shm()), "mine").unwrap();
        logs_in_private_memory_because(&shm(), "Not a directory");
        assert_eq!(std::fs::read(folder_in(&shm())).unwrap(), b"mine");
    });
}

#[test]
fn shared_memory_that_is_missing_is_not_made() {
    in_own_process("shared_memory_that_is_missing_is_not_made", || {
        let missing = shm().join("missing");
        logs_in_private_memory_because(&missing, "No such file or directory");
        assert!(!missing.exists());
    });
}

#[test]
fn links_and_files_in_the_rings_place_are_taken_for_rings_of_the_dead() {
    in_own_process("links_and_files_in_the_rings_place_are_taken_for_rings_of_the_dead", || {
        let folder = folder_in(&shm());
        let prefix = {
            // What its name is going to be but for the pid.
            reap(fork(|| drop(log_to_folder())));
            let left = rings_in(&folder).pop().unwrap();
            std::fs::remove_file(&left).unwrap();
            let name = left.file_name().unwrap().to_str().unwrap().to_owned();
            name.rsplit_once('-').unwrap().0.to_owned()
        };
        // Nobody recovers anything, for a long time.
        reap(fork(|| {
            for number in 0..64 {
                std::fs::write(folder.join(format!("{prefix}-{}.{number}", log::pid())), "").unwrap();
            }
            logs_in_private_memory_because(
                &shm(),
                &format!("64 rings of dead processes with pid {}", log::pid()),
            );
            for number in 0..64 {
                std::fs::remove_file(folder.join(format!("{prefix}-{}.{number}", log::pid()))).unwrap();
            }
        }));
        let target = shm().join("target");
        let place = |number: usize| folder.join(format!("{prefix}-{}.{number}", std::process::id()));
        std::fs::write(place(0), "a ring of the dead").unwrap();
        symlink(&target, place(1)).unwrap();
        let dir = log_to_folder();
        produce();
        log::close(DRAIN);
        assert_eq!(tally::ids(&lines_of(dir.path(), log::pid())).len() as u64, RECORDS);
        assert!(!target.exists());
        assert_eq!(std::fs::read(place(0)).unwrap(), b"a ring of the dead");
        assert_eq!(rings_in(&folder), [place(0), place(1)], "its own was the third, and is removed");
    });
}

/// In a child: a file system of `bytes` of its own at `place`, or why not.
fn mount_small_file_system(place: &Path, bytes: u64) -> io::Result<()> {
    let check = |result: libc::c_int| match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    };
    // SAFETY: no memory involved. Who may not have a mount namespace may have one with a user namespace.
    if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
        // SAFETY: as above.
        check(unsafe { libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS) })?;
    }
    let none = std::ptr::null();
    let flags = libc::MS_REC | libc::MS_PRIVATE;
    // SAFETY: zero-terminated paths.
    check(unsafe { libc::mount(none, c"/".as_ptr(), none, flags, none.cast()) })?;
    let place = CString::new(place.as_os_str().as_bytes()).unwrap();
    let size = CString::new(format!("size={bytes}")).unwrap();
    let kind = c"tmpfs".as_ptr();
    // SAFETY: as above.
    check(unsafe { libc::mount(kind, place.as_ptr(), kind, 0, size.as_ptr().cast()) })
}

/// Runs `body` in a child, with the path of shared memory that has `bytes`.
fn with_shared_memory_of(bytes: u64, body: impl Fn(&Path)) {
    let place = tempfile::tempdir().unwrap();
    reap(fork(|| match mount_small_file_system(place.path(), bytes) {
        Ok(()) => body(place.path()),
        Err(error) => eprintln!("skipped: a small file system needs a mount namespace: {error}"),
    }));
}

#[test]
fn shared_memory_of_1_mb_has_no_room_for_a_ring() {
    in_own_process("shared_memory_of_1_mb_has_no_room_for_a_ring", || {
        with_shared_memory_of(1 << 20, |shm| {
            logs_in_private_memory_because(shm, "bytes of shared memory: No space left on device");
            assert!(rings_in(&folder_in(shm)).is_empty(), "what was begun is removed");
        });
    });
}

#[test]
fn shared_memory_of_64_mb_takes_rings_until_it_is_full_and_again_when_one_ends() {
    const PROCESSES: usize = 32;
    const FIT_MIN: usize = 24;
    in_own_process("shared_memory_of_64_mb_takes_rings_until_it_is_full_and_again_when_one_ends", || {
        with_shared_memory_of(64 << 20, |shm| {
            let dir = tempfile::tempdir().unwrap();
            let go_on = Baton::new();
            let process = || {
                let ready = Baton::new();
                let child = fork(|| {
                    use_shm(shm);
                    log::init(&Config { directory: Some(dir.path()), ..Config::default() }).unwrap();
                    ready.pass(u8::from(!mapped(shm).is_empty()));
                    go_on.take();
                    // Not one store into a ring fails, however full the file system is by now.
                    produce();
                    log::close(DRAIN);
                });
                (child, ready.take() == 1)
            };
            let processes: Vec<(i32, bool)> = (0..PROCESSES).map(|_| process()).collect();
            let fit = processes.iter().take_while(|(_, has_ring)| *has_ring).count();
            assert!((FIT_MIN..PROCESSES).contains(&fit), "{fit} of {PROCESSES}");
            assert!(processes[fit..].iter().all(|(_, has_ring)| !has_ring), "full is full");
            assert_eq!(rings_in(&folder_in(shm)).len(), fit);
            // Whatever else fits is filled as well.
            let rest = std::fs::write(shm.join("rest"), vec![0; 4 << 20]);
            assert_eq!(rest.unwrap_err().kind(), io::ErrorKind::StorageFull);
            processes.iter().for_each(|_| go_on.pass(0));
            for (child, has_ring) in processes {
                reap(child);
                let lines = lines_of(dir.path(), child);
                assert_eq!(tally::ids(&lines), (0..RECORDS).collect::<Vec<u64>>());
                let warnings = warnings(&lines);
                let is_told =
                    |said: &&str| said.contains(WARNING) && said.contains("No space left on device");
                assert_eq!(warnings.len(), usize::from(!has_ring), "{warnings:#?}");
                assert!(warnings.iter().all(is_told), "{warnings:#?}");
            }
            let (child, has_ring) = process();
            assert!(has_ring, "there is room again");
            go_on.pass(0);
            reap(child);
        });
    });
}

#[test]
fn a_limit_on_file_sizes_below_the_ring_kills_nobody() {
    in_own_process("a_limit_on_file_sizes_below_the_ring_kills_nobody", || {
        let limit = libc::rlimit { rlim_cur: 1 << 20, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: a valid limit.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) }, 0);
        logs_in_private_memory_because(&shm(), "the limit on file sizes is 1048576 bytes, and the ring has ");
        assert!(rings_in(&folder_in(&shm())).is_empty(), "what was begun is removed");
    });
}

/// In a process of its own: makes its next child the first process of a new pid namespace.
fn enter_pid_namespace() -> io::Result<()> {
    // SAFETY: no memory involved. Who may not have a pid namespace may have one with a user namespace.
    if unsafe { libc::unshare(libc::CLONE_NEWPID) } == 0 {
        return Ok(());
    }
    // SAFETY: as above.
    match unsafe { libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWPID) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[test]
fn namesakes_in_other_pid_namespaces_have_rings_of_their_own() {
    const HAS_RING: u8 = 1;
    const HAS_NONE: u8 = 0;
    /// Several times as long as a writer rests on its timer.
    const RESTED: Duration = Duration::from_millis(200);
    in_own_process("namesakes_in_other_pid_namespaces_have_rings_of_their_own", || {
        let dir = tempfile::tempdir().unwrap();
        let processes: Vec<(i32, Baton, u8, Baton)> = (0..2)
            .map(|_| {
                let (ready, go_on) = (Baton::new(), Baton::new());
                let stage = fork(|| {
                    if let Err(error) = enter_pid_namespace() {
                        eprintln!("skipped: a pid namespace cannot be had: {error}");
                        return ready.pass(HAS_NONE);
                    }
                    reap(fork(|| {
                        assert_eq!(log::pid(), 1);
                        log::init(&Config { directory: Some(dir.path()), ..Config::default() }).unwrap();
                        ready.pass(HAS_RING);
                        go_on.take();
                        produce();
                        log::close(DRAIN);
                    }));
                });
                let answer = ready.take();
                (stage, ready, answer, go_on)
            })
            .collect();
        if processes.iter().any(|(_, _, answer, _)| *answer == HAS_NONE) {
            return processes.into_iter().for_each(|(stage, ..)| reap(stage));
        }
        let folder = folder_in(&shm());
        let rings = rings_in(&folder);
        assert_eq!(rings.len(), 2, "{rings:?}");
        assert!(
            rings.iter().all(|ring| ring.to_str().unwrap().ends_with("-1.0") && is_held(ring)),
            "{rings:?}"
        );
        // One ends: the other's ring is there, locked, and not a byte of it has changed.
        let contents = || rings.iter().map(|ring| std::fs::read(ring).ok()).collect::<Vec<_>>();
        let deadline = Instant::now() + DEADLINE;
        // Both writers come to rest: on a timer first, then for good.
        let (mut before, mut since) = (contents(), Instant::now());
        while since.elapsed() < RESTED {
            let now = contents();
            if now != before {
                (before, since) = (now, Instant::now());
            }
            assert!(Instant::now() < deadline, "the rings never rest");
        }
        let mut processes = processes.into_iter();
        let (stage, _, _, go_on) = processes.next().unwrap();
        go_on.pass(0);
        reap(stage);
        let after = contents();
        let gone = after.iter().position(Option::is_none).expect("a closed log leaves no ring");
        assert!(after[1 - gone] == before[1 - gone], "the other's ring has changed");
        assert!(is_held(&rings[1 - gone]));
        let (stage, _, _, go_on) = processes.next().unwrap();
        go_on.pass(0);
        reap(stage);
        assert!(rings_in(&folder).is_empty());
        let logs: Vec<_> =
            std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        let lines = logs.iter().flat_map(|log| support::lines(&std::fs::read(log).unwrap()));
        assert_eq!(lines.filter(|line| tally::id(line).is_some()).count() as u64, 2 * RECORDS);
    });
}

/// A child by the raw call, which runs no fork handlers. Gives its pid.
fn raw_clone(body: impl FnOnce()) -> i32 {
    // SAFETY: a plain fork; the child ends by _exit.
    let child = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) } as i32;
    assert!(child >= 0);
    if child == 0 {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        // SAFETY: ends the child.
        unsafe { libc::_exit(i32::from(outcome.is_err())) };
    }
    child
}

#[test]
fn a_child_of_fork_has_neither_its_parents_mapping_nor_its_descriptor_and_makes_its_own_ring() {
    let name = "a_child_of_fork_has_neither_its_parents_mapping_nor_its_descriptor_and_makes_its_own_ring";
    in_own_process(name, || {
        let dir = log_to_folder();
        let parents = rings_in(&folder_in(&shm()));
        for is_quiesced in [false, true] {
            if is_quiesced {
                log::prepare_to_fork(DRAIN).unwrap();
            }
            let child = fork(|| {
                assert!(mapped(&shm()).is_empty(), "{:?}", mapped(&shm()));
                assert!(opened(&shm()).is_empty(), "{:?}", opened(&shm()));
                log::start_writer().unwrap();
                assert_eq!((mapped(&shm()).len(), opened(&shm()).len()), (1, 1));
                let rings = rings_in(&folder_in(&shm()));
                let own: Vec<_> = rings.iter().filter(|ring| !parents.contains(ring)).collect();
                assert!(own.len() == 1 && own[0].to_str().unwrap().ends_with(&format!("-{}.0", log::pid())));
                assert!(is_held(&parents[0]), "the parent lives");
                produce();
                log::close(DRAIN);
            });
            reap(child);
            assert_eq!(rings_in(&folder_in(&shm())), parents, "the child has removed its own, and only that");
            assert_eq!(tally::ids(&lines_of(dir.path(), child)).len() as u64, RECORDS);
            assert_eq!((mapped(&shm()).len(), opened(&shm()).len()), (1, 1));
        }
        // A child that ends without a word takes the lock of nobody with it.
        reap(fork(|| {}));
        reap(fork(|| assert!(is_held(&parents[0]))));
        log::start_writer().unwrap();
        produce();
        assert_eq!(tally::ids(&lines_of(dir.path(), log::pid())).len() as u64, RECORDS);
    });
}

#[test]
fn a_child_of_raw_clone_never_has_the_mapping_and_closes_the_descriptor_at_its_first_record() {
    let name = "a_child_of_raw_clone_never_has_the_mapping_and_closes_the_descriptor_at_its_first_record";
    in_own_process(name, || {
        if support::is_under_thread_sanitizer() {
            return eprintln!("skipped: ThreadSanitizer takes the child of a raw clone for a thread");
        }
        let dir = log_to_folder();
        // The writer has all that it allocates: a raw clone copies the allocator's locks as they are.
        log::flush(DRAIN).unwrap();
        let parents = rings_in(&folder_in(&shm()));
        let child = raw_clone(|| {
            assert!(mapped(&shm()).is_empty(), "{:?}", mapped(&shm()));
            log::log_error!("refused: the parent was not quiesced");
            assert!(opened(&shm()).is_empty(), "{:?}", opened(&shm()));
            assert_eq!(tally::only(DropReason::NotAdmitted, &log::counts()), 1);
            log::start_writer().unwrap();
            assert_eq!(rings_in(&folder_in(&shm())).len(), 2);
            produce();
            log::close(DRAIN);
        });
        reap(child);
        reap(fork(|| assert!(is_held(&parents[0]))));
        assert_eq!(rings_in(&folder_in(&shm())), parents);
        assert_eq!(tally::ids(&lines_of(dir.path(), child)).len() as u64, RECORDS);
        produce();
        assert_eq!(tally::ids(&lines_of(dir.path(), log::pid())).len() as u64, RECORDS);
    });
}

#[test]
fn a_span_that_parent_and_child_close_is_one_record_of_each() {
    in_own_process("a_span_that_parent_and_child_close_is_one_record_of_each", || {
        let dir = log_to_folder();
        let root = Invocation::begin("root", 7);
        let mut shared = Some(span!("root.shared", of = "both"));
        // Of a parent that was not quiesced: refused, and the parent's ring and stack are untouched.
        reap(fork(|| {
            drop(shared.take());
            assert_eq!(tally::only(DropReason::NotAdmitted, &log::counts()), 1);
        }));
        log::prepare_to_fork(DRAIN).unwrap();
        let at_once = fork(|| {
            drop(shared.take());
            drop(span!("root.own"));
            log::close(DRAIN);
        });
        let by_its_writer = fork(|| {
            log::start_writer().unwrap();
            // In the child's stack this one lies where the inherited one lay in the parent's.
            let own = span!("root.shared.own");
            drop(shared.take());
            drop(own);
            log::close(DRAIN);
        });
        reap(at_once);
        reap(by_its_writer);
        log::start_writer().unwrap();
        drop(shared.take());
        drop(root);
        let parents = spans(&flushed_lines(dir.path()));
        let named = |spans: &[support::SpanLine]| -> Vec<(String, i64)> {
            spans.iter().map(|span| (span.name.clone(), span.depth)).collect()
        };
        let expected = |spans: &[(&str, i64)]| -> Vec<(String, i64)> {
            spans.iter().map(|(name, depth)| ((*name).to_owned(), *depth)).collect()
        };
        assert_eq!(named(&parents), expected(&[("root.shared", 1), ("root", 0)]));
        let of_one = spans(&lines_of(dir.path(), at_once));
        assert_eq!(named(&of_one), expected(&[("root.shared", 1), ("root.own", 1)]));
        let of_other = spans(&lines_of(dir.path(), by_its_writer));
        assert_eq!(named(&of_other), expected(&[("root.shared", 1), ("root.shared.own", 2)]));
        for (pid, span) in [(at_once, &of_one[0]), (by_its_writer, &of_other[0])] {
            assert_eq!((span.pid, span.tid), (i64::from(pid), i64::from(pid)));
            assert_eq!((span.inv, span.hid, span.attrs.as_str()), (parents[0].inv, 7, "of=both"));
            // The same moment, of which each process reads the counter by its own knots.
            let apart = (span.ts - parents[0].ts).abs();
            assert!(apart < 1_000_000, "{apart} ns");
            assert!((0..60_000_000_000).contains(&span.dur), "{}", span.dur);
        }
        assert_eq!(log::counts().dropped, 0);
    });
}

#[test]
fn closing_removes_the_ring_and_a_later_start_says_that_it_goes_on_without() {
    in_own_process("closing_removes_the_ring_and_a_later_start_says_that_it_goes_on_without", || {
        let dir = log_to_folder();
        let folder = folder_in(&shm());
        let rings = rings_in(&folder);
        assert_eq!((rings.len(), opened(&shm()).len()), (1, 1));
        reap(fork(|| assert!(is_held(&rings[0]))));
        let mappings = || std::fs::read_to_string("/proc/self/maps").unwrap().lines().count();
        // The first ones may still grow the heap; a sanitizer maps something of its own now and then.
        const LIVES: u64 = 40;
        const FIRST: u64 = 10;
        let mut mappings_before = 0;
        for life in 1..=LIVES {
            log::log_error!("in life id={life}");
            log::close(DRAIN);
            assert!(rings_in(&folder).is_empty() && opened(&shm()).is_empty());
            // Closed is not over: what comes is written at once.
            log::log_error!("after life id={}", 100 + life);
            log::start_writer().unwrap();
            if life == FIRST {
                mappings_before = mappings();
            }
        }
        let more = mappings().saturating_sub(mappings_before);
        assert!(
            more < (LIVES - FIRST) as usize / 2,
            "{more} more mappings: a start after a close takes memory"
        );
        log::prepare_to_fork(DRAIN).unwrap();
        let lines = lines_of(dir.path(), log::pid());
        let expected: Vec<u64> = (1..=LIVES).flat_map(|life| [life, 100 + life]).collect();
        assert_eq!(tally::ids(&lines), expected);
        assert_eq!(
            lines.iter().filter(|line| line.contains("its ring's file removed")).count(),
            LIVES as usize
        );
    });
}

#[test]
fn fifty_starts_and_quiesces_use_one_ring() {
    in_own_process("fifty_starts_and_quiesces_use_one_ring", || {
        let dir = log_to_folder();
        let rings = rings_in(&folder_in(&shm()));
        let inode = std::fs::metadata(&rings[0]).unwrap().ino();
        let in_use = || {
            let count = |folder: &str| std::fs::read_dir(folder).unwrap().count();
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
            (maps.lines().count(), count("/proc/self/fd"), count("/proc/self/task"))
        };
        let cycle = |id: u64| {
            log::log_error!("queued id={}", 2 * id);
            log::prepare_to_fork(DRAIN).unwrap();
            log::log_error!("at once id={}", 2 * id + 1);
            log::start_writer().unwrap();
            log::flush(DRAIN).unwrap();
        };
        // The first ones may still grow the heap and the cache of stacks, and a sanitizer its tables.
        (0..5).for_each(cycle);
        let before = in_use();
        (5..55).for_each(cycle);
        let after = in_use();
        assert!(
            after.0 < before.0 + 50 / 2 && after.1 == before.1 && after.2 <= before.2 + 1,
            "{before:?} {after:?}"
        );
        assert_eq!(rings_in(&folder_in(&shm())), rings);
        assert_eq!(std::fs::metadata(&rings[0]).unwrap().ino(), inode);
        assert_eq!(tally::ids(&flushed_lines(dir.path())), (0..110).collect::<Vec<u64>>());
    });
}

#[test]
fn the_ring_of_a_process_that_became_another_program_is_a_dead_ones() {
    in_own_process("the_ring_of_a_process_that_became_another_program_is_a_dead_ones", || {
        let dir = tempfile::tempdir().unwrap();
        let ready = Baton::new();
        let go_on = Baton::new();
        let child = fork(|| {
            log::init(&Config { directory: Some(dir.path()), ..Config::default() }).unwrap();
            log::log_error!("before");
            ready.pass(0);
            go_on.take();
            let (program, argument) = (c"/bin/sleep", c"60");
            let arguments = [program.as_ptr(), argument.as_ptr(), std::ptr::null()];
            // SAFETY: zero-terminated strings in a list that null ends.
            unsafe { libc::execv(program.as_ptr(), arguments.as_ptr()) };
            panic!("{}", io::Error::last_os_error());
        });
        ready.take();
        let rings = rings_in(&folder_in(&shm()));
        assert!(rings.len() == 1 && is_held(&rings[0]), "{rings:?}");
        go_on.pass(0);
        let name = || std::fs::read_to_string(format!("/proc/{child}/comm")).unwrap();
        wait_for("that the child becomes another program", || name() == "sleep\n");
        assert!(!is_held(&rings[0]), "its pid lives, and it does not");
        assert_eq!(rings_in(&folder_in(&shm())), rings);
        // SAFETY: our own child.
        assert_eq!(unsafe { libc::kill(child, libc::SIGKILL) }, 0);
        let mut status = 0;
        // SAFETY: room for the status.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    });
}

#[test]
fn more_threads_and_more_nested_spans_than_are_seen_are_all_logged() {
    const THREADS: usize = 80;
    const NESTED: usize = 40;
    in_own_process("more_threads_and_more_nested_spans_than_are_seen_are_all_logged", || {
        let dir = log_to_folder();
        let all_open = std::sync::Barrier::new(THREADS);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let all_open = &all_open;
                scope.spawn(move || {
                    let _root = Invocation::begin("root", thread as u64 + 1);
                    let mut open: Vec<_> = (1..NESTED).map(|depth| span!("nested", depth = depth)).collect();
                    all_open.wait();
                    while open.pop().is_some() {}
                });
            }
        });
        let spans = spans(&flushed_lines(dir.path()));
        assert_eq!((spans.len(), log::counts().dropped), (THREADS * NESTED, 0));
        for hid in 1..=THREADS as u64 {
            let of_thread: Vec<_> = spans.iter().filter(|span| span.hid == hid).collect();
            let depths: Vec<i64> = of_thread.iter().map(|span| span.depth).collect();
            assert_eq!(depths, (0..NESTED as i64).rev().collect::<Vec<_>>());
            let is_within = |pair: &[&support::SpanLine]| {
                let (inner, outer) = (pair[0], pair[1]);
                inner.tid == outer.tid && inner.ts >= outer.ts && inner.ts + inner.dur <= outer.ts + outer.dur
            };
            assert!(of_thread.windows(2).all(is_within));
        }
    });
}
