//! What every picture in Chrome's format has: names of processes and threads, who a span is, and wall time.

use crate::writer::Json;
use simpler_trace_model::{Anchor, Attributes, Family, Life, Name, Span, Trace, utc};
use std::io::{self, Write};

/// The process that a span is drawn in: its pid, unless one of another host has that too.
pub(crate) fn pid(trace: &Trace, span: &Span) -> u64 {
    trace.track_pid(trace.life_index(span))
}

/// Which process a life is, for people: its pid, and where it ran if the log is of several hosts.
pub(crate) fn process(trace: &Trace, life: &Life) -> String {
    match trace.host_label(life) {
        Some(host) => format!("pid={} on {host}", life.pid),
        None => format!("pid={}", life.pid),
    }
}

/// What a process is called, by all its spans' names.
pub(crate) fn process_name<'a>(
    trace: &Trace,
    life: &Life,
    names: impl Iterator<Item = &'a Name> + Clone,
) -> String {
    let process = process(trace, life);
    if names.clone().any(|name| name.family == Family::Scheduler) {
        format!("simpler node ({process})")
    } else if names.clone().all(|name| name.family == Family::External) {
        format!("external producer {} ({process})", producers(names).as_deref().unwrap_or("unattributed"))
    } else {
        format!("simpler chip child ({process})")
    }
}

/// The producers that external names tell, as `a/b`; `None` if they tell none.
pub(crate) fn producers<'a>(names: impl Iterator<Item = &'a Name>) -> Option<String> {
    let mut producers: Vec<&str> = names.filter_map(Name::producer).collect();
    producers.sort_unstable();
    producers.dedup();
    (!producers.is_empty()).then(|| producers.join("/"))
}

/// What a process (`process_name`) or a thread (`thread_name`) is called.
pub(crate) fn name<W: Write>(
    json: &mut Json<W>,
    what: &str,
    pid: u64,
    tid: u64,
    name: &str,
) -> io::Result<()> {
    metadata(json, what, pid, tid, |json| {
        json.key("name")?;
        json.text(name)
    })
}

/// Where a process stands among the others.
pub(crate) fn sort_index<W: Write>(json: &mut Json<W>, pid: u64, index: usize) -> io::Result<()> {
    metadata(json, "process_sort_index", pid, 0, |json| {
        json.key("sort_index")?;
        json.integer(index)
    })
}

fn metadata<W: Write>(
    json: &mut Json<W>,
    what: &str,
    pid: u64,
    tid: u64,
    args: impl FnOnce(&mut Json<W>) -> io::Result<()>,
) -> io::Result<()> {
    json.object(|json| {
        json.key("ph")?;
        json.word("M")?;
        json.key("name")?;
        json.text(what)?;
        json.key("pid")?;
        json.integer(pid)?;
        json.key("tid")?;
        json.integer(tid)?;
        json.key("args")?;
        json.object(args)
    })
}

pub(crate) fn identity<W: Write>(json: &mut Json<W>, trace: &Trace, span: &Span) -> io::Result<()> {
    identity_of_part(json, trace, span, trace.depth(span), trace.attributes(span))
}

/// The same of what is a part of a span and has a depth and attributes of its own.
pub(crate) fn identity_of_part<W: Write>(
    json: &mut Json<W>,
    trace: &Trace,
    span: &Span,
    depth: u32,
    attributes: Attributes<'_>,
) -> io::Result<()> {
    json.key("inv")?;
    json.integer(trace.inv(span))?;
    json.key("hid")?;
    json.hex(trace.hid(span))?;
    if let Some(label) = given_label(trace, span) {
        json.key("label")?;
        json.text(label)?;
    }
    json.key("depth")?;
    json.integer(depth)?;
    json.key("attrs")?;
    json.bytes(attributes.raw())
}

/// The name that was given to the callable that a span belongs to.
pub(crate) fn given_label<'a>(trace: &'a Trace, span: &Span) -> Option<&'a str> {
    trace.given_label(trace.hid(span)).filter(|_| trace.is_grouped(span))
}

/// The wall time of a moment in the life of a host span, if its process has an anchor from before.
pub(crate) fn wall<W: Write>(json: &mut Json<W>, trace: &Trace, span: &Span, ts: i64) -> io::Result<()> {
    let Some(ns) = trace.life(span).anchor.and_then(|anchor| anchor.wall_of(ts)) else { return Ok(()) };
    json.key("wall_ts_ns")?;
    json.integer_text(ns)?;
    json.key("wall_time")?;
    json.text(&utc(ns))
}

pub(crate) fn clock_anchors<W: Write>(json: &mut Json<W>, trace: &Trace) -> io::Result<()> {
    let mut anchors: Vec<(u64, Anchor)> =
        (0..).zip(trace.lives()).filter_map(|(at, life)| Some((trace.track_pid(at), life.anchor?))).collect();
    if anchors.is_empty() {
        return Ok(());
    }
    anchors.sort_by_key(|&(pid, _)| pid);
    json.key("clockAnchors")?;
    json.array(|json| {
        anchors.iter().try_for_each(|(pid, anchor)| {
            json.object(|json| {
                json.key("pid")?;
                json.integer(*pid)?;
                json.key("mono_ns")?;
                json.text(&anchor.mono_ns.to_string())?;
                json.key("wall_ns")?;
                json.text(&anchor.wall_ns.to_string())
            })
        })
    })
}
