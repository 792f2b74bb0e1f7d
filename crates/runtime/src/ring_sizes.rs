//! What a run, or the environment, chooses of each ring (RUNTIME §1.5).
//!
//! For each number the run's own choice counts, then the environment's, then the limits that the runtime was made with.

use std::ffi::OsString;

use crate::graph::{Limits, RINGS, RingLimits};
use crate::run::RunError;

/// Tasks in the window of each ring.
pub(crate) const WINDOW_ENV: &str = "PTO2_RING_TASK_WINDOW";
/// Bytes of each ring's heap.
pub(crate) const HEAP_ENV: &str = "PTO2_RING_HEAP";
/// Dependencies of each ring.
pub(crate) const EDGES_ENV: &str = "PTO2_RING_DEP_POOL";

/// Most argument memory of a ring whose window was chosen: a quarter of what all rings can have.
const ARGUMENT_BYTES_MAX: u64 = (u32::MAX / RINGS as u32) as u64 / 64 * 64;

/// The choices for one ring; 0 is none, like `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingSizes {
    /// Tasks in its window. The memory for arguments grows and shrinks with it.
    pub window: Option<u32>,
    /// Bytes of its heap.
    pub heap_bytes: Option<u64>,
    /// Its dependencies.
    pub edges: Option<u32>,
}

impl RingSizes {
    fn over(self, limits: RingLimits) -> RingLimits {
        let (window, edges) =
            (self.window.filter(|window| *window != 0), self.edges.filter(|edges| *edges != 0));
        // As much a task as before.
        let argument_bytes = match window {
            None => limits.argument_bytes,
            Some(window) => {
                let of_task = limits.argument_bytes.div_ceil(limits.window.max(1).into());
                of_task.saturating_mul(window.into()).min(ARGUMENT_BYTES_MAX)
            }
        };
        RingLimits {
            window: window.unwrap_or(limits.window),
            argument_bytes,
            heap_bytes: self.heap_bytes.filter(|bytes| *bytes != 0).unwrap_or(limits.heap_bytes),
            edges: edges.unwrap_or(limits.edges),
        }
    }
}

/// The limits with what was chosen in place of theirs.
pub(crate) fn over(sizes: &[RingSizes; RINGS], limits: &Limits) -> Limits {
    Limits { rings: std::array::from_fn(|ring| sizes[ring].over(limits.rings[ring])) }
}

/// What the environment chooses: for each of the three one number for all rings, or one a ring with commas between them;
/// 0, or nothing, is no choice.
pub(crate) fn from_env(variable: impl Fn(&str) -> Option<OsString>) -> Result<[RingSizes; RINGS], RunError> {
    let mut sizes = [RingSizes::default(); RINGS];
    for (name, most) in
        [(WINDOW_ENV, u64::from(u32::MAX)), (HEAP_ENV, u64::MAX), (EDGES_ENV, u32::MAX.into())]
    {
        let Some(text) = variable(name) else { continue };
        let refuse = || {
            let text = text.to_string_lossy();
            let text =
                format!("{name}={text}: that is no number up to {most}, nor {RINGS} of them with commas");
            RunError::invalid(text)
        };
        let numbers = text.to_str().ok_or_else(refuse)?.split(',').map(|number| match number.trim() {
            "" => Ok(0),
            number => number.parse::<u64>().ok().filter(|number| *number <= most).ok_or_else(refuse),
        });
        let numbers = numbers.collect::<Result<Vec<_>, _>>()?;
        if !matches!(numbers.len(), 1 | RINGS) {
            return Err(refuse());
        }
        for (ring, sizes) in sizes.iter_mut().enumerate() {
            let number = Some(numbers[ring % numbers.len()]).filter(|number| *number != 0);
            match name {
                WINDOW_ENV => sizes.window = number.map(|number| number as u32),
                HEAP_ENV => sizes.heap_bytes = number,
                _ => sizes.edges = number.map(|number| number as u32),
            }
        }
    }
    Ok(sizes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(of: &str, text: &str) -> Result<[RingSizes; RINGS], RunError> {
        from_env(|name| (name == of).then(|| text.into()))
    }

    #[test]
    fn a_number_is_for_all_rings_and_four_are_one_each() {
        assert_eq!(from_env(|_| None), Ok([RingSizes::default(); RINGS]));
        let sizes = env(WINDOW_ENV, " 131072 ").unwrap();
        assert!(
            sizes.iter().all(|ring| *ring == RingSizes { window: Some(131_072), ..RingSizes::default() })
        );
        let sizes = env(HEAP_ENV, "4096, 0,,1024").unwrap();
        assert_eq!(sizes.map(|ring| ring.heap_bytes), [Some(4096), None, None, Some(1024)]);
        assert_eq!(env(EDGES_ENV, "64").unwrap()[3].edges, Some(64));
    }

    #[test]
    fn what_is_no_number_is_refused_by_name() {
        for (name, text) in [
            (WINDOW_ENV, "many"),
            (WINDOW_ENV, "4294967296"),
            (HEAP_ENV, "-1"),
            (EDGES_ENV, "1,2"),
            (HEAP_ENV, "1,2,3,4,5"),
        ] {
            let error = env(name, text).unwrap_err();
            assert_eq!(error.code, -5);
            assert!(error.text.starts_with(&format!("{name}={text}: ")), "{error}");
        }
    }

    #[test]
    fn arguments_grow_with_the_window() {
        let limits = RingLimits { window: 1024, heap_bytes: 1 << 20, argument_bytes: 1 << 20, edges: 512 };
        let chosen = RingSizes { window: Some(4096), ..RingSizes::default() }.over(limits);
        assert_eq!(chosen, RingLimits { window: 4096, argument_bytes: 4 << 20, ..limits });
        let huge = RingSizes { window: Some(1 << 30), ..RingSizes::default() }.over(limits);
        assert_eq!(huge.argument_bytes, ARGUMENT_BYTES_MAX);
        let rest = RingSizes { heap_bytes: Some(2048), edges: Some(7), ..RingSizes::default() }.over(limits);
        assert_eq!(rest, RingLimits { heap_bytes: 2048, edges: 7, ..limits });
        let zeros = RingSizes { window: Some(0), heap_bytes: Some(0), edges: Some(0) };
        assert_eq!(zeros.over(limits), limits);
        let endless = RingLimits { window: 1, argument_bytes: u64::MAX, ..limits };
        assert_eq!(
            RingSizes { window: Some(8), ..RingSizes::default() }.over(endless).argument_bytes,
            ARGUMENT_BYTES_MAX
        );
    }
}
