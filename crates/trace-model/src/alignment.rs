//! Device spans on the host's time axis.
//!
//! A device counts cycles of a clock of its own. While it runs, the host notes pairs of readings, the *device clock
//! anchors* of the invocation: the counter showed this many cycles at this moment, give or take half a bracket. The
//! wall says which cycle its device time 0 stands for. So a device time is a cycle, and a cycle between two anchors
//! lies, on the host's axis, between their moments, in proportion; offset and rate of the device's clock are thereby
//! fitted, and its drift is followed from anchor to anchor.
//!
//! The bound on the error of a place has three parts: the brackets of the two anchors in the same proportion, and one
//! tick, because neither the anchor's reading nor the span's says where within a tick it was made. It holds while
//! the rate between two neighbouring anchors does not change. A cycle outside all anchors, because one was lost, is
//! placed from the nearest at the nominal rate, and the bound grows with the distance.

use crate::build::Trace;
use crate::invocation::Invocation;
use crate::span::Span;
use crate::vocabulary::Stage;
use simpler_record_format::DeviceClockAnchor;

/// Nanoseconds in a second.
const NS_PER_S: i128 = 1_000_000_000;

/// By how much a counter's rate may differ from its nominal one, in parts per million: four times a poor crystal. Only
/// what lies outside the anchors depends on it.
const RATE_ERROR_PPM: i128 = 200;
const PPM: i128 = 1_000_000;

/// A device's counter against the host's clock.
#[derive(Clone, Debug)]
pub struct DeviceClock<'a> {
    /// Ascending in both clocks, at least one.
    anchors: Vec<&'a DeviceClockAnchor>,
}

/// How the device's clock and the host's belong together during an invocation.
#[derive(Clone, Debug)]
pub struct Alignment<'a> {
    clock: DeviceClock<'a>,
    /// The cycle of device time 0.
    origin: u64,
    /// The cycle at which the wall began, where that is another one.
    wall: u64,
}

/// A moment of the device on the host's axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// `CLOCK_MONOTONIC`, ns.
    pub host_ns: i64,
    /// By how much it may be wrong, either way, ns.
    pub error_ns: i64,
}

/// A device span on the host's axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Its start, ns of `CLOCK_MONOTONIC`.
    pub start_ns: i64,
    /// Its end.
    pub end_ns: i64,
    /// By how much each of the two may be wrong, either way, ns.
    pub error_ns: i64,
}

impl Trace {
    /// How an invocation's device spans lie on the host's axis. `None` if its wall does not say which cycle its time
    /// 0 stands for, or there is no anchor for it.
    pub fn alignment(&self, invocation: &Invocation) -> Option<Alignment<'_>> {
        let wall = invocation.stage(self, Stage::DeviceWall).filter(|wall| self.is_device(wall))?;
        let attributes = self.attributes(wall);
        let cycle = |key| attributes.get(key)?.parse::<u64>().ok();
        let origin = cycle("org_cyc")?;
        let clock = self.device_clock(invocation)?;
        Some(Alignment { clock, origin, wall: cycle("wall_cyc").unwrap_or(origin) })
    }

    /// The device's counter during an invocation, for records that hold bare cycles. `None` if there is no anchor for
    /// it.
    pub fn device_clock(&self, invocation: &Invocation) -> Option<DeviceClock<'_>> {
        let key = (invocation.life, self.life_of(invocation).pid, invocation.inv);
        // Where one process has used the number again, an anchor belongs to the run in whose time it was taken.
        let root = invocation.root_span(self).filter(|root| !self.is_device(root));
        let (start, end) = root.map_or((i64::MIN, i64::MAX), |root| (root.ts, root.end()));
        // In the order of life, process, number and time.
        let place =
            |(life, anchor): &(u32, DeviceClockAnchor)| ((*life, anchor.pid, anchor.inv), anchor.host_ns);
        let first = self.device_anchors.partition_point(|held| place(held) < (key, start));
        let held = self.device_anchors[first..].iter().take_while(|held| place(held) <= (key, end));
        DeviceClock::of(held.map(|(_, anchor)| anchor))
    }
}

impl<'a> DeviceClock<'a> {
    /// The clock that these anchors of one device show, in any order. `None` if there is none.
    pub fn new(anchors: &'a [DeviceClockAnchor]) -> Option<DeviceClock<'a>> {
        let mut anchors: Vec<&DeviceClockAnchor> = anchors.iter().collect();
        anchors.sort_unstable_by_key(|anchor| (anchor.host_ns, anchor.dev_cyc));
        DeviceClock::of(anchors.into_iter())
    }

    /// From anchors in the order of the host's clock; one that contradicts those before is left out.
    fn of(ascending: impl Iterator<Item = &'a DeviceClockAnchor>) -> Option<DeviceClock<'a>> {
        let mut anchors: Vec<&DeviceClockAnchor> = Vec::new();
        for anchor in ascending.filter(|anchor| anchor.dev_freq > 0) {
            let rises = anchors.last().is_none_or(|last| {
                last.host_ns <= anchor.host_ns
                    && last.dev_cyc < anchor.dev_cyc
                    && last.dev_freq == anchor.dev_freq
            });
            if rises {
                anchors.push(anchor);
            }
        }
        (!anchors.is_empty()).then_some(DeviceClock { anchors })
    }

    /// When the counter showed `cycle`.
    pub fn moment(&self, cycle: u64) -> Moment {
        self.moment_of(i128::from(cycle))
    }

    /// By how much the counter ran too fast between the first anchor and the last, in parts per million, as the host's
    /// clock sees it; `None` with one anchor.
    pub fn rate_error_ppm(&self) -> Option<f64> {
        let [first, .., last] = self.anchors.as_slice() else { return None };
        let host_ns = (last.host_ns - first.host_ns) as f64;
        let counted_ns = (last.dev_cyc - first.dev_cyc) as f64 * 1e9 / first.dev_freq as f64;
        Some((counted_ns / host_ns - 1.0) * 1e6)
    }

    fn moment_of(&self, cycle: i128) -> Moment {
        let hz = self.hz();
        let tick = (NS_PER_S + hz - 1) / hz;
        let after = self.anchors.partition_point(|anchor| i128::from(anchor.dev_cyc) <= cycle);
        let before = after.checked_sub(1).map(|at| self.anchors[at]);
        let (host_ns, error_ns) = match (before, self.anchors.get(after).copied()) {
            (Some(a), Some(b)) => {
                let (done, whole) = (cycle - i128::from(a.dev_cyc), i128::from(b.dev_cyc - a.dev_cyc));
                let host =
                    i128::from(a.host_ns) + (i128::from(b.host_ns - a.host_ns) * done + whole / 2) / whole;
                let doubt = half_ns(a) * (whole - done) + half_ns(b) * done;
                (host, (doubt + whole - 1) / whole)
            }
            (Some(nearest), None) | (None, Some(nearest)) => {
                let distance = (cycle - i128::from(nearest.dev_cyc)).saturating_mul(NS_PER_S) / hz;
                let doubt = distance.abs().saturating_mul(RATE_ERROR_PPM) / PPM + 1;
                (i128::from(nearest.host_ns).saturating_add(distance), half_ns(nearest) + doubt)
            }
            // There is at least one.
            (None, None) => (0, i128::from(i64::MAX)),
        };
        Moment { host_ns: clamped(host_ns), error_ns: clamped(error_ns + tick) }
    }

    fn hz(&self) -> i128 {
        i128::from(self.anchors[0].dev_freq)
    }
}

impl Alignment<'_> {
    /// Where a device span of the invocation lies on the host's axis.
    pub fn place(&self, trace: &Trace, span: &Span) -> Placed {
        let zero = match trace.name(span).stage {
            Some(Stage::DeviceWall) => self.wall,
            _ => self.origin,
        };
        let (start, end) = (self.moment(zero, span.ts), self.moment(zero, span.end()));
        Placed {
            start_ns: start.host_ns,
            end_ns: end.host_ns.max(start.host_ns),
            error_ns: start.error_ns.max(end.error_ns),
        }
    }

    /// As [`DeviceClock::rate_error_ppm`].
    pub fn rate_error_ppm(&self) -> Option<f64> {
        self.clock.rate_error_ppm()
    }

    /// The moment `ns` of device time after the cycle `zero`.
    fn moment(&self, zero: u64, ns: i64) -> Moment {
        // Device times were cut to whole ns: the nearest cycle is the one that was stamped.
        let cycles = (i128::from(ns) * self.clock.hz() + NS_PER_S / 2).div_euclid(NS_PER_S);
        self.clock.moment_of(i128::from(zero) + cycles)
    }
}

/// Half the bracket; what no clock measures is taken for the largest time.
fn half_ns(anchor: &DeviceClockAnchor) -> i128 {
    i128::from(anchor.half_ns).min(i128::from(i64::MAX))
}

/// The value, at the limit of its type where it is beyond.
fn clamped(ns: i128) -> i64 {
    i64::try_from(ns).unwrap_or(if ns < 0 { i64::MIN } else { i64::MAX })
}
