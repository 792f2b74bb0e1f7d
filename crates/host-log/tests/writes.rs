//! How records reach the system: a pipe takes one `write` each, a file takes many at once.

#![cfg(feature = "host-strace")]

mod support;
mod tally;

use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd};

use simpler_host_log::{self as log, Config, span};
use support::{DRAIN, fork, in_own_process, lines, log_file, reap};

/// In packet mode each read of a pipe gives what one write put there.
fn packet_pipe() -> (std::fs::File, std::fs::File) {
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors.
    assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_DIRECT) }, 0);
    // SAFETY: opened above and known to nobody else.
    let own = |descriptor| unsafe { std::fs::File::from_raw_fd(descriptor) };
    (own(ends[0]), own(ends[1]))
}

/// The write calls of this process so far; `None` where the kernel does not count.
fn write_calls() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/io").ok()?;
    text.lines().find_map(|line| line.strip_prefix("syscw: "))?.parse().ok()
}

#[test]
fn a_pipe_gets_one_write_for_each_record_and_a_whole_one() {
    const RECORDS: u64 = 2000;
    in_own_process("a_pipe_gets_one_write_for_each_record_and_a_whole_one", || {
        for is_queued in [true, false] {
            let (mut reader, writer) = packet_pipe();
            let child = fork(|| {
                // SAFETY: both are open.
                assert_eq!(unsafe { libc::dup2(writer.as_raw_fd(), 2) }, 2);
                log::init(&Config { defer_writer: !is_queued, ..Config::default() }).unwrap();
                for id in 0..RECORDS {
                    if id.is_multiple_of(2) {
                        log::log_warn!("{} id={id}", "longer ".repeat(id as usize % 50));
                    } else {
                        drop(span!("packet", id = id));
                    }
                }
                log::flush(DRAIN).unwrap();
            });
            drop(writer);
            let mut packets = Vec::new();
            loop {
                let mut packet = vec![0; 65_536];
                let size = reader.read(&mut packet).unwrap();
                if size == 0 {
                    break;
                }
                packets.push(packet[..size].to_vec());
            }
            reap(child);
            for packet in &packets {
                assert_eq!(support::all_lines(packet).len(), 1, "one write, one record");
            }
            let lines = lines(&packets.concat());
            assert_eq!(tally::ids(&lines), (0..RECORDS).collect::<Vec<u64>>());
            assert_eq!(lines.len() as u64, RECORDS + 1);
        }
    });
}

#[test]
fn a_file_gets_many_records_with_one_write() {
    const RECORDS: u64 = 4000;
    in_own_process("a_file_gets_many_records_with_one_write", || {
        let dir = support::log_to_folder();
        log::flush(DRAIN).unwrap();
        let Some(before) = write_calls() else {
            return eprintln!("skipped: this kernel does not count the writes of a process");
        };
        // A writer that is held up finds them all waiting.
        let file = std::fs::File::open(log_file(dir.path(), log::pid())).unwrap();
        // SAFETY: an open file.
        assert_eq!(unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) }, 0);
        for id in 0..RECORDS {
            log::log_warn!("id={id}");
        }
        // SAFETY: as above.
        assert_eq!(unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_UN) }, 0);
        log::flush(DRAIN).unwrap();
        let writes = write_calls().unwrap() - before;
        let bytes = file.metadata().unwrap().len();
        assert_eq!(log::counts().dropped, 0);
        assert!(writes > 0 && writes <= 100, "{writes} writes of {bytes} bytes");
    });
}
