//! What is measured of every library alike: a burst, single spans, and how fast it writes what it took.
//!
//! Each measurement begins with an empty queue and the library's writer just awake, and nothing of a measurement
//! is left over for the next.

use std::time::{Duration, Instant};

use simpler_benches::{Latency, preemptions};

use crate::Failure;

/// Longest wait for a writer.
pub(crate) const SETTLE: Duration = Duration::from_secs(10);
/// Untimed spans before every measurement: code, thread and writer are warm then.
const WARM_UP: usize = 64;
/// How often a measurement in which a record was dropped is made before the benchmark gives up.
const LOSSY_TRIES: usize = 50;
/// How often one in which the producer lost its CPU is made before it counts all the same.
const PREEMPTED_TRIES: usize = 10;

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

    /// Why, for people, where that is known; with a space before it.
    fn why_lost(&self) -> String {
        String::new()
    }

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

/// Measurements that were made again, and why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// A record was dropped meanwhile.
    pub(crate) lossy: usize,
    /// The kernel gave the producer's CPU to another thread meanwhile.
    pub(crate) preempted: usize,
    /// Measurements that count although that happened, since it happened at every try.
    pub(crate) preempted_kept: usize,
}

/// Measures, and says whether the kernel took the CPU from this thread meanwhile.
pub(crate) fn watched<T>(measure: impl FnOnce() -> T) -> (T, bool) {
    let before = preemptions();
    let value = measure();
    (value, preemptions() != before)
}

/// Measures until the CPU was not taken meanwhile, but only so often; gives the last value, and how often it was.
pub(crate) fn until_kept<T>(mut measure: impl FnMut() -> (T, bool)) -> (T, usize) {
    let mut taken = 0;
    loop {
        let (value, is_taken) = measure();
        taken += usize::from(is_taken);
        if !is_taken || taken == PREEMPTED_TRIES {
            return (value, taken);
        }
    }
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

/// Measures a burst until the producer kept its CPU and nothing was lost.
pub(crate) fn undisturbed<S: Subject + ?Sized, T>(
    subject: &mut S,
    tally: &mut Tally,
    mut burst: impl FnMut(&mut S) -> T,
) -> Result<T, Failure> {
    let mut preempted = 0;
    let value = lossless(subject, tally, |subject| {
        let (value, taken) = until_kept(|| match settled(subject, |subject| watched(|| burst(subject))) {
            Ok((value, is_taken)) => (Ok(value), is_taken),
            Err(why) => (Err(why), false),
        });
        preempted = taken;
        value
    })??;
    tally.preempted += preempted;
    tally.preempted_kept += usize::from(preempted == PREEMPTED_TRIES);
    Ok(value)
}

/// Measures until nothing was lost meanwhile.
pub(crate) fn lossless<S: Subject + ?Sized, T>(
    subject: &mut S,
    tally: &mut Tally,
    mut measure: impl FnMut(&mut S) -> T,
) -> Result<T, Failure> {
    for _ in 0..LOSSY_TRIES {
        let before = subject.lost();
        let value = settled(subject, &mut measure)?;
        if subject.lost() == before {
            return Ok(value);
        }
        tally.lossy += 1;
    }
    let (name, why) = (subject.name(), subject.why_lost());
    Err(format!("{name} lost records in each of {LOSSY_TRIES} tries{why}").into())
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
        let mut tally = Tally::default();
        let value = lossless(&mut leaky, &mut tally, |leaky| leaky.burst(10)).expect("the third holds");
        assert_eq!((value, tally.lossy, leaky.lost(), leaky.pending), (1.0, 2, 2, 0));
    }

    #[test]
    fn a_subject_that_always_loses_is_an_error_and_no_figure() {
        let mut leaky = Leaky { losing: usize::MAX, lost: 0, pending: 0 };
        let mut tally = Tally::default();
        assert!(lossless(&mut leaky, &mut tally, |leaky| leaky.burst(10)).is_err());
        assert_eq!(tally.lossy, LOSSY_TRIES);
    }

    #[test]
    fn a_measurement_starts_with_an_empty_queue() {
        let mut leaky = Leaky { losing: 0, lost: 0, pending: 7 };
        let pending = settled(&mut leaky, |leaky| leaky.pending).expect("it settles");
        assert_eq!(pending, 0);
    }

    #[test]
    fn a_measurement_that_lost_its_cpu_is_made_again_but_not_for_ever() {
        let lost_until = |last: usize| {
            let mut measured = 0;
            until_kept(|| {
                measured += 1;
                (measured, measured <= last)
            })
        };
        assert_eq!(lost_until(0), (1, 0));
        assert_eq!(lost_until(2), (3, 2));
        assert_eq!(lost_until(usize::MAX), (PREEMPTED_TRIES, PREEMPTED_TRIES));
    }
}
