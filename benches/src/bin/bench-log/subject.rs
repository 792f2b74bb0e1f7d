//! What is measured of every library alike: a burst, single spans, and how fast it writes what it took.
//!
//! Each measurement begins with an empty queue and the library's writer just awake, and nothing of a measurement
//! is left over for the next.

use std::time::{Duration, Instant};

use simpler_benches::Latency;

use crate::Failure;

/// Longest wait for a writer.
pub(crate) const SETTLE: Duration = Duration::from_secs(10);
/// Untimed spans before every measurement: code, thread and writer are warm then.
const WARM_UP: usize = 64;
/// How often a measurement in which a record was dropped is made anew before the benchmark gives up.
const TRIES: usize = 50;

/// A library that takes spans and writes a line for each.
pub(crate) trait Subject: Send {
    fn name(&self) -> &'static str;

    /// Opens and closes so many spans, one after the other; gives ns per span.
    fn burst(&mut self, spans: usize) -> f64;

    /// Opens and closes so many spans and times each alone.
    fn singles(&mut self, spans: usize, latency: &mut Latency);

    /// Waits until all spans so far are in the file.
    fn settle(&mut self) -> Result<(), Failure>;

    /// How many spans never came to be written so far.
    fn lost(&self) -> u64;

    /// Spans a second, from the first opened to the last in the file.
    fn drain(&mut self, spans: usize) -> Result<f64, Failure> {
        warm_up(self)?;
        let start = Instant::now();
        self.burst(spans);
        self.settle()?;
        Ok(spans as f64 / start.elapsed().as_secs_f64())
    }
}

fn warm_up(subject: &mut (impl Subject + ?Sized)) -> Result<(), Failure> {
    subject.burst(WARM_UP);
    subject.settle()
}

/// Measures with an empty queue before, and leaves one behind.
pub(crate) fn settled<S: Subject + ?Sized, T>(
    subject: &mut S,
    measure: impl FnOnce(&mut S) -> T,
) -> Result<T, Failure> {
    warm_up(subject)?;
    let value = measure(subject);
    subject.settle()?;
    Ok(value)
}

/// Measures until nothing was lost meanwhile; `retried` counts what was thrown away.
pub(crate) fn lossless<S: Subject, T>(
    subject: &mut S,
    retried: &mut usize,
    mut measure: impl FnMut(&mut S) -> T,
) -> Result<T, Failure> {
    for _ in 0..TRIES {
        let before = subject.lost();
        let value = settled(subject, &mut measure)?;
        if subject.lost() == before {
            return Ok(value);
        }
        *retried += 1;
    }
    Err(format!("{} lost records in each of {TRIES} tries", subject.name()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Loses a span in each of its first `losing` bursts beyond the warm-up.
    struct Leaky {
        losing: usize,
        lost: u64,
        pending: usize,
    }

    impl Subject for Leaky {
        fn name(&self) -> &'static str {
            "leaky"
        }

        fn burst(&mut self, spans: usize) -> f64 {
            self.pending += spans;
            if spans != WARM_UP && self.losing > 0 {
                self.losing -= 1;
                self.lost += 1;
            }
            1.0
        }

        fn singles(&mut self, _: usize, _: &mut Latency) {}

        fn settle(&mut self) -> Result<(), Failure> {
            self.pending = 0;
            Ok(())
        }

        fn lost(&self) -> u64 {
            self.lost
        }
    }

    #[test]
    fn a_measurement_that_lost_a_record_is_made_again_and_counted() {
        let mut leaky = Leaky { losing: 2, lost: 0, pending: 0 };
        let mut retried = 0;
        let value = lossless(&mut leaky, &mut retried, |leaky| leaky.burst(10)).expect("the third holds");
        assert_eq!((value, retried, leaky.lost(), leaky.pending), (1.0, 2, 2, 0));
    }

    #[test]
    fn a_subject_that_always_loses_is_an_error_and_no_figure() {
        let mut leaky = Leaky { losing: usize::MAX, lost: 0, pending: 0 };
        let mut retried = 0;
        assert!(lossless(&mut leaky, &mut retried, |leaky| leaky.burst(10)).is_err());
        assert_eq!(retried, TRIES);
    }

    #[test]
    fn a_measurement_starts_with_an_empty_queue() {
        let mut leaky = Leaky { losing: 0, lost: 0, pending: 7 };
        let pending = settled(&mut leaky, |leaky| leaky.pending).expect("it settles");
        assert_eq!(pending, 0);
    }
}
