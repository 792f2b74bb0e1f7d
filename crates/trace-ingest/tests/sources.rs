//! Where logs come from: files, directories, and either packed.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use simpler_trace_ingest::{ErrorKind, Options, Reader, Reading, Source, read, read_with};
use std::cell::Cell;
use std::io::{self, Read, Write};
use std::path::Path;

fn line(pid: u32, inv: u32) -> String {
    format!(
        "[mono_ns={inv}500][T0x1][TIMING] emit_host_span: [STRACE] v=1 pid={pid} tid={pid} inv={inv} hid=a depth=0 \
         name=simpler_run ts={inv}000 dur=500 \n"
    )
}

fn pids(reading: &Reading) -> Vec<u64> {
    reading.trace.spans().iter().map(|span| reading.trace.life(span).pid).collect()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(bytes).unwrap();
    packer.finish().unwrap()
}

fn read_one(path: &Path) -> Reading {
    read(&[Source::path(path)]).unwrap()
}

#[test]
fn a_directory_stands_for_its_process_logs_in_order() {
    let folder = tempfile::tempdir().unwrap();
    for (name, pid) in [("host.9.log", 9), ("host.10.log", 10), ("other.log", 11), ("host.12.log.bak", 12)] {
        std::fs::write(folder.path().join(name), line(pid, 1)).unwrap();
    }
    std::fs::create_dir(folder.path().join("host.13.log")).unwrap();
    assert_eq!(pids(&read_one(folder.path())), [10, 9]);
}

#[test]
fn a_directory_without_logs_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("notes.txt"), "x").unwrap();
    let error = read(&[Source::path(folder.path())]).err().unwrap();
    assert!(matches!(error.kind(), ErrorKind::NoLogs));
    let want = format!("{} is a directory but holds no host.*.log files", folder.path().display());
    assert_eq!(error.to_string(), want);
}

#[test]
fn a_missing_file_is_an_error_before_anything_is_read() {
    let error = read(&[Source::path("/dev/zero"), Source::path("/nonexistent/log")]).err().unwrap();
    assert!(matches!(error.kind(), ErrorKind::Open(_)));
    assert!(error.to_string().contains("/nonexistent/log"));
}

#[test]
fn packing_is_told_by_the_bytes_and_not_by_the_name() {
    let folder = tempfile::tempdir().unwrap();
    let text = line(1, 1) + &line(1, 2);
    let plain = text.as_bytes();
    // Rotated logs are often packed one by one and put together: several members in one file.
    let mut members = gzip(&plain[..100]);
    members.extend(gzip(&plain[100..]));
    let mut frames = zstd::encode_all(&plain[..100], 0).unwrap();
    frames.extend(zstd::encode_all(&plain[100..], 0).unwrap());
    for (name, bytes) in [("plain.gz", plain), ("members.log", &members), ("frames.log", &frames)] {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let reading = read_one(&path);
        assert_eq!(reading.trace.spans().len(), 2, "{name}");
        assert_eq!(reading.bytes, plain.len() as u64, "{name}");
        assert_eq!(reading.complaints.total(), 0, "{name}");
    }
}

#[test]
fn a_packed_file_that_is_cut_gives_what_it_has_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let text: String = (1..2000).map(|inv| line(1, inv)).collect();
    let packed = [gzip(text.as_bytes()), zstd::encode_all(text.as_bytes(), 0).unwrap()];
    for (number, packed) in packed.iter().enumerate() {
        let path = folder.path().join(number.to_string());
        std::fs::write(&path, &packed[..packed.len() - 8]).unwrap();
        let reading = read_one(&path);
        assert_eq!(reading.trace.counts().unreadable, 1);
        assert!(reading.trace.is_lossy());
        assert!(reading.complaints.counts().any(|count| count == ("unreadable", 1)));
    }
}

#[test]
fn a_record_does_not_go_on_in_the_next_file() {
    let folder = tempfile::tempdir().unwrap();
    let text = line(1, 1);
    let (head, tail) = text.split_at(120);
    std::fs::write(folder.path().join("host.1.log"), head).unwrap();
    std::fs::write(folder.path().join("host.2.log"), tail.to_owned() + &line(2, 1)).unwrap();
    let reading = read_one(folder.path());
    assert_eq!(pids(&reading), [2]);
    assert_eq!(reading.trace.counts().torn, 1);
    let complaint = &reading.complaints.first()[0];
    assert!(complaint.source.ends_with("host.1.log"));
}

#[test]
fn an_empty_file_has_no_markers() {
    let reading = read_one(Path::new("/dev/null"));
    assert!(reading.has_no_markers());
    assert_eq!(reading.bytes, 0);
}

#[test]
fn a_stream_of_somebody_s_own_is_read_once_and_unpacked_as_a_file_is() {
    let sources = [
        Source::Reader(Reader::new("<upload>", io::Cursor::new(gzip(line(1, 1).as_bytes())))),
        Source::Reader(Reader::new("<pipe>", io::Cursor::new(line(2, 1)))),
    ];
    assert_eq!(pids(&read(&sources).unwrap()), [1, 2]);
    let error = read(&sources).err().unwrap();
    assert!(error.to_string().contains("<upload>: it has been read already"), "{error}");
}

#[test]
fn a_reading_ends_as_soon_as_nobody_wants_it() {
    let asked = Cell::new(0);
    let third = || {
        asked.set(asked.get() + 1);
        asked.get() == 3
    };
    let endless = Source::Reader(Reader::new("<endless>", io::repeat(b'\n')));
    let error =
        read_with(&[endless], Options { interrupted: Some(&third), ..Options::default() }).err().unwrap();
    assert!(matches!(error.kind(), ErrorKind::Interrupted));
    assert_eq!(error.to_string(), "the reading of <endless> was interrupted");
    assert_eq!(asked.get(), 3);

    // Whoever never says so hears all.
    let whole = Source::Reader(Reader::new("<whole>", io::repeat(b'\n').take(1 << 26)));
    let never = || false;
    let reading = read_with(&[whole], Options { interrupted: Some(&never), ..Options::default() }).unwrap();
    assert_eq!(reading.bytes, 1 << 26);
}
