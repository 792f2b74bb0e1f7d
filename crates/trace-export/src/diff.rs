//! Two logs against each other, as text and as JSON.

use crate::text::{printable, us_of};
use crate::writer::Json;
use simpler_trace_model::{CallableChange, Change, Diff, Matched, Side, StageChange, StageVerdict};
use std::io::{self, Write};

/// What stands for a figure that there is none of.
const MISSING: &str = "–";

/// The table: for each callable its stages with both medians, the change between them and the noise of either side;
/// then the verdict in all.
///
/// # Errors
/// As `out`.
pub fn text(out: &mut (impl Write + ?Sized), diff: &Diff) -> io::Result<()> {
    for callable in &diff.callables {
        let CallableChange { base_hid, new_hid, label, matched, .. } = callable;
        let label = printable(label);
        match matched {
            Matched::Hid => writeln!(out, "callable hid={base_hid:x} ({label})")?,
            Matched::Label => writeln!(
                out,
                "callable hid={base_hid:x} → hid={new_hid:x} ({label}; another hid, matched by the part that it plays)"
            )?,
        }
        let width = callable.stages.iter().map(|stage| stage.name.chars().count()).max().unwrap_or(0);
        writeln!(
            out,
            "  {:<width$}  {:>12}  {:>12}  {:>8}  {:>19}  {:>13}  {:>11}",
            "Stage (median us)",
            "Base",
            "New",
            "Change",
            "Interval",
            "Noise",
            "n",
            width = width.max("Stage (median us)".len()),
        )?;
        for stage in &callable.stages {
            row(out, stage, width.max("Stage (median us)".len()))?;
        }
        for (which, names) in [("the base", &callable.only_base), ("the new log", &callable.only_new)] {
            for name in names {
                writeln!(out, "  {}: only in {which}", printable(name))?;
            }
        }
        writeln!(out)?;
    }
    for (which, hids) in [("the base", &diff.only_base), ("the new log", &diff.only_new)] {
        for hid in hids {
            writeln!(out, "callable hid={hid:x}: only in {which}")?;
        }
    }
    let count = |wanted: StageVerdict| {
        let stages = diff.callables.iter().flat_map(|callable| &callable.stages);
        stages.filter(|stage| stage.verdict == wanted).count()
    };
    writeln!(
        out,
        "verdict: {} — of {} compared stage(s) {} regressed, {} regressed by less than {:.1}%, {} improved; all \
         intervals hold together with 95% confidence",
        diff.verdict.word(),
        diff.compared,
        count(StageVerdict::Regression),
        count(StageVerdict::Tolerated),
        diff.max_regression * 100.0,
        count(StageVerdict::Improvement),
    )
}

fn row(out: &mut (impl Write + ?Sized), stage: &StageChange, width: usize) -> io::Result<()> {
    let (change, interval) = match stage.change {
        Some(Change { estimate, low, high }) => {
            (format!("{:+.1}%", estimate * 100.0), format!("[{:+.1}%, {:+.1}%]", low * 100.0, high * 100.0))
        }
        None => (MISSING.to_owned(), MISSING.to_owned()),
    };
    let noise =
        |side: &Side| side.noise.map_or_else(|| MISSING.to_owned(), |noise| format!("{:.1}%", noise * 100.0));
    writeln!(
        out,
        "  {:<width$}  {:>12}  {:>12}  {change:>8}  {interval:>19}  {:>13}  {:>11}  {}",
        printable(&stage.name),
        us_of(stage.base.median_ns.round() as i64),
        us_of(stage.new.median_ns.round() as i64),
        format!("{}/{}", noise(&stage.base), noise(&stage.new)),
        format!("{}/{}", stage.base.n, stage.new.n),
        stage.verdict.word().replace('_', " "),
    )
}

/// The same as one object on one line.
///
/// # Errors
/// As `out`.
pub fn json(out: &mut (impl Write + ?Sized), diff: &Diff) -> io::Result<()> {
    let mut json = Json::new(&mut *out);
    json.object(|json| {
        json.key("verdict")?;
        json.text(diff.verdict.word())?;
        json.key("compared")?;
        json.integer(diff.compared)?;
        json.key("max_regression_pct")?;
        json.float(diff.max_regression * 100.0)?;
        json.key("interval_confidence_pct")?;
        json.float(diff.confidence * 100.0)?;
        json.key("callables")?;
        json.array(|json| diff.callables.iter().try_for_each(|one| callable(json, one)))?;
        for (key, hids) in [("only_base", &diff.only_base), ("only_new", &diff.only_new)] {
            json.key(key)?;
            json.array(|json| hids.iter().try_for_each(|&hid| json.hex(hid)))?;
        }
        Ok(())
    })?;
    json.end_line()
}

fn callable<W: Write>(json: &mut Json<W>, of: &CallableChange) -> io::Result<()> {
    json.object(|json| {
        json.key("base_hid")?;
        json.hex(of.base_hid)?;
        json.key("new_hid")?;
        json.hex(of.new_hid)?;
        json.key("label")?;
        json.text(&of.label)?;
        json.key("matched_by")?;
        json.text(match of.matched {
            Matched::Hid => "hid",
            Matched::Label => "label",
        })?;
        json.key("stages")?;
        json.array(|json| of.stages.iter().try_for_each(|one| stage(json, one)))?;
        for (key, names) in [("only_base", &of.only_base), ("only_new", &of.only_new)] {
            json.key(key)?;
            json.array(|json| names.iter().try_for_each(|name| json.text(name)))?;
        }
        Ok(())
    })
}

fn stage<W: Write>(json: &mut Json<W>, of: &StageChange) -> io::Result<()> {
    json.object(|json| {
        json.key("name")?;
        json.text(&of.name)?;
        json.key("device")?;
        json.boolean(of.device)?;
        json.key("verdict")?;
        json.text(of.verdict.word())?;
        for (key, side) in [("base", &of.base), ("new", &of.new)] {
            json.key_text(&format!("{key}_n"))?;
            json.integer(side.n)?;
            json.key_text(&format!("{key}_median_ns"))?;
            json.float(side.median_ns)?;
            if let Some(noise) = side.noise {
                json.key_text(&format!("{key}_noise_pct"))?;
                json.float(noise * 100.0)?;
            }
        }
        let Some(Change { estimate, low, high }) = of.change else { return Ok(()) };
        for (key, share) in [("change_pct", estimate), ("change_low_pct", low), ("change_high_pct", high)] {
            json.key(key)?;
            json.float(share * 100.0)?;
        }
        Ok(())
    })
}
