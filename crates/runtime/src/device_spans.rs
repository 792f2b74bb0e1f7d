//! The device's windows in the log: whether they are wanted, and how they are emitted.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;

use simpler_device_phase::{Phase, Phases, emission_enabled};
use simpler_host_log::SpanEvent;
use simpler_log_abi::Level;

use crate::names::SpanNames;

/// Whether a run that begins now resets, reads and emits them (RUNTIME §4.4): `on` is what the runtime was told.
pub(crate) fn wanted(on: bool) -> bool {
    let visible = on && simpler_host_log::enabled(Level::Timing);
    emission_enabled(cfg!(feature = "host-strace"), from_env(), visible)
}

/// What the environment says about device spans: read once, for all of the process (RUNTIME §4.4).
fn from_env() -> Option<&'static [u8]> {
    // FORK: a child inherits the value with the environment that it was read from.
    static VALUE: OnceLock<Option<OsString>> = OnceLock::new();
    VALUE.get_or_init(|| std::env::var_os(simpler_device_phase::ENABLE_ENV)).as_deref().map(OsStr::as_bytes)
}

/// Emits what the device has stamped as spans of this thread's invocation; `hz` is the frequency of its counter.
pub(crate) fn emit(names: &SpanNames, phases: &Phases, hz: u64) {
    let context = simpler_host_log::context();
    let event = |name, depth, ts_ns: u64, dur_ns: u64, attrs| SpanEvent {
        name,
        inv: context.inv,
        hid: context.hid,
        depth,
        ts: i64::try_from(ts_ns).unwrap_or(i64::MAX),
        dur: i64::try_from(dur_ns).unwrap_or(i64::MAX),
        attrs,
    };
    let of_wall = wall_attributes(phases);
    let windows = phases.spans(hz).map(|span| {
        let is_wall = span.phase == Phase::RunWall;
        let (depth, attrs) =
            if is_wall { (DEVICE_WALL_DEPTH, &*of_wall) } else { (DEVICE_WALL_DEPTH + 1, DEVICE_CLOCK) };
        event(names.device(span.phase), depth, span.ts_ns, span.dur_ns, attrs)
    });
    let slots = phases.slot_spans(hz).map(|span| {
        event(names.task_slot(span.slot), DEVICE_WALL_DEPTH + 1, span.ts_ns, span.dur_ns, DEVICE_CLOCK)
    });
    simpler_host_log::emit_spans(windows.chain(slots));
}

/// The wall's attributes: besides the clock the cycle that device time 0 stands for, and the cycle at which the wall
/// itself began, where that is another one.
fn wall_attributes(phases: &Phases) -> String {
    let origin = phases.origin().unwrap_or(0);
    let began = phases.window(Phase::RunWall).map(|wall| wall.start).filter(|began| *began != origin);
    let began = began.map_or_else(String::new, |began| format!(" wall_cyc={began}"));
    format!("{DEVICE_CLOCK} org_cyc={origin}{began}")
}

/// The clock of a device span, and all that its attributes say unless it is the wall.
const DEVICE_CLOCK: &str = "clk=dev";
/// Below the root and runner_run.
const DEVICE_WALL_DEPTH: i32 = 2;
