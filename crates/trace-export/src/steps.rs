//! Steps over all ranks, as text and as JSON.

use crate::text::{MISSING, process_names, us_of};
use crate::writer::Json;
use simpler_trace_model::{AlignedBy, LateBy, Step, StepRun, Steps, Trace};
use std::borrow::Cow;
use std::io::{self, Write};

/// All that makes a rank late, with the keys of the JSON.
const LATE_BY: [(&str, LateBy); 3] =
    [("late_by_host", LateBy::Host), ("late_by_device", LateBy::Device), ("late_by_start", LateBy::Start)];

/// A figure of a step that a mean is taken of.
type Figure = fn(&Step) -> Option<i64>;

/// The figures in us, with their titles and keys.
const FIGURES: [(&str, &str, Figure); 6] = [
    ("Dur (us)", "critical_dur", |step| step.critical_run()?.dur_ns),
    ("Skew (us)", "skew", |step| step.skew_ns),
    ("Before (us)", "host_before", |step| step.critical_run()?.host_before_ns),
    ("Device (us)", "device", |step| step.critical_run()?.device_ns),
    ("Tail (us)", "host_tail", |step| step.critical_run()?.host_tail_ns),
    ("Gap (us)", "device_gap", |step| Some(step.critical_run()?.device_gap?.ns)),
];

fn shown(ns: Option<i64>) -> Cow<'static, str> {
    ns.map_or(MISSING.into(), |ns| us_of(ns).into())
}

/// The steps of a callable, one a line, then the means over the complete ones, and which rank was late how often.
///
/// # Errors
/// As `out`.
pub fn text(out: &mut (impl Write + ?Sized), trace: &Trace, steps: &Steps) -> io::Result<()> {
    let names = process_names(trace);
    let ranks: Vec<&str> = steps.ranks.iter().map(|rank| &*names[rank.life as usize]).collect();
    let width = ranks.iter().map(|name| name.chars().count()).max().unwrap_or(0).max("Critical".len());
    let aligned = match steps.aligned_by {
        AlignedBy::RunId => "aligned by run_id",
        AlignedBy::Order => "aligned by order",
    };
    let (hid, label, n) = (steps.hid, &steps.label, steps.steps.len());
    writeln!(out, "callable hid={hid:x} ({label}) — {n} step(s) of {} rank(s), {aligned}", ranks.len())?;
    let mut header = format!("  {:<6}  {:>5}  {:>12}  {:>width$}", "Step", "Ranks", "Start (ms)", "Critical");
    for (title, ..) in FIGURES {
        header.push_str(&format!("  {title:>12}"));
    }
    header.push_str("  Late by");
    writeln!(out, "{header}")?;
    writeln!(out, "  {}", "-".repeat(header.chars().count() - 2))?;
    for (number, step) in steps.steps.iter().enumerate() {
        let start = step.start_ns.map_or(MISSING.into(), |ns| format!("{:.3}", ns as f64 / 1e6));
        let critical = step.critical_run().map_or(MISSING, |run| ranks[run.rank]);
        let rooted = step.runs.iter().filter(|run| run.dur_ns.is_some()).count();
        write!(out, "  {number:<6}  {rooted:>5}  {start:>12}  {critical:>width$}")?;
        for (.., figure) in FIGURES {
            write!(out, "  {:>12}", shown(figure(step)))?;
        }
        let late = step.excess.late_by().map_or(MISSING, LateBy::word);
        match step.complete {
            true => writeln!(out, "  {late}")?,
            false => writeln!(out, "  {late:<7}  incomplete")?,
        }
    }

    let complete = steps.complete().count();
    write!(out, "  {:<width$}", format!("Mean of {complete} complete"), width = 6 + 5 + 12 + width + 6)?;
    for (.., figure) in FIGURES {
        write!(out, "  {:>12}", shown(steps.mean(figure).map(|(mean, _)| mean)))?;
    }
    writeln!(out)?;
    for (title, _, figure) in FIGURES {
        if let Some((_, n)) = steps.mean(figure).filter(|&(_, n)| n < complete) {
            writeln!(out, "  {title}: the mean is of the {n} complete step(s) that have it")?;
        }
    }
    match n - complete {
        0 => {}
        lacking => writeln!(out, "  {lacking} step(s) lack a rank or its root, and are in no mean")?,
    }
    match steps.runs_apart {
        0 => {}
        apart => writeln!(out, "  {apart} run(s) do not say which step they are of, and are in none")?,
    }
    if steps.sessions > 1 {
        let sessions = steps.sessions;
        writeln!(
            out,
            "  The ranks are of {sessions} sessions, one after the other, and aligned with each other: read one at a time"
        )?;
    }
    if ranks.len() > 1 {
        writeln!(out)?;
        writeln!(
            out,
            "  {:<width$}  {:>12}  {:>12}  {:>8}  {:>8}  {:>8}",
            "Rank", "Critical", "Excess (us)", "Host", "Device", "Start"
        )?;
        for (rank, name) in steps.ranks.iter().zip(&ranks) {
            write!(out, "  {name:<width$}  {:>12}", format!("{}/{complete}", rank.critical))?;
            write!(out, "  {:>12}", shown(rank.excess_mean_ns))?;
            for (_, by) in LATE_BY {
                write!(out, "  {:>8}", rank.late_by(by))?;
            }
            writeln!(out)?;
        }
    }
    writeln!(out)
}

/// The value of `steps` in the figures: all callables that have any.
pub(crate) fn json<W: Write>(json: &mut Json<W>, trace: &Trace, all: &[Steps]) -> io::Result<()> {
    json.array(|json| all.iter().try_for_each(|steps| of_callable(json, trace, steps)))
}

fn of_callable<W: Write>(json: &mut Json<W>, trace: &Trace, steps: &Steps) -> io::Result<()> {
    json.object(|json| {
        json.key("hid")?;
        json.hex(steps.hid)?;
        json.key("label")?;
        json.text(&steps.label)?;
        json.key("aligned_by")?;
        json.text(match steps.aligned_by {
            AlignedBy::RunId => "run_id",
            AlignedBy::Order => "order",
        })?;
        json.key("complete")?;
        json.integer(steps.complete().count())?;
        json.key("incomplete")?;
        json.integer(steps.steps.iter().filter(|step| !step.complete).count())?;
        json.key("runs_apart")?;
        json.integer(steps.runs_apart)?;
        json.key("sessions")?;
        json.integer(steps.sessions)?;
        for (_, key, figure) in FIGURES {
            if let Some((mean, n)) = steps.mean(figure) {
                json.key_text(&format!("{key}_n"))?;
                json.integer(n)?;
                json.key_text(&format!("{key}_mean_ns"))?;
                json.integer(mean)?;
            }
        }
        json.key("ranks")?;
        json.array(|json| {
            steps.ranks.iter().try_for_each(|rank| {
                json.object(|json| {
                    process(json, trace, "", rank.life)?;
                    json.key("critical")?;
                    json.integer(rank.critical)?;
                    optional(json, "excess_mean_ns", rank.excess_mean_ns)?;
                    LATE_BY.into_iter().try_for_each(|(key, by)| {
                        json.key(key)?;
                        json.integer(rank.late_by(by))
                    })
                })
            })
        })?;
        json.key("steps")?;
        json.array(|json| {
            steps.steps.iter().enumerate().try_for_each(|(number, one)| {
                json.object(|json| {
                    json.key("step")?;
                    json.integer(number)?;
                    step(json, trace, steps, one)
                })
            })
        })
    })
}

fn step<W: Write>(json: &mut Json<W>, trace: &Trace, steps: &Steps, step: &Step) -> io::Result<()> {
    optional(json, "run_id", step.run_id)?;
    json.key("complete")?;
    json.boolean(step.complete)?;
    optional(json, "start_ns", step.start_ns)?;
    if let Some(run) = step.critical_run() {
        json.key("critical_rank")?;
        json.integer(run.rank)?;
        json.key("critical_pid")?;
        json.integer(trace.lives()[steps.ranks[run.rank].life as usize].pid)?;
    }
    for (_, key, figure) in FIGURES {
        optional(json, &format!("{key}_ns"), figure(step))?;
    }
    if let Some(by) = step.excess.late_by() {
        json.key("late_by")?;
        json.text(by.word())?;
    }
    optional(json, "start_excess_ns", step.excess.start_ns)?;
    optional(json, "host_excess_ns", step.excess.host_ns)?;
    optional(json, "device_excess_ns", step.excess.device_ns)?;
    json.key("runs")?;
    json.array(|json| step.runs.iter().try_for_each(|one| run(json, one)))
}

fn run<W: Write>(json: &mut Json<W>, run: &StepRun) -> io::Result<()> {
    json.object(|json| {
        json.key("rank")?;
        json.integer(run.rank)?;
        json.key("inv")?;
        json.integer(run.inv)?;
        optional(json, "root_ts_ns", run.start_ns)?;
        optional(json, "dur_ns", run.dur_ns)?;
        optional(json, "host_before_ns", run.host_before_ns)?;
        optional(json, "device_ns", run.device_ns)?;
        optional(json, "host_tail_ns", run.host_tail_ns)?;
        optional(json, "device_gap_ns", run.device_gap.map(|gap| gap.ns))?;
        optional(json, "device_gap_error_ns", run.device_gap.map(|gap| gap.error_ns))
    })
}

/// A key with its value, where there is one.
pub(crate) fn optional<W: Write>(json: &mut Json<W>, key: &str, value: Option<i64>) -> io::Result<()> {
    let Some(value) = value else { return Ok(()) };
    json.key_text(key)?;
    json.integer(value)
}

/// `<prefix>life`, `<prefix>pid` and, where the log names several, `<prefix>host`. Lives of one pid differ in the first.
pub(crate) fn process<W: Write>(
    json: &mut Json<W>,
    trace: &Trace,
    prefix: &str,
    life: u32,
) -> io::Result<()> {
    let of = &trace.lives()[life as usize];
    json.key_text(&format!("{prefix}life"))?;
    json.integer(life)?;
    json.key_text(&format!("{prefix}pid"))?;
    json.integer(of.pid)?;
    match trace.host_label(of) {
        Some(host) => {
            json.key_text(&format!("{prefix}host"))?;
            json.text(&host)
        }
        None => Ok(()),
    }
}
