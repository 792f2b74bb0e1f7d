//! Lanes of a track.
//!
//! A viewer nests what it finds on one track by time; what overlaps without nesting it draws wrongly or not at all.
//! So such spans are spread over lanes, each a track of its own.

use rustc_hash::FxHashMap;

/// Into how many lanes a track is split at most. A pipeline has two or three; what overlaps more than this
/// is damage, and looking for ever more lanes would take ever longer.
const LANES_MAX: usize = 64;

/// Which lane of a track each span goes on, so that on one lane spans nest or keep apart.
#[derive(Default)]
pub(crate) struct Nesting {
    /// For each lane the ends of its open spans, the innermost last.
    lanes: Vec<Vec<i64>>,
    /// Where the spans that belong together are.
    home: FxHashMap<u32, usize>,
}

impl Nesting {
    /// The lane of the next span by start, of two with one start the longer one first; at most one more than there
    /// are. Spans with the same `home` stay together where they can.
    pub(crate) fn place(&mut self, start: i64, end: i64, home: Option<u32>) -> usize {
        let held = home.and_then(|home| self.home.get(&home).copied());
        let lane = held
            .into_iter()
            .chain(0..self.lanes.len())
            .find(|&lane| self.fits(lane, start, end))
            .unwrap_or(if self.lanes.len() < LANES_MAX { self.lanes.len() } else { 0 });
        if lane == self.lanes.len() {
            self.lanes.push(Vec::new());
        }
        self.lanes[lane].push(end);
        if let Some(home) = home {
            self.home.entry(home).or_insert(lane);
        }
        lane
    }

    fn fits(&mut self, lane: usize, start: i64, end: i64) -> bool {
        let open = &mut self.lanes[lane];
        while open.last().is_some_and(|&open_end| open_end <= start) {
            open.pop();
        }
        open.last().is_none_or(|&open_end| end <= open_end)
    }
}
