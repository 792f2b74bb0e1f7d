//! `host_phase_records.jsonl`: what the host did while it bound a run, a pass over the binding on each line.
//!
//! ```text
//! {"pid": 41, "inv": 3, "records": [{"phase": "host_orch", "start_ns": 100, "end_ns": 900, "tid": 41, "detail": 7}]}
//! ```
//!
//! A runtime appends to such a file while it runs, so a last line that is cut is ordinary. What is no pass, and in a
//! pass what is no record, is left out and counted. `tid` and `detail` may be missing; keys that nobody knows are
//! passed over. Which bind span a pass belongs to is the model's question ([`Trace::host_phases`]).
//!
//! [`Trace::host_phases`]: simpler_trace_model::Trace::host_phases

use serde::Deserialize;
use serde::de::IgnoredAny;
use simpler_trace_model::{HostPass, HostPhaseRecord};

/// What a file holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostPhaseFile {
    /// Its passes, line by line.
    pub passes: Vec<HostPass>,
    /// Lines that are no pass: no JSON, no object, or `records` is no list. An empty line is no line.
    pub lines_left_out: usize,
    /// Elements of `records` that are no record: without a phase, a start or an end, or ending before they start.
    pub records_left_out: usize,
}

impl HostPhaseFile {
    /// From the bytes of a file.
    pub fn parse(bytes: &[u8]) -> HostPhaseFile {
        let mut file = HostPhaseFile::default();
        for line in bytes.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty())
        {
            // An array would be read as an object's values.
            let pass = line.starts_with(b"{").then(|| serde_json::from_slice::<Pass>(line).ok()).flatten();
            let Some(Pass { pid, inv, records }) = pass else {
                file.lines_left_out += 1;
                continue;
            };
            let elements = records.len();
            let records: Vec<HostPhaseRecord> = records.into_iter().filter_map(Element::record).collect();
            file.records_left_out += elements - records.len();
            file.passes.push(HostPass {
                pid: pid.and_then(Field::id),
                inv: inv.and_then(Field::id),
                records,
            });
        }
        file
    }

    /// What has to be said about the file called `source` before the picture, if anything.
    pub fn warning(&self, source: &str) -> Option<String> {
        let HostPhaseFile { lines_left_out: lines, records_left_out: records, .. } = self;
        (lines + records > 0).then(|| {
            format!(
                "warning: {source}: {lines} line(s) are no pass of host phases and {records} element(s) no record of \
                 one; they are left out of the picture"
            )
        })
    }
}

#[derive(Deserialize)]
struct Pass {
    pid: Option<Field>,
    inv: Option<Field>,
    #[serde(default)]
    records: Vec<Element>,
}

/// An element of `records`, whatever it is. A list goes first, or it would be read as an object's values.
#[derive(Deserialize)]
#[serde(untagged)]
enum Element {
    List(#[expect(dead_code, reason = "its form tells it apart")] Vec<IgnoredAny>),
    Record { phase: Box<str>, start_ns: i64, end_ns: i64, tid: Option<Field>, detail: Option<Field> },
    Other(IgnoredAny),
}

impl Element {
    fn record(self) -> Option<HostPhaseRecord> {
        let Element::Record { phase, start_ns, end_ns, tid, detail } = self else { return None };
        let (tid, detail) = (tid.and_then(Field::id), detail.and_then(Field::integer));
        (start_ns <= end_ns).then_some(HostPhaseRecord { phase, start_ns, end_ns, tid, detail })
    }
}

/// A value that should be an integer; another one is as good as none.
#[derive(Deserialize)]
#[serde(untagged)]
enum Field {
    Unsigned(u64),
    Signed(i64),
    Other(IgnoredAny),
}

impl Field {
    fn id(self) -> Option<u64> {
        match self {
            Field::Unsigned(id) => Some(id),
            Field::Signed(_) | Field::Other(_) => None,
        }
    }

    fn integer(self) -> Option<i128> {
        match self {
            Field::Unsigned(value) => Some(value.into()),
            Field::Signed(value) => Some(value.into()),
            Field::Other(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(phase: &str, start_ns: i64, end_ns: i64) -> HostPhaseRecord {
        HostPhaseRecord { phase: phase.into(), start_ns, end_ns, tid: None, detail: None }
    }

    #[test]
    fn a_pass_is_a_line_and_what_may_be_missing_may_be_missing() {
        let text = br#"{"pid": 41, "inv": 3, "records": [{"phase": "args", "start_ns": 5, "end_ns": 9, "tid": 42, "detail": 7, "new": {}}]}

{"inv": 18446744073709551615, "records": [{"phase": "x", "start_ns": -5, "end_ns": -5, "tid": null}], "new": [1]}
  {"pid": 1, "inv": 2}  "#;
        let file = HostPhaseFile::parse(text);
        let whole = HostPhaseRecord { tid: Some(42), detail: Some(7), ..record("args", 5, 9) };
        assert_eq!(
            file.passes,
            [
                HostPass { pid: Some(41), inv: Some(3), records: vec![whole] },
                HostPass { pid: None, inv: Some(u64::MAX), records: vec![record("x", -5, -5)] },
                HostPass { pid: Some(1), inv: Some(2), records: vec![] },
            ]
        );
        assert_eq!(file.warning("f"), None);
    }

    #[test]
    fn what_is_no_pass_is_left_out_and_counted() {
        for line in [
            "{\"pid\": 41, \"inv\": 1, \"records\": [{\"phase\": \"args\", \"start_n",
            "[41, 1, []]",
            "7",
            "null",
            "\"pid\"",
            "{\"pid\": 41, \"inv\": 1, \"records\": {}}",
            "{\"pid\": 41, \"inv\": 1, \"records\": null}",
            "{\"pid\": 41, \"inv\": 1, \"records\": \"args\"}",
            "{} {}",
        ] {
            let file = HostPhaseFile::parse(format!("{line}\n{{}}\n").as_bytes());
            assert_eq!((file.passes.len(), file.lines_left_out), (1, 1), "{line}");
        }
        let file = HostPhaseFile::parse(b"{\"pid\": \xff}\n\r\n{}\n");
        assert_eq!((file.passes.len(), file.lines_left_out), (1, 1));
        let deep = format!("{{\"records\": {}", "[".repeat(100_000));
        assert_eq!(HostPhaseFile::parse(deep.as_bytes()).lines_left_out, 1, "and no stack overflow");
    }

    #[test]
    fn what_is_no_record_is_left_out_of_its_pass_and_counted() {
        for element in [
            "[\"args\", 1, 2, null, null]",
            "{\"start_ns\": 1, \"end_ns\": 2}",
            "{\"phase\": \"args\", \"end_ns\": 2}",
            "{\"phase\": \"args\", \"start_ns\": 1.5, \"end_ns\": 2}",
            "{\"phase\": \"args\", \"start_ns\": 9, \"end_ns\": 2}",
            "{\"phase\": \"args\", \"start_ns\": 9, \"end_ns\": 18446744073709551615}",
            "{\"phase\": 7, \"start_ns\": 1, \"end_ns\": 2}",
            "null",
        ] {
            let good =
                "{\"phase\": \"x\", \"start_ns\": 1, \"end_ns\": 2, \"tid\": \"T\", \"detail\": [[1]]}";
            let text = format!("{{\"pid\": \"x\", \"records\": [{element}, {good}]}}");
            let file = HostPhaseFile::parse(text.as_bytes());
            assert_eq!(file.records_left_out, 1, "{element}");
            assert_eq!(file.passes, [HostPass { pid: None, inv: None, records: vec![record("x", 1, 2)] }]);
            let said = file.warning("f.jsonl").unwrap();
            assert!(said.starts_with("warning: f.jsonl: 0 line(s) are no pass"), "{said}");
        }
    }
}
