//! A ring: what the tasks of one depth of scopes are made of, handed out in a circle.
//!
//! Each ring has task slots, dependencies, argument memory and a heap. All four are handed out in the order of the
//! submits and come back in that order, a *segment* at a time: a stretch of tasks of one scope. A segment comes back when
//! its scope is drained and no older one is in front of it. So a ring that is full either gets room by itself, as soon
//! as what was submitted has run, or never, since its oldest tasks belong to a scope that is still open: the submit would
//! wait for itself. Both are known at once, without a time limit.

use std::collections::VecDeque;

use super::RingLimits;
use super::scope::ROOT;

/// What a ring hands out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resource {
    Tasks = 0,
    Edges = 1,
    /// Bytes.
    Arguments = 2,
    /// Bytes.
    Heap = 3,
}

const RESOURCES: usize = 4;

/// A scope, told apart from others that have had its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ScopeUse {
    pub(super) scope: u32,
    /// Later scopes have larger numbers.
    pub(super) serial: u64,
}

impl ScopeUse {
    /// The run's own.
    pub(super) const ROOT: Self = Self { scope: ROOT, serial: 0 };
}

/// Places that are handed out in a circle. Positions only grow; what lies between the tail and the head is in use.
#[derive(Clone, Copy, Debug, Default)]
struct Circle {
    size: u64,
    head: u64,
    tail: u64,
    /// The head's place.
    at: u64,
}

impl Circle {
    /// The first of `count` places in a row, unless they are in use.
    fn take(&mut self, count: u64) -> Option<u64> {
        if self.head == self.tail {
            // The whole circle, in a row.
            self.at = 0;
        }
        let rest = self.size - self.at;
        // Those up to the end are left out if they are too few.
        let (skipped, first) = if count > rest { (rest, 0) } else { (0, self.at) };
        let head = self.head.checked_add(skipped)?.checked_add(count)?;
        if head - self.tail > self.size {
            return None;
        }
        self.head = head;
        self.at = first + count;
        Some(first)
    }

    /// Takes back the last `count` of what was just handed out.
    fn give_back(&mut self, count: u64) {
        self.head -= count;
        self.at -= count;
    }
}

/// A stretch of tasks of one scope.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub(super) scope: ScopeUse,
    /// The heads behind it.
    ends: [u64; RESOURCES],
}

/// What the orchestrator knows of a ring.
#[derive(Debug, Default)]
pub(super) struct Ring {
    circles: [Circle; RESOURCES],
    /// From the oldest to the newest.
    pub(super) segments: VecDeque<Segment>,
}

impl Ring {
    /// Forgets all tasks; from now on with these limits.
    pub(super) fn clear(&mut self, limits: &RingLimits) {
        let sizes = [limits.window.into(), limits.edges.into(), limits.argument_bytes, limits.heap_bytes];
        self.circles = sizes.map(|size| Circle { size, ..Circle::default() });
        self.segments.clear();
    }

    /// The next task's number in this ring.
    pub(super) fn next_local(&self) -> u64 {
        self.circles[Resource::Tasks as usize].head
    }

    /// The oldest task's number that is not given back.
    pub(super) fn oldest_local(&self) -> u64 {
        self.circles[Resource::Tasks as usize].tail
    }

    pub(super) fn take(&mut self, resource: Resource, count: u64) -> Option<u64> {
        self.circles[resource as usize].take(count)
    }

    pub(super) fn give_back(&mut self, resource: Resource, count: u64) {
        self.circles[resource as usize].give_back(count);
    }

    /// How much of a resource is in use, and how much there is.
    pub(super) fn used(&self, resource: Resource) -> (u64, u64) {
        let circle = &self.circles[resource as usize];
        (circle.head - circle.tail, circle.size)
    }

    /// The last submit was one of `scope`.
    pub(super) fn note_scope(&mut self, scope: ScopeUse) {
        let ends = self.circles.map(|circle| circle.head);
        match self.segments.back_mut() {
            Some(last) if last.scope == scope => last.ends = ends,
            _ => self.segments.push_back(Segment { scope, ends }),
        }
    }

    /// Gives the oldest segment back.
    pub(super) fn pop_segment(&mut self) {
        if let Some(segment) = self.segments.pop_front() {
            for (circle, end) in self.circles.iter_mut().zip(segment.ends) {
                circle.tail = end;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_circle_hands_out_what_is_in_a_row_and_free() {
        let mut circle = Circle { size: 10, ..Circle::default() };
        assert_eq!((circle.take(4), circle.take(4)), (Some(0), Some(4)));
        // Two are left, and not in a row with those at the start.
        assert_eq!(circle.take(3), None);
        circle.tail = 4;
        assert_eq!(circle.take(3), Some(0));
        assert_eq!(circle.take(2), None);
        circle.give_back(1);
        assert_eq!(circle.take(2), Some(2));
        assert_eq!(circle.take(11), None);
        // All is free, wherever the head stands.
        circle.tail = circle.head;
        assert_eq!(circle.take(10), Some(0));
        assert_eq!((circle.take(0), circle.take(1)), (Some(10), None));
        assert_eq!(circle.take(u64::MAX), None);
    }

    #[test]
    fn segments_come_back_with_all_that_they_took() {
        let mut ring = Ring::default();
        ring.clear(&RingLimits { window: 4, edges: 8, argument_bytes: 64, heap_bytes: 2048 });
        let submit = |ring: &mut Ring, scope| {
            let task = ring.take(Resource::Tasks, 1)?;
            ring.take(Resource::Heap, 512)?;
            ring.note_scope(ScopeUse { scope, serial: scope.into() });
            Some(task)
        };
        assert_eq!([1, 1, 2, 2].map(|scope| submit(&mut ring, scope)), [0, 1, 2, 3].map(Some));
        assert_eq!(submit(&mut ring, 3), None);
        assert_eq!(ring.segments.iter().map(|segment| segment.scope.scope).collect::<Vec<_>>(), [1, 2]);
        ring.pop_segment();
        assert_eq!((ring.oldest_local(), ring.next_local()), (2, 4));
        assert_eq!(ring.used(Resource::Heap), (1024, 2048));
        assert_eq!([3, 3].map(|scope| submit(&mut ring, scope)), [0, 1].map(Some));
    }
}
