//! Callables: the invocations of one `hid`, what each stage took, and which callable is which.
//!
//! Setup before a run carries a `hid` as well, but is no run of it, so it stands apart.

use crate::build::Trace;
use crate::invocation::{Invocation, Kind, effective_ns};
use crate::parallel;
use crate::span::{NameId, Span};
use crate::statistics::{Ranks, Stats, Tally};
use crate::vocabulary::{Stage, run_word};
use rustc_hash::FxHashMap;
use std::borrow::Cow;

/// What part a callable plays, as far as its invocation counts tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Label {
    /// Invoked more often than any other: once a token.
    Decode,
    /// Invoked at most once in each process life.
    Prefill,
    /// Setup before any run.
    Prewarm,
    /// Neither.
    None,
}

impl Label {
    /// The word for it, if it has one.
    pub fn word(self) -> Option<&'static str> {
        match self {
            Label::Decode => Some("decode"),
            Label::Prefill => Some("prefill"),
            Label::Prewarm => Some("prewarm"),
            Label::None => None,
        }
    }
}

/// The durations of all spans of one name in a callable's invocations, one an invocation.
#[derive(Clone, Debug, PartialEq)]
pub struct Named {
    /// The span name.
    pub name: Box<str>,
    /// Whether it is on the device's clock.
    pub device: bool,
    /// The durations.
    pub stats: Stats,
}

/// All invocations of one callable.
#[derive(Clone, Debug)]
pub struct Callable {
    /// Its identity.
    pub hid: u64,
    /// What part it plays in the whole log.
    pub label: Label,
    /// What whoever reads the log calls it, see [`Trace::name_callable`]. Setup keeps its own name.
    pub given_label: Option<Box<str>>,
    /// Whether it shares the place of the most invoked in the whole log, so that nothing is called decode.
    pub tied: bool,
    /// Its invocations, as indices into the trace's, ordered by inv.
    pub invocations: Vec<u32>,
    /// The roots by name, the commonest first: one entry in a log of one era, none if all roots were lost.
    pub roots: Vec<Named>,
    /// Invocations whose root was lost.
    pub missing_roots: usize,
    /// The name that the root has or, where all were lost, would have.
    pub root_name: Box<str>,
    /// The spans below the root by name, the commonest first, then by name.
    pub stages: Vec<Named>,
    /// The mean of the invocations' effective windows, of those that have one.
    pub effective_mean_ns: Option<i64>,
}

impl Callable {
    /// The label that was given, else the label's word, else the first eight digits of `hid`.
    pub fn display_label(&self) -> String {
        display_label(self.given_label.as_deref(), self.label, self.hid)
    }

    /// The stage whose name ends in `leaf_path`, such as `runner_run.device_wall`, in any era's spelling.
    pub fn stage(&self, leaf_path: &str) -> Option<&Named> {
        self.stages.iter().find(|stage| {
            run_word(&stage.name).is_some_and(|word| {
                stage.name[word.len()..].strip_prefix('.').is_some_and(|rest| rest == leaf_path)
            })
        })
    }
}

fn display_label(given: Option<&str>, label: Label, hid: u64) -> String {
    given.or(label.word()).map_or_else(|| hex8(hid), str::to_owned)
}

fn hex8(hid: u64) -> String {
    let mut digits = format!("{hid:x}");
    digits.truncate(8);
    digits
}

/// A name, whether it is on the device's clock, and its durations.
pub(crate) type NamedDurations = (Box<str>, bool, Vec<i64>);

/// What part a callable plays, and whether it shares the place of the most invoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Role {
    label: Label,
    tied: bool,
}

/// Durations by name, of one callable after the other: a log may have as many callables as names.
struct Durations {
    /// By name, the last callable that has it, counted from 1, and where in `named` it is.
    slots: Vec<(u32, u32)>,
    callable: u32,
    named: Vec<OfName>,
    /// Whether the values are kept, for their ranks.
    keep: bool,
}

/// The durations of one name.
struct OfName {
    name: NameId,
    device: bool,
    tally: Tally,
    values: Vec<i64>,
}

impl Durations {
    fn new(trace: &Trace, keep: bool) -> Durations {
        Durations { slots: vec![(0, 0); trace.names.len()], callable: 1, named: Vec::new(), keep }
    }

    /// The first span of a name decides whether that is one of the device.
    fn push(&mut self, trace: &Trace, span: &Span) {
        let keep = self.keep;
        let of = self.of(trace.name_id(span), || trace.is_device(span));
        of.tally.add(span.dur);
        if keep {
            of.values.push(span.dur);
        }
    }

    /// As if the spans of `later` had been pushed here.
    fn absorb(&mut self, later: Durations) {
        for OfName { name, device, tally, values } in later.named {
            let of = self.of(name, || device);
            of.tally.absorb(tally);
            of.values.extend(values);
        }
    }

    fn of(&mut self, name: NameId, device: impl FnOnce() -> bool) -> &mut OfName {
        let (last, slot) = &mut self.slots[name.0 as usize];
        if *last != self.callable {
            (*last, *slot) = (self.callable, self.named.len() as u32);
            let (device, tally) = (device(), Tally::default());
            self.named.push(OfName { name, device, tally, values: Vec::new() });
        }
        &mut self.named[*slot as usize]
    }

    /// The values by name, the commonest first, then by name; then the next callable begins.
    fn take_values(&mut self, trace: &Trace) -> Vec<NamedDurations> {
        self.callable += 1;
        let text = |name: NameId| trace.names[name.0 as usize].text.clone();
        let mut named: Vec<NamedDurations> =
            self.named.drain(..).map(|of| (text(of.name), of.device, of.values)).collect();
        named.sort_by(|a, b| b.2.len().cmp(&a.2.len()).then_with(|| a.0.cmp(&b.0)));
        named
    }

    /// What they amount to, the commonest first, then by name; then the next callable begins.
    fn take(&mut self, trace: &Trace) -> Vec<Named> {
        self.callable += 1;
        let mut named: Vec<Named> = self
            .named
            .drain(..)
            .filter_map(|OfName { name, device, tally, mut values }| {
                let stats = Stats { ranks: Ranks::of(&mut values), ..tally.stats()? };
                Some(Named { name: trace.names[name.0 as usize].text.clone(), device, stats })
            })
            .collect();
        named.sort_by(|a, b| b.stats.n.cmp(&a.stats.n).then_with(|| a.name.cmp(&b.name)));
        named
    }
}

/// The earliest span of each name, one invocation after the other.
struct Earliest<'a> {
    /// By name, the last invocation that has it, counted from 1, and where in `held` its span is.
    seen: Vec<(u32, u32)>,
    invocation: u32,
    held: Vec<&'a Span>,
    orch: Option<&'a Span>,
    sched: Option<&'a Span>,
}

impl<'a> Earliest<'a> {
    fn new(trace: &Trace) -> Earliest<'a> {
        let seen = vec![(0, 0); trace.names.len()];
        Earliest { seen, invocation: 0, held: Vec::new(), orch: None, sched: None }
    }

    /// As [`Invocation::by_name`].
    fn of(&mut self, trace: &'a Trace, invocation: &Invocation) -> &[&'a Span] {
        self.invocation += 1;
        self.held.clear();
        (self.orch, self.sched) = (None, None);
        for span in trace.spans_of(invocation) {
            let name = trace.name_id(span);
            let (last, slot) = &mut self.seen[name.0 as usize];
            if *last != self.invocation {
                (*last, *slot) = (self.invocation, self.held.len() as u32);
                self.held.push(span);
            } else if span.ts < self.held[*slot as usize].ts {
                self.held[*slot as usize] = span;
            }
            let window = match trace.names[name.0 as usize].stage {
                Some(Stage::Orch) => &mut self.orch,
                Some(Stage::Sched) => &mut self.sched,
                _ => continue,
            };
            if window.is_none_or(|held| span.ts < held.ts) {
                *window = Some(span);
            }
        }
        &self.held
    }

    /// As [`Invocation::effective_ns`], of the invocation that was last looked at.
    fn effective_ns(&self) -> Option<i64> {
        effective_ns(self.orch, self.sched)
    }
}

/// What the figures of callables are made of, one callable after the other.
pub(crate) struct Figures<'a> {
    trace: &'a Trace,
    earliest: Earliest<'a>,
    roots: Durations,
    stages: Durations,
    missing_roots: usize,
    effective: Tally,
}

impl<'a> Figures<'a> {
    fn new(trace: &'a Trace, keep: bool) -> Figures<'a> {
        Figures {
            trace,
            earliest: Earliest::new(trace),
            roots: Durations::new(trace, keep),
            stages: Durations::new(trace, keep),
            missing_roots: 0,
            effective: Tally::default(),
        }
    }

    /// Of all durations, with their values.
    pub(crate) fn with_values(trace: &'a Trace) -> Figures<'a> {
        Figures::new(trace, true)
    }

    /// Looks at invocations of one callable.
    fn look_at(&mut self, invocations: &[u32]) {
        let trace = self.trace;
        for &index in invocations {
            let invocation = &trace.invocations()[index as usize];
            match invocation.root_span(trace) {
                Some(root) => self.roots.push(trace, root),
                None => self.missing_roots += 1,
            }
            for span in self.earliest.of(trace, invocation).iter().filter(|span| trace.depth(span) > 0) {
                self.stages.push(trace, span);
            }
            if let Some(window) = self.earliest.effective_ns() {
                self.effective.add(window);
            }
        }
    }

    /// As [`Figures::look_at`], on several threads if there are enough invocations.
    fn look_at_all(&mut self, invocations: &[u32]) {
        let pieces = parallel::pieces(invocations.len(), PIECE_MIN);
        if pieces == 1 {
            return self.look_at(invocations);
        }
        let (trace, keep) = (self.trace, self.roots.keep);
        let pieces = invocations.chunks(invocations.len().div_ceil(pieces)).collect();
        let looked = parallel::each(pieces, |piece| {
            let mut figures = Figures::new(trace, keep);
            figures.look_at(piece);
            figures
        });
        looked.into_iter().for_each(|figures| self.absorb(figures));
    }

    fn absorb(&mut self, later: Figures) {
        self.roots.absorb(later.roots);
        self.stages.absorb(later.stages);
        self.missing_roots += later.missing_roots;
        self.effective.absorb(later.effective);
    }

    /// The durations that the figures of a callable are made of, by name: of its roots, and of its stages.
    pub(crate) fn durations(&mut self, callable: &Callable) -> [Vec<NamedDurations>; 2] {
        self.look_at(&callable.invocations);
        [self.roots.take_values(self.trace), self.stages.take_values(self.trace)]
    }
}

/// Fewer invocations are not worth a thread: it takes longer to start than to look at them.
const PIECE_MIN: usize = 512;

/// The callables that share the place of the most invoked and were given no label, so that none of them is called
/// decode; empty if there is no tie.
pub fn decode_tie(callables: &[Callable]) -> Vec<&Callable> {
    let tied = |callable: &&Callable| callable.tied && callable.given_label.is_none();
    let tied: Vec<&Callable> = callables.iter().filter(tied).collect();
    if tied.len() > 1 { tied } else { Vec::new() }
}

impl Trace {
    /// The callables, those with more invocations first, else in the order of their first invocation.
    pub fn callables(&self) -> Vec<Callable> {
        self.callables_by(false)
    }

    /// As [`Trace::callables`], with the ranks of all durations: medians and percentiles.
    pub fn callables_with_ranks(&self) -> Vec<Callable> {
        self.callables_by(true)
    }

    /// What each callable is called, as [`Callable::display_label`], with its invocations as indices into the trace's;
    /// callables as in [`Trace::callables`], without any figure.
    pub fn labels(&self) -> Vec<(String, Vec<u32>)> {
        let buckets = self.buckets();
        let roles = self.roles_of(&buckets);
        let called = buckets.into_iter().map(|bucket| {
            let first = &self.invocations()[bucket[0] as usize];
            let (label, given, _) = self.part_of(first, &roles);
            (display_label(given, label, first.hid), bucket)
        });
        called.collect()
    }

    fn callables_by(&self, ranks: bool) -> Vec<Callable> {
        let buckets = self.buckets();
        let roles = self.roles_of(&buckets);
        let mut figures = Figures::new(self, ranks);
        buckets.into_iter().map(|bucket| self.callable(bucket, &roles, &mut figures)).collect()
    }

    fn roles_of(&self, buckets: &[Vec<u32>]) -> Cow<'_, FxHashMap<u64, Role>> {
        self.roles().map_or_else(|| Cow::Owned(self.find_roles(buckets)), Cow::Borrowed)
    }

    /// The label of an invocation's callable, the one that it was given, and whether it shares the place of the most
    /// invoked. Setup plays a part of its own.
    fn part_of(&self, invocation: &Invocation, roles: &FxHashMap<u64, Role>) -> (Label, Option<&str>, bool) {
        if invocation.kind == Kind::Prewarm {
            return (Label::Prewarm, None, false);
        }
        let Role { label, tied } =
            roles.get(&invocation.hid).copied().unwrap_or(Role { label: Label::None, tied: false });
        (label, self.given_label(invocation.hid), tied)
    }

    /// The invocations of each callable, in log order; callables as in [`Trace::callables`].
    pub(crate) fn buckets(&self) -> Vec<Vec<u32>> {
        let mut slots: FxHashMap<(u64, bool), usize> = FxHashMap::default();
        let mut buckets: Vec<Vec<u32>> = Vec::new();
        for (index, invocation) in self.invocations().iter().enumerate() {
            let key = (invocation.hid, invocation.kind == Kind::Prewarm);
            let slot = *slots.entry(key).or_insert_with(|| {
                buckets.push(Vec::new());
                buckets.len() - 1
            });
            buckets[slot].push(index as u32);
        }
        buckets.sort_by_key(|bucket| std::cmp::Reverse(bucket.len()));
        buckets
    }

    fn callable(
        &self,
        mut bucket: Vec<u32>,
        roles: &FxHashMap<u64, Role>,
        figures: &mut Figures,
    ) -> Callable {
        let at = |index: u32| &self.invocations()[index as usize];
        bucket.sort_by_key(|&index| at(index).inv);
        figures.look_at_all(&bucket);
        let roots = figures.roots.take(self);
        let first = at(bucket[0]);
        let (label, given, tied) = self.part_of(first, roles);
        Callable {
            hid: first.hid,
            label,
            given_label: given.map(Into::into),
            tied,
            root_name: match roots.first() {
                Some(root) => root.name.clone(),
                None => self.lost_root_name(first),
            },
            roots,
            missing_roots: std::mem::take(&mut figures.missing_roots),
            stages: figures.stages.take(self),
            effective_mean_ns: std::mem::take(&mut figures.effective).stats().map(|stats| stats.mean_ns),
            invocations: bucket,
        }
    }

    /// What the root would be called, by the names of what lies below it.
    fn lost_root_name(&self, invocation: &Invocation) -> Box<str> {
        let mut names = self.spans_of(invocation).map(|span| &self.name(span).text);
        let first = names.clone().next();
        let word = names.find_map(|name| run_word(name));
        word.or_else(|| first.and_then(|name| name.split('.').next())).unwrap_or("?").into()
    }

    /// By hid, what part each callable plays; setup plays none.
    pub(crate) fn find_roles(&self, buckets: &[Vec<u32>]) -> FxHashMap<u64, Role> {
        let first = |bucket: &[u32]| &self.invocations()[bucket[0] as usize];
        let runs = || buckets.iter().filter(|bucket| first(bucket).kind != Kind::Prewarm);
        let most = runs().map(Vec::len).max().unwrap_or(0);
        let unique = runs().filter(|bucket| bucket.len() == most).count() == 1;
        let role = |bucket: &Vec<u32>| {
            let leads = most > 1 && bucket.len() == most;
            let label = match leads && unique {
                true => Label::Decode,
                false if self.once_a_life(bucket) => Label::Prefill,
                false => Label::None,
            };
            (first(bucket).hid, Role { label, tied: leads && !unique })
        };
        runs().map(role).collect()
    }

    fn once_a_life(&self, bucket: &[u32]) -> bool {
        let mut lives: Vec<u32> =
            bucket.iter().map(|&index| self.invocations()[index as usize].life).collect();
        lives.sort_unstable();
        lives.windows(2).all(|pair| pair[0] != pair[1])
    }
}
