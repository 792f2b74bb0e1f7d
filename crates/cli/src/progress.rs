//! A bar that says how far a long reading is, where somebody looks at a terminal.
//!
//! A thread of its own looks at the reader's counters and draws; it is gone, and the bar erased, before anything is
//! printed. Without a terminal there is neither thread nor counter.

use simpler_trace_ingest::Progress;
use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Whoever has the answer by then needs no bar.
const QUIET: Duration = Duration::from_secs(1);

/// As often as an eye follows.
const REDRAW: Duration = Duration::from_millis(100);

/// The bar's width: with all that stands beside it a line fits on any terminal.
const CELLS: u64 = 20;

/// Reads, with a bar on the terminal if there is one.
pub(crate) fn with_bar<T>(terminal: Option<File>, read: impl FnOnce(Option<Arc<Progress>>) -> T) -> T {
    let Some(terminal) = terminal else { return read(None) };
    let progress = Arc::new(Progress::default());
    let (ends, end) = channel();
    let drawn = Arc::clone(&progress);
    let drawer =
        thread::Builder::new().name("progress".to_owned()).spawn(move || draw(&drawn, &end, terminal));
    let result = read(Some(progress));
    drop(ends);
    if let Ok(drawer) = drawer {
        // Should it have panicked, there is no bar to be erased.
        let _ = drawer.join();
    }
    result
}

/// Draws until the other end is dropped. Where nobody can see it, nothing is lost.
fn draw(progress: &Progress, end: &Receiver<()>, mut terminal: File) {
    let began = Instant::now();
    let mut pause = QUIET;
    while end.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
        pause = REDRAW;
        let line = line(progress.read_bytes(), progress.known_bytes(), began.elapsed());
        let _ = write!(terminal, "\r{line}\x1b[K");
    }
    if pause == REDRAW {
        let _ = write!(terminal, "\r\x1b[K");
    }
}

/// What is known, as a line.
fn line(read: u64, known: Option<u64>, elapsed: Duration) -> String {
    let mb = |bytes: u64| bytes as f64 / 1e6;
    let per_second = read as f64 / elapsed.as_secs_f64().max(f64::EPSILON);
    let speed = format!("{:.0} MB/s", per_second / 1e6);
    let Some(known) = known else { return format!("reading {:.1} MB, {speed}", mb(read)) };
    // A file may have grown meanwhile.
    let known = known.max(read);
    let share = read as f64 / known.max(1) as f64;
    let full = ((share * CELLS as f64) as u64).min(CELLS);
    let bar: String = (0..CELLS).map(|cell| if cell < full { '#' } else { '.' }).collect();
    let eta = match read {
        0 => String::new(),
        _ => format!(", {:.0} s left", (known - read) as f64 / per_second),
    };
    format!("reading [{bar}] {:.1} of {:.1} MB, {speed}{eta}", mb(read), mb(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_says_what_is_known() {
        let of = |read, known, seconds| line(read, known, Duration::from_secs(seconds));
        assert_eq!(
            of(500_000_000, Some(2_000_000_000), 2),
            "reading [#####...............] 500.0 of 2000.0 MB, 250 MB/s, 6 s left"
        );
        assert_eq!(of(1_500_000, None, 1), "reading 1.5 MB, 2 MB/s");
        assert_eq!(of(0, Some(10), 0), "reading [....................] 0.0 of 0.0 MB, 0 MB/s");
        let widest = of(u64::MAX, Some(1), u64::MAX);
        assert!(widest.starts_with("reading [####################] "), "{widest}");
    }
}
