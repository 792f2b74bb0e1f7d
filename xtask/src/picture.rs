//! The README's picture: one decode step of a demo, drawn from the demo's own trace.
//!
//! A lane is a thread of a process in `trace.json`; a row in it is a depth, so that children hang below parents.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

const WIDTH: f64 = 1000.0;
const LEFT: f64 = 120.0;
const ROW: f64 = 17.0;
const GAP: f64 = 8.0;
/// Pixels that a letter takes at the font's size, about.
const LETTER: f64 = 6.2;
const COLOURS: [&str; 8] =
    ["#9ecae1", "#fdd0a2", "#a1d99b", "#dadaeb", "#fcbba1", "#c7e9c0", "#d9d9d9", "#fee391"];

struct Drawn {
    name: String,
    start: f64,
    end: f64,
    row: usize,
}

/// Draws the step with this number (1 is the prefill) of `out/demo/trace.json` into `docs/pictures`.
pub(crate) fn picture(step: u64) -> Result<()> {
    let text = std::fs::read_to_string("out/demo/trace.json").context("run `cargo xtask demo` first")?;
    let trace: Value = serde_json::from_str(&text).context("out/demo/trace.json")?;
    let lanes = lanes(&trace, step);
    ensure!(!lanes.is_empty(), "the trace has no step {step}");
    let file = "docs/pictures/decode-step.svg";
    std::fs::create_dir_all("docs/pictures")?;
    std::fs::write(file, draw(&lanes)?)?;
    println!("Wrote {file}");
    Ok(())
}

/// The spans of one step: those of the chips by their invocation; the parent's submissions by time.
fn lanes(trace: &Value, step: u64) -> Vec<(String, Vec<Drawn>)> {
    let events = || trace["traceEvents"].as_array().into_iter().flatten();
    let window = |event: &Value| {
        let start = event["ts"].as_f64().unwrap_or(0.0);
        (start, start + event["dur"].as_f64().unwrap_or(0.0))
    };
    let of_chips = |event: &&Value| {
        event["ph"] == "X"
            && event["args"]["inv"] == step
            && event["name"].as_str().is_some_and(|name| name.starts_with("simpler_run"))
    };
    let chips: Vec<&Value> = events().filter(of_chips).collect();
    let first = chips.iter().map(|event| window(event).0).fold(f64::INFINITY, f64::min);
    let last = chips.iter().map(|event| window(event).1).fold(0.0, f64::max);
    // What the parent did from just before the step to just after it.
    let margin = (last - first) * 0.03;
    let of_parent = |event: &&Value| {
        let (start, end) = window(event);
        event["ph"] == "X"
            && event["name"].as_str().is_some_and(|name| name.starts_with("node."))
            && start >= first - margin
            && end <= last + margin
    };
    let mut pids = BTreeMap::new();
    let mut lanes: BTreeMap<(u64, u64), (String, Vec<Drawn>)> = BTreeMap::new();
    for event in events().filter(of_parent).chain(chips) {
        let (pid, tid) = (event["pid"].as_u64().unwrap_or(0), event["tid"].as_u64().unwrap_or(0));
        let name = event["name"].as_str().unwrap_or_default();
        let count = pids.len();
        let chip = if name.starts_with("node.") { 0 } else { *pids.entry(pid).or_insert(count) };
        let device = event["cat"] == "device";
        let title = match (name.starts_with("node."), device) {
            (true, _) => "L3 parent".to_owned(),
            (false, false) => format!("chip {chip}, host"),
            (false, true) => format!("chip {chip}, device"),
        };
        let depth = event["args"]["depth"].as_u64().unwrap_or(0) as usize;
        // The phases of all device threads hang below one wall, each kind in a row of its own.
        let tid = if device { u64::MAX } else { tid };
        let short = name.rsplit('.').next().unwrap_or(name).to_owned();
        let (start, end) = window(event);
        let lane = lanes.entry((pid, tid)).or_insert_with(|| (title, Vec::new()));
        let row = if device { device_row(&short) } else { depth };
        lane.1.push(Drawn { name: short, start, end, row });
    }
    lanes.into_values().collect()
}

/// Where a phase hangs, so that none covers another.
fn device_row(phase: &str) -> usize {
    match phase {
        "device_wall" => 0,
        "preamble" | "so_load" | "post_orch" => 1,
        "graph_build" => 2,
        "sched" => 4,
        _ => 3,
    }
}

fn draw(lanes: &[(String, Vec<Drawn>)]) -> Result<String> {
    let all = || lanes.iter().flat_map(|(_, spans)| spans);
    let start = all().map(|span| span.start).fold(f64::INFINITY, f64::min);
    let end = all().map(|span| span.end).fold(0.0, f64::max);
    let scale = (WIDTH - LEFT - 10.0) / (end - start).max(f64::MIN_POSITIVE);
    let mut body = String::new();
    let mut y = 30.0;
    let mut former = String::new();
    for (title, spans) in lanes {
        // A lane draws only the rows that it uses.
        let lowest = spans.iter().map(|span| span.row).min().unwrap_or(0);
        let rows = spans.iter().map(|span| span.row).max().unwrap_or(0) - lowest + 1;
        if *title != former {
            writeln!(body, r#"<text x="6" y="{:.1}" font-weight="bold">{title}</text>"#, y + 12.0)?;
            former.clone_from(title);
        }
        for span in spans {
            let x = LEFT + (span.start - start) * scale;
            let width = ((span.end - span.start) * scale).max(1.0);
            let top = y + (span.row - lowest) as f64 * ROW;
            let colour = COLOURS[span.name.bytes().map(usize::from).sum::<usize>() % COLOURS.len()];
            let label = format!("{} {:.1} µs", span.name, span.end - span.start);
            writeln!(
                body,
                r##"<rect x="{x:.1}" y="{top:.1}" width="{width:.1}" height="{:.1}" fill="{colour}" stroke="#555" stroke-width="0.4"><title>{label}</title></rect>"##,
                ROW - 1.5
            )?;
            if label.chars().count() as f64 * LETTER < width {
                writeln!(body, r#"<text x="{:.1}" y="{:.1}">{label}</text>"#, x + 3.0, top + 11.5)?;
            }
        }
        y += rows as f64 * ROW + GAP;
    }
    let mut axis = String::new();
    for tick in 0..=4 {
        let x = LEFT + (WIDTH - LEFT - 10.0) * f64::from(tick) / 4.0;
        let at = (end - start) * f64::from(tick) / 4.0 / 1000.0;
        writeln!(axis, r##"<line x1="{x:.1}" x2="{x:.1}" y1="20" y2="{y:.1}" stroke="#ddd"/>"##)?;
        let anchor = if tick == 4 { "end" } else { "start" };
        writeln!(axis, r#"<text x="{x:.1}" y="14" text-anchor="{anchor}">{at:.1} ms</text>"#)?;
    }
    Ok(format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y:.0}" font-family="sans-serif" font-size="11">
<rect width="100%" height="100%" fill="#fff"/>
{axis}{body}</svg>
"##
    ))
}
