//! `simpler stacks`: which spans are open in a process, by thread, and for how long.

use crate::{Console, Exit};
use serde_json::{Value, json};
use simpler_host_log::open_spans::{
    Found, OPEN_SPANS_MAX, Process, Thread, Whose, folder_of_rings, open_spans,
};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Prints the spans that are open just now, by process and thread
///
/// A span is in the log once it has ended, so a process that hangs says nothing there. This shows where it is: its
/// threads' open spans, the outermost first, each with how long it is open; the thread whose innermost span is the
/// oldest comes first. The process is not stopped and need not answer, and it may be dead, as long as nobody has
/// recovered its ring. Of a dead one nobody knows when it died: its spans were open at least as long as is said.
///
/// Not shown: a span's attributes, which are told when it ends; spans of C plugins and of foreign producers (ext.);
/// more than 16 nested spans of a thread; threads beyond the first 64 that have spans at the same time.
///
/// Processes are found in this user's folder of shared memory (SIMPLER_SHM, or /dev/shm). Exits 1 if there is no such
/// process.
#[derive(clap::Args)]
pub(crate) struct Stacks {
    /// A process's id, or the directory that holds the logs of the processes
    ///
    /// A directory whose name is a number is written as ./7.
    #[arg(value_name = "PID|DIR")]
    whose: PathBuf,
    /// Print one JSON object on one line
    #[arg(long)]
    json: bool,
}

impl Stacks {
    pub(crate) fn run(&self, console: &mut Console<'_>) -> anyhow::Result<Exit> {
        let pid = self.whose.to_str().and_then(|text| text.parse::<i32>().ok());
        let whose = match pid {
            Some(pid) if pid > 0 => Whose::Process(pid),
            Some(_) => return self.say_no(console, Exit::Unusable, "a process's id is greater than 0"),
            None if self.whose.is_dir() => Whose::Directory(&self.whose),
            None => {
                let sentence = format!("{} is neither a process's id nor a directory", self.whose.display());
                return self.say_no(console, Exit::Unusable, &sentence);
            }
        };
        let found = match open_spans(whose) {
            Ok(found) => found,
            Err(error) => return self.say_no(console, Exit::Unusable, &error.to_string()),
        };
        for (_, why) in &found.refused {
            console.err.say(why);
        }
        if found.processes.is_empty() {
            return self.say_no(console, Exit::No, &nothing_found(whose, &self.whose));
        }
        let mut out = BufWriter::new(&mut console.out);
        if self.json {
            writeln!(out, "{}", as_json(&found))?;
        } else {
            found.processes.iter().try_for_each(|process| print(&mut out, process))?;
        }
        out.flush()?;
        Ok(Exit::Fine)
    }

    fn say_no(&self, console: &mut Console<'_>, exit: Exit, sentence: &str) -> anyhow::Result<Exit> {
        if self.json {
            writeln!(console.out, "{}", json!({ "error": sentence })).and_then(|()| console.out.flush())?;
        }
        console.err.say(sentence);
        Ok(exit)
    }
}

fn nothing_found(whose: Whose<'_>, argument: &Path) -> String {
    let whose = match whose {
        Whose::Process(pid) => format!("of process {pid}"),
        Whose::Directory(_) => format!("of a process that logs to {}", argument.display()),
    };
    format!(
        "no ring {whose} in {}: it does not log, has closed its log, or has its ring elsewhere (SIMPLER_SHM)",
        folder_of_rings().display()
    )
}

fn print(out: &mut impl Write, process: &Process) -> io::Result<()> {
    let Process { pid, is_alive, is_of_this_namespace, log, threads, seen_ns, looked_ns } = process;
    if *is_alive {
        write!(out, "process {pid}, alive")?;
    } else {
        let ago = duration(looked_ns.saturating_sub(*seen_ns).unsigned_abs());
        write!(out, "process {pid}, dead, last seen alive {ago} ago")?;
    }
    if !is_of_this_namespace {
        write!(out, ", in another pid namespace")?;
    }
    if let Some(log) = log {
        write!(out, ", log {}", log.display())?;
    }
    writeln!(out)?;
    let ages: Vec<Vec<String>> = threads.iter().map(|thread| ages(process, thread)).collect();
    let width = ages.iter().flatten().map(String::len).max().unwrap_or(0);
    for (thread, ages) in threads.iter().zip(&ages) {
        write!(out, "  thread {}", thread.tid)?;
        if let Some(name) = &thread.name {
            write!(out, " {name}")?;
        }
        match (thread.spans.is_empty(), thread.is_changing) {
            (true, false) => writeln!(out, ": no span open")?,
            (true, true) => writeln!(out, ": only spans that are too short to be seen")?,
            (false, true) => writeln!(out, ", busy: further spans are too short to be seen")?,
            (false, false) => writeln!(out)?,
        }
        let mut invocation = None;
        for ((level, span), age) in thread.spans.iter().enumerate().zip(ages) {
            write!(out, "    {age:>width$}  {:indent$}{}", "", span.name, indent = 2 * level)?;
            if span.inv != 0 && invocation.replace(span.inv) != Some(span.inv) {
                write!(out, "  inv={} hid={:x}", span.inv, span.hid)?;
            }
            writeln!(out)?;
        }
        if thread.spans.len() == OPEN_SPANS_MAX {
            writeln!(out, "    {:>width$}  and whatever is nested deeper", "")?;
        }
    }
    if threads.is_empty() {
        writeln!(out, "  no span open")?;
    }
    Ok(())
}

/// How long the spans of `thread` are open.
fn ages(process: &Process, thread: &Thread) -> Vec<String> {
    let bound = if process.is_alive { "" } else { "at least " };
    thread.spans.iter().map(|span| format!("{bound}{}", duration(span.open_ns.unsigned_abs()))).collect()
}

/// A time for people: its two greatest units, or three digits.
fn duration(ns: u64) -> String {
    const SECOND: u64 = 1_000_000_000;
    let seconds = ns / SECOND;
    let three_digits = |unit_ns: u64, unit: &str| {
        let value = ns as f64 / unit_ns as f64;
        let decimals = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
        format!("{value:.decimals$} {unit}")
    };
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => three_digits(1_000, "us"),
        1_000_000..SECOND => three_digits(1_000_000, "ms"),
        _ if seconds < 60 => three_digits(SECOND, "s"),
        _ if seconds < 3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ if seconds < 86_400 => format!("{} h {} min", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

/// The stable interface for programs: keys are snake_case and end in their unit. What is not known has no key.
fn as_json(found: &Found) -> Value {
    let refused =
        found.refused.iter().map(|(path, why)| json!({ "path": path.to_string_lossy(), "why": why }));
    json!({
        "processes": found.processes.iter().map(process_as_json).collect::<Vec<_>>(),
        "refused": refused.collect::<Vec<_>>(),
    })
}

fn process_as_json(process: &Process) -> Value {
    let mut object = json!({
        "pid": process.pid,
        "alive": process.is_alive,
        "same_pid_namespace": process.is_of_this_namespace,
        "seen_ns": process.seen_ns,
        "looked_ns": process.looked_ns,
        "threads": process.threads.iter().map(|one| thread_as_json(process, one)).collect::<Vec<_>>(),
    });
    if let Some(log) = &process.log {
        object["log"] = json!(log.to_string_lossy());
    }
    object
}

fn thread_as_json(process: &Process, thread: &Thread) -> Value {
    // Of a dead process only the least is known.
    let open_key = if process.is_alive { "open_ns" } else { "open_min_ns" };
    let spans = thread.spans.iter().map(|span| {
        json!({
            "name": span.name,
            "inv": span.inv,
            // As the log writes it: 64 bits do not fit the numbers of every JSON reader.
            "hid": format!("{:x}", span.hid),
            "depth": span.depth,
            "since_ns": span.since_ns,
            open_key: span.open_ns,
        })
    });
    let mut object = json!({
        "tid": thread.tid,
        "changing": thread.is_changing,
        "spans": spans.collect::<Vec<_>>(),
    });
    if let Some(name) = &thread.name {
        object["name"] = json!(name);
    }
    object
}

#[cfg(test)]
mod tests {
    use super::duration;

    #[test]
    fn durations_have_the_unit_that_people_would_use() {
        for (ns, text) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_000, "1.00 us"),
            (12_345_678, "12.3 ms"),
            (999_400_000, "999 ms"),
            (1_500_000_000, "1.50 s"),
            (59_000_000_000, "59.0 s"),
            (61_000_000_000, "1 min 1 s"),
            (7_260_000_000_000, "2 h 1 min"),
            (90_000_000_000_000, "1 d 1 h"),
        ] {
            assert_eq!(duration(ns), text);
        }
    }
}
