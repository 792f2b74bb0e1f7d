//! Device spans on the host's axis: from anchors and the wall's cycle to a place and a bound.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod log;

use log::{Line, add, span};
use proptest::prelude::*;
use simpler_record_format::DeviceClockAnchor;
use simpler_trace_model::{DeviceClock, Moment, Placed, Trace, TraceBuilder};

const HZ: u64 = 50_000_000;

fn anchor(inv: u64, host_ns: i64, dev_cyc: u64, half_ns: u64) -> DeviceClockAnchor {
    DeviceClockAnchor { pid: 7, inv, host_ns, dev_cyc, dev_freq: HZ, half_ns }
}

/// A run of 1 ms whose wall begins at device time 0, with one window below it.
fn trace_of(wall: &'static str, anchors: &[DeviceClockAnchor], ts: i64, dur: i64) -> Trace {
    let line = |depth, name, ts, dur, attrs| Line { pid: 7, tid: 7, attrs, ..span(1, depth, name, ts, dur) };
    let mut builder = TraceBuilder::new();
    for line in [
        line(1, "simpler_run.runner_run", 1_000_100, 900_000, ""),
        line(2, "simpler_run.runner_run.device_wall", 0, 800_000, wall),
        line(3, "simpler_run.runner_run.device_wall.sched", ts, dur, "clk=dev"),
        line(0, "simpler_run", 1_000_000, 1_000_000, ""),
    ] {
        add(&mut builder, &line);
    }
    for anchor in anchors {
        builder.device_anchor(*anchor);
    }
    builder.finish()
}

fn placed(trace: &Trace, leaf: &str) -> Option<Placed> {
    let invocation = &trace.invocations()[0];
    let span = trace.spans().iter().find(|span| trace.name(span).leaf() == leaf).unwrap();
    Some(trace.alignment(invocation)?.place(trace, span))
}

#[test]
fn a_device_time_between_two_anchors_lies_between_their_moments_in_proportion() {
    // 45,000 cycles in 900,800 ns: the device is 889 ppm slow.
    let anchors = [anchor(1, 1_000_000, 5_000, 30), anchor(1, 1_900_800, 50_000, 90)];
    // Device time 0 is cycle 14,000, and 180,000 ns later is cycle 23,000: 0.2 and 0.4 of the way.
    let trace = trace_of("clk=dev org_cyc=14000", &anchors, 0, 180_000);
    // 0.4 of the way the brackets are 30 + 0.4 * 60, and a tick is 20 ns.
    let expected = Placed { start_ns: 1_180_160, end_ns: 1_360_320, error_ns: 54 + 20 };
    assert_eq!(placed(&trace, "sched"), Some(expected));
    let ppm = trace.alignment(&trace.invocations()[0]).unwrap().rate_error_ppm().unwrap();
    assert!((ppm + 888.099).abs() < 0.001, "{ppm}");
}

#[test]
fn the_wall_begins_at_its_own_cycle_where_it_has_one() {
    let anchors = [anchor(1, 1_000_000, 0, 30), anchor(1, 2_000_000, 50_000, 30)];
    let trace = trace_of("clk=dev org_cyc=10000 wall_cyc=5000", &anchors, 0, 20);
    assert_eq!(placed(&trace, "device_wall").unwrap().start_ns, 1_100_000);
    assert_eq!(placed(&trace, "device_wall").unwrap().end_ns, 1_900_000);
    assert_eq!(placed(&trace, "sched").unwrap().start_ns, 1_200_000);
}

#[test]
fn outside_the_anchors_the_bound_grows_with_the_distance() {
    let lone = [anchor(1, 1_000_000, 0, 30)];
    let trace = trace_of("clk=dev org_cyc=0", &lone, 100_000, 500_000);
    // 600,000 ns at 200 ppm are 120 ns, and one for what was cut off.
    let expected = Placed { start_ns: 1_100_000, end_ns: 1_600_000, error_ns: 30 + 120 + 1 + 20 };
    assert_eq!(placed(&trace, "sched"), Some(expected));
    assert_eq!(trace.alignment(&trace.invocations()[0]).unwrap().rate_error_ppm(), None);
}

#[test]
fn without_an_anchor_or_an_origin_device_spans_stay_apart() {
    let anchors = [anchor(1, 1_000_000, 0, 30)];
    assert_eq!(placed(&trace_of("clk=dev org_cyc=0", &[], 0, 20), "sched"), None);
    assert_eq!(placed(&trace_of("clk=dev", &anchors, 0, 20), "sched"), None);
    assert_eq!(placed(&trace_of("clk=dev org_cyc=x", &anchors, 0, 20), "sched"), None);
    // Another invocation's, another process's.
    assert_eq!(placed(&trace_of("clk=dev org_cyc=0", &[anchor(2, 1_000_000, 0, 30)], 0, 20), "sched"), None);
    let foreign = [DeviceClockAnchor { pid: 8, ..anchors[0] }];
    assert_eq!(placed(&trace_of("clk=dev org_cyc=0", &foreign, 0, 20), "sched"), None);
}

#[test]
fn an_anchor_that_repeats_or_contradicts_the_one_before_is_left_out() {
    let good = [anchor(1, 1_000_000, 0, 30), anchor(1, 2_000_000, 50_000, 30)];
    let expected = placed(&trace_of("clk=dev org_cyc=0", &good, 0, 180_000), "sched");
    for bad in [
        good[1],
        // The counter stands still, runs back, is another.
        anchor(1, 2_000_000 - 10, 0, 5),
        anchor(1, 1_500_000, 0, 5),
        DeviceClockAnchor { dev_freq: 1, ..anchor(1, 1_500_000, 25_000, 5) },
        // Of another run of the same number, before and after this one.
        anchor(1, 999_999, 7, 5),
        anchor(1, 2_000_001, 60_000, 5),
    ] {
        let anchors = [good[0], bad, good[1]];
        assert_eq!(
            placed(&trace_of("clk=dev org_cyc=0", &anchors, 0, 180_000), "sched"),
            expected,
            "{bad:?}"
        );
    }
}

#[test]
fn a_bare_cycle_has_a_moment_where_the_wall_is_lost_too() {
    let anchors = [anchor(1, 1_000_000, 0, 30), anchor(1, 2_000_000, 50_000, 90)];
    let trace = trace_of("clk=dev", &anchors, 0, 20);
    let clock = trace.device_clock(&trace.invocations()[0]).unwrap();
    let expected = Moment { host_ns: 1_500_000, error_ns: 60 + 20 };
    assert_eq!(clock.moment(25_000), expected);
    let [first, second] = anchors;
    assert_eq!(DeviceClock::new(&[second, first]).unwrap().moment(25_000), expected, "in any order");
}

#[test]
fn no_anchor_makes_no_clock() {
    let still = DeviceClockAnchor { dev_freq: 0, ..anchor(1, 1_000_000, 0, 30) };
    assert!(DeviceClock::new(&[]).is_none());
    assert!(DeviceClock::new(&[still]).is_none(), "a counter that does not count");
    let trace = trace_of("clk=dev org_cyc=0", &[still], 0, 20);
    assert!(trace.device_clock(&trace.invocations()[0]).is_none());
}

#[test]
fn numbers_without_sense_give_a_place_without_sense_and_no_panic() {
    for values in [(i64::MAX, u64::MAX, u64::MAX), (0, u64::MAX, 0), (1_500_000, 1, u64::MAX)] {
        let (host_ns, dev_cyc, half_ns) = values;
        for dev_freq in [1, HZ, u64::MAX] {
            let odd = DeviceClockAnchor { dev_freq, ..anchor(1, host_ns, dev_cyc, half_ns) };
            for anchors in [vec![odd], vec![anchor(1, 1_000_000, 0, 30), odd]] {
                let trace = trace_of("clk=dev org_cyc=18446744073709551615", &anchors, i64::MAX, i64::MAX);
                if let Some(placed) = placed(&trace, "sched") {
                    assert!(placed.start_ns <= placed.end_ns && placed.error_ns > 0);
                }
            }
        }
    }
}

proptest! {
    /// A counter of any offset, rate error and frequency, read within brackets of any width: the true time of every
    /// stamp between the anchors lies within the bound of its place.
    #[test]
    fn the_true_time_is_within_the_bound(
        hz in prop_oneof![Just(50_000_000_u64), Just(1_000_000_000)],
        offset in 0..1_u64 << 60,
        ppm in -500.0..500.0_f64,
        length in 2_000..2_000_000_000_i64,
        halves in prop::collection::vec(0..5_000_u64, 2..5),
        within in prop::collection::vec(-1.0..1.0_f64, 5),
        stamps in (0.0..1.0_f64, 0.0..1.0_f64),
    ) {
        let start = 1_000_000_i64;
        // Relative to the start, so that doubles are exact enough.
        let counter = |ns: f64| offset + (ns * (hz as f64 / 1e9) * (1.0 + ppm / 1e6)) as u64;
        let mut builder = TraceBuilder::new();
        let count = halves.len() as i64 - 1;
        for (index, half) in halves.iter().enumerate() {
            let middle = length / count * index as i64;
            let read_at = middle as f64 + within[index] * *half as f64;
            builder.device_anchor(DeviceClockAnchor {
                pid: 7,
                inv: 1,
                host_ns: start + middle,
                dev_cyc: counter(read_at.max(0.0)),
                dev_freq: hz,
                half_ns: *half,
            });
        }
        let last = (length / count * count) as f64;
        let (first, second) = (stamps.0.min(stamps.1) * last, stamps.0.max(stamps.1) * last);
        let origin = counter(first);
        let cycles = counter(second) - origin;
        let dur = (u128::from(cycles) * 1_000_000_000 / u128::from(hz)) as i64;
        let wall: &'static str = String::leak(format!("clk=dev org_cyc={origin}"));
        let line = |depth, name, ts, dur, attrs| Line { pid: 7, tid: 7, attrs, ..span(1, depth, name, ts, dur) };
        add(&mut builder, &line(2, "simpler_run.runner_run.device_wall", 0, dur, wall));
        add(&mut builder, &line(0, "simpler_run", 0, start + length + 10_000, ""));
        let trace = builder.finish();
        // Anchors may contradict each other here, when their brackets overlap; one is always left.
        let placed = placed(&trace, "device_wall").unwrap();
        let all_used = halves.iter().all(|half| (*half as i64) * 4 < length / count);
        prop_assume!(all_used);
        for (place, truth) in [(placed.start_ns, first), (placed.end_ns, second)] {
            let wrong = (place - start) as f64 - truth;
            // One for what was rounded.
            prop_assert!(wrong.abs() <= placed.error_ns as f64 + 1.0, "{wrong} of {placed:?}");
        }
    }
}
