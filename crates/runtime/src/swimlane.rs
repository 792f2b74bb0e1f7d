//! The variable-phase track of a run: its memory, its collector, what the log says of it, and its artifact.
//!
//! While the run goes on a thread of the host empties the device's buffers ([`simpler_swimlane`]); afterwards what was
//! collected is reconciled with what was recorded, which one record of the log says, and written to
//! `<output>/<pid>/<inv>/chip_swimlane_records.json`. The track is what a build without the feature `dfx` has not.

use std::path::Path;
use std::time::Duration;

use simpler_host_log::{log_error, log_timing, log_warn};
use simpler_kernel_abi::CoreKind;
use simpler_platform::{DeviceAddr, Platform, Profile};
use simpler_record_format::DeviceClockAnchor;
use simpler_swimlane::{
    ARTIFACT_FILE, BACKSTOP, Capacities, ClockAnchor, Collected, Collector, CollectorGate, HostOrchestration,
    Level, Metadata, PhaseNames, SwimlaneLayout, write_artifact,
};

use crate::orchestration::CORES_PER_CLUSTER;
use crate::run::RunError;

/// The track's memory on the device, and who empties it.
pub(crate) struct Track {
    addr: DeviceAddr,
    layout: SwimlaneLayout,
    collector: Collector,
}

/// What a run's device threads record through.
pub(crate) struct RunTrack {
    /// Device address of the track's memory.
    pub(crate) base: u64,
    pub(crate) layout: SwimlaneLayout,
    /// By AICPU thread.
    pub(crate) gates: Vec<CollectorGate>,
}

impl Track {
    /// Memory for this level on a device, whose memory the host must be able to address.
    pub(crate) fn new(platform: &dyn Platform, level: Level) -> Result<Self, RunError> {
        let profile = platform.profile();
        let layout =
            SwimlaneLayout::new(level, profile.aicpu_logical, profile.cores(), Capacities::default());
        let addr = platform.allocate(layout.bytes())?;
        let started = match platform.host_view(addr) {
            // SAFETY: allocated with this layout and aligned to more, used by runs of this track only, and released
            // after the collector is gone.
            Some(view) => unsafe { Collector::start(view, layout) }.map_err(|error| error.to_string()),
            None => Err(format!("the host cannot address the memory of {}", profile.name)),
        };
        match started {
            Ok(collector) => Ok(Self { addr, layout, collector }),
            Err(why) => {
                platform.release(addr)?;
                Err(RunError::refused(format!("the swimlane: {why}")))
            }
        }
    }

    /// Ends the collector's thread; the value is the memory, to be released.
    pub(crate) fn close(self) -> DeviceAddr {
        self.addr
    }

    pub(crate) fn level(&self) -> Level {
        self.layout.level()
    }

    /// Begins a run; `timeout` is how long it may make no progress.
    pub(crate) fn begin(&mut self, timeout: Duration) -> RunTrack {
        // SAFETY: the run before has been joined, so nobody uses the memory.
        unsafe { self.collector.begin() };
        // A thread that waits for the collector makes no progress either.
        let backstop = BACKSTOP.min(timeout / 2);
        let gates = (0..self.layout.threads()).map(|thread| self.collector.gate(thread, backstop)).collect();
        RunTrack { base: self.addr.0, layout: self.layout, gates }
    }

    /// What was collected of the run, once the device's threads have been joined.
    pub(crate) fn end(&mut self) -> Collected {
        self.collector.end()
    }
}

/// What an artifact says of a run besides its records.
pub(crate) struct RunFacts<'a> {
    pub(crate) inv: u64,
    pub(crate) profile: &'a Profile,
    pub(crate) schedulers: usize,
    pub(crate) level: Level,
    pub(crate) anchors: &'a [DeviceClockAnchor],
    pub(crate) names: &'a PhaseNames,
    /// What the host did, where it builds the graph and that was recorded.
    pub(crate) host: Option<&'a HostOrchestration>,
}

/// Says in the log what became of the records.
pub(crate) fn report(inv: u64, collected: &Collected) {
    let reconciliation = &collected.reconciliation;
    if reconciliation.is_exact() && reconciliation.sum().dropped == 0 {
        log_timing!("inv={inv} {reconciliation}");
    } else {
        log_warn!("inv={inv} {reconciliation}");
    }
}

/// Writes the artifact of a run. What goes wrong is a record in the log: the run itself has succeeded.
pub(crate) fn write(output: &Path, facts: &RunFacts<'_>, collected: &Collected) {
    let pid = std::process::id();
    let folder = output.join(pid.to_string()).join(facts.inv.to_string());
    let file = folder.join(ARTIFACT_FILE);
    let written = std::fs::create_dir_all(&folder)
        .and_then(|()| std::fs::File::create(&file))
        .and_then(|out| write_artifact(out, &facts.lists().metadata(facts, pid), collected, facts.names));
    if let Err(error) = written {
        log_error!("cannot write {}: {error}", file.display());
    }
}

/// What all processes with one CLOCK_MONOTONIC have in common.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The lists that the metadata refers to.
struct Lists {
    core_types: Vec<CoreKind>,
    core_to_thread: Vec<Option<u32>>,
    clock_anchors: Vec<ClockAnchor>,
    boot_id: Option<String>,
}

impl RunFacts<'_> {
    fn lists(&self) -> Lists {
        let clusters = self.profile.clusters;
        // AICs are numbered first, then the AIVs in pairs; a cluster's cores belong to one scheduler.
        let cluster_of = |core: usize| match core.checked_sub(clusters) {
            None => core,
            Some(aiv) => aiv / CORES_PER_CLUSTER[1] as usize,
        };
        let cores = 0..self.profile.cores();
        let kind = |core: usize| if core < clusters { CoreKind::Aic } else { CoreKind::Aiv };
        let anchor = |anchor: &DeviceClockAnchor| ClockAnchor {
            device_cycles: anchor.dev_cyc,
            host_monotonic_ns: anchor.host_ns as u64,
            half_ns: anchor.half_ns,
        };
        Lists {
            core_types: cores.clone().map(kind).collect(),
            core_to_thread: cores.map(|core| Some((cluster_of(core) % self.schedulers) as u32)).collect(),
            clock_anchors: self.anchors.iter().map(anchor).collect(),
            boot_id: std::fs::read_to_string(BOOT_ID).ok().map(|id| id.trim().to_owned()),
        }
    }
}

impl Lists {
    fn metadata<'a>(&'a self, facts: &RunFacts<'a>, pid: u32) -> Metadata<'a> {
        Metadata {
            level: facts.level,
            pid,
            inv: facts.inv,
            clock_freq_hz: facts.profile.counter_hz,
            core_types: &self.core_types,
            core_to_thread: &self.core_to_thread,
            clock_anchors: &self.clock_anchors,
            host_clock_domain_id: self.boot_id.as_deref(),
            host: facts.host,
        }
    }
}
