//! The host side: from the buffer's bytes to spans.

use crate::layout::{HEADER_BYTES, RECORD_BYTES, START_UNSET};
use crate::phase::{EMIT_ORDER, PHASES, Phase};
use crate::slot::{TASK_SLOTS, TaskSlot};

/// Nanoseconds in a second.
const NS_PER_S: u128 = 1_000_000_000;

/// When a phase began on the first of its threads and ended on the last, or a slot's first task was dispatched and
/// its last one finished, in cycles.
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
    slots: [Option<Window>; TASK_SLOTS],
}

/// The window of a slot on the device's own time line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskSlotSpan {
    /// Which slot.
    pub slot: TaskSlot,
    /// From the origin ([`Phases::origin`]) to the first dispatch.
    pub ts_ns: u64,
    /// From the first dispatch to the last finish; never 0.
    pub dur_ns: u64,
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

/// Whether a buffer whose header was read back says that its slots hold anything.
pub fn tail_used(buffer: &[u8]) -> bool {
    buffer.first_chunk().is_some_and(|word| u64::from_ne_bytes(*word) != 0)
}

/// Reduces the header and the phases of a buffer that was read back, written by `threads` launched threads.
///
/// A record counts only if it has a start and its end is later. Records beyond the end of `buffer` count as
/// not stamped.
pub fn reduce(buffer: &[u8], threads: usize) -> Phases {
    let mut phases = Phases::default();
    merge(buffer.get(HEADER_BYTES..).unwrap_or_default(), threads, &mut phases.windows);
    phases
}

/// Merges thread-major rows of `N` records each: first start to last end of each column.
fn merge<const N: usize>(rows: &[u8], threads: usize, merged: &mut [Option<Window>; N]) {
    let records = rows.as_chunks::<RECORD_BYTES>().0;
    for (index, record) in records.iter().take(threads.saturating_mul(N)).enumerate() {
        let window = window_of(record);
        if window.start == START_UNSET || window.end <= window.start {
            continue;
        }
        let merged = &mut merged[index % N];
        *merged = Some(match *merged {
            None => window,
            Some(so_far) => Window { start: so_far.start.min(window.start), end: so_far.end.max(window.end) },
        });
    }
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

    /// Adds the slots: the buffer's tail as it was read back.
    pub fn reduce_slots(&mut self, tail: &[u8], threads: usize) {
        merge(tail, threads, &mut self.slots);
    }

    /// The window of a slot; None if no thread has it complete.
    pub const fn slot(&self, slot: TaskSlot) -> Option<Window> {
        self.slots[slot.index()]
    }

    /// The cycle that device time 0 stands for: the smallest start of any phase but [`Phase::RunWall`]; where no
    /// such phase was stamped, as by host_build_graph, the first dispatch of a slot; else the start of the wall.
    pub fn origin(&self) -> Option<u64> {
        let first = |windows: &[Option<Window>]| windows.iter().flatten().map(|window| window.start).min();
        let (wall, phases) = self.windows.split_at(Phase::RunWall as usize + 1);
        first(phases).or_else(|| first(&self.slots)).or_else(|| first(wall))
    }

    /// The slots to emit, ascending: those that were dispatched no earlier than the origin and whose duration is
    /// not 0 ns at `counter_hz`.
    pub fn slot_spans(&self, counter_hz: u64) -> impl Iterator<Item = TaskSlotSpan> {
        let phases = *self;
        let origin = self.origin().unwrap_or(0);
        TaskSlot::all().filter_map(move |slot| {
            let window = phases.slot(slot)?;
            let ts_ns = cycles_to_ns(window.start.checked_sub(origin)?, counter_hz);
            let dur_ns = cycles_to_ns(window.end - window.start, counter_hz);
            (dur_ns != 0).then_some(TaskSlotSpan { slot, ts_ns, dur_ns })
        })
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
