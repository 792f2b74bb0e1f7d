//! What reading a log costs: the binary `simpler` on generated logs, beside `grep -c STRACE` on the same file.
//!
//! CPU seconds and the largest resident set are the kernel's account of the process (`wait4`), so nothing of the
//! measuring is in them. Each command runs several times, in turns with `grep`, and the median counts.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::{gen_log, steps, target_dir};

/// Runs of each command.
const RUNS: usize = 7;

/// The sizes of the logs in millions of bytes. The table's cost by the byte should be the same on all.
const SIZES_MB: [u64; 3] = [10, 100, 1_000];

/// On which of them the pictures are written.
const PICTURE_MB: u64 = 100;

/// What a run of a command cost.
#[derive(Clone, Copy)]
struct Cost {
    cpu_s: f64,
    wall_s: f64,
    peak_rss_mb: f64,
}

/// Measures the table and the pictures.
pub(crate) fn bench(as_json: bool) -> Result<()> {
    steps::build_release()?;
    let simpler = target_dir()?.join("release/simpler");
    let folder = target_dir()?.join("bench-timing");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let log = |mb: u64| folder.join(format!("{mb}.log"));
    let picture = folder.join("picture.json");
    let result = measure(&simpler, &log, &picture);
    for file in SIZES_MB.into_iter().map(log).chain([picture]) {
        let _ = fs::remove_file(file);
    }
    let found = result?;
    if as_json {
        println!("{found}");
    } else {
        println!("{found:#}");
    }
    Ok(())
}

fn measure(simpler: &Path, log: &dyn Fn(u64) -> PathBuf, picture: &Path) -> Result<Value> {
    let mut by_size = Vec::new();
    let mut table = Value::Null;
    for mb in SIZES_MB {
        gen_log::gen_log(mb, &log(mb))?;
        let arguments = ["timing".into(), log(mb).into_os_string()];
        let found = beside_grep(simpler, &arguments, &log(mb))?;
        by_size.push(
            json!({ "mb": mb, "cpu_ms_per_mb": 1e3 / found["mb_per_cpu_s"].as_f64().unwrap_or(f64::NAN) }),
        );
        table = found;
    }
    table["by_size"] = Value::Array(by_size);
    let draw = |option: &str| {
        let arguments = [
            "timing".into(),
            log(PICTURE_MB).into_os_string(),
            option.into(),
            picture.as_os_str().to_owned(),
        ];
        beside_grep(simpler, &arguments, &log(PICTURE_MB))
    };
    let (trace_out, swimlane) = (draw("--trace-out")?, draw("--swimlane")?);
    Ok(json!({ "bytes": table["bytes"], "table": table, "trace_out": trace_out, "swimlane": swimlane }))
}

/// A command on a log, and `grep` on it in turns.
fn beside_grep(simpler: &Path, arguments: &[std::ffi::OsString], log: &Path) -> Result<Value> {
    let bytes = fs::metadata(log)?.len();
    let (mut own, mut grep) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        grep.push(cost(Command::new("grep").args(["-c", "STRACE"]).arg(log).env("LC_ALL", "C"), log)?);
        own.push(cost(Command::new(simpler).args(arguments), log)?);
    }
    let (own, grep) = (median(own), median(grep));
    Ok(json!({
        "bytes": bytes,
        "mb_per_cpu_s": bytes as f64 / 1e6 / own.cpu_s,
        "peak_rss_mb": own.peak_rss_mb,
        "cpu_vs_grep": own.cpu_s / grep.cpu_s,
        "cpu_s": own.cpu_s,
        "wall_s": own.wall_s,
        "wall_vs_cpu": own.wall_s / own.cpu_s,
        "grep_cpu_s": grep.cpu_s,
    }))
}

/// The run with the middle CPU time, with the largest of all resident sets.
fn median(mut runs: Vec<Cost>) -> Cost {
    let peak_rss_mb = runs.iter().map(|run| run.peak_rss_mb).fold(0.0, f64::max);
    runs.sort_by(|a, b| a.cpu_s.total_cmp(&b.cpu_s));
    Cost { peak_rss_mb, ..runs[runs.len() / 2] }
}

/// Runs a command to its end. Its output goes to a file beside the log: `grep` stops at the first match where nobody
/// reads the count.
fn cost(command: &mut Command, log: &Path) -> Result<Cost> {
    let output = log.with_extension("out");
    let child = command
        .stdin(Stdio::null())
        .stdout(File::create(&output).with_context(|| format!("cannot write {}", output.display()))?)
        .stderr(Stdio::null());
    let start = Instant::now();
    let child = child.spawn().with_context(|| format!("cannot start {command:?}"))?;
    let (status, usage) = wait4(child.id() as i32)?;
    let wall_s = start.elapsed().as_secs_f64();
    let _ = fs::remove_file(&output);
    if status != 0 {
        bail!("{command:?} ended with the status {status:#x}");
    }
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    Ok(Cost {
        cpu_s: seconds(usage.ru_utime) + seconds(usage.ru_stime),
        wall_s,
        // In KiB.
        peak_rss_mb: usage.ru_maxrss as f64 * 1024.0 / 1e6,
    })
}

/// Waits for a child, and says how it ended and what it used.
fn wait4(pid: i32) -> Result<(i32, libc::rusage)> {
    let mut status = 0;
    // SAFETY: a rusage is plain numbers, for which 0 is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to variables of their types, which outlive the call.
    let waited = unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut usage) };
    if waited != pid {
        bail!("wait4: {}", std::io::Error::last_os_error());
    }
    Ok((status, usage))
}
