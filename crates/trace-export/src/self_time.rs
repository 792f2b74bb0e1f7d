//! Self times, as text and as JSON.

use crate::text::{MISSING, printable, us_of};
use crate::writer::Json;
use simpler_trace_model::{Callable, SelfTime, SelfTimes, Trace};
use std::io::{self, Write};

/// Where the time of each callable's calls goes, with nothing counted twice: its tree, the self times adding up to the
/// root's duration.
///
/// # Errors
/// As `out`.
pub fn text(out: &mut (impl Write + ?Sized), trace: &Trace, callables: &[Callable]) -> io::Result<()> {
    for callable in callables {
        let (hid, label) = (callable.hid, callable.display_label());
        let lost = match callable.missing_roots {
            0 => String::new(),
            lost => format!(", root lost in {lost} more"),
        };
        let Some(times) = trace.self_times(callable) else {
            writeln!(out, "callable hid={hid:x} ({label}) — self time {MISSING}{lost}\n")?;
            continue;
        };
        writeln!(out, "callable hid={hid:x} ({label}) — self time, mean of {} invocation(s){lost}", times.n)?;
        let names: Vec<String> = times.lines.iter().map(name).collect();
        let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0).max(22);
        writeln!(
            out,
            "  {:<width$}{:>6}  {:>12}  {:>12}  {:>8}",
            "Span", "", "Total (us)", "Self (us)", "Self (%)"
        )?;
        for (line, name) in times.lines.iter().zip(&names) {
            let tag = if line.device { "[dev]" } else { "" };
            let share = line.share_pct.map_or(MISSING.to_owned(), |share| format!("{share:.1}"));
            let (total, own) = (us_of(line.total_ns), us_of(line.self_ns));
            write!(out, "  {name:<width$}{tag:>6}  {total:>12}  {own:>12}  {share:>8}")?;
            for (ns, what) in [(line.overhang_ns, "outside its parent"), (line.shared_ns, "shared")] {
                if ns > 0 {
                    write!(out, "  {} {what}", us_of(ns))?;
                }
            }
            if line.n != times.n {
                write!(out, "  (n={})", line.n)?;
            }
            writeln!(out)?;
            if let Some((orch, sched)) = line.concurrent_ns {
                let indent = 2 + 2 * line.level + 2;
                writeln!(
                    out,
                    "{:indent$}orch {}  ∥  sched {}   (concurrent)",
                    "",
                    us_of(orch),
                    us_of(sched)
                )?;
            }
        }
        let share = match times.root_ns {
            0 => MISSING.to_owned(),
            root => format!("{:.1}", times.unattributed_ns as f64 * 100.0 / root as f64),
        };
        let unattributed = us_of(times.unattributed_ns);
        writeln!(
            out,
            "  Unattributed: {unattributed} us, {share} % (self time of spans that have others below them)"
        )?;
        writeln!(out)?;
    }
    Ok(())
}

/// A line's last word, as deep as it stands.
fn name(line: &SelfTime) -> String {
    let word = match &line.name {
        Some(name) => printable(name.rsplit('.').next().unwrap_or(name)),
        None => "Effective".into(),
    };
    format!("{:1$}{word}", "", 2 * line.level)
}

/// The value of `self_times` in a callable's figures.
pub(crate) fn json<W: Write>(json: &mut Json<W>, times: &SelfTimes) -> io::Result<()> {
    json.object(|json| {
        for (key, value) in
            [("n", times.n as i64), ("root_ns", times.root_ns), ("unattributed_ns", times.unattributed_ns)]
        {
            json.key(key)?;
            json.integer(value)?;
        }
        json.key("spans")?;
        json.array(|json| times.lines.iter().try_for_each(|one| line(json, one)))
    })
}

fn line<W: Write>(json: &mut Json<W>, line: &SelfTime) -> io::Result<()> {
    json.object(|json| {
        json.key("name")?;
        json.text(line.name.as_deref().unwrap_or("Effective"))?;
        json.key("level")?;
        json.integer(line.level)?;
        json.key("device")?;
        json.boolean(line.device)?;
        json.key("n")?;
        json.integer(line.n)?;
        for (key, value) in [
            ("total_ns", Some(line.total_ns)),
            ("self_ns", Some(line.self_ns)),
            ("unattributed_ns", line.unattributed_ns),
            ("overhang_ns", Some(line.overhang_ns)),
            ("shared_ns", Some(line.shared_ns)),
            ("orch_ns", line.concurrent_ns.map(|(orch, _)| orch)),
            ("sched_ns", line.concurrent_ns.map(|(_, sched)| sched)),
        ] {
            crate::steps::optional(json, key, value)?;
        }
        match line.share_pct {
            Some(share) => {
                json.key("self_pct")?;
                json.float(share)
            }
            None => Ok(()),
        }
    })
}
