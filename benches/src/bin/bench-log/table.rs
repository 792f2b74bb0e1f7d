//! The figures as one JSON object and as a table.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Map, Value, json};
use simpler_log_abi::DropReason;

use crate::peers::NAMES;
use crate::{BURST, Cost, Figures, REPETITIONS};

/// The stable interface: keys are only ever added.
pub(crate) fn json(figures: &Figures) -> Value {
    let single = figures.own.single;
    let two = figures.two_threads;
    let mut object = json!({
        "floor_ns": rounded(figures.floor_ns),
        "span_ns_p50": single.map(|single| rounded(single.p50)),
        "span_ns_p99": single.map(|single| rounded(single.p99)),
        "span_ns_p999": single.map(|single| rounded(single.p999)),
        "span_ns_max": single.map(|single| rounded(single.max)),
        "span_singles": figures.own.singles,
        "span_ns_burst": rounded(figures.own.burst_ns),
        "span_cpu_ns_burst": rounded(figures.span_cpu_ns_burst),
        "span_attr_ns_burst": rounded(figures.span_attr_ns_burst),
        "ratio_burst": rounded(figures.ratio_burst),
        "ratio_attr_burst": rounded(figures.ratio_attr_burst),
        "ratio_burst_clock_gettime": rounded(figures.ratio_burst_clock_gettime),
        "ratio_2_threads": two.map(|two| rounded(two.ratio)),
        "span_cpu_ns_2_threads": two.map(|two| rounded(two.cpu_ns)),
        "repetitions_apart_2_threads": two.map(|two| two.apart),
        "text_record_ns_burst": rounded(figures.text_record_ns_burst),
        "ratio_text_burst": rounded(figures.ratio_text_burst),
        "muted_span_ns": rounded(figures.muted_span_ns),
        "span_after_idle_ns": rounded(figures.span_after_idle_ns),
        "drain_records_per_s": figures.own.drain_per_s.round(),
        "drain_cpu_ns_per_record": rounded(figures.drain_cpu_ns_per_record),
        "drain_file_system": figures.file_system,
        "stalled_p999_ns": rounded(figures.stalled.stalled_p999_ns),
        "unstalled_p999_ns": rounded(figures.stalled.unstalled_p999_ns),
        "stalled_p999_ratio": rounded(figures.stalled.ratio),
        "unstalled_dropped": figures.stalled.unstalled_dropped,
        "dropped": figures.dropped,
        "repetitions": REPETITIONS,
        "measured_again_for_drops": figures.tally.lossy,
        "measured_again_for_preemption": figures.tally.preempted,
        "preempted_kept": figures.tally.preempted_kept,
        "burst_spans": BURST,
        "clocksource": clocksource(),
        "skipped": figures.skipped,
    });
    let drops = DropReason::ALL
        .map(|reason| (reason.name().to_owned(), json!(figures.stalled.stalled_drops[reason as usize])));
    object["stalled_drops"] = Value::Object(Map::from_iter(drops));
    for (key, value) in [
        ("peers", (|cost: &Cost| Some(rounded(cost.burst_ns))) as fn(&Cost) -> Option<f64>),
        ("peers_p50", |cost| cost.single.map(|single| rounded(single.p50))),
        ("peers_p99", |cost| cost.single.map(|single| rounded(single.p99))),
        ("peers_p999", |cost| cost.single.map(|single| rounded(single.p999))),
        ("peers_max", |cost| cost.single.map(|single| rounded(single.max))),
        ("peers_drain_per_s", |cost| Some(cost.drain_per_s.round())),
        ("peers_lost", |cost| Some(cost.lost as f64)),
    ] {
        let of_each = figures.peers.iter().map(|(name, cost)| ((*name).to_owned(), json!(value(cost))));
        object[key] = Value::Object(of_each.collect());
    }
    object["ahead"] = json!(ahead(figures));
    object
}

/// Whether a span is cheaper than each peer's in a burst and in the middle, and drains faster; `None` while a peer
/// is missing.
fn ahead(figures: &Figures) -> Option<bool> {
    let own = &figures.own;
    let is_ahead = |peer: &Cost| {
        let p50 = |cost: &Cost| cost.single.map_or(f64::INFINITY, |single| single.p50);
        own.burst_ns < peer.burst_ns && p50(own) < p50(peer) && own.drain_per_s > peer.drain_per_s
    };
    (figures.peers.len() == NAMES.len()).then(|| figures.peers.iter().all(|(_, cost)| is_ahead(cost)))
}

/// For people.
pub(crate) fn text(figures: &Figures) -> String {
    let mut text = String::new();
    let floor = figures.floor_ns;
    let mut line = |what: &str, ns: f64, ratio: Option<f64>| {
        let ratio = ratio.map_or_else(String::new, |ratio| format!("{ratio:>6.2} F"));
        // Text never fails to be appended, here and below.
        let _ = writeln!(text, "{what:<42} {ns:>9.1} ns {ratio}");
    };
    line("F: two clock_gettime, 128-byte copy", floor, None);
    line("span, in a burst", figures.own.burst_ns, Some(figures.ratio_burst));
    line("span, in a burst, CPU", figures.span_cpu_ns_burst, None);
    line("span with an attribute, in a burst", figures.span_attr_ns_burst, Some(figures.ratio_attr_burst));
    let with_clock = figures.ratio_burst_clock_gettime;
    line("span, in a burst, by clock_gettime", with_clock * floor, Some(with_clock));
    if let Some(two) = figures.two_threads {
        line("span, two producers at once, CPU", two.cpu_ns, Some(two.ratio));
    }
    line("text record with three integers", figures.text_record_ns_burst, Some(figures.ratio_text_burst));
    line("muted span with an attribute, and its loop", figures.muted_span_ns, None);
    line("span that wakes a sleeping writer", figures.span_after_idle_ns, None);
    line("drain, the writer's CPU per record", figures.drain_cpu_ns_per_record, None);
    line("span to a pipe that is read, p99.9", figures.stalled.unstalled_p999_ns, None);
    line("span to a stalled pipe, p99.9", figures.stalled.stalled_p999_ns, None);
    let _ = writeln!(text, "stalled over read {:>37.2}", figures.stalled.ratio);
    let drops = DropReason::ALL
        .map(|reason| format!("{}={}", reason.name(), figures.stalled.stalled_drops[reason as usize]));
    let _ = writeln!(text, "dropped on the stalled pipe: {}", drops.join(" "));

    let _ = writeln!(
        text,
        "\n{:<12} {:>9} {:>9} {:>9} {:>9} {:>11} {:>12} {:>7}",
        "span, ns", "burst", "p50", "p99", "p99.9", "max", "written/s", "lost"
    );
    for (name, cost) in
        [("host log", &figures.own)].into_iter().chain(figures.peers.iter().map(|(name, cost)| (*name, cost)))
    {
        let Some(single) = cost.single else { continue };
        let _ = writeln!(
            text,
            "{name:<12} {:>9.1} {:>9.0} {:>9.0} {:>9.0} {:>11.0} {:>12.0} {:>7}",
            cost.burst_ns, single.p50, single.p99, single.p999, single.max, cost.drain_per_s, cost.lost
        );
    }
    for why in &figures.skipped {
        let _ = writeln!(text, "skipped: {why}");
    }
    let _ = writeln!(
        text,
        "\nmedians of {REPETITIONS} repetitions of {BURST} spans; measured again: {} for a drop, {} for a \
         lost CPU, which {} kept; files on {}; clock source {}",
        figures.tally.lossy,
        figures.tally.preempted,
        figures.tally.preempted_kept,
        figures.file_system,
        clocksource(),
    );
    text
}

fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// What the kernel reads the time from.
fn clocksource() -> String {
    std::fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource")
        .map_or_else(|_| "unknown".to_owned(), |name| name.trim().to_owned())
}

/// The type of the file system that a folder is on.
pub(crate) fn file_system_of(folder: &Path) -> String {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_path_buf());
    file_system_in(&mounts, &folder).unwrap_or("unknown").to_owned()
}

/// The type of the innermost mount above `folder`; of mounts over each other the last one counts.
fn file_system_in<'a>(mounts: &'a str, folder: &Path) -> Option<&'a str> {
    let fields = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        Some((Path::new(fields.next()?), fields.next()?))
    });
    let above = fields.filter(|(place, _)| folder.starts_with(place));
    above.max_by_key(|(place, _)| place.components().count()).map(|(_, file_system)| file_system)
}

#[cfg(test)]
mod tests {
    use simpler_benches::Percentiles;

    use super::*;

    fn cost(burst_ns: f64, p50: f64, drain_per_s: f64) -> Cost {
        let single = Percentiles { p50, p99: p50, p999: p50, max: p50 };
        Cost { burst_ns, single: Some(single), drain_per_s, ..Cost::default() }
    }

    fn figures(own: Cost) -> Figures {
        let peers = NAMES.map(|name| (name, cost(100.0, 100.0, 1e6)));
        Figures { own, peers: peers.into(), ..Figures::default() }
    }

    #[test]
    fn ahead_is_ahead_of_each_peer_in_each_figure() {
        assert_eq!(json(&figures(cost(50.0, 50.0, 2e6)))["ahead"], true);
        assert_eq!(json(&figures(cost(150.0, 50.0, 2e6)))["ahead"], false);
        assert_eq!(json(&figures(cost(50.0, 150.0, 2e6)))["ahead"], false);
        assert_eq!(json(&figures(cost(50.0, 50.0, 5e5)))["ahead"], false);
        let mut incomplete = figures(cost(50.0, 50.0, 2e6));
        incomplete.peers.pop();
        assert_eq!(json(&incomplete)["ahead"], Value::Null);
    }

    #[test]
    fn the_object_has_the_keys_that_scripts_rely_on() {
        let object = json(&figures(cost(50.0, 60.0, 2e6)));
        for key in [
            "floor_ns",
            "span_ns_p50",
            "span_ns_burst",
            "ratio_burst",
            "ratio_2_threads",
            "text_record_ns_burst",
            "muted_span_ns",
            "drain_records_per_s",
            "drain_cpu_ns_per_record",
            "stalled_p999_ratio",
        ] {
            assert!(object.get(key).is_some(), "{key}");
        }
        for name in NAMES {
            assert_eq!(object["peers"][name], 100.0);
            assert_eq!(object["peers_p50"][name], 100.0);
            assert_eq!(object["peers_drain_per_s"][name], 1e6);
        }
        assert!(!object.to_string().contains('\n'));
    }

    #[test]
    fn the_innermost_and_last_mount_names_the_file_system() {
        let mounts = "root / ext4 rw 0 0\nnone /tmp tmpfs rw 0 0\nnone /tmp btrfs rw 0 0\nx /tm xfs rw 0 0\n";
        assert_eq!(file_system_in(mounts, Path::new("/tmp/a")), Some("btrfs"));
        assert_eq!(file_system_in(mounts, Path::new("/var/a")), Some("ext4"));
        assert_eq!(file_system_in("", Path::new("/var")), None);
    }
}
