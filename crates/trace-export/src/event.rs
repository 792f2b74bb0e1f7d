//! What every picture in Chrome's format has: names of processes and threads, who a span is, and wall time.

use crate::writer::Json;
use simpler_trace_model::{Anchor, Family, Life, Name, Span, Trace};
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
        json.text("M")?;
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
    json.key("inv")?;
    json.integer(trace.inv(span))?;
    json.key("hid")?;
    json.hex(trace.hid(span))?;
    json.key("depth")?;
    json.integer(trace.depth(span))?;
    json.key("attrs")?;
    json.bytes(trace.attributes(span).raw())
}

/// The wall time of a host span, if its process has an anchor from before.
pub(crate) fn wall<W: Write>(json: &mut Json<W>, trace: &Trace, span: &Span) -> io::Result<()> {
    let Some(ns) = trace.life(span).anchor.and_then(|anchor| anchor.wall_of(span.ts)) else { return Ok(()) };
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

/// Unix nanoseconds as `YYYY-MM-DDThh:mm:ss.nnnnnnnnnZ`. Digit by digit: every host span of a picture has one.
fn utc(ns: i64) -> String {
    let seconds = ns.div_euclid(1_000_000_000);
    let fraction = ns.rem_euclid(1_000_000_000);
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let mut text = String::with_capacity("YYYY-MM-DDThh:mm:ss.nnnnnnnnnZ".len());
    for (value, width, end) in [
        (year, 4, '-'),
        (month, 2, '-'),
        (day, 2, 'T'),
        (hour, 2, ':'),
        (minute, 2, ':'),
        (second, 2, '.'),
        (fraction, 9, 'Z'),
    ] {
        let power = 10_i64.pow(width);
        // No year of a clock that counts ns in 64 bits has more than four digits, or is negative.
        let mut unit = power / 10;
        while unit > 0 {
            text.push(char::from(b'0' + (value / unit % 10) as u8));
            unit /= 10;
        }
        text.push(end);
    }
    text
}

/// The Gregorian date of a day counted from 1970-01-01. Years are taken to begin in March, so that the leap
/// day is the last one; 400 of them have 146,097 days.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unix_time_becomes_a_date() {
        for (seconds, want) in [
            (0, "1970-01-01T00:00:00.000000000Z"),
            (951_782_400, "2000-02-29T00:00:00.000000000Z"),
            (1_790_000_000, "2026-09-21T14:13:20.000000000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000000000Z"),
            (-1, "1969-12-31T23:59:59.000000000Z"),
        ] {
            assert_eq!(utc(seconds * 1_000_000_000), want);
        }
        assert_eq!(utc(1), "1970-01-01T00:00:00.000000001Z");
    }
}
