//! Another program's trace in our pictures.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use proptest::prelude::*;
use serde_json::Value;
use simpler_trace_export::chrome::{self, Lanes};
use simpler_trace_export::merge::Merge;
use simpler_trace_export::swimlane;
use simpler_trace_ingest::{Source, read};
use simpler_trace_model::Trace;
use std::io::Write;
use std::path::{Path, PathBuf};

fn trace(case: &str) -> Trace {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/cases").join(case).join("input.log");
    read(&[Source::path(data)]).unwrap().trace
}

/// A file in a folder that lives as long as the test.
fn file(folder: &tempfile::TempDir, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

/// Both pictures, as text.
fn pictures(trace: &Trace, merges: &[Merge]) -> [String; 3] {
    [Some(Lanes::Thread), Some(Lanes::Invocation), None].map(|lanes| {
        let mut out = Vec::new();
        match lanes {
            Some(lanes) => {
                chrome::write_merged(&mut out, trace, lanes, merges).unwrap();
            }
            None => {
                let phases = trace.host_phases(&[]);
                swimlane::write_merged(&mut out, trace, &[], &phases, merges).unwrap();
            }
        }
        String::from_utf8(out).unwrap()
    })
}

const EVENTS: [&str; 4] = [
    r#"{"ph":"M","name":"process_name","pid":41,"tid":0,"args":{"name":"server"}}"#,
    r#"{"ph":"X","name":"prefill","ts":12345678901234567.890123456789,"dur":1e-3,"pid":41,"tid":77,"args":{"id":18446744073709551616}}"#,
    "{\"name\": \"\\u00e9\\ud83d\",\n  \"ph\": \"b\", \"id\": \"0x1\", \"pid\": \"text\", \"tid\": -1, \"tid\": 5.0}",
    "{}",
];

#[test]
fn events_are_copied_byte_for_byte_behind_ours() {
    let folder = tempfile::tempdir().unwrap();
    let trace = trace("overlapping-roots-one-thread");
    let list = EVENTS.join(" ,\n ");
    let object = format!("{{\"a\":[[1]],\"traceEvents\":[ {list} ],\"displayTimeUnit\":\"ns\"}}\n");
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(object.as_bytes()).unwrap();
    for (name, bytes) in [
        ("array.json", format!("[{list}]").into_bytes()),
        ("object.json", object.into_bytes()),
        ("packed.json", packer.finish().unwrap()),
    ] {
        let merge = Merge::open(file(&folder, name, bytes)).unwrap();
        assert_eq!(merge.events(), 4, "{name}");
        let copied = EVENTS.join(",");
        for text in pictures(&trace, std::slice::from_ref(&merge)) {
            assert!(text.contains(&format!("}},{copied}],")), "{name}: {text}");
        }
        // Several are copied one after the other.
        let again = Merge::open(merge.path()).unwrap();
        for text in pictures(&trace, &[merge, again]) {
            assert!(text.contains(&format!("}},{copied},{copied}],")));
        }
    }
}

#[test]
fn nothing_merged_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let trace = trace("overlapping-roots-one-thread");
    let none = Merge::open(file(&folder, "none.json", "[]")).unwrap();
    assert_eq!(pictures(&trace, &[none]), pictures(&trace, &[]));
    let mut plain = Vec::new();
    chrome::write(&mut plain, &trace, Lanes::Thread).unwrap();
    assert_eq!(pictures(&trace, &[])[0].as_bytes(), plain);
}

/// The process and thread of each of an array's events.
fn tracks(text: &str) -> Vec<(u64, u64)> {
    let document: Value = serde_json::from_str(text).unwrap();
    let events = document["traceEvents"].as_array().unwrap();
    events.iter().map(|e| (e["pid"].as_u64().unwrap(), e["tid"].as_u64().unwrap())).collect()
}

#[test]
fn a_real_thread_keeps_its_track_and_a_lane_of_ours_gives_way() {
    let folder = tempfile::tempdir().unwrap();
    let trace = trace("overlapping-roots-one-thread");
    let [alone, by_invocation, lanes] = pictures(&trace, &[]);
    let (pid, tid) = (trace.life(&trace.spans()[0]).pid, trace.tid(&trace.spans()[0]));
    for (at, alone) in [alone, by_invocation, lanes].iter().enumerate() {
        let ours = tracks(alone);
        // All that we made up, and a real thread.
        let theirs: Vec<String> = ours
            .iter()
            .chain([&(pid, tid)])
            .map(|(pid, tid)| format!(r#"{{"ph":"X","name":"x","ts":1,"dur":1,"pid":{pid},"tid":{tid}}}"#))
            .collect();
        let other = Merge::open(file(&folder, "other.json", format!("[{}]", theirs.join(",")))).unwrap();
        let merged = tracks(&pictures(&trace, &[other])[at]);
        let (merged_ours, copied) = merged.split_at(ours.len());
        assert_eq!(&copied[..ours.len()], ours, "theirs stay where they are");
        for (was, is) in ours.iter().zip(merged_ours) {
            let is_real = was.0 == pid && (was.1 == tid || was.1 == 0);
            assert!(if is_real { was == is } else { !copied.contains(is) }, "{was:?} {is:?}");
        }
    }
}

#[test]
fn what_cannot_be_merged_is_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    for (text, says) in [
        ("", "EOF while parsing"),
        ("[{},", "EOF while parsing"),
        ("[{}] x", "trailing characters"),
        ("[{}, 5]", "event 2 is no object"),
        ("{\"traceEvents\":[[]]}", "event 1 is no object"),
        ("{\"traceEvents\":{}}", "expected an array of events"),
        ("{\"events\":[]}", "it has no traceEvents"),
        ("7", "expected an object with traceEvents, or an array of events"),
        ("[{\"ts\":01}]", "invalid number"),
        ("\x1f\u{8b}", "line 1 column 1"),
    ] {
        let path = file(&folder, "bad.json", text);
        let error = Merge::open(&path).unwrap_err();
        assert!(error.starts_with(&format!("{} cannot be merged: ", path.display())), "{error}");
        assert!(error.contains(says), "{text}: {error}");
    }
    let error = Merge::open(folder.path()).unwrap_err();
    assert!(error.contains("it is no file"), "{error}");
    assert!(Merge::open("/nonexistent/trace.json").unwrap_err().contains("/nonexistent/trace.json"));
    // However deep it is.
    let deep = "[".repeat(1_000_000);
    assert!(Merge::open(file(&folder, "deep.json", format!("[{{\"a\":{deep}"))).is_err());
}

#[test]
fn a_trace_of_another_time_is_said_with_both_windows() {
    let folder = tempfile::tempdir().unwrap();
    let trace = trace("overlapping-roots-one-thread");
    let (from, to) = trace.host_window().unwrap();
    let warning = |text: String| Merge::open(file(&folder, "w.json", text)).unwrap().warning(&trace);
    let at = |ns: i64, dur: i64| format!("[{{\"ph\":\"X\",\"ts\":{},\"dur\":{dur}}}]", ns as f64 / 1e3);
    assert_eq!(warning(at(from, 1)), None);
    assert_eq!(warning(at(0, to)), None, "ours lies within");
    let said = warning(at(to + 2_000_000, 1)).unwrap();
    let ours = format!("the log from {:.6} s to {:.6} s", from as f64 / 1e9, to as f64 / 1e9);
    assert!(said.contains("w.json has no moment in common with the log: it reaches from "), "{said}");
    assert!(said.contains(&ours), "{said}");
    let said = warning(at(from - 2_000_000, 1)).unwrap();
    assert!(said.contains(&ours), "one that was over before: {said}");
    assert_eq!(warning("[{\"ph\":\"M\",\"ts\":0}]".to_owned()), None, "a name has no time");
}

proptest! {
    #[test]
    fn any_bytes_are_a_trace_or_a_sentence(bytes in "[\\[\\]{}\",:a0-9. -]{0,40}|.{0,40}") {
        let folder = tempfile::tempdir().unwrap();
        let path = file(&folder, "any.json", &bytes);
        let is_trace = Merge::open(&path).is_ok();
        if is_trace {
            let value: Value = serde_json::from_str(&bytes).unwrap();
            prop_assert!(value.is_array() || value["traceEvents"].is_array());
        }
    }
}
