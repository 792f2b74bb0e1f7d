//! Logs that grow, however they do it.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use proptest::prelude::*;
use simpler_trace_ingest::{Follower, Keep, Notice, Reading, Source, read};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

fn anchor(pid: u32, ns: u32) -> String {
    format!(
        "[mono_ns={ns}][T0x1][TIMING] clock_anchor: [CLOCK_ANCHOR] v=1 pid={pid} mono_ns={ns} wall_ns=9\n"
    )
}

fn identity(pid: u32, host: u32) -> String {
    format!(
        "[mono_ns=5][T0x1][TIMING] host.identity: [HOST_IDENTITY] v=1 pid={pid} host={host:016x} name=n{host}\n"
    )
}

fn line(pid: u32, inv: u32) -> String {
    format!(
        "[mono_ns={inv}500][T0x1][TIMING] emit_host_span: [STRACE] v=1 pid={pid} tid={pid} inv={inv} hid=a depth=0 \
         name=simpler_run ts={inv}000 dur=500 \n"
    )
}

/// All that a reading says, span by span.
fn said(reading: &Reading) -> Vec<String> {
    let trace = &reading.trace;
    let spans = trace.spans().iter().enumerate().map(|(index, span)| {
        let raw = trace.attributes(span).raw().escape_ascii().to_string();
        let (name, made) = (&trace.name(span).text, trace.mono_ns(index as u32));
        format!("{:?} {} {} {name} {raw} {made:?}", trace.thread(span), trace.inv(span), span.ts)
    });
    let rest = [
        format!("{:?} {:?}", trace.counts(), trace.lives()),
        format!("{:?} {}", trace.invocations(), reading.bytes),
        format!("{:?}", reading.complaints),
    ];
    spans.chain(rest).collect()
}

fn follower(path: &Path) -> Follower {
    Follower::new(&[Source::path(path)], Keep::All).unwrap()
}

/// Reads what is there, and says what was noticed.
fn poll(follower: &mut Follower) -> Vec<String> {
    let mut notices = Vec::new();
    while follower.poll(&mut |notice: Notice| notices.push(notice.to_string())) > 0 {}
    notices
}

fn append(path: &Path, text: impl AsRef<[u8]>) {
    OpenOptions::new().append(true).create(true).open(path).unwrap().write_all(text.as_ref()).unwrap();
}

fn invs(reading: &Reading) -> Vec<u64> {
    reading.trace.spans().iter().map(|span| reading.trace.inv(span)).collect()
}

/// A piece of a log: whole lines, damaged ones, and what others write.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    let text = prop_oneof![
        6 => (0..2_u32, 0..5_u32).prop_map(|(pid, inv)| line(pid, inv)),
        1 => (0..2_u32, 0..3_u32).prop_map(|(pid, ns)| anchor(pid, ns)),
        1 => Just("[STRACE] v=1 pid=\n".to_owned()),
        1 => Just("hello\n".to_owned()),
        1 => Just("[mono_ns=1][T0x1][INFO] poll: ".to_owned()),
        1 => Just("x".repeat(3000)),
    ];
    (text, prop::option::weighted(0.2, any::<prop::sample::Index>())).prop_map(|(text, cut)| {
        let mut text = text.into_bytes();
        if let Some(cut) = cut {
            text.truncate(cut.index(text.len()));
        }
        text
    })
}

proptest! {
    #[test]
    fn a_file_that_grows_in_pieces_says_in_the_end_what_it_says_at_once(
        log in prop::collection::vec(piece(), 0..24).prop_map(|pieces| pieces.concat()),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(log.len() + 1)).collect();
        cuts.extend([0, log.len()]);
        cuts.sort_unstable();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        File::create(&path).unwrap();
        let mut follower = follower(&path);
        for piece in cuts.windows(2) {
            append(&path, &log[piece[0]..piece[1]]);
            prop_assert_eq!(poll(&mut follower), Vec::<String>::new());
            // Looking changes nothing, and no more is damaged than there is.
            let torn = follower.snapshot().trace.counts().torn;
            let whole = read(&[Source::path(&path)]).unwrap().trace.counts().torn;
            prop_assert!(torn <= whole, "{torn} {whole}");
        }
        prop_assert_eq!(said(&follower.finish()), said(&read(&[Source::path(&path)]).unwrap()));
    }
}

#[test]
fn a_line_without_its_end_is_not_torn_until_the_log_has_ended() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let second = line(1, 2);
    let (begun, rest) = second.split_at(second.find("tid=").unwrap());
    fs::write(&path, line(1, 1) + begun).unwrap();
    let mut growing = follower(&path);
    poll(&mut growing);
    let reading = growing.snapshot();
    assert_eq!((invs(&reading), reading.trace.counts().torn), (vec![1], 0));
    let mut ended = follower(&path);
    poll(&mut ended);
    assert_eq!(ended.finish().trace.counts().torn, 1);
    append(&path, rest);
    poll(&mut growing);
    let reading = growing.finish();
    assert_eq!((invs(&reading), reading.trace.counts().torn), (vec![1, 2], 0));
}

#[test]
fn a_log_that_appears_in_a_followed_directory_is_followed_too() {
    let folder = tempfile::tempdir().unwrap();
    let mut follower = follower(folder.path());
    let waiting = format!("waiting for a host.*.log in {}", folder.path().display());
    assert_eq!(poll(&mut follower), [waiting]);
    assert_eq!(poll(&mut follower), [""; 0], "said once");
    append(&folder.path().join("host.2.log"), line(2, 1));
    poll(&mut follower);
    append(&folder.path().join("host.1.log"), line(1, 2));
    append(&folder.path().join("other.log"), line(3, 9));
    append(&folder.path().join("host.2.log"), line(2, 3));
    poll(&mut follower);
    let mut found = invs(&follower.snapshot());
    found.sort_unstable();
    assert_eq!(found, [1, 2, 3]);
    assert!(!follower.is_ended(), "more may come");
}

#[test]
fn a_file_that_is_cut_is_read_again_from_its_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    fs::write(&path, line(1, 1) + &line(1, 2) + &line(1, 3)).unwrap();
    let mut follower = follower(&path);
    poll(&mut follower);
    OpenOptions::new().write(true).open(&path).unwrap().set_len(0).unwrap();
    append(&path, line(1, 3) + &line(1, 4));
    let said = format!("{} has become shorter and is read again from its start", path.display());
    assert_eq!(poll(&mut follower), [said]);
    append(&path, line(1, 5));
    assert_eq!(poll(&mut follower), [""; 0]);
    let reading = follower.snapshot();
    assert_eq!(invs(&reading), [1, 2, 3, 4, 5]);
    assert_eq!(reading.trace.counts().duplicates, 1, "what is met twice counts once");
}

#[test]
fn a_file_that_is_replaced_is_read_to_its_end_and_then_the_new_one() {
    let folder = tempfile::tempdir().unwrap();
    let (path, old) = (folder.path().join("log"), folder.path().join("log.1"));
    fs::write(&path, line(1, 1)).unwrap();
    let mut follower = follower(&path);
    poll(&mut follower);
    append(&path, line(1, 2));
    fs::rename(&path, &old).unwrap();
    append(&path, line(1, 3));
    let said = format!("{} was replaced by another file, which is read too", path.display());
    assert_eq!(poll(&mut follower), [said]);
    append(&path, line(1, 4));
    assert_eq!(poll(&mut follower), [""; 0]);
    assert_eq!(invs(&follower.snapshot()), [1, 2, 3, 4]);
}

#[test]
fn a_file_that_goes_away_is_read_as_long_as_somebody_writes_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let mut writer = File::create(&path).unwrap();
    let mut follower = follower(&path);
    writer.write_all(line(1, 1).as_bytes()).unwrap();
    fs::remove_file(&path).unwrap();
    writer.write_all(line(1, 2).as_bytes()).unwrap();
    assert_eq!(poll(&mut follower), [""; 0]);
    assert_eq!(invs(&follower.snapshot()), [1, 2]);
}

#[test]
fn processes_of_two_hosts_with_one_id_are_told_apart_while_their_logs_grow() {
    let folder = tempfile::tempdir().unwrap();
    let logs: Vec<_> = ["host.7.log", "host.7b.log"].iter().map(|name| folder.path().join(name)).collect();
    let mut follower = follower(folder.path());
    for round in 0..4 {
        for (host, path) in (1..).zip(&logs) {
            match round {
                0 => append(path, anchor(7, 4) + &identity(7, host)),
                inv => append(path, line(7, inv)),
            }
            poll(&mut follower);
        }
    }
    let lives = |reading: &Reading| {
        let trace = &reading.trace;
        let mut spans: Vec<_> =
            trace.spans().iter().map(|span| (trace.life(span).host, trace.inv(span))).collect();
        spans.sort_unstable();
        spans
    };
    let want: Vec<_> = (1..3).flat_map(|host| (1..4).map(move |inv| (Some(host), inv))).collect();
    assert_eq!(lives(&follower.snapshot()), want);
    assert_eq!(lives(&read(&[Source::path(folder.path())]).unwrap()), want);
}

#[test]
fn a_packed_file_is_read_once_and_ends_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let text = line(1, 1) + &line(1, 2);
    let packed = zstd::encode_all(text.as_bytes(), 1).unwrap();
    fs::write(&path, &packed).unwrap();
    let mut follower = follower(&path);
    let said = format!("{} is packed: it is read once and not followed", path.display());
    assert_eq!(poll(&mut follower), [said]);
    assert!(follower.is_ended());
    assert_eq!(invs(&follower.snapshot()), [1, 2]);
    // A damaged one too.
    fs::write(&path, &packed[..packed.len() - 3]).unwrap();
    let mut follower = self::follower(&path);
    poll(&mut follower);
    assert!(follower.is_ended());
    assert_eq!(follower.finish().trace.counts().unreadable, 1);
}

#[test]
fn a_named_pipe_is_followed_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    if !made.is_ok_and(|status| status.success()) {
        eprintln!("skipped: no mkfifo");
        return;
    }
    let mut follower = follower(&path);
    let mut writer = OpenOptions::new().write(true).open(&path).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    let until = |follower: &mut Follower, spans: usize, ended: bool| {
        while (follower.snapshot().trace.spans().len(), follower.is_ended()) != (spans, ended) {
            assert!(Instant::now() < deadline);
            follower.wait();
            poll(follower);
        }
    };
    writer.write_all((line(1, 1) + "[mono_ns=").as_bytes()).unwrap();
    until(&mut follower, 1, false);
    writer.write_all(&line(1, 2).as_bytes()["[mono_ns=".len()..]).unwrap();
    until(&mut follower, 2, false);
    drop(writer);
    until(&mut follower, 2, true);
}

#[test]
fn what_is_not_there_is_an_error_at_once() {
    let error = Follower::new(&[Source::path("/nonexistent/log")], Keep::All).err().unwrap();
    assert!(error.to_string().contains("/nonexistent/log"));
}
