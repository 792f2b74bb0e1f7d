//! Any bytes as host phase records. Each line is a pass or is counted; and what any JSON reader makes of the lines,
//! written again, holds what that reader finds in it.

#![no_main]

use serde_json::Value;
use simpler_trace_export::host_phase_records::HostPhaseFile;
use simpler_trace_model::{HostPass, HostPhaseRecord};

/// A pass by the plainest means.
fn pass(line: &Value) -> Option<HostPass> {
    let id = |key| line.get(key).and_then(Value::as_u64);
    let none = Vec::new();
    let records = line.as_object()?.get("records").map_or(Some(&none), Value::as_array)?;
    Some(HostPass { pid: id("pid"), inv: id("inv"), records: records.iter().filter_map(record).collect() })
}

fn record(value: &Value) -> Option<HostPhaseRecord> {
    let detail = value.get("detail");
    Some(HostPhaseRecord {
        phase: value.get("phase")?.as_str()?.into(),
        start_ns: value.get("start_ns")?.as_i64()?,
        end_ns: value.get("end_ns")?.as_i64()?,
        tid: value.get("tid").and_then(Value::as_u64),
        detail: detail.and_then(|it| it.as_u64().map(i128::from).or_else(|| it.as_i64().map(i128::from))),
    })
    .filter(|record| record.start_ns <= record.end_ns)
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let lines: Vec<&[u8]> =
        bytes.split(|&byte| byte == b'\n').filter(|line| !line.trim_ascii().is_empty()).collect();
    let file = HostPhaseFile::parse(bytes);
    assert_eq!(lines.len(), file.passes.len() + file.lines_left_out);

    // A key that stands twice in an object is left to each reader, so it is written once.
    let values: Vec<Value> = lines.iter().filter_map(|line| serde_json::from_slice(line).ok()).collect();
    let text: String = values.iter().map(|value| format!("{value}\n")).collect();
    let wanted: Vec<HostPass> = values.iter().filter_map(pass).collect();
    assert_eq!(HostPhaseFile::parse(text.as_bytes()).passes, wanted);
});
