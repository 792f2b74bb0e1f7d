//! Task slots over a callable's invocations: each slot's window, and the interval between any two.
//!
//! A slot is the window of the tasks that an orchestration has tagged with its number, from the first dispatch to the
//! last finish, on the device's clock. The interval from slot A to slot B is `finish(B) − dispatch(A)`: what passed from
//! the moment when A's task was given to a core until B's was seen to be done. It is negative where B was done before A
//! began, and it exists in an invocation that has both.

use crate::build::Trace;
use crate::callable::Callable;
use crate::statistics::median_ns;
use crate::vocabulary::{Stage, TASK_SLOTS};

/// One slot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlotTimes {
    /// Its number.
    pub slot: u8,
    /// Invocations that have it.
    pub n: usize,
    /// The median of its first dispatches, ns from the invocation's device time 0.
    pub dispatch_ns: f64,
    /// The median of its windows, ns.
    pub dur_ns: f64,
}

/// From one slot's dispatch to another's finish.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlotInterval {
    /// The slot whose dispatch begins it.
    pub from: u8,
    /// The slot whose finish ends it.
    pub to: u8,
    /// Invocations that have both.
    pub n: usize,
    /// The median, ns; negative where `to` was done before `from` began.
    pub ns: f64,
}

/// The slots of a callable.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskSlots {
    /// Those that occur, ascending.
    pub slots: Vec<SlotTimes>,
    /// Every ordered pair of different slots that occur together.
    pub intervals: Vec<SlotInterval>,
}

impl TaskSlots {
    /// The interval between two slots.
    pub fn interval(&self, from: u8, to: u8) -> Option<&SlotInterval> {
        self.intervals.iter().find(|interval| (interval.from, interval.to) == (from, to))
    }
}

/// Of one invocation, the dispatch and the finish of each slot.
type Windows = [Option<(i64, i64)>; TASK_SLOTS as usize];

impl Trace {
    /// The task slots of a callable; `None` if no invocation has any.
    pub fn task_slots(&self, callable: &Callable) -> Option<TaskSlots> {
        let windows: Vec<Windows> = callable
            .invocations
            .iter()
            .map(|&index| {
                let mut windows: Windows = Default::default();
                for span in self.invocations()[index as usize].by_name(self) {
                    if let Some(Stage::TaskSlot(slot)) = self.name(span).stage
                        && let Some(window) = windows.get_mut(usize::from(slot))
                    {
                        *window = Some((span.ts, span.end()));
                    }
                }
                windows
            })
            .collect();
        let median = |value: &dyn Fn(&Windows) -> Option<i64>| {
            let mut values: Vec<i64> = windows.iter().filter_map(value).collect();
            let n = values.len();
            median_ns(&mut values).map(|median| (n, median))
        };
        let all = || (0..TASK_SLOTS).map(|slot| (slot, usize::from(slot)));
        let slots: Vec<SlotTimes> = all()
            .filter_map(|(slot, at)| {
                let (n, dispatch_ns) = median(&|windows| windows[at].map(|(dispatch, _)| dispatch))?;
                let (_, dur_ns) =
                    median(&|windows| windows[at].map(|(dispatch, finish)| finish.saturating_sub(dispatch)))?;
                Some(SlotTimes { slot, n, dispatch_ns, dur_ns })
            })
            .collect();
        let pairs = all().flat_map(|from| all().map(move |to| (from, to)));
        let intervals: Vec<SlotInterval> = pairs
            .filter(|(from, to)| from != to)
            .filter_map(|((from, a), (to, b))| {
                let (n, ns) = median(&|windows| Some(windows[b]?.1.saturating_sub(windows[a]?.0)))?;
                Some(SlotInterval { from, to, n, ns })
            })
            .collect();
        (!slots.is_empty()).then_some(TaskSlots { slots, intervals })
    }
}
