//! The levels of workers and their words (RUNTIME §1.1).

use std::sync::atomic::{AtomicU64, Ordering};

use simpler_host_log as host_log;

/// One chip in the process itself.
pub(crate) const CHIP_LEVEL: u32 = 2;
/// The level whose children are chips.
pub(crate) const NODE_LEVEL: u32 = 3;
/// The highest that has a word.
pub(crate) const LEVEL_MAX: u32 = 6;

/// The names of a level's scheduler spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Names {
    pub(crate) submit: &'static str,
    pub(crate) dispatch: &'static str,
    pub(crate) complete: &'static str,
    pub(crate) scheduler_loop: &'static str,
}

macro_rules! names {
    ($word:literal) => {
        Names {
            submit: concat!($word, ".submit"),
            dispatch: concat!($word, ".dispatch"),
            complete: concat!($word, ".complete"),
            scheduler_loop: concat!($word, ".scheduler_loop"),
        }
    };
}

/// From the node upwards. Digits count network hops above a node.
const NAMES: [Names; (LEVEL_MAX - NODE_LEVEL) as usize + 1] =
    [names!("node"), names!("network1"), names!("network2"), names!("network3")];

/// The pid above the level whose words this process uses; 0 while it has none.
// FORK: a child has a pid of its own, so its parent's level does not bind it.
static BOUND: AtomicU64 = AtomicU64::new(0);

/// Binds this process to a level's words and gives their names. The first level of a process stays: a program may set up
/// another one inside it, and its spans are told from the first one's by their ids, not by a second word. A level without
/// scheduler spans binds nothing.
pub(crate) fn bind(level: u32) -> Names {
    if level < NODE_LEVEL {
        return NAMES[0];
    }
    let own = u64::from(std::process::id()) << 32;
    // ORDERING: Relaxed: a number; workers are started by one thread, and where they are not, one of them is first.
    let bound = BOUND.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |bound| {
        (bound >> 32 << 32 != own).then_some(own | u64::from(level))
    });
    let first = bound.map_or_else(|bound| bound as u32, |_| level);
    if first != level {
        host_log::log_warn!("level {level} in a process of level {first}: its spans keep that one's words");
    }
    NAMES[first.saturating_sub(NODE_LEVEL).min(LEVEL_MAX - NODE_LEVEL) as usize]
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use simpler_trace_ingest::{Source, read};
    use simpler_trace_model::Family;

    #[test]
    fn each_level_s_words_are_a_scheduler_s_to_the_reader() {
        let names: Vec<&str> = NAMES
            .iter()
            .flat_map(|names| [names.submit, names.dispatch, names.complete, names.scheduler_loop])
            .collect();
        let span = |name: &str| {
            format!("[STRACE] v=1 pid=1 tid=1 inv=0 hid=0 depth=0 name={name} ts={} dur=1 \n", name.len())
        };
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), names.iter().map(|name| span(name)).collect::<String>()).unwrap();
        let trace = read(&[Source::path(file.path())]).unwrap().trace;
        assert_eq!(trace.spans().len(), names.len());
        for (span, name) in trace.spans().iter().zip(names) {
            let read = trace.name(span);
            assert_eq!((&*read.text, read.family), (name, Family::Scheduler));
            assert_eq!(Some(read.leaf()), name.split('.').nth(1));
        }
        let words = NAMES.map(|names| names.submit.trim_end_matches(".submit"));
        assert_eq!(words, ["node", "network1", "network2", "network3"]);
    }
}
