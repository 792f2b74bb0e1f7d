//! A picture as a viewer reads it.

use serde_json::Value;
use std::collections::BTreeMap;

pub(crate) fn events(document: &Value) -> &[Value] {
    document["traceEvents"].as_array().unwrap()
}

pub(crate) fn complete(document: &Value) -> Vec<&Value> {
    events(document).iter().filter(|event| event["ph"] == "X").collect()
}

pub(crate) fn ns(us: &Value) -> i64 {
    (us.as_f64().unwrap() * 1000.0).round() as i64
}

/// On each track, a span lies inside the one before or begins after it.
pub(crate) fn assert_nested(document: &Value) {
    let mut tracks: BTreeMap<(u64, u64), Vec<(i64, i64)>> = BTreeMap::new();
    for event in complete(document) {
        let key = (event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap());
        let start = ns(&event["ts"]);
        tracks.entry(key).or_default().push((start, start + ns(&event["dur"])));
    }
    for (track, mut spans) in tracks {
        spans.sort_by_key(|&(start, end)| (start, std::cmp::Reverse(end)));
        let mut open: Vec<i64> = Vec::new();
        for (start, end) in spans {
            while open.last().is_some_and(|&outer| outer <= start) {
                open.pop();
            }
            assert!(open.last().is_none_or(|&outer| end <= outer), "{track:?} at {start}");
            open.push(end);
        }
    }
}
