//! A producer whose log is a pipe: one that is read, and one that nobody reads.
//!
//! Both producers are processes of their own with the pipe as stderr, and emit at the same pace. The one is
//! measured while its writer keeps up. The other is measured once pipe and queue are full and spans are dropped:
//! it must not notice. They alternate, so that a slow minute slows both.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use simpler_benches::{Latency, median, pin_to_cpu};
use simpler_host_log as log;
use simpler_log_abi::Threshold;

use crate::Failure;

/// First argument of a producer's process; the second is `stalled` or `read`.
pub(crate) const CHILD: &str = "--producer-on-a-pipe";

/// Pairs of processes.
const ROUNDS: usize = 7;
/// Spans between two pauses, and the pause: a pipe that is read keeps up with that easily.
const BLOCK: usize = 256;
const PAUSE: Duration = Duration::from_millis(2);
/// How long a writer that was woken takes at most to be at work.
const AWAKE: Duration = Duration::from_micros(100);
/// Blocks that are timed, enough for a p99.9 of which dozens of spans lie above.
const BLOCKS: usize = 200;
/// What a pipe holds on Linux, which is more than a block's records need.
const PIPE_BYTES: usize = 64 * 1024;
/// How often a producer is run whose pipe was read too slowly, so that it dropped spans, too.
const READ_TRIES: usize = 5;
/// Longest time until the queue of a stalled producer is full.
const FULL: Duration = Duration::from_secs(10);

/// The two producers compared.
#[derive(Debug, Default)]
pub(crate) struct Stalled {
    pub(crate) stalled_p999_ns: f64,
    pub(crate) unstalled_p999_ns: f64,
    /// The middle of the rounds' own ratios.
    pub(crate) ratio: f64,
    /// Drops of all rounds by reason, in the order of the log's counters.
    pub(crate) stalled_drops: [u64; log::DropReason::ALL.len()],
    pub(crate) unstalled_dropped: u64,
}

/// Runs the producers in turn.
pub(crate) fn compare() -> Result<Stalled, Failure> {
    let mut result = Stalled::default();
    let (mut stalled, mut unstalled, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (read_p999, read_drops) = run_undropping_producer()?;
        let (full_p999, full_drops) = run_producer(false)?;
        unstalled.push(read_p999);
        stalled.push(full_p999);
        ratios.push(full_p999 / read_p999.max(1.0));
        result.unstalled_dropped += read_drops.iter().sum::<u64>();
        for (sum, drops) in result.stalled_drops.iter_mut().zip(full_drops) {
            *sum += drops;
        }
    }
    result.stalled_p999_ns = median(&mut stalled);
    result.unstalled_p999_ns = median(&mut unstalled);
    result.ratio = median(&mut ratios);
    Ok(result)
}

/// A producer on a pipe that is read, again while the machine is too busy to read it.
fn run_undropping_producer() -> Result<Answer, Failure> {
    let mut answer = run_producer(true)?;
    for _ in 1..READ_TRIES {
        if answer.1.iter().sum::<u64>() == 0 {
            break;
        }
        answer = run_producer(true)?;
    }
    Ok(answer)
}

type Answer = (f64, [u64; log::DropReason::ALL.len()]);

fn run_producer(is_read: bool) -> Result<Answer, Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args([CHILD, if is_read { "read" } else { "stalled" }]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let answer = hear(&mut child, is_read);
    // It has answered or never will.
    let _ = child.kill();
    child.wait()?;
    answer
}

/// The child's answer; its log is swallowed meanwhile, or left in the pipe.
fn hear(child: &mut Child, is_read: bool) -> Result<Answer, Failure> {
    let mut log_pipe = child.stderr.take().ok_or("no stderr")?;
    let mut stdout = child.stdout.take().ok_or("no stdout")?;
    let mut text = String::new();
    std::thread::scope(|scope| {
        if is_read {
            scope.spawn(|| swallow(&mut log_pipe));
        }
        stdout.read_to_string(&mut text)
    })?;
    parse_answer(&text).ok_or_else(|| format!("a producer on a pipe said {text:?}").into())
}

/// Reads to the end, now and then what has come meanwhile: a reader that woke for every record would take the
/// producer's CPU as often.
fn swallow(pipe: &mut impl Read) {
    let mut bytes = vec![0; PIPE_BYTES];
    while pipe.read(&mut bytes).is_ok_and(|read| read > 0) {
        std::thread::park_timeout(PAUSE / 4);
    }
}

/// `p999 drops drops …`, as [`produce`] prints it.
fn parse_answer(text: &str) -> Option<Answer> {
    let mut words = text.split_whitespace();
    let p999 = words.next()?.parse().ok()?;
    let mut drops = [0; log::DropReason::ALL.len()];
    for drop in &mut drops {
        *drop = words.next()?.parse().ok()?;
    }
    words.next().is_none().then_some((p999, drops))
}

/// The producer's process: prints its answer and ends at once, since a stalled log cannot be drained.
pub(crate) fn produce() -> ! {
    let is_stalled = std::env::args().nth(2).is_some_and(|argument| argument == "stalled");
    let status = match emit(is_stalled) {
        Ok((p999, drops)) => {
            println!("{p999} {}", drops.map(|count| count.to_string()).join(" "));
            0
        }
        // Not stderr: that is the pipe.
        Err(why) => {
            println!("{why}");
            1
        }
    };
    // SAFETY: nothing of this process is needed any more; exit handlers would wait for the pipe.
    unsafe { libc::_exit(status) }
}

fn emit(is_stalled: bool) -> Result<Answer, Failure> {
    log::init(&log::Config { threshold: Threshold::TIMING, directory: None, defer_writer: false })?;
    pin_to_cpu(0);
    let _run = log::Invocation::begin("simpler_run", 0x5eed);
    let span = |_: usize| {
        let _span = log::span!("simpler_run.bind");
    };
    let deadline = Instant::now() + FULL;
    while is_stalled && log::counts().dropped == 0 {
        (0..BLOCK).for_each(span);
        if Instant::now() > deadline {
            return Err("the queue of a stalled producer never filled".into());
        }
    }
    let mut latency = Latency::default();
    for _ in 0..BLOCKS {
        // Whoever is first after a pause wakes the writer; a stalled one is never asleep, so that does not count.
        span(0);
        spin(AWAKE);
        latency.time(BLOCK, span);
        pause();
    }
    Ok((latency.percentiles().p999, log::counts().by_reason))
}

/// Waits with the CPU kept.
fn spin(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// Lets the writer and the pipe's reader work.
fn pause() {
    let end = Instant::now() + PAUSE;
    while let Some(left) = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
        std::thread::park_timeout(left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_that_is_read_is_read_to_its_end() {
        let mut pipe = std::io::Cursor::new(vec![7; 3 * PIPE_BYTES + 1]);
        swallow(&mut pipe);
        assert_eq!(pipe.position(), 3 * PIPE_BYTES as u64 + 1);
    }

    #[test]
    fn an_answer_is_a_percentile_and_a_count_per_reason() {
        assert_eq!(parse_answer("120.5 1 2 3 4\n"), Some((120.5, [1, 2, 3, 4])));
        assert_eq!(parse_answer("120.5 1 2 3"), None);
        assert_eq!(parse_answer("120.5 1 2 3 4 5"), None);
        assert_eq!(parse_answer("the queue of a stalled producer never filled"), None);
    }
}
