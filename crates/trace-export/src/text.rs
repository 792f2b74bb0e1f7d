//! Text tables, in the formats that other people's scripts parse.
//!
//! A value that the log does not hold is `–`, never 0, and no mean includes it. A device time that was
//! measured as 0 is printed as 0, but the rounds table's means leave it out too: scripts that read the table
//! expect the device's means over the rounds in which it worked.

use simpler_trace_ingest::Reading;
use simpler_trace_model::{
    CallTree, Callable, Facts, Node, Producer, Round, Rounds, Stage, Stats, Trace, utc,
};
use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{self, Write};

/// What stands for a value that the log does not hold.
pub(crate) const MISSING: &str = "–";

/// A name as a terminal may see it: it comes from a file, so control characters are spelled out.
pub(crate) fn printable(name: &str) -> Cow<'_, str> {
    if !name.contains(char::is_control) {
        return name.into();
    }
    let mut out = String::with_capacity(name.len());
    for c in name.chars() {
        if c.is_control() { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out.into()
}

/// What the process lives of a trace are called, by life: the pid, the host where the log names several, and a number
/// where an earlier life has the same name.
pub(crate) fn process_names(trace: &Trace) -> Vec<String> {
    let mut times: HashMap<String, u32> = HashMap::new();
    let named = trace.lives().iter().map(|life| {
        let name = match trace.host_label(life) {
            Some(host) => format!("{}@{}", life.pid, printable(&host)),
            None => life.pid.to_string(),
        };
        let time = times.entry(name.clone()).or_default();
        *time += 1;
        if *time == 1 { name } else { format!("{name}#{time}") }
    });
    named.collect()
}

fn us(ns: impl Into<f64>) -> f64 {
    ns.into() / 1000.0
}

pub(crate) fn us_of(ns: i64) -> String {
    format!("{:.1}", us(ns as f64))
}

fn us_or_missing(ns: Option<f64>) -> String {
    ns.map_or_else(|| MISSING.to_owned(), |ns| format!("{:.1}", us(ns)))
}

/// A line with the wall time, Unix time in ns, to the second: it stands above the view of a log that grows.
///
/// # Errors
/// As `out`.
pub fn moment(out: &mut impl Write, wall_ns: i64) -> io::Result<()> {
    let text = utc(wall_ns);
    writeln!(out, "{}Z", &text[.."YYYY-MM-DDThh:mm:ss".len()])
}

/// The callable table: for each callable its root, then its stages.
///
/// A callable that lost roots says of how many invocations its root figures are.
///
/// # Errors
/// As `out`.
pub fn table(out: &mut impl Write, callables: &[Callable]) -> io::Result<()> {
    for callable in callables {
        let n = callable.invocations.len();
        heading(out, callable)?;
        if callable.roots.is_empty() {
            let name = printable(&callable.root_name);
            writeln!(out, "  {name}: mean={MISSING} min={MISSING} max={MISSING} (root lost in all {n})")?;
        }
        for root in &callable.roots {
            let stats = &root.stats;
            let (mean, min, max) = (us_of(stats.mean_ns), us_of(stats.min_ns), us_of(stats.max_ns));
            write!(out, "  {}: mean={mean}us min={min}us max={max}us", printable(&root.name))?;
            match callable.missing_roots {
                0 => writeln!(out)?,
                lost => writeln!(out, " (n={}, root lost in {lost})", stats.n)?,
            }
        }
        for stage in &callable.stages {
            let indent = 2 + 2 * stage.name.matches('.').count();
            let (mean, n) = (us_of(stage.stats.mean_ns), stage.stats.n);
            writeln!(out, "{:indent$}{}: mean={mean}us (n={n})", "", printable(&stage.name))?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// What a callable is called, for a terminal.
fn label(callable: &Callable) -> String {
    printable(&callable.display_label()).into_owned()
}

/// The first line of a callable in the tables of it; it has a label only if one was given.
fn heading(out: &mut impl Write, callable: &Callable) -> io::Result<()> {
    write!(out, "callable hid={:x}", callable.hid)?;
    if let Some(label) = &callable.given_label {
        write!(out, " ({})", printable(label))?;
    }
    writeln!(out, " — {} invocation(s)", callable.invocations.len())
}

/// A longer name only moves its own line: it comes from a file, and nobody is to pay for it in each.
const NAME_WIDTH_MAX: usize = 64;

/// The callable table with percentiles, which the callables should have: for each its root, then its stages, in us.
///
/// # Errors
/// As `out`.
pub fn percentiles(out: &mut impl Write, callables: &[Callable]) -> io::Result<()> {
    const TITLE: &str = "Stage (us)";
    for callable in callables {
        heading(out, callable)?;
        let indented = |name: &str| format!("{:1$}{2}", "", 2 * name.matches('.').count(), printable(name));
        let mut rows: Vec<(String, Option<&Stats>)> = Vec::new();
        if callable.roots.is_empty() {
            rows.push((indented(&callable.root_name), None));
        }
        let named = callable.roots.iter().chain(&callable.stages);
        rows.extend(named.map(|one| (indented(&one.name), Some(&one.stats))));
        let widths = rows.iter().map(|(name, _)| name.chars().count().min(NAME_WIDTH_MAX));
        let width = widths.max().unwrap_or(0).max(TITLE.len());
        write!(out, "  {TITLE:<width$}  {:>8}", "n")?;
        ["p50", "p90", "p99", "max"].iter().try_for_each(|title| write!(out, "  {title:>12}"))?;
        writeln!(out)?;
        for (at, (name, stats)) in rows.iter().enumerate() {
            let ranks = stats.and_then(|stats| stats.ranks);
            let cell = |ns: Option<i64>| ns.map_or_else(|| MISSING.to_owned(), us_of);
            write!(out, "  {name:<width$}  {:>8}", stats.map_or(0, |stats| stats.n))?;
            for ns in [
                ranks.map(|of| of.p50_ns),
                ranks.map(|of| of.p90_ns),
                ranks.map(|of| of.p99_ns),
                stats.map(|of| of.max_ns),
            ] {
                write!(out, "  {:>12}", cell(ns))?;
            }
            match callable.missing_roots {
                lost if lost > 0 && at < callable.roots.len().max(1) => {
                    writeln!(out, "  (root lost in {lost})")?
                }
                _ => writeln!(out)?,
            }
        }
        writeln!(out)?;
    }
    Ok(())
}

/// The task slots of each callable that has any: when each was dispatched and how long it took, and from the dispatch of
/// one to the finish of another; medians, in us of the device's clock. Gives whether there were any.
///
/// # Errors
/// As `out`.
pub fn task_slots(out: &mut impl Write, trace: &Trace, callables: &[Callable]) -> io::Result<bool> {
    let mut any = false;
    for callable in callables {
        let Some(of) = trace.task_slots(callable) else { continue };
        any = true;
        let (hid, label, n) = (callable.hid, label(callable), callable.invocations.len());
        writeln!(out, "callable hid={hid:x} ({label}) — task slots, median of {n} invocation(s)")?;
        writeln!(out, "  {:<6}  {:>6}  {:>12}  {:>12}", "Slot", "n", "At (us)", "Took (us)")?;
        for slot in &of.slots {
            let (at, took) = (us(slot.dispatch_ns), us(slot.dur_ns));
            writeln!(out, "  {:<6}  {:>6}  {at:>12.1}  {took:>12.1}", slot.slot, slot.n)?;
        }
        if of.slots.len() > 1 {
            writeln!(out, "  From a slot's dispatch (row) to another's finish (column), us:")?;
            write!(out, "  {:<6}", "")?;
            of.slots.iter().try_for_each(|to| write!(out, "  {:>9}", to.slot))?;
            writeln!(out)?;
            for from in &of.slots {
                write!(out, "  {:<6}", from.slot)?;
                for to in &of.slots {
                    let own = (from.slot == to.slot).then_some(from.dur_ns);
                    let ns = own.or_else(|| of.interval(from.slot, to.slot).map(|interval| interval.ns));
                    write!(out, "  {:>9}", us_or_missing(ns))?;
                }
                writeln!(out)?;
            }
        }
        writeln!(out)?;
    }
    Ok(any)
}

/// A column of the rounds table.
struct Column {
    title: &'static str,
    mean_title: &'static str,
    value: fn(&Round) -> Option<i64>,
}

impl Column {
    /// The value as far as a mean takes it: the host's as it is, any other unless it is 0.
    fn averaged(&self, round: &Round) -> Option<i64> {
        (self.value)(round).filter(|&ns| ns != 0 || self.title == HOST.title)
    }
}

const HOST: Column = Column { title: "Host (us)", mean_title: "Avg Host", value: |round| round.host_ns };
const DEVICE: Column =
    Column { title: "Device (us)", mean_title: "Avg Device", value: |round| round.device_ns };
/// The columns besides the host's, which appear only if some round has more than 0 in them.
const OTHERS: [Column; 4] = [
    DEVICE,
    Column { title: "Effective (us)", mean_title: "Avg Effective", value: |round| round.effective_ns },
    Column { title: "Orch (us)", mean_title: "Avg Orch", value: |round| round.orch_ns },
    Column { title: "Sched (us)", mean_title: "Avg Sched", value: |round| round.sched_ns },
];

/// The rounds table of the busiest callable, one line a run, then the means.
///
/// # Errors
/// As `out`.
pub fn rounds(out: &mut impl Write, rounds: &Rounds) -> io::Result<()> {
    let shown: Vec<&Column> = std::iter::once(&HOST)
        .chain(OTHERS.iter().filter(|column| rounds.rounds.iter().any(|r| (column.value)(r) > Some(0))))
        .collect();

    let mut header = format!("  {:<6}", "Round");
    for column in &shown {
        header.push_str(&format!("  {:>12}", column.title));
    }
    writeln!(out, "{header}")?;
    writeln!(out, "  {}", "-".repeat(header.chars().count() - 2))?;
    for (number, round) in rounds.rounds.iter().enumerate() {
        write!(out, "  {number:<6}")?;
        for column in &shown {
            let value = us_or_missing((column.value)(round).map(|ns| ns as f64));
            write!(out, "  {value:>12}")?;
        }
        writeln!(out)?;
    }

    let n = rounds.rounds.len();
    let mut means: Vec<String> = Vec::new();
    for column in &shown {
        let mean = rounds.mean(|round| column.averaged(round));
        let text = us_or_missing(mean.map(|(ns, _)| ns));
        let share = match mean {
            Some((_, k)) if column.title == DEVICE.title => format!(" [{k}/{n}]"),
            _ => String::new(),
        };
        means.push(format!("{}: {text} us{share}", column.mean_title));
    }
    writeln!(out, "  {}  ({n} rounds)", means.join("  |  "))?;

    if let Some(host) = rounds.trimmed(|round| HOST.averaged(round)) {
        write!(out, "  Trimmed Avg Host: {:.1} us", us(host.mean_ns))?;
        if let Some(device) = rounds.trimmed(|round| DEVICE.averaged(round)) {
            write!(out, "  |  Trimmed Avg Device: {:.1} us", us(device.mean_ns))?;
        }
        let each = host.dropped_each;
        writeln!(out, "  (dropped {each} low + {each} high, {} rounds used)", host.used)?;
    }
    Ok(())
}

/// The call tree of each callable, values the medians over its invocations.
///
/// # Errors
/// As `out`.
pub fn tree(out: &mut impl Write, trace: &Trace, callables: &[Callable]) -> io::Result<()> {
    for callable in callables {
        let (hid, label, n) = (callable.hid, label(callable), callable.invocations.len());
        match n {
            1 => writeln!(out, "callable hid={hid:x} ({label}) — 1 invocation")?,
            _ => writeln!(out, "callable hid={hid:x} ({label}) — median of {n} invocation(s)")?,
        }
        let tree = trace.call_tree(callable);
        level(out, &tree, &tree.roots, 0)?;
        writeln!(out)?;
    }
    Ok(())
}

fn line(out: &mut impl Write, depth: usize, leaf: &str, device: bool, ns: Option<f64>) -> io::Result<()> {
    let tag = if device { "[dev]" } else { "" };
    writeln!(out, "{:2$}{leaf:<22}{tag:>6}  {:>12} us", "", us_or_missing(ns), 2 * depth)
}

/// The nodes of one level. Orchestrator and schedulers run side by side: where both are there, the window
/// that they cover together takes their place, and what lies below either stands below it.
fn level(out: &mut impl Write, tree: &CallTree, nodes: &[Node], depth: usize) -> io::Result<()> {
    let of = |stage| nodes.iter().position(|node| node.stage == Some(stage));
    let pair = of(Stage::Orch).zip(of(Stage::Sched));
    for (at, node) in nodes.iter().enumerate() {
        if let Some((orch, sched)) = pair.filter(|&(orch, sched)| at == orch || at == sched) {
            if at == orch.min(sched) {
                let (orch, sched) = (&nodes[orch], &nodes[sched]);
                line(out, depth, "Effective", true, tree.effective_median_ns)?;
                let (orch_us, sched_us) = (us(orch.median_ns), us(sched.median_ns));
                writeln!(
                    out,
                    "{:1$}orch {orch_us:.1}  ∥  sched {sched_us:.1}   (concurrent)",
                    "",
                    2 * depth + 2
                )?;
                level(out, tree, &orch.children, depth + 2)?;
                level(out, tree, &sched.children, depth + 2)?;
            }
            continue;
        }
        line(out, depth, &printable(&node.leaf), node.device, Some(node.median_ns))?;
        level(out, tree, &node.children, depth + 1)?;
    }
    Ok(())
}

/// What stands for the producer of spans whose name does not say it.
const UNATTRIBUTED: &str = "unattributed";

fn producer_word(producer: &Producer) -> Cow<'_, str> {
    producer.name.as_deref().map_or(UNATTRIBUTED.into(), printable)
}

/// The table of foreign producers: for each its spans by name, what took the most time first.
///
/// # Errors
/// As `out`.
pub fn external_table(out: &mut impl Write, producers: &[Producer]) -> io::Result<()> {
    for producer in producers {
        writeln!(out, "external {} — {} span(s)", producer_word(producer), producer.spans)?;
        for one in &producer.names {
            let (mean, total) = (us_of(one.stats.mean_ns), us_of(one.total_ns));
            let (name, n) = (printable(&one.name), one.stats.n);
            writeln!(out, "  {name}: mean={mean}us total={total}us (n={n})")?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// How the spans of foreign producers nest, values the medians of all spans in one place.
///
/// # Errors
/// As `out`.
pub fn external_tree(out: &mut impl Write, producers: &[Producer]) -> io::Result<()> {
    for producer in producers {
        writeln!(out, "external {} — median of {} span(s)", producer_word(producer), producer.spans)?;
        nested(out, &producer.roots, 0)?;
        writeln!(out)?;
    }
    Ok(())
}

fn nested(out: &mut impl Write, nodes: &[Node], depth: usize) -> io::Result<()> {
    nodes.iter().try_for_each(|node| {
        line(out, depth, &printable(&node.leaf), node.device, Some(node.median_ns))?;
        nested(out, &node.children, depth + 1)
    })
}

/// What `simpler check` prints: a fact a line.
///
/// # Errors
/// As `out`.
pub fn facts(out: &mut impl Write, reading: &Reading, facts: &Facts) -> io::Result<()> {
    let counts = reading.trace.counts();
    let rows: [(&str, u64, &str); 23] = [
        ("heads", counts.heads, "span records, whole or not"),
        ("spans", facts.spans as u64, "whole span records, repeats left out"),
        ("torn", counts.torn, "cut or glued"),
        ("malformed", counts.malformed, "a field outside the grammar"),
        ("unknown version", counts.unknown_version, "of a version other than 1"),
        ("duplicates", counts.duplicates, "repeat an earlier record"),
        ("dropped", facts.dropped, "lost before they reached the log"),
        ("joined lines", counts.joined_lines, "lines with more than one record"),
        ("cut records", counts.truncated_records, "by their writer, at the length limit"),
        ("cut fields", counts.truncated_fields, "names and attributes, by their writer"),
        ("damaged anchors", counts.damaged_anchors, "give no wall time"),
        ("damaged reports", counts.damaged_drop_reports, "of drops, and what they counted is not known"),
        ("unreadable", counts.unreadable, "sources that could not be read to their end"),
        ("process lives", facts.process_lives as u64, ""),
        ("anchors", facts.anchors as u64, "lives with wall time"),
        ("callables", facts.callables as u64, ""),
        ("invocations", facts.invocations as u64, ""),
        ("missing root", facts.missing_root as u64, "invocations without their whole duration"),
        ("orphans", facts.orphans as u64, "spans whose parent is missing"),
        ("device spans", facts.device_spans as u64, ""),
        ("scheduler spans", facts.scheduler as u64, ""),
        ("external spans", facts.external as u64, ""),
        ("incomplete rounds", facts.incomplete_rounds as u64, "rounds that lack a rank or a root"),
    ];
    for (name, value, meaning) in rows {
        match meaning {
            "" => writeln!(out, "{name:<18}{value:>10}")?,
            _ => writeln!(out, "{name:<18}{value:>10}  {meaning}")?,
        }
    }
    let verdict = if facts.lossy { "records are lost: see above" } else { "nothing is known to be lost" };
    writeln!(out, "{verdict}")
}
