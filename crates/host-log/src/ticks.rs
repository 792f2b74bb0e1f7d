//! The processor's counter as a clock: readings cost a third of `clock_gettime`, and the writer turns them into
//! ns of `CLOCK_MONOTONIC`.
//!
//! The writer pairs the two clocks, a *knot*, before each batch that holds readings, and converts by
//! interpolation between the knots that enclose a reading. It renders nothing that is newer than its latest knot,
//! so nothing is extrapolated, and while there is nothing to render it needs no knots either.
//!
//! The function from ticks to ns never changes where somebody may still ask: two spans of a thread come out in
//! the order in which they happened. A span may stay open for hours, though, and the knots have a bounded
//! place. So, when they become many, the writer looks which spans are open, waits until everything that was
//! claimed by then is rendered, and replaces the past by one knot for each of those spans: the value that the
//! function has at its start. Hardly anybody will ask for another point of that past: a thread that lost its
//! processor between a reading and its record may; some knots are kept for it, and its time is off by no more than
//! the printed error. A span that is in no stack reads the kernel's clock instead.
//!
//! The knots lie in the shared region, in two tables of which one is in use, so that who reads a dead process's
//! region finds one that is whole.

use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering, fence};

use crate::identity::monotonic_ns;
use crate::region::environment;

/// How many knots a table holds. At the writer's busiest, some thousand batches a second, the past is replaced a
/// few times a second.
pub(crate) const KNOTS_MAX: usize = 1024;

/// From how many knots on the past is replaced: early enough that there is room for the batches until then.
const KNOTS_MANY: usize = KNOTS_MAX / 4 * 3;

/// How many knots of a past that is replaced stay at most, beside those of open spans.
const PAST_KNOTS_KEPT: usize = 64;

/// How often the pair of clocks is read for a knot; the closest pair is taken.
const PAIR_READINGS: u32 = 3;

/// How much the counter's rate may seem to change from one knot to the next before it is not taken for a clock
/// any more. The kernel slews by at most 500 parts per million.
const RATE_CHANGE_MAX: f64 = 2000e-6;

/// Between knots closer than this the noise of the pairs hides any change of the rate.
const RATE_MEASURED_OVER_NS: i64 = 50_000_000;

/// A reading of the counter. Some cycles of doubt: nothing keeps the processor from reading it a little early.
// HOT: one instruction.
#[inline(always)]
pub(crate) fn now() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: every x86-64 has the instruction; whether its value is a clock is asked by `is_a_clock`.
        unsafe { core::arch::x86_64::_rdtsc() }
    }
    #[cfg(target_arch = "aarch64")]
    {
        let ticks: u64;
        // SAFETY: Linux lets programs read the virtual counter; it touches nothing else.
        unsafe {
            core::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack, preserves_flags))
        };
        ticks
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        0
    }
}

/// A reading that nothing passes in either direction.
fn now_in_order() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the fence is part of the architecture and has no preconditions.
    unsafe {
        core::arch::x86_64::_mm_lfence()
    };
    let ticks = now();
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as above.
    unsafe {
        core::arch::x86_64::_mm_lfence()
    };
    ticks
}

/// Whether the counter runs at one rate on all processors, in the processor's word and in the kernel's, which
/// uses it for its own clock. (On aarch64, where this has not been run, the architecture promises it.)
pub(crate) fn is_a_clock() -> bool {
    if environment(c"SIMPLER_LOG_CLOCK").is_some_and(|clock| clock == "gettime") {
        return false;
    }
    let kernels = std::fs::read("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::__cpuid;
        /// Bit 8 of EDX in the leaf of advanced power management: the counter's rate is invariant.
        const INVARIANT: u32 = 1 << 8;
        const POWER_LEAF: u32 = 0x8000_0007;
        let leaves = __cpuid(0x8000_0000).eax;
        let is_invariant = leaves >= POWER_LEAF && __cpuid(POWER_LEAF).edx & INVARIANT != 0;
        is_invariant && kernels.is_ok_and(|name| name.trim_ascii() == b"tsc")
    }
    #[cfg(target_arch = "aarch64")]
    {
        kernels.is_ok_and(|name| name.trim_ascii() == b"arch_sys_counter")
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        let _ = kernels;
        false
    }
}

/// Both clocks at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Knot {
    pub(crate) tick: u64,
    pub(crate) ns: i64,
    /// Half the ticks between the readings of the counter that enclose the clock's.
    half_ticks: u64,
}

impl Knot {
    /// What was read and kept elsewhere.
    pub(crate) fn known((tick, ns): (u64, i64)) -> Knot {
        Knot { tick, ns, half_ticks: 0 }
    }

    /// Reads both clocks.
    pub(crate) fn read() -> Knot {
        let pair = || {
            let before = now_in_order();
            let ns = monotonic_ns();
            let half_ticks = now_in_order().saturating_sub(before) / 2;
            Knot { tick: before + half_ticks, ns, half_ticks }
        };
        let first = pair();
        (1..PAIR_READINGS).fold(first, |best, _| {
            let knot = pair();
            if knot.half_ticks < best.half_ticks { knot } else { best }
        })
    }
}

/// A place for a knot.
#[derive(Debug)]
#[repr(C)]
struct Place {
    tick: AtomicU64,
    ns: AtomicI64,
}

/// Knots by rising tick. Written by the writer alone; entries below `length` do not change.
#[derive(Debug)]
#[repr(C)]
struct Table {
    length: AtomicU32,
    places: [Place; KNOTS_MAX],
}

impl Table {
    fn knot(&self, index: usize) -> (u64, i64) {
        let place = &self.places[index.min(KNOTS_MAX - 1)];
        // ORDERING: Relaxed: `length`, read before, is the Acquire.
        (place.tick.load(Ordering::Relaxed), place.ns.load(Ordering::Relaxed))
    }

    fn length(&self) -> usize {
        // ORDERING: Acquire pairs with the Release in `set_length`.
        (self.length.load(Ordering::Acquire) as usize).min(KNOTS_MAX)
    }

    fn put(&self, index: usize, (tick, ns): (u64, i64)) {
        self.places[index].tick.store(tick, Ordering::Relaxed);
        self.places[index].ns.store(ns, Ordering::Relaxed);
    }

    fn set_length(&self, length: usize) {
        // ORDERING: Release pairs with the Acquire in `length`.
        self.length.store(length as u32, Ordering::Release);
    }

    /// The value at `tick`: between the two knots around it, or, outside them all, along the nearest two.
    fn value(&self, tick: u64) -> i64 {
        let length = self.length();
        if length < 2 {
            return if length == 0 { 0 } else { self.knot(0).1 };
        }
        // Readings are mostly new: the last segments are tried one by one.
        const TRIED: usize = 4;
        let mut above = length - 1;
        while above > 1 && length - above < TRIED && self.knot(above - 1).0 > tick {
            above -= 1;
        }
        if above > 1 && self.knot(above - 1).0 > tick {
            let (mut low, mut high) = (0, above - 1);
            while low < high {
                let middle = low.midpoint(high);
                if self.knot(middle).0 > tick { high = middle } else { low = middle + 1 }
            }
            above = low.max(1);
        }
        interpolate(self.knot(above - 1), self.knot(above), tick)
    }
}

/// The value at `tick` on the line through two knots, never beyond the second one's for a tick between them.
fn interpolate((tick_0, ns_0): (u64, i64), (tick_1, ns_1): (u64, i64), tick: u64) -> i64 {
    let rate = (ns_1 - ns_0) as f64 / (tick_1 - tick_0).max(1) as f64;
    let distance = tick.wrapping_sub(tick_0).cast_signed();
    let ns = ns_0.saturating_add((distance as f64 * rate) as i64);
    if tick <= tick_1 { ns.min(ns_1) } else { ns.max(ns_1) }
}

/// The function from ticks to ns.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct TickClock {
    /// The table in use is this number's parity.
    replaced: AtomicU32,
    tables: [Table; 2],
}

impl TickClock {
    fn table(&self) -> &Table {
        // ORDERING: Acquire pairs with the Release in `replace_past`.
        &self.tables[self.replaced.load(Ordering::Acquire) as usize % 2]
    }

    /// `CLOCK_MONOTONIC` at `tick`, in ns. For any thread; also for who reads a dead process's region.
    pub(crate) fn to_ns(&self, tick: u64) -> i64 {
        loop {
            // ORDERING: Acquire pairs with the Release in `replace`.
            let before = self.replaced.load(Ordering::Acquire);
            let ns = self.tables[before as usize % 2].value(tick);
            // ORDERING: Acquire: the table's loads come before the look at its number; pairs with the Release fence
            // in `replace`: who has read a place that is written anew sees that the number has changed.
            fence(Ordering::Acquire);
            if self.replaced.load(Ordering::Relaxed) == before {
                return ns;
            }
        }
    }

    /// Gives a fresh clock its first knots: what was known in former lives, and now. Before anybody takes a reading
    /// in this life.
    pub(crate) fn begin(&self) {
        let table = &self.tables[0];
        let now = Knot::read();
        let [first, last] = former();
        let known = [first, last, Some((now.tick, now.ns))].into_iter().flatten();
        let mut length = 0;
        for knot in known {
            if length == 0 || knot.0 > table.knot(length - 1).0 {
                table.put(length, knot);
                length += 1;
            }
        }
        table.set_length(length);
        if first.is_none() {
            keep_latest(self);
        }
    }

    /// As [`TickClock::to_ns`], for who has read both clocks himself: what is newer than the latest knot lies on
    /// the line from there to `now`.
    pub(crate) fn to_ns_by(&self, now: Knot, tick: u64) -> i64 {
        match self.latest() {
            Some(latest) if tick > latest.0 => interpolate(latest, (now.tick, now.ns), tick),
            _ => self.to_ns(tick),
        }
    }

    /// How often the past was replaced: as long as it is this number, the table that a copy of the clock uses was
    /// not being written over.
    pub(crate) fn replacements(&self) -> u32 {
        // ORDERING: Acquire pairs with the Release in `replace`.
        self.replaced.load(Ordering::Acquire)
    }

    /// Puts knots into a fresh clock.
    #[cfg(any(fuzzing, test))]
    pub(crate) fn put_knots(&self, knots: &[(u64, i64)]) {
        knots.iter().enumerate().for_each(|(index, knot)| self.tables[0].put(index, *knot));
        self.tables[0].set_length(knots.len());
    }

    /// Whether the knots in use rise as knots do: what to ask of a clock that was found.
    pub(crate) fn is_sound(&self) -> bool {
        let table = self.table();
        let mut former = None;
        (0..table.length()).map(|index| table.knot(index)).all(|(tick, ns)| {
            let rises = former.is_none_or(|(tick_0, ns_0)| tick > tick_0 && ns >= ns_0);
            former = Some((tick, ns));
            rises && ns >= 0
        })
    }

    /// The latest knot.
    pub(crate) fn latest(&self) -> Option<(u64, i64)> {
        let table = self.table();
        table.length().checked_sub(1).map(|last| table.knot(last))
    }
}

/// The first pair that this process, or one that it was forked from, has read, and the latest one before its last
/// quiesce: by these a reading is converted that was taken in another life than the one in which it is rendered.
///
/// FORK: the counter and the clock are the machine's, so the child goes on with what the parent knew.
static FORMER: [Place; 2] = [const { Place { tick: AtomicU64::new(0), ns: AtomicI64::new(0) } }; 2];

/// Odd while `FORMER` is written.
///
/// FORK: odd in a child only if another thread of the parent was at it; then nothing is known of former lives.
static FORMER_VERSION: AtomicU32 = AtomicU32::new(0);

/// The pairs of former lives, if they can be read just now.
fn former() -> [Option<(u64, i64)>; 2] {
    // ORDERING: Acquire pairs with the Release in `keep_latest`.
    let version = FORMER_VERSION.load(Ordering::Acquire);
    let pair = |place: &Place| {
        let knot = (place.tick.load(Ordering::Relaxed), place.ns.load(Ordering::Relaxed));
        (knot.0 != 0).then_some(knot)
    };
    let pairs = [pair(&FORMER[0]), pair(&FORMER[1])];
    // ORDERING: Acquire: the loads above come before this look; pairs with the Release fence in `keep_latest`.
    fence(Ordering::Acquire);
    let is_whole = version.is_multiple_of(2) && FORMER_VERSION.load(Ordering::Relaxed) == version;
    if is_whole { pairs } else { [None; 2] }
}

/// Keeps the latest knot of `clock` for a child that is forked next, or for another region. Only by who has
/// stopped the writer, or is about to start the first one.
pub(crate) fn keep_latest(clock: &TickClock) {
    let Some((tick, ns)) = clock.latest() else { return };
    let is_first = former()[0].is_none();
    let version = FORMER_VERSION.load(Ordering::Relaxed) | 1;
    FORMER_VERSION.store(version, Ordering::Relaxed);
    // ORDERING: Release pairs with the fence in `former`.
    fence(Ordering::Release);
    for place in if is_first { &FORMER[..] } else { &FORMER[1..] } {
        place.ns.store(ns, Ordering::Relaxed);
        place.tick.store(tick, Ordering::Relaxed);
    }
    // ORDERING: Release pairs with the Acquire in `former`.
    FORMER_VERSION.store(version.wrapping_add(1), Ordering::Release);
}

/// A conversion for one record while no writer of this process takes knots: as the writer would have said it, or
/// between what is known and now. All readings of a record are converted by one and the same now.
pub(crate) fn without_writer() -> impl FnMut(u64) -> i64 {
    let mut now = None;
    move |tick| {
        let clock = crate::region::Region::current().map(|region| &region.ticks);
        let latest = clock.and_then(TickClock::latest);
        match (clock, latest) {
            (Some(clock), Some((latest, _))) if tick <= latest => return clock.to_ns(tick),
            _ => {}
        }
        let now = *now.get_or_insert_with(Knot::read);
        let [first, last] = former();
        let known = latest.or(last.filter(|known| known.0 <= tick)).or(first);
        known.map_or(now.ns, |known| interpolate(known, (now.tick, now.ns), tick))
    }
}

/// The writing end of a [`TickClock`]: the writer's own.
#[derive(Debug)]
pub(crate) struct Knots {
    clock: &'static TickClock,
    /// A distant knot, by which the counter's rate is known well.
    base: Knot,
    latest: Knot,
    /// What is to become of the past.
    replacement: Option<Replacement>,
    error_ns_max: i64,
    /// Whether the error was ever asked about a segment in use.
    converted: bool,
}

/// The past that can go once everything below `position` is rendered.
#[derive(Debug)]
struct Replacement {
    position: u64,
    until_tick: u64,
    /// The starts of the spans that were open, sorted.
    starts: Vec<u64>,
}

impl Knots {
    /// Continues `clock`, which has begun.
    pub(crate) fn new(clock: &'static TickClock) -> Knots {
        let (tick, ns) = clock.latest().unwrap_or_default();
        let base = Knot { tick, ns, half_ticks: 0 };
        Knots { clock, base, latest: base, replacement: None, error_ns_max: 0, converted: false }
    }

    /// Adds a knot of now. Gives whether the counter still seems to be a clock.
    pub(crate) fn extend(&mut self) -> bool {
        self.append(Knot::read())
    }

    fn append(&mut self, knot: Knot) -> bool {
        let table = self.clock.table();
        let length = table.length();
        if let Some((tick, ns)) = length.checked_sub(1).map(|last| table.knot(last))
            && (knot.tick <= tick || knot.ns < ns)
        {
            // The other processor's counter lags by a few ticks, or the pair was read within one ns.
            return true;
        }
        let rate = (self.latest.ns - self.base.ns) as f64 / (self.latest.tick - self.base.tick).max(1) as f64;
        let measured = self.latest.ns - self.base.ns > RATE_MEASURED_OVER_NS;
        let span = (knot.tick - self.latest.tick.min(knot.tick)) as f64;
        let deviation_ns = if measured { (knot.ns - self.latest.ns) as f64 - span * rate } else { 0.0 };
        let rate_now = (knot.ns - self.latest.ns) as f64 / span.max(1.0);
        let is_long = knot.ns - self.latest.ns > RATE_MEASURED_OVER_NS;
        let is_steady = !(measured && is_long) || (rate_now / rate - 1.0).abs() < RATE_CHANGE_MAX;
        let pair_ns = |knot: &Knot| (knot.half_ticks as f64 * rate_now).ceil() as i64;
        self.error_ns_max = self
            .error_ns_max
            .max(deviation_ns.abs().ceil() as i64 + pair_ns(&knot).max(pair_ns(&self.latest)) + 1);
        if length == KNOTS_MAX {
            self.thin();
        }
        let table = self.clock.table();
        let length = table.length();
        table.put(length, (knot.tick, knot.ns));
        table.set_length(length + 1);
        self.latest = knot;
        self.converted = true;
        is_steady
    }

    /// The past became too long before it could be replaced: every second knot of its older half goes. What
    /// the function says of that time changes, by no more than the printed error; it happens only where more than a
    /// thousand batches pass before what was queued is rendered.
    fn thin(&mut self) {
        let old = self.clock.table();
        let kept = (0..old.length()).filter(|index| index % 2 == 0 || *index >= KNOTS_MAX / 2);
        self.replace(kept.map(|index| old.knot(index)));
    }

    /// Whether it is time to look which spans are open, with [`Knots::plan_replacement`].
    pub(crate) fn are_many(&self) -> bool {
        self.replacement.is_none() && self.clock.table().length() >= KNOTS_MANY
    }

    /// The past can be replaced once everything below `position`, the end of the queue as read after `starts`, the
    /// open spans' starts, were collected, is rendered.
    pub(crate) fn plan_replacement(&mut self, mut starts: Vec<u64>, position: u64) {
        let until_tick = self.latest.tick;
        starts.retain(|start| *start < until_tick);
        starts.sort_unstable();
        starts.dedup();
        // One for each open span is at most what the stacks hold; should that ever be more than the room, the
        // youngest share knots.
        starts.truncate(KNOTS_MANY / 2);
        self.replacement = Some(Replacement { position, until_tick, starts });
    }

    /// Replaces the past if everything that may ask for it is rendered, that is, if `position` is.
    pub(crate) fn replace_past(&mut self, position: u64) {
        let Some(Replacement { until_tick, starts, .. }) =
            self.replacement.take_if(|planned| planned.position <= position)
        else {
            return;
        };
        let old = self.clock.table();
        let length = old.length();
        // A reading can be older than that although nobody is known to have it: of a thread that lost its processor
        // between the reading and its record. For such the first knot, and some of the past, stay.
        let past = (0..length).map(|index| old.knot(index)).take_while(|(tick, _)| *tick < until_tick);
        let step = past.clone().count().div_ceil(PAST_KNOTS_KEPT).max(1);
        let open = starts.iter().map(|start| (*start, old.value(*start)));
        let mut kept: Vec<(u64, i64)> = past.step_by(step).chain(open).collect();
        kept.sort_unstable();
        kept.dedup_by_key(|(tick, _)| *tick);
        let later = (0..length).map(|index| old.knot(index)).filter(|(tick, _)| *tick >= until_tick);
        self.replace(kept.into_iter().chain(later));
    }

    fn replace(&self, knots: impl Iterator<Item = (u64, i64)>) {
        let clock = self.clock;
        let generation = clock.replaced.load(Ordering::Relaxed);
        let next = &clock.tables[generation.wrapping_add(1) as usize % 2];
        // ORDERING: Release pairs with the fence in `to_ns`: what is written below is not seen before the number that
        // was stored last.
        fence(Ordering::Release);
        next.set_length(0);
        let mut length = 0;
        for knot in knots.take(KNOTS_MAX) {
            next.put(length, knot);
            length += 1;
        }
        next.set_length(length);
        // ORDERING: Release pairs with the Acquire loads of the number.
        clock.replaced.store(generation.wrapping_add(1), Ordering::Release);
    }

    /// The latest tick that can be converted without going beyond a knot.
    pub(crate) fn latest_tick(&self) -> u64 {
        self.latest.tick
    }

    /// Bounds how far a conversion so far was from the clock, in ns: half the distance of a pair's readings, and
    /// what the clock's rate changed from one knot to the next. `None` if nothing was converted.
    pub(crate) fn error_ns(&self) -> Option<i64> {
        self.converted.then_some(self.error_ns_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock() -> &'static TickClock {
        // SAFETY: zeroed memory is a clock without knots: atomics only.
        Box::leak(unsafe { Box::<TickClock>::new_zeroed().assume_init() })
    }

    fn knots(clock: &'static TickClock) -> Knots {
        let base = Knot { tick: 0, ns: 0, half_ticks: 10 };
        Knots { clock, base, latest: base, replacement: None, error_ns_max: 0, converted: false }
    }

    fn knot(tick: u64, ns: i64) -> Knot {
        Knot { tick, ns, half_ticks: 10 }
    }

    #[test]
    fn a_reading_lies_on_the_line_between_its_knots() {
        let clock = clock();
        let mut knots = knots(clock);
        for (tick, ns) in [(1_000, 500), (2_000, 1_000), (4_000, 3_000), (10_000, 6_000)] {
            knots.append(knot(tick, ns));
        }
        for (tick, ns) in [
            (1_000, 500),
            (1_001, 500),
            (1_500, 750),
            (2_000, 1_000),
            (3_000, 2_000),
            (7_000, 4_500),
            (10_000, 6_000),
        ] {
            assert_eq!(clock.to_ns(tick), ns, "{tick}");
        }
    }

    #[test]
    fn the_function_never_decreases() {
        let clock = clock();
        let mut knots = knots(clock);
        let mut tick = 0;
        for step in 1..200_u64 {
            tick += step * 7919 % 5_000 + 1;
            knots.append(knot(tick, (tick as f64 * 0.4087) as i64 + (step % 3) as i64));
        }
        let values: Vec<i64> = (0..tick).map(|tick| clock.to_ns(tick)).collect();
        assert!(values.is_sorted());
    }

    #[test]
    fn the_past_is_replaced_and_open_starts_keep_their_values() {
        let clock = clock();
        let mut knots = knots(clock);
        let mut appended = 0;
        let mut append = |knots: &mut Knots| {
            appended += 1;
            // An uneven clock, so that a line through far knots would not do.
            let wobble = if appended % 2 == 0 { 40 } else { 0 };
            knots.append(knot(appended * 1_000, appended as i64 * 400 + wobble));
        };
        while !knots.are_many() {
            append(&mut knots);
        }
        let starts = vec![5_500, 77_777, 300_001];
        let former: Vec<i64> = starts.iter().map(|start| clock.to_ns(*start)).collect();
        knots.plan_replacement(starts.clone(), 10);
        append(&mut knots);
        let latest = clock.latest();
        knots.replace_past(9);
        assert!(clock.table().length() > KNOTS_MANY, "something below 10 is not rendered yet");
        knots.replace_past(10);
        assert!(clock.table().length() <= starts.len() + PAST_KNOTS_KEPT + 3);
        assert_eq!(starts.iter().map(|start| clock.to_ns(*start)).collect::<Vec<_>>(), former);
        assert_eq!(clock.latest(), latest);
        append(&mut knots);
        assert!(!knots.are_many());
    }

    #[test]
    fn a_table_that_is_full_goes_on() {
        let clock = clock();
        let mut knots = knots(clock);
        for index in 1..5 * KNOTS_MAX as u64 {
            knots.append(knot(index * 100, index as i64 * 40));
        }
        assert_eq!(clock.to_ns(200), 80);
        assert_eq!(clock.latest(), Some((5 * KNOTS_MAX as u64 * 100 - 100, 5 * KNOTS_MAX as i64 * 40 - 40)));
    }

    #[test]
    fn pairs_of_now_give_the_clock_back() {
        if !is_a_clock() {
            eprintln!("skipped: the counter is no clock here");
            return;
        }
        let clock = clock();
        clock.begin();
        let mut knots = Knots::new(clock);
        let start = std::time::Instant::now();
        while start.elapsed() < std::time::Duration::from_millis(20) {
            std::hint::spin_loop();
        }
        let (before, tick, after) = (monotonic_ns(), now_in_order(), monotonic_ns());
        knots.extend();
        let error = knots.error_ns().unwrap() + 100;
        let ns = clock.to_ns(tick);
        assert!((before - error..=after + error).contains(&ns), "{before} {ns} {after} ± {error}");
    }
}
