//! The host side: from the buffer's bytes to spans.

use crate::layout::{HEADER_BYTES, RECORD_BYTES, START_UNSET};
use crate::phase::{EMIT_ORDER, PHASES, Phase};

/// Nanoseconds in a second.
const NS_PER_S: u128 = 1_000_000_000;

/// When a phase began on the first of its threads and ended on the last, in cycles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Smallest start.
    pub start: u64,
    /// Largest end; above `start`.
    pub end: u64,
}

/// What a run stamped, reduced over its threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Phases {
    windows: [Option<Window>; PHASES],
}

/// A phase on the device's own time line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DevicePhaseSpan {
    /// Which phase.
    pub phase: Phase,
    /// From the origin ([`Phases::origin`]) to the start; 0 for [`Phase::RunWall`] by definition.
    pub ts_ns: u64,
    /// Never 0.
    pub dur_ns: u64,
}

/// Reduces a buffer that was read back, written by `threads` launched threads.
///
/// A record counts only if it has a start and its end is later. Records beyond the end of `buffer` count as
/// not stamped.
pub fn reduce(buffer: &[u8], threads: usize) -> Phases {
    let mut phases = Phases::default();
    let records = buffer.get(HEADER_BYTES..).unwrap_or_default().as_chunks::<RECORD_BYTES>().0;
    for (index, record) in records.iter().take(threads.saturating_mul(PHASES)).enumerate() {
        let window = window_of(record);
        if window.start == START_UNSET || window.end <= window.start {
            continue;
        }
        // Thread-major: the phase is the position within a thread's row.
        let merged = &mut phases.windows[index % PHASES];
        *merged = Some(match *merged {
            None => window,
            Some(so_far) => Window { start: so_far.start.min(window.start), end: so_far.end.max(window.end) },
        });
    }
    phases
}

fn window_of(record: &[u8; RECORD_BYTES]) -> Window {
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = *record;
    Window {
        start: u64::from_ne_bytes([a, b, c, d, e, f, g, h]),
        end: u64::from_ne_bytes([i, j, k, l, m, n, o, p]),
    }
}

impl Phases {
    /// The window of a phase; None if no thread stamped it.
    pub const fn window(&self, phase: Phase) -> Option<Window> {
        self.windows[phase as usize]
    }

    /// The cycle that device time 0 stands for: the smallest start of any phase but [`Phase::RunWall`].
    pub fn origin(&self) -> Option<u64> {
        let of_phases = self.windows.iter().skip(Phase::RunWall as usize + 1);
        of_phases.flatten().map(|window| window.start).min()
    }

    /// The spans to emit, in the order of [`EMIT_ORDER`]: those whose duration is not 0 ns at `counter_hz`.
    pub fn spans(&self, counter_hz: u64) -> impl Iterator<Item = DevicePhaseSpan> {
        let phases = *self;
        let origin = self.origin().unwrap_or(0);
        EMIT_ORDER.into_iter().filter_map(move |phase| {
            let window = phases.window(phase)?;
            let dur_ns = cycles_to_ns(window.end - window.start, counter_hz);
            // RunWall may begin before the origin, or be all there is: its ts is 0 in any case.
            let since_origin = if phase == Phase::RunWall { 0 } else { window.start.saturating_sub(origin) };
            (dur_ns != 0).then(|| DevicePhaseSpan {
                phase,
                ts_ns: cycles_to_ns(since_origin, counter_hz),
                dur_ns,
            })
        })
    }
}

/// Cycles of a counter at `counter_hz`, in whole nanoseconds; the rest is cut off. 0 Hz gives 0, and what is
/// beyond u64 (five centuries) gives u64::MAX.
pub const fn cycles_to_ns(cycles: u64, counter_hz: u64) -> u64 {
    if counter_hz == 0 {
        return 0;
    }
    let ns = cycles as u128 * NS_PER_S / counter_hz as u128;
    if ns > u64::MAX as u128 { u64::MAX } else { ns as u64 }
}
