//! The spans of this process's log. One test binary, one log.

#![allow(dead_code, reason = "shared by test binaries that each use a part")]

use std::path::Path;
use std::time::Duration;

use simpler_host_log::Threshold;

/// Starts this process's log in `directory`.
pub(crate) fn start(directory: &Path) {
    let config = simpler_host_log::Config { directory: Some(directory), ..Default::default() };
    simpler_host_log::init(&config).unwrap();
    simpler_host_log::set_threshold(Threshold::TIMING);
}

/// One span record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) inv: u64,
    pub(crate) hid: String,
    pub(crate) depth: i32,
    pub(crate) name: String,
    pub(crate) ts: i64,
    pub(crate) dur: i64,
    pub(crate) attrs: String,
}

/// Everything that was logged so far.
pub(crate) fn text(directory: &Path) -> String {
    simpler_host_log::flush(Duration::from_secs(5)).unwrap();
    let file = directory.join(format!("host.{}.log", std::process::id()));
    std::fs::read_to_string(file).unwrap()
}

/// The spans so far, in the order of the log.
pub(crate) fn spans(directory: &Path) -> Vec<Span> {
    text(directory)
        .lines()
        .filter_map(|line| line.split_once("[STRACE] v=1 "))
        .map(|(_, span)| parse(span))
        .collect()
}

fn parse(span: &str) -> Span {
    let mut rest = span;
    let mut field = |key: &str| {
        let (value, after) = rest.strip_prefix(key).unwrap().split_once(' ').unwrap();
        rest = after;
        value.to_owned()
    };
    let _pid_and_tid = (field("pid="), field("tid="));
    Span {
        inv: field("inv=").parse().unwrap(),
        hid: field("hid="),
        depth: field("depth=").parse().unwrap(),
        name: field("name="),
        ts: field("ts=").parse().unwrap(),
        dur: field("dur=").parse().unwrap(),
        attrs: rest.to_owned(),
    }
}
