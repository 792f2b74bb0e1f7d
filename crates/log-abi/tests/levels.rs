//! The two roundings, the names and the CANN map, as tables.

use simpler_log_abi::{Level, Threshold};

#[test]
fn a_wished_threshold_is_rounded_up() {
    let table = [
        (i32::MIN, 10),
        (-1, 10),
        (0, 10),
        (10, 10),
        (11, 20),
        (20, 20),
        (21, 25),
        (25, 25),
        (26, 30),
        (30, 30),
        (31, 40),
        (40, 40),
        (41, 60),
        (50, 60),
        (60, 60),
        (61, 60),
        (i32::MAX, 60),
    ];
    for (asked, given) in table {
        assert_eq!(Threshold::normalize(asked).get(), given, "threshold {asked}");
    }
}

#[test]
fn a_record_is_rounded_down() {
    let table = [
        (i32::MIN, Level::Debug),
        (0, Level::Debug),
        (10, Level::Debug),
        (19, Level::Debug),
        (20, Level::Info),
        (24, Level::Info),
        (25, Level::Timing),
        (29, Level::Timing),
        (30, Level::Warn),
        (35, Level::Warn),
        (39, Level::Warn),
        (40, Level::Error),
        (50, Level::Error),
        (i32::MAX, Level::Error),
    ];
    for (number, level) in table {
        assert_eq!(Level::round_record(number), level, "record at {number}");
    }
}

#[test]
fn only_ladder_values_are_thresholds() {
    for value in -100..200 {
        let on_ladder = [10, 20, 25, 30, 40, 60].contains(&value);
        assert_eq!(Threshold::from_ladder(value).map(Threshold::get), on_ladder.then_some(value));
    }
}

#[test]
fn a_threshold_admits_its_level_and_above_and_nul_nothing() {
    for threshold in Threshold::ALL {
        for level in Level::ALL {
            let expected = threshold != Threshold::NUL && level as i32 >= threshold.get();
            assert_eq!(threshold.admits(level), expected, "{level:?} at {threshold:?}");
        }
    }
    assert!(!Threshold::NUL.admits(Level::Error));
}

#[test]
fn tool_names_are_the_six_of_the_ladder() {
    let table = [("debug", 10), ("info", 20), ("timing", 25), ("warn", 30), ("error", 40), ("null", 60)];
    for (name, value) in table {
        let threshold = Threshold::from_name(name).unwrap();
        assert_eq!((threshold.get(), threshold.name()), (value, name));
    }
    for name in ["", "TIMING", "nul", "warning", "timing "] {
        assert_eq!(Threshold::from_name(name), None, "{name:?}");
    }
}

#[test]
fn record_names_are_those_of_the_envelope() {
    assert_eq!(Level::ALL.map(Level::name), ["DEBUG", "INFO", "TIMING", "WARN", "ERROR"]);
    assert_eq!(Level::ALL.map(|level| level as i32), [10, 20, 25, 30, 40]);
}

#[test]
fn cann_sees_timing_as_warn() {
    assert_eq!(Level::ALL.map(Level::cann), [0, 1, 2, 2, 3]);
    assert_eq!(Threshold::ALL.map(Threshold::cann), [0, 1, 2, 2, 3, 4]);
}
