//! Callables: the invocations of one `hid`, what each stage took, and which callable is which.
//!
//! Setup before a run carries a `hid` as well, but is no run of it, so it stands apart.

use crate::build::Trace;
use crate::invocation::{Invocation, Kind};
use crate::span::NameId;
use crate::statistics::{Stats, mean_ns};
use crate::vocabulary::run_word;
use rustc_hash::FxHashMap;

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
    /// What part it plays.
    pub label: Label,
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
    /// The label's word, or the first eight digits of `hid`.
    pub fn display_label(&self) -> String {
        self.label.word().map_or_else(|| hex8(self.hid), str::to_owned)
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

fn hex8(hid: u64) -> String {
    let mut digits = format!("{hid:x}");
    digits.truncate(8);
    digits
}

/// The callables that share the place of the most invoked, so that none of them is called decode; empty if
/// there is no tie.
pub fn decode_tie(callables: &[Callable]) -> Vec<&Callable> {
    let runs = || callables.iter().filter(|callable| callable.label != Label::Prewarm);
    let most = runs().map(|callable| callable.invocations.len()).max().unwrap_or(0);
    let tied: Vec<&Callable> = runs().filter(|callable| callable.invocations.len() == most).collect();
    if most > 1 && tied.len() > 1 { tied } else { Vec::new() }
}

impl Trace {
    /// The callables, those with more invocations first, else in the order of their first invocation.
    pub fn callables(&self) -> Vec<Callable> {
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
        let mut callables: Vec<Callable> = buckets.into_iter().map(|bucket| self.callable(bucket)).collect();
        self.label(&mut callables);
        callables
    }

    fn callable(&self, mut bucket: Vec<u32>) -> Callable {
        let at = |index: u32| &self.invocations()[index as usize];
        bucket.sort_by_key(|&index| at(index).inv);
        let mut roots: FxHashMap<NameId, Vec<i64>> = FxHashMap::default();
        let mut stages: FxHashMap<NameId, (bool, Vec<i64>)> = FxHashMap::default();
        let mut missing_roots = 0;
        let mut effective = Vec::new();
        for &index in &bucket {
            let invocation = at(index);
            match invocation.root_span(self) {
                Some(root) => roots.entry(root.name).or_default().push(root.dur),
                None => missing_roots += 1,
            }
            for span in invocation.by_name(self).into_iter().filter(|span| span.depth > 0) {
                let stage = stages.entry(span.name).or_insert_with(|| (self.is_device(span), Vec::new()));
                stage.1.push(span.dur);
            }
            effective.extend(invocation.effective_ns(self));
        }
        let roots = self.named(roots.into_iter().map(|(name, durations)| (name, false, durations)));
        let first = at(bucket[0]);
        Callable {
            hid: first.hid,
            label: if first.kind == Kind::Prewarm { Label::Prewarm } else { Label::None },
            root_name: match roots.first() {
                Some(root) => root.name.clone(),
                None => self.lost_root_name(first),
            },
            roots,
            missing_roots,
            stages: self.named(stages.into_iter().map(|(name, (device, durs))| (name, device, durs))),
            effective_mean_ns: mean_ns(&effective),
            invocations: bucket,
        }
    }

    fn named(&self, durations: impl Iterator<Item = (NameId, bool, Vec<i64>)>) -> Vec<Named> {
        let mut named: Vec<Named> = durations
            .filter_map(|(name, device, mut durations)| {
                let stats = Stats::of(&mut durations)?;
                Some(Named { name: self.names[name.0 as usize].text.clone(), device, stats })
            })
            .collect();
        named.sort_by(|a, b| b.stats.n.cmp(&a.stats.n).then_with(|| a.name.cmp(&b.name)));
        named
    }

    /// What the root would be called, by the names of what lies below it.
    fn lost_root_name(&self, invocation: &Invocation) -> Box<str> {
        let mut names = self.spans_of(invocation).map(|span| &self.name(span).text);
        let first = names.clone().next();
        let word = names.find_map(|name| run_word(name));
        word.or_else(|| first.and_then(|name| name.split('.').next())).unwrap_or("?").into()
    }

    fn label(&self, callables: &mut [Callable]) {
        let runs = || callables.iter().filter(|callable| callable.label != Label::Prewarm);
        let most = runs().map(|callable| callable.invocations.len()).max().unwrap_or(0);
        let unique = runs().filter(|callable| callable.invocations.len() == most).count() == 1;
        for callable in callables.iter_mut().filter(|callable| callable.label != Label::Prewarm) {
            if unique && most > 1 && callable.invocations.len() == most {
                callable.label = Label::Decode;
            } else if self.once_a_life(callable) {
                callable.label = Label::Prefill;
            }
        }
    }

    fn once_a_life(&self, callable: &Callable) -> bool {
        let mut lives: Vec<u32> =
            callable.invocations.iter().map(|&index| self.invocations()[index as usize].life).collect();
        lives.sort_unstable();
        lives.windows(2).all(|pair| pair[0] != pair[1])
    }
}
