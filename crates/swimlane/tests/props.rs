//! Any sequence of records, commits and drains, against a model that is a list.

mod support;

use proptest::prelude::*;
use simpler_swimlane::{AicoreTask, Gate, OrchPhase, RecordKind, Totals};
use support::{Device, phase};

/// Never opens: what happens then is in the model.
struct NoWait;

impl Gate for NoWait {
    fn handed_over(&self) {}

    fn wait(&self, open: &mut dyn FnMut() -> bool) -> bool {
        open()
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Append,
    Reserve,
    Commit,
    Drain,
}

fn steps(of: Vec<(u32, Step)>) -> impl Strategy<Value = Vec<Step>> {
    let choices: Vec<_> = of.into_iter().map(|(weight, step)| (weight, Just(step))).collect();
    prop::collection::vec(prop::strategy::Union::new_weighted(choices), 0..200)
}

/// A pool: records that are kept, and how its buffers stand.
#[derive(Debug, Default)]
struct Model {
    kept: Vec<u32>,
    total: u64,
    /// Records in the active buffer, None without one.
    active: Option<u32>,
    queued: u32,
    free: u32,
    is_uncommitted: bool,
}

impl Model {
    /// Whether the next record is kept.
    fn reserve(&mut self, number: u32, capacity: u32, places: u32) -> bool {
        self.total += 1;
        if self.active == Some(capacity) {
            if self.is_uncommitted || self.queued == places {
                return false;
            }
            self.queued += 1;
            self.active = None;
        }
        if self.active.is_none() {
            if self.free == 0 {
                return false;
            }
            self.free -= 1;
            self.active = Some(0);
        }
        self.active = self.active.map(|count| count + 1);
        self.kept.push(number);
        true
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_kept_and_what_is_lost_is_what_a_list_says(
        steps in steps(vec![(6, Step::Append), (1, Step::Drain)]),
        capacity in 1..5_u32,
        buffers in 1..5_u32,
        places in prop::sample::select(vec![1_u32, 2, 4]),
    ) {
        let device = Device::small(capacity, buffers, places);
        let mut drain = device.drain();
        let writer = device.thread_writer::<OrchPhase>(0, &NoWait);
        let mut model = Model { free: buffers, ..Model::default() };
        for (number, step) in (0..).zip(steps) {
            match step {
                Step::Drain => {
                    prop_assert_eq!(drain.step(|_| ()), model.queued as usize);
                    model.free += std::mem::take(&mut model.queued);
                }
                _ => prop_assert_eq!(writer.append(phase(number)), model.reserve(number, capacity, places)),
            }
        }
        let collected = drain.finish();
        let expected: Vec<_> = model.kept.iter().map(|number| phase(*number)).collect();
        let kept = expected.len() as u64;
        prop_assert_eq!(&collected.records.orch_phases[0], &expected);
        let totals = Totals { collected: kept, dropped: model.total - kept, total: model.total };
        prop_assert_eq!(collected.reconciliation.kind(RecordKind::OrchPhase), totals);
        prop_assert!(collected.reconciliation.is_exact());
    }

    #[test]
    fn a_reserved_record_is_collected_once_it_is_committed_and_never_sooner(
        steps in steps(vec![(4, Step::Reserve), (4, Step::Commit), (1, Step::Drain)]),
        capacity in 1..4_u32,
        buffers in 1..5_u32,
    ) {
        let device = Device::small(capacity, buffers, 4);
        let mut drain = device.drain();
        let writer = device.core_writer::<AicoreTask>(0, 0, &NoWait);
        let mut model = Model { free: buffers, ..Model::default() };
        let mut open = None;
        for (number, step) in (0..).zip(steps) {
            match step {
                Step::Drain => {
                    prop_assert_eq!(drain.step(|_| ()), model.queued as usize);
                    model.free += std::mem::take(&mut model.queued);
                }
                // One task in flight, but for a scheduler that forgets to commit at the end of a buffer.
                Step::Reserve if open.is_some() && model.active != Some(capacity) => {}
                Step::Reserve => {
                    let initial = AicoreTask { token: number, ..AicoreTask::default() };
                    let record = writer.reserve(initial);
                    prop_assert_eq!(record.is_some(), model.reserve(number as u32, capacity, 4));
                    if let Some(record) = record {
                        open = Some((record, number));
                        model.is_uncommitted = true;
                    }
                }
                _ => {
                    if let Some((record, number)) = open.take() {
                        // SAFETY: reserved, and not committed.
                        unsafe { (*record).start = number + 1 };
                    }
                    writer.commit();
                    model.is_uncommitted = false;
                }
            }
        }
        if open.is_some() {
            model.kept.pop();
        }
        let collected = drain.finish();
        let found: Vec<_> =
            collected.records.aicore_tasks[0].iter().map(|task| (task.token as u32, task.start)).collect();
        let expected: Vec<_> = model.kept.iter().map(|number| (*number, u64::from(*number) + 1)).collect();
        prop_assert_eq!(found, expected);
        prop_assert_eq!(collected.reconciliation.is_exact(), open.is_none());
    }
}
