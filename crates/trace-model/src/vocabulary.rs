//! The words of span names: whose span it is, and which stage of a run.
//!
//! One table for all spellings that logs hold. The emitter writes `simpler_run`; older and newer logs say
//! `run_prepared` and `chip.run`. A name that is not in the table is kept and shown, never dropped.

/// Who emitted a span, by the first word of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// A chip's run or its setup (`simpler_run`, `chip`, `run_prepared`, `simpler_prewarm`).
    Chip,
    /// A core's own spans (`core`).
    Core,
    /// The scheduler of a node or a network level (`node`, `networkN`): no invocation of its own.
    Scheduler,
    /// A foreign producer (`ext`): no invocation, and its attributes say nothing about ours.
    External,
    /// Anything else.
    Unknown,
}

/// What a span of a run stands for, whichever spelling its name has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The whole run.
    Root,
    /// Binding arguments and the prebuilt arena.
    Bind,
    /// The launch and the blocking wait.
    RunnerRun,
    /// The device is given to the next run.
    ClaimRelease,
    /// The whole window on the device.
    DeviceWall,
    /// The orchestrator's window on the device.
    Orch,
    /// The schedulers' window on the device.
    Sched,
    /// One selected task's window on the device, by slot 0 to 15.
    TaskSlot(u8),
    /// Another span of a run.
    Other,
}

/// The root names of a run, one an era.
const RUN_WORDS: [&str; 3] = ["simpler_run", "chip.run", "run_prepared"];

/// Task slots are numbered 0 to 15; a higher number is no slot.
pub(crate) const TASK_SLOTS: u8 = 16;

/// Whose span it is, by its name.
pub fn family(name: &str) -> Family {
    let first = name.split('.').next().unwrap_or(name);
    match first {
        "chip" | "simpler_run" | "run_prepared" | "simpler_prewarm" => Family::Chip,
        "core" => Family::Core,
        "node" => Family::Scheduler,
        "ext" => Family::External,
        _ => match first.strip_prefix("network") {
            Some(level) if !level.is_empty() && level.bytes().all(|b| b.is_ascii_digit()) => {
                Family::Scheduler
            }
            _ => Family::Unknown,
        },
    }
}

/// What a span of a run stands for, by its name; `None` for any other span.
pub fn stage(name: &str) -> Option<Stage> {
    let rest = RUN_WORDS.iter().find_map(|word| name.strip_prefix(word))?;
    Some(match rest {
        "" => Stage::Root,
        ".bind" => Stage::Bind,
        ".runner_run" => Stage::RunnerRun,
        ".claim_release" => Stage::ClaimRelease,
        ".runner_run.device_wall" => Stage::DeviceWall,
        ".runner_run.device_wall.orch" => Stage::Orch,
        ".runner_run.device_wall.sched" => Stage::Sched,
        _ if !rest.starts_with('.') => return None,
        _ => match rest.strip_prefix(".runner_run.device_wall.task_slot_").map(str::parse::<u8>) {
            Some(Ok(slot)) if slot < TASK_SLOTS => Stage::TaskSlot(slot),
            _ => Stage::Other,
        },
    })
}

/// The root name that a span of a run belongs to, such as `chip.run` for `chip.run.bind`.
pub(crate) fn run_word(name: &str) -> Option<&'static str> {
    RUN_WORDS
        .into_iter()
        .find(|word| name.strip_prefix(word).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')))
}

/// The producer of an external span, `ext.<producer>.<span>`; `None` if the name does not say.
pub fn producer(name: &str) -> Option<&str> {
    let (producer, span) = name.strip_prefix("ext.")?.split_once('.')?;
    let named = !producer.is_empty() && !span.is_empty() && !span.starts_with('.');
    named.then_some(producer)
}

/// Whether the name speaks of setup before any run (`chip.prewarm.build`, `simpler_prewarm.build`).
pub(crate) fn is_prewarm(name: &str) -> bool {
    name.split('.').any(|segment| segment == "prewarm" || segment.ends_with("_prewarm"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_word_tells_the_family() {
        for (name, want) in [
            ("simpler_run", Family::Chip),
            ("chip.run.bind", Family::Chip),
            ("core.task", Family::Core),
            ("node.submit", Family::Scheduler),
            ("network1.submit", Family::Scheduler),
            ("network.submit", Family::Unknown),
            ("networked", Family::Unknown),
            ("ext.app.load", Family::External),
            ("extra", Family::Unknown),
            ("simpler_runner", Family::Unknown),
            ("", Family::Unknown),
        ] {
            assert_eq!(family(name), want, "{name}");
        }
    }

    #[test]
    fn an_external_name_tells_its_producer_or_nobody() {
        for (name, want) in [
            ("ext.app.load", Some("app")),
            ("ext.app.load.file", Some("app")),
            ("ext.app", None),
            ("ext.app.", None),
            ("ext..load", None),
            ("ext.app..load", None),
            ("ext", None),
            ("extra.app.load", None),
        ] {
            assert_eq!(producer(name), want, "{name}");
        }
    }

    #[test]
    fn each_era_of_root_names_has_the_same_stages() {
        for word in RUN_WORDS {
            assert_eq!(stage(word), Some(Stage::Root));
            assert_eq!(stage(&format!("{word}.bind")), Some(Stage::Bind));
            assert_eq!(stage(&format!("{word}.runner_run.device_wall.sched")), Some(Stage::Sched));
            assert_eq!(stage(&format!("{word}.unheard_of")), Some(Stage::Other));
            assert_eq!(stage(&format!("{word}x")), None);
        }
    }

    #[test]
    fn a_slot_beyond_the_last_is_no_slot() {
        let name = |slot: u32| format!("simpler_run.runner_run.device_wall.task_slot_{slot}");
        assert_eq!(stage(&name(15)), Some(Stage::TaskSlot(15)));
        assert_eq!(stage(&name(16)), Some(Stage::Other));
        assert_eq!(stage(&name(256)), Some(Stage::Other));
    }
}
