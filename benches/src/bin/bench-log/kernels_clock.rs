//! The same burst with the kernel's clock in place of the processor's counter: what a span costs where the counter
//! is no clock. The clock is chosen once per process, so this is a process of its own.

use std::process::{Command, Stdio};

use simpler_benches::{median_ratio, pin_to_cpu};

use crate::own::HostLog;
use crate::subject::{Tally, undisturbed};
use crate::{BURST, Failure, floor};

/// First argument of the process.
pub(crate) const CHILD: &str = "--kernels-clock";
/// Makes the log read the kernel's clock.
const CLOCK: (&str, &str) = ("SIMPLER_LOG_CLOCK", "gettime");
/// Rounds, fewer than of the main figures: the ratio's middle is steady.
const REPETITIONS: usize = 100;

/// The ratio of a burst with the kernel's clock to F.
pub(crate) fn ratio_burst() -> Result<f64, Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(CHILD).env(CLOCK.0, CLOCK.1).stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = command.output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let ratio =
        text.trim().parse().map_err(|_| format!("the process with the kernel's clock said {text:?}"))?;
    Ok(ratio)
}

/// The process: prints the ratio.
pub(crate) fn produce() -> Result<(), Failure> {
    let folder = std::env::temp_dir().join(format!("simpler-bench-log-clock.{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let mut host_log = HostLog::open(&folder)?;
    let ratio = std::thread::scope(|scope| {
        let measured = scope.spawn(|| {
            pin_to_cpu(0);
            measure(&mut host_log).map_err(|why| why.to_string())
        });
        measured.join()
    });
    host_log.close();
    // The log of a benchmark is of no further use.
    let _ = std::fs::remove_dir_all(&folder);
    println!("{}", ratio.map_err(|_| "the measuring thread panicked")??);
    Ok(())
}

fn measure(host_log: &mut HostLog) -> Result<f64, Failure> {
    let (mut bursts, mut floors) = (Vec::new(), Vec::new());
    let mut tally = Tally::default();
    for _ in 0..REPETITIONS {
        let before_ns = floor::burst_ns(BURST);
        bursts.push(undisturbed(host_log, &mut tally, |log| log.burst_with_cpu(BURST))?.ns);
        floors.push(f64::midpoint(before_ns, floor::burst_ns(BURST)));
    }
    Ok(median_ratio(&bursts, &floors))
}
