//! `chip_swimlane_records.json`: what cores, schedulers and orchestrators of one run did, in cycles.
//!
//! The device writes such a file for a run whose swimlane is on (RUNTIME 6.2). It may come from another version than
//! this reader's, so keys that it does not know are passed over and keys that are missing leave their part empty; only
//! what it does know must have its form. Cycles become moments with the clock of the log or with the file's own
//! anchors; that is the picture's work.

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, IgnoredAny, SeqAccess, Visitor};
use serde_json::Value;
use simpler_record_format::DeviceClockAnchor;
use std::collections::BTreeMap;
use std::fmt;

/// The name of such a file.
pub const FILE_NAME: &str = "chip_swimlane_records.json";

/// Why a file is none of this kind.
#[derive(Debug, thiserror::Error)]
#[error("holds no chip swimlane records: {0}")]
pub struct ChipRecordsError(#[from] serde_json::Error);

/// The records of one run.
#[derive(Clone, Debug)]
pub struct ChipRecords {
    pub(crate) source: String,
    pub(crate) file: Artifact,
    /// The file's own anchors; those that do not say their bracket have one of 0.
    pub(crate) anchors: Vec<DeviceClockAnchor>,
}

impl ChipRecords {
    /// From the bytes of a file; `source` names it in messages.
    ///
    /// # Errors
    /// They are no JSON, or a key that is known does not have its form.
    pub fn parse(source: impl Into<String>, bytes: &[u8]) -> Result<ChipRecords, ChipRecordsError> {
        let file: Artifact = serde_json::from_slice(bytes)?;
        let Metadata { pid, inv, clock_freq_hz, clock_anchors, .. } = &file.metadata;
        let anchor = |anchor: &ClockAnchor| DeviceClockAnchor {
            pid: pid.unwrap_or(0),
            inv: inv.unwrap_or(0),
            host_ns: anchor.host_ns,
            dev_cyc: anchor.dev_cyc,
            dev_freq: clock_freq_hz.unwrap_or(0),
            half_ns: anchor.half_ns.unwrap_or(0),
        };
        let anchors = clock_anchors.iter().map(anchor).collect();
        Ok(ChipRecords { source: source.into(), file, anchors })
    }

    /// How many records the file holds.
    pub fn count(&self) -> usize {
        fn all<T>(threads: &[Vec<T>]) -> usize {
            threads.iter().map(Vec::len).sum()
        }
        let file = &self.file;
        file.aicore_tasks.len()
            + file.aicpu_tasks.len()
            + all(&file.aicpu_scheduler_phases)
            + all(&file.aicpu_orchestrator_phases)
            + all(&file.named_scopes)
            + all(&file.host_orchestrator_phases)
            + file.host_device_uploads.len()
    }

    /// How many records of each kind there were; nothing if the file does not say.
    pub(crate) fn totals(&self) -> impl Iterator<Item = (&str, Totals)> {
        self.file.metadata.records.iter().filter_map(|(kind, account)| match account {
            Account::Totals(totals) => Some((kind.as_str(), *totals)),
            Account::Exact(_) | Account::Other(_) => None,
        })
    }

    /// Records that the device could not keep; `None` if the file does not say.
    pub(crate) fn dropped(&self) -> Option<u64> {
        self.totals().map(|(_, totals)| totals.dropped).reduce(u64::saturating_add)
    }

    /// Whether each record that was made is accounted for, by the totals and by the file's own word; `None` if it
    /// says neither.
    pub(crate) fn adds_up(&self) -> Option<bool> {
        let own = match self.file.metadata.records.get("is_exact") {
            Some(Account::Exact(exact)) => Some(*exact),
            _ => None,
        };
        self.totals().map(|(_, totals)| totals.add_up()).chain(own).reduce(|a, b| a && b)
    }

    /// Whether each anchor says how far apart its two readings may be.
    pub(crate) fn brackets_known(&self) -> bool {
        self.file.metadata.clock_anchors.iter().all(|anchor| anchor.half_ns.is_some())
    }
}

/// The file.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Artifact {
    pub(crate) level: Option<u64>,
    #[serde(default)]
    pub(crate) metadata: Metadata,
    #[serde(default)]
    pub(crate) aicore_tasks: Vec<Kernel>,
    #[serde(default)]
    pub(crate) aicpu_tasks: Vec<Window>,
    #[serde(default)]
    pub(crate) aicpu_scheduler_phases: Vec<Vec<SchedulerPhase>>,
    #[serde(default)]
    pub(crate) aicpu_orchestrator_phases: Vec<Vec<Submit>>,
    #[serde(default)]
    pub(crate) named_scopes: Vec<Vec<Scope>>,
    #[serde(default)]
    pub(crate) host_orchestrator_phases: Vec<Vec<HostPhase>>,
    #[serde(default)]
    pub(crate) host_device_uploads: Vec<HostPhase>,
}

/// What the records do not say themselves.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) pid: Option<u64>,
    pub(crate) inv: Option<u64>,
    clock_freq_hz: Option<u64>,
    #[serde(default)]
    core_types: Value,
    #[serde(default)]
    core_to_thread: Value,
    #[serde(default)]
    clock_anchors: Vec<ClockAnchor>,
    #[serde(default)]
    records: BTreeMap<String, Account>,
}

impl Metadata {
    /// Such as `AIC` for `aic`.
    pub(crate) fn core_type(&self, core: u64) -> Option<String> {
        Some(self.core_types.get(usize::try_from(core).ok()?)?.as_str()?.to_uppercase())
    }

    /// The AICPU thread that dispatches to a core.
    pub(crate) fn thread_of(&self, core: u64) -> Option<u64> {
        self.core_to_thread.get(usize::try_from(core).ok()?)?.as_u64()
    }
}

/// One moment on both clocks, named as in the log or in full.
#[derive(Clone, Debug, Deserialize)]
struct ClockAnchor {
    #[serde(alias = "host_monotonic_ns")]
    host_ns: i64,
    #[serde(alias = "device_cycles")]
    dev_cyc: u64,
    half_ns: Option<u64>,
}

/// A value among the metadata's `records`: of `is_exact`, or of a kind's name.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum Account {
    Exact(bool),
    Totals(Totals),
    Other(IgnoredAny),
}

/// How many records of a kind there were.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Totals {
    /// Those that the host has.
    pub(crate) collected: u64,
    /// Those that the device could not keep.
    pub(crate) dropped: u64,
    /// Those that the device made.
    pub(crate) total: u64,
}

impl Totals {
    pub(crate) fn add_up(self) -> bool {
        self.collected.checked_add(self.dropped) == Some(self.total)
    }
}

/// A kernel on its core.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(from = "Row<6>")]
pub(crate) struct Kernel {
    pub(crate) core: u64,
    /// The task that the orchestrator submitted.
    pub(crate) token: u64,
    /// With the core, what joins it to its [`Window`].
    pub(crate) reg: u64,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) receive_to_start: u64,
}

impl From<Row<6>> for Kernel {
    fn from(Row([core, token, reg, start, end, receive_to_start]): Row<6>) -> Kernel {
        Kernel { core, token, reg, start, end, receive_to_start }
    }
}

/// A task on its core as the AICPU saw it.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(from = "Row<4>")]
pub(crate) struct Window {
    pub(crate) core: u64,
    pub(crate) reg: u64,
    pub(crate) dispatch: u64,
    pub(crate) finish: u64,
}

impl From<Row<4>> for Window {
    fn from(Row([core, reg, dispatch, finish]): Row<4>) -> Window {
        Window { core, reg, dispatch, finish }
    }
}

/// What a scheduler did for a while.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct SchedulerPhase {
    pub(crate) kind: Kind,
    pub(crate) start_cycles: u64,
    pub(crate) end_cycles: u64,
    pub(crate) loop_iter: Option<u64>,
    pub(crate) tasks_processed: Option<u64>,
    pub(crate) pop_hit: Option<u64>,
    pub(crate) pop_miss: Option<u64>,
    pub(crate) task_id: Option<u64>,
    pub(crate) shared_at_start: Option<Vec<i64>>,
    pub(crate) shared_at_end: Option<Vec<i64>>,
}

/// A phase's kind: by name, or by a number that its writer had no name for.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Kind {
    Name(Box<str>),
    Number(u64),
}

/// The orchestrator's submit of a task.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Submit {
    pub(crate) submit_idx: Option<u64>,
    pub(crate) task_id: Option<u64>,
    pub(crate) start_cycles: u64,
    pub(crate) end_cycles: u64,
}

/// What the host did of a graph that it has built: the submit of a task, or a copy to the device.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct HostPhase {
    pub(crate) submit_idx: Option<u64>,
    pub(crate) task_id: Option<u64>,
    /// Of a copy.
    pub(crate) phase: Option<Box<str>>,
    /// Of a copy, its bytes.
    pub(crate) detail: Option<u64>,
    pub(crate) start_host_ns: i64,
    pub(crate) end_host_ns: i64,
}

/// A scope that the orchestration named.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Scope {
    pub(crate) name: Box<str>,
    pub(crate) hash: Option<Box<str>>,
    pub(crate) start_cycles: u64,
    pub(crate) end_cycles: u64,
    pub(crate) depth: Option<u64>,
}

/// The first `N` numbers of an array; a later version may have appended others.
struct Row<const N: usize>([u64; N]);

impl<'de, const N: usize> Deserialize<'de> for Row<N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Row<N>, D::Error> {
        struct Numbers<const N: usize>;

        impl<'de, const N: usize> Visitor<'de> for Numbers<N> {
            type Value = Row<N>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a row of {N} numbers")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Row<N>, A::Error> {
                let mut row = [0; N];
                for (at, place) in row.iter_mut().enumerate() {
                    *place = items.next_element()?.ok_or_else(|| A::Error::invalid_length(at, &self))?;
                }
                while items.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Row(row))
            }
        }

        deserializer.deserialize_seq(Numbers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_are_missing_or_unknown_are_no_error() {
        let nothing = ChipRecords::parse("f", b"{}").unwrap();
        assert_eq!((nothing.count(), nothing.dropped(), nothing.adds_up()), (0, None, None));
        let more = br#"{"level": 9, "new": [1], "metadata": {"core_types": 3, "records": {"new": "x"}},
            "aicore_tasks": [[0, 5, 1, 10, 20, 3, "later"]]}"#;
        let more = ChipRecords::parse("f", more).unwrap();
        assert_eq!((more.count(), more.dropped(), more.adds_up()), (1, None, None));
        assert_eq!(more.file.metadata.core_type(0), None);
    }

    #[test]
    fn what_does_not_have_its_form_is_an_error_that_says_where() {
        for (text, says) in [
            ("", "EOF"),
            ("[]", "expected"),
            ("{\"aicore_tasks\": [[0, 5, 1, 10, 20]]}", "a row of 6 numbers"),
            ("{\"aicpu_tasks\": [[0, 5, 1, -10]]}", "-10"),
            ("{\"aicpu_tasks\": [[0, 5, 1, 1.5]]}", "1.5"),
            ("{\"aicpu_scheduler_phases\": [[{\"kind\": \"x\"}]]}", "start_cycles"),
            ("{\"metadata\": {\"pid\": \"x\"}}", "line 1"),
            ("{\"level\": 1", "line 1 column 11"),
        ] {
            let error = ChipRecords::parse("f", text.as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with("holds no chip swimlane records: "), "{error}");
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn each_record_must_be_accounted_for() {
        for (records, dropped, adds_up) in [
            (r#"{"is_exact": true, "a": {"collected": 3, "dropped": 2, "total": 5}}"#, Some(2), Some(true)),
            (r#"{"a": {"collected": 3, "dropped": 0, "total": 4}}"#, Some(0), Some(false)),
            (r#"{"is_exact": false}"#, None, Some(false)),
            (r#"{"a": {"collected": 18446744073709551615, "dropped": 1, "total": 0}}"#, Some(1), Some(false)),
        ] {
            let text = format!("{{\"metadata\": {{\"records\": {records}}}}}");
            let parsed = ChipRecords::parse("f", text.as_bytes()).unwrap();
            assert_eq!((parsed.dropped(), parsed.adds_up()), (dropped, adds_up), "{records}");
        }
    }
}
