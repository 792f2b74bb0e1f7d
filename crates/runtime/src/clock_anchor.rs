//! Pairs of readings of the device's counter and the host's clock, for who reads the log.
//!
//! A device reads a clock of its own. Nothing relates it to the host's but measurement: a reading of the counter
//! between two readings of the host's clock was made at some moment in between. Of a few such brackets the narrowest
//! is kept, and goes to the log as a `clock.anchor` record with half its width, so that a reader knows how far to
//! trust it (DESIGN, "Device time"). A run takes one before its launch, one after its end and, while it lasts, one every
//! [`ANCHOR_INTERVAL`], so that every device time lies between two.

use std::time::Duration;

use simpler_host_log::{log, monotonic_ns};
use simpler_log_abi::Level;
use simpler_platform::Platform;
use simpler_record_format::{DEVICE_ANCHOR_FUNC, DeviceClockAnchor};

/// How long a run goes on between two anchors: within it the rates of both clocks count as constant, and the kernel
/// slews its own by some ten parts per million, rarely by more.
pub(crate) const ANCHOR_INTERVAL: Duration = Duration::from_millis(100);

/// Brackets of which the narrowest is kept. The first brings the code into the cache; that both of the others are
/// interrupted is rare.
const BRACKETS: usize = 3;

/// Takes an anchor and logs it; None if the host cannot read the counter.
pub(crate) fn emit(platform: &dyn Platform, inv: u64) -> Option<DeviceClockAnchor> {
    let anchor = take(platform, inv)?;
    log(Level::Timing, DEVICE_ANCHOR_FUNC, None, format_args!("{anchor}"));
    Some(anchor)
}

/// The narrowest of some brackets around a reading of the device's counter. The end of one is the start of the next.
pub fn take(platform: &dyn Platform, inv: u64) -> Option<DeviceClockAnchor> {
    let mut narrowest: Option<(i64, i64, u64)> = None;
    let mut before = monotonic_ns();
    for _ in 0..BRACKETS {
        let dev_cyc = platform.counter()?;
        let after = monotonic_ns();
        let width = after.saturating_sub(before);
        if narrowest.is_none_or(|(least, ..)| width < least) {
            narrowest = Some((width, before, dev_cyc));
        }
        before = after;
    }
    let (width, before, dev_cyc) = narrowest?;
    Some(DeviceClockAnchor {
        pid: simpler_host_log::pid() as u64,
        inv,
        host_ns: before + width / 2,
        dev_cyc,
        dev_freq: platform.profile().counter_hz,
        // Rounded up, with one for the middle that was rounded down.
        half_ns: (width as u64).div_ceil(2) + 1,
    })
}
