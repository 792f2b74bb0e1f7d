//! When a Chrome trace was taken, in every form that one comes in.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use simpler_trace_ingest::profile_window;
use std::io::Write;
use std::ops::Range;

fn window(bytes: impl AsRef<[u8]>) -> Result<Range<i64>, String> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes.as_ref()).unwrap();
    profile_window(file.path())
        .map_err(|error| error.to_string().replace(&file.path().display().to_string(), "FILE"))
}

/// Names before all else, a mark without a duration, nested arguments that have a `ts` of their own.
const EVENTS: &str = r#"[
    {"ph": "M", "ts": 0, "name": "process_name", "args": {"name": "x"}},
    {"name": "thread_name", "ts": 900000, "dur": 5, "ph": "M"},
    {"ph": "X", "name": "step", "ts": 1000.5, "dur": 20.25, "args": {"ts": 1, "dur": [1e9, {"ts": 2}]}},
    {"dur": 100, "ph": "X", "ts": 990.001},
    {"ph": "i", "ts": 1200},
    {"ph": "X", "dur": 1e15, "name": "no ts"},
    {"ph": "X", "ts": null, "dur": 1},
    {"ph": "X", "ts": 1100, "dur": -500}
]"#;

#[test]
fn it_is_from_the_first_start_to_the_last_end_of_what_is_no_name() {
    let want = Ok(990_001..1_200_000);
    assert_eq!(window(EVENTS), want);
    assert_eq!(window(format!("{{\"a\": [{{}}], \"traceEvents\": {EVENTS}, \"z\": null}}\n")), want);
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(EVENTS.as_bytes()).unwrap();
    assert_eq!(window(gz.finish().unwrap()), want);
    assert_eq!(window(zstd::encode_all(EVENTS.as_bytes(), 1).unwrap()), want);
}

#[test]
fn times_beyond_the_clock_stay_at_its_limit() {
    assert_eq!(window(r#"[{"ts": 1, "dur": 1e300}]"#), Ok(1_000..i64::MAX));
    assert_eq!(window(r#"[{"ts": -1e300, "dur": 1}]"#), Ok(i64::MIN..i64::MIN + 1_000));
}

#[test]
fn what_is_no_whole_trace_is_a_sentence() {
    let deep = "[".repeat(100_000);
    for (text, says) in [
        ("", "FILE is no whole Chrome trace: EOF"),
        ("{}", "missing field `traceEvents`"),
        ("3", "expected an object with traceEvents, or an array of events"),
        (r#"{"traceEvents": 3}"#, "expected an array of events"),
        ("[3]", "expected an event"),
        (&EVENTS[..EVENTS.len() - 1], "FILE is no whole Chrome trace: EOF"),
        (&format!("{EVENTS}]"), "trailing characters"),
        (&deep, "expected an event"),
        (&format!(r#"[{{"ts": {deep}"#), "EOF while parsing"),
        ("[]", "FILE is a Chrome trace without an event that has a time"),
        (r#"[{"ph": "M", "ts": 3}]"#, "without an event that has a time"),
    ] {
        let error = window(text).unwrap_err();
        assert!(error.contains(says), "{error}");
    }
    let error = profile_window("/nonexistent/profile.json".as_ref()).unwrap_err().to_string();
    assert!(error.starts_with("cannot read /nonexistent/profile.json: "), "{error}");
}
